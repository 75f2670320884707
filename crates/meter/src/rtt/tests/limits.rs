//! Groups, events, hidden addresses, filters, the table's entries and time-outs.

use super::*;
use crate::rtt::{PrefixTable, RttFilter};
use sonde_results::rtt::{GroupKey, RttGroupBy, RttProtocols};
use std::time::Duration;

/// Round trips of 10 ms without timestamps, `count` of them, so many us apart.
fn exchange(bench: &mut Bench, from: i64, gap: i64, count: u32) {
    for i in 0..count {
        let at = from + gap * i64::from(i);
        bench.at(at, client(ACK, 100 + 10 * i, 500, 10));
        bench.at(at + 10_000, server(ACK, 500, 110 + 10 * i, 0));
    }
}

#[test]
fn events_can_be_limited_and_statistics_take_every_sample() {
    for (events, expected) in [
        (RttEvents::None, 0),
        (RttEvents::All, 100),
        (RttEvents::Every(Duration::from_millis(100)), 20), // every fifth of 20 ms
        (RttEvents::RttMultiple(5 * 16), 34),               // 50 ms: every third
    ] {
        let mut bench = Bench::with(|config| config.events = events);
        exchange(&mut bench, 0, 20_000, 100);
        assert_eq!(bench.samples().len(), expected, "{events:?}");
        assert_eq!(bench.flow().forward.samples, 100);
        assert_eq!(bench.matcher.take_groups(0, 1)[0].clean.count, 100);
        let limited = if events == RttEvents::None { 0 } else { 100 - expected as u64 };
        assert_eq!(bench.counter("events_limited"), limited);
    }
}

#[test]
fn a_sample_states_who_answered_and_what_it_had_sent() {
    let mut bench = Bench::new();
    exchange(&mut bench, 0, 20_000, 2);
    let sample = bench.full_samples()[1];
    assert_eq!(sample.flow.source.to_string(), "198.51.100.2");
    assert_eq!((sample.flow.source_port, sample.flow.destination_port), (443, 40_000));
    assert_eq!((sample.packets, sample.bytes), (2, 80));
    assert_eq!((sample.rtt_ns, sample.min_rtt_ns), (10_000_000, 10_000_000));
    assert_eq!(sample.at_ns, time(30_000).as_nanos());
}

#[test]
fn events_that_nobody_fetches_are_counted() {
    let mut bench = Bench::new();
    exchange(&mut bench, 0, 20_000, 17_000);
    assert_eq!(bench.counter("events_lost"), 17_000 - 16_384);
    assert_eq!(bench.samples().len(), 16_384);
}

#[test]
fn equal_weight_lets_one_clean_sample_a_second_into_the_histograms() {
    let mut bench = Bench::with(|config| config.weight_by_flow = true);
    exchange(&mut bench, 0, 20_000, 500); // 10 s
    let groups = bench.matcher.take_groups(0, 1);
    assert!((9..=11).contains(&groups[0].clean.count), "{}", groups[0].clean.count);
    assert_eq!(bench.counter("unweighted"), 500 - groups[0].clean.count);
    assert_eq!(bench.flow().forward.samples, 500);
}

#[test]
fn samples_are_grouped_by_the_host_that_answered() {
    let prefix = |text: &str, length| GroupKey::Prefix { address: text.parse().unwrap(), length };
    let table = "198.51.0.0/16 64500\n192.0.2.0/28 64501";
    for (by, server_key, client_key) in [
        (RttGroupBy::Prefix, prefix("198.51.0.0", 16), prefix("192.0.2.0", 28)),
        (RttGroupBy::As, GroupKey::As(64_500), GroupKey::As(64_501)),
    ] {
        let mut bench = Bench::with(|config| {
            config.group_by = by;
            config.prefixes = PrefixTable::parse(table).unwrap();
        });
        bench
            .at(0, client(ACK, 100, 500, 10))
            .at(10_000, server(ACK, 500, 110, 10))
            .at(11_000, client(ACK, 110, 510, 0));
        let mut groups = bench.matcher.take_groups(0, 1);
        groups.sort_by_key(|group| group.clean.min);
        assert_eq!((groups[0].key, groups[0].clean.min), (client_key, 1_000_000 / 64 * 64));
        assert_eq!((groups[1].key, groups[1].clean.min), (server_key, 10_000_000));
    }
    for (by, key) in [
        (RttGroupBy::Interface, GroupKey::Interface(3)),
        (RttGroupBy::Vlan, GroupKey::Vlan(77)),
        (RttGroupBy::Dscp, GroupKey::Dscp(46)),
    ] {
        let mut bench = Bench::with(|config| config.group_by = by);
        for (us, segment) in [(0, client(ACK, 100, 500, 10)), (10_000, server(ACK, 500, 110, 0))] {
            let packet = FlowPacket { vlan: 77, tos: 46 << 2, ..segment.packet() };
            bench.matcher.input(3, &packet, 1, time(us));
        }
        assert_eq!(bench.matcher.take_groups(0, 1)[0].key, key);
    }
    let mut bench = Bench::with(|config| config.group_by = RttGroupBy::Flow);
    exchange(&mut bench, 0, 20_000, 3);
    let GroupKey::Flow(flow) = bench.matcher.take_groups(0, 1)[0].key else { panic!() };
    assert_eq!(flow.source.to_string(), "198.51.100.2");
}

