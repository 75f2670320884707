//! Verdicts by counts, against the samples themselves and against every subset.

use proptest::prelude::*;
use sonde_results::hist::{bounds_of, bucket_of};
use sonde_results::sla::{
    Evidence, Exclusion, MeasuredDirection, ObjectiveVerdict, SlaEventKind, UndecidedReason,
};
use sonde_results::{Caveat, Interval};

use super::super::{
    AvailabilityRule, Judge, JudgeInput, JudgeOutput, Objective, ObjectiveLimit, ObjectiveMetric,
    ObjectiveWindow, OutOf, SecondRule, Usual, same_hours,
};
use super::{SECOND, feed, range, record};

const MINUTE: ObjectiveWindow = ObjectiveWindow::Fixed { length_s: 60, offset_s: 0 };

fn objective(metric: ObjectiveMetric) -> Objective {
    Objective::new("objective", metric, MeasuredDirection::RoundTrip, MINUTE)
}

fn percentile(percent: f64, limit_ns: i64) -> Objective {
    let limit = ObjectiveLimit::Fixed(limit_ns as f64);
    objective(ObjectiveMetric::DelayPercentile { percent, limit })
}

fn loss(limit: f64) -> Objective {
    objective(ObjectiveMetric::LossRatio { limit: ObjectiveLimit::Fixed(limit) })
}

/// A record of ten seconds with these round trips.
fn trips(at: i64, delays: &[i64]) -> Interval {
    let mut record = record(at, at + 10, delays.len() as u64, 0);
    delays.iter().for_each(|&d| record.rtt.add(d));
    record
}

/// The verdict of the first minute.
fn verdict(objective: Objective, records: &[Interval]) -> Evidence {
    assert_eq!(objective.diagnose(), []);
    let mut judge = Judge::new(objective, "Lyon");
    let mut out = JudgeOutput::default();
    for record in records {
        judge.push(JudgeInput::record(record), &mut out).unwrap();
    }
    judge.advance(60 * SECOND, &mut out);
    out.windows.remove(0)
}

#[test]
fn exactly_the_share_meets_a_percentile() {
    // 20 ms is no edge of a bucket, but all samples here lie on one side of theirs.
    let mut delays = vec![5_000_000; 999];
    delays.push(30_000_000);
    let objective = Objective { least_samples: Some(1), ..percentile(99.9, 20_000_000) };
    let met =
        verdict(Objective { least_known_percent: 0.0, ..objective.clone() }, &[trips(0, &delays)]);
    assert_eq!((met.verdict, met.samples), (ObjectiveVerdict::Met, 1_000));
    assert_eq!((met.low, met.high), (Some(0.001), Some(0.001)));
    delays.push(30_000_000);
    let missed = verdict(Objective { least_known_percent: 0.0, ..objective }, &[trips(0, &delays)]);
    assert_eq!(missed.verdict, ObjectiveVerdict::Missed);
    assert_eq!((missed.limit_ns, missed.counted, missed.unknown), (Some(20e6), 1, 5));
}

#[test]
fn a_limit_inside_a_bucket_decides_only_where_the_bucket_does_not_matter() {
    let limit = 20_000_000;
    let (low, high) = bounds_of(bucket_of(limit));
    assert!(low < limit && limit < high);
    let objective =
        Objective { least_samples: Some(1), least_known_percent: 0.0, ..percentile(90.0, limit) };
    let of = |below: usize, inside: &[i64], above: usize| {
        let delays = [vec![1_000_000; below], inside.to_vec(), vec![50_000_000; above]].concat();
        verdict(objective.clone(), &[trips(0, &delays)])
    };
    let open = of(85, &[low, high, low, high, low, high, low, high, low, high], 5);
    assert_eq!(
        (open.verdict, open.undecided),
        (ObjectiveVerdict::Undecided, Some(UndecidedReason::LimitInRange))
    );
    assert_eq!((open.low, open.high), (Some(0.05), Some(0.15)));
    assert_eq!(of(90, &[low, high], 8).verdict, ObjectiveVerdict::Met);
    assert_eq!(of(85, &[low, high], 13).verdict, ObjectiveVerdict::Missed);
}

