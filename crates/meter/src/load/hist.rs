//! A histogram for hot paths: no search, no allocation; read out as [`Hist`].

use sonde_results::hist::{Hist, bucket_of};

/// Values in the buckets of [`Hist`], up to 18 minutes of either sign; what is beyond is in
/// the last bucket, and counts in minimum, maximum and sum as it is.
#[derive(Clone, Debug)]
pub(super) struct FastHist {
    min: i64,
    max: i64,
    sum: i128,
    count: u64,
    buckets: Box<[u64]>,
}

impl FastHist {
    pub(super) fn new() -> FastHist {
        let buckets = vec![0; 2 * BUCKETS].into();
        FastHist { min: i64::MAX, max: i64::MIN, sum: 0, count: 0, buckets }
    }

    #[inline]
    pub(super) fn add(&mut self, value: i64) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += i128::from(value);
        self.count += 1;
        let last = BUCKETS as i64 - 1;
        let bucket = i64::from(bucket_of(value)).clamp(-last - 1, last);
        self.buckets[(bucket + BUCKETS as i64) as usize] += 1;
    }

    pub(super) fn read(&self) -> Hist {
        if self.count == 0 {
            return Hist::default();
        }
        let mut buckets = Vec::new();
        for (place, &held) in self.buckets.iter().enumerate() {
            let number = (place as i64 - BUCKETS as i64) as i16;
            let mut left = held;
            while left > 0 {
                let part = left.min(u64::from(u32::MAX));
                buckets.push((number, part as u32));
                left -= part;
            }
        }
        Hist { count: self.count, sum: self.sum, min: self.min, max: self.max, buckets }
    }
}

/// Of each sign, as in `sonde-bpf`'s analyser.
const BUCKETS: usize = 1024;
