//! Time with and without loss, and without data, of each series.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sonde_results::Caveat;

use super::{Delay, Run, Scan, TimeRange};
use crate::error::StoreError;
use crate::interval::IntervalSum;
use crate::series::{SeriesFilter, SeriesId};

/// Asks for the times of each series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Availability {
    /// Of this time.
    pub range: TimeRange,
    /// Of these series.
    pub filter: SeriesFilter,
}

/// The times of a series. Those of intervals add up to the range, unless intervals overlap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AvailabilityRow {
    /// Which series.
    pub series: SeriesId,
    /// Intervals that lost nothing, ns.
    pub clear_ns: i64,
    /// Intervals that lost some and got an answer, ns.
    pub lossy_ns: i64,
    /// Intervals that got no answer, ns.
    pub down_ns: i64,
    /// Intervals in which nothing was sent, ns: neither good nor bad.
    pub unsent_ns: i64,
    /// No interval at all, ns: neither good nor bad.
    pub unknown_ns: i64,
    /// Share of the range (0..=1) with an answer if all that is not known was down.
    pub least: f64,
    /// Share of the range with an answer if all that is not known was up.
    pub most: f64,
    /// Caveats, and of how many of the intervals each is true.
    pub caveats: Vec<(Caveat, u64)>,
    /// Intervals.
    pub intervals: u64,
}

impl Availability {
    pub(super) fn answer(&self, run: &mut Run) -> Result<Vec<AvailabilityRow>, StoreError> {
        let range = run.plan(Delay::RttNet, self.range, 0)?;
        let selected = run.select_of(&self.filter, Delay::RttNet);
        run.check_answer(selected.len())?;
        let mut sums: BTreeMap<u32, IntervalSum> =
            selected.iter().map(|s| (s.id.0, IntervalSum::default())).collect();
        let scan = Scan {
            from_ns: range.from_ns,
            to_ns: range.to_ns,
            series: Some(sums.keys().copied().collect()),
            columns: &[
                "series",
                "start",
                "length_ns",
                "intervals",
                "caveats",
                "caveat_counts",
                "clear_ns",
                "lossy_ns",
                "down_ns",
            ],
        };
        run.intervals(&scan, |row| {
            if let Some(sum) = sums.get_mut(&row.series.0) {
                sum.add(row);
            }
            Ok(())
        })?;
        let length = range.to_ns - range.from_ns;
        let rows = sums.into_iter().map(|(series, sum)| {
            let (clear_ns, lossy_ns, down_ns, all_ns) = sum.times_ns();
            let up = (clear_ns + lossy_ns) as f64;
            // Where intervals overlap, or reach beyond the range, the whole is what they last.
            let whole = length.max(all_ns) as f64;
            AvailabilityRow {
                series: SeriesId(series),
                clear_ns,
                lossy_ns,
                down_ns,
                unsent_ns: all_ns - clear_ns - lossy_ns - down_ns,
                unknown_ns: (length - all_ns).max(0),
                least: up / whole,
                most: (whole - down_ns as f64) / whole,
                caveats: sum.caveats(),
                intervals: sum.intervals(),
            }
        });
        Ok(rows.collect())
    }
}
