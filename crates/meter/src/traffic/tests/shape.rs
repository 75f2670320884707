//! What the parameters promise, seen in the packets.

use std::collections::{HashMap, HashSet};

use sonde_wire::feature::{self, Keys, SHAPE_FRAGMENT, SHAPE_LATER_FRAGMENT};
use sonde_wire::flow::LinkType;
use sonde_wire::tcp::{ACK, FIN, RST, SYN};
use sonde_wire::{checksum, ipv4, ipv6, tcp};

use super::recount::{run, small};
use crate::traffic::*;

/// Within 3 standard errors of a share of `n` draws, and a little for flows that are not
/// over yet.
fn close(found: usize, n: usize, share: f64) {
    let error = 3.0 * (share * (1.0 - share) / n as f64).sqrt() + 0.005;
    let part = found as f64 / n as f64;
    assert!((part - share).abs() < error, "{part}, wanted {share} of {n}");
}

fn count(truth: &[FlowTruth], is: impl Fn(&FlowTruth) -> bool) -> usize {
    truth.iter().filter(|t| is(t)).count()
}

#[test]
fn flows_come_in_their_shares() {
    let protocols = ProtocolWeights { tcp: 2.0, udp: 1.0, icmp: 1.0 };
    let length = Length::Constant(4);
    let config = Config { protocols, length, ipv6: 0.3, apps: 0.4, ..small() };
    let (_, truth) = run(config);
    let n = truth.len();
    assert!(n > 10_000);
    close(count(&truth, |t| t.protocol == 6), n, 0.5);
    close(count(&truth, |t| t.protocol == 17), n, 0.25);
    close(count(&truth, |t| t.icmp.is_some()), n, 0.25);
    close(count(&truth, |t| t.source.is_ipv6()), n, 0.3);
    close(count(&truth, |t| t.app == TrafficApp::Dns), n, 0.25 * 0.4);
    // A reset comes before a server could speak; the client has.
    let tcp = count(&truth, |t| matches!(t.app, TrafficApp::Http | TrafficApp::Tls));
    assert_eq!(tcp, 0, "four packets leave no room for data");
}

#[test]
fn encapsulations_come_in_their_shares() {
    let encapsulation = Shares { vlan: 0.2, vxlan: 0.3, ..Shares::default() };
    let config = Config { encapsulation, length: Length::Constant(3), ..small() };
    let (_, truth) = run(Config { keys: TruthKeys::Inner, ..config.clone() });
    let n = truth.len();
    close(count(&truth, |t| t.vlan > 0), n, 0.2);
    // By the outer header the two directions of VXLAN are two flows.
    let (_, outer) = run(config);
    let tunnels = count(&outer, |t| t.destination_port == 4789);
    assert_eq!(count(&outer, |t| t.destination_port == 4789 && t.reverse.packets > 0), 0);
    let twofold = count(&truth, |t| t.reverse.packets > 0) as f64 / n as f64;
    close((tunnels as f64 / (1.0 + twofold)) as usize, n, 0.3);
}

#[test]
fn flows_have_their_length_and_make_room_for_others() {
    let config = Config {
        flows: 50,
        length: Length::Constant(8),
        packets: None,
        total_flows: Some(1_000),
        ..small()
    };
    let (frames, truth) = run(config);
    assert_eq!((truth.len(), frames.len()), (1_000, 8_000));
    assert!(truth.iter().all(|t| t.forward.packets + t.reverse.packets == 8));
    // At most 50 at once.
    let mut edges: Vec<(i64, i32)> = truth
        .iter()
        .flat_map(|t| {
            let last = t.forward.last_ns.max(t.reverse.last_ns);
            [(t.forward.first_ns, 1), (last + 1, -1)]
        })
        .collect();
    edges.sort();
    let mut open = 0;
    let most = edges.iter().map(|(_, change)| (open += change, open).1).max().unwrap();
    assert!((45..=50).contains(&most), "{most} at once");
}

