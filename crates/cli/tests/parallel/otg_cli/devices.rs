//! Emulated devices on both sides of a router, which asks for them before it forwards.

use serde_json::{Value, json};
use sonde_lab::{Lab, LinkOptions};

use super::Server;
use crate::process::until;

fn device(name: &str, port: &str, mac: &str, v4: &str, v6: &str) -> Value {
    let ip = |kind: &str, host: &str, router: &str| json!([{ "name": format!("{name}-{kind}"), "address": host, "gateway": router }]);
    json!({
        "name": name,
        "ethernets": [{
            "name": format!("{name}-eth"), "mac": mac,
            "connection": { "choice": "port_name", "port_name": port },
            "ipv4_addresses": ip("v4", &format!("{v4}.2"), &format!("{v4}.1")),
            "ipv6_addresses": ip("v6", &format!("{v6}::2"), &format!("{v6}::1")),
        }],
    })
}

fn flow(name: &str, tx: &str, rx: &str, ip: &str) -> Value {
    json!({
        "name": name,
        "tx_rx": { "choice": "device", "device": { "tx_names": [tx], "rx_names": [rx] } },
        "packet": [
            { "choice": "ethernet", "ethernet": { "dst": { "choice": "auto" } } },
            { "choice": ip },
            { "choice": "udp" },
        ],
        "size": { "choice": "fixed", "fixed": 100 },
        "duration": { "choice": "fixed_packets", "fixed_packets": { "packets": 500 } },
        "metrics": { "enable": true, "loss": true },
    })
}

fn protocols(server: &Server, state: &str) {
    let change =
        json!({ "choice": "protocol", "protocol": { "choice": "all", "all": { "state": state } } });
    server.done("POST", "/control/state", &change);
}

/// Gateways of both kinds that are known, by interface.
fn known(server: &Server) -> usize {
    let of = |choice: &str| {
        let answer = server.done("POST", "/monitor/states", &json!({ "choice": choice }));
        let rows = answer[choice].as_array().unwrap().clone();
        assert_eq!(rows.len(), 2, "{rows:?}");
        rows.iter().filter(|r| r["link_layer_address"].is_string()).count()
    };
    of("ipv4_neighbors") + of("ipv6_neighbors")
}

#[test]
fn devices_find_their_gateways_and_are_found_by_them() {
    if sonde_lab::skip("devices_find_their_gateways_and_are_found_by_them") {
        return;
    }
    let mut lab = Lab::new("otgdev").unwrap();
    let [a, b, router] = ["a", "b", "r"].map(|name| lab.host(name).unwrap());
    lab.link(&a, "eth0", &router, "west", &LinkOptions::default()).unwrap();
    lab.link(&b, "eth0", &router, "east", &LinkOptions::default()).unwrap();
    for (interface, v4, v6) in [
        ("west", "198.18.0.1/24", "2001:2:0:1::1/64"),
        ("east", "198.19.0.1/24", "2001:2:0:2::1/64"),
    ] {
        router.run(&["ip", "address", "add", v4, "dev", interface]).unwrap();
        router.run(&["ip", "address", "add", v6, "dev", interface, "nodad"]).unwrap();
    }
    router.sysctl(&["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]).unwrap();

    let server = Server::start();
    let config = json!({
        "ports": [
            { "name": "pa", "location": format!("{}/eth0", a.name()) },
            { "name": "pb", "location": format!("{}/eth0", b.name()) },
        ],
        "devices": [
            device("d", "pa", "02:00:00:00:0a:01", "198.18.0", "2001:2:0:1"),
            device("e", "pb", "02:00:00:00:0b:01", "198.19.0", "2001:2:0:2"),
        ],
        "flows": [flow("four", "d", "e", "ipv4"), flow("six", "e-eth", "d-v6", "ipv6")],
    });
    let start = json!({ "choice": "traffic", "traffic": {
        "choice": "flow_transmit", "flow_transmit": { "state": "start" } } });
    // A gateway that nobody is.
    let mut silent = config.clone();
    silent["devices"][0]["ethernets"][0]["ipv4_addresses"][0]["gateway"] = "198.18.0.99".into();
    server.configure(&silent);
    let (status, answer) = server.ask("POST", "/control/state", &start);
    assert!(status == 400 && answer.to_string().contains("has not answered"), "{answer}");
    server.configure(&config);
    // They are there as soon as they are configured, and until they are removed.
    until("the gateways", || known(&server) == 4);
    protocols(&server, "stop");
    let (status, answer) = server.ask("POST", "/control/state", &start);
    assert!(status == 400 && answer.to_string().contains("start the protocols"), "{answer}");
    protocols(&server, "start");
    until("the gateways again", || known(&server) == 4);
    server.done("POST", "/control/state", &start);
    let flows = || server.done("POST", "/monitor/metrics", &json!({ "choice": "flow" }));
    until("the frames", || {
        let all = flows()["flow_metrics"].as_array().unwrap().clone();
        all.iter().all(|f| f["transmit"] == "stopped" && f["frames_rx"] == "500")
    });
    let flows = flows();
    assert_eq!(flows["flow_metrics"][0]["loss"], 0.0, "{flows}");
    assert_eq!(flows["flow_metrics"][1]["port_rx"], "pa", "{flows}");
    // The router has found them by asking.
    let neighbours = router.run(&["ip", "neighbour"]).unwrap();
    assert!(neighbours.contains("02:00:00:00:0b:01"), "{neighbours}");
    protocols(&server, "stop");
    assert_eq!(known(&server), 0);
    server.process.signal("INT");
    assert_eq!(server.process.end().code, 0);
}
