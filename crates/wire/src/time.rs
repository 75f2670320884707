//! Instants on one time base (TAI), and the formats that packets carry them in.

use core::ops::{Add, Sub};

/// An instant: nanoseconds since 1970-01-01T00:00:00 TAI (Linux `CLOCK_TAI`).
///
/// Differences are signed nanoseconds (`i64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// Later than any instant that occurs.
    pub const MAX: Time = Time(i64::MAX);
    /// The epoch.
    pub const ZERO: Time = Time(0);

    /// From nanoseconds since the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Time(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
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
