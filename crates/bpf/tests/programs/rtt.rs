//! The programs of passive RTT as functions: frames in, samples, flows and counters out.

use std::sync::Barrier;
use std::time::Duration;

use crate::common::privileged;
use crate::common::rtt::{A, B, MS, Segment, T0, echo};
use sonde_bpf::{RttConfig, RttEvents, RttProgram, RttSide, RttTestPacket};
use sonde_results::rtt::{EndReason, RttClass, RttFlow, RttKind, RttSample};

fn load(change: impl FnOnce(&mut RttConfig)) -> RttProgram {
    let mut config = RttConfig {
        flows: 1024,
        groups: 64,
        seed: [1, 2],
        events: RttEvents::All,
        ..RttConfig::default()
    };
    change(&mut config);
    RttProgram::load(&config).unwrap()
}

fn poll(p: &mut RttProgram) -> (Vec<RttSample>, Vec<RttFlow>) {
    let (mut samples, mut flows) = (vec![], vec![]);
    p.poll(Duration::ZERO, &mut |s| samples.push(s), &mut |f| flows.push(f)).unwrap();
    (samples, flows)
}

fn count(p: &RttProgram, name: &str) -> u64 {
    p.coverage().unwrap().counters[name]
}

fn run(p: &RttProgram, frames: &[(i64, Segment)]) {
    for (ms, segment) in frames {
        p.test_run(RttSide::Ingress, &segment.frame(), T0 + ms * MS).unwrap();
    }
}

/// What the tests look at: kind, class and milliseconds.
fn brief(samples: &[RttSample]) -> Vec<(RttKind, RttClass, u64)> {
    samples.iter().map(|s| (s.kind, s.class, s.rtt_ns / MS as u64)).collect()
}

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
const RST: u8 = 4;
const CLEAN: RttClass = RttClass::Clean;

fn handshake(ts: bool) -> [(i64, Segment); 3] {
    let ts = |a, b| ts.then_some((a, b));
    [
        (0, Segment { flags: SYN, seq: 100, ts: ts(1, 0), ..A }),
        (10, Segment { flags: SYN | ACK, seq: 500, ack: 101, ts: ts(900, 1), ..B }),
        (15, Segment { seq: 101, ack: 501, ts: ts(11, 900), ..A }),
    ]
}

#[test]
fn one_program_many_cases() {
    if !privileged("one_program_many_cases") {
        return;
    }
    // Loading takes seconds on a slow machine: each case has ports of its own instead.
    let mut p = load(|_| ());
    handshake_timestamps_and_end(&mut p);
    sequence_and_karn(&mut p);
    reuse_and_reset(&mut p);
    pure_acknowledgements_and_repeated_values(&mut p);
    losses_and_late_acknowledgements(&mut p);
    fragments_and_nonsense(&mut p);
    echo_requests(&mut p);
    wraps(&mut p);
    gso(&mut p);
}

fn handshake_timestamps_and_end(p: &mut RttProgram) {
    run(p, &handshake(true));
    run(
        p,
        &[
            (16, Segment { seq: 101, ack: 501, ts: Some((12, 900)), len: 100, ..A }),
            (27, Segment { seq: 501, ack: 201, ts: Some((920, 12)), ..B }),
            (30, Segment { seq: 501, ack: 201, ts: Some((925, 12)), len: 500, ..B }),
            (36, Segment { seq: 201, ack: 1001, ts: Some((33, 925)), flags: ACK | FIN, ..A }),
            (46, Segment { seq: 1001, ack: 202, ts: Some((940, 33)), flags: ACK | FIN, ..B }),
            (50, Segment { seq: 202, ack: 1002, ts: Some((47, 940)), ..A }),
        ],
    );
    let (samples, flows) = poll(p);
    let ts = RttKind::TcpTimestamp;
    assert_eq!(
        brief(&samples),
        [
            (RttKind::TcpHandshakeServer, CLEAN, 10),
            (RttKind::TcpHandshakeClient, CLEAN, 5),
            (ts, CLEAN, 11),
            (ts, CLEAN, 6),
            (ts, CLEAN, 10),
            (ts, CLEAN, 4),
        ]
    );
    assert_eq!(samples[2].flow.source.to_string(), "10.0.0.2", "who answered");
    assert!(flows.is_empty());
    p.sweep(T0 + 6_000 * MS).unwrap();
    let (_, flows) = poll(p);
    assert_eq!(flows.len(), 1);
    let flow = &flows[0];
    assert_eq!(flow.reason, EndReason::Fin);
    assert_eq!((flow.flow.source_port, flow.flow.destination_port), (4000, 80));
    assert_eq!((flow.forward.packets, flow.backward.packets), (5, 4));
    assert_eq!(flow.handshake_server_ns, 10 * MS as u64);
    assert_eq!((flow.responses, flow.response_sum_ns), (1, 14 * MS as u64));
    assert_eq!((flow.forward.samples, flow.backward.samples), (3, 3));
    assert_eq!(p.take_groups(0, 1).unwrap()[0].clean.count, 6);
    assert!(p.take_groups(1, 2).unwrap().is_empty());
}

