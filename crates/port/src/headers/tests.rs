//! The engine on one end of a veth pair, a UDP socket on the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;

use sonde_lab::{Host, Lab, LinkOptions};
use sonde_sys::SysError;

use super::*;

const A: &str = "10.9.0.1";
const B: &str = "10.9.0.2";

/// Two hosts, or `None` with the reason on standard error.
fn net(name: &str) -> Option<(Lab, Host, Host)> {
    if sonde_lab::skip(name) {
        return None;
    }
    let mut lab = Lab::new("headers").unwrap();
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    lab.link(&a, "eth0", &b, "eth0", &LinkOptions::default()).unwrap();
    a.add_address("eth0", "10.9.0.1/24").unwrap();
    b.add_address("eth0", "10.9.0.2/24").unwrap();
    Some((lab, a, b))
}

fn socket(host: &Host, address: &str) -> UdpSocket {
    let socket = host.inside(|| UdpSocket::bind(address).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// The UDP packets to port 99 of all ports until `count` have come: port of the source,
/// worker, and length.
fn datagrams(ports: &mut [HeaderPort], count: usize) -> Vec<(u16, usize, u32)> {
    let deadline = steady_now() + 5_000_000_000;
    let mut all = Vec::new();
    while all.len() < count && steady_now() < deadline {
        for (worker, port) in ports.iter_mut().enumerate() {
            port.wait(steady_now() + 1_000_000);
            for packet in port.burst() {
                if packet.protocol == 17 && packet.destination_port == 99 {
                    assert_eq!(packet.source[12..], [10, 9, 0, 2]);
                    assert_eq!(packet.destination[12..], [10, 9, 0, 1]);
                    all.push((packet.source_port, worker, packet.ip_len));
                }
            }
        }
    }
    all
}

#[test]
fn a_live_hosts_packets_are_seen_and_go_on() {
    let Some((_lab, a, b)) = net("headers, live") else { return };
    for xdp_mode in [XdpMode::Auto, XdpMode::Generic] {
        let spec = HeaderSpec { workers: 2, xdp_mode, ..HeaderSpec::new("eth0".into()) };
        let mut ports = a.inside(|| open(&spec).unwrap()).unwrap();
        let shown = if xdp_mode == XdpMode::Auto { "eth0 native" } else { "eth0 generic" };
        assert!(ports[0].mode().contains(shown), "{}", ports[0].mode());
        let own = socket(&a, &format!("{A}:99"));
        let before = steady_now();
        let mut sent = BTreeMap::new();
        for n in 0..100usize {
            let peer = socket(&b, &format!("{B}:0"));
            peer.send_to(&[7; 200][..n], (A, 99)).unwrap();
            let (len, from) = own.recv_from(&mut [0; 200]).unwrap();
            assert_eq!(len, n, "the host gets it");
            sent.insert(from.port(), n);
        }
        let all = datagrams(&mut ports, 100);
        assert_eq!(all.len(), 100);
        let workers: BTreeSet<usize> = all.iter().map(|&(_, worker, _)| worker).collect();
        assert_eq!(workers.len(), 1, "one pair of addresses, one worker");
        // A port may have been used again; its last datagram is then the one remembered.
        for (port, n) in sent {
            let lens: Vec<u32> = all.iter().filter(|p| p.0 == port).map(|p| p.2).collect();
            assert_eq!(*lens.last().unwrap() as usize, 28 + n);
        }
        assert!(steady_now() > before);
        assert!(ports.iter().all(|port| port.lost().packets == 0));
        let received: u64 = ports.iter().map(HeaderPort::received).sum();
        assert!(received >= 100);
        let xdp = || a.run(&["ip", "-j", "link", "show", "eth0"]).unwrap().contains("\"xdp\"");
        assert!(xdp());
        drop(ports);
        assert!(!xdp());
    }
}

#[test]
fn what_is_consumed_does_not_reach_the_host() {
    let Some((_lab, a, b)) = net("headers, consume") else { return };
    let own = socket(&a, &format!("{A}:99"));
    let peer = socket(&b, &format!("{B}:0"));
    peer.connect((A, 99)).unwrap();
    // While both still answer for their addresses.
    peer.send(b"first").unwrap();
    assert_eq!(own.recv(&mut [0; 9]).unwrap(), 5);
    let spec = HeaderSpec { consume: true, ..HeaderSpec::new("eth0".into()) };
    let mut ports = a.inside(|| open(&spec).unwrap()).unwrap();
    for n in 1..=50 {
        peer.send(&[0; 60][..n]).unwrap();
    }
    let all = datagrams(&mut ports, 50);
    assert!(all.iter().map(|p| p.2).eq(29..=78), "in their order: {all:?}");
    own.set_nonblocking(true).unwrap();
    assert!(own.recv(&mut [0; 99]).is_err());
    drop(ports);
    own.set_nonblocking(false).unwrap();
    peer.send(b"again").unwrap();
    assert_eq!(own.recv(&mut [0; 9]).unwrap(), 5);
}

/// A mirror port's card would drop what is addressed to others before XDP sees it.
#[test]
fn the_interface_is_promiscuous_for_as_long_as_it_is_read() {
    let Some((_lab, a, _b)) = net("headers, promiscuous") else { return };
    let modes = || a.run(&["ip", "-d", "link", "show", "eth0"]).unwrap();
    let spec = HeaderSpec { workers: 2, ..HeaderSpec::new("eth0".into()) };
    let mut ports = a.inside(|| open(&spec).unwrap()).unwrap();
    assert!(modes().contains("promiscuity 1"), "{}", modes());
    drop(ports.pop());
    assert!(modes().contains("promiscuity 1"), "one worker still reads");
    drop(ports);
    assert!(modes().contains("promiscuity 0"), "{}", modes());
}

#[test]
fn what_is_missing_is_named() {
    if sonde_lab::skip("headers, what is missing") {
        return;
    }
    let refused = open(&HeaderSpec::new("no-such-if".into())).err().unwrap();
    let PortError::Sys(SysError::NoInterface(name)) = refused else { panic!("{refused}") };
    assert_eq!(name, "no-such-if");
    let none = HeaderSpec { workers: 0, ..HeaderSpec::new("lo".into()) };
    assert!(matches!(open(&none).err().unwrap(), PortError::Config(_)));
}
