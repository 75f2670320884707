//! Answers queries: from the segments and the waiting batches of one instant.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::catalogue::Catalogue;
use super::disk::HostDisk;
use super::journal::{journal_files, journal_path, read_journal};
use super::names::SEGMENTS;
use super::open::{CATALOGUE, JOURNAL, refuse_missing_catalogue, unflushed};
use super::own_files::{note_found, segment_tree};
use super::segment::{RowRange, SegmentReader};
use super::sql::{self, SqlTable, SqlTableInfo};
use super::state::SegmentFile;
use super::{Shared, lock};
use crate::Reader;
use crate::batch::{Batch, Rows};
use crate::column::StoredRow;
use crate::error::StoreError;
use crate::event::{EventId, StoredEvent};
use crate::flow::{FlowRow, FlowSum};
use crate::interface::InterfaceRow;
use crate::interval::IntervalRow;
use crate::query::{self, Limit, Query, Response, RowSink, Scan, Source, TimeRange};
use crate::rtt::RttRow;
use crate::series::{Series, SeriesRegistry};
use crate::table::Table;

/// Reads a store, in the process that writes it or in another one.
#[derive(Clone)]
pub struct EmbeddedReader(Arc<Backing>);

enum Backing {
    /// The process that writes.
    Writer(Arc<Shared>),
    /// Another one.
    Folder {
        folder: PathBuf,
        journal: PathBuf,
        catalogue: Mutex<Catalogue>,
        /// Damaged segments that were met.
        found: Mutex<BTreeSet<PathBuf>>,
    },
}

impl EmbeddedReader {
    pub(super) fn of_writer(shared: Arc<Shared>) -> Self {
        EmbeddedReader(Arc::new(Backing::Writer(shared)))
    }

    /// Reads a store that another process may write. `journal` is the folder of its journal, if
    /// that is not in the store.
    pub fn open(folder: &Path, journal: Option<&Path>) -> Result<Self, StoreError> {
        let journal = journal.map_or_else(|| folder.join(JOURNAL), Path::to_owned);
        if folder.join(SEGMENTS).is_dir() {
            // What lies there tells a store without its catalogue from a folder that is none.
            let whole = segment_tree(folder)?.files.iter().filter(|(_, n)| n.is_whole).count();
            let journals = journal_files(&journal).unwrap_or_default();
            refuse_missing_catalogue(folder, whole as u64, &journal, &journals)?;
        }
        let catalogue = Mutex::new(Catalogue::open_to_read(&folder.join(CATALOGUE))?);
        Ok(EmbeddedReader(Arc::new(Backing::Folder {
            folder: folder.into(),
            journal,
            catalogue,
            found: Mutex::default(),
        })))
    }

    fn catalogue(&self) -> &Mutex<Catalogue> {
        match &*self.0 {
            Backing::Writer(shared) => &shared.catalogue,
            Backing::Folder { catalogue, .. } => catalogue,
        }
    }

    /// Tells the process that writes, or sets it aside, if this is that process. Where that cannot be
    /// noted, the answer says it all the same.
    fn tell_of_damage(&self, path: &Path, what: &str) {
        match &*self.0 {
            Backing::Writer(shared) => drop(shared.set_aside(path, what)),
            Backing::Folder { folder, found, .. } => {
                note_found(folder, path);
                let path = path.strip_prefix(folder).unwrap_or(path);
                lock(found).insert(path.to_owned());
            }
        }
    }

    fn snapshot(&self, skip: &HashSet<PathBuf>) -> Result<Snapshot<'_>, StoreError> {
        let (segments, batches, series) = match &*self.0 {
            Backing::Writer(shared) => {
                let state = lock(&shared.state);
                (state.segments.clone(), state.waiting(), state.series.clone())
            }
            Backing::Folder { folder, journal, catalogue, .. } => {
                // The journal first. What moves into segments meanwhile is found there.
                let mut contents = Vec::new();
                for number in journal_files(journal)? {
                    match read_journal(&journal_path(journal, number)) {
                        Ok(content) => contents.push(content),
                        Err(StoreError::Io { cause, .. })
                            if cause.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
                let content = lock(catalogue).load()?;
                let of = |record: super::catalogue::SegmentRecord| {
                    let path = folder.join(&record.path);
                    SegmentFile::new(record, path, Arc::new(HostDisk))
                };
                let segments = Arc::new(content.segments.into_iter().map(of).collect());
                let mut writers: HashMap<Arc<str>, u64> =
                    content.writers.into_iter().map(|(name, last)| (name.into(), last)).collect();
                let waiting = unflushed(contents, content.flushed, &mut writers);
                let mut series = SeriesRegistry::default();
                for labels in content.series {
                    series.add(labels);
                }
                let batches = waiting.into_iter().map(|(_, batch)| batch).collect();
                (segments, batches, Arc::new(series))
            }
        };
        let skip = skip.clone();
        Ok(Snapshot { segments, batches, series, skip, reader: self, broken: None })
    }
}

impl Reader for EmbeddedReader {
    fn query(&self, query: &Query, limit: &Limit) -> Result<Response, StoreError> {
        let (mut response, damaged) =
            self.of_one_instant(|snapshot| query::answer(query, snapshot, limit))?;
        response.damaged_segments += damaged;
        Ok(response)
    }

