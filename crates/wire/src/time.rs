//! Instants on one time base (TAI), and the formats that packets carry them in. These are NTP (RFC
//! 5905 section 6) and truncated PTPv2 (RFC 8186, RFC 8877 section 4.3). The error estimate goes
//! with either (RFC 4656 section 4.1.2).

use core::ops::{Add, Sub};

/// An instant: nanoseconds since 1970-01-01T00:00:00 TAI, as Linux's `CLOCK_TAI` stood when the
/// program began. From then on it advances steadily, whoever sets the clock meanwhile; [`Scale`]
/// says how far the two have come apart.
///
/// Differences are signed nanoseconds (`i64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

/// A 64-bit NTP timestamp: seconds since 1900-01-01 UTC modulo 2^32, and 2^-32 of a second.
///
/// The seconds wrap in 2036; [`NtpTime::to_time`] takes the era from a reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NtpTime(pub u64);

/// A truncated PTPv2 timestamp: seconds since 1970 TAI modulo 2^32, then nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PtpTime(pub u64);

/// How [`Time`], which nobody sets, stands to the clocks that packets carry, which are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// [`Time`] - UTC, ns: to be handed to [`Time::to_ntp`] and its like as the TAI offset.
    pub utc_offset: i64,
    /// TAI - [`Time`], ns: 0 until a clock is set.
    pub tai_shift: i64,
    /// How often either has changed.
    pub steps: u32,
    /// By how much the clock was set forward the last time, ns.
    pub last_step: i64,
}

/// Which of the two a packet's timestamp is: the Z bit of its error estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimestampFormat {
    /// Z = 0: seconds since 1900 UTC and their 2^-32 parts.
    #[default]
    Ntp,
    /// Z = 1: seconds since 1970 TAI and nanoseconds.
    Ptp,
}

/// How far a timestamp can be trusted: S and Z bits, 6-bit scale, 8-bit multiplier.
///
/// The error is `multiplier * 2^(scale - 32)` seconds. A multiplier of 0 is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorEstimate(pub u16);

impl Time {
    /// Later than any instant that occurs.
    pub const MAX: Time = Time(i64::MAX);
    /// 1970-01-01T00:00:00 TAI.
    pub const ZERO: Time = Time(0);

    /// From nanoseconds since the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Time(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// As NTP puts it on the wire, to the nearest 2^-32 s. `tai_offset` is TAI - UTC in ns.
    #[inline]
    pub const fn to_ntp(self, tai_offset: i64) -> NtpTime {
        let utc = self.0.saturating_sub(tai_offset);
        let seconds = utc.div_euclid(SECOND) + NTP_UNIX_OFFSET;
        let nanos = utc.rem_euclid(SECOND) as u64;
        // nanos < 2^30, so the shifted value and the half for rounding fit 64 bits,
        // and the quotient stays below 2^32.
        let fraction = ((nanos << 32) + SECOND as u64 / 2) / SECOND as u64;
        NtpTime(((seconds as u32 as u64) << 32) | fraction)
    }

    /// As truncated PTPv2 puts it on the wire; PTP's time scale is TAI.
    #[inline]
    pub const fn to_ptp(self) -> PtpTime {
        let seconds = self.0.div_euclid(SECOND) as u32;
        let nanos = self.0.rem_euclid(SECOND) as u32;
        PtpTime((seconds as u64) << 32 | nanos as u64)
    }

    /// The eight octets of a test packet's timestamp, as an integer.
    #[inline]
    pub const fn to_wire(self, format: TimestampFormat, tai_offset: i64) -> u64 {
        match format {
            TimestampFormat::Ntp => self.to_ntp(tai_offset).0,
            TimestampFormat::Ptp => self.to_ptp().0,
        }
    }

    /// What [`Time::to_wire`] wrote, within 68 years of `reference`.
    #[inline]
    pub const fn from_wire(
        wire: u64,
        format: TimestampFormat,
        reference: Time,
        tai_offset: i64,
    ) -> Time {
        match format {
            TimestampFormat::Ntp => NtpTime(wire).to_time(reference, tai_offset),
            TimestampFormat::Ptp => PtpTime(wire).to_time(reference),
        }
    }
}

impl NtpTime {
    /// The instant of the era that lies nearest to `reference`, to the nearest ns.
    /// `tai_offset` is TAI - UTC in ns.
    #[inline]
    pub const fn to_time(self, reference: Time, tai_offset: i64) -> Time {
        let near = reference.0.saturating_sub(tai_offset).div_euclid(SECOND);
        let seconds = nearest((self.0 >> 32) as u32, near + NTP_UNIX_OFFSET) - NTP_UNIX_OFFSET;
        let fraction = self.0 & 0xFFFF_FFFF;
        // May round up to a whole second, which the addition carries.
        let nanos = ((fraction * SECOND as u64 + (1 << 31)) >> 32) as i64;
        Time(seconds.saturating_mul(SECOND).saturating_add(nanos).saturating_add(tai_offset))
    }
}

