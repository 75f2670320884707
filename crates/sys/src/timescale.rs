//! The scale of a port's stamps: steady, so that nobody who sets the clock disturbs a schedule, a
//! time-out or a delay.
//!
//! Steady time is `CLOCK_MONOTONIC` plus what TAI was ahead of it when the program began. Slewing
//! moves all clocks alike, so the kernel's stamps (`CLOCK_REALTIME`, `CLOCK_TAI`) have a fixed
//! offset to it. That changes only when somebody sets the clock, or gives the kernel TAI - UTC.
//! Each port looks for that in every turn.

use std::sync::{Mutex, OnceLock, PoisonError};

use sonde_wire::{SECOND, Scale, Time};

use crate::kernel_clock::read;

/// The three clocks at one instant, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    monotonic: i64,
    realtime: i64,
    tai: i64,
}

/// Which clock a port's stamps are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// `CLOCK_REALTIME` (UTC): the kernel's stamps of sockets.
    Realtime,
    /// `CLOCK_TAI`: stamps of XDP programs.
    Tai,
}

/// From a port's stamps to its time.
#[derive(Clone, Copy, Debug)]
pub struct Timescale {
    stamps: Stamps,
    /// What to add to `CLOCK_MONOTONIC`.
    base: i64,
    scale: Scale,
    /// What to add to a stamp: as things are; as they were before the last step; at first.
    add: [i64; 3],
    /// When it was last looked at.
    now: i64,
    looked: i64,
}

impl Timescale {
    /// As known to the whole program.
    pub fn new(stamps: Stamps) -> Self {
        let reading = read_all();
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_with(|| SharedScale::new(&reading));
        Self::with(stamps, known, &reading)
    }

    fn with(stamps: Stamps, known: &SharedScale, reading: &Reading) -> Self {
        let now = reading.monotonic + known.base;
        let mut new = Timescale {
            stamps,
            base: known.base,
            scale: known.scale,
            add: [0; 3],
            now,
            looked: now,
        };
        new.add = [new.distance(); 3];
        new
    }

    /// Steady time as it is now: no system call, the vDSO serves it.
    #[inline]
    pub fn now(&self) -> Time {
        Time::from_nanos(monotonic() + self.base)
    }

    /// How it stands to UTC and TAI.
    #[inline]
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Looks whether the clock was set: two readings of the clock a turn, all of them once a
    /// second and when there is reason to.
    #[inline]
    pub fn refresh(&mut self) {
        let stamps = match self.stamps {
            Stamps::Realtime => libc::CLOCK_REALTIME,
            Stamps::Tai => libc::CLOCK_TAI,
        };
        let (stamp, monotonic) = (read(stamps).as_nanos(), monotonic());
        self.now = monotonic + self.base;
        let off = self.now - (stamp + self.add[0]);
        if off.abs() > GLANCE || self.now - self.looked > LOOK {
            self.look();
        }
    }

    #[cold]
    fn look(&mut self) {
        let reading = read_all();
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_with(|| SharedScale::new(&reading));
        known.observe(&reading);
        self.adopt(known.scale, reading.monotonic);
    }

    fn adopt(&mut self, scale: Scale, monotonic: i64) {
        (self.now, self.looked) = (monotonic + self.base, monotonic + self.base);
        self.scale = scale;
        let add = self.distance();
        if add != self.add[0] {
            self.add[1] = std::mem::replace(&mut self.add[0], add);
        }
    }

    /// What is to be added to a stamp of the clock as it stands.
    fn distance(&self) -> i64 {
        match self.stamps {
            Stamps::Realtime => self.scale.utc_offset,
            Stamps::Tai => -self.scale.tai_shift,
        }
    }

    /// Whether stamps stand as they are, because nobody has ever set the clock they are of.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.add == [0; 3]
    }

    /// A stamp, ns, as steady time. It is of a moment ago: one that would not be was taken before
    /// the clock was set.
    #[inline]
    pub fn steady(&self, stamp: i64) -> Time {
        let at = stamp.saturating_add(self.add[0]);
        let recent = |at: i64| (self.now - BEFORE..self.now + AFTER).contains(&at);
        if self.add[1] != self.add[0] && !recent(at) {
            let earlier = self.add[1..].iter().map(|add| stamp.saturating_add(*add));
            return Time::from_nanos(earlier.into_iter().find(|&at| recent(at)).unwrap_or(at));
        }
        Time::from_nanos(at)
    }
}

