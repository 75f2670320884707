//! The reflector: that of user space on any engine, and beside it, if asked for, the one in the
//! kernel (RFC 8762, section 4.3).

mod addresses;
mod delivery;
mod kernel;
mod worker;

pub mod settings;

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use serde::Serialize;
use sonde_meter::stamp::{self, Reflector, ReflectorConfig};
use sonde_port::PortStats;
use sonde_sys::clock::{self, ClockState, SteadyClock};
use sonde_wire::Time;

use self::addresses::{HostState, OwnAddresses};
use self::kernel::{InKernel, Kernel, KernelCounts};
use self::settings::Limit;
pub use self::settings::Settings;
use self::worker::{ReflectorWorker, Snapshot, tai_offset};
use crate::confined::Uses;
use crate::error::RunError;
use crate::run_clock::RunClock;
use crate::running::{Context, Ended, Latest, RecordSender, Running, Stop, records};
use crate::secrets::secrets;
use crate::thread::can_pin;

/// A running reflector: its state is as its records are, and new each second. It takes no orders.
pub type Reflecting = Running<ReflectorReport, ReflectorReport, ()>;

/// What a reflector has done since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReflectorReport {
    /// When this was, ns since 1970 UTC.
    pub at_ns: i64,
    /// Replies sent since the start.
    pub reflected: u64,
    /// Replies a second: of a record since the record before, of the state since a second ago.
    pub per_second: f64,
    /// Sessions of the reflector in user space. What the kernel's program answers is in none.
    pub sessions: usize,
    /// Sessions that the kernel's program has begun since the start. `None`: there is no program.
    pub kernel_sessions: Option<u64>,
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
    can_pin("engine.cpu", settings.engine.cpu)?;
    let spec = addresses::spec(&settings)?;
    let clock = clock::clock_state();
    let kernel = settings.kernel.then(|| Kernel::attach(&settings, clock)).transpose()?;
    let port = sonde_port::open(settings.engine.engine, &spec).map_err(anyhow::Error::from)?;
    let caps = port.caps().clone();
    let mut addresses = OwnAddresses::follow(&settings)?;
    let no_senders = addresses.no_senders()?;
    let config = ReflectorConfig { no_senders, ..config(&settings, clock) };
    let mut reflector =
        Reflector::new(&config, port.now()).map_err(|e| RunError::settings(e.to_string()))?;
    if let Some(kernel) = &kernel {
        let sessions = kernel.sessions().map_err(anyhow::Error::from)?;
        reflector.share_sessions(kernel.port(), Box::new(sessions));
    }
    let mut uses = vec![Uses::Engine(settings.engine.engine)];
    uses.extend(settings.kernel.then_some(Uses::Program));
    context.opened(&uses, &[])?;
    let worker = ReflectorWorker::start(port, reflector, settings.engine.cpu)?;
    let about = About {
        ports: settings.port.clone(),
        engine: caps.engine.to_string(),
        mode: caps.mode.to_string(),
        kernel: kernel.as_ref().map(|kernel| kernel.mode().to_string()),
    };
    tracing::debug!("answering on {about}");
    let (sender, receiver) = records(RECORDS);
    let status = Latest::new(ReflectorReport::default());
    let clock = SteadyClock::new();
    let mut reflecting = Reflect {
        interface: Interface::new(spec.interface.as_deref()),
        report_interval: settings.report_interval,
        worker,
        kernel,
        host: addresses,
        recorded: (0, clock.now()),
        looked: (0, clock.now()),
        clock,
        sender,
        status: status.clone(),
    };
    reflecting.show(&Snapshot::default())?;
    let stop = context.stop.clone();
    let asked = stop.clone();
    let work = move || reflecting.work(&asked);
    Ok((about, Running::start("sonde-reflect", (receiver, status, ()), stop, work)?))
}

/// State of the main thread of a reflector: `K` reflects in the kernel, `H` is the host, `C` the
/// clock.
struct Reflect<K, H, C> {
    /// Between two records, ns.
    report_interval: i64,
    worker: ReflectorWorker,
    kernel: Option<K>,
    host: H,
    interface: Interface,
    clock: C,
    /// Replies up to the latest record, and when that was.
    recorded: (u64, Time),
    /// The same of the last look at the host, with which the state is renewed.
    looked: (u64, Time),
    sender: RecordSender<ReflectorReport>,
    status: Latest<ReflectorReport>,
}

