//! Flow metering on interfaces: metering threads that share nothing, the export thread, and
//! a view of both.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use sonde_port::Engine;
use sonde_results::flow_run::ProtocolTotal;
use sonde_results::{Caveat, FlowRun, ToUtc as _};
use sonde_sys::clock::{SteadyClock, steady_now, steady_scale};
use sonde_sys::netlink::Link;
use sonde_sys::schedule::pin_to_cpu;
use sonde_wire::Time;

use super::args::{FlowArgs, InputEngine};
use super::export::{self, Common};
use super::exporting::{Exporting, Records, Shared};
use super::follow::Follow;
use super::input::{Input, Opened};
use super::meter::Meter;
use super::now::{self, Fast, Now};
use super::share::Share;
use super::view::{self, Snapshot};
use super::{outcome, settings};
use crate::confined::{Uses, give_up};
use crate::console;
use crate::exit::{Exit, Failure};
use crate::joins;
use crate::output::live::InPlace;
use crate::output::run_file::SaveSoFar;
use crate::output::style::{Style, terminal_size};
use crate::settings::secrets;
use crate::signals::Signals;

/// Meters until the time is over, or Ctrl-C.
pub fn run(links: Vec<Link>, args: &FlowArgs) -> Result<Exit, Failure> {
    if links.len() > MOST_POINTS {
        return Err(Failure::Usage(anyhow!(
            "{} interfaces are too many for one run, which meters {MOST_POINTS}",
            links.len()
        )));
    }
    let signals = Signals::catch()?;
    let workers = usize::from(args.input.workers);
    let names: Vec<String> = links.iter().map(|l| l.name.clone()).collect();
    let places = joins::places(&args.metering.join, &names).map_err(Failure::Usage)?;
    let secret = || secrets(args.metering.seed);
    let mut meters: Vec<Meter> = (0..workers)
        .map(|i| settings::meter_at(i, args, secret(), Share::whole(), &places))
        .collect::<Result<_>>()
        .map_err(Failure::Usage)?;
    for meter in &mut meters {
        for (point, link) in links.iter().enumerate() {
            meter.set_longest(point as u8, link.mtu);
        }
    }
    let mut follow = Follow::open(&links)?;
    let opened = super::input::open(&links, &follow.indexes(), &places, args)?;
    let mut run = super::empty_run(args, opened.engine.clone());
    run.points = opened.points(&links);
    for (i, point) in run.points.iter_mut().enumerate() {
        joins::describe(&mut point.how, i, &places, &names);
    }
    let common = Common {
        args,
        tai_offset_s: run.header.host.tai_offset_s,
        interfaces: follow.interfaces(),
        can_wait: false,
        hurry: signals.again(),
    };
    let outputs = export::open(&common)?;
    give_up(&[uses(args)], written_later(args))?;
    let (exporting, queues) = Exporting::start(outputs, workers, QUEUE)?;
    let Opened { inputs, .. } = opened;
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for (i, ((meter, input), queue)) in meters.into_iter().zip(inputs).zip(queues).enumerate() {
        let cpu = args.input.cpus.get(i).copied();
        let inner = Inner {
            meter,
            input,
            queue,
            report: Arc::default(),
            shared: exporting.shared(),
            number: i,
            now: is_live(args).then(Now::default),
        };
        threads.push(inner.start(cpu, stop.clone())?);
    }
    let shared = exporting.shared();
    let (interrupted, failure) = watch(&mut run, &mut follow, &threads, &shared, args, &signals);
    stop.store(true, Ordering::Relaxed);
    let mut meters = Vec::new();
    for thread in threads {
        let ended = thread.join()?;
        *run.counters.entry("packets_lost".into()).or_default() += ended.lost;
        for (name, n) in ended.refused {
            *run.counters.entry(name).or_default() += n;
        }
        meters.push(ended.meter);
    }
    run.header.end_ns = steady_now().as_nanos();
    let meters: Vec<&Meter> = meters.iter().collect();
    let exit = outcome::finish(run, &meters, exporting, args, interrupted)?;
    match failure {
        Some(error) => Err(Failure::CannotRun(error)),
        None => Ok(exit),
    }
}