fn sequence_and_karn(p: &mut RttProgram) {
    let (a, b) = (A.port(4001), B.port(4001));
    run(
        p,
        &[
            (0, Segment { seq: 1, ack: 1, len: 100, ..a }),
            (20, Segment { seq: 1, ack: 101, ..b }),
            // Sent again: which copy is answered is unknown.
            (30, Segment { seq: 101, ack: 1, len: 100, ..a }),
            (60, Segment { seq: 101, ack: 1, len: 100, ..a }),
            (80, Segment { seq: 1, ack: 201, ..b }),
            // Recovery is over: timed again. A keepalive changes nothing.
            (90, Segment { seq: 201, ack: 1, len: 50, ..a }),
            (95, Segment { seq: 250, ack: 1, len: 1, ..a }),
            (111, Segment { seq: 1, ack: 251, ..b }),
        ],
    );
    let (samples, _) = poll(p);
    let seq = RttKind::TcpSequence;
    assert_eq!(brief(&samples), [(seq, CLEAN, 20), (seq, CLEAN, 21)]);
    let mut open = vec![];
    p.open_flows(&mut |f| open.push(f));
    let flow = open.iter().find(|f| f.flow.source_port == 4001).unwrap();
    assert_eq!((flow.forward.retransmitted, flow.forward.reordered), (1, 0));
}

fn reuse_and_reset(p: &mut RttProgram) {
    let (a, b) = (A.port(4002), B.port(4002));
    run(
        p,
        &[
            (0, Segment { seq: 9, ack: 1, ts: Some((5000, 7)), len: 9, ..a }),
            (1, Segment { seq: 1, ack: 18, ts: Some((70, 5000)), ..b }),
            // The same ports with a lower TSval.
            (100, Segment { flags: SYN, seq: 70_000, ts: Some((10, 0)), ..a }),
            (112, Segment { flags: SYN | ACK, seq: 3, ack: 70_001, ts: Some((9, 10)), ..b }),
            (120, Segment { flags: RST, seq: 70_001, ..a }),
        ],
    );
    let (samples, flows) = poll(p);
    let sequence = (RttKind::TcpSequence, CLEAN, 1);
    assert_eq!(brief(&samples), [sequence, (RttKind::TcpHandshakeServer, CLEAN, 12)]);
    assert_eq!(flows.iter().map(|f| f.reason).collect::<Vec<_>>(), [EndReason::Reuse]);
    p.sweep(T0 + 6_000 * MS).unwrap();
    assert!(poll(p).1.iter().any(|f| f.reason == EndReason::Reset));
}