#[test]
fn rate_duration_and_resolution_are_kept() {
    let config = Config {
        packets: None,
        duration_ns: Some(100_000_000),
        rate: 200_000,
        tick_ns: 1_000,
        start_ns: 5_000,
        ..small()
    };
    for arrival in [
        ArrivalProcess::Constant,
        ArrivalProcess::Poisson,
        ArrivalProcess::Bursts { packets: 10.0, peak: 5.0 },
    ] {
        let (frames, _) = run(Config { arrival, ..config.clone() });
        // 20,000 packets; of bursts the count varies by about 5 in the root.
        assert!((19_000..21_000).contains(&frames.len()), "{arrival:?}: {}", frames.len());
        assert!(frames.iter().all(|(at, _)| at % 1_000 == 0));
        assert_eq!(frames[0].0, 5_000);
        assert!(frames.last().unwrap().0 < 100_005_000);
    }
}

/// Client's and server's address and the client's port.
type Client = (u32, u32, u16);
/// Sent by the client, the header, the length of the payload.
type Segment = (bool, tcp::Repr, u32);

/// Headers of every TCP packet over plain IPv4, by flow with the client first.
fn connections(frames: &[(i64, Vec<u8>)]) -> HashMap<Client, Vec<Segment>> {
    let mut all: HashMap<_, Vec<_>> = HashMap::new();
    for (_, frame) in frames {
        let Ok(ip) = ipv4::Packet::new_checked(&frame[14..]) else { continue };
        if ip.protocol() != 6 {
            continue;
        }
        assert!(ip.verify_checksum());
        let segment = tcp::Packet::new_checked(ip.payload()).unwrap();
        assert!(segment.verify_checksum(ip.source().into(), ip.destination().into()));
        let repr = tcp::Repr::parse(&segment).unwrap();
        let (source, destination) = (ip.source().to_bits(), ip.destination().to_bits());
        let from_client = source < 0xC613_0000;
        let key = match from_client {
            true => (source, destination, repr.source_port),
            false => (destination, source, repr.destination_port),
        };
        all.entry(key).or_default().push((from_client, repr, segment.payload().len() as u32));
    }
    all
}

#[test]
fn tcp_is_played_by_the_rules() {
    let length = Length::Geometric { mean: 12.0 };
    let config = Config { length, ipv6: 0.0, total_flows: Some(2_000), packets: None, ..small() };
    let (frames, _) = run(config);
    let connections = connections(&frames);
    assert!(connections.len() > 1_000);
    for packets in connections.values() {
        let flags: Vec<u8> = packets.iter().map(|(_, tcp, _)| tcp.flags).collect();
        assert_eq!(flags[0], SYN);
        match flags.len() {
            1 => {}
            2 => assert_eq!(flags[1], RST | ACK),
            3..=6 => assert_eq!((flags[1], *flags.last().unwrap()), (SYN | ACK, RST | ACK)),
            n => {
                assert_eq!(flags[1..3], [SYN | ACK, ACK]);
                assert_eq!(flags[n - 3..], [FIN | ACK, FIN | ACK, ACK]);
            }
        }
        // Nothing is out of order here: each side sends what comes next, and acknowledges
        // all that it has got.
        let mut next: [Option<u32>; 2] = [None; 2];
        for (from_client, tcp, payload) in packets {
            let side = usize::from(!from_client);
            if let Some(expected) = next[side] {
                assert_eq!(tcp.seq, expected);
            }
            if tcp.flags & ACK != 0 {
                assert_eq!(Some(tcp.ack), next[1 - side]);
            }
            let taken = payload + u32::from(tcp.flags & (SYN | FIN) != 0);
            next[side] = Some(tcp.seq.wrapping_add(taken));
        }
    }
}

