//! A port of the generator: the thread that receives on it, and the one that sends.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_port::af_xdp::AfXdp;
use sonde_port::{Engine, OpenSpec, Port, PortError};
use sonde_run::thread::{ThreadPanicked, join_logged};
use sonde_server::otg::Problem;
use sonde_server::otg::metrics::{DataIntegrity, PortMetric, TransmitState};
use sonde_server::otg::ports::{Capture, CaptureFormat};
use sonde_sys::SysError;
use sonde_sys::host::InterfaceFacts;
use sonde_sys::link_settings;
use sonde_sys::netlink::{Link, Links};
use sonde_sys::netns;
use sonde_wire::signature::Secret;

use super::capture::CaptureRing;
use super::flow::FlowPlan;
use super::rates::zero_or_more;
use super::receiver::{self, ReceiverReport};
use super::sender::{self, SenderReport, Sent};
use crate::tester::RING;

/// A port with its threads. Dropping it ends them.
pub struct TestPort {
    /// As in the configuration.
    pub name: String,
    pub location: PortLocation,
    ifindex: u32,
    links: Mutex<Links>,
    /// Where a flow leaves here.
    pub sender: Option<PortWorker<sender::SenderCommand>>,
    /// Takes every frame that comes.
    pub receiver: PortWorker<receiver::ReceiverCommand>,
    capture: Option<Mutex<Captured>>,
    /// By what it sends, where a flow leaves here, and by what it receives.
    pub engines: (Option<String>, String),
    /// Held until the threads have ended.
    _settings: AppliedSettings,
}

/// What a port keeps of what comes.
struct Captured {
    /// `None`: the receiver is filling it.
    ring: Option<Box<CaptureRing>>,
    format: CaptureFormat,
}

/// What was set on an interface; dropping it sets it back.
#[derive(Default)]
struct AppliedSettings {
    _mtu: Option<Mtu>,
}

struct Mtu {
    location: PortLocation,
    before: u32,
}

impl Drop for Mtu {
    fn drop(&mut self) {
        // An interface that has gone meanwhile needs no setting.
        let _ = self.location.set_mtu(self.before);
    }
}

/// Where a port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLocation {
    /// By its name in `ip netns`; none: this one.
    pub netns: Option<String>,
    pub interface: String,
}

/// A thread, and how to talk to it.
pub struct PortWorker<O> {
    orders: Option<mpsc::Sender<O>>,
    thread: Option<JoinHandle<()>>,
}

/// An interface, before it is a port.
pub struct FoundInterface {
    pub location: PortLocation,
    /// What identifies its namespace.
    pub namespace: (u64, u64),
    /// The interface's index in its namespace.
    pub ifindex: u32,
    /// Octets of an IP packet, at most.
    pub mtu: u32,
    /// As `ip -d link` has it ("veth"); empty: a card.
    pub kind: String,
    /// Bit/s, where the driver reports it.
    pub speed_bps: Option<u64>,
    rx_queues: u32,
    links: Links,
    settings: AppliedSettings,
}

impl PortLocation {
    /// From `INTERFACE` or `NAMESPACE/INTERFACE`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<PortLocation, String> {
        let (netns, interface) = match text.split_once('/') {
            Some((netns, interface)) => (Some(netns.to_owned()), interface),
            None => (None, text),
        };
        if interface.is_empty() || interface.contains('/') || netns.as_deref() == Some("") {
            return Err("name an INTERFACE of this host, or NAMESPACE/INTERFACE".into());
        }
        Ok(PortLocation { netns, interface: interface.to_owned() })
    }

    /// As a client writes it.
    pub fn text(&self) -> String {
        match &self.netns {
            Some(netns) => format!("{netns}/{}", self.interface),
            None => self.interface.clone(),
        }
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), String> {
        let set = || link_settings::set_mtu(&self.interface, mtu);
        let done = netns::inside(self.netns.as_deref(), set).map_err(|e| e.to_string())?;
        done.map_err(|e| e.to_string())
    }
}

