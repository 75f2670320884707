//! Address prefixes, and those that are set aside for benchmarks (RFC 6815).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// A set of addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    /// One of them: the first, where it was read from text.
    pub address: IpAddr,
    /// Leading bits that count: 0 to 32 for IPv4, 0 to 128 for IPv6.
    pub bits: u8,
}

/// The addresses set aside for benchmarks, outside of which they do harm (RFC 6815): RFC 2544,
/// appendix C.2.2, and RFC 5180, section 8.
pub const BENCHMARK_PREFIXES: [Prefix; 2] = [
    Prefix { address: IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), bits: 15 },
    Prefix { address: IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0)), bits: 48 },
];

/// Whether test frames may have all addresses of `prefix`: it lies in one of those set aside for
/// benchmarks, or in one of `allowed`.
pub fn is_for_benchmarks(prefix: Prefix, allowed: &[Prefix]) -> bool {
    BENCHMARK_PREFIXES.iter().chain(allowed).any(|p| p.covers(prefix))
}

impl Prefix {
    /// Of a single address.
    pub fn of(address: IpAddr) -> Prefix {
        Prefix { address, bits: width(address) }
    }

    /// Its addresses as [`address_bits`], first and last.
    pub fn bounds(self) -> (u128, u128) {
        let bits = address_bits(self.address);
        let free = u32::from(width(self.address).saturating_sub(self.bits));
        let mask = 1u128.checked_shl(free).map_or(u128::MAX, |end| end - 1);
        (bits & !mask, bits | mask)
    }

    /// The same addresses by the first of them.
    pub fn network(self) -> Prefix {
        let first = self.bounds().0;
        let address = match self.address {
            IpAddr::V4(_) => Ipv4Addr::from_bits(first as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(first).into(),
        };
        Prefix { address, bits: self.bits }
    }

    /// Whether it has no more bits than its address.
    pub fn is_valid(self) -> bool {
        self.bits <= width(self.address)
    }

    /// Whether it is one address alone.
    pub fn is_host(self) -> bool {
        self.bits == width(self.address)
    }

    /// Whether `address` is among its own.
    #[inline]
    pub fn contains(self, address: IpAddr) -> bool {
        let (differ, width) = match (self.address, address) {
            (IpAddr::V4(p), IpAddr::V4(a)) => (u128::from(p.to_bits() ^ a.to_bits()), 32u32),
            (IpAddr::V6(p), IpAddr::V6(a)) => (p.to_bits() ^ a.to_bits(), 128),
            _ => return false,
        };
        differ.checked_shr(width.saturating_sub(self.bits.into())).unwrap_or(0) == 0
    }

    /// Whether all addresses of `other` are among its own.
    pub fn covers(self, other: Prefix) -> bool {
        let ((first, last), (low, high)) = (self.bounds(), other.bounds());
        self.address.is_ipv4() == other.address.is_ipv4() && first <= low && high <= last
    }
}

/// An address as an integer, 32 or 128 bits wide.
pub fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => a.to_bits().into(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Its address and length.
impl From<Prefix> for (IpAddr, u8) {
    fn from(prefix: Prefix) -> Self {
        (prefix.address, prefix.bits)
    }
}

/// Why a text is no prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixError {
    /// Not an address with a length.
    Syntax,
    /// Bits are set after those that count, here so many: a typing error more often than not.
    BitsSet(u8),
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefixError::Syntax => {
                f.write_str("this is not a prefix; write 192.0.2.0/24 or 2001:db8::/32")
            }
            PrefixError::BitsSet(bits) => {
                write!(f, "this has bits set after the first {bits}; write its first address")
            }
        }
    }
}

impl core::error::Error for PrefixError {}

/// "192.0.2.0/24"; a bare address is its own prefix.
impl FromStr for Prefix {
    type Err = PrefixError;
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Syntax)?;
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|&b| b <= width(address)),
            None => Some(width(address)),
        };
        let prefix = Prefix { address, bits: bits.ok_or(PrefixError::Syntax)? };
        if prefix.bounds().0 != address_bits(address) {
            return Err(PrefixError::BitsSet(prefix.bits));
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        for text in ["192.0.2.0/24", "0.0.0.0/0", "2001:db8::/32", "::/0", "192.0.2.1/32"] {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("::1"), Prefix { address: "::1".parse().unwrap(), bits: 128 });
        assert_eq!(prefix("::/0").bounds(), (0, u128::MAX));
        assert_eq!("10.0.0.1/8".parse::<Prefix>(), Err(PrefixError::BitsSet(8)));
        for text in ["", "x/8", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1"] {
            assert_eq!(text.parse::<Prefix>(), Err(PrefixError::Syntax), "{text}");
        }
    }

    #[test]
    fn a_prefix_covers_what_lies_in_it() {
        for (all, part, whether) in [
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.0.0.0/8", "10.0.0.0/8", true),
            ("10.1.0.0/16", "10.0.0.0/8", false),
            ("10.0.0.0/8", "11.0.0.0/16", false),
            ("::/0", "10.0.0.0/8", false),
            ("0.0.0.0/0", "10.0.0.1", true),
            ("2001:2::/48", "2001:2:0:8000::/49", true),
        ] {
            assert_eq!(prefix(all).covers(prefix(part)), whether, "{all} {part}");
        }
        // An address with the length of its network.
        let port = Prefix { address: "10.1.2.3".parse().unwrap(), bits: 16 };
        assert_eq!(port.network(), prefix("10.1.0.0/16"));
        assert!(prefix("10.1.0.0/16").covers(port) && !prefix("10.1.2.0/24").covers(port));
    }

    #[test]
    fn a_prefix_contains_addresses_of_its_family_alone() {
        for (all, address, whether) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.0", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("2001:db8::/64", "2001:db8::5", true),
            ("2001:db8::/64", "10.0.0.1", false),
            ("::/0", "2001:db8::5", true),
            ("::/0", "10.0.0.1", false),
        ] {
            assert_eq!(prefix(all).contains(address.parse().unwrap()), whether, "{all} {address}");
        }
        let longer = Prefix { address: "10.0.0.0".parse().unwrap(), bits: 33 };
        assert!(!longer.is_valid() && prefix("::/0").is_valid());
        assert!(prefix("::1").is_host() && !prefix("10.0.0.0/8").is_host());
    }

    #[test]
    fn benchmarks_stay_where_they_do_no_harm() {
        let lab = [prefix("10.0.0.0/8"), prefix("192.0.2.0/24")];
        for (text, alone, allowed) in [
            ("198.18.0.0/16", true, true),
            ("198.19.255.255", true, true),
            ("198.16.0.0/14", false, false),
            ("2001:2::1", true, true),
            ("2001:2:1::", false, false),
            ("10.1.0.0/16", false, true),
            ("192.0.2.7", false, true),
            ("192.0.0.0/16", false, false),
        ] {
            assert_eq!(is_for_benchmarks(prefix(text), &[]), alone, "{text}");
            assert_eq!(is_for_benchmarks(prefix(text), &lab), allowed, "{text}");
        }
    }
}
