//! A full disk: the reserve and the oldest segments are given up, and what failed is tried again.

use std::io::Write;
use std::sync::Arc;

use super::catalogue::{Change, SegmentId, SegmentRecord};
use super::names::{DAMAGED, RESERVE, aside_name};
use super::state::SegmentFile;
use super::{Shared, lock};
use crate::error::StoreError;
use crate::retention;
use crate::rollup::SegmentInfo;

impl Shared {
    /// Does what may fail for want of room, and makes room while it does; [`MOST_ROUNDS`] times at
    /// most. Where that does not help, others take what is given up, and more would be lost for
    /// nothing.
    pub(super) fn with_room<T>(
        &self,
        mut run: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        for _ in 0..MOST_ROUNDS {
            match run() {
                Err(error) if error.is_full() => {
                    lock(&self.room).meet_full();
                    if !self.make_room()? {
                        break;
                    }
                }
                other => return other,
            }
        }
        Err(StoreError::Full { path: self.folder.clone() })
    }

    /// Gives up the oldest segments. The catalogue needs room to say so: the reserve is given up for
    /// that, and put back from what was freed. `false`: there is nothing left.
    fn make_room(&self) -> Result<bool, StoreError> {
        let path = self.folder.join(RESERVE);
        let reserve =
            std::mem::take(&mut lock(&self.state).reserve) && self.disk.remove(&path).is_ok();
        let octets = self.options.reserve_octets.max(1);
        let gone = retention::oldest(&self.segment_infos(), octets.saturating_mul(2));
        let records = self.records_of(&gone);
        let given_up = match self.give_up(gone.clone()) {
            Err(error) if error.is_full() && !gone.is_empty() => {
                // Not even the catalogue can be written. A file that is taken away makes room for it;
                // if it ends here, the next start finds that the segment is missing, and says so.
                let segments = lock(&self.state).segments.clone();
                for segment in segments.iter().filter(|s| gone.contains(&s.record.id)) {
                    // One that a query holds open makes no room yet; the others do.
                    let _ = self.disk.remove(segment.path());
                }
                self.give_up(gone)
            }
            given_up => given_up,
        };
        match given_up {
            Ok(given_up) => {
                if given_up > 0 {
                    lock(&self.room).give_up(&records);
                    self.restore_reserve(None, 0);
                }
                Ok(reserve || given_up > 0)
            }
            Err(error) if error.is_full() => Ok(reserve),
            Err(error) => Err(error),
        }
    }

    /// Puts the reserve back where there is room for it.
    pub(super) fn restore_reserve(&self, free_octets: Option<u64>, floor: u64) {
        let octets = self.options.reserve_octets;
        if octets == 0
            || lock(&self.state).reserve
            || free_octets.is_some_and(|free| free < floor.saturating_add(octets))
        {
            return;
        }
        let path = self.folder.join(RESERVE);
        let written = self.disk.create(&path).and_then(|mut file| {
            // Zeros that a file system packs keep no room. These octets cannot be packed.
            let block = noise();
            let mut left = octets;
            while left > 0 {
                let n = left.min(block.len() as u64);
                file.write_all(&block[..n as usize])?;
                left -= n;
            }
            file.sync()
        });
        match written {
            Ok(()) => lock(&self.state).reserve = true,
            Err(_) => drop(self.disk.remove(&path)),
        }
    }

    /// What the catalogue has of segments.
    pub(super) fn records_of(&self, ids: &[SegmentId]) -> Vec<SegmentRecord> {
        let state = lock(&self.state);
        let own = state.segments.iter().filter(|s| ids.contains(&s.record.id));
        own.map(|s| s.record.clone()).collect()
    }

    /// What decisions depend on, of all segments.
    pub(super) fn segment_infos(&self) -> Vec<SegmentInfo> {
        lock(&self.state).segments.iter().map(|s| s.info()).collect()
    }

    /// Takes segments out. Their files go when no query holds them. How many there were.
    pub(super) fn give_up(&self, ids: Vec<SegmentId>) -> Result<usize, StoreError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let n = ids.len();
        self.apply(Change { remove: ids, ..Change::default() }, |_| {})?;
        Ok(n)
    }

    /// Commits a change, and lets readers see it.
    pub(super) fn apply(
        &self,
        change: Change,
        also: impl FnOnce(&mut super::State),
    ) -> Result<(), StoreError> {
        self.commit(&change)?;
        let mut gone = Vec::new();
        {
            let mut state = lock(&self.state);
            let mut segments = Vec::with_capacity(state.segments.len() + change.add.len());
            for segment in state.segments.iter() {
                if change.remove.contains(&segment.record.id) {
                    segment.give_up();
                    gone.push(segment.clone());
                } else if change.rolled.contains(&segment.record.id) {
                    segments.push(segment.rolled());
                } else {
                    segments.push(segment.clone());
                }
            }
            segments.extend(change.add.into_iter().map(|record| self.segment_file(record)));
            state.segments = Arc::new(segments);
            also(&mut state);
        }
        // Files are removed outside the lock.
        drop(gone);
        Ok(())
    }

    /// A change that failed for want of room was not made. Of other failures that is not known: with
    /// a second try, rows might be there twice.
    fn commit(&self, change: &Change) -> Result<(), StoreError> {
        self.certain()?;
        let committed = lock(&self.catalogue).commit(change);
        if committed.as_ref().is_err_and(|error| !error.changed_nothing()) {
            lock(&self.state).uncertain = true;
        }
        committed
    }

    /// An error after a commit whose outcome is not known.
    pub(super) fn certain(&self) -> Result<(), StoreError> {
        match lock(&self.state).uncertain {
            true => Err(StoreError::Uncertain { path: self.folder.clone() }),
            false => Ok(()),
        }
    }

    fn segment_file(&self, record: super::catalogue::SegmentRecord) -> Arc<SegmentFile> {
        let path = self.folder.join(&record.path);
        SegmentFile::new(record, path, self.disk.clone())
    }

    /// Moves a segment that cannot be read out of the way. What it held is missing from then on, and
    /// an event says so.
    pub(super) fn set_aside(&self, path: &std::path::Path, what: &str) -> Result<(), StoreError> {
        let found = lock(&self.state).segments.iter().find(|s| s.path() == path).cloned();
        let Some(segment) = found else { return Ok(()) };
        let folder = self.folder.join(DAMAGED);
        let name = aside_name(&segment.record.path);
        // The catalogue first: the file is not known any more, wherever it is.
        let change = Change {
            events: vec![super::open::damage_event(&segment.record, what)],
            ..Change::default()
        };
        self.apply_without(change, segment.record.id)?;
        let moved = self
            .disk
            .create_folder(&folder)
            .and_then(|()| self.disk.rename(path, &folder.join(name)));
        // Where it cannot be moved, the next start removes it.
        drop(moved);
        Ok(())
    }

    /// Commits a change, and takes one segment out without removing its file.
    fn apply_without(&self, mut change: Change, id: SegmentId) -> Result<(), StoreError> {
        change.remove = vec![id];
        self.commit(&change)?;
        let mut state = lock(&self.state);
        let kept = state.segments.iter().filter(|s| s.record.id != id).cloned().collect();
        state.segments = Arc::new(kept);
        Ok(())
    }
}

/// Octets that no file system packs.
fn noise() -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..1 << 14).flat_map(|_| next().to_le_bytes()).collect()
}

/// Each gives up twice the reserve of the oldest segments.
const MOST_ROUNDS: usize = 8;
