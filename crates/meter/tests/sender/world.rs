//! The sender in virtual time, against a reflector and a path made here: every number
//! that it reports is known beforehand.

use std::net::SocketAddr;

use sonde_meter::stamp::{
    Fate, LinkHeader, ReflectorKind, Schedule, Sender, SenderConfig, StreamSpec, Way,
};
use sonde_meter::{Instrument, Transmit};
use sonde_results::caveat::Caveat;
use sonde_results::record::{LossSide, pdv};
use sonde_results::{Counters, Interval};
use sonde_wire::build::{finish_udp, udp_header_sum};
use sonde_wire::stamp::ReflectorPacket;
use sonde_wire::{
    ErrorEstimate, NotSent, Scale, Stamp, StampSource, Time, TxDone, TxRefused, parse_udp,
};

const US: i64 = 1_000;
const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
/// 2026-11-21, TAI.
const START: i64 = 1_795_262_437 * SECOND;
const TAI: i64 = 37 * SECOND;

fn config() -> SenderConfig {
    SenderConfig {
        start: Time::from_nanos(START),
        timeout: SECOND,
        interval: 10 * SECOND,
        late_limit: MS,
        tai_offset: TAI,
        clock_synchronised: true,
        clock_error: 1000,
        tx_stamps: false,
        kernel_resolves: false,
        histogram_pages: 10_000,
        samples: true,
        seed: 1,
    }
}

fn spec(i: u16) -> StreamSpec {
    StreamSpec {
        source: format!("10.0.0.1:{}", 62_000 + i).parse().unwrap(),
        destination: "10.0.0.2:862".parse().unwrap(),
        dscp: 46,
        ttl: 255,
        next_hop: 0,
        ssid: 7 + i,
        ip_length: 150,
        period: 100 * MS,
        phase: 0,
        schedule: Schedule::Periodic,
        count: Some(100),
        reflector: ReflectorKind::Auto,
    }
}

