//! The AF_XDP tap on real veth devices: it attaches, sorts packets, and never outlives
//! its process.

use std::time::Duration;

use crate::common::xsk_socket::XskSocket;
use crate::common::{
    RawSocket, assert_detached, eventually, in_namespace, index, nothing_outlives_the_kill,
    privileged, veth_pair, wait_for_the_kill, xdp_attached,
};
use sonde_bpf::{AttachMode, BpfError, RxMeta, XskFilter, XskProgram};

const LIMIT: Duration = Duration::from_secs(5);

fn filter() -> XskFilter<'static> {
    XskFilter { local_ports: &[862, 18763], peer_ports: &[], local: &[] }
}

/// Ethernet, IPv4, UDP to the given address and port; no checksums (nobody checks).
fn udp4(destination: [u8; 4], source_port: u16, port: u16) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    f.extend([0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1]);
    f.extend(destination);
    f.extend(source_port.to_be_bytes());
    f.extend(port.to_be_bytes());
    f.extend([0, 16, 0, 0]);
    f.extend(*b"8 octets");
    f
}

#[test]
fn attaches_in_every_mode_and_detaches_on_drop() {
    if !privileged("attaches_in_every_mode_and_detaches_on_drop") {
        return;
    }
    in_namespace(|| {
        let (_, b) = veth_pair(1500);
        for (mode, hw) in
            [(AttachMode::Native, false), (AttachMode::Generic, false), (AttachMode::Native, true)]
        {
            let program = XskProgram::attach(b, &filter(), mode, hw)
                .unwrap_or_else(|e| panic!("{mode:?}, hardware stamps {hw}: {e}"));
            assert!(xdp_attached("vb"));
            drop(program);
            assert_detached("vb");
        }
    });
}

#[test]
fn accepts_a_jumbo_mtu() {
    if !privileged("accepts_a_jumbo_mtu") {
        return;
    }
    in_namespace(|| {
        let (_, b) = veth_pair(9000);
        let program = XskProgram::attach(b, &filter(), AttachMode::Native, false).unwrap();
        assert!(program.multi_buffer());
    });
}

#[test]
fn sorts_packets_and_leaves_them_intact() {
    if !privileged("sorts_packets_and_leaves_them_intact") {
        return;
    }
    for hw in [false, true] {
        in_namespace(move || {
            let (a, b) = veth_pair(1500);
            let filter = XskFilter {
                local_ports: &[862, 65535],
                peer_ports: &[5000],
                local: &[("198.51.100.0".parse().unwrap(), 24)],
            };
            let program = XskProgram::attach(b, &filter, AttachMode::Native, hw).unwrap();
            let (tx, rx) = (RawSocket::open(a), RawSocket::open(b));
            let ours = [198, 51, 100, 7];
            let expected = [
                (udp4(ours, 5000, 862), 1, 0),
                (udp4(ours, 5000, 65535), 2, 0),
                (udp4(ours, 5000, 863), 2, 1),
                (udp4(ours, 5001, 862), 2, 2),
                (udp4([198, 51, 101, 7], 5000, 862), 2, 3),
            ];
            for (frame, no_socket, passed) in expected {
                tx.send(&frame);
                // No socket is registered: even the matching ones go on, as they came.
                assert!(rx.receive(LIMIT, |f| f == frame).is_some());
                let c = program.counters().unwrap();
                assert_eq!((c.matched, c.no_meta), (0, 0));
                assert_eq!((c.no_socket, c.passed), (no_socket, passed));
            }
            program.update_local(&[("198.51.101.7".parse().unwrap(), 32)]).unwrap();
            tx.send(&udp4([198, 51, 101, 7], 5000, 862));
            assert!(eventually(LIMIT, || program.counters().unwrap().no_socket == 3));
            tx.send(&udp4(ours, 5000, 862));
            assert!(eventually(LIMIT, || program.counters().unwrap().passed == 4));
        });
    }
}

