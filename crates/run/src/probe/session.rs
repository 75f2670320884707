//! From targets to running workers: routes, next hops, ports, senders; and while they
//! run, what has to be followed from outside the packet path.

mod change;
mod lane;
mod ports;
mod routing;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use sonde_meter::stamp::{Delays, LinkHeader, NextHopLink, Sender, SenderConfig, StreamSpec};
use sonde_port::icmp;
use sonde_port::{Caps, Engine, OpenSpec};
use sonde_results::StreamInfo;
use sonde_results::run::Health;
use sonde_sys::clock::{self, ClockState};
use sonde_sys::netlink::{NextHops, Routes};
use sonde_wire::Time;

use self::lane::{Lane, of_lane};
pub use self::ports::SessionOptions;
use self::ports::{OpenedPort, check_frames, check_sizes, lane_of, open_ports, with_free_ports};
use self::routing::{Routing, find_routes, no_neighbours, way};
use super::event::Event;
use super::outbox::Outbox;
use super::pace::Pace;
use super::settings::RunSettings;
use super::targets::Target;
use super::worker::{ProbeWorker, Reopen, WorkerCommand, WorkerStatus};
use crate::engine::EngineSettings;
use crate::error::RunError;
use crate::links::netlink;
use crate::running::{Ended, Stop};

/// A measurement under way.
pub struct ProbeSession {
    /// The streams, by the identifiers that records carry.
    pub infos: Vec<StreamInfo>,
    /// What each port can do.
    pub caps: Vec<Caps>,
    /// When the first probe may leave.
    pub start: Time,
    lanes: Vec<Lane>,
    routing: Routing,
    engine: EngineSettings,
    run: RunSettings,
    options: SessionOptions,
    clock: ClockState,
    clock_checked: Instant,
    /// How often the clock had been set when last looked at.
    steps: u32,
    /// Targets to which there is no way so far, with the reason.
    without_way: Vec<(Target, String)>,
    /// When they are tried again.
    pace: Pace,
    /// For engines that get no ICMP errors from the kernel.
    icmp: Option<icmp::Listener>,
    /// Streams by destination and source port, for those errors.
    ours: HashSet<(std::net::SocketAddr, u16)>,
    /// The last trouble with routes and neighbours, so that it is logged once.
    complaint: Option<String>,
}

/// All lanes together, as of their last report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Probes that left this host.
    pub sent: u64,
    /// Valid replies, before any probe is settled.
    pub received: u64,
    /// Their round trips, before any is settled.
    pub delays: Delays,
}

