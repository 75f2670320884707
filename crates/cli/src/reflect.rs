//! `sonde reflect`: the reflector of user space on any engine, and beside it, if asked
//! for, the one in the kernel.

mod kernel;
mod place;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, anyhow};
use rtrb::{Consumer, Producer, RingBuffer};
use serde_json::json;
use sonde_meter::Instrument;
use sonde_meter::stamp::{self, Reflector, ReflectorConfig};
use sonde_port::{Engine, Port, PortStats};
use sonde_sys::clock::{self, ClockState};
use sonde_sys::schedule;

use crate::args::{Limit, ReflectArgs};
use crate::confined::{Uses, give_up};
use crate::exit::{Exit, Failure};
use crate::pump;
use crate::signals::Signals;
use kernel::Kernel;
use place::Addresses;

/// Runs until interrupted.
pub fn run(args: &ReflectArgs) -> Result<Exit, Failure> {
    let signals = Signals::catch()?;
    if args.kernel && args.engine.engine == Engine::AfXdp {
        return Err(Failure::Usage(anyhow!(
            "--kernel uses the interface's XDP hook itself; leave --engine out or use af_packet"
        )));
    }
    let spec = place::spec(args)?;
    let clock = clock::clock_state();
    let mut kernel = args.kernel.then(|| Kernel::attach(args, clock)).transpose()?;
    let port = sonde_port::open(args.engine.engine, &spec).map_err(anyhow::Error::from)?;
    let caps = port.caps().clone();
    let mut addresses = Addresses::follow(args)?;
    let no_senders = addresses.no_senders()?;
    let config = ReflectorConfig { no_senders, ..config(args, clock) };
    let reflector = Reflector::new(&config, port.now()).map_err(|e| Failure::Usage(e.into()))?;
    let mut uses = vec![Uses::Engine(args.engine.engine)];
    uses.extend(args.kernel.then_some(Uses::Program));
    give_up(&uses, Vec::new())?;
    let mut worker = Worker::start(port, reflector, addresses, args.engine.cpu)?;
    if !args.json {
        let ports: Vec<_> = args.port.iter().map(u16::to_string).collect();
        let how =
            kernel.as_ref().map_or(String::new(), |k| format!(" behind the kernel ({})", k.mode()));
        outln!("reflecting on UDP port {}: {} ({}){how}", ports.join(", "), caps.engine, caps.mode);
    }
    let mut last = Instant::now();
    let mut report = Report::new(args.json);
    let mut interface = Interface::new(spec.interface.as_deref());
    loop {
        let interrupted = signals.wait(Duration::from_millis(200));
        worker.follow_host()?;
        let followed =
            kernel.as_mut().map_or(Ok(()), |k| k.follow(args, &mut |line| errln!("{line}")));
        interface.tell(&worker.latest().port);
        if interrupted || worker.is_finished() || followed.is_err() {
            let (counted, outcome) = worker.end();
            let counts = kernel.as_mut().map(Kernel::last_counts).transpose();
            report.print(&counted, counts?.as_ref());
            return followed.and(outcome).map(|()| Exit::Ok).map_err(Failure::CannotRun);
        }
        if last.elapsed().as_nanos() as i64 >= args.report_interval {
            last = Instant::now();
            let counts = kernel.as_mut().map(Kernel::counts).transpose()?;
            report.print(&worker.latest(), counts.as_ref());
        }
    }
}

fn config(args: &ReflectArgs, clock: ClockState) -> ReflectorConfig {
    let seed = clock::tai_now().as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
    ReflectorConfig {
        stateful: !args.stateless,
        allow: args.allow.iter().map(|p| (p.address, p.bits)).collect(),
        rate_limit: limit(args.rate_limit),
        total_limit: limit(args.total_rate_limit),
        max_sessions: args.max_sessions as usize,
        session_timeout: args.session_timeout,
        clock_synchronised: clock.synchronised,
        clock_error: clock.max_error_ns,
        ..ReflectorConfig::new(args.port.clone(), tai_offset(clock), seed)
    }
}

fn tai_offset(clock: ClockState) -> i64 {
    i64::from(clock.tai_offset_s) * 1_000_000_000
}

fn limit(limit: Limit) -> Option<stamp::RateLimit> {
    limit.0.map(|r| stamp::RateLimit {
        per_second: u32::try_from(r.pps).unwrap_or(u32::MAX),
        burst: u32::try_from(r.burst).unwrap_or(u32::MAX),
    })
}

/// Tells when the engine's interface vanishes and returns.
struct Interface {
    name: String,
    lost: u64,
    returned: u64,
}

impl Interface {
    fn new(name: Option<&str>) -> Self {
        Interface { name: name.unwrap_or_default().to_owned(), lost: 0, returned: 0 }
    }

    fn tell(&mut self, port: &PortStats) {
        if port.interface_lost > self.lost {
            self.lost = port.interface_lost;
            errln!("{} is gone; waiting for an interface of this name", self.name);
        }
        if port.interface_returned > self.returned {
            self.returned = port.interface_returned;
            errln!("{} is there again: answering", self.name);
        }
    }
}

/// The thread that reflects.
struct Worker {
    snapshots: Consumer<Snapshot>,
    news: Producer<News>,
    addresses: Addresses,
    latest: Snapshot,
    checked: Instant,
    stop: Arc<AtomicBool>,
    /// Ends with what was counted to the last packet.
    thread: JoinHandle<(Snapshot, Result<()>)>,
}

