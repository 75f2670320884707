//! What happened, as the store has it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sonde_api::events::{
    AcknowledgeOrder, EventAcknowledgement, EventDetail, EventEntry, EventExplanation, EventGrade,
    Events, EventsQuery, VerdictEvidence,
};
use sonde_api::instant::UtcInstant;
use sonde_api::page::{ListPage, PageRequest};
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_api::request::ChangeContext;
use sonde_results::sla;
use sonde_store::query::{EventList, EventRow, TimeRange};
use sonde_store::{Answer, EventId, EventSeverity, Query, SeriesLabels, StoredEvent};

use super::alerts::is_about;
use super::{StationBackend, of_store, other_answer};
use crate::alert::alerting::AlertInput;
use crate::alert::silence::Acknowledgement;
use crate::explain::thread::FIELD;
use crate::runner::Station;

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
        self.detail_of(&row)
    }

    fn acknowledge(
        &self,
        id: &str,
        order: &AcknowledgeOrder,
        change: &ChangeContext<'_>,
    ) -> Result<EventDetail, ProblemDetails> {
        let by = EventAcknowledgement {
            by: change.caller.name.clone(),
            at: change.now,
            note: order.note.clone(),
        };
        self.note_acknowledgement(id, Some(by))
    }

    fn unacknowledge(&self, id: &str, _: &ChangeContext<'_>) -> Result<(), ProblemDetails> {
        self.note_acknowledgement(id, None).map(drop)
    }

    fn explain(&self, id: &str) -> Result<EventExplanation, ProblemDetails> {
        self.explanation(id)
    }
}

impl StationBackend {
    /// Keeps in the store who takes care of an event, and tells alerts of it: they are not
    /// repeated from then on.
    fn note_acknowledgement(
        &self,
        id: &str,
        by: Option<EventAcknowledgement>,
    ) -> Result<EventDetail, ProblemDetails> {
        let missing = || ProblemDetails::not_found("event", id);
        let number: u64 = id.parse().map_err(|_| missing())?;
        if by.is_some() {
            self.lasts(number, missing)?;
        }
        let value = by.as_ref().map(|a| json!({"by": a.by, "at_ns": a.at.ns(), "note": a.note}));
        let noted = self.core.station(|s| s.note_event(EventId(number), ACKNOWLEDGED, value));
        let noted = noted.ok_or_else(super::ending)?.map_err(|error| of_store(&error))?;
        let Some(event) = noted else {
            // One that is there is another station's, in the same ClickHouse.
            self.event(id)?;
            let why = "another station keeps this event; ask that one's API";
            return Err(ProblemDetails::new(ProblemKind::Conflict, why));
        };
        let row = EventRow { id: EventId(number), event };
        let labels = self.alert_of(&row.event);
        let order = labels.map(|labels| match &by {
            None => AlertInput::Unacknowledge(labels),
            Some(by) => {
                let (author, at_ns) = (by.by.clone(), by.at.ns());
                let by = Acknowledgement { author, at_ns, comment: by.note.clone() };
                AlertInput::Acknowledge(labels, by)
            }
        });
        let told = order.and_then(|order| self.core.station(|s| s.change_alerts(order)).flatten());
        told.unwrap_or(Ok(())).map_err(super::unsaved)?;
        self.detail_of(&row)
    }

    /// Refuses to take care of what does not last: no alert of it is repeated.
    fn lasts(
        &self,
        number: u64,
        missing: impl FnOnce() -> ProblemDetails,
    ) -> Result<(), ProblemDetails> {
        let rows = self.event_rows(TimeRange { from_ns: i64::MIN, to_ns: i64::MAX })?;
        let row = rows.into_iter().find(|row| row.id.0 == number).ok_or_else(missing)?;
        // The event of a unit that fails has an end; what is wrong with the unit lasts.
        let judge = self.core.station(Station::judge).ok_or_else(super::ending)?;
        let lasts = row.event.end_ns.is_none()
            || judge.open.iter().any(|trouble| is_about(&row.event, &trouble.labels))
            || self.alert_of(&row.event).is_some();
        if lasts {
            return Ok(());
        }
        let why = "it does not last, so that nobody is told of it again; 'sonde events --open' \
                   lists what does";
        Err(ProblemDetails::new(ProblemKind::Conflict, why))
    }

