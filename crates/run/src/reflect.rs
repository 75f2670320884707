//! The reflector: that of user space on any engine, and beside it, if asked for, the one in the
//! kernel (RFC 8762, section 4.3).

mod addresses;
mod kernel;

pub mod settings;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rtrb::{Consumer, Producer, RingBuffer};
use serde::Serialize;
use sonde_meter::Instrument;
use sonde_meter::stamp::{self, Reflector, ReflectorConfig};
use sonde_port::{Port, PortStats};
use sonde_sys::clock::{self, ClockState};
use sonde_sys::schedule;
use sonde_wire::prefix::Prefix;

use self::addresses::OwnAddresses;
use self::kernel::Kernel;

use self::settings::Limit;
pub use self::settings::Settings;
use crate::confined::Uses;
use crate::error::RunError;
use crate::pump;
use crate::running::{Context, Ended, Latest, RecordSender, Running, Stop, records};
use crate::secrets::secrets;
use crate::thread::join;

/// A running reflector.
pub type Reflecting = Running<ReflectorReport, ReflectorReport, ()>;

/// What a reflector has done since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReflectorReport {
    /// When this was, ns since 1970 UTC.
    pub at_ns: i64,
    /// Replies sent since the start.
    pub reflected: u64,
    /// Replies a second since the record before.
    pub per_second: f64,
    /// Sessions of the reflector in user space.
    pub sessions: usize,
    /// The counters of the reflector in user space, by name.
    pub user: BTreeMap<&'static str, u64>,
    /// The counters of its engine, by name.
    pub port: BTreeMap<&'static str, u64>,
    /// The counters of the kernel's program, if there is one.
    pub kernel: Option<BTreeMap<&'static str, u64>>,
}

/// What is known of a reflector when it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct About {
    /// The UDP ports on which it answers.
    pub ports: Vec<u16>,
    /// The engine of the reflector in user space.
    pub engine: String,
    /// How that engine runs.
    pub mode: String,
    /// How the kernel's program is attached, if there is one.
    pub kernel: Option<String>,
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { ports, engine, mode, kernel } = self;
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        write!(f, "UDP port {}: {engine} ({mode})", ports.join(", "))?;
        kernel.as_ref().map_or(Ok(()), |mode| write!(f, " behind the kernel ({mode})"))
    }
}

/// Opens the ports and begins to answer.
///
/// # Errors
/// Settings that do not go together; no such address or interface; an engine that cannot be
/// opened.
pub fn start(settings: Settings, context: &Context) -> Result<(About, Reflecting), RunError> {
    settings.check()?;
    let spec = addresses::spec(&settings)?;
    let clock = clock::clock_state();
    let kernel = settings.kernel.then(|| Kernel::attach(&settings, clock)).transpose()?;
    let port = sonde_port::open(settings.engine.engine, &spec).map_err(anyhow::Error::from)?;
    let caps = port.caps().clone();
    let mut addresses = OwnAddresses::follow(&settings)?;
    let no_senders = addresses.no_senders()?;
    let config = ReflectorConfig { no_senders, ..config(&settings, clock) };
    let reflector =
        Reflector::new(&config, port.now()).map_err(|e| RunError::settings(e.to_string()))?;
    let mut uses = vec![Uses::Engine(settings.engine.engine)];
    uses.extend(settings.kernel.then_some(Uses::Program));
    context.opened(&uses, &[])?;
    let worker = Worker::start(port, reflector, addresses, settings.engine.cpu)?;
    let about = About {
        ports: settings.port.clone(),
        engine: caps.engine.to_string(),
        mode: caps.mode.to_string(),
        kernel: kernel.as_ref().map(|kernel| kernel.mode().to_string()),
    };
    tracing::debug!("answering on {about}");
    let (sender, receiver) = records(RECORDS);
    let status = Latest::new(ReflectorReport::default());
    let mut reflecting = Reflect {
        interface: Interface::new(spec.interface.as_deref()),
        settings,
        worker,
        kernel,
        reflected: 0,
        reported: Instant::now(),
    };
    let (stop, theirs) = (context.stop.clone(), status.clone());
    let asked = stop.clone();
    let work = move || match reflecting.run(&sender, &theirs, &asked) {
        Ok(()) => reflecting.end(&sender, &theirs),
        Err(error) => {
            let ended = reflecting.end(&sender, &theirs);
            Ended { failure: Some(RunError::Host(error)), ..ended }
        }
    };
    Ok((about, Running::start("sonde-reflect", (receiver, status, ()), stop, work)?))
}

/// State of the main thread of a reflector.
struct Reflect {
    settings: Settings,
    worker: Worker,
    kernel: Option<Kernel>,
    interface: Interface,
    /// Replies up to the latest record.
    reflected: u64,
    reported: Instant,
}

impl Reflect {
    fn run(
        &mut self,
        sender: &RecordSender<ReflectorReport>,
        status: &Latest<ReflectorReport>,
        stop: &Stop,
    ) -> Result<()> {
        while !stop.wait(LOOK_AROUND) && !self.worker.is_finished() {
            self.worker.follow_host()?;
            if let Some(kernel) = &mut self.kernel {
                kernel.follow(&self.settings)?;
            }
            self.interface.log(&self.worker.latest().port);
            if self.reported.elapsed().as_nanos() as i64 >= self.settings.report_interval {
                let counts = self.kernel.as_mut().map(Kernel::counts).transpose()?;
                let latest = self.worker.latest();
                let record = self.record(&latest, counts.as_ref());
                status.update(|s| s.clone_from(&record));
                sender.push(record);
            }
        }
        Ok(())
    }

