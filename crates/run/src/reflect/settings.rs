//! The settings of a reflector.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::units::{SECOND, parse_positive_duration, parse_rate};
use sonde_wire::prefix::Prefix;

use crate::bounds::{bounded, bounded_time, longer_than_zero};
use crate::change::{Change, restart};
use crate::engine::{Engine, EngineSettings, XdpMode, twice};
use crate::error::SettingsError;
use crate::{duration, text};

/// Settings of a reflector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// UDP ports to answer on.
    pub port: Vec<u16>,
    /// Answer at these addresses only, as `192.0.2.7` or `fe80::1%eth0`; none: at all. With an
    /// interface also on that one only.
    #[serde(with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub bind: Vec<Bind>,
    /// How packets are received and sent.
    pub engine: EngineSettings,
    /// Answer in the kernel, by an XDP program; what it leaves goes to the engine.
    pub kernel: bool,
    /// Copy the sender's sequence number instead of counting (RFC 8762, section 4.3).
    pub stateless: bool,
    /// Answer only senders in these prefixes; none: all.
    #[serde(with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<Prefix>,
    /// Answer each source address at most this often a second.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub rate_limit: Limit,
    /// Answer all together at most this often a second.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub total_rate_limit: Limit,
    /// Remember at most this many sessions, 1 to 4,194,304.
    pub max_sessions: u32,
    /// A session ends after this much silence, ns, at least 1 s; by default 900 s.
    #[serde(with = "duration")]
    #[schemars(
        with = "String",
        description = "A session ends after this much silence, at least 1 s."
    )]
    pub session_timeout: i64,
    /// Time between two records, ns, more than 0; by default 10 s. The state is renewed each
    /// second.
    #[serde(with = "duration")]
    #[schemars(with = "String", description = "Time between two records.")]
    pub report_interval: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            port: vec![862],
            bind: Vec::new(),
            engine: EngineSettings::default(),
            kernel: false,
            stateless: false,
            allow: Vec::new(),
            rate_limit: Limit(Some(ReplyRateLimit { pps: 250_000, burst: 62_500 })),
            total_rate_limit: Limit(Some(ReplyRateLimit { pps: 1_000_000, burst: 250_000 })),
            max_sessions: 65_536,
            session_timeout: 900 * SECOND,
            report_interval: 10 * SECOND,
        }
    }
}

impl Settings {
    /// What going over to `new` takes.
    pub fn change(&self, new: &Settings) -> Change {
        restart(self, new)
    }

    /// Whether they can be: the first that cannot is named.
    ///
    /// # Errors
    /// A value out of its range, two that do not go together.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.port.is_empty() || self.port.contains(&0) {
            return Err(SettingsError::new("port", "name at least one, 1..65535"));
        }
        if let Some(port) = twice(&self.port) {
            return Err(SettingsError::new("port", format!("{port} is given twice; give it once")));
        }
        if let Some(bind) = twice(&self.bind) {
            return Err(SettingsError::new("bind", format!("{bind} is given twice; give it once")));
        }
        // The kernel's program is attached in this mode, too.
        let xdp_mode = if self.kernel { XdpMode::Auto } else { self.engine.xdp_mode };
        EngineSettings { xdp_mode, ..self.engine.clone() }.check()?;
        bounded("max_sessions", self.max_sessions, 1..=MOST_SESSIONS)?;
        bounded_time("session_timeout", self.session_timeout, SECOND..)?;
        longer_than_zero("report_interval", self.report_interval)?;
        let EngineSettings { engine, iface, .. } = &self.engine;
        if self.kernel && *engine == Engine::AfXdp {
            return Err(SettingsError::new(
                "kernel",
                "it uses the interface's XDP hook itself; leave `engine.engine` \
                        out or use af_packet",
            ));
        }
        if self.kernel && self.port.len() > 1 {
            return Err(SettingsError::new("kernel", "it answers on one port; give `port` once"));
        }
        if iface.is_none() && (self.kernel || *engine != Engine::Socket) {
            let what = match self.kernel {
                true => "kernel".to_owned(),
                false => format!("engine.engine = {}", engine.name()),
            };
            return Err(SettingsError::new(
                "engine.iface",
                format!("`{what}` needs an interface; 'ip link' lists them"),
            ));
        }
        let mut interface = iface.as_ref();
        for bind in &self.bind {
            match (bind.interface.as_ref(), interface) {
                (Some(of), Some(other)) if of != other => {
                    return Err(SettingsError::new(
                        "bind",
                        format!(
                            "{}%{of} is not on {other}; a reflector answers on one interface: \
                         start another one for the other",
                            bind.address
                        ),
                    ));
                }
                (of, _) => interface = of.or(interface),
            }
        }
        Ok(())
    }
}

