//! ICMP (RFC 792) and ICMPv6 (RFC 4443): echo, and the errors that quote a packet.

use core::net::{IpAddr, Ipv6Addr};

use crate::field::{array_at, put_u16, put_u32, u16_at, u32_at};
use crate::ipv4::PROTOCOL_UDP;
use crate::ipv6::PROTOCOL_ICMPV6;
use crate::{Error, checksum, ipv4, ipv6};

/// Which of the two: their types and checksums differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// ICMP over IPv4; the checksum covers the message alone.
    V4,
    /// ICMPv6; the checksum covers a pseudo-header of these addresses too.
    V6 { source: Ipv6Addr, destination: Ipv6Addr },
}

/// A checked view of a message.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks that the 8 octets of the header are there.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        match buffer.as_ref().len() < HEADER_LEN {
            true => Err(Error::Truncated),
            false => Ok(Packet { buffer }),
        }
    }

    /// The Type field; an echo request is 8 (ICMPv4) or 128 (ICMPv6), its reply 0 or 129.
    pub fn kind(&self) -> u8 {
        self.buffer.as_ref()[0]
    }

    pub fn code(&self) -> u8 {
        self.buffer.as_ref()[1]
    }

    pub fn checksum(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 2)
    }

    /// The four octets after the checksum: identifier and sequence number, MTU, pointer.
    pub fn rest(&self) -> u32 {
        u32_at(self.buffer.as_ref(), 4)
    }

    /// What follows the header: echo data, or the quoted packet.
    pub fn data(&self) -> &[u8] {
        &self.buffer.as_ref()[HEADER_LEN..]
    }

    /// The checksum is right.
    pub fn verify_checksum(&self, version: Version) -> bool {
        let data = self.buffer.as_ref();
        checksum::finish(pseudo(version, data.len()) + checksum::sum(data)) == 0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Computes the checksum anew.
    pub fn fill_checksum(&mut self, version: Version) {
        let data = self.buffer.as_mut();
        put_u16(data, 2, 0);
        let checksum = checksum::finish(pseudo(version, data.len()) + checksum::sum(data));
        put_u16(data, 2, checksum);
    }
}

/// A message as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr<'a> {
    EchoRequest {
        identifier: u16,
        sequence: u16,
        /// Data that comes back in the reply.
        data: &'a [u8],
    },
    EchoReply {
        identifier: u16,
        sequence: u16,
        /// Data of the request.
        data: &'a [u8],
    },
    /// Why a packet was not delivered.
    Error {
        /// Type: [`V4_DESTINATION_UNREACHABLE`] and so on.
        kind: u8,
        code: u8,
        /// The four octets after the checksum: the MTU for "packet too big".
        rest: u32,
        /// The packet, from its IP header on, as far as it was quoted.
        quoted: &'a [u8],
    },
}

impl<'a> Repr<'a> {
    /// Reads a message: [`Error::Checksum`] if that is wrong, [`Error::Type`] if it is
    /// neither echo nor an error.
    pub fn parse<T: AsRef<[u8]> + ?Sized>(
        packet: &Packet<&'a T>,
        version: Version,
    ) -> Result<Self, Error> {
        if !packet.verify_checksum(version) {
            return Err(Error::Checksum);
        }
        let data = &packet.buffer.as_ref()[HEADER_LEN..];
        let identifier = (packet.rest() >> 16) as u16;
        let sequence = packet.rest() as u16;
        let (request, reply) = echo_types(version);
        match packet.kind() {
            kind if kind == request => Ok(Repr::EchoRequest { identifier, sequence, data }),
            kind if kind == reply => Ok(Repr::EchoReply { identifier, sequence, data }),
            kind if is_error(version, kind) => {
                Ok(Repr::Error { kind, code: packet.code(), rest: packet.rest(), quoted: data })
            }
            _ => Err(Error::Type),
        }
    }

    /// Length that [`Repr::emit`] writes.
    pub fn buffer_len(&self) -> usize {
        let (Repr::EchoRequest { data, .. }
        | Repr::EchoReply { data, .. }
        | Repr::Error { quoted: data, .. }) = self;
        HEADER_LEN + data.len()
    }

