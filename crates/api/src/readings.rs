//! What was measured: series and their labels, an overview of all, points over time, bands of
//! quantiles, heat maps. All by columns.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Asked;
use crate::datum::{DatumColumn, DatumState, ReadingUnit};
use crate::instant::{GivenInstant, QueryRange, UtcInstant};
use crate::page::{ListPage, PageRequest};
use crate::problem::{ProblemDetails, ProblemKind};
use crate::route::{ApiRoute, RouteHead, list_params};

/// What answers questions about readings.
pub trait Readings {
    /// Series and their labels, in ascending order of their ids.
    fn series(
        &self,
        filter: &SeriesChoice,
        page: &PageRequest,
    ) -> Result<ListPage<SeriesEntry>, ProblemDetails>;

    /// A row for each group of series, in the order that was asked for.
    fn overview(
        &self,
        ask: &OverviewQuery,
        page: &PageRequest,
    ) -> Result<OverviewTable, ProblemDetails>;

    /// The state of every series: what the picture of all of them is made of.
    fn states(&self, filter: &SeriesChoice, now: UtcInstant) -> Result<StateTable, ProblemDetails>;

    /// Points over time of each series.
    fn points(&self, ask: &PointsQuery) -> Result<PointTable, ProblemDetails>;

    /// Points over time of all series together, a column a quantile.
    fn bands(&self, ask: &BandsQuery) -> Result<BandTable, ProblemDetails>;

    /// How many values in which bucket over time, of all series together.
    fn heat(&self, ask: &HeatQuery) -> Result<HeatTable, ProblemDetails>;
}

/// A series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SeriesEntry {
    /// Its id: it stays the same for as long as the store lasts.
    pub id: u32,
    /// What it is known by: `station`, `site`, `target`, `class`, `module`, `direction`, ports, and
    /// the user's own labels.
    pub labels: BTreeMap<String, String>,
    /// The unit that measures it.
    pub unit: String,
    /// What can be asked of it.
    pub metrics: Vec<ReadingMetric>,
    /// Whether one-way delays can be believed: both clocks are known. `None`: it has none.
    pub clocks_known: Option<bool>,
}

/// Which series a question is about: all that meet each of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesChoice {
    /// Only these; empty: any.
    pub ids: Vec<u32>,
    /// Label and value, each of which must be equal.
    pub labels: BTreeMap<String, String>,
}

/// Which delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DelayChoice {
    /// The round trip without the reflector's dwell.
    #[default]
    RttNet,
    /// The round trip with it.
    Rtt,
    /// One way, to the reflector.
    Forward,
    /// One way, back from it.
    Backward,
    /// Its variation between adjacent probes on the way there (RFC 3393).
    IpdvForward,
    /// The same on the way back.
    IpdvBackward,
}

/// A statistic of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadingMetric {
    /// The least delay.
    Min,
    /// Mean delay.
    Mean,
    /// 10th percentile of the delay.
    P10,
    /// 25th percentile.
    P25,
    /// Median.
    P50,
    /// 75th percentile.
    P75,
    /// 90th percentile.
    P90,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    P999,
    /// The greatest delay.
    Max,
    /// Share of the probes that were lost, there or back.
    LossRatio,
    /// Probes that were sent.
    Sent,
    /// Probes that were lost.
    Lost,
    /// Of those, on the way there.
    LostForward,
    /// Of those, on the way back.
    LostBackward,
    /// Of those, with no known side.
    LostUnknown,
    /// Further replies.
    Duplicated,
    /// Replies that were overtaken.
    Reordered,
    /// Seconds with an error.
    ErroredSeconds,
}

/// The state of a series or group, the worst first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ReadingState {
    /// Unavailable.
    Down,
    /// An objective is breached.
    Breach,
    /// Worse than usual, or near an objective's bound.
    Degraded,
    /// Nothing came that was due.
    NoData,
    /// As it should be.
    Ok,
    /// In maintenance: left out.
    Excluded,
}

