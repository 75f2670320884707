//! Receivers on loopback that come, go and refuse, and a station that is killed.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use serde_json::Value;

use super::*;
use crate::alert::model::{Alert, LabelSet};
use crate::alert::testing::Folder;

/// How long a test waits for what has to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request as a receiver sees it.
struct Seen {
    headers: BTreeMap<String, String>,
    body: Value,
    text: Vec<u8>,
}

/// A receiver that answers with these statuses, one a request, and then with 200.
fn serve(listener: TcpListener, statuses: &'static [&'static str]) -> mpsc::Receiver<Seen> {
    let (tell, seen) = mpsc::channel();
    std::thread::spawn(move || {
        let mut statuses = statuses.iter();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut headers = BTreeMap::new();
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some((name, value)) = line.split_once(':') {
                    headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
                }
                line.clear();
            }
            let mut text = vec![0; headers["content-length"].parse().unwrap()];
            reader.read_exact(&mut text).unwrap();
            let status = statuses.next().copied().unwrap_or("200 OK");
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nwhy").unwrap();
            let body = serde_json::from_slice(&text).unwrap();
            if tell.send(Seen { headers, body, text }).is_err() {
                return;
            }
        }
    });
    seen
}

fn next(seen: &mpsc::Receiver<Seen>) -> Seen {
    seen.recv_timeout(PATIENCE).expect("nothing came to the receiver")
}

fn settings(folder: &Folder, to: SocketAddr) -> AlertSettings {
    let text = format!(
        "to = ['ops']
        folder = '{}'
        wait = 0
        interval = '10ms'
        group_by = ['unit']
        [receiver.ops.webhook]
        url = 'http://{to}/hook'",
        folder.0.display()
    );
    toml::from_str(&text).unwrap()
}

fn alert(name: &str, ends_ns: Option<i64>) -> AlertInput {
    let labels = LabelSet::from([("alertname".into(), name.into())]);
    AlertInput::Alert(Alert { labels, starts_ns: 1, ends_ns, ..Alert::default() })
}

/// A service that ends with the value.
struct Service(Option<AlertService>, Stop);

impl Service {
    fn start(settings: &AlertSettings) -> Service {
        let stop = Stop::default();
        let service = start(settings, Teller::default(), stop.clone()).unwrap();
        Service(Some(service), stop)
    }

    fn give(&self, input: AlertInput) {
        assert!(self.0.as_ref().unwrap().give(input));
    }

    fn status(&self) -> ReceiverStatus {
        self.0.as_ref().unwrap().status.get().receivers.get("ops").cloned().unwrap_or_default()
    }

