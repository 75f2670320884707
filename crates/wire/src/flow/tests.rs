//! Frames are built with the formats' own `Repr`s, one layer after the other.

use super::*;
use crate::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, Tag};
use crate::feature::{Feature, Keys, Layers};
use crate::tcp::{ACK, SYN};
use crate::{dns, ipv4, ipv6, tcp, tunnel};
use proptest::prelude::*;

extern crate std;
use std::vec::Vec;

/// An Ethernet header with these tags.
fn link(tags: &[Tag], ethertype: u16) -> Vec<u8> {
    let fields = tags.iter().flat_map(|tag| [tag.tpid, tag.tci]).chain([ethertype]);
    let mut bytes = [[2; 6], [4; 6]].concat();
    bytes.extend(fields.flat_map(u16::to_be_bytes));
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
    parse(&v4(protocol, payload), LinkType::RawIp, false).unwrap()
}

fn raw_udp(source_port: u16, destination_port: u16, payload: &[u8]) -> Detail {
    raw(PROTOCOL_UDP, &datagram(source_port, destination_port, payload)).detail
}

/// The same frame as the flow meter reads it.
fn feature(frame: &[u8], link: LinkType) -> Result<(Feature, Layers), Error> {
    crate::feature::parse(frame, link, Keys::Outer, 0, 0)
}

const IP: [u16; 2] = [ETHERTYPE_IPV4, ETHERTYPE_IPV6];

#[test]
fn a_segment_under_every_link_and_tag() {
    let qinq = [Tag { tpid: 0x88A8, tci: 0xE064 }, Tag { tpid: 0x8100, tci: 0x2005 }];
    let priority = [Tag { tpid: 0x8100, tci: 0xE000 }, qinq[1]];
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
        let [high, low] = ethertype.to_be_bytes();
        let llc = [0xAA, 0xAA, 3, 0, 0, 0, high, low];
        let snap = |tags: &[Tag]| [link(tags, 60), llc.to_vec()].concat();
        let bridged = [&link(&[], 60)[..], &[0xAA, 0xAA, 3, 0, 0, 0xF8, high, low]].concat();
        let mut cooked_llc = std::vec![0; 16];
        cooked_llc[15] = 4;
        cooked_llc.extend(llc);
        let families: &[u8] = if is_v6 { &[10, 23, 24, 28, 30] } else { &[2] };
        let loopbacks = families.iter().flat_map(|&family| [[0, 0, 0, family], [family, 0, 0, 0]]);
        let loopbacks = loopbacks.map(|header| (header.to_vec(), LinkType::Family, 0));
        let ppp = if is_v6 { 0x57 } else { 0x21 };
        let four = [qinq[0], qinq[1], qinq[1], qinq[1]];
        let others = [
            (link(&four[..3], ethertype), LinkType::Ethernet, 100),
            (link(&four, ethertype), LinkType::Ethernet, 100),
            (snap(&[]), LinkType::Ethernet, 0),
            (snap(&qinq), LinkType::Ethernet, 100),
            (bridged, LinkType::Ethernet, 0),
            (cooked_llc, LinkType::LinuxCooked, 0),
            (std::vec![0xFF, 3, 0, ppp], LinkType::Ppp, 0),
            (std::vec![0xFF, 3, ppp], LinkType::Ppp, 0),
            (std::vec![0, ppp], LinkType::Ppp, 0),
            (std::vec![ppp], LinkType::Ppp, 0),
            (std::vec![0x0F, 0, high, low], LinkType::Ppp, 0),
            (std::vec![0x8F, 0, high, low], LinkType::Ppp, 0),
        ];
        let links = crate::link::tests::headers(ethertype);
        for (header, how, vlan) in loopbacks.chain(others).chain(links).chain([
            (link(&[], ethertype), LinkType::Ethernet, 0),
            (link(&qinq[..1], ethertype), LinkType::Ethernet, 100),
            (link(&qinq, ethertype), LinkType::Ethernet, 100),
            (link(&priority[..1], ethertype), LinkType::Ethernet, 0),
            (link(&priority, ethertype), LinkType::Ethernet, 5),
            (Vec::new(), LinkType::RawIp, 0),
            (cooked, LinkType::LinuxCooked, 0),
            (cooked_tagged, LinkType::LinuxCooked, 100),
            (cooked2, LinkType::LinuxCooked2, 0),
        ]) {
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
            let (feature, layers) = feature(&frame, how).unwrap();
            assert_eq!((feature.source, feature.destination), (found.source, found.destination));
            assert_eq!((feature.vlan, feature.ip_len), (vlan, found.ip_len));
            assert_eq!((layers.payload as usize, layers.end as usize), (whole - 4, whole));
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
        parse(&packet, LinkType::RawIp, false).map(|p| p.payload)
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
        assert_eq!(parse(&packet, LinkType::RawIp, false).err(), error);
    }
    // What a datagram leaves of its IP packet is no payload (and may be options, RFC 9868).
    for stated in 8..=12 {
        let mut packet = v4(PROTOCOL_UDP, &datagram(1, 2, b"data"));
        packet[25] = stated;
        let found = parse(&packet, LinkType::RawIp, false).unwrap();
        assert_eq!(found.payload, 28..20 + usize::from(stated));
    }
    for protocol in [PROTOCOL_UDP, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_SCTP] {
        let packet = v4(protocol, &[0; 7]);
        assert_eq!(parse(&packet, LinkType::RawIp, false), Err(Error::Length), "{protocol}");
    }
    let mut frame = link(&[], ETHERTYPE_IPV6);
    frame.extend(&good);
    frame.extend([0; 40]);
    assert_eq!(parse(&frame, LinkType::Ethernet, false), Err(Error::Version));
    frame[12] = 0x99;
    assert_eq!(parse(&frame, LinkType::Ethernet, false), Err(Error::EtherType));
    let tag = [0x81, 0, 0, 1];
    frame.splice(12..12, [tag; crate::link::tags::TAGS + 1].concat());
    assert_eq!(parse(&frame, LinkType::Ethernet, false), Err(Error::VlanDepth));
}

