//! Rows of the checklist about sequence and acknowledgement numbers, handshakes, ends of
//! connections, loss counters and response times.

use super::*;

/// A handshake of 10 ms and 1 ms without timestamps; its samples are taken away. Client at
/// 100, server at 500.
fn connected() -> Bench {
    let mut bench = Bench::new();
    bench
        .at(0, client(SYN, 99, 0, 0))
        .at(10_000, server(SYN | ACK, 499, 100, 0))
        .at(11_000, client(ACK, 100, 500, 0));
    assert_eq!(
        bench.samples(),
        [clean(RttKind::TcpHandshakeServer, 10_000), clean(RttKind::TcpHandshakeClient, 1_000)]
    );
    bench
}

#[test]
fn handshake_is_split_into_the_servers_and_the_clients_side() {
    let mut bench = Bench::new();
    bench
        .at(0, client(SYN, 99, 0, 0).ts(1000, 0))
        .at(20_000, server(SYN | ACK, 499, 100, 0).ts(70, 1000))
        .at(23_000, client(ACK, 100, 500, 0).ts(1023, 70))
        .at(23_504, client(ACK, 100, 500, 50).ts(1024, 70))
        .at(44_000, server(ACK, 500, 150, 200).ts(95, 1024))
        .at(47_000, client(ACK, 150, 700, 0).ts(1047, 95));
    assert_eq!(
        bench.samples(),
        [
            clean(RttKind::TcpHandshakeServer, 20_000),
            clean(RttKind::TcpHandshakeClient, 3_000),
            ts(20_496),
            ts(3_000),
        ]
    );
    let flow = bench.flow();
    assert_eq!(flow.flow.source_port, 40_000, "the client is the source");
    assert_eq!((flow.handshake_server_ns, flow.handshake_client_ns), (20_000_000, 3_000_000));
    assert_eq!((flow.forward.samples, flow.backward.samples), (2, 2));
    assert_eq!(flow.forward.rtt_min_ns, 20_000_000);
    assert_eq!((flow.responses, flow.response_max_ns), (1, 20_496_000));
}

#[test]
fn handshake_segments_sent_again_are_ambiguous() {
    let mut bench = Bench::new();
    bench
        .at(0, client(SYN, 99, 0, 0))
        .at(1_000_000, client(SYN, 99, 0, 0))
        .at(1_010_000, server(SYN | ACK, 499, 100, 0))
        .at(2_010_000, server(SYN | ACK, 499, 100, 0))
        .at(2_011_000, client(ACK, 100, 500, 0));
    assert_eq!(bench.samples(), []);
    let flow = bench.flow();
    assert_eq!((flow.forward.retransmitted, flow.backward.retransmitted), (1, 1));
    assert_eq!((flow.handshake_server_ns, flow.handshake_client_ns), (0, 0));
    // The server may repeat itself even after the handshake, as its ACK was lost.
    bench.at(3_010_000, server(SYN | ACK, 499, 100, 0)).at(3_011_000, client(SYN, 99, 0, 0));
    assert_eq!(bench.reasons(), [], "no port reuse");
}

#[test]
fn a_handshake_ends_with_the_clients_next_segment_whatever_it_says() {
    let mut bench = Bench::new();
    bench
        .at(0, client(SYN, 99, 0, 0))
        .at(10_000, server(SYN | ACK, 499, 100, 0))
        .at(12_000, server(ACK, 500, 100, 50)) // a server that speaks first
        .at(13_000, client(ACK, 100, 500, 0)) // of the SYN-ACK, but not all it sent
        .at(900_000, client(ACK, 100, 550, 0));
    let samples = bench.samples();
    assert_eq!(samples.len(), 3, "{samples:?}");
    assert_eq!(samples[0], clean(RttKind::TcpHandshakeServer, 10_000));
    assert_eq!(samples[1], clean(RttKind::TcpHandshakeClient, 3_000));
    assert_eq!(samples[2].0, RttKind::TcpSequence);
}