fn hops() -> Vec<Way> {
    vec![Ok(LinkHeader::new([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[]))]
}

/// What the path does to a probe.
#[derive(Clone, Copy)]
struct Trip {
    forward: i64,
    dwell: i64,
    backward: i64,
    lost_forward: bool,
    lost_backward: bool,
    copies: u32,
}

const PLAIN: Trip = Trip {
    forward: 300 * US,
    dwell: 20 * US,
    backward: 500 * US,
    lost_forward: false,
    lost_backward: false,
    copies: 1,
};

/// Turns a probe into a stateful reflector's reply; `None` seq: stateless.
fn reflect(probe: &[u8], t2: i64, t3: i64, seq: Option<u32>) -> Vec<u8> {
    let mut frame = probe.to_vec();
    let udp = parse_udp(&frame).unwrap();
    let (ip, l4) = (udp.l3_offset, udp.l4_offset);
    let payload = udp.payload.clone();
    let mut reply = ReflectorPacket::reflect(&mut frame[payload], udp.ttl).unwrap();
    if let Some(seq) = seq {
        reply.set_sequence(seq);
    }
    reply.set_receive_timestamp(Time::from_nanos(t2).to_ntp(TAI).0);
    reply.set_timestamp(Time::from_nanos(t3).to_ntp(TAI).0);
    reply.set_error_estimate(ErrorEstimate(0x8001));
    for k in 0..4 {
        frame.swap(ip + 12 + k, ip + 16 + k);
    }
    for k in 0..2 {
        frame.swap(l4 + k, l4 + 2 + k);
    }
    finish(&mut frame);
    frame
}

/// Gives the frame the UDP checksum that belongs to it.
fn finish(frame: &mut [u8]) {
    let Ok(udp) = parse_udp(frame) else { return };
    let (from, to) = (
        SocketAddr::new(udp.source, udp.source_port),
        SocketAddr::new(udp.destination, udp.destination_port),
    );
    let sum = udp_header_sum(from, to, udp.payload.len()).unwrap();
    finish_udp(&mut frame[udp.l4_offset..udp.payload.end], sum, usize::MAX).unwrap();
}

struct World {
    sender: Sender,
    now: i64,
    /// (arrival, frame), unordered.
    air: Vec<(i64, Vec<u8>)>,
    records: Vec<Interval>,
    sent_at: Vec<i64>,
    reflector_seq: u32,
}

impl World {
    fn new(sender: Sender) -> Self {
        World {
            sender,
            now: START,
            air: Vec::new(),
            records: Vec::new(),
            sent_at: Vec::new(),
            reflector_seq: 0,
        }
    }

    /// Sends what is due now, each probe by `trip(n)`, `n` counting all probes.
    fn send(&mut self, trip: &mut dyn FnMut(usize) -> Trip) {
        let mut buffer = [0u8; 2048];
        let now = Time::from_nanos(self.now);
        while let Some(Transmit { len, .. }) = self.sender.poll_transmit(now, &mut buffer) {
            let t = trip(self.sent_at.len());
            self.sent_at.push(self.now);
            if t.lost_forward {
                continue;
            }
            let (t2, t3) = (self.now + t.forward, self.now + t.forward + t.dwell);
            for _ in 0..t.copies {
                let reply = reflect(&buffer[..len], t2, t3, Some(self.reflector_seq));
                self.reflector_seq = self.reflector_seq.wrapping_add(1);
                if !t.lost_backward {
                    self.air.push((t3 + t.backward, reply));
                }
            }
        }
    }

    fn receive(&mut self) {
        self.air.sort_by_key(|(at, _)| *at);
        while self.air.first().is_some_and(|(at, _)| *at <= self.now) {
            let (at, mut frame) = self.air.remove(0);
            let stamp = Stamp { at: Time::from_nanos(at), source: StampSource::Driver };
            self.sender.input(&mut frame, stamp, Time::from_nanos(self.now));
        }
    }

    fn collect(&mut self) {
        let mut record = Interval::empty(0);
        while self.sender.poll_record(&mut record) {
            self.records.push(record.clone());
        }
    }

    fn run(&mut self, until: i64, trip: &mut dyn FnMut(usize) -> Trip) {
        while self.now < until {
            self.receive();
            self.send(trip);
            self.sender.handle_timeout(Time::from_nanos(self.now));
            self.collect();
            self.now += 50 * US;
        }
    }

    fn finish(mut self) -> (Vec<Interval>, Sender, Vec<i64>) {
        self.sender.finish(Time::from_nanos(self.now));
        self.collect();
        (self.records, self.sender, self.sent_at)
    }
}

fn one(trip: &mut dyn FnMut(usize) -> Trip) -> (Interval, Sender) {
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    world.run(START + 12 * SECOND, trip);
    let (records, sender, _) = world.finish();
    let mut all = Interval::empty(0);
    records.iter().for_each(|r| all.merge(r));
    (all, sender)
}

#[test]
fn a_plain_path_gives_its_own_delays() {
    let (r, sender) = one(&mut |_| PLAIN);
    assert_eq!(r.counters, Counters { sent: 100, received: 100, ..Counters::default() });
    for (hist, value) in [
        (&r.rtt, 820 * US),
        (&r.rtt_net, 800 * US),
        (&r.forward, 300 * US),
        (&r.backward, 500 * US),
    ] {
        // The wire format resolves 0.23 ns, so each stamp may be off by one.
        assert_eq!(hist.count, 100);
        assert!((hist.min - value).abs() <= 2 && (hist.max - value).abs() <= 2, "{hist:?}");
    }
    assert_eq!((r.ipdv_forward.count, r.ipdv_backward.count), (99, 99));
    assert!(r.ipdv_forward.max.abs() <= 2 && r.jitter_forward_ns < 2.0);
    assert!(pdv(&r.forward, 0.999).unwrap() <= 2);
    assert_eq!(r.t4_source, Some(StampSource::Driver));
    assert_eq!(r.t1_source, Some(StampSource::User));
    assert!(r.caveats.contains(Caveat::SoftwareStamps));
    assert!(!r.caveats.contains(Caveat::PeerClockUnsynchronised));
    assert_eq!(sender.counters().replies, 100);
    assert!(sender.is_done());
}

#[test]
fn losses_have_a_side_and_the_counts_add_up() {
    let (r, _) =
        one(&mut |n| Trip { lost_forward: n % 10 == 3, lost_backward: n % 10 == 7, ..PLAIN });
    assert_eq!((r.counters.sent, r.counters.received, r.counters.lost), (100, 80, 20));
    assert_eq!((r.counters.lost_forward, r.counters.lost_backward), (Some(10), Some(10)));
    assert_eq!(r.loss_side, LossSide::Known);
}

#[test]
fn a_reply_after_the_timeout_is_lost_and_late() {
    let (r, sender) =
        one(&mut |n| Trip { backward: if n == 50 { 1100 * MS } else { PLAIN.backward }, ..PLAIN });
    assert_eq!((r.counters.received, r.counters.lost, r.counters.late), (99, 1, 1));
    assert_eq!(sender.counters().late, 1);
    assert_eq!(r.rtt.max / MS, 0, "its delay is undefined (RFC 7680)");
}

#[test]
fn duplicates_and_reordering_are_counted_once_each() {
    let (r, _) = one(&mut |n| Trip {
        copies: if n == 20 { 3 } else { 1 },
        backward: if n == 40 { 250 * MS } else { PLAIN.backward },
        ..PLAIN
    });
    assert_eq!((r.counters.received, r.counters.lost), (100, 0));
    assert_eq!(r.counters.duplicated, 2);
    assert_eq!(r.counters.reordered, 1, "probe 40 came after 41 and 42 (RFC 4737)");
    assert_eq!(r.counters.lost_unknown, 0);
}

#[test]
fn delay_variation_is_between_neighbours_in_sending_order() {
    let (r, _) =
        one(&mut |n| Trip { forward: if n % 2 == 0 { 300 * US } else { 400 * US }, ..PLAIN });
    assert_eq!(r.ipdv_forward.count, 99);
    assert!((r.ipdv_forward.max - 100 * US).abs() <= 2);
    assert!((r.ipdv_forward.min + 100 * US).abs() <= 2);
    assert!((r.jitter_forward_ns / 1000.0 - 100.0).abs() < 1.0, "{}", r.jitter_forward_ns);
    assert!(r.ipdv_backward.max.abs() <= 2);
    assert!((pdv(&r.forward, 1.0).unwrap() - 100 * US).abs() < 2 * US);
}

#[test]
fn interval_records_cut_by_the_time_of_sending() {
    let mut config = config();
    config.interval = 2 * SECOND;
    let mut world = World::new(Sender::new(config, &[spec(0)], hops()).unwrap());
    world.run(START + 12 * SECOND, &mut |n| Trip { lost_forward: n == 19 || n == 20, ..PLAIN });
    let (records, ..) = world.finish();
    assert_eq!(records.len(), 5);
    for (i, r) in records.iter().enumerate() {
        assert_eq!(r.start_ns, START + i as i64 * 2 * SECOND);
        assert_eq!(r.end_ns - r.start_ns, 2 * SECOND);
        assert_eq!(r.counters.sent, 20);
        // 19 is the last probe of the first interval, 20 the first of the second.
        assert_eq!(r.counters.lost, u64::from(i < 2));
    }
}

#[test]
fn an_interrupted_run_leaves_open_probes_out() {
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    world.run(START + 2 * SECOND, &mut |n| Trip { lost_forward: n == 3 || n >= 15, ..PLAIN });
    let (records, sender, sent_at) = world.finish();
    assert_eq!(sent_at.len(), 20);
    let c = records[0].counters;
    // Of 3 and 15..20 unanswered, only what was sent a timeout ago is lost.
    let old = sent_at.iter().filter(|&&t| t <= START + SECOND).count();
    assert_eq!(old, 11);
    assert_eq!((c.sent, c.received, c.lost), (15, 14, 1));
    assert_eq!(sender.counters().unresolved, 5);
}

#[test]
fn the_true_departure_counts_not_the_time_in_the_packet() {
    for reply_first in [false, true] {
        let mut c = config();
        c.tx_stamps = true;
        let mut sender = Sender::new(c, &[spec(0)], hops()).unwrap();
        let mut buffer = [0u8; 2048];
        let now = Time::from_nanos(START);
        let sent = sender.poll_transmit(now, &mut buffer).unwrap();
        assert_ne!(sent.cookie, 0);
        let left = START + 70 * US;
        let done = TxDone {
            cookie: sent.cookie,
            stamp: Stamp { at: Time::from_nanos(left), source: StampSource::Driver },
        };
        let mut reply = reflect(&buffer[..sent.len], left + 5 * US, left + 6 * US, Some(0));
        let t4 = Stamp { at: Time::from_nanos(left + 10 * US), source: StampSource::Driver };
        if reply_first {
            sender.input(&mut reply, t4, now);
            sender.transmitted(done);
        } else {
            sender.transmitted(done);
            sender.input(&mut reply, t4, now);
        }
        sender.finish(Time::from_nanos(START + SECOND));
        let mut r = Interval::empty(0);
        assert!(sender.poll_record(&mut r));
        assert_eq!(r.rtt.max, 10 * US);
        assert!((r.forward.max - 5 * US).abs() <= 1);
        assert_eq!(r.t1_source, Some(StampSource::Driver));
        assert_eq!(sender.counters().unstamped, 0);
    }
}

#[test]
fn strangers_forgers_and_rubbish_are_counted_and_change_nothing() {
    let mut sender = Sender::new(config(), &[spec(0)], hops()).unwrap();
    let mut buffer = [0u8; 2048];
    let now = Time::from_nanos(START);
    let len = sender.poll_transmit(now, &mut buffer).unwrap().len;
    let good = reflect(&buffer[..len], START + US, START + 2 * US, Some(0));
    let stamp = Stamp { at: Time::from_nanos(START + 3 * US), source: StampSource::Driver };
    let payload = 42;
    let mut case = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        finish(&mut frame);
        sender.input(&mut frame, stamp, now);
        sender.counters()
    };
    assert_eq!(case(&|f| f.truncate(30)).malformed, 1);
    assert_eq!(case(&|f| f[29] = 9).other_replies, 1, "another address");
    assert_eq!(case(&|f| f[35] ^= 1).other_replies, 2, "another port");
    let stale = |f: &mut Vec<u8>| (f[29], f[payload + 28]) = (9, 0);
    assert_eq!(case(&stale).strangers, 1, "and nothing that we sent of late");
    assert_eq!(case(&|f| f[payload + 15] = 99).wrong_session, 1);
    assert_eq!(case(&|f| f[payload + 27] = 5).forged, 1, "never sent");
    assert_eq!(case(&|f| f[payload + 30] ^= 1).forged, 2, "echo is wrong");
    let c = case(&|f| {
        // A datagram of 20 octets.
        f[39] = 28;
        f[38] = 0;
    });
    assert_eq!((c.short, c.replies), (1, 0));
    let c = case(&|f| (f[39], f[38], f[29]) = (28, 0, 9));
    assert_eq!((c.short, c.strangers), (1, 2), "a short one of somebody else");
    let mut damaged = good.clone();
    damaged[payload + 20] ^= 0x40;
    sender.input(&mut damaged, stamp, now);
    assert_eq!(sender.counters().checksum, 1, "T2 is not what the reflector wrote");
    damaged[29] = 9;
    sender.input(&mut damaged, stamp, now);
    let c = sender.counters();
    assert_eq!((c.checksum, c.strangers), (1, 3), "a damaged one of somebody else");
    let mut case = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        sender.input(&mut frame, stamp, now);
        sender.counters()
    };
    assert_eq!(case(&|_| ()).replies, 1, "the good one still counts");
    assert_eq!(case(&|_| ()).duplicates, 1);
}

