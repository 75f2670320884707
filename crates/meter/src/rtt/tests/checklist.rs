//! The correctness checklist, a test a row: timestamps, and what holds for TCP as such.
//! Rows about sequence numbers are in `sequence`, about other protocols in `exchanges`.

use super::*;

use super::seq as seq_of;

/// A connection whose sides have both had their first TSval edge. Its samples so far are
/// taken away. Next: client 120, server 20; TSvals 7 and 92.
fn settled() -> Bench {
    let mut bench = Bench::new();
    bench
        .at(-40_000, client(ACK, 100, 0, 20).ts(5, 90))
        .at(-30_000, server(ACK, 0, 120, 20).ts(90, 5))
        .at(-29_000, client(ACK, 120, 20, 0).ts(5, 90))
        .at(2_000, client(ACK, 120, 20, 0).ts(6, 90))
        .at(2_008, server(ACK, 20, 120, 0).ts(91, 6));
    bench.samples();
    bench
}

#[test]
fn repeated_tsval_arms_once_and_matches_the_first_echo_only() {
    let mut bench = settled();
    bench
        .at(4_000, client(ACK, 120, 20, 10).ts(7, 91)) // armed
        .at(4_400, client(ACK, 130, 20, 10).ts(7, 91)) // the same TSval
        .at(14_000, server(ACK, 20, 130, 0).ts(92, 7))
        .at(14_400, server(ACK, 20, 140, 0).ts(92, 7));
    assert_eq!(bench.samples(), [ts(10_000)]);
}

#[test]
fn a_pure_ack_arms_nothing_and_does_not_use_its_tsval_up() {
    let mut bench = settled();
    bench
        .at(4_000, client(ACK, 120, 20, 0).ts(7, 91)) // a pure ACK has TSval 7 first
        .at(4_200, server(ACK, 20, 120, 10).ts(92, 7)) // which acknowledges nothing new
        .at(4_800, client(ACK, 120, 20, 10).ts(7, 91)) // the first data with it
        .at(4_900, client(ACK, 130, 20, 10).ts(7, 91)) // and the second
        .at(14_000, server(ACK, 30, 140, 0).ts(93, 7));
    assert_eq!(bench.samples(), [ts(9_200)]);
}

#[test]
fn of_data_sent_again_its_own_tsval_is_timed() {
    let mut bench = settled();
    bench
        .at(4_000, client(ACK, 120, 20, 10).ts(7, 91))
        .at(40_000, client(ACK, 120, 20, 10).ts(43, 91))
        .at(50_000, server(ACK, 20, 130, 0).ts(92, 43));
    assert_eq!(bench.samples(), [(RttKind::TcpTimestamp, RttClass::Recovery, 10_000)]);
}

#[test]
fn non_ack_segments_have_no_valid_echo() {
    let mut bench = settled();
    bench.at(4_000, client(ACK, 120, 20, 10).ts(7, 91)).at(9_000, server(0, 20, 130, 0).ts(92, 7));
    assert_eq!(bench.samples(), []);
    bench.at(14_000, server(ACK, 20, 130, 0).ts(92, 7));
    assert_eq!(bench.samples(), [ts(10_000)], "its slot was still there");
}

#[test]
fn more_tsvals_in_flight_than_slots_never_overwrite_an_unmatched_one() {
    let mut bench = Bench::with(|config| config.slot_pages = 0);
    bench
        .at(0, client(SYN, 99, 0, 0).ts(1, 0))
        .at(20_000, server(SYN | ACK, 0, 100, 0).ts(1, 1))
        .at(20_008, client(ACK, 100, 1, 0).ts(1, 1));
    bench.samples();
    // One every 2 ms, a new TSval each, in a round trip of 20 ms: ten in flight.
    let answer = |i: u32| server(ACK, 1, 110 + 10 * i, 0).ts(50 + i, 10 + i);
    for i in 0..30u32 {
        let at = 100_000 + 2_000 * i64::from(i);
        if i >= 10 {
            bench.at(at - 40, answer(i - 10));
        }
        bench.at(at, client(ACK, 100 + 10 * i, 1, 10).ts(10 + i, 1));
    }
    let samples = bench.samples();
    assert!(samples.len() >= 8, "at least four a round trip: {samples:?}");
    assert!(samples.iter().all(|&sample| sample == ts(19_960)), "{samples:?}");
    // srtt is 20 ms: with two or more in flight the next waits for a quarter of it.
    assert!(bench.counter("spaced") > 0);
}

