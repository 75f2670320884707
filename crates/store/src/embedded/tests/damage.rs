//! What is lost, and what says so.

use super::*;
use crate::event::EventSeverity;
use crate::query::EventList;

fn events(reader: &EmbeddedReader) -> Vec<StoredEvent> {
    let range = TimeRange { from_ns: i64::MIN, to_ns: i64::MAX };
    let all = ask(reader, &Query::Events(EventList { range, ..EventList::default() }));
    let Answer::Events(rows) = all.answer else { panic!() };
    rows.into_iter().map(|row| row.event).collect()
}

/// A store with segments and a journal, and what it answers.
fn made(folder: &Path) -> Vec<Answer> {
    let store = Store::open(folder, options()).unwrap();
    register(&store, 4);
    let all = batches();
    write(&store, &all[..8]);
    store.flush().unwrap();
    write(&store, &all[8..]);
    answers(&store.reader())
}

/// All files, with their contents.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(snapshot(&path)),
            false => drop(all.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    all
}

#[test]
fn a_catalogue_that_is_gone_is_not_begun_anew() {
    for empty in [true, false] {
        let folder = Folder::new();
        let expected = made(folder.path());
        let path = folder.path().join("catalogue.db");
        let kept = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        if empty {
            fs::write(&path, "").unwrap();
        }
        let before = snapshot(folder.path());
        let by_writer = Store::open(folder.path(), options()).err().unwrap();
        let by_reader = EmbeddedReader::open(folder.path(), None).err().unwrap();
        for error in [by_writer, by_reader] {
            let text = error.to_string();
            assert!(matches!(error, StoreError::CatalogueGone { segments: 1.., .. }), "{text}");
            assert!(text.contains("back-up") && text.contains("mv "), "{text}");
        }
        assert_eq!(snapshot(folder.path()), before, "nothing changes");
        // With the catalogue back in its place nothing is missing.
        fs::write(&path, kept).unwrap();
        let store = Store::open(folder.path(), options()).unwrap();
        assert_eq!(answers(&store.reader()), expected);
    }
    // What never held anything is begun anew.
    let folder = Folder::new();
    drop(Store::open(folder.path(), options()).unwrap());
    fs::remove_file(folder.path().join("catalogue.db")).unwrap();
    drop(Store::open(folder.path(), options()).unwrap());
}

#[test]
fn a_journal_without_a_catalogue_is_not_given_to_other_series() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), options()).unwrap();
    register(&store, 4);
    write(&store, &batches()[..2]);
    drop(store);
    fs::remove_file(folder.path().join("catalogue.db")).unwrap();
    let error = Store::open(folder.path(), options()).err().unwrap();
    let StoreError::CatalogueGone { segments, journal_octets, .. } = error else { panic!() };
    assert!(segments == 0 && journal_octets > 0);
}

#[test]
fn a_damaged_catalogue_is_refused_with_the_next_step() {
    let folder = Folder::new();
    made(folder.path());
    let path = folder.path().join("catalogue.db");
    let whole = fs::read(&path).unwrap();
    let pages = whole.len() / 4_096;
    assert!(pages > 4, "{pages}");
    let mut refused = 0;
    for page in 0..pages {
        let mut bad = whole.clone();
        bad[page * 4_096 + 8..][..2_000].iter_mut().for_each(|octet| *octet ^= 0x5a);
        fs::write(&path, &bad).unwrap();
        let seg = snapshot(&folder.path().join("seg"));
        match Store::open(folder.path(), options()) {
            Ok(_) => {}
            Err(error) => {
                let text = error.to_string();
                assert!(matches!(error, StoreError::CatalogueDamaged { .. }), "{page}: {text}");
                assert!(text.contains("back-up") && !text.contains("Invalid column"), "{text}");
                assert_eq!(snapshot(&folder.path().join("seg")), seg);
                refused += 1;
            }
        }
    }
    assert!(refused >= pages / 2, "{refused} of {pages}");
}

