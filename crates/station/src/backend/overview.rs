//! The overview: a row for each series or group, the worst first.

use std::collections::BTreeMap;

use sonde_api::datum::{Datum, DatumColumn};
use sonde_api::page::PageRequest;
use sonde_api::problem::ProblemDetails;
use sonde_api::readings::{
    OverviewQuery, OverviewSort, OverviewTable, ReadingMetric, ReadingState,
};
use sonde_store::query::{Availability, Overview, OverviewRow};
use sonde_store::{Answer, Query, SeriesLabels};

use super::readings::{UNMEASURED, delay_of};
use super::windows::{aligned, datum, level_of, quantiles_of};
use super::{StationBackend, filter_of, other_answer};
use crate::live::{SeriesNow, count_states};
use crate::service::utc_now;

/// A row, and by what it is sorted.
struct Row {
    row: OverviewRow,
    state: ReadingState,
    errored_ns: i64,
    key: RowKey,
}

/// In the order of rows: rank, then names. Of equal names the number of the series.
type RowKey = (u64, u64, Vec<String>, Option<u32>);

impl StationBackend {
    pub(super) fn overview_table(
        &self,
        ask: &OverviewQuery,
        page: &PageRequest,
    ) -> Result<OverviewTable, ProblemDetails> {
        let (now, range) = (utc_now(), aligned(ask.range));
        let (filter, quantiles) = (filter_of(&ask.choice), quantiles_of(&ask.metrics));
        let overview = Overview {
            range,
            filter: filter.clone(),
            by: ask.by.clone(),
            delay: delay_of(ask.delay),
            quantiles: quantiles.clone(),
        };
        let response = self.query(&Query::Overview(overview))?;
        let length = response.range.to_ns - response.range.from_ns;
        let computed = level_of(&response, length, self.final_to(now));
        let Answer::Overview(rows) = response.answer else { return Err(other_answer()) };
        let wants_errored =
            ask.sort == OverviewSort::Worst || ask.metrics.contains(&ReadingMetric::ErroredSeconds);
        let mut groups = Groups::default();
        let live = self.core.live_state().series_states(now);
        for series in self.all_series()?.iter().filter(|series| filter.matches(series)) {
            let now = live.get(&series.id.0).copied();
            groups.add(series.id.0, &series.labels, &ask.by, now);
        }
        if wants_errored {
            let times = Availability { range, filter };
            let Answer::Availability(times) = self.query(&Query::Availability(times))?.answer
            else {
                return Err(other_answer());
            };
            times.iter().for_each(|t| groups.add_errored(t.series.0, t.lossy_ns + t.down_ns));
        }
        let mut rows: Vec<Row> = rows
            .into_iter()
            .map(|row| groups.row(row, ask, &quantiles))
            .filter(|row| ask.states.is_empty() || ask.states.contains(&row.state))
            .collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        let rows = page.cut(rows, |row| row.key.clone())?;
        let columns = ask.metrics.iter().map(|&metric| {
            let mut column = DatumColumn::new(metric.name(), metric.unit());
            rows.items.iter().for_each(|row| column.push(row.datum(metric, &quantiles)));
            column
        });
        Ok(OverviewTable {
            computed,
            counts: count_states(groups.states),
            by: ask.by.clone(),
            columns: columns.collect(),
            groups: rows.items.iter().map(|row| row.row.group.clone()).collect(),
            series: rows.items.iter().map(|row| row.row.series.map(|id| id.0)).collect(),
            members: rows.items.iter().map(|row| row.row.members + row.row.silent).collect(),
            states: rows.items.iter().map(|row| row.state).collect(),
            next: rows.next,
        })
    }
}

/// What is known of the groups beside their sums.
#[derive(Default)]
struct Groups {
    /// Of each series: its group, and its names.
    of_series: BTreeMap<u32, (Vec<String>, Vec<String>)>,
    worst: BTreeMap<Vec<String>, ReadingState>,
    worst_of_series: BTreeMap<u32, ReadingState>,
    errored_ns: BTreeMap<Vec<String>, i64>,
    errored_of_series: BTreeMap<u32, i64>,
    /// Those that are measured now.
    states: Vec<SeriesNow>,
}

impl Groups {
    fn add(&mut self, id: u32, labels: &SeriesLabels, by: &[String], now: Option<SeriesNow>) {
        self.states.extend(now);
        let group: Vec<String> =
            by.iter().map(|name| labels.get(name).unwrap_or_default()).collect();
        let names = ["target", "class", "module"];
        let names = names.iter().filter_map(|name| labels.get(name)).collect();
        let state = now.unwrap_or(UNMEASURED).state;
        let worst = self.worst.entry(group.clone()).or_insert(state);
        *worst = state.min(*worst);
        self.worst_of_series.insert(id, state);
        self.of_series.insert(id, (group, names));
    }

    fn add_errored(&mut self, id: u32, ns: i64) {
        if let Some((group, _)) = self.of_series.get(&id) {
            *self.errored_ns.entry(group.clone()).or_default() += ns;
            self.errored_of_series.insert(id, ns);
        }
    }

    fn row(&self, row: OverviewRow, ask: &OverviewQuery, quantiles: &[f64]) -> Row {
        let id = row.series.map(|series| series.0);
        let state = match id {
            Some(id) => self.worst_of_series.get(&id),
            None => self.worst.get(&row.group),
        };
        let errored_ns = match id {
            Some(id) => self.errored_of_series.get(&id),
            None => self.errored_ns.get(&row.group),
        };
        let state = state.copied().unwrap_or(UNMEASURED.state);
        let errored_ns = errored_ns.copied().unwrap_or(0);
        let names = id.and_then(|id| Some(self.of_series.get(&id)?.1.clone()));
        let names = names.unwrap_or_else(|| row.group.clone());
        let rank = match ask.sort {
            OverviewSort::Worst => (state as u64, !errored_ns.unsigned_abs()),
            OverviewSort::Name => (0, 0),
            OverviewSort::Metric => {
                let first = ask.metrics.first().map(|&m| match m {
                    ReadingMetric::ErroredSeconds => errored_ns as f64,
                    metric => match datum(&row.summary, metric, quantiles) {
                        Datum::Value { value, .. } => value,
                        _ => f64::NEG_INFINITY,
                    },
                });
                (descending(first.unwrap_or(f64::NEG_INFINITY)), 0)
            }
        };
        Row { key: (rank.0, rank.1, names, id), row, state, errored_ns }
    }
}

impl Row {
    fn datum(&self, metric: ReadingMetric, quantiles: &[f64]) -> Datum<f64> {
        let datum = datum(&self.row.summary, metric, quantiles);
        match (metric, datum) {
            // Of an interval of which it is not known when in it a probe was lost, all counts.
            (ReadingMetric::ErroredSeconds, Datum::NotMeasured(_)) => {
                Datum::sure(self.errored_ns as f64 / 1e9, self.row.summary.intervals)
            }
            (_, datum) => datum,
        }
    }
}

/// Ascends where the value descends.
fn descending(value: f64) -> u64 {
    let bits = value.to_bits();
    let ascending = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_greater_comes_first_and_what_is_not_known_last() {
        let mut values = [0.0, -1.5, f64::NEG_INFINITY, 3.0, 1e12, 2.9];
        values.sort_by_key(|value| descending(*value));
        assert_eq!(values, [1e12, 3.0, 2.9, 0.0, -1.5, f64::NEG_INFINITY]);
    }
}
