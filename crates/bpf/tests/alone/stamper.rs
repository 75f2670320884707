//! The stamper on real veth devices: which points each kind of sender and receiver passes. The
//! stamps are of the right packets and in order, and nothing stays.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::packet::{OUR_PORT, Request};
use crate::common::xsk_socket::XskSocket;
use crate::common::{
    RawSocket, eventually, in_namespace, index, ip, privileged, test_name, veth_pair,
    wait_for_the_kill,
};
use crate::turn;
use libbpf_rs::libbpf_sys as sys;
use sonde_bpf::StampPoint::{HandedOver, Redirected, Released, TcEgress, TcIngress};
use sonde_bpf::{AttachMode, BpfError, PacketStamp, StampPoint, Stamper, XskFilter, XskProgram};

const LIMIT: Duration = Duration::from_secs(5);

fn tai_now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid memory for the answer.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_TAI, &mut t) }, 0);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// An XDP program that takes UDP to `port` and passes the rest. With one at its far end, veth
/// copies each packet and lets go of the sent one at once.
fn tap(ifindex: u32, port: u16) -> XskProgram {
    let filter = XskFilter { local_ports: &[port], peer_ports: &[], local: &[] };
    XskProgram::attach(ifindex, &filter, AttachMode::Native, false).unwrap()
}

/// Waits until there are `n` stamps.
fn stamps(stamper: &Stamper, n: usize) -> Vec<PacketStamp> {
    eventually(LIMIT, || stamper.stamps().count() >= n);
    let all: Vec<_> = stamper.stamps().collect();
    assert_eq!(all.len(), n, "{all:?}");
    all
}

fn points(stamps: &[PacketStamp]) -> Vec<StampPoint> {
    stamps.iter().map(|s| s.point).collect()
}

fn requests() -> [Request; 2] {
    [Request::v4(), Request::v6()]
}

/// The base reply to `request`.
fn reply(request: &Request) -> Vec<u8> {
    request.reply(0xffff_fff0, 1, [1; 8], [2; 8])
}

fn belongs(stamp: &PacketStamp, request: &Request) -> bool {
    (stamp.far, stamp.near_port, stamp.sequence) == (request.destination, request.source_port, 7)
}

#[test]
fn a_probe_is_stamped_at_tc_and_when_the_driver_lets_go() {
    if !privileged("a_probe_is_stamped_at_tc_and_when_the_driver_lets_go") {
        return;
    }
    let _turn = turn::shared();
    for bypass in [false, true] {
        in_namespace(move || {
            let (a, b) = veth_pair(1500);
            let _far = tap(b, 1);
            let tx = RawSocket::open(a);
            let expected = if bypass {
                tx.bypass_queueing();
                vec![HandedOver, Released]
            } else {
                vec![TcEgress, HandedOver, Released]
            };
            for request in requests() {
                let stamper = Stamper::attach(a, OUR_PORT, 10).unwrap();
                let before = tai_now();
                tx.send(&request.frame());
                let seen = stamps(&stamper, expected.len());
                let after = tai_now();
                assert_eq!(points(&seen), expected);
                assert!(seen.iter().all(|s| belongs(s, &request)), "{seen:?}");
                assert!(before <= seen[0].ns && seen.is_sorted_by_key(|s| s.ns));
                assert!(seen.last().unwrap().ns <= after);
                assert_eq!(stamper.missed().unwrap(), 0);
            }
        });
    }
}

#[test]
fn a_reply_is_stamped_at_tc() {
    if !privileged("a_reply_is_stamped_at_tc") {
        return;
    }
    let _turn = turn::shared();
    in_namespace(|| {
        let (a, b) = veth_pair(1500);
        let (near, far) = (RawSocket::open(a), RawSocket::open(b));
        for request in requests() {
            let stamper = Stamper::attach(a, OUR_PORT, 10).unwrap();
            let frame = reply(&request);
            let before = tai_now();
            far.send(&frame);
            assert!(near.receive(LIMIT, |f| f == frame).is_some());
            let seen = stamps(&stamper, 1);
            assert_eq!(seen[0].point, TcIngress);
            assert!(belongs(&seen[0], &request), "{seen:?}");
            assert!(before <= seen[0].ns && seen[0].ns <= tai_now());
        }
    });
}

/// What XDP redirects never comes to tc. More packets than the ring has entries, so that
/// its end is passed.
#[test]
fn a_reply_into_an_af_xdp_socket_is_stamped_after_its_own_stamp() {
    if !privileged("a_reply_into_an_af_xdp_socket_is_stamped_after_its_own_stamp") {
        return;
    }
    let _turn = turn::shared();
    for request in requests() {
        in_namespace(move || {
            let (a, b) = veth_pair(1500);
            let program = tap(a, request.source_port);
            let mut socket = XskSocket::open(a);
            program.register_socket(0, socket.fd).unwrap();
            let far = RawSocket::open(b);
            let stamper = Stamper::attach(a, OUR_PORT, 10).unwrap();
            let mut own = Vec::new();
            for sequence in 0..6u32 {
                let mut request = request.clone();
                request.payload[..4].copy_from_slice(&sequence.to_be_bytes());
                far.send(&reply(&request));
                let (meta, frame) = socket.receive(LIMIT).expect("redirected");
                assert_eq!(frame, reply(&request));
                own.push(sonde_bpf::RxMeta::read(&meta).expect("a stamp").ns);
            }
            let seen = stamps(&stamper, own.len());
            let after = tai_now();
            for (sequence, (stamp, own)) in (0..).zip(seen.iter().zip(own)) {
                assert_eq!(stamp.point, Redirected);
                assert_eq!(stamp.far, request.destination);
                assert_eq!((stamp.near_port, stamp.sequence), (request.source_port, sequence));
                assert!(own <= stamp.ns && stamp.ns <= after);
            }
        });
    }
}

