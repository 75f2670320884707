//! How packets of interfaces come to the metering threads.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use sonde_port::headers::{self, HeaderPort, HeaderSpec};
use sonde_port::{Engine, OpenSpec, Port, open_group};
use sonde_results::flow::FlowRecord;
use sonde_results::rtt_run::RttPoint;
use sonde_sys::clock::steady_now;
use sonde_sys::netlink::Link as Interface;
use sonde_sys::syscall::interface_index;
use sonde_wire::flow::LinkType;
use sonde_wire::{Error, Time};

use super::follow::SharedIfindex;
use super::meter::{CapturedFrame, Meter};
use super::settings::{Field, InputEngine, Settings};
use super::setup;
use crate::error::RunError;
use crate::joins;
use crate::joins::ordered::{HANDED_OVER, Ordered};
use crate::links::has_ethernet;

/// What was opened for a run.
pub struct OpenedInputs {
    /// One for each metering thread.
    pub inputs: Vec<MeterInput>,
    /// The engine, and how it runs.
    pub engine: String,
}

impl OpenedInputs {
    /// The observation points, one for each interface.
    pub fn points(&self, interfaces: &[Interface]) -> Vec<RttPoint> {
        let point = |l: &Interface| RttPoint {
            name: l.name.clone(),
            how: self.engine.clone(),
            vanished: 0,
        };
        interfaces.iter().map(point).collect()
    }
}

/// Opens the interfaces for all metering threads.
pub fn open(
    interfaces: &[Interface],
    indexes: &[SharedIfindex],
    points: &[u8],
    asked: &Settings,
) -> Result<OpenedInputs, RunError> {
    let engine = match asked.input.engine {
        Some(InputEngine::Header) => None,
        Some(InputEngine::AfXdp) => Some(Engine::AfXdp),
        Some(InputEngine::AfPacket) | None => Some(Engine::AfPacket),
    };
    let opened = match engine {
        None => open_headers(interfaces, indexes, asked),
        Some(engine) => open_frames(engine, interfaces, indexes, joins::any(points), asked),
    };
    Ok(opened?)
}

fn open_headers(
    interfaces: &[Interface],
    indexes: &[SharedIfindex],
    asked: &Settings,
) -> Result<OpenedInputs> {
    let spec = |interfaces: &[Interface], first_point| HeaderSpec {
        interfaces: interfaces.iter().map(|i| i.name.clone()).collect(),
        first_point,
        raw_ip: interfaces.iter().map(|i| !has_ethernet(i)).collect(),
        workers: asked.input.workers.into(),
        keys: setup::keys(asked),
        consume: asked.input.mirror,
        ..HeaderSpec::new(String::new())
    };
    let ports = headers::open(&spec(interfaces, 0))?;
    let engine = ports.first().map(|p| p.mode().to_string()).unwrap_or_default();
    let groups: Vec<Arc<Group<HeaderPort>>> = interfaces
        .iter()
        .zip(indexes)
        .enumerate()
        .map(|(point, (interface, index))| {
            let spec = spec(std::slice::from_ref(interface), point as u8);
            let open = move || Ok(headers::open(&spec)?);
            Arc::new(Group::new(&interface.name, index, open))
        })
        .collect();
    let input = |(worker, port)| {
        let watched = |(group, interface): (&Arc<Group<HeaderPort>>, &Interface)| Returning {
            group: group.clone(),
            index: interface.ifindex,
            is_missed: false,
            port: None,
        };
        let returning = groups.iter().zip(interfaces).map(watched).collect();
        let gone = HeaderLoss::default();
        MeterInput::Headers(Headers { worker, port, returning, gone })
    };
    let inputs = ports.into_iter().enumerate().map(input).collect();
    Ok(OpenedInputs { inputs, engine })
}

