//! One kind of receiver each: a notification becomes what it takes, and its answer a decision.
//!
//! Nothing here opens a socket or knows of retries: [`delivery`](super::delivery) does.
//!
//! What comes from an alert is bounded and free of control characters before
//! ([`Alert::bounded`](super::model::Alert::bounded)), and escaped here as the format wants it.

pub mod address;
pub mod alertmanager;
pub mod email;
pub mod exec;
pub mod pagerduty;
pub mod slack;
pub mod snmp;
pub mod syslog;
pub mod text;
pub mod webhook;

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_run::error::SettingsError;

use super::model::is_link;
use super::notification::Notification;
use super::route::GroupTiming;
use super::secret::{Redactor, SecretFile, SecretText};

/// The settings of a receiver: `[alert.receiver.NAME.KIND]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SinkConfig {
    /// A webhook that takes what Alertmanager sends.
    Webhook(webhook::WebhookSettings),
    /// An Alertmanager.
    Alertmanager(alertmanager::AlertmanagerSettings),
    /// A service of PagerDuty.
    Pagerduty(pagerduty::PagerdutySettings),
    /// A channel of Slack, or of what takes its messages.
    Slack(slack::SlackSettings),
    /// A syslog server.
    Syslog(syslog::SyslogSettings),
    /// People, by e-mail.
    Email(email::EmailSettings),
    /// A receiver of SNMP notifications.
    Snmp(snmp::SnmpSettings),
    /// A program on this host.
    Exec(exec::ExecSettings),
}

/// The settings of one kind of receiver.
trait SinkSettings {
    /// Whether they can be; no file is read.
    fn check(&self) -> Result<(), SettingsError>;

    /// Reads the secrets.
    fn open(&self) -> Result<OpenedSink, SettingsError>;

    /// When it is told of a group, where that is not for the routes to say.
    fn timing(&self) -> Option<GroupTiming> {
        None
    }

    /// Whether each notification has all alerts of a group.
    fn takes_whole_groups(&self) -> bool {
        false
    }
}

/// A receiver that can be sent to.
pub struct OpenedSink {
    /// What to send.
    pub sink: Box<dyn AlertSink>,
    /// How it goes there.
    pub way: SinkWay,
    /// Takes its secrets out of messages.
    pub redactor: Redactor,
}

/// How requests go to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkWay {
    /// Over HTTP or HTTPS.
    Http {
        /// The authorities that are trusted; `None`: those of this host.
        ca: Option<PathBuf>,
    },
    /// As syslog.
    Syslog(syslog::SyslogServer),
    /// By submission to a mail server.
    Mail(email::MailServer),
    /// As SNMP notifications.
    Snmp(snmp::SnmpManager),
    /// To a program.
    Exec(exec::ExecCommand),
}

impl SinkConfig {
    /// What the kind is called in the configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            SinkConfig::Webhook(_) => "webhook",
            SinkConfig::Alertmanager(_) => "alertmanager",
            SinkConfig::Pagerduty(_) => "pagerduty",
            SinkConfig::Slack(_) => "slack",
            SinkConfig::Syslog(_) => "syslog",
            SinkConfig::Email(_) => "email",
            SinkConfig::Snmp(_) => "snmp",
            SinkConfig::Exec(_) => "exec",
        }
    }

    fn settings(&self) -> &dyn SinkSettings {
        match self {
            SinkConfig::Webhook(settings) => settings,
            SinkConfig::Alertmanager(settings) => settings,
            SinkConfig::Pagerduty(settings) => settings,
            SinkConfig::Slack(settings) => settings,
            SinkConfig::Syslog(settings) => settings,
            SinkConfig::Email(settings) => settings,
            SinkConfig::Snmp(settings) => settings,
            SinkConfig::Exec(settings) => settings,
        }
    }

    /// Whether the settings can be; no file is read.
    ///
    /// # Errors
    /// The first that cannot, with its key within the table of the receiver.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.settings().check()
    }

    /// When a receiver of this kind is told of a group, where that is not for the routes to say.
    pub fn timing(&self) -> Option<GroupTiming> {
        self.settings().timing()
    }

    /// Whether a receiver of this kind is told of all alerts of a group each time; others are not
    /// told of what has not changed.
    pub fn takes_whole_groups(&self) -> bool {
        self.settings().takes_whole_groups()
    }

    /// Reads the secrets.
    ///
    /// # Errors
    /// One that cannot be had, with its key within the table of the receiver.
    pub fn open(&self) -> Result<OpenedSink, SettingsError> {
        self.settings().open()
    }
}

/// What turns notifications into requests of one receiver.
pub trait AlertSink: Send {
    /// What to send. `now_ns`: ns since 1970 UTC, for formats that say when they were sent.
    ///
    /// # Errors
    /// It can never be sent.
    fn render(&self, notification: &Notification, now_ns: i64) -> Result<SinkRequest, SinkError>;

    /// What follows from an answer.
    fn classify(&self, reply: &SinkReply) -> Delivery {
        by_usual_rules(reply)
    }
}

/// What is sent, to where the settings of the receiver say.
#[derive(Clone, PartialEq, Eq)]
pub enum SinkRequest {
    /// Nothing: this kind of receiver is not told of such a thing.
    Nothing,
    /// POST requests, one after the other.
    Http(Vec<HttpPost>),
    /// Messages of RFC 5424, without a frame.
    Syslog(Vec<Vec<u8>>),
    /// A message for all recipients.
    Mail(email::MailText),
    /// Notifications of SNMP.
    Snmp(Vec<snmp::SnmpTrap>),
    /// The standard inputs of a program, which is run once for each.
    Exec(Vec<Vec<u8>>),
}

