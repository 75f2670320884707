//! How flows leave the cache: their time is over, they have closed, or others need the room.

use sonde_results::flow::{FlowEnd, FlowRecord};

use super::{FlowCache, NOWHERE};
use crate::flow::clock::ClockChange;
use crate::flow::key::{Addresses, Key};
use crate::flow::prefetch::prefetch;
use crate::flow::record::{CLOSED, Hot, WANTS, Warm};
use crate::flow::table::HashParts;
use crate::flow::wheel::Closed;

impl FlowCache {
    /// A free slot; if there is none, that of a flow that is missed least.
    pub(super) fn take_slot(&mut self, sink: &mut impl FnMut(FlowRecord)) -> u32 {
        if self.free == NOWHERE && self.hot.len() == self.room {
            let victim = self.least_missed();
            self.counters.evicted_full += u64::from(!self.hot[victim as usize].is_waiting());
            self.end(victim, FlowEnd::LackOfResources, sink);
        }
        if self.free != NOWHERE {
            let slot = self.free;
            self.free = self.hot[slot as usize].key.ends as u32;
            return slot;
        }
        // Memory that no flow has used has not been touched.
        self.hot.push(Hot::default());
        self.warm.push(Warm::default());
        self.wheel.add_slot();
        self.slots() - 1
    }

    /// The flow to evict when all slots are taken. A sweep goes through all slots again and again.
    /// It takes the next flow that is closed or has one packet: of those nearly the oldest. So a
    /// flood of single packets evicts itself. If the next few are all established, that which was
    /// silent longest goes.
    fn least_missed(&mut self) -> u32 {
        let mut longest = (self.worth(self.hand), self.hand);
        for _ in 0..SWEEP {
            let slot = self.hand;
            self.hand = self.sweep(slot);
            let worth = self.worth(slot);
            if worth.0 < Worth::LIVE {
                longest = (worth, slot);
                break;
            }
            longest = longest.min((worth, slot));
        }
        // The next search finds its first slots fetched.
        let mut ahead = self.hand;
        for _ in 0..4 {
            prefetch(&self.hot, ahead as usize);
            ahead = self.sweep(ahead);
        }
        longest.1
    }

    /// The slot after this one in the order of the sweep: far away, so that flows that began
    /// together are not met together.
    fn sweep(&self, slot: u32) -> u32 {
        ((u64::from(slot) + u64::from(self.stride)) % self.room as u64) as u32
    }

    /// What is less is given up first: closed flows, those of one packet, the longest silent.
    pub(super) fn worth(&self, slot: u32) -> (u8, i64) {
        let hot = &self.hot[slot as usize];
        let kind = if hot.is(CLOSED) {
            Worth::CLOSED
        } else if hot.total() < 2 {
            Worth::SINGLE
        } else {
            Worth::LIVE
        };
        (kind, self.last(slot))
    }

    /// The last packet of either direction, as the clock counts now.
    fn last(&self, slot: u32) -> i64 {
        let hot = &self.hot[slot as usize];
        self.clock.past(hot.last(0).max(hot.last(1)))
    }

    /// When the flow in `slot` is over if nothing more comes, and why.
    pub(super) fn deadline(&self, slot: u32) -> (i64, FlowEnd) {
        let hot = &self.hot[slot as usize];
        let idle = self.last(slot) + self.idle_ns;
        if hot.is_waiting() {
            return (idle, FlowEnd::Idle);
        }
        let mut first = hot.first;
        if self.clock.is_future(first) && hot.packets[1 - hot.opener()] != 0 {
            first = first.min(self.warm[slot as usize].second_first);
        }
        let active = self.clock.past(first) + self.active_ns;
        if idle <= active { (idle, FlowEnd::Idle) } else { (active, FlowEnd::Active) }
    }

    pub(super) fn enter_wheel(&mut self, slot: u32) {
        let (mut deadline, _) = self.deadline(slot);
        if self.hot[slot as usize].is_waiting() {
            // A record that begins now is over by then.
            deadline = deadline.min(self.clock.now + self.active_ns);
        }
        self.wheel.enter(slot, self.clock.as_monotonic(deadline + SLACK_NS));
    }

