//! `sonde query` and `sonde export` on the store of a process that writes it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use sonde_results::units::SECOND;
use sonde_results::{Hist, Interval};
use sonde_store::{
    Batch, HistBlob, IntervalRow, Rows, RttRow, SeriesLabels, Store, StoreOptions, Writer as _,
};
use sonde_sys::clock::unix_now_ns;

/// A store that is held open for writing, removed at the end.
struct Kept {
    folder: PathBuf,
    _store: Store,
}

impl Kept {
    /// Ten intervals of each of two targets a minute ago, and groups of round trips; all of it in the
    /// journal.
    fn new(name: &str) -> Kept {
        let folder =
            std::env::temp_dir().join(format!("sonde-store-cli-{}-{name}", std::process::id()));
        let store = Store::open(&folder, StoreOptions::default()).unwrap();
        let series = |target: &str, module: &str| {
            let labels = SeriesLabels {
                target: target.into(),
                class: "EF".into(),
                module: module.into(),
                ..SeriesLabels::default()
            };
            store.register(&labels).unwrap()
        };
        let hist = |values: &[i64]| {
            let mut hist = Hist::default();
            values.iter().for_each(|&value| hist.add(value));
            hist
        };
        let begin = unix_now_ns() - 60 * SECOND;
        let mut intervals = Vec::new();
        for (target, lost) in [("muc", 0), ("fra, west", 2)] {
            let id = series(target, "stamp");
            for second in 0..10 {
                let mut record = Interval::empty(0);
                record.start_ns = begin + second * SECOND;
                record.end_ns = record.start_ns + SECOND;
                (record.counters.sent, record.counters.lost) = (10, lost);
                record.counters.received = 10 - lost;
                record.rtt_net = hist(&[5_000_000; 8]);
                intervals.push(IntervalRow::new(id, &record));
            }
        }
        let unit = series("rtt.uplink", "rtt");
        let group = |name: &str, rtt_ns: i64| RttRow {
            series: unit,
            group: name.into(),
            start_ns: begin,
            length_ns: SECOND,
            intervals: 1,
            clean: HistBlob::new(&hist(&[rtt_ns, rtt_ns])),
            ..RttRow::default()
        };
        let groups = vec![group("192.0.2.0/24", 3_000_000), group("2001:db8::/48", 90_000_000)];
        let mut writer = store.writer().unwrap();
        for (number, rows) in (1..).zip([Rows::Intervals(intervals), Rows::Rtt(groups)]) {
            writer.append(&Batch { writer: "w".into(), number, rows: rows.into() }).unwrap();
        }
        writer.sync().unwrap();
        drop(writer);
        Kept { folder, _store: store }
    }

