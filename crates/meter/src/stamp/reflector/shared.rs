//! Sessions that another reflector of the same host answers, too: each has one counter.

use sonde_wire::packet::SessionRequest;

/// The counter of replies of all sessions (RFC 8762, section 4.3), whoever answers. Two counters in
/// one session would tell its sender of losses and duplicates that never were.
pub trait ReplyCounter: Send {
    /// Takes the sequence number of the reply to `request`. `None`: there is no room for its
    /// session, and the reply copies the sender's.
    fn next_sequence(&mut self, request: &SessionRequest) -> Option<u32>;
}
