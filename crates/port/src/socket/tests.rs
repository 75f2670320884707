use super::*;
use crate::Filter;
use sonde_wire::build::emit_udp_ip;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// A port bound to `local` on free ports.
fn open(local: &str, ports: usize) -> (SocketPort, Vec<SocketAddr>) {
    let ip: IpAddr = local.parse().unwrap();
    let held: Vec<_> = (0..ports).map(|_| UdpSocket::bind((ip, 0)).unwrap()).collect();
    let addresses: Vec<_> = held.iter().map(|s| s.local_addr().unwrap()).collect();
    drop(held);
    let local_ports = addresses.iter().map(SocketAddr::port).collect();
    let filter = Filter { local: vec![ip], local_ports, peer_ports: vec![] };
    (SocketPort::open(&OpenSpec::new(None, filter)).unwrap(), addresses)
}

fn write(
    buffer: &mut [u8],
    from: SocketAddr,
    to: SocketAddr,
    tos: u8,
    ttl: u8,
    mark: u64,
) -> usize {
    buffer[..12].fill(0xEE);
    let ethertype: u16 = if from.is_ipv4() { 0x0800 } else { 0x86DD };
    buffer[12..14].copy_from_slice(&ethertype.to_be_bytes());
    let at = 14 + emit_udp_ip(&mut buffer[14..], from, to, tos, ttl, 100).unwrap();
    buffer[at..at + 100].fill(7);
    buffer[at..at + 8].copy_from_slice(&mark.to_be_bytes());
    at + 100
}

fn send(port: &mut SocketPort, from: SocketAddr, to: SocketAddr, mark: u64) {
    let mut burst = port.tx();
    let len = write(burst.slot().unwrap(), from, to, 0xBA, 77, mark);
    burst.commit(len, mark);
}

/// Waits until something comes, two seconds at most.
fn wait(port: &mut SocketPort) {
    let until = port.now() + 2_000_000_000;
    port.wait(until).unwrap();
}

fn headers_and_stamps(local: &str) {
    let (mut a, from) = open(local, 1);
    let (mut b, to) = open(local, 1);
    assert_eq!((a.caps().rx_stamp, a.caps().tx_stamp), (StampSource::Kernel, StampSource::Kernel));
    let before = a.now();
    send(&mut a, from[0], to[0], 42);
    a.flush().unwrap();
    wait(&mut b);
    let mut burst = b.rx().unwrap();
    assert_eq!(burst.len(), 1);
    let (frame, rx) = burst.frame(0);
    let found = parse_udp(frame).unwrap();
    assert_eq!(SocketAddr::new(found.source, found.source_port), from[0]);
    assert_eq!(SocketAddr::new(found.destination, found.destination_port), to[0]);
    assert_eq!((found.dscp, found.ecn, found.ttl), (0xBA >> 2, 2, 77));
    assert_eq!(found.payload.len(), 100);
    assert_eq!(frame[found.payload.clone()][..8], 42u64.to_be_bytes());
    if !found.is_ipv6 {
        let ip = sonde_wire::ipv4::Packet::new_checked(&frame[14..]).unwrap();
        assert!(ip.verify_checksum());
    }
    assert_eq!(rx.source, StampSource::Kernel);
    wait(&mut a);
    let done = a.rx().unwrap().done().to_vec();
    assert_eq!(done.len(), 1);
    assert_eq!((done[0].cookie, done[0].stamp.source), (42, StampSource::Kernel));
    assert!(before <= done[0].stamp.at && done[0].stamp.at <= rx.at && rx.at <= a.now());
}

#[test]
fn ipv4_headers_and_stamps_arrive() {
    headers_and_stamps("127.0.0.1");
}

#[test]
fn ipv6_headers_and_stamps_arrive() {
    if UdpSocket::bind("[::1]:0").is_err() {
        sonde_lab::skipped("ipv6_headers_and_stamps_arrive", "no IPv6 loopback");
        return;
    }
    headers_and_stamps("::1");
}

