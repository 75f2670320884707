//! Frames that come twice ([`crate::copies`]): the second one says nothing that the first did
//! not.

use sonde_wire::flow::{Detail, FlowPacket, Tcp};

use super::clock::Clock;
use crate::copies::{APART, DuplicateDetector, mix};

/// The packets that passed last.
pub(super) struct Duplicates(DuplicateDetector);

impl Duplicates {
    pub(super) fn new() -> Self {
        Duplicates(DuplicateDetector::new())
    }

    /// Notes a packet that `side` of the flow at this index sent. Whether the same one has
    /// passed within a millisecond.
    #[inline]
    pub(super) fn note(
        &mut self,
        index: usize,
        side: usize,
        packet: &FlowPacket,
        clock: &Clock,
    ) -> bool {
        self.0.note(print(index, side, packet), clock.moment(), APART)
    }
}

/// Whether a packet that looks like one before may be another one all the same. Without the
/// identification of IPv4 there is only what its headers say. `offered`: the other side has said
/// that something is missing, and its sender may repeat it at once. Of QUIC the headers say
/// nothing, and a copy spoils no sample.
#[inline]
pub(super) fn may_differ(packet: &FlowPacket, offered: bool) -> bool {
    let numbered = packet.identity >> 16 != 0;
    match packet.detail {
        _ if !packet.is_matchable() => true,
        Detail::Tcp(tcp) => !numbered && (tcp.sack || offered && tcp.payload_len > 0),
        Detail::Quic(_) | Detail::Other => true,
        Detail::Echo { .. } | Detail::Dns { .. } | Detail::Heartbeat { .. } => false,
    }
}

fn print(index: usize, side: usize, packet: &FlowPacket) -> u64 {
    let words = match packet.detail {
        _ if !packet.is_matchable() => [0, u64::from(packet.ip_len), 4 << 8],
        Detail::Tcp(Tcp { seq, ack, flags, window, payload_len, timestamps, .. }) => {
            let (value, echo) = timestamps.unwrap_or_default();
            [
                u64::from(seq) << 32 | u64::from(ack),
                u64::from(value ^ echo.rotate_left(16)),
                u64::from(payload_len) << 32 | u64::from(window) << 16 | u64::from(flags) << 8,
            ]
        }
        Detail::Echo { reply, sequence } => [u64::from(sequence), u64::from(reply), 1 << 8],
        Detail::Dns { response, id } => [u64::from(id), u64::from(response), 2 << 8],
        Detail::Heartbeat { ack, id } => [u64::from(id), u64::from(ack), 3 << 8],
        Detail::Quic(_) | Detail::Other => [0, u64::from(packet.ip_len), 4 << 8],
    };
    let [a, b, c] = words;
    // A fragment is no copy of the whole that begins alike.
    let c = c | u64::from(packet.fragment);
    let b = b | u64::from(packet.identity) << 32;
    let mut h = mix(a ^ (index as u64) << 1 ^ side as u64);
    h = mix(h ^ b);
    mix(h ^ c)
}
