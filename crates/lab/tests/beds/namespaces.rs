//! Labs on the real kernel: built, used and removed. Needs root.

use sonde_lab::{AddressFamily, Host, Lab, LinkOptions, ROUTER_REFLECTOR_SIDE, Topology, skip};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn every_target_answers_across_the_router() {
    if skip("every_target_answers_across_the_router") {
        return;
    }
    let net = Topology::three_hosts("t-router", &LinkOptions::default()).unwrap();
    for family in [AddressFamily::V4, AddressFamily::V6] {
        for target in [net.targets(family, 1)[0], net.targets(family, 4000)[3999]] {
            assert_answers(&net.probe, &target.to_string());
        }
    }
    // Proof that the router is what they crossed: without it nothing passes.
    net.router.as_ref().unwrap().set_up(ROUTER_REFLECTOR_SIDE, false).unwrap();
    assert!(!answers(&net.probe, "10.2.0.1"));
}

#[test]
fn a_pair_has_the_queues_mtu_and_macs_asked_for() {
    if skip("a_pair_has_the_queues_mtu_and_macs_asked_for") {
        return;
    }
    let options = LinkOptions { queues: 2, mtu: 3000, gro: true };
    let mut net = Topology::pair("t-pair", &options).unwrap();
    assert_answers(&net.probe, &net.targets(AddressFamily::V4, 1)[0].to_string());
    assert_answers(&net.probe, &net.targets(AddressFamily::V6, 1)[0].to_string());

    let link = net.probe.run(&["ip", "-d", "link", "show", "eth0"]).unwrap();
    for part in ["mtu 3000", "numrxqueues 2", "numtxqueues 2", "02:00:00:00:01:01"] {
        assert!(link.contains(part), "no '{part}' in {link}");
    }
    let features = net.reflector.run(&["ethtool", "-k", "eth0"]).unwrap();
    assert!(features.contains("generic-receive-offload: on"), "{features}");

    let (probe, extra) = (net.probe.clone(), net.lab.host("extra").unwrap());
    let (_, far) = net.lab.link(&probe, "eth1", &extra, "eth0", &LinkOptions::default()).unwrap();
    assert_eq!(far, [2, 0, 0, 0, 2, 2]);
    let link = extra.run(&["ip", "link", "show", "eth0"]).unwrap();
    assert!(link.contains("02:00:00:00:02:02"), "{link}");
}

#[test]
fn settings_reach_the_kernel() {
    if skip("settings_reach_the_kernel") {
        return;
    }
    let net =
        Topology::pair("t-set", &LinkOptions { queues: 2, ..LinkOptions::default() }).unwrap();
    let probe = &net.probe;
    probe.steer("eth0", 1).unwrap();
    for queue in ["rx-0", "rx-1"] {
        let file = format!("/sys/class/net/eth0/queues/{queue}/rps_cpus");
        let mask = probe.run(&["cat", &file]).unwrap();
        assert_eq!(u64::from_str_radix(mask.trim(), 16), Ok(2), "{mask}");
    }
    probe.set_neighbour("eth0", "10.1.0.9", "02:00:00:00:00:99").unwrap();
    let neighbours = probe.run(&["ip", "neigh", "show", "10.1.0.9"]).unwrap();
    assert!(neighbours.contains("02:00:00:00:00:99 PERMANENT"), "{neighbours}");

    let error = probe.run(&["ip", "link", "show", "eth7"]).unwrap_err().to_string();
    assert!(error.contains("ip link show eth7") && error.contains("eth7"), "{error}");
}

#[test]
fn a_panic_removes_the_namespaces_and_ends_their_processes() {
    if skip("a_panic_removes_the_namespaces_and_ends_their_processes") {
        return;
    }
    let mut seen = None;
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let net = Topology::pair("t-panic", &LinkOptions::default()).unwrap();
        let sleeper = net.probe.command("sleep").arg("600").spawn().unwrap();
        wait_until("the sleeper is inside", || pids_in(&net.probe).contains(&sleeper.id()));
        assert!(exists(net.probe.name()));
        seen = Some((net.probe.name().to_owned(), sleeper));
        panic!("as a failing test does");
    }));
    assert!(result.is_err());
    let (name, mut sleeper) = seen.unwrap();
    assert!(!exists(&name), "{name} is left");
    let status = sleeper.wait().unwrap();
    assert!(!status.success(), "the sleeper was not killed");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "plays a part of the test in a process of its own")]
fn a_sweep_removes_what_a_killed_process_left_and_nothing_else() {
    if skip("a_sweep_removes_what_a_killed_process_left_and_nothing_else") {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "namespaces::build_a_lab_and_wait", "--ignored", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let name = lines.find_map(|l| l.strip_prefix("built ").map(str::to_owned)).unwrap();
    assert!(!Lab::sweep().contains(&name), "swept under a living process");
    assert!(exists(&name));

    child.kill().unwrap();
    child.wait().unwrap();
    let mut mine = Lab::new("t-sweep").unwrap();
    let kept = mine.host("kept").unwrap();
    // Another process's sweep may be first: what counts is that it is gone.
    Lab::sweep();
    assert!(!exists(&name), "{name} is left");
    assert!(exists(kept.name()), "a living process's namespace is gone");
}

/// Run by the test above in a process of its own, to be killed.
#[test]
#[ignore = "a part of another test"]
#[expect(clippy::disallowed_methods, reason = "plays a part of the test in a process of its own")]
fn build_a_lab_and_wait() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut lab = Lab::new("t-killed").unwrap();
    let host = lab.host("left").unwrap();
    println!("\nbuilt {}", host.name());
    // Until killed; or until the parent is gone, which closes the pipe.
    let _ = std::io::stdin().lock().lines().next();
}

const CHILD: &str = "SONDE_LAB_TEST_CHILD";

fn exists(name: &str) -> bool {
    std::path::Path::new("/var/run/netns").join(name).exists()
}

fn pids_in(host: &Host) -> Vec<u32> {
    let output = Command::new("ip").args(["netns", "pids", host.name()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < limit, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the address refuses a TCP connection, which only its owner can do: a
/// packet got there and another came back.
fn answers(from: &Host, address: &str) -> bool {
    let connect = format!("exec 3<>/dev/tcp/{address}/9");
    match from.run(&["env", "LC_ALL=C", "timeout", "2", "bash", "-c", &connect]) {
        Ok(_) => panic!("{address}: a connection to a port that nobody listens on"),
        Err(error) => error.to_string().contains("Connection refused"),
    }
}

fn assert_answers(from: &Host, address: &str) {
    wait_until(&format!("{address} answers"), || answers(from, address));
}
