//! `sonde otg` as a process: ordered about over HTTP, with real frames between two network
//! namespaces. Without root that is skipped, and says so. What clients make of it is tested
//! with snappi, in tests/interop.

mod access;
mod devices;
mod runs;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};
use sonde_lab::{Host, Lab, LinkOptions};
use sonde_sys::cpu_time::{is_real_time, thread_nice};
use sonde_sys::schedule::prefer_with_children;

use crate::process::{Process, until};

struct Server {
    process: Process,
    address: String,
    token: String,
}

impl Server {
    fn start() -> Server {
        Server::with(&[])
    }

    fn with(more: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
        command.args(["otg", "--listen", "127.0.0.1:0"]).args(more);
        let mut process = Process::start(command);
        let address = |p: &Process| {
            let lines = p.err();
            let line = lines.iter().find_map(|l| l.split_once("http://sonde:"))?.1.to_owned();
            let (token, address) = line.split(',').next().unwrap().split_once('@').unwrap();
            Some((token.to_owned(), address.to_owned()))
        };
        process.until("the server", |p| address(p).is_some());
        let (token, address) = address(&process).unwrap();
        Server { process, address, token }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, answer) = self.text(method, path, body);
        (status, serde_json::from_str(&answer).unwrap())
    }

    fn text(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let (status, answer) = self.octets(method, path, body);
        (status, String::from_utf8(answer).unwrap())
    }

    fn octets(&self, method: &str, path: &str, body: &Value) -> (u16, Vec<u8>) {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
        (status, answer[end + 4..].to_vec())
    }

    fn done(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// A cable that was just put in has its carrier a moment later.
    fn configure(&self, config: &Value) {
        until("the carrier", || {
            let (status, answer) = self.ask("POST", "/config", config);
            assert!(status == 200 || answer.to_string().contains("no carrier"), "{answer}");
            status == 200
        });
    }

    fn transmit(&self, state: &str) {
        let change = json!({ "choice": "traffic", "traffic": {
            "choice": "flow_transmit", "flow_transmit": { "state": state } } });
        self.done("POST", "/control/state", &change);
    }

    fn metrics(&self, whose: &str) -> Value {
        let answer = self.done("POST", "/monitor/metrics", &json!({ "choice": whose }));
        answer[format!("{whose}_metrics")][0].clone()
    }
}

/// Two hosts and a cable between them. `None`: not root.
fn cable(name: &str) -> Option<(Lab, Host, Host)> {
    if sonde_lab::skip(name) {
        return None;
    }
    let mut lab = Lab::new("otg").unwrap();
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    for host in [&a, &b] {
        // No packets of their own: ports count everything.
        host.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
    }
    lab.link(&a, "eth0", &b, "eth0", &LinkOptions::default()).unwrap();
    Some((lab, a, b))
}

fn config(a: &Host, b: &Host, packets: u64) -> Value {
    json!({
        "ports": [
            { "name": "a", "location": format!("{}/eth0", a.name()) },
            { "name": "b", "location": format!("{}/eth0", b.name()) },
        ],
        "flows": [{
            "name": "f",
            "tx_rx": { "choice": "port", "port": { "tx_name": "a", "rx_names": ["b"] } },
            "packet": [
                { "choice": "ethernet" },
                { "choice": "ipv4", "ipv4": {
                    "src": { "value": "198.18.0.1" }, "dst": { "value": "198.19.0.1" } } },
                { "choice": "udp" },
            ],
            "rate": { "choice": "pps", "pps": "5000" },
            "duration": { "choice": "fixed_packets", "fixed_packets": { "packets": packets } },
            "metrics": { "enable": true, "loss": true, "latency": { "enable": true } },
        }],
    })
}