    /// What was done since the start, and how fast since this was last asked.
    fn record(&mut self, s: &Snapshot, kernel: Option<&kernel::KernelCounts>) -> ReflectorReport {
        let reflected = s.counters.reflected + kernel.map_or(0, kernel::KernelCounts::reflected);
        let seconds = self.reported.elapsed().as_secs_f64().max(1e-9);
        let per_second = reflected.saturating_sub(self.reflected) as f64 / seconds;
        (self.reflected, self.reported) = (reflected, Instant::now());
        ReflectorReport {
            at_ns: clock::unix_now_ns(),
            reflected,
            per_second,
            sessions: s.sessions,
            user: s.counters.iter().collect(),
            port: s.port.iter().collect(),
            kernel: kernel.map(|counts| counts.iter().collect()),
        }
    }

    /// The last record, with what was counted to the last packet.
    fn end(
        &mut self,
        sender: &RecordSender<ReflectorReport>,
        status: &Latest<ReflectorReport>,
    ) -> Ended {
        let (counted, mut outcome) = self.worker.end();
        let counts = match self.kernel.as_mut().map(Kernel::last_counts).transpose() {
            Ok(counts) => counts,
            Err(error) => {
                outcome = outcome.and(Err(error));
                None
            }
        };
        let record = self.record(&counted, counts.as_ref());
        let named = |kind: &'static str, of: &BTreeMap<&'static str, u64>| {
            of.iter().map(|(name, n)| (format!("{kind}_{name}"), *n)).collect::<Vec<_>>()
        };
        let mut counters = named("user", &record.user);
        counters.extend(named("port", &record.port));
        counters.extend(record.kernel.iter().flat_map(|of| named("kernel", of)));
        status.update(|s| s.clone_from(&record));
        sender.push(record);
        Ended {
            counters: counters.into_iter().collect(),
            failure: outcome.err().map(RunError::Host),
            ..Ended::default()
        }
    }
}

fn config(settings: &Settings, clock: ClockState) -> ReflectorConfig {
    // Whoever knows it can fill one bucket of the table of sessions.
    let [seed, _] = secrets(None);
    ReflectorConfig {
        stateful: !settings.stateless,
        allow: settings.allow.clone(),
        rate_limit: limit(settings.rate_limit),
        total_limit: limit(settings.total_rate_limit),
        max_sessions: settings.max_sessions as usize,
        session_timeout: settings.session_timeout,
        clock_synchronised: clock.synchronised,
        clock_error: clock.max_error_ns,
        ..ReflectorConfig::new(settings.port.clone(), tai_offset(clock), seed)
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

/// Logs when the engine's interface vanishes and returns.
struct Interface {
    name: String,
    lost: u64,
    returned: u64,
}

impl Interface {
    fn new(name: Option<&str>) -> Self {
        Interface { name: name.unwrap_or_default().to_owned(), lost: 0, returned: 0 }
    }

    fn log(&mut self, port: &PortStats) {
        if port.interface_lost > self.lost {
            self.lost = port.interface_lost;
            tracing::warn!("{} is gone; waiting for an interface of this name", self.name);
        }
        if port.interface_returned > self.returned {
            self.returned = port.interface_returned;
            tracing::warn!("{} is there again: answering", self.name);
        }
    }
}

/// The thread that reflects, from outside.
struct Worker {
    snapshots: Consumer<Snapshot>,
    news: Producer<News>,
    addresses: OwnAddresses,
    latest: Snapshot,
    checked: Instant,
    stop: Arc<AtomicBool>,
    /// Ends with what was counted to the last packet.
    thread: Option<JoinHandle<(Snapshot, Result<()>)>>,
}

/// What it is given about this host.
enum News {
    Clock(ClockState),
    NoSenders(Vec<Prefix>),
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
        addresses: OwnAddresses,
        cpu: Option<usize>,
    ) -> Result<Self> {
        let (mut snapshot_tx, snapshots) = RingBuffer::new(64);
        let (news, mut news_rx) = RingBuffer::<News>::new(16);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("sonde-reflect".into()).spawn(move || {
            let port = port.as_mut();
            let mut record = stamp::ReflectorInterval::default();
            let mut housekeeping = port.now();
            let mut serve = || -> Result<()> {
                if let Some(cpu) = cpu {
                    schedule::pin_to_cpu(cpu).with_context(|| {
                        format!("`cpu`: cannot run on processor {cpu}; 'lscpu -e' lists them")
                    })?;
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
        Ok(Worker { snapshots, news, addresses, latest, checked, stop, thread: Some(thread) })
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
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn end(&mut self) -> (Snapshot, Result<()>) {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(join) {
            Some(Ok(ended)) => ended,
            Some(Err(panicked)) => (self.latest(), Err(panicked.into())),
            None => (self.latest(), Ok(())),
        }
    }
}

/// Between looks at orders and self-reports, ns.
const HOUSEKEEPING: i64 = 100_000_000;
/// Between looks at the worker and the host.
const LOOK_AROUND: Duration = Duration::from_millis(200);
/// Records that wait for their reader.
const RECORDS: usize = 1_024;