#[test]
fn more_tsvals_in_flight_than_slots_go_to_a_page() {
    let mut bench = settled();
    for i in 0..100u32 {
        bench.at(4_000 + 100 * i64::from(i), client(ACK, 120 + i, 20, 1).ts(7 + i, 91));
    }
    for i in 0..100u32 {
        bench.at(24_000 + 100 * i64::from(i), server(ACK, 20, 121 + i, 0).ts(92, 7 + i));
    }
    assert_eq!(bench.samples(), vec![ts(20_000); 100]);
    assert_eq!((bench.counter("spaced"), bench.counter("slots_full")), (0, 0));
    assert_eq!(bench.matcher.shared.pool.free(), 3);
    (0..16).for_each(|_| bench.matcher.handle_timeout(time(40_000)));
    assert_eq!(bench.matcher.shared.pool.free(), 4, "an empty ring gives its page back");
}

#[test]
fn slots_older_than_the_echo_are_freed() {
    let mut bench = settled();
    for i in 0..4 {
        bench.at(4_000, client(ACK, 120 + i, 20, 1).ts(7 + i, 91));
    }
    bench.at(14_000, server(ACK, 20, 123, 0).ts(92, 9)); // the ACKs of 7 and 8 were lost
    bench.at(14_008, server(ACK, 20, 124, 0).ts(92, 8)); // and this one overtaken
    bench.at(14_016, server(ACK, 20, 124, 0).ts(92, 10));
    assert_eq!(bench.samples(), [ts(10_000)]);
}

#[test]
fn a_lost_ack_costs_one_sample_of_several_in_the_window() {
    let mut bench = settled();
    for i in 0..4 {
        bench.at(4_000 + 1_000 * i64::from(i), client(ACK, 120 + i, 20, 1).ts(7 + i, 91));
    }
    for i in [0, 2, 3] {
        bench.at(14_000 + 1_000 * i64::from(i), server(ACK, 20, 121 + i, 0).ts(92, 7 + i));
    }
    assert_eq!(bench.samples(), [ts(10_000); 3]);
}

#[test]
fn first_packet_after_attach_waits_for_the_first_tsval_edge() {
    let mut bench = Bench::new();
    bench
        .at(0, client(ACK, 100, 1, 10).ts(5, 1)) // 5 may have left long ago
        .at(1_000, server(ACK, 1, 110, 0).ts(90, 5))
        .at(2_000, client(ACK, 110, 1, 10).ts(6, 1))
        .at(12_000, server(ACK, 1, 120, 0).ts(92, 6))
        .at(13_000, client(ACK, 120, 1, 10).ts(17, 1))
        .at(23_000, server(ACK, 1, 130, 0).ts(92, 17));
    let by_number = seq_of(1_000);
    assert_eq!(bench.samples(), [by_number, seq_of(10_000), ts(10_000)]);
}

#[test]
fn delayed_ack_is_flagged_and_stays_out_of_the_minimum() {
    let mut bench = settled();
    bench
        .at(4_000, client(ACK, 120, 20, 10).ts(7, 91))
        .at(14_000, server(ACK, 20, 130, 0).ts(92, 7))
        .at(20_000, client(ACK, 130, 20, 10).ts(23, 91))
        .at(70_000, server(ACK, 20, 140, 0).ts(150, 23)) // one segment, 40 ms more
        .at(80_000, client(ACK, 140, 20, 10).ts(83, 91));
    let delayed = (RttKind::TcpTimestamp, RttClass::DelayedAck, 50_000);
    assert_eq!(bench.samples(), [ts(10_000), delayed]);
    let flow = bench.flow();
    assert_eq!(flow.forward.samples_delayed_ack, 1);
    assert_eq!(flow.forward.rtt_smoothed_ns, 10_000_000);
    let groups = bench.matcher.take_groups(0, 1);
    let held: u64 = groups.iter().map(|group| group.delayed_ack.count).sum();
    assert_eq!(held, 1);
}

