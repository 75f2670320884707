//! Requests with an identifier that the answer repeats: ICMP echo (RFC 792, RFC 4443), DNS
//! over UDP (RFC 1035), SCTP heartbeats (RFC 9260, section 8.3).

use sonde_results::rtt::{RttClass, RttKind};
use sonde_wire::dns;
use sonde_wire::flow::Detail;

use super::Packet;
use super::flow::{Flow, Stats};
use super::requests::Asked;
use super::samples::{Found, Shared};

/// A request or its answer.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    kind: RttKind,
    pub(super) answer: bool,
    id: u32,
    name: u16,
}

impl Exchange {
    /// What a packet is of it.
    pub(super) fn of(detail: &Detail) -> Option<Self> {
        let exchange = |kind, answer, id, name| Some(Exchange { kind, answer, id, name });
        match *detail {
            Detail::Echo { reply, sequence } => {
                exchange(RttKind::IcmpEcho, reply, sequence.into(), 0)
            }
            Detail::Dns { response, id } => {
                exchange(RttKind::Dns, response, id >> 16, dns::name(id))
            }
            Detail::Heartbeat { ack, id } => exchange(RttKind::SctpHeartbeat, ack, id, 0),
            Detail::Tcp(_) | Detail::Quic(_) | Detail::Other => None,
        }
    }
}

/// Notes a request, or takes the sample of an answer.
pub(super) fn input(
    flow: &mut Flow,
    stats: &mut Stats,
    exchange: Exchange,
    at: &Packet,
    shared: &mut Shared,
) {
    let Exchange { kind, answer, id, name } = exchange;
    let (requests, counters) = (&mut shared.requests, &mut shared.counters);
    let side = if answer { 1 - at.side } else { at.side };
    let asked = Asked { key: &flow.key, side, id, name };
    let counts = &mut stats.sides[side].requests;
    if !answer {
        requests.ask(asked, counts, at.clock, counters);
    } else if let Some(rtt) = requests.answer(asked, counts, at.clock, counters) {
        let found = Found { side: at.side, kind, class: RttClass::Clean, rtt };
        shared.sample(at.place, flow, stats, found, at.clock);
    }
}
