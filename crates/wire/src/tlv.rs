//! The TLVs that may follow a STAMP base packet (RFC 8972 section 4): the container.
//! What is in the known ones: [`value`].
//!
//! A TLV is one octet of flags, one of type, two of length of the value, and the value.

pub mod value;

use crate::Error;
use crate::field::{put_u16, u16_at};

/// The flags of a TLV (RFC 8972 section 4; the C flag RFC 10052).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// What a sender sends: not recognised, until a reflector says otherwise.
    pub const REQUEST: Flags = Flags(Self::UNRECOGNIZED);
    /// U: the reflector does not know the type.
    pub const UNRECOGNIZED: u8 = 0x80;
    /// M: the length is wrong for the type or for the packet.
    pub const MALFORMED: u8 = 0x40;
    /// I: the integrity check failed.
    pub const INTEGRITY: u8 = 0x20;
    /// C: the reply is not what was asked for.
    pub const CONFORMANT: u8 = 0x10;

    /// U is set: the receiver does not know this TLV.
    pub const fn unrecognized(self) -> bool {
        self.0 & Self::UNRECOGNIZED != 0
    }

    /// M is set: its length is wrong.
    pub const fn malformed(self) -> bool {
        self.0 & Self::MALFORMED != 0
    }

    /// I is set: its digest is wrong.
    pub const fn integrity_failed(self) -> bool {
        self.0 & Self::INTEGRITY != 0
    }
}

/// Octets that are no TLV: fewer than a TLV's header, or a length beyond the end. A walk
/// ends there; a reflector sends the octets back as they came, with the M flag set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where they begin, counted from the start of the walk.
    pub offset: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    pub flags: Flags,
    pub kind: u8,
    pub value: &'a [u8],
}

/// Iterator over the TLVs behind a base packet. It ends with the first malformed one.
#[derive(Clone, Debug)]
pub struct Tlvs<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Tlvs<'a> {
    /// `data` is what follows the base packet.
    pub fn new(data: &'a [u8]) -> Self {
        Tlvs { rest: data, offset: 0 }
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((tlv, rest)) = tlv_len(self.rest).and_then(|len| self.rest.split_at_checked(len))
        else {
            self.rest = &[];
            return Some(Err(Malformed { offset: self.offset }));
        };
        self.rest = rest;
        self.offset += tlv.len();
        Some(Ok(Tlv { flags: Flags(tlv[0]), kind: tlv[1], value: &tlv[HEADER_LEN..] }))
    }
}

/// One TLV that a reflector may change: all but its length.
#[derive(Debug, PartialEq, Eq)]
pub struct TlvMut<'a> {
    bytes: &'a mut [u8],
}

impl TlvMut<'_> {
    pub fn flags(&self) -> Flags {
        Flags(self.bytes[0])
    }

    pub fn set_flags(&mut self, flags: Flags) {
        self.bytes[0] = flags.0;
    }

    pub fn kind(&self) -> u8 {
        self.bytes[1]
    }

    pub fn value(&self) -> &[u8] {
        &self.bytes[HEADER_LEN..]
    }
}

/// Walks TLVs so that they can be changed where they lie.
#[derive(Debug)]
pub struct TlvsMut<'a> {
    rest: &'a mut [u8],
    offset: usize,
}

impl<'a> TlvsMut<'a> {
    /// `data` is what follows the base packet.
    pub fn new(data: &'a mut [u8]) -> Self {
        TlvsMut { rest: data, offset: 0 }
    }
}

impl<'a> Iterator for TlvsMut<'a> {
    type Item = Result<TlvMut<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let data = core::mem::take(&mut self.rest);
        if data.is_empty() {
            return None;
        }
        let Some((bytes, rest)) = tlv_len(data).and_then(|len| data.split_at_mut_checked(len))
        else {
            return Some(Err(Malformed { offset: self.offset }));
        };
        self.rest = rest;
        self.offset += bytes.len();
        Some(Ok(TlvMut { bytes }))
    }
}

/// Sets the M flag of what a walk over `data` found malformed.
pub fn mark_malformed(data: &mut [u8], at: Malformed) {
    if let Some(flags) = data.get_mut(at.offset) {
        *flags = Flags::MALFORMED;
    }
}

/// Writes a sender's TLVs one after the other.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    /// `buffer` is what follows the base packet.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Writer { buffer, len: 0 }
    }

    /// Appends a TLV with [`Flags::REQUEST`].
    pub fn push(&mut self, kind: u8, value: &[u8]) -> Result<(), Error> {
        self.reserve(kind, value.len())?.copy_from_slice(value);
        Ok(())
    }

    /// Appends a TLV of zeros, for [`PADDING`] or as a request that the reflector fills.
    pub fn push_zeros(&mut self, kind: u8, len: usize) -> Result<(), Error> {
        self.reserve(kind, len)?.fill(0);
        Ok(())
    }

    /// Length of what was written.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn reserve(&mut self, kind: u8, len: usize) -> Result<&mut [u8], Error> {
        let field = u16::try_from(len).map_err(|_| Error::Range)?;
        let end = self.len + HEADER_LEN + len;
        let tlv = self.buffer.get_mut(self.len..end).ok_or(Error::NoRoom)?;
        tlv[0] = Flags::REQUEST.0;
        tlv[1] = kind;
        put_u16(tlv, 2, field);
        self.len = end;
        Ok(&mut tlv[HEADER_LEN..])
    }
}

