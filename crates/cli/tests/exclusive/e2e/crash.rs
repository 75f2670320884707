//! Nothing is left behind, whatever the end; and other people's traffic passes.

use sonde_lab::Host;

use super::actors;
use super::net::{Net, SONDE, json_reports};
use crate::process::{Process, until};

#[test]
fn a_killed_af_xdp_probe_leaves_no_program() {
    let Some(net) = Net::pair("a_killed_af_xdp_probe_leaves_no_program") else { return };
    let (probe, far) = (&net.topology.probe, &net.topology.reflector);
    let mut reflector = net.reflect("");
    let _echo = actors::start(far, "echo [::]:7");
    assert!(!has_program(probe));
    for signal in ["KILL", "TERM", "INT"] {
        let process = net.start("10.1.0.2 --engine af_xdp -i 1ms --timeout 200ms");
        let before = reflector.count("/reflected");
        // A report may still count what the probe before sent.
        until("the program to come", || has_program(probe));
        reflector.until("/reflected", before + 100);
        assert_passes(probe, "while the probe runs");
        process.signal(signal);
        let code = process.end().code;
        assert_eq!(code, if signal == "KILL" { 128 + 9 } else { 0 }, "{signal}");
        until("the program to go", || !has_program(probe));
        assert_passes(probe, "after the probe");
    }
    // And the next one can begin.
    super::net::assert_clean(
        &net.measure("10.1.0.2 --engine af_xdp -i 1ms -c 100"),
        1,
        100,
        "next",
    );
}

#[test]
fn a_killed_kernel_reflector_leaves_no_program() {
    let Some(net) = Net::pair("a_killed_kernel_reflector_leaves_no_program") else { return };
    let (probe, far) = (&net.topology.probe, &net.topology.reflector);
    let _echo = actors::start(far, "echo [::]:7");
    assert!(!has_program(far));
    for signal in ["KILL", "TERM", "INT"] {
        let mut command = far.command(SONDE);
        command.args(["reflect", "--kernel", "--iface", "eth0"]);
        let mut reflector = Process::start(json_reports(command));
        reflector.until("the first report", |p| !p.out().is_empty());
        assert!(has_program(far));
        let run = net.measure("10.1.0.2 --engine af_xdp -i 1ms -c 100");
        super::net::assert_clean(&run, 1, 100, signal);
        assert_passes(probe, "while the reflector runs");
        reflector.signal(signal);
        let code = reflector.end().code;
        assert_eq!(code, if signal == "KILL" { 128 + 9 } else { 0 }, "{signal}");
        until("the program to go", || !has_program(far));
        assert_passes(probe, "after the reflector");
    }
}

/// Whether an XDP program is attached to the host's interface.
fn has_program(host: &Host) -> bool {
    let links = host.run(&["ip", "-j", "link", "show", "dev", "eth0"]).unwrap();
    let links: serde_json::Value = serde_json::from_str(&links).unwrap();
    assert_eq!(links[0]["ifname"], "eth0");
    links[0].get("xdp").is_some()
}

/// Ordinary traffic on the same link.
fn assert_passes(probe: &Host, when: &str) {
    for part in ["ask 10.1.0.1:0 10.1.0.2:7 50", "ask [fd00:1::1]:0 [fd00:1::2]:7 50"] {
        assert_eq!(actors::run(probe, part)["answered"], 50, "{when}: {part}");
    }
}
