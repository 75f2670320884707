//! The key of a flow in 16 bytes, the same for both directions of a biflow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sonde_results::flow::FlowKey;
use sonde_wire::feature::{Feature, SHAPE_IPV6};

use super::hash::Hasher;

/// Both ends, the smaller (address, port) first where both directions are one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    /// IPv4: the two addresses, the first in the lower half. IPv6: their hash.
    pub(super) ends: u64,
    /// From the lowest bit: two ports of 16 bits, protocol 8, VLAN 12, point 8, IPv6 1. The highest
    /// is set in every key, so that a free record matches none.
    pub(super) rest: u64,
}

/// The two addresses of an IPv6 flow in the order of its key, two words each.
pub(super) type Addresses = [u64; 4];

/// What a key has of the layer above IP: a packet's own, or what stands in for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Upper {
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    pub(super) protocol: u8,
}

impl Upper {
    #[inline]
    pub(super) fn of(packet: &Feature) -> Self {
        let Feature { source_port, destination_port, protocol, .. } = *packet;
        Upper { source_port, destination_port, protocol }
    }
}

impl Key {
    /// The key of a packet, and which of its ends (0 or 1) sent it.
    #[inline]
    pub(super) fn new(
        packet: &Feature,
        upper: Upper,
        biflow: bool,
        hasher: &Hasher,
    ) -> (Key, usize) {
        let scope = u64::from(upper.protocol) << 32 | hasher.scope().bits(packet) | USED;
        if packet.shape & SHAPE_IPV6 != 0 {
            return Key::ipv6(packet, upper, biflow, hasher, scope);
        }
        let address = |[.., a, b, c, d]: [u8; 16]| u64::from(u32::from_be_bytes([a, b, c, d]));
        let (from, to) = (address(packet.source), address(packet.destination));
        let (from_port, to_port) = (upper.source_port, upper.destination_port);
        let ends = from | to << 32;
        let ports = u32::from(from_port) | u32::from(to_port) << 16;
        let swap = biflow & (from << 16 | u64::from(from_port) > to << 16 | u64::from(to_port));
        let (ends, ports) =
            if swap { (ends.rotate_left(32), ports.rotate_left(16)) } else { (ends, ports) };
        (Key { ends, rest: u64::from(ports) | scope }, usize::from(swap))
    }

    fn ipv6(
        packet: &Feature,
        upper: Upper,
        biflow: bool,
        hasher: &Hasher,
        scope: u64,
    ) -> (Key, usize) {
        let from = (u128::from_be_bytes(packet.source), upper.source_port);
        let to = (u128::from_be_bytes(packet.destination), upper.destination_port);
        let swap = biflow & (from > to);
        let (low, high) = if swap { (to, from) } else { (from, to) };
        let ends = hasher.addresses(low.0, high.0);
        let rest = u64::from(low.1) | u64::from(high.1) << 16 | scope | IPV6;
        (Key { ends, rest }, usize::from(swap))
    }

    #[inline]
    pub(super) fn protocol(&self) -> u8 {
        (self.rest >> 32) as u8
    }

    /// The port of an end.
    pub(super) fn port(&self, side: usize) -> u16 {
        (self.rest >> (16 * side)) as u16
    }

    #[inline]
    pub(super) fn is_ipv6(&self) -> bool {
        self.rest & IPV6 != 0
    }

    /// Whether it is a key at all.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.rest & USED != 0
    }

    /// The flow as end `source` sends it. `addresses` are only looked at for IPv6.
    pub(super) fn flow(&self, source: usize, addresses: &Addresses) -> FlowKey {
        let address = |side: usize| -> IpAddr {
            if self.is_ipv6() {
                let (high, low) = (addresses[2 * side], addresses[2 * side + 1]);
                Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into()
            } else {
                Ipv4Addr::from_bits((self.ends >> (32 * side)) as u32).into()
            }
        };
        FlowKey {
            point: (self.rest >> 52) as u8,
            vlan: (self.rest >> 40) as u16 & 0xFFF,
            protocol: self.protocol(),
            source: address(source),
            destination: address(1 - source),
            source_port: self.port(source),
            destination_port: self.port(1 - source),
        }
    }
}

/// The addresses of an IPv6 packet in the order of its key.
#[inline]
pub(super) fn addresses(packet: &Feature, sender: usize) -> Addresses {
    let (from, to) = (u128::from_be_bytes(packet.source), u128::from_be_bytes(packet.destination));
    if sender == 0 { halves(from, to) } else { halves(to, from) }
}

