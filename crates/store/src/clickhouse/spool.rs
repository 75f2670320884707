//! The spool: where what is measured is durable until ClickHouse has it.
//!
//! ```text
//! catalogue.db   SQLite: number of the station, series, events, what was sent
//! journal/       files of batches, one a lot, by their numbers
//! lock           held by the process that writes
//! ```

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::claim::{StationClaim, claim};
use super::http::ClickHouseClient;
use super::reader::ClickHouseReader;
use super::{ClickHouseServer, EVENT_BITS, SERIES_BITS, schema, series_of};
use crate::batch::{Batch, Ticket};
use crate::embedded::catalogue::{Catalogue, Change};
use crate::embedded::disk::{Disk, HostDisk};
use crate::embedded::journal::{Journal, journal_files, journal_path, read_journal};
use crate::embedded::open::{CATALOGUE, JOURNAL, lock_folder, unflushed};
use crate::embedded::own_files::{OwnFiles, refuse_link};
use crate::embedded::{Maintenance, lock, register_in};
use crate::error::StoreError;
use crate::event::{EventId, StoredEvent};
use crate::retention::Retention;
use crate::series::{Series, SeriesId, SeriesLabels, SeriesRegistry};
use crate::{Reader, StoreBackend, Writer};

/// How a store in ClickHouse works.
#[derive(Clone, Debug)]
pub struct ClickHouseOptions {
    /// Where it is.
    pub server: ClickHouseServer,
    /// The station's name: one that no other station has in that database.
    pub station: String,
    /// The spool takes no more once it is so large, octets.
    pub spool_octets: u64,
    /// Rows wait at most so long for their lot, ns: what queries do not see yet.
    pub seal_after_ns: i64,
    /// So many rows make a lot sooner.
    pub seal_rows: usize,
    /// What is kept for how long; of sizes, the server's. Its floor is of this host's disk: the spool
    /// takes no more where less is free.
    pub retention: Retention,
}

impl ClickHouseOptions {
    /// As a station works.
    pub fn new(server: ClickHouseServer, station: &str) -> Self {
        ClickHouseOptions {
            server,
            station: station.to_owned(),
            spool_octets: 5_000_000_000,
            seal_after_ns: 5_000_000_000,
            seal_rows: 200_000,
            retention: Retention { tables: BTreeMap::new(), floor_octets: 0 },
        }
    }
}

/// A store in ClickHouse that this process writes.
pub struct ClickHouseStore {
    pub(super) shared: Arc<SpoolShared>,
}

/// What writer, readers and maintenance share. Locks are taken in the order of the fields.
pub(super) struct SpoolShared {
    pub(super) folder: PathBuf,
    pub(super) options: ClickHouseOptions,
    pub(super) client: ClickHouseClient,
    /// The number of this station.
    pub(super) station: u32,
    /// Its events up to this number are of a folder that was lost: only the server has them.
    events_before: u64,
    /// The greatest number of a lot that was made before this process: the server has no greater one.
    pub(super) made_before: u64,
    /// The spool may be so large, octets, for what is left of the disk as it was last seen.
    room_octets: AtomicU64,
    pub(super) retention: Mutex<Arc<Retention>>,
    /// One maintenance at a time; what it knows of the server.
    pub(super) upkeep: Mutex<ServerUpkeep>,
    pub(super) journal: Mutex<Journal>,
    pub(super) catalogue: Mutex<Catalogue>,
    pub(super) state: Mutex<SpoolState>,
    writer_taken: AtomicBool,
    /// The server did not answer the last time.
    pub(super) away: AtomicBool,
    /// How often it was found that other stations may have other events than before.
    pub(super) other_events: AtomicU64,
    /// Held until the end.
    _lock: File,
}

/// What maintenance did at the server.
#[derive(Default)]
pub(super) struct ServerUpkeep {
    /// The tables are there.
    pub(super) prepared: bool,
    /// When old rows were given up last, ns since 1970 UTC, and by which rules.
    pub(super) retained: Option<(i64, Arc<Retention>)>,
    /// When the events of other stations were looked at last, ns since 1970 UTC, and what was found:
    /// how many rows they are, and the sum of their changes.
    pub(super) other_events: Option<(i64, (u64, u64))>,
}

