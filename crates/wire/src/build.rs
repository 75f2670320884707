//! Writes the headers of a UDP packet, and its checksum from sums that were made before.

use core::net::{IpAddr, SocketAddr};

use crate::field::put_u16;
use crate::ipv4::{self, Options, PROTOCOL_UDP};
use crate::{Error, checksum, ipv6, udp};

/// Writes IP and UDP header in front of a payload of `payload_len` octets that goes to
/// `buffer[returned length..]`.
///
/// `tos` is DSCP (high 6 bits) and ECN. The IPv4 header is complete, with Don't Fragment and
/// identification 0 (an atomic datagram, RFC 6864 section 4.1). The IPv6 flow label is 0, the UDP
/// checksum 0 until [`finish_udp`].
///
/// [`Error::AddressFamily`], [`Error::Range`] (too long) or [`Error::NoRoom`] (the
/// headers do not fit; the payload need not).
pub fn emit_udp_ip(
    buffer: &mut [u8],
    source: SocketAddr,
    destination: SocketAddr,
    tos: u8,
    ttl: u8,
    payload_len: usize,
) -> Result<usize, Error> {
    let datagram_len = payload_len.saturating_add(udp::HEADER_LEN);
    let len = match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => ipv4::Repr {
            source,
            destination,
            protocol: PROTOCOL_UDP,
            tos,
            ttl,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            options: Options::NONE,
            payload_len: datagram_len,
        }
        .emit(buffer)?,
        (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Repr {
            source,
            destination,
            next_header: PROTOCOL_UDP,
            hop_limit: ttl,
            traffic_class: tos,
            flow_label: 0,
            payload_len: datagram_len,
        }
        .emit(buffer)?,
        _ => return Err(Error::AddressFamily),
    };
    let header =
        udp::Repr { source_port: source.port(), destination_port: destination.port(), payload_len };
    Ok(len + header.emit(&mut buffer[len..])?)
}

/// Partial sum of UDP pseudo-header and header: all of the checksum but the payload.
///
/// It depends only on the 4-tuple and the length, so a sender computes it once a stream.
pub fn udp_header_sum(
    source: SocketAddr,
    destination: SocketAddr,
    payload_len: usize,
) -> Result<u32, Error> {
    let len =
        u16::try_from(payload_len.saturating_add(udp::HEADER_LEN)).map_err(|_| Error::Range)?;
    let pseudo = checksum::pseudo(source.ip(), destination.ip(), PROTOCOL_UDP, u32::from(len))
        .ok_or(Error::AddressFamily)?;
    Ok(pseudo + u32::from(source.port()) + u32::from(destination.port()) + u32::from(len))
}

/// Stores the checksum of a datagram. `partial` is the sum of everything but the first `changing`
/// octets of the payload, which are added here. That is the whole payload when `partial` is
/// [`udp_header_sum`] alone. It is less when the sum of a constant rest was added to that.
///
/// `changing` must be even, or reach the end of the payload.
#[inline]
pub fn finish_udp(datagram: &mut [u8], partial: u32, changing: usize) -> Result<(), Error> {
    if datagram.len() < udp::HEADER_LEN {
        return Err(Error::NoRoom);
    }
    let (header, payload) = datagram.split_at_mut(udp::HEADER_LEN);
    let changing = changing.min(payload.len());
    if !changing.is_multiple_of(2) && changing != payload.len() {
        return Err(Error::Range);
    }
    let sum = checksum::combine(partial, checksum::sum(&payload[..changing]));
    put_u16(header, 6, checksum::finish_udp(sum));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    fn pair(is_v6: bool, s: [u8; 16], d: [u8; 16], ports: (u16, u16)) -> (SocketAddr, SocketAddr) {
        let address = |octets: [u8; 16]| match is_v6 {
            true => IpAddr::from(octets),
            false => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
        };
        (SocketAddr::new(address(s), ports.0), SocketAddr::new(address(d), ports.1))
    }

    #[test]
    fn refusals() {
        let v4: SocketAddr = "192.0.2.1:1".parse().unwrap();
        let v6: SocketAddr = "[::1]:1".parse().unwrap();
        let mut buffer = [0; 64];
        assert_eq!(emit_udp_ip(&mut buffer, v4, v6, 0, 1, 0), Err(Error::AddressFamily));
        assert_eq!(udp_header_sum(v4, v6, 0), Err(Error::AddressFamily));
        assert_eq!(emit_udp_ip(&mut buffer, v4, v4, 0, 1, 65_508), Err(Error::Range));
        assert_eq!(emit_udp_ip(&mut buffer, v4, v4, 0, 1, usize::MAX), Err(Error::Range));
        assert_eq!(emit_udp_ip(&mut buffer, v4, v4, 0, 1, 65_507), Ok(28));
        assert_eq!(emit_udp_ip(&mut buffer[..27], v4, v4, 0, 1, 0), Err(Error::NoRoom));
        assert_eq!(emit_udp_ip(&mut buffer[..47], v6, v6, 0, 1, 0), Err(Error::NoRoom));
        assert_eq!(emit_udp_ip(&mut buffer, v6, v6, 0, 1, 65_527), Ok(48));
        assert_eq!(finish_udp(&mut [0; 7], 0, 0), Err(Error::NoRoom));
        assert_eq!(finish_udp(&mut [0; 12], 0, 3), Err(Error::Range));
        assert_eq!(finish_udp(&mut [0; 11], 0, 3), Ok(()));
    }

    proptest! {
        #[test]
        fn the_checksum_from_parts_is_right(
            is_v6: bool, s: [u8; 16], d: [u8; 16], ports: (u16, u16), tos: u8, ttl: u8,
            payload: Vec<u8>, cut: proptest::sample::Index,
        ) {
            let (source, destination) = pair(is_v6, s, d, ports);
            let mut bytes = std::vec![0; 48 + payload.len()];
            let at =
                emit_udp_ip(&mut bytes, source, destination, tos, ttl, payload.len()).unwrap();
            bytes.truncate(at + payload.len());
            bytes[at..].copy_from_slice(&payload);
            let header = udp_header_sum(source, destination, payload.len()).unwrap();
            let datagram = &mut bytes[at - 8..];
            let verify = |datagram: &[u8]| {
                udp::Packet::new_checked(datagram)
                    .unwrap()
                    .verify_checksum(source.ip(), destination.ip())
            };
            finish_udp(datagram, header, payload.len()).unwrap();
            prop_assert!(verify(datagram));
            let whole = datagram[6..8].to_vec();
            // The same with the tail summed before.
            let cut = cut.index(payload.len() / 2 + 1) * 2;
            let tail = checksum::sum(&payload[cut.min(payload.len())..]);
            finish_udp(datagram, header + tail, cut).unwrap();
            prop_assert_eq!(&datagram[6..8], &whole[..]);
            if !is_v6 {
                let ip = ipv4::Packet::new_checked(&bytes).unwrap();
                prop_assert!(ip.verify_checksum());
                prop_assert_eq!((ip.tos(), ip.ttl()), (tos, ttl));
            }
        }
    }
}