impl<K: InKernel, H: HostState, C: RunClock> Reflect<K, H, C> {
    fn work(&mut self, stop: &Stop) -> Ended {
        match self.run(stop) {
            Ok(()) => self.end(),
            Err(error) => Ended { failure: Some(RunError::Host(error)), ..self.end() },
        }
    }

    /// Until the end is asked for, or the worker has ended by itself. An error: what failed.
    fn run(&mut self, stop: &Stop) -> Result<()> {
        while !self.clock.wait(LOOK_AROUND_NS, stop) && !self.worker.is_finished() {
            let now = self.clock.now();
            if now - self.looked.1 >= HOST_NS {
                self.worker.follow(&mut self.host)?;
                let latest = self.worker.latest();
                self.show(&latest)?;
            }
            if let Some(kernel) = &mut self.kernel {
                kernel.follow()?;
            }
            self.interface.log(&self.worker.latest().port);
            if now - self.recorded.1 >= self.report_interval {
                let counts = self.kernel.as_mut().map(InKernel::counts).transpose()?;
                let latest = self.worker.latest();
                self.report(&latest, counts.as_ref());
            }
        }
        Ok(())
    }

    /// Renews the state.
    fn show(&mut self, s: &Snapshot) -> Result<()> {
        let counts = self.kernel.as_mut().map(InKernel::counts).transpose()?;
        let now = self.clock.now();
        let state = report(s, counts.as_ref(), self.looked, now);
        self.looked = (state.reflected, now);
        self.status.update(|s| *s = state);
        Ok(())
    }

    /// Hands over what was done since the start, and how fast since this was last asked.
    fn report(&mut self, s: &Snapshot, kernel: Option<&KernelCounts>) -> ReflectorReport {
        let now = self.clock.now();
        let record = report(s, kernel, self.recorded, now);
        self.recorded = (record.reflected, now);
        self.status.update(|s| s.clone_from(&record));
        self.sender.push(record.clone());
        record
    }

    /// The last record, with what was counted to the last packet.
    fn end(&mut self) -> Ended {
        let (counted, mut outcome) = self.worker.end();
        let counts = match self.kernel.as_mut().map(InKernel::last_counts).transpose() {
            Ok(counts) => counts,
            Err(error) => {
                outcome = outcome.and(Err(error));
                None
            }
        };
        let record = self.report(&counted, counts.as_ref());
        let named = |kind: &'static str, of: &BTreeMap<&'static str, u64>| {
            of.iter().map(|(name, n)| (format!("{kind}_{name}"), *n)).collect::<Vec<_>>()
        };
        let mut counters = named("user", &record.user);
        counters.extend(named("port", &record.port));
        counters.extend(record.kernel.iter().flat_map(|of| named("kernel", of)));
        Ended {
            counters: counters.into_iter().collect(),
            failure: outcome.err().map(RunError::Host),
            ..Ended::default()
        }
    }
}

/// What was done since the start, and how fast since there were so many replies at a time.
fn report(
    s: &Snapshot,
    kernel: Option<&KernelCounts>,
    (before, at): (u64, Time),
    now: Time,
) -> ReflectorReport {
    let reflected = s.counters.reflected + kernel.map_or(0, KernelCounts::reflected);
    // One may follow another at once.
    let seconds = (now - at).max(1) as f64 / 1e9;
    ReflectorReport {
        at_ns: clock::unix_now_ns(),
        reflected,
        per_second: reflected.saturating_sub(before) as f64 / seconds,
        sessions: s.sessions,
        kernel_sessions: kernel.map(KernelCounts::sessions),
        user: s.counters.iter().collect(),
        port: s.port.iter().collect(),
        kernel: kernel.map(|counts| counts.iter().collect()),
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

/// Between looks at the worker and the kernel's program.
const LOOK_AROUND_NS: i64 = 200_000_000;
/// Between looks at the host's clock and addresses.
const HOST_NS: i64 = 1_000_000_000;
/// Records that wait for their reader.
const RECORDS: usize = 1_024;

#[cfg(test)]
mod tests;
