//! What is done beside writing and reading: segments, roll-ups, compaction, retention.

use std::sync::Arc;

use super::catalogue::SegmentId;
use super::names::{DAMAGED, FOUND, aside_name};
use super::own_files::found_notes;
use super::segment::verify_segment;
use super::state::SegmentFile;
use super::{Shared, Store, lock};
use crate::error::StoreError;
use crate::retention::expired;
use crate::rollup::{due_compactions, due_rollups};

/// What [`Store::maintain`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// Rows of the journal that are in segments now.
    pub flushed_rows: u64,
    /// Segments that were added to a coarser table.
    pub rolled_up: u64,
    /// Segments that were joined with others.
    pub compacted: u64,
    /// Segments that were given up by age, size or for room.
    pub expired: u64,
    /// Segments that could not be read and were set aside.
    pub set_aside: u64,
}

impl Store {
    /// Does what is due at `now_ns` (ns since 1970 UTC). `free_octets` is the room on the disk;
    /// `None`: not known. To be called every second or so; each call continues where the last one
    /// stopped. After an error what was done stays done, and nothing is lost.
    pub fn maintain(
        &self,
        now_ns: i64,
        free_octets: Option<u64>,
    ) -> Result<Maintenance, StoreError> {
        let _alone = lock(&self.shared.maintaining);
        let done = self.maintain_all(now_ns, free_octets);
        let low = free_octets.is_some_and(|free| free < self.shared.floor_octets());
        // After a failure, too: it may be that of a full disk.
        self.shared.tell_of_room(now_ns, low);
        done
    }

    fn maintain_all(
        &self,
        now_ns: i64,
        free_octets: Option<u64>,
    ) -> Result<Maintenance, StoreError> {
        let mut done = Maintenance::default();
        let retention = lock(&self.shared.retention).clone();
        let floor = retention.floor_octets;
        let low = free_octets.is_some_and(|free| free < floor);
        let expire = |done: &mut Maintenance| {
            let infos = self.shared.segment_infos();
            let gone = expired(&infos, &retention, free_octets, now_ns);
            let mut early = gone.clone();
            if low {
                // Without a lack of room these go, too.
                let due = expired(&infos, &retention, None, now_ns);
                early.retain(|id| !due.contains(id));
            } else {
                early.clear();
            }
            let records = self.shared.records_of(&early);
            done.expired += self.shared.give_up(gone)? as u64;
            lock(&self.shared.room).give_up(&records);
            Ok::<_, StoreError>(())
        };
        // What follows needs room.
        if low {
            expire(&mut done)?;
        }
        self.shared.look_at_found(&mut done)?;
        self.shared.seal_if_due(now_ns, false)?;
        self.shared.flush_sealed(&mut done)?;
        self.shared.roll_up_due(now_ns, &mut done)?;
        self.shared.compact_due(now_ns, &mut done)?;
        if !low {
            expire(&mut done)?;
        }
        let mut state = lock(&self.shared.state);
        // All that could be given up was. What is there now is held by others.
        state.refusing = low && state.segments.is_empty();
        drop(state);
        self.shared.restore_reserve(free_octets, floor);
        Ok(done)
    }

    /// Makes segments of all that is durable: before an end, so that the next start is quick.
    pub fn flush(&self) -> Result<Maintenance, StoreError> {
        let _alone = lock(&self.shared.maintaining);
        let mut done = Maintenance::default();
        self.shared.seal_if_due(0, true)?;
        self.shared.flush_sealed(&mut done)?;
        Ok(done)
    }
}

impl Shared {
    fn floor_octets(&self) -> u64 {
        lock(&self.retention).floor_octets
    }

    /// Looks at segments that another process found damaged, and sets aside those that are.
    fn look_at_found(&self, done: &mut Maintenance) -> Result<(), StoreError> {
        let folder = self.folder.join(DAMAGED);
        for note in found_notes(&folder, MOST_FOUND) {
            let name = note.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = name.trim_end_matches(FOUND);
            let segments = lock(&self.state).segments.clone();
            if let Some(segment) = segments.iter().find(|s| aside_name(&s.record.path) == name)
                && let Err(StoreError::Damaged { path, what }) =
                    verify_segment(segment.path(), segment.record.octets, &segment.record.crcs)
            {
                self.set_aside(&path, &what)?;
                done.set_aside += 1;
            }
            // One that stays is looked at again.
            let _ = self.disk.remove(&note);
        }
        Ok(())
    }

    fn seal_if_due(&self, now_ns: i64, at_once: bool) -> Result<(), StoreError> {
        let due = {
            let mut state = lock(&self.state);
            let since = *state.open_since_ns.get_or_insert(now_ns);
            if state.open.batches.is_empty() {
                state.open_since_ns = None;
                return Ok(());
            }
            // A clock that was set back does not keep rows from their segment.
            let old = !(0..self.options.seal_after_ns).contains(&now_ns.saturating_sub(since));
            at_once || old || state.open.rows >= self.options.seal_rows
        };
        if due { self.seal(&mut lock(&self.journal)) } else { Ok(()) }
    }

    fn flush_sealed(&self, done: &mut Maintenance) -> Result<(), StoreError> {
        loop {
            let Some(next) = lock(&self.state).sealed.first().cloned() else { return Ok(()) };
            self.with_room(|| self.flush(&next))?;
            done.flushed_rows += next.rows as u64;
        }
    }

    fn roll_up_due(&self, now_ns: i64, done: &mut Maintenance) -> Result<(), StoreError> {
        loop {
            let due = due_rollups(&self.segment_infos(), now_ns, self.options.grace_ns);
            if due.is_empty() {
                return Ok(());
            }
            for job in due {
                let run = |sources: &[Arc<SegmentFile>]| self.roll_up(job.to, sources);
                done.rolled_up += self.run(&job.segments, done, run)?;
            }
        }
    }

    fn compact_due(&self, now_ns: i64, done: &mut Maintenance) -> Result<(), StoreError> {
        loop {
            let due = due_compactions(&self.segment_infos(), now_ns, self.options.grace_ns);
            if due.is_empty() {
                return Ok(());
            }
            for job in due {
                let run = |sources: &[Arc<SegmentFile>]| self.compact(job.table, sources);
                done.compacted += self.run(&job.segments, done, run)?;
            }
        }
    }

    /// Runs a job on segments; how many it was done with. One that cannot be read is set aside, and
    /// the job is due again without it. Segments that are gone by now are left out.
    fn run(
        &self,
        ids: &[SegmentId],
        done: &mut Maintenance,
        job: impl Fn(&[Arc<SegmentFile>]) -> Result<(), StoreError>,
    ) -> Result<u64, StoreError> {
        let ran = self.with_room(|| {
            // Room may have been made of some of them.
            let sources: Vec<Arc<SegmentFile>> = lock(&self.state)
                .segments
                .iter()
                .filter(|s| ids.contains(&s.record.id))
                .cloned()
                .collect();
            match sources.is_empty() {
                true => Ok(0),
                false => job(&sources).map(|()| sources.len() as u64),
            }
        });
        match ran {
            Err(StoreError::Damaged { path, what }) => {
                self.set_aside(&path, &what)?;
                done.set_aside += 1;
                Ok(0)
            }
            other => other,
        }
    }
}

/// Notes that are looked at in one call.
const MOST_FOUND: usize = 8;
