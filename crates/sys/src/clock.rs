//! The host's clock: reading it, judging it, and watching for the pauses in which
//! nobody read it.
//!
//! One time base: `CLOCK_TAI`; ports that serve a schedule count on from it steadily, see
//! [`crate::timescale`]. Where nothing ever gave the kernel the offset to UTC
//! (no NTP or PTP daemon), `CLOCK_TAI` equals `CLOCK_REALTIME`; see [`ClockState`].

use std::time::Duration;

use sonde_wire::{Scale, Time};

use crate::kernel_clock::{from_timespec, read};
use crate::timescale::{self, Stamps, Timescale};

/// What the kernel believes about its clock (`adjtimex(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// TAI - UTC in seconds; 0: the kernel never got it, and its TAI is UTC.
    pub tai_offset_s: i32,
    /// Whether some daemon keeps the clock (`STA_UNSYNC` is clear).
    pub synchronised: bool,
    /// Bound of the clock's error, ns. Grows by itself while nobody corrects the clock.
    pub max_error_ns: i64,
    /// Estimate of the clock's error, ns.
    pub est_error_ns: i64,
}

/// How finely `CLOCK_TAI` can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockResolution {
    /// What the kernel claims (`clock_getres(2)`), ns.
    pub claimed_ns: i64,
    /// Least difference seen between two readings that differed, ns.
    pub step_ns: i64,
    /// Median time between two readings in a row, ns: the cost of one.
    pub read_ns: i64,
}

/// Counts of the gaps that a [`PauseWatch`] saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseStats {
    /// Gaps above the threshold.
    pub count: u64,
    /// Their sum, ns: time in which nothing was done.
    pub total_ns: i64,
    /// The longest, ns.
    pub max_ns: i64,
}

/// Finds the pauses of a loop that reads the clock in every turn: time during which
/// the thread was not run, or a turn took too long. Pure arithmetic.
#[derive(Clone, Copy, Debug)]
pub struct PauseWatch {
    threshold_ns: i64,
    last: Option<Time>,
    stats: PauseStats,
}

impl PauseWatch {
    /// Counts gaps longer than `threshold_ns`.
    pub const fn new(threshold_ns: i64) -> Self {
        let stats = PauseStats { count: 0, total_ns: 0, max_ns: 0 };
        PauseWatch { threshold_ns, last: None, stats }
    }

    /// To be called in every turn. Returns the gap, ns, when it is a pause (for a
    /// histogram). A clock that was set back makes no pause.
    #[inline]
    pub fn observe(&mut self, now: Time) -> Option<i64> {
        let gap = now - self.last.replace(now)?;
        if gap <= self.threshold_ns {
            return None;
        }
        self.stats.count += 1;
        self.stats.total_ns = self.stats.total_ns.saturating_add(gap);
        self.stats.max_ns = self.stats.max_ns.max(gap);
        Some(gap)
    }

    /// The loop is about to sleep until `until` on purpose: only what goes beyond
    /// that instant is a pause. Waking earlier is none.
    #[inline]
    pub fn idle_until(&mut self, until: Time) {
        self.last = self.last.max(Some(until));
    }