#[test]
fn impossible_reflector_times_spoil_only_what_depends_on_them() {
    let mut sender = Sender::new(config(), &[spec(0)], hops()).unwrap();
    let mut buffer = [0u8; 2048];
    let now = Time::from_nanos(START);
    let len = sender.poll_transmit(now, &mut buffer).unwrap().len;
    let mut reply = reflect(&buffer[..len], START + US, START + SECOND, Some(0));
    let stamp = Stamp { at: Time::from_nanos(START + 900 * US), source: StampSource::Driver };
    sender.input(&mut reply, stamp, now);
    sender.finish(Time::from_nanos(START + 2 * SECOND));
    let mut r = Interval::empty(0);
    assert!(sender.poll_record(&mut r));
    assert_eq!((r.rtt.count, r.rtt_net.count, r.forward.count), (1, 0, 0));
    assert!(r.caveats.contains(Caveat::ReflectorTimesWrong));
}

#[test]
fn a_stalled_sender_neither_bursts_nor_forgets() {
    let streams: Vec<_> =
        (0..100).map(|i| StreamSpec { phase: i64::from(i) * MS, count: None, ..spec(i) }).collect();
    let mut sender = Sender::new(config(), &streams, hops()).unwrap();
    let mut buffer = [0u8; 2048];
    let mut sends = Vec::new();
    let mut now = START;
    // 1,000 sends a second; the machine stands still for 50 ms, then for 250 ms.
    while now < START + 2 * SECOND {
        while sender.poll_transmit(Time::from_nanos(now), &mut buffer).is_some() {
            sends.push(now);
        }
        now += 100 * US;
        if now == START + 500 * MS {
            now += 50 * MS;
        }
        if now == START + SECOND {
            now += 250 * MS;
        }
    }
    let shortest = sends.windows(2).map(|w| w[1] - w[0]).min().unwrap();
    // Half the planned spacing, less the step of this clock.
    assert!(shortest >= 400 * US, "the backlog left {shortest} ns apart");
    sender.finish(Time::from_nanos(now + SECOND));
    let mut all = Interval::empty(0);
    let mut r = Interval::empty(0);
    while sender.poll_record(&mut r) {
        all.merge(&r);
    }
    let c = all.counters;
    assert_eq!(c.sent + sender.counters().unresolved, sends.len() as u64);
    // Every planned probe was sent or is accounted for: 20 a stream.
    let planned = 100 * 20;
    let missing = planned - sends.len() as u64 - c.skipped;
    assert!(missing <= 130, "{missing} are still waiting at the end, no more");
    assert!(c.skipped >= 100 && c.sent_late > 0, "{c:?}");
    assert!(all.caveats.contains(Caveat::SenderLate) && all.caveats.contains(Caveat::SendsSkipped));
}

