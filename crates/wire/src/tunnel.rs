//! Headers between two IP headers, or between Ethernet and IP. There are PPPoE sessions (RFC 2516),
//! GRE (RFC 2784, RFC 2890), VXLAN (RFC 7348), GENEVE (RFC 8926), GTP-U (3GPP TS 29.281).
//!
//! Each value knows where what it carries begins: [`Pppoe::buffer_len`] and so on.

use crate::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use crate::field::{put_u16, put_u32, u16_at, u32_at};
use crate::ipv4::PROTOCOL_UDP;
use crate::{Error, udp};

/// PPPoE session header with the protocol field of PPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pppoe {
    pub session: u16,
    /// Length of what follows the length field: the protocol's 2 octets are in it.
    pub length: u16,
    /// PPP protocol: [`PPP_IPV4`], [`PPP_IPV6`], or another.
    pub protocol: u16,
}

impl Pppoe {
    /// Reads the header at the start of `data`. [`Error::Version`] for another version or
    /// type, [`Error::Type`] for a code other than that of a session.
    pub fn parse(data: &[u8]) -> Result<Self, Error> {
        let bytes = data.first_chunk::<PPPOE_LEN>().ok_or(Error::Truncated)?;
        if bytes[0] != PPPOE_VERSION {
            return Err(Error::Version);
        }
        if bytes[1] != 0 {
            return Err(Error::Type);
        }
        let (session, length, protocol) = (u16_at(bytes, 2), u16_at(bytes, 4), u16_at(bytes, 6));
        Ok(Pppoe { session, length, protocol })
    }

    /// Length that [`Pppoe::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        PPPOE_LEN
    }

    /// Writes the header at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let buffer = buffer.get_mut(..PPPOE_LEN).ok_or(Error::NoRoom)?;
        buffer[0] = PPPOE_VERSION;
        buffer[1] = 0;
        put_u16(buffer, 2, self.session);
        put_u16(buffer, 4, self.length);
        put_u16(buffer, 6, self.protocol);
        Ok(PPPOE_LEN)
    }
}

/// GRE header of version 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gre {
    /// EtherType of what it carries; [`ETHERTYPE_BRIDGED`] for an Ethernet frame.
    pub protocol: u16,
    /// Checksum field, if there is one; nothing here verifies it.
    pub checksum: Option<u16>,
    pub key: Option<u32>,
    pub sequence: Option<u32>,
}

impl Gre {
    /// Reads the header at the start of `data`. [`Error::Version`] for another version
    /// (1 is PPTP's), [`Error::Type`] for the routing of RFC 1701, which nobody may use.
    pub fn parse(data: &[u8]) -> Result<Self, Error> {
        let bytes = data.first_chunk::<4>().ok_or(Error::Truncated)?;
        let flags = u16_at(bytes, 0);
        if flags & 7 != 0 {
            return Err(Error::Version);
        }
        if flags & GRE_ROUTING != 0 {
            return Err(Error::Type);
        }
        let mut at = 4;
        let mut field = |flag| {
            if flags & flag == 0 {
                return Ok(None);
            }
            at += 4;
            data.get(at - 4..at).map(|bytes| Some(u32_at(bytes, 0))).ok_or(Error::Truncated)
        };
        Ok(Gre {
            protocol: u16_at(bytes, 2),
            // The other half of the word is reserved.
            checksum: field(GRE_CHECKSUM)?.map(|word| (word >> 16) as u16),
            key: field(GRE_KEY)?,
            sequence: field(GRE_SEQUENCE)?,
        })
    }

    /// Length that [`Gre::emit`] writes: 4, 8, 12 or 16.
    pub const fn buffer_len(&self) -> usize {
        let fields = self.checksum.is_some() as usize
            + self.key.is_some() as usize
            + self.sequence.is_some() as usize;
        4 + 4 * fields
    }

