//! One packet's fate: for a ping-like display, or a benchmark that looks at each.

use sonde_wire::{NotSent, Stamp, Time};

/// One packet's fate, for a ping-like display or a benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Index of the stream.
    pub stream: u32,
    pub seq: u32,
    /// When it left, and by which stamp.
    pub t1: Stamp,
    pub fate: Fate,
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    Reply {
        /// T2 at the reflector, by its clock.
        t2: Time,
        /// T3 at the reflector, by its clock.
        t3: Time,
        /// When the reply arrived.
        t4: Stamp,
        /// TTL or hop limit of the reply.
        ttl: u8,
        /// TTL or hop limit that the reflector saw; 0 from one that does not say.
        sender_ttl: u8,
        /// Length of the reply's STAMP payload, bytes.
        length: u16,
        /// The reflector says that its clock is synchronised.
        peer_synchronised: bool,
        /// T2 and T3 may be compared with our clock: no one-way delay is absurd.
        comparable: bool,
        /// It repeats an earlier reply.
        duplicate: bool,
    },
    /// Not answered within the timeout.
    Lost,
    /// It never left this host.
    NotSent(NotSent),
}
