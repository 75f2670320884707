//! An invented run of passive round-trip times.

use crate::caveat::{Caveat, CaveatSet};
use crate::rtt::{
    Coverage, EndReason, FlowKey, GroupKey, RttClass, RttFlow, RttFlowSide, RttGroup, RttKind,
    RttSample, SpinVerdict,
};
use crate::rtt_run::{RTT_SCHEMA_VERSION, RttPoint, RttRun, RttRunConfig};
use crate::{Hist, HostInfo, RunHeader};

/// 2026-11-21T12:00:37 TAI, 12:00:00 UTC.
pub const START: i64 = 1_795_262_437_000_000_000;

/// Client 10.0.0.1, server 192.0.2.7 port 443, as the server's packets have it.
pub fn from_server() -> FlowKey {
    FlowKey {
        point: 0,
        vlan: 0,
        protocol: 6,
        source: "192.0.2.7".parse().unwrap(),
        destination: "10.0.0.1".parse().unwrap(),
        source_port: 443,
        destination_port: 50_000,
    }
}

/// A handshake of TCP and two samples of it, then one each over IPv6: ping and DNS.
pub fn samples() -> Vec<RttSample> {
    let server = from_server();
    let client = server.reversed();
    let v6 = FlowKey {
        protocol: 58,
        source: "2001:db8::7".parse().unwrap(),
        destination: "2001:db8:1::1".parse().unwrap(),
        source_port: 77,
        destination_port: 77,
        ..server
    };
    let dns = FlowKey { protocol: 17, source_port: 53, destination_port: 40_000, ..v6 };
    let sample = |ms: i64, flow, kind, rtt_ns, min_rtt_ns| RttSample {
        at_ns: START + ms * 1_000_000 + 123_456,
        flow,
        kind,
        class: RttClass::Clean,
        rtt_ns,
        min_rtt_ns,
        bytes: 1_500 * ms as u64,
        packets: ms as u64,
        peer_bytes: 64 * ms as u64,
        peer_packets: ms as u64 / 2,
    };
    vec![
        sample(20, server, RttKind::TcpHandshakeServer, 20_000_000, 20_000_000),
        sample(21, client, RttKind::TcpHandshakeClient, 987_648, 987_648),
        sample(41, server, RttKind::TcpTimestamp, 20_512_000, 20_000_000),
        RttSample {
            class: RttClass::Recovery,
            ..sample(500, server, RttKind::TcpTimestamp, 1_234_567_936, 20_000_000)
        },
        sample(700, v6, RttKind::IcmpEcho, 64, 64),
        sample(900, dns, RttKind::Dns, 3_000_000, 0),
    ]
}

/// The flow of [`samples`], which ended, and one that is open.
pub fn flows() -> Vec<RttFlow> {
    let forward = RttFlowSide {
        packets: 1_000,
        bytes: 64_000,
        samples: 120,
        samples_recovery: 3,
        rtt_min_ns: 20_000_000,
        rtt_sum_ns: 120 * 21_000_000,
        rtt_smoothed_ns: 20_900_000,
        retransmitted: 12,
        ..RttFlowSide::default()
    };
    let backward =
        RttFlowSide { packets: 4_000, bytes: 5_800_000, ce_marks: 5, ..RttFlowSide::default() };
    let ended = RttFlow {
        flow: from_server().reversed(),
        start_ns: START,
        end_ns: START + 3_000_000_000,
        reason: EndReason::Fin,
        forward,
        backward,
        handshake_server_ns: 20_000_000,
        handshake_client_ns: 987_648,
        responses: 1,
        response_sum_ns: 35_000_000,
        response_max_ns: 35_000_000,
        residences: 0,
        residence_sum_ns: 0,
        residence_max_ns: 0,
        spin: SpinVerdict::Unknown,
    };
    let idle = RttFlow {
        flow: FlowKey { source_port: 50_001, ..ended.flow },
        reason: EndReason::Idle,
        backward: RttFlowSide::default(),
        ..ended.clone()
    };
    let reset = RttFlow { reason: EndReason::Reset, ..ended.clone() };
    let open = RttFlow { reason: EndReason::Stopped, ..ended.clone() };
    vec![ended, idle, reset, open]
}

/// Three groups, the slowest first.
pub fn run() -> RttRun {
    let mut caveats = CaveatSet::default();
    caveats.insert(Caveat::SamplesSpaced);
    let counters = [
        ("packets", 1_234_567),
        ("flows", 1_500),
        ("samples_clean", 4_100),
        ("samples_recovery", 49),
        ("samples_delayed_ack", 24),
        ("untracked_full", 0),
        ("voided", 61),
        ("spaced", 1_204),
        ("fragments", 12),
        ("no_advance", 3),
    ];
    RttRun {
        header: RunHeader {
            schema: RTT_SCHEMA_VERSION,
            version: "0.1.0".into(),
            instrument: "rtt".into(),
            start_ns: START,
            end_ns: START + 10_000_000_000,
            host: HostInfo {
                name: "probe1".into(),
                cpus: 2,
                tai_offset_s: 37,
                ..HostInfo::default()
            },
        },
        config: RttRunConfig {
            command: ["sonde", "rtt", "eth0"].map(String::from).to_vec(),
            group_by: "prefix".into(),
            interval_ns: 1_000_000_000,
            flows_max: 131_072,
            ..RttRunConfig::default()
        },
        points: vec![RttPoint {
            name: "eth0".into(),
            how: "tcx, ingress and egress".into(),
            vanished: 0,
        }],
        groups: vec![
            group("198.51.100.0", 24, 80_000_000, 600, 40),
            group("2001:db8:7::", 48, 20_000_000, 3_000, 9),
            group("10.0.0.0", 24, 900_000, 500, 0),
        ],
        coverage: Coverage {
            counters: counters.into_iter().map(|(name, n)| (name.to_string(), n)).collect(),
        },
        caveats,
    }
}

/// `count` clean samples around `rtt` and a few in recovery.
fn group(address: &str, length: u8, rtt: i64, count: u32, recovery: u32) -> RttGroup {
    let mut state = u64::from(count);
    let mut values = |n: u32, rtt: i64| {
        let mut hist = Hist::default();
        for _ in 0..n {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            let noise = (state >> 40) as i64 % 1_000;
            hist.add(rtt + rtt * noise * noise / 1_000_000);
        }
        hist
    };
    RttGroup {
        key: GroupKey::Prefix { address: address.parse().unwrap(), length },
        start_ns: START,
        end_ns: START + 10_000_000_000,
        clean: values(count, rtt),
        recovery: values(recovery, rtt * 4),
        delayed_ack: values(recovery / 2, rtt + 40_000_000),
    }
}