fn tai_now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid memory for the answer.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_TAI, &mut t) }, 0);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[test]
fn a_socket_gets_its_packets_with_a_stamp_in_front() {
    if !privileged("a_socket_gets_its_packets_with_a_stamp_in_front") {
        return;
    }
    for (mode, hw) in
        [(AttachMode::Native, false), (AttachMode::Native, true), (AttachMode::Generic, false)]
    {
        in_namespace(move || {
            let (a, b) = veth_pair(1500);
            let program = XskProgram::attach(b, &filter(), mode, hw).unwrap();
            let mut socket = XskSocket::open(b);
            program.register_socket(0, socket.fd).unwrap();
            let (tx, kernel) = (RawSocket::open(a), RawSocket::open(b));
            let mut last = 0;
            for source_port in 1..=4 {
                let ours = udp4([192, 0, 2, 9], source_port, 862);
                let other = udp4([192, 0, 2, 9], source_port, 861);
                let before = tai_now();
                tx.send(&other);
                tx.send(&ours);
                let (meta, frame) = socket.receive(LIMIT).expect("redirected");
                let after = tai_now();
                assert_eq!(frame, ours);
                // veth has no hardware stamp: the clock stands in, and says so.
                let meta = RxMeta::read(&meta).expect("a stamp in front of the frame");
                assert_eq!(meta.card, None);
                assert!(before <= meta.ns && last < meta.ns && meta.ns <= after, "{mode:?} {hw}");
                last = meta.ns;
                // The first that the kernel sees of these two is the one that is not ours.
                let seen = kernel.receive(LIMIT, |f| f == ours || f == other);
                // (In generic mode packet sockets look before XDP does.)
                assert!(seen == Some(other) || mode == AttachMode::Generic);
            }
            let c = program.counters().unwrap();
            assert_eq!(
                (c.matched, c.passed, c.no_meta, c.no_socket),
                (4, 4, 0, 0),
                "{mode:?} {hw}"
            );
        });
    }
}

#[test]
fn another_program_is_named() {
    if !privileged("another_program_is_named") {
        return;
    }
    in_namespace(|| {
        let (_, b) = veth_pair(1500);
        let first = XskProgram::attach(b, &filter(), AttachMode::Native, false).unwrap();
        for mode in [AttachMode::Native, AttachMode::Generic] {
            match XskProgram::attach(b, &filter(), mode, false) {
                Err(e @ BpfError::Busy { .. }) => {
                    assert!(e.to_string().contains("'sonde_xsk'"), "{e}");
                    assert!(e.to_string().contains("ip link"), "{e}");
                }
                other => panic!("{mode:?}: {other:?}"),
            }
        }
        drop(first);
        XskProgram::attach(b, &filter(), AttachMode::Native, false).unwrap();
    });
}

#[test]
fn bad_settings_are_refused_with_a_reason() {
    if !privileged("bad_settings_are_refused_with_a_reason") {
        return;
    }
    in_namespace(|| {
        let (_, b) = veth_pair(1500);
        let attach = |filter: &XskFilter<'_>, ifindex| {
            XskProgram::attach(ifindex, filter, AttachMode::Native, false)
        };
        assert!(matches!(attach(&filter(), 4_000_000), Err(BpfError::NoInterface(4_000_000))));
        let none = XskFilter { local_ports: &[], ..filter() };
        assert!(matches!(attach(&none, b), Err(BpfError::Config(_))));
        let long = [("10.0.0.0".parse().unwrap(), 33)];
        let long = XskFilter { local: &long, ..filter() };
        assert!(matches!(attach(&long, b), Err(BpfError::Config(_))));
        let generic_hw = XskProgram::attach(b, &filter(), AttachMode::Generic, true);
        assert!(matches!(generic_hw, Err(BpfError::Config(_))));
        let any = attach(&filter(), b).unwrap();
        assert!(matches!(any.update_local(&[]), Err(BpfError::Config(_))));
        assert!(any.register_socket(0, -1).is_err());
    });
}

/// The victim of the next test: attaches to `vb` of the namespace it is started in and
/// waits to be killed.
#[test]
#[ignore = "started by nothing_stays_attached_after_kill_9 alone"]
fn attach_and_wait() {
    let _program = XskProgram::attach(index("vb"), &filter(), AttachMode::Native, false).unwrap();
    wait_for_the_kill()
}

#[test]
fn nothing_stays_attached_after_kill_9() {
    if !privileged("nothing_stays_attached_after_kill_9") {
        return;
    }
    nothing_outlives_the_kill(module_path!(), || xdp_attached("vb"));
}
