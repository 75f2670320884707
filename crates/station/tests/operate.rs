//! What people change on a running station by its API: silences, maintenance, acknowledgement. It
//! is there after a restart.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sonde_run::running::{Invocation, Stop};
use sonde_station::client::StationClient;
use sonde_station::hub::{Hub, Report};
use sonde_station::serve::{AccessRole, BoundApi, issue_token};
use sonde_station::service::{LoadedConfig, Service};

/// The interface is nowhere, so that there is an alert. Nobody takes what the receiver is sent.
const CONFIG: &str = r#"
[station]
name = "ber"
[api]
listen = "127.0.0.1:0"
tokens = "FOLDER/tokens"
[store]
path = "FOLDER/store"
[alert]
to = ["ops"]
folder = "FOLDER/alerts"
wait = 0
[alert.receiver.ops.exec]
command = ["/bin/false"]
[flow.absent]
sources = ["sonde-absent"]
"#;

#[test]
fn what_people_change_is_there_after_a_restart_and_ends_when_it_should() {
    if sonde_lab::skip("what_people_change_is_there_after_a_restart_and_ends_when_it_should") {
        return;
    }
    let folder = Folder::new("operate");
    let tokens = Tokens::make(&folder.0.join("tokens"));
    let station = Running::start(&folder.0, CONFIG);
    let client = StationClient::new(&folder.0.join("store.sock"));

    // Somebody takes care of the unit that fails.
    let failed = until("the unit fails", || {
        let events = client.list("/sonde/v1/events", "kind=unit_failed", 10).unwrap();
        let alerts = client.list("/sonde/v1/alerts", "", 10).unwrap();
        (!alerts.is_empty()).then(|| events.first().cloned()).flatten()
    });
    let path = format!("/sonde/v1/events/{}/acknowledgement", failed["id"].as_str().unwrap());
    assert_eq!(by(&station, "POST", &path, Some(&tokens.read), "{}").0, 403);
    let (status, answer) =
        by(&station, "POST", &path, Some(&tokens.operate), r#"{"note":"cable ordered"}"#);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["event"]["acknowledged"]["by"], "ops");
    let absent = path.replace(failed["id"].as_str().unwrap(), "987654");
    assert_eq!(by(&station, "POST", &absent, Some(&tokens.operate), "{}").0, 404);

    // Alerts of the unit are held back for an hour, and its target for a night.
    let order = |kind: &str, labels: Value, to: i64| {
        json!({"kind": kind, "name": "new cable", "labels": labels, "to": to}).to_string()
    };
    let soon = now_ms() + 3_600_000;
    let silence = order("silence", json!({"unit": "flow.*"}), soon);
    assert_eq!(by(&station, "POST", SILENCES, Some(&tokens.read), &silence).0, 403);
    assert_eq!(by(&station, "POST", SILENCES, None, &silence).0, 401);
    let (status, made) = by(&station, "POST", SILENCES, Some(&tokens.operate), &silence);
    assert_eq!((status, &made["by"]), (201, &"ops".into()), "{made}");
    let odd = order("maintenance", json!({"site": "muc"}), soon);
    let (status, refused) = by(&station, "POST", SILENCES, Some(&tokens.operate), &odd);
    assert!(status == 422 && refused.to_string().contains("site"), "{refused}");
    let night = order("maintenance", json!({"target": "muc-*"}), soon);
    let (status, _) = by(&station, "POST", SILENCES, Some(&tokens.operate), &night);
    assert_eq!(status, 201);
    let held_back = until("the alert is held back", || {
        let groups = client.list("/sonde/v1/alerts", "", 10).unwrap();
        groups.iter().find(|group| group["held_back"] == 1).cloned()
    });
    let alert = &held_back["alerts"][0];
    assert_eq!(alert["silences"][0], made["id"]);
    assert_eq!(alert["acknowledged"]["note"], "cable ordered");
    assert_eq!(client.list("/sonde/v1/alerts", "audible=true", 10).unwrap(), Vec::<Value>::new());

    // SQL reads what happened, within its limits, and writes nothing.
    let sql = |text: &str, rows: u32| {
        let body = json!({"sql": text, "limit_rows": rows}).to_string();
        by(&station, "POST", "/sonde/v1/sql", Some(&tokens.read), &body)
    };
    let (status, table) = sql("SELECT kind, id FROM event WHERE kind = 'unit_failed'", 10);
    assert_eq!(status, 200, "{table}");
    assert_eq!(table["columns"][0]["values"][0], "unit_failed");
    assert_eq!(table["columns"][1]["sql_type"], "INTEGER");
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT i FROM n";
    let (_, cut) = sql(many, 7);
    assert_eq!((&cut["rows"], &cut["truncated"]), (&7.into(), &true.into()), "{cut}");
    let (status, refused) = sql("DELETE FROM event", 10);
    assert!(status == 422, "{refused}");
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    let body = json!({"sql": endless, "limit_s": 1}).to_string();
    let (status, ended) = by(&station, "POST", "/sonde/v1/sql", Some(&tokens.read), &body);
    assert_eq!(status, 422, "{ended}");
    let tables = client.get("/sonde/v1/sql/tables").unwrap();
    assert!(tables["tables"].as_array().unwrap().iter().any(|t| t["name"] == "iv1m"), "{tables}");

    // Nothing was dropped; a receiver that takes nothing is a problem that is said.
    let health = client.get("/sonde/v1/station/health").unwrap();
    assert_eq!(health["drops"], json!([]), "{health}");
    let queue = |reader: &str| {
        let queues = health["queues"].as_array().unwrap();
        queues.iter().find(|queue| queue["reader"] == reader).cloned().unwrap()
    };
    assert_eq!(queue("store")["capacity"], 65_536);
    assert_eq!(queue("alert.ops")["capacity"], 1_000);

    station.stop();
    let station = Running::start(&folder.0, CONFIG);
    let kinds: Vec<Value> = client
        .list(SILENCES, "", 10)
        .unwrap()
        .into_iter()
        .inspect(|entry| assert_eq!(entry["name"], "new cable"))
        .map(|entry| entry["kind"].clone())
        .collect();
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    let event = client.get(&path.replace("/acknowledgement", "")).unwrap();
    assert_eq!(event["event"]["acknowledged"]["note"], "cable ordered");

    // Each is ended by hand, or by its time.
    let one = format!("{SILENCES}/{}", made["id"].as_str().unwrap());
    assert_eq!(by(&station, "DELETE", &one, Some(&tokens.read), "").0, 403);
    assert_eq!(by(&station, "DELETE", &one, Some(&tokens.operate), "").0, 204);
    assert_eq!(by(&station, "DELETE", &format!("{SILENCES}/x"), Some(&tokens.operate), "").0, 404);
    assert_eq!(by(&station, "DELETE", &path, Some(&tokens.operate), "").0, 204);
    assert_eq!(
        client.get(&path.replace("/acknowledgement", "")).unwrap()["event"]["acknowledged"],
        Value::Null
    );
    let short = order("silence", json!({"unit": "flow.*"}), now_ms() + 200);
    assert_eq!(by(&station, "POST", SILENCES, Some(&tokens.operate), &short).0, 201);
    until("the short silence ends", || {
        let left = client.list(SILENCES, "kind=silence", 10).unwrap();
        left.is_empty().then_some(())
    });
    let ended = client.list(SILENCES, "ended=true&kind=silence", 10).unwrap();
    assert_eq!(ended.len(), 2, "{ended:?}");
    station.stop();
}

#[test]
fn a_reload_with_a_fault_in_alerts_changes_nothing_and_one_without_changes_all() {
    if sonde_lab::skip("a_reload_with_a_fault_in_alerts_changes_nothing_and_one_without_changes") {
        return;
    }
    let folder = Folder::new("whole");
    Tokens::make(&folder.0.join("tokens"));
    let station = Running::start(&folder.0, CONFIG);
    let client = StationClient::new(&folder.0.join("store.sock"));
    let get = |path: &str| client.get(path).unwrap();
    let version = get("/sonde/v1/config")["version"].clone();
    let units = || -> Vec<Value> {
        let units = client.list("/sonde/v1/units", "", 10).unwrap();
        units.into_iter().map(|unit| unit["name"].clone()).collect()
    };
    let receivers = || -> Vec<Value> {
        let all = get("/sonde/v1/receivers")["receivers"].as_array().unwrap().clone();
        all.into_iter().map(|receiver| receiver["name"].clone()).collect()
    };
    until("the unit is listed", || (units().len() == 1).then_some(()));
    let reload = || {
        let tag = client.send("GET", "/sonde/v1/config", &[], "").unwrap().etag.unwrap();
        let named = format!("If-Match: {tag}");
        client.send("POST", "/sonde/v1/config/reload", &[&named], "{}").unwrap()
    };
    // The new units and the new objective are good; the new receiver's secret is nowhere.
    let more = "[flow.second]\nsources = ['sonde-absent-2']\n\
                [probe.muc]\ntarget = [{ host = '127.0.0.1' }]\n\
                [objective.loss]\nmetric = 'loss_ratio'\nlimit = '1%'\n\
                [alert.receiver.late.webhook]\nurl_file = 'FOLDER/url'\n";
    write_config(&folder.0, &format!("{CONFIG}\n{more}"));
    let refused = reload();
    let why = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(refused.status == 422 && why.contains("nothing has changed"), "{why}");
    assert!(why.contains("alert.receiver.late.webhook"), "{why}");
    assert_eq!((units(), receivers()), (vec!["flow.absent".into()], vec!["ops".into()]));
    assert_eq!(get("/sonde/v1/config")["version"], version);

    let url = folder.0.join("url");
    fs::write(&url, "http://127.0.0.1:9/hook\n").unwrap();
    fs::set_permissions(&url, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(reload().status, 200);
    until("the new units are listed", || (units().len() == 3).then_some(()));
    until("the second receiver is listed", || (receivers().len() == 2).then_some(()));
    assert_ne!(get("/sonde/v1/config")["version"], version);
    station.stop();
}

const SILENCES: &str = "/sonde/v1/silences";

fn now_ms() -> i64 {
    sonde_sys::clock::unix_now_ns() / 1_000_000
}

/// Looks until there is something, for a minute at most.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: it did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Status and JSON of a request by TCP.
fn by(
    station: &Running,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> (u16, Value) {
    let mut stream = TcpStream::connect(station.address).unwrap();
    let shown = token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
    let text = format!(
        "{method} {path} HTTP/1.0\r\nHost: {}\r\n{shown}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        station.address,
        body.len()
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (answer[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
}

struct Tokens {
    read: String,
    operate: String,
}

impl Tokens {
    fn make(file: &Path) -> Tokens {
        let read = issue_token("page", AccessRole::Read, None).unwrap();
        let operate = issue_token("ops", AccessRole::Operate, None).unwrap();
        fs::write(file, format!("{}\n{}\n", read.line, operate.line)).unwrap();
        fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        Tokens { read: read.secret, operate: operate.secret }
    }
}

struct Running {
    service: Service,
    stop: Stop,
    address: SocketAddr,
}

impl Running {
    fn start(folder: &Path, text: &str) -> Running {
        let path = write_config(folder, text);
        let loaded = LoadedConfig::read(&path).unwrap();
        let bound = BoundApi::bind(&loaded.config.api, &loaded.config.store.path).unwrap();
        let address = bound.address().unwrap();
        let (hub, stop) = (Hub::new(Report::records), Stop::default());
        let how = (None, Invocation::default());
        let service = Service::start(&path, loaded, bound, hub, stop.clone(), how).unwrap();
        Running { service, stop, address }
    }

    fn stop(self) {
        self.stop.ask();
        let ended = self.service.join();
        assert!(ended.stuck.is_empty(), "{ended:?}");
    }
}

fn write_config(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("sonde.toml");
    fs::write(&path, text.replace("FOLDER", &folder.display().to_string())).unwrap();
    path
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
