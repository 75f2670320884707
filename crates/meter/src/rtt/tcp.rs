//! TCP (RFC 9293): handshake, timestamps (RFC 7323), sequence and acknowledgement numbers
//! by Karn's rule (RFC 6298, section 3), loss, and the server's response time.

use sonde_results::rtt::{EndReason, RttClass, RttKind};
use sonde_wire::flow::Tcp;

use super::Packet;
use super::clock::{Clock, TICK_MASK, ns_to_coarse, ns_to_ticks};
use super::flow::{Flow, Handshake, Stats, TcpSide, count};
use super::samples::{Found, Shared};
use super::slots::{Arm, Mode, Pool};
use crate::sequence::{Place, after, fill, place};

/// What a segment with data, or a FIN, is to the sequence so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    /// No data, or a keepalive that only looks like some.
    None,
    /// In order, and new.
    New,
    /// The same, but sent into a window of zero: its answer waits for the receiver.
    Probe,
    /// Sent before, or not in order.
    Other,
}

/// Whether a SYN ends the flow that is there: a new connection took its ports.
pub(super) fn begins_anew(flow: &Flow, tcp: &Tcp, d: usize) -> bool {
    if tcp.flags & RST != 0 || tcp.flags & SYN == 0 {
        return false;
    }
    if flow.is_closed() {
        return true;
    }
    let from_client = d == usize::from(flow.client);
    if tcp.flags & ACK == 0 {
        return !(from_client && flow.has(Flow::ISN) && flow.isn == tcp.seq);
    }
    match flow.handshake {
        Handshake::None => true,
        Handshake::Sent | Handshake::Done => from_client,
        Handshake::Received => from_client || after_syn(tcp) != flow.tcp[d].nxt,
    }
}

/// A segment of an open flow, already counted. `fresh`: it is the flow's first.
pub(super) fn input(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    at: &Packet,
    fresh: bool,
    shared: &mut Shared,
) {
    let d = at.side;
    if tcp.flags & RST != 0 {
        let fin = flow.tcp.iter().any(|side| side.has(TcpSide::FIN));
        flow.reason = if fin { EndReason::Fin } else { EndReason::Reset };
        return;
    }
    if tcp.flags & SYN != 0 {
        synchronise(flow, stats, tcp, at, fresh, shared);
        flow.tcp[d].window = tcp.window;
        flow.tcp[d].set(TcpSide::WINDOW);
        return;
    }
    let answered = tcp.flags & ACK != 0;
    if answered && flow.handshake == Handshake::Received && d == usize::from(flow.client) {
        finish_handshake(flow, stats, tcp, at, shared);
    }
    // What a segment acknowledges was sent before what it carries.
    if answered {
        acknowledge(flow, stats, tcp, at, shared);
    }
    if tcp.window == 0 && tcp.flags & FIN == 0 {
        count(&mut stats.sides[d].zero_windows);
    }
    flow.tcp[d].window = tcp.window;
    flow.tcp[d].set(TcpSide::WINDOW);

    let data = take_data(flow, stats, tcp, at, shared);
    match tcp.timestamps {
        Some((tsval, _)) => take_timestamp(flow, stats, tsval, data, at, shared),
        None if data == Data::New && !flow.tcp[d].has(TcpSide::RECOVERING) => {
            let key = flow.tcp[d].nxt;
            arm(flow, Mode::Sequence, key, at, shared);
        }
        None => {}
    }
    if tcp.payload_len > 0 && data != Data::None {
        take_payload(flow, stats, tcp, data, at, shared);
    }
    if flow.tcp.iter().all(|side| side.has(TcpSide::FIN) && side.is_acknowledged()) {
        flow.reason = EndReason::Fin;
    }
}

