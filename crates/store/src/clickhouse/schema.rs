//! The tables, made where they are missing; columns of this version are added to those of an earlier
//! one.

use std::collections::BTreeSet;

use super::http::ClickHouseClient;
use super::layout::{self, RowDecoder, StoredColumn};
use crate::embedded::{SqlColumnInfo, SqlTableInfo, about_of};
use crate::error::StoreError;
use crate::flow::{FlowRow, FlowSum};
use crate::interface::InterfaceRow;
use crate::interval::IntervalRow;
use crate::rtt::RttRow;
use crate::table::Table;

/// Makes the database, and what it lacks.
pub(super) fn prepare(client: &ClickHouseClient) -> Result<(), StoreError> {
    let database = client.database();
    let made =
        client.run("make the database", &format!("CREATE DATABASE IF NOT EXISTS {database}"));
    // A user without that right may have a database that somebody else made.
    if let Err(error @ StoreError::Unreachable { .. }) = made {
        return Err(error);
    }
    for (name, _, engine, columns) in LABELS {
        let columns: Vec<String> =
            columns.iter().map(|(name, kind, _)| format!("{name} {kind}")).collect();
        client.run(
            "make a table",
            &format!(
                "CREATE TABLE IF NOT EXISTS {database}.{name} ({}) ENGINE = {engine} ORDER BY id",
                columns.join(", ")
            ),
        )?;
    }
    for table in Table::ALL {
        client.run("make a table", &create(database, table))?;
    }
    add_columns(client)
}

fn create(database: &str, table: Table) -> String {
    match table {
        Table::Flow => layout::create_table::<FlowRow>(database, table),
        Table::Flow5m | Table::Flow1h => layout::create_table::<FlowSum>(database, table),
        Table::Rtt | Table::Rtt1m | Table::Rtt1h | Table::Rtt1d => {
            layout::create_table::<RttRow>(database, table)
        }
        Table::Interface | Table::Interface5m | Table::Interface1h => {
            layout::create_table::<InterfaceRow>(database, table)
        }
        Table::Interval | Table::Interval1m | Table::Interval1h | Table::Interval1d => {
            layout::create_table::<IntervalRow>(database, table)
        }
    }
}

fn stored(table: Table) -> Vec<StoredColumn> {
    fn of<R: layout::ServerRow>(table: Table) -> Vec<StoredColumn> {
        layout::fields::<R>(table).into_iter().flat_map(|f| f.stored).collect()
    }
    match table {
        Table::Flow => of::<FlowRow>(table),
        Table::Flow5m | Table::Flow1h => of::<FlowSum>(table),
        Table::Rtt | Table::Rtt1m | Table::Rtt1h | Table::Rtt1d => of::<RttRow>(table),
        Table::Interface | Table::Interface5m | Table::Interface1h => of::<InterfaceRow>(table),
        Table::Interval | Table::Interval1m | Table::Interval1h | Table::Interval1d => {
            of::<IntervalRow>(table)
        }
    }
}

fn add_columns(client: &ClickHouseClient) -> Result<(), StoreError> {
    let database = client.database();
    let question = format!(
        "SELECT table, name FROM system.columns WHERE database = '{database}' FORMAT RowBinary"
    );
    let found = rows(client, &question, |from| Ok((from.text()?, from.text()?)))?;
    let found: BTreeSet<(String, String)> = found.into_iter().collect();
    for table in Table::ALL {
        let missing =
            |c: &StoredColumn| !found.contains(&(table.name().to_owned(), c.name.clone()));
        for column in stored(table).into_iter().filter(missing) {
            let (name, kind) = (layout::quote(&column.name), column.kind);
            let table = table.name();
            client.run(
                "add a column",
                &format!("ALTER TABLE {database}.{table} ADD COLUMN {name} {kind}"),
            )?;
        }
    }
    Ok(())
}

/// All tables that SQL can ask.
pub(super) fn sql_tables() -> Vec<SqlTableInfo> {
    let labels = LABELS.into_iter().map(|(name, about, _, columns)| SqlTableInfo {
        name,
        about,
        columns: columns.iter().map(|&(name, kind, about)| column(name, kind, about)).collect(),
    });
    let rows = Table::ALL.into_iter().map(|table| {
        let mut columns: Vec<SqlColumnInfo> = stored(table)
            .iter()
            .map(|c| {
                let what = c.name.replace('_', " ");
                match c.kind.strip_prefix("AggregateFunction(").and_then(|f| f.split_once(',')) {
                    Some((f, _)) => column(&c.name, &c.kind, &format!("{what}: read by {f}Merge")),
                    None => column(&c.name, &c.kind, &what),
                }
            })
            .collect();
        columns.push(column("t", "DateTime", "its time, in whole seconds"));
        SqlTableInfo { name: table.name(), about: about_of(table), columns }
    });
    labels.chain(rows).collect()
}

fn column(name: &str, kind: &str, about: &str) -> SqlColumnInfo {
    SqlColumnInfo { name: name.into(), sql_type: kind.into(), about: about.into() }
}

/// The rows of an answer as RowBinary.
pub(super) fn rows<T>(
    client: &ClickHouseClient,
    question: &str,
    mut row: impl FnMut(&mut RowDecoder<&[u8]>) -> std::io::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut octets = Vec::new();
    let mut body = client.select(question)?;
    std::io::Read::read_to_end(&mut body, &mut octets).map_err(client.unreachable())?;
    let mut from = RowDecoder(&octets[..]);
    let mut all = Vec::new();
    while !from.0.is_empty() {
        all.push(row(&mut from).map_err(client.unreachable())?);
    }
    Ok(all)
}

/// Name, what a row is, engine, columns.
type LabelTable = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str, &'static str)],
);

/// What belongs to no row. Of rows with one `id` any one counts, of events the last one (`FINAL`).
const LABELS: [LabelTable; 2] = [
    (
        "series",
        "what is measured: a stream, an exporter, a group of round trips",
        "ReplacingMergeTree()",
        &[
            ("id", "UInt32", "its number, as `series` and `exporter` of other tables"),
            ("labels", "String", "all of its labels, JSON"),
        ],
    ),
    (
        "event",
        "what happened; FINAL leaves out what was changed",
        "ReplacingMergeTree(change)",
        &[
            ("id", "UInt64", "its number"),
            ("kind", "String", "what it is: breach, gap, unit_failed"),
            ("severity", "String", "info, warning, critical"),
            ("series", "Int64", "the series concerned; -1: none"),
            ("begin_ns", "Int64", "when it began, ns since 1970 UTC"),
            ("end_ns", "Int64", "when it ended, ns since 1970 UTC; 9223372036854775807: it lasts"),
            ("title", "String", "one line for people"),
            ("evidence", "String", "what it was concluded from, JSON"),
            ("change", "UInt64", "of the rows of an event the last one has the greatest"),
        ],
    ),
];