    /// Writes the message with its checksum at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8], version: Version) -> Result<usize, Error> {
        let len = self.buffer_len();
        let buffer = buffer.get_mut(..len).ok_or(Error::NoRoom)?;
        let (request, reply) = echo_types(version);
        let echo =
            |identifier: u16, sequence: u16| u32::from(identifier) << 16 | u32::from(sequence);
        let (kind, code, rest, data) = match *self {
            Repr::EchoRequest { identifier, sequence, data } => {
                (request, 0, echo(identifier, sequence), data)
            }
            Repr::EchoReply { identifier, sequence, data } => {
                (reply, 0, echo(identifier, sequence), data)
            }
            Repr::Error { kind, code, rest, quoted } if is_error(version, kind) => {
                (kind, code, rest, quoted)
            }
            Repr::Error { .. } => return Err(Error::Type),
        };
        buffer[0] = kind;
        buffer[1] = code;
        put_u32(buffer, 4, rest);
        buffer[HEADER_LEN..].copy_from_slice(data);
        Packet { buffer }.fill_checksum(version);
        Ok(len)
    }
}

/// The UDP packet that an error quotes: enough to find the probe it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedUdp {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub destination_port: u16,
}

impl QuotedUdp {
    /// Reads the start of a quoted packet, which may end anywhere after the ports. An IPv4 error
    /// need quote no more than 8 octets after the header (RFC 792).
    pub fn parse(quoted: &[u8], version: Version) -> Result<Self, Error> {
        match version {
            Version::V4 => {
                if quoted.len() < ipv4::HEADER_LEN {
                    return Err(Error::Truncated);
                }
                if quoted[0] >> 4 != 4 {
                    return Err(Error::Version);
                }
                let header_len = usize::from(quoted[0] & 0x0F) * 4;
                if header_len < ipv4::HEADER_LEN {
                    return Err(Error::Length);
                }
                if u16_at(quoted, 6) & 0x1FFF != 0 {
                    return Err(Error::Fragment);
                }
                let source = array_at::<4>(quoted, 12).into();
                let destination = array_at::<4>(quoted, 16).into();
                Self::with_ports(quoted, quoted[9], header_len, source, destination)
            }
            Version::V6 { .. } => {
                if quoted.len() < ipv6::HEADER_LEN {
                    return Err(Error::Truncated);
                }
                if quoted[0] >> 4 != 6 {
                    return Err(Error::Version);
                }
                let upper = ipv6::upper_layer(quoted[6], &quoted[ipv6::HEADER_LEN..])?;
                if upper.fragment.is_some_and(|f| f.offset != 0) {
                    return Err(Error::Fragment);
                }
                let offset = ipv6::HEADER_LEN + upper.offset;
                let source = array_at::<16>(quoted, 8).into();
                let destination = array_at::<16>(quoted, 24).into();
                Self::with_ports(quoted, upper.protocol, offset, source, destination)
            }
        }
    }

    fn with_ports(
        quoted: &[u8],
        protocol: u8,
        offset: usize,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Self, Error> {
        if protocol != PROTOCOL_UDP {
            return Err(Error::Protocol);
        }
        let ports = quoted.get(offset..offset + 4).ok_or(Error::Truncated)?;
        Ok(QuotedUdp {
            source,
            destination,
            source_port: u16_at(ports, 0),
            destination_port: u16_at(ports, 2),
        })
    }
}

/// Types of echo request and reply.
const fn echo_types(version: Version) -> (u8, u8) {
    match version {
        Version::V4 => (V4_ECHO_REQUEST, V4_ECHO_REPLY),
        Version::V6 { .. } => (V6_ECHO_REQUEST, V6_ECHO_REPLY),
    }
}

/// The type is an error that quotes a packet. ICMPv6 errors have the high bit clear
/// (RFC 4443 section 2.1).
const fn is_error(version: Version, kind: u8) -> bool {
    match version {
        Version::V4 => matches!(
            kind,
            V4_DESTINATION_UNREACHABLE
                | V4_SOURCE_QUENCH
                | V4_REDIRECT
                | V4_TIME_EXCEEDED
                | V4_PARAMETER_PROBLEM
        ),
        Version::V6 { .. } => kind != 0 && kind < 128,
    }
}

fn pseudo(version: Version, len: usize) -> u32 {
    match version {
        Version::V4 => 0,
        Version::V6 { source, destination } => {
            checksum::pseudo_v6(source, destination, PROTOCOL_ICMPV6, len as u32)
        }
    }
}

/// Length of the header.
pub const HEADER_LEN: usize = 8;
pub const V4_ECHO_REPLY: u8 = 0;
/// ICMP: destination unreachable; code 4 is "fragmentation needed", MTU in the low 16 bits.
pub const V4_DESTINATION_UNREACHABLE: u8 = 3;
/// ICMP: source quench (deprecated by RFC 6633).
pub const V4_SOURCE_QUENCH: u8 = 4;
pub const V4_REDIRECT: u8 = 5;
pub const V4_ECHO_REQUEST: u8 = 8;
pub const V4_TIME_EXCEEDED: u8 = 11;
pub const V4_PARAMETER_PROBLEM: u8 = 12;
pub const V6_DESTINATION_UNREACHABLE: u8 = 1;
/// ICMPv6: packet too big.
pub const V6_PACKET_TOO_BIG: u8 = 2;
pub const V6_TIME_EXCEEDED: u8 = 3;
pub const V6_PARAMETER_PROBLEM: u8 = 4;
pub const V6_ECHO_REQUEST: u8 = 128;
pub const V6_ECHO_REPLY: u8 = 129;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::emit_udp_ip;
    use core::net::SocketAddr;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    fn v6() -> Version {
        Version::V6 {
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
        }
    }