#[test]
fn flows_are_sent_counted_and_their_ports_given_back() {
    let Some((_lab, a, b)) = cable("flows_are_sent_counted_and_their_ports_given_back") else {
        return;
    };
    let server = Server::start();
    let wanted = config(&a, &b, 3000);
    server.configure(&wanted);
    assert_eq!(server.done("GET", "/config", &Value::Null), wanted);
    server.transmit("start");
    until("the last frame", || server.metrics("flow")["frames_rx"] == "3000");
    until("the end", || server.metrics("flow")["transmit"] == "stopped");
    let flow = server.metrics("flow");
    assert_eq!((&flow["frames_tx"], &flow["bytes_rx"]), (&"3000".into(), &"192000".into()));
    assert_eq!(flow["loss"], 0.0);
    assert!(flow["latency"]["minimum_ns"].as_f64() <= flow["latency"]["maximum_ns"].as_f64());
    let details = server.done("GET", "/sonde/v1/flows", &Value::Null);
    let rx = &details["flows"][0]["rx"][0];
    assert_eq!(
        (&rx["lost"], &rx["duplicates"], &rx["reordered"]),
        (&json!(0), &json!(0), &json!(0))
    );
    let port = |i: usize, side: &str| details["ports"][i][side].clone();
    assert_eq!(port(0, "tx"), json!({ "frames": 3000, "dropped": 0, "full": 0 }));
    let lost = json!({ "frames": 3000, "dropped": 0, "invalid": 0, "stray": 0, "damaged": 0 });
    assert_eq!(port(1, "rx"), lost);
    // 3,000 values: 30 lie beyond the 99th percentile, and 3 beyond the next.
    assert!(rx["latency_ns"]["p99"].is_i64() && rx["latency_ns"]["p99_9"].is_null(), "{rx}");
    // A configuration that is refused leaves none behind.
    let mut other = wanted.clone();
    other["flows"][0]["packet"][1]["ipv4"]["dst"]["value"] = "192.0.2.1".into();
    let (status, answer) = server.ask("POST", "/config", &other);
    assert!(
        status == 400 && answer["errors"][0].as_str().unwrap().contains("RFC 6815"),
        "{answer}"
    );
    assert_eq!(server.ask("POST", "/monitor/metrics", &json!({ "choice": "flow" })).0, 400);

    server.done("POST", "/config", &wanted);
    server.process.signal("INT");
    assert_eq!(server.process.end().code, 0);
    for host in [&a, &b] {
        let link = host.run(&["ip", "-d", "link", "show", "eth0"]).unwrap();
        assert!(!link.contains("xdp"), "{link}");
    }
}

#[test]
fn rates_are_right_at_the_first_question() {
    let Some((_lab, a, b)) = cable("rates_are_right_at_the_first_question") else { return };
    let server = Server::start();
    server.configure(&config(&a, &b, 1_000_000_000));
    server.transmit("start");
    // Sonde's own view of flows has no rates: whatever asks for these is the first to do so.
    let sent = || {
        let details = server.done("GET", "/sonde/v1/flows", &Value::Null);
        details["flows"][0]["tx"]["frames"].as_u64().unwrap()
    };
    until("frames", || sent() > 500);
    let flow = server.metrics("flow");
    for rate in ["frames_tx_rate", "frames_rx_rate"] {
        // 5,000 a second, by a host that may be busy.
        let rate = flow[rate].as_f64().unwrap();
        assert!(rate > 500.0 && rate < 50_000.0, "{flow}");
    }
    server.process.signal("INT");
    assert_eq!(server.process.end().code, 0);
}

#[test]
fn a_port_goes_before_other_work_of_its_host_while_it_sends() {
    let test = "a_port_goes_before_other_work_of_its_host_while_it_sends";
    let Some((_lab, a, b)) = cable(test) else { return };
    // A thread of the test's own: what it tries is not to hold for other tests.
    let permitted = std::thread::spawn(|| prefer_with_children().map_err(|e| e.to_string()));
    if let Err(e) = permitted.join().unwrap() {
        return sonde_lab::skipped(test, e);
    }
    let server = Server::start();
    let id = server.process.id();
    // All that serve, and the ports' threads, come from this one.
    until("precedence", || thread_nice(id, "sonde-otg") == Some(-20));
    server.configure(&config(&a, &b, 1_000_000_000));
    assert!(!is_real_time(id));
    // Where a processor is left for the rest.
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        server.transmit("start");
        until("a sender that is real-time", || is_real_time(id));
        server.transmit("stop");
        until("one as any other", || !is_real_time(id));
    }
    server.process.signal("INT");
    assert_eq!(server.process.end().code, 0);
}

