//! A run of a probe.

use crate::caveat::{Caveat, CaveatSet};
use crate::run::{Health, SCHEMA_VERSION};
use crate::{Counters, HostInfo, Interval, LossSide, Run, RunConfig, RunHeader, StreamInfo};
use sonde_wire::StampSource;

/// `targets` targets with `classes` DSCP classes each, 1,000 probes a stream.
pub fn run(targets: u32, classes: u32) -> Run {
    let mut streams = Vec::new();
    let mut totals = Vec::new();
    let mut overall = Interval::empty(0);
    for i in 0..targets * classes {
        let (target, class) = (i / classes, i % classes);
        let address = format!("10.2.{}.{}", target / 250, target % 250 + 1);
        streams.push(StreamInfo {
            target: address.clone(),
            source: format!("10.1.0.1:{}", 62_000 + class).parse().unwrap(),
            destination: format!("{address}:862").parse().unwrap(),
            dscp: [0, 46, 34, 10, 18][class as usize],
            ssid: i as u16 + 1,
            ip_length: 150,
            period_ns: 100_000_000,
        });
        let total = interval(i, START, START + 100_000_000_000);
        overall.merge(&total);
        totals.push(total);
    }
    let mut health = Health::default();
    for i in 0..1_000 {
        health.send_lateness.add(i * i / 100);
    }
    health.pauses.add(761_000);
    health.counters.insert("rx_dropped".into(), 0);
    health.counters.insert("sender_forged".into(), 3);
    health.counters.insert("sender_sent".into(), 1_000);
    let mut caveats = overall.caveats;
    caveats.insert(Caveat::CpuStolen);
    Run {
        header: RunHeader {
            schema: SCHEMA_VERSION,
            version: "0.1.0".into(),
            instrument: "probe".into(),
            start_ns: START,
            end_ns: START + 100_000_000_000,
            host: HostInfo {
                name: "probe1".into(),
                kernel: "6.18.0".into(),
                cpu: "a processor".into(),
                cpus: 2,
                clock_source: "tsc".into(),
                tai_offset_s: 37,
                clock_synchronised: true,
                clock_max_error_ns: 1_200_000,
            },
        },
        config: RunConfig {
            command: ["sonde", "probe", "10.2.0.1"].map(String::from).to_vec(),
            settings: serde_json::Value::Null,
            engine: "af_xdp (copy mode, 1 queue)".into(),
            timeout_ns: 2_000_000_000,
            interval_ns: 10_000_000_000,
            late_limit_ns: 50_000,
            seed: 1,
        },
        streams,
        totals,
        overall,
        health,
        caveats,
    }
}

/// One stream's counts: 1,000 sent, 998 answered, 1 lost each way.
pub fn interval(stream: u32, start_ns: i64, end_ns: i64) -> Interval {
    let mut interval = Interval {
        start_ns,
        end_ns,
        counters: Counters {
            sent: 1_000,
            received: 998,
            lost: 2,
            duplicated: 1,
            lost_forward: Some(1),
            lost_backward: Some(1),
            sent_late: 4,
            ..Counters::default()
        },
        loss_side: LossSide::Known,
        jitter_forward_ns: 812.5,
        jitter_backward_ns: 640.0,
        t1_source: Some(StampSource::Driver),
        t4_source: Some(StampSource::Kernel),
        peer_error_ns: Some(1_500.0),
        caveats: CaveatSet::default(),
        ..Interval::empty(stream)
    };
    let mut state = u64::from(stream) + 1;
    for i in 0..998_i64 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = (state >> 33) as i64 % 4_000;
        let tail = if i % 97 == 0 { 60_000 } else { 0 };
        let (forward, backward) = (9_000 + noise + tail, 8_000 + noise / 2);
        interval.forward.add(forward);
        interval.backward.add(backward);
        interval.rtt_net.add(forward + backward);
        interval.rtt.add(forward + backward + 1_500);
        interval.ipdv_forward.add(noise - 2_000);
        interval.ipdv_backward.add(1_000 - noise / 2);
    }
    interval
}

/// 2026-11-21T12:00:37 TAI.
pub const START: i64 = 1_795_262_437_000_000_000;
