//! A flood of new flows through an interface: nothing grows, every flow is accounted for,
//! and an established flow keeps all its samples.

mod common;

use std::time::{Duration, Instant};

use common::rtt::{A, Segment, echo};
use common::{RawSocket, eventually, in_namespace, ip, privileged, veth_pair};
use sonde_bpf::{RttConfig, RttEvents, RttHook, RttProgram};
use sonde_results::rtt::{RttKind, RttSample};

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
    in_namespace(|| {
        let (a, b) = veth_pair(1500);
        let config = RttConfig { events: RttEvents::All, xdp: false, ..RttConfig::default() };
        let mut program = RttProgram::load(&config).unwrap();
        program.attach(b as i32, 0, RttHook::Tc, false).unwrap();
        let (near, far) = (RawSocket::open(a), RawSocket::open(b));
        let memory = program.memory_bytes();

        let (mut ended, mut samples, mut resident) = (0u64, Vec::new(), 0);
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
        fetch(&mut program, &mut ended, &mut samples);

        let mut open = 0;
        program.open_flows(&mut |_| open += 1);
        let flows = count(&program, "flows");
        assert!((all - refused..=all).contains(&flows), "{flows} of {all}, {refused} refused");
        assert!(refused < all / 100, "this host loses too much to say anything: {refused}");
        assert_eq!(ended + open + count(&program, "flows_lost"), flows);
        assert_eq!(count(&program, "flows_lost"), 0);
        assert_eq!(count(&program, "untracked_full"), 0, "who nobody answered makes room");
        assert!(open <= u64::from(config.flows));

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

fn fetch(program: &mut RttProgram, ended: &mut u64, samples: &mut Vec<RttSample>) {
    program.poll(Duration::ZERO, &mut |s| samples.push(s), &mut |_| *ended += 1).unwrap();
}

/// Frames that could not be handed to the interface's peer.
fn refused_by(interface: &str) -> u64 {
    let text = ip(&["-j", "-s", "link", "show", "dev", interface]);
    let sent = text.split_once("\"tx\":").and_then(|(_, tx)| tx.split_once("\"dropped\":"));
    let (_, dropped) = sent.expect("ip tells what was dropped");
    let digits: String = dropped.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Memory of this process, the tables that it shares with the kernel left out.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).expect("Linux says so");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
