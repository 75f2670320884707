//! The agent: takes one controller at a time, and does what it asks with this host's ports.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sonde_lab::device::DeviceCounter;
use sonde_meter::load::AddressRule;
use sonde_results::trial::Direction;
use sonde_run::error::RunError;
use sonde_run::running::{Latest, RecordSender, Stop};
use sonde_run::thread::{join_scoped, spawn_scoped};
use sonde_server::admission::{Admission, AdmittedConnection, ConnectionLimits};
use sonde_sys::clock::tai_now;
use sonde_sys::host::InterfaceFacts;
use sonde_sys::netns;
use sonde_wire::prefix::{Prefix, address_bits};

use super::clock::{ClockResponder, skew};
use super::protocol::{
    AgentReply, AgentRequest, Channel, DirectionEnd, EndRole, PROTOCOL, PortDescription, PortName,
    TrialEnd, TrialSpec, TrialStatus,
};
use super::{Event, Status};
use crate::counters::{dropped, of_port};
use crate::health::HealthWatch;
use crate::tester::{
    CountedTrial, DirectionLoad, Expects, MTU_MAX, TesterPort, XdpReceivingEnd, XdpSendingEnd,
    port_facts,
};

type Wire = StreamOwned<ServerConnection, TcpStream>;

/// An agent that listens.
pub(super) struct Agent {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    /// Addresses that frames may have.
    allowed: Vec<Prefix>,
    /// Who has the ports.
    taken: Arc<Mutex<Option<SocketAddr>>>,
    admission: Admission,
    complaints: Complaints,
    records: RecordSender<Event>,
    status: Latest<Status>,
}

