//! The two clocks of the matcher: ticks of 64 ns for what is measured, units of 67 ms
//! for what times out.

use sonde_wire::Time;

use super::counters::RttCounters;
use crate::copies::MOMENT_BITS;

/// One packet's time in every form that the matcher keeps.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    pub(super) now: Time,
    /// 64 ns each, modulo 2^31 (137 s).
    pub(super) tick: u32,
    /// 2^26 ns (67 ms) each, modulo 2^32.
    pub(super) coarse: u32,
}

impl Clock {
    #[inline]
    pub(super) fn new(now: Time) -> Self {
        let ns = now.as_nanos();
        Clock {
            now,
            tick: (ns >> TICK_BITS) as u32 & TICK_MASK,
            coarse: (ns >> COARSE_BITS) as u32,
        }
    }

    /// Ticks since `then`. A clock that stepped back makes it huge, never negative.
    #[inline]
    pub(super) fn age(&self, then: u32) -> u32 {
        self.tick.wrapping_sub(then) & TICK_MASK
    }

    /// Ticks since `then`, at least 1; none, and counted, when too many.
    #[inline]
    pub(super) fn round_trip(&self, then: u32, counters: &mut RttCounters) -> Option<u32> {
        let age = self.age(then);
        if age > MAX_RTT {
            counters.stale += 1;
            return None;
        }
        Some(age.max(1))
    }

    /// Whether a moment noted as `then` is so near that [`Clock::age`] cannot have wrapped.
    /// One unit into the future is allowed: the kernel's coarse clock may differ by CPU.
    #[inline]
    pub(super) fn is_recent(&self, then: u32) -> bool {
        (-1..=RECENT).contains(&(self.coarse.wrapping_sub(then) as i32))
    }

    /// The same of the lower half of a coarse time: it wraps after 73 minutes.
    #[inline]
    pub(super) fn is_recent_short(&self, then: u16) -> bool {
        (-1..=RECENT).contains(&((self.coarse as u16).wrapping_sub(then) as i16).into())
    }

    /// Coarse units since `then`; 0 when the clock stepped back.
    #[inline]
    pub(super) fn idle(&self, then: u32) -> u32 {
        (self.coarse.wrapping_sub(then) as i32).max(0) as u32
    }

    /// Units of 2^14 ns, 16 us.
    #[inline]
    pub(super) fn moment(&self) -> u32 {
        (self.now.as_nanos() >> MOMENT_BITS) as u32
    }

    /// Units of 2^10 ns, for the limits of events.
    #[inline]
    pub(super) fn event_units(&self) -> u32 {
        (self.now.as_nanos() >> EVENT_BITS) as u32
    }

    /// What the coarse time lacks, ns.
    #[inline]
    pub(super) fn beyond_coarse(&self) -> u32 {
        self.now.as_nanos() as u32 & ((1 << COARSE_BITS) - 1)
    }

    /// The instant of a coarse time within 4 years of now and of what that lacked, ns.
    pub(super) fn expand(&self, coarse: u32, beyond: u32) -> i64 {
        let units = self.now.as_nanos() >> COARSE_BITS;
        let behind = i64::from(self.coarse.wrapping_sub(coarse) as i32);
        let begin = units.saturating_sub(behind).saturating_mul(1 << COARSE_BITS);
        begin.saturating_add(beyond.into())
    }
}

#[inline]
pub(super) const fn ticks_to_ns(ticks: u32) -> u64 {
    (ticks as u64) << TICK_BITS
}

/// Ticks of nanoseconds, rounded down.
pub(super) const fn ns_to_ticks(ns: u64) -> u32 {
    (ns >> TICK_BITS) as u32
}

/// Coarse units of nanoseconds, rounded down.
pub(super) const fn ns_to_coarse(ns: u64) -> u32 {
    (ns >> COARSE_BITS) as u32
}

const TICK_BITS: u32 = 6;
pub(super) const TICK_MASK: u32 = 0x7fff_ffff;
const COARSE_BITS: u32 = 26;
pub(super) const EVENT_BITS: u32 = 10;
/// Nothing longer is a round-trip time.
pub(super) const MAX_RTT: u32 = ns_to_ticks(64_000_000_000);
/// [`MAX_RTT`] in coarse units, rounded up.
const RECENT: i32 = ns_to_coarse(64_000_000_000) as i32 + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_wrap_and_a_step_back_is_beyond_the_greatest_round_trip() {
        let base = 1_700_000_000_000_000_000;
        let then = Clock::new(Time::from_nanos(base));
        for ns in [0, 64, 1_000_000, 63_999_999_936] {
            let later = Clock::new(Time::from_nanos(base + ns));
            assert_eq!(ticks_to_ns(later.age(then.tick)), ns as u64);
            assert!(later.is_recent(then.coarse) && later.is_recent_short(then.coarse as u16));
        }
        for back in [64, 1_000_000, 70_000_000_000] {
            let earlier = Clock::new(Time::from_nanos(base - back));
            assert!(earlier.age(then.tick) > MAX_RTT, "{back}");
            assert_eq!(earlier.idle(then.coarse), 0);
        }
        for far in [-100_000_000_000i64, 66_000_000_000, 137_438_953_472 + 1_000_000] {
            let now = Clock::new(Time::from_nanos(base + far));
            let short = now.is_recent_short(then.coarse as u16);
            assert!(!now.is_recent(then.coarse) && !short, "{far}");
        }
    }

    #[test]
    fn a_coarse_time_and_what_it_lacks_are_the_instant() {
        for base in [1_700_000_000_123_456_789, 5, -7] {
            let now = Clock::new(Time::from_nanos(base));
            for ago in [-3, 0, 1, 67_108_863, 67_108_864, 1_000_000_000_000] {
                let then = Clock::new(Time::from_nanos(base - ago));
                assert_eq!(now.expand(then.coarse, then.beyond_coarse()), base - ago, "{ago}");
            }
        }
    }
}
