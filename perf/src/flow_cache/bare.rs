//! What this machine's memory allows: a table without anything around it. IPv4 and UDP
//! only, no limits, no second bucket, one time, nothing ever ends.

use sonde_meter::flow::BURST;
use sonde_meter::flow::prefetch::prefetch;

/// Half full at most, and never checked: keys without a slot are not counted.
pub struct Bare {
    buckets: Vec<[u64; 8]>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Entry {
    key: [u64; 2],
    packets: u64,
    bytes: u64,
    last: u64,
}

impl Bare {
    /// For so many flows.
    pub fn new(flows: u32) -> Self {
        Bare {
            buckets: vec![[0; 8]; flows as usize / 4],
            entries: vec![Entry::default(); flows as usize * 2],
        }
    }

    /// Both ends in order.
    pub fn key(a: (u32, u16), b: (u32, u16)) -> [u64; 2] {
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        let word = |(address, port): (u32, u16)| u64::from(address) << 16 | u64::from(port);
        [word(low), word(high)]
    }

    /// At most [`BURST`] frames in two strides of prefetching.
    pub fn burst(&mut self, frames: &[&[u8]], now: u64, used: &mut u32) {
        let mut keys = [([0u64; 2], 0usize, 0u16, 0u64, 0u32); BURST];
        let mask = self.buckets.len() - 1;
        for (frame, slot) in frames.iter().zip(&mut keys) {
            let Some(frame) = frame.first_chunk::<60>() else { continue };
            if frame[12..15] != [0x08, 0, 0x45] || frame[23] != 17 {
                continue;
            }
            let u32_at =
                |i: usize| u32::from_be_bytes([frame[i], frame[i + 1], frame[i + 2], frame[i + 3]]);
            let u16_at = |i: usize| u16::from_be_bytes([frame[i], frame[i + 1]]);
            let key = Bare::key((u32_at(26), u16_at(34)), (u32_at(30), u16_at(36)));
            let hash = hash(key);
            let bucket = (hash >> 32) as usize & mask;
            prefetch(&self.buckets, bucket);
            *slot = (key, bucket, (hash as u16).max(1), u64::from(u16_at(16)), 0);
        }
        for (_, bucket, tag, _, index) in &mut keys[..frames.len()] {
            *index = find(&self.buckets[*bucket], *tag).unwrap_or(u32::MAX);
            prefetch(&self.entries, *index as usize);
        }
        for (key, bucket, tag, len, index) in &keys[..frames.len()] {
            let index = match self.entries.get(*index as usize) {
                Some(entry) if entry.key == *key => *index,
                _ => match self.insert(*bucket, *tag, *key, used) {
                    Some(index) => index,
                    None => continue,
                },
            };
            let entry = &mut self.entries[index as usize];
            entry.packets += 1;
            entry.bytes += len;
            entry.last = now;
        }
    }

    #[cold]
    fn insert(&mut self, bucket: usize, tag: u16, key: [u64; 2], used: &mut u32) -> Option<u32> {
        let words = &mut self.buckets[bucket];
        for way in 0..8 {
            let (t, index) = way_of(words, way);
            if t == tag && self.entries[index as usize].key == key {
                return Some(index);
            }
            if t == 0 {
                words[way / 4] |= u64::from(tag) << (16 * (way % 4));
                words[2 + way / 2] |= u64::from(*used) << (32 * (way % 2));
                self.entries[*used as usize].key = key;
                *used += 1;
                return Some(*used - 1);
            }
        }
        None
    }
}

fn way_of(words: &[u64; 8], way: usize) -> (u16, u32) {
    ((words[way / 4] >> (16 * (way % 4))) as u16, (words[2 + way / 2] >> (32 * (way % 2))) as u32)
}

fn find(words: &[u64; 8], tag: u16) -> Option<u32> {
    let mut mask = 0u32;
    for way in 0..8 {
        mask |= u32::from(way_of(words, way).0 == tag) << way;
    }
    (mask != 0).then(|| way_of(words, mask.trailing_zeros() as usize % 8).1)
}

/// Folded multiplication without a secret.
pub fn hash([a, b]: [u64; 2]) -> u64 {
    let product = u128::from(a ^ 0x9E37_79B9_7F4A_7C15) * u128::from(b ^ 0xD1B5_4A32_D192_ED03);
    product as u64 ^ (product >> 64) as u64
}
