//! Exit codes, and the failures that lead to them. Scripts rely on these.

use std::process::ExitCode;

use anyhow::anyhow;
use sonde_run::error::RunError;
use sonde_run::running::Ended;

use crate::options;

/// How a command that could run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Measured, and every stream was answered; or nothing was wrong.
    Ok = 0,
    /// Measured, but at least one stream had no reply at all; verified, and something differs;
    /// compared, and something is worse.
    NoReply = 1,
    /// Measured, but some output could not be saved.
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
            Exit::Ok | Exit::NoReply | Exit::NotSaved | Exit::Undecided => Exit::NotSaved,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command could not run. The message names the next step.
#[derive(Debug)]
pub enum Failure {
    /// Bad usage or configuration: code 2.
    Usage(anyhow::Error),
    /// Privilege, interface, engine: code 3.
    CannotRun(anyhow::Error),
}

impl Failure {
    /// The message, with its causes on one line.
    pub fn message(&self) -> String {
        match self {
            Failure::Usage(e) | Failure::CannotRun(e) => format!("{e:#}"),
        }
    }

    /// 2 or 3.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Usage(_) => 2,
            Failure::CannotRun(_) => 3,
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
        match error {
            RunError::Settings(_) => Failure::Usage(anyhow!(options::wrong(&text))),
            RunError::Host(_) | RunError::Unsaved(_) => {
                Failure::CannotRun(anyhow!(options::named(&text).into_owned()))
            }
        }
    }
}

/// For `--help`.
pub const HELP: &str = "\
Exit codes:
  0    measured, and every stream was answered
  1    measured, but some stream had no reply at all; rtt: no round trip was found;
       flow verify: something differs; compare: something is worse
  2    bad usage or configuration
  3    could not run: privilege, interface, engine
  4    measured, but some output could not be saved
  5    bench, compare: measured, but the evidence does not decide
  130  interrupted before anything was measured
Ctrl-C ends a measurement with its summary, its files and the codes above.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_help_text() {
        for exit in [Exit::Ok, Exit::NoReply, Exit::NotSaved, Exit::Undecided, Exit::Interrupted] {
            assert!(HELP.contains(&format!("\n  {} ", exit as u8)));
        }
        assert_eq!(Failure::Usage(anyhow::anyhow!("x")).code(), ExitCode::from(2));
        assert_eq!(Failure::from(anyhow::anyhow!("x")).code(), ExitCode::from(3));
    }

    #[test]
    fn a_message_carries_its_causes() {
        let error = anyhow::anyhow!("no route").context("host a");
        assert_eq!(Failure::from(error).message(), "host a: no route");
    }
}
