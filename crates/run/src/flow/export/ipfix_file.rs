//! An IPFIX file (RFC 5655): messages one after the other, as they would be sent.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sonde_meter::export::{Checksums, Config, ExportStats, Exporter, Interface};
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;

use super::Output;
use crate::whole_file;

/// The file. Whole messages are written, so that what a kill leaves is readable.
pub struct IpfixFile {
    exporter: Exporter,
    path: PathBuf,
    out: Writer,
    records: u64,
    flushed_ns: i64,
}

/// Whole messages on their way to the disk.
struct Writer {
    file: File,
    /// Each message gets one, if that was asked for.
    checksums: Option<Checksums>,
    /// Messages that were not written yet.
    waiting: Vec<u8>,
    messages: u64,
    bytes: u64,
    failed: Option<std::io::Error>,
}

impl IpfixFile {
    /// Makes or empties the file; its messages get checksums, or not.
    pub fn create(path: &Path, mut config: Config, checksums: bool) -> Result<Self> {
        let file =
            whole_file::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let checksums = checksums.then(Checksums::default);
        if checksums.is_some() {
            config.message_bytes -= Checksums::ADDED;
        }
        let out = Writer {
            file,
            checksums,
            waiting: Vec::with_capacity(2 * GATHER),
            messages: 0,
            bytes: 0,
            failed: None,
        };
        let exporter = Exporter::new(config);
        Ok(IpfixFile { exporter, path: path.to_owned(), out, records: 0, flushed_ns: 0 })
    }
}

impl Writer {
    fn message(&mut self, message: &[u8]) {
        match &mut self.checksums {
            Some(checksums) => self.waiting.extend_from_slice(checksums.seal(message)),
            None => self.waiting.extend_from_slice(message),
        }
        self.messages += 1;
        if self.waiting.len() >= GATHER {
            self.write();
        }
    }

    /// After a failure nothing more is written: the file ends with a whole message or, if
    /// the disk filled up, in one that readers leave out.
    fn write(&mut self) {
        if self.failed.is_none() {
            match self.file.write_all(&self.waiting) {
                Ok(()) => self.bytes += self.waiting.len() as u64,
                Err(error) => self.failed = Some(error),
            }
        }
        self.waiting.clear();
    }
}

impl Output for IpfixFile {
    fn set_utc_offset(&mut self, ns: i64) {
        self.exporter.set_utc_offset(ns);
    }

    fn records(&mut self, records: &[FlowRecord], now_ns: i64) {
        self.records += records.len() as u64;
        let out = &mut self.out;
        for record in records {
            self.exporter.push(record, now_ns, &mut |message| out.message(message));
        }
    }

    fn interfaces(&mut self, interfaces: &[Interface]) {
        self.exporter.set_interfaces(interfaces);
    }

    fn tick(&mut self, now_ns: i64, _: &ExportStats) {
        if now_ns - self.flushed_ns >= LONGEST_WAIT_NS {
            self.flushed_ns = now_ns;
            let out = &mut self.out;
            self.exporter.flush(now_ns, &mut |message| out.message(message));
            self.out.write();
        }
    }

    fn finish(&mut self, now_ns: i64, stats: &ExportStats) {
        let out = &mut self.out;
        self.exporter.options(stats, now_ns, &mut |message| out.message(message));
        self.exporter.finish_file(now_ns, &mut |message| out.message(message));
        self.out.write();
        if let Some(error) = &self.out.failed {
            tracing::warn!(
                "{}: {error}; free space or make it writable, and run again",
                self.path.display()
            );
        }
    }

    fn total(&self) -> ExportTotal {
        let mut counters: std::collections::BTreeMap<String, u64> =
            self.exporter.counters().iter().map(|(name, n)| (name.to_string(), n)).collect();
        counters.insert("bytes_written".into(), self.out.bytes);
        ExportTotal {
            to: self.path.display().to_string(),
            form: "IPFIX file (RFC 5655)".into(),
            records: self.records,
            counters,
        }
    }

    fn lost(&self) -> u64 {
        if self.out.failed.is_some() { self.records } else { 0 }
    }
}

/// Bytes for one write.
const GATHER: usize = 1 << 20;
/// A kill loses no more than the records of this time.
const LONGEST_WAIT_NS: i64 = 1_000_000_000;
