//! IPFIX messages (RFC 7011): header and sets. Templates: [`template`]; data records:
//! [`record`]; what the fields mean: [`element`].
//!
//! Reading is by iterators over the bytes as they came; nothing is copied, and no bytes
//! can cause a panic. NetFlow version 9 shares all but the headers ([`crate::netflow9`]).

pub mod element;
pub mod record;
pub mod template;
pub mod time;

use crate::Error;
use crate::field::{put_u16, put_u32, u16_at, u32_at};

/// The message header (RFC 7011, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the message with this header, bytes.
    pub length: u16,
    /// When the message left the exporter, s since 1970 UTC.
    pub export_time: u32,
    /// Data records sent before this message in this stream and domain, modulo 2^32.
    pub sequence: u32,
    /// Observation Domain ID (RFC 7011, 3.1).
    pub domain: u32,
}

impl Header {
    /// Reads the header at the start of `data`; says nothing of what follows.
    pub fn parse(data: &[u8]) -> Result<Self, Error> {
        let data = data.get(..HEADER_LEN).ok_or(Error::Truncated)?;
        if u16_at(data, 0) != VERSION {
            return Err(Error::Version);
        }
        let length = u16_at(data, 2);
        if usize::from(length) < HEADER_LEN {
            return Err(Error::Length);
        }
        Ok(Header {
            length,
            export_time: u32_at(data, 4),
            sequence: u32_at(data, 8),
            domain: u32_at(data, 12),
        })
    }

    /// Writes it at the start of `out`.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Error> {
        let out = out.get_mut(..HEADER_LEN).ok_or(Error::NoRoom)?;
        put_u16(out, 0, VERSION);
        put_u16(out, 2, self.length);
        put_u32(out, 4, self.export_time);
        put_u32(out, 8, self.sequence);
        put_u32(out, 12, self.domain);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    pub header: Header,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads the header and checks that the message is all there. What follows it in
    /// `data` (the next message of a stream or a file) is left alone.
    pub fn new_checked(data: &'a [u8]) -> Result<Self, Error> {
        let header = Header::parse(data)?;
        let body = data.get(HEADER_LEN..usize::from(header.length)).ok_or(Error::Truncated)?;
        Ok(Message { header, body })
    }

    /// The sets, in order.
    pub fn sets(&self) -> SetIter<'a> {
        SetIter::new(self.body)
    }
}

/// One set: a header of 4 bytes and records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<'a> {
    /// [`TEMPLATE_SET`], [`OPTIONS_TEMPLATE_SET`], or from [`MIN_DATA_SET`] the template's id.
    pub id: u16,
    /// Its records, and padding.
    pub body: &'a [u8],
}

/// Walks sets; ends after the first error.
#[derive(Clone, Debug)]
pub struct SetIter<'a> {
    rest: &'a [u8],
}

impl<'a> SetIter<'a> {
    /// `body` is what follows a message's header.
    pub fn new(body: &'a [u8]) -> Self {
        SetIter { rest: body }
    }
}

impl<'a> Iterator for SetIter<'a> {
    type Item = Result<Set<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        if rest.len() < SET_HEADER_LEN {
            return Some(Err(Error::Truncated));
        }
        let (id, length) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
        if length < SET_HEADER_LEN {
            return Some(Err(Error::Length));
        }
        let Some((set, rest)) = rest.split_at_checked(length) else {
            return Some(Err(Error::Truncated));
        };
        self.rest = rest;
        Some(Ok(Set { id, body: &set[SET_HEADER_LEN..] }))
    }
}

/// Splits a stream or a file (RFC 5655, section 4) into messages. What is cut off at the end, as by
/// a process that was killed, ends the walk with [`Error::Truncated`]. All whole messages before it
/// have come out by then.
#[derive(Clone, Debug)]
pub struct MessageIter<'a> {
    rest: &'a [u8],
}

impl<'a> MessageIter<'a> {
    /// `data` begins with a message.
    pub fn new(data: &'a [u8]) -> Self {
        MessageIter { rest: data }
    }
}

impl<'a> Iterator for MessageIter<'a> {
    type Item = Result<&'a [u8], Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        let length = match Header::parse(rest) {
            Ok(header) => usize::from(header.length),
            Err(error) => return Some(Err(error)),
        };
        let Some((message, rest)) = rest.split_at_checked(length) else {
            return Some(Err(Error::Truncated));
        };
        self.rest = rest;
        Some(Ok(message))
    }
}

/// Puts another sequence number into a whole message, as a transport must that opened a new
/// connection. The number counts the records of one connection (RFC 7011, section 3.1).
pub fn set_sequence(message: &mut [u8], sequence: u32) -> Result<(), Error> {
    Header::parse(message)?;
    put_u32(message, 8, sequence);
    Ok(())
}