#[test]
fn what_comes_to_a_port_is_captured_whole() {
    let Some((_lab, a, b)) = cable("what_comes_to_a_port_is_captured_whole") else { return };
    let server = Server::start();
    let mut wanted = config(&a, &b, 100);
    wanted["layer1"] = json!([{ "name": "ly", "port_names": ["a", "b"], "mtu": 1400,
                                "promiscuous": true, "speed": "speed_1_gbps" }]);
    wanted["captures"] = json!([{ "name": "ca", "port_names": ["b"], "format": "pcap" }]);
    server.configure(&wanted);
    let warnings = server.done("POST", "/config", &wanted)["warnings"].to_string();
    assert!(warnings.contains("speed is not set"), "{warnings}");
    let mtu = || b.run(&["cat", "/sys/class/net/eth0/mtu"]).unwrap().trim().to_owned();
    assert_eq!(mtu(), "1400");
    let capture = |state: &str| {
        let change = json!({ "choice": "port", "port": {
            "choice": "capture", "capture": { "state": state, "port_names": ["b"] } } });
        server.done("POST", "/control/state", &change);
    };
    capture("start");
    server.transmit("start");
    until("the last frame", || server.metrics("flow")["frames_rx"] == "100");
    let ports = server.done("POST", "/monitor/metrics", &json!({ "choice": "port" }));
    assert_eq!(ports["port_metrics"][1]["capture"], "started", "{ports}");
    capture("stop");
    let file =
        |port: &str| server.octets("POST", "/monitor/capture", &json!({ "port_name": port }));
    let (status, octets) = file("b");
    assert_eq!(status, 200);
    let frames: Vec<_> =
        sonde_wire::capture::Reader::new(&octets).unwrap().map(Result::unwrap).collect();
    assert_eq!(frames.len(), 100);
    for frame in &frames {
        // As long as the flow says, with the FCS, which is right.
        assert_eq!((frame.data.len(), frame.original_len), (64, 64));
        let (octets, fcs) = frame.data.split_at(60);
        assert_eq!(fcs, sonde_wire::fcs::fcs(octets));
        assert_eq!(octets[26..34], [198, 18, 0, 1, 198, 19, 0, 1]);
    }
    let (status, why) = file("a");
    assert!(status == 400 && String::from_utf8_lossy(&why).contains("'captures'"));
    server.process.signal("INT");
    assert_eq!(server.process.end().code, 0);
    assert_eq!(mtu(), "1500", "what was set is set back");
}

#[test]
fn what_a_port_could_not_send_is_not_counted_as_lost_by_a_flow() {
    let test = "what_a_port_could_not_send_is_not_counted_as_lost_by_a_flow";
    let Some((_lab, a, b)) = cable(test) else { return };
    let server = Server::start();
    // The other end of the cable refuses every frame.
    b.run(&["ip", "link", "set", "eth0", "mtu", "68"]).unwrap();
    let mut long = config(&a, &b, 500);
    long["flows"][0]["size"] = json!({ "choice": "fixed", "fixed": 1000 });
    server.configure(&long);
    server.transmit("start");
    until("the end", || server.metrics("flow")["transmit"] == "stopped");
    let details = server.done("GET", "/sonde/v1/flows", &Value::Null);
    let tx = &details["ports"][0]["tx"];
    assert_eq!((&tx["frames"], &tx["dropped"]), (&json!(0), &json!(500)), "{details}");
    assert_eq!(details["flows"][0]["rx"][0]["lost"], 500, "{details}");
    server.process.signal("INT");
    assert_eq!(server.process.end().code, 0);
}

