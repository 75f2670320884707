//! The kernel's matcher and the one of `sonde-meter` were written apart, from one page of
//! rules. The same packets go through both: each is the other's oracle.

use std::collections::VecDeque;
use std::time::Duration;

use crate::common::privileged;
use crate::common::rtt::both::{Both, Random};
use crate::common::rtt::{A, B, MS, Segment, T0, echo, udp};
use sonde_bpf::{RttConfig, RttEvents, RttGroupBy, RttProtocols, RttSide, RttTestPacket};
use sonde_meter::rtt::{Config, PrefixTable};

const PACKETS: u32 = 20_000;

/// Two hosts that mostly do as they should.
#[derive(Clone, Copy, Default)]
struct Talk {
    seq: [u32; 2],
    clock: [u32; 2],
    timestamps: bool,
}

fn tcp(random: &mut Random, talk: &mut Talk, port: u16) -> Segment {
    let from = random.below(2) as usize;
    let mut s = [A, B][from].port(port);
    let len = [0, 0, 1, 100, 100, 1400][random.below(6) as usize];
    s.len = len as usize;
    s.seq = talk.seq[from];
    s.ack = talk.seq[1 - from];
    talk.clock[from] = talk.clock[from].wrapping_add(random.below(3));
    if talk.timestamps {
        s.ts = Some((talk.clock[from], talk.clock[1 - from]));
    }
    match random.below(40) {
        0 => s.flags = 2,
        1 => s.flags = 18,
        2 => s.flags = 17,
        3 if random.once_in(8) => s.flags = 4,
        4 => s.seq = s.seq.wrapping_sub(len),
        5 => s.seq = s.seq.wrapping_add(random.below(2000)),
        6 => s.seq = s.seq.wrapping_sub(1),
        7 | 8 => s.ack = s.ack.wrapping_sub(random.below(1500)),
        9 => s.ack = s.ack.wrapping_add(random.below(1500)),
        10 | 11 => s.sack = true,
        12 => s.ts = s.ts.map(|(v, e)| (v.wrapping_sub(random.below(5)), e)),
        13 => s.ts = s.ts.map(|(v, e)| (v, e.wrapping_sub(random.below(3)))),
        14 => s.window = 0,
        15 => s.ts = None,
        16 => s.tos = 3,
        // One segment elsewhere; or both sides from here on, as if something was not captured.
        17 => s.seq = s.seq.wrapping_add(70_000 + random.below(1 << 31)),
        18 => s.ack = s.ack.wrapping_add(70_000 + random.below(1 << 31)),
        19 => talk.seq = [random.below(u32::MAX), random.below(u32::MAX)],
        20 => s.ts = s.ts.map(|_| (random.below(u32::MAX), 7)),
        _ => {}
    }
    if s.seq.wrapping_sub(talk.seq[from]) > 65_536 && len > 0 {
        return s;
    }
    let end = s.seq.wrapping_add(len + u32::from(s.flags & 3 != 0));
    talk.seq[from] = end;
    s
}

fn datagram(random: &mut Random, port: u16) -> Vec<u8> {
    let from = random.below(2) == 1;
    match random.below(5) {
        0 => echo(from, random.below(6) as u16),
        // A host that pings itself.
        4 => {
            let mut frame = echo(false, random.below(6) as u16);
            frame[30..34].copy_from_slice(&A.source);
            frame[34] = if from { 0 } else { 8 };
            frame[39] ^= 1; // not the flow of the others, where addresses are hidden
            frame
        }
        1 => {
            let questions = u8::from(!random.once_in(4));
            let mut dns = vec![0, random.below(5) as u8, u8::from(from) << 7, 0, 0, questions];
            dns.extend([0, 0, 0, 0, 0, 0, 1, b'A' | (random.below(2) as u8 * 32), 0, 0, 1, 0, 1]);
            udp(from, port, 53, &dns)
        }
        2 => {
            // The fixed bit may be greased; of version 0 the server wants another one.
            let first = 0x80 | (random.below(8) as u8) << 4;
            udp(from, port, 443, &[first, 0, 0, 0, u8::from(!random.once_in(9)), 0, 0, 0, 0])
        }
        _ => udp(from, port, 443, &[(random.below(4) as u8) << 5, 1, 2]),
    }
}

#[test]
fn both_matchers_agree() {
    if !privileged("both_matchers_agree") {
        return;
    }
    agree(1, |_, _| ());
    agree(2, |ours, theirs| (ours.hide_addresses, theirs.hide_addresses) = (true, true));
    agree(3, |ours, theirs| {
        (ours.hide_addresses, theirs.hide_addresses) = (true, true);
        ours.protocols = RttProtocols::TCP.with(RttProtocols::DNS);
        theirs.filter.protocols = RttProtocols::TCP.with(RttProtocols::DNS);
        ours.nets = ["10.0.1.0", "10.0.2.0"].map(|net| (net.parse().unwrap(), 24)).to_vec();
        ours.ports = vec![80, 53];
        (theirs.filter.nets, theirs.filter.ports) = (ours.nets.clone(), ours.ports.clone());
    });
}

