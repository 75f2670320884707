//! Connections that go on though something unlike them passed: forged and corrupt segments,
//! ports used again, copies of mirror ports, clocks that do not tick, paths that change.

use super::*;

/// Exchanges of 20 ms, 50 ms apart, each of `len` octets from the client.
struct Talk {
    at: i64,
    seq: u32,
    ack: u32,
    len: u32,
    rtt: i64,
    apart: i64,
    clock: Option<fn(i64) -> u32>,
}

const TALK: Talk =
    Talk { at: 100_000, seq: 1001, ack: 5001, len: 200, rtt: 20_000, apart: 50_000, clock: None };

/// 1 ms for each tick.
fn ms(us: i64) -> u32 {
    (us / 1_000) as u32
}

impl Talk {
    fn stamp(&self, segment: Segment, us: i64, echo: i64) -> Segment {
        match self.clock {
            Some(clock) => segment.ts(clock(us), clock(echo)),
            None => segment,
        }
    }

    fn open(&self, bench: &mut Bench) {
        bench
            .at(0, self.stamp(client(SYN, self.seq - 1, 0, 0), 0, 0))
            .at(20_000, self.stamp(server(SYN | ACK, self.ack - 1, self.seq, 0), 10_000, 0))
            .at(21_000, self.stamp(client(ACK, self.seq, self.ack, 0), 21_000, 10_000));
    }

    fn go_on(&mut self, bench: &mut Bench, exchanges: u32) {
        for _ in 0..exchanges {
            let (at, rtt) = (self.at, self.rtt);
            let data = client(ACK, self.seq, self.ack, self.len);
            bench.at(at, self.stamp(data, at, at - self.apart + rtt / 2));
            self.seq = self.seq.wrapping_add(self.len);
            let answer = server(ACK, self.ack, self.seq, 0);
            bench.at(at + rtt, self.stamp(answer, at + rtt / 2, at));
            self.at += self.apart;
        }
    }
}

/// How many samples of each class, and the server's greatest clean one, us.
fn classes(bench: &mut Bench) -> ([usize; 3], u64) {
    let samples = bench.samples();
    let of = |class| samples.iter().filter(|s| s.1 == class).count();
    let clean = samples.iter().filter(|s| s.1 == RttClass::Clean);
    let counts = [RttClass::Clean, RttClass::Recovery, RttClass::DelayedAck].map(of);
    (counts, clean.map(|s| s.2).max().unwrap_or(0))
}

/// Ten exchanges, something else, sixty more: all are timed, nothing was sent again.
fn undisturbed(clock: Option<fn(i64) -> u32>, disturb: impl Fn(&mut Bench, &mut Talk)) -> Bench {
    let (mut bench, mut talk) = (Bench::new(), Talk { clock, ..TALK });
    talk.open(&mut bench);
    talk.go_on(&mut bench, 10);
    disturb(&mut bench, &mut talk);
    talk.at += 100_000;
    talk.go_on(&mut bench, 60);
    assert_eq!(classes(&mut bench), ([72, 0, 0], 20_000));
    assert_eq!(bench.reasons(), []);
    let flow = bench.flow();
    assert_eq!((flow.forward.retransmitted, flow.backward.retransmitted), (0, 0));
    assert_eq!((flow.forward.gaps, flow.backward.duplicate_acks), (0, 0));
    bench
}

type Clock = fn(i64) -> u32;
const CLOCKS: [Option<Clock>; 2] = [None, Some(ms)];

