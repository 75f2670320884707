//! Settings of an exporter: a table `[export.NAME]`.

use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::choice;
use sonde_results::units::SECOND;
use sonde_run::error::SettingsError;

use super::otlp::OtlpHistograms;
use crate::alert::model::is_link;
use crate::alert::secret::{Redactor, SecretFile, SecretText};
use crate::alert::sink::address::ServerAddress;

choice! {
    /// What is exported, and in which format.
    pub enum ExportKind {
        /// Counters and histograms by OTLP over HTTP, in Protocol Buffers
        Otlp = "otlp",
        /// Interval records as lines of InfluxDB's line protocol
        Influx = "influx",
        /// The series of `/metrics` by Prometheus' remote write
        RemoteWrite = "remote_write",
    }
}

/// An exporter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportSettings {
    /// What is exported, and in which format.
    pub kind: ExportKind,
    /// Where it goes, the whole path included: an address of `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `influx`: `HOST:PORT` of UDP instead of `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<String>,
    /// Who sends, where the server asks for a name and a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A file that holds the password of `user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<SecretFile>,
    /// A file that holds a token: sent as `Bearer`, by `influx` as `Token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<SecretFile>,
    /// A file of the authorities that are trusted, in PEM; absent: those of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// It is sent so often, 1 s to 1 h.
    #[serde(default = "every", with = "sonde_run::duration")]
    #[schemars(with = "String")]
    pub every: i64,
    /// What waits while the receiver is away, millions of octets, 1 to 1000; the oldest goes first.
    #[serde(default = "queue_megabytes")]
    pub queue_megabytes: usize,
    /// `otlp`: which buckets delays have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histograms: Option<OtlpHistograms>,
}

/// Where payloads go, with the secrets.
pub(crate) struct OpenedExport {
    /// The way.
    pub to: ExportWay,
    /// Takes secrets out of messages.
    pub redactor: Redactor,
}

/// How payloads go to a receiver.
pub(crate) enum ExportWay {
    /// By POST.
    Http {
        /// Where to.
        url: String,
        /// The header `Authorization`.
        authorization: Option<SecretText>,
        /// The authorities that are trusted; `None`: those of this host.
        ca: Option<PathBuf>,
    },
    /// In datagrams.
    Udp(ServerAddress),
}

impl ExportSettings {
    /// Whether they can be; no file is read.
    ///
    /// # Errors
    /// The first that cannot, with its key.
    pub fn check(&self) -> Result<(), SettingsError> {
        let wrong = |key, why: &str| Err(SettingsError::new(key, why));
        match (&self.url, &self.udp) {
            (None, None) if self.kind == ExportKind::Influx => {
                return wrong("url", "give either `url` or `udp`");
            }
            (None, None) => return wrong("url", "it is missing; give an address of http or https"),
            (Some(_), Some(_)) => return wrong("udp", "give either it or `url`"),
            (Some(url), None) if !is_link(url) => {
                return wrong("url", "give an address of http or https");
            }
            (None, Some(_)) if self.kind != ExportKind::Influx => {
                return wrong("udp", "it is for `kind = \"influx\"`; give `url`");
            }
            (None, Some(udp)) => drop(ServerAddress::parse("udp", udp, INFLUX_UDP)?),
            (Some(_), None) => {}
        }
        if self.udp.is_some() {
            let useless = [
                ("user", self.user.is_some()),
                ("password_file", self.password_file.is_some()),
                ("token_file", self.token_file.is_some()),
                ("ca", self.ca.is_some()),
            ];
            if let Some((key, _)) = useless.iter().find(|(_, given)| *given) {
                return wrong(key, "it has no effect over UDP; leave it out");
            }
        }
        if self.user.is_some() != self.password_file.is_some() {
            return wrong("user", "give both `user` and `password_file`");
        }
        if self.user.as_ref().is_some_and(|user| user.contains(':')) {
            return wrong("user", "a colon ends the name (RFC 7617); leave it out");
        }
        if self.user.is_some() && self.token_file.is_some() {
            return wrong("token_file", "give either it or `user`");
        }
        if !(SECOND..=3_600 * SECOND).contains(&self.every) {
            return wrong("every", "give \"1s\" to \"1h\"");
        }
        if !(1..=1_000).contains(&self.queue_megabytes) {
            return wrong("queue_megabytes", "give 1 to 1000");
        }
        if self.histograms.is_some() && self.kind != ExportKind::Otlp {
            return wrong("histograms", "it is for `kind = \"otlp\"`; leave it out");
        }
        Ok(())
    }

