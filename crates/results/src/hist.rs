//! Mergeable log-linear ("HDR") histograms of signed nanoseconds.
//!
//! Each power of two is cut into 32 equal buckets, values below 32 ns have a
//! bucket each, and negative values (a one-way delay between clocks that differ)
//! mirror the positive ones. A quantile is reported as the middle of its bucket,
//! at most 1.6 % from the true value; minimum, maximum, mean and count are exact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Buckets per power of two.
pub const SUB_BUCKETS: usize = 32;
const SUB_BITS: u32 = SUB_BUCKETS.trailing_zeros();

/// The bucket that holds `value`: 0.. for non-negative values, -1 and below for negative ones.
#[inline]
pub fn bucket_of(value: i64) -> i16 {
    let magnitude = if value < 0 { !value } else { value } as u64;
    let index = if magnitude < SUB_BUCKETS as u64 {
        magnitude as i16
    } else {
        let exponent = 63 - magnitude.leading_zeros();
        let sub = (magnitude >> (exponent - SUB_BITS)) as i16 & (SUB_BUCKETS as i16 - 1);
        ((exponent - SUB_BITS + 1) as i16) * SUB_BUCKETS as i16 + sub
    };
    if value < 0 { !index } else { index }
}

/// Lowest and highest value (both inclusive) of `bucket`.
pub fn bounds_of(bucket: i16) -> (i64, i64) {
    let index = i64::from(if bucket < 0 { !bucket } else { bucket });
    let (block, sub) = (index / SUB_BUCKETS as i64, index % SUB_BUCKETS as i64);
    let (low, high) = if block == 0 {
        (sub, sub)
    } else {
        let width = 1i128 << (block - 1);
        let low = (SUB_BUCKETS as i128 + i128::from(sub)) * width;
        (low as i64, (low + width - 1).min(i128::from(i64::MAX)) as i64)
    };
    if bucket < 0 { (!high, !low) } else { (low, high) }
}

/// A histogram of signed nanoseconds. An empty one holds no minimum or maximum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hist {
    /// Number of values.
    pub count: u64,
    /// Sum of the values, ns.
    pub sum: i128,
    /// Least value, ns (0 when empty).
    pub min: i64,
    /// Greatest value, ns (0 when empty).
    pub max: i64,
    /// Bucket number and count, ascending by bucket, no zero counts.
    pub buckets: Vec<(i16, u64)>,
}

impl Hist {
    /// Adds one value, ns.
    pub fn add(&mut self, value: i64) {
        self.widen(value, value);
        self.count += 1;
        self.sum += i128::from(value);
        self.add_to_bucket(bucket_of(value), 1);
    }

    /// Adds all values of `other`; the result is that of having added each here.
    pub fn merge(&mut self, other: &Hist) {
        if other.count == 0 {
            return;
        }
        self.widen(other.min, other.max);
        self.count += other.count;
        self.sum += other.sum;
        let mut merged = Vec::with_capacity(self.buckets.len() + other.buckets.len());
        let (mut a, mut b) = (self.buckets.iter().peekable(), other.buckets.iter().peekable());
        loop {
            match (a.peek(), b.peek()) {
                (Some(&&(i, n)), Some(&&(j, m))) => {
                    merged
                        .push((i.min(j), if i <= j { n } else { 0 } + if j <= i { m } else { 0 }));
                    if i <= j {
                        a.next();
                    }
                    if j <= i {
                        b.next();
                    }
                }
                (Some(_), None) => merged.extend(a.by_ref().copied()),
                (None, Some(_)) => merged.extend(b.by_ref().copied()),
                (None, None) => break,
            }
        }
        self.buckets = merged;
    }

    /// Empties it; the memory is kept.
    pub fn clear(&mut self) {
        self.count = 0;
        self.sum = 0;
        self.min = 0;
        self.max = 0;
        self.buckets.clear();
    }

    /// The value below or at which the share `q` (0..=1) of the values lies, ns:
    /// the middle of its bucket, kept within minimum and maximum. `None` when empty.
    pub fn quantile(&self, q: f64) -> Option<i64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        if rank == self.count {
            return Some(self.max);
        }
        let mut seen = 0;
        for &(bucket, n) in &self.buckets {
            seen += n;
            if seen >= rank {
                let (low, high) = bounds_of(bucket);
                return Some((low + (high - low) / 2).clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }

    /// Arithmetic mean, ns. `None` when empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Least value, ns. `None` when empty.
    pub fn min(&self) -> Option<i64> {
        (self.count > 0).then_some(self.min)
    }

    /// Greatest value, ns. `None` when empty.
    pub fn max(&self) -> Option<i64> {
        (self.count > 0).then_some(self.max)
    }

    fn widen(&mut self, min: i64, max: i64) {
        let empty = self.count == 0;
        self.min = if empty { min } else { self.min.min(min) };
        self.max = if empty { max } else { self.max.max(max) };
    }

    fn add_to_bucket(&mut self, bucket: i16, n: u64) {
        match self.buckets.binary_search_by_key(&bucket, |&(b, _)| b) {
            Ok(i) => self.buckets[i].1 += n,
            Err(i) => self.buckets.insert(i, (bucket, n)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edges_are_where_they_should_be() {
        for (value, bucket) in [(0, 0), (31, 31), (32, 32), (33, 33), (63, 63), (64, 64), (65, 64)]
        {
            assert_eq!(bucket_of(value), bucket, "{value}");
            assert_eq!(bucket_of(!value), !bucket, "{}", !value);
        }
        assert!(bounds_of(bucket_of(i64::MAX)).1 == i64::MAX);
        assert!(bounds_of(bucket_of(i64::MIN)).0 == i64::MIN);
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket_and_the_bucket_is_narrow(value in any::<i64>()) {
            let (low, high) = bounds_of(bucket_of(value));
            prop_assert!(low <= value && value <= high);
            let width = i128::from(high) - i128::from(low);
            prop_assert!(width * SUB_BUCKETS as i128 <= i128::from(value).abs());
        }

        #[test]
        fn buckets_are_ordered(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(bucket_of(a.min(b)).min(bucket_of(a.max(b))), bucket_of(a.min(b)));
        }

        #[test]
        fn merging_equals_adding(a in prop::collection::vec(any::<i32>(), 0..80),
                                 b in prop::collection::vec(any::<i32>(), 0..80)) {
            let (mut x, mut y, mut all) = (Hist::default(), Hist::default(), Hist::default());
            for &v in &a { x.add(v.into()); all.add(v.into()); }
            for &v in &b { y.add(v.into()); all.add(v.into()); }
            x.merge(&y);
            prop_assert_eq!(x, all);
        }

        #[test]
        fn a_quantile_is_near_the_true_one(mut v in prop::collection::vec(-2_000_000_000i64..9_000_000_000, 1..200),
                                           q in 0.0f64..=1.0) {
            let mut h = Hist::default();
            for &x in &v { h.add(x); }
            v.sort_unstable();
            let rank = ((q * v.len() as f64).ceil() as usize).clamp(1, v.len());
            let (truth, got) = (v[rank - 1], h.quantile(q).unwrap());
            prop_assert!((truth - got).abs() * 63 <= truth.abs().max(63), "{} {}", truth, got);
        }
    }
}