#[test]
fn without_a_next_hop_nothing_leaves_and_it_is_said() {
    let mut world =
        World::new(Sender::new(config(), &[spec(0)], vec![Err(NotSent::NoNeighbour)]).unwrap());
    world.run(START + SECOND, &mut |_| PLAIN);
    assert!(world.sent_at.is_empty());
    world.sender.set_way(0, hops()[0]);
    world.run(START + 12 * SECOND, &mut |_| PLAIN);
    let (records, ..) = world.finish();
    let mut all = Interval::empty(0);
    records.iter().for_each(|r| all.merge(r));
    assert_eq!((all.counters.skipped, all.counters.received), (10, 90), "a hundred attempts");
    assert!(!all.caveats.contains(Caveat::SendsSkipped), "the rate is not to blame");
    assert!(all.caveats.contains(Caveat::NextHopUnresolved));
}

#[test]
fn the_sequence_number_wraps() {
    // Four billion probes are too many to send here: begin near the end of the numbers.
    let mut sender = Sender::new(config(), &[spec(0)], hops()).unwrap();
    sender.begin_at(0, u32::MAX - 40);
    let mut world = World::new(sender);
    world.reflector_seq = u32::MAX - 40;
    let mut trip = |n| Trip { lost_forward: n == 60, copies: 1, ..PLAIN };
    while world.now < START + 12 * SECOND {
        world.receive();
        world.send(&mut trip);
        world.collect();
        world.now += 50 * US;
    }
    let (records, sender, _) = world.finish();
    let mut all = Interval::empty(0);
    records.iter().for_each(|r| all.merge(r));
    assert_eq!((all.counters.sent, all.counters.received, all.counters.lost), (100, 99, 1));
    assert_eq!((all.counters.late, all.counters.reordered), (0, 0));
    assert_eq!((all.counters.lost_forward, all.ipdv_forward.count), (Some(1), 97));
    assert_eq!(sender.counters().forged, 0);
}

