//! A station that hosts a traffic generator and agents: clients and a controller find them as if
//! they were commands of their own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sonde_lab::{Host, Lab, LinkOptions};
use sonde_run::running::{Context, Invocation, Next, RecordReceiver, Stop};
use sonde_run::toml_file::TomlText;
use sonde_station::config::{Config, ReadFile};
use sonde_station::hub::{Hub, Report, Said};
use sonde_station::plan::UnitId;
use sonde_station::reload::{Step, StopReason};
use sonde_station::runner::{self, Station};
use sonde_testbed::agent::Event as AgentEvent;
use sonde_testbed::agent::cert::{CertRequest, make};
use sonde_testbed::execution::{self, Event};

#[test]
fn a_hosted_generator_obeys_clients_and_ends_with_its_station() {
    if sonde_lab::skip("a_hosted_generator_obeys_clients_and_ends_with_its_station") {
        return;
    }
    let mut lab = Lab::new("hosted-otg").unwrap();
    let (a, b) = (quiet_host(&mut lab, "a"), quiet_host(&mut lab, "b"));
    lab.link(&a, "eth0", &b, "eth0", &LinkOptions::default()).unwrap();
    a.run(&["ip", "link", "set", "lo", "up"]).unwrap();
    let folder = Folder::new("otg");
    let token = folder.0.join("token");
    let otg = format!("listen = '127.0.0.1:0'\ntoken_file = '{}'\n", token.display());
    let text = format!("[otg.main]\n{otg}");
    let hosting = Hosting::begin(&a, &text, &folder.0.join("store"));
    let url = hosting.serves("otg.main");
    let address = url.strip_prefix("http://").unwrap_or_else(|| panic!("{url}")).to_owned();
    // It stands in a file, so that no log has it.
    let client = Client { host: &a, address, token: std::fs::read_to_string(&token).unwrap() };
    assert!(!url.contains(client.token.trim()), "{url}");
    let port = |name: &str, host: &Host| json!({ "name": name, "location": format!("{}/eth0", host.name()) });
    let config = json!({
        "ports": [port("a", &a), port("b", &b)],
        "flows": [{
            "name": "f",
            "tx_rx": { "choice": "port", "port": { "tx_name": "a", "rx_names": ["b"] } },
            "packet": [
                { "choice": "ethernet" },
                { "choice": "ipv4", "ipv4": {
                    "src": { "value": "198.18.0.1" }, "dst": { "value": "198.19.0.1" } } },
                { "choice": "udp" },
            ],
            "rate": { "choice": "pps", "pps": "2000" },
            "duration": { "choice": "fixed_packets", "fixed_packets": { "packets": 500 } },
            "metrics": { "enable": true, "loss": true },
        }],
    });
    until("the carrier", || {
        let (status, answer) = client.ask("POST", "/config", &config);
        assert!(status == 200 || answer.to_string().contains("no carrier"), "{answer}");
        status == 200
    });
    let start = json!({ "choice": "traffic", "traffic": {
        "choice": "flow_transmit", "flow_transmit": { "state": "start" } } });
    assert_eq!(client.ask("POST", "/control/state", &start).0, 200);
    let flow = || {
        let asked = json!({ "choice": "flow" });
        client.ask("POST", "/monitor/metrics", &asked).1["flow_metrics"][0].clone()
    };
    until("the last frame", || flow()["frames_rx"] == "500");
    assert_eq!((&flow()["frames_tx"], &flow()["loss"]), (&json!("500"), &json!(0.0)));

    // Other settings end it and start it again; the token stays, for it is in the file.
    let before = std::fs::read_to_string(&token).unwrap();
    let other = format!("[otg.main]\n{otg}allow = ['10.0.0.0/8']\n");
    let steps = hosting.reload(&other);
    let restarts = |step: &Step| match step {
        Step::Stop { unit, why: StopReason::Changed(_) } | Step::Start(unit) => {
            *unit == UnitId::new("otg.main")
        }
        _ => false,
    };
    assert!(steps.len() == 2 && steps.iter().all(restarts), "{steps:?}");
    let url = hosting.serves("otg.main");
    assert_eq!(std::fs::read_to_string(&token).unwrap(), before);
    let address = url.strip_prefix("http://").unwrap().to_owned();
    let client = Client { address, ..client };
    assert_eq!(client.ask("GET", "/capabilities/version", &Value::Null).0, 200);
    let stranger = Client { host: &a, address: client.address.clone(), token: "x".repeat(43) };
    assert_eq!(stranger.ask("GET", "/capabilities/version", &Value::Null).0, 401);
    hosting.end();
    // What was configured is given back.
    for host in [&a, &b] {
        let link = host.run(&["ip", "-d", "link", "show", "eth0"]).unwrap();
        assert!(!link.contains("xdp"), "{link}");
    }
}

