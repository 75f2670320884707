//! IPv4 headers, options included (RFC 791; DSCP and ECN as in RFC 2474 and RFC 3168).

use core::net::Ipv4Addr;

use crate::field::{array_at, put_u16, u16_at};
use crate::{Error, checksum, ipv6};

/// A checked view of a packet. Octets after the packet's total length are padding of
/// the layer below and belong to no view.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks version, header length and total length; not the header checksum.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        lengths(buffer.as_ref())?;
        Ok(Packet { buffer })
    }

    /// Header with options, 20..=60.
    pub fn header_len(&self) -> usize {
        usize::from(self.buffer.as_ref()[0] & 0x0F) * 4
    }

    /// Header and payload, in octets.
    pub fn total_len(&self) -> usize {
        usize::from(u16_at(self.buffer.as_ref(), 2))
    }

    /// The octet that holds DSCP and ECN.
    pub fn tos(&self) -> u8 {
        self.buffer.as_ref()[1]
    }

    /// Differentiated services code point, 0..=63.
    pub fn dscp(&self) -> u8 {
        self.tos() >> 2
    }

    /// Explicit congestion notification, 0..=3.
    pub fn ecn(&self) -> u8 {
        self.tos() & 3
    }

    pub fn identification(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 4)
    }

    pub fn dont_fragment(&self) -> bool {
        self.buffer.as_ref()[6] & 0x40 != 0
    }

    pub fn more_fragments(&self) -> bool {
        self.buffer.as_ref()[6] & 0x20 != 0
    }

    /// Fragment offset in octets, a multiple of 8.
    pub fn fragment_offset(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 6) << 3
    }

    /// Part of a larger packet.
    pub fn is_fragment(&self) -> bool {
        self.more_fragments() || self.fragment_offset() != 0
    }

    pub fn ttl(&self) -> u8 {
        self.buffer.as_ref()[8]
    }

    /// Protocol of the payload.
    pub fn protocol(&self) -> u8 {
        self.buffer.as_ref()[9]
    }

    pub fn checksum(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 10)
    }

    /// The header checksum is right.
    pub fn verify_checksum(&self) -> bool {
        checksum::finish(checksum::sum(&self.buffer.as_ref()[..self.header_len()])) == 0
    }

    pub fn source(&self) -> Ipv4Addr {
        array_at::<4>(self.buffer.as_ref(), 12).into()
    }

    pub fn destination(&self) -> Ipv4Addr {
        array_at::<4>(self.buffer.as_ref(), 16).into()
    }

    pub fn options(&self) -> OptionIter<'_> {
        OptionIter { rest: &self.buffer.as_ref()[HEADER_LEN..self.header_len()] }
    }

    /// What follows the header, without padding of the layer below.
    pub fn payload(&self) -> &[u8] {
        &self.buffer.as_ref()[self.header_len()..self.total_len()]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets DSCP and ECN; the checksum is not touched.
    pub fn set_tos(&mut self, tos: u8) {
        self.buffer.as_mut()[1] = tos;
    }

    /// Sets the time to live; the checksum is not touched.
    pub fn set_ttl(&mut self, ttl: u8) {
        self.buffer.as_mut()[8] = ttl;
    }

    /// Sets the source address; the checksum is not touched.
    pub fn set_source(&mut self, address: Ipv4Addr) {
        self.buffer.as_mut()[12..16].copy_from_slice(&address.octets());
    }

    /// Sets the destination address; the checksum is not touched.
    pub fn set_destination(&mut self, address: Ipv4Addr) {
        self.buffer.as_mut()[16..20].copy_from_slice(&address.octets());
    }

    /// Exchanges the addresses, which leaves the checksum right.
    pub fn swap_addresses(&mut self) {
        let (source, destination) = self.buffer.as_mut()[12..20].split_at_mut(4);
        source.swap_with_slice(destination);
    }

    /// Computes the header checksum anew.
    pub fn fill_checksum(&mut self) {
        let len = self.header_len();
        let header = &mut self.buffer.as_mut()[..len];
        put_u16(header, 10, 0);
        let checksum = checksum::finish(checksum::sum(header));
        put_u16(header, 10, checksum);
    }

    /// What follows the header.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let range = self.header_len()..self.total_len();
        &mut self.buffer.as_mut()[range]
    }
}

