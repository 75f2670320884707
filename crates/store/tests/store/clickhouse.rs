//! The store in ClickHouse, against the server as Debian packages it: the same answers as the embedded
//! store and the model; nothing lost and nothing twice, whatever the server does.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sonde_store::query::{EventList, Overview, TimeRange};
use sonde_store::{
    Answer, Batch, ClickHouseOptions, ClickHouseReader, ClickHouseServer, ClickHouseStore, DAY_NS,
    IntervalRow, KeepTable, Limit, Query, Reader, Retention, Rows, SeriesId, SeriesLabels,
    SqlValue, StoreBackend, StoreError, StoredEvent, Table,
};

use crate::clickhouse_server::Server;
use crate::queries::{check, load, scripts, some_script};
use crate::support::script::{BASE_NS, Script};
use crate::support::{model, render::render};

/// Nothing is sent by time alone.
pub fn options(server: &ClickHouseServer, station: &str) -> ClickHouseOptions {
    ClickHouseOptions { seal_after_ns: i64::MAX, ..ClickHouseOptions::new(server.clone(), station) }
}

pub fn ask(reader: &dyn Reader, query: &Query) -> String {
    render(&reader.query(query, &Limit::default()).unwrap().answer)
}

/// What ClickHouse answers about a script: sent in one lot, and in lots of two rows.
fn every_state(
    server: &Server,
    name: &str,
    script: &Script,
    mut check: impl FnMut(&str, &dyn Fn(&Query) -> String),
) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for rows in [1_000, 2] {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let database = server.database(&format!("contract_{number}"));
        let folder = server.spool(&format!("{name}-{number}"));
        let store = ClickHouseStore::open(&folder, options(&database, "ber")).unwrap();
        load(&store, script, rows, || {
            if rows == 2 {
                store.flush().unwrap();
            }
        });
        store.flush().unwrap();
        let state = format!("in ClickHouse by {rows} rows");
        check(&state, &|query| ask(&*store.reader(), query));
        let other = ClickHouseReader::open(&database);
        check(&format!("{state}, for another process"), &|query| ask(&other, query));
    }
}

#[test]
fn clickhouse_answers_every_question_as_the_embedded_store_does() {
    let test = "clickhouse_answers_every_question_as_the_embedded_store_does";
    if let Some(server) = Server::start(test) {
        answers_every_question(&server, 6);
    }
}

#[test]
fn so_does_the_engine_of_today() {
    let Some(server) = Server::start_engine("so_does_the_engine_of_today") else { return };
    // Each statement takes longer there.
    answers_every_question(&server, 1);
    ages_are_ttls(&server);
}

/// Later servers give up what is too old by themselves.
fn ages_are_ttls(server: &Server) {
    let database = server.database("ttl");
    let store = ClickHouseStore::open(&server.spool("ttl"), options(&database, "ber")).unwrap();
    let ttl = || {
        let text = "SELECT position(engine_full, 'TTL') > 0 FROM system.tables \
                    WHERE database = 'ttl' AND name = 'iv'";
        let range = TimeRange { from_ns: 0, to_ns: 1 };
        ClickHouseReader::open(&database).sql(text, range, &Limit::default()).unwrap().rows
    };
    assert_eq!(ttl(), [[SqlValue::Integer(0)]]);
    for (at, age_ns) in (0..).zip([Some(3_650 * DAY_NS), None, None]) {
        let keep = [(Table::Interval, KeepTable { age_ns, octets: None })];
        store.set_retention(Retention { tables: keep.into(), floor_octets: at });
        store.maintain(BASE_NS, None).unwrap();
        assert_eq!(ttl(), [[SqlValue::Integer(age_ns.is_some().into())]]);
    }
}

