use super::config::*;
use super::control::TransmitChange;
use super::*;
use crate::http::testing::{self, ask_json as ask};

/// Accepts everything, and records the requests.
#[derive(Default)]
struct Recorder {
    requests: Mutex<Vec<String>>,
}

impl OtgBackend for Recorder {
    fn configure(&self, config: Config, _: ConnectionAddresses) -> Result<Vec<String>, Problem> {
        if config.ports.is_empty() {
            return Err(Problem::Invalid(vec!["a".into(), "b".into()]));
        }
        self.requests.lock().unwrap().push(format!("{} flows", config.flows.len()));
        Ok(vec!["careful".into()])
    }
    fn transmit(&self, change: &FlowTransmit) -> Result<Vec<String>, Problem> {
        self.requests.lock().unwrap().push(format!("{:?} {:?}", change.state, change.flow_names));
        Ok(Vec::new())
    }
    fn protocols(&self, start: bool) -> Result<Vec<String>, Problem> {
        self.requests.lock().unwrap().push(format!("protocols {start}"));
        Ok(Vec::new())
    }
    fn capture(&self, change: &PortCapture) -> Result<Vec<String>, Problem> {
        self.requests.lock().unwrap().push(format!("{:?} {:?}", change.state, change.port_names));
        Ok(Vec::new())
    }
    fn captured(&self, request: &CaptureRequest) -> Result<Vec<u8>, Problem> {
        match request.port_name.as_str() {
            "a" => Ok(vec![0xa1, 0xb2]),
            other => Err(Problem::invalid(format!("there is no port '{other}'"))),
        }
    }
    fn neighbors(&self) -> Result<Vec<Neighbor>, Problem> {
        let of = |name: &str, address: &str, mac| Neighbor {
            ethernet_name: name.into(),
            address: address.parse().unwrap(),
            mac,
        };
        Ok(vec![
            of("e", "198.18.0.1", Some([2, 0, 0, 0, 0, 0xab])),
            of("e", "2001:2::1", None),
            of("f", "198.19.0.1", None),
        ])
    }
    fn flow_metrics(&self, names: &[String]) -> Result<Vec<FlowMetric>, Problem> {
        match names {
            [name] if name == "none" => Err(Problem::invalid("no flow 'none'")),
            _ => Ok(vec![FlowMetric { name: "f".into(), frames_tx: 3, ..Default::default() }]),
        }
    }
    fn port_metrics(&self, _: &[String]) -> Result<Vec<PortMetric>, Problem> {
        Err(Problem::Internal("port a is gone".into()))
    }
    fn details(&self) -> Result<Value, Problem> {
        Ok(json!([]))
    }
}

/// As snappi 1.62 writes it.
const CONFIG: &str = r#"{
  "ports": [{"location": "veth0", "name": "a"}, {"location": "gen/veth1", "name": "b"}],
  "flows": [{
    "name": "f",
    "tx_rx": {"choice": "port", "port": {"tx_name": "a", "rx_names": ["b"]}},
    "packet": [
      {"choice": "ethernet", "ethernet": {"src": {"choice": "value", "value": "00:00:00:00:00:01"}}},
      {"choice": "vlan", "vlan": {}},
      {"choice": "ipv4", "ipv4": {
        "dst": {"choice": "values", "values": ["198.19.0.1", "198.19.0.2"]},
        "priority": {"choice": "dscp", "dscp": {"phb": {"choice": "value", "value": 46}}},
        "src": {"choice": "increment", "increment": {"count": 5, "start": "198.18.0.1", "step": "0.0.0.1"}}}},
      {"choice": "udp", "udp": {"src_port": {"choice": "increment", "increment": {"count": 1, "start": 5000, "step": 1}}}}],
    "size": {"choice": "weight_pairs", "weight_pairs": {"choice": "predefined", "predefined": "imix"}},
    "rate": {"choice": "pps", "pps": "1000"},
    "duration": {"choice": "fixed_packets", "fixed_packets": {"gap": 12, "packets": 100}},
    "metrics": {"enable": true, "latency": {"enable": true, "mode": "cut_through"}, "loss": true, "timestamps": false}
  }]
}"#;

