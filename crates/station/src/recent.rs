//! What was counted lately, purely: totals and the time go in.
//!
//! A total only grows, and says for ever that something went wrong once. Whether a station is sound
//! is a matter of the last minutes.

use std::collections::{BTreeMap, VecDeque};

/// Who counts, and what: a unit or part, and a counter's name.
pub(crate) type CountKey = (String, String);

/// Totals of the last [`RECENT_NS`].
#[derive(Default)]
pub(crate) struct RecentCounts {
    /// By the steady clock, ns, ascending. The first is the last that is as old as that, if any is.
    seen: VecDeque<(i64, BTreeMap<CountKey, u64>)>,
}

impl RecentCounts {
    /// The totals are these at `now_ns` by the steady clock. What comes within [`STEP_NS`] of the
    /// last is left out.
    pub fn note(&mut self, now_ns: i64, totals: BTreeMap<CountKey, u64>) {
        if self.seen.back().is_some_and(|(last, _)| now_ns - last < STEP_NS) {
            return;
        }
        self.seen.push_back((now_ns, totals));
        while self.seen.get(1).is_some_and(|(at, _)| now_ns - at >= RECENT_NS) {
            self.seen.pop_front();
        }
    }

    /// How much each of `totals` has grown in the last [`RECENT_NS`]; since the start where that is
    /// later. What was not counted then has begun at nought.
    pub fn grown(&self, totals: &BTreeMap<CountKey, u64>) -> BTreeMap<CountKey, u64> {
        let then = self.seen.front().map(|(_, totals)| totals);
        let grown = |(key, now): (&CountKey, &u64)| {
            let before = then.and_then(|then| then.get(key)).copied().unwrap_or(0);
            // A counter that is less than before has begun anew.
            let more = if before > *now { *now } else { now - before };
            (key.clone(), more)
        };
        totals.iter().map(grown).collect()
    }

    /// Of how long a time [`RecentCounts::grown`] is, ns.
    pub fn span_ns(&self, now_ns: i64) -> i64 {
        self.seen.front().map_or(0, |(at, _)| now_ns - at)
    }
}

/// How long something that went wrong keeps a station from being sound.
pub(crate) const RECENT_NS: i64 = 300 * 1_000_000_000;
/// Between two totals that are remembered.
const STEP_NS: i64 = 5_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(n: u64) -> BTreeMap<CountKey, u64> {
        BTreeMap::from([(("live".to_owned(), "records_lost".to_owned()), n)])
    }

    fn grown(recent: &RecentCounts, n: u64) -> u64 {
        recent.grown(&totals(n)).into_values().next().unwrap()
    }

    #[test]
    fn what_was_dropped_once_is_forgotten_after_some_minutes_and_its_total_is_not() {
        let (mut recent, second) = (RecentCounts::default(), 1_000_000_000);
        assert_eq!(grown(&recent, 7), 7, "nothing is known from before");
        for s in 0..100 {
            recent.note(s * second, totals(0));
        }
        // It drops 3, 100 s after the start.
        for s in 100..399 {
            recent.note(s * second, totals(3));
            assert_eq!(grown(&recent, 3), 3, "{s}");
        }
        (399..420).for_each(|s| recent.note(s * second, totals(3)));
        assert_eq!(grown(&recent, 3), 0);
        assert_eq!(grown(&recent, 4), 1);
        assert!(recent.seen.len() <= 62, "{}", recent.seen.len());
        let span = recent.span_ns(419 * second);
        assert!((RECENT_NS..RECENT_NS + 2 * STEP_NS).contains(&span), "{span}");
    }

    #[test]
    fn a_counter_that_begins_anew_is_no_overflow() {
        let mut recent = RecentCounts::default();
        recent.note(0, totals(9));
        assert_eq!(grown(&recent, 2), 2);
    }
}
