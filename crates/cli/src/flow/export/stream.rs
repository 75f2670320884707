//! Collectors that are connected to: TCP, TLS (RFC 7011, section 11) and SCTP. A thread of
//! its own sends, so that a collector that is slow holds up nothing; what it cannot take
//! waits in the [`Backlog`].
//!
//! A message counts as delivered when the collector's kernel has acknowledged its bytes.
//! What was not is sent again over the next connection, whose sequence numbers begin anew.
//! IPFIX has no acknowledgement of its own: what a collector had received and not read when
//! it was killed is lost, and nobody can tell.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use sonde_meter::export::{Config, ExportStats, Exporter};
use sonde_port::stream::{connect_sctp, connect_tcp, is_closed, unacknowledged};
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;
use sonde_wire::ipfix::{Header, set_sequence};

use super::backlog::{Backlog, Waiting};
use super::tls::Tls;
use super::{OptionsDue, Output, Target, Transport};

/// A collector that is connected to.
pub struct Stream {
    exporter: Exporter,
    name: String,
    form: String,
    records: u64,
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
}

struct State {
    backlog: Backlog,
    connected: bool,
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

impl Stream {
    /// Begins to connect; what is exported meanwhile waits.
    pub fn open(
        target: Target,
        tls: Option<Tls>,
        config: Config,
        backlog: Backlog,
    ) -> Result<Self> {
        let name = target.to_string();
        let form = format!("IPFIX, {} ", name.split(':').next().unwrap_or_default());
        let shared = Arc::new(Shared {
            state: Mutex::new(State { backlog, connected: false, counters: Counters::default() }),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let theirs = shared.clone();
        let sender = thread::Builder::new()
            .name("sonde-send".into())
            .spawn(move || Sender { target, tls, shared: theirs, told: None }.run())
            .context("cannot start a sending thread")?;
        Ok(Stream {
            exporter: Exporter::new(config),
            name,
            form: form.trim().to_string(),
            records: 0,
            flushed_ns: 0,
            options: OptionsDue::default(),
            shared,
            sender: Some(sender),
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn message(&self, message: &[u8]) {
        let mut state = self.lock();
        let connected = state.connected;
        state.backlog.push(message, connected);
        drop(state);
        self.changed.notify_one();
    }
}

impl Output for Stream {
    fn record(&mut self, record: &FlowRecord, now_ns: i64) {
        self.records += 1;
        let shared = &self.shared;
        self.exporter.push(record, now_ns, &mut |message| shared.message(message));
    }

    fn tick(&mut self, now_ns: i64, stats: &ExportStats) {
        let shared = &self.shared;
        if self.options.now(now_ns) {
            self.exporter.options(stats, now_ns, &mut |message| shared.message(message));
        }
        if now_ns - self.flushed_ns >= LONGEST_WAIT_NS {
            self.flushed_ns = now_ns;
            self.exporter.flush(now_ns, &mut |message| shared.message(message));
        }
        if let Some(report) = self.shared.lock().backlog.take_report() {
            eprintln!("{}: spool: {report}", self.name);
        }
    }

    fn finish(&mut self, now_ns: i64, stats: &ExportStats) {
        let shared = &self.shared;
        self.exporter.options(stats, now_ns, &mut |message| shared.message(message));
        self.exporter.flush(now_ns, &mut |message| shared.message(message));
        self.shared.stop.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        if let Some(sender) = self.sender.take()
            && sender.join().is_err()
        {
            eprintln!("{}: the sending thread failed; please report what it printed", self.name);
        }
        let mut state = self.shared.lock();
        let left = state.backlog.bytes();
        state.backlog.close();
        if left > 0 {
            eprintln!(
                "{}: {left} bytes could not be delivered{}",
                self.name,
                match state.backlog.lost() {
                    0 => "; they are in the spool and the next run sends them",
                    _ => "; give a folder with --spool to keep them",
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
            ("messages_lost", state.backlog.lost()),
            ("bytes_spooled", state.backlog.bytes()),
        ] {
            counters.insert(name.into(), n);
        }
        ExportTotal {
            to: self.name.clone(),
            form: self.form.clone(),
            records: self.records,
            counters,
        }
    }

    fn lost(&self) -> u64 {
        self.shared.lock().backlog.lost()
    }
}

/// The sending thread.
struct Sender {
    target: Target,
    tls: Option<Tls>,
    shared: Arc<Shared>,
    /// The last failure that was printed.
    told: Option<String>,
}

/// A connection, and what is on its way over it.
struct Connection {
    stream: TcpStream,
    tls: Option<super::tls::Session>,
    /// Lengths of messages that were written and not acknowledged, the oldest first.
    under_way: VecDeque<usize>,
    under_way_bytes: usize,
    /// Sequence number of the first data record, which counts as 0 here.
    base: Option<u32>,
    /// Of the messages of this connection: made by an earlier run.
    earlier: Option<bool>,
}

impl Sender {
    fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut give_up = None;
        loop {
            let stopping = self.shared.stop.load(Ordering::Acquire);
            if stopping {
                let end = *give_up.get_or_insert_with(|| Instant::now() + LAST_TRIES);
                if self.shared.lock().backlog.bytes() == 0 || Instant::now() >= end {
                    return;
                }
            }
            match self.connect() {
                Ok(mut connection) => {
                    pause = FIRST_PAUSE;
                    self.told = None;
                    {
                        let mut state = self.shared.lock();
                        state.connected = true;
                        state.counters.connections += 1;
                    }
                    let result = self.serve(&mut connection, &mut give_up);
                    let mut state = self.shared.lock();
                    state.connected = false;
                    state.counters.again += connection.under_way.len() as u64;
                    state.backlog.rewind();
                    state.backlog.spill();
                    drop(state);
                    match result {
                        Ok(()) => {}
                        Err(error) => self.tell(&error),
                    }
                }
                Err(error) => {
                    self.tell(&error);
                    self.rest(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn connect(&self) -> io::Result<Connection> {
        let peer = self.target.resolve().map_err(|e| io::Error::other(format!("{e:#}")))?;
        let stream = match self.target.transport {
            Transport::Sctp => connect_sctp(peer, CONNECTING)?,
            _ => connect_tcp(peer, CONNECTING)?,
        };
        stream.set_write_timeout(Some(WRITING))?;
        stream.set_read_timeout(Some(CONNECTING))?;
        let tls = self.tls.as_ref().map(|tls| tls.handshake(&stream)).transpose()?;
        Ok(Connection {
            stream,
            tls,
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            base: None,
            earlier: None,
        })
    }

    /// Sends until the connection fails, its series of messages ends, or all is over.
    fn serve(&self, connection: &mut Connection, give_up: &mut Option<Instant>) -> io::Result<()> {
        loop {
            self.confirm(connection)?;
            let next = {
                let mut state = self.shared.lock();
                // The first message tells the templates that what follows needs.
                if connection.base.is_none() {
                    let first = state.backlog.templates(0, now_s());
                    if !first.is_empty() {
                        drop(state);
                        connection.write(&first)?;
                        state = self.shared.lock();
                    }
                }
                match state.backlog.next() {
                    Some(waiting) => Some(waiting),
                    None => {
                        let wait = if connection.under_way.is_empty() { IDLE } else { CONFIRMING };
                        if !self.shared.stop.load(Ordering::Acquire) {
                            drop(self.shared.changed.wait_timeout(state, wait));
                        }
                        None
                    }
                }
            };
            match next {
                Some(waiting) => {
                    if connection.earlier.is_some_and(|e| e != waiting.earlier) {
                        // Another series of sequence numbers: another connection.
                        self.confirm_all(connection, give_up)?;
                        return Ok(());
                    }
                    connection.send(waiting)?;
                }
                None if self.shared.stop.load(Ordering::Acquire) => {
                    self.confirm_all(connection, give_up)?;
                    return Ok(());
                }
                None => {}
            }
        }
    }

    /// Takes off the backlog what the collector's kernel has acknowledged.
    fn confirm(&self, connection: &mut Connection) -> io::Result<()> {
        if is_closed(&connection.stream) {
            return Err(io::Error::new(ErrorKind::ConnectionAborted, "the collector has gone"));
        }
        if connection.under_way.is_empty() {
            return Ok(());
        }
        let left = unacknowledged(&connection.stream)?;
        let mut state = None;
        while let Some(&length) = connection.under_way.front() {
            if connection.under_way_bytes - length < left {
                break;
            }
            connection.under_way.pop_front();
            connection.under_way_bytes -= length;
            let state = state.get_or_insert_with(|| self.shared.lock());
            state.backlog.delivered();
            state.counters.delivered += 1;
            state.counters.bytes += length as u64;
        }
        Ok(())
    }

    /// Waits until all is acknowledged, within bounds, and closes in order.
    fn confirm_all(
        &self,
        connection: &mut Connection,
        give_up: &mut Option<Instant>,
    ) -> io::Result<()> {
        let end = *give_up.get_or_insert_with(|| Instant::now() + LAST_TRIES);
        while !connection.under_way.is_empty() {
            self.confirm(connection)?;
            if Instant::now() >= end {
                return Err(ErrorKind::TimedOut.into());
            }
            thread::sleep(CONFIRMING);
        }
        if !self.shared.stop.load(Ordering::Acquire) {
            *give_up = None;
        }
        // All is delivered; how the collector takes leave is its own affair.
        let _ = connection.close();
        Ok(())
    }

    /// Says what fails, once for each reason.
    fn tell(&mut self, error: &io::Error) {
        let text = error.to_string();
        if self.told.as_ref() != Some(&text) {
            eprintln!("{}: {text}; trying again, records wait", self.target);
            self.told = Some(text);
        }
    }

    fn rest(&self, pause: Duration) {
        let state = self.shared.lock();
        let stop = |_: &mut State| !self.shared.stop.load(Ordering::Acquire);
        drop(self.shared.changed.wait_timeout_while(state, pause, stop));
    }
}

impl Connection {
    /// Sends a message of the backlog.
    fn send(&mut self, waiting: Waiting) -> io::Result<()> {
        let mut bytes = waiting.bytes;
        self.earlier = Some(waiting.earlier);
        let sequence = Header::parse(&bytes).map_err(io::Error::other)?.sequence;
        let base = *self.base.get_or_insert(sequence);
        set_sequence(&mut bytes, sequence.wrapping_sub(base)).map_err(io::Error::other)?;
        self.under_way.push_back(bytes.len());
        self.under_way_bytes += bytes.len();
        self.write(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(session) => session.write_all(&mut self.stream, bytes),
            None => self.stream.write_all(bytes),
        }
    }

    fn close(&mut self) -> io::Result<()> {
        if let Some(session) = &mut self.tls {
            session.close(&mut self.stream)?;
        }
        self.stream.shutdown(Shutdown::Write)?;
        // When the collector closes, it has read everything.
        self.stream.set_read_timeout(Some(CLOSING))?;
        let mut buffer = [0; 1024];
        while self.stream.read(&mut buffer)? > 0 {}
        Ok(())
    }
}

/// Seconds since 1970 UTC.
fn now_s() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs() as u32)
}

/// A record waits no longer for its message to fill.
const LONGEST_WAIT_NS: i64 = 500_000_000;
/// To connect, and for the handshake of TLS.
const CONNECTING: Duration = Duration::from_secs(5);
/// A collector that takes nothing for so long is connected to anew.
const WRITING: Duration = Duration::from_secs(30);
/// Between tries to connect: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// At the end: so long is tried to deliver what waits.
const LAST_TRIES: Duration = Duration::from_secs(5);
/// For the collector to close after us.
const CLOSING: Duration = Duration::from_secs(2);
/// Between looks at a connection on which nothing is sent.
const IDLE: Duration = Duration::from_millis(200);
/// Between looks at what is under way.
const CONFIRMING: Duration = Duration::from_millis(5);
