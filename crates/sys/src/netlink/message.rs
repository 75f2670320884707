//! The bytes of netlink messages: headers, attributes, addresses.
//!
//! The kernel is trusted to mean well, not to be of the same version: what is truncated or of an
//! unexpected length ends the walk or reads as absent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Mac;

/// One message of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    pub body: &'a [u8],
}

/// The messages of a datagram, up to the first that does not fit into it.
pub(super) fn messages(mut rest: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = u32_at(rest, 0)? as usize;
        let body = rest.get(HEADER..len)?;
        let message = Message {
            kind: u16_at(rest, 4)?,
            flags: u16_at(rest, 6)?,
            sequence: u32_at(rest, 8)?,
            body,
        };
        rest = rest.get(align(len)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes of a message behind its fixed part, which is `skip` bytes long;
/// nested attributes likewise with 0. Their kinds come without the flag bits.
pub(super) fn attributes(body: &[u8], skip: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(skip..).unwrap_or_default();
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(rest, 0)?);
        let value = rest.get(ATTRIBUTE..len)?;
        let kind = u16_at(rest, 2)? & ATTRIBUTE_KIND;
        rest = rest.get(align(len)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// A request under construction.
pub(super) struct Request(Vec<u8>);

impl Request {
    /// Of the given kind (RTM_...), with NLM_F_REQUEST and `flags`, and a fixed part.
    pub fn new(kind: u16, flags: i32, fixed: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(&[0; 4]); // Length: when complete.
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]); // Sequence: when sent. Sender: the kernel's choice.
        bytes.extend_from_slice(fixed);
        Request(bytes)
    }

    /// With one more attribute.
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend(attribute(kind, value));
        self
    }

    /// With an address as attribute.
    pub fn address(self, kind: u16, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => self.attribute(kind, &a.octets()),
            IpAddr::V6(a) => self.attribute(kind, &a.octets()),
        }
    }

    /// The flags of the header.
    pub fn flags(&self) -> i32 {
        u16_at(&self.0, 6).unwrap_or(0).into()
    }

    /// The message with its length and `sequence` filled in.
    pub fn finish(&mut self, sequence: u32) -> &[u8] {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.0
    }
}

/// An attribute, for a request or to be nested in another.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(align(bytes.len()), 0);
    bytes
}

/// The family of an address, as messages carry it.
pub(super) fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

/// An address, its version by its length.
pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

/// A MAC address; other link layers have other lengths.
pub(super) fn mac(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok()
}

/// Text that ends at the first zero byte.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn align(len: usize) -> usize {
    len.next_multiple_of(4)
}

const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;
/// Without NLA_F_NESTED and NLA_F_NET_BYTEORDER.
const ATTRIBUTE_KIND: u16 = 0x3fff;
