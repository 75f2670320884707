//! The unified header as the kernel makes it, held against that of `sonde-wire`. Of the same frames
//! both make the same 64 octets, or have the same reason for none.

use std::path::Path;

use crate::common::privileged;
use crate::common::rtt::both::Random;
use crate::common::rtt::layers::*;
use crate::common::rtt::{A, Segment};
use sonde_bpf::flow::{REASONS, RECORD_LEN};
use sonde_bpf::{FlowInput, FlowInterface, FlowProgram, FlowRing};
use sonde_wire::Error;
use sonde_wire::capture::Reader;
use sonde_wire::feature::{Feature, Keys, parse};
use sonde_wire::flow::LinkType;

/// The index of `lo`, by which test runs come.
const LOOPBACK: u32 = 1;

/// The program for one kind of link and key, and what it has refused.
struct Kernel {
    program: FlowProgram,
    ring: FlowRing,
    link: LinkType,
    keys: Keys,
    refused: [u64; REASONS],
}

impl Kernel {
    fn load(link: LinkType, keys: Keys) -> Kernel {
        let input = FlowInput::Headers {
            workers: 1,
            ring: 64,
            inner: keys == Keys::Inner,
            consume: false,
            time_base_ns: 0,
        };
        let interface = FlowInterface { ifindex: LOOPBACK, raw_ip: link == LinkType::RawIp };
        let mut program = FlowProgram::load(input, &[interface]).unwrap();
        let ring = program.ring(0).unwrap();
        Kernel { program, ring, link, keys, refused: [0; REASONS] }
    }

    fn all() -> [Kernel; 4] {
        [
            Kernel::load(LinkType::Ethernet, Keys::Outer),
            Kernel::load(LinkType::Ethernet, Keys::Inner),
            Kernel::load(LinkType::RawIp, Keys::Outer),
            Kernel::load(LinkType::RawIp, Keys::Inner),
        ]
    }

    /// What it makes of the frame, beside its time.
    fn parse(&mut self, frame: &[u8]) -> Result<([u8; RECORD_LEN], i64), Error> {
        let run = self.program.test_run(frame, 1).unwrap();
        assert_eq!((run.verdict, &run.packet[..]), (XDP_PASS, frame), "untouched");
        if let [record] = self.ring.take(2) {
            let mut octets = record.0;
            let at = i64::from_ne_bytes(octets[..8].try_into().unwrap());
            octets[..8].fill(0);
            return Ok((octets, at));
        }
        let counted = self.program.counters().unwrap().refused;
        for (reason, before) in self.refused.iter_mut().enumerate() {
            if counted[reason].packets > *before {
                *before += 1;
                return Err(Error::ALL[reason]);
            }
        }
        panic!("neither a record nor a count: {frame:02x?}");
    }

    /// Both must agree; whether there is a record.
    fn agree(&mut self, frame: &[u8], what: &str) -> bool {
        let ours = parse(frame, self.link, self.keys, 0, 0).map(|(feature, _)| feature);
        let kernels = self.parse(frame);
        match (ours, &kernels) {
            (Ok(ours), Ok((kernels, _))) if octets(&ours) == *kernels => true,
            (Err(ours), Err(kernels)) if ours == *kernels => false,
            _ => panic!(
                "{what}, {:?}, {:?}\n{frame:02x?}\nwire: {ours:02x?}\nkernel: {kernels:02x?}",
                self.link, self.keys
            ),
        }
    }
}

/// The fields in their order, which is the layout.
fn octets(f: &Feature) -> [u8; RECORD_LEN] {
    let mut all = Vec::with_capacity(RECORD_LEN);
    all.extend(f.at_ns.to_ne_bytes());
    all.extend(f.source);
    all.extend(f.destination);
    all.extend(f.source_port.to_ne_bytes());
    all.extend(f.destination_port.to_ne_bytes());
    all.extend(f.ip_len.to_ne_bytes());
    all.extend(f.sequence.to_ne_bytes());
    all.extend(f.tcp_flags.to_ne_bytes());
    all.extend(f.vlan.to_ne_bytes());
    all.extend([f.protocol, f.tos, f.ttl, f.shape]);
    all.extend(f.window.to_ne_bytes());
    all.extend([f.headers, f.point]);
    all.try_into().unwrap()
}

fn tcp() -> Vec<u8> {
    let segment = Segment { tos: 0x2e, len: 9, ts: Some((1, 2)), ..A };
    segment.frame()[34..].to_vec()
}