/// One option: its type, and its data without type and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Copied flag 1, class 2, option kind 5 bits.
    pub kind: u8,
    /// Empty for [`OPTION_NOP`].
    pub data: &'a [u8],
}

/// Walks options up to the end-of-list option. Ends after the first error.
#[derive(Clone, Debug)]
pub struct OptionIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for OptionIter<'a> {
    type Item = Result<Ipv4Option<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match *core::mem::take(&mut self.rest) {
            [] | [OPTION_END, ..] => None,
            [kind @ OPTION_NOP, ref rest @ ..] => {
                self.rest = rest;
                Some(Ok(Ipv4Option { kind, data: &[] }))
            }
            [_] => Some(Err(Error::Truncated)),
            // The length counts the type and itself.
            ref option @ [kind, len, ..] => Some(match usize::from(len) {
                len if len < 2 => Err(Error::Length),
                len if len > option.len() => Err(Error::Truncated),
                len => {
                    self.rest = &option[len..];
                    Ok(Ipv4Option { kind, data: &option[2..len] })
                }
            }),
        }
    }
}

/// The options of a header as they lie there, padding included: 0..=40 octets, a
/// multiple of 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    bytes: [u8; MAX_OPTIONS_LEN],
    len: u8,
}

impl Options {
    pub const NONE: Options = Options { bytes: [0; MAX_OPTIONS_LEN], len: 0 };

    /// These octets, padded to a multiple of 4 with end-of-list options; at most 40.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        let mut options = Options::NONE;
        options.bytes.get_mut(..bytes.len()).ok_or(Error::Range)?.copy_from_slice(bytes);
        options.len = bytes.len().next_multiple_of(4) as u8;
        Ok(options)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    /// Protocol of the payload.
    pub protocol: u8,
    /// DSCP (high 6 bits) and ECN.
    pub tos: u8,
    pub ttl: u8,
    pub identification: u16,
    pub dont_fragment: bool,
    pub more_fragments: bool,
    /// In octets; a multiple of 8, at most 65,528.
    pub fragment_offset: u16,
    pub options: Options,
    /// Length of what follows the header.
    pub payload_len: usize,
}

impl Repr {
    /// Reads the header; [`Error::Checksum`] if its checksum is wrong.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        if !packet.verify_checksum() {
            return Err(Error::Checksum);
        }
        let header_len = packet.header_len();
        Ok(Repr {
            source: packet.source(),
            destination: packet.destination(),
            protocol: packet.protocol(),
            tos: packet.tos(),
            ttl: packet.ttl(),
            identification: packet.identification(),
            dont_fragment: packet.dont_fragment(),
            more_fragments: packet.more_fragments(),
            fragment_offset: packet.fragment_offset(),
            options: Options::new(&packet.buffer.as_ref()[HEADER_LEN..header_len])?,
            payload_len: packet.total_len() - header_len,
        })
    }

    /// Length of the header, 20..=60.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + self.options.as_bytes().len()
    }

    /// Writes the header with its checksum at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = self.buffer_len();
        let total =
            u16::try_from(self.payload_len.saturating_add(len)).map_err(|_| Error::Range)?;
        if !self.fragment_offset.is_multiple_of(8) {
            return Err(Error::Range);
        }
        let header = buffer.get_mut(..len).ok_or(Error::NoRoom)?;
        header[0] = 0x40 | (len / 4) as u8;
        header[1] = self.tos;
        put_u16(header, 2, total);
        put_u16(header, 4, self.identification);
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more_fragments) << 13;
        put_u16(header, 6, flags | self.fragment_offset >> 3);
        header[8] = self.ttl;
        header[9] = self.protocol;
        put_u16(header, 10, 0);
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..20].copy_from_slice(&self.destination.octets());
        header[HEADER_LEN..].copy_from_slice(self.options.as_bytes());
        let checksum = checksum::finish(checksum::sum(header));
        put_u16(header, 10, checksum);
        Ok(len)
    }
}

