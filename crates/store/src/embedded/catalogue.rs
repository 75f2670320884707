//! The catalogue: which segments there are, which series, which batches were kept; events.
//!
//! SQLite with a write-ahead log and synchronous = FULL: a transaction that returned is on the disk.
//! What is not in it does not exist, whatever files there are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, Transaction, params};

use super::disk::create_new;
use crate::error::StoreError;
use crate::event::{EventId, EventSeverity, StoredEvent};
use crate::series::{Series, SeriesId, SeriesLabels};
use crate::table::Table;

/// The catalogue's file.
pub(crate) struct Catalogue {
    path: PathBuf,
    connection: Connection,
    /// How often events were added or changed by this connection.
    event_changes: u64,
}

/// The number of a segment in one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

/// What the catalogue knows of a segment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SegmentRecord {
    pub(crate) id: SegmentId,
    pub(crate) table: Table,
    /// Relative to the folder of the store.
    pub(crate) path: String,
    /// Least and greatest time of a row, ns since 1970 UTC.
    pub(crate) times_ns: (i64, i64),
    /// Least and greatest number of a series.
    pub(crate) series: (u32, u32),
    pub(crate) rows: u64,
    pub(crate) octets: u64,
    pub(crate) crcs: Vec<u32>,
    /// Its rows are in the next coarser table, too.
    pub(crate) rolled: bool,
    /// How often its rows were compacted.
    pub(crate) tier: u8,
}

/// What happens to the store at once, or not at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(crate) add: Vec<SegmentRecord>,
    pub(crate) remove: Vec<SegmentId>,
    /// Those whose rows are now in the coarser table.
    pub(crate) rolled: Vec<SegmentId>,
    /// Batches up to this number are in segments.
    pub(crate) flushed: Option<u64>,
    /// The last batch of each writer among them.
    pub(crate) writers: Vec<(String, u64)>,
    pub(crate) events: Vec<StoredEvent>,
    /// Numbers that are kept under their names; the greater one stays.
    pub(crate) numbers: Vec<(&'static str, u64)>,
}

/// What is read at the start.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) segments: Vec<SegmentRecord>,
    /// By number.
    pub(crate) series: Vec<SeriesLabels>,
    pub(crate) writers: Vec<(String, u64)>,
    pub(crate) flushed: u64,
    /// The greatest number that any segment ever had.
    pub(crate) last_segment: u64,
}

