//! Collectors on the network: those that get datagrams are here, the others in `stream.rs`.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use anyhow::{Context as _, Result, anyhow};
use sonde_meter::export::{Config, ExportStats, Exporter, Protocol};
use sonde_port::datagram::Datagrams;
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;

use super::backlog::Backlog;
use super::stream::Stream;
use super::tls::Tls;
use super::{Common, OptionsDue, Output, Target, Transport, protocol};
use crate::flow::args::Format;

/// Opens the way to a collector.
pub fn open(target: &Target, common: &Common<'_>) -> Result<Box<dyn Output>> {
    let args = common.args;
    match target.transport {
        Transport::Udp => {
            let peer = target.resolve()?;
            let socket =
                Datagrams::connect(peer).with_context(|| format!("cannot send to {target}"))?;
            let longest = socket.longest().unwrap_or(MTU_UNKNOWN).clamp(MTU_UNKNOWN, LONGEST);
            let config = common.config(protocol(args.export.format), longest, true);
            Ok(Box::new(Udp::new(target.to_string(), socket, config)))
        }
        _ if args.export.format != Format::Ipfix => {
            Err(anyhow!("{target}: NetFlow goes over UDP; use udp://, or --format ipfix"))
        }
        transport => {
            let export = &args.export;
            let tls = match transport {
                Transport::Tls => Some(Tls::new(&target.host, export)?),
                _ => None,
            };
            let config = common.config(Protocol::Ipfix, STREAM_MESSAGE, false);
            // Each collector has a folder of its own.
            let folder =
                export.spool.as_ref().map(|s| s.join(target.to_string().replace(['/', ':'], "_")));
            let backlog = Backlog::open(folder.as_deref().map(|f| (f, export.spool_max)))?;
            Ok(Box::new(Stream::open(target.clone(), tls, config, backlog)?))
        }
    }
}

/// A collector that gets datagrams.
struct Udp {
    exporter: Exporter,
    form: String,
    out: Sending,
    records: u64,
    flushed_ns: i64,
    options: OptionsDue,
}

/// The socket and what became of what was sent.
struct Sending {
    name: String,
    socket: Datagrams,
    sent: u64,
    bytes: u64,
    /// Messages that the kernel did not take, by why.
    refused: BTreeMap<&'static str, u64>,
    told: bool,
}

impl Udp {
    fn new(name: String, socket: Datagrams, config: Config) -> Self {
        let form = format!(
            "{:?} over UDP, messages up to {} bytes",
            config.profile.protocol, config.message_bytes
        );
        let out =
            Sending { name, socket, sent: 0, bytes: 0, refused: BTreeMap::new(), told: false };
        Udp {
            exporter: Exporter::new(config),
            form,
            out,
            records: 0,
            flushed_ns: 0,
            options: OptionsDue::default(),
        }
    }
}

impl Sending {
    fn message(&mut self, message: &[u8]) {
        let mut result = self.socket.send(message);
        if result.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
            // The answer to an earlier message; this one was not sent yet.
            self.count("unreachable");
            result = self.socket.send(message);
        }
        match result {
            Ok(()) => {
                self.sent += 1;
                self.bytes += message.len() as u64;
            }
            Err(error) => {
                self.count(match error.kind() {
                    ErrorKind::WouldBlock => "messages_lost_buffer_full",
                    ErrorKind::ConnectionRefused => "messages_lost_unreachable",
                    _ => "messages_lost",
                });
                if !self.told {
                    self.told = true;
                    eprintln!(
                        "{}: {error}; records are being lost until it can be reached",
                        self.name
                    );
                }
            }
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.refused.entry(what).or_default() += 1;
    }
}

impl Output for Udp {
    fn record(&mut self, record: &FlowRecord, now_ns: i64) {
        self.records += 1;
        let out = &mut self.out;
        self.exporter.push(record, now_ns, &mut |message| out.message(message));
    }

    fn tick(&mut self, now_ns: i64, stats: &ExportStats) {
        let out = &mut self.out;
        if self.options.now(now_ns) {
            self.exporter.options(stats, now_ns, &mut |message| out.message(message));
        }
        if now_ns - self.flushed_ns >= LONGEST_WAIT_NS {
            self.flushed_ns = now_ns;
            self.exporter.flush(now_ns, &mut |message| out.message(message));
        }
    }

    fn finish(&mut self, now_ns: i64, stats: &ExportStats) {
        let out = &mut self.out;
        self.exporter.options(stats, now_ns, &mut |message| out.message(message));
        self.exporter.flush(now_ns, &mut |message| out.message(message));
    }

    fn total(&self) -> ExportTotal {
        let mut counters: BTreeMap<String, u64> =
            self.exporter.counters().iter().map(|(name, n)| (name.to_string(), n)).collect();
        counters.insert("messages_sent".into(), self.out.sent);
        counters.insert("bytes_sent".into(), self.out.bytes);
        counters.extend(self.out.refused.iter().map(|(name, n)| (name.to_string(), *n)));
        ExportTotal {
            to: self.out.name.clone(),
            form: self.form.clone(),
            records: self.records,
            counters,
        }
    }

    fn lost(&self) -> u64 {
        self.out
            .refused
            .iter()
            .filter(|(n, _)| n.starts_with("messages_lost"))
            .map(|(_, n)| n)
            .sum()
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
