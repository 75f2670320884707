//! Rows in the shape of recorded ones: what sizes and rates of the store are measured with.

use sonde_results::flow::{FlowEnd, FlowRecord, FlowSide};
use sonde_results::rtt::FlowKey;
use sonde_results::{Caveat, Interval};
use sonde_store::{FlowRow, SeriesId};
use sonde_wire::StampSource;

/// 2026-11-26 00:00 UTC, ns since 1970.
pub const BASE_NS: i64 = 1_795_651_200 * 1_000_000_000;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential, of this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }
}

/// A second of a stream: `probes` of them, round trips of `base` ns and exponential jitter.
pub fn interval(
    random: &mut Random,
    base: f64,
    second: i64,
    probes: u64,
    synchronised: bool,
) -> Interval {
    let mut i = Interval::empty(0);
    i.start_ns = BASE_NS + second * 1_000_000_000;
    i.end_ns = i.start_ns + 1_000_000_000;
    i.counters.sent = probes;
    i.counters.lost = u64::from(random.share() < 0.001 * probes as f64);
    i.counters.received = probes - i.counters.lost;
    i.counters.lost_forward = Some(0);
    i.counters.lost_backward = Some(i.counters.lost);
    i.counters.settle_sides();
    for _ in 0..i.counters.received {
        let (there, back) = (random.exponential(base * 0.02), random.exponential(base * 0.02));
        let (there, back) = ((base / 2.0 + there) as i64, (base / 2.0 + back) as i64);
        let dwell = 20_000 + random.exponential(5_000.0) as i64;
        i.rtt.add(there + back + dwell);
        i.rtt_net.add(there + back);
        i.forward.add(there);
        i.backward.add(back);
        i.ipdv_forward
            .add(random.exponential(base * 0.02) as i64 - random.exponential(base * 0.02) as i64);
        i.ipdv_backward
            .add(random.exponential(base * 0.02) as i64 - random.exponential(base * 0.02) as i64);
    }
    i.jitter_forward_ns = random.exponential(base * 0.02);
    i.jitter_backward_ns = random.exponential(base * 0.02);
    (i.t1_source, i.t4_source) = (Some(StampSource::Kernel), Some(StampSource::Driver));
    if !synchronised {
        i.caveats.insert(Caveat::LocalClockUnsynchronised);
    }
    i
}

/// A flow record whose last packet is of that second.
pub fn flow(random: &mut Random, second: i64) -> FlowRow {
    // Zipf: the n-th host has 1/n of the weight of the first.
    let host = |random: &mut Random| {
        let n = (60_000f64.powf(random.share())) as u32;
        std::net::IpAddr::from([10, (n >> 14) as u8, (n >> 6) as u8, (n << 2) as u8])
    };
    let last_ns = BASE_NS + second * 1_000_000_000 + (random.share() * 1e9) as i64;
    let first_ns = last_ns - random.exponential(2e9) as i64;
    let packets = 1 + random.exponential(12.0) as u64;
    let side = |random: &mut Random| FlowSide {
        packets,
        bytes: packets * 40 + random.exponential(packets as f64 * 400.0) as u64,
        first_ns,
        last_ns,
        tcp_flags: 0x1B,
        tos: 0,
        ttl_min: 58,
        ttl_max: 58,
    };
    let record = FlowRecord {
        key: FlowKey {
            point: 0,
            vlan: 0,
            protocol: if random.share() < 0.8 { 6 } else { 17 },
            source: host(random),
            destination: host(random),
            source_port: 32_768 + (random.share() * 28_000.0) as u16,
            destination_port: [443, 443, 443, 53, 80, 22][(random.share() * 6.0) as usize],
        },
        forward: side(random),
        reverse: match random.share() < 0.6 {
            true => FlowSide {
                first_ns: first_ns + (last_ns - first_ns) / 7,
                last_ns: last_ns - (last_ns - first_ns) / 9,
                ..side(random)
            },
            false => FlowSide::default(),
        },
        end: FlowEnd::Idle,
        extra: None,
    };
    FlowRow::new(SeriesId(0), &record)
}
