//! NetFlow version 9 (RFC 3954): the header. FlowSets and records are those of IPFIX, with
//! other ids of template sets, counts in bytes and no enterprise numbers:
//! [`crate::ipfix::template::TemplateFormat::Netflow9`].

use crate::Error;
use crate::field::{put_u16, put_u32, u16_at, u32_at};
use crate::ipfix::SetIter;

/// The packet header (RFC 3954, section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Records in the packet, templates included.
    pub count: u16,
    /// Since the exporter started, ms, modulo 2^32; the flows' times are relative to it.
    pub uptime_ms: u32,
    /// When the packet left, s since 1970 UTC.
    pub unix_secs: u32,
    /// Packets sent before in this domain.
    pub sequence: u32,
    /// Source id: what IPFIX calls the observation domain.
    pub source: u32,
}

impl Header {
    /// Writes it at the start of `out`.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Error> {
        let out = out.get_mut(..HEADER_LEN).ok_or(Error::NoRoom)?;
        put_u16(out, 0, VERSION);
        put_u16(out, 2, self.count);
        put_u32(out, 4, self.uptime_ms);
        put_u32(out, 8, self.unix_secs);
        put_u32(out, 12, self.sequence);
        put_u32(out, 16, self.source);
        Ok(())
    }
}

/// One packet: all of a datagram, for the header has no length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub header: Header,
    body: &'a [u8],
}

impl<'a> Packet<'a> {
    pub fn new_checked(data: &'a [u8]) -> Result<Self, Error> {
        let (head, body) = data.split_at_checked(HEADER_LEN).ok_or(Error::Truncated)?;
        if u16_at(head, 0) != VERSION {
            return Err(Error::Version);
        }
        let header = Header {
            count: u16_at(head, 2),
            uptime_ms: u32_at(head, 4),
            unix_secs: u32_at(head, 8),
            sequence: u32_at(head, 12),
            source: u32_at(head, 16),
        };
        Ok(Packet { header, body })
    }

    /// The FlowSets, in order.
    pub fn sets(&self) -> SetIter<'a> {
        SetIter::new(self.body)
    }
}

/// The version number that begins a packet.
pub const VERSION: u16 = 9;
/// Length of the header.
pub const HEADER_LEN: usize = 20;
/// Id of a FlowSet of templates.
pub const TEMPLATE_SET: u16 = 0;
/// Id of a FlowSet of options templates.
pub const OPTIONS_TEMPLATE_SET: u16 = 1;
/// Scope of an options template: the exporter as a whole.
pub const SCOPE_SYSTEM: u16 = 1;
/// Scope of an options template: an interface.
pub const SCOPE_INTERFACE: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_written_as_they_are_read() {
        let header = Header { count: 1, uptime_ms: 2, unix_secs: 3, sequence: u32::MAX, source: 5 };
        let mut bytes = [0; HEADER_LEN];
        header.emit(&mut bytes).unwrap();
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!(packet.header, header);
        assert_eq!(packet.sets().count(), 0);
        assert_eq!(Packet::new_checked(&bytes[1..]), Err(Error::Truncated));
        bytes[1] = 10;
        assert_eq!(Packet::new_checked(&bytes), Err(Error::Version));
        assert_eq!(header.emit(&mut bytes[1..]), Err(Error::NoRoom));
    }
}
