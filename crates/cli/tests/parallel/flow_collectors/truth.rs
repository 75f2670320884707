//! Flow records whose every field is known, and what a collector has to say of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sonde_meter::export::{Config, ExportInterface, ExportStats, Exporter};
use sonde_results::flow::{FlowEnd, FlowKey, FlowRecord, FlowSide};

/// A time in 2023, ns since 1970 TAI; no leap second since.
const NOW: i64 = 1_700_000_037_000_000_000;
const TAI_OFFSET_S: i64 = 37;

/// Source, destination, source port, destination port, protocol.
pub type Key = (IpAddr, IpAddr, u16, u16, u8);

/// What a collector says of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectorFlow {
    pub packets: u64,
    pub bytes: u64,
    /// us since 1970 UTC.
    pub first_us: i64,
    pub last_us: i64,
    pub tcp_flags: u16,
}

/// Flows by key: each key is there once.
pub type Flows = BTreeMap<Key, CollectorFlow>;

/// Records of both directions, of one, IPv4 and IPv6, TCP, UDP and ICMP; times differ in
/// every digit down to the nanosecond.
pub fn records(count: u32, ipv6: bool) -> Vec<FlowRecord> {
    (0..count)
        .map(|n| {
            let address = |net: u16| -> IpAddr {
                if ipv6 && n % 3 == 2 {
                    Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, n as u16 + 1).into()
                } else {
                    Ipv4Addr::new(10, net as u8, (n >> 8) as u8, n as u8).into()
                }
            };
            let protocol =
                if ipv6 && n % 3 == 2 { [6, 17, 58] } else { [6, 17, 1] }[n as usize % 5 % 3];
            let ports = match protocol {
                1 => (0, 8 << 8),
                58 => (0, 128 << 8),
                _ => (40_000 + n as u16, 443),
            };
            let side = |offset: i64, scale: u64, flags: u16| FlowSide {
                packets: scale + u64::from(n),
                bytes: 1500 * scale + 7 * u64::from(n),
                first_ns: NOW - 30_000_000_000 + i64::from(n) * 1_234_567 + offset,
                last_ns: NOW - 20_000_000_000 + i64::from(n) * 7_654_321 + offset,
                tcp_flags: if protocol == 6 { flags } else { 0 },
                tos: 0x48,
                ttl_min: 60,
                ttl_max: 64,
            };
            FlowRecord {
                key: FlowKey {
                    point: 0,
                    vlan: 0,
                    protocol,
                    source: address(1),
                    destination: address(2),
                    source_port: ports.0,
                    destination_port: ports.1,
                },
                forward: side(0, 3, 0x1b),
                reverse: if n % 4 == 3 { FlowSide::default() } else { side(1_100_000, 1000, 0x13) },
                end: [FlowEnd::Idle, FlowEnd::Active, FlowEnd::EndDetected][n as usize % 3],
                extra: None,
            }
        })
        .collect()
}

/// All directions that had packets, as keys of their own.
pub fn flows(records: &[FlowRecord]) -> Flows {
    let mut flows = Flows::new();
    for record in records {
        let key = record.key;
        let forward =
            (key.source, key.destination, key.source_port, key.destination_port, key.protocol);
        let reply = match key.protocol {
            1 => (0, 0),
            58 => (0, 129 << 8),
            _ => (key.destination_port, key.source_port),
        };
        let reverse = (key.destination, key.source, reply.0, reply.1, key.protocol);
        for (key, side) in [(forward, record.forward), (reverse, record.reverse)] {
            if side.packets > 0 {
                assert!(
                    flows.insert(key, collector_flow(&side)).is_none(),
                    "the truth repeats {key:?}"
                );
            }
        }
    }
    flows
}

/// Only the direction of the first packet.
pub fn forward_flows(records: &[FlowRecord]) -> Flows {
    let mut one_way = records.to_vec();
    one_way.iter_mut().for_each(|record| record.reverse = FlowSide::default());
    flows(&one_way)
}

fn collector_flow(side: &FlowSide) -> CollectorFlow {
    let us = |ns: i64| (ns - TAI_OFFSET_S * 1_000_000_000).div_euclid(1000);
    CollectorFlow {
        packets: side.packets,
        bytes: side.bytes,
        first_us: us(side.first_ns),
        last_us: us(side.last_ns),
        tcp_flags: side.tcp_flags,
    }
}

/// The messages of all records, in the time of their flows.
pub fn messages(mut config: Config, stats: &ExportStats, records: &[FlowRecord]) -> Vec<Vec<u8>> {
    config.tai_offset_s = TAI_OFFSET_S;
    config.interfaces =
        vec![ExportInterface { index: 3, name: "eth0".into(), description: "uplink".into() }];
    let mut exporter = Exporter::new(config);
    let mut messages = Vec::new();
    // Before the flows, as a probe does: a collector must not stumble over it.
    exporter.options(stats, NOW, &mut |message| messages.push(message.to_vec()));
    for record in records {
        exporter.push(record, NOW, &mut |message| messages.push(message.to_vec()));
    }
    exporter.flush(NOW, &mut |message| messages.push(message.to_vec()));
    messages
}

/// Same keys, counts and flags; times to the millisecond.
pub fn compare(what: &str, collected: &Flows, truth: &Flows) {
    let missing: Vec<_> = truth.keys().filter(|key| !collected.contains_key(key)).collect();
    assert!(missing.is_empty(), "{what}: {} flows are missing: {:?}", missing.len(), missing[0]);
    let invented: Vec<_> = collected.keys().filter(|key| !truth.contains_key(key)).collect();
    assert!(invented.is_empty(), "{what}: {} flows too many: {:?}", invented.len(), invented[0]);
    for (key, truth) in truth {
        let collected = &collected[key];
        let near = |a: i64, b: i64| (a - b).abs() <= 1000;
        assert!(
            (collected.packets, collected.bytes, collected.tcp_flags)
                == (truth.packets, truth.bytes, truth.tcp_flags)
                && near(collected.first_us, truth.first_us)
                && near(collected.last_us, truth.last_us),
            "{what}: {key:?}: {collected:?}, but it was {truth:?}"
        );
    }
}

/// us since 1970 of `2023-11-14T22:12:50.000`, or with a space, or with more digits.
pub fn iso_us(text: &str) -> i64 {
    let digits = |range: std::ops::Range<usize>| -> i64 {
        text.get(range).and_then(|part| part.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let (year, month, day) = (digits(0..4), digits(5..7), digits(8..10));
    // Days from 1970 by the civil calendar; March is the first month of the year.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        y * 365 + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day
            - 1
            - 719_468;
    let seconds = days * 86_400 + digits(11..13) * 3600 + digits(14..16) * 60 + digits(17..19);
    let fraction = text.get(20..).unwrap_or("");
    let micros: i64 = format!("{fraction:0<6}")[..6].parse().unwrap();
    seconds * 1_000_000 + micros
}

#[test]
fn times_are_read_by_the_civil_calendar() {
    assert_eq!(iso_us("1970-01-01T00:00:00.000"), 0);
    assert_eq!(iso_us("2023-11-14 22:13:20.000001"), 1_700_000_000_000_001);
    assert_eq!(iso_us("2000-02-29T00:00:00"), 951_782_400_000_000);
}
