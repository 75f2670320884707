//! What a station asks of a ClickHouse beside rows: notes on events, whether there are new ones, what
//! SQL can ask, answers that are cut.

use serde_json::json;
use sonde_results::units::SECOND;
use sonde_store::query::{EventList, TimeRange};
use sonde_store::{
    Answer, ClickHouseOptions, ClickHouseReader, ClickHouseStore, EventId, EventSeverity, Limit,
    Query, Reader, SeriesLabels, SqlValue, StoreBackend, StoreError, StoredEvent,
};

use crate::clickhouse_server::Server;
use crate::support::script::BASE_NS;

fn open(server: &Server, name: &str) -> ClickHouseStore {
    let database = server.database("events");
    let options = ClickHouseOptions::new(database, name);
    ClickHouseStore::open(&server.spool(name), options).unwrap()
}

fn event(title: &str) -> StoredEvent {
    StoredEvent {
        kind: "breach".into(),
        severity: EventSeverity::Critical,
        series: None,
        begin_ns: BASE_NS,
        end_ns: None,
        title: title.into(),
        evidence: json!({"n": 3}),
    }
}

fn events(reader: &dyn Reader) -> Vec<(EventId, StoredEvent)> {
    let range = TimeRange { from_ns: 0, to_ns: i64::MAX };
    let query = Query::Events(EventList { range, ..EventList::default() });
    match reader.query(&query, &Limit::default()).unwrap().answer {
        Answer::Events(rows) => rows.into_iter().map(|row| (row.id, row.event)).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn notes_on_events_are_sent_and_events_of_others_are_noticed() {
    let test = "notes_on_events_are_sent_and_events_of_others_are_noticed";
    let Some(server) = Server::start(test) else { return };
    let (ber, muc) = (open(&server, "ber"), open(&server, "muc"));
    let reader = ber.reader();
    let id = ber.add_event(&event("own")).unwrap();
    ber.flush().unwrap();
    let outside = ClickHouseReader::open(&server.database("events"));
    assert_eq!(outside.event_changes(), None, "who does not write does not know");
    assert_eq!(events(&outside), [(id, event("own"))]);

    // A note is there at once, for others once it is sent; so is that it was taken out.
    let by = Some(json!({"by": "ops"}));
    let noted = StoredEvent { evidence: json!({"n": 3, "acknowledged": by}), ..event("own") };
    let before = reader.event_changes();
    assert_eq!(ber.note_event(id, "acknowledged", by).unwrap().as_ref(), Some(&noted));
    assert_ne!(reader.event_changes(), before);
    assert_eq!(ber.event(id).unwrap().as_ref(), Some(&noted));
    ber.flush().unwrap();
    assert_eq!(events(&outside), [(id, noted)]);
    assert_eq!(ber.note_event(id, "acknowledged", None).unwrap(), Some(event("own")));
    ber.flush().unwrap();
    assert_eq!(events(&outside), [(id, event("own"))]);

    // Only the station that keeps an event changes it.
    assert_eq!(muc.event(id).unwrap(), None);
    assert_eq!(muc.note_event(id, "x", Some(json!(1))).unwrap(), None);
    assert!(!muc.end_event(id, BASE_NS).unwrap());
    assert_eq!(ber.note_event(EventId(id.0 + 1), "x", None).unwrap(), None);

    // What another station keeps is noticed at the next look, once.
    ber.maintain(BASE_NS, None).unwrap();
    let before = reader.event_changes();
    let other = muc.add_event(&event("of the other")).unwrap();
    muc.flush().unwrap();
    ber.maintain(BASE_NS + SECOND, None).unwrap();
    assert_eq!(reader.event_changes(), before, "it is not asked each second");
    ber.maintain(BASE_NS + 10 * SECOND, None).unwrap();
    let after = reader.event_changes();
    assert_ne!(after, before);
    assert_eq!(events(&*reader), [(id, event("own")), (other, event("of the other"))]);
    ber.maintain(BASE_NS + 20 * SECOND, None).unwrap();
    assert_eq!(reader.event_changes(), after);
    assert!(muc.end_event(other, BASE_NS + 7).unwrap());
    muc.flush().unwrap();
    ber.maintain(BASE_NS + 30 * SECOND, None).unwrap();
    assert_ne!(reader.event_changes(), after, "its end, too");
}

#[test]
fn events_of_others_come_back_with_the_server() {
    let test = "events_of_others_come_back_with_the_server";
    let Some(mut server) = Server::start(test) else { return };
    let (ber, muc) = (open(&server, "ber"), open(&server, "muc"));
    let (own, other) =
        (ber.add_event(&event("own")).unwrap(), muc.add_event(&event("of the other")).unwrap());
    ber.flush().unwrap();
    muc.flush().unwrap();
    ber.maintain(BASE_NS, None).unwrap();
    let reader = ber.reader();
    let both = [(own, event("own")), (other, event("of the other"))];
    assert_eq!(events(&*reader), both);
    server.kill();
    assert_eq!(events(&*reader), both[..1]);
    let before = reader.event_changes();
    let error = ber.maintain(BASE_NS + SECOND, None).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    server.run();
    ber.maintain(BASE_NS + 2 * SECOND, None).unwrap();
    assert_ne!(reader.event_changes(), before);
    assert_eq!(events(&*reader), both);
}

#[test]
fn what_sql_is_said_to_ask_is_there_and_an_answer_is_cut_where_that_is_wanted() {
    let test = "what_sql_is_said_to_ask_is_there_and_an_answer_is_cut_where_that_is_wanted";
    let Some(server) = Server::start(test) else { return };
    let store = open(&server, "ber");
    store.register_all(&[SeriesLabels::default()]).unwrap();
    let reader = store.reader();
    let range = TimeRange { from_ns: 0, to_ns: 1 };
    let sql = |text: &str, limit: &Limit| reader.sql(text, range, limit).unwrap();
    let all = Limit { answer_rows: 10_000, ..Limit::default() };
    let said: Vec<[String; 3]> = reader
        .sql_tables()
        .into_iter()
        .flat_map(|t| t.columns.into_iter().map(move |c| [t.name.into(), c.name, c.sql_type]))
        .collect();
    let text = "SELECT table, name, type FROM system.columns WHERE database = 'events' \
                AND name != 'lot'";
    let found = sql(text, &all).rows.into_iter().map(|row| {
        let text = |value: &SqlValue| value.to_string();
        [text(&row[0]), text(&row[1]), text(&row[2])]
    });
    let found: Vec<[String; 3]> =
        found.filter(|[table, ..]| !table.starts_with("station_")).collect();
    let sorted = |mut all: Vec<[String; 3]>| {
        all.sort();
        all
    };
    assert_eq!(sorted(said), sorted(found));
    let number = "SELECT number FROM system.numbers LIMIT";
    for (asked, cut, got) in [(9, true, 3), (4, true, 3), (3, true, 3), (2, true, 2), (3, false, 3)]
    {
        let limit = Limit { answer_rows: 3, cut, ..Limit::default() };
        let table = sql(&format!("{number} {asked}"), &limit);
        let numbers: Vec<SqlValue> = table.rows.into_iter().flatten().collect();
        assert_eq!(numbers, (0..got).map(SqlValue::Integer).collect::<Vec<_>>(), "of {asked}");
        assert_eq!(table.truncated, asked > 3, "of {asked}");
    }
}