#[test]
fn a_controller_measures_by_the_ports_of_hosted_agents() {
    if sonde_lab::skip("a_controller_measures_by_the_ports_of_hosted_agents") {
        return;
    }
    let bed = Bed::new();
    let hosting = [0, 1].map(|i| bed.agent(i));
    for host in &hosting {
        assert!(host.serves("agent.main").ends_with(":8620"));
    }
    let plan = TomlText { file: "plan".into(), text: bed.plan() };
    let settings = execution::Settings { plan, out: bed.folder.0.join("run") };
    let start = move || execution::start(settings, &Context::default());
    let (_, benchmark) = bed.controller.inside(start).unwrap().unwrap();
    let mut measured = 0;
    loop {
        match benchmark.records.next(Duration::from_secs(120)) {
            Next::Record(Event::Measured { .. }) => measured += 1,
            Next::Record(Event::Failed(why)) => panic!("{why}"),
            Next::Record(_) => {}
            Next::Nothing => panic!("nothing for two minutes"),
            Next::End => break,
        }
    }
    let ended = benchmark.join();
    assert!(ended.failure.is_none(), "{ended:?}");
    assert_eq!((measured, ended.counters["failed"]), (1, 0));
    for host in hosting {
        // Whoever reads the station's records sees who has the ports.
        host.until(|said| matches!(said, Said::Controller(AgentEvent::Taken(_))));
        host.until(|said| matches!(said, Said::Controller(AgentEvent::Freed(_))));
        host.end();
    }
}

/// A station with what comes of it.
struct Hosting {
    station: Station,
    records: RecordReceiver<Arc<Report>>,
    stop: Stop,
    store: PathBuf,
}

impl Hosting {
    fn begin(host: &Host, text: &str, store: &Path) -> Hosting {
        let hub = Hub::new(Report::records);
        let (records, stop) = (hub.subscribe("test", 1 << 12), Stop::default());
        let (config, asked) = (parse(text, store), stop.clone());
        let start = move || runner::start(config, hub, asked, None, Invocation::default());
        let station = host.inside(start).unwrap().unwrap();
        Hosting { station, records, stop, store: store.to_owned() }
    }

    fn reload(&self, text: &str) -> Vec<Step> {
        self.station.reload(parse(text, &self.store)).unwrap()
    }

    /// Waits for what comes of a unit.
    fn until(&self, is: impl Fn(&Said) -> bool) -> Arc<Report> {
        loop {
            match self.records.next(Duration::from_secs(60)) {
                Next::Record(report) if is(&report.said) => return report,
                Next::Record(report) => {
                    if let Said::Notice(notice) = &report.said {
                        panic!("{notice}");
                    }
                }
                Next::Nothing | Next::End => panic!("what was waited for did not come"),
            }
        }
    }

    /// Where a unit listens, once it does.
    fn serves(&self, unit: &str) -> String {
        let report = self.until(|said| matches!(said, Said::Serves(_)));
        assert_eq!(report.unit.as_str(), unit);
        let Said::Serves(at) = &report.said else { unreachable!() };
        at.clone()
    }

    fn end(self) {
        self.stop.ask();
        let ended = self.station.join();
        assert_eq!(ended.stuck, Vec::new(), "all ends in order");
    }
}

fn parse(text: &str, store: &Path) -> Config {
    let text = format!("{text}\n[store]\npath = '{}'\n", store.display());
    let text = TomlText { file: "station.toml".into(), text };
    Config::of(&[ReadFile::parse(text).unwrap()]).unwrap()
}

