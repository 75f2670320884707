//! Questions and answers: every file of `queries/` against the embedded store in each of its states,
//! and against a model that adds up values by brute force; then made-up data and questions.
//!
//! `SONDE_BLESS=1` writes the answers of the model into the files: read them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::script::{
    BASE_NS, Measured, MeasuredGroup, Script, measured, measured_group, parse,
};
use crate::support::{Folder, model, options, render::render};
use proptest::prelude::*;
use sonde_results::{Caveat, Interval};
use sonde_store::query::{
    Availability, Bands, Delay, FlowDimension, FlowMeasure, FlowPointRank, FlowPoints, Heat,
    Overview, RttTop, SeriesPoints, TimeRange, Top,
};
use sonde_store::{
    Batch, EmbeddedReader, FlowRow, IntervalRow, Limit, Query, Reader, Rows, SeriesFilter,
    SeriesId, SeriesLabels, Store, StoreBackend,
};

/// Loads a script, in batches of so many rows; after each of them `then` is done.
pub fn load(store: &dyn StoreBackend, script: &Script, rows: usize, mut then: impl FnMut()) {
    let ids: Vec<SeriesId> = (0..script.series.len() as u32).map(SeriesId).collect();
    assert_eq!(store.register_all(&script.series).unwrap(), ids);
    for event in &script.events {
        store.add_event(event).unwrap();
    }
    let mut writer = store.writer().unwrap();
    let mut number = 0;
    let mut give = |rows: Rows| {
        number += 1;
        let batch = Batch { writer: "script".into(), number, rows: rows.into() };
        writer.append(&batch).unwrap();
        writer.sync().unwrap();
        then();
    };
    for part in script.intervals.chunks(rows) {
        let rows = part.iter().map(|(id, m)| IntervalRow::new(*id, &m.record)).collect();
        give(Rows::Intervals(rows));
    }
    for part in script.flows.chunks(rows) {
        give(Rows::Flows(part.to_vec()));
    }
    for part in script.rtt.chunks(rows) {
        give(Rows::Rtt(part.iter().map(|(_, m)| m.row.clone()).collect()));
    }
    for part in script.interfaces.chunks(rows) {
        give(Rows::Interfaces(part.to_vec()));
    }
}

/// What each state of a store answers, with the name of the state.
fn every_state(
    name: &str,
    script: &Script,
    mut check: impl FnMut(&str, &dyn Fn(&Query) -> String),
) {
    let folder = Folder::new(name);
    let ask = |reader: &EmbeddedReader, query: &Query| {
        let response = reader.query(query, &Limit::default()).unwrap();
        render(&response.answer)
    };
    {
        let store = Store::open(&folder.path().join("1"), options()).unwrap();
        load(&store, script, 1_000, || {});
        let reader = store.reader();
        check("in the journal", &|query| ask(&reader, query));
        let other = EmbeddedReader::open(&folder.path().join("1"), None).unwrap();
        check("in the journal, for another process", &|query| ask(&other, query));
        store.flush().unwrap();
        check("in segments", &|query| ask(&reader, query));
    }
    let path = folder.path().join("2");
    {
        // A segment for every few rows, and what is due is done at each instant.
        let store = Store::open(&path, options()).unwrap();
        let mut now = BASE_NS;
        load(&store, script, 2, || {
            store.flush().unwrap();
            now += 600_000_000_000;
            store.maintain(now, None).unwrap();
        });
        let reader = store.reader();
        check("rolled up in part", &|query| ask(&reader, query));
        store.maintain(BASE_NS + 1_000 * sonde_store::DAY_NS, None).unwrap();
        check("rolled up and compacted", &|query| ask(&reader, query));
        let other = EmbeddedReader::open(&path, None).unwrap();
        check("compacted, for another process", &|query| ask(&other, query));
    }
    let store = Store::open(&path, options()).unwrap();
    check("after a restart", &|query| ask(&store.reader(), query));
}

/// The scripts, by their names.
pub fn scripts() -> Vec<(PathBuf, Script)> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let list =
        |folder: &str| std::fs::read_dir(tests.join(folder)).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<PathBuf> = list("queries").chain(list("formats")).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "test"));
    files.sort();
    assert!(files.len() >= 8, "a file for each query: {files:?}");
    let read = |path: PathBuf| {
        let script = parse(&std::fs::read_to_string(&path).unwrap());
        assert!(!script.questions.is_empty(), "{} asks nothing", path.display());
        (path, script)
    };
    files.into_iter().map(read).collect()
}

/// Checks that a backend answers the questions of a script as its file says.
pub fn check(state: &str, name: &str, script: &Script, ask: &dyn Fn(&Query) -> String) {
    for q in &script.questions {
        assert_eq!(ask(&q.query), q.expected, "{state}, {name}, line {}: {}", q.line, q.text);
    }
}