impl Agent {
    /// Takes the address.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn bind(
        address: SocketAddr,
        tls: ServerConfig,
        allowed: Vec<Prefix>,
        records: RecordSender<Event>,
        status: Latest<Status>,
    ) -> Result<Agent, RunError> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            std::io::Result::Ok(listener)
        };
        let listener = listen().with_context(|| {
            format!("`listen`: cannot listen on {address}; 'ss -lnt' shows who does")
        })?;
        Ok(Agent {
            listener,
            tls: Arc::new(tls),
            allowed,
            taken: Arc::default(),
            admission: Admission::new(LIMITS),
            complaints: Complaints::default(),
            records,
            status,
        })
    }

    /// Where it listens: with port 0 the kernel chose one.
    ///
    /// # Errors
    /// None that could be named.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is set. Each connection has a thread of its own, so that one that
    /// never says who it is keeps nobody out. Nor does it delay the end: every connection is closed
    /// then. Each turn looks at `stop`, by which a watchdog sees that it turns.
    pub fn serve(&self, stop: &Stop) {
        std::thread::scope(|scope| {
            while !stop.is_asked() {
                let Ok((stream, peer)) = self.listener.accept() else {
                    std::thread::sleep(GLANCE);
                    continue;
                };
                let Ok(closer) = stream.try_clone() else { continue };
                // Whoever waits for what comes next hears that nothing will.
                let admitted =
                    self.admission.admit(peer.ip(), move || _ = closer.shutdown(Shutdown::Both));
                let admitted = Arc::new(admitted);
                let started = std::thread::Builder::new().name("sonde-session".into());
                let session = move || {
                    let ended = self.session(stream, peer, &admitted, stop.flag());
                    // At the end it is this agent that breaks off.
                    if let Err(e) = ended
                        && !stop.flag().load(Ordering::Relaxed)
                    {
                        self.status.update(|s| s.complaints += 1);
                        self.complaints.add(format_args!("{peer}: {e:#}"));
                    }
                };
                // Without a thread the connection is closed: the next may do better.
                let _ = started.spawn_scoped(scope, session);
            }
            // Sessions wait for what somebody may never send, or never read.
            self.admission.close_all();
        });
    }

    fn session(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        admitted: &Arc<AdmittedConnection>,
        stop: &AtomicBool,
    ) -> Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GLANCE))?;
        stream.set_write_timeout(Some(HANDSHAKE))?;
        let mut wire = StreamOwned::new(ServerConnection::new(self.tls.clone())?, stream);
        // Until both have shown their certificates nothing is read.
        shake_hands(&mut wire).context(
            "the TLS handshake failed: is it a controller of this laboratory? docs/agent.md",
        )?;
        ensure!(
            admitted.mark_authenticated(),
            "too many controllers are connected; end those that nobody uses any more"
        );
        let mut channel = Channel::new(wire);
        let Some(taken) = Taken::by(peer, &self.taken) else {
            return self.turn_away(&mut channel);
        };
        let _work = admitted.busy();
        tracing::info!("{peer} has this agent's ports");
        self.status.update(|s| (s.controller, s.sessions) = (Some(peer), s.sessions + 1));
        self.records.push(Event::Taken(peer));
        let local = channel.stream().sock.local_addr()?.ip();
        let mut key = [0; 32];
        SystemRandom::new()
            .fill(&mut key)
            .map_err(|_| anyhow!("the kernel gives no random numbers (getrandom)"))?;
        let clock = ClockResponder::start(local, key)
            .context("cannot open a UDP port for the clock; 'ss -lnu' shows those that are open")?;
        let mut session = Session {
            agent: self,
            sources: Vec::new(),
            sinks: Vec::new(),
            ports: Vec::new(),
            secret: [0; 2],
            ways: 0,
        };
        let ended = session.run(&mut channel, &clock, key, stop);
        drop(session);
        drop(taken);
        self.status.update(|s| s.controller = s.controller.filter(|&held| held != peer));
        self.records.push(Event::Freed(peer));
        tracing::info!("{peer} has gone, the ports are free");
        ended
    }

    /// Answers another controller with the address of the one that has the ports. It waits for the
    /// first request: closing a connection with unread data discards the answer (RFC 9293,
    /// section 3.6.1).
    fn turn_away(&self, channel: &mut Channel<Wire>) -> Result<()> {
        let begin = Instant::now();
        while channel.poll::<AgentRequest>()?.is_none() {
            ensure!(
                begin.elapsed() < HANDSHAKE,
                "it asked for nothing within {} s after its certificate: is it a controller?",
                HANDSHAKE.as_secs()
            );
        }
        let other = *self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let who = other.map_or("another controller".into(), |a| a.to_string());
        Ok(channel.send(&AgentReply::Busy(who))?)
    }
}

/// Says what went wrong with connections, at most once a second: strangers can make as many of
/// them as they like.
#[derive(Default)]
struct Complaints(Mutex<(Option<Instant>, u64)>);

impl Complaints {
    fn add(&self, what: std::fmt::Arguments<'_>) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, silent) = *said;
        if last.is_some_and(|last| last.elapsed() < COMPLAIN_EVERY) {
            said.1 = silent.saturating_add(1);
            return;
        }
        *said = (Some(Instant::now()), 0);
        drop(said);
        let more =
            if silent > 0 { format!(" (and {silent} others before)") } else { String::new() };
        tracing::warn!("{what}{more}");
    }
}