    /// Writes the header at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = self.buffer_len();
        let buffer = buffer.get_mut(..len).ok_or(Error::NoRoom)?;
        let checksum = self.checksum.map(|checksum| u32::from(checksum) << 16);
        let mut flags = 0;
        let mut at = 4;
        for (flag, field) in
            [(GRE_CHECKSUM, checksum), (GRE_KEY, self.key), (GRE_SEQUENCE, self.sequence)]
        {
            if let Some(word) = field {
                flags |= flag;
                put_u32(buffer, at, word);
                at += 4;
            }
        }
        put_u16(buffer, 0, flags);
        put_u16(buffer, 2, self.protocol);
        Ok(len)
    }
}

/// VXLAN header; an Ethernet frame follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vxlan {
    /// VXLAN network identifier, 0..=0xFF_FFFF.
    pub vni: u32,
}

impl Vxlan {
    /// Reads the header at the start of `data`. [`Error::Type`] without the flag that a
    /// network identifier is there.
    pub fn parse(data: &[u8]) -> Result<Self, Error> {
        let bytes = data.first_chunk::<VXLAN_LEN>().ok_or(Error::Truncated)?;
        match bytes[0] & VXLAN_VNI {
            0 => Err(Error::Type),
            _ => Ok(Vxlan { vni: u32_at(bytes, 4) >> 8 }),
        }
    }

    /// Length that [`Vxlan::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        VXLAN_LEN
    }

    /// Writes the header at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        if self.vni > 0xFF_FFFF {
            return Err(Error::Range);
        }
        let buffer = buffer.get_mut(..VXLAN_LEN).ok_or(Error::NoRoom)?;
        put_u32(buffer, 0, u32::from(VXLAN_VNI) << 24);
        put_u32(buffer, 4, self.vni << 8);
        Ok(VXLAN_LEN)
    }
}

/// GENEVE header (RFC 8926, section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geneve<'a> {
    /// A control packet: what follows the header is for the tunnel's endpoints.
    pub control: bool,
    /// Some of the options must be understood.
    pub critical: bool,
    /// EtherType of what it carries; [`ETHERTYPE_BRIDGED`] for an Ethernet frame.
    pub protocol: u16,
    /// Virtual network identifier, 0..=0xFF_FFFF.
    pub vni: u32,
    /// The options as they lie there: 0..=252 octets, a multiple of 4.
    pub options: &'a [u8],
}

impl<'a> Geneve<'a> {
    /// Reads the header at the start of `data`, with its options. [`Error::Version`] for
    /// another version than 0.
    pub fn parse(data: &'a [u8]) -> Result<Self, Error> {
        let bytes = data.first_chunk::<GENEVE_LEN>().ok_or(Error::Truncated)?;
        if bytes[0] & 0xC0 != 0 {
            return Err(Error::Version);
        }
        let end = GENEVE_LEN + usize::from(bytes[0]) * 4;
        Ok(Geneve {
            control: bytes[1] & GENEVE_CONTROL != 0,
            critical: bytes[1] & GENEVE_CRITICAL != 0,
            protocol: u16_at(bytes, 2),
            vni: u32_at(bytes, 4) >> 8,
            options: data.get(GENEVE_LEN..end).ok_or(Error::Truncated)?,
        })
    }

    /// Length that [`Geneve::emit`] writes, options included.
    pub const fn buffer_len(&self) -> usize {
        GENEVE_LEN + self.options.len()
    }

    /// Writes the header at the start of `buffer`; returns its length. [`Error::Range`]
    /// where identifier or options do not fit.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let (words, odd) = (self.options.len() / 4, self.options.len() % 4);
        if self.vni > 0xFF_FFFF || odd != 0 || words > GENEVE_MAX_WORDS {
            return Err(Error::Range);
        }
        let len = self.buffer_len();
        let buffer = buffer.get_mut(..len).ok_or(Error::NoRoom)?;
        buffer[0] = words as u8;
        buffer[1] = if self.control { GENEVE_CONTROL } else { 0 }
            | if self.critical { GENEVE_CRITICAL } else { 0 };
        put_u16(buffer, 2, self.protocol);
        put_u32(buffer, 4, self.vni << 8);
        buffer[GENEVE_LEN..].copy_from_slice(self.options);
        Ok(len)
    }
}

