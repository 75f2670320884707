//! TCP (RFC 9293): timestamps (RFC 7323), sequence and acknowledgement numbers
//! by Karn's rule (RFC 6298, section 3), loss, and the server's response time.

use sonde_results::rtt::{EndReason, RttClass, RttKind};
use sonde_wire::flow::Tcp;
use sonde_wire::tcp::{ACK, FIN, RST, SYN};

use super::away::FAR;
use super::clock::{Clock, ns_to_coarse, ns_to_ticks};
use super::flow::{Flow, Handshake, Stats, TcpSide, count};
use super::held::{LONGEST_HELD, was_held_back};
use super::packet::Packet;
use super::samples::{NewSample, SharedState};
use super::slots::{Arm, Mode};
use super::{away, handshake};
use crate::sequence::{SegmentPosition, after, fill, position};

/// What a segment with data, or a FIN, is to the sequence so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    /// No data, or a keepalive that only looks like some.
    None,
    /// In order, and new.
    New,
    /// The same, but sent into a window of zero: its answer waits for the receiver.
    Probe,
    /// Its acknowledgement was captured before it.
    Late,
    /// Sent before, or not in order.
    Other,
}

/// A segment of an open flow, already counted. `fresh`: it is the flow's first.
pub(super) fn input(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    at: &Packet,
    fresh: bool,
    shared: &mut SharedState,
) {
    let d = at.side;
    if tcp.flags & RST != 0 {
        if away::is_far_reset(&flow.tcp[d], tcp) {
            shared.counters.unconfirmed += 1;
            return;
        }
        let fin = flow.tcp.iter().any(|side| side.has(TcpSide::FIN));
        flow.reason = if fin { EndReason::Fin } else { EndReason::Reset };
        return;
    }
    if tcp.flags & SYN != 0 {
        return handshake::synchronise(flow, stats, tcp, at, fresh, shared);
    }
    let answered = tcp.flags & ACK != 0;
    if answered && away::is_confirmed(flow, stats, 1 - d, tcp) {
        away::resynchronise(flow, stats, tcp, at, shared);
    } else if let Some(far) = away::far(&flow.tcp[d], tcp) {
        return away::note(flow, stats, tcp, far, at, shared);
    } else if answered {
        if flow.handshake == Handshake::Received && d == usize::from(flow.client) {
            handshake::finish(flow, stats, tcp, at, shared);
        }
        // What a segment acknowledges was sent before what it carries.
        acknowledge(flow, stats, tcp, at, shared);
    }
    if tcp.window == 0 && tcp.flags & FIN == 0 {
        count(&mut stats.sides[d].zero_windows);
    }
    flow.tcp[d].window = tcp.window;
    flow.tcp[d].set(TcpSide::WINDOW);

    let data = take_data(flow, stats, tcp, at, shared);
    let unused = match tcp.timestamps {
        Some((tsval, _)) => take_timestamp(flow, stats, tsval, data, at),
        None => Value::Used,
    };
    time_data(flow, unused, data, at, shared);
    if tcp.payload_len > 0 && data != Data::None {
        take_payload(flow, stats, tcp, data, at, shared);
    }
    if flow.tcp.iter().all(|side| side.has(TcpSide::FIN) && side.is_acknowledged()) {
        flow.reason = EndReason::Fin;
    }
}