    fn sonde(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
        command.args(args).arg("--store").arg(&self.folder).output().unwrap()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

fn code(out: &Output) -> i32 {
    out.status.code().unwrap_or(-1)
}

#[test]
fn sql_answers_refuses_to_change_anything_and_ends_in_time() {
    let kept = Kept::new("sql");
    let select = "SELECT target, sum(sent) AS sent, sum(lost) AS lost, hq(hmerge(rtt_net_hist), 0.5) \
                  AS p50 FROM iv1m JOIN series ON id = series GROUP BY target ORDER BY target";
    let out = kept.sonde(&["query", "sql", select]);
    let expected = "target,sent,lost,p50\n\"fra, west\",100,20,5000000\nmuc,100,0,5000000\n";
    assert_eq!((code(&out), text(&out.stdout)), (0, expected.into()), "{}", text(&out.stderr));
    let out = kept.sonde(&["query", "--json", "sql", "SELECT count(*) AS n FROM rtt1m"]);
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(answer["rows"], serde_json::json!([[2]]));
    let out = kept.sonde(&["query", "sql", "DELETE FROM series"]);
    assert_eq!(code(&out), 2);
    assert!(
        text(&out.stderr).contains("write one SELECT over the tables"),
        "{}",
        text(&out.stderr)
    );
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let out = kept.sonde(&["query", "--timeout", "200ms", "sql", endless]);
    assert_eq!(code(&out), 3);
    assert!(text(&out.stderr).contains("give it more time"), "{}", text(&out.stderr));
    let out = kept.sonde(&["query", "sql", "SELECT 1 WHERE 0"]);
    assert_eq!(code(&out), 1, "no rows");
}

#[test]
fn the_slowest_group_of_round_trips_stands_first() {
    let kept = Kept::new("rtt");
    let out = kept.sonde(&["query", "rtt"]);
    let lines: Vec<String> = text(&out.stdout).lines().map(String::from).collect();
    assert_eq!(code(&out), 0, "{}", text(&out.stderr));
    assert!(lines[1].contains("2001:db8::/48") && lines[1].contains("90"), "{lines:#?}");
    assert!(lines[2].contains("192.0.2.0/24"), "{lines:#?}");
    let out = kept.sonde(&["query", "rtt", "--group", "198.51.100.0/24"]);
    assert_eq!(code(&out), 1, "{}", text(&out.stdout));
}

#[test]
fn rows_are_exported_in_each_form() {
    let kept = Kept::new("export");
    let out = kept.sonde(&["export", "iv", "--only", "target=fra, west"]);
    assert_eq!(code(&out), 0, "{}", text(&out.stderr));
    let csv = text(&out.stdout);
    assert_eq!(csv.lines().count(), 11);
    assert!(csv.starts_with("station,site,target,class,module,series,start_ns,"), "{csv}");
    assert!(csv.lines().nth(1).unwrap().starts_with(",,\"fra, west\",EF,stamp,1,"), "{csv}");
    let file = kept.folder.join("out");
    let path = file.to_str().unwrap();
    let group = ["--group", "192.0.2.0/24"];
    let args = ["export", "rtt", group[0], group[1], "--format", "jsonl", "--out", path];
    let out = kept.sonde(&args);
    assert_eq!(code(&out), 0, "{}", text(&out.stderr));
    let row: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&row["group"], &row["clean"]["count"]), (&"192.0.2.0/24".into(), &2.into()));
    let out = kept.sonde(&["export", "iv1m", "--format", "parquet", "--out", path]);
    assert_eq!(code(&out), 0, "{}", text(&out.stderr));
    assert!(std::fs::read(Path::new(path)).unwrap().ends_with(b"PAR1"));
    let out = kept.sonde(&["export", "iv", "--format", "parquet"]);
    assert_eq!(code(&out), 2, "{}", text(&out.stderr));
    let out = kept.sonde(&["export", "flow"]);
    assert_eq!(code(&out), 1, "no flows were kept");
    let out = kept.sonde(&["export", "iv2m"]);
    assert!(code(&out) == 2 && text(&out.stderr).contains("iv1m"), "{}", text(&out.stderr));
}

/// Garbles all segments below a folder; how many there were.
fn garble(folder: &Path) -> usize {
    let mut n = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            n += garble(&path);
        } else {
            let mut octets = std::fs::read(&path).unwrap();
            octets[100] ^= 1;
            std::fs::write(&path, octets).unwrap();
            n += 1;
        }
    }
    n
}

#[test]
fn an_answer_of_a_part_of_the_data_says_so_and_ends_with_4() {
    let kept = Kept::new("part");
    kept._store.flush().unwrap();
    let row = IntervalRow {
        start_ns: unix_now_ns() - 30 * SECOND,
        length_ns: SECOND,
        intervals: 1,
        sent: 7,
        ..IntervalRow::default()
    };
    let mut writer = kept._store.writer().unwrap();
    let rows = Rows::Intervals(vec![row]);
    writer.append(&Batch { writer: "w".into(), number: 3, rows: rows.into() }).unwrap();
    writer.sync().unwrap();
    drop(writer);
    assert!(garble(&kept.folder.join("seg/iv")) > 0);
    let out = kept.sonde(&["export", "iv"]);
    assert_eq!(code(&out), 4, "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout).lines().count(), 2, "{}", text(&out.stdout));
    let said = text(&out.stderr);
    assert!(said.contains("damaged segments") && said.contains("seg/iv/"), "{said}");
    assert!(garble(&kept.folder.join("seg/iv1m")) > 0);
    let out = kept.sonde(&["query", "overview"]);
    assert_eq!(code(&out), 4, "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("of a part of the data"), "{}", text(&out.stdout));
    let out = kept.sonde(&["query", "--json", "overview"]);
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(code(&out) == 4 && answer["damaged_segments"].as_u64() > Some(0), "{answer}");
    let out = kept.sonde(&["query", "sql", "SELECT sum(sent) FROM iv1m"]);
    assert_eq!(
        (code(&out), text(&out.stdout)),
        (4, "sum(sent)\n7\n".into()),
        "{}",
        text(&out.stderr)
    );
}
