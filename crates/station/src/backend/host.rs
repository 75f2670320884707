//! This host as far as results depend on it: who sets its clock, and what `sonde doctor` finds
//! without load. Looked at each second and each day, and kept as events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::json;
use sonde_api::instant::UtcInstant;
use sonde_api::station::{DoctorEntry, DoctorGrade};
use sonde_results::units::format_ns;
use sonde_run::doctor::{self, DoctorFinding, DoctorVerdict};
use sonde_store::query::{EventList, TimeRange};
use sonde_store::{Answer, EventFilter, EventSeverity, Query, StoredEvent};
use sonde_sys::clock::{SteadyClock, steady_scale};
use sonde_wire::time::Time;

use super::StationBackend;
use crate::live::clock_steps::ClockStep;
use crate::service::steady;
use crate::unit::{Instrument, Unit};

/// What was found of this host.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostFindings {
    /// When; `None`: nobody looked yet.
    pub at: Option<UtcInstant>,
    /// All that was looked at.
    pub entries: Vec<DoctorEntry>,
}

/// Who looks.
pub(crate) struct HostWatch {
    clock: SteadyClock,
    steps: u32,
    /// Steady time less UTC, ns.
    utc_offset: i64,
    /// When findings are looked for next.
    next: Option<Time>,
    /// Events that the store has not taken yet, the oldest first.
    waiting: VecDeque<StoredEvent>,
}

impl HostWatch {
    /// From now on.
    pub fn new() -> HostWatch {
        let mut clock = SteadyClock::new();
        let steps = clock.steps();
        let utc_offset = steady_scale().utc_offset;
        HostWatch { clock, steps, utc_offset, next: None, waiting: VecDeque::new() }
    }

    /// Looks whether something has changed. To be called each second.
    pub fn look(&mut self, backend: &StationBackend, now: UtcInstant) {
        self.look_at_clock(backend, now);
        let steady = steady();
        if self.next.is_none_or(|next| steady >= next) {
            self.next = Some(steady + EXAMINED_NS);
            self.examine(backend, now);
        }
        while let Some(event) = self.waiting.front() {
            match backend.core.station(|station| station.add_event(event)) {
                Some(Ok(_)) => drop(self.waiting.pop_front()),
                // It is tried again in a second, or the station ends.
                Some(Err(_)) | None => break,
            }
        }
    }

    fn look_at_clock(&mut self, backend: &StationBackend, now: UtcInstant) {
        let steps = self.clock.steps();
        if steps == self.steps {
            return;
        }
        let scale = steady_scale();
        // What is ahead of the clock is so by less when that was set forward.
        let by_ns = self.utc_offset - scale.utc_offset;
        (self.steps, self.utc_offset) = (steps, scale.utc_offset);
        // Who tells the kernel TAI - UTC does not set the clock.
        if by_ns == 0 {
            return;
        }
        let plan = backend.core.config().plan.clone();
        let measuring =
            plan.iter().filter(|(_, unit)| matches!(unit.instrument, Instrument::Probe(_)));
        let units: Vec<String> = measuring.map(|(id, _)| id.to_string()).collect();
        let event = step_event(&backend.core.name, now.ns(), by_ns, &units);
        tracing::warn!("{}", event.title);
        let step = ClockStep { at_ns: now.ns(), by_ns, marked: BTreeMap::new() };
        backend.core.live_state().clock_stepped(step);
        self.wait(event);
    }

    fn examine(&mut self, backend: &StationBackend, now: UtcInstant) {
        let plan = backend.core.config().plan.clone();
        let interfaces: BTreeSet<String> =
            plan.iter().flat_map(|(_, unit)| interfaces(unit)).collect();
        let found = doctor::glance(interfaces.iter().map(String::as_str));
        let entries: Vec<DoctorEntry> = found.into_iter().map(entry_of).collect();
        let warned = |entry: &&DoctorEntry| entry.verdict != DoctorGrade::Good;
        // Without figures, which differ each day.
        let warnings = entries.iter().filter(warned).map(|entry| entry.check.clone());
        let warnings: Vec<String> = warnings.collect();
        let before = told_last(backend);
        if before.as_ref().map_or(!warnings.is_empty(), |before| *before != warnings) {
            self.wait(findings_event(&backend.core.name, now.ns(), &warnings));
        }
        *backend.core.host() = HostFindings { at: Some(now), entries };
    }

    fn wait(&mut self, event: StoredEvent) {
        self.waiting.push_back(event);
        // A store that takes nothing for long: the oldest goes.
        if self.waiting.len() > WAITING_MAX {
            self.waiting.pop_front();
        }
    }
}

