//! The fuzzers' corpora (fuzz/corpus) through the fuzzers' own functions, and each input
//! again cut short and with single octets changed.

use std::fs;
use std::net::IpAddr;

use sonde_wire::flow::{self, Detail, FlowPacket, LinkType, Quic};
use sonde_wire::{Error, capture, icmp, ipv4, ipv6, parse_udp, tcp};

#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

use replay::{corpus, replay};

#[test]
fn frames() {
    replay("frame", MOST, fuzz::frame);
}

#[test]
fn flows() {
    replay("flow", MOST, fuzz::flow);
}

#[test]
fn features() {
    replay("feature", MOST, fuzz::feature);
}

#[test]
fn stamp_packets() {
    replay("stamp", MOST, fuzz::stamp);
}

#[test]
fn ipfix_files() {
    replay("ipfix", MOST, fuzz::ipfix);
}

#[test]
fn pcap_files() {
    replay("pcap", MOST, fuzz::pcap);
}

#[test]
fn pcapng_files() {
    replay("pcapng", MOST, fuzz::pcapng);
}

/// The frames were written by scapy, checksums included: another's word for what they are.
#[test]
fn frames_are_what_scapy_says() {
    let read = |name: &str| fs::read(corpus("frame").join(name)).unwrap();
    for (name, tags, is_ipv6) in [
        ("ipv4", 0, false),
        ("ipv4_padded", 0, false),
        ("ipv4_options", 1, false),
        ("ipv6", 0, true),
        ("ipv6_qinq_extensions", 2, true),
    ] {
        let frame = read(name);
        let found = parse_udp(&frame).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((found.source_port, found.destination_port), (4000, 862), "{name}");
        assert_eq!((found.vlan_count, found.is_ipv6), (tags, is_ipv6), "{name}");
        // With a routing header the checksum is over the final destination (RFC 8200
        // section 8.1), which is not the one in the IPv6 header.
        if name != "ipv6_qinq_extensions" {
            assert!(sonde_wire::parse::verify_udp(&frame, &found), "{name}");
        }
        let len = if name == "ipv4_padded" { 1 } else { 100 };
        assert_eq!(found.payload.len(), len, "{name}");
    }
    for (name, error) in [
        ("ipv4_fragment", Error::Fragment),
        ("ipv6_fragment", Error::Fragment),
        ("icmp_echo", Error::Protocol),
        ("icmpv6_too_big", Error::Protocol),
        ("mpls", Error::EtherType),
    ] {
        assert_eq!(parse_udp(&read(name)), Err(error), "{name}");
    }
    let frame = read("icmp_unreachable");
    let packet = ipv4::Packet::new_checked(&frame[14..]).unwrap();
    let message = icmp::Packet::new_checked(packet.payload()).unwrap();
    let repr = icmp::Repr::parse(&message, icmp::Version::V4).unwrap();
    let icmp::Repr::Error { kind: 3, code: 3, quoted, .. } = repr else { panic!("{repr:?}") };
    let quoted = icmp::QuotedUdp::parse(quoted, icmp::Version::V4).unwrap();
    assert_eq!((quoted.source_port, quoted.destination_port), (4000, 862));
    let frame = read("icmpv6_too_big");
    let packet = ipv6::Packet::new_checked(&frame[14..]).unwrap();
    let version = icmp::Version::V6 { source: packet.source(), destination: packet.destination() };
    let message = icmp::Packet::new_checked(packet.payload()).unwrap();
    let repr = icmp::Repr::parse(&message, version).unwrap();
    let icmp::Repr::Error { kind: 2, rest: 1280, quoted, .. } = repr else { panic!("{repr:?}") };
    assert_eq!(icmp::QuotedUdp::parse(quoted, version).unwrap().source_port, 4000);
}

