//! What holds of every procedure.

use proptest::prelude::*;
use sonde_results::Trial;

use super::super::sim::SimulatedTester;
use super::*;

/// A procedure is taken up again after any of its trials, from what is stored of them. It asks for
/// the trials that it would have asked for anyway, and finds the same.
#[test]
fn a_procedure_goes_on_where_it_was_interrupted() {
    for (name, _, make) in every() {
        let busy = DeviceConfig { stalls_per_s: 0.5, jitter_ns: 700.0, ..DeviceConfig::default() };
        let tester = SimulatedTester { starved_every: 7, ..SimulatedTester::default() };
        let (finding, trials) = run(&mut *make(), &mut device(DeviceConfig { tester, ..busy }));
        let stored: Vec<Trial> = trials
            .iter()
            .map(|t| serde_json::from_str(&serde_json::to_string(t).unwrap()).unwrap())
            .collect();
        let step = (trials.len() / 12).max(1);
        for cut in (0..=trials.len()).step_by(step) {
            let mut again = make();
            for trial in &stored[..cut] {
                assert!(again.next().is_some(), "{name}, cut at {cut}");
                again.observe(trial);
            }
            for trial in &trials[cut..] {
                let next = again.next().unwrap();
                assert_eq!(next.offer, trial.offer, "{name}, cut at {cut}");
                assert_eq!(next.purpose, trial.purpose, "{name}, cut at {cut}");
                again.observe(trial);
            }
            assert_eq!(again.next(), None, "{name}, cut at {cut}");
            let found = again.finding();
            assert_eq!(found.notes, finding.notes, "{name}, cut at {cut}");
            assert_eq!(found.complete, finding.complete, "{name}, cut at {cut}");
            for (a, b) in found.values.iter().zip(&finding.values) {
                assert_eq!((&a.name, a.samples), (&b.name, b.samples), "{name}, cut at {cut}");
                // What is stored as text may come back a last digit off.
                assert!((a.value - b.value).abs() <= 1e-12 * b.value.abs(), "{name}: {a:?} {b:?}");
            }
        }
    }
}

/// The estimates of `--dry-run` are upper ones, where the device does not surprise.
#[test]
fn no_procedure_takes_longer_than_it_says() {
    for (name, _, make) in every() {
        let mut procedure = make();
        let (longest, most) = (procedure.remaining_ns(), procedure.remaining_trials());
        let (_, trials) = run(&mut *procedure, &mut device(DeviceConfig::default()));
        let taken: i64 = trials.iter().map(|t| t.offer.duration_ns()).sum();
        // Offers are rounded to whole frames.
        assert!(
            taken <= longest + SECOND / 1000 * trials.len() as i64,
            "{name}: {taken} {longest}"
        );
        assert!(trials.len() <= most as usize, "{name}: {} trials, not {most}", trials.len());
    }
}

/// Nothing was valid: no value, and a reason.
#[test]
fn an_unfit_tester_finds_nothing() {
    for (name, _, make) in every() {
        let tester = SimulatedTester { starved_every: 1, ..SimulatedTester::default() };
        let config = DeviceConfig { tester, ..DeviceConfig::default() };
        let (finding, _) = run(&mut *make(), &mut device(config));
        assert!(says(&finding, "the tester was not fit"), "{name}: {finding:?}");
        for q in &finding.values {
            assert!(q.name.starts_with("relevant_upper_bound"), "{name}: {q:?}");
        }
    }
}

/// What is sent arrives or is lost, and runs of losses make up the losses.
#[test]
fn the_simulated_device_keeps_every_frame() {
    let config = DeviceConfig {
        stalls_per_s: 3.0,
        faults: Faults { drops_one_in: 5000, ..Faults::default() },
        ..DeviceConfig::default()
    };
    for rate in [3e5, 9.9e5, 1.3e6] {
        let next = NextTrial { offer: Offer::steady(rate, 4 * SECOND), purpose: String::new() };
        let trial = device(config.clone()).run(&next);
        let d = &trial.directions[0];
        assert_eq!((d.sent, d.received + d.lost), (next.offer.frames, d.sent));
        assert!(d.lost > 0 && d.losses.is_sorted_by_key(|l| l.at_ns), "{d:?}");
        let (mean, count) = (d.latency.mean().unwrap(), d.latency.count);
        assert!(mean > 10_000.0 && mean < 1.1e6 * 10.0 && count == d.received, "{mean} {count}");
        if d.losses_omitted == 0 {
            assert_eq!(d.losses.iter().map(|l| l.frames).sum::<u64>(), d.lost);
        }
        let points: u64 = d.series.iter().map(|p| p.received + p.lost).sum();
        assert_eq!((d.series.len(), points), (4, d.sent));
    }
}

fn any_device() -> impl Strategy<Value = (DeviceConfig, u64)> {
    let device = (1e2f64..5e6, 0f64..1e4, 0f64..10.0, 1e4f64..1e8, 0f64..1e5);
    let faults = (any::<u8>(), 0u64..50_000, 0u64..1000, 0i64..20 * SECOND, 0i64..30 * SECOND);
    let rest = (0u64..6, 0f64..4e6, 0u32..5000, 1f64..1e6, any::<u64>());
    (device, faults, rest).prop_map(|(d, f, r)| {
        let faults = Faults {
            drops_all: f.0 < 16,
            drops_one_in: if f.0 % 3 == 0 { f.1 } else { 0 },
            duplicates_one_in: f.2,
            reorders_one_in: f.2,
            resets_between_ns: (f.0 % 5 == 0).then_some([f.3, f.3 + f.4]),
            reset_ns: f.4,
        };
        let max_fps = if f.0 % 4 == 0 { r.1 } else { 0.0 };
        let config = DeviceConfig {
            capacity_fps: d.0,
            buffer_frames: d.1,
            stalls_per_s: d.2,
            stall_ns: d.3,
            jitter_ns: d.4,
            directions: vec!["a>b".into(), "b>a".into()],
            addresses: r.2,
            learning_fps: r.3,
            faults,
            tester: SimulatedTester { starved_every: r.0, max_fps },
            ..DeviceConfig::default()
        };
        (config, r.4)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_procedure_ends_on_every_device((config, seed) in any_device()) {
        for (name, bounded, make) in every() {
            let mut procedure = make();
            let (finding, trials) = run(&mut *procedure, &mut SimulatedDevice::new(config.clone(), seed));
            for trial in &trials {
                let rate = trial.offer.rate_fps;
                let least = if bounded { LEAST } else { 0.0 };
                prop_assert!(rate >= least && rate > 0.0 && rate <= MOST * 1.000001, "{}: {}", name, rate);
                prop_assert!(trial.offer.frames > 0, "{}", name);
            }
            for q in &finding.values {
                prop_assert!(q.value.is_finite(), "{}: {:?}", name, q);
                let ordered = q.bounds.is_none_or(|[a, b]| a <= b);
                prop_assert!(ordered, "{}: {:?}", name, q);
            }
        }
    }
}
