//! What is kept of segments far from their connection's sequence numbers until somebody
//! acknowledges them: [`super::away`] judges them.

/// The latest ones of one side, with [`super::flow::TcpSide::AWAY`].
#[derive(Clone, Copy, Default)]
pub(super) struct FarSegments {
    /// Sequence numbers of what they carried: from, to.
    pub(super) start: u32,
    pub(super) end: u32,
    /// When the last one passed, ticks, and what it acknowledged.
    pub(super) at: u32,
    pub(super) ack: u32,
    pub(super) tsval: Option<u32>,
    /// How many followed each other.
    pub(super) segments: u16,
    /// How many of them were counted as sent again.
    pub(super) again: u16,
    /// An acknowledgement of the end answers the last one and no other.
    pub(super) timed: bool,
}
