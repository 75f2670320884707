//! Two stations on real packets: one answers, one measures.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use serde_json::Value;
use sonde_lab::{Host, LinkOptions, Topology};
use sonde_run::probe::{Collected, Event};
use sonde_run::running::{Invocation, Next, RecordReceiver, Stop};
use sonde_run::toml_file::TomlText;
use sonde_station::config::{Config, ReadFile};
use sonde_station::hub::{Hub, Report, Said};
use sonde_station::plan::UnitId;
use sonde_station::reload::Step;
use sonde_station::runner::{self, Station};
use sonde_station::supervise::{Notice, UnitState};
use sonde_store::query::{Delay, EventList, Overview, RttTop, TimeRange};
use sonde_store::{Answer, EmbeddedReader, Limit, Query, Reader as _, StoredEvent};

const ANSWERS: &str = r#"
[reflect.main]
engine = { iface = "eth0" }
kernel = true
"#;

/// `absent` is an interface that is not there at first.
const MEASURES: &str = r#"
[probe.core]
stream = { interval = "2ms" }
run = { record_interval = "100ms", timeout = "500ms" }
[[probe.core.target]]
host = "10.1.0.2"

[rtt.uplink]
sources = ["eth0"]
interval = "100ms"

[flow.absent]
sources = ["absent"]
metering = { flows = 1024, idle = "1s" }
"#;

#[test]
fn a_station_runs_reloads_and_restarts_units_and_leaves_nothing() {
    if sonde_lab::skip("a_station_runs_reloads_and_restarts_units_and_leaves_nothing") {
        return;
    }
    let _alone = alone();
    let net = Topology::pair("station", &LinkOptions::default()).unwrap();
    let folder = Folder::new("runs");
    let (answering, answers) = begin(&net.reflector, ANSWERS, &folder.0.join("answers"));
    wait_for(&answers, |report| matches!(report.said, Said::Reflector(_)));
    let (station, records) = begin(&net.probe, MEASURES, &folder.0.join("store"));

    // The unit without an interface fails beside the others, which measure.
    let mut seen = Seen::default();
    let failed = Notice::Failed(UnitId::new("flow.absent"), String::new());
    seen.read(&records, |seen| {
        seen.notices.iter().any(|n| same_kind(n, &failed))
            && seen.received(0) > 50
            && seen.round_trips > 0
    });
    assert_eq!(station.states.get()[&UnitId::new("probe.core")], UnitState::Running);

    // Another target is added, and the rest is not touched.
    let more = format!(
        "{MEASURES}\n[[probe.core.target]]\nhost = '10.2.0.1'\n[store]\npath = '{}'\n",
        folder.0.join("store").display()
    );
    let steps = station.reload(parse(&more)).unwrap();
    let names: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
    let adjusts = |step: &Step| match step {
        Step::Adjust { unit, added, ended } => {
            unit.as_str() == "probe.core" && *added == ["10.2.0.1"] && ended.is_empty()
        }
        Step::Keep(_) => true,
        Step::Stop { .. } | Step::Start(_) => false,
    };
    assert!(steps.len() == 3 && steps.iter().all(adjusts), "{names:?}");
    seen.read(&records, |seen| seen.received(1) > 50);

    // The interface comes, and so do its flows.
    net.probe.run(&["ip", "link", "add", "absent", "type", "veth", "peer", "far"]).unwrap();
    net.probe.run(&["ip", "link", "set", "absent", "up"]).unwrap();
    seen.read(&records, |seen| seen.begun.contains_key("flow.absent") && !seen.gaps.is_empty());
    assert_eq!(seen.gaps, ["flow.absent"]);

    // Traffic with round trips, which the watching unit sees.
    net.probe.run(&["ping", "-q", "-c", "5", "-i", "0.01", "10.1.0.2"]).unwrap();
    station.stop_and_join(&mut seen, &records);
    answering.stop_and_join(&mut Seen::default(), &answers);
    let run = seen.probe.unwrap();
    for (stream, total) in run.totals().iter().enumerate() {
        let counters = &total.counters;
        assert_eq!(counters.sent, counters.received, "stream {stream}: {counters:?}");
    }
    assert_eq!(seen.lost, 0);
    kept(&folder.0.join("store"), &run);
    let mine = |name: &String| name.starts_with("sonde-");
    assert_eq!(threads().into_iter().filter(mine).collect::<Vec<_>>(), Vec::<String>::new());
}

