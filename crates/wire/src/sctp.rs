//! SCTP packets (RFC 9260): common header, first chunk, and the heartbeat.

use crate::Error;
use crate::dns::hash;
use crate::field::{put_u16, put_u32, u16_at, u32_at};

/// The common header (section 3.1). Its checksum is a CRC32c that nothing here needs: it
/// is kept as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    pub source_port: u16,
    pub destination_port: u16,
    /// Verification tag of the receiver (RFC 9260, section 3.1); 0 with an INIT chunk.
    pub tag: u32,
    pub checksum: u32,
}

impl Header {
    /// Reads the header at the start of `packet`.
    pub fn parse(packet: &[u8]) -> Result<Self, Error> {
        let bytes = packet.first_chunk::<HEADER_LEN>().ok_or(Error::Truncated)?;
        Ok(Header {
            source_port: u16_at(bytes, 0),
            destination_port: u16_at(bytes, 2),
            tag: u32_at(bytes, 4),
            checksum: u32_at(bytes, 8),
        })
    }

    /// Length that [`Header::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let buffer = buffer.get_mut(..HEADER_LEN).ok_or(Error::NoRoom)?;
        put_u16(buffer, 0, self.source_port);
        put_u16(buffer, 2, self.destination_port);
        put_u32(buffer, 4, self.tag);
        put_u32(buffer, 8, self.checksum);
        Ok(HEADER_LEN)
    }
}

/// A heartbeat or its acknowledgement, which repeats the sender's information (sections
/// 3.3.5 and 3.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Heartbeat<'a> {
    /// HEARTBEAT ACK, else HEARTBEAT.
    pub ack: bool,
    /// The value of the heartbeat information, which only its sender understands; less
    /// than the whole of it when the capture was cut short.
    pub information: &'a [u8],
}

impl<'a> Heartbeat<'a> {
    /// Reads a chunk; `data` begins with it. [`Error::Type`] for another chunk, or one
    /// without heartbeat information.
    #[inline]
    pub fn parse(data: &'a [u8]) -> Result<Self, Error> {
        let (bytes, rest) = data.split_first_chunk::<CHUNK_HEADER_LEN>().ok_or(Error::Truncated)?;
        let ack = match bytes[0] {
            HEARTBEAT => false,
            HEARTBEAT_ACK => true,
            _ => return Err(Error::Type),
        };
        if u16_at(bytes, 4) != INFORMATION {
            return Err(Error::Type);
        }
        let chunk = usize::from(u16_at(bytes, 2));
        let parameter = usize::from(u16_at(bytes, 6));
        // Each length counts its own header; the chunk's encloses the parameter's.
        if parameter < 4 || chunk < parameter + 4 {
            return Err(Error::Length);
        }
        Ok(Heartbeat { ack, information: &rest[..rest.len().min(parameter - 4)] })
    }

    /// What a heartbeat and its acknowledgement have in common: the hash of the first
    /// [`MAX_INFORMATION`] octets of the information, of fewer if it is shorter.
    #[inline]
    pub fn id(&self) -> u32 {
        hash(&self.information[..self.information.len().min(MAX_INFORMATION)])
    }

    /// Length that [`Heartbeat::emit`] writes: a multiple of 4.
    pub const fn buffer_len(&self) -> usize {
        (CHUNK_HEADER_LEN + self.information.len()).next_multiple_of(4)
    }

    /// Writes the chunk, padded with zeros, at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let end = CHUNK_HEADER_LEN + self.information.len();
        let chunk = u16::try_from(end).map_err(|_| Error::Range)?;
        let len = self.buffer_len();
        let buffer = buffer.get_mut(..len).ok_or(Error::NoRoom)?;
        buffer[0] = if self.ack { HEARTBEAT_ACK } else { HEARTBEAT };
        buffer[1] = 0;
        put_u16(buffer, 2, chunk);
        put_u16(buffer, 4, INFORMATION);
        put_u16(buffer, 6, chunk - 4);
        buffer[CHUNK_HEADER_LEN..end].copy_from_slice(self.information);
        buffer[end..].fill(0);
        Ok(len)
    }
}

