//! Series, states, points, bands and heat maps.

use std::collections::BTreeMap;

use sonde_api::datum::{DatumColumn, DatumState};
use sonde_api::instant::UtcInstant;
use sonde_api::page::{ListPage, PageRequest};
use sonde_api::problem::ProblemDetails;
use sonde_api::readings::{
    BandTable, BandsQuery, DelayChoice, HeatQuery, HeatTable, OverviewQuery, OverviewTable,
    PointTable, PointsQuery, ReadingMetric, ReadingState, Readings, SeriesChoice, SeriesEntry,
    SeriesPointTable, StateTable,
};
use sonde_store::query::{
    Bands, Delay, Heat, HeatMap, PointColumns, SeriesPoints, Summary, TimeRange,
};
use sonde_store::{Answer, Query, Series, SeriesFilter, SeriesId};

use super::windows::{absent, datum, level_of, quantiles_of, step_for, widened};
use super::{StationBackend, filter_of, of_store, other_answer};
use crate::live::{SeriesNow, count_states};
use crate::service::utc_now;

impl Readings for StationBackend {
    fn series(
        &self,
        filter: &SeriesChoice,
        page: &PageRequest,
    ) -> Result<ListPage<SeriesEntry>, ProblemDetails> {
        let entries = self.all_series()?.into_iter().map(|series| entry_of(&series));
        page.cut(entries.filter(|entry| filter.has(entry)), |entry| entry.id)
    }

    fn overview(
        &self,
        ask: &OverviewQuery,
        page: &PageRequest,
    ) -> Result<OverviewTable, ProblemDetails> {
        self.overview_table(ask, page)
    }

    fn states(&self, filter: &SeriesChoice, now: UtcInstant) -> Result<StateTable, ProblemDetails> {
        let filter = filter_of(filter);
        let states = self.core.live_state().series_states(now);
        let mut all: Vec<(Series, SeriesNow)> = self
            .all_series()?
            .into_iter()
            .filter(|series| filter.matches(series))
            .filter_map(|series| Some((states.get(&series.id.0).copied()?, series)))
            .map(|(now, series)| (series, now))
            .collect();
        all.sort_by(|(a, _), (b, _)| (&a.labels, a.id).cmp(&(&b.labels, b.id)));
        let doubtful = all.iter().enumerate().filter(|(_, (_, now))| now.doubtful);
        Ok(StateTable {
            at: now,
            counts: count_states(all.iter().map(|(_, now)| *now)),
            series: all.iter().map(|(series, _)| series.id.0).collect(),
            states: all.iter().map(|(_, now)| now.state).collect(),
            doubtful: doubtful.map(|(place, _)| place as u32).collect(),
        })
    }

    fn points(&self, ask: &PointsQuery) -> Result<PointTable, ProblemDetails> {
        let known = self.all_series()?;
        if let Some(id) = ask.ids.iter().find(|id| !known.iter().any(|s| s.id.0 == **id)) {
            return Err(ProblemDetails::not_found("series", &id.to_string()));
        }
        let step_ns = step_for(ask.range, ask.points);
        let quantiles = quantiles_of(&ask.metrics);
        let points = SeriesPoints {
            range: widened(ask.range, step_ns),
            step_ns,
            filter: SeriesFilter::of(ask.ids.iter().map(|&id| SeriesId(id))),
            delay: delay_of(ask.delay),
            quantiles: quantiles.clone(),
        };
        let response = self.query(&Query::Series(points))?;
        let final_to = self.final_to(utc_now());
        let windows = Windows::of(response.range, step_ns, final_to);
        let computed = level_of(&response, step_ns, final_to);
        let Answer::Series(tables) = response.answer else { return Err(other_answer()) };
        let mut tables: BTreeMap<u32, PointColumns> =
            tables.into_iter().map(|table| (table.series.0, table.points)).collect();
        let series = ask.ids.iter().map(|&id| SeriesPointTable {
            id,
            columns: windows.columns(
                &tables.remove(&id).unwrap_or_default(),
                &ask.metrics,
                &quantiles,
            ),
        });
        Ok(PointTable { computed, series: series.collect(), at_ms: windows.at_ms() })
    }

