//! What can be wrong with a packet: one small enum for the crate, usable as a counter's index.

use core::fmt;

/// Why bytes are not the packet that was asked for, or why a packet was not written.
///
/// The discriminants run from 0 without gaps: [`Error::index`] into an array of
/// [`Error::COUNT`] counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Error {
    /// The packet ends before a header that it announces, or before its stated length.
    Truncated,
    /// A length field contradicts the header that it belongs to.
    Length,
    /// The IP version is not the one that the EtherType, or the caller, named.
    Version,
    /// The EtherType is neither IPv4 nor IPv6.
    EtherType,
    /// More VLAN tags than are looked through.
    VlanDepth,
    /// The IP payload is not the wanted protocol.
    Protocol,
    /// A fragment of a larger packet.
    Fragment,
    /// More IPv6 extension headers than [`crate::ipv6::MAX_EXTENSIONS`].
    ExtensionDepth,
    /// The checksum is wrong.
    Checksum,
    /// The type is not one that this format knows.
    Type,
    /// The two addresses are of different families.
    AddressFamily,
    /// The buffer to write into is too short.
    NoRoom,
    /// A value does not fit its field.
    Range,
}

impl Error {
    /// Every error, in the order of [`Error::index`].
    pub const ALL: [Error; Error::COUNT] = [
        Error::Truncated,
        Error::Length,
        Error::Version,
        Error::EtherType,
        Error::VlanDepth,
        Error::Protocol,
        Error::Fragment,
        Error::ExtensionDepth,
        Error::Checksum,
        Error::Type,
        Error::AddressFamily,
        Error::NoRoom,
        Error::Range,
    ];
    /// How many there are.
    pub const COUNT: usize = 13;

    /// Position in an array of counters, below [`Error::COUNT`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A counter's name: lower case, joined by `_`.
    pub const fn name(self) -> &'static str {
        match self {
            Error::Truncated => "truncated",
            Error::Length => "bad_length",
            Error::Version => "bad_version",
            Error::EtherType => "not_ip",
            Error::VlanDepth => "vlan_depth",
            Error::Protocol => "other_protocol",
            Error::Fragment => "fragment",
            Error::ExtensionDepth => "extension_depth",
            Error::Checksum => "bad_checksum",
            Error::Type => "unknown_type",
            Error::AddressFamily => "address_family",
            Error::NoRoom => "no_room",
            Error::Range => "out_of_range",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Truncated => "the packet ends before its stated length",
            Error::Length => "a length field contradicts its header",
            Error::Version => "the IP version does not match",
            Error::EtherType => "the frame carries neither IPv4 nor IPv6",
            Error::VlanDepth => "too many VLAN tags",
            Error::Protocol => "the packet carries another protocol",
            Error::Fragment => "the packet is a fragment",
            Error::ExtensionDepth => "too many IPv6 extension headers",
            Error::Checksum => "the checksum is wrong",
            Error::Type => "the type is not known",
            Error::AddressFamily => "source and destination are of different address families",
            Error::NoRoom => "the buffer is too short for the packet",
            Error::Range => "a value does not fit its field",
        })
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_runs_without_gaps() {
        for (i, error) in Error::ALL.iter().enumerate() {
            assert_eq!(error.index(), i);
        }
    }

    #[test]
    fn names_differ() {
        for (i, a) in Error::ALL.iter().enumerate() {
            for b in &Error::ALL[i + 1..] {
                assert_ne!(a.name(), b.name());
            }
        }
    }
}
