//! Which ports the later fragments of a datagram belong to: only its first fragment has them
//! (RFC 791, section 3.2; RFC 8200, section 4.5). Small and bounded; what it forgets counts
//! to a flow with ports 0.

use sonde_wire::feature::{Feature, SHAPE_LATER_FRAGMENT};

use super::hash::Hasher;
use super::key::{self, Addresses, Key};

/// Datagrams in pieces.
pub(super) struct Fragments {
    /// Sets of [`WAYS`].
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    at: i64,
    /// The key with ports 0, of one direction.
    key: Key,
    addresses: Addresses,
    identification: u32,
    ports: (u16, u16),
}

impl Fragments {
    pub(super) fn new(flows: usize) -> Self {
        Fragments { entries: vec![Entry::default(); flows.next_power_of_two().clamp(8, ENTRIES)] }
    }

    /// The ports of a fragment: its own if it is the first, those of the first for a later
    /// one; `None` where that was not seen.
    #[cold]
    pub(super) fn ports(
        &mut self,
        packet: &Feature,
        at: i64,
        hasher: &Hasher,
    ) -> Option<(u16, u16)> {
        // Hosts number their datagrams by themselves, so the direction counts.
        let (key, side) = Key::new(packet, (0, 0), false, hasher);
        let addresses = if key.is_ipv6() { key::addresses(packet, side) } else { [0; 4] };
        let identification = packet.sequence;
        let hash = hasher.key(key.ends ^ u64::from(identification), key.rest);
        let sets = self.entries.len() / WAYS;
        let start = (hash as usize & (sets - 1)) * WAYS;
        let set = &mut self.entries[start..start + WAYS];
        let same = set.iter().position(|entry| {
            entry.key == key
                && entry.identification == identification
                && entry.addresses == addresses
                && (at - entry.at).abs() <= KEPT_NS
        });
        if packet.shape & SHAPE_LATER_FRAGMENT != 0 {
            return same.map(|way| set[way].ports);
        }
        let ports = (packet.source_port, packet.destination_port);
        let oldest = || (0..WAYS).min_by_key(|&way| set[way].at).unwrap_or(0);
        let way = same.unwrap_or_else(oldest);
        set[way] = Entry { at, key, addresses, identification, ports };
        Some(ports)
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
    use sonde_wire::feature::SHAPE_FRAGMENT;

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

    #[test]
    fn later_fragments_have_the_ports_of_their_first() {
        let hasher = Hasher::new([1, 2]);
        let mut fragments = Fragments::new(64);
        assert_eq!(fragments.ports(&fragment(7, true), 0, &hasher), None);
        assert_eq!(fragments.ports(&fragment(7, false), 0, &hasher), Some((1_000, 53)));
        assert_eq!(fragments.ports(&fragment(7, true), 1, &hasher), Some((1_000, 53)));
        assert_eq!(fragments.ports(&fragment(8, true), 1, &hasher), None);
        let mut other_way = fragment(7, true);
        (other_way.source, other_way.destination) = ([2; 16], [1; 16]);
        assert_eq!(fragments.ports(&other_way, 1, &hasher), None);
        assert_eq!(fragments.ports(&fragment(7, true), KEPT_NS + 1, &hasher), None);
    }

    /// A flood of first fragments stays within the memory, and the latest are known.
    #[test]
    fn a_flood_forgets_the_oldest() {
        let hasher = Hasher::new([1, 2]);
        let mut fragments = Fragments::new(64);
        let memory = fragments.memory();
        for id in 0..100_000 {
            fragments.ports(&fragment(id, false), i64::from(id), &hasher);
            assert!(fragments.ports(&fragment(id, true), i64::from(id), &hasher).is_some());
        }
        assert_eq!(fragments.memory(), memory);
    }
}
