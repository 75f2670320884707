//! The groups' histograms, read and emptied while the program adds to them.
//!
//! Each count is taken by an atomic exchange. A sample that comes meanwhile is in this interval or
//! in the next: whole or by parts (its sum, its count), but never lost.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sonde_results::hist::Hist;
use sonde_results::rtt::{GroupKey, RTT_BUCKETS, RttGroup};

use super::layout::{HIST, RawGroup, RawKey, TICK_SHIFT, shown, ticks};
use super::memory::Mapped;
use crate::{BpfError, load};

#[derive(Debug)]
pub(super) struct Groups {
    groups: Mapped,
    hists: Mapped,
    free: MapHandle,
    globals: Mapped,
    used: usize,
    capacity: u32,
}

impl Groups {
    pub(super) fn new(
        groups: Mapped,
        hists: Mapped,
        free: MapHandle,
        globals: Mapped,
        used: usize,
        capacity: u32,
    ) -> Self {
        Groups { groups, hists, free, globals, used, capacity }
    }

    pub(super) fn take(
        &mut self,
        start_ns: i64,
        end_ns: i64,
        hidden: bool,
    ) -> Result<Vec<RttGroup>, BpfError> {
        let mut taken = Vec::new();
        for index in 0..self.capacity as usize {
            let at = index * size_of::<RawGroup>();
            let state = self.groups.word(at);
            // The first is that of all that found no room.
            if index != 0 && state.load(Ordering::Acquire) & LIVE == 0 {
                continue;
            }
            let [clean, recovery, delayed_ack] = [0, 1, 2].map(|class| self.take_class(at, class));
            if clean.count + recovery.count + delayed_ack.count > 0 {
                let group: RawGroup = self.groups.read(at);
                let key = if index == 0 { GroupKey::Other } else { key_of(&group, hidden) };
                taken.push(RttGroup { key, start_ns, end_ns, clean, recovery, delayed_ack });
            } else if index != 0 {
                self.free_unused(state, at)?;
            }
        }
        taken.sort_unstable_by_key(|group| group.key);
        Ok(taken)
    }

    /// One class of the group at `at`, emptied.
    fn take_class(&self, at: usize, class: usize) -> Hist {
        let at = at + CLASS + class * CLASS_LEN;
        let take = |word: &AtomicU32| match word.load(Ordering::Relaxed) {
            0 => 0,
            _ => word.swap(0, Ordering::AcqRel),
        };
        let loose = take(self.groups.word(at + LOOSE));
        let index = self.groups.word(at + HIST_INDEX).load(Ordering::Acquire);
        let mut counts = [0; RTT_BUCKETS];
        if index != 0 {
            for (bucket, count) in counts.iter_mut().enumerate() {
                *count = take(self.hists.word((index as usize - 1) * HIST + 4 * bucket));
            }
        }
        let min = take(self.groups.word(at + MIN));
        let max = take(self.groups.word(at + MAX));
        let sum = self.groups.long(at).swap(0, Ordering::AcqRel);
        let counted = Hist::from_rtt_buckets(&counts, 0, 0, 0);
        Hist {
            count: counted.count + u64::from(loose),
            sum: i128::from(sum) << TICK_SHIFT,
            min: ticks(min.saturating_sub(1)) as i64,
            max: ticks(max) as i64,
            buckets: counted.buckets,
        }
    }

    /// Gives back a group that no flow refers to and that had no sample since last time.
    fn free_unused(&self, state: &AtomicU32, at: usize) -> Result<(), BpfError> {
        if state.compare_exchange(LIVE, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Ok(());
        }
        for class in 0..3 {
            let histogram = self.groups.word(at + CLASS + class * CLASS_LEN + HIST_INDEX);
            if let Some(index) = histogram.swap(0, Ordering::AcqRel).checked_sub(1) {
                self.free
                    .update(&[], &index.to_ne_bytes(), MapFlags::ANY)
                    .map_err(|e| load::map_error("give back a histogram", e))?;
            }
        }
        self.globals.word(self.used).fetch_sub(1, Ordering::AcqRel);
        // Not a store: the program may have added its one just before we took the histogram.
        state.fetch_sub(BUSY - FREED, Ordering::AcqRel);
        Ok(())
    }
}

fn key_of(group: &RawGroup, hidden: bool) -> GroupKey {
    let first = group.key[0];
    match group.kind & 0xff {
        1 => {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&group.key[0].to_ne_bytes());
            bytes[8..].copy_from_slice(&group.key[1].to_ne_bytes());
            let ipv4 = group.kind & GROUP_IPV4 != 0;
            let bits = (group.kind >> 8 & 0xff) as u8;
            let length = if ipv4 { bits.saturating_sub(96) } else { bits };
            let address: IpAddr = shown(bytes, ipv4, false);
            GroupKey::Prefix { address, length }
        }
        2 => GroupKey::As(first as u32),
        3 => GroupKey::Interface(first as u8),
        4 => GroupKey::Vlan(first as u16),
        5 => GroupKey::Dscp(first as u8),
        _ => {
            let side = (group.kind >> 8 & 1) as usize;
            let ipv4 = group.kind & GROUP_IPV4 != 0;
            GroupKey::Flow(RawKey::from_longs(group.key).flow(side, ipv4, hidden))
        }
    }
}

/// States of a group, and a bit of its kind, as in `c/rtt.h`.
const LIVE: u32 = 0x8000_0000;
const FREED: u32 = 1;
const BUSY: u32 = 2;
const GROUP_IPV4: u32 = 0x1_0000;
/// Where the classes begin in a group, how long each is, and its members.
const CLASS: usize = std::mem::offset_of!(RawGroup, class);
const CLASS_LEN: usize = size_of::<super::layout::GroupClass>();
const LOOSE: usize = std::mem::offset_of!(super::layout::GroupClass, loose);
const MIN: usize = std::mem::offset_of!(super::layout::GroupClass, min);
const MAX: usize = std::mem::offset_of!(super::layout::GroupClass, max);
const HIST_INDEX: usize = std::mem::offset_of!(super::layout::GroupClass, hist);
