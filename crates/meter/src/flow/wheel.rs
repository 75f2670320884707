//! When to look at which flow again. An entry belongs to a slot, not to a flow, and a slot has at
//! most one. That is 4 bytes, and nothing to be done per packet. When an entry is due, the flow
//! then in the slot is looked at, and put on again if its time has not come. As a flow that takes
//! over a slot has its time-outs before it, an old entry never fires too late.

use std::collections::VecDeque;

/// Entries by the tick in which they are due.
pub(super) struct Wheel {
    /// Of each slot in use so far: the next in its list, or [`END`], or [`OFF`].
    next: Vec<u32>,
    /// Lists by tick modulo [`TICKS`].
    lists: Vec<u32>,
    /// What is left of the list of the tick before `tick`.
    due: u32,
    /// The first tick whose list has not been taken.
    tick: i64,
}

impl Wheel {
    pub(super) fn new(flows: usize) -> Self {
        let next = Vec::with_capacity(flows);
        Wheel { next, lists: vec![END; TICKS as usize], due: END, tick: 0 }
    }

    /// A further slot is in use, the one after those before.
    pub(super) fn add_slot(&mut self) {
        self.next.push(OFF);
    }

    /// Sets the time, once, before anything is entered.
    pub(super) fn start(&mut self, now: i64) {
        self.tick = now >> TICK_BITS;
    }

    #[inline]
    pub(super) fn is_on(&self, slot: u32) -> bool {
        self.next[slot as usize] != OFF
    }

    /// Enters a slot that is not on, to be due after `at`: within a tick, or sooner where
    /// that is beyond the wheel's circumference.
    pub(super) fn enter(&mut self, slot: u32, at: i64) {
        let tick = ((at >> TICK_BITS) + 1).clamp(self.tick, self.tick + TICKS - 1);
        let list = &mut self.lists[(tick & (TICKS - 1)) as usize];
        self.next[slot as usize] = std::mem::replace(list, slot);
    }

    /// Takes off the next slot that is due at `now`.
    #[inline]
    pub(super) fn pop(&mut self, now: i64) -> Option<u32> {
        let now = now >> TICK_BITS;
        while self.due == END {
            if self.tick > now {
                return None;
            }
            // After one turn every list has been taken.
            self.tick = self.tick.max(now - TICKS + 1);
            let list = &mut self.lists[(self.tick & (TICKS - 1)) as usize];
            self.due = std::mem::replace(list, END);
            self.tick += 1;
        }
        let slot = self.due;
        self.due = std::mem::replace(&mut self.next[slot as usize], OFF);
        super::prefetch::prefetch(&self.next, self.due as usize);
        Some(slot)
    }

    /// Whether lists are left from more than one tick before `now`.
    #[inline]
    pub(super) fn is_late(&self, now: i64) -> bool {
        self.tick < now >> TICK_BITS
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.next.capacity() * size_of::<u32>() + size_of_val(&*self.lists)
    }
}

/// Closed connections, which stay for [`LINGER_NS`] so that what still comes of them makes
/// no new flows. Bounded: where many close at once, the first go sooner.
pub(super) struct Closing {
    queue: VecDeque<Closed>,
    room: usize,
}

/// A connection that has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed {
    /// When, by the clock that does not go back.
    pub(super) at: i64,
    pub(super) slot: u32,
    /// Distinguishes it from a flow that has taken the slot since: the start's lower bits.
    pub(super) born: u32,
}

impl Closing {
    pub(super) fn new(flows: usize) -> Self {
        let room = (flows / 16).max(16);
        Closing { queue: VecDeque::with_capacity(room), room }
    }

    /// Notes a connection; returns one that must go for it.
    pub(super) fn push(&mut self, closed: Closed) -> Option<Closed> {
        let first = if self.queue.len() == self.room { self.queue.pop_front() } else { None };
        self.queue.push_back(closed);
        first
    }

    /// The slot of one that comes a little later, to be fetched.
    #[inline]
    pub(super) fn ahead(&self) -> Option<u32> {
        self.queue.get(AHEAD).map(|closed| closed.slot)
    }

    /// The next whose time is over.
    #[inline]
    pub(super) fn pop(&mut self, now: i64) -> Option<Closed> {
        let first = *self.queue.front()?;
        if now.wrapping_sub(first.at) < LINGER_NS {
            return None;
        }
        self.queue.pop_front()
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<Closed>()
    }
}

/// End of a list.
const END: u32 = u32::MAX;
/// Not on the wheel.
const OFF: u32 = u32::MAX - 1;
/// A tick is 2^27 ns, about an eighth of a second; the wheel turns in 9 minutes.
const TICK_BITS: u32 = 27;
const TICKS: i64 = 4096;
/// So many connections are fetched before they are ended.
const AHEAD: usize = 4;
/// How long a closed connection stays.
pub(super) const LINGER_NS: i64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: i64 = 1 << TICK_BITS;

    #[test]
    fn entries_come_within_a_tick_after_their_time() {
        let mut wheel = Wheel::new(1_000);
        (0..1_000).for_each(|_| wheel.add_slot());
        let start = 1_700_000_000_000_000_000;
        wheel.start(start);
        let mut random = fastrand::Rng::with_seed(1);
        let at: Vec<i64> = (0..1_000).map(|_| start + random.i64(0..TICK * (TICKS - 2))).collect();
        for slot in 0..1_000 {
            wheel.enter(slot, at[slot as usize]);
            assert!(wheel.is_on(slot));
        }
        let (mut now, mut seen) = (start, 0);
        while now < start + TICK * TICKS {
            while let Some(slot) = wheel.pop(now) {
                let late = now - at[slot as usize];
                assert!((0..=TICK + TICK / 3).contains(&late), "{late} ns late");
                assert!(!wheel.is_on(slot));
                seen += 1;
            }
            now += TICK / 3;
        }
        assert_eq!(seen, 1_000);
    }

    #[test]
    fn beyond_the_circumference_is_sooner_and_the_past_is_now() {
        let mut wheel = Wheel::new(8);
        (0..8).for_each(|_| wheel.add_slot());
        wheel.start(0);
        wheel.enter(1, i64::MAX >> 1);
        wheel.enter(2, -TICK * 10);
        assert_eq!(wheel.pop(0), Some(2));
        assert_eq!(wheel.pop(TICK * (TICKS - 2)), None);
        assert_eq!(wheel.pop(TICK * (TICKS - 1)), Some(1));
        wheel.enter(3, TICK * TICKS * 2);
        // A leap over many turns finds it.
        assert_eq!(wheel.pop(TICK * TICKS * 1_000), Some(3));
        assert_eq!(wheel.pop(TICK * TICKS * 1_000), None);
        assert!(!wheel.is_late(TICK * TICKS * 1_000));
    }

    #[test]
    fn closed_connections_linger_and_the_first_make_room() {
        let mut closing = Closing::new(8);
        let closed = |slot: u32| Closed { at: i64::from(slot), slot, born: 0 };
        for slot in 0..16 {
            assert_eq!(closing.push(closed(slot)), None);
        }
        assert_eq!(closing.push(closed(16)), Some(closed(0)));
        assert_eq!(closing.pop(LINGER_NS), None);
        assert_eq!(closing.pop(LINGER_NS + 1), Some(closed(1)));
        assert_eq!(closing.pop(LINGER_NS + 1), None);
    }
}
