//! What stands below and around the packets that passive RTT times. The kernel's parser finds the
//! same in every frame as that of `sonde-wire`, in whole and in damaged ones.

use crate::common::privileged;
use crate::common::rtt::both::{Both, Random};
use crate::common::rtt::layers::*;
use crate::common::rtt::{A, B, MS, Segment, T0};
use sonde_bpf::{RttProtocols, RttSide, RttTestPacket};
use sonde_results::rtt::RttKind;

/// Request and answer, as transports: from host 1 to host 2, and back.
fn exchanges(v6: bool, id: u8) -> Vec<(u8, [Vec<u8>; 2], RttKind)> {
    let port = 4000 + u16::from(id);
    let tcp = |s: Segment| s.port(port).frame().split_off(34);
    let (protocol, kinds) = if v6 { (ICMP6, [128, 129]) } else { (ICMP, [8, 0]) };
    vec![
        (
            TCP,
            [
                tcp(Segment { seq: 1, ack: 1, len: 100, ..A }),
                tcp(Segment { seq: 1, ack: 101, ..B }),
            ],
            RttKind::TcpSequence,
        ),
        (
            UDP,
            [datagram(port, 53, &dns(false, id, b'a')), datagram(53, port, &dns(true, id, b'A'))],
            RttKind::Dns,
        ),
        (protocol, kinds.map(|kind| echo(kind, port, 7)), RttKind::IcmpEcho),
        (
            SCTP,
            [heartbeat(port, 9, 4, &[id; 40]), heartbeat(9, port, 5, &[id; 40])],
            RttKind::SctpHeartbeat,
        ),
    ]
}

type Extend<'a> = (u8, &'a dyn Fn(u8, &[u8]) -> Vec<u8>);

#[test]
fn one_program_all_headers() {
    if !privileged("one_program_all_headers") {
        return;
    }
    let mut both = Both::load(|ours, theirs| {
        (ours.flows, ours.groups) = (8_192, 4_000);
        (theirs.flows, theirs.groups) = (8_192, 4_000);
    });
    let mut id = 0;
    for (what, vlan, link) in LINKS {
        for is_v6 in [false, true] {
            id += 1;
            for (protocol, [request, answer], kind) in exchanges(is_v6, id) {
                let ip = if is_v6 { v6 } else { v4 };
                let frames = [(1, 2, request), (2, 1, answer)]
                    .map(|(from, to, payload)| ethernet(&link(&ip(from, to, protocol, &payload))));
                times(&mut both, &frames, kind, vlan, what);
            }
        }
    }
    let chain = |next: u8, payload: &[u8]| {
        let inner = extension(DESTINATION, next, 16, payload);
        let inner = extension(ROUTING, DESTINATION, 24, &inner);
        extension(HOP_BY_HOP, ROUTING, 8, &inner)
    };
    let extensions: [(&str, Extend); 7] = [
        ("hop by hop", (HOP_BY_HOP, &|next, payload| extension(HOP_BY_HOP, next, 8, payload))),
        ("routing", (ROUTING, &|next, payload| extension(ROUTING, next, 40, payload))),
        ("destination", (DESTINATION, &|next, payload| extension(DESTINATION, next, 8, payload))),
        ("all three", (HOP_BY_HOP, &chain)),
        ("authentication", (AH, &|next, payload| extension(AH, next, 24, payload))),
        ("mobility", (MOBILITY, &|next, payload| extension(MOBILITY, next, 16, payload))),
        ("an atomic fragment", (FRAGMENT, &|next, payload| fragment(next, 0, false, payload))),
    ];
    for (what, (first, extend)) in extensions {
        id += 1;
        for (protocol, [request, answer], kind) in exchanges(true, id) {
            let frames = [(1, 2, request), (2, 1, answer)].map(|(from, to, payload)| {
                ethernet(&v6(from, to, first, &extend(protocol, &payload)))
            });
            times(&mut both, &frames, kind, 0, what);
        }
    }
    id += 1;
    for (protocol, [request, answer], kind) in exchanges(false, id) {
        let frames = [(1, 2, request), (2, 1, answer)].map(|(from, to, payload)| {
            ethernet(&v4(from, to, AH, &extension(AH, protocol, 24, &payload)))
        });
        times(&mut both, &frames, kind, 0, "authentication in IPv4");
    }
    frames_without_ethernet(&mut both);
    fragments_of_ipv6(&mut both);
    for is_v6 in [false, true] {
        id += 1;
        first_fragments(&mut both, is_v6, id);
    }
    both.finish();
}