#[test]
fn data_in_the_syn_counts_whether_it_is_taken_or_refused() {
    for (ack, found) in [(150, 1), (100, 1), (99, 0), (151, 0)] {
        let mut bench = Bench::new();
        bench.at(0, client(SYN, 99, 0, 50)).at(10_000, server(SYN | ACK, 499, ack, 0));
        assert_eq!(bench.samples().len(), found, "{ack}");
    }
}

#[test]
fn cumulative_ack_matches_the_newest_covered_segment() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 100, 500, 10))
        .at(21_000, client(ACK, 110, 500, 10))
        .at(22_000, client(ACK, 120, 500, 10))
        .at(31_000, server(ACK, 500, 120, 0))
        .at(32_000, server(ACK, 500, 130, 0));
    assert_eq!(bench.samples(), [seq(10_000), seq(10_000)]);
}

#[test]
fn an_ack_in_the_middle_of_a_segment_proves_nothing_about_it() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 100, 500, 10))
        .at(30_000, server(ACK, 500, 105, 0))
        .at(40_000, server(ACK, 500, 110, 0));
    assert_eq!(bench.samples(), [seq(20_000)]);
}

#[test]
fn fin_takes_a_sequence_number_and_both_close_the_flow() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK | FIN, 100, 500, 10))
        .at(30_000, server(ACK, 500, 111, 0))
        .at(30_400, server(ACK | FIN, 500, 111, 0))
        .at(31_400, client(ACK, 111, 501, 0));
    assert_eq!(bench.samples(), [seq(10_000), seq(1_000)]);
    assert_eq!(bench.reasons(), [], "it stays for what still comes");
    bench.at(40_000, client(ACK, 111, 501, 0));
    (0..16).for_each(|_| bench.matcher.handle_timeout(time(5_200_000)));
    let ended = bench.ended();
    assert_eq!((ended.len(), ended[0].reason), (1, EndReason::Fin));
    assert_eq!(ended[0].forward.packets, 5);
    assert!(ended[0].end_ns <= time(31_400).as_nanos());
}

#[test]
fn every_segment_of_a_long_flight_is_timed() {
    let mut bench = Bench::with(|config| config.slot_pages = 16);
    bench.at(0, client(ACK, 100, 500, 0)).at(8, server(ACK, 500, 100, 0));
    for i in 0..800u32 {
        bench.at(20_000 + 16 * i64::from(i), client(ACK, 100 + 10 * i, 500, 10));
    }
    for i in 0..800u32 {
        bench.at(40_000 + 16 * i64::from(i), server(ACK, 500, 110 + 10 * i, 0));
    }
    assert_eq!(bench.samples(), vec![seq(20_000); 800]);
    assert_eq!(bench.counter("slots_full"), 0);
    // In one go, and what is sent again is as ambiguous as ever.
    for i in 0..800u32 {
        bench.at(100_000 + 16 * i64::from(i), client(ACK, 8_100 + 10 * i, 500, 10));
    }
    bench
        .at(120_000, server(ACK, 500, 10_100, 0))
        .at(130_000, client(ACK, 10_100, 500, 10))
        .at(140_000, server(ACK, 500, 16_100, 0));
    assert_eq!(bench.samples(), [seq(20_000 - 16 * 199)]);
    assert_eq!(bench.counter("voided"), 600);
}

#[test]
fn karns_rule_voids_on_retransmission() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 100, 500, 10))
        .at(21_000, client(ACK, 110, 500, 10))
        .at(220_000, client(ACK, 100, 500, 10))
        .at(230_000, server(ACK, 500, 120, 0))
        .at(240_000, client(ACK, 120, 500, 10))
        .at(250_000, server(ACK, 500, 130, 0));
    assert_eq!(bench.samples(), [seq(10_000)]);
    assert_eq!(bench.counter("voided"), 2);
    assert_eq!(bench.flow().forward.retransmitted, 1);
}

