//! Connections that go on though something unlike them passed: forged and corrupt segments,
//! ports used again, copies of mirror ports, clocks that do not tick, paths that change. Each
//! is shown to both matchers, which must find the same, and what a perfect monitor would.

use crate::common::privileged;
use crate::common::rtt::both::Both;
use crate::common::rtt::{A, B, MS, Segment, T0};
use sonde_bpf::{RttSide, RttTestPacket};
use sonde_results::rtt::{RttClass, RttKind, RttSample};

/// A host's timestamp clock: its value at a time in ns; `None`: it sends no timestamps.
type Clock = Option<fn(i64) -> u32>;

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A client that sends, and a server that acknowledges. Each has a port of its own: to load the
/// program takes seconds.
struct Talk<'a> {
    both: &'a mut Both,
    port: u16,
    /// Samples and counts before it.
    samples: usize,
    counts: [u64; COUNTED.len()],
    /// Since the start, ns.
    at: i64,
    seq: u32,
    ack: u32,
    len: usize,
    rtt: i64,
    apart: i64,
    clocks: [Clock; 2],
    /// A mirror port's copy follows each packet.
    twice: bool,
}

fn ms(ns: i64) -> u32 {
    (ns / MS) as u32
}

const COUNTED: [&str; 4] = ["duplicated", "unconfirmed", "resynchronised", "flows"];

