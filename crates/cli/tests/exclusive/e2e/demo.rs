//! `sonde demo`, small: it measures, saves, and takes its network down again.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use sonde_results::run::Run;

use super::net::SONDE;
use crate::process::{Process, until};
use crate::turn;

#[test]
fn the_demonstration_runs_and_cleans_up() {
    if sonde_lab::skip("the_demonstration_runs_and_cleans_up") {
        return;
    }
    let _turn = turn::alone();
    for engine in ["af_xdp", "af_packet", "socket"] {
        let file = RunFile::new(engine);
        let demo = start(&["--duration", "1s", "--engine", engine], &file);
        let id = demo.id();
        let ended = demo.end();
        assert_eq!(ended.code, 0, "{engine}: {}{}", ended.out, ended.err);
        assert_eq!(namespaces(id), 0, "{engine}: {}", ended.err);
        let text = std::fs::read_to_string(&file.0).unwrap();
        let run: Run = serde_json::from_str(&text).unwrap();
        let c = &run.overall.counters;
        assert_eq!((run.streams.len(), run.totals.len()), (100, 100), "{engine}");
        assert_eq!((c.lost, c.received), (0, c.sent), "{engine}: {c:?}");
        assert!(c.sent + c.skipped >= 900, "{engine}: {c:?}");
        assert_described(&serde_json::from_str(&text).unwrap());
    }
}

/// Without a rate it first finds out what the machine carries, and says so in one line.
#[test]
fn the_load_is_one_that_the_machine_carries() {
    if sonde_lab::skip("the_load_is_one_that_the_machine_carries") {
        return;
    }
    let _turn = turn::alone();
    let file = RunFile::new("found");
    let mut command = Command::new(SONDE);
    command.args(["demo", "--destinations", "20", "--duration", "1s", "--out"]).arg(&file.0);
    let ended = Process::start(command).end();
    assert!([0, 1].contains(&ended.code), "{}{}", ended.out, ended.err);
    let said = ended.out.lines().next().unwrap();
    assert!(said.contains("probing at"), "{}", ended.out);
    let run: Run = serde_json::from_str(&std::fs::read_to_string(&file.0).unwrap()).unwrap();
    assert!(run.overall.counters.sent > 0);
}

#[test]
fn an_interrupted_demonstration_cleans_up() {
    if sonde_lab::skip("an_interrupted_demonstration_cleans_up") {
        return;
    }
    let _turn = turn::alone();
    // A terminal sends Ctrl-C to the whole group; 'kill' reaches the first process only.
    for (name, to_group) in [("INT", true), ("INT", false), ("TERM", false)] {
        let file = RunFile::new("interrupted");
        let mut demo = start(&["--duration", "60s"], &file);
        let id = demo.id();
        // Both of its children measure when the probe reports.
        demo.until("the first line of the probe", |p| p.out().iter().any(|l| l.contains("SONDE")));
        assert!(namespaces(id) >= 3);
        if to_group {
            demo.signal_group(name);
        } else {
            demo.signal(name);
        }
        let ended = demo.end();
        until("the namespaces to go", || namespaces(id) == 0);
        assert!([0, 1, 130].contains(&ended.code), "{name}: {} {}", ended.code, ended.err);
    }
}

/// The station keeps what all five units measure, and tells of the fault, of nothing else, and of
/// its end.
#[test]
fn a_station_on_the_demonstration_tells_of_the_fault() {
    if sonde_lab::skip("a_station_on_the_demonstration_tells_of_the_fault") {
        return;
    }
    let _turn = turn::alone();
    let folder = Folder(std::env::temp_dir().join(format!("sonde-demo-{}", std::process::id())));
    let mut command = Command::new(SONDE);
    command.args(["demo", "--destinations", "20", "--rate", "4k", "--duration", "64s"]);
    command.arg("--station").arg(&folder.0);
    let demo = Process::start(command);
    let id = demo.id();
    let ended = demo.end();
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert_eq!(namespaces(id), 0, "{}", ended.err);

    let alerts = std::fs::read_to_string(folder.0.join("alerts.jsonl")).unwrap_or_default();
    let told: Vec<serde_json::Value> =
        alerts.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let all: Vec<&serde_json::Value> =
        told.iter().flat_map(|one| one["alerts"].as_array().unwrap()).collect();
    let of = |status: &str| all.iter().filter(|a| a["status"] == status).count();
    assert!(of("firing") > 0 && of("resolved") > 0, "{alerts}{}", ended.err);
    for alert in all.iter().filter(|a| a["labels"]["objective"] == "loss") {
        assert_eq!(alert["labels"]["alertname"], "ObjectiveBreached", "{alert}");
        let labels = &alert["labels"];
        assert_eq!(labels["class"], "EF", "{alert}");
        let address = labels["target"].as_str().unwrap().split(' ').nth(1).unwrap();
        let last: u8 = address.strip_prefix("10.2.0.").expect(address).parse().unwrap();
        assert!(last < 16, "{alert}");
    }

    let store = folder.0.join("store");
    let rows = |table: &str| {
        let mut command = Command::new(SONDE);
        command.args(["export", table, "--last", "1h", "--format", "jsonl", "--store"]);
        let ended = Process::start({
            command.arg(&store);
            command
        })
        .end();
        assert_eq!(ended.code, 0, "{table}: {}", ended.err);
        ended.out.lines().count()
    };
    for table in ["iv", "flow", "rtt"] {
        assert!(rows(table) > 0, "nothing in {table}");
    }
}

/// Removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where a run is saved; removed when dropped.
struct RunFile(PathBuf);

impl RunFile {
    fn new(name: &str) -> RunFile {
        let name = format!("sonde-e2e-demo-{}-{name}.json", std::process::id());
        RunFile(std::env::temp_dir().join(name))
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn start(arguments: &[&str], file: &RunFile) -> Process {
    let mut command = Command::new(SONDE);
    command.args(["demo", "--destinations", "20", "--rate", "1k", "--out"]);
    command.arg(&file.0).args(arguments).process_group(0);
    Process::start(command)
}

/// How many namespaces of process `id` there are.
fn namespaces(id: u32) -> usize {
    let mark = format!(".{id}.");
    let all = Command::new("ip").args(["netns", "list"]).output().unwrap();
    String::from_utf8(all.stdout).unwrap().lines().filter(|l| l.contains(&mark)).count()
}

/// Every member of the run file is one that 'sonde schema' knows, and none is missing.
fn assert_described(run: &serde_json::Value) {
    let schema = Process::start({
        let mut command = Command::new(SONDE);
        command.arg("schema");
        command
    })
    .end();
    let schema: serde_json::Value = serde_json::from_str(&schema.out).unwrap();
    let check = |value: &serde_json::Value, schema: &serde_json::Value| {
        let names = schema["properties"].as_object().unwrap().keys();
        assert!(names.eq(value.as_object().unwrap().keys()), "{value} {schema}");
    };
    check(run, &schema);
    for (path, name) in [
        ("/host", "Host"),
        ("/config", "RunConfig"),
        ("/health", "Health"),
        ("/overall", "Interval"),
        ("/overall/counters", "Counters"),
        ("/overall/rtt", "Hist"),
        ("/totals/0", "Interval"),
        ("/streams/0", "StreamInfo"),
    ] {
        check(run.pointer(path).unwrap(), &schema["$defs"][name]);
    }
}