const JUDGES: &str = r#"
[probe.core]
stream = { interval = "20ms" }
# A machine that is busy with other tests sends late, and would doubt itself.
run = { record_interval = "200ms", timeout = "500ms", late_limit = "1s" }
[[probe.core.target]]
host = "10.1.0.2"
name = "muc"

[objective.loss]
match = { target = "m*" }
metric = "loss_ratio"
limit = "20%"
window = "1s"
least_samples = 20

[objective.up]
metric = "availability"
target_percent = 99.9
rule = { interval = "200ms", loss = "50%", window = 5 }
severity = "critical"
"#;

#[test]
fn a_stopped_reflector_is_an_event_and_told_until_it_is_back() {
    if sonde_lab::skip("a_stopped_reflector_is_an_event_and_told_until_it_is_back") {
        return;
    }
    let _alone = alone();
    let net = Topology::pair("judged", &LinkOptions::default()).unwrap();
    let folder = Folder::new("judged");
    let path = |name: &str| folder.0.join(name);
    let reflector = "[reflect.main]";
    let (answering, answers) = begin(&net.reflector, reflector, &path("answers"));
    wait_for(&answers, |report| matches!(report.said, Said::Reflector(_)));
    let listener = net.probe.inside(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let mut told = Told { comes: receive(listener), came: Vec::new() };
    let text = format!(
        "{JUDGES}\n[alert]\nto = ['ops']\nfolder = '{}'\nwait = 0\ninterval = '10ms'\n\
         [alert.receiver.ops.webhook]\nurl = 'http://{to}/hook'",
        path("alerts").display()
    );
    let (station, records) = begin(&net.probe, &text, &path("store"));
    let mut seen = Seen::default();
    seen.read(&records, |seen| seen.received(0) > 100);
    assert_eq!(station.judge().judged, 2);

    answering.stop_and_join(&mut Seen::default(), &answers);
    let firing = ["ObjectiveBreached", "Unavailable"].map(|name| told.wait(name, "firing"));
    for alert in &firing {
        assert_eq!(alert["labels"]["target"], "muc");
        assert!(alert["annotations"]["evidence"].as_str().is_some_and(|e| !e.is_empty()));
    }
    assert_eq!(firing[1]["labels"]["severity"], "critical");
    let open = lasting(&path("store"));
    let kinds: BTreeSet<&str> = open.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["breach", "unavailable"]));
    let breach = open.iter().find(|event| event.kind == "breach").unwrap();
    assert_eq!(breach.evidence["labels"]["objective"], "loss");
    assert!(breach.evidence["window"]["low"].as_f64().is_some_and(|loss| loss > 0.2), "{breach:?}");
    assert!(breach.evidence["window"]["samples"].as_u64().is_some_and(|n| n >= 20), "{breach:?}");

    let (answering, answers) = begin(&net.reflector, reflector, &path("answers"));
    for name in ["ObjectiveBreached", "Unavailable"] {
        let alert = told.wait(name, "resolved");
        let duration = alert["annotations"]["duration"].as_str();
        assert!(duration.is_some_and(|duration| !duration.is_empty()), "{alert}");
        assert!(alert["endsAt"].as_str() > alert["startsAt"].as_str(), "{alert}");
    }
    station.stop_and_join(&mut seen, &records);
    answering.stop_and_join(&mut Seen::default(), &answers);
    assert_eq!(lasting(&path("store")), []);
    let kinds: Vec<String> = events(&path("store")).into_iter().map(|event| event.kind).collect();
    for kind in
        ["station_started", "breach", "recovery", "unavailable", "available", "located_loss"]
    {
        assert!(kinds.iter().any(|other| other == kind), "no {kind} in {kinds:?}");
    }
}

