//! The words that engines and instruments share about one packet.

use crate::time::Time;

/// Where a time stamp was taken, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum StampSource {
    /// By the network card, at the wire.
    Hardware,
    /// By the driver: an XDP program on reception, a transmit completion.
    Driver,
    /// By the kernel's network stack (SO_TIMESTAMPING, packet sockets).
    Kernel,
    /// Read from a capture file; who stamped it is not known.
    File,
    /// By this process: it includes scheduling and system calls.
    User,
}

/// An instant, and where it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The instant, on the TAI scale.
    pub at: Time,
    /// Where it was taken.
    pub source: StampSource,
}

/// The transmit stamp of a packet that was sent with a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxDone {
    /// The sender's own mark for the packet (never 0: 0 asks for no stamp).
    pub cookie: u64,
    /// When it left.
    pub stamp: Stamp,
}

/// What becomes of a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// The engine may have the buffer back.
    #[default]
    Release,
    /// The frame, changed in place, goes out where it came in; the cookie asks
    /// for its transmit stamp (0: none wanted).
    Transmit {
        /// Returned in [`TxDone`].
        cookie: u64,
    },
}