/// A POST request.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpPost {
    /// Where to: `http` or `https`.
    pub url: String,
    /// Headers besides those that every request has.
    pub headers: Vec<(&'static str, String)>,
    /// What is sent: JSON.
    pub body: Vec<u8>,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkReply {
    /// Nothing does, in this protocol.
    Sent,
    /// An answer over HTTP.
    Http {
        /// 100 to 599.
        status: u16,
        /// When to come back, if it says so.
        retry_after: Option<Duration>,
        /// The begin of what it says.
        text: String,
    },
    /// A reply of a mail server.
    Smtp {
        /// 200 to 599.
        code: u16,
        /// What it says.
        text: String,
    },
    /// The end of a program.
    Exit {
        /// Its status.
        code: i32,
        /// The begin of what it says on its standard error.
        text: String,
    },
}

/// What follows from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The receiver has it.
    Done,
    /// It may take it later.
    Retry {
        /// When, if it says so.
        after: Option<Duration>,
        /// What is wrong.
        why: String,
    },
    /// It never takes it.
    GiveUp(String),
}

/// Why a notification can never be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be written as {format}: {why}")]
pub struct SinkError {
    /// As what.
    pub format: &'static str,
    /// Why not.
    pub why: String,
}

/// What follows from an answer:
///
/// - HTTP: 2xx is done; 408, 425, 429 and 5xx may be taken later, and what else refuses is final.
/// - Mail: 2xx is done, 5xx is final but where it is about who sends (530, 534, 535, 538), which
///   can be mended; what else refuses may be taken later.
/// - A program: 0 is done, 65 (EX_DATAERR of sysexits.h) is final, other ends are not.
pub fn by_usual_rules(reply: &SinkReply) -> Delivery {
    match reply {
        SinkReply::Sent => Delivery::Done,
        SinkReply::Http { status: 200..300, .. } => Delivery::Done,
        SinkReply::Http { status, retry_after, text } => {
            let why = format!("HTTP status {status}: {text}");
            match status {
                408 | 425 | 429 | 500.. => Delivery::Retry { after: *retry_after, why },
                _ => Delivery::GiveUp(why),
            }
        }
        SinkReply::Smtp { code: 200..300, .. } | SinkReply::Exit { code: 0, .. } => Delivery::Done,
        SinkReply::Smtp { code, text } => {
            let why = format!("SMTP reply {code}: {text}");
            match code {
                530 | 534 | 535 | 538 => Delivery::Retry { after: None, why },
                500.. => Delivery::GiveUp(why),
                _ => Delivery::Retry { after: None, why },
            }
        }
        SinkReply::Exit { code, text } => {
            let why = format!("exit status {code}: {text}");
            match code {
                65 => Delivery::GiveUp(why),
                _ => Delivery::Retry { after: None, why },
            }
        }
    }
}

/// The address of a receiver: given, or in a file where it is a secret.
fn url_of(url: Option<&String>, file: Option<&SecretFile>) -> Result<SecretText, SettingsError> {
    match (url, file) {
        (Some(url), None) if is_link(url) => Ok(SecretText::new(url)),
        (Some(_), None) => Err(SettingsError::new("url", "give an address of http or https")),
        (None, Some(file)) => {
            let url = secret("url_file", file)?;
            if is_link(url.expose()) {
                return Ok(url);
            }
            let why = format!("{} holds no address of http or https", file.path().display());
            Err(SettingsError::new("url_file", why))
        }
        _ => Err(SettingsError::new("url", "give either `url` or `url_file`")),
    }
}

/// The same without reading the file.
fn check_url(url: Option<&String>, file: Option<&SecretFile>) -> Result<(), SettingsError> {
    if file.is_some() && url.is_none() { Ok(()) } else { url_of(url, file).map(drop) }
}

fn secret(key: &str, file: &SecretFile) -> Result<SecretText, SettingsError> {
    file.read().map_err(|error| SettingsError::new(key, error))
}

fn json(format: &'static str, value: &impl serde::Serialize) -> Result<Vec<u8>, SinkError> {
    serde_json::to_vec(value).map_err(|e| SinkError { format, why: e.to_string() })
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_cannot_do_now_is_tried_again_and_what_it_refuses_is_not() {
        let after = Some(Duration::from_secs(7));
        let of = |status| {
            by_usual_rules(&SinkReply::Http { status, retry_after: after, text: "why".into() })
        };
        for status in [200, 202, 204] {
            assert_eq!(of(status), Delivery::Done);
        }
        for status in [408, 425, 429, 500, 503] {
            let why = format!("HTTP status {status}: why");
            assert_eq!(of(status), Delivery::Retry { after, why });
        }
        for status in [301, 400, 401, 403, 404, 410, 413] {
            assert_eq!(of(status), Delivery::GiveUp(format!("HTTP status {status}: why")));
        }
    }
    #[test]
    fn a_mail_server_and_a_program_say_what_is_final() {
        let smtp = |code| by_usual_rules(&SinkReply::Smtp { code, text: "why".into() });
        let exit = |code| by_usual_rules(&SinkReply::Exit { code, text: "why".into() });
        assert_eq!((smtp(250), exit(0)), (Delivery::Done, Delivery::Done));
        for code in [421, 450, 530, 535] {
            let why = format!("SMTP reply {code}: why");
            assert_eq!(smtp(code), Delivery::Retry { after: None, why });
        }
        assert_eq!(smtp(550), Delivery::GiveUp("SMTP reply 550: why".into()));
        for code in [1, 75, 127] {
            let why = format!("exit status {code}: why");
            assert_eq!(exit(code), Delivery::Retry { after: None, why });
        }
        assert_eq!(exit(65), Delivery::GiveUp("exit status 65: why".into()));
    }
}