#[test]
fn karns_rule_voids_on_a_hole_and_distinguishes_reordering_from_loss() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 100, 500, 10))
        .at(20_080, client(ACK, 120, 500, 10)) // 110 is missing
        .at(20_160, client(ACK, 110, 500, 10)) // sooner than any round trip: overtaken
        .at(30_000, server(ACK, 500, 130, 0));
    assert_eq!(bench.samples(), []);
    assert_eq!(bench.counter("voided"), 1);
    bench
        .at(40_000, client(ACK, 140, 500, 10)) // 130 is missing
        .at(60_000, client(ACK, 130, 500, 10)) // after more than 11 ms: sent again
        .at(70_000, server(ACK, 500, 150, 0))
        .at(80_000, client(ACK, 150, 500, 10))
        .at(90_000, server(ACK, 500, 160, 0));
    assert_eq!(bench.samples(), [seq(10_000)]);
    let flow = bench.flow();
    assert_eq!((flow.forward.gaps, flow.forward.reordered, flow.forward.retransmitted), (2, 1, 1));
}

#[test]
fn a_hole_is_filled_piece_by_piece_and_closed_by_its_acknowledgement() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 130, 500, 10)) // 100 to 130 are missing
        .at(20_080, client(ACK, 100, 500, 10))
        .at(20_160, client(ACK, 110, 500, 20))
        .at(20_240, client(ACK, 110, 500, 20)); // now it is whole: sent again
    let side = bench.flow().forward;
    assert_eq!((side.gaps, side.reordered, side.retransmitted), (1, 2, 1));
    bench
        .at(40_000, client(ACK, 150, 500, 10))
        .at(41_000, server(ACK, 500, 160, 0)) // the receiver had 140 from elsewhere
        .at(41_080, client(ACK, 140, 500, 10));
    assert_eq!(bench.flow().forward.retransmitted, 2, "no hole is left");
}

/// The sender goes on (a probe of its tail, RFC 8985) just before the timer's acknowledgement
/// of what it sent before.
#[test]
fn the_timers_acknowledgement_is_recognised_though_the_sender_has_gone_on() {
    for (next, class) in [
        (42_000, RttClass::DelayedAck), // what it sent 18 ms before cannot be answered yet
        (58_000, RttClass::DelayedAck),
        (40_008, RttClass::DelayedAck),
        (36_000, RttClass::DelayedAck), // silent for 24 ms
    ] {
        let mut bench = steady();
        bench
            .at(200_000, client(ACK, 180, 500, 10))
            .at(200_000 + next, client(ACK, 190, 500, 10))
            .at(260_000, server(ACK, 500, 190, 0));
        assert_eq!(bench.samples(), [(RttKind::TcpSequence, class, 60_000)], "{next}");
    }
    // In a queue what was sent soon after it waits too: the answer to that would have come.
    let mut bench = steady();
    bench
        .at(200_000, client(ACK, 180, 500, 10))
        .at(201_000, client(ACK, 190, 500, 10))
        .at(258_000, client(ACK, 200, 500, 10))
        .at(260_000, server(ACK, 500, 190, 0))
        .at(261_000, server(ACK, 500, 200, 0));
    assert_eq!(bench.samples(), [seq(60_000), seq(60_000)]);
}

/// An answer and the acknowledgement in it were lost and sent again: the acknowledgement of
/// the request alone would have come sooner.
#[test]
fn an_answer_that_was_lost_is_recognised_by_when_it_comes_again() {
    let exchange = |bench: &mut Bench, from: i64, i: u32, rtt: i64| {
        bench
            .at(from, client(ACK, 180 + 10 * i, 500 + 10 * i, 10))
            .at(from + rtt, server(ACK, 500 + 10 * i, 190 + 10 * i, 10));
        bench.samples().into_iter().find(|sample| sample.2 == rtt as u64).unwrap().1
    };
    let mut bench = steady();
    let rtts = [20_000, 245_000, 20_000, 219_000, 245_000, 245_000, 250_000, 20_000];
    let classes: Vec<RttClass> = (0..)
        .zip(rtts)
        .map(|(i, rtt)| exchange(&mut bench, 200_000 + 300_000 * i64::from(i), i, rtt))
        .collect();
    let (clean, recovery) = (RttClass::Clean, RttClass::Recovery);
    // 219 ms can be an application's; and if such times go on, they are the path's.
    assert_eq!(classes, [clean, recovery, clean, clean, recovery, clean, clean, clean]);
}

