//! What interfaces counted, over time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plan::pick;
use super::{Run, Scan, TimeRange};
use crate::error::StoreError;
use crate::interface::InterfaceRow;
use crate::series::{MODULE_INTERFACE, SeriesFilter, SeriesId};
use crate::table::Table;

/// Asks what interfaces counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceSums {
    /// Of this time: intervals that begin in it.
    pub range: TimeRange,
    /// Length of a window, ns; 0: the range is one.
    pub step_ns: i64,
    /// Of these interfaces.
    pub filter: SeriesFilter,
}

/// What one interface counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceTable {
    /// Which.
    pub series: SeriesId,
    /// A sum for each window in which an interval begins, by time. Its begin is the window's.
    pub sums: Vec<InterfaceRow>,
}

impl InterfaceSums {
    pub(super) fn answer(&self, run: &mut Run) -> Result<Vec<InterfaceTable>, StoreError> {
        let (level, range) = pick(run.source, Table::Interface, self.range, self.step_ns)?;
        (run.level, run.range) = (Some(level), range);
        let step_ns = match self.step_ns {
            0 => range.to_ns.saturating_sub(range.from_ns),
            step_ns => step_ns,
        };
        run.windows(range, step_ns)?;
        let mut selected = run.select(&self.filter);
        selected.retain(|series| series.labels.module == MODULE_INTERFACE);
        let scan = Scan {
            from_ns: range.from_ns,
            to_ns: range.to_ns,
            series: Some(selected.iter().map(|s| s.id.0).collect()),
            columns: &[],
        };
        let mut tables: BTreeMap<SeriesId, BTreeMap<i64, InterfaceRow>> = BTreeMap::new();
        let Run { source, limit, scanned, .. } = run;
        source.interfaces(level, &scan, &mut |row| {
            Run::count(scanned, limit)?;
            let start_ns = row.start_ns - (row.start_ns - range.from_ns).rem_euclid(step_ns);
            let first = || InterfaceRow { series: row.series, start_ns, ..InterfaceRow::default() };
            tables.entry(row.series).or_default().entry(start_ns).or_insert_with(first).add(row);
            Ok(())
        })?;
        run.check_answer(tables.values().map(BTreeMap::len).sum())?;
        let tables = tables
            .into_iter()
            .map(|(series, sums)| InterfaceTable { series, sums: sums.into_values().collect() });
        Ok(tables.collect())
    }
}
