//! Reloads: objectives that are defined in another way, targets that go.

use super::*;

#[test]
fn a_reload_that_defines_an_objective_anew_resolves_nothing_that_lasts() {
    let units = BTreeSet::from([unit()]);
    let defined = |limit: &str| {
        let text = format!(
            "metric = 'loss_ratio'\nlimit = '{limit}'\nwindow = '10s'\nleast_samples = 200"
        );
        settings(&[("loss", &text), AVAILABLE])
    };
    let begun =
        |sim: &Sim| -> Vec<_> { sim.troubles().into_iter().filter(|t| t.0 == "breach").collect() };
    // Half of all is lost; the new definition is missed as well.
    let mut sim = Sim::new(&[LOSS], vec![stream("muc", 1)]);
    sim.seconds(65, 10);
    sim.judge.reload(defined("20%"), &units, sim.at * SECOND);
    sim.seconds(95, 10);
    assert_eq!(begun(&sim), [("breach", 0, None)], "the true begin, once");
    sim.seconds(40, 0);
    assert_eq!(begun(&sim)[1..], [("breach", 0, Some(160))]);
    // The new one allows it: it ends with the reload, and says why.
    let mut sim = Sim::new(&[LOSS], vec![stream("muc", 1)]);
    sim.seconds(65, 10);
    sim.judge.reload(defined("60%"), &units, sim.at * SECOND);
    sim.found.extend(sim.judge.take_findings());
    assert_eq!(begun(&sim), [("breach", 0, None)], "nothing is known of it yet");
    sim.settings = defined("60%");
    sim.restart(true, 0);
    sim.found.retain(|found| !matches!(found, JudgeFinding::Begins(_)));
    sim.seconds(20, 10);
    assert_eq!(begun(&sim), [("breach", 0, Some(65))]);
    let told = sim.happened("recovery");
    let [recovery] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(
        recovery.title,
        "probe.a muc EF: two-way loss at most 60 % in each 10 s: not missed as it is defined since \
         2026-11-29 00:01:05 UTC"
    );
}

#[test]
fn an_outage_lasts_over_a_reload_that_changes_its_target() {
    let units = BTreeSet::from([unit()]);
    let acme = format!("{}\ncustomer = 'acme'", AVAILABLE.1);
    let mut sim = Sim::new(&[("up", &acme)], vec![stream("muc", 1)]);
    sim.seconds(20, 0);
    sim.seconds(30, 20);
    let stricter = settings(&[("up", "preset = 'mef_10'\ntarget_percent = 99.99")]);
    sim.judge.reload(stricter, &units, sim.at * SECOND);
    sim.seconds(30, 20);
    assert_eq!(sim.troubles(), [("unavailable", 20, None)]);
    sim.seconds(20, 0);
    assert_eq!(sim.troubles()[1..], [("unavailable", 20, Some(80))]);
    // What was judged by the old target stays in the report.
    sim.found.extend(sim.judge.take_findings());
    let [month] = &sim.happened("sla_month")[..] else { panic!() };
    assert_eq!(month.evidence["labels"]["until"], "2026-11-29 00:00:50 UTC");
    assert_eq!(month.evidence["customer"], "acme", "as it was");
    let figures = &month.evidence["month"]["availability"];
    assert_eq!((&figures["available"], &figures["unavailable"]), (&json!(20), &json!(30)));
}

#[test]
fn a_target_that_is_taken_away_stays_in_the_report_of_its_month() {
    let mut sim = Sim::new(&[AVAILABLE], vec![stream("muc", 1), stream("fra", 2)]);
    sim.seconds(60, 0);
    sim.say(Said::ProbeEvent(Event::Ended(vec![0])));
    sim.streams.remove(0);
    for _ in 0..200 {
        sim.record(1, Counters { sent: 20, ..Counters::default() }, &[]);
        sim.pass(1);
    }
    assert_eq!(sim.judge.months_so_far().len(), 1);
    let [month] = &sim.happened("sla_month")[..] else { panic!() };
    let labels = &month.evidence["labels"];
    let until = json!("2026-11-29 00:01:00 UTC");
    assert_eq!((&labels["target"], &labels["until"]), (&json!("muc"), &until));
    assert!(month.title.starts_with("probe.a muc EF until 2026-11-29 00:01:00 UTC: month closed"));
    let figures: ObjectiveMonth = serde_json::from_value(month.evidence["month"].clone()).unwrap();
    assert_eq!((figures.availability.available, figures.provisional), (60, false));
    assert_eq!(month.end_ns, Some((BEGIN + 60) * SECOND));
}
