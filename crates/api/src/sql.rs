//! SQL, read-only and within limits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Asked;
use crate::instant::{GivenInstant, QueryRange, UtcInstant};
use crate::problem::{ProblemDetails, ProblemKind};
use crate::route::{ApiRoute, NoParams, RouteHead};

/// What carries SQL out.
pub trait SqlQueries {
    /// The answer of one statement that reads. One that writes is a 422.
    fn sql(&self, query: &SqlQuery, range: QueryRange) -> Result<SqlTable, ProblemDetails>;

    /// Tables and their columns.
    fn sql_tables(&self) -> Result<SqlCatalogue, ProblemDetails>;
}

/// A statement and its limits. It may hold 64 MiB of memory, and read 20 million rows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlQuery {
    /// One statement that reads; up to 65,536 characters.
    pub sql: String,
    /// Rows of the answer, 1 to 10,000; absent: 1,000. More are counted as `truncated`.
    #[serde(default)]
    #[schemars(range(min = 1, max = 10_000))]
    pub limit_rows: Option<u32>,
    /// How long it may take, s, 1 to 50; absent: 10.
    #[serde(default)]
    #[schemars(range(min = 1, max = 50))]
    pub limit_s: Option<u32>,
    /// Of roll-ups the rows from here on; absent: from a day before the end.
    #[serde(default)]
    pub from: Option<GivenInstant>,
    /// Of roll-ups the rows up to here; absent: now.
    #[serde(default)]
    pub to: Option<GivenInstant>,
}

/// An answer by columns.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SqlTable {
    /// Its columns.
    pub columns: Vec<SqlColumn>,
    /// How many rows each has.
    pub rows: u64,
    /// Whether there were more.
    pub truncated: bool,
    /// How long it took, ms.
    pub took_ms: u64,
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SqlColumn {
    /// Its name.
    pub name: String,
    /// Its type, as the store names it.
    pub sql_type: String,
    /// Its values. Integers beyond 2^53 are text, so that none is rounded on the way.
    pub values: Vec<Value>,
}

/// Tables that can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SqlCatalogue {
    /// Each, by name.
    pub tables: Vec<SqlTableEntry>,
}

/// A table that can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SqlTableEntry {
    /// Its name.
    pub name: String,
    /// What a row is, in one line.
    pub about: String,
    /// Its columns.
    pub columns: Vec<SqlColumnEntry>,
}

/// A column that can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SqlColumnEntry {
    /// Its name.
    pub name: String,
    /// Its type, as the store names it.
    pub sql_type: String,
    /// What it holds, with its unit.
    pub about: String,
}

impl SqlQuery {
    /// Rows of the answer, at most.
    pub fn limit_rows(&self) -> u32 {
        self.limit_rows.unwrap_or(1_000)
    }

    /// Seconds that it may take.
    pub fn limit_s(&self) -> u32 {
        self.limit_s.unwrap_or(10)
    }

    fn range(&self, now: UtcInstant) -> Result<QueryRange, ProblemDetails> {
        let to = self.to.map_or(now, |to| to.at(now));
        let from = self.from.map_or(to.later(-DAY_NS), |from| from.at(now));
        if from < to {
            return Ok(QueryRange { from, to });
        }
        let why = "it is not before `to`";
        Err(ProblemDetails::of_body(ProblemKind::Unprocessable, "/from", why))
    }

    fn check(&self) -> Result<(), ProblemDetails> {
        let wrong = |pointer: &str, why: &str| {
            Err(ProblemDetails::of_body(ProblemKind::Unprocessable, pointer, why))
        };
        match () {
            () if !(1..=10_000).contains(&self.limit_rows()) => {
                wrong("/limit_rows", "it is 1 to 10,000")
            }
            () if !(1..=50).contains(&self.limit_s()) => wrong("/limit_s", "it is 1 to 50"),
            () if self.sql.trim().is_empty() => wrong("/sql", "it is empty"),
            () if self.sql.len() > 65_536 => wrong("/sql", "it has at most 65,536 characters"),
            () => Ok(()),
        }
    }
}

/// What is read of roll-ups where the client does not say.
const DAY_NS: i64 = 86_400_000_000_000;

/// An integer as JSON that no reader rounds: beyond 2^53 it is text.
pub fn exact_integer(value: i64) -> Value {
    const EXACT: u64 = 1 << 53;
    if value.unsigned_abs() <= EXACT { value.into() } else { value.to_string().into() }
}

pub(crate) fn routes() -> Vec<ApiRoute> {
    let head = |path, operation, summary| RouteHead { path, operation, summary };
    vec![
        ApiRoute::post(
            head("/sonde/v1/sql", "run_sql", "The answer of one statement that reads"),
            |backend, asked: &Asked<'_, NoParams, SqlQuery>| {
                asked.body.check()?;
                let range = asked.body.range(asked.now)?;
                Ok(backend.sql(&asked.body, range)?.into())
            },
        )
        .only_asks(),
        ApiRoute::get(
            head("/sonde/v1/sql/tables", "list_sql_tables", "Tables that SQL can ask"),
            |backend, _: &Asked<'_, NoParams>| Ok(backend.sql_tables()?.into()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_has_limits() {
        let pointer = |query: &SqlQuery| {
            query.check().err().map(|problem| problem.errors[0].pointer.clone().unwrap())
        };
        let of = |sql: &str, limit_rows, limit_s| SqlQuery {
            sql: sql.into(),
            limit_rows,
            limit_s,
            from: None,
            to: None,
        };
        let good = of("select 1", None, None);
        assert_eq!(pointer(&good), None);
        let now = UtcInstant::from_ms(1_000_000_000_000);
        assert_eq!(good.range(now).unwrap().length_ns(), DAY_NS);
        let back = SqlQuery { from: Some(GivenInstant::Before(0)), ..good };
        assert_eq!(back.range(now).unwrap_err().errors[0].pointer.as_deref(), Some("/from"));
        assert_eq!(pointer(&of(" ", None, None)).unwrap(), "/sql");
        assert_eq!(pointer(&of("select 1", Some(10_001), None)).unwrap(), "/limit_rows");
        assert_eq!(pointer(&of("select 1", Some(0), None)).unwrap(), "/limit_rows");
        assert_eq!(pointer(&of("select 1", None, Some(51))).unwrap(), "/limit_s");
    }

    #[test]
    fn no_integer_is_rounded_on_its_way() {
        assert_eq!(exact_integer(1 << 53), Value::from(1_i64 << 53));
        assert_eq!(exact_integer((1 << 53) + 1), Value::from("9007199254740993"));
        assert_eq!(exact_integer(i64::MIN), Value::from("-9223372036854775808"));
    }
}
