//! Collectors on the network: those that get datagrams are here, the others in `stream.rs`.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use sonde_meter::export::{Config, ExportStats, Exporter, Interface, Protocol};
use sonde_port::datagram::Datagrams;
use sonde_port::stream::has_sctp;
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;

use super::backlog::Backlog;
use super::stream::{PATIENCE, Stream};
use super::tls::Tls;
use super::{Common, OptionsDue, Output, Tally, Target, Transport, protocol};
use crate::flow::args::Format;

/// Opens the way to a collector.
pub fn open(target: &Target, common: &Common<'_>) -> Result<Box<dyn Output>> {
    let args = common.args;
    match target.transport {
        Transport::Udp => {
            let peer = target.resolve()?;
            let socket =
                Datagrams::connect(peer).with_context(|| format!("cannot send to {target}"))?;
            let config = common.config(protocol(args.export.format), longest(&socket), true);
            Ok(Box::new(Udp::new(target.to_string(), socket, config)))
        }
        _ if args.export.format != Format::Ipfix => {
            Err(anyhow!("{target}: NetFlow goes over UDP; use udp://, or --format ipfix"))
        }
        transport => {
            let export = &args.export;
            if transport == Transport::Sctp {
                has_sctp(target.resolve()?).with_context(|| target.to_string())?;
            }
            let tls = match transport {
                Transport::Tls => Some(Tls::new(&target.host, export)?),
                _ => None,
            };
            let config = common.config(Protocol::Ipfix, STREAM_MESSAGE, false);
            // Each collector has a folder of its own.
            let folder =
                export.spool.as_ref().map(|s| s.join(target.to_string().replace(['/', ':'], "_")));
            let backlog = Backlog::open(folder.as_deref().map(|f| (f, export.spool_max)))?;
            Ok(Box::new(Stream::open(target.clone(), tls, config, backlog, PATIENCE)?))
        }
    }
}

/// A collector that gets datagrams.
struct Udp {
    exporter: Exporter,
    form: String,
    out: Sending,
    records: Tally,
    flushed_ns: i64,
    options: OptionsDue,
}

/// The socket and what became of what was sent.
struct Sending {
    name: String,
    socket: Datagrams,
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
    told: bool,
}

impl Udp {
    fn new(name: String, socket: Datagrams, config: Config) -> Self {
        let form = format!(
            "{:?} over UDP, messages up to {} bytes",
            config.profile.protocol, config.message_bytes
        );
        let out = Sending {
            name,
            socket,
            sent: 0,
            bytes: 0,
            last: 0,
            lost: 0,
            refused: BTreeMap::new(),
            too_long: false,
            told: false,
        };
        Udp {
            exporter: Exporter::new(config),
            form,
            out,
            records: Tally::default(),
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
    fn message(&mut self, message: &[u8], records: u64) {
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
        if !self.told {
            self.told = true;
            eprintln!("{}: {error}; what is sent meanwhile is lost, and counted", self.name);
        }
    }
}

impl Output for Udp {
    fn records(&mut self, records: &[FlowRecord], now_ns: i64) {
        for record in records {
            let (out, tally) = (&mut self.out, &mut self.records);
            let mut out = |message: &[u8]| out.message(message, tally.take());
            self.exporter.push(record, now_ns, &mut out);
            self.records.add();
            self.fit();
        }
    }

    fn interfaces(&mut self, interfaces: &[Interface]) {
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
        if self.out.socket.is_refused(ANSWER) {
            self.out.unreachable();
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
        // A message may hold what is no flow record; but something is missing.
        self.out.lost.max(u64::from(!self.out.refused.is_empty()))
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