impl FoundInterface {
    /// Looks it up.
    ///
    /// # Errors
    /// It is not there, or down.
    pub fn look(location: PortLocation) -> Result<FoundInterface, PortError> {
        let missing = || SysError::NoInterface(location.text());
        let io = |cause| SysError::Io {
            what: "read this host's interfaces".into(),
            cause,
            hint: String::new(),
        };
        netns::inside(location.netns.as_deref(), || {
            let mut links = Links::open().map_err(io)?;
            let all = links.all().map_err(io)?;
            let link = all.into_iter().find(|l| l.name == location.interface);
            let link = link.ok_or_else(missing)?;
            if link.loopback {
                return Err(PortError::Config(format!(
                    "{} is a host's loopback: all that its processes say to each other would be \
                     taken away; name another interface (a virtual cable: 'ip link add type veth')",
                    location.text()
                )));
            }
            if !link.running {
                let name = location.text();
                return Err(PortError::Config(format!(
                    "{name} is down or has no carrier; see 'ip link'"
                )));
            }
            let Link { ifindex, mtu, kind, rx_queues, .. } = link;
            let speed_bps = InterfaceFacts::read(&location.interface)?.speed_bps;
            let namespace = netns::identity().map_err(io)?;
            let location = location.clone();
            let settings = AppliedSettings::default();
            Ok(FoundInterface {
                location,
                namespace,
                ifindex,
                mtu,
                kind,
                speed_bps,
                rx_queues,
                links,
                settings,
            })
        })?
    }

    /// Octets of a frame with the FCS, at most.
    pub fn longest(&self) -> usize {
        self.mtu as usize + 18
    }

    /// Sets the interface's MTU, if another one is wanted. What it does not take is added to
    /// `warnings`.
    pub fn set(&mut self, mtu: Option<u32>, warnings: &mut Vec<String>) {
        let text = self.location.text();
        let mtu = mtu.filter(|&wanted| wanted != self.mtu).and_then(|wanted| {
            match self.location.set_mtu(wanted) {
                Ok(()) => {
                    let before = std::mem::replace(&mut self.mtu, wanted);
                    Some(Mtu { location: self.location.clone(), before })
                }
                Err(e) => {
                    warnings
                        .push(format!("{text} keeps its MTU of {}, not {wanted}: {e}", self.mtu));
                    None
                }
            }
        });
        self.settings = AppliedSettings { _mtu: mtu };
    }
}

impl TestPort {
    /// With the flows that end and begin here; `index` is its own among the ports. Where frames
    /// cannot be sent by AF_XDP, that is added to `warnings`.
    ///
    /// # Errors
    /// The interface cannot be had, or a thread not be started.
    pub fn open(
        index: usize,
        name: &str,
        found: FoundInterface,
        capture: Option<&Capture>,
        flows: &[Arc<FlowPlan>],
        secret: Secret,
        warnings: &mut Vec<String>,
    ) -> Result<TestPort, String> {
        let failed = |e: PortError| format!("port {name}: {e}");
        let capture = capture.map(|c| {
            let snap = c.packet_size.filter(|&n| n > 0).map_or(SNAP, |n| n.min(SNAP));
            let ring = CaptureRing::new(CAPTURE_OCTETS, snap as usize, c.overwrite);
            let ring = ring.map_err(|e| format!("port {name}: {e}"))?;
            Ok::<_, String>(Mutex::new(Captured { ring: Some(Box::new(ring)), format: c.format }))
        });
        let capture = capture.transpose()?;
        // A test port belongs to the tester: what comes is not for the host.
        let usual = OpenSpec::watching(found.location.interface.clone());
        let fair = (MEMORY / found.rx_queues.max(1) as usize + 1).next_power_of_two() / 2;
        let ring = fair.clamp(usual.ring, RING);
        let watching = OpenSpec { consume: true, snap: ALL_OF_IT, ring, ..usual };
        let own = flows.iter().enumerate().filter(|(_, f)| f.from == index);
        let own: Vec<_> = own.map(|(i, f)| (i as u16, f.clone())).collect();
        let Engines { receiver: port, sender: sending } =
            open_engines(name, &found.location, &watching, !own.is_empty(), warnings)
                .map_err(failed)?;
        let engine = |port: &dyn Port| format!("{}: {}", port.caps().engine, port.caps().mode);
        let engines = (sending.as_deref().map(engine), engine(port.as_ref()));
        let expected = flows.iter().enumerate().filter(|(_, f)| f.to.contains(&index));
        let expected: Vec<u16> = expected.map(|(i, _)| i as u16).collect();
        let receiver = PortWorker::start(&format!("sonde-rx-{name}"), move |orders| {
            receiver::run(port, &expected, secret, &orders);
        })?;
        let mut senders: Vec<usize> = flows.iter().map(|f| f.from).collect();
        senders.sort_unstable();
        senders.dedup();
        let senders = senders.len();
        let start = |port| {
            PortWorker::start(&format!("sonde-tx-{name}"), move |orders| {
                sender::run(port, own, secret, senders, &orders);
            })
        };
        let sender = sending.map(start).transpose()?;
        Ok(TestPort {
            name: name.to_owned(),
            location: found.location,
            ifindex: found.ifindex,
            links: Mutex::new(found.links),
            sender,
            receiver,
            capture,
            engines,
            _settings: found.settings,
        })
    }

