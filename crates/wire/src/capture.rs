//! Capture files, whichever of the two formats: see [`crate::pcap`] and [`crate::pcapng`].

use core::fmt;

use crate::{pcap, pcapng};

/// One captured packet.
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

/// Reads a capture of either format, packet by packet. Ends after the first error.
///
/// A whole file is read by [`Reader::new`]. One that comes piece by piece is read in turns:
/// [`Reader::resume`] with what there is, packets until there are no more, then
/// [`Reader::into_state`]; what was not [consumed](Reader::consumed) begins the next piece.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// So much of `bytes` has been read.
    at: usize,
    /// Nothing comes behind `bytes`.
    is_last: bool,
    state: State,
}

/// What has to be known of a capture to read on.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Octets before the present piece.
    base: usize,
    progress: Progress,
}

#[derive(Clone, Debug, Default)]
#[expect(clippy::large_enum_variant, reason = "without an allocator nothing can be boxed")]
enum Progress {
    /// Nothing has been read yet.
    #[default]
    Unknown,
    Pcap(pcap::FileHeader),
    Pcapng(pcapng::Section),
    /// After an error.
    Over,
}

impl<'a> Reader<'a> {
    /// `file` is the whole file; its first four octets tell the format.
    ///
    /// # Errors
    /// A file header that cannot be.
    pub fn new(file: &'a [u8]) -> Result<Self, CaptureError> {
        let mut reader = Reader::resume(State::default(), file, true);
        reader.begin()?;
        Ok(reader)
    }

    /// Goes on with `bytes`, which follow what was consumed before; `is_last`: nothing comes
    /// behind them, so that half a packet at their end is an error.
    pub fn resume(state: State, bytes: &'a [u8], is_last: bool) -> Self {
        Reader { bytes, at: 0, is_last, state }
    }

    /// Octets of these bytes that have been read: whole packets and blocks.
    pub fn consumed(&self) -> usize {
        self.at
    }

    /// For [`Reader::resume`] with the bytes behind those consumed.
    pub fn into_state(mut self) -> State {
        self.state.base += self.at;
        self.state
    }

    /// What was stepped over so far, in the pieces before, too.
    pub fn skipped(&self) -> Skipped {
        match &self.state.progress {
            Progress::Pcapng(section) => section.skipped(),
            _ => Skipped::default(),
        }
    }

    /// What a pcapng file calls the interface of that number, up to 31 octets of it; `None`: it
    /// says nothing, or so many came behind that it is forgotten.
    pub fn interface_name(&self, interface: u32) -> Option<&str> {
        match &self.state.progress {
            Progress::Pcapng(section) => section.interface_name(interface),
            _ => None,
        }
    }

    /// Reads the file header; false: there is not enough of it yet.
    fn begin(&mut self) -> Result<bool, CaptureError> {
        let error = |kind| CaptureError { offset: self.state.base, kind };
        if self.bytes.len() < 4 && !self.is_last {
            return Ok(false);
        }
        let magic = self.bytes.get(..4).ok_or(error(CaptureErrorKind::Magic))?;
        let begun = if magic == pcapng::SECTION_HEADER.to_be_bytes() {
            let mut section = pcapng::Section::default();
            let begun = section.begin(self.bytes, &mut self.at);
            begun.map(|()| Progress::Pcapng(section))
        } else {
            let begun = pcap::FileHeader::of(self.bytes).map_err(error);
            begun.inspect(|_| self.at = pcap::FILE_HEADER_LEN).map(Progress::Pcap)
        };
        match begun {
            Ok(progress) => self.state.progress = progress,
            Err(error) if self.waits_for(error) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn waits_for(&self, error: CaptureError) -> bool {
        error.kind == CaptureErrorKind::Truncated && !self.is_last
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, CaptureError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.state.progress, Progress::Unknown) {
            match self.begin() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.state.progress = Progress::Over;
                    return Some(Err(error));
                }
            }
        }
        let (bytes, base) = (self.bytes, self.state.base);
        let result = match &mut self.state.progress {
            Progress::Pcap(header) => {
                let offset = base + self.at;
                let found = header.record(&bytes[self.at..]);
                found.map_err(|kind| CaptureError { offset, kind }).map(|found| {
                    found.map(|(record, len)| {
                        self.at += len;
                        record
                    })
                })
            }
            Progress::Pcapng(section) => section.packet(bytes, &mut self.at, base),
            Progress::Unknown | Progress::Over => return None,
        };
        match result {
            Err(error) if self.waits_for(error) => None,
            Err(error) => {
                // What was stepped over is still told.
                self.at = bytes.len();
                match &mut self.state.progress {
                    Progress::Pcapng(section) => section.end(),
                    progress => *progress = Progress::Over,
                }
                Some(Err(error))
            }
            Ok(record) => record.map(Ok),
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