impl ProbeSession {
    /// Finds the way to every target, opens the ports, and starts sending. A target without a
    /// way is left out, unless it is the only one.
    pub fn open(
        mut targets: Vec<Target>,
        run: &RunSettings,
        engine: &EngineSettings,
        options: SessionOptions,
    ) -> Result<Self, RunError> {
        let mut routes = Routes::open().with_context(|| netlink("ask the kernel for routes"))?;
        let alone = targets.len() == 1;
        let (found, without_way) = find_routes(&mut routes, &mut targets, engine, alone)?;
        if let (true, Some((first, error))) = (found.is_empty(), without_way.first()) {
            let (n, name) = (without_way.len(), &first.name);
            return Err(anyhow!(
                "there is a way to none of {n} targets; the first: {name}: {error}"
            )
            .into());
        }
        let targets = &targets[..];
        check_sizes(targets, &found, options.fragment)?;
        let below_ip = engine.engine != Engine::Socket;
        let (next_hops, hop_of) = if below_ip {
            NextHops::resolve(&found, PATIENCE)
                .map_err(|e| no_neighbours(e, "follow the kernel's neighbours"))?
        } else {
            // The kernel finds the way; it is watched, so that what never left is known as such.
            NextHops::watch(&found)
                .or_else(|_| NextHops::watch(&[]).map(|(none, _)| (none, vec![0; found.len()])))
                .with_context(|| netlink("follow the kernel's routes"))?
        };
        let way_of = |i: usize| {
            let hop = u16::try_from(hop_of[i]);
            let hop = hop.map_err(|_| anyhow!("more than 65,536 next hops; split the run"))?;
            Ok((found[i].source, hop))
        };
        let (plan, opened) = with_free_ports(targets, run.seed, &HashMap::new(), way_of, |plan| {
            let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for (i, stream) in plan.streams.iter().enumerate() {
                let lane = lane_of(stream, &found[plan.target_of[i] as usize], below_ip);
                groups.entry(lane).or_default().push(i as u32);
            }
            open_ports(engine, plan, groups, &found, options)
        })?;
        for opened in &opened {
            let Caps { engine, mode, .. } = opened.port.caps();
            tracing::debug!("{} streams leave by {engine} ({mode})", opened.streams.len());
            check_frames(opened.port.caps(), &plan, &opened.streams)?;
        }
        let mut ways: Vec<NextHopLink> = next_hops.all().iter().map(way).collect();
        if ways.is_empty() {
            ways.push(Ok(LinkHeader::new([0; 6], [0; 6], &[])));
        }
        let clock = clock::clock_state();
        let start = opened[0].port.now() + LEAD + plan.streams.len() as i64 * LEAD_A_STREAM;
        let mut session = ProbeSession {
            caps: opened.iter().map(|opened| opened.port.caps().clone()).collect(),
            infos: plan.infos,
            start,
            lanes: Vec::new(),
            without_way,
            pace: Pace::new(Instant::now()),
            // Without the privilege for it these engines could not have been opened.
            icmp: if below_ip { icmp::Listener::open().ok() } else { None },
            ours: plan.streams.iter().map(|s| (s.destination, s.source.port())).collect(),
            routing: Routing {
                routes,
                reported: Default::default(),
                next_hops,
                targets: targets.iter().map(|target| (target.clone(), None)).collect(),
                lower: found.iter().map(|route| route.lower.clone()).collect(),
                target_of: plan.target_of,
                way_of: hop_of.iter().map(|&hop| hop as u16).collect(),
                ways: ways.clone(),
                sources: found.iter().map(|r| r.source).collect(),
                plan: plan.streams,
                below_ip,
                refreshed: Instant::now(),
                changed: false,
            },
            engine: engine.clone(),
            run: run.clone(),
            options,
            clock,
            clock_checked: Instant::now(),
            steps: clock::steady_scale().steps,
            complaint: None,
        };
        for opened in opened {
            let cpu = session.cpu_of(session.lanes.len());
            let lane = session.start_lane(opened, &session.routing.plan, &ways, (start, cpu))?;
            session.lanes.push(lane);
        }
        Ok(session)
    }

    /// The processor of a lane, where the user gives any.
    fn cpu_of(&self, lane: usize) -> Option<usize> {
        self.engine.cpu.map(|cpu| cpu + lane)
    }

    /// Starts a worker on a port, for its streams of `plan`.
    fn start_lane(
        &self,
        opened: OpenedPort,
        plan: &[StreamSpec],
        ways: &[NextHopLink],
        (start, cpu): (Time, Option<usize>),
    ) -> Result<Lane> {
        let OpenedPort { port, spec, ifindex, streams } = opened;
        let specs = of_lane(plan, &streams);
        let (run, n) = (&self.run, specs.len());
        let config = SenderConfig {
            start,
            timeout: run.timeout,
            interval: run.record_interval,
            late_limit: run.late_limit,
            tai_offset: i64::from(self.clock.tai_offset_s) * 1_000_000_000,
            clock_synchronised: self.clock.synchronised,
            clock_error: self.clock.max_error_ns,
            tx_stamps: port.caps().tx_stamp != sonde_wire::StampSource::User,
            kernel_resolves: !port.caps().link_layer,
            histogram_pages: (n * PAGES_FOR_ANY).min((n * PAGES_A_STREAM).max(20_000)),
            samples: self.options.samples,
            seed: run.seed,
        };
        let sender = Sender::new(config.clone(), &specs, ways.to_vec())?;
        let end = run.duration.map_or(Time::MAX, |duration| self.start + duration);
        let (kind, filter) = (self.engine.engine, spec.filter.clone());
        let reopen: Reopen = Box::new(move |filter| {
            let filter = filter.clone();
            Ok(sonde_port::open(kind, &OpenSpec { filter, ..spec.clone() })?)
        });
        let worker = ProbeWorker::start(port, reopen, sender, run.timeout, end, cpu)?;
        Ok(Lane { worker, config, ifindex, filter, streams, latest: WorkerStatus::default() })
    }

    /// Our clock as last looked at.
    pub fn clock(&self) -> ClockState {
        self.clock
    }

