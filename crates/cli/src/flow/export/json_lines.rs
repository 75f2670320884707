//! A line of JSON for each record: for people's own tools. Times are UTC, as in all formats.

use std::fs::File;
use std::io::{self, ErrorKind, Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sonde_meter::export::ExportStats;
use sonde_results::ToUtc as _;
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;

use super::Output;

/// The lines.
pub struct JsonLines {
    out: Box<dyn Write + Send>,
    path: PathBuf,
    /// Lines not written yet; `text[..written]` are.
    text: Vec<u8>,
    written: usize,
    tai_offset_ns: i64,
    records: u64,
    lost: u64,
    told: bool,
    /// The reader of the pipe has gone: what nobody reads is not lost.
    unread: bool,
}

impl JsonLines {
    /// To the file at `path`; '-' is standard output.
    pub fn create(path: &Path, tai_offset_s: i32) -> Result<Self> {
        let what = || format!("cannot write {}", path.display());
        let out: Box<dyn Write + Send> = match path.as_os_str() == "-" {
            true => Box::new(stdout()),
            false => Box::new(File::create(path).with_context(what)?),
        };
        Ok(JsonLines {
            out,
            path: path.to_owned(),
            text: Vec::new(),
            written: 0,
            tai_offset_ns: i64::from(tai_offset_s) * 1_000_000_000,
            records: 0,
            lost: 0,
            told: false,
            unread: false,
        })
    }

    /// Writes what waits; what cannot be written is tried again, so that lines stay whole.
    fn write(&mut self) {
        while self.written < self.text.len() && !self.unread {
            match self.out.write(&self.text[self.written..]) {
                Ok(0) => return self.failed(&ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::BrokenPipe => self.unread = true,
                Err(error) => return self.failed(&error),
            }
        }
        self.text.clear();
        self.written = 0;
    }

    fn failed(&mut self, error: &io::Error) {
        self.text.drain(..std::mem::take(&mut self.written));
        if !self.told {
            self.told = true;
            let (path, most) = (self.path.display(), WAITING >> 20);
            eprintln!("{path}: {error}; metering goes on, up to {most} MiB of records wait");
        }
    }
}

impl Output for JsonLines {
    fn records(&mut self, records: &[FlowRecord], _: i64) {
        self.records += records.len() as u64;
        for record in records {
            if self.text.len() - self.written >= WAITING {
                self.lost += 1;
                continue;
            }
            let before = self.text.len();
            // Writing to memory does not fail, and every field can be written.
            let utc = (self.tai_offset_ns != 0).then(|| {
                let mut utc = record.clone();
                utc.turn_to_utc(self.tai_offset_ns);
                utc
            });
            match serde_json::to_writer(&mut self.text, utc.as_ref().unwrap_or(record)) {
                Ok(()) => self.text.push(b'\n'),
                Err(_) => self.text.truncate(before),
            }
        }
        if self.text.len() >= GATHER {
            self.write();
        }
    }

    fn tick(&mut self, _: i64, _: &ExportStats) {
        self.write();
    }

    fn finish(&mut self, _: i64, _: &ExportStats) {
        self.write();
        let left = &self.text[self.written..];
        self.lost += left.iter().filter(|b| **b == b'\n').count() as u64;
        if self.lost > 0 {
            let (path, lost) = (self.path.display(), self.lost);
            eprintln!("{path}: {lost} records could not be saved; free space and run again");
        }
    }

    fn total(&self) -> ExportTotal {
        ExportTotal {
            to: self.path.display().to_string(),
            form: "JSON Lines".into(),
            records: self.records,
            counters: [("records_lost".to_string(), self.lost)].into(),
        }
    }

    fn lost(&self) -> u64 {
        self.lost
    }

    fn is_unread(&self) -> bool {
        self.unread
    }
}

/// Bytes for one write.
const GATHER: usize = 256 << 10;
/// Bytes that wait for room on a full disk.
const WAITING: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use sonde_results::flow::{FlowEnd, FlowKey, FlowSide};

    use super::*;
    use crate::flow::export::segments::tests::Folder;

    #[test]
    fn lines_are_records_with_times_in_utc() {
        const UTC: i64 = 1_700_000_000_000_000_000;
        let side = |first_ns| FlowSide {
            packets: 1,
            first_ns,
            last_ns: first_ns + 5,
            ..FlowSide::default()
        };
        let key = FlowKey {
            point: 1,
            vlan: 7,
            protocol: 6,
            source: Ipv4Addr::LOCALHOST.into(),
            destination: Ipv4Addr::LOCALHOST.into(),
            source_port: 80,
            destination_port: 81,
        };
        let reverse = FlowSide::default();
        let at = |first_ns| FlowRecord {
            key,
            forward: side(first_ns),
            reverse,
            end: FlowEnd::Active,
            extra: None,
        };
        let folder = Folder::new();
        std::fs::create_dir_all(&folder.0).unwrap();
        let path = folder.0.join("a.jsonl");
        let mut lines = JsonLines::create(&path, 37).unwrap();
        lines.records(&[at(UTC + 37_000_000_000)], 0);
        lines.finish(0, &ExportStats::default());
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, format!("{}\n", serde_json::to_string(&at(UTC)).unwrap()));
    }
}
