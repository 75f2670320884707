//! What a process that writes can meet: it is killed, its disk is full, others read and want to write.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sonde_results::units::SECOND;
use sonde_store::query::{Overview, TimeRange, Top};
use sonde_store::{
    Answer, Batch, EmbeddedReader, FlowRow, IntervalRow, Limit, Query, Reader, Rows, SeriesId,
    SeriesLabels, Store, StoreError, StoreOptions, Writer,
};

use crate::support::script::BASE_NS;
use crate::support::{Folder, options};

/// Rows of a batch.
pub const ROWS: u64 = 40;

/// The part of this binary that writes, in a process of its own.
fn child(part: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("faults::{part}"), "--nocapture"]).env(CHILD, folder);
    command
}

/// Where the child writes; `None`: this is no child.
fn own_folder() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// Batch n is of n minutes after the begin: with its rows, roll-ups of every kind are made.
pub fn batch(number: u64) -> Batch {
    let at = BASE_NS + number as i64 * 60 * SECOND;
    let row = |i: u64| IntervalRow {
        series: SeriesId(0),
        start_ns: at + i as i64 * SECOND,
        length_ns: SECOND,
        intervals: 1,
        sent: number,
        ..IntervalRow::default()
    };
    let rows = match number % 4 {
        0 => Rows::Flows((0..ROWS).map(|i| flow(at, i, String::new())).collect()),
        _ => Rows::Intervals((0..ROWS).map(row).collect()),
    };
    Batch { writer: "w".into(), number, rows: rows.into() }
}

fn flow(at_ns: i64, i: u64, extra: String) -> FlowRow {
    let mut row = FlowRow {
        exporter: SeriesId(0),
        source: sonde_store::flow::mapped([10, 0, 0, i as u8].into()),
        destination: sonde_store::flow::mapped([192, 0, 2, 1].into()),
        protocol: 17,
        last_ns: at_ns + i as i64,
        extra: extra.into(),
        ..FlowRow::default()
    };
    (row.forward.packets, row.forward.bytes) = (1, 100);
    row
}

/// Rows of all batches up to `number`: of intervals, their probes, of flows.
fn expected(number: u64) -> [u64; 3] {
    let flows = number / 4;
    let sent = (1..=number).filter(|n| n % 4 != 0).sum::<u64>() * ROWS;
    [(number - flows) * ROWS, sent, flows * ROWS]
}

/// The last batch of which a store has rows, while more may come between two questions.
fn whole(seen: [u64; 3]) -> u64 {
    let [intervals, sent, flows] = seen;
    assert_eq!((intervals % ROWS, flows % ROWS), (0, 0), "whole batches");
    let (intervals, flows) = (intervals / ROWS, flows / ROWS);
    // Three of four batches are of intervals.
    let last = intervals + (intervals.saturating_sub(1)) / 3;
    assert_eq!(expected(last)[1], sent, "each of the first {last} once");
    assert!(flows >= last / 4, "{flows} batches of flows with {last} in all");
    last
}

/// What a store has of them.
fn found(reader: &EmbeddedReader) -> [u64; 3] {
    let range =
        TimeRange { from_ns: BASE_NS - 86_400 * SECOND, to_ns: BASE_NS + 400 * 86_400 * SECOND };
    let ask = |query| reader.query(&query, &Limit::default()).unwrap();
    let overview = ask(Query::Overview(Overview { range, ..Overview::default() }));
    let top = ask(Query::Top(Top { range, ..Top::default() }));
    assert_eq!((overview.damaged_segments, top.damaged_segments), (0, 0));
    let Answer::Overview(rows) = overview.answer else { panic!() };
    let Answer::Top(top) = top.answer else { panic!() };
    let sum = |of: &dyn Fn(&sonde_store::query::Summary) -> u64| {
        rows.iter().map(|r| of(&r.summary)).sum()
    };
    let flows = top.rows.iter().chain([&top.other]).map(|row| row.flows).sum();
    [sum(&|s| s.intervals), sum(&|s| s.sent), flows]
}

