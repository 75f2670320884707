//! Acknowledgements that their receiver probably held back, for a second segment or a timer
//! (RFC 1122, section 4.2.3.2; RFC 5681, section 4.2), told from a path that has become longer.

use super::clock::{Clock, ns_to_ticks};
use super::flow::{Flow, TcpSide};
use super::slots::{Mode, Pool};

/// What is known of how the other side acknowledges what this side sends.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    /// How much later than the least the last one came that looked held back, ticks.
    excess: u32,
    /// The least clean samples of this period and of the one before, as [`code`] shortens
    /// them; 0: none.
    recent: [u16; 2],
    /// Of 17 s each, modulo 256.
    period: u8,
    /// Lone segments in a row that were acknowledged at once.
    prompt: u8,
    /// Acknowledgements in a row that looked held back equally long.
    alike: u8,
}

impl Held {
    /// Takes a clean sample.
    pub(super) fn note(&mut self, rtt: u32, clock: &Clock) {
        self.turn(clock);
        let (least, code) = (&mut self.recent[0], code(rtt));
        if *least == 0 || code < *least {
            *least = code;
        }
    }

    /// The least clean sample of the last 17 to 34 s, ticks; 0: none.
    fn least(&self) -> u32 {
        match self.recent {
            [0, other] | [other, 0] => decoded(other),
            [a, b] => decoded(a.min(b)),
        }
    }

    fn turn(&mut self, clock: &Clock) {
        let period = (clock.coarse >> PERIOD_BITS) as u8;
        if period != self.period {
            self.period = period;
            self.recent = [0, self.recent[0]];
        }
    }
}

/// Whether a pure acknowledgement of what side `e` sent was probably held back.
pub(super) fn was_held_back(
    flow: &Flow,
    held: &mut Held,
    e: usize,
    rtt: u32,
    clock: &Clock,
    pool: &Pool,
) -> bool {
    let ever = flow.sides[e].rtt_min;
    let (ring, sender) = (&flow.sides[e].ring, &flow.tcp[e]);
    held.turn(clock);
    let least = if is_usual(rtt.saturating_sub(ever)) { ever } else { held.least() };
    if ever == 0 || least == 0 {
        return false;
    }
    let excess = rtt.saturating_sub(least);
    let silence = sender.since_sample(clock);
    let next = ring.oldest(clock, pool);
    // The timer: nothing sent since could have been answered by now, or both sides had fallen
    // silent. In a queue samples follow each other, and so does the data that acknowledgements
    // release; only the first of a burst may be mistaken.
    let alone = silence >= DELAYED_UNITS
        && (next.is_none_or(|next| next < least)
            || ring.newest(clock, pool).is_some_and(|age| age >= DELAYED));
    // The echo names the first segment of two (RFC 7323, section 4.3). If the sender paused
    // after it, and what came next could have been answered by now, that was the second. That
    // may have been a little faster than the fastest so far.
    let (pause, possible) = ((least / 2).max(PAUSE), least - least / 8);
    let second = ring.mode() == Mode::Timestamp
        && excess >= pause
        && next.is_some_and(|next| next >= possible && rtt.saturating_sub(next) >= pause);
    if excess > MOST || !(second || alone && excess >= DELAYED) {
        if alone && sender.flight == 1 && excess < DELAYED {
            held.prompt = (held.prompt + 1).min(MOST_PROMPT);
            held.alike = 0;
        }
        return false;
    }
    // A receiver that acknowledges at once goes on to do so; Linux' does for 16 segments, and
    // again after a silence longer than the retransmission time-out.
    let rested = silence >= RESTED_UNITS + (rtt >> TcpSide::SAMPLED_BITS) as u16;
    if held.prompt >= if rested { PROMPT_RESTED } else { PROMPT } {
        return false;
    }
    // A path is longer by the same each time; but so is Linux' timer, and a second segment that
    // follows by a round trip.
    if !second && !is_usual(excess) {
        let near = excess.abs_diff(held.excess) <= (held.excess / 8).max(NEAR);
        held.alike = if near { (held.alike + 1).min(MOST_ALIKE) } else { 1 };
        held.excess = excess;
        if held.alike > ALIKE {
            return false;
        }
    }
    held.prompt = 0;
    true
}

/// What Linux' shortest timer, `TCP_DELACK_MIN`, makes of it.
fn is_usual(excess: u32) -> bool {
    (USUAL_LEAST..USUAL_MOST).contains(&excess)
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
/// Acknowledgements are held back for longer than this: 40 ms by Linux, up to 500 by RFC
/// 1122 (section 4.2.3.2).
pub(super) const DELAYED: u32 = ns_to_ticks(20_000_000);
/// [`DELAYED`] in the units of [`TcpSide::since_sample`].
const DELAYED_UNITS: u16 = (DELAYED >> TcpSide::SAMPLED_BITS) as u16;
/// RFC 1122, section 4.2.3.2: it must be less.
const MOST: u32 = ns_to_ticks(500_000_000);
/// Longer than any common TSval clock ticks: the sender did pause.
const PAUSE: u32 = ns_to_ticks(11_000_000);
/// Longer than common retransmission time-outs.
const RESTED_UNITS: u16 = (ns_to_ticks(500_000_000) >> TcpSide::SAMPLED_BITS) as u16;
const PROMPT: u8 = 20;
const PROMPT_RESTED: u8 = 4;
const MOST_PROMPT: u8 = 31;
/// That many are told as held back before the path is taken to be as long.
const ALIKE: u8 = 3;
const MOST_ALIKE: u8 = 7;
const NEAR: u32 = ns_to_ticks(2_000_000);
const USUAL_LEAST: u32 = ns_to_ticks(36_000_000);
const USUAL_MOST: u32 = ns_to_ticks(48_000_000);

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
