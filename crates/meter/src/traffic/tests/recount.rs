//! The truth against a count of the frames themselves, by the crate's own parser.

use std::collections::HashMap;

use sonde_wire::feature::{self, Keys, SHAPE_FRAGMENT, SHAPE_LATER_FRAGMENT};
use sonde_wire::flow::LinkType;

use crate::traffic::*;

/// Key as the parser says it: addresses, ports, protocol.
type Key = ([u8; 16], [u8; 16], u16, u16, u8);

fn mapped(address: std::net::IpAddr) -> [u8; 16] {
    match address {
        std::net::IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(a) => a.octets(),
    }
}

/// All frames and the truth of one run.
pub(super) fn run(config: Config) -> (Vec<(i64, Vec<u8>)>, Vec<FlowTruth>) {
    println!("{config:?}");
    let mut buffer = vec![0xA5; config.longest_frame()];
    let mut generator = FlowGenerator::new(config).unwrap();
    let (mut frames, mut truth) = (Vec::new(), Vec::new());
    while let Some(at) = generator.next_at() {
        let len = generator.emit(at, &mut buffer, &mut |t| truth.push(t.clone()));
        frames.push((at, buffer[..len].to_vec()));
    }
    generator.finish(&mut |t| truth.push(t.clone()));
    (frames, truth)
}

/// Counts frames by key; later fragments by the identification of the first one.
fn recount(frames: &[(i64, Vec<u8>)], keys: Keys) -> HashMap<Key, FlowSideTruth> {
    let mut found: HashMap<Key, FlowSideTruth> = HashMap::new();
    let mut fragments = HashMap::new();
    let mut last = i64::MIN;
    for (at, frame) in frames {
        assert!(*at >= last, "times go back");
        last = *at;
        let (packet, _) = feature::parse(frame, LinkType::Ethernet, keys, *at, 0).unwrap();
        let mut ports = match packet.protocol {
            6 | 17 => (packet.source_port, packet.destination_port),
            _ => (0, 0),
        };
        if packet.shape & SHAPE_FRAGMENT != 0 {
            let key = (packet.source, packet.destination, packet.sequence);
            if packet.shape & SHAPE_LATER_FRAGMENT != 0 {
                ports = fragments[&key];
            }
            fragments.insert(key, ports);
        }
        let key = (packet.source, packet.destination, ports.0, ports.1, packet.protocol);
        let side = found.entry(key).or_default();
        if side.packets == 0 {
            side.first_ns = *at;
        }
        side.packets += 1;
        side.bytes += u64::from(packet.ip_len);
        side.last_ns = *at;
        side.tcp_flags |= packet.tcp_flags as u8;
    }
    found
}

/// Every direction of the truth, by key; none twice.
fn reported(truth: &[FlowTruth]) -> HashMap<Key, FlowSideTruth> {
    let mut all = HashMap::new();
    for t in truth {
        let (s, d) = (mapped(t.source), mapped(t.destination));
        let (sp, dp) = (t.source_port, t.destination_port);
        for (key, side) in
            [((s, d, sp, dp, t.protocol), t.forward), ((d, s, dp, sp, t.protocol), t.reverse)]
        {
            if side.packets > 0 {
                assert_eq!(all.insert(key, side), None, "two flows have the key {key:?}");
            }
        }
    }
    all
}

/// Runs, counts and compares; returns how many directions of flows there were.
fn check(config: Config) -> usize {
    let keys = match config.keys {
        TruthKeys::Outer => Keys::Outer,
        TruthKeys::Inner => Keys::Inner,
    };
    let (frames, truth) = run(config);
    let (found, reported) = (recount(&frames, keys), reported(&truth));
    for (key, side) in &found {
        assert!(reported.contains_key(key), "{key:?} {side:?} is not reported");
    }
    for (key, side) in &reported {
        assert_eq!(Some(side), found.get(key), "{key:?}");
    }
    reported.len()
}

pub(super) fn small() -> Config {
    Config { seed: 4711, flows: 300, packets: Some(60_000), ..Config::default() }
}