#[test]
fn too_few_samples_decide_nothing() {
    let few = |n: usize| {
        verdict(
            percentile(99.0, 20_000_000),
            &[0, 10, 20, 30, 40, 50].map(|at| trips(at, &vec![1_000_000; n])),
        )
    };
    assert_eq!(few(49).undecided, Some(UndecidedReason::TooFewSamples));
    assert_eq!((few(50).verdict, few(50).least_samples), (ObjectiveVerdict::Met, 299));
    // No loss in 299,571 packets does not prove 1e-5.
    let lossless = |sent: u64| verdict(loss(1e-5), &[record(0, 60, sent, 0)]);
    assert_eq!(lossless(299_571).undecided, Some(UndecidedReason::TooFewSamples));
    assert_eq!(lossless(299_572).verdict, ObjectiveVerdict::Met);
}

#[test]
fn what_a_window_lacks_from_before_measuring_began_is_not_told() {
    let breach = OutOf { n: 1, m: 1 };
    let objective = Objective { least_samples: Some(200), breach, ..loss(0.01) };
    let mut judge = Judge::new(objective, "Lyon");
    let mut out = JudgeOutput::default();
    let told = |out: &JudgeOutput| {
        let told = out.events.iter().map(|event| (event.at_ns / SECOND, event.kind.clone()));
        told.map(|(at, kind)| (at, matches!(kind, SlaEventKind::Unknown { .. })))
            .collect::<Vec<_>>()
    };
    // Ten seconds of the first minute have too few samples; the second minute lacks most of itself.
    feed(&mut judge, 50, &"g".repeat(10), &mut out);
    assert_eq!(out.windows[0].undecided, Some(UndecidedReason::TooFewSamples));
    assert_eq!(told(&out), []);
    feed(&mut judge, 60, &format!("{}{}", "g".repeat(10), "?".repeat(50)), &mut out);
    assert_eq!(told(&out), [(60, true)]);
    feed(&mut judge, 120, &"g".repeat(60), &mut out);
    assert_eq!(told(&out), [(60, true), (120, false)]);
    // The same after a restart.
    let restart = Exclusion::doubt("station_gap");
    judge.push(JudgeInput::gap(range(180, 230)).excluded(&restart), &mut out).unwrap();
    judge.begins(230 * SECOND);
    feed(&mut judge, 230, &"g".repeat(10), &mut out);
    assert_eq!(out.windows[3].undecided, Some(UndecidedReason::TooFewSamples));
    assert_eq!(told(&out).len(), 2);
}

#[test]
fn a_window_that_is_mostly_unknown_decides_nothing() {
    let objective = Objective { least_samples: Some(1), ..loss(0.01) };
    let of =
        |seconds: i64, lost: u64| verdict(objective.clone(), &[record(0, seconds, 1_000, lost)]);
    assert_eq!(of(29, 11).undecided, Some(UndecidedReason::MostlyUnknown));
    assert_eq!(of(30, 11).verdict, ObjectiveVerdict::Missed);
    let nothing = verdict(objective, &[record(0, 60, 0, 0)]);
    assert_eq!((nothing.undecided, nothing.low), (Some(UndecidedReason::NoData), None));
}

#[test]
fn what_is_missed_whatever_is_unknown_is_missed() {
    use ObjectiveVerdict::{Met, Missed, Undecided};
    // The trial's: 200 of 200 lost, and 2,995 would be needed to say that it is met.
    let all = verdict(loss(1e-3), &[record(0, 20, 200, 200)]);
    assert_eq!((all.verdict, all.samples, all.least_samples), (Missed, 200, 2_995));
    let few = |sent: u64, lost: u64| verdict(loss(1e-3), &[record(0, 60, sent, lost)]);
    // 2 of 600 are above 0.1 %, but are seen by chance in 12 of 100 minutes that keep it.
    assert_eq!((few(600, 2).verdict, few(600, 3).verdict), (Undecided, Missed));
    assert_eq!(few(600, 2).undecided, Some(UndecidedReason::TooFewSamples));
    assert_eq!(few(600, 0).undecided, Some(UndecidedReason::TooFewSamples), "no claim of met");
    assert_eq!((few(3_000, 3).verdict, few(3_000, 4).verdict), (Met, Missed));
    // Ten seconds of sixty are known: 500 more packets, all of which may have arrived.
    let part = |lost: u64| verdict(loss(0.1), &[record(0, 10, 100, lost), record(59, 60, 10, 0)]);
    assert_eq!((part(70).verdict, part(100).verdict), (Missed, Missed));
    assert_eq!(part(40).undecided, Some(UndecidedReason::MostlyUnknown));
    // Of delays likewise, but not where most of the window is unknown.
    let slow = |at: &[i64], slow: usize| {
        let delays = [vec![1_000_000; 40 - slow], vec![50_000_000; slow]].concat();
        let records: Vec<Interval> = at.iter().map(|&at| trips(at, &delays)).collect();
        verdict(percentile(99.0, 20_000_000), &records)
    };
    assert_eq!(slow(&[0, 10, 20, 30, 40, 50], 40).verdict, Missed);
    assert_eq!(slow(&[0, 10, 20, 30, 40, 50], 1).verdict, Missed);
    assert_eq!(slow(&[0, 10, 20, 30, 40, 50], 0).undecided, Some(UndecidedReason::TooFewSamples));
    assert_eq!(slow(&[0], 40).undecided, Some(UndecidedReason::MostlyUnknown));
}

