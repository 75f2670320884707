//! Rows as ClickHouse has them: columns of tables, RowBinary, states of roll-ups.
//!
//! Every column of [`StoredRow::COLUMNS`] becomes one or more columns of plain types, which versions
//! from 18.16 on have: no Nullable (states of it cannot be inserted there), no IPv6, no Map. On the wire
//! a row is the same for each table. A roll-up holds states of aggregates in their place, which the
//! server merges; a question reads them merged, as the same row.
//!
//! A histogram is `_count`, `_min_ns`, `_max_ns`, its sum in two parts (see [`split_sum`]), and its
//! buckets as two arrays, `_k` and `_n`: numbers of buckets and counts. ClickHouse adds those up by
//! `sumMap`, which is what [`crate::HistSum`] does.

use std::io::{self, Read};

use crate::column::{Column, Kind, On, StoredRow};
use crate::flow::{FLOW_SLOT_NS, FlowRow, FlowSum};
use crate::hist_blob::{HistBlob, HistHead};
use crate::interface::InterfaceRow;
use crate::interval::{IntervalRow, from_pairs, pairs};
use crate::rtt::RttRow;
use crate::table::Table;
use crate::{DAY_NS, varint};

/// A row that ClickHouse keeps.
pub(super) trait ServerRow: StoredRow {
    /// What rows of a roll-up are merged by, and what a table is sorted by.
    const KEYS: &'static [&'static str];
    /// The column of its series.
    const SERIES: &'static str;
    /// The column of its time.
    const TIME: &'static str;

    /// What tables are sorted by, where that is not the keys.
    fn order() -> String {
        quoted(Self::KEYS)
    }
}

impl ServerRow for IntervalRow {
    const KEYS: &'static [&'static str] = &["series", "start"];
    const SERIES: &'static str = "series";
    const TIME: &'static str = "start";
}

impl ServerRow for RttRow {
    const KEYS: &'static [&'static str] = &["series", "group", "start"];
    const SERIES: &'static str = "series";
    const TIME: &'static str = "start";
}

impl ServerRow for InterfaceRow {
    const KEYS: &'static [&'static str] = &["series", "start"];
    const SERIES: &'static str = "series";
    const TIME: &'static str = "start";
}

impl ServerRow for FlowSum {
    // The window first: a page of history reads a part.
    const KEYS: &'static [&'static str] = &[
        "start",
        "exporter",
        "destination_net",
        "source_net",
        "point",
        "protocol",
        "service_port",
        "app",
    ];
    const SERIES: &'static str = "exporter";
    const TIME: &'static str = "start";
}

impl ServerRow for FlowRow {
    // Records are never merged.
    const KEYS: &'static [&'static str] = &[];
    const SERIES: &'static str = "exporter";
    const TIME: &'static str = "last";

    fn order() -> String {
        format!("intDiv(`last`, {FLOW_SLOT_NS}), `exporter`, `destination`, `source`")
    }
}

/// A column of the store on the server.
pub(super) struct ServerField<R: 'static> {
    pub(super) column: &'static Column<R>,
    /// Columns of a row on the wire: name and type.
    pub(super) wire: Vec<(String, &'static str)>,
    /// Columns of the table, each with what it becomes from a row on the wire.
    pub(super) stored: Vec<StoredColumn>,
    /// What the columns of a row on the wire are read from, merged.
    pub(super) read: Vec<String>,
}

/// A column of a table.
pub(super) struct StoredColumn {
    pub(super) name: String,
    pub(super) kind: String,
    /// Made from a row on the wire; of a roll-up the state of an aggregate.
    pub(super) from: String,
}

/// How a column of a roll-up is added up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StateMerge {
    Key,
    Sum,
    Max,
    Min,
    /// Bits of any row.
    Or,
}

impl StateMerge {
    /// That of a column which is no histogram.
    fn of<R: ServerRow>(name: &str) -> StateMerge {
        match name {
            _ if R::KEYS.contains(&name) => StateMerge::Key,
            "jitter_forward_ns" | "jitter_backward_ns" | "t1_source" | "t4_source"
            | "peer_error_ns" | "speed_bps" => StateMerge::Max,
            "caveats" => StateMerge::Or,
            _ => StateMerge::Sum,
        }
    }