#[test]
fn one_segment_far_from_the_rest_changes_nothing() {
    for clock in CLOCKS {
        for offset in [900_000_000, 70_000] {
            let bench = undisturbed(clock, |bench, talk| {
                let forged = client(ACK, talk.seq.wrapping_add(offset), talk.ack, 200);
                bench.at(talk.at, talk.stamp(forged, talk.at, talk.at - 40_000));
            });
            assert_eq!(bench.counter("unconfirmed"), 1);
        }
        // Behind, it may have been sent again; but it spoils no sample.
        let (mut bench, mut talk) = (Bench::new(), Talk { clock, ..TALK });
        talk.open(&mut bench);
        talk.go_on(&mut bench, 10);
        let forged = client(ACK, talk.seq.wrapping_sub(900_000_000), talk.ack, 200);
        bench.at(talk.at, talk.stamp(forged, talk.at, talk.at - 40_000));
        talk.at += 100_000;
        talk.go_on(&mut bench, 60);
        assert_eq!(classes(&mut bench), ([72, 0, 0], 20_000));
        assert_eq!((bench.flow().forward.retransmitted, bench.counter("unconfirmed")), (1, 1));
    }
}

#[test]
fn an_acknowledgement_far_beyond_what_was_sent_changes_nothing() {
    for clock in CLOCKS {
        for offset in [900_000_000u32, 70_000, 1 << 31] {
            let (mut bench, mut talk) = (Bench::new(), Talk { clock, ..TALK });
            talk.open(&mut bench);
            talk.go_on(&mut bench, 10);
            let at = talk.at;
            let forged = client(ACK, talk.seq, talk.ack.wrapping_add(offset), 0);
            bench.at(at, talk.stamp(forged, at, at - 40_000));
            // What the server sends is new, whatever was acknowledged.
            let data = talk.stamp(server(ACK, talk.ack, talk.seq, 100), at, at);
            talk.ack += 100;
            let ack = talk.stamp(client(ACK, talk.seq, talk.ack, 0), at + 1_000, at);
            bench.at(at + 100, data).at(at + 1_100, ack);
            assert_eq!(bench.flow().backward.samples, 2, "with the handshake's");
            talk.at += 100_000;
            talk.go_on(&mut bench, 60);
            assert_eq!(classes(&mut bench), ([73, 0, 0], 20_000));
            assert_eq!(bench.counter("unconfirmed"), 1);
            assert_eq!(bench.flow().backward.retransmitted, 0);
        }
    }
}

#[test]
fn a_blind_syn_and_the_question_that_answers_it_change_nothing() {
    for clock in CLOCKS {
        for flags in [SYN, SYN | ACK] {
            for from_client in [true, false] {
                let bench = undisturbed(clock, |bench, talk| {
                    let blind = Segment { from_client, ..client(flags, 777_777, 9, 0) };
                    bench.at(talk.at, blind).at(talk.at + 400_000, blind);
                    let asks = match from_client {
                        true => server(ACK, talk.ack, talk.seq, 0),
                        false => client(ACK, talk.seq, talk.ack, 0),
                    };
                    bench.at(talk.at + 420_000, talk.stamp(asks, talk.at, talk.at - 40_000));
                    talk.at += 500_000;
                });
                assert_eq!(bench.counter("unconfirmed"), 2);
                assert_eq!(bench.counter("flows"), 1);
            }
        }
    }
}

/// RFC 5961, section 3.2: its receiver does not believe it, either.
#[test]
fn a_reset_far_from_the_connection_changes_nothing() {
    for clock in CLOCKS {
        for (from_client, offset) in [(true, 900_000_000), (true, -200_000), (false, 70_000)] {
            let bench = undisturbed(clock, |bench, talk| {
                let next = if from_client { talk.seq } else { talk.ack };
                let seq = next.wrapping_add_signed(offset);
                bench.at(talk.at, Segment { from_client, ..client(RST, seq, 9, 0) });
            });
            assert_eq!(bench.counter("unconfirmed"), 1);
        }
        for (from_client, offset) in [(true, 0), (true, -1_000), (false, 0), (false, 60_000)] {
            let (mut bench, mut talk) = (Bench::new(), Talk { clock, ..TALK });
            talk.open(&mut bench);
            talk.go_on(&mut bench, 10);
            let next = if from_client { talk.seq } else { talk.ack };
            let seq = next.wrapping_add_signed(offset);
            bench.at(talk.at, Segment { from_client, ..client(RST, seq, 9, 0) });
            talk.at += 1_000;
            talk.go_on(&mut bench, 2);
            assert_eq!(classes(&mut bench), ([12, 0, 0], 20_000), "{from_client} {offset}");
            assert_eq!(bench.counter("unconfirmed"), 0);
        }
    }
}

