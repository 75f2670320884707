//! Template and options template records (RFC 7011, section 3.4; RFC 3954, section 5.2
//! and 6.1): which fields a data record has.

use super::{MIN_DATA_SET, VARIABLE};
use crate::Error;
use crate::field::{put_u16, put_u32, u16_at, u32_at};

/// One field of a template (RFC 7011, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldSpecifier {
    /// Private enterprise number; 0: the element is IANA's.
    pub enterprise: u32,
    /// Identifier of the information element.
    pub id: u16,
    /// Length in bytes, or [`VARIABLE`].
    pub length: u16,
}

impl FieldSpecifier {
    /// Writes it at the start of `out`; how many bytes: 4, or 8 with an enterprise number.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, Error> {
        let len = if self.enterprise == 0 { 4 } else { 8 };
        let out = out.get_mut(..len).ok_or(Error::NoRoom)?;
        if self.id & ENTERPRISE_BIT != 0 {
            return Err(Error::Range);
        }
        put_u16(out, 0, self.id | if self.enterprise == 0 { 0 } else { ENTERPRISE_BIT });
        put_u16(out, 2, self.length);
        if self.enterprise != 0 {
            put_u32(out, 4, self.enterprise);
        }
        Ok(len)
    }

    /// Fewest bytes of a value: a variable one has at least its length.
    pub fn min_len(&self) -> usize {
        if self.length == VARIABLE { 1 } else { usize::from(self.length) }
    }
}

/// Whose rules template records and sets follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateFormat {
    /// RFC 7011.
    Ipfix,
    /// RFC 3954: no enterprise bit, no variable lengths, scopes counted in bytes.
    Netflow9,
}

/// One template, or options template, or withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template<'a> {
    /// Its id, which the data sets bear.
    pub id: u16,
    /// How many fields; 0 withdraws the template (RFC 7011, section 8.1).
    pub field_count: u16,
    /// How many of them, from the front, are scope; 0: no options template.
    pub scope_count: u16,
    fields: &'a [u8],
    format: TemplateFormat,
}

impl<'a> Template<'a> {
    /// Takes the template back; of all templates if the id is that of the set.
    pub fn is_withdrawal(&self) -> bool {
        self.field_count == 0
    }

    /// The fields, in order.
    pub fn fields(&self) -> FieldIter<'a> {
        FieldIter { rest: self.fields, format: self.format }
    }
}

/// Walks the fields of a [`Template`]. Scope fields of NetFlow version 9 come out with
/// their own types (1 system, 2 interface ...), which are no information elements.
#[derive(Clone, Debug)]
pub struct FieldIter<'a> {
    rest: &'a [u8],
    format: TemplateFormat,
}

impl Iterator for FieldIter<'_> {
    type Item = FieldSpecifier;

    fn next(&mut self) -> Option<FieldSpecifier> {
        let (field, rest) = split_field(self.rest, self.format)?;
        self.rest = rest;
        Some(field)
    }
}

/// Walks the records of a template set; ends after the first error.
#[derive(Clone, Debug)]
pub struct TemplateIter<'a> {
    rest: &'a [u8],
    format: TemplateFormat,
    options: bool,
}

impl<'a> TemplateIter<'a> {
    /// Of a set of templates; `body` follows the set's header.
    pub fn new(body: &'a [u8], format: TemplateFormat) -> Self {
        TemplateIter { rest: body, format, options: false }
    }

    /// Of a set of options templates.
    pub fn options(body: &'a [u8], format: TemplateFormat) -> Self {
        TemplateIter { rest: body, format, options: true }
    }

    fn parse(&self, data: &'a [u8]) -> Result<(Template<'a>, &'a [u8]), Error> {
        let (id, count) = (u16_at(data, 0), u16_at(data, 2));
        let withdrawal = self.format == TemplateFormat::Ipfix && count == 0;
        if id < MIN_DATA_SET && !withdrawal {
            return Err(Error::Range);
        }
        let mut template =
            Template { id, field_count: count, scope_count: 0, fields: &[], format: self.format };
        let mut rest = &data[HEADER_LEN..];
        if withdrawal {
            return Ok((template, rest));
        }
        if self.options {
            let (word, after) = rest.split_at_checked(2).ok_or(Error::Truncated)?;
            rest = after;
            match self.format {
                TemplateFormat::Ipfix => template.scope_count = u16_at(word, 0),
                // The two lengths are in bytes, of fields of 4 bytes each.
                TemplateFormat::Netflow9 => {
                    let (scope, option) = (count, u16_at(word, 0));
                    if scope % 4 != 0 || option % 4 != 0 {
                        return Err(Error::Length);
                    }
                    template.scope_count = scope / 4;
                    template.field_count = scope / 4 + option / 4;
                }
            }
            if template.scope_count == 0 || template.scope_count > template.field_count {
                return Err(Error::Range);
            }
        } else if count == 0 {
            return Err(Error::Range);
        }
        let start = rest;
        for _ in 0..template.field_count {
            (_, rest) = split_field(rest, self.format).ok_or(Error::Truncated)?;
        }
        template.fields = &start[..start.len() - rest.len()];
        Ok((template, rest))
    }
}

