//! One-way delay variation from a sender's TSval clock (RFC 7323, section 5.4). It is how much
//! later than its clock says a segment arrives, against the earliest so far.

use super::clock::{Clock, ticks_to_ns};

/// One direction's clock. Two integers serve first to find its period, then to follow it.
#[derive(Clone, Copy, Default)]
pub(super) struct Variation {
    /// The first TSval; then the delay above the least, ns.
    value: u32,
    /// When the first one came; then when the last one did. Ticks.
    at: u32,
    period: Period,
}

/// The TSval clock's period.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
enum Period {
    /// No edge yet.
    #[default]
    Fresh,
    /// A second has not passed since the first edge.
    Seeking,
    /// None that is in use.
    Odd,
    Us1,
    Ms1,
    Ms4,
    Ms10,
}

impl Variation {
    /// The TSval advanced from `before` to `tsval`. The delay above the least so far, ns:
    /// 0 as long as the period is not known.
    #[inline]
    pub(super) fn edge(&mut self, before: u32, tsval: u32, clock: &Clock) -> u32 {
        let elapsed = ticks_to_ns(clock.age(self.at));
        if self.period == Period::Fresh || elapsed > PAUSE {
            *self = Variation { value: tsval, at: clock.tick, period: Period::Seeking };
            return 0;
        }
        if self.period == Period::Seeking {
            if elapsed >= SEEK {
                self.period = Period::find(elapsed, tsval.wrapping_sub(self.value));
                (self.value, self.at) = (0, clock.tick);
            }
            return 0;
        }
        self.at = clock.tick;
        let Some(period) = self.period.ns() else { return 0 };
        let sent = i64::from(tsval.wrapping_sub(before)) * period;
        // The leak of 122 ppm keeps two clocks of unlike speed from looking like a queue.
        let delay = i64::from(self.value) + elapsed as i64 - sent - (elapsed >> LEAK_BITS) as i64;
        self.value = delay.clamp(0, i64::from(u32::MAX)) as u32;
        self.value
    }

    /// Whether the clock takes four round trips or more (`srtt`, ticks; 0: not known) for a step,
    /// as far as is known before [`Variation::edge`].
    #[inline]
    pub(super) fn is_slower(&self, srtt: u32, before: u32, tsval: u32, clock: &Clock) -> bool {
        let since = match self.period {
            Period::Fresh => return false,
            Period::Seeking => self.value,
            Period::Odd => before,
            known => return srtt != 0 && known.ns() >= Some(4 * ticks_to_ns(srtt) as i64),
        };
        let steps = u64::from(tsval.wrapping_sub(since));
        srtt != 0 && u64::from(clock.age(self.at)) >= 4 * steps * u64::from(srtt)
    }

    pub(super) fn restart(&mut self) {
        *self = Variation::default();
    }
}

impl Period {
    fn find(elapsed_ns: u64, steps: u32) -> Period {
        [Period::Us1, Period::Ms1, Period::Ms4, Period::Ms10]
            .into_iter()
            .find(|period| {
                let by_clock = u64::from(steps) * period.ns().unwrap_or(0) as u64;
                elapsed_ns.abs_diff(by_clock) * 10 <= by_clock
            })
            .unwrap_or(Period::Odd)
    }

    fn ns(self) -> Option<i64> {
        match self {
            Period::Us1 => Some(1_000),
            Period::Ms1 => Some(1_000_000),
            Period::Ms4 => Some(4_000_000),
            Period::Ms10 => Some(10_000_000),
            _ => None,
        }
    }
}

/// How long a clock is watched before its period is taken, ns.
const SEEK: u64 = 1_000_000_000;
/// After a pause like this all begins anew, ns.
const PAUSE: u64 = 60_000_000_000;
const LEAK_BITS: u32 = 13;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_wire::Time;

    /// Edges at these instants of the sender's clock (ms), each delayed by so many us.
    fn follow(period_ns: i64, steps: &[(i64, i64)]) -> Vec<u32> {
        let (mut variation, mut before) = (Variation::default(), 0);
        let mut all = Vec::new();
        for &(sent_ms, delay_us) in steps {
            let tsval = (sent_ms * 1_000_000 / period_ns) as u32;
            let at = 1_000_000_000_000 + sent_ms * 1_000_000 + delay_us * 1000;
            all.push(variation.edge(before, tsval, &Clock::new(Time::from_nanos(at))));
            before = tsval;
        }
        all
    }

    #[test]
    fn a_queue_shows_and_drains_at_every_period_in_use() {
        for period in [1_000, 1_000_000, 4_000_000, 10_000_000] {
            let got = follow(
                period,
                &[(0, 0), (600, 100), (1200, 0), (1400, 5_000), (1600, 20_000), (1800, 0)],
            );
            assert_eq!(got[..3], [0, 0, 0], "{period}");
            // Less the leak: 122 ppm of 200 ms is 24 us; ticks are 64 ns.
            assert!(got[3].abs_diff(5_000_000 - 24_400) < 1_000, "{period}: {got:?}");
            assert!(got[4].abs_diff(20_000_000 - 48_800) < 3_000, "{period}: {got:?}");
            assert_eq!(got[5], 0, "{period}");
        }
    }

    #[test]
    fn a_clock_of_no_known_period_measures_nothing() {
        let got = follow(2_000_000, &[(0, 0), (1200, 0), (1300, 50_000), (1400, 90_000)]);
        assert_eq!(got, [0; 4]);
    }

    #[test]
    fn a_long_pause_begins_anew() {
        let got = follow(
            1_000_000,
            &[(0, 0), (1100, 0), (1200, 9_000), (62_000, 40_000), (62_100, 90_000)],
        );
        assert!(got[2] > 8_900_000);
        assert_eq!(got[3..], [0, 0]);
    }
}
