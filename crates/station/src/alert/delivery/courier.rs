//! What brings notifications to one receiver: a thread, its queue, and patience.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_run::error::RunError;
use sonde_run::running::Latest;
use sonde_run::thread;

use super::way::Way;
use super::{Deadline, ReceiverStatus, host, utc_now_ns};
use crate::alert::notification::Notification;
use crate::alert::settings::AlertSettings;
use crate::alert::sink::{Delivery, OpenedSink};
use crate::alert::spool::{Spool, SpoolLimits};
use crate::backoff::Backoff;

pub(super) type SharedSpool = Arc<Mutex<Spool>>;

fn lock(spool: &SharedSpool) -> MutexGuard<'_, Spool> {
    // Whoever panicked left a queue that is whole on the disk.
    spool.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn open_spool(name: &str, settings: &AlertSettings) -> Result<SharedSpool, RunError> {
    // No name of a receiver can lead out of the folder.
    let folder = settings.folder.join(format!("to-{name}"));
    let opened = Spool::open(&folder, settings.limits());
    let opened = opened.map_err(|e| {
        host(format!(
            "the queue {} cannot be used: {e}; give `alert.folder` a folder of its own",
            folder.display()
        ))
    })?;
    Ok(Arc::new(Mutex::new(opened)))
}

/// All that a receiver's thread needs besides its queue.
pub(super) struct Opened {
    sink: OpenedSink,
    way: Way,
    keep_ns: i64,
}

impl Opened {
    pub fn new(name: &str, settings: &AlertSettings) -> Result<Opened, RunError> {
        let config = &settings.receiver[name];
        let table = format!("alert.receiver.{name}.{}", config.kind());
        let sink = config.open().map_err(|e| e.inside(&table))?;
        let state = settings.folder.join(format!("to-{name}"));
        let way = Way::new(&sink.way, &state).map_err(|e| e.inside(&table))?;
        Ok(Opened { sink, way, keep_ns: settings.queue.keep })
    }
}

/// What brings notifications to one receiver.
pub(super) struct Courier {
    spool: SharedSpool,
    said: Latest<ReceiverStatus>,
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    ended: Receiver<()>,
}

impl Courier {
    pub fn start(name: &str, settings: &AlertSettings) -> Result<Courier, RunError> {
        let opened = Opened::new(name, settings)?;
        Courier::with(name, opened, open_spool(name, settings)?, settings.limits())
    }

    /// With a queue that may hold something already.
    pub fn with(
        name: &str,
        opened: Opened,
        spool: SharedSpool,
        limits: SpoolLimits,
    ) -> Result<Courier, RunError> {
        lock(&spool).set_limits(limits);
        let said = Latest::new(ReceiverStatus::default());
        let (wake, woken) = channel();
        let (ends, ended) = channel::<()>();
        let work = Delivering {
            name: name.to_owned(),
            opened,
            spool: spool.clone(),
            said: said.clone(),
            backoff: Backoff::up_to(MOST_DELAY),
            random: fastrand::Rng::with_seed(utc_now_ns().cast_unsigned()),
        };
        let run = move || {
            // Goes with the thread, also after a panic.
            let _ends = ends;
            work.run(&woken);
        };
        let thread = thread::spawn(format!("sonde-to-{name}"), run)?;
        Ok(Courier { spool, said, wake: Some(wake), thread: Some(thread), ended })
    }

    /// Keeps it and wakes the thread.
    pub fn give(&self, notification: &Notification) {
        let pushed = lock(&self.spool).push(notification);
        if let Err(error) = pushed {
            tracing::warn!("a notification is kept in memory only: {error}");
        }
        // A thread that has ended leaves it to the next start.
        if let Some(wake) = &self.wake {
            let _ = wake.send(());
        }
    }

