//! Collectors that are connected to: TCP, TLS (RFC 7011, section 11) and SCTP. A thread of
//! its own sends, so that a collector that is slow holds up nothing; what it cannot take
//! waits in the [`Backlog`].
//!
//! A message counts as delivered when the collector's kernel has acknowledged its bytes.
//! What was not is sent again over the next connection, whose sequence numbers begin anew.
//! A collector that has gone without closing is noticed by its silence (see [`PATIENCE`]).
//! IPFIX has no acknowledgement of its own: what a collector had received and not read when
//! it was killed is lost, and nobody knows it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use sonde_meter::export::{Config, ExportInterface, ExportStats, Exporter};
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;

use super::backlog::Backlog;
use super::connection::Connection;
use super::tls::TlsClient;
use super::{ExportTotals, OptionsDue, Output};
use crate::flow::collector_address::CollectorAddress;
use crate::running::Stop;
use crate::thread::join;

/// A collector that is connected to.
pub struct ExportStream {
    exporter: Exporter,
    name: String,
    form: String,
    records: ExportTotals,
    flushed_ns: i64,
    options: OptionsDue,
    shared: Arc<Shared>,
    sender: Option<JoinHandle<()>>,
}

/// Between the export thread and the sending thread.
struct Shared {
    state: Mutex<State>,
    /// There is a message, or the end has come.
    changed: Condvar,
    stop: AtomicBool,
    /// Nobody waits for what the collector has not taken yet.
    hurry: Stop,
}

struct State {
    backlog: Backlog,
    /// The collector is there and takes what it is sent.
    takes: bool,
    /// Connections made, messages and bytes acknowledged, messages sent again.
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    connections: u64,
    delivered: u64,
    bytes: u64,
    again: u64,
}

impl ExportStream {
    /// Begins to connect; what is exported meanwhile waits.
    pub fn open(
        target: CollectorAddress,
        tls: Option<TlsClient>,
        config: Config,
        backlog: Backlog,
        patience: Duration,
        hurry: Stop,
    ) -> Result<Self> {
        let name = target.to_string();
        let form = format!("IPFIX, {} ", name.split(':').next().unwrap_or_default());
        let shared = Arc::new(Shared::new(backlog, hurry));
        let theirs = shared.clone();
        let sender = thread::Builder::new()
            .name("sonde-send".into())
            .spawn(move || Sender::new(target, tls, theirs, patience).run())
            .context("cannot start a sending thread; 'ulimit -u' bounds them")?;
        Ok(ExportStream {
            exporter: Exporter::new(config),
            name,
            form: form.trim().to_string(),
            records: ExportTotals::default(),
            flushed_ns: 0,
            options: OptionsDue::default(),
            shared,
            sender: Some(sender),
        })
    }
}