#[test]
fn a_connection_begins_with_a_syn_that_is_answered_or_followed() {
    // Answered; answered and followed; followed, as the answers pass elsewhere.
    for (answered, again, found) in [(true, false, 2), (true, true, 1), (false, false, 0)] {
        let (mut bench, mut talk) = (Bench::new(), TALK);
        talk.open(&mut bench);
        talk.go_on(&mut bench, 2);
        let _ = bench.samples();
        bench.at(1_000_000, client(SYN, 777_776, 0, 0).ts(1, 0));
        if again {
            bench.at(1_900_000, client(SYN, 777_776, 0, 0).ts(901, 0));
        }
        if answered {
            bench.at(2_000_000, server(SYN | ACK, 88_887, 777_777, 0).ts(7, 1));
        }
        bench.at(2_005_000, client(ACK, 777_777, 88_888, 0).ts(9, 7));
        let halves: Vec<_> = bench.samples().iter().map(|s| (s.0, s.2)).collect();
        let both = [(RttKind::TcpHandshakeServer, 1_000_000), (RttKind::TcpHandshakeClient, 5_000)];
        assert_eq!(halves, both[2 - found..], "answered {answered}, again {again}");
        assert_eq!(bench.reasons(), [EndReason::Reuse]);
        let flow = bench.flow();
        assert_eq!(flow.forward.packets, 2, "the SYN is the new connection's");
        assert_eq!(flow.flow.source_port, 40_000);
        bench.at(2_100_000, client(ACK, 777_777, 88_888, 50).ts(100, 7));
        bench.at(2_110_000, server(ACK, 88_888, 777_827, 0).ts(50, 100));
        assert_eq!(bench.samples().last().map(|s| s.2), Some(10_000));
    }
    // Of the answer alone: the SYN passed elsewhere.
    let (mut bench, mut talk) = (Bench::new(), TALK);
    talk.open(&mut bench);
    talk.go_on(&mut bench, 2);
    let _ = bench.samples();
    bench
        .at(1_000_000, server(SYN | ACK, 88_887, 777_777, 0))
        .at(1_005_000, client(ACK, 777_777, 88_888, 0));
    assert_eq!(bench.samples(), [clean(RttKind::TcpHandshakeClient, 5_000)]);
    assert_eq!(bench.reasons(), [EndReason::Reuse]);
}

#[test]
fn ports_used_again_without_a_syn_are_taken_up_at_their_new_numbers() {
    for clock in CLOCKS {
        // Ahead and behind, in one or both directions' sequence numbers, data both ways or one.
        for (seq, ack) in [(3_594_960_497, 99_999), (700_000_000, 3_000_000_000), (70_000, 5001)] {
            let (mut bench, mut talk) = (Bench::new(), Talk { clock, ..TALK });
            talk.open(&mut bench);
            talk.go_on(&mut bench, 10);
            talk.at += 20_000_000;
            (talk.seq, talk.ack) = (talk.seq.wrapping_add(seq), ack);
            talk.go_on(&mut bench, 60);
            assert_eq!(classes(&mut bench), ([72, 0, 0], 20_000), "{seq} {ack}");
            assert_eq!(bench.flow().forward.retransmitted, 0);
            assert_eq!(bench.counter("resynchronised"), 1);
            // The server's data is timed at its new sequence numbers, too.
            bench
                .at(talk.at, talk.stamp(server(ACK, talk.ack, talk.seq, 90), talk.at, talk.at))
                .at(
                    talk.at + 900,
                    talk.stamp(client(ACK, talk.seq, talk.ack + 90, 0), talk.at, talk.at),
                );
            assert_eq!(bench.samples().len(), 1);
        }
    }
}