/// How many series are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateCounts {
    /// Unavailable.
    pub down: u64,
    /// With a breached objective.
    pub breach: u64,
    /// Worse than usual.
    pub degraded: u64,
    /// Without the data that were due.
    pub no_data: u64,
    /// As they should be.
    pub ok: u64,
    /// In maintenance.
    pub excluded: u64,
    /// Of all these, doubtful.
    pub doubtful: u64,
}

/// How finely an answer was computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AnswerLevel {
    /// The roll-up whose rows were added up: `raw`, `1m`, `1h`, `1d`.
    pub level: String,
    /// Length of its windows, ms.
    pub step_ms: i64,
    /// Begin of the time that the answer is of.
    pub from: UtcInstant,
    /// End of it.
    pub to: UtcInstant,
    /// Up to here no later data can change it.
    pub final_to: UtcInstant,
}

/// A page of groups.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OverviewTable {
    /// How finely it was computed.
    pub computed: AnswerLevel,
    /// How many series are in which state, of all groups.
    pub counts: StateCounts,
    /// Names of the labels by which series are grouped.
    pub by: Vec<String>,
    /// For each row the values of those labels.
    pub groups: Vec<Vec<String>>,
    /// For each row its only series; null where it has several.
    pub series: Vec<Option<u32>>,
    /// For each row how many series it has.
    pub members: Vec<u64>,
    /// For each row its worst state.
    pub states: Vec<ReadingState>,
    /// A column a statistic, as asked for.
    pub columns: Vec<DatumColumn>,
    /// Cursor of the next page; absent: this is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The state of every series.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StateTable {
    /// Of this instant.
    pub at: UtcInstant,
    /// How many are in which state.
    pub counts: StateCounts,
    /// Ids of the series, grouped as their labels are.
    pub series: Vec<u32>,
    /// The state of each.
    pub states: Vec<ReadingState>,
    /// Positions in `series` of those that are doubtful.
    pub doubtful: Vec<u32>,
}

/// Points of several series.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PointTable {
    /// How finely it was computed.
    pub computed: AnswerLevel,
    /// Begin of each point's window, ms since 1970 UTC. Windows without data are there, too.
    pub at_ms: Vec<i64>,
    /// For each series its columns.
    pub series: Vec<SeriesPointTable>,
}

/// The points of a series.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SeriesPointTable {
    /// Its id.
    pub id: u32,
    /// A column a statistic, each as long as `at_ms`.
    pub columns: Vec<DatumColumn>,
}

/// Points of all series together.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BandTable {
    /// How finely it was computed.
    pub computed: AnswerLevel,
    /// Series in it.
    pub members: u64,
    /// Begin of each point's window, ms since 1970 UTC.
    pub at_ms: Vec<i64>,
    /// A column a quantile: min, p10, p25, p50, p75, p90, p99, max.
    pub quantiles: Vec<DatumColumn>,
    /// Probes sent and lost: `sent`, `lost_forward`, `lost_backward`, `lost_unknown`.
    pub loss: Vec<DatumColumn>,
    /// The same quantiles at the same hour of the four weeks before; absent: not asked for, or not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual: Option<Vec<DatumColumn>>,
}

/// A heat map: only cells that hold something.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HeatTable {
    /// How finely it was computed.
    pub computed: AnswerLevel,
    /// Begin of each column's window, ms since 1970 UTC.
    pub at_ms: Vec<i64>,
    /// For each column its state: a value of 0 cells is a value.
    pub states: Vec<DatumState>,
    /// Lower bound of each row, ns, ascending.
    pub row_low_ns: Vec<i64>,
    /// Upper bound of each row, ns (inclusive).
    pub row_high_ns: Vec<i64>,
    /// For each cell an index of `at_ms`.
    pub cell_column: Vec<u32>,
    /// For each cell an index of the rows.
    pub cell_row: Vec<u32>,
    /// For each cell how many values it holds.
    pub cell_count: Vec<u64>,
    /// For each column how many values it holds.
    pub column_n: Vec<u64>,
    /// For each column how many probes were lost in it.
    pub column_lost: Vec<u64>,
    /// Values that have no bucket, of which the map says nothing.
    pub without_bucket: u64,
}

