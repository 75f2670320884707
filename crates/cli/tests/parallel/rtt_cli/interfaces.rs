//! Interfaces: in the kernel and by a packet ring, until the run ends.

use std::net::UdpSocket;

use serde_json::Value;
use sonde_lab::{LinkOptions, Topology};
use sonde_results::RttRun;

use super::support::{Temporary, has_xdp, lines, pair, ping, talk, watch};
use crate::process;

#[test]
fn an_interface_is_measured_until_interrupted() {
    let Some(net) = pair("an_interface_is_measured_until_interrupted") else { return };
    let run = watch(&net.probe, "eth0 --format jsonl --sample-limit none -i 200ms");
    ping(&net.probe, 20);
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let samples = lines(&ended.out, "sample");
    let echoes = samples.iter().filter(|s| s["kind"] == "icmp_echo").count();
    assert_eq!(echoes, 20, "{}", ended.out);
    assert!(samples.iter().all(|s| s["flow"]["source"] == "10.1.0.2"), "{}", ended.out);
    let grouped: u64 =
        lines(&ended.out, "group").iter().map(|g| g["clean"]["count"].as_u64().unwrap()).sum();
    assert_eq!(grouped, 20);
    let flows = lines(&ended.out, "flow");
    assert_eq!((flows.len(), &flows[0]["reason"]), (1, &"stopped".into()));
    assert_eq!(flows[0]["forward"]["samples"], 20);
    let how = lines(&ended.out, "run")[0]["points"][0]["how"].as_str().unwrap().to_string();
    assert!(how.contains("tcx") || how.contains("clsact"), "{how}");
}

#[test]
fn an_interface_that_returns_is_watched_again() {
    for engine in ["", "--engine af_packet"] {
        let Some(mut net) = pair("an_interface_that_returns_is_watched_again") else { return };
        let file = Temporary::new("returned.json");
        let mut run =
            watch(&net.probe, &format!("eth0 {engine} --format jsonl -o {}", file.path()));
        net.probe.run(&["ip", "link", "del", "eth0"]).unwrap();
        run.until("the loss to be reported", |p| {
            p.err().iter().any(|l| l.contains("has vanished"))
        });
        net.lab.link(&net.probe, "eth0", &net.reflector, "eth0", &LinkOptions::default()).unwrap();
        run.until("the return", |p| p.err().iter().any(|l| l.contains("is watched again")));
        net.probe.add_address("eth0", "10.1.0.1/24").unwrap();
        net.reflector.add_address("eth0", "10.1.0.2/24").unwrap();
        ping(&net.probe, 10);
        // It stays attached to one that is down for a while.
        net.probe.run(&["ip", "link", "set", "eth0", "down"]).unwrap();
        run.until("the gap", |p| p.err().iter().any(|l| l.contains("is down or has no carrier")));
        net.probe.run(&["ip", "link", "set", "eth0", "up"]).unwrap();
        run.until("its end", |p| p.err().iter().any(|l| l.contains("eth0 is up again")));
        ping(&net.probe, 10);
        run.signal("INT");
        let ended = run.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(!ended.err.contains("promiscuous"), "{}", ended.err);
        let run: RttRun = serde_json::from_slice(&std::fs::read(&file.0).unwrap()).unwrap();
        assert_eq!(run.points[0].vanished, 2);
        assert!(run.caveats.contains(sonde_results::Caveat::InterfaceVanished));
        assert_eq!(run.groups.iter().map(|g| g.clean.count).sum::<u64>(), 20);
    }
}

