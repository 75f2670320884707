//! Collectors on the network: those that get datagrams are here, the others in `stream.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sonde_meter::export::{Config, ExportInterface, ExportProtocol, ExportStats, Exporter};
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;
use sonde_sys::stream::has_sctp;
use sonde_sys::udp::Datagrams;

use super::backlog::Backlog;
use super::pace::MessagePace;
use super::stream::{ExportStream, PATIENCE};
use super::tls::TlsClient;
use super::{Common, ExportTotals, OptionsDue, Output, protocol};
use crate::error::RunError;
use crate::flow::collector_address::{CollectorAddress, CollectorTransport};
use crate::running::Stop;

/// Opens the way to a collector.
///
/// # Errors
/// A file of TLS that cannot be used; what this host refuses.
pub fn open(target: &CollectorAddress, common: &Common<'_>) -> Result<Box<dyn Output>, RunError> {
    let asked = common.settings;
    match target.transport {
        CollectorTransport::Udp => {
            let peer = target.resolve()?;
            let socket = Datagrams::connect(peer).with_context(|| {
                format!("cannot send to {target}; 'ip route get' shows the way there")
            })?;
            let config = common.config(protocol(asked.export.format), longest(&socket), true);
            let mut udp = Udp::new(target.to_string(), socket, config, asked.export.udp_rate);
            udp.out.waits_for_room = common.can_wait;
            udp.out.stop = common.stop.clone();
            Ok(Box::new(udp))
        }
        transport => {
            let export = &asked.export;
            if transport == CollectorTransport::Sctp {
                has_sctp(target.resolve()?).with_context(|| target.to_string())?;
            }
            let tls = match transport {
                CollectorTransport::Tls => Some(TlsClient::new(&target.host, export)?),
                _ => None,
            };
            let config = common.config(ExportProtocol::Ipfix, STREAM_MESSAGE, false);
            // Each collector has a folder of its own.
            let folder =
                export.spool.as_ref().map(|s| s.join(target.to_string().replace(['/', ':'], "_")));
            let backlog = Backlog::open(folder.as_deref().map(|f| (f, export.spool_max)))?;
            Ok(Box::new(ExportStream::open(
                target.clone(),
                tls,
                config,
                backlog,
                PATIENCE,
                common.stop.clone(),
            )?))
        }
    }
}

/// A collector that gets datagrams.
struct Udp {
    exporter: Exporter,
    form: String,
    out: Sending,
    records: ExportTotals,
    flushed_ns: i64,
    options: OptionsDue,
}

/// The socket and what became of what was sent.
struct Sending {
    name: String,
    socket: Datagrams,
    pace: MessagePace,
    begun: Instant,
    /// Messages that wait for their turn, and how many flow records are in each.
    waiting: VecDeque<(Vec<u8>, u64)>,
    waiting_bytes: usize,
    /// Where there is no room for more to wait, the records wait, too: those of a file can.
    waits_for_room: bool,
    /// Nobody waits for what has not gone yet.
    stop: Stop,
    /// There is nothing more to come.
    is_last: bool,
    /// After the last one, no message waits beyond this.
    end: Option<Instant>,
    sent: u64,
    bytes: u64,
    /// Flow records in the message sent last.
    last: u64,
    /// Flow records in messages that did not get there.
    lost: u64,
    /// Messages that did not get there, by why.
    refused: BTreeMap<&'static str, u64>,
    /// The path takes no messages as long as they are.
    too_long: bool,
    warned: bool,
}

