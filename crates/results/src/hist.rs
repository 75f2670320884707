//! Mergeable log-linear ("HDR") histograms of signed nanoseconds.
//!
//! Values below 1,024 ns have buckets of 32 ns; above, each power of two is cut into 32 equal
//! buckets. Negative values (a delay variation, a one-way delay between clocks that differ) mirror
//! the positive ones. A quantile is reported as the middle of its bucket, at most 1.6 % or 16 ns
//! from the true value. Minimum, maximum, mean and count are exact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rtt_buckets::rtt_bucket_middle;

/// Values beyond a quantile without which it would stand for single values only.
pub const BEYOND: u64 = 10;

/// Whether so many values have a quantile `q` (0 to 1) that can be believed: [`BEYOND`] or more lie
/// beyond it.
pub fn supports(count: u64, q: f64) -> bool {
    // The product of 10,000 and 1 - 0.999 is a hair below 10.
    count as f64 * (1.0 - q) >= BEYOND as f64 - 1e-6
}

/// Buckets per power of two.
pub const SUB_BUCKETS: usize = 32;
const SUB_BITS: u32 = SUB_BUCKETS.trailing_zeros();
/// The narrowest bucket is 2^5 ns wide: finer than any stamp here. So a histogram of small values
/// takes a few pages, instead of one a power of two down to 1 ns.
const UNIT_BITS: u32 = 5;

/// The bucket that holds `value`: 0.. for non-negative values, -1 and below for negative ones.
#[inline]
pub fn bucket_of(value: i64) -> i16 {
    let magnitude = if value < 0 { !value } else { value } as u64 >> UNIT_BITS;
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
    let index = i128::from(if bucket < 0 { !bucket } else { bucket });
    let (block, sub) = (index / SUB_BUCKETS as i128, index % SUB_BUCKETS as i128);
    let (first, width) = match block {
        0 => (sub, 1),
        _ => ((SUB_BUCKETS as i128 + sub) << (block - 1), 1 << (block - 1)),
    };
    let low = (first << UNIT_BITS).min(i128::from(i64::MAX)) as i64;
    let high = (((first + width) << UNIT_BITS) - 1).min(i128::from(i64::MAX)) as i64;
    if bucket < 0 { (!high, !low) } else { (low, high) }
}

/// The [`Hist::buckets`] of counts that stand in a row, that of the bucket `first` in front.
pub fn buckets_in_row(first: i16, counts: impl IntoIterator<Item = u64>) -> Vec<(i16, u32)> {
    let mut buckets = Vec::new();
    for (bucket, mut left) in (first..).zip(counts) {
        while left > 0 {
            let part = left.min(u64::from(u32::MAX));
            buckets.push((bucket, part as u32));
            left -= part;
        }
    }
    buckets
}

/// A histogram of signed nanoseconds. An empty one holds no minimum or maximum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hist {
    /// Values recorded.
    pub count: u64,
    /// Sum of the values, ns. Beyond 64 bits it is written with all its digits. Many readers of
    /// JSON have only floating-point numbers, so it may be read back through one.
    #[serde(deserialize_with = "wide")]
    pub sum: i128,
    /// Least value, ns (0 when empty).
    pub min: i64,
    /// Greatest value, ns (0 when empty).
    pub max: i64,
    /// Bucket index and count, ascending by bucket, no zero counts. A bucket of more than
    /// 2^32-1 values stands here more than once: thousands of streams keep their buckets
    /// in memory, so these are small.
    pub buckets: Vec<(i16, u32)>,
}

impl Hist {
    /// From counts in the buckets of [`crate::rtt::rtt_bucket`]: each goes to the bucket here that
    /// ends at the middle of its own. So a quantile is at most 7 % off; the bucket that begins there
    /// would make it 7.8 %. Count is that of the buckets; minimum, maximum and sum are taken as
    /// they are, ns.
    pub fn from_rtt_buckets(counts: &[u32], min: i64, max: i64, sum: i128) -> Hist {
        let counted = counts.iter().enumerate().filter(|&(_, &n)| n > 0);
        // The middles ascend, and no two lie in one bucket: four of those here are one there.
        let buckets: Vec<(i16, u32)> =
            counted.map(|(i, &n)| (bucket_of(rtt_bucket_middle(i) - 1), n)).collect();
        let count = buckets.iter().map(|&(_, n)| u64::from(n)).sum();
        match count {
            0 => Hist::default(),
            _ => Hist { count, sum, min, max, buckets },
        }
    }

    /// Adds one value, ns.
    pub fn add(&mut self, value: i64) {
        self.widen(value, value);
        self.count += 1;
        self.sum += i128::from(value);
        self.add_to_bucket(bucket_of(value));
    }