/// Those of the scripts, and of so many data that are made up.
fn answers_every_question(server: &Server, made_up: u32) {
    for (path, script) in scripts() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        every_state(server, name, &script, |state, ask| check(state, name, &script, ask));
    }
    let mut runner = TestRunner::new(Config { cases: made_up, ..Config::default() });
    let run = runner.run(&some_script(), |(script, queries)| {
        let expected: Vec<String> =
            queries.iter().map(|q| render(&model::answer(&script, q))).collect();
        every_state(server, "made-up", &script, |state, ask| {
            for (query, expected) in queries.iter().zip(&expected) {
                assert_eq!(&ask(query), expected, "{state}: {query:?}");
            }
        });
        Ok::<_, TestCaseError>(())
    });
    run.unwrap();
}

pub fn labels(target: &str) -> SeriesLabels {
    SeriesLabels { target: target.into(), module: "stamp".into(), ..SeriesLabels::default() }
}

/// `probes` probes in a second, of which one is lost.
pub fn row(series: SeriesId, second: i64, probes: u64) -> IntervalRow {
    let mut record = sonde_results::Interval::empty(0);
    record.start_ns = BASE_NS + second * 1_000_000_000;
    record.end_ns = record.start_ns + 1_000_000_000;
    (record.counters.sent, record.counters.lost) = (probes, 1);
    record.counters.received = probes - 1;
    (1..probes).for_each(|i| record.rtt_net.add(i as i64 * 1_000_000));
    IntervalRow::new(series, &record)
}

/// Makes a batch of ten rows of a series durable.
pub fn write(store: &dyn StoreBackend, series: SeriesId, number: u64) -> Result<(), StoreError> {
    let rows = (0..10).map(|i| row(series, number as i64 * 10 + i, 5)).collect();
    let batch = Batch { writer: "it".into(), number, rows: Rows::Intervals(rows).into() };
    let mut writer = store.writer()?;
    writer.append(&batch)?;
    writer.sync()?;
    assert_eq!(writer.poll_durable().map(|ticket| ticket.number), Some(number));
    Ok(())
}

/// Intervals and probes that each table has, of all series.
pub fn sums(database: &ClickHouseServer) -> Vec<(u64, u64)> {
    let reader = ClickHouseReader::open(database);
    let sum = |table: Table| {
        let (sent, intervals) = match table.is_raw() {
            true => ("sum(sent)", "sum(intervals)"),
            false => ("sumMerge(sent)", "sumMerge(intervals)"),
        };
        let text = format!("SELECT {intervals}, {sent} FROM {}", table.name());
        let range = TimeRange { from_ns: 0, to_ns: 1 };
        let answer = reader.sql(&text, range, &Limit::default()).unwrap();
        match answer.rows[0][..] {
            [SqlValue::Integer(intervals), SqlValue::Integer(sent)] => {
                (intervals as u64, sent as u64)
            }
            ref other => panic!("{other:?}"),
        }
    };
    [Table::Interval, Table::Interval1m, Table::Interval1h, Table::Interval1d].map(sum).into()
}

/// All four tables have so many batches, each once.
pub fn holds(database: &ClickHouseServer, batches: u64) {
    assert_eq!(sums(database), [(batches * 10, batches * 50); 4]);
}