/// What opens an interface that is made again.
fn uses(args: &FlowArgs) -> Uses {
    Uses::Engine(match args.input.engine {
        Some(InputEngine::AfPacket) | None => Engine::AfPacket,
        // The XDP program is the whole of it.
        Some(InputEngine::Header | InputEngine::AfXdp) => Engine::AfXdp,
    })
}

/// Files that are made, and folders that are written to, while it runs.
fn written_later(args: &FlowArgs) -> Vec<PathBuf> {
    // Each piece is written under a name of its own first; other files are open by now.
    let parquet =
        args.export.write.iter().filter(|p| p.extension().is_some_and(|e| e == "parquet"));
    let pieces = parquet.map(|p| p.with_extension("parquet.part"));
    pieces.chain(args.export.spool.clone()).chain(args.output.out.clone()).collect()
}

/// Shows how it goes until the end. Whether it was interrupted, and what failed.
fn watch(
    run: &mut FlowRun,
    follow: &mut Follow,
    threads: &[Worker],
    shared: &Shared,
    args: &FlowArgs,
    signals: &Signals,
) -> (bool, Option<anyhow::Error>) {
    let mut screen = is_live(args).then(InPlace::default);
    let mut lines = !is_live(args) && !args.output.quiet;
    // Whoever sets the clock disturbs no interval.
    let mut clock = SteadyClock::new();
    let mut steps = clock.steps();
    let start = clock.now();
    let end = args.duration.map(|ns| start + ns);
    let mut saving = SaveSoFar::default();
    let mut before = Seen::of(threads, shared);
    let mut begun = start;
    loop {
        let due = begun + args.interval;
        let until = end.map_or(due, |end| end.min(due));
        let wait = (until - clock.now()).clamp(0, LOOK_AROUND_NS);
        if signals.wait(Duration::from_nanos(wait as u64)) {
            return (true, None);
        }
        if let Some(error) = threads.iter().find_map(Worker::failure) {
            return (false, Some(error));
        }
        if shared.unread.load(Ordering::Relaxed) {
            return (false, None);
        }
        match follow.look(run) {
            Ok(Some(interfaces)) => shared.tell_interfaces(interfaces),
            Ok(None) => {}
            Err(error) => return (false, Some(error)),
        }
        let now = clock.now();
        let set = clock.steps();
        if set != steps {
            steps = set;
            run.caveats.insert(Caveat::ClockStepped);
        }
        if end.is_some_and(|end| now >= end) {
            return (false, None);
        }
        if now < due {
            continue;
        }
        let seen = Seen::of(threads, shared);
        saving.save(args.output.out.as_deref(), || so_far(run, &seen));
        // If nobody looks any more, the export goes on.
        if let Some(place) = &mut screen {
            let (width, height) = terminal_size();
            let picture = picture(run, &seen, &before, (now - start, now - begun), |s| {
                view::live(s, width, height, Style::for_stdout())
            });
            let _ = place.draw(&mut console::out(), &picture);
            if console::reader_has_gone() {
                screen = None;
            }
        } else if lines {
            let line = picture(run, &seen, &before, (now - start, now - begun), view::line);
            lines = writeln!(stderr(), "{line}").is_ok();
        }
        before = seen;
        begun = now;
    }
}

/// The run file as far as the run has come: what was metered, the records that were made, and the
/// greatest flows of now.
fn so_far(run: &FlowRun, seen: &Seen) -> FlowRun {
    let mut so_far = run.clone();
    so_far.header.end_ns = steady_now().as_nanos();
    so_far.protocols = seen.protocols.iter().filter(|p| p.packets > 0).copied().collect();
    so_far.protocols.sort_by_key(|p| std::cmp::Reverse(p.bytes));
    so_far.top = seen.top.iter().map(|fast| fast.record.clone()).collect();
    for (name, n) in [
        ("packets_lost", seen.lost.0),
        ("records_lost", seen.lost.1),
        ("flows", seen.created),
        ("records", seen.records),
    ] {
        so_far.counters.insert(name.into(), n);
    }
    if seen.lost.0 > 0 {
        so_far.caveats.insert(Caveat::OwnDrops);
    }
    so_far.turn_to_utc(steady_scale().utc_offset);
    so_far
}