/// A connection whose round trips were 20 ms.
fn steady() -> Bench {
    let mut bench = Bench::new();
    bench.at(0, client(ACK, 100, 500, 0)).at(8, server(ACK, 500, 100, 0));
    for i in 0..8 {
        let at = 20_000 + 22_000 * i64::from(i);
        bench.at(at, client(ACK, 100 + 10 * i, 500, 10));
        bench.at(at + 20_000, server(ACK, 500, 110 + 10 * i, 0));
    }
    assert_eq!(bench.samples(), vec![seq(20_000); 8]);
    bench
}

#[test]
fn keepalives_and_window_probes_are_no_data() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 99, 500, 0))
        .at(20_400, server(ACK, 500, 100, 0))
        .at(21_000, client(ACK, 99, 500, 1))
        .at(21_400, server(ACK, 500, 100, 0).window(0)) // may be an update of the window
        .at(22_000, client(ACK, 100, 500, 1)) // a probe of the closed window
        .at(5_000_000, server(ACK, 500, 101, 0).window(900))
        .at(5_001_000, client(ACK, 101, 500, 10))
        .at(5_011_000, server(ACK, 500, 111, 0).window(900));
    assert_eq!(bench.samples(), [seq(400), seq(10_000)]);
    let flow = bench.flow();
    assert_eq!((flow.forward.retransmitted, flow.forward.gaps), (0, 0));
    assert_eq!((flow.backward.zero_windows, flow.backward.duplicate_acks), (1, 0));
}

#[test]
fn a_keepalive_is_timed_where_its_answer_is_certain() {
    let keepalive = |at: i64| (at, client(ACK, 99, 500, 0));
    let answer = |at: i64| (at, server(ACK, 500, 100, 0));
    let its_own = |at: i64| (at, server(ACK, 499, 100, 0));
    for (what, packets, found) in [
        ("one", vec![keepalive(20_000), answer(20_400)], vec![400]),
        // Karn's rule: which of them does it answer?
        ("two", vec![keepalive(20_000), keepalive(95_000), answer(95_400)], vec![]),
        (
            "two, and one later",
            vec![
                keepalive(20_000),
                keepalive(95_000),
                answer(95_400),
                keepalive(200_000),
                answer(200_500),
            ],
            vec![500],
        ),
        // Both ask at the same time.
        ("both", vec![keepalive(20_000), its_own(20_100), answer(20_400)], vec![400]),
        ("an answer to nothing", vec![answer(20_400)], vec![]),
        ("again", vec![keepalive(20_000), answer(20_400), answer(20_900)], vec![400]),
        (
            "data meanwhile",
            vec![keepalive(20_000), (20_100, client(ACK, 100, 500, 10)), answer(20_400)],
            vec![],
        ),
    ] {
        let mut bench = connected();
        for (at, segment) in packets {
            bench.at(at, segment);
        }
        let found: Vec<_> = found.into_iter().map(seq).collect();
        assert_eq!(bench.samples(), found, "{what}");
    }
}

#[test]
fn rst_ends_a_flow_and_a_forged_one_silences_it_for_5_s_only() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 100, 500, 10))
        .at(21_000, server(RST, 500, 0, 0))
        .at(30_000, server(ACK, 500, 110, 0));
    assert_eq!(bench.samples(), []);
    for i in 0..70 {
        let at = 100_000 + 100_000 * i64::from(i);
        bench.at(at, client(ACK, 110 + 10 * i, 500, 10));
        bench.at(at + 10_000, server(ACK, 500, 120 + 10 * i, 0));
    }
    assert_eq!(bench.reasons(), [EndReason::Reset]);
    assert!((15..25).contains(&bench.samples().len()));
}