#[test]
fn every_sent_probe_is_received_or_lost_whatever_happens() {
    for seed in 0..20u64 {
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = move || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x >> 11
        };
        let mut c = config();
        c.interval = SECOND;
        let streams: Vec<_> = (0..3)
            .map(|i| StreamSpec {
                schedule: if i == 1 { Schedule::Poisson } else { Schedule::Periodic },
                count: Some(40),
                ..spec(i)
            })
            .collect();
        let mut world = World::new(Sender::new(c, &streams, hops()).unwrap());
        let mut lost = 0;
        world.run(START + 16 * SECOND, &mut |_| {
            let t = Trip {
                forward: (random() % 900) as i64 * MS,
                lost_forward: random() % 10 == 0,
                lost_backward: random() % 10 == 0,
                copies: 1 + u32::from(random() % 10 == 0),
                ..PLAIN
            };
            lost += u64::from(t.lost_forward || t.lost_backward);
            t
        });
        let (records, sender, sent_at) = world.finish();
        let mut all = Interval::empty(0);
        records.iter().for_each(|r| all.merge(r));
        let n = all.counters;
        assert_eq!(n.sent, sent_at.len() as u64, "seed {seed}");
        assert_eq!(n.sent, n.received + n.lost, "seed {seed}");
        assert_eq!(n.lost, lost, "seed {seed}: no delay exceeds the timeout");
        assert_eq!(all.rtt.count, n.received, "seed {seed}");
        assert_eq!(sender.counters().replies, n.received, "seed {seed}");
    }
}

#[test]
fn samples_tell_each_fate() {
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    world.run(START + 12 * SECOND, &mut |n| Trip { lost_forward: n == 5, ..PLAIN });
    let mut lost = Vec::new();
    let mut replies = 0;
    while let Some(sample) = world.sender.poll_sample() {
        match sample.fate {
            Fate::Lost => lost.push(sample.seq),
            Fate::NotSent(_) => unreachable!(),
            Fate::Reply { sender_ttl, .. } => {
                replies += 1;
                assert_eq!(sender_ttl, 255);
            }
        }
    }
    assert_eq!((replies, lost), (99, vec![5]));
}

