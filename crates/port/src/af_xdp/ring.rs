//! The four rings of an AF_XDP socket (Linux `include/uapi/linux/if_xdp.h`):
//! single-producer, single-consumer queues in memory shared with the kernel.
//!
//! Indices run freely over 32 bits and are masked on access. Each side keeps a copy of its own
//! index and the last seen value of the other's. So the shared cache lines are touched once a
//! batch. Nothing here knows sockets: the tests play the kernel in ordinary memory.

use std::sync::atomic::{AtomicU32, Ordering};

/// Where a ring lies in memory.
#[derive(Clone, Copy, Debug)]
pub struct RingMemory<T> {
    /// Index after the last entry produced.
    pub producer: *const AtomicU32,
    /// Index after the last entry consumed.
    pub consumer: *const AtomicU32,
    /// [`libc::XDP_RING_NEED_WAKEUP`] or 0; written by the kernel.
    pub flags: *const AtomicU32,
    /// The first of `entries` entries.
    pub entries_at: *mut T,
    /// How many; a power of two.
    pub entries: u32,
}

/// A ring that we fill: fill ring, transmit ring.
#[derive(Debug)]
pub struct Producer<T> {
    memory: RingMemory<T>,
    /// Written, not all of it visible to the consumer yet.
    head: u32,
    /// The index up to which the consumer sees entries.
    submitted: u32,
    /// The consumer's index as last seen.
    seen: u32,
    /// The consumer's index at the beginning.
    begun: u32,
}

/// A ring that we empty: receive ring, completion ring.
#[derive(Debug)]
pub struct Consumer<T> {
    memory: RingMemory<T>,
    /// Read, not all of it given back to the producer yet.
    tail: u32,
    /// The producer's index as last seen.
    seen: u32,
}

// SAFETY: a ring has one owner on this side, and its methods take `&mut self` wherever they write.
// The memory behind the pointers is not tied to a thread.
unsafe impl<T: Send> Send for RingMemory<T> {}

impl<T: Copy> Producer<T> {
    /// The ring that a socket does not have: always full.
    pub fn none() -> Self {
        Producer { memory: RingMemory::none(), head: 0, submitted: 0, seen: 0, begun: 0 }
    }

    /// Begins where the ring stands.
    ///
    /// # Safety
    /// Until this value is dropped `memory` is valid, its `entries` are a power of two,
    /// and nobody else is its producer.
    pub unsafe fn new(memory: RingMemory<T>) -> Self {
        debug_assert!(memory.entries.is_power_of_two());
        let mut ring = Producer { memory, head: 0, submitted: 0, seen: 0, begun: 0 };
        ring.head = ring.memory.load(memory.producer, Ordering::Relaxed);
        ring.submitted = ring.head;
        ring.seen = ring.memory.load(memory.consumer, Ordering::Acquire);
        ring
    }

