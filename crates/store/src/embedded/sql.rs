//! SQL, read only: over catalogue, events and roll-ups.
//!
//! A question runs in a database of its own in memory. The catalogue is attached to it; of the
//! roll-ups that the question names, the columns that it reads are put into tables, of the range that
//! it is given. So it sees what is in the journal too, slows no writer, and can change nothing: what is
//! not reading is refused when the question is prepared.

mod functions;
mod linear;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit as SqliteLimit;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params_from_iter};
use serde::{Serialize, Serializer};

pub(crate) use tables::about_of;
pub(super) use tables::sql_tables;
pub use tables::{SqlColumnInfo, SqlTableInfo};

use super::lock;
use super::reader::Snapshot;
use crate::column::{Kind, StoredRow};
use crate::error::StoreError;
use crate::flow::{FlowSum, unmapped};
use crate::hist_blob::HistBlob;
use crate::interface::InterfaceRow;
use crate::interval::IntervalRow;
use crate::query::{Limit, Scan, Source as _, TimeRange};
use crate::rtt::RttRow;
use crate::table::Table;

/// The answer to a question in SQL.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SqlTable {
    /// Names of its columns.
    pub columns: Vec<String>,
    /// Its rows, each with a value for each column.
    pub rows: Vec<Vec<SqlValue>>,
    /// There were more rows than the limit, and it says to cut the answer there.
    pub truncated: bool,
    /// Segments that could not be read: their rows are missing.
    pub damaged_segments: u64,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlValue {
    /// None.
    Null,
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// Text.
    Text(String),
    /// Octets, as a histogram.
    Octets(Vec<u8>),
}

impl Serialize for SqlValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            SqlValue::Null => to.serialize_none(),
            SqlValue::Integer(n) => to.serialize_i64(*n),
            SqlValue::Real(x) => to.serialize_f64(*x),
            SqlValue::Text(text) => to.serialize_str(text),
            SqlValue::Octets(_) => to.collect_str(self),
        }
    }
}

impl std::fmt::Display for SqlValue {
    /// Octets are written in hexadecimal.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SqlValue::Null => Ok(()),
            SqlValue::Integer(n) => write!(f, "{n}"),
            SqlValue::Real(x) => write!(f, "{x}"),
            SqlValue::Text(text) => f.write_str(text),
            SqlValue::Octets(octets) => octets.iter().try_for_each(|o| write!(f, "{o:02x}")),
        }
    }
}

/// Which columns of which tables a question reads.
type Reads = BTreeMap<String, BTreeSet<String>>;

/// Answers a question from what a snapshot has. `catalogue` is the file.
pub(super) fn answer(
    text: &str,
    range: TimeRange,
    limit: &Limit,
    snapshot: &Snapshot,
    catalogue: &Path,
) -> Result<SqlTable, StoreError> {
    let failed = |error: rusqlite::Error| of_sqlite(error, limit);
    let mut connection = open(catalogue, limit).map_err(failed)?;
    let reads = reads(text, &mut connection).map_err(failed)?;
    let mut loading = Loading { connection: &connection, range, limit, rows: 0 };
    for (name, columns) in &reads {
        if let Some(table) = TABLES.into_iter().find(|table| table.name() == name) {
            loading.load(table, columns, snapshot)?;
        }
    }
    run(text, limit, &connection)
}

/// The database in memory, with empty tables, functions and the catalogue.
fn open(catalogue: &Path, limit: &Limit) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    let pages = (limit.memory_octets / PAGE).clamp(64, i64::from(i32::MAX) as u64);
    connection.pragma_update(None, "max_page_count", pages as i64)?;
    // What a sort needs goes to files, of which only so much is in memory.
    connection.pragma_update(None, "temp_store", "FILE")?;
    for (of, most) in LIMITS {
        connection.set_limit(of, most)?;
    }
    connection.execute("ATTACH DATABASE ?1 AS catalogue", [catalogue.display().to_string()])?;
    for table in TABLES {
        let columns: Vec<String> =
            columns_of(table).into_iter().map(|name| format!("\"{name}\"")).collect();
        connection.execute_batch(&format!(
            "CREATE TABLE {} ({})",
            table.name(),
            columns.join(", ")
        ))?;
    }
    functions::add(&connection)?;
    linear::add(&connection)?;
    let stop = limit.stop.clone();
    let stopped = move || stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
    connection.progress_handler(LOOK_EVERY, Some(stopped))?;
    Ok(connection)
}