#[test]
fn bad_plans_are_refused_with_a_reason() {
    let refused = |change: &dyn Fn(&mut StreamSpec)| {
        let mut s = spec(0);
        change(&mut s);
        Sender::new(config(), &[s], hops()).err().unwrap().to_string()
    };
    assert!(refused(&|s| s.dscp = 64).contains("0..=63"));
    assert!(refused(&|s| s.ip_length = 71).contains("72"));
    assert!(refused(&|s| s.ttl = 0).contains("TTL"));
    assert!(refused(&|s| s.period = 0).contains("zero"));
    assert!(refused(&|s| s.next_hop = 1).contains("next hop"));
    assert!(refused(&|s| s.destination = "[::1]:862".parse().unwrap()).contains("IP version"));
    let twice = Sender::new(config(), &[spec(0), spec(0)], hops()).err().unwrap().to_string();
    assert!(twice.contains("stream 1") && twice.contains("source port"));
}

/// A sender, its first probe sent at the start, and the frame.
fn first_probe(mut config: SenderConfig) -> (Sender, u64, Vec<u8>) {
    config.interval = SECOND;
    let mut sender = Sender::new(config, &[spec(0)], hops()).unwrap();
    let mut buffer = [0u8; 2048];
    let sent = sender.poll_transmit(Time::from_nanos(START), &mut buffer).unwrap();
    (sender, sent.cookie, buffer[..sent.len].to_vec())
}

fn answer(sender: &mut Sender, mut reply: Vec<u8>, at: i64) {
    let stamp = Stamp { at: Time::from_nanos(at), source: StampSource::Driver };
    sender.input(&mut reply, stamp, Time::from_nanos(at));
}

fn record(sender: &mut Sender, end: i64) -> Interval {
    sender.finish(Time::from_nanos(end));
    let mut all = Interval::empty(0);
    let mut r = Interval::empty(0);
    while sender.poll_record(&mut r) {
        all.merge(&r);
    }
    all
}

#[test]
fn what_the_kernel_refused_is_not_sent_and_not_lost() {
    for (why, caveat) in [
        (NotSent::LinkDown, Caveat::SendsFailed),
        (NotSent::NoRoute, Caveat::SendsFailed),
        (NotSent::Refused, Caveat::SendsFailed),
        (NotSent::TooLong, Caveat::SendsFailed),
        (NotSent::NoNeighbour, Caveat::NextHopUnresolved),
    ] {
        let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
        let mut buffer = [0u8; 2048];
        // Twenty of a hundred are refused; the next one is lost on its way.
        while world.now < START + 12 * SECOND {
            world.receive();
            let refused = (START + 2 * SECOND..START + 4 * SECOND).contains(&world.now);
            let now = Time::from_nanos(world.now);
            if refused {
                while let Some(sent) = world.sender.poll_transmit(now, &mut buffer) {
                    world.sent_at.push(world.now);
                    world.sender.refused(TxRefused { cookie: sent.cookie, why });
                }
            } else {
                world.send(&mut |n| Trip { lost_forward: n == 40, ..PLAIN });
            }
            world.sender.handle_timeout(now);
            world.collect();
            world.now += 50 * US;
        }
        let (records, sender, _) = world.finish();
        let mut all = Interval::empty(0);
        records.iter().for_each(|r| all.merge(r));
        let c = all.counters;
        assert_eq!((c.sent, c.received, c.lost, c.skipped), (80, 79, 1, 20), "{why:?}");
        assert_eq!((c.not_sent.of(why), c.not_sent.total()), (20, 20));
        assert_eq!((c.lost_forward, c.lost_backward), (Some(1), Some(0)));
        assert!(all.caveats.contains(caveat) && !all.caveats.contains(Caveat::SendsSkipped));
        assert_eq!((sender.counters().sent, sender.counters().withdrawn), (80, 20));
    }
}

#[test]
fn a_probe_that_vanished_in_a_dead_link_was_not_sent() {
    // Sockets: the kernel took it, the link was down, no transmit stamp came.
    let with = |stamped: bool, link: bool| {
        let config = SenderConfig { tx_stamps: true, kernel_resolves: true, ..config() };
        let (mut sender, cookie, _) = first_probe(config);
        if stamped {
            let stamp = Stamp { at: Time::from_nanos(START + 1), source: StampSource::Kernel };
            sender.transmitted(TxDone { cookie, stamp });
        }
        if !link {
            sender.set_way(0, Err(NotSent::LinkDown));
        }
        let mut buffer = [0u8; 2048];
        let next = Time::from_nanos(START + 100 * MS);
        assert!(sender.poll_transmit(next, &mut buffer).is_some(), "the kernel decides");
        record(&mut sender, START + 3 * SECOND).counters
    };
    let c = with(false, false);
    assert_eq!((c.sent, c.lost, c.not_sent.of(NotSent::LinkDown)), (0, 0, 2));
    let c = with(true, false);
    assert_eq!((c.sent, c.lost, c.not_sent.of(NotSent::LinkDown)), (1, 1, 1), "it had left");
    let c = with(false, true);
    assert_eq!((c.sent, c.lost, c.skipped), (2, 2, 0), "nothing speaks for it");
}

