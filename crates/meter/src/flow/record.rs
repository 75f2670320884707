//! What is kept of a flow: 64 bytes that packets touch, 16 that only some do.

use sonde_results::flow::{FlowEnd, FlowExtra, FlowRecord, FlowSide};
use sonde_wire::feature::Feature;

use super::key::{Addresses, Key};

/// What packets touch: one cache line. Index 0 of the pairs is what the first end of the
/// [`Key`] sent, 1 what the second did.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Hot {
    /// Of a free record: not used, and `ends` is the next free slot.
    pub(super) key: Key,
    /// The first packet's time, ns TAI.
    pub(super) first: i64,
    pub(super) packets: [u32; 2],
    /// Bytes in the upper 48 bits; TCP flags in the lower 12. Between, in the first one, the
    /// bits [`SECOND`], [`CLOSED`], [`WANTS`] and [`TURNED`]; in the second one who sent FIN
    /// before this record ([`FINISHED`]).
    octets: [u64; 2],
    /// Lower 48 bits of the last packet's time; then the greatest and the smallest time to
    /// live, 8 bits each. A direction without packets has the flow's start.
    seen: [u64; 2],
}

/// What the first packet of a direction writes.
#[derive(Clone, Copy, Default)]
pub(super) struct Warm {
    /// Time of the first packet of the direction that did not begin the record, ns TAI.
    pub(super) second_first: i64,
    /// Of the first packet, by end of the key.
    pub(super) tos: [u8; 2],
}

/// The second end of the key began the record.
pub(super) const SECOND: u64 = 1 << 12;
/// TCP closed or reset it.
pub(super) const CLOSED: u64 = 1 << 13;
/// The features want its packets.
pub(super) const WANTS: u64 = 1 << 14;
/// The record goes on after an active time-out, and began with a packet of the end that did
/// not begin the flow.
const TURNED: u64 = 1 << 15;
/// The first end sent FIN in an earlier record; the bit above it: the second did.
const FINISHED: u64 = 1 << 12;

impl Hot {
    /// A flow that begins at `at`, sent by end `side`; nothing counted yet.
    #[inline]
    pub(super) fn new(key: Key, side: usize, at: i64) -> Self {
        let seen = (at as u64) << 16 | u64::from(u8::MAX);
        let state = if side == 0 { 0 } else { SECOND };
        Hot { key, first: at, packets: [0; 2], octets: [state, 0], seen: [seen; 2] }
    }

    /// The record is out, and the flow goes on with another: nothing is counted yet. Who
    /// began the flow, who has finished, and when the last packet was, stay known.
    pub(super) fn renew(&mut self) {
        let last = self.last(0).max(self.last(1));
        let finished = [0, 1].map(|side| (u64::from(self.has_finished(side)) * FINISHED) << side);
        let second = if self.initiator() == 0 { 0 } else { SECOND };
        let state = second | (self.octets[0] & (CLOSED | WANTS));
        self.octets = [state, finished[0] | finished[1]];
        (self.first, self.packets) = (last, [0; 2]);
        self.seen = [(last as u64) << 16 | u64::from(u8::MAX); 2];
    }

    /// The first packet since [`Hot::renew`] comes from end `side`.
    pub(super) fn resume(&mut self, side: usize, at: i64) {
        let (second, turned) = (side == 1, side != self.initiator());
        self.octets[0] &= !(SECOND | TURNED);
        self.octets[0] |= (u64::from(second) * SECOND) | (u64::from(turned) * TURNED);
        self.first = at;
        self.seen = [(at as u64) << 16 | u64::from(u8::MAX); 2];
    }

    /// Counts a packet if nothing about it is out of the ordinary. Then neither it nor the flow's
    /// state needs more than this, and no time-out has passed. `idle` is the idle time-out in 2^-16
    /// ns.
    #[inline(always)]
    pub(super) fn count_ordinary(
        &mut self,
        packet: &Feature,
        side: usize,
        at: i64,
        idle: u64,
        active: u64,
    ) -> bool {
        let now = (at as u64) << 16;
        // Both as they are, signed: a later time than the packet's is a great difference.
        let since = [now.wrapping_sub(self.seen[0] & TIME), now.wrapping_sub(self.seen[1] & TIME)];
        let gap = (since[0] as i64).min(since[1] as i64) as u64;
        let packets = self.packets[side];
        let (octets, full) = self.octets[side].overflowing_add(u64::from(packet.ip_len) << 16);
        let unusual = (gap >= idle)
            | ((at.wrapping_sub(self.first)) as u64 >= active)
            | (packets.wrapping_sub(1) >= u32::MAX - 1)
            | full
            | (packet.tcp_flags & (FIN | SYN | RST) != 0)
            | (self.octets[0] & (WANTS | CLOSED) != 0);
        if unusual {
            return false;
        }
        self.packets[side] = packets + 1;
        self.octets[side] = octets | u64::from(packet.tcp_flags & FLAGS);
        self.seen[side] = now | self.ttls(side, packet.ttl);
        true
    }

