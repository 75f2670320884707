//! Child processes: started, listened to, waited for with a bound, ended when dropped.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running process. Dropping it kills it.
pub struct Process {
    child: Child,
    out: Output,
    err: Output,
    line: String,
}

pub struct Ended {
    /// The exit code; of a signal, 128 and its number, as a shell says it.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Process {
    pub fn start(mut command: Command) -> Process {
        let line = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot run {line}: {e}"));
        let out = Output::read(child.stdout.take().unwrap());
        let err = Output::read(child.stderr.take().unwrap());
        Process { child, out, err, line }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Complete lines of standard output so far.
    pub fn out(&self) -> Vec<String> {
        self.out.lines.lock().unwrap().clone()
    }

    /// Complete lines of standard error so far.
    pub fn err(&self) -> Vec<String> {
        self.err.lines.lock().unwrap().clone()
    }

    /// Sends a signal, by its name: "INT", "KILL".
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(status.unwrap().success(), "no process to send {name} to: {}", self.line);
    }

    /// Sends a signal to the whole process group, as a terminal does.
    pub fn signal_group(&self, name: &str) {
        let group = format!("-{}", self.id());
        let status = Command::new("kill").args(["-s", name, "--", &group]).status();
        assert!(status.unwrap().success(), "no process group for {name}: {}", self.line);
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Polls until `condition` holds; an ended process or the bound is a failure.
    pub fn until(&mut self, what: &str, mut condition: impl FnMut(&Process) -> bool) {
        let begin = Instant::now();
        loop {
            let running = self.is_running();
            if !running {
                // It may have been quick: all that it said counts.
                self.out.finish();
                self.err.finish();
            }
            if condition(self) {
                return;
            }
            assert!(
                running && begin.elapsed() < BOUND,
                "waiting for {what} of {}: {}\n{}",
                self.line,
                self.out().join("\n"),
                self.err().join("\n")
            );
            std::thread::sleep(POLL);
        }
    }

    /// Waits for its end.
    pub fn end(self) -> Ended {
        self.end_of(|| 0)
    }

    /// The same for what takes as long as the machine makes it: what neither prints nor gets on,
    /// by `work`, hangs.
    pub fn end_of(mut self, work: impl Fn() -> usize) -> Ended {
        let (mut last, mut since) = ((0, 0, 0), Instant::now());
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            let now = (self.out().len(), self.err().len(), work());
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let all = || [self.out().join("\n"), self.err().join("\n")].join("\n");
            assert!(since.elapsed() < BOUND, "{} does not end: {}", self.line, all());
            std::thread::sleep(POLL);
        };
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ended { code, out: self.out.finish(), err: self.err.finish() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One stream of text, read by a thread of its own so that the process never blocks.
struct Output {
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn read(stream: impl Read + Send + 'static) -> Output {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let all = lines.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n') {
                let Ok(line) = line else { return };
                all.lock().unwrap().push(String::from_utf8_lossy(&line).into_owned());
            }
        });
        Output { lines, reader: Some(reader) }
    }

    fn finish(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.lines.lock().unwrap().join("\n")
    }
}

/// Polls until `condition` holds; the bound is a failure.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < BOUND, "waiting for {what}");
        std::thread::sleep(POLL);
    }
}

/// Only what hangs takes longer over one step, also beside a load of 8.
const BOUND: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(5);
