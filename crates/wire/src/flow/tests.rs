//! Frames are built with the formats' own `Repr`s, one layer after the other.

use super::*;
use crate::ethernet::{Tag, Tags};
use crate::tcp::{ACK, SYN};
use crate::{dns, ipv4, ipv6, tcp};
use proptest::prelude::*;

extern crate std;
use std::vec::Vec;

/// An Ethernet header with these tags.
fn link(tags: &[Tag], ethertype: u16) -> Vec<u8> {
    let tags = Tags::new(tags).unwrap();
    let repr = ethernet::Repr { destination: [2; 6], source: [4; 6], tags, ethertype };
    let mut bytes = std::vec![0; repr.buffer_len()];
    repr.emit(&mut bytes).unwrap();
    bytes
}

/// An IPv4 packet from 192.0.2.1 to 198.51.100.7.
fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let repr = ipv4::Repr {
        source: [192, 0, 2, 1].into(),
        destination: [198, 51, 100, 7].into(),
        protocol,
        tos: 0xBA,
        ttl: 64,
        identification: 1,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        options: ipv4::Options::NONE,
        payload_len: payload.len(),
    };
    let mut bytes = std::vec![0; repr.buffer_len()];
    repr.emit(&mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

/// An IPv6 packet from 2001:db8::1 to 2001:db8::2.
fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let repr = ipv6::Repr {
        source: "2001:db8::1".parse().unwrap(),
        destination: "2001:db8::2".parse().unwrap(),
        next_header,
        hop_limit: 64,
        traffic_class: 0xBA,
        flow_label: 0xF_FFFF,
        payload_len: payload.len(),
    };
    let mut bytes = std::vec![0; repr.buffer_len()];
    repr.emit(&mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

fn ip(is_v6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    if is_v6 { v6(protocol, payload) } else { v4(protocol, payload) }
}

/// Port 50000 to 443, timestamps 1 and 2.
fn segment(payload: &[u8]) -> Vec<u8> {
    let repr = tcp::Repr {
        source_port: 50_000,
        destination_port: 443,
        seq: u32::MAX,
        ack: 7,
        flags: ACK,
        window: 500,
        options: tcp::Options { timestamps: Some((1, 2)), ..tcp::Options::default() },
        ..tcp::Repr::default()
    };
    let mut bytes = std::vec![0; repr.buffer_len()];
    repr.emit(&mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

fn datagram(source_port: u16, destination_port: u16, payload: &[u8]) -> Vec<u8> {
    let repr = udp::Repr { source_port, destination_port, payload_len: payload.len() };
    let mut bytes = std::vec![0; repr.buffer_len()];
    repr.emit(&mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

/// What `parse` finds in an IPv4 packet without a link-layer header.
fn raw(protocol: u8, payload: &[u8]) -> FlowPacket {
    parse(&v4(protocol, payload), Link::RawIp, false).unwrap()
}

fn raw_udp(source_port: u16, destination_port: u16, payload: &[u8]) -> Detail {
    raw(PROTOCOL_UDP, &datagram(source_port, destination_port, payload)).detail
}

const IP: [u16; 2] = [ETHERTYPE_IPV4, ETHERTYPE_IPV6];

#[test]
fn a_segment_under_every_link_and_tag() {
    let qinq = [Tag { tpid: 0x88A8, tci: 0xE064 }, Tag { tpid: 0x8100, tci: 0x2005 }];
    for is_v6 in [false, true] {
        let packet = ip(is_v6, PROTOCOL_TCP, &segment(b"data"));
        let ethertype = IP[usize::from(is_v6)];
        let mut cooked = std::vec![0; 16];
        cooked[14..].copy_from_slice(&ethertype.to_be_bytes());
        let mut cooked_tagged = std::vec![0; 16];
        cooked_tagged[14..].copy_from_slice(&[0x81, 0]);
        cooked_tagged.extend([0xE0, 0x64]);
        cooked_tagged.extend(ethertype.to_be_bytes());
        let mut cooked2 = std::vec![0; 20];
        cooked2[..2].copy_from_slice(&ethertype.to_be_bytes());
        for (header, how, vlan) in [
            (link(&[], ethertype), Link::Ethernet, 0),
            (link(&qinq[..1], ethertype), Link::Ethernet, 100),
            (link(&qinq, ethertype), Link::Ethernet, 100),
            (Vec::new(), Link::RawIp, 0),
            (cooked, Link::LinuxCooked, 0),
            (cooked_tagged, Link::LinuxCooked, 100),
            (cooked2, Link::LinuxCooked2, 0),
        ] {
            let mut frame = header.clone();
            frame.extend(&packet);
            let whole = frame.len();
            frame.extend([0x5A; 30]);
            let found = parse(&frame, how, true).unwrap();
            assert_eq!(found.payload, whole - 4..whole);
            let mapped = |last: [u8; 4]| [&[0; 10][..], &[0xFF; 2], &last].concat();
            if is_v6 {
                assert_eq!(found.source, packet[8..24]);
                assert_eq!(found.destination, packet[24..40]);
            } else {
                assert_eq!(found.source, *mapped([192, 0, 2, 1]));
                assert_eq!(found.destination, *mapped([198, 51, 100, 7]));
            }
            assert_eq!((found.source_port, found.destination_port), (50_000, 443));
            assert_eq!((found.vlan, found.protocol, found.tos), (vlan, 6, 0xBA));
            assert_eq!(found.ip_len as usize, packet.len());
            assert!(!found.fragment);
            let want = Tcp {
                seq: u32::MAX,
                ack: 7,
                flags: ACK,
                window: 500,
                payload_len: 4,
                timestamps: Some((1, 2)),
                ..Tcp::default()
            };
            assert_eq!(found.detail, Detail::Tcp(want));
            // A capture that ends in the payload loses nothing but payload; one that ends
            // in the headers has no packet.
            for len in 0..whole {
                let cut = parse(&frame[..len], how, true);
                if len < whole - 4 {
                    assert_eq!(cut, Err(Error::Truncated), "{len} {how:?}");
                } else {
                    assert_eq!(cut, Ok(FlowPacket { payload: whole - 4..len, ..found.clone() }));
                }
            }
        }
    }
}

#[test]
fn lengths_that_contradict_their_headers() {
    let good = v4(PROTOCOL_TCP, &segment(b"data"));
    let with = |at: usize, value: u8| {
        let mut packet = good.clone();
        packet[at] = value;
        parse(&packet, Link::RawIp, false).map(|p| p.payload)
    };
    assert_eq!(with(0, 0x44), Err(Error::Length));
    assert_eq!(with(3, 19), Err(Error::Length));
    assert_eq!(with(3, 39), Err(Error::Length));
    assert_eq!(with(3, 51), Err(Error::Length));
    assert_eq!(with(3, 52), Ok(52..52));
    assert_eq!(with(20 + 12, 0x40), Err(Error::Length));
    assert_eq!(with(20 + 12, 0xF0), Err(Error::Length));
    assert_eq!(with(0, 0x55), Err(Error::EtherType));
    for (stated, error) in [(7, Some(Error::Length)), (13, Some(Error::Length)), (8, None)] {
        let mut packet = v4(PROTOCOL_UDP, &datagram(1, 2, b"data"));
        packet[25] = stated;
        assert_eq!(parse(&packet, Link::RawIp, false).err(), error);
    }
    for protocol in [PROTOCOL_UDP, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_SCTP] {
        let packet = v4(protocol, &[0; 7]);
        assert_eq!(parse(&packet, Link::RawIp, false), Err(Error::Length), "{protocol}");
    }
    let mut frame = link(&[], ETHERTYPE_IPV6);
    frame.extend(&good);
    frame.extend([0; 40]);
    assert_eq!(parse(&frame, Link::Ethernet, false), Err(Error::Version));
    frame[12] = 0x99;
    assert_eq!(parse(&frame, Link::Ethernet, false), Err(Error::EtherType));
    let tag = [0x81, 0, 0, 1];
    frame.splice(12..12, [tag, tag, tag].concat());
    assert_eq!(parse(&frame, Link::Ethernet, false), Err(Error::VlanDepth));
}

#[test]
fn malformed_options_are_not_used() {
    let mut bytes = segment(b"data");
    bytes[23] = 0;
    let Detail::Tcp(found) = raw(PROTOCOL_TCP, &bytes).detail else { panic!("TCP") };
    assert!(found.bad_options && found.timestamps.is_none());
    assert_eq!((found.seq, found.payload_len), (u32::MAX, 4));
}

#[test]
fn sack_blocks_and_a_syn() {
    let repr = tcp::Repr {
        flags: SYN,
        options: tcp::Options {
            sack: tcp::SackBlocks::new(&[(1, 2)]).unwrap(),
            timestamps: Some((0, 0)),
            ..tcp::Options::default()
        },
        ..tcp::Repr::default()
    };
    let mut bytes = std::vec![0; repr.buffer_len()];
    repr.emit(&mut bytes).unwrap();
    let Detail::Tcp(found) = raw(PROTOCOL_TCP, &bytes).detail else { panic!("TCP") };
    assert!(found.sack && found.flags == SYN);
    assert_eq!(found.timestamps, Some((0, 0)));
}

#[test]
fn fragments() {
    // Of IPv4: Don't Fragment and the reserved bit do not count.
    let mut packet = v4(PROTOCOL_UDP, &datagram(50_000, 443, b"data"));
    packet[6] = 0xC0;
    assert!(!parse(&packet, Link::RawIp, false).unwrap().fragment);
    packet[6] = 0x20;
    // Of a first one the UDP length is that of all.
    packet[25] = 200;
    let found = parse(&packet, Link::RawIp, true).unwrap();
    assert!(found.fragment);
    assert_eq!((found.source_port, found.payload), (50_000, 28..32));
    for field in [[0x20, 1], [0, 1], [0x1F, 0xFF]] {
        packet[6..8].copy_from_slice(&field);
        assert_eq!(parse(&packet, Link::RawIp, false), Err(Error::Fragment));
    }
    // Of IPv6.
    for (field, want) in [
        (0u16, Ok(false)),
        (6, Ok(false)),
        (1, Ok(true)),
        (8, Err(Error::Fragment)),
        (9, Err(Error::Fragment)),
    ] {
        let mut payload = [PROTOCOL_TCP, 0, 0, 0, 0, 0, 0, 1].to_vec();
        payload[2..4].copy_from_slice(&field.to_be_bytes());
        payload.extend(segment(b"data"));
        let found = parse(&v6(ipv6::FRAGMENT, &payload), Link::RawIp, false);
        assert_eq!(found.map(|p| p.fragment), want);
    }
}

#[test]
fn ipv6_extension_headers() {
    let chain = |count: usize, last: u8| {
        let mut payload = Vec::new();
        for i in 1..=count {
            let next = if i == count { last } else { ipv6::DESTINATION };
            payload.extend([next, 0, 1, 4, 0, 0, 0, 0]);
        }
        payload.extend(segment(b"data"));
        v6(ipv6::HOP_BY_HOP, &payload)
    };
    for count in [1, 8] {
        let packet = chain(count, PROTOCOL_TCP);
        let found = parse(&packet, Link::RawIp, false).unwrap();
        assert_eq!((found.protocol, found.destination_port), (6, 443));
        assert_eq!(found.payload, packet.len() - 4..packet.len());
    }
    assert_eq!(parse(&chain(9, 6), Link::RawIp, false), Err(Error::ExtensionDepth));
    let found = parse(&chain(1, ipv6::ESP), Link::RawIp, false).unwrap();
    assert_eq!((found.protocol, found.source_port, found.detail), (50, 0, Detail::Other));
    // The chain may not go on in the padding.
    let mut packet = chain(1, PROTOCOL_TCP);
    packet[5] = 7;
    assert_eq!(parse(&packet, Link::RawIp, false), Err(Error::Truncated));
}

#[test]
fn echo() {
    for (is_v6, protocol, request, reply) in
        [(false, PROTOCOL_ICMP, 8, 0), (true, PROTOCOL_ICMPV6, 128, 129)]
    {
        for (kind, is_reply) in [(request, false), (reply, true)] {
            let message = [kind, 0, 0, 0, 0x12, 0x34, 0, 9, 1, 2, 3];
            let found = parse(&ip(is_v6, protocol, &message), Link::RawIp, false).unwrap();
            assert_eq!((found.source_port, found.destination_port), (0x1234, 0x1234));
            assert_eq!(found.detail, Detail::Echo { reply: is_reply, sequence: 9 });
            assert_eq!(found.payload.len(), 3);
        }
        let other = parse(&ip(is_v6, protocol, &[3; 8]), Link::RawIp, false).unwrap();
        assert_eq!((other.source_port, other.detail), (0, Detail::Other));
    }
}

#[test]
fn dns_over_udp_and_tcp() {
    let message = |flags| {
        let header = dns::Header { id: 0xABCD, flags, questions: 1, ..dns::Header::default() };
        let mut bytes = std::vec![0; dns::HEADER_LEN];
        header.emit(&mut bytes).unwrap();
        bytes.extend(b"\x01a\0\0\x01\0\x01");
        bytes
    };
    let (query, response) = (message(0x0100), message(0x8180));
    let id = dns::key(0xABCD, &query);
    assert_eq!(raw_udp(4000, 53, &query), Detail::Dns { response: false, id });
    assert_eq!(raw_udp(53, 4000, &response), Detail::Dns { response: true, id });
    assert_eq!(raw_udp(53, 53, &response), Detail::Dns { response: true, id });
    // A response to port 53, a query from it, and what is too short.
    assert_eq!(raw_udp(4000, 53, &response), Detail::Other);
    assert_eq!(raw_udp(53, 4000, &query), Detail::Other);
    assert_eq!(raw_udp(4000, 53, &query[..11]), Detail::Other);
    let over_tcp = |source_port, destination_port, message: &[u8]| {
        let repr = tcp::Repr { source_port, destination_port, ..tcp::Repr::default() };
        let mut bytes = std::vec![0; 20];
        repr.emit(&mut bytes).unwrap();
        bytes.extend((message.len() as u16).to_be_bytes());
        bytes.extend(message);
        match raw(PROTOCOL_TCP, &bytes).detail {
            Detail::Tcp(tcp) => tcp.dns,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(over_tcp(4000, 53, &query), Some((false, 0xABCD)));
    assert_eq!(over_tcp(53, 4000, &response), Some((true, 0xABCD)));
    assert_eq!(over_tcp(4000, 53, &response), None);
    assert_eq!(over_tcp(4000, 54, &query), None);
    assert_eq!(over_tcp(4000, 53, &query[..11]), None);
}

#[test]
fn quic() {
    let long = |first, version, source: &[u8]| {
        let header = quic::Long { first, version, destination: &[1; 8], source };
        let mut bytes = std::vec![0; header.buffer_len()];
        header.emit(&mut bytes).unwrap();
        raw_udp(50_000, 443, &bytes)
    };
    for (first, version, want) in [
        (0xC0, quic::VERSION_1, Some(Quic::Initial)),
        (0xD0, quic::VERSION_1, Some(Quic::ZeroRtt)),
        (0xE0, quic::VERSION_1, Some(Quic::Handshake)),
        (0xF0, quic::VERSION_1, Some(Quic::Restart)),
        (0xD0, quic::VERSION_2, Some(Quic::Initial)),
        (0xC0, quic::VERSION_2, Some(Quic::Restart)),
        (0xC0, 0, Some(Quic::Restart)),
        (0xC0, 2, None),
        (0x80, quic::VERSION_1, None),
    ] {
        let want = want.map_or(Detail::Other, Detail::Quic);
        assert_eq!(long(first, version, &[2; 4]), want, "{first:x} {version:x}");
    }
    let cut = [0xC0, 0, 0, 0, 1, 8, 0, 0];
    assert_eq!(raw_udp(50_000, 443, &cut), Detail::Other);
    for (first, spin) in [(0x40, false), (0x60, true), (0x7F, true)] {
        let want = Detail::Quic(Quic::Short { spin });
        assert_eq!(raw_udp(50_000, 443, &[first]), want);
        assert_eq!(
            raw_udp(50_000, 53, &[first; 12]),
            Detail::Dns {
                response: false,
                id: dns::key(u16::from_be_bytes([first; 2]), &[first; 12]),
            }
        );
    }
    assert_eq!(raw_udp(50_000, 443, &[]), Detail::Other);
    assert_eq!(raw_udp(50_000, 443, &[0x3F]), Detail::Other);
}

#[test]
fn heartbeats() {
    let header = sctp::Header { source_port: 5, destination_port: 6, ..sctp::Header::default() };
    let mut bytes = std::vec![0; 12];
    header.emit(&mut bytes).unwrap();
    let other = raw(PROTOCOL_SCTP, &bytes);
    assert_eq!((other.source_port, other.destination_port, other.detail), (5, 6, Detail::Other));
    for ack in [false, true] {
        let heartbeat = Heartbeat { ack, information: b"when and where" };
        bytes.resize(12 + heartbeat.buffer_len(), 0);
        heartbeat.emit(&mut bytes[12..]).unwrap();
        let want = Detail::Heartbeat { ack, id: heartbeat.id() };
        assert_eq!(raw(PROTOCOL_SCTP, &bytes).detail, want);
    }
}

proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>, tunnels: bool) {
        for link in LINKS {
            let _ = parse(&bytes, link, tunnels);
        }
    }
}

const LINKS: [Link; 4] = [Link::Ethernet, Link::RawIp, Link::LinuxCooked, Link::LinuxCooked2];