/// SYN and SYN-ACK (RFC 9293, section 3.5).
fn synchronise(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    at: &Packet,
    fresh: bool,
    shared: &mut Shared,
) {
    let (d, e) = (at.side, 1 - at.side);
    if tcp.flags & ACK == 0 {
        if !fresh {
            count(&mut stats.sides[d].retransmitted);
            flow.flags |= Flow::VOID_SERVER;
            return;
        }
        flow.client = d as u8;
        flow.isn = tcp.seq;
        flow.flags |= Flow::ISN;
        flow.handshake = Handshake::Sent;
    } else {
        match flow.handshake {
            Handshake::Sent => {
                // Data in the SYN (RFC 7413) may be acknowledged, or refused.
                let client = &flow.tcp[e];
                if !after(tcp.ack, flow.isn) || after(tcp.ack, client.nxt) {
                    return;
                }
                if !flow.has(Flow::VOID_SERVER) {
                    handshake_sample(flow, stats, RttKind::TcpHandshakeServer, at, shared);
                }
            }
            _ if fresh => flow.client = e as u8,
            _ => {
                count(&mut stats.sides[d].retransmitted);
                flow.flags |= Flow::VOID_CLIENT;
                return;
            }
        }
        flow.handshake = Handshake::Received;
        flow.tcp[e].ack = tcp.ack;
        flow.tcp[e].set(TcpSide::ACK);
    }
    flow.hs_at = at.clock.tick;
    let side = &mut flow.tcp[d];
    side.nxt = after_syn(tcp);
    side.set(TcpSide::NXT);
    if let Some((tsval, _)) = tcp.timestamps {
        side.tsval = tsval;
        side.set(TcpSide::TS | TcpSide::EDGES);
    }
}

/// The client's first acknowledgement ends the handshake, whatever it acknowledges.
fn finish_handshake(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    at: &Packet,
    shared: &mut Shared,
) {
    flow.handshake = Handshake::Done;
    let server = &flow.tcp[1 - at.side];
    if tcp.ack == server.nxt && !flow.has(Flow::VOID_CLIENT) {
        handshake_sample(flow, stats, RttKind::TcpHandshakeClient, at, shared);
    }
}

fn handshake_sample(
    flow: &mut Flow,
    stats: &mut Stats,
    kind: RttKind,
    at: &Packet,
    shared: &mut Shared,
) {
    if let Some(rtt) = shared.age(flow.hs_at, at.clock) {
        stats.sides[1 - at.side].handshake = rtt;
        let found = Found { side: at.side, kind, class: RttClass::Clean, rtt };
        shared.sample(at.place, flow, stats, found, at.clock);
    }
}

/// The acknowledgement of what the other side sent.
fn acknowledge(flow: &mut Flow, stats: &mut Stats, tcp: &Tcp, at: &Packet, shared: &mut Shared) {
    let (d, e) = (at.side, 1 - at.side);
    let ack = tcp.ack;
    let mine = flow.tcp[d];
    let sender = &mut flow.tcp[e];
    let known = sender.has(TcpSide::ACK);
    let unseen = sender.has(TcpSide::NXT) && after(ack, sender.nxt);
    if unseen {
        if ack.wrapping_sub(sender.nxt) >= MAX_WINDOW {
            return;
        }
        // The data went another way, or was dropped by the capture.
        shared.counters.ack_unseen += 1;
        sender.nxt = ack;
        if flow.sides[e].ring.mode() == Mode::Sequence {
            flow.sides[e].ring.void(&mut shared.pool, &mut shared.counters);
        }
    }
    let advance = match known {
        true => after(ack, sender.ack),
        false => sender.has(TcpSide::NXT),
    };
    if sender.is_outstanding(ack) {
        let duplicate = tcp.payload_len == 0
            && tcp.flags & FIN == 0
            && known
            && ack == sender.ack
            && mine.has(TcpSide::WINDOW)
            && tcp.window == mine.window;
        if duplicate {
            count(&mut stats.sides[d].duplicate_acks);
        }
        if duplicate || tcp.sack {
            sender.enter_recovery(sender.nxt);
        }
    }
    if !unseen {
        match_echo(flow, stats, tcp, advance, at, shared);
    }
    let sender = &mut flow.tcp[e];
    if advance {
        if !after(sender.recover, ack) {
            sender.clear(TcpSide::RECOVERING);
        }
        if !after(sender.hole[1], ack) {
            sender.clear(TcpSide::HOLE);
        }
    }
    if advance || !known {
        sender.ack = ack;
        sender.set(TcpSide::ACK);
    }
}

