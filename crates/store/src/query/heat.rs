//! How many values in which bucket, over time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sonde_results::hist::{SUB_BUCKETS, bounds_of};

use super::{Delay, Run, Scan, TimeRange};
use crate::error::StoreError;
use crate::interval::IntervalSum;
use crate::series::SeriesFilter;

/// Asks for a heat map of all series together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heat {
    /// Of this time.
    pub range: TimeRange,
    /// A column for each so many ns from the begin of the range on.
    pub step_ns: i64,
    /// Of these series.
    pub filter: SeriesFilter,
    /// Which delay.
    pub delay: Delay,
    /// Rows for each power of two: 1, 2, 4, 8, 16 or 32.
    pub rows_per_octave: u32,
}

impl Default for Heat {
    fn default() -> Self {
        Heat {
            range: TimeRange::default(),
            step_ns: 0,
            filter: SeriesFilter::default(),
            delay: Delay::default(),
            rows_per_octave: 8,
        }
    }
}

/// A heat map: only cells that hold something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeatMap {
    /// Begin of the first column, ns since 1970 UTC.
    pub start_ns: i64,
    /// Length of a column, ns.
    pub step_ns: i64,
    /// Bounds of each row that a cell is in, ns (both inclusive), ascending.
    pub rows_ns: Vec<(i64, i64)>,
    /// Column, row (an index of `rows_ns`) and count of each cell, in this order.
    pub cells: Vec<(u32, u32, u64)>,
    /// Column and probes lost in it; only columns with loss.
    pub lost: Vec<(u32, u64)>,
    /// Values that have no bucket, of which a map says nothing.
    pub without_bucket: u64,
}

impl Heat {
    pub(super) fn answer(&self, run: &mut Run) -> Result<HeatMap, StoreError> {
        let rows = self.rows_per_octave;
        if !rows.is_power_of_two() || rows > SUB_BUCKETS as u32 {
            let what = format!("{rows} rows for each power of two are not possible");
            return Err(StoreError::Query { what, help: "ask for 1, 2, 4, 8, 16 or 32" });
        }
        let shift = (SUB_BUCKETS as u32 / rows).trailing_zeros();
        run.windows(self.range, self.step_ns)?;
        let range = run.plan(self.delay, self.range, self.step_ns)?;
        let scan = Scan {
            from_ns: range.from_ns,
            to_ns: range.to_ns,
            series: Some(run.select(&self.filter).iter().map(|s| s.id.0).collect()),
            columns: &["series", "group", "start", "intervals", "lost", self.delay.column()],
        };
        let mut sums: BTreeMap<u32, IntervalSum> = BTreeMap::new();
        run.intervals(&scan, |row| {
            let column = (row.start_ns - range.from_ns) / self.step_ns;
            sums.entry(column as u32).or_default().add(row);
            Ok(())
        })?;
        let mut map =
            HeatMap { start_ns: range.from_ns, step_ns: self.step_ns, ..HeatMap::default() };
        let mut cells: BTreeMap<(u32, i16), u64> = BTreeMap::new();
        for (&column, sum) in &sums {
            let hist = self.delay.of(sum);
            map.without_bucket += hist.head().count.saturating_sub(hist.held());
            for (bucket, n) in hist.buckets() {
                *cells.entry((column, coarse(bucket, shift))).or_default() += n;
            }
            if sum.counters().lost > 0 {
                map.lost.push((column, sum.counters().lost));
            }
        }
        run.check_answer(cells.len())?;
        let mut rows: Vec<i16> = cells.keys().map(|&(_, row)| row).collect();
        rows.sort_unstable();
        rows.dedup();
        map.rows_ns = rows.iter().map(|&row| bounds(row, shift)).collect();
        for ((column, row), n) in cells {
            let place = rows.binary_search(&row).unwrap_or_default();
            map.cells.push((column, place as u32, n));
        }
        Ok(map)
    }
}

/// The row of a bucket: 2^`shift` neighbours are one. Negative ones mirror the others.
fn coarse(bucket: i16, shift: u32) -> i16 {
    if bucket < 0 { !(!bucket >> shift) } else { bucket >> shift }
}

/// Least and greatest value of a row, ns.
fn bounds(row: i16, shift: u32) -> (i64, i64) {
    let of = |row: i16| {
        let first = row << shift;
        (first, first + (1 << shift) - 1)
    };
    if row < 0 {
        let (first, last) = of(!row);
        (bounds_of(!last).0, bounds_of(!first).1)
    } else {
        let (first, last) = of(row);
        (bounds_of(first).0, bounds_of(last).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sonde_results::hist::bucket_of;

    proptest! {
        #[test]
        fn a_value_lies_in_its_row(value in any::<i64>(), shift in 0u32..6) {
            let (low, high) = bounds(coarse(bucket_of(value), shift), shift);
            prop_assert!(low <= value && value <= high, "{low} {high}");
            // Of a power of two, or the values below 1,024 ns.
            prop_assert!(i128::from(high) - i128::from(low) <= i128::from(value.unsigned_abs().max(1_024)) * 2);
        }
    }
}