/// Both sides' certificates, in a bounded time, however slowly somebody speaks.
fn shake_hands(wire: &mut Wire) -> Result<()> {
    let begin = Instant::now();
    let StreamOwned { conn, sock } = wire;
    while conn.is_handshaking() || conn.wants_write() {
        ensure!(
            begin.elapsed() < HANDSHAKE,
            "it did not end within {HANDSHAKE:?}: is it a controller?"
        );
        if conn.wants_write() {
            conn.write_tls(sock)?;
            continue;
        }
        match conn.read_tls(sock) {
            Ok(0) => bail!("the controller has closed the connection in its TLS handshake"),
            Ok(_) => {
                if let Err(e) = conn.process_new_packets() {
                    // The other side gets the reason, if it still listens.
                    let _ = conn.write_tls(sock);
                    return Err(e.into());
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// The ports, while somebody has them.
struct Taken(Arc<Mutex<Option<SocketAddr>>>);

impl Taken {
    fn by(peer: SocketAddr, owner: &Arc<Mutex<Option<SocketAddr>>>) -> Option<Taken> {
        let mut held = owner.lock().unwrap_or_else(PoisonError::into_inner);
        match *held {
            Some(_) => None,
            None => {
                *held = Some(peer);
                Some(Taken(owner.clone()))
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What one controller has opened.
struct Session<'a> {
    agent: &'a Agent,
    sources: Vec<DirectionEnd>,
    sinks: Vec<(DirectionEnd, XdpReceivingEnd)>,
    /// Those of both, each with whether the device is at the other end of a virtual link.
    ports: Vec<(TesterPort, bool)>,
    secret: [u64; 2],
    /// Directions of the whole tester, as far as they concern this agent.
    ways: usize,
}

impl Session<'_> {
    fn run(
        &mut self,
        channel: &mut Channel<Wire>,
        clock: &ClockResponder,
        clock_key: [u8; 32],
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut heard = Instant::now();
        let mut greeted = false;
        while !stop.load(Ordering::Relaxed) {
            let request = match channel.poll::<AgentRequest>() {
                Ok(Some(request)) => request,
                Ok(None) if heard.elapsed() > IDLE => {
                    bail!("it sent nothing for {} s: its ports are free again", IDLE.as_secs())
                }
                Ok(None) => continue,
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            heard = Instant::now();
            let reply = match request {
                AgentRequest::Hello { protocol: PROTOCOL, .. } => {
                    greeted = true;
                    Ok(AgentReply::Hello {
                        protocol: PROTOCOL,
                        version: env!("CARGO_PKG_VERSION").into(),
                        clock_port: clock.port,
                        clock_key,
                    })
                }
                AgentRequest::Hello { protocol, version } => Err(anyhow!(
                    "this agent is of version {} and speaks protocol {PROTOCOL}, the controller \
                     of version {version} speaks {protocol}; use the same Sonde on both",
                    env!("CARGO_PKG_VERSION")
                )),
                _ if !greeted => Err(anyhow!("the first request must be Hello")),
                AgentRequest::Look { port } => describe(&port).map(AgentReply::Port),
                AgentRequest::Open { secret, halves } => {
                    self.open(secret, halves).map(AgentReply::Opened)
                }
                AgentRequest::Arm(arm) => {
                    self.trial(channel, &arm, stop)?;
                    heard = Instant::now();
                    continue;
                }
                AgentRequest::Stop => Ok(AgentReply::Done),
                AgentRequest::Status | AgentRequest::End { .. } => {
                    Err(anyhow!("no trial is under way"))
                }
            };
            channel.send(&reply.unwrap_or_else(|e| AgentReply::Failed(format!("{e:#}"))))?;
        }
        Ok(())
    }

    fn open(&mut self, secret: [u64; 2], halves: Vec<DirectionEnd>) -> Result<Vec<String>> {
        // The ports may be wanted again.
        self.sinks.clear();
        self.sources.clear();
        self.ports.clear();
        self.secret = secret;
        self.ways = 0;
        let mut modes = Vec::new();
        for half in halves {
            ensure!(
                half.way < WAYS_MAX,
                "direction {} is beyond the {WAYS_MAX} of an agent",
                half.way
            );
            self.check_addresses(&half)?;
            self.ways = self.ways.max(half.way + 1);
            let port = tester_port(&half.port);
            let facts = port_facts(&port)?;
            if self.ports.iter().all(|(known, _)| known.name != port.name) {
                self.ports.push((port.clone(), facts.kind == "veth"));
            }
            match half.role {
                EndRole::Source => {
                    half.traffic.check(facts.mtu)?;
                    modes.push("live frames".into());
                    self.sources.push(half);
                }
                EndRole::Sink { .. } => {
                    let tagged = !half.traffic.tags.is_empty();
                    let sink = XdpReceivingEnd::open(&port, half.for_mac, tagged, secret)?;
                    modes.push(format!("analyser in XDP, {}", sink.mode()));
                    self.sinks.push((half, sink));
                }
            }
        }
        Ok(modes)
    }

    /// An agent does not trust its controller to know this network (RFC 6815).
    fn check_addresses(&self, half: &DirectionEnd) -> Result<()> {
        let allowed = &self.agent.allowed;
        for traffic in [&half.traffic].into_iter().chain(half.mixed.as_ref().map(|m| &m.traffic)) {
            for (rule, further) in
                [(&traffic.source, &[][..]), (&traffic.destination, &groups()[..])]
            {
                ensure!(
                    allowed.iter().chain(further).any(|p| inside(rule, p)),
                    "{} is not an address for benchmarks (RFC 6815), or others that follow it are \
                     not; in an isolated laboratory start this agent with --allow PREFIX",
                    rule.first
                );
            }
        }
        Ok(())
    }

    /// Runs a trial, from its preparation to its counters. An error ends the session.
    fn trial(
        &mut self,
        channel: &mut Channel<Wire>,
        arm: &TrialSpec,
        stop: &AtomicBool,
    ) -> Result<()> {
        let prepared = prepare(&self.sources, &self.sinks, self.ways, self.secret, arm);
        let (sources, expected) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => return Ok(channel.send(&AgentReply::Failed(format!("{e:#}")))?),
        };
        // What this host calls the instant of the first frame.
        let start_ns = arm.start_ns - skew();
        let mut sinks: Vec<(usize, CountedTrial<'_>)> = self
            .sinks
            .iter_mut()
            .zip(&expected)
            .map(|((half, sink), (load, expects))| {
                let way = half.way;
                let offset = arm.offsets_ns[way] - skew();
                (way, sink.begin(load, *expects, half.length_change, start_ns, offset))
            })
            .collect();
        let ports: Vec<TesterPort> = sources.iter().map(|(h, _)| tester_port(&h.port)).collect();
        let counted = counters(&self.ports);
        let watch = HealthWatch::start();
        channel.send(&AgentReply::Done)?;
        channel.stream().sock.set_read_timeout(Some(TICK))?;
        let limit_ns = start_ns + 2 * arm.offer.duration_ns() + GRACE_NS;
        let senders = sources.len();
        let (sent, failed) = std::thread::scope(|scope| -> Result<_> {
            let threads: Vec<_> = sources
                .iter()
                .map(|(_, source)| {
                    spawn_scoped(scope, "sonde-tx", move || source.run(start_ns, senders))
                })
                .collect();
            let guard = StopAll(&sources, &threads);
            let mut failed = None;
            let (mut heard, mut looked) = (Instant::now(), Instant::now());
            let sent = loop {
                let request = channel.poll::<AgentRequest>()?;
                ensure!(
                    !stop.load(Ordering::Relaxed) && heard.elapsed() < SILENCE,
                    "the controller is gone in the middle of a trial"
                );
                sources.iter().for_each(|(_, source)| _ = source.watch());
                let now = tai_now().as_nanos();
                sinks.iter_mut().for_each(|(_, sink)| sink.follow(now));
                if looked.elapsed() > LOOK && failed.is_none() {
                    looked = Instant::now();
                    failed =
                        ports.iter().find_map(|p| port_facts(p).err()).map(anyhow::Error::from);
                }
                if failed.is_some() || now > limit_ns {
                    sources.iter().for_each(|(_, source)| source.stop());
                }
                // A generator that ends by itself has failed: its thread says why.
                let broken =
                    threads.iter().zip(&sources).any(|(t, (_, s))| t.is_finished() && !s.done());
                if broken {
                    sources.iter().for_each(|(_, source)| source.stop());
                }
                let Some(request) = request else { continue };
                heard = Instant::now();
                let reply = match request {
                    AgentRequest::Status => {
                        let mut status = TrialStatus {
                            done: threads.iter().all(|t| t.is_finished()),
                            sent: vec![None; self.ways],
                            received: vec![None; self.ways],
                            failed: failed.as_ref().map(|e| format!("{e:#}")),
                        };
                        sources.iter().for_each(|(h, s)| status.sent[h.way] = Some(s.watch()));
                        sinks.iter().for_each(|(w, s)| status.received[*w] = Some(s.received()));
                        AgentReply::Status(status)
                    }
                    AgentRequest::Stop => {
                        sources.iter().for_each(|(_, source)| source.stop());
                        AgentReply::Done
                    }
                    AgentRequest::End { sent } if sent.len() >= self.ways => break sent,
                    _ => AgentReply::Failed("a trial is under way".into()),
                };
                channel.send(&reply)?;
            };
            drop(guard);
            for thread in threads {
                let ran = join_scoped(thread).map_err(anyhow::Error::from);
                let ran = ran.and_then(|ran| ran.map_err(anyhow::Error::from));
                failed = failed.or(ran.err());
            }
            Ok((sent, failed))
        })?;
        channel.stream().sock.set_read_timeout(Some(GLANCE))?;
        let mut ended = TrialEnd {
            sources: vec![None; self.ways],
            sinks: vec![None; self.ways],
            ledger: dropped(&counted, counters(&self.ports)),
            health: watch.end(),
        };
        for (half, source) in &sources {
            ended.sources[half.way] = Some(on_own_clock(source.read()));
        }
        for (way, sink) in sinks {
            ended.sinks[way] = Some(on_own_clock(sink.end(sent[way])));
        }
        let reply = match failed {
            Some(e) => AgentReply::Failed(format!("{e:#}")),
            None => AgentReply::Ended(ended),
        };
        Ok(channel.send(&reply)?)
    }
}

/// Whether all addresses of a rule lie in one prefix.
fn inside(rule: &AddressRule, prefix: &Prefix) -> bool {
    let first = address_bits(rule.first);
    let way = rule.step.checked_mul(u128::from(rule.count.max(1) - 1));
    let last = way.and_then(|way| first.checked_add(way));
    let (low, high) = prefix.bounds();
    prefix.address.is_ipv4() == rule.first.is_ipv4()
        && low <= first
        && last.is_some_and(|last| last <= high)
}

/// Checks a trial and loads its generators; and what each of the sinks is to count.
fn prepare<'a>(
    sources: &'a [DirectionEnd],
    sinks: &[(DirectionEnd, XdpReceivingEnd)],
    ways: usize,
    secret: [u64; 2],
    arm: &TrialSpec,
) -> Result<Prepared<'a>> {
    ensure!(ways > 0, "no port was opened");
    let offer = &arm.offer;
    ensure!(
        arm.tags.len() >= ways && arm.offsets_ns.len() >= ways,
        "a trial needs a tag and an offset for every direction"
    );
    ensure!(
        offer.frames > 0 && offer.rate_fps.is_finite() && offer.rate_fps > 0.0,
        "a trial needs frames and a rate"
    );
    ensure!(
        offer.steps.iter().all(|s| s.rate_fps.is_finite() && s.rate_fps > 0.0)
            && offer.steps.is_sorted_by_key(|s| s.after_frames),
        "changes of the load need a rate, and come one after the other"
    );
    let load = |half: &DirectionEnd, mtu: u32| {
        DirectionLoad::new(&half.traffic, half.mixed.as_ref(), offer, arm.tags[half.way], mtu)
    };
    let source = |half: &'a DirectionEnd| -> Result<_> {
        let port = tester_port(&half.port);
        let load = load(half, port_facts(&port)?.mtu)?;
        Ok((half, XdpSendingEnd::load(&port, &load, secret)?))
    };
    let expected = |half: &DirectionEnd| match half.role {
        // It is for the sender to carry it.
        EndRole::Sink { expects } => Ok((load(half, MTU_MAX)?, expects)),
        EndRole::Source => bail!("a half that sends does not receive"),
    };
    Ok((
        sources.iter().map(source).collect::<Result<_>>()?,
        sinks.iter().map(|(half, _)| expected(half)).collect::<Result<_>>()?,
    ))
}

/// Generators with their halves, and what each sink is to count.
type Prepared<'a> = (Vec<(&'a DirectionEnd, XdpSendingEnd)>, Vec<(DirectionLoad, Expects)>);

/// Multicast groups that an organisation uses as it likes (RFC 2365, section 6.2; RFC 7346,
/// section 2): no router takes them beyond it.
fn groups() -> [Prefix; 2] {
    [
        Prefix { address: IpAddr::from([239, 192, 0, 0]), bits: 14 },
        Prefix { address: IpAddr::from([0xff18, 0, 0, 0, 0, 0, 0, 0]), bits: 16 },
    ]
}

/// Stops all sources when it goes, however that happens, and waits until their threads have
/// ended.
struct StopAll<'a, 'h, 't>(
    &'a [(&'h DirectionEnd, XdpSendingEnd)],
    &'a [ScopedJoinHandle<'t, Result<(), RunError>>],
);

