//! A row for each series, or for each group of series with equal labels.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::summary::summary_columns;
use super::{Delay, Run, Scan, Summary, TimeRange};
use crate::error::StoreError;
use crate::interval::IntervalSum;
use crate::series::{SeriesFilter, SeriesId};

/// Asks for a row of each series or group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overview {
    /// Of this time.
    pub range: TimeRange,
    /// Of these series.
    pub filter: SeriesFilter,
    /// Series that agree in these labels are one row; empty: each series is one.
    pub by: Vec<String>,
    /// Which delay.
    pub delay: Delay,
    /// Which of its quantiles, 0..=1.
    pub quantiles: Vec<f64>,
}

/// A series or a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverviewRow {
    /// The series; `None`: a group.
    pub series: Option<SeriesId>,
    /// The values of the labels that were asked for. A series without one has "".
    pub group: Vec<String>,
    /// Series in it that have rows.
    pub members: u64,
    /// Series in it that have none: nothing was measured.
    pub silent: u64,
    /// Their sum.
    pub summary: Summary,
}

impl Overview {
    pub(super) fn answer(&self, run: &mut Run) -> Result<Vec<OverviewRow>, StoreError> {
        let range = run.plan(self.delay, self.range, 0)?;
        let selected = run.select_of(&self.filter, self.delay);
        // Of each series: the place of its row.
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        let mut groups: BTreeMap<(Vec<String>, Option<SeriesId>), Vec<u32>> = BTreeMap::new();
        for series in &selected {
            let label = |name: &String| series.labels.get(name).unwrap_or_default();
            let group: Vec<String> = self.by.iter().map(label).collect();
            let alone = self.by.is_empty().then_some(series.id);
            groups.entry((group, alone)).or_default().push(series.id.0);
        }
        run.check_answer(groups.len())?;
        for (place, members) in groups.values().enumerate() {
            places.extend(members.iter().map(|&id| (id, place)));
        }
        let mut sums = vec![IntervalSum::default(); groups.len()];
        let mut seen = std::collections::BTreeSet::new();
        let scan = Scan {
            from_ns: range.from_ns,
            to_ns: range.to_ns,
            series: Some(places.keys().copied().collect()),
            columns: &summary_columns(self.delay),
        };
        run.intervals(&scan, |row| {
            if let Some(&place) = places.get(&row.series.0) {
                seen.insert(row.series.0);
                sums[place].add(row);
            }
            Ok(())
        })?;
        let rows = groups.into_iter().zip(sums).map(|(((group, series), members), sum)| {
            let heard = members.iter().filter(|id| seen.contains(id)).count() as u64;
            OverviewRow {
                series,
                group,
                members: heard,
                silent: members.len() as u64 - heard,
                summary: Summary::new(&sum, self.delay, &self.quantiles),
            }
        });
        Ok(rows.collect())
    }
}
