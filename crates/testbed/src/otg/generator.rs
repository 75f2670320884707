//! The traffic generator behind the model: its ports, and the flows on them.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sonde_port::PortError;
use sonde_port::raw::NeighbourSocket;
use sonde_server::http::ConnectionAddresses;
use sonde_server::otg::config::Config;
use sonde_server::otg::control::{CaptureState, FlowTransmit, PortCapture, TransmitChange};
use sonde_server::otg::devices::Neighbor;
use sonde_server::otg::metrics::{
    FlowLatency, FlowMetric, FlowRates, PortMetric, Timestamps, TransmitState,
};
use sonde_server::otg::ports::CaptureRequest;
use sonde_server::otg::{OtgBackend, Problem};
use sonde_server::runs::RunRefusal;
use sonde_sys::netns;
use sonde_wire::signature::Secret;

use super::allowed::Allowed;
use super::details::{self, FlowState};
use super::devices::{self, EmulatedInterface, Presence};
use super::flow::{FlowPlan, PortsView};
use super::port::{FoundInterface, PortLocation, TestPort};
use super::port_settings::{PortSettings, settings};
use super::rates::zero_or_more;
use super::receiver::{self, FlowReceived};
use super::sender;
use super::way::Ways;

/// A traffic generator on this host's ports.
pub struct OtgGenerator {
    allowed: Allowed,
    secret: Secret,
    setup: Mutex<Option<Setup>>,
    /// No flow may be started. Changed only by who holds `setup`, but for its end.
    reserved: AtomicBool,
}

/// While it is there this host sends no flows, and nobody else has another one.
pub struct Reserved(Arc<OtgGenerator>);

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.reserved.store(false, Ordering::Release);
    }
}

/// What a configuration comes to. Dropping it ends its threads and gives the ports back.
struct Setup {
    ports: Vec<TestPort>,
    /// Dropped after the ports, which give them their frames.
    present: Vec<Presence>,
    interfaces: Vec<EmulatedInterface>,
    flows: Vec<Arc<FlowPlan>>,
    data_integrity: bool,
    /// Of the flow that is started next.
    tag: u8,
}

impl OtgGenerator {
    pub fn new(allowed: Allowed, secret: Secret) -> OtgGenerator {
        OtgGenerator { allowed, secret, setup: Mutex::new(None), reserved: AtomicBool::new(false) }
    }

    /// Has this host for something that flows would disturb.
    ///
    /// # Errors
    /// Flows are under way, or somebody has it already.
    pub fn reserve(generator: &Arc<OtgGenerator>) -> Result<Reserved, RunRefusal> {
        let setup = generator.setup();
        if generator.reserved.load(Ordering::Acquire) {
            let why = "another run is under way; stop it, or wait for its end";
            return Err(RunRefusal::Busy(why.into()));
        }
        // A port that has failed sends nothing.
        let sending = setup
            .as_ref()
            .and_then(|s| s.states().ok())
            .is_some_and(|states| states.iter().any(|s| s.sent.state != TransmitState::Stopped));
        if sending {
            return Err(RunRefusal::Busy("flows are under way; stop them first".into()));
        }
        generator.reserved.store(true, Ordering::Release);
        Ok(Reserved(Arc::clone(generator)))
    }

    fn setup(&self) -> MutexGuard<'_, Option<Setup>> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with what is configured.
    fn with<T>(&self, work: impl FnOnce(&mut Setup) -> Result<T, Problem>) -> Result<T, Problem> {
        match self.setup().as_mut() {
            Some(setup) => work(setup),
            None => Err(Problem::invalid("nothing is configured; POST /config first")),
        }
    }
}

impl OtgBackend for OtgGenerator {
    fn configure(
        &self,
        config: Config,
        client: ConnectionAddresses,
    ) -> Result<Vec<String>, Problem> {
        let mut setup = self.setup();
        // The old threads hold the ports that the new ones may want.
        *setup = None;
        if config.ports.is_empty() && config.flows.is_empty() && config.devices.is_empty() {
            return Ok(Vec::new());
        }
        let ways = Ways::of(client);
        let (made, warnings) = Setup::make(&config, &self.allowed, &ways, self.secret)?;
        *setup = Some(made);
        Ok(warnings)
    }