#[test]
fn what_snappi_writes_is_understood() {
    let config: Config = read(CONFIG.as_bytes()).unwrap();
    let flow = &config.flows[0];
    assert_eq!(flow.rate.pps, Some(pattern::Integer(1000)));
    assert_eq!(flow.duration.fixed_packets.as_ref().unwrap().packets, 100);
    assert_eq!(flow.metrics.latency.mode, LatencyMode::CutThrough);
    assert_eq!(
        flow.packet[2]
            .ipv4
            .as_ref()
            .unwrap()
            .src
            .as_ref()
            .unwrap()
            .increment
            .as_ref()
            .unwrap()
            .count,
        5
    );
}

#[test]
fn a_configuration_is_kept_as_it_came_and_gone_after_one_that_is_refused() {
    let otg = routes(Arc::new(Recorder::default()));
    let (status, answer) = ask(&otg, "POST", "/config", CONFIG);
    assert_eq!((status, &answer["warnings"][0]), (200, &"careful".into()));
    let (_, kept) = ask(&otg, "GET", "/config", "");
    assert_eq!(kept, serde_json::from_str::<Value>(CONFIG).unwrap());
    let (status, answer) = ask(&otg, "POST", "/config", "{}");
    assert_eq!(answer, json!({ "code": 400, "kind": "validation", "errors": ["a", "b"] }));
    assert_eq!((status, ask(&otg, "GET", "/config", "").1), (400, json!({})));
}

