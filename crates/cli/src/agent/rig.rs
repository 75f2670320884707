//! The controller: a rig whose ports are on other hosts.
//!
//! All times that leave this file are of this host's clock. An agent is told instants on its
//! own, and the receiving agents subtract the difference of the two clocks from every latency
//! before it is counted (in a histogram it could no longer be taken out exactly).

use std::fmt;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use sonde_meter::load::{Schedule, fill_streams};
use sonde_port::clock::tai_now;
use sonde_port::stream::connect_tcp;
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::trial::{Direction, Offer, TrialHealth};

use super::clock::{ClockOffset, ask};
use super::protocol::{
    Arm, Channel, Ended, Half, PROTOCOL, PortDescription, PortName, Reply, Request, Role,
};
use crate::bench::runner::{Outcome, Rig};
use crate::bench::tester::Way;

/// An agent, as a plan names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAddress {
    /// In messages.
    pub name: String,
    /// "HOST:PORT"; the agent's certificate carries HOST.
    pub address: String,
}

/// What a rig of agents is opened with.
#[derive(Clone)]
pub struct AgentRigSpec {
    /// The agents.
    pub agents: Vec<AgentAddress>,
    /// Our certificate, and whom we trust.
    pub tls: Arc<ClientConfig>,
    /// The ports, each with the index of its agent.
    pub ports: Vec<(usize, PortName)>,
    /// The directions.
    pub ways: Vec<Way>,
    /// How long to wait for the last frames; it ends earlier when all have arrived.
    pub drain: Duration,
    /// Of the frames' signatures.
    pub secret: [u64; 2],
    /// How long an agent is waited for that another controller has: [`BUSY`], or not at all.
    pub busy: Duration,
}

/// A rig whose ports are on other hosts.
pub struct AgentRig {
    spec: AgentRigSpec,
    /// `None`: lost, and to be found again at the next offer.
    links: Vec<Option<Link>>,
    tag: u8,
}

/// A connection to an agent.
pub struct Link {
    name: String,
    channel: Channel<StreamOwned<ClientConnection, TcpStream>>,
    clock: SocketAddr,
    clock_key: [u8; 32],
}

impl Link {
    /// Connects, and checks that both are of one kind. An agent that another controller has is
    /// asked again for so long, until `stop` is set: after a controller has died its agents
    /// take a moment to notice.
    ///
    /// # Errors
    /// Whatever is in the way, with the agent's name.
    pub fn connect(
        agent: &AgentAddress,
        tls: &Arc<ClientConfig>,
        busy: Duration,
        stop: &AtomicBool,
    ) -> Result<Link> {
        let (begin, mut told) = (Instant::now(), false);
        loop {
            let error = match Self::try_connect(agent, tls) {
                Ok(link) => return Ok(link),
                Err(e) => e,
            };
            let waits = begin.elapsed() < busy && !stop.load(Ordering::Relaxed);
            if !(waits && error.is::<Busy>()) {
                return Err(error.context(format!("agent {}", agent.name)));
            }
            if !told {
                told = true;
                let seconds = busy.as_secs();
                eprintln!("sonde: agent {}: {error}; waiting up to {seconds} s", agent.name);
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn try_connect(agent: &AgentAddress, tls: &Arc<ClientConfig>) -> Result<Link> {
        let (host, _) = agent.address.rsplit_once(':').context("write HOST:PORT")?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone())
            .with_context(|| format!("'{host}' is no name that a certificate can carry"))?;
        let found = agent.address.to_socket_addrs();
        let found = found.with_context(|| format!("cannot find {}", agent.address))?;
        let mut error = anyhow!("{} has no address", agent.address);
        for peer in found {
            match connect_tcp(peer, PATIENCE, PATIENCE) {
                Ok(stream) => return Self::greet(agent, name, stream, tls),
                Err(e) => error = anyhow!(e).context(format!("cannot connect to {peer}")),
            }
        }
        Err(error)
    }

    fn greet(
        agent: &AgentAddress,
        name: ServerName<'static>,
        stream: TcpStream,
        tls: &Arc<ClientConfig>,
    ) -> Result<Link> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut clock = stream.peer_addr()?;
        let mut wire = StreamOwned::new(ClientConnection::new(tls.clone(), name)?, stream);
        while wire.conn.is_handshaking() {
            wire.conn.complete_io(&mut wire.sock).context("TLS; see docs/agent.md")?;
        }
        let mut channel = Channel::new(wire);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        // An agent that does not want our certificate says so only now.
        channel
            .send(&Request::Hello { protocol: PROTOCOL, version })
            .context("it does not take our certificate")?;
        let reply = channel.poll().context("it does not take our certificate, or is none")?;
        match reply.context("it does not answer")? {
            Reply::Hello { protocol: PROTOCOL, clock_port, clock_key, .. } => {
                clock.set_port(clock_port);
                Ok(Link { name: agent.name.clone(), channel, clock, clock_key })
            }
            Reply::Hello { protocol, version, .. } => bail!(
                "it is of version {version} and speaks protocol {protocol}, this Sonde speaks \
                 {PROTOCOL}; use the same Sonde on both"
            ),
            Reply::Busy(who) => bail!(Busy(who)),
            Reply::Failed(why) => bail!(why),
            _ => bail!("it answers something else than was asked"),
        }
    }

    /// What one of its ports is.
    ///
    /// # Errors
    /// No such port; no such agent any more.
    pub fn look(&mut self, port: &PortName) -> Result<PortDescription> {
        match self.request(&Request::Look { port: port.clone() })? {
            Reply::Port(description) => Ok(description),
            _ => Err(self.strange()),
        }
    }

    fn request(&mut self, request: &Request) -> Result<Reply> {
        self.send(request)?;
        self.reply()
    }

    fn send(&mut self, request: &Request) -> Result<()> {
        self.channel.send(request).with_context(|| format!("agent {} is lost", self.name))
    }

    fn reply(&mut self) -> Result<Reply> {
        let begin = Instant::now();
        loop {
            match self.channel.poll() {
                Ok(Some(Reply::Failed(why))) => bail!("agent {}: {why}", self.name),
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) if begin.elapsed() < PATIENCE => {}
                Ok(None) => bail!("agent {} is lost: it does not answer", self.name),
                Err(e) => return Err(anyhow!(e).context(format!("agent {} is lost", self.name))),
            }
        }
    }

