//! Searches, counts and times: each finds what the device was made with.

use sonde_results::trial::{Invalid, Pattern};

use super::super::sim::SimulatedTester;
use super::*;

#[test]
fn throughput_is_the_capacity() {
    let mut search = RateSearch::throughput(search_config());
    let (finding, trials) = run(&mut search, &mut device(DeviceConfig::default()));
    let found = &finding.values[0];
    assert_eq!(found.name, "throughput");
    let [lower, upper] = found.bounds.unwrap();
    // A minute of a thousandth more than the capacity would overflow the buffer.
    assert!(lower <= 1.0001e6 && upper > 1e6 && upper - lower <= 0.005 * upper, "{found:?}");
    assert_eq!(value(&finding, "loss_ratio"), 0.0);
    assert!(value(&finding, "loss_ratio@upper_bound") > 0.0);
    assert!(finding.complete && trials.len() <= 11, "{}", trials.len());
    assert_eq!(trials[0].offer, Offer::steady(MOST, 60 * SECOND));
}

#[test]
fn a_loss_ratio_allowed_raises_the_throughput_by_it() {
    let config = RateSearchConfig { loss_ratio: 0.1, resolution: 0.001, ..search_config() };
    let (finding, _) =
        run(&mut RateSearch::throughput(config), &mut device(DeviceConfig::default()));
    near(&finding, "throughput", 1e6 / 0.9, 0.002);
    assert!(says(&finding, "Losses of up to 10 % pass"));
}

#[test]
fn a_device_that_forwards_nothing_has_no_throughput() {
    for faults in [
        Faults { drops_all: true, ..Faults::default() },
        Faults { drops_one_in: 1000, ..Faults::default() },
    ] {
        let (finding, _) = run(&mut RateSearch::throughput(search_config()), &mut faulty(faults));
        assert_eq!(value(&finding, "throughput"), 0.0);
        assert!(finding.complete && says(&finding, "Not even 1000 frames/s pass"), "{finding:?}");
    }
}

#[test]
fn a_faster_device_is_known_up_to_the_greatest_load_only() {
    let fast = DeviceConfig { capacity_fps: 5e6, ..DeviceConfig::default() };
    let (finding, trials) = run(&mut RateSearch::throughput(search_config()), &mut device(fast));
    near(&finding, "throughput", MOST, 1e-6);
    assert_eq!(trials.len(), 1);
    assert!(says(&finding, "the device may carry more"));
}

#[test]
fn the_greatest_load_is_one_that_the_tester_can_offer() {
    let found = |tester: SimulatedTester, line: f64| {
        let config = DeviceConfig { tester, ..DeviceConfig::default() };
        let (finding, trials) = run(&mut TesterCeiling::new(line), &mut device(config));
        assert!(finding.complete && trials.len() <= 46, "{finding:?}");
        (finding.value("greatest_load").unwrap().value, trials)
    };
    let slow = SimulatedTester { max_fps: 7e5, ..SimulatedTester::default() };
    let (load, trials) = found(slow.clone(), f64::INFINITY);
    assert!((7e5 * 0.94..=7e5).contains(&load), "{load}");
    assert_eq!(trials.last().unwrap().offer.rate_fps, load);
    assert!(trials.last().unwrap().valid());
    // A medium that is slower than the tester.
    assert_eq!(found(slow, 1e5).0, 1e5);
    // A pause of the host is not of the load.
    let disturbed = SimulatedTester { starved_every: 1, ..SimulatedTester::default() };
    let (load, trials) = found(disturbed, 1e6);
    assert_eq!((load, trials.len()), (1e6, 3));
    // A load that was kept once, in a quiet moment, is not taken for one that can be kept.
    let mut search = TesterCeiling::new(1e6);
    let mut loads = Vec::new();
    while let Some(next) = search.next() {
        let mut trial = device(DeviceConfig::default()).run(&next);
        loads.push(next.offer.rate_fps);
        if [3, 4].contains(&loads.len()) {
            trial.invalid.push(Invalid::Pacing { direction: "a>b".into(), late_ns: 2_000_000 });
        }
        search.observe(&trial);
    }
    assert_eq!(loads[1..4], [1e6; 3]);
    assert_eq!((search.load(), loads.len()), (loads[4] * 0.95, 6));
    assert!(loads[4] < 1e6);
    // Of a device that is far slower it need not be known so well.
    let mut overloaded = device(DeviceConfig { capacity_fps: 5e5, ..DeviceConfig::default() });
    let (finding, trials) = run(&mut TesterCeiling::new(1e6), &mut overloaded);
    assert_eq!((value(&finding, "greatest_load"), trials.len()), (1e6, 2));
    // Where frames never leave in time it ends, and finds nothing.
    let mut search = TesterCeiling::new(1e6);
    while let Some(next) = search.next() {
        let mut trial = device(DeviceConfig::default()).run(&next);
        trial.invalid.push(Invalid::Pacing { direction: "a>b".into(), late_ns: 2_000_000 });
        search.observe(&trial);
    }
    let finding = search.finding();
    assert!(finding.values.is_empty() && says(&finding, "the tester was not fit"), "{finding:?}");
    assert!(search.load() > 1e5 && search.load() < 1.2e5);
}

