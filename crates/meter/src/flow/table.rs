//! The index from keys to slots: buckets of eight in one cache line each.
//!
//! A key has a home bucket and, found from there by its tag, one other. It lies at home
//! unless there was no room, and a bucket counts its keys that lie elsewhere: most searches
//! end in one line. Where both are full, one resident is moved to its own other bucket. The
//! index has more entries than there are slots, so that this practically always finds one.

use super::prefetch::{Bucket, WAYS, equal, prefetch, zeroed};

/// The index. Slots are below the number of flows, and their records are not its business.
pub(super) struct Index {
    buckets: Vec<Bucket>,
}

/// What the index takes of a key's hash.
#[derive(Clone, Copy, Default)]
pub(super) struct HashParts {
    /// The bucket where the key lies unless there was no room.
    pub(super) home: u32,
    pub(super) tag: u16,
}

impl Index {
    /// An empty index with room for `flows` slots.
    pub(super) fn new(flows: usize) -> Self {
        // 4/5 full at most, so that moving one resident is always enough; and small ones wide
        // enough that chance does not fill two buckets before the rest.
        let buckets = flows.div_ceil(WAYS) * 5 / 4 + 16;
        Index { buckets: zeroed(buckets) }
    }

    #[inline]
    pub(super) fn parts(&self, hash: u64) -> HashParts {
        HashParts { home: Index::home(hash, self.len()), tag: (hash as u16).max(1) }
    }

    /// The home bucket of a hash among `buckets`.
    #[inline]
    pub(super) fn home(hash: u64, buckets: usize) -> u32 {
        (((hash >> 32) * buckets as u64) >> 32) as u32
    }

    /// How many buckets there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Fetches the line of a key's home.
    #[inline]
    pub(super) fn prefetch_home(&self, parts: HashParts) {
        prefetch(&self.buckets, parts.home as usize);
    }

    /// Fetches the line of a key's other bucket.
    #[inline]
    pub(super) fn prefetch_other(&self, parts: HashParts) {
        prefetch(&self.buckets, self.other(parts.home, parts.tag) as usize);
    }

    /// A slot in the home bucket with the key's tag: very likely the key's.
    #[inline]
    pub(super) fn likely_home(&self, parts: HashParts) -> Option<u32> {
        self.buckets[parts.home as usize].likely(parts.tag)
    }

    /// Whether a key may lie in its other bucket.
    #[inline]
    pub(super) fn is_other_possible(&self, parts: HashParts) -> bool {
        self.buckets[parts.home as usize].away != 0
    }

    /// Like [`Index::likely_home`], of the other bucket.
    #[inline]
    pub(super) fn likely_other(&self, parts: HashParts) -> Option<u32> {
        self.buckets[self.other(parts.home, parts.tag) as usize].likely(parts.tag)
    }

    /// The slot of the key for which `is_it` holds.
    pub(super) fn find(&self, parts: HashParts, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let home = &self.buckets[parts.home as usize];
        let other = &self.buckets[self.other(parts.home, parts.tag) as usize];
        let searched = if home.away == 0 { &[home][..] } else { &[home, other][..] };
        searched.iter().find_map(|bucket| bucket.matches(parts.tag).find(|&slot| is_it(slot)))
    }

    /// Enters a key that is not there. `home` returns the home bucket of the key in a slot.
    /// False: there is no room.
    pub(super) fn insert(
        &mut self,
        parts: HashParts,
        slot: u32,
        home: impl Fn(u32) -> u32,
    ) -> bool {
        let both = self.both(parts);
        let free = both.into_iter().find_map(|b| Some((b, self.buckets[b as usize].free()?)));
        let (bucket, way) = match free.or_else(|| self.make_room(both, home)) {
            Some(found) => found,
            None => return false,
        };
        self.buckets[bucket as usize].set(way, parts.tag, slot);
        if bucket != parts.home {
            self.buckets[parts.home as usize].away += 1;
        }
        true
    }

    /// Moves one resident of two full buckets to its other bucket.
    fn make_room(&mut self, both: [u32; 2], home: impl Fn(u32) -> u32) -> Option<(u32, usize)> {
        for from in both {
            for way in 0..WAYS {
                let bucket = &self.buckets[from as usize];
                let (tag, slot) = (bucket.tag(way), bucket.slots[way]);
                let to = self.other(from, tag);
                let Some(free) = self.buckets[to as usize].free() else {
                    continue;
                };
                self.buckets[to as usize].set(free, tag, slot);
                self.buckets[from as usize].set(way, 0, 0);
                let home = home(slot);
                if home == from {
                    self.buckets[home as usize].away += 1;
                } else {
                    self.buckets[home as usize].away -= 1;
                }
                return Some((from, way));
            }
        }
        None
    }

    /// Takes out the key in `slot`.
    pub(super) fn remove(&mut self, parts: HashParts, slot: u32) {
        let other = self.other(parts.home, parts.tag);
        for bucket in [parts.home, other] {
            let there = &mut self.buckets[bucket as usize];
            let is_it = |way: &usize| there.tag(*way) == parts.tag && there.slots[*way] == slot;
            if let Some(way) = (0..WAYS).find(is_it) {
                there.set(way, 0, 0);
                if bucket != parts.home {
                    self.buckets[parts.home as usize].away -= 1;
                }
                return;
            }
        }
    }