#[test]
fn a_link_that_goes_down_is_reported_and_what_was_lost_by_it_counted() {
    let Some((_lab, a, b)) =
        cable("a_link_that_goes_down_is_reported_and_what_was_lost_by_it_counted")
    else {
        return;
    };
    let server = Server::start();
    server.configure(&config(&a, &b, 1_000_000));
    server.transmit("start");
    let came =
        |n: u64| server.metrics("flow")["frames_rx"].as_str().unwrap().parse::<u64>().unwrap() >= n;
    until("some frames", || came(100));
    assert_eq!(server.metrics("port")["link"], "up");
    b.set_up("eth0", false).unwrap();
    until("the link's state", || {
        // The port may rather fail as a whole: then it says so.
        let (status, answer) = server.ask("POST", "/monitor/metrics", &json!({ "choice": "port" }));
        match status {
            200 => answer["port_metrics"][0]["link"] == "down",
            _ => answer["errors"][0].as_str().unwrap().contains("port "),
        }
    });
    server.process.signal("TERM");
    assert_eq!(server.process.end().code, 0);
}

#[test]
fn a_port_that_has_failed_starts_nothing() {
    let Some((_lab, a, b)) = cable("a_port_that_has_failed_starts_nothing") else { return };
    let server = Server::start();
    let mut wanted = config(&a, &b, 100);
    wanted["captures"] = json!([{ "name": "c", "port_names": ["b"] }]);
    server.configure(&wanted);
    server.transmit("start");
    until("the last frame", || server.metrics("flow")["frames_rx"] == "100");
    server.transmit("start");
    until("the last frame", || server.metrics("flow")["frames_rx"] == "100");
    // A flow counts from its last start, a port from its configuration.
    let port = server.metrics("port");
    assert_eq!((&port["frames_tx"], &port["bytes_tx"]), (&"200".into(), &"12800".into()));
    a.run(&["ip", "link", "del", "eth0"]).unwrap();
    let flows = |state: &str| {
        json!({ "choice": "traffic", "traffic": {
            "choice": "flow_transmit", "flow_transmit": { "state": state } } })
    };
    let capture = json!({ "choice": "port", "port": { "choice": "capture",
        "capture": { "port_names": ["b"], "state": "start" } } });
    for change in [flows("start"), flows("resume"), capture] {
        let (status, answer) = server.ask("POST", "/control/state", &change);
        assert_eq!((status, &answer["kind"]), (500, &"internal".into()), "{change}: {answer}");
        let why = answer["errors"][0].as_str().unwrap();
        assert!(why.contains("port ") && why.contains("configure it again"), "{why}");
    }
    server.transmit("stop");
    server.process.signal("INT");
    assert_eq!(server.process.end().code, 0);
}

#[test]
fn the_ways_by_which_the_host_is_reached_are_no_ports() {
    let test = "the_ways_by_which_the_host_is_reached_are_no_ports";
    let Some((_lab, a, _b)) = cable(test) else { return };
    let server = Server::start();
    let config = |location: &str| json!({ "ports": [{ "name": "a", "location": location }] });
    for (location, part) in [("lo", "loopback"), (&format!("{}/lo", a.name()), "loopback")] {
        let (status, answer) = server.ask("POST", "/config", &config(location));
        let message = answer["errors"][0].as_str().unwrap();
        assert!(status == 400 && message.contains(part), "{answer}");
    }
    server.process.signal("INT");
    assert_eq!(server.process.end().code, 0);
}

#[test]
fn an_open_door_to_others_is_refused() {
    let sonde = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
        command.arg("otg").args(args);
        Process::start(command).end()
    };
    let open = sonde(&["--listen", "0.0.0.0:0"]);
    assert!(open.code == 2 && open.err.contains("--ca"), "{}", open.err);
    let half = sonde(&["--cert", "x.pem"]);
    assert!(half.code == 2 && half.err.contains("--key"), "{}", half.err);
    let missing = sonde(&["--cert", "/nonexistent.pem", "--key", "/nonexistent.key"]);
    assert!(missing.code == 2 && missing.err.contains("/nonexistent.pem"), "{}", missing.err);
}
