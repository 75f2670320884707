//! QUIC's spin bit and its verdict.

use super::exchanges::quic;
use super::*;
use sonde_results::rtt::SpinVerdict;
use sonde_wire::flow::Quic;

fn short(from_client: bool, spin: bool) -> FlowPacket {
    quic(from_client, Quic::Short { spin })
}

fn started() -> Bench {
    let mut bench = Bench::new();
    bench
        .packet_at(0, &quic(true, Quic::Initial), 1)
        .packet_at(20_000, &quic(false, Quic::Initial), 1)
        .packet_at(25_000, &quic(true, Quic::Handshake), 1);
    bench.samples();
    bench
}

/// The client inverts, the server reflects (RFC 9000, section 17.4). Seen 5 ms from the client and
/// 20 ms from the server, three packets each way and turn.
fn spin(bench: &mut Bench, turns: i64) {
    spin_from(bench, 100_000, turns);
}

fn spin_from(bench: &mut Bench, start: i64, turns: i64) {
    for turn in 0..turns {
        let (at, value) = (start + 25_000 * turn, turn % 2 == 1);
        for i in 0..3 {
            bench.packet_at(at + 80 * i, &short(true, value), 1);
        }
        for i in 0..3 {
            bench.packet_at(at + 20_000 + 80 * i, &short(false, value), 1);
        }
    }
}

#[test]
fn a_spinning_bit_is_believed_after_sixteen_edges_in_turn() {
    let mut bench = started();
    spin(&mut bench, 40);
    let samples = bench.samples();
    // 39 turns have edges of both sides; the first edge begins the count.
    assert_eq!(samples.len(), 39 * 2 - 1 - 15);
    let (server, client) = (clean(RttKind::QuicSpin, 20_000), clean(RttKind::QuicSpin, 5_000));
    assert!(samples.iter().all(|&sample| sample == server || sample == client), "{samples:?}");
    let flow = bench.flow();
    assert_eq!(flow.spin, SpinVerdict::Spinning);
    // The handshake's remain: the bit holds the application's time too.
    assert_eq!((flow.forward.rtt_min_ns, flow.forward.rtt_smoothed_ns), (20_000_000, 20_000_000));
    assert!(flow.forward.samples > 20);
}

#[test]
fn a_constant_bit_is_off() {
    for value in [false, true] {
        let mut bench = started();
        for i in 0..32 {
            assert_eq!(bench.flow().spin, SpinVerdict::Unknown);
            bench.packet_at(30_000 + 80 * i, &short(true, value), 1);
            bench.packet_at(30_040 + 80 * i, &short(false, !value), 1);
        }
        assert_eq!(bench.flow().spin, SpinVerdict::Off);
        assert_eq!(bench.samples(), []);
    }
}

#[test]
fn a_random_bit_makes_no_sample_and_is_named_so() {
    for seed in 1..200u64 {
        let mut bench = started();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for i in 0..4_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let packet = short(random & 1 == 0, random & 2 == 0);
            bench.packet_at(30_000 + 1_000 * i, &packet, 1);
        }
        assert_eq!(bench.samples(), [], "seed {seed}");
        assert_eq!(bench.flow().spin, SpinVerdict::Random, "seed {seed}");
    }
}

#[test]
fn reordering_round_an_edge_breaks_the_run_but_not_the_verdict() {
    let mut bench = started();
    spin(&mut bench, 40);
    bench.samples();
    let at = 100_000 + 25_000 * 40;
    bench
        .packet_at(at, &short(true, false), 1)
        .packet_at(at + 40, &short(true, true), 1) // overtaken by the edge
        .packet_at(at + 80, &short(true, false), 1)
        .packet_at(at + 20_000, &short(false, false), 1);
    assert_eq!(bench.samples(), [clean(RttKind::QuicSpin, 5_000)], "before, and none after");
    assert_eq!(bench.flow().spin, SpinVerdict::Spinning);
}

#[test]
fn a_clock_that_steps_back_ends_the_run() {
    let mut bench = started();
    spin(&mut bench, 40);
    bench.samples();
    spin_from(&mut bench, -5_000_000, 10);
    // Twenty edges: the first is noted only, the next fifteen make a run.
    assert_eq!(bench.samples().len(), 20 - 1 - 15);
}

#[test]
fn an_edge_after_a_long_silence_is_no_round_trip() {
    let mut bench = started();
    spin(&mut bench, 40);
    bench.samples();
    // The flow goes on meanwhile, so that no time-out ends it; 138 s is past the wrap.
    let last = 100_000 + 25_000 * 40;
    for second in 1..138 {
        bench.packet_at(last + second * 1_000_000, &short(false, true), 1);
    }
    bench.packet_at(last + 138_000_000, &short(true, false), 1);
    assert_eq!(bench.samples(), []);
    assert_eq!(bench.counter("stale"), 1);
}