impl Catalogue {
    /// Opens it, makes it where there is none, and brings an earlier version up to date.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        own_or_new(path).map_err(StoreError::io("open", path))?;
        let mut catalogue = Self::connect(path, OpenFlags::default())?;
        catalogue.set_up().map_err(catalogue.failed("set up tables"))?;
        catalogue.check()?;
        catalogue.migrate()?;
        Ok(catalogue)
    }

    /// Opens it beside the process that writes, which may be of an earlier version: no step takes
    /// away what is read.
    pub(crate) fn open_to_read(path: &Path) -> Result<Self, StoreError> {
        // Not read-only to SQLite: the index of its log is shared memory that readers write, too.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let catalogue = Self::connect(path, flags)?;
        let query_only = catalogue.connection.pragma_update(None, "query_only", true);
        query_only.map_err(catalogue.failed("read"))?;
        let version = catalogue.version()?;
        if version > SCHEMA_VERSION {
            let what = format!("schema {version}; this version reads {SCHEMA_VERSION}");
            return Err(StoreError::Newer { path: path.to_owned(), what });
        }
        if version == 0 {
            return Err(StoreError::NoStore { path: path.to_owned() });
        }
        Ok(catalogue)
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let opened = Connection::open_with_flags(path, flags).and_then(|connection| {
            connection.busy_timeout(Duration::from_secs(10))?;
            Ok(connection)
        });
        let connection = opened.map_err(|cause| StoreError::Catalogue {
            what: "open a connection",
            path: path.to_owned(),
            cause,
        })?;
        Ok(Catalogue { path: path.to_owned(), connection, event_changes: 0 })
    }

    /// Looks at all pages: a damaged one would be met at any time, in the midst of a change.
    fn check(&self) -> Result<(), StoreError> {
        let check = || {
            let mut select = self.connection.prepare("PRAGMA quick_check(1)")?;
            select.query_row([], |row| row.get::<_, String>(0))
        };
        match check().map_err(self.failed("check the pages"))?.as_str() {
            "ok" => Ok(()),
            what => {
                // Line breaks stand in some.
                let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
                Err(StoreError::CatalogueDamaged { folder: folder_of(&self.path), what })
            }
        }
    }

    fn set_up(&self) -> rusqlite::Result<()> {
        self.connection.pragma_update(None, "journal_mode", "WAL")?;
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        self.connection.pragma_update(None, "journal_size_limit", LOG_LIMIT)
    }

    fn version(&self) -> Result<u32, StoreError> {
        let version = self.connection.pragma_query_value(None, "user_version", |row| row.get(0));
        version.map_err(self.failed("read the version"))
    }

    /// Each step brings one version to the next, in a transaction of its own.
    fn migrate(&mut self) -> Result<(), StoreError> {
        let found = self.version()?;
        if found > SCHEMA_VERSION {
            let what = format!("schema {found}; this version knows {SCHEMA_VERSION}");
            return Err(StoreError::Newer { path: self.path.clone(), what });
        }
        for step in found..SCHEMA_VERSION {
            self.transaction("bring the schema up to date", |t| {
                t.execute_batch(STEPS[step as usize])?;
                t.pragma_update(None, "user_version", step + 1)
            })?;
        }
        Ok(())
    }

    fn failed(&self, what: &'static str) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
        let path = self.path.clone();
        move |cause| match damage_of(&cause) {
            Some(found) => StoreError::CatalogueDamaged {
                folder: folder_of(&path),
                what: format!("cannot {what}: {found}"),
            },
            None => StoreError::Catalogue { what, path: path.clone(), cause },
        }
    }

    fn transaction<T>(
        &mut self,
        what: &'static str,
        run: impl FnOnce(&Transaction) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let failed = self.failed(what);
        let run_all = || {
            let transaction = self.connection.transaction()?;
            let result = run(&transaction)?;
            transaction.commit()?;
            Ok(result)
        };
        run_all().map_err(failed)
    }

    /// Reads all but events.
    pub(crate) fn load(&mut self) -> Result<Content, StoreError> {
        let failed = self.failed("read the segments");
        let mut content = Content::default();
        let mut read = || {
            // One transaction: all of it is of one instant.
            let t = self.connection.transaction()?;
            let mut select = t.prepare(
                "SELECT id, tab, path, t0, t1, k0, k1, rows, bytes, crcs, rolled, tier FROM segment ORDER BY id",
            )?;
            content.segments = select.query_map([], segment_of)?.collect::<Result<_, _>>()?;
            let mut select = t.prepare("SELECT labels FROM series ORDER BY id")?;
            content.series = select.query_map([], labels_of)?.collect::<Result<_, _>>()?;
            let mut select = t.prepare("SELECT name, last FROM writer")?;
            let rows =
                select.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
            content.writers = rows.collect::<Result<_, _>>()?;
            let number = |key: &str| -> rusqlite::Result<u64> {
                let sql = "SELECT coalesce(max(value), 0) FROM meta WHERE key = ?";
                t.query_row(sql, [key], |row| row.get::<_, i64>(0)).map(|n| n as u64)
            };
            content.flushed = number("flushed")?;
            content.last_segment = number("last_segment")?;
            Ok(())
        };
        read().map_err(failed)?;
        Ok(content)
    }

    /// How often events were added or changed by this connection.
    pub(crate) fn event_changes(&self) -> u64 {
        self.event_changes
    }

    /// The only commit point of the store.
    pub(crate) fn commit(&mut self, change: &Change) -> Result<(), StoreError> {
        self.event_changes += u64::from(!change.events.is_empty());
        self.transaction("commit segments", |t| {
            for id in &change.remove {
                t.execute("DELETE FROM segment WHERE id = ?", [id.0 as i64])?;
            }
            for id in &change.rolled {
                t.execute("UPDATE segment SET rolled = 1 WHERE id = ?", [id.0 as i64])?;
            }
            for s in &change.add {
                insert_segment(t, s)?;
                set(t, "last_segment", s.id.0)?;
            }
            if let Some(flushed) = change.flushed {
                set(t, "flushed", flushed)?;
            }
            for &(name, number) in &change.numbers {
                set(t, name, number)?;
            }
            for (name, last) in &change.writers {
                t.execute(
                    "INSERT INTO writer (name, last) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET last = max(last, ?2)",
                    params![name, *last as i64],
                )?;
            }
            change.events.iter().try_for_each(|event| insert_event(t, event))
        })
    }

    /// Registers series: all of them, or none.
    pub(crate) fn add_series<'a>(
        &mut self,
        all: impl IntoIterator<Item = &'a Series>,
    ) -> Result<(), StoreError> {
        self.transaction("register series", |t| {
            let mut insert = t.prepare(
                "INSERT INTO series (id, labels, station, site, target, class, module, direction, source_port, destination_port)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?;
            for Series { id, labels } in all {
                insert.execute(params![
                    id.0,
                    serde_json::to_string(labels).unwrap_or_default(),
                    labels.station,
                    labels.site,
                    labels.target,
                    labels.class,
                    labels.module,
                    labels.direction.name(),
                    labels.source_port,
                    labels.destination_port
                ])?;
            }
            Ok(())
        })
    }

    /// How many transactions were committed since this call.
    #[cfg(test)]
    pub(crate) fn count_commits(&mut self) -> std::sync::Arc<std::sync::atomic::AtomicU64> {
        let count = std::sync::Arc::<std::sync::atomic::AtomicU64>::default();
        let counting = count.clone();
        let hook = move || {
            counting.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            false
        };
        self.connection.commit_hook(Some(hook)).unwrap();
        count
    }

    /// A number that is kept under that name.
    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, StoreError> {
        let sql = "SELECT value FROM meta WHERE key = ?";
        let found = self.connection.query_row(sql, [key], |row| row.get::<_, i64>(0));
        found.map(|n| n as u64).optional().map_err(self.failed("read a number"))
    }

    /// Keeps numbers under their names, all of them or none; the greater one where there is one.
    pub(crate) fn set_numbers(&mut self, numbers: &[(&str, u64)]) -> Result<(), StoreError> {
        self.transaction("keep numbers", |t| {
            numbers.iter().try_for_each(|&(key, value)| set(t, key, value).map(drop))
        })
    }

    /// The next event has a greater number than `last`.
    pub(crate) fn number_events_after(&mut self, last: u64) -> Result<(), StoreError> {
        self.transaction("number events", |t| {
            t.execute(
                "DELETE FROM sqlite_sequence WHERE name = 'event' AND seq < ?",
                [last as i64],
            )?;
            t.execute(
                "INSERT INTO sqlite_sequence (name, seq) SELECT 'event', ?1
                 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'event')",
                [last as i64],
            )
        })?;
        Ok(())
    }

    /// The last batch that is in segments, and the last one of each writer among them.
    pub(crate) fn sent(&self) -> Result<(u64, Vec<(String, u64)>), StoreError> {
        let read = || {
            let mut select = self.connection.prepare("SELECT name, last FROM writer")?;
            let rows =
                select.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let writers = read().map_err(self.failed("read the writers"))?;
        Ok((self.number("flushed")?.unwrap_or(0), writers))
    }

    /// From now on [`Catalogue::changed_events`] says which events are new or changed.
    pub(crate) fn watch_events(&mut self) -> Result<(), StoreError> {
        self.transaction("watch events", |t| t.execute_batch(include_str!("schema/outbox.sql")))
    }

    /// Events that were added or changed and not sent yet: the number of the change, and the event.
    pub(crate) fn changed_events(
        &self,
        most: u64,
    ) -> Result<Vec<(u64, EventId, StoredEvent)>, StoreError> {
        let read = || {
            let mut select = self
                .connection
                .prepare("SELECT change, event FROM outbox ORDER BY change LIMIT ?")?;
            let rows = select.query_map([most as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(i64, i64)>>>()
        };
        let mut all = Vec::new();
        for (change, id) in read().map_err(self.failed("read events"))? {
            let id = EventId(id as u64);
            if let Some(event) = self.event(id)? {
                all.push((change as u64, id, event));
            }
        }
        Ok(all)
    }

    /// Those changes were sent. One that came since is sent by itself.
    pub(crate) fn sent_events(&mut self, changes: &[u64]) -> Result<(), StoreError> {
        self.transaction("note sent events", |t| {
            let mut delete = t.prepare("DELETE FROM outbox WHERE change = ?")?;
            changes.iter().try_for_each(|&change| delete.execute([change as i64]).map(drop))
        })
    }

    /// Keeps an event.
    pub(crate) fn add_event(&mut self, event: &StoredEvent) -> Result<EventId, StoreError> {
        self.event_changes += 1;
        self.transaction("keep an event", |t| {
            insert_event(t, event)?;
            Ok(EventId(t.last_insert_rowid() as u64))
        })
    }

    /// Says when an event ended. `false`: there is none of that number.
    pub(crate) fn end_event(&mut self, id: EventId, end_ns: i64) -> Result<bool, StoreError> {
        self.event_changes += 1;
        self.transaction("end an event", |t| {
            let sql = "UPDATE event SET end_ns = ? WHERE id = ?";
            Ok(t.execute(sql, params![end_ns, id.0 as i64])? > 0)
        })
    }

    /// Sets a field of an event's evidence, or takes it out. `None`: there is none of that number.
    pub(crate) fn note_event(
        &mut self,
        id: EventId,
        field: &str,
        value: Option<serde_json::Value>,
    ) -> Result<Option<StoredEvent>, StoreError> {
        // The connection is locked: nobody else changes the event between the two.
        let Some(mut event) = self.event(id)? else { return Ok(None) };
        if !event.evidence.is_object() {
            event.evidence = serde_json::json!({ "value": event.evidence });
        }
        if let Some(fields) = event.evidence.as_object_mut() {
            match value {
                Some(value) => fields.insert(field.to_owned(), value),
                None => fields.remove(field),
            };
        }
        self.event_changes += 1;
        self.transaction("note on an event", |t| {
            let sql = "UPDATE event SET evidence = ? WHERE id = ?";
            t.execute(sql, params![event.evidence.to_string(), id.0 as i64])
        })?;
        Ok(Some(event))
    }

    /// The event of that number.
    pub(crate) fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        let mut found = self.select_events("WHERE id = ?1", [id.0 as i64])?;
        Ok(found.pop().map(|(_, event)| event))
    }

    /// The events of a kind that last.
    pub(crate) fn lasting(&self, kind: &str) -> Result<Vec<(EventId, StoredEvent)>, StoreError> {
        self.select_events("WHERE kind = ?1 AND end_ns IS NULL ORDER BY id", [kind])
    }

    /// Events that lasted at some time of [`from_ns`, `to_ns`), by their begin.
    pub(crate) fn events(
        &self,
        from_ns: i64,
        to_ns: i64,
    ) -> Result<Vec<(EventId, StoredEvent)>, StoreError> {
        self.select_events(
            "WHERE begin_ns < ?2 AND (end_ns IS NULL OR end_ns >= ?1) ORDER BY begin_ns, id",
            [from_ns, to_ns],
        )
    }

    fn select_events(
        &self,
        which: &str,
        of: impl rusqlite::Params,
    ) -> Result<Vec<(EventId, StoredEvent)>, StoreError> {
        let columns = "id, kind, severity, series, begin_ns, end_ns, title, evidence";
        let read = || {
            let mut select =
                self.connection.prepare(&format!("SELECT {columns} FROM event {which}"))?;
            let rows = select.query_map(of, |row| {
                let (severity, evidence): (String, String) = (row.get(2)?, row.get(7)?);
                let event = StoredEvent {
                    kind: row.get(1)?,
                    severity: EventSeverity::from_name(&severity)
                        .ok_or_else(|| unreadable(2, severity))?,
                    series: row.get::<_, Option<u32>>(3)?.map(SeriesId),
                    begin_ns: row.get(4)?,
                    end_ns: row.get(5)?,
                    title: row.get(6)?,
                    evidence: serde_json::from_str(&evidence)
                        .map_err(|e| unreadable(7, e.to_string()))?,
                };
                Ok((EventId(row.get::<_, i64>(0)? as u64), event))
            })?;
            rows.collect::<Result<_, _>>()
        };
        read().map_err(self.failed("read events"))
    }

    /// Copies it while it is written to.
    pub(crate) fn back_up(&self, to: &Path) -> Result<(), StoreError> {
        create_new(to).map_err(StoreError::io("create", to))?;
        let copy = || {
            let mut target = Connection::open(to)?;
            let backup = rusqlite::backup::Backup::new(&self.connection, &mut target)?;
            backup.run_to_completion(256, Duration::ZERO, None)
        };
        copy().map_err(self.failed("copy all"))
    }
}

/// Makes the file for owner and group, as SQLite makes those beside it then. One that is there must be
/// no link, nor those beside it.
fn own_or_new(path: &Path) -> io::Result<()> {
    for end in ["-wal", "-shm", "-journal"] {
        let mut beside = path.as_os_str().to_owned();
        beside.push(end);
        match fs::symlink_metadata(&beside) {
            Ok(about) if !about.is_file() => {
                let why = format!("{} is no regular file; remove it", Path::new(&beside).display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            _ => {}
        }
    }
    match create_new(path) {
        // It is not opened here: closing it would end the locks that this process has on it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match fs::symlink_metadata(path)?.is_file() {
                true => Ok(()),
                false => {
                    let why = "it is a link, or no regular file; put the file in its place";
                    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
                }
            }
        }
        created => created.map(drop),
    }
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

/// What is wrong with the file itself, where an error says that; `None`: it is another error.
fn damage_of(error: &rusqlite::Error) -> Option<String> {
    use rusqlite::Error::{
        FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, QueryReturnedNoRows,
        Utf8Error,
    };
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match error {
        FromSqlConversionFailure(..)
        | IntegralValueOutOfRange(..)
        | InvalidColumnType(..)
        | QueryReturnedNoRows
        | Utf8Error(..) => Some("a value there is none that Sonde writes".into()),
        error => match error.sqlite_error_code()? {
            DatabaseCorrupt => Some("its pages do not fit together".into()),
            NotADatabase => Some("it is no database".into()),
            _ => None,
        },
    }
}

fn insert_segment(t: &Transaction, s: &SegmentRecord) -> rusqlite::Result<()> {
    let crcs: Vec<u8> = s.crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect();
    t.execute(
        "INSERT INTO segment (id, tab, path, t0, t1, k0, k1, rows, bytes, crcs, rolled, tier)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            s.id.0 as i64,
            s.table.name(),
            s.path,
            s.times_ns.0,
            s.times_ns.1,
            s.series.0,
            s.series.1,
            s.rows as i64,
            s.octets as i64,
            crcs,
            s.rolled,
            s.tier
        ],
    )?;
    Ok(())
}

fn insert_event(t: &Transaction, event: &StoredEvent) -> rusqlite::Result<()> {
    t.execute(
        "INSERT INTO event (kind, severity, series, begin_ns, end_ns, title, evidence)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
        params![
            event.kind,
            event.severity.name(),
            event.series.map(|s| s.0),
            event.begin_ns,
            event.end_ns,
            event.title,
            event.evidence.to_string()
        ],
    )?;
    Ok(())
}

fn set(t: &Transaction, key: &str, value: u64) -> rusqlite::Result<usize> {
    let sql = "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = max(value, ?2)";
    t.execute(sql, params![key, value as i64])
}

fn segment_of(row: &Row) -> rusqlite::Result<SegmentRecord> {
    let (table, crcs): (String, Vec<u8>) = (row.get(1)?, row.get(9)?);
    Ok(SegmentRecord {
        id: SegmentId(row.get::<_, i64>(0)? as u64),
        table: Table::from_name(&table).ok_or_else(|| unreadable(1, table))?,
        path: row.get(2)?,
        times_ns: (row.get(3)?, row.get(4)?),
        series: (row.get(5)?, row.get(6)?),
        rows: row.get::<_, i64>(7)? as u64,
        octets: row.get::<_, i64>(8)? as u64,
        crcs: crcs.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect(),
        rolled: row.get(10)?,
        tier: row.get(11)?,
    })
}

fn labels_of(row: &Row) -> rusqlite::Result<SeriesLabels> {
    let json: String = row.get(0)?;
    serde_json::from_str(&json).map_err(|e| unreadable(0, e.to_string()))
}

fn unreadable(column: usize, what: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what.into())
}