/// The answer makes one sample, of 7 ms, at whatever hook.
fn times(both: &mut Both, frames: &[Vec<u8>; 2], kind: RttKind, vlan: u16, what: &str) {
    for side in [RttSide::Ingress, RttSide::Egress, RttSide::Xdp] {
        let before = both.samples.len();
        // Hooks are distinguished as points, so that each has flows of its own.
        let point = side as u8;
        for (ms, frame) in [(0, &frames[0]), (7, &frames[1])] {
            let packet = RttTestPacket { frame, point, ..RttTestPacket::default() };
            both.packet_counted(side, &packet, T0 + ms * MS);
        }
        let new = &both.samples[before..];
        assert_eq!(new.len(), 1, "{what}, {kind:?}, {side:?}");
        assert_eq!((new[0].kind, new[0].rtt_ns), (kind, 7 * MS as u64), "{what}");
        assert_eq!((new[0].flow.vlan, new[0].flow.point), (vlan, point), "{what}");
        let source = new[0].flow.source.to_string();
        assert!(["10.0.0.2", "2001:db8::2"].contains(&&source[..]), "{what}: {source} answered");
    }
}

fn frames_without_ethernet(both: &mut Both) {
    for is_v6 in [false, true] {
        for (protocol, [request, answer], kind) in exchanges(is_v6, 100) {
            let ip = if is_v6 { v6 } else { v4 };
            let before = both.samples.len();
            for (ms, from, to, payload) in [(0, 1, 2, request), (9, 2, 1, answer)] {
                let bytes = ip(from, to, protocol, &payload).bytes;
                let packet =
                    RttTestPacket { frame: &bytes, point: 9, l3: true, ..RttTestPacket::default() };
                both.packet_counted(RttSide::Ingress, &packet, T0 + ms * MS);
            }
            let new = &both.samples[before..];
            assert_eq!((new.len(), new[0].kind, new[0].flow.point), (1, kind, 9));
        }
    }
    // What such an interface may carry besides.
    let packet = RttTestPacket { frame: &[0x20; 60], l3: true, ..RttTestPacket::default() };
    let before = both.count("not_ip");
    both.packet_counted(RttSide::Ingress, &packet, T0);
    assert_eq!(both.count("not_ip"), before + 1);
}

fn fragments_of_ipv6(both: &mut Both) {
    let segment = Segment { seq: 1, ack: 1, len: 100, ..A.port(4999) }.frame().split_off(34);
    let flows = both.count("flows");
    let mut send = |payload: &[u8]| {
        let frame = ethernet(&v6(1, 2, FRAGMENT, payload));
        let packet = RttTestPacket { frame: &frame, ..RttTestPacket::default() };
        both.packet_counted(RttSide::Ingress, &packet, T0);
    };
    send(&fragment(TCP, 8, true, &segment));
    send(&fragment(TCP, 1400, false, &segment));
    send(&fragment(TCP, 0, true, &segment));
    assert_eq!(both.count("fragments"), 2);
    assert_eq!(both.count("untracked_kind"), 1, "a first fragment makes no flow");
    assert_eq!(both.count("flows"), flows);
}

