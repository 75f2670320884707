//! How promptly a host acknowledges, remembered to distinguish acknowledgements that were held back
//! from a path that has become longer: [`super::held`] judges by it.

use super::clock::Clock;

/// What is known of how the other side acknowledges what this side sends.
#[derive(Clone, Copy, Default)]
pub(super) struct AckHistory {
    /// How much later than the least the last one came that looked held back, ticks.
    pub(super) excess: u32,
    /// The least clean samples of this period and of the one before, as [`code`] shortens
    /// them; 0: none.
    recent: [u16; 2],
    /// Of 17 s each, modulo 256.
    period: u8,
    /// Lone segments in a row that were acknowledged at once.
    pub(super) prompt: u8,
    /// Acknowledgements in a row that looked held back equally long.
    pub(super) alike: u8,
}

impl AckHistory {
    /// Takes a clean sample.
    #[inline]
    pub(super) fn note(&mut self, rtt: u32, clock: &Clock) {
        self.turn(clock);
        let (least, code) = (&mut self.recent[0], code(rtt));
        if *least == 0 || code < *least {
            *least = code;
        }
    }

    /// The least clean sample of the last 17 to 34 s, ticks; 0: none.
    #[inline]
    pub(super) fn least(&self) -> u32 {
        match self.recent {
            [0, other] | [other, 0] => decoded(other),
            [a, b] => decoded(a.min(b)),
        }
    }

    /// Begins another period when it is time.
    #[inline]
    pub(super) fn turn(&mut self, clock: &Clock) {
        let period = (clock.coarse >> PERIOD_BITS) as u8;
        if period != self.period {
            self.period = period;
            self.recent = [0, self.recent[0]];
        }
    }
}

/// Ticks in 16 bits, in the same order, rounded down by less than a thousandth.
fn code(ticks: u32) -> u16 {
    let shift = (32 - ticks.leading_zeros()).saturating_sub(11);
    ((shift << 10) + (ticks >> shift)) as u16
}

fn decoded(code: u16) -> u32 {
    let code = u32::from(code);
    match (code >> 10).saturating_sub(1) {
        0 => code,
        shift => (code & 1023 | 1024) << shift,
    }
}

/// 2^34 ns in coarse units.
const PERIOD_BITS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn codes_keep_the_order_and_a_thousandth(a in 1u32..1_000_000_000, b in 1u32..1_000_000_000) {
            prop_assert_eq!(code(a) < code(b), decoded(code(a)) < decoded(code(b)));
            prop_assert!(code(a) <= code(b) || a > b);
            prop_assert!(decoded(code(a)) <= a && a - decoded(code(a)) <= a / 1024);
        }
    }
}
