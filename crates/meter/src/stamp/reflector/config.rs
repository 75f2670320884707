//! The configuration of a reflector: plain values, checked by [`super::Reflector::new`].

use std::net::IpAddr;

use sonde_wire::prefix::Prefix;

use super::limiter::RateLimit;
use super::session_table::MAX_SESSIONS;

/// The configuration of a reflector.
#[derive(Clone, Debug, PartialEq)]
pub struct ReflectorConfig {
    /// Our UDP ports; at least one.
    pub ports: Vec<u16>,
    /// Number replies per session (RFC 8762, section 4.3), instead of copying the sender's.
    pub stateful: bool,
    /// Our addresses; empty: whatever the port let through.
    pub local: Vec<IpAddr>,
    /// Prefixes that may ask; empty: everyone. Tried one by one.
    pub allow: Vec<Prefix>,
    /// What one source address may ask; `None`: anything.
    pub rate_limit: Option<RateLimit>,
    /// What all together may ask; `None`: anything.
    pub total_limit: Option<RateLimit>,
    /// Addresses that no sender has: this host's own, where it is not asked by itself, and
    /// broadcast addresses of its subnets.
    pub no_senders: Vec<Prefix>,
    /// Sessions that a stateful reflector can keep, at most 2^24 - 1. Those that have sent
    /// only once make room for newcomers; beyond the others these are served statelessly.
    pub max_sessions: usize,
    /// A session ends after this much silence, ns (REFWAIT of RFC 5357, section 4.2: 900 s).
    pub session_timeout: i64,
    /// Session identifiers that are served (RFC 8972, section 3), 0 for packets without one;
    /// empty: all.
    pub ssids: Vec<u16>,
    /// Return to senders what addresses and ports their packets arrived with, when they ask by a
    /// Location TLV (RFC 8972, section 4.2.2).
    pub location: bool,
    /// DSCPs that a Class of Service TLV may choose for the reply (RFC 8972, section 4.4): a
    /// bit each, DSCP 0 lowest.
    pub reply_dscps: u64,
    /// TAI - UTC, ns.
    pub tai_offset: i64,
    /// Our clock is synchronised: the S bit.
    pub clock_synchronised: bool,
    /// Our clock's greatest error, ns: the error estimate.
    pub clock_error: i64,
    /// Length of an interval record, ns.
    pub interval: i64,
    /// Random, so that nobody can aim at one entry of our tables.
    pub seed: u64,
}

impl ReflectorConfig {
    /// The defaults: stateful, for everyone, 65,536 sessions of 900 s, an unsynchronised
    /// clock on UTC + `tai_offset`, the limits of [`RateLimit`], a record a second.
    pub fn new(ports: Vec<u16>, tai_offset: i64, seed: u64) -> Self {
        ReflectorConfig {
            ports,
            stateful: true,
            local: Vec::new(),
            allow: Vec::new(),
            rate_limit: Some(RateLimit::OF_SOURCE),
            total_limit: Some(RateLimit::OF_ALL),
            no_senders: Vec::new(),
            max_sessions: 65_536,
            session_timeout: 900_000_000_000,
            ssids: Vec::new(),
            location: true,
            reply_dscps: u64::MAX,
            tai_offset,
            clock_synchronised: false,
            clock_error: 0,
            interval: 1_000_000_000,
            seed,
        }
    }

    /// Whether it can work.
    pub(super) fn check(&self) -> Result<(), ReflectorError> {
        if self.ports.is_empty() {
            return Err(ReflectorError::NoPort);
        }
        if self.max_sessions > MAX_SESSIONS {
            return Err(ReflectorError::Sessions(self.max_sessions));
        }
        if self.session_timeout <= 0 {
            return Err(ReflectorError::Time("the session timeout"));
        }
        if self.interval <= 0 {
            return Err(ReflectorError::Time("the record interval"));
        }
        let limits = [self.rate_limit, self.total_limit];
        if limits.iter().flatten().any(|limit| limit.per_second == 0 || limit.burst == 0) {
            return Err(ReflectorError::RateLimit);
        }
        Ok(())
    }
}

/// Settings that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReflectorError {
    /// It could never be asked.
    #[error("a reflector needs a UDP port; 862 is the standard one")]
    NoPort,
    /// A prefix says more bits than the address has.
    #[error("{0}: a prefix length is at most 32 for IPv4 and 128 for IPv6")]
    Prefix(Prefix),
    /// The table has no room for it.
    #[error("{0} sessions are too many; the most is 16777215")]
    Sessions(usize),
    /// A time that must pass does not.
    #[error("{0} must be longer than 0")]
    Time(&'static str),
    /// Nobody would be served.
    #[error("a rate limit and its burst are at least 1; leave the limit out to have none")]
    RateLimit,
}
