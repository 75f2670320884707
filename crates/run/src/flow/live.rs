//! Flow metering on interfaces: metering threads that shard nothing, the export thread, and
//! one that follows them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use sonde_port::Engine;
use sonde_results::flow_run::ProtocolTotal;
use sonde_results::{Caveat, FlowRun};
use sonde_sys::clock::{SteadyClock, steady_now};
use sonde_sys::netlink::Link;
use sonde_sys::schedule::pin_to_cpu;
use sonde_wire::Time;

use super::export::{self, Common};
use super::exporting::{Exporting, MeteringState, RecordQueue};
use super::follow::Follow;
use super::input::{MeterInput, OpenedInputs};
use super::meter::Meter;
use super::settings::{InputEngine, Settings};
use super::shard::Shard;
use super::status::{FlowMetering, Status, empty_run, ended};
use super::top_talkers::{self, Talker, TopTalkers};
use super::{outcome, setup};
use crate::confined::Uses;
use crate::error::{RunError, SettingsError};
use crate::joins;
use crate::run_clock::RunClock;
use crate::running::{Context, Latest, Running, Stop};
use crate::secrets::secrets;
use crate::thread::join;

/// Opens `links` and begins to meter.
pub fn start(
    links: Vec<Link>,
    settings: Settings,
    context: &Context,
) -> Result<FlowMetering, RunError> {
    if links.len() > MOST_POINTS {
        let n = links.len();
        let why = format!("{n} interfaces are too many for one run, which meters {MOST_POINTS}");
        return Err(SettingsError::of("sources", why + "; split them").into());
    }
    let workers = usize::from(settings.input.workers);
    let names: Vec<String> = links.iter().map(|l| l.name.clone()).collect();
    let observed_at = joins::joined_points("metering.join", &settings.metering.join, &names)?;
    let secret = || secrets(settings.metering.seed);
    let mut meters: Vec<Meter> = (0..workers)
        .map(|i| setup::meter_at(i, &settings, secret(), Shard::whole(), &observed_at))
        .collect::<Result<_, _>>()?;
    for meter in &mut meters {
        for (point, link) in links.iter().enumerate() {
            meter.set_longest(point as u8, link.mtu);
        }
    }
    let follow = Follow::open(&links)?;
    let opened = super::input::open(&links, &follow.indexes(), &observed_at, &settings)?;
    let mut run = empty_run(&settings, opened.engine.clone());
    run.points = opened.points(&links);
    for (i, point) in run.points.iter_mut().enumerate() {
        joins::describe(&mut point.how, i, &observed_at, &names);
        tracing::debug!("metering {}: {}", point.name, point.how);
    }
    let common = Common {
        settings: &settings,
        tai_offset_s: run.header.host.tai_offset_s,
        interfaces: follow.interfaces(),
        can_wait: false,
        stop: context.stop.clone(),
        stdout: context.stdout,
    };
    let (outputs, records) = export::open(&common)?;
    context.opened(&[uses(&settings)], &written_later(&settings))?;
    let (exporting, queues) = Exporting::start(outputs, workers, ROOM)?;
    let control = exporting.control();
    let OpenedInputs { inputs, .. } = opened;
    let end = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for (i, ((meter, input), queue)) in meters.into_iter().zip(inputs).zip(queues).enumerate() {
        let cpu = settings.input.cpus.get(i).copied();
        let inner = Inner {
            meter,
            input,
            queue,
            report: Arc::default(),
            shared: exporting.shared(),
            worker: i,
            talkers: settings.fastest.then(TopTalkers::default),
        };
        threads.push(inner.start(cpu, end.clone())?);
    }
    let status = Latest::new(Status::new(run.clone()));
    let stop = context.stop.clone();
    let (theirs, asked) = (status.clone(), stop.clone());
    let work = move || {
        let shared = exporting.shared();
        let duration = settings.duration;
        let mut following = Following { run, follow, threads, shared, status: theirs.clone() };
        // Whoever sets the clock disturbs no interval.
        let failure = following.run(&mut SteadyClock::new(), duration, &asked).err();
        end.store(true, Ordering::Relaxed);
        let (finished, late) = following.finish(exporting);
        ended(&theirs, finished, failure.or(late))
    };
    Running::start("sonde-flow", (records, status, control), stop, work)
}