#[test]
fn delayed_ack_of_two_segments_is_flagged_if_the_sender_paused_between_them() {
    let mut bench = settled();
    bench
        .at(4_000, client(ACK, 120, 20, 10).ts(7, 91))
        .at(14_000, server(ACK, 20, 130, 0).ts(92, 7))
        .at(20_000, client(ACK, 130, 20, 10).ts(23, 91))
        .at(35_000, client(ACK, 140, 20, 10).ts(38, 91))
        .at(45_000, server(ACK, 20, 150, 0).ts(130, 23)); // the echo names the first
    let delayed = (RttKind::TcpTimestamp, RttClass::DelayedAck, 25_000);
    assert_eq!(bench.samples(), [ts(10_000), delayed]);
}

#[test]
fn a_queue_is_not_taken_for_delayed_acks() {
    let mut bench = settled();
    bench
        .at(4_000, client(ACK, 120, 20, 10).ts(7, 91))
        .at(14_000, server(ACK, 20, 130, 0).ts(92, 7));
    bench.samples();
    // A segment every 2 ms for 200 ms; 10 ms grow to 110 as the queue fills.
    let sent = |i: i64| 20_000 + 2_000 * i;
    let answered = |i: i64| 30_000 + 3_000 * i;
    let (mut next, mut acked) = (0, 0);
    while acked < 100 {
        if next < 100 && sent(next) <= answered(acked) {
            let i = next as u32;
            bench.at(sent(next), client(ACK, 130 + 10 * i, 20, 10).ts(23 + 2 * i, 92));
            next += 1;
        } else {
            let i = acked as u32;
            bench.at(answered(acked), server(ACK, 20, 140 + 10 * i, 0).ts(100, 23 + 2 * i));
            acked += 1;
        }
    }
    let samples = bench.samples();
    assert_eq!(samples.len(), 100);
    assert_eq!(samples[99], ts(109_000));
    assert!(samples.iter().all(|sample| sample.1 == RttClass::Clean), "{samples:?}");
}

#[test]
fn loss_and_reordering_put_samples_into_the_recovery_class() {
    let mut bench = settled();
    bench
        .at(4_000, client(ACK, 120, 20, 10).ts(7, 91)) // lost behind the monitor
        .at(5_000, client(ACK, 130, 20, 10).ts(8, 91))
        .at(15_000, server(ACK, 20, 120, 0).ts(92, 6)) // duplicate: the echo stands still
        .at(30_000, client(ACK, 120, 20, 10).ts(33, 91)) // sent again
        .at(40_000, server(ACK, 20, 140, 0).ts(115, 7)) // as if 7 had been held
        .at(41_000, client(ACK, 140, 20, 10).ts(44, 91))
        .at(51_000, server(ACK, 20, 150, 0).ts(125, 44));
    let repaired = (RttKind::TcpTimestamp, RttClass::Recovery, 36_000);
    assert_eq!(bench.samples(), [repaired, ts(10_000)]);
    let flow = bench.flow();
    assert_eq!((flow.forward.retransmitted, flow.backward.duplicate_acks), (1, 1));
    assert_eq!(flow.forward.samples_recovery, 1);
}

#[test]
fn sack_blocks_alone_put_samples_into_the_recovery_class() {
    let mut bench = settled();
    bench
        .at(4_000, client(ACK, 120, 20, 10).ts(7, 91))
        .at(5_000, client(ACK, 130, 20, 10).ts(8, 91))
        .at(14_000, server(ACK, 20, 130, 0).ts(92, 7).window(999).sack());
    let repaired = (RttKind::TcpTimestamp, RttClass::Recovery, 10_000);
    assert_eq!(bench.samples(), [repaired]);
}