#[test]
fn points_and_vlans_keep_flows_apart() {
    let mut bench = Bench::new();
    for (point, vlan) in [(0, 0), (1, 0), (0, 5)] {
        let packet = FlowPacket { vlan, ..client(ACK, 100, 500, 10).packet() };
        bench.matcher.input(point, &packet, 1, time(0));
    }
    assert_eq!(bench.matcher.open_flows().count(), 3);
}

#[test]
fn hidden_addresses_leave_only_prefixes_and_the_same_samples() {
    let mut bench = Bench::with(|config| {
        config.hide_addresses = true;
        config.prefixes = PrefixTable::parse("198.51.100.0/30 1\n198.51.0.0/16 2").unwrap();
    });
    exchange(&mut bench, 0, 20_000, 5);
    // Another host of the same prefix and ports.
    let mut other = client(ACK, 7_000, 1, 10).packet();
    other.source[15] = 99;
    bench.packet_at(200_000, &other, 1);
    assert_eq!(bench.matcher.open_flows().count(), 2, "kept apart by the hash");
    let samples = bench.full_samples();
    assert_eq!(samples.len(), 5);
    assert_eq!(samples[0].flow.source.to_string(), "198.51.100.0");
    assert_eq!(samples[0].flow.destination.to_string(), "192.0.2.0");
    let GroupKey::Prefix { address, length } = bench.matcher.take_groups(0, 1)[0].key else {
        panic!()
    };
    assert_eq!((address.to_string().as_str(), length), ("198.51.0.0", 16), "never below /24");
    for flow in bench.matcher.open_flows() {
        assert_eq!(flow.flow.source.to_string(), "192.0.2.0");
    }
}

#[test]
fn what_the_filter_leaves_out_is_counted() {
    let mut bench = Bench::with(|config| {
        config.filter = RttFilter {
            protocols: RttProtocols::TCP,
            nets: vec![("198.51.100.0".parse().unwrap(), 24)],
            ports: vec![443],
        };
    });
    exchange(&mut bench, 0, 20_000, 2);
    bench.at(50_000, Segment { port: 80, ..client(SYN, 0, 0, 0) }.segments(3));
    assert_eq!((bench.counter("filtered"), bench.samples().len()), (3, 2));
    assert_eq!(bench.counter("packets"), 7);
}

#[test]
fn refused_frames_are_counted_by_kind() {
    use sonde_wire::Error;
    let mut bench = Bench::new();
    for error in Error::ALL {
        bench.matcher.refused(error);
    }
    let counters = bench.matcher.counters();
    assert_eq!((counters.fragments, counters.not_ip, counters.other_protocol), (1, 1, 2));
    assert_eq!(counters.malformed, Error::COUNT as u64 - 4);
}

/// One flow's first packet, from client port `port`.
fn open(bench: &mut Bench, us: i64, port: u16) {
    let mut packet = client(SYN, 0, 0, 0).packet();
    packet.source_port = port;
    bench.packet_at(us, &packet, 1);
}

fn answer(bench: &mut Bench, us: i64, port: u16, flags: u8) {
    let mut packet = server(flags, 0, 1, 0).packet();
    packet.destination_port = port;
    bench.packet_at(us, &packet, 1);
}