/// Likewise the packets of flows: an independent hand wrote every header in them.
#[test]
fn flows_are_what_scapy_says() {
    let read = |name: &str, link, tunnels| {
        let frame = fs::read(corpus("flow").join(name)).unwrap();
        flow::parse(&frame, link, tunnels)
            .map(|found| (frame[found.payload.clone()].to_vec(), found))
    };
    let found =
        |name: &str, link| read(name, link, true).unwrap_or_else(|e| panic!("{name}: {e}")).1;
    // One segment of 20 octets, however wrapped.
    let (payload, plain) = read("tcp4_timestamps", LinkType::Ethernet, false).unwrap();
    assert_eq!(payload, [b'x'; 20]);
    let Detail::Tcp(tcp) = plain.detail else { panic!("{plain:?}") };
    let want = flow::Tcp {
        seq: u32::MAX - 5,
        ack: 9,
        flags: tcp::ACK | tcp::PSH,
        window: 501,
        payload_len: 20,
        timestamps: Some((u32::MAX, 7)),
        ..flow::Tcp::default()
    };
    assert_eq!((tcp, plain.ip_len, plain.tos, plain.vlan), (want, 72, 0xBA, 0));
    for (name, link, vlan) in [
        ("tcp4_qinq", LinkType::Ethernet, 100),
        ("pppoe", LinkType::Ethernet, 0),
        ("mpls", LinkType::Ethernet, 0),
        ("gre_key", LinkType::Ethernet, 0),
        ("gre_bridged", LinkType::Ethernet, 0),
        ("ipip", LinkType::Ethernet, 0),
        ("vxlan", LinkType::Ethernet, 0),
        ("gtpu", LinkType::Ethernet, 0),
        ("cooked", LinkType::LinuxCooked, 0),
        ("cooked2", LinkType::LinuxCooked2, 0),
        ("raw", LinkType::RawIp, 0),
    ] {
        let (payload, found) = read(name, link, true).unwrap_or_else(|e| panic!("{name}: {e}"));
        let range = found.payload.clone();
        assert_eq!(payload, [b'x'; 20], "{name}");
        assert_eq!(found, FlowPacket { payload: range, vlan, ..plain.clone() }, "{name}");
    }
    // In UDP the first bit alone rules QUIC's short header out (RFC 9287): whether it is one,
    // the flow's long headers say.
    let short = |spin| Detail::Quic(Quic::Short { spin });
    for (name, protocol, detail) in [
        ("gre_key", 47, Detail::Other),
        ("gre_bridged", 47, Detail::Other),
        ("ipip", 4, Detail::Other),
        ("vxlan", 17, short(false)),
        ("gtpu", 17, short(true)),
    ] {
        let (_, outer) = read(name, LinkType::Ethernet, false).unwrap();
        assert_eq!((outer.protocol, outer.detail), (protocol, detail), "{name}");
    }
    let (payload, _) = read("tcp4_cut", LinkType::Ethernet, false).unwrap();
    assert_eq!(payload, b"xxxx");
    assert_eq!(found("tcp4_cut", LinkType::Ethernet).detail, Detail::Tcp(want));
    for (name, timestamps, sack, payload_len) in [
        ("tcp4_padded", None, false, 0),
        ("tcp4_syn", Some((5, 0)), false, 0),
        ("tcp6_sack", Some((u32::MAX, 7)), true, 0),
        ("tcp4_odd_options", Some((1, 2)), false, 20),
        ("tcp6_extensions", Some((u32::MAX, 7)), false, 20),
        ("tcp6_atomic_fragment", Some((u32::MAX, 7)), false, 20),
        ("tcp6_first_fragment", Some((u32::MAX, 7)), false, 24),
    ] {
        let found = found(name, LinkType::Ethernet);
        let Detail::Tcp(tcp) = found.detail else { panic!("{name}: {found:?}") };
        assert_eq!(
            (tcp.timestamps, tcp.sack, tcp.payload_len, tcp.bad_options),
            (timestamps, sack, payload_len, false),
            "{name}"
        );
        assert_eq!(found.fragment, name == "tcp6_first_fragment", "{name}");
    }
    let next = read("tcp4_next_fragment", LinkType::Ethernet, false);
    assert_eq!(next.err(), Some(Error::Fragment));
    for (name, quic) in [
        ("quic_initial", Quic::Initial),
        ("quic_initial_v2", Quic::Initial),
        ("quic_handshake", Quic::Handshake),
        ("quic_retry", Quic::Restart),
        ("quic_negotiation", Quic::Restart),
        ("quic_short_spin", Quic::Short { spin: true }),
    ] {
        assert_eq!(found(name, LinkType::Ethernet).detail, Detail::Quic(quic), "{name}");
    }
    for (name, reply) in [("icmp_echo", false), ("icmpv6_echo_reply", true)] {
        let found = found(name, LinkType::Ethernet);
        assert_eq!(found.detail, Detail::Echo { reply, sequence: 9 }, "{name}");
        assert_eq!((found.source_port, found.destination_port), (0x1234, 0x1234));
    }
    let answers = [
        ["dns_query", "dns_response"].map(|name| match found(name, LinkType::Ethernet).detail {
            Detail::Dns { response, id } => (response, id),
            other => panic!("{name}: {other:?}"),
        }),
        ["sctp_heartbeat", "sctp_heartbeat_ack"].map(|name| {
            match found(name, LinkType::Ethernet).detail {
                Detail::Heartbeat { ack, id } => (ack, id),
                other => panic!("{name}: {other:?}"),
            }
        }),
    ];
    for [(asked, question), (answered, answer)] in answers {
        assert_eq!((asked, answered, question), (false, true, answer));
    }
    let Detail::Tcp(tcp) = found("dns_tcp", LinkType::Ethernet).detail else { panic!("TCP") };
    assert_eq!(tcp.dns, Some((false, 0xABCD)));
}