#[test]
fn several_segments_in_a_row_are_believed_where_nobody_answers() {
    let mut bench = Bench::new();
    bench.at(0, client(ACK, 100, 1, 10));
    for i in 0..6u32 {
        bench.at(1_000 + i64::from(i), client(ACK, 500_000 + 10 * i, 1, 10));
    }
    bench.at(2_000, client(ACK, 500_030, 1, 10));
    assert_eq!(bench.counter("resynchronised"), 1);
    assert_eq!(bench.flow().forward.retransmitted, 1, "follows it there");
}

#[test]
fn an_acknowledgement_before_its_data_is_no_retransmission() {
    for clock in CLOCKS {
        let (mut bench, mut talk) = (Bench::new(), Talk { clock, ..TALK });
        talk.open(&mut bench);
        for _ in 0..10 {
            talk.go_on(&mut bench, 9);
            let (at, end) = (talk.at, talk.seq + 2 * talk.len);
            let second = client(ACK, talk.seq + talk.len, talk.ack, talk.len);
            bench
                .at(at, talk.stamp(server(ACK, talk.ack, end, 0), at - 5_000, at - 10_000))
                .at(at + 10, talk.stamp(client(ACK, talk.seq, talk.ack, talk.len), at, at))
                .at(at + 20, talk.stamp(second, at, at));
            (talk.seq, talk.at) = (end, at + talk.apart);
        }
        assert_eq!(classes(&mut bench), ([92, 0, 0], 20_000));
        let flow = bench.flow().forward;
        assert_eq!((flow.retransmitted, flow.reordered, flow.gaps), (0, 0, 0));
        assert_eq!(bench.counter("ack_unseen"), 10);
        // Long after, it was sent again.
        bench
            .at(talk.at, talk.stamp(server(ACK, talk.ack, talk.seq + 200, 0), talk.at, talk.at))
            .at(talk.at + 210_000, client(ACK, talk.seq, talk.ack, 200));
        assert_eq!(bench.flow().forward.retransmitted, 1);
    }
    // A SYN behind its answer.
    let mut bench = Bench::new();
    bench
        .at(0, server(SYN | ACK, 499, 100, 0))
        .at(10, client(SYN, 99, 0, 0))
        .at(1_000, client(ACK, 100, 500, 0));
    assert_eq!(bench.samples(), [clean(RttKind::TcpHandshakeClient, 1_000)]);
    assert_eq!((bench.reasons(), bench.counter("unconfirmed")), (vec![], 0));
}

#[test]
fn a_clients_half_of_the_handshake_ends_with_the_answer_to_the_syn_ack() {
    let halves = |bench: &mut Bench| {
        let kind = RttKind::TcpHandshakeClient;
        let found = bench.samples().into_iter().filter(|s| s.0 == kind);
        found.map(|s| (s.1, s.2)).collect::<Vec<_>>()
    };
    let opened = || {
        let mut bench = Bench::new();
        bench.at(0, client(SYN, 999, 0, 0)).at(20_000, server(SYN | ACK, 4_999, 1_000, 0));
        bench
    };
    // The banner's acknowledgement, 2 s later.
    let mut bench = opened();
    bench.at(2_020_000, server(ACK, 5_000, 1_000, 30)).at(2_021_000, client(ACK, 1_000, 5_030, 0));
    assert_eq!(halves(&mut bench), []);
    assert_eq!(bench.flow().handshake_client_ns, 0);
    // A banner does not hide it.
    let mut bench = opened();
    bench.at(20_100, server(ACK, 5_000, 1_000, 30)).at(21_000, client(ACK, 1_000, 5_000, 0));
    assert_eq!(halves(&mut bench), [(RttClass::Clean, 1_000)]);
    assert_eq!(bench.flow().backward.duplicate_acks, 0);
    // With a request it may have waited for that, and after some time it did.
    for (us, found) in [
        (1_000, vec![(RttClass::Clean, 1_000)]),
        (60_000, vec![(RttClass::DelayedAck, 60_000)]),
        (2_000_000, vec![]),
    ] {
        let mut bench = opened();
        bench.at(20_000 + us, client(ACK, 1_000, 5_000, 70));
        assert_eq!(halves(&mut bench), found);
    }
}