impl<'a> Iterator for TemplateIter<'a> {
    type Item = Result<Template<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.rest);
        // What is shorter than a template's header is padding; so are zeros, which no
        // template begins with.
        if rest.len() < HEADER_LEN || rest.iter().all(|octet| *octet == 0) {
            return None;
        }
        Some(self.parse(rest).map(|(template, rest)| {
            self.rest = rest;
            template
        }))
    }
}

fn split_field(data: &[u8], format: TemplateFormat) -> Option<(FieldSpecifier, &[u8])> {
    let (head, rest) = data.split_at_checked(4)?;
    let (id, length) = (u16_at(head, 0), u16_at(head, 2));
    if format == TemplateFormat::Netflow9 || id & ENTERPRISE_BIT == 0 {
        return Some((FieldSpecifier { enterprise: 0, id, length }, rest));
    }
    let (enterprise, rest) = rest.split_at_checked(4)?;
    let enterprise = u32_at(enterprise, 0);
    Some((FieldSpecifier { enterprise, id: id & !ENTERPRISE_BIT, length }, rest))
}

/// Id and field count.
pub const HEADER_LEN: usize = 4;
/// Id, field count and scope count.
pub const OPTIONS_HEADER_LEN: usize = 6;
const ENTERPRISE_BIT: u16 = 0x8000;

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn options_templates_of_both_kinds() {
        // RFC 7011, section 3.4.2.2: scope count; RFC 3954, section 6.1: lengths in bytes.
        let ipfix = [1, 1, 0, 3, 0, 1, 0, 149, 0, 4, 0, 41, 0, 8, 0, 42, 0, 8];
        let template =
            TemplateIter::options(&ipfix, TemplateFormat::Ipfix).next().unwrap().unwrap();
        assert_eq!((template.id, template.field_count, template.scope_count), (257, 3, 1));
        let v9 = [1, 1, 0, 4, 0, 8, 0, 1, 0, 4, 0, 34, 0, 4, 0, 35, 0, 1, 0, 0];
        let mut templates = TemplateIter::options(&v9, TemplateFormat::Netflow9);
        let template = templates.next().unwrap().unwrap();
        assert_eq!((template.id, template.field_count, template.scope_count), (257, 3, 1));
        assert_eq!(template.fields().last().unwrap().id, 35);
        assert_eq!(templates.next(), None, "padding");
        let no_scope = [1, 1, 0, 1, 0, 0, 0, 149, 0, 4];
        assert_eq!(
            TemplateIter::options(&no_scope, TemplateFormat::Ipfix).next(),
            Some(Err(Error::Range))
        );
    }

    #[test]
    fn withdrawals_one_and_all() {
        let bytes = [1, 0, 0, 0, 0, 2, 0, 0];
        let all: Vec<_> =
            TemplateIter::new(&bytes, TemplateFormat::Ipfix).map(Result::unwrap).collect();
        assert!(all.iter().all(Template::is_withdrawal));
        assert_eq!((all[0].id, all[1].id), (256, 2));
        assert_eq!(
            TemplateIter::new(&bytes, TemplateFormat::Netflow9).next(),
            Some(Err(Error::Range))
        );
    }

    #[test]
    fn specifiers_are_written_as_they_are_read() {
        for enterprise in [0, 8057] {
            let field = FieldSpecifier { enterprise, id: 808, length: VARIABLE };
            let mut bytes = [0; 8];
            let len = field.emit(&mut bytes).unwrap();
            assert_eq!(split_field(&bytes[..len], TemplateFormat::Ipfix), Some((field, &[][..])));
            assert_eq!(field.emit(&mut bytes[..len - 1]), Err(Error::NoRoom));
        }
        let field = FieldSpecifier { enterprise: 0, id: 0x8001, length: 1 };
        assert_eq!(field.emit(&mut [0; 8]), Err(Error::Range));
    }
}