#[test]
fn a_count_that_only_grows_is_missed_as_soon_as_it_is_beyond_its_limit() {
    let rule = SecondRule { severe_ratio: 0.3, window: 10, reordered: false };
    let month = ObjectiveWindow::Month;
    let metric = ObjectiveMetric::ErroredSeconds { limit: 10, severe: false, rule };
    let objective = Objective { window: month, ..objective(metric) };
    let mut judge = Judge::new(objective, "Lyon");
    let mut out = JudgeOutput::default();
    // Each tenth second has an error, so that all of them are available.
    feed(&mut judge, 1_000, &"bggggggggg".repeat(10), &mut out);
    assert_eq!(out.events, []);
    assert_eq!(judge.month_so_far().unwrap().windows.missed, 0);
    feed(&mut judge, 1_100, &"bggggggggg".repeat(3), &mut out);
    let [event] = &out.events[..] else { panic!("{:?}", out.events) };
    assert_eq!(event.at_ns, 1_100 * SECOND, "the eleventh");
    assert!(matches!(
        event.kind,
        sonde_results::sla::SlaEventKind::Breach { missed: 1, of: 1, .. }
    ));
    assert_eq!((judge.breach_ns(), out.windows.len()), (Some(1_100 * SECOND), 0));
    let so_far = judge.month_so_far().unwrap();
    assert_eq!((so_far.windows.missed, so_far.seconds.errored), (1, 13));
    // At the month's end it is not told again, and counts once.
    judge.advance(2_700_000 * SECOND, &mut out);
    assert_eq!((out.events.len(), out.windows.len(), out.months.len()), (1, 1, 1));
    assert_eq!(out.months[0].windows.missed, 1);
    assert_eq!(out.windows[0].verdict, ObjectiveVerdict::Missed);
}

#[test]
fn losses_without_a_side_leave_a_direction_open() {
    let sided = |forward: u64, backward: u64, open: u64| {
        let mut record = record(0, 60, 10_000, forward + backward + open);
        record.counters.lost_forward = Some(forward);
        record.counters.lost_backward = Some(backward);
        record.counters.settle_sides();
        [MeasuredDirection::Forward, MeasuredDirection::Backward, MeasuredDirection::RoundTrip].map(
            |direction| {
                let objective = Objective { direction, ..loss(0.001) };
                verdict(objective, std::slice::from_ref(&record)).verdict
            },
        )
    };
    use ObjectiveVerdict::{Met, Missed, Undecided};
    assert_eq!(sided(10, 0, 0), [Met, Met, Met]);
    assert_eq!(sided(11, 0, 0), [Missed, Met, Missed]);
    assert_eq!(sided(5, 6, 0), [Met, Met, Missed]);
    assert_eq!(sided(5, 0, 6), [Undecided, Met, Missed]);
    assert_eq!(sided(0, 0, 11), [Undecided, Undecided, Missed]);
    // At most 9,900 got there, and 10 of them were lost on the way back.
    assert_eq!(sided(0, 10, 100), [Undecided, Missed, Missed]);
    // Of 9,000 that got there, 9 may be lost on the way back.
    assert_eq!(sided(1_000, 9, 0), [Missed, Met, Missed]);
    assert_eq!(sided(1_000, 10, 0), [Missed, Missed, Missed]);
}

