//! Sums over all flows, by prefix and by time: the statistical model.

use serde::Serialize;

use sonde_wire::prefix::Prefix;

use super::observed::{BiflowKey, Directed};

/// Sums of the truth and of what was exported.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Segment {
    /// "all", a prefix, or the beginning of an interval in s since 1970.
    pub name: String,
    pub flows: [u64; 2],
    pub packets: [u64; 2],
    pub bytes: [u64; 2],
}

impl Segment {
    fn add(&mut self, which: usize, flows: u64, packets: u64, bytes: u64) {
        self.flows[which] += flows;
        // Whoever exports may claim any count.
        self.packets[which] = self.packets[which].saturating_add(packets);
        self.bytes[which] = self.bytes[which].saturating_add(bytes);
    }

    /// |exported - truth| / truth, of flows, packets and bytes.
    pub fn differences(&self) -> [f64; 3] {
        [self.flows, self.packets, self.bytes].map(|[truth, seen]| match (truth, seen) {
            (0, 0) => 0.0,
            (0, _) => 1.0,
            _ => truth.abs_diff(seen) as f64 / truth as f64,
        })
    }
}

/// All segments that were asked for.
#[derive(Clone, Debug)]
pub(super) struct SegmentSums {
    all: Segment,
    subnets: Vec<((u128, u128), Segment)>,
    every_ns: Option<i64>,
    /// By index of the interval, ascending.
    times: std::collections::BTreeMap<i64, Segment>,
    /// Intervals that came when there was no more room.
    pub refused_times: u64,
}

/// The two sides of the comparison.
pub(super) const TRUTH: usize = 0;
pub(super) const SEEN: usize = 1;

impl SegmentSums {
    pub fn new(subnets: &[Prefix], every_ns: Option<i64>) -> Self {
        let named = |name: String| Segment { name, ..Segment::default() };
        let subnet = |p: &Prefix| {
            let (first, last) = p.bounds();
            // As addresses are here: IPv4 within IPv6.
            let mapped = if p.address.is_ipv4() { 0xFFFF << 32 } else { 0 };
            ((mapped | first, mapped | last), named(format!("{}/{}", p.address, p.bits)))
        };
        SegmentSums {
            all: named("all".into()),
            subnets: subnets.iter().map(subnet).collect(),
            every_ns,
            times: Default::default(),
            refused_times: 0,
        }
    }

    /// One direction of a flow that began at `first`.
    pub fn add(
        &mut self,
        which: usize,
        &Directed(BiflowKey { ends, .. }, _): &Directed,
        first: Option<i64>,
        flows: u64,
        packets: u64,
        bytes: u64,
    ) {
        self.all.add(which, flows, packets, bytes);
        for ((low, high), segment) in &mut self.subnets {
            if ends.iter().any(|end| (*low..=*high).contains(&u128::from_be_bytes(end.address))) {
                segment.add(which, flows, packets, bytes);
            }
        }
        if let (Some(every), Some(first)) = (self.every_ns, first) {
            let index = first.div_euclid(every);
            if self.times.len() >= MOST_TIMES && !self.times.contains_key(&index) {
                self.refused_times += 1;
                return;
            }
            let begin = || format!("from {:.3} s", index as f64 * every as f64 / 1e9);
            let segment = self.times.entry(index);
            segment
                .or_insert_with(|| Segment { name: begin(), ..Segment::default() })
                .add(which, flows, packets, bytes);
        }
    }

    /// All of them, "all" first.
    pub fn into_vec(self) -> Vec<Segment> {
        let subnets = self.subnets.into_iter().map(|(_, segment)| segment);
        std::iter::once(self.all).chain(subnets).chain(self.times.into_values()).collect()
    }
}

const MOST_TIMES: usize = 10_000;
