//! Requests with an identifier that the answer repeats: ICMP echo (RFC 792, RFC 4443), DNS
//! over UDP (RFC 1035), SCTP heartbeats (RFC 9260, section 8.3).

use sonde_results::rtt::RttClass;

use super::exchange::Exchange;
use super::flow::{Flow, Stats};
use super::packet::Packet;
use super::requests::Request;
use super::samples::{NewSample, SharedState};

/// Notes a request, or takes the sample of an answer.
pub(super) fn input(
    flow: &mut Flow,
    stats: &mut Stats,
    exchange: Exchange,
    at: &Packet,
    shared: &mut SharedState,
) {
    let Exchange { kind, answer, id, name } = exchange;
    let (requests, counters) = (&mut shared.requests, &mut shared.counters);
    let side = if answer { 1 - at.side } else { at.side };
    let request = Request { key: &flow.key, side, id, name };
    let counts = &mut stats.sides[side].requests;
    if !answer {
        requests.ask(request, counts, at.clock, counters);
    } else if let Some(rtt) = requests.answer(request, counts, at.clock, counters) {
        let found = NewSample { side: at.side, kind, class: RttClass::Clean, rtt };
        shared.sample(at.index, flow, stats, found, at.clock);
    }
}