fn open_frames(
    engine: Engine,
    interfaces: &[Interface],
    indexes: &[SharedIfindex],
    are_joined: bool,
    asked: &Settings,
) -> Result<OpenedInputs> {
    let workers = usize::from(asked.input.workers);
    let apps = asked.metering.fields.contains(&Field::Apps);
    let snap = match asked.input.trim {
        Some(bytes) => bytes.into(),
        None if apps => SNAP_APPS,
        None => OpenSpec::WATCHED_BYTES,
    };
    let mut ports_of: Vec<Vec<CapturePort>> = (0..workers).map(|_| Vec::new()).collect();
    let (mut how, consume) = (String::new(), asked.input.mirror);
    for (interface, index) in interfaces.iter().zip(indexes) {
        let name = &interface.name;
        let spec = OpenSpec { consume, snap, steady: true, ..OpenSpec::watching(name.clone()) };
        let open = move || open_frames_of(engine, &spec, workers);
        let ports = open().with_context(|| format!("cannot meter {name} by {}", engine.name()))?;
        if let Some(port) = ports.first() {
            how = format!("{}: {}", port.caps().engine, port.caps().mode);
        }
        let group = Arc::new(Group::new(name, index, open));
        let link = if has_ethernet(interface) { LinkType::Ethernet } else { LinkType::RawIp };
        for (worker, port) in ports.into_iter().enumerate() {
            ports_of[worker].push(CapturePort {
                group: group.clone(),
                worker,
                port: Some(port),
                index: interface.ifindex,
                link,
                lost: 0,
            });
        }
    }
    let input = |ports| {
        MeterInput::Frames(FrameInput {
            ports,
            ordered: are_joined.then(Ordered::default),
            is_over: false,
        })
    };
    let inputs = ports_of.into_iter().map(input).collect();
    Ok(OpenedInputs { inputs, engine: how })
}

/// The ports of one interface, one for each metering thread. After the interface was gone
/// they are opened anew together, by the thread that notices first.
struct Group<P> {
    name: String,
    open: Box<dyn Fn() -> Result<Vec<P>> + Send + Sync>,
    /// The interface of that name.
    index: SharedIfindex,
    parked: Mutex<Parked<P>>,
}

/// Ports that wait for their threads.
struct Parked<P> {
    ports: Vec<Option<P>>,
    /// Which interface they are of.
    index: u32,
    tried: Option<Time>,
    /// Why it could not be opened, as last reported.
    refused: Option<String>,
}

impl<P> Group<P> {
    fn new(
        name: &str,
        index: &SharedIfindex,
        open: impl Fn() -> Result<Vec<P>> + Send + Sync + 'static,
    ) -> Self {
        let parked = Parked { ports: Vec::new(), index: 0, tried: None, refused: None };
        let (name, index) = (name.to_string(), index.clone());
        Group { name, open: Box::new(open), index, parked: Mutex::new(parked) }
    }

    /// The port of a thread on interface `index`, if the interface has returned.
    fn reopen(&self, worker: usize, index: u32) -> Option<P> {
        let mut parked = self.parked.lock().unwrap_or_else(|e| e.into_inner());
        if parked.index == index
            && let Some(port) = parked.ports.get_mut(worker).and_then(Option::take)
        {
            return Some(port);
        }
        let now = steady_now();
        if parked.tried.is_some_and(|tried| now - tried < RETRY_NS) {
            return None;
        }
        parked.tried = Some(now);
        // Those of an interface that went again before every thread had its port.
        parked.ports.clear();
        match (self.open)() {
            Ok(ports) => parked.ports = ports.into_iter().map(Some).collect(),
            Err(error) => {
                // It may be gone again, which whoever follows the interfaces says, or not be ready.
                let why = format!("{error:#}");
                if parked.refused.as_ref() != Some(&why) && is_there(&self.name, index) {
                    tracing::warn!(
                        "{} cannot be metered again: {why}; it is tried twice a second",
                        self.name
                    );
                    parked.refused = Some(why);
                }
                return None;
            }
        }
        (parked.index, parked.refused) = (index, None);
        tracing::warn!("{} has returned and is metered again", self.name);
        parked.ports.get_mut(worker).and_then(Option::take)
    }
}

