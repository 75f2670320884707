//! Segments far from their connection's sequence numbers: forged, corrupt, or of a connection
//! of which something was missed here. They are believed once the other side acknowledges them.

use sonde_results::rtt::{RttClass, RttKind};
use sonde_wire::flow::Tcp;
use sonde_wire::tcp::FIN;

use super::far_segments::FarSegments;
use super::flow::{Flow, Stats, TcpSide, count};
use super::held::was_held_back;
use super::packet::Packet;
use super::samples::{NewSample, SharedState};
use crate::sequence::after;

/// Where a segment lies that is far from what its side has sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Far {
    Ahead,
    Behind,
}

/// Whether data is farther from what its side has sent than a window that needs no scale.
#[inline]
pub(super) fn far(side: &TcpSide, tcp: &Tcp) -> Option<Far> {
    if tcp.payload_len == 0 && tcp.flags & FIN == 0 {
        return None;
    }
    distance(side, tcp)
}

/// Whether a reset is as far from it. Its receiver does not believe it, either (RFC 5961,
/// section 3.2).
pub(super) fn is_far_reset(side: &TcpSide, tcp: &Tcp) -> bool {
    distance(side, tcp).is_some()
}

#[inline]
fn distance(side: &TcpSide, tcp: &Tcp) -> Option<Far> {
    if tcp.seq == side.nxt || !side.has(TcpSide::NXT) {
        return None;
    }
    let length = tcp.payload_len.wrapping_add(u32::from(tcp.flags & FIN != 0));
    let known = side.has(TcpSide::ACK) && side.nxt.wrapping_sub(side.ack) < MAX_WINDOW;
    let oldest = if known { side.ack } else { side.nxt };
    let end = tcp.seq.wrapping_add(length);
    if after(tcp.seq, side.nxt.wrapping_add(FAR)) {
        Some(Far::Ahead)
    } else if after(oldest.wrapping_sub(FAR), end) {
        Some(Far::Behind)
    } else {
        None
    }
}

/// Notes one. Nothing else becomes of it.
pub(super) fn note(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    far: Far,
    at: &Packet,
    shared: &mut SharedState,
) {
    let d = at.side;
    let (side, sums) = (&mut flow.tcp[d], &mut stats.sides[d]);
    shared.counters.unconfirmed += 1;
    let behind = far == Far::Behind;
    if behind {
        count(&mut sums.retransmitted);
    }
    let length = tcp.payload_len.wrapping_add(u32::from(tcp.flags & FIN != 0));
    let end = tcp.seq.wrapping_add(length);
    let before = sums.far;
    let goes_on = side.has(TcpSide::AWAY)
        && !after(before.start, tcp.seq)
        && !after(tcp.seq, before.end.wrapping_add(FAR));
    let new = FarSegments {
        start: tcp.seq,
        end,
        at: at.clock.tick,
        ack: tcp.ack,
        tsval: tcp.timestamps.map(|(value, _)| value),
        segments: 1,
        again: behind.into(),
        timed: true,
    };
    sums.far = match goes_on {
        false => new,
        true => FarSegments {
            start: before.start,
            end: if after(end, before.end) { end } else { before.end },
            segments: if tcp.seq == before.end { before.segments.saturating_add(1) } else { 1 },
            again: before.again.saturating_add(new.again),
            timed: !after(before.end, tcp.seq),
            ..new
        },
    };
    side.set(TcpSide::AWAY);
    // Several in a row are no accident. Behind, they may all be sent again.
    if !behind && sums.far.segments >= IN_A_ROW {
        let away = sums.far;
        shared.counters.resynchronised += 1;
        take_up(flow, d, away.end, away.tsval, shared);
    }
}

/// Whether this acknowledges what the other side sent far from its sequence numbers.
#[inline]
pub(super) fn is_confirmed(flow: &Flow, stats: &Stats, e: usize, tcp: &Tcp) -> bool {
    let away = &stats.sides[e].far;
    flow.tcp[e].has(TcpSide::AWAY) && after(tcp.ack, away.start) && !after(tcp.ack, away.end)
}

/// Both sides agree about other sequence numbers: the connection goes on there.
pub(super) fn resynchronise(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    at: &Packet,
    shared: &mut SharedState,
) {
    let (d, e) = (at.side, 1 - at.side);
    let away = stats.sides[e].far;
    shared.counters.resynchronised += 1;
    let again = &mut stats.sides[e].retransmitted;
    *again = again.saturating_sub(away.again.into());
    take_up(flow, e, away.end, away.tsval, shared);
    flow.tcp[e].ack = tcp.ack;
    flow.tcp[e].set(TcpSide::ACK);
    let mine = &flow.tcp[d];
    let known = mine.has(TcpSide::NXT)
        && !after(tcp.seq, mine.nxt.wrapping_add(FAR))
        && !after(mine.nxt.wrapping_sub(FAR), tcp.seq);
    if !known {
        take_up(flow, d, tcp.seq, tcp.timestamps.map(|(value, _)| value), shared);
        flow.tcp[d].ack = away.ack;
        flow.tcp[d].set(TcpSide::ACK);
    }
    flow.flags &= !(Flow::REQUEST | Flow::REQUEST_DNS);
    if !away.timed || tcp.ack != away.end {
        return;
    }
    let Some(rtt) = at.clock.round_trip(away.at, &mut shared.counters) else { return };
    let held = tcp.payload_len == 0
        && was_held_back(flow, &mut stats.sides[e].ack_history, e, rtt, at.clock, &shared.pool);
    let class = if held { RttClass::DelayedAck } else { RttClass::Clean };
    flow.tcp[e].note_sample(at.clock);
    let found = NewSample { side: d, kind: RttKind::TcpSequence, class, rtt };
    shared.sample(at.index, flow, stats, found, at.clock);
}

/// A side goes on at `next`.
fn take_up(flow: &mut Flow, d: usize, next: u32, tsval: Option<u32>, shared: &mut SharedState) {
    flow.sides[d].ring.void(&mut shared.pool, &mut shared.counters);
    let side = &mut flow.tcp[d];
    side.nxt = next;
    side.flight = 0;
    side.set(TcpSide::NXT);
    side.clear(
        TcpSide::AWAY
            | TcpSide::HOLE
            | TcpSide::RECOVERING
            | TcpSide::TOLD
            | TcpSide::FIN
            | TcpSide::UNUSED
            | TcpSide::ASKED
            | TcpSide::TS,
    );
    side.variation.restart();
    if let Some(tsval) = tsval {
        side.tsval = tsval;
        side.set(TcpSide::TS | TcpSide::EDGES);
    }
}

/// No window is wider (RFC 7323, section 2.3).
const MAX_WINDOW: u32 = 1 << 30;
/// The widest window without a scale. Farther than this from a connection's sequence numbers a
/// segment is believed only when the other side agrees.
pub(super) const FAR: u32 = 0xffff;
/// So many segments are believed though nobody acknowledges them: one direction only passes
/// here.
const IN_A_ROW: u16 = 4;
