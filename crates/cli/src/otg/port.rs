//! A port of the generator: the thread that receives on it, and the one that sends.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_port::host::InterfaceFacts;
use sonde_port::netlink::{Link, Links};
use sonde_port::{Engine, Filter, OpenSpec, PortError, netns};
use sonde_server::otg::Problem;
use sonde_server::otg::metrics::{DataIntegrity, PortMetric, TransmitState};
use sonde_wire::signature::Secret;

use super::flow::FlowPlan;
use super::receiver::{self, ReceiverReport};
use super::sender::{self, SenderReport, Sent};

/// A port with its threads. Dropping it ends them.
pub struct TestPort {
    /// As in the configuration.
    pub name: String,
    /// The interface.
    pub location: Location,
    ifindex: u32,
    links: Mutex<Links>,
    /// Where a flow leaves here.
    pub sender: Option<Worker<sender::Order>>,
    /// Takes every frame that comes.
    pub receiver: Worker<receiver::Order>,
}

/// Where a port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// By its name in `ip netns`; none: this one.
    pub netns: Option<String>,
    /// In it.
    pub interface: String,
}

/// A thread, and how to talk to it.
pub struct Worker<O> {
    orders: Option<mpsc::Sender<O>>,
    thread: Option<JoinHandle<()>>,
}

/// An interface, before it is a port.
pub struct Found {
    /// Where.
    pub location: Location,
    ifindex: u32,
    mtu: u32,
    /// As `ip -d link` has it ("veth"); empty: a card.
    pub kind: String,
    /// Bit/s, where the driver tells.
    pub speed_bps: Option<u64>,
    links: Links,
}

impl Location {
    /// From `INTERFACE` or `NAMESPACE/INTERFACE`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Location, String> {
        let (netns, interface) = match text.split_once('/') {
            Some((netns, interface)) => (Some(netns.to_owned()), interface),
            None => (None, text),
        };
        if interface.is_empty() || interface.contains('/') || netns.as_deref() == Some("") {
            return Err("name an INTERFACE of this host, or NAMESPACE/INTERFACE".into());
        }
        Ok(Location { netns, interface: interface.to_owned() })
    }

    fn text(&self) -> String {
        match &self.netns {
            Some(netns) => format!("{netns}/{}", self.interface),
            None => self.interface.clone(),
        }
    }
}

impl Found {
    /// Looks it up.
    ///
    /// # Errors
    /// It is not there, or down.
    pub fn look(location: Location) -> Result<Found, PortError> {
        let missing = || PortError::NoInterface(location.text());
        let io = |source| PortError::Io {
            what: "read this host's interfaces".into(),
            source,
            hint: String::new(),
        };
        netns::inside(location.netns.as_deref(), || {
            let mut links = Links::open().map_err(io)?;
            let all = links.all().map_err(io)?;
            let link = all.into_iter().find(|l| l.name == location.interface);
            let link = link.ok_or_else(missing)?;
            if !link.running {
                let name = location.text();
                return Err(PortError::Config(format!(
                    "{name} is down or has no carrier; see 'ip link'"
                )));
            }
            let Link { ifindex, mtu, kind, .. } = link;
            let speed_bps = InterfaceFacts::read(&location.interface)?.speed_bps;
            Ok(Found { location: location.clone(), ifindex, mtu, kind, speed_bps, links })
        })?
    }

    /// Octets of a frame with the FCS, at most.
    pub fn longest(&self) -> usize {
        self.mtu as usize + 18
    }
}

impl TestPort {
    /// With the flows that end and begin here; `index` is its own among the ports.
    ///
    /// # Errors
    /// The interface cannot be had, or a thread not be started.
    pub fn open(
        index: usize,
        name: &str,
        found: Found,
        flows: &[Arc<FlowPlan>],
        secret: Secret,
    ) -> Result<TestPort, String> {
        let netns = found.location.netns.clone();
        let interface = Some(found.location.interface.clone());
        let failed = |e: PortError| format!("port {name}: {e}");
        let opened = |engine, spec: OpenSpec| {
            let open = || sonde_port::open(engine, &spec);
            netns::inside(netns.as_deref(), open).and_then(|port| port).map_err(failed)
        };
        // A test port belongs to the tester: what comes is not for the host.
        let watching = OpenSpec {
            consume: true,
            snap: ALL_OF_IT,
            ..OpenSpec::watching(found.location.interface.clone())
        };
        let port = opened(Engine::AfXdp, watching)?;
        let expected = flows.iter().enumerate().filter(|(_, f)| f.to.contains(&index));
        let expected: Vec<u16> = expected.map(|(i, _)| i as u16).collect();
        let receiver = Worker::start(&format!("sonde-rx-{name}"), move |orders| {
            receiver::run(port, &expected, secret, &orders);
        })?;
        let own = flows.iter().enumerate().filter(|(_, f)| f.from == index);
        let own: Vec<_> = own.map(|(i, f)| (i as u16, f.clone())).collect();
        let sender = if own.is_empty() {
            None
        } else {
            // Without UDP ports in its filter it takes nothing in.
            let spec = OpenSpec { tx_stamps: false, ..OpenSpec::new(interface, Filter::default()) };
            let port = opened(Engine::AfPacket, spec)?;
            Some(Worker::start(&format!("sonde-tx-{name}"), move |orders| {
                sender::run(port, own, secret, &orders);
            })?)
        };
        Ok(TestPort {
            name: name.to_owned(),
            location: found.location,
            ifindex: found.ifindex,
            links: Mutex::new(found.links),
            sender,
            receiver,
        })
    }