    fn bands(&self, ask: &BandsQuery) -> Result<BandTable, ProblemDetails> {
        let step_ns = step_for(ask.range, ask.points);
        let (filter, quantiles) = (filter_of(&ask.choice), quantiles_of(&BANDS));
        let members = self.all_series()?.iter().filter(|series| filter.matches(series)).count();
        let bands = Bands {
            range: widened(ask.range, step_ns),
            step_ns,
            filter,
            delay: delay_of(ask.delay),
            quantiles: quantiles.clone(),
        };
        let response = self.query(&Query::Bands(bands))?;
        let final_to = self.final_to(utc_now());
        let windows = Windows::of(response.range, step_ns, final_to);
        let computed = level_of(&response, step_ns, final_to);
        let Answer::Bands(points) = response.answer else { return Err(other_answer()) };
        Ok(BandTable {
            computed,
            members: members as u64,
            at_ms: windows.at_ms(),
            quantiles: windows.columns(&points, &BANDS, &quantiles),
            loss: windows.columns(&points, &LOSS, &[]),
            usual: None,
        })
    }

    fn heat(&self, ask: &HeatQuery) -> Result<HeatTable, ProblemDetails> {
        let step_ns = step_for(ask.range, ask.columns);
        let heat = Heat {
            range: widened(ask.range, step_ns),
            step_ns,
            filter: filter_of(&ask.choice),
            delay: delay_of(ask.delay),
            rows_per_octave: ask.rows_per_octave,
        };
        let response = self.query(&Query::Heat(heat))?;
        let final_to = self.final_to(utc_now());
        let windows = Windows::of(response.range, step_ns, final_to);
        let computed = level_of(&response, step_ns, final_to);
        let Answer::Heat(map) = response.answer else { return Err(other_answer()) };
        let HeatMap { rows_ns, cells, lost, without_bucket, .. } = map;
        let columns = windows.ends.len();
        let (mut column_n, mut column_lost) = (vec![0; columns], vec![0; columns]);
        for &(column, _, n) in &cells {
            column_n[column as usize] += n;
        }
        for (column, n) in lost {
            column_lost[column as usize] += n;
        }
        let states = (0..columns).map(|column| match column_n[column] + column_lost[column] {
            0 => absent(windows.ends[column], final_to).state(),
            _ => DatumState::Value,
        });
        Ok(HeatTable {
            computed,
            at_ms: windows.at_ms(),
            states: states.collect(),
            row_low_ns: rows_ns.iter().map(|&(low, _)| low).collect(),
            row_high_ns: rows_ns.iter().map(|&(_, high)| high).collect(),
            cell_column: cells.iter().map(|&(column, _, _)| column).collect(),
            cell_row: cells.iter().map(|&(_, row, _)| row).collect(),
            cell_count: cells.iter().map(|&(_, _, n)| n).collect(),
            column_n,
            column_lost,
            without_bucket,
        })
    }
}

impl StationBackend {
    pub(super) fn all_series(&self) -> Result<Vec<Series>, ProblemDetails> {
        self.core.reader.series().map_err(|error| of_store(&error))
    }
}

/// The windows of an answer.
struct Windows {
    range: TimeRange,
    step_ns: i64,
    ends: Vec<UtcInstant>,
    final_to: UtcInstant,
}

impl Windows {
    fn of(range: TimeRange, step_ns: i64, final_to: UtcInstant) -> Windows {
        let count = (range.to_ns - range.from_ns + step_ns - 1) / step_ns;
        let end = |i: i64| UtcInstant::from_ns(range.from_ns + (i + 1) * step_ns);
        Windows { range, step_ns, ends: (0..count).map(end).collect(), final_to }
    }

