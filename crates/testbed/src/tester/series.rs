//! The quantiles of a time series, from what a growing histogram gained in each of its slots.

use sonde_results::hist::Hist;
use sonde_results::trial::SeriesPoint;

/// Looks at the histogram of latencies as slots end. Who looks late gives a slot a few values
/// of the next one: its median and 99th percentile, and nothing else.
pub(super) struct QuantileSeries {
    slot_ns: i64,
    start_ns: i64,
    next: usize,
    before: Hist,
    /// Median and 99th percentile.
    quantiles: Vec<[i64; 2]>,
}

impl QuantileSeries {
    pub(super) fn new(start_ns: i64, slot_ns: i64) -> QuantileSeries {
        QuantileSeries {
            slot_ns,
            start_ns,
            next: 0,
            before: Hist::default(),
            quantiles: Vec::new(),
        }
    }

    /// Whether a slot has ended that was not noted.
    pub(super) fn due(&self, now_ns: i64) -> bool {
        now_ns >= self.start_ns + (self.next as i64 + 1) * self.slot_ns
    }

    /// Notes the slots that have ended, of which the histogram is `all` by now.
    pub(super) fn note(&mut self, now_ns: i64, all: Hist) {
        let gained = gained(&all, &self.before);
        let both = [0.5, 0.99].map(|q| gained.quantile(q).unwrap_or(0));
        let end = ((now_ns - self.start_ns) / self.slot_ns).max(0) as usize;
        // Where several ended at once, the values are of all of them.
        while self.next < end.max(self.next + 1).min(MAX) {
            self.quantiles.push(both);
            self.next += 1;
            if self.next >= end {
                break;
            }
        }
        self.before = all;
    }

    /// Puts them into the points, the last of which has not been noted.
    pub(super) fn fill(mut self, points: &mut [SeriesPoint], all: Hist) {
        self.note(self.start_ns, all);
        for (point, &[median, p99]) in points.iter_mut().zip(&self.quantiles) {
            if point.received > 0 {
                let [min, _, _, max] = point.latency_ns;
                point.latency_ns = [min, median.clamp(min, max), p99.clamp(min, max), max];
            }
        }
    }
}

/// What was added to a histogram. Minimum and maximum are those of all, which keeps quantiles
/// within their buckets.
fn gained(all: &Hist, before: &Hist) -> Hist {
    let mut left = before.buckets.iter().copied().peekable();
    let mut buckets = Vec::new();
    for &(bucket, count) in &all.buckets {
        let mut count = count;
        while let Some((_, held)) = left.next_if(|&(b, _)| b <= bucket) {
            count -= held.min(count);
        }
        if count > 0 {
            buckets.push((bucket, count));
        }
    }
    Hist { count: all.count - before.count, buckets, ..all.clone() }
}

/// More slots than any series has.
const MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_the_quantiles_of_its_own_values() {
        let mut all = Hist::default();
        let mut series = QuantileSeries::new(1_000, 100);
        (0..99).for_each(|_| all.add(5_000));
        assert!(!series.due(1_099) && series.due(1_100));
        series.note(1_105, all.clone());
        assert!(!series.due(1_105));
        (0..99).for_each(|_| all.add(70_000));
        series.note(1_320, all.clone());
        assert!(!series.due(1_399));
        let point =
            |n| SeriesPoint { received: n, latency_ns: [0, 0, 0, 1 << 40], ..Default::default() };
        let mut points = [point(99), point(50), point(49), point(1), point(0)];
        all.add(900_000);
        series.fill(&mut points, all);
        for (i, about) in [5_000, 70_000, 70_000, 900_000].into_iter().enumerate() {
            let [_, median, p99, _] = points[i].latency_ns;
            assert!((median - about).abs() <= about / 60, "{i}: {median}");
            assert_eq!(median, p99);
        }
        assert_eq!(points[4].latency_ns, [0, 0, 0, 1 << 40]);
    }
}