#[test]
fn the_testers_limit_is_not_called_the_devices() {
    let tester = SimulatedTester { max_fps: 7e5, ..SimulatedTester::default() };
    let config = DeviceConfig { tester, ..DeviceConfig::default() };
    let (finding, _) = run(&mut RateSearch::throughput(search_config()), &mut device(config));
    near(&finding, "throughput", 7e5, 0.005);
    assert!(says(&finding, "The upper bound is the tester's, not the device's"), "{finding:?}");
    assert!(finding.values[0].tester_limited, "{finding:?}");
    let (finding, _) = run(
        &mut RateSearch::throughput(search_config()),
        &mut device(DeviceConfig { capacity_fps: 5e5, ..DeviceConfig::default() }),
    );
    assert!(!finding.values[0].tester_limited, "{finding:?}");
}

/// A trial that is valid may leave at 98 % of its pace: what was offered is reported, and how well
/// it is known.
#[test]
fn a_rate_is_reported_as_it_was_offered() {
    let slow = |procedure: &mut dyn Procedure| {
        let mut device = device(DeviceConfig::default());
        while let Some(next) = procedure.next() {
            let mut trial = device.run(&next);
            for d in &mut trial.directions {
                d.sent_ns[1] += (d.sent_ns[1] - d.sent_ns[0]) / 49;
            }
            procedure.observe(&trial);
        }
        procedure.finding()
    };
    let config = RateSearchConfig { duration_ns: SECOND, ..search_config() };
    let finding = slow(&mut RateSearch::throughput(config.clone()));
    let found = &finding.values[0];
    assert!((0.974e6..=0.981e6).contains(&found.value), "{finding:?}");
    assert!(found.bounds.is_some_and(|[low, high]| low == found.value && high < 0.986e6));
    assert!(says(&finding, "known to 2.50 %"), "{finding:?}");
    let finding = slow(&mut RateSearch::with_loss_verification(config));
    assert!((0.974e6..=0.981e6).contains(&finding.values[0].value), "{finding:?}");
    let mlr = MlrConfig { min_fps: LEAST, max_fps: MOST, ..MlrConfig::default() };
    let finding = slow(&mut MlrSearch::new(mlr));
    let ndr = value(&finding, "conditional_throughput@ndr");
    assert!((0.974e6..=0.981e6).contains(&ndr), "{finding:?}");
    assert!(says(&finding, "as it was offered"), "{finding:?}");
    let load = LabelledLoad { label: "50".into(), rate_fps: 5e5 };
    let config = LatencyConfig { loads: vec![load], trials: 2, ..LatencyConfig::default() };
    near(&slow(&mut Latency::new(config)), "offered_load@50", 4.9e5, 1e-3);
    let delay = DelayConfig { trials: 2, ..DelayConfig::new(DelayKind::Pdv, 5e5) };
    near(&slow(&mut DelaySummary::new(delay)), "offered_load", 4.9e5, 1e-3);
    // What the tester did not offer is no breach of the device's.
    let cir = ConfigurationTestConfig {
        cir_fps: 5e5,
        eir_fps: 1e5,
        step_ns: SECOND,
        ..ConfigurationTestConfig::default()
    };
    let finding = slow(&mut ConfigurationTest::new(cir));
    assert!(finding.failures.is_empty(), "{finding:?}");
}