    fn transmit(&self, change: &FlowTransmit) -> Result<Vec<String>, Problem> {
        self.with(|setup| {
            let begins = matches!(change.state, TransmitChange::Start | TransmitChange::Resume);
            if begins && self.reserved.load(Ordering::Acquire) {
                let why = "the run of a plan is under way: flows would disturb it";
                return Err(Problem::Busy(why.into()));
            }
            let which = setup.find(&change.flow_names)?;
            setup.change(&which, change.state)?;
            Ok(Vec::new())
        })
    }

    fn protocols(&self, start: bool) -> Result<Vec<String>, Problem> {
        self.with(|setup| {
            if setup.interfaces.is_empty() {
                return Ok(vec![
                    "there are no devices, so there is nothing to start or stop".into(),
                ]);
            }
            setup.part()?;
            if start { setup.appear() } else { Ok(Vec::new()) }
        })
    }

    fn capture(&self, change: &PortCapture) -> Result<Vec<String>, Problem> {
        self.with(|setup| {
            let which: Vec<&TestPort> = match &change.port_names[..] {
                [] => setup.ports.iter().filter(|p| p.captures()).collect(),
                names => names.iter().map(|n| setup.port(n)).collect::<Result<_, _>>()?,
            };
            if which.is_empty() {
                return Err(Problem::invalid("no captures are configured; see 'captures'"));
            }
            let start = change.state == CaptureState::Start;
            which.iter().try_for_each(|port| port.capture(start))?;
            Ok(Vec::new())
        })
    }

    fn captured(&self, request: &CaptureRequest) -> Result<Vec<u8>, Problem> {
        let (skip, count) = request.range();
        self.with(|setup| setup.port(&request.port_name)?.capture_file(skip, count))
    }

    fn neighbors(&self) -> Result<Vec<Neighbor>, Problem> {
        self.with(|setup| Ok(setup.interfaces.iter().map(EmulatedInterface::neighbor).collect()))
    }

