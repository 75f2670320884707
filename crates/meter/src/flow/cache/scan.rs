//! Flows as they are now, without ending them: for a live view.

use std::ops::Range;

use sonde_results::flow::{FlowEnd, FlowRecord};

use super::FlowCache;
use crate::flow::key::Addresses;

/// A flow that is inside.
#[derive(Clone, Copy)]
pub struct Glimpse<'a> {
    cache: &'a FlowCache,
    slot: u32,
}

impl FlowCache {
    /// Shows the flows in some slots, one after the other. Slots are numbered from 0, and a
    /// flow keeps its slot; 64 bytes are read for each.
    pub fn scan<'a>(&'a self, slots: Range<u32>, mut each: impl FnMut(Glimpse<'a>)) {
        for slot in slots.start..slots.end.min(self.slots()) {
            let hot = &self.hot[slot as usize];
            if hot.key.is_used() && !hot.is_waiting() {
                each(Glimpse { cache: self, slot });
            }
        }
    }

    /// Slots that have been in use: those from here on need not be scanned.
    pub fn slots(&self) -> u32 {
        self.hot.len() as u32
    }
}

impl Glimpse<'_> {
    /// Index of the slot in the cache.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Bytes of both directions so far.
    pub fn bytes(&self) -> u64 {
        let hot = &self.cache.hot[self.slot as usize];
        hot.bytes(0) + hot.bytes(1)
    }

    /// Time of the first packet, ns since 1970 TAI.
    pub fn first_ns(&self) -> i64 {
        self.cache.hot[self.slot as usize].first
    }

    /// Its record, if it were stopped now, without what is kept beyond the basic one.
    pub fn record(&self) -> FlowRecord {
        let hot = &self.cache.hot[self.slot as usize];
        let none = Addresses::default();
        let addresses =
            if hot.key.is_ipv6() { &self.cache.ipv6[self.slot as usize] } else { &none };
        hot.record(&self.cache.warm[self.slot as usize], addresses, FlowEnd::Forced, None)
    }
}
