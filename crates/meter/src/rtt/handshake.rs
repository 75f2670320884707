//! TCP's handshake (RFC 9293, section 3.5): its two halves, and what a SYN means to the
//! connection that is there.

use sonde_results::rtt::{RttClass, RttKind};
use sonde_wire::flow::Tcp;
use sonde_wire::tcp::{ACK, RST, SYN};

use super::away::FAR;
use super::flow::{Flow, Handshake, Stats, TcpSide, count};
use super::held::{DELAYED, LONGEST_HELD};
use super::noted_syn::NotedSyn;
use super::packet::Packet;
use super::samples::{NewSample, SharedState};
use crate::sequence::after;

/// What a segment is to the flow of its key.
#[derive(Clone, Copy)]
pub(super) enum Begins {
    /// A part of it.
    No,
    /// A new connection's SYN, after the end of this one.
    Anew,
    /// The confirmation that a connection began with the SYN that was noted.
    With(NotedSyn),
}

/// Whether a new connection took the flow's ports.
#[inline]
pub(super) fn begins(flow: &Flow, stats: &Stats, tcp: &Tcp, d: usize) -> Begins {
    if flow.is_closed() {
        let anew = tcp.flags & (SYN | RST) == SYN;
        return if anew { Begins::Anew } else { Begins::No };
    }
    if flow.has(Flow::NOTED) && stats.syn.is_confirmed(tcp, d) {
        return Begins::With(stats.syn);
    }
    Begins::No
}

/// The flow that begins with a SYN that was noted.
pub(super) fn begin(flow: &mut Flow, noted: &NotedSyn) {
    let d = usize::from(noted.side);
    match noted.ack {
        None => {
            flow.client = noted.side;
            flow.isn = noted.seq;
            flow.flags |= Flow::ISN;
            flow.handshake = Handshake::Sent;
            flow.flags |= if noted.again { Flow::VOID_SERVER } else { 0 };
        }
        Some(ack) => {
            flow.client = 1 - noted.side;
            flow.handshake = Handshake::Received;
            flow.flags |= if noted.again { Flow::VOID_CLIENT } else { 0 };
            flow.tcp[1 - d].ack = ack;
            flow.tcp[1 - d].set(TcpSide::ACK);
            flow.tcp[d].ack = noted.end;
        }
    }
    flow.hs_at = noted.at;
    begin_side(&mut flow.tcp[d], noted.end, noted.tsval);
}

/// What a SYN says of its sender.
fn begin_side(side: &mut TcpSide, next: u32, tsval: Option<u32>) {
    side.nxt = next;
    side.set(TcpSide::NXT);
    if let Some(tsval) = tsval {
        side.tsval = tsval;
        side.set(TcpSide::TS | TcpSide::EDGES);
    }
}

/// SYN and SYN-ACK. `fresh`: it is the flow's first packet.
pub(super) fn synchronise(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    at: &Packet,
    fresh: bool,
    shared: &mut SharedState,
) {
    let (d, e) = (at.side, 1 - at.side);
    let known = match tcp.flags & ACK {
        0 => syn(flow, tcp, at, fresh),
        _ => syn_ack(flow, stats, tcp, at, fresh, shared),
    };
    match known {
        Known::Begins => {
            flow.hs_at = at.clock.tick;
            begin_side(&mut flow.tcp[d], after_syn(tcp), value(tcp));
        }
        Known::Joins => begin_side(&mut flow.tcp[d], after_syn(tcp), value(tcp)),
        Known::Again => count(&mut stats.sides[d].retransmitted),
        Known::Crossed => {
            flow.tcp[e].ack = tcp.ack;
            flow.tcp[e].set(TcpSide::ACK);
        }
        Known::Not => return note(flow, stats, tcp, at, shared),
    }
    flow.tcp[d].window = tcp.window;
    flow.tcp[d].set(TcpSide::WINDOW);
}

/// What a SYN is to the handshake.
enum Known {
    /// A step of it.
    Begins,
    /// Its sender's only, which no other one is timed by.
    Joins,
    /// A repetition.
    Again,
    /// The answer to a SYN that crossed another.
    Crossed,
    /// Not part of a handshake.
    Not,
}

fn syn(flow: &mut Flow, tcp: &Tcp, at: &Packet, fresh: bool) -> Known {
    let d = at.side;
    let from_client = d == usize::from(flow.client);
    let side = &flow.tcp[d];
    if fresh {
        flow.client = d as u8;
        flow.isn = tcp.seq;
        flow.flags |= Flow::ISN;
        flow.handshake = Handshake::Sent;
        return Known::Begins;
    }
    if from_client && flow.has(Flow::ISN) && flow.isn == tcp.seq {
        flow.flags |= Flow::VOID_SERVER;
        return Known::Again;
    }
    match flow.handshake {
        // Both open (RFC 9293, figure 7): of one of the two SYNs only the time is kept.
        Handshake::Sent if !from_client && !side.has(TcpSide::NXT) => {
            flow.flags |= Flow::VOID_CLIENT;
            Known::Joins
        }
        Handshake::Sent if !from_client && side.nxt == after_syn(tcp) => Known::Again,
        // Captured after its answer.
        Handshake::Received
            if from_client
                && !side.has(TcpSide::NXT)
                && after(side.ack, tcp.seq)
                && !after(side.ack, after_syn(tcp)) =>
        {
            flow.isn = tcp.seq;
            flow.flags |= Flow::ISN;
            Known::Joins
        }
        _ => Known::Not,
    }
}

