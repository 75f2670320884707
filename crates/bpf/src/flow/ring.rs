//! One worker's ring of unified headers, shared with the running program.
//!
//! Each processor takes a slot by an atomic step and writes its record there, the time
//! last. So a record whose time is not 0 is complete; its reader puts the 0 back. Nobody
//! takes a lock, nobody is woken, and what is read are the kernel's own octets: there is no
//! copy. (A `BPF_MAP_TYPE_RINGBUF` has a lock, and a header before each record, so that
//! records would have to be copied together for a burst.)

use std::sync::atomic::Ordering;

use libbpf_rs::MapHandle;

use crate::BpfError;
use crate::flow::Refused;
use crate::mapping::{Access, Mapping};

/// Octets of a record.
pub const RECORD_LEN: usize = 64;

/// A record: `struct feature` of `c/flow_feature.h`, `wire::feature::Feature` by its other
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct RingRecord(pub [u8; RECORD_LEN]);

/// The reading side of a ring. One thread has it.
#[derive(Debug)]
pub struct FlowRing {
    control: Mapping,
    records: Mapping,
    /// `struct flow_ring` of this worker, from the start of `control`.
    at: usize,
    mask: u64,
    /// Read up to here; what lies between the ring's tail and here is lent to the caller.
    tail: u64,
    lent: u64,
}

impl FlowRing {
    pub(super) fn map(
        rings: &MapHandle,
        records: &MapHandle,
        worker: u32,
        order: u32,
    ) -> Result<Self, BpfError> {
        let at = worker as usize * CONTROL_LEN;
        let control = Mapping::new(rings, 0, at + CONTROL_LEN, Access::WriteAtOnce)?;
        let len = RECORD_LEN << order;
        let records = Mapping::new(records, worker as usize * len, len, Access::WriteAtOnce)?;
        let mut ring = FlowRing { control, records, at, mask: (1 << order) - 1, tail: 0, lent: 0 };
        ring.tail = ring.control.long(at + TAIL).load(Ordering::Relaxed);
        Ok(ring)
    }

    /// The next records, at most `limit` and in one piece: none when there are none. They
    /// are the caller's until the next call, which gives their slots back.
    #[inline]
    pub fn take(&mut self, limit: usize) -> &[RingRecord] {
        self.give_back();
        let first = self.tail & self.mask;
        let limit = (limit as u64).min(self.mask + 1 - first);
        let mut count = 0;
        while count < limit {
            // Acquire: the rest of the record was written before its time.
            let time = self.records.long((first + count) as usize * RECORD_LEN);
            if time.load(Ordering::Acquire) == 0 {
                break;
            }
            count += 1;
        }
        self.lent = count;
        // SAFETY: within the mapping, which is page-aligned, lives as long as `self` and is
        // borrowed with it; any octets make a record. Nobody writes to these: a slot is
        // taken again only after it was given back, by the call that ends this borrow.
        unsafe {
            let first = self.records.bytes().add(first as usize * RECORD_LEN);
            std::slice::from_raw_parts(first.cast::<RingRecord>(), count as usize)
        }
    }

    /// Whether there is a record to take.
    #[inline]
    pub fn ready(&self) -> bool {
        let next = ((self.tail + self.lent) & self.mask) as usize * RECORD_LEN;
        self.records.long(next).load(Ordering::Relaxed) != 0
    }

    /// Records that were put in so far.
    pub fn received(&self) -> u64 {
        self.control.long(self.at + HEAD).load(Ordering::Relaxed)
    }

    /// Packets, and their octets from the IP header on, whose records found the ring full.
    pub fn lost(&self) -> Refused {
        let count = |at| self.control.long(self.at + at).load(Ordering::Relaxed);
        Refused { packets: count(LOST_PACKETS), bytes: count(LOST_BYTES) }
    }

    #[inline]
    fn give_back(&mut self) {
        if self.lent == 0 {
            return;
        }
        for i in self.tail..self.tail + self.lent {
            let time = self.records.long((i & self.mask) as usize * RECORD_LEN);
            time.store(0, Ordering::Relaxed);
        }
        self.tail += self.lent;
        self.lent = 0;
        // Release: the times are 0 before anybody may take the slots.
        self.control.long(self.at + TAIL).store(self.tail, Ordering::Release);
    }
}

// `struct flow_ring` of `c/flow_feature.h`.
const CONTROL_LEN: usize = 192;
const HEAD: usize = 0;
const TAIL: usize = 64;
const LOST_PACKETS: usize = 128;
const LOST_BYTES: usize = 136;
