//! What is given to the store: batches of rows, numbered by who writes them.

use std::sync::Arc;

use crate::column::{Kind, StoredRow};
use crate::flow::FlowRow;
use crate::hist_blob::HistBlob;
use crate::interface::InterfaceRow;
use crate::interval::IntervalRow;
use crate::rtt::RttRow;
use crate::table::Table;
use crate::varint;

/// Rows of one table, at the full rate.
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    /// Interval records.
    Intervals(Vec<IntervalRow>),
    /// Flow records.
    Flows(Vec<FlowRow>),
    /// Groups of passive round-trip times.
    Rtt(Vec<RttRow>),
    /// Counters of interfaces.
    Interfaces(Vec<InterfaceRow>),
}

impl Rows {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Rows::Intervals(rows) => rows.len(),
            Rows::Flows(rows) => rows.len(),
            Rows::Rtt(rows) => rows.len(),
            Rows::Interfaces(rows) => rows.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where they belong.
    pub fn table(&self) -> Table {
        match self {
            Rows::Intervals(_) => Table::Interval,
            Rows::Flows(_) => Table::Flow,
            Rows::Rtt(_) => Table::Rtt,
            Rows::Interfaces(_) => Table::Interface,
        }
    }

    /// The greatest number of a series in them.
    pub(crate) fn greatest_series(&self) -> Option<u32> {
        match self {
            Rows::Intervals(rows) => rows.iter().map(|r| r.series.0).max(),
            Rows::Flows(rows) => rows.iter().map(|r| r.exporter.0).max(),
            Rows::Rtt(rows) => rows.iter().map(|r| r.series.0).max(),
            Rows::Interfaces(rows) => rows.iter().map(|r| r.series.0).max(),
        }
    }
}

/// What a writer hands over at once: all of it is kept, or nothing.
///
/// A writer numbers its batches upwards. It may send one again when it does not know whether it was
/// kept: a number that is not above the last kept one of that writer is a repeat, and changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Who writes: a name that stays the same over restarts.
    pub writer: Arc<str>,
    /// Its number, from 1 up; gaps are allowed.
    pub number: u64,
    /// What was measured.
    pub rows: Arc<Rows>,
}

/// The promise for a batch: when it is durable, [`crate::Writer::poll_durable`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The batch's writer.
    pub writer: Arc<str>,
    /// The batch's number.
    pub number: u64,
}

impl Batch {
    /// Appends it as the journal holds it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        varint::put_bytes(out, self.writer.as_bytes());
        varint::put(out, self.number.into());
        match &*self.rows {
            Rows::Intervals(rows) => {
                out.push(INTERVALS);
                encode_rows(rows, out);
            }
            Rows::Flows(rows) => {
                out.push(FLOWS);
                encode_rows(rows, out);
            }
            Rows::Rtt(rows) => {
                out.push(RTT);
                encode_rows(rows, out);
            }
            Rows::Interfaces(rows) => {
                out.push(INTERFACES);
                encode_rows(rows, out);
            }
        }
    }

    /// Takes one off the front. `None`: it is damaged, or of a later version.
    pub(crate) fn decode(from: &mut &[u8]) -> Option<Batch> {
        let writer = std::str::from_utf8(varint::take_counted(from)?).ok()?.into();
        let number = varint::take_u64(from)?;
        let rows = match varint::take_bytes(from, 1)? {
            [INTERVALS] => Rows::Intervals(decode_rows(from)?),
            [FLOWS] => Rows::Flows(decode_rows(from)?),
            [RTT] => Rows::Rtt(decode_rows(from)?),
            [INTERFACES] => Rows::Interfaces(decode_rows(from)?),
            _ => return None,
        };
        Some(Batch { writer, number, rows: rows.into() })
    }
}

