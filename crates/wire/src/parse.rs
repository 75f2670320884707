//! One pass from the Ethernet header to the UDP payload, for the hot path.

use core::net::IpAddr;
use core::ops::Range;

use crate::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, MAX_TAGS, header};
use crate::field::{array_at, u16_at};
use crate::ipv4::{self, PROTOCOL_UDP};
use crate::{Error, checksum, ipv6, udp};

/// Where everything of a UDP packet lies, and what its headers say.
///
/// All offsets count from the start of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpFrame {
    /// Where the IP header begins.
    pub l3_offset: usize,
    /// Where the UDP header begins.
    pub l4_offset: usize,
    /// UDP payload: within UDP length and IP length, never the frame's padding.
    pub payload: Range<usize>,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub destination_port: u16,
    /// TTL or hop limit.
    pub ttl: u8,
    /// 0..=63.
    pub dscp: u8,
    /// 0..=3.
    pub ecn: u8,
    /// VLAN tags in front of IP, 0..=2: more are not read.
    pub vlan_count: u8,
    /// Tag control information, outermost first; 0 where there is no tag.
    pub vlan_tci: [u16; MAX_TAGS],
    pub is_ipv6: bool,
}

/// Finds the UDP datagram in an Ethernet frame: up to two VLAN tags, IPv4 with options,
/// IPv6 with extension headers. A fragment is [`Error::Fragment`]; neither checksum is
/// looked at ([`verify_udp`] does).
#[inline]
pub fn parse_udp(frame: &[u8]) -> Result<UdpFrame, Error> {
    let (l3_offset, ethertype, vlan_count) = header(frame)?;
    let mut vlan_tci = [0; MAX_TAGS];
    for (i, tci) in vlan_tci.iter_mut().enumerate().take(vlan_count) {
        *tci = u16_at(frame, 14 + 4 * i);
    }
    let packet = &frame[l3_offset..];
    let (l4, end, source, destination, ttl, tos) = match ethertype {
        ETHERTYPE_IPV4 => {
            let (header_len, total_len) = ipv4::lengths(packet)?;
            // More Fragments, or an offset.
            if u16_at(packet, 6) & 0x3FFF != 0 {
                return Err(Error::Fragment);
            }
            if packet[9] != PROTOCOL_UDP {
                return Err(Error::Protocol);
            }
            let source = IpAddr::from(array_at::<4>(packet, 12));
            let destination = IpAddr::from(array_at::<4>(packet, 16));
            (header_len, total_len, source, destination, packet[8], packet[1])
        }
        ETHERTYPE_IPV6 => {
            let total_len = ipv6::total_len(packet)?;
            let mut l4 = ipv6::HEADER_LEN;
            if packet[6] != PROTOCOL_UDP {
                let upper = ipv6::upper_layer(packet[6], &packet[l4..total_len])?;
                if upper.fragment.is_some_and(|f| !f.is_atomic()) {
                    return Err(Error::Fragment);
                }
                if upper.protocol != PROTOCOL_UDP {
                    return Err(Error::Protocol);
                }
                l4 += upper.offset;
            }
            let source = IpAddr::from(array_at::<16>(packet, 8));
            let destination = IpAddr::from(array_at::<16>(packet, 24));
            let tos = (u16_at(packet, 0) >> 4) as u8;
            (l4, total_len, source, destination, packet[7], tos)
        }
        _ => return Err(Error::EtherType),
    };
    let datagram = &packet[l4..end];
    let length = udp::length(datagram)?;
    let l4_offset = l3_offset + l4;
    Ok(UdpFrame {
        l3_offset,
        l4_offset,
        payload: l4_offset + udp::HEADER_LEN..l4_offset + length,
        source,
        destination,
        source_port: u16_at(datagram, 0),
        destination_port: u16_at(datagram, 2),
        ttl,
        dscp: tos >> 2,
        ecn: tos & 3,
        vlan_count: vlan_count as u8,
        vlan_tci,
        is_ipv6: ethertype == ETHERTYPE_IPV6,
    })
}

/// The UDP checksum of a frame that [`parse_udp`] has read is right, or absent over IPv4.
#[inline]
pub fn verify_udp(frame: &[u8], found: &UdpFrame) -> bool {
    frame
        .get(found.l4_offset..found.payload.end)
        .and_then(|datagram| udp::Packet::new_checked(datagram).ok())
        .is_some_and(|datagram| datagram.verify_checksum(found.source, found.destination))
}