/// What it is told about this host.
enum News {
    Clock(ClockState),
    NoSenders(Vec<(IpAddr, u8)>),
}

/// What it says about itself.
#[derive(Clone, Copy, Default)]
struct Snapshot {
    counters: stamp::ReflectorCounters,
    port: PortStats,
    sessions: usize,
}

impl Snapshot {
    fn of(reflector: &Reflector, port: &mut dyn Port) -> Self {
        Snapshot {
            counters: *reflector.counters(),
            port: port.stats(),
            sessions: reflector.sessions(),
        }
    }
}

impl Worker {
    fn start(
        mut port: Box<dyn Port>,
        mut reflector: Reflector,
        addresses: Addresses,
        cpu: Option<usize>,
    ) -> Result<Self> {
        let (mut snapshot_tx, snapshots) = RingBuffer::new(64);
        let (news, mut news_rx) = RingBuffer::<News>::new(16);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("sonde-reflect".into()).spawn(move || {
            let port = port.as_mut();
            let mut record = stamp::ReflectorRecord::default();
            let mut housekeeping = port.now();
            let mut serve = || -> Result<()> {
                if let Some(cpu) = cpu {
                    schedule::pin_to_cpu(cpu)?;
                }
                while !stopped.load(Ordering::Relaxed) {
                    let turn = pump::turn(port, &mut reflector)?;
                    if turn.now >= housekeeping {
                        housekeeping = turn.now + HOUSEKEEPING;
                        while let Ok(news) = news_rx.pop() {
                            match news {
                                News::Clock(c) => {
                                    let offset = tai_offset(c);
                                    reflector.set_clock(offset, c.synchronised, c.max_error_ns);
                                }
                                News::NoSenders(list) => reflector.set_no_senders(&list)?,
                            }
                        }
                        while reflector.poll_record(&mut record) {}
                        let _ = snapshot_tx.push(Snapshot::of(&reflector, port));
                    }
                    if turn.is_idle() {
                        pump::rest(port, &reflector, turn.now, housekeeping)?;
                    }
                }
                Ok(())
            };
            let outcome = serve();
            (Snapshot::of(&reflector, port), outcome)
        })?;
        let (latest, checked) = (Snapshot::default(), Instant::now());
        Ok(Worker { snapshots, news, addresses, latest, checked, stop, thread })
    }

    fn latest(&mut self) -> Snapshot {
        while let Ok(snapshot) = self.snapshots.pop() {
            self.latest = snapshot;
        }
        self.latest
    }

    /// Once a second: the clock, and the addresses.
    fn follow_host(&mut self) -> Result<()> {
        self.latest();
        if self.checked.elapsed() >= Duration::from_secs(1) {
            self.checked = Instant::now();
            let _ = self.news.push(News::Clock(clock::clock_state()));
            if self.addresses.have_changed()? {
                let _ = self.news.push(News::NoSenders(self.addresses.no_senders()?));
            }
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    fn end(self) -> (Snapshot, Result<()>) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Prints the counters.
struct Report {
    json: bool,
    reflected: u64,
    at: Instant,
}

impl Report {
    fn new(json: bool) -> Self {
        Report { json, reflected: 0, at: Instant::now() }
    }

    fn print(&mut self, s: &Snapshot, kernel: Option<&kernel::Counts>) {
        let kernel_reflected = kernel.map_or(0, kernel::Counts::reflected);
        let reflected = s.counters.reflected + kernel_reflected;
        let seconds = self.at.elapsed().as_secs_f64().max(1e-9);
        let rate = reflected.saturating_sub(self.reflected) as f64 / seconds;
        (self.reflected, self.at) = (reflected, Instant::now());
        if self.json {
            let named = |it: &mut dyn Iterator<Item = (&'static str, u64)>| -> serde_json::Value {
                it.map(|(name, n)| (name.to_owned(), json!(n)))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            };
            let line = json!({
                "at_ns": unix_nanos(),
                "reflected": reflected,
                "per_second": rate,
                "sessions": s.sessions,
                "user": named(&mut s.counters.iter()),
                "port": named(&mut s.port.iter()),
                "kernel": kernel.map(|c| named(&mut c.iter())),
            });
            outln!("{line}");
            return;
        }
        let mut line = format!("reflected {reflected} ({rate:.0}/s), {} sessions", s.sessions);
        if kernel.is_some() {
            line += &format!(", {kernel_reflected} in the kernel");
        }
        let dropped = s.counters.iter().filter(|(name, n)| name.starts_with("dropped") && *n > 0);
        let lost = s.port.iter().filter(|(name, n)| {
            let told = ["rx_dropped", "rx_invalid", "tx_dropped", "interface_lost"];
            *n > 0 && told.contains(name)
        });
        let refused = kernel.iter().flat_map(|c| c.iter()).filter(|(name, n)| {
            *n > 0 && (name.starts_with("dropped") || *name == "passed_bad_checksum")
        });
        for (name, n) in dropped.chain(lost).chain(refused) {
            line += &format!(", {name} {n}");
        }
        outln!("{line}");
    }
}

/// Between looks at orders and self-reports, ns.
const HOUSEKEEPING: i64 = 100_000_000;

/// Nanoseconds since 1970 UTC.
fn unix_nanos() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}