/// Of ICMP echo and DNS the first fragment has what matching needs.
fn first_fragments(both: &mut Both, is_v6: bool, id: u8) {
    for (protocol, mut pair, kind) in exchanges(is_v6, id) {
        if !matches!(kind, RttKind::Dns | RttKind::IcmpEcho) {
            continue;
        }
        if protocol == UDP {
            // The length of the whole datagram.
            pair.iter_mut().for_each(|datagram| datagram[4..6].copy_from_slice(&[0x0b, 0xb8]));
        }
        let [request, answer] = pair;
        let frames = [(1, 2, request), (2, 1, answer)].map(|(from, to, payload)| match is_v6 {
            true => ethernet(&v6(from, to, FRAGMENT, &fragment(protocol, 0, true, &payload))),
            false => {
                let mut frame = ethernet(&v4(from, to, protocol, &payload));
                frame[20] |= 0x20;
                frame
            }
        });
        times(both, &frames, kind, 0, "a first fragment");
    }
}

/// Frames of every make, damaged in every way: the parsers agree about each.
#[test]
fn both_parsers_agree_about_damaged_frames() {
    if !privileged("both_parsers_agree_about_damaged_frames") {
        return;
    }
    for (seed, tunnels, filtered) in
        [(1, false, false), (2, true, false), (3, true, false), (4, true, true)]
    {
        println!("seed {seed}, tunnels: {tunnels}, filtered: {filtered}");
        let mut both = Both::load(|ours, theirs| {
            ours.tunnels = tunnels;
            if filtered {
                ours.protocols = RttProtocols::TCP.with(RttProtocols::DNS);
                theirs.filter.protocols = RttProtocols::TCP.with(RttProtocols::DNS);
                ours.nets =
                    vec![("10.0.0.1".parse().unwrap(), 32), ("2001:db8::".parse().unwrap(), 47)];
                theirs.filter.nets = ours.nets.clone();
            }
        });
        let mut random = Random::new(seed);
        for n in 0..PACKETS {
            let frame = any_frame(&mut random, tunnels);
            give(&mut both, &mut random, &frame, T0 + i64::from(n) * MS / 4);
        }
        let few = if filtered { 20 } else { 100 };
        assert!(both.samples.len() > 2 * few, "too few samples: {}", both.samples.len());
        for name in ["malformed", "fragments", "not_ip", "untracked_kind"] {
            assert!(both.count(name) > few as u64, "too few {name}: {}", both.count(name));
        }
        assert_eq!(both.count("filtered") > 100, filtered, "{}", both.count("filtered"));
        both.finish();
    }
}

/// What the filter leaves out is none of what is measured, whatever its options are like.
#[test]
fn malformed_options_count_behind_the_filter_only() {
    if !privileged("malformed_options_count_behind_the_filter_only") {
        return;
    }
    let mut both = Both::load(|ours, theirs| {
        ours.ports = vec![4000];
        theirs.filter.ports = vec![4000];
    });
    for (port, counted) in [(4000, 1), (4001, 0)] {
        for side in [RttSide::Ingress, RttSide::Egress, RttSide::Xdp] {
            let mut frame = Segment { ts: Some((1, 0)), len: 10, ..A.port(port) }.frame();
            // A timestamp of three octets, of which it has ten.
            frame[54..58].copy_from_slice(&[8, 3, 0, 0]);
            frame[57..60].copy_from_slice(&[8, 0, 0]);
            let before = both.count("malformed");
            let packet = RttTestPacket { frame: &frame, ..RttTestPacket::default() };
            both.packet_counted(side, &packet, T0);
            assert_eq!(both.count("malformed"), before + counted, "port {port}, {side:?}");
            // What cannot be read at all cannot be filtered either.
            let packet = RttTestPacket { frame: &frame[..50], ..RttTestPacket::default() };
            both.packet_counted(side, &packet, T0);
            assert_eq!(both.count("malformed"), before + counted + 1, "port {port}, {side:?}");
        }
    }
    assert_eq!((both.count("filtered"), both.count("packets")), (3, 6));
    both.finish();
}

