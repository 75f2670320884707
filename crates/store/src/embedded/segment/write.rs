//! Makes a segment: `x.tmp`, synced, renamed, the folder synced.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{
    ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, FloatType, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::{BLOCK, BOUNDED, Part, Physical, buckets_of, physical};
use crate::column::{Kind, StoredRow};
use crate::embedded::disk::{Disk, DiskFile};
use crate::error::StoreError;
use crate::table::Table;

/// What was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written {
    /// Rows in the segment.
    pub(crate) rows: u64,
    /// Octets of the file.
    pub(crate) octets: u64,
    /// Least and greatest time of a row, ns since 1970 UTC.
    pub(crate) times_ns: (i64, i64),
    /// Least and greatest number of a series.
    pub(crate) series: (u32, u32),
    /// A CRC-32 of each block.
    pub(crate) crcs: Vec<u32>,
}

/// Writes rows that ascend by their key. They are taken a row group at a time, so that memory stays
/// bounded. `None`: there were none, and there is no file. After an error there is no file either.
pub(crate) fn write_segment<R: StoredRow>(
    disk: &dyn Disk,
    path: &Path,
    table: Table,
    rows: impl IntoIterator<Item = Result<R, StoreError>>,
) -> Result<Option<Written>, StoreError> {
    let temporary = path.with_extension("tmp");
    let written = write_file(disk, &temporary, table, rows).and_then(|written| {
        if written.is_none() {
            // Nothing to keep.
            disk.remove(&temporary).map_err(StoreError::io("remove", &temporary))?;
            return Ok(None);
        }
        disk.rename(&temporary, path).map_err(StoreError::io("rename", &temporary))?;
        let folder = path.parent().unwrap_or(path);
        if let Err(error) = disk.sync_folder(folder) {
            let _ = disk.remove(path);
            return Err(StoreError::io("sync", folder)(error));
        }
        Ok(written)
    });
    if written.is_err() {
        let _ = disk.remove(&temporary);
    }
    written
}

fn write_file<R: StoredRow>(
    disk: &dyn Disk,
    path: &Path,
    table: Table,
    rows: impl IntoIterator<Item = Result<R, StoreError>>,
) -> Result<Option<Written>, StoreError> {
    let failed = |cause: ParquetError| match cause {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => StoreError::io("write", path)(*error),
            Err(inner) => {
                StoreError::Segment { path: path.to_owned(), cause: ParquetError::External(inner) }
            }
        },
        cause => StoreError::Segment { path: path.to_owned(), cause },
    };
    let file = disk.create(path).map_err(StoreError::io("create", path))?;
    let columns = physical::<R>(table);
    let schema = parse_message_type(&schema(table, &columns)).map_err(failed)?;
    let properties = Arc::new(properties(&columns).build());
    let mut writer = SerializedFileWriter::new(Blocks::new(file), Arc::new(schema), properties)
        .map_err(failed)?;
    let mut bounds: Option<Written> = None;
    let mut rows = rows.into_iter();
    let mut group: Vec<R> = Vec::new();
    loop {
        group.clear();
        for row in rows.by_ref().take(GROUP) {
            group.push(row?);
        }
        if group.is_empty() {
            break;
        }
        debug_assert!(group.is_sorted_by_key(StoredRow::key));
        widen(&mut bounds, &group);
        let mut out = writer.next_row_group().map_err(failed)?;
        for column in &columns {
            if let Some(mut to) = out.next_column().map_err(failed)? {
                write_column(column, &group, &mut to).map_err(failed)?;
                to.close().map_err(failed)?;
            }
        }
        out.close().map_err(failed)?;
    }
    let Some(mut written) = bounds else { return Ok(None) };
    writer.finish().map_err(failed)?;
    let blocks = writer.inner_mut();
    blocks.file.sync().map_err(StoreError::io("sync", path))?;
    (written.octets, written.crcs) = blocks.finish();
    Ok(Some(written))
}

fn widen<R: StoredRow>(bounds: &mut Option<Written>, rows: &[R]) {
    for row in rows {
        let (time, series) = (row.time_ns(), row.series());
        let all = bounds.get_or_insert_with(|| Written {
            rows: 0,
            octets: 0,
            times_ns: (time, time),
            series: (series, series),
            crcs: Vec::new(),
        });
        all.rows += 1;
        all.times_ns = (all.times_ns.0.min(time), all.times_ns.1.max(time));
        all.series = (all.series.0.min(series), all.series.1.max(series));
    }
}

fn schema<R>(table: Table, columns: &[Physical<R>]) -> String {
    let mut text = format!("message {} {{", table.name());
    for Physical { column, part, name } in columns {
        text.push_str(&match (&column.kind, part) {
            (_, Part::Buckets) => format!(" REQUIRED BYTE_ARRAY {name};"),
            (Kind::Instant(..), _) => format!(" REQUIRED INT64 {name} (TIMESTAMP(NANOS,true));"),
            (Kind::InstantMicros(..), _) => {
                format!(" REQUIRED INT64 {name} (TIMESTAMP(MICROS,true));")
            }
            (Kind::Maybe(..), _) => format!(" OPTIONAL INT64 {name};"),
            (Kind::Real(..), _) => format!(" REQUIRED FLOAT {name};"),
            (Kind::Octets(..), _) => format!(" REQUIRED BYTE_ARRAY {name};"),
            (Kind::Text(..), _) => format!(" REQUIRED BYTE_ARRAY {name} (UTF8);"),
            (Kind::Address(..), _) => format!(" REQUIRED FIXED_LEN_BYTE_ARRAY(16) {name};"),
            (Kind::Close(..) | Kind::Few(..) | Kind::Hist(..) | Kind::Summary(..), _) => {
                format!(" REQUIRED INT64 {name};")
            }
        });
    }
    text.push('}');
    text
}

