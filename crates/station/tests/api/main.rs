//! A station's API on real packets: one station answers probes, another measures and is asked.

mod targets;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sonde_lab::{Host, LinkOptions, Topology};
use sonde_results::Interval;
use sonde_run::probe::Event;
use sonde_run::running::{Invocation, Next, RecordReceiver, Stop};
use sonde_station::client::{ClientError, StationClient};
use sonde_station::hub::{Hub, Report, Said};
use sonde_station::serve::{AccessRole, BoundApi, issue_token};
use sonde_station::service::{LoadedConfig, Service};
use sonde_sys::clock::{steady_scale, unix_now_ns};

const ANSWERS: &str = "[reflect.main]\nengine = { iface = 'eth0' }\n[api]\nsocket = ''\n";

const MEASURES: &str = r#"
[station]
name = "ber"
[api]
listen = "127.0.0.1:0"
tokens = "TOKENS"
[probe.core]
stream = { interval = "5ms" }
run = { record_interval = "200ms", timeout = "500ms" }
[[probe.core.target]]
host = "10.1.0.2"
"#;

#[test]
fn what_a_station_measures_is_asked_reloaded_and_followed_by_those_whom_it_knows() {
    if sonde_lab::skip("what_a_station_measures_is_asked_reloaded_and_followed") {
        return;
    }
    let net = Topology::pair("api", &LinkOptions::default()).unwrap();
    let folder = Folder::new("asked");
    let tokens = Tokens::make(&folder.0.join("tokens"));
    let answering = Running::start(&net.reflector, ANSWERS, &folder.0.join("answers"));
    let mut seen = Seen::default();
    seen.read(&answering.records, |report| matches!(report.said, Said::Reflector(_)));
    let text = MEASURES.replace("TOKENS", &tokens.file.display().to_string());
    let station = Running::start(&net.probe, &text, &folder.0.join("store"));
    let client = StationClient::new(&folder.0.join("store.sock"));
    let mut seen = Seen::default();
    // Until its unit is listed as running, and its series has a number.
    seen.until(&station.records, || {
        let unit = &client.list("/sonde/v1/units", "", 10).unwrap();
        let series = client.list("/sonde/v1/series", "", 10).unwrap();
        let works = unit.iter().any(|u| u["phase"] == "running" && u["records"] != 0);
        (works && !series.is_empty()).then_some(())
    });

    shows_the_numbers(&client, &station, &mut seen);
    reloads(&client, &station, &text, &mut seen);
    lets_in_whom_it_knows(&net.probe, station.address.unwrap(), &tokens);
    is_followed(&client, &folder.0.join("store.sock"));

    let socket = folder.0.join("store.sock");
    assert!(socket.exists());
    station.stop(&mut seen);
    answering.stop(&mut Seen::default());
    assert!(!socket.exists(), "the socket goes with its station");
    for target in ["10.1.0.2", "10.2.0.1"] {
        let (sent, received) = seen.sums(target, i64::MIN, i64::MAX);
        assert!(sent > 0 && sent == received, "{target}: {sent} {received}");
    }
}

