use std::collections::BTreeMap;
use std::fs;

use super::*;
use crate::batch::{Batch, Rows};
use crate::query::{Answer, Availability, Delay, Limit, Overview, Query, Response, TimeRange, Top};
use crate::testing::{self, FaultyDisk, Folder, START};
use crate::{DAY_NS, HOUR_NS, IntervalRow, Reader, SeriesFilter, Table, Writer};

mod damage;

/// A store that never does anything by time alone.
fn options() -> StoreOptions {
    StoreOptions {
        seal_after_ns: i64::MAX,
        grace_ns: 0,
        retention: Retention { tables: BTreeMap::new(), floor_octets: 0 },
        reserve_octets: 100_000,
        ..StoreOptions::default()
    }
}

fn labels(target: u32) -> SeriesLabels {
    SeriesLabels { target: format!("t{target}"), ..SeriesLabels::default() }
}

fn register(store: &Store, n: u32) {
    (0..n).for_each(|i| assert_eq!(store.register(&labels(i)).unwrap(), SeriesId(i)));
}

#[test]
fn series_that_come_together_are_registered_in_one_transaction() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), options()).unwrap();
    register(&store, 2);
    let commits = lock(&store.shared.catalogue).count_commits();
    // Some are known, and one comes twice.
    let all: Vec<SeriesLabels> = (0..20_000).chain([19_999, 0]).map(labels).collect();
    let numbers: Vec<SeriesId> = (0..20_000).chain([19_999, 0]).map(SeriesId).collect();
    assert_eq!(store.register_all(&all).unwrap(), numbers);
    assert_eq!(store.register_all(&all).unwrap(), numbers, "nothing is new");
    assert_eq!(store.register_all(&[]).unwrap(), []);
    assert_eq!(commits.load(std::sync::atomic::Ordering::Relaxed), 1);
    drop(store);
    let store = Store::open(folder.path(), options()).unwrap();
    assert_eq!(store.register_all(&all).unwrap(), numbers, "after a restart");
    assert_eq!(store.reader().series().unwrap().len(), 20_000);
}

fn batch(number: u64, rows: Vec<IntervalRow>) -> Batch {
    Batch { writer: "probe".into(), number, rows: Rows::Intervals(rows).into() }
}

fn flow_batch(number: u64, seed: u64) -> Batch {
    let rows = Rows::Flows(testing::flows(seed, 0, 50, HOUR_NS));
    Batch { writer: "meter".into(), number, rows: rows.into() }
}

/// Takes batches and makes them durable.
fn write(store: &Store, batches: &[Batch]) {
    let mut writer = store.writer().unwrap();
    let tickets: Vec<_> = batches.iter().map(|b| writer.append(b).unwrap()).collect();
    writer.sync().unwrap();
    let durable: Vec<_> = std::iter::from_fn(|| writer.poll_durable()).collect();
    assert_eq!(durable, tickets);
}

/// Six batches of rows of four series over two hours and more, some of them late, and flows.
fn batches() -> Vec<Batch> {
    let mut all = Vec::new();
    for part in 0..6u64 {
        let mut rows = testing::intervals(part + 1, 4, 30, 5);
        // Half an hour apart; the fifth comes late.
        let later = [0, 30, 60, 90, 10, 130][part as usize] * crate::MINUTE_NS;
        rows.iter_mut().for_each(|row| row.start_ns += later);
        all.push(batch(part + 1, rows));
        all.push(flow_batch(part + 1, part));
    }
    all
}

/// The whole time of [`batches`], by whole days.
fn all_time() -> TimeRange {
    let day = START - START.rem_euclid(DAY_NS);
    TimeRange { from_ns: day - DAY_NS, to_ns: day + 3 * DAY_NS }
}

fn ask(reader: &EmbeddedReader, query: &Query) -> Response {
    reader.query(query, &Limit::default()).unwrap()
}

/// What a store says of everything, in three queries. It does not depend on the tables.
fn answers(reader: &EmbeddedReader) -> Vec<Answer> {
    let range = all_time();
    let quantiles = vec![0.0, 0.1, 0.5, 0.99, 1.0];
    let overview = Overview { range, delay: Delay::RttNet, quantiles, ..Overview::default() };
    let queries = [
        Query::Overview(overview),
        Query::Availability(Availability { range, filter: SeriesFilter::default() }),
        Query::Top(Top { range, most: 1_000, ..Top::default() }),
    ];
    queries.iter().map(|query| ask(reader, query).answer).collect()
}

