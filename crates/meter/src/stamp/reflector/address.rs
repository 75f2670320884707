//! Addresses of both families on one scale.

use std::net::IpAddr;

use sonde_wire::prefix::{Prefix, address_bits};

use super::config::ReflectorError;

/// Many addresses, found by bisection.
#[derive(Default)]
pub(super) struct Addresses {
    /// First and last of each range, sorted and apart from each other.
    ranges: Vec<(u128, u128)>,
}

impl Addresses {
    pub(super) fn new(prefixes: &[Prefix]) -> Result<Self, ReflectorError> {
        check(prefixes)?;
        let mapped = |prefix: &Prefix| {
            let (first, last) = prefix.bounds();
            let scale = if prefix.address.is_ipv4() { MAPPED } else { 0 };
            (first | scale, last | scale)
        };
        let mut all: Vec<(u128, u128)> = prefixes.iter().map(mapped).collect();
        all.sort_unstable();
        let mut ranges: Vec<(u128, u128)> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match ranges.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => ranges.push((first, last)),
            }
        }
        Ok(Addresses { ranges })
    }

    /// Whether `address`, on the scale of [`scaled_bits`], is among them.
    #[inline]
    pub(super) fn contain(&self, address: u128) -> bool {
        let after = self.ranges.partition_point(|&(first, _)| first <= address);
        after.checked_sub(1).is_some_and(|i| address <= self.ranges[i].1)
    }
}

/// Whether none has more bits than its address.
pub(super) fn check(prefixes: &[Prefix]) -> Result<(), ReflectorError> {
    match prefixes.iter().find(|prefix| !prefix.is_valid()) {
        Some(&prefix) => Err(ReflectorError::Prefix(prefix)),
        None => Ok(()),
    }
}

/// IPv4 addresses and IPv6 ones on one scale.
#[inline]
pub(super) fn scaled_bits(address: IpAddr) -> u128 {
    address_bits(address) | if address.is_ipv4() { MAPPED } else { 0 }
}

/// Before the bits of an IPv4 address (RFC 4291, section 2.5.5.2).
const MAPPED: u128 = 0xffff_0000_0000;

/// An address that one host can have and be answered at.
#[inline]
pub(super) fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            // 0/8 is "this network", 240/4 is reserved and holds the broadcast address.
            !(a.octets()[0] == 0 || a.is_multicast() || a.octets()[0] >= 240)
        }
        // A mapped address never travels; here it would pass for an IPv4 one.
        IpAddr::V6(a) => !(a.is_unspecified() || a.is_multicast() || a.to_ipv4_mapped().is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_ranges_that_touch_and_overlap() {
        let list = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.255/32", "192.0.2.1/32", "2001:db8::/64"];
        let all = Addresses::new(&list.map(|text| text.parse().unwrap())).unwrap();
        for (address, is_in) in [
            ("9.255.255.255", false),
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("192.0.2.1", true),
            ("192.0.2.2", false),
            ("192.0.2.255", true),
            ("2001:db8::ffff", true),
            ("2001:db8:0:1::", false),
            ("::a00:1", false),
        ] {
            assert_eq!(all.contain(scaled_bits(address.parse().unwrap())), is_in, "{address}");
        }
        assert!(!Addresses::default().contain(0));
        assert!(
            Addresses::new(&[Prefix { address: "10.0.0.0".parse().unwrap(), bits: 33 }]).is_err()
        );
    }
}
