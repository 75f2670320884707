//! Ethernet II frames without FCS (IEEE 802.3), with VLAN tags (IEEE 802.1Q, and
//! 802.1ad for stacked ones).

use crate::Error;
use crate::field::{array_at, put_u16, u16_at};

pub type Mac = [u8; 6];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Tag protocol identifier: [`ETHERTYPE_VLAN`], [`ETHERTYPE_QINQ`] or [`ETHERTYPE_QINQ_OLD`].
    pub tpid: u16,
    /// Tag control information: priority 3, drop eligible 1, VLAN identifier 12 bits.
    pub tci: u16,
}

impl Tag {
    /// VLAN identifier, 0..=4095; 0: the tag has a priority only.
    pub const fn vid(self) -> u16 {
        self.tci & 0x0FFF
    }

    /// Priority code point, 0..=7.
    pub const fn pcp(self) -> u8 {
        (self.tci >> 13) as u8
    }

    /// Drop eligible indicator: a queue that is full drops such frames first.
    pub const fn dei(self) -> bool {
        self.tci & 0x1000 != 0
    }
}

/// The tags of a frame, outermost first: none, one or two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tags {
    tags: [Tag; MAX_TAGS],
    count: u8,
}

impl Tags {
    /// The given tags; [`Error::VlanDepth`] when more than two, [`Error::Range`] when a
    /// TPID is not one of a VLAN tag.
    pub fn new(tags: &[Tag]) -> Result<Self, Error> {
        let mut out = Tags::default();
        for &tag in tags {
            if !is_tpid(tag.tpid) {
                return Err(Error::Range);
            }
            *out.tags.get_mut(usize::from(out.count)).ok_or(Error::VlanDepth)? = tag;
            out.count += 1;
        }
        Ok(out)
    }

    pub fn as_slice(&self) -> &[Tag] {
        &self.tags[..usize::from(self.count)]
    }

    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A checked view of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<T> {
    buffer: T,
    header_len: usize,
}

impl<T: AsRef<[u8]>> Frame<T> {
    /// Checks that the header and its tags are there; at most two tags.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let (header_len, _, _) = header(buffer.as_ref())?;
        Ok(Frame { buffer, header_len })
    }

    pub fn destination(&self) -> Mac {
        array_at(self.buffer.as_ref(), 0)
    }

    pub fn source(&self) -> Mac {
        array_at(self.buffer.as_ref(), 6)
    }

    /// VLAN tags, outermost first.
    pub fn tags(&self) -> Tags {
        let data = self.buffer.as_ref();
        let mut tags = Tags::default();
        for at in (12..self.header_len - 2).step_by(4) {
            tags.tags[usize::from(tags.count)] =
                Tag { tpid: u16_at(data, at), tci: u16_at(data, at + 2) };
            tags.count += 1;
        }
        tags
    }

    /// EtherType after the tags. Values below 1536 are an 802.3 length.
    pub fn ethertype(&self) -> u16 {
        u16_at(self.buffer.as_ref(), self.header_len - 2)
    }

    /// Length of addresses, tags and EtherType: 14, 18 or 22.
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// What follows the header, padding included.
    pub fn payload(&self) -> &[u8] {
        &self.buffer.as_ref()[self.header_len..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Frame<T> {
    /// Sets the destination address.
    pub fn set_destination(&mut self, mac: Mac) {
        self.buffer.as_mut()[..6].copy_from_slice(&mac);
    }

    /// Sets the source address.
    pub fn set_source(&mut self, mac: Mac) {
        self.buffer.as_mut()[6..12].copy_from_slice(&mac);
    }

    /// Exchanges the addresses: the frame goes back where it came from.
    pub fn swap_addresses(&mut self) {
        let (destination, rest) = self.buffer.as_mut().split_at_mut(6);
        destination.swap_with_slice(&mut rest[..6]);
    }

    /// What follows the header.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut()[self.header_len..]
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    pub destination: Mac,
    pub source: Mac,
    /// VLAN tags, outermost first.
    pub tags: Tags,
    /// EtherType of the payload; not that of a tag.
    pub ethertype: u16,
}

impl Repr {
    pub fn parse<T: AsRef<[u8]>>(frame: &Frame<T>) -> Self {
        Repr {
            destination: frame.destination(),
            source: frame.source(),
            tags: frame.tags(),
            ethertype: frame.ethertype(),
        }
    }

    /// Length that [`Repr::emit`] writes: 14, 18 or 22.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + 4 * self.tags.len()
    }

    /// Writes the header at the start of `buffer` and returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = self.buffer_len();
        let buffer = buffer.get_mut(..len).ok_or(Error::NoRoom)?;
        buffer[..6].copy_from_slice(&self.destination);
        buffer[6..12].copy_from_slice(&self.source);
        for (i, tag) in self.tags.as_slice().iter().enumerate() {
            put_u16(buffer, 12 + 4 * i, tag.tpid);
            put_u16(buffer, 14 + 4 * i, tag.tci);
        }
        put_u16(buffer, len - 2, self.ethertype);
        Ok(len)
    }
}

/// Header length, EtherType of the payload and number of tags.
#[inline]
pub(crate) fn header(data: &[u8]) -> Result<(usize, u16, usize), Error> {
    let mut at = 12;
    let mut count = 0;
    loop {
        let Some(bytes) = data.get(at..at + 2) else { return Err(Error::Truncated) };
        let ethertype = u16::from_be_bytes([bytes[0], bytes[1]]);
        if !is_tpid(ethertype) {
            return Ok((at + 2, ethertype, count));
        }
        if count == MAX_TAGS {
            return Err(Error::VlanDepth);
        }
        count += 1;
        at += 4;
    }
}

/// A VLAN tag begins with this value.
#[inline]
pub const fn is_tpid(ethertype: u16) -> bool {
    matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_QINQ | ETHERTYPE_QINQ_OLD)
}