    fn offset(&self, times: u32) -> Result<ClockOffset> {
        ask(self.clock, &self.clock_key, times)
            .with_context(|| format!("agent {}: its clock", self.name))
    }

    fn strange(&self) -> anyhow::Error {
        anyhow!("agent {} answers something else than was asked", self.name)
    }
}

/// Why an agent does not take us: who has its ports.
#[derive(Debug)]
struct Busy(String);

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "busy: {} has its ports", self.0)
    }
}

impl std::error::Error for Busy {}

impl AgentRig {
    /// Connects to all agents and takes their ports.
    ///
    /// # Errors
    /// Whatever is in the way, with the agent's name.
    pub fn open(spec: AgentRigSpec) -> Result<AgentRig> {
        for way in &spec.ways {
            let ports = [way.from, way.to].map(|p| spec.ports.get(p));
            ensure!(ports.iter().all(Option::is_some), "a direction needs two ports");
        }
        let links = spec.agents.iter().map(|_| None).collect();
        let mut rig = AgentRig { spec, links, tag: 0 };
        rig.connect(&AtomicBool::new(false))?;
        Ok(rig)
    }

    /// Finds the agents that are lost.
    fn connect(&mut self, stop: &AtomicBool) -> Result<()> {
        for agent in 0..self.spec.agents.len() {
            if self.links[agent].is_none() {
                let AgentRigSpec { agents, tls, busy, .. } = &self.spec;
                let mut link = Link::connect(&agents[agent], tls, *busy, stop)?;
                let open = Request::Open { secret: self.spec.secret, halves: self.halves(agent) };
                match link.request(&open)? {
                    Reply::Opened(_) => {}
                    _ => return Err(link.strange()),
                }
                self.links[agent] = Some(link);
            }
        }
        Ok(())
    }

    fn halves(&self, agent: usize) -> Vec<Half> {
        let mut halves = Vec::new();
        for (number, way) in self.spec.ways.iter().enumerate() {
            for (port, role) in [(way.from, Role::Source), (way.to, Role::Sink)] {
                let (whose, port) = &self.spec.ports[port];
                if *whose == agent {
                    halves.push(Half {
                        way: number,
                        role,
                        port: port.clone(),
                        traffic: way.traffic.clone(),
                        length_change: way.length_change,
                        for_mac: way.for_mac,
                    });
                }
            }
        }
        halves
    }

