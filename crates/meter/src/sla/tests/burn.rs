//! Burn rates against a model that keeps every interval.

use proptest::prelude::*;
use sonde_results::sla::{Exclusion, MeasuredDirection};

use super::super::{
    BurnAlert, BurnRule, BurnSample, BurnSeverity, BurnState, Objective, ObjectiveLimit,
    ObjectiveMetric, ObjectiveWindow, SecondRule,
};
use super::{SECOND, available, range, record};

#[test]
fn the_usual_pairs_are_those_of_the_table() {
    // Columns of the table for a target of 99.9 %: share of the budget, error ratio, fewest in a
    // window, minutes until a total outage is seen.
    let table = [
        (0.02, 0.0144, 70, 0.864),
        (0.05, 0.006, 167, 2.16),
        (0.1, 0.003, 334, 4.32),
        (0.1, 0.001, 1_000, 4.32),
    ];
    let budget = 1.0 - 0.999;
    for (rule, (spent, ratio, fewest, minutes)) in BurnRule::USUAL.iter().zip(table) {
        assert_eq!(rule.diagnose(99.9), []);
        assert_eq!(rule.long_s / rule.short_s, 12);
        assert!((rule.spent(30 * 86_400) - spent).abs() < 1e-9);
        assert!((rule.error_ratio(budget) - ratio).abs() < 1e-9);
        assert_eq!(rule.least_total(budget), fewest);
        assert!((rule.seen_after_s(budget) / 60.0 - minutes).abs() < 1e-9);
    }
}

#[test]
fn an_alert_that_could_never_fire_is_refused() {
    let keys = |rule: BurnRule, target| {
        rule.diagnose(target).into_iter().map(|e| e.key).collect::<Vec<_>>()
    };
    let page = BurnRule::USUAL[0];
    assert_eq!(keys(page, 95.0), Vec::<String>::new(), "72 % of errors");
    assert_eq!(keys(page, 93.0), ["factor"]);
    assert_eq!(keys(page, 100.0), ["target_percent"]);
    assert_eq!(keys(BurnRule { long_s: 30, short_s: 10, ..page }, 99.9), ["long_s"]);
    assert_eq!(keys(BurnRule { short_s: 3_600, ..page }, 99.9), ["short_s"]);
    assert_eq!(keys(BurnRule { short_s: 301, ..page }, 99.9), ["short_s"]);
    assert_eq!(keys(BurnRule { factor: 0.0, ..page }, 99.9), ["factor"]);
}

const GOOD: Option<BurnSample> = Some(BurnSample { bad: 0, total: 1 });
const BAD: Option<BurnSample> = Some(BurnSample { bad: 1, total: 1 });

/// Pushes seconds and returns those at which the state changed.
fn seconds(
    alert: &mut BurnAlert,
    from: i64,
    to: i64,
    sample: Option<BurnSample>,
) -> Vec<(i64, BurnState)> {
    (from..to)
        .filter_map(|at| alert.push(range(at, at + 1), sample, None).map(|s| (at, s)))
        .collect()
}

#[test]
fn an_outage_fires_when_the_table_says_and_is_over_with_the_short_window() {
    let mut alert = BurnAlert::new(BurnRule::USUAL[0], 99.9);
    let quiet = seconds(&mut alert, 0, 7_200, GOOD);
    assert_eq!(quiet.len(), 1);
    assert_eq!((quiet[0].1, alert.rates()), (BurnState::Quiet, (Some(0.0), Some(0.0))));
    // 1.44 % of an hour of seconds are 51.84: within a minute of steps.
    let fired = seconds(&mut alert, 7_200, 7_300, BAD);
    assert_eq!(fired.iter().map(|f| f.1).collect::<Vec<_>>(), [BurnState::Firing]);
    assert!((7_200 + 50..=7_200 + 52).contains(&fired[0].0), "{fired:?}");
    // 100 s of outage leave the short window after 5 min.
    let over = seconds(&mut alert, 7_300, 8_000, GOOD);
    assert_eq!(over.iter().map(|f| f.1).collect::<Vec<_>>(), [BurnState::Quiet]);
    assert!((7_440..=7_620).contains(&over[0].0), "{over:?}");
}

#[test]
fn a_station_that_stood_still_fires_nothing() {
    let mut alert = BurnAlert::new(BurnRule::USUAL[0], 99.9);
    seconds(&mut alert, 0, 7_200, GOOD);
    let mut states: Vec<BurnState> =
        seconds(&mut alert, 7_200, 9_100, None).into_iter().map(|s| s.1).collect();
    states.extend(alert.advance(20_000 * SECOND));
    assert_eq!(states, [BurnState::NoData]);
    assert_eq!(alert.rates(), (None, None));
    // The first bad ones afterwards say nothing of an hour.
    assert_eq!(seconds(&mut alert, 20_000, 20_100, BAD), []);
}

#[test]
fn what_is_left_out_neither_burns_nor_is_missing() {
    let night = Exclusion::maintenance("night");
    let mut alert = BurnAlert::new(BurnRule::USUAL[0], 99.9);
    seconds(&mut alert, 0, 7_200, GOOD);
    for at in 7_200..10_000 {
        assert_eq!(
            alert.push(range(at, at + 1), BAD, Some(&night)).filter(|s| *s == BurnState::Firing),
            None
        );
    }
    assert_eq!(alert.rates().0, Some(0.0));
}

