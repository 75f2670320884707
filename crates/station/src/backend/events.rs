//! What happened, as the store has it.

use std::collections::BTreeMap;

use serde_json::Value;
use sonde_api::events::{
    AcknowledgeOrder, EventDetail, EventEntry, EventExplanation, EventGrade, Events, EventsQuery,
};
use sonde_api::instant::UtcInstant;
use sonde_api::page::{ListPage, PageRequest};
use sonde_api::problem::ProblemDetails;
use sonde_api::request::ChangeContext;
use sonde_store::query::{EventList, EventRow, TimeRange};
use sonde_store::{Answer, EventSeverity, Query, SeriesLabels};

use super::{StationBackend, of_store, other_answer};

impl Events for StationBackend {
    fn events(
        &self,
        ask: &EventsQuery,
        page: &PageRequest,
    ) -> Result<ListPage<EventEntry>, ProblemDetails> {
        let range = TimeRange { from_ns: ask.range.from.ns(), to_ns: ask.range.to.ns() };
        let labels = self.labels()?;
        let rows = self.event_rows(range)?;
        let mut entries: Vec<(u64, EventEntry)> = rows
            .iter()
            .map(|row| (row.id.0, entry_of(row, &labels)))
            .filter(|(_, entry)| ask.wants(entry))
            .collect();
        // The newest first; of those that began together, what came last.
        let key = |(id, entry): &(u64, EventEntry)| (!entry.begin.ns(), !id);
        entries.sort_by_key(key);
        let ListPage { items, next } = page.cut(entries, key)?;
        Ok(ListPage { items: items.into_iter().map(|(_, entry)| entry).collect(), next })
    }

    fn event(&self, id: &str) -> Result<EventDetail, ProblemDetails> {
        let missing = || ProblemDetails::not_found("event", id);
        let number: u64 = id.parse().map_err(|_| missing())?;
        let rows = self.event_rows(TimeRange { from_ns: i64::MIN, to_ns: i64::MAX })?;
        let row = rows.into_iter().find(|row| row.id.0 == number).ok_or_else(missing)?;
        Ok(EventDetail {
            event: entry_of(&row, &self.labels()?),
            evidence: Vec::new(),
            deliveries: Vec::new(),
            details: details_of(&row.event.evidence),
        })
    }

    fn acknowledge(
        &self,
        _: &str,
        _: &AcknowledgeOrder,
        _: &ChangeContext<'_>,
    ) -> Result<EventDetail, ProblemDetails> {
        Err(ProblemDetails::not_offered("acknowledgement"))
    }

    fn explain(&self, _: &str) -> Result<EventExplanation, ProblemDetails> {
        Err(ProblemDetails::not_offered("explanations"))
    }
}

impl StationBackend {
    fn event_rows(&self, range: TimeRange) -> Result<Vec<EventRow>, ProblemDetails> {
        let ask = Query::Events(EventList { range, ..EventList::default() });
        match self.query(&ask)?.answer {
            Answer::Events(rows) => Ok(rows),
            _ => Err(other_answer()),
        }
    }

    fn labels(&self) -> Result<BTreeMap<u32, SeriesLabels>, ProblemDetails> {
        let all = self.core.reader.series().map_err(|error| of_store(&error))?;
        Ok(all.into_iter().map(|series| (series.id.0, series.labels)).collect())
    }
}

fn entry_of(row: &EventRow, labels: &BTreeMap<u32, SeriesLabels>) -> EventEntry {
    let EventRow { id, event } = row;
    let of_series = event.series.and_then(|series| labels.get(&series.0));
    let of_evidence = |name: &str| event.evidence.get(name)?.as_str().map(str::to_owned);
    EventEntry {
        id: id.0.to_string(),
        kind: event.kind.clone(),
        grade: match event.severity {
            EventSeverity::Info => EventGrade::Info,
            EventSeverity::Warning => EventGrade::Warning,
            EventSeverity::Critical => EventGrade::Critical,
        },
        subject: of_series
            .map(|labels| labels.target.clone())
            .or_else(|| of_evidence("subject"))
            .or_else(|| of_evidence("unit"))
            .unwrap_or_default(),
        objective: of_evidence("objective"),
        title: event.title.clone(),
        begin: UtcInstant::from_ns(event.begin_ns),
        known: UtcInstant::from_ns(event.begin_ns),
        end: event.end_ns.map(UtcInstant::from_ns),
        last_good: None,
        series: event.series.map(|series| series.0).into_iter().collect(),
        acknowledged: None,
        doubtful: event.evidence.get("doubtful").and_then(Value::as_bool).unwrap_or(false),
    }
}

fn details_of(evidence: &Value) -> BTreeMap<String, String> {
    let fields = evidence.as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    fields.map(|(name, value)| (name.clone(), text(value))).collect()
}
