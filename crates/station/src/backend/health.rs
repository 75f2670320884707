//! How the station does: queues, drops, store, doubts.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{MutexGuard, PoisonError};

use sonde_api::instant::UtcInstant;
use sonde_api::problem::ProblemDetails;
use sonde_api::station::{
    ClockStepEntry, DropCount, ExportHealth, QueueState, SelfDoubt, StationClock, StationHealth,
    StoreHealth,
};
use sonde_results::Caveat;
use sonde_results::choice::Choice as _;
use sonde_results::civil_time;
use sonde_sys::clock::clock_state;
use sonde_sys::disk::free_octets;
use sonde_wire::time::Time;

use super::StationBackend;
use crate::export::status::ExporterStatus;
use crate::judge::trouble::{Trouble, TroubleKind};
use crate::keep::thread::KeeperStatus;
use crate::life::LATE_LIMIT_NS;
use crate::live::clock_steps::ClockStep;
use crate::recent::{CountKey, RecentCounts};
use crate::runner::Station;
use crate::service::steady;

impl StationBackend {
    pub(super) fn health_now(&self, _: UtcInstant) -> Result<StationHealth, ProblemDetails> {
        let clock = clock_state();
        let store = self.core.station(Station::store).unwrap_or_default();
        let totals = self.totals(&store);
        let grown = self.recent().grown(&totals);
        let drops: Vec<DropCount> = totals
            .into_iter()
            .filter(|(key, count)| *key != stored_rows() && *count > 0)
            .map(|(key, count)| {
                let recent = grown.get(&key).copied().unwrap_or(0);
                let (by, reason) = key;
                DropCount { by, reason, count, recent }
            })
            .collect();
        let doubts = self.doubts();
        let steps = self.clock_steps();
        let host = self.core.host().clone();
        let problems = self.problems(&store);
        let sound =
            problems.is_empty() && doubts.is_empty() && drops.iter().all(|drop| drop.recent == 0);
        Ok(StationHealth {
            sound,
            problems,
            cpu: self.core.cpu.lock().unwrap_or_else(PoisonError::into_inner).share(),
            memory_octets: memory_octets(),
            late_limit_ns: LATE_LIMIT_NS,
            clock: StationClock {
                synchronised: clock.synchronised,
                max_error_ns: clock.max_error_ns,
                last_step: steps.first().map(|step| step.at),
                steps,
            },
            queues: self.queues(),
            drops,
            store: Some(self.store_health(&store, &grown)),
            exports: self.core.exports.status().into_iter().map(export_health).collect(),
            doctor: host.entries,
            examined: host.at,
            doubts,
        })
    }

    /// When this host's clock was set, the newest first.
    fn clock_steps(&self) -> Vec<ClockStepEntry> {
        let live = self.core.live_state();
        let entry = |step: &ClockStep| ClockStepEntry {
            at: UtcInstant::from_ns(step.at_ns),
            by_ns: step.by_ns,
            marked: step.marked.iter().map(|(unit, n)| (unit.to_string(), *n)).collect(),
        };
        live.clock_steps().map(entry).collect()
    }

    /// Remembers what was counted so far. To be called every second or so.
    pub(crate) fn note_counts(&self, now: Time) {
        let store = self.core.station(Station::store).unwrap_or_default();
        let totals = self.totals(&store);
        self.recent().note(now.as_nanos(), totals);
    }

    /// What the station doubts of itself now.
    pub(super) fn doubts(&self) -> Vec<SelfDoubt> {
        let judge = self.core.station(Station::judge).unwrap_or_default();
        judge.open.iter().filter(|t| t.kind == TroubleKind::StationDoubt).map(doubt_of).collect()
    }

    /// What does not work now, in sentences.
    fn problems(&self, store: &KeeperStatus) -> Vec<String> {
        let known = self.core.station(|station| (station.judge(), station.alerts()));
        let (judge, alerts) = known.unwrap_or_default();
        let unsaved = alerts.as_ref().and_then(|alerts| alerts.unsaved.as_ref());
        let all = [
            store.error.as_ref().map(|why| format!("the store takes nothing: {why}")),
            store.upkeep_error.as_ref().map(|why| format!("upkeep of the store fails: {why}")),
            judge.error.as_ref().map(|why| format!("what is judged is not kept: {why}")),
            unsaved.map(|why| format!("the state of alerts cannot be saved: {why}")),
            self.core.refused_reload().map(|refused| refused.problem()),
        ];
        let unmeasured = judge.open.iter().filter(|t| t.kind == TroubleKind::NotMeasured);
        let unmeasured = unmeasured.map(|t| {
            let since = civil_time::plain(t.starts_ns);
            format!("{} (since {since}; it is tried again)", t.title)
        });
        let receivers = alerts.iter().flat_map(|alerts| &alerts.receivers);
        let failing = receivers.filter(|(_, status)| status.failing_since_ns.is_some());
        let failing = failing.map(|(name, status)| {
            let why = status.last_error.as_deref().unwrap_or("it says not why");
            format!("the receiver {name} takes no alert: {why}")
        });
        all.into_iter().flatten().chain(unmeasured).chain(failing).collect()
    }

