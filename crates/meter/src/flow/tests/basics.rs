//! One thing at a time, with few packets.

use std::net::Ipv4Addr;

use sonde_results::flow::{FlowEnd, FlowRecord};
use sonde_wire::feature::{Feature, Layers, SHAPE_FRAGMENT, SHAPE_IPV6, SHAPE_LATER_FRAGMENT};

use super::super::{Config, FlowCache};

pub(super) const MS: i64 = 1_000_000;
pub(super) const S: i64 = 1_000 * MS;
pub(super) const START: i64 = 1_700_000_000 * S;
pub(super) const FIN: u16 = 1;
pub(super) const SYN: u16 = 2;
pub(super) const RST: u16 = 4;
pub(super) const ACK: u16 = 16;

/// Idle after 10 s, active after 60 s.
pub(super) fn config(flows: usize) -> Config {
    Config { flows, idle_ns: 10 * S, active_ns: 60 * S, secret: [1, 2], ..Config::default() }
}

/// A cache and what it gave out.
pub(super) struct Meter {
    pub(super) cache: FlowCache,
    pub(super) records: Vec<FlowRecord>,
}

impl Meter {
    pub(super) fn new(config: Config) -> Self {
        Meter { cache: FlowCache::new(config), records: Vec::new() }
    }

    pub(super) fn packet(&mut self, packet: Feature) -> &mut Self {
        self.cache.burst(&[packet], &[], &mut |record| self.records.push(record));
        self
    }

    pub(super) fn timeout(&mut self, now: i64) -> &mut Self {
        self.cache.handle_timeout(now, &mut |record| self.records.push(record));
        self
    }

    pub(super) fn finish(&mut self, now: i64) -> Vec<FlowRecord> {
        self.cache.finish(now, &mut |record| self.records.push(record));
        assert_eq!(self.cache.occupancy().packets + self.cache.occupancy().flows, 0);
        std::mem::take(&mut self.records)
    }
}

/// A TCP packet of 100 bytes from client to server, `at` after the start.
pub(super) fn packet(at: i64) -> Feature {
    Feature {
        at_ns: START + at,
        source: Ipv4Addr::new(192, 0, 2, 200).to_ipv6_mapped().octets(),
        destination: Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets(),
        source_port: 50_000,
        destination_port: 443,
        ip_len: 100,
        tcp_flags: ACK,
        protocol: 6,
        tos: 4,
        ttl: 64,
        ..Feature::default()
    }
}

pub(super) fn answer(at: i64) -> Feature {
    let packet = packet(at);
    Feature {
        source: packet.destination,
        destination: packet.source,
        source_port: packet.destination_port,
        destination_port: packet.source_port,
        ip_len: 1_000,
        ttl: 50,
        tos: 8,
        ..packet
    }
}

pub(super) fn with(packet: Feature, tcp_flags: u16) -> Feature {
    Feature { tcp_flags, ..packet }
}

#[test]
fn a_biflow_has_both_directions_and_begins_with_the_first_sender() {
    for answer_first in [false, true] {
        let mut meter = Meter::new(config(8));
        let one = |at| if answer_first { answer(at) } else { packet(at) };
        let other = |at| if answer_first { packet(at) } else { answer(at) };
        meter.packet(one(0)).packet(other(5)).packet(one(7)).packet(Feature {
            ttl: 10,
            tos: 99,
            tcp_flags: 0x810,
            ..one(9)
        });
        let records = meter.finish(START + 10);
        let [record] = &records[..] else { panic!("{records:?}") };
        assert_eq!(record.end, FlowEnd::Forced);
        assert_eq!(record.key.source_port, one(0).source_port);
        assert_eq!(record.key.destination_port, other(0).source_port);
        assert_eq!(record.key.source.to_string().ends_with("200"), !answer_first);
        let (forward, reverse) = (record.forward, record.reverse);
        assert_eq!((forward.packets, reverse.packets), (3, 1));
        assert_eq!(forward.bytes, 3 * u64::from(one(0).ip_len));
        assert_eq!(reverse.bytes, u64::from(other(0).ip_len));
        assert_eq!((forward.first_ns, forward.last_ns), (START, START + 9));
        assert_eq!((reverse.first_ns, reverse.last_ns), (START + 5, START + 5));
        assert_eq!((forward.tcp_flags, reverse.tcp_flags), (0x810, ACK));
        assert_eq!((forward.ttl_min, forward.ttl_max), (10, one(0).ttl));
        assert_eq!((reverse.ttl_min, reverse.ttl_max), (other(0).ttl, other(0).ttl));
        assert_eq!((forward.tos, reverse.tos), (one(0).tos, other(0).tos));
    }
}