    /// What was sent.
    ///
    /// # Errors
    /// The port has failed.
    pub fn sent(&self) -> Result<SenderReport, Problem> {
        let Some(sender) = &self.sender else { return Ok(SenderReport::default()) };
        let report = sender.ask(sender::Order::Report)?;
        self.sound(report.failed.as_ref())?;
        Ok(report)
    }

    /// What came.
    ///
    /// # Errors
    /// The port has failed.
    pub fn received(&self) -> Result<ReceiverReport, Problem> {
        let report = self.receiver.ask(receiver::Order::Report)?;
        self.sound(report.failed.as_ref())?;
        Ok(report)
    }

    fn sound(&self, failed: Option<&String>) -> Result<(), Problem> {
        match failed {
            None => Ok(()),
            Some(why) => Err(Problem::Internal(format!(
                "port {}: {why}; configure it again when it is back",
                self.name
            ))),
        }
    }

    /// Counters of all its frames, whosever they are.
    ///
    /// # Errors
    /// The port has failed.
    pub fn metric(&self, data_integrity: bool) -> Result<PortMetric, Problem> {
        let link = self.links.lock().unwrap_or_else(PoisonError::into_inner).get(self.ifindex);
        let link = match link {
            Ok(Some(link)) if link.running => "up",
            Ok(_) => "down",
            Err(_) => "unknown",
        };
        let (sent, came) = (self.sent()?, self.received()?);
        let sum = |of: fn(&Sent) -> f64| sent.flows.iter().map(|(_, s)| of(s)).sum::<f64>();
        let sending = |(_, s): &(u16, Sent)| s.state == TransmitState::Started;
        Ok(PortMetric {
            name: self.name.clone(),
            location: self.location.text(),
            link: link.into(),
            capture: "stopped",
            frames_tx: sent.stats.tx_frames,
            frames_rx: came.frames,
            bytes_tx: sent.flows.iter().map(|(_, s)| s.bytes).sum(),
            bytes_rx: came.bytes,
            frames_tx_rate: sum(|s| s.rates[0]),
            frames_rx_rate: came.rates[0],
            bytes_tx_rate: sum(|s| s.rates[1]),
            bytes_rx_rate: came.rates[1],
            transmit: match sent.flows.iter().any(sending) {
                true => TransmitState::Started,
                false => TransmitState::Stopped,
            },
            data_integrity: data_integrity.then(|| {
                let signed: u64 = came.flows.iter().map(|(_, r)| r.frames + r.duplicates).sum();
                DataIntegrity {
                    total_frames_rx: signed + came.stray + came.damaged,
                    error_frames_rx: came.damaged,
                }
            }),
        })
    }
}

impl<O: Send + 'static> Worker<O> {
    fn start(
        name: &str,
        work: impl FnOnce(mpsc::Receiver<O>) + Send + 'static,
    ) -> Result<Worker<O>, String> {
        let (orders, received) = mpsc::channel();
        // The kernel's name of a thread has 15 octets.
        let name: String = name.chars().filter(|&c| c != '\0').take(15).collect();
        let thread = std::thread::Builder::new().name(name).spawn(move || work(received));
        let thread = thread.map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Worker { orders: Some(orders), thread: Some(thread) })
    }

    /// Gives an order and waits for the answer.
    ///
    /// # Errors
    /// The thread has ended, or does not answer.
    pub fn ask<T>(&self, order: impl FnOnce(mpsc::Sender<T>) -> O) -> Result<T, Problem> {
        let (to, answer) = mpsc::channel();
        let gone = || Problem::Internal("a port's thread has ended; configure again".into());
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send(order(to)).map_err(|_| gone())?;
        answer.recv_timeout(PATIENCE).map_err(|e| match e {
            RecvTimeoutError::Disconnected => gone(),
            RecvTimeoutError::Timeout => {
                Problem::Internal("a port's thread does not answer: this host is overloaded".into())
            }
        })
    }
}

impl<O> Drop for Worker<O> {
    fn drop(&mut self) {
        // Without anybody who gives orders it ends.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// More octets than any frame has: nothing is cut off.
const ALL_OF_IT: usize = 1 << 16;
/// For a thread's answer: it looks for orders every millisecond.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        let of = |text| Location::read(text).map(|l| l.text());
        assert_eq!(of("eth0"), Ok("eth0".into()));
        assert_eq!(of("gen/eth0"), Ok("gen/eth0".into()));
        for bad in ["", "/", "/eth0", "gen/", "a/b/c"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
