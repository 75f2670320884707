//! `sonde reflect`: the reflector of user space on any engine, and beside it, if asked
//! for, the one in the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use rtrb::{Consumer, Producer, RingBuffer};
use serde_json::json;
use sonde_bpf::AttachMode;
use sonde_bpf::reflect::{KernelReflector, KernelReflectorConfig};
use sonde_meter::Instrument;
use sonde_meter::stamp::{self, Reflector, ReflectorConfig};
use sonde_port::clock::{self, ClockState};
use sonde_port::host::InterfaceFacts;
use sonde_port::netlink::{Event, Links, Routes, Watch};
use sonde_port::{Engine, Filter, OpenSpec, Port, PortError, PortStats, XdpMode};
use sonde_wire::{ErrorEstimate, TimestampFormat};

use crate::args::ReflectArgs;
use crate::exit::{Exit, Failure};
use crate::pump;
use crate::signals::Signals;

/// Runs until interrupted.
pub fn run(args: &ReflectArgs) -> Result<Exit, Failure> {
    let signals = Signals::catch()?;
    if args.kernel && args.engine.engine == Engine::AfXdp {
        return Err(Failure::Usage(anyhow!(
            "--kernel uses the interface's XDP hook itself; leave --engine out or use af_packet"
        )));
    }
    if args.engine.engine != Engine::Socket && args.engine.iface.is_none() {
        return Err(Failure::Usage(anyhow!(
            "--engine {} needs --iface; 'ip link' lists the interfaces",
            args.engine.engine.name()
        )));
    }
    let clock = clock::clock_state();
    let mut kernel = args.kernel.then(|| Kernel::attach(args, clock)).transpose()?;
    let filter = Filter { local_ports: args.port.clone(), ..Filter::default() };
    let spec = OpenSpec {
        queues: args.engine.queues.clone(),
        xdp_mode: args.engine.xdp_mode,
        busy_poll: args.engine.busy_poll,
        ..OpenSpec::new(args.engine.iface.clone(), filter)
    };
    let port = sonde_port::open(args.engine.engine, &spec).map_err(anyhow::Error::from)?;
    let caps = port.caps().clone();
    let config = config(args, clock);
    let reflector = Reflector::new(&config, port.now()).map_err(|e| Failure::Usage(e.into()))?;
    let mut worker = Worker::start(port, reflector, args.engine.cpu)?;
    if !args.json {
        let ports: Vec<_> = args.port.iter().map(u16::to_string).collect();
        let how =
            kernel.as_ref().map_or(String::new(), |k| format!(" behind the kernel ({})", k.mode));
        println!(
            "reflecting on UDP port {}: {} ({}){how}",
            ports.join(", "),
            caps.engine,
            caps.mode
        );
    }
    let mut last = Instant::now();
    let mut report = Report::new(args.json);
    loop {
        let interrupted = signals.wait(Duration::from_millis(200));
        worker.follow_clock();
        if let Some(kernel) = &mut kernel {
            kernel.follow()?;
        }
        if interrupted || worker.is_finished() {
            let (counted, outcome) = worker.end();
            report.print(&counted, kernel.as_ref())?;
            return outcome.map(|()| Exit::Ok).map_err(Failure::CannotRun);
        }
        if last.elapsed().as_nanos() as i64 >= args.report_interval {
            last = Instant::now();
            report.print(&worker.latest(), kernel.as_ref())?;
        }
    }
}

fn config(args: &ReflectArgs, clock: ClockState) -> ReflectorConfig {
    let seed = clock::tai_now().as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
    ReflectorConfig {
        stateful: !args.stateless,
        allow: args.allow.iter().map(|p| (p.address, p.bits)).collect(),
        rate_limit: args.rate_limit.map(|r| stamp::RateLimit {
            per_second: u32::try_from(r.pps).unwrap_or(u32::MAX),
            burst: u32::try_from(r.burst).unwrap_or(u32::MAX),
        }),
        max_sessions: args.max_sessions as usize,
        clock_synchronised: clock.synchronised,
        clock_error: clock.max_error_ns,
        ..ReflectorConfig::new(args.port.clone(), tai_offset(clock), seed)
    }
}

fn tai_offset(clock: ClockState) -> i64 {
    i64::from(clock.tai_offset_s) * 1_000_000_000
}

/// The reflectors in the kernel, one a port, on one interface.
struct Kernel {
    reflector: KernelReflector,
    mode: &'static str,
    watch: Watch,
    routes: Routes,
    checked: Instant,
}