/// The newest interval of a series, for the stream.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LiveReading {
    /// Its series.
    pub id: u32,
    /// Begin of the interval.
    pub from: UtcInstant,
    /// End of the interval.
    pub to: UtcInstant,
    /// A column a statistic, with one datum.
    pub columns: Vec<DatumColumn>,
}

/// How an overview is sorted. Ties are in the order of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverviewSort {
    /// The worst state first, then errored seconds, then the ratio to the usual.
    #[default]
    Worst,
    /// By the values of the labels.
    Name,
    /// The greatest of the first metric first.
    Metric,
}

/// A question for an overview.
#[derive(Clone, Debug, PartialEq)]
pub struct OverviewQuery {
    /// Of this time.
    pub range: QueryRange,
    /// Of these series.
    pub choice: SeriesChoice,
    /// Only rows in these states; empty: all.
    pub states: Vec<ReadingState>,
    /// Series that agree in these labels are one row; empty: each is one.
    pub by: Vec<String>,
    /// Which delay.
    pub delay: DelayChoice,
    /// Which statistics, each once.
    pub metrics: Vec<ReadingMetric>,
    /// In which order.
    pub sort: OverviewSort,
}

/// A question for points.
#[derive(Clone, Debug, PartialEq)]
pub struct PointsQuery {
    /// Of this time.
    pub range: QueryRange,
    /// Of these series: 1 to [`SERIES_MAX`].
    pub ids: Vec<u32>,
    /// Which delay.
    pub delay: DelayChoice,
    /// Which statistics, each once.
    pub metrics: Vec<ReadingMetric>,
    /// Points, at most: 1 to [`POINTS_MAX`].
    pub points: u32,
}

/// A question for bands.
#[derive(Clone, Debug, PartialEq)]
pub struct BandsQuery {
    /// Of this time.
    pub range: QueryRange,
    /// Of these series.
    pub choice: SeriesChoice,
    /// Which delay.
    pub delay: DelayChoice,
    /// Points, at most: 1 to [`POINTS_MAX`].
    pub points: u32,
    /// Whether the usual is wanted, too.
    pub usual: bool,
}

/// A question for a heat map.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatQuery {
    /// Of this time.
    pub range: QueryRange,
    /// Of these series.
    pub choice: SeriesChoice,
    /// Which delay.
    pub delay: DelayChoice,
    /// Columns, at most: 1 to [`POINTS_MAX`].
    pub columns: u32,
    /// Rows for each power of two: 1, 2, 4, 8, 16 or 32.
    pub rows_per_octave: u32,
}

/// Parameters of the list of series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeriesParams {
    /// Only these ids.
    #[serde(default)]
    pub ids: Vec<u32>,
    /// Only series with these labels: `site=BER,class=EF`.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Items of a page, 1 to 1,000; absent: 100.
    pub limit: Option<u32>,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

/// Parameters of the states of all series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatesParams {
    /// Only these ids.
    #[serde(default)]
    pub ids: Vec<u32>,
    /// Only series with these labels: `site=BER,class=EF`.
    #[serde(default)]
    pub labels: Vec<String>,
}

/// Parameters of the overview.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverviewParams {
    /// Begin; absent: an hour before the end.
    pub from: Option<GivenInstant>,
    /// End; absent: now.
    pub to: Option<GivenInstant>,
    /// Only series with these labels: `site=BER,class=EF`.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Only rows in these states.
    #[serde(default)]
    pub state: Vec<ReadingState>,
    /// Labels by which series are grouped: `site,class`. Absent: each series is a row.
    #[serde(default)]
    pub by: Vec<String>,
    /// Which delay the statistics are of; absent: `rtt_net`.
    #[serde(default)]
    pub delay: DelayChoice,
    /// Statistics; absent: p50, p99, loss_ratio and errored_seconds.
    #[serde(default)]
    pub metrics: Vec<ReadingMetric>,
    /// The order of rows.
    #[serde(default)]
    pub sort: OverviewSort,
    /// Items of a page, 1 to 1,000; absent: 100.
    pub limit: Option<u32>,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

