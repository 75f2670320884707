//! The programs of passive RTT on veth: real connections are timed at every hook, other
//! programs go on, and nothing stays attached.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use common::{eventually, in_namespace, index, ip, privileged, veth_pair};
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
        let config = RttConfig { flows: 1024, events: RttEvents::All, ..RttConfig::default() };
        let mut program = RttProgram::load(&config).unwrap();
        let missing = program.attach(9999, 0, RttHook::Tc, false);
        assert!(matches!(missing, Err(BpfError::NoInterface(9999))), "{missing:?}");

        // On the loopback interface one hook has both directions.
        let how = program.attach(lo, 3, RttHook::TcIngress, false).unwrap();
        assert!(how.egress.is_none());
        assert!(program.attach(lo, 3, RttHook::Tc, false).is_err(), "the point is taken");
        let mut all = vec![];
        assert!(eventually(LIMIT, || {
            talk();
            all.extend(samples(&mut program));
            [RttKind::TcpHandshakeServer, RttKind::TcpHandshakeClient]
                .iter()
                .all(|kind| all.iter().any(|s| s.kind == *kind))
        }));
        assert!(all.iter().all(|s| s.flow.point == 3 && s.rtt_ns < 10_000_000_000), "{all:?}");
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
        assert!(all.iter().all(|s| (s.at_ns - now).abs() < 3_600_000_000_000), "TAI, about now");
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
        // The interface goes; letting go of it is no error, and its place is free again.
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
