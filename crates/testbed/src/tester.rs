//! The tester: a load generator and an analyser on a pair of ports, by any engine. What it
//! measures, and how, is in docs/load.md.
//!
//! [`Tester::open`] prepares the ports, [`Tester::run`] offers one load and says what became
//! of it. Who is at fault, and whether to try again, is for the caller to judge.

mod bed;
mod copies;
mod drain;
mod neighbours;
mod ports;
mod series;
#[cfg(test)]
mod test_load;
mod xdp;

use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sonde_meter::load::{HeaderTemplate, LoadError, LoadSchedule, Traffic, fill_streams, headers};
use sonde_results::trial::{Direction, LedgerEntry, Offer, Pattern};
use sonde_results::units::SECOND;
use sonde_run::error::RunError;
use sonde_sys::clock::tai_now;
use sonde_sys::netns;
use sonde_sys::random::secret;
use sonde_sys::schedule::Precedence;
use sonde_sys::schedule::pin_to_cpu;
use sonde_wire::ethernet::Mac;

use self::copies::{Classes, CopyShare};

pub use bed::{InterfaceCounts, PortFacts, port_facts};
pub use copies::{Branch, CopySpec, Expects, Mixed};
pub(crate) use ports::RING;
pub use xdp::halves::{CountedTrial, XdpReceivingEnd, XdpSendingEnd};

/// How frames are sent and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadEngine {
    /// XDP live frames, and an analyser in the XDP program of the port.
    Xdp,
    /// AF_XDP sockets.
    AfXdp,
    /// Packet sockets.
    AfPacket,
}

/// A port of the tester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TesterPort {
    /// Its name in results: "a".
    pub name: String,
    pub interface: String,
    /// The network namespace where it is; `None`: the caller's.
    pub netns: Option<String>,
    /// The processor of the thread that sends from it; `None`: any.
    pub cpu: Option<usize>,
}

/// A direction: what is sent from one port and expected at another. At most one leaves each
/// port, and at most one arrives.
#[derive(Clone, Debug)]
pub struct DirectionSpec {
    /// Index of the sending port.
    pub from: usize,
    /// Index of the receiving port.
    pub to: usize,
    pub traffic: Traffic,
    /// Octets by which a frame arrives longer than it left (tags or labels that the device
    /// adds); negative: shorter.
    pub length_change: i32,
    /// Destination MAC address of what arrives; others are stray. `None`: any.
    pub for_mac: Option<Mac>,
}

/// What a tester is opened with.
#[derive(Clone, Debug)]
pub struct TesterSpec {
    /// How frames are sent and received.
    pub engine: LoadEngine,
    pub ports: Vec<TesterPort>,
    pub ways: Vec<DirectionSpec>,
    /// How long to wait for the last frames (RFC 2544, section 23: 2 s). It ends earlier when
    /// all have arrived.
    pub drain: Duration,
}

/// How far a trial is, now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrialProgress {
    /// When the first frame is due, ns since 1970 TAI.
    pub start_ns: i64,
    /// Frames sent, all directions together.
    pub sent: u64,
    /// Frames received, each once.
    pub received: u64,
}

/// What became of a load.
#[derive(Clone, Debug, Default)]
pub struct LoadResult {
    /// When the first frame was due, ns since 1970 TAI.
    pub start_ns: i64,
    /// In the order of [`TesterSpec::ways`].
    pub directions: Vec<Direction>,
    /// Frames that the tester itself had and lost.
    pub counters: Vec<LedgerEntry>,
    /// A port that went down, and when it was seen.
    pub down: Option<String>,
}

/// A tester on its ports. Dropping it, or the end of the process, gives the ports back.
pub struct Tester {
    spec: TesterSpec,
    copies: CopySpec,
    engine: Engine,
    ports: Vec<PortFacts>,
    /// Of the last trial's last direction: 8 bits of the signature.
    tag: u8,
    answering: neighbours::NeighbourResponder,
}

impl Tester {
    /// Prepares the ports. Nothing is sent, but whoever asks for the addresses of the frames
    /// (ARP, neighbour discovery) is answered from now on.
    ///
    /// # Errors
    /// Frames that cannot be made or that the ports do not carry; no such interface or
    /// namespace; what the engine lacks.
    pub fn open(spec: &TesterSpec) -> Result<Tester, RunError> {
        Self::open_with(spec, &CopySpec::default())
    }

    /// As [`Tester::open`], with a first direction that may arrive at more ports.
    ///
    /// # Errors
    /// As [`Tester::open`].
    pub fn open_with(spec: &TesterSpec, copies: &CopySpec) -> Result<Tester, RunError> {
        Ok(Self::prepare(spec, copies)?)
    }

