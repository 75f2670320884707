//! How TCP went in a flow: the handshake's round trip, loss, reordering and windows. Loss
//! is distinguished from reordering by the rules of the round-trip instrument (`crate::sequence`,
//! `docs/design/rtt-matching.md`), without its options: only the header is read.

use sonde_results::flow::FlowTcp;
use sonde_wire::feature::{Feature, Layers, SHAPE_IPV6};
use sonde_wire::tcp::{ACK, FIN, RST, SYN};

use crate::copies::mix;
use crate::sequence::{SegmentPosition, after, fill, position};

/// Its state, 144 bytes a flow.
#[derive(Clone, Copy, Default)]
pub(super) struct TcpFeatures {
    sides: [Side; 2],
    server_ns: u64,
    client_ns: u64,
    /// When the handshake's last step passed.
    step_ns: i64,
    handshake: Handshake,
    /// The SYN, or its answer, was sent again: which one was answered is not known.
    ambiguous: bool,
    /// Both ends have sent a SYN (RFC 9293, section 3.5): no acknowledgement ends the handshake.
    simultaneous: bool,
    /// The client's direction.
    client: u8,
    /// There was a packet.
    seen: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Handshake {
    #[default]
    None,
    Sent,
    Received,
    Done,
}

/// What a feature does not have of a segment, where its frame is there.
#[derive(Clone, Copy)]
pub(super) struct SegmentHeader {
    ack: u32,
    /// Identification of IPv4 and checksum.
    identity: u32,
}

impl SegmentHeader {
    pub(super) fn read(packet: &Feature, frame: &[u8], layers: &Layers) -> Option<SegmentHeader> {
        let tcp = frame.get(usize::from(layers.transport)..)?.first_chunk::<18>()?;
        let ack = u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]]);
        let ip = frame.get(usize::from(layers.ip)..)?.first_chunk::<6>()?;
        let id = if packet.shape & SHAPE_IPV6 == 0 { [ip[4], ip[5]] } else { [0; 2] };
        Some(SegmentHeader { ack, identity: u32::from_be_bytes([id[0], id[1], tcp[16], tcp[17]]) })
    }

    /// A hash of what distinguishes this segment of a flow's side from others.
    pub(super) fn print(&self, slot: usize, reverse: bool, packet: &Feature) -> u64 {
        let h = mix((slot as u64) << 1 ^ u64::from(reverse) ^ u64::from(self.identity) << 32);
        let h = mix(h ^ u64::from(packet.sequence) << 32 ^ u64::from(self.ack));
        let rest = u64::from(packet.payload_len()) << 32
            | u64::from(packet.window) << 16
            | u64::from(packet.tcp_flags);
        mix(h ^ rest)
    }

    /// Whether what is sent again has another identification.
    pub(super) fn is_numbered(&self) -> bool {
        self.identity >> 16 != 0
    }
}

#[derive(Clone, Copy, Default)]
struct Side {
    /// After everything sent, with [`Side::NEXT`].
    next: u32,
    /// The greatest acknowledgement of it, with [`Side::ACKED`].
    acked: u32,
    /// Of its SYN, with [`Side::SYN`].
    initial: u32,
    /// A gap, with [`Side::HOLE`].
    hole: [u32; 2],
    /// The ends of what it sent far from its sequence numbers, with [`Side::AWAY`].
    away: [u32; 2],
    retransmitted: u32,
    reordered: u32,
    /// With [`Side::WINDOW`].
    window_min: u16,
    flags: u8,
    /// Segments of what is far.
    away_segments: u8,
    hole_ns: i64,
}

impl Side {
    const NEXT: u8 = 1;
    const HOLE: u8 = 2;
    const WINDOW: u8 = 4;
    const ACKED: u8 = 8;
    const SYN: u8 = 16;
    /// It has sent a SYN-ACK.
    const ANSWERED: u8 = 32;
    const AWAY: u8 = 64;

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn hole(&self) -> Option<[u32; 2]> {
        self.has(Side::HOLE).then_some(self.hole)
    }

