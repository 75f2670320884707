//! DNS messages (RFC 1035, section 4): the header, and what ties a response to its query.

use crate::Error;
use crate::field::{put_u16, u16_at};

/// The header of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// Chosen by the one who asks, repeated in the response.
    pub id: u16,
    /// QR 1 bit, opcode 4, AA, TC, RD and RA, 3 more, response code 4.
    pub flags: u16,
    /// Entries of the question section.
    pub questions: u16,
    /// Records of the answer section.
    pub answers: u16,
    /// Records of the authority section.
    pub authorities: u16,
    /// Records of the additional section.
    pub additionals: u16,
}

impl Header {
    /// Reads the header at the start of `message`.
    pub fn parse(message: &[u8]) -> Result<Self, Error> {
        let bytes = message.first_chunk::<HEADER_LEN>().ok_or(Error::Truncated)?;
        Ok(Header {
            id: u16_at(bytes, 0),
            flags: u16_at(bytes, 2),
            questions: u16_at(bytes, 4),
            answers: u16_at(bytes, 6),
            authorities: u16_at(bytes, 8),
            additionals: u16_at(bytes, 10),
        })
    }

    /// A response, not a query.
    pub const fn is_response(&self) -> bool {
        self.flags & RESPONSE != 0
    }

    /// Length that [`Header::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let buffer = buffer.get_mut(..HEADER_LEN).ok_or(Error::NoRoom)?;
        let Header { id, flags, questions, answers, authorities, additionals } = *self;
        let fields = [id, flags, questions, answers, authorities, additionals];
        for (i, field) in fields.into_iter().enumerate() {
            put_u16(buffer, 2 * i, field);
        }
        Ok(HEADER_LEN)
    }
}

/// What a query and its response have in common: `id` in the upper half, the hash of the
/// first name asked for in the lower.
///
/// The name begins after the header of `message`; its octets are hashed as they stand
/// there, length octets included and letters in lower case (a resolver may vary the case
/// to make forgery harder), up to the first zero octet, the end of the message or
/// [`MAX_NAME`] octets. Labels are not walked: only equality matters.
#[inline]
pub fn key(id: u16, message: &[u8]) -> u32 {
    let name = message.get(HEADER_LEN..).unwrap_or(&[]);
    let octets = name.iter().take(MAX_NAME).take_while(|octet| **octet != 0);
    let hash = fnv1a(octets.map(u8::to_ascii_lowercase));
    u32::from(id) << 16 | (hash >> 16 ^ hash) & 0xFFFF
}

/// The hash FNV-1a of 32 bits (draft-eastlake-fnv).
#[inline]
pub(crate) fn fnv1a(octets: impl Iterator<Item = u8>) -> u32 {
    octets.fold(0x811C_9DC5, |hash, octet| (hash ^ u32::from(octet)).wrapping_mul(0x0100_0193))
}

/// Length of the header.
pub const HEADER_LEN: usize = 12;
/// The port of DNS over UDP and TCP.
pub const PORT: u16 = 53;
/// The flag of a response.
pub const RESPONSE: u16 = 0x8000;
/// Most octets of a name that are looked at.
pub const MAX_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    /// A message with this name (labels as on the wire, without the root), type A, class IN.
    fn message(header: Header, name: &[u8]) -> Vec<u8> {
        let mut bytes = std::vec![0; HEADER_LEN];
        header.emit(&mut bytes).unwrap();
        bytes.extend(name);
        bytes.extend([0, 0, 1, 0, 1]);
        bytes
    }

    #[test]
    fn known_hashes() {
        // The vectors of draft-eastlake-fnv for the empty string, "a" and "foobar".
        assert_eq!(fnv1a(core::iter::empty()), 0x811C_9DC5);
        assert_eq!(fnv1a(b"a".iter().copied()), 0xE40C_292C);
        assert_eq!(fnv1a(b"foobar".iter().copied()), 0xBF9C_F968);
        assert_eq!(key(0, &[0; 12]), 0x811C ^ 0x9DC5);
        assert_eq!(key(0xABCD, b"............foobar"), 0xABCD_0000 | (0xBF9C ^ 0xF968));
    }

    #[test]
    fn a_response_has_the_key_of_its_query_and_of_no_other() {
        let query = Header { id: 7, flags: 0x0100, questions: 1, ..Header::default() };
        let response = Header { flags: 0x8180, answers: 1, ..query };
        let asked = message(query, b"\x03wWw\x07eXample");
        let mut answered = message(response, b"\x03www\x07example");
        answered.extend([0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 1]);
        assert_eq!(key(7, &asked), key(7, &answered));
        assert!(!Header::parse(&asked).unwrap().is_response());
        assert!(Header::parse(&answered).unwrap().is_response());
        assert_ne!(key(8, &asked), key(7, &asked));
        assert_ne!(key(7, &message(query, b"\x03www\x07examplf")), key(7, &asked));
        // The type is no part of it.
        let end = asked.len();
        let mut other = asked.clone();
        other[end - 3] = 28;
        assert_eq!(key(7, &other), key(7, &asked));
    }

    #[test]
    fn sixty_four_octets_of_a_name_count() {
        let header = Header::default();
        let long = [b'x'; 70];
        let mut other = long;
        other[64] = b'y';
        assert_eq!(key(1, &message(header, &long)), key(1, &message(header, &other)));
        other[63] = b'y';
        assert_ne!(key(1, &message(header, &long)), key(1, &message(header, &other)));
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_emit(bytes: [u8; HEADER_LEN]) {
            let header = Header::parse(&bytes).unwrap();
            let mut again = [0; HEADER_LEN];
            prop_assert_eq!(header.emit(&mut again), Ok(header.buffer_len()));
            prop_assert_eq!(again, bytes);
            prop_assert_eq!(header.emit(&mut again[1..]), Err(Error::NoRoom));
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let _ = Header::parse(&bytes);
            let _ = key(0, &bytes);
        }
    }
}
