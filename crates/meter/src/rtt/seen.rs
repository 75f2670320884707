//! Frames that come twice: a mirror port copies a packet where it enters a switch and again
//! where it leaves, or two ports carry it. The second one says nothing that the first did not.

use sonde_wire::flow::{Detail, FlowPacket, Tcp};

use super::clock::Clock;

/// The prints of the packets that passed last.
pub(super) struct Seen {
    /// Pairs, the newest print first.
    pairs: Vec<[Print; 2]>,
}

#[derive(Clone, Copy, Default)]
struct Print {
    check: u32,
    /// When it passed, in [`Clock::moment`]s.
    moment: u32,
}

impl Seen {
    pub(super) fn new() -> Self {
        Seen { pairs: vec![Default::default(); PAIRS] }
    }

    /// Notes a packet that `side` of the flow in this place sent. Whether the same one has
    /// passed within a millisecond.
    #[inline]
    pub(super) fn note(
        &mut self,
        place: usize,
        side: usize,
        packet: &FlowPacket,
        clock: &Clock,
    ) -> bool {
        let hash = print(place, side, packet);
        let pair = &mut self.pairs[hash as usize % PAIRS];
        let now = Print { check: (hash >> 32) as u32, moment: clock.moment() };
        let same = |before: Print| {
            before.check == now.check
                && now.moment.wrapping_sub(before.moment).wrapping_add(1) <= APART + 1
        };
        let again = same(pair[0]) || same(pair[1]);
        *pair = [now, pair[0]];
        again
    }
}

/// Whether a packet that looks like one before may be another one all the same: without the
/// identification of IPv4 there is only what its headers say. `told`: the other side has said
/// that something is missing, and its sender may repeat it at once. Of QUIC the headers say
/// nothing, and a copy spoils no sample.
#[inline]
pub(super) fn may_differ(packet: &FlowPacket, told: bool) -> bool {
    let numbered = packet.identity >> 16 != 0;
    match packet.detail {
        _ if packet.fragment => true,
        Detail::Tcp(tcp) => !numbered && (tcp.sack || told && tcp.payload_len > 0),
        Detail::Quic(_) | Detail::Other => true,
        Detail::Echo { .. } | Detail::Dns { .. } | Detail::Heartbeat { .. } => false,
    }
}

fn print(place: usize, side: usize, packet: &FlowPacket) -> u64 {
    let words = match packet.detail {
        // A fragment is no copy of the whole that begins alike.
        _ if packet.fragment => [0, u64::from(packet.ip_len), 4 << 8],
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
    let b = b | u64::from(packet.identity) << 32;
    let mut h = mix(a ^ (place as u64) << 1 ^ side as u64);
    h = mix(h ^ b);
    mix(h ^ c)
}

#[inline]
fn mix(h: u64) -> u64 {
    let h = (h ^ h >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ h >> 32
}

const PAIRS: usize = 1_024;
/// Moments between copies at most: less than a millisecond.
const APART: u32 = 60;
