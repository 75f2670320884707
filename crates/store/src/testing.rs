//! Made-up rows for the tests: the same for a seed.

use sonde_results::flow::{FlowEnd, FlowRecord, FlowSide};
use sonde_results::rtt::FlowKey;
use sonde_results::{Caveat, Interval};
use sonde_wire::{NotSent, StampSource};

use crate::flow::FlowRow;
use crate::interval::IntervalRow;
use crate::series::SeriesId;

/// 2026-11-25 23:00 UTC, ns since 1970.
pub(crate) const START: i64 = 1_795_647_600 * 1_000_000_000;

/// A small generator (SplitMix64), so that a seed gives the same rows for ever.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The record of a stream of `n` probes from `start_ns` on.
pub(crate) fn record(random: &mut Random, start_ns: i64, length_ns: i64, n: u64) -> Interval {
    let mut i = Interval::empty(0);
    (i.start_ns, i.end_ns) = (start_ns, start_ns + length_ns);
    i.counters.sent = n;
    i.counters.lost = match random.below(8) {
        0 => random.below(n + 1),
        1 => n,
        _ => 0,
    };
    i.counters.received = n - i.counters.lost;
    if random.below(2) == 0 {
        let forward = random.below(i.counters.lost + 1);
        let backward = random.below(i.counters.lost - forward + 1);
        (i.counters.lost_forward, i.counters.lost_backward) = (Some(forward), Some(backward));
    }
    i.counters.settle_sides();
    i.loss_side = i.counters.loss_side();
    i.counters.duplicated = random.below(2);
    i.counters.skipped = random.below(3);
    i.counters.not_sent.add(NotSent::Late, i.counters.skipped);
    let base = 1_000_000 << random.below(6);
    for _ in 0..i.counters.received {
        let (there, back, dwell) =
            (base + random.below(1 << 20), base + random.below(1 << 18), random.below(50_000));
        i.rtt.add((there + back + dwell) as i64);
        i.rtt_net.add((there + back) as i64);
        i.forward.add(there as i64 - 20_000_000);
        i.backward.add(back as i64 + 20_000_000);
        i.ipdv_forward.add(random.below(1 << 16) as i64 - (1 << 15));
        i.ipdv_backward.add(random.below(1 << 12) as i64 - (1 << 11));
    }
    i.jitter_forward_ns = random.below(1 << 20) as f64;
    i.jitter_backward_ns = random.below(1 << 10) as f64;
    if i.counters.received > 0 {
        i.t1_source = Some(StampSource::Driver);
        i.t4_source = Some([StampSource::Kernel, StampSource::User][random.below(2) as usize]);
        i.peer_error_ns = (random.below(2) == 0).then(|| random.below(9_000) as f64);
    }
    for caveat in [Caveat::SenderLate, Caveat::PeerClockUnsynchronised, Caveat::DwellDominates] {
        if random.below(5) == 0 {
            i.caveats.insert(caveat);
        }
    }
    i
}

/// `per_series` rows of one second for each of `series` series, in the order in which they come.
pub(crate) fn intervals(seed: u64, series: u32, per_series: i64, probes: u64) -> Vec<IntervalRow> {
    let mut random = Random(seed);
    let mut rows = Vec::new();
    for second in 0..per_series {
        for s in 0..series {
            let start = START + second * 1_000_000_000;
            rows.push(IntervalRow::new(
                SeriesId(s),
                &record(&mut random, start, 1_000_000_000, probes),
            ));
        }
    }
    rows
}

/// `n` flow records of an exporter within `span_ns` from [`START`] on.
pub(crate) fn flows(seed: u64, exporter: u32, n: usize, span_ns: i64) -> Vec<FlowRow> {
    let mut random = Random(seed);
    let mut rows = Vec::new();
    for _ in 0..n {
        let last_ns = START + random.below(span_ns as u64) as i64;
        let first_ns = last_ns - random.below(60_000_000_000) as i64;
        let side = |random: &mut Random| FlowSide {
            packets: 1 + random.below(100),
            bytes: 40 + random.below(100_000),
            first_ns,
            last_ns,
            tcp_flags: 0x1B,
            tos: 0,
            ttl_min: 60,
            ttl_max: 64,
        };
        let host = |random: &mut Random| match random.below(10) {
            0 => format!("2001:db8::{:x}", random.below(9)).parse().unwrap(),
            _ => format!("10.0.{}.{}", random.below(3), random.below(200)).parse().unwrap(),
        };
        let record = FlowRecord {
            key: FlowKey {
                point: random.below(2) as u8,
                vlan: 0,
                protocol: [6, 17, 1][random.below(3) as usize],
                source: host(&mut random),
                destination: host(&mut random),
                source_port: 32_768 + random.below(20_000) as u16,
                destination_port: [443, 53, 0x800][random.below(3) as usize],
            },
            forward: side(&mut random),
            reverse: match random.below(4) {
                0 => FlowSide::default(),
                _ => FlowSide { first_ns: first_ns.min(last_ns - 5_000), ..side(&mut random) },
            },
            end: FlowEnd::ALL[random.below(5) as usize],
            extra: None,
        };
        rows.push(FlowRow::new(SeriesId(exporter), &record));
    }
    rows
}
