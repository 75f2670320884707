//! What a key has of the layer above IP where the packet alone does not show it. It does not in
//! fragments, nor in ICMP replies, which belong to the flow of their request.

use sonde_wire::feature::{Feature, SHAPE_FRAGMENT, SHAPE_LATER_FRAGMENT, SHAPE_NO_TRANSPORT};
use sonde_wire::ipv4::{PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use sonde_wire::ipv6::PROTOCOL_ICMPV6;

use super::FlowCache;
use crate::flow::key::Upper;

/// Whether the packet is complete by itself: nearly all are.
#[inline(always)]
pub(super) fn is_plain(packet: &Feature) -> bool {
    packet.shape & SHAPE_FRAGMENT == 0 && matches!(packet.protocol, PROTOCOL_TCP | PROTOCOL_UDP)
}

impl FlowCache {
    /// For the key of a packet that is not plain. And whether it is a reply: that counts to its
    /// request's flow if that is there.
    #[cold]
    pub(super) fn upper(&mut self, packet: &Feature, at: i64) -> (Upper, bool) {
        let Some(own) = self.own_upper(packet, at) else {
            let none = Upper { protocol: packet.protocol, ..Upper::default() };
            return (none, false);
        };
        // Of a message that was cut short, 0 may be no type.
        if !self.biflow || packet.shape & SHAPE_NO_TRANSPORT != 0 {
            return (own, false);
        }
        match request(own.protocol, own.destination_port) {
            // As the request has it, the other way round.
            Some(request) => (Upper { source_port: request, destination_port: 0, ..own }, true),
            None => (own, false),
        }
    }

    /// The packet's own, or of a fragment that of its first one; `None` where that was not
    /// seen.
    fn own_upper(&mut self, packet: &Feature, at: i64) -> Option<Upper> {
        if packet.shape & SHAPE_FRAGMENT == 0 {
            return Some(Upper::of(packet));
        }
        let upper = self.fragments.upper(packet, at, &self.hasher);
        if upper.is_none() && packet.shape & SHAPE_LATER_FRAGMENT != 0 {
            self.counters.fragments_unmatched += 1;
        }
        upper
    }
}

/// The type and code of the ICMP request that this is a reply to. Known are echo and timestamp of
/// RFC 792, echo of RFC 4443, section 4. Errors and discovery are flows of their own. So are
/// information (obsolete, RFC 6918) and codes other than 0: a record that has the request's code
/// would not give the reply's.
fn request(protocol: u8, type_code: u16) -> Option<u16> {
    match (protocol, type_code.to_be_bytes()) {
        (PROTOCOL_ICMP, [0, 0]) => Some(8 << 8),
        (PROTOCOL_ICMP, [14, 0]) => Some(13 << 8),
        (PROTOCOL_ICMPV6, [129, 0]) => Some(128 << 8),
        _ => None,
    }
}

/// The type and code of the reply to a request: the other way round.
pub(super) fn reply(protocol: u8, type_code: u16) -> u16 {
    let replies = [0, 14 << 8, 129 << 8];
    let answers = |reply: &u16| request(protocol, *reply) == Some(type_code);
    replies.into_iter().find(answers).unwrap_or(type_code)
}
