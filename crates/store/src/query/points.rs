//! Points over time: of each series, or of all together with quantiles. By columns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::summary::summary_columns;
use super::{Delay, Run, Scan, Summary, TimeRange};
use crate::error::StoreError;
use crate::interval::IntervalSum;
use crate::series::{SeriesFilter, SeriesId};

/// Asks for the points of each series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeriesPoints {
    /// Of this time.
    pub range: TimeRange,
    /// A point for each so many ns from the begin of the range on.
    pub step_ns: i64,
    /// Of these series.
    pub filter: SeriesFilter,
    /// Which delay.
    pub delay: Delay,
    /// Which of its quantiles, 0..=1.
    pub quantiles: Vec<f64>,
}

/// The points of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesTable {
    /// Which series.
    pub series: SeriesId,
    /// Its points.
    pub points: PointColumns,
}

/// Asks for the points of all series together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bands {
    /// Of this time.
    pub range: TimeRange,
    /// A point for each so many ns from the begin of the range on.
    pub step_ns: i64,
    /// Of these series.
    pub filter: SeriesFilter,
    /// Which delay.
    pub delay: Delay,
    /// Which of its quantiles, 0..=1; empty: 0.1, 0.25, 0.5, 0.75, 0.9 and 0.99.
    pub quantiles: Vec<f64>,
}

/// Points by columns, all of one length. Only windows with an interval have a point: a gap is one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointColumns {
    /// Begin of each window, ns since 1970 UTC.
    pub start_ns: Vec<i64>,
    /// What was measured in it.
    pub points: Vec<Summary>,
}

impl SeriesPoints {
    pub(super) fn answer(&self, run: &mut Run) -> Result<Vec<SeriesTable>, StoreError> {
        let key = |series: SeriesId| series.0;
        let sums = sums(run, self.range, self.step_ns, &self.filter, self.delay, key)?;
        let mut tables: Vec<SeriesTable> = Vec::new();
        for ((series, start_ns), sum) in sums {
            let series = SeriesId(series);
            if tables.last().is_none_or(|t| t.series != series) {
                tables.push(SeriesTable { series, points: PointColumns::default() });
            }
            if let Some(table) = tables.last_mut() {
                table.points.start_ns.push(start_ns);
                table.points.points.push(Summary::new(&sum, self.delay, &self.quantiles));
            }
        }
        Ok(tables)
    }
}

impl Bands {
    pub(super) fn answer(&self, run: &mut Run) -> Result<PointColumns, StoreError> {
        let together = |_: SeriesId| 0;
        let sums = sums(run, self.range, self.step_ns, &self.filter, self.delay, together)?;
        let quantiles = if self.quantiles.is_empty() { &BANDS[..] } else { &self.quantiles };
        let mut points = PointColumns::default();
        for ((_, start_ns), sum) in sums {
            points.start_ns.push(start_ns);
            points.points.push(Summary::new(&sum, self.delay, quantiles));
        }
        Ok(points)
    }
}

/// A sum for each key and window, in this order.
fn sums(
    run: &mut Run,
    range: TimeRange,
    step_ns: i64,
    filter: &SeriesFilter,
    delay: Delay,
    key: impl Fn(SeriesId) -> u32,
) -> Result<BTreeMap<(u32, i64), IntervalSum>, StoreError> {
    run.windows(range, step_ns)?;
    let range = run.plan(delay, range, step_ns)?;
    let scan = Scan {
        from_ns: range.from_ns,
        to_ns: range.to_ns,
        series: Some(run.select(filter).iter().map(|s| s.id.0).collect()),
        columns: &summary_columns(delay),
    };
    let mut sums: BTreeMap<(u32, i64), IntervalSum> = BTreeMap::new();
    let most = run.limit.answer_rows;
    run.intervals(&scan, |row| {
        let start = row.start_ns - (row.start_ns - range.from_ns) % step_ns;
        sums.entry((key(row.series), start)).or_default().add(row);
        match sums.len() as u64 > most {
            true => Err(StoreError::Limit { limit: most, of: "points of the answer" }),
            false => Ok(()),
        }
    })?;
    Ok(sums)
}

const BANDS: [f64; 6] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99];