/// Prepares a question, refuses what is not reading, and says what it reads.
fn reads(text: &str, connection: &mut Connection) -> rusqlite::Result<Reads> {
    let reads: Arc<Mutex<Reads>> = Arc::default();
    let noted = reads.clone();
    connection.authorizer(Some(move |context: AuthContext<'_>| match context.action {
        AuthAction::Read { table_name, column_name } => {
            let hidden = HIDDEN.contains(&table_name)
                || HIDDEN_KINDS.iter().any(|kind| table_name.starts_with(kind));
            lock(&noted).entry(table_name.into()).or_default().insert(column_name.into());
            if hidden { Authorization::Deny } else { Authorization::Allow }
        }
        AuthAction::Select | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Function { function_name } if linear::ALLOWED.contains(&function_name) => {
            Authorization::Allow
        }
        _ => Authorization::Deny,
    }))?;
    connection.prepare(text)?;
    let reads = lock(&reads).clone();
    connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
    Ok(reads)
}

fn run(text: &str, limit: &Limit, connection: &Connection) -> Result<SqlTable, StoreError> {
    let failed = |error: rusqlite::Error| of_sqlite(error, limit);
    connection.pragma_update(None, "query_only", true).map_err(failed)?;
    let mut statement = connection.prepare(text).map_err(failed)?;
    let columns: Vec<String> = statement.column_names().map(String::from).collect();
    let mut table = SqlTable { columns, ..SqlTable::default() };
    let mut octets = 0u64;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        if table.rows.len() as u64 >= limit.answer_rows {
            if limit.cut {
                table.truncated = true;
                break;
            }
            return Err(StoreError::Limit { limit: limit.answer_rows, of: "rows of the answer" });
        }
        let mut values = Vec::with_capacity(table.columns.len());
        for i in 0..table.columns.len() {
            let value = match row.get_ref(i).map_err(failed)? {
                ValueRef::Null => SqlValue::Null,
                ValueRef::Integer(n) => SqlValue::Integer(n),
                ValueRef::Real(x) => SqlValue::Real(x),
                ValueRef::Text(text) => SqlValue::Text(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Blob(octets) => SqlValue::Octets(octets.to_vec()),
            };
            octets += 32
                + match &value {
                    SqlValue::Text(text) => text.len() as u64,
                    SqlValue::Octets(octets) => octets.len() as u64,
                    _ => 0,
                };
            values.push(value);
        }
        if octets > limit.memory_octets {
            return Err(StoreError::Limit { limit: limit.memory_octets, of: "octets" });
        }
        table.rows.push(values);
    }
    Ok(table)
}

fn of_sqlite(error: rusqlite::Error, limit: &Limit) -> StoreError {
    use rusqlite::ErrorCode::{DiskFull, OperationInterrupted, OutOfMemory, TooBig};
    match error.sqlite_error_code() {
        Some(OperationInterrupted) => StoreError::Stopped,
        Some(DiskFull | OutOfMemory | TooBig) => {
            StoreError::Limit { limit: limit.memory_octets, of: "octets" }
        }
        Some(rusqlite::ErrorCode::AuthorizationForStatementDenied) => StoreError::Query {
            what: "this question does more than read series, segments, events and roll-ups".into(),
            help: "write one SELECT over the tables that docs/store.md names",
        },
        _ => StoreError::Query {
            what: format!("SQL: {error}"),
            help: "docs/store.md names the tables, their columns and the functions",
        },
    }
}

/// Puts rows into tables.
struct Loading<'a> {
    connection: &'a Connection,
    range: TimeRange,
    limit: &'a Limit,
    rows: u64,
}

impl Loading<'_> {
    fn load(
        &mut self,
        table: Table,
        columns: &BTreeSet<String>,
        snapshot: &Snapshot,
    ) -> Result<(), StoreError> {
        match table.raw() {
            Table::Interval => self.fill::<IntervalRow>(table, columns, |scan, sink| {
                snapshot.intervals(table, scan, sink)
            }),
            Table::Rtt => {
                self.fill::<RttRow>(table, columns, |scan, sink| snapshot.rtt(table, scan, sink))
            }
            Table::Interface => self.fill::<InterfaceRow>(table, columns, |scan, sink| {
                snapshot.interfaces(table, scan, sink)
            }),
            _ => self.fill::<FlowSum>(table, columns, |scan, sink| {
                snapshot.flow_sums(table, scan, sink)
            }),
        }
    }

    fn fill<R: StoredRow>(
        &mut self,
        table: Table,
        wanted: &BTreeSet<String>,
        read: impl FnOnce(&Scan, &mut crate::query::RowSink<R>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Loading { connection, range, limit, rows } = self;
        let failed = |error: rusqlite::Error| of_sqlite(error, limit);
        let is_wanted = |name: &String| wanted.contains(name);
        let columns: Vec<_> =
            R::COLUMNS.iter().filter(|c| names(c.name, &c.kind).iter().any(is_wanted)).collect();
        // A row that nothing is read of counts all the same.
        let columns = if columns.is_empty() { vec![&R::COLUMNS[0]] } else { columns };
        let keys = ["series", "exporter", "start"];
        let read_names: Vec<&str> = columns.iter().map(|c| c.name).chain(keys).collect();
        let own: Vec<String> = columns.iter().flat_map(|c| names(c.name, &c.kind)).collect();
        let quoted: Vec<String> = own.iter().map(|name| format!("\"{name}\"")).collect();
        let marks = vec!["?"; own.len()].join(", ");
        let sql = format!("INSERT INTO {} ({}) VALUES ({marks})", table.name(), quoted.join(", "));
        connection.execute_batch("BEGIN").map_err(failed)?;
        let mut insert = connection.prepare(&sql).map_err(failed)?;
        let scan =
            Scan { from_ns: range.from_ns, to_ns: range.to_ns, series: None, columns: &read_names };
        let mut values: Vec<Value> = Vec::new();
        read(&scan, &mut |row| {
            *rows += 1;
            limit.check_scanned(*rows)?;
            values.clear();
            columns.iter().for_each(|c| values_of(&c.kind, row, &mut values));
            insert.execute(params_from_iter(values.iter())).map_err(failed)?;
            Ok(())
        })?;
        connection.execute_batch("COMMIT").map_err(failed)
    }
}

