//! What cannot work: exit codes, and messages that name the next step.

use std::os::unix::fs::PermissionsExt as _;

use crate::actors;
use crate::net::{Net, SONDE};
use crate::process::{Ended, Process};

#[test]
fn a_full_disk_costs_the_file_and_not_the_numbers() {
    let Some(net) = Net::pair("a_full_disk_costs_the_file_and_not_the_numbers") else { return };
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
    for place in [folder.parent().unwrap(), &folder] {
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
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
}

#[test]
fn what_does_not_exist_is_named() {
    let Some(net) = Net::pair("what_does_not_exist_is_named") else { return };
    for engine in ["socket", "af_packet", "af_xdp"] {
        let ended = net.probe(&format!("10.1.0.2 -c 1 --engine {engine} --iface nope0"));
        refused(&ended, 3, &["nope0", "eth0"]);
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
        let ended = net.probe(&format!("10.1.0.2 -c 1 --engine {engine}"));
        refused(&ended, 3, &["62000", "in use", "ss -ulpn"]);
        let ended =
            net.probe(&format!("10.1.0.2 -i 5ms -c 50 --engine {engine} --source-port 63000"));
        assert_eq!(ended.code, 0, "{engine}: {}", ended.err);
    }
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
