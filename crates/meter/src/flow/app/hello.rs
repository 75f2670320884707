//! ClientHello and ServerHello (RFC 8446, sections 4.1.2 and 4.1.3; RFC 5246, section
//! 7.4.1), and the handshake messages in TLS records (RFC 8446, section 5.1).
//!
//! Read here and not by a crate: the fingerprints need the raw values in their order. A hello with
//! an odd extension, or one that was cut, still gives its server name.

use std::borrow::Cow;

use super::text::{ByteReader, u16s};

/// A client's first message.
#[derive(Clone, Copy, Default)]
pub(super) struct ClientHello<'a> {
    /// legacy_version.
    pub(super) version: u16,
    /// Vectors of 16-bit integers.
    pub(super) ciphers: &'a [u8],
    pub(super) groups: &'a [u8],
    pub(super) signatures: &'a [u8],
    pub(super) versions: &'a [u8],
    pub(super) point_formats: &'a [u8],
    /// The extensions as they stand there.
    pub(super) extensions: &'a [u8],
    /// host_name (RFC 6066, section 3), if there is the extension.
    pub(super) server_name: Option<&'a [u8]>,
    /// The first protocol (RFC 7301); empty: none.
    pub(super) protocol: &'a [u8],
    /// The message was read to its end.
    pub(super) whole: bool,
}

impl<'a> ClientHello<'a> {
    /// Reads the body of the message; `None` if it ends before its cipher suites do.
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut reader = ByteReader(body);
        let version = reader.u16()?;
        reader.take(32)?;
        reader.vector8().filter(|session| session.len() <= 32)?;
        let ciphers = reader.vector16().filter(|ciphers| ciphers.len() % 2 == 0)?;
        let mut hello = ClientHello { version, ciphers, ..ClientHello::default() };
        if reader.vector8().is_some() {
            hello.whole = hello.read_extensions(reader).is_some();
        }
        Some(hello)
    }

    fn read_extensions(&mut self, mut reader: ByteReader<'a>) -> Option<()> {
        if reader.0.is_empty() {
            // Before RFC 3546 there were none.
            return Some(());
        }
        let len = usize::from(reader.u16()?);
        self.extensions = &reader.0[..len.min(reader.0.len())];
        for (kind, data) in extensions(self.extensions) {
            let mut data = ByteReader(data);
            match kind {
                SERVER_NAME => self.server_name = Some(host_name(data).unwrap_or(&[])),
                SUPPORTED_GROUPS => self.groups = data.vector16().unwrap_or(&[]),
                EC_POINT_FORMATS => self.point_formats = data.vector8().unwrap_or(&[]),
                SIGNATURE_ALGORITHMS => self.signatures = data.vector16().unwrap_or(&[]),
                PROTOCOLS => self.protocol = first_protocol(data).unwrap_or(&[]),
                SUPPORTED_VERSIONS => self.versions = data.vector8().unwrap_or(&[]),
                _ => {}
            }
        }
        let read: usize = extensions(self.extensions).map(|(_, data)| 4 + data.len()).sum();
        (read == len && reader.0.len() == len).then_some(())
    }

    /// The highest version on offer.
    pub(super) fn highest_version(&self) -> u16 {
        let highest = u16s(self.versions).filter(|version| !is_grease(*version)).max();
        highest.unwrap_or(self.version)
    }
}

/// The version that a ServerHello, or a HelloRetryRequest, chooses. `None`: it ends too
/// early to know.
pub(super) fn server_version(body: &[u8]) -> Option<u16> {
    let mut reader = ByteReader(body);
    let version = reader.u16()?;
    reader.take(32)?;
    reader.vector8()?;
    reader.take(3)?;
    let list = reader.vector16().unwrap_or(&[]);
    let chosen = extensions(list).find(|(kind, _)| *kind == SUPPORTED_VERSIONS);
    Some(chosen.and_then(|(_, data)| ByteReader(data).u16()).unwrap_or(version))
}

/// Types and contents, up to the first that is cut off.
pub(super) fn extensions(list: &[u8]) -> impl Iterator<Item = (u16, &[u8])> + '_ {
    let mut reader = ByteReader(list);
    std::iter::from_fn(move || Some((reader.u16()?, reader.vector16()?)))
}

fn host_name(mut data: ByteReader<'_>) -> Option<&[u8]> {
    let mut names = ByteReader(data.vector16()?);
    loop {
        let kind = names.u8()?;
        let name = names.vector16()?;
        if kind == 0 {
            return Some(name);
        }
    }
}

fn first_protocol(mut data: ByteReader<'_>) -> Option<&[u8]> {
    ByteReader(data.vector16()?).vector8()
}

/// A value that stands for nothing (RFC 8701).
pub(super) fn is_grease(value: u16) -> bool {
    value & 0x0F0F == 0x0A0A && value >> 8 == value & 0xFF
}

/// The first handshake message of a direction.
pub(super) enum HandshakeMessage<'a> {
    /// More octets are needed: what there is of type, length and body.
    Partial(Cow<'a, [u8]>),
    /// This is no handshake.
    None,
    /// Its type and body.
    Whole(u8, Cow<'a, [u8]>),
}

/// Finds the first handshake message in TLS records from their beginning.
pub(super) fn first_message(data: &[u8]) -> HandshakeMessage<'_> {
    let mut reader = ByteReader(data);
    let mut gathered = Cow::Borrowed(&[][..]);
    loop {
        let (Some(kind), Some(version), Some(len)) = (reader.u8(), reader.u16(), reader.u16())
        else {
            return HandshakeMessage::Partial(gathered);
        };
        // RFC 8446, section 5.1: no fragment is empty, and none longer than 2^14 octets.
        if kind != HANDSHAKE || version >> 8 != 3 || !(1..=1 << 14).contains(&len) {
            return HandshakeMessage::None;
        }
        let len = usize::from(len).min(reader.0.len());
        let fragment = reader.take(len).unwrap_or(&[]);
        match gathered.is_empty() {
            true => gathered = Cow::Borrowed(fragment),
            false => gathered.to_mut().extend_from_slice(fragment),
        }
        if let Some(end) = message_end(&gathered) {
            let kind = gathered[0];
            let body = match gathered {
                Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[4..end]),
                Cow::Owned(bytes) => Cow::Owned(bytes[4..end].to_vec()),
            };
            return HandshakeMessage::Whole(kind, body);
        }
    }
}

/// Where the handshake message that begins `data` ends, if it does.
pub(super) fn message_end(data: &[u8]) -> Option<usize> {
    let mut reader = ByteReader(data.get(1..)?);
    let end = 4 + reader.u24()?;
    (data.len() >= end).then_some(end)
}

/// Handshake types (RFC 8446, section 4).
pub(super) const CLIENT_HELLO: u8 = 1;
pub(super) const SERVER_HELLO: u8 = 2;
/// Extensions (RFC 8446, section 4.2; RFC 8422, section 5.1).
pub(super) const SERVER_NAME: u16 = 0;
pub(super) const PROTOCOLS: u16 = 16;
const SUPPORTED_GROUPS: u16 = 10;
const EC_POINT_FORMATS: u16 = 11;
const SIGNATURE_ALGORITHMS: u16 = 13;
const SUPPORTED_VERSIONS: u16 = 43;
const HANDSHAKE: u8 = 22;
