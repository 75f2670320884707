//! The threads that carry packets: each owns a port and an instrument, shares nothing,
//! and talks to the rest of the program over wait-free queues.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use sonde_meter::Instrument;
use sonde_meter::stamp::{Delays, NextHopLink, Sample, Sender, StreamSpec};
use sonde_port::icmp::IcmpError;
use sonde_port::{Filter, Port, PortStats};
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::run::Health;
use sonde_results::{Hist, Interval};
use sonde_sys::clock::{self, PauseWatch};
use sonde_sys::schedule;
use sonde_wire::Time;

use crate::error::RunError;
use crate::pump;
use crate::running::Ended;
use crate::thread::join;

/// Commands of the main thread to a probe worker.
pub enum WorkerCommand {
    /// A next hop has a new link header, or none.
    Way(u16, NextHopLink),
    /// The routes have changed: all ways, and that of each stream.
    Routes(Vec<NextHopLink>, Vec<u16>),
    /// This host has other addresses: the source of each stream, and what to receive.
    Sources(Vec<IpAddr>, Filter),
    /// Whether our clock is synchronised, its greatest error (ns).
    Clock(bool, i64),
    /// Further streams, whose phases count from when this is obeyed, and pages of histograms for
    /// them.
    Add {
        /// What they are; their ways are among those that were given last.
        specs: Vec<StreamSpec>,
        /// See [`Sender::add`].
        pages: usize,
    },
    /// These streams send no more.
    End(Vec<u32>),
}

/// Opens a port for other addresses than the one before, which is closed by then.
pub type Reopen = Box<dyn FnMut(&Filter) -> Result<Box<dyn Port>> + Send>;

/// What a worker says about itself, about twice a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerStatus {
    /// Probes handed to the port so far.
    pub sent: u64,
    /// Valid replies so far.
    pub received: u64,
    /// Their round trips, before any is settled.
    pub delays: Delays,
}

/// The main thread's end of a worker.
pub struct ProbeWorker {
    /// Lateness and pauses so far. The worker never waits for the lock.
    pub health: Arc<Mutex<Health>>,
    /// Finished interval records; give each back through `recycled`.
    pub records: Consumer<Box<Interval>>,
    /// Where fetched records go back, so that none is allocated again.
    pub recycled: Producer<Box<Interval>>,
    /// Packet fates, where they were asked for.
    pub samples: Consumer<Sample>,
    /// What the worker reports of itself, a few times a second.
    pub status: Consumer<WorkerStatus>,
    /// ICMP errors that the port heard of.
    pub errors: Consumer<IcmpError>,
    /// Changes of targets while it runs.
    pub commands: Producer<WorkerCommand>,
    stop: Arc<AtomicBool>,
    hurry: Arc<AtomicBool>,
    /// `None` once joined.
    thread: Option<JoinHandle<Ended>>,
}

/// A worker that nobody follows any more ends at once.
impl Drop for ProbeWorker {
    fn drop(&mut self) {
        self.hurry();
    }
}

impl ProbeWorker {
    /// Starts a worker on `cpu` (if given) that probes until `end`, until stopped, or
    /// until it is done. The worker itself watches `end`: a busy host may keep the main
    /// thread waiting.
    pub fn start(
        port: Box<dyn Port>,
        reopen: Reopen,
        sender: Sender,
        timeout: i64,
        end: Time,
        cpu: Option<usize>,
    ) -> Result<Self> {
        let (mut worker, inner) = Self::new(reopen, sender, timeout, end);
        let thread = std::thread::Builder::new().name("sonde-send".into());
        worker.thread = Some(thread.spawn(move || inner.probe(port, cpu))?);
        Ok(worker)
    }

