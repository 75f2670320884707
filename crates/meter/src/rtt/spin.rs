//! QUIC's spin bit (RFC 9000, section 17.4), with a verdict, since most connections leave it
//! off or set it at random.

use sonde_results::rtt::SpinVerdict;

use super::clock::{Clock, ns_to_coarse};
use super::counters::RttCounters;

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
    #[inline]
    pub(super) fn packet(
        &mut self,
        side: usize,
        spin: bool,
        clock: &Clock,
        counters: &mut RttCounters,
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
            counters.stale += 1;
            return None;
        }
        clock.round_trip(last, counters)
    }
}

/// Edges in a row that must alternate before one is believed.
const RUN: u8 = 16;
/// Edges out of turn that make a bit random.
const RANDOM: u16 = 8;
/// Packets each way without an edge that make a bit constant.
const ENOUGH: u8 = 32;
const RECENT: u16 = ns_to_coarse(64_000_000_000) as u16 + 1;
