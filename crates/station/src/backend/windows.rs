//! Windows of time: their length, and what is said of what stands in them.

use sonde_api::datum::Datum;
use sonde_api::instant::{QueryRange, UtcInstant};
use sonde_api::readings::{AnswerLevel, ReadingMetric};
use sonde_results::caveat::CaveatSet;
use sonde_store::query::{Summary, TimeRange};
use sonde_store::{DAY_NS, HOUR_NS, MINUTE_NS, Response, Table};

/// The range in whole windows of the coarsest roll-up of which it has at least ten.
pub(super) fn aligned(range: QueryRange) -> TimeRange {
    let length = range.length_ns();
    let steps = [DAY_NS, HOUR_NS, MINUTE_NS];
    widened(range, steps.into_iter().find(|step| length >= 10 * step).unwrap_or(1))
}

/// The range in whole windows of `step_ns`.
pub(super) fn widened(range: QueryRange, step_ns: i64) -> TimeRange {
    let (from, to) = (range.from.ns(), range.to.ns());
    TimeRange {
        from_ns: from.saturating_sub(from.rem_euclid(step_ns)),
        to_ns: to.saturating_add((-to).rem_euclid(step_ns)),
    }
}

/// The least step, ns, with which a range has at most so many windows.
pub(super) fn step_for(range: QueryRange, points: u32) -> i64 {
    let length = range.length_ns();
    // Widened to whole windows, it has up to one more than fit.
    let most = i64::from(points.max(2)) - 1;
    let fits = |step: &i64| length <= step.saturating_mul(most);
    STEPS.iter().map(|seconds| seconds * 1_000_000_000).find(fits).unwrap_or_else(|| {
        let days = length / DAY_NS / most + 1;
        days * DAY_NS
    })
}

/// How finely an answer was computed, in windows of `step_ns`.
pub(super) fn level_of(response: &Response, step_ns: i64, final_to: UtcInstant) -> AnswerLevel {
    let TimeRange { from_ns, to_ns } = response.range;
    let level = match response.level {
        Some(Table::Interval | Table::Flow | Table::Rtt | Table::Interface) | None => "raw",
        Some(Table::Interval1m | Table::Rtt1m) => "1m",
        Some(Table::Flow5m | Table::Interface5m) => "5m",
        Some(Table::Interval1h | Table::Flow1h | Table::Rtt1h | Table::Interface1h) => "1h",
        Some(Table::Interval1d | Table::Rtt1d) => "1d",
    };
    let to = UtcInstant::from_ns(to_ns);
    AnswerLevel {
        level: level.to_owned(),
        step_ms: step_ns / 1_000_000,
        from: UtcInstant::from_ns(from_ns),
        to,
        final_to: to.min(final_to),
    }
}

/// The quantiles that these statistics need of the store.
pub(super) fn quantiles_of(metrics: &[ReadingMetric]) -> Vec<f64> {
    let inner =
        |metric: &&ReadingMetric| !matches!(metric, ReadingMetric::Min | ReadingMetric::Max);
    metrics.iter().filter(inner).filter_map(|metric| metric.quantile()).collect()
}

/// A statistic of a summary whose quantiles are those of [`quantiles_of`].
pub(super) fn datum(summary: &Summary, metric: ReadingMetric, quantiles: &[f64]) -> Datum<f64> {
    if summary.intervals == 0 {
        return Datum::NoData("nothing was measured in this time".to_owned());
    }
    let caveats = caveats_of(summary);
    let count = |n: u64| Datum::Value { value: n as f64, n: summary.sent, caveats };
    let side = |n: Option<u64>| match n {
        Some(n) => count(n),
        None if summary.lost == 0 => count(0),
        None => Datum::NoData("losses cannot be told apart by side".to_owned()),
    };
    let delay = |value: Option<f64>| match value {
        Some(value) => Datum::Value { value, n: summary.n, caveats },
        None => Datum::NoData("no samples".to_owned()),
    };
    match metric {
        ReadingMetric::Min => delay(summary.min_ns.map(|ns| ns as f64)),
        ReadingMetric::Max => delay(summary.max_ns.map(|ns| ns as f64)),
        ReadingMetric::Mean => delay(summary.mean_ns),
        ReadingMetric::LossRatio if summary.sent == 0 => {
            Datum::NoData("nothing was sent".to_owned())
        }
        ReadingMetric::LossRatio => Datum::Value {
            value: summary.lost as f64 / summary.sent as f64,
            n: summary.sent,
            caveats,
        },
        ReadingMetric::Sent => count(summary.sent),
        ReadingMetric::Lost => count(summary.lost),
        ReadingMetric::LostForward => side(summary.lost_forward),
        ReadingMetric::LostBackward => side(summary.lost_backward),
        ReadingMetric::LostUnknown => count(summary.lost_unknown),
        ReadingMetric::Duplicated => count(summary.duplicated),
        ReadingMetric::Reordered => count(summary.reordered),
        ReadingMetric::ErroredSeconds => {
            Datum::NotMeasured("errored seconds are those of a whole range: see overview".into())
        }
        quantile => {
            let q = quantile.quantile().unwrap_or_default();
            let place = quantiles.iter().position(|other| *other == q);
            let value = place.and_then(|place| *summary.quantiles_ns.get(place)?);
            match summary.held {
                0 if summary.n > 0 => {
                    Datum::NoData("of this delay no distribution is kept here".to_owned())
                }
                held => Datum::of_quantile(value, held, q, caveats),
            }
        }
    }
}

fn caveats_of(summary: &Summary) -> CaveatSet {
    let mut set = CaveatSet::default();
    summary.caveats.iter().for_each(|(caveat, _)| set.insert(*caveat));
    set
}

/// What stands in a window without an interval.
pub(super) fn absent(window_end: UtcInstant, final_to: UtcInstant) -> Datum<f64> {
    match window_end > final_to {
        true => Datum::Pending("answers may still come".to_owned()),
        false => Datum::NoData("nothing was measured in this time".to_owned()),
    }
}

/// Lengths of windows, seconds. Each is a multiple or a part of a roll-up's.
const STEPS: [i64; 17] =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400];

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from_s: i64, to_s: i64) -> QueryRange {
        QueryRange {
            from: UtcInstant::from_ms(from_s * 1_000),
            to: UtcInstant::from_ms(to_s * 1_000),
        }
    }

    #[test]
    fn a_range_has_no_more_windows_than_are_asked_for() {
        for (from, to) in [(7, 8), (7, 907), (100, 3_700), (1, 90_001), (5, 31_536_005)] {
            for points in [1, 2, 10, 300, 5_000] {
                let range = range(from, to);
                let step = step_for(range, points);
                let wide = widened(range, step);
                let windows = (wide.to_ns - wide.from_ns) / step;
                assert!(windows <= i64::from(points.max(2)), "{from}..{to} {points}: {windows}");
                assert!(wide.from_ns <= range.from.ns() && wide.to_ns >= range.to.ns());
            }
        }
        assert_eq!(step_for(range(0, 900), 600), 2_000_000_000);
    }

    #[test]
    fn long_ranges_are_whole_windows_of_a_roll_up() {
        let of = |from, to| {
            let TimeRange { from_ns, to_ns } = aligned(range(from, to));
            (from_ns / 1_000_000_000, to_ns / 1_000_000_000)
        };
        assert_eq!(of(7, 130), (7, 130));
        assert_eq!(of(7, 3_601), (0, 3_660));
        assert_eq!(of(7, 86_401), (0, 90_000));
    }
}