/// Frames of an interface, for all metering threads.
fn open_frames_of(engine: Engine, spec: &OpenSpec, workers: usize) -> Result<Vec<Box<dyn Port>>> {
    let ports = open_group(engine, spec, workers)?;
    if ports.len() < workers {
        return Err(anyhow!(
            "{} has {} receive queues for {workers} workers; use `input.workers = {}`, or \
             `input.engine = af_packet`, whose packets the kernel deals out whole, or \
             `input.engine = header`",
            spec.interface.as_deref().unwrap_or("the interface"),
            ports.len(),
            ports.len()
        ));
    }
    Ok(ports)
}

/// What one metering thread reads.
pub enum MeterInput {
    /// Frames of several interfaces.
    Frames(FrameInput),
    /// Headers of all interfaces, made by XDP programs.
    Headers(Headers),
}

/// One thread's share of the frames.
pub struct FrameInput {
    /// By the flow key's `point`.
    ports: Vec<CapturePort>,
    /// Where interfaces are joined, their packets.
    ordered: Option<Ordered>,
    /// Nothing more is read.
    is_over: bool,
}

impl FrameInput {
    fn turn(&mut self, meter: &mut Meter, sink: &mut impl FnMut(FlowRecord)) -> bool {
        let mut busy = false;
        if let Some(ordered) = &mut self.ordered {
            ordered.begin_turn(steady_now());
        }
        for (i, port) in self.ports.iter_mut().enumerate() {
            busy |= port.turn(i as u8, meter, &mut self.ordered, sink);
        }
        let Some(ordered) = &mut self.ordered else { return busy };
        let ports = &self.ports;
        if self.is_over {
            ordered.end();
        }
        let kept = ordered.release(usize::MAX);
        meter.frames(
            kept.map(|kept| CapturedFrame {
                bytes: &kept.bytes,
                wire_len: kept.wire_len,
                segment: kept.segment,
                link: ports[usize::from(kept.point)].link,
                at_ns: kept.at.as_nanos(),
                point: kept.point,
            }),
            sink,
        );
        busy
    }
}

/// One thread's share of the headers.
pub struct Headers {
    worker: usize,
    /// Of the program that the run began with, which all interfaces had.
    port: HeaderPort,
    /// By the headers' `point`.
    returning: Vec<Returning>,
    /// What was counted by ports that are closed.
    gone: HeaderLoss,
}

/// An interface that may go, and return: its program goes with it, and it gets another.
struct Returning {
    group: Arc<Group<HeaderPort>>,
    /// Which interface of that name is read.
    index: u32,
    /// It is there, and has no program yet.
    is_missed: bool,
    /// The program that it has since it returned.
    port: Option<HeaderPort>,
}

/// What did not become a header.
#[derive(Default)]
struct HeaderLoss {
    lost: u64,
    /// By the index of the error that says why; of all threads.
    refused: [u64; Error::COUNT],
}

impl HeaderLoss {
    fn add(&mut self, port: &HeaderPort) {
        self.lost += port.lost().packets;
        // If the counters cannot be read, the program is gone, and so is the run.
        for (sum, refused) in self.refused.iter_mut().zip(port.refused().unwrap_or_default()) {
            *sum += refused.packets;
        }
    }
}

impl Headers {
    /// The ports that there are, those of returned interfaces last.
    fn ports(&mut self) -> impl Iterator<Item = &mut HeaderPort> {
        std::iter::once(&mut self.port).chain(self.returning.iter_mut().flat_map(|r| &mut r.port))
    }

    fn turn(&mut self, meter: &mut Meter, sink: &mut impl FnMut(FlowRecord)) -> bool {
        let mut busy = false;
        for port in self.ports() {
            let burst = port.burst();
            meter.headers(burst, sink);
            busy |= !burst.is_empty();
        }
        busy
    }