#[test]
fn a_one_way_delay_between_clocks_that_disagree_is_no_data() {
    let mut record = trips(0, &[1_000_000; 400]);
    record.end_ns = 60 * SECOND;
    record.forward = record.rtt.clone();
    record.ipdv_forward = record.rtt.clone();
    record.caveats.insert(Caveat::PeerClockUnsynchronised);
    let of = |metric, direction| {
        verdict(Objective { direction, ..objective(metric) }, std::slice::from_ref(&record)).verdict
    };
    let (percent, limit) = (99.0, ObjectiveLimit::Fixed(2e6));
    let delay = ObjectiveMetric::DelayPercentile { percent, limit };
    assert_eq!(of(delay, MeasuredDirection::Forward), ObjectiveVerdict::Undecided);
    assert_eq!(of(delay, MeasuredDirection::RoundTrip), ObjectiveVerdict::Met);
    let mean = ObjectiveMetric::DelayMean { limit };
    assert_eq!(of(mean, MeasuredDirection::Forward), ObjectiveVerdict::Undecided);
    assert_eq!(of(mean, MeasuredDirection::RoundTrip), ObjectiveVerdict::Met);
    // The offset cancels out in variations.
    for metric in [
        ObjectiveMetric::PdvPercentile { percent, limit },
        ObjectiveMetric::IpdvPercentile { percent, limit },
    ] {
        assert_eq!(of(metric, MeasuredDirection::Forward), ObjectiveVerdict::Met);
    }
}

#[test]
fn the_variation_is_that_of_the_whole_window() {
    // Each record by itself varies by 1 ms, both together by 11 ms.
    let low: Vec<i64> = (0..200).map(|i| 5_000_000 + i * 5_000).collect();
    let high: Vec<i64> = low.iter().map(|d| d + 10_000_000).collect();
    let of = |limit_ns: f64| {
        let limit = ObjectiveLimit::Fixed(limit_ns);
        let metric = ObjectiveMetric::PdvPercentile { percent: 99.0, limit };
        let mut records = [trips(0, &low), trips(30, &high)];
        records[0].end_ns = 30 * SECOND;
        records[1].end_ns = 60 * SECOND;
        verdict(objective(metric), &records).verdict
    };
    assert_eq!((of(2e6), of(12e6)), (ObjectiveVerdict::Missed, ObjectiveVerdict::Met));
}

#[test]
fn an_outage_leaves_the_loss_objective() {
    let rule = AvailabilityRule::Sliding {
        interval_ns: SECOND,
        loss_ratio: 0.5,
        window: 10,
        consecutive: None,
    };
    let of = |available_time| {
        let objective = Objective { available_time, least_samples: Some(1), ..loss(0.01) };
        let mut judge = Judge::new(objective, "Lyon");
        let mut out = JudgeOutput::default();
        feed(&mut judge, 0, &["g".repeat(20), "b".repeat(12), "g".repeat(40)].concat(), &mut out);
        out.windows.remove(0)
    };
    let without = of(None);
    assert_eq!((without.verdict, without.low), (ObjectiveVerdict::Missed, Some(0.2)));
    let with = of(Some(rule));
    assert_eq!(
        (with.verdict, with.low, with.unavailable, with.counted),
        (ObjectiveVerdict::Met, Some(0.0), 12, 48)
    );
}

#[test]
fn a_month_keeps_its_worst_window() {
    let objective = Objective { least_samples: Some(1), ..loss(0.01) };
    let mut judge = Judge::new(objective, "Lyon");
    let mut out = JudgeOutput::default();
    for (minute, lost) in (0..).zip([0, 5, 30, 20, 30]) {
        let record = record(minute * 60, minute * 60 + 60, 100, lost);
        judge.push(JudgeInput::record(&record), &mut out).unwrap();
    }
    let month = judge.month_so_far().unwrap();
    let worst = month.worst.unwrap();
    assert_eq!((worst.start_ns, worst.low), (120 * SECOND, Some(0.3)), "the first of equal ones");
    assert_eq!((month.windows.met, month.windows.missed), (1, 4));
}