/// Steps over authentication headers (RFC 4302): the protocol above them, and where in
/// `data`, which begins after the IP header, that begins. What is cut off is not stepped
/// over: then the protocol is [`ipv6::AH`].
#[inline]
pub fn upper_layer(mut protocol: u8, data: &[u8]) -> (u8, usize) {
    let mut at = 0;
    for _ in 0..ipv6::MAX_EXTENSIONS {
        let rest = &data[at..];
        match ipv6::extension_len(protocol, rest) {
            Some(len) if protocol == ipv6::AH && len <= rest.len() => {
                protocol = rest[0];
                at += len;
            }
            _ => break,
        }
    }
    (protocol, at)
}

/// Header length and total length, checked against the buffer.
#[inline]
pub(crate) fn lengths(data: &[u8]) -> Result<(usize, usize), Error> {
    if data.len() < HEADER_LEN {
        return Err(Error::Truncated);
    }
    if data[0] >> 4 != 4 {
        return Err(Error::Version);
    }
    let header_len = usize::from(data[0] & 0x0F) * 4;
    let total_len = usize::from(u16_at(data, 2));
    if header_len < HEADER_LEN || total_len < header_len {
        return Err(Error::Length);
    }
    if total_len > data.len() {
        return Err(Error::Truncated);
    }
    Ok((header_len, total_len))
}

