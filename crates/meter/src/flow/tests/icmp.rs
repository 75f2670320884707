//! ICMP requests and replies: one biflow, each direction with its own type.

use std::net::{IpAddr, Ipv6Addr};

use sonde_results::flow::{FlowEnd, FlowRecord};
use sonde_wire::feature::{Feature, SHAPE_FRAGMENT, SHAPE_IPV6, SHAPE_LATER_FRAGMENT};

use super::super::{Config, FlowCache};
use super::basics::{MS, S, START, config};

/// From host 1 to host 2, or back.
fn message(ipv6: bool, kind: u8, code: u8, back: bool, at: i64) -> Feature {
    let host = |last: u16| match ipv6 {
        true => Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, last).octets(),
        false => Ipv6Addr::new(0, 0, 0, 0, 0, 0xFFFF, 0xC000, 0x0200 + last).octets(),
    };
    let (source, destination) = if back { (host(2), host(1)) } else { (host(1), host(2)) };
    Feature {
        at_ns: START + at,
        source,
        destination,
        destination_port: u16::from_be_bytes([kind, code]),
        ip_len: 84,
        protocol: if ipv6 { 58 } else { 1 },
        shape: if ipv6 { SHAPE_IPV6 } else { 0 },
        ..Feature::default()
    }
}

