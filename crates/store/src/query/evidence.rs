//! What all series and flows did at an event, and in the same time before it: for an explanation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::summary::summary_columns;
use super::{
    Delay, EventList, EventRow, FlowDimension, Run, Scan, Summary, TimeRange, Top, TopRow,
};
use crate::error::StoreError;
use crate::event::EventId;
use crate::interval::IntervalSum;
use crate::series::{SeriesFilter, SeriesId};

/// Asks for what was measured at an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// The event.
    pub event: EventId,
    /// Until when, where it lasts, ns since 1970 UTC.
    pub now_ns: i64,
    /// Compared with so much time before it, ns.
    pub before_ns: i64,
    /// Of these series and exporters.
    pub filter: SeriesFilter,
    /// Which delay.
    pub delay: Delay,
    /// Which of its quantiles, 0..=1.
    pub quantiles: Vec<f64>,
    /// What flows have in common; empty: no flows.
    pub flows_by: Vec<FlowDimension>,
    /// So many flows.
    pub most_flows: usize,
}

impl Default for Evidence {
    fn default() -> Self {
        Evidence {
            event: EventId(0),
            now_ns: 0,
            before_ns: crate::HOUR_NS,
            filter: SeriesFilter::default(),
            delay: Delay::default(),
            quantiles: vec![0.5, 0.99],
            flows_by: vec![FlowDimension::SourceNet, FlowDimension::DestinationNet],
            most_flows: 20,
        }
    }
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvidenceTable {
    /// The time of the event, ns since 1970 UTC.
    pub during: TimeRange,
    /// The time before.
    pub before: TimeRange,
    /// Each series with a row in one of both.
    pub series: Vec<EvidenceRow>,
    /// The largest flows of the event, most growth in bytes a second first.
    pub flows: Vec<EvidenceFlow>,
    /// What else happened in both times.
    pub events: Vec<EventRow>,
}

/// A series then and before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvidenceRow {
    /// Which series.
    pub series: SeriesId,
    /// At the event.
    pub during: Summary,
    /// Before it.
    pub before: Summary,
}

/// Flows with values in common, then and before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvidenceFlow {
    /// At the event.
    pub during: TopRow,
    /// Before it; nothing where there was none.
    pub before: TopRow,
}

impl Evidence {
    pub(super) fn answer(&self, run: &mut Run) -> Result<EvidenceTable, StoreError> {
        let Some(event) = run.source.event(self.event)? else {
            let what = format!("there is no event {}", self.event.0);
            return Err(StoreError::Query { what, help: "list the events first" });
        };
        let end = event.end_ns.unwrap_or(self.now_ns).max(event.begin_ns + 1);
        let during = TimeRange { from_ns: event.begin_ns, to_ns: end };
        let before = TimeRange {
            from_ns: event.begin_ns.saturating_sub(self.before_ns.max(1)),
            to_ns: event.begin_ns,
        };
        let flows = self.flows(run, during, before)?;
        // The full rate, if it is still there: an event begins at any instant.
        let whole =
            run.plan(self.delay, TimeRange { from_ns: before.from_ns, to_ns: during.to_ns }, 0)?;
        let columns = summary_columns(self.delay);
        let scan = Scan {
            from_ns: whole.from_ns,
            to_ns: whole.to_ns,
            series: Some(run.select(&self.filter).iter().map(|s| s.id.0).collect()),
            columns: &columns,
        };
        let mut sums: BTreeMap<u32, [IntervalSum; 2]> = BTreeMap::new();
        run.intervals(&scan, |row| {
            let place = usize::from(row.start_ns >= event.begin_ns);
            sums.entry(row.series.0).or_default()[place].add(row);
            Ok(())
        })?;
        run.check_answer(sums.len())?;
        let summary = |sum| Summary::new(sum, self.delay, &self.quantiles);
        let series = sums.iter().map(|(&series, [before, during])| EvidenceRow {
            series: SeriesId(series),
            during: summary(during),
            before: summary(before),
        });
        let series = series.collect();
        let range = TimeRange { from_ns: before.from_ns, to_ns: during.to_ns };
        let saved = run.range;
        let mut events = EventList { range, ..EventList::default() }.answer(run)?;
        run.range = saved;
        events.retain(|row| row.id != self.event);
        Ok(EvidenceTable { during, before, series, flows, events })
    }

    fn flows(
        &self,
        run: &mut Run,
        during: TimeRange,
        before: TimeRange,
    ) -> Result<Vec<EvidenceFlow>, StoreError> {
        if self.flows_by.is_empty() {
            return Ok(Vec::new());
        }
        let top = |run: &mut Run, range| {
            let (filter, by) = (self.filter.clone(), self.flows_by.clone());
            let most = usize::MAX;
            Top { range, filter, by, most, ..Top::default() }.answer(run)
        };
        let then: BTreeMap<Vec<String>, TopRow> =
            top(run, before)?.rows.into_iter().map(|row| (row.values.clone(), row)).collect();
        let mut flows: Vec<EvidenceFlow> = top(run, during)?
            .rows
            .into_iter()
            .map(|during| {
                let before = then.get(&during.values).cloned().unwrap_or_default();
                EvidenceFlow { during, before }
            })
            .collect();
        let rate = |row: &TopRow, range: TimeRange| {
            (row.bytes + row.reverse_bytes) as f64 / (range.to_ns - range.from_ns) as f64
        };
        flows.sort_by(|a, b| {
            let growth = |f: &EvidenceFlow| rate(&f.during, during) - rate(&f.before, before);
            growth(b).total_cmp(&growth(a))
        });
        flows.truncate(self.most_flows);
        Ok(flows)
    }
}