    /// The agents at both ends of a direction.
    fn ends(&self, way: &Way) -> [usize; 2] {
        [way.from, way.to].map(|port| self.spec.ports[port].0)
    }

    fn link(&mut self, agent: usize) -> Result<&mut Link> {
        let name = &self.spec.agents[agent].name;
        self.links[agent].as_mut().ok_or_else(|| anyhow!("agent {name} is lost"))
    }

    /// Asks all for the same, and takes their answers in turn: they work at the same time.
    fn all(&mut self, request: impl Fn(usize) -> Request) -> Result<Vec<Reply>> {
        for agent in 0..self.links.len() {
            self.link(agent)?.send(&request(agent))?;
        }
        (0..self.links.len()).map(|agent| self.link(agent)?.reply()).collect()
    }

    fn offsets(&mut self, times: u32) -> Result<Vec<ClockOffset>> {
        (0..self.links.len()).map(|agent| self.link(agent)?.offset(times)).collect()
    }

    /// [`Rig::offer`], which tells when the first frame is due, ns TAI of this host, as soon as
    /// that is agreed upon.
    ///
    /// # Errors
    /// As for [`Rig::offer`].
    pub fn offer_telling(
        &mut self,
        offer: &Offer,
        stop: &AtomicBool,
        begins: impl FnOnce(i64),
    ) -> Result<Outcome> {
        ensure!(
            offer.pattern.is_plan() && offer.flows.is_none(),
            "agents carry out the plan's own flows only: this procedure needs a tester whose \
             ports are all on one host"
        );
        match self.trial(offer, stop, begins) {
            Ok(outcome) => Ok(outcome),
            Err(e) => {
                // In the middle of a trial nobody knows what the others still do: all agents
                // are left, which stops them, and found again at the next try.
                self.links.iter_mut().for_each(|link| *link = None);
                Ok(Outcome { failed: Some(format!("{e:#}")), ..Outcome::default() })
            }
        }
    }

    fn trial(
        &mut self,
        offer: &Offer,
        stop: &AtomicBool,
        begins: impl FnOnce(i64),
    ) -> Result<Outcome> {
        self.connect(stop)?;
        let before = self.offsets(QUESTIONS)?;
        let start_ns = tai_now().as_nanos() + LEAD_NS;
        let tags: Vec<u8> = self
            .spec
            .ways
            .iter()
            .map(|_| {
                self.tag = self.tag.wrapping_add(1);
                self.tag
            })
            .collect();
        let differences: Vec<Difference> =
            self.spec.ways.iter().map(|w| difference(self.ends(w), &before)).collect();
        let offsets_ns: Vec<i64> = differences.iter().map(|d| d.ns).collect();
        let arm = |agent: usize| {
            Request::Arm(Arm {
                offer: offer.clone(),
                tags: tags.clone(),
                start_ns: start_ns + before[agent].ns,
                offsets_ns: offsets_ns.clone(),
            })
        };
        for (agent, reply) in self.all(arm)?.into_iter().enumerate() {
            ensure!(matches!(reply, Reply::Done), self.link(agent)?.strange());
        }
        ensure!(
            tai_now().as_nanos() < start_ns,
            "the agents were ready only after the instant at which they were to begin"
        );
        begins(start_ns);
        let (sent, during) = self.follow(offer, start_ns, stop)?;
        let mut ended = Vec::new();
        for (agent, reply) in
            self.all(|_| Request::End { sent: sent.clone() })?.into_iter().enumerate()
        {
            match reply {
                Reply::Ended(numbers) => ended.push(numbers),
                _ => return Err(self.link(agent)?.strange()),
            }
        }
        let after = self.offsets(QUESTIONS)?;
        let health = health(&self.spec, &ended, &before, &during, &after);
        let directions = self.directions(offer, start_ns, &ended, &before)?;
        let ledger = ended.into_iter().flat_map(|e| e.ledger).collect();
        Ok(Outcome { directions, ledger, health, failed: None })
    }