#[test]
fn packets_are_overtaken_by_as_many_as_asked_for() {
    for distance in [1u8, 3] {
        let config = Config {
            protocols: ProtocolWeights { tcp: 1.0, udp: 0.0, icmp: 0.0 },
            length: Length::Constant(200),
            ipv6: 0.0,
            apps: 0.0,
            reorder: Reorder { share: 0.05, distance },
            flows: 20,
            total_flows: Some(300),
            packets: None,
            ..small()
        };
        let (frames, truth) = run(config);
        assert_eq!(frames.len(), 300 * 200);
        assert!(truth.iter().all(|t| t.forward.packets + t.reverse.packets == 200));
        let (mut late, mut data) = (0, 0);
        for packets in connections(&frames).values() {
            let mut highest: [Option<u32>; 2] = [None; 2];
            for (from_client, tcp, payload) in packets {
                if *payload == 0 {
                    continue;
                }
                data += 1;
                let highest = &mut highest[usize::from(!from_client)];
                if highest.is_some_and(|h| (tcp.seq.wrapping_sub(h) as i32) < 0) {
                    late += 1;
                } else {
                    *highest = Some(tcp.seq);
                }
            }
        }
        // Some are overtaken by the other direction only, which nobody can see; and while
        // one is held no other is.
        let share = f64::from(late) / f64::from(data);
        assert!((0.02..0.055).contains(&share), "{share} at distance {distance}");
    }
}

#[test]
fn variety_is_within_flows() {
    let sizes_of = |variety| {
        let config = Config {
            protocols: ProtocolWeights { tcp: 0.0, udp: 1.0, icmp: 0.0 },
            length: Length::Constant(50),
            apps: 0.0,
            variety,
            ..small()
        };
        let (_, truth) = run(config);
        // All of one length: bytes are a multiple of packets.
        let alike = |s: &FlowSideTruth| s.packets == 0 || s.bytes.is_multiple_of(s.packets.into());
        let whole = count(&truth, |t| t.forward.packets + t.reverse.packets == 50);
        (count(&truth, |t| alike(&t.forward) && alike(&t.reverse)), whole, truth.len())
    };
    let (alike, _, all) = sizes_of(0.0);
    assert_eq!(alike, all);
    let (alike, whole, _) = sizes_of(1.0);
    assert!(alike < whole / 2, "{alike} of {whole} flows have packets of one length");
}

#[test]
fn fragments_come_in_their_share_one_after_the_other() {
    let config = Config {
        protocols: ProtocolWeights { tcp: 0.0, udp: 1.0, icmp: 0.0 },
        sizes: Sizes::constant(1_000),
        apps: 0.0,
        fragments: 0.2,
        ..small()
    };
    let (frames, _) = run(config);
    let (mut whole, mut cut, mut previous) = (0, 0, None);
    for (at, frame) in &frames {
        let (packet, _) = feature::parse(frame, LinkType::Ethernet, Keys::Outer, *at, 0).unwrap();
        let is_later = packet.shape & SHAPE_LATER_FRAGMENT != 0;
        if is_later {
            assert_eq!(previous, Some((packet.source, packet.sequence)));
        } else if packet.shape & SHAPE_FRAGMENT != 0 {
            cut += 1;
        } else {
            whole += 1;
            // Without Ethernet's 14 bytes and the 4 of the check sequence.
            assert_eq!(packet.ip_len, 982);
        }
        previous = (packet.shape & SHAPE_FRAGMENT != 0).then_some((packet.source, packet.sequence));
    }
    close(cut, whole + cut, 0.2);
}

/// Meters take what is alike within a millisecond for copies of a mirror port.
#[test]
fn no_two_frames_are_alike() {
    let plain = |config: &Config| Config { sizes: Sizes::constant(64), ..config.clone() };
    let all = |tcp, udp, icmp| ProtocolWeights { tcp, udp, icmp };
    let short = plain(&small());
    let encapsulation =
        Shares { vlan: 0.1, qinq: 0.2, mpls: 0.1, gre: 0.1, vxlan: 0.2, gtpu: 0.1, geneve: 0.1 };
    let reorder = Reorder { share: 0.2, distance: 3 };
    for config in [
        small(),
        Config { fragments: 0.2, reorder, ..small() },
        Config { ipv6: 0.0, ..short.clone() },
        Config { ipv6: 1.0, reorder, ..short.clone() },
        Config { ipv6: 0.5, encapsulation, ..short.clone() },
        Config { ipv6: 1.0, apps: 0.0, protocols: all(0.0, 1.0, 0.0), ..short.clone() },
        Config { ipv6: 1.0, protocols: all(0.0, 0.0, 1.0), ..short.clone() },
        // More packets of a flow than there are identifications.
        Config { order: PacketOrder::RoundRobin, flows: 1, packets: Some(70_000), ..short },
    ] {
        let (frames, _) = run(config);
        let different: HashSet<&[u8]> = frames.iter().map(|(_, frame)| frame.as_slice()).collect();
        assert_eq!(different.len(), frames.len());
    }
}