    fn wait(&mut self, until: Time) {
        // With several, none may be waited for alone.
        let is_one = self.returning.iter().all(|r| r.port.is_none());
        let until = if is_one { until } else { until.min(steady_now() + SHORT_NS) };
        self.port.wait(until);
    }

    fn follow(&mut self, meter: &mut Meter, sink: &mut impl FnMut(FlowRecord)) {
        for (i, interface) in self.returning.iter_mut().enumerate() {
            let now = interface.group.index.load(Ordering::Relaxed);
            if interface.index != now {
                (interface.index, interface.is_missed) = (now, now != 0);
                // Under another name, or in another namespace, it would be metered still, and
                // take no other program when it returns.
                self.port.detach(i);
                if let Some(mut port) = interface.port.take() {
                    port.detach(0);
                    // What its ring still holds.
                    loop {
                        let burst = port.burst();
                        if burst.is_empty() {
                            break;
                        }
                        meter.headers(burst, sink);
                    }
                    self.gone.add(&port);
                }
            }
            if interface.is_missed {
                interface.port = interface.group.reopen(self.worker, now);
                interface.is_missed = interface.port.is_none();
            }
        }
    }

    /// What did not become a header so far.
    fn loss(&self) -> HeaderLoss {
        let HeaderLoss { lost, refused } = self.gone;
        let mut loss = HeaderLoss { lost, refused };
        loss.add(&self.port);
        self.returning.iter().flat_map(|r| &r.port).for_each(|port| loss.add(port));
        loss
    }
}

/// One interface, as one thread sees it.
pub struct CapturePort {
    group: Arc<Group<Box<dyn Port>>>,
    worker: usize,
    /// `None`: gone, for now.
    port: Option<Box<dyn Port>>,
    link: LinkType,
    /// Which interface of that name the port is on.
    index: u32,
    /// Packets lost by ports that are closed.
    lost: u64,
}

impl MeterInput {
    /// Takes what has come. Whether there was anything.
    pub fn turn(&mut self, meter: &mut Meter, sink: &mut impl FnMut(FlowRecord)) -> bool {
        match self {
            MeterInput::Frames(frames) => frames.turn(meter, sink),
            MeterInput::Headers(headers) => headers.turn(meter, sink),
        }
    }

    /// Sleeps until something has come, or `until`.
    ///
    /// # Errors
    /// A port fails whose interface is still there.
    pub fn wait(&mut self, until: Time) -> Result<()> {
        match self {
            MeterInput::Headers(headers) => headers.wait(until),
            MeterInput::Frames(frames) => match &mut frames.ports[..] {
                [single @ CapturePort { port: Some(_), .. }] => single.wait(until)?,
                // With several, none may be waited for alone.
                _ => {
                    let until = until.min(steady_now() + SHORT_NS);
                    let left = (until - steady_now()).max(0).unsigned_abs();
                    std::thread::sleep(Duration::from_nanos(left));
                }
            },
        }
        Ok(())
    }

    /// Lets go of interfaces that have vanished, and takes up those that have returned.
    pub fn follow(&mut self, meter: &mut Meter, sink: &mut impl FnMut(FlowRecord)) {
        let frames = match self {
            MeterInput::Frames(frames) => frames,
            MeterInput::Headers(headers) => return headers.follow(meter, sink),
        };
        for (i, capture) in frames.ports.iter_mut().enumerate() {
            let now = capture.group.index.load(Ordering::Relaxed);
            if capture.port.is_some() && capture.index != now {
                // What its ring still holds.
                while capture.turn(i as u8, meter, &mut frames.ordered, sink) {}
                capture.close();
            }
            if capture.port.is_none() && now != 0 {
                capture.port = capture.group.reopen(capture.worker, now);
                capture.index = now;
            }
        }
    }

    /// Takes what the rings still get of what has passed until now.
    pub fn rest(&mut self, meter: &mut Meter, sink: &mut impl FnMut(FlowRecord)) {
        let begin = Instant::now();
        while begin.elapsed() < HANDED_OVER {
            // What cannot be read any more was lost with its port.
            if !self.turn(meter, sink) && self.wait(steady_now() + SHORT_NS).is_err() {
                break;
            }
        }
        if let MeterInput::Frames(frames) = self {
            frames.is_over = true;
            frames.turn(meter, sink);
        }
    }

