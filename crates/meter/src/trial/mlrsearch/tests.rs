//! The reference implementation's traces, and what holds of every search.

use proptest::prelude::*;
use serde_json::Value;
use sonde_results::trial::{Direction, Invalid, TrialHealth};

use super::super::sim::{DeviceConfig, Faults, SimulatedDevice, SimulatedTester};
use super::*;

/// A trial of one direction with so many frames sent and lost.
fn trial(next: &NextTrial, sent: u64, lost: u64) -> Trial {
    // At the pace asked for, whatever was left unsent.
    let between = (sent.max(2) - 1) as f64 / next.offer.rate_fps;
    let direction = Direction {
        name: "a>b".into(),
        intended: sent,
        sent,
        received: sent - lost,
        lost,
        sent_ns: [0, (between * SECONDS).round() as i64],
        ..Direction::default()
    };
    Trial {
        number: 1,
        measurement: String::new(),
        attempt: 1,
        purpose: next.purpose.clone(),
        start_ns: 0,
        offer: next.offer.clone(),
        directions: vec![direction],
        ledger: Vec::new(),
        health: TrialHealth::default(),
        invalid: Vec::new(),
    }
}

fn ns(seconds: &Value) -> i64 {
    (seconds.as_f64().unwrap() * SECONDS) as i64
}

/// The configuration of a trace.
fn config(trace: &Value) -> MlrConfig {
    let goal = |(i, g): (usize, &Value)| Goal {
        name: format!("goal {i}"),
        final_trial_ns: ns(&g["final"]),
        duration_sum_ns: ns(&g["sum"]),
        loss_ratio: g["loss_ratio"].as_f64().unwrap(),
        exceed_ratio: g["exceed_ratio"].as_f64().unwrap(),
        width: g["width"].as_f64().unwrap(),
        initial_trial_ns: ns(&g["initial"]),
        preceding_targets: g["preceding"].as_u64().unwrap() as u32,
    };
    MlrConfig {
        goals: trace["goals"].as_array().unwrap().iter().enumerate().map(goal).collect(),
        min_fps: trace["low"].as_f64().unwrap(),
        max_fps: trace["high"].as_f64().unwrap(),
        warmup_ns: ns(&trace["warmup"]),
        ..MlrConfig::default()
    }
}

/// Equal but for the last digits: the logarithms are the C library's.
fn same(a: f64, b: f64) -> bool {
    // A trial of a second is timed to a nanosecond.
    (a - b).abs() <= 2e-9 * b.abs()
}

/// Made by tests/golden/make_mlrsearch.py.
#[test]
fn each_trial_is_the_reference_implementations() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/mlrsearch");
    let mut traces: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    traces.sort();
    assert!(traces.len() >= 15, "{}", traces.len());
    for path in traces {
        let trace: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let name = trace["name"].as_str().unwrap();
        let mut search = MlrSearch::new(config(&trace));
        for (i, expected) in trace["trials"].as_array().unwrap().iter().enumerate() {
            let next = search.next().unwrap_or_else(|| panic!("{name}: ended at trial {i}"));
            let (nomination, _) = search.next.unwrap();
            let rate = expected[0].as_f64().unwrap();
            assert!(same(next.offer.rate_fps, rate), "{name}, trial {i}: {next:?}, not {rate}");
            let seconds = expected[1].as_f64().unwrap();
            assert!(same(nomination.trial_s, seconds), "{name}, trial {i}: {seconds} s");
            let (sent, lost) = (expected[2].as_u64().unwrap(), expected[3].as_u64().unwrap());
            search.observe(&trial(&next, sent, lost));
        }
        assert_eq!(search.next(), None, "{name}");
        let finding = search.finding();
        assert!(finding.complete, "{name}: {finding:?}");
        let results = trace["results"].as_array().unwrap();
        for (i, result) in results.iter().enumerate() {
            let label = if results.len() > 1 { format!("goal {i}") } else { String::new() };
            let value = |n: &str| finding.value(&labelled(n, &label)).map(|q| q.value);
            for (k, bound) in ["relevant_lower_bound", "relevant_upper_bound"].iter().enumerate() {
                match result[k].as_f64() {
                    Some(rate) => assert!(same(value(bound).unwrap(), rate), "{name}: {bound}"),
                    None => assert_eq!(value(bound), None, "{name}: {bound}"),
                }
            }
            let throughput = result[2].as_f64().unwrap_or(0.0);
            assert!(same(value("conditional_throughput").unwrap(), throughput), "{name}");
        }
    }
}

#[test]
fn a_quiet_devices_capacity_is_found() {
    let mut device = SimulatedDevice::new(DeviceConfig::default(), 1);
    let mut search = MlrSearch::new(MlrConfig { max_fps: 2e6, ..MlrConfig::default() });
    let mut seconds = 0.0;
    let estimate = search.remaining_ns();
    while let Some(next) = search.next() {
        seconds += next.offer.duration_ns() as f64 / SECONDS;
        search.observe(&device.run(&next));
    }
    let finding = search.finding();
    let ndr = finding.value("conditional_throughput@ndr").unwrap();
    assert!((0.994e6..=1.001e6).contains(&ndr.value), "{finding:?}");
    let pdr = finding.value("relevant_lower_bound@pdr").unwrap().value;
    assert!((0.999e6..=1.006e6).contains(&pdr), "{finding:?}");
    assert!(seconds < estimate as f64 / SECONDS, "{seconds} s of {estimate} ns");
}