/// The place of a query's kind in a list of all. A new kind does not compile before it is here.
fn kind_of(query: &Query) -> usize {
    match query {
        Query::Overview(_) => 0,
        Query::Series(_) => 1,
        Query::Bands(_) => 2,
        Query::Heat(_) => 3,
        Query::Top(_) => 4,
        Query::RttTop(_) => 5,
        Query::Availability(_) => 6,
        Query::Events(_) => 7,
        Query::Evidence(_) => 8,
        Query::BadSamples(_) => 9,
        Query::FlowRates(_) => 10,
        Query::Merged(_) => 11,
        Query::Interfaces(_) => 12,
        Query::FlowPoints(_) => 13,
    }
}

/// One more than the greatest of [`kind_of`].
const KINDS: usize = 14;

/// Each backend answers all scripts with the same data: so they ask every kind of query.
#[test]
fn scripts_ask_every_kind_of_query() {
    let asked = scripts().into_iter().flat_map(|(_, script)| script.questions);
    let kinds: BTreeSet<usize> = asked.map(|question| kind_of(&question.query)).collect();
    assert_eq!(kinds, (0..KINDS).collect());
}

#[test]
fn every_question_has_its_answer_in_every_state() {
    for (path, script) in scripts() {
        if std::env::var_os("SONDE_BLESS").is_some() {
            bless(&path, &std::fs::read_to_string(&path).unwrap(), &script);
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        check("model", name, &script, &|query| render(&model::answer(&script, query)));
        every_state(name, &script, |state, ask| check(state, name, &script, ask));
    }
}

/// Writes the answers of the model below the questions.
fn bless(path: &Path, text: &str, script: &Script) {
    let mut out = String::new();
    for (i, line) in text.lines().enumerate() {
        if line.starts_with("  ") {
            continue;
        }
        out.push_str(line);
        out.push('\n');
        if let Some(q) = script.questions.iter().find(|q| q.line == i + 1) {
            for line in render(&model::answer(script, &q.query)).lines() {
                out.push_str(&format!("  {line}\n"));
            }
        }
    }
    std::fs::write(path, out).unwrap();
}

prop_compose! {
    /// An interval of one second or more, somewhere in three hours.
    fn some_interval()(
        series in 0u32..4,
        at in 0i64..3 * 3_600,
        length in prop_oneof![Just(1i64), Just(10)],
        lost in prop_oneof![4 => Just(0u64), 1 => 0u64..4, 1 => Just(99)],
        rtt in prop::collection::vec((14u32..30).prop_flat_map(|e| (1i64 << e)..(2i64 << e)), 0..6),
        there in -3_000_000i64..30_000_000,
        clocks_differ in prop::bool::weighted(0.3),
        late in prop::bool::weighted(0.2),
        forward in prop::option::of(0u64..3),
    ) -> (SeriesId, Measured) {
        let mut record = Interval::empty(0);
        record.start_ns = BASE_NS + at * 1_000_000_000;
        record.end_ns = record.start_ns + length * 1_000_000_000;
        let answered = if lost == 99 { 0 } else { rtt.len() as u64 };
        let lost = if lost == 99 { rtt.len() as u64 } else { lost };
        record.counters.sent = answered + lost;
        record.counters.lost = lost;
        if let Some(forward) = forward {
            record.counters.lost_forward = Some(forward.min(lost));
            record.counters.lost_backward = Some(0);
        }
        if clocks_differ {
            record.caveats.insert(Caveat::LocalClockUnsynchronised);
        }
        if late {
            record.caveats.insert(Caveat::SenderLate);
        }
        let rtt: Vec<i64> = rtt.into_iter().take(answered as usize).collect();
        let there = rtt.iter().map(|r| r / 2 - there).collect();
        let values = [(Delay::RttNet, rtt), (Delay::Forward, there)];
        (SeriesId(series), measured(record, values.into()))
    }
}

prop_compose! {
    fn some_flow()(
        exporter in 0u32..2,
        at in 0i64..3 * 3_600_000_000,
        host in 0u8..20,
        net in 0u8..3,
        port in prop_oneof![Just(443u16), Just(53), 1_000u16..1_004],
        bytes in 1u64..100_000,
        reverse in 0u64..3_000,
    ) -> FlowRow {
        let mut row = FlowRow {
            exporter: SeriesId(exporter),
            source: sonde_store::flow::mapped([10, 0, net, host].into()),
            destination: sonde_store::flow::mapped([192, 0, 2, host].into()),
            source_port: 50_000,
            destination_port: port,
            protocol: 17,
            last_ns: BASE_NS + at * 1_000,
            end: 1,
            ..FlowRow::default()
        };
        (row.forward.bytes, row.forward.packets) = (bytes, 1 + bytes / 1_000);
        (row.forward.first_ns, row.forward.last_ns) = (row.last_ns, row.last_ns);
        if reverse > 0 {
            row.reverse = row.forward;
            (row.reverse.bytes, row.reverse.packets) = (reverse, 1);
        }
        row
    }
}

prop_compose! {
    fn some_group()(
        series in 4u32..6,
        at in 0i64..3 * 3_600,
        group in 0u8..4,
        clean in prop::collection::vec(1i64 << 14..1i64 << 30, 0..6),
        recovery in prop::collection::vec(1i64 << 14..1i64 << 30, 0..2),
        late in prop::bool::weighted(0.2),
    ) -> (SeriesId, MeasuredGroup) {
        let times = (BASE_NS + at * 1_000_000_000, 1_000_000_000);
        let caveats = if late { vec![Caveat::FlowsUntracked] } else { vec![] };
        let values = [clean, recovery, vec![]];
        let id = SeriesId(series);
        (id, measured_group(id, &format!("10.0.{group}.0/24"), times, values, caveats))
    }
}

/// Questions of ranges and steps that fit each of the tables, or none.
fn some_queries(from: i64, length: i64, unit: i64, steps: i64) -> Vec<Query> {
    let range = TimeRange {
        from_ns: BASE_NS + from * unit,
        to_ns: BASE_NS + (from + length.max(1)) * unit,
    };
    let step_ns = steps * unit;
    let filter = SeriesFilter::default();
    let quantiles = vec![0.0, 0.3, 0.5, 0.9, 0.999, 1.0];
    let mut all = vec![
        Query::Overview(Overview { range, by: vec!["site".into()], ..Overview::default() }),
        Query::Availability(Availability { range, filter: filter.clone() }),
    ];
    all.push(Query::RttTop(RttTop { range, most: 3, ..RttTop::default() }));
    for delay in [Delay::RttNet, Delay::Forward, Delay::Passive] {
        let (filter, quantiles) = (filter.clone(), quantiles.clone());
        all.push(Query::Overview(Overview {
            range,
            delay,
            quantiles: quantiles.clone(),
            ..Overview::default()
        }));
        all.push(Query::Series(SeriesPoints {
            range,
            step_ns,
            filter: filter.clone(),
            delay,
            quantiles,
        }));
        all.push(Query::Bands(Bands {
            range,
            step_ns,
            filter: filter.clone(),
            delay,
            quantiles: vec![],
        }));
        all.push(Query::Heat(Heat { range, step_ns, filter, delay, rows_per_octave: 4 }));
    }
    for by in [FlowDimension::SourceNet, FlowDimension::Destination, FlowDimension::ServicePort] {
        let measure = FlowMeasure::Bytes;
        all.push(Query::Top(Top { range, by: vec![by], measure, most: 3, ..Top::default() }));
        let rank =
            [FlowPointRank::Mean, FlowPointRank::Max, FlowPointRank::Last][from as usize % 3];
        let by = vec![by];
        all.push(Query::FlowPoints(FlowPoints {
            range,
            step_ns,
            by,
            rank,
            most: 2,
            ..FlowPoints::default()
        }));
    }
    all
}

prop_compose! {
    /// Data of three hours, and questions.
    pub fn some_script()(
        intervals in prop::collection::vec(some_interval(), 1..60),
        flows in prop::collection::vec(some_flow(), 0..40),
        rtt in prop::collection::vec(some_group(), 0..60),
        questions in prop::collection::vec(
            (0i64..3, 1i64..4, prop_oneof![Just(1i64), Just(60), Just(3_600), Just(86_400)], 1i64..3),
            1..4,
        ),
    ) -> (Script, Vec<Query>) {
        let labels = |i: u32| SeriesLabels {
            target: i.to_string(),
            site: (i % 2).to_string(),
            module: if i < 4 { "stamp" } else { "rtt" }.into(),
            ..SeriesLabels::default()
        };
        let series = (0..6).map(labels).collect();
        let script = Script { series, intervals, flows, rtt, ..Script::default() };
        let queries = questions.into_iter().flat_map(|(from, length, unit, steps)| {
            // Of the short ones many, so that they meet something.
            let (from, length) = match unit <= 60 {
                true => (from * 700 / unit, length * 3_000 / unit),
                false => (from, length),
            };
            let steps = if unit <= 60 { steps * 200 / unit } else { steps };
            some_queries(from, length, unit * 1_000_000_000, steps.max(1))
        });
        (script, queries.collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn made_up_data_have_the_answers_of_the_model((script, queries) in some_script()) {
        let expected: Vec<String> =
            queries.iter().map(|q| render(&model::answer(&script, q))).collect();
        every_state("made-up", &script, |state, ask| {
            for (query, expected) in queries.iter().zip(&expected) {
                assert_eq!(&ask(query), expected, "{state}: {query:?}");
            }
        });
    }
}