#[test]
fn uniflows_are_one_way() {
    let mut meter = Meter::new(Config { biflow: false, ..config(8) });
    meter.packet(packet(0)).packet(answer(1)).packet(packet(2));
    let mut records = meter.finish(START + 3);
    records.sort_by_key(|record| record.forward.first_ns);
    assert_eq!(records.len(), 2);
    assert_eq!([records[0].forward.packets, records[1].forward.packets], [2, 1]);
    assert_eq!([records[0].reverse.packets, records[1].reverse.packets], [0, 0]);
    assert_eq!(records[1].key.source_port, 443);
}

#[test]
fn ipv6_flows_differ_by_all_their_bits() {
    let mut meter = Meter::new(config(64));
    for bit in 0..32 {
        for _ in 0..2 {
            let mut packet = packet(bit);
            packet.shape = SHAPE_IPV6;
            packet.source = [0x20; 16];
            packet.source[bit as usize / 2] ^= 1 << (bit % 8);
            meter.packet(packet);
        }
    }
    let records = meter.finish(START + 40);
    assert_eq!(records.len(), 32);
    assert!(records.iter().all(|r| r.forward.packets == 2 && r.key.source.is_ipv6()));
}

/// Keys hold a hash of IPv6 addresses. Two flows with the same one are still two.
#[test]
fn ipv6_addresses_are_compared_whole() {
    let packet = |at| Feature { shape: SHAPE_IPV6, ..packet(at) };
    for word in 0..4 {
        let mut meter = Meter::new(config(8));
        meter.packet(packet(0));
        meter.cache.addresses_mut(0)[word] ^= 1 << 40;
        meter.packet(packet(1)).packet(packet(2));
        let packets = meter.finish(START + 3).iter().map(|r| r.forward.packets).collect::<Vec<_>>();
        assert_eq!(packets, [1, 2]);
    }
}

#[test]
fn vlan_and_interface_are_part_of_the_key() {
    let mut meter = Meter::new(config(8));
    meter.packet(packet(0)).packet(Feature { vlan: 7, ..packet(0) });
    meter.packet(Feature { point: 3, ..packet(0) }).packet(Feature { vlan: 7, ..packet(1) });
    let mut found: Vec<_> = meter
        .finish(START + 2)
        .iter()
        .map(|r| (r.key.vlan, r.key.point, r.forward.packets))
        .collect();
    found.sort();
    assert_eq!(found, [(0, 0, 1), (0, 3, 1), (7, 0, 2)]);
}

/// A gap one nanosecond shorter than the time-out does not split, whatever the caller does
/// in between; the time-out itself does.
#[test]
fn the_idle_time_out_is_exact() {
    let mut meter = Meter::new(config(8));
    meter.packet(packet(0)).timeout(START + 10 * S - 1).packet(packet(10 * S - 1));
    assert_eq!(meter.records, []);
    meter.packet(packet(20 * S - 1));
    assert_eq!(meter.records.len(), 1);
    assert_eq!((meter.records[0].end, meter.records[0].forward.packets), (FlowEnd::Idle, 2));
    let records = meter.finish(START + 20 * S);
    assert_eq!((records[1].end, records[1].forward.packets), (FlowEnd::Forced, 1));
}

