//! The programs of passive RTT on veth: real connections are timed at every hook, other
//! programs go on, and nothing stays attached.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::common::rtt::{A, B, Segment};
use crate::common::{RawSocket, eventually, in_namespace, index, ip, privileged, veth_pair};
use sonde_bpf::{BpfError, RttAttachment, RttConfig, RttEvents, RttHook, RttProgram};
use sonde_results::rtt::{RttKind, RttSample};

const LIMIT: Duration = Duration::from_secs(10);

/// A connection over the loopback interface, with some requests and answers.
fn talk() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut bytes = [0; 64];
        while let Ok(n @ 1..) = peer.read(&mut bytes) {
            peer.write_all(&bytes[..n]).unwrap();
        }
    });
    let mut client = TcpStream::connect(port).unwrap();
    client.set_nodelay(true).unwrap();
    let mut answer = [0; 16];
    for _ in 0..5 {
        client.write_all(&[7; 16]).unwrap();
        client.read_exact(&mut answer).unwrap();
    }
    drop(client);
    server.join().unwrap();
}

fn samples(program: &mut RttProgram) -> Vec<RttSample> {
    let mut all = vec![];
    program.poll(Duration::ZERO, &mut |s| all.push(s), &mut |_| ()).unwrap();
    all
}

#[test]
fn connections_are_timed_and_nothing_stays_attached() {
    if !privileged("connections_are_timed_and_nothing_stays_attached") {
        return;
    }
    in_namespace(|| {
        ip(&["link", "set", "lo", "up"]);
        veth_pair(1500);
        let lo = index("lo") as i32;
        let time_base_ns = clock_ns(libc::CLOCK_TAI) - clock_ns(libc::CLOCK_MONOTONIC);
        let events = RttEvents::All;
        let config = RttConfig { flows: 1024, events, time_base_ns, ..RttConfig::default() };
        let mut program = RttProgram::load(&config).unwrap();
        let missing = program.attach(9999, 0, RttHook::Tc, false);
        assert!(matches!(missing, Err(BpfError::NoInterface(9999))), "{missing:?}");

        // On the loopback interface one hook has both directions.
        let how = program.attach(lo, 3, RttHook::TcIngress, false).unwrap();
        assert!(how.egress.is_none());
        assert!(program.attach(lo, 3, RttHook::Tc, false).is_err(), "the point is taken");
        let begin = clock_ns(libc::CLOCK_MONOTONIC) + time_base_ns;
        let mut all = vec![];
        assert!(eventually(LIMIT, || {
            talk();
            all.extend(samples(&mut program));
            [RttKind::TcpHandshakeServer, RttKind::TcpHandshakeClient]
                .iter()
                .all(|kind| all.iter().any(|s| s.kind == *kind))
        }));
        let now = clock_ns(libc::CLOCK_MONOTONIC) + time_base_ns;
        let fits = |at: i64, rtt: i64| begin <= at - rtt && at <= now;
        assert!(all.iter().all(|s| s.flow.point == 3 && fits(s.at_ns, s.rtt_ns as i64)), "{all:?}");
        program.detach(3);
        let seen = program.coverage().unwrap().counters["packets"];
        talk();
        assert_eq!(program.coverage().unwrap().counters["packets"], seen, "detached");

        // Several interfaces and hooks in one program, and again after a detach.
        let how = program.attach(index("va") as i32, 3, RttHook::Tc, false).unwrap();
        assert_eq!(how.ingress, how.egress.unwrap());
        let how = program.attach(index("vb") as i32, 4, RttHook::Xdp, false).unwrap();
        assert!(matches!(how.ingress, RttAttachment::XdpNative | RttAttachment::XdpGeneric));
        assert!(ip(&["-d", "link", "show", "vb"]).contains("prog/xdp"));
        // The interface goes; letting go of it is no error, and its entry is free again.
        ip(&["link", "del", "va"]);
        program.detach(3);
        program.detach(4);
        veth_pair(1500);
        program.attach(index("vb") as i32, 4, RttHook::Xdp, false).unwrap();
        drop(program);
        assert!(eventually(LIMIT, || !ip(&["-d", "link", "show", "vb"]).contains("prog/xdp")));
        let filters = std::process::Command::new("bpftool").args(["net"]).output();
        if let Ok(out) = filters {
            assert!(!String::from_utf8_lossy(&out.stdout).contains("sonde_rtt"));
        }
    });
}

fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is valid memory for the answer.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut at) }, 0);
    at.tv_sec * 1_000_000_000 + at.tv_nsec
}

/// Sends a frame of which no more than the Ethernet header is in the first piece.
fn send_in_pieces(ifindex: u32, frame: &[u8]) {
    const PACKET_VNET_HDR: i32 = 15;
    // struct virtio_net_hdr: no offloads, and how much to keep together.
    let [low, high] = 14u16.to_ne_bytes();
    let message = [&[0, 0, low, high, 0, 0, 0, 0, 0, 0], frame].concat();
    let on = 1i32;
    // SAFETY: plain system calls on a descriptor that is ours alone; every structure is
    // valid for the size given.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "packet socket: {}", std::io::Error::last_os_error());
        let fd = OwnedFd::from_raw_fd(fd);
        let size = size_of_val(&on) as libc::socklen_t;
        let value = (&raw const on).cast();
        let rc = libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, PACKET_VNET_HDR, value, size);
        assert_eq!(rc, 0, "PACKET_VNET_HDR: {}", std::io::Error::last_os_error());
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = ifindex as i32;
        let sent = libc::sendto(
            fd.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            0,
            (&raw const to).cast(),
            size_of_val(&to) as libc::socklen_t,
        );
        assert_eq!(sent, message.len() as isize, "{}", std::io::Error::last_os_error());
    }
}

/// Frames of which the kernel has no more than the Ethernet header in one piece.
#[test]
fn headers_that_are_not_in_one_piece_are_read() {
    if !privileged("headers_that_are_not_in_one_piece_are_read") {
        return;
    }
    in_namespace(|| {
        let (a, b) = veth_pair(9000);
        let config = RttConfig { flows: 1024, events: RttEvents::All, ..RttConfig::default() };
        let mut program = RttProgram::load(&config).unwrap();
        program.attach(a as i32, 0, RttHook::Tc, false).unwrap();
        let far = RawSocket::open(b);
        // Larger than a page: that is when the kernel spreads them.
        let data = Segment { len: 6000, sack: true, ..A }.frame();
        let tagged = [&data[..12], &[0x81, 0, 0, 9], &data[12..]].concat();
        let answer = Segment { ack: 6001, ..B }.frame();
        let answer_tagged = [&answer[..12], &[0x81, 0, 0, 9], &answer[12..]].concat();
        let mut all = vec![];
        for (n, (frame, answer)) in
            [(&data, &answer), (&tagged, &answer_tagged)].into_iter().enumerate()
        {
            send_in_pieces(a, frame);
            // A received tag stands beside the frame.
            let whole = |found: &[u8]| found.ends_with(&data[14..]);
            assert!(far.receive(LIMIT, whole).is_some(), "it goes on unharmed: {n}");
            far.send(answer);
            assert!(eventually(LIMIT, || {
                all.extend(samples(&mut program));
                all.len() == n + 1
            }));
            assert_eq!((all[n].kind, all[n].flow.vlan), (RttKind::TcpSequence, 9 * n as u16));
        }
        let counters = program.coverage().unwrap().counters;
        assert_eq!((counters["malformed"], counters["packets"]), (0, 4), "{counters:?}");
    });
}