    /// Fetches what the workers have finished as far as it finds room, and passes on to them what
    /// has changed outside. Nothing that fails here ends a measurement: it is logged.
    pub fn poll(&mut self, outbox: &mut Outbox) -> Progress {
        let mut progress = Progress::default();
        for lane in &mut self.lanes {
            lane.drain(&self.routing.plan, outbox);
            while let Ok(status) = lane.worker.status.pop() {
                lane.latest = status;
            }
            progress.sent += lane.latest.sent;
            progress.received += lane.latest.received;
            progress.delays.merge(lane.latest.delays);
        }
        if let Some(listener) = &mut self.icmp
            && outbox.has_room()
        {
            let ours = &self.ours;
            listener.poll(&mut |error| {
                if ours.contains(&(error.destination, error.source_port)) {
                    outbox.push(Event::Undelivered(error));
                }
            });
        }
        let followed = self.routing.follow(&mut self.lanes, self.engine.iface.as_deref());
        self.complain(followed);
        self.follow_clock();
        progress
    }

    /// Targets to which there is no way so far, with the reason.
    pub fn without_way(&self) -> impl Iterator<Item = (&str, &str)> {
        self.without_way.iter().map(|(target, why)| (target.name.as_str(), why.as_str()))
    }

    /// Logs a trouble once; it ends no measurement.
    pub fn complain(&mut self, result: Result<()>) {
        if let Err(error) = result {
            let text = format!("{error:#}");
            if self.complaint.as_ref() != Some(&text) {
                tracing::warn!("{text}");
                self.complaint = Some(text);
            }
        }
    }

    /// The instrument's own behaviour so far; counters come at the end.
    pub fn health(&self) -> Health {
        let mut all = Health::default();
        for lane in &self.lanes {
            let health = lane.worker.health.lock().unwrap_or_else(|e| e.into_inner());
            all.send_lateness.merge(&health.send_lateness);
            all.pauses.merge(&health.pauses);
        }
        all
    }

    /// Asks all workers to end.
    pub fn stop(&self) {
        self.lanes.iter().for_each(|l| l.worker.stop());
    }

    /// Asks all workers to end without waiting for late replies.
    pub fn hurry(&self) {
        self.lanes.iter().for_each(|l| l.worker.hurry());
    }

    /// Whether all workers have ended.
    pub fn is_finished(&self) -> bool {
        self.lanes.iter().all(|l| l.worker.is_finished())
    }

    /// Waits for the workers, hands out their last records, and reports on their
    /// behaviour, also where one of them has failed.
    pub fn close(mut self, outbox: &mut Outbox, stop: &Stop) -> Ended {
        let mut all = Ended::default();
        outbox.wait(stop);
        self.stop();
        for mut lane in std::mem::take(&mut self.lanes) {
            while !lane.worker.is_finished() {
                lane.drain(&self.routing.plan, outbox);
                std::thread::sleep(Duration::from_millis(1));
            }
            lane.drain(&self.routing.plan, outbox);
            let ended = lane.worker.join();
            all.health.send_lateness.merge(&ended.health.send_lateness);
            all.health.pauses.merge(&ended.health.pauses);
            for (name, n) in ended.counters {
                *all.counters.entry(name).or_default() += n;
            }
            all.caveats.merge(ended.caveats);
            all.failure = all.failure.or(ended.failure);
        }
        all
    }

    fn follow_clock(&mut self) {
        if self.clock_checked.elapsed() < CLOCK_CHECK {
            return;
        }
        self.clock_checked = Instant::now();
        let scale = clock::steady_scale();
        if scale.steps != self.steps {
            self.steps = scale.steps;
            let by = sonde_results::units::format_ns(scale.last_step.unsigned_abs() as f64);
            let way = if scale.last_step < 0 { "back" } else { "forward" };
            tracing::warn!(
                "this host's clock was set {way} by {by}; probes go on in time, and no delay spans it"
            );
        }
        let clock = clock::clock_state();
        if clock.synchronised != self.clock.synchronised {
            let state = if clock.synchronised { "synchronised" } else { "no longer synchronised" };
            tracing::warn!("this host's clock is {state}");
        }
        self.clock = clock;
        for lane in &mut self.lanes {
            let state = WorkerCommand::Clock(clock.synchronised, clock.max_error_ns);
            let _ = lane.worker.commands.push(state);
        }
    }
}

/// How long to wait for the first answers of neighbours.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between looks at the clock's state.
const CLOCK_CHECK: Duration = Duration::from_secs(1);
/// From opening to the first send, ns: threads start meanwhile.
const LEAD: i64 = 20_000_000;
/// And for each stream, ns: its memory is laid out meanwhile.
const LEAD_A_STREAM: i64 = 15_000;
/// Pages that six histograms need whatever their values.
const PAGES_FOR_ANY: usize = 6 * 120;
/// Pages a stream needs on a busy path: delays over a dozen powers of two, and their
/// variation on both sides of zero.
const PAGES_A_STREAM: usize = 64;

#[cfg(test)]
mod tests;
