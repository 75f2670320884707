//! Which of several threads meters a packet of a capture. All of them read the whole file,
//! and each meters its shard, by a hash of the two addresses that both directions have.

use sonde_meter::keyed_hash::fold;
use sonde_wire::feature::{Feature, Keys};
use sonde_wire::flow::LinkType;

/// One thread's shard of the packets.
#[derive(Clone, Copy, Debug)]
pub struct Shard {
    index: u32,
    of: u32,
    secret: [u64; 2],
    looks: bool,
}

impl Shard {
    /// The only shard: all packets are its own.
    pub fn whole() -> Shard {
        Shard { index: 0, of: 1, secret: [0; 2], looks: false }
    }

    /// That of thread `index` of `of`, which have the same `secret`: without it nobody can
    /// make up packets that all meet at one thread. Where every packet must be parsed by every
    /// thread, `parses_all`, none can be skipped by a look at its frame.
    pub fn new(index: usize, of: usize, secret: [u64; 2], keys: Keys, parses_all: bool) -> Shard {
        let looks = keys == Keys::Outer && !parses_all;
        // Not the key by which the cache finds its buckets.
        let secret =
            [secret[0].rotate_left(17) ^ KEY_MASKS[0], secret[1].rotate_left(31) ^ KEY_MASKS[1]];
        Shard { index: index as u32, of: of as u32, secret, looks }
    }

    /// The packet is in it.
    #[inline]
    pub fn has(&self, packet: &Feature) -> bool {
        if self.of == 1 {
            return true;
        }
        let address = |a: &[u8; 16]| u128::from_be_bytes(*a);
        self.owner(address(&packet.source), address(&packet.destination)) == self.index
    }

    /// The frame is of no concern: the packet in it, if there is one, is another thread's.
    /// Most of those are known without being parsed.
    #[inline]
    pub fn can_skip(&self, frame: &[u8], link: LinkType) -> bool {
        self.of > 1 && self.looks && self.look(frame, link).is_some_and(|n| n != self.index)
    }

    /// Whether this thread counts what is wrong with a frame that cannot be parsed: one does.
    #[cold]
    pub fn counts_refused(&self, frame: &[u8], link: LinkType) -> bool {
        let owner = if self.looks { self.look(frame, link) } else { None };
        self.of == 1 || owner.unwrap_or(0) == self.index
    }

    /// This thread reports what all of them have seen.
    pub fn reports_all(&self) -> bool {
        self.index == 0
    }

    /// The thread of a plain packet, by the two addresses where they nearly always are.
    #[inline]
    fn look(&self, frame: &[u8], link: LinkType) -> Option<u32> {
        if link == LinkType::Ethernet
            && let Some(head) = frame.first_chunk::<34>()
            && head[12..14] == [0x08, 0x00]
            && head[14] >> 4 == 4
        {
            let address = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| head[at + i]));
            return Some(self.owner_v4(address(26), address(30)));
        }
        self.look_further(frame, link)
    }

    #[inline(never)]
    fn look_further(&self, frame: &[u8], link: LinkType) -> Option<u32> {
        let packet = match (link, frame) {
            (LinkType::Ethernet, [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xDD, packet @ ..])
                if packet.first()? >> 4 == 6 =>
            {
                packet
            }
            (LinkType::RawIp, packet) => packet,
            _ => return None,
        };
        let address = |at: usize, len: usize| -> Option<u128> {
            let octets = packet.get(at..at + len)?;
            Some(octets.iter().fold(0, |value, octet| value << 8 | u128::from(*octet)))
        };
        match packet.first()? >> 4 {
            4 => Some(self.owner_v4(address(12, 4)? as u32, address(16, 4)? as u32)),
            6 => Some(self.owner(address(8, 16)?, address(24, 16)?)),
            _ => None,
        }
    }

    /// By the addresses, whoever sends; IPv4 as `::ffff:a.b.c.d`.
    #[inline]
    fn owner(&self, a: u128, b: u128) -> u32 {
        if a >> 32 == MAPPED && b >> 32 == MAPPED {
            return self.owner_v4(a as u32, b as u32);
        }
        let (low, high) = (a.min(b), a.max(b));
        let [k, l] = self.secret;
        let ends = [low, high].map(|n| fold(n as u64 ^ k, (n >> 64) as u64 ^ l));
        self.part(fold(ends[0] ^ l, ends[1].rotate_left(23) ^ k))
    }

    #[inline]
    fn owner_v4(&self, a: u32, b: u32) -> u32 {
        let both = u64::from(a.max(b)) << 32 | u64::from(a.min(b));
        self.part(fold(both ^ self.secret[0], self.secret[1] | 1))
    }

    #[inline]
    fn part(&self, hash: u64) -> u32 {
        (((hash >> 32) * u64::from(self.of)) >> 32) as u32
    }
}