impl PtpTime {
    /// The instant nearest to `reference` that has these seconds.
    ///
    /// A nanosecond field of 10^9 or more is no valid timestamp; it is added as it stands.
    #[inline]
    pub const fn to_time(self, reference: Time) -> Time {
        let near = reference.0.div_euclid(SECOND);
        let seconds = nearest((self.0 >> 32) as u32, near);
        let nanos = (self.0 & 0xFFFF_FFFF) as i64;
        Time(seconds.saturating_mul(SECOND).saturating_add(nanos))
    }

    /// The nanosecond field is below 10^9.
    pub const fn is_valid(self) -> bool {
        (self.0 & 0xFFFF_FFFF) < SECOND as u64
    }
}

impl ErrorEstimate {
    /// The least error that can be written and is not below `error_ns`.
    ///
    /// 0 and negative values give the least there is, 2^-32 s (0.23 ns).
    pub const fn from_error_ns(error_ns: i64, synchronised: bool, format: TimestampFormat) -> Self {
        let error = if error_ns < 0 { 0 } else { error_ns as u128 };
        // In units of 2^-32 s, rounded up: an estimate may be too wide, never too narrow.
        let units = (error << 32).div_ceil(SECOND as u128);
        let mut scale = 0;
        let mut multiplier = if units == 0 { 1 } else { units };
        while multiplier > 0xFF {
            scale += 1;
            multiplier = units.div_ceil(1 << scale);
        }
        let z = matches!(format, TimestampFormat::Ptp);
        ErrorEstimate(
            (synchronised as u16) << 15 | (z as u16) << 14 | scale << 8 | multiplier as u16,
        )
    }

    /// The error in ns, rounded up and at most `i64::MAX`, which also stands for a
    /// multiplier of 0: such an estimate bounds nothing.
    pub const fn error_ns(self) -> i64 {
        if self.multiplier() == 0 {
            return i64::MAX;
        }
        let units = (self.multiplier() as u128) << self.scale();
        let nanos = (units * SECOND as u128).div_ceil(1 << 32);
        if nanos > i64::MAX as u128 { i64::MAX } else { nanos as i64 }
    }

    /// The S bit: the clock is synchronised to UTC by an external source.
    pub const fn synchronised(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// The Z bit: the format of the timestamps it goes with (RFC 8186 section 2.3).
    pub const fn format(self) -> TimestampFormat {
        if self.0 & 0x4000 == 0 { TimestampFormat::Ntp } else { TimestampFormat::Ptp }
    }

    /// 0..=63.
    pub const fn scale(self) -> u8 {
        (self.0 >> 8) as u8 & 0x3F
    }

    /// 0..=255; 0 is not valid.
    pub const fn multiplier(self) -> u8 {
        self.0 as u8
    }

    /// The multiplier is not 0.
    pub const fn is_valid(self) -> bool {
        self.multiplier() != 0
    }
}

impl Add<i64> for Time {
    type Output = Time;
    fn add(self, nanos: i64) -> Time {
        Time(self.0.saturating_add(nanos))
    }
}

impl Sub<i64> for Time {
    type Output = Time;
    fn sub(self, nanos: i64) -> Time {
        Time(self.0.saturating_sub(nanos))
    }
}

impl Sub<Time> for Time {
    type Output = i64;
    fn sub(self, earlier: Time) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The integer congruent to `low` modulo 2^32 that lies nearest to `near`.
const fn nearest(low: u32, near: i64) -> i64 {
    near + low.wrapping_sub(near as u32) as i32 as i64
}

/// Nanoseconds in a second.
pub const SECOND: i64 = 1_000_000_000;

/// Seconds from 1900-01-01 to 1970-01-01.
const NTP_UNIX_OFFSET: i64 = 2_208_988_800;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TAI_OFFSET: i64 = 37 * SECOND;
    /// 2026-01-01T00:00:00 UTC.
    const UTC_2026: i64 = 1_767_225_600;

    fn utc(seconds: i64, nanos: i64) -> Time {
        Time::from_nanos(seconds * SECOND + nanos + TAI_OFFSET)
    }

    #[test]
    fn ntp_vectors() {
        // RFC 5905, figure 4: 1970-01-01 is second 2,208,988,800 of era 0.
        assert_eq!(utc(0, 0).to_ntp(TAI_OFFSET), NtpTime(2_208_988_800 << 32));
        assert_eq!(utc(0, 500_000_000).to_ntp(TAI_OFFSET).0 as u32, 0x8000_0000);
        // 2036-02-07T06:28:16 UTC begins era 1.
        assert_eq!(utc(2_085_978_496, 0).to_ntp(TAI_OFFSET), NtpTime(0));
        assert_eq!(utc(2_085_978_495, 0).to_ntp(TAI_OFFSET), NtpTime(0xFFFF_FFFF << 32));
    }

