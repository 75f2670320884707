//! A sender, a path and a reflector, all made here.

use std::net::SocketAddr;

use sonde_meter::stamp::{
    LinkHeader, NextHopLink, ReflectorKind, Schedule, Sender, SenderConfig, StreamSpec,
};
use sonde_meter::{Instrument, Transmit};
use sonde_results::Interval;
pub use sonde_results::units::SECOND;
use sonde_wire::build::{finish_udp, udp_header_sum};
use sonde_wire::stamp::ReflectorPacket;
use sonde_wire::{ErrorEstimate, Stamp, StampSource, Time, parse_udp};

pub const US: i64 = 1_000;
pub const MS: i64 = 1_000_000;

/// 2026-11-21, TAI.
pub const START: i64 = 1_795_262_437 * SECOND;
pub const TAI: i64 = 37 * SECOND;

pub fn config() -> SenderConfig {
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

pub fn spec(i: u16) -> StreamSpec {
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

pub fn hops() -> Vec<NextHopLink> {
    vec![Ok(LinkHeader::new([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[]))]
}

/// What the path does to a probe.
#[derive(Clone, Copy)]
pub struct Trip {
    pub forward: i64,
    pub dwell: i64,
    pub backward: i64,
    pub lost_forward: bool,
    pub lost_backward: bool,
    pub copies: u32,
}

pub const PLAIN: Trip = Trip {
    forward: 300 * US,
    dwell: 20 * US,
    backward: 500 * US,
    lost_forward: false,
    lost_backward: false,
    copies: 1,
};

/// Turns a probe into a stateful reflector's reply; `None` seq: stateless.
pub fn reflect(probe: &[u8], t2: i64, t3: i64, seq: Option<u32>) -> Vec<u8> {
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
pub fn finish(frame: &mut [u8]) {
    let Ok(udp) = parse_udp(frame) else { return };
    let (from, to) = (
        SocketAddr::new(udp.source, udp.source_port),
        SocketAddr::new(udp.destination, udp.destination_port),
    );
    let sum = udp_header_sum(from, to, udp.payload.len()).unwrap();
    finish_udp(&mut frame[udp.l4_offset..udp.payload.end], sum, usize::MAX).unwrap();
}

pub struct World {
    pub sender: Sender,
    pub now: i64,
    /// (arrival, frame), unordered.
    pub air: Vec<(i64, Vec<u8>)>,
    pub records: Vec<Interval>,
    pub sent_at: Vec<i64>,
    pub reflector_seq: u32,
}

impl World {
    pub fn new(sender: Sender) -> Self {
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
    pub fn send(&mut self, trip: &mut dyn FnMut(usize) -> Trip) {
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

    pub fn receive(&mut self) {
        self.air.sort_by_key(|(at, _)| *at);
        while self.air.first().is_some_and(|(at, _)| *at <= self.now) {
            let (at, mut frame) = self.air.remove(0);
            let stamp = Stamp { at: Time::from_nanos(at), source: StampSource::Driver };
            self.sender.input(&mut frame, stamp, Time::from_nanos(self.now));
        }
    }

    pub fn collect(&mut self) {
        let mut record = Interval::empty(0);
        while self.sender.poll_record(&mut record) {
            self.records.push(record.clone());
        }
    }

    pub fn run(&mut self, until: i64, trip: &mut dyn FnMut(usize) -> Trip) {
        while self.now < until {
            self.receive();
            self.send(trip);
            self.sender.handle_timeout(Time::from_nanos(self.now));
            self.collect();
            self.now += 50 * US;
        }
    }

    pub fn finish(mut self) -> (Vec<Interval>, Sender, Vec<i64>) {
        self.sender.finish(Time::from_nanos(self.now));
        self.collect();
        (self.records, self.sender, self.sent_at)
    }
}

pub fn one(trip: &mut dyn FnMut(usize) -> Trip) -> (Interval, Sender) {
    let mut world = World::new(Sender::new(config(), &[spec(0)], hops()).unwrap());
    world.run(START + 12 * SECOND, trip);
    let (records, sender, _) = world.finish();
    let mut all = Interval::empty(0);
    records.iter().for_each(|r| all.merge(r));
    (all, sender)
}

/// A sender, its first probe sent at the start, and the frame.
pub fn first_probe(mut config: SenderConfig) -> (Sender, u64, Vec<u8>) {
    config.interval = SECOND;
    let mut sender = Sender::new(config, &[spec(0)], hops()).unwrap();
    let mut buffer = [0u8; 2048];
    let sent = sender.poll_transmit(Time::from_nanos(START), &mut buffer).unwrap();
    (sender, sent.cookie, buffer[..sent.len].to_vec())
}

pub fn answer(sender: &mut Sender, mut reply: Vec<u8>, at: i64) {
    let stamp = Stamp { at: Time::from_nanos(at), source: StampSource::Driver };
    sender.input(&mut reply, stamp, Time::from_nanos(at));
}

pub fn record(sender: &mut Sender, end: i64) -> Interval {
    sender.finish(Time::from_nanos(end));
    let mut all = Interval::empty(0);
    let mut r = Interval::empty(0);
    while sender.poll_record(&mut r) {
        all.merge(&r);
    }
    all
}
