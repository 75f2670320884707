//! Requests with an identifier that the answer repeats: ICMP echo (RFC 792, RFC 4443), DNS
//! over UDP (RFC 1035), SCTP heartbeats (RFC 9260, section 8.3).

use sonde_results::rtt::{RttClass, RttKind};

use super::Packet;
use super::flow::{Flow, Stats};
use super::samples::{Found, Shared};

/// A request or its answer.
pub(super) struct Exchange {
    pub(super) kind: RttKind,
    pub(super) answer: bool,
    pub(super) id: u32,
}

/// Notes a request, or takes the sample of an answer.
pub(super) fn input(
    flow: &mut Flow,
    stats: &mut Stats,
    exchange: Exchange,
    at: &Packet,
    shared: &mut Shared,
) {
    let Exchange { kind, answer, id } = exchange;
    let (pool, counters) = (&mut shared.pool, &mut shared.counters);
    if !answer {
        flow.sides[at.side].ring.arm_id(id, at.clock, pool, counters);
        return;
    }
    let ring = &mut flow.sides[1 - at.side].ring;
    if let Some(rtt) = ring.match_id(id, at.clock, pool, counters) {
        let found = Found { side: at.side, kind, class: RttClass::Clean, rtt };
        shared.sample(at.place, flow, stats, found, at.clock);
    }
}