impl Udp {
    fn new(name: String, socket: Datagrams, config: Config, per_second: u32) -> Self {
        let form = format!(
            "{} over UDP, messages up to {} bytes",
            config.profile.protocol.name(),
            config.message_bytes
        );
        let out = Sending {
            name,
            socket,
            pace: MessagePace::new(per_second),
            begun: Instant::now(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waits_for_room: false,
            stop: Stop::default(),
            is_last: false,
            end: None,
            sent: 0,
            bytes: 0,
            last: 0,
            lost: 0,
            refused: BTreeMap::new(),
            too_long: false,
            warned: false,
        };
        Udp {
            exporter: Exporter::new(config),
            form,
            out,
            records: ExportTotals::default(),
            flushed_ns: 0,
            options: OptionsDue::default(),
        }
    }

    /// After the path has become narrower.
    fn fit(&mut self) {
        if std::mem::take(&mut self.out.too_long) {
            self.exporter.set_message_bytes(longest(&self.out.socket));
        }
    }
}

/// Octets of a message that the path takes.
fn longest(socket: &Datagrams) -> usize {
    socket.longest().unwrap_or(MTU_UNKNOWN).clamp(MTU_UNKNOWN, LONGEST)
}

impl Sending {
    /// Sends a message, or has it wait for its turn.
    fn message(&mut self, message: &[u8], records: u64) {
        self.send_due();
        if self.waiting.is_empty() && self.pace.lets_go(self.now_ns()) {
            return self.send(message, records);
        }
        while self.waits_for_room
            && !self.stop.is_urgent()
            && self.waiting_bytes + message.len() > MOST_WAITING
        {
            std::thread::sleep(TURN);
            self.send_due();
        }
        if self.waiting_bytes + message.len() > MOST_WAITING {
            let why = "more is exported than `export.udp_rate` lets go";
            return self.lose("messages_lost_too_fast", records, &io::Error::other(why));
        }
        self.waiting_bytes += message.len();
        self.waiting.push_back((message.to_vec(), records));
    }

    /// Sends what may leave now. Whether more waits.
    fn send_due(&mut self) -> bool {
        while !self.waiting.is_empty() && self.pace.lets_go(self.now_ns()) {
            let Some((message, records)) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= message.len();
            self.send(&message, records);
        }
        if self.is_last && self.is_over() {
            let why = io::Error::other("the time to send what was left at the end is over");
            for (_, records) in std::mem::take(&mut self.waiting) {
                self.lose("messages_lost_at_end", records, &why);
            }
            self.waiting_bytes = 0;
        }
        !self.waiting.is_empty()
    }

    fn is_over(&mut self) -> bool {
        let end = *self.end.get_or_insert_with(|| Instant::now() + LONGEST_END);
        self.stop.is_urgent() || Instant::now() >= end
    }

    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn send(&mut self, message: &[u8], records: u64) {
        let mut result = self.socket.send(message);
        if result.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
            // The answer to the message before; this one was not sent yet.
            self.unreachable();
            result = self.socket.send(message);
        }
        match result {
            Ok(()) => {
                self.sent += 1;
                self.bytes += message.len() as u64;
                self.last = records;
            }
            Err(error) => {
                self.too_long |= error.raw_os_error() == Some(libc::EMSGSIZE);
                let why = match error.kind() {
                    ErrorKind::WouldBlock => "messages_lost_buffer_full",
                    ErrorKind::ConnectionRefused => "messages_lost_unreachable",
                    _ if self.too_long => "messages_lost_too_long",
                    _ => "messages_lost",
                };
                self.lose(why, records, &error);
            }
        }
    }

    /// Nobody listened to the message sent last.
    fn unreachable(&mut self) {
        let records = std::mem::take(&mut self.last);
        let error = ErrorKind::ConnectionRefused.into();
        self.lose("messages_lost_unreachable", records, &error);
    }

    fn lose(&mut self, why: &'static str, records: u64, error: &io::Error) {
        *self.refused.entry(why).or_default() += 1;
        self.lost += records;
        if !self.warned {
            self.warned = true;
            tracing::warn!("{}: {error}; what is sent meanwhile is lost, and counted", self.name);
        }
    }
}

impl Output for Udp {
    fn set_utc_offset(&mut self, ns: i64) {
        self.exporter.set_utc_offset(ns);
    }