/// Writes until it is killed, and says which batch is durable. Segments, roll-ups and compaction are
/// made meanwhile.
#[test]
fn writer_that_is_killed() {
    let Some(folder) = own_folder() else { return };
    let options = StoreOptions { seal_rows: 400, ..options() };
    let store = Arc::new(Store::open(&folder, options).unwrap());
    store.register(&SeriesLabels { target: "a".into(), ..SeriesLabels::default() }).unwrap();
    let first = store.last_batch("w") + 1;
    println!("first {first}");
    let done = Arc::new(AtomicBool::new(false));
    let (kept, ends) = (store.clone(), done.clone());
    let upkeep = std::thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            let now = BASE_NS + kept.last_batch("w") as i64 * 60 * SECOND;
            kept.maintain(now, None).unwrap();
        }
    });
    let mut writer = store.writer().unwrap();
    for number in first..first + 5_000 {
        // Upkeep falls behind at this pace: what is refused is kept, and given again.
        while let Err(error) = writer.append(&batch(number)) {
            assert!(error.is_full(), "{error}");
            std::thread::yield_now();
        }
        // Sometimes several are one frame.
        if number % 3 != 0 {
            writer.sync().unwrap();
        }
        while let Some(ticket) = writer.poll_durable() {
            println!("durable {}", ticket.number);
        }
    }
    done.store(true, Ordering::Relaxed);
    upkeep.join().unwrap();
}

/// The number behind `word` in a line of a child.
fn number(line: &str, word: &str) -> Option<u64> {
    // The test harness writes without an end of line, too.
    line.rsplit_once(word)?.1.trim().parse().ok()
}

fn spawn(folder: &Path) -> (Child, impl Iterator<Item = String>) {
    let mut child = child("writer_that_is_killed", folder).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    (child, lines)
}

#[test]
fn twenty_kills_lose_nothing_that_was_durable_and_others_read_meanwhile() {
    let folder = Folder::new("killed");
    let mut last = 0;
    for round in 0..20u64 {
        let (mut child, mut lines) = spawn(folder.path());
        let first = lines.by_ref().find_map(|line| number(&line, "first ")).unwrap();
        // One batch more may be there than was said: its line was not written any more. A frame has up
        // to two.
        assert!((last + 1..=last + 3).contains(&first), "round {round}: {first} after {last}");
        if round == 0 {
            let second = Store::open(folder.path(), options()).err().unwrap();
            assert!(matches!(second, StoreError::Locked { .. }));
            assert!(
                second.to_string().contains("in use by another station; stop that one"),
                "{second}"
            );
        }
        let mut durable = lines.by_ref().filter_map(|line| number(&line, "durable "));
        last = durable.by_ref().nth(5 + (round as usize * 37) % 120).unwrap();
        let reader = EmbeddedReader::open(folder.path(), None).unwrap();
        let known = whole(found(&reader));
        assert!(known + 1 >= last, "round {round}: {known} of {last} batches are seen");
        child.kill().unwrap();
        child.wait().unwrap();
        last = durable.last().unwrap_or(last);
        let after = found(&EmbeddedReader::open(folder.path(), None).unwrap());
        let left = after[0] / ROWS + after[2] / ROWS;
        assert!(left >= last, "round {round}: {left} of {last} batches are left");
        assert_eq!(after, expected(left), "round {round}: whole batches, each once");
    }
    let store = Store::open(folder.path(), options()).unwrap();
    let last = store.last_batch("w");
    store.flush().unwrap();
    store.maintain(BASE_NS + 400 * 86_400 * SECOND, None).unwrap();
    assert_eq!(found(&store.reader()), expected(last));
}

