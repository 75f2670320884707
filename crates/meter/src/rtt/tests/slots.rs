//! The ring of slots by itself, against a list as simple as can be.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::time;
use crate::rtt::clock::Clock;
use crate::rtt::counters::RttCounters;
use crate::rtt::slots::{Arm, Mode, Pool, Ring};

const PAGES: usize = 8;
/// Half of the pages, of 128 slots each.
const ROOM: usize = PAGES / 2 * 128;

/// A ring, its pool and the list that it must be like.
struct Model {
    ring: Ring,
    pool: Pool,
    counters: RttCounters,
    list: VecDeque<(u32, i64)>,
    next: u32,
    us: i64,
}

impl Model {
    fn new() -> Self {
        Model {
            ring: Ring::default(),
            pool: Pool::new(PAGES),
            counters: RttCounters::default(),
            list: VecDeque::new(),
            next: u32::MAX - 700,
            us: 0,
        }
    }

    fn clock(&self) -> Clock {
        Clock::new(time(self.us))
    }

    fn arm(&mut self) {
        self.us += 8;
        self.next = self.next.wrapping_add(10);
        let arm = Arm { mode: Mode::Sequence, key: self.next, span: false, srtt: 0 };
        let (clock, full) = (self.clock(), self.counters.slots_full);
        self.ring.arm(arm, &clock, &mut self.pool, &mut self.counters);
        // A page that is used as a ring may hold less at its end than the last one would.
        let refused = self.counters.slots_full - full == 1;
        assert!(!refused || self.list.len() > ROOM - 128, "{} slots are all", self.list.len());
        assert!(refused || self.list.len() < ROOM, "one beyond the limit");
        if !refused {
            self.list.push_back((self.next, self.us));
        }
    }

    /// Acknowledges the first `n`.
    fn answer(&mut self, n: usize) {
        self.us += 8;
        let Some(&(key, _)) = self.list.get(n.wrapping_sub(1)) else { return };
        let expected = self.list.drain(..n).next_back().map(|(_, at)| self.us - at);
        let clock = self.clock();
        let found = self.ring.match_sequence(key, &clock, &mut self.pool, &mut self.counters);
        assert_eq!(found.map(|ticks| i64::from(ticks) * 64 / 1000), expected);
    }

    fn void(&mut self) {
        let before = self.counters.voided;
        self.ring.void(&mut self.pool, &mut self.counters);
        assert_eq!((self.counters.voided - before) as usize, self.list.len());
        self.list.clear();
    }

    fn check(&self) {
        let clock = self.clock();
        let age = |slot: Option<&(u32, i64)>| slot.map(|&(_, at)| self.us - at);
        let us = |ticks: Option<u32>| ticks.map(|n| i64::from(n) * 64 / 1000);
        assert_eq!(us(self.ring.oldest(&clock, &self.pool)), age(self.list.front()));
        assert_eq!(us(self.ring.newest(&clock, &self.pool)), age(self.list.back()));
        let used = PAGES - self.pool.free();
        assert!(used <= self.list.len() / 128 + 2, "{used} pages for {}", self.list.len());
    }
}

proptest! {
    #[test]
    fn a_ring_is_a_list_of_any_length_up_to_its_share_of_the_pool(
        steps in prop::collection::vec((0usize..300, 0usize..300, 0u8..40), 1..60),
    ) {
        let mut model = Model::new();
        for (arm, answer, other) in steps {
            for _ in 0..arm {
                model.arm();
                model.check();
            }
            model.answer(answer.min(model.list.len()));
            if other == 0 {
                model.void();
            }
            if other == 1 {
                model.answer(model.list.len());
                model.ring.release_if_empty(&mut model.pool);
                prop_assert_eq!(model.pool.free(), PAGES);
            }
            model.check();
        }
        model.ring.release(&mut model.pool);
        prop_assert_eq!(model.pool.free(), PAGES, "no page is lost");
    }
}

#[test]
fn rings_with_many_slots_leave_half_of_the_pages_to_those_with_few() {
    let mut model = Model::new();
    for _ in 0..2 * ROOM {
        model.arm();
    }
    assert_eq!((model.list.len(), model.counters.slots_full), (ROOM, ROOM as u64));
    assert_eq!(model.pool.free(), PAGES / 2);
    // Another side has its first page all the same, and no second.
    let (mut other, clock) = (Ring::default(), model.clock());
    for key in 0..200 {
        let arm = Arm { mode: Mode::Timestamp, key, span: false, srtt: 0 };
        other.arm(arm, &clock, &mut model.pool, &mut model.counters);
    }
    assert_eq!(model.counters.slots_full, ROOM as u64 + 200 - 128);
    assert_eq!(model.pool.free(), PAGES / 2 - 1);
    // Acknowledged, all but one page returns.
    model.answer(ROOM - 1);
    assert_eq!((model.pool.free(), model.list.len()), (PAGES - 2, 1));
}

#[test]
fn a_ring_has_at_most_64_pages() {
    let mut model = Model::new();
    model.pool = Pool::new(1_000);
    for i in 0..64 * 128 + 5 {
        let clock = model.clock();
        let arm = Arm { mode: Mode::Timestamp, key: i, span: false, srtt: 0 };
        model.ring.arm(arm, &clock, &mut model.pool, &mut model.counters);
    }
    assert_eq!((model.counters.slots_full, model.pool.free()), (5, 1_000 - 64));
    let clock = model.clock();
    let found = model.ring.match_timestamp(8_191, &clock, &mut model.pool, &mut model.counters);
    assert_eq!((found, model.pool.free()), (Some(1), 1_000 - 1));
}