#[test]
fn what_is_measured_while_clickhouse_is_away_is_there_once_when_it_is_back() {
    let test = "what_is_measured_while_clickhouse_is_away_is_there_once_when_it_is_back";
    let Some(mut server) = Server::start(test) else { return };
    let database = server.database("away");
    let folder = server.spool("ber");
    let open = || ClickHouseStore::open(&folder, options(&database, "ber")).unwrap();
    let store = open();
    let series = store.register_all(&[labels("a")]).unwrap()[0];
    write(&store, series, 1).unwrap();
    store.flush().unwrap();
    server.kill();
    for number in 2..5 {
        write(&store, series, number).unwrap();
        let error = store.flush().unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    }
    // A new series, an event and a restart of the station meanwhile.
    let other = store.register_all(&[labels("b"), labels("a")]).unwrap();
    let event = StoredEvent {
        kind: "breach".into(),
        severity: sonde_store::EventSeverity::Critical,
        series: Some(other[0]),
        begin_ns: BASE_NS,
        end_ns: None,
        title: "it's lost \\ 'all'".into(),
        evidence: serde_json::json!({"n": 3}),
    };
    let id = store.add_event(&event).unwrap();
    let events = Query::Events(EventList {
        range: TimeRange { from_ns: 0, to_ns: i64::MAX },
        ..EventList::default()
    });
    let known = ask(&*store.reader(), &events);
    assert!(known.contains("breach"), "what a station knows itself is there: {known}");
    drop(store);
    let store = open();
    assert_eq!(store.last_batch("it"), 4);
    assert_eq!(store.register_all(&[labels("b")]).unwrap(), [other[0]]);
    write(&store, other[0], 5).unwrap();
    let reader = store.reader();
    let overview = Query::Overview(Overview {
        range: TimeRange { from_ns: 0, to_ns: 1 },
        ..Default::default()
    });
    let error = reader.query(&overview, &Limit::default()).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    server.run();
    store.flush().unwrap();
    holds(&database, 5);
    assert_eq!(store.spool_octets(), 0);
    store.flush().unwrap();
    holds(&database, 5);
    // Another process sees the labels and the event, and its end.
    let outside = ClickHouseReader::open(&database);
    assert_eq!(outside.series().unwrap().len(), 2);
    assert_eq!(ask(&outside, &events), ask(&*store.reader(), &events));
    assert!(store.end_event(id, BASE_NS + 7).unwrap());
    store.flush().unwrap();
    let Answer::Events(rows) = outside.query(&events, &Limit::default()).unwrap().answer else {
        panic!("no events");
    };
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].event, StoredEvent { end_ns: Some(BASE_NS + 7), ..event });
}

#[test]
fn a_spool_that_is_full_refuses_and_goes_on_when_the_server_is_back() {
    let test = "a_spool_that_is_full_refuses_and_goes_on_when_the_server_is_back";
    let Some(mut server) = Server::start(test) else { return };
    let database = server.database("full");
    let small = ClickHouseOptions { spool_octets: 3_000, ..options(&database, "ber") };
    let store = ClickHouseStore::open(&server.spool("ber"), small).unwrap();
    let series = store.register_all(&[labels("a")]).unwrap()[0];
    server.kill();
    let mut taken = 0;
    let refused = loop {
        match write(&store, series, taken + 1) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::SpoolFull { .. }), "{refused}");
    assert!(taken > 2, "{taken}");
    server.run();
    store.flush().unwrap();
    write(&store, series, taken + 1).unwrap();
    store.flush().unwrap();
    holds(&database, taken + 1);
}

/// Between a station and its server: passes what is asked, and so many answers; then it loses them.
struct Between {
    port: u16,
    answers: Arc<AtomicU32>,
}

impl Between {
    fn start(server: u16) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = Arc::new(AtomicU32::new(u32::MAX));
        let left = answers.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let left = left.clone();
                std::thread::spawn(move || pass(client.unwrap(), server, &left));
            }
        });
        Between { port, answers }
    }
}

fn pass(mut client: TcpStream, server: u16, answers: &AtomicU32) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)) else { return };
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut octets = [0; 1 << 16];
    while let Ok(n @ 1..) = server.read(&mut octets) {
        let one = |left: u32| if left == u32::MAX { Some(left) } else { left.checked_sub(1) };
        if answers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one).is_err() {
            // The server has done it; nobody hears so.
            let _ = client.shutdown(Shutdown::Both);
            return;
        }
        if client.write_all(&octets[..n]).is_err() {
            return;
        }
    }
}

/// ClickHouse's error for a second statement of a name.
pub const SAME_STATEMENT_RUNS: u32 = 216;