    /// Until all has been sent and has arrived, or should have. What was sent by direction,
    /// and the clocks meanwhile.
    fn follow(
        &mut self,
        offer: &Offer,
        start_ns: i64,
        stop: &AtomicBool,
    ) -> Result<(Vec<u64>, Vec<Vec<ClockOffset>>)> {
        let limit_ns = start_ns + 2 * offer.duration_ns() + GRACE_NS;
        let counted_from = Schedule::new(offer).counted_from;
        let ways = self.spec.ways.len();
        let (mut sent, mut received) = (vec![0; ways], vec![0; ways]);
        let (mut during, mut asked) = (Vec::new(), Instant::now());
        let (mut drained, mut stopped) = (None::<Instant>, false);
        loop {
            let mut done = true;
            for (agent, reply) in self.all(|_| Request::Status)?.into_iter().enumerate() {
                let Reply::Status(status) = reply else { return Err(self.link(agent)?.strange()) };
                if let Some(why) = &status.failed {
                    bail!("agent {}: {why}", self.spec.agents[agent].name);
                }
                done &= status.done;
                note(&status.sent, &mut sent);
                note(&status.received, &mut received);
            }
            let now = tai_now().as_nanos();
            if stop.load(Ordering::Relaxed) && !stopped {
                stopped = true;
                self.all(|_| Request::Stop)?;
            }
            ensure!(done || now < limit_ns, "the agents did not come to an end in twice the time");
            if asked.elapsed() > ASK_EVERY && !done {
                asked = Instant::now();
                during.push(self.offsets(QUESTIONS_DURING)?);
            }
            if done {
                let since = *drained.get_or_insert_with(Instant::now);
                let complete = sent.iter().zip(&received).all(|(s, r)| *r + counted_from >= *s);
                // Copies may follow where none is missing.
                let wait = if complete { self.spec.drain.min(COPIES) } else { self.spec.drain };
                if since.elapsed() >= wait || stopped {
                    return Ok((sent, during));
                }
            }
            std::thread::sleep(TICK);
        }
    }

    /// Puts the halves together.
    fn directions(
        &self,
        offer: &Offer,
        start_ns: i64,
        ended: &[Ended],
        clocks: &[ClockOffset],
    ) -> Result<Vec<Direction>> {
        let counted_from = Schedule::new(offer).counted_from;
        let mut directions = Vec::new();
        for (number, way) in self.spec.ways.iter().enumerate() {
            let [source, sink] = self.ends(way);
            let half = |halves: &[Option<Direction>], agent: usize| {
                let lost = || anyhow!("agent {} has no numbers", self.spec.agents[agent].name);
                halves.get(number).cloned().flatten().ok_or_else(lost)
            };
            let out = half(&ended[source].sources, source)?;
            let came = half(&ended[sink].sinks, sink)?;
            let ours = |stamps: [i64; 2], agent: usize| {
                stamps.map(|ns| if ns == 0 { 0 } else { ns - clocks[agent].ns })
            };
            let [from, to] = [way.from, way.to].map(|port| &self.spec.ports[port].1.name);
            let sent_ns = ours(out.sent_ns, source);
            let mut direction = Direction {
                name: format!("{from}>{to}"),
                intended: offer.frames - counted_from,
                sent: out.sent,
                sent_bytes: out.sent_bytes,
                sent_ns,
                received_ns: ours(came.received_ns, sink),
                gaps: out.gaps,
                lateness: out.lateness,
                ..came
            };
            // They count from when the first frame was due: now from when it left.
            let first_due = start_ns + Schedule::new(offer).counted_ns();
            let late = if direction.sent > 0 { sent_ns[0] - first_due } else { 0 };
            direction.worst.iter_mut().for_each(|worst| worst.at_ns -= late);
            fill_streams(&mut direction, way.traffic.flows, counted_from);
            directions.push(direction);
        }
        Ok(directions)
    }
}

impl Rig for AgentRig {
    fn offer(&mut self, offer: &Offer, stop: &AtomicBool) -> Result<Outcome> {
        self.offer_telling(offer, stop, |_| {})
    }

    fn caveats(&self) -> CaveatSet {
        let mut caveats = CaveatSet::default();
        if self.spec.ways.iter().any(|way| {
            let [source, sink] = self.ends(way);
            source != sink
        }) {
            caveats.insert(Caveat::ClocksDiffer);
        }
        caveats
    }
}

/// Between the clocks of a direction's ends: receiver's less sender's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Difference {
    ns: i64,
    error_ns: i64,
}

fn difference([source, sink]: [usize; 2], clocks: &[ClockOffset]) -> Difference {
    if source == sink {
        return Difference { ns: 0, error_ns: 0 };
    }
    let (s, k) = (clocks[source], clocks[sink]);
    Difference { ns: k.ns - s.ns, error_ns: s.error_ns + k.error_ns }
}

