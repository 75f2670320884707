//! The cache's clock: the latest time that packets or the caller have given.
//!
//! Packets come a little out of order, captures are put together from several, and clocks
//! are set. A packet a little behind changes nothing. Many in a row that are all well
//! behind mean that the clock was set back. More than [`JUMP_NS`] either way is believed at
//! once, and no flow survives it: a record has 48 bits for its last time.

use sonde_wire::feature::Feature;

/// What a time means for the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockChange {
    /// It goes on, or stands while a straggler passes.
    Forward,
    /// It was set back.
    Back,
    /// It jumped too far for any flow to go on.
    Jump,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Latest time, ns TAI.
    pub(super) now: i64,
    /// Added to times, never goes back: the expiry wheel turns by this.
    offset: i64,
    /// The latest time ever given that flows may still have.
    high: i64,
    /// When it was last set back, by the new time.
    stepped: i64,
    /// Packets in a row that were well behind.
    behind: u32,
}

impl Clock {
    /// The first time that it is given is a jump.
    pub(super) fn new() -> Self {
        Clock { now: UNSET, offset: 0, high: UNSET, stepped: UNSET, behind: 0 }
    }

    /// Takes the time of a packet, within [`clamp`].
    #[inline]
    pub(super) fn packet(&mut self, at: i64) -> ClockChange {
        // One comparison for both ends.
        if ((at - self.now).wrapping_add(STEP_NS) as u64) < (STEP_NS + JUMP_NS) as u64 {
            self.now = self.now.max(at);
            self.behind = 0;
            return ClockChange::Forward;
        }
        self.astray(at)
    }

    /// Takes the times of a burst, if none of them is out of the ordinary; else nothing is
    /// done, and they are for [`Clock::packet`].
    #[inline(always)]
    pub(super) fn ordinary(&mut self, packets: &[Feature]) -> bool {
        // Half of what is allowed before and behind where the clock stood holds wherever in
        // the burst a packet is; and so far from the ends of time nothing needs `clamp`.
        const NEAR: i64 = STEP_NS / 2;
        let (mut latest, mut astray) = (self.now, !(NEAR..LATEST - NEAR).contains(&self.now));
        for packet in packets {
            let ahead = packet.at_ns.wrapping_sub(self.now);
            astray |= ahead.wrapping_add(NEAR) as u64 >= 2 * NEAR as u64;
            latest = latest.max(packet.at_ns);
        }
        if astray {
            return false;
        }
        self.now = latest;
        self.behind = 0;
        true
    }

    #[cold]
    fn astray(&mut self, at: i64) -> ClockChange {
        if !(-JUMP_NS..JUMP_NS).contains(&(at - self.now)) {
            return ClockChange::Jump;
        }
        self.behind += 1;
        if self.behind < BEHIND_PACKETS { ClockChange::Forward } else { ClockChange::Back }
    }

    /// Takes the caller's time, within [`clamp`]; it is believed at once.
    pub(super) fn caller(&mut self, now: i64) -> ClockChange {
        let ahead = now - self.now;
        if ahead.abs() > JUMP_NS {
            ClockChange::Jump
        } else if ahead < -STEP_NS {
            ClockChange::Back
        } else {
            self.now = self.now.max(now);
            ClockChange::Forward
        }
    }

    /// Starts anew at `at`, after a jump. No flow is held.
    pub(super) fn restart(&mut self, at: i64) {
        let offset = if self.now == UNSET { 0 } else { self.monotonic().wrapping_sub(at) };
        *self = Clock { now: at, offset, high: at, stepped: at, behind: 0 };
    }

    /// Goes back to `at`; false: so far that flows from before could not be distinguished from
    /// others, and nothing was done: end them, then [`Clock::restart`].
    pub(super) fn set_back(&mut self, at: i64) -> bool {
        self.high = self.high.max(self.now);
        if self.high - at > JUMP_NS {
            return false;
        }
        self.offset = self.offset.wrapping_add(self.now - at);
        self.now = at;
        self.stepped = at;
        self.behind = 0;
        true
    }

    /// Never goes back, ns.
    #[inline]
    pub(super) fn monotonic(&self) -> i64 {
        self.now.wrapping_add(self.offset)
    }

    /// A time on the scale of [`Clock::monotonic`].
    #[inline]
    pub(super) fn as_monotonic(&self, at: i64) -> i64 {
        at.wrapping_add(self.offset)
    }

    /// Whether a time is from before the clock was set back.
    #[inline]
    pub(super) fn is_future(&self, at: i64) -> bool {
        at - self.now > STEP_NS
    }