#[test]
fn rows_whose_answer_is_lost_are_in_each_table_once() {
    let test = "rows_whose_answer_is_lost_are_in_each_table_once";
    let Some(server) = Server::start(test) else { return };
    let between = Between::start(server.port());
    let near = ClickHouseServer::parse(&format!("http://127.0.0.1:{}/lost", between.port)).unwrap();
    let database = server.database("lost");
    let folder = server.spool("ber");
    let mut store = ClickHouseStore::open(&folder, options(&near, "ber")).unwrap();
    let series = store.register_all(&[labels("a")]).unwrap()[0];
    let mut losses = 0;
    for number in 1..6 {
        write(&store, series, number).unwrap();
        // At each try another answer is lost: that of every statement once.
        for left in 0.. {
            between.answers.store(left, Ordering::Relaxed);
            match store.flush() {
                Ok(_) => break,
                Err(StoreError::Unreachable { .. }) => losses += 1,
                // What was cut off is not over yet: the same statement waits for it.
                Err(StoreError::Refused { code: SAME_STATEMENT_RUNS, .. }) => {}
                Err(error) => panic!("{error}"),
            }
            assert!(left < 1_000, "it never ends");
            if left == 2 && number % 2 == 0 {
                // The station ends before it hears of it.
                drop(store);
                store = ClickHouseStore::open(&folder, options(&near, "ber")).unwrap();
            }
        }
        between.answers.store(u32::MAX, Ordering::Relaxed);
        holds(&database, number);
    }
    assert!(losses >= 5 * 4, "answers were lost: {losses}");
}

#[test]
fn a_server_that_is_killed_while_rows_come_has_each_once() {
    let test = "a_server_that_is_killed_while_rows_come_has_each_once";
    let Some(mut server) = Server::start(test) else { return };
    let database = server.database("killed");
    let lots = ClickHouseOptions { seal_rows: 20, ..options(&database, "ber") };
    let store = ClickHouseStore::open(&server.spool("ber"), lots).unwrap();
    let series = store.register_all(&[labels("a")]).unwrap()[0];
    let mut number = 0;
    for round in 0..5 {
        let killed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !killed.load(Ordering::Relaxed) {
                    // One of them is cut off.
                    let _ = store.flush();
                }
            });
            for _ in 0..20 + round * 7 {
                number += 1;
                write(&store, series, number).unwrap();
            }
            server.kill();
            killed.store(true, Ordering::Relaxed);
        });
        server.run();
        store.flush().unwrap();
        holds(&database, number);
    }
}

#[test]
fn several_stations_write_into_one_database() {
    let test = "several_stations_write_into_one_database";
    let Some(server) = Server::start(test) else { return };
    let database = server.database("several");
    let stores: Vec<ClickHouseStore> = std::thread::scope(|scope| {
        let open = |name: &'static str| {
            let (folder, database) = (server.spool(name), &database);
            scope.spawn(move || ClickHouseStore::open(&folder, options(database, name)).unwrap())
        };
        let all = ["ber", "muc", "fra", "ham"].map(open);
        all.into_iter().map(|opening| opening.join().unwrap()).collect()
    });
    let mut ids = Vec::new();
    for (n, store) in stores.iter().enumerate() {
        let site = SeriesLabels { site: n.to_string(), ..labels("a") };
        let series = store.register_all(&[site]).unwrap()[0];
        write(store, series, 1).unwrap();
        store.flush().unwrap();
        ids.push(series);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "each has a number of its own");
    holds(&database, 4);
    let range = TimeRange { from_ns: BASE_NS, to_ns: BASE_NS + DAY_NS };
    let by = vec!["module".to_owned()];
    let query = Query::Overview(Overview { range, by, ..Overview::default() });
    // Each of them answers for all.
    let answers: Vec<String> = stores.iter().map(|s| ask(&*s.reader(), &query)).collect();
    assert!(answers[0].starts_with("[stamp] members=4 silent=0 intervals=40"), "{}", answers[0]);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    // A second one of that name would be taken for a repeat.
    let error = ClickHouseStore::open(&server.spool("other"), options(&database, "muc")).err();
    let text = error.map(|e| e.to_string()).unwrap_or_default();
    assert!(
        text.contains("another name") && text.contains("DROP TABLE several.station_"),
        "{text}"
    );
    drop(stores);
    // A folder that was lost: the station goes on after what the server has.
    let claim = text.rsplit("DROP TABLE ").next().unwrap().trim_end_matches("' there");
    let post = ureq::post(format!("http://127.0.0.1:{}/", server.port()));
    post.send(format!("DROP TABLE {claim}")).unwrap();
    let store = ClickHouseStore::open(&server.spool("new"), options(&database, "muc")).unwrap();
    let known = SeriesLabels { site: "1".into(), ..labels("a") };
    let series = store.register_all(&[known, labels("b")]).unwrap();
    assert!(ids.contains(&series[0]) && !ids.contains(&series[1]), "{series:?}");
    write(&store, series[1], 1).unwrap();
    store.flush().unwrap();
    holds(&database, 5);
}