/// All columns of a roll-up.
fn columns_of(table: Table) -> Vec<String> {
    fn all<R: StoredRow>() -> Vec<String> {
        R::COLUMNS.iter().flat_map(|c| names(c.name, &c.kind)).collect()
    }
    match table.raw() {
        Table::Interval => all::<IntervalRow>(),
        Table::Rtt => all::<RttRow>(),
        Table::Interface => all::<InterfaceRow>(),
        _ => all::<FlowSum>(),
    }
}

/// The columns that a column is here: those of segments, but that a histogram is whole.
fn names<R>(name: &str, kind: &Kind<R>) -> Vec<String> {
    let parts: &[&str] = match kind {
        Kind::Hist(..) => &["_count", "_min_ns", "_max_ns", "_sum_ns", "_hist"],
        Kind::Summary(..) => &["_count", "_min_ns", "_max_ns", "_sum_ns"],
        Kind::Instant(..) | Kind::InstantMicros(..) => &["_ns"],
        _ => &[""],
    };
    parts.iter().map(|part| format!("{name}{part}")).collect()
}

fn values_of<R>(kind: &Kind<R>, row: &R, out: &mut Vec<Value>) {
    let head = |blob: &HistBlob, out: &mut Vec<Value>| {
        let head = blob.head();
        let some = |value: i64| if head.count > 0 { Value::Integer(value) } else { Value::Null };
        out.push(Value::Integer(head.count as i64));
        out.extend([some(head.min), some(head.max)]);
        out.push(match i64::try_from(head.sum) {
            Ok(sum) => some(sum),
            Err(_) => Value::Real(head.sum as f64),
        });
    };
    match kind {
        Kind::Close(get, _)
        | Kind::Instant(get, _)
        | Kind::InstantMicros(get, _)
        | Kind::Few(get, _) => out.push(Value::Integer(get(row))),
        Kind::Maybe(get, _) => out.push(get(row).map_or(Value::Null, Value::Integer)),
        Kind::Real(get, _) => out.push(Value::Real(get(row).into())),
        Kind::Octets(get, _) => out.push(Value::Blob(get(row).to_vec())),
        Kind::Text(get, _) => out.push(Value::Text(get(row).to_owned())),
        Kind::Address(get, _) => out.push(Value::Text(unmapped(get(row)).to_string())),
        Kind::Summary(get, _) => head(get(row), out),
        Kind::Hist(get, _) => {
            head(get(row), out);
            out.push(Value::Blob(get(row).octets().to_vec()));
        }
    }
}

/// Those that can be asked.
const TABLES: [Table; 10] = [
    Table::Interval1m,
    Table::Interval1h,
    Table::Interval1d,
    Table::Flow5m,
    Table::Flow1h,
    Table::Rtt1m,
    Table::Rtt1h,
    Table::Rtt1d,
    Table::Interface5m,
    Table::Interface1h,
];
/// Tables of the catalogue that say nothing to people.
const HIDDEN: [&str; 2] = ["meta", "writer"];
/// Virtual tables that say how the store lies in files, by the begin of their names.
const HIDDEN_KINDS: [&str; 5] = ["sqlite_", "pragma_", "dbstat", "bytecode", "tables_used"];
/// What one step of a statement may cost: between two steps it is interrupted, within one it is not.
const LIMITS: [(SqliteLimit, i32); 4] = [
    (SqliteLimit::SQLITE_LIMIT_LENGTH, linear::LONGEST as i32),
    (SqliteLimit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 128),
    (SqliteLimit::SQLITE_LIMIT_EXPR_DEPTH, 200),
    (SqliteLimit::SQLITE_LIMIT_COMPOUND_SELECT, 100),
];
/// Steps between two looks whether it is to end.
const LOOK_EVERY: i32 = 16;
/// Octets of a page of the database in memory.
const PAGE: u64 = 4_096;

#[cfg(test)]
mod tests;
