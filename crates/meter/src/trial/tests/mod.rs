//! The procedures on simulated devices whose answers are known beforehand, and what holds of
//! every procedure on every device.

mod answers;
mod delays;
mod general;

use sonde_results::Trial;
use sonde_results::bench::Finding;

use super::sim::{DeviceConfig, Faults, SimulatedDevice};
use super::*;

/// The loads within which the procedures of these tests search, frames/s.
const LEAST: f64 = 1000.0;
const MOST: f64 = 2e6;
const SECOND: i64 = values::SECOND;

type Boxed = Box<dyn Procedure + Send>;
type Make = Box<dyn Fn() -> Boxed>;

/// Runs a procedure to its end.
fn run(procedure: &mut dyn Procedure, device: &mut SimulatedDevice) -> (Finding, Vec<Trial>) {
    let mut trials = Vec::new();
    while let Some(next) = procedure.next() {
        assert!(procedure.remaining_trials() > 0, "{next:?}");
        assert_eq!(procedure.next(), Some(next.clone()), "the same until observed");
        let trial = device.run(&next);
        procedure.observe(&trial);
        trials.push(trial);
        assert!(trials.len() < 20_000, "it does not end");
    }
    assert_eq!((procedure.remaining_ns(), procedure.remaining_trials()), (0, 0));
    (procedure.finding(), trials)
}

fn device(config: DeviceConfig) -> SimulatedDevice {
    SimulatedDevice::new(config, 7)
}

/// A device of 1 M frames/s, with faults.
fn faulty(faults: Faults) -> SimulatedDevice {
    device(DeviceConfig { faults, ..DeviceConfig::default() })
}

fn value(finding: &Finding, name: &str) -> f64 {
    finding.value(name).unwrap_or_else(|| panic!("no {name} in {finding:?}")).value
}

fn near(finding: &Finding, name: &str, expected: f64, share: f64) {
    let found = value(finding, name);
    assert!((found - expected).abs() <= share * expected.abs(), "{name}: {found}, not {expected}");
}

fn says(finding: &Finding, text: &str) -> bool {
    finding.notes.iter().any(|n| n.contains(text))
}

fn search_config() -> RateSearchConfig {
    RateSearchConfig { min_fps: LEAST, max_fps: MOST, ..RateSearchConfig::default() }
}

/// Every procedure, with trials short enough for many runs; `true`: its loads are bounded
/// from below by `LEAST`.
fn every() -> Vec<(&'static str, bool, Make)> {
    fn make<P: Procedure + Send + 'static>(f: impl Fn() -> P + 'static) -> Make {
        Box::new(move || Box::new(f()))
    }
    let short = || RateSearchConfig { duration_ns: 2 * SECOND, ..search_config() };
    let mlr = || MlrConfig { min_fps: LEAST, max_fps: MOST, ..MlrConfig::default() };
    let delay = |kind| DelayConfig {
        duration_ns: 2 * SECOND,
        discard_ns: 0,
        trials: 5,
        ..DelayConfig::new(kind, 1e5)
    };
    let profile = |found| LatencyConfig {
        duration_ns: 2 * SECOND,
        discard_ns: SECOND,
        trials: 3,
        ..LatencyConfig::profile(found, LEAST)
    };
    let addresses = |goal| AddressConfig { goal, test_fps: 1e5 };
    vec![
        ("throughput", true, make(move || RateSearch::throughput(short()))),
        ("tst009", true, make(move || RateSearch::with_loss_verification(short()))),
        ("flooding", true, make(move || RateSearch::flooding(short()))),
        ("mixed class", true, make(move || RateSearch::mixed_class(short(), 0.3, 8))),
        ("aggregated", true, make(move || RateSearch::aggregated_multicast(short(), 8))),
        ("mlrsearch", true, make(move || MlrSearch::new(mlr()))),
        ("latency", true, make(move || Latency::new(profile(1e5)))),
        ("typical latency", true, make(move || DelaySummary::new(delay(DelayKind::Latency)))),
        ("pdv", true, make(move || DelaySummary::new(delay(DelayKind::Pdv)))),
        ("ipdv", true, make(move || DelaySummary::new(delay(DelayKind::Ipdv)))),
        (
            "loss rate",
            true,
            make(|| {
                let duration_ns = 2 * SECOND;
                LossRate::new(LossRateConfig { max_fps: MOST, duration_ns, step_percent: 10 })
            }),
        ),
        (
            "back-to-back",
            true,
            make(|| {
                BackToBack::new(BackToBackConfig {
                    rate_fps: MOST,
                    throughput_fps: 1e6,
                    tests: 4,
                    ..BackToBackConfig::default()
                })
            }),
        ),
        (
            "recovery",
            true,
            make(|| {
                Recovery::new(RecoveryConfig {
                    throughput_fps: 1e6,
                    max_fps: MOST,
                    overload_ns: 2 * SECOND,
                    ..RecoveryConfig::default()
                })
            }),
        ),
        ("reset", true, make(|| Reset::new(ResetConfig::default()))),
        (
            "ramp",
            true,
            make(|| {
                let duration_ns = 2 * SECOND;
                Ramp::new(RampConfig { to_fps: MOST, duration_ns, ..RampConfig::default() })
            }),
        ),
        (
            "forwarding rate",
            true,
            make(|| {
                let config = ForwardingConfig { max_fps: MOST, ..ForwardingConfig::default() };
                ForwardingRate::new(ForwardingConfig { duration_ns: 2 * SECOND, ..config })
            }),
        ),
        (
            "address capacity",
            true,
            make(move || {
                let goal = AddressGoal::Capacity { max_stations: 65_536, learning_fps: LEAST };
                AddressSearch::new(addresses(goal))
            }),
        ),
        (
            "learning rate",
            true,
            make(move || {
                let (min_fps, max_fps) = (LEAST, MOST);
                let goal =
                    AddressGoal::LearningRate { stations: 900, min_fps, max_fps, resolution: 0.01 };
                AddressSearch::new(addresses(goal))
            }),
        ),
        ("group matrix", true, make(|| GroupMatrix::new(GroupMatrixConfig::default()))),
        ("fixed load", true, make(|| FixedLoad::new(FixedLoadConfig::default()))),
        (
            "soak",
            true,
            make(|| Soak::new(SoakConfig { total_ns: 310 * SECOND, ..SoakConfig::default() })),
        ),
        (
            "service configuration",
            false,
            make(|| {
                ConfigurationTest::new(ConfigurationTestConfig {
                    eir_fps: 300.0,
                    policing: true,
                    ..ConfigurationTestConfig::default()
                })
            }),
        ),
        (
            "service performance",
            true,
            make(|| PerformanceTest::new(PerformanceTestConfig::default())),
        ),
        (
            "throughput, then latency",
            false,
            make(move || {
                let first = Box::new(RateSearch::throughput(short()));
                Chain::new(first, "throughput", MOST, move |found| {
                    Box::new(Latency::new(profile(found)))
                })
            }),
        ),
    ]
}
