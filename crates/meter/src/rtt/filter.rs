//! Which packets a matcher looks at.

use std::net::IpAddr;

use sonde_results::rtt::RttProtocols;
use sonde_wire::flow::{Detail, FlowPacket};

use super::config_error::ConfigError;
use super::key::mapped;

/// Typed conditions; all of those that are given must hold. Empty: everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RttFilter {
    /// RttProtocols, any of them; none: all.
    pub protocols: RttProtocols,
    /// Networks, at most 8: either address lies in any of them.
    pub nets: Vec<(IpAddr, u8)>,
    /// Ports, at most 8: either port is any of them.
    pub ports: Vec<u16>,
}

impl RttFilter {
    /// Whether it is within its limits.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.nets.len() > MAX_NETS {
            return Err(ConfigError::Nets(self.nets.len()));
        }
        if let Some(&(address, length)) =
            self.nets.iter().find(|(a, n)| *n > if a.is_ipv4() { 32 } else { 128 })
        {
            return Err(ConfigError::Net(address, length));
        }
        if self.ports.len() > MAX_PORTS {
            return Err(ConfigError::Ports(self.ports.len()));
        }
        Ok(())
    }

    /// Whether a packet is looked at.
    #[inline]
    pub fn matches(&self, packet: &FlowPacket) -> bool {
        (self.protocols.is_empty() || self.protocols.meets(protocols(packet)))
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

/// Whether either address lies in any of the networks, and either port is any of the ports;
/// an empty list holds of all.
#[inline]
pub(crate) fn either_end(
    nets: &[(IpAddr, u8)],
    ports: &[u16],
    ends: [(&[u8; 16], u16); 2],
) -> bool {
    (ports.is_empty() || ends.iter().any(|(_, port)| ports.contains(port)))
        && (nets.is_empty()
            || nets.iter().any(|&(address, length)| {
                let net = u128::from_be_bytes(mapped(address));
                let length = if address.is_ipv4() { length.saturating_add(96) } else { length };
                let host_bits = 128 - u32::from(length.min(128));
                ends.iter().any(|&(&bytes, _)| {
                    let differ = u128::from_be_bytes(bytes) ^ net;
                    differ.checked_shr(host_bits).unwrap_or(0) == 0
                        // ::/0 and its like hold no IPv4 address.
                        && (address.is_ipv4() || bytes[..12] != MAPPED)
                })
            }))
}

/// The protocols that a packet counts as.
fn protocols(packet: &FlowPacket) -> RttProtocols {
    let dns = if packet.source_port == DNS_PORT || packet.destination_port == DNS_PORT {
        RttProtocols::DNS
    } else {
        RttProtocols::default()
    };
    match packet.detail {
        Detail::Tcp(_) => RttProtocols::TCP.with(dns),
        Detail::Dns { .. } => RttProtocols::DNS,
        Detail::Quic(_) => RttProtocols::QUIC,
        Detail::Echo { .. } => RttProtocols::ICMP,
        Detail::Heartbeat { .. } => RttProtocols::SCTP,
        // Packets of a flow that cannot be timed but count in it.
        Detail::Other => match packet.protocol {
            1 | 58 => RttProtocols::ICMP,
            6 => RttProtocols::TCP.with(dns),
            17 => RttProtocols::QUIC.with(dns),
            132 => RttProtocols::SCTP,
            _ => RttProtocols::default(),
        },
    }
}

const MAX_NETS: usize = 8;
const MAX_PORTS: usize = 8;
const DNS_PORT: u16 = 53;
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_wire::flow::{Quic, Tcp};

    fn packet(
        source: &str,
        sport: u16,
        destination: &str,
        dport: u16,
        detail: Detail,
    ) -> FlowPacket {
        FlowPacket {
            source: mapped(source.parse().unwrap()),
            destination: mapped(destination.parse().unwrap()),
            source_port: sport,
            destination_port: dport,
            vlan: 0,
            protocol: if matches!(detail, Detail::Tcp(_)) { 6 } else { 17 },
            tos: 0,
            ip_len: 40,
            fragment: false,
            identity: 0,
            payload: 0..0,
            detail,
        }
    }

    #[test]
    fn every_condition_that_is_given_must_hold() {
        let tcp = packet("192.0.2.1", 1000, "198.51.100.7", 443, Detail::Tcp(Tcp::default()));
        let net = |text: &str, length| (text.parse().unwrap(), length);
        let all = RttFilter::default();
        assert!(all.matches(&tcp));
        for (filter, holds) in [
            (RttFilter { protocols: RttProtocols::TCP, ..all.clone() }, true),
            (
                RttFilter { protocols: RttProtocols::DNS.with(RttProtocols::ICMP), ..all.clone() },
                false,
            ),
            (RttFilter { ports: vec![80, 443], ..all.clone() }, true),
            (RttFilter { ports: vec![80], ..all.clone() }, false),
            (RttFilter { nets: vec![net("198.51.100.0", 24)], ..all.clone() }, true),
            (RttFilter { nets: vec![net("192.0.2.1", 32)], ..all.clone() }, true),
            (RttFilter { nets: vec![net("192.0.2.2", 32)], ..all.clone() }, false),
            (RttFilter { nets: vec![net("0.0.0.0", 0)], ..all.clone() }, true),
            (RttFilter { nets: vec![net("::", 0)], ..all.clone() }, false),
            (RttFilter { ports: vec![443], nets: vec![net("10.0.0.0", 8)], ..all.clone() }, false),
        ] {
            assert_eq!(filter.matches(&tcp), holds, "{filter:?}");
            assert_eq!(filter.check(), Ok(()));
        }
        let v6 = packet("2001:db8::1", 1, "2001:db8::2", 2, Detail::Quic(Quic::Initial));
        assert!(RttFilter { nets: vec![net("::", 0)], ..all.clone() }.matches(&v6));
        assert!(!RttFilter { nets: vec![net("0.0.0.0", 0)], ..all.clone() }.matches(&v6));
        assert!(RttFilter { protocols: RttProtocols::QUIC, ..all.clone() }.matches(&v6));
    }

    #[test]
    fn dns_is_port_53_over_either_transport() {
        let dns = RttFilter { protocols: RttProtocols::DNS, ..RttFilter::default() };
        let tcp = packet("192.0.2.1", 1000, "192.0.2.2", 53, Detail::Tcp(Tcp::default()));
        let udp = packet("192.0.2.2", 53, "192.0.2.1", 9, Detail::Dns { response: true, id: 1 });
        assert!(dns.matches(&tcp) && dns.matches(&udp));
    }

    #[test]
    fn a_prefix_that_is_too_long_or_a_list_too_long_is_refused() {
        let nets = vec![("192.0.2.0".parse().unwrap(), 33)];
        let text = RttFilter { nets, ..RttFilter::default() }.check().unwrap_err().to_string();
        assert!(text.contains("192.0.2.0/33"), "{text}");
        let nets = vec![("::".parse().unwrap(), 1); 9];
        assert_eq!(RttFilter { nets, ..RttFilter::default() }.check(), Err(ConfigError::Nets(9)));
    }
}
