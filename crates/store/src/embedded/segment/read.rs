//! Reads a segment: row groups that can hold what is asked for, a batch of rows at a time, only the
//! columns that are asked for.

use std::io;
use std::path::{Path, PathBuf};

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;

use super::file::CheckedFile;
use super::{Part, Physical, hist_from, physical};
use crate::column::{Kind, StoredRow};
use crate::error::StoreError;
use crate::hist_blob::HistHead;
use crate::table::Table;

/// Which rows are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowRange {
    /// Times from (inclusive) and to (exclusive), ns since 1970 UTC.
    pub(crate) times_ns: (i64, i64),
    /// Least and greatest number of a series.
    pub(crate) series: (u32, u32),
}

impl RowRange {
    /// All rows.
    pub(crate) const ALL: RowRange =
        RowRange { times_ns: (i64::MIN, i64::MAX), series: (0, u32::MAX) };

    /// Whether rows between these bounds (inclusive) may be among them.
    pub(crate) fn meets(&self, times_ns: (i64, i64), series: (u32, u32)) -> bool {
        times_ns.0 < self.times_ns.1
            && times_ns.1 >= self.times_ns.0
            && series.0 <= self.series.1
            && series.1 >= self.series.0
    }

    /// Whether a row is among them.
    pub(crate) fn holds<R: StoredRow>(&self, row: &R) -> bool {
        let (time, series) = (row.time_ns(), row.series());
        (self.times_ns.0..self.times_ns.1).contains(&time)
            && (self.series.0..=self.series.1).contains(&series)
    }
}

/// Rows of a segment, in their order.
pub(crate) struct SegmentReader<R: StoredRow> {
    path: PathBuf,
    file: SerializedFileReader<CheckedFile>,
    range: RowRange,
    /// Columns that are read, with their place in the file.
    columns: Vec<(Physical<R>, usize)>,
    /// The next row group.
    group: usize,
    /// Readers of the columns of the present row group, and the rows left in it.
    open: Option<(Vec<ColumnReader>, usize)>,
}

impl<R: StoredRow> SegmentReader<R> {
    /// Opens a segment. `octets` and `crcs` are the catalogue's; `wanted` are the columns to read,
    /// by the names in `R::COLUMNS`, all if it is empty. Other fields have their default.
    pub(crate) fn open(
        path: &Path,
        (octets, crcs): (u64, &[u32]),
        table: Table,
        range: RowRange,
        wanted: &[&str],
    ) -> Result<Self, StoreError> {
        let checked = CheckedFile::open(path, octets, crcs).map_err(|e| of_io(path, e))?;
        let file = SerializedFileReader::new(checked).map_err(|e| of_parquet(path, e))?;
        let schema = file.metadata().file_metadata().schema_descr();
        let place =
            |name: &str| (0..schema.num_columns()).find(|&i| schema.column(i).name() == name);
        // A file of an earlier version lacks columns that came later.
        let columns = physical::<R>(table)
            .into_iter()
            .filter(|p| wanted.is_empty() || wanted.contains(&p.column.name))
            .filter_map(|p| place(&p.name).map(|at| (p, at)))
            .collect();
        Ok(SegmentReader { path: path.to_owned(), file, range, columns, group: 0, open: None })
    }

    /// The next rows, about `most` of them; those that the range leaves out are left out. `None` at
    /// the end.
    pub(crate) fn next(&mut self, most: usize) -> Result<Option<Vec<R>>, StoreError> {
        let mut rows = self.next_unfiltered(most).map_err(|e| of_parquet(&self.path, e))?;
        if let Some(rows) = &mut rows {
            rows.retain(|row| self.range.holds(row));
        }
        Ok(rows)
    }

    fn next_unfiltered(&mut self, most: usize) -> Result<Option<Vec<R>>, ParquetError> {
        while self.open.is_none() {
            if self.group == self.file.num_row_groups() {
                return Ok(None);
            }
            let group = self.file.get_row_group(self.group)?;
            self.group += 1;
            if may_hold(group.metadata(), &self.range) {
                let readers = self.columns.iter().map(|&(_, at)| group.get_column_reader(at));
                let readers = readers.collect::<Result<_, _>>()?;
                self.open = Some((readers, group.metadata().num_rows() as usize));
            }
        }
        let Some((readers, left)) = &mut self.open else { return Ok(None) };
        let n = most.clamp(1, (*left).max(1)).min(*left);
        let mut rows = vec![R::default(); n];
        let mut heads = vec![HistHead::default(); n];
        for ((physical, _), reader) in self.columns.iter().zip(readers) {
            read_column(physical, reader, &mut rows, &mut heads)?;
        }
        *left -= n;
        if *left == 0 {
            self.open = None;
        }
        Ok(Some(rows))
    }
}

/// Whether the bounds of a row group let it hold rows of the range.
fn may_hold(group: &RowGroupMetaData, range: &RowRange) -> bool {
    let bounds = |names: [&str; 2]| {
        let column = group.columns().iter().find(|c| names.contains(&c.column_descr().name()));
        let (column, statistics) = (column?, column?.statistics()?);
        let Statistics::Int64(s) = statistics else { return None };
        // Those of instants of microseconds are in ns here, like all.
        let scale = if column.column_descr().name() == "last" { 1_000 } else { 1 };
        Some((s.min_opt()?.saturating_mul(scale), s.max_opt()?.saturating_mul(scale)))
    };
    let times = bounds(["start", "last"]).unwrap_or((i64::MIN, i64::MAX));
    let series = bounds(["series", "exporter"]).unwrap_or((0, u32::MAX.into()));
    range.meets(times, (series.0 as u32, series.1 as u32))
}

