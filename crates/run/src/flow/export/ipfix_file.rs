//! IPFIX files (RFC 5655): messages one after the other, as they would be sent.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use sonde_meter::export::{Checksums, Config, ExportInterface, ExportStats, Exporter};
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;

use super::Output;
use crate::error::RunError;
use crate::output_file::{OutputFile, refused};
use crate::running::Stop;
use crate::whole_file;

/// The files of a run. Whole messages are written, so that what a kill leaves is readable.
pub struct IpfixFile {
    exporter: Exporter,
    /// The path of the first file.
    path: PathBuf,
    /// Of the one that is being written.
    index: u32,
    files: u64,
    /// Records of files that could not be written whole, and of the one that is being written.
    lost: u64,
    in_file: u64,
    out: Writer,
    /// The first file: while it is open, no other process begins anew under its name.
    _first: Option<File>,
    records: u64,
    flushed_ns: i64,
}

/// Whole messages on their way to the disk.
struct Writer {
    file: OutputFile,
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
    pub fn create(
        path: &Path,
        mut config: Config,
        checksums: bool,
        stop: &Stop,
    ) -> Result<Self, RunError> {
        let file = whole_file::create(path, stop).map_err(|e| refused(path, e))?;
        let first = file.file().try_clone().ok();
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
        let path = path.to_owned();
        Ok(IpfixFile {
            exporter,
            path,
            index: 1,
            files: 1,
            lost: 0,
            in_file: 0,
            out,
            _first: first,
            records: 0,
            flushed_ns: 0,
        })
    }

    /// Ends the file that is being written.
    fn close(&mut self, now_ns: i64, stats: &ExportStats) {
        let out = &mut self.out;
        self.exporter.options(stats, now_ns, &mut |message| out.message(message));
        self.exporter.finish_file(now_ns, &mut |message| out.message(message));
        self.out.write();
        if let Some(error) = self.out.failed.take() {
            tracing::warn!(
                "{}: {error}; free space or make it writable, and run again",
                whole_file::numbered(&self.path, self.index).display()
            );
            self.lost += self.in_file;
        }
        self.in_file = 0;
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

    /// After a failure nothing more is written. The file then ends with a whole message or, if
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
        self.in_file += records.len() as u64;
        let out = &mut self.out;
        for record in records {
            self.exporter.push(record, now_ns, &mut |message| out.message(message));
        }
    }

    fn interfaces(&mut self, interfaces: &[ExportInterface]) {
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

    fn rotate(&mut self, now_ns: i64, stats: &ExportStats) {
        // A pipe goes on.
        if !self.out.file.is_regular() {
            return;
        }
        let Some(next) = whole_file::create_next(&self.path, self.index) else { return };
        self.close(now_ns, stats);
        (self.out.file, self.index) = next;
        self.files += 1;
        // Each file is read by itself: it has all templates, that of the checksums too.
        let out = &mut self.out;
        out.checksums = out.checksums.as_ref().map(|_| Checksums::default());
        self.exporter.reconnected(now_ns, &mut |message| out.message(message));
    }

    fn finish(&mut self, now_ns: i64, stats: &ExportStats) {
        self.close(now_ns, stats);
    }

    fn total(&self) -> ExportTotal {
        let mut counters: std::collections::BTreeMap<String, u64> =
            self.exporter.counters().iter().map(|(name, n)| (name.to_string(), n)).collect();
        counters.insert("bytes_written".into(), self.out.bytes);
        counters.insert("files".into(), self.files);
        ExportTotal {
            to: self.path.display().to_string(),
            form: "IPFIX file (RFC 5655)".into(),
            records: self.records,
            counters,
        }
    }

    fn lost(&self) -> u64 {
        self.lost + if self.out.failed.is_some() { self.in_file } else { 0 }
    }
}

/// Bytes for one write.
const GATHER: usize = 1 << 20;
/// A kill loses no more than the records of this time.
const LONGEST_WAIT_NS: i64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use sonde_meter::export::{Decoded, Decoder, ExportProtocol, Profile};
    use sonde_results::flow::{FlowEnd, FlowKey, FlowSide};

    use super::*;
    use crate::flow::export::segments::tests::Folder;

    /// A reader who has nothing but one of the files understands it.
    #[test]
    fn each_file_is_whole_by_itself() {
        let record = |source_port| FlowRecord {
            key: FlowKey {
                point: 0,
                vlan: 0,
                protocol: 17,
                source: Ipv4Addr::LOCALHOST.into(),
                destination: Ipv4Addr::LOCALHOST.into(),
                source_port,
                destination_port: 53,
            },
            forward: FlowSide { packets: 1, bytes: 28, ..FlowSide::default() },
            reverse: FlowSide::default(),
            end: FlowEnd::Idle,
            extra: None,
        };
        let folder = Folder::new();
        std::fs::create_dir_all(&folder.0).unwrap();
        let path = folder.0.join("flows.ipfix");
        // Of somebody else: it is left alone.
        std::fs::write(folder.0.join("flows-0003.ipfix"), "old").unwrap();
        let profile = Profile { protocol: ExportProtocol::Ipfix, ..Profile::default() };
        let config = Config { profile, message_bytes: 65_535, ..Config::default() };
        let mut file = IpfixFile::create(&path, config, true, &Stop::default()).unwrap();
        let stats = ExportStats::default();
        let ports: Vec<u16> = (1..=6).collect();
        for (n, pair) in ports.chunks(2).enumerate() {
            if n > 0 {
                file.rotate(n as i64, &stats);
            }
            file.records(&[record(pair[0]), record(pair[1])], n as i64);
        }
        assert!(
            whole_file::create(&path, &Stop::default()).is_err(),
            "the first file is free for others"
        );
        file.finish(3, &stats);
        assert_eq!((file.total().counters["files"], file.lost()), (3, 0));
        let read = |name: &str| {
            let mut decoder = Decoder::new(0);
            let mut ports = Vec::new();
            let data = std::fs::read(folder.0.join(name)).unwrap();
            let left = decoder.file(&data, &mut |decoded| {
                if let Decoded::Flow(flow) = decoded {
                    ports.push(flow.record.key.source_port);
                }
            });
            let counters = decoder.counters();
            assert_eq!(
                (left, counters.no_template, counters.missing),
                (0, 0, 0),
                "{name}: {counters:?}"
            );
            ports
        };
        let files = ["flows.ipfix", "flows-0002.ipfix", "flows-0004.ipfix"].map(read);
        assert_eq!(files, [[1, 2], [3, 4], [5, 6]]);
        assert_eq!(std::fs::read(folder.0.join("flows-0003.ipfix")).unwrap(), b"old");
    }
}