/// Segmentation offload leaves 0 where the length does not fit. Then the length on the wire counts,
/// also of a capture that kept less; in a tunnel, what its packet has left.
#[test]
fn a_length_of_0_is_that_of_the_frame() {
    let mut packet = v4(PROTOCOL_TCP, &segment(b"data"));
    let whole = packet.len();
    (packet[2], packet[3]) = (0, 0);
    let read = |packet: &[u8], wire_len| parse_cut(packet, wire_len, LinkType::RawIp, true);
    let ip_len = |packet: &[u8], wire_len| read(packet, wire_len).map(|p| p.ip_len as usize);
    assert_eq!(ip_len(&packet, whole), Ok(whole));
    assert_eq!(ip_len(&packet, 0), Ok(whole), "no frame is shorter than what there is of it");
    assert_eq!(ip_len(&packet[..52], 80_000), Ok(80_000));
    let Detail::Tcp(tcp) = read(&packet[..52], 80_000).unwrap().detail else { panic!() };
    assert_eq!(tcp.payload_len, 80_000 - 52);
    let outer = v4(4, &packet);
    assert_eq!(ip_len(&outer, outer.len() + 6), Ok(whole), "padding is not the inner packet's");
    // IPv6: behind a hop-by-hop options header with a jumbo length, or that much is there.
    let mut jumbo = v6(0, &[&[6, 0, 0xC2, 4, 0, 1, 0x38, 0x80], &segment(b"data")[..]].concat());
    (jumbo[4], jumbo[5]) = (0, 0);
    assert_eq!(ip_len(&jumbo, 80_040), Ok(80_040));
    assert_eq!(ip_len(&jumbo, 90_000), Ok(40 + 0x13880), "what it states");
    jumbo[42..48].copy_from_slice(&[1, 4, 0, 0, 0, 0]);
    assert_eq!(ip_len(&jumbo, 1000), Ok(1000), "without a jumbo length");
    let mut large = v6(PROTOCOL_TCP, &segment(b"data"));
    (large[4], large[5]) = (0, 0);
    assert_eq!(ip_len(&large, 40 + 65_536), Ok(40 + 65_536));
    assert_eq!(ip_len(&large, 40 + 65_535), Err(Error::Length), "really without payload");
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
    assert!(!parse(&packet, LinkType::RawIp, false).unwrap().fragment);
    packet[6] = 0x20;
    // Of a first one the UDP length is that of all.
    packet[25] = 200;
    let found = parse(&packet, LinkType::RawIp, true).unwrap();
    assert!(found.fragment);
    assert_eq!((found.source_port, found.payload), (50_000, 28..32));
    for field in [[0x20, 1], [0, 1], [0x10, 0], [0x1F, 0xFF]] {
        packet[6..8].copy_from_slice(&field);
        assert_eq!(parse(&packet, LinkType::RawIp, false), Err(Error::Fragment));
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
        let found = parse(&v6(ipv6::FRAGMENT, &payload), LinkType::RawIp, false);
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
        let found = parse(&packet, LinkType::RawIp, false).unwrap();
        assert_eq!((found.protocol, found.destination_port), (6, 443));
        assert_eq!(found.payload, packet.len() - 4..packet.len());
    }
    assert_eq!(parse(&chain(9, 6), LinkType::RawIp, false), Err(Error::ExtensionDepth));
    let found = parse(&chain(1, ipv6::ESP), LinkType::RawIp, false).unwrap();
    assert_eq!((found.protocol, found.source_port, found.detail), (50, 0, Detail::Other));
    // The chain may not go on in the padding.
    let mut packet = chain(1, PROTOCOL_TCP);
    packet[5] = 7;
    assert_eq!(parse(&packet, LinkType::RawIp, false), Err(Error::Truncated));
}