/// The overview of a time has what the probe's records of that time say.
fn shows_the_numbers(client: &StationClient, station: &Running, seen: &mut Seen) {
    let (from, to) = {
        let now_ms = unix_now_ns() / 1_000_000;
        (now_ms - 300_000, now_ms)
    };
    let (from_ns, to_ns) = (from * 1_000_000, to * 1_000_000);
    seen.until(&station.records, || Some(()));
    while !seen.intervals.iter().any(|(_, record)| start_utc(record) >= to_ns) {
        seen.one(&station.records);
    }
    let (sent, received) = seen.sums("10.1.0.2", from_ns, to_ns);
    assert!(sent > 0, "{sent}");
    let of = |table: &Value, name: &str| {
        let columns = table["columns"].as_array().unwrap();
        columns.iter().find(|column| column["name"] == name).unwrap()["values"][0].as_f64()
    };
    let path = format!(
        "/sonde/v1/overview?from={from}&to={to}&by=target&metrics=sent,lost,max,errored_seconds"
    );
    // What came last becomes durable within a moment.
    let table = seen.until(&station.records, || {
        let table = client.get(&path).unwrap();
        (of(&table, "sent") == Some(sent as f64)).then_some(table)
    });
    assert_eq!(of(&table, "lost"), Some((sent - received) as f64));
    assert_eq!(table["groups"][0][0], "10.1.0.2");
    let greatest = seen.intervals.iter().filter(|(_, r)| (from_ns..to_ns).contains(&start_utc(r)));
    let greatest = greatest.filter_map(|(_, record)| record.rtt_net.max()).max().unwrap();
    assert_eq!(of(&table, "max"), Some(greatest as f64));
    assert_eq!(of(&table, "errored_seconds"), Some(0.0));
    assert_eq!((&table["states"][0], &table["counts"]["ok"]), (&"ok".into(), &1.into()));

    // Points over the same time have the same sum.
    let id = client.list("/sonde/v1/series", "", 10).unwrap()[0]["id"].as_u64().unwrap();
    let points = client.get(&format!("/sonde/v1/points?ids={id}&from={from}&to={to}&metrics=sent"));
    let points = points.unwrap();
    let values = points["series"][0]["columns"][0]["values"].as_array().unwrap();
    assert_eq!(values.len(), points["at_ms"].as_array().unwrap().len());
    // Its windows are whole, so the last may have later records, too.
    assert!(values.iter().filter_map(Value::as_f64).sum::<f64>() >= sent as f64, "{points}");
    for route in ["bands", "heat"] {
        let table = client.get(&format!("/sonde/v1/{route}?ids={id}&from={from}&to={to}")).unwrap();
        let states = table["states"].as_array().or(table["quantiles"][0]["states"].as_array());
        let has = |state: &Value| state == "value" || state == "doubtful";
        assert!(states.unwrap().iter().any(has), "{route} has no value");
    }
    let metrics = client.send("GET", "/metrics", &[], "").unwrap();
    let text = String::from_utf8(metrics.body).unwrap();
    let line = text.lines().find(|line| line.starts_with("sonde_sent_total{")).unwrap();
    assert!(line.contains("target=\"10.1.0.2\"") && line.contains("station=\"ber\""), "{line}");
    assert!(text.contains("sonde_available") && text.ends_with("# EOF\n"));
    let health = client.get("/sonde/v1/station/health").unwrap();
    assert_eq!((&health["sound"], &health["drops"]), (&true.into(), &Value::Array(vec![])));
}

/// A target is added by the file and the API, and nothing else is touched.
fn reloads(client: &StationClient, station: &Running, text: &str, seen: &mut Seen) {
    let order = |fields: &[&str]| client.send("POST", RELOAD, fields, "{}").unwrap();
    assert_eq!(order(&[]).status, 428);
    assert_eq!(order(&["If-Match: \"other\""]).status, 412);
    let tag = client.send("GET", "/sonde/v1/config", &[], "").unwrap().etag.unwrap();
    let named = format!("If-Match: {tag}");
    station.write(&format!("{text}\n[probe.core]\n"));
    let wrong = order(&[&named]);
    let why = String::from_utf8_lossy(&wrong.body).into_owned();
    assert!(wrong.status == 422 && why.contains("nothing has changed"), "{why}");
    let faults = client.get("/sonde/v1/config/changes").unwrap();
    assert_ne!(faults["errors"], Value::Array(vec![]));

    station.write(&format!("{text}\n[[probe.core.target]]\nhost = '10.2.0.1'\n"));
    let steps = |body: &Value| body["steps"].to_string();
    let foreseen = client.get("/sonde/v1/config/changes").unwrap();
    let done = order(&[&named]);
    let done: Value = serde_json::from_slice(&done.body).unwrap();
    assert_eq!(steps(&done), steps(&foreseen));
    assert_eq!(done["steps"][0]["action"], "adjust", "{done}");
    assert_eq!(done["steps"][0]["added"], serde_json::json!(["10.2.0.1"]));
    // The version is another now.
    assert_eq!(order(&[&named]).status, 412);
    seen.until(&station.records, || {
        let rows = client.get("/sonde/v1/overview?by=target&from=now-1m").unwrap();
        let groups = rows["groups"].as_array().unwrap().clone();
        groups.iter().any(|group| group[0] == "10.2.0.1").then_some(())
    });
    let targets = client.list("/sonde/v1/targets", "", 10).unwrap();
    assert_eq!(targets.len(), 2, "{targets:?}");
}