#[test]
fn linux_echo_bug_stale_echoes_make_no_sample() {
    let mut bench = settled();
    bench
        .at(4_000, client(ACK, 120, 20, 10).ts(7, 91))
        .at(14_000, server(ACK, 20, 130, 0).ts(92, 7))
        .at(20_000, client(ACK, 130, 20, 10).ts(23, 92))
        .at(30_000, server(ACK, 20, 140, 0).ts(93, 7)); // echoes what was echoed before
    assert_eq!(bench.samples(), [ts(10_000)]);
}

#[test]
fn options_that_are_malformed_are_counted_and_not_used() {
    let mut bench = settled();
    let mut packet = client(ACK, 120, 20, 10).packet();
    if let Detail::Tcp(tcp) = &mut packet.detail {
        tcp.bad_options = true;
    }
    bench.packet_at(4_000, &packet, 1);
    assert_eq!(bench.counter("malformed"), 1);
    assert_eq!(bench.flow().forward.packets, 4);
}

#[test]
fn wraps_of_tsval_and_sequence_at_any_clock_rate() {
    // Ticks of 1 s, 10 ms, 1 ms, 1 us: as many as pass in 10 ms.
    for step in [1u32, 1, 10, 10_000] {
        let (mut bench, mut val, mut seq) =
            (Bench::new(), 0u32.wrapping_sub(5 * step), u32::MAX - 25);
        for i in 0..12 {
            let at = 20_000 * i;
            bench.at(at, client(ACK, seq, 1, 10).ts(val, 1));
            seq = seq.wrapping_add(10);
            bench.at(at + 10_000, server(ACK, 1, seq, 0).ts(1, val));
            val = val.wrapping_add(step);
        }
        // The first two are not known to be new.
        let by_number = 2;
        let want: Vec<_> =
            (0..12).map(|i| if i < by_number { seq_of(10_000) } else { ts(10_000) }).collect();
        assert_eq!(bench.samples(), want, "steps of {step}");
        assert_eq!(bench.flow().forward.retransmitted, 0);
    }
}

#[test]
fn tsval_0_is_a_value_like_any_other() {
    let mut bench = Bench::new();
    bench
        .at(0, client(SYN, 99, 0, 0).ts(u32::MAX, 0))
        .at(8_000, server(SYN | ACK, 0, 100, 0).ts(5, u32::MAX))
        .at(9_000, client(ACK, 100, 1, 10).ts(0, 5))
        .at(17_000, server(ACK, 1, 110, 0).ts(6, 0));
    assert_eq!(bench.samples().last(), Some(&ts(8_000)));
}

#[test]
fn port_reuse_with_a_lower_tsval_begins_anew() {
    let mut bench = settled();
    bench
        .at(4_000, client(SYN, 9_999, 0, 0).ts(2, 0)) // far below 6, and no FIN before
        .at(14_000, server(SYN | ACK, 700, 10_000, 0).ts(3, 2))
        .at(14_400, client(ACK, 10_000, 701, 10).ts(12, 3))
        .at(24_400, server(ACK, 701, 10_010, 0).ts(13, 12));
    assert_eq!(
        bench.samples(),
        [
            clean(RttKind::TcpHandshakeServer, 10_000),
            clean(RttKind::TcpHandshakeClient, 400),
            ts(10_000)
        ]
    );
    assert_eq!(bench.reasons(), [EndReason::Reuse]);
    assert_eq!(bench.flow().forward.packets, 2, "the SYN counts in the new flow");
}

