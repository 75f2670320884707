//! UDP (RFC 768; over IPv6 RFC 8200 section 8.1).

use core::net::IpAddr;

use crate::field::{put_u16, u16_at};
use crate::ipv4::PROTOCOL_UDP;
use crate::{Error, checksum};

/// A checked view of a datagram. Octets after its length belong to no view.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks the length field. A length of 0 (RFC 2675) is refused.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        length(buffer.as_ref())?;
        Ok(Packet { buffer })
    }

    pub fn source_port(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 0)
    }

    pub fn destination_port(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 2)
    }

    /// Header and payload, at least 8.
    pub fn length(&self) -> usize {
        usize::from(u16_at(self.buffer.as_ref(), 4))
    }

    /// Checksum field; 0: none.
    pub fn checksum(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 6)
    }

    /// What follows the header, bounded by the length field.
    pub fn payload(&self) -> &[u8] {
        &self.buffer.as_ref()[HEADER_LEN..self.length()]
    }

    /// The checksum is right, or absent where it may be: over IPv4 only.
    pub fn verify_checksum(&self, source: IpAddr, destination: IpAddr) -> bool {
        if self.checksum() == 0 {
            return source.is_ipv4() && destination.is_ipv4();
        }
        let data = &self.buffer.as_ref()[..self.length()];
        checksum::pseudo(source, destination, PROTOCOL_UDP, data.len() as u32)
            .is_some_and(|pseudo| checksum::finish(pseudo + checksum::sum(data)) == 0)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the source port; the checksum is not touched.
    pub fn set_source_port(&mut self, port: u16) {
        put_u16(self.buffer.as_mut(), 0, port);
    }

    /// Sets the destination port; the checksum is not touched.
    pub fn set_destination_port(&mut self, port: u16) {
        put_u16(self.buffer.as_mut(), 2, port);
    }

    /// Exchanges the ports, which leaves the checksum right.
    pub fn swap_ports(&mut self) {
        let (source, destination) = self.buffer.as_mut()[..4].split_at_mut(2);
        source.swap_with_slice(destination);
    }

    /// What follows the header.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let len = self.length();
        &mut self.buffer.as_mut()[HEADER_LEN..len]
    }

    /// Computes the checksum anew; [`Error::AddressFamily`] if the addresses differ in it.
    pub fn fill_checksum(&mut self, source: IpAddr, destination: IpAddr) -> Result<(), Error> {
        let len = self.length();
        let pseudo = checksum::pseudo(source, destination, PROTOCOL_UDP, len as u32)
            .ok_or(Error::AddressFamily)?;
        let data = &mut self.buffer.as_mut()[..len];
        put_u16(data, 6, 0);
        let checksum = checksum::finish_udp(pseudo + checksum::sum(data));
        put_u16(data, 6, checksum);
        Ok(())
    }
}

/// The header as a value, without its checksum: [`Packet::fill_checksum`] computes that
/// once the payload is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    pub source_port: u16,
    pub destination_port: u16,
    /// Length of what follows the header.
    pub payload_len: usize,
}

impl Repr {
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Repr {
            source_port: packet.source_port(),
            destination_port: packet.destination_port(),
            payload_len: packet.length() - HEADER_LEN,
        }
    }

    /// Length that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header, its checksum 0, at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let length =
            u16::try_from(self.payload_len.saturating_add(HEADER_LEN)).map_err(|_| Error::Range)?;
        let header = buffer.get_mut(..HEADER_LEN).ok_or(Error::NoRoom)?;
        put_u16(header, 0, self.source_port);
        put_u16(header, 2, self.destination_port);
        put_u16(header, 4, length);
        put_u16(header, 6, 0);
        Ok(HEADER_LEN)
    }
}