#[test]
fn the_kernels_program_and_a_packet_ring_find_the_same() {
    let Some(net) = pair("the_kernels_program_and_a_packet_ring_find_the_same") else { return };
    let line = "eth0 --format jsonl --sample-limit none --seed 1 -i 200ms";
    let runs = ["", " --engine af_packet"].map(|e| watch(&net.probe, &format!("{line}{e}")));
    ping(&net.probe, 20);
    for _ in 0..3 {
        talk(&net.probe, &net.reflector, "10.1.0.2");
    }
    let [kernel, ring] = runs.map(|run| {
        run.signal("INT");
        let ended = run.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        ended.out
    });
    let counter = |out: &str, name: &str| {
        let coverage = lines(out, "coverage");
        coverage.last().unwrap()["counters"][name].as_u64().unwrap_or(0)
    };
    let lost = counter(&ring, "packets_lost") + counter(&kernel, "contended");
    let flows = |out: &str| -> Vec<(String, String, u64, u64)> {
        let packets = |flow: &Value, way: &str| flow[way]["packets"].as_u64().unwrap();
        let mut all: Vec<_> = lines(out, "flow")
            .iter()
            // Neighbour discovery and the like may fall between the two starts.
            .filter(|f| f["flow"]["source"].as_str().unwrap().starts_with("10.1."))
            .map(|f| {
                let (forward, backward) = (packets(f, "forward"), packets(f, "backward"));
                (f["flow"].to_string(), f["reason"].to_string(), forward, backward)
            })
            .collect();
        all.sort();
        all
    };
    let (by_kernel, by_ring) = (flows(&kernel), flows(&ring));
    assert_eq!(by_ring.len(), 4, "{ring}");
    let echo = by_ring.iter().find(|f| f.0.contains("\"protocol\":1,")).unwrap();
    assert_eq!((echo.2, echo.3), (20, 20), "each way once");
    let names = |flows: &[(String, String, u64, u64)]| -> Vec<(String, String)> {
        flows.iter().map(|f| (f.0.clone(), f.1.clone())).collect()
    };
    assert_eq!(names(&by_kernel), names(&by_ring));
    for (a, b) in by_kernel.iter().zip(&by_ring) {
        let differ = a.2.abs_diff(b.2) + a.3.abs_diff(b.3);
        assert!(differ <= lost, "{a:?} {b:?}, lost {lost}");
    }

    let (by_kernel, by_ring) = (lines(&kernel, "sample"), lines(&ring, "sample"));
    println!("{} and {} samples, lost {lost}", by_kernel.len(), by_ring.len());
    assert!(by_ring.len() > 100, "{}", by_ring.len());
    assert!(by_kernel.len().abs_diff(by_ring.len()) as u64 <= lost);
    let integer = |sample: &Value, key: &str| sample[key].as_i64().unwrap();
    let mut differences: Vec<i64> = by_ring
        .iter()
        .map(|ours| {
            let same = |s: &&Value| s["flow"] == ours["flow"] && s["kind"] == ours["kind"];
            let theirs = by_kernel
                .iter()
                .filter(same)
                .min_by_key(|s| integer(s, "at_ns").abs_diff(integer(ours, "at_ns")))
                .unwrap();
            integer(ours, "rtt_ns") - integer(theirs, "rtt_ns")
        })
        .map(i64::abs)
        .collect();
    differences.sort_unstable();
    let median = differences[differences.len() / 2];
    let mut round_trips: Vec<i64> = by_ring.iter().map(|s| integer(s, "rtt_ns")).collect();
    round_trips.sort_unstable();
    let round_trip = round_trips[round_trips.len() / 2];
    println!("median difference {median} ns of {round_trip} ns");
    // Two clocks' readings within one host: a part of what is measured.
    assert!(median * 2 < round_trip, "{median} ns of {round_trip} ns");
}