    /// Writes one entry; it becomes visible with [`Producer::submit`]. `false`: the
    /// ring is full.
    #[inline]
    pub fn push(&mut self, entry: T) -> bool {
        if self.head.wrapping_sub(self.seen) >= self.memory.entries {
            self.seen = self.memory.load(self.memory.consumer, Ordering::Acquire);
            if self.head.wrapping_sub(self.seen) >= self.memory.entries {
                return false;
            }
        }
        self.memory.write(self.head, entry);
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Makes all written entries visible to the consumer; how many are new to it.
    #[inline]
    pub fn submit(&mut self) -> u32 {
        let new = self.head.wrapping_sub(self.submitted);
        if new > 0 {
            // Release: the entries are written before the index that covers them.
            self.memory.store(self.memory.producer, self.head);
            self.submitted = self.head;
        }
        new
    }

    /// Submitted entries that the consumer has not said it took.
    pub fn unconsumed(&mut self) -> u32 {
        self.seen = self.memory.load(self.memory.consumer, Ordering::Acquire);
        self.submitted.wrapping_sub(self.seen)
    }

    /// The entry that the consumer took last, as far as it has said so; `None`: it has taken none
    /// since this side began.
    pub fn last_consumed(&mut self) -> Option<T> {
        self.unconsumed();
        // In a full ring its place has been written anew.
        let is_there = self.head.wrapping_sub(self.seen) < self.memory.entries;
        (is_there && self.seen != self.begun).then(|| self.memory.read(self.seen.wrapping_sub(1)))
    }

    /// Changes each submitted entry that the consumer has not said it took.
    ///
    /// Only while the consumer is known not to read: it copies entries when it wants.
    pub fn amend_unconsumed(&mut self, mut change: impl FnMut(&mut T)) {
        for i in 0..self.unconsumed() {
            let index = self.seen.wrapping_add(i);
            let mut entry = self.memory.read(index);
            change(&mut entry);
            self.memory.write(index, entry);
        }
    }

    /// The consumer sleeps and wants a system call.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.memory.load(self.memory.flags, Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T: Copy> Consumer<T> {
    /// The ring that a socket does not have: always empty.
    pub fn none() -> Self {
        Consumer { memory: RingMemory::none(), tail: 0, seen: 0 }
    }

    /// Begins where the ring stands.
    ///
    /// # Safety
    /// As for [`Producer::new`], as its consumer.
    pub unsafe fn new(memory: RingMemory<T>) -> Self {
        debug_assert!(memory.entries.is_power_of_two());
        let mut ring = Consumer { memory, tail: 0, seen: 0 };
        ring.tail = ring.memory.load(memory.consumer, Ordering::Relaxed);
        ring.seen = ring.tail;
        ring
    }

    /// Looks how far the producer is; how many entries can be taken.
    #[inline]
    pub fn refresh(&mut self) -> u32 {
        // Acquire: what the producer wrote before its index is seen from here on, the
        // frames and the transmit stamps in them included.
        self.seen = self.memory.load(self.memory.producer, Ordering::Acquire);
        self.available()
    }

    /// How many entries can be taken without another look.
    #[inline]
    pub fn available(&self) -> u32 {
        // A broken index must not make us read an entry twice.
        self.seen.wrapping_sub(self.tail).min(self.memory.entries)
    }

    /// Takes the next of the entries seen by [`Consumer::refresh`]. The entry goes back
    /// to the producer with [`Consumer::release`].
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.tail == self.seen {
            return None;
        }
        let entry = self.memory.read(self.tail);
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    /// Gives all taken entries back to the producer.
    #[inline]
    pub fn release(&mut self) {
        // Release: we have read the entries before the producer may write them anew.
        self.memory.store(self.memory.consumer, self.tail);
    }
}

impl<T: Copy> RingMemory<T> {
    /// No entry is read or written; the indices of all such rings stay 0.
    fn none() -> Self {
        static INDEX: AtomicU32 = AtomicU32::new(0);
        let (producer, consumer, flags) = (&raw const INDEX, &raw const INDEX, &raw const INDEX);
        let entries_at = std::ptr::NonNull::dangling().as_ptr();
        RingMemory { producer, consumer, flags, entries_at, entries: 0 }
    }

    #[inline]
    fn load(&self, index: *const AtomicU32, order: Ordering) -> u32 {
        // SAFETY: `index` is one of this ring's, valid by the contract of `new`.
        unsafe { (*index).load(order) }
    }

    #[inline]
    fn store(&self, index: *const AtomicU32, value: u32) {
        // SAFETY: as in `load`.
        unsafe { (*index).store(value, Ordering::Release) }
    }

    #[inline]
    fn read(&self, index: u32) -> T {
        // SAFETY: the mask keeps the index below `entries`, a power of two, and that many
        // entries are valid by the contract of `new`. Volatile: the kernel writes here.
        unsafe { self.entries_at.add((index & (self.entries - 1)) as usize).read_volatile() }
    }

