//! The configuration of a sender: plain values, checked by [`crate::stamp::Sender::new`].

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use sonde_wire::ethernet::{Mac, Tag};
use sonde_wire::{NotSent, Time};

/// When probes leave (RFC 3432 periodic, RFC 2330 section 11.1.1 Poisson).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Every period exactly.
    Periodic,
    /// Exponentially distributed gaps of the given mean, at most ten times it, from the run's seed.
    Poisson,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Schedule::Periodic => "periodic",
            Schedule::Poisson => "poisson",
        })
    }
}

impl FromStr for Schedule {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "periodic" => Ok(Schedule::Periodic),
            "poisson" => Ok(Schedule::Poisson),
            _ => Err(format!("'{text}' is not a schedule; write periodic or poisson")),
        }
    }
}

/// How the peer numbers its replies (RFC 8762, section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReflectorKind {
    /// Stateful once its own counter has been seen to differ from ours.
    #[default]
    Auto,
    /// It counts by itself: loss has a direction from the first packet on.
    Stateful,
    /// It copies our sequence number: loss has no direction.
    Stateless,
}

impl fmt::Display for ReflectorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReflectorKind::Auto => "auto",
            ReflectorKind::Stateful => "stateful",
            ReflectorKind::Stateless => "stateless",
        })
    }
}

impl FromStr for ReflectorKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(ReflectorKind::Auto),
            "stateful" => Ok(ReflectorKind::Stateful),
            "stateless" => Ok(ReflectorKind::Stateless),
            _ => Err(format!(
                "'{text}' is not a kind of reflector; write auto, stateful or stateless"
            )),
        }
    }
}

/// One stream of probes: one 4-tuple, one DSCP.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSpec {
    /// Our address and port.
    pub source: SocketAddr,
    /// The reflector's; same family.
    pub destination: SocketAddr,
    /// DSCP, 0..=63.
    pub dscp: u8,
    /// TTL or hop limit, 1..=255.
    pub ttl: u8,
    /// Index into the sender's next hops.
    pub next_hop: u16,
    /// STAMP session identifier (RFC 8972, section 3); 0: none.
    pub ssid: u16,
    /// Length of the IP packet in bytes (IPv4 at least 72, IPv6 at least 92).
    pub ip_length: u16,
    /// Mean time between probes, ns.
    pub period: i64,
    /// First send, ns after the start; less than `period`.
    pub phase: i64,
    /// How sends are spread.
    pub schedule: Schedule,
    /// Probes to send; `None`: without end.
    pub count: Option<u64>,
    /// How the peer numbers its replies.
    pub reflector: ReflectorKind,
}

/// How a next hop is reached, or why it is not.
pub type NextHopLink = Result<LinkHeader, NotSent>;

/// The link-layer header in front of the IP packet: Ethernet, with VLAN tags if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkHeader {
    bytes: [u8; 22],
    len: u8,
}

impl LinkHeader {
    /// Addresses and VLAN tags (outermost first, at most two).
    /// The EtherType of the payload is added by the sender.
    pub fn new(destination: Mac, source: Mac, tags: &[Tag]) -> Self {
        let mut bytes = [0; 22];
        bytes[..6].copy_from_slice(&destination);
        bytes[6..12].copy_from_slice(&source);
        let mut len = 12;
        for &Tag { tpid, tci } in tags.iter().take(2) {
            bytes[len..len + 2].copy_from_slice(&tpid.to_be_bytes());
            bytes[len + 2..len + 4].copy_from_slice(&tci.to_be_bytes());
            len += 4;
        }
        LinkHeader { bytes, len: len as u8 }
    }

    /// The header without the final EtherType.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// What holds for all streams of a sender.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderConfig {
    /// The first instant at which a probe may leave.
    pub start: Time,
    /// A probe not answered after this is lost (Tmax of RFC 7680), ns.
    pub timeout: i64,
    /// Length of an interval record, ns.
    pub interval: i64,
    /// Sends later than this are counted and reported, ns.
    pub late_limit: i64,
    /// TAI - UTC, ns: what the wire's UTC stamps differ by from [`Time`], until
    /// [`crate::Instrument::set_scale`] says otherwise.
    pub tai_offset: i64,
    /// Our clock is synchronised (the S bit and whether one-way delays are sound).
    pub clock_synchronised: bool,
    /// Our clock's greatest error, ns (the error estimate that we send).
    pub clock_error: i64,
    /// Transmit stamps will come (see the port's capabilities).
    pub tx_stamps: bool,
    /// The kernel finds the next hop and writes the link header (sockets). What is sent while it
    /// has none is handed over all the same, and is counted as not sent if it did not leave.
    pub kernel_resolves: bool,
    /// Most pages for histograms (72 bytes each), for all streams together.
    pub histogram_pages: usize,
    /// Keep one [`crate::stamp::Sample`] per packet for the caller (a ping-like display, a
    /// benchmark).
    pub samples: bool,
    /// Seed of the Poisson schedule.
    pub seed: u64,
}
