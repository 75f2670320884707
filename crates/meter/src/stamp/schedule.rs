//! When each stream sends next (RFC 3432; RFC 2330, section 11.1.1).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fastrand::Rng;

use super::spec::{Schedule, StreamSpec};

/// All streams in the order of their next send.
///
/// Streams of one period come round in the same order for ever, so they wait in a plain queue. What
/// does not fit there waits in a heap: Poisson schedules, and a stream that skipped sends which its
/// neighbours did not skip.
pub(crate) struct SendQueue {
    /// Period, and (due, stream) ascending.
    lanes: Vec<(i64, VecDeque<(i64, u32)>)>,
    heap: BinaryHeap<Reverse<(i64, u32)>>,
    /// Where the next send is.
    top: Option<Next>,
}

/// Which of the two holds the stream that sends next.
#[derive(Clone, Copy)]
enum Next {
    Lane(usize),
    Heap,
}

impl SendQueue {
    /// Of streams that start with `due`, in their order.
    pub(crate) fn new(specs: &[StreamSpec], due: impl Fn(&StreamSpec) -> i64) -> Self {
        let mut order: Vec<(i64, u32)> =
            specs.iter().enumerate().map(|(i, s)| (due(s), i as u32)).collect();
        order.sort_unstable();
        let mut queue = SendQueue { lanes: Vec::new(), heap: BinaryHeap::new(), top: None };
        for (due, stream) in order {
            let spec = &specs[stream as usize];
            let lane = queue.lanes.iter().position(|(period, _)| *period == spec.period);
            match (spec.schedule, lane) {
                (Schedule::Periodic, Some(lane)) => queue.lanes[lane].1.push_back((due, stream)),
                (Schedule::Periodic, None) if queue.lanes.len() < LANES => {
                    queue.lanes.push((spec.period, VecDeque::from([(due, stream)])));
                }
                _ => queue.heap.push(Reverse((due, stream))),
            }
        }
        queue.find_top();
        queue
    }

    /// The next send: when (ns TAI), and by which stream.
    #[inline]
    pub(crate) fn peek(&self) -> Option<(i64, u32)> {
        match self.top? {
            Next::Lane(lane) => self.lanes[lane].1.front().copied(),
            Next::Heap => self.heap.peek().map(|r| r.0),
        }
    }

    /// The stream that sends `count` streams after the one at the top, if its lane alone decides.
    /// It is a guess, good enough for fetching its memory in time.
    #[inline]
    pub(crate) fn ahead(&self, count: usize) -> Option<u32> {
        match self.top? {
            Next::Lane(lane) => self.lanes[lane].1.get(count).map(|&(_, stream)| stream),
            Next::Heap => None,
        }
    }

    /// The stream at the top, which sends every `period`, sends next at `due`, or never again.
    #[inline]
    pub(crate) fn reschedule(&mut self, due: Option<i64>, period: i64) {
        let stream = match self.top {
            Some(Next::Lane(lane)) => self.lanes[lane].1.pop_front(),
            Some(Next::Heap) => self.heap.pop().map(|r| r.0),
            None => None,
        };
        if let (Some(due), Some((_, stream))) = (due, stream) {
            let lane = self
                .lanes
                .iter_mut()
                .find(|(p, lane)| *p == period && lane.back().is_none_or(|&(last, _)| last <= due));
            match lane {
                Some((_, lane)) => lane.push_back((due, stream)),
                None => self.heap.push(Reverse((due, stream))),
            }
        }
        self.find_top();
    }

    /// A further stream sends first at `due`.
    pub(crate) fn insert(&mut self, due: i64, stream: u32, schedule: Schedule, period: i64) {
        let lane = self.lanes.iter().position(|(p, _)| *p == period);
        match (schedule, lane) {
            (Schedule::Periodic, Some(lane)) => {
                let lane = &mut self.lanes[lane].1;
                let at = lane.partition_point(|&waiting| waiting < (due, stream));
                lane.insert(at, (due, stream));
            }
            (Schedule::Periodic, None) if self.lanes.len() < LANES => {
                self.lanes.push((period, VecDeque::from([(due, stream)])));
            }
            _ => self.heap.push(Reverse((due, stream))),
        }
        self.find_top();
    }