    /// Packets that came in and did not reach the meter.
    pub fn lost(&mut self) -> u64 {
        match self {
            MeterInput::Frames(frames) => frames.ports.iter_mut().map(CapturePort::lost).sum(),
            MeterInput::Headers(headers) => headers.loss().lost,
        }
    }

    /// Packets that the kernel's program could not read, by reason: the first thread reports them.
    pub fn refused(&self) -> BTreeMap<String, u64> {
        let refused = match self {
            MeterInput::Headers(headers) if headers.worker == 0 => headers.loss().refused,
            _ => return BTreeMap::new(),
        };
        let of = |error: Error| match error {
            Error::Truncated => "refused_truncated",
            Error::EtherType => "refused_not_ip",
            _ => "refused_malformed",
        };
        let mut counters = BTreeMap::new();
        for error in Error::ALL {
            *counters.entry(of(error).to_string()).or_default() += refused[error.index()];
        }
        counters
    }
}

impl CapturePort {
    /// Takes one burst, and hands it on, or keeps it to be put in order. Whether it was not
    /// empty.
    #[inline]
    fn turn(
        &mut self,
        point: u8,
        meter: &mut Meter,
        ordered: &mut Option<Ordered>,
        sink: &mut impl FnMut(FlowRecord),
    ) -> bool {
        let Some(port) = &mut self.port else { return false };
        let Ok(burst) = port.rx() else {
            // The interface has gone; its port is of no further use.
            self.close();
            return false;
        };
        let link = self.link;
        if let Some(ordered) = ordered {
            for i in 0..burst.len() {
                let (bytes, stamp) = burst.seen(i);
                ordered.keep(point, bytes, (burst.wire_len(i), burst.segment(i)), stamp.at);
            }
            if let Some(last) = burst.len().checked_sub(1) {
                ordered.may_have_more(burst.seen(last).1.at);
            }
            return !burst.is_empty();
        }
        let frames = (0..burst.len()).map(|i| {
            let (bytes, stamp) = burst.seen(i);
            let (wire_len, at_ns) = (burst.wire_len(i), stamp.at.as_nanos());
            CapturedFrame { bytes, wire_len, segment: burst.segment(i), link, at_ns, point }
        });
        meter.frames(frames, sink);
        !burst.is_empty()
    }

    /// Waits for a packet, or until the interface is found to be gone: it is waited for then.
    fn wait(&mut self, until: Time) -> Result<()> {
        let Some(port) = &mut self.port else { return Ok(()) };
        let Err(error) = port.wait(until) else { return Ok(()) };
        // Whoever follows the interfaces may not know yet.
        if is_there(&self.group.name, self.index) {
            return Err(error.into());
        }
        self.close();
        Ok(())
    }

    fn close(&mut self) {
        if let Some(mut port) = self.port.take() {
            self.lost += lost(port.as_mut());
        }
    }

    fn lost(&mut self) -> u64 {
        self.lost + self.port.as_mut().map_or(0, |port| lost(port.as_mut()))
    }
}

/// Whether the interface of that name is the one of that index.
fn is_there(name: &str, index: u32) -> bool {
    interface_index(name).is_ok_and(|now| now == index)
}

fn lost(port: &mut dyn Port) -> u64 {
    let stats = port.stats();
    stats.rx_dropped + stats.rx_invalid
}

/// Bytes of a frame that applications' parsers look at: a whole one of Ethernet.
const SNAP_APPS: usize = 2_048;
/// Between tries to open an interface that has gone.
const RETRY_NS: i64 = 500_000_000;
/// With several interfaces, how long one may wait for the others.
const SHORT_NS: i64 = 1_000_000;

#[cfg(test)]
pub(super) mod tests;
