//! Typed queries: what pages, reports, objectives and explanations ask. No dialect.
//!
//! Each query is a scan of rows and a sum. The plan picks the coarsest table whose windows fit the
//! range and the step, and the answer says which.

mod availability;
mod bad_samples;
mod events;
mod evidence;
mod flow_points;
mod flow_rates;
mod heat;
mod interfaces;
mod merged;
mod overview;
mod plan;
mod points;
mod rtt_top;
mod summary;
mod top;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use sonde_results::Interval;

pub use availability::{Availability, AvailabilityRow};
pub use bad_samples::{
    BadSampleKind, BadSampleRow, BadSampleTable, BadSampleWindow, BadSamples, DelayLimit,
};
pub use events::{EventList, EventRow};
pub use evidence::{Evidence, EvidenceFlow, EvidenceRow, EvidenceTable};
pub use flow_points::{FlowPointRank, FlowPointRow, FlowPointTable, FlowPoints};
pub use flow_rates::{FlowRate, FlowRatePoint, FlowRates};
pub use heat::{Heat, HeatMap};
pub use interfaces::{InterfaceSums, InterfaceTable};
pub use merged::Merged;
pub use overview::{Overview, OverviewRow};
pub use plan::TimeRange;
pub use points::{Bands, PointColumns, SeriesPoints, SeriesTable};
pub use rtt_top::{RttFigures, RttOrder, RttTop, RttTopRow, RttTopTable};
pub use summary::{Delay, Summary};
pub use top::{FlowDimension, FlowMeasure, Top, TopRow, TopTable};

use crate::column::StoredRow;
use crate::error::StoreError;
use crate::event::{EventId, StoredEvent};
use crate::flow::{FlowRow, FlowSum};
use crate::interface::InterfaceRow;
use crate::interval::IntervalRow;
use crate::rtt::RttRow;
use crate::series::Series;
use crate::table::Table;

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "query", rename_all = "snake_case")]
pub enum Query {
    /// A row for each series or group of series.
    Overview(Overview),
    /// Points over time of each series.
    Series(SeriesPoints),
    /// Points over time of all series together, with quantiles.
    Bands(Bands),
    /// How many values in which bucket, over time.
    Heat(Heat),
    /// The largest of flows.
    Top(Top),
    /// The groups of passive round trips that stand out.
    RttTop(RttTop),
    /// Time with and without loss, and without data.
    Availability(Availability),
    /// What happened.
    Events(EventList),
    /// What all series and flows did at an event, and before it.
    Evidence(Evidence),
    /// How many samples of each series count against an objective, over time.
    BadSamples(BadSamples),
    /// Which flows are faster than before.
    FlowRates(FlowRates),
    /// What interfaces counted.
    Interfaces(InterfaceSums),
    /// How the largest groups of flows went over time.
    FlowPoints(FlowPoints),
    /// All intervals of a range as one record.
    Merged(Merged),
}

/// What an answer may cost.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Rows that may be read.
    pub scanned_rows: u64,
    /// Rows, points or cells that an answer may have.
    pub answer_rows: u64,
    /// Octets that SQL may hold in memory, and that its answer may have.
    pub memory_octets: u64,
    /// An answer in SQL with more rows ends there, and is no error.
    pub cut: bool,
    /// Once it is true the query ends with an error: how a limit of time is kept.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for Limit {
    fn default() -> Self {
        Limit {
            scanned_rows: 100_000_000,
            answer_rows: 1_000_000,
            memory_octets: 256 << 20,
            cut: false,
            stop: None,
        }
    }
}

/// An answer, and what it is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// What was asked.
    pub answer: Answer,
    /// The table whose rows were added up; `None`: none.
    pub level: Option<Table>,
    /// The range that the answer is of, ns since 1970 UTC: that of the query, widened to whole
    /// windows where only a coarser table reaches back so far.
    pub range: TimeRange,
    /// The oldest row of that table, ns since 1970 UTC: before it nothing is known.
    pub oldest_ns: Option<i64>,
    /// Rows that were read.
    pub scanned_rows: u64,
    /// Segments that could not be read: their rows are missing in the answer.
    pub damaged_segments: u64,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", content = "rows", rename_all = "snake_case")]
