//! The key of a flow: the same for both directions; its keyed hash; addresses hidden in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sonde_results::rtt::FlowKey;
use sonde_wire::flow::FlowPacket;

use super::exchange::Exchange;

/// Both ends of a flow, the smaller (address, port) first, as five little-endian words. They hold
/// address 0, address 1 (16 bytes each, IPv4 mapped), port 0, port 1 (big-endian), VLAN
/// (little-endian), protocol, point.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Key([u64; 5]);

/// Secrets of this run, so that nobody outside can aim at one bucket.
#[derive(Clone, Copy)]
pub(super) struct Seeds(pub(super) [u64; 2]);

impl Key {
    /// The key, and which of its ends (0 or 1) sent the packet. `vlan`: the packet's, or 0
    /// where it is no part of the key.
    #[inline]
    pub(super) fn new(
        point: u8,
        vlan: u16,
        packet: &FlowPacket,
        hide: Option<Seeds>,
    ) -> (Key, usize) {
        let (mut source, mut destination) = (packet.source, packet.destination);
        if let Some(seeds) = hide {
            source = seeds.hide(source);
            destination = seeds.hide(destination);
        }
        let from = (u128::from_be_bytes(source), packet.source_port);
        let to = (u128::from_be_bytes(destination), packet.destination_port);
        // A host that asks itself at one port: its answers have the other side.
        let answers = || Exchange::of(&packet.detail).is_some_and(|exchange| exchange.answer);
        let sender = usize::from(from > to || from == to && packet.is_matchable() && answers());
        let (low, high) = if sender == 0 { (from, to) } else { (to, from) };
        let [p0, p1] = low.1.to_be_bytes();
        let [p2, p3] = high.1.to_be_bytes();
        let [v0, v1] = vlan.to_le_bytes();
        let rest = u64::from_le_bytes([p0, p1, p2, p3, v0, v1, packet.protocol, point]);
        let (a, b) = (low.0.swap_bytes(), high.0.swap_bytes());
        (Key([a as u64, (a >> 64) as u64, b as u64, (b >> 64) as u64, rest]), sender)
    }

    #[inline]
    pub(super) fn hash(&self, seeds: Seeds) -> u64 {
        seeds.chain(&self.0)
    }

    /// The hash of a request with this identifier from this side: that of the flow, continued
    /// by one word.
    #[inline]
    pub(super) fn request(&self, id: u32, side: usize, seeds: Seeds) -> u64 {
        let [a, b, c, d, e] = self.0;
        seeds.chain(&[a, b, c, d, e, u64::from(id) << 1 | side as u64])
    }

    /// Address of an end, IPv4 as mapped; hidden ones still with their hash.
    pub(super) fn address(&self, side: usize) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[2 * side].to_le_bytes());
        bytes[8..].copy_from_slice(&self.0[2 * side + 1].to_le_bytes());
        bytes
    }

    pub(super) fn port(&self, side: usize) -> u16 {
        let bytes = self.0[4].to_le_bytes();
        u16::from_be_bytes([bytes[2 * side], bytes[2 * side + 1]])
    }

    pub(super) fn vlan(&self) -> u16 {
        (self.0[4] >> 32) as u16
    }

    pub(super) fn protocol(&self) -> u8 {
        (self.0[4] >> 48) as u8
    }

    pub(super) fn point(&self) -> u8 {
        (self.0[4] >> 56) as u8
    }

    /// The flow as `source` sends it.
    pub(super) fn flow(&self, source: usize, hidden: bool) -> FlowKey {
        FlowKey {
            point: self.point(),
            vlan: self.vlan(),
            protocol: self.protocol(),
            source: shown(self.address(source), hidden),
            destination: shown(self.address(1 - source), hidden),
            source_port: self.port(source),
            destination_port: self.port(1 - source),
        }
    }
}

impl Seeds {
    #[inline]
    fn chain(self, words: &[u64]) -> u64 {
        let [mut h, secret] = self.0;
        for &word in words {
            h = mix(h ^ mix(word ^ secret)).wrapping_add(1);
        }
        h
    }

    /// The prefix (/24 or /48) of an address, and a keyed hash instead of the host's part. Flows of
    /// two hosts stay distinct, and the hosts cannot be found out.
    fn hide(self, address: [u8; 16]) -> [u8; 16] {
        let (low, high) = address.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let hash = self.chain(&[word(low), word(high)]).to_le_bytes();
        let mut hidden = address;
        if is_mapped(&address) {
            hidden[4..8].copy_from_slice(&hash[..4]);
            hidden[15] = 0;
        } else {
            hidden[6..8].fill(0);
            hidden[8..].copy_from_slice(&hash);
        }
        hidden
    }
}