    fn sql(&self, text: &str, range: TimeRange, limit: &Limit) -> Result<SqlTable, StoreError> {
        let catalogue = match &*self.0 {
            Backing::Writer(shared) => shared.folder.join(CATALOGUE),
            Backing::Folder { folder, .. } => folder.join(CATALOGUE),
        };
        let (mut table, damaged) =
            self.of_one_instant(|snapshot| sql::answer(text, range, limit, snapshot, &catalogue))?;
        table.damaged_segments = damaged;
        Ok(table)
    }

    fn ask_source(
        &self,
        _: &Limit,
        ask: &dyn Fn(&dyn Source) -> Result<u64, StoreError>,
    ) -> Result<(u64, u64), StoreError> {
        // Rows go out as they are read, so nothing is begun anew for a damaged segment.
        self.ask(true, |snapshot| ask(snapshot))
    }

    fn damaged(&self) -> Vec<String> {
        match &*self.0 {
            Backing::Writer(_) => Vec::new(),
            Backing::Folder { found, .. } => {
                lock(found).iter().map(|path| path.display().to_string()).collect()
            }
        }
    }

    fn series(&self) -> Result<Vec<Series>, StoreError> {
        Ok(self.snapshot(&HashSet::new())?.series.iter().cloned().collect())
    }

    fn sql_tables(&self) -> Vec<SqlTableInfo> {
        sql::sql_tables()
    }

    fn event_changes(&self) -> Option<u64> {
        match &*self.0 {
            Backing::Writer(shared) => Some(lock(&shared.catalogue).event_changes()),
            Backing::Folder { .. } => None,
        }
    }
}

impl EmbeddedReader {
    /// Asks what the store has at an instant; and how many segments could not be read.
    pub(super) fn of_one_instant<T>(
        &self,
        ask: impl Fn(&Snapshot) -> Result<T, StoreError>,
    ) -> Result<(T, u64), StoreError> {
        self.ask(false, ask)
    }

    /// The same. `goes_on`: where a segment is damaged, the rows before stay, and the next segment
    /// follows; else the question is asked again without it.
    fn ask<T>(
        &self,
        goes_on: bool,
        ask: impl Fn(&Snapshot) -> Result<T, StoreError>,
    ) -> Result<(T, u64), StoreError> {
        let mut skip = HashSet::new();
        let mut tries = 0;
        loop {
            let mut snapshot = self.snapshot(&skip)?;
            snapshot.broken = goes_on.then(Mutex::default);
            let answered = ask(&snapshot);
            match answered {
                // One bad segment costs its rows, not the answer.
                Err(StoreError::Damaged { path, what }) if !skip.contains(&path) => {
                    self.tell_of_damage(&path, &what);
                    skip.insert(path);
                }
                // Another process compacted it away since the catalogue was read.
                Err(StoreError::Io { cause, .. })
                    if cause.kind() == io::ErrorKind::NotFound && tries < TRIES =>
                {
                    tries += 1;
                }
                answer => {
                    let broken = snapshot.broken.map_or(0, |broken| lock(&broken).len());
                    return answer.map(|answer| (answer, (skip.len() + broken) as u64));
                }
            }
        }
    }
}

/// All that a query sees.
pub(super) struct Snapshot<'a> {
    segments: Arc<Vec<Arc<SegmentFile>>>,
    batches: Vec<Batch>,
    series: Arc<SeriesRegistry>,
    skip: HashSet<PathBuf>,
    reader: &'a EmbeddedReader,
    /// Damaged segments that were passed over; `None`: they are errors.
    broken: Option<Mutex<HashSet<PathBuf>>>,
}