/// The sample of an acknowledgement, if there is one in it.
fn match_echo(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    advance: bool,
    at: &Packet,
    shared: &mut Shared,
) {
    let (d, e) = (at.side, 1 - at.side);
    let ring = &mut flow.sides[e].ring;
    let (kind, rtt) = match (ring.mode(), tcp.timestamps) {
        (Mode::Timestamp, Some((_, echo))) => {
            let rtt = ring.match_timestamp(echo, at.clock, &mut shared.pool, &mut shared.counters);
            (RttKind::TcpTimestamp, rtt)
        }
        (Mode::Sequence, None) if advance => {
            let rtt =
                ring.match_sequence(tcp.ack, at.clock, &mut shared.pool, &mut shared.counters);
            (RttKind::TcpSequence, rtt)
        }
        _ => return,
    };
    let Some(rtt) = rtt else { return };
    if !advance {
        // The echo rides on data that the other side sent of its own accord.
        shared.counters.no_advance += 1;
        return;
    }
    let lost = was_lost_before(flow, e, rtt) && tcp.payload_len > 0;
    let class = if lost || flow.tcp[e].has(TcpSide::RECOVERING) {
        RttClass::Recovery
    } else if tcp.payload_len == 0 && was_held_back(flow, e, rtt, at, &shared.pool) {
        RttClass::DelayedAck
    } else {
        RttClass::Clean
    };
    flow.tcp[e].note_sample(at.clock);
    shared.sample(at.place, flow, stats, Found { side: d, kind, class, rtt }, at.clock);
}

/// Whether a pure acknowledgement probably waited at its receiver, for a second segment or a
/// timer (RFC 1122, section 4.2.3.2; RFC 5681, section 4.2).
fn was_held_back(flow: &Flow, e: usize, rtt: u32, at: &Packet, pool: &Pool) -> bool {
    let least = flow.sides[e].rtt_min;
    let (ring, sender) = (&flow.sides[e].ring, &flow.tcp[e]);
    let Some(excess) = rtt.checked_sub(least).filter(|_| least != 0) else { return false };
    let next = ring.oldest(at.clock, pool);
    // The timer: nothing sent since could have been answered by now, or both sides had fallen
    // silent. In a queue samples follow each other, and so does the data that acknowledgements
    // release; only the first of a burst may be mistaken.
    let alone = next.is_none_or(|next| next < least)
        || ring.newest(at.clock, pool).is_some_and(|age| age >= DELAYED);
    if alone && excess >= DELAYED && sender.since_sample(at.clock) >= DELAYED_UNITS {
        return true;
    }
    // The echo names the first segment of two (RFC 7323, section 4.3). If the sender paused
    // after it, and what came next could have been answered by now, that was the second. That
    // may have been a little faster than the fastest so far.
    let (held, possible) = ((least / 2).max(PAUSE), least - least / 8);
    ring.mode() == Mode::Timestamp
        && excess >= held
        && next.is_some_and(|next| next >= possible && rtt.saturating_sub(next) >= held)
}

/// Whether an acknowledgement, if data carries it, comes so late that its receiver must have
/// sent one before without data (RFC 1122, section 4.2.3.2), and that was lost; or this one
/// was, and is sent again. If such times go on, the path has become that long.
fn was_lost_before(flow: &mut Flow, e: usize, rtt: u32) -> bool {
    let srtt = flow.sides[e].srtt;
    let late = srtt != 0 && rtt.saturating_sub(srtt) >= LONGEST_HELD;
    let sender = &mut flow.tcp[e];
    let first = late && !sender.has(TcpSide::LATE);
    sender.clear(TcpSide::LATE);
    if late {
        sender.set(TcpSide::LATE);
    }
    first
}

