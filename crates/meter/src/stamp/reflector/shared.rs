//! Sessions that another reflector of the same host answers, too: each has one counter.

use std::net::IpAddr;

/// A request that is about to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedRequest {
    /// The sender's address.
    pub source: IpAddr,
    /// Our address; of the same family.
    pub destination: IpAddr,
    /// The sender's UDP port.
    pub source_port: u16,
    /// Session identifier (RFC 8972, section 3); 0: none.
    pub ssid: u16,
    /// The sender's sequence number.
    pub sequence: u32,
    /// The sender's time stamp, as it stands in the packet.
    pub timestamp: u64,
}

/// The counter of replies of all sessions (RFC 8762, section 4.3), whoever answers. Two counters in
/// one session would tell its sender of losses and duplicates that never were.
pub trait ReplyCounter: Send {
    /// Takes the sequence number of the reply to `request`. `None`: there is no room for its
    /// session, and the reply copies the sender's.
    fn next_sequence(&mut self, request: &CountedRequest) -> Option<u32>;
}
