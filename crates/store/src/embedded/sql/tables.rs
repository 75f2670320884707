//! What SQL can ask, for people and programs that write questions.

use serde::Serialize;

use super::{TABLES, names};
use crate::column::{Kind, StoredRow};
use crate::flow::FlowSum;
use crate::interface::InterfaceRow;
use crate::interval::IntervalRow;
use crate::rtt::RttRow;
use crate::table::Table;

/// A table that can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SqlTableInfo {
    /// Its name.
    pub name: &'static str,
    /// What a row is, in one line.
    pub about: &'static str,
    /// Its columns.
    pub columns: Vec<SqlColumnInfo>,
}

/// A column that can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SqlColumnInfo {
    /// Its name.
    pub name: String,
    /// Its type, as the backend names it.
    pub sql_type: String,
    /// What it holds.
    pub about: String,
}

/// All tables that can be asked, those of the catalogue first.
pub(in crate::embedded) fn sql_tables() -> Vec<SqlTableInfo> {
    let catalogue = CATALOGUE.iter().map(|&(name, about, columns)| SqlTableInfo {
        name,
        about,
        columns: columns
            .iter()
            .map(|&(name, sql_type, about)| SqlColumnInfo {
                name: name.into(),
                sql_type: sql_type.into(),
                about: about.into(),
            })
            .collect(),
    });
    let roll_ups = TABLES.into_iter().map(|table| SqlTableInfo {
        name: table.name(),
        about: about_of(table),
        columns: match table.raw() {
            Table::Interval => columns_of::<IntervalRow>(),
            Table::Rtt => columns_of::<RttRow>(),
            Table::Interface => columns_of::<InterfaceRow>(),
            _ => columns_of::<FlowSum>(),
        },
    });
    catalogue.chain(roll_ups).collect()
}

pub(crate) fn about_of(table: Table) -> &'static str {
    match table {
        Table::Interval1m => "intervals of probes, a minute each",
        Table::Interval1h => "intervals of probes, an hour each",
        Table::Interval1d => "intervals of probes, a day each",
        Table::Flow5m => "flows, five minutes each",
        Table::Flow1h => "flows, an hour each",
        Table::Rtt1m => "groups of passive round trips, a minute each",
        Table::Rtt1h => "groups of passive round trips, an hour each",
        Table::Rtt1d => "groups of passive round trips, a day each",
        Table::Interval => "intervals of probes, at the full rate",
        Table::Flow => "flow records",
        Table::Rtt => "groups of passive round trips, at the full rate",
        Table::Interface => "counters of interfaces, at the full rate",
        Table::Interface5m => "counters of interfaces, five minutes each",
        Table::Interface1h => "counters of interfaces, an hour each",
    }
}

fn columns_of<R: StoredRow>() -> Vec<SqlColumnInfo> {
    let of = |column: &'static crate::column::Column<R>| {
        let all = names(column.name, &column.kind);
        all.into_iter().map(move |name| {
            let (sql_type, about) = describe(&name, column.name, &column.kind);
            SqlColumnInfo { name, sql_type: sql_type.into(), about }
        })
    };
    R::COLUMNS.iter().flat_map(of).collect()
}

fn describe<R>(name: &str, column: &str, kind: &Kind<R>) -> (&'static str, String) {
    let what = column.replace('_', " ");
    match kind {
        Kind::Hist(..) | Kind::Summary(..) => match name.strip_prefix(column) {
            Some("_count") => ("INTEGER", format!("{what}: how many values")),
            Some("_min_ns") => ("INTEGER", format!("{what}: the least, ns")),
            Some("_max_ns") => ("INTEGER", format!("{what}: the greatest, ns")),
            Some("_sum_ns") => ("INTEGER", format!("{what}: the sum, ns")),
            _ => ("BLOB", format!("{what}: a histogram for hmerge, hq, hcount and hrange")),
        },
        Kind::Instant(..) | Kind::InstantMicros(..) => {
            ("INTEGER", format!("{what}, ns since 1970 UTC"))
        }
        Kind::Real(..) => ("REAL", what),
        Kind::Octets(..) => ("BLOB", what),
        Kind::Text(..) => ("TEXT", what),
        Kind::Address(..) => ("TEXT", format!("{what}, an address of IP")),
        Kind::Close(..) | Kind::Few(..) | Kind::Maybe(..) => ("INTEGER", what),
    }
}

type TableText =
    (&'static str, &'static str, &'static [(&'static str, &'static str, &'static str)]);

const CATALOGUE: [TableText; 3] = [
    (
        "series",
        "what is measured: a stream, an exporter, a group of round trips",
        &[
            ("id", "INTEGER", "its number, as `series` and `exporter` of other tables"),
            ("labels", "TEXT", "all of its labels, JSON"),
            ("station", "TEXT", "the station that measures it"),
            ("site", "TEXT", "where that is"),
            ("target", "TEXT", "what is measured"),
            ("class", "TEXT", "its class of service"),
            ("module", "TEXT", "by which instrument"),
            ("direction", "TEXT", "which way"),
            ("source_port", "INTEGER", "of UDP, where it tells streams apart; else 0"),
            ("destination_port", "INTEGER", "of UDP, where it tells streams apart; else 0"),
        ],
    ),
    (
        "event",
        "what happened",
        &[
            ("id", "INTEGER", "its number"),
            ("kind", "TEXT", "what it is: breach, gap, unit_failed"),
            ("severity", "TEXT", "info, warning, critical"),
            ("series", "INTEGER", "the series concerned, if it is one"),
            ("begin_ns", "INTEGER", "when it began, ns since 1970 UTC"),
            ("end_ns", "INTEGER", "when it ended, ns since 1970 UTC; null: it lasts"),
            ("title", "TEXT", "one line for people"),
            ("evidence", "TEXT", "what it was concluded from, JSON"),
        ],
    ),
    (
        "segment",
        "the store's files",
        &[
            ("id", "INTEGER", "its number"),
            ("tab", "TEXT", "the table whose rows it has"),
            ("path", "TEXT", "in the folder of the store"),
            ("t0", "INTEGER", "the least time of a row, ns since 1970 UTC"),
            ("t1", "INTEGER", "the greatest time of a row, ns since 1970 UTC"),
            ("k0", "INTEGER", "the least series"),
            ("k1", "INTEGER", "the greatest series"),
            ("rows", "INTEGER", "how many rows it has"),
            ("bytes", "INTEGER", "its length, octets"),
            ("crcs", "BLOB", "checksums of its parts"),
            ("rolled", "INTEGER", "1: its rows are in the next coarser table, too"),
            ("tier", "INTEGER", "how often it was compacted"),
        ],
    ),
];
