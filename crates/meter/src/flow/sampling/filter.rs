//! Property match filtering (RFC 5475, section 6.1) by addresses, ports and protocol.

use std::net::IpAddr;

use sonde_wire::feature::{Feature, SHAPE_LATER_FRAGMENT};
use sonde_wire::ipv6::PROTOCOL_ICMPV6;

use super::SelectorError;
use crate::rtt::either_end;

/// Typed conditions; all of those that are given must hold. Empty: everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyFilter {
    /// IP protocols, at most 8, any of them; none: all.
    pub protocols: Vec<u8>,
    /// Networks, at most 8: either address lies in any of them.
    pub nets: Vec<(IpAddr, u8)>,
    /// Ports, at most 8: either port is any of them. Later fragments have none, and ICMP
    /// has type and code instead of one: both match no port.
    pub ports: Vec<u16>,
}

impl PropertyFilter {
    pub(super) fn check(&self) -> Result<(), SelectorError> {
        for (len, what) in [
            (self.protocols.len(), "protocols"),
            (self.nets.len(), "networks"),
            (self.ports.len(), "ports"),
        ] {
            if len > MAX_LIST {
                return Err(SelectorError::List(len, what));
            }
        }
        match self.nets.iter().find(|(a, n)| *n > if a.is_ipv4() { 32 } else { 128 }) {
            Some(&(address, length)) => Err(SelectorError::Net(address, length)),
            None => Ok(()),
        }
    }

    /// Whether a packet passes.
    #[inline]
    pub fn matches(&self, packet: &Feature) -> bool {
        (self.protocols.is_empty() || self.protocols.contains(&packet.protocol))
            && (self.ports.is_empty()
                || !matches!(packet.protocol, ICMP | PROTOCOL_ICMPV6)
                    && packet.shape & SHAPE_LATER_FRAGMENT == 0)
            && either_end(
                &self.nets,
                &self.ports,
                [
                    (&packet.source, packet.source_port),
                    (&packet.destination, packet.destination_port),
                ],
            )
    }
}

const MAX_LIST: usize = 8;
const ICMP: u8 = 1;
