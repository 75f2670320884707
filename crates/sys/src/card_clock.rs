//! A network card's own clock, and what it reads as TAI.
//!
//! A card that stamps packets does so by a clock of its own (a PTP hardware clock, Linux
//! `Documentation/driver-api/ptp.rst`). Nothing need keep it equal to the system's. Once a second
//! both are read together, and a straight line through the last two readings turns a card's stamp
//! into TAI.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt as _;

use sonde_wire::Time;

use crate::clock::clock_state;

/// The clock of one card, read through `/dev/ptpN`.
#[derive(Debug)]
pub struct CardClock {
    device: File,
    line: Option<Line>,
    due: Time,
}

/// The card's clock and the system's at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    /// Of the card, ns.
    card: i64,
    /// Of the system, TAI.
    tai: Time,
    /// `tai` is at most this far off, ns: half of the time that reading took.
    error: i64,
}

/// How to turn a card's stamp into TAI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    last: Reading,
    /// By how much the system's clock runs faster, parts in 10^9; `None` until two
    /// readings agree on it.
    rate: Option<i64>,
}

impl CardClock {
    /// Of the card whose clock is `/dev/ptp{index}` (see [`crate::host`]). It is not read
    /// yet.
    ///
    /// # Errors
    /// When the device cannot be opened, or does not give both clocks at once.
    pub fn open(index: u32) -> io::Result<CardClock> {
        let device = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(format!("/dev/ptp{index}"))?;
        read(&device)?;
        Ok(CardClock { device, line: None, due: Time::from_nanos(0) })
    }

    /// Reads the clock if that is due: some microseconds, once a second. To be called
    /// once a burst.
    #[inline]
    pub fn refresh(&mut self, now: Time) {
        if now >= self.due || self.due - now > 2 * PERIOD_NS {
            self.due = now + PERIOD_NS;
            self.line = match (read(&self.device), self.line) {
                (Ok(reading), Some(line)) => Some(line.through(reading)),
                (Ok(reading), None) => Some(Line { last: reading, rate: None }),
                // What was known holds until it is stale.
                (Err(_), line) => line,
            };
        }
    }

    /// TAI of a card's stamp taken about `now`. `None` while the card's rate is not known. Also for
    /// a stamp that no packet seen just now can have: in the future, or more than [`MAX_AGE_NS`]
    /// old.
    #[inline]
    pub fn tai(&self, card: u64, now: Time) -> Option<Time> {
        self.line?.tai(i64::try_from(card).ok()?, now)
    }
}

impl Line {
    fn through(self, reading: Reading) -> Line {
        let card = reading.card.saturating_sub(self.last.card);
        let system = reading.tai - self.last.tai;
        // A second apart, two readings that are each some 100 ns off give the rate to a
        // few parts in 10^7. Oscillators differ by less than 10^-3 unless one was set.
        let rate = (card >= PERIOD_NS / 2)
            .then(|| (i128::from(system - card) * 1_000_000_000 / i128::from(card)) as i64)
            .filter(|rate| rate.unsigned_abs() <= MAX_RATE as u64);
        Line { last: reading, rate }
    }

    fn tai(self, card: i64, now: Time) -> Option<Time> {
        let rate = self.rate?;
        let after = card.checked_sub(self.last.card)?;
        if after.unsigned_abs() > STALE_NS as u64 {
            return None;
        }
        let at =
            self.last.tai + after + (i128::from(after) * i128::from(rate) / 1_000_000_000) as i64;
        let age = now - at;
        (-(self.last.error + SLACK_NS)..=MAX_AGE_NS).contains(&age).then_some(at)
    }
}

/// The best of several readings: the one that took the least time.
fn read(device: &File) -> io::Result<Reading> {
    let mut offset = SysOffset {
        samples: SAMPLES as u32,
        reserved: [0; 3],
        at: [[ClockTime::default(); 3]; MAX_SAMPLES],
    };
    // SAFETY: the request reads and writes one `struct ptp_sys_offset_extended`, which
    // has this layout and outlives the call.
    if unsafe { libc::ioctl(device.as_raw_fd(), PTP_SYS_OFFSET_EXTENDED as _, &mut offset) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let tai_ahead = i64::from(clock_state().tai_offset_s) * 1_000_000_000;
    best(&offset.at[..SAMPLES], tai_ahead)
        .ok_or_else(|| io::Error::other("the card's clock was read backwards"))
}

/// Of triples "system before, card, system after", in UTC.
fn best(samples: &[[ClockTime; 3]], tai_ahead: i64) -> Option<Reading> {
    samples
        .iter()
        .map(|[before, card, after]| {
            let (before, after) = (before.nanos(), after.nanos());
            let error = (after - before) / 2;
            Reading { card: card.nanos(), tai: Time::from_nanos(before + error + tai_ahead), error }
        })
        .filter(|reading| reading.error >= 0)
        .min_by_key(|reading| reading.error)
}

/// `struct ptp_clock_time` of Linux `include/uapi/linux/ptp_clock.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ClockTime {
    sec: i64,
    nsec: u32,
    reserved: u32,
}