/// The version number that begins a message.
pub const VERSION: u16 = 10;
/// Length of the message header.
pub const HEADER_LEN: usize = 16;
/// Length of a set's header.
pub const SET_HEADER_LEN: usize = 4;
/// Id of a set of templates.
pub const TEMPLATE_SET: u16 = 2;
/// Id of a set of options templates.
pub const OPTIONS_TEMPLATE_SET: u16 = 3;
/// The least id of a template, and of its data sets.
pub const MIN_DATA_SET: u16 = 256;
/// The field length of a template that says: each record states it (RFC 7011, section 7).
pub const VARIABLE: u16 = u16::MAX;
/// Private enterprise number of the reverse direction's elements (RFC 5103, section 6.1).
pub const REVERSE: u32 = 29305;
/// The registered port over UDP, TCP and SCTP; over TLS and DTLS it is 4740.
pub const PORT: u16 = 4739;

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::record::{Record, RecordIter};
    use super::template::{FieldSpecifier, TemplateFormat, TemplateIter};
    use super::*;

    /// A message written out by hand. It has one template of a variable and a fixed field, and two
    /// records: the second long enough for the 3-byte length, and padding.
    fn example() -> Vec<u8> {
        let mut bytes = Vec::new();
        let long = [b'x'; 300];
        let data_len = 4 + (1 + 3 + 2) + (3 + 300 + 2) + 1;
        let len = 16 + 4 + 4 + 4 + 8 + data_len;
        bytes.extend_from_slice(&[0, 10]);
        bytes.extend_from_slice(&(len as u16).to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 9]);
        bytes.extend_from_slice(&[0, 2, 0, 20, 1, 0, 0, 2, 0, 7, 0, 2]);
        bytes.extend_from_slice(&[0x83, 0x28, 0xff, 0xff, 0, 0, 0x1f, 0x79]);
        // Fixed first in the template, so first in the record.
        bytes.extend_from_slice(&[1, 0]);
        bytes.extend_from_slice(&(data_len as u16).to_be_bytes());
        bytes.extend_from_slice(&[0, 80, 3, b'a', b'b', b'c']);
        bytes.extend_from_slice(&[1, 187, 255, 1, 44]);
        bytes.extend_from_slice(&long);
        bytes.push(0);
        bytes
    }

    #[test]
    fn a_message_is_read_as_section_3_says() {
        let bytes = example();
        let message = Message::new_checked(&bytes).unwrap();
        assert_eq!(message.header.sequence, 7);
        assert_eq!(message.header.domain, 9);
        let sets: Vec<_> = message.sets().map(Result::unwrap).collect();
        assert_eq!(sets.len(), 2);
        let template =
            TemplateIter::new(sets[0].body, TemplateFormat::Ipfix).next().unwrap().unwrap();
        let fields: Vec<FieldSpecifier> = template.fields().collect();
        assert_eq!((template.id, template.scope_count), (256, 0));
        assert_eq!(fields[0], FieldSpecifier { enterprise: 0, id: 7, length: 2 });
        assert_eq!(fields[1], FieldSpecifier { enterprise: 8057, id: 808, length: VARIABLE });
        let records: Vec<Record> =
            RecordIter::new(sets[1].body, &fields).map(Result::unwrap).collect();
        let values: Vec<Vec<&[u8]>> =
            records.iter().map(|r| r.values().map(|(_, value)| value).collect()).collect();
        assert_eq!(values[0], [&[0u8, 80][..], b"abc"]);
        assert_eq!(values[1], [&[1u8, 187][..], &[b'x'; 300]]);
    }

    #[test]
    fn a_cut_tail_costs_only_the_last_message() {
        let mut file = example();
        file.extend_from_slice(&example());
        for cut in 1..example().len() {
            let read: Vec<_> = MessageIter::new(&file[..file.len() - cut]).collect();
            assert_eq!(read.len(), 2, "{cut}");
            assert_eq!(read[0].unwrap(), example());
            assert_eq!(read[1], Err(Error::Truncated));
        }
    }

    #[test]
    fn headers_are_written_as_they_are_read() {
        let header = Header { length: 20, export_time: 1, sequence: u32::MAX, domain: 3 };
        let mut bytes = [0; HEADER_LEN];
        header.emit(&mut bytes).unwrap();
        assert_eq!(Header::parse(&bytes), Ok(header));
        set_sequence(&mut bytes, 5).unwrap();
        assert_eq!(Header::parse(&bytes).unwrap().sequence, 5);
        assert_eq!(header.emit(&mut bytes[1..]), Err(Error::NoRoom));
        assert_eq!(Header::parse(&[0, 9, 0, 16]), Err(Error::Truncated));
        bytes[1] = 9;
        assert_eq!(Header::parse(&bytes), Err(Error::Version));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut data in proptest::collection::vec(any::<u8>(), 0..200)) {
            if data.len() > 4 {
                let len = data.len() as u16;
                data[..2].copy_from_slice(&VERSION.to_be_bytes());
                data[2..4].copy_from_slice(&len.to_be_bytes());
            }
            let Ok(message) = Message::new_checked(&data) else { return Ok(()) };
            for set in message.sets().flatten() {
                for format in [TemplateFormat::Ipfix, TemplateFormat::Netflow9] {
                    for options in [false, true] {
                        let templates = if options {
                            TemplateIter::options(set.body, format)
                        } else {
                            TemplateIter::new(set.body, format)
                        };
                        for template in templates.flatten() {
                            let fields: Vec<_> = template.fields().collect();
                            prop_assert_eq!(fields.len(), usize::from(template.field_count));
                            for record in RecordIter::new(set.body, &fields).flatten() {
                                prop_assert_eq!(record.values().count(), fields.len());
                            }
                        }
                    }
                }
            }
        }
    }
}