    /// Both ends of a worker that is not started.
    fn new(reopen: Reopen, sender: Sender, timeout: i64, end: Time) -> (ProbeWorker, Inner) {
        let (record_tx, records) = RingBuffer::new(RECORDS);
        let (mut recycled, empty_rx) = RingBuffer::new(RECORDS);
        for _ in 0..RECORDS {
            let _ = recycled.push(Box::new(Interval::empty(0)));
        }
        let (sample_tx, samples) = RingBuffer::new(SAMPLES);
        let (status_tx, status) = RingBuffer::new(16);
        let (error_tx, errors) = RingBuffer::new(ERRORS);
        let (commands, command_rx) = RingBuffer::new(4096);
        let stop = Arc::new(AtomicBool::new(false));
        let hurry = Arc::new(AtomicBool::new(false));
        let health = Arc::new(Mutex::new(Health::default()));
        let inner = Inner {
            sender,
            records: record_tx,
            empty: empty_rx,
            spare: None,
            samples: sample_tx,
            status: status_tx,
            errors: error_tx,
            commands: command_rx,
            stop: stop.clone(),
            hurry: hurry.clone(),
            timeout,
            end,
            health: health.clone(),
            recent: Hist::default(),
            pauses: Hist::default(),
            reopen,
            new_filter: None,
            past: PortStats::default(),
            seen: PortStats::default(),
            looked: Time::ZERO,
        };
        let worker = ProbeWorker {
            health,
            records,
            recycled,
            samples,
            status,
            errors,
            commands,
            stop,
            hurry,
            thread: None,
        };
        (worker, inner)
    }

    /// Asks for the end: no more sends; replies in flight are awaited for one timeout.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Asks for the end now: what is in flight counts neither as answered nor as lost.
    pub fn hurry(&self) {
        self.hurry.store(true, Ordering::Relaxed);
    }

