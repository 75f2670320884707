//! Rows for other programs: CSV, JSON Lines, Parquet.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;

use serde_json::{Map, Value, json};
use sonde_results::Caveat;
use sonde_wire::NotSent;

use super::disk::HostDisk;
use super::lock;
use super::segment::{GROUP, write_segment};
use crate::column::{Kind, On, StoredRow};
use crate::error::StoreError;
use crate::flow::{FlowRow, FlowSum, unmapped};
use crate::hist_blob::{HistBlob, HistSum};
use crate::interface::InterfaceRow;
use crate::interval::{IntervalRow, from_pairs};
use crate::query::{Limit, RowSink, Scan, Source, TimeRange};
use crate::rtt::RttRow;
use crate::series::{SeriesFilter, SeriesLabels};
use crate::table::Table;

/// Which rows, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Export {
    /// Of this table; where rows of it are not rolled up yet, those of a finer one stand for them.
    pub table: Table,
    /// Of this time.
    pub range: TimeRange,
    /// Of these series and groups.
    pub filter: SeriesFilter,
}

/// How rows are written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportText {
    /// RFC 4180: a line of names, then a line for each row. Of histograms count, minimum, maximum, sum,
    /// median and p99.
    Csv,
    /// An object a line. Of histograms also the buckets, as pairs of bucket and count.
    JsonLines,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Rows.
    pub rows: u64,
    /// Segments that could not be read: their rows are missing.
    pub damaged_segments: u64,
}

/// Asks a backend for the rows of one instant: how many they are, and how many segments could not be
/// read. It may ask again, where segments went away while they were read.
pub(crate) type Asking<'a> =
    dyn Fn(&dyn Fn(&dyn Source) -> Result<u64, StoreError>) -> Result<(u64, u64), StoreError> + 'a;

/// Writes rows as text to what `open` gives.
pub(crate) fn export_text(
    ask: &Asking,
    export: &Export,
    format: ExportText,
    limit: &Limit,
    open: &mut dyn FnMut() -> io::Result<Box<dyn Write>>,
) -> Result<Exported, StoreError> {
    let open = Mutex::new(open);
    let (rows, damaged_segments) = ask(&|source| {
        let mut out = lock(&open)().map_err(failed)?;
        let rows = match export.table.raw() {
            Table::Interval => text::<IntervalRow>(export, format, limit, source, &mut out),
            Table::Rtt => text::<RttRow>(export, format, limit, source, &mut out),
            Table::Interface => text::<InterfaceRow>(export, format, limit, source, &mut out),
            _ if export.table.is_raw() => text::<FlowRow>(export, format, limit, source, &mut out),
            _ => text::<FlowSum>(export, format, limit, source, &mut out),
        }?;
        out.flush().map_err(failed)?;
        Ok(rows)
    })?;
    Ok(Exported { rows, damaged_segments })
}

/// Writes rows as a Parquet file.
pub(crate) fn export_parquet(
    ask: &Asking,
    export: &Export,
    limit: &Limit,
    path: &Path,
) -> Result<Exported, StoreError> {
    let (rows, damaged_segments) = ask(&|source| match export.table.raw() {
        Table::Interval => parquet::<IntervalRow>(export, limit, source, path),
        Table::Rtt => parquet::<RttRow>(export, limit, source, path),
        Table::Interface => parquet::<InterfaceRow>(export, limit, source, path),
        _ if export.table.is_raw() => parquet::<FlowRow>(export, limit, source, path),
        _ => parquet::<FlowSum>(export, limit, source, path),
    })?;
    Ok(Exported { rows, damaged_segments })
}

fn failed(error: io::Error) -> StoreError {
    StoreError::io("write", Path::new("the export"))(error)
}

/// Rows that can be exported.
trait Exportable: StoredRow {
    fn scan(
        source: &dyn Source,
        table: Table,
        scan: &Scan,
        sink: &mut RowSink<Self>,
    ) -> Result<(), StoreError>;

    /// Whether its group is asked for.
    fn is_of(&self, _: &[String]) -> bool {
        true
    }
}

impl Exportable for IntervalRow {
    fn scan(
        source: &dyn Source,
        table: Table,
        scan: &Scan,
        sink: &mut RowSink<Self>,
    ) -> Result<(), StoreError> {
        source.intervals(table, scan, sink)
    }
}

impl Exportable for RttRow {
    fn scan(
        source: &dyn Source,
        table: Table,
        scan: &Scan,
        sink: &mut RowSink<Self>,
    ) -> Result<(), StoreError> {
        source.rtt(table, scan, sink)
    }

    fn is_of(&self, groups: &[String]) -> bool {
        groups.is_empty() || groups.iter().any(|group| **group == *self.group)
    }
}

impl Exportable for InterfaceRow {
    fn scan(
        source: &dyn Source,
        table: Table,
        scan: &Scan,
        sink: &mut RowSink<Self>,
    ) -> Result<(), StoreError> {
        source.interfaces(table, scan, sink)
    }
}

