//! Opens a store, and puts in order what a crash left.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::catalogue::{Catalogue, Change, SegmentRecord};
use super::disk::Disk;
use super::flush::SEGMENTS;
use super::journal::{Journal, JournalContent, journal_files, journal_path, read_journal};
use super::room::{DAMAGED, RESERVE};
use super::state::{Generation, SegmentFile, State};
use super::{Shared, StoreOptions};
use crate::batch::Batch;
use crate::error::StoreError;
use crate::event::{EventSeverity, StoredEvent};
use crate::series::SeriesRegistry;

/// What was found when a store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Batches of the journal that were in no segment.
    pub batches: u64,
    /// Their rows.
    pub rows: u64,
    /// Octets of frames that were being written when the last process ended: never acknowledged.
    pub torn_octets: u64,
    /// Octets of the journal that were damaged: what they held is lost.
    pub damaged_octets: u64,
    /// Files that were no segments yet, or no more.
    pub orphans: u64,
    /// Segments that were missing, or not as long as they were written.
    pub set_aside: u64,
}

pub(super) fn open(
    disk: Arc<dyn Disk>,
    folder: &Path,
    options: StoreOptions,
) -> Result<(Shared, Recovery), StoreError> {
    let journal_folder = options.journal.clone().unwrap_or_else(|| folder.join(JOURNAL));
    for path in [folder, &folder.join(SEGMENTS), &journal_folder] {
        disk.create_folder(path).map_err(StoreError::io("create", path))?;
    }
    let lock = lock_folder(folder)?;
    let mut catalogue = Catalogue::open(&folder.join(CATALOGUE))?;
    let content = catalogue.load()?;
    let mut recovery = Recovery::default();

    let mut series = SeriesRegistry::default();
    for labels in content.series {
        series.add(labels);
    }
    let known: HashSet<PathBuf> = content.segments.iter().map(|s| folder.join(&s.path)).collect();
    recovery.orphans = remove_orphans(&*disk, &folder.join(SEGMENTS), &known)?;
    let segments = check_segments(&*disk, folder, &mut catalogue, content.segments, &mut recovery)?;

    let mut writers: HashMap<Arc<str>, u64> =
        content.writers.into_iter().map(|(name, last)| (name.into(), last)).collect();
    let numbers = journal_files(&journal_folder)?;
    let contents =
        numbers.iter().map(|&number| read_journal(&journal_path(&journal_folder, number)));
    let contents = contents.collect::<Result<Vec<_>, _>>()?;
    recovery.torn_octets = contents.iter().map(|c| c.torn).sum();
    recovery.damaged_octets = contents.iter().map(|c| c.damaged).sum();
    let waiting = unflushed(contents, content.flushed, &mut writers);
    if recovery.damaged_octets > 0 {
        catalogue.commit(&Change {
            events: vec![StoredEvent {
                kind: "journal_damaged".into(),
                severity: EventSeverity::Critical,
                series: None,
                begin_ns: 0,
                end_ns: Some(0),
                title: format!("{} octets of the journal were damaged", recovery.damaged_octets),
                evidence: serde_json::json!({ "octets": recovery.damaged_octets }),
            }],
            ..Change::default()
        })?;
    }
    let last = waiting.iter().map(|(number, _)| *number).max().unwrap_or(0).max(content.flushed);
    let next_journal = numbers.last().copied().unwrap_or(0) + 1;
    let journal = Journal::begin(disk.clone(), &journal_folder, next_journal)?;
    let mut sealed = Vec::new();
    if let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) {
        let mut generation = Generation { journals: (first, last), ..Generation::default() };
        waiting.into_iter().for_each(|(number, batch)| generation.push(number, batch));
        if generation.batches.is_empty() {
            // All of it is in segments.
            for number in numbers {
                let path = journal_path(&journal_folder, number);
                disk.remove(&path).map_err(StoreError::io("remove", &path))?;
            }
        } else {
            recovery.batches = generation.batches.len() as u64;
            recovery.rows = generation.rows as u64;
            sealed.push(Arc::new(generation));
        }
    }
    let state = State {
        segments: Arc::new(
            segments
                .into_iter()
                .map(|r| SegmentFile::new(r.clone(), folder.join(&r.path), disk.clone()))
                .collect(),
        ),
        sealed,
        open: Generation { journals: (next_journal, 0), ..Generation::default() },
        open_since_ns: None,
        writers,
        series: Arc::new(series),
        next_batch: last + 1,
        next_segment: content.last_segment + 1,
        refusing: false,
        uncertain: false,
        reserve: folder.join(RESERVE).exists(),
    };
    let shared = Shared {
        folder: folder.to_owned(),
        retention: Mutex::new(Arc::new(options.retention.clone())),
        options,
        disk,
        maintaining: Mutex::new(()),
        journal: Mutex::new(journal),
        catalogue: Mutex::new(catalogue),
        state: Mutex::new(state),
        writer_taken: AtomicBool::new(false),
        _lock: lock,
    };
    Ok((shared, recovery))
}