#[test]
fn other_packets_are_not_stamped() {
    if !privileged("other_packets_are_not_stamped") {
        return;
    }
    let _turn = turn::shared();
    in_namespace(|| {
        let (a, b) = veth_pair(1500);
        let _far = tap(b, 1);
        let (tx, rx) = (RawSocket::open(a), RawSocket::open(b));
        let stamper = Stamper::attach(a, OUR_PORT, 10).unwrap();
        let other_port = Request { port: 863, ..Request::v4() };
        let short = Request { payload: vec![0; 20], ..Request::v4() };
        let mut not_udp = Request::v4().frame();
        not_udp[23] = 6;
        let mut options = Request::v4().frame();
        options[14] = 0x46;
        for frame in [other_port.frame(), short.frame(), not_udp, options, vec![0; 60]] {
            tx.send(&frame);
            // As it was sent.
            assert!(rx.receive(LIMIT, |f| f == frame).is_some());
        }
        tx.send(&Request { tags: vec![(0x8100, 7)], ..Request::v4() }.frame());
        // Another interface of this namespace.
        ip(&["link", "add", "vc", "type", "veth", "peer", "name", "vd"]);
        for end in ["vc", "vd"] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1").unwrap();
            ip(&["link", "set", end, "up"]);
        }
        let _other_far = tap(index("vd"), 1);
        let (other, other_rx) = (RawSocket::open(index("vc")), RawSocket::open(index("vd")));
        other.send(&Request::v4().frame());
        assert!(other_rx.receive(LIMIT, |f| f == Request::v4().frame()).is_some());
        // A reply goes the other way, and so does a probe that somebody sends us.
        tx.send(&reply(&Request::v4()));
        rx.send(&Request::v4().frame());
        tx.send(&Request::v6().frame());
        let seen = stamps(&stamper, 3);
        assert_eq!(points(&seen), [TcEgress, HandedOver, Released]);
        assert!(seen.iter().all(|s| belongs(s, &Request::v6())));
    });
}

#[test]
fn a_full_log_counts_what_it_cannot_hold() {
    if !privileged("a_full_log_counts_what_it_cannot_hold") {
        return;
    }
    let _turn = turn::shared();
    in_namespace(|| {
        let (a, b) = veth_pair(1500);
        let (near, far) = (RawSocket::open(a), RawSocket::open(b));
        let stamper = Stamper::attach(a, OUR_PORT, 3).unwrap();
        for _ in 0..5 {
            far.send(&reply(&Request::v4()));
            assert!(near.receive(LIMIT, |_| true).is_some());
        }
        assert!(eventually(LIMIT, || stamper.missed().unwrap() == 2));
        stamps(&stamper, 3);
    });
}

#[test]
fn bad_settings_are_refused_with_a_reason() {
    if !privileged("bad_settings_are_refused_with_a_reason") {
        return;
    }
    let _turn = turn::shared();
    in_namespace(|| {
        let (a, _) = veth_pair(1500);
        assert!(matches!(Stamper::attach(a, 0, 1), Err(BpfError::Config(_))));
        assert!(matches!(Stamper::attach(a, 1, 0), Err(BpfError::Config(_))));
        let nowhere = Stamper::attach(4_000_000, 1, 1);
        assert!(matches!(nowhere, Err(BpfError::NoInterface(4_000_000))));
    });
}

/// Programs at a hook of the interface in this thread's namespace.
fn attached(ifindex: u32, hook: sys::bpf_attach_type) -> u32 {
    // SAFETY: plain data for which all zeroes is valid ("count only").
    let mut opts: sys::bpf_prog_query_opts = unsafe { std::mem::zeroed() };
    opts.sz = size_of_val(&opts) as _;
    // SAFETY: `opts` outlives the call and carries its own size.
    let rc = unsafe { sys::bpf_prog_query_opts(ifindex as i32, hook, &mut opts) };
    assert_eq!(rc, 0, "{}", std::io::Error::from_raw_os_error(-rc));
    // SAFETY: both members of the union are the same integer.
    unsafe { opts.__bindgen_anon_1.count }
}

fn attached_at_both(ifindex: u32) -> (u32, u32) {
    (attached(ifindex, sys::BPF_TCX_EGRESS), attached(ifindex, sys::BPF_TCX_INGRESS))
}

/// The victim of the next test: attaches to `va` of the namespace it is started in and
/// waits to be killed.
#[test]
#[ignore = "started by nothing_stays_attached alone"]
fn attach_and_wait() {
    let _stamper = Stamper::attach(index("va"), OUR_PORT, 10).unwrap();
    wait_for_the_kill()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "plays a part of the test in a process of its own")]
fn nothing_stays_attached() {
    if !privileged("nothing_stays_attached") {
        return;
    }
    let _turn = turn::shared();
    in_namespace(|| {
        let (a, _) = veth_pair(1500);
        // Two live side by side.
        let both = [Stamper::attach(a, OUR_PORT, 10), Stamper::attach(a, OUR_PORT, 10)];
        assert!(both.iter().all(Result::is_ok));
        assert_eq!(attached_at_both(a), (2, 2));
        drop(both);
        assert!(eventually(LIMIT, || attached_at_both(a) == (0, 0)));

        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", &test_name(module_path!(), "attach_and_wait")])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let came_up = eventually(Duration::from_secs(20), || attached_at_both(a) == (1, 1));
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        assert!(came_up, "the child did not attach");
        assert!(eventually(LIMIT, || attached_at_both(a) == (0, 0)));
    });
}
