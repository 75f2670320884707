//! The exporter alone: nanoseconds of processor time a flow record, from memory to
//! messages in memory.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Result;
use sonde_meter::export::{Config, ExportProtocol, Exporter, Extra, Profile, TimeUnit};
use sonde_results::flow::{
    App, FlowEnd, FlowExtra, FlowKey, FlowRecord, FlowSide, FlowTcp, TlsInfo,
};

use crate::rtt::thread_cpu;

/// Each format and profile over the same records, the least of several rounds.
pub fn bench() -> Result<()> {
    println!("\n## Exporting: ns a record\n");
    println!(
        "{RECORDS} records, exported {REPEAT} times a round; least of {ROUNDS} rounds. A record \
         of a biflow exported as uniflows counts twice.\n"
    );
    println!("| what | ns a record | bytes a record | records/s |");
    println!("|---|---|---|---|");
    let default = Profile::default();
    let biflow = Profile { biflow: true, ..default };
    let extra = Profile { extra: Extra { tcp: true, apps: true, ..Extra::default() }, ..default };
    let rows = [
        ("IPFIX, IPv4, uniflows", default, records(false, false, None)),
        ("IPFIX, IPv6, uniflows", default, records(true, false, None)),
        ("IPFIX, IPv4, both ways as two uniflows", default, records(false, true, None)),
        ("IPFIX, IPv4, biflows", biflow, records(false, true, None)),
        (
            "IPFIX, IPv4, us",
            Profile { time: TimeUnit::Micro, ..default },
            records(false, false, None),
        ),
        ("IPFIX, IPv4, TCP and TLS fields", extra, records(false, false, Some(tls()))),
        (
            "NetFlow 9, IPv4",
            Profile { protocol: ExportProtocol::Netflow9, ..default },
            records(false, false, None),
        ),
        (
            "NetFlow 5, IPv4",
            Profile { protocol: ExportProtocol::Netflow5, ..default },
            records(false, false, None),
        ),
    ];
    for (name, profile, records) in rows {
        let mut best = f64::INFINITY;
        let mut size = 0.0;
        for _ in 0..ROUNDS {
            let (ns, bytes) = round(profile, &records)?;
            best = best.min(ns);
            size = bytes;
        }
        println!("| {name} | {best:.1} | {size:.1} | {:.1} M |", 1e3 / best);
    }
    Ok(())
}

/// Nanoseconds and bytes an exported record.
fn round(profile: Profile, records: &[FlowRecord]) -> Result<(f64, f64)> {
    let mut exporter = Exporter::new(Config { profile, ..Config::default() });
    let mut last = 0u8;
    let before = thread_cpu()?;
    for turn in 0..REPEAT {
        let now_ns = START + turn as i64 * 1_000_000;
        for record in records {
            exporter.push(black_box(record), now_ns, &mut |message| last ^= message[0]);
        }
    }
    exporter.flush(START, &mut |message| last ^= message[0]);
    let seconds = thread_cpu()? - before;
    black_box(last);
    let counters = exporter.counters();
    let count = counters.records as f64;
    Ok((seconds * 1e9 / count, counters.octets as f64 / count))
}

/// Records of distinct addresses and values.
fn records(ipv6: bool, both: bool, extra: Option<FlowExtra>) -> Vec<FlowRecord> {
    (0..RECORDS as u32)
        .map(|n| {
            let address = |net: u32| -> IpAddr {
                if ipv6 {
                    Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(net | n)).into()
                } else {
                    Ipv4Addr::from(net | n).into()
                }
            };
            let first_ns = START - i64::from(n) * 1_000_001;
            let side = FlowSide {
                packets: u64::from(n) + 1,
                bytes: u64::from(n) * 1000 + 40,
                first_ns,
                last_ns: first_ns + 1_234_567,
                tcp_flags: 0x1b,
                tos: 0,
                ttl_min: 60,
                ttl_max: 64,
            };
            FlowRecord {
                key: FlowKey {
                    point: 0,
                    vlan: 0,
                    protocol: 6,
                    source: address(0x0a00_0000),
                    destination: address(0x0b00_0000),
                    source_port: n as u16,
                    destination_port: 443,
                },
                forward: side,
                reverse: if both { side } else { FlowSide::default() },
                end: FlowEnd::Idle,
                extra: extra.clone().map(Box::new),
            }
        })
        .collect()
}

fn tls() -> FlowExtra {
    FlowExtra {
        tcp: Some(FlowTcp { handshake_server_ns: 1_000_000, ..FlowTcp::default() }),
        app: Some(App::Tls(TlsInfo {
            sni: "www.example.org".into(),
            alpn: "h2".into(),
            version: 0x0304,
            ja3: "e7d705a3286e19ea42f587b344ee6865".into(),
            ja4: "t13d1516h2_8daaf6152771_b186095e22b6".into(),
        })),
        ..FlowExtra::default()
    }
}

/// Few enough to lie in the processor's cache: what is measured is the work.
const RECORDS: usize = 1000;
const REPEAT: usize = 1000;
const ROUNDS: usize = 5;
/// In 2023, ns since 1970 TAI.
const START: i64 = 1_700_000_000_123_456_789;