#[test]
fn a_full_bucket_gives_up_closed_then_idle_then_one_way_flows() {
    // One bucket: eight flows.
    let mut bench = Bench::with(|config| config.flows = 8);
    for port in 0..8 {
        open(&mut bench, 1_000 * i64::from(port), 1_000 + port);
    }
    for port in 1_002..1_008 {
        answer(&mut bench, 20_000, port, SYN | ACK);
    }
    answer(&mut bench, 30_000, 1_005, RST | ACK);
    let ports = |bench: &mut Bench| -> Vec<(u16, EndReason)> {
        bench.ended().iter().map(|f| (f.flow.source_port, f.reason)).collect()
    };
    open(&mut bench, 1_000_000, 2_000); // the closed one
    assert_eq!(ports(&mut bench), [(1_005, EndReason::Reset)]);
    answer(&mut bench, 1_010_000, 2_000, SYN | ACK);
    open(&mut bench, 2_000_000, 2_001); // one-way, the longest idle
    assert_eq!(ports(&mut bench), [(1_000, EndReason::Evicted)]);
    answer(&mut bench, 2_010_000, 2_001, SYN | ACK);
    open(&mut bench, 12_500_000, 2_002); // one-way, beyond its time-out
    assert_eq!(ports(&mut bench), [(1_001, EndReason::Idle)]);
    answer(&mut bench, 12_510_000, 2_002, SYN | ACK);
    open(&mut bench, 13_000_000, 2_003); // eight two-way flows stay
    assert_eq!(ports(&mut bench), []);
    assert_eq!(bench.counter("untracked_full"), 1);
    open(&mut bench, 302_100_000, 2_004); // of five beyond 300 s the longest idle
    let ended = ports(&mut bench);
    assert_eq!((ended.len(), ended[0].1), (1, EndReason::Idle));
    assert!((1_002..1_008).contains(&ended[0].0), "{ended:?}");
}

#[test]
fn time_outs_are_those_of_the_flows_state_with_or_without_the_sweep() {
    let dns = |response| {
        let (a, b) = (("192.0.2.1", 5_353), ("192.0.2.2", 53));
        let (a, b) = if response { (b, a) } else { (a, b) };
        packet(17, a, b, 60, Detail::Dns { response, id: 1 })
    };
    let one_way = |bench: &mut Bench| open(bench, 0, 1_000);
    let two_way = |bench: &mut Bench| {
        open(bench, 0, 1_000);
        answer(bench, 0, 1_000, SYN | ACK);
    };
    let closed = |bench: &mut Bench| {
        open(bench, 0, 1_000);
        answer(bench, 0, 1_000, RST | ACK);
    };
    let udp = |bench: &mut Bench| {
        bench.packet_at(0, &dns(false), 1).packet_at(0, &dns(true), 1);
    };
    type State<'a> = (&'a dyn Fn(&mut Bench), i64);
    let states: [State; 4] = [(&closed, 5), (&one_way, 10), (&udp, 30), (&two_way, 300)];
    for (state, seconds) in states {
        for sweep in [true, false] {
            let mut bench = Bench::new();
            state(&mut bench);
            let mut touch = |us: i64| {
                if sweep {
                    (0..16).for_each(|_| bench.matcher.handle_timeout(time(us)));
                } else {
                    // A packet that begins no flow finds the old one out of time.
                    let mut rst = client(RST, 0, 0, 0).packet();
                    rst.source_port = 1_000;
                    let packet = if seconds == 30 {
                        FlowPacket { detail: Detail::Other, ..dns(false) }
                    } else {
                        rst
                    };
                    bench.packet_at(us, &packet, 1);
                }
                bench.ended().len()
            };
            if sweep {
                assert_eq!(touch(seconds * 1_000_000 - 200_000), 0, "{seconds} s");
            }
            assert_eq!(touch(seconds * 1_000_000 + 200_000), 1, "{seconds} s, {sweep}");
        }
    }
}

#[test]
fn the_end_of_the_measurement_ends_every_flow_without_losing_one() {
    let mut bench = Bench::with(|config| config.flows = 4_096);
    for port in 0..2_000 {
        open(&mut bench, 0, 1_000 + port);
    }
    bench.matcher.finish(time(1_000));
    let open = bench.matcher.open_flows().count();
    let ended = bench.ended();
    assert_eq!(ended.len() as u64, bench.counter("flows"));
    let stopped = ended.iter().filter(|flow| flow.reason == EndReason::Stopped).count();
    assert_eq!(stopped, open);
    assert_eq!((bench.counter("flows_lost"), bench.matcher.open_flows().count()), (0, 0));
}

#[test]
fn the_sweep_waits_for_records_to_be_fetched() {
    let mut bench = Bench::with(|config| config.flows = 4_096);
    for port in 0..2_000 {
        open(&mut bench, 0, 1_000 + port);
    }
    let mut ended = bench.ended().len() as u64;
    for _ in 0..64 {
        bench.matcher.handle_timeout(time(20_000_000));
    }
    assert_eq!(bench.matcher.shared.flows.len(), 1_024);
    for _ in 0..64 {
        ended += bench.ended().len() as u64;
        bench.matcher.handle_timeout(time(20_000_000));
    }
    assert_eq!((ended, bench.counter("flows_lost")), (bench.counter("flows"), 0));
}
