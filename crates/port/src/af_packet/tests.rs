//! The engine on one end of a veth pair, UDP sockets on the other.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};

use sonde_lab::{Host, Lab, LinkOptions, Mac};
use sonde_sys::SysError;
use sonde_wire::build::emit_udp_ip;
use sonde_wire::parse_udp;

use super::*;
use crate::Filter;

const A: &str = "10.9.0.1:8620";
const B: &str = "10.9.0.2:9000";

pub(super) struct Net {
    _lab: Lab,
    pub a: Host,
    pub b: Host,
    macs: (Mac, Mac),
}

/// Two hosts, or `None` with the reason on standard error.
pub(super) fn net(name: &str) -> Option<Net> {
    if sonde_lab::skip(name) {
        return None;
    }
    let mut lab = Lab::new("afp").unwrap();
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    let macs = lab.link(&a, "eth0", &b, "eth0", &LinkOptions::default()).unwrap();
    a.add_address("eth0", "10.9.0.1/24").unwrap();
    b.add_address("eth0", "10.9.0.2/24").unwrap();
    Some(Net { _lab: lab, a, b, macs })
}

/// Runs `f` in a namespace; the thread ends there, its sockets live on.
pub(super) fn inside<T: Send>(host: &Host, f: impl FnOnce() -> T + Send) -> T {
    let path = format!("/run/netns/{}", host.name());
    std::thread::scope(|s| {
        let run = || {
            let file = File::open(path).unwrap();
            // SAFETY: moves this short-lived thread only.
            syscall::check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }).unwrap();
            f()
        };
        s.spawn(run).join().unwrap()
    })
}

fn open(net: &Net, local: Option<&str>) -> AfPacket {
    let local = local.iter().map(|a| a.parse().unwrap()).collect();
    let filter = Filter { local, local_ports: vec![8620, 8700], peer_ports: vec![] };
    let mut spec = OpenSpec::new(Some("eth0".into()), filter);
    spec.ring = 1;
    inside(&net.a, || AfPacket::open(&spec).unwrap())
}

fn watch(net: &Net) -> AfPacket {
    inside(&net.a, || AfPacket::open(&OpenSpec::watching("eth0".into())).unwrap())
}

/// Ports and payload of the UDP packets among `count` frames or more, in their order.
fn watched(port: &mut AfPacket, count: usize) -> Vec<(u16, u16, Vec<u8>)> {
    let deadline = port.now() + 3_000_000_000;
    let mut all = Vec::new();
    while all.len() < count && port.now() < deadline {
        for (frame, _) in receive(port, 1) {
            // Neighbour discovery is seen too.
            if let Ok(f) = parse_udp(&frame) {
                all.push((f.source_port, f.destination_port, frame[f.payload].to_vec()));
            }
        }
    }
    all
}

fn peer(net: &Net) -> UdpSocket {
    inside(&net.b, || {
        let socket = UdpSocket::bind(B).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(3))).unwrap();
        socket
    })
}

fn write(net: &Net, frame: &mut [u8], payload: &[u8]) -> usize {
    let (from, to): (SocketAddr, SocketAddr) = (A.parse().unwrap(), B.parse().unwrap());
    frame[..6].copy_from_slice(&net.macs.1);
    frame[6..12].copy_from_slice(&net.macs.0);
    frame[12..14].copy_from_slice(&[8, 0]);
    let at = 14 + emit_udp_ip(&mut frame[14..], from, to, 0xB8, 64, payload.len()).unwrap();
    frame[at..at + payload.len()].copy_from_slice(payload);
    at + payload.len()
}

/// Frames until `count` have come or three seconds have passed.
fn receive(port: &mut AfPacket, count: usize) -> Vec<(Vec<u8>, sonde_wire::Stamp)> {
    let deadline = port.now() + 3_000_000_000;
    let mut all = Vec::new();
    while all.len() < count && port.now() < deadline {
        port.wait(deadline).unwrap();
        let mut burst = port.rx().unwrap();
        for i in 0..burst.len() {
            let (frame, stamp) = burst.frame(i);
            all.push((frame.to_vec(), stamp));
        }
    }
    all
}