/// What waits.
pub(super) struct SpoolState {
    /// Lots that are to be sent, oldest first, and their octets.
    pub(super) sealed: VecDeque<(u64, u64)>,
    /// Octets and rows of the file that is being written.
    open: (u64, usize),
    /// When maintenance first met something in it, ns since 1970 UTC.
    open_since_ns: Option<i64>,
    /// The last durable batch of each writer.
    writers: HashMap<Arc<str>, u64>,
    pub(super) series: Arc<SeriesRegistry>,
    next_batch: u64,
}

impl ClickHouseStore {
    /// Opens the spool in `folder`, or makes it. The first time the server must be there, for the
    /// station's number.
    ///
    /// # Errors
    /// The folder cannot be written, or another process writes there; the first time: the server
    /// cannot be reached, or another station has that name.
    pub fn open(folder: &Path, options: ClickHouseOptions) -> Result<Self, StoreError> {
        let journal_folder = folder.join(JOURNAL);
        refuse_link(&journal_folder)?;
        let disk = OwnFiles::new(Arc::new(HostDisk), folder, &journal_folder);
        disk.create_folder(&journal_folder).map_err(StoreError::io("create", &journal_folder))?;
        let lock = lock_folder(folder)?;
        let client = ClickHouseClient::new(&options.server);
        let mut catalogue = Catalogue::open(&folder.join(CATALOGUE))?;
        catalogue.watch_events()?;
        let mut upkeep = ServerUpkeep::default();
        let station = match catalogue.number(STATION)? {
            Some(station) => station as u32,
            None => {
                let station = first_start(&client, &options.station, &mut catalogue)?;
                upkeep.prepared = true;
                station
            }
        };
        let content = catalogue.load()?;
        let mut series = SeriesRegistry::starting_at(*series_of(station).start());
        for labels in content.series {
            series.add(labels);
        }
        let sent = catalogue.number(LOT)?.unwrap_or(0);
        let mut writers: HashMap<Arc<str>, u64> =
            content.writers.into_iter().map(|(name, last)| (name.into(), last)).collect();
        let (mut sealed, mut next_batch, mut last) = (VecDeque::new(), content.flushed + 1, sent);
        for lot in journal_files(&journal_folder)? {
            let path = journal_path(&journal_folder, lot);
            let file = read_journal(&path)?;
            let waiting = unflushed(vec![file], content.flushed, &mut writers);
            last = last.max(lot);
            if lot <= sent || waiting.is_empty() {
                disk.remove(&path).map_err(StoreError::io("remove", &path))?;
                continue;
            }
            let length = fs::metadata(&path).map_err(StoreError::io("look at", &path))?.len();
            next_batch = waiting.iter().fold(next_batch, |next, (n, _)| next.max(n + 1));
            sealed.push_back((lot, length));
        }
        // The number of a lot is never used again.
        let journal = Journal::begin(Arc::new(disk), &journal_folder, last + 1)?;
        let state = SpoolState {
            sealed,
            open: (0, 0),
            open_since_ns: None,
            writers,
            series: Arc::new(series),
            next_batch,
        };
        let shared = SpoolShared {
            folder: folder.to_owned(),
            client,
            station,
            events_before: catalogue.number(EVENTS_BEFORE)?.unwrap_or(0),
            made_before: last,
            room_octets: AtomicU64::new(u64::MAX),
            retention: Mutex::new(Arc::new(options.retention.clone())),
            options,
            upkeep: Mutex::new(upkeep),
            journal: Mutex::new(journal),
            catalogue: Mutex::new(catalogue),
            state: Mutex::new(state),
            writer_taken: AtomicBool::new(false),
            away: AtomicBool::new(false),
            other_events: AtomicU64::new(0),
            _lock: lock,
        };
        Ok(ClickHouseStore { shared: Arc::new(shared) })
    }
}

