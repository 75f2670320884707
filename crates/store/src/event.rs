//! Events: what happened, from when to when, to which series, with the evidence for it.

use serde::{Deserialize, Serialize};

use crate::series::SeriesId;

/// The number of an event in one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventId(pub u64);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// What: "breach", "route_change", "segment_damaged".
    pub kind: String,
    /// How grave.
    pub severity: EventSeverity,
    /// The series concerned, if it is one.
    pub series: Option<SeriesId>,
    /// When it began, ns since 1970 UTC.
    pub begin_ns: i64,
    /// When it ended; `None`: it lasts.
    pub end_ns: Option<i64>,
    /// One line for people.
    pub title: String,
    /// Numbers, n, interval, caveats: what it was concluded from.
    pub evidence: serde_json::Value,
}

/// How grave an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventSeverity {
    /// Good to know.
    Info,
    /// Worth a look.
    Warning,
    /// Something is broken.
    Critical,
}

impl EventSeverity {
    /// Its name, in every dialect.
    pub fn name(self) -> &'static str {
        match self {
            EventSeverity::Info => "info",
            EventSeverity::Warning => "warning",
            EventSeverity::Critical => "critical",
        }
    }

    /// The severity of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        use EventSeverity::*;
        [Info, Warning, Critical].into_iter().find(|severity| severity.name() == name)
    }
}

/// Which events: all that meet each of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventFilter {
    /// Only those of this kind.
    pub kind: Option<String>,
    /// Only those of these series; empty: any, and those of none.
    pub series: Vec<SeriesId>,
    /// Only those that last.
    pub open: bool,
}

impl EventFilter {
    /// Whether `event` is one of them, and lasted at some time of [`from_ns`, `to_ns`).
    pub fn matches(&self, event: &StoredEvent, from_ns: i64, to_ns: i64) -> bool {
        event.begin_ns < to_ns
            && event.end_ns.is_none_or(|end| end >= from_ns)
            && self.kind.as_ref().is_none_or(|kind| *kind == event.kind)
            && (self.series.is_empty() || event.series.is_some_and(|s| self.series.contains(&s)))
            && !(self.open && event.end_ns.is_some())
    }
}
