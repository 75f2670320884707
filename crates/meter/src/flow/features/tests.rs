use sonde_results::flow::{FlowSpread, FlowTcp, TunnelKind};
use sonde_wire::feature::SHAPE_INNER;

use super::*;

const MS: i64 = 1_000_000;
const FIN: u16 = 1;
const SYN: u16 = 2;
const RST: u16 = 4;
const ACK: u16 = 16;

/// A TCP segment over IPv4 without options.
fn segment(at_ns: i64, flags: u16, sequence: u32, payload: u32, window: u16) -> Feature {
    Feature {
        at_ns,
        protocol: PROTOCOL_TCP,
        tcp_flags: flags,
        sequence,
        headers: 10,
        ip_len: 40 + payload,
        window,
        ..Feature::default()
    }
}

/// The record of a flow of these packets: (reverse, packet).
fn record(config: Config, packets: &[(bool, Feature)]) -> FlowExtra {
    let mut features = Features::new(&config, 3);
    // A slot that was used before leaves nothing behind.
    let old = segment(1, SYN | ACK, 77, 300, 1);
    features.created(1, &old, &[], &Layers::default());
    features.packet(1, true, &old, &[], &Layers::default());
    features.ended(1);
    features.created(1, &packets[0].1, &[], &Layers::default());
    for (reverse, packet) in packets {
        features.packet(1, *reverse, packet, &[], &Layers::default());
    }
    *features.ended(1).unwrap()
}

fn tcp(packets: &[(bool, Feature)]) -> FlowTcp {
    let config = Config { tcp: true, ..Config::default() };
    record(config, packets).tcp.unwrap()
}

#[test]
fn nothing_asked_for_costs_nothing() {
    let mut features = Features::new(&Config::default(), 1 << 40);
    let packet = segment(0, SYN, 1, 0, 1);
    features.created(7, &packet, &[], &Layers::default());
    assert!(!features.packet(7, false, &packet, &[], &Layers::default()));
    assert_eq!(features.ended(7), None);
}

#[test]
fn the_first_packets_with_payload_are_listed() {
    let config = Config { packets: 3, ..Config::default() };
    let mut features = Features::new(&config, 2);
    let packets = [
        (false, segment(10, SYN, 0, 0, 1), true),
        (false, segment(20, ACK | 8, 1, 100, 1), true),
        (true, segment(50, ACK, 1, 70_000, 1), true),
        (true, segment(45, ACK, 1, 1, 1), false),
        (true, segment(99, ACK, 1, 1, 1), false),
    ];
    features.created(1, &packets[0].1, &[], &Layers::default());
    for (reverse, packet, wants) in &packets {
        assert_eq!(features.packet(1, *reverse, packet, &[], &Layers::default()), *wants);
    }
    let found = features.ended(1).unwrap().packets;
    let info = |reverse, length, after_ns, tcp_flags| FlowPacketInfo {
        reverse,
        length,
        after_ns,
        tcp_flags,
    };
    assert_eq!(found, [info(false, 100, 0, 24), info(true, 65_535, 30, 16), info(true, 1, 0, 16)]);
}

#[test]
fn spreads_are_of_packets_with_payload() {
    let config = Config { spread: true, ..Config::default() };
    let packets = [
        (false, segment(0, SYN, 0, 0, 1)),
        (false, segment(MS, ACK, 1, 20, 1)),
        (false, segment(51 * MS, ACK, 21, 2000, 1)),
    ];
    let found = record(config, &packets);
    let want = FlowSpread { lengths: [0, 1, 0, 0, 0, 0, 0, 1], gaps: [0, 0, 1, 0, 0, 0, 0, 0] };
    assert_eq!((found.forward_spread, found.reverse_spread), (Some(want), None));
}

#[test]
fn handshake_round_trips() {
    let syn = (false, segment(0, SYN, u32::MAX, 0, 9));
    let answer = (true, segment(30 * MS, SYN | ACK, 500, 0, 9));
    let ack = (false, segment(42 * MS, ACK, 0, 0, 7));
    let found = tcp(&[syn, answer, ack]);
    assert_eq!(found.handshake_server_ns, 30 * MS as u64);
    assert_eq!(found.handshake_client_ns, 12 * MS as u64);
    assert_eq!((found.window_min, found.reverse_window_min), (7, 0));
    // Which SYN was answered is not known; the rest is.
    let again = (false, segment(10 * MS, SYN, u32::MAX, 0, 9));
    let found = tcp(&[syn, again, answer, ack]);
    assert_eq!((found.handshake_server_ns, found.retransmitted), (0, 1));
    assert_eq!(found.handshake_client_ns, 12 * MS as u64);
    // Likewise the answer.
    let again = (true, segment(35 * MS, SYN | ACK, 500, 0, 9));
    let found = tcp(&[syn, answer, again, ack]);
    assert_eq!(found.handshake_server_ns, 30 * MS as u64);
    assert_eq!((found.handshake_client_ns, found.reverse_retransmitted), (0, 1));
    // The SYN was missed: the one who answers is the server all the same.
    let swapped = |(reverse, packet): (bool, Feature)| (!reverse, packet);
    let found = tcp(&[swapped(answer), swapped(ack)]);
    assert_eq!((found.handshake_server_ns, found.handshake_client_ns), (0, 12 * MS as u64));
}

