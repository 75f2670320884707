//! A running instrument: one form for all of them.
//!
//! `start` of an instrument's module checks the settings and opens what it needs. It does so in
//! the thread that calls it, so that a failure is an error there. What it returns runs on
//! threads of its own, in the network namespace of that thread.

mod fanout;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use sonde_results::caveat::CaveatSet;
use sonde_results::run::Health;

use self::fanout::FanningOut;
pub use self::fanout::{Fanout, SubscriberCounts};
use crate::confined::Uses;
use crate::error::RunError;
use crate::thread::{self, ThreadPanicked};

/// What an instrument is given by the program that it runs in.
#[derive(Clone, Default)]
pub struct Context {
    /// Asks it to end; the program keeps a copy. It also ends a start that waits for something.
    pub stop: Stop,
    /// Where an output named `-` goes; `None`: there is no such output.
    pub stdout: Option<fn() -> Box<dyn Write + Send>>,
    /// Called by a start once all is open and before it starts threads, with what it still uses
    /// and writes. A program that runs nothing else gives up its other privileges here.
    pub when_open: Option<WhenOpen>,
    /// How the program was started.
    pub invocation: Invocation,
}

/// How the program was started that measures.
#[derive(Clone, Debug, Default)]
pub struct Invocation {
    /// Its command line, for the heads of runs.
    pub command: Vec<String>,
    /// The binary `sonde`, which is a device of some laboratories.
    pub sonde: Option<PathBuf>,
}

/// See [`Context::when_open`].
pub type WhenOpen = Arc<dyn Fn(&[Uses], &[PathBuf]) -> Result<(), RunError> + Send + Sync>;

impl Context {
    /// All is open.
    ///
    /// # Errors
    /// Those of [`Context::when_open`].
    pub fn opened(&self, uses: &[Uses], writes: &[PathBuf]) -> Result<(), RunError> {
        self.when_open.as_ref().map_or(Ok(()), |opened| opened(uses, writes))
    }
}

/// A request to end, seen by all who have a copy.
#[derive(Clone, Default)]
pub struct Stop(Arc<Asked>);

#[derive(Default)]
struct Asked {
    any: AtomicBool,
    /// Without waiting for what could still come.
    urgent: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
    looks: Looks,
}

/// In a cache line of its own, for loops read the flag beside it.
#[derive(Default)]
#[repr(align(128))]
struct Looks(AtomicU64);

impl Stop {
    /// Asks for an end in order.
    pub fn ask(&self) {
        self.raise(false);
    }

    /// Asks for an end that waits for nothing: no late replies, no slow collector.
    pub fn hurry(&self) {
        self.raise(true);
    }

    fn raise(&self, urgent: bool) {
        let _held = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.urgent.fetch_or(urgent, Ordering::Relaxed);
        self.0.any.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }

    /// Whether an end was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.looks.0.fetch_add(1, Ordering::Relaxed);
        self.0.any.load(Ordering::Relaxed)
    }

    /// How often it was asked by [`Stop::is_asked`] or [`Stop::wait`] whether to end. Who works
    /// looks again and again, and a count that stands still is a loop that no longer turns.
    pub fn looks(&self) -> u64 {
        self.0.looks.0.load(Ordering::Relaxed)
    }

    /// Set once an end was asked for: for loops that look at it often. To be read only.
    pub fn flag(&self) -> &AtomicBool {
        &self.0.any
    }

    /// Whether one was asked for that waits for nothing.
    pub fn is_urgent(&self) -> bool {
        self.0.urgent.load(Ordering::Relaxed)
    }

    /// Waits at most `patience` for a request; whether there is one.
    pub fn wait(&self, patience: Duration) -> bool {
        if patience.is_zero() || self.is_asked() {
            return self.is_asked();
        }
        let held = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.changed.wait_timeout_while(held, patience, |()| !self.is_asked());
        drop(waited);
        self.is_asked()
    }
}

/// Sets a flag when it is dropped, however it came to that: for threads that look at the flag.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What one reader gets of an instrument, in order and within bounds.
pub struct RecordReceiver<R> {
    queue: Receiver<R>,
    lost: Arc<AtomicU64>,
    taken: Arc<AtomicU64>,
}

