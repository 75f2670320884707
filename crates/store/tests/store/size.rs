//! How many octets a record takes, of data in the shape of recorded ones.

use sonde_results::flow::{FlowEnd, FlowRecord, FlowSide};
use sonde_results::rtt::FlowKey;
use sonde_results::{Caveat, Interval};
use sonde_store::{
    Batch, FlowRow, IntervalRow, Rows, SeriesId, SeriesLabels, Store, StoreOptions, Writer,
};
use sonde_wire::StampSource;

use crate::support::script::BASE_NS;
use crate::support::{Folder, options};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential, of this mean.
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }
}

/// A second of a stream: `probes` of them, round trips of `base` ns and exponential jitter.
fn interval(
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

fn flow(random: &mut Random, second: i64) -> FlowRow {
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

/// Octets a row in each table's segments, and in the journal.
fn measure(name: &str, rows: impl Iterator<Item = Rows>, series: u32) -> Vec<(String, f64)> {
    let folder = Folder::new(name);
    let options = StoreOptions { seal_rows: 10_000_000, ..options() };
    let store = Store::open(folder.path(), options).unwrap();
    for i in 0..series {
        store.register(&SeriesLabels { target: i.to_string(), ..Default::default() }).unwrap();
    }
    let mut writer = store.writer().unwrap();
    let mut n = 0;
    for (number, rows) in (1..).zip(rows) {
        n += rows.len();
        let batch = Batch { writer: "w".into(), number, rows: rows.into() };
        writer.append(&batch).unwrap();
        writer.sync().unwrap();
    }
    let size = |path: &std::path::Path| -> u64 {
        let mut total = 0;
        let mut folders = vec![path.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                match entry.metadata().unwrap().is_dir() {
                    true => folders.push(entry.path()),
                    false => total += entry.metadata().unwrap().len(),
                }
            }
        }
        total
    };
    let mut sizes =
        vec![("journal".into(), size(&folder.path().join("journal")) as f64 / n as f64)];
    store.flush().unwrap();
    for entry in std::fs::read_dir(folder.path().join("seg")).unwrap() {
        let path = entry.unwrap().path();
        let table = path.file_name().unwrap().to_str().unwrap().to_owned();
        sizes.push((table, size(&path) as f64 / n as f64));
    }
    sizes
}

fn of(sizes: &[(String, f64)], table: &str) -> f64 {
    sizes.iter().find(|(name, _)| name == table).unwrap().1
}

fn intervals(
    streams: u32,
    seconds: i64,
    probes: u64,
    synchronised: bool,
) -> impl Iterator<Item = Rows> {
    let mut random = Random(7);
    let bases: Vec<f64> = (0..streams).map(|_| 1e5 * 1_000f64.powf(random.share())).collect();
    (0..seconds).map(move |second| {
        let row = |(s, &base): (usize, &f64)| {
            IntervalRow::new(
                SeriesId(s as u32),
                &interval(&mut random, base, second, probes, synchronised),
            )
        };
        Rows::Intervals(bases.iter().enumerate().map(row).collect())
    })
}

#[test]
fn a_record_takes_no_more_than_it_may() {
    let sizes = measure("size", intervals(1_000, 20, 10, false), 1_000);
    println!("10 probes a record: {sizes:.1?}");
    assert!(of(&sizes, "iv") <= 60.0, "{sizes:.1?}");
    let sizes = measure("size", intervals(300, 20, 100, false), 300);
    println!("100 probes a record: {sizes:.1?}");
    assert!(of(&sizes, "iv") <= 60.0, "{sizes:.1?}");
    let sizes = measure("size", intervals(1_000, 20, 10, true), 1_000);
    println!("10 probes a record, clocks synchronised: {sizes:.1?}");
    assert!(of(&sizes, "iv") <= 60.0, "{sizes:.1?}");
    let mut random = Random(9);
    let flows =
        (0..20).map(|second| Rows::Flows((0..2_500).map(|_| flow(&mut random, second)).collect()));
    let sizes = measure("size", flows, 1);
    println!("flows: {sizes:.1?}");
    assert!(of(&sizes, "flow") <= 30.0, "{sizes:.1?}");
}
