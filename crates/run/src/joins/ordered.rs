//! Packets of joined interfaces in the order of their stamps. Each interface has a ring of its
//! own, and a ring hands a packet over up to [`HANDED_OVER`] late. Read in turn, an answer may
//! come before its question. So packets are kept for as long, and then go on in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use sonde_wire::Time;

/// A packet that is kept.
#[derive(Default)]
pub struct Kept {
    /// Which interface it came by.
    pub point: u8,
    /// From the link header on; may be cut short.
    pub bytes: Vec<u8>,
    /// Length before it was cut.
    pub wire_len: usize,
    /// Octets of payload in each of the packets that it was on the wire; 0: not known, or one.
    pub segment: u16,
    /// When it was seen, steady time.
    pub at: Time,
}

/// See the module. Memory is taken for the most packets that were ever kept at once.
#[derive(Default)]
pub struct Ordered {
    slots: Vec<Kept>,
    /// Indexes of empty slots.
    free: Vec<u32>,
    /// Stamp, order of arrival, and slot: the earliest on top.
    waiting: BinaryHeap<Reverse<(Time, u64, u32)>>,
    arrived: u64,
    /// What the last release let go.
    out: Vec<u32>,
    /// Every ring was read up to here.
    until: Time,
}

impl Ordered {
    /// Keeps a packet. Nothing is copied but `bytes`.
    pub fn keep(&mut self, point: u8, bytes: &[u8], (wire_len, segment): (usize, u16), at: Time) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Kept::default());
            (self.slots.len() - 1) as u32
        });
        let kept = &mut self.slots[slot as usize];
        kept.bytes.clear();
        kept.bytes.extend_from_slice(bytes);
        (kept.point, kept.wire_len, kept.segment, kept.at) = (point, wire_len, segment, at);
        self.waiting.push(Reverse((at, self.arrived, slot)));
        self.arrived += 1;
    }

    /// Begins a turn, at `now`, in which every ring is read.
    pub fn begin_turn(&mut self, now: Time) {
        self.until = now - HANDED_OVER.as_nanos() as i64;
    }

    /// A ring was read up to a packet of that time, and may hold more.
    pub fn may_have_more(&mut self, at: Time) {
        self.until = self.until.min(at);
    }

    /// Nothing is read any more.
    pub fn end(&mut self) {
        self.until = Time::from_nanos(i64::MAX);
    }

    /// After every ring was read: at most `most` packets that nothing earlier can come before any
    /// more, in order. Beyond [`MOST_KEPT`] the earliest go on without waiting.
    pub fn release(&mut self, most: usize) -> impl Iterator<Item = &Kept> {
        self.free.append(&mut self.out);
        while self.out.len() < most
            && let Some(&Reverse((at, _, slot))) = self.waiting.peek()
            && (at <= self.until || self.waiting.len() > MOST_KEPT)
        {
            self.waiting.pop();
            self.out.push(slot);
        }
        self.out.iter().map(|slot| &self.slots[*slot as usize])
    }
}

/// A ring hands a packet over after a millisecond, which a slow kernel timer makes eight.
pub const HANDED_OVER: Duration = Duration::from_millis(20);
/// Three million packets a second for as long as they wait.
const MOST_KEPT: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn time(ms: i64) -> Time {
        Time::from_nanos(1_000_000_000_000 + ms * 1_000_000)
    }

    fn points(ordered: &mut Ordered, now: i64) -> Vec<u8> {
        ordered.begin_turn(time(now));
        ordered.release(usize::MAX).map(|kept| kept.point).collect()
    }

    #[test]
    fn an_answer_that_is_read_first_comes_after_its_question() {
        let mut ordered = Ordered::default();
        ordered.keep(1, b"answer", (60, 0), time(2));
        ordered.keep(0, b"question", (60, 0), time(1));
        assert!(points(&mut ordered, 20).is_empty());
        assert_eq!(points(&mut ordered, 21), [0]);
        ordered.keep(2, b"", (0, 0), time(2));
        assert_eq!(points(&mut ordered, 22), [1, 2], "alike: as they came");
        // The slots are used again.
        ordered.keep(3, b"longer than before", (90, 7), time(3));
        assert_eq!(ordered.slots.len(), 3);
        ordered.end();
        let kept = ordered.release(9).next().unwrap();
        let packet = (&kept.bytes[..], kept.wire_len, kept.segment);
        assert_eq!(packet, (&b"longer than before"[..], 90, 7));
    }

    #[test]
    fn what_a_ring_still_holds_is_waited_for() {
        let mut ordered = Ordered::default();
        ordered.begin_turn(time(100));
        ordered.keep(0, b"", (0, 0), time(10));
        ordered.may_have_more(time(10));
        ordered.keep(1, b"", (0, 0), time(30));
        ordered.may_have_more(time(30));
        assert_eq!(ordered.release(9).map(|kept| kept.point).collect::<Vec<_>>(), [0]);
        assert_eq!(points(&mut ordered, 101), [1]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut ordered = Ordered::default();
        ordered.begin_turn(Time::from_nanos(0));
        for i in 0..MOST_KEPT as i64 + 10 {
            ordered.keep(0, b"", (0, 0), Time::from_nanos(i));
        }
        assert_eq!(ordered.release(usize::MAX).count(), 10);
        assert_eq!(ordered.release(usize::MAX).count(), 0);
    }

    /// Rings of packets, each with its time and when it is handed over, ms.
    type Rings = [Vec<(i64, i64)>; 3];

    /// Reads one burst; moves the time on, as a scheduler may at any moment.
    fn read(ordered: &mut Ordered, ring: &mut Vec<(i64, i64)>, now: i64, point: u8, most: usize) {
        let there = ring.iter().take(most).take_while(|(_, handed)| *handed <= now).count();
        let mut last = None;
        for (at, _) in ring.drain(..there) {
            ordered.keep(point, &[], (at as usize, 0), time(at));
            last = Some(time(at));
        }
        if let Some(last) = last {
            ordered.may_have_more(last);
        }
    }

    proptest! {
        /// Whatever the rings' delays within what is waited for, however long the reader is
        /// stopped, and whatever a burst holds: order, and nothing is lost.
        #[test]
        fn packets_come_in_order(
            packets in proptest::collection::vec((0usize..3, 0i64..19), 1..200),
            pauses in proptest::collection::vec(0i64..60, 1..50),
            (burst, most) in (1usize..5, 1usize..8),
        ) {
            let mut rings = Rings::default();
            for (at, (ring, late)) in packets.iter().enumerate() {
                let before = rings[*ring].last().map_or(0, |(_, handed)| *handed);
                // Of one ring in order.
                rings[*ring].push((at as i64, (at as i64 + late).max(before)));
            }
            let mut pauses = pauses.into_iter().cycle();
            let (mut ordered, mut seen, mut now) = (Ordered::default(), Vec::new(), 0);
            while rings.iter().any(|ring| !ring.is_empty()) {
                ordered.begin_turn(time(now));
                for (point, ring) in rings.iter_mut().enumerate() {
                    now += pauses.next().unwrap_or(0) / 3;
                    read(&mut ordered, ring, now, point as u8, burst);
                }
                seen.extend(ordered.release(most).map(|kept| kept.wire_len));
                now += 1;
            }
            ordered.end();
            loop {
                let before = seen.len();
                seen.extend(ordered.release(most).map(|kept| kept.wire_len));
                if seen.len() == before {
                    break;
                }
            }
            prop_assert_eq!(seen, (0..packets.len()).collect::<Vec<_>>());
        }
    }
}