impl Shared {
    fn new(backlog: Backlog, hurry: Stop) -> Self {
        Shared {
            state: Mutex::new(State { backlog, takes: false, counters: Counters::default() }),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            hurry,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn message(&self, message: &[u8], records: u64) {
        let mut state = self.lock();
        let takes = state.takes;
        state.backlog.push(message, records, takes);
        drop(state);
        self.changed.notify_one();
    }
}

impl Output for ExportStream {
    fn set_utc_offset(&mut self, ns: i64) {
        self.exporter.set_utc_offset(ns);
    }

    fn records(&mut self, records: &[FlowRecord], now_ns: i64) {
        let (shared, tally) = (&self.shared, &mut self.records);
        for record in records {
            let mut out = |message: &[u8]| shared.message(message, tally.take());
            self.exporter.push(record, now_ns, &mut out);
            tally.add();
        }
    }

    fn interfaces(&mut self, interfaces: &[ExportInterface]) {
        self.exporter.set_interfaces(interfaces);
        self.options.hurry();
    }

    fn tick(&mut self, now_ns: i64, stats: &ExportStats) {
        let (shared, records) = (&self.shared, &mut self.records);
        let mut out = |message: &[u8]| shared.message(message, records.take());
        if self.options.now(now_ns) {
            self.exporter.options(stats, now_ns, &mut out);
        }
        if now_ns - self.flushed_ns >= LONGEST_WAIT_NS {
            self.flushed_ns = now_ns;
            self.exporter.flush(now_ns, &mut out);
        }
        if let Some(report) = self.shared.lock().backlog.take_report() {
            tracing::warn!("{}: spool: {report}", self.name);
        }
    }

    fn finish(&mut self, now_ns: i64, stats: &ExportStats) {
        let (shared, records) = (&self.shared, &mut self.records);
        let mut out = |message: &[u8]| shared.message(message, records.take());
        self.exporter.options(stats, now_ns, &mut out);
        self.exporter.flush(now_ns, &mut out);
        self.shared.stop.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        if let Some(sender) = self.sender.take()
            && let Err(panicked) = join(sender)
        {
            tracing::warn!("{}: {panicked}", self.name);
        }
        let mut state = self.shared.lock();
        state.backlog.close();
        if let Some(report) = state.backlog.take_report() {
            tracing::warn!("{}: spool: {report}", self.name);
        }
        let (left, lost) = (state.backlog.bytes(), state.backlog.lost());
        if left > 0 {
            tracing::warn!(
                "{}: {left} bytes wait in the spool; the next run with it sends them",
                self.name
            );
        }
        if lost.messages > 0 {
            tracing::warn!(
                "{}: {} messages with {} records could not be delivered; {}",
                self.name,
                lost.messages,
                lost.records,
                match state.backlog.has_disk() {
                    true => "make room for more with `export.spool_max`",
                    false => "give a folder with `export.spool` to keep them",
                }
            );
        }
    }

    fn total(&self) -> ExportTotal {
        let state = self.shared.lock();
        let mut counters: BTreeMap<String, u64> =
            self.exporter.counters().iter().map(|(name, n)| (name.to_string(), n)).collect();
        let c = &state.counters;
        for (name, n) in [
            ("connections", c.connections),
            ("messages_delivered", c.delivered),
            ("bytes_delivered", c.bytes),
            ("messages_sent_again", c.again),
            ("messages_lost", state.backlog.lost().messages),
            ("records_lost", state.backlog.lost().records),
            ("bytes_spooled", state.backlog.bytes()),
        ] {
            counters.insert(name.into(), n);
        }
        ExportTotal {
            to: self.name.clone(),
            form: self.form.clone(),
            records: self.records.all,
            counters,
        }
    }

    fn lost(&self) -> u64 {
        self.shared.lock().backlog.lost().records
    }
}

/// The thread that connects to the collector and sends.
struct Sender {
    target: CollectorAddress,
    tls: Option<TlsClient>,
    shared: Arc<Shared>,
    patience: Duration,
    /// The last failure that was logged.
    warned: Option<String>,
    /// When the end was asked for.
    stopped: Option<Instant>,
    /// When the collector took something last, or had nothing to take.
    moved: Instant,
    /// The collector still takes data.
    takes: bool,
}

impl Sender {
    fn new(
        target: CollectorAddress,
        tls: Option<TlsClient>,
        shared: Arc<Shared>,
        patience: Duration,
    ) -> Self {
        let moved = Instant::now();
        Sender { target, tls, shared, patience, warned: None, stopped: None, moved, takes: true }
    }

    fn run(mut self) {
        let mut pauses = Pauses::default();
        loop {
            if self.is_stopped() && (self.shared.lock().backlog.bytes() == 0 || self.is_over()) {
                return;
            }
            match Connection::open(&self.target, self.tls.as_ref(), self.patience) {
                Ok(mut connection) => {
                    let begun = Instant::now();
                    {
                        let mut state = self.shared.lock();
                        state.takes = true;
                        state.counters.connections += 1;
                    }
                    let result = self.serve(&mut connection);
                    // What arrived before the end of the connection is not sent again.
                    let confirmed = self.confirm(&mut connection);
                    let mut state = self.shared.lock();
                    state.takes = false;
                    state.counters.again += connection.under_way() as u64;
                    state.backlog.rewind();
                    state.backlog.spill();
                    drop(state);
                    if pauses.served(begun.elapsed()) {
                        self.warned = None;
                    }
                    if let Err(error) = result.and(confirmed) {
                        connection.abort();
                        self.warn_once(&error);
                        self.rest(pauses.next());
                    }
                }
                Err(error) => {
                    self.warn_once(&error);
                    self.rest(pauses.next());
                }
            }
        }
    }

    /// Sends until the connection fails, its series of messages ends, or all is over.
    fn serve(&mut self, connection: &mut Connection) -> io::Result<()> {
        self.moved = Instant::now();
        self.takes = true;
        let first = self.shared.lock().backlog.templates(now_s());
        connection.put_first(&first)?;
        self.write(connection)?;
        loop {
            self.look(connection)?;
            let stopped = self.is_stopped();
            let mut state = self.shared.lock();
            match state.backlog.next() {
                Some(waiting) => {
                    drop(state);
                    if !connection.continues(&waiting) {
                        // Another series of sequence numbers: another connection.
                        return self.leave(connection);
                    }
                    connection.put(&waiting)?;
                    if connection.under_way() == 0 {
                        self.moved = Instant::now();
                    }
                    self.write(connection)?;
                    connection.sent();
                }
                None if stopped => {
                    drop(state);
                    return self.leave(connection);
                }
                None => {
                    let wait = if connection.under_way() == 0 { IDLE } else { CONFIRMING };
                    drop(self.shared.changed.wait_timeout(state, wait));
                }
            }
        }
    }

    /// Writes out what was put in.
    fn write(&mut self, connection: &mut Connection) -> io::Result<()> {
        while !connection.write()? {
            self.look(connection)?;
        }
        Ok(())
    }

    /// Takes off the backlog what has arrived, and looks whether the collector is there.
    fn look(&mut self, connection: &mut Connection) -> io::Result<()> {
        self.confirm(connection)?;
        connection.check()?;
        let takes = connection.under_way() == 0 || self.moved.elapsed() < STALLED;
        if takes != self.takes {
            self.takes = takes;
            let mut state = self.shared.lock();
            state.takes = takes;
            if !takes {
                state.backlog.spill();
            }
        }
        if self.is_stopped() && self.is_over() {
            return Err(io::Error::new(ErrorKind::TimedOut, "the collector takes nothing more"));
        }
        Ok(())
    }

    /// Takes off the backlog what the collector's kernel has acknowledged.
    fn confirm(&mut self, connection: &mut Connection) -> io::Result<()> {
        if connection.under_way() == 0 {
            return Ok(());
        }
        let acknowledged = connection.acknowledged()?;
        let mut state = None;
        while let Some(length) = connection.arrived(acknowledged) {
            self.moved = Instant::now();
            let state = state.get_or_insert_with(|| self.shared.lock());
            state.backlog.delivered();
            state.counters.delivered += 1;
            state.counters.bytes += length;
        }
        Ok(())
    }

    /// Waits until all has arrived, and closes in order.
    fn leave(&mut self, connection: &mut Connection) -> io::Result<()> {
        while connection.under_way() > 0 {
            self.look(connection)?;
            thread::sleep(CONFIRMING);
        }
        // All has arrived; how the collector takes leave is its own affair.
        let _ = connection.close();
        Ok(())
    }

    fn is_stopped(&mut self) -> bool {
        if self.shared.stop.load(Ordering::Acquire) {
            self.stopped.get_or_insert_with(Instant::now);
        }
        self.stopped.is_some()
    }

    /// After the end was asked for: whether it was tried for long enough.
    fn is_over(&self) -> bool {
        self.stopped.is_some_and(|stopped| {
            self.shared.hurry.is_urgent()
                || stopped.max(self.moved).elapsed() >= LAST_TRIES
                || stopped.elapsed() >= LAST_TRY
        })
    }

    /// Logs what fails, once for each reason.
    fn warn_once(&mut self, error: &io::Error) {
        let text = error.to_string();
        if self.warned.as_ref() != Some(&text) {
            tracing::warn!("{}: {text}; trying again, records wait", self.target);
            self.warned = Some(text);
        }
    }

    fn rest(&self, pause: Duration) {
        let state = self.shared.lock();
        let stop = |_: &mut State| !self.shared.stop.load(Ordering::Acquire);
        drop(self.shared.changed.wait_timeout_while(state, pause, stop));
        if self.shared.stop.load(Ordering::Acquire) {
            thread::sleep(AT_THE_END);
        }
    }
}

/// The pauses between tries: longer and longer, also where each try makes a connection that
/// the collector then refuses to serve.
#[derive(Debug, Default)]
struct Pauses {
    last: Option<Duration>,
}

impl Pauses {
    /// A connection has lasted so long. Whether that is long enough to begin anew.
    fn served(&mut self, lasted: Duration) -> bool {
        let is_long = lasted >= LONGEST_PAUSE;
        if is_long {
            self.last = None;
        }
        is_long
    }

    /// The pause before the next try; it doubles each time.
    fn next(&mut self) -> Duration {
        let pause = self.last.map_or(FIRST_PAUSE, |last| (last * 2).min(LONGEST_PAUSE));
        *self.last.insert(pause)
    }
}

/// Seconds since 1970 UTC.
fn now_s() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs() as u32)
}

/// A collector that answers nothing for so long, though it was asked several times, is
/// dead. Long enough for a route to change, short enough to lose little where there is no
/// spool.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// A collector that took nothing for so long may be dead: what waits goes to disk at once,
/// so that a kill loses nothing.
const STALLED: Duration = Duration::from_secs(1);
/// A record waits no longer for its message to fill.
const LONGEST_WAIT_NS: i64 = 500_000_000;
/// Between tries to connect: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Between tries to connect when the end was asked for.
const AT_THE_END: Duration = Duration::from_millis(100);
/// After the end was asked for: so long is waited for a collector that takes nothing ...
const LAST_TRIES: Duration = Duration::from_secs(5);
/// ... and for one that takes a little.
const LAST_TRY: Duration = Duration::from_secs(60);
/// Between looks at a connection on which nothing is sent.
const IDLE: Duration = Duration::from_millis(200);
/// Between looks at what is under way.
const CONFIRMING: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
