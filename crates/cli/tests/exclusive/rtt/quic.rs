//! QUIC as people run it: a client and a server that spin (RFC 9000, section 17.4), over a
//! path of known delay.

use sonde_bpf::RttSide;
use sonde_results::rtt::{RttKind, SpinVerdict};

use super::differential::disagreements;
use super::net::Net;
use super::subject::user_space;
use super::truth::CLEAN;
use crate::process::Process;

/// In scripts/interop.sh, which installs aioquic and names the Python that has it.
#[test]
fn a_quic_connection_that_spins_is_timed() {
    let test = "a_quic_connection_that_spins_is_timed";
    let Some(python) = std::env::var_os(PYTHON) else {
        let why = format!("{PYTHON} names no Python with aioquic; scripts/interop.sh does");
        sonde_lab::skipped(test, why);
        return;
    };
    let python = python.to_str().unwrap();
    let Some(net) = Net::new(test, CLEAN, CLEAN) else { return };
    let folder = net.file("certificate");
    std::fs::create_dir(&folder).unwrap();
    let mut server = net.hosts.server.command(python);
    server.args([SCRIPT, "server", "10.1.0.2", "4433"]).arg(&folder);
    let mut server = Process::start(server);
    server.until("the QUIC server", |p| p.out().iter().any(|l| l == "serving"));
    let capture = net.capture("quic.pcap");
    let client = [python, SCRIPT, "client", "10.1.0.2", "4433", ROUNDS];
    let out = net.hosts.client.run(&client).unwrap();
    let (_, frames) = capture.stop();
    let own: Vec<u64> = out.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let [least, middle, by_stack] = own[..] else { panic!("{out}") };

    let outcome = user_space(&frames, false);
    let of = |kind| outcome.samples.iter().filter(move |s| s.kind == kind);
    let path = 2 * CLEAN.delay.as_nanos() as u64;
    let handshake: Vec<_> = of(RttKind::QuicHandshake).collect();
    assert_eq!(handshake.len(), 2, "server and client: {handshake:?}");
    assert!(handshake[0].rtt_ns >= path, "{handshake:?}");

    let flow = outcome.flows.iter().find(|f| f.flow.destination_port == 4433).unwrap();
    assert_eq!(flow.spin, SpinVerdict::Spinning);
    assert_eq!(flow.handshake_server_ns, handshake[0].rtt_ns);
    // The monitor is beside the client: the round trips of the server's side are the path's.
    let mut spins: Vec<u64> =
        of(RttKind::QuicSpin).filter(|s| s.flow.source_port == 4433).map(|s| s.rtt_ns).collect();
    spins.sort_unstable();
    assert!(spins.len() > 50, "{}", spins.len());
    println!(
        "{} spins, least {}, middle {}; application: least {least}, middle {middle}; stack's \
         least {by_stack}",
        spins.len(),
        spins[0],
        spins[spins.len() / 2]
    );
    assert!(spins[0] >= path, "shorter than the path: {}", spins[0]);
    // An application's round trip is the path's, the monitor's far side and its own work.
    assert!(spins[spins.len() / 2] <= middle + middle / 20, "{middle}");
    let wrong = disagreements(&frames, false, &[RttSide::Ingress]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const PYTHON: &str = "SONDE_QUIC_PYTHON";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/interop/quic_echo.py");
const ROUNDS: &str = "100";
