//! `sonde top`, `sonde status`, `sonde events` and `sonde report sla` of a running station.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::Process;

/// The interface is nowhere: the unit fails, which is an event.
const CONFIG: &str = "[station]\nname = 'ber'\n[flow.absent]\nsources = ['sonde-absent']\n";

#[test]
fn a_station_is_watched_while_it_goes_and_comes_again() {
    let folder = Folder::new();
    let mut station = folder.station();
    let snapshot = folder.sonde(&["top", "--json"]);
    let snapshot: Value = serde_json::from_slice(&snapshot.stdout).unwrap();
    assert_eq!(snapshot["station"]["name"], "ber");
    assert_eq!(snapshot["units"][0]["name"], "flow.absent");
    assert!(snapshot["health"]["queues"].as_array().is_some_and(|q| !q.is_empty()), "{snapshot}");

    let mut top = Process::start(folder.command(&["top", "--interval", "200ms"]));
    let says = |part: &'static str| move |top: &Process| top.out().iter().any(|l| l.contains(part));
    top.until("its first line", says("sonde top  ber"));
    station.signal("INT");
    assert_eq!(station.end().code, 0);
    top.until("that the station has gone", says("it is waited for"));
    station = folder.station();
    top.until("that it is back", |top| {
        top.out().iter().filter(|line| line.contains("sonde top  ber")).count() >= 2
    });
    // What happens then is told.
    top.until("the unit that fails", says("flow.absent"));
    top.signal("INT");
    let ended = top.end();
    assert_eq!(ended.code, 0, "{}", ended.err);

    // The unit waits for its next try, but for the moments in which it starts.
    let end = Instant::now() + Duration::from_secs(60);
    let text = loop {
        let status = folder.sonde(&["status"]);
        let text = String::from_utf8(status.stdout).unwrap();
        if status.status.code() == Some(1) {
            break text;
        }
        assert!(Instant::now() < end, "a unit does not work: {text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(text.contains("ber: sonde") && text.contains("flow.absent"), "{text}");
    let events = String::from_utf8(folder.sonde(&["events"]).stdout).unwrap();
    assert!(events.contains("flow.absent") && events.contains("station ber started"), "{events}");

    let open = folder.sonde(&["events", "--json"]).stdout;
    let all: Vec<Value> =
        open.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let id_of = |kind: &str| {
        let found = all.iter().find(|event| event["kind"] == kind);
        found.and_then(|event| event["id"].as_str()).unwrap()
    };
    // What does not last needs nobody.
    let refused = folder.sonde(&["events", "--acknowledge", id_of("station_started")]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let id = id_of("unit_failed");
    let taken = folder.sonde(&["events", "--acknowledge", id, "--note", "cable ordered"]);
    assert!(taken.status.success(), "{taken:?}");
    let events = String::from_utf8(folder.sonde(&["events"]).stdout).unwrap();
    assert!(
        events.contains(", acknowledged by ") && events.contains(": cable ordered"),
        "{events}"
    );
    assert_eq!(folder.sonde(&["events", "--acknowledge", "98765"]).status.code(), Some(2));

    let out = folder.0.join("november");
    let report = folder.sonde(&["report", "sla", "--month", "2026-11", "--out", path(&out)]);
    assert!(report.status.success(), "{report:?}");
    let page = fs::read_to_string(out.join("sla.html")).unwrap();
    assert!(page.contains("Service levels of ber in 2026-11"), "{page}");
    assert!(page.contains("Nothing was judged in 2026-11"), "{page}");
    let table = fs::read_to_string(out.join("objectives.csv")).unwrap();
    assert!(table.starts_with("group,objective,subject,"), "{table}");
    station.signal("INT");
    assert_eq!(station.end().code, 0);
    for command in [&["top"][..], &["top", "--json"], &["status"], &["report", "sla"]] {
        assert_eq!(folder.sonde(command).status.code(), Some(3), "{command:?}");
    }
    let wrong = folder.sonde(&["report", "sla", "--month", "2026-13"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-top-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let config = format!("{CONFIG}[store]\npath = '{}/store'\n", path.display());
        fs::write(path.join("sonde.toml"), config).unwrap();
        Folder(path)
    }

    fn station(&self) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
        command.arg("run").arg(self.0.join("sonde.toml"));
        let mut station = Process::start(command);
        station
            .until("its start", |s| s.err().iter().any(|line| line.contains("runs until Ctrl-C")));
        station
    }

    /// A command that asks the station.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
        command.args(arguments).arg("--socket").arg(self.0.join("store.sock"));
        command
    }

    fn sonde(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