#[test]
fn loss_is_distinguished_from_reordering_and_numbers_wrap() {
    for start in [1000, u32::MAX - 150] {
        let at = |i: u32| start.wrapping_add(100 * i);
        let data = |ms: i64, i: u32| (false, segment(ms * MS, ACK, at(i), 100, 50));
        let handshake = [
            (false, segment(0, SYN, start.wrapping_sub(1), 0, 9)),
            (true, segment(40 * MS, SYN | ACK, 0, 0, 9)),
            (false, segment(80 * MS, ACK, start, 0, 60)),
        ];
        let with = |packets: &[(bool, Feature)]| {
            let found = tcp(&[&handshake[..], packets].concat());
            (found.retransmitted, found.reordered)
        };
        assert_eq!(with(&[data(81, 0), data(82, 1), data(83, 2)]), (0, 0));
        // Overtaken: sooner than three quarters of the round trip.
        assert_eq!(with(&[data(81, 0), data(82, 2), data(83, 1), data(84, 3)]), (0, 1));
        // Sent again: later.
        assert_eq!(with(&[data(81, 0), data(82, 2), data(150, 1), data(151, 3)]), (1, 0));
        // Seen before, or in part.
        assert_eq!(with(&[data(81, 0), data(82, 1), data(83, 0)]), (1, 0));
        let more = (false, segment(82 * MS, ACK, at(0), 150, 50));
        assert_eq!(with(&[data(81, 0), more]), (1, 0));
        // A keepalive, a FIN, an answer to nothing.
        let keepalive = (false, segment(90 * MS, ACK, at(1).wrapping_sub(1), 1, 50));
        let fin = (false, segment(91 * MS, ACK | FIN, at(1), 0, 50));
        assert_eq!(with(&[data(81, 0), keepalive, fin]), (0, 0));
        assert_eq!(with(&[data(81, 0), fin, fin]), (1, 0));
    }
}

#[test]
fn windows_of_syn_and_rst_do_not_count() {
    let found = tcp(&[
        (false, segment(0, SYN, 0, 0, 1)),
        (false, segment(1, ACK, 1, 0, 500)),
        (false, segment(2, ACK, 1, 0, 400)),
        (true, segment(3, ACK, 1, 0, 0)),
        (false, segment(4, RST, 1, 0, 0)),
    ]);
    assert_eq!((found.window_min, found.reverse_window_min), (400, 0));
}

#[test]
fn fragments_and_other_protocols_have_no_sequence() {
    let fragment = Feature { shape: SHAPE_FRAGMENT, ..segment(0, ACK, 1, 100, 3) };
    let udp = Feature { protocol: 17, ..segment(0, 0, 0, 100, 0) };
    let config = Config { tcp: true, link: true, ..Config::default() };
    for packet in [fragment, udp] {
        assert_eq!(record(config, &[(false, packet), (false, packet)]).tcp, None);
    }
}

/// Reads a frame whose network header is where `layers` says.
fn link(frame: &[u8], layers: Layers, shape: u8) -> sonde_results::flow::FlowLink {
    let config = Config { link: true, ..Config::default() };
    let mut features = Features::new(&config, 1);
    let packet = Feature { shape, ..Feature::default() };
    features.created(0, &packet, frame, &layers);
    assert!(!features.packet(0, false, &packet, frame, &layers), "the first packet is enough");
    features.ended(0).unwrap().link.unwrap()
}

const MACS: [u8; 12] = [2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4];

#[test]
fn link_layer() {
    let mut frame = MACS.to_vec();
    frame.extend([0x88, 0xA8, 0, 7, 0x81, 0, 0x60, 9, 0x88, 0x47]);
    // Label 16, class 5; label 17, class 0, bottom.
    frame.extend([0, 1, 0x0A, 64, 0, 1, 0x11, 64, 0x45]);
    let found = link(&frame, Layers { ip: 30, mpls: 22, ..Layers::default() }, 0);
    assert_eq!((found.source_mac, found.destination_mac), ([4; 6], [2; 6]));
    assert_eq!((found.inner_vlan, found.tunnel), (9, None));
    assert_eq!(found.mpls, [16 << 4 | 5 << 1, 17 << 4 | 1]);
    // A stack without end is read up to the third entry, or what was captured.
    let deep = [&MACS[..], &[0x88, 0x47], &[0; 40]].concat();
    let layers = Layers { ip: 50, mpls: 14, ..Layers::default() };
    assert_eq!(link(&deep, layers, 0).mpls, [0; 3]);
    assert_eq!(link(&deep[..21], layers, 0).mpls, [0]);
    // Raw IP and cooked captures have no two MAC addresses.
    for ip in [0, 16, 20] {
        assert_eq!(link(&[7; 60], Layers { ip, ..Layers::default() }, 0), Default::default());
    }
    // Only headers were passed.
    assert_eq!(link(&[], Layers::default(), 0), Default::default());
}

