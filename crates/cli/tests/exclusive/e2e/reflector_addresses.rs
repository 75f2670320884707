//! The addresses and interfaces at which a reflector answers, also when they change.

use std::net::Ipv6Addr;

use sonde_results::caveat::Caveat;

use super::actors;
use super::net::{Net, SONDE, json_reports};
use crate::process::Process;

const BELOW_IP: [&str; 3] =
    ["--engine af_packet --iface eth0", "--engine af_xdp --iface eth0", "--kernel --iface eth0"];

/// Whether the reflector at `peer` answers one probe of `count`.
fn answered(net: &Net, peer: &str, count: u32) -> u64 {
    let ended = net.probe(&format!("{peer} -i 5ms -c {count} --timeout 1s --json"));
    let run: serde_json::Value = serde_json::from_str(&ended.out)
        .unwrap_or_else(|e| panic!("{peer}: {e}: {}{}", ended.out, ended.err));
    run.pointer("/overall/counters/received").and_then(serde_json::Value::as_u64).unwrap()
}

#[test]
fn a_bound_reflector_answers_only_there() {
    let Some(net) = Net::pair("a_bound_reflector_answers_only_there") else { return };
    net.topology.reflector.add_address("eth0", "10.1.0.9/24").unwrap();
    for arguments in [&[""][..], &BELOW_IP].concat() {
        let reflector = net.reflect(&format!("{arguments} --bind 10.1.0.9"));
        assert_eq!(answered(&net, "10.1.0.9", 10), 10, "{arguments}");
        assert_eq!(answered(&net, "10.1.0.2", 10), 0, "{arguments}");
        reflector.stop();
    }
    // On one interface: the probe's packets come by another.
    let reflector = net.reflect("--iface lo");
    assert_eq!(answered(&net, "10.1.0.2", 10), 0);
    reflector.stop();
    let reflector = net.reflect("--iface eth0");
    assert_eq!(answered(&net, "10.1.0.2", 10), 10);
    reflector.stop();
    for arguments in [&[""][..], &BELOW_IP].concat() {
        let mut command = net.topology.reflector.command(SONDE);
        command.arg("reflect").args(arguments.split_whitespace()).args(["--bind", "10.9.9.9"]);
        let ended = Process::start(command).end();
        assert!([2, 3].contains(&ended.code), "{arguments}: {}", ended.err);
        assert!(
            ended.err.contains("10.9.9.9") && ended.err.contains("ip address"),
            "{}",
            ended.err
        );
    }
}

/// Link-local addresses need an interface, which a reply has from its request.
#[test]
fn link_local_senders_are_answered() {
    let Some(net) = Net::pair("link_local_senders_are_answered") else { return };
    let (near, far) = (&net.topology.probe, &net.topology.reflector);
    for (host, address) in [(near, "fe80::a/64"), (far, "fe80::b/64")] {
        host.run(&["ip", "address", "add", address, "dev", "eth0", "nodad"]).unwrap();
    }
    let index = near.run(&["ip", "-o", "link", "show", "eth0"]).unwrap();
    let index: u32 = index.split(':').next().unwrap().trim().parse().unwrap();
    let peer = format!("[{}%{index}]:862", "fe80::b".parse::<Ipv6Addr>().unwrap());
    for arguments in [&["", "--bind fe80::b%eth0"][..], &BELOW_IP].concat() {
        let reflector = net.reflect(arguments);
        let seen = actors::run(near, &format!("requests [::]:0 {peer}"));
        let seen = (seen["short"], seen["odd"], seen["replayed"]);
        assert_eq!(seen, (30, 256, 100), "{arguments}");
        reflector.stop();
    }
}