#[test]
fn rst_after_a_fin_is_an_orderly_end() {
    let mut bench = connected();
    bench.at(20_000, client(FIN | ACK, 100, 500, 0)).at(21_000, server(RST | ACK, 500, 101, 0));
    bench.at(22_000, client(SYN, 7_000, 0, 0));
    assert_eq!(bench.reasons(), [EndReason::Fin], "its own reason, not reuse");
}

#[test]
fn frames_of_several_segments_take_an_ack_beyond_their_expected_one() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 100, 500, 30).segments(3))
        .at(30_000, server(ACK, 500, 110, 0)) // in its middle: proves nothing yet
        .at(30_400, server(ACK, 500, 130, 0));
    assert_eq!(bench.samples(), [seq(10_400)]);
    assert_eq!(bench.flow().forward.packets, 5);
    assert_eq!(bench.flow().forward.bytes, 2 * 40 + 30 + 3 * 40, "each segment had headers");
    assert_eq!(bench.counter("packets"), 8);
    // The next frame was not armed; the acknowledgement goes on into it.
    let mut bench = Bench::with(|config| config.slot_pages = 0);
    bench.at(0, client(ACK, 100, 500, 0)).at(8, server(ACK, 500, 100, 0));
    for i in 0..5 {
        bench.at(20_000, client(ACK, 100 + 30 * i, 500, 30).segments(3));
    }
    bench.at(30_000, server(ACK, 500, 230, 0));
    assert_eq!(bench.samples(), [seq(10_000)]);
    assert_eq!(bench.counter("slots_full"), 1);
}

#[test]
fn fragments_are_counted_and_never_matched_nor_begin_a_flow() {
    let mut bench = Bench::new();
    let mut fragment = client(ACK, 100, 500, 10).packet();
    fragment.fragment = true;
    bench.packet_at(0, &fragment, 1);
    bench.matcher.refused(sonde_wire::Error::Fragment);
    assert_eq!(bench.matcher.open_flows().count(), 0);
    assert_eq!((bench.counter("untracked_kind"), bench.counter("fragments")), (1, 1));
    let mut bench = connected();
    bench.packet_at(20_000, &fragment, 1).at(30_000, server(ACK, 500, 110, 0));
    assert_eq!(bench.samples(), []);
    assert_eq!((bench.flow().forward.packets, bench.counter("ack_unseen")), (3, 1));
}

#[test]
fn acknowledgements_of_unseen_data_make_no_sample() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 100, 500, 10))
        .at(30_000, server(ACK, 500, 150, 0)) // 110 to 150 went another way
        .at(31_000, client(ACK, 150, 500, 10))
        .at(41_000, server(ACK, 500, 160, 0))
        .at(42_000, server(ACK, 500, 160u32.wrapping_add(1 << 30), 0)); // nonsense
    assert_eq!(bench.samples(), [seq(10_000)]);
    assert_eq!(bench.counter("ack_unseen"), 1);
}

#[test]
fn response_time_is_from_the_first_segment_of_a_request_to_the_first_of_its_answer() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 100, 500, 10))
        .at(20_400, client(ACK, 110, 500, 10))
        .at(30_000, server(ACK, 500, 120, 0))
        .at(70_000, server(ACK, 500, 120, 10))
        .at(70_400, server(ACK, 510, 120, 10))
        .at(80_000, client(ACK, 120, 520, 10))
        .at(100_000, server(ACK, 520, 130, 10))
        .at(110_000, client(ACK, 130, 530, 10)) // this answer is on a repaired stream
        .at(120_000, client(ACK, 130, 530, 10))
        .at(130_000, server(ACK, 530, 130, 10));
    let flow = bench.flow();
    assert_eq!(
        (flow.responses, flow.response_sum_ns, flow.response_max_ns),
        (2, 70_000_000, 50_000_000)
    );
}

#[test]
fn ce_marks_are_counted_by_who_sent_the_packet() {
    let mut bench = connected();
    for tos in [0, 1, 2, 3, 0xbb] {
        let mut packet = client(ACK, 100, 500, 0).packet();
        packet.tos = tos;
        bench.packet_at(20_000, &packet, 1);
    }
    assert_eq!((bench.flow().forward.ce_marks, bench.flow().backward.ce_marks), (2, 0));
}

