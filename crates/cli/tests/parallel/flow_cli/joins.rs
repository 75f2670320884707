//! A query on one port of a tap and its answer on the other, or with a VLAN on one way only.

use std::net::UdpSocket;

use sonde_lab::LinkOptions;

use super::support::{Folder, flow, meter, pair, records};

fn capture(name: &str) -> String {
    format!("{}/../../tests/golden/joins/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn both_directions_of_a_tap_are_one_biflow() {
    let file = capture("tap_two_ports.pcapng");
    let flows = |options: &str| records(&flow(&format!("{file} -q --jsonl - {options}")).out);
    assert_eq!(flows("").len(), 2);
    for join in ["--join all", "--join 0,1", "--join all --workers 2"] {
        let one = flows(&format!("--fields apps {join}"));
        assert_eq!(one.len(), 1, "{join}");
        assert_eq!((one[0].forward.packets, one[0].reverse.packets), (1, 1), "{join}");
        assert_eq!(one[0].key.point, 0);
        let app = serde_json::to_value(one[0].extra.as_ref().unwrap().app.as_ref()).unwrap();
        assert_eq!((&app["answers"], app["latency_ns"].as_u64().is_some()), (&1.into(), true));
    }
    assert_eq!(flows("--join all --uniflow").len(), 2, "directions are flows still");
    let wrong = flow(&format!("{file} -q --join eth0,eth1"));
    assert_eq!((wrong.code, wrong.err.contains("have numbers")), (2, true), "{}", wrong.err);
}

#[test]
fn a_vlan_on_one_way_only_is_left_out_of_the_key() {
    let file = capture("dns_vlan_asym.pcap");
    let flows = |options: &str| records(&flow(&format!("{file} -q --jsonl - {options}")).out);
    assert_eq!(flows("").len(), 2);
    let one = flows("--no-vlan-in-key");
    assert_eq!((one.len(), one[0].key.vlan), (1, 0));
    assert_eq!((one[0].forward.packets, one[0].reverse.packets), (1, 1));
}

/// Each interface carries one direction and has a ring of its own; whichever is read first, who
/// asked is the source.
#[test]
fn who_asks_by_one_interface_and_is_answered_by_another_is_the_source() {
    let name = "who_asks_by_one_interface_and_is_answered_by_another_is_the_source";
    let Some(mut net) = pair(name) else { return };
    net.lab.link(&net.probe, "eth1", &net.reflector, "eth1", &LinkOptions::default()).unwrap();
    for host in [&net.probe, &net.reflector] {
        for name in ["all", "eth0", "eth1"] {
            host.sysctl(&[&format!("net.ipv4.conf.{name}.rp_filter=0")]).unwrap();
        }
    }
    net.probe.add_address("eth1", "10.2.0.1/24").unwrap();
    net.reflector.add_address("eth1", "10.2.0.2/24").unwrap();
    let back = ["ip", "route", "add", "10.1.0.1/32", "via", "10.2.0.1", "dev", "eth1"];
    net.reflector.run(&back).unwrap();
    let far = net.reflector.inside(|| UdpSocket::bind("10.1.0.2:7000").unwrap()).unwrap();
    for options in ["", "--workers 2"] {
        let folder = Folder::new();
        let file = folder.file("a.jsonl");
        let line = format!("eth1 eth0 --join all --proto udp --jsonl {file} {options}");
        let run = meter(&net.probe, &line);
        let mut buffer = [0; 300];
        let asked = 40;
        for port in 20_000..20_000 + asked {
            let near = ("10.1.0.1", port);
            let near = net.probe.inside(|| UdpSocket::bind(near).unwrap()).unwrap();
            near.send_to(&[1; 100], "10.1.0.2:7000").unwrap();
            let (_, from) = far.recv_from(&mut buffer).unwrap();
            far.send_to(&[2; 200], from).unwrap();
            near.recv(&mut buffer).unwrap();
        }
        run.signal("INT");
        let ended = run.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        let all = records(&std::fs::read_to_string(file).unwrap());
        assert_eq!(all.len(), usize::from(asked), "{options}: {}", ended.err);
        for record in all {
            let bytes = (record.forward.bytes, record.reverse.bytes);
            assert_eq!(bytes, (128, 228), "{options}: {record:?}");
        }
    }
}