/// Follows the sender's sequence.
fn take_data(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    at: &Packet,
    shared: &mut Shared,
) -> Data {
    let (d, e) = (at.side, 1 - at.side);
    let fin = tcp.flags & FIN != 0;
    let length = tcp.payload_len.wrapping_add(u32::from(fin));
    if length == 0 {
        return Data::None;
    }
    let window_closed = flow.tcp[e].has(TcpSide::WINDOW) && flow.tcp[e].window == 0;
    let patience = patience(stats);
    let side = &mut flow.tcp[d];
    let sums = &mut stats.sides[d];
    let (seq, end, nxt) = (tcp.seq, tcp.seq.wrapping_add(length), side.nxt);
    let place = match side.has(TcpSide::NXT) {
        true => place(seq, end, fin, nxt, side.hole()),
        false => Place::Next,
    };
    if place == Place::Keepalive {
        return Data::None;
    }
    if fin {
        side.set(TcpSide::FIN);
    }
    match place {
        Place::Keepalive => {}
        Place::Next => {
            side.nxt = end;
            side.set(TcpSide::NXT);
            return if window_closed && tcp.payload_len == 1 { Data::Probe } else { Data::New };
        }
        Place::Ahead => {
            count(&mut sums.gaps);
            if !side.has(TcpSide::HOLE) {
                side.hole[0] = nxt;
                side.hole_at = at.clock.tick;
                side.set(TcpSide::HOLE);
            }
            side.hole[1] = seq;
            side.nxt = end;
        }
        Place::Overlap => {
            count(&mut sums.retransmitted);
            side.nxt = end;
        }
        Place::Hole => {
            match fill(side.hole, seq, end) {
                Some(rest) => side.hole = rest,
                None => side.clear(TcpSide::HOLE),
            }
            // Later, it was lost before it came here.
            let overtaken = at.clock.age(side.hole_at) < patience;
            count(if overtaken { &mut sums.reordered } else { &mut sums.retransmitted });
        }
        Place::Old => count(&mut sums.retransmitted),
    }
    // Karn's rule: what an acknowledgement answers is not known until all this is over.
    side.enter_recovery(side.nxt);
    if flow.sides[d].ring.mode() == Mode::Sequence {
        flow.sides[d].ring.void(&mut shared.pool, &mut shared.counters);
    }
    Data::Other
}

/// How late a segment may be and still count as overtaken, ticks: sooner than a round trip
/// after the gap showed, no sender can know of a loss. Some round trips are shorter than
/// the handshake's.
fn patience(stats: &Stats) -> u32 {
    match stats.sides.map(|side| side.handshake) {
        [0, _] | [_, 0] => REORDERING,
        [there, back] => (there + back) / 4 * 3,
    }
}

impl TcpSide {
    fn hole(&self) -> Option<[u32; 2]> {
        self.has(TcpSide::HOLE).then_some(self.hole)
    }
}

/// Arms a TSval with the first segment that carries data and it. A pure acknowledgement is
/// not timed: it is not what makes the other side acknowledge something new. Nor does it use
/// its TSval up. One TSval sent with data again tells which copy arrived (RFC 7323,
/// section 4): also what is sent again, or not in order, can be timed.
fn take_timestamp(
    flow: &mut Flow,
    stats: &mut Stats,
    tsval: u32,
    data: Data,
    at: &Packet,
    shared: &mut Shared,
) {
    let side = &mut flow.tcp[at.side];
    if !side.has(TcpSide::TS) {
        side.tsval = tsval;
        side.set(TcpSide::TS);
        return;
    }
    let unused = if after(tsval, side.tsval) {
        let delay = side.variation.edge(side.tsval, tsval, at.clock);
        let greatest = &mut stats.sides[at.side].variation_max;
        *greatest = delay.max(*greatest);
        side.tsval = tsval;
        let certain = side.has(TcpSide::EDGES);
        side.set(TcpSide::EDGES);
        certain
    } else {
        tsval == side.tsval && side.has(TcpSide::UNUSED)
    };
    side.clear(TcpSide::UNUSED);
    match data {
        Data::None if unused => side.set(TcpSide::UNUSED),
        Data::New | Data::Other if unused => arm(flow, Mode::Timestamp, tsval, at, shared),
        _ => {}
    }
}