/// What a webhook on this listener is told: the alerts, one by one.
fn receive(listener: TcpListener) -> mpsc::Receiver<Value> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).unwrap() > 2 {
                let header = line.to_ascii_lowercase();
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut text = vec![0; length];
            reader.read_exact(&mut text).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            let body: Value = serde_json::from_slice(&text).unwrap();
            for alert in body["alerts"].as_array().unwrap() {
                if tell.send(alert.clone()).is_err() {
                    return;
                }
            }
        }
    });
    told
}

/// What a receiver was told, in whatever order.
struct Told {
    comes: mpsc::Receiver<Value>,
    came: Vec<Value>,
}

impl Told {
    fn wait(&mut self, name: &str, status: &str) -> Value {
        let is = |alert: &Value| alert["labels"]["alertname"] == name && alert["status"] == status;
        loop {
            if let Some(alert) = self.came.iter().find(|alert| is(alert)) {
                return alert.clone();
            }
            let next = self.comes.recv_timeout(Duration::from_secs(60));
            let next = next.unwrap_or_else(|_| panic!("no {status} {name}: {:?}", self.came));
            self.came.push(next);
        }
    }
}

fn events(folder: &Path) -> Vec<StoredEvent> {
    let reader = EmbeddedReader::open(folder, None).unwrap();
    let range = TimeRange { from_ns: 0, to_ns: i64::MAX / 2 };
    let query = Query::Events(EventList { range, ..EventList::default() });
    let Answer::Events(rows) = reader.query(&query, &Limit::default()).unwrap().answer else {
        panic!("another answer")
    };
    rows.into_iter().map(|row| row.event).collect()
}

fn lasting(folder: &Path) -> Vec<StoredEvent> {
    events(folder).into_iter().filter(|event| event.end_ns.is_none()).collect()
}

/// The store has all that was measured, by target, and the gap.
fn kept(folder: &Path, run: &Collected) {
    let reader = EmbeddedReader::open(folder, None).unwrap();
    let range = TimeRange { from_ns: 0, to_ns: i64::MAX / 2 };
    let ask = |query| reader.query(&query, &Limit::default()).unwrap().answer;
    let by = vec!["target".to_owned(), "class".to_owned()];
    let overview = Query::Overview(Overview { range, by, ..Overview::default() });
    let Answer::Overview(rows) = ask(overview) else { panic!("another answer") };
    let rows: BTreeMap<Vec<String>, u64> =
        rows.into_iter().map(|row| (row.group, row.summary.received)).collect();
    let stream = |stream: usize| run.totals()[stream].counters.received;
    let of = |target: &str, n| (vec![target.to_owned(), "BE".to_owned()], n);
    assert_eq!(rows, BTreeMap::from([of("10.1.0.2", stream(0)), of("10.2.0.1", stream(1))]));
    let Answer::RttTop(top) = ask(Query::RttTop(RttTop { range, ..RttTop::default() })) else {
        panic!("another answer")
    };
    let prefixes: Vec<&str> = top.rows.iter().map(|row| row.group.as_str()).collect();
    assert!(prefixes.contains(&"10.1.0.0/24"), "{prefixes:?}");
    let passive = Overview { range, delay: Delay::Passive, ..Overview::default() };
    let Answer::Overview(rows) = ask(Query::Overview(passive)) else { panic!("another answer") };
    let whole: u64 = top.rows.iter().map(|row| row.figures.n).sum();
    assert_eq!(rows.iter().map(|row| row.summary.n).collect::<Vec<_>>(), [whole]);
    let kinds: Vec<String> = events(folder).into_iter().map(|event| event.kind).collect();
    let has = |kind: &str| kinds.iter().any(|other| other == kind);
    assert!(has("gap") && has("unit_failed"), "{kinds:?}");
}

