//! A SYN that may begin another connection on the ports of one that is there.

use sonde_wire::flow::Tcp;
use sonde_wire::tcp::{ACK, RST, SYN};

use crate::sequence::after;

/// A SYN or SYN-ACK of other sequence numbers than the connection's, with
/// [`super::flow::Flow::NOTED`]. Anybody can forge one, and its receiver only asks back (RFC 5961,
/// section 4). It begins a connection once the other side, or the handshake's end, says that it
/// did.
#[derive(Clone, Copy, Default)]
pub(super) struct NotedSyn {
    pub(super) seq: u32,
    /// The sequence number after it and its data.
    pub(super) end: u32,
    /// When it passed first, ticks.
    pub(super) at: u32,
    /// The acknowledgement number of a SYN-ACK; `None`: a plain SYN.
    pub(super) ack: Option<u32>,
    pub(super) tsval: Option<u32>,
    pub(super) ip_len: u32,
    pub(super) side: u8,
    /// Sent again: which one was answered is not known.
    pub(super) again: bool,
}

impl NotedSyn {
    /// Whether a segment of side `d` says that its receiver took it.
    #[inline]
    pub(super) fn is_confirmed(&self, tcp: &Tcp, d: usize) -> bool {
        let own = d == usize::from(self.side);
        let within = |sequence| after(sequence, self.seq) && !after(sequence, self.end);
        if tcp.flags & (ACK | RST) != ACK {
            return false;
        }
        match (self.ack, own, tcp.flags & SYN != 0) {
            (None, false, true) => within(tcp.ack),
            // Its answer does not pass here.
            (None, true, false) => within(tcp.seq),
            (Some(ack), false, false) => within(tcp.ack) && tcp.seq == ack,
            _ => false,
        }
    }

    /// The side that sent it, and its length: it is the new flow's.
    pub(super) fn packet(&self) -> (usize, u32) {
        (self.side.into(), self.ip_len)
    }
}