#[test]
fn errored_seconds_count_in_available_time_only() {
    let rule = SecondRule { severe_ratio: 0.3, window: 10, reordered: false };
    let of = |limit, severe| {
        let mut judge =
            Judge::new(objective(ObjectiveMetric::ErroredSeconds { limit, severe, rule }), "Lyon");
        let mut out = JudgeOutput::default();
        // Nine severe seconds, three that lost one packet, an outage of twelve, one unknown.
        feed(&mut judge, 0, &["g".repeat(5), "b".repeat(9)].concat(), &mut out);
        for at in 14..17 {
            judge.push(JudgeInput::record(&record(at, at + 1, 10, 1)), &mut out).unwrap();
        }
        feed(
            &mut judge,
            17,
            &["b".repeat(12), "g".repeat(10), "?".into(), "g".repeat(32)].concat(),
            &mut out,
        );
        let month = judge.month_so_far().unwrap();
        assert_eq!((month.seconds.errored, month.seconds.errored_possible), (12, 1));
        assert_eq!((month.seconds.severe, month.seconds.severe_possible), (9, 1));
        assert_eq!(month.availability.unavailable_ns(), 12 * SECOND);
        out.windows.remove(0).verdict
    };
    use ObjectiveVerdict::{Met, Missed, Undecided};
    assert_eq!([of(13, false), of(12, false), of(11, false)], [Met, Undecided, Missed]);
    assert_eq!([of(10, true), of(9, true), of(8, true)], [Met, Undecided, Missed]);
}

#[test]
fn twice_the_usual_is_held_against_the_same_hour() {
    let limit = ObjectiveLimit::Usual { times: 2.0, floor: 1e6 };
    let objective = objective(ObjectiveMetric::DelayPercentile { percent: 50.0, limit });
    let at = 1_700_003_000 * SECOND;
    let hours = same_hours(at);
    assert_eq!(hours[0].start_ns, (1_700_002_800 - 7 * 86_400) * SECOND);
    assert_eq!(hours[3].start_ns, (1_700_002_800 - 28 * 86_400) * SECOND);
    // 3, 4 and 100 ms: one bad week is not the measure.
    let weeks = [3_000_000, 4_000_000, 100_000_000].map(|d| trips(0, &[d; 100]));
    let usual =
        Usual::of(&objective, &[Some(&weeks[0]), None, Some(&weeks[1]), Some(&weeks[2])]).unwrap();
    assert_eq!((usual.weeks, usual.samples, usual.low, usual.high), (3, 300, 4e6, 4e6));
    assert_eq!(Usual::of(&objective, &[Some(&weeks[0]), None, None, None]), None);

    let of = |delay: i64, known: bool| {
        let mut judge = Judge::new(objective.clone(), "Lyon");
        let mut out = JudgeOutput::default();
        let minute = 1_700_003_040;
        assert_eq!(judge.wants_usual(minute * SECOND), Some(1_700_002_800 * SECOND));
        if known {
            judge.set_usual(1_700_002_800 * SECOND, Some(usual));
            assert_eq!(judge.wants_usual(minute * SECOND), None);
        }
        let mut record = trips(minute, &[delay; 100]);
        record.end_ns = (minute + 60) * SECOND;
        judge.push(JudgeInput::record(&record), &mut out).unwrap();
        (out.windows[0].verdict, out.windows[0].undecided)
    };
    assert_eq!(of(8_000_000, true), (ObjectiveVerdict::Met, None));
    assert_eq!(of(8_000_001, true), (ObjectiveVerdict::Missed, None));
    assert_eq!(of(8_000_001, false), (ObjectiveVerdict::Undecided, Some(UndecidedReason::NoUsual)));
    let quiet = Usual { low: 1e4, high: 1e4, weeks: 4, samples: 400 };
    let mut judge = Judge::new(objective.clone(), "Lyon");
    judge.set_usual(0, Some(quiet));
    let mut out = JudgeOutput::default();
    let mut record = trips(0, &[900_000; 100]);
    record.end_ns = 60 * SECOND;
    judge.push(JudgeInput::record(&record), &mut out).unwrap();
    assert_eq!(
        out.windows[0].verdict,
        ObjectiveVerdict::Met,
        "90 times next to nothing is below the floor"
    );
}