/// A token bucket's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyRateLimit {
    /// Replies a second.
    pub pps: u64,
    /// Replies that may follow each other at once; by default those of a tenth of a second.
    pub burst: u64,
}

impl fmt::Display for ReplyRateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pps, self.burst)
    }
}

impl FromStr for ReplyRateLimit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (pps, burst) = match text.split_once(':') {
            Some((pps, burst)) => (parse_rate(pps)?, Some(parse_rate(burst)?)),
            None => (parse_rate(text)?, None),
        };
        Ok(ReplyRateLimit { pps, burst: burst.unwrap_or((pps / 10).max(1)) })
    }
}

/// A limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<ReplyRateLimit>);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => limit.fmt(f),
            None => f.write_str("none"),
        }
    }
}

impl FromStr for Limit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Limit(None)) } else { text.parse().map(|limit| Limit(Some(limit))) }
    }
}

/// An address of this host, with the interface that a link-local one belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The address that requests are sent to.
    pub address: IpAddr,
    /// The interface, where the address is link-local.
    pub interface: Option<String>,
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            Some(interface) => write!(f, "{}%{interface}", self.address),
            None => self.address.fmt(f),
        }
    }
}

impl FromStr for Bind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, interface) = match text.split_once('%') {
            Some((address, interface)) => (address, Some(interface.to_owned())),
            None => (text, None),
        };
        let parsed: IpAddr =
            address.parse().map_err(|_| format!("'{address}' is not an IP address"))?;
        let link_local = matches!(parsed, IpAddr::V6(a) if a.is_unicast_link_local());
        if interface.is_some() && !link_local {
            return Err(format!(
                "'{address}' needs no interface; '%' is for addresses in fe80::/10"
            ));
        }
        if parsed.is_unspecified() || parsed.is_multicast() {
            return Err(format!("'{address}' is not the address of one host"));
        }
        Ok(Bind { address: parsed, interface })
    }
}

/// How long a session may be silent, ns: at least 1 s.
///
/// # Errors
/// No duration, or a shorter one.
pub fn parse_session_timeout(text: &str) -> Result<i64, String> {
    let nanos = parse_positive_duration(text)?;
    if nanos < SECOND {
        return Err(format!("'{text}' is too short for a session; use 1s or more"));
    }
    Ok(nanos)
}

/// What a table of sessions can have at most.
pub const MOST_SESSIONS: u32 = 4_194_304;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_twice_or_has_no_effect_is_refused() {
        let wrong = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().err().map_or(String::new(), |wrong| wrong.message)
        };
        assert_eq!(wrong(|_| {}), "");
        assert_eq!(
            wrong(|s| s.port = vec![862, 8_620, 862]),
            "port: 862 is given twice; give it once"
        );
        let bind = wrong(|s| s.bind = vec!["192.0.2.1".parse().unwrap(); 2]);
        assert_eq!(bind, "bind: 192.0.2.1 is given twice; give it once");
        let mode = |s: &mut Settings| s.engine.xdp_mode = XdpMode::Copy;
        assert!(wrong(mode).starts_with("engine.xdp_mode: "));
        let of_kernel = |s: &mut Settings| {
            (s.kernel, s.engine.iface, s.engine.xdp_mode) =
                (true, Some("eth0".into()), XdpMode::Copy);
        };
        assert_eq!(wrong(of_kernel), "");
    }
}
