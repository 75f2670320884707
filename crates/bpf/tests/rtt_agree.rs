//! The kernel's matcher and the one of `sonde-meter` were written apart, from one page of
//! rules. The same packets go through both: each is the other's oracle.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::privileged;
use common::rtt::{A, B, MS, Segment, T0, echo, udp};
use sonde_bpf::{
    RttConfig, RttEvents, RttGroupBy, RttProgram, RttProtocols, RttSide, RttTestPacket,
};
use sonde_meter::rtt::{Config, EventLimit, Filter, GroupBy, Matcher, Protocols};
use sonde_results::rtt::{RttFlow, RttSample};
use sonde_wire::Time;
use sonde_wire::flow::{Link, parse};

const SEED: [u64; 2] = [11, 12];
const PACKETS: u32 = 20_000;

/// xorshift64*: the tests need variety, not secrecy.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as u32 % n
    }

    fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
}

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

fn sorted(mut flows: Vec<RttFlow>) -> Vec<String> {
    flows.sort_by_key(|f| (f.start_ns, f.end_ns, f.flow));
    flows.iter().map(|f| format!("{f:?}")).collect()
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
    let (mut protocols, mut filter) = (RttProtocols::ALL, Filter::default());
    if filtered {
        protocols = RttProtocols::TCP.with(RttProtocols::DNS);
        filter.protocols = Protocols::TCP.with(Protocols::DNS);
        (filter.nets, filter.ports) = (nets.clone(), ports.clone());
    }
    let mut kernel = RttProgram::load(&RttConfig {
        flows: 1024,
        seed: SEED,
        group_by: RttGroupBy::Flow,
        groups: 2_000,
        events: RttEvents::All,
        hide_addresses: hide,
        protocols,
        nets,
        ports,
        ..RttConfig::default()
    })
    .unwrap();
    let mut meter = Matcher::new(Config {
        flows: 1024,
        seed: SEED,
        group_by: GroupBy::Flow,
        groups: 2_000,
        events: EventLimit::All,
        hide_addresses: hide,
        filter,
        slot_pages: 64,
        ..Config::default()
    });
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
    let mut talks = [Talk::default(); 24];
    for (i, talk) in talks.iter_mut().enumerate() {
        talk.timestamps = i % 3 != 0;
        talk.seq = [random.below(u32::MAX), u32::MAX - random.below(5000)];
    }
    let mut now = T0;
    let mut kept: [(Vec<RttSample>, Vec<RttFlow>); 2] = Default::default();
    for n in 0..PACKETS {
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
        kernel.test_run_packet(RttSide::Ingress, &packet, now).unwrap();
        let at = Time::from_nanos(now);
        match parse(&frame, Link::Ethernet, false) {
            Ok(parsed) => meter.input(0, &parsed, segments as u16, at),
            Err(e) => meter.refused(e),
        }
        let before = kept[0].0.len();
        let (samples, flows) = &mut kept[0];
        kernel.poll(Duration::ZERO, &mut |s| samples.push(s), &mut |f| flows.push(f)).unwrap();
        kept[1].0.extend(std::iter::from_fn(|| meter.poll_sample()));
        kept[1].1.extend(std::iter::from_fn(|| meter.poll_flow()));
        assert_eq!(
            kept[0].0[before..],
            kept[1].0[before.min(kept[1].0.len())..],
            "seed {seed}, packet {n}: {frame:02x?}"
        );
    }
    assert!(kept[0].0.len() > 2_000, "the packets make too few samples: {}", kept[0].0.len());
    let [(_, ended), (_, ended_too)] = kept;
    assert_eq!(sorted(ended), sorted(ended_too), "ended flows");
    let mut open = vec![];
    kernel.open_flows(&mut |f| open.push(f));
    assert_eq!(sorted(open), sorted(meter.open_flows().collect()), "open flows");

    let theirs = meter.coverage().counters;
    let ours = kernel.coverage().unwrap().counters;
    let common: BTreeMap<_, _> =
        ours.iter().filter(|(name, _)| theirs.contains_key(*name)).collect();
    assert_eq!(common, theirs.iter().filter(|(name, _)| ours.contains_key(*name)).collect());
    let sums = |groups: &[sonde_results::rtt::RttGroup]| -> Vec<_> {
        groups
            .iter()
            .map(|g| (g.key, [&g.clean, &g.recovery, &g.delayed_ack].map(|h| (h.count, h.sum))))
            .collect()
    };
    let (ours, theirs) = (kernel.take_groups(0, 1).unwrap(), meter.take_groups(0, 1));
    assert_eq!(sums(&ours), sums(&theirs));
}
