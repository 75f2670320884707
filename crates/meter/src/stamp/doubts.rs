//! What casts doubt on all streams at once, by the time at which it happened.

use std::collections::VecDeque;

use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_wire::Time;

/// The doubts of the latest intervals in which there were any.
pub(crate) struct Doubts {
    start: i64,
    interval: i64,
    /// Index of the interval since the start, ascending, and what happened in it.
    times: VecDeque<(i64, CaveatSet)>,
}

impl Doubts {
    pub(crate) fn new(start: Time, interval: i64) -> Self {
        Doubts { start: start.as_nanos(), interval, times: VecDeque::with_capacity(KEPT) }
    }

    pub(crate) fn add(&mut self, at: Time, caveat: Caveat) {
        let interval = self.interval_at(at.as_nanos());
        let index = self.times.partition_point(|&(n, _)| n < interval);
        match self.times.get_mut(index) {
            Some((n, set)) if *n == interval => set.insert(caveat),
            _ => {
                let mut set = CaveatSet::default();
                set.insert(caveat);
                if self.times.len() == KEPT {
                    if index == 0 {
                        return; // older than anything that is kept
                    }
                    self.times.pop_front();
                    self.times.insert(index - 1, (interval, set));
                } else {
                    self.times.insert(index, (interval, set));
                }
            }
        }
    }

    /// What happened from `start` to before `end`, ns.
    pub(crate) fn during(&self, start: i64, end: i64) -> CaveatSet {
        let mut all = CaveatSet::default();
        let (first, last) = (self.interval_at(start), self.interval_at(end - 1));
        let before = self.times.partition_point(|&(n, _)| n < first);
        for (_, set) in self.times.range(before..).take_while(|&&(n, _)| n <= last) {
            all.merge(*set);
        }
        all
    }

    fn interval_at(&self, at: i64) -> i64 {
        (at - self.start).div_euclid(self.interval)
    }
}

/// Intervals with doubts that are kept. Records are made one timeout after their time, which is
/// few intervals.
const KEPT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_in_the_record_of_its_time_alone() {
        let mut doubts = Doubts::new(Time::from_nanos(1000), 100);
        doubts.add(Time::from_nanos(1350), Caveat::OwnDrops);
        doubts.add(Time::from_nanos(1120), Caveat::CpuStolen);
        doubts.add(Time::from_nanos(1199), Caveat::OwnDrops);
        let at = |start, end| doubts.during(start, end).iter().collect::<Vec<_>>();
        assert_eq!(at(1000, 1100), []);
        assert_eq!(at(1100, 1200), [Caveat::OwnDrops, Caveat::CpuStolen]);
        assert_eq!(at(1200, 1300), []);
        assert_eq!(at(1300, 1400), [Caveat::OwnDrops]);
        assert_eq!(at(1100, 1400).len(), 2, "a record of three intervals");
    }

    #[test]
    fn the_oldest_go_first() {
        let mut doubts = Doubts::new(Time::ZERO, 10);
        for i in 0..1000 {
            doubts.add(Time::from_nanos(i * 10), Caveat::OwnDrops);
        }
        doubts.add(Time::from_nanos(5), Caveat::OwnDrops);
        assert!(doubts.during(0, 7000).is_empty());
        assert!(!doubts.during(9000, 9010).is_empty());
        assert_eq!(doubts.times.capacity(), KEPT.max(doubts.times.capacity()));
    }
}