fn syn_ack(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    at: &Packet,
    fresh: bool,
    shared: &mut SharedState,
) -> Known {
    let (d, e) = (at.side, 1 - at.side);
    if fresh {
        flow.client = e as u8;
    } else if d == usize::from(flow.client) {
        let own = flow.has(Flow::ISN) && flow.isn == tcp.seq;
        return if own && flow.tcp[e].has(TcpSide::NXT) { Known::Crossed } else { Known::Not };
    } else {
        let (side, end) = (&flow.tcp[d], after_syn(tcp));
        match flow.handshake {
            // Data in the SYN (RFC 7413) may be acknowledged, or refused.
            Handshake::Sent if after(tcp.ack, flow.isn) && !after(tcp.ack, flow.tcp[e].nxt) => {}
            Handshake::Received if side.ack == end => {
                flow.flags |= Flow::VOID_CLIENT;
                return Known::Again;
            }
            // The handshake's last step was lost behind this point.
            Handshake::Done if side.nxt.wrapping_sub(end) <= FAR => return Known::Again,
            _ => return Known::Not,
        }
        if !flow.has(Flow::VOID_SERVER) {
            let kind = RttKind::TcpHandshakeServer;
            sample(flow, stats, kind, RttClass::Clean, at, shared);
        }
    }
    flow.handshake = Handshake::Received;
    flow.tcp[e].ack = tcp.ack;
    flow.tcp[e].set(TcpSide::ACK);
    // What ends the handshake; until then nothing of this side has been acknowledged.
    flow.tcp[d].ack = after_syn(tcp);
    flow.tcp[d].clear(TcpSide::ACK);
    Known::Begins
}

fn note(flow: &mut Flow, stats: &mut Stats, tcp: &Tcp, at: &Packet, shared: &mut SharedState) {
    shared.counters.unconfirmed += 1;
    let ack = (tcp.flags & ACK != 0).then_some(tcp.ack);
    let (noted, side) = (&mut stats.syn, at.side as u8);
    let same =
        flow.flags & Flow::NOTED != 0 && (noted.seq, noted.ack, noted.side) == (tcp.seq, ack, side);
    if same {
        noted.again = true;
        return;
    }
    *noted = NotedSyn {
        seq: tcp.seq,
        end: after_syn(tcp),
        at: at.clock.tick,
        ack,
        tsval: value(tcp),
        ip_len: at.ip_len,
        side,
        again: false,
    };
    flow.flags |= Flow::NOTED;
}

/// The client's first segment after the SYN-ACK ends the handshake, whatever it says.
pub(super) fn finish(
    flow: &mut Flow,
    stats: &mut Stats,
    tcp: &Tcp,
    at: &Packet,
    shared: &mut SharedState,
) {
    flow.handshake = Handshake::Done;
    let server = &flow.tcp[1 - at.side];
    // Of more than the SYN-ACK it is an answer to what the server sent later.
    if tcp.ack != server.ack || flow.has(Flow::VOID_CLIENT) {
        return;
    }
    let age = at.clock.age(flow.hs_at);
    // With data it waited for the application; for longer than acknowledgements are held
    // back, one before it was missed.
    let class = match tcp.payload_len > 0 {
        true if age >= LONGEST_HELD => return,
        true if age >= DELAYED => RttClass::DelayedAck,
        _ => RttClass::Clean,
    };
    sample(flow, stats, RttKind::TcpHandshakeClient, class, at, shared);
}

fn sample(
    flow: &mut Flow,
    stats: &mut Stats,
    kind: RttKind,
    class: RttClass,
    at: &Packet,
    shared: &mut SharedState,
) {
    if let Some(rtt) = at.clock.round_trip(flow.hs_at, &mut shared.counters) {
        if class == RttClass::Clean {
            stats.sides[1 - at.side].handshake = rtt;
        }
        let found = NewSample { side: at.side, kind, class, rtt };
        shared.sample(at.index, flow, stats, found, at.clock);
    }
}

fn value(tcp: &Tcp) -> Option<u32> {
    tcp.timestamps.map(|(value, _)| value)
}

/// The sequence number after a SYN and its data (RFC 7413).
fn after_syn(tcp: &Tcp) -> u32 {
    tcp.seq.wrapping_add(1).wrapping_add(tcp.payload_len)
}
