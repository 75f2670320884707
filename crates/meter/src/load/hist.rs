//! A histogram for hot paths: no search, no allocation; read out as [`Hist`].

use sonde_results::hist::{Hist, bucket_of, buckets_in_row};

/// A histogram with a counter for every bucket of [`Hist`].
#[derive(Clone, Debug)]
pub struct FastHist {
    min: i64,
    max: i64,
    sum: i128,
    count: u64,
    buckets: Box<[u64]>,
}

impl Default for FastHist {
    fn default() -> FastHist {
        let buckets = vec![0; 2 * BUCKETS as usize].into();
        FastHist { min: i64::MAX, max: i64::MIN, sum: 0, count: 0, buckets }
    }
}

impl FastHist {
    /// Adds a value, ns.
    #[inline]
    pub fn add(&mut self, value: i64) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += i128::from(value);
        self.count += 1;
        self.buckets[(i32::from(bucket_of(value)) + BUCKETS) as usize] += 1;
    }

    #[inline]
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn clear(&mut self) {
        self.buckets.fill(0);
        (self.min, self.max, self.sum, self.count) = (i64::MAX, i64::MIN, 0, 0);
    }

    /// As everybody else has it.
    pub fn read(&self) -> Hist {
        if self.count == 0 {
            return Hist::default();
        }
        let buckets = buckets_in_row(-BUCKETS as i16, self.buckets.iter().copied());
        Hist { count: self.count, sum: self.sum, min: self.min, max: self.max, buckets }
    }
}

/// More than any value has on either side of 0: 32 for each of 58 powers of two.
const BUCKETS: i32 = 60 * 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_same_as_the_sparse_one(values: Vec<i64>) {
            let (mut fast, mut sparse) = (FastHist::default(), Hist::default());
            for &v in values.iter().chain(&[i64::MAX, i64::MIN, 0]) {
                fast.add(v);
                sparse.add(v);
            }
            prop_assert_eq!(fast.read(), sparse);
            fast.clear();
            prop_assert_eq!(fast.read(), Hist::default());
        }
    }
}
