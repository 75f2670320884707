//! The controller: a rig whose ports are on other hosts.
//!
//! All times that leave this file are of this host's clock. An agent gets instants of its own
//! clock. The receiving agents subtract the difference of the two clocks from every latency before
//! it is counted: in a histogram it could no longer be taken out exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use rustls::ClientConfig;
use sonde_meter::load::LoadSchedule;
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::trial::{Direction, Offer, TrialHealth};
use sonde_run::error::RunError;
use sonde_sys::clock::tai_now;
use sonde_wire::ethernet::Mac;

use super::clock::ClockOffset;
use super::link::{AgentAddress, AgentLink};
use super::protocol::{
    AgentReply, AgentRequest, DirectionEnd, EndRole, PortName, TrialEnd, TrialSpec,
};
use crate::runner::{Rig, TrialOutcome};
use crate::tester::{Branch, CopySpec, DirectionLoad, DirectionSpec, Expects, MTU_MAX, Mixed};

/// What a rig of agents is opened with.
#[derive(Clone)]
pub struct AgentRigSpec {
    pub agents: Vec<AgentAddress>,
    /// Our certificate, and whom we trust.
    pub tls: Arc<ClientConfig>,
    /// The ports, each with the index of its agent.
    pub ports: Vec<(usize, PortName)>,
    pub ways: Vec<DirectionSpec>,
    /// What goes out beside the first of them, and where else it may arrive.
    pub copies: CopySpec,
    /// How long to wait for the last frames; it ends earlier when all have arrived.
    pub drain: Duration,
    /// Of the frames' signatures.
    pub secret: [u64; 2],
    /// How long an agent is waited for that another controller has: [`super::link::BUSY`], or not at all.
    pub busy: Duration,
}

/// A rig whose ports are on other hosts.
pub struct AgentRig {
    spec: AgentRigSpec,
    /// Where frames arrive: in the order of the directions, then of the branches of the first.
    arrivals: Vec<Arrival>,
    /// `None`: lost, and to be found again at the next offer.
    links: Vec<Option<AgentLink>>,
    tag: u8,
}

impl AgentRig {
    /// Connects to all agents and takes their ports.
    ///
    /// # Errors
    /// Whatever is in the way, with the agent's name.
    pub fn open(spec: AgentRigSpec) -> Result<AgentRig, RunError> {
        let mut rig = Self::new(spec)?;
        rig.connect(&AtomicBool::new(false))?;
        Ok(rig)
    }

    /// Without connections.
    fn new(spec: AgentRigSpec) -> Result<AgentRig, RunError> {
        let whole = spec.ways.iter().enumerate().map(|(way, w)| Arrival {
            way,
            to: w.to,
            for_mac: w.for_mac,
            expects: Expects::All,
        });
        let branch =
            |b: &Branch| Arrival { way: 0, to: b.to, for_mac: b.for_mac, expects: b.expects };
        let arrivals: Vec<Arrival> = whole.chain(spec.copies.branches.iter().map(branch)).collect();
        for arrival in &arrivals {
            let from = spec.ways.get(arrival.way).map_or(usize::MAX, |way| way.from);
            if [from, arrival.to].iter().any(|port| *port >= spec.ports.len()) {
                return Err(RunError::settings("a direction needs two ports".to_owned()));
            }
        }
        let links = spec.agents.iter().map(|_| None).collect();
        Ok(AgentRig { spec, arrivals, links, tag: 0 })
    }

    /// Finds the agents that are lost.
    fn connect(&mut self, stop: &AtomicBool) -> Result<()> {
        for agent in 0..self.spec.agents.len() {
            if self.links[agent].is_none() {
                let AgentRigSpec { agents, tls, busy, .. } = &self.spec;
                let mut link = AgentLink::connect(&agents[agent], tls, *busy, stop)?;
                let open =
                    AgentRequest::Open { secret: self.spec.secret, halves: self.halves(agent) };
                match link.request(&open)? {
                    AgentReply::Opened(_) => {}
                    _ => return Err(link.strange().into()),
                }
                self.links[agent] = Some(link);
            }
        }
        Ok(())
    }