    #[test]
    fn ntp_era_is_taken_from_the_reference() {
        let before = utc(2_085_978_495, 999_999_999);
        let after = utc(2_085_978_496, 1);
        for t in [before, after] {
            for reference in [before, after] {
                assert_eq!(t.to_ntp(TAI_OFFSET).to_time(reference, TAI_OFFSET), t);
            }
        }
    }

    #[test]
    fn ntp_fraction_may_round_up_to_the_next_second() {
        let t = NtpTime(2_208_988_800 << 32 | 0xFFFF_FFFF);
        assert_eq!(t.to_time(utc(0, 0), TAI_OFFSET), utc(1, 0));
    }

    #[test]
    fn ptp_vectors() {
        let t = Time::from_nanos(UTC_2026 * SECOND + 123_456_789);
        assert_eq!(t.to_ptp(), PtpTime((UTC_2026 as u64) << 32 | 123_456_789));
        assert!(t.to_ptp().is_valid());
        assert!(!PtpTime(1_000_000_000).is_valid());
        // 2106-02-07T06:28:16 TAI: the seconds wrap.
        let wrap = Time::from_nanos((1 << 32) * SECOND);
        assert_eq!(wrap.to_ptp(), PtpTime(0));
        assert_eq!(PtpTime(0).to_time(wrap - 1), wrap);
    }

    #[test]
    fn error_estimate_vectors() {
        // 1 ms is 4,294,967.296 units: 132 * 2^15 is the least multiple not below it.
        let e = ErrorEstimate::from_error_ns(1_000_000, true, TimestampFormat::Ptp);
        assert_eq!((e.scale(), e.multiplier()), (15, 132));
        assert_eq!(e.0, 0xC000 | 15 << 8 | 132);
        assert!(e.synchronised() && e.is_valid());
        assert_eq!(e.format(), TimestampFormat::Ptp);
        // What perfSONAR sends unsynchronised: 1 * 2^-32 s.
        assert_eq!(ErrorEstimate(0x0001).error_ns(), 1);
        assert_eq!(ErrorEstimate::from_error_ns(0, false, TimestampFormat::Ntp).0, 0x0001);
        assert_eq!(ErrorEstimate::from_error_ns(-5, false, TimestampFormat::Ntp).0, 0x0001);
        assert_eq!(ErrorEstimate(0x2000).error_ns(), i64::MAX);
        assert_eq!(ErrorEstimate(0x3FFF).error_ns(), i64::MAX);
        assert!(!ErrorEstimate(0x8000).is_valid());
    }

    proptest! {
        #[test]
        fn ntp_round_trip_is_exact(
            nanos: i64,
            drift in -2_000_000_000 * SECOND..2_000_000_000 * SECOND,
        ) {
            // Away from the ends of i64, where sums saturate.
            let t = Time::from_nanos(nanos / 4);
            prop_assert_eq!(t.to_ntp(TAI_OFFSET).to_time(t + drift, TAI_OFFSET), t);
        }

        #[test]
        fn ptp_round_trip_is_exact(
            nanos: i64,
            drift in -2_000_000_000 * SECOND..2_000_000_000 * SECOND,
        ) {
            let t = Time::from_nanos(nanos / 4);
            prop_assert_eq!(t.to_ptp().to_time(t + drift), t);
        }

        #[test]
        fn ntp_order_is_kept(nanos in 0..i64::MAX / 8, step in 1..SECOND) {
            let (a, b) = (Time::from_nanos(nanos), Time::from_nanos(nanos + step));
            prop_assert!(b.to_ntp(0).0.wrapping_sub(a.to_ntp(0).0) as i64 > 0);
        }

        #[test]
        fn ntp_rounds_to_the_nearest(nanos in 0..SECOND) {
            // |fraction / 2^32 - nanos / 10^9| <= half a unit, in exact integers.
            let fraction = i128::from(Time::from_nanos(nanos).to_ntp(0).0 as u32);
            let distance = fraction * i128::from(SECOND) - (i128::from(nanos) << 32);
            prop_assert!(distance.abs() * 2 <= i128::from(SECOND));
        }

        #[test]
        fn error_estimate_is_a_tight_upper_bound(error in 1..i64::MAX) {
            let e = ErrorEstimate::from_error_ns(error, false, TimestampFormat::Ntp);
            prop_assert!(e.multiplier() != 0);
            prop_assert!(e.error_ns() >= error);
            // One part in 128, or one ns of rounding, at most.
            prop_assert!(e.error_ns() - error <= error / 128 + 2);
        }

        #[test]
        fn never_panics(wire: u64, reference: i64, offset: i64, estimate: u16) {
            let _ = NtpTime(wire).to_time(Time::from_nanos(reference), offset);
            let _ = PtpTime(wire).to_time(Time::from_nanos(reference));
            let _ = Time::from_nanos(reference).to_ntp(offset);
            let _ = Time::from_nanos(reference).to_ptp();
            let _ = ErrorEstimate(estimate).error_ns();
            let _ = ErrorEstimate::from_error_ns(offset, true, TimestampFormat::Ptp);
        }
    }
}
