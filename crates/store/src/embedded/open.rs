//! Opens a store, and puts in order what a crash left.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::catalogue::{Catalogue, Change, SegmentRecord};
use super::disk::{Disk, create_new};
use super::journal::{Journal, JournalContent, journal_files, journal_path, read_journal};
pub(crate) use super::names::JOURNAL;
use super::names::{DAMAGED, RESERVE, SEGMENTS, SegmentName, aside_name};
use super::own_files::{
    LOCK, OwnFiles, SegmentTree, close_to_others, open_own, refuse_link, segment_tree,
};
use super::room_log::RoomLog;
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
    /// Segments that came after the catalogue that was found: they were set aside.
    pub unknown: u64,
    /// Files below `seg` that no store makes: they were left alone.
    pub foreign: u64,
    /// One of them.
    pub foreign_example: Option<PathBuf>,
}

pub(super) fn open(
    disk: Arc<dyn Disk>,
    folder: &Path,
    options: StoreOptions,
) -> Result<(Shared, Recovery), StoreError> {
    let journal_folder = options.journal.clone().unwrap_or_else(|| folder.join(JOURNAL));
    let disk: Arc<dyn Disk> = Arc::new(OwnFiles::new(disk, folder, &journal_folder));
    let (seg, damaged) = (folder.join(SEGMENTS), folder.join(DAMAGED));
    if options.journal.is_none() {
        refuse_link(&journal_folder)?;
    }
    refuse_link(&damaged)?;
    let tree = segment_tree(folder)?;
    for path in [folder, &seg, &damaged, &journal_folder] {
        disk.create_folder(path).map_err(StoreError::io("create", path))?;
    }
    let lock = lock_folder(folder)?;
    close_to_others(folder, &journal_folder, &tree);
    let whole = tree.files.iter().filter(|(_, name)| name.is_whole).count() as u64;
    let numbers = journal_files(&journal_folder)?;
    refuse_missing_catalogue(folder, whole, &journal_folder, &numbers)?;
    let mut catalogue = Catalogue::open(&folder.join(CATALOGUE))?;
    let content = catalogue.load()?;
    let mut recovery = Recovery {
        foreign: tree.foreign.len() as u64,
        foreign_example: tree.foreign.first().cloned(),
        ..Recovery::default()
    };

    let mut series = SeriesRegistry::default();
    for labels in content.series {
        series.add(labels);
    }
    let known: HashMap<u64, PathBuf> =
        content.segments.iter().map(|s| (s.id.0, PathBuf::from(&s.path))).collect();
    let last_segment = content.last_segment;
    let segments = check_segments(&*disk, folder, &mut catalogue, content.segments, &mut recovery)?;
    clear_orphans(&*disk, folder, &tree, (&known, last_segment), &mut recovery)?;

    let mut writers: HashMap<Arc<str>, u64> =
        content.writers.into_iter().map(|(name, last)| (name.into(), last)).collect();
    let contents =
        numbers.iter().map(|&number| read_journal(&journal_path(&journal_folder, number)));
    let contents = contents.collect::<Result<Vec<_>, _>>()?;
    recovery.torn_octets = contents.iter().map(|c| c.torn).sum();
    recovery.damaged_octets = contents.iter().map(|c| c.damaged).sum();
    let hurt: Vec<(u64, u64, u64, u64)> = (numbers.iter().zip(&contents))
        .filter(|(_, content)| content.damaged > 0)
        .map(|(&number, content)| {
            let rows = content.batches.iter().map(|(_, batch)| batch.rows.len() as u64).sum();
            (number, content.damaged, content.batches.len() as u64, rows)
        })
        .collect();
    let waiting = unflushed(contents, content.flushed, &mut writers);
    for found in hurt {
        keep_damaged_journal(&*disk, folder, &journal_folder, &mut catalogue, found)?;
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
        next_segment: last_segment + 1,
        refusing: false,
        uncertain: false,
        reserve: folder.join(RESERVE).exists(),
    };
    let room = RoomLog::resumed(&catalogue)?;
    let shared = Shared {
        folder: folder.to_owned(),
        retention: Mutex::new(Arc::new(options.retention.clone())),
        options,
        disk,
        maintaining: Mutex::new(()),
        journal: Mutex::new(journal),
        catalogue: Mutex::new(catalogue),
        state: Mutex::new(state),
        room: Mutex::new(room),
        writer_taken: AtomicBool::new(false),
        _lock: lock,
    };
    Ok((shared, recovery))
}

/// Two stations on one folder would each remove what the other writes.
pub(crate) fn lock_folder(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join(LOCK);
    let file = match create_new(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open_own(&path, File::options().write(true))
        }
        created => created,
    };
    let file = file.map_err(StoreError::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: folder.to_owned() }),
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock", &path)(error)),
    }
}

