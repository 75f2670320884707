//! How TCP went in a flow: the handshake's round trip, loss, reordering and windows. Loss
//! is told from reordering by the rules of the round-trip instrument (`crate::sequence`,
//! `docs/rtt-matching.md`), without its options: only the header is read.

use sonde_results::flow::FlowTcp;
use sonde_wire::feature::Feature;
use sonde_wire::tcp::{ACK, FIN, RST, SYN};

use crate::sequence::{Place, fill, place};

/// Its state, 120 bytes a flow.
#[derive(Clone, Copy, Default)]
pub(super) struct Tcp {
    sides: [Side; 2],
    server_ns: u64,
    client_ns: u64,
    /// When the handshake's last step passed.
    step_ns: i64,
    handshake: Handshake,
    /// The SYN, or its answer, was sent again: which one was answered is not known.
    ambiguous: bool,
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

#[derive(Clone, Copy, Default)]
struct Side {
    /// After everything sent, with [`Side::NEXT`].
    next: u32,
    /// A gap, with [`Side::HOLE`].
    hole: [u32; 2],
    retransmitted: u32,
    reordered: u32,
    /// With [`Side::WINDOW`].
    window_min: u16,
    flags: u8,
    hole_ns: i64,
}

impl Side {
    const NEXT: u8 = 1;
    const HOLE: u8 = 2;
    const WINDOW: u8 = 4;

    fn hole(&self) -> Option<[u32; 2]> {
        (self.flags & Side::HOLE != 0).then_some(self.hole)
    }

    fn data(&mut self, seq: u32, end: u32, fin: bool, at_ns: i64, patience_ns: u64) {
        if self.flags & Side::NEXT == 0 {
            self.next = end;
            self.flags |= Side::NEXT;
            return;
        }
        match place(seq, end, fin, self.next, self.hole()) {
            Place::Keepalive => {}
            Place::Next => self.next = end,
            Place::Ahead => {
                if self.flags & Side::HOLE == 0 {
                    self.hole[0] = self.next;
                    self.hole_ns = at_ns;
                    self.flags |= Side::HOLE;
                }
                self.hole[1] = seq;
                self.next = end;
            }
            Place::Overlap => {
                self.retransmitted = self.retransmitted.saturating_add(1);
                self.next = end;
            }
            Place::Hole => {
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
            Place::Old => self.retransmitted = self.retransmitted.saturating_add(1),
        }
    }
}

impl Tcp {
    /// A segment whose header was whole.
    pub(super) fn packet(&mut self, reverse: bool, packet: &Feature) {
        let d = usize::from(reverse);
        self.seen = true;
        let flags = packet.tcp_flags as u8;
        if flags & RST != 0 {
            // Its window and often its sequence number mean nothing.
            return;
        }
        let (seq, length) = (packet.sequence, packet.payload_len());
        if flags & SYN != 0 {
            if self.synchronise(d, flags, packet.at_ns) {
                let side = &mut self.sides[d];
                // It may carry data (RFC 7413).
                side.next = seq.wrapping_add(1).wrapping_add(length);
                side.flags |= Side::NEXT;
            }
            return;
        }
        if flags & ACK != 0
            && self.handshake == Handshake::Received
            && d == usize::from(self.client)
        {
            self.handshake = Handshake::Done;
            self.client_ns = self.step(packet.at_ns);
        }
        let patience_ns = match (self.server_ns, self.client_ns) {
            (0, _) | (_, 0) => REORDERING_NS,
            (there, back) => (there + back) / 4 * 3,
        };
        let side = &mut self.sides[d];
        if side.flags & Side::WINDOW == 0 || packet.window < side.window_min {
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

    /// SYN and SYN-ACK (RFC 9293, section 3.5). False: it was sent before.
    fn synchronise(&mut self, d: usize, flags: u8, at_ns: i64) -> bool {
        let answer = flags & ACK != 0;
        let again = match self.handshake {
            Handshake::None => false,
            Handshake::Sent => !answer,
            Handshake::Received | Handshake::Done => true,
        };
        if again {
            let side = &mut self.sides[d];
            side.retransmitted = side.retransmitted.saturating_add(1);
            self.ambiguous = true;
            return false;
        }
        if self.handshake == Handshake::Sent {
            self.server_ns = self.step(at_ns);
        }
        self.client = if answer { 1 - d } else { d } as u8;
        self.handshake = if answer { Handshake::Received } else { Handshake::Sent };
        self.step_ns = at_ns;
        self.ambiguous = false;
        true
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
const _: () = assert!(size_of::<Tcp>() <= 120);