/// What the whole program knows of the clock: one for all ports.
struct SharedScale {
    base: i64,
    scale: Scale,
}

/// What steady time is ahead of `CLOCK_MONOTONIC`, ns.
#[inline]
pub(crate) fn base() -> i64 {
    static BASE: OnceLock<i64> = OnceLock::new();
    *BASE.get_or_init(|| {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_with(|| SharedScale::new(&read_all())).base
    })
}

/// What steady time is ahead of the kernel's own monotonic clock, ns: `CLOCK_MONOTONIC` of the
/// first time namespace.
pub(crate) fn kernel_base() -> i64 {
    base() + namespace_offset()
}

/// What `CLOCK_MONOTONIC` here is ahead of the kernel's own, ns: 0 but in a time namespace.
pub(crate) fn namespace_offset() -> i64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        // The offsets are those for children, which have another namespace after an unshare only.
        let of = |name| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
        if of("time") != of("time_for_children") {
            return 0;
        }
        // Without the file the kernel has no time namespaces.
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        monotonic_offset(&offsets).unwrap_or(0)
    })
}

/// Of `/proc/self/timens_offsets`: a line a clock, with its name or number, seconds and nanoseconds.
fn monotonic_offset(offsets: &str) -> Option<i64> {
    let clock = |line: &&str| {
        let name = line.split_whitespace().next();
        matches!(name, Some("monotonic" | "1"))
    };
    let mut fields = offsets.lines().find(clock)?.split_whitespace().skip(1);
    let mut next = || fields.next()?.parse::<i64>().ok();
    let (seconds, nanoseconds) = (next()?, next()?);
    seconds.checked_mul(SECOND)?.checked_add(nanoseconds)
}

/// The scale as last looked at.
pub(crate) fn known() -> Scale {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.as_ref().map_or_else(Scale::default, |known| known.scale)
}

static KNOWN: Mutex<Option<SharedScale>> = Mutex::new(None);

impl SharedScale {
    fn new(first: &Reading) -> Self {
        // TAI and UTC are whole seconds apart; the readings are some nanoseconds.
        let utc_offset = whole_seconds(first.tai - first.realtime);
        let base = first.realtime + utc_offset - first.monotonic;
        SharedScale { base, scale: Scale { utc_offset, ..Scale::default() } }
    }

    fn observe(&mut self, r: &Reading) {
        let now = r.monotonic + self.base;
        let mut utc_offset = now - r.realtime;
        if (utc_offset - self.scale.utc_offset).abs() <= NOISE {
            utc_offset = self.scale.utc_offset;
        }
        let tai_shift = whole_seconds(r.tai - r.realtime) - utc_offset;
        if (utc_offset, tai_shift) == (self.scale.utc_offset, self.scale.tai_shift) {
            return;
        }
        let by_utc = self.scale.utc_offset - utc_offset;
        let by = if by_utc == 0 { tai_shift - self.scale.tai_shift } else { by_utc };
        let steps = self.scale.steps.wrapping_add(1);
        self.scale = Scale { utc_offset, tai_shift, steps, last_step: by };
    }
}