    fn wait_for(&self, what: &str, is: impl Fn(&ReceiverStatus) -> bool) -> ReceiverStatus {
        let patience = Deadline::after(PATIENCE);
        loop {
            let status = self.status();
            if is(&status) {
                return status;
            }
            assert!(patience.left().is_some(), "{what}: {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.1.ask();
        self.0.take().into_iter().for_each(AlertService::join);
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn an_alert_comes_to_a_webhook_signed_and_so_does_its_end() {
    let folder = Folder::new("webhook");
    let (listener, to) = listen();
    let seen = serve(listener, &[]);
    let key = folder.0.join("key");
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key).unwrap();
    file.write_all(b"Jefe\n").unwrap();
    let text = toml::to_string(&settings(&folder, to)).unwrap();
    let signed = text.replace("url =", &format!("hmac_file = '{}'\nurl =", key.display()));
    let service = Service::start(&toml::from_str(&signed).unwrap());
    service.give(alert("loss", None));
    let first = next(&seen);
    assert_eq!((&first.body["status"], &first.body["version"]), (&"firing".into(), &"4".into()));
    let signed = [first.headers["x-sonde-timestamp"].as_bytes(), b".", &first.text].concat();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"Jefe");
    let digits = first.headers["x-sonde-signature"].strip_prefix("sha256=").unwrap();
    let tag: Vec<u8> =
        (0..32).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect();
    ring::hmac::verify(&key, &signed, &tag).unwrap();
    service.give(alert("loss", Some(2)));
    assert_eq!(next(&seen).body["status"], "resolved");
    let status = service.wait_for("both are delivered", |status| status.delivered == 2);
    assert_eq!((status.queued, status.failures, status.failing_since_ns), (0, 0, None));
}

#[test]
fn a_receiver_that_was_away_gets_all_in_order_when_it_comes_back() {
    let folder = Folder::new("away");
    let (listener, to) = listen();
    drop(listener);
    let service = Service::start(&settings(&folder, to));
    service.give(alert("a", None));
    let status = service.wait_for("a failure is shown", |status| status.failures > 0);
    assert!(status.failing_since_ns.is_some() && status.queued == 1, "{status:?}");
    assert!(status.last_error.unwrap().contains("refused"));
    service.give(alert("b", None));
    service.wait_for("both wait", |status| status.queued == 2);
    let seen = serve(TcpListener::bind(to).unwrap(), &["503 Busy"]);
    let names = |seen: &Seen| {
        let alerts = seen.body["alerts"].as_array().unwrap().iter();
        alerts.map(|a| a["labels"]["alertname"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The first comes again after the refusal.
    let came: Vec<_> = (0..3).map(|_| names(&next(&seen))).collect();
    assert_eq!(came, [vec!["a"], vec!["a"], vec!["a", "b"]]);
    let status = service.wait_for("it works again", |status| status.delivered == 2);
    assert_eq!((status.queued, status.failing_since_ns), (0, None));
}

#[test]
fn what_is_refused_for_good_is_given_up_and_shown() {
    let folder = Folder::new("refused");
    let (listener, to) = listen();
    let seen = serve(listener, &["404 Not Found"]);
    let service = Service::start(&settings(&folder, to));
    service.give(alert("a", None));
    next(&seen);
    let status = service.wait_for("it is given up", |status| status.given_up == 1);
    assert_eq!(status.last_error.as_deref(), Some("HTTP status 404: why"));
    assert_eq!((status.queued, status.failures), (0, 0));
}

#[test]
fn a_redirection_is_not_followed_and_a_long_answer_not_read() {
    let folder = Folder::new("redirected");
    let (listener, to) = listen();
    let (elsewhere, other) = listen();
    let answers = std::thread::spawn(move || {
        let mut stream = listener.incoming().next().unwrap().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        let length = 1_u64 << 40;
        let head = format!("Location: http://{other}/hook\r\nContent-Length: {length}\r\n\r\n");
        write!(stream, "HTTP/1.1 307 Temporary Redirect\r\n{head}").unwrap();
        // Until the other side has had enough: the answer has no end.
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let service = Service::start(&settings(&folder, to));
    service.give(alert("a", None));
    let status = service.wait_for("it is given up", |status| status.given_up == 1);
    let said = status.last_error.unwrap();
    assert!(said.starts_with("HTTP status 307: xxx") && said.len() <= 300, "{said}");
    answers.join().unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    assert_eq!(elsewhere.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_program_takes_alerts_and_says_what_it_never_takes() {
    let folder = Folder::new("program");
    let file = folder.0.join("taken");
    let script = r#"read -r line; case $line in *resolved*) echo no ends >&2; exit 65;; esac
        echo "$line" >> "$0""#;
    let text = format!(
        "to = ['ops']\nfolder = '{}'\nwait = 0\ninterval = '10ms'\n[receiver.ops.exec]\n\
         command = ['/bin/sh', '-c', '''{script}''', '{}']",
        folder.0.display(),
        file.display()
    );
    let service = Service::start(&toml::from_str(&text).unwrap());
    service.give(alert("loss", None));
    service.wait_for("it is taken", |status| status.delivered == 1);
    let taken: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(taken["alerts"][0]["labels"]["alertname"], "loss");
    service.give(alert("loss", Some(2)));
    let status = service.wait_for("its end is refused", |status| status.given_up == 1);
    assert_eq!(status.last_error.as_deref(), Some("exit status 65: no ends"));
    assert_eq!((status.queued, status.delivered, status.failures), (0, 1, 0));
}

#[test]
fn a_restart_forgets_nothing() {
    let folder = Folder::new("restart");
    let (listener, to) = listen();
    let seen = serve(listener, &[]);
    let settings = settings(&folder, to);
    let service = Service::start(&settings);
    service.give(alert("a", None));
    assert_eq!(next(&seen).body["status"], "firing");
    drop(service);
    let service = Service::start(&settings);
    // It lasts, and was told: only the end is news.
    service.give(alert("a", None));
    service.give(alert("a", Some(2)));
    assert_eq!(next(&seen).body["status"], "resolved");
}

#[test]
fn a_reload_takes_what_waits_to_the_new_address() {
    let folder = Folder::new("reload");
    let (listener, nowhere) = listen();
    drop(listener);
    let service = Service::start(&settings(&folder, nowhere));
    service.give(alert("a", None));
    service.wait_for("a failure is shown", |status| status.failures > 0);
    let (listener, to) = listen();
    let seen = serve(listener, &[]);
    let inner = service.0.as_ref().unwrap();
    let mut wrong = settings(&folder, to);
    wrong.to = vec!["nobody".into()];
    let refused = inner.reload(wrong, Teller::default()).unwrap_err();
    assert!(refused.to_string().contains("no receiver 'nobody'"), "{refused}");
    assert_eq!(service.status().queued, 1);
    inner.reload(settings(&folder, to), Teller::default()).unwrap();
    assert_eq!(next(&seen).body["alerts"][0]["labels"]["alertname"], "a");
}

#[test]
fn two_stations_on_one_folder_are_refused() {
    let folder = Folder::new("two");
    let (_listener, to) = listen();
    let settings = settings(&folder, to);
    let _first = Service::start(&settings);
    let second = start(&settings, Teller::default(), Stop::default()).err().unwrap();
    assert!(second.to_string().contains("another station uses it"), "{second}");
}

#[test]
fn what_waits_in_the_folder_of_another_station_is_refused() {
    let folder = Folder::new("other");
    let (_listener, to) = listen();
    let named = |name: &str| Teller { station: name.into(), link: None };
    let stop = Stop::default();
    let first = start(&settings(&folder, to), named("ber"), stop.clone()).unwrap();
    let first = Service(Some(first), stop);
    first.give(alert("a", None));
    first.wait_for("it waits", |status| status.queued == 1);
    drop(first);
    let start = |name| start(&settings(&folder, to), named(name), Stop::default());
    let refused = start("muc").err().unwrap();
    assert!(matches!(refused, RunError::Settings(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("station 'ber' keeps its alerts there, and this one is 'muc'"), "{text}");
}

const CHILD: &str = "SONDE_ALERT_CHILD";

/// The station that is killed: it spools a notification that it cannot deliver, and says so.
#[test]
#[expect(clippy::disallowed_methods, reason = "plays a part of the test in a process of its own")]
fn child_that_is_killed() {
    let Ok(text) = std::env::var(CHILD) else { return };
    let service = Service::start(&toml::from_str(&text).unwrap());
    service.give(alert("a", None));
    service.wait_for("it waits", |status| status.queued == 1);
    println!("spooled");
    std::thread::sleep(2 * PATIENCE);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "plays a part of the test in a process of its own")]
fn what_a_killed_station_had_spooled_is_delivered_by_the_next() {
    let folder = Folder::new("killed");
    let (listener, to) = listen();
    drop(listener);
    let settings = settings(&folder, to);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "alert::delivery::tests::child_that_is_killed", "--nocapture"])
        .env(CHILD, toml::to_string(&settings).unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let spooled = lines.any(|line| line.unwrap().ends_with("spooled"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(spooled);
    let seen = serve(TcpListener::bind(to).unwrap(), &[]);
    let service = Service::start(&settings);
    assert_eq!(next(&seen).body["alerts"][0]["labels"]["alertname"], "a");
    service.give(alert("a", Some(2)));
    assert_eq!(next(&seen).body["status"], "resolved");
}