/// The acknowledgement of what the other side sent.
fn acknowledge(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    at: &Packet,
    shared: &mut SharedState,
) {
    let (d, e) = (at.side, 1 - at.side);
    let ack = tcp.ack;
    let mine = flow.tcp[d];
    let sender = &mut flow.tcp[e];
    let known = sender.has(TcpSide::ACK);
    // Half of the sequence space away is neither before nor behind: it was not seen, either.
    let unseen = sender.has(TcpSide::NXT) && ack != sender.nxt && !after(sender.nxt, ack);
    if unseen {
        if ack.wrapping_sub(sender.nxt) > FAR {
            shared.counters.unconfirmed += 1;
            return;
        }
        // The data went another way, was dropped by the capture, or comes from another queue
        // in a moment.
        shared.counters.ack_unseen += 1;
        sender.expect_late(ack, at.clock);
        sender.nxt = ack;
        void_sequence(flow, e, shared);
    }
    let sender = &mut flow.tcp[e];
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
            sender.set(TcpSide::TOLD);
        }
    }
    let answers = sender.has(TcpSide::ASKED) && !unseen && !advance;
    if !unseen {
        match_echo(flow, stats, tcp, advance, at, shared);
    }
    if answers {
        match_keepalive(flow, stats, tcp, at, shared);
    }
    let sender = &mut flow.tcp[e];
    if advance {
        sender.clear(TcpSide::ASKED);
        if !after(sender.recover, ack) {
            sender.clear(TcpSide::RECOVERING | TcpSide::TOLD);
        }
        if !after(sender.hole[1], ack) && !sender.has(TcpSide::LATE_HOLE) {
            sender.clear(TcpSide::HOLE);
        }
        // All has arrived: no other echo will be of what is left.
        if sender.has(TcpSide::NXT) && sender.nxt == ack {
            sender.flight = 0;
            flow.sides[e].ring.forget_timestamps(&mut shared.pool);
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
    shared: &mut SharedState,
) {
    let (d, e) = (at.side, 1 - at.side);
    let ring = &mut flow.sides[e].ring;
    let (kind, rtt) = match (ring.mode(), tcp.timestamps) {
        (Mode::Timestamp, Some((_, echo))) => {
            let rtt = ring.match_timestamp(echo, at.clock, &mut shared.pool, &mut shared.counters);
            (RttKind::TcpTimestamp, rtt)
        }
        (Mode::Timestamp, None) if advance && !tcp.bad_options && ring.holds_timestamps() => {
            // Something on the way has taken the timestamps off.
            ring.void(&mut shared.pool, &mut shared.counters);
            flow.tcp[d].clear(TcpSide::TS);
            return;
        }
        (Mode::Sequence, _) if advance => {
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
    } else if tcp.payload_len == 0
        && was_held_back(flow, &mut stats.sides[e].ack_history, e, rtt, at.clock, &shared.pool)
    {
        RttClass::DelayedAck
    } else {
        RttClass::Clean
    };
    flow.tcp[e].note_sample(at.clock);
    shared.sample(at.index, flow, stats, NewSample { side: d, kind, class, rtt }, at.clock);
}

/// A keepalive (RFC 9293, section 3.8.4): where all is acknowledged, its receiver must answer at
/// once. What it answers is not known if there were two (Karn's rule): an answer may echo the
/// timestamp of what was sent before them.
fn ask(flow: &mut Flow, at: &Packet, shared: &mut SharedState) {
    let peer = flow.tcp[1 - at.side];
    let side = &mut flow.tcp[at.side];
    let closed = peer.has(TcpSide::WINDOW) && peer.window == 0;
    if !side.has(TcpSide::ACK) || side.ack != side.nxt || side.has(TcpSide::RECOVERING) || closed {
        return;
    }
    if side.has(TcpSide::ASKED) {
        void_sequence(flow, at.side, shared);
        return;
    }
    side.set(TcpSide::ASKED);
    let sequence = side.nxt;
    arm(flow, Mode::Sequence, sequence, at, shared);
}

/// The answer to a keepalive: an acknowledgement of nothing new, which is neither an update of
/// the window nor a keepalive itself.
fn match_keepalive(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    at: &Packet,
    shared: &mut SharedState,
) {
    let (d, e) = (at.side, 1 - at.side);
    let mine = flow.tcp[d];
    let sender = &mut flow.tcp[e];
    let is_answer = tcp.payload_len == 0
        && tcp.flags & FIN == 0
        && tcp.ack == sender.nxt
        && mine.has(TcpSide::NXT)
        && tcp.seq == mine.nxt
        && mine.has(TcpSide::WINDOW)
        && tcp.window == mine.window;
    if !is_answer {
        return;
    }
    sender.clear(TcpSide::ASKED);
    let ring = &mut flow.sides[e].ring;
    if ring.mode() != Mode::Sequence {
        return;
    }
    let rtt = ring.match_sequence(tcp.ack, at.clock, &mut shared.pool, &mut shared.counters);
    let Some(rtt) = rtt else { return };
    flow.tcp[e].note_sample(at.clock);
    let (kind, class) = (RttKind::TcpSequence, RttClass::Clean);
    shared.sample(at.index, flow, stats, NewSample { side: d, kind, class, rtt }, at.clock);
}

/// Whether an acknowledgement, if data carries it, comes too late to be the first. Its receiver
/// must have sent one before without data (RFC 1122, section 4.2.3.2), that was lost. Or this one
/// was lost, and is sent again. If such times go on, the path has become that long.
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
    shared: &mut SharedState,
) -> Data {
    let (d, e) = (at.side, 1 - at.side);
    let fin = tcp.flags & FIN != 0;
    let length = tcp.payload_len.wrapping_add(u32::from(fin));
    let side = &flow.tcp[d];
    let (seq, end, nxt) = (tcp.seq, tcp.seq.wrapping_add(length), side.nxt);
    let position = match side.has(TcpSide::NXT) {
        true => position(seq, end, fin, nxt, side.hole()),
        false => SegmentPosition::Next,
    };
    if position == SegmentPosition::Keepalive {
        ask(flow, at, shared);
        return Data::None;
    }
    if length == 0 {
        return Data::None;
    }
    let window_closed = flow.tcp[e].has(TcpSide::WINDOW) && flow.tcp[e].window == 0;
    let patience = patience(stats);
    if flow.tcp[d].has(TcpSide::ASKED) {
        // What comes now may answer either.
        flow.tcp[d].clear(TcpSide::ASKED);
        void_sequence(flow, d, shared);
    }
    let side = &mut flow.tcp[d];
    let sums = &mut stats.sides[d];
    if fin {
        side.set(TcpSide::FIN);
    }
    match position {
        SegmentPosition::Keepalive => {}
        SegmentPosition::Next => {
            side.nxt = end;
            side.set(TcpSide::NXT);
            side.clear(TcpSide::AWAY);
            return if window_closed && tcp.payload_len == 1 { Data::Probe } else { Data::New };
        }
        SegmentPosition::Ahead => {
            count(&mut sums.gaps);
            side.clear(TcpSide::AWAY);
            if !side.has(TcpSide::HOLE) || side.has(TcpSide::LATE_HOLE) {
                side.hole[0] = nxt;
                side.hole_at = at.clock.tick;
                side.set(TcpSide::HOLE);
                side.clear(TcpSide::LATE_HOLE);
            }
            side.hole[1] = seq;
            side.nxt = end;
        }
        SegmentPosition::Overlap => {
            count(&mut sums.retransmitted);
            side.nxt = end;
        }
        SegmentPosition::Hole => {
            let late = side.is_late(at.clock);
            match fill(side.hole, seq, end) {
                Some(rest) => side.hole = rest,
                None => side.clear(TcpSide::HOLE | TcpSide::LATE_HOLE),
            }
            if late {
                return Data::Late;
            }
            // Later, it was lost before it came here.
            let overtaken = at.clock.age(side.hole_at) < patience;
            count(if overtaken { &mut sums.reordered } else { &mut sums.retransmitted });
        }
        SegmentPosition::Old => count(&mut sums.retransmitted),
    }
    // Karn's rule: what an acknowledgement answers is not known until all this is over.
    side.enter_recovery(side.nxt);
    void_sequence(flow, d, shared);
    Data::Other
}

/// How late a segment may be and still count as overtaken, ticks. Sooner than a round trip after
/// the gap showed, no sender can know of a loss. Some round trips are shorter than the handshake's.
fn patience(stats: &Stats) -> u32 {
    match stats.sides.map(|side| side.handshake) {
        [0, _] | [_, 0] => REORDERING,
        [there, back] => (there + back) / 4 * 3,
    }
}

impl TcpSide {
    /// What an acknowledgement names beyond all that was seen may have been captured behind
    /// it.
    fn expect_late(&mut self, ack: u32, clock: &Clock) {
        if !self.is_late(clock) {
            self.hole[0] = self.nxt;
        }
        self.hole[1] = ack;
        self.hole_at = clock.tick;
        self.set(TcpSide::HOLE | TcpSide::LATE_HOLE);
    }

    /// Its hole is of data that was acknowledged a moment ago.
    fn is_late(&self, clock: &Clock) -> bool {
        self.has(TcpSide::HOLE)
            && self.has(TcpSide::LATE_HOLE)
            && clock.age(self.hole_at) < REORDERING
    }

    fn hole(&self) -> Option<[u32; 2]> {
        self.has(TcpSide::HOLE).then_some(self.hole)
    }
}

/// Follows a side's TSvals. A pure acknowledgement does not use its TSval up: it is not what
/// makes the other side acknowledge something new.
fn take_timestamp(
    flow: &mut Flow,
    stats: &mut Stats,
    tsval: u32,
    data: Data,
    at: &Packet,
) -> Value {
    let srtt = flow.sides[at.side].srtt;
    let side = &mut flow.tcp[at.side];
    if !side.has(TcpSide::TS) {
        side.tsval = tsval;
        side.set(TcpSide::TS);
        return Value::Used;
    }
    let value = if after(tsval, side.tsval) {
        let slow = side.variation.is_slower(srtt, side.tsval, tsval, at.clock);
        let delay = side.variation.edge(side.tsval, tsval, at.clock);
        let greatest = &mut stats.sides[at.side].variation_max;
        *greatest = delay.max(*greatest);
        side.tsval = tsval;
        let certain = side.has(TcpSide::EDGES);
        side.set(TcpSide::EDGES);
        match (certain, slow) {
            (false, _) => Value::Used,
            (true, false) => Value::Unused(tsval),
            (true, true) => Value::Slow(tsval),
        }
    } else if tsval == side.tsval && side.has(TcpSide::UNUSED) {
        Value::Unused(tsval)
    } else {
        Value::Used
    };
    side.clear(TcpSide::UNUSED);
    if matches!(data, Data::None | Data::Late) && value != Value::Used {
        side.set(TcpSide::UNUSED);
    }
    value
}

/// What a segment's TSval is worth.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Data has carried it already, or may have.
    Used,
    Unused(u32),
    /// Unused, but its clock hardly ticks within a round trip.
    Slow(u32),
}

