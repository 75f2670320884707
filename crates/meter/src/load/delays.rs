//! Latencies, and how each differs from the one before.

use sonde_results::hist::Hist;

use super::FastHist;

/// Latencies in the order of arrival.
#[derive(Clone, Debug, Default)]
pub struct ArrivalDelays {
    latency: FastHist,
    jitter: FastHist,
    /// RFC 3550, section A.8: 16 times the jitter.
    jitter16: i64,
    before: i64,
}

impl ArrivalDelays {
    /// That of a frame that has arrived, ns.
    #[inline]
    pub fn add(&mut self, latency: i64) {
        if self.latency.count() > 0 {
            // RFC 4689, section 3.2.5; and RFC 3550, section A.8.
            let change = (latency - self.before).abs();
            self.jitter.add(change);
            self.jitter16 += change - ((self.jitter16 + 8) >> 4);
        }
        self.before = latency;
        self.latency.add(latency);
    }

    pub fn clear(&mut self) {
        self.latency.clear();
        self.jitter.clear();
        (self.jitter16, self.before) = (0, 0);
    }

    /// From sending to arrival, ns.
    pub fn latency(&self) -> Hist {
        self.latency.read()
    }

    /// Difference to the frame before, in the order of arrival, ns (RFC 4689, section 3.2.5).
    pub fn jitter(&self) -> Hist {
        self.jitter.read()
    }

    /// RFC 3550, section 6.4.1, ns.
    pub fn rfc3550_jitter_ns(&self) -> f64 {
        self.jitter16 as f64 / 16.0
    }
}