    /// Ends what is due, looking at no more than `most` flows while that is in time.
    #[inline]
    pub(super) fn expire(&mut self, most: usize, sink: &mut impl FnMut(FlowRecord)) {
        let now = self.clock.monotonic();
        while let Some(closed) = self.closing.pop(now) {
            if let Some(ahead) = self.closing.ahead() {
                prefetch(&self.hot, ahead as usize);
                prefetch(&self.warm, ahead as usize);
                if self.wants_features {
                    self.features.prefetch(ahead);
                }
            }
            self.end_closed(closed, sink);
        }
        let mut most = if self.wheel.is_late(now) { usize::MAX } else { most };
        while most > 0 {
            let looked = self.expire_some(now, sink);
            if looked < EXPIRED_TOGETHER {
                break;
            }
            most = most.saturating_sub(looked);
        }
    }

    /// The next few entries of the wheel that are due: how many there were. In strides, like
    /// a burst.
    fn expire_some(&mut self, now: i64, sink: &mut impl FnMut(FlowRecord)) -> usize {
        let mut slots = [0; EXPIRED_TOGETHER];
        let mut looked = 0;
        for slot in &mut slots {
            let Some(due) = self.wheel.pop(now) else {
                break;
            };
            *slot = due;
            prefetch(&self.hot, due as usize);
            looked += 1;
        }
        let mut over = [(0, FlowEnd::Idle); EXPIRED_TOGETHER];
        let mut ended = 0;
        for &slot in &slots[..looked] {
            if !self.hot[slot as usize].key.is_used() {
                continue;
            }
            let (deadline, end) = self.deadline(slot);
            if self.clock.now >= deadline + SLACK_NS {
                self.index.prefetch_home(self.parts(slot));
                prefetch(&self.warm, slot as usize);
                if self.wants_features {
                    self.features.prefetch(slot);
                }
                over[ended] = (slot, end);
                ended += 1;
            } else {
                self.enter_wheel(slot);
            }
        }
        for &(slot, end) in &over[..ended] {
            // One that was closed may have made room for another that goes on.
            if !self.hot[slot as usize].key.is_used() {
                continue;
            }
            if end == FlowEnd::Active && self.clock.now < self.last(slot) + self.idle_ns {
                self.renew(slot, sink);
                self.enter_wheel(slot);
            } else {
                self.end(slot, end, sink);
            }
        }
        looked
    }

    /// What the index knows the key of the flow in `slot` by.
    fn parts(&self, slot: u32) -> HashParts {
        let key = self.hot[slot as usize].key;
        self.index.parts(self.hasher.key(key.ends, key.rest))
    }

    pub(super) fn end_closed(&mut self, closed: Closed, sink: &mut impl FnMut(FlowRecord)) {
        let hot = &self.hot[closed.slot as usize];
        if hot.key.is_used() && hot.is(CLOSED) && hot.first as u32 == closed.born {
            self.end(closed.slot, FlowEnd::EndDetected, sink);
        }
    }

    /// The clock did not simply go on.
    #[cold]
    pub(super) fn step(&mut self, change: ClockChange, at: i64, sink: &mut impl FnMut(FlowRecord)) {
        let is_start = self.counters.packets == 0 && self.flows == 0;
        self.counters.clock_steps += u64::from(!is_start);
        if change == ClockChange::Back && self.clock.set_back(at) {
            return;
        }
        // Across a leap forward every flow has been idle for longer than any time-out.
        let ahead = at > self.clock.now;
        self.end_all(ahead.then_some(FlowEnd::Idle), sink);
        self.clock.restart(at);
        if is_start {
            self.wheel.start(self.clock.monotonic());
        }
    }