/// Appends rows, column by column: their number, the number of columns, and each column after its
/// length. Integers are differences from the row before.
fn encode_rows<R: StoredRow>(rows: &[R], out: &mut Vec<u8>) {
    varint::put(out, rows.len() as u128);
    varint::put(out, R::COLUMNS.len() as u128);
    let mut column = Vec::new();
    for c in R::COLUMNS {
        column.clear();
        encode_column(&c.kind, rows, &mut column);
        varint::put_bytes(out, &column);
    }
}

fn encode_column<R>(kind: &Kind<R>, rows: &[R], out: &mut Vec<u8>) {
    match kind {
        Kind::Close(get, _)
        | Kind::Instant(get, _)
        | Kind::InstantMicros(get, _)
        | Kind::Few(get, _) => {
            let mut before = 0;
            for row in rows {
                let value = i128::from(get(row));
                varint::put_signed(out, value - before);
                before = value;
            }
        }
        Kind::Maybe(get, _) => rows.iter().for_each(|row| match get(row) {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                varint::put_signed(out, value.into());
            }
        }),
        Kind::Real(get, _) => rows.iter().for_each(|row| out.extend(get(row).to_le_bytes())),
        Kind::Octets(get, _) => rows.iter().for_each(|row| varint::put_bytes(out, get(row))),
        Kind::Text(get, _) => {
            rows.iter().for_each(|row| varint::put_bytes(out, get(row).as_bytes()));
        }
        Kind::Address(get, _) => rows.iter().for_each(|row| out.extend(get(row))),
        Kind::Hist(get, _) | Kind::Summary(get, _) => {
            rows.iter().for_each(|row| varint::put_bytes(out, get(row).octets()));
        }
    }
}

fn decode_rows<R: StoredRow>(from: &mut &[u8]) -> Option<Vec<R>> {
    let n = usize::try_from(varint::take_u64(from)?).ok()?;
    let columns = usize::try_from(varint::take_u64(from)?).ok()?;
    // A later version adds columns at the end. What they mean is not known here.
    if columns > R::COLUMNS.len() || (columns == 0 && n > 0) {
        return None;
    }
    let mut rows: Vec<R> = Vec::new();
    for c in &R::COLUMNS[..columns] {
        let mut column = varint::take_counted(from)?;
        // Each row takes an octet of a column at least: no more is reserved than came.
        if n > column.len() {
            return None;
        }
        rows.resize(n, R::default());
        decode_column(&c.kind, &mut rows, &mut column)?;
        if !column.is_empty() {
            return None;
        }
    }
    Some(rows)
}

fn decode_column<R>(kind: &Kind<R>, rows: &mut [R], from: &mut &[u8]) -> Option<()> {
    let mut before = 0i128;
    for row in rows {
        match kind {
            Kind::Close(_, set)
            | Kind::Instant(_, set)
            | Kind::InstantMicros(_, set)
            | Kind::Few(_, set) => {
                before = before.checked_add(varint::take_signed(from)?)?;
                set(row, i64::try_from(before).ok()?);
            }
            Kind::Maybe(_, set) => match varint::take_bytes(from, 1)? {
                [0] => set(row, None),
                [1] => set(row, Some(varint::take_i64(from)?)),
                _ => return None,
            },
            Kind::Real(_, set) => {
                set(row, f32::from_le_bytes(varint::take_bytes(from, 4)?.try_into().ok()?));
            }
            Kind::Octets(_, set) => set(row, varint::take_counted(from)?),
            Kind::Text(_, set) => {
                set(row, std::str::from_utf8(varint::take_counted(from)?).ok()?);
            }
            Kind::Address(_, set) => set(row, varint::take_bytes(from, 16)?.try_into().ok()?),
            Kind::Hist(_, set) | Kind::Summary(_, set) => {
                set(row, HistBlob::from_octets(varint::take_counted(from)?)?);
            }
        }
    }
    Some(())
}

const INTERVALS: u8 = 1;
const FLOWS: u8 = 2;
const RTT: u8 = 3;
const INTERFACES: u8 = 4;

#[cfg(test)]
mod tests;