/// The UDP checksum of a frame that [`parse_udp`] has read does not show it damaged. It is right,
/// or absent over IPv4 (RFC 768; over IPv6 it must be there, RFC 8200 section 8.1), or the sum of
/// the pseudo-header alone. The last is what a sending kernel leaves for the card to complete. It
/// arrives so where there is no card: over veth, on the same host.
#[inline]
pub fn udp_intact(frame: &[u8], found: &UdpFrame) -> bool {
    let Some(datagram) = frame.get(found.l4_offset..found.payload.end) else { return false };
    let field = u16_at(datagram, 6);
    let length = datagram.len() as u32;
    let pseudo = checksum::pseudo(found.source, found.destination, PROTOCOL_UDP, length);
    let pseudo = pseudo.unwrap_or(0);
    field == 0 && !found.is_ipv6
        || field == checksum::fold(pseudo)
        || checksum::fold(pseudo + checksum::sum(datagram)) == 0xFFFF
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::emit_udp_ip;
    use crate::ethernet::{self, Tag, Tags};
    use core::net::SocketAddr;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    /// A whole frame with `padding` octets after the IP packet.
    fn frame(
        src: SocketAddr,
        dst: SocketAddr,
        tags: &[Tag],
        payload: &[u8],
        padding: usize,
    ) -> Vec<u8> {
        let ethertype = if src.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
        let link = ethernet::Repr {
            destination: [2; 6],
            source: [4; 6],
            tags: Tags::new(tags).unwrap(),
            ethertype,
        };
        let mut bytes = std::vec![0; 128 + payload.len()];
        let mut at = link.emit(&mut bytes).unwrap();
        at += emit_udp_ip(&mut bytes[at..], src, dst, 0xBA, 99, payload.len()).unwrap();
        bytes.truncate(at);
        bytes.extend(payload);
        bytes.extend(std::iter::repeat_n(0x5A, padding));
        bytes
    }

    fn v4() -> (SocketAddr, SocketAddr) {
        ("192.0.2.1:4000".parse().unwrap(), "198.51.100.7:862".parse().unwrap())
    }

    fn v6() -> (SocketAddr, SocketAddr) {
        ("[2001:db8::1]:4000".parse().unwrap(), "[2001:db8::2]:862".parse().unwrap())
    }

    #[test]
    fn finds_the_payload_and_leaves_padding_out() {
        let qinq = [Tag { tpid: 0x88A8, tci: 100 }, Tag { tpid: 0x8100, tci: 0x2005 }];
        for (src, dst) in [v4(), v6()] {
            for count in 0..=2 {
                let bytes = frame(src, dst, &qinq[..count], b"probe", 30);
                let found = parse_udp(&bytes).unwrap();
                assert_eq!(&bytes[found.payload.clone()], b"probe");
                assert_eq!(found.l3_offset, 14 + 4 * count);
                assert_eq!(found.l4_offset, found.payload.start - 8);
                assert_eq!((found.source, found.source_port), (src.ip(), 4000));
                assert_eq!((found.destination, found.destination_port), (dst.ip(), 862));
                assert_eq!((found.ttl, found.dscp, found.ecn), (99, 46, 2));
                assert_eq!(usize::from(found.vlan_count), count);
                for (i, tag) in qinq.iter().enumerate() {
                    assert_eq!(found.vlan_tci[i], if i < count { tag.tci } else { 0 });
                }
                assert_eq!(found.is_ipv6, src.is_ipv6());
                for len in 0..found.payload.end {
                    assert_eq!(parse_udp(&bytes[..len]), Err(Error::Truncated), "{len}");
                }
            }
        }
    }

    #[test]
    fn udp_length_beyond_the_ip_packet_is_truncated_even_with_padding() {
        let (src, dst) = v4();
        let mut bytes = frame(src, dst, &[], b"probe", 30);
        bytes[14 + 20 + 5] += 1;
        assert_eq!(parse_udp(&bytes), Err(Error::Truncated));
        bytes[14 + 20 + 5] -= 2;
        let found = parse_udp(&bytes).unwrap();
        assert_eq!(&bytes[found.payload], b"prob");
    }

    #[test]
    fn each_refusal_has_its_name() {
        let (src, dst) = v4();
        let good = frame(src, dst, &[], b"probe", 0);
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            parse_udp(&bytes).unwrap_err()
        };
        assert_eq!(with(13, 0x06), Error::EtherType);
        assert_eq!(with(14, 0x65), Error::Version);
        assert_eq!(with(14, 0x44), Error::Length);
        assert_eq!(with(20, 0x20), Error::Fragment);
        assert_eq!(with(21, 0x01), Error::Fragment);
        assert_eq!(with(23, 6), Error::Protocol);
        // The reserved bit and Don't Fragment do not make a fragment.
        let mut bytes = good.clone();
        bytes[20] = 0xC0;
        assert!(parse_udp(&bytes).is_ok());
    }

    #[test]
    fn ipv6_extension_headers() {
        let (src, dst) = v6();
        let good = frame(src, dst, &[], b"probe", 0);
        let insert = |kind: u8, header: [u8; 8]| {
            let mut bytes = good.clone();
            bytes[14 + 6] = kind;
            bytes[14 + 5] += 8;
            bytes.splice(54..54, header);
            bytes
        };
        let bytes = insert(ipv6::DESTINATION, [17, 0, 1, 4, 0, 0, 0, 0]);
        let found = parse_udp(&bytes).unwrap();
        assert_eq!(&bytes[found.payload], b"probe");
        assert_eq!(found.l4_offset, 14 + 48);
        assert!(parse_udp(&insert(ipv6::FRAGMENT, [17, 0, 0, 0, 0, 0, 0, 1])).is_ok());
        for field in [1, 8] {
            let bytes = insert(ipv6::FRAGMENT, [17, 0, 0, field, 0, 0, 0, 1]);
            assert_eq!(parse_udp(&bytes), Err(Error::Fragment));
        }
        let bytes = insert(ipv6::DESTINATION, [6, 0, 1, 4, 0, 0, 0, 0]);
        assert_eq!(parse_udp(&bytes), Err(Error::Protocol));
        let bytes = insert(ipv6::ESP, [17, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse_udp(&bytes), Err(Error::Protocol));
    }

    #[test]
    fn damage_is_distinguished_from_an_unfinished_checksum() {
        for (source, destination) in [("10.0.0.1:5", "10.0.0.2:6"), ("[fd00::1]:5", "[fd00::2]:6")]
        {
            let source: SocketAddr = source.parse().unwrap();
            let destination = destination.parse::<SocketAddr>().unwrap();
            let mut bytes = frame(source, destination, &[], &[1, 2, 3, 4, 5], 3);
            let found = parse_udp(&bytes).unwrap();
            let udp = found.l4_offset;
            assert_eq!(udp_intact(&bytes, &found), source.is_ipv4(), "none");
            let sum = crate::build::udp_header_sum(source, destination, 5).unwrap();
            crate::build::finish_udp(&mut bytes[udp..found.payload.end], sum, 5).unwrap();
            assert!(udp_intact(&bytes, &found) && verify_udp(&bytes, &found));
            for at in udp..found.payload.end {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                let found = parse_udp(&damaged);
                assert!(found.is_err() || !udp_intact(&damaged, &found.unwrap()), "octet {at}");
            }
            let pseudo = checksum::pseudo(source.ip(), destination.ip(), PROTOCOL_UDP, 13).unwrap();
            bytes[udp + 6..udp + 8].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
            assert!(udp_intact(&bytes, &found) && !verify_udp(&bytes, &found), "partial");
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let _ = parse_udp(&bytes);
        }

        #[test]
        fn never_panics_on_a_mutated_packet(
            is_v6: bool,
            padding in 0usize..20,
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
            cut: proptest::sample::Index,
        ) {
            let (src, dst) = if is_v6 { v6() } else { v4() };
            let tag = Tag { tpid: 0x8100, tci: 7 };
            let mut bytes = frame(src, dst, &[tag], &[7; 44], padding);
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            if let Ok(found) = parse_udp(&bytes) {
                prop_assert!(found.payload.start <= found.payload.end);
                prop_assert!(found.payload.end <= bytes.len());
                let _ = verify_udp(&bytes, &found);
            }
        }
    }
}
