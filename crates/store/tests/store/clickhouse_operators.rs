//! What operators of a ClickHouse rely on: rights, retention, a spool's copy, the room on its disk.

use sonde_store::query::{Overview, TimeRange};
use sonde_store::{
    Batch, ClickHouseOptions, ClickHouseReader, ClickHouseStore, DAY_NS, KeepTable, Limit, Query,
    Reader as _, Retention, Rows, StoreBackend as _, StoreError, Table,
};

use crate::clickhouse::{ask, holds, labels, options, row, sums, write};
use crate::clickhouse_server::Server;
use crate::support::script::BASE_NS;

#[test]
fn a_spool_restored_from_an_old_copy_is_refused_and_the_station_goes_on_without_it() {
    let test = "a_spool_restored_from_an_old_copy_is_refused_and_the_station_goes_on_without_it";
    let Some(server) = Server::start(test) else { return };
    let database = server.database("restored");
    let (folder, copy) = (server.spool("ber"), server.spool("copy"));
    let write_one = |folder: &std::path::Path, number: u64| {
        let store = ClickHouseStore::open(folder, options(&database, "ber")).unwrap();
        let series = store.register_all(&[labels("a")]).unwrap()[0];
        write(&store, series, number).unwrap();
        store.flush()
    };
    write_one(&folder, 1).unwrap();
    // While the station does not run, a copy is made; then it goes on.
    let status = std::process::Command::new("cp").arg("-r").args([&folder, &copy]).status();
    assert!(status.unwrap().success());
    write_one(&folder, 2).unwrap();
    write_one(&folder, 3).unwrap();
    holds(&database, 3);
    // Rows of the copy's next lot would be taken for a repeat: in the roll-ups they were lost.
    let error = write_one(&copy, 2).unwrap_err();
    assert!(matches!(error, StoreError::SpoolRestored { .. }), "{error}");
    holds(&database, 3);
    let text = error.to_string();
    let claim = text.split("DROP TABLE ").nth(1).unwrap().split('\'').next().unwrap();
    // As it says: without the copy, and without the claim.
    std::fs::remove_dir_all(&copy).unwrap();
    let post = ureq::post(format!("http://127.0.0.1:{}/", server.port()));
    post.send(format!("DROP TABLE {claim}")).unwrap();
    write_one(&copy, 4).unwrap();
    holds(&database, 4);
    // The folder that went on meanwhile is another station's now.
    let error = write_one(&folder, 5).unwrap_err();
    assert!(matches!(error, StoreError::SpoolOfAnother { .. }), "{error}");
}

#[test]
fn a_spool_leaves_of_the_disk_what_others_need() {
    let test = "a_spool_leaves_of_the_disk_what_others_need";
    let Some(mut server) = Server::start(test) else { return };
    let database = server.database("floor");
    let keep = Retention { floor_octets: 1_000_000, ..options(&database, "ber").retention };
    let options = ClickHouseOptions { retention: keep, ..options(&database, "ber") };
    let store = ClickHouseStore::open(&server.spool("ber"), options).unwrap();
    let series = store.register_all(&[labels("a")]).unwrap()[0];
    server.kill();
    let away = |store: &ClickHouseStore, free: u64| {
        let error = store.maintain(BASE_NS, Some(free)).unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    };
    write(&store, series, 1).unwrap();
    store.flush().unwrap_err();
    for free in [1_000_000, 999_999, 0] {
        away(&store, free);
        let error = write(&store, series, 2).unwrap_err();
        assert!(matches!(error, StoreError::SpoolFull { .. }), "{free}: {error}");
    }
    // With room for a little more it takes a little more.
    away(&store, 1_000_500);
    let mut taken = 1;
    let refused = loop {
        match write(&store, series, taken + 1) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 1_000, "it never ends");
    };
    assert!(matches!(refused, StoreError::SpoolFull { .. }), "{refused}");
    assert!(taken > 1, "{taken}");
    // Others made room, and the server is back.
    away(&store, 5_000_000);
    write(&store, series, taken + 1).unwrap();
    server.run();
    store.flush().unwrap();
    holds(&database, taken + 1);
}

/// The rights that docs/store.md names.
#[test]
fn a_station_needs_one_database_and_who_asks_needs_only_to_read() {
    let test = "a_station_needs_one_database_and_who_asks_needs_only_to_read";
    let Some(server) = Server::start(test) else { return };
    let keeper = server.own_database("keeper", "k");
    let store = ClickHouseStore::open(&server.spool("ber"), options(&keeper, "ber")).unwrap();
    let series = store.register_all(&[labels("a")]).unwrap()[0];
    write(&store, series, 1).unwrap();
    store.flush().unwrap();
    store.set_retention(Retention {
        tables: [(Table::Flow, KeepTable { age_ns: Some(DAY_NS), octets: None })].into(),
        floor_octets: 0,
    });
    store.maintain(BASE_NS + 60_000_000_000, None).unwrap();

    let reader = server.own_database("reader", "r");
    holds(&reader, 1);
    let asks = ClickHouseReader::open(&reader);
    let range = TimeRange { from_ns: BASE_NS, to_ns: BASE_NS + DAY_NS };
    let overview = Query::Overview(Overview { range, ..Overview::default() });
    assert_eq!(ask(&asks, &overview), ask(&*store.reader(), &overview));
    for text in ["INSERT INTO iv (series) SELECT 1", "DROP TABLE iv"] {
        let error = asks.sql(text, range, &Limit::default()).unwrap_err();
        assert!(matches!(error, StoreError::Query { .. }), "{text}: {error}");
    }
    let few = Limit { answer_rows: 3, ..Limit::default() };
    assert!(asks.sql("SELECT number FROM system.numbers LIMIT 10", range, &few).is_err());
    holds(&reader, 1);

    for server in [server.own_database("reader", "wrong"), server.own_database("nobody", "x")] {
        let error = ClickHouseReader::open(&server).query(&overview, &Limit::default());
        assert!(matches!(error, Err(StoreError::Refused { .. })), "{error:?}");
    }
}