/// Parameters of points.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PointsParams {
    /// Ids of 1 to 64 series.
    pub ids: Vec<u32>,
    /// Begin; absent: an hour before the end.
    pub from: Option<GivenInstant>,
    /// End; absent: now.
    pub to: Option<GivenInstant>,
    /// Which delay the statistics are of; absent: `rtt_net`.
    #[serde(default)]
    pub delay: DelayChoice,
    /// Statistics; absent: p50, p99 and loss_ratio.
    #[serde(default)]
    pub metrics: Vec<ReadingMetric>,
    /// Points, 1 to 5,000: the pixels of the panel. Absent: 600.
    pub points: Option<u32>,
}

/// Parameters of bands.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BandsParams {
    /// Only these ids.
    #[serde(default)]
    pub ids: Vec<u32>,
    /// Only series with these labels: `site=BER,class=EF`.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Begin; absent: an hour before the end.
    pub from: Option<GivenInstant>,
    /// End; absent: now.
    pub to: Option<GivenInstant>,
    /// Which delay; absent: `rtt_net`.
    #[serde(default)]
    pub delay: DelayChoice,
    /// Points, 1 to 5,000; absent: 600.
    pub points: Option<u32>,
    /// Whether the usual of the same hour in the four weeks before is wanted, too.
    #[serde(default)]
    pub usual: bool,
}

/// Parameters of a heat map.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeatParams {
    /// Only these ids.
    #[serde(default)]
    pub ids: Vec<u32>,
    /// Only series with these labels: `site=BER,class=EF`.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Begin; absent: an hour before the end.
    pub from: Option<GivenInstant>,
    /// End; absent: now.
    pub to: Option<GivenInstant>,
    /// Which delay; absent: `rtt_net`.
    #[serde(default)]
    pub delay: DelayChoice,
    /// Columns, 1 to 5,000; absent: 300.
    pub columns: Option<u32>,
    /// Rows for each power of two: 1, 2, 4, 8, 16 or 32; absent: 8.
    pub rows_per_octave: Option<u32>,
}

impl ReadingMetric {
    /// Its name, as in a query.
    pub fn name(self) -> &'static str {
        match self {
            ReadingMetric::Min => "min",
            ReadingMetric::Mean => "mean",
            ReadingMetric::P10 => "p10",
            ReadingMetric::P25 => "p25",
            ReadingMetric::P50 => "p50",
            ReadingMetric::P75 => "p75",
            ReadingMetric::P90 => "p90",
            ReadingMetric::P99 => "p99",
            ReadingMetric::P999 => "p999",
            ReadingMetric::Max => "max",
            ReadingMetric::LossRatio => "loss_ratio",
            ReadingMetric::Sent => "sent",
            ReadingMetric::Lost => "lost",
            ReadingMetric::LostForward => "lost_forward",
            ReadingMetric::LostBackward => "lost_backward",
            ReadingMetric::LostUnknown => "lost_unknown",
            ReadingMetric::Duplicated => "duplicated",
            ReadingMetric::Reordered => "reordered",
            ReadingMetric::ErroredSeconds => "errored_seconds",
        }
    }

    /// The quantile that it is, 0..=1; `None`: it is none.
    pub fn quantile(self) -> Option<f64> {
        Some(match self {
            ReadingMetric::Min => 0.0,
            ReadingMetric::P10 => 0.1,
            ReadingMetric::P25 => 0.25,
            ReadingMetric::P50 => 0.5,
            ReadingMetric::P75 => 0.75,
            ReadingMetric::P90 => 0.9,
            ReadingMetric::P99 => 0.99,
            ReadingMetric::P999 => 0.999,
            ReadingMetric::Max => 1.0,
            _ => return None,
        })
    }

    /// Its unit.
    pub fn unit(self) -> ReadingUnit {
        match self {
            ReadingMetric::LossRatio => ReadingUnit::Ratio,
            ReadingMetric::ErroredSeconds => ReadingUnit::S,
            ReadingMetric::Mean => ReadingUnit::Ns,
            quantile if quantile.quantile().is_some() => ReadingUnit::Ns,
            _ => ReadingUnit::Count,
        }
    }
}

