//! What the store holds at an instant: segments, and batches that are in none yet.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::catalogue::{SegmentId, SegmentRecord};
use super::disk::Disk;
use crate::batch::Batch;
use crate::rollup::SegmentInfo;
use crate::series::SeriesRegistry;

/// A segment. What it says never changes: a query sees all segments of one instant.
pub(super) struct SegmentFile {
    pub(super) record: SegmentRecord,
    handle: Arc<FileHandle>,
}

/// A file that goes with the last who holds it, once it is given up.
struct FileHandle {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    given_up: AtomicBool,
}

impl SegmentFile {
    pub(super) fn new(record: SegmentRecord, path: PathBuf, disk: Arc<dyn Disk>) -> Arc<Self> {
        let handle = Arc::new(FileHandle { path, disk, given_up: AtomicBool::new(false) });
        Arc::new(SegmentFile { record, handle })
    }

    /// The same, whose rows are in the coarser table, too.
    pub(super) fn rolled(&self) -> Arc<Self> {
        let record = SegmentRecord { rolled: true, ..self.record.clone() };
        Arc::new(SegmentFile { record, handle: self.handle.clone() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.handle.path
    }

    /// The file is removed once no query holds it.
    pub(super) fn give_up(&self) {
        self.handle.given_up.store(true, Ordering::Release);
    }

    /// What decisions depend on.
    pub(super) fn info(&self) -> SegmentInfo {
        let r = &self.record;
        SegmentInfo {
            id: r.id,
            table: r.table,
            times_ns: r.times_ns,
            octets: r.octets,
            rolled: r.rolled,
            tier: r.tier,
        }
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        if self.given_up.load(Ordering::Acquire) {
            // What cannot be removed now is unknown to the catalogue: the next start removes it.
            let _ = self.disk.remove(&self.path);
        }
    }
}

/// Batches that become segments together, and the files of the journal that hold them.
#[derive(Clone, Debug, Default)]
pub(super) struct Generation {
    /// Number in the store, and batch.
    pub(super) batches: Vec<(u64, Batch)>,
    pub(super) rows: usize,
    /// First and last number of a file.
    pub(super) journals: (u64, u64),
}

impl Generation {
    pub(super) fn push(&mut self, number: u64, batch: Batch) {
        self.rows += batch.rows.len();
        self.batches.push((number, batch));
    }

    /// The number of its last batch.
    pub(super) fn last(&self) -> Option<u64> {
        self.batches.iter().map(|(number, _)| *number).max()
    }
}

/// All that readers see.
pub(super) struct State {
    pub(super) segments: Arc<Vec<Arc<SegmentFile>>>,
    /// To be made segments of, oldest first.
    pub(super) sealed: Vec<Arc<Generation>>,
    /// What the open file of the journal holds.
    pub(super) open: Generation,
    /// When maintenance first met something in it, ns since 1970 UTC.
    pub(super) open_since_ns: Option<i64>,
    /// The last durable batch of each writer.
    pub(super) writers: HashMap<Arc<str>, u64>,
    pub(super) series: Arc<SeriesRegistry>,
    pub(super) next_batch: u64,
    pub(super) next_segment: u64,
    /// The disk is below its floor, and nothing can be given up: no batch is taken.
    pub(super) refusing: bool,
    /// The catalogue did not say whether it took a change: nothing more is changed.
    pub(super) uncertain: bool,
    /// The file `reserve` is there.
    pub(super) reserve: bool,
}

impl State {
    /// Rows that are in no segment.
    pub(super) fn waiting_rows(&self) -> usize {
        self.open.rows + self.sealed.iter().map(|g| g.rows).sum::<usize>()
    }

    /// Batches that are in no segment.
    pub(super) fn waiting(&self) -> Vec<Batch> {
        let sealed = self.sealed.iter().flat_map(|g| &g.batches);
        sealed.chain(&self.open.batches).map(|(_, batch)| batch.clone()).collect()
    }

    /// The number of the next segment, which no other one ever has.
    pub(super) fn take_segment_id(&mut self) -> SegmentId {
        let id = SegmentId(self.next_segment);
        self.next_segment += 1;
        id
    }
}