pub enum Answer {
    /// Of [`Query::Overview`].
    Overview(Vec<OverviewRow>),
    /// Of [`Query::Series`].
    Series(Vec<SeriesTable>),
    /// Of [`Query::Bands`].
    Bands(PointColumns),
    /// Of [`Query::Heat`].
    Heat(HeatMap),
    /// Of [`Query::Top`].
    Top(TopTable),
    /// Of [`Query::RttTop`].
    RttTop(RttTopTable),
    /// Of [`Query::Availability`].
    Availability(Vec<AvailabilityRow>),
    /// Of [`Query::Events`].
    Events(Vec<EventRow>),
    /// Of [`Query::Evidence`].
    Evidence(EvidenceTable),
    /// Of [`Query::BadSamples`].
    BadSamples(BadSampleTable),
    /// Of [`Query::FlowRates`].
    FlowRates(Vec<FlowRatePoint>),
    /// Of [`Query::Interfaces`].
    Interfaces(Vec<InterfaceTable>),
    /// Of [`Query::FlowPoints`].
    FlowPoints(FlowPointTable),
    /// Of [`Query::Merged`]; `None`: there is no interval.
    Merged(Option<Box<Interval>>),
}

/// Takes rows, one after the other.
pub type RowSink<'a, R> = dyn FnMut(&R) -> Result<(), StoreError> + 'a;

/// Which rows are read.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    /// Times from (inclusive), ns since 1970 UTC.
    pub from_ns: i64,
    /// Times to (exclusive), ns since 1970 UTC.
    pub to_ns: i64,
    /// Only these series; `None`: all.
    pub series: Option<BTreeSet<u32>>,
    /// Only these columns are needed; empty: all. Others may have any value.
    pub columns: &'a [&'a str],
}

impl Scan<'_> {
    /// Whether a row is among them.
    pub fn holds<R: StoredRow>(&self, row: &R) -> bool {
        (self.from_ns..self.to_ns).contains(&row.time_ns())
            && self.series.as_ref().is_none_or(|set| set.contains(&row.series()))
    }
}

/// Where rows come from: a backend. Rows come in any order, each once.
pub trait Source {
    /// All series.
    fn series(&self) -> Vec<Series>;

    /// Interval rows as coarse as `level`, or finer where those are not rolled up yet.
    fn intervals(
        &self,
        level: Table,
        scan: &Scan,
        sink: &mut RowSink<IntervalRow>,
    ) -> Result<(), StoreError>;

    /// Flow records.
    fn flows(&self, scan: &Scan, sink: &mut RowSink<FlowRow>) -> Result<(), StoreError>;

    /// Sums of flows as coarse as `level`, or finer where those are not rolled up yet.
    fn flow_sums(
        &self,
        level: Table,
        scan: &Scan,
        sink: &mut RowSink<FlowSum>,
    ) -> Result<(), StoreError>;

    /// Groups of round trips as coarse as `level`, or finer where those are not rolled up yet.
    fn rtt(&self, level: Table, scan: &Scan, sink: &mut RowSink<RttRow>) -> Result<(), StoreError>;

    /// Counters of interfaces as coarse as `level`, or finer where those are not rolled up yet.
    fn interfaces(
        &self,
        level: Table,
        scan: &Scan,
        sink: &mut RowSink<InterfaceRow>,
    ) -> Result<(), StoreError>;

    /// The oldest row of a table, ns since 1970 UTC.
    fn oldest_ns(&self, table: Table) -> Option<i64>;

    /// Events that lasted at some time of a range, by their begin.
    fn events(&self, from_ns: i64, to_ns: i64) -> Result<Vec<(EventId, StoredEvent)>, StoreError>;

    /// The event of that number.
    fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError>;
}