    /// Reads the secrets.
    ///
    /// # Errors
    /// One that cannot be had, with its key.
    pub(crate) fn open(&self) -> Result<OpenedExport, SettingsError> {
        self.check()?;
        if let Some(udp) = &self.udp {
            let to = ExportWay::Udp(ServerAddress::parse("udp", udp, INFLUX_UDP)?);
            return Ok(OpenedExport { to, redactor: Redactor::default() });
        }
        let secret = |key, file: &Option<SecretFile>| {
            let read =
                file.as_ref().map(|file| file.read().map_err(|e| SettingsError::new(key, e)));
            read.transpose()
        };
        let password = secret("password_file", &self.password_file)?;
        let token = secret("token_file", &self.token_file)?;
        let basic = self.user.as_ref().zip(password.as_ref()).map(|(user, password)| {
            SecretText::new(&BASE64_STANDARD.encode(format!("{user}:{}", password.expose())))
        });
        let scheme = if self.kind == ExportKind::Influx { "Token" } else { "Bearer" };
        let authorization = match (&basic, &token) {
            (Some(basic), _) => Some(SecretText::new(&format!("Basic {}", basic.expose()))),
            (None, Some(token)) => Some(SecretText::new(&format!("{scheme} {}", token.expose()))),
            (None, None) => None,
        };
        let redactor = Redactor::of(password.iter().chain(&token).chain(&basic));
        let (url, ca) = (self.url.clone().unwrap_or_default(), self.ca.clone());
        Ok(OpenedExport { to: ExportWay::Http { url, authorization, ca }, redactor })
    }
}

fn every() -> i64 {
    10 * SECOND
}

fn queue_megabytes() -> usize {
    16
}

/// Port of InfluxDB's UDP service.
const INFLUX_UDP: u16 = 8_089;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> ExportSettings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_has_no_effect_or_is_missing_is_named_by_its_key() {
        let http = "url = 'http://r.example/v1/metrics'\n";
        let good = [
            format!("kind = 'otlp'\n{http}histograms = 'explicit'\n"),
            format!("kind = 'remote_write'\n{http}token_file = '/t'\nevery = '1s'\n"),
            format!("kind = 'influx'\n{http}user = 'u'\npassword_file = '/p'\n"),
            "kind = 'influx'\nudp = 'r.example'\n".to_owned(),
        ];
        good.iter().for_each(|text| assert_eq!(of(text).check(), Ok(()), "{text}"));
        for (text, key) in [
            ("kind = 'otlp'".to_owned(), "url"),
            ("kind = 'influx'".to_owned(), "url"),
            ("kind = 'otlp'\nurl = 'r.example:4318'".to_owned(), "url"),
            ("kind = 'otlp'\nudp = 'r.example:1'".to_owned(), "udp"),
            (format!("kind = 'influx'\n{http}udp = 'r.example:1'"), "udp"),
            ("kind = 'influx'\nudp = 'r.example:x'".to_owned(), "udp"),
            ("kind = 'influx'\nudp = 'r.example'\nca = '/c'".to_owned(), "ca"),
            (format!("kind = 'otlp'\n{http}user = 'u'"), "user"),
            (format!("kind = 'otlp'\n{http}every = '10ms'"), "every"),
            (format!("kind = 'otlp'\n{http}queue_megabytes = 0"), "queue_megabytes"),
            (format!("kind = 'influx'\n{http}histograms = 'explicit'"), "histograms"),
        ] {
            let error = of(&text).check().unwrap_err();
            assert_eq!(error.key.as_deref(), Some(key), "{error}");
            assert!(error.message.starts_with(&format!("{key}: ")), "{error}");
        }
    }

    #[test]
    fn a_secret_that_is_not_there_is_named_by_its_key() {
        let settings =
            of("kind = 'otlp'\nurl = 'http://r.example/'\ntoken_file = '/nonexistent/token'");
        let error = settings.open().err().unwrap();
        assert_eq!(error.key.as_deref(), Some("token_file"));
    }
}