impl SeriesChoice {
    /// Of the parameters `ids` and `labels`.
    ///
    /// # Errors
    /// 400: a label that is no `name=value`, or one that is there twice.
    pub fn of(ids: &[u32], labels: &[String]) -> Result<SeriesChoice, ProblemDetails> {
        let wrong =
            |why: String| Err(ProblemDetails::of_parameter(ProblemKind::Malformed, "labels", why));
        let mut choice = SeriesChoice { ids: ids.to_vec(), labels: BTreeMap::new() };
        for label in labels {
            let Some((name, value)) = label.split_once('=').filter(|(name, _)| !name.is_empty())
            else {
                return wrong(format!("'{label}' is no label; write name=value"));
            };
            if choice.labels.insert(name.to_owned(), value.to_owned()).is_some() {
                return wrong(format!("'{name}' is there twice; a series has one value of it"));
            }
        }
        Ok(choice)
    }

    /// Whether a series is one of them.
    pub fn has(&self, series: &SeriesEntry) -> bool {
        (self.ids.is_empty() || self.ids.contains(&series.id))
            && self.labels.iter().all(|(name, value)| series.labels.get(name) == Some(value))
    }
}

list_params!(SeriesParams, OverviewParams);

/// A count that has a range.
///
/// # Errors
/// 422: it is out of the range.
fn ranged(name: &str, given: Option<u32>, default: u32, max: u32) -> Result<u32, ProblemDetails> {
    let value = given.unwrap_or(default);
    if (1..=max).contains(&value) {
        return Ok(value);
    }
    let why = format!("{value} is out of range; it is 1 to {max}");
    Err(ProblemDetails::of_parameter(ProblemKind::Unprocessable, name, why))
}

/// The metrics that are asked for, each once.
fn metrics_or(given: &[ReadingMetric], usual: &[ReadingMetric]) -> Vec<ReadingMetric> {
    let all = if given.is_empty() { usual } else { given };
    let mut once: Vec<ReadingMetric> = Vec::new();
    for &metric in all {
        if !once.contains(&metric) {
            once.push(metric);
        }
    }
    once
}

fn overview_query(asked: &Asked<'_, OverviewParams>) -> Result<OverviewQuery, ProblemDetails> {
    use ReadingMetric::{ErroredSeconds, LossRatio, P50, P99};
    let params = &asked.params;
    Ok(OverviewQuery {
        range: asked.range(params.from, params.to)?,
        choice: SeriesChoice::of(&[], &params.labels)?,
        states: params.state.clone(),
        by: params.by.clone(),
        delay: params.delay,
        metrics: metrics_or(&params.metrics, &[P50, P99, LossRatio, ErroredSeconds]),
        sort: params.sort,
    })
}

fn points_query(asked: &Asked<'_, PointsParams>) -> Result<PointsQuery, ProblemDetails> {
    use ReadingMetric::{LossRatio, P50, P99};
    let params = &asked.params;
    if !(1..=SERIES_MAX).contains(&params.ids.len()) {
        let why = format!("has {}; ask for 1 to {SERIES_MAX} series", params.ids.len());
        return Err(ProblemDetails::of_parameter(ProblemKind::Unprocessable, "ids", why));
    }
    Ok(PointsQuery {
        range: asked.range(params.from, params.to)?,
        ids: params.ids.clone(),
        delay: params.delay,
        metrics: metrics_or(&params.metrics, &[P50, P99, LossRatio]),
        points: ranged("points", params.points, POINTS_DEFAULT, POINTS_MAX)?,
    })
}

fn bands_query(asked: &Asked<'_, BandsParams>) -> Result<BandsQuery, ProblemDetails> {
    let params = &asked.params;
    Ok(BandsQuery {
        range: asked.range(params.from, params.to)?,
        choice: SeriesChoice::of(&params.ids, &params.labels)?,
        delay: params.delay,
        points: ranged("points", params.points, POINTS_DEFAULT, POINTS_MAX)?,
        usual: params.usual,
    })
}