#[test]
fn a_simultaneous_open_has_no_half_that_waited_for_the_application() {
    // Either end's SYN-ACK first.
    for (a, b) in [(15_000, 20_000), (20_000, 15_000)] {
        let mut bench = Bench::new();
        bench.at(0, client(SYN, 999, 0, 0)).at(5_000, server(SYN, 8_999, 0, 0));
        let mut answers =
            [(a, client(SYN | ACK, 999, 9_000, 0)), (b, server(SYN | ACK, 8_999, 1_000, 0))];
        answers.sort_by_key(|answer| answer.0);
        answers.into_iter().for_each(|(at, answer)| {
            bench.at(at, answer);
        });
        bench.at(100_000, client(ACK, 1_000, 9_000, 10)).at(120_000, server(ACK, 9_000, 1_010, 0));
        assert_eq!(bench.samples(), [clean(RttKind::TcpHandshakeServer, b as u64), seq(20_000)]);
        assert_eq!((bench.reasons(), bench.counter("unconfirmed")), (vec![], 0));
        assert_eq!(bench.flow().forward.retransmitted + bench.flow().backward.retransmitted, 0);
    }
}

#[test]
fn where_timestamps_do_not_tick_sequence_numbers_are_timed() {
    let clocks: [fn(i64) -> u32; 3] = [|_| 12_345, |us| (us / 1_000_000) as u32, ms];
    for (i, clock) in clocks.into_iter().enumerate() {
        let (mut bench, mut talk) = (Bench::new(), Talk { clock: Some(clock), ..TALK });
        talk.open(&mut bench);
        talk.go_on(&mut bench, 400);
        assert_eq!(classes(&mut bench), ([402, 0, 0], 20_000), "clock {i}");
        // Karn's rule: what was sent again is not timed by its sequence number.
        let lost = client(ACK, talk.seq, talk.ack, 200);
        bench
            .at(talk.at, talk.stamp(lost, talk.at, talk.at))
            .at(talk.at + 300_000, talk.stamp(lost, talk.at + 300_000, talk.at));
        let ack = server(ACK, talk.ack, talk.seq + 200, 0);
        bench.at(talk.at + 320_000, talk.stamp(ack, talk.at + 310_000, talk.at + 300_000));
        let (counts, _) = classes(&mut bench);
        assert_eq!(counts, [0, usize::from(i == 2), 0], "clock {i}");
    }
    // Several in flight.
    let mut bench = Bench::new();
    bench
        .at(0, client(SYN, 99, 0, 0).ts(5, 0))
        .at(20_000, server(SYN | ACK, 499, 100, 0).ts(5, 5))
        .at(21_000, client(ACK, 100, 500, 0).ts(5, 5));
    for i in 0..100u32 {
        bench.at(30_000 + 2_000 * i64::from(i), client(ACK, 100 + 10 * i, 500, 10).ts(5, 5));
        if i >= 10 {
            let ack = server(ACK, 500, 10 * i + 10, 0).ts(5, 5);
            bench.at(30_000 + 2_000 * i64::from(i) + 8, ack);
        }
    }
    assert_eq!(bench.samples().len(), 92);
}

#[test]
fn in_a_data_centre_each_segment_is_timed_though_the_clock_ticks_once_a_millisecond() {
    let mut bench = Bench::new();
    bench
        .at(0, client(SYN, 99, 0, 0).ts(0, 0))
        .at(48, server(SYN | ACK, 499, 100, 0).ts(0, 0))
        .at(56, client(ACK, 100, 500, 0).ts(0, 0));
    for i in 0..400u32 {
        let at = 80 * (1 + i64::from(i));
        bench
            .at(at, client(ACK, 100 + 10 * i, 500, 10).ts(ms(at), ms(at)))
            .at(at + 48, server(ACK, 500, 110 + 10 * i, 0).ts(ms(at), ms(at)));
    }
    assert_eq!(classes(&mut bench), ([402, 0, 0], 48));
}