/// One of everything: transports, and all that may stand before them.
fn everything() -> Vec<Layer> {
    let transports = [
        (TCP, tcp()),
        (UDP, datagram(5000, 53, b"question")),
        (UDP, datagram(5000, 4789, b"no tunnel")),
        (ICMP, echo(8, 1, 2)),
        (ICMP6, echo(129, 1, 2)),
        (SCTP, heartbeat(5, 6, 4, b"info")),
        (33, [5u8, 6, 7, 8, 4, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0].to_vec()),
        (136, datagram(7, 8, b"lite")),
        (89, vec![2; 30]),
    ];
    let mut plain = Vec::new();
    for (protocol, transport) in &transports {
        plain.push(v4(1, 2, *protocol, transport));
        plain.push(v6(1, 2, *protocol, transport));
    }
    let udp = datagram(5000, 443, b"payload");
    let mut all = plain.clone();
    for kind in [HOP_BY_HOP, ROUTING, AH, DESTINATION, MOBILITY, 139, 140] {
        all.push(v6(1, 2, kind, &extension(kind, UDP, 16, &udp)));
        all.push(v6(1, 2, kind, &extension(kind, TCP, 24, &tcp())));
    }
    all.push(v4(1, 2, AH, &extension(AH, UDP, 24, &udp)));
    let many = (0..9).fold(udp.clone(), |inside, i| {
        extension(DESTINATION, if i == 0 { UDP } else { DESTINATION }, 8, &inside)
    });
    all.push(v6(1, 2, DESTINATION, &many));
    all.push(v6(1, 2, DESTINATION, &many[8..]));
    for (offset, more) in [(0, true), (0, false), (64, true), (64, false)] {
        all.push(v6(1, 2, FRAGMENT, &fragment(UDP, offset, more, &udp)));
        let twice = fragment(FRAGMENT, 0, true, &fragment(UDP, offset, more, &udp));
        all.push(v6(1, 2, FRAGMENT, &twice));
        let mut packet = v4(1, 2, UDP, &udp);
        packet.bytes[4..8].copy_from_slice(&[7, 8, u8::from(more) << 5, (offset / 8) as u8]);
        all.push(packet);
    }
    let mut options = v4(1, 2, TCP, &[&[1, 1, 1, 0][..], &tcp()].concat());
    options.bytes[0] = 0x46;
    all.push(options);
    // As segmentation offload leaves them, and a jumbogram of a length that is not so.
    for inside in [v4(1, 2, TCP, &tcp()), v6(1, 2, TCP, &tcp())] {
        let mut offloaded = inside;
        let at = if offloaded.kind == IPV4 { 2 } else { 4 };
        offloaded.bytes[at..at + 2].fill(0);
        all.push(offloaded);
    }
    let mut jumbo = extension(HOP_BY_HOP, TCP, 16, &tcp());
    jumbo[2..14].copy_from_slice(&[5, 2, 0, 0, 0, 0xc2, 4, 0, 1, 0x38, 0x80, 1]);
    let mut jumbo = v6(1, 2, HOP_BY_HOP, &jumbo);
    jumbo.bytes[4..6].fill(0);
    all.push(jumbo);
    // And the same header without such a length.
    let mut unstated = v6(1, 2, HOP_BY_HOP, &extension(HOP_BY_HOP, TCP, 8, &tcp()));
    unstated.bytes[42..48].copy_from_slice(&[1, 4, 0, 0, 0, 0]);
    unstated.bytes[4..6].fill(0);
    all.push(unstated);

    let inner = all.clone();
    for packet in &inner {
        for (_, inside) in TUNNELS {
            let (protocol, payload) = inside(packet);
            all.push(v4(3, 4, protocol, &payload));
            all.push(v6(3, 4, protocol, &payload));
        }
        all.push(v4(3, 4, UDP, &datagram(1, 2152, &gtpu(&[1; 5], packet))));
        let behind = extension(AH, GRE, 24, &gre(0, packet));
        all.push(v4(3, 4, AH, &behind));
        all.push(v6(3, 4, AH, &behind));
    }
    for packet in &inner {
        for (_, _, link) in LINKS {
            all.push(link(packet));
        }
        let three = tagged(QINQ, 6, &tagged(0x9100, 5, &tagged(VLAN, 4, packet)));
        all.push(tagged(VLAN, 1, &tagged(VLAN, 2, &three)));
        all.push(snap(1, packet));
        all.push(Layer { kind: 60, bytes: [&[6, 6, 3][..], &packet.bytes].concat() });
        for labels in [1, 16, 17] {
            all.push(mpls(labels, packet));
        }
    }
    all.push(Layer { kind: 0x0806, bytes: vec![1; 46] });
    all
}