#[test]
fn idle_flows_leave_without_packets_at_most_a_second_late() {
    let mut meter = Meter::new(config(8));
    meter.packet(packet(0));
    let mut now = START;
    while meter.records.is_empty() {
        now += 50 * MS;
        meter.timeout(now);
        assert!(now <= START + 11 * S, "not exported in time");
    }
    assert!(now >= START + 10 * S, "exported before its time");
    assert_eq!(meter.records[0].end, FlowEnd::Idle);
    assert_eq!(meter.cache.occupancy().flows, 0);
}

#[test]
fn the_active_time_out_is_exact_and_the_flow_goes_on() {
    let mut meter = Meter::new(config(8));
    for second in 0..=125 {
        meter.packet(packet(second * S));
    }
    let ends: Vec<_> =
        meter.records.iter().map(|r| (r.end, r.forward.packets, r.forward.first_ns)).collect();
    assert_eq!(ends, [(FlowEnd::Active, 60, START), (FlowEnd::Active, 60, START + 60 * S)]);
    let records = meter.finish(START + 125 * S);
    assert_eq!((records[2].end, records[2].forward.packets), (FlowEnd::Forced, 6));
    assert_eq!(meter.cache.counters().ended_active, 2);
}

#[test]
fn what_ended_first_is_the_reason() {
    let mut meter = Meter::new(config(8));
    for second in 0..55 {
        meter.packet(packet(second * S));
    }
    meter.timeout(START + 1_000 * S);
    assert_eq!(meter.records[0].end, FlowEnd::Active);
    let mut meter = Meter::new(config(8));
    meter.packet(packet(0)).packet(packet(49 * S)).timeout(START + 1_000 * S);
    assert_eq!(meter.records[0].end, FlowEnd::Idle);
}

#[test]
fn a_closed_connection_lingers_for_the_last_acknowledgement() {
    let mut meter = Meter::new(config(8));
    meter.packet(with(packet(0), SYN)).packet(with(answer(1), SYN | ACK)).packet(packet(2));
    meter.packet(with(packet(3), FIN | ACK)).packet(with(answer(4), FIN | ACK));
    meter.packet(packet(5)).timeout(START + S);
    assert_eq!(meter.records, []);
    meter.timeout(START + 2 * S + 4);
    assert_eq!(meter.records.len(), 1);
    assert_eq!(meter.records[0].end, FlowEnd::EndDetected);
    assert_eq!((meter.records[0].forward.packets, meter.records[0].reverse.packets), (4, 2));
}

#[test]
fn a_reset_closes_at_once_and_one_fin_does_not() {
    let mut meter = Meter::new(config(8));
    meter.packet(packet(0)).packet(with(answer(1), RST)).timeout(START + 3 * S);
    assert_eq!(meter.records[0].end, FlowEnd::EndDetected);
    meter.packet(with(packet(4 * S), FIN)).timeout(START + 8 * S);
    assert_eq!(meter.records.len(), 1);
}

#[test]
fn a_syn_on_a_closed_connection_begins_another() {
    let mut meter = Meter::new(config(8));
    meter.packet(with(packet(0), FIN)).packet(with(answer(1), FIN));
    meter.packet(with(packet(2), SYN));
    assert_eq!((meter.records.len(), meter.records[0].end), (1, FlowEnd::EndDetected));
    // The closed one's linger must not end the new one.
    meter.timeout(START + 5 * S);
    assert_eq!(meter.records.len(), 1);
    assert_eq!(meter.finish(START + 5 * S)[1].forward.packets, 1);
    assert_eq!(meter.cache.counters().flows, 2, "each flow is counted once, as its record");
}

/// What the closed connection before it left behind does not end it early.
#[test]
fn a_connection_that_closes_again_has_its_own_linger() {
    let mut meter = Meter::new(config(8));
    meter.packet(packet(0)).packet(with(packet(1), RST)).packet(with(packet(S), SYN));
    meter.packet(with(packet(S + 1), RST)).timeout(START + 2 * S + 500 * MS);
    assert_eq!(meter.records.len(), 1);
    meter.timeout(START + 3 * S + 1);
    assert_eq!((meter.records.len(), meter.records[1].end), (2, FlowEnd::EndDetected));
}