    fn prepare(spec: &TesterSpec, copies: &CopySpec) -> Result<Tester> {
        let ports = spec.ports.iter().map(port_facts).collect::<Result<Vec<_>, _>>()?;
        for way in &spec.ways {
            ensure!(
                way.from < ports.len() && way.to < ports.len() && way.from != way.to,
                "a direction needs two of the tester's ports"
            );
            let others = spec.ways.iter().filter(|w| w.from == way.from || w.to == way.to);
            ensure!(others.count() == 1, "only one direction can leave a port, or arrive at it");
            way.traffic.check(ports[way.from].mtu)?;
        }
        for branch in &copies.branches {
            let others = spec.ways.iter().any(|w| w.to == branch.to || w.from == branch.to);
            ensure!(
                !spec.ways.is_empty() && branch.to < ports.len() && !others,
                "copies are looked for at a port of the tester that has nothing else to do"
            );
        }
        let engine = match spec.engine {
            LoadEngine::Xdp => Engine::Xdp(xdp::XdpEngine::open(spec, copies, &ports, secret())?),
            LoadEngine::AfXdp => by_ports(sonde_port::Engine::AfXdp, spec)?,
            LoadEngine::AfPacket => by_ports(sonde_port::Engine::AfPacket, spec)?,
        };
        let answering = neighbours::NeighbourResponder::start(spec, &ports)?;
        Ok(Tester { spec: spec.clone(), copies: copies.clone(), engine, ports, tag: 0, answering })
    }

    /// The ports, in the order of the specification.
    pub fn ports(&self) -> &[PortFacts] {
        &self.ports
    }

    /// How the frames are sent and received, for people.
    pub fn mode(&self) -> &str {
        match &self.engine {
            Engine::Xdp(xdp) => xdp.mode(),
            Engine::Ports(ports) => ports.mode(),
        }
    }

    /// Offers a load in every direction and waits for what comes of it. It ends early when
    /// `stop` is set, when a port goes down, or after twice the time that it should take: then
    /// fewer frames were sent than intended.
    ///
    /// # Errors
    /// The engine failed. A device that loses everything is no error.
    pub fn run(
        &mut self,
        offer: &Offer,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(TrialProgress),
    ) -> Result<LoadResult, RunError> {
        Ok(self.offer(offer, stop, progress)?)
    }

    fn offer(
        &mut self,
        offer: &Offer,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(TrialProgress),
    ) -> Result<LoadResult> {
        ensure!(
            offer.frames > 0 && offer.rate_fps.is_finite() && offer.rate_fps > 0.0,
            "a trial needs frames and a rate"
        );
        let loads = self.loads(offer)?;
        if matches!(offer.pattern, Pattern::Plan) {
            self.answering.announce();
        }
        let (spec, ports) = (&self.spec, &self.ports[..]);
        let mut outcome = match &mut self.engine {
            Engine::Xdp(engine) => engine.run(spec, ports, &loads, stop, progress)?,
            Engine::Ports(engine) => {
                engine.run(spec, &self.copies, ports, &loads, stop, progress)?
            }
        };
        let branches = outcome.directions.split_off(loads.len());
        for (load, direction) in loads.iter().zip(&mut outcome.directions) {
            let way = &self.spec.ways[load.way];
            let [from, to] = [way.from, way.to].map(|port| &self.spec.ports[port].name);
            direction.name = format!("{from}>{to}");
            fill_streams(direction, load.flows(), load.schedule.counted_from);
        }
        self.add_branches(&mut outcome, branches, &loads);
        Ok(outcome)
    }

    fn add_branches(
        &self,
        outcome: &mut LoadResult,
        arrived: Vec<Direction>,
        loads: &[DirectionLoad],
    ) {
        for (branch, direction) in self.copies.branches.iter().zip(arrived) {
            let load = &loads[0];
            let [from, to] =
                [self.spec.ways[load.way].from, branch.to].map(|port| &self.spec.ports[port].name);
            let name = format!("{from}>{to}");
            load.add_branch(branch.expects, name, direction, &mut outcome.directions);
        }
    }

    fn loads(&mut self, offer: &Offer) -> Result<Vec<DirectionLoad>> {
        let mut loads = Vec::new();
        for (way, spec) in self.spec.ways.iter().enumerate() {
            let mixed = self.copies.mixed.as_ref().filter(|_| way == 0);
            self.tag = self.tag.wrapping_add(1);
            let load = DirectionLoad::new(
                &spec.traffic,
                mixed,
                offer,
                self.tag,
                self.ports[spec.from].mtu,
            )?;
            loads.push(DirectionLoad { way, ..load });
        }
        Ok(loads)
    }
}

enum Engine {
    Xdp(xdp::XdpEngine),
    Ports(ports::Ports),
}

fn by_ports(engine: sonde_port::Engine, spec: &TesterSpec) -> Result<Engine> {
    Ok(Engine::Ports(ports::Ports::open(engine, spec, secret())?))
}

/// What one direction has to do in one trial.
pub struct DirectionLoad {
    way: usize,
    traffic: Traffic,
    /// A second class of frames in its stream.
    mixed: Option<(Classes, Traffic)>,
    schedule: LoadSchedule,
    tag: u8,
    offer: Offer,
}