#[test]
fn checksums_are_right() {
    let encapsulation = Shares { vlan: 0.2, qinq: 0.2, mpls: 0.2, ..Shares::default() };
    let (frames, _) = run(Config { ipv6: 0.5, encapsulation, ..small() });
    let mut seen = [0; 2];
    for (_, frame) in &frames {
        let is_v4 = [14, 18, 22].iter().find(|&&at| frame[at] == 0x45);
        let is_v6 = [14, 18, 22].iter().find(|&&at| frame[at] >> 4 == 6);
        let sum = match (is_v4, is_v6) {
            (Some(&at), _) => {
                let ip = ipv4::Packet::new_checked(&frame[at..]).unwrap();
                assert!(ip.verify_checksum());
                seen[0] += 1;
                let pseudo = match ip.protocol() {
                    1 => 0,
                    protocol => {
                        let len = ip.payload().len() as u32;
                        checksum::pseudo_v4(ip.source(), ip.destination(), protocol, len)
                    }
                };
                checksum::combine(pseudo, checksum::sum(ip.payload()))
            }
            (None, Some(&at)) => {
                let ip = ipv6::Packet::new_checked(&frame[at..]).unwrap();
                seen[1] += 1;
                let len = ip.payload().len() as u32;
                let (from, to) = (ip.source(), ip.destination());
                let pseudo = checksum::pseudo_v6(from, to, ip.next_header(), len);
                checksum::combine(pseudo, checksum::sum(ip.payload()))
            }
            (None, None) => panic!("no IP header: {frame:x?}"),
        };
        assert_eq!(checksum::fold(sum), 0xFFFF, "{frame:x?}");
    }
    assert!(seen.iter().all(|n| *n > 10_000), "{seen:?}");
}

#[test]
fn short_frames_are_padded_with_zeros() {
    // The buffer was full of something else.
    let (frames, _) = run(small());
    let mut padded = 0;
    for (_, frame) in &frames {
        assert!(frame.len() >= 60);
        if let Ok(ip) = ipv4::Packet::new_checked(&frame[14..]) {
            let end = 14 + ip.total_len();
            assert!(frame[end..].iter().all(|b| *b == 0));
            padded += usize::from(end < 60);
        }
    }
    assert!(padded > 1_000);
}

#[test]
fn what_cannot_be_made_is_refused() {
    let good = Config::default();
    for bad in [
        Config { flows: 0, ..good.clone() },
        Config { flows: MAX_FLOWS + 1, ..good.clone() },
        Config { rate: 0, ..good.clone() },
        Config { tick_ns: 0, ..good.clone() },
        Config { ipv6: 1.5, ..good.clone() },
        Config { fragments: f64::NAN, ..good.clone() },
        Config { protocols: ProtocolWeights { tcp: 0.0, udp: 0.0, icmp: 0.0 }, ..good.clone() },
        Config {
            encapsulation: Shares { vlan: 0.7, gre: 0.7, ..Shares::default() },
            ..good.clone()
        },
        Config {
            encapsulation: Shares { vlan: -0.5, gre: 0.7, ..Shares::default() },
            ..good.clone()
        },
        Config { length: Length::Constant(0), ..good },
    ] {
        assert!(FlowGenerator::new(bad.clone()).is_err(), "{bad:?}");
    }
}
