//! A token bucket per source address, in a table of fixed size, and one for all together.
//!
//! A bucket is one instant: when it will be full again (the generic cell rate
//! algorithm, ITU-T I.371). An entry whose instant has passed says no more than no
//! entry at all, which makes it free to be taken.

use sonde_results::units::SECOND;
use sonde_wire::Time;

use crate::keyed_hash::KeyedHash;

/// How much may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests per second in the long run; at least 1.
    pub per_second: u32,
    /// Requests that may come at once after a silence; at least 1.
    pub burst: u32,
}

impl RateLimit {
    /// The default for one source address: a sender of 200,000 a second with a quarter of it to
    /// spare. The burst is a quarter of a second in which we were not run.
    pub const OF_SOURCE: RateLimit = RateLimit { per_second: 250_000, burst: 62_500 };
    /// Of all together unless said otherwise.
    pub const OF_ALL: RateLimit = RateLimit { per_second: 1_000_000, burst: 250_000 };
}

pub(super) struct Limiter {
    sets: Vec<[Bucket; WAYS]>,
    hash: KeyedHash,
    gauge: Gauge,
}

/// The bucket of all requests together.
pub(super) struct Total {
    full_at: i64,
    gauge: Gauge,
}

/// What one request costs, and what a bucket holds besides one request, ns.
#[derive(Clone, Copy)]
struct Gauge {
    cost: i64,
    slack: i64,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    source: u128,
    full_at: i64,
}

impl Limiter {
    pub(super) fn new(limit: RateLimit, hash: KeyedHash) -> Self {
        Limiter { sets: vec![[Bucket::default(); WAYS]; SETS], hash, gauge: Gauge::of(limit) }
    }

    /// Takes a token of `source` (IPv4 as mapped), if there is one.
    #[inline]
    pub(super) fn admit(&mut self, source: u128, now: Time) -> bool {
        let now = now.as_nanos();
        let set = &mut self.sets[self.hash.addresses(source, 0, 0) as usize % SETS];
        let bucket = match set.iter().position(|b| b.source == source) {
            Some(way) => &mut set[way],
            None => {
                // The bucket nearest to full knows least. Should that be a live one,
                // because more sources than ways meet here, its owner gains a burst.
                let way = (0..WAYS).min_by_key(|&w| set[w].full_at).unwrap_or(0);
                set[way] = Bucket { source, full_at: now };
                &mut set[way]
            }
        };
        // Never further ahead than a bucket can be empty: the clock may have been set back.
        self.gauge.take(&mut bucket.full_at, now)
    }
}

impl Total {
    pub(super) fn new(limit: RateLimit) -> Self {
        Total { full_at: i64::MIN, gauge: Gauge::of(limit) }
    }

    /// Takes a token, if there is one.
    #[inline]
    pub(super) fn admit(&mut self, now: Time) -> bool {
        self.gauge.take(&mut self.full_at, now.as_nanos())
    }
}

impl Gauge {
    fn of(limit: RateLimit) -> Self {
        let cost = SECOND / i64::from(limit.per_second.max(1));
        Gauge { cost, slack: cost * i64::from(limit.burst.max(1) - 1) }
    }

    #[inline]
    fn take(self, full_at: &mut i64, now: i64) -> bool {
        // Further ahead than any bucket goes: the clock was set back.
        let from = (*full_at).clamp(now, now.saturating_add(self.slack + self.cost));
        let admitted = from - now <= self.slack;
        *full_at = if admitted { from.saturating_add(self.cost) } else { from };
        admitted
    }
}

/// 32,768 buckets of 32 bytes: 1 MiB, however many sources.
const WAYS: usize = 8;
const SETS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_800_000_000_000_000_000;

    fn limiter(per_second: u32, burst: u32) -> Limiter {
        Limiter::new(RateLimit { per_second, burst }, KeyedHash::new([7, 0]))
    }

    /// Requests admitted among `n`, `gap` ns apart.
    fn admitted(l: &mut Limiter, source: u128, from: i64, n: i64, gap: i64) -> i64 {
        (0..n).filter(|i| l.admit(source, Time::from_nanos(from + i * gap))).count() as i64
    }

    #[test]
    fn the_burst_then_the_rate() {
        let mut l = limiter(1000, 10);
        assert_eq!(admitted(&mut l, 1, START, 50, 0), 10);
        // Half a second at ten times the rate: the rate passes.
        assert_eq!(admitted(&mut l, 1, START, 5000, 100_000), 499);
        // After a silence the burst is back, and no more than it.
        assert_eq!(admitted(&mut l, 1, START + 60_000_000_000, 50, 0), 10);
    }

    #[test]
    fn a_source_below_the_rate_loses_nothing_and_others_do_not_matter() {
        let mut l = limiter(1000, 1);
        assert_eq!(admitted(&mut l, 2, START, 100, 0), 1);
        assert_eq!(admitted(&mut l, 1, START, 10_000, 1_000_000), 10_000);
    }

    #[test]
    fn a_clock_set_back_does_not_lock_a_source_out() {
        let mut l = limiter(1000, 1);
        assert!(l.admit(1, Time::from_nanos(START)));
        let back = START - 3_600_000_000_000;
        assert!(!l.admit(1, Time::from_nanos(back)));
        assert!(l.admit(1, Time::from_nanos(back + 1_000_000)));
    }

    #[test]
    fn all_together_have_a_limit_of_their_own() {
        let mut total = Total::new(RateLimit { per_second: 1000, burst: 10 });
        let admitted = (0..5000).filter(|i| total.admit(Time::from_nanos(START + i * 100_000)));
        assert_eq!(admitted.count(), 10 + 499);
    }

    #[test]
    fn a_flood_of_sources_cannot_lock_anyone_out() {
        let mut l = limiter(10, 2);
        for i in 0..200_000u128 {
            assert!(l.admit(1000 + i, Time::from_nanos(START)), "source {i}");
        }
        assert!(l.admit(1, Time::from_nanos(START)));
    }
}
