//! Frames that come twice: a mirror port copies a packet where it enters a switch and again where
//! it leaves, or two ports carry it.

/// The prints of the packets that passed last.
pub(crate) struct DuplicateDetector {
    /// Pairs, the newest print first.
    pairs: Vec<[Print; 2]>,
}

#[derive(Clone, Copy, Default)]
struct Print {
    check: u32,
    /// When it passed, in units of 2^[`MOMENT_BITS`] ns.
    moment: u32,
}

impl DuplicateDetector {
    pub(crate) fn new() -> Self {
        DuplicateDetector { pairs: vec![Default::default(); PAIRS] }
    }

    /// Notes a packet by the hash of all that distinguishes it from others. Whether the same one
    /// has passed at most `apart` moments ago.
    #[inline]
    pub(crate) fn note(&mut self, hash: u64, moment: u32, apart: u32) -> bool {
        let pair = &mut self.pairs[hash as usize % PAIRS];
        let now = Print { check: (hash >> 32) as u32, moment };
        let same = |before: Print| {
            before.check == now.check
                && now.moment.wrapping_sub(before.moment).wrapping_add(1) <= apart + 1
        };
        let again = same(pair[0]) || same(pair[1]);
        *pair = [now, pair[0]];
        again
    }
}

/// The shift before the product brings down what differs in the upper bits. Two packets that meet
/// in a pair drive out others, whose copies are missed then.
#[inline]
pub(crate) fn mix(h: u64) -> u64 {
    let h = (h ^ h >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ h >> 32
}

const PAIRS: usize = 1_024;
/// A moment is 16 us.
pub(crate) const MOMENT_BITS: u32 = 14;
/// Moments between copies at most: less than a millisecond.
pub(crate) const APART: u32 = 60;