    fn function(self) -> &'static str {
        match self {
            StateMerge::Key => "any",
            StateMerge::Sum => "sum",
            StateMerge::Max => "max",
            StateMerge::Min => "min",
            StateMerge::Or => "groupBitOr",
        }
    }
}

/// The columns of a table, in the order of the wire.
pub(super) fn fields<R: ServerRow>(table: Table) -> Vec<ServerField<R>> {
    let has = |c: &&Column<R>| c.on == On::Every || !table.is_raw();
    R::COLUMNS.iter().filter(has).map(|column| field(table, column)).collect()
}

fn field<R: ServerRow>(table: Table, column: &'static Column<R>) -> ServerField<R> {
    let name = column.name;
    let of = StateMerge::of::<R>(name);
    let mut field = ServerField { column, wire: vec![], stored: vec![], read: vec![] };
    let mut one =
        |suffix: &str, kind, merge| field.add(table, format!("{name}{suffix}"), kind, merge);
    match &column.kind {
        Kind::Close(..) | Kind::Instant(..) | Kind::InstantMicros(..) | Kind::Few(..) => {
            let kind = match name {
                _ if name == R::SERIES => "UInt32",
                "caveats" => "UInt64",
                _ => "Int64",
            };
            one("", kind, of);
        }
        Kind::Maybe(..) => {
            one("", "Int64", of);
            one("_known", "UInt64", StateMerge::Sum);
        }
        Kind::Real(..) => one("", "Float32", of),
        Kind::Text(..) => one("", "String", of),
        Kind::Address(..) => one("", "FixedString(16)", of),
        Kind::Octets(..) => field.add_map(table, name),
        Kind::Hist(..) | Kind::Summary(..) => {
            one("_count", "UInt64", StateMerge::Sum);
            one("_min_ns", "Int64", StateMerge::Min);
            one("_max_ns", "Int64", StateMerge::Max);
            one("_sum_hi", "Int64", StateMerge::Sum);
            one("_sum_lo", "UInt64", StateMerge::Sum);
            if matches!(column.kind, Kind::Hist(..)) {
                field.add_map(table, name);
            }
        }
    }
    field
}

impl<R> ServerField<R> {
    fn add(&mut self, table: Table, name: String, kind: &'static str, merge: StateMerge) {
        let (stored, from, read) = match merge {
            _ if table.is_raw() => (kind.to_owned(), quote(&name), quote(&name)),
            StateMerge::Key => (kind.to_owned(), quote(&name), quote(&name)),
            _ => {
                let (f, name) = (merge.function(), quote(&name));
                // Before a sum of signed ones is as wide, it is of 292 years of ns.
                let state = format!("AggregateFunction({f}, {kind})");
                (state, format!("{f}State({name})"), format!("{f}Merge({name})"))
            }
        };
        self.stored.push(StoredColumn { name: name.clone(), kind: stored, from });
        self.read.push(read);
        self.wire.push((name, kind));
    }

    /// Keys and values that are added up by key.
    fn add_map(&mut self, table: Table, name: &str) {
        let columns = [(format!("{name}_k"), KEYS_TYPE), (format!("{name}_n"), VALUES_TYPE)];
        if table.is_raw() {
            for (name, kind) in &columns {
                let (kind, quoted) = ((*kind).to_owned(), quote(name));
                self.stored.push(StoredColumn { name: name.clone(), kind, from: quoted.clone() });
                self.read.push(quoted);
            }
        } else {
            let name = format!("{name}_map");
            let kind = format!("AggregateFunction(sumMap, {KEYS_TYPE}, {VALUES_TYPE})");
            let [(keys, _), (values, _)] = &columns;
            let from = format!("sumMapState({}, {})", quote(keys), quote(values));
            let merged = format!("sumMapMerge({})", quote(&name));
            self.read.extend((1..=2).map(|n| format!("tupleElement({merged}, {n})")));
            self.stored.push(StoredColumn { name, kind, from });
        }
        self.wire.extend(columns);
    }
}

/// A name in a question.
pub(super) fn quote(name: &str) -> String {
    format!("`{name}`")
}

/// Names in a question, with commas.
pub(super) fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ")
}

/// How much time a partition of a table is of, ns: what retention gives up at once.
pub(super) fn partition_ns(table: Table) -> i64 {
    table.period_ns().max(DAY_NS)
}