#[test]
fn timestamps_that_one_side_does_not_echo_are_not_waited_for() {
    // From the SYN-ACK on, and later.
    for with in [0, 5] {
        let mut bench = Bench::new();
        bench.at(0, client(SYN, 99, 0, 0).ts(1, 0));
        let answer = server(SYN | ACK, 499, 100, 0);
        bench.at(20_000, if with > 0 { answer.ts(1, 1) } else { answer });
        bench.at(21_000, client(ACK, 100, 500, 0).ts(21, 0));
        for i in 0..20u32 {
            let at = 100_000 + 50_000 * i64::from(i);
            bench.at(at, client(ACK, 100 + 10 * i, 500, 10).ts(ms(at), 0));
            let ack = server(ACK, 500, 110 + 10 * i, 0);
            bench.at(at + 20_000, if i < with { ack.ts(i, ms(at)) } else { ack });
        }
        let lost = usize::from(with > 0);
        assert_eq!(classes(&mut bench), ([22 - lost, 0, 0], 20_000));
    }
}

#[test]
fn a_path_that_becomes_longer_is_distinguished_from_acknowledgements_held_back() {
    for clock in CLOCKS {
        for (apart, before, rtt, held) in [
            (1_000_000, 10, 100_000, 0), // silences after which receivers acknowledge at once
            (1_000_000, 10, 50_000, 0),
            (200_000, 25, 100_000, 0), // more than Linux' receivers acknowledge at once
            (200_000, 10, 100_000, 3), // unknown at first
            (200_000, 10, 610_000, 0), // no acknowledgement is held back for so long
        ] {
            let (mut bench, mut talk) = (Bench::new(), Talk { clock, apart, ..TALK });
            talk.open(&mut bench);
            talk.rtt = 10_000;
            talk.at = 1_000_000;
            talk.go_on(&mut bench, before);
            talk.rtt = rtt;
            talk.apart = apart.max(rtt + 100_000);
            talk.go_on(&mut bench, 50);
            let (counts, longest) = classes(&mut bench);
            let want = [2 + before as usize + 50 - held, 0, held];
            assert_eq!((counts, longest), (want, rtt as u64), "{apart} {before} {rtt}");
        }
    }
}

#[test]
fn acknowledgements_held_back_now_and_then_stay_apart() {
    for clock in CLOCKS {
        let (mut bench, mut talk) = (Bench::new(), Talk { clock, apart: 200_000, ..TALK });
        talk.open(&mut bench);
        // Every second is held back, for 40 or for 100 ms.
        for i in 0..40 {
            talk.rtt = [20_000, 60_000, 20_000, 120_000][i % 4];
            talk.go_on(&mut bench, 1);
        }
        assert_eq!(classes(&mut bench), ([22, 0, 20], 20_000));
        // By Linux' timer each and every one, for long.
        let (mut bench, mut talk) = (Bench::new(), Talk { clock, apart: 200_000, ..TALK });
        talk.open(&mut bench);
        talk.rtt = 60_000;
        talk.go_on(&mut bench, 400);
        assert_eq!(classes(&mut bench), ([2, 0, 400], 20_000));
    }
}

/// A packet and its copy, 8 us later.
fn twice(bench: &mut Bench, us: i64, segment: Segment, identity: u32) {
    let packet = FlowPacket { identity, ..segment.packet() };
    bench.exactly(us, &packet, 1).exactly(us + 8, &packet, 1);
}