/// Whatever a search is for: without a valid trial there is no 0.
#[test]
fn no_valid_trial_is_no_rate_of_zero() {
    let tester = SimulatedTester { starved_every: 1, ..SimulatedTester::default() };
    let config = DeviceConfig { tester, ..DeviceConfig::default() };
    let found = |procedure: &mut dyn Procedure| run(procedure, &mut device(config.clone())).0;
    let short = RateSearchConfig { duration_ns: SECOND, ..search_config() };
    let mlr = MlrConfig { min_fps: LEAST, max_fps: MOST, ..MlrConfig::default() };
    let goals = vec![Goal::rfc2544(), Goal::tst009(), Goal::ndr(), Goal::pdr()];
    for finding in [
        found(&mut RateSearch::throughput(short.clone())),
        found(&mut RateSearch::with_loss_verification(short)),
        found(&mut MlrSearch::new(MlrConfig { goals, ..mlr })),
    ] {
        assert!(finding.values.iter().all(|q| q.name.contains("upper_bound")), "{finding:?}");
        assert!(!finding.complete && says(&finding, "othing was found"), "{finding:?}");
    }
    // Where the least load did lose frames in a valid trial the device is known to be that slow.
    let dead = DeviceConfig {
        faults: Faults { drops_all: true, ..Faults::default() },
        ..DeviceConfig::default()
    };
    let (finding, _) = run(&mut RateSearch::throughput(search_config()), &mut device(dead));
    assert_eq!(finding.values[0].bounds, Some([0.0, LEAST]), "{finding:?}");
}

fn evidence(finding: &mut Finding, trials: &[Trial]) {
    add_evidence(trials, finding);
}

#[test]
fn a_direction_in_which_nothing_arrives_is_named() {
    let config =
        DeviceConfig { directions: vec!["a>b".into(), "b>a".into()], ..DeviceConfig::default() };
    let fixed = FixedLoadConfig { duration_ns: SECOND, ..FixedLoadConfig::default() };
    let (mut finding, mut trials) = run(&mut FixedLoad::new(fixed), &mut device(config));
    evidence(&mut finding, &trials);
    assert!(finding.failures.is_empty(), "{finding:?}");
    let silence = |d: &mut sonde_results::trial::Direction| (d.received, d.lost) = (0, d.sent);
    silence(&mut trials[0].directions[1]);
    evidence(&mut finding, &trials);
    assert_eq!(finding.failures.len(), 1, "{finding:?}");
    let text = &finding.failures[0];
    assert!(
        text.contains("b>a: none of 1000 frames") && text.contains("a>b received 1000"),
        "{text}"
    );
    silence(&mut trials[0].directions[0]);
    finding.failures.clear();
    evidence(&mut finding, &trials);
    assert_eq!(finding.failures.len(), 2);
    assert!(finding.failures.iter().all(|f| f.contains("nothing ever came back")), "{finding:?}");
    // Of a tester that was not fit nothing can be said.
    trials[0].invalid.push(Invalid::Starved { ns: 1 });
    finding.failures.clear();
    evidence(&mut finding, &trials);
    assert!(finding.failures.is_empty());
}