/// The statement that makes a table.
pub(super) fn create_table<R: ServerRow>(database: &str, table: Table) -> String {
    let mut columns: Vec<String> = fields::<R>(table)
        .iter()
        .flat_map(|f| &f.stored)
        .map(|c| format!("{} {}", quote(&c.name), c.kind))
        .collect();
    let (lot, engine) = match table.is_raw() {
        true => ("UInt64", "MergeTree"),
        // All else than keys is a state: of a plain column one value would be kept.
        false => ("AggregateFunction(max, UInt64)", "AggregatingMergeTree"),
    };
    columns.push(format!("lot {lot}"));
    let time = quote(R::TIME);
    columns.push(format!("t DateTime ALIAS toDateTime(intDiv({time}, 1000000000))"));
    format!(
        "CREATE TABLE IF NOT EXISTS {database}.{} ({}) ENGINE = {engine}() PARTITION BY \
         intDiv({time}, {}) ORDER BY ({})",
        table.name(),
        columns.join(", "),
        partition_ns(table),
        R::order()
    )
}

/// The columns of a row on the wire, as a question names them.
pub(super) fn structure<R: ServerRow>(table: Table) -> String {
    let fields = fields::<R>(table);
    let columns = fields.iter().flat_map(|f| &f.wire).map(|(name, kind)| format!("{name} {kind}"));
    columns.collect::<Vec<_>>().join(", ")
}

/// Appends a row as RowBinary.
pub(super) fn encode<R: ServerRow>(fields: &[ServerField<R>], row: &R, out: &mut Vec<u8>) {
    for field in fields {
        match &field.column.kind {
            Kind::Close(get, _)
            | Kind::Instant(get, _)
            | Kind::InstantMicros(get, _)
            | Kind::Few(get, _) => {
                let octets = get(row).to_le_bytes();
                let narrow = field.wire[0].1 == "UInt32";
                out.extend_from_slice(if narrow { &octets[..4] } else { &octets });
            }
            Kind::Maybe(get, _) => {
                let value = get(row);
                out.extend(value.unwrap_or(0).to_le_bytes());
                out.extend(u64::from(value.is_some()).to_le_bytes());
            }
            Kind::Real(get, _) => out.extend(get(row).to_le_bytes()),
            Kind::Text(get, _) => varint::put_bytes(out, get(row).as_bytes()),
            Kind::Address(get, _) => out.extend(get(row)),
            Kind::Octets(get, _) => {
                let pairs: Vec<(i16, u64)> =
                    from_pairs(get(row)).map(|(key, n)| (key as i16, n)).collect();
                encode_map(&pairs, out);
            }
            Kind::Hist(get, _) => {
                encode_head(&get(row).head(), out);
                encode_map(&get(row).buckets().collect::<Vec<_>>(), out);
            }
            Kind::Summary(get, _) => encode_head(&get(row).head(), out),
        }
    }
}

fn encode_head(head: &HistHead, out: &mut Vec<u8>) {
    // The extremes of nothing change no others.
    let (min, max) = if head.count == 0 { (i64::MAX, i64::MIN) } else { (head.min, head.max) };
    let (high, low) = split_sum(head.sum);
    out.extend(head.count.to_le_bytes());
    out.extend(min.to_le_bytes());
    out.extend(max.to_le_bytes());
    out.extend(high.to_le_bytes());
    out.extend(low.to_le_bytes());
}

/// A sum as `high * 2^32 + low`, with low below 2^32. Sums of both parts are the sum: one of 64 bits
/// overflows where clocks are decades apart.
fn split_sum(sum: i128) -> (i64, u64) {
    let high = (sum >> 32).clamp(i64::MIN.into(), i64::MAX.into());
    (high as i64, (sum & 0xFFFF_FFFF) as u64)
}

fn encode_map(pairs: &[(i16, u64)], out: &mut Vec<u8>) {
    varint::put(out, pairs.len() as u128);
    pairs.iter().for_each(|(key, _)| out.extend(key.to_le_bytes()));
    varint::put(out, pairs.len() as u128);
    pairs.iter().for_each(|(_, n)| out.extend(n.to_le_bytes()));
}

/// Reads rows as RowBinary from an answer.
pub(super) struct RowDecoder<R>(pub(super) R);