/// Answers a query from a source.
pub fn answer(query: &Query, source: &dyn Source, limit: &Limit) -> Result<Response, StoreError> {
    let mut run = Run {
        source,
        limit,
        scanned: 0,
        level: None,
        range: TimeRange::default(),
        groups: BTreeSet::new(),
    };
    let answer = match query {
        Query::Overview(q) => Answer::Overview(q.answer(&mut run)?),
        Query::Series(q) => Answer::Series(q.answer(&mut run)?),
        Query::Bands(q) => Answer::Bands(q.answer(&mut run)?),
        Query::Heat(q) => Answer::Heat(q.answer(&mut run)?),
        Query::Top(q) => Answer::Top(q.answer(&mut run)?),
        Query::RttTop(q) => Answer::RttTop(q.answer(&mut run)?),
        Query::Availability(q) => Answer::Availability(q.answer(&mut run)?),
        Query::Events(q) => Answer::Events(q.answer(&mut run)?),
        Query::Evidence(q) => Answer::Evidence(q.answer(&mut run)?),
        Query::BadSamples(q) => Answer::BadSamples(q.answer(&mut run)?),
        Query::FlowRates(q) => Answer::FlowRates(q.answer(&mut run)?),
        Query::Interfaces(q) => Answer::Interfaces(q.answer(&mut run)?),
        Query::FlowPoints(q) => Answer::FlowPoints(q.answer(&mut run)?),
        Query::Merged(q) => Answer::Merged(q.answer(&mut run)?),
    };
    Ok(Response {
        answer,
        level: run.level,
        range: run.range,
        oldest_ns: run.level.and_then(|level| source.oldest_ns(level)),
        scanned_rows: run.scanned,
        damaged_segments: 0,
    })
}

/// A query that is being answered.
struct Run<'a> {
    source: &'a dyn Source,
    limit: &'a Limit,
    scanned: u64,
    level: Option<Table>,
    range: TimeRange,
    /// Of round trips only these groups; empty: all.
    groups: BTreeSet<String>,
}

impl Limit {
    /// Ends a query that has read `scanned` rows where a limit is reached.
    pub(crate) fn check_scanned(&self, scanned: u64) -> Result<(), StoreError> {
        if scanned > self.scanned_rows {
            return Err(StoreError::Limit { limit: self.scanned_rows, of: "rows" });
        }
        let look = scanned.is_multiple_of(4_096);
        if look && self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(StoreError::Stopped);
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Counts a row that is read.
    fn count(scanned: &mut u64, limit: &Limit) -> Result<(), StoreError> {
        *scanned += 1;
        limit.check_scanned(*scanned)
    }

    /// Reads groups of round trips of the level that was planned.
    fn rtt(
        &mut self,
        scan: &Scan,
        mut sink: impl FnMut(&RttRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Run { source, limit, scanned, level, groups, .. } = self;
        source.rtt(level.unwrap_or(Table::Rtt), scan, &mut |row| {
            Self::count(scanned, limit)?;
            match groups.is_empty() || groups.contains(&*row.group) {
                true => sink(row),
                false => Ok(()),
            }
        })
    }

    /// Reads interval rows of the level and the range that were planned; of round trips, their
    /// groups as such rows.
    fn intervals(
        &mut self,
        scan: &Scan,
        mut sink: impl FnMut(&IntervalRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if self.level.is_some_and(|level| level.raw() == Table::Rtt) {
            return self.rtt(scan, |row| sink(&row.to_interval()));
        }
        let Run { source, limit, scanned, level, .. } = self;
        let level = level.unwrap_or(Table::Interval);
        source.intervals(level, scan, &mut |row| {
            Self::count(scanned, limit)?;
            sink(row)
        })
    }

    /// Ends the query where the answer is too long.
    fn check_answer(&self, rows: usize) -> Result<(), StoreError> {
        match rows as u64 > self.limit.answer_rows {
            true => {
                Err(StoreError::Limit { limit: self.limit.answer_rows, of: "rows of the answer" })
            }
            false => Ok(()),
        }
    }
}
