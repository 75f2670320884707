//! Data records (RFC 7011, section 3.4.3) and the list of one element (RFC 6313): bytes
//! and the template that says what they are.

use super::VARIABLE;
use super::template::FieldSpecifier;
use crate::Error;
use crate::field::{u16_at, u32_at};

/// Walks the records of a data set; ends after the first error.
#[derive(Clone, Debug)]
pub struct RecordIter<'a, 'f> {
    rest: &'a [u8],
    fields: &'f [FieldSpecifier],
    /// Length of the shortest record: what is shorter is padding.
    min_len: usize,
    /// No variable field: every record has the shortest one's length.
    fixed: bool,
}

impl<'a, 'f> RecordIter<'a, 'f> {
    /// `body` follows the set's header; `fields` are the template's.
    pub fn new(body: &'a [u8], fields: &'f [FieldSpecifier]) -> Self {
        let min_len = fields.iter().map(FieldSpecifier::min_len).sum();
        let fixed = fields.iter().all(|field| field.length != VARIABLE);
        RecordIter { rest: body, fields, min_len, fixed }
    }
}

impl<'a, 'f> Iterator for RecordIter<'a, 'f> {
    type Item = Result<Record<'a, 'f>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let data = core::mem::take(&mut self.rest);
        if data.len() < self.min_len.max(1) {
            return None;
        }
        // A template whose records have no bytes would go on for ever.
        if self.min_len == 0 {
            return Some(Err(Error::Length));
        }
        let (bytes, rest) = if self.fixed {
            data.split_at(self.min_len)
        } else {
            let mut rest = data;
            for field in self.fields {
                match split_value(rest, field.length) {
                    Some((_, after)) => rest = after,
                    None => return Some(Err(Error::Truncated)),
                }
            }
            data.split_at(data.len() - rest.len())
        };
        self.rest = rest;
        Some(Ok(Record { bytes, fields: self.fields }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a, 'f> {
    pub bytes: &'a [u8],
    /// Its template's fields.
    pub fields: &'f [FieldSpecifier],
}

impl<'a, 'f> Record<'a, 'f> {
    /// Fields and their bytes, in order.
    #[inline]
    pub fn values(&self) -> Values<'a, 'f> {
        Values { rest: self.bytes, fields: self.fields.iter() }
    }
}

/// Walks the values of a [`Record`].
#[derive(Clone, Debug)]
pub struct Values<'a, 'f> {
    rest: &'a [u8],
    fields: core::slice::Iter<'f, FieldSpecifier>,
}

impl<'a, 'f> Iterator for Values<'a, 'f> {
    type Item = (&'f FieldSpecifier, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let field = self.fields.next()?;
        let (value, rest) = split_value(self.rest, field.length)?;
        self.rest = rest;
        Some((field, value))
    }
}

/// An unsigned integer of up to 8 bytes, of full or reduced size (RFC 7011, section 6.2).
#[inline]
pub fn unsigned(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 8 {
        return None;
    }
    Some(value.iter().fold(0, |sum, octet| sum << 8 | u64::from(*octet)))
}

/// A basicList (RFC 6313, section 4.5.1): values of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicList<'a> {
    /// How the values relate: 0 none of, 1 exactly one of, 2 one or more of, 3 all of,
    /// 4 ordered, 255 undefined.
    pub semantic: u8,
    /// Their element and length.
    pub field: FieldSpecifier,
    content: &'a [u8],
}

impl<'a> BasicList<'a> {
    /// Reads the value of a basicList field.
    pub fn parse(value: &'a [u8]) -> Result<Self, Error> {
        if value.len() < 5 {
            return Err(Error::Truncated);
        }
        let (id, length) = (u16_at(value, 1), u16_at(value, 3));
        let (enterprise, content) = if id & 0x8000 == 0 {
            (0, &value[5..])
        } else {
            let bytes = value.get(5..9).ok_or(Error::Truncated)?;
            (u32_at(bytes, 0), &value[9..])
        };
        let field = FieldSpecifier { enterprise, id: id & 0x7fff, length };
        Ok(BasicList { semantic: value[0], field, content })
    }

    /// The values, in order; what does not make a whole value at the end is left out.
    pub fn values(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (mut rest, length) = (self.content, self.field.length);
        core::iter::from_fn(move || {
            if rest.is_empty() || length == 0 {
                return None;
            }
            let (value, after) = split_value(rest, length)?;
            rest = after;
            Some(value)
        })
    }
}

/// One value off the front of `data` (RFC 7011, section 7: a length below 255 takes one
/// octet, any takes 255 and two).
#[inline]
fn split_value(data: &[u8], length: u16) -> Option<(&[u8], &[u8])> {
    if length != VARIABLE {
        return data.split_at_checked(usize::from(length));
    }
    let (&first, rest) = data.split_first()?;
    if first < u8::MAX {
        return rest.split_at_checked(usize::from(first));
    }
    let (long, rest) = rest.split_at_checked(2)?;
    rest.split_at_checked(usize::from(u16_at(long, 0)))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn reduced_size_is_any_length_up_to_eight() {
        assert_eq!(unsigned(&[]), None);
        assert_eq!(unsigned(&[1, 2, 3]), Some(0x01_02_03));
        assert_eq!(unsigned(&[255; 8]), Some(u64::MAX));
        assert_eq!(unsigned(&[0; 9]), None);
    }

    #[test]
    fn records_without_bytes_end_the_walk() {
        let field = FieldSpecifier { enterprise: 0, id: 1, length: 0 };
        let mut records = RecordIter::new(&[1, 2, 3], core::slice::from_ref(&field));
        assert_eq!(records.next(), Some(Err(Error::Length)));
        assert_eq!(records.next(), None);
    }

    #[test]
    fn a_basic_list_as_in_rfc_6313() {
        let bytes = [4, 0x83, 0xf5, 0, 2, 0, 0, 0x1f, 0x79, 0, 100, 5, 220, 7];
        let list = BasicList::parse(&bytes).unwrap();
        assert_eq!((list.semantic, list.field.enterprise, list.field.id), (4, 8057, 1013));
        assert_eq!(list.values().collect::<Vec<_>>(), [&[0u8, 100][..], &[5, 220]]);
        assert_eq!(BasicList::parse(&bytes[..8]), Err(Error::Truncated));
    }
}
