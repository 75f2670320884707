//! Segments: immutable Parquet files of sorted rows.
//!
//! Keys and instants are DELTA_BINARY_PACKED, counters go by dictionary, minima, maxima, sums and
//! floating-point numbers are BYTE_STREAM_SPLIT (7 octets a record less than by differences, where a
//! series has few rows in a segment), buckets of histograms PLAIN, all packed by Zstandard. A
//! histogram is five columns: count, minimum, maximum, sum and its buckets, in the form of
//! [`crate::HistBlob`] without the head; in front stands the version, with the top bit set where the
//! sum is wider than 64 bits and stands there. Row groups have the bounds of series and time. The
//! catalogue keeps a CRC-32 of each block of [`BLOCK`] octets, checked when a block is first read.

mod file;
mod read;
mod write;

pub(super) use read::{RowRange, SegmentReader, verify_segment};
#[cfg(test)]
pub(super) use write::Written;
pub(super) use write::{GROUP, write_segment};

use crate::column::{Column, Kind, On, StoredRow};
use crate::hist_blob::{HIST_BLOB_VERSION, HistBlob, HistHead};
use crate::table::Table;
use crate::varint;

/// Which part of a column of rows a column of the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    Count,
    Min,
    Max,
    Sum,
    Buckets,
}

/// A column of the file.
struct Physical<R: 'static> {
    column: &'static Column<R>,
    part: Part,
    name: String,
}

/// The columns of a table's files, in order.
fn physical<R: StoredRow>(table: Table) -> Vec<Physical<R>> {
    let mut all = Vec::new();
    for column in R::COLUMNS {
        if column.on == On::RollUp && table.is_raw() {
            continue;
        }
        let parts: &[(Part, &str)] = match &column.kind {
            Kind::Hist(..) => &HIST_PARTS,
            Kind::Summary(..) => &HIST_PARTS[..4],
            _ => &[(Part::Whole, "")],
        };
        for &(part, suffix) in parts {
            all.push(Physical { column, part, name: format!("{}{suffix}", column.name) });
        }
    }
    all
}

/// The octets of the column of buckets.
fn buckets_of(blob: &HistBlob) -> Vec<u8> {
    let Some((head, tail)) = blob.split() else { return Vec::new() };
    let wide = i64::try_from(head.sum).is_err();
    if tail.is_empty() && !wide {
        return Vec::new();
    }
    let mut out = Vec::with_capacity(1 + tail.len());
    out.push(HIST_BLOB_VERSION | if wide { WIDE_SUM } else { 0 });
    if wide {
        varint::put_signed(&mut out, head.sum);
    }
    out.extend_from_slice(tail);
    out
}

/// The histogram of a head and the octets of the column of buckets. `None`: of a later version.
fn hist_from(mut head: HistHead, mut buckets: &[u8]) -> Option<HistBlob> {
    if !buckets.is_empty() {
        let version = varint::take_bytes(&mut buckets, 1)?[0];
        if version & !WIDE_SUM != HIST_BLOB_VERSION {
            return None;
        }
        if version & WIDE_SUM != 0 {
            head.sum = varint::take_signed(&mut buckets)?;
        }
    }
    Some(HistBlob::from_parts(&head, buckets))
}

/// Octets of a file that share a checksum.
pub(super) const BLOCK: usize = 256 * 1024;

const HIST_PARTS: [(Part, &str); 5] = [
    (Part::Count, "_count"),
    (Part::Min, "_min_ns"),
    (Part::Max, "_max_ns"),
    (Part::Sum, "_sum_ns"),
    (Part::Buckets, "_hist"),
];
const WIDE_SUM: u8 = 0x80;
/// Columns whose bounds are kept for each row group.
const BOUNDED: [&str; 4] = ["series", "exporter", "start", "last"];

#[cfg(test)]
mod tests;