fn segments(store: &Store) -> BTreeMap<Table, usize> {
    let mut all = BTreeMap::new();
    store.shared.segment_infos().iter().for_each(|s| *all.entry(s.table).or_default() += 1);
    all
}

/// Files under `seg`.
fn files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

#[test]
fn answers_are_the_same_in_the_journal_in_segments_and_in_roll_ups() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), options()).unwrap();
    register(&store, 4);
    write(&store, &batches());
    let reader = store.reader();
    let expected = answers(&reader);
    let Answer::Overview(rows) = &expected[0] else { panic!("{expected:?}") };
    assert_eq!(rows.iter().map(|r| r.summary.intervals).collect::<Vec<_>>(), [180; 4]);
    assert!(rows.iter().all(|r| r.summary.held > 500), "{rows:?}");
    let other = EmbeddedReader::open(folder.path(), None).unwrap();
    assert_eq!(answers(&other), expected, "another process sees the journal");

    let done = store.flush().unwrap();
    assert_eq!(done.flushed_rows, 6 * 120 + 6 * 50);
    // 23 o'clock is in one day, 0 and 1 o'clock in the next.
    assert_eq!(segments(&store)[&Table::Interval], 3);
    assert_eq!(segments(&store)[&Table::Interval1m], 2);
    assert_eq!(answers(&reader), expected, "in segments");
    assert_eq!(answers(&other), expected, "in segments, for another process");

    let done = store.maintain(START + 2 * HOUR_NS, None).unwrap();
    assert!(done.rolled_up > 0 && segments(&store).contains_key(&Table::Interval1h), "{done:?}");
    assert_eq!(answers(&reader), expected, "rolled up in part");
    // Late rows, and more.
    let mut late = testing::intervals(99, 4, 10, 5);
    late.iter_mut().for_each(|row| row.start_ns += 100_000_000);
    write(&store, &[batch(7, late)]);
    let expected = answers(&reader);
    store.flush().unwrap();
    store.maintain(START + 400 * DAY_NS, None).unwrap();
    assert_eq!(answers(&reader), expected, "rolled up and compacted");
    let level = ask(
        &reader,
        &Query::Availability(Availability { range: all_time(), filter: SeriesFilter::default() }),
    )
    .level;
    assert_eq!(level, Some(Table::Interval1d));
    // One segment for each table and period.
    assert_eq!(segments(&store)[&Table::Interval], 3);
    assert_eq!(segments(&store)[&Table::Interval1h], 1);
    assert_eq!(segments(&store)[&Table::Interval1d], 1);
    assert_eq!(files(&folder.path().join("seg")), segments(&store).values().sum::<usize>());
    assert_eq!(answers(&other), expected);
    assert_eq!(store.maintain(START + 400 * DAY_NS, None).unwrap(), Maintenance::default());
    // At each level the answer is the same.
    for range in [all_time(), TimeRange { from_ns: all_time().from_ns + 1, ..all_time() }] {
        let query = Query::Availability(Availability { range, filter: SeriesFilter::default() });
        let Answer::Availability(rows) = ask(&reader, &query).answer else { panic!() };
        let times: Vec<_> = rows.iter().map(|r| (r.clear_ns, r.lossy_ns, r.down_ns)).collect();
        assert_eq!(times.iter().map(|t| t.0 + t.1 + t.2).collect::<Vec<_>>(), [190_000_000_000; 4]);
    }
}

#[test]
fn what_is_durable_is_there_after_a_restart_and_repeats_are_dropped() {
    let folder = Folder::new();
    let all = batches();
    let mut expected = Vec::new();
    for (i, batch) in all.iter().enumerate() {
        // Each time the last process ended without a word: nothing but its files is left.
        let store = Store::open(folder.path(), options()).unwrap();
        if i == 0 {
            register(&store, 4);
        } else {
            assert_eq!(answers(&store.reader()), expected, "start {i}");
            // It does not know whether its last batch was kept.
            write(&store, &all[i - 1..i]);
            assert_eq!(answers(&store.reader()), expected, "repeat {i}");
        }
        write(&store, std::slice::from_ref(batch));
        if i % 4 == 3 {
            store.flush().unwrap();
        }
        expected = answers(&store.reader());
    }
    let store = Store::open(folder.path(), options()).unwrap();
    assert_eq!(store.recovery().batches, 0, "the last ones were flushed");
    write(&store, &all);
    assert_eq!(answers(&store.reader()), expected, "all of them again");
}

