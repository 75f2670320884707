//! A program that is talked to line by line: it says when it is ready, and answers questions.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::LabError;

/// The program. Dropping it ends it.
pub(crate) struct Console {
    name: &'static str,
    child: Child,
    talk: Mutex<Talk>,
}

struct Talk {
    input: ChildStdin,
    lines: Receiver<String>,
    /// The last lines, for the message when it fails.
    last: VecDeque<String>,
}

impl Console {
    /// Starts it and waits until it has written a line that contains [`READY`].
    pub(crate) fn start(
        name: &'static str,
        mut command: Command,
        patience: Duration,
    ) -> Result<Console, LabError> {
        // A group of its own: Ctrl-C is for the one who talks to it, and who ends it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|cause| LabError::Start { command: format!("{command:?}"), cause })?;
        let (sender, lines) = channel();
        let outputs: [Box<dyn std::io::Read + Send>; 2] = [
            Box::new(child.stdout.take().expect("piped")),
            Box::new(child.stderr.take().expect("piped")),
        ];
        for output in outputs {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender); // the readers' ends of their channel are the only ones
        let input = child.stdin.take().expect("piped");
        let talk = Mutex::new(Talk { input, lines, last: VecDeque::new() });
        let console = Console { name, child, talk };
        console.read_to(READY, patience)?;
        Ok(console)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line and returns the lines up to [`END`].
    pub(crate) fn ask(&self, question: &str, patience: Duration) -> Result<Vec<String>, LabError> {
        self.write_line(question)?;
        self.read_to(END, patience)
    }

    /// Writes a line and waits until the program is ready again.
    pub(crate) fn ask_until_ready(
        &self,
        command: &str,
        patience: Duration,
    ) -> Result<(), LabError> {
        self.write_line(command)?;
        self.read_to(READY, patience).map(drop)
    }

    fn write_line(&self, line: &str) -> Result<(), LabError> {
        let mut talk = self.talk.lock().unwrap_or_else(|e| e.into_inner());
        let written = writeln!(talk.input, "{line}").and_then(|()| talk.input.flush());
        written.map_err(|e| self.failed(&talk, &e.to_string()))
    }

    fn read_to(&self, mark: &str, patience: Duration) -> Result<Vec<String>, LabError> {
        let limit = Instant::now() + patience;
        let mut talk = self.talk.lock().unwrap_or_else(|e| e.into_inner());
        let mut all = Vec::new();
        loop {
            let rest = limit.saturating_duration_since(Instant::now());
            match talk.lines.recv_timeout(rest) {
                Ok(line) if line.contains(mark) => return Ok(all),
                Ok(line) => {
                    if talk.last.len() == LAST_LINES {
                        talk.last.pop_front();
                    }
                    talk.last.push_back(line.clone());
                    all.push(line);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let what = format!("no '{mark}' after {} s", patience.as_secs());
                    return Err(self.failed(&talk, &what));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.failed(&talk, "it ended")),
            }
        }
    }

    fn failed(&self, talk: &Talk, what: &str) -> LabError {
        let last: Vec<&str> =
            talk.last.iter().map(String::as_str).filter(|l| !l.is_empty()).collect();
        LabError::Bed(format!("{}: {what}; its last output: {}", self.name, last.join("; ")))
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program writes when it is ready.
pub(crate) const READY: &str = "sonde: ready";
/// What ends an answer.
pub(crate) const END: &str = "sonde: end";
const LAST_LINES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Console, LabError> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Console::start("a shell", command, Duration::from_secs(20))
    }

    #[test]
    fn questions_are_answered_in_order() {
        let script = "echo booting; echo sonde: ready; \
                      while read -r q; do echo you said \"$q\"; echo sonde: end; done";
        let console = shell(script).unwrap();
        for question in ["one", "two"] {
            let answer = console.ask(question, Duration::from_secs(20)).unwrap();
            assert_eq!(answer, [format!("you said {question}")]);
        }
    }

    #[test]
    fn the_last_output_of_one_that_fails_are_in_the_message() {
        let error = shell("echo no such module >&2; exit 1").err().unwrap().to_string();
        assert!(error.contains("it ended") && error.contains("no such module"), "{error}");
    }
}
