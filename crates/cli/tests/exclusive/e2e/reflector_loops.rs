//! Two that answer whatever comes are not to be set against each other by one datagram with a
//! forged source.

use std::time::{Duration, Instant};

use sonde_port::{Engine, Filter, OpenSpec};
use sonde_wire::build;
use sonde_wire::stamp::BASE_LEN;

use super::actors;
use super::net::{Net, Reflector, SONDE, json_reports};
use crate::process::Process;

const REFLECTORS: [&str; 4] = [
    "",
    "--engine af_packet --iface eth0",
    "--engine af_xdp --iface eth0",
    "--kernel --iface eth0",
];

/// A request to the reflector that says it comes from `source`, out of the probe's interface.
fn spoof(net: &Net, source: &str) {
    let mac = |host: &sonde_lab::Host| -> Vec<u8> {
        let line = host.run(&["ip", "-br", "link", "show", "eth0"]).unwrap();
        let octets = line.split_whitespace().nth(2).unwrap().split(':');
        octets.map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect()
    };
    // A reflector below IP turns the link's addresses round, too.
    let (far, near) = (mac(&net.topology.reflector), mac(&net.topology.probe));
    let source = source.parse().unwrap();
    net.topology
        .probe
        .inside(move || {
            let filter = Filter { local_ports: vec![61_999], ..Filter::default() };
            let mut port =
                sonde_port::open(Engine::AfPacket, &OpenSpec::new(Some("eth0".into()), filter))
                    .unwrap();
            let mut free = port.tx();
            let frame = free.slot().unwrap();
            frame[..6].copy_from_slice(&far);
            frame[6..12].copy_from_slice(&near);
            frame[12..14].copy_from_slice(&[8, 0]);
            let to = "10.1.0.2:862".parse().unwrap();
            let headers =
                build::emit_udp_ip(&mut frame[14..], source, to, 0, 64, BASE_LEN).unwrap();
            frame[14 + headers..14 + headers + BASE_LEN].fill(0);
            free.commit(14 + headers + BASE_LEN, 0);
            port.flush().unwrap();
        })
        .unwrap();
}

/// Replies so far, once none has come for a while; more than `most` is for ever.
fn settled(reflector: &mut Reflector, most: u64) -> u64 {
    reflector.until("/reflected", 1);
    let end = Instant::now() + Duration::from_secs(20);
    let mut last = (reflector.count("/reflected"), reflector.0.out().len());
    while Instant::now() < end && last.0 <= most {
        // Five reports, a tenth of a second each.
        reflector.0.until("reports", |p| p.out().len() >= last.1 + 5);
        let now = (reflector.count("/reflected"), reflector.0.out().len());
        if now.0 == last.0 {
            return now.0;
        }
        last = now;
    }
    panic!("it goes on: {}", reflector.report());
}

#[test]
fn one_spoofed_datagram_between_two_reflectors_ends() {
    let Some(net) = Net::pair("one_spoofed_datagram_between_two_reflectors_ends") else { return };
    for arguments in REFLECTORS {
        let mut there = net.reflect(arguments);
        let mut command = net.topology.probe.command(SONDE);
        command.arg("reflect").args(arguments.split_whitespace());
        let mut process = Process::start(json_reports(command));
        process.until("the first report", |p| !p.out().is_empty());
        let here = Reflector(process);
        spoof(&net, "10.1.0.1:862");
        assert_eq!(settled(&mut there, 1), 1, "{arguments}");
        let mut here = here;
        here.until("/user/dropped_reply", 1);
        here.stop();
        there.stop();
    }
}

#[test]
fn one_spoofed_datagram_between_a_reflector_and_an_echo_server_ends() {
    let test = "one_spoofed_datagram_between_a_reflector_and_an_echo_server_ends";
    let Some(net) = Net::pair(test) else { return };
    let _echo = actors::start(&net.topology.probe, "echo 10.1.0.1:7007");
    for arguments in REFLECTORS {
        let mut there = net.reflect(arguments);
        spoof(&net, "10.1.0.1:7007");
        assert_eq!(settled(&mut there, 1), 1, "{arguments}");
        there.until("/user/dropped_reply", 1);
        // The echo service itself is not answered at all.
        spoof(&net, "10.1.0.1:7");
        there.until("/user/dropped_service_port", 1);
        assert_eq!(there.count("/reflected"), 1, "{arguments}");
        there.stop();
    }
}