#[test]
fn loss_that_does_not_depend_on_the_load_is_named() {
    let named = |config: DeviceConfig| {
        let mut search = RateSearch::throughput(search_config());
        let (mut finding, trials) = run(&mut search, &mut device(config));
        evidence(&mut finding, &trials);
        says(&finding, "Loss does not depend on the load")
    };
    let drops = |drops_one_in| Faults { drops_one_in, ..Faults::default() };
    for one_in in [50, 1000] {
        assert!(named(DeviceConfig { faults: drops(one_in), ..DeviceConfig::default() }));
    }
    let fast = DeviceConfig { capacity_fps: 5e6, ..DeviceConfig::default() };
    assert!(named(DeviceConfig { faults: drops(1000), ..fast.clone() }));
    for other in [
        DeviceConfig::default(),
        fast,
        DeviceConfig { capacity_fps: 100.0, ..DeviceConfig::default() },
        DeviceConfig { stalls_per_s: 0.5, stall_ns: 5e6, ..DeviceConfig::default() },
        DeviceConfig {
            faults: Faults { drops_all: true, ..Faults::default() },
            ..DeviceConfig::default()
        },
    ] {
        assert!(!named(other.clone()), "{other:?}");
    }
}

#[test]
fn duplicates_and_reordering_pass_but_are_reported() {
    let faults = Faults { duplicates_one_in: 1000, reorders_one_in: 100, ..Faults::default() };
    let (mut finding, trials) =
        run(&mut RateSearch::throughput(search_config()), &mut faulty(faults));
    near(&finding, "throughput", 1e6, 0.005);
    evidence(&mut finding, &trials);
    assert!(says(&finding, "duplicated") && says(&finding, "reordered"), "{finding:?}");
}

#[test]
fn loss_verification_forgives_a_stall_and_says_so() {
    let busy = DeviceConfig { stalls_per_s: 0.05, stall_ns: 2e6, ..DeviceConfig::default() };
    let plain = RateSearch::throughput(search_config());
    let verified = RateSearch::with_loss_verification(search_config());
    let mut found = [plain, verified].map(|mut search| {
        let rates = (1..=9).map(|seed| {
            let (finding, trials) =
                run(&mut search.clone(), &mut SimulatedDevice::new(busy.clone(), seed));
            (value(&finding, "throughput"), says(&finding, "passed only when tried again"), trials)
        });
        let all: Vec<_> = rates.collect();
        search.next().expect("the clones ran");
        all
    });
    let mean = |runs: &[(f64, bool, Vec<Trial>)]| runs.iter().map(|r| r.0).sum::<f64>() / 9.0;
    assert!(mean(&found[1]) > 1.05 * mean(&found[0]), "{} {}", mean(&found[1]), mean(&found[0]));
    assert!(found[1].iter().any(|r| r.1) && found[0].iter().all(|r| !r.1));
    let again = found[1].remove(0).2.iter().filter(|t| t.purpose == "loss verification").count();
    assert!(again > 0);
}

#[test]
fn loss_rate_falls_as_the_load_does_and_ends_after_two_lossless_ones() {
    let config = LossRateConfig { max_fps: MOST, ..LossRateConfig::default() };
    let (finding, trials) = run(&mut LossRate::new(config), &mut device(DeviceConfig::default()));
    // 1 M of 2, 1.8, 1.6, 1.4 and 1.2 M pass; all of 1 and 0.8 M.
    for (percent, expected) in [(100, 0.5), (90, 4.0 / 9.0), (80, 0.375), (60, 1.0 / 6.0)] {
        near(&finding, &format!("loss_ratio@{percent}"), expected, 1e-4);
    }
    assert_eq!((value(&finding, "loss_ratio@50"), value(&finding, "loss_ratio@40")), (0.0, 0.0));
    near(&finding, "forwarding_rate@70", 1e6, 1e-4);
    assert_eq!((trials.len(), finding.complete), (7, true));
}