#[test]
fn plain_traffic_is_counted_right() {
    assert!(check(small()) > 1_000);
}

#[test]
fn reordered_and_fragmented_traffic_is_counted_right() {
    let reorder = Reorder { share: 0.2, distance: 3 };
    assert!(check(Config { reorder, fragments: 0.1, ..small() }) > 1_000);
}

#[test]
fn encapsulated_traffic_is_counted_right_by_either_header() {
    let encapsulation =
        Shares { vlan: 0.15, qinq: 0.15, mpls: 0.15, gre: 0.1, vxlan: 0.1, gtpu: 0.1, geneve: 0.1 };
    for keys in [TruthKeys::Outer, TruthKeys::Inner] {
        let config = Config { encapsulation, keys, fragments: 0.05, ipv6: 0.5, ..small() };
        assert!(check(config) > 1_000);
    }
}

#[test]
fn the_round_is_as_flow_md_describes_it() {
    let sizes = Sizes::constant(64);
    let (flows, packets) = (1 << 11, 1 << 13);
    for net in [Net::Benchmark, Net::Private] {
        let config = Config {
            order: PacketOrder::RoundRobin,
            arrival: ArrivalProcess::Constant,
            flows,
            packets: Some(packets),
            sizes: sizes.clone(),
            net,
            ..small()
        };
        let (frames, truth) = run(config.clone());
        assert_eq!(check(config), flows as usize);
        assert_eq!(truth.len(), flows as usize);
        for (i, (at, frame)) in frames.iter().enumerate() {
            assert_eq!((*at, frame.len()), (i as i64 * 1_000, 60));
            let flow = (i as u64 * 0x9E37_79B1 % u64::from(flows)) as u32;
            let source = u32::from_be_bytes(frame[26..30].try_into().unwrap());
            assert_eq!(source & 0xFFFF, flow);
        }
        for flow in truth {
            assert_eq!((flow.forward.packets, flow.forward.bytes), (4, 4 * 46));
        }
    }
}

/// Short flows, so that some end within what is taken back.
#[test]
fn frames_that_are_taken_back_are_in_no_flow_of_the_truth() {
    let reorder = Reorder { share: 0.2, distance: 3 };
    let encapsulation = Shares { vxlan: 0.2, ..Shares::default() };
    for (total_flows, kept, back) in [(None, 700, 700), (None, 64, 1), (Some(400), 900, 333)] {
        let length = Length::Constant(5);
        let config = Config { reorder, fragments: 0.1, length, total_flows, ..small() };
        let config = Config { encapsulation, keys: TruthKeys::Outer, ..config };
        let mut buffer = vec![0; config.longest_frame()];
        let mut generator = FlowGenerator::new(config).unwrap();
        generator.keep_recent(kept);
        let (mut frames, mut truth) = (Vec::new(), Vec::new());
        while frames.len() < 1_900
            && let Some(at) = generator.next_at()
        {
            let len = generator.emit(at, &mut buffer, &mut |t| truth.push(t.clone()));
            frames.push((at, buffer[..len].to_vec()));
        }
        let octets: usize = frames.drain(frames.len() - back..).map(|(_, f)| f.len()).sum();
        assert_eq!(generator.take_back(back as u64), (back as u64, octets as u64));
        assert_eq!(generator.packets(), frames.len() as u64);
        generator.finish(&mut |t| truth.push(t.clone()));
        assert_eq!(reported(&truth), recount(&frames, Keys::Outer), "{total_flows:?} {back}");
    }
}

#[test]
fn no_more_is_taken_back_than_is_kept() {
    let mut buffer = vec![0; small().longest_frame()];
    let mut generator = FlowGenerator::new(small()).unwrap();
    assert_eq!(generator.take_back(1), (0, 0));
    generator.keep_recent(3);
    (0..10).for_each(|at| assert!(generator.emit(at, &mut buffer, &mut |_| {}) > 0));
    assert_eq!(generator.take_back(u64::MAX).0, 3);
    assert_eq!(generator.packets(), 7);
}
