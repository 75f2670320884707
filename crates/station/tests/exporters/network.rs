//! Two hosts and a link: a station on one answers probes, one on the other measures.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sonde_lab::{Host, LinkOptions, Topology};
use sonde_run::running::{Invocation, Stop};
use sonde_station::hub::{Hub, Report};
use sonde_station::serve::{AccessRole, BoundApi, issue_token};
use sonde_station::service::{LoadedConfig, Service};

use crate::bed::Bed;

/// The target of the measuring station.
pub const TARGET: &str = "10.1.0.2";

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
        write_config(&self.station.file, &format!("{}{text}", self.head), &self.station.store);
        self.station.service.as_ref().unwrap().reload().unwrap();
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