/// GTP-U header of version 1 (TS 29.281, section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gtpu<'a> {
    /// Message type; [`GTPU_PACKET`] carries a user's packet.
    pub message: u8,
    /// Length of what follows the first 8 octets.
    pub length: u16,
    /// Tunnel endpoint identifier: the receiver's name for the tunnel; 0 in some messages of control.
    pub teid: u32,
    pub sequence: Option<u16>,
    /// N-PDU number (PN flag): counts packets over a handover.
    pub n_pdu: Option<u8>,
    /// Type of the first extension header, and the octets of all of them; type 0 and none
    /// where the extension flag is set in vain.
    pub extensions: Option<(u8, &'a [u8])>,
}

impl<'a> Gtpu<'a> {
    /// Reads the header at the start of `data`, with its extension headers: at most
    /// [`GTPU_MAX_EXTENSIONS`] ([`Error::ExtensionDepth`]). [`Error::Version`] for another
    /// version, or for GTP'.
    pub fn parse(data: &'a [u8]) -> Result<Self, Error> {
        let bytes = data.first_chunk::<GTPU_LEN>().ok_or(Error::Truncated)?;
        let flags = bytes[0];
        if flags & 0xF0 != GTPU_VERSION {
            return Err(Error::Version);
        }
        let (message, length, teid) = (bytes[1], u16_at(bytes, 2), u32_at(bytes, 4));
        let mut header =
            Gtpu { message, length, teid, sequence: None, n_pdu: None, extensions: None };
        if flags & GTPU_OPTIONAL == 0 {
            return Ok(header);
        }
        // One flag is enough for all three fields to be there.
        let (word, rest) = data[GTPU_LEN..].split_first_chunk::<4>().ok_or(Error::Truncated)?;
        header.sequence = (flags & GTPU_SEQUENCE != 0).then(|| u16_at(word, 0));
        header.n_pdu = (flags & GTPU_N_PDU != 0).then_some(word[2]);
        if flags & GTPU_EXTENSION != 0 {
            header.extensions = Some((word[3], extensions(word[3], rest)?));
        }
        Ok(header)
    }

    /// Length that [`Gtpu::emit`] writes, extension headers included.
    pub fn buffer_len(&self) -> usize {
        let optional = self.sequence.is_some() || self.n_pdu.is_some() || self.extensions.is_some();
        GTPU_LEN + 4 * usize::from(optional) + self.extensions.map_or(0, |(_, bytes)| bytes.len())
    }

    /// Writes the header at the start of `buffer`; returns its length. [`Error::Range`]
    /// where `extensions` are not a whole chain.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let (first, chain) = self.extensions.unwrap_or((0, &[]));
        if extensions(first, chain).map(<[u8]>::len) != Ok(chain.len()) {
            return Err(Error::Range);
        }
        let len = self.buffer_len();
        let buffer = buffer.get_mut(..len).ok_or(Error::NoRoom)?;
        buffer[0] = GTPU_VERSION;
        for (present, flag) in [
            (self.sequence.is_some(), GTPU_SEQUENCE),
            (self.n_pdu.is_some(), GTPU_N_PDU),
            (self.extensions.is_some(), GTPU_EXTENSION),
        ] {
            buffer[0] |= if present { flag } else { 0 };
        }
        buffer[1] = self.message;
        put_u16(buffer, 2, self.length);
        put_u32(buffer, 4, self.teid);
        if let Some((word, rest)) = buffer[GTPU_LEN..].split_first_chunk_mut::<4>() {
            put_u16(word, 0, self.sequence.unwrap_or(0));
            word[2] = self.n_pdu.unwrap_or(0);
            word[3] = first;
            rest.copy_from_slice(chain);
        }
        Ok(len)
    }
}