#[test]
fn there_and_back_with_stamps_and_nothing_else_touched() {
    let Some(net) = net("af_packet there and back") else { return };
    let (mut port, peer) = (open(&net, None), peer(&net));
    let other = inside(&net.a, || UdpSocket::bind("10.9.0.1:8650").unwrap());
    other.set_read_timeout(Some(std::time::Duration::from_secs(3))).unwrap();
    peer.send_to(b"other", "10.9.0.1:8650").unwrap();
    assert_eq!(other.recv(&mut [0; 9]).unwrap(), 5, "other ports are the kernel's");

    // Connected, the peer would get a port unreachable.
    peer.connect(A).unwrap();
    let before = port.now();
    for n in 0..100u8 {
        peer.send(&[n; 50]).unwrap();
    }
    let frames = receive(&mut port, 100);
    assert_eq!(frames.len(), 100);
    let mut last = before;
    for (n, (frame, stamp)) in frames.iter().enumerate() {
        let f = parse_udp(frame).unwrap();
        assert_eq!(frame[f.payload], [n as u8; 50]);
        assert_eq!((stamp.source, f.destination_port), (StampSource::Kernel, 8620));
        assert!(last <= stamp.at && stamp.at <= port.now());
        last = stamp.at;
    }
    for cookie in 1..=100 {
        let mut burst = port.tx();
        let len = write(&net, burst.slot().unwrap(), &[cookie as u8; 30]);
        burst.commit(len, cookie);
    }
    port.flush().unwrap();
    for n in 1..=100u8 {
        let mut got = [0; 64];
        assert_eq!(peer.recv(&mut got).unwrap(), 30, "and no error");
        assert_eq!(got[..30], [n; 30]);
    }
    let done = port.rx().unwrap().done().to_vec();
    assert!(done.iter().map(|d| d.cookie).eq(1..=100));
    assert!(done.iter().all(|d| d.stamp.source == StampSource::Kernel && d.stamp.at >= last));
    assert_eq!((port.stats().rx_frames, port.stats().tx_stamps), (100, 100));
}

#[test]
fn a_received_frame_is_turned_round_in_the_ring() {
    let Some(net) = net("af_packet turn round") else { return };
    let (mut port, peer) = (open(&net, None), peer(&net));
    peer.send_to(b"ping", A).unwrap();
    let until = port.now() + 3_000_000_000;
    port.wait(until).unwrap();
    let mut burst = port.rx().unwrap();
    assert_eq!(burst.len(), 1);
    write(&net, burst.frame(0).0, b"pong");
    burst.set_verdict(0, Verdict::Transmit { cookie: 5 });
    port.flush().unwrap();
    let mut got = [0; 9];
    assert_eq!(peer.recv(&mut got).unwrap(), 4);
    assert_eq!(&got[..4], b"pong");
    assert_eq!(port.rx().unwrap().done()[0].cookie, 5);
}

#[test]
fn a_vlan_tag_is_put_back() {
    let Some(net) = net("af_packet VLAN tag") else { return };
    let ports = [open(&net, Some("10.9.0.2")), watch(&net)];
    let filter = Filter { local_ports: vec![8620], ..Filter::default() };
    let spec = OpenSpec::new(Some("eth0".into()), filter);
    let mut sender = inside(&net.b, || AfPacket::open(&spec).unwrap());
    for tagged in [false, true] {
        let mut burst = sender.tx();
        let slot = burst.slot().unwrap();
        let mut len = write(&net, slot, b"a tagged payload");
        // To A's port, at an address that only the filter knows.
        slot[..6].copy_from_slice(&net.macs.0);
        slot[36..38].copy_from_slice(&8620u16.to_be_bytes());
        if tagged {
            slot.copy_within(12..len, 16);
            slot[12..16].copy_from_slice(&[0x81, 0x00, 0x60, 0x05]);
            len += 4;
        }
        burst.commit(len, 0);
    }
    sender.flush().unwrap();
    for mut port in ports {
        let deadline = port.now() + 3_000_000_000;
        let mut frames = Vec::new();
        while frames.len() < 2 && port.now() < deadline {
            let received = receive(&mut port, 1).into_iter();
            frames.extend(received.filter(|(frame, _)| parse_udp(frame).is_ok()));
        }
        let found: Vec<_> = frames.iter().map(|(frame, _)| parse_udp(frame).unwrap()).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].vlan_count, found[1].vlan_count), (0, 1));
        assert_eq!(found[1].vlan_tci[0], 0x6005);
        assert_eq!(frames[1].0[..6], net.macs.0);
        assert_eq!(&frames[1].0[found[1].payload.clone()], b"a tagged payload");
    }
}

#[test]
fn overrun_is_counted() {
    let Some(net) = net("af_packet overrun") else { return };
    let (mut port, peer) = (open(&net, None), peer(&net));
    for _ in 0..3000 {
        peer.send_to(&[0; 1400], A).unwrap();
    }
    let got = receive(&mut port, 3000).len() as u64;
    let stats = port.stats();
    assert!(stats.rx_dropped > 0);
    assert_eq!(got + stats.rx_dropped, 3000);
}

