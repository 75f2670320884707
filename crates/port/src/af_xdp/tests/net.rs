//! Two hosts with one link, and the frames that cross it.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use sonde_lab::{Host, Lab, LinkOptions};

use crate::af_xdp::AfXdp;
use crate::{Filter, OpenSpec, Port};

/// Two hosts joined by `eth0`; the test itself runs inside `a`.
pub struct Net {
    _lab: Lab,
    pub a: Host,
    pub b: Host,
    macs: ([u8; 6], [u8; 6]),
}

/// Runs `test` in a network of its own, in a thread inside host `a`.
pub fn with_net(name: &str, options: LinkOptions, test: impl FnOnce(&Net) + Send) {
    if sonde_lab::skip(name) {
        return;
    }
    let mut lab = Lab::new("afxdp").unwrap();
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    let macs = lab.link(&a, "eth0", &b, "eth0", &options).unwrap();
    a.add_address("eth0", "10.0.0.1/24").unwrap();
    b.add_address("eth0", "10.0.0.2/24").unwrap();
    let mac = |m: [u8; 6]| m.map(|b| format!("{b:02x}")).join(":");
    a.set_neighbour("eth0", "10.0.0.2", &mac(macs.1)).unwrap();
    b.set_neighbour("eth0", "10.0.0.1", &mac(macs.0)).unwrap();
    let net = Net { _lab: lab, a, b, macs };
    inside(&net.a, || test(&net));
}

/// Runs `f` in a thread inside the host's namespace; a panic in it is passed on.
pub fn inside<T: Send>(host: &Host, f: impl FnOnce() -> T + Send) -> T {
    let path = format!("/var/run/netns/{}", host.name());
    let run = || {
        let namespace = std::fs::File::open(path).unwrap();
        // SAFETY: a system call without pointers; it moves this thread alone.
        let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        f()
    };
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

pub fn spec() -> OpenSpec {
    let filter = Filter { local_ports: vec![PORT], ..Filter::default() };
    OpenSpec { ring: 1024, ..OpenSpec::new(Some("eth0".into()), filter) }
}

pub fn udp(host: &Host, address: Ipv4Addr, port: u16) -> UdpSocket {
    inside(host, || {
        let socket = UdpSocket::bind((address, port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    })
}

impl Net {
    /// Ethernet, IPv4, UDP (without checksum, as RFC 768 allows) from `a` to `b`.
    pub fn frame(&self, buffer: &mut [u8], payload: &[u8]) -> usize {
        let (ip_len, udp_len) = (28 + payload.len(), 8 + payload.len());
        buffer[..6].copy_from_slice(&self.macs.1);
        buffer[6..12].copy_from_slice(&self.macs.0);
        buffer[12..14].copy_from_slice(&[8, 0]);
        let ip = &mut buffer[14..34];
        ip.copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        ip[2..4].copy_from_slice(&(ip_len as u16).to_be_bytes());
        let sum: u32 = ip.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        buffer[34..36].copy_from_slice(&PORT.to_be_bytes());
        buffer[36..38].copy_from_slice(&PORT.to_be_bytes());
        buffer[38..40].copy_from_slice(&(udp_len as u16).to_be_bytes());
        buffer[40..42].fill(0);
        buffer[42..42 + payload.len()].copy_from_slice(payload);
        42 + payload.len()
    }

    /// Commits `count` frames that carry the cookies from `first` on; how many it could.
    pub fn commit(&self, port: &mut AfXdp, first: u64, count: usize) -> usize {
        let mut burst = port.tx();
        let mut sent = 0;
        while sent < count {
            let Some(slot) = burst.slot() else { break };
            let cookie = first + sent as u64;
            let len = self.frame(slot, &cookie.to_be_bytes());
            burst.commit(len, cookie);
            sent += 1;
        }
        sent
    }
}

/// Turns a frame round in place.
pub fn turn(frame: &mut [u8]) {
    let (to, from) = frame[..12].split_at_mut(6);
    to.swap_with_slice(from);
    let (from, to) = frame[26..34].split_at_mut(4);
    from.swap_with_slice(to);
    let (from, to) = frame[34..38].split_at_mut(2);
    from.swap_with_slice(to);
    frame[40..42].fill(0);
}

/// The payload of a frame, whose length UDP gives (Ethernet may have padded it).
pub fn payload(frame: &[u8]) -> &[u8] {
    let len = usize::from(u16::from_be_bytes([frame[38], frame[39]]));
    &frame[42..34 + len]
}

pub fn cookie(frame: &[u8]) -> u64 {
    u64::from_be_bytes(payload(frame)[..8].try_into().unwrap())
}

/// Calls `step` until it says that all is done, for as long as the patience lasts.
pub fn until(what: &str, mut step: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !step() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
    }
}

pub const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const PORT: u16 = 8620;
pub const PATIENCE: Duration = Duration::from_secs(20);