    fn halves(&self, agent: usize) -> Vec<DirectionEnd> {
        let mut halves = Vec::new();
        let half = |index, role, way: usize, at: usize, for_mac: Option<Mac>| {
            let (whose, port) = &self.spec.ports[at];
            let DirectionSpec { traffic, length_change, .. } = &self.spec.ways[way];
            (*whose == agent).then(|| DirectionEnd {
                way: index,
                role,
                port: port.clone(),
                traffic: traffic.clone(),
                mixed: self.mixed(way).cloned(),
                length_change: *length_change,
                for_mac,
            })
        };
        for (index, way) in self.spec.ways.iter().enumerate() {
            halves.extend(half(index, EndRole::Source, index, way.from, None));
        }
        for (index, arrival) in self.arrivals.iter().enumerate() {
            let Arrival { way, to, for_mac, expects } = *arrival;
            halves.extend(half(index, EndRole::Sink { expects }, way, to, for_mac));
        }
        halves
    }

    /// What shares the stream of a direction.
    fn mixed(&self, way: usize) -> Option<&Mixed> {
        self.spec.copies.mixed.as_ref().filter(|_| way == 0)
    }

    /// The agents at both ends.
    fn ends(&self, arrival: &Arrival) -> [usize; 2] {
        [self.spec.ways[arrival.way].from, arrival.to].map(|port| self.spec.ports[port].0)
    }

    fn link(&mut self, agent: usize) -> Result<&mut AgentLink> {
        let name = &self.spec.agents[agent].name;
        self.links[agent].as_mut().ok_or_else(|| anyhow!("agent {name} is lost"))
    }

    /// Asks all for the same, and takes their answers in turn: they work at the same time.
    fn all(&mut self, request: impl Fn(usize) -> AgentRequest) -> Result<Vec<AgentReply>> {
        for agent in 0..self.links.len() {
            self.link(agent)?.send(&request(agent))?;
        }
        (0..self.links.len()).map(|agent| Ok(self.link(agent)?.reply()?)).collect()
    }

    fn offsets(&mut self, times: u32) -> Result<Vec<ClockOffset>> {
        (0..self.links.len()).map(|agent| Ok(self.link(agent)?.offset(times)?)).collect()
    }

    /// [`Rig::offer`], which calls `begins` with when the first frame is due (ns TAI of this host)
    /// as soon as that is agreed upon. What fails is in the outcome: a further try may mend it.
    pub fn offer_from(
        &mut self,
        offer: &Offer,
        stop: &AtomicBool,
        begins: impl FnOnce(i64),
    ) -> TrialOutcome {
        match self.trial(offer, stop, begins) {
            Ok(outcome) => outcome,
            Err(e) => {
                // In the middle of a trial nobody knows what the others still do: all agents
                // are left, which stops them, and found again at the next try.
                self.links.iter_mut().for_each(|link| *link = None);
                TrialOutcome { failed: Some(format!("{e:#}")), ..TrialOutcome::default() }
            }
        }
    }