/// The instrument's end of [`RecordReceiver`].
pub struct RecordSender<R> {
    queue: SyncSender<R>,
    lost: Arc<AtomicU64>,
    /// What its reader has taken out of the queue.
    taken: Arc<AtomicU64>,
    /// It is waited for no longer.
    given_up: AtomicBool,
    unread: AtomicBool,
}

/// A queue with room for `room` records.
pub fn records<R>(room: usize) -> (RecordSender<R>, RecordReceiver<R>) {
    let (to, queue) = sync_channel(room);
    let lost = Arc::new(AtomicU64::new(0));
    let taken = Arc::new(AtomicU64::new(0));
    let (given_up, unread) = (AtomicBool::new(false), AtomicBool::new(false));
    (
        RecordSender { queue: to, lost: lost.clone(), taken: taken.clone(), given_up, unread },
        RecordReceiver { queue, lost, taken },
    )
}

impl<R> RecordSender<R> {
    /// Hands one over. An instrument never waits for its reader: what does not fit is counted.
    pub fn push(&self, record: R) {
        self.push_many(record, 1);
    }

    /// The same for one that stands for `n` of them.
    pub(crate) fn push_many(&self, record: R, n: u64) {
        if self.offer(record).is_err() {
            self.lose(n);
        }
    }

    /// Hands one over, or gives it back if there is no room. Whoever has gone takes everything.
    pub(crate) fn offer(&self, record: R) -> Result<(), R> {
        match self.queue.try_send(record) {
            Err(TrySendError::Full(record)) => Err(record),
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }

    /// Counts records that are given up for want of room.
    pub fn lose(&self, n: u64) {
        self.lost.fetch_add(n, Ordering::Relaxed);
    }

    /// Records that found no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits for room. Where an urgent end is asked for, a reader who takes nothing for a second is
    /// given up. This record and all later ones that find no room are then returned at once.
    ///
    /// # Errors
    /// The record.
    pub fn push_unless_urgent(&self, mut record: R, stop: &Stop) -> Result<(), R> {
        let begun = Instant::now();
        loop {
            record = match self.queue.try_send(record) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => {
                    self.unread.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Err(TrySendError::Full(back)) => back,
            };
            let given_up = self.given_up.load(Ordering::Relaxed);
            if given_up || (stop.is_urgent() && begun.elapsed() > URGENT) {
                self.given_up.store(true, Ordering::Relaxed);
                return Err(record);
            }
            std::thread::sleep(LATE_READER);
        }
    }

    /// Whether the reader had gone when it was last waited for.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }
}

impl<R> RecordReceiver<R> {
    /// The next record, if there is one now.
    pub fn next_now(&self) -> Option<R> {
        self.queue.try_recv().ok().inspect(|_| self.count())
    }

    /// The next record, for which it waits at most `patience`.
    pub fn next(&self, patience: Duration) -> Next<R> {
        match self.queue.recv_timeout(patience) {
            Ok(record) => {
                self.count();
                Next::Record(record)
            }
            Err(RecvTimeoutError::Timeout) => Next::Nothing,
            Err(RecvTimeoutError::Disconnected) => Next::End,
        }
    }

    /// All of them until the end, each as it comes.
    pub fn iter(&self) -> impl Iterator<Item = R> {
        self.queue.iter().inspect(|_| self.count())
    }

