//! IPv6 headers and their extension headers (RFC 8200; AH RFC 4302, mobility RFC 6275,
//! HIP RFC 7401, shim6 RFC 5533).

use core::net::Ipv6Addr;

use crate::Error;
use crate::field::{array_at, put_u16, put_u32, u16_at, u32_at};

/// A checked view of a packet. Octets after its payload length belong to no view.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks version and payload length. Jumbograms (RFC 2675) are not read: their
    /// payload length of 0 is taken as it stands.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        total_len(buffer.as_ref())?;
        Ok(Packet { buffer })
    }

    /// The octet that holds DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        (u16_at(self.buffer.as_ref(), 0) >> 4) as u8
    }

    /// Differentiated services code point, 0..=63.
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// Explicit congestion notification, 0..=3.
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 3
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32_at(self.buffer.as_ref(), 0) & 0xF_FFFF
    }

    /// Length of what follows the fixed header.
    pub fn payload_len(&self) -> usize {
        usize::from(u16_at(self.buffer.as_ref(), 4))
    }

    /// Type of the first header after this one.
    pub fn next_header(&self) -> u8 {
        self.buffer.as_ref()[6]
    }

    pub fn hop_limit(&self) -> u8 {
        self.buffer.as_ref()[7]
    }

    pub fn source(&self) -> Ipv6Addr {
        array_at::<16>(self.buffer.as_ref(), 8).into()
    }

    pub fn destination(&self) -> Ipv6Addr {
        array_at::<16>(self.buffer.as_ref(), 24).into()
    }

    /// What follows the fixed header, extension headers first.
    pub fn payload(&self) -> &[u8] {
        &self.buffer.as_ref()[HEADER_LEN..HEADER_LEN + self.payload_len()]
    }

    /// Where the extension headers end. `UpperLayer::offset` counts in [`Packet::payload`].
    pub fn upper_layer(&self) -> Result<UpperLayer, Error> {
        upper_layer(self.next_header(), self.payload())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets DSCP and ECN.
    pub fn set_traffic_class(&mut self, class: u8) {
        let data = self.buffer.as_mut();
        let first = u16_at(data, 0) & 0xF00F | u16::from(class) << 4;
        put_u16(data, 0, first);
    }

    pub fn set_hop_limit(&mut self, limit: u8) {
        self.buffer.as_mut()[7] = limit;
    }

    pub fn set_source(&mut self, address: Ipv6Addr) {
        self.buffer.as_mut()[8..24].copy_from_slice(&address.octets());
    }

    pub fn set_destination(&mut self, address: Ipv6Addr) {
        self.buffer.as_mut()[24..40].copy_from_slice(&address.octets());
    }

    pub fn swap_addresses(&mut self) {
        let (source, destination) = self.buffer.as_mut()[8..40].split_at_mut(16);
        source.swap_with_slice(destination);
    }

    /// What follows the fixed header.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let len = self.payload_len();
        &mut self.buffer.as_mut()[HEADER_LEN..HEADER_LEN + len]
    }
}

/// What a chain of extension headers leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// Its protocol; [`NO_NEXT_HEADER`] or [`ESP`] where the chain ends so. In a
    /// fragment other than the first, what the fragment header names.
    pub protocol: u8,
    /// Where it begins, or where the fragment's data do.
    pub offset: usize,
    /// The fragment header, if there was one.
    pub fragment: Option<Fragment>,
}

/// A fragment header (RFC 8200, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Of the data, in octets; a multiple of 8.
    pub offset: u16,
    /// The M flag: more fragments follow, so this one does not end the packet.
    pub more: bool,
    /// The same in all fragments of a packet.
    pub identification: u32,
}

impl Fragment {
    /// A whole packet that carries a fragment header none the less (RFC 6946).
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Its own type, one of the constants below: what the header before it announced.
    pub kind: u8,
    /// The type of what follows.
    pub next_header: u8,
    /// The whole header, these two octets included.
    pub bytes: &'a [u8],
}

/// Walks extension headers: at most [`MAX_EXTENSIONS`], none after a fragment header
/// with an offset. Ends after the first error.
#[derive(Clone, Debug)]
pub struct ExtensionIter<'a> {
    data: &'a [u8],
    kind: u8,
    offset: usize,
    count: usize,
    done: bool,
}

impl<'a> ExtensionIter<'a> {
    /// `data` begins after the fixed header, which named `next_header`.
    pub fn new(next_header: u8, data: &'a [u8]) -> Self {
        ExtensionIter { data, kind: next_header, offset: 0, count: 0, done: false }
    }
}