#[test]
fn one_writes_and_batches_of_unknown_series_are_refused() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), options()).unwrap();
    let second = Store::open(folder.path(), options()).err().unwrap();
    assert!(matches!(second, StoreError::Locked { .. }), "{second}");
    let mut writer = store.writer().unwrap();
    assert!(matches!(store.writer(), Err(StoreError::WriterTaken)));
    let error = writer.append(&batch(1, testing::intervals(1, 1, 1, 1))).unwrap_err();
    assert!(matches!(error, StoreError::UnknownSeries(0)), "{error}");
    drop(writer);
    store.writer().unwrap();
    drop(store);
    Store::open(folder.path(), options()).unwrap();
}

#[test]
fn rows_that_wait_are_bounded_and_nothing_that_waits_is_lost() {
    let folder = Folder::new();
    let options = StoreOptions { seal_rows: 100, ..options() };
    let store = Store::open(folder.path(), options).unwrap();
    register(&store, 4);
    let mut writer = store.writer().unwrap();
    let rows = testing::intervals(1, 4, 25, 2);
    let mut taken = 0;
    let refused = (1..100).find_map(|n| {
        let result = writer.append(&batch(n, rows.clone()));
        writer.sync().unwrap();
        taken += u64::from(result.is_ok());
        result.err()
    });
    assert!(matches!(refused, Some(StoreError::Full { .. })));
    assert!((8..=10).contains(&taken), "{taken}");
    assert_eq!(store.maintain(START, None).unwrap().flushed_rows, 100 * taken);
    writer.append(&batch(200, rows)).unwrap();
}

/// Whatever call fails, and the process ends there: the next one has all that was durable.
#[test]
fn a_fault_at_any_call_loses_nothing_that_was_durable() {
    let all = batches();
    // The answers with six batches, with seven, and so on.
    let twin = Folder::new();
    let store = Store::open(twin.path(), options()).unwrap();
    register(&store, 4);
    write(&store, &all[..6]);
    let mut expected = vec![answers(&store.reader())];
    for batch in &all[6..] {
        write(&store, std::slice::from_ref(batch));
        expected.push(answers(&store.reader()));
    }
    drop(store);
    let mut calls = 0;
    let mut faults = 0;
    loop {
        let folder = Folder::new();
        let disk = Arc::new(FaultyDisk::default());
        let options = StoreOptions { reserve_octets: 0, ..options() };
        let store = Store::open_on(disk.clone(), folder.path(), options.clone()).unwrap();
        register(&store, 4);
        write(&store, &all[..6]);
        store.flush().unwrap();
        store.maintain(START + HOUR_NS, None).unwrap();
        // Nothing is given up to make room: all faults are final.
        disk.fail_after(calls);
        let mut durable = 6;
        let mut failed = false;
        {
            let mut writer = store.writer().unwrap();
            for batch in &all[6..] {
                writer.append(batch).unwrap();
                failed |= writer.sync().is_err();
                durable += std::iter::from_fn(|| writer.poll_durable()).count();
                failed |= store.flush().is_err();
            }
            failed |= store.maintain(START + 30 * DAY_NS, None).is_err();
        }
        let now = answers(&store.reader());
        disk.works_again();
        drop(store);
        let store = Store::open(folder.path(), options).unwrap();
        // A batch may be there that was not acknowledged; none that was may be missing.
        let possible = &expected[durable - 6..(durable - 4).min(expected.len())];
        assert_eq!(now, possible[0], "after call {calls} failed");
        let after = answers(&store.reader());
        assert!(possible.contains(&after), "after call {calls} failed and a restart");
        store.flush().unwrap();
        store.maintain(START + 30 * DAY_NS, None).unwrap();
        assert_eq!(answers(&store.reader()), after);
        assert_eq!(files(&folder.path().join("seg")), segments(&store).values().sum::<usize>());
        if !failed {
            break;
        }
        faults += 1;
        // The first calls one by one, later ones in steps.
        calls += 1 + calls / 6;
    }
    assert!(faults > 20, "{faults} calls were tried");
}

