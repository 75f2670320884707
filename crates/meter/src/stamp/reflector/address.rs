//! Addresses of both families on one scale, and prefixes of them.

use std::net::IpAddr;

use super::config::ReflectorError;

/// Addresses that have the bits of `network` under `mask`; IPv4 as mapped.
#[derive(Clone, Copy)]
pub(super) struct Prefix {
    is_ipv6: bool,
    network: u128,
    mask: u128,
}

impl Prefix {
    /// The network that `address` is in.
    pub(super) fn new(address: IpAddr, length: u8) -> Result<Self, ReflectorError> {
        let (most, before) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        if length > most {
            return Err(ReflectorError::Prefix(address, length));
        }
        let mask = u128::MAX.checked_shl(128 - before - u32::from(length)).unwrap_or(0);
        Ok(Prefix { is_ipv6: address.is_ipv6(), network: number(address) & mask, mask })
    }

    /// Whether `address`, on the scale of [`number`], is in it.
    #[inline]
    pub(super) fn contains(&self, is_ipv6: bool, address: u128) -> bool {
        self.is_ipv6 == is_ipv6 && address & self.mask == self.network
    }
}

/// Many addresses, found by bisection.
#[derive(Default)]
pub(super) struct Addresses {
    /// First and last of each range, sorted and apart from each other.
    ranges: Vec<(u128, u128)>,
}

impl Addresses {
    pub(super) fn new(prefixes: &[(IpAddr, u8)]) -> Result<Self, ReflectorError> {
        let mut all = Vec::with_capacity(prefixes.len());
        for &(address, length) in prefixes {
            let prefix = Prefix::new(address, length)?;
            all.push((prefix.network, prefix.network | !prefix.mask));
        }
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

    /// Whether `address`, on the scale of [`number`], is among them.
    #[inline]
    pub(super) fn contain(&self, address: u128) -> bool {
        let after = self.ranges.partition_point(|&(first, _)| first <= address);
        after.checked_sub(1).is_some_and(|i| address <= self.ranges[i].1)
    }
}

/// IPv4 addresses and IPv6 ones on one scale.
#[inline]
pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => 0xffff_0000_0000 | u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}

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
        let of = |text: &str| {
            let (address, length) = text.split_once('/').unwrap();
            (address.parse().unwrap(), length.parse().unwrap())
        };
        let list = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.255/32", "192.0.2.1/32", "2001:db8::/64"];
        let all = Addresses::new(&list.map(of)).unwrap();
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
            assert_eq!(all.contain(number(address.parse().unwrap())), is_in, "{address}");
        }
        assert!(!Addresses::default().contain(0));
        assert!(Addresses::new(&[("10.0.0.0".parse().unwrap(), 33)]).is_err());
    }
}
