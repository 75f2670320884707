//! Flow records as an Apache Parquet file: a row a record, for DuckDB, Spark, pandas.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
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

/// The file. Until it is closed it has no footer, and nobody can read it.
pub struct ParquetFile {
    /// `None` once closed, or after a failure.
    writer: Option<SerializedFileWriter<File>>,
    path: PathBuf,
    waiting: Vec<FlowRecord>,
    records: u64,
    written: u64,
    tai_offset_ns: i64,
}

impl ParquetFile {
    /// Makes or empties the file. Times in it are UTC.
    pub fn create(path: &Path, tai_offset_s: i32) -> Result<Self> {
        let what = || format!("cannot write {}", path.display());
        let file = File::create(path).with_context(what)?;
        let schema = Arc::new(parse_message_type(&schema()).with_context(what)?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer =
            SerializedFileWriter::new(file, schema, Arc::new(properties)).with_context(what)?;
        Ok(ParquetFile {
            writer: Some(writer),
            path: path.to_owned(),
            waiting: Vec::with_capacity(GROUP),
            records: 0,
            written: 0,
            tai_offset_ns: i64::from(tai_offset_s) * 1_000_000_000,
        })
    }

    /// Writes what waits as a row group.
    fn write(&mut self) {
        if let Some(writer) = &mut self.writer
            && !self.waiting.is_empty()
        {
            match row_group(writer, &self.waiting, self.tai_offset_ns) {
                Ok(()) => self.written += self.waiting.len() as u64,
                Err(error) => {
                    eprintln!("{}: {error}; free space and run again", self.path.display());
                    self.writer = None;
                }
            }
        }
        self.waiting.clear();
    }
}

impl Output for ParquetFile {
    fn records(&mut self, records: &[FlowRecord], _: i64) {
        self.records += records.len() as u64;
        self.waiting.extend_from_slice(records);
        if self.waiting.len() >= GROUP {
            self.write();
        }
    }

    fn tick(&mut self, _: i64, _: &ExportStats) {}

    fn finish(&mut self, _: i64, _: &ExportStats) {
        self.write();
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.close()
        {
            eprintln!("{}: {error}; free space and run again", self.path.display());
            self.written = 0;
        }
    }

    fn total(&self) -> ExportTotal {
        ExportTotal {
            to: self.path.display().to_string(),
            form: "Parquet".into(),
            records: self.records,
            counters: [("records_lost".to_string(), self.lost())].into(),
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
    writer: &mut SerializedFileWriter<File>,
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
