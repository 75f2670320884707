//! SNMP notifications, versions 2c and 3, of DISMAN-PING-MIB (RFC 4560): what every network
//! management system knows how to show.
//!
//! Each alert is a test of that MIB: `pingTestFailed` while it lasts, `pingTestCompleted` when it
//! has ended. The index is the station and the alert's fingerprint, so both name the same test. An
//! alert knows no round-trip times, for which the MIB has zeros. What it does know is text, in
//! `pingCtlDescr` at the end, where RFC 3416, section 4.2.6, allows for more objects.

pub mod ber;
pub mod usm;

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_run::error::SettingsError;

use self::ber::SnmpValue;
use self::usm::UsmUser;
use super::address::ServerAddress;
use super::{AlertSink, OpenedSink, SinkError, SinkRequest, SinkSettings, SinkWay, secret, text};
use crate::alert::model::{before, clean, cut};
use crate::alert::notification::{AlertNews, Notification, NotificationReason, NotifiedAlert};
use crate::alert::secret::{Redactor, SecretFile, SecretText};

/// The settings of a receiver of SNMP notifications.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SnmpSettings {
    /// Where to: `HOST` or `HOST:PORT`; port 162.
    pub to: String,
    /// A file that holds the community: version 2c.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub community_file: Option<SecretFile>,
    /// The name of a user: version 3, with HMAC-SHA-256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Of version 3: the station's engine ID, 5 to 32 octets in hexadecimal digits. The receiver
    /// has to know it, and no other engine may have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_id: Option<String>,
    /// A file that holds the passphrase by which `user` signs, 8 characters or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_file: Option<SecretFile>,
    /// A file that holds the passphrase by which `user` encrypts with AES-128; absent: nothing is
    /// encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priv_file: Option<SecretFile>,
}

/// What a way to a receiver is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnmpManager {
    /// Where it is.
    pub address: ServerAddress,
    /// Who sends.
    pub security: SnmpSecurity,
}

/// By what a receiver knows who sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnmpSecurity {
    /// Version 2c.
    Community(SecretText),
    /// Version 3.
    User(UsmUser),
}

/// A notification without what only its sending knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnmpTrap {
    /// Which notification.
    pub oid: Vec<u32>,
    /// Its objects.
    pub objects: Vec<(Vec<u32>, SnmpValue)>,
}

impl SnmpSettings {
    fn address(&self) -> Result<ServerAddress, SettingsError> {
        ServerAddress::parse("to", &self.to, 162)
    }

    fn engine(&self) -> Result<Vec<u8>, SettingsError> {
        let digits = self.engine_id.as_deref().unwrap_or_default();
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        let octet = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        let octets: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(octet).collect();
        // RFC 3411, SnmpEngineID.
        let fits = |octets: &Vec<u8>| {
            (5..=32).contains(&octets.len())
                && [0, 255].iter().all(|n| octets.iter().any(|o| o != n))
        };
        octets.filter(|octets| is_hex && fits(octets)).ok_or_else(|| {
            let why = "version 3 needs 5 to 32 octets in hexadecimal digits, as \"80007ed904\" and \
                       the name of the station in such digits";
            SettingsError::new("engine_id", why)
        })
    }
}

impl SinkSettings for SnmpSettings {
    fn check(&self) -> Result<(), SettingsError> {
        self.address()?;
        let user = match (&self.community_file, &self.user) {
            (Some(_), Some(_)) | (None, None) => {
                let why = "give either it (version 2c) or `user` (version 3)";
                return Err(SettingsError::new("community_file", why));
            }
            (Some(_), None) => {
                let of_users = [
                    ("engine_id", self.engine_id.is_some()),
                    ("auth_file", self.auth_file.is_some()),
                    ("priv_file", self.priv_file.is_some()),
                ];
                return match of_users.into_iter().find(|(_, given)| *given) {
                    Some((key, _)) => {
                        Err(SettingsError::new(key, "version 2c has no such thing; give `user`"))
                    }
                    None => Ok(()),
                };
            }
            (None, Some(user)) => user,
        };
        if !(1..=32).contains(&user.len()) {
            return Err(SettingsError::new("user", "give 1 to 32 octets"));
        }
        self.engine()?;
        match self.auth_file {
            Some(_) => Ok(()),
            None => Err(SettingsError::new("auth_file", "name the file of the user's passphrase")),
        }
    }

