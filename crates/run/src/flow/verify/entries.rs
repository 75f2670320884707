//! The flows of the truth with what was exported of them, by key. A flow with at most one
//! record a direction takes 136 bytes and its slot of the index. Any other is kept unpacked.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use super::observed::{BiflowKey, End, Half, join};

/// A flow of the truth, both directions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlowEntry {
    pub key: BiflowKey,
    pub sides: [Side; 2],
    /// First and last packet of either direction.
    pub truth_span: (i64, i64),
    /// The same of records without times by direction.
    pub seen_span: Option<(i64, i64)>,
    /// When the newest of its records begins, and the one before: both directions count,
    /// for a meter of biflows splits both at once.
    pub base: i64,
    pub prior_base: i64,
    pub generation: u32,
    /// Coarsest unit of its records' times, ns.
    pub unit_ns: u32,
    /// The next flow with this key.
    pub next: u32,
    pub is_head: bool,
    /// A record covers this one and the one before.
    pub joined: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Side {
    pub truth: Sum,
    pub seen: Sum,
    pub records: u32,
    /// Records like the one before.
    pub twins: u32,
    /// Records that a time-out asked for, and others.
    pub asked: u32,
    pub unasked: u32,
    /// flowEndReason of the record before the first that nobody asked for.
    pub reason: u8,
    pub last: Sum,
    pub last_reason: u8,
}

/// Packets, bytes, first and last packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub packets: u64,
    pub bytes: u64,
    pub span: Option<(i64, i64)>,
}

impl Sum {
    pub fn of(half: &Half) -> Sum {
        Sum { packets: half.packets, bytes: half.bytes, span: half.span }
    }

    pub fn add(&mut self, other: &Sum) {
        // Whoever exports may claim any count.
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.span = match (self.span, other.span) {
            (Some(a), Some(b)) => Some(join(a, b)),
            (a, b) => a.or(b),
        };
    }
}

impl FlowEntry {
    pub fn new(key: BiflowKey, truth_span: (i64, i64), next: u32) -> Self {
        FlowEntry {
            key,
            sides: Default::default(),
            truth_span,
            seen_span: None,
            base: 0,
            prior_base: 0,
            generation: 0,
            unit_ns: 0,
            next,
            is_head: false,
            joined: false,
        }
    }
}

/// The entries, found by their keys.
pub(super) struct Entries {
    /// In pieces, so that growing neither copies nor takes twice the room.
    packed: Vec<Vec<Packed>>,
    len: usize,
    /// What cannot be packed, at the index that its packed one has in `unit_ns`. It stays
    /// here, for records are only added to a flow.
    #[expect(clippy::vec_box, reason = "growing neither copies them nor takes twice the room")]
    long: Vec<Box<FlowEntry>>,
    /// Heads by the hash of their keys; open addressing.
    index: Vec<Slot>,
    heads: usize,
    hasher: RandomState,
}

/// A slot of the index. The hash distinguishes nearly all keys without a look at them in
/// memory.
#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    /// [`NONE`]: it is free.
    head: u32,
}

impl Slot {
    const FREE: Slot = Slot { hash: 0, head: NONE };
}

