//! The part of QUIC packets that is not encrypted. Long headers of version 1 (RFC 9000, section
//! 17.2), version 2 (RFC 9369) and version negotiation (RFC 8999). The spin bit of the short header
//! (RFC 9000, section 17.4).

use crate::Error;
use crate::field::{put_u32, u32_at};

/// What a long header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketType {
    /// First flight of a handshake.
    Initial,
    /// Data sent before the handshake is complete.
    ZeroRtt,
    /// The rest of the handshake.
    Handshake,
    /// The client is to begin anew with a token.
    Retry,
    /// The client is to begin anew with another version.
    VersionNegotiation,
    /// A version other than 1 and 2, whose types are not known.
    Unknown,
}

/// A long header, up to the connection identifiers: the part that all versions share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Long<'a> {
    /// First octet: [`LONG`], [`FIXED`], type, and bits under header protection.
    pub first: u8,
    /// Version; 0: version negotiation.
    pub version: u32,
    /// Destination connection identifier, 0 to 20 octets in versions 1 and 2.
    pub destination: &'a [u8],
    /// Source connection identifier, 0 to 20 octets in versions 1 and 2.
    pub source: &'a [u8],
}

impl<'a> Long<'a> {
    /// Reads the header at the start of a datagram. [`Error::Type`] without the bit of a
    /// long header; [`Error::Length`] for an identifier that versions 1 and 2 do not allow.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Error> {
        let (bytes, rest) = datagram.split_first_chunk::<6>().ok_or(Error::Truncated)?;
        if bytes[0] & LONG == 0 {
            return Err(Error::Type);
        }
        let (destination, rest) = identifier(bytes[5], rest)?;
        let (length, rest) = rest.split_first().ok_or(Error::Truncated)?;
        let (source, _) = identifier(*length, rest)?;
        Ok(Long { first: bytes[0], version: u32_at(bytes, 1), destination, source })
    }

    #[inline]
    pub const fn kind(&self) -> PacketType {
        // RFC 9369, section 3.2, moves each type of version 1 up by one.
        let kind = match self.version {
            0 => return PacketType::VersionNegotiation,
            VERSION_1 => self.first >> 4,
            VERSION_2 => (self.first >> 4).wrapping_sub(1),
            _ => return PacketType::Unknown,
        };
        match kind & 3 {
            0 => PacketType::Initial,
            1 => PacketType::ZeroRtt,
            2 => PacketType::Handshake,
            _ => PacketType::Retry,
        }
    }

    /// Length that [`Long::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        7 + self.destination.len() + self.source.len()
    }

    /// Writes the header at the start of `buffer`; returns its length. [`Error::Range`]
    /// for an identifier of more than [`MAX_IDENTIFIER_LEN`] octets.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let (destination, source) = (self.destination.len(), self.source.len());
        if destination.max(source) > MAX_IDENTIFIER_LEN {
            return Err(Error::Range);
        }
        let len = self.buffer_len();
        let buffer = buffer.get_mut(..len).ok_or(Error::NoRoom)?;
        buffer[0] = self.first | LONG;
        put_u32(buffer, 1, self.version);
        buffer[5] = destination as u8;
        let (first, second) = buffer[6..].split_at_mut(destination);
        first.copy_from_slice(self.destination);
        second[0] = source as u8;
        second[1..].copy_from_slice(self.source);
        Ok(len)
    }
}

/// The connection identifier of `length` octets at the start of `data`, and what follows.
#[inline]
fn identifier(length: u8, data: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    match usize::from(length) {
        length if length > MAX_IDENTIFIER_LEN => Err(Error::Length),
        length => data.split_at_checked(length).ok_or(Error::Truncated),
    }
}