/// Claims the number of the station, and takes over what the server has of it.
fn first_start(
    client: &ClickHouseClient,
    name: &str,
    catalogue: &mut Catalogue,
) -> Result<u32, StoreError> {
    let identity = match catalogue.number(IDENTITY)? {
        Some(identity) => identity,
        None => {
            let identity = some_number()?;
            // Before the claim: a claim whose answer is lost is found again.
            catalogue.set_numbers(&[(IDENTITY, identity)])?;
            identity
        }
    };
    schema::prepare(client)?;
    let StationClaim { station, last_lot, last_event, series } = claim(client, name, identity)?;
    let known = (series_of(station)).zip(series);
    let known: Vec<Series> =
        known.map(|(id, labels)| Series { id: SeriesId(id), labels }).collect();
    let sent = known.len() as u64;
    if catalogue.load()?.series.is_empty() {
        catalogue.add_series(&known)?;
    }
    catalogue.number_events_after(last_event)?;
    // Last: without the number of the station all of it is done again.
    catalogue.set_numbers(&[
        (LOT, last_lot),
        (SERIES_SENT, sent),
        (EVENTS_BEFORE, last_event),
        (STATION, station.into()),
    ])?;
    Ok(station)
}

/// A number that nobody else has: of 62 bits.
fn some_number() -> Result<u64, StoreError> {
    let path = Path::new("/dev/urandom");
    let mut octets = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut octets));
    read.map_err(StoreError::io("read", path))?;
    Ok(u64::from_le_bytes(octets) >> 2)
}

impl SpoolState {
    fn octets(&self) -> u64 {
        self.open.0 + self.sealed.iter().map(|(_, octets)| octets).sum::<u64>()
    }
}

impl SpoolShared {
    /// Begins the next lot if this one is due.
    fn seal_if_due(&self, now_ns: i64, at_once: bool) -> Result<(), StoreError> {
        let mut journal = lock(&self.journal);
        let due = {
            let mut state = lock(&self.state);
            if state.open.1 == 0 {
                state.open_since_ns = None;
                return Ok(());
            }
            let since = *state.open_since_ns.get_or_insert(now_ns);
            // A clock that was set back does not keep rows from their lot.
            let old = !(0..self.options.seal_after_ns).contains(&now_ns.saturating_sub(since));
            at_once || old || state.open.1 >= self.options.seal_rows
        };
        if due { self.seal(&mut journal) } else { Ok(()) }
    }

    fn seal(&self, journal: &mut Journal) -> Result<(), StoreError> {
        let lot = journal.number();
        journal.rotate()?;
        let mut state = lock(&self.state);
        let (octets, _) = std::mem::take(&mut state.open);
        state.open_since_ns = None;
        state.sealed.push_back((lot, octets));
        Ok(())
    }

    /// Makes batches durable.
    fn write(&self, batches: &[Batch]) -> Result<(), StoreError> {
        let mut journal = lock(&self.journal);
        let first = lock(&self.state).next_batch;
        let (number, length) = (journal.number(), journal.length());
        journal.write(first, batches)?;
        let rows: usize = batches.iter().map(|batch| batch.rows.len()).sum();
        let full = {
            let mut state = lock(&self.state);
            if journal.number() != number {
                // The file before could not be written on.
                let (octets, rows) = std::mem::take(&mut state.open);
                if rows > 0 {
                    state.sealed.push_back((number, octets.max(length)));
                }
            }
            state.open = (journal.length(), state.open.1 + rows);
            state.next_batch = first + batches.len() as u64;
            for batch in batches {
                state.writers.insert(batch.writer.clone(), batch.number);
            }
            state.open.1 >= self.options.seal_rows
        };
        if full {
            // They are durable where they are. Where the next file cannot be made, upkeep tries.
            let _ = self.seal(&mut journal);
        }
        Ok(())
    }

    /// Does what needs the server, and notes whether it answered.
    fn there(&self, run: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        if self.away.load(Ordering::Relaxed) {
            // Where nothing is to be sent, nothing else would find that it is back.
            self.client.run("answer", "SELECT 1")?;
        }
        let done = run();
        let away = matches!(done, Err(StoreError::Unreachable { .. }));
        if self.away.swap(away, Ordering::Relaxed) && !away {
            // Readers left them out.
            self.other_events.fetch_add(1, Ordering::Relaxed);
        }
        done
    }

    /// The event of a number of this station, as the catalogue counts.
    pub(super) fn own_event(&self, id: EventId) -> Option<EventId> {
        (id.0 >> EVENT_BITS == u64::from(self.station))
            .then_some(EventId(id.0 & ((1 << EVENT_BITS) - 1)))
            .filter(|id| id.0 > self.events_before)
    }