/// The state of all agents together, and what their clocks did.
fn health(
    spec: &AgentRigSpec,
    ended: &[Ended],
    before: &[ClockOffset],
    during: &[Vec<ClockOffset>],
    after: &[ClockOffset],
) -> TrialHealth {
    let mut all = TrialHealth::default();
    for h in ended.iter().map(|e| &e.health) {
        all.cpu_ns += h.cpu_ns;
        all.stolen_ns = all.stolen_ns.max(h.stolen_ns);
        all.throttled_ns = all.throttled_ns.max(h.throttled_ns);
        all.involuntary_switches += h.involuntary_switches;
        all.pauses.merge(&h.pauses);
        if h.clock_drift_ns.abs() > all.clock_drift_ns.abs() {
            all.clock_drift_ns = h.clock_drift_ns;
        }
    }
    for (number, way) in spec.ways.iter().enumerate() {
        let ends = [way.from, way.to].map(|port| spec.ports[port].0);
        let (first, last) = (difference(ends, before), difference(ends, after));
        if number == 0 {
            all.clock_offset_ns = [first.ns, last.ns];
        }
        // Latencies were corrected by the first offset: at the end they are wrong by what it
        // has changed, too.
        let error = first.error_ns.max(last.error_ns) + (last.ns - first.ns).abs();
        all.clock_error_ns = all.clock_error_ns.max(error);
        let jump = during
            .iter()
            .map(|clocks| beyond(difference(ends, clocks), first, last))
            .chain([beyond(last, first, first)])
            .max()
            .unwrap_or(0);
        if jump > all.clock_drift_ns.abs() {
            all.clock_drift_ns = jump;
        }
    }
    all
}

/// By how much an offset lies outside of two others, all errors granted, ns.
fn beyond(d: Difference, a: Difference, b: Difference) -> i64 {
    let low = (a.ns - a.error_ns).min(b.ns - b.error_ns) - d.error_ns;
    let high = (a.ns + a.error_ns).max(b.ns + b.error_ns) + d.error_ns;
    (low - d.ns).max(d.ns - high).max(0)
}

fn note(counts: &[Option<u64>], into: &mut [u64]) {
    for (all, count) in into.iter_mut().zip(counts) {
        *all = count.unwrap_or(*all);
    }
}

/// How long a run waits for an agent that another controller has.
pub const BUSY: Duration = Duration::from_secs(10);
/// Until such an agent is asked again.
const AGAIN: Duration = Duration::from_millis(100);
/// For connections, and for an agent's answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// From the order to the first frame: programs are loaded and threads started meanwhile.
const LEAD_NS: i64 = 1_500_000_000;
/// Beyond twice its time a trial is given so much.
const GRACE_NS: i64 = 5_000_000_000;
/// Between two questions how far the agents are.
const TICK: Duration = Duration::from_millis(20);
/// How long after the last frame copies of frames are waited for.
const COPIES: Duration = Duration::from_millis(100);
/// Questions for the time before and after a trial.
const QUESTIONS: u32 = 100;
/// And now and then during it, when they compete with its frames.
const QUESTIONS_DURING: u32 = 10;
const ASK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(ns: i64, error_ns: i64) -> ClockOffset {
        ClockOffset { ns, error_ns, at_ns: 0 }
    }

    #[test]
    fn differences_of_clocks_add_their_errors_unless_it_is_one_clock() {
        let clocks = [clock(1000, 30), clock(-500, 20)];
        assert_eq!(difference([0, 1], &clocks), Difference { ns: -1500, error_ns: 50 });
        assert_eq!(difference([1, 0], &clocks), Difference { ns: 1500, error_ns: 50 });
        assert_eq!(difference([1, 1], &clocks), Difference { ns: 0, error_ns: 0 });
    }

    #[test]
    fn a_jump_is_what_no_error_explains() {
        let d = |ns, error_ns| Difference { ns, error_ns };
        assert_eq!(beyond(d(140, 20), d(100, 10), d(120, 10)), 0);
        assert_eq!(beyond(d(160, 20), d(100, 10), d(120, 10)), 10);
        assert_eq!(beyond(d(0, 20), d(100, 10), d(120, 10)), 70);
    }
}