#[test]
fn what_burns_is_what_the_objective_counts() {
    let of = |metric| {
        let window = ObjectiveWindow::Fixed { length_s: 60, offset_s: 0 };
        Objective::new("it", metric, MeasuredDirection::RoundTrip, window)
    };
    let sample = |bad, total| Some(BurnSample { bad, total });
    let lossy = record(0, 1, 10, 4);
    let loss = of(ObjectiveMetric::LossRatio { limit: ObjectiveLimit::Fixed(0.01) });
    assert_eq!(loss.burn_sample(&lossy), sample(4, 10));
    assert_eq!(available(10, None).burn_sample(&lossy), sample(0, 1));
    assert_eq!(available(10, None).burn_sample(&record(0, 1, 10, 6)), sample(1, 1));
    assert_eq!(available(10, None).burn_sample(&record(0, 1, 0, 0)), None);
    let rule = SecondRule { severe_ratio: 0.5, window: 10, reordered: false };
    let errored = |severe| of(ObjectiveMetric::ErroredSeconds { limit: 1, severe, rule });
    assert_eq!(errored(false).burn_sample(&lossy), sample(1, 1));
    assert_eq!(errored(true).burn_sample(&lossy), sample(0, 1));
    let mut slow = record(0, 1, 3, 0);
    [1_000_000, 2_000_000, 90_000_000].iter().for_each(|&d| slow.rtt.add(d));
    let delay =
        of(ObjectiveMetric::DelayPercentile { percent: 99.0, limit: ObjectiveLimit::Fixed(5e6) });
    assert_eq!(delay.burn_sample(&slow), sample(1, 3));
}

/// Something that happens: so much later, so many bad of so many, or nothing, or left out.
fn history() -> impl Strategy<Value = Vec<(i64, i64, u64, u64, u8)>> {
    prop::collection::vec((0..3i64, 1..8i64, 0..4u64, 0..12u64, 0..10u8), 1..150)
}

proptest! {
    #[test]
    fn rates_and_states_are_the_models(history in history(), factor in 1.0..8.0f64, cut in any::<prop::sample::Index>()) {
        // Steps of 2 s, windows of 10 and 60 s, a target of 90 %.
        let rule = BurnRule { long_s: 60, short_s: 10, factor, severity: BurnSeverity::Page };
        let mut alert = BurnAlert::new(rule, 90.0);
        let night = Exclusion::maintenance("night");
        let mut all: Vec<(i64, i64, u64, u64, u8)> = Vec::new();
        let mut at = 1_000;
        let cut = cut.index(history.len());
        for (i, &(gap, length, bad, good, kind)) in history.iter().enumerate() {
            let start = at + gap * 7;
            at = start + length;
            all.push((start, length, bad, bad + good, kind));
            let sample = (kind != 0).then_some(BurnSample { bad, total: bad + good });
            alert.push(range(start, at), sample, (kind == 1).then_some(&night));
            if i == cut {
                alert = serde_json::from_str(&serde_json::to_string(&alert).unwrap()).unwrap();
            }
            let present = start.div_euclid(2);
            let window = |steps: i64| {
                let inside = |a: &&(i64, i64, u64, u64, u8)| (present - steps + 1..=present).contains(&a.0.div_euclid(2));
                let counted: Vec<_> = all.iter().filter(inside).collect();
                let sum = |f: fn(&(i64, i64, u64, u64, u8)) -> i64, kinds: fn(u8) -> bool| -> i64 {
                    counted.iter().filter(|a| kinds(a.4)).map(|a| f(a)).sum()
                };
                let known: fn(u8) -> bool = |k| k > 1;
                (sum(|a| a.2 as i64, known), sum(|a| a.3 as i64, known), sum(|a| a.1, known), sum(|a| a.1, |k| k == 1))
            };
            let windows = [(60, window(30)), (10, window(5))];
            let rate = |w: (i64, i64, i64, i64)| (w.1 > 0).then(|| w.0 as f64 / w.1 as f64 / (1.0 - 0.9));
            let (long, short) = alert.rates();
            for (got, want) in [(long, rate(windows[0].1)), (short, rate(windows[1].1))] {
                prop_assert_eq!(got.is_some(), want.is_some());
                prop_assert!((got.unwrap_or(0.0) - want.unwrap_or(0.0)).abs() < 1e-9);
            }
            let unknown = windows.iter().any(|&(s, w)| w.2 * 2 < s - 2 - w.3 || w.1 == 0);
            let least = rule.least_total(1.0 - 0.9) as i64;
            let fires = windows.iter().all(|&(_, w)| w.1 >= least && w.0 as f64 / w.1 as f64 > factor * (1.0 - 0.9));
            let wanted = if unknown { BurnState::NoData } else if fires { BurnState::Firing } else { BurnState::Quiet };
            prop_assert_eq!(alert.state(), wanted, "{:?}", windows);
        }
    }
}