#[test]
fn copies_of_a_mirror_port_are_counted_apart() {
    for (numbered, stamped) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut bench = Bench::new();
        let mut n = 0;
        let mut put = |bench: &mut Bench, us: i64, segment: Segment, echo: i64| {
            n += 1;
            let segment = if stamped { segment.ts(ms(us), ms(echo)) } else { segment };
            twice(bench, us, segment, if numbered { n << 16 } else { 0 });
        };
        put(&mut bench, 0, client(SYN, 99, 0, 0), 0);
        put(&mut bench, 20_000, server(SYN | ACK, 499, 100, 0), 0);
        put(&mut bench, 21_000, client(ACK, 100, 500, 0), 20_000);
        for i in 0..50u32 {
            let at = 100_000 + 50_000 * i64::from(i);
            put(&mut bench, at, client(ACK, 100 + 10 * i, 500, 10), at - 30_000);
            put(&mut bench, at + 20_000, server(ACK, 500, 110 + 10 * i, 0), at);
        }
        assert_eq!(classes(&mut bench), ([52, 0, 0], 20_000), "{numbered} {stamped}");
        // Lost behind the mirror and sent again, and that twice too.
        let lost = client(ACK, 600, 500, 10);
        for at in [2_700_000, 3_000_000] {
            put(&mut bench, at, lost, at);
        }
        assert_eq!(bench.counter("duplicated"), 105);
        let flow = bench.flow().forward;
        assert_eq!((flow.packets, flow.retransmitted, flow.reordered), (54, 1, 0));
    }
}

#[test]
fn copies_that_come_behind_other_packets_are_copies_all_the_same() {
    let mut bench = Bench::new();
    bench.at(0, client(ACK, 100, 500, 0)).at(8, server(ACK, 500, 100, 0));
    for i in 0..40u32 {
        for (burst, late) in [(i, 0), (i, 300)] {
            for k in 0..20u32 {
                let at = 20_000 + 50_000 * i64::from(burst) + late + i64::from(k);
                bench.bare(at, client(ACK, 100 + 200 * i + 10 * k, 500, 10));
            }
        }
        bench.at(40_000 + 50_000 * i64::from(i), server(ACK, 500, 300 + 200 * i, 0));
    }
    assert_eq!(bench.counter("duplicated"), 800);
    assert_eq!(bench.samples(), vec![seq(20_000 - 19); 40]);
}

#[test]
fn what_is_alike_but_not_a_copy_counts() {
    // Sent again at once, after the receiver said that it misses something.
    let mut bench = Bench::new();
    bench.at(0, client(ACK, 100, 500, 0)).at(8, server(ACK, 500, 100, 0));
    bench
        .bare(1_000, client(ACK, 100, 500, 10))
        .bare(1_010, client(ACK, 110, 500, 10))
        .bare(1_100, server(ACK, 500, 100, 0).sack())
        .bare(1_120, server(ACK, 500, 100, 0).sack())
        .bare(1_200, client(ACK, 100, 500, 10));
    let flow = bench.flow();
    assert_eq!((flow.forward.retransmitted, flow.backward.duplicate_acks), (1, 2));
    assert_eq!(bench.counter("duplicated"), 0);
    // By its own identification of IP, whatever else is the same; and later than a copy comes.
    let mut bench = Bench::new();
    bench
        .at(0, client(ACK, 100, 500, 10))
        .at(100, client(ACK, 100, 500, 10))
        .bare(200, client(ACK, 100, 500, 10))
        .bare(3_000, client(ACK, 100, 500, 10));
    assert_eq!((bench.counter("duplicated"), bench.flow().forward.retransmitted), (0, 3));
}

#[test]
fn copies_of_requests_and_answers_leave_them_timed() {
    let mut bench = Bench::new();
    for (i, reply) in [(1u32, false), (1, true), (2, false), (2, true)] {
        let detail = Detail::Echo { reply, sequence: i as u16 };
        let ends = [("192.0.2.1", 7), ("198.51.100.2", 7)];
        let (from, to) = if reply { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
        let at = 100_000 * i64::from(i) + if reply { 20_000 } else { 0 };
        let packet = packet(1, from, to, 84, detail);
        bench.exactly(at, &packet, 1).exactly(at + 8, &packet, 1);
    }
    assert_eq!(bench.samples(), [clean(RttKind::IcmpEcho, 20_000); 2]);
    assert_eq!((bench.counter("duplicated"), bench.counter("duplicate_ids")), (4, 0));
}