/// A store without its catalogue is not begun anew: rows that are there would not be seen any more.
pub(super) fn refuse_missing_catalogue(
    folder: &Path,
    segments: u64,
    journal_folder: &Path,
    journals: &[u64],
) -> Result<(), StoreError> {
    let path = folder.join(CATALOGUE);
    match fs::symlink_metadata(&path) {
        Ok(about) if about.len() > 0 || !about.is_file() => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(StoreError::io("look at", &path)(error));
        }
        _ => {}
    }
    let octets = |&number: &u64| fs::metadata(journal_path(journal_folder, number));
    let waiting: u64 = journals.iter().filter_map(|n| Some(octets(n).ok()?.len())).sum();
    match segments > 0 || waiting > 0 {
        true => Err(StoreError::CatalogueGone {
            folder: folder.to_owned(),
            segments,
            journal_octets: waiting,
        }),
        false => Ok(()),
    }
}

/// Takes away segments that the catalogue does not know: what a crash left. Where it also misses
/// segments, it may be older than they are; then those that came after it are set aside.
fn clear_orphans(
    disk: &dyn Disk,
    folder: &Path,
    tree: &SegmentTree,
    (known, last): (&HashMap<u64, PathBuf>, u64),
    recovery: &mut Recovery,
) -> Result<(), StoreError> {
    let later = |name: &SegmentName| name.is_whole && name.number > last;
    let is_old = recovery.set_aside > 0
        || tree.files.iter().filter(|(_, name)| later(name)).count() > MOST_LEFT;
    for (below, name) in &tree.files {
        if known.get(&name.number) == Some(below) {
            continue;
        }
        let path = folder.join(below);
        if is_old && later(name) {
            let to = folder.join(DAMAGED).join(aside_name(&below.to_string_lossy()));
            disk.rename(&path, &to).map_err(StoreError::io("set aside", &path))?;
            recovery.unknown += 1;
        } else {
            disk.remove(&path).map_err(StoreError::io("remove", &path))?;
            recovery.orphans += 1;
        }
    }
    Ok(())
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
        let name = SegmentName::of(Path::new(&record.path));
        if name.is_none_or(|n| (n.table, n.number) != (record.table, record.id.0)) {
            return Err(StoreError::CatalogueDamaged {
                folder: folder.to_owned(),
                what: format!("it names a segment '{}'", record.path),
            });
        }
        let what = match fs::symlink_metadata(&path) {
            Ok(m) if m.is_file() && m.len() == record.octets => {
                good.push(record);
                continue;
            }
            Ok(m) if !m.is_file() => "it is no regular file".into(),
            Ok(m) => format!("it has {} octets instead of {}", m.len(), record.octets),
            Err(error) if error.kind() == io::ErrorKind::NotFound => "it is missing".into(),
            Err(error) => return Err(StoreError::io("look at", &path)(error)),
        };
        change.events.push(damage_event(&record, &what));
        change.remove.push(record.id);
        // What is gone cannot be moved.
        let _ = disk.rename(&path, &folder.join(DAMAGED).join(aside_name(&record.path)));
        recovery.set_aside += 1;
    }
    if !change.remove.is_empty() {
        catalogue.commit(&change)?;
    }
    Ok(good)
}

/// Keeps a journal that is damaged in the folder `damaged`, with an event of what could be read. The
/// file itself stays until its batches are in segments.
fn keep_damaged_journal(
    disk: &dyn Disk,
    folder: &Path,
    journal_folder: &Path,
    catalogue: &mut Catalogue,
    (number, octets, batches, rows): (u64, u64, u64, u64),
) -> Result<(), StoreError> {
    let path = journal_path(journal_folder, number);
    let about = fs::metadata(&path).map_err(StoreError::io("look at", &path))?;
    // When it was last written: what is lost came before.
    let at = about.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let at_ns = at.map_or(0, |at| i64::try_from(at.as_nanos()).unwrap_or(i64::MAX));
    let name = format!("journal-{number:010}-{}.journal", about.len());
    let kept_as = match disk.link(&path, &folder.join(DAMAGED).join(&name)) {
        // An earlier start said it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Ok(()) => format!("it is kept as {DAMAGED}/{name}"),
        Err(error) => format!("it could not be kept: {error}"),
    };
    catalogue.commit(&Change {
        events: vec![StoredEvent {
            kind: "journal_damaged".into(),
            severity: EventSeverity::Critical,
            series: None,
            begin_ns: at_ns,
            end_ns: Some(at_ns),
            title: format!(
                "a file of the journal was damaged: {rows} rows in {batches} batches were read, \
                 {octets} octets were not; {kept_as}"
            ),
            evidence: serde_json::json!({
                "journal": path.display().to_string(),
                "batches_read": batches,
                "rows_read": rows,
                "octets_not_read": octets,
            }),
        }],
        ..Change::default()
    })
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
/// A crash leaves the segments of one job. More come of an old catalogue.
const MOST_LEFT: usize = 64;