/// What opens an interface that is made again.
fn uses(settings: &Settings) -> Uses {
    Uses::Engine(match settings.input.engine {
        Some(InputEngine::AfPacket) | None => Engine::AfPacket,
        // The XDP program is the whole of it.
        Some(InputEngine::Header | InputEngine::AfXdp) => Engine::AfXdp,
    })
}

/// Files that are made, and folders that are written to, while it runs.
fn written_later(settings: &Settings) -> Vec<PathBuf> {
    // Each piece is written under a name of its own first; other files are open by now, and a
    // command does not rotate them.
    let parquet =
        settings.export.write.iter().filter(|p| p.extension().is_some_and(|e| e == "parquet"));
    let pieces = parquet.map(|p| p.with_extension("parquet.part"));
    pieces.chain(settings.export.spool.clone()).collect()
}

/// The main thread's state: it follows interfaces and collects reports.
struct Following {
    run: FlowRun,
    follow: Follow,
    threads: Vec<Worker>,
    shared: Arc<MeteringState>,
    status: Latest<Status>,
}

impl Following {
    /// Until the end. An error: what failed.
    fn run(&mut self, clock: &mut impl RunClock, duration: Option<i64>, stop: &Stop) -> Result<()> {
        let mut steps = clock.steps();
        let end = duration.map(|ns| clock.now() + ns);
        loop {
            let left = end.map_or(LOOK_AROUND_NS, |end| end - clock.now());
            if clock.wait(left.min(LOOK_AROUND_NS), stop) {
                return Ok(());
            }
            if let Some(error) = self.threads.iter().find_map(Worker::failure) {
                return Err(error);
            }
            if self.shared.unread.load(Ordering::Relaxed) {
                return Ok(());
            }
            if let Some(interfaces) = self.follow.look(&mut self.run)? {
                self.shared.set_interfaces(interfaces);
            }
            let now = clock.now();
            let set = clock.steps();
            if set != steps {
                steps = set;
                self.run.caveats.insert(Caveat::ClockStepped);
            }
            if end.is_some_and(|end| now >= end) {
                return Ok(());
            }
            let seen = Seen::of(&self.threads, &self.shared);
            self.status.update(|status| seen.write_to(status, &self.run));
        }
    }

    /// Once the end was asked of the threads. Besides, what failed since they were last looked at.
    fn finish(mut self, exporting: Exporting) -> (Result<FlowRun>, Option<anyhow::Error>) {
        let mut meters = Vec::new();
        let mut failure = None;
        for thread in std::mem::take(&mut self.threads) {
            let report = thread.report.clone();
            let ended = match thread.join() {
                Ok(ended) => ended,
                Err(error) => return (Err(error), failure),
            };
            let failed = report.lock().unwrap_or_else(|e| e.into_inner()).failure.take();
            failure = failure.or(failed);
            *self.run.counters.entry("packets_lost".into()).or_default() += ended.lost;
            for (name, n) in ended.refused {
                *self.run.counters.entry(name).or_default() += n;
            }
            meters.push(ended.meter);
        }
        self.run.header.end_ns = steady_now().as_nanos();
        let meters: Vec<&Meter> = meters.iter().collect();
        (outcome::finish(self.run, &meters, exporting), failure)
    }
}

/// What all threads have seen, at one moment.
struct Seen {
    protocols: Vec<ProtocolTotal>,
    held: u64,
    created: u64,
    records: u64,
    lost: (u64, u64),
    top: Vec<Talker>,
}

impl Seen {
    fn of(threads: &[Worker], shared: &MeteringState) -> Seen {
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
        top_talkers::cut(&mut seen.top);
        seen
    }

    fn write_to(self, status: &mut Status, run: &FlowRun) {
        status.at_ns = steady_now().as_nanos();
        status.run.points.clone_from(&run.points);
        status.run.caveats = run.caveats;
        status.protocols = self.protocols;
        (status.held, status.created, status.records) = (self.held, self.created, self.records);
        (status.packets_lost, status.records_lost) = self.lost;
        if self.lost != (0, 0) {
            status.run.caveats.insert(Caveat::OwnDrops);
        }
        status.fastest = self.top;
    }
}

