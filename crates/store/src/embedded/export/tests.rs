//! Rows in each form.

use std::sync::Arc;

use super::*;
use crate::Reader as _;
use crate::batch::{Batch, Rows};
use crate::embedded::{Store, StoreOptions};
use crate::testing::{self, Folder, START};
use crate::{DAY_NS, HOUR_NS, Writer as _};

/// What is written, to be read when it is whole.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Rows of a segment, and of the same series in the journal: they come one after the other.
#[test]
fn rows_of_several_sources_are_one_parquet_file() {
    let folder = Folder::new();
    let store = Store::open(&folder.path().join("s"), StoreOptions::default()).unwrap();
    for target in ["a", "b"] {
        let labels = SeriesLabels { target: target.into(), ..SeriesLabels::default() };
        store.register(&labels).unwrap();
    }
    let mut writer = store.writer().unwrap();
    let rows = testing::intervals(1, 2, 30, 10);
    let (first, second) = rows.into_iter().partition(|row| row.start_ns < START + 15_000_000_000);
    for (number, rows) in [(1, first), (2, second)] {
        let rows = Arc::new(Rows::Intervals(rows));
        writer.append(&Batch { writer: "w".into(), number, rows }).unwrap();
        writer.sync().unwrap();
        if number == 1 {
            store.flush().unwrap();
        }
    }
    let range = TimeRange { from_ns: START - DAY_NS, to_ns: START + DAY_NS };
    let filter = SeriesFilter::default();
    let export = Export { table: Table::Interval, range, filter };
    let path = folder.path().join("rows.parquet");
    let done = store.reader().export_parquet(&export, &Limit::default(), &path).unwrap();
    assert_eq!(done.rows, 60);
}

#[test]
fn every_table_is_exported_in_every_form() {
    let folder = Folder::new();
    let store = Store::open(&folder.path().join("s"), StoreOptions::default()).unwrap();
    for target in ["a,\"b\"", "b", "c"] {
        let labels = SeriesLabels { target: target.into(), ..SeriesLabels::default() };
        store.register(&labels).unwrap();
    }
    let mut writer = store.writer().unwrap();
    let all = [
        Rows::Intervals(testing::intervals(1, 2, 30, 10)),
        Rows::Flows(testing::flows(2, 2, 40, 600_000_000_000)),
        Rows::Rtt(testing::rtt(3, 2, 4)),
        Rows::Interfaces(testing::interfaces(4, 2)),
    ];
    for (number, rows) in (1..).zip(all) {
        writer.append(&Batch { writer: "w".into(), number, rows: rows.into() }).unwrap();
    }
    writer.sync().unwrap();
    store.flush().unwrap();
    store.maintain(START + 2 * HOUR_NS, None).unwrap();
    let reader = store.reader();
    let range = TimeRange { from_ns: START - DAY_NS, to_ns: START + DAY_NS };
    for table in Table::ALL {
        let export = Export { table, range, filter: SeriesFilter::default() };
        let write = |format| {
            let out = Text::default();
            let done = reader
                .export_text(&export, format, &Limit::default(), &mut || Ok(Box::new(out.clone())));
            let text = String::from_utf8(lock(&out.0).clone()).unwrap();
            (done.unwrap(), text)
        };
        let (done, csv) = write(ExportText::Csv);
        let lines: Vec<&str> = csv.split_terminator("\r\n").collect();
        assert!(done.rows > 0, "{table:?}");
        assert_eq!((lines.len() as u64, done.damaged_segments), (done.rows + 1, 0));
        if table == Table::Interval {
            assert_eq!(done.rows, 60);
            assert!(lines.iter().any(|line| line.starts_with(",,\"a,\"\"b\"\"\",,,0,")), "{csv}");
        } else {
            // No cell of these holds a comma.
            let cells = |line: &str| line.split(',').count();
            let plain = lines.iter().filter(|line| !line.contains('"'));
            assert!(
                plain.clone().count() > 1 && plain.map(|l| cells(l)).all(|n| n == cells(lines[0]))
            );
        }
        let (again, json) = write(ExportText::JsonLines);
        assert_eq!(again, done);
        let objects: Vec<Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects.len() as u64, done.rows);
        if table == Table::Rtt1d {
            let clean = objects.iter().map(|o| o["clean"]["count"].as_u64().unwrap_or(0));
            let values = testing::rtt(3, 2, 4).iter().map(|r| r.clean.head().count).sum::<u64>();
            assert_eq!(clean.sum::<u64>(), values);
            assert!(objects.iter().all(|o| o["target"] == "c" && o["caveats"].is_array()));
        }
        let path = folder.path().join("out.parquet");
        assert_eq!(reader.export_parquet(&export, &Limit::default(), &path).unwrap(), done);
        assert!(std::fs::read(&path).unwrap().starts_with(b"PAR1"));
        let few = Limit { scanned_rows: 1, ..Limit::default() };
        if done.rows > 1 {
            let error =
                reader.export_parquet(&export, &few, &folder.path().join("few")).unwrap_err();
            assert!(matches!(error, StoreError::Limit { limit: 1, .. }), "{error}");
            assert!(!folder.path().join("few").exists());
        }
    }
}

#[test]
fn only_what_is_asked_for_is_exported() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
    store.register(&SeriesLabels::default()).unwrap();
    let mut writer = store.writer().unwrap();
    let rows = Rows::Rtt(testing::rtt(3, 0, 4)).into();
    writer.append(&Batch { writer: "w".into(), number: 1, rows }).unwrap();
    writer.sync().unwrap();
    let range = TimeRange { from_ns: START, to_ns: START + 7_000_000_000 };
    let rows = |filter: SeriesFilter| {
        let export = Export { table: Table::Rtt, range, filter };
        let open = &mut || Ok(Box::new(io::sink()) as Box<dyn Write>);
        let done = store.reader().export_text(&export, ExportText::Csv, &Limit::default(), open);
        done.unwrap().rows
    };
    assert_eq!(rows(SeriesFilter::default()), 7 * 4);
    let groups = vec!["10.0.2.0/24".to_owned()];
    assert_eq!(rows(SeriesFilter { groups, ..SeriesFilter::default() }), 7);
    let labels = BTreeMap::from([("target".to_owned(), "other".to_owned())]);
    assert_eq!(rows(SeriesFilter { labels, ..SeriesFilter::default() }), 0);
}