#[test]
fn a_link_that_goes_down_is_counted_and_comes_back() {
    let Some(net) = net("af_packet link down") else { return };
    let (mut port, peer) = (open(&net, None), peer(&net));
    net.a.set_up("eth0", false).unwrap();
    let mut burst = port.tx();
    let len = write(&net, burst.slot().unwrap(), b"lost");
    burst.commit(len, 1);
    port.flush().unwrap();
    let until = port.now() + 1_000_000;
    port.wait(until).unwrap();
    assert_eq!((port.stats().tx_frames, port.stats().tx_dropped), (0, 1));
    net.a.set_up("eth0", true).unwrap();
    let mut burst = port.tx();
    let len = write(&net, burst.slot().unwrap(), b"back");
    burst.commit(len, 2);
    port.flush().unwrap();
    assert_eq!(peer.recv(&mut [0; 9]).unwrap(), 4);
    assert_eq!(port.rx().unwrap().done()[0].cookie, 2);
}

#[test]
fn what_is_missing_is_named() {
    let filter = Filter { local_ports: vec![8620], ..Filter::default() };
    let open = |name: Option<&str>| {
        AfPacket::open(&OpenSpec::new(name.map(Into::into), filter.clone())).err().unwrap()
    };
    assert!(open(None).to_string().contains("needs an interface"));
    assert!(matches!(open(Some("no-such-if")), PortError::Sys(SysError::NoInterface(_))));
}

#[test]
fn a_reader_that_pauses_loses_nothing_of_a_slow_stream() {
    let Some(net) = net("af_packet pause") else { return };
    let peer = peer(&net);
    let filter = Filter { local: vec![], local_ports: vec![8620], peer_ports: vec![] };
    let spec = OpenSpec::new(Some("eth0".into()), filter);
    let mut port = inside(&net.a, || AfPacket::open(&spec).unwrap());
    peer.connect(A).unwrap();
    let start = port.now();
    for n in 0..200i64 {
        // The rate under test: slower than blocks are handed over.
        while port.now() - start < n * 1_200_000 {
            std::thread::yield_now();
        }
        peer.send(&n.to_be_bytes()).unwrap();
    }
    let frames = receive(&mut port, 200);
    assert_eq!((frames.len(), port.stats().rx_dropped), (200, 0));
}

#[test]
fn what_is_watched_is_seen_once_in_both_directions_and_stays_the_stacks() {
    let Some(net) = net("af_packet watch") else { return };
    let peer = peer(&net);
    let own = inside(&net.a, || UdpSocket::bind(A).unwrap());
    own.set_read_timeout(Some(std::time::Duration::from_secs(3))).unwrap();
    let mut port = watch(&net);
    let mut got = [0; 64];
    for n in 0..50u8 {
        own.send_to(&[n, 1], B).unwrap();
        assert_eq!(peer.recv(&mut got).unwrap(), 2);
        peer.send_to(&[n, 2, 2], A).unwrap();
        assert_eq!(own.recv(&mut got).unwrap(), 3);
    }
    let all = watched(&mut port, 100);
    assert_eq!(all.len(), 100);
    for (n, pair) in all.chunks(2).enumerate() {
        let n = n as u8;
        assert_eq!(pair[0], (8620, 9000, vec![n, 1]));
        assert_eq!(pair[1], (9000, 8620, vec![n, 2, 2]));
    }
    let more = receive(&mut port, usize::MAX);
    assert!(more.iter().all(|(frame, _)| parse_udp(frame).is_err()), "each packet is seen once");
    assert_eq!((port.stats().rx_dropped, port.stats().rx_invalid), (0, 0));
}

#[test]
fn what_is_watched_is_cut_to_its_headers_and_nothing_can_be_sent() {
    let Some(net) = net("af_packet watch cut") else { return };
    let own = inside(&net.a, || UdpSocket::bind(A).unwrap());
    let mut port = watch(&net);
    own.send_to(&[7; 1400], B).unwrap();
    let deadline = port.now() + 3_000_000_000;
    let cut = loop {
        assert!(port.now() < deadline);
        let frames = receive(&mut port, 1);
        if let Some((frame, _)) = frames.into_iter().find(|(frame, _)| frame[23] == 17) {
            break frame;
        }
    };
    assert_eq!(cut.len(), OpenSpec::WATCHED_BYTES);
    assert_eq!(cut[42..], [7; OpenSpec::WATCHED_BYTES - 42]);
    assert!(port.tx().slot().is_none());
    port.flush().unwrap();
    assert_eq!((port.stats().tx_frames, port.stats().rx_invalid), (0, 0));
}

#[test]
fn watching_is_promiscuous_for_as_long_as_it_lasts() {
    let Some(net) = net("af_packet promiscuous") else { return };
    let modes = || net.a.run(&["ip", "-d", "link", "show", "eth0"]).unwrap();
    let port = watch(&net);
    assert!(modes().contains("promiscuity 1"), "{}", modes());
    drop(port);
    assert!(modes().contains("promiscuity 0"), "{}", modes());
}