    fn open(&self) -> Result<OpenedSink, SettingsError> {
        let phrase = |key: &str, file: &SecretFile| -> Result<SecretText, SettingsError> {
            let phrase = secret(key, file)?;
            if phrase.expose().len() < usm::PHRASE_LEAST {
                let file = file.path().display();
                let why = format!(
                    "the passphrase in {file} has fewer than {} characters",
                    usm::PHRASE_LEAST
                );
                return Err(SettingsError::new(key, why));
            }
            Ok(phrase)
        };
        let wanted = || SettingsError::new("auth_file", "name the file of the user's passphrase");
        let (security, redactor) = match (&self.community_file, &self.user) {
            (Some(file), _) => {
                let community = secret("community_file", file)?;
                let redactor = Redactor::of([&community]);
                (SnmpSecurity::Community(community), redactor)
            }
            (None, user) => {
                let auth = phrase("auth_file", self.auth_file.as_ref().ok_or_else(wanted)?)?;
                let privacy =
                    self.priv_file.as_ref().map(|file| phrase("priv_file", file)).transpose()?;
                let redactor = Redactor::of([&auth].into_iter().chain(&privacy));
                let (name, engine) = (user.clone().unwrap_or_default(), self.engine()?);
                (SnmpSecurity::User(UsmUser { name, engine, auth, privacy }), redactor)
            }
        };
        let way = SinkWay::Snmp(SnmpManager { address: self.address()?, security });
        Ok(OpenedSink { sink: Box::new(Snmp), way, redactor })
    }
}

/// A receiver of SNMP notifications.
pub struct Snmp;

impl AlertSink for Snmp {
    fn render(&self, notification: &Notification, _now_ns: i64) -> Result<SinkRequest, SinkError> {
        // The MIB has no such state.
        if notification.reason == NotificationReason::Acknowledged {
            return Ok(SinkRequest::Nothing);
        }
        let mut traps = Vec::new();
        for told in &notification.alerts {
            // One that lasts is here again because somebody takes care of it, or as a repetition.
            if told.news == AlertNews::Lasts && told.acknowledged.is_some() {
                continue;
            }
            traps.extend(told.as_begun().map(|begun| trap(notification, &begun)));
            traps.push(trap(notification, told));
        }
        Ok(SinkRequest::Snmp(traps))
    }
}

fn trap(notification: &Notification, told: &NotifiedAlert) -> SnmpTrap {
    let alert = &told.alert;
    let station = match notification.station.as_str() {
        "" => "sonde",
        station => station,
    };
    let mut index = Vec::new();
    for part in [before(station, 32), &alert.fingerprint()] {
        index.push(part.len() as u32);
        index.extend(part.bytes().map(u32::from));
    }
    let (kind, address, resolved) = target(alert.labels.get("target").map_or("", String::as_str));
    let control = |column: u32| [&PING[..], &[1, 2, 1, column], &index].concat();
    let result = |column: u32| [&PING[..], &[1, 3, 1, column], &index].concat();
    let none = SnmpValue::Unsigned(0);
    let objects = vec![
        (control(3), SnmpValue::Integer(kind)),
        (control(4), SnmpValue::Octets(address.clone())),
        // The test goes on.
        (result(1), SnmpValue::Integer(1)),
        (result(2), SnmpValue::Integer(if resolved { kind } else { UNKNOWN })),
        (result(3), SnmpValue::Octets(if resolved { address } else { Vec::new() })),
        // The least, greatest and mean round trip, answers and probes, and the sum of squares.
        (result(4), none.clone()),
        (result(5), none.clone()),
        (result(6), none.clone()),
        (result(7), none.clone()),
        (result(8), none.clone()),
        (result(9), none),
        // DateAndTime of no answer.
        (result(10), SnmpValue::Octets(vec![0; 8])),
        (control(17), SnmpValue::Octets(described(told).into_bytes())),
    ];
    let which = if alert.lasts() { TEST_FAILED } else { TEST_COMPLETED };
    SnmpTrap { oid: [&PING[..], &[0, which]].concat(), objects }
}

/// `InetAddressType` and `InetAddress` (RFC 4001) of a target, and whether that is an address.
fn target(target: &str) -> (i32, Vec<u8>, bool) {
    match target.parse() {
        Ok(IpAddr::V4(address)) => (IPV4, address.octets().into(), true),
        Ok(IpAddr::V6(address)) => (IPV6, address.octets().into(), true),
        Err(_) if target.is_empty() => (UNKNOWN, Vec::new(), false),
        Err(_) => (DNS, before(target, 255).into(), false),
    }
}

/// What is known, in the octets of an `SnmpAdminString`.
fn described(told: &NotifiedAlert) -> String {
    let alert = &told.alert;
    let (state, severity) = (text::state_word(told), alert.severity());
    let hidden = ["alertname", "severity", "target"];
    let labels = alert.labels.iter().filter(|(name, _)| !hidden.contains(&name.as_str()));
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value}")).collect();
    let all = [alert.summary(), alert.evidence.trim_end(), &labels.join(" ")];
    let all: Vec<&str> = all.into_iter().filter(|text| !text.is_empty()).collect();
    cut(&clean(&format!("{state} {severity}: {}", all.join("; ")), false), 255)
}

