//! From targets to running workers: routes, next hops, ports, senders; and while they
//! run, what has to be followed from outside the packet path.

mod change;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use sonde_meter::stamp::{Delays, LinkHeader, Sender, SenderConfig, StreamSpec, Way};
use sonde_port::icmp;
use sonde_port::{Caps, Engine, Filter, OpenSpec, Port, PortError};
use sonde_results::StreamInfo;
use sonde_results::run::Health;
use sonde_sys::clock::{self, ClockState};
use sonde_sys::netlink::{Macs, NextHop, NextHops, Route, RouteError, Routes, interface_index};
use sonde_wire::{NotSent, Time};

pub use self::change::Changed;
use super::event::Event;
use super::outbox::Outbox;
use super::settings::RunSettings;
use super::targets::{self, Plan, Target};
use super::worker::{Command, ProbeWorker, Reopen, Status};
use crate::engine::EngineSettings;
use crate::error::RunError;
use crate::running::Ended;

/// A measurement under way.
pub struct Session {
    /// The streams, by the numbers that records carry.
    pub infos: Vec<StreamInfo>,
    /// What each port can do.
    pub caps: Vec<Caps>,
    /// When the first probe may leave.
    pub start: Time,
    lanes: Vec<Lane>,
    routing: Routing,
    engine: EngineSettings,
    run: RunSettings,
    options: Options,
    clock: ClockState,
    clock_checked: Instant,
    /// How often the clock had been set when last looked at.
    steps: u32,
    /// Targets that could not be measured, with the reason.
    pub left_out: Vec<(String, String)>,
    /// Of engines that the kernel does not tell of ICMP errors.
    icmp: Option<icmp::Listener>,
    /// Streams by destination and source port, for those errors.
    ours: HashSet<(std::net::SocketAddr, u16)>,
    /// The last trouble with routes and neighbours, so that it is told once.
    complaint: Option<String>,
}

/// One port, one worker, and the streams that leave there.
struct Lane {
    worker: ProbeWorker,
    /// What its sender goes by.
    config: SenderConfig,
    /// The interface that is its own, by [`lane_of`].
    ifindex: u32,
    /// What its port receives.
    filter: Filter,
    /// Global number of each of its streams.
    streams: Vec<u32>,
    latest: Status,
}

/// What is asked of the kernel again when it says that something has changed.
struct Routing {
    routes: Routes,
    next_hops: NextHops,
    /// The targets, and when each was taken off the list.
    targets: Vec<(Target, Option<Instant>)>,
    /// The device that probes to each target leave by.
    lower: Vec<String>,
    /// Target of each stream.
    target_of: Vec<u32>,
    /// Where the probes to each target leave from.
    sources: Vec<IpAddr>,
    /// The streams as they were planned.
    plan: Vec<StreamSpec>,
    /// The engine writes link headers itself, and sends on one interface.
    below_ip: bool,
    refreshed: Instant,
}

/// All lanes together, as of their last report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Probes sent.
    pub sent: u64,
    /// Valid replies.
    pub received: u64,
    /// Their round trips, before any is settled.
    pub delays: Delays,
}