impl Exportable for FlowRow {
    fn scan(
        source: &dyn Source,
        _: Table,
        scan: &Scan,
        sink: &mut RowSink<Self>,
    ) -> Result<(), StoreError> {
        source.flows(scan, sink)
    }
}

impl Exportable for FlowSum {
    fn scan(
        source: &dyn Source,
        table: Table,
        scan: &Scan,
        sink: &mut RowSink<Self>,
    ) -> Result<(), StoreError> {
        source.flow_sums(table, scan, sink)
    }
}

/// Reads the rows that are asked for. How many there were.
fn each<R: Exportable>(
    export: &Export,
    limit: &Limit,
    source: &dyn Source,
    mut sink: impl FnMut(&R, &SeriesLabels) -> Result<(), StoreError>,
) -> Result<u64, StoreError> {
    let series = source.series().into_iter().filter(|s| export.filter.matches(s));
    let labels: BTreeMap<u32, SeriesLabels> = series.map(|s| (s.id.0, s.labels)).collect();
    let scan = Scan {
        from_ns: export.range.from_ns,
        to_ns: export.range.to_ns,
        series: Some(labels.keys().copied().collect()),
        columns: &[],
    };
    let mut rows = 0;
    R::scan(source, export.table, &scan, &mut |row| {
        let Some(labels) = labels.get(&row.series()) else { return Ok(()) };
        if !row.is_of(&export.filter.groups) {
            return Ok(());
        }
        rows += 1;
        limit.check_scanned(rows)?;
        sink(row, labels)
    })?;
    Ok(rows)
}

fn text<R: Exportable>(
    export: &Export,
    format: ExportText,
    limit: &Limit,
    source: &dyn Source,
    out: &mut dyn Write,
) -> Result<u64, StoreError> {
    let columns = || R::COLUMNS.iter().filter(|c| c.on == On::Every || !export.table.is_raw());
    if format == ExportText::Csv {
        let own = columns().flat_map(|c| csv_names(c.name, &c.kind));
        let names: Vec<String> = LABELS.into_iter().map(String::from).chain(own).collect();
        write!(out, "{}\r\n", names.join(",")).map_err(failed)?;
    }
    let mut line = String::new();
    each(export, limit, source, |row: &R, labels| {
        line.clear();
        let labels = LABELS.map(|name| labels.get(name).unwrap_or_default());
        match format {
            ExportText::Csv => {
                labels.iter().for_each(|label| cell(label, &mut line));
                for c in columns() {
                    csv_cells(c.name, &c.kind, row, &mut line);
                }
                line.pop();
                line.push_str("\r\n");
            }
            ExportText::JsonLines => {
                let labels = LABELS.into_iter().zip(labels);
                let mut object: Map<String, Value> =
                    labels.map(|(name, label)| (name.into(), label.into())).collect();
                for c in columns() {
                    object.insert(json_name(c.name, &c.kind), json_value(c.name, &c.kind, row));
                }
                line.push_str(&Value::Object(object).to_string());
                line.push('\n');
            }
        }
        out.write_all(line.as_bytes()).map_err(failed)
    })
}

/// Rows come from a reader that pushes, and go to a writer that pulls.
fn parquet<R: Exportable>(
    export: &Export,
    limit: &Limit,
    source: &dyn Source,
    path: &Path,
) -> Result<u64, StoreError> {
    let (push, pull) = sync_channel::<Result<R, StoreError>>(4_096);
    std::thread::scope(|scope| {
        let rows = sorted_groups(pull);
        let writing = scope.spawn(move || write_segment(&HostDisk, path, export.table, rows));
        let read = each(export, limit, source, |row: &R, _| {
            // The writer has ended: its error says why.
            push.send(Ok(row.clone())).map_err(|_| StoreError::Stopped)
        });
        if read.is_err() {
            // Half a file is none.
            let _ = push.send(Err(StoreError::Stopped));
        }
        drop(push);
        let written = writing.join().unwrap_or(Err(StoreError::Stopped));
        match (read, written) {
            (Err(StoreError::Stopped), Err(error)) | (Ok(_), Err(error)) => Err(error),
            (read, _) => read,
        }
    })
}

/// Rows of the journal, and those that stand for a roll-up, come behind those of segments. Each group of
/// a file is in order by itself, so that whoever reads a range of series finds it by the bounds of pages.
fn sorted_groups<R: StoredRow>(
    rows: impl IntoIterator<Item = Result<R, StoreError>>,
) -> impl Iterator<Item = Result<R, StoreError>> {
    let mut rows = rows.into_iter();
    std::iter::from_fn(move || {
        let group: Result<Vec<R>, StoreError> = rows.by_ref().take(GROUP).collect();
        match group {
            Ok(group) if group.is_empty() => None,
            Ok(mut group) => {
                group.sort_by_cached_key(StoredRow::key);
                Some(group.into_iter().map(Ok).collect())
            }
            Err(error) => Some(vec![Err(error)]),
        }
    })
    .flatten()
}