#[test]
fn of_every_kind_of_packet_the_same_is_said() {
    if !privileged("of_every_kind_of_packet_the_same_is_said") {
        return;
    }
    let packets = everything();
    for mut kernel in Kernel::all() {
        let (mut records, mut refused) = (0, 0);
        for packet in &packets {
            let frame = match kernel.link {
                LinkType::RawIp => packet.bytes.clone(),
                _ => ethernet(packet),
            };
            let padded = [&frame[..], &[0; 20]].concat();
            for frame in [&frame, &padded] {
                match kernel.agree(frame, "made by hand") {
                    true => records += 1,
                    false => refused += 1,
                }
            }
        }
        println!("{:?} {:?}: {records} records, {refused} refused", kernel.link, kernel.keys);
        assert!(records > packets.len() / 2 && refused > 4);
    }
}

#[test]
fn of_packets_cut_anywhere_the_same_is_said() {
    if !privileged("of_packets_cut_anywhere_the_same_is_said") {
        return;
    }
    let mut random = Random::new(4);
    let packets = everything();
    for mut kernel in Kernel::all() {
        for _ in 0..150 {
            let packet = &packets[random.below(packets.len() as u32) as usize];
            let frame = match kernel.link {
                LinkType::RawIp => packet.bytes.clone(),
                _ => ethernet(packet),
            };
            // The kernel takes no shorter frame.
            for len in 14..frame.len() {
                kernel.agree(&frame[..len], "cut");
            }
        }
    }
}

#[test]
fn of_spoiled_packets_the_same_is_said() {
    if !privileged("of_spoiled_packets_the_same_is_said") {
        return;
    }
    let mut random = Random::new(5);
    let packets = everything();
    for mut kernel in Kernel::all() {
        for _ in 0..20_000 {
            let packet = &packets[random.below(packets.len() as u32) as usize];
            let mut frame = match kernel.link {
                LinkType::RawIp => packet.bytes.clone(),
                _ => ethernet(packet),
            };
            for _ in 0..=random.below(3) {
                // Most of what says where something is lies in the first hundred octets.
                let at = random.below((frame.len() as u32).min(100)) as usize;
                frame[at] = match random.below(3) {
                    0 => random.below(256) as u8,
                    1 => frame[at] ^ 1 << random.below(8),
                    _ => random.one_of(&[0, 1, 4, 6, 17, 44, 47, 51, 0x45, 0x60, 0x81, 0xff]),
                };
            }
            kernel.agree(&frame, "spoiled");
        }
    }
}

#[test]
fn of_the_golden_captures_the_same_is_said() {
    if !privileged("of_the_golden_captures_the_same_is_said") {
        return;
    }
    let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden"));
    let mut kernels = Kernel::all();
    let mut packets = 0;
    for folder in golden.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(files) = folder.read_dir() else { continue };
        for path in files.map(|entry| entry.unwrap().path()) {
            let name = path.display().to_string();
            if !name.ends_with(".pcap") && !name.ends_with(".pcapng") {
                continue;
            }
            let file = std::fs::read(&path).unwrap();
            let Ok(reader) = Reader::new(&file) else { continue };
            for record in reader.map_while(Result::ok) {
                let link = LinkType::from_capture(record.link_type);
                // What the kernel takes as a frame of one buffer, and is all there.
                let whole = record.data.len() == record.original_len as usize;
                if !whole || !(14..3000).contains(&record.data.len()) {
                    continue;
                }
                for kernel in kernels.iter_mut().filter(|kernel| Some(kernel.link) == link) {
                    kernel.agree(record.data, &name);
                    packets += 1;
                }
            }
        }
    }
    println!("{packets} packets");
    assert!(packets > 1000);
}

#[test]
fn a_record_has_its_time_and_its_point() {
    if !privileged("a_record_has_its_time_and_its_point") {
        return;
    }
    let input = FlowInput::Headers {
        workers: 1,
        ring: 64,
        inner: false,
        consume: true,
        time_base_ns: BASE,
    };
    let nowhere = FlowInterface { ifindex: 99, raw_ip: false };
    let loopback = FlowInterface { ifindex: LOOPBACK, raw_ip: false };
    let mut program = FlowProgram::load(input, &[nowhere, nowhere, loopback]).unwrap();
    let mut ring = program.ring(0).unwrap();
    for packet in [v4(1, 2, UDP, &datagram(1, 2, b"quick")), v4(1, 2, ICMP, &echo(8, 1, 2))] {
        let before = monotonic_now();
        let run = program.test_run(&ethernet(&packet), 1).unwrap();
        let after = monotonic_now();
        assert_eq!(run.verdict, XDP_DROP);
        let [record] = ring.take(9) else { panic!("one record") };
        let at = i64::from_ne_bytes(record.0[..8].try_into().unwrap()) - BASE;
        assert!((before..=after).contains(&at), "{before} {at} {after}");
        assert_eq!(record.0[63], 2, "the third interface");
    }
}

fn monotonic_now() -> i64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid memory for the answer.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) }, 0);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Times are so far ahead of the steady clock.
const BASE: i64 = 1_800_000_000_000_000_000;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
