//! Which frames of a sequence have arrived.

/// A bit for each of 64 frames a word, of `WORDS`, a power of two, that follow each other. Of
/// frames before and behind them nothing is known.
#[derive(Debug)]
pub struct ArrivalWindow<const WORDS: usize> {
    /// The first of them; a multiple of 64.
    floor: u64,
    bitmap: Box<[u64; WORDS]>,
}

impl<const WORDS: usize> ArrivalWindow<WORDS> {
    /// How many frames it distinguishes: those from the multiple of 64 at or before `floor` on.
    pub const FRAMES: u64 = 64 * WORDS as u64;

    /// None has arrived.
    pub fn new(floor: u64) -> Self {
        const { assert!(WORDS.is_power_of_two()) };
        let bitmap = vec![0; WORDS].try_into().expect("that length");
        ArrivalWindow { floor: floor & !63, bitmap }
    }

    /// Frame `sequence` arrives: whether for the first time. Outside the window nobody knows, and
    /// it counts as a copy.
    #[inline]
    pub fn note(&mut self, sequence: u64) -> bool {
        if sequence.wrapping_sub(self.floor) >= Self::FRAMES {
            return false;
        }
        let word = &mut self.bitmap[(sequence / 64) as usize % WORDS];
        let bit = 1 << (sequence % 64);
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        true
    }

    /// Moves the window to `end`, a multiple of 64 except in the last call. Hands out what it
    /// leaves behind: for each 64 frames the sequence number of the first, and a bit for each that
    /// has arrived.
    pub fn harvest(&mut self, end: u64, mut take: impl FnMut(u64, u64)) {
        while self.floor < end {
            let word = &mut self.bitmap[(self.floor / 64) as usize % WORDS];
            take(self.floor, std::mem::take(word));
            self.floor += 64;
        }
    }

    /// Moves the window to the multiple of 64 at or before `floor`, if that lies ahead.
    #[inline]
    pub fn advance(&mut self, floor: u64) {
        let floor = floor & !63;
        if floor.saturating_sub(self.floor) >= Self::FRAMES {
            self.bitmap.fill(0);
            self.floor = floor;
        }
        self.harvest(floor, |_, _| ());
    }

    /// None has arrived, from frame 0 on.
    pub fn clear(&mut self) {
        self.bitmap.fill(0);
        self.floor = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_frame_is_new_once_and_never_outside() {
        let mut window = ArrivalWindow::<2>::new(70);
        assert!(window.note(64) && window.note(191) && window.note(70));
        assert!(!window.note(64) && !window.note(191));
        assert!(!window.note(63) && !window.note(192), "before and behind");
        let mut seen = Vec::new();
        window.harvest(128, |first, bits| seen.push((first, bits)));
        assert_eq!(seen, [(64, 1 | 1 << 6)]);
        assert!(window.note(192) && window.note(255) && !window.note(256) && !window.note(64));
        window.harvest(256, |first, bits| seen.push((first, bits)));
        assert_eq!(seen[1..], [(128, 1 << 63), (192, 1 | 1 << 63)]);
        window.clear();
        assert!(window.note(0) && window.note(127) && !window.note(128));
    }

    #[test]
    fn a_leap_over_more_than_the_window_leaves_nothing() {
        let mut window = ArrivalWindow::<2>::new(0);
        assert!((0..128).all(|n| window.note(n)));
        window.advance(1 << 40);
        assert!((1 << 40..(1 << 40) + 128).all(|n| window.note(n)));
        // Never back.
        window.advance(0);
        assert!(!window.note(0) && !window.note(1 << 40));
    }

    proptest! {
        /// Against a set of all that came, as the window moves with the greatest sequence number.
        #[test]
        fn it_is_a_set_that_forgets(steps in proptest::collection::vec(-200i64..220, 1..300)) {
            let mut window = ArrivalWindow::<4>::new(0);
            let (mut all, mut at, mut greatest) = (BTreeSet::new(), 0i64, 0);
            for step in steps {
                at = (at + step).max(0);
                let sequence = at as u64;
                greatest = sequence.max(greatest);
                let floor = (greatest + 1).saturating_sub(128) & !63;
                window.advance(floor);
                let expected = sequence >= floor && all.insert(sequence);
                prop_assert_eq!(window.note(sequence), expected);
            }
        }
    }
}