/// Length of the TLV at the start of `data`, if its header is there.
#[inline]
fn tlv_len(data: &[u8]) -> Option<usize> {
    (data.len() >= HEADER_LEN).then(|| HEADER_LEN + usize::from(u16_at(data, 2)))
}

/// Length of flags, type and length.
pub const HEADER_LEN: usize = 4;
/// Extra padding (RFC 8972 section 4.1): any value.
pub const PADDING: u8 = 1;
/// Location (section 4.2): [`value::Location`].
pub const LOCATION: u8 = 2;
/// Timestamp information (section 4.3): [`value::TimestampInformation`].
pub const TIMESTAMP_INFORMATION: u8 = 3;
/// Class of service (section 4.4): [`value::ClassOfService`].
pub const CLASS_OF_SERVICE: u8 = 4;
/// Direct measurement (section 4.5): [`value::DirectMeasurement`].
pub const DIRECT_MEASUREMENT: u8 = 5;
/// Access report (section 4.6).
pub const ACCESS_REPORT: u8 = 6;
/// Follow-up telemetry (section 4.7): [`value::FollowUpTelemetry`].
pub const FOLLOW_UP_TELEMETRY: u8 = 7;
/// HMAC over the TLVs before it (section 4.8).
pub const HMAC: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    #[test]
    fn writes_and_walks() {
        let mut buffer = [0xFF; 20];
        let mut writer = Writer::new(&mut buffer);
        assert!(writer.is_empty());
        writer.push(CLASS_OF_SERVICE, &[1, 2, 3, 4]).unwrap();
        writer.push_zeros(PADDING, 2).unwrap();
        assert_eq!(writer.push(PADDING, &[0; 3]), Err(Error::NoRoom));
        writer.push(PADDING, &[]).unwrap();
        assert_eq!(writer.len(), 18);
        assert_eq!(writer.push_zeros(PADDING, 65_536), Err(Error::Range));
        assert_eq!(
            buffer,
            [0x80, 4, 0, 4, 1, 2, 3, 4, 0x80, 1, 0, 2, 0, 0, 0x80, 1, 0, 0, 0xFF, 0xFF]
        );
        let walked: Vec<_> = Tlvs::new(&buffer[..18]).map(|t| t.unwrap()).collect();
        assert_eq!(walked.len(), 3);
        assert_eq!(
            walked[0],
            Tlv { flags: Flags::REQUEST, kind: CLASS_OF_SERVICE, value: &[1, 2, 3, 4] }
        );
        assert!(walked[0].flags.unrecognized() && !walked[0].flags.malformed());
    }

    #[test]
    fn malformed_ends_the_walk_and_is_marked_in_place() {
        // A good TLV, then a length of 9 where 3 octets are left.
        let mut data = [0x80, 1, 0, 1, 7, 0x80, 1, 0, 9, 1, 2, 3];
        let mut walk = Tlvs::new(&data);
        assert!(walk.next().unwrap().is_ok());
        assert_eq!(walk.next(), Some(Err(Malformed { offset: 5 })));
        assert_eq!(walk.next(), None);
        let mut bad = None;
        for tlv in TlvsMut::new(&mut data) {
            match tlv {
                Ok(mut tlv) => {
                    assert_eq!((tlv.kind(), tlv.value()), (1, &[7][..]));
                    tlv.set_flags(Flags(0));
                }
                Err(malformed) => bad = Some(malformed),
            }
        }
        mark_malformed(&mut data, bad.unwrap());
        assert_eq!(data, [0, 1, 0, 1, 7, 0x40, 1, 0, 9, 1, 2, 3]);
        // One to three octets are no TLV either.
        for len in 1..HEADER_LEN {
            assert_eq!(Tlvs::new(&data[..len]).next(), Some(Err(Malformed { offset: 0 })));
        }
        assert_eq!(Tlvs::new(&[]).next(), None);
    }

    proptest! {
        #[test]
        fn walk_is_the_inverse_of_write(
            tlvs in proptest::collection::vec(
                (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..8),
        ) {
            let mut buffer = [0; 512];
            let mut writer = Writer::new(&mut buffer);
            for (kind, value) in &tlvs {
                writer.push(*kind, value).unwrap();
            }
            let len = writer.len();
            let walked: Vec<(u8, Vec<u8>)> = Tlvs::new(&buffer[..len])
                .map(|t| t.unwrap())
                .map(|t| (t.kind, t.value.to_vec()))
                .collect();
            prop_assert_eq!(walked, tlvs);
        }

        #[test]
        fn both_walks_agree_and_never_panic(mut bytes: Vec<u8>, small: bool) {
            if small {
                // Small lengths, so that the walk gets further than one TLV.
                for b in bytes.iter_mut() {
                    *b %= 4;
                }
            }
            let copy = bytes.clone();
            let mut shared = Tlvs::new(&copy);
            let mut bad = None;
            for tlv in TlvsMut::new(&mut bytes) {
                match (tlv, shared.next().unwrap()) {
                    (Ok(a), Ok(b)) => {
                        prop_assert_eq!(a.kind(), b.kind);
                        prop_assert_eq!(a.value(), b.value);
                    }
                    (Err(a), Err(b)) => {
                        prop_assert_eq!(a, b);
                        bad = Some(a);
                    }
                    _ => prop_assert!(false, "the walks differ"),
                }
            }
            prop_assert_eq!(shared.next(), None);
            if let Some(bad) = bad {
                mark_malformed(&mut bytes, bad);
                prop_assert!(Flags(bytes[bad.offset]).malformed());
            }
        }
    }
}
