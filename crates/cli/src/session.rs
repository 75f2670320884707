//! From targets to running workers: routes, next hops, ports, senders; and while they
//! run, what has to be followed from outside the packet path.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use sonde_meter::stamp::{LinkHeader, Sample, Sender, SenderConfig};
use sonde_port::clock::{self, ClockState};
use sonde_port::netlink::{Macs, NextHop, NextHops, Route, Routes};
use sonde_port::{Caps, Engine, Filter, OpenSpec, Port};
use sonde_results::caveat::CaveatSet;
use sonde_results::run::Health;
use sonde_results::{Interval, StreamInfo};
use sonde_wire::Time;

use crate::args::EngineArgs;
use crate::settings::RunSettings;
use crate::targets::{self, Plan, Target};
use crate::worker::{Command, Ended, ProbeWorker, Status};

/// A measurement under way.
pub struct Session {
    /// The streams, by the numbers that records carry.
    pub infos: Vec<StreamInfo>,
    /// What each port can do.
    pub caps: Vec<Caps>,
    /// When the first probe may leave.
    pub start: Time,
    lanes: Vec<Lane>,
    routing: Option<Routing>,
    clock: ClockState,
    clock_checked: Instant,
    /// The last trouble with routes and neighbours, so that it is told once.
    complaint: Option<String>,
}

/// One port, one worker, and the streams that leave there.
struct Lane {
    worker: ProbeWorker,
    /// Global number of each of its streams.
    streams: Vec<u32>,
    latest: Status,
}

/// What is asked of the kernel again when it says that something has changed.
struct Routing {
    routes: Routes,
    next_hops: NextHops,
    /// Destination, wanted source and interface of each target.
    destinations: Vec<(IpAddr, Option<IpAddr>, u32)>,
    /// Target of each stream.
    target_of: Vec<u32>,
    refreshed: Instant,
}

/// What [`Session::poll`] hands out.
pub enum Event<'a> {
    /// A finished interval record, of the global stream number in it.
    Record(&'a Interval),
    /// A packet's fate.
    Sample(Sample),
    /// Something for people to know: a next hop went away, a clock was stepped.
    Notice(String),
}

/// All lanes together, as of their last report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Probes sent.
    pub sent: u64,
    /// Valid replies.
    pub received: u64,
}

impl Session {
    /// Finds the way to every target, opens the ports, and starts sending.
    pub fn open(
        targets: &[Target],
        run: &RunSettings,
        engine: &EngineArgs,
        samples: bool,
    ) -> Result<Self> {
        let mut routes = Routes::open().context("cannot ask the kernel for routes")?;
        let found = find_routes(&mut routes, targets, engine)?;
        let below_ip = engine.engine != Engine::Socket;
        let (next_hops, hop_of) = if below_ip {
            NextHops::resolve(&found, PATIENCE).context("cannot follow the kernel's neighbours")?
        } else {
            (NextHops::resolve(&[], Duration::ZERO)?.0, vec![0; found.len()])
        };
        let by_address: HashMap<IpAddr, usize> =
            targets.iter().enumerate().map(|(i, t)| (t.address, i)).collect();
        let plan = targets::plan(targets, run.seed, |address| {
            let i = by_address[&address];
            u16::try_from(hop_of[i])
                .map(|hop| (found[i].source, hop))
                .map_err(|_| anyhow!("more than 65,536 next hops; split the run"))
        })?;
        let headers = if below_ip {
            next_hops.all().iter().map(link_header).collect()
        } else {
            vec![Some(LinkHeader::new([0; 6], [0; 6], &[]))]
        };
        let clock = clock::clock_state();
        let target_of: Vec<u32> =
            plan.streams.iter().map(|s| by_address[&s.destination.ip()] as u32).collect();
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (i, &target) in target_of.iter().enumerate() {
            let lane = if below_ip { found[target as usize].lower_ifindex } else { 0 };
            groups.entry(lane).or_default().push(i as u32);
        }
        let mut opened = Vec::new();
        for streams in groups.into_values() {
            let route = &found[target_of[streams[0] as usize] as usize];
            let port = open_port(engine, &plan, &streams, below_ip.then_some(route))?;
            opened.push((port, streams));
        }
        let start = opened[0].0.now() + LEAD + plan.streams.len() as i64 * LEAD_A_STREAM;
        let mut session = Session {
            caps: opened.iter().map(|(p, _)| p.caps().clone()).collect(),
            infos: plan.infos,
            start,
            lanes: Vec::new(),
            routing: below_ip.then(|| Routing {
                routes,
                next_hops,
                destinations: targets
                    .iter()
                    .zip(&found)
                    .map(|(t, r)| (t.address, t.settings.source, r.lower_ifindex))
                    .collect(),
                target_of,
                refreshed: Instant::now(),
            }),
            clock,
            clock_checked: Instant::now(),
            complaint: None,
        };
        for (lane, (port, streams)) in opened.into_iter().enumerate() {
            let specs: Vec<_> = streams.iter().map(|&i| plan.streams[i as usize].clone()).collect();
            let n = specs.len();
            let config = SenderConfig {
                start,
                timeout: run.timeout,
                interval: run.record_interval,
                late_limit: run.late_limit,
                tai_offset: i64::from(clock.tai_offset_s) * 1_000_000_000,
                clock_synchronised: clock.synchronised,
                clock_error: clock.max_error_ns,
                tx_stamps: port.caps().tx_stamp != sonde_wire::StampSource::User,
                histogram_pages: (n * PAGES_FOR_ANY).min((n * PAGES_A_STREAM).max(20_000)),
                samples,
                seed: run.seed,
            };
            let sender = Sender::new(config, &specs, headers.clone())?;
            let cpu = engine.cpu.map(|cpu| cpu + lane);
            let end = run.duration.map_or(Time::MAX, |duration| start + duration);
            let worker = ProbeWorker::start(port, sender, run.timeout, end, cpu)?;
            session.lanes.push(Lane { worker, streams, latest: Status::default() });
        }
        Ok(session)
    }

