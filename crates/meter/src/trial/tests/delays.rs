//! Latency and its variation, and procedures that depend on others.

use super::*;

/// Exponential jitter of 5 us on 10 us: quantiles are known.
fn jittery() -> DeviceConfig {
    DeviceConfig { jitter_ns: 5_000.0, ..DeviceConfig::default() }
}

fn quantile(q: f64) -> f64 {
    -5_000.0 * (1.0 - q).ln()
}

#[test]
fn latency_at_the_throughput_is_a_mean_of_means() {
    let config = LatencyConfig::at(5e5);
    assert_eq!(
        (config.duration_ns, config.discard_ns, config.trials),
        (120 * SECOND, 60 * SECOND, 20)
    );
    let (finding, trials) = run(&mut Latency::new(config), &mut device(jittery()));
    assert_eq!((finding.values[0].name.as_str(), trials.len()), ("latency", 20));
    assert_eq!(finding.values[0].samples, 20);
    near(&finding, "latency", 15_000.0, 0.02);
    near(&finding, "latency_p50", 10_000.0 + quantile(0.5), 0.03);
    near(&finding, "latency_p99_9", 10_000.0 + quantile(0.999), 0.05);
    near(&finding, "pdv", quantile(0.999), 0.05);
    // 60 of 120 s are timed.
    assert_eq!(finding.value("latency_p50").unwrap().samples, 20 * 30_000_000);
}

#[test]
fn the_first_part_of_a_trial_can_be_left_out() {
    let resets_between_ns = Some([0, 5 * SECOND]);
    let faults = || Faults { resets_between_ns, ..Faults::default() };
    let config = |discard_ns| FixedLoadConfig {
        rate_fps: 1e5,
        duration_ns: 25 * SECOND,
        discard_ns,
        ..FixedLoadConfig::default()
    };
    let (finding, _) = run(&mut FixedLoad::new(config(0)), &mut faulty(faults()));
    near(&finding, "loss_ratio", 0.2, 1e-9);
    near(&finding, "forwarding_rate", 0.8e5, 1e-6);
    let (finding, _) = run(&mut FixedLoad::new(config(5 * SECOND)), &mut faulty(faults()));
    assert_eq!(value(&finding, "loss_ratio"), 0.0);
    near(&finding, "forwarding_rate", 1e5, 1e-6);
    near(&finding, "offered_load", 1e5, 1e-6);
    assert_eq!(finding.value("latency_p50").unwrap().samples, 2_000_000);
}

#[test]
fn short_trials_keep_their_second_half() {
    let short = LatencyConfig { duration_ns: 2 * SECOND, trials: 1, ..LatencyConfig::at(1e5) };
    let (finding, trials) = run(&mut Latency::new(short), &mut device(jittery()));
    assert_eq!(trials[0].offer.discard_ns, SECOND);
    assert_eq!(finding.value("latency_p50").unwrap().samples, 100_000);
}

#[test]
fn directions_are_reported_apart_and_together() {
    let both = DeviceConfig { directions: vec!["a>b".into(), "b>a".into()], ..jittery() };
    let config = FixedLoadConfig { rate_fps: 1e5, ..FixedLoadConfig::default() };
    let (finding, _) = run(&mut FixedLoad::new(config), &mut device(both));
    let samples = |name: &str| finding.value(name).unwrap().samples;
    assert_eq!(samples("latency_p99_9"), 2 * samples("latency_p99_9@b>a"));
    near(&finding, "jitter_rfc4689_mean@a>b", 5_000.0, 0.1);
}

#[test]
fn rfc_8219_sums_up_twenty_trials() {
    let run_kind =
        |kind| run(&mut DelaySummary::new(DelayConfig::new(kind, 1e5)), &mut device(jittery()));
    let (finding, trials) = run_kind(DelayKind::Latency);
    near(&finding, "typical_latency", 10_000.0 + quantile(0.5), 0.03);
    near(&finding, "worst_case_latency", 10_000.0 + quantile(0.999), 0.05);
    assert_eq!((trials.len(), finding.values[0].samples), (20, 20));
    assert_eq!(trials[0].offer.discard_ns, 60 * SECOND);
    let [p1, p99] = finding.value("worst_case_latency").unwrap().bounds.unwrap();
    assert!(p1 < p99, "{finding:?}");

    let (finding, _) = run_kind(DelayKind::Pdv);
    near(&finding, "pdv", quantile(0.999), 0.05);
    let (finding, _) = run_kind(DelayKind::Ipdv);
    assert!(value(&finding, "ipdv_min") < -20_000.0 && value(&finding, "ipdv_max") > 20_000.0);
    assert!(value(&finding, "ipdv_p50").abs() < 300.0, "{finding:?}");

    let few =
        DelayConfig { duration_ns: 61 * SECOND, ..DelayConfig::new(DelayKind::Latency, 100.0) };
    let (finding, _) = run(&mut DelaySummary::new(few), &mut device(jittery()));
    assert!(says(&finding, "only 100 frames to time; RFC 8219 asks for 500"), "{finding:?}");
}

#[test]
fn variation_is_reported_of_one_stream_and_not_of_two_together() {
    let config = DeviceConfig { directions: vec!["a>b".into(), "b>a".into()], ..jittery() };
    let pdv = DelayConfig { trials: 3, ..DelayConfig::new(DelayKind::Pdv, 1e5) };
    let (finding, _) = run(&mut DelaySummary::new(pdv), &mut device(config.clone()));
    assert!(finding.value("pdv").is_none() && finding.value("pdv@a>b").is_some(), "{finding:?}");
    assert!(says(&finding, "3 trials; RFC 8219 asks for 20"), "{finding:?}");
    near(&finding, "offered_load", 1e5, 1e-9);
    let latency = LatencyConfig { trials: 1, ..LatencyConfig::at(1e5) };
    let (finding, _) = run(&mut Latency::new(latency), &mut device(config));
    assert!(finding.value("pdv").is_none() && finding.value("pdv@b>a").is_some(), "{finding:?}");
    assert!(finding.value("latency_p50").is_some());
}

#[test]
fn latency_follows_the_throughput_found() {
    let chain = || {
        Chain::new(Box::new(RateSearch::throughput(search_config())), "throughput", MOST, |found| {
            Box::new(Latency::new(LatencyConfig::profile(found, 100.0)))
        })
    };
    let (finding, trials) = run(&mut chain(), &mut device(DeviceConfig::default()));
    let found = value(&finding, "throughput");
    let rates: Vec<f64> = trials[trials.len() - 5..].iter().map(|t| t.offer.rate_fps).collect();
    assert_eq!(rates, [100.0, found * 0.1, found * 0.5, found * 0.9, found]);
    assert_eq!(finding.values[0].name, "latency@0");
    near(&finding, "offered_load@50", found * 0.5, 1e-6);
    assert!(finding.value("latency_p99_999@90").is_some() && finding.complete);

    let (finding, _) =
        run(&mut chain(), &mut faulty(Faults { drops_all: true, ..Faults::default() }));
    assert!(finding.complete && says(&finding, "No throughput: what depends on it was left out"));
}
