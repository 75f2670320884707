//! `sonde lab` as a user runs it, and the device that is a part of the program: the XDP
//! forwarder. Needs root.

use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sonde_lab::device::{BedSpec, CounterKind, DeviceCounter, DeviceReset, DeviceSpec, LabBed};
use sonde_lab::{LabError, skip, skipped};
use sonde_results::trial::Side;

const SONDE: &str = env!("CARGO_BIN_EXE_sonde");

#[test]
fn the_xdp_forwarder_routes_and_counts() {
    if skip("the_xdp_forwarder_routes_and_counts") {
        return;
    }
    for chain in [1, 2] {
        let spec = BedSpec { chain, sonde: Some(SONDE.into()), ..BedSpec::new(DeviceSpec::Xdp) };
        let mut bed = LabBed::build(&spec).unwrap();
        let forwarded = |bed: &LabBed| {
            let all = bed.counters().unwrap();
            all.iter().filter(|c| c.name == "forwarded").map(|c| c.value).collect::<Vec<_>>()
        };
        assert_eq!(forwarded(&bed).len(), usize::from(chain));
        for reset in
            [None, Some(DeviceReset::Software), Some(DeviceReset::Power(Duration::from_millis(1)))]
        {
            if let Some(reset) = reset {
                bed.reset(reset).unwrap();
            }
            let before = forwarded(&bed);
            for (from, v4, v6) in
                [(0, "198.19.0.2", "2001:2:0:8000::2"), (1, "198.18.0.2", "2001:2::2")]
            {
                let port = &bed.info().ports[from];
                for target in [v4, v6] {
                    assert!(pings(&port.netns, target), "{reset:?}: {target} from {}", port.name);
                }
            }
            // Two families, both ways, three questions and answers each.
            for (before, after) in before.iter().zip(forwarded(&bed)) {
                assert!(after >= before + 24, "{reset:?}: {after} after {before}");
            }
        }
    }
    let error = LabBed::build(&BedSpec::new(DeviceSpec::Xdp)).unwrap_err().to_string();
    assert!(error.contains("not given"), "{error}");
}

/// Frames that XDP sends are counted by virtual Ethernet in up to three places: the ledger has
/// each once, and in the column of the one who was too slow.
#[test]
fn what_a_slow_tester_loses_behind_xdp_is_its_own() {
    if skip("what_a_slow_tester_loses_behind_xdp_is_its_own") {
        return;
    }
    const SENT: u64 = 20_000;
    let cpu = std::thread::available_parallelism().unwrap().get() - 1;
    if cpu == 0 {
        skipped("what_a_slow_tester_loses_behind_xdp_is_its_own", "one processor only");
        return;
    }
    let spec = BedSpec {
        tester_cpu: Some(cpu),
        sonde: Some(SONDE.into()),
        ..BedSpec::new(DeviceSpec::Xdp)
    };
    let bed = LabBed::build(&spec).unwrap();
    let [a, b] = [0, 1].map(|n| &bed.info().ports[n].netns);
    assert!(pings(a, "198.19.0.2"));
    let bind = |netns: &str, address: &str| {
        let bound = sonde_lab::Host::of(netns).inside(|| UdpSocket::bind((address, 7)));
        bound.unwrap().unwrap()
    };
    let (near, _far) = (bind(a, "198.18.0.2"), bind(b, "198.19.0.2"));
    let sum = |side: Side| -> u64 {
        let all = bed.counters().unwrap();
        let lost = |c: &&DeviceCounter| c.side == side && c.kind == CounterKind::Dropped;
        all.iter().filter(lost).map(|c| c.value).sum()
    };
    let arrived = || {
        let all = bed.counters().unwrap();
        all.iter().find(|c| c.location == "tester b" && c.name == "rx_packets").unwrap().value
    };
    let before = (arrived(), sum(Side::Tester), sum(Side::Device));
    let hog = ["-f", "1", "taskset", "-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"];
    let mut hog = Command::new("chrt").args(hog).spawn().unwrap();
    let name = format!("/proc/{}/comm", hog.id());
    until("the hog runs", || std::fs::read_to_string(&name).is_ok_and(|c| c == "sh\n"));
    for _ in 0..SENT {
        near.send_to(b"sonde", ("198.19.0.2", 7)).unwrap();
    }
    hog.kill().unwrap();
    hog.wait().unwrap();
    until("each frame has arrived or is in the ledger", || {
        arrived() - before.0 + sum(Side::Tester) - before.1 >= SENT
    });
    let lost = SENT.saturating_sub(arrived() - before.0);
    let ledger = sum(Side::Tester) - before.1;
    println!("lost {lost}, ledger {ledger}");
    assert!(lost > 0, "nothing was lost");
    // Both have a few of the hosts' own packets (neighbour discovery) in them.
    assert!(ledger.abs_diff(lost) <= 10, "lost {lost}, but the ledger has {ledger}");
    assert!(sum(Side::Device) - before.2 <= 10, "{:#?}", bed.counters().unwrap());
}