    /// Whether frames that come can be kept.
    pub fn captures(&self) -> bool {
        self.capture.is_some()
    }

    /// Keeps frames from now on, or no longer.
    ///
    /// # Errors
    /// No capture of this port is configured; it has failed.
    pub fn capture(&self, start: bool) -> Result<(), Problem> {
        let mut captured = self.captured()?;
        if start {
            self.ready()?;
        }
        self.stop_capture(&mut captured)?;
        if !start {
            return Ok(());
        }
        if let Some(mut ring) = captured.ring.take() {
            ring.clear();
            self.receiver.ask(|to| receiver::ReceiverCommand::Capture(ring, to))?;
        }
        Ok(())
    }

    /// Keeps no further frame, and returns a file of those that were kept.
    ///
    /// # Errors
    /// As of [`TestPort::capture`].
    pub fn capture_file(&self, skip: usize, count: usize) -> Result<Vec<u8>, Problem> {
        let mut captured = self.captured()?;
        self.stop_capture(&mut captured)?;
        let format = captured.format;
        let ring = captured.ring.as_ref();
        Ok(ring.map(|r| r.file(format, skip, count)).unwrap_or_default())
    }

    fn captured(&self) -> Result<MutexGuard<'_, Captured>, Problem> {
        let none = || {
            Problem::invalid(format!(
                "no capture of port '{}' is configured; name the port in 'captures'",
                self.name
            ))
        };
        let captured = self.capture.as_ref().ok_or_else(none)?;
        Ok(captured.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn stop_capture(&self, captured: &mut Captured) -> Result<(), Problem> {
        if captured.ring.is_none() {
            captured.ring = self.receiver.ask(receiver::ReceiverCommand::Captured)?;
        }
        Ok(())
    }

    /// What was sent.
    ///
    /// # Errors
    /// The port has failed.
    pub fn sent(&self) -> Result<SenderReport, Problem> {
        let Some(sender) = &self.sender else { return Ok(SenderReport::default()) };
        let report = sender.ask(sender::SenderCommand::Report)?;
        self.sound(report.failed.as_ref())?;
        Ok(report)
    }

    /// What came.
    ///
    /// # Errors
    /// The port has failed.
    pub fn received(&self) -> Result<ReceiverReport, Problem> {
        let report = self.receiver.ask(receiver::ReceiverCommand::Report)?;
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

    /// Whether flows can be started here, or frames be captured.
    ///
    /// # Errors
    /// The port has failed, or its interface has gone.
    pub fn ready(&self) -> Result<(), Problem> {
        self.sent()?;
        self.received()?;
        // An interface that goes while nothing is sent is found out here first.
        let gone = matches!(self.link(), Ok(None)).then(|| "its interface has gone".to_owned());
        self.sound(gone.as_ref())
    }

    fn link(&self) -> io::Result<Option<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).get(self.ifindex)
    }

    /// Counters of all its frames, whosever they are, since it was configured.
    ///
    /// # Errors
    /// The port has failed.
    pub fn metric(&self, data_integrity: bool) -> Result<PortMetric, Problem> {
        let link = match self.link() {
            Ok(Some(link)) if link.running => "up",
            Ok(_) => "down",
            Err(_) => "unknown",
        };
        let (sent, came) = (self.sent()?, self.received()?);
        let sum = |of: fn(&Sent) -> f64| zero_or_more(sent.flows.iter().map(|(_, s)| of(s)));
        let sending = |(_, s): &(u16, Sent)| s.state == TransmitState::Started;
        Ok(PortMetric {
            name: self.name.clone(),
            location: self.location.text(),
            link: link.into(),
            capture: if came.capture.is_some() { "started" } else { "stopped" },
            frames_tx: sent.totals[0],
            frames_rx: came.frames,
            bytes_tx: sent.totals[1],
            bytes_rx: came.bytes,
            frames_tx_rate: sum(|s| s.rates[0]),
            frames_rx_rate: came.rates[0],
            bytes_tx_rate: sum(|s| s.rates[1]),
            bytes_rx_rate: came.rates[1],
            transmit: match sent.flows.iter().any(sending) {
                true => TransmitState::Started,
                false => TransmitState::Stopped,
            },
            data_integrity: data_integrity.then_some(DataIntegrity {
                total_frames_rx: came.whole + came.damaged,
                error_frames_rx: came.damaged,
            }),
        })
    }
}

