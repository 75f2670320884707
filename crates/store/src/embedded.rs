//! The embedded store: one folder.
//!
//! ```text
//! catalogue.db     SQLite: segments, series, batches that were kept, events
//! journal/         batches that are in no segment yet
//! seg/TABLE/DAY/   segments
//! damaged/         segments that could not be read
//! reserve          room that is given up when the disk is full
//! lock             held by the process that writes
//! ```
//!
//! [`Store`] is of the process that writes; any number of [`EmbeddedReader`]s, there and in other
//! processes, read. [`Store::maintain`] does what is due: it makes segments of the journal, rolls up,
//! compacts, gives up what expired. It does not wait for queries, and they do not wait for it.

mod backup;
pub(crate) mod catalogue;
pub mod disk;
pub(crate) mod export;
mod flush;
pub(crate) mod journal;
mod maintain;
mod merge;
mod names;
pub(crate) mod open;
pub(crate) mod own_files;
mod reader;
mod room;
mod room_log;
mod segment;
mod sql;
mod state;
mod writer;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use backup::BackupManifest;
pub use catalogue::{SCHEMA_VERSION, SegmentId};
pub use export::{Export, ExportText, Exported};
pub use maintain::Maintenance;
pub use open::Recovery;
pub use reader::EmbeddedReader;
pub(crate) use sql::about_of;
pub use sql::{SqlColumnInfo, SqlTable, SqlTableInfo, SqlValue};
pub use writer::EmbeddedWriter;

use crate::error::StoreError;
use crate::event::{EventId, StoredEvent};
use crate::retention::Retention;
use crate::series::{SeriesId, SeriesLabels, SeriesRegistry};
use crate::table::Table;
use crate::{MINUTE_NS, Reader, StoreBackend, Writer};
use catalogue::Catalogue;
use disk::{Disk, HostDisk};
use journal::Journal;
use room_log::RoomLog;
use state::State;

/// How a store works.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreOptions {
    /// The folder of the journal; `None`: `journal` in the store. It is written most: at the full
    /// rate some 100 GB a day.
    pub journal: Option<PathBuf>,
    /// Rows wait at most so long for their segment, ns.
    pub seal_after_ns: i64,
    /// So many rows make a segment sooner. They are in memory until then: about 0.5 kB each.
    pub seal_rows: usize,
    /// How late rows may come without making a second row in roll-ups, ns.
    pub grace_ns: i64,
    /// What is kept for how long.
    pub retention: Retention,
    /// Size of the file `reserve`, octets.
    pub reserve_octets: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            journal: None,
            seal_after_ns: 20_000_000_000,
            seal_rows: 250_000,
            grace_ns: MINUTE_NS,
            retention: Retention::default(),
            reserve_octets: 64 << 20,
        }
    }
}

/// A store that this process writes.
pub struct Store {
    shared: Arc<Shared>,
    recovery: Recovery,
}

/// What a table holds in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableState {
    /// Which.
    pub table: Table,
    /// Its rows.
    pub rows: u64,
    /// Its size, octets.
    pub octets: u64,
    /// Its segments.
    pub segments: u64,
    /// Times of its oldest and its newest row, ns since 1970 UTC.
    pub times_ns: (i64, i64),
}

/// What writer, readers and maintenance share. Locks are taken in the order of the fields.
struct Shared {
    folder: PathBuf,
    options: StoreOptions,
    /// What is kept from now on; that of `options` at first.
    retention: Mutex<Arc<Retention>>,
    disk: Arc<dyn Disk>,
    /// One maintenance at a time.
    maintaining: Mutex<()>,
    journal: Mutex<Journal>,
    catalogue: Mutex<Catalogue>,
    state: Mutex<State>,
    room: Mutex<RoomLog>,
    writer_taken: AtomicBool,
    /// Held until the end.
    _lock: File,
}

impl Store {
    /// Opens the store in `folder`, or makes it. What a crash left is put in order first.
    pub fn open(folder: &Path, options: StoreOptions) -> Result<Store, StoreError> {
        Self::open_on(Arc::new(HostDisk), folder, options)
    }