    /// A time, or for one from before the clock was set back the time when that was.
    #[inline]
    pub(super) fn past(&self, at: i64) -> i64 {
        if self.is_future(at) { self.stepped } else { at }
    }
}

/// A time within which differences and time-outs cannot overflow: 1970 to 2116.
#[inline]
pub(super) fn clamp(at: i64) -> i64 {
    at.clamp(0, LATEST)
}

/// The latest time there is.
const LATEST: i64 = 1 << 62;
/// A packet further behind than this did not merely come out of order.
pub(super) const STEP_NS: i64 = 1_000_000_000;
/// The longest leap across which flows can go on.
pub(super) const JUMP_NS: i64 = 12 * 3600 * 1_000_000_000;
/// Further before all times than any jump.
const UNSET: i64 = -2 * JUMP_NS;
/// So many in a row, and the clock was set back. Captures put together from clocks that
/// differ alternate more often.
pub(super) const BEHIND_PACKETS: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::units::SECOND;

    fn started(at: i64) -> Clock {
        let mut clock = Clock::new();
        assert_eq!(clock.packet(at), ClockChange::Jump);
        clock.restart(at);
        clock
    }

    #[test]
    fn stragglers_leave_the_clock_alone_and_many_set_it_back() {
        let mut clock = started(1_000 * SECOND);
        for _ in 0..10 {
            for _ in 1..BEHIND_PACKETS {
                assert_eq!(clock.packet(900 * SECOND), ClockChange::Forward);
            }
            assert_eq!(clock.packet(1_000 * SECOND), ClockChange::Forward);
        }
        assert_eq!(clock.now, 1_000 * SECOND);
        for _ in 1..BEHIND_PACKETS {
            assert_eq!(clock.packet(900 * SECOND), ClockChange::Forward);
        }
        assert_eq!(clock.packet(900 * SECOND), ClockChange::Back);
        let before = clock.monotonic();
        assert!(clock.set_back(900 * SECOND));
        assert_eq!((clock.now, clock.monotonic()), (900 * SECOND, before));
        assert!(clock.is_future(1_000 * SECOND) && !clock.is_future(900 * SECOND));
        assert_eq!(
            (clock.past(1_000 * SECOND), clock.past(800 * SECOND)),
            (900 * SECOND, 800 * SECOND)
        );
        assert_eq!(clock.packet(901 * SECOND), ClockChange::Forward);
        assert_eq!(clock.monotonic(), before + SECOND);
    }

    /// A burst is taken at once only where packet for packet would have done the same.
    #[test]
    fn a_burst_is_taken_as_its_packets_are() {
        let mut taken = 0;
        for seed in 0..2_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let start = [0, SECOND, 1_000 * SECOND, LATEST - SECOND, LATEST][random.usize(..5)];
            let spread = [SECOND / 4, SECOND, 3 * SECOND][random.usize(..3)];
            let mut clock = started(start);
            let mut at = || start.saturating_add(random.i64(-spread..spread));
            let packets = [(); 8].map(|()| Feature { at_ns: at(), ..Feature::default() });
            let before = clock;
            let is_taken = clock.ordinary(&packets);
            let mut single = before;
            let change = packets.map(|packet| single.packet(clamp(packet.at_ns)));
            if is_taken {
                taken += 1;
                assert_eq!(change, [ClockChange::Forward; 8], "seed {seed}");
                assert!(packets.iter().all(|packet| clamp(packet.at_ns) == packet.at_ns));
                assert_eq!((clock.now, clock.behind), (single.now, 0), "seed {seed}");
            } else {
                assert_eq!(clock.now, before.now);
            }
        }
        assert!((100..1_900).contains(&taken), "{taken}");
    }

    #[test]
    fn steps_back_that_add_up_end_all_flows() {
        let mut clock = started(100_000 * SECOND);
        assert!(clock.set_back(80_000 * SECOND));
        assert!(clock.set_back(60_000 * SECOND));
        assert!(!clock.set_back(50_000 * SECOND));
        clock.restart(50_000 * SECOND);
        assert!(clock.set_back(40_000 * SECOND));
    }

    #[test]
    fn jumps_are_reported_at_once_and_extremes_do_not_overflow() {
        let mut clock = started(clamp(i64::MIN));
        assert_eq!(clock.packet(JUMP_NS - 1), ClockChange::Forward);
        assert_eq!(clock.packet(clamp(i64::MAX)), ClockChange::Jump);
        clock.restart(clamp(i64::MAX));
        assert_eq!(clock.packet(0), ClockChange::Jump);
        assert_eq!(clock.caller(clamp(i64::MIN)), ClockChange::Jump);
        clock.restart(0);
        assert_eq!(clock.caller(5), ClockChange::Forward);
        assert_eq!(clock.now, 5);
    }
}