    fn trial(
        &mut self,
        offer: &Offer,
        stop: &AtomicBool,
        begins: impl FnOnce(i64),
    ) -> Result<TrialOutcome> {
        self.connect(stop)?;
        let before = self.offsets(QUESTIONS)?;
        let start_ns = tai_now().as_nanos() + LEAD_NS;
        let mut loads = Vec::new();
        for (index, way) in self.spec.ways.iter().enumerate() {
            self.tag = self.tag.wrapping_add(1);
            // Whether the port carries it its agent knows.
            loads.push(DirectionLoad::new(
                &way.traffic,
                self.mixed(index),
                offer,
                self.tag,
                MTU_MAX,
            )?);
        }
        let tags: Vec<u8> = self.arrivals.iter().map(|a| loads[a.way].tag()).collect();
        let offset = |a: &Arrival| difference(self.ends(a), &before).ns;
        let offsets_ns: Vec<i64> = self.arrivals.iter().map(offset).collect();
        let arm = |agent: usize| {
            AgentRequest::Arm(TrialSpec {
                offer: offer.clone(),
                tags: tags.clone(),
                start_ns: start_ns + before[agent].ns,
                offsets_ns: offsets_ns.clone(),
            })
        };
        for (agent, reply) in self.all(arm)?.into_iter().enumerate() {
            ensure!(matches!(reply, AgentReply::Done), self.link(agent)?.strange());
        }
        ensure!(
            tai_now().as_nanos() < start_ns,
            "the agents were ready only after the instant at which they were to begin: their hosts, \
             or the network to them, are too busy"
        );
        begins(start_ns);
        let (sent, during) = self.follow(offer, &loads, start_ns, stop)?;
        let sent: Vec<u64> = self.arrivals.iter().map(|a| sent[a.way]).collect();
        let mut ended = Vec::new();
        for (agent, reply) in
            self.all(|_| AgentRequest::End { sent: sent.clone() })?.into_iter().enumerate()
        {
            match reply {
                AgentReply::Ended(end) => ended.push(end),
                _ => return Err(self.link(agent)?.strange().into()),
            }
        }
        let after = self.offsets(QUESTIONS)?;
        let ends: Vec<_> = self.arrivals.iter().map(|a| self.ends(a)).collect();
        let health = health(&ends, &ended, &before, &during, &after);
        let directions = self.directions(offer, &loads, start_ns, &ended, &before)?;
        let ledger = ended.into_iter().flat_map(|e| e.ledger).collect();
        Ok(TrialOutcome { directions, ledger, health, failed: None })
    }