/// Two stations on one folder would each remove what the other writes.
pub(crate) fn lock_folder(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(StoreError::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: folder.to_owned() }),
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock", &path)(error)),
    }
}

/// Removes files that the catalogue does not know.
fn remove_orphans(
    disk: &dyn Disk,
    folder: &Path,
    known: &HashSet<PathBuf>,
) -> Result<u64, StoreError> {
    let mut removed = 0;
    for entry in fs::read_dir(folder).map_err(StoreError::io("list", folder))? {
        let path = entry.map_err(StoreError::io("list", folder))?.path();
        if path.is_dir() {
            removed += remove_orphans(disk, &path, known)?;
        } else if !known.contains(&path) {
            disk.remove(&path).map_err(StoreError::io("remove", &path))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The segments that are there and as long as they were written. Others are set aside.
fn check_segments(
    disk: &dyn Disk,
    folder: &Path,
    catalogue: &mut Catalogue,
    segments: Vec<SegmentRecord>,
    recovery: &mut Recovery,
) -> Result<Vec<SegmentRecord>, StoreError> {
    let mut good = Vec::with_capacity(segments.len());
    let mut change = Change::default();
    for record in segments {
        let path = folder.join(&record.path);
        let what = match fs::metadata(&path) {
            Ok(m) if m.len() == record.octets => {
                good.push(record);
                continue;
            }
            Ok(m) => format!("it has {} octets instead of {}", m.len(), record.octets),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "it is missing".into(),
            Err(error) => return Err(StoreError::io("look at", &path)(error)),
        };
        change.events.push(damage_event(&record, &what));
        change.remove.push(record.id);
        let to = folder.join(DAMAGED);
        let moved = disk
            .create_folder(&to)
            .and_then(|()| disk.rename(&path, &to.join(record.path.replace('/', "-"))));
        drop(moved);
        recovery.set_aside += 1;
    }
    if !change.remove.is_empty() {
        catalogue.commit(&change)?;
    }
    Ok(good)
}

/// The event of a segment that cannot be read: from its first row's time to its last row's.
pub(super) fn damage_event(record: &SegmentRecord, what: &str) -> StoredEvent {
    StoredEvent {
        kind: "segment_damaged".into(),
        severity: EventSeverity::Critical,
        series: None,
        begin_ns: record.times_ns.0,
        end_ns: Some(record.times_ns.1),
        title: format!("{} rows of {} are missing: {what}", record.rows, record.table.name()),
        evidence: serde_json::json!({ "segment": record.path, "rows": record.rows, "what": what }),
    }
}

/// The batches that are in no segment, each once.
pub(crate) fn unflushed(
    contents: Vec<JournalContent>,
    flushed: u64,
    writers: &mut HashMap<Arc<str>, u64>,
) -> Vec<(u64, Batch)> {
    let mut waiting: Vec<(u64, Batch)> = contents.into_iter().flat_map(|c| c.batches).collect();
    waiting.retain(|(number, batch)| {
        let last = writers.entry(batch.writer.clone()).or_default();
        // A batch whose write failed half way may be in two files.
        let new = *number > flushed && batch.number > *last;
        *last = batch.number.max(*last);
        new
    });
    waiting
}

pub(crate) const CATALOGUE: &str = "catalogue.db";
pub(crate) const JOURNAL: &str = "journal";