/// As people write it; of a hidden address only the prefix.
pub(super) fn shown(address: [u8; 16], hidden: bool) -> IpAddr {
    let [.., a, b, c, d] = address;
    if is_mapped(&address) || (hidden && is_hidden_mapped(&address)) {
        return Ipv4Addr::new(a, b, c, d).into();
    }
    let mut bytes = address;
    if hidden {
        bytes[HIDDEN_V6 as usize / 8..].fill(0);
    }
    Ipv6Addr::from(bytes).into()
}

/// IPv4 as `::ffff:a.b.c.d` (RFC 4291, section 2.5.5.2).
pub(super) fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[inline]
fn is_mapped(address: &[u8; 16]) -> bool {
    address[..10] == [0; 10] && address[10..12] == [0xff; 2]
}

/// With the hash in bytes 4..8. An IPv6 address that looks the same would lie in ::/32,
/// which nobody routes.
fn is_hidden_mapped(address: &[u8; 16]) -> bool {
    address[..4] == [0; 4] && address[8..10] == [0; 2] && address[10..12] == [0xff; 2]
}

#[inline]
fn mix(h: u64) -> u64 {
    let h = h.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ (h >> 32)
}

/// Bits that are left of a hidden IPv4 address.
pub(super) const HIDDEN_V4: u8 = 24;
/// Bits that are left of a hidden IPv6 address.
pub(super) const HIDDEN_V6: u8 = 48;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_wire::flow::Detail;

    fn packet(source: &str, sport: u16, destination: &str, dport: u16) -> FlowPacket {
        FlowPacket {
            source: mapped(source.parse().unwrap()),
            destination: mapped(destination.parse().unwrap()),
            source_port: sport,
            destination_port: dport,
            vlan: 0x123,
            protocol: 6,
            tos: 0,
            ip_len: 40,
            fragment: false,
            identity: 0,
            payload: 0..0,
            detail: Detail::Other,
        }
    }

    #[test]
    fn both_directions_have_one_key_and_the_smaller_end_is_side_0() {
        let out = packet("192.0.2.1", 40_000, "192.0.2.2", 443);
        let back = packet("192.0.2.2", 443, "192.0.2.1", 40_000);
        let ((a, from), (b, to)) =
            (Key::new(7, 0x123, &out, None), Key::new(7, 0x123, &back, None));
        assert!(a == b);
        assert_eq!((from, to), (0, 1));
        assert_eq!(
            (a.vlan(), a.protocol(), a.point(), a.port(0), a.port(1)),
            (0x123, 6, 7, 40_000, 443)
        );
        let key = a.flow(1, false);
        assert_eq!((key.source.to_string(), key.source_port), ("192.0.2.2".into(), 443));
        assert_eq!(key.reversed(), a.flow(0, false));
        // The address decides before the port, byte by byte from the front.
        let (_, d) = Key::new(0, 0, &packet("2001:db8::1", 1, "::ffff:0:0", 9), None);
        assert_eq!(d, 1);
        let (_, d) = Key::new(0, 0, &packet("192.0.2.1", 9, "192.0.2.1", 9), None);
        assert_eq!(d, 0);
    }

    #[test]
    fn the_hash_is_that_of_the_rules_page() {
        // Computed from the page's formula with an independent script (Python integers).
        let (key, _) = Key::new(1, 0x123, &packet("192.0.2.1", 40_000, "192.0.2.2", 443), None);
        assert_eq!(key.hash(Seeds([1, 2])), 0xe6bc_6d20_d014_5653);
    }

    #[test]
    fn a_hidden_address_keeps_its_prefix_and_distinguishes_hosts() {
        let seeds = Seeds([3, 4]);
        for (a, b, prefix) in [
            ("192.0.2.77", "192.0.2.78", "192.0.2.0"),
            ("2001:db8:5:6::7", "2001:db8:5:7::7", "2001:db8:5::"),
        ] {
            let (a, b) = (mapped(a.parse().unwrap()), mapped(b.parse().unwrap()));
            let (x, y) = (seeds.hide(a), seeds.hide(b));
            assert_ne!(x, y);
            assert_ne!(x, Seeds([3, 5]).hide(a));
            assert_eq!(shown(x, true).to_string(), prefix);
            assert_eq!(shown(y, true), shown(x, true));
        }
    }
}