/// A client of the model, in a namespace.
struct Client<'a> {
    host: &'a Host,
    address: String,
    token: String,
}

impl Client<'_> {
    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let Client { host, address, token } = self;
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            token.trim(),
            body.len()
        );
        let address = address.clone();
        let exchange = move || {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let answer = host.inside(exchange).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }
}

/// Two hosts with a test port each, a router between these, and a host that controls both.
struct Bed {
    hosts: [Host; 2],
    controller: Host,
    /// The router's, towards each.
    macs: Vec<String>,
    folder: Folder,
    _router: Host,
    _lab: Lab,
}

impl Bed {
    fn new() -> Bed {
        let mut lab = Lab::new("hosted-agents").unwrap();
        let [a, router, b] = ["a", "dut", "b"].map(|name| quiet_host(&mut lab, name));
        let controller = lab.host("ctl").unwrap();
        router.sysctl(&["net.ipv4.ip_forward=1"]).unwrap();
        let options = LinkOptions::default();
        let text = |mac: [u8; 6]| mac.map(|b| format!("{b:02x}")).join(":");
        let mut macs = Vec::new();
        for (i, host) in [&a, &b].into_iter().enumerate() {
            let (port, network) = (format!("eth{i}"), format!("198.{}.0", 18 + i));
            let (own, routers) = lab.link(host, "eth0", &router, &port, &options).unwrap();
            router.add_address(&port, &format!("{network}.1/24")).unwrap();
            router.set_neighbour(&port, &format!("{network}.2"), &text(own)).unwrap();
            macs.push(text(routers));
            let own = format!("ctl{i}");
            lab.link(&controller, &own, host, "mgmt", &options).unwrap();
            controller.add_address(&own, &format!("10.77.{i}.1/24")).unwrap();
            host.add_address("mgmt", &format!("10.77.{i}.2/24")).unwrap();
        }
        let folder = Folder::new("agents");
        make(&CertRequest {
            hosts: [0, 1].map(|i| format!("10.77.{i}.2")).to_vec(),
            controllers: vec!["controller".into()],
            renew: false,
            dir: folder.0.join("lab"),
        })
        .unwrap();
        Bed { hosts: [a, b], controller, macs, folder, _router: router, _lab: lab }
    }

    /// A station that lends the ports of a host.
    fn agent(&self, i: usize) -> Hosting {
        let (own, lab) = (format!("10.77.{i}.2"), self.folder.0.join("lab"));
        let text = format!(
            "[agent.main]\nlisten = '{own}:8620'\ncert = '{0}/{own}.pem'\nkey = '{0}/{own}.key'\n\
             ca = '{0}/ca.pem'\n",
            lab.display()
        );
        Hosting::begin(&self.hosts[i], &text, &self.folder.0.join(format!("store{i}")))
    }

    /// 500 frames at 1,000 a second from a to b.
    fn plan(&self) -> String {
        let [mac_a, mac_b] = &self.macs[..] else { panic!("two ports") };
        format!(
            "title = 'hosted agents'\n\
             [controller]\n\
             cert = '{0}/controller.pem'\nkey = '{0}/controller.key'\nca = '{0}/ca.pem'\n\
             [[agent]]\nname = 'west'\naddress = '10.77.0.2:8620'\n\
             [[agent]]\nname = 'east'\naddress = '10.77.1.2:8620'\n\
             [bed]\nmax_rate = '2000'\ndrain = '500ms'\n[run]\nloop = false\n\
             [[device]]\nname = 'dut'\nkind = 'external'\n\
             [device.ports]\n\
             a = {{ agent = 'west', interface = 'eth0', addresses = ['198.18.0.2/24'], mac = '{mac_a}' }}\n\
             b = {{ agent = 'east', interface = 'eth0', addresses = ['198.19.0.2/24'], mac = '{mac_b}' }}\n\
             [[procedure]]\nkind = 'fixed_load'\nloads = ['1k']\ntrial = '500ms'\n",
            self.folder.0.join("lab").display(),
        )
    }
}

/// A host without packets of its own: ports count everything.
fn quiet_host(lab: &mut Lab, name: &str) -> Host {
    let host = lab.host(name).unwrap();
    host.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
    host
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no {what} in a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("sonde-hosting-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
