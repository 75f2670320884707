//! What the protocols' parts need of a packet.

use super::clock::Clock;

/// A packet of a flow that is known, beside what its transport says.
pub(super) struct Packet<'a> {
    /// Its flow's index in the table.
    pub(super) index: usize,
    /// Which side of the key sent it.
    pub(super) side: usize,
    /// Packets of the wire that it stands for: 1, or more where segments were joined.
    pub(super) segments: u16,
    /// By its IP header, octets.
    pub(super) ip_len: u32,
    pub(super) clock: &'a Clock,
}