/// What a metering thread reports of itself, several times a second.
#[derive(Default)]
struct Report {
    protocols: Vec<ProtocolTotal>,
    held: u64,
    created: u64,
    lost: u64,
    top: Vec<Talker>,
    failure: Option<anyhow::Error>,
}

/// A metering thread, from outside.
struct Worker {
    thread: JoinHandle<Ended>,
    report: Arc<Mutex<Report>>,
}

/// The result of a metering thread.
struct Ended {
    meter: Meter,
    /// Packets that came in and did not reach the meter.
    lost: u64,
    /// Packets that the kernel's program could not read, by reason.
    refused: BTreeMap<String, u64>,
}

impl Worker {
    fn failure(&self) -> Option<anyhow::Error> {
        self.report.lock().unwrap_or_else(|e| e.into_inner()).failure.take()
    }

    fn join(self) -> Result<Ended> {
        Ok(join(self.thread)?)
    }
}

/// A metering thread, from inside.
struct Inner {
    meter: Meter,
    input: MeterInput,
    queue: RecordQueue,
    report: Arc<Mutex<Report>>,
    shared: Arc<MeteringState>,
    /// Which of the metering threads.
    worker: usize,
    /// Looks for the fastest flows, if they are wanted.
    talkers: Option<TopTalkers>,
}

impl Inner {
    /// Begins to meter, on processor `cpu` if there is one.
    fn start(mut self, cpu: Option<usize>, stop: Arc<AtomicBool>) -> Result<Worker> {
        let report = self.report.clone();
        let thread = thread::Builder::new()
            .name("sonde-meter".into())
            .spawn(move || {
                let pinned = cpu.map_or(Ok(()), |cpu| {
                    pin_to_cpu(cpu).with_context(|| {
                        format!(
                            "`input.cpus`: cannot run on processor {cpu}; 'lscpu -e' lists them"
                        )
                    })
                });
                if let Err(error) = pinned.and_then(|()| self.run(&stop)) {
                    let mut report = self.report.lock().unwrap_or_else(|e| e.into_inner());
                    report.failure = Some(error);
                }
                self.end()
            })
            .context("cannot start a metering thread; 'ulimit -u' bounds them")?;
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

    /// Lets time pass in the cache, and reports progress.
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
        self.report_packets(lost, &refused);
        let protocols = self.meter.by_protocol();
        let looked = self.talkers.as_mut().and_then(|t| t.look(self.meter.cache(), now.as_nanos()));
        // If the view is being drawn just now, the next report will do.
        if let Ok(mut report) = self.report.try_lock() {
            report.protocols.clear();
            report.protocols.extend_from_slice(protocols);
            report.held = self.meter.cache().occupancy().flows;
            report.created = self.meter.cache().counters().flows;
            report.lost = lost;
            if let Some(top) = looked {
                report.top = top;
            }
        }
    }

    /// What could not be metered, and how packets were selected, for the collectors.
    fn report_packets(&self, lost: u64, refused: &BTreeMap<String, u64>) {
        let unread: u64 = refused.values().sum();
        self.shared.report(self.worker, &self.meter, lost + unread);
    }

    /// Takes what the rings still hold, and ends all flows.
    fn end(mut self) -> Ended {
        let queue = &mut self.queue;
        let mut sink = |record| queue.push_waiting(record);
        self.input.rest(&mut self.meter, &mut sink);
        self.meter.cache_mut().finish(steady_now().as_nanos(), &mut sink);
        self.queue.flush_waiting();
        let (lost, refused) = (self.input.lost(), self.input.refused());
        self.report_packets(lost, &refused);
        Ended { lost, refused, meter: self.meter }
    }
}

/// `point` is an octet; a run of more interfaces than this is a mistake.
const MOST_POINTS: usize = 64;
/// Records that wait for the export thread, by metering thread: as many as may end in one
/// moment after a flood. Memory is only taken when they do.
const ROOM: usize = 1 << 20;
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

#[cfg(test)]
mod tests;