#[test]
fn packets_that_pass_while_the_ring_is_full_are_counted() {
    let Some(net) = pair("packets_that_pass_while_the_ring_is_full_are_counted") else { return };
    let run = watch(&net.probe, "eth0 --engine af_packet --format jsonl");
    run.signal("STOP");
    let sender = net.probe.inside(|| UdpSocket::bind("10.1.0.1:0").unwrap()).unwrap();
    let receiver = net.reflector.inside(|| UdpSocket::bind("10.1.0.2:0").unwrap()).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    // Twice what a ring of 16 MB holds.
    let sent = 120_000;
    (0..sent).for_each(|_| assert_eq!(sender.send(&[0; 300]).unwrap(), 300));
    run.signal("CONT");
    ping(&net.probe, 5);
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let coverage = lines(&ended.out, "coverage").pop().unwrap();
    let counter = |name: &str| coverage["counters"][name].as_u64().unwrap();
    let (seen, lost) = (counter("packets"), counter("packets_lost"));
    assert!(lost > 0 && seen > 0 && seen + lost >= sent, "{seen} and {lost}");
    assert!(seen + lost < sent + 100, "{seen} and {lost}");
    assert!(coverage["caveats"].to_string().contains("own_drops"), "{coverage}");
    assert!(ended.err.contains("packets that passed while the ring was full"), "{}", ended.err);
}

#[test]
fn on_the_loopback_no_packet_is_its_own_retransmission() {
    let Some(net) = pair("on_the_loopback_no_packet_is_its_own_retransmission") else { return };
    net.probe.set_up("lo", true).unwrap();
    for engine in ["", "--engine af_packet"] {
        let run = watch(&net.probe, &format!("lo {engine} --format jsonl"));
        talk(&net.probe, &net.probe, "127.0.0.1");
        run.signal("INT");
        let ended = run.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        let flows = lines(&ended.out, "flow");
        assert_eq!(flows.len(), 1, "{}", ended.out);
        for way in ["forward", "backward"] {
            assert_eq!(flows[0][way]["retransmitted"], 0, "{engine}: {}", ended.out);
        }
        assert!(flows[0]["forward"]["samples"].as_u64().unwrap() > 10, "{}", ended.out);
    }
}

#[test]
fn several_interfaces_are_read_in_turn() {
    let test = "several_interfaces_are_read_in_turn";
    if sonde_lab::skip(test) {
        return;
    }
    let net = Topology::three_hosts("rttcli", &LinkOptions::default()).unwrap();
    let line = "eth0 eth1 --engine af_packet --format jsonl --sample-limit none";
    let run = watch(net.router.as_ref().unwrap(), line);
    net.probe.run(&["ping", "-q", "-c", "10", "-i", "0.02", "-W", "5", "10.3.0.1"]).unwrap();
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let mut samples = lines(&ended.out, "sample");
    samples.retain(|s| s["kind"] == "icmp_echo");
    let at = |point: u8| -> Vec<u64> {
        let of_point = samples.iter().filter(|s| s["flow"]["point"] == point);
        of_point.map(|s| s["rtt_ns"].as_u64().unwrap()).collect()
    };
    let (near, far) = (at(0), at(1));
    assert_eq!((near.len(), far.len()), (10, 10), "{}", ended.out);
    assert!(near.iter().zip(&far).all(|(near, far)| near > far), "{near:?} {far:?}");
}

#[test]
fn nothing_stays_attached_however_it_ends() {
    let Some(net) = pair("nothing_stays_attached_however_it_ends") else { return };
    for signal in ["KILL", "TERM", "INT"] {
        let run = watch(&net.probe, "eth0 --hook xdp --format jsonl");
        assert!(has_xdp(&net.probe));
        ping(&net.probe, 3);
        run.signal(signal);
        let code = run.end().code;
        assert_eq!(code, if signal == "KILL" { 128 + 9 } else { 0 }, "{signal}");
        process::until("the program to go", || !has_xdp(&net.probe));
        ping(&net.probe, 1);
    }
}

#[test]
fn a_duration_ends_a_run_and_silence_is_exit_code_1() {
    let Some(net) = pair("a_duration_ends_a_run_and_silence_is_exit_code_1") else { return };
    let run = watch(&net.probe, "eth0 --format jsonl --port 9 -w 300ms");
    let ended = run.end();
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("seen: "), "{}", ended.err);
    assert!(ended.err.starts_with("sonde: measuring on eth0\n"), "{}", ended.err);
}
