//! What is chosen about passive round-trip times, alike for user space and for the kernel.

use std::time::Duration;

use crate::choice;

choice! {
    /// What the samples of a group have in common. It is always the host that answered whose
    /// address counts.
    pub enum RttGroupBy {
        /// One direction of one flow
        Flow = "flow",
        /// The address prefix of the host that answered
        Prefix = "prefix",
        /// Its autonomous system, by --prefixes
        As = "as",
        /// The interface
        Interface = "interface",
        /// The VLAN identifier
        Vlan = "vlan",
        /// The DSCP of the flow's first packet
        Dscp = "dscp",
    }
}

choice! {
    /// What can be timed.
    pub enum RttProtocol {
        /// TCP: timestamps, sequence numbers, handshake
        Tcp = "tcp",
        /// ICMP and ICMPv6 echo
        Icmp = "icmp",
        /// QUIC: handshake and spin bit
        Quic = "quic",
        /// DNS over UDP and TCP, port 53
        Dns = "dns",
        /// SCTP heartbeats
        Sctp = "sctp",
    }
}

/// A set of protocols. As a filter, an empty one lets all pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RttProtocols(u8);

/// Which samples become events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttEvents {
    /// None: histograms and flows only.
    None,
    /// Every sample becomes one.
    All,
    /// One in so much time and direction of a flow, in steps of 1.024 us.
    Every(Duration),
    /// One in so many sixteenths of the direction's smoothed round-trip time.
    RttMultiple(u32),
}

impl RttProtocols {
    /// TCP (RFC 9293), DNS over it included.
    pub const TCP: RttProtocols = RttProtocols::of(RttProtocol::Tcp);
    /// ICMP (RFC 792) and ICMPv6 (RFC 4443).
    pub const ICMP: RttProtocols = RttProtocols::of(RttProtocol::Icmp);
    /// QUIC (RFC 9000), and what else UDP carries in its flows.
    pub const QUIC: RttProtocols = RttProtocols::of(RttProtocol::Quic);
    /// DNS over UDP or TCP, port 53.
    pub const DNS: RttProtocols = RttProtocols::of(RttProtocol::Dns);
    /// SCTP (RFC 9260).
    pub const SCTP: RttProtocols = RttProtocols::of(RttProtocol::Sctp);

    /// One alone.
    pub const fn of(protocol: RttProtocol) -> RttProtocols {
        RttProtocols(1 << protocol as u8)
    }

    /// The protocols of both sets.
    #[must_use]
    pub const fn with(self, other: RttProtocols) -> RttProtocols {
        RttProtocols(self.0 | other.0)
    }

    /// Whether no protocol is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a protocol is in both.
    pub const fn meets(self, other: RttProtocols) -> bool {
        self.0 & other.0 != 0
    }

    /// The protocols that pass, as the program in the kernel has them: TCP is bit 0, then ICMP,
    /// QUIC, DNS, SCTP.
    pub const fn passing(self) -> u8 {
        if self.is_empty() { (1 << 5) - 1 } else { self.0 }
    }
}

impl FromIterator<RttProtocol> for RttProtocols {
    fn from_iter<I: IntoIterator<Item = RttProtocol>>(protocols: I) -> Self {
        let sets = protocols.into_iter().map(RttProtocols::of);
        sets.fold(RttProtocols::default(), RttProtocols::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Choice as _;

    #[test]
    fn an_empty_set_lets_all_pass() {
        let all: RttProtocols = RttProtocol::ALL.iter().map(|(protocol, ..)| *protocol).collect();
        assert_eq!(RttProtocols::default().passing(), all.passing());
        assert_eq!(RttProtocols::TCP.with(RttProtocols::DNS).passing(), 0b1001);
        assert!(all.meets(RttProtocols::SCTP) && !RttProtocols::TCP.meets(RttProtocols::DNS));
    }
}
