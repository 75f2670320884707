//! The histograms that both programs keep: `struct load_hist` of `c/load_signature.h`.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use sonde_results::hist::{Hist, buckets_in_row};

/// Buckets of each sign.
const BUCKETS: usize = 1024;

#[derive(Debug)]
#[repr(C)]
pub(super) struct SharedHist {
    min: AtomicI64,
    max: AtomicI64,
    sum: AtomicI64,
    count: AtomicU64,
    bucket: [AtomicU64; 2 * BUCKETS],
}

impl SharedHist {
    /// As it stands. While the program adds to it, one value may be half counted.
    pub(super) fn read(&self) -> Hist {
        let count = self.count.load(Ordering::Relaxed);
        if count == 0 {
            return Hist::default();
        }
        let held = self.bucket.iter().map(|held| held.load(Ordering::Relaxed));
        let buckets = buckets_in_row(-(BUCKETS as i16), held);
        Hist {
            count,
            sum: i128::from(self.sum.load(Ordering::Relaxed)),
            min: self.min.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
            buckets,
        }
    }

    /// Empties it, while no program adds to it.
    pub(super) fn clear(&self) {
        for word in [&self.min, &self.max, &self.sum] {
            word.store(0, Ordering::Relaxed);
        }
        self.count.store(0, Ordering::Relaxed);
        self.bucket.iter().for_each(|b| b.store(0, Ordering::Relaxed));
    }
}
