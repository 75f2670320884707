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