    /// Totals of whatever was dropped, and of rows that the store has.
    fn totals(&self, store: &KeeperStatus) -> BTreeMap<CountKey, u64> {
        let key = |by: &str, reason: &str| (by.to_owned(), reason.to_owned());
        let mut totals = BTreeMap::new();
        for unit in self.unit_entries() {
            totals.insert(key(&unit.name, LOST), unit.records_lost);
        }
        // What the store lost in the hub is among what it lost at all.
        for counts in self.core.hub.counts().into_iter().filter(|c| c.name != STORE) {
            totals.insert(key(&counts.name, LOST), counts.lost);
        }
        totals.insert(key(STORE, LOST), store.lost_records);
        totals.insert(key(STORE, "rows_given_up"), store.lost_rows);
        totals.insert(stored_rows(), store.durable_rows);
        let alerts = self.core.station(Station::alerts).flatten();
        for (name, status) in alerts.iter().flat_map(|alerts| &alerts.receivers) {
            let by = format!("alert.{name}");
            totals.insert(key(&by, "queue_full"), status.dropped);
            totals.insert(key(&by, "given_up"), status.given_up);
        }
        totals
    }

    /// Those between the hub and its subscribers, and those of alerts.
    fn queues(&self) -> Vec<QueueState> {
        let hub = self.core.hub.counts().into_iter().map(|counts| QueueState {
            reader: counts.name,
            length: counts.queued,
            capacity: counts.room,
            dropped: counts.lost,
        });
        let alerts = self.core.station(Station::alerts).flatten().unwrap_or_default();
        let alerts = alerts.receivers.into_iter().map(|(name, status)| QueueState {
            reader: format!("alert.{name}"),
            length: status.queued as u64,
            capacity: status.room as u64,
            dropped: status.dropped,
        });
        hub.chain(alerts).collect()
    }

    fn store_health(&self, store: &KeeperStatus, grown: &BTreeMap<CountKey, u64>) -> StoreHealth {
        let folder = self.core.config().store.clone();
        let now = steady();
        let seconds = self.recent().span_ns(now.as_nanos()) as f64 / 1e9;
        let rows = grown.get(&stored_rows()).copied().unwrap_or(0);
        let since = store.waiting_since.map(|since| (now - since).max(0).unsigned_abs());
        StoreHealth {
            backend: self.core.station(Station::store_kind).unwrap_or_default().to_owned(),
            records_per_s: rows as f64 / seconds.max(1.0),
            lag_ms: since.map_or(0, |ns| ns.div_ceil(1_000_000)),
            waiting_rows: store.waiting_rows,
            octets: octets_in(&folder),
            free_octets: free_octets(&folder).ok(),
            spool_octets: store.spool_octets,
            last_error: store.error.clone().or_else(|| store.upkeep_error.clone()),
        }
    }

    fn recent(&self) -> MutexGuard<'_, RecentCounts> {
        self.core.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn doubt_of(trouble: &Trouble) -> SelfDoubt {
    let name = trouble.evidence.get("doubt").and_then(|name| name.as_str()).unwrap_or("doubt");
    let caveat: Option<Caveat> = serde_json::from_value(name.into()).ok();
    let advice = caveat.map_or("see docs/sla.md", Caveat::advice);
    SelfDoubt {
        name: name.to_owned(),
        text: trouble.title.clone(),
        advice: advice.to_owned(),
        from: UtcInstant::from_ns(trouble.starts_ns),
        to: None,
    }
}

fn stored_rows() -> CountKey {
    (STORE.to_owned(), "rows".to_owned())
}

/// How an exporter does.
fn export_health(status: ExporterStatus) -> ExportHealth {
    ExportHealth {
        kind: status.kind.word().to_owned(),
        waiting: status.waiting as u64,
        waiting_octets: status.waiting_octets as u64,
        delivered_points: status.delivered,
        last_delivery: status.delivered_ns.map(UtcInstant::from_ns),
        refused_points: status.refused,
        dropped_points: status.dropped,
        failures: status.failures,
        failing_since: status.failing_since_ns.map(UtcInstant::from_ns),
        last_error: status.last_error,
        name: status.name,
    }
}

/// Memory that this process holds, octets; 0: the kernel does not say.
pub(crate) fn memory_octets() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1_024
}

/// Octets of all files in a folder and its folders. What goes meanwhile counts as nothing.
fn octets_in(folder: &std::path::Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => octets_in(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// The store's name among subscribers of the hub.
const STORE: &str = "store";
/// The counter of records that found no room.
const LOST: &str = "records_lost";
