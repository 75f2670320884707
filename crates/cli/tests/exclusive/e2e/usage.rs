//! What cannot work: exit codes, and messages that name the next step.

use std::os::unix::fs::PermissionsExt as _;

use super::actors;
use super::net::{Net, SONDE};
use crate::process::{Ended, Process};
use crate::turn;

#[test]
fn a_full_disk_costs_the_file_and_not_the_summary() {
    let Some(net) = Net::pair("a_full_disk_costs_the_file_and_not_the_summary") else { return };
    let _reflector = net.reflect("");
    for output in ["--jsonl /dev/full", "--csv /dev/full", "-o /dev/full"] {
        let ended = net.probe(&format!("10.1.0.2 -i 5ms -c 50 {output}"));
        assert_eq!(ended.code, 4, "{output}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains("not saved: ") && ended.err.contains("/dev/full"), "{output}");
        assert!(ended.out.contains("50") && !ended.out.contains("panicked"), "{output}");
    }
}

#[test]
fn without_privilege_the_socket_engine_works_and_af_xdp_says_what_it_needs() {
    let test = "without_privilege_the_socket_engine_works_and_af_xdp_says_what_it_needs";
    let Some(net) = Net::pair(test) else { return };
    let _reflector = net.reflect("");
    // Where everybody may run it.
    let folder = net.file("bin");
    std::fs::create_dir_all(&folder).unwrap();
    for path in [folder.parent().unwrap(), &folder] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let program = folder.join("sonde");
    std::fs::copy(SONDE, &program).unwrap();
    let as_nobody = |arguments: &str| {
        let mut command = net.topology.probe.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command.args(arguments.split_whitespace());
        Process::start(command).end()
    };
    let ended = as_nobody("probe 10.1.0.2 -i 5ms -c 50");
    assert_eq!(ended.code, 0, "{}", ended.err);
    for engine in ["af_xdp", "af_packet"] {
        let ended = as_nobody(&format!("probe 10.1.0.2 -i 5ms -c 50 --engine {engine}"));
        refused(&ended, 3, &["CAP_NET"]);
    }
    refused(&as_nobody("reflect --kernel --iface eth0"), 3, &["CAP_NET"]);
    refused(&as_nobody("reflect"), 3, &["862", "CAP_NET_BIND_SERVICE"]);
    let lab = as_nobody("lab up router");
    refused(&lab, 3, &["need root"]);
    assert_eq!(lab.err.matches("denied").count(), 0, "{}", lab.err);
}

#[test]
fn what_does_not_exist_is_named() {
    let Some(net) = Net::pair("what_does_not_exist_is_named") else { return };
    for engine in ["socket", "af_packet", "af_xdp"] {
        let ended = net.probe(&format!("10.1.0.2 -c 1 --engine {engine} --iface nope0"));
        refused(&ended, 3, &["nope0", "ip link"]);
        let ended = reflect(&net, &format!("--engine {engine} --iface nope0"));
        refused(&ended, 3, &["nope0", "ip link"]);
    }
    refused(&reflect(&net, "--kernel --iface nope0"), 3, &["nope0", "ip link"]);
    refused(&net.probe("192.0.2.1 -c 1"), 3, &["192.0.2.1"]);
    refused(&net.probe("10.1.0.2 -c 1 -S 10.9.9.9"), 3, &["10.9.9.9"]);
}

#[test]
fn a_wrong_targets_file_is_refused_by_line() {
    let Some(net) = Net::pair("a_wrong_targets_file_is_refused_by_line") else { return };
    let file = net.file("targets.toml");
    let text = "interval = \"10ms\"\n[[target]]\nhost = \"10.1.0.2\"\nsizee = 150\n";
    std::fs::write(&file, text).unwrap();
    let ended = net.probe(&format!("--targets {}", file.display()));
    refused(&ended, 2, &["sizee", "4", "targets.toml"]);
}

#[test]
fn a_port_in_use_is_named() {
    let Some(net) = Net::pair("a_port_in_use_is_named") else { return };
    let _reflector = net.reflect("");
    refused(&reflect(&net, ""), 3, &["862", "in use", "ss -ulpn"]);
    let _holder = actors::start(&net.topology.probe, "hold 10.1.0.1:62000");
    for engine in ["socket", "af_packet", "af_xdp"] {
        let what = format!("10.1.0.2 -i 5ms -c 50 --engine {engine}");
        let ended = net.probe(&format!("{what} --source-port 62000"));
        refused(&ended, 3, &["62000", "in use", "ss -ulpn"]);
        // Unless a port is asked for, the next one does as well.
        let run = net.measure(&what);
        assert_eq!(run.streams[0].source.port(), 62_001, "{engine}");
        let ended =
            net.probe(&format!("10.1.0.2 -i 5ms -c 50 --engine {engine} --source-port 63000"));
        assert_eq!(ended.code, 0, "{engine}: {}", ended.err);
    }
}

#[test]
fn a_probe_that_fits_nowhere_is_refused_with_the_greatest_size() {
    let test = "a_probe_that_fits_nowhere_is_refused_with_the_greatest_size";
    let Some(net) = Net::pair(test) else { return };
    let _reflector = net.reflect("");
    for engine in ["socket", "af_packet", "af_xdp"] {
        for size in [1501, 9008, 9014, 65535] {
            let ended = net.probe(&format!("10.1.0.2 -c 3 -i 5ms -s {size} --engine {engine}"));
            refused(&ended, 2, &["-s 1500", "--fragment", "eth0"]);
        }
        let run = net.measure(&format!("10.1.0.2 -c 3 -i 5ms -s 1500 --engine {engine}"));
        assert_eq!(run.overall.counters.received, 3, "{engine}");
    }
    refused(
        &net.probe("10.1.0.2 -c 3 -s 3000 --fragment --engine af_xdp"),
        2,
        &["--engine socket"],
    );
    let run = net.measure("10.1.0.2 -c 3 -i 5ms -s 20000 --fragment");
    assert_eq!((run.overall.counters.received, run.streams[0].ip_length), (3, 20_000));
}

#[test]
fn icmp_errors_are_named() {
    let Some(net) = Net::pair("icmp_errors_are_named") else { return };
    // One error a second for each peer would be all that the third engine may get.
    net.topology.reflector.sysctl(&["net.ipv4.icmp_ratelimit=0"]).unwrap();
    for engine in ["socket", "af_packet", "af_xdp"] {
        let ended = net.probe(&format!(
            "10.1.0.2 -i 20ms -c 20 --timeout 300ms --per-packet --engine {engine}"
        ));
        assert_eq!(ended.code, 1, "{engine}: {}", ended.err);
        let message =
            "10.1.0.2:862: the port is closed, says 10.1.0.2; start 'sonde reflect' there";
        assert!(ended.err.contains(message), "{engine}: {}", ended.err);
        assert!(ended.out.contains("(the port is closed)"), "{engine}: {}", ended.out);
        assert!(ended.out.contains("20 sent, 0 received, 20 lost"), "{engine}: {}", ended.out);
    }
    let ended = net.probe("10.1.0.99 -i 200ms -c 30 --timeout 300ms -q");
    assert!(ended.out.contains("no such neighbour, says this host"), "{}", ended.out);
}

#[test]
fn a_link_local_address_takes_a_scope() {
    let Some(net) = Net::pair("a_link_local_address_takes_a_scope") else { return };
    let _reflector = net.reflect("");
    let output = net.topology.reflector.command("ip").args(["-6", "-o", "addr"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let address = text
        .split_whitespace()
        .find_map(|word| word.strip_suffix("/64").filter(|a| a.starts_with("fe80::")))
        .unwrap_or_else(|| panic!("no link-local address: {text}"));
    for engine in ["socket", "af_packet"] {
        let run = net.measure(&format!("{address}%eth0 -i 20ms -c 20 --engine {engine}"));
        assert_eq!(run.overall.counters.received, 20, "{engine}");
    }
    refused(&net.probe(&format!("{address} -c 1")), 3, &["link-local", "%eth0"]);
}

#[test]
fn one_bad_target_does_not_stop_the_others() {
    let Some(net) = Net::pair("one_bad_target_does_not_stop_the_others") else { return };
    let _reflector = net.reflect("");
    let file = net.file("targets.txt");
    std::fs::write(&file, "no-such-host.invalid\n10.1.0.2\n192.0.2.1\n").unwrap();
    let ended = net.probe(&format!("--targets {} -i 5ms -c 20", file.display()));
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.out.contains("20 sent, 20 received"), "{}", ended.out);
    for name in ["no-such-host.invalid", "192.0.2.1"] {
        assert!(ended.err.contains(&format!("not measured: {name}: ")), "{}", ended.err);
    }
}

#[test]
fn memory_that_cannot_be_had_is_an_error_with_advice() {
    let _turn = turn::shared();
    let capture = std::env::temp_dir().join(format!("sonde-memory-{}.pcap", std::process::id()));
    let mut command = std::process::Command::new(SONDE);
    command.args(["gen", "flows", "--packets", "10", "--out"]).arg(&capture);
    assert_eq!(Process::start(command).end().code, 0);
    let mut command = std::process::Command::new("sh");
    let line = format!("ulimit -v 4000000; exec {SONDE} flow {} --flows 60M", capture.display());
    command.args(["-c", &line]);
    let ended = Process::start(command).end();
    std::fs::remove_file(&capture).unwrap();
    refused(&ended, 3, &["MiB of memory", "--flows"]);
}

#[test]
fn a_link_that_goes_away_is_one_event() {
    let Some(net) = Net::pair("a_link_that_goes_away_is_one_event") else { return };
    let _reflector = net.reflect("");
    let mut probe = net.start(
        "10.1.0.2-10.1.0.200 --engine af_packet -i 100ms --timeout 100ms --record-interval 100ms",
    );
    probe.until("counts", |p| p.out().iter().any(|l| l.contains("sent ")));
    let before = probe.err().len();
    net.topology.probe.set_up("eth0", false).unwrap();
    probe.until("the notice", |p| p.err().len() > before);
    net.topology.probe.set_up("eth0", true).unwrap();
    let so_far = probe.out().len();
    probe.until("more counts", |p| p.out().len() > so_far + 20);
    probe.signal("INT");
    let ended = probe.end();
    let lines = ended.err.lines().count();
    assert!(lines < 60, "{lines} lines: {}", ended.err);
}

fn reflect(net: &Net, arguments: &str) -> Ended {
    let mut command = net.topology.reflector.command(SONDE);
    command.arg("reflect").args(arguments.split_whitespace());
    Process::start(command).end()
}

/// Ended with `code` and one line of reason that contains all of `parts`.
#[track_caller]
fn refused(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code, code, "{}{}", ended.out, ended.err);
    assert!(ended.err.starts_with("sonde: "), "{}", ended.err);
    for part in parts {
        assert!(ended.err.contains(part), "'{part}' is missing: {}", ended.err);
    }
}