impl DirectionLoad {
    /// Of the first direction; `mixed` shares its stream. `mtu`: of the port.
    ///
    /// # Errors
    /// Frames that cannot be made, or that the port does not carry.
    pub fn new(
        traffic: &Traffic,
        mixed: Option<&Mixed>,
        offer: &Offer,
        tag: u8,
        mtu: u32,
    ) -> Result<DirectionLoad, LoadError> {
        let (mut traffic, mut mixed) = (traffic.clone(), mixed.cloned());
        if let Some(flows) = offer.flows {
            // Groups are the second class's, where there are two.
            let counted = mixed.as_mut().map_or(&mut traffic, |mixed| &mut mixed.traffic);
            counted.flows = flows;
        }
        traffic.check(mtu)?;
        let mixed = match mixed {
            Some(mixed) => {
                mixed.traffic.check(mtu)?;
                Some((mixed.classes(&traffic)?, mixed.traffic))
            }
            None => None,
        };
        let schedule = LoadSchedule::new(offer);
        Ok(DirectionLoad { way: 0, traffic, mixed, schedule, tag, offer: offer.clone() })
    }

    /// Frames of the first `sent` that have to arrive where these are expected, and count.
    pub fn expected(&self, expects: Expects, sent: u64) -> u64 {
        let share = self.share(expects);
        share.of(sent).saturating_sub(share.of(self.schedule.counted_from))
    }

    /// Adds what arrived at a branch: copies that nobody expected are the first direction's,
    /// others are a direction of their own.
    pub fn add_branch(
        &self,
        expects: Expects,
        name: String,
        mut arrived: Direction,
        directions: &mut Vec<Direction>,
    ) {
        if expects == Expects::None {
            directions[0].flooded += arrived.received + arrived.duplicates;
            return;
        }
        arrived.name = name;
        let from = self.schedule.counted_from;
        fill_streams(&mut arrived, self.flows(), from);
        self.share(expects).restrict(&mut arrived, from);
        directions.push(arrived);
    }

    /// The headers of all flows.
    fn headers(&self) -> Result<Vec<HeaderTemplate>, LoadError> {
        match &self.mixed {
            Some((classes, second)) => classes.headers(&self.traffic, second),
            None => headers(&self.traffic),
        }
    }

    /// In its frames' signatures.
    pub fn tag(&self) -> u8 {
        self.tag
    }

    /// Flows in all, which take turns.
    fn flows(&self) -> u32 {
        self.mixed.as_ref().map_or(self.traffic.flows, |(classes, _)| classes.len() as u32)
    }

    /// What a port has to receive of it.
    fn share(&self, expects: Expects) -> CopyShare {
        CopyShare { expects, classes: self.mixed.as_ref().map(|(classes, _)| classes.clone()) }
    }

    /// Points of the time series are this long: a second, or longer where there would be too
    /// many.
    fn slot_ns(&self) -> i64 {
        let seconds = self.schedule.duration_ns() / (Direction::SERIES_POINTS as i64 - 60);
        (seconds / SECOND + 1) * SECOND
    }

    /// After this time, ns, a trial that has not ended is given up.
    fn limit_ns(&self) -> i64 {
        2 * self.schedule.duration_ns() + SECOND
    }
}

/// Tries again what fails because a port was given back only just now. A process that is being
/// started holds copies of this one's descriptors, and so of its programs, until it runs.
fn patiently<T, E>(mut open: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 0..TRIES {
        match open() {
            Ok(opened) => return Ok(opened),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    open()
}

/// Puts the calling thread where it sends from `port`, as one of `senders`, frames that count from
/// `counted` on (ns TAI). What is returned is to be kept while it sends.
fn settle_sender(port: &TesterPort, senders: usize, counted: i64) -> Result<Option<Precedence>> {
    if let Some(name) = &port.netns {
        netns::enter(name)?;
    }
    let after = Duration::from_nanos((counted - tai_now().as_nanos()).max(0) as u64);
    let precedence = precedence(senders, after);
    // Last, so that what gives it its turns may run elsewhere.
    if let Some(cpu) = port.cpu {
        pin_to_cpu(cpu).with_context(|| format!("run on processor {cpu}"))?;
    }
    Ok(precedence)
}

/// Has the calling thread, one of `senders` of this process, run before others; what it sends
/// `counts_after` from now on is what matters.
///
/// It hardly sleeps, and would keep the device from running. So it gets precedence only where every
/// sender has a processor of its own and one is left. Without precedence the frames may be late,
/// which is recorded.
pub(crate) fn precedence(senders: usize, counts_after: Duration) -> Option<Precedence> {
    let room = available_parallelism().is_ok_and(|cpus| senders < cpus.get());
    if room { Precedence::of_this_thread(counts_after).ok() } else { None }
}

/// Octets of an IP packet, at most: for loads whose port is not known here.
pub const MTU_MAX: u32 = 1 << 16;
/// Before an error is one.
const TRIES: u32 = 10;