fn pure_acknowledgements_and_repeated_values(p: &mut RttProgram) {
    let (a, b) = (A.port(4003), B.port(4003));
    run(
        p,
        &[
            (0, Segment { seq: 1, ack: 1, ts: Some((10, 1)), len: 10, ..a }), // the first
            (1, Segment { seq: 11, ack: 1, ts: Some((11, 1)), len: 10, ..a }), // the first edge
            (2, Segment { seq: 21, ack: 1, ts: Some((12, 1)), ..a }),         // pure: not timed
            (3, Segment { seq: 21, ack: 1, ts: Some((12, 1)), len: 10, ..a }),
            (9, Segment { seq: 1, ack: 31, ts: Some((2, 12)), ..b }),
            (10, Segment { seq: 31, ack: 1, ts: Some((13, 1)), len: 10, ..a }),
            (14, Segment { seq: 41, ack: 1, ts: Some((13, 1)), len: 10, ..a }), // not again
            (30, Segment { seq: 1, ack: 51, ts: Some((3, 13)), ..b }),
            (40, Segment { seq: 1, ack: 51, ts: Some((4, 13)), len: 7, ..b }), // nor this
        ],
    );
    let ts = RttKind::TcpTimestamp;
    let sequence = RttKind::TcpSequence; // as long as nobody has echoed
    assert_eq!(brief(&poll(p).0), [(sequence, CLEAN, 6), (ts, CLEAN, 20)]);
}

fn losses_and_late_acknowledgements(p: &mut RttProgram) {
    let (a, b) = (A.port(4004), B.port(4004));
    let (delayed, late) = (count(p, "samples_delayed_ack"), count(p, "samples_recovery"));
    run(
        p,
        &[
            (0, Segment { flags: SYN, seq: 0, ts: Some((1, 0)), ..a }),
            (10, Segment { flags: SYN | ACK, seq: 0, ack: 1, ts: Some((1, 1)), ..b }),
            (11, Segment { seq: 1, ack: 1, ts: Some((2, 1)), ..a }),
            (20, Segment { seq: 1, ack: 1, ts: Some((3, 1)), len: 100, ..a }),
            (70, Segment { seq: 1, ack: 101, ts: Some((2, 3)), ..b }),
            (80, Segment { seq: 101, ack: 1, ts: Some((63, 1)), len: 100, ..a }),
            (81, Segment { seq: 201, ack: 1, ts: Some((64, 1)), len: 100, ..a }),
            (91, Segment { seq: 1, ack: 101, ts: Some((3, 3)), sack: true, ..b }),
            (99, Segment { seq: 1, ack: 301, ts: Some((4, 63)), ..b }),
        ],
    );
    let (samples, _) = poll(p);
    let ts = RttKind::TcpTimestamp;
    assert_eq!(
        brief(&samples)[2..],
        [(ts, RttClass::DelayedAck, 50), (ts, RttClass::Recovery, 19)]
    );
    assert_eq!(count(p, "samples_delayed_ack"), delayed + 1);
    assert_eq!(count(p, "samples_recovery"), late + 1);
    let groups = p.take_groups(0, 1).unwrap();
    assert_eq!(groups.iter().map(|g| g.delayed_ack.count).sum::<u64>(), 1);
    assert_eq!(groups.iter().map(|g| g.recovery.count).sum::<u64>(), 1);
}