/// DISMAN-PING-MIB.
const PING: [u32; 7] = [1, 3, 6, 1, 2, 1, 80];
const TEST_FAILED: u32 = 2;
const TEST_COMPLETED: u32 = 3;
const UNKNOWN: i32 = 0;
const IPV4: i32 = 1;
const IPV6: i32 = 2;
const DNS: i32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::sink::testing;
    use proptest::prelude::*;

    fn traps(notification: &Notification) -> Vec<SnmpTrap> {
        match Snmp.render(notification, 0).unwrap() {
            SinkRequest::Snmp(traps) => traps,
            _ => panic!("no notifications"),
        }
    }

    fn dotted(oid: &[u32]) -> String {
        oid.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
    }

    #[test]
    fn an_alert_is_a_test_that_fails_and_completes() {
        let firing = testing::firing();
        let failed = traps(&firing).remove(0);
        assert_eq!(dotted(&failed.oid), "1.3.6.1.2.1.80.0.2");
        let print = firing.alerts[0].alert.fingerprint();
        let index = print.bytes().map(|b| format!(".{b}")).collect::<String>();
        let index = format!("3.98.101.114.16{index}");
        let names: Vec<String> = failed.objects.iter().map(|(oid, _)| dotted(oid)).collect();
        let columns = [
            "2.1.3", "2.1.4", "3.1.1", "3.1.2", "3.1.3", "3.1.4", "3.1.5", "3.1.6", "3.1.7",
            "3.1.8", "3.1.9", "3.1.10", "2.1.17",
        ];
        let wanted = columns.map(|column| format!("1.3.6.1.2.1.80.1.{column}.{index}"));
        assert_eq!(names, wanted);
        let address = SnmpValue::Octets(vec![192, 0, 2, 1]);
        assert_eq!(
            (&failed.objects[0].1, &failed.objects[1].1),
            (&SnmpValue::Integer(1), &address)
        );
        assert_eq!(
            (&failed.objects[3].1, &failed.objects[4].1),
            (&SnmpValue::Integer(1), &address)
        );
        let text = "FIRING critical: ber to muc loses packets; loss 2.1 % against 0.1 %, n = 600, \
                    forward; site=ber";
        assert_eq!(failed.objects[12].1, SnmpValue::Octets(text.into()));
        let completed = traps(&testing::resolved()).remove(0);
        assert_eq!(dotted(&completed.oid), "1.3.6.1.2.1.80.0.3");
        assert_eq!(completed.objects[0].0, failed.objects[0].0);
    }

    #[test]
    fn what_began_and_ended_at_once_fails_first() {
        let oids = traps(&testing::at_once());
        let oids: Vec<String> = oids.iter().map(|trap| dotted(&trap.oid)).collect();
        assert_eq!(oids, ["1.3.6.1.2.1.80.0.2", "1.3.6.1.2.1.80.0.3"]);
    }

    #[test]
    fn a_target_is_an_address_a_name_or_unknown() {
        let v6 = "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets();
        assert_eq!(target("2001:db8::1"), (2, v6.into(), true));
        assert_eq!(target("a.example"), (16, b"a.example".into(), false));
        assert_eq!(target(""), (0, Vec::new(), false));
    }

    #[test]
    fn settings_name_what_is_wrong() {
        let key = |text: &str| {
            let settings: SnmpSettings = toml::from_str(text).unwrap();
            settings.check().err().map(|error| error.key.unwrap()).unwrap_or_default()
        };
        let with = |more: &str| key(&format!("to = 'nms.example'\n{more}"));
        assert_eq!(with("community_file = '/c'"), "");
        let user = "user = 'sonde'\nauth_file = '/a'";
        assert_eq!(with(&format!("{user}\nengine_id = '0x80007ed904626572'")), "");
        assert_eq!(key("community_file = '/c'"), "to");
        assert_eq!(with(""), "community_file");
        assert_eq!(with("user = 'a'\ncommunity_file = '/c'"), "community_file");
        assert_eq!(with("priv_file = '/p'\ncommunity_file = '/c'"), "priv_file");
        assert_eq!(with("user = 'a'\nengine_id = '80007ed904626572'"), "auth_file");
        for wrong in
            ["", "8000", "80007ed90", "80007ed90g", "0000000000", "+1+1+1+1+1", "ffffffffff"]
        {
            assert_eq!(with(&format!("{user}\nengine_id = '{wrong}'")), "engine_id", "{wrong}");
        }
    }

    #[test]
    fn a_short_passphrase_is_refused_and_not_said() {
        let folder = crate::alert::testing::Folder::new("snmp");
        let auth_file = Some(SecretFile(folder.secret("auth", "seven77")));
        let (user, engine_id) = (Some("sonde".into()), Some("80007ed904626572".into()));
        let settings =
            SnmpSettings { to: "a".into(), user, engine_id, auth_file, ..SnmpSettings::default() };
        let refused = settings.open().err().unwrap();
        assert_eq!(refused.key.as_deref(), Some("auth_file"));
        assert!(!refused.to_string().contains("seven77"), "{refused}");
    }

    proptest! {
        #[test]
        fn whatever_is_told_fits_the_mib(n in testing::any_notification(), station in any::<String>()) {
            let n = Notification { station, ..n };
            for trap in traps(&n) {
                for (oid, value) in &trap.objects {
                    // RFC 3416, section 4: up to 128 numbers.
                    prop_assert!(oid.len() <= 128);
                    if let SnmpValue::Octets(octets) = value {
                        prop_assert!(octets.len() <= 255);
                    }
                }
            }
        }
    }
}