fn properties<R>(columns: &[Physical<R>]) -> WriterPropertiesBuilder {
    let level = ZstdLevel::try_new(1).unwrap_or_default();
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_max_row_group_row_count(None);
    for Physical { column, part, name } in columns {
        let path = ColumnPath::from(name.as_str());
        let plain = match (&column.kind, part) {
            (_, Part::Min | Part::Max | Part::Sum) => Some(Encoding::BYTE_STREAM_SPLIT),
            (_, Part::Buckets) => Some(Encoding::PLAIN),
            (Kind::Close(..) | Kind::Instant(..) | Kind::InstantMicros(..), _) => {
                Some(Encoding::DELTA_BINARY_PACKED)
            }
            (Kind::Real(..), _) => Some(Encoding::BYTE_STREAM_SPLIT),
            _ => None,
        };
        if let Some(encoding) = plain {
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path.clone(), encoding);
        }
        if BOUNDED.contains(&name.as_str()) {
            properties = properties.set_column_statistics_enabled(path, EnabledStatistics::Chunk);
        }
    }
    properties
}

fn write_column<R>(
    physical: &Physical<R>,
    rows: &[R],
    to: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    let numbers = |of: &dyn Fn(&R) -> i64, to: &mut SerializedColumnWriter<'_>| {
        let values: Vec<i64> = rows.iter().map(of).collect();
        to.typed::<Int64Type>().write_batch(&values, None, None).map(drop)
    };
    let octets = |of: &dyn Fn(&R) -> Vec<u8>, to: &mut SerializedColumnWriter<'_>| {
        let values: Vec<ByteArray> = rows.iter().map(|row| of(row).into()).collect();
        to.typed::<ByteArrayType>().write_batch(&values, None, None).map(drop)
    };
    match &physical.column.kind {
        Kind::Close(get, _) | Kind::Instant(get, _) | Kind::Few(get, _) => numbers(get, to),
        Kind::InstantMicros(get, _) => numbers(&|row| get(row).div_euclid(1_000), to),
        Kind::Maybe(get, _) => {
            let levels: Vec<i16> = rows.iter().map(|row| get(row).is_some().into()).collect();
            let values: Vec<i64> = rows.iter().filter_map(get).collect();
            to.typed::<Int64Type>().write_batch(&values, Some(&levels), None).map(drop)
        }
        Kind::Real(get, _) => {
            let values: Vec<f32> = rows.iter().map(get).collect();
            to.typed::<FloatType>().write_batch(&values, None, None).map(drop)
        }
        Kind::Octets(get, _) => octets(&|row| get(row).to_vec(), to),
        Kind::Text(get, _) => octets(&|row| get(row).as_bytes().to_vec(), to),
        Kind::Address(get, _) => {
            let values: Vec<FixedLenByteArray> =
                rows.iter().map(|row| get(row).to_vec().into()).collect();
            to.typed::<FixedLenByteArrayType>().write_batch(&values, None, None).map(drop)
        }
        Kind::Hist(get, _) | Kind::Summary(get, _) => match physical.part {
            Part::Whole | Part::Count => numbers(&|row| get(row).head().count as i64, to),
            Part::Min => numbers(&|row| get(row).head().min, to),
            Part::Max => numbers(&|row| get(row).head().max, to),
            Part::Sum => numbers(&|row| saturated(get(row).head().sum), to),
            Part::Buckets => octets(&|row| buckets_of(get(row)), to),
        },
    }
}

fn saturated(sum: i128) -> i64 {
    sum.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// A file whose blocks are summed up while they are written.
struct Blocks {
    file: Box<dyn DiskFile>,
    octets: u64,
    hasher: crc32fast::Hasher,
    /// Octets in the block that is not full yet.
    filled: usize,
    crcs: Vec<u32>,
}

impl Blocks {
    fn new(file: Box<dyn DiskFile>) -> Self {
        Blocks { file, octets: 0, hasher: crc32fast::Hasher::new(), filled: 0, crcs: Vec::new() }
    }

    /// Octets that were written, and the sums of their blocks.
    fn finish(&mut self) -> (u64, Vec<u32>) {
        if self.filled > 0 {
            self.crcs.push(std::mem::take(&mut self.hasher).finalize());
        }
        (self.octets, std::mem::take(&mut self.crcs))
    }
}

impl Write for Blocks {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let most = octets.len().min(BLOCK - self.filled);
        let n = self.file.write(&octets[..most])?;
        self.hasher.update(&octets[..n]);
        self.octets += n as u64;
        self.filled += n;
        if self.filled == BLOCK {
            self.crcs.push(std::mem::take(&mut self.hasher).finalize());
            self.filled = 0;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Rows of a row group.
pub(in crate::embedded) const GROUP: usize = 65_536;