/// Writes several times what the disk holds, and then beside a file that takes it all.
#[test]
fn writer_on_a_full_disk() {
    let Some(folder) = own_folder() else { return };
    let options = StoreOptions { seal_rows: 1_000, reserve_octets: 1 << 19, ..options() };
    let path = folder.join("store");
    let store = Store::open(&path, options.clone()).unwrap();
    store.register(&SeriesLabels::default()).unwrap();
    let mut writer = store.writer().unwrap();
    let mut noise = 1u64;
    let mut give = |writer: &mut dyn Writer, number: u64| -> Result<(), StoreError> {
        let at = BASE_NS + number as i64 * 3_600 * SECOND;
        let rows = (0..100).map(|i| {
            let extra = (0..60).map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                format!("{:016x}", noise)
            });
            flow(at, i, extra.collect())
        });
        let rows = Rows::Flows(rows.collect()).into();
        writer.append(&Batch { writer: "w".into(), number, rows })?;
        writer.sync()
    };
    let mut refused = 0;
    for number in 1..=300 {
        // What is refused is kept by its writer, and sent again once upkeep made room.
        while let Err(error) = give(&mut writer, number) {
            assert!(error.is_full(), "{error}");
            refused += 1;
            assert!(refused < 100, "it never goes on: {error}");
            let upkeep = store.maintain(BASE_NS + number as i64 * 3_600 * SECOND, None);
            assert!(upkeep.as_ref().err().is_none_or(StoreError::is_full), "{upkeep:?}");
        }
        if number % 10 == 0 {
            let upkeep = store.maintain(BASE_NS + number as i64 * 3_600 * SECOND, None);
            assert!(upkeep.as_ref().err().is_none_or(StoreError::is_full), "{upkeep:?}");
        }
    }
    drop(writer);
    let count = |reader: &EmbeddedReader, from: i64| {
        let range = TimeRange { from_ns: BASE_NS + from * 3_600 * SECOND, to_ns: i64::MAX / 2 };
        let by = vec![sonde_store::query::FlowDimension::Source];
        let query = Query::Top(Top { range, by, ..Top::default() });
        let Answer::Top(top) = reader.query(&query, &Limit::default()).unwrap().answer else {
            panic!()
        };
        top.rows.iter().chain([&top.other]).map(|row| row.flows).sum::<u64>()
    };
    assert_eq!(count(&store.reader(), 281), 20 * 100, "what came last is there");
    let all = count(&store.reader(), 0);
    assert!(all < 300 * 100, "all of it cannot be: the disk is too small");
    drop(store);
    // What another program takes is not to be freed: batches are refused, nothing is lost but the
    // oldest, and it goes on as soon as there is room.
    let store = Store::open(&path, options).unwrap();
    assert_eq!(count(&store.reader(), 0), all);
    let mut writer = store.writer().unwrap();
    let other = folder.join("other");
    let filled =
        std::io::copy(&mut std::io::repeat(7), &mut std::fs::File::create(&other).unwrap());
    assert!(filled.is_err());
    let mut taken = 300;
    while give(&mut writer, taken + 1).is_ok() {
        taken += 1;
        assert!(taken < 3_000, "a full disk takes everything");
    }
    std::fs::remove_file(&other).unwrap();
    store.maintain(BASE_NS + taken as i64 * 3_600 * SECOND, None).unwrap();
    give(&mut writer, taken + 1).unwrap();
    assert_eq!(count(&store.reader(), taken as i64 + 1), 100);
    println!("it goes on");
}

#[test]
fn a_full_disk_costs_the_oldest_and_the_store_goes_on() {
    let test = "a_full_disk_costs_the_oldest_and_the_store_goes_on";
    // A file system of its own, in a mount namespace of its own: nothing is left of it.
    let folder = Folder::new("tmpfs");
    std::fs::create_dir_all(folder.path()).unwrap();
    let unshare = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "sh", "-c", command, "sh"]);
        unshare
    };
    let mount = "mount -t tmpfs -o size=8m tmpfs \"$SONDE_STORE_CHILD\" && exec \"$@\"";
    let can = unshare(mount).arg("true").env(CHILD, folder.path()).stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        let required = std::env::var_os("SONDE_REQUIRE_ROOT").is_some_and(|value| value == "1");
        assert!(!required, "{test}: no right to mount a file system");
        return skipped(test, "no right to mount a file system");
    }
    let part = child("writer_on_a_full_disk", folder.path());
    let mut command = unshare(mount);
    command.arg(part.get_program()).args(part.get_args()).env(CHILD, folder.path());
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let why = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && text.contains("it goes on"), "{text}\n{why}");
}

/// Says and counts that a test was left out, as tests of namespaces do.
pub fn skipped(test: &str, why: &str) {
    println!("skipped: {test}: {why}");
    if let Some(path) = std::env::var_os("SONDE_SKIPPED") {
        let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, format!("{test}: {why}\n").as_bytes()).unwrap();
    }
}

const CHILD: &str = "SONDE_STORE_CHILD";