    /// Ends every flow: closed ones and those whose time-out has passed for that reason,
    /// others for the one given, or by force.
    pub(super) fn end_all(&mut self, end: Option<FlowEnd>, sink: &mut impl FnMut(FlowRecord)) {
        let slots = self.slots();
        for slot in 0..slots {
            // So that the bucket is there when the flow is taken out of the index.
            let ahead = slot + EXPIRED_TOGETHER as u32;
            if ahead < slots && self.hot[ahead as usize].key.is_used() {
                self.index.prefetch_home(self.parts(ahead));
            }
            let hot = &self.hot[slot as usize];
            if !hot.key.is_used() {
                continue;
            }
            let (deadline, due) = self.deadline(slot);
            let end = if hot.is(CLOSED) {
                FlowEnd::EndDetected
            } else if self.clock.now >= deadline {
                due
            } else {
                end.unwrap_or(FlowEnd::Forced)
            };
            self.end(slot, end, sink);
        }
    }

    /// The record in `slot` is over, the flow is not. It keeps its slot until it is idle, so that
    /// its next record has the same source and what was learnt of it.
    pub(super) fn renew(&mut self, slot: u32, sink: &mut impl FnMut(FlowRecord)) {
        self.export(slot, FlowEnd::Active, true, sink);
        let hot = &mut self.hot[slot as usize];
        hot.renew();
        hot.set(WANTS, self.wants_features);
        self.warm[slot as usize] = Warm::default();
        if hot.is(CLOSED) {
            self.linger(slot, sink);
        }
    }

    /// A packet begins the next record of a flow that goes on.
    pub(super) fn resume(
        &mut self,
        slot: u32,
        side: usize,
        at: i64,
        sink: &mut impl FnMut(FlowRecord),
    ) {
        let hot = &mut self.hot[slot as usize];
        hot.resume(side, at);
        self.counters.flows += 1;
        if hot.is(CLOSED) {
            self.linger(slot, sink);
        }
    }

    /// Ends the flow in `slot` and frees the slot.
    pub(super) fn end(&mut self, slot: u32, end: FlowEnd, sink: &mut impl FnMut(FlowRecord)) {
        self.export(slot, end, false, sink);
        self.index.remove(self.parts(slot), slot);
        self.hot[slot as usize].key = Key { ends: self.free.into(), rest: 0 };
        self.free = slot;
        self.flows -= 1;
    }

    /// Hands out the record of the flow in `slot`, which may go on with another one. One
    /// without packets is none.
    pub(super) fn export(
        &mut self,
        slot: u32,
        end: FlowEnd,
        goes_on: bool,
        sink: &mut impl FnMut(FlowRecord),
    ) {
        let extra = match (self.wants_features, goes_on) {
            (false, _) => None,
            (true, true) => self.features.renewed(slot),
            (true, false) => self.features.ended(slot),
        };
        let hot = &self.hot[slot as usize];
        if hot.is_waiting() {
            return;
        }
        self.counters.exported_packets += hot.total();
        self.counters.exported_bytes += hot.bytes(0) + hot.bytes(1);
        self.counters.ended(end);
        let none = Addresses::default();
        let addresses = if hot.key.is_ipv6() { &self.ipv6[slot as usize] } else { &none };
        sink(hot.record(&self.warm[slot as usize], addresses, end, extra));
    }
}

/// About 0.618 of the slots, without a common divisor: steps of it spread evenly, and meet
/// every slot once before any again.
pub(super) fn stride(slots: u32) -> u32 {
    let common = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let wanted = (u64::from(slots) * 618 / 1000) as u32;
    (wanted..slots).find(|&stride| common(stride, slots) == 1).unwrap_or(1)
}

/// Classes of flows by how much they are missed.
struct Worth;

impl Worth {
    const CLOSED: u8 = 0;
    const SINGLE: u8 = 1;
    const LIVE: u8 = 2;
}

/// How much longer than its time-out a flow stays, so that packets that come a little out
/// of order still find it. Whether they belong to it is decided by their own times.
const SLACK_NS: i64 = 500_000_000;
/// Flows looked at for their time-outs after a burst: more than a burst can begin.
pub(super) const EXPIRED_PER_BURST: usize = 128;
/// Flows looked at in one go: their cache lines are fetched at the same time.
const EXPIRED_TOGETHER: usize = 16;
/// Flows looked at for one to evict.
const SWEEP: u32 = 32;
