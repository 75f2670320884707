//! Rings of what was sent and waits for its echo: four slots in the flow's own entry. When those do
//! not suffice, a chain of pages of 128 slots from a common pool.
//!
//! An unmatched slot is never overwritten. A sender that paces more timestamps into a round trip
//! than there are slots would push each one out before its echo.

use super::clock::{Clock, MAX_RTT, TICK_MASK};
use super::counters::RttCounters;

/// What the keys of a ring are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mode {
    #[default]
    Empty,
    /// TSvals.
    Timestamp,
    /// Sequence numbers after the data.
    Sequence,
}

/// A value that was sent and waits for its echo or acknowledgement.
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
    /// Coarse time of the newest slot, as [`Clock::is_recent_short`] takes it.
    armed: u16,
    /// The oldest and the newest page, if there are any.
    first: u16,
    last: u16,
    /// All slots in use.
    count: u16,
    /// Those of them in the first page. It is used as a ring as long as it is the only one;
    /// the others are filled from their beginnings.
    in_first: u8,
    /// Where the oldest one is: in the first page, or in `own`.
    head: u8,
    pages: u8,
    mode: Mode,
}

/// Pages of slots for the busy rings.
pub(super) struct Pool {
    pages: Vec<Page>,
    free: Vec<u16>,
}

