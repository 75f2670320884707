//! When each stream sends next (RFC 3432; RFC 2330, section 11.1.1).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::spec::{Schedule, StreamSpec};

/// All streams in the order of their next send.
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(i64, u32)>>,
}

impl Queue {
    pub(crate) fn new(due: impl Iterator<Item = i64>) -> Self {
        Queue { heap: due.enumerate().map(|(i, at)| Reverse((at, i as u32))).collect() }
    }

    /// The next send: when (ns TAI), and by which stream.
    #[inline]
    pub(crate) fn peek(&self) -> Option<(i64, u32)> {
        self.heap.peek().map(|r| r.0)
    }

    /// The stream at the top sends next at `due`, or never again.
    #[inline]
    pub(crate) fn reschedule(&mut self, due: Option<i64>) {
        if let Some(mut top) = self.heap.peek_mut() {
            match due {
                Some(due) => top.0.0 = due,
                None => {
                    PeekMut::pop(top);
                }
            }
        }
    }

    /// No stream sends again.
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
    }
}

/// Gap to the next send of a stream, ns.
pub(crate) fn gap(spec_period: i64, schedule: Schedule, random: &mut Random) -> i64 {
    match schedule {
        Schedule::Periodic => spec_period,
        // Truncated at ten times the mean, which one gap in 22,000 would exceed, so
        // that the longest silence is known.
        Schedule::Poisson => {
            let exponential = -random.unit().ln();
            ((spec_period as f64 * exponential.min(10.0)) as i64).max(1)
        }
    }
}

/// Mean time between sends of all streams together, ns.
pub(crate) fn mean_gap(streams: &[StreamSpec]) -> i64 {
    let rate: f64 = streams.iter().map(|s| 1.0 / s.period.max(1) as f64).sum();
    if rate > 0.0 { (1.0 / rate) as i64 } else { i64::MAX }
}

/// SplitMix64: small, seeded, good enough to spread probes.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_gaps_are_exponential() {
        let mut random = Random::new(7);
        let n = 200_000;
        let gaps: Vec<i64> =
            (0..n).map(|_| gap(1_000_000, Schedule::Poisson, &mut random)).collect();
        let mean = gaps.iter().sum::<i64>() as f64 / n as f64;
        let variance = gaps.iter().map(|&g| (g as f64 - mean).powi(2)).sum::<f64>() / n as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "mean {mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.01, "of an exponential, sd = mean");
        assert!(gaps.iter().all(|&g| (1..=10_000_000).contains(&g)));
    }

    #[test]
    fn the_queue_is_in_order_of_time() {
        let mut queue = Queue::new([30, 10, 20].into_iter());
        assert_eq!(queue.peek(), Some((10, 1)));
        queue.reschedule(Some(25));
        assert_eq!(queue.peek(), Some((20, 2)));
        queue.reschedule(None);
        assert_eq!(queue.peek(), Some((25, 1)));
    }
}