fn csv_names<R>(name: &str, kind: &Kind<R>) -> Vec<String> {
    let parts: &[&str] = match kind {
        Kind::Hist(..) => &["_count", "_min_ns", "_max_ns", "_sum_ns", "_p50_ns", "_p99_ns"],
        Kind::Summary(..) => &["_count", "_min_ns", "_max_ns", "_sum_ns"],
        _ => return vec![json_name(name, kind)],
    };
    parts.iter().map(|part| format!("{name}{part}")).collect()
}

fn json_name<R>(name: &str, kind: &Kind<R>) -> String {
    match kind {
        Kind::Instant(..) | Kind::InstantMicros(..) => format!("{name}_ns"),
        _ => name.to_owned(),
    }
}

/// A cell and the comma behind it.
fn cell(value: &str, line: &mut String) {
    match value.contains([',', '"', '\r', '\n']) {
        true => line.push_str(&format!("\"{}\"", value.replace('"', "\"\""))),
        false => line.push_str(value),
    }
    line.push(',');
}

fn csv_cells<R>(name: &str, kind: &Kind<R>, row: &R, line: &mut String) {
    let mut hist = |blob: &HistBlob, quantiles: &[f64]| {
        let head = blob.head();
        cell(&head.count.to_string(), line);
        let some = |value: String| if head.count > 0 { value } else { String::new() };
        for value in
            [some(head.min.to_string()), some(head.max.to_string()), some(head.sum.to_string())]
        {
            cell(&value, line);
        }
        let mut sum = HistSum::default();
        sum.add(blob);
        for &q in quantiles {
            cell(&sum.quantile(q).map_or(String::new(), |ns| ns.to_string()), line);
        }
    };
    match kind {
        Kind::Hist(get, _) => hist(get(row), &[0.5, 0.99]),
        Kind::Summary(get, _) => hist(get(row), &[]),
        _ => match json_value(name, kind, row) {
            Value::Null => cell("", line),
            Value::String(text) => cell(&text, line),
            Value::Array(names) => {
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                cell(&names.join("|"), line);
            }
            Value::Object(counts) => {
                let counts: Vec<String> =
                    counts.iter().map(|(name, n)| format!("{name}:{n}")).collect();
                cell(&counts.join("|"), line);
            }
            value => cell(&value.to_string(), line),
        },
    }
}

fn json_value<R>(name: &str, kind: &Kind<R>, row: &R) -> Value {
    match kind {
        Kind::Few(get, _) if name == "caveats" => {
            let mask = get(row) as u64;
            let all = Caveat::ALL.into_iter().filter(|&c| mask >> c as u8 & 1 == 1);
            all.map(|caveat| json!(caveat)).collect()
        }
        Kind::Few(get, _) if name.ends_with("_source") => {
            SOURCES.get(get(row) as usize).copied().flatten().map_or(Value::Null, Value::from)
        }
        Kind::Close(get, _)
        | Kind::Instant(get, _)
        | Kind::InstantMicros(get, _)
        | Kind::Few(get, _) => get(row).into(),
        Kind::Maybe(get, _) => get(row).into(),
        Kind::Real(get, _) => get(row).into(),
        Kind::Octets(get, _) => from_pairs(get(row))
            .map(|(what, n)| {
                let what = what as usize;
                let known = match name {
                    "caveat_counts" => Caveat::ALL
                        .get(what)
                        .and_then(|caveat| json!(caveat).as_str().map(String::from)),
                    _ => NotSent::ALL.get(what).map(|why| why.name().to_owned()),
                };
                (known.unwrap_or_else(|| what.to_string()), Value::from(n))
            })
            .collect(),
        // What is JSON already stays so.
        Kind::Text(get, _) if name == "extra" => {
            serde_json::from_str(get(row)).unwrap_or(Value::Null)
        }
        Kind::Text(get, _) => get(row).into(),
        Kind::Address(get, _) => unmapped(get(row)).to_string().into(),
        Kind::Hist(get, _) => json_hist(get(row), true),
        Kind::Summary(get, _) => json_hist(get(row), false),
    }
}

fn json_hist(blob: &HistBlob, with_buckets: bool) -> Value {
    let head = blob.head();
    if head.count == 0 {
        return Value::Null;
    }
    let sum = i64::try_from(head.sum).map_or_else(|_| json!(head.sum as f64), Value::from);
    let mut object =
        json!({"count": head.count, "min_ns": head.min, "max_ns": head.max, "sum_ns": sum});
    if with_buckets {
        object["buckets"] = blob.buckets().map(|(bucket, n)| json!([bucket, n])).collect();
    }
    object
}

/// Labels that stand in front of a row.
const LABELS: [&str; 5] = ["station", "site", "target", "class", "module"];
/// By their codes.
const SOURCES: [Option<&str>; 6] =
    [None, Some("hardware"), Some("driver"), Some("kernel"), Some("file"), Some("user")];

#[cfg(test)]
mod tests;