impl<I: Read> RowDecoder<I> {
    /// The next row; `None`: there is none.
    pub(super) fn row<R: ServerRow>(&mut self, fields: &[ServerField<R>]) -> io::Result<Option<R>> {
        // Only a whole row may follow, or nothing.
        let mut first = [0];
        if self.0.read(&mut first)? == 0 {
            return Ok(None);
        }
        let mut row = R::default();
        let mut from = RowDecoder(first.as_slice().chain(&mut self.0));
        for field in fields {
            from.field(field, &mut row)?;
        }
        Ok(Some(row))
    }

    fn field<R: ServerRow>(&mut self, field: &ServerField<R>, row: &mut R) -> io::Result<()> {
        match &field.column.kind {
            Kind::Close(_, set)
            | Kind::Instant(_, set)
            | Kind::InstantMicros(_, set)
            | Kind::Few(_, set) => match field.wire[0].1 {
                "UInt32" => set(row, u32::from_le_bytes(self.octets()?).into()),
                _ => set(row, i64::from_le_bytes(self.octets()?)),
            },
            Kind::Maybe(_, set) => {
                let value = i64::from_le_bytes(self.octets()?);
                set(row, (self.u64()? > 0).then_some(value));
            }
            Kind::Real(_, set) => set(row, f32::from_le_bytes(self.octets()?)),
            Kind::Text(_, set) => {
                let octets = self.counted()?;
                let text =
                    std::str::from_utf8(&octets).map_err(|_| odd("text that is not UTF-8"))?;
                set(row, text);
            }
            Kind::Address(_, set) => set(row, self.octets()?),
            Kind::Octets(_, set) => {
                let map = self.map()?.into_iter().map(|(key, n)| (key as u64, n));
                set(row, &pairs(map));
            }
            Kind::Hist(_, set) => {
                let head = self.head()?;
                let buckets = self.map()?;
                set(row, HistBlob::from_buckets(&head, buckets));
            }
            Kind::Summary(_, set) => {
                let head = self.head()?;
                set(row, HistBlob::from_parts(&head, &[]));
            }
        }
        Ok(())
    }

    fn head(&mut self) -> io::Result<HistHead> {
        let count = self.u64()?;
        let (min, max) = (i64::from_le_bytes(self.octets()?), i64::from_le_bytes(self.octets()?));
        let (high, low) = (i64::from_le_bytes(self.octets()?), self.u64()?);
        let sum = (i128::from(high) << 32) + i128::from(low);
        if count > 0 && min > max {
            return Err(odd("a histogram whose minimum is above its maximum"));
        }
        Ok(HistHead { count, min, max, sum })
    }

    fn map(&mut self) -> io::Result<Vec<(i16, u64)>> {
        let n = self.length()?;
        let mut keys = Vec::with_capacity(n.min(1 << 12));
        for _ in 0..n {
            keys.push(i16::from_le_bytes(self.octets()?));
        }
        if self.length()? != n {
            return Err(odd("a map whose keys and values differ in number"));
        }
        let mut map =
            keys.into_iter().map(|key| Ok((key, self.u64()?))).collect::<io::Result<Vec<_>>>()?;
        map.sort_unstable();
        map.retain(|&(_, n)| n > 0);
        Ok(map)
    }

    pub(super) fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.octets()?))
    }

    pub(super) fn octets<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut octets = [0; N];
        self.0.read_exact(&mut octets)?;
        Ok(octets)
    }

    /// Octets after their length.
    pub(super) fn counted(&mut self) -> io::Result<Vec<u8>> {
        let n = self.length()?;
        let mut octets = Vec::with_capacity(n.min(1 << 16));
        (&mut self.0).take(n as u64).read_to_end(&mut octets)?;
        if octets.len() < n { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(octets) }
    }

    /// Text after its length; what is no UTF-8 in it is marked.
    pub(super) fn text(&mut self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.counted()?).into_owned())
    }

    fn length(&mut self) -> io::Result<usize> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let [octet] = self.octets()?;
            value |= u64::from(octet & 0x7F) << shift;
            if octet < 0x80 {
                return usize::try_from(value).map_err(|_| odd("a length that is too large"));
            }
        }
        Err(odd("a length that is too large"))
    }
}

fn odd(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the answer has {what}"))
}