    #[inline]
    fn write(&self, index: u32, entry: T) {
        // SAFETY: as in `read`.
        unsafe { self.entries_at.add((index & (self.entries - 1)) as usize).write_volatile(entry) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// A ring in ordinary memory, whose indices begin anywhere.
    struct Plain {
        indices: Box<[AtomicU32; 3]>,
        entries: Box<[u64]>,
    }

    impl Plain {
        fn new(entries: u32, start: u32) -> Self {
            let at = || AtomicU32::new(start);
            Plain {
                indices: Box::new([at(), at(), AtomicU32::new(0)]),
                entries: vec![0; entries as usize].into(),
            }
        }

        fn memory(&mut self) -> RingMemory<u64> {
            RingMemory {
                producer: &self.indices[0],
                consumer: &self.indices[1],
                flags: &self.indices[2],
                entries_at: self.entries.as_mut_ptr(),
                entries: self.entries.len() as u32,
            }
        }
    }

    fn pair(plain: &mut Plain) -> (Producer<u64>, Consumer<u64>) {
        let memory = plain.memory();
        // SAFETY: the memory outlives both ends in each test, and there is one of each.
        unsafe { (Producer::new(memory), Consumer::new(memory)) }
    }

    #[test]
    fn nothing_is_visible_before_submit_nor_reusable_before_release() {
        let mut plain = Plain::new(4, u32::MAX - 1);
        let (mut ours, mut kernels) = pair(&mut plain);
        assert!((10..14).all(|n| ours.push(n)));
        assert!(!ours.push(14), "full");
        assert_eq!(kernels.refresh(), 0);
        assert_eq!(ours.submit(), 4);
        assert_eq!(ours.submit(), 0);
        assert_eq!(kernels.refresh(), 4);
        assert_eq!((kernels.pop(), kernels.pop()), (Some(10), Some(11)));
        assert!(!ours.push(14), "taken but not released");
        kernels.release();
        assert_eq!(ours.unconsumed(), 2);
        assert!(ours.push(14) && ours.push(15) && !ours.push(16));
        assert_eq!((kernels.pop(), kernels.pop(), kernels.pop()), (Some(12), Some(13), None));
    }

    #[test]
    fn amending_reaches_just_what_is_unconsumed() {
        let mut plain = Plain::new(4, u32::MAX);
        let (mut ours, mut kernels) = pair(&mut plain);
        assert!((1..=3).all(|n| ours.push(n)));
        ours.submit();
        assert!(ours.push(4), "written, not submitted");
        kernels.refresh();
        assert_eq!(kernels.pop(), Some(1));
        kernels.release();
        let mut seen = Vec::new();
        ours.amend_unconsumed(|n| {
            seen.push(*n);
            *n = 0;
        });
        assert_eq!(seen, [2, 3]);
        ours.submit();
        kernels.refresh();
        assert_eq!((kernels.pop(), kernels.pop(), kernels.pop()), (Some(0), Some(0), Some(4)));
    }

    #[test]
    fn the_entry_taken_last_is_there_until_its_place_is_written_anew() {
        let mut plain = Plain::new(4, u32::MAX);
        let (mut ours, mut kernels) = pair(&mut plain);
        assert!((1..=4).all(|n| ours.push(n)));
        ours.submit();
        assert_eq!(ours.last_consumed(), None);
        kernels.refresh();
        assert_eq!((kernels.pop(), kernels.pop()), (Some(1), Some(2)));
        assert_eq!(ours.last_consumed(), None, "not said yet");
        kernels.release();
        assert_eq!(ours.last_consumed(), Some(2));
        assert!(ours.push(5));
        assert_eq!(ours.last_consumed(), Some(2));
        assert!(ours.push(6));
        assert_eq!(ours.last_consumed(), None, "6 stands there");
    }

    #[test]
    fn a_ring_that_is_not_there_is_full_and_empty() {
        let (mut producer, mut consumer) = (Producer::<u64>::none(), Consumer::<u64>::none());
        assert!(!producer.push(1));
        assert_eq!((producer.submit(), producer.unconsumed()), (0, 0));
        producer.amend_unconsumed(|_| panic!("an entry"));
        assert!(!producer.needs_wakeup());
        consumer.release();
        assert_eq!((consumer.refresh(), consumer.pop()), (0, None));
    }

    #[test]
    fn the_wakeup_flag_is_the_kernels() {
        let mut plain = Plain::new(1, 0);
        let (ours, _) = pair(&mut plain);
        assert!(!ours.needs_wakeup());
        plain.indices[2].store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
        assert!(ours.needs_wakeup());
    }

    #[test]
    fn a_broken_producer_index_gives_no_more_than_the_ring_holds() {
        let mut plain = Plain::new(8, 5);
        let (_, mut consumer) = pair(&mut plain);
        plain.indices[0].store(4, Ordering::Relaxed);
        assert_eq!(consumer.refresh(), 8);
    }

    proptest! {
        /// Against a queue of the standard library, with the indices wrapping.
        #[test]
        fn a_ring_is_a_bounded_queue(
            order in 0u32..6,
            start in prop_oneof![Just(0u32), (u32::MAX - 200)..=u32::MAX],
            steps in proptest::collection::vec((0u8..4, 1usize..40), 1..200),
        ) {
            let mut plain = Plain::new(1 << order, start);
            let (mut ours, mut kernels) = pair(&mut plain);
            let capacity = 1usize << order;
            let (mut written, mut visible, mut taken) = (VecDeque::new(), VecDeque::new(), 0);
            let mut next = 0u64;
            for (step, count) in steps {
                match step {
                    0 => for _ in 0..count {
                        let room = written.len() + visible.len() + taken < capacity;
                        prop_assert_eq!(ours.push(next), room);
                        if room {
                            written.push_back(next);
                        }
                        next += 1;
                    },
                    1 => {
                        prop_assert_eq!(ours.submit() as usize, written.len());
                        visible.append(&mut written);
                    }
                    2 => {
                        prop_assert_eq!(kernels.refresh() as usize, visible.len());
                        for _ in 0..count {
                            let expected = visible.pop_front();
                            taken += usize::from(expected.is_some());
                            prop_assert_eq!(kernels.pop(), expected);
                        }
                    }
                    _ => {
                        kernels.release();
                        taken = 0;
                        prop_assert_eq!(ours.unconsumed() as usize, visible.len());
                    }
                }
            }
        }
    }
}