/// A request and its answer in each tunnel, over each IP.
#[test]
fn packets_in_tunnels_are_timed() {
    if !privileged("packets_in_tunnels_are_timed") {
        return;
    }
    let mut both = Both::load(|ours, theirs| {
        ours.tunnels = true;
        // Room for all of them at once.
        (ours.flows, theirs.flows) = (16_384, 16_384);
    });
    let mut id = 0;
    for (what, inside) in TUNNELS {
        for (outer_v6, inner_v6) in [(false, false), (false, true), (true, false), (true, true)] {
            id += 1;
            let (outer, ip) = (if outer_v6 { v6 } else { v4 }, if inner_v6 { v6 } else { v4 });
            for (protocol, [request, answer], kind) in exchanges(inner_v6, id) {
                let frames = [(1, 2, request), (2, 1, answer)].map(|(from, to, payload)| {
                    let (protocol, payload) = inside(&ip(from, to, protocol, &payload));
                    // Through the same two ends; a tag outside is that of the flow.
                    ethernet(&tagged(QINQ, 12, &outer(from + 6, to + 6, protocol, &payload)))
                });
                times(&mut both, &frames, kind, 12, what);
            }
        }
    }
    several_segments_at_once(&mut both);
    what_is_no_tunnel(&mut both);
    both.finish();
}

/// One frame of three, and an answer to all of them.
fn several_segments_at_once(both: &mut Both) {
    let (a, b) = (A.port(3999), B.port(3999));
    let before = both.samples.len();
    for (ms, ends, segment, segments) in [
        (0, [1, 2], Segment { len: 3000, ..a }, 3),
        (1, [2, 1], Segment { ack: 1001, ..b }, 1),
        (5, [2, 1], Segment { ack: 3001, ..b }, 1),
    ] {
        assert_eq!(both.samples.len(), before, "not all are acknowledged yet");
        let inner = v6(ends[0], ends[1], TCP, &segment.frame()[34..]);
        let outer = v4(7, 8, UDP, &datagram(50_000, 4789, &vxlan(&inner)));
        let frame = ethernet(&outer);
        let packet = RttTestPacket { frame: &frame, segments, ..RttTestPacket::default() };
        both.packet_counted(RttSide::Ingress, &packet, T0 + ms * MS);
    }
    assert_eq!(both.samples.len(), before + 1);
    assert_eq!(both.samples[before].rtt_ns, 5 * MS as u64);
}

/// The outer packet stands.
fn what_is_no_tunnel(both: &mut Both) {
    let ip = v4(1, 2, ICMP, &echo(8, 77, 1));
    let mut without_id = vxlan(&ip);
    without_id[0] = 0;
    let mut echo_of_gtp = gtpu(&[], &ip);
    echo_of_gtp[1] = 1;
    let mut control = geneve(0, &ip);
    control[1] = 0x80;
    let mut more = v4(7, 8, UDP, &datagram(50_000, 4789, &vxlan(&ip)));
    more.bytes[6] = 0x20;
    // Two levels: the second is a protocol of its own.
    let twice = gre(0, &v4(7, 8, GRE, &gre(0, &ip)));
    for (what, packet) in [
        ("GRE of version 1", v4(7, 8, GRE, &[&[0x20, 1][..], &gre(0, &ip)[2..]].concat())),
        ("GRE with routing", v4(7, 8, GRE, &gre(0x40, &ip))),
        ("VXLAN without identifier", v4(7, 8, UDP, &datagram(50_000, 4789, &without_id))),
        ("to another port", v4(7, 8, UDP, &datagram(4789, 4790, &vxlan(&ip)))),
        ("GTP-U without a packet", v4(7, 8, UDP, &datagram(2152, 2152, &echo_of_gtp))),
        ("too many extensions", v4(7, 8, UDP, &datagram(2152, 2152, &gtpu(&[1; 5], &ip)))),
        ("GENEVE for its ends", v4(7, 8, UDP, &datagram(50_000, 6081, &control))),
        ("a first fragment", more),
        ("two levels", v4(7, 8, GRE, &twice)),
    ] {
        let before = both.count("untracked_kind");
        let frame = ethernet(&packet);
        for side in [RttSide::Egress, RttSide::Xdp] {
            let packet = RttTestPacket { frame: &frame, ..RttTestPacket::default() };
            both.packet_counted(side, &packet, T0);
        }
        assert_eq!(both.count("untracked_kind"), before + 2, "{what}");
    }
    let before = both.count("not_ip");
    let arp = Layer { kind: 0x0806, bytes: vec![0; 28] };
    for inside in [gre(0, &arp), gre(0, &Layer { kind: BRIDGED, bytes: ethernet(&arp) })] {
        let frame = ethernet(&v4(7, 8, GRE, &inside));
        let packet = RttTestPacket { frame: &frame, ..RttTestPacket::default() };
        both.packet_counted(RttSide::Ingress, &packet, T0);
    }
    assert_eq!(both.count("not_ip"), before + 2);
}