#[test]
fn echo() {
    for (is_v6, protocol, request, reply) in
        [(false, PROTOCOL_ICMP, 8, 0), (true, PROTOCOL_ICMPV6, 128, 129)]
    {
        for (kind, is_reply) in [(request, false), (reply, true)] {
            let message = [kind, 0, 0, 0, 0x12, 0x34, 0, 9, 1, 2, 3];
            let found = parse(&ip(is_v6, protocol, &message), LinkType::RawIp, false).unwrap();
            assert_eq!((found.source_port, found.destination_port), (0x1234, 0x1234));
            assert_eq!(found.detail, Detail::Echo { reply: is_reply, sequence: 9 });
            assert_eq!(found.payload.len(), 3);
        }
        let other = parse(&ip(is_v6, protocol, &[3; 8]), LinkType::RawIp, false).unwrap();
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
        // A greased fixed bit (RFC 9287); of a list of versions the bit may be anything.
        (0x80, quic::VERSION_1, Some(Quic::Initial)),
        (0x90, quic::VERSION_1, Some(Quic::ZeroRtt)),
        (0x80, 0, Some(Quic::Restart)),
        (0xBF, 0, Some(Quic::Restart)),
        (0x80, 2, None),
    ] {
        let want = want.map_or(Detail::Other, Detail::Quic);
        assert_eq!(long(first, version, &[2; 4]), want, "{first:x} {version:x}");
    }
    let cut = [0xC0, 0, 0, 0, 1, 8, 0, 0];
    assert_eq!(raw_udp(50_000, 443, &cut), Detail::Other);
    for (first, spin) in [(0x40, false), (0x60, true), (0x7F, true), (0, false), (0x3F, true)] {
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

/// The same segment as `inside` in a frame: what was found, but for where it was.
fn same(frame: &[u8], inside: &[u8], tunnels: bool) -> bool {
    let mut want = parse(inside, LinkType::RawIp, false).unwrap();
    let found = parse(frame, LinkType::Ethernet, tunnels).unwrap();
    let before = frame.len() - inside.len();
    want.payload = want.payload.start + before..want.payload.end + before;
    found == want
}

#[test]
fn pppoe_and_mpls_are_always_looked_through() {
    for is_v6 in [false, true] {
        let packet = ip(is_v6, PROTOCOL_TCP, &segment(b"data"));
        let protocol = [tunnel::PPP_IPV4, tunnel::PPP_IPV6][usize::from(is_v6)];
        let header = tunnel::Pppoe { session: 1, length: packet.len() as u16 + 2, protocol };
        let mut pppoe = [0; 8];
        header.emit(&mut pppoe).unwrap();
        let labels = [0, 1, 0x0A, 0x40, 0, 0, 0x21, 0xFF];
        for (ethertype, between) in [(tunnel::ETHERTYPE_PPPOE, pppoe), (ETHERTYPE_MPLS, labels)] {
            let frame = [&link(&[], ethertype)[..], &between, &packet].concat();
            assert!(same(&frame, &packet, false), "{ethertype:x}");
            for len in 0..frame.len() - 4 {
                let cut = parse(&frame[..len], LinkType::Ethernet, false);
                assert_eq!(cut, Err(Error::Truncated), "{len}");
            }
        }
    }
    let lcp = [0x11, 0, 0, 1, 0, 2, 0xC0, 0x21];
    let discovery = [0x11, 9, 0, 0, 0, 0, 0, 0];
    for (bytes, error) in [(lcp, Error::EtherType), (discovery, Error::Type)] {
        let frame = [&link(&[], tunnel::ETHERTYPE_PPPOE)[..], &bytes].concat();
        assert_eq!(parse(&frame, LinkType::Ethernet, false), Err(error));
    }
    // A control word, and no frame.
    let frame = [&link(&[], ETHERTYPE_MPLS)[..], &[0, 0, 0x21, 0xFF, 0, 0, 0, 0]].concat();
    assert_eq!(parse(&frame, LinkType::Ethernet, false), Err(Error::EtherType));
}

#[test]
fn pseudowires_and_multicast_labels_are_looked_through() {
    let label = [0, 1, 1, 0x40];
    for is_v6 in [false, true] {
        let packet = ip(is_v6, PROTOCOL_TCP, &segment(b"data"));
        let wire = |tags: &[Tag]| [link(tags, IP[usize::from(is_v6)]), packet.clone()].concat();
        let tag = [Tag { tpid: 0x8100, tci: 42 }];
        let multicast = [&link(&[], 0x8848)[..], &label, &packet].concat();
        assert!(same(&multicast, &packet, false));
        for control_word in [&[][..], &[0, 0, 0, 9]] {
            let start = [&link(&[], ETHERTYPE_MPLS)[..], &label, control_word].concat();
            assert!(same(&[&start[..], &wire(&[])].concat(), &packet, false));
            let frame = [&start[..], &wire(&tag)].concat();
            assert_eq!(parse(&frame, LinkType::Ethernet, false).unwrap().vlan, 42);
        }
    }
}

#[test]
fn authentication_headers_of_ipv4_are_stepped_over() {
    let header = [PROTOCOL_TCP, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    let payload = [&header[..], &[9; 12], &segment(b"data")].concat();
    let packet = v4(ipv6::AH, &payload);
    let found = parse(&packet, LinkType::RawIp, false).unwrap();
    assert_eq!((found.protocol, found.source_port), (PROTOCOL_TCP, 50_000));
    assert_eq!(&packet[found.payload], b"data");
    for len in 20..44 {
        assert_eq!(parse(&packet[..len], LinkType::RawIp, false), Err(Error::Truncated), "{len}");
    }
}

#[test]
fn tunnels_are_looked_into_when_asked_to() {
    let gre = |protocol: u16| {
        let header = tunnel::Gre { protocol, checksum: Some(1), key: Some(2), sequence: Some(3) };
        let mut bytes = std::vec![0; header.buffer_len()];
        header.emit(&mut bytes).unwrap();
        bytes
    };
    let mut vxlan = std::vec![0; 8];
    tunnel::Vxlan { vni: 5 }.emit(&mut vxlan).unwrap();
    let gtpu = [0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0x10, 9, 0];
    let geneve = |protocol: u16| {
        let (control, critical, options) = (false, true, &[7; 8][..]);
        let header = tunnel::Geneve { control, critical, protocol, vni: 5, options };
        let mut bytes = std::vec![0; header.buffer_len()];
        header.emit(&mut bytes).unwrap();
        bytes
    };
    let tag = [Tag { tpid: 0x8100, tci: 42 }];
    for is_v6 in [false, true] {
        let inner = ip(is_v6, PROTOCOL_TCP, &segment(b"data"));
        let ethertype = IP[usize::from(is_v6)];
        let bridged = [&link(&tag, ethertype)[..], &inner].concat();
        let inside = |header: &[u8], carried: &[u8]| [header, carried].concat();
        for (protocol, payload) in [
            (if is_v6 { 41 } else { 4 }, inner.clone()),
            (47, inside(&gre(ethertype), &inner)),
            (47, inside(&gre(tunnel::ETHERTYPE_BRIDGED), &bridged)),
            (17, datagram(50_000, 4789, &inside(&vxlan, &bridged))),
            (17, datagram(2152, 2152, &inside(&gtpu, &inner))),
            (17, datagram(50_000, 6081, &inside(&geneve(ethertype), &inner))),
            (17, datagram(50_000, 6081, &inside(&geneve(tunnel::ETHERTYPE_BRIDGED), &bridged))),
        ] {
            for outer_v6 in [false, true] {
                let outer = ip(outer_v6, protocol, &payload);
                let frame = [&link(&[], IP[usize::from(outer_v6)])[..], &outer].concat();
                assert!(same(&frame, &inner, true), "{protocol}");
                assert!(same(&frame, &outer, false), "{protocol}");
                // Padding of the frame does not get inside, whatever is claimed there.
                let mut padded = frame.clone();
                padded.extend([0; 9]);
                let length = frame.len() - inner.len() + if is_v6 { 5 } else { 3 };
                padded[length] += 9;
                let found = parse(&padded, LinkType::Ethernet, true).unwrap();
                assert_eq!(found.payload.end, frame.len());
                // Cut short: the outer packet stands alone, or there is none.
                for len in 0..frame.len() - 4 {
                    if let Ok(found) = parse(&frame[..len], LinkType::Ethernet, true) {
                        assert_eq!(found.protocol, 17, "{len}");
                        assert!(len < 14 + 40 + 8 + gtpu.len(), "{len}"); // as long as GENEVE's
                    }
                }
                // The VLAN is that of the outer frame.
                let frame = [&link(&tag, IP[usize::from(outer_v6)])[..], &outer].concat();
                assert_eq!(parse(&frame, LinkType::Ethernet, true).unwrap().vlan, 42);
            }
        }
    }
}

#[test]
fn what_is_no_tunnel_stands_for_itself() {
    let inner = v4(PROTOCOL_TCP, &segment(b"data"));
    let echo = datagram(2152, 2152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0]);
    let no_vni = datagram(1, 4789, &[0; 60]);
    let reply = datagram(4789, 1, &[8; 60]);
    let short = datagram(1, 4789, &[8; 7]);
    let control = datagram(1, 6081, &[&[0, 0x80, 8, 0, 0, 0, 5, 0][..], &inner].concat());
    for payload in [echo, no_vni, reply, short, control] {
        let found = parse(&v4(17, &payload), LinkType::RawIp, true).unwrap();
        assert_eq!((found.protocol, found.source[15]), (17, 1));
        assert!(!matches!(found.detail, Detail::Tcp(_)), "{:?}", found.detail);
    }
    let pptp = [&[0x30, 1, 0x88, 0x0B, 0, 0, 0, 0][..], &inner].concat();
    assert_eq!(parse(&v4(47, &pptp), LinkType::RawIp, true).unwrap().protocol, 47);
    // One level and no more.
    let twice = v4(4, &v4(4, &inner));
    assert_eq!(parse(&twice, LinkType::RawIp, true).unwrap().protocol, 4);
    // A first fragment is not looked into; an inner fragment is one.
    let mut outer = v4(4, &inner);
    outer[6] = 0x20;
    let found = parse(&outer, LinkType::RawIp, true).unwrap();
    assert!(found.fragment && found.protocol == 4);
    outer[6] = 0;
    outer[20 + 7] = 1;
    assert_eq!(parse(&outer, LinkType::RawIp, true), Err(Error::Fragment));
    let arp = [&[0, 0, 0x65, 0x58][..], &link(&[], ethernet::ETHERTYPE_ARP)].concat();
    assert_eq!(parse(&v4(47, &arp), LinkType::RawIp, true), Err(Error::EtherType));
}

#[test]
fn link_types_of_capture_files() {
    for (link_type, link) in [
        (1, Some(LinkType::Ethernet)),
        (101, Some(LinkType::RawIp)),
        (228, Some(LinkType::RawIp)),
        (229, Some(LinkType::RawIp)),
        (113, Some(LinkType::LinuxCooked)),
        (276, Some(LinkType::LinuxCooked2)),
        (12, Some(LinkType::RawIp)),
        (14, Some(LinkType::RawIp)),
        (0, Some(LinkType::Family)),
        (108, Some(LinkType::Family)),
        (9, Some(LinkType::Ppp)),
        (50, Some(LinkType::Ppp)),
        (104, Some(LinkType::Ppp)),
        (239, Some(LinkType::Nflog)),
        (105, Some(LinkType::Wlan)),
        (127, Some(LinkType::Radiotap)),
        (192, Some(LinkType::Ppi)),
        (119, Some(LinkType::Prism)),
        (163, Some(LinkType::Prism)),
        (51, Some(LinkType::Pppoe)),
        (10, Some(LinkType::Fddi)),
        (147, None),
    ] {
        assert_eq!(LinkType::from_capture(link_type), link);
    }
}

#[test]
fn what_is_not_ip_below_the_link_is_said() {
    let spanning_tree = [&link(&[], 38)[..], &[0x42, 0x42, 3], &[0; 43]].concat();
    let other_organisation = [&link(&[], 60)[..], &[0xAA, 0xAA, 3, 0, 0, 12, 8, 0], &[0; 40]];
    let cut = [&link(&[], 60)[..], &[0xAA, 0xAA, 3]].concat();
    let lsap = |control| [&link(&[], 60)[..], &[6, 6, control], &v4(89, &[0; 20])].concat();
    for (frame, how, error) in [
        (spanning_tree, LinkType::Ethernet, Some(Error::EtherType)),
        (other_organisation.concat(), LinkType::Ethernet, Some(Error::EtherType)),
        (cut, LinkType::Ethernet, Some(Error::Truncated)),
        (lsap(3), LinkType::Ethernet, None),
        (lsap(0xBF), LinkType::Ethernet, Some(Error::EtherType)),
        (std::vec![0, 0, 0, 7, 0], LinkType::Family, Some(Error::EtherType)), // AppleTalk, say.
        (std::vec![2, 0, 0, 2, 0], LinkType::Family, Some(Error::EtherType)),
        (std::vec![2, 0, 0], LinkType::Family, Some(Error::Truncated)),
        (std::vec![0xFF, 3, 0xC0, 0x21, 1], LinkType::Ppp, Some(Error::EtherType)), // LCP.
        (std::vec![0x8F, 0, 0x80, 0x35, 0], LinkType::Ppp, Some(Error::EtherType)), // SLARP.
        (std::vec![0x8F, 0, 8], LinkType::Ppp, Some(Error::Truncated)),
        (std::vec![0xFF, 3], LinkType::Ppp, Some(Error::Truncated)),
    ] {
        assert_eq!(parse(&frame, how, false).err(), error, "{frame:02x?}");
        assert_eq!(feature(&frame, how).err(), error, "{frame:02x?}");
    }
}

/// What holds of every packet that is found.
fn sound(frame: &[u8], found: &FlowPacket) {
    assert!(found.payload.start <= found.payload.end && found.payload.end <= frame.len());
    assert!((20..=65_575).contains(&found.ip_len) && found.vlan < 4096);
    if let Detail::Tcp(tcp) = found.detail {
        assert!(found.payload.len() <= tcp.payload_len as usize);
        assert!(tcp.payload_len + 40 <= found.ip_len);
        assert!(!tcp.bad_options || (tcp.timestamps.is_none() && !tcp.sack));
    }
}

proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>, tunnels: bool) {
        for link in LINKS {
            if let Ok(found) = parse(&bytes, link, tunnels) {
                sound(&bytes, &found);
            }
        }
    }

    #[test]
    fn never_panics_on_a_mutated_packet(
        is_v6: bool, tunnels: bool, which in 0usize..4, payload: Vec<u8>,
        changes in proptest::collection::vec((0usize..90, any::<u8>()), 0..6),
        cut: proptest::sample::Index,
    ) {
        let inner = ip(is_v6, PROTOCOL_TCP, &segment(&payload));
        let packet = match which {
            0 => inner,
            1 => ip(is_v6, 17, &datagram(1, 4789, &[&[8; 20][..], &inner].concat())),
            2 => ip(is_v6, 47, &[&[0x20, 0, 8, 0, 0, 0, 0, 0][..], &inner].concat()),
            _ => ip(is_v6, 17, &datagram(53, 2152, &payload)),
        };
        let mut frame = link(&[Tag { tpid: 0x8100, tci: 7 }], IP[usize::from(is_v6)]);
        frame.extend(packet);
        for (at, value) in changes {
            if let Some(octet) = frame.get_mut(at) {
                *octet = value;
            }
        }
        frame.truncate(cut.index(frame.len()) + 1);
        for link in LINKS {
            let frame = if link == LinkType::RawIp { &frame[frame.len().min(18)..] } else { &frame };
            if let Ok(found) = parse(frame, link, tunnels) {
                sound(frame, &found);
            }
        }
    }
}

const LINKS: [LinkType; 11] = [
    LinkType::Ethernet,
    LinkType::RawIp,
    LinkType::LinuxCooked,
    LinkType::LinuxCooked2,
    LinkType::Nflog,
    LinkType::Wlan,
    LinkType::Radiotap,
    LinkType::Ppi,
    LinkType::Prism,
    LinkType::Pppoe,
    LinkType::Fddi,
];