    /// Adds all values of `other`; the result is that of having added each here.
    pub fn merge(&mut self, other: &Hist) {
        if other.count == 0 {
            return;
        }
        self.widen(other.min, other.max);
        self.count += other.count;
        self.sum += other.sum;
        let mut merged = Vec::with_capacity(self.buckets.len().max(other.buckets.len()) + 4);
        let (mut a, mut b) = (self.buckets.iter().peekable(), other.buckets.iter().peekable());
        loop {
            match (a.peek(), b.peek()) {
                (Some(&&(i, n)), Some(&&(j, m))) if i == j => {
                    match n.checked_add(m) {
                        Some(sum) => merged.push((i, sum)),
                        None => merged.extend([(i, n), (i, m)]),
                    }
                    a.next();
                    b.next();
                }
                (Some(&&(i, _)), Some(&&(j, _))) if i > j => merged.extend(b.next().copied()),
                (Some(_), _) => merged.extend(a.next().copied()),
                (None, Some(_)) => merged.extend(b.next().copied()),
                (None, None) => break,
            }
        }
        if merged.capacity() > merged.len() + merged.len() / 4 + 4 {
            merged.shrink_to_fit();
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
        // Values that found no bucket (see Caveat::HistogramFull) take no part.
        let held: u64 = self.buckets.iter().map(|&(_, n)| u64::from(n)).sum();
        let rank = ((q.clamp(0.0, 1.0) * held as f64).ceil() as u64).clamp(1, held.max(1));
        if q >= 1.0 || rank == held {
            return Some(self.max);
        }
        let mut seen = 0;
        let reaches = |&(_, n): &(i64, u64)| {
            seen += n;
            seen >= rank
        };
        self.values().find(reaches).map_or(Some(self.max), |(value, _)| Some(value))
    }

    /// The values as far as they are known: the middle of each bucket, kept within minimum and
    /// maximum, and how many are there.
    pub fn values(&self) -> impl Iterator<Item = (i64, u64)> {
        self.buckets.iter().map(|&(bucket, n)| {
            let (low, high) = bounds_of(bucket);
            ((low + (high - low) / 2).clamp(self.min, self.max), n.into())
        })
    }

    /// Values in buckets that begin at `limit` ns or above: within the width of a bucket, those
    /// from there on.
    pub fn count_above(&self, limit: i64) -> u64 {
        let above = self.buckets.iter().filter(|&&(bucket, _)| bounds_of(bucket).0 >= limit);
        above.map(|&(_, n)| u64::from(n)).sum()
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

    fn add_to_bucket(&mut self, bucket: i16) {
        match self.buckets.binary_search_by_key(&bucket, |&(b, _)| b) {
            Ok(i) if self.buckets[i].1 < u32::MAX => self.buckets[i].1 += 1,
            Ok(i) | Err(i) => self.buckets.insert(i, (bucket, 1)),
        }
    }
}

/// Reads an integer of any width, also where the format made a float of it.
fn wide<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<i128, D::Error> {
    struct Wide;
    impl serde::de::Visitor<'_> for Wide {
        type Value = i128;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a number of nanoseconds")
        }
        fn visit_i64<E>(self, v: i64) -> Result<i128, E> {
            Ok(v.into())
        }
        fn visit_u64<E>(self, v: u64) -> Result<i128, E> {
            Ok(v.into())
        }
        fn visit_i128<E>(self, v: i128) -> Result<i128, E> {
            Ok(v)
        }
        fn visit_u128<E>(self, v: u128) -> Result<i128, E> {
            Ok(v.try_into().unwrap_or(i128::MAX))
        }
        fn visit_f64<E>(self, v: f64) -> Result<i128, E> {
            Ok(v as i128)
        }
    }
    deserializer.deserialize_any(Wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edges_are_where_they_should_be() {
        for (value, bucket) in
            [(0, 0), (31, 0), (32, 1), (1023, 31), (1024, 32), (2047, 63), (2048, 64), (2111, 64)]
        {
            assert_eq!(bucket_of(value), bucket, "{value}");
            assert_eq!(bucket_of(!value), !bucket, "{}", !value);
        }
        assert!(bounds_of(bucket_of(i64::MAX)).1 == i64::MAX);
        assert!(bounds_of(bucket_of(i64::MIN)).0 == i64::MIN);
    }

    #[test]
    fn values_above_a_limit_are_counted_to_the_width_of_a_bucket() {
        let mut h = Hist::default();
        [10, 5_000, 99_000, 150_000, 2_000_000].iter().for_each(|&v| h.add(v));
        let counts = [0, 1_000, 100_000, 1_000_000, 3_000_000].map(|limit| h.count_above(limit));
        assert_eq!(counts, [5, 4, 2, 1, 0]);
    }

    #[test]
    fn a_full_bucket_goes_on_in_another() {
        let (value, bucket) = (70_000, bucket_of(70_000));
        let full = Hist {
            count: 1 << 32,
            sum: i128::from(value) << 32,
            min: value,
            max: value,
            buckets: vec![(bucket, u32::MAX), (bucket, 1)],
        };
        let mut h = full.clone();
        h.merge(&full);
        h.add(value);
        h.add(90_000);
        let total: u64 = h.buckets.iter().map(|&(_, n)| u64::from(n)).sum();
        assert_eq!((h.count, total), ((1 << 33) + 2, (1 << 33) + 2));
        let (low, high) = bounds_of(bucket);
        assert!((low..=high).contains(&h.quantile(0.99).unwrap()));
        assert_eq!(h.quantile(1.0), Some(90_000));
        assert!(h.buckets.is_sorted_by_key(|&(b, _)| b));
    }

    #[test]
    fn quantiles_of_a_histogram_that_lacks_values_come_from_those_it_has() {
        let mut h = Hist::default();
        (0..100).for_each(|_| h.add(5_000));
        (h.count, h.max) = (1_000, 9_000_000);
        assert!((4_900..5_100).contains(&h.quantile(0.5).unwrap()));
        assert_eq!(h.quantile(1.0), Some(9_000_000));
    }

    #[test]
    fn counts_of_round_trip_buckets_come_in_at_their_middles() {
        use crate::rtt::{RTT_BUCKETS, rtt_bucket};
        let all = Hist::from_rtt_buckets(&[1; RTT_BUCKETS], 7, 1 << 40, 99);
        assert_eq!((all.count, all.min, all.max, all.sum), (210, 7, 1 << 40, 99));
        assert_eq!(all.buckets.len(), RTT_BUCKETS);
        assert!(all.buckets.is_sorted_by(|a, b| a.0 < b.0), "each has a bucket of its own");

        let mut counts = [0; RTT_BUCKETS];
        let values = [1_500u64, 20_000_000, 20_000_000, 21_000_000, 900_000_000];
        values.iter().for_each(|&v| counts[rtt_bucket(v)] += 1);
        let h = Hist::from_rtt_buckets(&counts, 1_500, 900_000_000, 0);
        let median = h.quantile(0.5).unwrap() as f64;
        assert!((median / 20e6 - 1.0).abs() < 0.07, "{median}");
        assert_eq!(h.quantile(1.0), Some(900_000_000));
        assert_eq!(Hist::from_rtt_buckets(&[0; RTT_BUCKETS], 5, 6, 7), Hist::default());
    }

    proptest! {
        #[test]
        fn a_quantile_of_round_trips_is_as_near_as_documented(
            exponent in 10u32..36,
            within in 0.0f64..1.0,
        ) {
            use crate::rtt::{RTT_BUCKETS, rtt_bucket};
            let value = ((1u64 << exponent) as f64 * (1.0 + within)) as u64;
            // The ends of its bucket, which are the farthest from what is reported.
            let eighth = 1u64 << (exponent - 3);
            for truth in [value, value & !(eighth - 1), value | (eighth - 1)] {
                let mut counts = [0; RTT_BUCKETS];
                counts[rtt_bucket(truth)] = 3;
                // Neither minimum nor maximum bounds it.
                let h = Hist::from_rtt_buckets(&counts, 1, i64::MAX, 0);
                let median = h.quantile(0.5).unwrap() as f64;
                let off = (median - truth as f64).abs() / truth as f64;
                prop_assert!(off <= 0.07, "{truth}: {median}, {off}");
            }
        }

        #[test]
        fn a_value_lies_in_its_bucket_and_the_bucket_is_narrow(value in any::<i64>()) {
            let (low, high) = bounds_of(bucket_of(value));
            prop_assert!(low <= value && value <= high);
            let width = i128::from(high) - i128::from(low);
            prop_assert!(width < 32 || width * SUB_BUCKETS as i128 <= i128::from(value).abs());
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
            prop_assert!((truth - got).abs() * 63 <= truth.abs().max(63 * 16), "{} {}", truth, got);
        }
    }

    #[test]
    fn a_sum_beyond_64_bits_is_exact_and_reads_back() {
        // A peer whose clock is 57 years off, a million times.
        let mut h = Hist::default();
        let base = 57 * 365 * 86_400 * 1_000_000_000;
        for i in 0..1_000_000 {
            h.add(base + i % 153);
        }
        let mean = h.mean().unwrap() - base as f64;
        assert!((0.0..=512.0).contains(&mean), "within the digits of a double: {mean}");
        assert!(h.sum > i128::from(i64::MAX));
        let json = serde_json::to_string(&h).unwrap();
        assert!(json.contains(&format!("\"sum\":{}", h.sum)), "{json}");
        let back: Hist = serde_json::from_str(&json).unwrap();
        assert!((back.sum - h.sum).abs() <= h.sum / (1 << 52));
        h.sum = 7;
        let small: Hist = serde_json::from_str(&serde_json::to_string(&h).unwrap()).unwrap();
        assert_eq!(small.sum, 7);
    }
}
