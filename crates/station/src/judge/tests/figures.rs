//! What is told, since when, and of how many.

use super::*;

#[test]
fn errored_seconds_are_told_with_the_one_that_is_too_many() {
    let errored = ("es", "preset = 'g826'\nmetric = 'errored_seconds'\nlimit = 10");
    let mut sim = Sim::new(&[errored], vec![stream("muc", 1)]);
    sim.seconds(100, 0);
    sim.seconds(10, 1);
    assert_eq!(sim.troubles(), []);
    sim.seconds(5, 1);
    assert_eq!(sim.troubles(), [("breach", 110, None)]);
    let breach = sim.judge.open().next().unwrap();
    assert!(breach.title.ends_with("in each month: missed"), "{}", breach.title);
    let month = sim.judge.months_so_far().pop().unwrap();
    assert_eq!((month.windows.missed, month.seconds.errored), (1, 15));
}

#[test]
fn nothing_is_said_of_time_before_the_first_record() {
    let loss = ("loss", "metric = 'loss_ratio'\nlimit = '10%'\nwindow = '10s'");
    let mut sim = Sim::new(&[loss], vec![stream("muc", 1)]);
    sim.at = BEGIN + 7;
    // Nothing is sent, so that nothing is said. The first window began 7 s before, and is told of no more than that.
    for _ in 0..60 {
        sim.record(0, Counters { sent: 0, ..Counters::default() }, &[]);
        sim.pass(1);
    }
    assert_eq!(sim.troubles(), [("unjudged", 10, None)]);
}

#[test]
fn located_losses_are_held_against_all_that_was_sent_in_their_time() {
    let mut sim = Sim::new(&[LOSS], vec![stream("muc", 1)]);
    // Each third second loses a half; those between belong to the same episode.
    for second in 0..30 {
        sim.seconds(1, if second % 3 == 0 { 10 } else { 0 });
    }
    sim.seconds(30, 0);
    let located = sim.happened("located_loss");
    let [loss] = located.as_slice() else { panic!("{located:?}") };
    // From the 1st to the 28th second: 560 were sent, 100 lost.
    assert!(loss.title.contains("100 of 560 packets lost (17.9%)"), "{}", loss.title);
    assert_eq!(loss.evidence["streams"][0]["sent"], 560);
}

#[test]
fn replies_after_the_timeout_are_called_late_and_claim_no_direction() {
    let mut sim = Sim::new(&[LOSS, AVAILABLE], vec![stream("muc", 1)]);
    for _ in 0..30 {
        let counters = Counters {
            sent: 20,
            lost: 20,
            late: 19,
            lost_forward: Some(1),
            lost_backward: Some(19),
            ..Counters::default()
        };
        sim.record(0, counters, &[]);
        sim.pass(1);
    }
    let outage = sim.judge.open().find(|t| t.kind == TroubleKind::Unavailable).unwrap();
    let end = "200 of 200 packets lost since 2026-11-29 00:00:00 UTC; to 192.0.2.9; answered too late: 190";
    assert!(outage.text.ends_with(end), "{}", outage.text);
    sim.seconds(30, 0);
    let located = sim.happened("located_loss");
    let [loss] = located.as_slice() else { panic!("{located:?}") };
    assert_eq!(
        loss.title,
        "probe.a muc EF: 600 of 600 packets lost (100%) by the timeout (570 answered too late) \
         within 30 s; streams concerned: 1 of 1"
    );
    assert_eq!(
        (&loss.evidence["direction"], &loss.evidence["answered_late"]),
        (&json!("unknown"), &json!(570))
    );
}