    /// Whether a segment is farther from what was sent than a window that needs no scale. Then it
    /// is forged, corrupt, of a connection whose beginning was not captured, or after a long gap.
    fn is_far(&self, seq: u32, end: u32) -> bool {
        let known = self.has(Side::ACKED) && self.next.wrapping_sub(self.acked) < MOST_SENT;
        let oldest = if known { self.acked } else { self.next.wrapping_sub(MOST_SENT) };
        after(seq, self.next.wrapping_add(FAR)) || after(oldest.wrapping_sub(FAR), end)
    }

    /// Sets aside what is far. It is believed once the other side acknowledges it, or if enough
    /// follows it.
    fn set_aside(&mut self, seq: u32, end: u32) {
        if self.has(Side::AWAY) && seq == self.away[1] {
            self.away[1] = end;
            self.away_segments = self.away_segments.saturating_add(1);
            if self.away_segments >= ENOUGH {
                self.go_on_there();
            }
            return;
        }
        (self.away, self.away_segments) = ([seq, end], 1);
        self.flags |= Side::AWAY;
    }

    fn go_on_there(&mut self) {
        self.next = self.away[1];
        self.flags &= !(Side::AWAY | Side::HOLE | Side::ACKED);
    }

    fn acknowledged(&mut self, ack: u32) {
        if self.has(Side::AWAY) && after(ack, self.away[0]) && !after(ack, self.away[1]) {
            self.go_on_there();
        }
        let is_near = self.has(Side::NEXT) && !after(ack, self.next);
        if is_near && (!self.has(Side::ACKED) || after(ack, self.acked)) {
            self.acked = ack;
            self.flags |= Side::ACKED;
        }
    }

    fn data(&mut self, seq: u32, end: u32, fin: bool, at_ns: i64, patience_ns: u64) {
        if !self.has(Side::NEXT) {
            self.next = end;
            self.flags |= Side::NEXT;
            return;
        }
        if self.is_far(seq, end) {
            return self.set_aside(seq, end);
        }
        self.flags &= !Side::AWAY;
        match position(seq, end, fin, self.next, self.hole()) {
            SegmentPosition::Keepalive => {}
            SegmentPosition::Next => self.next = end,
            SegmentPosition::Ahead => {
                if !self.has(Side::HOLE) {
                    self.hole[0] = self.next;
                    self.hole_ns = at_ns;
                    self.flags |= Side::HOLE;
                }
                self.hole[1] = seq;
                self.next = end;
            }
            SegmentPosition::Overlap => {
                self.retransmitted = self.retransmitted.saturating_add(1);
                self.next = end;
            }
            SegmentPosition::Hole => {
                let age = at_ns.saturating_sub(self.hole_ns);
                match fill(self.hole, seq, end) {
                    Some(rest) => self.hole = rest,
                    None => self.flags &= !Side::HOLE,
                }
                // It was lost before it came here, if there was time to send it again.
                let count = match u64::try_from(age).is_ok_and(|age| age >= patience_ns) {
                    true => &mut self.retransmitted,
                    false => &mut self.reordered,
                };
                *count = count.saturating_add(1);
            }
            SegmentPosition::Old => self.retransmitted = self.retransmitted.saturating_add(1),
        }
    }
}

impl TcpFeatures {
    /// A segment whose header was whole, and no copy of one before.
    pub(super) fn packet(
        &mut self,
        reverse: bool,
        packet: &Feature,
        header: Option<SegmentHeader>,
    ) {
        let d = usize::from(reverse);
        self.seen = true;
        let flags = packet.tcp_flags as u8;
        if flags & RST != 0 {
            // Its window and often its sequence number mean nothing.
            return;
        }
        let (seq, length) = (packet.sequence, packet.payload_len());
        let ack = header.map(|header| header.ack).filter(|_| flags & ACK != 0);
        if let Some(ack) = ack {
            self.sides[1 - d].acknowledged(ack);
        }
        if flags & SYN != 0 {
            // It may carry data (RFC 7413).
            let end = seq.wrapping_add(1).wrapping_add(length);
            self.synchronise(d, flags & ACK != 0, seq, end, packet.at_ns);
            return;
        }
        if flags & ACK != 0
            && self.handshake == Handshake::Received
            && d == usize::from(self.client)
        {
            self.handshake = Handshake::Done;
            // What acknowledges more than the SYN-ACK waited for the server's application.
            let server = &self.sides[1 - d];
            let first = server.initial.wrapping_add(1);
            let answers = ack.map_or(server.next == first, |ack| ack == first);
            if answers && !self.simultaneous {
                self.client_ns = self.step(packet.at_ns);
            }
        }
        let patience_ns = match (self.server_ns, self.client_ns) {
            (0, _) | (_, 0) => REORDERING_NS,
            (there, back) => (there + back) / 4 * 3,
        };
        let side = &mut self.sides[d];
        if !side.has(Side::WINDOW) || packet.window < side.window_min {
            side.window_min = packet.window;
            side.flags |= Side::WINDOW;
        }
        let fin = flags & FIN != 0;
        let length = length + u32::from(fin);
        if length > 0 {
            side.data(seq, seq.wrapping_add(length), fin, packet.at_ns, patience_ns);
        }
    }

