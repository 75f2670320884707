//! Rows of the checklist about ICMP, DNS, SCTP and QUIC's handshake.

use super::*;
use sonde_wire::flow::Quic;

const CLIENT: (&str, u16) = ("2001:db8::1", 50_000);
const SERVER: (&str, u16) = ("2001:db8::2", 53);

fn dns(response: bool, id: u32) -> FlowPacket {
    let detail = Detail::Dns { response, id: id << 16 | 1 };
    match response {
        false => packet(17, CLIENT, SERVER, 60, detail),
        true => packet(17, SERVER, CLIENT, 120, detail),
    }
}

fn echo(reply: bool, sequence: u16) -> FlowPacket {
    let (a, b) = (("192.0.2.1", 1), ("198.51.100.2", 1));
    let (a, b) = if reply { (b, a) } else { (a, b) };
    packet(1, a, b, 84, Detail::Echo { reply, sequence })
}

pub(super) fn quic(from_client: bool, quic: Quic) -> FlowPacket {
    let (a, b) = (("192.0.2.1", 50_000), ("198.51.100.2", 443));
    let (a, b) = if from_client { (a, b) } else { (b, a) };
    packet(17, a, b, 1_228, Detail::Quic(quic))
}

#[test]
fn icmp_echoes_are_matched_by_sequence_although_identifiers_are_reused() {
    let mut bench = Bench::new();
    bench
        .packet_at(0, &echo(false, 1), 1)
        .packet_at(1_000, &echo(false, 2), 1)
        .packet_at(9_000, &echo(true, 2), 1)
        .packet_at(10_000, &echo(true, 1), 1)
        .packet_at(10_400, &echo(true, 1), 1); // a duplicate
    assert_eq!(
        bench.samples(),
        [clean(RttKind::IcmpEcho, 8_000), clean(RttKind::IcmpEcho, 10_000)]
    );
    // Another ping with the same identifier begins at 1 again: fine once 1 was answered,
    // ambiguous before.
    bench
        .packet_at(20_000, &echo(false, 1), 1)
        .packet_at(30_000, &echo(true, 1), 1)
        .packet_at(40_000, &echo(false, 5), 1)
        .packet_at(42_000, &echo(false, 5), 1)
        .packet_at(50_000, &echo(true, 5), 1)
        .packet_at(51_000, &echo(true, 5), 1);
    assert_eq!(bench.samples(), [clean(RttKind::IcmpEcho, 10_000)]);
    assert_eq!(bench.counter("duplicate_ids"), 1);
}

#[test]
fn an_echo_seen_only_by_its_reply_names_the_right_client() {
    let mut bench = Bench::new();
    bench.packet_at(0, &echo(true, 1), 1);
    assert_eq!(bench.flow().flow.source.to_string(), "192.0.2.1");
    assert_eq!(bench.samples(), []);
}

#[test]
fn dns_is_matched_by_identifier_and_name() {
    let mut bench = Bench::new();
    bench
        .packet_at(0, &dns(false, 7), 1)
        .packet_at(400, &dns(false, 9), 1)
        .packet_at(4_000, &dns(true, 8), 1) // nobody asked
        .packet_at(5_000, &dns(true, 9), 1)
        .packet_at(6_000, &dns(true, 7), 1);
    assert_eq!(bench.samples(), [clean(RttKind::Dns, 4_600), clean(RttKind::Dns, 6_000)]);
    assert_eq!(bench.flow().forward.samples, 2);
}

/// A DNSSEC answer that is longer than the path's MTU answers, and a large ping is one.
#[test]
fn first_fragments_of_echoes_and_dns_are_matched() {
    let first = |packet: FlowPacket| FlowPacket { fragment: true, ..packet };
    let mut bench = Bench::new();
    bench
        .packet_at(0, &dns(false, 7), 1)
        .packet_at(5_000, &first(dns(true, 7)), 1)
        .packet_at(6_000, &first(echo(false, 1)), 1)
        .packet_at(8_000, &first(echo(true, 1)), 1);
    bench.matcher.refused(sonde_wire::Error::Fragment);
    assert_eq!(bench.samples(), [clean(RttKind::Dns, 5_000), clean(RttKind::IcmpEcho, 2_000)]);
    assert_eq!((bench.counter("requests"), bench.counter("answered")), (2, 2));
    // Of what has no identifier in front, a fragment says too little.
    bench.packet_at(9_000, &first(quic(true, Quic::Initial)), 1);
    assert_eq!((bench.counter("flows"), bench.counter("untracked_kind")), (2, 1));
}

