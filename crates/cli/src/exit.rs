//! Exit codes, and the failures that lead to them. Scripts rely on these.

use std::process::ExitCode;

use anyhow::anyhow;
use sonde_run::error::RunError;
use sonde_run::running::Ended;

use crate::options;

/// How a command that could run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Measured, and nothing was wrong.
    Ok = 0,
    /// Measured, and the result is negative: no reply, a difference, a failed check.
    Negative = 1,
    /// Measured, but some output could not be saved, or not all that was kept could be read.
    NotSaved = 4,
    /// Measured, but the evidence does not decide what was asked: too few repetitions, a
    /// threshold without a value.
    Undecided = 5,
    /// Interrupted before anything was measured.
    Interrupted = 130,
}

impl Exit {
    /// Of an instrument whose end is all that there is to say.
    pub fn of(ended: Ended) -> Result<Exit, Failure> {
        match ended.failure {
            Some(error) => Err(error.into()),
            None => Ok(Exit::Ok),
        }
    }

    /// The exit code when some output was not saved, unless nothing was measured anyway.
    pub fn unless_saved(self) -> Exit {
        match self {
            Exit::Interrupted => self,
            Exit::Ok | Exit::Negative | Exit::NotSaved | Exit::Undecided => Exit::NotSaved,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not run, or not to its end. The message names the next step.
#[derive(Debug)]
pub enum Failure {
    /// Bad usage or configuration: code 2.
    Usage(anyhow::Error),
    /// Privilege, interface, engine: code 3.
    CannotRun(anyhow::Error),
    /// It ran, but its output could not be saved: code 4.
    NotSaved(anyhow::Error),
    /// The end was asked for before anything was measured: code 130.
    Interrupted(anyhow::Error),
}

impl Failure {
    /// The message, with its causes on one line.
    pub fn message(&self) -> String {
        match self {
            Failure::Usage(e)
            | Failure::CannotRun(e)
            | Failure::NotSaved(e)
            | Failure::Interrupted(e) => format!("{e:#}"),
        }
    }

    /// The exit code that belongs to it.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Usage(_) => 2,
            Failure::CannotRun(_) => 3,
            Failure::NotSaved(_) => Exit::NotSaved as u8,
            Failure::Interrupted(_) => Exit::Interrupted as u8,
        })
    }
}

/// A failure on the way to a measurement is one of this host, unless said otherwise.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::CannotRun(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        let text = error.to_string();
        let named = || anyhow!(options::named(&text).into_owned());
        match error {
            RunError::Settings(_) => Failure::Usage(anyhow!(options::wrong(&text))),
            RunError::Host(_) => Failure::CannotRun(named()),
            RunError::Unsaved(_) => Failure::NotSaved(named()),
            RunError::Interrupted(_) => Failure::Interrupted(named()),
        }
    }
}

/// The table of docs/exit-codes.md, for `sonde --help`.
pub const HELP: &str = "\
Exit codes:
  0    measured, and nothing was wrong: every stream was answered; nothing differs; nothing
       is worse
  1    measured, and the result is negative: a stream had no reply or a target was left out
       (probe); no round trip (rtt); no packet (flow); something differs (flow verify); a check
       or the device failed (bench); a unit does not work, or the station is not sound (status);
       something is worse (compare)
  2    wrong usage or configuration: an unknown option, a value out of its range, two options
       that exclude each other, an option without effect, two outputs on one file, a wrong line
       of a file, a file of settings that cannot be used
  3    this host cannot run it, or not to its end: no privilege, no such interface or processor,
       an engine that cannot be opened or fails, an interface that vanishes under gen flows, an
       output that cannot be opened or that another process writes, a name that does not resolve
       or a host without a way where there is no other target (probe), a run that cannot be read
       (report, compare), a capture that cannot be read (flow, rtt), no station that answers
       (status, events, explain, top, report sla)
  4    measured, but not all of it was saved, or of what was kept not all could be read: a
       full disk, a limit of file sizes, a collector that took nothing; damaged segments of a
       store (query, export)
  5    measured, but the evidence does not decide (bench, compare, explain): too few repetitions, a
       threshold without a value, nothing that explains an event
  130  interrupted before anything was measured; a benchmark before its end: the same command
       continues it
Ctrl-C ends a measurement with its summary, its files and the codes above.";

#[cfg(test)]
mod tests {
    use sonde_run::error::UnsavedFile;

    use super::*;

    /// Code and text, on one line.
    fn rows_of_help() -> Vec<String> {
        let mut rows: Vec<String> = Vec::new();
        for line in HELP.lines().filter(|line| line.starts_with("  ")) {
            let text = line.split_whitespace().collect::<Vec<_>>().join(" ");
            match (line.starts_with("   "), rows.last_mut()) {
                (true, Some(row)) => *row += &format!(" {text}"),
                _ => rows.push(text),
            }
        }
        rows
    }

    #[test]
    fn the_help_has_the_table_of_the_docs() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md");
        let page = std::fs::read_to_string(page).unwrap().replace('`', "");
        let cells = |line: &str| line.split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
        let rows = page.lines().filter(|line| line.starts_with("| ")).map(cells).skip(1);
        let rows: Vec<String> = rows.map(|c| format!("{} {}: {}", c[1], c[2], c[3])).collect();
        assert_eq!(rows, rows_of_help());
    }

    #[test]
    fn the_codes_are_those_of_the_help_text() {
        for exit in [Exit::Ok, Exit::Negative, Exit::NotSaved, Exit::Undecided, Exit::Interrupted] {
            assert!(HELP.contains(&format!("\n  {} ", exit as u8)));
        }
        assert_eq!(Failure::Usage(anyhow::anyhow!("x")).code(), ExitCode::from(2));
        assert_eq!(Failure::from(anyhow::anyhow!("x")).code(), ExitCode::from(3));
        let interrupted = RunError::Interrupted(anyhow::anyhow!("x"));
        assert_eq!(Failure::from(interrupted).code(), ExitCode::from(Exit::Interrupted));
        let full = std::io::ErrorKind::StorageFull.into();
        let unsaved = RunError::from(UnsavedFile::new("x".as_ref(), "free space", full));
        assert_eq!(Failure::from(unsaved).code(), ExitCode::from(Exit::NotSaved));
    }

    #[test]
    fn a_message_carries_its_causes() {
        let error = anyhow::anyhow!("no route").context("host a");
        assert_eq!(Failure::from(error).message(), "host a: no route");
    }
}