/// Of each record: the last octet of the source, ports, packets each way.
fn metered(config: Config, packets: &[Feature]) -> Vec<(u8, u16, u16, u64, u64)> {
    let mut records = Vec::new();
    let mut cache = FlowCache::new(config);
    for packet in packets {
        cache.burst(&[*packet], &[], &mut |record| records.push(record));
        let held = cache.occupancy();
        assert_eq!((held.packets, held.bytes), cache.scan_held());
    }
    cache.finish(packets[packets.len() - 1].at_ns, &mut |record| records.push(record));
    let last = |record: &FlowRecord| match record.key.source {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    let mut found: Vec<_> = records
        .iter()
        .map(|record| {
            let (key, forward, reverse) = (&record.key, &record.forward, &record.reverse);
            let packets = (forward.packets, reverse.packets);
            (last(record), key.source_port, key.destination_port, packets.0, packets.1)
        })
        .collect();
    found.sort();
    let all: u64 = found.iter().map(|record| record.3 + record.4).sum();
    assert_eq!(all, packets.len() as u64);
    found
}

const PAIRS: [(bool, u8, u8); 3] = [(false, 8, 0), (false, 13, 14), (true, 128, 129)];

#[test]
fn a_reply_counts_to_the_flow_of_its_request() {
    for (ipv6, request, reply) in PAIRS {
        let packets = [
            message(ipv6, request, 0, false, 0),
            message(ipv6, reply, 0, true, MS),
            message(ipv6, request, 0, false, S),
            message(ipv6, reply, 0, true, S + MS),
            message(ipv6, request, 0, false, 2 * S),
        ];
        let wanted = u16::from(request) << 8;
        assert_eq!(metered(config(64), &packets), [(1, 0, wanted, 3, 2)]);
        // Each direction by itself, where that is wanted.
        let uniflow = Config { biflow: false, ..config(64) };
        let back = u16::from(reply) << 8;
        assert_eq!(metered(uniflow, &packets), [(1, 0, wanted, 3, 0), (2, 0, back, 2, 0)]);
    }
}

/// Both hosts may ask at once, and a host may ask itself.
#[test]
fn who_asks_whom_is_kept_apart() {
    for (ipv6, request, reply) in PAIRS {
        let mut packets = vec![
            message(ipv6, request, 0, false, 0),
            message(ipv6, request, 0, true, 1),
            message(ipv6, reply, 0, true, 2),
            message(ipv6, reply, 0, false, 3),
            message(ipv6, reply, 0, false, 4),
        ];
        let wanted = u16::from(request) << 8;
        assert_eq!(metered(config(64), &packets), [(1, 0, wanted, 1, 1), (2, 0, wanted, 1, 2)]);
        packets.truncate(3);
        packets.remove(1);
        packets.iter_mut().for_each(|packet| packet.destination = packet.source);
        (packets[1].source, packets[1].destination) = (packets[0].source, packets[0].source);
        assert_eq!(metered(config(64), &packets), [(1, 0, wanted, 1, 1)]);
    }
}

/// A record has the type of its first packet, which is never a reply that belongs to a request.
/// Without one, replies are a flow of their own.
#[test]
fn replies_without_a_request_are_their_own_flow() {
    for (ipv6, request, reply) in PAIRS {
        let packets = [
            message(ipv6, reply, 0, true, 0),
            message(ipv6, reply, 0, true, 1),
            message(ipv6, request, 0, false, 2),
            message(ipv6, reply, 0, true, 3),
        ];
        let (there, back) = (u16::from(request) << 8, u16::from(reply) << 8);
        assert_eq!(metered(config(64), &packets), [(1, 0, there, 1, 1), (2, 0, back, 2, 0)]);
        // Also after the request's flow has ended; not where only its record has.
        let packets = [message(ipv6, request, 0, false, 0), message(ipv6, reply, 0, true, S)];
        let idle = Config { idle_ns: S, ..config(64) };
        assert_eq!(metered(idle, &packets), [(1, 0, there, 1, 0), (2, 0, back, 1, 0)]);
        let active = Config { active_ns: S, ..config(64) };
        assert_eq!(metered(active, &packets), [(1, 0, there, 0, 1), (1, 0, there, 1, 0)]);
    }
}

#[test]
fn errors_and_other_codes_are_flows_of_their_own() {
    let packets = [
        message(false, 8, 0, false, 0),
        message(false, 3, 1, true, 1),
        message(false, 0, 1, true, 2),
        message(false, 8, 1, false, 3),
        message(true, 135, 0, false, 4),
        message(true, 136, 0, true, 5),
    ];
    assert_eq!(metered(config(64), &packets).len(), packets.len());
}

/// A long ping in pieces; and a later fragment alone, whose type is not known to be 0.
#[test]
fn fragments_of_replies_count_to_the_request() {
    let first = |packet: Feature| Feature { shape: packet.shape | SHAPE_FRAGMENT, ..packet };
    let later = |packet: Feature| Feature {
        destination_port: 0,
        shape: packet.shape | SHAPE_FRAGMENT | SHAPE_LATER_FRAGMENT,
        ..packet
    };
    for (ipv6, request, reply) in PAIRS {
        let (there, back) =
            (message(ipv6, request, 0, false, 0), message(ipv6, reply, 0, true, MS));
        let packets = [first(there), later(there), first(back), later(back)];
        let wanted = u16::from(request) << 8;
        assert_eq!(metered(config(64), &packets), [(1, 0, wanted, 2, 2)]);
        let found = metered(config(64), &[there, later(back)]);
        assert_eq!(found, [(1, 0, wanted, 1, 0), (2, 0, 0, 1, 0)]);
    }
}

/// What the request's flow had is exported when it is full, and the reply is not lost.
#[test]
fn a_full_counter_ends_the_pair() {
    let mut reply = message(false, 0, 0, true, 1);
    reply.ip_len = u32::MAX;
    let mut cache = FlowCache::new(config(64));
    let (mut packets, mut bytes, mut actives) = (0, 0, 0);
    let mut sink = |record: FlowRecord| {
        packets += record.forward.packets + record.reverse.packets;
        bytes += record.forward.bytes + record.reverse.bytes;
        actives += u64::from(record.end == FlowEnd::Active);
    };
    cache.burst(&[message(false, 8, 0, false, 0)], &[], &mut sink);
    let offered = (1u64 << 16) + 100;
    (0..offered).for_each(|_| cache.burst(&[reply], &[], &mut sink));
    cache.finish(START + S, &mut sink);
    assert_eq!((packets, bytes), (offered + 1, offered * u64::from(u32::MAX) + 84));
    assert_eq!(actives, 1);
}