    /// Whether an event is one of this station's.
    pub(super) fn is_own_event(&self, id: EventId) -> bool {
        self.own_event(id).is_some()
    }

    /// The number of an event of this station everywhere.
    pub(super) fn everywhere(&self, id: EventId) -> EventId {
        EventId((u64::from(self.station) << EVENT_BITS) | id.0)
    }

    /// Notes that a lot is in the tables: its batches up to `flushed`.
    pub(super) fn sent(
        &self,
        lot: u64,
        flushed: Option<u64>,
        writers: Vec<(String, u64)>,
        event: Option<StoredEvent>,
    ) -> Result<(), StoreError> {
        let (numbers, events) = (vec![(LOT, lot)], event.into_iter().collect());
        let change = Change { flushed, writers, numbers, events, ..Change::default() };
        lock(&self.catalogue).commit(&change)?;
        lock(&self.state).sealed.retain(|(other, _)| *other != lot);
        let path = journal_path(&self.folder.join(JOURNAL), lot);
        // What stays is read at the next start, and found to be sent.
        let _ = HostDisk.remove(&path);
        Ok(())
    }
}

impl StoreBackend for ClickHouseStore {
    fn register_all(&self, labels: &[SeriesLabels]) -> Result<Vec<SeriesId>, StoreError> {
        let mut catalogue = lock(&self.shared.catalogue);
        let known = lock(&self.shared.state).series.clone();
        let last = *series_of(self.shared.station).end();
        let (ids, fresh) = register_in(&known, labels);
        if ids.iter().any(|id| id.0 > last || id.0 < last & !((1 << SERIES_BITS) - 1)) {
            return Err(StoreError::SeriesFull { most: 1 << SERIES_BITS });
        }
        if !fresh.is_empty() {
            catalogue.add_series(fresh.iter())?;
            let mut state = lock(&self.shared.state);
            Arc::make_mut(&mut state.series).extend(&fresh);
        }
        Ok(ids)
    }

    fn last_batch(&self, writer: &str) -> u64 {
        lock(&self.shared.state).writers.get(writer).copied().unwrap_or(0)
    }

    fn writer(&self) -> Result<Box<dyn Writer>, StoreError> {
        match self.shared.writer_taken.swap(true, Ordering::AcqRel) {
            true => Err(StoreError::WriterTaken),
            false => Ok(Box::new(ClickHouseWriter {
                shared: self.shared.clone(),
                waiting: Vec::new(),
                waiting_rows: 0,
                durable: VecDeque::new(),
            })),
        }
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(ClickHouseReader::of_station(self.shared.clone()))
    }

    fn add_event(&self, event: &StoredEvent) -> Result<EventId, StoreError> {
        let id = lock(&self.shared.catalogue).add_event(event)?;
        Ok(self.shared.everywhere(id))
    }

    fn end_event(&self, id: EventId, end_ns: i64) -> Result<bool, StoreError> {
        match self.shared.own_event(id) {
            Some(id) => lock(&self.shared.catalogue).end_event(id, end_ns),
            None => Ok(false),
        }
    }

    fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        match self.shared.own_event(id) {
            Some(id) => lock(&self.shared.catalogue).event(id),
            None => Ok(None),
        }
    }

    /// The catalogue notes that it changed: it is sent again.
    fn note_event(
        &self,
        id: EventId,
        field: &str,
        value: Option<serde_json::Value>,
    ) -> Result<Option<StoredEvent>, StoreError> {
        match self.shared.own_event(id) {
            Some(id) => lock(&self.shared.catalogue).note_event(id, field, value),
            None => Ok(None),
        }
    }

    fn kind(&self) -> &'static str {
        "clickhouse"
    }

    fn seen_after_ns(&self) -> i64 {
        self.shared.options.seal_after_ns.saturating_add(SENT_WITHIN_NS)
    }

    fn spool_octets(&self) -> u64 {
        lock(&self.shared.state).octets()
    }

    fn set_retention(&self, retention: Retention) {
        *lock(&self.shared.retention) = Arc::new(retention);
    }

    /// Sends what is due. After an error it is sent the next time. Of the disk the spool leaves as much
    /// as the rules say.
    fn maintain(&self, now_ns: i64, free: Option<u64>) -> Result<Maintenance, StoreError> {
        let mut upkeep = lock(&self.shared.upkeep);
        let floor = lock(&self.shared.retention).floor_octets;
        let room = free.map(|free| self.spool_octets().saturating_add(free.saturating_sub(floor)));
        // A journal begins with a few octets: an empty spool on a full disk takes nothing, either.
        let room = room.map(|room| if free <= Some(floor) { 0 } else { room });
        self.shared.room_octets.store(room.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.shared.seal_if_due(now_ns, false)?;
        let mut done = Maintenance::default();
        self.shared.there(|| {
            self.shared.ship(&mut upkeep, &mut done)?;
            self.shared.look_at_events(&mut upkeep, now_ns)?;
            self.shared.retain(&mut upkeep, now_ns, &mut done)
        })?;
        Ok(done)
    }

    fn flush(&self) -> Result<Maintenance, StoreError> {
        let mut upkeep = lock(&self.shared.upkeep);
        self.shared.seal_if_due(0, true)?;
        let mut done = Maintenance::default();
        self.shared.there(|| self.shared.ship(&mut upkeep, &mut done))?;
        Ok(done)
    }
}