fn arm(flow: &mut Flow, mode: Mode, key: u32, at: &Packet, shared: &mut Shared) {
    let side = &mut flow.sides[at.side];
    let arm = Arm { mode, key, span: at.segments > 1, srtt: side.srtt };
    side.ring.arm(arm, at.clock, &mut shared.pool, &mut shared.counters);
}

/// The server's response time: from the first segment of a request to the first of its
/// answer. With DNS (RFC 7766) it is a sample too, if the identifiers agree.
fn take_payload(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    data: Data,
    at: &Packet,
    shared: &mut Shared,
) {
    let repairing = flow.tcp.iter().any(|side| side.has(TcpSide::RECOVERING));
    if at.side == usize::from(flow.client) {
        if data != Data::Other && !flow.has(Flow::REQUEST) && !repairing {
            flow.request_at = at.clock.tick;
            flow.request_coarse = at.clock.coarse as u16;
            flow.flags |= Flow::REQUEST;
            if let Some((false, id)) = tcp.dns {
                flow.request_id = id;
                flow.flags |= Flow::REQUEST_DNS;
            }
        }
        return;
    }
    if !flow.has(Flow::REQUEST) {
        return;
    }
    let same_dns = flow.has(Flow::REQUEST_DNS) && tcp.dns == Some((true, flow.request_id));
    flow.flags &= !(Flow::REQUEST | Flow::REQUEST_DNS);
    if repairing {
        return;
    }
    let Some(time) = response_time(flow, at.clock) else { return };
    count(&mut stats.responses);
    stats.response_sum += u64::from(time);
    stats.response_max = time.max(stats.response_max);
    if same_dns {
        let found = Found { side: at.side, kind: RttKind::Dns, class: RttClass::Clean, rtt: time };
        shared.sample(at.place, flow, stats, found, at.clock);
    }
}

fn response_time(flow: &Flow, clock: &Clock) -> Option<u32> {
    let coarse = (clock.coarse as u16).wrapping_sub(flow.request_coarse);
    let age = clock.age(flow.request_at);
    (coarse <= RECENT && age <= super::clock::MAX_RTT).then_some(age.max(1))
}

/// The sequence number after a SYN and its data (RFC 7413).
fn after_syn(tcp: &Tcp) -> u32 {
    tcp.seq.wrapping_add(1).wrapping_add(tcp.payload_len)
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
/// No window is wider (RFC 7323, section 2.3).
const MAX_WINDOW: u32 = 1 << 30;
/// Acknowledgements are held back for longer than this: 40 ms by Linux, up to 500 by RFC
/// 1122 (section 4.2.3.2).
const DELAYED: u32 = ns_to_ticks(20_000_000);
/// No common receiver holds an acknowledgement back for longer: Linux' `TCP_DELACK_MAX`.
const LONGEST_HELD: u32 = ns_to_ticks(200_000_000);
/// [`DELAYED`] in the units of [`TcpSide::since_sample`].
const DELAYED_UNITS: u16 = (DELAYED >> TcpSide::SAMPLED_BITS) as u16;
/// Longer than any common TSval clock ticks: the sender did pause.
const PAUSE: u32 = ns_to_ticks(11_000_000);
/// How late an overtaken segment may be where the handshake was not seen.
const REORDERING: u32 = ns_to_ticks(3_000_000);
const RECENT: u16 = ns_to_coarse(64_000_000_000) as u16 + 1;
const _: () = assert!(DELAYED < TICK_MASK);
