//! Flow records as Apache Parquet: a row a record, for DuckDB, Spark, pandas.
//!
//! A file without its footer cannot be read. So a run is written in several: one is closed
//! after some time or so many rows, and the next begun. Until then it is called
//! `NAME.parquet.part`: whatever is called `.parquet` can be read. A kill or a full disk loses
//! the last part at most.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use sonde_meter::export::ExportStats;
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;

use super::Output;
use crate::output_file::OutputFile;
use crate::running::Stop;
use crate::whole_file::{self, WriteLock, numbered, part_of};

/// The files of a run.
pub struct ParquetFiles {
    /// The path of the first file.
    path: PathBuf,
    /// Of the first file, under whose name no other process begins anew.
    _lock: Option<WriteLock>,
    limits: FileLimits,
    /// The one that is being written; `None` until there are records for it.
    part: Option<Part>,
    /// When what it holds began to come.
    begun: Instant,
    /// Count of files that are whole.
    whole: u32,
    waiting: Vec<FlowRecord>,
    records: u64,
    /// In files that are whole.
    written: u64,
    tai_offset_ns: i64,
    /// The last failure that was logged.
    warned: Option<String>,
}

/// When a file is closed.
#[derive(Clone, Copy, Debug)]
pub struct FileLimits {
    /// Time after which the next file is begun.
    pub every: Duration,
    /// With so many rows, to a row group.
    pub rows: u64,
}

/// A file without a footer.
struct Part {
    writer: SerializedFileWriter<OutputFile>,
    path: PathBuf,
    rows: u64,
}

impl ParquetFiles {
    /// Begins the first file, which replaces one of that name when it is whole.
    /// Times in it are UTC.
    pub fn create(path: &Path, tai_offset_s: i32, limits: FileLimits) -> Result<Self> {
        let second = numbered(path, 2);
        if second.exists() {
            bail!(
                "{} is of an earlier run, of which this one would replace only a part; move it \
                 away, or give another name",
                second.display()
            );
        }
        let cannot = || format!("cannot write {}; choose another path", path.display());
        let lock = WriteLock::take(path).with_context(cannot)?;
        let mut files = ParquetFiles {
            path: path.to_owned(),
            _lock: lock,
            limits,
            part: None,
            begun: Instant::now(),
            whole: 0,
            waiting: Vec::with_capacity(GROUP),
            records: 0,
            written: 0,
            tai_offset_ns: i64::from(tai_offset_s) * 1_000_000_000,
            warned: None,
        };
        files.part = Some(files.begin().with_context(cannot)?);
        Ok(files)
    }

    fn begin(&self) -> Result<Part> {
        let path = part_of(&numbered(&self.path, self.whole + 1));
        if fs::metadata(&path).is_ok_and(|about| about.file_type().is_fifo()) {
            bail!("{} is a pipe, which holds no Parquet file; remove it", path.display());
        }
        // It is no pipe, so nothing is waited for.
        let file = whole_file::create(&path, &Stop::default())?;
        let schema = Arc::new(parse_message_type(&schema())?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
        Ok(Part { writer, path, rows: 0 })
    }

    /// Writes what waits as a row group.
    fn write(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty()
            && let Err(error) = self.try_write(&waiting)
        {
            self.give_up(&format!("{error:#}"));
        }
        self.waiting = waiting;
        self.waiting.clear();
    }

    fn try_write(&mut self, records: &[FlowRecord]) -> Result<()> {
        if self.part.is_none() {
            self.part = Some(self.begin()?);
        }
        let Some(part) = &mut self.part else { return Ok(()) };
        row_group(&mut part.writer, records, self.tai_offset_ns)?;
        part.rows += records.len() as u64;
        if part.rows >= self.limits.rows {
            self.close();
        }
        Ok(())
    }

    /// Goes on in the next file; there is none without rows.
    fn rotate(&mut self) {
        self.begun = Instant::now();
        self.write();
        if self.part.as_ref().is_some_and(|part| part.rows > 0) {
            self.close();
        }
    }

    /// Writes the footer and gives the file its final name.
    fn close(&mut self) {
        let Some(Part { writer, path, rows }) = self.part.take() else { return };
        self.begun = Instant::now();
        let whole = numbered(&self.path, self.whole + 1);
        let closed = writer.close().map(drop).map_err(anyhow::Error::from);
        match closed.and_then(|()| fs::rename(&path, &whole).map_err(anyhow::Error::from)) {
            Ok(()) => {
                self.whole += 1;
                self.written += rows;
            }
            Err(error) => {
                let _ = fs::remove_file(path);
                self.warn_once(&format!("{error:#}"));
            }
        }
    }

    /// The file that is being written cannot be made whole; the next may, and its room helps.
    fn give_up(&mut self, why: &str) {
        if let Some(Part { writer, path, rows: _ }) = self.part.take() {
            drop(writer);
            let _ = fs::remove_file(path);
        }
        self.warn_once(why);
    }

    fn warn_once(&mut self, why: &str) {
        if self.warned.as_deref() != Some(why) {
            let file = numbered(&self.path, self.whole + 1);
            tracing::warn!(
                "{}: {why}; its records are lost until it can be written: free space, or mend \
                 what stands in its way",
                file.display()
            );
            self.warned = Some(why.to_owned());
        }
    }
}

impl Drop for ParquetFiles {
    /// One that was not ended cannot be read: the run did not begin.
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            let _ = fs::remove_file(part.path);
        }
    }
}