    /// Another record of the connection begins: the handshake and what was sent stay known.
    pub(super) fn renew(&mut self) {
        self.seen = false;
        for side in &mut self.sides {
            (side.retransmitted, side.reordered, side.window_min) = (0, 0, 0);
            side.flags &= !Side::WINDOW;
        }
    }

    /// SYN and SYN-ACK (RFC 9293, section 3.5), which end before `end`.
    fn synchronise(&mut self, d: usize, answer: bool, seq: u32, end: u32, at_ns: i64) {
        let is_client = d == usize::from(self.client);
        let side = &mut self.sides[d];
        if side.has(Side::SYN) && side.initial == seq {
            // In a simultaneous open the SYN-ACK has the sequence number of the SYN.
            if !answer || side.has(Side::ANSWERED) {
                side.retransmitted = side.retransmitted.saturating_add(1);
                self.ambiguous = true;
                return;
            }
        } else if self.handshake == Handshake::Done {
            // Blind (RFC 5961, section 4), or the ports are used again: what is answered shows
            // which.
            return side.set_aside(seq, end);
        }
        (side.initial, side.next) = (seq, end);
        side.flags |= Side::SYN | Side::NEXT | if answer { Side::ANSWERED } else { 0 };
        match (self.handshake, answer) {
            (Handshake::Sent, false) if !is_client => self.simultaneous = true,
            // The first to send a SYN answers the other one's.
            (Handshake::Sent, true) if is_client => {}
            (Handshake::Received | Handshake::Done, _) => self.ambiguous = true,
            (Handshake::Sent, true) => {
                self.server_ns = self.step(at_ns);
                self.begin_step(Handshake::Received, at_ns);
            }
            (Handshake::None, true) => {
                self.client = (1 - d) as u8;
                self.begin_step(Handshake::Received, at_ns);
            }
            (_, false) => {
                self.client = d as u8;
                self.begin_step(Handshake::Sent, at_ns);
            }
        }
    }

    fn begin_step(&mut self, handshake: Handshake, at_ns: i64) {
        (self.handshake, self.step_ns, self.ambiguous) = (handshake, at_ns, false);
    }

    /// The time since the handshake's last step, 1 ns at least; 0: not known.
    fn step(&self, at_ns: i64) -> u64 {
        match at_ns.checked_sub(self.step_ns) {
            Some(age @ 0..) if !self.ambiguous => age.max(1) as u64,
            _ => 0,
        }
    }

    /// If there was a packet whose header could be read.
    pub(super) fn result(&self) -> Option<FlowTcp> {
        let [forward, reverse] = &self.sides;
        self.seen.then_some(FlowTcp {
            handshake_server_ns: self.server_ns,
            handshake_client_ns: self.client_ns,
            retransmitted: forward.retransmitted,
            reverse_retransmitted: reverse.retransmitted,
            reordered: forward.reordered,
            reverse_reordered: reverse.reordered,
            window_min: forward.window_min,
            reverse_window_min: reverse.window_min,
        })
    }
}

/// How late an overtaken segment may be where the handshake was not seen.
const REORDERING_NS: u64 = 3_000_000;
/// Octets from a side's sequence numbers within which a segment is believed: as in the round-trip
/// instrument.
const FAR: u32 = 65_535;
/// Octets that may be on their way (RFC 7323, section 2.3).
const MOST_SENT: u32 = 1 << 30;
/// Segments in a row that are believed where nobody answers.
const ENOUGH: u8 = 8;
const _: () = assert!(size_of::<TcpFeatures>() <= 144);
