//! The kernel's matcher and the one of `sonde-meter` were written apart, from one page of
//! rules. The same packets go through both: each is the other's oracle.

mod common;

use common::privileged;
use common::rtt::both::{Both, Random};
use common::rtt::{A, B, MS, Segment, T0, echo, udp};
use sonde_bpf::{RttProtocols, RttSide, RttTestPacket};
use sonde_meter::rtt::Protocols;

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
        _ => {}
    }
    let end = s.seq.wrapping_add(len + u32::from(s.flags & 3 != 0));
    talk.seq[from] = end;
    s
}

fn datagram(random: &mut Random, port: u16) -> Vec<u8> {
    let from = random.below(2) == 1;
    match random.below(4) {
        0 => echo(from, random.below(6) as u16),
        1 => {
            let mut dns = vec![0, random.below(5) as u8, u8::from(from) << 7, 0, 0, 1];
            dns.extend([0, 0, 0, 0, 0, 0, 1, b'A' | (random.below(2) as u8 * 32), 0, 0, 1, 0, 1]);
            udp(from, port, 53, &dns)
        }
        2 => {
            let first = 0xc0 | (random.below(4) as u8) << 4;
            udp(from, port, 443, &[first, 0, 0, 0, 1, 0, 0, 0, 0])
        }
        _ => udp(from, port, 443, &[0x40 | (random.below(2) as u8) << 5, 1, 2]),
    }
}

#[test]
fn both_matchers_agree() {
    if !privileged("both_matchers_agree") {
        return;
    }
    for (seed, hide, filter) in [(1, false, false), (2, true, false), (3, true, true)] {
        println!("seed {seed}, addresses hidden: {hide}, filter: {filter}");
        agree(seed, hide, filter);
    }
}

fn agree(seed: u64, hide: bool, filtered: bool) {
    let nets = if filtered { vec![("10.0.0.2".parse().unwrap(), 32)] } else { vec![] };
    let ports = if filtered { vec![80, 53] } else { vec![] };
    let mut both = Both::load(|ours, theirs| {
        (ours.hide_addresses, theirs.hide_addresses) = (hide, hide);
        if filtered {
            ours.protocols = RttProtocols::TCP.with(RttProtocols::DNS);
            theirs.filter.protocols = Protocols::TCP.with(Protocols::DNS);
        }
        (theirs.filter.nets, theirs.filter.ports) = (nets.clone(), ports.clone());
        (ours.nets, ours.ports) = (nets, ports);
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
        let frame = match talks.get_mut(which) {
            Some(talk) => {
                segments = if random.once_in(10) { 3 } else { 1 };
                tcp(&mut random, talk, 4000 + which as u16).frame()
            }
            None => datagram(&mut random, 4000 + which as u16),
        };
        let packet = RttTestPacket { frame: &frame, segments, ..RttTestPacket::default() };
        both.packet(RttSide::Ingress, &packet, now);
    }
    assert!(both.samples.len() > 2_000, "the packets make too few samples");
    both.finish();
}
