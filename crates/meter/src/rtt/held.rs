//! Acknowledgements that their receiver probably held back, for a second segment or a timer (RFC
//! 1122, section 4.2.3.2; RFC 5681, section 4.2). They are distinguished from a path that has
//! become longer.

use super::ack_history::AckHistory;
use super::clock::{Clock, ns_to_ticks};
use super::flow::{Flow, TcpSide};
use super::slots::{Mode, Pool};

/// Whether a pure acknowledgement of what side `e` sent was probably held back.
pub(super) fn was_held_back(
    flow: &Flow,
    history: &mut AckHistory,
    e: usize,
    rtt: u32,
    clock: &Clock,
    pool: &Pool,
) -> bool {
    let ever = flow.sides[e].rtt_min;
    let (ring, sender) = (&flow.sides[e].ring, &flow.tcp[e]);
    history.turn(clock);
    let least = if is_usual(rtt.saturating_sub(ever)) { ever } else { history.least() };
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
            history.prompt = (history.prompt + 1).min(MOST_PROMPT);
            history.alike = 0;
        }
        return false;
    }
    // A receiver that acknowledges at once goes on to do so; Linux' does for 16 segments, and
    // again after a silence longer than the retransmission time-out.
    let rested = silence >= RESTED_UNITS + (rtt >> TcpSide::SAMPLED_BITS) as u16;
    if history.prompt >= if rested { PROMPT_RESTED } else { PROMPT } {
        return false;
    }
    // A path is longer by the same each time; but so is Linux' timer, and a second segment that
    // follows by a round trip.
    if !second && !is_usual(excess) {
        let near = excess.abs_diff(history.excess) <= (history.excess / 8).max(NEAR);
        history.alike = if near { (history.alike + 1).min(MOST_ALIKE) } else { 1 };
        history.excess = excess;
        if history.alike > ALIKE {
            return false;
        }
    }
    history.prompt = 0;
    true
}

/// What Linux' shortest timer, `TCP_DELACK_MIN`, makes of it.
fn is_usual(excess: u32) -> bool {
    (USUAL_LEAST..USUAL_MOST).contains(&excess)
}

/// Acknowledgements are held back for longer than this: 40 ms by Linux, up to 500 by RFC
/// 1122 (section 4.2.3.2).
pub(super) const DELAYED: u32 = ns_to_ticks(20_000_000);
/// No common receiver holds an acknowledgement back for longer: Linux' `TCP_DELACK_MAX`.
pub(super) const LONGEST_HELD: u32 = ns_to_ticks(200_000_000);
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
/// That many are reported as held back before the path is taken to be as long.
const ALIKE: u8 = 3;
const MOST_ALIKE: u8 = 7;
const NEAR: u32 = ns_to_ticks(2_000_000);
const USUAL_LEAST: u32 = ns_to_ticks(36_000_000);
const USUAL_MOST: u32 = ns_to_ticks(48_000_000);