    pub fn status(&self) -> ReceiverStatus {
        let said = self.said.get();
        let spool = lock(&self.spool);
        let counted = spool.counters();
        ReceiverStatus {
            queued: spool.len(),
            oldest_ns: spool.oldest_ns(),
            dropped: counted.dropped,
            superseded: counted.superseded,
            damaged: counted.damaged,
            unsaved: counted.unsaved,
            ..said
        }
    }

    /// Ends the thread. One that is in the middle of a request is left alone after a while; what
    /// it was about stays in the queue, which is returned.
    pub fn end(mut self) -> SharedSpool {
        drop(self.wake.take());
        let ended = self.ended.recv_timeout(END_WITHIN);
        if ended == Err(RecvTimeoutError::Disconnected)
            && let Some(thread) = self.thread.take()
        {
            sonde_run::thread::join_logged(thread);
        }
        self.spool
    }
}

/// A receiver's thread.
struct Delivering {
    name: String,
    opened: Opened,
    spool: SharedSpool,
    said: Latest<ReceiverStatus>,
    backoff: Backoff,
    random: fastrand::Rng,
}

impl Delivering {
    fn run(mut self, woken: &Receiver<()>) {
        loop {
            let front = lock(&self.spool).front();
            let pause = front.map(|(seq, notification)| self.attempt(seq, &notification));
            match pause {
                Some(None) if woken.try_recv() != Err(TryRecvError::Disconnected) => {}
                Some(Some(pause)) => {
                    let until = Deadline::after(pause);
                    // News do not shorten the pause: the receiver is the same.
                    while let Some(rest) = until.left() {
                        if woken.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected) {
                            return;
                        }
                    }
                }
                Some(None) => return,
                None => {
                    if woken.recv().is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Tries to deliver one. How long to wait before the next try, if it failed.
    fn attempt(&mut self, seq: u64, notification: &Notification) -> Option<Duration> {
        let now_ns = utc_now_ns();
        if now_ns.saturating_sub(notification.at_ns) > self.opened.keep_ns {
            self.give_up(seq, "it became too old");
            return None;
        }
        let OpenedSink { sink, redactor, .. } = &self.opened.sink;
        let delivery = match sink.render(notification, now_ns) {
            Err(error) => Delivery::GiveUp(error.to_string()),
            Ok(request) => match self.opened.way.send(&request) {
                Ok(Some(reply)) => sink.classify(&reply),
                Ok(None) => Delivery::Done,
                Err(why) => Delivery::Retry { after: None, why },
            },
        };
        match delivery {
            Delivery::Done => {
                lock(&self.spool).done(seq);
                self.backoff.reset();
                self.said.update(|said| {
                    said.delivered += 1;
                    said.delivered_ns = Some(now_ns);
                    said.failing_since_ns = None;
                });
                None
            }
            Delivery::GiveUp(why) => {
                let why = redactor.redact(&why);
                self.give_up(seq, &why);
                None
            }
            Delivery::Retry { after, why } => {
                let why = redactor.redact(&why);
                let first = self.said.get().failing_since_ns.is_none();
                if first {
                    tracing::warn!(
                        "receiver {} takes nothing: {why}; it is tried again",
                        self.name
                    );
                }
                self.said.update(|said| {
                    said.failures += 1;
                    said.failing_since_ns.get_or_insert(now_ns);
                    said.last_error = Some(why);
                });
                let own = self.backoff.next(&mut self.random);
                Some(after.map_or(own, |after| after.clamp(own.min(MOST_DELAY), MOST_PAUSE)))
            }
        }
    }

    fn give_up(&self, seq: u64, why: &str) {
        lock(&self.spool).done(seq);
        tracing::warn!("a notification to {} is given up: {why}", self.name);
        self.said.update(|said| {
            said.given_up += 1;
            said.last_error = Some(why.to_owned());
        });
    }
}

/// The longest pause between two tries, without what chance adds.
const MOST_DELAY: Duration = Duration::from_secs(300);
/// The longest that a receiver can ask for.
const MOST_PAUSE: Duration = Duration::from_secs(3600);
/// For the end of the thread.
const END_WITHIN: Duration = Duration::from_secs(2);
