//! What one direction carries: sizes, encapsulation, addresses and ports, by rules.

use std::net::IpAddr;

use sonde_wire::ethernet::{HEADER_LEN as ETHERNET_LEN, Mac, Tag};
use sonde_wire::signature;

use super::{FCS_LEN, HEADER_MAX};
use crate::keyed_hash::{GOLDEN, split_mix};

/// The frames of one direction. Frame `n` belongs to flow `n` modulo `flows`, and has the
/// size that stands at that index of the pattern of sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Octets of frame after frame, with the FCS; from the last it goes on with the first
    /// (RFC 6985). Never empty.
    pub sizes: Vec<u32>,
    /// VLAN tags, outermost first; at most two.
    pub tags: Vec<Tag>,
    /// MPLS labels, outermost first (RFC 3032).
    pub labels: Vec<u32>,
    pub source_mac: MacRule,
    /// Destination MAC address: the next hop's, or the far tester port's behind a bridge.
    pub destination_mac: MacRule,
    pub source: AddressRule,
    /// Destination address, of the same family.
    pub destination: AddressRule,
    pub source_port: PortRule,
    pub destination_port: PortRule,
    /// Flows, 1 to 2^20.
    pub flows: u32,
    /// DSCP and ECN (the IPv4 TOS octet, the IPv6 traffic class), of flow after flow in turn;
    /// never empty.
    pub tos: Vec<u8>,
    /// TTL or hop limit as sent.
    pub ttl: u8,
    /// Of everything random.
    pub seed: u64,
}

/// In which order a rule goes through its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueOrder {
    /// One after the other; flow 0 has the first.
    Increment,
    /// Drawn from the seed, flow by flow.
    Random,
}

/// Addresses of the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRule {
    pub first: IpAddr,
    /// Distinct ones, at least 1.
    pub count: u32,
    /// From one to the next: 1, or 256 for a network of 24 bits each.
    pub step: u128,
    pub order: ValueOrder,
}

impl AddressRule {
    pub fn fixed(address: IpAddr) -> AddressRule {
        AddressRule { first: address, count: 1, step: 1, order: ValueOrder::Increment }
    }

    /// That of a flow; wraps at the end of the address space.
    pub fn of(&self, flow: u32, seed: u64) -> IpAddr {
        self.nth(pick(self.order, flow, self.count, seed))
    }

    pub fn all(&self) -> impl Iterator<Item = IpAddr> + '_ {
        (0..self.count.max(1)).map(|n| self.nth(n))
    }

    /// Whether it is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        let distance = match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(a)) => {
                u128::from(a.to_bits().wrapping_sub(first.to_bits()))
            }
            (IpAddr::V6(first), IpAddr::V6(a)) => a.to_bits().wrapping_sub(first.to_bits()),
            _ => return false,
        };
        let step = self.step.max(1);
        distance.is_multiple_of(step) && distance / step < u128::from(self.count.max(1))
    }

    fn nth(&self, n: u32) -> IpAddr {
        let add = u128::from(n).wrapping_mul(self.step);
        match self.first {
            IpAddr::V4(a) => IpAddr::V4(a.to_bits().wrapping_add(add as u32).into()),
            IpAddr::V6(a) => IpAddr::V6(a.to_bits().wrapping_add(add).into()),
        }
    }
}

/// UDP ports of the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRule {
    pub first: u16,
    pub last: u16,
    pub order: ValueOrder,
}

impl PortRule {
    /// Pseudo-random source ports (RFC 4814, section 4.5).
    pub const RFC4814_SOURCE: PortRule =
        PortRule { first: 1024, last: 65_535, order: ValueOrder::Random };
    /// Pseudo-random destination ports (RFC 4814, section 4.5).
    pub const RFC4814_DESTINATION: PortRule =
        PortRule { first: 1, last: 49_151, order: ValueOrder::Random };

    pub const fn fixed(port: u16) -> PortRule {
        PortRule { first: port, last: port, order: ValueOrder::Increment }
    }

    pub fn of(&self, flow: u32, seed: u64) -> u16 {
        let count = u32::from(self.last.saturating_sub(self.first)) + 1;
        self.first + pick(self.order, flow, count, seed) as u16
    }
}

/// MAC addresses of the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacRule {
    Fixed(Mac),
    /// One after the other, so many.
    Increment {
        first: Mac,
        /// How many there are; then the first comes again.
        count: u32,
    },
    /// Pseudo-random, one a flow, unicast; unlike those of RFC 4814, section 4.2, locally
    /// administered, and without the index of a port.
    /// Both directions of a bridge's test use the same seed, so that it knows them.
    Random {
        /// Distinguishes them from others drawn likewise: those of the other port.
        seed: u64,
    },
    /// That of the flow's multicast group (RFC 1112, section 6.4; RFC 2464, section 7).
    Group,
}