    #[test]
    fn known_echo_request() {
        // The sum of 0800, 1234, 0001, 6162, 6300 is DE97.
        let repr = Repr::EchoRequest { identifier: 0x1234, sequence: 1, data: b"abc" };
        let mut bytes = [0; 11];
        assert_eq!(repr.emit(&mut bytes, Version::V4), Ok(11));
        assert_eq!(bytes, [8, 0, 0x21, 0x68, 0x12, 0x34, 0, 1, b'a', b'b', b'c']);
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!(Repr::parse(&packet, Version::V4), Ok(repr));
        assert_eq!(Repr::parse(&packet, v6()), Err(Error::Checksum));
    }

    #[test]
    fn types_that_are_neither_echo_nor_error() {
        let mut bytes = [13, 0, 0, 0, 0, 0, 0, 0];
        Packet::new_checked(&mut bytes).unwrap().fill_checksum(Version::V4);
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!(Repr::parse(&packet, Version::V4), Err(Error::Type));
        let wrong = Repr::Error { kind: 8, code: 0, rest: 0, quoted: &[] };
        assert_eq!(wrong.emit(&mut bytes, Version::V4), Err(Error::Type));
    }

    #[test]
    fn a_quoted_probe_is_found_again() {
        for (source, destination, version, header) in [
            ("192.0.2.1:4000", "192.0.2.2:862", Version::V4, 20),
            ("[2001:db8::1]:4000", "[2001:db8::2]:862", v6(), 40),
        ] {
            let source: SocketAddr = source.parse().unwrap();
            let destination: SocketAddr = destination.parse().unwrap();
            let mut quoted = [0; 48];
            let len = emit_udp_ip(&mut quoted, source, destination, 0, 1, 44).unwrap();
            let want = QuotedUdp {
                source: source.ip(),
                destination: destination.ip(),
                source_port: 4000,
                destination_port: 862,
            };
            for end in header + 4..=len {
                assert_eq!(QuotedUdp::parse(&quoted[..end], version), Ok(want));
            }
            for end in 0..header + 4 {
                assert_eq!(QuotedUdp::parse(&quoted[..end], version), Err(Error::Truncated));
            }
        }
        assert_eq!(QuotedUdp::parse(&[0x40; 20], Version::V4), Err(Error::Length));
        assert_eq!(QuotedUdp::parse(&[0x65; 20], Version::V4), Err(Error::Version));
        assert_eq!(QuotedUdp::parse(&[0x45; 40], v6()), Err(Error::Version));
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_emit(
            which in 0..3, is_v6: bool, a: u16, b: u16, kind in 0usize..4, data: Vec<u8>,
        ) {
            let version = if is_v6 { v6() } else { Version::V4 };
            let repr = match which {
                0 => Repr::EchoRequest { identifier: a, sequence: b, data: &data },
                1 => Repr::EchoReply { identifier: a, sequence: b, data: &data },
                _ => Repr::Error {
                    kind: if is_v6 { [1, 2, 3, 4][kind] } else { [3, 5, 11, 12][kind] },
                    code: a as u8,
                    rest: u32::from(b),
                    quoted: &data,
                },
            };
            let mut bytes = std::vec![0xEE; repr.buffer_len()];
            repr.emit(&mut bytes, version).unwrap();
            let packet = Packet::new_checked(&bytes).unwrap();
            prop_assert_eq!(Repr::parse(&packet, version), Ok(repr));
        }

        #[test]
        fn never_panics(mut bytes: Vec<u8>, is_v6: bool) {
            let version = if is_v6 { v6() } else { Version::V4 };
            let _ = QuotedUdp::parse(&bytes, version);
            if let Ok(mut packet) = Packet::new_checked(&mut bytes) {
                packet.fill_checksum(version);
            }
            if let Ok(packet) = Packet::new_checked(&bytes) {
                let _ = Repr::parse(&packet, version);
            }
            if let Some(first) = bytes.first_mut() {
                *first = if is_v6 { 0x60 } else { 0x40 | (*first & 0x0F) };
            }
            let _ = QuotedUdp::parse(&bytes, version);
        }
    }
}