fn read_column<R>(
    physical: &Physical<R>,
    reader: &mut ColumnReader,
    rows: &mut [R],
    heads: &mut [HistHead],
) -> Result<(), ParquetError> {
    let n = rows.len();
    match &physical.column.kind {
        Kind::Close(_, set) | Kind::Instant(_, set) | Kind::Few(_, set) => {
            let values = numbers(reader, n)?;
            rows.iter_mut().zip(values).for_each(|(row, v)| set(row, v));
        }
        Kind::InstantMicros(_, set) => {
            let values = numbers(reader, n)?;
            rows.iter_mut().zip(values).for_each(|(row, v)| set(row, v.saturating_mul(1_000)));
        }
        Kind::Maybe(_, set) => {
            let ColumnReader::Int64ColumnReader(reader) = reader else {
                return Err(other(physical));
            };
            let (mut values, mut levels) = (Vec::with_capacity(n), Vec::with_capacity(n));
            while levels.len() < n {
                let most = n - levels.len();
                let (records, ..) =
                    reader.read_records(most, Some(&mut levels), None, &mut values)?;
                if records == 0 {
                    return Err(other(physical));
                }
            }
            let mut values = values.into_iter();
            for (row, level) in rows.iter_mut().zip(levels) {
                set(row, if level == 0 { None } else { values.next() });
            }
        }
        Kind::Real(_, set) => {
            let ColumnReader::FloatColumnReader(reader) = reader else {
                return Err(other(physical));
            };
            let values = read_all(reader, n)?;
            rows.iter_mut().zip(values).for_each(|(row, v)| set(row, v));
        }
        Kind::Octets(_, set) => {
            let values = octets(physical, reader, n)?;
            rows.iter_mut().zip(values).for_each(|(row, v)| set(row, v.data()));
        }
        Kind::Text(_, set) => {
            for (row, v) in rows.iter_mut().zip(octets(physical, reader, n)?) {
                set(row, std::str::from_utf8(v.data()).map_err(|_| other(physical))?);
            }
        }
        Kind::Address(_, set) => {
            let ColumnReader::FixedLenByteArrayColumnReader(reader) = reader else {
                return Err(other(physical));
            };
            let values: Vec<FixedLenByteArray> = read_all(reader, n)?;
            for (row, v) in rows.iter_mut().zip(values) {
                set(row, v.data().try_into().map_err(|_| other(physical))?);
            }
        }
        Kind::Hist(_, set) | Kind::Summary(_, set) => {
            let summary = matches!(physical.column.kind, Kind::Summary(..));
            match physical.part {
                Part::Whole | Part::Count => {
                    heads.iter_mut().zip(numbers(reader, n)?).for_each(|(h, v)| h.count = v as u64);
                }
                Part::Min => heads.iter_mut().zip(numbers(reader, n)?).for_each(|(h, v)| h.min = v),
                Part::Max => heads.iter_mut().zip(numbers(reader, n)?).for_each(|(h, v)| h.max = v),
                Part::Sum => {
                    heads.iter_mut().zip(numbers(reader, n)?).for_each(|(h, v)| h.sum = v.into());
                    if summary {
                        let all = rows.iter_mut().zip(heads);
                        all.for_each(|(row, h)| set(row, crate::HistBlob::from_parts(h, &[])));
                    }
                }
                Part::Buckets => {
                    for ((row, head), v) in
                        rows.iter_mut().zip(heads).zip(octets(physical, reader, n)?)
                    {
                        set(row, hist_from(*head, v.data()).ok_or_else(|| other(physical))?);
                    }
                }
            }
        }
    }
    Ok(())
}

fn numbers(reader: &mut ColumnReader, n: usize) -> Result<Vec<i64>, ParquetError> {
    match reader {
        ColumnReader::Int64ColumnReader(reader) => read_all(reader, n),
        _ => Err(ParquetError::General("a column is not of integers".into())),
    }
}

fn octets<R>(
    physical: &Physical<R>,
    reader: &mut ColumnReader,
    n: usize,
) -> Result<Vec<ByteArray>, ParquetError> {
    match reader {
        ColumnReader::ByteArrayColumnReader(reader) => read_all(reader, n),
        _ => Err(other(physical)),
    }
}

/// The next `n` values of a column that has one for each row.
fn read_all<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    n: usize,
) -> Result<Vec<T::T>, ParquetError> {
    let mut values = Vec::with_capacity(n);
    while values.len() < n {
        let (records, ..) = reader.read_records(n - values.len(), None, None, &mut values)?;
        if records == 0 {
            return Err(ParquetError::General("a column ends early".into()));
        }
    }
    Ok(values)
}

fn other<R>(physical: &Physical<R>) -> ParquetError {
    ParquetError::General(format!("the column {} is not what it should be", physical.name))
}

/// Checks all blocks of a segment; `octets` and `crcs` are the catalogue's.
///
/// # Errors
/// [`StoreError::Damaged`]; it cannot be read.
pub(crate) fn verify_segment(path: &Path, octets: u64, crcs: &[u32]) -> Result<(), StoreError> {
    CheckedFile::open(path, octets, crcs)
        .and_then(|file| file.check_all())
        .map_err(|error| of_io(path, error))
}

fn of_parquet(path: &Path, error: ParquetError) -> StoreError {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => of_io(path, *error),
            Err(inner) => StoreError::Damaged { path: path.to_owned(), what: inner.to_string() },
        },
        error => StoreError::Damaged { path: path.to_owned(), what: error.to_string() },
    }
}

fn of_io(path: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            StoreError::Damaged { path: path.to_owned(), what: error.to_string() }
        }
        _ => StoreError::io("read", path)(error),
    }
}