/// The version of the store that this program writes. It reads all before it.
pub const SCHEMA_VERSION: u32 = STEPS.len() as u32;

/// What brings each version to the next. A step that was released is never changed.
const STEPS: [&str; 2] = [include_str!("schema/1.sql"), include_str!("schema/2.sql")];

/// What the log may keep on the disk once it was written back, octets.
const LOG_LIMIT: i64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    fn record(id: u64) -> SegmentRecord {
        SegmentRecord {
            id: SegmentId(id),
            table: Table::Interval1m,
            path: format!("seg/iv1m/{id}.parquet"),
            times_ns: (-5, 1_795_647_600_000_000_000),
            series: (0, u32::MAX),
            rows: 3,
            octets: 1 << 40,
            crcs: vec![0, u32::MAX, 7],
            rolled: false,
            tier: 2,
        }
    }

    #[test]
    fn what_is_committed_is_loaded() {
        let folder = Folder::new();
        let path = folder.path().join("catalogue.db");
        let mut catalogue = Catalogue::open(&path).unwrap();
        let labels = SeriesLabels { target: "a".into(), ..SeriesLabels::default() };
        catalogue.add_series([&Series { id: SeriesId(0), labels: labels.clone() }]).unwrap();
        let change = Change {
            add: vec![record(4), record(5), record(6)],
            flushed: Some(9),
            writers: vec![("probe".into(), 12)],
            ..Change::default()
        };
        catalogue.commit(&change).unwrap();
        let change = Change {
            remove: vec![SegmentId(6)],
            rolled: vec![SegmentId(5)],
            writers: vec![("probe".into(), 11)],
            ..Change::default()
        };
        catalogue.commit(&change).unwrap();
        drop(catalogue);
        let mut catalogue = Catalogue::open(&path).unwrap();
        let content = catalogue.load().unwrap();
        assert_eq!(content.segments, [record(4), SegmentRecord { rolled: true, ..record(5) }]);
        assert_eq!((content.flushed, content.last_segment), (9, 6));
        assert_eq!(content.writers, [("probe".to_owned(), 12)], "it never goes back");
        assert_eq!(content.series, [labels]);
        // Another process reads beside it.
        let mut reader = Catalogue::open_to_read(&path).unwrap();
        assert_eq!(reader.load().unwrap().segments.len(), 2);
        assert!(reader.commit(&change).is_err());
    }

    #[test]
    fn a_failed_commit_changes_nothing() {
        let folder = Folder::new();
        let mut catalogue = Catalogue::open(&folder.path().join("c.db")).unwrap();
        catalogue.commit(&Change { add: vec![record(1)], ..Change::default() }).unwrap();
        let change = Change {
            remove: vec![SegmentId(1)],
            add: vec![record(2), record(2)],
            flushed: Some(5),
            ..Change::default()
        };
        let error = catalogue.commit(&change).unwrap_err();
        assert!(matches!(error, StoreError::Catalogue { .. }), "{error}");
        let content = catalogue.load().unwrap();
        assert_eq!((content.segments, content.flushed), (vec![record(1)], 0));
    }

    #[test]
    fn a_later_schema_is_refused() {
        let folder = Folder::new();
        let path = folder.path().join("c.db");
        let catalogue = Catalogue::open(&path).unwrap();
        catalogue.connection.pragma_update(None, "user_version", SCHEMA_VERSION + 1).unwrap();
        drop(catalogue);
        for opened in [Catalogue::open(&path), Catalogue::open_to_read(&path)] {
            assert!(matches!(opened.err(), Some(StoreError::Newer { .. })));
        }
    }

    #[test]
    fn events_are_kept_and_ended() {
        let folder = Folder::new();
        let mut catalogue = Catalogue::open(&folder.path().join("c.db")).unwrap();
        let event = StoredEvent {
            kind: "breach".into(),
            severity: EventSeverity::Critical,
            series: Some(SeriesId(3)),
            begin_ns: 100,
            end_ns: None,
            title: "loss".into(),
            evidence: serde_json::json!({"n": 600, "lost": 3}),
        };
        let id = catalogue.add_event(&event).unwrap();
        assert_eq!(catalogue.events(200, 300).unwrap(), [(id, event.clone())], "it lasts");
        assert_eq!(catalogue.events(0, 100).unwrap(), []);
        assert!(catalogue.end_event(id, 150).unwrap());
        assert!(!catalogue.end_event(EventId(99), 150).unwrap());
        assert_eq!(catalogue.events(200, 300).unwrap(), []);
        assert_eq!(catalogue.event(id).unwrap().unwrap().end_ns, Some(150));
        let note = |catalogue: &mut Catalogue, value| {
            catalogue.note_event(id, "acknowledged", value).unwrap().unwrap().evidence
        };
        let by = serde_json::json!({"by": "ann"});
        let noted = note(&mut catalogue, Some(by.clone()));
        assert_eq!(noted, serde_json::json!({"n": 600, "lost": 3, "acknowledged": by}));
        assert_eq!(catalogue.event(id).unwrap().unwrap().evidence, noted);
        assert_eq!(note(&mut catalogue, None), event.evidence, "the rest is as it was");
        let changes = catalogue.event_changes();
        assert_eq!(catalogue.note_event(EventId(99), "a", None).unwrap(), None);
        assert_eq!(catalogue.event_changes(), changes);
        catalogue.end_event(id, 160).unwrap();
        assert_ne!(catalogue.event_changes(), changes);
    }
}