#[test]
fn both_matchers_agree_about_groups_and_limits() {
    if !privileged("both_matchers_agree_about_groups_and_limits") {
        return;
    }
    let table = "10.0.0.0/16 64500\n10.0.1.0/24 64501\n10.0.2.1/32\n2001:db8::/32 64502";
    let prefixes = |ours: &mut RttConfig, theirs: &mut Config| {
        theirs.prefixes = PrefixTable::parse(table).unwrap();
        let numbered = theirs.prefixes.iter();
        ours.prefixes = numbered.map(|(address, n, asn)| (address, n, asn.unwrap_or(0))).collect();
    };
    let groups = agree(4, |ours, theirs| {
        (ours.group_by, theirs.group_by) = (RttGroupBy::Prefix, RttGroupBy::Prefix);
        (ours.weight_by_flow, theirs.weight_by_flow) = (true, true);
        prefixes(ours, theirs);
    });
    assert_eq!(groups, 3, "10.0.0.0/16, 10.0.1.0/24, 10.0.2.1/32");
    let groups = agree(5, |ours, theirs| {
        (ours.group_by, theirs.group_by) = (RttGroupBy::Prefix, RttGroupBy::Prefix);
        (ours.hide_addresses, theirs.hide_addresses) = (true, true);
    });
    assert_eq!(groups, 3, "a /24 for each");
    let groups = agree(6, |ours, theirs| {
        (ours.group_by, theirs.group_by) = (RttGroupBy::As, RttGroupBy::As);
        (ours.events, theirs.events) = (RttEvents::None, RttEvents::None);
        prefixes(ours, theirs);
    });
    assert_eq!(groups, 2, "AS 64500 and AS 64501");
    let groups = agree(7, |ours, theirs| {
        (ours.group_by, theirs.group_by) = (RttGroupBy::Interface, RttGroupBy::Interface);
        ours.events = RttEvents::Every(Duration::from_millis(200));
        theirs.events = RttEvents::Every(Duration::from_millis(200));
    });
    assert_eq!(groups, 2);
    let groups = agree(8, |ours, theirs| {
        (ours.group_by, theirs.group_by) = (RttGroupBy::Vlan, RttGroupBy::Vlan);
        (ours.events, theirs.events) = (RttEvents::RttMultiple(40), RttEvents::RttMultiple(40));
    });
    assert_eq!(groups, 3);
    let groups = agree(9, |ours, theirs| {
        (ours.group_by, theirs.group_by) = (RttGroupBy::Dscp, RttGroupBy::Dscp);
        (ours.weight_by_flow, theirs.weight_by_flow) = (true, true);
    });
    assert_eq!(groups, 4);
    // More groups than there is room for.
    agree(10, |ours, theirs| (ours.groups, theirs.groups) = (5, 5));
}

/// How many groups there are of the samples of a long conversation.
fn agree(seed: u64, change: impl FnOnce(&mut RttConfig, &mut Config)) -> usize {
    println!("seed {seed}");
    let (mut limited, mut weighed) = (false, false);
    let mut both = Both::load(|ours, theirs| {
        change(ours, theirs);
        limited = matches!(ours.events, RttEvents::Every(_) | RttEvents::RttMultiple(_));
        weighed = ours.weight_by_flow;
    });
    let mut random = Random::new(seed);
    let mut talks = [Talk::default(); 24];
    for (i, talk) in talks.iter_mut().enumerate() {
        talk.timestamps = i % 3 != 0;
        talk.seq = [random.below(u32::MAX), u32::MAX - random.below(5000)];
    }
    let mut now = T0;
    for _ in 0..PACKETS {
        now += i64::from(random.below(2_000_000));
        match random.below(2_000) {
            0 => now += 20_000 * MS,
            1 => now += 90_000 * MS,
            2 => now += 700 * MS,
            _ => {}
        }
        let mut segments = 1;
        let which = random.below(30) as usize;
        let mut frame = match talks.get_mut(which) {
            Some(talk) => {
                segments = if random.once_in(10) { 3 } else { 1 };
                let mut segment = tcp(&mut random, talk, 4000 + which as u16);
                segment.tos |= (which % 4) as u8 * 16;
                let client = if segment.source == A.source {
                    &mut segment.source
                } else {
                    &mut segment.destination
                };
                client[2] = (which % 3) as u8;
                segment.frame()
            }
            None => datagram(&mut random, 4000 + which as u16),
        };
        if which % 5 < 2 {
            frame.splice(12..12, [0x81, 0, 0, 7 + which as u8 % 5]);
        }
        let point = (which % 2) as u8;
        let packet = RttTestPacket { frame: &frame, segments, point, ..RttTestPacket::default() };
        both.packet(RttSide::Ingress, &packet, now);
        if random.once_in(20) {
            now += i64::from(random.one_of(&[8_000, 900_000, 3_000_000]));
            both.packet(RttSide::Ingress, &packet, now);
        }
    }
    assert!(both.count("samples_clean") > 1_000, "the packets make too few samples");
    for counter in ["duplicated", "unconfirmed", "resynchronised", "ack_unseen"] {
        println!("{counter}: {}", both.count(counter));
        assert!(both.count(counter) > 20, "{counter}");
    }
    assert_eq!(both.count("events_limited") > 100, limited, "events");
    assert_eq!(both.count("unweighted") > 100, weighed, "equal weight");
    both.finish().len()
}

