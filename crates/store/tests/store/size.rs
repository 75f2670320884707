//! How many octets a record takes, of data in the shape of recorded ones.

use sonde_store::{Batch, IntervalRow, Rows, SeriesId, SeriesLabels, Store, StoreOptions, Writer};

use crate::store_rows::{Random, flow, interval};
use crate::support::{Folder, options};

/// Octets a row in each table's segments, and in the journal.
fn measure(name: &str, rows: impl Iterator<Item = Rows>, series: u32) -> Vec<(String, f64)> {
    let folder = Folder::new(name);
    let options = StoreOptions { seal_rows: 10_000_000, ..options() };
    let store = Store::open(folder.path(), options).unwrap();
    for i in 0..series {
        store.register(&SeriesLabels { target: i.to_string(), ..Default::default() }).unwrap();
    }
    let mut writer = store.writer().unwrap();
    let mut n = 0;
    for (number, rows) in (1..).zip(rows) {
        n += rows.len();
        let batch = Batch { writer: "w".into(), number, rows: rows.into() };
        writer.append(&batch).unwrap();
        writer.sync().unwrap();
    }
    let size = |path: &std::path::Path| -> u64 {
        let mut total = 0;
        let mut folders = vec![path.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                match entry.metadata().unwrap().is_dir() {
                    true => folders.push(entry.path()),
                    false => total += entry.metadata().unwrap().len(),
                }
            }
        }
        total
    };
    let mut sizes =
        vec![("journal".into(), size(&folder.path().join("journal")) as f64 / n as f64)];
    store.flush().unwrap();
    for entry in std::fs::read_dir(folder.path().join("seg")).unwrap() {
        let path = entry.unwrap().path();
        let table = path.file_name().unwrap().to_str().unwrap().to_owned();
        sizes.push((table, size(&path) as f64 / n as f64));
    }
    sizes
}

fn of(sizes: &[(String, f64)], table: &str) -> f64 {
    sizes.iter().find(|(name, _)| name == table).unwrap().1
}

fn intervals(
    streams: u32,
    seconds: i64,
    probes: u64,
    synchronised: bool,
) -> impl Iterator<Item = Rows> {
    let mut random = Random(7);
    let bases: Vec<f64> = (0..streams).map(|_| 1e5 * 1_000f64.powf(random.share())).collect();
    (0..seconds).map(move |second| {
        let row = |(s, &base): (usize, &f64)| {
            IntervalRow::new(
                SeriesId(s as u32),
                &interval(&mut random, base, second, probes, synchronised),
            )
        };
        Rows::Intervals(bases.iter().enumerate().map(row).collect())
    })
}

#[test]
fn a_record_takes_no_more_than_it_may() {
    let sizes = measure("size", intervals(1_000, 20, 10, false), 1_000);
    println!("10 probes a record: {sizes:.1?}");
    assert!(of(&sizes, "iv") <= 60.0, "{sizes:.1?}");
    let sizes = measure("size", intervals(300, 20, 100, false), 300);
    println!("100 probes a record: {sizes:.1?}");
    assert!(of(&sizes, "iv") <= 60.0, "{sizes:.1?}");
    let sizes = measure("size", intervals(1_000, 20, 10, true), 1_000);
    println!("10 probes a record, clocks synchronised: {sizes:.1?}");
    assert!(of(&sizes, "iv") <= 60.0, "{sizes:.1?}");
    let mut random = Random(9);
    let flows =
        (0..20).map(|second| Rows::Flows((0..2_500).map(|_| flow(&mut random, second)).collect()));
    let sizes = measure("size", flows, 1);
    println!("flows: {sizes:.1?}");
    assert!(of(&sizes, "flow") <= 30.0, "{sizes:.1?}");
}
