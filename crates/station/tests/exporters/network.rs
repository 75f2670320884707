//! Two hosts and a link: a station on one answers probes, one on the other measures.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sonde_lab::{Host, LinkOptions, Topology};
use sonde_run::running::{Invocation, Stop};
use sonde_station::client::StationClient;
use sonde_station::hub::{Hub, Report};
use sonde_station::serve::{AccessRole, BoundApi, default_socket, issue_token};
use sonde_station::service::{LoadedConfig, ReloadFailure, Service};

use crate::bed::Bed;

/// The target of the measuring station.
pub const TARGET: &str = "10.1.0.2";
/// A probe of two classes to it.
pub const PROBE: &str = "
[probe.core]
stream = { interval = '5ms', dscp = [0, 46] }
run = { record_interval = '200ms', timeout = '500ms' }
[[probe.core.target]]
host = '10.1.0.2'
";

/// What watches other people's traffic, beside it.
pub const TRAFFIC: &str = "
[rtt.up]
sources = ['eth0']
interval = '200ms'
[flow.up]
sources = ['eth0']
metering = { flows = 1024, active = '1s', idle = '1s' }
";

/// The station that measures, and what it needs.
pub struct Network {
    /// Measures.
    pub station: RunningStation,
    /// A token of role `operate`.
    pub operate: String,
    /// A token of role `read`.
    pub read: String,
    head: String,
    _answering: RunningStation,
    /// The host of the measuring station.
    pub near: Host,
    _topology: Topology,
    pub bed: Bed,
}

/// A station by its file.
pub struct RunningStation {
    pub service: Option<Service>,
    /// Where its API listens by TCP.
    pub address: Option<SocketAddr>,
    file: PathBuf,
    store: PathBuf,
    stop: Stop,
}

impl Network {
    /// `text`: what the measuring station's configuration has besides its name, API and store.
    pub fn new(name: &str, text: &str) -> Network {
        let bed = Bed::new(name);
        let topology = Topology::pair(name, &LinkOptions::default()).unwrap();
        let operate = issue_token("prometheus", AccessRole::Operate, None).unwrap();
        let read = issue_token("page", AccessRole::Read, None).unwrap();
        let tokens = bed.write("tokens", &format!("{}\n{}\n", operate.line, read.line));
        let head = format!(
            "[station]\nname = 'ber'\n[api]\nlisten = '127.0.0.1:0'\ntokens = '{tokens}'\n"
        );
        let answers = "[reflect.main]\nengine = { iface = 'eth0' }\n[api]\nsocket = ''\n";
        let answering =
            RunningStation::start(&topology.reflector, answers, &bed.folder.join("far"));
        let near = topology.probe.clone();
        let measures = format!("{head}{text}");
        let station = RunningStation::start(&near, &measures, &bed.folder.join("near"));
        Network {
            station,
            operate: operate.secret,
            read: read.secret,
            head,
            _answering: answering,
            near,
            _topology: topology,
            bed,
        }
    }

    /// Goes over to another configuration.
    pub fn reload(&self, text: &str) {
        self.try_reload(text).unwrap();
    }

    /// The same, where it may be refused.
    pub fn try_reload(&self, text: &str) -> Result<(), ReloadFailure> {
        write_config(&self.station.file, &format!("{}{text}", self.head), &self.station.store);
        let service = self.station.service.as_ref().unwrap();
        // Threads that begin are in the namespace of who asks.
        self.near.inside(|| service.reload().map(drop)).unwrap()
    }

    /// Pings, which are other people's traffic: each echo is a round trip.
    pub fn ping(&self) -> std::process::Command {
        let mut ping = self.near.command("ping");
        ping.args(["-n", "-q", "-i", "0.05", TARGET]);
        ping
    }

    /// Asks the station by its socket.
    pub fn client(&self) -> StationClient {
        StationClient::new(&default_socket(&self.station.store))
    }

    /// What the station's health says of an exporter.
    pub fn export(&self, name: &str) -> Value {
        let health = self.client().get("/sonde/v1/station/health").unwrap();
        let exports = health["exports"].as_array().unwrap();
        exports.iter().find(|export| export["name"] == name).cloned().unwrap_or_default()
    }

    /// The sum of a series of `/metrics`, by the begin of its lines.
    pub fn metric(&self, begin: &str) -> f64 {
        let reply = self.client().send("GET", "/metrics", &[], "").unwrap();
        let text = String::from_utf8(reply.body).unwrap();
        let lines = text.lines().filter(|line| line.starts_with(begin));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// The address of the station's API, as text.
    pub fn api(&self) -> String {
        self.station.address.unwrap().to_string()
    }
}

impl RunningStation {
    fn start(host: &Host, text: &str, store: &Path) -> RunningStation {
        let file = store.with_extension("toml");
        write_config(&file, text, store);
        let stop = Stop::default();
        let (asked, path) = (stop.clone(), file.clone());
        let start = move || {
            let loaded = LoadedConfig::read(&path).unwrap();
            let bound = BoundApi::bind(&loaded.config.api, &loaded.config.store.path).unwrap();
            let address = bound.address();
            let (hub, how) = (Hub::new(Report::records), (None, Invocation::default()));
            (Service::start(&path, loaded, bound, hub, asked, how).unwrap(), address)
        };
        let (service, address) = host.inside(start).unwrap();
        RunningStation { service: Some(service), address, file, store: store.to_owned(), stop }
    }
}

impl Drop for RunningStation {
    fn drop(&mut self) {
        self.stop.ask();
        self.service.take().map(Service::join);
    }
}

fn write_config(file: &Path, text: &str, store: &Path) {
    fs::write(file, format!("{text}\n[store]\npath = '{}'\n", store.display())).unwrap();
}