/// Before an IPv4 address in an IPv6 one (RFC 4291, section 2.5.5.2).
const MAPPED: u128 = 0xFFFF;
/// Digits of pi.
const KEY_MASKS: [u64; 2] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7345];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sonde_wire::feature::parse_cut;

    const OF: usize = 3;

    fn shards(keys: Keys) -> Vec<Shard> {
        (0..OF).map(|i| Shard::new(i, OF, [3, 4], keys, false)).collect()
    }

    /// The one shard that has a packet, or counts what is wrong with it. Others may skip it.
    fn owner(frame: &[u8], link: LinkType, keys: Keys) -> usize {
        let owners: Vec<usize> = shards(keys)
            .iter()
            .enumerate()
            .filter(|(_, shard)| match parse_cut(frame, frame.len(), link, keys, 0, 0) {
                Ok((packet, _)) => {
                    assert!(!(shard.has(&packet) && shard.can_skip(frame, link)));
                    shard.has(&packet)
                }
                Err(_) => {
                    let counts = shard.counts_refused(frame, link);
                    assert!(!(counts && shard.can_skip(frame, link)));
                    counts
                }
            })
            .map(|(i, _)| i)
            .collect();
        assert_eq!(owners.len(), 1, "{frame:02x?}");
        owners[0]
    }

    /// UDP over IPv4 or IPv6 over Ethernet, or without Ethernet.
    fn packet(v6: bool, ends: [u32; 2], ethernet: bool) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(if v6 { [0x86, 0xDD] } else { [8, 0] });
        if !ethernet {
            frame.clear();
        }
        if v6 {
            frame.extend([0x60, 0, 0, 0, 0, 8, 17, 64]);
            for end in ends {
                frame.extend([0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0]);
                frame.extend(end.to_be_bytes());
            }
        } else {
            frame.extend([0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0]);
            ends.iter().for_each(|end| frame.extend(end.to_be_bytes()));
        }
        frame.extend([0, 7, 0, 9, 0, 8, 0, 0]);
        frame
    }

    #[test]
    fn both_directions_have_one_owner_and_the_flows_spread() {
        for v6 in [false, true] {
            let mut counts = [0u32; OF];
            for i in 0..3_000u32 {
                let ends = [i.wrapping_mul(0x9E37_79B9), 7];
                let forth = owner(&packet(v6, ends, true), LinkType::Ethernet, Keys::Outer);
                let back = packet(v6, [ends[1], ends[0]], false);
                assert_eq!(owner(&back, LinkType::RawIp, Keys::Outer), forth);
                assert_eq!(owner(&back, LinkType::RawIp, Keys::Inner), forth);
                let others = shards(Keys::Outer);
                let skipped = others.iter().filter(|s| s.can_skip(&back, LinkType::RawIp)).count();
                assert_eq!(skipped, OF - 1);
                counts[forth] += 1;
            }
            assert!(counts.iter().all(|n| (900..1_100).contains(n)), "{counts:?}");
        }
    }

    proptest! {
        #[test]
        fn every_frame_has_one_owner(
            mut frame in proptest::collection::vec(any::<u8>(), 0..80),
            kind in 0..4,
            inner: bool,
        ) {
            let keys = if inner { Keys::Inner } else { Keys::Outer };
            let link = if kind == 3 { LinkType::RawIp } else { LinkType::Ethernet };
            let known: &[u8] =
                [&[8, 0, 0x45][..], &[0x86, 0xDD, 0x60], &[0x81, 0], &[]][kind as usize];
            if let Some(to) = frame.get_mut(12..12 + known.len()) {
                to.copy_from_slice(known);
            }
            owner(&frame, link, keys);
        }
    }
}