/// The reply's T2 and T3 as they stand, and its Z bit.
fn with_times(probe: &[u8], t2: u64, t3: u64, z: bool) -> Vec<u8> {
    let mut frame = reflect(probe, START, START, Some(0));
    let udp = parse_udp(&frame).unwrap();
    let body = &mut frame[udp.payload.clone()];
    body[16..24].copy_from_slice(&t2.to_be_bytes());
    body[4..12].copy_from_slice(&t3.to_be_bytes());
    body[12..14].copy_from_slice(&(0x8001 | u16::from(z) << 14).to_be_bytes());
    finish(&mut frame);
    frame
}

#[test]
fn a_format_that_contradicts_its_flag_is_recognised() {
    let (t2, t3) = (Time::from_nanos(START + 300 * US), Time::from_nanos(START + 320 * US));
    for (t2, t3, z) in
        [(t2.to_ptp().0, t3.to_ptp().0, false), (t2.to_ntp(TAI).0, t3.to_ntp(TAI).0, true)]
    {
        let (mut sender, _, probe) = first_probe(config());
        answer(&mut sender, with_times(&probe, t2, t3, z), START + 820 * US);
        let r = record(&mut sender, START + 2 * SECOND);
        for (hist, value) in
            [(&r.rtt_net, 800 * US), (&r.forward, 300 * US), (&r.backward, 500 * US)]
        {
            assert_eq!(hist.count, 1);
            assert!((hist.max - value).abs() <= 2, "Z {z}: {hist:?}");
        }
        assert!(r.caveats.contains(Caveat::TimestampFormatWrong));
        assert!(!r.caveats.contains(Caveat::OneWayImplausible));
        assert_eq!(sender.counters().format_wrong, 1);
    }
}

#[test]
fn one_way_delays_of_decades_are_left_out_and_what_is_right_stays() {
    // The reflector's clock stands in 1970; only its differences are right.
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    let offset = START - SECOND;
    let mut buffer = [0u8; 2048];
    while world.now < START + 12 * SECOND {
        world.receive();
        let now = Time::from_nanos(world.now);
        while let Some(sent) = world.sender.poll_transmit(now, &mut buffer) {
            let way = if world.reflector_seq.is_multiple_of(2) { 300 * US } else { 400 * US };
            let t2 = world.now + way - offset;
            let reply = reflect(&buffer[..sent.len], t2, t2 + 20 * US, Some(world.reflector_seq));
            world.reflector_seq += 1;
            world.air.push((world.now + way + 520 * US, reply));
        }
        world.collect();
        world.now += 50 * US;
    }
    let (records, sender, _) = world.finish();
    let mut r = Interval::empty(0);
    records.iter().for_each(|one| r.merge(one));
    assert_eq!((r.rtt.count, r.rtt_net.count, r.forward.count, r.backward.count), (100, 100, 0, 0));
    assert!((r.rtt_net.max - 900 * US).abs() <= 2);
    assert_eq!(r.ipdv_forward.count, 99);
    assert!((r.ipdv_forward.max - 100 * US).abs() <= 2 && r.ipdv_backward.max.abs() <= 2);
    assert!(r.caveats.contains(Caveat::OneWayImplausible));
    assert_eq!(sender.counters().one_way_implausible, 100);
}

#[test]
fn a_peer_whose_clock_is_set_makes_no_variation_of_seconds() {
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    world.run(START + 12 * SECOND, &mut |n| Trip {
        // Ten seconds forward: seen from here the way there is so much longer.
        forward: 300 * US + if n >= 50 { 10 * SECOND } else { 0 },
        backward: 500 * US - if n >= 50 { 10 * SECOND } else { 0 },
        ..PLAIN
    });
    let (records, sender, _) = world.finish();
    let mut r = Interval::empty(0);
    records.iter().for_each(|one| r.merge(one));
    assert_eq!((r.counters.received, r.ipdv_forward.count), (100, 98));
    assert!(r.ipdv_forward.max.abs() <= 2 && r.jitter_backward_ns < 2.0);
    assert!(r.caveats.contains(Caveat::PeerClockStepped));
    assert_eq!(sender.counters().peer_clock_stepped, 1);
}

