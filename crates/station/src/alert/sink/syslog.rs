//! Syslog (RFC 5424) over UDP (RFC 5426), TCP (RFC 6587, section 3.4.1) or TLS (RFC 5425).
//!
//! Each alert is a message of its own. Syslog answers nothing: over UDP a message that is lost is
//! lost for good. Over TCP and TLS one is taken when the server has closed the connection after it.

use std::fmt::Write as _;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::civil_time;
use sonde_results::units::format_elapsed;
use sonde_run::error::SettingsError;

use super::address::ServerAddress;
use super::{AlertSink, OpenedSink, SinkError, SinkRequest, SinkSettings, SinkWay, text};
use crate::alert::model::{AlertSeverity, clean, cut};
use crate::alert::notification::{Notification, NotifiedAlert};
use crate::alert::secret::{Redactor, SecretFile};

/// A syslog server's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SyslogSettings {
    /// Where to: `HOST` or `HOST:PORT`; port 514, with TLS 6514.
    pub to: String,
    /// How messages go there.
    pub transport: SyslogTransport,
    /// The facility.
    pub facility: SyslogFacility,
    /// The private enterprise number under which labels are sent as structured data; absent: they
    /// stand in the text only. 32473 is for examples (RFC 5612).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enterprise: Option<u32>,
    /// With TLS: a file of the authorities that are trusted, in PEM; absent: those of this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// With TLS: a file of the station's own certificate, in PEM, where the server asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// A file of the private key of `certificate`, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<SecretFile>,
}

/// How syslog messages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyslogTransport {
    /// A datagram each.
    #[default]
    Udp,
    /// Over TCP, each after its count of octets.
    Tcp,
    /// The same over TLS.
    Tls,
}

/// What a message is from (RFC 5424, section 6.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // Their names are those of the standard.
pub enum SyslogFacility {
    User = 1,
    #[default]
    Daemon = 3,
    Local0 = 16,
    Local1 = 17,
    Local2 = 18,
    Local3 = 19,
    Local4 = 20,
    Local5 = 21,
    Local6 = 22,
    Local7 = 23,
}

/// What a way to a syslog server is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyslogServer {
    /// Where it is.
    pub address: ServerAddress,
    /// How messages go there.
    pub transport: SyslogTransport,
    /// The authorities that are trusted; `None`: those of this host.
    pub ca: Option<PathBuf>,
    /// The station's certificate and its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl SyslogSettings {
    fn address(&self) -> Result<ServerAddress, SettingsError> {
        let port = if self.transport == SyslogTransport::Tls { 6514 } else { 514 };
        ServerAddress::parse("to", &self.to, port)
    }
}

impl SinkSettings for SyslogSettings {
    fn check(&self) -> Result<(), SettingsError> {
        self.address()?;
        if self.enterprise == Some(0) {
            return Err(SettingsError::new("enterprise", "0 is nobody's; give your own number"));
        }
        if self.certificate.is_some() != self.key_file.is_some() {
            return Err(SettingsError::new("certificate", "give both it and `key_file`"));
        }
        let secured = [("ca", self.ca.is_some()), ("certificate", self.certificate.is_some())];
        let unused = secured.into_iter().find(|(_, given)| *given);
        match (self.transport, unused) {
            (SyslogTransport::Udp | SyslogTransport::Tcp, Some((key, _))) => {
                let why = "only TLS uses it; write `transport = \"tls\"`, or leave it out";
                Err(SettingsError::new(key, why))
            }
            _ => Ok(()),
        }
    }

    fn open(&self) -> Result<OpenedSink, SettingsError> {
        // The key is read where it is used; here only whether it is ours alone.
        let owned = self.key_file.as_ref().map(SecretFile::read).transpose();
        owned.map_err(|error| SettingsError::new("key_file", error))?;
        let key = self.key_file.as_ref().map(|file| file.path().to_owned());
        let server = SyslogServer {
            address: self.address()?,
            transport: self.transport,
            ca: self.ca.clone(),
            identity: self.certificate.clone().zip(key),
        };
        let sink = Box::new(Syslog {
            facility: self.facility,
            enterprise: self.enterprise,
            octets_most: match self.transport {
                SyslogTransport::Udp => DATAGRAM_MOST,
                SyslogTransport::Tcp | SyslogTransport::Tls => FRAME_MOST,
            },
        });
        Ok(OpenedSink { sink, way: SinkWay::Syslog(server), redactor: Redactor::default() })
    }
}

