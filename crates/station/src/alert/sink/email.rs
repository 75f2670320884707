//! E-mail (RFC 5322) to a server that takes mail from its own users (RFC 6409, RFC 8314).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_run::error::SettingsError;

use super::address::ServerAddress;
use super::{AlertSink, OpenedSink, SinkError, SinkRequest, SinkSettings, SinkWay, secret, text};
use crate::alert::notification::Notification;
use crate::alert::secret::{Redactor, SecretFile, SecretText};

/// The settings of e-mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmailSettings {
    /// Who is told: 1 to 50 addresses, as `noc@example.org` or `NOC <noc@example.org>`.
    pub to: Vec<String>,
    /// Who tells: such an address.
    pub from: String,
    /// The server: `HOST` or `HOST:PORT`; port 587, with `tls` 465, with `none` 25.
    pub server: String,
    /// How the connection is secured.
    pub security: EmailSecurity,
    /// The name that the server knows the station by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A file that holds the password of `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<SecretFile>,
    /// A file of the authorities that are trusted, in PEM; absent: those of this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// How the connection to a mail server is secured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmailSecurity {
    /// It begins in the clear, and goes on with TLS or not at all.
    #[default]
    Starttls,
    /// TLS from its begin.
    Tls,
    /// Not at all: only to this host itself.
    None,
}

/// What a way to a mail server is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailServer {
    /// Where it is.
    pub address: ServerAddress,
    /// How the connection is secured.
    pub security: EmailSecurity,
    /// The authorities that are trusted; `None`: those of this host.
    pub ca: Option<PathBuf>,
    /// The station's name there, and its password.
    pub user: Option<(String, SecretText)>,
    /// Who tells.
    pub from: lettre::Address,
    /// Who is told.
    pub to: Vec<lettre::Address>,
}

/// A message as it goes to the server.
#[derive(Clone, PartialEq, Eq)]
pub struct MailText {
    /// Its Message-ID: the same message sent again has the same.
    pub id: String,
    /// Header and body.
    pub octets: Vec<u8>,
}

impl EmailSettings {
    fn address(&self) -> Result<ServerAddress, SettingsError> {
        let port = match self.security {
            EmailSecurity::Starttls => 587,
            EmailSecurity::Tls => 465,
            EmailSecurity::None => 25,
        };
        ServerAddress::parse("server", &self.server, port)
    }

    fn mailboxes(&self) -> Result<(Mailbox, Vec<Mailbox>), SettingsError> {
        let mailbox = |key: &str, text: &str| -> Result<Mailbox, SettingsError> {
            let parsed = text.parse::<Mailbox>().ok().filter(|mailbox| {
                mailbox.email.to_string().is_ascii() && !text.chars().any(char::is_control)
            });
            parsed.ok_or_else(|| {
                let why = format!("'{text}' is no address in ASCII; give one as noc@example.org");
                SettingsError::new(key, why)
            })
        };
        if !(1..=RECIPIENTS_MOST).contains(&self.to.len()) {
            let why = format!("give 1 to {RECIPIENTS_MOST} addresses");
            return Err(SettingsError::new("to", why));
        }
        let to = self.to.iter().map(|text| mailbox("to", text)).collect::<Result<_, _>>()?;
        Ok((mailbox("from", &self.from)?, to))
    }
}

impl SinkSettings for EmailSettings {
    fn check(&self) -> Result<(), SettingsError> {
        self.mailboxes()?;
        let address = self.address()?;
        if self.user.is_some() != self.password_file.is_some() {
            return Err(SettingsError::new("user", "give both `user` and `password_file`"));
        }
        if self.security != EmailSecurity::None {
            return Ok(());
        }
        if !address.is_loopback() {
            let why = "only a server on this host may be reached without TLS; leave it out, or \
                       give \"tls\"";
            return Err(SettingsError::new("security", why));
        }
        match &self.user {
            Some(_) => Err(SettingsError::new("user", "no password is sent without TLS")),
            None => Ok(()),
        }
    }

    fn open(&self) -> Result<OpenedSink, SettingsError> {
        let (from, to) = self.mailboxes()?;
        let password =
            self.password_file.as_ref().map(|file| secret("password_file", file)).transpose()?;
        let redactor = Redactor::of(&password);
        let unique: BTreeSet<_> = to.iter().map(|mailbox| mailbox.email.clone()).collect();
        let server = MailServer {
            address: self.address()?,
            security: self.security,
            ca: self.ca.clone(),
            user: self.user.clone().zip(password),
            from: from.email.clone(),
            to: unique.into_iter().collect(),
        };
        Ok(OpenedSink { sink: Box::new(Email { from, to }), way: SinkWay::Mail(server), redactor })
    }
}

/// People, by e-mail.
pub struct Email {
    /// Who tells.
    pub from: Mailbox,
    /// Who is told.
    pub to: Vec<Mailbox>,
}