#[test]
fn no_delay_spans_a_step_of_our_clock() {
    let (mut sender, _, probe) = first_probe(config());
    let scale = |steps, shift| Scale {
        // Set forward: UTC is nearer to the steady time by as much.
        utc_offset: TAI - shift,
        tai_shift: shift,
        steps,
        last_step: shift,
    };
    // Under way meanwhile: it is known by the clock it carries, and measures nothing.
    sender.set_scale(scale(1, 10 * SECOND), Time::from_nanos(START + 100 * US));
    answer(
        &mut sender,
        reflect(&probe, START + 300 * US, START + 320 * US, Some(0)),
        START + 820 * US,
    );
    assert_eq!((sender.counters().replies, sender.counters().clock_stepped), (1, 1));
    // The next one carries the clock as it is, and is measured.
    let mut buffer = [0u8; 2048];
    let sent = sender.poll_transmit(Time::from_nanos(START + 100 * MS), &mut buffer).unwrap();
    let t1 = ReflectorPacket::new_checked(&buffer[42..sent.len]).unwrap().timestamp();
    let true_clock = Time::from_nanos(START + 100 * MS + 10 * SECOND);
    assert_eq!(t1, true_clock.to_ntp(TAI).0);
    let t2 = Time::from_nanos(START + 100 * MS + 300 * US + 10 * SECOND).as_nanos();
    let reply = reflect(&buffer[..sent.len], t2, t2 + 20 * US, Some(1));
    answer(&mut sender, reply, START + 100 * MS + 820 * US);
    let r = record(&mut sender, START + 3 * SECOND);
    assert_eq!((r.counters.received, r.rtt.count, r.forward.count), (2, 1, 1));
    assert!((r.forward.max - 300 * US).abs() <= 2 && (r.backward.max - 500 * US).abs() <= 2);
    assert!(r.caveats.contains(Caveat::ClockStepped));
}

#[test]
fn doubts_stand_in_the_record_of_their_time() {
    let mut config = config();
    config.interval = 2 * SECOND;
    let mut world = World::new(Sender::new(config, &[spec(0)], hops()).unwrap());
    world.sender.doubt(Time::from_nanos(START + 5 * SECOND), Caveat::CpuStolen);
    world.run(START + 12 * SECOND, &mut |_| PLAIN);
    let (records, ..) = world.finish();
    let stolen: Vec<_> = records.iter().map(|r| r.caveats.contains(Caveat::CpuStolen)).collect();
    assert_eq!(stolen, [false, false, true, false, false]);
}

#[test]
fn replies_from_elsewhere_are_counted_and_told() {
    for (what, change) in [("port", 35), ("address", 29)] {
        let (mut sender, _, probe) = first_probe(config());
        let mut reply = reflect(&probe, START + US, START + 2 * US, Some(0));
        reply[change] ^= 1;
        finish(&mut reply);
        answer(&mut sender, reply, START + 3 * US);
        let c = sender.counters();
        assert_eq!((c.other_replies, c.strangers, c.replies), (1, 0, 0), "another {what}");
        let r = record(&mut sender, START + 2 * SECOND);
        assert!(r.caveats.contains(Caveat::OtherReplies), "another {what}");
    }
    let (mut sender, _, probe) = first_probe(config());
    let mut reply = reflect(&probe, START + US, START + 2 * US, Some(0));
    reply[42 + 15] = 99;
    finish(&mut reply);
    answer(&mut sender, reply, START + 3 * US);
    assert!(record(&mut sender, START + 2 * SECOND).caveats.contains(Caveat::OtherReplies));
}

#[test]
fn a_slow_reflector_is_told_of() {
    let dominates = |dwell| {
        let (r, _) = one(&mut |_| Trip { dwell, ..PLAIN });
        r.caveats.contains(Caveat::DwellDominates)
    };
    assert!(!dominates(700 * US));
    assert!(dominates(900 * US));
}

#[test]
fn a_session_table_that_was_full_leaves_no_number_of_losses_by_side() {
    // A reflector that copies our numbers; backward losses.
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    world.run(START + 12 * SECOND, &mut |n| Trip { lost_backward: n % 5 == 2, ..PLAIN });
    let (records, ..) = world.finish();
    let mut all = Interval::empty(0);
    records.iter().for_each(|r| all.merge(r));
    let c = all.counters;
    assert_eq!((c.lost, c.lost_forward, c.lost_backward, c.lost_unknown), (20, None, None, 20));
    assert_eq!(all.loss_side, LossSide::Unknown);
    assert!(all.caveats.contains(Caveat::LossSideUnknown));
}
