//! What is lost, not sent or not measured, and what the station doubts of that.

use super::*;

#[test]
fn lateness_casts_doubt_on_delays_and_not_on_losses() {
    let slow =
        ("slow", "metric = 'delay_percentile'\npercent = 90\nlimit = '20ms'\nwindow = '10s'");
    let mut sim = Sim::new(&[LOSS, AVAILABLE, slow], vec![stream("muc", 1)]);
    let second = |sim: &mut Sim, lost: u64| {
        let counters = Counters { sent: 20, lost, sent_late: 3, ..Counters::default() };
        sim.record(0, counters, &[Caveat::SenderLate]);
        sim.pass(1);
    };
    (0..30).for_each(|_| second(&mut sim, 0));
    (0..40).for_each(|_| second(&mut sim, 20));
    assert_eq!(sim.troubles(), [("unavailable", 30, None), ("breach", 30, None)]);
    let of = |sim: &Sim, name: &str| {
        let month = sim.judge.months_so_far().into_iter().find(|m| m.objective == name);
        month.unwrap().windows
    };
    assert_eq!((of(&sim, "loss").missed, of(&sim, "slow").excluded), (4, 7));
    (0..300).for_each(|_| second(&mut sim, 0));
    let doubt = sim.judge.open().find(|t| t.kind == TroubleKind::StationDoubt).unwrap();
    assert!(doubt.title.starts_with("probe.a: delays are not judged"), "{}", doubt.title);
}

#[test]
fn where_others_answer_a_target_of_which_all_is_lost_is_out_whatever_the_station_doubts() {
    let second = |sim: &mut Sim, lost: [u64; 2]| {
        for (stream, lost) in lost.into_iter().enumerate() {
            // A third of what was due could not be sent.
            let counters = Counters { sent: 20, lost, skipped: 10, ..Counters::default() };
            sim.record(stream as u32, counters, &[Caveat::SendsSkipped]);
        }
        sim.pass(1);
    };
    let streams = || vec![stream("muc", 1), stream("fra", 2)];
    let mut sim = Sim::new(&[AVAILABLE], streams());
    sim.seconds(20, 0);
    (0..30).for_each(|_| second(&mut sim, [0, 20]));
    let [JudgeFinding::Begins(outage)] = &sim.found[1..] else { panic!("{:?}", sim.found) };
    assert_eq!(outage.title, "probe.a fra EF is unavailable");
    assert_eq!(outage.starts_ns, (BEGIN + 20) * SECOND);
    // Where nobody answers, it may be this host.
    let mut sim = Sim::new(&[AVAILABLE], streams());
    sim.seconds(20, 0);
    (0..30).for_each(|_| second(&mut sim, [20, 20]));
    assert_eq!(sim.troubles(), []);
}

/// A second in which nothing could be sent to these streams.
fn unsent(sim: &mut Sim, streams: &[u32], why: sonde_wire::NotSent) {
    for stream in 0..sim.streams.len() as u32 {
        let mut counters = Counters { sent: 20, ..Counters::default() };
        if streams.contains(&stream) {
            (counters.sent, counters.skipped) = (0, 20);
            counters.not_sent.add(why, 20);
        }
        sim.record(stream, counters, &[]);
    }
    sim.pass(1);
}

#[test]
fn a_target_to_which_nothing_leaves_is_told_as_that_and_is_neither_available_nor_not() {
    let mut sim = Sim::new(&[AVAILABLE], vec![stream("muc", 1), stream("fra", 2)]);
    sim.seconds(20, 0);
    (0..9).for_each(|_| unsent(&mut sim, &[0], sonde_wire::NotSent::NoRoute));
    assert_eq!(sim.troubles(), []);
    (0..31).for_each(|_| unsent(&mut sim, &[0], sonde_wire::NotSent::NoRoute));
    assert_eq!(sim.troubles(), [("not_sent", 20, None)]);
    let trouble = sim.judge.open().next().unwrap();
    assert_eq!(trouble.title, "probe.a muc EF: nothing could be sent: no route");
    assert_eq!(trouble.labels["alertname"], "NothingSent");
    sim.restart(true, 0);
    (0..5).for_each(|_| unsent(&mut sim, &[0], sonde_wire::NotSent::NoRoute));
    sim.seconds(20, 0);
    let ended = sim.troubles().into_iter().filter(|t| t.2.is_some());
    assert_eq!(ended.collect::<Vec<_>>(), [("not_sent", 20, Some(65))]);
    let months = sim.judge.months_so_far();
    let muc = months.iter().find(|m| m.subject.contains("muc")).unwrap();
    assert_eq!((muc.availability.available, muc.availability.undecided), (40, 45));
}

#[test]
fn an_interface_of_its_own_that_is_down_is_the_station_s_doubt_and_is_told_once() {
    let mut sim = Sim::new(&[AVAILABLE], vec![stream("muc", 1), stream("fra", 2)]);
    sim.seconds(20, 0);
    (0..40).for_each(|_| unsent(&mut sim, &[0, 1], sonde_wire::NotSent::LinkDown));
    assert_eq!(sim.troubles(), [("not_sent", 20, None)]);
    let trouble = sim.judge.open().next().unwrap();
    assert_eq!(trouble.labels.get("target"), None, "{:?}", trouble.labels);
    assert_eq!(sim.excluded(), [(ExclusionKind::StationDoubt, "sends_failed".to_owned(), 40)]);
    sim.seconds(20, 0);
    assert_eq!(sim.troubles()[1..], [("not_sent", 20, Some(60))]);
}

#[test]
fn a_target_that_is_not_measured_is_told_until_it_is() {
    let left_out = |names: &[&str]| {
        let of = |name: &&str| ((*name).to_owned(), "cannot be resolved".to_owned());
        Said::ProbeEvent(Event::LeftOut(names.iter().map(of).collect()))
    };
    let mut sim = Sim::new(&[AVAILABLE], vec![stream("fra", 1)]);
    sim.pass(5);
    sim.say(left_out(&["muc"]));
    sim.pass(5);
    sim.say(left_out(&["ber", "muc"]));
    assert_eq!(sim.troubles(), [("target_left_out", 5, None), ("target_left_out", 10, None)]);
    let trouble = sim.judge.open().find(|t| t.labels["target"] == "muc").unwrap();
    assert_eq!(trouble.title, "probe.a does not measure muc: cannot be resolved");
    assert_eq!(
        (&*trouble.labels["alertname"], &*trouble.labels["severity"]),
        ("TargetNotMeasured", "warning")
    );
    // Its address is found: it has streams, and is judged from now on.
    sim.pass(5);
    sim.streams.push(stream("muc", 2));
    sim.say(Said::ProbeEvent(Event::Added(vec![stream("muc", 2)])));
    sim.say(left_out(&["ber"]));
    assert_eq!(sim.troubles()[2..], [("target_left_out", 5, Some(15))]);
    sim.seconds(10, 0);
    assert_eq!(sim.judge.months_so_far().len(), 2);
    assert_eq!(sim.judge.open().count(), 1);
}