    /// Our clock as last looked at.
    pub fn clock(&self) -> ClockState {
        self.clock
    }

    /// Fetches what the workers have finished, and tells them what has changed outside.
    /// Nothing that fails here ends a measurement: it is a notice.
    pub fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Progress {
        let mut progress = Progress::default();
        for lane in &mut self.lanes {
            drain(lane, sink);
            while let Ok(status) = lane.worker.status.pop() {
                lane.latest = status;
            }
            progress.sent += lane.latest.sent;
            progress.received += lane.latest.received;
        }
        if let Err(error) = self.follow_next_hops(sink) {
            let text = format!("{error:#}");
            if self.complaint.as_ref() != Some(&text) {
                sink(Event::Notice(text.clone()));
                self.complaint = Some(text);
            }
        }
        self.follow_clock(sink);
        progress
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

    /// Whether all workers have ended.
    pub fn is_finished(&self) -> bool {
        self.lanes.iter().all(|l| l.worker.is_finished())
    }

    /// Waits for the workers, hands out their last records, and reports on their
    /// behaviour, also where one of them has failed.
    pub fn close(mut self, sink: &mut dyn FnMut(Event<'_>)) -> Ended {
        let mut all =
            Ended { health: Health::default(), caveats: CaveatSet::default(), failure: None };
        self.stop();
        for mut lane in std::mem::take(&mut self.lanes) {
            while !lane.worker.is_finished() {
                drain(&mut lane, sink);
                std::thread::sleep(Duration::from_millis(1));
            }
            drain(&mut lane, sink);
            let ended = lane.worker.join();
            all.health.send_lateness.merge(&ended.health.send_lateness);
            all.health.pauses.merge(&ended.health.pauses);
            for (name, n) in ended.health.counters {
                *all.health.counters.entry(name).or_default() += n;
            }
            all.caveats.merge(ended.caveats);
            all.failure = all.failure.or(ended.failure);
        }
        all
    }

    fn follow_next_hops(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let Some(routing) = &mut self.routing else { return Ok(()) };
        let changes = routing.next_hops.poll().context("cannot follow the kernel's neighbours")?;
        for (index, macs) in changes.macs {
            let hop = &routing.next_hops.all()[index];
            let name = hop.address.map_or("the link".into(), |a| a.to_string());
            sink(Event::Notice(match macs {
                Some(m) => format!("next hop {name} is at {}", mac(m.destination)),
                None => format!("next hop {name} cannot be reached; its probes are skipped"),
            }));
            let header = link_header(hop);
            for lane in &mut self.lanes {
                let _ = lane.worker.commands.push(Command::NextHop(index as u16, header));
            }
        }
        if changes.routes {
            routing.look_again(&mut self.lanes, sink)?;
        }
        if routing.refreshed.elapsed() > REFRESH {
            routing.refreshed = Instant::now();
            routing.next_hops.refresh().context("cannot refresh the kernel's neighbours")?;
        }
        Ok(())
    }

    fn follow_clock(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        if self.clock_checked.elapsed() < CLOCK_CHECK {
            return;
        }
        self.clock_checked = Instant::now();
        let clock = clock::clock_state();
        if clock.synchronised != self.clock.synchronised {
            let state = if clock.synchronised { "synchronised" } else { "no longer synchronised" };
            sink(Event::Notice(format!("this host's clock is {state}")));
        }
        self.clock = clock;
        for lane in &mut self.lanes {
            let _ = lane.worker.commands.push(Command::Clock(
                i64::from(clock.tai_offset_s) * 1_000_000_000,
                clock.synchronised,
                clock.max_error_ns,
            ));
        }
    }
}

impl Routing {
    /// Routes have changed: finds each destination's next hop again.
    fn look_again(&mut self, lanes: &mut [Lane], sink: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let mut found = Vec::new();
        let mut place = vec![None; self.destinations.len()];
        for (i, &(destination, source, lower)) in self.destinations.iter().enumerate() {
            match self.routes.lookup(destination, source) {
                Ok(route) if route.lower_ifindex == lower => {
                    place[i] = Some(found.len());
                    found.push(route);
                }
                Ok(route) => sink(Event::Notice(format!(
                    "the route to {destination} has moved to {}; start again to follow it there",
                    route.interface
                ))),
                Err(error) => sink(Event::Notice(error.to_string())),
            }
        }
        let (next_hops, hop_of) = NextHops::resolve(&found, Duration::ZERO)?;
        let mut headers: Vec<_> = next_hops.all().iter().map(link_header).collect();
        // The last one stands for "no way".
        let nowhere = headers.len();
        headers.push(None);
        for lane in lanes {
            let of_stream = lane
                .streams
                .iter()
                .map(|&s| place[self.target_of[s as usize] as usize])
                .map(|p| p.map_or(nowhere, |p| hop_of[p]) as u16)
                .collect();
            let _ = lane.worker.commands.push(Command::Routes(headers.clone(), of_stream));
        }
        self.next_hops = next_hops;
        Ok(())
    }
}

fn drain(lane: &mut Lane, sink: &mut dyn FnMut(Event<'_>)) {
    while let Ok(mut record) = lane.worker.records.pop() {
        record.stream = lane.streams[record.stream as usize];
        sink(Event::Record(&record));
        let _ = lane.worker.recycled.push(record);
    }
    while let Ok(mut sample) = lane.worker.samples.pop() {
        sample.stream = lane.streams[sample.stream as usize];
        sink(Event::Sample(sample));
    }
}

fn find_routes(routes: &mut Routes, targets: &[Target], engine: &EngineArgs) -> Result<Vec<Route>> {
    let mut found = Vec::with_capacity(targets.len());
    for target in targets {
        let route = routes
            .lookup(target.address, target.settings.source)
            .with_context(|| target.name.clone())?;
        if let Some(wanted) = &engine.iface
            && *wanted != route.interface
            && *wanted != route.lower
        {
            bail!(
                "{}: the route goes through {}, not {wanted}; change the route or leave --iface out",
                target.name,
                route.interface
            );
        }
        found.push(route);
    }
    Ok(found)
}

fn open_port(
    engine: &EngineArgs,
    plan: &Plan,
    streams: &[u32],
    route: Option<&Route>,
) -> Result<Box<dyn Port>> {
    let of = |i: &u32| &plan.streams[*i as usize];
    let unique = |ports: BTreeSet<u16>| ports.into_iter().collect();
    let filter = Filter {
        local: streams
            .iter()
            .map(|i| of(i).source.ip())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        local_ports: unique(streams.iter().map(|i| of(i).source.port()).collect()),
        peer_ports: unique(streams.iter().map(|i| of(i).destination.port()).collect()),
    };
    let spec = OpenSpec {
        queues: engine.queues.clone(),
        xdp_mode: engine.xdp_mode,
        busy_poll: engine.busy_poll,
        ..OpenSpec::new(route.map(|r| r.lower.clone()), filter)
    };
    Ok(sonde_port::open(engine.engine, &spec)?)
}

fn link_header(hop: &NextHop) -> Option<LinkHeader> {
    let Macs { destination, source } = hop.macs?;
    Some(LinkHeader::new(destination, source, &hop.tags))
}

fn mac(octets: [u8; 6]) -> String {
    octets.map(|o| format!("{o:02x}")).join(":")
}

/// How long to wait for the first answers of neighbours.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between refreshes of the neighbours: below the kernel's base reachable time.
const REFRESH: Duration = Duration::from_secs(5);
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
