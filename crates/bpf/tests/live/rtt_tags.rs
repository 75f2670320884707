//! VLAN tags as the kernel has them: at the tc hook it holds the outermost one beside the
//! packet, in the driver's hook it does not. The flow's VLAN is the same, and the same as
//! `sonde-wire` finds in the whole frame.

use std::time::Duration;

use crate::common::rtt::layers::{ICMP, Layer, QINQ, VLAN, echo, ethernet, tagged, v4};
use crate::common::{RawSocket, eventually, in_namespace, privileged, veth_pair};
use sonde_bpf::{RttConfig, RttEvents, RttHook, RttProgram};
use sonde_wire::flow::{LinkType, parse};

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn the_vlan_is_the_same_wherever_the_outermost_tag_stands() {
    if !privileged("the_vlan_is_the_same_wherever_the_outermost_tag_stands") {
        return;
    }
    // Tag control information, outermost first, and the VLAN.
    let stacks: [(&[(u16, u16)], u16); 10] = [
        (&[], 0),
        (&[(VLAN, 0xe123)], 0x123),
        (&[(VLAN, 0)], 0),
        (&[(VLAN, 0xe000)], 0),
        (&[(VLAN, 0xe000), (VLAN, 0x2005)], 5),
        (&[(QINQ, 0), (VLAN, 6)], 6),
        (&[(VLAN, 7), (VLAN, 0xe000)], 7),
        (&[(QINQ, 8), (VLAN, 9)], 8),
        (&[(QINQ, 8), (VLAN, 9), (VLAN, 5)], 8),
        (&[(QINQ, 0), (VLAN, 0), (VLAN, 5), (VLAN, 6)], 5),
    ];
    // One tag more than are looked through.
    let deep: [&[(u16, u16)]; 2] = [
        &[(QINQ, 0), (VLAN, 0), (VLAN, 5), (VLAN, 6), (VLAN, 7)],
        &[(QINQ, 8), (VLAN, 9), (VLAN, 5), (VLAN, 6), (VLAN, 7)],
    ];
    in_namespace(move || {
        let (a, b) = veth_pair(1500);
        let (near, far) = (RawSocket::open(a), RawSocket::open(b));
        for hook in [RttHook::TcIngress, RttHook::Xdp] {
            let config = RttConfig { flows: 1024, events: RttEvents::All, ..RttConfig::default() };
            let mut program = RttProgram::load(&config).unwrap();
            program.attach(a as i32, 0, hook, false).unwrap();
            for (n, (tags, vlan)) in stacks.iter().enumerate() {
                let id = 100 + n as u16;
                for (from, to, kind) in [(1, 2, 8), (2, 1, 0)] {
                    let frame = frame(tags, from, to, kind, id);
                    let found = parse(&frame, LinkType::Ethernet, false).unwrap();
                    assert_eq!(found.vlan, *vlan, "{tags:x?}");
                    far.send(&frame);
                    // Sockets come behind both hooks, and get frames without their first tag.
                    let bare = frame_below(tags, from, to, kind, id);
                    assert!(near.receive(LIMIT, |f| f == bare).is_some(), "{tags:x?}");
                }
                let mut samples = vec![];
                let all = eventually(LIMIT, || {
                    program.poll(Duration::ZERO, &mut |s| samples.push(s), &mut |_| ()).unwrap();
                    !samples.is_empty()
                });
                assert!(all, "no sample of {tags:x?}, {hook:?}");
                let flow = samples[0].flow;
                assert_eq!(
                    (samples.len(), flow.source_port, flow.vlan),
                    (1, id, *vlan),
                    "{hook:?}"
                );
            }
            let malformed =
                |program: &RttProgram| program.coverage().unwrap().counters["malformed"];
            assert_eq!(malformed(&program), 0);
            for (n, tags) in deep.iter().enumerate() {
                let frame = frame(tags, 1, 2, 8, 200);
                assert!(parse(&frame, LinkType::Ethernet, false).is_err(), "{tags:x?}");
                far.send(&frame);
                let counted = eventually(LIMIT, || malformed(&program) == n as u64 + 1);
                assert!(counted, "{tags:x?}, {hook:?}");
            }
        }
    });
}

fn packet(tags: &[(u16, u16)], from: u8, to: u8, kind: u8, id: u16) -> Layer {
    let ip = v4(from, to, ICMP, &echo(kind, id, 1));
    tags.iter().rev().fold(ip, |inside, &(tpid, tci)| tagged(tpid, tci, &inside))
}

fn frame(tags: &[(u16, u16)], from: u8, to: u8, kind: u8, id: u16) -> Vec<u8> {
    ethernet(&packet(tags, from, to, kind, id))
}

/// The frame without its first tag.
fn frame_below(tags: &[(u16, u16)], from: u8, to: u8, kind: u8, id: u16) -> Vec<u8> {
    frame(tags.get(1..).unwrap_or_default(), from, to, kind, id)
}