#[test]
fn a_repeated_syn_is_no_new_connection() {
    let mut meter = Meter::new(config(8));
    meter.packet(with(packet(0), SYN)).packet(with(packet(S), SYN));
    assert_eq!(meter.finish(START + S).len(), 1);
}

#[test]
fn packets_out_of_order_count_and_leave_the_times_right() {
    let mut meter = Meter::new(config(8));
    meter.packet(packet(20 * MS)).packet(answer(30 * MS)).packet(packet(10 * MS));
    meter.packet(answer(5 * MS)).packet(packet(15 * MS));
    let record = &meter.finish(START + 40 * MS)[0];
    assert_eq!(
        (record.forward.first_ns, record.forward.last_ns),
        (START + 10 * MS, START + 20 * MS)
    );
    assert_eq!(
        (record.reverse.first_ns, record.reverse.last_ns),
        (START + 5 * MS, START + 30 * MS)
    );
    assert_eq!((record.forward.packets, record.reverse.packets), (3, 2));
    assert_eq!(meter.cache.counters().out_of_order, 3);
}

/// Half a second of disorder does not split a flow: the wheel waits for it.
#[test]
fn a_straggler_still_finds_its_flow() {
    let mut meter = Meter::new(config(8));
    meter.packet(packet(0)).packet(Feature { source_port: 1, ..packet(10 * S + 400 * MS) });
    meter.packet(packet(10 * S - 1));
    assert_eq!(meter.records, []);
    assert_eq!(meter.finish(START + 11 * S).len(), 2);
}

/// Also where the wheel comes by for an older deadline, within the half second.
#[test]
fn a_look_before_the_half_second_is_over_ends_nothing() {
    let mut meter = Meter::new(config(8));
    meter.packet(packet(0)).packet(packet(300 * MS)).timeout(START + 10 * S + 700 * MS);
    meter.packet(packet(10 * S + 299 * MS));
    assert_eq!(meter.records, []);
    assert_eq!(meter.finish(START + 11 * S)[0].forward.packets, 3);
}

/// Later fragments count to the flow of their first one, in whatever burst.
#[test]
fn fragments_count_to_their_flow() {
    let first =
        Feature { shape: SHAPE_FRAGMENT, sequence: 77, protocol: 17, tcp_flags: 0, ..packet(0) };
    let later = Feature {
        source_port: 0,
        destination_port: 0,
        shape: SHAPE_FRAGMENT | SHAPE_LATER_FRAGMENT,
        ..first
    };
    let mut meter = Meter::new(config(8));
    let burst = [first, later, later, Feature { sequence: 78, ..later }];
    meter.cache.burst(&burst, &[], &mut |_| panic!("nothing has ended"));
    meter.packet(later);
    let mut found: Vec<_> = meter
        .finish(START + 1)
        .iter()
        .map(|r| (r.key.destination_port, r.forward.packets))
        .collect();
    found.sort();
    assert_eq!(found, [(0, 1), (443, 4)]);
    assert_eq!(meter.cache.counters().fragments_unmatched, 1);
}

/// Counts beyond what a record holds make another record, and nothing is lost.
#[test]
fn full_counters_end_the_record() {
    let mut meter = Meter::new(config(8));
    let giant = Feature { ip_len: u32::MAX, ..packet(0) };
    for _ in 0..70_000 {
        meter.packet(giant);
    }
    let records = meter.finish(START);
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].end, FlowEnd::Active);
    assert!(records.iter().all(|r| r.forward.bytes < 1 << 48));
    let bytes: u64 = records.iter().map(|r| r.forward.bytes).sum();
    assert_eq!(bytes, 70_000 * u64::from(u32::MAX));
}

/// A gap of months ends flows as idle; a clock set back by years ends them by force.
#[test]
fn great_jumps_end_all_flows() {
    let mut meter = Meter::new(config(8));
    meter.packet(packet(0)).packet(packet(100 * 86_400 * S));
    assert_eq!((meter.records.len(), meter.records[0].end), (1, FlowEnd::Idle));
    meter.packet(packet(0)).packet(packet(1));
    assert_eq!((meter.records.len(), meter.records[1].end), (2, FlowEnd::Forced));
    assert_eq!(meter.records[1].forward.last_ns, START + 100 * 86_400 * S);
    let records = meter.finish(START + 1);
    assert_eq!((records.len(), records[2].forward.packets), (3, 2));
    assert_eq!(meter.cache.counters().clock_steps, 2);
}