impl ClockTime {
    fn nanos(&self) -> i64 {
        self.sec.saturating_mul(1_000_000_000).saturating_add(i64::from(self.nsec))
    }
}

/// `struct ptp_sys_offset_extended`, likewise.
#[repr(C)]
struct SysOffset {
    samples: u32,
    reserved: [u32; 3],
    at: [[ClockTime; 3]; MAX_SAMPLES],
}

/// `PTP_MAX_SAMPLES`.
const MAX_SAMPLES: usize = 25;
/// How often one reading tries.
const SAMPLES: usize = 5;
/// `_IOWR('=', 9, struct ptp_sys_offset_extended)`.
const PTP_SYS_OFFSET_EXTENDED: u32 =
    3 << 30 | (size_of::<SysOffset>() as u32) << 16 | (b'=' as u32) << 8 | 9;
/// Between two readings of the card's clock.
const PERIOD_NS: i64 = 1_000_000_000;
/// A line is not drawn further than this.
const STALE_NS: i64 = 10 * PERIOD_NS;
/// Two clocks differ by less, in parts in 10^9, unless one of them was set.
const MAX_RATE: i64 = 1_000_000;
/// A card's stamp may be this much ahead of the system's clock besides the error of
/// the reading, ns: the error of the rate over some seconds.
const SLACK_NS: i64 = 2_000;
/// A packet waits in a card's ring and for its interrupt for less than this, ns.
pub const MAX_AGE_NS: i64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(card: i64, tai: i64) -> Reading {
        Reading { card, tai: Time::from_nanos(tai), error: 100 }
    }

    fn at(ns: i64) -> Time {
        Time::from_nanos(ns)
    }

    #[test]
    fn a_clock_of_another_epoch_and_rate_is_followed() {
        // The card counts from boot and loses 40 parts in 10^6.
        let tai_of = |card: i64| 1_700_000_000_000_000_000 + card + card * 40 / 1_000_000;
        let mut line = Line { last: reading(0, tai_of(0)), rate: None };
        assert_eq!(line.tai(10, at(tai_of(10) + 5)), None, "one reading gives no rate");
        for second in 1..5 {
            let card = second * 1_000_000_000;
            line = line.through(reading(card, tai_of(card)));
            for later in [0, 1_000_000, 999_999_999, 3_000_000_000] {
                let stamp = card + later;
                let tai = line.tai(stamp, at(tai_of(stamp) + 20_000)).unwrap();
                assert!((tai - at(tai_of(stamp))).abs() <= 3, "{second} s, {later} ns later");
            }
        }
    }

    #[test]
    fn stamps_of_no_packet_seen_just_now_are_refused() {
        let line = Line { last: reading(0, 0), rate: Some(0) };
        assert_eq!(line.tai(1_000, at(900)), Some(at(1_000)), "within the error of the reading");
        assert_eq!(line.tai(10_000, at(1_000)), None, "in the future");
        assert_eq!(line.tai(0, at(MAX_AGE_NS)), Some(at(0)));
        assert_eq!(line.tai(0, at(MAX_AGE_NS + 1)), None, "too old");
        assert_eq!(line.tai(STALE_NS + 1, at(STALE_NS + 1)), None, "the line is stale");
        assert_eq!(line.tai(i64::MIN, at(0)), None);
    }

    #[test]
    fn a_clock_that_was_set_needs_two_new_readings() {
        let line = Line { last: reading(0, 0), rate: Some(0) };
        let line = line.through(reading(1_000_000_000, 1_500_000_000));
        assert_eq!(line.rate, None);
        let line = line.through(reading(2_000_000_000, 2_500_000_000));
        assert_eq!(line.rate, Some(0));
        let line = line.through(reading(1_000, 3_500_000_000));
        assert_eq!(line.rate, None, "set back");
    }

    #[test]
    fn the_quickest_reading_counts_and_one_backwards_never() {
        let time = |ns: u32| ClockTime { sec: 1, nsec: ns, reserved: 0 };
        let samples = [
            [time(100), time(5_000), time(1_100)],
            [time(2_000), time(6_000), time(2_200)],
            [time(4_000), time(7_000), time(3_000)],
        ];
        let best = best(&samples, 37_000_000_000).unwrap();
        assert_eq!(best, Reading { card: 1_000_006_000, tai: at(38_000_002_100), error: 100 });
        assert!(super::best(&samples[2..], 0).is_none());
    }

    #[test]
    fn the_request_is_the_kernels() {
        assert_eq!(size_of::<SysOffset>(), 1216);
        assert_eq!(PTP_SYS_OFFSET_EXTENDED, 0xc4c0_3d09);
        assert!(CardClock::open(u32::MAX).is_err());
    }
}
