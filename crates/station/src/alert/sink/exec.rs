//! A program of the user's own: it gets what a webhook would get on its standard input.
//!
//! No shell is between, and nothing of the station's environment comes to it.

use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::units::SECOND;
use sonde_run::error::SettingsError;

use super::{AlertSink, OpenedSink, SinkError, SinkRequest, SinkSettings, SinkWay, json, webhook};
use crate::alert::notification::{Notification, NotificationReason};
use crate::alert::secret::Redactor;

/// A program's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExecSettings {
    /// The program, by its whole path, and its arguments.
    pub command: Vec<String>,
    /// It is ended after this time, 1 s to 5 min, with all that it has started.
    #[serde(with = "sonde_run::duration")]
    #[schemars(with = "String")]
    pub timeout: i64,
}

impl Default for ExecSettings {
    fn default() -> Self {
        ExecSettings { command: Vec::new(), timeout: 10 * SECOND }
    }
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// It is ended after this time.
    pub timeout: Duration,
}

impl SinkSettings for ExecSettings {
    fn check(&self) -> Result<(), SettingsError> {
        let wrong = |why: &str| Err(SettingsError::new("command", why));
        match self.command.first() {
            None => {
                return wrong("name a program and its arguments, as [\"/usr/bin/tell\", \"-x\"]");
            }
            Some(program) if !Path::new(program).is_absolute() => {
                return wrong("give the program's whole path: no PATH is searched");
            }
            Some(_) => {}
        }
        if self.command.iter().any(|argument| argument.contains('\0')) {
            return wrong("no argument can hold a zero octet");
        }
        if !(SECOND..=300 * SECOND).contains(&self.timeout) {
            return Err(SettingsError::new("timeout", "give \"1s\" to \"5m\""));
        }
        Ok(())
    }

    fn open(&self) -> Result<OpenedSink, SettingsError> {
        let timeout = Duration::from_nanos(self.timeout.unsigned_abs());
        let way = SinkWay::Exec(ExecCommand { command: self.command.clone(), timeout });
        Ok(OpenedSink { sink: Box::new(Exec), way, redactor: Redactor::default() })
    }
}

/// A program.
pub struct Exec;

impl AlertSink for Exec {
    fn render(&self, notification: &Notification, _now_ns: i64) -> Result<SinkRequest, SinkError> {
        // As of a webhook: the format has no such state.
        if notification.reason == NotificationReason::Acknowledged {
            return Ok(SinkRequest::Nothing);
        }
        let begun = notification.as_begun();
        let inputs = begun.iter().chain([notification]).map(|told| {
            let mut input = json("a webhook's JSON", &webhook::Payload::of(told))?;
            input.push(b'\n');
            Ok(input)
        });
        Ok(SinkRequest::Exec(inputs.collect::<Result<_, SinkError>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::sink::testing;
    use serde_json::Value;

    #[test]
    fn a_program_gets_one_line_of_what_a_webhook_gets() {
        let SinkRequest::Exec(lines) = Exec.render(&testing::resolved(), 0).unwrap() else {
            panic!("no payload")
        };
        assert_eq!(lines.len(), 1);
        let line = &lines[0];
        assert_eq!(line.iter().position(|b| *b == b'\n'), Some(line.len() - 1));
        let payload: Value = serde_json::from_slice(line).unwrap();
        assert_eq!((&payload["version"], &payload["status"]), (&"4".into(), &"resolved".into()));
        assert_eq!(payload["alerts"][0]["annotations"]["duration"], "3 m 05 s");
    }

    #[test]
    fn what_began_and_ended_at_once_is_two_runs() {
        let SinkRequest::Exec(lines) = Exec.render(&testing::at_once(), 0).unwrap() else {
            panic!("no payload")
        };
        let status = |line: &Vec<u8>| {
            serde_json::from_slice::<Value>(line).unwrap()["status"].as_str().unwrap().to_owned()
        };
        assert_eq!(lines.iter().map(status).collect::<Vec<_>>(), ["firing", "resolved"]);
    }

    #[test]
    fn settings_name_what_is_wrong() {
        let key = |text: &str| {
            let settings: ExecSettings = toml::from_str(text).unwrap();
            settings.check().err().map(|error| error.key.unwrap()).unwrap_or_default()
        };
        assert_eq!(key("command = ['/bin/true', 'a b']"), "");
        assert_eq!(key(""), "command");
        assert_eq!(key("command = ['true']"), "command");
        assert_eq!(key("command = ['/bin/true', \"a\\u0000\"]"), "command");
        assert_eq!(key("command = ['/bin/true']\ntimeout = '301s'"), "timeout");
        toml::from_str::<ExecSettings>("command = '/bin/true'").unwrap_err();
    }
}