/// The clock is set back by an hour while a flow goes on: it is not split, and ends in time
/// by the new clock.
#[test]
fn a_clock_set_back_splits_nothing() {
    let mut meter = Meter::new(Config { active_ns: 3_600 * S, ..config(8) });
    meter
        .packet(packet(0))
        .packet(packet(4 * S))
        .packet(Feature { source_port: 1, ..packet(4 * S) });
    let back = -3_600 * S;
    meter.timeout(START + back + 5 * S);
    for second in 6..30 {
        meter.packet(packet(back + second * S)).timeout(START + back + second * S);
    }
    // The other flow was idle since the step.
    assert_eq!((meter.records.len(), meter.records[0].key.source_port), (1, 1));
    assert_eq!(meter.records[0].end, FlowEnd::Idle);
    meter.timeout(START + back + 39 * S - 1);
    assert_eq!(meter.records.len(), 1);
    meter.timeout(START + back + 40 * S);
    assert_eq!((meter.records.len(), meter.records[1].end), (2, FlowEnd::Idle));
    assert_eq!(meter.records[1].forward.packets, 26);
    assert_eq!(meter.records[1].forward.last_ns, START + back + 29 * S);
}

/// As in a capture, where only packets give the time.
#[test]
fn packets_alone_set_the_clock_back() {
    let mut meter = Meter::new(config(8));
    meter.packet(packet(0));
    for i in 0..300 {
        meter.packet(packet(-100 * S + i * MS));
    }
    assert_eq!(meter.cache.counters().clock_steps, 1);
    assert_eq!(meter.records, []);
    meter.timeout(START - 80 * S);
    assert_eq!((meter.records.len(), meter.records[0].forward.packets), (1, 301));
    assert_eq!(meter.records[0].forward.first_ns, START - 100 * S);
}

#[test]
fn extreme_times_are_harmless() {
    let mut meter = Meter::new(config(8));
    for at_ns in [0, i64::MIN, i64::MAX, -1, 1, i64::MAX - 1, i64::MIN + 1] {
        meter.packet(Feature { at_ns, ..packet(0) }).timeout(at_ns);
    }
    assert_eq!(meter.finish(i64::MIN).iter().map(|r| r.forward.packets).sum::<u64>(), 7);
}

#[test]
fn features_are_called_for_the_first_packets_only() {
    let mut settings = config(8);
    settings.features.packets = 2;
    let mut meter = Meter::new(settings);
    let frame: &[u8] = &[0; 60];
    for i in 0..5 {
        let burst = [packet(2 * i), answer(2 * i + 1)];
        let frames = [(frame, Layers::default()); 2];
        meter.cache.burst(&burst, &frames, &mut |_| panic!("nothing has ended"));
    }
    let records = meter.finish(START + 100);
    let listed = &records[0].extra.as_ref().unwrap().packets;
    assert_eq!(listed.iter().map(|p| p.reverse).collect::<Vec<_>>(), [false, true]);
    assert_eq!((records[0].forward.packets, records[0].reverse.packets), (5, 5));
}

#[test]
fn refused_packets_are_counted_by_reason() {
    use sonde_wire::Error;
    let mut meter = Meter::new(config(8));
    for error in Error::ALL {
        meter.cache.refused(error, 60);
    }
    let counters = meter.cache.counters();
    assert_eq!(counters.refused(), Error::COUNT as u64);
    assert_eq!((counters.refused_truncated, counters.refused_not_ip), (1, 1));
    assert_eq!(counters.refused_bytes, 60 * Error::COUNT as u64);
}

#[test]
#[should_panic(expected = "0 flows: give 8 to")]
fn no_cache_without_room() {
    FlowCache::new(config(0));
}
