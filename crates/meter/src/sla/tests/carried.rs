//! A history that is cut anywhere: the state is saved, read back, and goes on.

use proptest::prelude::*;
use serde_json::Value;
use sonde_results::Interval;
use sonde_results::sla::{Exclusion, MeasuredDirection, ObjectiveVerdict};

use super::super::{
    AvailabilityRule, Judge, JudgeInput, JudgeOutput, Objective, ObjectiveLimit, ObjectiveMetric,
    ObjectiveWindow, OutOf, SecondRule,
};
use super::{SECOND, available, range, record};

/// Something that is fed: its length (s), what was sent and lost, and how it is left out.
#[derive(Clone, Debug)]
struct Fed {
    length: i64,
    packets: Option<(u64, u64)>,
    delay: i64,
    exclusion: Option<Exclusion>,
}

fn fed() -> impl Strategy<Value = Vec<Fed>> {
    let packets = prop_oneof![
        4 => Just(Some((10, 0))),
        4 => Just(Some((10, 10))),
        2 => (1..20u64, 0..20u64).prop_map(|(sent, lost)| Some((sent, lost.min(sent)))),
        1 => Just(None),
    ];
    let exclusion = prop_oneof![
        12 => Just(None),
        1 => Just(Some(Exclusion::maintenance("night"))),
        1 => Just(Some(Exclusion::doubt("clock_stepped"))),
    ];
    let length = prop_oneof![8 => Just(1i64), 1 => 2..5i64, 1 => 50..90i64];
    let one = (length, packets, 1_000..50_000_000i64, exclusion);
    let one = one.prop_map(|(length, packets, delay, exclusion)| Fed {
        length,
        packets,
        delay,
        exclusion,
    });
    prop::collection::vec(one, 1..120)
}

fn objectives() -> Vec<Objective> {
    let window = ObjectiveWindow::Fixed { length_s: 30, offset_s: 0 };
    let rule = AvailabilityRule::Sliding {
        interval_ns: SECOND,
        loss_ratio: 0.5,
        window: 4,
        consecutive: Some(2),
    };
    let of = |metric, available_time| Objective {
        breach: OutOf { n: 2, m: 3 },
        recovery: OutOf { n: 2, m: 2 },
        least_samples: Some(3),
        available_time,
        ..Objective::new("it", metric, MeasuredDirection::RoundTrip, window)
    };
    let limit = ObjectiveLimit::Fixed(20e6);
    let blocks = AvailabilityRule::Blocks {
        block_ns: 20 * SECOND,
        offset_ns: 5 * SECOND,
        loss_ratio: 0.3,
        least_packets: 20,
    };
    vec![
        available(4, Some(2)),
        Objective { window, ..available(10, None) },
        of(ObjectiveMetric::Availability { target_percent: 90.0, rule: blocks }, None),
        of(ObjectiveMetric::LossRatio { limit: ObjectiveLimit::Fixed(0.1) }, Some(rule)),
        of(ObjectiveMetric::LossRatio { limit: ObjectiveLimit::Fixed(0.1) }, None),
        of(ObjectiveMetric::DelayPercentile { percent: 90.0, limit }, Some(blocks)),
        of(ObjectiveMetric::PdvPercentile { percent: 90.0, limit }, Some(rule)),
        of(ObjectiveMetric::DelayMean { limit }, Some(rule)),
        of(
            ObjectiveMetric::ErroredSeconds {
                limit: 3,
                severe: false,
                rule: SecondRule { severe_ratio: 0.3, window: 10, reordered: true },
            },
            None,
        ),
    ]
}

/// The records of a history, from `start` on, s.
fn records(history: &[Fed], start: i64) -> Vec<(i64, i64, Option<Interval>, Option<Exclusion>)> {
    let mut at = start;
    let one = |fed: &Fed| {
        let (start, end) = (at, at + fed.length);
        at = end;
        let record = fed.packets.map(|(sent, lost)| {
            let mut record = record(start, end, sent, lost);
            (lost..sent).for_each(|i| record.rtt.add(fed.delay + i as i64 * 40_000));
            record
        });
        (start, end, record, fed.exclusion.clone())
    };
    history.iter().map(one).collect()
}

fn push(
    judge: &mut Judge,
    fed: &(i64, i64, Option<Interval>, Option<Exclusion>),
    out: &mut JudgeOutput,
) {
    let input = match &fed.2 {
        Some(record) => JudgeInput::record(record),
        None => JudgeInput::gap(range(fed.0, fed.1)),
    };
    judge.push(JudgeInput { exclusion: fed.3.as_ref(), ..input }, out).unwrap();
}

/// Equal, but for the last digit of a fraction that was saved as text.
fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, a)| b.get(k).is_some_and(|b| alike(a, b)))
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-14 * a.abs()
        }
        (a, b) => a == b,
    }
}