impl<'a> Iterator for ExtensionIter<'a> {
    type Item = Result<Extension<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done || !is_extension(self.kind) {
            return None;
        }
        let rest = &self.data[self.offset..];
        let bytes = match extension_len(self.kind, rest) {
            Some(_) if self.count == MAX_EXTENSIONS => Err(Error::ExtensionDepth),
            Some(len) => rest.get(..len).ok_or(Error::Truncated),
            None => Err(Error::Truncated),
        };
        Some(bytes.map(|bytes| {
            let extension = Extension { kind: self.kind, next_header: bytes[0], bytes };
            self.offset += bytes.len();
            self.count += 1;
            self.done = self.kind == FRAGMENT && fragment(bytes).offset != 0;
            self.kind = bytes[0];
            extension
        }))
        .inspect(|result| self.done |= result.is_err())
    }
}

/// Follows the extension headers in `data`, which begins after the fixed header.
#[inline]
pub fn upper_layer(next_header: u8, data: &[u8]) -> Result<UpperLayer, Error> {
    let (reached, error) = reach(next_header, data);
    error.map_or(Ok(reached), Err)
}

/// How far the extension headers in `data` can be followed. Where the chain ends, or the header in
/// it that is cut off or one too many, with the reason.
#[inline]
pub fn reach(next_header: u8, data: &[u8]) -> (UpperLayer, Option<Error>) {
    let mut walk = ExtensionIter::new(next_header, data);
    let (mut seen, mut error) = (None, None);
    for extension in walk.by_ref() {
        match extension {
            Ok(extension) if extension.kind == FRAGMENT => seen = Some(fragment(extension.bytes)),
            Ok(_) => {}
            Err(found) => error = Some(found),
        }
    }
    (UpperLayer { protocol: walk.kind, offset: walk.offset, fragment: seen }, error)
}

/// Length of the payload where the header says 0 and names `next_header`, with `data` of it
/// captured and `room` behind the header. All there is where a hop-by-hop options header follows
/// (the payload cannot be empty then), at most what that states for a jumbogram (RFC 2675). All
/// there is also where that is more than the field can say, as segmentation offload makes it. Else
/// nothing.
#[inline]
pub(crate) fn unstated_len(next_header: u8, data: &[u8], room: usize) -> usize {
    if next_header == HOP_BY_HOP {
        let jumbo = match ExtensionIter::new(next_header, data).next() {
            Some(Ok(extension)) => jumbo_len(&extension),
            _ => None,
        };
        return room.min(jumbo.map_or(usize::MAX, |length| length as usize));
    }
    if room > usize::from(u16::MAX) { room } else { 0 }
}

/// The payload length that a hop-by-hop options header gives, if it has the option for
/// that (RFC 2675, section 2) among the first 16. Less than 65,536 is no jumbogram.
pub fn jumbo_len(extension: &Extension<'_>) -> Option<u32> {
    let mut options = extension.bytes.get(2..)?;
    for _ in 0..MAX_JUMBO_SEARCH {
        options = match *options {
            // RFC 8200, section 4.2: one octet of padding, and it has no length.
            [0, ref rest @ ..] => rest,
            [JUMBO, 4, a, b, c, d, ..] => {
                let length = u32::from_be_bytes([a, b, c, d]);
                return (length > 0xFFFF).then_some(length);
            }
            [_, len, ref rest @ ..] => rest.get(usize::from(len)..)?,
            _ => return None,
        };
    }
    None
}

/// The fixed header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    /// Type of the first header after this one.
    pub next_header: u8,
    pub hop_limit: u8,
    /// DSCP (high 6 bits) and ECN.
    pub traffic_class: u8,
    /// 0..=0xFFFFF.
    pub flow_label: u32,
    /// Length of what follows.
    pub payload_len: usize,
}

impl Repr {
    /// Reads the fixed header.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Repr {
            source: packet.source(),
            destination: packet.destination(),
            next_header: packet.next_header(),
            hop_limit: packet.hop_limit(),
            traffic_class: packet.traffic_class(),
            flow_label: packet.flow_label(),
            payload_len: packet.payload_len(),
        }
    }

    /// Length that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the fixed header at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let payload_len = u16::try_from(self.payload_len).map_err(|_| Error::Range)?;
        if self.flow_label > 0xF_FFFF {
            return Err(Error::Range);
        }
        let header = buffer.get_mut(..HEADER_LEN).ok_or(Error::NoRoom)?;
        put_u32(header, 0, 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label);
        put_u16(header, 4, payload_len);
        header[6] = self.next_header;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..40].copy_from_slice(&self.destination.octets());
        Ok(HEADER_LEN)
    }
}

/// Length of fixed header and payload, checked against the buffer.
#[inline]
pub(crate) fn total_len(data: &[u8]) -> Result<usize, Error> {
    if data.len() < HEADER_LEN {
        return Err(Error::Truncated);
    }
    if data[0] >> 4 != 6 {
        return Err(Error::Version);
    }
    let total = HEADER_LEN + usize::from(u16_at(data, 4));
    if total > data.len() {
        return Err(Error::Truncated);
    }
    Ok(total)
}