    fn count(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that found no room since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// What comes next of [`RecordReceiver`].
#[derive(Debug, PartialEq, Eq)]
pub enum Next<R> {
    /// The next record; records come in the order in which they were made.
    Record(R),
    /// None within the time.
    Nothing,
    /// There will be no more.
    End,
}

/// The latest state of an instrument.
pub struct Latest<S>(Arc<Mutex<S>>);

impl<S> Clone for Latest<S> {
    fn clone(&self) -> Self {
        Latest(self.0.clone())
    }
}

impl<S: Clone> Latest<S> {
    /// One that begins with `state`.
    pub fn new(state: S) -> Latest<S> {
        Latest(Arc::new(Mutex::new(state)))
    }

    /// A copy of the state.
    pub fn get(&self) -> S {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the state in place, under its lock.
    pub fn update(&self, with: impl FnOnce(&mut S)) {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What an instrument leaves behind.
#[derive(Debug, Default)]
pub struct Ended {
    /// What it and its engine counted, by name.
    pub counters: BTreeMap<String, u64>,
    /// Its own behaviour: lateness, pauses.
    pub health: Health,
    /// What casts doubt on its results as a whole.
    pub caveats: CaveatSet,
    /// Why it ended before its time. What was measured until then was handed over.
    pub failure: Option<RunError>,
}

/// Whatever it counted is gone with the thread.
impl From<ThreadPanicked> for Ended {
    fn from(panicked: ThreadPanicked) -> Ended {
        Ended { failure: Some(RunError::Host(panicked.into())), ..Ended::default() }
    }
}

/// An instrument at work: `R` are its records, `S` its state, `C` what can be asked of it.
///
/// Whoever drops it, asks for its end as [`Running::stop`] does, and waits for nothing: the
/// instrument goes on until it has ended in order. Its counters and what failed are lost then:
/// [`Running::join`] gives them. Dropping a [`Context`] or a [`Stop`] asks for nothing.
pub struct Running<R, S, C> {
    /// What the instrument measures, in a bounded queue.
    pub records: RecordReceiver<R>,
    /// The latest state of the instrument.
    pub status: Latest<S>,
    /// What can be asked of it while it runs.
    pub control: C,
    /// Nothing comes by it: it closes with the thread's end.
    end: Mutex<Receiver<()>>,
    work: Work,
    fanning_out: Option<FanningOut>,
}

impl<R, S, C> Running<R, S, C> {
    /// Runs `work` on a thread called `name`.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn start(
        name: &str,
        (records, status, control): (RecordReceiver<R>, Latest<S>, C),
        stop: Stop,
        work: impl FnOnce() -> Ended + Send + 'static,
    ) -> Result<Self, RunError> {
        let (held, end) = sync_channel::<()>(0);
        let whole = move || {
            let _held = held;
            work()
        };
        let thread = thread::spawn(name, whole)?;
        let (end, work) = (Mutex::new(end), Work { stop, thread: Some(thread) });
        Ok(Running { records, status, control, end, work, fanning_out: None })
    }

    /// Hands the records to all `readers` from now on, instead of to [`Running::records`]. That
    /// ends at once, and goes on to count what found no room on its way to the readers.
    ///
    /// # Errors
    /// It was called before; no thread to be had: then nobody gets the records.
    pub fn fan_out(&mut self, readers: &Fanout<R>) -> Result<(), RunError>
    where
        R: Send + Sync + 'static,
    {
        if self.fanning_out.is_some() {
            let why = "the records have their readers already; subscribe to the first `Fanout`";
            return Err(RunError::Host(anyhow!(why)));
        }
        let (lost, taken) = (self.records.lost.clone(), self.records.taken.clone());
        let ended = RecordReceiver { queue: sync_channel(0).1, lost, taken };
        let records = std::mem::replace(&mut self.records, ended);
        self.fanning_out = Some(FanningOut::start(records, readers)?);
        Ok(())
    }

    /// Asks for an end in order; its last records still come. It is [`Context::stop`] that is
    /// asked: all instruments that were started with it, or a copy, end.
    pub fn stop(&self) {
        self.work.stop.ask();
    }

    /// Waits at most `patience` for its end; whether it has ended. Read the records meanwhile: an
    /// instrument that must not lose them waits with its end until the last fits the queue.
    pub fn wait(&self, patience: Duration) -> bool {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        end.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }

    /// Reads until its end: for an instrument whose last record is its whole result.
    pub fn last(self) -> (Option<R>, Ended) {
        (self.records.iter().last(), self.join())
    }

    /// Waits for its end. Records that are not read by then are gone: an instrument that waits
    /// for its reader goes on without. Those of a [`Running::fan_out`] stay in their readers'
    /// queues, and what these lost is the counter `subscribers_lost`.
    pub fn join(self) -> Ended {
        drop(self.records);
        let mut ended = self.work.join();
        if let Some(fanning_out) = self.fanning_out {
            fanning_out.join(&mut ended);
        }
        ended
    }
}

/// The thread of an instrument. Nobody is left who could end it, once this is dropped.
struct Work {
    stop: Stop,
    /// `None`: it was joined.
    thread: Option<JoinHandle<Ended>>,
}

impl Work {
    fn join(mut self) -> Ended {
        let joined = self.thread.take().map(thread::join);
        joined.map_or_else(Ended::default, |ended| ended.unwrap_or_else(Ended::from))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Others may share the stop: what has ended asks for nothing.
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            self.stop.ask();
        }
    }
}

/// For a reader who takes nothing, at an urgent end.
const URGENT: Duration = Duration::from_secs(1);
/// Between two looks whether a late reader has made room.
const LATE_READER: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_and_the_rest_comes_in_order() {
        let (sender, records) = records(2);
        (0..5).for_each(|n| sender.push(n));
        assert_eq!(
            (records.next_now(), records.next_now(), records.next_now()),
            (Some(0), Some(1), None)
        );
        assert_eq!(records.lost(), 3);
        sender.push(9);
        drop(sender);
        assert_eq!(records.next(Duration::ZERO), Next::Record(9));
        assert_eq!(records.next(Duration::ZERO), Next::End);
    }

    #[test]
    fn whoever_waits_for_a_stop_is_woken() {
        let stop = Stop::default();
        assert!(!stop.wait(Duration::ZERO));
        let seen = stop.clone();
        let waiting = std::thread::spawn(move || seen.wait(Duration::from_secs(3600)));
        stop.ask();
        assert!(waiting.join().unwrap() && !stop.is_urgent());
        stop.hurry();
        stop.ask();
        assert!(stop.is_urgent());
    }

    /// One that hands out a record, waits for a stop, hands out another and says that it has ended.
    fn stoppable(stop: &Stop) -> (Running<u32, (), ()>, Receiver<bool>) {
        let (sender, records) = records(2);
        let (asked, (ends, ended)) = (stop.clone(), sync_channel(1));
        let work = move || {
            sender.push(1);
            let stopped = asked.wait(Duration::from_secs(3600));
            sender.push(2);
            ends.send(stopped).unwrap();
            Ended::default()
        };
        let parts = (records, Latest::new(()), ());
        (Running::start("sonde-test", parts, stop.clone(), work).unwrap(), ended)
    }

    #[test]
    fn one_that_is_dropped_is_asked_to_end_and_its_readers_get_the_rest() {
        let (running, ended) = stoppable(&Stop::default());
        drop(running);
        assert_eq!(ended.recv(), Ok(true));
        let (mut running, ended) = stoppable(&Stop::default());
        let fanout = Fanout::new(|_| 1);
        let reader = fanout.subscribe("reader", 2);
        running.fan_out(&fanout).unwrap();
        drop((running, fanout));
        assert_eq!(reader.iter().map(|n| *n).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(ended.recv(), Ok(true));
    }

    #[test]
    fn one_that_has_ended_asks_nobody_else_to_end() {
        let shared = Stop::default();
        let start = || {
            let parts = (records::<u32>(1).1, Latest::new(()), ());
            Running::start("sonde-test", parts, shared.clone(), Ended::default).unwrap()
        };
        assert!(start().join().failure.is_none() && !shared.is_asked());
        let running = start();
        while !running.work.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            std::thread::yield_now();
        }
        drop(running);
        assert!(!shared.is_asked());
        // A copy of the stop that goes asks for nothing either.
        let (running, _ended) = stoppable(&shared);
        drop(shared.clone());
        assert!(!running.wait(Duration::ZERO));
        running.stop();
        assert!(shared.is_asked() && running.join().failure.is_none());
    }

    #[test]
    fn a_thread_that_panics_is_a_failure() {
        let (sender, records) = records::<u32>(1);
        let parts = (records, Latest::new(()), ());
        let running = Running::start("sonde-test", parts, Stop::default(), move || {
            sender.push(1);
            panic!("as this test wants it")
        });
        let failure = running.unwrap().join().failure.unwrap().to_string();
        assert!(failure.contains("sonde-test"), "{failure}");
    }
}