/// Arms a TSval with the first segment that carries data and it. One that is sent again with data
/// shows which copy arrived (RFC 7323, section 4). So what is sent again, or not in order, can be
/// timed, too. Where there is none, the sequence number of new data, by Karn's rule (RFC 6298,
/// section 3).
fn time_data(flow: &mut Flow, value: Value, data: Data, at: &Packet, shared: &mut SharedState) {
    if !matches!(data, Data::New | Data::Other) {
        return;
    }
    let side = &mut flow.tcp[at.side];
    side.flight = side.flight.saturating_add(at.segments.min(2) as u8).min(TcpSide::MANY);
    let side = &flow.tcp[at.side];
    let by_number = data == Data::New && !side.has(TcpSide::RECOVERING);
    let waits = flow.sides[at.side].ring.holds_timestamps();
    let echoed = flow.tcp[1 - at.side].has(TcpSide::TS);
    match value {
        Value::Unused(tsval) if echoed => arm(flow, Mode::Timestamp, tsval, at, shared),
        Value::Slow(tsval) if echoed && (!by_number || waits) => {
            arm(flow, Mode::Timestamp, tsval, at, shared);
        }
        _ if by_number && !waits => {
            let end = side.nxt;
            arm(flow, Mode::Sequence, end, at, shared);
        }
        _ => {}
    }
}

/// Forgets sequence numbers that wait: what is outstanding has become ambiguous.
fn void_sequence(flow: &mut Flow, side: usize, shared: &mut SharedState) {
    let ring = &mut flow.sides[side].ring;
    if ring.mode() == Mode::Sequence {
        ring.void(&mut shared.pool, &mut shared.counters);
    }
}

fn arm(flow: &mut Flow, mode: Mode, key: u32, at: &Packet, shared: &mut SharedState) {
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
    shared: &mut SharedState,
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
        let found =
            NewSample { side: at.side, kind: RttKind::Dns, class: RttClass::Clean, rtt: time };
        shared.sample(at.index, flow, stats, found, at.clock);
    }
}

fn response_time(flow: &Flow, clock: &Clock) -> Option<u32> {
    let coarse = (clock.coarse as u16).wrapping_sub(flow.request_coarse);
    let age = clock.age(flow.request_at);
    (coarse <= RECENT && age <= super::clock::MAX_RTT).then_some(age.max(1))
}

/// How late an overtaken segment may be where the handshake was not seen, and one whose
/// acknowledgement was captured before it.
const REORDERING: u32 = ns_to_ticks(3_000_000);
const RECENT: u16 = ns_to_coarse(64_000_000_000) as u16 + 1;
