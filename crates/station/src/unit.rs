//! What a unit is: an instrument, its settings, and the network namespace in which it works.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use sonde_run::change::Change;
use sonde_run::confined::Uses;
use sonde_run::engine::{Engine, EngineSettings};
use sonde_run::error::SettingsError;
use sonde_run::flow::settings::InputEngine;
use sonde_run::rtt::Hook;
use sonde_run::{flow, probe, reflect, rtt};
use sonde_testbed::{agent, otg};

use crate::plan::{Resource, UnitSpec};

/// An instrument, and where it works.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// What it does.
    pub instrument: Instrument,
    /// The network namespace, as `ip netns` calls it; `None`: that of the station.
    pub netns: Option<String>,
}

/// An instrument of the station, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Instrument {
    /// A STAMP sender.
    Probe(Box<probe::Settings>),
    /// A STAMP reflector.
    Reflect(Box<reflect::Settings>),
    /// Round-trip times of other people's traffic.
    Rtt(Box<rtt::Settings>),
    /// Flow metering.
    Flow(Box<flow::Settings>),
    /// A traffic generator for clients of the Open Traffic Generator model.
    Otg(Box<otg::Settings>),
    /// This host's ports for a benchmark's controller.
    Agent(Box<agent::Settings>),
}

impl Instrument {
    /// What the kind is called in the configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            Instrument::Probe(_) => "probe",
            Instrument::Reflect(_) => "reflect",
            Instrument::Rtt(_) => "rtt",
            Instrument::Flow(_) => "flow",
            Instrument::Otg(_) => "otg",
            Instrument::Agent(_) => "agent",
        }
    }

    /// Whether the settings can be.
    ///
    /// # Errors
    /// The first that cannot, with its key within the unit.
    pub fn check(&self) -> Result<(), SettingsError> {
        match self {
            Instrument::Probe(settings) => {
                settings.check()?;
                settings.check_names()?;
                settings.check_hosts()
            }
            Instrument::Reflect(settings) => settings.check(),
            Instrument::Rtt(settings) => {
                settings.check()?;
                no_standard_input(&settings.sources)
            }
            Instrument::Flow(settings) => {
                settings.check()?;
                no_standard_input(&settings.sources)?;
                no_standard_stream("export.write", &settings.export.write)?;
                no_standard_stream("export.jsonl", &settings.export.jsonl)
            }
            Instrument::Otg(settings) => {
                settings.check()?;
                match settings.ca.is_none() && settings.token_file.is_none() {
                    // Whoever reads a station's log may not send test traffic.
                    true => Err(SettingsError::new(
                        "token_file",
                        "name a file for the token that clients show, or give `ca`",
                    )),
                    false => Ok(()),
                }
            }
            Instrument::Agent(settings) => settings.check(),
        }
    }

    /// What it needs of the rights that a station started with, to open and to open again.
    fn uses(&self) -> Vec<Uses> {
        match self {
            Instrument::Probe(settings) => vec![Uses::Engine(settings.engine.engine)],
            Instrument::Reflect(settings) => {
                let program = settings.kernel.then_some(Uses::Program);
                [Uses::Engine(settings.engine.engine)].into_iter().chain(program).collect()
            }
            Instrument::Rtt(settings) => vec![settings.engine.map_or(Uses::Program, Uses::Engine)],
            Instrument::Flow(settings) => vec![Uses::Engine(match settings.input.engine {
                None | Some(InputEngine::AfPacket) => Engine::AfPacket,
                Some(InputEngine::Header | InputEngine::AfXdp) => Engine::AfXdp,
            })],
            Instrument::Otg(settings) => with_low_port(settings.uses(), settings.listen),
            Instrument::Agent(settings) => with_low_port(settings.uses(), settings.listen),
        }
    }

    /// Files that mostly their owner alone may read: a station stays root where its user does not
    /// own them.
    pub fn secrets(&self) -> Vec<PathBuf> {
        match self {
            Instrument::Otg(settings) => settings.key.iter().cloned().collect(),
            Instrument::Agent(settings) => vec![settings.key.clone()],
            _ => Vec::new(),
        }
    }

    /// Files and folders that it writes to.
    pub fn writes(&self) -> Vec<PathBuf> {
        match self {
            Instrument::Flow(settings) => {
                let export = &settings.export;
                export.write.iter().chain(&export.jsonl).chain(&export.spool).cloned().collect()
            }
            Instrument::Otg(settings) => {
                let files = settings.token_file.iter().chain(&settings.runs);
                files.cloned().collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Unit {
    /// What it needs of the rights that a station started with, to open and to open again.
    pub fn uses(&self) -> Vec<Uses> {
        let enters = self.netns.is_some().then_some(Uses::Namespaces);
        self.instrument.uses().into_iter().chain(enters).collect()
    }
}

impl UnitSpec for Unit {
    fn change(&self, new: &Unit) -> Change {
        match self.netns == new.netns {
            true => self.instrument.change(&new.instrument),
            false => Change::Restart("its network namespace is another".into()),
        }
    }

    fn holds(&self) -> Vec<Resource> {
        let holds = self.instrument.holds().into_iter();
        let Some(netns) = &self.netns else { return holds.collect() };
        holds.map(|resource| resource.in_namespace(netns)).collect()
    }
}

impl Instrument {
    fn change(&self, new: &Instrument) -> Change {
        use Instrument::{Agent, Flow, Otg, Probe, Reflect, Rtt};
        match (self, new) {
            (Probe(old), Probe(new)) => old.change(new),
            (Reflect(old), Reflect(new)) => old.change(new),
            (Rtt(old), Rtt(new)) => old.change(new),
            (Flow(old), Flow(new)) => old.change(new),
            (Otg(old), Otg(new)) => old.change(new),
            (Agent(old), Agent(new)) => old.change(new),
            _ => Change::Restart(format!("it is a {} instead of a {}", new.kind(), self.kind())),
        }
    }

    fn holds(&self) -> Vec<Resource> {
        match self {
            Instrument::Probe(settings) => {
                xdp_hook(&settings.engine).into_iter().chain(source_ports(settings)).collect()
            }
            Instrument::Reflect(settings) => reflector_holds(settings),
            Instrument::Rtt(settings) if settings.hook == Some(Hook::Xdp) => {
                settings.sources.iter().cloned().map(Resource::XdpHook).collect()
            }
            Instrument::Rtt(_) => Vec::new(),
            Instrument::Flow(settings) => flow_holds(settings),
            Instrument::Otg(settings) => {
                let files = settings.token_file.iter().chain(&settings.runs).cloned();
                [tcp_port(settings.listen)].into_iter().chain(files.map(Resource::File)).collect()
            }
            Instrument::Agent(settings) => vec![tcp_port(settings.listen)],
        }
    }
}

/// The hook that AF_XDP takes, where the interface is known before the route is asked for.
fn xdp_hook(engine: &EngineSettings) -> Option<Resource> {
    let iface = engine.iface.clone().filter(|_| engine.engine == Engine::AfXdp)?;
    Some(Resource::XdpHook(iface))
}

/// The ports that a probe was told to send from: one for each class of a destination.
fn source_ports(settings: &probe::Settings) -> Vec<Resource> {
    let mut ports = BTreeMap::<(&str, Option<IpAddr>, u16), u16>::new();
    for target in &settings.targets {
        let stream = target.stream.clone().or(&settings.stream).resolve();
        let Some(low) = stream.source_port.filter(|_| stream.flows == 1) else { continue };
        let classes = u16::try_from(stream.dscp.len()).unwrap_or(u16::MAX);
        let taken = ports.entry((&target.host, stream.source, low)).or_default();
        *taken = taken.saturating_add(classes);
    }
    let mut most = BTreeMap::<(Option<IpAddr>, u16), u16>::new();
    for ((_, source, low), n) in ports {
        let known = most.entry((source, low)).or_default();
        *known = n.max(*known);
    }
    let held = most.into_iter().map(|((address, low), n)| {
        let high = low.saturating_add(n.saturating_sub(1));
        Resource::SourcePorts { address, low, high }
    });
    held.collect()
}

fn reflector_holds(settings: &reflect::Settings) -> Vec<Resource> {
    let addresses = match settings.bind.as_slice() {
        [] => vec![None],
        all => all.iter().map(|bind| Some(bind.address)).collect(),
    };
    let mut holds: Vec<Resource> = addresses
        .into_iter()
        .flat_map(|address| {
            settings.port.iter().map(move |&port| Resource::UdpPort { address, port })
        })
        .collect();
    let kernel = settings.kernel.then(|| settings.engine.iface.clone()).flatten();
    holds.extend(kernel.map(Resource::XdpHook));
    holds.extend(xdp_hook(&settings.engine));
    holds
}

fn flow_holds(settings: &flow::Settings) -> Vec<Resource> {
    let takes = matches!(settings.input.engine, Some(InputEngine::Header | InputEngine::AfXdp));
    let hooks = settings.sources.iter().filter(|_| takes).cloned().map(Resource::XdpHook);
    let files = settings.export.write.iter().chain(&settings.export.jsonl).cloned();
    hooks.chain(files.map(Resource::File)).collect()
}

/// The port that is listened on; an unspecified address stands for all.
fn tcp_port(listen: SocketAddr) -> Resource {
    let address = Some(listen.ip()).filter(|address| !address.is_unspecified());
    Resource::TcpPort { address, port: listen.port() }
}

/// A restart binds again.
fn with_low_port(mut uses: Vec<Uses>, listen: SocketAddr) -> Vec<Uses> {
    uses.extend((listen.port() < 1_024).then_some(Uses::Engine(Engine::Socket)));
    uses
}

fn no_standard_input(sources: &[String]) -> Result<(), SettingsError> {
    match sources.iter().any(|source| source == "-") {
        true => Err(SettingsError::new("sources", "a station has no standard input; name a file")),
        false => Ok(()),
    }
}

/// A station has no standard output to give away.
fn no_standard_stream<'a>(
    key: &str,
    paths: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), SettingsError> {
    match paths.into_iter().any(|path| path.as_os_str() == "-") {
        true => Err(SettingsError::new(key, "a station has no standard output; name a file")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reflector_holds_its_ports_and_that_of_the_kernel_a_hook() {
        let settings = reflect::Settings { port: vec![862, 863], ..reflect::Settings::default() };
        let port = |port| Resource::UdpPort { address: None, port };
        let of = |settings| Instrument::Reflect(Box::new(settings)).holds();
        assert_eq!(of(settings.clone()), [port(862), port(863)]);
        let engine = EngineSettings { iface: Some("eth0".into()), ..EngineSettings::default() };
        let kernel = reflect::Settings { port: vec![862], kernel: true, engine, ..settings };
        assert_eq!(of(kernel), [port(862), Resource::XdpHook("eth0".into())]);
    }

    #[test]
    fn a_server_holds_its_port_and_wants_its_secrets_to_be_the_stations() {
        let agent = |listen: &str| {
            Instrument::Agent(Box::new(agent::Settings {
                listen: listen.parse().unwrap(),
                cert: "a.pem".into(),
                key: "a.key".into(),
                ca: "ca.pem".into(),
                allow: Vec::new(),
            }))
        };
        let port = |address: Option<&str>, port| Resource::TcpPort {
            address: address.map(|a| a.parse().unwrap()),
            port,
        };
        assert_eq!(agent("192.0.2.1:8620").holds(), [port(Some("192.0.2.1"), 8_620)]);
        assert_eq!(agent("0.0.0.0:620").holds(), [port(None, 620)]);
        assert!(agent("0.0.0.0:620").holds()[0].meets(&port(Some("192.0.2.1"), 620)));
        assert_eq!(agent("192.0.2.1:8620").secrets(), [PathBuf::from("a.key")]);
        let uses = vec![Uses::Trials, Uses::Namespaces];
        assert_eq!(agent("192.0.2.1:8620").uses(), uses);
        let low = [uses, vec![Uses::Engine(Engine::Socket)]].concat();
        assert_eq!(agent("192.0.2.1:620").uses(), low);
        let otg = |text: &str| {
            let settings: otg::Settings = serde_json::from_str(text).unwrap();
            Instrument::Otg(Box::new(settings))
        };
        let why = otg(r#"{"listen": "127.0.0.1:8443"}"#).check().unwrap_err();
        assert!(why.message.contains("name a file for the token"), "{why}");
        let kept = otg(r#"{"listen": "127.0.0.1:8443", "token_file": "t", "runs": "r"}"#);
        assert_eq!(kept.check(), Ok(()));
        assert_eq!((kept.uses(), kept.writes().len()), (vec![Uses::Commands], 2));
        assert_eq!(kept.holds()[1], Resource::File("t".into()));
    }

    #[test]
    fn another_instrument_of_the_same_name_begins_anew() {
        let rtt = Instrument::Rtt(Box::default());
        let why = "it is a rtt instead of a flow".to_owned();
        assert_eq!(Instrument::Flow(Box::default()).change(&rtt), Change::Restart(why));
        assert_eq!(rtt.change(&rtt), Change::Same);
    }
}
