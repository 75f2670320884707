//! The thread that reflects in user space: it owns the port and the reflector. It learns of the
//! host, and reports of itself, by wait-free queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use rtrb::{Consumer, Producer, RingBuffer};
use sonde_meter::Instrument;
use sonde_meter::stamp::{Reflector, ReflectorCounters, ReflectorInterval};
use sonde_port::{Port, PortStats};
use sonde_sys::clock::ClockState;
use sonde_sys::schedule;
use sonde_wire::prefix::Prefix;

use super::addresses::HostState;
use crate::pump;
use crate::thread;
use crate::thread::join;

/// The thread that reflects, from outside.
pub struct ReflectorWorker {
    snapshots: Consumer<Snapshot>,
    news: Producer<News>,
    latest: Snapshot,
    stop: Arc<AtomicBool>,
    /// Ends with what was counted to the last packet; `None` once joined.
    thread: Option<JoinHandle<(Snapshot, Result<()>)>>,
}

/// What it is given about this host.
enum News {
    Clock(ClockState),
    NoSenders(Vec<Prefix>),
}

/// What it says about itself.
#[derive(Clone, Copy, Default)]
pub struct Snapshot {
    /// What became of the packets.
    pub counters: ReflectorCounters,
    /// The counters of the engine.
    pub port: PortStats,
    /// Sessions that are remembered.
    pub sessions: usize,
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

impl ReflectorWorker {
    /// Begins to answer on `port`, on processor `cpu` if there is one.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn start(port: Box<dyn Port>, reflector: Reflector, cpu: Option<usize>) -> Result<Self> {
        let (mut worker, inner) = ReflectorWorker::new(reflector);
        let thread = thread::spawn("sonde-reflect", move || inner.serve(port, cpu))?;
        worker.thread = Some(thread);
        Ok(worker)
    }

    /// Both ends, without a thread.
    fn new(reflector: Reflector) -> (Self, Inner) {
        let (snapshot_tx, snapshots) = RingBuffer::new(SNAPSHOTS);
        let (news, news_rx) = RingBuffer::new(16);
        let stop = Arc::new(AtomicBool::new(false));
        let inner = Inner { reflector, snapshots: snapshot_tx, news: news_rx, stop: stop.clone() };
        (
            ReflectorWorker { snapshots, news, latest: Snapshot::default(), stop, thread: None },
            inner,
        )
    }

    /// What it said last about itself.
    pub fn latest(&mut self) -> Snapshot {
        while let Ok(snapshot) = self.snapshots.pop() {
            self.latest = snapshot;
        }
        self.latest
    }

    /// Tells it how the host's clock stands, and the host's addresses if they have changed.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn follow(&mut self, host: &mut impl HostState) -> Result<()> {
        // Where there is no room the worker hangs; the next look brings what it misses.
        let _ = self.news.push(News::Clock(host.clock()));
        if host.have_changed()? {
            let _ = self.news.push(News::NoSenders(host.no_senders()?));
        }
        Ok(())
    }

    /// Whether it has ended by itself: it has failed.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it: what it counted to the last packet, and what failed.
    pub fn end(&mut self) -> (Snapshot, Result<()>) {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(join) {
            Some(Ok(ended)) => ended,
            Some(Err(panicked)) => (self.latest(), Err(panicked.into())),
            None => (self.latest(), Ok(())),
        }
    }
}

/// The same from inside.
struct Inner {
    reflector: Reflector,
    snapshots: Producer<Snapshot>,
    news: Consumer<News>,
    stop: Arc<AtomicBool>,
}

impl Inner {
    /// Answers until it is stopped or the port fails.
    fn serve(mut self, mut port: Box<dyn Port>, cpu: Option<usize>) -> (Snapshot, Result<()>) {
        let port = port.as_mut();
        let outcome = cpu
            .map_or(Ok(()), |cpu| {
                schedule::pin_to_cpu(cpu).with_context(|| {
                    format!("`cpu`: cannot run on processor {cpu}; 'lscpu -e' lists them")
                })
            })
            .and_then(|()| self.answer(port));
        (Snapshot::of(&self.reflector, port), outcome)
    }

    fn answer(&mut self, port: &mut dyn Port) -> Result<()> {
        let mut record = ReflectorInterval::default();
        let mut housekeeping = port.now();
        while !self.stop.load(Ordering::Relaxed) {
            let turn = pump::turn(port, &mut self.reflector)?;
            if turn.now >= housekeeping {
                housekeeping = turn.now + HOUSEKEEPING;
                self.learn()?;
                // The main thread makes the records, of snapshots.
                while self.reflector.poll_record(&mut record) {}
                let _ = self.snapshots.push(Snapshot::of(&self.reflector, port));
            }
            if turn.is_idle() {
                pump::rest(port, &self.reflector, turn.now, housekeeping)?;
            }
        }
        Ok(())
    }

    /// What is new of the host.
    fn learn(&mut self) -> Result<()> {
        while let Ok(news) = self.news.pop() {
            match news {
                News::Clock(c) => {
                    self.reflector.set_clock(tai_offset(c), c.synchronised, c.max_error_ns);
                }
                News::NoSenders(list) => self.reflector.set_no_senders(&list)?,
            }
        }
        Ok(())
    }
}

/// TAI - UTC, ns.
pub fn tai_offset(clock: ClockState) -> i64 {
    i64::from(clock.tai_offset_s) * 1_000_000_000
}

/// Between looks at orders and self-reports, ns.
const HOUSEKEEPING: i64 = 100_000_000;
/// Self-reports that wait for the main thread: those of six seconds.
const SNAPSHOTS: usize = 64;

#[cfg(test)]
pub mod tests;