/// One test at a time: one looks at the threads of this process.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("sonde-station-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A station and what asks it to end.
struct Running {
    station: Station,
    stop: Stop,
}

impl std::ops::Deref for Running {
    type Target = Station;

    fn deref(&self) -> &Station {
        &self.station
    }
}

impl Running {
    fn stop_and_join(self, seen: &mut Seen, records: &RecordReceiver<Arc<Report>>) {
        self.stop.ask();
        let ended = self.station.join();
        assert_eq!(ended.stuck, Vec::new());
        assert_eq!((ended.store.lost_records, ended.store.lost_rows), (0, 0), "{ended:?}");
        assert_eq!((ended.store.waiting_rows, &ended.store.error), (0, &None), "{ended:?}");
        while let Some(report) = records.next_now() {
            seen.take(&report);
        }
    }
}

fn begin(host: &Host, text: &str, folder: &Path) -> (Running, RecordReceiver<Arc<Report>>) {
    let text = format!("{text}\n[store]\npath = '{}'\n", folder.display());
    let hub = Hub::new(Report::records);
    let records = hub.subscribe("test", 1 << 16);
    let stop = Stop::default();
    let (asked, config) = (stop.clone(), parse(&text));
    let station = host
        .inside(move || runner::start(config, hub, asked, None, Invocation::default()))
        .unwrap()
        .unwrap();
    (Running { station, stop }, records)
}

fn parse(text: &str) -> Config {
    let text = TomlText { file: "station.toml".into(), text: text.into() };
    Config::of(&[ReadFile::parse(text).unwrap()]).unwrap()
}

fn wait_for(records: &RecordReceiver<Arc<Report>>, enough: impl Fn(&Report) -> bool) {
    loop {
        match records.next(Duration::from_secs(60)) {
            Next::Record(report) if enough(&report) => return,
            Next::Record(_) => {}
            Next::Nothing | Next::End => panic!("what was waited for did not come"),
        }
    }
}

/// What came of a station.
#[derive(Default)]
struct Seen {
    probe: Option<Collected>,
    begun: BTreeMap<String, u32>,
    round_trips: usize,
    gaps: Vec<String>,
    notices: Vec<Notice>,
    lost: u64,
}

impl Seen {
    fn read(&mut self, records: &RecordReceiver<Arc<Report>>, enough: impl Fn(&Seen) -> bool) {
        while !enough(self) {
            match records.next(Duration::from_secs(60)) {
                Next::Record(report) => self.take(&report),
                Next::Nothing | Next::End => panic!("what was waited for did not come"),
            }
        }
    }

    fn take(&mut self, report: &Report) {
        let begun = |seen: &mut Seen| *seen.begun.entry(report.unit.to_string()).or_default() += 1;
        match &report.said {
            Said::Probe(about) => {
                begun(self);
                self.probe = Some(Collected::new((**about).clone()));
            }
            Said::ProbeEvent(event) => self.add(event),
            Said::Flow => begun(self),
            Said::RttEvents(events) => self.round_trips += events.len(),
            Said::Lost(n) => self.lost += n,
            Said::Gap(gap) => self.gaps.push(gap.unit.to_string()),
            Said::Notice(notice) => self.notices.push(notice.clone()),
            _ => {}
        }
    }

    fn add(&mut self, event: &Event) {
        self.probe.as_mut().unwrap().add(event);
    }

    fn received(&self, stream: usize) -> u64 {
        let total = self.probe.as_ref().and_then(|probe| probe.totals().get(stream));
        total.map_or(0, |total| total.counters.received)
    }
}

fn same_kind(one: &Notice, two: &Notice) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(two) && one.unit() == two.unit()
}

/// Names of this process's threads.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(task.ok()?.path().join("comm")).ok()?;
        Some(name.trim().to_owned())
    };
    tasks.filter_map(name).collect()
}