impl Output for ParquetFiles {
    fn set_utc_offset(&mut self, ns: i64) {
        self.tai_offset_ns = ns;
    }

    fn records(&mut self, records: &[FlowRecord], _: i64) {
        self.records += records.len() as u64;
        self.waiting.extend_from_slice(records);
        if self.waiting.len() >= GROUP {
            self.write();
        }
    }

    fn tick(&mut self, _: i64, _: &ExportStats) {
        if self.begun.elapsed() >= self.limits.every {
            self.rotate();
        }
    }

    fn rotate(&mut self, _: i64, _: &ExportStats) {
        self.rotate();
    }

    fn finish(&mut self, _: i64, _: &ExportStats) {
        self.write();
        self.close();
        if self.whole > 1 {
            tracing::warn!(
                "{}: goes on in {} further files, to {}",
                self.path.display(),
                self.whole - 1,
                numbered(&self.path, self.whole).display()
            );
        }
    }

    fn total(&self) -> ExportTotal {
        let counters = [("files", self.whole.into()), ("records_lost", self.lost())];
        ExportTotal {
            to: self.path.display().to_string(),
            form: "Parquet".into(),
            records: self.records,
            counters: counters.map(|(name, n)| (name.to_string(), n)).into(),
        }
    }

    fn lost(&self) -> u64 {
        self.records - self.written
    }
}

/// A column and where its values come from.
enum Column {
    Text(&'static str, fn(&FlowRecord) -> String),
    Number(&'static str, fn(&FlowRecord) -> i32),
    Long(&'static str, fn(&FlowRecord) -> i64),
    /// ns since 1970 TAI; written as UTC.
    Time(&'static str, fn(&FlowRecord) -> i64),
}

const COLUMNS: &[Column] = &[
    Column::Text("source", |r| r.key.source.to_string()),
    Column::Text("destination", |r| r.key.destination.to_string()),
    Column::Number("source_port", |r| r.key.source_port.into()),
    Column::Number("destination_port", |r| r.key.destination_port.into()),
    Column::Number("protocol", |r| r.key.protocol.into()),
    Column::Number("vlan", |r| r.key.vlan.into()),
    Column::Number("point", |r| r.key.point.into()),
    Column::Time("first", |r| r.first_ns()),
    Column::Time("last", |r| r.last_ns()),
    Column::Long("packets", |r| r.forward.packets as i64),
    Column::Long("bytes", |r| r.forward.bytes as i64),
    Column::Number("tcp_flags", |r| r.forward.tcp_flags.into()),
    Column::Number("tos", |r| r.forward.tos.into()),
    Column::Long("reverse_packets", |r| r.reverse.packets as i64),
    Column::Long("reverse_bytes", |r| r.reverse.bytes as i64),
    Column::Number("reverse_tcp_flags", |r| r.reverse.tcp_flags.into()),
    Column::Number("reverse_tos", |r| r.reverse.tos.into()),
    Column::Number("end_reason", |r| r.end as i32),
    // What was asked for beyond the basic record, as JSON; empty: nothing.
    Column::Text("extra", |r| {
        r.extra.as_ref().and_then(|e| serde_json::to_string(e).ok()).unwrap_or_default()
    }),
];

fn schema() -> String {
    let mut text = "message flow {".to_string();
    for column in COLUMNS {
        text.push_str(&match column {
            Column::Text(name, _) => format!(" REQUIRED BYTE_ARRAY {name} (UTF8);"),
            Column::Number(name, _) => format!(" REQUIRED INT32 {name};"),
            Column::Long(name, _) => format!(" REQUIRED INT64 {name};"),
            Column::Time(name, _) => {
                format!(" REQUIRED INT64 {name} (TIMESTAMP(NANOS,true));")
            }
        });
    }
    text.push('}');
    text
}

fn row_group(
    writer: &mut SerializedFileWriter<OutputFile>,
    records: &[FlowRecord],
    tai_offset_ns: i64,
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for column in COLUMNS {
        let Some(mut out) = group.next_column()? else { break };
        match column {
            Column::Text(_, of) => {
                let values: Vec<ByteArray> =
                    records.iter().map(|r| of(r).into_bytes().into()).collect();
                out.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            }
            Column::Number(_, of) => {
                let values: Vec<i32> = records.iter().map(of).collect();
                out.typed::<Int32Type>().write_batch(&values, None, None)?;
            }
            Column::Long(_, of) => {
                let values: Vec<i64> = records.iter().map(of).collect();
                out.typed::<Int64Type>().write_batch(&values, None, None)?;
            }
            Column::Time(_, of) => {
                let values: Vec<i64> = records.iter().map(|r| of(r) - tai_offset_ns).collect();
                out.typed::<Int64Type>().write_batch(&values, None, None)?;
            }
        }
        out.close()?;
    }
    group.close()?;
    Ok(())
}

/// Records of a row group.
const GROUP: usize = 65_536;

#[cfg(test)]
mod tests;