impl Entries {
    pub fn new() -> Self {
        Entries {
            packed: Vec::new(),
            len: 0,
            long: Vec::new(),
            index: vec![Slot::FREE; 64],
            heads: 0,
            hasher: RandomState::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The first flow of a key; [`NONE`]: there is none.
    pub fn head(&self, key: &BiflowKey) -> u32 {
        self.index[self.slot(key, self.hash(key))].head
    }

    /// Makes `at` the first of its key.
    pub fn set_head(&mut self, key: &BiflowKey, at: u32) {
        let hash = self.hash(key);
        let slot = self.slot(key, hash);
        self.heads += usize::from(self.index[slot].head == NONE);
        self.index[slot] = Slot { hash, head: at };
        if self.heads * 4 > self.index.len() * 3 {
            let wider = vec![Slot::FREE; self.index.len() * 2];
            for old in std::mem::replace(&mut self.index, wider) {
                if old.head != NONE {
                    let slot = self.probe(old.hash).find(|i| self.index[*i].head == NONE);
                    self.index[slot.expect("half of it is free")] = old;
                }
            }
        }
    }

    /// The first flow of every key, in no order.
    pub fn heads(&self) -> impl Iterator<Item = u32> + use<> {
        // Its own copy, 8 bytes a slot, for heads change while they are gone through.
        self.index.clone().into_iter().map(|slot| slot.head).filter(|head| *head != NONE)
    }

    /// Adds a flow. Returns its index.
    pub fn push(&mut self, entry: &FlowEntry) -> u32 {
        let at = self.len as u32;
        if self.len.is_multiple_of(PIECE) {
            self.packed.push(Vec::with_capacity(PIECE));
        }
        self.packed[self.len / PIECE].push(Packed::EMPTY);
        self.len += 1;
        self.set(at, entry);
        at
    }

    /// The flow at an index; `None` for [`NONE`].
    pub fn get(&self, at: u32) -> Option<FlowEntry> {
        let packed = self.packed.get(at as usize / PIECE)?.get(at as usize % PIECE)?;
        Some(match packed.flags & LONG {
            0 => packed.unpack(),
            _ => FlowEntry::clone(&self.long[packed.unit_ns as usize]),
        })
    }

    /// Replaces the flow at an index.
    pub fn set(&mut self, at: u32, entry: &FlowEntry) {
        let packed = &mut self.packed[at as usize / PIECE][at as usize % PIECE];
        if packed.flags & LONG != 0 {
            // The key is in the packed one, too, for the index.
            packed.set_key(&entry.key);
            *self.long[packed.unit_ns as usize] = entry.clone();
        } else if let Some(short) = Packed::of(entry) {
            *packed = short;
        } else {
            *packed = Packed { flags: LONG, unit_ns: self.long.len() as u32, ..Packed::EMPTY };
            packed.set_key(&entry.key);
            self.long.push(Box::new(entry.clone()));
        }
    }

    pub fn change(&mut self, at: u32, change: impl FnOnce(&mut FlowEntry)) {
        if let Some(mut entry) = self.get(at) {
            change(&mut entry);
            self.set(at, &entry);
        }
    }

    fn key(&self, at: u32) -> BiflowKey {
        self.packed[at as usize / PIECE][at as usize % PIECE].key()
    }

    fn hash(&self, key: &BiflowKey) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    /// Where the index may have a hash, the likeliest first.
    fn probe(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let mask = self.index.len() - 1;
        (0..=mask).map(move |i| (hash as usize).wrapping_add(i) & mask)
    }

    /// Where the index has a key, or would.
    fn slot(&self, key: &BiflowKey, hash: u32) -> usize {
        let is_it =
            |slot: &Slot| slot.head == NONE || slot.hash == hash && self.key(slot.head) == *key;
        let slot = self.probe(hash).find(|i| is_it(&self.index[*i]));
        slot.expect("a quarter of it is free")
    }
}

/// A flow as it nearly always is: no more than one record a direction, whose times are near
/// the truth's.
#[derive(Clone, Copy)]
struct Packed {
    next: u32,
    unit_ns: u32,
    truth: [Counts; 2],
    seen: [Counts; 2],
    /// What the records' times are off, ns: first and last.
    off: [[i32; 2]; 2],
    /// First packet of each direction, ns, as two halves of 32 bits. Without times by direction
    /// the first one has that of both.
    first: [[u32; 2]; 2],
    /// From there to the last, ns: 48 bits.
    length: [[u16; 3]; 2],
    addresses: [[u8; 16]; 2],
    ports: [u16; 2],
    protocol: u8,
    reasons: [u8; 2],
    flags: u16,
}

/// Packets and bytes in 32 and 48 bits, in halves for the sake of alignment.
#[derive(Clone, Copy, Default)]
struct Counts {
    packets: [u16; 2],
    bytes: [u16; 3],
}

impl Counts {
    fn of(sum: &Sum) -> Option<Counts> {
        let packets = u32::try_from(sum.packets).ok()?;
        let packets = [(packets >> 16) as u16, packets as u16];
        Some(Counts { packets, bytes: short(sum.bytes)? })
    }

    fn sum(self, span: Option<(i64, i64)>) -> Sum {
        let [high, low] = self.packets.map(u64::from);
        Sum { packets: high << 16 | low, bytes: wide(self.bytes), span }
    }
}

impl Packed {
    const EMPTY: Packed = Packed {
        next: NONE,
        unit_ns: 0,
        truth: [Counts { packets: [0; 2], bytes: [0; 3] }; 2],
        seen: [Counts { packets: [0; 2], bytes: [0; 3] }; 2],
        off: [[0; 2]; 2],
        first: [[0; 2]; 2],
        length: [[0; 3]; 2],
        addresses: [[0; 16]; 2],
        ports: [0; 2],
        protocol: 0,
        reasons: [0; 2],
        flags: 0,
    };

    /// `None`: it is out of the ordinary. What is not stored is what unpacking makes of the
    /// rest; if that is not all the same, nothing is packed.
    fn of(entry: &FlowEntry) -> Option<Packed> {
        // Found without unpacking: most of what is long.
        if entry.sides.iter().any(|side| side.records > 1) {
            return None;
        }
        let mut packed = Packed { next: entry.next, unit_ns: entry.unit_ns, ..Packed::EMPTY };
        packed.set_key(&entry.key);
        let set = |flag: u16, on: bool| if on { flag } else { 0 };
        packed.flags = set(HEAD, entry.is_head)
            | set(JOINED, entry.joined)
            | set(GENERATION, entry.generation > 0)
            | set(SEEN_WHOLE, entry.seen_span.is_some());
        for (i, side) in entry.sides.iter().enumerate() {
            packed.truth[i] = Counts::of(&side.truth)?;
            packed.seen[i] = Counts::of(&side.last)?;
            packed.reasons[i] = side.last_reason;
            packed.flags |= set(RECORD << i, side.records > 0);
            let truth = side.truth.span.unwrap_or(entry.truth_span);
            packed.flags |= set(TRUTH_SPAN << i, side.truth.span.is_some());
            let first = truth.0 as u64;
            packed.first[i] = [(first >> 32) as u32, first as u32];
            packed.length[i] = short(u64::try_from(truth.1.checked_sub(truth.0)?).ok()?)?;
            if let Some(seen) = side.last.span {
                packed.flags |= SEEN_SPAN << i;
                let off = |seen: i64, truth: i64| i32::try_from(seen.checked_sub(truth)?).ok();
                packed.off[i] = [off(seen.0, truth.0)?, off(seen.1, truth.1)?];
            }
        }
        (packed.unpack() == *entry).then_some(packed)
    }

    fn unpack(&self) -> FlowEntry {
        let has = |flag: u16| self.flags & flag != 0;
        let mut spans = [(0, 0); 2];
        let mut sides = [Side::default(); 2];
        for i in 0..2 {
            let [high, low] = self.first[i].map(u64::from);
            let first = (high << 32 | low) as i64;
            // Of a whole one, both ends were an i64.
            spans[i] = (first, first.saturating_add(wide(self.length[i]) as i64));
            let side = &mut sides[i];
            side.truth = self.truth[i].sum(has(TRUTH_SPAN << i).then_some(spans[i]));
            if has(RECORD << i) {
                let [a, b] = self.off[i].map(i64::from);
                let seen = (spans[i].0.saturating_add(a), spans[i].1.saturating_add(b));
                side.last = self.seen[i].sum(has(SEEN_SPAN << i).then_some(seen));
                side.seen = side.last;
                if has(SEEN_WHOLE) {
                    side.seen.span = None;
                }
                side.last_reason = self.reasons[i];
                side.records = 1;
            }
        }
        let own = |i: usize| has(TRUTH_SPAN << i).then_some(spans[i]);
        let both = |a: Option<(i64, i64)>, b: Option<(i64, i64)>| match (a, b) {
            (Some(a), Some(b)) => Some(join(a, b)),
            (a, b) => a.or(b),
        };
        let seen = both(sides[0].last.span, sides[1].last.span);
        FlowEntry {
            key: self.key(),
            sides,
            truth_span: both(own(0), own(1)).unwrap_or(spans[0]),
            seen_span: seen.filter(|_| has(SEEN_WHOLE)),
            base: seen.filter(|_| has(GENERATION)).map_or(0, |(first, _)| first),
            prior_base: 0,
            generation: u32::from(has(GENERATION)),
            unit_ns: self.unit_ns,
            next: self.next,
            is_head: has(HEAD),
            joined: has(JOINED),
        }
    }

    fn key(&self) -> BiflowKey {
        let end = |i: usize| End { address: self.addresses[i], port: self.ports[i] };
        BiflowKey { ends: [end(0), end(1)], protocol: self.protocol }
    }

    fn set_key(&mut self, key: &BiflowKey) {
        self.addresses = key.ends.map(|end| end.address);
        self.ports = key.ends.map(|end| end.port);
        self.protocol = key.protocol;
    }
}

/// 48 bits, if that is enough.
fn short(n: u64) -> Option<[u16; 3]> {
    (n >> 48 == 0).then_some([(n >> 32) as u16, (n >> 16) as u16, n as u16])
}

fn wide([a, b, c]: [u16; 3]) -> u64 {
    u64::from(a) << 32 | u64::from(b) << 16 | u64::from(c)
}

/// No flow.
pub(super) const NONE: u32 = u32::MAX;
/// Flows allocated at a time.
const PIECE: usize = 1 << 12;
/// It is kept at full length.
const LONG: u16 = 1;
const HEAD: u16 = 2;
const JOINED: u16 = 4;
const GENERATION: u16 = 8;
/// Its records give the span of both directions only.
const SEEN_WHOLE: u16 = 16;
/// By direction, from here on: it has a record; its truth has times; its record has.
const RECORD: u16 = 32;
const TRUTH_SPAN: u16 = 128;
const SEEN_SPAN: u16 = 512;

const _: () = assert!(size_of::<Packed>() <= 136);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_that_no_flow_can_have_are_no_panic() {
        let mut sum = Sum { packets: u64::MAX, bytes: u64::MAX, span: None };
        sum.add(&Sum { packets: 1, bytes: 1, span: Some((1, 2)) });
        assert_eq!((sum.packets, sum.bytes, sum.span), (u64::MAX, u64::MAX, Some((1, 2))));
    }

    fn span() -> impl Strategy<Value = Option<(i64, i64)>> {
        prop_oneof![
            Just(None),
            (0..4_000_000_000i64, 0..4_000_000_000i64)
                .prop_map(|(first, length)| Some((1_700_000_000 << 30 | first, first + length))),
            any::<(i64, i64)>().prop_map(Some),
        ]
    }

    fn sum() -> impl Strategy<Value = Sum> {
        let count = || prop_oneof![0..100u64, any::<u64>()];
        (count(), count(), span()).prop_map(|(packets, bytes, span)| Sum { packets, bytes, span })
    }

    fn entry() -> impl Strategy<Value = FlowEntry> {
        let side = || {
            (sum(), sum(), sum(), 0..3u32, 0..2u32, any::<[u8; 2]>()).prop_map(
                |(truth, seen, last, records, twins, [reason, last_reason])| Side {
                    truth,
                    seen,
                    records,
                    twins,
                    asked: 0,
                    unasked: twins,
                    reason,
                    last,
                    last_reason,
                },
            )
        };
        let times = (any::<(i64, i64)>(), span(), any::<i64>(), 0..3u32);
        let rest = (any::<u32>(), any::<u32>(), any::<bool>(), any::<bool>());
        ([side(), side()], times, rest, any::<([u8; 16], u16, u8)>()).prop_map(
            |(sides, (truth_span, seen_span, base, generation), (unit_ns, next, a, b), key)| {
                let end = End { address: key.0, port: key.1 };
                let key = BiflowKey { ends: [end, End::default()], protocol: key.2 };
                FlowEntry {
                    sides,
                    seen_span,
                    base,
                    generation,
                    unit_ns,
                    is_head: a,
                    joined: b,
                    ..FlowEntry::new(key, truth_span, next)
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_put_in_comes_out(all in proptest::collection::vec(entry(), 1..20)) {
            let mut entries = Entries::new();
            for entry in &all {
                let at = entries.push(entry);
                prop_assert_eq!(&entries.get(at).unwrap(), entry);
            }
            for (at, entry) in all.iter().rev().enumerate() {
                entries.set(at as u32, entry);
                prop_assert_eq!(&entries.get(at as u32).unwrap(), entry);
            }
            let is_long = |e: &FlowEntry| Packed::of(e).is_none();
            let put = all.iter().zip(all.iter().rev());
            let long = put.filter(|(first, then)| is_long(first) || is_long(then)).count();
            prop_assert_eq!(entries.long.len(), long);
        }
    }

    /// As a record of the meter leaves it, in milliseconds.
    fn ordinary(n: u64) -> FlowEntry {
        let end = |n: u64| End { address: u128::from(n).to_be_bytes(), port: n as u16 };
        let first = 1_700_000_000_123_456_789 + n as i64;
        let truth = Sum { packets: n, bytes: 1_000 * n, span: Some((first, first + 77_000_000)) };
        let to_ms = |at: i64| at / 1_000_000 * 1_000_000;
        let span = Some((to_ms(first), to_ms(first + 77_000_000)));
        let seen = Sum { span, ..truth };
        let side = Side { truth, seen, last: seen, records: 1, last_reason: 2, ..Side::default() };
        let key = BiflowKey { ends: [end(n), end(n + 1)], protocol: 6 };
        FlowEntry {
            sides: [side; 2],
            base: to_ms(first),
            generation: 1,
            unit_ns: 1_000_000,
            ..FlowEntry::new(key, (first, first + 77_000_000), NONE)
        }
    }

    #[test]
    fn ordinary_flows_are_packed_and_found_by_their_keys() {
        let mut entries = Entries::new();
        let count = 20_000;
        for n in 0..count {
            let entry = ordinary(n);
            assert_eq!(entries.head(&entry.key), NONE);
            let at = entries.push(&entry);
            entries.set_head(&entry.key, at);
        }
        assert_eq!((entries.len() as u64, entries.long.len()), (count, 0));
        for n in 0..count {
            assert_eq!(u64::from(entries.head(&ordinary(n).key)), n);
            assert_eq!(entries.get(n as u32), Some(ordinary(n)));
        }
        assert_eq!(entries.heads().count() as u64, count);
        let index = entries.index.len() * size_of::<Slot>();
        let bytes = entries.packed.len() * PIECE * size_of::<Packed>() + index;
        assert!(bytes as u64 / count < 160, "{bytes}");
    }
}