#[test]
fn a_path_that_the_store_does_not_make_is_damage_of_the_catalogue() {
    let folder = Folder::new();
    made(folder.path());
    let kept = folder.path().join("kept");
    fs::write(&kept, "kept").unwrap();
    let catalogue = rusqlite::Connection::open(folder.path().join("catalogue.db")).unwrap();
    let sql = "UPDATE segment SET path = 'kept' WHERE id = (SELECT min(id) FROM segment)";
    catalogue.execute(sql, []).unwrap();
    drop(catalogue);
    let error = Store::open(folder.path(), options()).err().unwrap();
    assert!(matches!(error, StoreError::CatalogueDamaged { .. }), "{error}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
}

#[test]
fn segments_that_an_old_catalogue_does_not_know_are_set_aside() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), options()).unwrap();
    register(&store, 4);
    let all = batches();
    write(&store, &all[..4]);
    store.flush().unwrap();
    lock(&store.shared.catalogue).back_up(&folder.path().join("old.db")).unwrap();
    write(&store, &all[4..]);
    store.flush().unwrap();
    // What the old one lists is compacted away.
    store.maintain(START + 2 * HOUR_NS, None).unwrap();
    drop(store);
    let catalogue = folder.path().join("catalogue.db");
    fs::rename(folder.path().join("old.db"), &catalogue).unwrap();
    let n = files(&folder.path().join("seg"));
    let store = Store::open(folder.path(), options()).unwrap();
    let recovery = store.recovery().clone();
    assert!(recovery.unknown > 0, "{recovery:?}");
    assert_eq!(files(&folder.path().join("damaged")) as u64, recovery.unknown);
    assert!(files(&folder.path().join("seg")) < n);
}

#[test]
fn a_damaged_journal_is_kept_and_told_of_once() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), options()).unwrap();
    register(&store, 4);
    for batch in batches() {
        write(&store, &[batch]);
    }
    drop(store);
    let path = folder.path().join("journal/0000000001.journal");
    let mut octets = fs::read(&path).unwrap();
    let whole = octets.len();
    octets[whole / 2..].iter_mut().for_each(|octet| *octet ^= 0x77);
    fs::write(&path, &octets).unwrap();
    let mut store = Store::open(folder.path(), options()).unwrap();
    let recovery = store.recovery().clone();
    assert!((1..12).contains(&recovery.batches), "{recovery:?}");
    assert!(recovery.damaged_octets as usize >= whole / 2 && recovery.torn_octets == 0);
    for started in ["once", "again"] {
        let all = events(&store.reader());
        assert_eq!(all.len(), 1, "{started}: {all:?}");
        assert_eq!(
            (all[0].kind.as_str(), all[0].severity),
            ("journal_damaged", EventSeverity::Critical)
        );
        assert!(all[0].begin_ns > START, "when the file was written last");
        let of = |field: &str| all[0].evidence[field].as_u64().unwrap();
        assert_eq!(of("octets_not_read"), recovery.damaged_octets);
        assert_eq!((of("batches_read"), of("rows_read")), (recovery.batches, recovery.rows));
        let kept: Vec<_> = snapshot(&folder.path().join("damaged")).into_values().collect();
        assert_eq!(kept, [octets.clone()], "{started}");
        drop(store);
        store = Store::open(folder.path(), options()).unwrap();
    }
    store.flush().unwrap();
    assert!(!path.exists(), "its batches are in segments");
    assert_eq!(files(&folder.path().join("damaged")), 1);
}

/// Garbles a segment of the table; its path in the store.
fn garble(store: &Store, table: Table) -> PathBuf {
    let state = lock(&store.shared.state);
    let segment = state.segments.iter().find(|s| s.record.table == table).unwrap();
    let mut octets = fs::read(segment.path()).unwrap();
    octets[100] ^= 1;
    fs::write(segment.path(), octets).unwrap();
    segment.record.path.clone().into()
}

#[test]
fn what_a_reader_elsewhere_finds_the_writer_sets_aside() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), options()).unwrap();
    register(&store, 4);
    write(&store, &batches());
    store.flush().unwrap();
    let path = garble(&store, Table::Interval1m);
    let other = EmbeddedReader::open(folder.path(), None).unwrap();
    let query =
        Query::Availability(Availability { range: all_time(), filter: SeriesFilter::default() });
    assert_eq!(ask(&other, &query).damaged_segments, 1);
    assert_eq!(other.damaged(), [path.display().to_string()]);
    // Somebody says so of a segment that is whole.
    let whole = lock(&store.shared.state)
        .segments
        .iter()
        .map(|s| s.record.path.clone())
        .find(|p| **p != *path.display().to_string())
        .unwrap();
    own_files::note_found(folder.path(), &folder.path().join(&whole));
    assert_eq!(files(&folder.path().join("damaged")), 2);
    // Nothing else is due then.
    let done = store.maintain(START, None).unwrap();
    assert_eq!(done.set_aside, 1);
    let all = events(&store.reader());
    assert_eq!(all.iter().map(|e| e.kind.as_str()).collect::<Vec<_>>(), ["segment_damaged"]);
    assert!(!folder.path().join(&path).exists() && folder.path().join(&whole).exists());
    assert_eq!(files(&folder.path().join("damaged")), 1, "the notes are gone");
    assert_eq!(ask(&other, &query).damaged_segments, 0);
}