impl<O: Send + 'static> PortWorker<O> {
    fn start(
        name: &str,
        work: impl FnOnce(mpsc::Receiver<O>) + Send + 'static,
    ) -> Result<PortWorker<O>, String> {
        let (orders, received) = mpsc::channel();
        // The kernel's name of a thread has 15 octets.
        let name: String = name.chars().filter(|&c| c != '\0').take(15).collect();
        let thread = std::thread::Builder::new().name(name).spawn(move || work(received));
        let thread =
            thread.map_err(|e| format!("cannot start a thread: {e}; 'ulimit -u' bounds them"))?;
        Ok(PortWorker { orders: Some(orders), thread: Some(thread) })
    }

    /// Gives an order and waits for the answer.
    ///
    /// # Errors
    /// The thread has ended, or does not answer.
    pub fn ask<T>(&self, order: impl FnOnce(mpsc::Sender<T>) -> O) -> Result<T, Problem> {
        let (to, answer) = mpsc::channel();
        // It ends by itself only by a panic.
        let gone = || {
            let thread = self.thread.as_ref().map(JoinHandle::thread);
            let why = thread.map_or("a port's thread has ended".into(), |thread| {
                ThreadPanicked::of(thread).to_string()
            });
            Problem::Internal(format!("{why}; configure again"))
        };
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send(order(to)).map_err(|_| gone())?;
        answer.recv_timeout(PATIENCE).map_err(|e| match e {
            RecvTimeoutError::Disconnected => gone(),
            RecvTimeoutError::Timeout => Problem::Internal(
                "a port's thread does not answer: this host is overloaded, or the thread hangs"
                    .into(),
            ),
        })
    }
}

impl<O> Drop for PortWorker<O> {
    fn drop(&mut self) {
        // Without anybody who gives orders it ends.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            join_logged(thread);
        }
    }
}

/// The engines of a port.
struct Engines {
    receiver: Box<dyn Port>,
    /// Where a flow leaves.
    sender: Option<Box<dyn Port>>,
}

/// AF_XDP, and where it cannot send, packet sockets.
fn open_engines(
    name: &str,
    location: &PortLocation,
    watching: &OpenSpec,
    sends: bool,
    warnings: &mut Vec<String>,
) -> Result<Engines, PortError> {
    let netns = location.netns.as_deref();
    if sends {
        match inside(netns, || AfXdp::capture_and_send(watching)) {
            Ok((receiver, sender)) => {
                return Ok(Engines {
                    receiver: Box::new(receiver),
                    sender: Some(Box::new(sender)),
                });
            }
            Err(why) => warnings.push(format!(
                "port {name}: frames leave by engine af_packet, which sends fewer of them: {why}"
            )),
        }
    }
    let receiver = inside(netns, || sonde_port::open(Engine::AfXdp, watching))?;
    let spec = OpenSpec::transmit(location.interface.clone());
    let sender = sends.then(|| inside(netns, || sonde_port::open(Engine::AfPacket, &spec)));
    Ok(Engines { receiver, sender: sender.transpose()? })
}

/// Opens a port in a namespace.
fn inside<T: Send>(
    netns: Option<&str>,
    open: impl FnOnce() -> Result<T, PortError> + Send,
) -> Result<T, PortError> {
    netns::inside(netns, open).map_err(PortError::from).flatten()
}

/// Frames of all queues that can wait for the receiver, but for those that every queue has anyway:
/// memory that cannot be paged out.
const MEMORY: usize = 4 * RING;
/// More octets than any frame has: nothing is cut off.
const ALL_OF_IT: usize = 1 << 16;
/// Octets of a captured frame, at most, where the client does not say.
const SNAP: u32 = 65_535;
/// Octets that are kept of the frames of a port.
const CAPTURE_OCTETS: usize = 32 << 20;
/// For a thread's answer: it looks for orders every millisecond.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_is_named_in_the_answer() {
        let worker: PortWorker<mpsc::Sender<()>> = PortWorker::start("sonde-rx-test", |orders| {
            let _ = orders.recv();
            panic!("as this test wants it");
        })
        .unwrap();
        // The first order panics the thread, and the second finds it gone.
        for _ in 0..2 {
            match worker.ask(|to| to) {
                Err(Problem::Internal(why)) => assert!(why.contains("sonde-rx-test"), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn locations() {
        let of = |text| PortLocation::read(text).map(|l| l.text());
        assert_eq!(of("eth0"), Ok("eth0".into()));
        assert_eq!(of("gen/eth0"), Ok("gen/eth0".into()));
        for bad in ["", "/", "/eth0", "gen/", "a/b/c"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