/// The chain of extension headers at the start of `data`, the first of type `kind`.
fn extensions(mut kind: u8, data: &[u8]) -> Result<&[u8], Error> {
    let mut end = 0;
    for _ in 0..GTPU_MAX_EXTENSIONS {
        if kind == 0 {
            return Ok(&data[..end]);
        }
        // TS 29.281, section 5.2.1: length in units of 4 octets, content, next type.
        let length = usize::from(*data.get(end).ok_or(Error::Truncated)?) * 4;
        if length == 0 {
            return Err(Error::Length);
        }
        end += length;
        kind = *data.get(end - 1).ok_or(Error::Truncated)?;
    }
    if kind == 0 { Ok(&data[..end]) } else { Err(Error::ExtensionDepth) }
}

/// The header of a tunnel between two IP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tunnel<'a> {
    /// None: IP in IP (RFC 2003, RFC 2473, RFC 4213), with the EtherType of the inner one.
    Ip(u16),
    Gre(Gre),
    Vxlan(Vxlan),
    /// GENEVE with a packet.
    Geneve(Geneve<'a>),
    /// GTP-U with a user's packet.
    Gtpu(Gtpu<'a>),
}

impl<'a> Tunnel<'a> {
    /// The header in the payload of an IP packet of this protocol, and where in the payload it
    /// ends; `None` for what is no tunnel. A UDP port is no proof: what does not begin with the
    /// header is none either.
    #[inline]
    pub fn parse(protocol: u8, payload: &'a [u8]) -> Result<Option<(Self, usize)>, Error> {
        match protocol {
            PROTOCOL_IPIP => Ok(Some((Tunnel::Ip(ETHERTYPE_IPV4), 0))),
            PROTOCOL_IPV6 => Ok(Some((Tunnel::Ip(ETHERTYPE_IPV6), 0))),
            PROTOCOL_GRE => match Gre::parse(payload) {
                Ok(gre) => Ok(Some((Tunnel::Gre(gre), gre.buffer_len()))),
                Err(Error::Truncated) => Err(Error::Truncated),
                Err(_) => Ok(None),
            },
            PROTOCOL_UDP => Ok(Self::over_udp(payload)),
            _ => Ok(None),
        }
    }

    #[inline]
    fn over_udp(datagram: &'a [u8]) -> Option<(Self, usize)> {
        let (header, data) = datagram.split_first_chunk::<{ udp::HEADER_LEN }>()?;
        let (tunnel, len) = match u16_at(header, 2) {
            VXLAN_PORT => (Tunnel::Vxlan(Vxlan::parse(data).ok()?), VXLAN_LEN),
            GENEVE_PORT => {
                let geneve = Geneve::parse(data).ok().filter(|geneve| !geneve.control)?;
                (Tunnel::Geneve(geneve), geneve.buffer_len())
            }
            GTPU_PORT => {
                let gtpu = Gtpu::parse(data).ok().filter(|gtpu| gtpu.message == GTPU_PACKET)?;
                (Tunnel::Gtpu(gtpu), gtpu.buffer_len())
            }
            _ => return None,
        };
        Some((tunnel, udp::HEADER_LEN + len))
    }

    /// Whether a UDP datagram to this port may be one.
    #[inline(always)]
    pub(crate) const fn may_be_at(port: u16) -> bool {
        matches!(port, VXLAN_PORT | GENEVE_PORT | GTPU_PORT)
    }

    /// What the packet is called in which it is: GRE's key, the virtual network's identifier,
    /// the tunnel endpoint's; 0 where there is none.
    pub fn id(&self) -> u32 {
        match self {
            Tunnel::Ip(_) => 0,
            Tunnel::Gre(gre) => gre.key.unwrap_or(0),
            Tunnel::Vxlan(vxlan) => vxlan.vni,
            Tunnel::Geneve(geneve) => geneve.vni,
            Tunnel::Gtpu(gtpu) => gtpu.teid,
        }
    }

    /// EtherType and offset of what follows this header, which ends at `at`: in an Ethernet
    /// frame of what is behind its header.
    #[inline]
    pub(crate) fn carried(&self, payload: &[u8], at: usize) -> Result<(u16, usize), Error> {
        let protocol = match self {
            Tunnel::Ip(ethertype) => *ethertype,
            Tunnel::Gre(gre) => gre.protocol,
            Tunnel::Vxlan(_) => ETHERTYPE_BRIDGED,
            Tunnel::Geneve(geneve) => geneve.protocol,
            Tunnel::Gtpu(_) => ip_ethertype(payload.get(at..).unwrap_or(&[]))?,
        };
        if protocol != ETHERTYPE_BRIDGED {
            return Ok((protocol, at));
        }
        let end = at + ethernet::HEADER_LEN;
        let header = payload.get(at..end).ok_or(Error::Truncated)?;
        Ok((u16_at(header, ethernet::HEADER_LEN - 2), end))
    }
}

/// The EtherType of a packet that begins with its IP version, as nothing else says it.
#[inline]
pub(crate) fn ip_ethertype(packet: &[u8]) -> Result<u16, Error> {
    match packet.first().ok_or(Error::Truncated)? >> 4 {
        4 => Ok(ETHERTYPE_IPV4),
        6 => Ok(ETHERTYPE_IPV6),
        _ => Err(Error::EtherType),
    }
}

/// EtherType of a PPPoE session.
pub const ETHERTYPE_PPPOE: u16 = 0x8864;
/// EtherType, in GRE, of an Ethernet frame.
pub const ETHERTYPE_BRIDGED: u16 = 0x6558;
/// PPP protocol of IPv4.
pub const PPP_IPV4: u16 = 0x0021;
/// PPP protocol of IPv6.
pub const PPP_IPV6: u16 = 0x0057;
/// Protocol number of IPv4 in IP (RFC 2003).
pub const PROTOCOL_IPIP: u8 = 4;
/// Protocol number of IPv6 in IP (RFC 2473).
pub const PROTOCOL_IPV6: u8 = 41;
/// Protocol number of GRE.
pub const PROTOCOL_GRE: u8 = 47;
/// UDP destination port of VXLAN.
pub const VXLAN_PORT: u16 = 4789;
/// UDP destination port of GENEVE.
pub const GENEVE_PORT: u16 = 6081;
/// UDP destination port of GTP-U.
pub const GTPU_PORT: u16 = 2152;
/// GTP-U message: G-PDU, a user's packet.
pub const GTPU_PACKET: u8 = 255;
/// Most extension headers of GTP-U that are followed.
pub const GTPU_MAX_EXTENSIONS: usize = 4;

const PPPOE_LEN: usize = 8;
/// Version 1, type 1.
const PPPOE_VERSION: u8 = 0x11;
const GRE_CHECKSUM: u16 = 0x8000;
const GRE_ROUTING: u16 = 0x4000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQUENCE: u16 = 0x1000;
const VXLAN_LEN: usize = 8;
const VXLAN_VNI: u8 = 0x08;
const GENEVE_LEN: usize = 8;
const GENEVE_CONTROL: u8 = 0x80;
const GENEVE_CRITICAL: u8 = 0x40;
const GENEVE_MAX_WORDS: usize = 63;
const GTPU_LEN: usize = 8;
/// Version 1, GTP and not GTP'; the reserved bit is 0.
const GTPU_VERSION: u8 = 0x30;
const GTPU_EXTENSION: u8 = 4;
const GTPU_SEQUENCE: u8 = 2;
const GTPU_N_PDU: u8 = 1;
const GTPU_OPTIONAL: u8 = GTPU_EXTENSION | GTPU_SEQUENCE | GTPU_N_PDU;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    /// Writes the header, compares, and refuses a buffer that is one octet short.
    macro_rules! check {
        ($kind:ident, $header:expr, $bytes:expr) => {
            let (header, bytes): (_, &[u8]) = ($header, &$bytes);
            let mut again = std::vec![0xEE; bytes.len()];
            assert_eq!(header.emit(&mut again), Ok(bytes.len()));
            assert_eq!(again, bytes);
            assert_eq!(header.buffer_len(), bytes.len());
            assert_eq!(header.emit(&mut again[1..]), Err(Error::NoRoom));
            assert_eq!($kind::parse(bytes), Ok(header));
            for len in 0..bytes.len() {
                assert_eq!($kind::parse(&bytes[..len]), Err(Error::Truncated), "{len}");
            }
        };
    }

    #[test]
    fn known_pppoe() {
        let header = Pppoe { session: 0x1234, length: 22, protocol: PPP_IPV4 };
        check!(Pppoe, header, [0x11, 0, 0x12, 0x34, 0, 22, 0, 0x21]);
        assert_eq!(Pppoe::parse(&[0x12, 0, 0, 0, 0, 0, 0, 0]), Err(Error::Version));
        assert_eq!(Pppoe::parse(&[0x11, 9, 0, 0, 0, 0, 0, 0]), Err(Error::Type));
    }

    #[test]
    fn known_gre() {
        let plain = Gre { protocol: 0x86DD, checksum: None, key: None, sequence: None };
        check!(Gre, plain, [0, 0, 0x86, 0xDD]);
        let key = Gre { key: Some(0x0102_0304), ..plain };
        check!(Gre, key, [0x20, 0, 0x86, 0xDD, 1, 2, 3, 4]);
        let all = Gre { checksum: Some(0xABCD), sequence: Some(5), ..key };
        let bytes = [0xB0, 0, 0x86, 0xDD, 0xAB, 0xCD, 0, 0, 1, 2, 3, 4, 0, 0, 0, 5];
        check!(Gre, all, bytes);
        assert_eq!(Gre::parse(&[0x30, 1, 0x88, 0x0B]), Err(Error::Version));
        assert_eq!(Gre::parse(&[0x40, 0, 8, 0]), Err(Error::Type));
    }

    #[test]
    fn known_vxlan() {
        check!(Vxlan, Vxlan { vni: 0x12_3456 }, [8, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
        assert_eq!(Vxlan::parse(&[0; 8]), Err(Error::Type));
        assert_eq!(Vxlan { vni: 1 << 24 }.emit(&mut [0; 8]), Err(Error::Range));
    }

    #[test]
    fn known_geneve() {
        let plain = Geneve {
            control: false,
            critical: false,
            protocol: ETHERTYPE_BRIDGED,
            vni: 0x12_3456,
            options: &[],
        };
        check!(Geneve, plain, [0, 0, 0x65, 0x58, 0x12, 0x34, 0x56, 0]);
        let options = [1, 2, 0x80, 1, 9, 9, 9, 9];
        let all = Geneve { control: true, critical: true, options: &options, ..plain };
        let mut bytes = std::vec![2, 0xC0, 0x65, 0x58, 0x12, 0x34, 0x56, 0];
        bytes.extend(options);
        check!(Geneve, all, bytes);
        let datagram = [&[0, 0][..], &GENEVE_PORT.to_be_bytes(), &[0; 4], &bytes].concat();
        assert_eq!(Tunnel::parse(PROTOCOL_UDP, &datagram), Ok(None));
        assert_eq!(Geneve::parse(&[0x40; 300]), Err(Error::Version));
        for wrong in [
            Geneve { vni: 1 << 24, ..plain },
            Geneve { options: &[0; 3], ..plain },
            Geneve { options: &[0; 256], ..plain },
        ] {
            assert_eq!(wrong.emit(&mut [0; 300]), Err(Error::Range));
        }
    }

    #[test]
    fn known_gtpu() {
        let plain = Gtpu {
            message: GTPU_PACKET,
            length: 20,
            teid: 0x0102_0304,
            sequence: None,
            n_pdu: None,
            extensions: None,
        };
        check!(Gtpu, plain, [0x30, 255, 0, 20, 1, 2, 3, 4]);
        let sequence = Gtpu { sequence: Some(9), ..plain };
        check!(Gtpu, sequence, [0x32, 255, 0, 20, 1, 2, 3, 4, 0, 9, 0, 0]);
        let n_pdu = Gtpu { n_pdu: Some(7), ..plain };
        check!(Gtpu, n_pdu, [0x31, 255, 0, 20, 1, 2, 3, 4, 0, 0, 7, 0]);
        // A PDU session container (0x85), then a UDP port (0x40).
        let chain = [1, 0x10, 9, 0x40, 1, 0x12, 0x34, 0];
        let extended = Gtpu { extensions: Some((0x85, &chain)), ..plain };
        let mut bytes = std::vec![0x34, 255, 0, 20, 1, 2, 3, 4, 0, 0, 0, 0x85];
        bytes.extend(chain);
        check!(Gtpu, extended, bytes);
        let in_vain = Gtpu { extensions: Some((0, &[])), ..plain };
        check!(Gtpu, in_vain, [0x34, 255, 0, 20, 1, 2, 3, 4, 0, 0, 0, 0]);
        for extensions in [(0x85, &chain[..4]), (0, &chain[..]), (0x85, &[0; 4])] {
            let wrong = Gtpu { extensions: Some(extensions), ..plain };
            assert_eq!(wrong.emit(&mut [0; 40]), Err(Error::Range));
        }
        bytes[12] = 0;
        assert_eq!(Gtpu::parse(&bytes), Err(Error::Length));
        // GTP', and version 2.
        for first in [0x20, 0x48] {
            bytes[0] = first;
            assert_eq!(Gtpu::parse(&bytes), Err(Error::Version));
        }
    }

    #[test]
    fn four_extensions_are_followed() {
        for (count, good) in [(4, true), (5, false)] {
            let mut bytes = std::vec![0x34, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x85];
            for i in 1..=count {
                bytes.extend([1, 0, 0, if i == count { 0 } else { 0x85 }]);
            }
            let found = Gtpu::parse(&bytes).map(|header| header.buffer_len());
            assert_eq!(found, if good { Ok(28) } else { Err(Error::ExtensionDepth) });
        }
    }

    proptest! {
        #[test]
        fn emit_is_the_inverse_of_parse(mut bytes: Vec<u8>, first in 0u8..8, chain in 0u8..3) {
            // Make what random octets seldom are: a header with its optional fields.
            if let Some(start) = bytes.first_chunk_mut::<16>() {
                start[0] = GTPU_VERSION | first;
                start[11] = chain;
                start[12..16].copy_from_slice(&[1, 0, 0, 0]);
            }
            if let Ok(header) = Gtpu::parse(&bytes) {
                let mut again = std::vec![0; header.buffer_len()];
                header.emit(&mut again).unwrap();
                prop_assert_eq!(Gtpu::parse(&again), Ok(header));
            }
            if let Ok(header) = Geneve::parse(&bytes) {
                let mut again = std::vec![0; header.buffer_len()];
                header.emit(&mut again).unwrap();
                prop_assert_eq!(Geneve::parse(&again), Ok(header));
            }
            if let Ok(header) = Gre::parse(&bytes) {
                let mut again = std::vec![0; header.buffer_len()];
                header.emit(&mut again).unwrap();
                prop_assert_eq!(Gre::parse(&again), Ok(header));
            }
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let _ = Pppoe::parse(&bytes);
            let _ = Gre::parse(&bytes);
            let _ = Vxlan::parse(&bytes);
            let _ = Gtpu::parse(&bytes);
            for protocol in [PROTOCOL_IPIP, PROTOCOL_GRE] {
                if let Ok(Some((tunnel, at))) = Tunnel::parse(protocol, &bytes) {
                    let _ = tunnel.carried(&bytes, at);
                }
            }
            for port in [VXLAN_PORT, GTPU_PORT, GENEVE_PORT] {
                let datagram = [&[0, 0][..], &port.to_be_bytes(), &[0; 4], &bytes].concat();
                if let Ok(Some((tunnel, at))) = Tunnel::parse(PROTOCOL_UDP, &datagram) {
                    let _ = tunnel.carried(&datagram, at);
                }
            }
        }
    }
}