#[derive(Clone, Copy)]
struct Page {
    slots: [Slot; PAGE],
    /// The page that follows, of those in a chain.
    next: u16,
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
            self.void(pool, counters);
            self.mode = arm.mode;
        }
        self.drop_old(clock, pool, counters);
        if self.is_spaced(&arm, clock, pool) {
            counters.spaced += 1;
            return;
        }
        let Some(slot) = self.vacant(pool) else {
            counters.slots_full += 1;
            return;
        };
        *slot = Slot { key: arm.key, time: clock.tick | if arm.span { SPAN } else { 0 } };
        self.count += 1;
        if self.pages == 1 {
            self.in_first += 1;
        }
        self.armed = clock.coarse as u16;
    }

    /// Whether this one is left out, so that the slots that are left cover the whole round
    /// trip: the pool is dry.
    fn is_spaced(&self, arm: &Arm, clock: &Clock, pool: &Pool) -> bool {
        self.pages == 0
            && pool.free.is_empty()
            && (2..OWN).contains(&usize::from(self.count))
            && clock.age(self.own[self.index(self.count - 1)].time & TICK_MASK) < arm.srtt / 4
    }

    /// The age, ticks, of the slot whose TSval is echoed. Older ones will not be.
    pub(super) fn match_timestamp(
        &mut self,
        echo: u32,
        clock: &Clock,
        pool: &mut Pool,
        counters: &mut RttCounters,
    ) -> Option<u32> {
        self.expect_recent(clock, pool, counters);
        while let Some(oldest) = self.front(pool).filter(|slot| reaches(echo, slot.key)) {
            self.pop(pool);
            if oldest.key == echo {
                return age(oldest, clock, counters);
            }
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
        self.expect_recent(clock, pool, counters);
        let mut newest = None;
        while let Some(covered) = self.front(pool).filter(|slot| reaches(ack, slot.key)) {
            newest = Some(covered);
            self.pop(pool);
        }
        let slot = newest.filter(|slot| slot.key == ack || slot.time & SPAN != 0)?;
        age(slot, clock, counters)
    }

    /// The age, ticks, of the oldest slot.
    pub(super) fn oldest(&self, clock: &Clock, pool: &Pool) -> Option<u32> {
        self.front(pool).map(|slot| clock.age(slot.time & TICK_MASK))
    }

    /// The age, ticks, of the newest slot.
    pub(super) fn newest(&self, clock: &Clock, pool: &Pool) -> Option<u32> {
        let last = self.count.checked_sub(1)?;
        let slot = match self.pages {
            0 => self.own[self.index(last)],
            1 => pool.pages[usize::from(self.last)].slots[self.in_only(last)],
            _ => pool.pages[usize::from(self.last)].slots[self.in_last() - 1],
        };
        Some(clock.age(slot.time & TICK_MASK))
    }

    /// Forgets everything: what is outstanding has become ambiguous.
    pub(super) fn void(&mut self, pool: &mut Pool, counters: &mut RttCounters) {
        counters.voided += u64::from(self.count);
        self.clear(pool);
    }

    /// Forgets everything: too old.
    pub(super) fn expire(&mut self, pool: &mut Pool, counters: &mut RttCounters) {
        counters.stale += u64::from(self.count);
        self.clear(pool);
    }

    /// TSvals wait for their echoes.
    #[inline]
    pub(super) fn holds_timestamps(&self) -> bool {
        self.mode == Mode::Timestamp && self.count > 0
    }

    /// Forgets TSvals: no other echo will be of them.
    #[inline]
    pub(super) fn forget_timestamps(&mut self, pool: &mut Pool) {
        if self.holds_timestamps() {
            self.clear(pool);
        }
    }

    /// Gives its pages back.
    pub(super) fn release(&mut self, pool: &mut Pool) {
        self.clear(pool);
        if self.pages > 0 {
            pool.free.push(self.first);
            self.pages = 0;
        }
    }

    /// Gives its page back if nothing is in it.
    pub(super) fn release_if_empty(&mut self, pool: &mut Pool) {
        if self.count == 0 {
            self.release(pool);
        }
    }

    /// Empties it; one page stays.
    fn clear(&mut self, pool: &mut Pool) {
        while self.pages > 1 {
            self.leave_first(pool);
        }
        self.count = 0;
        self.in_first = 0;
        self.head = 0;
    }

    /// Where the next slot goes, for which a page may be taken.
    fn vacant<'a>(&'a mut self, pool: &'a mut Pool) -> Option<&'a mut Slot> {
        if self.pages == 0 {
            if usize::from(self.count) < OWN {
                let index = self.index(self.count);
                return Some(&mut self.own[index]);
            }
            let page = pool.free.pop()?;
            self.move_to(page, pool);
        }
        let filled = self.in_last();
        if filled < PAGE {
            let index = if self.pages == 1 { self.in_only(self.count) } else { filled };
            return Some(&mut pool.pages[usize::from(self.last)].slots[index]);
        }
        if self.pages == MAX_PAGES || !pool.has_plenty() {
            return None;
        }
        let page = pool.free.pop()?;
        pool.pages[usize::from(self.last)].next = page;
        self.last = page;
        self.pages += 1;
        Some(&mut pool.pages[usize::from(page)].slots[0])
    }

    /// Moves its own slots to its first page.
    fn move_to(&mut self, page: u16, pool: &mut Pool) {
        for i in 0..self.count {
            pool.pages[usize::from(page)].slots[usize::from(i)] = self.own[self.index(i)];
        }
        (self.first, self.last) = (page, page);
        (self.pages, self.head, self.in_first) = (1, 0, self.count as u8);
    }

    fn drop_old(&mut self, clock: &Clock, pool: &mut Pool, counters: &mut RttCounters) {
        self.expect_recent(clock, pool, counters);
        while self.oldest(clock, pool).is_some_and(|age| age > MAX_RTT) {
            self.pop(pool);
            counters.stale += 1;
        }
    }

    /// Ticks wrap after 137 s; the coarse clock shows whether they may have.
    #[inline]
    fn expect_recent(&mut self, clock: &Clock, pool: &mut Pool, counters: &mut RttCounters) {
        if self.count > 0 && !clock.is_recent_short(self.armed) {
            self.expire(pool, counters);
        }
    }

    /// Slots in the last page. Those between the first and the last are full.
    fn in_last(&self) -> usize {
        match usize::from(self.pages) {
            0 | 1 => self.count.into(),
            n => usize::from(self.count) - usize::from(self.in_first) - PAGE * (n - 2),
        }
    }

    /// In the only page, which is a ring.
    fn in_only(&self, i: u16) -> usize {
        (usize::from(self.head) + usize::from(i)) % PAGE
    }

    /// Of its own slots.
    #[inline]
    fn index(&self, i: u16) -> usize {
        (usize::from(self.head) + usize::from(i)) % OWN
    }

    #[inline]
    fn front(&self, pool: &Pool) -> Option<Slot> {
        let head = usize::from(self.head);
        (self.count > 0).then(|| match self.pages {
            0 => self.own[head % OWN],
            _ => pool.pages[usize::from(self.first)].slots[head % PAGE],
        })
    }

    /// The oldest slot goes, and with the last one of a page the page, if others follow.
    #[inline]
    fn pop(&mut self, pool: &mut Pool) {
        self.count -= 1;
        if self.pages == 0 {
            self.head = (self.head + 1) % OWN as u8;
            return;
        }
        self.head = (self.head + 1) % PAGE as u8;
        self.in_first -= 1;
        if self.in_first == 0 && self.pages > 1 {
            self.leave_first(pool);
        }
    }

    /// Gives the first of several pages back.
    fn leave_first(&mut self, pool: &mut Pool) {
        pool.free.push(self.first);
        self.first = pool.pages[usize::from(self.first)].next;
        self.pages -= 1;
        self.head = 0;
        self.in_first = if self.pages == 1 { self.count as u8 } else { PAGE as u8 };
    }
}

impl Pool {
    /// A pool of `pages` pages of 1,028 octets, at most [`Pool::MAX`].
    pub(super) fn new(pages: usize) -> Self {
        let pages = pages.min(Self::MAX);
        Pool {
            pages: vec![Page { slots: [Slot::default(); PAGE], next: 0 }; pages],
            free: (0..pages as u16).rev().collect(),
        }
    }

    /// The greatest number of pages.
    pub(super) const MAX: usize = u16::MAX as usize;

    /// Enough is free for those who have no page yet: others may have more than one.
    fn has_plenty(&self) -> bool {
        self.pages.len() - self.free.len() < self.pages.len() / 2
    }

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

/// `answer` is `key`, or lies after it (modulo 2^32).
#[inline]
fn reaches(answer: u32, key: u32) -> bool {
    answer.wrapping_sub(key) as i32 >= 0
}

/// Slots in the entry itself.
const OWN: usize = 4;
/// Slots of a page.
const PAGE: usize = 128;
/// Pages of a ring.
const MAX_PAGES: u8 = 64;
/// The frame held several segments.
const SPAN: u32 = 1 << 31;
