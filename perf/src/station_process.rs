//! A station as a process of its own in a namespace, as `sonde run` starts it, asked by its socket.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use sonde_lab::Host;

use crate::child::ChildGuard;

/// A running station. It is asked to end when dropped.
pub struct StationProcess {
    child: ChildGuard,
    log: StationLog,
    folder: PathBuf,
}

/// What it said so far, each line with the time at which it came.
#[derive(Clone, Default)]
struct StationLog(Arc<Mutex<Vec<(Instant, String)>>>);

impl StationLog {
    fn add(&self, line: String) {
        let at = Instant::now();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((at, line));
    }

    /// The first line from number `from` on that has `part`; and how many lines there are.
    fn find(&self, from: usize, part: &str) -> (Option<Instant>, usize) {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = lines.iter().skip(from).find(|(_, line)| line.contains(part));
        (found.map(|(at, _)| *at), lines.len())
    }

    fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|(_, line)| format!("{line}\n")).collect()
    }
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUse {
    /// Resident memory now, octets.
    pub resident: u64,
    /// The most that it ever was, octets.
    pub peak: u64,
    /// Processor time of all threads that live, s.
    pub cpu_s: f64,
}

impl StationProcess {
    /// Starts it in `host` with a configuration that is written to `folder`; `[store]` and `[api]` are
    /// added, both in `folder`. It answers when this returns.
    pub fn start(host: &Host, folder: &Path, configuration: &str) -> Result<StationProcess> {
        write_configuration(folder, configuration)?;
        let sonde = std::env::current_exe()?.with_file_name("sonde");
        let sonde = sonde.to_str().context("the path of this program is not text")?;
        let file = folder.join(CONFIGURATION);
        let mut command = host.command(sonde);
        command.arg("run").arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = ChildGuard(command.stderr(Stdio::piped()).spawn().context("sonde run")?);
        let lines = BufReader::new(child.0.stderr.take().context("no standard error")?).lines();
        let log = StationLog::default();
        let keep = log.clone();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| keep.add(line)));
        let mut station = StationProcess { child, log, folder: folder.to_owned() };
        station.wait("ready", ASKED, |station| Ok(station.get("/-/ready").is_ok()))?;
        Ok(station)
    }

    /// Waits until something is so, and looks each `pause`; where it never is, the error has the
    /// station's log.
    pub fn wait(
        &mut self,
        what: &str,
        pause: Duration,
        is: impl Fn(&StationProcess) -> Result<bool>,
    ) -> Result<Duration> {
        let begin = Instant::now();
        while !is(self)? {
            if let Some(status) = self.child.0.try_wait()? {
                bail!("the station ended with {status} before it was {what}:\n{}", self.log.text());
            }
            ensure!(
                begin.elapsed() < PATIENCE,
                "the station was never {what}:\n{}",
                self.log.text()
            );
            std::thread::sleep(pause);
        }
        Ok(begin.elapsed())
    }

    /// Waits until a unit is in a phase, as `running` or `done`.
    pub fn wait_for_phase(&mut self, unit: &str, phase: &str) -> Result<()> {
        let path = format!("/sonde/v1/units/{unit}");
        let is = |station: &StationProcess| {
            Ok(station.get(&path).is_ok_and(|unit| unit["unit"]["phase"] == phase))
        };
        self.wait(&format!("so that {unit} is {phase}"), ASKED, is).map(drop)
    }

    /// JSON at a path of its API; `Null` where the answer is empty.
    pub fn get(&self, path: &str) -> Result<Value> {
        let mut stream = self.connect(path)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let text = String::from_utf8_lossy(&answer);
        let (head, body) = text.split_once("\r\n\r\n").context("the station speaks no HTTP")?;
        let status = head.split_whitespace().nth(1).unwrap_or_default();
        ensure!(status.starts_with('2'), "{path} is answered by {status}: {body}");
        Ok(serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// A connection on which `path` was asked for by HTTP/1.0, nothing read yet.
    pub fn connect(&self, path: &str) -> Result<UnixStream> {
        let socket = self.folder.join(SOCKET);
        let mut stream = UnixStream::connect(&socket).context("the station's socket")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        Ok(stream)
    }

    /// Has it read a new configuration, by SIGHUP; how long until it says that it did.
    pub fn reload(&mut self, configuration: &str) -> Result<Duration> {
        write_configuration(&self.folder, configuration)?;
        let (_, from) = self.log.find(0, "");
        let begin = Instant::now();
        let hang_up =
            Command::new("kill").args(["-HUP", &self.child.0.id().to_string()]).status()?;
        ensure!(hang_up.success(), "the station cannot be told to reload");
        let log = self.log.clone();
        let read = |_: &StationProcess| {
            let (refused, _) = log.find(from, "changes nothing");
            ensure!(refused.is_none(), "the reload was refused:\n{}", log.text());
            Ok(log.find(from, "was read again").0.is_some())
        };
        self.wait("reloaded", LOOK, read)?;
        let said = self.log.find(from, "was read again").0.context("the line is gone")?;
        Ok(said.saturating_duration_since(begin))
    }

    /// What it has used so far.
    pub fn used(&self) -> ProcessUse {
        let path = format!("/proc/{}/status", self.child.0.id());
        let text = fs::read_to_string(path).unwrap_or_default();
        let octets = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
            kib.unwrap_or(0) * 1_024
        };
        let cpu_s = self.child.cpu_seconds();
        ProcessUse { resident: octets("VmRSS:"), peak: octets("VmHWM:"), cpu_s }
    }

    /// Octets that it has sent to the disk so far, those of files that are gone again too.
    pub fn written(&self) -> u64 {
        let path = format!("/proc/{}/io", self.child.0.id());
        let text = fs::read_to_string(path).unwrap_or_default();
        let octets = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        octets.and_then(|octets| octets.trim().parse().ok()).unwrap_or(0)
    }

    /// Processor time so far by the names of threads, s.
    pub fn threads(&self) -> BTreeMap<String, f64> {
        let mut all = BTreeMap::new();
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.0.id()));
        for task in tasks.into_iter().flatten().flatten() {
            let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let nanos = read("schedstat").split_whitespace().next().and_then(|ns| ns.parse().ok());
            *all.entry(read("comm").trim().to_owned()).or_default() += nanos.unwrap_or(0.0) / 1e9;
        }
        all
    }

    /// Ends it in order; what it said. Records that it could not keep are in what it said.
    pub fn end(mut self) -> Result<String> {
        let status = self.child.finish()?;
        // The last lines may still be on their way.
        let begin = Instant::now();
        while self.log.find(0, "records kept").0.is_none() && begin.elapsed() < LAST_LINES {
            std::thread::sleep(LOOK);
        }
        let text = self.log.text();
        let kept = status.success() || text.contains("are not kept");
        ensure!(kept, "the station ended with {status}:\n{text}");
        Ok(text)
    }
}

/// Where the store of a station in this folder is.
pub fn store_folder(folder: &Path) -> PathBuf {
    folder.join("store")
}

/// As a reader of the file sees it: whole or not at all.
fn write_configuration(folder: &Path, text: &str) -> Result<()> {
    let (store, socket) = (store_folder(folder), folder.join(SOCKET));
    let text = format!(
        "[station]\nname = \"bench\"\n[store]\npath = \"{}\"\n[api]\nsocket = \"{}\"\n{text}",
        store.display(),
        socket.display()
    );
    let fresh = folder.join("fresh.toml");
    fs::write(&fresh, text).context("the station's configuration")?;
    fs::rename(&fresh, folder.join(CONFIGURATION)).context("the station's configuration")
}

const CONFIGURATION: &str = "sonde.toml";
const SOCKET: &str = "api.sock";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// Between two looks at its log.
const LOOK: Duration = Duration::from_millis(2);
/// Between two requests: a caller has 50 a second.
const ASKED: Duration = Duration::from_millis(200);
const LAST_LINES: Duration = Duration::from_secs(5);