/// At a hook that runs frames of this size.
fn give(both: &mut Both, random: &mut Random, frame: &[u8], now: i64) {
    // Linux runs no program of tc on less than an IP header, nor any on less than Ethernet's.
    let shortest = match frame.get(12..14) {
        Some([0x08, 0x00]) => 34,
        Some([0x86, 0xdd]) => 54,
        _ => 15,
    };
    if frame.len() >= 14 {
        let packet = RttTestPacket { frame, ..RttTestPacket::default() };
        let tc = frame.len() >= shortest && random.once_in(2);
        let side = if tc { RttSide::Ingress } else { RttSide::Xdp };
        both.packet_counted(side, &packet, now);
    }
}

fn any_frame(random: &mut Random, tunnels: bool) -> Vec<u8> {
    let mut layer = any_ip(random);
    if tunnels && !random.once_in(8) {
        layer = any_tunnel(random, &layer);
    }
    layer = match random.below(14) {
        0 | 1 => pppoe(&layer),
        2 | 3 => mpls(1 + random.below(18) as u8, &layer),
        4 => pseudowire(1, random.one_of(&[&[][..], &[0; 4]]), &layer),
        5 => snap(0, &layer),
        _ => layer,
    };
    for _ in 0..random.one_of(&[0, 0, 0, 1, 2, 3]) {
        let tpid = random.one_of(&[VLAN, QINQ, 0x9100]);
        layer = tagged(tpid, random.one_of(&[0, 5, 0xe005]), &layer);
    }
    let mut frame = ethernet(&layer);
    if random.once_in(3) {
        // Where the headers are.
        let at = 12 + random.below((frame.len() as u32 - 12).min(80)) as usize;
        frame[at] = match random.below(3) {
            0 => frame[at] ^ 1 << random.below(8),
            1 => random.below(16) as u8,
            _ => random.below(256) as u8,
        };
    }
    match random.below(6) {
        0 => frame.truncate(random.below(frame.len() as u32) as usize),
        1 => frame.resize(frame.len() + random.below(20) as usize, 0x55),
        _ => {}
    }
    frame
}

