//! A record's fields, said once: the same function writes the template and the record.

use sonde_wire::ipfix::VARIABLE;
use sonde_wire::ipfix::element::{self, Element};
use sonde_wire::ipfix::template::FieldSpecifier;

/// Takes the fields of a record in order.
pub(super) trait Fields {
    /// A field of fixed length.
    fn put<const N: usize>(&mut self, element: Element, value: [u8; N]);

    /// A field of variable length.
    fn variable(&mut self, element: Element, value: &[u8]);

    /// A basicList of values of one element (RFC 6313, section 4.5.1).
    fn list<const N: usize>(
        &mut self,
        element: Element,
        semantic: u8,
        values: impl ExactSizeIterator<Item = [u8; N]>,
    );

    #[inline(always)]
    fn u8(&mut self, element: Element, value: u8) {
        self.put(element, [value]);
    }

    #[inline(always)]
    fn u16(&mut self, element: Element, value: u16) {
        self.put(element, value.to_be_bytes());
    }

    #[inline(always)]
    fn u32(&mut self, element: Element, value: u32) {
        self.put(element, value.to_be_bytes());
    }

    #[inline(always)]
    fn u64(&mut self, element: Element, value: u64) {
        self.put(element, value.to_be_bytes());
    }
}

/// Writes the field specifiers of a template (RFC 7011, 3.2).
#[derive(Default)]
pub(super) struct TemplateWriter {
    pub fields: Vec<FieldSpecifier>,
}

impl TemplateWriter {
    fn field(&mut self, element: Element, length: u16) {
        let Element { enterprise, id, .. } = element;
        self.fields.push(FieldSpecifier { enterprise, id, length });
    }
}

impl Fields for TemplateWriter {
    fn put<const N: usize>(&mut self, element: Element, _value: [u8; N]) {
        self.field(element, N as u16);
    }

    fn variable(&mut self, element: Element, _value: &[u8]) {
        self.field(element, VARIABLE);
    }

    fn list<const N: usize>(
        &mut self,
        _element: Element,
        _semantic: u8,
        _values: impl ExactSizeIterator<Item = [u8; N]>,
    ) {
        self.field(element::BASIC_LIST, VARIABLE);
    }
}

/// Writes values. What finds no room is not written but counted in [`RecordWriter::at`],
/// which is then beyond the end.
pub(super) struct RecordWriter<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> RecordWriter<'a> {
    #[inline(always)]
    pub fn new(out: &'a mut [u8]) -> Self {
        RecordWriter { out, at: 0 }
    }

    /// Bytes written, and those for which there was no room.
    #[inline(always)]
    pub fn at(&self) -> usize {
        self.at
    }

    /// What comes first is at most `N` bytes long. With room for that many the compiler knows every
    /// offset, and nothing is checked field by field.
    #[inline(always)]
    pub fn first<const N: usize>(&mut self, write: impl Fn(&mut RecordWriter<'_>)) {
        let mut inner = match self.out.first_chunk_mut::<N>() {
            Some(chunk) => RecordWriter { out: chunk, at: 0 },
            None => RecordWriter { out: self.out, at: 0 },
        };
        write(&mut inner);
        self.at = inner.at;
    }

    /// A record written elsewhere.
    pub fn raw(&mut self, record: &[u8]) {
        self.bytes(record);
    }

    #[inline(always)]
    fn bytes(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        if let Some(field) = self.out.get_mut(self.at..end) {
            field.copy_from_slice(bytes);
        }
        self.at = end;
    }

    /// The length before a variable value; always the short form where it will do, as
    /// RFC 7011, section 7 recommends.
    fn length(&mut self, len: usize) {
        match u8::try_from(len) {
            Ok(short) if short < u8::MAX => self.bytes(&[short]),
            _ => {
                let [high, low] = (len as u16).to_be_bytes();
                self.bytes(&[u8::MAX, high, low]);
            }
        }
    }
}

impl Fields for RecordWriter<'_> {
    #[inline(always)]
    fn put<const N: usize>(&mut self, _element: Element, value: [u8; N]) {
        self.bytes(&value);
    }

    fn variable(&mut self, _element: Element, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.length(value.len());
        self.bytes(value);
    }

    fn list<const N: usize>(
        &mut self,
        element: Element,
        semantic: u8,
        values: impl ExactSizeIterator<Item = [u8; N]>,
    ) {
        let field =
            FieldSpecifier { enterprise: element.enterprise, id: element.id, length: N as u16 };
        let mut head = [0; 8];
        let head_len = field.emit(&mut head).expect("8 bytes hold any specifier");
        // In a basicList the enterprise number follows the length, as in a template.
        self.length(1 + head_len + values.len() * N);
        self.bytes(&[semantic]);
        self.bytes(&head[..head_len]);
        for value in values {
            self.bytes(&value);
        }
    }
}

/// The longest start of a string that is no longer than `max` and ends between characters.
pub(super) trait Floor {
    fn floor(&self, max: usize) -> usize;
}

impl Floor for str {
    fn floor(&self, max: usize) -> usize {
        let mut end = self.len().min(max);
        while !self.is_char_boundary(end) {
            end -= 1;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use sonde_wire::ipfix::record::{BasicList, RecordIter};

    use super::*;

    fn write(fields: &mut impl Fields) {
        fields.u16(element::SOURCE_TRANSPORT_PORT, 80);
        fields.variable(element::DNS_NAME, &[b'a'; 254]);
        fields.variable(element::DNS_NAME, &[b'b'; 255]);
        fields.list(element::PACKET_LENGTHS, 4, [[1, 2], [3, 4]].into_iter());
        fields.variable(element::INTERFACE_NAME, b"");
    }

    #[test]
    fn the_reader_finds_what_was_written() {
        let mut template = TemplateWriter::default();
        write(&mut template);
        let mut bytes = [0; 1024];
        let mut record = RecordWriter::new(&mut bytes);
        write(&mut record);
        let len = record.at();
        let read = RecordIter::new(&bytes[..len], &template.fields).next().unwrap().unwrap();
        assert_eq!(read.bytes.len(), len);
        let values: Vec<&[u8]> = read.values().map(|(_, value)| value).collect();
        assert_eq!(values[0], [0, 80]);
        assert_eq!(values[1], [b'a'; 254]);
        assert_eq!(values[2], [b'b'; 255]);
        let list = BasicList::parse(values[3]).unwrap();
        assert_eq!((list.semantic, list.field.id, list.field.enterprise), (4, 1013, 8057));
        assert_eq!(list.values().collect::<Vec<_>>(), [&[1u8, 2][..], &[3, 4]]);
        assert!(values[4].is_empty());
    }

    #[test]
    fn without_room_the_length_is_still_right() {
        let mut bytes = [0; 1024];
        let mut whole = RecordWriter::new(&mut bytes);
        write(&mut whole);
        let len = whole.at();
        for room in 0..len {
            let mut short = [0; 1024];
            let mut record = RecordWriter::new(&mut short[..room]);
            write(&mut record);
            assert_eq!(record.at(), len);
        }
    }
}