    fn detail_of(&self, row: &EventRow) -> Result<EventDetail, ProblemDetails> {
        let window = row.event.evidence.get("window").cloned();
        let window: Option<sla::Evidence> = window.and_then(|w| serde_json::from_value(w).ok());
        Ok(EventDetail {
            event: entry_of(row, &self.labels()?),
            evidence: window.iter().map(VerdictEvidence::from).collect(),
            deliveries: self.deliveries_of(&row.event),
            details: details_of(&row.event.evidence),
        })
    }

    pub(super) fn event_rows(&self, range: TimeRange) -> Result<Vec<EventRow>, ProblemDetails> {
        let ask = Query::Events(EventList { range, ..EventList::default() });
        match self.query(&ask)?.answer {
            Answer::Events(rows) => Ok(rows),
            _ => Err(other_answer()),
        }
    }

    pub(super) fn labels(&self) -> Result<BTreeMap<u32, SeriesLabels>, ProblemDetails> {
        let all = self.core.reader.series().map_err(|error| of_store(&error))?;
        Ok(all.into_iter().map(|series| (series.id.0, series.labels)).collect())
    }
}

pub(super) fn entry_of(row: &EventRow, labels: &BTreeMap<u32, SeriesLabels>) -> EventEntry {
    let EventRow { id, event } = row;
    let of_series = event.series.and_then(|series| labels.get(&series.0));
    let of_evidence = |name: &str| event.evidence.get(name)?.as_str().map(str::to_owned);
    let label = |name: &str| event.evidence.get("labels")?.get(name)?.as_str().map(str::to_owned);
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
            .or_else(|| label("target"))
            .or_else(|| label("unit"))
            .or_else(|| of_evidence("unit"))
            .unwrap_or_default(),
        objective: label("objective").or_else(|| of_evidence("objective")),
        title: event.title.clone(),
        begin: UtcInstant::from_ns(event.begin_ns),
        known: UtcInstant::from_ns(event.begin_ns),
        end: event.end_ns.map(UtcInstant::from_ns),
        last_good: None,
        series: series_of(event),
        acknowledged: event.evidence.get(ACKNOWLEDGED).map(|by| EventAcknowledgement {
            by: by["by"].as_str().unwrap_or_default().to_owned(),
            at: UtcInstant::from_ns(by["at_ns"].as_i64().unwrap_or_default()),
            note: by["note"].as_str().unwrap_or_default().to_owned(),
        }),
        doubtful: event.evidence.get("doubtful").and_then(Value::as_bool).unwrap_or(false),
    }
}

/// The series that an event is about: the one, or those of its evidence.
fn series_of(event: &StoredEvent) -> Vec<u32> {
    let more = event.evidence.get("series").and_then(Value::as_array);
    let more = more.into_iter().flatten().filter_map(|id| u32::try_from(id.as_u64()?).ok());
    event.series.map(|series| series.0).into_iter().chain(more).collect()
}

fn details_of(evidence: &Value) -> BTreeMap<String, String> {
    let fields = evidence.as_object().into_iter().flatten();
    // It has a resource of its own.
    let fields = fields.filter(|(name, _)| *name != FIELD);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields = fields.filter(|(name, _)| !["window", ACKNOWLEDGED].contains(&name.as_str()));
    fields.map(|(name, value)| (name.clone(), text(value))).collect()
}

/// The field of an event's evidence that says who takes care of it.
pub(super) const ACKNOWLEDGED: &str = "acknowledged";
