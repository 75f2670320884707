//! A TCP sender and receiver over a path of known delay, loss and reordering, with the matcher in
//! its middle. What that calls clean must be the path's round trip.

use super::*;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// One way between monitor and either end, us: the monitor's round trip to the receiver is
/// twice the second.
const NEAR: i64 = 1_000;
const FAR: i64 = 10_000;
const JITTER: u64 = 500;
/// What an overtaken segment waits.
const OVERTAKEN: i64 = 1_500;
const MSS: u32 = 1_000;
const RTO: i64 = 250_000;
const DELAYED_ACK: i64 = 40_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Sequence number and TSval.
    DataAtMonitor(u32, u32),
    DataAtReceiver(u32, u32),
    /// Acknowledgement, TSecr, SACK.
    AckAtMonitor(u32, u32, bool),
    AckAtSender(u32),
    DelayedAck(u32),
    Timeout(u32),
}

struct Path {
    now: i64,
    events: BinaryHeap<Reverse<(i64, u64, Event)>>,
    order: u64,
    random: u64,
    loss_percent: u64,
    base: u32,
    /// When the last packet arrives over each half of the path.
    last: [i64; 4],
}

impl Path {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    fn after(&mut self, delay: i64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now + delay, self.order, event)));
    }

    /// Over one half of the path: in order, unless lost or overtaken.
    fn send(&mut self, delay: i64, event: Event) {
        if self.random(200) < self.loss_percent {
            return;
        }
        let jitter = self.random(JITTER) as i64;
        if self.random(200) < 1 {
            self.after(delay + jitter + OVERTAKEN, event);
            return;
        }
        let half = match event {
            Event::DataAtMonitor(..) => 0,
            Event::DataAtReceiver(..) => 1,
            Event::AckAtMonitor(..) => 2,
            _ => 3,
        };
        let at = (self.now + delay + jitter).max(self.last[half] + 1);
        self.last[half] = at;
        self.after(at - self.now, event);
    }

    fn tsval(&self) -> u32 {
        (self.now / 1_000) as u32
    }
}

/// Half the loss is before the monitor, half behind it. Relative sequence numbers; `base`
/// is added on the wire, so that they wrap.
fn run(seed: u64, window: u32, loss_percent: u64, timestamps: bool, total: u32) -> (Bench, u64) {
    let mut bench = Bench::new();
    let mut path = Path {
        now: 1_000_000,
        events: BinaryHeap::new(),
        order: 0,
        random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        loss_percent,
        base: 0u32.wrapping_sub(total / 2),
        last: [0; 4],
    };
    let (mut una, mut nxt, mut duplicates, mut recover) = (0u32, 0u32, 0, 0u32);
    let (mut expected, mut echo, mut last_ack, mut waiting) = (0u32, 0u32, 0u32, 0);
    let (mut beyond, mut resent) = (BTreeSet::new(), 0);
    bench
        .at(path.now - 23_000, client(SYN, path.base.wrapping_sub(1), 0, 0))
        .at(path.now - 2_000, server(SYN | ACK, 0, path.base, 0))
        .at(path.now - 8, client(ACK, path.base, 1, 0));
    bench.samples();
    path.after(0, Event::AckAtSender(0));
    path.after(RTO, Event::Timeout(0));
    while let Some(Reverse((at, _, event))) = path.events.pop() {
        path.now = at;
        let base = path.base;
        match event {
            Event::DataAtMonitor(seq, tsval) => {
                let segment = client(ACK, base.wrapping_add(seq), 1, MSS);
                bench.at(at, if timestamps { segment.ts(tsval, 1) } else { segment });
                path.send(FAR, Event::DataAtReceiver(seq, tsval));
            }
            Event::DataAtReceiver(seq, tsval) => {
                if seq <= last_ack && tsval > echo {
                    echo = tsval;
                }
                let in_order = seq == expected && beyond.is_empty();
                if seq >= expected {
                    beyond.insert(seq);
                }
                while beyond.remove(&expected) {
                    expected += MSS;
                }
                waiting += 1;
                if in_order && waiting < 2 {
                    path.after(DELAYED_ACK, Event::DelayedAck(expected));
                } else {
                    (waiting, last_ack) = (0, expected);
                    path.send(FAR, Event::AckAtMonitor(expected, echo, !beyond.is_empty()));
                }
            }
            Event::DelayedAck(ack) if waiting > 0 && ack == expected => {
                (waiting, last_ack) = (0, expected);
                path.send(FAR, Event::AckAtMonitor(expected, echo, false));
            }
            Event::AckAtMonitor(ack, tsecr, sack) => {
                let segment = Segment { sack, ..server(ACK, 1, base.wrapping_add(ack), 0) };
                bench.at(at, if timestamps { segment.ts(1, tsecr) } else { segment });
                path.send(NEAR, Event::AckAtSender(ack));
            }
            Event::AckAtSender(ack) => {
                let mut again = false;
                if ack > una {
                    (una, duplicates) = (ack, 0);
                    again = ack < recover;
                    path.after(RTO, Event::Timeout(ack));
                } else if una < nxt {
                    duplicates += 1;
                    again = duplicates == 3 && una >= recover;
                    if again {
                        recover = nxt;
                    }
                }
                if again {
                    resent += 1;
                    let tsval = path.tsval();
                    path.send(NEAR, Event::DataAtMonitor(una, tsval));
                }
                while nxt < total && nxt < una + window * MSS {
                    let tsval = path.tsval();
                    path.send(NEAR, Event::DataAtMonitor(nxt, tsval));
                    nxt += MSS;
                }
            }
            Event::Timeout(since) if since == una && una < total => {
                let tsval = path.tsval();
                recover = nxt;
                resent += 1;
                path.send(NEAR, Event::DataAtMonitor(una, tsval));
                path.after(RTO, Event::Timeout(una));
            }
            Event::DelayedAck(_) | Event::Timeout(_) => {}
        }
    }
    assert_eq!(una, total, "the transfer ends");
    (bench, resent)
}

