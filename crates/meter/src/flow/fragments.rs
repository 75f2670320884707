//! Which ports and protocol the later fragments of a datagram belong to: only its first
//! fragment has them. Small and bounded; what it forgets counts to a flow with ports 0.

use sonde_wire::feature::{Feature, SHAPE_LATER_FRAGMENT};
use sonde_wire::ipv6;

use super::hash::Hasher;
use super::key::{self, Addresses, Key, Upper};

/// Fragmented datagrams whose first fragment was seen.
pub(super) struct Fragments {
    /// Sets of [`WAYS`].
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    at: i64,
    /// The key without ports and protocol, of one direction.
    key: Key,
    addresses: Addresses,
    identification: u32,
    /// Of the first fragment.
    upper: Upper,
}

impl Fragments {
    pub(super) fn new(flows: usize) -> Self {
        Fragments { entries: vec![Entry::default(); flows.next_power_of_two().clamp(8, ENTRIES)] }
    }

    /// What a fragment's key has above IP: its own if it is the first, that of the first for a
    /// later one. `None` where that was not seen.
    #[cold]
    pub(super) fn upper(&mut self, packet: &Feature, at: i64, hasher: &Hasher) -> Option<Upper> {
        // Hosts count their datagrams by themselves, so the direction counts.
        let (key, side) = Key::new(packet, Upper::default(), false, hasher);
        let addresses = if key.is_ipv6() { key::addresses(packet, side) } else { [0; 4] };
        let identification = packet.sequence;
        let hash = hasher.key(key.ends ^ u64::from(identification), key.rest);
        let sets = self.entries.len() / WAYS;
        let start = (hash as usize & (sets - 1)) * WAYS;
        let set = &mut self.entries[start..start + WAYS];
        let is_later = packet.shape & SHAPE_LATER_FRAGMENT != 0;
        // A datagram is identified by its addresses and identification, and with IPv4 by its
        // protocol (RFC 791, section 3.2; RFC 8200, section 4.5). A first fragment is stored
        // with the protocol behind all other headers. Later ones show their IP header's,
        // which is another one before an authentication header (RFC 4302).
        let any_protocol = key.is_ipv6() || is_later && packet.protocol == ipv6::AH;
        let same = (0..WAYS).filter(|&way| {
            let entry = &set[way];
            entry.key == key
                && entry.identification == identification
                && entry.addresses == addresses
                && (any_protocol || entry.upper.protocol == packet.protocol)
                && (at - entry.at).abs() <= KEPT_NS
        });
        let same = same.max_by_key(|&way| set[way].at);
        if is_later {
            return same.map(|way| set[way].upper);
        }
        let oldest = || (0..WAYS).min_by_key(|&way| set[way].at).unwrap_or(0);
        let (way, upper) = (same.unwrap_or_else(oldest), Upper::of(packet));
        set[way] = Entry { at, key, addresses, identification, upper };
        Some(upper)
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.entries)
    }
}

const WAYS: usize = 4;
const ENTRIES: usize = 4096;
/// Reassembly is given up after 30 s on most hosts; then the identification may be used again.
const KEPT_NS: i64 = 30_000_000_000;

#[cfg(test)]
mod tests {
    use sonde_wire::feature::{SHAPE_FRAGMENT, SHAPE_IPV6};

    use super::*;

    fn fragment(identification: u32, later: bool) -> Feature {
        Feature {
            source: [1; 16],
            destination: [2; 16],
            source_port: if later { 0 } else { 1_000 },
            destination_port: if later { 0 } else { 53 },
            sequence: identification,
            protocol: 17,
            shape: SHAPE_FRAGMENT | if later { SHAPE_LATER_FRAGMENT } else { 0 },
            ..Feature::default()
        }
    }

    const DNS: Option<Upper> =
        Some(Upper { source_port: 1_000, destination_port: 53, protocol: 17 });

    #[test]
    fn later_fragments_have_the_ports_of_their_first() {
        let hasher = Hasher::new([1, 2]);
        let mut fragments = Fragments::new(64);
        assert_eq!(fragments.upper(&fragment(7, true), 0, &hasher), None);
        assert_eq!(fragments.upper(&fragment(7, false), 0, &hasher), DNS);
        assert_eq!(fragments.upper(&fragment(7, true), 1, &hasher), DNS);
        assert_eq!(fragments.upper(&fragment(8, true), 1, &hasher), None);
        let mut other_way = fragment(7, true);
        (other_way.source, other_way.destination) = ([2; 16], [1; 16]);
        assert_eq!(fragments.upper(&other_way, 1, &hasher), None);
        assert_eq!(fragments.upper(&fragment(7, true), KEPT_NS + 1, &hasher), None);
    }

    /// IPv4 identifies the datagrams of each protocol apart, IPv6 all together; the protocol
    /// that a later fragment shows may be a header's in between.
    #[test]
    fn the_protocol_counts_where_the_standards_say_so() {
        let hasher = Hasher::new([1, 2]);
        for (shape, protocol, wanted) in [
            (0, 17, DNS),
            (0, 6, None),
            (0, ipv6::AH, DNS),
            (0, ipv6::DESTINATION, None),
            (SHAPE_IPV6, 17, DNS),
            (SHAPE_IPV6, 6, DNS),
            (SHAPE_IPV6, ipv6::AH, DNS),
            (SHAPE_IPV6, ipv6::DESTINATION, DNS),
        ] {
            let mut fragments = Fragments::new(64);
            let of = |packet: Feature| Feature { shape: packet.shape | shape, ..packet };
            fragments.upper(&of(fragment(7, false)), 0, &hasher);
            let later = Feature { protocol, ..of(fragment(7, true)) };
            assert_eq!(fragments.upper(&later, 1, &hasher), wanted, "{shape} {protocol}");
        }
        // Two datagrams of IPv4 with the same identification: each has its own fragments.
        let mut fragments = Fragments::new(64);
        let tcp = Feature { protocol: 6, ..fragment(7, false) };
        fragments.upper(&fragment(7, false), 1, &hasher);
        fragments.upper(&tcp, 2, &hasher);
        assert_eq!(fragments.upper(&fragment(7, true), 3, &hasher), DNS);
        let later = Feature { protocol: 6, ..fragment(7, true) };
        assert_eq!(fragments.upper(&later, 3, &hasher), Some(Upper::of(&tcp)));
    }

    /// A flood of first fragments stays within the memory, and the latest are known.
    #[test]
    fn a_flood_forgets_the_oldest() {
        let hasher = Hasher::new([1, 2]);
        let mut fragments = Fragments::new(64);
        let memory = fragments.memory();
        for id in 0..100_000 {
            fragments.upper(&fragment(id, false), i64::from(id), &hasher);
            assert!(fragments.upper(&fragment(id, true), i64::from(id), &hasher).is_some());
        }
        assert_eq!(fragments.memory(), memory);
    }
}
