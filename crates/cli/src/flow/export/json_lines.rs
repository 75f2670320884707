//! A line of JSON for each record: for people's own tools.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sonde_meter::export::ExportStats;
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;

use super::Output;
use crate::output::sink::Sink;

/// The lines.
pub struct JsonLines {
    sink: Sink<Box<dyn std::io::Write + Send>>,
    path: PathBuf,
    text: Vec<u8>,
    records: u64,
}

impl JsonLines {
    /// To the file at `path`; '-' is standard output.
    pub fn create(path: &Path) -> Result<Self> {
        let sink =
            Sink::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(JsonLines { sink, path: path.to_owned(), text: Vec::new(), records: 0 })
    }
}

impl Output for JsonLines {
    fn record(&mut self, record: &FlowRecord, _: i64) {
        self.records += 1;
        self.text.clear();
        // Writing to memory does not fail, and every field can be written.
        if serde_json::to_writer(&mut self.text, record).is_ok() {
            self.text.push(b'\n');
            self.sink.push(&self.text);
        }
    }

    fn tick(&mut self, _: i64, _: &ExportStats) {
        self.sink.flush();
        if let Some(report) = self.sink.take_report() {
            eprintln!("{report}");
        }
    }

    fn finish(&mut self, now_ns: i64, stats: &ExportStats) {
        self.tick(now_ns, stats);
    }

    fn total(&self) -> ExportTotal {
        ExportTotal {
            to: self.path.display().to_string(),
            form: "JSON Lines".into(),
            records: self.records,
            counters: [("records_lost".to_string(), self.sink.lost())].into(),
        }
    }

    fn lost(&self) -> u64 {
        self.sink.lost()
    }
}