impl<'a> Talk<'a> {
    fn new(both: &'a mut Both, clock: Clock) -> Talk<'a> {
        let flows = both.count("flows");
        Talk {
            port: 4000 + flows as u16,
            samples: both.samples.len(),
            counts: COUNTED.map(|name| both.count(name)),
            both,
            at: 100 * MS,
            seq: 1001,
            ack: 5001,
            len: 200,
            rtt: 20 * MS,
            apart: 50 * MS,
            clocks: [clock; 2],
            twice: false,
        }
    }

    fn put(&mut self, at: i64, segment: Segment) {
        let frame = segment.port(self.port).frame();
        let packet = RttTestPacket { frame: &frame, ..RttTestPacket::default() };
        self.both.packet_counted(RttSide::Ingress, &packet, T0 + at);
        if self.twice {
            self.both.packet_counted(RttSide::Ingress, &packet, T0 + at + 5_000);
        }
    }

    /// With its sender's clock, and what it echoes.
    fn stamp(&self, segment: Segment, at: i64, echo: i64) -> Segment {
        let side = usize::from(segment.source == B.source);
        let ts = self.clocks[side]
            .map(|clock| (clock(at), self.clocks[1 - side].map_or(0, |c| c(echo))));
        Segment { ts, ..segment }
    }

    fn client(&self, flags: u8, len: usize) -> Segment {
        Segment { flags, seq: self.seq, ack: self.ack, len, ..A }
    }

    fn server(&self, flags: u8, len: usize) -> Segment {
        Segment { flags, seq: self.ack, ack: self.seq, len, ..B }
    }

    /// 20 ms to the server, 1 to the client.
    fn open(&mut self) {
        let syn = Segment { seq: self.seq - 1, ack: 0, ..self.client(SYN, 0) };
        let answer = Segment { seq: self.ack - 1, ..self.server(SYN | ACK, 0) };
        self.put(0, self.stamp(syn, 0, 0));
        self.put(20 * MS, self.stamp(answer, 10 * MS, 0));
        self.put(21 * MS, self.stamp(self.client(ACK, 0), 21 * MS, 10 * MS));
    }

    fn go_on(&mut self, exchanges: u32) {
        for _ in 0..exchanges {
            let at = self.at;
            self.put(at, self.stamp(self.client(ACK, self.len), at, at - self.apart));
            self.seq = self.seq.wrapping_add(self.len as u32);
            let answer = self.stamp(self.server(ACK, 0), at + self.rtt / 2, at);
            self.put(at + self.rtt, answer);
            self.at += self.apart;
        }
    }

    fn samples(&self) -> &[RttSample] {
        &self.both.samples[self.samples..]
    }

    /// Of [`COUNTED`], since its beginning.
    fn count(&self, name: &str) -> u64 {
        let i = COUNTED.iter().position(|&counted| counted == name).unwrap();
        self.both.count(name) - self.counts[i]
    }

    /// How many samples of each class, if none that is clean is above `most`; and what was
    /// sent again.
    fn end(&self, most: i64) -> ([usize; 3], u64) {
        let of = |class| self.samples().iter().filter(|s| s.class == class).count();
        let counts = [RttClass::Clean, RttClass::Recovery, RttClass::DelayedAck].map(of);
        let above = |s: &&RttSample| s.class == RttClass::Clean && s.rtt_ns > most as u64 + 64;
        assert_eq!(self.samples().iter().find(above), None);
        (counts, self.both.retransmitted(self.port))
    }
}

const CLOCKS: [Clock; 2] = [None, Some(ms)];

#[test]
fn what_is_unlike_a_connection_does_not_disturb_it() {
    if !privileged("what_is_unlike_a_connection_does_not_disturb_it") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    let disturb: [fn(&mut Talk<'_>); 8] = [
        // far_ahead
        |talk| {
            let forged = talk.client(ACK, 200);
            let forged = Segment { seq: forged.seq.wrapping_add(900_000_000), ..forged };
            talk.put(talk.at, talk.stamp(forged, talk.at, talk.at - 40 * MS));
        },
        // An acknowledgement far ahead.
        |talk| {
            let forged = Segment { ack: talk.ack + 70_000, ..talk.client(ACK, 0) };
            talk.put(talk.at, talk.stamp(forged, talk.at, talk.at - 40 * MS));
        },
        // Half of the sequence space away, where neither comes first.
        |talk| {
            let forged = talk.client(ACK, 0);
            let forged = Segment { ack: talk.ack.wrapping_add(1 << 31), ..forged };
            talk.put(talk.at, talk.stamp(forged, talk.at, talk.at - 40 * MS));
        },
        // blind_syn, and the question that answers it
        |talk| {
            talk.put(talk.at, Segment { flags: SYN, seq: 777_777, ack: 0, ..A });
            let asks = talk.stamp(talk.server(ACK, 0), talk.at, talk.at - 50 * MS);
            talk.put(talk.at + 20 * MS, asks);
        },
        |talk| talk.put(talk.at, Segment { flags: SYN | ACK, seq: 777_777, ack: 9, ..B }),
        // Blind resets.
        |talk| {
            let forged = talk.client(RST, 0);
            talk.put(talk.at, Segment { seq: forged.seq.wrapping_add(900_000_000), ..forged });
        },
        |talk| {
            let forged = talk.client(RST, 0);
            talk.put(talk.at, Segment { seq: forged.seq.wrapping_sub(200_000), ..forged });
        },
        |talk| talk.put(talk.at, Segment { flags: RST | ACK, seq: 900_000, ack: 9, ..B }),
    ];
    for clock in CLOCKS {
        for disturb in disturb {
            let mut talk = Talk::new(&mut both, clock);
            talk.open();
            talk.go_on(10);
            disturb(&mut talk);
            talk.at += 50 * MS;
            talk.go_on(60);
            assert_eq!(talk.count("unconfirmed"), 1);
            assert_eq!(talk.count("flows"), 1);
            assert_eq!(talk.end(20 * MS), ([72, 0, 0], 0));
        }
    }
    both.finish();
}

/// reuse_nosyn.
#[test]
fn ports_used_again_without_a_syn_are_taken_up() {
    if !privileged("ports_used_again_without_a_syn_are_taken_up") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    for clock in CLOCKS {
        for (seq, ack) in [(3_594_960_497, 99_999), (700_000_000, 3_000_000_000), (70_000, 5001)] {
            let mut talk = Talk::new(&mut both, clock);
            talk.open();
            talk.go_on(10);
            talk.at += 20_000 * MS;
            (talk.seq, talk.ack) = (talk.seq.wrapping_add(seq), ack);
            talk.go_on(60);
            assert_eq!(talk.count("resynchronised"), 1);
            assert_eq!(talk.end(20 * MS), ([72, 0, 0], 0));
        }
    }
    both.finish();
}

#[test]
fn a_connection_begins_with_a_syn_that_is_answered() {
    if !privileged("a_connection_begins_with_a_syn_that_is_answered") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    for (answered, halves) in [(true, 2), (false, 0)] {
        let mut talk = Talk::new(&mut both, Some(ms));
        talk.open();
        talk.go_on(5);
        let (syn, answer) = (Segment { flags: SYN, seq: 776, ack: 0, ..A }, B);
        let start = talk.at;
        talk.put(start, Segment { ts: Some((1, 0)), ..syn });
        if answered {
            let answer = Segment { flags: SYN | ACK, seq: 899, ack: 777, ..answer };
            talk.put(start + 20 * MS, Segment { ts: Some((9, 1)), ..answer });
        }
        let before = talk.samples().len() - usize::from(answered);
        talk.put(start + 21 * MS, Segment { seq: 777, ack: 900, ts: Some((22, 9)), ..A });
        assert_eq!(talk.samples().len() - before, halves);
        assert_eq!(talk.count("flows"), 2);
        assert_eq!(talk.end(20 * MS).1, 0);
    }
    both.finish();
}

/// A SYN whose answer did not pass; the connection goes on at other sequence numbers, and more than
/// half of them away. What looks like an answer there is none to that SYN.
#[test]
fn a_syn_ack_of_other_numbers_answers_no_syn() {
    if !privileged("a_syn_ack_of_other_numbers_answers_no_syn") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    for clock in CLOCKS {
        let mut talk = Talk::new(&mut both, clock);
        talk.put(0, Segment { flags: SYN, seq: talk.seq - 1, ack: 0, ..A });
        talk.seq = talk.seq.wrapping_add(3_000_000_000);
        talk.go_on(10);
        assert_eq!(talk.count("resynchronised"), 1);
        talk.put(talk.at, Segment { seq: 777_777, ..talk.server(SYN | ACK, 0) });
        talk.at += 50 * MS;
        talk.go_on(10);
        let handshake = |s: &&RttSample| s.kind == RttKind::TcpHandshakeServer;
        assert_eq!(talk.samples().iter().find(handshake), None);
        assert_eq!((talk.count("unconfirmed"), talk.count("flows")), (2, 1));
        assert_eq!(talk.end(20 * MS), ([20, 0, 0], 0));
    }
    both.finish();
}

/// span_dup.
#[test]
fn a_mirror_ports_copies_are_counted_apart() {
    if !privileged("a_mirror_ports_copies_are_counted_apart") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    for clock in CLOCKS {
        let mut talk = Talk::new(&mut both, clock);
        talk.twice = true;
        talk.open();
        talk.go_on(50);
        assert_eq!(talk.count("duplicated"), 103);
        assert_eq!(talk.end(20 * MS), ([52, 0, 0], 0));
    }
    both.finish();
}

/// ack_before_data.
#[test]
fn an_acknowledgement_before_its_data_is_no_retransmission() {
    if !privileged("an_acknowledgement_before_its_data_is_no_retransmission") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    for clock in CLOCKS {
        let mut talk = Talk::new(&mut both, clock);
        (talk.len, talk.rtt) = (100, 300_000);
        talk.open();
        for _ in 0..10 {
            talk.go_on(9);
            let (at, seq) = (talk.at, talk.seq);
            let data = talk.stamp(talk.client(ACK, 100), at, at - talk.apart);
            talk.seq = seq + 100;
            talk.put(at + 300_000, talk.stamp(talk.server(ACK, 0), at + 150_000, at));
            talk.put(at + 310_000, data);
            talk.at += talk.apart;
        }
        assert_eq!(talk.end(20 * MS), ([92, 0, 0], 0));
    }
    both.finish();
}

/// const_tsval, ts_1hz, ts_oneside.
#[test]
fn where_timestamps_are_of_no_use_sequence_numbers_are_timed() {
    if !privileged("where_timestamps_are_of_no_use_sequence_numbers_are_timed") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    let second: fn(i64) -> u32 = |ns| (ns / (1000 * MS)) as u32 + 9;
    let clocks: [[Clock; 2]; 4] =
        [[Some(|_| 12_345); 2], [Some(second); 2], [Some(ms), None], [None, Some(ms)]];
    for (i, clocks) in clocks.into_iter().enumerate() {
        let mut talk = Talk::new(&mut both, None);
        talk.clocks = clocks;
        talk.open();
        talk.go_on(60);
        println!("clocks {i}");
        assert_eq!(talk.end(20 * MS), ([62, 0, 0], 0));
    }
    both.finish();
}

/// step_push, and acknowledgements that are held back.
#[test]
fn a_path_that_becomes_longer_is_distinguished_from_acknowledgements_held_back() {
    if !privileged("a_path_that_becomes_longer_is_distinguished_from_acknowledgements_held_back") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    for clock in CLOCKS {
        for (apart, before, rtt, held) in [
            (1_000, 10, 100, 0),
            (1_000, 10, 50, 0),
            (200, 25, 100, 0),
            (200, 10, 100, 3),
            (1_000, 10, 610, 0),
            (200, 3, 50, 50), // 40 ms more: Linux' timer
        ] {
            let mut talk = Talk::new(&mut both, clock);
            talk.open();
            (talk.at, talk.rtt, talk.apart) = (1_000 * MS, 10 * MS, apart * MS);
            talk.go_on(before);
            talk.rtt = rtt * MS;
            talk.go_on(50);
            println!("{apart} {before} {rtt}");
            assert_eq!(talk.end(rtt * MS), ([2 + before as usize + 50 - held, 0, held], 0));
        }
    }
    both.finish();
}

/// hs_client_false.
#[test]
fn a_clients_half_of_the_handshake_ends_with_the_answer_to_the_syn_ack() {
    if !privileged("a_clients_half_of_the_handshake_ends_with_the_answer_to_the_syn_ack") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    // When the client answers, with how much, to what; and the class of that half.
    for (banner, at, len, ack, want) in [
        (2_000, 2_001, 0, 5031, None),
        (1, 2, 0, 5001, Some(RttClass::Clean)),
        (1, 2, 0, 5031, None),
        (0, 1, 70, 5001, Some(RttClass::Clean)),
        (0, 60, 70, 5001, Some(RttClass::DelayedAck)),
        (0, 2_000, 70, 5001, None),
    ] {
        let mut talk = Talk::new(&mut both, None);
        talk.put(0, Segment { flags: SYN, seq: 1000, ack: 0, ..A });
        talk.put(20 * MS, Segment { flags: SYN | ACK, seq: 5000, ack: 1001, ..B });
        if banner > 0 {
            talk.put((20 + banner) * MS, Segment { seq: 5001, ack: 1001, len: 30, ..B });
        }
        talk.put((20 + at) * MS, Segment { seq: 1001, ack, len, ..A });
        let kind = RttKind::TcpHandshakeClient;
        let half = talk.samples().iter().find(|s| s.kind == kind).map(|s| s.class);
        assert_eq!(half, want, "{banner} {at} {len} {ack}");
    }
    both.finish();
}

/// simopen.
#[test]
fn a_simultaneous_open_has_no_half_that_waited_for_the_application() {
    if !privileged("a_simultaneous_open_has_no_half_that_waited_for_the_application") {
        return;
    }
    let mut both = Both::load(|_, _| ());
    for (a, b) in [(15, 20), (20, 15)] {
        let mut talk = Talk::new(&mut both, None);
        let mut segments = [
            (0, Segment { flags: SYN, seq: 1000, ack: 0, ..A }),
            (5, Segment { flags: SYN, seq: 9000, ack: 0, ..B }),
            (a, Segment { flags: SYN | ACK, seq: 1000, ack: 9001, ..A }),
            (b, Segment { flags: SYN | ACK, seq: 9000, ack: 1001, ..B }),
            (100, Segment { seq: 1001, ack: 9001, len: 100, ..A }),
            (120, Segment { seq: 9001, ack: 1101, ..B }),
        ];
        segments.sort_by_key(|s| s.0);
        segments.into_iter().for_each(|(at, segment)| talk.put(at * MS, segment));
        let samples: Vec<_> = talk.samples().iter().map(|s| (s.kind, s.rtt_ns)).collect();
        let want = [
            (RttKind::TcpHandshakeServer, (b * MS) as u64),
            (RttKind::TcpSequence, 20 * MS as u64),
        ];
        assert_eq!(samples, want);
        assert_eq!(talk.count("flows"), 1);
        assert_eq!(talk.end(20 * MS).1, 0);
    }
    both.finish();
}
