use proptest::prelude::*;

use super::*;

extern crate std;
use std::vec::Vec;

/// Ethernet, then IPv4 of these fields, then what follows.
fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = std::vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let total_len = 20 + payload.len() as u16;
    frame.extend([0x45, 0xB8]);
    frame.extend(total_len.to_be_bytes());
    frame.extend([0x12, 0x34]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
    frame.extend(payload);
    frame
}

fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = std::vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xDD];
    frame.extend([0x6B, 0x80, 0, 0]);
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([next_header, 63]);
    for last in [1, 2] {
        frame.extend([0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend(payload);
    frame
}

/// Ports 40000 and 443, sequence 0x01020304, SYN and the reserved bits, window 0x1000, 4
/// octets of options, 5 of payload.
fn tcp_segment() -> Vec<u8> {
    let mut segment = std::vec![0x9C, 0x40, 0x01, 0xBB, 1, 2, 3, 4, 0, 0, 0, 0];
    segment.extend([0x6F, 0x02, 0x10, 0, 0, 0, 0, 0, 2, 4, 5, 0xB4]);
    segment.extend(b"sonde");
    segment
}

fn read(frame: &[u8], keys: Keys) -> (Feature, Layers) {
    parse(frame, LinkType::Ethernet, keys, 7, 3).unwrap()
}

const SEEN: PacketMeta = PacketMeta { wire_len: 0, link: LinkType::Ethernet, at_ns: 7, point: 3 };

/// What a way of reading writes, over something that is there.
fn written(
    read: impl FnOnce(&mut To<'_>) -> Result<(), Error>,
) -> Result<(Feature, Layers), Error> {
    let mut feature = Feature { ip_len: 1, sequence: 2, vlan: 3, ..expected() };
    let mut layers = Layers { ip: 1, mpls: 2, outer_ip: 3, transport: 4, payload: 5, end: 6 };
    read(&mut To { feature: &mut feature, layers: &mut layers }).map(|()| (feature, layers))
}

/// What [`tcp_segment`] is in [`ipv4`].
fn expected() -> Feature {
    Feature {
        at_ns: 7,
        source: mapped([192, 0, 2, 1]),
        destination: mapped([198, 51, 100, 2]),
        source_port: 40000,
        destination_port: 443,
        ip_len: 49,
        sequence: 0x0102_0304,
        tcp_flags: 0xF02,
        vlan: 0,
        protocol: 6,
        tos: 0xB8,
        ttl: 64,
        shape: 0,
        window: 0x1000,
        headers: 11,
        point: 3,
    }
}

#[test]
fn a_plain_segment() {
    let mut frame = ipv4(6, 0x4000, &tcp_segment());
    frame.extend([0; 7]); // padding, and what else came behind the packet
    let layers = Layers { ip: 14, mpls: 0, outer_ip: 0, transport: 34, payload: 58, end: 63 };
    let found = read(&frame, Keys::Outer);
    assert_eq!(found, (expected(), layers));
    assert_eq!(found.0.payload_len(), 5);
    let quick =
        written(|to| plain::<IPV4>(&frame, 14, 0, &SEEN, Keys::Outer, to).ok_or(Error::EtherType));
    assert_eq!(quick, Ok(found));
    assert_eq!(written(|to| slow::parse(&frame, &SEEN, Keys::Outer, to)), Ok(found));
}

#[test]
fn a_frame_cut_anywhere_counts_the_length_of_its_header() {
    let frame = ipv4(6, 0, &tcp_segment());
    let whole = expected();
    for len in 0..frame.len() {
        let found = parse(&frame[..len], LinkType::Ethernet, Keys::Inner, 7, 3);
        let Ok((feature, layers)) = found else {
            assert!(len < 34 && found == Err(Error::Truncated), "{len}");
            continue;
        };
        assert_eq!((feature.ip_len, feature.protocol), (49, 6));
        assert_eq!(usize::from(layers.end), len);
        let cut = Feature { sequence: 0, tcp_flags: 0, window: 0, headers: 5, ..whole };
        assert_eq!(
            feature,
            match len {
                54.. => whole,
                38.. => Feature { shape: SHAPE_NO_TRANSPORT, ..cut },
                _ => Feature {
                    shape: SHAPE_NO_TRANSPORT,
                    source_port: 0,
                    destination_port: 0,
                    ..cut
                },
            }
        );
        assert_eq!(layers.transport, if len < 54 { 0 } else { 34 });
    }
}

#[test]
fn malformed_transports_leave_the_ports() {
    let cut = Feature {
        sequence: 0,
        tcp_flags: 0,
        window: 0,
        headers: 5,
        shape: SHAPE_NO_TRANSPORT,
        ..expected()
    };
    for offset in [0x4F, 0x8F] {
        let mut segment = tcp_segment();
        segment[12] = offset; // 16 octets, and 32 of 29
        assert_eq!(read(&ipv4(6, 0, &segment), Keys::Outer).0, cut);
    }
    // By IP's length there are 10 octets of TCP; the frame has more.
    let mut frame = ipv4(6, 0, &tcp_segment());
    frame[17] = 30;
    assert_eq!(read(&frame, Keys::Outer).0, Feature { ip_len: 30, ..cut });
    frame[17] = 22;
    let none = Feature { ip_len: 22, source_port: 0, destination_port: 0, ..cut };
    assert_eq!(read(&frame, Keys::Outer).0, none);
    frame[17] = 19;
    assert_eq!(parse(&frame, LinkType::Ethernet, Keys::Outer, 0, 0), Err(Error::Length));
}

#[test]
fn fragments() {
    let first = read(&ipv4(6, 0x2000, &tcp_segment()), Keys::Outer).0;
    assert_eq!(first, Feature { shape: SHAPE_FRAGMENT, sequence: 0x1234, ..expected() });
    let later = Feature {
        shape: SHAPE_FRAGMENT | SHAPE_LATER_FRAGMENT,
        sequence: 0x1234,
        source_port: 0,
        destination_port: 0,
        tcp_flags: 0,
        window: 0,
        headers: 5,
        ..expected()
    };
    for flags in [0x2001, 0x0001] {
        let (feature, layers) = read(&ipv4(6, flags, &tcp_segment()), Keys::Outer);
        assert_eq!(feature, later);
        assert_eq!((layers.transport, layers.payload, layers.end), (0, 34, 63));
    }
    for (field, shape) in [
        ([0, 1], SHAPE_FRAGMENT),
        ([0, 9], SHAPE_FRAGMENT | SHAPE_LATER_FRAGMENT),
        ([0, 8], SHAPE_FRAGMENT | SHAPE_LATER_FRAGMENT),
        // Atomic (RFC 6946): a whole packet.
        ([0, 0], 0),
    ] {
        let mut payload = std::vec![6, 0, field[0], field[1], 0xA, 0xB, 0xC, 0xD];
        payload.extend(tcp_segment());
        let feature = read(&ipv6(crate::ipv6::FRAGMENT, &payload), Keys::Outer).0;
        assert_eq!(feature.shape, SHAPE_IPV6 | shape);
        let sequence = if shape == 0 { 0x0102_0304 } else { 0x0A0B_0C0D };
        assert_eq!((feature.sequence, feature.ip_len, feature.protocol), (sequence, 77, 6));
        let ports = (feature.source_port, feature.destination_port);
        assert_eq!(ports, if shape & SHAPE_LATER_FRAGMENT == 0 { (40000, 443) } else { (0, 0) });
    }
}

#[test]
fn lengths_that_the_ip_header_does_not_state() {
    let cut = |frame: &[u8], wire_len| {
        let found = parse_cut(frame, wire_len, LinkType::Ethernet, Keys::Outer, 0, 0).unwrap();
        (found.0.ip_len, found.1.end)
    };
    // Segmentation offload: total length 0.
    let mut frame = ipv4(6, 0, &tcp_segment());
    frame[16..18].fill(0);
    let len = frame.len();
    assert_eq!(cut(&frame, len), (49, 63));
    assert_eq!(cut(&frame, 14 + 70_000), (70_000, 63));
    frame.resize(80_000, 0);
    assert_eq!(cut(&frame, 0), (80_000 - 14, u16::MAX));
    // The same in IPv6, where 0 can also mean what it says.
    let mut frame = ipv6(6, &tcp_segment());
    frame[18..20].fill(0);
    assert_eq!(cut(&frame, 14 + 70_000), (70_000, 83));
    assert_eq!(cut(&frame, 83), (40, 54));
    // A jumbogram, and one that is longer than what came.
    let mut payload = std::vec![6, 0, 0xC2, 4, 0, 1, 0x11, 0x70];
    payload.extend(tcp_segment());
    let mut frame = ipv6(0, &payload);
    frame[18..20].fill(0);
    assert_eq!(cut(&frame, 14 + 70_040), (70_040, 91));
    assert_eq!(cut(&frame, 14 + 90_000), (70_040, 91));
    assert_eq!(cut(&frame, 91), (77, 91));
    let (feature, layers) = read(&frame, Keys::Outer);
    assert_eq!((feature.destination_port, feature.headers, layers.payload), (443, 18, 86));
    // Without a length in it: what there is counts, as in `flow::parse`.
    frame[56..62].copy_from_slice(&[1, 4, 0, 0, 0, 0]);
    assert_eq!(cut(&frame, 91), (77, 91));
    assert_eq!(cut(&frame, 14 + 1000), (1000, 91));
    let (feature, _) = read(&frame, Keys::Outer);
    assert_eq!((feature.protocol, feature.destination_port, feature.headers), (6, 443, 18));
}

/// A capture's record says that a packet of 4 GB was cut: nothing is that long.
#[test]
fn a_length_that_no_packet_has_is_not_believed() {
    let read = |frame: &[u8], wire_len| {
        parse_cut(frame, wire_len, LinkType::Ethernet, Keys::Outer, 0, 0)
            .map(|found| found.0.ip_len)
    };
    let mut frames = [ipv4(6, 0, &tcp_segment()), ipv6(6, &tcp_segment())];
    // It does not matter where IP states the length.
    assert_eq!(frames.each_ref().map(|f| read(f, u32::MAX as usize)), [Ok(49), Ok(69)]);
    frames[0][16..18].fill(0);
    frames[1][18..20].fill(0);
    for frame in &frames {
        assert_eq!(read(frame, 14 + 40 + 500_000), Ok(500_040));
        for wire_len in [14 + 40 + (1 << 19) + 1, u32::MAX as usize] {
            assert_eq!(read(frame, wire_len), Err(Error::Length));
        }
    }
}

#[test]
fn what_is_in_a_tunnel_must_fit_into_it() {
    let mut inner = ipv4(6, 0, &tcp_segment()).split_off(14);
    let outer = ipv4(4, 0, &inner);
    let (feature, layers) = read(&outer, Keys::Inner);
    assert_eq!(feature, Feature { shape: SHAPE_INNER, ..expected() });
    assert_eq!((layers.outer_ip, layers.ip, layers.payload), (14, 34, 78));
    assert_eq!(read(&outer, Keys::Outer).0.ip_len, 69);
    // A fragment is not looked into.
    assert_eq!(read(&ipv4(4, 0x2000, &inner), Keys::Inner).0.protocol, 4);
    inner[3] += 1;
    let (feature, layers) = read(&ipv4(4, 0, &inner), Keys::Inner);
    assert_eq!((feature.protocol, feature.ip_len, layers.outer_ip), (4, 69, 0));
}

#[test]
fn what_an_mpls_stack_carries() {
    let stack = [0x88, 0x47, 0, 1, 0x01, 0x40];
    let plain = ipv4(6, 0, &tcp_segment());
    let with = |parts: &[&[u8]]| {
        let frame = [&plain[..12], &stack, &parts.concat()].concat();
        read(&frame, Keys::Inner)
    };
    // IP; a pseudowire with a control word; one without, to three kinds of address.
    let mut four = plain.clone();
    four[..4].copy_from_slice(&[0x4C, 0, 0xFF, 0xFF]);
    let mut six = plain.clone();
    six[..6].copy_from_slice(&[0x60, 0, 0, 0, 0xFF, 0xFF]);
    for (parts, ip) in [
        (&[&plain[14..]][..], 18),
        (&[&[0, 0, 0, 9], &plain[..]][..], 36),
        (&[&plain[..]][..], 32),
        (&[&four[..]][..], 32),
        (&[&six[..]][..], 32),
        (&[&plain[..12], &[0x81, 0, 0x20, 5], &plain[12..]][..], 36),
    ] {
        let (feature, layers) = with(parts);
        let vlan = if parts.len() == 3 { 5 } else { 0 };
        assert_eq!(feature, Feature { vlan, ..expected() });
        assert_eq!((layers.ip, layers.mpls), (ip, 14));
    }
    // Cut short, and nobody says how long it was.
    let whole = with(&[&plain[14..]]).0;
    let cut = [&plain[..12], &stack, &plain[14..54]].concat();
    assert_eq!(read(&cut, Keys::Inner).0, whole);
    // An associated channel (RFC 4385, section 5) is neither.
    let mut channel = plain.clone();
    channel[12..14].copy_from_slice(&[0x88, 0x47]);
    channel[14..22].copy_from_slice(&[0, 1, 1, 64, 0x10, 0, 0, 7]);
    assert_eq!(parse(&channel, LinkType::Ethernet, Keys::Outer, 0, 0), Err(Error::EtherType));
}

#[test]
fn extension_headers_that_end_too_early_leave_a_packet_that_counts() {
    let frame = ipv6(crate::ipv6::DESTINATION, &[6, 200, 0, 0, 0, 0, 0, 0]);
    let (feature, layers) = read(&frame, Keys::Inner);
    assert_eq!((feature.protocol, feature.ip_len), (crate::ipv6::DESTINATION, 48));
    assert_eq!(feature.shape, SHAPE_IPV6 | SHAPE_NO_TRANSPORT);
    assert_eq!((feature.headers, layers.transport, layers.payload), (10, 0, 54));
    // Behind the header of a first fragment.
    let payload = [crate::ipv6::DESTINATION, 0, 0, 1, 0, 0, 0, 9, 6, 200, 0, 0, 0, 0, 0, 0];
    let (feature, _) = read(&ipv6(crate::ipv6::FRAGMENT, &payload), Keys::Inner);
    assert_eq!(feature.shape, SHAPE_IPV6 | SHAPE_FRAGMENT | SHAPE_NO_TRANSPORT);
    assert_eq!((feature.sequence, feature.headers), (9, 12));
}

/// Frames that come further than random octets do.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let octets = proptest::collection::vec(any::<u8>(), 0..120);
    let protocol = prop_oneof![
        3 => Just(6u8), 3 => Just(17u8), 1 => any::<u8>(),
        1 => proptest::sample::select(&[0u8, 1, 4, 33, 41, 43, 44, 47, 51, 60, 132, 135, 136][..]),
    ];
    let fragment = prop_oneof![4 => Just(0u16), 1 => Just(0x4000), 1 => any::<u16>()];
    let start = proptest::sample::select(
        &[[0x9Cu8, 0x40, 0x12, 0xB5], [0, 53, 8, 104], [0, 1, 0x17, 0xC1], [0, 0, 8, 0]][..],
    );
    let change = proptest::option::of((0usize..90, any::<u8>()));
    (octets, protocol, fragment, start, change, any::<bool>(), 0usize..8, 0u8..3).prop_map(
        |(octets, protocol, fragment, start, change, v6, padding, tags)| {
            let payload = [&start[..], &octets].concat();
            let mut frame =
                if v6 { ipv6(protocol, &payload) } else { ipv4(protocol, fragment, &payload) };
            frame.resize(frame.len() + padding, 0);
            for vid in 0..tags {
                frame.splice(12..12, [0x81, 0, 0x20, vid]);
            }
            if let Some((at, value)) = change
                && let Some(octet) = frame.get_mut(at)
            {
                *octet = value;
            }
            frame
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn both_ways_say_the_same(frame in frame(), inner: bool) {
        let keys = if inner { Keys::Inner } else { Keys::Outer };
        let slow = written(|to| slow::parse(&frame, &SEEN, keys, to));
        prop_assert_eq!(written(|to| parse_into(&frame, &SEEN, keys, to.feature, to.layers)), slow);
        prop_assert_eq!(parse(&frame, LinkType::Ethernet, keys, 7, 3), slow);
        if let Ok((feature, layers)) = slow {
            prop_assert!(layers.ip < layers.end && layers.payload <= layers.end);
            prop_assert!(usize::from(layers.end) <= frame.len());
            prop_assert!(layers.transport == 0 || layers.transport <= layers.payload);
            prop_assert!(feature.ip_len >= 20 && feature.vlan < 4096 && feature.tcp_flags < 4096);
            prop_assert!(feature.shape & SHAPE_NO_TRANSPORT == 0 || feature.tcp_flags == 0);
        }
    }

    #[test]
    fn never_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        kind in proptest::sample::select(&[0x0800u16, 0x86DD, 0x8100, 0x8847, 0x8864, 0x88A8][..]),
        version in proptest::sample::select(&[0x45u8, 0x46, 0x60, 0][..]),
        wire_len: u16,
    ) {
        let mut frame = bytes.clone();
        if let Some(start) = frame.first_chunk_mut::<16>() {
            start[12..14].copy_from_slice(&kind.to_be_bytes());
            start[14] = version;
        }
        for link in [LinkType::Ethernet, LinkType::RawIp, LinkType::LinuxCooked, LinkType::LinuxCooked2] {
            for keys in [Keys::Outer, Keys::Inner] {
                for bytes in [&bytes, &frame] {
                    let _ = parse_cut(bytes, usize::from(wire_len), link, keys, 0, 0);
                }
            }
        }
    }
}