#[test]
fn a_burst_fills_the_buffer_and_what_is_forwarded_meanwhile() {
    let config = BackToBackConfig {
        rate_fps: MOST,
        throughput_fps: 1e6,
        tests: 5,
        step_frames: 1,
        ..BackToBackConfig::default()
    };
    let mut procedure = BackToBack::new(config.clone());
    let (finding, _) = run(&mut procedure, &mut device(DeviceConfig::default()));
    // 1000 frames of room, and half of the frames leave while the burst lasts.
    near(&finding, "back_to_back_frames", 2000.0, 0.002);
    near(&finding, "implied_buffer_time", 1e-3, 0.002);
    near(&finding, "corrected_buffer_time", 0.5e-3, 0.002);
    assert_eq!(finding.value("back_to_back_frames").unwrap().samples, 5);
    assert!(value(&finding, "back_to_back_frames_deviation") < 3.0);

    near(&finding, "back_to_back_frames_min", 2000.0, 0.002);
    assert!(!says(&finding, "likely invalid") && says(&finding, "of up to 4000000 frames"));
    let short = BackToBackConfig { longest_ns: 1_020_000, ..config.clone() };
    let (finding, _) = run(&mut BackToBack::new(short), &mut device(DeviceConfig::default()));
    assert!(says(&finding, "likely invalid"), "{finding:?}");

    // A tester that cannot send the longest bursts says nothing of shorter ones; where it is
    // what bounds the result, there is none.
    let judged = |fit_up_to: u64| {
        let mut search = BackToBack::new(BackToBackConfig { tests: 2, ..config.clone() });
        let mut device = device(DeviceConfig::default());
        while let Some(next) = search.next() {
            let mut trial = device.run(&next);
            if next.offer.frames > fit_up_to {
                trial.invalid.push(Invalid::Starved { ns: 50_000_000 });
            }
            search.observe(&trial);
        }
        search.finding()
    };
    near(&judged(100_000), "back_to_back_frames", 2000.0, 0.002);
    let finding = judged(1_500);
    assert!(finding.values.is_empty() && says(&finding, "2 tests were given up"), "{finding:?}");

    let none = BackToBackConfig { throughput_fps: MOST, ..config };
    let (finding, trials) = run(&mut BackToBack::new(none), &mut device(DeviceConfig::default()));
    assert!(trials.is_empty() && finding.complete && says(&finding, "RFC 9004 leaves"));
}

#[test]
fn recovery_ends_with_the_last_lost_frame() {
    let config = RecoveryConfig { throughput_fps: 1e6, max_fps: MOST, ..RecoveryConfig::default() };
    let outage = |from: i64, to: i64| {
        faulty(Faults { resets_between_ns: Some([from, to]), ..Faults::default() })
    };
    // The overload lasts 60 s; after it this device is lost for another 400 ms.
    let mut late = outage(59 * SECOND, 60 * SECOND + 400_000_000);
    let (finding, trials) = run(&mut Recovery::new(config.clone()), &mut late);
    near(&finding, "recovery_time", 4e8, 1e-3);
    let step = trials[0].offer.steps[0];
    assert!((trials[0].offer.rate_fps, step.rate_fps) == (1.1 * 1e6, 1.1 * 1e6 / 2.0));

    let mut quick = device(DeviceConfig::default());
    let (finding, _) = run(&mut Recovery::new(config.clone()), &mut quick);
    assert_eq!(value(&finding, "recovery_time"), 0.0);

    let mut never = outage(0, 1000 * SECOND);
    let (finding, _) = run(&mut Recovery::new(config.clone()), &mut never);
    assert!(finding.values.is_empty() && says(&finding, "still lost frames"), "{finding:?}");

    let mut fast = device(DeviceConfig { capacity_fps: 2e6, ..DeviceConfig::default() });
    let (finding, _) = run(&mut Recovery::new(config), &mut fast);
    assert!(finding.values.is_empty() && says(&finding, "nothing to recover"), "{finding:?}");
}