    fn records(&mut self, records: &[FlowRecord], now_ns: i64) {
        for record in records {
            let (out, tally) = (&mut self.out, &mut self.records);
            let mut out = |message: &[u8]| out.message(message, tally.take());
            self.exporter.push(record, now_ns, &mut out);
            self.records.add();
            self.fit();
        }
    }

    fn interfaces(&mut self, interfaces: &[ExportInterface]) {
        self.exporter.set_interfaces(interfaces);
        self.options.hurry();
    }

    fn tick(&mut self, now_ns: i64, stats: &ExportStats) {
        let (out, records) = (&mut self.out, &mut self.records);
        let mut out = |message: &[u8]| out.message(message, records.take());
        if self.options.now(now_ns) {
            self.exporter.options(stats, now_ns, &mut out);
        }
        if now_ns - self.flushed_ns >= LONGEST_WAIT_NS {
            self.flushed_ns = now_ns;
            self.exporter.flush(now_ns, &mut out);
        }
        self.fit();
    }

    fn finish(&mut self, now_ns: i64, stats: &ExportStats) {
        let (out, records) = (&mut self.out, &mut self.records);
        let mut send = |message: &[u8]| out.message(message, records.take());
        self.exporter.options(stats, now_ns, &mut send);
        self.exporter.flush(now_ns, &mut send);
        out.is_last = true;
        let (left, takes_ns) = (out.waiting.len(), out.pace.takes_ns(out.waiting.len()));
        if Duration::from_nanos(takes_ns) >= WORTH_LOGGING {
            let seconds = Duration::from_nanos(takes_ns).min(LONGEST_END).as_secs();
            tracing::warn!("{}: {left} messages are sent within {seconds} s", out.name);
        }
    }

    fn send_due(&mut self) -> bool {
        let more = self.out.send_due();
        self.fit();
        more
    }

    fn close(&mut self) {
        if self.out.socket.is_refused(ANSWER) {
            self.out.unreachable();
        }
        let missing: u64 = ["messages_lost_too_fast", "messages_lost_at_end"]
            .iter()
            .filter_map(|why| self.out.refused.get(why))
            .sum();
        if missing > 0 {
            tracing::warn!(
                "{}: {missing} messages could not be sent in time; raise `export.udp_rate`, and the \
                 collector's receive buffer with it, or use tcp://",
                self.out.name
            );
        }
    }

    fn total(&self) -> ExportTotal {
        let mut counters: BTreeMap<String, u64> =
            self.exporter.counters().iter().map(|(name, n)| (name.to_string(), n)).collect();
        counters.insert("messages_sent".into(), self.out.sent);
        counters.insert("bytes_sent".into(), self.out.bytes);
        counters.insert("records_lost".into(), self.out.lost);
        counters.extend(self.out.refused.iter().map(|(name, n)| (name.to_string(), *n)));
        ExportTotal {
            to: self.out.name.clone(),
            form: self.form.clone(),
            records: self.records.all,
            counters,
        }
    }

    fn lost(&self) -> u64 {
        // A message without flow records counts among the messages only.
        self.out.lost
    }
}

/// RFC 7011, section 10.3.3: where the path's MTU is not known.
const MTU_UNKNOWN: usize = 512;
/// What any Ethernet takes, IPv6 and UDP headers included.
const LONGEST: usize = 1_500 - 40 - 8;
/// Over a connection: long enough to cost little, short enough to wait little.
const STREAM_MESSAGE: usize = 16_384;
/// A record waits no longer for its message to fill.
const LONGEST_WAIT_NS: i64 = 500_000_000;
/// For a last answer that nobody listens.
const ANSWER: Duration = Duration::from_millis(100);
/// Octets of messages that wait for their turn.
const MOST_WAITING: usize = 64 << 20;
/// At the end, what waits is sent for so long.
const LONGEST_END: Duration = Duration::from_secs(30);
/// Between looks whether there is room.
const TURN: Duration = Duration::from_millis(1);
/// A wait at the end that is longer is logged.
const WORTH_LOGGING: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
