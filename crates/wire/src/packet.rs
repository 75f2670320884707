//! The types that engines and instruments share about one packet.

use core::net::IpAddr;

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

/// A request of STAMP or TWAMP-Test, as what numbers the replies of its session sees it (RFC 8762,
/// section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRequest {
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

/// The transmit stamp of a packet that was sent with a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxDone {
    /// The sender's own mark for the packet (never 0: 0 asks for no stamp).
    pub cookie: u64,
    pub stamp: Stamp,
}

/// A packet that was handed over with a cookie and never left this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxRefused {
    /// The sender's own mark for the packet.
    pub cookie: u64,
    /// Why it did not leave.
    pub why: NotSent,
}

/// Why a packet that was due was not sent. Such a packet is not lost: the path never had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum NotSent {
    /// It would have left a whole period late.
    Late,
    /// As many of its stream were in flight as can be.
    InFlight,
    /// The next hop's link address is not known.
    NoNeighbour,
    /// The interface is down, without carrier, or gone.
    LinkDown,
    /// No route leads there.
    NoRoute,
    /// Its source address is not this host's any more.
    NoAddress,
    /// This host's own firewall refused it.
    Refused,
    /// It is longer than the interface or the path takes.
    TooLong,
    /// The kernel or the card had no room for it.
    NoBuffer,
    /// The kernel gave another reason.
    Other,
}

impl NotSent {
    /// All reasons, in order.
    pub const ALL: [NotSent; 10] = {
        use NotSent::*;
        [
            Late,
            InFlight,
            NoNeighbour,
            LinkDown,
            NoRoute,
            NoAddress,
            Refused,
            TooLong,
            NoBuffer,
            Other,
        ]
    };

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            NotSent::Late => "late",
            NotSent::InFlight => "in_flight",
            NotSent::NoNeighbour => "no_neighbour",
            NotSent::LinkDown => "link_down",
            NotSent::NoRoute => "no_route",
            NotSent::NoAddress => "no_address",
            NotSent::Refused => "refused",
            NotSent::TooLong => "too_long",
            NotSent::NoBuffer => "no_buffer",
            NotSent::Other => "other",
        }
    }

    /// The same for people.
    pub const fn text(self) -> &'static str {
        match self {
            NotSent::Late => "a period late",
            NotSent::InFlight => "too many in flight",
            NotSent::NoNeighbour => "no neighbour",
            NotSent::LinkDown => "link down",
            NotSent::NoRoute => "no route",
            NotSent::NoAddress => "source address gone",
            NotSent::Refused => "refused by this host's firewall",
            NotSent::TooLong => "longer than the MTU",
            NotSent::NoBuffer => "no buffer",
            NotSent::Other => "refused by the kernel",
        }
    }
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