#[test]
fn a_ramp_finds_where_loss_begins_whichever_way_it_goes() {
    let config = RampConfig { from_fps: 1e4, to_fps: 2e6, ..RampConfig::default() };
    let (finding, trials) =
        run(&mut Ramp::new(config.clone()), &mut device(DeviceConfig::default()));
    // A hundredth of the way is 20,000 frames/s; the buffer fills within a step.
    near(&finding, "loss_onset_load", 1e6, 0.041);
    near(&finding, "maximum_forwarding_rate", 1e6, 0.01);
    let offer = &trials[0].offer;
    assert_eq!((offer.steps.len(), offer.rate_at(0), offer.peak_fps()), (99, 1e4, 2e6));
    assert!((offer.duration_ns() - 30 * SECOND).abs() < SECOND / 1000, "{}", offer.duration_ns());

    let down = RampConfig { from_fps: 2e6, to_fps: 1e4, trials: 1, ..config.clone() };
    let (finding, _) = run(&mut Ramp::new(down), &mut device(DeviceConfig::default()));
    near(&finding, "loss_onset_load", 2e6, 0.001);

    let mut fast = device(DeviceConfig { capacity_fps: 5e6, ..DeviceConfig::default() });
    let (finding, _) = run(&mut Ramp::new(config), &mut fast);
    assert_eq!(finding.value("loss_onset_load"), None);
    assert!(says(&finding, "3 of 3 trials lost nothing, up to 2000000"), "{finding:?}");
}

#[test]
fn a_power_cuts_own_length_is_taken_off_and_no_loss_is_no_time() {
    let action = |action: &str| ResetConfig {
        rate_fps: 1e4,
        action: action.into(),
        trials: 2,
        ..ResetConfig::default()
    };
    let lasting = |seconds| faulty(Faults { reset_ns: seconds * SECOND, ..Faults::default() });
    let (finding, trials) = run(&mut Reset::new(action(POWER)), &mut lasting(18));
    near(&finding, "reset_time_frame_loss", 3e9, 0.01);
    near(&finding, "reset_time_time_stamp", 3e9, 0.01);
    near(&finding, "lost_frames", 180_000.0, 0.01);
    assert!(says(&finding, "15 s without power"), "{finding:?}");
    assert_eq!(trials[0].offer.event.as_ref().unwrap().at_ns, 15 * SECOND);
    let (finding, _) = run(&mut Reset::new(action("reset")), &mut lasting(18));
    near(&finding, "reset_time_frame_loss", 18e9, 0.01);
    let (finding, _) = run(&mut Reset::new(action("reset")), &mut lasting(0));
    assert!(finding.values.is_empty() && says(&finding, "nothing was lost"), "{finding:?}");
}

#[test]
fn a_reset_takes_as_long_by_both_methods() {
    let lasting = |reset_ns| faulty(Faults { reset_ns, ..Faults::default() });
    let procedure = || Reset::new(ResetConfig { rate_fps: 1e5, ..ResetConfig::default() });
    let (finding, trials) = run(&mut procedure(), &mut lasting(3 * SECOND));
    near(&finding, "reset_time_frame_loss", 3e9, 1e-4);
    near(&finding, "reset_time_time_stamp", 3e9, 1e-4);
    assert_eq!((trials.len(), finding.complete), (3, true));
    assert_eq!(trials[0].offer.event.as_ref().unwrap().action, "reset");

    let (finding, _) = run(&mut procedure(), &mut lasting(1000 * SECOND));
    assert!(finding.values.is_empty() && !finding.complete, "{finding:?}");
    assert!(says(&finding, "In 3 trials the device did not forward again"), "{finding:?}");
}