const KEYS_TYPE: &str = "Array(Int16)";
const VALUES_TYPE: &str = "Array(UInt64)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn there_and_back<R: ServerRow>(table: Table, rows: &[R]) {
        let fields = fields::<R>(table);
        let mut octets = Vec::new();
        rows.iter().for_each(|row| encode(&fields, row, &mut octets));
        let mut from = RowDecoder(&octets[..]);
        for row in rows {
            assert_eq!(from.row(&fields).unwrap().as_ref(), Some(row));
        }
        assert_eq!(from.row(&fields).unwrap(), None);
        // A row that is cut short is an error, never one less.
        let mut cut = RowDecoder(&octets[..octets.len() - 1]);
        let ends = std::iter::from_fn(|| cut.row(&fields).transpose()).any(|row| row.is_err());
        assert!(ends);
        (0..octets.len()).step_by(7).for_each(|at| {
            let mut odd = octets.clone();
            odd[at] ^= 0x55;
            let mut from = RowDecoder(&odd[..]);
            while let Ok(Some(_)) = from.row(&fields) {}
        });
    }

    #[test]
    fn a_row_is_the_same_on_its_way_to_the_server_and_back() {
        let rows = testing::intervals(3, 3, 4, 20);
        there_and_back(Table::Interval1m, &rows);
        let raw: Vec<IntervalRow> = rows
            .into_iter()
            .map(|row| IntervalRow {
                ipdv_forward: HistBlob::default(),
                ipdv_backward: HistBlob::default(),
                ..row
            })
            .collect();
        there_and_back(Table::Interval, &raw);
        there_and_back(Table::Rtt, &testing::rtt(5, 2, 3));
        there_and_back(Table::Interface, &testing::interfaces(6, 2));
        let flows = testing::flows(7, 1, 40, crate::HOUR_NS);
        there_and_back(Table::Flow, &flows);
        let sums: Vec<FlowSum> = flows.iter().map(|f| f.to_sum(crate::HOUR_NS)).collect();
        there_and_back(Table::Flow1h, &sums);
    }

    #[test]
    fn sums_of_both_parts_of_a_sum_are_the_sum() {
        let values = [0, -1, 1, i128::from(i64::MAX) * 5, i128::from(i64::MIN) * 3, 1 << 32];
        let parts = values.map(split_sum);
        let high: i64 = parts.iter().map(|(high, _)| high).sum();
        let low: u64 = parts.iter().map(|(_, low)| low).sum();
        let sum = (i128::from(high) << 32) + i128::from(low);
        assert_eq!(sum, values.iter().sum::<i128>());
    }

    #[test]
    fn tables_have_types_that_every_version_has() {
        let raw = create_table::<IntervalRow>("sonde", Table::Interval);
        assert!(raw.contains("`lost_forward` Int64, `lost_forward_known` UInt64"), "{raw}");
        assert!(!raw.contains("ipdv"), "{raw}");
        assert!(raw.ends_with("ENGINE = MergeTree() PARTITION BY intDiv(`start`, 86400000000000) ORDER BY (`series`, `start`)"), "{raw}");
        let hours = create_table::<IntervalRow>("sonde", Table::Interval1h);
        for part in [
            "`series` UInt32, `start` Int64, `length_ns` AggregateFunction(sum, Int64)",
            "`rtt_net_min_ns` AggregateFunction(min, Int64)",
            "`rtt_net_map` AggregateFunction(sumMap, Array(Int16), Array(UInt64))",
            "`caveats` AggregateFunction(groupBitOr, UInt64)",
            "`jitter_forward_ns` AggregateFunction(max, Float32)",
            "ENGINE = AggregatingMergeTree()",
        ] {
            assert!(hours.contains(part), "{part}: {hours}");
        }
        // Whatever is no key and no state would keep one value of many.
        for table in Table::ALL.into_iter().filter(|t| !t.is_raw()) {
            let text = match table.raw() {
                Table::Flow => create_table::<FlowSum>("sonde", table),
                Table::Rtt => create_table::<RttRow>("sonde", table),
                Table::Interface => create_table::<InterfaceRow>("sonde", table),
                _ => create_table::<IntervalRow>("sonde", table),
            };
            assert!(!text.contains("Nullable"), "{text}");
        }
    }
}