fn heat_query(asked: &Asked<'_, HeatParams>) -> Result<HeatQuery, ProblemDetails> {
    let params = &asked.params;
    let rows = params.rows_per_octave.unwrap_or(8);
    if !rows.is_power_of_two() || rows > 32 {
        let why = format!("{rows} is not possible; ask for 1, 2, 4, 8, 16 or 32");
        let kind = ProblemKind::Unprocessable;
        return Err(ProblemDetails::of_parameter(kind, "rows_per_octave", why));
    }
    Ok(HeatQuery {
        range: asked.range(params.from, params.to)?,
        choice: SeriesChoice::of(&params.ids, &params.labels)?,
        delay: params.delay,
        columns: ranged("columns", params.columns, 300, POINTS_MAX)?,
        rows_per_octave: rows,
    })
}

pub(crate) fn routes() -> Vec<ApiRoute> {
    let head = |path, operation, summary| RouteHead { path, operation, summary };
    vec![
        ApiRoute::list(
            head("/sonde/v1/series", "list_series", "Series and their labels, by id"),
            |backend, asked: &Asked<'_, SeriesParams>, page| {
                let choice = SeriesChoice::of(&asked.params.ids, &asked.params.labels)?;
                Ok(backend.series(&choice, page)?.into())
            },
        ),
        ApiRoute::table(
            head("/sonde/v1/overview", "overview", "A row for each group of series, worst first"),
            |backend, asked: &Asked<'_, OverviewParams>, page| {
                let table = backend.overview(&overview_query(asked)?, page)?;
                let next = table.next.clone();
                Ok((table, next))
            },
        ),
        ApiRoute::get(
            head("/sonde/v1/states", "series_states", "The state of every series, in one picture"),
            |backend, asked: &Asked<'_, StatesParams>| {
                let choice = SeriesChoice::of(&asked.params.ids, &asked.params.labels)?;
                Ok(backend.states(&choice, asked.now)?.into())
            },
        ),
        ApiRoute::get(
            head(
                "/sonde/v1/points",
                "series_points",
                "Points over time of each series, by columns",
            ),
            |backend, asked| Ok(backend.points(&points_query(asked)?)?.into()),
        )
        .may_miss(),
        ApiRoute::get(
            head("/sonde/v1/bands", "bands", "Quantiles over time of all series together"),
            |backend, asked| Ok(backend.bands(&bands_query(asked)?)?.into()),
        ),
        ApiRoute::get(
            head("/sonde/v1/heat", "heat_map", "How many values in which bucket, over time"),
            |backend, asked| Ok(backend.heat(&heat_query(asked)?)?.into()),
        ),
    ]
}

/// Series of one question for points, at most.
pub const SERIES_MAX: usize = 64;
/// Points of an answer, at most.
pub const POINTS_MAX: u32 = 5_000;
/// Points of an answer where the client does not say.
const POINTS_DEFAULT: u32 = 600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_chosen_by_labels_that_are_equal() {
        let choice = SeriesChoice::of(&[1, 2], &["site=BER".into(), "note=a=b".into()]).unwrap();
        let labels = |site: &str| {
            BTreeMap::from([("site".into(), site.into()), ("note".into(), "a=b".into())])
        };
        let series = |id, site: &str| SeriesEntry {
            id,
            labels: labels(site),
            unit: "probe.core".into(),
            metrics: Vec::new(),
            clocks_known: None,
        };
        assert!(choice.has(&series(2, "BER")));
        assert!(!choice.has(&series(3, "BER")) && !choice.has(&series(1, "MUC")));
        for wrong in [["site"].as_slice(), &["=x"], &["a=1", "a=2"]] {
            let wrong: Vec<String> = wrong.iter().map(|w| (*w).into()).collect();
            assert_eq!(SeriesChoice::of(&[], &wrong).unwrap_err().status, 400, "{wrong:?}");
        }
    }

    #[test]
    fn names_of_metrics_are_those_of_a_query_and_quantiles_are_delays() {
        for metric in [ReadingMetric::P999, ReadingMetric::LossRatio, ReadingMetric::Mean] {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
        }
        assert_eq!(ReadingMetric::Max.unit(), ReadingUnit::Ns);
        assert_eq!(ReadingMetric::LostForward.unit(), ReadingUnit::Count);
        let twice = metrics_or(&[ReadingMetric::Max, ReadingMetric::Max], &[]);
        assert_eq!(twice, [ReadingMetric::Max]);
    }
}