/// An answer that does not come blocks nothing, and is counted once its time is over.
#[test]
fn unanswered_requests_block_nothing_and_are_counted() {
    let mut bench = Bench::new();
    for i in 0..600u16 {
        let at = i64::from(i) * 1_000_000;
        bench.packet_at(at, &echo(false, i), 1);
        if i % 10 != 3 {
            bench.packet_at(at + 20_000, &echo(true, i), 1);
        }
    }
    assert_eq!(bench.samples(), vec![clean(RttKind::IcmpEcho, 20_000); 540]);
    let flow = bench.flow();
    assert_eq!((flow.forward.requests, flow.forward.answered), (600, 540));
    // The last one is 6 s old: whether its time is over depends on the clock's turns.
    assert!((59..=60).contains(&flow.forward.unanswered), "{}", flow.forward.unanswered);
    assert_eq!((bench.counter("requests"), bench.counter("answered")), (600, 540));
    assert_eq!((bench.counter("stale"), bench.counter("slots_full")), (0, 0));
    bench.matcher.handle_timeout(time(700_000_000));
    for _ in 0..15 {
        bench.matcher.handle_timeout(time(700_000_000));
    }
    assert_eq!(bench.ended()[0].forward.unanswered, 60, "an idle flow waits for nothing");
}

#[test]
fn any_number_of_requests_may_be_in_flight() {
    let mut bench = Bench::with(|config| config.flows = 65_536);
    for i in 0..500u16 {
        bench.packet_at(i64::from(i) * 1_000, &echo(false, i), 1);
    }
    for i in (0..500u16).rev() {
        bench.packet_at(500_000 + i64::from(500 - i) * 1_000, &echo(true, i), 1);
    }
    assert_eq!((bench.samples().len(), bench.counter("slots_full")), (500, 0));
    let flow = bench.flow();
    assert_eq!((flow.forward.requests, flow.forward.answered), (500, 500));
}

#[test]
fn a_late_answer_is_a_sample_and_no_loss() {
    let mut bench = Bench::new();
    bench.packet_at(0, &dns(false, 1), 1);
    for s in 1..30 {
        let other = FlowPacket { detail: Detail::Other, ..dns(true, 0) };
        bench.packet_at(s * 1_000_000, &other, 1);
    }
    bench.packet_at(29_500_000, &dns(false, 2), 1);
    assert_eq!(bench.flow().forward.unanswered, 1);
    bench.packet_at(30_000_000, &dns(true, 1), 1).packet_at(30_000_000, &dns(true, 2), 1);
    assert_eq!(bench.samples(), [clean(RttKind::Dns, 30_000_000), clean(RttKind::Dns, 500_000)]);
    let side = bench.flow().forward;
    assert_eq!((side.requests, side.answered, side.unanswered), (2, 2, 0));
}

/// A mirror port shows every packet twice. A request sent again later is ambiguous (Karn's rule),
/// and its answer counts. Long after, the first one is given up.
#[test]
fn requests_that_come_twice() {
    let mut bench = Bench::new();
    for (at, reply) in [(0, false), (5, false), (20_000, true), (20_005, true)] {
        bench.packet_at(at, &echo(reply, 1), 1);
    }
    assert_eq!(bench.samples(), [clean(RttKind::IcmpEcho, 20_000)]);
    for (at, reply) in [(1_000_000, false), (2_000_000, false), (2_020_000, true)] {
        bench.packet_at(at, &echo(reply, 2), 1);
    }
    assert_eq!(bench.samples(), []);
    let side = bench.flow().forward;
    assert_eq!((side.requests, side.answered, side.unanswered), (2, 2, 0));
    for (at, reply) in [(3_000_000, false), (8_000_000, false), (8_020_000, true)] {
        bench.packet_at(at, &echo(reply, 3), 1);
    }
    assert_eq!(bench.samples(), [clean(RttKind::IcmpEcho, 20_000)]);
    assert_eq!(bench.counter("duplicate_ids"), 2);
    assert_eq!((bench.counter("requests"), bench.counter("answered")), (4, 3));
}

