//! Questions in SQL, and what they may not do.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::batch::{Batch, Rows};
use crate::embedded::{EmbeddedReader, Store, StoreOptions};
use crate::event::{EventSeverity, StoredEvent};
use crate::query::{Answer, Overview, Query};
use crate::series::SeriesLabels;
use crate::testing::{self, Folder, START};
use crate::{DAY_NS, Reader as _, Writer as _};

const RANGE: TimeRange = TimeRange { from_ns: START - DAY_NS, to_ns: START + 9 * DAY_NS };

/// Three series, flows, groups of round trips and an event; half in segments and rolled up.
fn store(folder: &Folder) -> Store {
    let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
    for target in ["a", "b", "meter"] {
        store.register(&SeriesLabels { target: target.into(), ..SeriesLabels::default() }).unwrap();
    }
    let mut writer = store.writer().unwrap();
    let all = [
        Rows::Intervals(testing::intervals(1, 2, 90, 10)),
        Rows::Flows(testing::flows(2, 2, 60, 600_000_000_000)),
        Rows::Rtt(testing::rtt(3, 2, 4)),
        Rows::Interfaces(testing::interfaces(4, 2)),
        Rows::Intervals(testing::intervals(4, 2, 30, 10)),
    ];
    for (number, rows) in (1..).zip(all) {
        writer.append(&Batch { writer: "w".into(), number, rows: rows.into() }).unwrap();
        writer.sync().unwrap();
        if number == 3 {
            store.flush().unwrap();
            store.maintain(START + 5 * DAY_NS, None).unwrap();
        }
    }
    drop(writer);
    let event = StoredEvent {
        kind: "gap".into(),
        severity: EventSeverity::Warning,
        series: None,
        begin_ns: START,
        end_ns: None,
        title: "nothing".into(),
        evidence: serde_json::json!({}),
    };
    store.add_event(&event).unwrap();
    store
}

fn ask(reader: &EmbeddedReader, text: &str) -> Vec<Vec<SqlValue>> {
    reader.sql(text, RANGE, &Limit::default()).unwrap_or_else(|e| panic!("{text}: {e}")).rows
}

#[test]
fn sql_has_the_answers_of_the_typed_queries() {
    let folder = Folder::new();
    let store = store(&folder);
    let other = EmbeddedReader::open(folder.path(), None).unwrap();
    let query = Overview { range: RANGE, quantiles: vec![0.5, 0.99], ..Overview::default() };
    let response = other.query(&Query::Overview(query), &Limit::default()).unwrap();
    let Answer::Overview(rows) = response.answer else { panic!() };
    let expected: Vec<Vec<SqlValue>> = rows
        .iter()
        .filter(|row| row.summary.intervals > 0)
        .zip(["a", "b"])
        .map(|(row, target)| {
            let s = &row.summary;
            let q = |n: usize| SqlValue::Integer(s.quantiles_ns[n].unwrap());
            let count = |n: u64| SqlValue::Integer(n as i64);
            vec![
                SqlValue::Text(target.into()),
                count(s.sent),
                count(s.lost),
                count(s.n),
                q(0),
                q(1),
            ]
        })
        .collect();
    assert_eq!(expected.len(), 2);
    for table in ["iv1m", "iv1h", "iv1d"] {
        let text = format!(
            "WITH merged AS (SELECT series, sum(sent) s, sum(lost) l, hmerge(rtt_net_hist) h
               FROM {table} GROUP BY series)
             SELECT target, s, l, hcount(h), hq(h, 0.5), hq(h, 0.99)
               FROM merged JOIN series ON series.id = merged.series ORDER BY target"
        );
        assert_eq!(ask(&other, &text), expected, "{table}, beside the writer");
        assert_eq!(ask(&store.reader(), &text), expected, "{table}");
    }
    let one = |text: &str| ask(&other, text).concat();
    assert_eq!(one("SELECT sum(flows) FROM flow5m"), [SqlValue::Integer(60)]);
    assert_eq!(one("SELECT sum(flows) FROM flow1h"), [SqlValue::Integer(60)]);
    assert_eq!(
        one("SELECT sum(intervals), count(DISTINCT \"group\") FROM rtt1d"),
        [80, 4].map(SqlValue::Integer)
    );
    assert_eq!(one("SELECT count(*) > 0 FROM rtt1m"), [SqlValue::Integer(1)]);
    assert_eq!(one("SELECT title FROM event"), [SqlValue::Text("nothing".into())]);
    assert_eq!(one("SELECT count(*) > 5 FROM segment"), [SqlValue::Integer(1)]);
    let whole = "SELECT hcount(rtt_net_hist) - hrange(rtt_net_hist, 0, 9000000000) FROM iv1d WHERE series = 0";
    assert!(ask(&other, whole).iter().all(|row| *row == [SqlValue::Integer(0)]));
    // Of another time there is nothing.
    let never = TimeRange { from_ns: 0, to_ns: 1 };
    let none = other.sql("SELECT count(*) FROM iv1m", never, &Limit::default()).unwrap();
    assert_eq!(none.rows, [[SqlValue::Integer(0)]]);
    assert_eq!(none.columns, ["count(*)"]);
}

