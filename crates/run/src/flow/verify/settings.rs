//! What is held against the truth, and how.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use sonde_results::units::SECOND;
use sonde_wire::prefix::Prefix;

use crate::choice::choice;

/// What is held against the truth, and how. Times are ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What was exported: IPFIX files, captures of exports, CSV; also compressed.
    pub files: Vec<PathBuf>,
    /// The truth: CSV.
    pub truth: PathBuf,
    /// Collect live, after the files.
    pub listen: Option<Listen>,
    /// The exporter has ended when nothing came for this time, once something came.
    pub until_idle: i64,
    /// What must agree.
    pub model: Model,
    /// The exporter's idle time-out: records so far apart are one flow, rightly split.
    pub idle: Option<i64>,
    /// The exporter's active time-out: records of longer flows are rightly split.
    pub active: Option<i64>,
    /// Times may be so far off.
    pub time_tolerance: i64,
    /// Records exported later than this after their last packet are late.
    pub late_limit: Option<i64>,
    /// Statistical: relative difference that is allowed, 0 to 1.
    pub tolerance: f64,
    /// Sums of these prefixes, too.
    pub subnet: Vec<Prefix>,
    /// Sums of each such interval of the flows' beginnings, too.
    pub every: Option<i64>,
    /// The truth's times count from this time, ms since 1970 UTC.
    pub truth_start: i64,
    /// Examples that are kept of each kind of difference.
    pub show: u16,
}

impl Settings {
    /// By what is usual, against this truth.
    pub fn new(truth: PathBuf) -> Settings {
        Settings {
            files: Vec::new(),
            truth,
            listen: None,
            until_idle: 5 * SECOND,
            model: Model::Precise,
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

choice! {
    /// What must agree; each asks for all of the ones before.
    #[derive(PartialOrd, Ord)]
    pub enum Model {
        /// Packets, bytes and flows together, within --tolerance
        Statistical = "statistical",
        /// Every flow: its packets, bytes and times; no split that no time-out asked for
        Precise = "precise",
        /// And every field that both sides tell: TCP flags, TOS, TTL, VLAN, ICMP type, name
        Validation = "validation",
    }
}

/// Where to collect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Datagrams.
    Udp(SocketAddr),
    /// One connection or several, one after the other or together.
    Tcp(SocketAddr),
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
}