#[test]
fn a_bed_is_held_listed_tuned_and_removed_by_the_signal() {
    if skip("a_bed_is_held_listed_tuned_and_removed_by_the_signal") {
        return;
    }
    let (mut up, bed) = up(&["router", "--inline", "--json"]);
    let name = bed["name"].as_str().unwrap().to_owned();
    assert_eq!(bed["placement"], "inline");
    let all = json(&["lab", "list", "--json"]);
    assert!(all["beds"].as_array().unwrap().contains(&bed), "{all:#}");
    assert_eq!(all["devices"].as_array().unwrap().len(), DeviceSpec::ALL.len());
    let from_a = bed["ports"][0]["netns"].as_str().unwrap();
    assert!(pings(from_a, "198.19.0.2"));

    let with =
        |rest: &[&str]| json(&[&["lab", "tune"], rest, &["--bed", &name, "--json"]].concat());
    let done = with(&["apply", "threaded-napi", "real-time"]);
    let done = done.as_array().unwrap();
    assert_eq!(done.len(), 4, "two ports, two threads: {done:#?}");
    assert_eq!((&done[0]["former"], &done[0]["value"]), (&"0".into(), &"1".into()));
    assert_eq!((&done[2]["former"], &done[2]["value"]), (&"other 0".into(), &"fifo 2".into()));
    let rows = with(&["list"]);
    let row = rows.as_array().unwrap().iter().find(|r| r["layer"] == "real-time").unwrap();
    assert_eq!(row["applied"], true);
    let undone = with(&["revert"]);
    assert_eq!(undone.as_array().unwrap().len(), 4);
    assert!(pings(from_a, "198.19.0.2"));

    // What is refused says why, and what to do.
    for (line, code, part) in [
        (&["lab", "tune", "apply", "budget", "--bed", &name][..], 3, "--host"),
        (&["lab", "tune", "apply", "gro", "--bed", &name], 3, "already"),
        (&["lab", "tune", "apply", "gro", "--bed", "none"], 2, "no bed 'none'"),
        (&["lab", "tune", "apply", "turbo"], 2, "threaded-napi"),
        (&["lab", "up", "hub"], 2, "choose loop"),
        (&["lab", "up", "router", "--cpu", "4096"], 3, "no processor 4096"),
        (&["lab", "up", "bridge", "--with", "xdp"], 2, "no kernel router"),
    ] {
        let output = Command::new(SONDE).args(line).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{line:?}: {text}");
        assert!(text.contains(part), "{line:?}: {text}");
    }

    signal(&up.0, "-INT");
    assert_eq!(up.0.wait().unwrap().code(), Some(0));
    nothing_left(&name, &[]);
}

#[test]
fn what_a_kill_leaves_is_removed_with_its_processes() {
    if skip("what_a_kill_leaves_is_removed_with_its_processes") {
        return;
    }
    let ovs = BedSpec::new(DeviceSpec::OvsNetdev);
    if let Err(error @ LabError::Missing { .. }) = LabBed::build(&ovs).map(drop) {
        skipped("what_a_kill_leaves_is_removed_with_its_processes", error);
        return;
    }
    let (mut up, bed) = up(&["ovs-netdev", "--json"]);
    let name = bed["name"].as_str().unwrap().to_owned();
    let processes: Vec<u64> = bed["devices"][0]["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p.as_u64().unwrap())
        .collect();
    assert_eq!(processes.len(), 1);
    assert!(std::path::Path::new(&format!("/proc/{}", processes[0])).exists());
    up.0.kill().unwrap();
    up.0.wait().unwrap();
    // Another process's sweep may be first: what counts is that it is gone.
    assert!(Command::new(SONDE).args(["lab", "down"]).output().unwrap().status.success());
    nothing_left(&name, &processes);
}

/// Starts `sonde lab up` and waits for the bed.
/// A bed that is held. It does not outlive its test, however that ends.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            signal(&self.0, "-TERM");
            let _ = self.0.wait();
        }
    }
}

fn up(arguments: &[&str]) -> (Up, Value) {
    let mut command = Command::new(SONDE);
    command.args(["lab", "up"]).args(arguments).stdout(Stdio::piped());
    let mut up = Up(command.spawn().unwrap());
    let mut line = String::new();
    let mut output = BufReader::new(up.0.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let bed = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: '{line}'"));
    (up, bed)
}

fn json(arguments: &[&str]) -> Value {
    let output = Command::new(SONDE).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn nothing_left(bed: &str, processes: &[u64]) {
    let left = || {
        let names = std::fs::read_dir("/var/run/netns").unwrap().flatten();
        let mut left: Vec<String> = names
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|n| n.starts_with(&format!("{bed}.")))
            .collect();
        let paths = processes.iter().map(|p| format!("/proc/{p}"));
        let paths = paths.chain([format!("/run/sonde/{bed}")]);
        left.extend(paths.filter(|p| std::path::Path::new(p).exists()));
        left
    };
    until(&format!("all of {bed} is gone"), || left().is_empty());
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < limit, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn pings(netns: &str, target: &str) -> bool {
    let command = ["netns", "exec", netns, "ping", "-n", "-q", "-c", "3", "-i", "0.01", "-W", "2"];
    let mut ping = Command::new("ip");
    ping.args(command).arg(target).stdout(Stdio::null()).status().unwrap().success()
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}
