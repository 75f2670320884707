//! Protocol Buffers, as far as they are written here: a message grows field by field.
//!
//! Encoding: protobuf.dev/programming-guides/encoding. Fields may come in any order; those of a
//! message that is in another are written before its length is known, so it is a buffer of its own.

/// A message that is being written.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// Its octets.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// An unsigned integer or an enumeration: `uint64`, `uint32`, `int64` that is not negative.
    pub fn varint(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.raw_varint(value);
    }

    /// A signed integer of small magnitude: `sint32`, `sint64`.
    pub fn zigzag(&mut self, field: u32, value: i64) {
        self.varint(field, ((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    /// `fixed64`.
    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// `double`.
    pub fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    /// `string` or `bytes`.
    pub fn text(&mut self, field: u32, value: impl AsRef<[u8]>) {
        let octets = value.as_ref();
        self.key(field, LENGTH);
        self.raw_varint(octets.len() as u64);
        self.0.extend_from_slice(octets);
    }

    /// A message in this one.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.text(field, &inner.0);
    }

    /// `repeated uint64`, packed.
    pub fn packed_varints(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut inner = Message::default();
        values.into_iter().for_each(|value| inner.raw_varint(value));
        self.text(field, &inner.0);
    }

    /// `repeated fixed64`, packed.
    pub fn packed_fixed64(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let octets: Vec<u8> = values.into_iter().flat_map(u64::to_le_bytes).collect();
        self.text(field, &octets);
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.raw_varint(u64::from(field << 3 | wire_type));
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// The value of a field that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// A varint, or the bits of 64 or 32 fixed ones.
    Number(u64),
    /// A text, octets or a message.
    Octets(&'a [u8]),
}

/// The fields of a message, in their order, up to the first that cannot be read.
pub fn fields(mut message: &[u8]) -> Vec<(u32, FieldValue<'_>)> {
    let mut all = Vec::new();
    while let Some((field, value, rest)) = one_field(message) {
        all.push((field, value));
        message = rest;
    }
    all
}

fn one_field(message: &[u8]) -> Option<(u32, FieldValue<'_>, &[u8])> {
    let (key, rest) = varint(message)?;
    let field = u32::try_from(key >> 3).ok()?;
    let fixed = |octets: usize| {
        let (value, rest) = rest.split_at_checked(octets)?;
        let number = value.iter().rev().fold(0, |sum, octet| sum << 8 | u64::from(*octet));
        Some((field, FieldValue::Number(number), rest))
    };
    match u32::try_from(key & 7).ok()? {
        VARINT => varint(rest).map(|(value, rest)| (field, FieldValue::Number(value), rest)),
        FIXED64 => fixed(8),
        FIXED32 => fixed(4),
        LENGTH => {
            let (length, rest) = varint(rest)?;
            let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some((field, FieldValue::Octets(value), rest))
        }
        _ => None,
    }
}

fn varint(octets: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, octet) in octets.iter().enumerate().take(10) {
        value |= u64::from(octet & 0x7f) << (7 * at);
        if octet & 0x80 == 0 {
            return Some((value, &octets[at + 1..]));
        }
    }
    None
}

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut message = Message::default();
        write(&mut message);
        message.into_bytes()
    }

    /// The examples of the encoding's own page.
    #[test]
    fn fields_are_written_as_the_specification_shows_them() {
        assert_eq!(written(|m| m.varint(1, 150)), [0x08, 0x96, 0x01]);
        let testing = [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67];
        assert_eq!(written(|m| m.text(2, "testing")), testing);
        let inner = written(|m| m.message(3, |m| m.varint(1, 150)));
        assert_eq!(inner, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let packed = written(|m| m.packed_varints(6, [3, 270, 86_942]));
        assert_eq!(packed, [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let message = written(|m| {
            m.varint(1, u64::MAX);
            m.double(17, 1.0);
            m.message(2, |m| m.text(3, "abc"));
        });
        let read = fields(&message);
        assert_eq!(read[0], (1, FieldValue::Number(u64::MAX)));
        assert_eq!(read[1], (17, FieldValue::Number(1.0_f64.to_bits())));
        let (2, FieldValue::Octets(inner)) = read[2] else { panic!("{read:?}") };
        assert_eq!(fields(inner), [(3, FieldValue::Octets(b"abc"))]);
        assert_eq!(fields(&[0x0d, 1, 0, 0, 0]), [(1, FieldValue::Number(1))]);
    }

    proptest::proptest! {
        #[test]
        fn no_octets_are_too_strange_to_be_read(octets: Vec<u8>) {
            for (_, value) in fields(&octets) {
                if let FieldValue::Octets(inner) = value {
                    proptest::prop_assert!(inner.len() < octets.len());
                }
            }
        }
    }

    #[test]
    fn signs_fold_and_wide_values_keep_all_their_bits() {
        for (value, folded) in [(0, 0), (-1, 1), (1, 2), (-2, 3), (i64::MAX, u64::MAX - 1)] {
            assert_eq!(written(|m| m.zigzag(1, value)), written(|m| m.varint(1, folded)));
        }
        let widest = written(|m| m.varint(1, u64::MAX));
        assert_eq!(widest, [8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
        assert_eq!(written(|m| m.double(1, 1.0)), [9, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        // A field beyond 15 has a key of two octets.
        assert_eq!(written(|m| m.varint(16, 0)), [0x80, 0x01, 0]);
    }
}