/// On veth the kernel drops what XDP sends to a peer that does not poll: nothing is called
/// reflected that has not left, and the reflector finds a way that works.
#[test]
fn a_veth_peer_without_gro_is_noticed() {
    let Some(net) = Net::pair("a_veth_peer_without_gro_is_noticed") else { return };
    for host in [&net.topology.probe, &net.topology.reflector] {
        host.set_feature("eth0", "gro", false).unwrap();
    }
    let mut reflector = net.reflect("--kernel --iface eth0");
    // The first ones are lost, by which it is found out.
    let got = answered(&net, "10.1.0.2", 400);
    reflector.0.until("the notice", |p| p.err().iter().any(|l| l.contains("ethtool -K")));
    let lost = reflector.count("/kernel/dropped_undelivered");
    assert!(lost > 0 && lost == 400 - got, "{lost} of 400, {got} came");
    let before = reflector.count("/reflected");
    assert_eq!(answered(&net, "10.1.0.2", 100), 100);
    reflector.until("/reflected", before + 100);
    assert_eq!(reflector.count("/kernel/dropped_undelivered"), lost);
    reflector.stop();

    // Where the mode was asked for, it ends with the reason.
    let mut command = net.topology.reflector.command(SONDE);
    command.args(["reflect", "--kernel", "--iface", "eth0", "--xdp-mode", "copy"]);
    let mut process = Process::start(json_reports(command));
    process.until("the first report", |p| !p.out().is_empty());
    answered(&net, "10.1.0.2", 400);
    let ended = process.end();
    assert_eq!(ended.code, 3, "{}", ended.err);
    assert!(ended.err.contains("ethtool -K"), "{}", ended.err);
}

/// While the program is attached anew, user space answers: the session has one counter, and what was
/// lost on the way back is not called forward. Nobody duplicated anything.
#[test]
fn a_kernel_reflector_that_changes_its_mode_accuses_no_path() {
    let Some(net) = Net::pair("a_kernel_reflector_that_changes_its_mode_accuses_no_path") else {
        return;
    };
    for host in [&net.topology.probe, &net.topology.reflector] {
        host.set_feature("eth0", "gro", false).unwrap();
    }
    for _ in 0..3 {
        let reflector = net.reflect("--kernel --iface eth0");
        let run = net.measure("10.1.0.2 -i 1ms -c 1500 --timeout 500ms");
        let c = &run.overall.counters;
        assert!(c.lost > 0 && c.received > 0, "{c:?}");
        assert_eq!(c.lost_forward.unwrap_or(0), 0, "{c:?}");
        assert!(!run.caveats.contains(Caveat::RequestsDuplicated), "{c:?}");
        // On a busy host user space still answers when the program already does. Where all its late
        // replies are lost, the numbers go on by more than was sent.
        let jumped = run.caveats.contains(Caveat::ReflectorSequenceJump);
        assert!(!jumped || c.reordered > 0, "{c:?}");
        reflector.stop();
    }
}

/// The interface is removed and made again, under its name, while the reflector runs.
#[test]
fn a_reflector_outlives_its_interface() {
    let Some(net) = Net::pair("a_reflector_outlives_its_interface") else { return };
    let far = &net.topology.reflector;
    for arguments in [&["--iface eth0"][..], &BELOW_IP].concat() {
        let mut reflector = net.reflect(arguments);
        assert_eq!(answered(&net, "10.1.0.2", 10), 10, "{arguments}");
        far.run(&["ip", "link", "del", "eth0"]).unwrap();
        reflector.0.until("the loss", |p| p.err().iter().any(|l| l.contains("eth0 is gone")));
        reflector.until("/port/interface_lost", 1);
        net.make_link_again();
        reflector.until("/port/interface_returned", 1);
        if arguments.contains("--kernel") {
            reflector.0.until("the program", |_| {
                far.run(&["ip", "link", "show", "eth0"]).unwrap().contains("prog/xdp")
            });
        }
        // It may take another moment until addresses and neighbours are known.
        reflector.0.until("replies", |_| answered(&net, "10.1.0.2", 5) == 5);
        reflector.stop();
    }
}