#[test]
fn forwarding_rates_are_those_of_the_maximum_and_of_the_best_load() {
    let config = ForwardingConfig { max_fps: MOST, ..ForwardingConfig::default() };
    let (finding, trials) =
        run(&mut ForwardingRate::new(config), &mut device(DeviceConfig::default()));
    near(&finding, "maximum_forwarding_rate", 1e6, 1e-3);
    near(&finding, "forwarding_rate_at_maximum_offered_load", 1e6, 1e-3);
    near(&finding, "maximum_offered_load", MOST, 1e-6);
    // 100 % to 55 %: half of the maximum cannot bring forth more than was forwarded.
    assert!((10..=11).contains(&trials.len()), "{}", trials.len());
}

#[test]
fn addresses_are_counted_to_the_last_one() {
    let goal = AddressGoal::Capacity { max_stations: 65_536, learning_fps: 1000.0 };
    let mut search = AddressSearch::new(AddressConfig { goal, test_fps: 1e4 });
    let config = DeviceConfig { addresses: 1024, ..DeviceConfig::default() };
    let (finding, trials) = run(&mut search, &mut device(config.clone()));
    let capacity = finding.value("address_caching_capacity").unwrap();
    assert_eq!((capacity.value, capacity.bounds), (1024.0, Some([1024.0, 1025.0])));
    assert!(says(&finding, "1 copies were flooded"), "{finding:?}");
    for pair in trials.chunks(2) {
        let patterns: Vec<_> = pair.iter().map(|t| t.offer.pattern).collect();
        assert_eq!(patterns, [Pattern::Learning, Pattern::Stations]);
        assert_eq!(pair[0].offer.event.as_ref().unwrap().action, FORGET);
    }

    let (min_fps, max_fps) = (LEAST, MOST);
    let goal = AddressGoal::LearningRate { stations: 1000, min_fps, max_fps, resolution: 0.001 };
    let mut search = AddressSearch::new(AddressConfig { goal, test_fps: 1e4 });
    let slow = DeviceConfig { learning_fps: 50_000.0, ..config };
    let (finding, _) = run(&mut search, &mut device(slow));
    near(&finding, "address_learning_rate", 50_000.0, 0.002);
}

#[test]
fn multicast_and_flooding_search_with_their_own_frames() {
    let mut flooding = RateSearch::flooding(search_config());
    let mut mixed = RateSearch::mixed_class(search_config(), 0.3, 16);
    let mut aggregated = RateSearch::aggregated_multicast(search_config(), 16);
    for (search, name, pattern) in [
        (&mut flooding, "flooding_throughput", Pattern::Unknown),
        (&mut mixed, "mixed_class_throughput", Pattern::Multicast { share: 0.3 }),
        (&mut aggregated, "aggregated_multicast_throughput", Pattern::Multicast { share: 1.0 }),
    ] {
        let (finding, trials) = run(search, &mut device(DeviceConfig::default()));
        near(&finding, name, 1e6, 0.005);
        assert!(trials.iter().all(|t| t.offer.pattern == pattern));
    }
    let config = GroupMatrixConfig { rate_fps: 1.25e6, ..GroupMatrixConfig::default() };
    let (finding, trials) =
        run(&mut GroupMatrix::new(config), &mut device(DeviceConfig::default()));
    near(&finding, "loss_ratio@30", 0.2, 1e-3);
    near(&finding, "aggregate_forwarding_rate@30", 1e6, 1e-3);
    near(&finding, "offered_load@30", 1.25e6, 1e-3);
    assert_eq!((trials.len(), trials[9].offer.flows), (10, Some(100)));
    let (finding, _) = run(
        &mut RateSearch::mixed_class(search_config(), 0.25, 16),
        &mut device(DeviceConfig::default()),
    );
    near(&finding, "mixed_class_throughput@multicast", 2.5e5, 0.005);
    near(&finding, "mixed_class_throughput@unicast", 7.5e5, 0.005);
    assert_eq!(finding.value("forwarding_rate"), None);
}

