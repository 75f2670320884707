//! Rings of what was sent and waits for its echo: four slots in the flow's own entry,
//! 128 in a page of a common pool when those do not suffice.
//!
//! An unmatched slot is never overwritten: a sender that paces more timestamps into a
//! round trip than there are slots would push each one out before its echo.

use super::clock::{Clock, MAX_RTT, TICK_MASK};
use super::counters::RttCounters;

/// What the keys of a ring are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mode {
    /// Nothing yet.
    #[default]
    Empty,
    /// TSvals.
    Timestamp,
    /// Sequence numbers after the data.
    Sequence,
    /// Identifiers without order.
    Id,
}

/// One thing sent.
#[derive(Clone, Copy, Default)]
struct Slot {
    key: u32,
    /// Ticks; the top bit is [`SPAN`].
    time: u32,
}

/// What one side of a flow has sent, oldest first.
#[derive(Clone, Copy, Default)]
pub(super) struct Ring {
    own: [Slot; OWN],
    /// Coarse time of the newest slot.
    armed: u32,
    /// Index into the pool plus one; 0: none.
    page: u16,
    head: u8,
    count: u8,
    mode: Mode,
}

/// Pages of slots for the busy rings.
pub(super) struct Pool {
    pages: Vec<[Slot; PAGE]>,
    free: Vec<u16>,
}

/// What to arm, and with what.
pub(super) struct Arm {
    pub(super) mode: Mode,
    pub(super) key: u32,
    /// The frame held several segments, so an acknowledgement may name the middle of it.
    pub(super) span: bool,
    /// The side's smoothed round-trip time, ticks; 0: none.
    pub(super) srtt: u32,
}

impl Ring {
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Appends a slot, if there is room for one.
    pub(super) fn arm(
        &mut self,
        arm: Arm,
        clock: &Clock,
        pool: &mut Pool,
        counters: &mut RttCounters,
    ) {
        if self.mode != arm.mode {
            self.void(counters);
            self.mode = arm.mode;
        }
        self.drop_old(clock, pool, counters);
        if self.is_full() && !self.take_page(arm.mode, pool) {
            counters.slots_full += 1;
            return;
        }
        // The pool is dry: let the slots that are left cover the whole round trip.
        if self.page == 0
            && arm.mode != Mode::Id
            && pool.free.is_empty()
            && self.count >= 2
            && clock.age(self.get(self.count - 1, pool).time & TICK_MASK) < arm.srtt / 4
        {
            counters.spaced += 1;
            return;
        }
        let slot = Slot { key: arm.key, time: clock.tick | if arm.span { SPAN } else { 0 } };
        *self.slot(self.count, pool) = slot;
        self.count += 1;
        self.armed = clock.coarse;
    }

    /// Arms an identifier. One that is still unanswered becomes ambiguous and goes
    /// (Karn's rule).
    pub(super) fn arm_id(
        &mut self,
        id: u32,
        clock: &Clock,
        pool: &mut Pool,
        counters: &mut RttCounters,
    ) {
        if self.mode == Mode::Id {
            self.drop_old(clock, pool, counters);
            if self.take_id(id, pool).is_some() {
                counters.duplicate_ids += 1;
                return;
            }
        }
        self.arm(Arm { mode: Mode::Id, key: id, span: false, srtt: 0 }, clock, pool, counters);
    }

    /// The age, ticks, of the slot whose TSval is echoed. Older ones will not be.
    pub(super) fn match_timestamp(
        &mut self,
        echo: u32,
        clock: &Clock,
        pool: &mut Pool,
        counters: &mut RttCounters,
    ) -> Option<u32> {
        self.expect_recent(clock, counters);
        while self.count > 0 {
            let head = self.get(0, pool);
            if head.key == echo {
                self.pop();
                return age(head, clock, counters);
            }
            if (echo.wrapping_sub(head.key) as i32) < 0 {
                return None;
            }
            self.pop();
        }
        None
    }

    /// The age, ticks, of the newest data that `ack` covers, if `ack` proves that nothing
    /// after it was needed for the acknowledgement.
    pub(super) fn match_sequence(
        &mut self,
        ack: u32,
        clock: &Clock,
        pool: &mut Pool,
        counters: &mut RttCounters,
    ) -> Option<u32> {
        self.expect_recent(clock, counters);
        let mut newest = None;
        while self.count > 0 {
            let head = self.get(0, pool);
            if (ack.wrapping_sub(head.key) as i32) < 0 {
                break;
            }
            newest = Some(head);
            self.pop();
        }
        let slot = newest.filter(|slot| slot.key == ack || slot.time & SPAN != 0)?;
        age(slot, clock, counters)
    }

    /// The age, ticks, of the slot with this identifier.
    pub(super) fn match_id(
        &mut self,
        id: u32,
        clock: &Clock,
        pool: &mut Pool,
        counters: &mut RttCounters,
    ) -> Option<u32> {
        if self.mode != Mode::Id {
            return None;
        }
        self.expect_recent(clock, counters);
        let slot = self.take_id(id, pool)?;
        age(slot, clock, counters)
    }