#[test]
fn sql_changes_nothing_and_sees_no_more_than_it_may() {
    let folder = Folder::new();
    let store = store(&folder);
    let reader = store.reader();
    for text in [
        "DELETE FROM event",
        "INSERT INTO series (labels) VALUES ('x')",
        "UPDATE catalogue.segment SET rows = 0",
        "DROP TABLE iv1m",
        "CREATE TABLE x (a)",
        "CREATE TEMP TABLE x AS SELECT 1",
        "PRAGMA query_only = 0",
        "PRAGMA catalogue.user_version = 7",
        "ATTACH DATABASE '/tmp/other.db' AS other",
        "DETACH DATABASE catalogue",
        "VACUUM INTO '/tmp/other.db'",
        "BEGIN",
        "SELECT load_extension('x')",
        "SELECT instr(hex(zeroblob(400000)), hex(zeroblob(200000)) || '1')",
        "SELECT zeroblob(10)",
        "SELECT randomblob(10)",
        "SELECT unhex('00', '11')",
        "SELECT sqlite_version()",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM dbstat",
        "SELECT * FROM writer",
        "SELECT sql FROM catalogue.sqlite_master",
        "SELECT 1; DELETE FROM event",
        "SELECT * FROM iv",
        "SELECT hq('text', 0.5)",
        "SELECT hq(x'ff00', 0.5)",
        "",
        "nonsense",
    ] {
        let error = reader.sql(text, RANGE, &Limit::default()).err();
        assert!(matches!(error, Some(StoreError::Query { .. })), "{text}: {error:?}");
    }
    assert_eq!(ask(&reader, "SELECT count(*) FROM event"), [[SqlValue::Integer(1)]]);
}

#[test]
fn sql_ends_at_its_limits() {
    let folder = Folder::new();
    let store = store(&folder);
    let reader = store.reader();
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT ";
    let limits =
        |text: &str, limit: Limit| reader.sql(text, RANGE, &limit).unwrap_err().to_string();
    let few = Limit { answer_rows: 10, ..Limit::default() };
    assert!(limits(&format!("{endless} i FROM n"), few).contains("10 rows of the answer"));
    let cut = Limit { answer_rows: 10, cut: true, ..Limit::default() };
    let table = reader.sql("SELECT series FROM iv1m", RANGE, &cut).unwrap();
    assert!(table.rows.len() == 10 && table.truncated, "{table:?}");
    let all = reader.sql("SELECT series FROM iv1m LIMIT 10", RANGE, &cut).unwrap();
    assert!(all.rows.len() == 10 && !all.truncated, "{all:?}");
    let few = Limit { scanned_rows: 3, ..Limit::default() };
    assert!(limits("SELECT count(*) FROM iv1m", few).contains("3 rows"));
    let small = Limit { memory_octets: 1 << 20, ..Limit::default() };
    let text = format!("{endless} format('%50000d', i) FROM n");
    assert!(limits(&text, small.clone()).contains("1048576 octets"));
    assert!(limits("SELECT format('%2000000d', 1)", small.clone()).contains("1048576 octets"));
    let grown = "SELECT replace(format('%200000d', 1), ' ', '0123456789')";
    assert!(limits(grown, small).contains("more than 1048576 octets"));
    let stopped = Limit { stop: Some(Arc::new(AtomicBool::new(true))), ..Limit::default() };
    let error = reader.sql(&format!("{endless} count(*) FROM n"), RANGE, &stopped).unwrap_err();
    assert!(matches!(error, StoreError::Stopped), "{error}");
}

#[test]
fn what_is_said_to_be_there_can_be_asked() {
    let folder = Folder::new();
    let reader = store(&folder).reader();
    let tables = reader.sql_tables();
    assert_eq!(tables.len(), 3 + TABLES.len());
    for table in tables {
        let columns: Vec<String> =
            table.columns.iter().map(|c| format!("\"{}\"", c.name)).collect();
        // Every column of every row: a name that is none is an error, not a text.
        let text = format!("SELECT t.{} FROM {} t", columns.join(", t."), table.name);
        let rows = ask(&reader, &text);
        let type_of = |value: &SqlValue| match value {
            SqlValue::Null => None,
            SqlValue::Integer(_) => Some("INTEGER"),
            SqlValue::Real(_) => Some("REAL"),
            SqlValue::Text(_) => Some("TEXT"),
            SqlValue::Octets(_) => Some("BLOB"),
        };
        for (value, column) in rows.iter().flat_map(|row| row.iter().zip(&table.columns)) {
            let wide = column.name.ends_with("_sum_ns") && type_of(value) == Some("REAL");
            let same = type_of(value).is_none_or(|t| t == column.sql_type) || wide;
            assert!(same, "{}.{}: {value:?}", table.name, column.name);
        }
    }
}

#[test]
fn functions_of_text_answer_as_sqlites_own() {
    let folder = Folder::new();
    let store = store(&folder);
    let (reader, plain) = (store.reader(), Connection::open_in_memory().unwrap());
    let texts = ["''", "'a'", "'abc'", "'aXbXaa'", "'grün ü'", "'ü'", "'Xa'", "NULL", "12", "1.5"];
    for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
        for call in [
            format!("instr({a}, {b})"),
            format!("replace({a}, {b}, 'yy')"),
            format!("trim({a}, {b})"),
            format!("ltrim({a}, {b})"),
            format!("rtrim({a}, {b})"),
        ] {
            let text = format!("SELECT quote({call})");
            let own: String = plain.query_row(&text, [], |row| row.get(0)).unwrap();
            assert_eq!(ask(&reader, &text), [[SqlValue::Text(own)]], "{call}");
        }
    }
}
