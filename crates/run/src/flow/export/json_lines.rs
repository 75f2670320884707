//! A line of JSON for each record: for people's own tools. Times are UTC, as in all formats.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use sonde_meter::export::ExportStats;
use sonde_results::ToUtc as _;
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;

use super::Output;
use crate::error::RunError;
use crate::running::Stop;
use crate::sink::Sink;
use crate::whole_file;

pub struct FlowJsonLines {
    /// `None` after the end.
    sink: Option<Sink<Box<dyn Write + Send>>>,
    /// Of the first file.
    path: PathBuf,
    /// The first file: while it is open, no other process begins anew under its name.
    _first: Option<File>,
    /// Of the one that is being written.
    index: u32,
    files: u64,
    line: Vec<u8>,
    tai_offset_ns: i64,
    records: u64,
    /// Of files that are whole.
    lost_before: u64,
    lost: u64,
    unread: bool,
}

impl FlowJsonLines {
    /// To the file at `path`; `-` is what `stdout` opens.
    pub fn create(
        path: &Path,
        stdout: Option<fn() -> Box<dyn Write + Send>>,
        tai_offset_s: i32,
        stop: &Stop,
    ) -> Result<Self, RunError> {
        let sink = Sink::create(path, stdout, stop)?;
        Ok(FlowJsonLines {
            _first: sink.held(),
            sink: Some(sink),
            path: path.to_owned(),
            index: 1,
            files: 1,
            line: Vec::new(),
            tai_offset_ns: i64::from(tai_offset_s) * 1_000_000_000,
            records: 0,
            lost_before: 0,
            lost: 0,
            unread: false,
        })
    }

    fn close(&mut self) {
        if let Some(Err(unsaved)) = self.sink.take().map(Sink::finish) {
            self.lost = self.lost_before + unsaved.lost;
            tracing::warn!("{unsaved}");
        }
        self.lost_before = self.lost;
    }

    fn note(&mut self) {
        let Some(sink) = &mut self.sink else { return };
        (self.lost, self.unread) = (self.lost_before + sink.lost(), sink.is_unread());
        if let Some(report) = sink.take_report() {
            tracing::warn!("{report}");
        }
    }
}

impl Output for FlowJsonLines {
    fn set_utc_offset(&mut self, ns: i64) {
        self.tai_offset_ns = ns;
    }

    fn records(&mut self, records: &[FlowRecord], _: i64) {
        self.records += records.len() as u64;
        let Some(sink) = &mut self.sink else { return };
        for record in records {
            self.line.clear();
            // Writing to memory does not fail, and every field can be written.
            let utc = (self.tai_offset_ns != 0).then(|| {
                let mut utc = record.clone();
                utc.turn_to_utc(self.tai_offset_ns);
                utc
            });
            if serde_json::to_writer(&mut self.line, utc.as_ref().unwrap_or(record)).is_ok() {
                self.line.push(b'\n');
                sink.push(&self.line);
            }
        }
        self.note();
    }

    fn tick(&mut self, _: i64, _: &ExportStats) {
        if let Some(sink) = &mut self.sink {
            sink.flush();
        }
        self.note();
    }

    fn rotate(&mut self, _: i64, _: &ExportStats) {
        let Some(sink) = &mut self.sink else { return };
        // What waits for room on the disk goes on waiting; a pipe goes on.
        sink.flush();
        if !sink.is_file() || sink.is_failing() {
            return self.note();
        }
        if let Some((file, index)) = whole_file::create_next(&self.path, self.index) {
            self.close();
            let next = Sink::to_file(file, &whole_file::numbered(&self.path, index));
            (self.sink, self.index) = (Some(next), index);
            self.files += 1;
        }
    }

    fn finish(&mut self, _: i64, _: &ExportStats) {
        self.close();
    }

    fn total(&self) -> ExportTotal {
        ExportTotal {
            to: self.path.display().to_string(),
            form: "JSON Lines".into(),
            records: self.records,
            counters: [("files", self.files), ("records_lost", self.lost)]
                .map(|(name, n)| (name.to_string(), n))
                .into(),
        }
    }

    fn lost(&self) -> u64 {
        self.lost
    }

    fn is_unread(&self) -> bool {
        self.unread
    }
}

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
        let mut lines = FlowJsonLines::create(&path, None, 37, &Stop::default()).unwrap();
        lines.records(&[at(UTC + 37_000_000_000)], 0);
        lines.finish(0, &ExportStats::default());
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, format!("{}\n", serde_json::to_string(&at(UTC)).unwrap()));
    }

    #[test]
    fn the_first_file_stays_its_own_while_it_goes_on_in_others() {
        let folder = Folder::new();
        std::fs::create_dir_all(&folder.0).unwrap();
        let path = folder.0.join("a.jsonl");
        let mut lines = FlowJsonLines::create(&path, None, 0, &Stop::default()).unwrap();
        lines.rotate(0, &ExportStats::default());
        assert_eq!(lines.files, 2);
        let second = whole_file::numbered(&path, 2);
        for path in [&path, &second] {
            let refused = FlowJsonLines::create(path, None, 0, &Stop::default()).err().unwrap();
            assert!(format!("{refused:#}").contains("another process"), "{refused:#}");
        }
        drop(lines);
        assert!(FlowJsonLines::create(&path, None, 0, &Stop::default()).is_ok());
    }
}