#[test]
fn tunnels() {
    let ipv4 = |protocol: u8| {
        let mut outer = [0; 20];
        outer[0] = 0x45;
        outer[9] = protocol;
        outer[12..16].copy_from_slice(&[10, 0, 0, 1]);
        outer[16..20].copy_from_slice(&[10, 0, 0, 2]);
        outer.to_vec()
    };
    let udp = |port: u16, tail: &[u8]| {
        let mut bytes = ipv4(17);
        bytes.extend([0, 9]);
        bytes.extend(port.to_be_bytes());
        bytes.extend([0, 0, 0, 0]);
        bytes.extend(tail);
        bytes
    };
    let mut ipv6 = vec![0; 40];
    ipv6[0] = 0x60;
    ipv6[6] = 60;
    ipv6[39] = 1;
    // A destination option header, then GRE without a key.
    ipv6.extend([47, 0, 1, 4, 0, 0, 0, 0, 0, 0, 8, 0]);
    let gre = [ipv4(47), vec![0x20, 0, 8, 0, 1, 2, 3, 4]].concat();
    let authenticated = [ipv4(51), vec![47, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1], gre[20..].to_vec()];
    let gtpu = [0x30, 255, 0, 20, 1, 2, 3, 4];
    for (outer, kind, id) in [
        (ipv4(4), TunnelKind::Ip, 0),
        (ipv4(41), TunnelKind::Ip, 0),
        (gre, TunnelKind::Gre, 0x0102_0304),
        (authenticated.concat(), TunnelKind::Gre, 0x0102_0304),
        (udp(4789, &[8, 0, 0, 0, 0, 1, 0, 0]), TunnelKind::Vxlan, 256),
        (udp(2152, &gtpu), TunnelKind::GtpU, 0x0102_0304),
        (udp(6081, &[0, 0, 0x65, 0x58, 0, 2, 1, 0]), TunnelKind::Geneve, 513),
        (ipv6, TunnelKind::Gre, 0),
    ] {
        let frame = [&MACS[..], &[8, 0], &outer].concat();
        let layers = Layers { ip: 80, outer_ip: 14, ..Layers::default() };
        let found = link(&frame, layers, SHAPE_INNER);
        assert_eq!(found.source_mac, [4; 6]);
        let tunnel = found.tunnel.expect("a tunnel");
        assert_eq!((tunnel.kind, tunnel.id), (kind, id), "{outer:x?}");
        let v6 = outer[0] >> 4 == 6;
        let source = if v6 { "::" } else { "10.0.0.1" };
        assert_eq!(tunnel.outer_source, source.parse::<std::net::IpAddr>().unwrap());
        // The same as raw IP; nothing without the inner header; whatever is cut off is none.
        assert_eq!(link(&outer, Layers { ip: 66, ..layers }, 0).tunnel, None);
        let raw = Layers { ip: 68, ..Layers::default() };
        assert_eq!(link(&outer, raw, SHAPE_INNER).tunnel, Some(tunnel));
        for len in 0..20 {
            assert_eq!(link(&outer[..len], raw, SHAPE_INNER).tunnel, None);
        }
    }
}

mod arbitrary {
    use super::*;
    use proptest::prelude::*;

    fn feature() -> impl Strategy<Value = Feature> {
        (any::<i64>(), any::<[u32; 2]>(), any::<[u16; 2]>(), any::<[u8; 3]>()).prop_map(
            |(at_ns, [ip_len, sequence], [tcp_flags, window], [protocol, shape, headers])| {
                Feature {
                    at_ns,
                    ip_len,
                    sequence,
                    tcp_flags,
                    window,
                    // Half of them TCP.
                    protocol: if protocol < 128 { PROTOCOL_TCP } else { protocol },
                    shape,
                    headers,
                    ..Feature::default()
                }
            },
        )
    }

    proptest! {
        /// Whatever the packets say and wherever the layers are said to lie: no panic, and
        /// no more packets than were asked for.
        #[test]
        fn anything(
            packets in proptest::collection::vec(
                (any::<bool>(), feature(), any::<[u16; 6]>(), any::<Vec<u8>>()), 1..40),
            first in 0u8..20,
        ) {
            let config = Config { link: true, packets: first, spread: true, tcp: true, apps: true };
            let mut features = Features::new(&config, 1);
            for (i, (reverse, packet, at, frame)) in packets.iter().enumerate() {
                let [ip, mpls, outer_ip, transport, payload, end] = at.map(|at| at % 128);
                let layers = Layers { ip, mpls, outer_ip, transport, payload, end };
                if i == 0 {
                    features.created(0, packet, frame, &layers);
                }
                features.packet(0, *reverse, packet, frame, &layers);
            }
            let found = features.ended(0).expect("the link layer at least");
            prop_assert!(found.packets.len() <= usize::from(first));
            let counted = |spread: Option<FlowSpread>| {
                spread.map_or(0, |spread| spread.lengths.iter().sum::<u32>())
            };
            let with_payload = packets.iter().filter(|p| p.1.payload_len() > 0).count();
            let counts = counted(found.forward_spread) + counted(found.reverse_spread);
            prop_assert_eq!(counts as usize, with_payload);
        }
    }
}