fn lets_in_whom_it_knows(host: &Host, address: SocketAddr, tokens: &Tokens) {
    let ask = |path: &'static str, token: Option<&str>| {
        let shown = token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
        let asked = host.inside(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let text = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{shown}\r\n");
            stream.write_all(text.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        let answer = asked.unwrap();
        (answer[9..12].to_owned(), answer)
    };
    let refused = |token: Option<&str>, why: &str| {
        let (status, answer) = ask("/sonde/v1/station", token);
        assert!(status == "401" && answer.contains(why), "{answer}");
        assert!(!answer.contains("\"ber\""), "{answer}");
    };
    refused(None, "no token");
    refused(Some("sonde_00"), "none of this station");
    refused(Some(&tokens.expired), "expired");
    assert_eq!(ask("/sonde/v1/station", Some(&tokens.read)).0, "200");
    assert_eq!(ask("/metrics", None).0, "401");
    let (status, answer) = ask("/sonde/v1/config", Some(&tokens.read));
    assert!(status == "403" && answer.contains("admin"), "{answer}");
}

/// Events are resumed without a gap, and clients that read nothing slow nobody.
fn is_followed(client: &StationClient, socket: &Path) {
    let id = client.list("/sonde/v1/series", "", 10).unwrap()[0]["id"].as_u64().unwrap();
    let path = format!("/sonde/v1/stream?topics=m:{id}");
    let mut whole = Follower::open(socket, &path, None);
    let mut broken = Follower::open(socket, &path, None);
    let last = broken.event();
    drop(broken);
    while whole.event() != last {}
    let missed = [whole.event(), whole.event()];
    let mut resumed = Follower::open(socket, &path, Some(&last.0));
    assert_eq!([resumed.event(), resumed.event()], missed);
    assert!(missed[0].1.contains("\"kind\":\"reading\""), "{missed:?}");
    let strange = Follower::open(socket, &path, Some("1-1")).event();
    assert!(strange.1.contains("station_restarted"), "{strange:?}");

    let idle: Vec<UnixStream> =
        (0..slow_clients() - 2).map(|_| let_in(|| follow(socket, &path, None))).collect();
    let alike = |whole: &mut Follower, other: &mut Follower| {
        assert_eq!(whole.event(), other.event());
    };
    for _ in 0..10 {
        alike(&mut whole, &mut resumed);
        let health = loop {
            match client.get("/sonde/v1/station/health") {
                // So many clients have just asked as this caller; events go on meanwhile.
                Err(ClientError::Refused { status: 429, .. }) => alike(&mut whole, &mut resumed),
                health => break health.unwrap(),
            }
        };
        let queues = health["queues"].as_array().unwrap();
        assert!(queues.iter().any(|queue| queue["reader"] == "live"), "{health}");
        assert!(queues.iter().all(|queue| queue["dropped"] == 0), "{health}");
    }
    drop(idle);
}

/// A client that was let in. A caller has 50 requests a second: another is asked for later. From
/// here on it reads nothing.
fn let_in(ask: impl Fn() -> UnixStream) -> UnixStream {
    for _ in 0..3_000 {
        let (mut stream, mut head) = (ask(), [0; 12]);
        stream.read_exact(&mut head).unwrap();
        match &head[9..] {
            b"200" => return stream,
            b"429" => std::thread::sleep(Duration::from_millis(20)),
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }
    panic!("no client more is let in");
}

/// Clients of the stream that are there at a time: two that read, and others that do not. By
/// `SONDE_SLOW_CLIENTS=1000 cargo test -p sonde-station --test api` they are 1,000, which takes 2,100
/// descriptors.
#[expect(clippy::disallowed_methods, reason = "how much a test does is no setting of Sonde")]
fn slow_clients() -> usize {
    std::env::var("SONDE_SLOW_CLIENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(100)
}

/// A client of the stream.
struct Follower(BufReader<UnixStream>);

impl Follower {
    fn open(socket: &Path, path: &str, after: Option<&str>) -> Follower {
        Follower(BufReader::new(follow(socket, path, after)))
    }

    /// Id and data of the next event; of a gap the id is empty.
    fn event(&mut self) -> (String, String) {
        let (mut id, mut data) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the stream has ended");
            if let Some(text) = line.strip_prefix("id: ") {
                id = text.trim().to_owned();
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = text.trim().to_owned();
            } else if line.trim().is_empty() && !data.is_empty() {
                return (id, data);
            }
        }
    }
}

fn follow(socket: &Path, path: &str, after: Option<&str>) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let after = after.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
    let text = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{after}\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Tokens, and the file with their hashes.
struct Tokens {
    file: PathBuf,
    read: String,
    expired: String,
}

impl Tokens {
    fn make(file: &Path) -> Tokens {
        let read = issue_token("page", AccessRole::Read, None).unwrap();
        let expired = issue_token("old", AccessRole::Admin, Some(1)).unwrap();
        fs::write(file, format!("{}\n{}\n", read.line, expired.line)).unwrap();
        fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        Tokens { file: file.to_owned(), read: read.secret, expired: expired.secret }
    }
}

/// A station by its file.
struct Running {
    service: Service,
    stop: Stop,
    records: RecordReceiver<Arc<Report>>,
    address: Option<SocketAddr>,
    file: PathBuf,
    store: PathBuf,
}

impl Running {
    fn start(host: &Host, text: &str, store: &Path) -> Running {
        let file = store.with_extension("toml");
        write_config(&file, text, store);
        let hub = Hub::new(Report::records);
        let records = hub.subscribe("test", 1 << 16);
        let stop = Stop::default();
        let (asked, path) = (stop.clone(), file.clone());
        let start = move || {
            let loaded = LoadedConfig::read(&path).unwrap();
            let bound = BoundApi::bind(&loaded.config.api, &loaded.config.store.path).unwrap();
            let address = bound.address();
            let how = (None, Invocation::default());
            (Service::start(&path, loaded, bound, hub, asked, how).unwrap(), address)
        };
        let (service, address) = host.inside(start).unwrap();
        Running { service, stop, records, address, file, store: store.to_owned() }
    }

    fn write(&self, text: &str) {
        write_config(&self.file, text, &self.store);
    }

    fn stop(self, seen: &mut Seen) {
        self.stop.ask();
        let ended = self.service.join();
        assert!(ended.stuck.is_empty(), "{ended:?}");
        assert_eq!((ended.store.lost_records, ended.store.lost_rows), (0, 0), "{ended:?}");
        while let Some(report) = self.records.next_now() {
            seen.take(&report);
        }
    }
}

fn write_config(file: &Path, text: &str, store: &Path) {
    fs::write(file, format!("{text}\n[store]\npath = '{}'\n", store.display())).unwrap();
}

/// What came of a station's probe.
#[derive(Default)]
struct Seen {
    targets: Vec<String>,
    /// Targets, and the records of their streams.
    intervals: Vec<(String, Interval)>,
}

impl Seen {
    fn one(&mut self, records: &RecordReceiver<Arc<Report>>) -> Arc<Report> {
        match records.next(Duration::from_secs(60)) {
            Next::Record(report) => {
                self.take(&report);
                report
            }
            Next::Nothing | Next::End => panic!("what was waited for did not come"),
        }
    }

    fn read(&mut self, records: &RecordReceiver<Arc<Report>>, wanted: impl Fn(&Report) -> bool) {
        while !wanted(&self.one(records)) {}
    }

    /// Looks again after each record, 300 of them at most.
    fn until<T>(
        &mut self,
        records: &RecordReceiver<Arc<Report>>,
        mut look: impl FnMut() -> Option<T>,
    ) -> T {
        for _ in 0..300 {
            if let Some(found) = look() {
                return found;
            }
            self.one(records);
        }
        panic!("what was waited for did not come about");
    }

    fn take(&mut self, report: &Report) {
        match &report.said {
            Said::Probe(about) => {
                self.targets = about.streams.iter().map(|s| s.target.clone()).collect();
            }
            Said::ProbeEvent(Event::Added(streams)) => {
                self.targets.extend(streams.iter().map(|s| s.target.clone()));
            }
            Said::ProbeEvent(Event::Record(record)) => {
                let target = self.targets[record.stream as usize].clone();
                self.intervals.push((target, (**record).clone()));
            }
            Said::Lost(n) => panic!("{n} records found no room"),
            _ => {}
        }
    }

    /// Sent and received of a target in intervals that begin in a time, ns since 1970 UTC.
    fn sums(&self, target: &str, from_ns: i64, to_ns: i64) -> (u64, u64) {
        let own = self.intervals.iter().filter(|(name, _)| name == target);
        let own = own.filter(|(_, record)| (from_ns..to_ns).contains(&start_utc(record)));
        own.fold((0, 0), |(sent, received), (_, record)| {
            (sent + record.counters.sent, received + record.counters.received)
        })
    }
}

fn start_utc(record: &Interval) -> i64 {
    record.start_ns - steady_scale().utc_offset
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-api-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const RELOAD: &str = "/sonde/v1/config/reload";