/// `windows`: segments in flight. With one or two every acknowledgement waits for a timer or
/// its pair; 15 is more than a sender that backs off keeps at 2 % loss.
fn check(timestamps: bool, kind: RttKind) {
    let (mut clean, mut recovering, mut delayed, mut lost, mut stamped) = (0, 0, 0, 0, 0);
    for (window, seed) in [1, 2, 3, 4, 8, 15].into_iter().flat_map(|w| (1..=8).map(move |s| (w, s)))
    {
        let (mut bench, resent) = run(seed, window, 2, timestamps, 1_500 * MSS);
        for sample in bench.full_samples().iter().filter(|s| s.class == RttClass::Clean) {
            // Until its clock is known to tick, sequence numbers are timed.
            assert!(sample.kind == kind || sample.kind == RttKind::TcpSequence);
            stamped += u64::from(sample.kind == kind);
            let us = sample.rtt_ns as i64 / 1000;
            assert!((2 * FAR - 1..3 * FAR).contains(&us), "window {window} seed {seed}: {us} us");
        }
        let flow = bench.flow();
        clean += flow.forward.samples;
        recovering += flow.forward.samples_recovery;
        delayed += flow.forward.samples_delayed_ack;
        lost += resent;
    }
    let found = format!("{clean} clean, {recovering} recovering, {delayed} delayed; {lost} lost");
    assert!(stamped * 10 > clean * 9, "{stamped} of {found}");
    assert!(clean > 8_000 && recovering > 200 && delayed > 5_000 && lost > 2_000, "{found}");
}

#[test]
fn with_loss_and_reordering_no_clean_timestamp_sample_exceeds_1_5_round_trips() {
    check(true, RttKind::TcpTimestamp);
}

#[test]
fn with_loss_and_reordering_no_clean_sequence_sample_exceeds_1_5_round_trips() {
    check(false, RttKind::TcpSequence);
}

#[test]
fn without_loss_every_acknowledgement_is_a_sample() {
    // Nothing lost; a segment in 200 is overtaken on each half all the same.
    let (mut bench, resent) = run(7, 8, 0, false, 1_000 * MSS);
    let flow = bench.flow();
    let acknowledgements = flow.backward.packets as usize;
    let samples = bench.samples();
    assert!(samples.len() * 2 > acknowledgements, "{} of {acknowledgements}", samples.len());
    assert_eq!(flow.forward.retransmitted, resent, "overtaken, not sent again: {flow:?}");
    assert!(flow.forward.reordered > 0);
}