#[test]
fn an_export_goes_on_after_a_damaged_segment() {
    let folder = Folder::new();
    let store = Store::open(folder.path(), options()).unwrap();
    register(&store, 4);
    write(&store, &batches());
    store.flush().unwrap();
    let path = garble(&store, Table::Interval);
    let reader = EmbeddedReader::open(folder.path(), None).unwrap();
    let export =
        Export { table: Table::Interval, range: all_time(), filter: SeriesFilter::default() };
    let mut opened = 0;
    let file = folder.path().join("rows.csv");
    let done = reader.export_text(&export, ExportText::Csv, &Limit::default(), &mut || {
        opened += 1;
        Ok(Box::new(fs::File::create(&file)?))
    });
    let done = done.unwrap();
    assert_eq!((opened, done.damaged_segments), (1, 1), "standard output is not begun anew");
    assert!((1..720).contains(&done.rows), "{done:?}");
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count() as u64, done.rows + 1);
    assert_eq!(reader.damaged(), [path.display().to_string()]);
    let parquet = folder.path().join("rows.parquet");
    assert_eq!(reader.export_parquet(&export, &Limit::default(), &parquet).unwrap(), done);
}

#[test]
fn a_lack_of_room_is_told_of_from_its_begin_to_its_end() {
    let folder = Folder::new();
    let retention = Retention { tables: BTreeMap::new(), floor_octets: 1_000 };
    let open = || {
        Store::open(folder.path(), StoreOptions { retention: retention.clone(), ..options() })
            .unwrap()
    };
    let store = open();
    register(&store, 4);
    write(&store, &batches());
    store.flush().unwrap();
    let second = 1_000_000_000;
    let now = START + 5 * HOUR_NS;
    store.maintain(now, Some(1_000)).unwrap();
    assert_eq!(events(&store.reader()), [], "there is room");
    let rows: u64 = store.state().iter().map(|table| table.rows).sum();
    let tables = store.state().len();
    store.maintain(now + second, Some(0)).unwrap();
    let of = |store: &Store, kind: &str| -> Vec<StoredEvent> {
        events(&store.reader()).into_iter().filter(|event| event.kind == kind).collect()
    };
    let full = of(&store, "disk_full");
    assert_eq!(full.len(), 1);
    assert_eq!((full[0].begin_ns, full[0].end_ns), (now + second, None));
    let given_up = of(&store, "rows_given_up");
    let first: u64 = given_up.iter().map(|event| event.evidence["rows"].as_u64().unwrap()).sum();
    assert!(first > 0 && first <= rows && given_up.len() <= tables, "{given_up:?}");
    assert!(
        given_up.iter().all(|e| e.begin_ns < e.end_ns.unwrap() && e.begin_ns >= START - DAY_NS)
    );
    store.maintain(now + 2 * second, Some(0)).unwrap();
    assert_eq!(of(&store, "disk_full").len(), 1, "it lasts");
    // It lasts over a restart, too.
    drop(store);
    let store = open();
    store.maintain(now + 3 * second, Some(0)).unwrap();
    assert_eq!(of(&store, "disk_full"), full);
    assert_eq!(of(&store, "disk_recovered"), []);
    store.maintain(now + 20 * second, Some(1_000_000)).unwrap();
    store.maintain(now + 40 * second, Some(1_000_000)).unwrap();
    assert!(of(&store, "disk_full")[0].end_ns.is_some());
    let recovered = of(&store, "disk_recovered");
    assert_eq!(recovered.len(), 1);
    assert_eq!(recovered[0].evidence["event"], 1, "{recovered:?}");
}

#[test]
fn rows_that_a_failed_write_costs_are_told_of() {
    let folder = Folder::new();
    let disk = Arc::new(FaultyDisk::default());
    let store = Store::open_on(disk.clone(), folder.path(), options()).unwrap();
    register(&store, 4);
    write(&store, &batches());
    store.flush().unwrap();
    store.maintain(START, None).unwrap();
    let before: u64 = store.state().iter().map(|table| table.rows).sum();
    disk.calls_until_full(0);
    write(&store, &[batch(50, testing::intervals(9, 4, 30, 5))]);
    let after: u64 = store.state().iter().map(|table| table.rows).sum();
    assert!(after < before, "something was given up");
    store.maintain(START + 1, None).unwrap();
    let all = events(&store.reader());
    let rows = |event: &StoredEvent| event.evidence["rows"].as_u64();
    assert_eq!(all.iter().filter_map(rows).sum::<u64>(), before - after, "{all:?}");
    assert!(all.iter().any(|event| event.kind == "disk_full"), "{all:?}");
}