/// Header length without options.
pub const HEADER_LEN: usize = 20;
/// Most octets of options.
pub const MAX_OPTIONS_LEN: usize = 40;
/// End of option list.
pub const OPTION_END: u8 = 0;
pub const OPTION_NOP: u8 = 1;
/// Protocol number of ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// Protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    /// The worked example of many textbooks: a header whose checksum is 0xB861.
    const KNOWN: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xB8, 0x61, 0xC0, 0xA8, 0x00,
        0x01, 0xC0, 0xA8, 0x00, 0xC7,
    ];

    fn repr() -> impl Strategy<Value = Repr> {
        (
            (any::<[u8; 4]>(), any::<[u8; 4]>(), any::<u8>(), any::<u8>(), any::<u8>()),
            (any::<u16>(), any::<bool>(), any::<bool>(), 0u16..8192, 0usize..1000),
            proptest::collection::vec(any::<u8>(), 0..=MAX_OPTIONS_LEN),
        )
            .prop_map(
                |((s, d, protocol, tos, ttl), (id, df, mf, offset, payload_len), options)| Repr {
                    source: s.into(),
                    destination: d.into(),
                    protocol,
                    tos,
                    ttl,
                    identification: id,
                    dont_fragment: df,
                    more_fragments: mf,
                    fragment_offset: offset * 8,
                    options: Options::new(&options).unwrap(),
                    payload_len,
                },
            )
    }

    #[test]
    fn known_header() {
        let mut bytes = [0; 0x73];
        bytes[..20].copy_from_slice(&KNOWN);
        let packet = Packet::new_checked(&bytes).unwrap();
        let repr = Repr::parse(&packet).unwrap();
        assert_eq!(repr.source, Ipv4Addr::new(192, 168, 0, 1));
        assert_eq!(repr.destination, Ipv4Addr::new(192, 168, 0, 199));
        assert_eq!((repr.protocol, repr.ttl, repr.payload_len), (PROTOCOL_UDP, 64, 95));
        assert!(repr.dont_fragment && !packet.is_fragment());
        let mut again = [0; 20];
        repr.emit(&mut again).unwrap();
        assert_eq!(again, KNOWN);
        bytes[8] = 63;
        assert_eq!(Repr::parse(&Packet::new_checked(&bytes).unwrap()), Err(Error::Checksum));
    }

    #[test]
    fn lying_lengths() {
        let mut bytes = [0; 20];
        assert_eq!(Packet::new_checked(&bytes[..19]).err(), Some(Error::Truncated));
        bytes[0] = 0x65;
        assert_eq!(Packet::new_checked(&bytes).err(), Some(Error::Version));
        bytes[0] = 0x44;
        assert_eq!(Packet::new_checked(&bytes).err(), Some(Error::Length));
        bytes[0] = 0x45;
        bytes[3] = 19;
        assert_eq!(Packet::new_checked(&bytes).err(), Some(Error::Length));
        bytes[3] = 21;
        assert_eq!(Packet::new_checked(&bytes).err(), Some(Error::Truncated));
    }

    #[test]
    fn authentication_headers_are_stepped_over() {
        let mut data = std::vec![ipv6::AH, 4, 0, 0];
        data.resize(24, 7);
        data.extend([PROTOCOL_TCP, 1]);
        data.resize(36, 7);
        assert_eq!(upper_layer(ipv6::AH, &data), (PROTOCOL_TCP, 36));
        assert_eq!(upper_layer(ipv6::AH, &data[..35]), (ipv6::AH, 24));
        assert_eq!(upper_layer(ipv6::AH, &data[..25]), (ipv6::AH, 24));
        assert_eq!(upper_layer(ipv6::AH, &[]), (ipv6::AH, 0));
        // What is an extension header in IPv6 is a protocol here.
        assert_eq!(upper_layer(ipv6::DESTINATION, &[6; 100]), (ipv6::DESTINATION, 0));
        let endless = [ipv6::AH, 0].repeat(100);
        assert_eq!(upper_layer(ipv6::AH, &endless), (ipv6::AH, 8 * ipv6::MAX_EXTENSIONS));
    }

    #[test]
    fn options_walk() {
        // No-op, router alert (RFC 2113), end of list, and one octet never looked at.
        let options = Options::new(&[1, 0x94, 4, 0, 0, 0, 9]).unwrap();
        let mut walk = OptionIter { rest: options.as_bytes() };
        assert_eq!(walk.next(), Some(Ok(Ipv4Option { kind: 1, data: &[] })));
        assert_eq!(walk.next(), Some(Ok(Ipv4Option { kind: 0x94, data: &[0, 0] })));
        assert_eq!(walk.next(), None);
        for (bad, error) in [
            (&[7u8][..], Error::Truncated),
            (&[7, 1], Error::Length),
            (&[7, 0, 0], Error::Length),
            (&[7, 4, 0], Error::Truncated),
        ] {
            let mut walk = OptionIter { rest: bad };
            assert_eq!(walk.next(), Some(Err(error)));
            assert_eq!(walk.next(), None);
        }
        assert_eq!(Options::new(&[0; 41]), Err(Error::Range));
    }

    #[test]
    fn setters_keep_the_checksum_when_asked_to() {
        let mut bytes = [0; 0x73];
        bytes[..20].copy_from_slice(&KNOWN);
        let mut packet = Packet::new_checked(&mut bytes[..]).unwrap();
        packet.swap_addresses();
        assert!(packet.verify_checksum());
        packet.set_tos(0xB8);
        packet.set_ttl(255);
        packet.set_source(Ipv4Addr::LOCALHOST);
        packet.set_destination(Ipv4Addr::BROADCAST);
        assert!(!packet.verify_checksum());
        packet.fill_checksum();
        assert!(packet.verify_checksum());
        assert_eq!((packet.dscp(), packet.ecn()), (46, 0));
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_emit(repr in repr()) {
            let mut bytes = [0xEE; 1100];
            let len = repr.emit(&mut bytes).unwrap();
            prop_assert_eq!(len, repr.buffer_len());
            let packet = Packet::new_checked(&bytes).unwrap();
            prop_assert_eq!(packet.payload().len(), repr.payload_len);
            prop_assert_eq!(Repr::parse(&packet), Ok(repr));
            prop_assert_eq!(repr.emit(&mut bytes[..len - 1]), Err(Error::NoRoom));
        }

        #[test]
        fn never_panics(mut bytes: Vec<u8>, steer: bool) {
            if let (true, Some(first)) = (steer, bytes.first_mut()) {
                *first = 0x40 | (*first & 0x0F);
            }
            if steer && bytes.len() > 4 {
                bytes[2] = 0;
            }
            if let Ok(mut packet) = Packet::new_checked(&mut bytes) {
                let _ = Repr::parse(&packet);
                packet.options().for_each(drop);
                packet.fill_checksum();
                prop_assert!(packet.verify_checksum());
                let _ = packet.payload_mut();
            }
        }
    }
}
