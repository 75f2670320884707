//! Rows of the checklist about ICMP, DNS, SCTP and QUIC's handshake.

use super::*;
use sonde_wire::flow::Quic;

const CLIENT: (&str, u16) = ("2001:db8::1", 50_000);
const SERVER: (&str, u16) = ("2001:db8::2", 53);

fn dns(response: bool, id: u32) -> FlowPacket {
    let detail = Detail::Dns { response, id };
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
        .packet_at(41_000, &echo(false, 5), 1)
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

#[test]
fn unanswered_identifiers_hold_their_slots_and_are_freed_after_64_s() {
    let mut bench = Bench::new();
    for i in 0..5 {
        bench.packet_at(i64::from(i) * 1_000, &dns(false, i), 1);
    }
    assert_eq!(bench.counter("slots_full"), 1);
    for s in 1..70 {
        bench.packet_at(s * 1_000_000, &dns(true, 1_000), 1);
    }
    bench.packet_at(70_000_000, &dns(false, 77), 1).packet_at(70_010_000, &dns(true, 77), 1);
    assert_eq!(bench.samples(), [clean(RttKind::Dns, 10_000)]);
    assert_eq!(bench.counter("stale"), 4);
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