    fn flow_metrics(&self, names: &[String]) -> Result<Vec<FlowMetric>, Problem> {
        self.with(|setup| {
            let which = setup.find(names)?;
            let states = setup.states()?;
            let measured = |(i, s): &(usize, FlowState<'_>)| which.contains(i) && s.plan.measured;
            Ok(states.into_iter().enumerate().filter(measured).map(|(_, s)| metric(&s)).collect())
        })
    }

    fn port_metrics(&self, names: &[String]) -> Result<Vec<PortMetric>, Problem> {
        self.with(|setup| {
            names.iter().try_for_each(|name| setup.port(name).map(drop))?;
            let wanted = |p: &&TestPort| names.is_empty() || names.contains(&p.name);
            let ports = setup.ports.iter().filter(wanted);
            ports.map(|p| p.metric(setup.data_integrity)).collect()
        })
    }

    fn details(&self) -> Result<Value, Problem> {
        self.with(|setup| {
            let flows: Vec<Value> = setup.states()?.iter().map(details::flow).collect();
            let ports = setup
                .ports
                .iter()
                .map(|port| Ok(details::port(port, &port.sent()?.stats, &port.received()?)));
            Ok(json!({ "flows": flows, "ports": ports.collect::<Result<Vec<_>, Problem>>()? }))
        })
    }
}

impl Setup {
    fn make(
        config: &Config,
        allowed: &Allowed,
        ways: &Ways,
        secret: Secret,
    ) -> Result<(Setup, Vec<String>), Problem> {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        names_differ(config, &mut errors);
        let own = netns::identity().ok();
        let mut found = Vec::new();
        for (i, port) in config.ports.iter().enumerate() {
            let location = port.location.as_deref().unwrap_or_default();
            match PortLocation::read(location)
                .and_then(|l| FoundInterface::look(l).map_err(|e| format!("{e:#}")))
            {
                Ok(port) => {
                    if let Some(why) =
                        ways.refuse(port.ifindex).filter(|_| own == Some(port.namespace))
                    {
                        errors.push(format!(
                            "ports[{i}].location: {location}: {why}, and all that comes in at a \
                             port is taken away from the host; name another interface"
                        ));
                    }
                    found.push(port);
                }
                Err(e) => errors.push(format!("ports[{i}].location: {e}")),
            }
        }
        let same = |a: &FoundInterface, b: &FoundInterface| {
            (a.namespace, a.ifindex) == (b.namespace, b.ifindex)
        };
        if found.iter().enumerate().any(|(i, a)| found[..i].iter().any(|b| same(a, b))) {
            errors.push("ports: two have the same location".into());
        }
        if config.flows.len() > FLOWS_MAX {
            errors.push(format!("flows: at most {FLOWS_MAX}"));
        }
        // Without the ports every flow would complain of what is no fault of its own.
        if !errors.is_empty() {
            return Err(Problem::Invalid(errors));
        }
        let names: Vec<String> = config.ports.iter().map(|p| p.name.clone()).collect();
        let wanted = settings(config, &names).map_err(Problem::Invalid)?;
        // Set back when this configuration, or an attempt at it, is dropped.
        for (port, w) in found.iter_mut().zip(&wanted) {
            port.set(w.mtu, &mut warnings);
        }
        let speeds: Vec<Option<u64>> =
            found.iter().zip(&wanted).map(|(port, w)| w.speed(port.speed_bps)).collect();
        for ((port, w), name) in found.iter().zip(&wanted).zip(&names) {
            warnings.extend(w.warnings(name, port.speed_bps));
        }
        let longest: Vec<usize> = found.iter().map(FoundInterface::longest).collect();
        let interfaces = devices::interfaces(&config.devices, &names, allowed, &mut errors);
        if !errors.is_empty() {
            return Err(Problem::Invalid(errors));
        }
        let view = PortsView {
            names: &names,
            speeds: &speeds,
            longest: &longest,
            interfaces: &interfaces,
        };
        let mut flows = Vec::new();
        for (i, flow) in config.flows.iter().enumerate() {
            match FlowPlan::new(flow, &view, allowed) {
                Ok(plan) => {
                    if flow.metrics.latency.enable && found[plan.from].kind.is_empty() {
                        warnings.push(format!(
                            "flows[{i}].metrics.latency: stamps are of software: from before the \
                             first bit leaves to after the last has come, in either mode"
                        ));
                    }
                    flows.push(Arc::new(plan));
                }
                Err(list) => errors.extend(list.iter().map(|e| format!("flows[{i}].{e}"))),
            }
        }
        if !errors.is_empty() {
            return Err(Problem::Invalid(errors));
        }
        let captured = |w: &PortSettings| w.capture.map(|capture| &config.captures[capture]);
        let open = |(i, found)| {
            let capture = captured(&wanted[i]);
            TestPort::open(i, &names[i], found, capture, &flows, secret, &mut warnings)
        };
        let ports = found.into_iter().enumerate().map(open).collect::<Result<Vec<_>, _>>();
        let ports = ports.map_err(Problem::Internal)?;
        let data_integrity = config.options.port_options.data_integrity;
        let present = Vec::new();
        let mut setup = Setup { ports, present, interfaces, flows, data_integrity, tag: 0 };
        // As other generators have it: a client may wait for its gateways at once.
        warnings.extend(setup.appear()?);
        Ok((setup, warnings))
    }

    fn port(&self, name: &str) -> Result<&TestPort, Problem> {
        let port = self.ports.iter().find(|p| p.name == name);
        port.ok_or_else(|| Problem::invalid(format!("there is no port '{name}'")))
    }

    /// The devices answer no more, and forget their gateways.
    fn part(&mut self) -> Result<(), Problem> {
        for port in &self.ports {
            port.receiver.ask(|to| receiver::ReceiverCommand::Neighbours(None, to))?;
        }
        self.present.clear();
        Ok(())
    }

    /// The devices ask for their gateways, and answer.
    fn appear(&mut self) -> Result<Vec<String>, Problem> {
        for (i, port) in self.ports.iter().enumerate() {
            let own = self.interfaces.iter().filter(|own| own.port == i).cloned();
            let own: Vec<EmulatedInterface> = own.collect();
            if own.is_empty() {
                continue;
            }
            port.ready()?;
            let open = || NeighbourSocket::open(&port.location.interface);
            let socket = netns::inside(port.location.netns.as_deref(), open);
            let socket = socket.map_err(PortError::from).flatten();
            let failed = |why: String| Problem::Internal(format!("port {}: {why}", port.name));
            let socket = socket.map_err(|e| failed(e.to_string()))?;
            let (frames, taken) = mpsc::sync_channel(QUESTIONS);
            port.receiver.ask(|to| receiver::ReceiverCommand::Neighbours(Some(frames), to))?;
            self.present.push(Presence::start(socket, own, taken).map_err(failed)?);
        }
        Ok(Vec::new())
    }