impl MacRule {
    /// That of a flow, to `destination`.
    pub fn of(&self, flow: u32, destination: IpAddr) -> Mac {
        match *self {
            MacRule::Fixed(mac) => mac,
            MacRule::Increment { first, count } => {
                let bits = first.iter().fold(0u64, |all, &b| all << 8 | u64::from(b));
                low_48(bits + u64::from(flow % count.max(1)))
            }
            MacRule::Random { seed } => {
                let bits = split_mix(seed ^ u64::from(flow).wrapping_mul(GOLDEN));
                let [_, rest @ ..] = low_48(bits);
                [0x02, rest[0], rest[1], rest[2], rest[3], rest[4]]
            }
            MacRule::Group => match destination {
                IpAddr::V4(group) => {
                    let [_, b, c, d] = group.octets();
                    [0x01, 0x00, 0x5e, b & 0x7f, c, d]
                }
                IpAddr::V6(group) => {
                    let [.., a, b, c, d] = group.octets();
                    [0x33, 0x33, a, b, c, d]
                }
            },
        }
    }
}

/// Why a load cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LoadError {
    /// Too short for headers and signature.
    #[error(
        "frames of {octets} octets are too short: headers, signature and FCS take {least} here \
         ({what}); use frames of at least {least}"
    )]
    Short {
        /// The size asked for.
        octets: u32,
        least: u32,
        /// Of what it is made.
        what: String,
    },
    /// Longer than the link carries.
    #[error(
        "frames of {octets} octets are longer than the interface's MTU of {mtu} allows \
         ({longest}); raise the MTU or use shorter frames"
    )]
    Long {
        /// The size asked for.
        octets: u32,
        mtu: u32,
        longest: u32,
    },
    /// Rules that do not go together.
    #[error("{0}")]
    Rule(String),
}

impl Traffic {
    /// Flows, at most.
    pub const FLOWS_MAX: u32 = 1 << 20;
    /// Frames after which the sizes repeat, at most.
    pub const SIZES_MAX: usize = 1 << 16;

    /// Whether the frames can be made, and sent by an interface of this MTU.
    ///
    /// # Errors
    /// All of [`LoadError`].
    pub fn check(&self, mtu: u32) -> Result<(), LoadError> {
        let rule = |what: &str| Err(LoadError::Rule(what.to_owned()));
        if self.sizes.is_empty() || self.sizes.len() > Self::SIZES_MAX {
            return Err(LoadError::Rule(format!("1 to {} frame sizes", Self::SIZES_MAX)));
        }
        if self.source.first.is_ipv4() != self.destination.first.is_ipv4() {
            return rule("source and destination are of different address families");
        }
        if self.tags.len() > 2 {
            return rule("a frame has at most two VLAN tags");
        }
        if self.flows == 0 || self.flows > Self::FLOWS_MAX {
            return Err(LoadError::Rule(format!(
                "1 to {} flows, not {}",
                Self::FLOWS_MAX,
                self.flows
            )));
        }
        if self.tos.is_empty() {
            return rule("no traffic class");
        }
        if self.source.count == 0 || self.destination.count == 0 {
            return rule("a rule for addresses without an address");
        }
        for ports in [self.source_port, self.destination_port] {
            if ports.first > ports.last {
                return rule("a range of ports that ends before it begins");
            }
        }
        if self.header_len() > HEADER_MAX || self.labels.iter().any(|&l| l > 0xf_ffff) {
            return rule("too many MPLS labels, or one above 2^20 - 1");
        }
        let least = self.shortest();
        if self.shortest_size() < least {
            let what = format!(
                "{} octets of headers, {} of signature, {FCS_LEN} of FCS",
                self.header_len(),
                signature::LEN
            );
            return Err(LoadError::Short { octets: self.shortest_size(), least, what });
        }
        let longest = mtu + (ETHERNET_LEN + 4 * self.tags.len() + FCS_LEN) as u32;
        if self.longest_size() > longest {
            return Err(LoadError::Long { octets: self.longest_size(), mtu, longest });
        }
        Ok(())
    }

    /// Octets up to the end of the UDP header.
    pub fn header_len(&self) -> usize {
        self.l3_at() + if self.ipv6() { 40 } else { 20 } + 8
    }

    /// The shortest frame that holds headers and signature, with the FCS; at least 64 octets.
    pub fn shortest(&self) -> u32 {
        (self.header_len() + signature::LEN + FCS_LEN).max(64) as u32
    }

    /// The least of the sizes, octets with the FCS.
    pub fn shortest_size(&self) -> u32 {
        self.sizes.iter().copied().min().unwrap_or(0)
    }

    /// The greatest of the sizes, octets with the FCS.
    pub fn longest_size(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    pub fn ipv6(&self) -> bool {
        self.source.first.is_ipv6()
    }

    pub(super) fn l3_at(&self) -> usize {
        ETHERNET_LEN + 4 * (self.tags.len() + self.labels.len())
    }
}

fn pick(order: ValueOrder, flow: u32, count: u32, seed: u64) -> u32 {
    let count = count.max(1);
    match order {
        ValueOrder::Increment => flow % count,
        ValueOrder::Random => {
            let bits = split_mix(seed ^ u64::from(flow).wrapping_mul(GOLDEN));
            (((bits >> 32) * u64::from(count)) >> 32) as u32
        }
    }
}

fn low_48(bits: u64) -> Mac {
    let [_, _, mac @ ..] = bits.to_be_bytes();
    mac
}
