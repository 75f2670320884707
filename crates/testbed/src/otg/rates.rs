//! Rates of the last second.

/// Frames and octets a second, over the last half to whole second, or since the begin where that
/// is less ago. Whoever counts calls [`RateMeter::mark`] all the time: so the rate is right
/// whenever, and however seldom, somebody asks.
#[derive(Clone, Copy, Debug)]
pub struct RateMeter {
    /// Times, ns, and totals then: the one that rates are counted from, and the next of these.
    marks: [(i64, [u64; 2]); 2],
}

impl RateMeter {
    /// Counting begins now, ns, at these totals.
    pub fn new(now: i64, totals: [u64; 2]) -> RateMeter {
        RateMeter { marks: [(now, totals); 2] }
    }

    /// Whether it is time for a mark.
    #[inline]
    pub fn due(&self, now: i64) -> bool {
        now - self.marks[1].0 >= PERIOD_NS
    }

    /// Marks the totals of now, ns, if it is time for it.
    #[inline]
    pub fn mark(&mut self, now: i64, totals: [u64; 2]) {
        if self.due(now) {
            self.marks = [self.marks[1], (now, totals)];
        }
    }

    /// The rates, given the totals at a time (ns).
    pub fn read(&self, now: i64, totals: [u64; 2]) -> [f64; 2] {
        let (from, then) = self.marks[0];
        let passed = now - from;
        if passed < LEAST_NS {
            return [0.0; 2];
        }
        [0, 1].map(|i| totals[i].saturating_sub(then[i]) as f64 * 1e9 / passed as f64)
    }
}

/// From one mark to the next.
pub const PERIOD_NS: i64 = 500_000_000;
/// Of a shorter time a rate would be that of one burst.
const LEAST_NS: i64 = 1_000_000;

/// The sum. Of nothing it is 0; that of `Iterator::sum` is -0.0, which JSON shows.
pub(super) fn zero_or_more(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_nothing_is_shown_without_a_sign() {
        assert_eq!(serde_json::to_string(&zero_or_more([].into_iter())).unwrap(), "0.0");
        assert_eq!(zero_or_more([1.5, 2.0].into_iter()), 3.5);
    }

    #[test]
    fn a_rate_is_right_at_the_first_question_and_whenever_it_is_asked() {
        const MS: i64 = 1_000_000;
        // 1,000 frames a second of 60 octets, counted each millisecond, from 2 s on.
        let mut meter = RateMeter::new(2000 * MS, [0; 2]);
        let totals = |ms: i64| [(ms - 2000) as u64, (ms - 2000) as u64 * 60];
        for ms in 2000..2000 + 3_600_000 {
            meter.mark(ms * MS, totals(ms));
            // Nobody asks for an hour, or somebody does 10 ms after the begin.
            if ms == 2010 || ms == 2400 || ms == 2600 || ms == 2000 + 3_599_999 {
                assert_eq!(meter.read(ms * MS, totals(ms)), [1000.0, 60_000.0], "{ms}");
            }
        }
        assert_eq!(RateMeter::new(0, [0; 2]).read(0, [9, 9]), [0.0; 2]);
    }

    #[test]
    fn a_rate_is_that_of_the_last_second() {
        const MS: i64 = 1_000_000;
        let mut meter = RateMeter::new(0, [0; 2]);
        // 2,000 a second until 5 s, then nothing.
        let totals = |ms: i64| [ms.min(5000) as u64 * 2, 0];
        (0..7000).for_each(|ms| meter.mark(ms * MS, totals(ms)));
        assert_eq!(meter.read(7000 * MS, totals(7000)), [0.0; 2]);
        // A restart leaves nothing of before.
        let meter = RateMeter::new(7000 * MS, totals(7000));
        assert_eq!(meter.read(7500 * MS, totals(7500)), [0.0; 2]);
    }
}