#[test]
fn a_pause_longer_than_64_s_is_no_round_trip() {
    let mut bench = connected();
    for (i, pause_s) in [65i64, 136, 139, 150].into_iter().enumerate() {
        let (at, i) = (1_000_000_000 * (i as i64 + 1), 10 * i as u32);
        bench
            .at(at - 1_000_000, client(ACK, 100 + i, 500, 10))
            .at(at - 1_000_000 + pause_s * 1_000_000, server(ACK, 500, 110 + i, 10));
        let _ = bench.ended();
    }
    assert_eq!(bench.samples(), []);
    assert_eq!(bench.matcher.open_flows().map(|flow| flow.responses).sum::<u64>(), 0);
}

/// 2^31 ticks, us: after this an age looks like nothing.
const WRAP: i64 = 137_438_954;

#[test]
fn a_pause_ends_what_waits_for_its_time() {
    // The handshake.
    let mut bench = Bench::new();
    bench
        .at(0, client(SYN, 99, 0, 0))
        .at(10_000, server(SYN | ACK, 499, 100, 0))
        .at(11_000 + WRAP, client(ACK, 100, 500, 0));
    assert_eq!(bench.samples(), [clean(RttKind::TcpHandshakeServer, 10_000)]);
    // A request, so that the next one is timed.
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 100, 500, 10))
        .at(20_000 + WRAP, client(ACK, 110, 500, 10))
        .at(32_000 + WRAP, server(ACK, 500, 120, 10));
    let flow = bench.flow();
    assert_eq!((flow.responses, flow.response_max_ns), (1, 12_000_000));
    // A hole: what fills it now was not overtaken.
    let mut bench = connected();
    bench.at(20_000, client(ACK, 110, 500, 10)).at(21_000 + WRAP, client(ACK, 100, 500, 10));
    let side = bench.flow().forward;
    assert_eq!((side.reordered, side.retransmitted), (0, 1));
}

#[test]
fn a_response_that_takes_longer_than_64_s_is_not_counted_though_the_flow_goes_on() {
    for after in [70_000_000, WRAP + 20_000] {
        let mut bench = connected();
        bench.at(20_000, client(ACK, 100, 500, 10)).at(30_000, server(ACK, 500, 110, 0));
        for s in 1..=(after / 1_000_000) {
            bench.at(s * 1_000_000, client(ACK, 110, 500, 0));
        }
        bench.at(after, server(ACK, 500, 110, 10));
        assert_eq!(bench.flow().responses, 0, "{after} us");
    }
}

#[test]
fn a_request_on_a_stream_under_repair_is_not_timed() {
    let mut bench = connected();
    bench
        .at(20_000, client(ACK, 100, 500, 10))
        .at(30_000, server(ACK, 500, 110, 10)) // the only response that counts
        .at(40_000, client(ACK, 100, 510, 10)) // sent again
        .at(40_080, client(ACK, 110, 510, 10)) // a request meanwhile
        .at(60_000, server(ACK, 510, 120, 10)); // ends the repair too
    assert_eq!(bench.flow().responses, 1);
}

#[test]
fn dns_over_tcp_is_a_sample_if_the_identifiers_agree() {
    for (id, found) in [(7, 1), (8, 0)] {
        let mut bench = Bench::new();
        bench
            .at(0, client(ACK, 100, 500, 30).dns(false, 7))
            .at(9_000, server(ACK, 500, 130, 0).dns(false, 0))
            .at(25_000, server(ACK, 500, 130, 80).dns(true, id));
        let samples = bench.samples();
        let dns = samples.iter().filter(|&&sample| sample == clean(RttKind::Dns, 25_000));
        assert_eq!(dns.count(), found);
        let side = bench.flow().forward;
        assert_eq!(side.rtt_smoothed_ns, side.rtt_min_ns, "not of the transport");
    }
}
