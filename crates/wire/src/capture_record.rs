//! What readers of pcap and pcapng have in common: packets, what was stepped over, errors, link
//! types. [`crate::capture`] chooses the reader.

use core::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since 1970-01-01 UTC, as the file says; of a packet without a time, that of
    /// the one before it, or 0.
    pub unix_nanos: i64,
    /// Whether the file says when it passed: pcapng's Simple Packet Blocks do not.
    pub is_timed: bool,
    /// What was captured, from the link-layer header on.
    pub data: &'a [u8],
    /// Length on the wire; more than was captured if the snap length cut it.
    pub original_len: u32,
    /// Link type: [`LINKTYPE_ETHERNET`] and so on.
    pub link_type: u16,
    /// Interface, counted from 0 within its section; always 0 in pcap.
    pub interface: u32,
}

/// What a reader stepped over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Packets whose time is not between 1897 and 2116.
    pub bad_times: u64,
    /// Packets of an interface that the file does not describe, or whose description could
    /// not be found again.
    pub no_interface: u64,
    /// Blocks of a type that is not known: what they hold is not known either.
    pub other_blocks: u64,
}

impl core::ops::AddAssign for Skipped {
    fn add_assign(&mut self, more: Skipped) {
        self.bad_times += more.bad_times;
        self.no_interface += more.no_interface;
        self.other_blocks += more.other_blocks;
    }
}

impl Skipped {
    /// Packets among it; what other blocks held is not known.
    pub const fn packets(&self) -> u64 {
        self.bad_times + self.no_interface
    }
}

/// What is wrong with a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureError {
    /// Where in the file: the start of the header, block or option in question.
    pub offset: usize,
    /// What is wrong there.
    pub kind: CaptureErrorKind,
}

/// The kinds of [`CaptureError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureErrorKind {
    /// Neither pcap nor pcapng.
    Magic,
    /// A version of the format that is not known.
    Version {
        /// As the file has it: pcap knows 2, pcapng 1.
        major: u16,
        /// As the file has it.
        minor: u16,
    },
    /// The file ends within a header, record or block.
    Truncated,
    /// A length contradicts the record or block that it belongs to.
    Length(u32),
    /// The two lengths of a block differ.
    Trailer {
        /// The length in front of the block's body.
        first: u32,
        /// The length behind it, which must be the same.
        last: u32,
    },
    /// An option of a wrong length, by its code.
    Option(u16),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: ", self.offset)?;
        match self.kind {
            CaptureErrorKind::Magic => f.write_str("this is neither a pcap nor a pcapng file"),
            CaptureErrorKind::Version { major, minor } => {
                write!(f, "version {major}.{minor} of the format is not known")
            }
            CaptureErrorKind::Truncated => {
                f.write_str("the file ends too early; what comes before can be read")
            }
            CaptureErrorKind::Length(len) => write!(f, "a length of {len} cannot be"),
            CaptureErrorKind::Trailer { first, last } => {
                write!(f, "the block's lengths differ: {first} in front, {last} behind")
            }
            CaptureErrorKind::Option(code) => write!(f, "option {code} has a wrong length"),
        }
    }
}

impl core::error::Error for CaptureError {}

/// BSD loopback: the address family in the byte order of the machine that captured.
pub const LINKTYPE_NULL: u16 = 0;
/// Ethernet, from the destination address on, most often without FCS.
pub const LINKTYPE_ETHERNET: u16 = 1;
/// PPP (RFC 1661), with or without the HDLC-like framing of RFC 1662.
pub const LINKTYPE_PPP: u16 = 9;
/// PPP in HDLC-like framing, or Cisco's HDLC.
pub const LINKTYPE_PPP_HDLC: u16 = 50;
/// IPv4 or IPv6 without a link-layer header.
pub const LINKTYPE_RAW: u16 = 101;
/// Cisco's HDLC, which begins with address and control.
pub const LINKTYPE_C_HDLC: u16 = 104;
/// OpenBSD loopback: the address family in network byte order.
pub const LINKTYPE_LOOP: u16 = 108;
/// Linux cooked capture, version 1: a header of 16 octets.
pub const LINKTYPE_LINUX_SLL: u16 = 113;