/// Ten thousand packets there and back, reflected in place: each cookie once, its
/// stamp before the reply's and never after the reply was handed up.
fn there_and_back(ports: usize, counted: bool) {
    const PACKETS: u64 = 10_000;
    let (mut a, from) = open("127.0.0.1", ports);
    let (mut b, to) = open("127.0.0.1", 1);
    if counted {
        // As on kernels before 6.13.
        for e in &mut a.endpoints {
            e.awaited = crate::errqueue::Awaited::new(false, 1024);
        }
    }
    let mut sent_at = vec![None; PACKETS as usize + 1];
    let (mut next, mut replies) = (1, 0);
    let deadline = a.now() + 20_000_000_000;
    while replies < PACKETS {
        assert!(a.now() < deadline, "{replies} replies, {:?} {:?}", a.stats(), b.stats());
        for _ in 0..32 {
            if next <= PACKETS {
                send(&mut a, from[next as usize % ports], to[0], next);
                next += 1;
            }
        }
        a.flush().unwrap();
        let mut burst = b.rx().unwrap();
        for i in 0..burst.len() {
            let (frame, _) = burst.frame(i);
            let f = parse_udp(frame).unwrap();
            let mark = u64::from_be_bytes(frame[f.payload.start..][..8].try_into().unwrap());
            let back = SocketAddr::new(f.source, f.source_port);
            write(frame, to[0], back, 0, 64, mark);
            burst.set_verdict(i, Verdict::Transmit { cookie: 0 });
        }
        b.flush().unwrap();
        let mut burst = a.rx().unwrap();
        for d in burst.done() {
            assert!(sent_at[d.cookie as usize].replace(d.stamp.at).is_none(), "twice");
        }
        for i in 0..burst.len() {
            let (frame, stamp) = burst.frame(i);
            let f = parse_udp(frame).unwrap();
            let mark = u64::from_be_bytes(frame[f.payload.start..][..8].try_into().unwrap());
            let sent = sent_at[mark as usize].expect("the completion comes first");
            assert!(sent <= stamp.at);
            replies += 1;
        }
    }
    let (a, b) = (a.stats(), b.stats());
    assert_eq!((a.tx_frames, a.tx_stamps, a.tx_stamp_missing), (PACKETS, PACKETS, 0));
    assert_eq!((b.rx_frames, b.tx_frames, b.tx_dropped), (PACKETS, PACKETS, 0));
    assert_eq!((a.tx_dropped, a.rx_dropped, b.rx_dropped), (0, 0, 0));
}

#[test]
fn cookies_are_right_over_ten_thousand_packets() {
    there_and_back(1, false);
}

#[test]
fn cookies_are_right_where_the_kernel_counts() {
    there_and_back(2, true);
}

#[test]
fn many_ports() {
    there_and_back(300, false);
}

#[test]
fn a_refused_packet_is_counted_and_the_rest_goes_on() {
    let (mut a, from) = open("127.0.0.1", 1);
    let (mut b, to) = open("127.0.0.1", 1);
    // A socket bound to loopback cannot reach beyond it.
    let beyond = "192.0.2.1:9".parse().unwrap();
    for (mark, to) in [(1, to[0]), (2, beyond), (3, to[0])] {
        send(&mut a, from[0], to, mark);
    }
    a.flush().unwrap();
    wait(&mut b);
    assert_eq!(b.rx().unwrap().len(), 2);
    wait(&mut a);
    let cookies: Vec<_> = a.rx().unwrap().done().iter().map(|d| d.cookie).collect();
    assert_eq!(cookies, [1, 3]);
    assert_eq!((a.stats().tx_frames, a.stats().tx_dropped), (2, 1));
}

#[test]
fn a_frame_that_is_no_datagram_of_ours_is_counted() {
    let (mut a, from) = open("127.0.0.1", 1);
    let mut other = from[0];
    other.set_port(1);
    send(&mut a, other, from[0], 1);
    a.tx().slot().unwrap().fill(0xFF);
    a.tx().commit(60, 1);
    a.flush().unwrap();
    assert_eq!((a.stats().tx_frames, a.stats().tx_dropped), (0, 2));
}

#[test]
fn overrun_is_counted() {
    let (mut a, from) = open("127.0.0.1", 1);
    let (mut b, to) = open("127.0.0.1", 1);
    syscall::set(&b.endpoints[0].fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 4096).unwrap();
    for mark in 1..=200 {
        send(&mut a, from[0], to[0], mark);
    }
    a.flush().unwrap();
    let mut received = 0;
    loop {
        let n = b.rx().unwrap().len();
        received += n as u64;
        if n == 0 {
            break;
        }
    }
    let stats = b.stats();
    assert!(stats.rx_dropped > 0);
    assert_eq!(received + stats.rx_dropped, 200);
}