impl Drop for StopAll<'_, '_, '_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, source)| source.stop());
        while self.1.iter().any(|thread| !thread.is_finished()) {
            // Somebody has to look on until the kernel lets go.
            self.0.iter().for_each(|(_, source)| _ = source.watch());
            std::thread::sleep(TICK);
        }
    }
}

/// Stamps as this agent's clock would have made them.
fn on_own_clock(mut direction: Direction) -> Direction {
    for ns in direction.sent_ns.iter_mut().chain(&mut direction.received_ns) {
        *ns += if *ns == 0 { 0 } else { skew() };
    }
    direction
}

fn describe(port: &PortName) -> Result<PortDescription> {
    let facts = port_facts(&tester_port(port))?;
    let interface = netns::inside(port.netns.as_deref(), || InterfaceFacts::read(&port.interface));
    let interface = interface??;
    Ok(PortDescription {
        mac: facts.mac,
        mtu: facts.mtu,
        driver: interface.driver.unwrap_or_default(),
        // The nominal 10 Gbit/s of virtual Ethernet is nobody's limit.
        speed_bps: interface.speed_bps.filter(|_| facts.kind != "veth"),
    })
}

/// What the ports have dropped so far.
fn counters(ports: &[(TesterPort, bool)]) -> Vec<DeviceCounter> {
    let of = |(port, virtual_end): &(TesterPort, bool)| {
        of_port(&port.name, port.netns.as_deref(), &port.interface, *virtual_end)
    };
    ports.iter().flat_map(of).collect()
}