/// Takes batches into the spool.
pub struct ClickHouseWriter {
    shared: Arc<SpoolShared>,
    /// Taken and not durable yet; `None`: a repeat, which is when those before it are.
    waiting: Vec<(Ticket, Option<Batch>)>,
    waiting_rows: usize,
    durable: VecDeque<Ticket>,
}

impl ClickHouseWriter {
    /// The greatest number of a batch of `writer` that was taken.
    fn last(&self, writer: &str) -> u64 {
        let own = self.waiting.iter().filter(|(ticket, _)| &*ticket.writer == writer);
        let waiting = own.map(|(ticket, _)| ticket.number).max();
        let durable = lock(&self.shared.state).writers.get(writer).copied();
        waiting.max(durable).unwrap_or(0)
    }
}

impl Writer for ClickHouseWriter {
    /// Refuses batches while the spool is as large as it may be.
    fn append(&mut self, batch: &Batch) -> Result<Ticket, StoreError> {
        let ticket = Ticket { writer: batch.writer.clone(), number: batch.number };
        if batch.number <= self.last(&batch.writer) {
            self.waiting.push((ticket.clone(), None));
            return Ok(ticket);
        }
        {
            let state = lock(&self.shared.state);
            if let Some(series) = batch.rows.greatest_series()
                && state.series.get(SeriesId(series)).is_none()
            {
                return Err(StoreError::UnknownSeries(series));
            }
            let octets = state.octets();
            let room = self.shared.room_octets.load(Ordering::Relaxed);
            if octets >= self.shared.options.spool_octets.min(room) {
                return Err(StoreError::SpoolFull { path: self.shared.folder.clone(), octets });
            }
        }
        self.waiting_rows += batch.rows.len();
        self.waiting.push((ticket.clone(), Some(batch.clone())));
        if self.waiting_rows >= FRAME_ROWS {
            // The batch is taken. Whether it is durable, its ticket says.
            let _ = self.sync();
        }
        Ok(ticket)
    }

    /// After an error all that was taken still waits; the next call tries again.
    fn sync(&mut self) -> Result<(), StoreError> {
        let batches: Vec<Batch> =
            self.waiting.iter().filter_map(|(_, batch)| batch.clone()).collect();
        if !batches.is_empty() {
            self.shared.write(&batches)?;
        }
        self.durable.extend(self.waiting.drain(..).map(|(ticket, _)| ticket));
        self.waiting_rows = 0;
        Ok(())
    }

    fn poll_durable(&mut self) -> Option<Ticket> {
        self.durable.pop_front()
    }
}

impl Drop for ClickHouseWriter {
    fn drop(&mut self) {
        let _ = self.sync();
        self.shared.writer_taken.store(false, Ordering::Release);
    }
}

/// A lot that is whole is sent within so long, ns: upkeep comes every second.
const SENT_WITHIN_NS: i64 = 5_000_000_000;
/// Rows that are written without waiting for more.
const FRAME_ROWS: usize = 20_000;
/// Names of numbers in the catalogue.
const STATION: &str = "station";
pub(super) const IDENTITY: &str = "identity";
const LOT: &str = "lot";
const EVENTS_BEFORE: &str = "events_before";
pub(super) const SERIES_SENT: &str = "series_sent";