/// A syslog server.
pub struct Syslog {
    /// What messages are from.
    pub facility: SyslogFacility,
    /// Of structured data.
    pub enterprise: Option<u32>,
    /// Of a message, at most.
    pub octets_most: usize,
}

impl AlertSink for Syslog {
    fn render(&self, notification: &Notification, _now_ns: i64) -> Result<SinkRequest, SinkError> {
        let mut messages = Vec::new();
        for told in &notification.alerts {
            messages.extend(told.as_begun().map(|begun| self.message(notification, &begun)));
            messages.push(self.message(notification, told));
        }
        Ok(SinkRequest::Syslog(messages))
    }
}

impl Syslog {
    fn message(&self, notification: &Notification, told: &NotifiedAlert) -> Vec<u8> {
        let alert = &told.alert;
        let priority = self.facility as u8 * 8 + severity(told);
        let stamp = civil_time::rfc3339(notification.at_ns);
        let host = header_field(&notification.station, 255);
        let state = text::state_word(told);
        let mut message = format!("<{priority}>1 {stamp} {host} sonde - {state} ");
        match self.enterprise {
            None => message.push('-'),
            Some(enterprise) => self.structured(&mut message, enterprise, told),
        }
        let mut said = format!("{state} {}: {}", alert.severity(), alert.summary());
        if !alert.evidence.is_empty() {
            let _ = write!(said, "; {}", alert.evidence.trim_end());
        }
        if !alert.lasts() {
            let lasted = format_elapsed(alert.duration_ns(notification.at_ns));
            let _ = write!(said, "; lasted {lasted}");
        }
        if let Some(by) = &told.acknowledged {
            let _ = write!(said, "; {} takes care of it", by.author);
        }
        let labels: Vec<String> =
            alert.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = write!(said, "; {}", labels.join(" "));
        if let Some(link) = &alert.link {
            let _ = write!(said, "; {link}");
        }
        let said = clean(&said, false);
        // Text that is more than ASCII begins with a mark (RFC 5424, section 6.4).
        message.push_str(if said.is_ascii() { " " } else { " \u{feff}" });
        let room = self.octets_most.saturating_sub(message.len());
        message.push_str(&cut(&said, room));
        message.into_bytes()
    }

    /// RFC 5424, section 6.3. What finds no room is left out: the text says the most important.
    fn structured(&self, message: &mut String, enterprise: u32, told: &NotifiedAlert) {
        let alert = &told.alert;
        let begin = civil_time::rfc3339(alert.starts_ns);
        let end = alert.ends_ns.map(civil_time::rfc3339);
        let own =
            [("fingerprint", Some(alert.fingerprint())), ("starts", Some(begin)), ("ends", end)];
        let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
        element(message, "sonde", enterprise, own, self.octets_most / 2);
        let labels = alert.labels.iter().map(|(name, value)| (name.as_str(), value.clone()));
        if !alert.labels.is_empty() {
            element(message, "labels", enterprise, labels, self.octets_most / 2);
        }
    }
}