    /// Counts a packet, in any state; times may go backwards. `pull_back`: the last time is
    /// from before the clock was set back, and no longer counts. False: a counter is full,
    /// and nothing was done.
    pub(super) fn count(
        &mut self,
        warm: &mut Warm,
        packet: &Feature,
        side: usize,
        at: i64,
        pull_back: bool,
    ) -> bool {
        let (octets, full) = self.octets[side].overflowing_add(u64::from(packet.ip_len) << 16);
        if full || self.packets[side] == u32::MAX {
            return false;
        }
        let is_first = self.packets[side] == 0;
        let last = if is_first || pull_back { at } else { self.last(side).max(at) };
        self.packets[side] += 1;
        self.octets[side] = octets | u64::from(packet.tcp_flags & FLAGS);
        self.seen[side] = (last as u64) << 16 | self.ttls(side, packet.ttl);
        if pull_back && self.packets[1 - side] == 0 {
            self.seen[1 - side] = (at as u64) << 16 | u64::from(u8::MAX);
        }
        if is_first {
            warm.tos[side] = packet.tos;
        }
        if side == self.opener() {
            self.first = self.first.min(at);
        } else if is_first || at < warm.second_first {
            warm.second_first = at;
        }
        true
    }

    #[inline]
    fn ttls(&self, side: usize, ttl: u8) -> u64 {
        let old = self.seen[side];
        let (least, most) = ((old as u8).min(ttl), ((old >> 8) as u8).max(ttl));
        u64::from(most) << 8 | u64::from(least)
    }

    /// Time of the last packet from an end; of one that sent none, the flow's start.
    #[inline]
    pub(super) fn last(&self, side: usize) -> i64 {
        // 48 bits reach 39 h either way; a flow's packets are never further apart than 24 h.
        let first = (self.first as u64) << 16;
        self.first + ((self.seen[side] & TIME).wrapping_sub(first) as i64 >> 16)
    }

    /// Which end sent the record's first packet.
    #[inline]
    pub(super) fn opener(&self) -> usize {
        usize::from(self.octets[0] & SECOND != 0)
    }

    /// Which end sent the flow's first packet: the source in all its records (RFC 5103,
    /// section 6.3).
    #[inline]
    pub(super) fn initiator(&self) -> usize {
        self.opener() ^ usize::from(self.octets[0] & TURNED != 0)
    }

    /// Whether an end has sent FIN, in this record or before.
    pub(super) fn has_finished(&self, side: usize) -> bool {
        self.flags(side) & FIN != 0 || self.octets[1] & (FINISHED << side) != 0
    }

    #[inline]
    pub(super) fn is(&self, state: u64) -> bool {
        self.octets[0] & state != 0
    }

    #[inline]
    pub(super) fn set(&mut self, state: u64, on: bool) {
        self.octets[0] = self.octets[0] & !state | if on { state } else { 0 };
    }

    /// TCP flags of all packets from an end.
    pub(super) fn flags(&self, side: usize) -> u16 {
        self.octets[side] as u16 & FLAGS
    }

    pub(super) fn bytes(&self, side: usize) -> u64 {
        self.octets[side] >> 16
    }

    /// Packets of both ends.
    pub(super) fn total(&self) -> u64 {
        u64::from(self.packets[0]) + u64::from(self.packets[1])
    }

    /// The flow goes on after an active time-out, and its next record has no packet yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.total() == 0
    }

    /// The record for the user.
    pub(super) fn record(
        &self,
        warm: &Warm,
        addresses: &Addresses,
        end: FlowEnd,
        extra: Option<Box<FlowExtra>>,
    ) -> FlowRecord {
        let initiator = self.initiator();
        FlowRecord {
            key: self.key.flow(initiator, addresses),
            forward: self.side(initiator, warm),
            reverse: self.side(1 - initiator, warm),
            end,
            extra,
        }
    }

    fn side(&self, side: usize, warm: &Warm) -> FlowSide {
        if self.packets[side] == 0 {
            return FlowSide::default();
        }
        let first = if side == self.opener() { self.first } else { warm.second_first };
        FlowSide {
            packets: self.packets[side].into(),
            bytes: self.bytes(side),
            first_ns: first,
            last_ns: self.last(side),
            tcp_flags: self.flags(side),
            tos: warm.tos[side],
            ttl_min: self.seen[side] as u8,
            ttl_max: (self.seen[side] >> 8) as u8,
        }
    }
}

/// The time within [`Hot::seen`].
const TIME: u64 = !0xFFFF;
/// The flags of a TCP header (RFC 9565, section 3): 12 bits.
const FLAGS: u16 = 0xFFF;
pub(super) const FIN: u16 = 1;
pub(super) const SYN: u16 = 2;
pub(super) const RST: u16 = 4;
pub(super) const ACK: u16 = 16;

const _: () = assert!(size_of::<Hot>() == 64 && size_of::<Warm>() == 16);