#[test]
fn a_service_is_held_against_its_agreement() {
    let config = ConfigurationTestConfig {
        cir_fps: 8e5,
        eir_fps: 2e5,
        policing: true,
        step_ns: 10 * SECOND,
        sla: Sla { flr: 0.0, ftd_ns: Some(20_000.0), ..Sla::default() },
        ..ConfigurationTestConfig::default()
    };
    // This device is its own policer: it lets 1 M pass, CIR and EIR.
    let (finding, trials) = run(
        &mut ConfigurationTest::new(config.clone()),
        &mut device(DeviceConfig { buffer_frames: 1.0, ..DeviceConfig::default() }),
    );
    assert_eq!(finding.values[0].name, "steps_passed");
    assert_eq!((value(&finding, "steps_passed"), trials.len()), (1.0, 6), "{finding:?}");
    near(&finding, "information_rate@policing", 1e6, 1e-3);
    assert_eq!(trials[5].offer.rate_fps, 1.05e6);

    // Half of the capacity, and a buffer that delays by 2 ms.
    let slow = DeviceConfig { capacity_fps: 5e5, ..DeviceConfig::default() };
    let (finding, _) = run(&mut ConfigurationTest::new(config.clone()), &mut device(slow));
    near(&finding, "steps_passed", 2.0 / 6.0, 1e-9);
    let fails = |finding: &Finding, text: &str| finding.failures.iter().any(|f| f.contains(text));
    assert!(fails(&finding, "Step 75: frame loss ratio"), "{finding:?}");
    assert!(
        fails(&finding, "Step eir: 500") && fails(&finding, "less than the CIR"),
        "{finding:?}"
    );

    // Without a policer too much passes.
    let open = DeviceConfig { capacity_fps: 5e6, ..DeviceConfig::default() };
    let (finding, _) = run(&mut ConfigurationTest::new(config), &mut device(open));
    assert!(fails(&finding, "Step policing: ") && fails(&finding, "more than CIR and EIR"));
}

#[test]
fn availability_counts_outages_of_ten_seconds() {
    let config = PerformanceTestConfig {
        cir_fps: 1e4,
        duration_ns: 100 * SECOND,
        sla: Sla { flr: 1.0, availability: Some(0.9), ..Sla::default() },
    };
    let outage = |seconds: i64| {
        let resets_between_ns = Some([30 * SECOND, (30 + seconds) * SECOND]);
        faulty(Faults { resets_between_ns, ..Faults::default() })
    };
    let (finding, _) = run(&mut PerformanceTest::new(config.clone()), &mut outage(20));
    near(&finding, "availability", 0.8, 1e-9);
    near(&finding, "frame_loss_ratio", 0.2, 1e-3);
    assert_eq!(value(&finding, "sla_kept"), 0.0);
    let (finding, _) = run(&mut PerformanceTest::new(config), &mut outage(9));
    assert_eq!((value(&finding, "availability"), value(&finding, "sla_kept")), (1.0, 1.0));
}

#[test]
fn a_soak_adds_up_its_trials() {
    let config = SoakConfig { rate_fps: 1e4, total_ns: 3590 * SECOND, ..SoakConfig::default() };
    let mut drops = faulty(Faults { drops_one_in: 1000, ..Faults::default() });
    let (finding, trials) = run(&mut Soak::new(config), &mut drops);
    assert_eq!((trials.len(), finding.values[0].name.as_str()), (60, "loss_ratio"));
    near(&finding, "loss_ratio", 1e-3, 1e-9);
    near(&finding, "lost_frames", 36_000.0, 1e-9);
    assert_eq!(value(&finding, "lossy_trials"), 60.0);
    assert_eq!(finding.value("latency_p99_9").unwrap().samples, 36_000_000 - 36_000);
}