#[test]
fn a_damaged_segment_costs_its_rows_and_is_told_of() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), options()).unwrap();
    register(&store, 4);
    write(&store, &batches());
    store.flush().unwrap();
    let path =
        store.shared.segment_infos().iter().find(|s| s.table == Table::Interval1m).map(|s| {
            let state = lock(&store.shared.state);
            state.segments.iter().find(|f| f.record.id == s.id).unwrap().path().to_owned()
        });
    let path = path.unwrap();
    let mut octets = fs::read(&path).unwrap();
    octets[100] ^= 1;
    fs::write(&path, octets).unwrap();
    let query =
        Query::Availability(Availability { range: all_time(), filter: SeriesFilter::default() });
    let other = EmbeddedReader::open(folder.path(), None).unwrap();
    let elsewhere = ask(&other, &query);
    assert_eq!(elsewhere.damaged_segments, 1);
    assert!(path.exists(), "who only reads moves nothing");
    let notes = files(&folder.path().join("damaged"));
    assert_eq!(notes, 1, "it leaves a note");
    let reader = store.reader();
    let response = ask(&reader, &query);
    assert_eq!((response.damaged_segments, &response.answer), (1, &elsewhere.answer));
    let Answer::Availability(rows) = &response.answer else { panic!() };
    assert!(rows.iter().all(|row| (1..180).contains(&row.intervals)), "{rows:?}");
    assert!(!path.exists() && files(&folder.path().join("damaged")) == 2);
    assert_eq!(ask(&reader, &query).damaged_segments, 0, "it is out of the way");
    let events = ask(
        &reader,
        &Query::Events(crate::query::EventList { range: all_time(), ..Default::default() }),
    );
    let Answer::Events(events) = events.answer else { panic!() };
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].event.kind, "segment_damaged");
    drop((store, reader));

    // A segment that lost its end, and one that is gone, at the next start.
    let store = Store::open(folder.path(), options()).unwrap();
    let paths: Vec<_> =
        lock(&store.shared.state).segments.iter().map(|f| f.path().to_owned()).collect();
    drop(store);
    fs::remove_file(&paths[0]).unwrap();
    fs::write(&paths[1], b"PAR1").unwrap();
    let store = Store::open(folder.path(), options()).unwrap();
    assert_eq!(store.recovery().set_aside, 2);
    store.maintain(START + 30 * DAY_NS, None).unwrap();
    drop(store);
    assert_eq!(Store::open(folder.path(), options()).unwrap().recovery(), &Recovery::default());
}

#[test]
fn a_query_holds_the_files_that_it_reads() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), options()).unwrap();
    register(&store, 4);
    write(&store, &batches());
    store.flush().unwrap();
    let held = lock(&store.shared.state).segments.clone();
    let n = files(&folder.path().join("seg"));
    let all = store.shared.segment_infos().iter().map(|s| s.id).collect();
    store.shared.give_up(all).unwrap();
    assert_eq!(files(&folder.path().join("seg")), n);
    drop(held);
    assert_eq!(files(&folder.path().join("seg")), 0);
}

#[test]
fn a_back_up_made_while_batches_come_holds_all_that_was_durable() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), options()).unwrap();
    register(&store, 4);
    let all = batches();
    write(&store, &all[..6]);
    store.flush().unwrap();
    write(&store, &all[6..9]);
    let expected = answers(&store.reader());
    let to = folder.path().join("copy");
    for name in ["judge.json", "targets.json"] {
        fs::write(folder.path().join(name), "{}").unwrap();
    }
    let manifest = store.back_up(&to).unwrap();
    for name in ["judge.json", "targets.json"] {
        assert_eq!(fs::read_to_string(to.join(name)).unwrap(), "{}");
    }
    assert_eq!(manifest.last_batch, 9);
    assert_eq!(manifest.segments as usize, segments(&store).values().sum::<usize>());
    assert!(store.back_up(&to).is_err(), "it is there already");
    // The store goes on; the copy does not.
    write(&store, &all[9..]);
    store.flush().unwrap();
    store.maintain(START + 30 * DAY_NS, None).unwrap();
    drop(store);
    let copy = Store::open(&to, options()).unwrap();
    assert_eq!(copy.recovery().batches, 3);
    assert_eq!(answers(&copy.reader()), expected);
    copy.maintain(START + 30 * DAY_NS, None).unwrap();
    copy.flush().unwrap();
    assert_eq!(answers(&copy.reader()), expected);
}

