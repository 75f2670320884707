//! What a packet says of a request with an identifier that the answer repeats.

use sonde_results::rtt::RttKind;
use sonde_wire::dns;
use sonde_wire::flow::Detail;

/// A request or its answer.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    pub(super) kind: RttKind,
    pub(super) answer: bool,
    pub(super) id: u32,
    /// Of DNS: stands for the name that is asked for.
    pub(super) name: u16,
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
