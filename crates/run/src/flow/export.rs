//! Where flow records go. Each destination is an [`Output`] of its own with an exporter of
//! its own, so that a slow collector holds up nothing but itself.

mod backlog;
mod collector;
mod connection;
mod ipfix_file;
mod json_lines;
mod pace;
mod parquet_file;
mod segments;
mod stream;
mod subscriber;
mod templates;
mod tls;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use sonde_meter::export::{
    Config, ExportInterface, ExportProtocol, ExportStats, Extra, Profile, TimeUnit,
};
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;

use super::settings::{Export, ExportFormat, Field, FlowFileFormat, Settings, TimeUnits};
use crate::error::{RunError, SettingsError};
use crate::running::{RecordReceiver, Stop};

/// One destination of flow records.
pub trait Output: Send {
    /// Takes records. A collector never makes it wait: what cannot be taken now is kept
    /// within bounds, and beyond them counted.
    fn records(&mut self, records: &[FlowRecord], now_ns: i64);

    /// The interfaces have changed, by the flow key's `point`.
    fn interfaces(&mut self, _: &[ExportInterface]) {}

    /// What the times of records are ahead of UTC, ns, from now on.
    fn set_utc_offset(&mut self, ns: i64);

    /// Called several times a second: sends what has waited long enough, looks after
    /// connections, reports the meter's own statistics when they are due.
    fn tick(&mut self, now_ns: i64, stats: &ExportStats);

    /// Of a file: ends it, so that it can be read whole, and goes on in the next.
    fn rotate(&mut self, _now_ns: i64, _stats: &ExportStats) {}

    /// Sends what waits for its turn, as far as it may leave now. Whether more waits. Called
    /// every millisecond or so, after [`Output::finish`] as long as this is true.
    fn send_due(&mut self) -> bool {
        false
    }

    /// Sends what is left; waits for it within bounds.
    fn finish(&mut self, now_ns: i64, stats: &ExportStats);

    /// Called once `finish` is done: nothing more waits.
    fn close(&mut self) {}

    /// What went there, and what did not.
    fn total(&self) -> ExportTotal;

    /// Records that did not get there and never will.
    fn lost(&self) -> u64;

    /// Whoever read this has gone, and with them the reason to go on.
    fn is_unread(&self) -> bool {
        false
    }
}

/// All destinations of a run.
pub type Outputs = Vec<Box<dyn Output>>;

/// What all outputs of a run have in common.
pub struct Common<'a> {
    pub settings: &'a Settings,
    /// TAI - UTC, s.
    pub tai_offset_s: i32,
    /// By the flow key's `point`.
    pub interfaces: Vec<ExportInterface>,
    /// Records can wait for a collector: their packets are in a file.
    pub can_wait: bool,
    /// Asks for the end; urgently: nobody waits for what collectors have not taken yet.
    pub stop: Stop,
    /// Where a file named `-` goes.
    pub stdout: Option<fn() -> Box<dyn Write + Send>>,
}

/// Opens all that was asked for; the first that cannot be opened is the failure. Besides, what the
/// program reads: nothing, unless it asked for records.
pub fn open(common: &Common<'_>) -> Result<(Outputs, RecordReceiver<Vec<FlowRecord>>), RunError> {
    let export = &common.settings.export;
    let mut outputs: Outputs = Vec::new();
    for target in &export.export {
        outputs.push(collector::open(target, common)?);
    }
    for path in &export.write {
        outputs.push(file(path, common)?);
    }
    if let Some(path) = &export.jsonl {
        outputs.push(Box::new(json_lines::FlowJsonLines::create(
            path,
            common.stdout,
            common.tai_offset_s,
            &common.stop,
        )?));
    }
    let (subscriber, records) =
        subscriber::Subscriber::new(common.can_wait.then(|| common.stop.clone()));
    if common.settings.records {
        outputs.push(Box::new(subscriber));
    }
    Ok((outputs, records))
}