    /// The indices of flows; no name: all.
    fn find(&self, names: &[String]) -> Result<Vec<usize>, Problem> {
        if names.is_empty() {
            return Ok((0..self.flows.len()).collect());
        }
        let find = |name: &String| {
            let index = self.flows.iter().position(|f| &f.name == name);
            index.ok_or_else(|| Problem::invalid(format!("there is no flow '{name}'")))
        };
        names.iter().map(find).collect()
    }

    fn change(&mut self, which: &[usize], change: TransmitChange) -> Result<(), Problem> {
        let tagged: Vec<(u16, u8)> = which
            .iter()
            .map(|&i| {
                self.tag = self.tag.wrapping_add(1);
                (i as u16, self.tag)
            })
            .collect();
        let silent = which.iter().map(|&i| &self.flows[i]).find(|f| f.frames.unresolved());
        if let Some(flow) =
            silent.filter(|_| matches!(change, TransmitChange::Start | TransmitChange::Resume))
        {
            let FlowPlan { name, from, .. } = &**flow;
            let why = match self.present.is_empty() {
                true => "the protocols are stopped, so nobody asks for its gateway's MAC address; \
                         start the protocols"
                    .to_owned(),
                false => format!(
                    "the gateway of its device has not answered for its address (ARP or neighbour \
                     discovery); POST /monitor/states shows when it has. Where it never does: is \
                     the gateway on, and is that its address at port '{}'?",
                    self.ports[*from].name
                ),
            };
            return Err(Problem::invalid(format!("flow '{name}': {why}")));
        }
        let begins = match change {
            TransmitChange::Start => tagged.clone(),
            TransmitChange::Resume => {
                // Only those that are stopped begin anew.
                let states = self.states()?;
                let stopped = |&&(i, _): &&(u16, u8)| {
                    states[usize::from(i)].sent.state == TransmitState::Stopped
                };
                tagged.iter().filter(stopped).copied().collect()
            }
            TransmitChange::Stop | TransmitChange::Pause => Vec::new(),
        };
        if matches!(change, TransmitChange::Start | TransmitChange::Resume) {
            // All or none of them is started.
            let uses = |port: usize| {
                let of = |flow: &FlowPlan| flow.from == port || flow.to.contains(&port);
                which.iter().any(|&i| of(&self.flows[i]))
            };
            let ports = self.ports.iter().enumerate();
            ports.filter(|&(i, _)| uses(i)).try_for_each(|(_, port)| port.ready())?;
        }
        if !begins.is_empty() {
            let clear = change == TransmitChange::Start;
            for port in &self.ports {
                port.receiver
                    .ask(|to| receiver::ReceiverCommand::Expect(begins.clone(), clear, to))?;
            }
        }
        for (i, port) in self.ports.iter().enumerate() {
            let own = |&&(n, _): &&(u16, u8)| self.flows[usize::from(n)].from == i;
            let own: Vec<_> = tagged.iter().filter(own).copied().collect();
            if let Some(sender) = port.sender.as_ref().filter(|_| !own.is_empty()) {
                sender.ask(|to| sender::SenderCommand::Change(own, change, to))?;
            }
        }
        Ok(())
    }

    fn states(&self) -> Result<Vec<FlowState<'_>>, Problem> {
        // Receivers first: whatever had come by then had been sent before.
        let came = self.ports.iter().map(TestPort::received).collect::<Result<Vec<_>, _>>()?;
        let mut sent = BTreeMap::new();
        for port in &self.ports {
            sent.extend(port.sent()?.flows);
        }
        let mut states = Vec::with_capacity(self.flows.len());
        for (i, plan) in self.flows.iter().enumerate() {
            let own = |&port: &usize| {
                let mut flows = came[port].flows.iter();
                flows.find(|(n, _)| usize::from(*n) == i).map(|(_, r)| r.clone())
            };
            states.push(FlowState {
                plan: plan.as_ref(),
                from: &self.ports[plan.from].name,
                to: plan.to.iter().map(|&p| self.ports[p].name.as_str()).collect(),
                sent: sent.remove(&(i as u16)).unwrap_or_default(),
                received: plan.to.iter().filter_map(own).collect(),
            });
        }
        Ok(states)
    }
}