    fn at_ms(&self) -> Vec<i64> {
        self.ends.iter().map(|end| end.later(-self.step_ns).ms()).collect()
    }

    /// A column for each statistic, with a datum for each window.
    fn columns(
        &self,
        points: &PointColumns,
        metrics: &[ReadingMetric],
        quantiles: &[f64],
    ) -> Vec<DatumColumn> {
        let mut places: Vec<Option<&Summary>> = vec![None; self.ends.len()];
        for (start_ns, summary) in points.start_ns.iter().zip(&points.points) {
            let place = (start_ns - self.range.from_ns) / self.step_ns;
            if let Some(place) = usize::try_from(place).ok().and_then(|i| places.get_mut(i)) {
                *place = Some(summary);
            }
        }
        let column = |&metric: &ReadingMetric| {
            let mut column = DatumColumn::new(metric.name(), metric.unit());
            for (summary, end) in places.iter().zip(&self.ends) {
                column.push(summary.map_or_else(
                    || absent(*end, self.final_to),
                    |summary| datum(summary, metric, quantiles),
                ));
            }
            column
        };
        metrics.iter().map(column).collect()
    }
}

pub(super) fn entry_of(series: &Series) -> SeriesEntry {
    let labels = &series.labels;
    let names = ["station", "site", "target", "class", "module", "direction"];
    let ports =
        [("source_port", labels.source_port), ("destination_port", labels.destination_port)];
    let ports = ports.into_iter().filter(|(_, port)| *port != 0).map(|(name, _)| name);
    let named = names.into_iter().chain(ports).filter_map(|name| {
        let value = labels.get(name).filter(|value| !value.is_empty())?;
        Some((name.to_owned(), value))
    });
    let measures = labels.module == "stamp";
    SeriesEntry {
        id: series.id.0,
        labels: named.chain(labels.free.clone()).collect(),
        unit: labels.free.get("unit").unwrap_or(&labels.target).clone(),
        metrics: if measures { METRICS.to_vec() } else { Vec::new() },
        clocks_known: None,
    }
}

pub(super) fn delay_of(choice: DelayChoice) -> Delay {
    match choice {
        DelayChoice::RttNet => Delay::RttNet,
        DelayChoice::Rtt => Delay::Rtt,
        DelayChoice::Forward => Delay::Forward,
        DelayChoice::Backward => Delay::Backward,
        DelayChoice::IpdvForward => Delay::IpdvForward,
        DelayChoice::IpdvBackward => Delay::IpdvBackward,
    }
}

/// Of a series without an instrument that measures it now.
pub(super) const UNMEASURED: SeriesNow = SeriesNow { state: ReadingState::NoData, doubtful: false };
const BANDS: [ReadingMetric; 8] = [
    ReadingMetric::Min,
    ReadingMetric::P10,
    ReadingMetric::P25,
    ReadingMetric::P50,
    ReadingMetric::P75,
    ReadingMetric::P90,
    ReadingMetric::P99,
    ReadingMetric::Max,
];
const LOSS: [ReadingMetric; 4] = [
    ReadingMetric::Sent,
    ReadingMetric::LostForward,
    ReadingMetric::LostBackward,
    ReadingMetric::LostUnknown,
];
/// Of a series of probes.
const METRICS: [ReadingMetric; 19] = [
    ReadingMetric::Min,
    ReadingMetric::Mean,
    ReadingMetric::P10,
    ReadingMetric::P25,
    ReadingMetric::P50,
    ReadingMetric::P75,
    ReadingMetric::P90,
    ReadingMetric::P99,
    ReadingMetric::P999,
    ReadingMetric::Max,
    ReadingMetric::LossRatio,
    ReadingMetric::Sent,
    ReadingMetric::Lost,
    ReadingMetric::LostForward,
    ReadingMetric::LostBackward,
    ReadingMetric::LostUnknown,
    ReadingMetric::Duplicated,
    ReadingMetric::Reordered,
    ReadingMetric::ErroredSeconds,
];