    /// Gives an order that must not be lost: waits for room, unless the worker has ended.
    pub fn order(&mut self, mut command: WorkerCommand) {
        while let Err(PushError::Full(back)) = self.commands.push(command) {
            if self.is_finished() {
                return;
            }
            command = back;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the thread has ended; its records may still be in the queue.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end. Returns counters, health and failure.
    pub fn join(mut self) -> Ended {
        let ended = self.thread.take().map_or_else(|| Ok(Ended::default()), join);
        ended.unwrap_or_else(Ended::from)
    }
}

/// What the worker thread owns.
struct Inner {
    sender: Sender,
    records: Producer<Box<Interval>>,
    empty: Consumer<Box<Interval>>,
    spare: Option<Box<Interval>>,
    samples: Producer<Sample>,
    status: Producer<WorkerStatus>,
    errors: Producer<IcmpError>,
    commands: Consumer<WorkerCommand>,
    stop: Arc<AtomicBool>,
    hurry: Arc<AtomicBool>,
    timeout: i64,
    end: Time,
    health: Arc<Mutex<Health>>,
    recent: Hist,
    pauses: Hist,
    reopen: Reopen,
    /// What to receive from now on, by another port.
    new_filter: Option<Filter>,
    /// Counts of the ports that were closed.
    past: PortStats,
    /// Those of this port when it was last looked at, and when that was.
    seen: PortStats,
    looked: Time,
}

impl Inner {
    /// All that the thread does.
    fn probe(mut self, port: Box<dyn Port>, cpu: Option<usize>) -> Ended {
        let pinned = cpu.map_or(Ok(()), schedule::pin_to_cpu);
        let run = pinned
            .with_context(|| {
                let cpu = cpu.unwrap_or_default();
                format!("`engine.cpu`: cannot run on processor {cpu}; 'lscpu -e' lists them")
            })
            .and_then(|()| self.run_on(port));
        let (failure, mut port) = match run {
            Ok((failure, port)) => (failure, Some(port)),
            Err(error) => (Some(error), None),
        };
        // Whatever happened, what was measured until then is passed on.
        let failure = failure.map(RunError::Host);
        Ended { failure, ..self.end(port.as_deref_mut()) }
    }

    /// Runs on one port after the other. An error: there is none to go on with.
    fn run_on(
        &mut self,
        mut port: Box<dyn Port>,
    ) -> Result<(Option<anyhow::Error>, Box<dyn Port>)> {
        loop {
            if let Err(error) = self.run(port.as_mut()) {
                return Ok((Some(error), port));
            }
            let Some(filter) = self.new_filter.take() else { return Ok((None, port)) };
            self.past = self.past.plus(&port.stats());
            self.seen = PortStats::default();
            // An engine may own its interface's queues: the old port goes first.
            drop(port);
            // An IPv6 address can be used only after a second or two (RFC 4862, section 5.4).
            let patience = Instant::now() + PATIENCE;
            port = loop {
                match (self.reopen)(&filter) {
                    Ok(port) => break port,
                    Err(error) if Instant::now() > patience => return Err(error),
                    Err(_) => std::thread::sleep(RETRY),
                }
            };
        }
    }

    fn run(&mut self, port: &mut dyn Port) -> Result<()> {
        self.sender.end_at(self.end);
        let mut watch = PauseWatch::new(PAUSE);
        let mut housekeeping = port.now() + HOUSEKEEPING;
        let mut deadline = Time::MAX;
        let mut crowded = 0u32;
        loop {
            let turn = pump::turn(port, &mut self.sender)?;
            if let Some(gap) = watch.observe(turn.now) {
                self.pauses.add(gap);
                if gap > STOLEN {
                    self.sender.doubt(turn.now, Caveat::CpuStolen);
                    self.sender.doubt(turn.now - gap, Caveat::CpuStolen);
                }
            }
            // Closing an interval costs as much as a send: it waits for a turn without
            // one, if such turns come at all.
            crowded = if turn.is_idle() { 0 } else { crowded + 1 };
            if crowded.is_multiple_of(PATIENT_TURNS) {
                self.pass_record();
            }
            self.pass_samples();
            if turn.now >= self.end && deadline == Time::MAX {
                self.sender.stop(self.end, turn.now);
                deadline = turn.now + self.timeout;
            }
            if turn.now >= housekeeping {
                housekeeping = turn.now + HOUSEKEEPING;
                self.obey(turn.now)?;
                self.report();
                self.pass_errors(port);
                self.look_at(port, turn.now);
                if self.stop.load(Ordering::Relaxed) {
                    self.end = self.end.min(turn.now);
                    self.sender.end_at(self.end);
                }
                let hurry = self.hurry.load(Ordering::Relaxed) || self.new_filter.is_some();
                if turn.now >= deadline || hurry || self.sender.is_done() {
                    return Ok(());
                }
            }
            if turn.is_idle()
                && let Some(until) = pump::rest(port, &self.sender, turn.now, housekeeping)?
            {
                watch.idle_until(until);
            }
        }
    }

    /// Hands at most one record over, so that closing thousands of intervals is spread
    /// between the sends.
    #[inline]
    fn pass_record(&mut self) -> bool {
        let Some(mut record) = self.spare.take().or_else(|| self.empty.pop().ok()) else {
            return false;
        };
        if !self.sender.poll_record(&mut record) {
            self.spare = Some(record);
            return false;
        }
        // There are as many slots as boxes.
        let _ = self.records.push(record);
        true
    }

    #[inline]
    fn pass_samples(&mut self) {
        while !self.samples.is_full() {
            let Some(sample) = self.sender.poll_sample() else { break };
            let _ = self.samples.push(sample);
        }
    }

    /// What does not fit is one more of a flood: the first ones are enough.
    fn pass_errors(&mut self, port: &mut dyn Port) {
        port.take_icmp_errors(&mut |error| {
            let _ = self.errors.push(error);
        });
    }

    fn obey(&mut self, now: Time) -> Result<()> {
        while let Ok(command) = self.commands.pop() {
            match command {
                WorkerCommand::Way(index, way) => self.sender.set_way(index, way),
                WorkerCommand::Routes(ways, of_stream) => self.sender.set_routes(ways, &of_stream),
                WorkerCommand::Sources(sources, filter) => {
                    self.sender.set_sources(&sources);
                    self.new_filter = Some(filter);
                }
                WorkerCommand::Clock(synchronised, error) => {
                    self.sender.set_clock(synchronised, error)
                }
                WorkerCommand::Add { specs, pages } => {
                    // The session has checked and numbered them.
                    self.sender.add(&specs, now, pages).context("targets cannot be added")?;
                }
                WorkerCommand::End(streams) => self.sender.end(&streams, now),
            }
        }
        Ok(())
    }

    /// What the port lost of its own since the last look casts doubt on this time.
    fn look_at(&mut self, port: &mut dyn Port, now: Time) {
        if now - self.looked < LOOK {
            return;
        }
        self.looked = now;
        let stats = port.stats();
        if stats.rx_dropped + stats.rx_invalid > self.seen.rx_dropped + self.seen.rx_invalid {
            self.sender.doubt(now, Caveat::OwnDrops);
        }
        self.seen = stats;
    }

    fn report(&mut self) {
        let c = self.sender.counters();
        let delays = self.sender.delays();
        let _ = self.status.push(WorkerStatus { sent: c.sent, received: c.replies, delays });
        if let Ok(mut health) = self.health.try_lock() {
            self.sender.take_lateness(&mut self.recent);
            health.send_lateness.merge(&self.recent);
            health.pauses.merge(&self.pauses);
            self.pauses.clear();
        }
    }

    fn end(&mut self, mut port: Option<&mut (dyn Port + 'static)>) -> Ended {
        if let Some(port) = &mut port {
            self.pass_errors(*port);
        }
        let now = port.as_ref().map_or_else(clock::steady_now, |port| port.now());
        // Also where it ends early: a port failed, or nothing was to be waited for.
        self.sender.stop(self.end.min(now), now);
        self.sender.finish(now);
        loop {
            self.pass_samples();
            if self.pass_record() {
                continue;
            }
            if self.spare.is_some() {
                break; // no record is left
            }
            // The reader is behind: wait for a box to come back.
            std::thread::sleep(LATE_READER);
            if self.records.is_abandoned() {
                break;
            }
        }
        self.sender.take_lateness(&mut self.recent);
        let health = {
            // It stays there: displays show it until the instrument has ended.
            let mut shown = self.health.lock().unwrap_or_else(|e| e.into_inner());
            shown.send_lateness.merge(&self.recent);
            shown.pauses.merge(&self.pauses);
            shown.clone()
        };
        let (mut stats, counters) = (self.past, self.sender.counters());
        if let Some(port) = &mut port {
            stats = stats.plus(&port.stats());
        }
        let mut all = BTreeMap::new();
        for (name, n) in counters.iter() {
            all.insert(format!("sender_{name}"), n);
        }
        for (name, n) in stats.iter() {
            all.insert(format!("port_{name}"), n);
        }
        let mut caveats = CaveatSet::default();
        for (found, caveat) in [
            (stats.rx_dropped + stats.rx_invalid > 0, Caveat::OwnDrops),
            (
                counters.forged + counters.short + counters.malformed + counters.checksum > 0,
                Caveat::InvalidReplies,
            ),
            (counters.histogram_refused > 0, Caveat::HistogramFull),
            (health.pauses.max > STOLEN, Caveat::CpuStolen),
        ] {
            if found {
                caveats.insert(caveat);
            }
        }
        Ended { counters: all, health, caveats, failure: None }
    }
}

/// Turns in a row that all had packets, before a record is passed on nevertheless.
const PATIENT_TURNS: u32 = 32;
/// Interval records under way between worker and main thread.
const RECORDS: usize = 4096;
/// ICMP errors under way.
const ERRORS: usize = 1024;
/// Capacity of the queue of fates.
const SAMPLES: usize = 1 << 16;
/// Between looks at orders and self-reports, ns.
const HOUSEKEEPING: i64 = 50_000_000;
/// Between two looks whether the reader of the last records has come on.
const LATE_READER: Duration = Duration::from_millis(1);
/// A turn that takes longer than this is kept as a pause, ns.
const PAUSE: i64 = 50_000;
/// Between looks at the port's own counts, ns: for each socket they cost a system call.
const LOOK: i64 = 1_000_000_000;
/// How long a port for new addresses may fail to open, and between tries.
const PATIENCE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(50);
/// A pause longer than this casts doubt on the maxima, ns.
const STOLEN: i64 = 1_000_000;

#[cfg(test)]
mod tests;
