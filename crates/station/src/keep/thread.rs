//! The threads between the hub and the store: one writes what comes, one does what is due.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_run::error::RunError;
use sonde_run::running::{Latest, Next, RecordReceiver, Stop};
use sonde_run::thread;
use sonde_store::{
    Batch, Reader, Retention, Rows, SeriesId, SeriesLabels, StoreBackend, StoreError, StoredEvent,
    Writer,
};
use sonde_sys::clock::{steady_now, steady_scale, unix_now_ns};
use sonde_sys::disk::free_octets;
use sonde_wire::time::Time;

use super::settings::StoreSettings;
use super::{Registry, RowMaker};
use crate::hub::{Hub, Report};

/// How the store does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeeperStatus {
    /// Rows that are on the disk for certain.
    pub durable_rows: u64,
    /// Rows that wait for it.
    pub waiting_rows: u64,
    /// Since when the oldest of them waits, by the steady clock; `None`: none does.
    pub waiting_since: Option<Time>,
    /// Records that found no room on their way here.
    pub lost_records: u64,
    /// Rows that were given up because the store took none for too long.
    pub lost_rows: u64,
    /// Octets that wait on this host for a server.
    pub spool_octets: u64,
    /// Why the store took nothing at the last try; `None`: it did.
    pub error: Option<String>,
    /// Why upkeep failed at the last try: of a server, that it takes nothing from the spool.
    pub upkeep_error: Option<String>,
}

/// Keeps what units measure, until it is asked to end.
pub struct Keeper {
    /// How it does.
    pub status: Latest<KeeperStatus>,
    /// What it writes to.
    pub store: Arc<dyn StoreBackend>,
    /// Reads what is kept.
    pub reader: Arc<dyn Reader>,
    stop: Stop,
    writing: JoinHandle<()>,
    maintaining: JoinHandle<()>,
}

impl Keeper {
    /// Opens the store, and subscribes to `hub`.
    ///
    /// # Errors
    /// The folder cannot be written, or belongs to another station; no thread to be had.
    pub fn start(settings: &StoreSettings, station: &str, hub: &Hub) -> Result<Keeper, RunError> {
        let folder = settings.path.as_path();
        let store = settings.open(station)?;
        tracing::debug!("the store in {} is open: {}", folder.display(), store.kind());
        let writer = store.writer().map_err(anyhow::Error::from)?;
        let (status, stop) = (Latest::new(KeeperStatus::default()), Stop::default());
        let reader = store.reader();
        let writing = Writing {
            reports: hub.subscribe("store", REPORTS),
            rows: RowMaker::new(station),
            registry: StoreRegistry(store.clone()),
            writer,
            name: station.into(),
            number: store.last_batch(station),
            refused: 0,
            waiting: VecDeque::new(),
            status: status.clone(),
        };
        let (asked, ends) = (stop.clone(), stop.clone());
        let folder = folder.to_owned();
        let writing = thread::spawn("sonde-store", move || writing.run(&asked))?;
        let (shared, told) = (store.clone(), status.clone());
        let maintaining =
            thread::spawn("sonde-upkeep", move || maintain(&*shared, &folder, &told, &ends))?;
        Ok(Keeper { status, store, reader, stop, writing, maintaining })
    }

    /// Keeps what `retention` says from the next upkeep on.
    pub fn set_retention(&self, retention: Retention) {
        self.store.set_retention(retention);
    }

    /// Writes what has come, and ends. To be called when no unit says anything more.
    pub fn end(self) -> KeeperStatus {
        self.stop.ask();
        for thread in [self.writing, self.maintaining] {
            sonde_run::thread::join_logged(thread);
        }
        self.status.get()
    }
}

struct StoreRegistry(Arc<dyn StoreBackend>);

impl Registry for StoreRegistry {
    fn series(&mut self, labels: &[SeriesLabels]) -> Result<Vec<SeriesId>, StoreError> {
        self.0.register_all(labels)
    }

    fn event(&mut self, event: StoredEvent) -> Result<(), StoreError> {
        self.0.add_event(&event).map(drop)
    }
}

/// The thread that writes.
struct Writing {
    reports: RecordReceiver<Arc<Report>>,
    rows: RowMaker,
    registry: StoreRegistry,
    writer: Box<dyn Writer>,
    name: Arc<str>,
    number: u64,
    /// Records that the store could not register.
    refused: u64,
    /// What is not durable yet, oldest first.
    waiting: VecDeque<(Time, Batch)>,
    status: Latest<KeeperStatus>,
}

impl Writing {
    fn run(mut self, stop: &Stop) {
        loop {
            let ends = stop.is_asked();
            self.collect(if ends { Duration::ZERO } else { BATCH });
            let failed = self.write().err().map(|error| error.to_string());
            self.report(failed);
            if ends {
                return;
            }
        }
    }

