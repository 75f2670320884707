//! Which stream a reply belongs to: a table keyed by the peer's address and port and our port,
//! made anew when streams are added.

use std::net::{IpAddr, SocketAddr};

use crate::keyed_hash::KeyedHash;

/// Peer address and port and local port, packed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    address: u128,
    ports: u32,
}

/// From reply addresses to stream indexes.
pub(crate) struct Demux {
    keys: Vec<Key>,
    slots: Vec<u32>,
    hash: KeyedHash,
    /// Local ports, ascending, and their stream if they have but one.
    ports: Vec<(u16, Option<u32>)>,
}

impl Demux {
    /// For streams with the given (peer, local port) pairs. `Err(i)`: stream `i`
    /// has the same ones as an earlier stream, their replies could not be distinguished.
    pub(crate) fn new(
        streams: impl Iterator<Item = (SocketAddr, u16)>,
        secret: u64,
    ) -> Result<Self, usize> {
        let keys = streams.map(|(peer, local)| key(peer.ip(), peer.port(), local)).collect();
        Demux::of(keys, KeyedHash::new([secret, 0]), |_| false)
    }

    /// With further streams behind those that are there, without those that `is_forgotten` names.
    /// `Err(i)`: as [`Demux::new`].
    pub(crate) fn with(
        &self,
        is_forgotten: impl Fn(usize) -> bool,
        added: impl Iterator<Item = (SocketAddr, u16)>,
    ) -> Result<Self, usize> {
        let added = added.map(|(peer, local)| key(peer.ip(), peer.port(), local));
        let there = self.keys.len();
        let keys = self.keys.iter().copied().chain(added).collect();
        Demux::of(keys, self.hash, |i| i < there && is_forgotten(i))
    }

    fn of(
        keys: Vec<Key>,
        hash: KeyedHash,
        is_forgotten: impl Fn(usize) -> bool,
    ) -> Result<Self, usize> {
        let mut demux = Demux {
            slots: vec![EMPTY; (keys.len() * 2).next_power_of_two().max(2)],
            keys: Vec::new(),
            hash,
            ports: Vec::new(),
        };
        let known = || keys.iter().enumerate().filter(|(i, _)| !is_forgotten(*i));
        let mut ports: Vec<_> = known().map(|(i, k)| (k.ports as u16, Some(i as u32))).collect();
        ports.sort_unstable();
        ports.dedup_by(|next, first| {
            let same = next.0 == first.0;
            if same {
                first.1 = None;
            }
            same
        });
        demux.ports = ports;
        for (i, &k) in known() {
            let (slot, found) = demux.find(&keys, k);
            if found.is_some() {
                return Err(i);
            }
            demux.slots[slot] = i as u32;
        }
        demux.keys = keys;
        Ok(demux)
    }

    /// The stream that the reply from `peer` to our port `local` belongs to.
    #[inline]
    pub(crate) fn lookup(&self, peer: IpAddr, peer_port: u16, local: u16) -> Option<u32> {
        self.find(&self.keys, key(peer, peer_port, local)).1
    }

    /// The stream that uses our port `local`, if there is but one.
    pub(crate) fn only_stream_of(&self, local: u16) -> Option<u32> {
        let i = self.ports.binary_search_by_key(&local, |&(port, _)| port).ok()?;
        self.ports[i].1
    }

    #[inline]
    fn find(&self, keys: &[Key], k: Key) -> (usize, Option<u32>) {
        let mask = self.slots.len() - 1;
        let mut slot = self.hash.addresses(k.address, 0, k.ports.into()) as usize & mask;
        loop {
            match self.slots[slot] {
                EMPTY => return (slot, None),
                i if keys[i as usize] == k => return (slot, Some(i)),
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

#[inline]
fn key(address: IpAddr, peer_port: u16, local_port: u16) -> Key {
    let address = match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().to_bits(),
        IpAddr::V6(a) => a.to_bits(),
    };
    Key { address, ports: u32::from(peer_port) << 16 | u32::from(local_port) }
}

const EMPTY: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn every_stream_is_found_and_nothing_else() {
        let peer = |i: u32| SocketAddr::new(Ipv4Addr::from(0x0a02_0000 + i / 5).into(), 862);
        let demux =
            Demux::new((0..20_000).map(|i| (peer(i), 50_000 + (i % 5) as u16)), 0x1234).unwrap();
        for i in 0..20_000 {
            assert_eq!(demux.lookup(peer(i).ip(), 862, 50_000 + (i % 5) as u16), Some(i));
        }
        assert_eq!(demux.lookup(peer(0).ip(), 862, 50_005), None);
        assert_eq!(demux.lookup(peer(0).ip(), 863, 50_000), None);
        assert_eq!(demux.only_stream_of(50_000), None, "many");
        assert_eq!(demux.lookup("::1".parse().unwrap(), 862, 50_000), None);
    }

    #[test]
    fn streams_come_and_go() {
        let s: SocketAddr = "192.0.2.1:862".parse().unwrap();
        let two = Demux::new([(s, 1), (s, 2)].into_iter(), 1).unwrap();
        assert_eq!(two.with(|_| false, [(s, 3), (s, 2)].into_iter()).err(), Some(3));
        // What is forgotten makes room for the same again.
        let three = two.with(|i| i == 1, [(s, 2)].into_iter()).unwrap();
        let found = [1, 2].map(|port| three.lookup(s.ip(), 862, port));
        assert_eq!(found, [Some(0), Some(2)]);
        assert_eq!(three.only_stream_of(2), Some(2));
    }

    #[test]
    fn two_streams_alike_are_refused() {
        let s: SocketAddr = "192.0.2.1:862".parse().unwrap();
        let two = Demux::new([(s, 1), (s, 2)].into_iter(), 1).unwrap();
        assert_eq!((two.only_stream_of(2), two.only_stream_of(3)), (Some(1), None));
        assert_eq!(Demux::new([(s, 1), (s, 2), (s, 1)].into_iter(), 1).err(), Some(2));
    }
}
