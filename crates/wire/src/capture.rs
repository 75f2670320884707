//! Capture files, whichever of the two formats: see [`crate::pcap`] and [`crate::pcapng`].

use core::fmt;

use crate::{pcap, pcapng};

/// One captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since 1970-01-01 UTC, as the file says; 0 for a packet without a time.
    pub unix_nanos: i64,
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

impl Skipped {
    /// Packets among it.
    pub const fn packets(&self) -> u64 {
        self.bad_times + self.no_interface
    }
}

/// What is wrong with a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureError {
    /// Where in the file: the start of the header, block or option in question.
    pub offset: usize,
    /// What.
    pub kind: CaptureErrorKind,
}

/// The kinds of [`CaptureError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureErrorKind {
    /// Neither pcap nor pcapng.
    Magic,
    /// A version of the format that is not known.
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The file ends within a header, record or block.
    Truncated,
    /// A length contradicts the record or block that it belongs to.
    Length(u32),
    /// The two lengths of a block differ.
    Trailer {
        /// In front.
        first: u32,
        /// Behind.
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

/// Reads a capture file of either format, packet by packet. Ends after the first error.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "without an allocator nothing can be boxed")]
pub enum Reader<'a> {
    /// Classic pcap.
    Pcap(pcap::Reader<'a>),
    /// pcapng.
    Pcapng(pcapng::Reader<'a>),
}

impl<'a> Reader<'a> {
    /// `file` is the whole file; its first four octets tell the format.
    pub fn new(file: &'a [u8]) -> Result<Self, CaptureError> {
        match file.get(..4) {
            Some(magic) if magic == pcapng::SECTION_HEADER.to_be_bytes() => {
                pcapng::Reader::new(file).map(Reader::Pcapng)
            }
            _ => pcap::Reader::new(file).map(Reader::Pcap),
        }
    }

    /// What was stepped over so far.
    pub fn skipped(&self) -> Skipped {
        match self {
            Reader::Pcap(_) => Skipped::default(),
            Reader::Pcapng(reader) => reader.skipped(),
        }
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Reader::Pcap(reader) => reader.next(),
            Reader::Pcapng(reader) => reader.next(),
        }
    }
}

/// A file's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Order::Little => u16::from_le_bytes(*bytes),
            Order::Big => u16::from_be_bytes(*bytes),
        })
    }

    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Order::Little => u32::from_le_bytes(*bytes),
            Order::Big => u32::from_be_bytes(*bytes),
        })
    }

    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Order::Little => u64::from_le_bytes(*bytes),
            Order::Big => u64::from_be_bytes(*bytes),
        })
    }
}

/// BSD loopback: the address family in the byte order of the machine that captured.
pub const LINKTYPE_NULL: u16 = 0;
/// Ethernet.
pub const LINKTYPE_ETHERNET: u16 = 1;
/// PPP (RFC 1661), with or without the HDLC-like framing of RFC 1662.
pub const LINKTYPE_PPP: u16 = 9;
/// PPP in HDLC-like framing, or Cisco's HDLC.
pub const LINKTYPE_PPP_HDLC: u16 = 50;
/// IPv4 or IPv6 without a link-layer header.
pub const LINKTYPE_RAW: u16 = 101;
/// Cisco's HDLC.
pub const LINKTYPE_C_HDLC: u16 = 104;
/// OpenBSD loopback: the address family in network byte order.
pub const LINKTYPE_LOOP: u16 = 108;
/// Linux cooked capture.
pub const LINKTYPE_LINUX_SLL: u16 = 113;

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;
    use std::string::ToString;

    #[test]
    fn an_unknown_file_is_named_as_such() {
        for file in [&b""[..], b"abc", b"abcdefghijklmnopqrstuvwxyz"] {
            let error = Reader::new(file).unwrap_err();
            assert_eq!(error, CaptureError { offset: 0, kind: CaptureErrorKind::Magic });
        }
        assert_eq!(
            Reader::new(b"").unwrap_err().to_string(),
            "at byte 0: this is neither a pcap nor a pcapng file"
        );
    }
}
