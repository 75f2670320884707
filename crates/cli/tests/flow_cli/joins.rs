//! A query on one port of a tap and its answer on the other, or with a VLAN on one way only.

use crate::support::{flow, records};

fn capture(name: &str) -> String {
    format!("{}/../../tests/golden/joins/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn both_directions_of_a_tap_are_one_biflow() {
    let file = capture("tap_two_ports.pcapng");
    let told = |options: &str| records(&flow(&format!("{file} -q --jsonl - {options}")).out);
    assert_eq!(told("").len(), 2);
    for join in ["--join all", "--join 0,1", "--join all --workers 2"] {
        let one = told(&format!("--fields apps {join}"));
        assert_eq!(one.len(), 1, "{join}");
        assert_eq!((one[0].forward.packets, one[0].reverse.packets), (1, 1), "{join}");
        assert_eq!(one[0].key.point, 0);
        let app = serde_json::to_value(one[0].extra.as_ref().unwrap().app.as_ref()).unwrap();
        assert_eq!((&app["answers"], app["latency_ns"].as_u64().is_some()), (&1.into(), true));
    }
    assert_eq!(told("--join all --uniflow").len(), 2, "directions are flows still");
    let wrong = flow(&format!("{file} -q --join eth0,eth1"));
    assert_eq!((wrong.code, wrong.err.contains("have numbers")), (2, true), "{}", wrong.err);
}

#[test]
fn a_vlan_on_one_way_only_is_left_out_of_the_key() {
    let file = capture("dns_vlan_asym.pcap");
    let told = |options: &str| records(&flow(&format!("{file} -q --jsonl - {options}")).out);
    assert_eq!(told("").len(), 2);
    let one = told("--no-vlan-in-key");
    assert_eq!((one.len(), one[0].key.vlan), (1, 0));
    assert_eq!((one[0].forward.packets, one[0].reverse.packets), (1, 1));
}