#[inline]
fn halves(low: u128, high: u128) -> Addresses {
    [(low >> 64) as u64, low as u64, (high >> 64) as u64, high as u64]
}

const IPV6: u64 = 1 << 60;
const USED: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::super::scope::Scope;
    use super::*;

    fn packet(ipv6: bool) -> Feature {
        let mut packet =
            Feature { source_port: 443, destination_port: 50_000, ..Feature::default() };
        (packet.vlan, packet.protocol, packet.point) = (0xABC, 6, 0xFE);
        if ipv6 {
            packet.shape = SHAPE_IPV6;
            packet.source = "2001:db8::9".parse::<Ipv6Addr>().unwrap().octets();
            packet.destination = "2001:db8::1".parse::<Ipv6Addr>().unwrap().octets();
        } else {
            packet.source = Ipv4Addr::new(192, 0, 2, 9).to_ipv6_mapped().octets();
            packet.destination = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets();
        }
        packet
    }

    fn turned(packet: &Feature) -> Feature {
        Feature {
            source: packet.destination,
            destination: packet.source,
            source_port: packet.destination_port,
            destination_port: packet.source_port,
            ..*packet
        }
    }

    #[test]
    fn both_directions_are_one_key_and_the_flow_can_be_read_back() {
        let hasher = Hasher::new([1, 2]);
        for ipv6 in [false, true] {
            let packet = packet(ipv6);
            let back = turned(&packet);
            let of = |p: &Feature| Key::new(p, Upper::of(p), true, &hasher);
            let ((key, side), (back_key, back_side)) = (of(&packet), of(&back));
            assert_eq!(key, back_key);
            assert_eq!((side, back_side), (1, 0));
            assert_eq!(addresses(&packet, side), addresses(&back, back_side));
            let flow = key.flow(side, &addresses(&packet, side));
            assert_eq!(flow.source.is_ipv6(), ipv6);
            assert!(flow.source.to_string().ends_with('9'));
            assert!(flow.destination.to_string().ends_with('1'));
            assert_eq!((flow.source_port, flow.destination_port), (443, 50_000));
            assert_eq!((flow.vlan, flow.protocol, flow.point), (0xABC, 6, 0xFE));
        }
    }

    /// A tap has an interface for each direction; two uplinks may have a VLAN for each.
    #[test]
    fn interfaces_can_be_joined_and_vlans_left_out() {
        for (vlan_in_key, observation_points, differ) in [
            (true, &[][..], [true, true]),
            (true, &[0, 1, 1, 3], [true, true]),
            (true, &[0, 1, 2, 2], [false, true]),
            (false, &[], [true, false]),
            (false, &[0; 256], [false, false]),
        ] {
            let hasher = Hasher::new([1, 2]).within(Scope::new(vlan_in_key, observation_points));
            for ipv6 in [false, true] {
                let of = |p: &Feature| Key::new(p, Upper::of(p), true, &hasher).0;
                let here = Feature { point: 2, vlan: 10, ..packet(ipv6) };
                let back = turned(&here);
                assert_eq!(of(&here) != of(&Feature { point: 3, ..back }), differ[0]);
                assert_eq!(of(&here) != of(&Feature { vlan: 0, ..back }), differ[1]);
                assert_eq!(of(&here), of(&back));
            }
        }
    }

    #[test]
    fn one_way_flows_keep_their_direction() {
        let hasher = Hasher::new([1, 2]);
        for ipv6 in [false, true] {
            let packet = packet(ipv6);
            let of = |p: &Feature| Key::new(p, Upper::of(p), false, &hasher);
            let ((key, side), (back, back_side)) = (of(&packet), of(&turned(&packet)));
            assert_ne!(key, back);
            assert_eq!((side, back_side), (0, 0));
        }
    }

    /// Equal addresses are distinguished by the ports; all equal is still one flow.
    #[test]
    fn a_host_that_talks_to_itself_is_one_flow() {
        let hasher = Hasher::new([1, 2]);
        let mut packet = packet(false);
        packet.destination = packet.source;
        let of = |p: &Feature| Key::new(p, Upper::of(p), true, &hasher);
        assert_eq!(of(&packet).0, of(&turned(&packet)).0);
        packet.destination_port = packet.source_port;
        assert_eq!(of(&packet), of(&turned(&packet)));
    }
}