    /// The age, ticks, of the oldest slot.
    pub(super) fn oldest(&self, clock: &Clock, pool: &Pool) -> Option<u32> {
        (self.count > 0).then(|| clock.age(self.get(0, pool).time & TICK_MASK))
    }

    /// The age, ticks, of the newest slot.
    pub(super) fn newest(&self, clock: &Clock, pool: &Pool) -> Option<u32> {
        let last = self.count.checked_sub(1)?;
        Some(clock.age(self.get(last, pool).time & TICK_MASK))
    }

    /// Forgets everything: what is outstanding has become ambiguous.
    pub(super) fn void(&mut self, counters: &mut RttCounters) {
        counters.voided += u64::from(self.count);
        self.clear();
    }

    /// Forgets everything: too old.
    pub(super) fn expire(&mut self, counters: &mut RttCounters) {
        counters.stale += u64::from(self.count);
        self.clear();
    }

    /// Gives its page back.
    pub(super) fn release(&mut self, pool: &mut Pool) {
        if self.page != 0 {
            pool.free.push(self.page - 1);
            self.page = 0;
            self.clear();
        }
    }

    /// Gives its page back if nothing is in it.
    pub(super) fn release_if_empty(&mut self, pool: &mut Pool) {
        if self.count == 0 {
            self.release(pool);
        }
    }

    fn clear(&mut self) {
        self.count = 0;
        self.head = 0;
    }

    fn is_full(&self) -> bool {
        usize::from(self.count) == if self.page == 0 { OWN } else { PAGE }
    }

    /// Moves to a page. Identifiers stay: they are searched one by one.
    fn take_page(&mut self, mode: Mode, pool: &mut Pool) -> bool {
        if self.page != 0 || mode == Mode::Id {
            return false;
        }
        let Some(page) = pool.free.pop() else { return false };
        for i in 0..self.count {
            pool.pages[usize::from(page)][usize::from(i)] = self.own[self.index(i)];
        }
        self.page = page + 1;
        self.head = 0;
        true
    }

    fn drop_old(&mut self, clock: &Clock, pool: &Pool, counters: &mut RttCounters) {
        self.expect_recent(clock, counters);
        while self.count > 0 && clock.age(self.get(0, pool).time & TICK_MASK) > MAX_RTT {
            self.pop();
            counters.stale += 1;
        }
    }

    /// Ticks wrap after 137 s; the coarse clock tells whether they may have.
    #[inline]
    fn expect_recent(&mut self, clock: &Clock, counters: &mut RttCounters) {
        if self.count > 0 && !clock.is_recent(self.armed) {
            self.expire(counters);
        }
    }

    fn take_id(&mut self, id: u32, pool: &mut Pool) -> Option<Slot> {
        let at = (0..self.count).find(|&i| self.get(i, pool).key == id)?;
        let found = self.get(at, pool);
        for i in at + 1..self.count {
            *self.slot(i - 1, pool) = self.get(i, pool);
        }
        self.count -= 1;
        Some(found)
    }

    #[inline]
    fn index(&self, i: u8) -> usize {
        let size = if self.page == 0 { OWN } else { PAGE };
        (usize::from(self.head) + usize::from(i)) % size
    }

    #[inline]
    fn get(&self, i: u8, pool: &Pool) -> Slot {
        match self.page {
            0 => self.own[self.index(i)],
            page => pool.pages[usize::from(page) - 1][self.index(i)],
        }
    }

    #[inline]
    fn slot<'a>(&'a mut self, i: u8, pool: &'a mut Pool) -> &'a mut Slot {
        let index = self.index(i);
        match self.page {
            0 => &mut self.own[index],
            page => &mut pool.pages[usize::from(page) - 1][index],
        }
    }

    #[inline]
    fn pop(&mut self) {
        self.head = self.index(1) as u8;
        self.count -= 1;
    }
}

impl Pool {
    /// A pool of `pages` pages of 1 KiB, at most [`Pool::MAX`].
    pub(super) fn new(pages: usize) -> Self {
        let pages = pages.min(Self::MAX);
        Pool {
            pages: vec![[Slot::default(); PAGE]; pages],
            free: (0..pages as u16).rev().collect(),
        }
    }

    /// The greatest number of pages.
    pub(super) const MAX: usize = u16::MAX as usize;

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }
}

#[inline]
fn age(slot: Slot, clock: &Clock, counters: &mut RttCounters) -> Option<u32> {
    let age = clock.age(slot.time & TICK_MASK);
    if age > MAX_RTT {
        counters.stale += 1;
        return None;
    }
    // 0 stands for "none" in the statistics.
    Some(age.max(1))
}

/// Slots in the entry itself.
const OWN: usize = 4;
/// Slots of a page.
const PAGE: usize = 128;
/// The frame held several segments.
const SPAN: u32 = 1 << 31;