/// Header length without tags.
pub const HEADER_LEN: usize = 14;
/// Octets of the frame check sequence, which belong to a frame's size (RFC 2544, section 9) and which
/// engines neither see nor send.
pub const FCS_LEN: usize = 4;
/// Most tags that are read or written.
pub const MAX_TAGS: usize = 2;
/// Least value that is an EtherType; below it is a length (IEEE 802.3, 3.2.6).
pub const LEAST_ETHERTYPE: u16 = 0x0600;
pub const ETHERTYPE_IPV4: u16 = 0x0800;
pub const ETHERTYPE_ARP: u16 = 0x0806;
pub const ETHERTYPE_IPV6: u16 = 0x86DD;
/// MPLS, unicast.
pub const ETHERTYPE_MPLS: u16 = 0x8847;
/// IEEE 802.1Q customer tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// IEEE 802.1ad service tag.
pub const ETHERTYPE_QINQ: u16 = 0x88A8;
/// Service tag of equipment older than 802.1ad.
pub const ETHERTYPE_QINQ_OLD: u16 = 0x9100;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;

    pub(crate) fn tags() -> impl Strategy<Value = Tags> {
        let tpid =
            prop_oneof![Just(ETHERTYPE_VLAN), Just(ETHERTYPE_QINQ), Just(ETHERTYPE_QINQ_OLD)];
        proptest::collection::vec((tpid, any::<u16>()), 0..=MAX_TAGS).prop_map(|tags| {
            let tags: std::vec::Vec<Tag> =
                tags.into_iter().map(|(tpid, tci)| Tag { tpid, tci }).collect();
            Tags::new(&tags).unwrap()
        })
    }

    #[test]
    fn a_stacked_frame() {
        let bytes = [
            2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xA8, 0xB0, 0x64, 0x81, 0x00, 0x00, 0x0A,
            0x08, 0x00, 0xAA,
        ];
        let frame = Frame::new_checked(&bytes).unwrap();
        assert_eq!(frame.header_len(), 22);
        assert_eq!(frame.ethertype(), ETHERTYPE_IPV4);
        assert_eq!(frame.payload(), [0xAA]);
        let tags = frame.tags();
        let [service, customer] = tags.as_slice() else { panic!("two tags") };
        assert_eq!((service.vid(), service.pcp(), service.dei()), (100, 5, true));
        assert_eq!((customer.vid(), customer.pcp(), customer.dei()), (10, 0, false));
        for len in 0..22 {
            assert_eq!(Frame::new_checked(&bytes[..len]).err(), Some(Error::Truncated));
        }
    }

    #[test]
    fn a_third_tag_is_refused() {
        let mut bytes = [0; 30];
        for at in [12, 16, 20] {
            put_u16(&mut bytes, at, ETHERTYPE_VLAN);
        }
        assert_eq!(Frame::new_checked(&bytes).err(), Some(Error::VlanDepth));
        let tag = Tag { tpid: ETHERTYPE_VLAN, tci: 1 };
        assert_eq!(Tags::new(&[tag; 3]), Err(Error::VlanDepth));
        assert_eq!(Tags::new(&[Tag { tpid: ETHERTYPE_IPV4, tci: 1 }]), Err(Error::Range));
    }

    #[test]
    fn setters() {
        let mut bytes = [0; 14];
        let mut frame = Frame::new_checked(&mut bytes).unwrap();
        frame.set_destination([1; 6]);
        frame.set_source([2; 6]);
        frame.swap_addresses();
        assert_eq!((frame.destination(), frame.source()), ([2; 6], [1; 6]));
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_emit(
            destination: Mac, source: Mac, tags in tags(), ethertype: u16,
        ) {
            prop_assume!(!is_tpid(ethertype));
            let repr = Repr { destination, source, tags, ethertype };
            let mut buffer = [0; 22];
            let len = repr.emit(&mut buffer).unwrap();
            prop_assert_eq!(len, repr.buffer_len());
            prop_assert_eq!(Repr::parse(&Frame::new_checked(&buffer[..len]).unwrap()), repr);
            prop_assert_eq!(repr.emit(&mut buffer[..len - 1]), Err(Error::NoRoom));
        }

        #[test]
        fn never_panics(bytes: std::vec::Vec<u8>) {
            if let Ok(frame) = Frame::new_checked(&bytes) {
                let _ = Repr::parse(&frame);
                let _ = frame.payload();
            }
        }
    }
}