/// Some errors do not repeat the question: then the identifier has to do, if it is one
/// query's only.
#[test]
fn an_answer_without_a_question_is_matched_by_its_identifier() {
    let named = |response, id: u32, name: u32| FlowPacket {
        detail: Detail::Dns { response, id: id << 16 | name },
        ..dns(response, 0)
    };
    let mut bench = Bench::new();
    bench
        .packet_at(0, &named(false, 9, 77), 1)
        .packet_at(1_000, &named(false, 8, 77), 1)
        .packet_at(20_000, &named(true, 9, 0), 1)
        .packet_at(30_000, &named(true, 8, 78), 1) // another's answer
        .packet_at(40_000, &named(false, 7, 1), 1)
        .packet_at(41_500, &named(false, 7, 2), 1)
        .packet_at(50_000, &named(true, 7, 0), 1) // whose?
        .packet_at(51_500, &named(true, 7, 2), 1);
    assert_eq!(bench.samples(), [clean(RttKind::Dns, 20_000), clean(RttKind::Dns, 10_000)]);
    // A query for a cookie has no question, and its answer none.
    bench.packet_at(60_000, &named(false, 5, 0), 1).packet_at(61_000, &named(true, 5, 0), 1);
    assert_eq!(bench.samples(), [clean(RttKind::Dns, 1_000)]);
}

/// On the loopback a host pings itself: both packets have the same addresses and identifier.
#[test]
fn a_host_that_asks_itself() {
    let own = |reply, sequence| {
        let end = ("127.0.0.1", 7);
        packet(1, end, end, 84, Detail::Echo { reply, sequence })
    };
    let mut bench = Bench::new();
    for i in 0..10 {
        bench.packet_at(i * 1_000_000, &own(false, i as u16), 1);
        bench.packet_at(i * 1_000_000 + 30, &own(true, i as u16), 1);
    }
    assert_eq!(bench.samples(), vec![clean(RttKind::IcmpEcho, 30); 10]);
    let flow = bench.flow();
    assert_eq!((flow.forward.packets, flow.backward.packets), (10, 10));
    let end = ("127.0.0.1", 53);
    let dns = |response| packet(17, end, end, 60, Detail::Dns { response, id: 7 << 16 });
    bench.packet_at(20_000_000, &dns(false), 1).packet_at(20_000_090, &dns(true), 1);
    assert_eq!(bench.samples(), [clean(RttKind::Dns, 90)]);
}

#[test]
fn the_vlan_can_be_left_out_of_the_key() {
    for (vlan_in_key, samples) in [(true, 0), (false, 1)] {
        let mut bench = Bench::with(|config| config.vlan_in_key = vlan_in_key);
        let answer = FlowPacket { vlan: 20, ..dns(true, 7) };
        bench.packet_at(0, &FlowPacket { vlan: 10, ..dns(false, 7) }, 1);
        bench.packet_at(4_000, &answer, 1);
        assert_eq!(bench.samples().len(), samples);
    }
}

#[test]
fn an_answer_after_the_ticks_have_wrapped_is_no_sample() {
    let mut bench = Bench::new();
    bench.packet_at(0, &dns(false, 7), 1);
    for s in 1..139 {
        let other = FlowPacket { detail: Detail::Other, ..dns(true, 0) };
        bench.packet_at(s * 1_000_000, &other, 1);
    }
    // 137.4 s are 2^31 ticks: by ticks alone this took 1.6 s.
    bench.packet_at(139_000_000, &dns(true, 7), 1);
    assert_eq!(bench.samples(), []);
    assert_eq!(bench.counter("stale"), 1);
}

#[test]
fn sctp_heartbeats_are_matched_by_what_they_carry() {
    let mut bench = Bench::new();
    let (a, b) = (("192.0.2.1", 9_900), ("198.51.100.2", 9_899));
    let heartbeat = packet(132, a, b, 80, Detail::Heartbeat { ack: false, id: 0xfeed });
    let answer = packet(132, b, a, 80, Detail::Heartbeat { ack: true, id: 0xfeed });
    bench.packet_at(0, &heartbeat, 1).packet_at(15_000, &answer, 1);
    assert_eq!(bench.samples(), [clean(RttKind::SctpHeartbeat, 15_000)]);
    let data = packet(132, a, b, 500, Detail::Other);
    bench.packet_at(20_000, &data, 1);
    assert_eq!(bench.flow().forward.bytes, 580, "other packets of the flow count in it");
    let stranger = packet(132, ("192.0.2.9", 1), b, 500, Detail::Other);
    bench.packet_at(20_000, &stranger, 1);
    assert_eq!(bench.counter("untracked_kind"), 1);
}