    /// The counts so far.
    pub const fn stats(&self) -> PauseStats {
        self.stats
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseReport {
    /// For how long it looked, ns.
    pub watched_ns: i64,
    /// How many pauses there were, their sum and the longest.
    pub stats: PauseStats,
    /// The pauses themselves, ns, in order; the first [`MAX_KEPT_PAUSES`] of them.
    pub pauses: Vec<i64>,
}

/// The time now. No system call: the kernel's vDSO serves it.
#[inline]
pub fn tai_now() -> Time {
    read(libc::CLOCK_TAI)
}

/// Nanoseconds since 1970 UTC, by the system's clock.
pub fn unix_now_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}

/// The time now on the scale of steady ports ([`crate::timescale`]).
#[inline]
pub fn steady_now() -> Time {
    read(libc::CLOCK_MONOTONIC) + steady_base()
}

/// What [`steady_now`] is ahead of `CLOCK_MONOTONIC`, ns.
#[inline]
pub fn steady_base() -> i64 {
    timescale::base()
}

/// What [`steady_now`] is ahead of the time that `bpf_ktime_get_ns` gives, ns. That knows no time
/// namespaces; `CLOCK_MONOTONIC` does.
pub fn kernel_base() -> i64 {
    timescale::kernel_base()
}

/// What `CLOCK_MONOTONIC` is ahead of the time that `bpf_ktime_get_ns` gives, ns: 0 but in a time
/// namespace.
pub fn namespace_offset() -> i64 {
    timescale::namespace_offset()
}

/// Notices that somebody set the clock, or gave the kernel TAI - UTC, for who has no steady port.
pub struct SteadyClock(Timescale);

impl SteadyClock {
    /// Steps are counted from now on.
    #[expect(clippy::new_without_default, reason = "it reads the clock")]
    pub fn new() -> Self {
        SteadyClock(Timescale::new(Stamps::Tai))
    }

    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// Looks at the clocks. How often they were set so far ([`sonde_wire::Scale::steps`]).
    pub fn steps(&mut self) -> u32 {
        self.0.refresh();
        self.0.scale().steps
    }
}

/// How steady time stands to UTC and TAI, as any steady port has last found; how often the clock
/// was set, and by how much.
pub fn steady_scale() -> Scale {
    timescale::known()
}

/// What the kernel believes about its clock.
pub fn clock_state() -> ClockState {
    // SAFETY: timex is plain data, for which all zeros is a valid value.
    let mut t: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `t` is a valid timex, and modes = 0 only reads.
    let state = unsafe { libc::adjtimex(&mut t) };
    ClockState {
        tai_offset_s: t.tai,
        // A sandbox may forbid even reading: then nothing vouches for the clock.
        synchronised: state >= 0 && t.status & libc::STA_UNSYNC == 0,
        max_error_ns: t.maxerror.saturating_mul(1000),
        est_error_ns: t.esterror.saturating_mul(1000),
    }
}

/// How finely the clock can be read, by reading it for well under a millisecond.
pub fn resolution() -> ClockResolution {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is valid memory for the answer. CLOCK_TAI exists since Linux 3.10.
    unsafe { libc::clock_getres(libc::CLOCK_TAI, &mut ts) };
    let mut steps = [0i64; RESOLUTION_READS];
    let mut last = tai_now();
    for step in &mut steps {
        let now = tai_now();
        *step = now - last;
        last = now;
    }
    steps.sort_unstable();
    ClockResolution {
        claimed_ns: from_timespec(&ts).as_nanos(),
        step_ns: steps.iter().copied().find(|&s| s > 0).unwrap_or(0),
        read_ns: steps[RESOLUTION_READS / 2],
    }
}

/// Reads the clock without rest for `duration` and reports the gaps above
/// `threshold`: the machine's own pauses, which no software on it can avoid.
pub fn measure_pauses(duration: Duration, threshold: Duration) -> PauseReport {
    let as_i64 = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
    let mut watch = PauseWatch::new(as_i64(threshold));
    let mut pauses = Vec::with_capacity(MAX_KEPT_PAUSES);
    // Not CLOCK_TAI: a clock being set must not look like a pause.
    let start = read(libc::CLOCK_MONOTONIC);
    let end = start + as_i64(duration);
    let mut now = start;
    while now < end {
        now = read(libc::CLOCK_MONOTONIC);
        if let Some(gap) = watch.observe(now)
            && pauses.len() < MAX_KEPT_PAUSES
        {
            pauses.push(gap);
        }
    }
    PauseReport { watched_ns: now - start, stats: watch.stats(), pauses }
}

/// Processor time that the calling thread has had, ns.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).as_nanos() as u64
}

/// CLOCK_REALTIME: the clock of the stamps of sockets.
#[inline]
pub fn realtime_now() -> Time {
    read(libc::CLOCK_REALTIME)
}

/// How many pauses [`measure_pauses`] keeps one by one; all are counted.
pub const MAX_KEPT_PAUSES: usize = 65_536;
const RESOLUTION_READS: usize = 1001;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: i64) -> Time {
        Time::from_nanos(ns)
    }

    #[test]
    fn only_gaps_above_the_threshold_are_pauses() {
        let mut watch = PauseWatch::new(100);
        let seen: Vec<_> =
            [1000, 1100, 1201, 1201, 1500].map(|t| watch.observe(at(t))).into_iter().collect();
        assert_eq!(seen, [None, None, Some(101), None, Some(299)]);
        assert_eq!(watch.stats(), PauseStats { count: 2, total_ns: 400, max_ns: 299 });
    }

    #[test]
    fn intended_sleep_is_no_pause_but_oversleeping_is() {
        let mut watch = PauseWatch::new(100);
        watch.observe(at(0));
        watch.idle_until(at(10_000));
        assert_eq!(watch.observe(at(10_100)), None, "on time");
        watch.idle_until(at(20_000));
        assert_eq!(watch.observe(at(12_000)), None, "woken early");
        watch.idle_until(at(20_000));
        assert_eq!(watch.observe(at(20_500)), Some(500), "overslept");
    }

    #[test]
    fn a_clock_set_back_makes_no_pause() {
        let mut watch = PauseWatch::new(100);
        watch.observe(at(5000));
        assert_eq!(watch.observe(at(10)), None);
        assert_eq!(watch.observe(at(200)), Some(190));
    }

    #[test]
    fn tai_is_ahead_of_utc_by_what_the_kernel_says() {
        let offset = i64::from(clock_state().tai_offset_s) * 1_000_000_000;
        let before = read(libc::CLOCK_REALTIME);
        let tai = tai_now();
        let after = read(libc::CLOCK_REALTIME);
        assert!(before <= tai - offset && tai - offset <= after);
    }

    #[test]
    fn measuring_pauses_watches_as_long_as_asked() {
        let report = measure_pauses(Duration::from_millis(5), Duration::ZERO);
        assert!(report.watched_ns >= 5_000_000);
        // With no threshold every gap but none of no length counts: they add up.
        assert_eq!(report.stats.count.min(MAX_KEPT_PAUSES as u64), report.pauses.len() as u64);
        assert!(report.stats.total_ns <= report.watched_ns);
        assert!(report.stats.max_ns >= *report.pauses.iter().max().unwrap());
    }
}