impl Kernel {
    fn attach(args: &ReflectArgs, clock: ClockState) -> Result<Self, Failure> {
        let &[port] = args.port.as_slice() else {
            return Err(Failure::Usage(anyhow!("--kernel answers on one port; give --port once")));
        };
        let interface = args.engine.iface.as_deref().unwrap_or_default();
        let mut links = Links::open().context("cannot ask the kernel for interfaces")?;
        let ifindex = links
            .all()
            .context("cannot list the interfaces")?
            .into_iter()
            .find(|l| l.name == interface)
            .map(|l| l.ifindex)
            .ok_or_else(|| anyhow::Error::from(PortError::NoInterface(interface.to_owned())))?;
        let watch = Watch::open().context("cannot follow the kernel's addresses")?;
        let mut routes = Routes::open().context("cannot ask the kernel for its addresses")?;
        let local = routes.local_prefixes().context("cannot list the local addresses")?;
        let allow: Vec<_> = args.allow.iter().map(|p| (p.address, p.bits)).collect();
        let config = KernelReflectorConfig {
            port,
            veth: InterfaceFacts::read(interface)
                .is_ok_and(|facts| facts.driver.as_deref() == Some("veth")),
            stateful: !args.stateless,
            local: &local,
            allow: &allow,
            rate_limit: args.rate_limit.map(|r| {
                (
                    u32::try_from(r.pps).unwrap_or(u32::MAX),
                    u32::try_from(r.burst).unwrap_or(u32::MAX),
                )
            }),
            max_sessions: args.max_sessions,
        };
        let modes: &[AttachMode] = match args.engine.xdp_mode {
            XdpMode::Auto => &[AttachMode::Native, AttachMode::Generic],
            XdpMode::Generic => &[AttachMode::Generic],
            XdpMode::Copy | XdpMode::ZeroCopy => &[AttachMode::Native],
        };
        let mut first_error = None;
        for &mode in modes {
            match KernelReflector::attach(ifindex, &config, mode) {
                Ok(reflector) => {
                    let kernel = Kernel {
                        reflector,
                        mode: mode.name(),
                        watch,
                        routes,
                        checked: Instant::now(),
                    };
                    kernel.set_clock(clock);
                    return Ok(kernel);
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(match first_error {
            Some(error) => Failure::CannotRun(anyhow::Error::from(error)),
            None => Failure::CannotRun(anyhow!("no way to attach to {interface}")),
        })
    }

    fn set_clock(&self, clock: ClockState) {
        let estimate = ErrorEstimate::from_error_ns(
            clock.max_error_ns,
            clock.synchronised,
            TimestampFormat::Ntp,
        );
        self.reflector.set_clock(clock.tai_offset_s, estimate.0);
    }

    /// Once a second: the clock's state, and which addresses are ours.
    fn follow(&mut self) -> Result<()> {
        if self.checked.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        self.checked = Instant::now();
        self.set_clock(clock::clock_state());
        let changed = |e: &Event| matches!(e, Event::Route | Event::Address | Event::Overrun);
        if self.watch.poll()?.iter().any(changed) {
            self.reflector.update_local(&self.routes.local_prefixes()?)?;
        }
        Ok(())
    }
}

/// The thread that reflects.
struct Worker {
    snapshots: Consumer<Snapshot>,
    clocks: Producer<ClockState>,
    latest: Snapshot,
    checked: Instant,
    stop: Arc<AtomicBool>,
    /// Ends with what was counted to the last packet.
    thread: JoinHandle<(Snapshot, Result<()>)>,
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
        cpu: Option<usize>,
    ) -> Result<Self> {
        let (mut snapshot_tx, snapshots) = RingBuffer::new(64);
        let (clocks, mut clock_rx) = RingBuffer::<ClockState>::new(16);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("sonde-reflect".into()).spawn(move || {
            let port = port.as_mut();
            let mut record = stamp::ReflectorRecord::default();
            let mut housekeeping = port.now();
            let mut serve = || -> Result<()> {
                if let Some(cpu) = cpu {
                    clock::pin_to_cpu(cpu)?;
                }
                while !stopped.load(Ordering::Relaxed) {
                    let turn = pump::turn(port, &mut reflector)?;
                    if turn.now >= housekeeping {
                        housekeeping = turn.now + HOUSEKEEPING;
                        while let Ok(c) = clock_rx.pop() {
                            reflector.set_clock(tai_offset(c), c.synchronised, c.max_error_ns);
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
        Ok(Worker { snapshots, clocks, latest, checked, stop, thread })
    }

    fn latest(&mut self) -> Snapshot {
        while let Ok(snapshot) = self.snapshots.pop() {
            self.latest = snapshot;
        }
        self.latest
    }

    fn follow_clock(&mut self) {
        self.latest();
        if self.checked.elapsed() >= Duration::from_secs(1) {
            self.checked = Instant::now();
            let _ = self.clocks.push(clock::clock_state());
        }
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

    fn print(&mut self, s: &Snapshot, kernel: Option<&Kernel>) -> Result<()> {
        let in_kernel = kernel.map(|k| k.reflector.counters()).transpose()?;
        let kernel_reflected = in_kernel.as_ref().map_or(0, |c| c.get("reflected"));
        let reflected = s.counters.reflected + kernel_reflected;
        let seconds = self.at.elapsed().as_secs_f64().max(1e-9);
        let rate = (reflected - self.reflected) as f64 / seconds;
        (self.reflected, self.at) = (reflected, Instant::now());
        if self.json {
            let named = |it: &mut dyn Iterator<Item = (&'static str, u64)>| -> serde_json::Value {
                it.map(|(name, n)| (name.to_owned(), json!(n)))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            };
            let line = json!({
                "at_ns": clock::tai_now().as_nanos(),
                "reflected": reflected,
                "per_second": rate,
                "sessions": s.sessions,
                "user": named(&mut s.counters.iter()),
                "port": named(&mut s.port.iter()),
                "kernel": in_kernel.as_ref().map(|c| named(&mut c.iter())),
            });
            println!("{line}");
            return Ok(());
        }
        let mut line = format!("reflected {reflected} ({rate:.0}/s), {} sessions", s.sessions);
        if in_kernel.is_some() {
            line += &format!(", {kernel_reflected} in the kernel");
        }
        let dropped = s.counters.iter().filter(|(name, n)| name.starts_with("dropped") && *n > 0);
        let lost = s.port.iter().filter(|(name, n)| {
            *n > 0 && ["rx_dropped", "rx_invalid", "tx_dropped"].contains(name)
        });
        let refused = in_kernel
            .iter()
            .flat_map(|c| c.iter())
            .filter(|(name, n)| *n > 0 && name.starts_with("dropped"));
        for (name, n) in dropped.chain(lost).chain(refused) {
            line += &format!(", {name} {n}");
        }
        println!("{line}");
        Ok(())
    }
}

/// Between looks at orders and self-reports, ns.
const HOUSEKEEPING: i64 = 100_000_000;
