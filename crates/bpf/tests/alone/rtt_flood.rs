//! A flood of new flows through an interface: nothing grows, every flow is accounted for,
//! and an established flow keeps all its samples.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::common::rtt::{A, Segment, echo};
use crate::common::{RawSocket, eventually, in_namespace, ip, privileged, veth_pair};
use crate::turn;
use sonde_bpf::{RttConfig, RttEvents, RttHook, RttProgram};
use sonde_results::rtt::{RttFlow, RttKind, RttSample};

/// Connection requests from as many addresses: three times what the table holds.
const FLOWS: u32 = 400_000;
/// Between two looks at what the program has to say: half of what its ring holds.
const BATCH: u32 = 2_500;
const SYN: u8 = 2;

#[test]
fn memory_stays_flat_and_every_flow_is_accounted_for() {
    if !privileged("memory_stays_flat_and_every_flow_is_accounted_for") {
        return;
    }
    let _turn = turn::alone();
    in_namespace(|| {
        let (a, b) = veth_pair(1500);
        let config = RttConfig { events: RttEvents::All, xdp: false, ..RttConfig::default() };
        let mut program = RttProgram::load(&config).unwrap();
        program.attach(b as i32, 0, RttHook::Tc, false).unwrap();
        let (near, far) = (RawSocket::open(a), RawSocket::open(b));
        let memory = program.memory_bytes();

        let (mut ended, mut samples, mut resident) = (EndedFlows::new(), Vec::new(), 0);
        let begun = Instant::now();
        for n in 0..FLOWS {
            let [_, x, y, z] = n.to_be_bytes();
            near.send(&Segment { source: [10, 9 ^ x, y, z], flags: SYN, ..A }.frame());
            if n % BATCH == BATCH - 1 {
                let sequence = (n / BATCH) as u16;
                near.send(&echo(false, sequence));
                far.send(&echo(true, sequence));
                fetch(&mut program, &mut ended, &mut samples);
                if n + 1 == FLOWS / 2 {
                    resident = resident_kib();
                }
            }
        }
        let rate = f64::from(FLOWS) / begun.elapsed().as_secs_f64();
        println!("{rate:.0} new flows a second");
        let count = |p: &RttProgram, name: &str| p.coverage().unwrap().counters[name];
        // What the link itself refused (a full backlog on a busy host) never came by.
        let refused = refused_by("va") + refused_by("vb");
        println!("{refused} frames did not pass the link");
        let all = u64::from(FLOWS) + 1;
        assert!(
            eventually(Duration::from_secs(10), || count(&program, "flows") + refused >= all),
            "{refused} refused, {:?}",
            program.coverage()
        );
        // The kernel goes on to end flows that are idle: each is open, or has ended, or was
        // both while they were counted.
        let mut open = EndedFlows::new();
        program.open_flows(&mut |flow| open.add(&flow));
        fetch(&mut program, &mut ended, &mut samples);
        assert_eq!((ended.twice, open.twice), (0, 0), "a flow that is reported twice");
        let flows = count(&program, "flows");
        assert!((all - refused..=all).contains(&flows), "{flows} of {all}, {refused} refused");
        assert!(refused < all / 100, "this host loses too much to say anything: {refused}");
        assert_eq!(ended.with(&open), flows);
        assert_eq!(count(&program, "flows_lost"), 0);
        assert_eq!(count(&program, "untracked_full"), 0, "who nobody answered makes room");
        assert!(open.with(&open) <= u64::from(config.flows));

        let echoes = samples.iter().filter(|s| s.kind == RttKind::IcmpEcho).count();
        let expected = u64::from(FLOWS / BATCH);
        assert!(
            (expected.saturating_sub(refused)..=expected).contains(&(echoes as u64)),
            "an established flow loses no sample: {echoes} of {expected}, {refused} refused"
        );

        assert_eq!(program.memory_bytes(), memory);
        let grown = resident_kib().saturating_sub(resident);
        assert!(grown < 1024, "{grown} KiB more for the second half");
    });
}

fn fetch(program: &mut RttProgram, ended: &mut EndedFlows, samples: &mut Vec<RttSample>) {
    program.poll(Duration::ZERO, &mut |s| samples.push(s), &mut |flow| ended.add(&flow)).unwrap();
}

/// Flows of which the program has reported the end, by their index; that of the echoes is the last.
struct EndedFlows {
    reported: Vec<bool>,
    twice: u64,
}

impl EndedFlows {
    fn new() -> Self {
        // All of it is written to: it must not grow while memory is watched.
        let mut reported = vec![true; FLOWS as usize + 1];
        reported.fill(false);
        EndedFlows { reported, twice: 0 }
    }

    fn add(&mut self, flow: &RttFlow) {
        let index = match (flow.flow.protocol, flow.flow.source) {
            (6, IpAddr::V4(source)) => {
                let [_, x, y, z] = source.octets();
                u32::from_be_bytes([0, x ^ 9, y, z]) as usize
            }
            _ => FLOWS as usize,
        };
        self.twice += u64::from(std::mem::replace(&mut self.reported[index], true));
    }

    /// How many these and those are together.
    fn with(&self, other: &EndedFlows) -> u64 {
        self.reported.iter().zip(&other.reported).filter(|(a, b)| **a || **b).count() as u64
    }
}

/// Frames that could not be handed to the interface's peer.
fn refused_by(interface: &str) -> u64 {
    let text = ip(&["-j", "-s", "link", "show", "dev", interface]);
    let sent = text.split_once("\"tx\":").and_then(|(_, tx)| tx.split_once("\"dropped\":"));
    let (_, dropped) = sent.expect("ip prints what was dropped");
    let digits: String = dropped.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Memory of this process, the tables that it shares with the kernel left out.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).expect("Linux says so");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