    /// The same with another way to write.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: StoreOptions,
    ) -> Result<Store, StoreError> {
        let (shared, recovery) = open::open(disk, folder, options)?;
        Ok(Store { shared: Arc::new(shared), recovery })
    }

    /// What was found and put in order when it was opened.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The one writer. Once it is dropped, another one can be had.
    pub fn writer(&self) -> Result<EmbeddedWriter, StoreError> {
        match self.shared.writer_taken.swap(true, Ordering::AcqRel) {
            true => Err(StoreError::WriterTaken),
            false => Ok(EmbeddedWriter::new(self.shared.clone())),
        }
    }

    /// Keeps what `retention` says, from the next maintenance on.
    pub fn set_retention(&self, retention: Retention) {
        *lock(&self.shared.retention) = Arc::new(retention);
    }

    /// A reader; any number of them.
    pub fn reader(&self) -> EmbeddedReader {
        EmbeddedReader::of_writer(self.shared.clone())
    }

    /// The number of the series with these labels; it is registered if it is not yet.
    pub fn register(&self, labels: &SeriesLabels) -> Result<SeriesId, StoreError> {
        let ids = self.register_all(std::slice::from_ref(labels))?;
        ids.first().copied().ok_or(StoreError::UnknownSeries(0))
    }

    /// The numbers of the series with these labels, in their order. Those that are not registered yet
    /// are, in one transaction: a station's first start has tens of thousands.
    pub fn register_all(&self, labels: &[SeriesLabels]) -> Result<Vec<SeriesId>, StoreError> {
        let mut catalogue = lock(&self.shared.catalogue);
        let known = lock(&self.shared.state).series.clone();
        let (ids, fresh) = register_in(&known, labels);
        if !fresh.is_empty() {
            catalogue.add_series(fresh.iter())?;
            Arc::make_mut(&mut lock(&self.shared.state).series).extend(&fresh);
        }
        Ok(ids)
    }

    /// The number of the last durable batch of `writer`; 0: there is none. What it writes next has a
    /// greater one.
    pub fn last_batch(&self, writer: &str) -> u64 {
        lock(&self.shared.state).writers.get(writer).copied().unwrap_or(0)
    }

    /// What each table holds in segments; tables that hold nothing are left out.
    pub fn state(&self) -> Vec<TableState> {
        let segments = lock(&self.shared.state).segments.clone();
        let mut all: BTreeMap<Table, TableState> = BTreeMap::new();
        for segment in segments.iter() {
            let r = &segment.record;
            let state = all.entry(r.table).or_insert(TableState {
                table: r.table,
                rows: 0,
                octets: 0,
                segments: 0,
                times_ns: r.times_ns,
            });
            state.rows += r.rows;
            state.octets += r.octets;
            state.segments += 1;
            state.times_ns.0 = state.times_ns.0.min(r.times_ns.0);
            state.times_ns.1 = state.times_ns.1.max(r.times_ns.1);
        }
        all.into_values().collect()
    }

    /// Keeps an event, for certain once this returns.
    pub fn add_event(&self, event: &StoredEvent) -> Result<EventId, StoreError> {
        lock(&self.shared.catalogue).add_event(event)
    }

    /// The event of that number.
    pub fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        lock(&self.shared.catalogue).event(id)
    }

    /// Says when an event ended, ns since 1970 UTC. `false`: there is none of that number.
    pub fn end_event(&self, id: EventId, end_ns: i64) -> Result<bool, StoreError> {
        lock(&self.shared.catalogue).end_event(id, end_ns)
    }

    /// Sets a field of an event's evidence, for certain once this returns; `None` takes it out.
    /// The event as it is then; `None`: there is none of that number.
    pub fn note_event(
        &self,
        id: EventId,
        field: &str,
        value: Option<serde_json::Value>,
    ) -> Result<Option<StoredEvent>, StoreError> {
        lock(&self.shared.catalogue).note_event(id, field, value)
    }
}

impl StoreBackend for Store {
    fn register_all(&self, labels: &[SeriesLabels]) -> Result<Vec<SeriesId>, StoreError> {
        self.register_all(labels)
    }

    fn last_batch(&self, writer: &str) -> u64 {
        self.last_batch(writer)
    }

    fn writer(&self) -> Result<Box<dyn Writer>, StoreError> {
        Ok(Box::new(self.writer()?))
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.reader())
    }

    fn add_event(&self, event: &StoredEvent) -> Result<EventId, StoreError> {
        self.add_event(event)
    }

    fn end_event(&self, id: EventId, end_ns: i64) -> Result<bool, StoreError> {
        self.end_event(id, end_ns)
    }

    fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        self.event(id)
    }

    fn note_event(
        &self,
        id: EventId,
        field: &str,
        value: Option<serde_json::Value>,
    ) -> Result<Option<StoredEvent>, StoreError> {
        self.note_event(id, field, value)
    }

    fn kind(&self) -> &'static str {
        "embedded"
    }

    fn seen_after_ns(&self) -> i64 {
        0
    }

    fn spool_octets(&self) -> u64 {
        0
    }

    fn set_retention(&self, retention: Retention) {
        self.set_retention(retention);
    }

    fn maintain(&self, now_ns: i64, free_octets: Option<u64>) -> Result<Maintenance, StoreError> {
        self.maintain(now_ns, free_octets)
    }

    fn flush(&self) -> Result<Maintenance, StoreError> {
        self.flush()
    }
}

/// The numbers of these labels, and those of them that are new.
pub(crate) fn register_in(
    known: &SeriesRegistry,
    labels: &[SeriesLabels],
) -> (Vec<SeriesId>, SeriesRegistry) {
    let mut fresh = SeriesRegistry::after(known);
    let number = |labels: &SeriesLabels| match known.find(labels) {
        Some(id) => id,
        None => fresh.add(labels.clone()),
    };
    (labels.iter().map(number).collect(), fresh)
}

/// The data behind a lock. A thread that panicked left them whole: each change is one assignment.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