/// The length field, checked against the buffer.
#[inline]
pub(crate) fn length(data: &[u8]) -> Result<usize, Error> {
    if data.len() < HEADER_LEN {
        return Err(Error::Truncated);
    }
    let length = usize::from(u16_at(data, 4));
    if length < HEADER_LEN {
        return Err(Error::Length);
    }
    if length > data.len() {
        return Err(Error::Truncated);
    }
    Ok(length)
}

/// Length of the header, octets.
pub const HEADER_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    const V4: (IpAddr, IpAddr) = (
        IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 2)),
    );

    #[test]
    fn known_checksum() {
        // Worked by hand: pseudo-header C000+0201+C000+0202+0011+000A, header
        // 1234+035E+000A, payload 4869; their sum folded and complemented.
        let mut bytes = [0x12, 0x34, 0x03, 0x5E, 0, 10, 0, 0, 0x48, 0x69];
        let words = [0xC000u32, 0x0201, 0xC000, 0x0202, 0x11, 10, 0x1234, 0x035E, 10, 0x4869];
        let total: u32 = words.iter().sum();
        let want = !(((total & 0xFFFF) + (total >> 16)) as u16);
        let mut packet = Packet::new_checked(&mut bytes[..]).unwrap();
        packet.fill_checksum(V4.0, V4.1).unwrap();
        assert_eq!(packet.checksum(), want);
        assert!(packet.verify_checksum(V4.0, V4.1));
        packet.swap_ports();
        assert!(packet.verify_checksum(V4.1, V4.0));
        packet.set_source_port(1);
        assert!(!packet.verify_checksum(V4.1, V4.0));
    }

    #[test]
    fn an_absent_checksum_is_right_over_ipv4_only() {
        let bytes = [0, 1, 0, 2, 0, 8, 0, 0];
        let packet = Packet::new_checked(&bytes).unwrap();
        assert!(packet.verify_checksum(V4.0, V4.1));
        let v6 = IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);
        assert!(!packet.verify_checksum(v6, v6));
        assert!(!packet.verify_checksum(V4.0, v6));
        let mut bytes = bytes;
        let mut packet = Packet::new_checked(&mut bytes).unwrap();
        assert_eq!(packet.fill_checksum(V4.0, v6), Err(Error::AddressFamily));
    }

    #[test]
    fn lying_lengths() {
        for (len, error) in [(0, Error::Length), (7, Error::Length), (11, Error::Truncated)] {
            let bytes = [0, 1, 0, 2, 0, len, 0, 0, 9, 9];
            assert_eq!(Packet::new_checked(&bytes).err(), Some(error));
        }
        assert_eq!(Packet::new_checked(&[0; 7]).err(), Some(Error::Truncated));
        assert_eq!(Packet::new_checked(&[0, 1, 0, 2, 0, 9, 0, 0, 7, 8]).unwrap().payload(), [7]);
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_emit(
            source_port: u16,
            destination_port: u16,
            payload: Vec<u8>,
            s: [u8; 16],
            d: [u8; 16],
        ) {
            let repr = Repr { source_port, destination_port, payload_len: payload.len() };
            let mut bytes = std::vec![0; HEADER_LEN + payload.len()];
            repr.emit(&mut bytes).unwrap();
            bytes[HEADER_LEN..].copy_from_slice(&payload);
            let mut packet = Packet::new_checked(&mut bytes).unwrap();
            packet.fill_checksum(s.into(), d.into()).unwrap();
            prop_assert!(packet.verify_checksum(s.into(), d.into()));
            prop_assert_ne!(packet.checksum(), 0);
            prop_assert_eq!(Repr::parse(&packet), repr);
            prop_assert_eq!(packet.payload(), payload);
        }

        #[test]
        fn never_panics(bytes: Vec<u8>, s: [u8; 4], d: [u8; 16]) {
            if let Ok(packet) = Packet::new_checked(&bytes) {
                let _ = Repr::parse(&packet);
                let _ = packet.verify_checksum(s.into(), s.into());
                let _ = packet.verify_checksum(s.into(), d.into());
                let _ = packet.payload();
            }
        }
    }
}