#[test]
fn a_full_disk_costs_the_oldest_rows_and_the_store_goes_on() {
    let folder = Folder::new();
    let disk = Arc::new(FaultyDisk::default());
    let store = Store::open_on(disk.clone(), folder.path(), options()).unwrap();
    register(&store, 4);
    store.maintain(START, None).unwrap();
    assert_eq!(fs::metadata(folder.path().join("reserve")).unwrap().len(), 100_000);
    let mut writer = store.writer().unwrap();
    // Ten times as much as there is room for.
    disk.room_for(400_000);
    let mut written = 0;
    for n in 0..80u64 {
        let mut rows = testing::intervals(n, 4, 60, 5);
        rows.iter_mut().for_each(|row| row.start_ns += n as i64 * HOUR_NS);
        written += rows.len();
        writer.append(&batch(n + 1, rows)).unwrap();
        writer.sync().unwrap();
        assert_eq!(writer.poll_durable().map(|t| t.number), Some(n + 1));
        if n % 3 == 2 {
            store.flush().unwrap();
            store.maintain(START + n as i64 * HOUR_NS, None).unwrap();
        }
    }
    drop(writer);
    let query = |from: i64| {
        let range = TimeRange { from_ns: START + from * HOUR_NS, to_ns: START + 80 * HOUR_NS };
        let overview = Overview { range, ..Overview::default() };
        let Answer::Overview(rows) = ask(&store.reader(), &Query::Overview(overview)).answer else {
            panic!()
        };
        rows.iter().map(|r| r.summary.intervals).sum::<u64>()
    };
    assert_eq!(query(76), 4 * 240, "what came last is there");
    assert!(written == 80 * 240 && query(0) < written as u64);
    // Started again, it has what it had.
    let before = query(0);
    drop(store);
    let store = Store::open(folder.path(), options()).unwrap();
    let range = TimeRange { from_ns: START, to_ns: START + 80 * HOUR_NS };
    let overview = Query::Overview(Overview { range, ..Overview::default() });
    let Answer::Overview(rows) = ask(&store.reader(), &overview).answer else { panic!() };
    assert_eq!(rows.iter().map(|r| r.summary.intervals).sum::<u64>(), before);
}

#[test]
fn rows_expire_by_age_and_the_floor_is_kept() {
    let folder = Folder::new();
    let day = |days| crate::KeepTable { age_ns: Some(days * DAY_NS), octets: None };
    let retention = Retention {
        tables: BTreeMap::from([(Table::Interval, day(1)), (Table::Interval1m, day(10))]),
        floor_octets: 1_000_000_000,
    };
    let store = Store::open(folder.path(), StoreOptions { retention, ..options() }).unwrap();
    register(&store, 4);
    write(&store, &batches());
    store.flush().unwrap();
    let expected = answers(&store.reader());
    let done = store.maintain(START + 5 * DAY_NS, Some(1_000_000_000)).unwrap();
    assert_eq!(done.expired, 3, "of the full rate");
    assert!(!segments(&store).contains_key(&Table::Interval));
    assert_eq!(answers(&store.reader()), expected, "days answer");
    // A changed policy counts from the next maintenance on.
    let tables = BTreeMap::from([(Table::Interval1m, day(1))]);
    store.set_retention(Retention { tables, floor_octets: 1_000_000_000 });
    assert!(segments(&store).contains_key(&Table::Interval1m));
    store.maintain(START + 5 * DAY_NS, Some(1_000_000_000)).unwrap();
    assert!(!segments(&store).contains_key(&Table::Interval1m));
    assert_eq!(answers(&store.reader()), expected, "days answer");
    // Under the floor all goes, and then nothing is taken any more.
    store.maintain(START + 5 * DAY_NS, Some(10)).unwrap();
    assert!(segments(&store).is_empty());
    let mut writer = store.writer().unwrap();
    let error = writer.append(&batch(50, testing::intervals(1, 4, 1, 1))).unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }));
    store.maintain(START + 5 * DAY_NS, Some(1_000_000_000)).unwrap();
    writer.append(&batch(50, testing::intervals(1, 4, 1, 1))).unwrap();
}