#[test]
fn what_is_too_old_or_too_much_is_given_up() {
    let test = "what_is_too_old_or_too_much_is_given_up";
    let Some(server) = Server::start(test) else { return };
    let database = server.database("old");
    let store = ClickHouseStore::open(&server.spool("ber"), options(&database, "ber")).unwrap();
    let series = store.register_all(&[labels("a")]).unwrap()[0];
    let day = DAY_NS / 1_000_000_000;
    let rows = (0..5).map(|n| row(series, n * day, 5)).collect();
    let batch = Batch { writer: "it".into(), number: 1, rows: Rows::Intervals(rows).into() };
    let mut writer = store.writer().unwrap();
    writer.append(&batch).unwrap();
    writer.sync().unwrap();
    store.flush().unwrap();
    assert_eq!(sums(&database), [(5, 25); 4]);
    let age_ns = Some(DAY_NS + DAY_NS / 2);
    let keep = [(Table::Interval, KeepTable { age_ns, octets: None })];
    store.set_retention(Retention { tables: keep.into(), floor_octets: 0 });
    let now = BASE_NS + 4 * DAY_NS + 60_000_000_000;
    let done = store.maintain(now, None).unwrap();
    assert_eq!((done.expired, sums(&database)[0]), (2, (3, 15)));
    assert_eq!(store.maintain(now + 1, None).unwrap().expired, 0);
    let keep = [(Table::Interval1m, KeepTable { age_ns: None, octets: Some(1) })];
    store.set_retention(Retention { tables: keep.into(), floor_octets: 0 });
    store.maintain(now + 2, None).unwrap();
    // The newest partition stays, and so do the other tables.
    assert_eq!(sums(&database), [(3, 15), (1, 5), (5, 25), (5, 25)]);
}

/// Whole partitions go: a day of the full rate and of minutes, 30 days of hours, 360 of days.
#[test]
fn each_level_keeps_its_own_age_and_size() {
    let test = "each_level_keeps_its_own_age_and_size";
    let Some(server) = Server::start(test) else { return };
    let database = server.database("levels");
    let store = ClickHouseStore::open(&server.spool("ber"), options(&database, "ber")).unwrap();
    let series = store.register_all(&[labels("a")]).unwrap()[0];
    let (days, second) = ([0, 100, 400, 780, 800], 1_000_000_000);
    let rows = days.iter().map(|day| row(series, day * DAY_NS / second, 5)).collect();
    let batch = Batch { writer: "it".into(), number: 1, rows: Rows::Intervals(rows).into() };
    let mut writer = store.writer().unwrap();
    writer.append(&batch).unwrap();
    writer.sync().unwrap();
    store.flush().unwrap();
    assert_eq!(sums(&database), [(5, 25); 4]);

    let levels = [
        (Table::Interval, 1),
        (Table::Interval1m, 1),
        (Table::Interval1h, 30),
        (Table::Interval1d, 360),
    ];
    let now = BASE_NS + 800 * DAY_NS + 60 * second;
    // What is left where a partition stays for which `stays` holds: it has its last day.
    let left = |stays: &dyn Fn(i64) -> bool| {
        levels.map(|(_, length)| {
            let partition = |day: &i64| (BASE_NS / DAY_NS + day).div_euclid(length);
            let end_ns = |day: &i64| (partition(day) + 1) * length * DAY_NS;
            let kept = |day: &&i64| partition(day) == partition(&800) || stays(end_ns(day));
            let kept = days.iter().filter(kept).count() as u64;
            (kept, kept * 5)
        })
    };
    let keep = |age_ns, octets| Retention {
        tables: levels.map(|(table, _)| (table, KeepTable { age_ns, octets })).into(),
        floor_octets: 0,
    };
    let by_age = left(&|end_ns| end_ns >= now - 90 * DAY_NS);
    assert_eq!(by_age[0], (2, 10), "780 and 800 are not 90 days old");
    store.set_retention(keep(Some(90 * DAY_NS), None));
    store.maintain(now, None).unwrap();
    assert_eq!(sums(&database), by_age);
    store.set_retention(keep(None, Some(1)));
    store.maintain(now + second, None).unwrap();
    assert_eq!(sums(&database), left(&|_| false));
}