fn file(path: &Path, common: &Common<'_>) -> Result<Box<dyn Output>, RunError> {
    match FlowFileFormat::of(path).map_err(|why| SettingsError::new("export.write", why))? {
        FlowFileFormat::Ipfix => {
            let config = common.config(ExportProtocol::Ipfix, FILE_MESSAGE, false);
            Ok(Box::new(ipfix_file::IpfixFile::create(
                path,
                config,
                common.settings.export.checksums,
                &common.stop,
            )?))
        }
        FlowFileFormat::Parquet => {
            let every = Duration::from_nanos(common.settings.export.rotate.unsigned_abs());
            let limits = parquet_file::FileLimits { every, rows: PARQUET_ROWS };
            Ok(Box::new(parquet_file::ParquetFiles::create(path, common.tai_offset_s, limits)?))
        }
    }
}

impl Common<'_> {
    /// The exporter's settings for one destination.
    fn config(&self, protocol: ExportProtocol, message_bytes: usize, datagram: bool) -> Config {
        let Export { biflow, times, domain, template_every, .. } = self.settings.export;
        let fields = &self.settings.metering.fields;
        Config {
            profile: Profile {
                protocol,
                biflow,
                time: match times {
                    TimeUnits::Ms => TimeUnit::Milli,
                    TimeUnits::Us => TimeUnit::Micro,
                    TimeUnits::Ns => TimeUnit::Nano,
                },
                lists: fields.iter().any(|f| matches!(f, Field::Packets(_) | Field::Spread)),
                extra: Extra {
                    link: fields.contains(&Field::Link),
                    tcp: fields.contains(&Field::Tcp),
                    apps: fields.contains(&Field::Apps),
                },
            },
            domain,
            message_bytes,
            datagram,
            template_every_ns: template_every,
            template_every_messages: TEMPLATE_EVERY_MESSAGES,
            tai_offset_s: self.tai_offset_s.into(),
            interfaces: self.interfaces.clone(),
        }
    }
}

/// Flow records pushed into an exporter, and how many of them are in the next message.
#[derive(Default)]
pub struct ExportTotals {
    all: u64,
    waiting: u64,
}

impl ExportTotals {
    /// Counts one record, sent or waiting.
    pub fn add(&mut self) {
        self.all += 1;
        self.waiting += 1;
    }

    /// A message has left: how many records it took along. Where a record has two parts,
    /// for the two directions, it counts to the message with the first one.
    pub fn take(&mut self) -> u64 {
        std::mem::take(&mut self.waiting)
    }
}

/// When the meter's own statistics are due: at the start, from time to time, at the end.
#[derive(Default)]
pub struct OptionsDue {
    next_ns: Option<i64>,
}

impl OptionsDue {
    /// There is something new to report.
    pub fn hurry(&mut self) {
        self.next_ns = None;
    }

    /// Whether they are due; then not again for a while.
    pub fn now(&mut self, now_ns: i64) -> bool {
        let due = self.next_ns.is_none_or(|next| now_ns >= next);
        if due {
            self.next_ns = Some(now_ns + OPTIONS_EVERY_NS);
        }
        due
    }
}

/// The protocol that collectors get.
fn protocol(format: ExportFormat) -> ExportProtocol {
    match format {
        ExportFormat::Ipfix => ExportProtocol::Ipfix,
        ExportFormat::Netflow9 => ExportProtocol::Netflow9,
        ExportFormat::Netflow5 => ExportProtocol::Netflow5,
    }
}

/// The greatest message (RFC 7011, section 3.1).
const FILE_MESSAGE: usize = 65_535;
/// Rows of a Parquet file; then comes the next.
const PARQUET_ROWS: u64 = 1 << 20;
/// Between the meter's own statistics.
const OPTIONS_EVERY_NS: i64 = 60_000_000_000;
/// A collector that began in the middle understands us after so many messages.
const TEMPLATE_EVERY_MESSAGES: u32 = 4_096;