/// The header of this type is one that [`ExtensionIter`] steps over.
#[inline]
pub const fn is_extension(kind: u8) -> bool {
    matches!(kind, HOP_BY_HOP | ROUTING | FRAGMENT | AH | DESTINATION | MOBILITY | HIP | SHIM6)
}

/// Length of the extension header of this type at the start of `data`, if its first
/// two octets are there.
#[inline]
pub(crate) fn extension_len(kind: u8, data: &[u8]) -> Option<usize> {
    let &[_, len, ..] = data else { return None };
    Some(match kind {
        FRAGMENT => 8,
        // RFC 4302, section 2.2: in 4-octet units, minus 2.
        AH => (usize::from(len) + 2) * 4,
        _ => (usize::from(len) + 1) * 8,
    })
}

/// Reads a fragment header of 8 octets.
fn fragment(bytes: &[u8]) -> Fragment {
    let field = u16_at(bytes, 2);
    Fragment { offset: field & 0xFFF8, more: field & 1 != 0, identification: u32_at(bytes, 4) }
}

/// Length of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Hop-by-hop option with the length of a jumbogram.
const JUMBO: u8 = 0xC2;
const MAX_JUMBO_SEARCH: usize = 16;
/// Most extension headers that are followed: every type once, destination options twice.
pub const MAX_EXTENSIONS: usize = 8;
/// RFC 8200, 4.3.
pub const HOP_BY_HOP: u8 = 0;
/// RFC 8200, 4.4.
pub const ROUTING: u8 = 43;
/// RFC 8200, 4.5.
pub const FRAGMENT: u8 = 44;
/// Encapsulating security payload: nothing after it can be read.
pub const ESP: u8 = 50;
/// Authentication header (RFC 4302): its length counts 4 octets, not 8.
pub const AH: u8 = 51;
/// Protocol number of ICMPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;
/// RFC 8200, 4.7.
pub const NO_NEXT_HEADER: u8 = 59;
/// Destination options (RFC 8200, 4.6).
pub const DESTINATION: u8 = 60;
/// RFC 6275.
pub const MOBILITY: u8 = 135;
/// Host Identity Protocol (RFC 7401).
pub const HIP: u8 = 139;
/// RFC 5533.
pub const SHIM6: u8 = 140;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    const UDP: u8 = 17;

    #[test]
    fn known_header() {
        let mut bytes = [0u8; 44];
        bytes[..8].copy_from_slice(&[0x6B, 0x8A, 0xBC, 0xDE, 0, 3, UDP, 64]);
        bytes[8..24].copy_from_slice(&Ipv6Addr::LOCALHOST.octets());
        let mut packet = Packet::new_checked(&mut bytes[..]).unwrap();
        assert_eq!((packet.dscp(), packet.ecn()), (0xB8 >> 2, 0));
        assert_eq!(packet.flow_label(), 0xABCDE);
        assert_eq!(packet.payload().len(), 3);
        packet.set_traffic_class(0x55);
        packet.set_hop_limit(1);
        packet.swap_addresses();
        assert_eq!((packet.traffic_class(), packet.flow_label()), (0x55, 0xABCDE));
        assert_eq!(packet.destination(), Ipv6Addr::LOCALHOST);
        packet.set_source(Ipv6Addr::LOCALHOST);
        packet.set_destination(Ipv6Addr::UNSPECIFIED);
        assert_eq!(packet.source(), Ipv6Addr::LOCALHOST);
        assert_eq!(packet.payload_mut().len(), 3);
    }

    #[test]
    fn lying_lengths() {
        let mut bytes = [0u8; 40];
        assert_eq!(Packet::new_checked(&bytes[..39]).err(), Some(Error::Truncated));
        assert_eq!(Packet::new_checked(&bytes).err(), Some(Error::Version));
        bytes[0] = 0x60;
        assert!(Packet::new_checked(&bytes).is_ok());
        bytes[5] = 1;
        assert_eq!(Packet::new_checked(&bytes).err(), Some(Error::Truncated));
    }

    #[test]
    fn every_extension_header_is_stepped_over() {
        let mut data: Vec<u8> = Vec::new();
        data.extend([ROUTING, 0, 0, 0, 0, 0, 0, 0]); // hop-by-hop, 8 octets
        data.extend([DESTINATION, 2]); // routing, 24 octets
        data.extend([0; 22]);
        data.extend([AH, 0, 0, 0, 0, 0, 0, 0]);
        data.extend([MOBILITY, 4]); // AH, 24 octets
        data.extend([0; 22]);
        data.extend([FRAGMENT, 0, 0, 0, 0, 0, 0, 0]);
        data.extend([UDP, 0, 0, 0, 1, 2, 3, 4]); // an atomic fragment
        let upper = upper_layer(HOP_BY_HOP, &data).unwrap();
        assert_eq!((upper.protocol, upper.offset), (UDP, data.len()));
        let fragment = upper.fragment.unwrap();
        assert!(fragment.is_atomic());
        assert_eq!(fragment.identification, 0x0102_0304);
        let kinds: Vec<u8> =
            ExtensionIter::new(HOP_BY_HOP, &data).map(|e| e.unwrap().kind).collect();
        assert_eq!(kinds, [HOP_BY_HOP, ROUTING, DESTINATION, AH, MOBILITY, FRAGMENT]);
        for len in 0..data.len() {
            assert_eq!(upper_layer(HOP_BY_HOP, &data[..len]), Err(Error::Truncated));
        }
    }

    #[test]
    fn the_walk_ends_at_a_later_fragment() {
        // Offset 8: what follows is the middle of a packet, whatever the type says.
        let data = [DESTINATION, 0, 0, 9, 0, 0, 0, 7, 0xFF, 0xFF];
        let upper = upper_layer(FRAGMENT, &data).unwrap();
        assert_eq!((upper.protocol, upper.offset), (DESTINATION, 8));
        let fragment = upper.fragment.unwrap();
        assert_eq!((fragment.offset, fragment.more), (8, true));
    }

    #[test]
    fn a_walk_that_fails_says_how_far_it_came() {
        let mut data = std::vec![DESTINATION, 0, 0, 1, 0, 0, 0, 9]; // a first fragment
        data.extend([UDP, 1, 0, 0, 0, 0]); // of 16 octets, cut off
        let (reached, error) = reach(FRAGMENT, &data);
        assert_eq!((reached.protocol, reached.offset), (DESTINATION, 8));
        assert_eq!(reached.fragment.map(|f| (f.more, f.identification)), Some((true, 9)));
        assert_eq!(error, Some(Error::Truncated));
    }

    #[test]
    fn jumbo_payload_option() {
        let of = |bytes: &[u8]| jumbo_len(&Extension { kind: HOP_BY_HOP, next_header: 6, bytes });
        assert_eq!(of(&[6, 0, 0xC2, 4, 0, 1, 0x38, 0x80]), Some(80_000));
        assert_eq!(of(&[6, 0, 0xC2, 4, 0, 0, 0xFF, 0xFF]), None);
        // Behind a router alert and padding of one octet and of two.
        let later = [6, 1, 5, 2, 0, 0, 0, 1, 0, 0, 0xC2, 4, 0, 1, 0, 0];
        assert_eq!(of(&later), Some(65_536));
        for len in 0..later.len() {
            assert_eq!(of(&later[..len]), None);
        }
        assert_eq!(of(&[6, 0, 1, 200, 0xC2, 4, 0, 1]), None);
    }

    #[test]
    fn the_walk_is_bounded() {
        let chain = [DESTINATION, 0, 0, 0, 0, 0, 0, 0].repeat(MAX_EXTENSIONS + 1);
        assert_eq!(upper_layer(DESTINATION, &chain), Err(Error::ExtensionDepth));
        assert_eq!(ExtensionIter::new(DESTINATION, &chain).count(), MAX_EXTENSIONS + 1);
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_emit(
            s: [u8; 16], d: [u8; 16], next_header: u8, hop_limit: u8, traffic_class: u8,
            flow_label in 0u32..=0xF_FFFF, payload_len in 0usize..200,
        ) {
            let repr = Repr {
                source: s.into(), destination: d.into(), next_header, hop_limit, traffic_class,
                flow_label, payload_len,
            };
            let mut bytes = [0xEE; 240];
            prop_assert_eq!(repr.emit(&mut bytes), Ok(repr.buffer_len()));
            prop_assert_eq!(Repr::parse(&Packet::new_checked(&bytes).unwrap()), repr);
        }

        #[test]
        fn never_panics(mut bytes: Vec<u8>, next_header: u8, steer: bool) {
            let _ = upper_layer(next_header, &bytes);
            ExtensionIter::new(next_header, &bytes).for_each(drop);
            let _ = jumbo_len(&Extension { kind: HOP_BY_HOP, next_header, bytes: &bytes });
            if steer && bytes.len() >= HEADER_LEN {
                bytes[0] = 0x60;
                bytes[4] = 0;
                bytes[5] = (bytes.len() - HEADER_LEN) as u8;
            }
            if let Ok(packet) = Packet::new_checked(&bytes) {
                let _ = Repr::parse(&packet);
                let _ = packet.upper_layer();
            }
        }
    }
}
