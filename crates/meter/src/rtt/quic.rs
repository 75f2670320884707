//! QUIC (RFC 9000): the handshake's first flights, and the round trips of the spin bit.

use sonde_results::rtt::{RttClass, RttKind};
use sonde_wire::flow::Quic;

use super::clock::{Clock, ns_to_ticks};
use super::flow::{Flow, Handshake, Stats};
use super::packet::Packet;
use super::samples::{NewSample, SharedState};

/// A packet of a flow.
pub(super) fn input(
    flow: &mut Flow,
    stats: &mut Stats,
    quic: Quic,
    at: &Packet,
    shared: &mut SharedState,
) {
    let from_client = at.side == usize::from(flow.client);
    match quic {
        Quic::Restart => {
            if flow.handshake == Handshake::Sent {
                flow.handshake = Handshake::None;
                flow.flags &= !(Flow::VOID_SERVER | Flow::EARLY);
            }
        }
        Quic::Initial if from_client => client_initial(flow, at.clock),
        Quic::Initial | Quic::Handshake | Quic::ZeroRtt if !from_client => {
            if flow.handshake == Handshake::Sent {
                if !flow.has(Flow::VOID_SERVER) {
                    handshake_sample(flow, stats, u32::MAX, at, shared);
                }
                flow.handshake = Handshake::Received;
                flow.hs_at = at.clock.tick;
            }
        }
        Quic::Handshake => client_answer(flow, stats, at, shared),
        // It may have overtaken the Initial, or hide one that shares its datagram.
        Quic::ZeroRtt if flow.handshake == Handshake::None => {
            client_initial(flow, at.clock);
            flow.flags |= Flow::EARLY;
        }
        Quic::Initial | Quic::ZeroRtt => {}
        Quic::Short { spin } => {
            if from_client {
                client_answer(flow, stats, at, shared);
            }
            if let Some(rtt) = flow.spin.packet(at.side, spin, at.clock, &mut shared.counters) {
                let (kind, class) = (RttKind::QuicSpin, RttClass::Clean);
                shared.sample(
                    at.index,
                    flow,
                    stats,
                    NewSample { side: at.side, kind, class, rtt },
                    at.clock,
                );
            }
        }
    }
}

/// A ClientHello may take several datagrams; later ones are a retransmission, and which
/// one the server answers is not known.
fn client_initial(flow: &mut Flow, clock: &Clock) {
    match flow.handshake {
        Handshake::None => {
            flow.handshake = Handshake::Sent;
            flow.hs_at = clock.tick;
        }
        Handshake::Sent if flow.has(Flow::EARLY) => {
            flow.flags &= !Flow::EARLY;
            flow.hs_at = clock.tick;
        }
        Handshake::Sent if clock.age(flow.hs_at) > FLIGHT => flow.flags |= Flow::VOID_SERVER,
        _ => {}
    }
}

/// The client's first packet that only the server's handshake makes possible.
fn client_answer(flow: &mut Flow, stats: &mut Stats, at: &Packet, shared: &mut SharedState) {
    if flow.handshake != Handshake::Received {
        return;
    }
    flow.handshake = Handshake::Done;
    let server = stats.sides[at.side].handshake;
    if server != 0 && !flow.has(Flow::VOID_CLIENT) {
        // Beyond this something was lost and sent again.
        let limit = server.saturating_mul(3).saturating_add(FLIGHT);
        handshake_sample(flow, stats, limit, at, shared);
    }
}

fn handshake_sample(
    flow: &mut Flow,
    stats: &mut Stats,
    limit: u32,
    at: &Packet,
    shared: &mut SharedState,
) {
    if let Some(rtt) =
        at.clock.round_trip(flow.hs_at, &mut shared.counters).filter(|&rtt| rtt <= limit)
    {
        stats.sides[1 - at.side].handshake = rtt;
        let (kind, class) = (RttKind::QuicHandshake, RttClass::Clean);
        shared.sample(
            at.index,
            flow,
            stats,
            NewSample { side: at.side, kind, class, rtt },
            at.clock,
        );
    }
}

/// The datagrams of one flight follow each other sooner than this.
const FLIGHT: u32 = ns_to_ticks(50_000_000);