    /// The slots in both buckets of a key.
    pub(super) fn neighbours(&self, parts: HashParts) -> impl Iterator<Item = u32> {
        self.both(parts).into_iter().flat_map(|bucket| {
            let bucket = &self.buckets[bucket as usize];
            (0..WAYS).filter(|&way| bucket.tag(way) != 0).map(|way| bucket.slots[way])
        })
    }

    /// The buckets that a key may lie in, its home first.
    pub(super) fn both(&self, parts: HashParts) -> [u32; 2] {
        [parts.home, self.other(parts.home, parts.tag)]
    }

    /// The other bucket of a tag that lies in `bucket`: from that one, `bucket` again.
    #[inline]
    fn other(&self, bucket: u32, tag: u16) -> u32 {
        let sum = Index::home(u64::from(tag).wrapping_mul(SPREAD), self.len());
        if sum >= bucket { sum - bucket } else { sum + self.buckets.len() as u32 - bucket }
    }

    /// Memory of its buckets, bytes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.buckets)
    }
}

impl Bucket {
    /// The first way with this tag.
    #[inline]
    fn first(&self, tag: u16) -> Option<usize> {
        let equal = equal(self.tags, tag);
        (equal != 0).then(|| equal.trailing_zeros() as usize / 2 % WAYS)
    }

    #[inline]
    fn likely(&self, tag: u16) -> Option<u32> {
        self.first(tag).map(|way| self.slots[way])
    }

    fn matches(&self, tag: u16) -> impl Iterator<Item = u32> {
        (0..WAYS).filter(move |&way| self.tag(way) == tag).map(|way| self.slots[way])
    }

    fn free(&self) -> Option<usize> {
        self.first(0)
    }

    fn tag(&self, way: usize) -> u16 {
        (self.tags[way / 4] >> (way % 4 * 16)) as u16
    }

    fn set(&mut self, way: usize, tag: u16, slot: u32) {
        let (word, shift) = (&mut self.tags[way / 4], way % 4 * 16);
        *word = *word & !(0xFFFF << shift) | u64::from(tag) << shift;
        self.slots[way] = slot;
    }
}

/// Spreads tags over the upper half of a word.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills to the last slot, empties at random, fills again: everything is found where it
    /// should be, and 90 % always fit.
    #[test]
    fn what_was_entered_is_found_until_it_is_taken_out() {
        for (flows, seed) in [(8, 1), (60, 2), (1_000, 3), (65_536, 4), (300_001, 5)] {
            println!("{flows} flows, seed {seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            let mut index = Index::new(flows);
            let mut hashes = vec![0u64; flows];
            let mut inside = vec![false; flows];
            for round in 0..4 {
                let mut refused = 0;
                let mut load = inside.iter().filter(|&&i| i).count();
                for slot in 0..flows {
                    if inside[slot] {
                        continue;
                    }
                    hashes[slot] = random.u64(..);
                    let parts = index.parts(hashes[slot]);
                    let count = index.len();
                    let home = |s: u32| Index::home(hashes[s as usize], count);
                    inside[slot] = index.insert(parts, slot as u32, home);
                    refused += usize::from(!inside[slot]);
                    load += usize::from(inside[slot]);
                    assert!(inside[slot] || load * 10 >= flows * 9, "round {round}: {load}");
                }
                assert!(refused == 0, "{refused} refused");
                for slot in 0..flows {
                    let found = index.find(index.parts(hashes[slot]), |s| s as usize == slot);
                    assert_eq!(found.is_some(), inside[slot]);
                }
                for slot in 0..flows {
                    if inside[slot] && random.bool() {
                        index.remove(index.parts(hashes[slot]), slot as u32);
                        inside[slot] = false;
                        let found = index.find(index.parts(hashes[slot]), |s| s as usize == slot);
                        assert_eq!(found, None);
                    }
                }
            }
            for slot in (0..flows).filter(|&s| inside[s]) {
                index.remove(index.parts(hashes[slot]), slot as u32);
            }
            assert!(index.buckets.iter().all(|b| b.away == 0 && b.tags == [0; 2]));
        }
    }

    #[test]
    fn the_other_of_the_other_is_home() {
        let index = Index::new(1_000);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..10_000 {
            let parts = index.parts(random.u64(..));
            let other = index.other(parts.home, parts.tag);
            assert!((other as usize) < index.buckets.len());
            assert_eq!(index.other(other, parts.tag), parts.home);
        }
    }

    /// Also next to one that differs by one bit, where a subtraction borrows.
    #[test]
    fn tags_are_compared_exactly() {
        let mut bucket = Bucket::default();
        for (way, tag) in [1, 2, 3, 2, 0x8000, 0x8001, 0, 2].into_iter().enumerate() {
            bucket.set(way, tag, 10 + way as u32);
        }
        let first = [(1, 0), (2, 1), (3, 2), (0x8000, 4), (0x8001, 5), (0, 6)];
        for tag in 0..=u16::MAX {
            let wanted = first.iter().find(|(t, _)| *t == tag).map(|(_, way)| *way);
            assert_eq!(bucket.first(tag), wanted, "{tag}");
        }
        assert_eq!(bucket.matches(2).collect::<Vec<_>>(), [11, 13, 17]);
    }
}