#[test]
fn what_is_not_supported_is_named_with_its_path() {
    let otg = routes(Arc::new(Recorder::default()));
    for (change, path, with) in [
        (r#""location": "veth0""#, "ports[0]", r#""speed": 1"#),
        (r#""choice": "vlan", "vlan": {}"#, "flows[0].packet[1]", r#""choice": "arp""#),
        (
            r#""choice": "udp", "udp""#,
            "flows[0].packet[3].udp",
            r#""choice": "udp", "udp": {"foo": 1}, "udp""#,
        ),
        (r#""gap": 12"#, "flows[0].duration.fixed_packets", r#""gap": -1"#),
        (r#""00:00:00:00:00:01""#, "flows[0].packet[0].ethernet.src.value", "\"zero\""),
        (r#""choice": "port", "port""#, "flows[0].tx_rx.choice", r#""choice": "lag", "port""#),
    ] {
        let text = CONFIG.replacen(change, with, 1);
        assert_ne!(text, CONFIG);
        let (status, answer) = ask(&otg, "POST", "/config", &text);
        let message = answer["errors"][0].as_str().unwrap();
        assert!(status == 400 && message.starts_with(path), "{message}");
        assert!(!message.contains("unknown"), "{message}");
    }
    let (_, answer) = ask(&otg, "POST", "/config", r#"{"ports": [{"name": "a", "speed": 1}]}"#);
    let message = answer["errors"][0].as_str().unwrap();
    assert_eq!(
        message,
        "ports[0].speed: `speed` is not supported; what is: `name` or `location` (docs/otg.md)"
    );
    for top in ["lags", "stateful_flows", "events", "lldp"] {
        let text = CONFIG.replacen('{', &format!("{{\"{top}\": [],"), 1);
        let (status, answer) = ask(&otg, "POST", "/config", &text);
        assert!(status == 400 && answer.to_string().contains(top), "{answer}");
    }
    assert_eq!(ask(&otg, "PATCH", "/config", "{}").0, 501);
}

#[test]
fn a_list_is_no_object_and_nothing_stands_behind_one() {
    let otg = routes(Arc::new(Recorder::default()));
    let state = r#"{"choice": "traffic", "traffic": {"flow_transmit": []}}"#;
    let metrics = r#"{"choice": "flow", "flow": []}"#;
    let tx_rx = r#"{"choice": "port", "port": {"tx_name": "a", "rx_names": ["b"]}}"#;
    for (path, body, place) in [
        ("/config", "[]".to_owned(), ""),
        ("/config", r#"[[{"name": "a"}], []]"#.into(), ""),
        ("/config", r#"{"ports": [["veth0", "a"]]}"#.into(), "ports[0]: "),
        ("/config", r#"{"options": []}"#.into(), "options: "),
        ("/config", CONFIG.replace(tx_rx, r#"["port", null, null]"#), "flows[0].tx_rx: "),
        ("/control/state", "[]".into(), ""),
        ("/control/state", state.into(), "traffic.flow_transmit: "),
        ("/monitor/metrics", metrics.into(), "flow: "),
        ("/monitor/metrics", "[]".into(), ""),
        ("/monitor/states", "[]".into(), ""),
        ("/monitor/capture", r#"["a"]"#.into(), ""),
    ] {
        let (status, answer) = ask(&otg, "POST", path, &body);
        let wanted = format!("{place}a list stands where an object is wanted");
        assert_eq!((status, &answer["errors"][0]), (400, &wanted.into()), "{path} {body}");
    }
    for body in [format!("{CONFIG} []"), format!("{CONFIG}{CONFIG}"), format!("{CONFIG}x")] {
        let (status, answer) = ask(&otg, "POST", "/config", &body);
        assert!(status == 400 && answer.to_string().contains("behind the object"), "{answer}");
    }
    assert_eq!(ask(&otg, "POST", "/config", &format!("\n{CONFIG}\n ")).0, 200);
}

#[test]
fn flows_are_started_and_their_metrics_read() {
    let generator = Arc::new(Recorder::default());
    let otg = routes(generator.clone());
    let start = r#"{"choice": "traffic", "traffic": {"choice": "flow_transmit", "flow_transmit": {"state": "start"}}}"#;
    assert_eq!(ask(&otg, "POST", "/control/state", start).0, 200);
    let some = start.replace("\"start\"", r#""pause", "flow_names": ["x"]"#);
    assert_eq!(ask(&otg, "POST", "/control/state", &some).0, 200);
    let requests = generator.requests.lock().unwrap().clone();
    assert_eq!(
        requests,
        [format!("{:?} []", TransmitChange::Start), format!("{:?} [\"x\"]", TransmitChange::Pause)]
    );
    let protocols =
        r#"{"choice": "protocol", "protocol": {"choice": "all", "all": {"state": "start"}}}"#;
    let (status, answer) = ask(&otg, "POST", "/control/state", protocols);
    assert_eq!((status, answer), (200, json!({ "warnings": [] })));
    assert_eq!(generator.requests.lock().unwrap().last().unwrap(), "protocols true");
    let port = r#"{"choice": "port", "port": {"choice": "link", "link": {"state": "down"}}}"#;
    let (status, answer) = ask(&otg, "POST", "/control/state", port);
    assert!(status == 400 && answer.to_string().contains("`link` is not supported"), "{answer}");
    let capture =
        r#"{"choice": "port", "port": {"choice": "capture", "capture": {"state": "start"}}}"#;
    assert_eq!(ask(&otg, "POST", "/control/state", capture).0, 200);
    assert_eq!(generator.requests.lock().unwrap().last().unwrap(), "Start []");
    let captured = |body: &str| testing::ask(&otg, "POST", "/monitor/capture", body);
    assert_eq!(captured(r#"{"port_name": "a"}"#), (200, vec![0xa1, 0xb2].into()));
    assert_eq!(captured(r#"{"port_name": "x"}"#).0, 400);
    assert_eq!(captured("{}").0, 400);

    let states = |of: Value| ask(&otg, "POST", "/monitor/states", &of.to_string());
    let known = json!({ "ethernet_name": "e", "ipv4_address": "198.18.0.1",
                        "link_layer_address": "02:00:00:00:00:ab" });
    let (_, answer) = states(json!({ "ipv4_neighbors": { "ethernet_names": ["e"] } }));
    assert_eq!(answer, json!({ "choice": "ipv4_neighbors", "ipv4_neighbors": [known] }));
    let (_, answer) = states(json!({ "choice": "ipv6_neighbors" }));
    let unknown = json!({ "ethernet_name": "e", "ipv6_address": "2001:2::1" });
    assert_eq!(answer["ipv6_neighbors"], json!([unknown]));
    assert_eq!(states(json!({ "choice": "bgp_prefixes" })).0, 400);
    assert_eq!(states(json!({ "ipv4_neighbors": { "ethernet_names": ["x"] } })).0, 400);

    let (_, answer) = ask(&otg, "POST", "/monitor/metrics", r#"{"choice": "flow", "flow": {}}"#);
    assert_eq!(answer["flow_metrics"][0]["frames_tx"], "3");
    let none = r#"{"choice": "flow", "flow": {"flow_names": ["none"]}}"#;
    assert_eq!(ask(&otg, "POST", "/monitor/metrics", none).0, 400);
    assert_eq!(ask(&otg, "POST", "/monitor/metrics", r#"{"choice": "port"}"#).0, 500);
    assert_eq!(ask(&otg, "POST", "/monitor/metrics", r#"{"choice": "bgpv4"}"#).0, 400);
}
