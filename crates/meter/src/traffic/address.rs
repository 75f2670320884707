//! Addresses and ports: an index in, a key out that no other index has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::config::Net;

/// Who talks to whom, without the family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tuple {
    /// Host parts of client and server.
    pub hosts: [u32; 2],
    /// The client's port: one of the dynamic ones (RFC 6335), so that no key is another's
    /// turned round.
    pub client_port: u16,
}

/// Hands out tuples in an order that looks random and repeats after 2^46.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuples {
    secret: u64,
}

impl Tuples {
    pub fn new(secret: u64) -> Self {
        Tuples { secret }
    }

    /// Of `index`, below 2^46.
    pub fn tuple(&self, index: u64) -> Tuple {
        let x = permute(index, self.secret, 46);
        Tuple {
            hosts: [x as u32 & 0xFFFF, (x >> 16) as u32 & 0xFFFF],
            client_port: DYNAMIC | (x >> 32) as u16 & 0x3FFF,
        }
    }

    /// Two hosts that no other `index` below 2^32 has.
    pub fn pair(&self, index: u64) -> [u32; 2] {
        let x = permute(index, !self.secret, 32) as u32;
        [x & 0xFFFF, x >> 16]
    }
}

/// Of flow `index` (below 2^24) of a round: the sources count up, the destination is one.
pub(super) fn in_turn(net: Net, index: u32) -> Tuple {
    let (host, port) = match net {
        Net::Benchmark => (index & 0xFFFF, (index >> 16) as u16),
        Net::Private => (index, 0),
    };
    Tuple { hosts: [host, 1], client_port: DYNAMIC + port }
}

/// The address of host `host` of side `side`: 0 the clients, 1 the servers. Hosts are
/// numbered to 2^16; to 2^24 in the private network.
#[inline]
pub(super) fn v4(net: Net, side: usize, host: u32) -> [u8; 4] {
    let first: u32 = match net {
        Net::Benchmark => 0xC612_0000 | (side as u32) << 16,
        Net::Private => 0x0A00_0000 | (side as u32) << 23,
    };
    (first + host).to_be_bytes()
}

/// The same in 2001:2::/48.
#[inline]
pub(super) fn v6(side: usize, host: u32) -> [u8; 16] {
    let [a, b, c, d] = host.to_be_bytes();
    [0x20, 1, 0, 2, 0, 0, 0, side as u8, 0, 0, 0, 0, a, b, c, d]
}

/// Either, as an address.
pub(super) fn ip(net: Net, is_v6: bool, side: usize, host: u32) -> IpAddr {
    match is_v6 {
        true => Ipv6Addr::from(v6(side, host)).into(),
        false => Ipv4Addr::from(v4(net, side, host)).into(),
    }
}

/// A permutation of the integers of `bits` (even) bits: each step can be undone.
fn permute(index: u64, secret: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    let mut x = (index ^ secret) & mask;
    for odd in [0x9E37_79B9_7F4A_7C15u64, 0xD6E8_FEB8_6659_FD93] {
        x = x.wrapping_mul(odd) & mask;
        x ^= x >> (bits / 2);
    }
    x.wrapping_mul(0xA24B_AED4_963E_E407) & mask
}

/// First dynamic port.
const DYNAMIC: u16 = 0xC000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_numbers_have_the_same_tuple() {
        let tuples = Tuples::new(0x1234_5678_9ABC_DEF0);
        let seen: HashSet<Tuple> = (0..200_000).map(|n| tuples.tuple(n)).collect();
        assert_eq!(seen.len(), 200_000);
        assert!(seen.iter().all(|t| t.client_port >= 49_152));
        let pairs: HashSet<[u32; 2]> = (0..200_000).map(|n| tuples.pair(n)).collect();
        assert_eq!(pairs.len(), 200_000);
    }

    #[test]
    fn a_permutation_of_few_bits_meets_every_number_once() {
        let seen: HashSet<u64> = (0..1 << 16).map(|n| permute(n, 77, 16)).collect();
        assert_eq!(seen.len(), 1 << 16);
    }

    #[test]
    fn addresses_stay_in_the_networks_for_benchmarks() {
        for side in 0..2 {
            for host in [0, 1, 255, 256, 65_535] {
                let [a, b, ..] = v4(Net::Benchmark, side, host);
                assert_eq!((a, b & 0xFE), (198, 18));
                assert_eq!(v4(Net::Private, side, host)[0], 10);
                assert_eq!(v6(side, host)[..6], [0x20, 1, 0, 2, 0, 0]);
            }
        }
    }
}