/// Some minutes before the end of November 2023.
const START: i64 = 1_701_388_800 - 100;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_anywhere_changes_nothing(history in fed(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..4)) {
        let all = records(&history, START);
        let cuts: Vec<usize> = cuts.iter().map(|c| c.index(all.len())).collect();
        for objective in objectives() {
            let (mut whole, mut cut) = (Judge::new(objective.clone(), "Lyon"), Judge::new(objective.clone(), "Lyon"));
            let (mut a, mut b) = (JudgeOutput::default(), JudgeOutput::default());
            for (i, fed) in all.iter().enumerate() {
                push(&mut whole, fed, &mut a);
                if cuts.contains(&i) {
                    let saved = serde_json::to_string(&cut).unwrap();
                    let back: Judge = serde_json::from_str(&saved).unwrap();
                    cut = Judge::resume(objective.clone(), "Lyon", Some(back));
                }
                push(&mut cut, fed, &mut b);
            }
            prop_assert!(alike(&serde_json::to_value(&whole).unwrap(), &serde_json::to_value(&cut).unwrap()), "{}", objective);
            prop_assert_eq!(&a.events, &b.events);
            prop_assert_eq!(&a.windows, &b.windows);
            prop_assert_eq!(&a.labels, &b.labels);
            let months = |out: &JudgeOutput| serde_json::to_value(&out.months).unwrap();
            prop_assert!(alike(&months(&a), &months(&b)), "{}", objective);
        }
    }

    /// What was measured in time that is left out does not matter. By the rule of MEF an outage
    /// that begins in maintenance goes on, so that one is tried with the station's doubts only.
    #[test]
    fn what_is_left_out_never_changes_a_verdict(history in fed(), others in fed()) {
        for objective in objectives() {
            let sliding = matches!(objective.rule(), Some(AvailabilityRule::Sliding { .. }));
            let doubt = Exclusion::doubt("late");
            let with = |fill: &[Fed]| {
                let mut fill = fill.iter().cycle();
                let mut history = history.clone();
                for fed in &mut history {
                    let Some(exclusion) = &mut fed.exclusion else { continue };
                    if sliding {
                        *exclusion = doubt.clone();
                    }
                    let other = fill.next().unwrap();
                    (fed.packets, fed.delay) = (other.packets, other.delay);
                }
                let mut judge = Judge::new(objective.clone(), "Lyon");
                let mut out = JudgeOutput::default();
                records(&history, START).iter().for_each(|fed| push(&mut judge, fed, &mut out));
                judge.advance((START + 20_000) * SECOND, &mut out);
                out
            };
            prop_assert_eq!(with(&history), with(&others), "{}", objective);
        }
    }

    #[test]
    fn a_window_has_one_verdict(history in fed()) {
        for objective in objectives() {
            let mut judge = Judge::new(objective.clone(), "Lyon");
            let mut out = JudgeOutput::default();
            records(&history, START).iter().for_each(|fed| push(&mut judge, fed, &mut out));
            judge.advance((START + 20_000) * SECOND, &mut out);
            let apart = |w: &[sonde_results::sla::Evidence]| w[0].end_ns <= w[1].start_ns;
            prop_assert!(out.windows.windows(2).all(apart), "{}", objective);
            let known = out.events.iter().all(|e| e.at_ns <= e.known_ns);
            prop_assert!(known && out.events.is_sorted_by_key(|e| e.known_ns));
            let ends = out.labels.windows(2).all(|l| l[0].range.end_ns <= l[1].range.start_ns);
            prop_assert!(ends, "{}", objective);
        }
    }

    /// All that is fed is counted once, in some month.
    #[test]
    fn every_second_is_counted_once(history in fed()) {
        let mut judge = Judge::new(available(4, None), "Lyon");
        let mut out = JudgeOutput::default();
        // At the end nothing waits.
        let good = Fed { length: 1, packets: Some((10, 0)), delay: 1, exclusion: None };
        let all = records(&[history, vec![good; 4]].concat(), START);
        all.iter().for_each(|fed| push(&mut judge, fed, &mut out));
        let months = out.months.iter().cloned().chain(judge.month_so_far());
        let counted: u64 = months.map(|m| m.availability.base() + m.availability.excluded.iter().map(|e| e.intervals).sum::<u64>()).sum();
        prop_assert_eq!(counted as i64, all.last().unwrap().1 - START);
    }

    /// Forgetting a record never turns "met" into "missed" or the other way round, where the
    /// objective is availability.
    #[test]
    fn forgetting_only_widens_a_months_availability(history in fed(), at in any::<prop::sample::Index>()) {
        let all = records(&history, START);
        let of = |forgotten: Option<usize>| {
            let mut judge = Judge::new(Objective { window: ObjectiveWindow::Fixed { length_s: 30, offset_s: 0 }, ..available(4, None) }, "Lyon");
            let mut out = JudgeOutput::default();
            for (i, fed) in all.iter().enumerate() {
                let mut fed = fed.clone();
                if forgotten == Some(i) {
                    fed.2 = None;
                }
                push(&mut judge, &fed, &mut out);
            }
            judge.advance((START + 20_000) * SECOND, &mut out);
            out.windows
        };
        let (known, less) = (of(None), of(Some(at.index(all.len()))));
        prop_assert_eq!(known.len(), less.len());
        for (known, less) in known.iter().zip(&less) {
            prop_assert!(less.low <= known.low && known.high <= less.high);
            let same = less.verdict == known.verdict;
            prop_assert!(same || less.verdict == ObjectiveVerdict::Undecided);
        }
    }
}
