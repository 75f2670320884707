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
/// The name begins after the header of `message`. Its octets are hashed as they stand there, length
/// octets included. Letters are in lower case: a resolver may vary the case to make forgery harder.
/// The hash ends at the first zero octet, the end of the message or [`MAX_NAME`] octets. Labels are
/// not walked: only equality matters. Without a question the lower half is 0 (some errors do not
/// repeat it): see [`name`].
#[inline]
pub fn key(id: u16, message: &[u8]) -> u32 {
    let asks = message.get(4..6).is_some_and(|count| count != [0, 0]);
    let name = if asks { message.get(HEADER_LEN..).unwrap_or(&[]) } else { &[] };
    let name = &name[..name.len().min(MAX_NAME)];
    let end = name.iter().position(|octet| *octet == 0).unwrap_or(name.len());
    let mut lower = [0; MAX_NAME];
    lower[..end].copy_from_slice(&name[..end]);
    lower.make_ascii_lowercase();
    u32::from(id) << 16 | hash(&lower[..end]) >> 16
}

/// The part of a [`key`] that stands for the name. 0: none, or that of the root, and then the
/// identifier alone ties a response to its query.
pub const fn name(key: u32) -> u16 {
    key as u16
}

/// A quick hash, eight octets at a time, the last ones filled up with zeros: nobody's secret.
#[inline]
pub(crate) fn hash(octets: &[u8]) -> u32 {
    let chunks = octets.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let all = chunks.fold(0u64, |hash, word| {
        let product = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (product ^ product >> 32).wrapping_add(1)
    });
    (all >> 32) as u32
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
        // From another program that follows docs/design/rtt-matching.md.
        for (octets, expected) in [
            (&b""[..], 0),
            (b"a", 0xF305_1F49),
            (b"foobar", 0x4885_00DA),
            (b"\x03www\x07example\x03org", 0x5925_2030),
            (&[b'x'; 64], 0x955B_392B),
        ] {
            assert_eq!(hash(octets), expected, "{octets:?}");
        }
        assert_eq!(key(0, &[0; 12]), 0);
        assert_eq!(key(0xABCD, b"............fooBAR"), 0xABCD_4885);
        assert_eq!(key(0xABCD, b"............fooBAR\0\xff"), 0xABCD_4885);
        // A name that ends where a word does.
        assert_eq!(key(7, b"............12345678\0x"), key(7, b"............12345678"));
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
    fn without_a_question_the_identifier_is_all() {
        let asked = Header { id: 7, questions: 1, ..Header::default() };
        let named = key(7, &message(asked, b"\x03www"));
        assert_ne!(name(named), 0);
        let refused = Header { flags: 0x8185, questions: 0, ..asked };
        assert_eq!(key(7, &message(refused, b"\x03www")), 7 << 16);
        assert_eq!(key(7, &message(asked, b"")), 7 << 16, "the root");
    }

    #[test]
    fn sixty_four_octets_of_a_name_count() {
        let header = Header { questions: 1, ..Header::default() };
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