impl AlertSink for Email {
    fn render(&self, notification: &Notification, _now_ns: i64) -> Result<SinkRequest, SinkError> {
        let domain = self.from.email.domain();
        let id = format!("<{}@{domain}>", notification.id());
        let thread = format!("<{}@{domain}>", notification.group_id());
        let at = Duration::from_nanos(u64::try_from(notification.at_ns).unwrap_or(0));
        let own = |name, value: &str| HeaderValue::new(name, value.to_owned());
        let mut message = Message::builder()
            .from(self.from.clone())
            .date(UNIX_EPOCH + at)
            .message_id(Some(id.clone()))
            // All of a group are one thread.
            .in_reply_to(thread.clone())
            .references(thread)
            // RFC 3834: nobody answers that he is on holiday.
            .raw_header(own(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated"))
            .subject(text::title(notification, SUBJECT_MOST))
            .header(ContentType::TEXT_PLAIN);
        for mailbox in &self.to {
            message = message.to(mailbox.clone());
        }
        let message = message.body(text::body(notification, BODY_MOST) + "\n");
        let message = message.map_err(|e| SinkError { format: "an e-mail", why: e.to_string() })?;
        Ok(SinkRequest::Mail(MailText { id, octets: message.formatted() }))
    }
}

/// Recipients, at most: for more there are mailing lists.
const RECIPIENTS_MOST: usize = 50;
/// Of a subject, bytes.
const SUBJECT_MOST: usize = 200;
/// Of a body, bytes.
const BODY_MOST: usize = 131_072;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::sink::testing;
    use proptest::prelude::*;

    fn mail(notification: &Notification) -> String {
        let mailbox = |text: &str| text.parse::<Mailbox>().unwrap();
        let from = mailbox("Sonde <sonde@example.org>");
        let sink =
            Email { from, to: vec![mailbox("noc@example.org"), mailbox("Ann <a@b.example>")] };
        match sink.render(notification, 0).unwrap() {
            SinkRequest::Mail(mail) => String::from_utf8(mail.octets).unwrap(),
            _ => panic!("no mail"),
        }
    }

    #[test]
    fn a_mail_says_what_since_when_and_belongs_to_its_thread() {
        let firing = testing::firing();
        let group = firing.group_id();
        let wanted = format!(
            "From: Sonde <sonde@example.org>\r\n\
            Date: Sun, 29 Nov 2026 03:14:51 +0000\r\n\
            Message-ID: <{group}-18ec611f1a0fae00@example.org>\r\n\
            In-Reply-To: <{group}@example.org>\r\n\
            References: <{group}@example.org>\r\n\
            Auto-Submitted: auto-generated\r\n\
            Subject: [FIRING:1] critical: ber to muc loses packets\r\n\
            Content-Type: text/plain; charset=utf-8\r\n\
            To: noc@example.org, Ann <a@b.example>\r\n\
            Content-Transfer-Encoding: 7bit\r\n\
            \r\n\
            critical: ber to muc loses packets (since 2026-11-29 03:11:31 UTC)\r\n\
            \x20 loss 2.1 % against 0.1 %, n =3D 600, forward\r\n\
            \x20 site=3Dber, target=3D192.0.2.1\r\n\
            \x20 https://sonde.example/events/1\r\n\
            Station: ber, https://sonde.example\r\n"
        );
        let wanted = wanted.replace("=3D", "=");
        let wanted = wanted.replace("18ec611f1a0fae00", &format!("{:x}", firing.at_ns));
        assert_eq!(mail(&firing), wanted);
        let resolved = mail(&testing::resolved());
        assert!(
            resolved.contains("Subject: [RESOLVED:1] ") && resolved.contains("lasted 3 m 05 s")
        );
    }

    #[test]
    fn settings_name_what_is_wrong() {
        let key = |text: &str| {
            let settings: EmailSettings = toml::from_str(text).unwrap();
            settings.check().err().map(|error| error.key.unwrap()).unwrap_or_default()
        };
        let with = |more: &str| {
            key(&format!("to = ['noc@example.org']\nfrom = 'Sonde <s@example.org>'\n{more}"))
        };
        assert_eq!(with("server = 'mail.example'"), "");
        assert_eq!(with("server = 'localhost'\nsecurity = 'none'"), "");
        assert_eq!(with(""), "server");
        assert_eq!(with("server = 'mail.example'\nsecurity = 'none'"), "security");
        assert_eq!(with("server = 'mail.example'\nuser = 'sonde'"), "user");
        let open = "server = '::1'\nsecurity = 'none'\nuser = 'a'\npassword_file = '/p'";
        assert_eq!(with(open), "user");
        assert_eq!(key("from = 'a@b.example'\nserver = 'a'"), "to");
        assert_eq!(key("to = ['a@b.example']\nserver = 'a'"), "from");
        assert_eq!(key("to = ['a b']\nfrom = 'a@b.example'\nserver = 'a'"), "to");
        assert_eq!(key("to = [\"a@b.example\\nBcc: c@d.example\"]\nserver = 'a'"), "to");
    }

    proptest! {
        #[test]
        fn whatever_is_told_is_ascii_in_short_lines_with_one_subject(
            n in testing::any_notification()
        ) {
            let text = mail(&n);
            prop_assert!(text.is_ascii());
            // RFC 5322, section 2.1.1.
            prop_assert!(text.split("\r\n").all(|line| line.len() <= 998));
            prop_assert!(!text.replace("\r\n", "").contains(['\r', '\n']));
            let (header, _) = text.split_once("\r\n\r\n").unwrap();
            let names = header.split("\r\n").filter(|line| !line.starts_with([' ', '\t']));
            prop_assert_eq!(names.count(), 10);
        }
    }
}