/// The checksums of the segments are scapy's.
#[test]
fn tcp_checksums_are_what_scapy_says() {
    for name in ["tcp4_timestamps", "tcp4_syn", "tcp4_odd_options", "dns_tcp", "tcp6_sack"] {
        let frame = fs::read(corpus("flow").join(name)).unwrap();
        let (source, destination, segment): (IpAddr, IpAddr, _) =
            if let Ok(packet) = ipv4::Packet::new_checked(&frame[14..]) {
                (packet.source().into(), packet.destination().into(), packet.payload().to_vec())
            } else {
                let packet = ipv6::Packet::new_checked(&frame[14..]).unwrap();
                (packet.source().into(), packet.destination().into(), packet.payload().to_vec())
            };
        let segment = tcp::Packet::new_checked(segment).unwrap();
        assert!(segment.verify_checksum(source, destination), "{name}");
    }
}

/// The same two packets stand in every file of the two formats, one second apart.
#[test]
fn capture_files_hold_their_packets() {
    let packets =
        ["ipv4_padded", "icmp_echo"].map(|name| fs::read(corpus("frame").join(name)).unwrap());
    for (format, name, nanos) in [
        ("pcap", "micros_little", 7000),
        ("pcap", "micros_big", 7000),
        ("pcap", "nanos_little", 7),
        ("pcap", "nanos_big", 7),
        ("pcapng", "little_nanos", -3_600_000_000_000),
        ("pcapng", "big_micros", -3_600_000_000_000),
    ] {
        let file = fs::read(corpus(format).join(name)).unwrap();
        let records: Vec<_> =
            capture::Reader::new(&file).unwrap().map(|r| r.unwrap()).take(2).collect();
        for (i, (record, packet)) in records.iter().zip(&packets).enumerate() {
            assert_eq!(record.data, packet, "{name}");
            let at = (1_767_225_600 + i as i64) * 1_000_000_000 + nanos;
            assert_eq!(record.unix_nanos, at, "{name}");
        }
        assert_eq!(records.len(), 2, "{name}");
    }
}

/// At so many octets an input is changed: more than most have.
const MOST: usize = 2048;