fn any_ip(random: &mut Random) -> Layer {
    let is_v6 = random.once_in(2);
    let all = exchanges(is_v6, random.below(3) as u8);
    let answer = random.once_in(2);
    let (protocol, pair, _) = &all[random.below(all.len() as u32) as usize];
    let (mut protocol, mut payload) = (*protocol, pair[usize::from(answer)].clone());
    match random.below(10) {
        0 => {
            // QUIC, and short datagrams at the ports of DNS.
            let first = random.one_of(&[0xc0, 0xd0, 0xe0, 0xf0, 0x40, 0x60, 0x80, 0]);
            let version = random.one_of(&[[0; 4], [0, 0, 0, 1], [0x6b, 0x33, 0x43, 0xcf], [9; 4]]);
            let mut quic = [&[first][..], &version, &[2, 1, 1, 3, 1, 1, 1]].concat();
            quic.truncate(random.below(13) as usize);
            let port = random.one_of(&[443, 53]);
            (protocol, payload) = (UDP, datagram(4000, port, &quic));
        }
        1 => protocol = random.one_of(&[ICMP, ICMP6, UDP, SCTP, TCP, 50, 59, 89]),
        2 => {
            // The options of a segment, in every order and length.
            let mut segment = Segment { ts: Some((1, 2)), sack: true, ..A }.frame().split_off(34);
            for _ in 0..random.below(4) {
                let at = 20 + random.below(24) as usize;
                segment[at] = random.below(12) as u8;
            }
            (protocol, payload) = (TCP, segment);
        }
        3 => {
            let port = random.one_of(&[(4000, 53), (53, 4000)]);
            let mut segment = Segment { len: 0, ..A }.frame().split_off(34);
            segment[..2].copy_from_slice(&u16::to_be_bytes(port.0));
            segment[2..4].copy_from_slice(&u16::to_be_bytes(port.1));
            segment.extend([0, random.below(30) as u8, 0, 5, random.one_of(&[0, 0x80]), 0]);
            segment.truncate(20 + random.below(8) as usize);
            (protocol, payload) = (TCP, segment);
        }
        _ => {}
    }
    let (from, to) = if answer { (2, 1) } else { (1, 2) };
    if !is_v6 {
        if random.once_in(10) {
            let size = 8 * (1 + random.below(4) as usize);
            (protocol, payload) = (AH, extension(AH, protocol, size, &payload));
        }
        let mut ip = v4(from, to, protocol, &payload);
        match random.below(12) {
            0 => ip.bytes[6..8].copy_from_slice(&random.one_of(&[[0x20, 0], [0x20, 1], [0, 9]])),
            1 => ip.bytes[0] = 0x40 | random.below(16) as u8,
            2 => ip.bytes[3] = random.below(80) as u8,
            _ => {}
        }
        return ip;
    }
    let mut first = protocol;
    for _ in 0..random.one_of(&[0, 0, 0, 1, 1, 2, 3, 9]) {
        let kind = random.one_of(&[HOP_BY_HOP, ROUTING, DESTINATION, AH, MOBILITY, 139, 140]);
        payload = match random.below(6) {
            0 => {
                let offset = random.one_of(&[0, 0, 8]);
                let whole = fragment(first, offset, random.once_in(2), &payload);
                first = FRAGMENT;
                whole
            }
            _ => {
                let whole = extension(kind, first, 8 * (1 + random.below(4) as usize), &payload);
                first = kind;
                whole
            }
        };
    }
    v6(from, to, first, &payload)
}

fn any_tunnel(random: &mut Random, inside: &Layer) -> Layer {
    let outer = if random.once_in(2) { v4 } else { v6 };
    let mut inside = inside.clone();
    if random.once_in(6) {
        inside = tagged(VLAN, 3, &inside);
    }
    let protocol = if inside.kind == IPV4 { 4 } else { 41 };
    match random.below(7) {
        0 => outer(7, 8, protocol, &inside.bytes),
        1 | 2 => {
            let flags = random.one_of(&[0, 0x20, 0x30, 0xb0, 0x80, 0x40]);
            if random.once_in(3) {
                inside = bridged(&inside);
            }
            outer(7, 8, GRE, &gre(flags, &inside))
        }
        3 => outer(7, 8, UDP, &datagram(50_000, 4789, &vxlan(&inside))),
        4 | 5 => {
            if random.once_in(2) {
                inside = bridged(&inside);
            }
            let options = random.below(4) as u8;
            outer(7, 8, UDP, &datagram(50_000, 6081, &geneve(options, &inside)))
        }
        _ => {
            let sizes = random.one_of(&[&[][..], &[1], &[2, 1], &[1, 1, 1, 1], &[1; 5]]);
            outer(7, 8, UDP, &datagram(2152, 2152, &gtpu(sizes, &inside)))
        }
    }
}

const PACKETS: u32 = 15_000;