/// All clocks at once: the reading that took the least time of a few.
fn read_all() -> Reading {
    let one = || {
        let before = monotonic();
        let realtime = read(libc::CLOCK_REALTIME).as_nanos();
        let between = monotonic();
        let tai = read(libc::CLOCK_TAI).as_nanos();
        let middle = before + (between - before) / 2;
        (
            between - before,
            Reading { monotonic: middle, realtime, tai: tai - (monotonic() - between) },
        )
    };
    let mut best = one();
    for _ in 1..READS {
        let next = one();
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

#[inline]
fn monotonic() -> i64 {
    read(libc::CLOCK_MONOTONIC).as_nanos()
}

fn whole_seconds(ns: i64) -> i64 {
    (ns + SECOND / 2).div_euclid(SECOND) * SECOND
}

const READS: usize = 5;
/// Two readings in a row differ by no more, unless the thread was paused between them.
const GLANCE: i64 = 20_000;
/// A difference that the best of several readings may show though nothing was set.
const NOISE: i64 = 10_000;
/// Between looks at all clocks.
const LOOK: i64 = SECOND;
/// How long ago, and how much later than its turn began, what a port hands up may be stamped.
const BEFORE: i64 = 100_000_000;
const AFTER: i64 = 50_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const UTC: i64 = 1_795_262_400 * SECOND;

    /// A virtual clock that can be set.
    struct Host {
        monotonic: i64,
        realtime: i64,
        tai_offset: i64,
        known: SharedScale,
    }

    impl Host {
        fn new(tai_offset: i64) -> Self {
            let first = Reading { monotonic: 1000, realtime: UTC, tai: UTC + tai_offset + 40 };
            Host { monotonic: 1000, realtime: UTC, tai_offset, known: SharedScale::new(&first) }
        }

        fn pass(&mut self, ns: i64) {
            self.monotonic += ns;
            self.realtime += ns;
        }

        fn look(&mut self, scale: &mut Timescale) {
            let (monotonic, realtime) = (self.monotonic, self.realtime);
            self.known.observe(&Reading { monotonic, realtime, tai: realtime + self.tai_offset });
            scale.adopt(self.known.scale, monotonic);
        }

        fn timescale(&self, stamps: Stamps) -> Timescale {
            let r = Reading { monotonic: self.monotonic, realtime: self.realtime, tai: 0 };
            Timescale::with(stamps, &self.known, &r)
        }
    }

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        let of = |text| monotonic_offset(text);
        let both = "monotonic      100000         5\nboottime      300000         0\n";
        assert_eq!(of(both), Some(100_000 * SECOND + 5));
        assert_eq!(of("monotonic  -7  250000000\n"), Some(-7 * SECOND + 250_000_000));
        assert_eq!(of("boottime 3 0\n"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn time_begins_as_tai_and_goes_on_whoever_sets_the_clock() {
        for by in [10 * SECOND, -10 * SECOND] {
            let mut host = Host::new(37 * SECOND);
            let (mut sockets, mut xdp) =
                (host.timescale(Stamps::Realtime), host.timescale(Stamps::Tai));
            assert!(xdp.is_plain());
            let begin = UTC + 37 * SECOND;
            assert_eq!(sockets.steady(host.realtime).as_nanos(), begin);
            host.pass(SECOND);
            // Stamped before the clock was set, read after.
            let early = host.realtime;
            host.pass(1000);
            host.realtime += by;
            for scale in [&mut sockets, &mut xdp] {
                host.look(scale);
                assert_eq!((scale.scale().steps, scale.scale().last_step), (1, by));
                assert_eq!(scale.scale().tai_shift, by);
            }
            assert_eq!(sockets.steady(early).as_nanos(), begin + SECOND);
            assert_eq!(xdp.steady(early + 37 * SECOND).as_nanos(), begin + SECOND);
            assert_eq!(sockets.steady(host.realtime).as_nanos(), begin + SECOND + 1000);
            let tai = host.realtime + host.tai_offset;
            assert_eq!(xdp.steady(tai).as_nanos(), begin + SECOND + 1000);
            // What goes out is the true clock.
            let utc = begin + SECOND + 1000 - sockets.scale().utc_offset;
            assert_eq!(utc, host.realtime);
            host.look(&mut sockets);
            assert_eq!(sockets.scale().steps, 1);
        }
    }

    #[test]
    fn the_kernel_learns_what_tai_is() {
        let mut host = Host::new(0);
        let mut sockets = host.timescale(Stamps::Realtime);
        let mut xdp = host.timescale(Stamps::Tai);
        host.pass(SECOND);
        host.tai_offset = 37 * SECOND;
        host.look(&mut sockets);
        host.look(&mut xdp);
        assert_eq!((sockets.scale().steps, sockets.scale().last_step), (1, 37 * SECOND));
        assert_eq!(sockets.scale().utc_offset, 0, "UTC was not set");
        assert_eq!(sockets.steady(host.realtime).as_nanos(), UTC + SECOND);
        assert_eq!(xdp.steady(host.realtime + 37 * SECOND).as_nanos(), UTC + SECOND);
    }

    #[test]
    fn slewing_and_the_noise_of_readings_are_no_steps() {
        let mut host = Host::new(0);
        let mut scale = host.timescale(Stamps::Realtime);
        for i in 0..1000 {
            host.pass(SECOND);
            host.realtime += if i % 2 == 0 { 900 } else { -900 };
            host.look(&mut scale);
        }
        assert_eq!(scale.scale(), Scale::default());
    }

    #[test]
    fn a_reading_of_this_machine_agrees_with_itself() {
        let mut scale = Timescale::new(Stamps::Realtime);
        scale.refresh();
        let (before, stamp, after) = (scale.now(), read(libc::CLOCK_REALTIME), scale.now());
        let at = scale.steady(stamp.as_nanos());
        assert!(at >= before - NOISE && at <= after + NOISE);
    }
}