fn tester_port(port: &PortName) -> TesterPort {
    TesterPort {
        name: port.name.clone(),
        interface: port.interface.clone(),
        netns: port.netns.clone(),
        cpu: port.cpu,
    }
}

/// Connections at a time.
const LIMITS: ConnectionLimits =
    ConnectionLimits { anonymous: 16, anonymous_per_network: 8, authenticated: 16 };
/// From one complaint to the next.
const COMPLAIN_EVERY: Duration = Duration::from_secs(1);
/// Directions of a tester.
const WAYS_MAX: usize = 64;
/// For a TLS handshake, and for each write.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often a session without a trial looks whether it is to end.
const GLANCE: Duration = Duration::from_millis(100);
/// How often a trial looks at its programs.
const TICK: Duration = Duration::from_millis(2);
/// And at its ports.
const LOOK: Duration = Duration::from_millis(200);
/// A controller that says nothing for so long between trials is gone, or forgotten.
const IDLE: Duration = Duration::from_secs(600);
/// And within a trial.
const SILENCE: Duration = Duration::from_secs(10);
/// Beyond twice its time a trial is given so much.
const GRACE_NS: i64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::path::Path;

    use rustls::{ClientConnection, StreamOwned};
    use sonde_meter::load::ValueOrder;
    use sonde_run::running::{Next, records};

    use super::*;
    use crate::agent::cert::{CertRequest, make};
    use crate::test_folder::TestFolder;
    use crate::tls;

    /// For what comes at once.
    const PATIENT: Duration = Duration::from_secs(120);

    fn certificates() -> TestFolder {
        let folder = TestFolder::new("agent-end");
        let (hosts, controllers) = (vec!["127.0.0.1".into()], vec!["controller".into()]);
        make(&CertRequest { hosts, controllers, renew: false, dir: folder.0.clone() }).unwrap();
        folder
    }

    /// Both certificates are shown, and nothing is asked for.
    fn controller(dir: &Path, address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
        let file = |name: &str| dir.join(name);
        let (cert, key) = (file("controller.pem"), file("controller.key"));
        let config = tls::client(&cert, &key, &file("ca.pem")).unwrap();
        let name = "127.0.0.1".try_into().unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut wire = StreamOwned::new(client, TcpStream::connect(address).unwrap());
        while wire.conn.is_handshaking() {
            wire.conn.complete_io(&mut wire.sock).unwrap();
        }
        wire
    }

    #[test]
    fn the_end_waits_for_nobody_who_is_connected() {
        let folder = certificates();
        let file = |name: &str| folder.0.join(name);
        let (cert, key) = (file("127.0.0.1.pem"), file("127.0.0.1.key"));
        let tls = tls::server(&cert, &key, Some(&file("ca.pem"))).unwrap();
        let (sender, events) = records(16);
        let status = Latest::new(Status::default());
        let any = "127.0.0.1:0".parse().unwrap();
        let agent = Agent::bind(any, tls, Vec::new(), sender, status.clone()).unwrap();
        let address = agent.address().unwrap();
        let stop = Stop::default();
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| agent.serve(&stop));
            // One has the ports, one comes too late for them.
            let owner = controller(&folder.0, address);
            assert!(matches!(events.next(PATIENT), Next::Record(Event::Taken(_))));
            let late = controller(&folder.0, address);
            // One stops in the middle of its handshake: the agent has answered its first message.
            let config =
                tls::client(&file("controller.pem"), &file("controller.key"), &file("ca.pem"));
            let name = "127.0.0.1".try_into().unwrap();
            let mut half = ClientConnection::new(Arc::new(config.unwrap()), name).unwrap();
            let mut half_way = TcpStream::connect(address).unwrap();
            half.write_tls(&mut half_way).unwrap();
            half_way.read_exact(&mut [0; 5]).unwrap();
            // One begins a message and one says nothing.
            let mut torn = TcpStream::connect(address).unwrap();
            torn.write_all(&[0x16, 3, 1]).unwrap();
            let silent = TcpStream::connect(address).unwrap();
            let stopped = Instant::now();
            assert!(stop.looks() > 0, "a watchdog sees that it turns");
            stop.ask();
            serving.join().unwrap();
            assert!(stopped.elapsed() < HANDSHAKE, "it waited for a stranger");
            assert_eq!(status.get().complaints, 0);
            assert!(matches!(events.next(PATIENT), Next::Record(Event::Freed(_))));
            drop((owner, late, half_way, torn, silent));
        });
    }

    #[test]
    fn all_addresses_of_a_rule_must_lie_in_a_prefix() {
        let rule = |first: &str, count, step| AddressRule {
            first: first.parse().unwrap(),
            count,
            step,
            order: ValueOrder::Random,
        };
        let (v4, v6) = ("198.18.0.0/15".parse().unwrap(), "2001:2::/48".parse().unwrap());
        for (rule, prefix, whether) in [
            (rule("198.18.0.1", 1, 0), &v4, true),
            (rule("198.19.255.0", 256, 1), &v4, true),
            (rule("198.19.255.0", 257, 1), &v4, false),
            (rule("198.18.0.0", 513, 256), &v4, false),
            (rule("10.0.0.1", 1, 1), &v4, false),
            (rule("2001:2::1", 100, 1 << 64), &v6, true),
            (rule("2001:2::1", 3, u128::MAX), &v6, false),
            (rule("2001:2::1", 1, 1), &v4, false),
        ] {
            assert_eq!(inside(&rule, prefix), whether, "{rule:?}");
        }
    }
}
