//! What threads count: distributions without allocation, and rates of the last second.

use sonde_results::Hist;
use sonde_results::hist::bucket_of;

/// A histogram with a place for every bucket.
#[derive(Clone, Debug)]
pub struct Dense {
    /// Bucket `b` at `b + MIDDLE`.
    counts: Box<[u64]>,
    count: u64,
    sum: i128,
    min: i64,
    max: i64,
}

impl Dense {
    /// An empty one.
    pub fn new() -> Dense {
        let counts = vec![0; 2 * MIDDLE as usize].into();
        Dense { counts, count: 0, sum: 0, min: i64::MAX, max: i64::MIN }
    }

    /// Adds a value, ns.
    #[inline]
    pub fn add(&mut self, value: i64) {
        self.counts[(i32::from(bucket_of(value)) + MIDDLE) as usize] += 1;
        self.count += 1;
        self.sum += i128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, i64::MAX, i64::MIN);
    }

    /// As everybody else has it.
    pub fn hist(&self) -> Hist {
        if self.count == 0 {
            return Hist::default();
        }
        let mut buckets = Vec::new();
        for (place, &count) in self.counts.iter().enumerate() {
            let (bucket, mut left) = ((place as i32 - MIDDLE) as i16, count);
            while left > 0 {
                let part = left.min(u32::MAX.into());
                buckets.push((bucket, part as u32));
                left -= part;
            }
        }
        Hist { count: self.count, sum: self.sum, min: self.min, max: self.max, buckets }
    }
}

/// Frames and octets a second, over about the last second.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateMeter {
    at: i64,
    totals: [u64; 2],
    rates: [f64; 2],
}

impl RateMeter {
    /// The rates, given the totals at a time (ns).
    pub fn read(&mut self, now: i64, totals: [u64; 2]) -> [f64; 2] {
        let passed = now - self.at;
        if passed >= PERIOD_NS {
            if self.at > 0 {
                let rate = |i: usize| {
                    totals[i].saturating_sub(self.totals[i]) as f64 * 1e9 / passed as f64
                };
                self.rates = [rate(0), rate(1)];
            }
            (self.at, self.totals) = (now, totals);
        }
        self.rates
    }
}

/// More buckets than any value has on either side of 0: 32 for each of 58 powers of two.
const MIDDLE: i32 = 60 * 32;
/// Rates are those of at least this time.
const PERIOD_NS: i64 = 500_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_same_as_the_sparse_one(values: Vec<i64>) {
            let (mut dense, mut sparse) = (Dense::new(), Hist::default());
            for &v in values.iter().chain(&[i64::MAX, i64::MIN, 0]) {
                dense.add(v);
                sparse.add(v);
            }
            prop_assert_eq!(dense.hist(), sparse);
            dense.clear();
            prop_assert_eq!(dense.hist(), Hist::default());
        }
    }

    #[test]
    fn rates_are_those_between_two_readings() {
        let mut meter = RateMeter::default();
        assert_eq!(meter.read(1_000_000_000, [100, 1000]), [0.0, 0.0]);
        assert_eq!(meter.read(1_100_000_000, [200, 2000]), [0.0, 0.0]);
        assert_eq!(meter.read(2_000_000_000, [600, 6000]), [500.0, 5000.0]);
        assert_eq!(meter.read(2_100_000_000, [600, 6000]), [500.0, 5000.0]);
        assert_eq!(meter.read(3_000_000_000, [600, 6000]), [0.0, 0.0]);
    }
}