impl Session {
    /// Finds the way to every target, opens the ports, and starts sending. A target without a
    /// way is left out, unless it is the only one.
    pub fn open(
        mut targets: Vec<Target>,
        run: &RunSettings,
        engine: &EngineSettings,
        options: Options,
    ) -> Result<Self, RunError> {
        let mut routes = Routes::open().context("cannot ask the kernel for routes")?;
        let alone = targets.len() == 1;
        let (found, left_out) = find_routes(&mut routes, &mut targets, engine, alone)?;
        if let (true, Some((name, error))) = (found.is_empty(), left_out.first()) {
            let n = left_out.len();
            return Err(anyhow!(
                "there is a way to none of {n} targets; the first: {name}: {error}"
            )
            .into());
        }
        let targets = &targets[..];
        check_sizes(targets, &found, options.fragment).map_err(RunError::Settings)?;
        let below_ip = engine.engine != Engine::Socket;
        if options.fragment && below_ip {
            return Err(RunError::Settings(anyhow!(
                "--fragment needs --engine socket: {} sends each frame as it is",
                engine.engine.name()
            )));
        }
        let (next_hops, hop_of) = if below_ip {
            NextHops::resolve(&found, PATIENCE).context("cannot follow the kernel's neighbours")?
        } else {
            // The kernel finds the way; it is watched, so that what never left is known as such.
            NextHops::watch(&found)
                .or_else(|_| NextHops::watch(&[]).map(|(none, _)| (none, vec![0; found.len()])))
                .context("cannot follow the kernel's routes")?
        };
        let fixed: Vec<u16> = targets.iter().filter_map(|t| t.settings.source_port).collect();
        let mut busy = HashSet::new();
        let (plan, opened) = loop {
            let plan = targets::plan(targets, run.seed, &busy, &HashMap::new(), |i| {
                u16::try_from(hop_of[i])
                    .map(|hop| (found[i].source, hop))
                    .map_err(|_| anyhow!("more than 65,536 next hops; split the run"))
            })?;
            let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for (i, stream) in plan.streams.iter().enumerate() {
                let lane = lane_of(stream, &found[plan.target_of[i] as usize], below_ip);
                groups.entry(lane).or_default().push(i as u32);
            }
            match open_ports(engine, &plan, groups, &found, options) {
                Ok(opened) => break (plan, opened),
                // Another probe of this host, most likely: the next ports do as well.
                Err(PortError::InUse(port))
                    if !fixed.iter().any(|&base| base <= port) && busy.insert(port) => {}
                Err(error) => return Err(anyhow::Error::from(error).into()),
            }
        };
        for opened in &opened {
            let Caps { engine, mode, .. } = opened.port.caps();
            tracing::debug!("{} streams leave by {engine} ({mode})", opened.streams.len());
            check_frames(opened.port.caps(), &plan, &opened.streams).map_err(RunError::Settings)?;
        }
        let mut ways: Vec<Way> = next_hops.all().iter().map(way).collect();
        if ways.is_empty() {
            ways.push(Ok(LinkHeader::new([0; 6], [0; 6], &[])));
        }
        let clock = clock::clock_state();
        let start = opened[0].port.now() + LEAD + plan.streams.len() as i64 * LEAD_A_STREAM;
        let mut session = Session {
            caps: opened.iter().map(|opened| opened.port.caps().clone()).collect(),
            infos: plan.infos,
            start,
            lanes: Vec::new(),
            left_out,
            // Without the privilege for it these engines could not have been opened.
            icmp: if below_ip { icmp::Listener::open().ok() } else { None },
            ours: plan.streams.iter().map(|s| (s.destination, s.source.port())).collect(),
            routing: Routing {
                routes,
                next_hops,
                targets: targets.iter().map(|target| (target.clone(), None)).collect(),
                lower: found.iter().map(|route| route.lower.clone()).collect(),
                target_of: plan.target_of,
                sources: found.iter().map(|r| r.source).collect(),
                plan: plan.streams,
                below_ip,
                refreshed: Instant::now(),
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
        opened: Opened,
        plan: &[StreamSpec],
        ways: &[Way],
        (start, cpu): (Time, Option<usize>),
    ) -> Result<Lane> {
        let Opened { port, spec, ifindex, streams } = opened;
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
        Ok(Lane { worker, config, ifindex, filter, streams, latest: Status::default() })
    }

    /// Our clock as last looked at.
    pub fn clock(&self) -> ClockState {
        self.clock
    }

    /// Fetches what the workers have finished as far as it finds room, and tells them what has
    /// changed outside. Nothing that fails here ends a measurement: it is logged.
    pub fn poll(&mut self, outbox: &mut Outbox) -> Progress {
        let mut progress = Progress::default();
        for lane in &mut self.lanes {
            drain(lane, outbox);
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
        let followed = self.follow_next_hops();
        self.complain(followed);
        self.follow_clock();
        progress
    }

    /// Logs a trouble once; it ends no measurement.
    fn complain(&mut self, result: Result<()>) {
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
    pub fn close(mut self, outbox: &mut Outbox) -> Ended {
        let mut all = Ended::default();
        outbox.wait();
        self.stop();
        for mut lane in std::mem::take(&mut self.lanes) {
            while !lane.worker.is_finished() {
                drain(&mut lane, outbox);
                std::thread::sleep(Duration::from_millis(1));
            }
            drain(&mut lane, outbox);
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

    fn follow_next_hops(&mut self) -> Result<()> {
        let routing = &mut self.routing;
        let changes = routing.next_hops.poll().context("cannot follow the kernel's neighbours")?;
        let mut lost = Alike::default();
        let mut back = Alike::default();
        for (index, macs) in changes.macs {
            let hop = &routing.next_hops.all()[index];
            let name = hop.address.map_or("the link".into(), |a| a.to_string());
            match macs {
                Some(m) => back.add("can be reached", format!("{name} at {}", mac(m.destination))),
                None => lost.add("cannot be reached; its probes are skipped", name),
            }
            let way = way(hop);
            for lane in &mut self.lanes {
                let _ = lane.worker.commands.push(Command::Way(index as u16, way));
            }
        }
        lost.tell("next hop");
        back.tell("next hop");
        if changes.routes {
            routing.look_again(&mut self.lanes, self.engine.iface.as_deref())?;
        }
        if routing.refreshed.elapsed() > REFRESH {
            routing.refreshed = Instant::now();
            routing.next_hops.refresh().context("cannot refresh the kernel's neighbours")?;
        }
        Ok(())
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
            let state = Command::Clock(clock.synchronised, clock.max_error_ns);
            let _ = lane.worker.commands.push(state);
        }
    }
}

impl Routing {
    /// Routes or addresses have changed: finds each destination's next hop again, and where its
    /// probes are to leave from.
    fn look_again(&mut self, lanes: &mut [Lane], iface: Option<&str>) -> Result<()> {
        let mut found = Vec::new();
        let mut alike = Alike::default();
        // For each target its route, or why there is none.
        let mut place = vec![Err(NotSent::NoRoute); self.targets.len()];
        let mut moved = false;
        for (i, place) in place.iter_mut().enumerate() {
            let (target, ended) = &self.targets[i];
            if ended.is_some() {
                continue;
            }
            let destination = target.address;
            match way_to(&mut self.routes, target, destination, iface) {
                // An interface that is made again has another number, and the port takes it up.
                Ok(route) if route.lower == self.lower[i] || !self.below_ip => {
                    let old = self.sources[i];
                    if route.source != old && self.is_gone(destination, old) {
                        let now = format!("leave from {} now", route.source);
                        alike.add(&now, format!("probes to {destination}"));
                        self.sources[i] = route.source;
                        moved = true;
                    }
                    *place = Ok(found.len());
                    found.push(route);
                }
                Ok(route) => alike.add(
                    &format!("is now by {}; start again to follow it there", route.interface),
                    format!("the route to {destination}"),
                ),
                Err(error) => {
                    if matches!(error.downcast_ref(), Some(RouteError::Source(_))) {
                        *place = Err(NotSent::NoAddress);
                    }
                    alike.add(
                        &error.to_string().replace(&destination.to_string(), "it"),
                        destination.to_string(),
                    );
                }
            }
        }
        alike.tell("");
        let (next_hops, hop_of) = match self.below_ip {
            true => NextHops::resolve(&found, Duration::ZERO)?,
            false => NextHops::watch(&found)?,
        };
        let mut ways: Vec<Way> = next_hops.all().iter().map(way).collect();
        let nowhere = ways.len();
        ways.extend([Err(NotSent::NoRoute), Err(NotSent::NoAddress)]);
        for lane in lanes {
            let targets = lane.streams.iter().map(|&s| self.target_of[s as usize] as usize);
            let targets: Vec<usize> = targets.collect();
            let of_stream = targets
                .iter()
                .map(|&target| match place[target] {
                    Ok(found) => hop_of[found] as u16,
                    Err(why) => (nowhere + usize::from(why == NotSent::NoAddress)) as u16,
                })
                .collect();
            let _ = lane.worker.commands.push(Command::Routes(ways.clone(), of_stream));
            if moved {
                let sources: Vec<_> = targets.iter().map(|&target| self.sources[target]).collect();
                for (&stream, &source) in lane.streams.iter().zip(&sources) {
                    self.plan[stream as usize].source.set_ip(source);
                }
                let filter = filter(lane.streams.iter().map(|&s| &self.plan[s as usize]));
                let _ = lane.worker.commands.push(Command::Sources(sources, filter));
            }
        }
        self.next_hops = next_hops;
        Ok(())
    }

    /// Whether `source` is no address of this host any more.
    fn is_gone(&mut self, destination: IpAddr, source: IpAddr) -> bool {
        matches!(self.routes.lookup(destination, Some(source)), Err(RouteError::Source(_)))
    }
}

fn drain(lane: &mut Lane, outbox: &mut Outbox) {
    while outbox.has_room()
        && let Ok(mut record) = lane.worker.records.pop()
    {
        record.stream = lane.streams[record.stream as usize];
        outbox.push(Event::Record(record.clone()));
        let _ = lane.worker.recycled.push(record);
    }
    while outbox.has_room()
        && let Ok(mut sample) = lane.worker.samples.pop()
    {
        sample.stream = lane.streams[sample.stream as usize];
        outbox.push(Event::Sample(sample));
    }
    while outbox.has_room()
        && let Ok(error) = lane.worker.errors.pop()
    {
        outbox.push(Event::Undelivered(error));
    }
}

/// How a session differs from what is usual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Each packet's fate is wanted.
    pub samples: bool,
    /// Packets longer than the path's MTU go in pieces.
    pub fragment: bool,
}

/// Notices that differ in their subject only: a link that goes down is one event, however
/// many targets lie behind it.
#[derive(Default)]
struct Alike(BTreeMap<String, (u64, String)>);

impl Alike {
    fn add(&mut self, what: &str, subject: String) {
        self.0.entry(what.to_string()).and_modify(|(n, _)| *n += 1).or_insert((1, subject));
    }

    fn tell(self, kind: &str) {
        for (what, (count, first)) in self.0 {
            let subject = format!("{kind} {first}");
            let subject = subject.trim_start();
            match count {
                1 => tracing::warn!("{subject} {what}"),
                n => tracing::warn!("{subject} and {} more: {what}", n - 1),
            }
        }
    }
}

/// The way to each target. One that has none is taken out and told; it is a failure if it is the
/// `only` one.
type Ways = (Vec<Route>, Vec<(String, String)>);

fn find_routes(
    routes: &mut Routes,
    targets: &mut Vec<Target>,
    engine: &EngineSettings,
    only: bool,
) -> Result<Ways> {
    let (mut found, mut left_out) = (Vec::with_capacity(targets.len()), Vec::new());
    let mut failure = None;
    targets.retain_mut(|target| {
        if failure.is_some() {
            return false;
        }
        match find_route(routes, target, engine) {
            Ok(route) => {
                found.push(route);
                true
            }
            Err(error) if only => {
                failure = Some(error.context(target.name.clone()));
                false
            }
            Err(error) => {
                left_out.push((target.name.clone(), format!("{error:#}")));
                false
            }
        }
    });
    if let Some(error) = failure {
        return Err(error);
    }
    Ok((found, left_out))
}

/// The way to the first address of `target` that has one.
fn find_route(routes: &mut Routes, target: &mut Target, engine: &EngineSettings) -> Result<Route> {
    let iface = engine.iface.as_deref();
    let mut first_error = None;
    let addresses: Vec<IpAddr> =
        std::iter::once(target.address).chain(target.others.iter().copied()).collect();
    for address in addresses {
        if let (IpAddr::V6(a), None) = (address, target.interface.as_deref().or(iface))
            && a.is_unicast_link_local()
        {
            bail!("{a} is link-local: say by which interface, as in {a}%eth0");
        }
        match way_to(routes, target, address, iface) {
            Ok(route) => {
                target.address = address;
                return Ok(route);
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.unwrap_or_else(|| anyhow!("it has no address")))
}

/// The way to `address` of `target`: by the interface that it asks for, or else `iface`, also if
/// that one lies below the VLAN device of the route.
fn way_to(
    routes: &mut Routes,
    target: &Target,
    address: IpAddr,
    iface: Option<&str>,
) -> Result<Route> {
    let (wanted, source) = (target.interface.as_deref().or(iface), target.settings.source);
    let usual = routes.lookup(address, source);
    match (usual, wanted) {
        (usual, None) => Ok(usual?),
        (Ok(route), Some(name)) if name == route.interface || name == route.lower => Ok(route),
        (_, Some(name)) => Ok(routes.lookup_by(address, source, Some(interface_index(name)?))?),
    }
}

/// Which port carries a stream: where the engine writes link headers, one for each device; else
/// one for all, but for link-local addresses, which mean something else on each link.
fn lane_of(stream: &StreamSpec, route: &Route, below_ip: bool) -> u32 {
    match stream.destination.ip() {
        _ if below_ip => route.lower_ifindex,
        IpAddr::V6(a) if a.is_unicast_link_local() => route.ifindex,
        _ => 0,
    }
}

/// Those of `plan` that a port carries.
fn of_lane(plan: &[StreamSpec], streams: &[u32]) -> Vec<StreamSpec> {
    streams.iter().map(|&i| plan[i as usize].clone()).collect()
}

/// Whether every probe fits the MTU of its way: "don't fragment" is set, so that a longer one
/// would never leave.
fn check_sizes(targets: &[Target], found: &[Route], fragment: bool) -> Result<()> {
    for (target, route) in targets.iter().zip(found) {
        let size = target.settings.size.map_or(0, u32::from);
        if size > route.mtu && !fragment {
            bail!(
                "{}: packets of {size} bytes do not fit, {} carries {}; use -s {} or less, or \
                 --fragment to send them in pieces",
                target.name,
                route.interface,
                route.mtu,
                route.mtu
            );
        }
    }
    Ok(())
}

/// Whether the engine can send every probe.
fn check_frames(caps: &Caps, plan: &Plan, streams: &[u32]) -> Result<()> {
    // What VLAN tags take besides is the device's: the sender skips what then does not fit.
    let most = caps.max_frame.saturating_sub(14);
    for &i in streams {
        let stream = &plan.streams[i as usize];
        if usize::from(stream.ip_length) > most {
            bail!(
                "{}: packets of {} bytes are too long for engine {}; use -s {most} or less, or \
                 --engine socket",
                stream.destination,
                stream.ip_length,
                caps.engine
            );
        }
    }
    Ok(())
}

/// A port that is open.
struct Opened {
    port: Box<dyn Port>,
    /// How it was opened.
    spec: OpenSpec,
    /// See [`Lane::ifindex`].
    ifindex: u32,
    /// The streams that leave there.
    streams: Vec<u32>,
}

fn open_ports(
    engine: &EngineSettings,
    plan: &Plan,
    groups: BTreeMap<u32, Vec<u32>>,
    found: &[Route],
    options: Options,
) -> Result<Vec<Opened>, PortError> {
    let mut opened = Vec::new();
    for (ifindex, streams) in groups {
        let routes: Vec<&Route> =
            streams.iter().map(|&i| &found[plan.target_of[i as usize] as usize]).collect();
        let spec = open_spec(engine, plan, &streams, &routes, options);
        let port = sonde_port::open(engine.engine, &spec)?;
        opened.push(Opened { port, spec, ifindex, streams });
    }
    Ok(opened)
}

fn open_spec(
    engine: &EngineSettings,
    plan: &Plan,
    streams: &[u32],
    routes: &[&Route],
    options: Options,
) -> OpenSpec {
    let of = |i: &u32| &plan.streams[*i as usize];
    let filter = filter(streams.iter().map(of));
    let below_ip = engine.engine != Engine::Socket;
    let interface = if below_ip {
        routes.first().map(|r| r.lower.clone())
    } else {
        // Of a device with VLANs the route's own one: what is bound to the lower one sees no
        // tagged packets.
        engine.iface.clone().map(|wanted| match routes.first() {
            Some(r) if r.lower == wanted => r.interface.clone(),
            _ => wanted,
        })
    };
    let scope = |(i, route): (&u32, &&Route)| match of(i).destination.ip() {
        IpAddr::V6(a) if a.is_unicast_link_local() => Some((a, route.ifindex)),
        _ => None,
    };
    let scopes: BTreeMap<Ipv6Addr, u32> = streams.iter().zip(routes).filter_map(scope).collect();
    OpenSpec {
        queues: engine.queues.clone(),
        xdp_mode: engine.xdp_mode,
        busy_poll: engine.busy_poll,
        steady: true,
        icmp_errors: true,
        bind_device: interface.is_some() && !below_ip,
        fragment: options.fragment,
        scopes: scopes.into_iter().collect(),
        ..OpenSpec::new(interface, filter)
    }
}

/// What is to be received for these streams.
fn filter<'a>(streams: impl Iterator<Item = &'a StreamSpec>) -> Filter {
    let (mut local, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for stream in streams {
        local.insert(stream.source.ip());
        ports.insert(stream.source.port());
    }
    Filter {
        local: local.into_iter().collect(),
        local_ports: ports.into_iter().collect(),
        // Our ports are ours alone: what comes there from elsewhere than was probed is counted.
        peer_ports: Vec::new(),
    }
}

fn way(hop: &NextHop) -> Way {
    let Some(Macs { destination, source }) = hop.macs else {
        return Err(if hop.running { NotSent::NoNeighbour } else { NotSent::LinkDown });
    };
    Ok(LinkHeader::new(destination, source, &hop.tags))
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