/// The interfaces of this namespace that a unit names.
fn interfaces(unit: &Unit) -> Vec<String> {
    if unit.netns.is_some() {
        return Vec::new();
    }
    let sources = |all: &[String]| {
        // A capture file is none.
        all.iter().filter(|source| !source.contains(['/', '.'])).cloned().collect()
    };
    match &unit.instrument {
        Instrument::Probe(settings) => settings.engine.iface.iter().cloned().collect(),
        Instrument::Reflect(settings) => settings.engine.iface.iter().cloned().collect(),
        Instrument::Rtt(settings) => sources(&settings.sources),
        Instrument::Flow(settings) => sources(&settings.sources),
        // Clients name theirs.
        Instrument::Otg(_) | Instrument::Agent(_) => Vec::new(),
    }
}

/// What the last event of this kind warned of; `None`: there is none.
fn told_last(backend: &StationBackend) -> Option<Vec<String>> {
    let filter = EventFilter { kind: Some(FINDINGS.into()), ..EventFilter::default() };
    let range = TimeRange { from_ns: i64::MIN, to_ns: i64::MAX };
    let query = Query::Events(EventList { range, filter, ..EventList::default() });
    // Of a store that cannot be read nothing is known: then it is told once more.
    let Ok(Answer::Events(rows)) = backend.query(&query).map(|response| response.answer) else {
        return None;
    };
    let own =
        rows.iter().rev().find(|row| row.event.evidence["labels"]["station"] == backend.core.name);
    serde_json::from_value(own?.event.evidence["warnings"].clone()).ok()
}

fn entry_of(finding: DoctorFinding) -> DoctorEntry {
    DoctorEntry {
        check: finding.check.to_owned(),
        verdict: match finding.verdict {
            DoctorVerdict::Ok => DoctorGrade::Good,
            DoctorVerdict::Warn => DoctorGrade::Warning,
        },
        found: finding.found,
        advice: finding.advice.map(|advice| advice.into_owned()),
    }
}

fn step_event(station: &str, at_ns: i64, by_ns: i64, units: &[String]) -> StoredEvent {
    let way = if by_ns < 0 { "back" } else { "forward" };
    let by = format_ns(by_ns.unsigned_abs() as f64);
    let text = match units {
        [] => "no probe was under way".to_owned(),
        units => format!(
            "intervals of {} that were under way are marked (clock_stepped), and left out of \
             objectives; no delay spans it",
            units.join(", ")
        ),
    };
    StoredEvent {
        kind: CLOCK_STEP.to_owned(),
        severity: EventSeverity::Warning,
        series: None,
        begin_ns: at_ns,
        end_ns: Some(at_ns),
        title: format!("{station}: this host's clock was set {way} by {by}"),
        evidence: json!({
            "labels": { "station": station }, "text": text, "by_ns": by_ns, "units": units,
        }),
    }
}

fn findings_event(station: &str, at_ns: i64, warnings: &[String]) -> StoredEvent {
    let (severity, title) = match warnings {
        [] => (
            EventSeverity::Info,
            format!("{station}: nothing on this host makes results worse any more"),
        ),
        some => (
            EventSeverity::Warning,
            format!("{station}: results are worse for {}", some.join(", ")),
        ),
    };
    StoredEvent {
        kind: FINDINGS.to_owned(),
        severity,
        series: None,
        begin_ns: at_ns,
        end_ns: Some(at_ns),
        title,
        evidence: json!({
            "labels": { "station": station },
            "text": "'sonde status' has what was found, and what to do about it",
            "warnings": warnings,
        }),
    }
}

/// Kinds of events.
const CLOCK_STEP: &str = "clock_step";
const FINDINGS: &str = "host_findings";
/// Between two looks for findings, ns: a day.
const EXAMINED_NS: i64 = 86_400 * 1_000_000_000;
/// Events that wait for a store that takes none.
const WAITING_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_say_what_and_which_results() {
        let units = ["probe.core".to_owned()];
        let back = step_event("ber", 5, -3_200_000_000, &units);
        assert_eq!(back.title, "ber: this host's clock was set back by 3.20 s");
        assert_eq!((back.begin_ns, back.end_ns), (5, Some(5)));
        assert_eq!(back.evidence["by_ns"], -3_200_000_000_i64);
        let text = back.evidence["text"].as_str().unwrap();
        assert!(text.contains("probe.core") && text.contains("clock_stepped"), "{text}");
        assert!(step_event("ber", 5, 1_000, &[]).title.ends_with("set forward by 1.00 us"));
        let worse = findings_event("ber", 5, &["clock sync".into(), "governor".into()]);
        assert_eq!(worse.title, "ber: results are worse for clock sync, governor");
        assert_eq!(worse.severity, EventSeverity::Warning);
        assert_eq!(findings_event("ber", 5, &[]).severity, EventSeverity::Info);
    }
}
