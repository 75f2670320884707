//! QUIC (RFC 9000): the handshake's first flights, and the spin bit (section 17.4) with a
//! verdict, since most connections leave it off or set it at random.

use sonde_results::rtt::{RttClass, RttKind, SpinVerdict};
use sonde_wire::flow::Quic;

use super::clock::{Clock, ns_to_ticks};
use super::flow::{Flow, Handshake, Stats};
use super::packet::Packet;
use super::samples::{Found, Shared};

/// What the spin bit has done. Each side's edges should alternate with the other's.
#[derive(Clone, Copy, Default)]
pub(super) struct Spin {
    edges: u32,
    /// The last edge, ticks and coarse.
    edge_at: u32,
    edge_coarse: u16,
    /// Edges out of turn. Saturates: by then the verdict has long been given.
    violations: u16,
    flags: u8,
    /// Edges that alternated since the last one that did not.
    run: u8,
    /// Short headers seen from each side, up to [`ENOUGH`].
    packets: [u8; 2],
}

/// A packet of a flow.
pub(super) fn input(
    flow: &mut Flow,
    stats: &mut Stats,
    quic: Quic,
    at: &Packet,
    shared: &mut Shared,
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
            if let Some(rtt) = flow.spin.packet(at.side, spin, at.clock, shared) {
                let (kind, class) = (RttKind::QuicSpin, RttClass::Clean);
                shared.sample(
                    at.place,
                    flow,
                    stats,
                    Found { side: at.side, kind, class, rtt },
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
fn client_answer(flow: &mut Flow, stats: &mut Stats, at: &Packet, shared: &mut Shared) {
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
    shared: &mut Shared,
) {
    if let Some(rtt) = shared.age(flow.hs_at, at.clock).filter(|&rtt| rtt <= limit) {
        stats.sides[1 - at.side].handshake = rtt;
        let (kind, class) = (RttKind::QuicHandshake, RttClass::Clean);
        shared.sample(at.place, flow, stats, Found { side: at.side, kind, class, rtt }, at.clock);
    }
}

impl Spin {
    const VALUE: [u8; 2] = [1, 2];
    const SEEN: [u8; 2] = [4, 8];
    /// The last edge was side 1's.
    const LAST: u8 = 16;
    /// There is a last edge.
    const EDGE: u8 = 32;
    const SPINS: u8 = 64;
    const RANDOM: u8 = 128;

    /// What the bit did in this flow.
    pub(super) fn verdict(&self) -> SpinVerdict {
        if self.flags & Self::RANDOM != 0 {
            SpinVerdict::Random
        } else if self.flags & Self::SPINS != 0 && u32::from(self.violations) * 8 <= self.edges {
            SpinVerdict::Spinning
        } else if self.edges == 0 && self.packets == [ENOUGH; 2] {
            SpinVerdict::Off
        } else {
            SpinVerdict::Unknown
        }
    }

    /// A long pause: the next edge says nothing about a round trip.
    pub(super) fn pause(&mut self) {
        self.run = 0;
        self.flags &= !Self::EDGE;
    }

    /// The round trip, ticks, that a short header of `side` ends.
    fn packet(
        &mut self,
        side: usize,
        spin: bool,
        clock: &Clock,
        shared: &mut Shared,
    ) -> Option<u32> {
        self.packets[side] = (self.packets[side] + 1).min(ENOUGH);
        let was = self.flags & Self::VALUE[side] != 0;
        let seen = self.flags & Self::SEEN[side] != 0;
        self.flags |= Self::SEEN[side];
        if spin != was {
            self.flags ^= Self::VALUE[side];
        }
        if !seen || spin == was {
            return None;
        }
        self.edges = self.edges.saturating_add(1);
        let (last, last_coarse) = (self.edge_at, self.edge_coarse);
        let first = self.flags & Self::EDGE == 0;
        let alternates = (self.flags & Self::LAST != 0) != (side == 1);
        (self.edge_at, self.edge_coarse) = (clock.tick, clock.coarse as u16);
        self.flags = self.flags & !Self::LAST | Self::EDGE | if side == 1 { Self::LAST } else { 0 };
        if first {
            return None;
        }
        if alternates {
            self.run = self.run.saturating_add(1);
            if self.run >= RUN {
                self.flags |= Self::SPINS;
            }
        } else {
            self.violations = self.violations.saturating_add(1);
            self.run = 0;
        }
        if self.violations >= RANDOM && self.verdict() != SpinVerdict::Spinning {
            self.flags |= Self::RANDOM;
        }
        if self.flags & Self::RANDOM != 0 || self.run < RUN {
            return None;
        }
        if (clock.coarse as u16).wrapping_sub(last_coarse) > RECENT {
            shared.counters.stale += 1;
            return None;
        }
        shared.age(last, clock)
    }
}

/// The datagrams of one flight follow each other sooner than this.
const FLIGHT: u32 = ns_to_ticks(50_000_000);
/// Edges in a row that must alternate before one is believed.
const RUN: u8 = 16;
/// Edges out of turn that make a bit random.
const RANDOM: u16 = 8;
/// Packets each way without an edge that make a bit constant.
const ENOUGH: u8 = 32;
const RECENT: u16 = super::clock::ns_to_coarse(64_000_000_000) as u16 + 1;