#[test]
fn asymmetric_path_gives_the_handshakes_gap_and_the_tsval_clock_only() {
    // Only the client's direction passes here.
    let mut bench = Bench::new();
    bench.at(0, client(SYN, 99, 0, 0).ts(1_000, 0)).at(30_000, client(ACK, 100, 1, 0).ts(1_030, 5));
    for i in 0..40u32 {
        let late = if i == 30 { 25_000 } else { 0 };
        let at = 40_000 + 50_000 * i64::from(i) + late;
        bench.at(at, client(ACK, 100 + 10 * i, 1 + i, 10).ts(1_040 + 50 * i, 6 + i));
    }
    assert_eq!(bench.samples(), []);
    let flow = bench.flow();
    assert_eq!((flow.backward.packets, flow.forward.packets), (0, 42));
    let late = flow.forward.delay_variation_max_ns;
    assert!(late.abs_diff(25_000_000) < 1_000_000, "within one tick of 1 ms: {late}");

    // Only the server's: SYN-ACK to the client's answer cannot be timed, nothing is invented.
    let mut bench = Bench::new();
    bench
        .at(0, server(SYN | ACK, 0, 100, 0).ts(1, 1))
        .at(9_000, server(ACK, 1, 110, 10).ts(10, 2))
        .at(20_000, server(ACK, 11, 120, 10).ts(21, 3));
    assert_eq!(bench.samples(), []);
    assert_eq!(bench.flow().flow.source_port, 40_000, "who sends a SYN-ACK is no client");
}

#[test]
fn idle_reverse_direction_gives_no_sample_from_data_of_its_own() {
    let mut bench = settled();
    bench
        .at(4_000, client(ACK, 120, 20, 10).ts(7, 91))
        .at(9_000, server(ACK, 20, 120, 10).ts(92, 7)) // echoes 7 but acknowledges nothing
        .at(14_000, server(ACK, 30, 130, 0).ts(92, 7));
    assert_eq!(bench.samples(), []);
    assert_eq!(bench.counter("no_advance"), 1);
}

#[test]
fn syn_flood_with_random_addresses_leaves_established_flows_their_samples() {
    let mut bench = Bench::with(|config| config.flows = 256);
    bench
        .at(0, client(SYN, 99, 0, 0).ts(1, 0))
        .at(10_000, server(SYN | ACK, 0, 100, 0).ts(1, 1))
        .at(11_000, client(ACK, 100, 1, 0).ts(12, 1));
    bench.samples();
    let mut random = 1u64;
    let mut found = 0;
    for i in 0..2_000u32 {
        let at = 20_000 + 20_000 * i64::from(i);
        bench.at(at, client(ACK, 100 + 10 * i, 1, 10).ts(20 + 20 * i, 1));
        for _ in 0..20 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut syn = client(SYN, random as u32, 0, 0).packet();
            syn.source[12..].copy_from_slice(&(random >> 32).to_le_bytes()[..4]);
            bench.packet_at(at + 8, &syn, 1);
        }
        bench.at(at + 10_000, server(ACK, 1, 110 + 10 * i, 0).ts(7 + i, 20 + 20 * i));
        found += bench.samples().iter().filter(|&&sample| sample == ts(10_000)).count();
        bench.ended();
    }
    assert_eq!(found, 2_000);
    assert!(bench.matcher.open_flows().count() <= 256);
    assert_eq!(bench.counter("untracked_full"), 0);
    let groups = bench.matcher.take_groups(0, 1);
    assert_eq!(groups.len(), 2, "flows without samples make no groups");
}

#[test]
fn clock_steps_make_no_sample() {
    for step in [
        -8i64,
        -1_000,
        -500_000,
        -30_000_000,
        -100_000_000,
        -3_600_000_000,
        70_000_000,
        147_000_000,
    ] {
        let mut bench = settled();
        bench
            .at(4_000, client(ACK, 120, 20, 10).ts(7, 91))
            .at(4_000 + step, server(ACK, 20, 130, 0).ts(92, 7));
        assert_eq!(bench.samples(), [], "{step} us");
        assert_eq!(bench.counter("stale"), 1, "{step} us");
        assert!(bench.reasons().is_empty() || step > 0);
    }
}
