//! The files that interval records go to as they come.

use std::io::Write;
use std::path::PathBuf;

use sonde_results::{Interval, Run, StreamInfo, ToUtc as _};

use super::csv::CsvRows;
use super::jsonl::ProbeJsonLines;
use crate::error::RunError;
use crate::files::RunFiles;
use crate::running::Context;
use crate::sink::Sink;

/// The files that records are written to.
#[derive(Clone, Debug, Default)]
pub struct WriterSettings {
    /// File of JSON Lines; `None`: none.
    pub jsonl: Option<PathBuf>,
    /// File of CSV; `None`: none.
    pub csv: Option<PathBuf>,
}

impl WriterSettings {
    /// The files that are written.
    pub fn files(&self) -> RunFiles<'_> {
        RunFiles::default().writes("jsonl", &self.jsonl).writes("csv", &self.csv)
    }
}

/// JSON Lines and CSV, as asked for.
pub struct Writers {
    jsonl: Option<ProbeJsonLines<Box<dyn Write + Send>>>,
    csv: Option<CsvRows<Box<dyn Write + Send>>>,
    batch: Vec<Interval>,
    tai_offset_ns: i64,
}

impl Writers {
    /// Opens the files and writes what comes before the first record.
    ///
    /// # Errors
    /// Both are one file; a file that cannot be made; the end was asked for while a pipe had no
    /// reader.
    pub fn open(
        settings: &WriterSettings,
        run: &Run,
        streams: &[StreamInfo],
        context: &Context,
    ) -> Result<Self, RunError> {
        settings.files().check()?;
        let WriterSettings { jsonl, csv } = settings;
        let sink = |path: &PathBuf| Sink::create(path, context.stdout, &context.stop);
        let jsonl = jsonl.as_ref().map(sink).transpose()?.map(|sink| {
            let start_ns = run.header.start_ns.saturating_sub(run.header.tai_offset_ns());
            ProbeJsonLines::begin(sink, start_ns, &run.header.host, &run.config, streams)
        });
        let csv = csv.as_ref().map(sink).transpose()?;
        let csv = csv.map(|sink| CsvRows::begin(sink, streams));
        let tai_offset_ns = run.header.tai_offset_ns();
        Ok(Writers { jsonl, csv, batch: Vec::new(), tai_offset_ns })
    }

    /// Takes a record; it is written at the next [`Writers::flush`].
    pub fn push(&mut self, record: &Interval) {
        if self.jsonl.is_some() || self.csv.is_some() {
            let mut record = record.clone();
            // As things stand: after a step the records before it, too, are given by the new clock.
            let scale = sonde_sys::clock::steady_scale();
            let is_as_it_was = scale.steps == 0;
            record.turn_to_utc(if is_as_it_was { self.tai_offset_ns } else { scale.utc_offset });
            self.batch.push(record);
        }
    }

    /// Further streams, behind those that are there.
    pub fn add_streams(&mut self, streams: &[StreamInfo]) {
        self.flush();
        if let Some(jsonl) = &mut self.jsonl {
            jsonl.add_streams(streams);
        }
        if let Some(csv) = &mut self.csv {
            csv.add_streams(streams);
        }
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        if let Some(jsonl) = &mut self.jsonl {
            jsonl.intervals(&self.batch);
        }
        if let Some(csv) = &mut self.csv {
            csv.intervals(&self.batch);
        }
        self.batch.clear();
    }

    /// Whether something is written that somebody may still read.
    pub fn are_read(&self) -> bool {
        let jsonl = self.jsonl.as_ref().is_some_and(|j| !j.is_unread());
        let csv = self.csv.as_ref().is_some_and(|c| !c.is_unread());
        jsonl || csv
    }

    /// Whether nobody reads standard output any more, which has records.
    pub fn are_unread(&self) -> bool {
        let jsonl = self.jsonl.as_ref().is_some_and(ProbeJsonLines::is_unread);
        let csv = self.csv.as_ref().is_some_and(CsvRows::is_unread);
        jsonl || csv
    }

    /// Failures to write, each said once.
    pub fn take_reports(&mut self) -> Vec<String> {
        let jsonl = self.jsonl.as_mut().and_then(|j| j.sink().take_report());
        let csv = self.csv.as_mut().and_then(|c| c.sink().take_report());
        jsonl.into_iter().chain(csv).collect()
    }

    /// Writes the rest; what could not be saved.
    pub fn finish(self) -> Vec<String> {
        let jsonl = self.jsonl.and_then(|j| j.finish().err());
        let csv = self.csv.and_then(|c| c.finish().err());
        jsonl.into_iter().chain(csv).map(|unsaved| unsaved.to_string()).collect()
    }
}
