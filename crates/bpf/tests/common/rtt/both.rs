//! The kernel's matcher and that of `sonde-meter` over the same packets and the same clock.
//! They were written apart, from one page of rules: each is the other's oracle.

use std::collections::BTreeMap;
use std::time::Duration;

use sonde_bpf::{RttConfig, RttEvents, RttGroupBy, RttProgram, RttSide, RttTestPacket};
use sonde_meter::rtt::{Config, Matcher};
use sonde_results::rtt::{GroupKey, RttFlow, RttGroup, RttSample};
use sonde_wire::Time;
use sonde_wire::flow::{LinkType, parse};

/// xorshift64*: the tests need variety, not secrecy.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(0x9e37_79b9_7f4a_7c15 ^ seed)
    }

    pub fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as u32 % n
    }

    pub fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u32) as usize]
    }
}

/// Both matchers, and what each has said so far.
pub struct Both {
    kernel: RttProgram,
    meter: Matcher,
    tunnels: bool,
    pub samples: Vec<RttSample>,
    ended: [Vec<RttFlow>; 2],
    packets: u64,
}

/// A group's samples of each class: how many, and the sum.
pub type Sums = Vec<(GroupKey, [(u64, i128); 3])>;

impl Both {
    /// 1,024 flows, every sample an event, and each flow's direction a group; `change` says
    /// what else.
    pub fn load(change: impl FnOnce(&mut RttConfig, &mut Config)) -> Both {
        let mut ours = RttConfig {
            flows: 1024,
            seed: SEED,
            group_by: RttGroupBy::Flow,
            groups: 2_000,
            events: RttEvents::All,
            ..RttConfig::default()
        };
        let mut theirs = Config {
            flows: 1024,
            seed: SEED,
            group_by: RttGroupBy::Flow,
            groups: 2_000,
            events: RttEvents::All,
            slot_pages: 64,
            ..Config::default()
        };
        change(&mut ours, &mut theirs);
        stay();
        Both {
            kernel: RttProgram::load(&ours).unwrap(),
            meter: Matcher::new(theirs),
            tunnels: ours.tunnels,
            samples: vec![],
            ended: [vec![], vec![]],
            packets: 0,
        }
    }

    /// Gives both a packet; they must make the same samples of it.
    pub fn packet(&mut self, side: RttSide, packet: &RttTestPacket<'_>, now: i64) {
        self.kernel.test_run_packet(side, packet, now).unwrap();
        let link = if packet.l3 { LinkType::RawIp } else { LinkType::Ethernet };
        let parsed = parse(packet.frame, link, self.tunnels);
        match &parsed {
            Ok(parsed) => {
                let segments = packet.segments.max(1) as u16;
                self.meter.input(packet.point, parsed, segments, Time::from_nanos(now));
            }
            Err(e) => self.meter.refused(*e),
        }
        let mut ours = vec![];
        let ended = &mut self.ended[0];
        self.kernel.poll(Duration::ZERO, &mut |s| ours.push(s), &mut |f| ended.push(f)).unwrap();
        let theirs: Vec<_> = std::iter::from_fn(|| self.meter.poll_sample()).collect();
        self.ended[1].extend(std::iter::from_fn(|| self.meter.poll_flow()));
        let (n, frame) = (self.packets, packet.frame);
        assert_eq!(ours, theirs, "packet {n}, {side:?}: {frame:02x?}, which is {parsed:?}");
        self.samples.extend(ours);
        self.packets += 1;
    }

    /// As [`Both::packet`], and they must count the same too.
    pub fn packet_counted(&mut self, side: RttSide, packet: &RttTestPacket<'_>, now: i64) {
        self.packet(side, packet, now);
        let (ours, theirs) = self.counters();
        if ours != theirs {
            let link = if packet.l3 { LinkType::RawIp } else { LinkType::Ethernet };
            let parsed = parse(packet.frame, link, self.tunnels);
            let differ: Vec<_> = ours
                .iter()
                .filter(|(name, n)| theirs[*name] != **n)
                .map(|(name, n)| format!("{name}: kernel {n}, meter {}", theirs[name]))
                .collect();
            let (n, frame) = (self.packets - 1, packet.frame);
            panic!("{differ:?} by packet {n}, {side:?}: {frame:02x?}, which is {parsed:?}");
        }
    }

    /// Segments sent again in the flow that is open between this port and the server's.
    pub fn retransmitted(&self, port: u16) -> u64 {
        let flows = self.meter.open_flows();
        let flows = flows.filter(|f| [f.flow.source_port, f.flow.destination_port].contains(&port));
        flows.map(|f| f.forward.retransmitted + f.backward.retransmitted).sum()
    }

    /// What is counted by name, once both agree.
    pub fn count(&self, name: &str) -> u64 {
        let (ours, theirs) = self.counters();
        assert_eq!(ours[name], theirs[name], "{name}");
        ours[name]
    }

    fn counters(&self) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
        let mut ours = self.kernel.coverage().unwrap().counters;
        let mut theirs = self.meter.coverage().counters;
        ours.retain(|name, _| theirs.contains_key(name));
        theirs.retain(|name, _| ours.contains_key(name));
        assert!(ours.len() > 20, "{ours:?}");
        (ours, theirs)
    }

    /// They must agree in all that is left: counters, flows, groups. Returns the groups.
    pub fn finish(mut self) -> Sums {
        let (ours, theirs) = self.counters();
        assert_eq!(ours, theirs);
        let [ended, ended_too] = self.ended;
        assert_eq!(sorted(ended), sorted(ended_too), "ended flows");
        let mut open = vec![];
        self.kernel.open_flows(&mut |f| open.push(f));
        assert_eq!(sorted(open), sorted(self.meter.open_flows().collect()), "open flows");
        let (ours, theirs) = (self.kernel.take_groups(0, 1).unwrap(), self.meter.take_groups(0, 1));
        assert_eq!(sums(&ours), sums(&theirs));
        sums(&ours)
    }
}

/// Keeps this thread on the processor where it is: the program notes for each which packets
/// passed, as cards hand copies of a packet to the same.
fn stay() {
    // SAFETY: the set is a bit field for which zeroes are valid, and outlives the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// The kernel knows times to 2^26 ns.
fn sorted(mut flows: Vec<RttFlow>) -> Vec<String> {
    for flow in &mut flows {
        (flow.start_ns, flow.end_ns) = (flow.start_ns >> 26 << 26, flow.end_ns >> 26 << 26);
    }
    flows.sort_by_key(|f| (f.start_ns, f.end_ns, f.flow));
    flows.iter().map(|f| format!("{f:?}")).collect()
}

fn sums(groups: &[RttGroup]) -> Sums {
    let of = |g: &RttGroup| [&g.clean, &g.recovery, &g.delayed_ack].map(|h| (h.count, h.sum));
    groups.iter().map(|g| (g.key, of(g))).collect()
}

const SEED: [u64; 2] = [11, 12];
