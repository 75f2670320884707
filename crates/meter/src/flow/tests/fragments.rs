//! Fragments as they come from the wire: what stands between IP and the transport shows
//! differently in the first fragment and in the later ones.

use sonde_wire::feature::{self, Feature, Keys};
use sonde_wire::flow::LinkType;

use super::super::{FlowCache, features};
use super::basics::{START, config};

/// An authentication header of 24 octets (RFC 4302).
fn ah(next: u8) -> Vec<u8> {
    let mut header = vec![next, 4, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1];
    header.resize(24, 0xAA);
    header
}

/// Destination options that are only padding.
fn options(next: u8) -> Vec<u8> {
    vec![next, 0, 1, 4, 0, 0, 0, 0]
}

fn tcp() -> Vec<u8> {
    let mut segment = vec![0xC3, 0x50, 0x01, 0xBB, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0];
    segment.resize(64, 0);
    segment
}

/// The fragments of a datagram, 24 octets and the rest; raw IP.
fn fragments(ipv6: bool, protocol: u8, payload: &[u8]) -> Vec<Vec<u8>> {
    let parts = [(0, &payload[..48]), (6u16, &payload[48..])];
    let of = |(offset, part): (u16, &[u8])| {
        let more = u16::from(offset == 0);
        let mut frame = if ipv6 {
            let mut frame = vec![0x60, 0, 0, 0, 0, part.len() as u8 + 8, 44, 64];
            frame.extend([[0x20; 16], [0x30; 16]].concat());
            frame.extend([protocol, 0]);
            frame.extend((offset << 3 | more).to_be_bytes());
            frame.extend([0, 0, 0, 77]);
            frame
        } else {
            let mut frame = vec![0x45, 0, 0, part.len() as u8 + 20, 0, 77];
            frame.extend((offset | more << 13).to_be_bytes());
            frame.extend([64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
            frame
        };
        frame.extend(part);
        frame
    };
    parts.into_iter().map(of).collect()
}

#[test]
fn later_fragments_find_their_flow_behind_whatever_headers() {
    const TCP: u8 = 6;
    let cases: [(bool, u8, Vec<u8>); 6] = [
        (false, TCP, tcp()),
        (false, 51, [ah(TCP), tcp()].concat()),
        (true, TCP, tcp()),
        (true, 51, [ah(TCP), tcp()].concat()),
        (true, 60, [options(TCP), tcp()].concat()),
        (true, 60, [options(51), ah(TCP), tcp()].concat()),
    ];
    for (i, (ipv6, protocol, payload)) in cases.into_iter().enumerate() {
        let frames = fragments(ipv6, protocol, &payload);
        let link = LinkType::RawIp;
        let packets: Vec<Feature> = frames
            .iter()
            .map(|frame| feature::parse(frame, link, Keys::Outer, START, 0).unwrap().0)
            .collect();
        assert_eq!(packets[1].protocol, protocol, "case {i}: what the later one shows");
        let mut config = config(64);
        config.features = features::Config { tcp: true, ..config.features };
        let mut cache = FlowCache::new(config);
        let mut records = Vec::new();
        cache.burst(&packets, &[], &mut |record| records.push(record));
        cache.finish(START, &mut |record| records.push(record));
        assert_eq!(records.len(), 1, "case {i}: {records:?}");
        let key = &records[0].key;
        let ports = (key.protocol, key.source_port, key.destination_port);
        assert_eq!(ports, (TCP, 50_000, 443), "case {i}");
        assert_eq!(records[0].forward.packets, 2, "case {i}");
        assert_eq!(cache.counters().fragments_unmatched, 0, "case {i}");
    }
}