/// One buffer, of which the card or the kernel makes the packets on the wire (UDP_SEGMENT of
/// udp(7)): seen before that, it shows how long they are, also behind a VLAN tag.
#[test]
fn what_is_not_cut_up_yet_reports_its_segments() {
    let Some(net) = net("af_packet segments") else { return };
    let mut ways = vec![(A, B, 42)];
    let tag = ["ip", "link", "add", "link", "eth0", "name", "eth0.7", "type", "vlan", "id", "7"];
    if net.a.run(&tag).is_ok() {
        net.a.add_address("eth0.7", "10.8.0.1/24").unwrap();
        net.a.set_up("eth0.7", true).unwrap();
        let to = ["neigh", "replace", "10.8.0.2", "lladdr", "02:00:00:00:00:02", "dev", "eth0.7"];
        net.a.run(&[&["ip"][..], &to].concat()).unwrap();
        ways.push(("10.8.0.1:8620", "10.8.0.2:9000", 46));
    } else {
        sonde_lab::skipped("packets of VLANs", "this kernel does not have VLANs");
    }
    let mut port = watch(&net);
    for (from, to, header) in ways {
        let own = inside(&net.a, || UdpSocket::bind(from).unwrap());
        for segment in [100u16, 0] {
            syscall::set(&own, libc::SOL_UDP, libc::UDP_SEGMENT, i32::from(segment)).unwrap();
            own.send_to(&[7; 950], to).unwrap();
            let deadline = port.now() + 3_000_000_000;
            let found = loop {
                assert!(port.now() < deadline);
                let until = port.now() + 1_000_000;
                port.wait(until).unwrap();
                let burst = port.rx().unwrap();
                let is_it = |i: &usize| burst.wire_len(*i) == header + 950;
                if let Some(i) = (0..burst.len()).find(is_it) {
                    break burst.segment(i);
                }
            };
            assert_eq!(found, if tells_segments() { segment } else { 0 }, "{header}");
        }
    }
}

#[test]
fn on_the_loopback_a_packet_is_seen_once() {
    let Some(net) = net("af_packet watch loopback") else { return };
    net.a.set_up("lo", true).unwrap();
    let own = inside(&net.a, || UdpSocket::bind("127.0.0.1:8620").unwrap());
    let mut port = inside(&net.a, || AfPacket::open(&OpenSpec::watching("lo".into())).unwrap());
    for _ in 0..3 {
        own.send_to(b"round", "127.0.0.1:8620").unwrap();
    }
    assert_eq!(receive(&mut port, usize::MAX).len(), 3);
}

#[test]
fn engines_that_take_packets_away_do_not_watch() {
    for engine in [crate::Engine::Socket, crate::Engine::AfXdp] {
        let refused = crate::open(engine, &OpenSpec::watching("lo".into())).map(drop);
        assert!(refused.unwrap_err().to_string().contains("use af_packet"));
    }
}

#[test]
fn a_port_that_transmits_takes_nothing_in() {
    let Some(net) = net("af_packet transmit") else { return };
    let spec = OpenSpec::transmit("eth0".into());
    let (mut port, peer) = (inside(&net.a, || AfPacket::open(&spec).unwrap()), peer(&net));
    // The host has all its UDP ports, and all that comes.
    let own = inside(&net.a, || UdpSocket::bind(A).unwrap());
    own.set_read_timeout(Some(std::time::Duration::from_secs(3))).unwrap();
    let mut got = [0; 64];
    for n in 0..50u8 {
        let mut burst = port.tx();
        let len = write(&net, burst.slot().unwrap(), &[n; 30]);
        burst.commit(len, 0);
        port.flush().unwrap();
        assert_eq!((peer.recv(&mut got).unwrap(), got[0]), (30, n));
        peer.send_to(b"back", A).unwrap();
        assert_eq!(own.recv(&mut got).unwrap(), 4);
    }
    let end = port.now() + 2_000_000;
    port.wait(end).unwrap();
    assert!(port.now() >= end);
    let burst = port.rx().unwrap();
    assert_eq!((burst.len(), burst.done().len()), (0, 0));
    assert_eq!(port.stats(), PortStats { tx_frames: 50, ..PortStats::default() });
    // A link that is down costs what is sent, not the port.
    net.a.set_up("eth0", false).unwrap();
    let mut burst = port.tx();
    let len = write(&net, burst.slot().unwrap(), b"lost");
    burst.commit(len, 0);
    port.flush().unwrap();
    let until = port.now() + 1_000_000;
    port.wait(until).unwrap();
    assert_eq!(port.stats().tx_dropped, 1);
}
