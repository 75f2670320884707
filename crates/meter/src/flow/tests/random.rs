//! Whatever comes: offered = exported + held + refused, packets and bytes, in every state.

use std::collections::HashMap;

use proptest::prelude::*;
use sonde_results::flow::FlowRecord;
use sonde_wire::feature::{Feature, SHAPE_FRAGMENT, SHAPE_IPV6, SHAPE_LATER_FRAGMENT};

use super::super::{Config, FlowCache, features};
use super::basics::START;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Event {
    /// Packets of few or many flows, so much later each.
    Packets(Vec<(Draft, i64)>),
    /// So much later, or earlier, the caller looks.
    Timeout(i64),
    /// The clock is set.
    Set(i64),
    Refused(usize),
}

/// A packet: which flow, and what kind.
#[derive(Clone, Debug)]
struct Draft {
    flow: u16,
    reverse: bool,
    len: u32,
    flags: u16,
    shape: u8,
    identification: u32,
}

fn draft() -> impl Strategy<Value = Draft> {
    let flow = prop_oneof![0..8u16, 0..64u16, any::<u16>()];
    let len = prop_oneof![20..1_500u32, any::<u32>()];
    let flags = prop_oneof![Just(16u16), Just(2), Just(17), Just(4), any::<u16>()];
    let shape = prop_oneof![
        8 => Just(0),
        2 => Just(SHAPE_IPV6),
        1 => Just(SHAPE_FRAGMENT),
        1 => Just(SHAPE_FRAGMENT | SHAPE_LATER_FRAGMENT),
        1 => any::<u8>(),
    ];
    (flow, any::<bool>(), len, flags, shape, 0..4u32).prop_map(
        |(flow, reverse, len, flags, shape, identification)| Draft {
            flow,
            reverse,
            len,
            flags,
            shape,
            identification,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let gap = prop_oneof![
        8 => 0..1_000i64,
        4 => -1_000_000..100_000_000i64,
        2 => -3_000_000_000..3_000_000_000i64,
        1 => -50_000_000_000_000..50_000_000_000_000i64,
    ];
    prop_oneof![
        8 => prop::collection::vec((draft(), gap.clone()), 1..80).prop_map(Event::Packets),
        2 => gap.prop_map(Event::Timeout),
        1 => any::<i64>().prop_map(Event::Set),
        1 => (0..2_000usize).prop_map(Event::Refused),
    ]
}

fn feature(draft: &Draft, at_ns: i64) -> Feature {
    let (mut one, mut other) = ([0; 16], [0; 16]);
    one[12..14].copy_from_slice(&draft.flow.to_be_bytes());
    other[15] = 1;
    let (mut ports, later) = ((1_000, 80), draft.shape & SHAPE_LATER_FRAGMENT != 0);
    if draft.reverse {
        (one, other) = (other, one);
        ports = (ports.1, ports.0);
    }
    if later {
        ports = (0, 0);
    }
    Feature {
        at_ns,
        source: one,
        destination: other,
        source_port: ports.0,
        destination_port: ports.1,
        ip_len: draft.len,
        sequence: draft.identification,
        tcp_flags: draft.flags,
        protocol: if draft.flow & 1 == 0 { 6 } else { 17 },
        shape: draft.shape,
        ..Feature::default()
    }
}

/// Packets and bytes, by address family and unordered addresses.
#[derive(Default, PartialEq, Debug)]
struct Sums(HashMap<[[u8; 16]; 2], (u64, u64)>, (u64, u64));

impl Sums {
    fn add(&mut self, mut ends: [[u8; 16]; 2], packets: u64, bytes: u64) {
        ends.sort();
        for sum in [self.0.entry(ends).or_default(), &mut self.1] {
            sum.0 += packets;
            sum.1 += bytes;
        }
    }

    fn record(&mut self, record: &FlowRecord) {
        let octets = |address: std::net::IpAddr| match address {
            std::net::IpAddr::V4(v4) => {
                let mut bytes = [0; 16];
                bytes[12..].copy_from_slice(&v4.octets());
                bytes
            }
            std::net::IpAddr::V6(v6) => v6.octets(),
        };
        let ends = [octets(record.key.source), octets(record.key.destination)];
        for side in [record.forward, record.reverse] {
            self.add(ends, side.packets, side.bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_nothing_is_made_up(
        flows in prop_oneof![8..64usize, 64..5_000usize],
        idle_ns in prop_oneof![1_000_000..2_000_000_000i64, Just(43_200_000_000_000)],
        active_ns in prop_oneof![1_000_000..10_000_000_000i64, Just(43_200_000_000_000)],
        biflow in any::<bool>(),
        secret in any::<[u64; 2]>(),
        wants in any::<bool>(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let features = features::Config { tcp: wants, packets: 3 * u8::from(wants), ..Default::default() };
        let mut cache =
            FlowCache::new(Config {
                flows, idle_ns, active_ns, biflow, secret, features, ..Config::default()
            });
        let (mut offered, mut exported) = (Sums::default(), Sums::default());
        let (mut at, mut refused) = (START, 0);
        for event in &events {
            let mut sink = |record: FlowRecord| exported.record(&record);
            match event {
                Event::Packets(drafts) => {
                    let mut burst = Vec::new();
                    for (draft, gap) in drafts {
                        at = at.saturating_add(*gap);
                        let packet = feature(draft, at);
                        offered.add([packet.source, packet.destination], 1, packet.ip_len.into());
                        burst.push(packet);
                    }
                    cache.burst(&burst, &[], &mut sink);
                }
                Event::Timeout(gap) => {
                    at = at.saturating_add(*gap);
                    cache.handle_timeout(at, &mut sink);
                }
                Event::Set(to) => at = *to,
                Event::Refused(len) => {
                    cache.refused(sonde_wire::Error::Truncated, *len);
                    refused += 1;
                }
            }
            let held = cache.occupancy();
            prop_assert_eq!((held.packets, held.bytes), cache.scan_held());
            prop_assert_eq!(offered.1.0, exported.1.0 + held.packets);
            prop_assert_eq!(offered.1.1, exported.1.1 + held.bytes);
            prop_assert!(held.flows <= flows as u64);
            prop_assert_eq!(cache.counters().refused(), refused);
        }
        cache.finish(at, &mut |record| exported.record(&record));
        prop_assert_eq!(cache.scan_held(), (0, 0));
        prop_assert_eq!(cache.occupancy().flows, 0);
        // Not only together: to the hosts that sent them.
        prop_assert_eq!(offered, exported);
    }
}