#[test]
fn a_spool_goes_on_in_an_empty_database_and_not_in_that_of_another() {
    let test = "a_spool_goes_on_in_an_empty_database_and_not_in_that_of_another";
    let Some(server) = Server::start(test) else { return };
    let folder = server.spool("ber");
    let write_to = |name: &str, number| {
        let database = server.database(name);
        let store = ClickHouseStore::open(&folder, options(&database, "ber")).unwrap();
        let series = store.register_all(&[labels("a")]).unwrap()[0];
        write(&store, series, number).unwrap();
        store.flush()
    };
    write_to("first", 1).unwrap();
    write_to("second", 2).unwrap();
    for name in ["first", "second"] {
        let database = server.database(name);
        holds(&database, 1);
        assert_eq!(ClickHouseReader::open(&database).series().unwrap().len(), 1);
    }
    let database = server.database("others");
    ClickHouseStore::open(&server.spool("muc"), options(&database, "muc")).unwrap();
    let error = write_to("others", 3).unwrap_err();
    assert!(error.to_string().contains("others.station_0"), "{error}");
    write_to("first", 4).unwrap();
    holds(&server.database("first"), 3);
}

#[test]
fn questions_in_sql_change_nothing_and_end_at_their_limits() {
    let test = "questions_in_sql_change_nothing_and_end_at_their_limits";
    let Some(server) = Server::start(test) else { return };
    let database = server.database("questions");
    let store = ClickHouseStore::open(&server.spool("ber"), options(&database, "ber")).unwrap();
    let series = store.register_all(&[labels("a")]).unwrap()[0];
    write(&store, series, 1).unwrap();
    store.flush().unwrap();
    let reader = ClickHouseReader::open(&database);
    let sql =
        |text: &str, limit: &Limit| reader.sql(text, TimeRange { from_ns: 0, to_ns: 1 }, limit);
    let all = Limit::default();
    let table = sql("SELECT 'x' AS name, count() AS n, max(lost) / 4 FROM iv", &all).unwrap();
    assert_eq!(table.columns[..2], ["name", "n"]);
    let row = [SqlValue::Text("x".into()), SqlValue::Integer(10), SqlValue::Real(0.25)];
    assert_eq!(table.rows, [row]);
    for text in [
        "DROP TABLE iv",
        "INSERT INTO iv (series) SELECT 1",
        "CREATE TABLE x (a UInt8) ENGINE = Memory()",
        "SELECT 1 SETTINGS readonly = 0",
        "SELECT * FROM nowhere",
        "SELECT",
        "SELECT 1 FORMAT TSV",
    ] {
        let error = sql(text, &all).unwrap_err();
        assert!(matches!(error, StoreError::Query { .. }), "{text}: {error}");
    }
    let few = Limit { answer_rows: 3, ..Limit::default() };
    assert!(sql("SELECT number FROM system.numbers LIMIT 10", &few).is_err());
    let few = Limit { scanned_rows: 3, ..Limit::default() };
    assert!(sql("SELECT count() FROM iv WHERE sent > 0", &few).is_err());
    let stopped = Limit { stop: Some(Arc::new(AtomicBool::new(true))), ..Limit::default() };
    let error = sql("SELECT count() FROM system.numbers", &stopped).unwrap_err();
    assert!(matches!(error, StoreError::Stopped), "{error}");
    holds(&database, 1);
}