fn metric(s: &FlowState<'_>) -> FlowMetric {
    let sum = |of: fn(&FlowReceived) -> u64| s.received.iter().map(of).sum::<u64>();
    let rate = |i: usize| zero_or_more(s.received.iter().map(|r| r.rates[i]));
    let frames_rx = sum(|r| r.frames);
    let expected = |ratio: f64| s.sent.frames as f64 * ratio;
    let mut latency = sonde_results::Hist::default();
    s.received.iter().for_each(|r| latency.merge(&r.latency));
    let came = s.received.iter().filter(|r| r.frames > 0);
    FlowMetric {
        name: s.plan.name.clone(),
        port_tx: s.from.to_owned(),
        port_rx: if let [one] = s.to[..] { one.to_owned() } else { String::new() },
        transmit: s.sent.state,
        frames_tx: s.sent.frames,
        frames_rx,
        bytes_tx: s.sent.bytes,
        bytes_rx: sum(|r| r.bytes),
        rates: FlowRates::new([s.sent.rates[0], rate(0)], [s.sent.rates[1], rate(1)]),
        loss: s.plan.metrics.loss.map(|ratio| match expected(ratio) {
            0.0 => 0.0,
            all => ((all - frames_rx as f64) / all * 100.0).max(0.0),
        }),
        timestamps: s.plan.metrics.timestamps.then(|| Timestamps {
            first_timestamp_ns: came.clone().map(|r| r.times[0]).min().unwrap_or(0) as f64,
            last_timestamp_ns: came.clone().map(|r| r.times[1]).max().unwrap_or(0) as f64,
        }),
        latency: s.plan.metrics.latency.then(|| FlowLatency {
            minimum_ns: latency.min as f64,
            maximum_ns: latency.max as f64,
            average_ns: latency.mean().unwrap_or(0.0),
        }),
    }
}

/// Names are unique in the whole configuration.
fn names_differ(config: &Config, errors: &mut Vec<String>) {
    let mut seen = HashSet::new();
    let ports = config.ports.iter().map(|p| &p.name);
    let devices = config.devices.iter().flat_map(|d| {
        let below = d.ethernets.iter().flat_map(|e| {
            let v4 = e.ipv4_addresses.iter().map(|ip| &ip.name);
            v4.chain(e.ipv6_addresses.iter().map(|ip| &ip.name)).chain([&e.name])
        });
        below.chain([&d.name])
    });
    let links = config.layer1.iter().map(|l| &l.name);
    let links = links.chain(config.captures.iter().map(|c| &c.name));
    let flows = config.flows.iter().map(|f| &f.name);
    for name in ports.chain(links).chain(devices).chain(flows) {
        if name.is_empty() || !seen.insert(name) {
            errors.push(format!("name '{name}': everything needs one of its own"));
        }
    }
}

/// Flows: each takes some 100 KiB for its distributions.
const FLOWS_MAX: usize = 1024;
/// Frames of neighbours that may wait for a port's devices.
const QUESTIONS: usize = 256;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_names_all_that_is_wrong() {
        let generator =
            OtgGenerator::new(Allowed { prefixes: Vec::new(), types: Vec::new() }, Secret([1, 2]));
        let config = json!({
            "ports": [{ "name": "a", "location": "no such" }, { "name": "a" }],
            "flows": [{ "name": "a", "tx_rx": { "port": { "tx_name": "a" } } }],
        });
        let config: Config = serde_json::from_value(config).unwrap();
        let Err(Problem::Invalid(errors)) =
            generator.configure(config, ConnectionAddresses::LOOPBACK)
        else {
            panic!()
        };
        for part in ["name 'a'", "ports[0].location: no interface", "ports[1].location: name an"] {
            assert!(errors.iter().any(|e| e.contains(part)), "{part}: {errors:?}");
        }
        assert!(matches!(generator.flow_metrics(&[]), Err(Problem::Invalid(_))));
        // What the whole host needs is no port, by whatever name.
        let lo = json!({ "ports": [{ "name": "a", "location": "lo" }] });
        let lo: Config = serde_json::from_value(lo).unwrap();
        let Err(Problem::Invalid(errors)) = generator.configure(lo, ConnectionAddresses::LOOPBACK)
        else {
            panic!()
        };
        assert!(errors[0].contains("loopback") && errors[0].contains("veth"), "{errors:?}");
    }
}
