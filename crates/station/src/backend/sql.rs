//! SQL, read-only, with limits of time, rows and memory.

use std::collections::BTreeSet;

use serde_json::Value;
use sonde_api::instant::QueryRange;
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_api::sql::{
    SqlCatalogue, SqlColumn, SqlColumnEntry, SqlQueries, SqlQuery, SqlTable, SqlTableEntry,
    exact_integer,
};
use sonde_store::{Limit, SqlValue, StoreError, TimeRange};

use super::{StationBackend, of_store};
use crate::service::steady;

impl SqlQueries for StationBackend {
    fn sql(&self, query: &SqlQuery, range: QueryRange) -> Result<SqlTable, ProblemDetails> {
        let begun = steady();
        let end = begun + i64::from(query.limit_s()) * 1_000_000_000;
        let limit = Limit {
            scanned_rows: SCANNED_ROWS,
            answer_rows: u64::from(query.limit_rows()),
            memory_octets: MEMORY_OCTETS,
            cut: true,
            stop: Some(self.core.deadlines.begin(end)),
        };
        let range = TimeRange { from_ns: range.from.ns(), to_ns: range.to.ns() };
        let found = self.core.reader.sql(&query.sql, range, &limit);
        let found = found.map_err(|error| match error {
            StoreError::Stopped if steady() >= end => {
                let why = format!(
                    "the statement took longer than {} s; have it read less, or raise limit_s (up to 50)",
                    query.limit_s()
                );
                ProblemDetails::new(ProblemKind::Unprocessable, why)
            }
            error => of_store(&error),
        })?;
        let mut columns: Vec<SqlColumn> = found
            .columns
            .into_iter()
            .map(|name| SqlColumn { name, sql_type: String::new(), values: Vec::new() })
            .collect();
        let mut types = vec![BTreeSet::new(); columns.len()];
        let rows = found.rows.len() as u64;
        for row in found.rows {
            for ((value, column), types) in row.into_iter().zip(&mut columns).zip(&mut types) {
                let (sql_type, value) = json_of(value);
                types.extend(sql_type);
                column.values.push(value);
            }
        }
        // SQLite has a type for each value, not for a column.
        for (column, types) in columns.iter_mut().zip(types) {
            column.sql_type = types.into_iter().collect::<Vec<_>>().join(", ");
        }
        let took_ms = (steady() - begun).max(0).unsigned_abs() / 1_000_000;
        Ok(SqlTable { columns, rows, truncated: found.truncated, took_ms })
    }

    fn sql_tables(&self) -> Result<SqlCatalogue, ProblemDetails> {
        let tables = self.core.reader.sql_tables().into_iter().map(|table| SqlTableEntry {
            name: table.name.to_owned(),
            about: table.about.to_owned(),
            columns: table
                .columns
                .into_iter()
                .map(|column| SqlColumnEntry {
                    name: column.name,
                    sql_type: column.sql_type,
                    about: column.about,
                })
                .collect(),
        });
        Ok(SqlCatalogue { tables: tables.collect() })
    }
}

/// A value and its type; octets are hexadecimal digits.
fn json_of(value: SqlValue) -> (Option<&'static str>, Value) {
    match value {
        SqlValue::Null => (None, Value::Null),
        SqlValue::Integer(n) => (Some("INTEGER"), exact_integer(n)),
        SqlValue::Real(x) => (Some("REAL"), Value::from(x)),
        SqlValue::Text(text) => (Some("TEXT"), Value::from(text)),
        octets @ SqlValue::Octets(_) => (Some("BLOB"), Value::from(octets.to_string())),
    }
}

/// Rows that a statement may read.
const SCANNED_ROWS: u64 = 20_000_000;
/// Memory that a statement may hold, octets. A client has four at a time.
const MEMORY_OCTETS: u64 = 64 << 20;
