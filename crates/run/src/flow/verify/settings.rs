//! What is held against the truth, and how.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::choice;
use sonde_results::units::SECOND;
use sonde_wire::prefix::Prefix;

use crate::bounds::{bounded, bounded_time, longer_than_zero};
use crate::change::{Change, restart};
use crate::error::SettingsError;
use crate::{duration, text};

/// What is held against the truth, and how. Times are ns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// What was exported: IPFIX files, captures of exports, CSV; also compressed.
    pub files: Vec<PathBuf>,
    /// CSV file of the flows that were really there.
    pub truth: PathBuf,
    /// Collect live, after the files.
    #[serde(with = "text::option")]
    #[schemars(with = "Option<String>")]
    pub listen: Option<Listen>,
    /// The exporter has ended when nothing came for this time, once something came: ns, more than
    /// 0; by default 5 s.
    #[serde(with = "duration")]
    #[schemars(
        with = "String",
        description = "The exporter has ended when nothing came for this time, once something came."
    )]
    pub until_idle: i64,
    /// How strictly the export must agree with the truth.
    pub model: EvaluationModel,
    /// The exporter's idle time-out, ns, more than 0: records so far apart are one flow, rightly
    /// split. `None`: they are not.
    #[serde(with = "duration::option")]
    #[schemars(
        with = "Option<String>",
        description = "The exporter's idle time-out: records so far apart are one flow, rightly split."
    )]
    pub idle: Option<i64>,
    /// The exporter's active time-out, ns, more than 0: records of longer flows are rightly split.
    /// `None`: they are not.
    #[serde(with = "duration::option")]
    #[schemars(
        with = "Option<String>",
        description = "The exporter's active time-out: records of longer flows are rightly split."
    )]
    pub active: Option<i64>,
    /// Times may be so far off, ns, at least 0; by default 1 ms.
    #[serde(with = "duration")]
    #[schemars(with = "String", description = "Times may be so far off.")]
    pub time_tolerance: i64,
    /// Records exported later than this after their last packet are late: ns, more than 0. `None`:
    /// none is.
    #[serde(with = "duration::option")]
    #[schemars(
        with = "Option<String>",
        description = "Records exported later than this after their last packet are late."
    )]
    pub late_limit: Option<i64>,
    /// Statistical: relative difference that is allowed, 0 to 1.
    pub tolerance: f64,
    /// Sums of these prefixes, too.
    #[serde(with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub subnet: Vec<Prefix>,
    /// Sums of each such interval of the flows' beginnings, too: ns, more than 0. `None`: none.
    #[serde(with = "duration::option")]
    #[schemars(
        with = "Option<String>",
        description = "Sums of each such interval of the flows' beginnings, too."
    )]
    pub every: Option<i64>,
    /// The truth's times count from this time, ms since 1970 UTC.
    pub truth_start: i64,
    /// Examples that are kept of each kind of difference.
    pub show: u16,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            files: Vec::new(),
            truth: PathBuf::new(),
            listen: None,
            until_idle: 5 * SECOND,
            model: EvaluationModel::Precise,
            idle: None,
            active: None,
            time_tolerance: 1_000_000,
            late_limit: None,
            tolerance: 0.0,
            subnet: Vec::new(),
            every: None,
            truth_start: 0,
            show: 5,
        }
    }
}

impl Settings {
    /// What a reload of this takes: whoever makes or compares begins anew.
    pub fn change(&self, new: &Settings) -> Change {
        restart(self, new)
    }

    /// Whether this can be compared; the message begins with the key that is wrong.
    ///
    /// # Errors
    /// A value out of its range, no truth, nothing to hold against it.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.truth.as_os_str().is_empty() {
            return Err(SettingsError::new(
                "truth",
                "name the CSV file of the flows that there were",
            ));
        }
        if self.files.is_empty() && self.listen.is_none() {
            return Err(SettingsError::new(
                "files",
                "name what was exported, or where to listen for it (listen)",
            ));
        }
        for (key, ns) in [
            ("until_idle", Some(self.until_idle)),
            ("idle", self.idle),
            ("active", self.active),
            ("late_limit", self.late_limit),
            ("every", self.every),
        ] {
            longer_than_zero(key, ns)?;
        }
        bounded_time("time_tolerance", self.time_tolerance, 0..)?;
        bounded("tolerance", self.tolerance, 0.0..=1.0)?;
        bounded("truth_start", self.truth_start, 0..=YEAR_2100)?;
        bounded("show", self.show, 0..=MOST_SHOWN)
    }
}

choice! {
    /// What must agree; each asks for all of the ones before.
    #[derive(PartialOrd, Ord)]
    pub enum EvaluationModel {
        /// Packets, bytes and flows together, within --tolerance
        Statistical = "statistical",
        /// Every flow: its packets, bytes and times; no split that no time-out asked for
        Precise = "precise",
        /// And every field that both sides have: TCP flags, TOS, TTL, VLAN, ICMP type, name
        Validation = "validation",
    }
}

/// Address and transport on which exports are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// IPFIX over UDP.
    Udp(SocketAddr),
    /// One connection or several, one after the other or together.
    Tcp(SocketAddr),
}

impl Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Udp(address) => write!(f, "udp://{address}"),
            Listen::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

impl FromStr for Listen {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.split_once("://") {
            Some(("udp", address)) => address.parse().map(Listen::Udp).ok(),
            Some(("tcp", address)) => address.parse().map(Listen::Tcp).ok(),
            _ => None,
        };
        parsed.ok_or_else(|| {
            format!("'{text}' is not an address to listen on; write udp://127.0.0.1:4739")
        })
    }
}

/// ms since 1970 UTC.
const YEAR_2100: i64 = 4_102_444_800_000;
/// Examples of each kind, at most.
const MOST_SHOWN: u16 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_listen() {
        let address = "127.0.0.1:4739".parse().unwrap();
        assert_eq!("udp://127.0.0.1:4739".parse(), Ok(Listen::Udp(address)));
        assert_eq!("tcp://127.0.0.1:4739".parse(), Ok(Listen::Tcp(address)));
        for text in ["127.0.0.1:4739", "tls://127.0.0.1:4739", "udp://localhost"] {
            assert!(text.parse::<Listen>().unwrap_err().contains("udp://127.0.0.1:4739"));
        }
    }

    #[test]
    fn settings_are_the_same_after_they_were_written() {
        let settings = Settings {
            truth: "t.csv".into(),
            listen: Some(Listen::Udp("127.0.0.1:4739".parse().unwrap())),
            idle: Some(15 * SECOND),
            subnet: vec!["198.18.0.0/16".parse().unwrap()],
            ..Settings::default()
        };
        let text = serde_json::to_string(&settings).unwrap();
        assert!(text.contains(r#""idle":"15s""#), "{text}");
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
        assert_eq!(settings.check(), Ok(()));
        let wrong = Settings { tolerance: 2.0, ..settings };
        assert_eq!(
            wrong.check(),
            Err(SettingsError::new("tolerance", "2 must be between 0 and 1"))
        );
        assert!(Settings::default().check().unwrap_err().message.starts_with("truth: "));
    }
}