proptest! {
    #[test]
    fn a_verdict_is_never_wrong_about_the_samples(
        delays in prop::collection::vec(prop_oneof![0..3_000i64, 90_000..110_000i64], 1..120),
        limit in prop_oneof![0..3_000i64, 90_000..110_000i64],
        percent in prop_oneof![Just(50.0), Just(90.0), Just(99.0), 1.0..99.0f64],
        cuts in prop::collection::vec(0..120usize, 0..3),
    ) {
        let objective = Objective { least_samples: Some(1), least_known_percent: 0.0, ..percentile(percent, limit) };
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(delays.len())).chain([0, delays.len()]).collect();
        cuts.sort_unstable();
        let records: Vec<Interval> = (0..).zip(cuts.windows(2)).map(|(i, c)| trips(i * 10, &delays[c[0]..c[1]])).collect();
        let got = verdict(objective, &records);
        let beyond = delays.iter().filter(|&&d| d > limit).count() as f64 / delays.len() as f64;
        prop_assert!(got.low.unwrap() <= beyond + 1e-12 && beyond <= got.high.unwrap() + 1e-12);
        let allowed = 1.0 - percent / 100.0;
        match got.verdict {
            ObjectiveVerdict::Met => prop_assert!(beyond <= allowed + 1e-9),
            ObjectiveVerdict::Missed => prop_assert!(beyond > allowed - 1e-9),
            ObjectiveVerdict::Undecided => {
                let inside = delays.iter().any(|&d| bucket_of(d) == bucket_of(limit));
                prop_assert!(inside, "only a bucket leaves it open");
            }
        }
    }

    #[test]
    fn the_order_of_records_does_not_matter(
        mut counts in prop::collection::vec((1..200u64, 0..5u64, 0..5u64, 0..5u64), 6),
        direction in prop_oneof![Just(MeasuredDirection::Forward), Just(MeasuredDirection::Backward), Just(MeasuredDirection::RoundTrip)],
    ) {
        let of = |counts: &[(u64, u64, u64, u64)]| {
            let records: Vec<_> = (0..).zip(counts).map(|(i, &(ok, forward, backward, open))| {
                let mut r = record(i * 10, i * 10 + 10, ok + forward + backward + open, forward + backward + open);
                (r.counters.lost_forward, r.counters.lost_backward) = (Some(forward), Some(backward));
                r.counters.settle_sides();
                r
            }).collect();
            verdict(Objective { direction, least_samples: Some(1), ..loss(0.02) }, &records)
        };
        let first = of(&counts);
        counts.reverse();
        prop_assert_eq!(&of(&counts), &first);
        counts.swap(1, 4);
        prop_assert_eq!(&of(&counts), &first);
    }

    /// Where it is open which intervals were available, the verdict holds for every choice.
    #[test]
    fn open_availability_never_makes_a_verdict_wrong(letters in "[gb?]{12,24}", lossy in prop::collection::vec(0..4u64, 24)) {
        let rule = AvailabilityRule::Sliding { interval_ns: SECOND, loss_ratio: 0.5, window: 3, consecutive: None };
        let objective = Objective {
            available_time: Some(rule), least_samples: Some(1), least_known_percent: 0.0, ..loss(0.1)
        };
        let mut judge = Judge::new(objective, "Lyon");
        let mut out = JudgeOutput::default();
        let mut fed = Vec::new();
        for ((at, letter), &lost) in (0..).zip(letters.chars()).zip(&lossy) {
            let lost = match letter { 'g' => Some(lost), 'b' => Some(10), _ => None };
            match lost {
                Some(lost) => judge.push(JudgeInput::record(&record(at, at + 1, 10, lost)), &mut out).unwrap(),
                None => judge.push(JudgeInput::gap(range(at, at + 1)), &mut out).unwrap(),
            }
            fed.push(lost);
        }
        // Good seconds without packets that count would not be good: give it some.
        for at in fed.len() as i64..63 {
            judge.push(JudgeInput::record(&record(at, at + 1, 10, 0)), &mut out).unwrap();
            fed.push(Some(0));
        }
        let got = out.windows[0].clone();
        let unknown: Vec<usize> = (0..fed.len()).filter(|&i| fed[i].is_none()).collect();
        prop_assume!(unknown.len() <= 10);
        for filling in 0..1u32 << unknown.len() {
            let bad = |i: usize| match fed[i] {
                Some(lost) => lost > 5,
                None => filling >> unknown.iter().position(|&u| u == i).unwrap() & 1 == 1,
            };
            let (mut available, mut lost, mut sent) = (true, 0, 0);
            for (i, fed) in fed.iter().enumerate().take(60) {
                if (i..i + 3).all(|j| bad(j) == available) {
                    available = !available;
                }
                if let (true, &Some(n)) = (available, fed) {
                    lost += n;
                    sent += 10;
                }
            }
            match got.verdict {
                ObjectiveVerdict::Met => prop_assert!(lost * 10 <= sent, "{}", letters),
                ObjectiveVerdict::Missed => prop_assert!(lost * 10 > sent, "{}", letters),
                ObjectiveVerdict::Undecided => prop_assert!(got.undecided.is_some()),
            }
        }
    }
}