fn fragments_and_nonsense(p: &mut RttProgram) {
    let whole = Segment { len: 40, ..A.port(4005) }.frame();
    let (fragments, flows) = (count(p, "fragments"), count(p, "flows"));
    let mut frame = whole.clone();
    frame[20..22].copy_from_slice(&[0x00, 0x10]);
    p.test_run(RttSide::Ingress, &frame, T0).unwrap();
    assert_eq!((count(p, "fragments"), count(p, "flows")), (fragments + 1, flows));
    let mut first = whole.clone();
    first[20] = 0x20;
    let kind = count(p, "untracked_kind");
    p.test_run(RttSide::Ingress, &first, T0).unwrap();
    assert_eq!((count(p, "untracked_kind"), count(p, "flows")), (kind + 1, flows));
    // Cut at every length, and every octet damaged: the program only looks.
    for side in [RttSide::Ingress, RttSide::Egress, RttSide::Xdp] {
        let pass = if side == RttSide::Xdp { 2 } else { u32::MAX };
        // The kernel hands no less than an IPv4 header to a test.
        for n in 34..whole.len() {
            assert_eq!(p.test_run(side, &whole[..n], T0).unwrap(), pass, "{n}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            assert_eq!(p.test_run(side, &damaged, T0).unwrap(), pass, "{at}");
        }
    }
    p.sweep(T0 + 400_000 * MS).unwrap();
    poll(p);
}

fn echo_requests(p: &mut RttProgram) {
    let frames = [(0, false, 1), (5, true, 1), (6, false, 2), (9, false, 2), (12, true, 2)];
    let duplicates = count(p, "duplicate_ids");
    for (ms, reply, sequence) in frames {
        p.test_run(RttSide::Xdp, &echo(reply, sequence), T0 + ms * MS).unwrap();
    }
    assert_eq!(brief(&poll(p).0), [(RttKind::IcmpEcho, CLEAN, 5)]);
    assert_eq!(count(p, "duplicate_ids"), duplicates + 1);
}

fn wraps(p: &mut RttProgram) {
    let (a, b) = (A.port(4006), B.port(4006));
    let top = u32::MAX;
    run(
        p,
        &[
            (0, Segment { seq: 1, ack: top - 20, ts: Some((1, top - 2)), ..b }),
            (0, Segment { seq: top - 20, ack: 1, ts: Some((top - 1, 1)), len: 10, ..a }),
            (1, Segment { seq: top - 10, ack: 1, ts: Some((top, 1)), len: 10, ..a }),
            (2, Segment { seq: top, ack: 1, ts: Some((0, 1)), len: 10, ..a }),
            (32, Segment { seq: 1, ack: 9, ts: Some((2, 0)), ..b }),
        ],
    );
    assert_eq!(brief(&poll(p).0), [(RttKind::TcpTimestamp, CLEAN, 30)]);
}

fn gso(p: &mut RttProgram) {
    let (a, b) = (A.port(4007), B.port(4007));
    let frame = Segment { seq: 1, ack: 1, len: 3000, ..a }.frame();
    let packet = RttTestPacket { frame: &frame, segments: 3, ..RttTestPacket::default() };
    p.test_run_packet(RttSide::Egress, &packet, T0).unwrap();
    // An acknowledgement of its first segment alone is an answer too.
    run(p, &[(8, Segment { seq: 1, ack: 3001, ..b })]);
    assert_eq!(brief(&poll(p).0), [(RttKind::TcpSequence, CLEAN, 8)]);
    let mut counted = (0, 0);
    p.open_flows(&mut |f| {
        if f.flow.source_port == 4007 {
            counted = (f.forward.packets, f.forward.bytes);
        }
    });
    assert_eq!(counted, (3, 3_000 + 3 * 40), "each had the headers");
}

/// Time in this host: from the ingress of one interface to the egress of another. Only the
/// kernel's programs know both.
#[test]
fn packets_are_timed_from_one_interface_to_another() {
    if !privileged("packets_are_timed_from_one_interface_to_another") {
        return;
    }
    let mut p = load(|c| c.residence = true);
    let tagged = |mut frame: Vec<u8>, vlan: u8| {
        frame.splice(12..12, [0x81, 0, 0, vlan]);
        frame
    };
    let run = |us: i64, side, point, frame: &[u8]| {
        let packet = RttTestPacket { frame, point, ..RttTestPacket::default() };
        p.test_run_packet(side, &packet, T0 + us * 1_000).unwrap();
    };
    let (input, output) = (RttSide::Ingress, RttSide::Egress);
    let segment = |seq| Segment { seq, ack: 1, len: 100, ..A }.frame();
    // Routed, from one VLAN into another.
    run(0, input, 1, &tagged(segment(1), 5));
    run(40, output, 2, &tagged(segment(1), 6));
    // A copy of it leaves too; one that never came in leaves; a pure acknowledgement.
    run(45, output, 2, &tagged(segment(1), 6));
    run(50, output, 2, &tagged(segment(101), 6));
    run(60, input, 1, &tagged(Segment { seq: 201, ..A }.frame(), 5));
    run(70, output, 2, &tagged(Segment { seq: 201, ..A }.frame(), 6));
    // Two at once, which leave in the other order.
    run(100, input, 1, &tagged(segment(201), 5));
    run(110, input, 1, &tagged(segment(301), 5));
    run(180, output, 2, &tagged(segment(301), 6));
    run(190, output, 2, &tagged(segment(201), 6));
    // An echo request and its reply pass in opposite directions.
    run(200, input, 1, &echo(false, 9));
    run(230, output, 2, &echo(false, 9));
    run(300, input, 2, &echo(true, 9));
    run(320, output, 1, &echo(true, 9));
    let mut timed = vec![];
    p.open_flows(&mut |f| {
        let max = f.residence_max_ns;
        timed.push((f.flow.point, f.flow.protocol, f.residences, f.residence_sum_ns, max));
    });
    timed.sort_unstable();
    let us = |n: u64| n * 1_000;
    let about = |a: u64, b: u64| assert!(a.abs_diff(b) <= 3 * 64, "{a} ns, not {b}: {timed:?}");
    assert_eq!(timed.len(), 4, "{timed:?}");
    for (found, (point, protocol, n, sum, max)) in timed.iter().zip([
        (1, 1, 1, 20, 20),
        (1, 6, 0, 0, 0),
        (2, 1, 1, 30, 30),
        (2, 6, 3, 200, 90),
    ]) {
        assert_eq!((found.0, found.1, found.2), (point, protocol, n), "{timed:?}");
        about(found.3, us(sum));
        about(found.4, us(max));
    }
    let samples = poll(&mut p).0;
    let points: Vec<_> = samples.iter().map(|s| (s.kind, s.flow.point)).collect();
    assert_eq!(points, [(RttKind::IcmpEcho, 2), (RttKind::IcmpEcho, 1)], "round trips go on");
}

#[test]
fn a_flood_never_pushes_out_an_established_flow_and_memory_has_its_bound() {
    if !privileged("a_flood_never_pushes_out_an_established_flow_and_memory_has_its_bound") {
        return;
    }
    let mut p = load(|c| (c.flows, c.events) = (64, RttEvents::None));
    let (a, b) = (A.port(4100), B.port(4100));
    run(&p, &[(0, Segment { len: 10, ..a }), (0, Segment { ack: 11, ..b })]);
    for n in 0..2_000u32 {
        let [_, x, y, z] = n.to_be_bytes();
        let syn = Segment { flags: SYN, source: [10, 9 ^ x, y, z], ..A };
        p.test_run(RttSide::Ingress, &syn.frame(), T0 + i64::from(n) * 1_000).unwrap();
    }
    let mut open = vec![];
    p.open_flows(&mut |f| open.push(f));
    assert!(open.len() <= 64);
    assert!(open.iter().any(|f| f.flow.source_port == 4100 || f.flow.destination_port == 4100));
    let (_, ended) = poll(&mut p);
    assert!(ended.iter().all(|f| f.reason == EndReason::Evicted));
    assert_eq!(ended.len() as u64 + open.len() as u64, count(&p, "flows"));
    let groups = p.take_groups(0, 1).unwrap();
    assert_eq!((groups.len(), groups[0].clean.count), (1, 1), "a flood makes no group");

    let full = load(|c| (c.flows, c.groups, c.residence) = (131_072, 4_096, true));
    let bytes = full.memory_bytes();
    assert!((60 << 20..=64 << 20).contains(&bytes), "{bytes}");
}

/// Both CPUs run packets of the same flows: none is counted twice or lost, but for those
/// that could not have the lock, which are counted too.
#[test]
fn two_cpus_at_once_lose_no_packet() {
    if !privileged("two_cpus_at_once_lose_no_packet") {
        return;
    }
    const ROUNDS: u32 = 3_000;
    let p = load(|c| c.events = RttEvents::None);
    let together = Barrier::new(2);
    std::thread::scope(|scope| {
        for from in [A, B] {
            let (p, together) = (&p, &together);
            scope.spawn(move || {
                together.wait();
                for n in 0..ROUNDS {
                    let port = 5000 + (n % 3) as u16;
                    let segment = Segment { seq: n * 10, ack: n, len: 10, ..from.port(port) };
                    p.test_run(RttSide::Ingress, &segment.frame(), T0).unwrap();
                }
            });
        }
    });
    let mut packets = 0;
    p.open_flows(&mut |f| packets += f.forward.packets + f.backward.packets);
    assert_eq!(packets + count(&p, "contended"), u64::from(2 * ROUNDS));
    assert_eq!(count(&p, "packets"), u64::from(2 * ROUNDS));
    assert_eq!(count(&p, "flows"), 3);
}