/// Hundreds and thousands of segments in flight, in frames of one segment or several. They are
/// acknowledged one by one, many at once or never, by timestamp or by sequence number.
#[test]
fn both_matchers_agree_about_long_flights() {
    if !privileged("both_matchers_agree_about_long_flights") {
        return;
    }
    for seed in 21..=23 {
        println!("seed {seed}");
        long_flights(&mut Random::new(seed));
    }
}

fn long_flights(random: &mut Random) {
    // The program for 1,024 flows has 64 pages: 32 for those who want more than one.
    let mut both = Both::load(|_, _| ());
    let mut flights: Vec<Flight> = (0..6).map(|i| Flight::new(random, i)).collect();
    let mut now = T0;
    for _ in 0..1_500 {
        let flight = &mut flights[random.below(6) as usize];
        let segments = random.one_of(&[1, 2, 30, 400]);
        for _ in 0..random.below(segments) + 1 {
            now += i64::from(random.below(100_000));
            let frame = flight.next(random).frame();
            let segments = if random.once_in(9) { 3 } else { 1 };
            let packet = RttTestPacket { frame: &frame, segments, ..RttTestPacket::default() };
            both.packet(RttSide::Ingress, &packet, now);
        }
        now += i64::from(random.below(20)) * MS;
        if random.once_in(120) {
            now += 40_000 * MS; // what came before grows old while the next goes on
        }
        for _ in 0..random.one_of(&[0, 1, 1, 3]) {
            now += i64::from(random.below(100_000));
            let frame = flight.answer(random).frame();
            let packet = RttTestPacket { frame: &frame, ..RttTestPacket::default() };
            both.packet(RttSide::Ingress, &packet, now);
        }
    }
    for counter in ["samples_clean", "slots_full", "voided", "stale"] {
        println!("{counter}: {}", both.count(counter));
        assert!(both.count(counter) > 100, "{counter}");
    }
    both.finish();
}

/// A sender of much, and a receiver.
struct Flight {
    port: u16,
    timestamps: bool,
    sent: VecDeque<(u32, u32)>,
    seq: u32,
    clock: u32,
    answered: (u32, u32),
}

impl Flight {
    fn new(random: &mut Random, i: u16) -> Flight {
        let (seq, clock) = (random.below(u32::MAX), u32::MAX - random.below(3000));
        let (timestamps, sent) = (i.is_multiple_of(2), VecDeque::new());
        Flight { port: 6000 + i, timestamps, sent, seq, clock, answered: (seq, clock) }
    }

    fn next(&mut self, random: &mut Random) -> Segment {
        self.clock = self.clock.wrapping_add(1);
        let mut s = Segment { seq: self.seq, ack: 1, len: 10, ..A.port(self.port) };
        match random.below(4_000) {
            0 => s.seq = s.seq.wrapping_sub(10),
            1 => s.seq = s.seq.wrapping_add(10),
            _ => {}
        }
        self.seq = s.seq.wrapping_add(10);
        s.ts = self.timestamps.then_some((self.clock, 1));
        self.sent.push_back((self.seq, self.clock));
        s
    }

    /// Of one more, of several, or of all.
    fn answer(&mut self, random: &mut Random) -> Segment {
        let all = self.sent.len() as u32;
        let n = if random.once_in(60) { all } else { random.one_of(&[1, 1, 2, 7, 100]).min(all) };
        self.answered = self.sent.drain(..n as usize).next_back().unwrap_or(self.answered);
        let (ack, echo) = self.answered;
        let ts = self.timestamps.then_some((1, echo));
        Segment { seq: 1, ack, ts, ..B.port(self.port) }
    }
}