fn element<'a>(
    message: &mut String,
    id: &str,
    enterprise: u32,
    parameters: impl Iterator<Item = (&'a str, String)>,
    most: usize,
) {
    let _ = write!(message, "[{id}@{enterprise}");
    for (name, value) in parameters {
        let mut escaped = String::with_capacity(value.len());
        for c in value.chars() {
            if matches!(c, '"' | '\\' | ']') {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        let parameter = format!(" {}=\"{escaped}\"", cut_name(name));
        if message.len() + parameter.len() < most {
            message.push_str(&parameter);
        }
    }
    message.push(']');
}

/// A name has up to 32 characters; those of labels are letters, digits and `_`.
fn cut_name(name: &str) -> &str {
    name.get(..32).unwrap_or(name)
}

/// Printable ASCII without spaces, or `-`.
fn header_field(text: &str, most: usize) -> String {
    let fits = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    let field: String = text.chars().map(fits).take(most).collect();
    if field.is_empty() { "-".into() } else { field }
}

/// RFC 5424, section 6.2.1: what ended is a notice.
fn severity(told: &NotifiedAlert) -> u8 {
    match (told.alert.lasts(), told.alert.severity()) {
        (false, _) => 5,
        (true, AlertSeverity::Critical) => 2,
        (true, AlertSeverity::Error) => 3,
        (true, AlertSeverity::Warning) => 4,
        (true, AlertSeverity::Info) => 6,
    }
}

/// What every server should take in a datagram (RFC 5426, section 3.2).
const DATAGRAM_MOST: usize = 2_048;
/// What servers take over TLS (RFC 5425, section 4.3.1).
const FRAME_MOST: usize = 8_192;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::sink::testing;
    use proptest::prelude::*;

    const SINK: Syslog =
        Syslog { facility: SyslogFacility::Local3, enterprise: Some(32_473), octets_most: 2_048 };

    fn messages(sink: &Syslog, notification: &Notification) -> Vec<String> {
        match sink.render(notification, 0).unwrap() {
            SinkRequest::Syslog(all) => {
                all.into_iter().map(|message| String::from_utf8(message).unwrap()).collect()
            }
            _ => panic!("no messages"),
        }
    }

    #[test]
    fn a_message_has_its_header_its_structured_data_and_a_text() {
        // Local3 and critical: 19 * 8 + 2.
        let wanted = "<154>1 2026-11-29T03:14:51.000Z ber sonde - FIRING \
            [sonde@32473 fingerprint=\"FP\" starts=\"2026-11-29T03:11:31.000Z\"]\
            [labels@32473 alertname=\"loss\" severity=\"critical\" site=\"ber\" \
            target=\"192.0.2.1\"] FIRING critical: ber to muc loses packets; loss 2.1 % against \
            0.1 %, n = 600, forward; alertname=loss severity=critical site=ber target=192.0.2.1; \
            https://sonde.example/events/1";
        let print = testing::firing().alerts[0].alert.fingerprint();
        assert_eq!(messages(&SINK, &testing::firing()), [wanted.replace("FP", &print)]);
        let plain = Syslog { enterprise: None, facility: SyslogFacility::Daemon, ..SINK };
        let resolved = messages(&plain, &testing::resolved()).remove(0);
        let begin = "<29>1 2026-11-29T03:14:51.000Z ber sonde - RESOLVED - RESOLVED critical: ber";
        assert!(resolved.starts_with(begin), "{resolved}");
        assert!(resolved.contains("; lasted 3 m 05 s; "), "{resolved}");
    }

    #[test]
    fn what_began_and_ended_at_once_fires_first() {
        let all = messages(&SINK, &testing::at_once());
        let states: Vec<&str> = all.iter().map(|m| m.split(' ').nth(5).unwrap()).collect();
        assert_eq!(states, ["FIRING", "RESOLVED"]);
        assert!(all[1].contains("; lasted 3 m 05 s; ") && !all[0].contains("lasted"), "{all:?}");
    }

    #[test]
    fn values_are_escaped_and_text_beyond_ascii_is_marked() {
        let mut odd = testing::firing();
        let alert = &mut odd.alerts[0].alert;
        alert.labels.insert("site".into(), "a\"]\\ä".into());
        odd.station = "böse station".into();
        let message = messages(&SINK, &odd).remove(0);
        assert!(message.contains(" b_se_station sonde - FIRING ["), "{message}");
        assert!(message.contains(r#" site="a\"\]\\ä""#), "{message}");
        assert!(message.contains("] \u{feff}FIRING critical"), "{message}");
    }

    #[test]
    fn settings_name_what_is_wrong() {
        let key = |text: &str| {
            let settings: SyslogSettings = toml::from_str(text).unwrap();
            settings.check().err().map(|error| error.key.unwrap()).unwrap_or_default()
        };
        assert_eq!(key("to = 'log.example'\ntransport = 'tls'\nca = '/ca.pem'"), "");
        assert_eq!(key(""), "to");
        assert_eq!(key("to = 'a'\nca = '/ca.pem'"), "ca");
        assert_eq!(key("to = 'a'\ntransport = 'tls'\nkey_file = '/k'"), "certificate");
        assert_eq!(key("to = 'a'\nenterprise = 0"), "enterprise");
        let port = |transport| {
            let to = "log.example".into();
            SyslogSettings { to, transport, ..SyslogSettings::default() }.address().unwrap().port
        };
        assert_eq!((port(SyslogTransport::Tcp), port(SyslogTransport::Tls)), (514, 6514));
    }

    proptest! {
        #[test]
        fn whatever_is_told_is_lines_of_bounded_length(n in testing::any_notification()) {
            let all = messages(&SINK, &n);
            prop_assert_eq!(all.len(), n.alerts.len());
            for message in all {
                prop_assert!(message.len() <= 2_048, "{}", message.len());
                prop_assert!(!message.chars().any(char::is_control));
                prop_assert_eq!(message.splitn(7, ' ').count(), 7);
            }
        }
    }
}