    /// Until all has been sent and has arrived, or should have. What was sent by direction,
    /// and the clocks meanwhile.
    fn follow(
        &mut self,
        offer: &Offer,
        loads: &[DirectionLoad],
        start_ns: i64,
        stop: &AtomicBool,
    ) -> Result<(Vec<u64>, Vec<Vec<ClockOffset>>)> {
        let limit_ns = start_ns + 2 * offer.duration_ns() + GRACE_NS;
        let (mut sent, mut received) = (vec![0; loads.len()], vec![0; self.arrivals.len()]);
        let (mut during, mut asked) = (Vec::new(), Instant::now());
        let (mut drained, mut stopped) = (None::<Instant>, false);
        loop {
            let mut done = true;
            for (agent, reply) in self.all(|_| AgentRequest::Status)?.into_iter().enumerate() {
                let AgentReply::Status(status) = reply else {
                    return Err(self.link(agent)?.strange().into());
                };
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
                self.all(|_| AgentRequest::Stop)?;
            }
            ensure!(
                done || now < limit_ns,
                "the agents did not come to an end in twice the time; their own output says more"
            );
            if asked.elapsed() > ASK_EVERY && !done {
                asked = Instant::now();
                during.push(self.offsets(QUESTIONS_DURING)?);
            }
            if done {
                let since = *drained.get_or_insert_with(Instant::now);
                let complete = self.arrivals.iter().zip(&received).all(|(arrival, received)| {
                    let Arrival { way, expects, .. } = *arrival;
                    *received >= loads[way].expected(expects, sent[way])
                });
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
        loads: &[DirectionLoad],
        start_ns: i64,
        ended: &[TrialEnd],
        clocks: &[ClockOffset],
    ) -> Result<Vec<Direction>> {
        let counted_from = LoadSchedule::new(offer).counted_from;
        let mut directions = Vec::new();
        for (index, arrival) in self.arrivals.iter().enumerate() {
            let [source, sink] = self.ends(arrival);
            let half = |halves: &[Option<Direction>], index: usize, agent: usize| {
                let lost = || {
                    anyhow!(
                        "agent {} has sent no counters of a direction",
                        self.spec.agents[agent].name
                    )
                };
                halves.get(index).cloned().flatten().ok_or_else(lost)
            };
            let out = half(&ended[source].sources, arrival.way, source)?;
            let came = half(&ended[sink].sinks, index, sink)?;
            let ours = |stamps: [i64; 2], agent: usize| {
                stamps.map(|ns| if ns == 0 { 0 } else { ns - clocks[agent].ns })
            };
            let from = self.spec.ways[arrival.way].from;
            let [from, to] = [from, arrival.to].map(|port| &self.spec.ports[port].1.name);
            let name = format!("{from}>{to}");
            let sent_ns = ours(out.sent_ns, source);
            let mut direction = Direction {
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
            let first_due = start_ns + LoadSchedule::new(offer).counted_ns();
            let late = if direction.sent > 0 { sent_ns[0] - first_due } else { 0 };
            direction.worst.iter_mut().for_each(|worst| worst.at_ns -= late);
            // The whole of a stream, too, is a share of it.
            loads[arrival.way].add_branch(arrival.expects, name, direction, &mut directions);
        }
        Ok(directions)
    }
}

impl Rig for AgentRig {
    fn offer(&mut self, offer: &Offer, stop: &AtomicBool) -> Result<TrialOutcome, RunError> {
        Ok(self.offer_from(offer, stop, |_| {}))
    }

    fn caveats(&self) -> CaveatSet {
        let mut caveats = CaveatSet::default();
        if self.arrivals.iter().any(|arrival| {
            let [source, sink] = self.ends(arrival);
            source != sink
        }) {
            caveats.insert(Caveat::ClocksDiffer);
        }
        caveats
    }
}

/// Where frames of a direction arrive.
struct Arrival {
    /// Index of the direction.
    way: usize,
    /// Index of the port.
    to: usize,
    /// Destination MAC address there; `None`: any.
    for_mac: Option<Mac>,
    /// Which of the frames have to.
    expects: Expects,
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
    ends: &[[usize; 2]],
    ended: &[TrialEnd],
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
    for (index, &ends) in ends.iter().enumerate() {
        let (first, last) = (difference(ends, before), difference(ends, after));
        if index == 0 {
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
    use sonde_meter::load::{AddressRule, MacRule, PortRule, Traffic};

    use super::*;

    fn clock(ns: i64, error_ns: i64) -> ClockOffset {
        ClockOffset { ns, error_ns, at_ns: 0 }
    }

    /// Ports a and b of the agents "west" and "east", and c of "east". Frames go from a to b, copies
    /// of them to c; `back`: others go from b to a.
    fn rig(back: bool) -> AgentRig {
        let traffic = Traffic {
            sizes: vec![128],
            tags: Vec::new(),
            labels: Vec::new(),
            source_mac: MacRule::Fixed([2, 0, 0, 0, 0, 1]),
            destination_mac: MacRule::Fixed([2, 0, 0, 0, 0, 2]),
            source: AddressRule::fixed([198, 18, 0, 2].into()),
            destination: AddressRule::fixed([198, 19, 0, 2].into()),
            source_port: PortRule::RFC4814_SOURCE,
            destination_port: PortRule::RFC4814_DESTINATION,
            flows: 1,
            tos: vec![0],
            ttl: 64,
            seed: 1,
        };
        let way = |from, to| DirectionSpec {
            from,
            to,
            traffic: traffic.clone(),
            length_change: 0,
            for_mac: Some([2; 6]),
        };
        let port = |name: &str| PortName {
            name: name.into(),
            interface: format!("eth-{name}"),
            netns: None,
            cpu: None,
        };
        let agent = |name: &str| AgentAddress { name: name.into(), address: "192.0.2.1:1".into() };
        let tls = ClientConfig::builder_with_provider(sonde_run::pem::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let mut ways = vec![way(0, 1)];
        ways.extend(back.then(|| way(1, 0)));
        let branch = Branch { to: 2, for_mac: None, expects: Expects::None };
        let spec = AgentRigSpec {
            agents: vec![agent("west"), agent("east")],
            tls: Arc::new(tls),
            ports: vec![(0, port("a")), (1, port("b")), (1, port("c"))],
            ways,
            copies: CopySpec { mixed: None, branches: vec![branch] },
            drain: Duration::ZERO,
            secret: [1, 2],
            busy: Duration::ZERO,
        };
        AgentRig::new(spec).unwrap()
    }

    #[test]
    fn each_agent_gets_the_ends_at_its_own_ports() {
        let rig = rig(true);
        let ends = |agent| -> Vec<(usize, String, bool)> {
            let halves = rig.halves(agent).into_iter();
            halves.map(|h| (h.way, h.port.name, h.role == EndRole::Source)).collect()
        };
        assert_eq!(ends(0), [(0, "a".into(), true), (1, "a".into(), false)]);
        // Copies of the first direction follow all directions.
        let east = [(1, "b".into(), true), (0, "b".into(), false), (2, "c".into(), false)];
        assert_eq!(ends(1), east);
        assert!(rig.caveats().contains(Caveat::ClocksDiffer));
    }

    #[test]
    fn halves_become_directions_in_this_hosts_time() {
        let rig = rig(false);
        let offer = Offer::steady(1000.0, 100_000_000);
        let load = DirectionLoad::new(&rig.spec.ways[0].traffic, None, &offer, 1, MTU_MAX).unwrap();
        // West's clock is 1 ms ahead of this host's, and east's 2 ms behind it.
        let clocks = [clock(1_000_000, 10), clock(-2_000_000, 10)];
        let out = Direction {
            sent: 100,
            sent_bytes: 12_800,
            sent_ns: [6_000_000, 105_000_000],
            ..Direction::default()
        };
        let came = Direction { received: 99, received_ns: [4_000_000, 0], ..Direction::default() };
        let flooded = Direction { received: 3, ..Direction::default() };
        let west = TrialEnd { sources: vec![Some(out)], sinks: vec![None], ..TrialEnd::default() };
        let east = TrialEnd {
            sources: vec![None],
            sinks: vec![Some(came), Some(flooded)],
            ..TrialEnd::default()
        };
        let of = |ended: &[TrialEnd]| {
            rig.directions(&offer, std::slice::from_ref(&load), 5_000_000, ended, &clocks)
        };
        let directions = of(&[west.clone(), east]).unwrap();
        let [d] = &directions[..] else { panic!("{directions:?}") };
        assert_eq!((d.name.as_str(), d.intended, d.sent, d.received), ("a>b", 100, 100, 99));
        assert_eq!(d.sent_ns, [5_000_000, 104_000_000]);
        // 0: there was none.
        assert_eq!(d.received_ns, [6_000_000, 0]);
        assert_eq!(d.flooded, 3);
        let missing = of(&[west, TrialEnd::default()]).unwrap_err().to_string();
        assert!(missing.contains("agent east has sent no counters"), "{missing}");
    }

    #[test]
    fn the_state_of_all_agents_is_that_of_the_worst() {
        let end = |cpu_ns, stolen_ns, clock_drift_ns| TrialEnd {
            health: TrialHealth { cpu_ns, stolen_ns, clock_drift_ns, ..TrialHealth::default() },
            ..TrialEnd::default()
        };
        let ended = [end(5, 100, 7), end(6, 30, -9)];
        let before = [clock(0, 10), clock(1_000, 20)];
        let after = [clock(0, 10), clock(1_040, 20)];
        let still = health(&[[0, 1]], &ended, &before, &[], &after);
        assert_eq!((still.cpu_ns, still.stolen_ns, still.clock_drift_ns), (11, 100, -9));
        assert_eq!(still.clock_offset_ns, [1_000, 1_040]);
        // The error of the offset, and by how much it changed.
        assert_eq!(still.clock_error_ns, 30 + 40);
        let jumped = [vec![clock(0, 10), clock(5_000, 20)]];
        let jump = health(&[[0, 1]], &ended, &before, &jumped, &after);
        assert_eq!(jump.clock_drift_ns, 5_000 - (1_040 + 30 + 30));
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
