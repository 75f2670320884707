//! What is usual: the same hour of the four weeks before.
//!
//! It is the median of the weeks, so that one bad week among them does not become the measure.
//! Each week's value comes from all samples of its hour; a percentile is known to the bucket in
//! which it lies. Hours are those of UTC: where the clocks are changed, "the same hour" is another
//! one of the local day for four weeks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::{Hist, Interval};

use super::objective::{Objective, ObjectiveMetric};
use super::share::{WHOLE, percent_parts};
use super::tally::{delays, loss_bounds, offset_unknown, variations};
use super::window::{DAY, SECOND, TimeRange};

/// The usual value of an hour, in the unit of the metric's limit: it lies between both ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usual {
    /// The least that it can be.
    pub low: f64,
    /// The greatest that it can be.
    pub high: f64,
    /// Weeks on which it stands (2 to 4).
    pub weeks: u32,
    /// Samples on which it stands.
    pub samples: u64,
}

/// The same hour as that of `at_ns` in the four weeks before, the last one first.
pub fn same_hours(at_ns: i64) -> [TimeRange; WEEKS] {
    let start = hour_of(at_ns);
    [1, 2, 3, 4].map(|week| TimeRange {
        start_ns: start - week * 7 * DAY,
        end_ns: start - week * 7 * DAY + HOUR,
    })
}

/// Begin of the hour of UTC in which `at_ns` lies.
pub(super) fn hour_of(at_ns: i64) -> i64 {
    at_ns.div_euclid(HOUR) * HOUR
}

impl Usual {
    /// The usual of `objective` by the records of [`same_hours`], each merged over its hour. Weeks
    /// without a record, or with fewer samples than the objective needs, are left out. `None` below
    /// [`LEAST_WEEKS`].
    pub fn of(objective: &Objective, hours: &[Option<&Interval>]) -> Option<Usual> {
        let values = hours.iter().flatten().filter_map(|hour| value(objective, hour));
        let known: Vec<_> = values.filter(|v| v.2 >= objective.least_samples()).collect();
        if known.len() < LEAST_WEEKS {
            return None;
        }
        let median = |values: Vec<f64>| sonde_results::stats::median(&values);
        Some(Usual {
            low: median(known.iter().map(|v| v.0).collect())?,
            high: median(known.iter().map(|v| v.1).collect())?,
            weeks: known.len() as u32,
            samples: known.iter().map(|v| v.2).sum(),
        })
    }
}

/// Least and greatest value of an hour, and its samples.
fn value(objective: &Objective, hour: &Interval) -> Option<(f64, f64, u64)> {
    let direction = objective.direction;
    let hist = delays(hour, direction);
    match objective.metric {
        ObjectiveMetric::DelayPercentile { percent, .. } if !offset_unknown(hour, direction) => {
            let (low, high) = percentile_bounds(hist, percent, false)?;
            Some((low as f64, high as f64, hist.count))
        }
        ObjectiveMetric::DelayMean { .. } if !offset_unknown(hour, direction) => {
            let mean = hist.mean()?;
            Some((mean, mean, hist.count))
        }
        ObjectiveMetric::PdvPercentile { percent, .. } => {
            let ((low, high), least) = (percentile_bounds(hist, percent, false)?, hist.min()?);
            Some(((low - least) as f64, (high - least) as f64, hist.count))
        }
        ObjectiveMetric::IpdvPercentile { percent, .. } => {
            let hist = variations(hour, direction)?;
            let (low, high) = percentile_bounds(hist, percent, true)?;
            Some((low as f64, high as f64, hist.count))
        }
        ObjectiveMetric::LossRatio { .. } => {
            let loss = loss_bounds(&hour.counters, direction)?;
            let ratio = |lost: u64, of: u64| if of == 0 { 0.0 } else { lost as f64 / of as f64 };
            let (low, high) =
                (ratio(loss.lost_low, loss.base_low), ratio(loss.lost_high, loss.base_high));
            Some((low, high, loss.base_high))
        }
        _ => None,
    }
}

/// Between which values the percentile lies: the ends of the bucket of its rank, within minimum and
/// maximum. `None` when empty, or where the histogram lacks values.
fn percentile_bounds(hist: &Hist, percent: f64, absolute: bool) -> Option<(i64, i64)> {
    let mut buckets: Vec<(i64, i64, u64)> = super::tally::ranges(hist, absolute).collect();
    buckets.sort_unstable();
    let held: u64 = buckets.iter().map(|b| b.2).sum();
    if held == 0 || held != hist.count {
        return None;
    }
    let rank = (percent_parts(percent) * i128::from(held) + WHOLE - 1) / WHOLE;
    let mut seen = 0;
    let reaches = |&&(_, _, n): &&(i64, i64, u64)| {
        seen += i128::from(n);
        seen >= rank.max(1)
    };
    buckets.iter().find(reaches).map(|&(low, high, _)| (low, high))
}

/// Weeks that are looked at.
pub const WEEKS: usize = 4;
/// Fewest weeks that make something usual.
pub const LEAST_WEEKS: usize = 2;
/// An hour, ns.
const HOUR: i64 = 3_600 * SECOND;