/// The live view has the terminal, unless something else is to be printed there.
fn is_live(args: &FlowArgs) -> bool {
    let printed = args.export.jsonl.as_ref().is_some_and(|p| p.as_os_str() == "-");
    stdout().is_terminal() && !args.output.quiet && !args.output.json && !printed
}

/// Shows one moment of the run.
fn picture<T>(
    run: &FlowRun,
    seen: &Seen,
    before: &Seen,
    (elapsed_ns, interval_ns): (i64, i64),
    show: impl FnOnce(&Snapshot<'_>) -> T,
) -> T {
    let protocols: Vec<ProtocolTotal> = seen
        .protocols
        .iter()
        .zip(&before.protocols)
        .map(|(now, then)| ProtocolTotal {
            protocol: now.protocol,
            packets: now.packets - then.packets,
            bytes: now.bytes - then.bytes,
        })
        .collect();
    let points: Vec<String> = run.points.iter().map(|p| p.name.clone()).collect();
    let mut caveats = run.caveats;
    if seen.lost != (0, 0) {
        caveats.insert(Caveat::OwnDrops);
    }
    let snapshot = Snapshot {
        elapsed_ns,
        interval_ns,
        points: &points,
        engine: &run.config.engine,
        protocols: &protocols,
        flows: (seen.held, run.config.flows_max),
        created: seen.created - before.created,
        records: (seen.records - before.records, seen.records),
        lost: seen.lost,
        top: &seen.top,
        caveats,
    };
    show(&snapshot)
}

/// What all threads have seen, at one moment.
struct Seen {
    protocols: Vec<ProtocolTotal>,
    held: u64,
    created: u64,
    records: u64,
    lost: (u64, u64),
    top: Vec<Fast>,
}

impl Seen {
    fn of(threads: &[Worker], shared: &Shared) -> Seen {
        let mut seen = Seen {
            protocols: (0..=u8::MAX)
                .map(|protocol| ProtocolTotal { protocol, ..ProtocolTotal::default() })
                .collect(),
            held: 0,
            created: 0,
            records: shared.records.load(Ordering::Relaxed),
            lost: (0, shared.queue_lost.load(Ordering::Relaxed)),
            top: Vec::new(),
        };
        for thread in threads {
            let report = thread.report.lock().unwrap_or_else(|e| e.into_inner());
            for (sum, one) in seen.protocols.iter_mut().zip(&report.protocols) {
                sum.packets += one.packets;
                sum.bytes += one.bytes;
            }
            seen.held += report.held;
            seen.created += report.created;
            seen.lost.0 += report.lost;
            seen.top.extend(report.top.iter().cloned());
        }
        now::cut(&mut seen.top);
        seen
    }
}

/// What a metering thread tells of itself, several times a second.
#[derive(Default)]
struct Report {
    protocols: Vec<ProtocolTotal>,
    held: u64,
    created: u64,
    lost: u64,
    top: Vec<Fast>,
    failure: Option<anyhow::Error>,
}

/// A metering thread, from outside.
struct Worker {
    thread: JoinHandle<Ended>,
    report: Arc<Mutex<Report>>,
}

/// What it leaves behind.
struct Ended {
    meter: Meter,
    /// Packets that came in and did not reach the meter.
    lost: u64,
    /// Packets that the kernel's program could not read, by why.
    refused: BTreeMap<String, u64>,
}

impl Worker {
    fn failure(&self) -> Option<anyhow::Error> {
        self.report.lock().unwrap_or_else(|e| e.into_inner()).failure.take()
    }

    fn join(self) -> Result<Ended> {
        self.thread
            .join()
            .map_err(|_| anyhow!("a metering thread failed; please report what it printed"))
    }
}

/// A metering thread, from inside.
struct Inner {
    meter: Meter,
    input: Input,
    queue: Records,
    report: Arc<Mutex<Report>>,
    shared: Arc<Shared>,
    /// Which of the metering threads.
    number: usize,
    /// For the live view.
    now: Option<Now>,
}

impl Inner {
    /// Begins to meter, on processor `cpu` if there is one.
    fn start(mut self, cpu: Option<usize>, stop: Arc<AtomicBool>) -> Result<Worker> {
        let report = self.report.clone();
        let thread = thread::Builder::new()
            .name("sonde-meter".into())
            .spawn(move || {
                let pinned = cpu.map_or(Ok(()), |cpu| {
                    pin_to_cpu(cpu).with_context(|| format!("cannot run on processor {cpu}"))
                });
                if let Err(error) = pinned.and_then(|()| self.run(&stop)) {
                    let mut report = self.report.lock().unwrap_or_else(|e| e.into_inner());
                    report.failure = Some(error);
                }
                self.end()
            })
            .context("cannot start a metering thread")?;
        Ok(Worker { thread, report })
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut swept = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let queue = &mut self.queue;
            let mut sink = |record| queue.push(record);
            let mut busy = false;
            for _ in 0..TURNS {
                busy = self.input.turn(&mut self.meter, &mut sink);
                if !busy {
                    break;
                }
            }
            let now = steady_now();
            if swept.elapsed() >= SWEEP {
                swept = Instant::now();
                self.sweep(now);
            }
            if !busy {
                self.input.wait(now + PATIENCE_NS)?;
            }
        }
        Ok(())
    }

    /// Lets time pass in the cache, and tells how it goes.
    fn sweep(&mut self, now: Time) {
        // A packet that waits in a ring is older than now: flows end a little late rather
        // than a packet too early.
        let queue = &mut self.queue;
        let mut sink = |record| queue.push(record);
        self.meter.cache_mut().handle_timeout(now.as_nanos() - IN_RINGS_NS, &mut sink);
        self.input.follow(&mut self.meter, &mut sink);
        // If there is no room now, there will be.
        self.queue.flush();
        let (lost, refused) = (self.input.lost(), self.input.refused());
        self.tell(lost, &refused);
        let protocols = self.meter.by_protocol();
        let looked = self.now.as_mut().and_then(|n| n.look(self.meter.cache(), now.as_nanos()));
        // If the view is being drawn just now, the next report will do.
        if let Ok(mut report) = self.report.try_lock() {
            report.protocols.clear();
            report.protocols.extend_from_slice(protocols);
            report.held = self.meter.cache().held().flows;
            report.created = self.meter.cache().counters().flows;
            report.lost = lost;
            if let Some(top) = looked {
                report.top = top;
            }
        }
    }

    /// What could not be metered, and how packets were selected, for the collectors.
    fn tell(&self, lost: u64, refused: &BTreeMap<String, u64>) {
        let unread: u64 = refused.values().sum();
        self.shared.tell(self.number, &self.meter, lost + unread);
    }

    /// Takes what the rings still hold, and ends all flows.
    fn end(mut self) -> Ended {
        let queue = &mut self.queue;
        let mut sink = |record| queue.push_waiting(record);
        // What cannot be read any more was lost with its interface.
        let _ = self.input.rest(&mut self.meter, &mut sink);
        self.meter.cache_mut().finish(steady_now().as_nanos(), &mut sink);
        self.queue.flush_waiting();
        let (lost, refused) = (self.input.lost(), self.input.refused());
        self.tell(lost, &refused);
        Ended { lost, refused, meter: self.meter }
    }
}

/// `point` is an octet; a run of more interfaces than this is a mistake.
const MOST_POINTS: usize = 64;
/// Records that wait for the export thread, by metering thread: as many as may end in one
/// moment after a flood. Memory is only taken when they do.
const QUEUE: usize = 1 << 20;
/// How long a signal may wait.
const LOOK_AROUND_NS: i64 = 100_000_000;
/// Bursts in one go: then time-outs have their turn.
const TURNS: usize = 64;
/// Between two looks for expired flows.
const SWEEP: Duration = Duration::from_millis(100);
/// An idle thread looks for the end of the run this often.
const PATIENCE_NS: i64 = 20_000_000;
/// What a packet may spend between its stamp and the meter.
const IN_RINGS_NS: i64 = 200_000_000;