    /// Takes reports for so long, or until they make a large batch.
    fn collect(&mut self, patience: Duration) {
        let begun = steady_now();
        let end = begun + patience.as_nanos() as i64;
        let mut taken = 0;
        let mut turn: Vec<(Arc<Report>, i64, i64)> = Vec::new();
        while taken < LARGE || patience.is_zero() {
            let left = Duration::from_nanos((end - steady_now()).max(0).unsigned_abs());
            let Next::Record(report) = self.reports.next(left) else { break };
            taken += report.records();
            turn.push((report, steady_scale().utc_offset, unix_now_ns()));
        }
        // Where that fails, each report tries for itself and says what is lost.
        let _ = self.rows.register(turn.iter().map(|(r, ..)| &**r), &mut self.registry);
        for (report, utc_offset_ns, now_ns) in turn {
            let now = (utc_offset_ns, now_ns);
            if let Err(error) = self.rows.take(&report, now, &mut self.registry) {
                self.refused += report.records();
                tracing::warn!("a record of {} is not kept: {error}", report.unit);
            }
        }
        let rows = [
            Rows::Intervals(self.rows.take_intervals()),
            Rows::Flows(self.rows.take_flows()),
            Rows::Rtt(self.rows.take_rtt()),
            Rows::Interfaces(self.rows.take_interfaces()),
        ];
        for rows in rows.into_iter().filter(|rows| !rows.is_empty()) {
            self.number += 1;
            let batch = Batch { writer: self.name.clone(), number: self.number, rows: rows.into() };
            // Its first record came after this at the earliest.
            self.waiting.push_back((begun, batch));
        }
        while self.waiting_rows() > MOST_ROWS {
            let Some((_, batch)) = self.waiting.pop_front() else { break };
            self.status.update(|s| s.lost_rows += batch.rows.len() as u64);
        }
    }

    /// Gives the store what waits.
    fn write(&mut self) -> Result<(), StoreError> {
        let taken =
            self.waiting.iter().try_for_each(|(_, batch)| self.writer.append(batch).map(drop));
        // What was taken before one was refused becomes durable all the same.
        let synced = self.writer.sync();
        while let Some(ticket) = self.writer.poll_durable() {
            let Some(at) = self.waiting.iter().position(|(_, b)| b.number == ticket.number) else {
                continue;
            };
            let rows = self.waiting.remove(at).map_or(0, |(_, batch)| batch.rows.len() as u64);
            self.status.update(|s| s.durable_rows += rows);
        }
        taken.and(synced)
    }

    fn report(&self, failed: Option<String>) {
        let before = self.status.get().error;
        match (&before, &failed) {
            (None, Some(why)) => tracing::error!("the store takes nothing: {why}"),
            (Some(_), None) => tracing::warn!("the store takes records again"),
            _ => {}
        }
        let lost = self.reports.lost() + self.refused + self.rows.unknown();
        let waiting = self.waiting_rows() as u64;
        let since = self.waiting.front().map(|(since, _)| *since);
        self.status.update(|s| {
            (s.error, s.waiting_rows, s.waiting_since) = (failed, waiting, since);
            s.lost_records = lost;
        });
    }

    fn waiting_rows(&self) -> usize {
        self.waiting.iter().map(|(_, batch)| batch.rows.len()).sum()
    }
}

/// Does what is due, every second; at the end what is in the journal becomes segments.
fn maintain(store: &dyn StoreBackend, folder: &Path, status: &Latest<KeeperStatus>, stop: &Stop) {
    let mut failing = false;
    while !stop.wait(UPKEEP) {
        let done = store.maintain(unix_now_ns(), free_octets(folder).ok());
        match &done {
            Err(error) if !failing => tracing::error!("upkeep of the store: {error}"),
            Ok(_) if failing => tracing::warn!("upkeep of the store works again"),
            _ => {}
        }
        failing = done.is_err();
        status.update(|s| {
            s.spool_octets = store.spool_octets();
            s.upkeep_error = done.err().map(|error| error.to_string());
        });
    }
}

/// Rows are collected for so long, and then made durable together.
const BATCH: Duration = Duration::from_millis(200);
/// Between two looks at what is due.
const UPKEEP: Duration = Duration::from_secs(1);
/// Reports between hub and store: two seconds of 20,000 records.
const REPORTS: usize = 1 << 16;
/// Records of a batch that waits for no more.
const LARGE: u64 = 20_000;
/// Rows that wait for a store that takes none; older ones are lost.
const MOST_ROWS: usize = 1_000_000;