#[test]
fn a_search_that_is_cut_off_before_its_first_lower_bound_claims_nothing() {
    let mut device = SimulatedDevice::new(DeviceConfig::default(), 1);
    let goals = vec![Goal::ndr()];
    let longest_ns = 8_000_000_000;
    let config = MlrConfig { max_fps: 2e6, goals, longest_ns, ..MlrConfig::default() };
    let mut search = MlrSearch::new(config);
    while let Some(next) = search.next() {
        search.observe(&device.run(&next));
    }
    let finding = search.finding();
    assert!(!finding.complete);
    assert_eq!(finding.value("conditional_throughput"), None, "{finding:?}");
    assert!(
        finding.notes.iter().any(|n| n.contains("no load was a lower bound yet")),
        "{finding:?}"
    );
}

#[test]
fn what_the_tester_cannot_offer_is_its_own_bound() {
    let tester = SimulatedTester { max_fps: 6e5, ..SimulatedTester::default() };
    let mut device = SimulatedDevice::new(DeviceConfig { tester, ..DeviceConfig::default() }, 1);
    let mut search = MlrSearch::new(MlrConfig { max_fps: 2e6, ..MlrConfig::default() });
    while let Some(next) = search.next() {
        search.observe(&device.run(&next));
    }
    let finding = search.finding();
    let ndr = finding.value("conditional_throughput@ndr").unwrap().value;
    assert!((0.99 * 6e5..=6e5).contains(&ndr), "{finding:?}");
    assert!(finding.notes.iter().any(|n| n.contains("may be the tester's")), "{finding:?}");
    assert!(finding.notes.iter().any(|n| n.contains("the tester was not fit")), "{finding:?}");
}

#[test]
fn an_impossible_search_ends_at_once_and_says_why() {
    for broken in [
        MlrConfig { goals: vec![], ..MlrConfig::default() },
        MlrConfig { max_fps: 9001.0, ..MlrConfig::default() },
        MlrConfig { max_fps: f64::NAN, ..MlrConfig::default() },
        MlrConfig { goals: vec![Goal { width: 0.0, ..Goal::ndr() }], ..MlrConfig::default() },
        MlrConfig {
            goals: vec![Goal { duration_sum_ns: 1, ..Goal::ndr() }],
            ..MlrConfig::default()
        },
    ] {
        assert!(broken.problem().is_some());
        let mut search = MlrSearch::new(broken);
        assert_eq!((search.next(), search.remaining_ns(), search.remaining_trials()), (None, 0, 0));
        let finding = search.finding();
        assert!(!finding.complete && finding.notes[0].starts_with("Impossible: "), "{finding:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_search_ends_within_its_loads_and_its_time(
        seed in any::<u64>(), capacity in 100.0f64..5e6, buffer in 0.0f64..5000.0,
        stalls in 0.0f64..20.0, stall_ns in 1e4f64..1e8, width in 0.002f64..0.2,
        exceed in 0.0f64..0.9, loss in 0.0f64..0.2, preceding in 1u32..4,
        starved in 0u64..5, drops_all in any::<bool>(), drops in 0u64..100_000,
    ) {
        let config = MlrConfig {
            goals: vec![
                Goal { width, exceed_ratio: exceed, preceding_targets: preceding, ..Goal::ndr() },
                Goal { loss_ratio: loss, ..Goal::rfc2544() },
            ],
            max_fps: 2e6,
            ..MlrConfig::default()
        };
        let faults =
            Faults { drops_all: drops_all && seed % 4 == 0, drops_one_in: drops, ..Faults::default() };
        let tester = SimulatedTester { starved_every: starved, ..SimulatedTester::default() };
        let mut device = SimulatedDevice::new(
            DeviceConfig {
                capacity_fps: capacity, buffer_frames: buffer, stalls_per_s: stalls, stall_ns,
                faults, tester, ..DeviceConfig::default()
            },
            seed,
        );
        let (least, most, longest) = (config.min_fps, config.max_fps, config.longest_ns);
        let mut search = MlrSearch::new(config);
        let (mut offered, mut last) = (0, 0);
        while let Some(next) = search.next() {
            prop_assert!((least..=most).contains(&next.offer.rate_fps));
            prop_assert!(search.remaining_ns() > 0 && search.remaining_trials() > 0);
            prop_assert_eq!(search.next(), Some(next.clone()), "the same until observed");
            prop_assert!(offered < longest);
            last = next.offer.duration_ns();
            offered += last;
            search.observe(&device.run(&next));
        }
        let finding = search.finding();
        let nothing = finding.notes.iter().any(|n| n.contains("nothing was found"));
        prop_assert!(starved > 0 || !nothing, "{:?}", finding);
        // Durations of offers are rounded to whole frames.
        prop_assert!(finding.complete || nothing || offered + last >= longest - 1_000_000_000, "{:?}", finding);
        for q in &finding.values {
            prop_assert!(q.value >= 0.0 && q.value <= most * 1.000001, "{:?}", q);
        }
    }
}

/// Reasons of invalidity reach the finding as they are.
#[test]
fn an_invalid_trial_is_bad_for_every_goal() {
    let goals = vec![Goal { loss_ratio: 0.9, ..Goal::ndr() }];
    let mut search = MlrSearch::new(MlrConfig { goals, warmup_ns: 0, ..MlrConfig::default() });
    let next = search.next().unwrap();
    let mut starved = trial(&next, next.offer.frames, 0);
    starved.invalid.push(Invalid::Starved { ns: 5 });
    search.observe(&starved);
    let again = search.next().unwrap();
    assert!(again.offer.rate_fps < next.offer.rate_fps, "{again:?}");
    let notes = search.finding().notes.join(" ");
    assert!(notes.contains("the tester was not run for 5 ns"), "{notes}");
}