#[test]
fn quic_handshake_is_split_as_tcps_is() {
    let mut bench = Bench::new();
    bench
        .packet_at(0, &quic(true, Quic::Initial), 1)
        .packet_at(80, &quic(true, Quic::Initial), 1) // a large ClientHello
        .packet_at(30_000, &quic(false, Quic::Initial), 1)
        .packet_at(30_080, &quic(false, Quic::Handshake), 1)
        .packet_at(34_000, &quic(true, Quic::Initial), 1)
        .packet_at(34_080, &quic(true, Quic::Handshake), 1)
        .packet_at(35_000, &quic(true, Quic::Short { spin: false }), 1);
    assert_eq!(
        bench.samples(),
        [clean(RttKind::QuicHandshake, 30_000), clean(RttKind::QuicHandshake, 4_080)]
    );
    let flow = bench.flow();
    assert_eq!((flow.handshake_server_ns, flow.handshake_client_ns), (30_000_000, 4_080_000));
    assert_eq!(flow.flow.destination_port, 443);
}

#[test]
fn quic_handshake_packets_sent_again_are_ambiguous() {
    let mut bench = Bench::new();
    bench
        .packet_at(0, &quic(true, Quic::Initial), 1)
        .packet_at(300_000, &quic(true, Quic::Initial), 1)
        .packet_at(330_000, &quic(false, Quic::Initial), 1)
        .packet_at(334_000, &quic(true, Quic::Handshake), 1);
    assert_eq!(bench.samples(), []);
    let mut bench = Bench::new();
    bench
        .packet_at(0, &quic(true, Quic::Initial), 1)
        .packet_at(30_000, &quic(false, Quic::Initial), 1)
        .packet_at(330_000, &quic(false, Quic::Initial), 1)
        .packet_at(334_000, &quic(true, Quic::Handshake), 1); // more than 3 x 30 + 50 ms
    assert_eq!(bench.samples(), [clean(RttKind::QuicHandshake, 30_000)]);
}

#[test]
fn retry_begins_the_handshake_anew() {
    let mut bench = Bench::new();
    bench
        .packet_at(0, &quic(true, Quic::Initial), 1)
        .packet_at(20_000, &quic(false, Quic::Restart), 1)
        .packet_at(24_000, &quic(true, Quic::Initial), 1)
        .packet_at(54_000, &quic(false, Quic::Initial), 1);
    assert_eq!(bench.samples(), [clean(RttKind::QuicHandshake, 30_000)]);
}

/// Data of 0-RTT may overtake the client's Initial, or stand before it in one datagram.
#[test]
fn early_data_before_the_initial() {
    let mut bench = Bench::new();
    bench
        .packet_at(0, &quic(true, Quic::ZeroRtt), 1)
        .packet_at(200_000, &quic(true, Quic::Initial), 1)
        .packet_at(200_080, &quic(true, Quic::ZeroRtt), 1)
        .packet_at(230_000, &quic(false, Quic::Initial), 1)
        .packet_at(234_000, &quic(true, Quic::Handshake), 1);
    let want = [clean(RttKind::QuicHandshake, 30_000), clean(RttKind::QuicHandshake, 4_000)];
    assert_eq!(bench.samples(), want);
    let mut bench = Bench::new();
    bench
        .packet_at(0, &quic(true, Quic::ZeroRtt), 1)
        .packet_at(30_000, &quic(false, Quic::Initial), 1)
        .packet_at(34_000, &quic(true, Quic::Handshake), 1);
    assert_eq!(bench.samples(), want);
}

#[test]
fn short_headers_begin_no_flow() {
    let mut bench = Bench::new();
    bench.packet_at(0, &quic(true, Quic::Short { spin: true }), 1).packet_at(
        0,
        &quic(false, Quic::Restart),
        3,
    );
    assert_eq!(bench.matcher.open_flows().count(), 0);
    assert_eq!(bench.counter("untracked_kind"), 4);
}