    /// Streams for which this is false send no more.
    pub(crate) fn retain(&mut self, goes_on: impl Fn(u32) -> bool) {
        for (_, lane) in &mut self.lanes {
            lane.retain(|&(_, stream)| goes_on(stream));
        }
        self.heap.retain(|Reverse((_, stream))| goes_on(*stream));
        self.find_top();
    }

    /// The next send of every stream that has one: when (ns TAI), and by which stream.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, u32)> + '_ {
        let lanes = self.lanes.iter().flat_map(|(_, lane)| lane.iter().copied());
        lanes.chain(self.heap.iter().map(|waiting| waiting.0))
    }

    /// No stream sends again.
    pub(crate) fn clear(&mut self) {
        self.lanes.clear();
        self.heap.clear();
        self.top = None;
    }

    #[inline]
    fn find_top(&mut self) {
        let mut best = self.heap.peek().map(|r| (r.0, Next::Heap));
        for (i, (_, lane)) in self.lanes.iter().enumerate() {
            if let Some(&front) = lane.front()
                && best.is_none_or(|(least, _)| front < least)
            {
                best = Some((front, Next::Lane(i)));
            }
        }
        self.top = best.map(|(_, next)| next);
    }
}

/// Gap to the next send of a stream, ns.
pub(crate) fn gap(spec_period: i64, schedule: Schedule, random: &mut Rng) -> i64 {
    match schedule {
        Schedule::Periodic => spec_period,
        // Truncated at ten times the mean, which one gap in 22,000 would exceed, so
        // that the longest silence is known.
        Schedule::Poisson => {
            let exponential = -(1.0 - random.f64()).ln();
            ((spec_period as f64 * exponential.min(10.0)) as i64).max(1)
        }
    }
}

/// Most distinct periods that have a queue of their own.
const LANES: usize = 8;

/// Mean time between sends of all streams together, ns, by the period of each.
pub(crate) fn mean_gap(periods: impl Iterator<Item = i64>) -> i64 {
    let rate: f64 = periods.map(|period| 1.0 / period.max(1) as f64).sum();
    if rate > 0.0 { (1.0 / rate) as i64 } else { i64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_gaps_are_exponential() {
        let mut random = Rng::with_seed(7);
        let n = 200_000;
        let gaps: Vec<i64> =
            (0..n).map(|_| gap(1_000_000, Schedule::Poisson, &mut random)).collect();
        let mean = gaps.iter().sum::<i64>() as f64 / n as f64;
        let variance = gaps.iter().map(|&g| (g as f64 - mean).powi(2)).sum::<f64>() / n as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "mean {mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.01, "of an exponential, sd = mean");
        assert!(gaps.iter().all(|&g| (1..=10_000_000).contains(&g)));
    }

    fn spec(period: i64, phase: i64, schedule: Schedule) -> StreamSpec {
        StreamSpec {
            source: "10.0.0.1:1".parse().unwrap(),
            destination: "10.0.0.2:862".parse().unwrap(),
            dscp: 0,
            ttl: 1,
            next_hop: 0,
            ssid: 1,
            ip_length: 72,
            period,
            phase,
            schedule,
            count: None,
            reflector: crate::stamp::ReflectorKind::Auto,
        }
    }

    #[test]
    fn sends_come_in_order_of_time_whatever_the_streams_do() {
        let mut random = Rng::with_seed(3);
        let specs: Vec<_> = (0..200)
            .map(|i| {
                let schedule = if i % 7 == 0 { Schedule::Poisson } else { Schedule::Periodic };
                spec([100, 250, 1000][i % 3], random.i64(0..100), schedule)
            })
            .collect();
        let mut queue = SendQueue::new(&specs, |s| s.phase);
        let mut model: Vec<Option<i64>> = specs.iter().map(|s| Some(s.phase)).collect();
        for turn in 0..20_000 {
            let (due, stream) = queue.peek().unwrap();
            assert_eq!(Some(due), model.iter().flatten().min().copied(), "turn {turn}");
            assert_eq!(model[stream as usize], Some(due));
            let s = &specs[stream as usize];
            // Now and then a stream skips some of its sends, or ends.
            let skip = if random.u32(0..50) == 0 { 3 } else { 1 };
            let next = due + skip * gap(s.period, s.schedule, &mut random);
            let next = (random.u32(0..1000) != 0 || turn > 10_000).then_some(next);
            queue.reschedule(next, s.period);
            model[stream as usize] = next;
        }
        queue.clear();
        assert_eq!(queue.peek(), None);
    }
}