impl Snapshot<'_> {
    /// The rows of segments of `table`, and of those that are not in it yet.
    fn segments<R: StoredRow>(
        &self,
        scan: &Scan,
        tables: &[(Table, bool)],
        sink: &mut RowSink<R>,
    ) -> Result<(), StoreError> {
        let range = row_range(scan);
        let wanted_series = scan.series.as_ref();
        for segment in self.segments.iter() {
            let r = &segment.record;
            let whole = tables.iter().find(|(table, _)| *table == r.table);
            let Some(&(table, all)) = whole else { continue };
            if (r.rolled && !all)
                || !range.meets(r.times_ns, r.series)
                || self.skip.contains(segment.path())
            {
                continue;
            }
            let known = (r.octets, &r.crcs[..]);
            let mut read = || {
                let mut reader =
                    SegmentReader::<R>::open(segment.path(), known, table, range, scan.columns)?;
                // Each block is checked before its octets are used: rows before the damage are whole.
                while let Some(rows) = reader.next(AT_ONCE)? {
                    for row in &rows {
                        if wanted_series.is_none_or(|set| set.contains(&row.series())) {
                            sink(row)?;
                        }
                    }
                }
                Ok(())
            };
            match (read(), &self.broken) {
                (Err(StoreError::Damaged { path, what }), Some(broken)) => {
                    self.reader.tell_of_damage(&path, &what);
                    lock(broken).insert(path);
                }
                (read, _) => read?,
            }
        }
        Ok(())
    }
}

impl Source for Snapshot<'_> {
    fn series(&self) -> Vec<Series> {
        self.series.iter().cloned().collect()
    }

    fn intervals(
        &self,
        level: Table,
        scan: &Scan,
        sink: &mut RowSink<IntervalRow>,
    ) -> Result<(), StoreError> {
        self.segments(scan, &tables_of(level), sink)?;
        for batch in &self.batches {
            if let Rows::Intervals(rows) = &*batch.rows {
                for row in rows.iter().filter(|row| scan.holds(*row)) {
                    sink(row)?;
                }
            }
        }
        Ok(())
    }

    fn flows(&self, scan: &Scan, sink: &mut RowSink<FlowRow>) -> Result<(), StoreError> {
        self.segments(scan, &[(Table::Flow, true)], sink)?;
        for batch in &self.batches {
            if let Rows::Flows(rows) = &*batch.rows {
                for row in rows.iter().filter(|row| scan.holds(*row)) {
                    sink(row)?;
                }
            }
        }
        Ok(())
    }

    fn flow_sums(
        &self,
        level: Table,
        scan: &Scan,
        sink: &mut RowSink<FlowSum>,
    ) -> Result<(), StoreError> {
        self.segments(scan, &tables_of(level), sink)?;
        for batch in &self.batches {
            if let Rows::Flows(rows) = &*batch.rows {
                for row in rows {
                    let sum = row.to_sum(Table::Flow5m.step_ns());
                    if scan.holds(&sum) {
                        sink(&sum)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn rtt(&self, level: Table, scan: &Scan, sink: &mut RowSink<RttRow>) -> Result<(), StoreError> {
        self.segments(scan, &tables_of(level), sink)?;
        for batch in &self.batches {
            if let Rows::Rtt(rows) = &*batch.rows {
                for row in rows.iter().filter(|row| scan.holds(*row)) {
                    sink(row)?;
                }
            }
        }
        Ok(())
    }

    fn interfaces(
        &self,
        level: Table,
        scan: &Scan,
        sink: &mut RowSink<InterfaceRow>,
    ) -> Result<(), StoreError> {
        self.segments(scan, &tables_of(level), sink)?;
        for batch in &self.batches {
            if let Rows::Interfaces(rows) = &*batch.rows {
                for row in rows.iter().filter(|row| scan.holds(*row)) {
                    sink(row)?;
                }
            }
        }
        Ok(())
    }

    fn oldest_ns(&self, table: Table) -> Option<i64> {
        let own = self.segments.iter().filter(|s| s.record.table == table);
        own.map(|s| s.record.times_ns.0).min()
    }

    fn events(&self, from_ns: i64, to_ns: i64) -> Result<Vec<(EventId, StoredEvent)>, StoreError> {
        lock(self.reader.catalogue()).events(from_ns, to_ns)
    }

    fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        lock(self.reader.catalogue()).event(id)
    }
}

/// The tables that hold each row once, as coarse as `level`: all of it, and of finer ones what is
/// not rolled up yet. At the full rate nothing else is needed: its segments are always rolled up.
fn tables_of(level: Table) -> Vec<(Table, bool)> {
    let mut all = vec![(level, true)];
    let mut table = level;
    while let Some(finer) = table.finer().filter(|finer| !finer.is_raw()) {
        all.push((finer, false));
        table = finer;
    }
    all
}

fn row_range(scan: &Scan) -> RowRange {
    let bounds = |set: &BTreeSet<u32>| {
        let (Some(&first), Some(&last)) = (set.first(), set.last()) else { return (1, 0) };
        (first, last)
    };
    let series = scan.series.as_ref().map_or((0, u32::MAX), bounds);
    RowRange { times_ns: (scan.from_ns, scan.to_ns), series }
}

/// Rows that are read at once.
const AT_ONCE: usize = 4_096;
/// Compactions by another process that a query survives.
const TRIES: u32 = 20;