/// First octet: a long header.
pub const LONG: u8 = 0x80;
/// First octet: set in every packet of versions 1 and 2, unless both ends agreed to
/// grease it (RFC 9287).
pub const FIXED: u8 = 0x40;
/// First octet of a short header: the spin bit.
pub const SPIN: u8 = 0x20;
/// RFC 9000.
pub const VERSION_1: u32 = 1;
/// RFC 9369.
pub const VERSION_2: u32 = 0x6B33_43CF;
/// Longest connection identifier of versions 1 and 2.
pub const MAX_IDENTIFIER_LEN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    /// The first octets of RFC 9001, appendix A.2 (client) and A.3 (server), of RFC 9369,
    /// appendix A.2 and A.4, and of RFC 9001, appendix A.4.
    #[test]
    fn known_packets() {
        let client = [0x83, 0x94, 0xC8, 0xF0, 0x3E, 0x51, 0x57, 0x08];
        let server = [0xF0, 0x67, 0xA5, 0x50, 0x2A, 0x42, 0x62, 0xB5];
        let v2 = [0x6B, 0x33, 0x43, 0xCF];
        for (first, version, from_client, kind) in [
            (0xC0, [0, 0, 0, 1], true, PacketType::Initial),
            (0xCF, [0, 0, 0, 1], false, PacketType::Initial),
            (0xFF, [0, 0, 0, 1], false, PacketType::Retry),
            (0xD3, v2, true, PacketType::Initial),
            (0xCF, v2, false, PacketType::Retry),
        ] {
            let mut bytes = std::vec![first];
            bytes.extend(version);
            if from_client {
                bytes.push(8);
                bytes.extend(client);
                bytes.push(0);
            } else {
                bytes.extend([0, 8]);
                bytes.extend(server);
            }
            let header = Long::parse(&bytes).unwrap();
            assert_eq!(header.kind(), kind, "{first:x}");
            let want: (&[u8], &[u8]) = if from_client { (&client, &[]) } else { (&[], &server) };
            assert_eq!((header.destination, header.source), want);
            for len in 0..bytes.len() {
                assert_eq!(Long::parse(&bytes[..len]), Err(Error::Truncated), "{len}");
            }
        }
    }

    #[test]
    fn every_type_of_every_version() {
        use PacketType::{Handshake, Initial, Retry, Unknown, VersionNegotiation, ZeroRtt};
        for (version, kinds) in [
            (VERSION_1, [Initial, ZeroRtt, Handshake, Retry]),
            (VERSION_2, [Retry, Initial, ZeroRtt, Handshake]),
            (0, [VersionNegotiation; 4]),
            (0xFF00_001D, [Unknown; 4]),
        ] {
            for (bits, kind) in kinds.into_iter().enumerate() {
                for low in [0, 15] {
                    let first = LONG | FIXED | (bits as u8) << 4 | low;
                    let header = Long { first, version, destination: &[], source: &[] };
                    assert_eq!(header.kind(), kind, "{version:x} {first:x}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_long_header() {
        assert_eq!(Long::parse(&[0x40; 40]), Err(Error::Type));
        assert_eq!(Long::parse(&[0xC0, 0, 0, 0, 1, 21, 0, 0]), Err(Error::Length));
        assert_eq!(Long::parse(&[0xC0, 0, 0, 0, 1, 1, 9, 21, 0]), Err(Error::Length));
        let long = Long { first: LONG, version: 1, destination: &[0; 21], source: &[] };
        assert_eq!(long.emit(&mut [0; 60]), Err(Error::Range));
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_emit(
            first: u8, version: u32,
            destination in proptest::collection::vec(any::<u8>(), 0..=MAX_IDENTIFIER_LEN),
            source in proptest::collection::vec(any::<u8>(), 0..=MAX_IDENTIFIER_LEN),
        ) {
            let (destination, source) = (&destination[..], &source[..]);
            let header = Long { first: first | LONG, version, destination, source };
            let mut bytes = [0xEE; 47];
            let len = header.emit(&mut bytes).unwrap();
            prop_assert_eq!(len, header.buffer_len());
            prop_assert_eq!(Long::parse(&bytes[..len]), Ok(header));
            prop_assert_eq!(header.emit(&mut bytes[..len - 1]), Err(Error::NoRoom));
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let _ = Long::parse(&bytes).map(|header| header.kind());
        }
    }
}