/// Length of the common header.
pub const HEADER_LEN: usize = 12;
/// Protocol number of SCTP.
pub const PROTOCOL_SCTP: u8 = 132;
/// Most octets of heartbeat information that are looked at.
pub const MAX_INFORMATION: usize = 16;

/// Chunk header and parameter header.
const CHUNK_HEADER_LEN: usize = 8;
const HEARTBEAT: u8 = 4;
const HEARTBEAT_ACK: u8 = 5;
/// The parameter that is the heartbeat information.
const INFORMATION: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    #[test]
    fn known_heartbeat() {
        let bytes = [4, 0, 0, 14, 0, 1, 0, 10, b'f', b'o', b'o', b'b', b'a', b'r', 0, 0];
        let heartbeat = Heartbeat::parse(&bytes).unwrap();
        assert_eq!(heartbeat, Heartbeat { ack: false, information: b"foobar" });
        assert_eq!(heartbeat.id(), 0x4885_00DA);
        let mut again = [0xEE; 16];
        assert_eq!(heartbeat.emit(&mut again), Ok(16));
        assert_eq!(again, bytes);
    }

    #[test]
    fn what_is_no_heartbeat() {
        let good = [5, 0, 0, 9, 0, 1, 0, 5, 1];
        assert_eq!(Heartbeat::parse(&good), Ok(Heartbeat { ack: true, information: &[1] }));
        let with = |at: usize, value| {
            let mut bytes = good;
            bytes[at] = value;
            Heartbeat::parse(&bytes).map(|h| h.information.len())
        };
        assert_eq!(with(0, 3), Err(Error::Type));
        assert_eq!(with(5, 2), Err(Error::Type));
        assert_eq!(with(3, 8), Err(Error::Length));
        assert_eq!(with(7, 3), Err(Error::Length));
        assert_eq!(with(7, 4), Ok(0));
        assert_eq!(Heartbeat::parse(&good[..7]), Err(Error::Truncated));
        assert_eq!(Heartbeat::parse(&good[..8]).map(|h| h.information.len()), Ok(0));
    }

    #[test]
    fn sixteen_octets_of_the_information_count() {
        let id = |information: &[u8]| Heartbeat { ack: false, information }.id();
        assert_eq!(id(b"0123456789abcdefg"), id(b"0123456789abcdef"));
        assert_ne!(id(b"0123456789abcdef"), id(b"0123456789abcde"));
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_emit(
            bytes: [u8; HEADER_LEN], ack: bool, information: Vec<u8>,
        ) {
            let header = Header::parse(&bytes).unwrap();
            let mut again = [0; HEADER_LEN];
            prop_assert_eq!(header.emit(&mut again), Ok(header.buffer_len()));
            prop_assert_eq!(again, bytes);
            let heartbeat = Heartbeat { ack, information: &information };
            let mut bytes = std::vec![0xEE; heartbeat.buffer_len()];
            prop_assert_eq!(heartbeat.emit(&mut bytes), Ok(bytes.len()));
            prop_assert_eq!(Heartbeat::parse(&bytes), Ok(heartbeat));
            prop_assert_eq!(heartbeat.emit(&mut bytes[1..]), Err(Error::NoRoom));
        }

        #[test]
        fn never_panics(mut bytes: Vec<u8>) {
            let _ = Header::parse(&bytes);
            let _ = Heartbeat::parse(&bytes).map(|h| h.id());
            if let Some(start) = bytes.first_chunk_mut::<6>() {
                *start = [4, 0, 1, start[3], 0, 1];
            }
            let _ = Heartbeat::parse(&bytes).map(|h| h.id());
        }
    }
}
