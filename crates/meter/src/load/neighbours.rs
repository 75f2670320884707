//! Answers for addresses that a port of the tester stands for and no kernel has: ARP (RFC 826)
//! and neighbour discovery (RFC 4861). A router under test asks for them before it forwards.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sonde_wire::checksum;
use sonde_wire::ethernet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV6, ETHERTYPE_QINQ, ETHERTYPE_QINQ_OLD, ETHERTYPE_VLAN, Mac,
};
use sonde_wire::ipv6;

use super::AddressRule;

/// The addresses behind one port.
#[derive(Clone, Debug)]
pub struct NeighbourAnswers {
    mac: Mac,
    addresses: Vec<AddressRule>,
}

impl NeighbourAnswers {
    /// All of these are at `mac`.
    pub fn new(mac: Mac, addresses: Vec<AddressRule>) -> NeighbourAnswers {
        NeighbourAnswers { mac, addresses }
    }

    /// Octets that an answer takes, at most.
    pub const ANSWER_MAX: usize = ETHERNET_MAX + ipv6::HEADER_LEN + ADVERTISEMENT_LEN;

    /// If the frame asks for one of the addresses, writes the answer, in the same VLAN, and
    /// returns its length.
    pub fn answer(&self, frame: &[u8], out: &mut [u8; Self::ANSWER_MAX]) -> Option<usize> {
        let asker: Mac = *frame.get(6..12)?.first_chunk()?;
        let mut at = 12;
        let mut kind = u16::from_be_bytes(*frame.get(at..at + 2)?.first_chunk()?);
        while matches!(kind, ETHERTYPE_VLAN | ETHERTYPE_QINQ | ETHERTYPE_QINQ_OLD)
            && at < ETHERNET_MAX - 2
        {
            at += 4;
            kind = u16::from_be_bytes(*frame.get(at..at + 2)?.first_chunk()?);
        }
        let (header, body) = frame.split_at_checked(at + 2)?;
        out[..header.len()].copy_from_slice(header);
        out[..6].copy_from_slice(&asker);
        out[6..12].copy_from_slice(&self.mac);
        let rest = &mut out[header.len()..];
        let len = match kind {
            ETHERTYPE_ARP => self.answer_arp(body, rest),
            ETHERTYPE_IPV6 => self.answer_solicitation(body, rest),
            _ => None,
        }?;
        Some(header.len() + len)
    }

    /// Writes a frame that nobody asked for, in the VLANs of these tags (two at most), and returns
    /// its length. It is an ARP announcement (RFC 5227, section 3) or a neighbour advertisement
    /// (RFC 4861, section 7.2.6) of the first address. From it bridges learn where the port is (RFC
    /// 2544, section 23). `None`: there is no address.
    pub fn announce(&self, tags: &[u8], out: &mut [u8; Self::ANSWER_MAX]) -> Option<usize> {
        let address = self.addresses.first()?.first;
        let (to, kind): (Mac, u16) = match address {
            IpAddr::V4(_) => ([0xff; 6], ETHERTYPE_ARP),
            IpAddr::V6(_) => ([0x33, 0x33, 0, 0, 0, 1], ETHERTYPE_IPV6),
        };
        let header = [&to[..], &self.mac, tags, &kind.to_be_bytes()].concat();
        out[..header.len()].copy_from_slice(&header);
        let rest = &mut out[header.len()..];
        let len = match address {
            IpAddr::V4(address) => {
                rest[..8].copy_from_slice(&ARP_REQUEST);
                rest[8..14].copy_from_slice(&self.mac);
                rest[14..18].copy_from_slice(&address.octets());
                rest[18..24].fill(0);
                rest[24..28].copy_from_slice(&address.octets());
                ARP_LEN
            }
            // Override, and not solicited.
            IpAddr::V6(address) => self.advertise(address, ALL_NODES, 0x20, rest)?,
        };
        Some(header.len() + len)
    }

    fn answer_arp(&self, request: &[u8], out: &mut [u8]) -> Option<usize> {
        let request: &[u8; ARP_LEN] = request.first_chunk()?;
        if request[..8] != ARP_REQUEST {
            return None;
        }
        let target = Ipv4Addr::from(*request[24..].first_chunk::<4>()?);
        if !self.has(target.into()) {
            return None;
        }
        out[..8].copy_from_slice(&ARP_REQUEST);
        out[7] = 2; // a reply
        out[8..14].copy_from_slice(&self.mac);
        out[14..18].copy_from_slice(&target.octets());
        out[18..28].copy_from_slice(&request[8..18]);
        Some(ARP_LEN)
    }

    fn answer_solicitation(&self, packet: &[u8], out: &mut [u8]) -> Option<usize> {
        let packet: &[u8; ipv6::HEADER_LEN + 24] = packet.first_chunk()?;
        let icmp = &packet[ipv6::HEADER_LEN..];
        // RFC 4861, section 7.1.1: ICMPv6 by one hop, and of this kind.
        if packet[0] >> 4 != 6 || packet[6..8] != [58, 255] || icmp[..2] != [135, 0] {
            return None;
        }
        let source = Ipv6Addr::from(*packet[8..].first_chunk::<16>()?);
        let target = Ipv6Addr::from(*icmp[8..].first_chunk::<16>()?);
        // Somebody who looks for a duplicate of its address must not get one.
        if source.is_unspecified() || !self.has(target.into()) {
            return None;
        }
        // Solicited, and override.
        self.advertise(target, source, 0x60, out)
    }

    fn advertise(
        &self,
        target: Ipv6Addr,
        to: Ipv6Addr,
        flags: u8,
        out: &mut [u8],
    ) -> Option<usize> {
        let header = ipv6::Repr {
            source: target,
            destination: to,
            next_header: 58,
            hop_limit: 255,
            traffic_class: 0,
            flow_label: 0,
            payload_len: ADVERTISEMENT_LEN,
        };
        header.emit(out).ok()?;
        let icmp = &mut out[ipv6::HEADER_LEN..][..ADVERTISEMENT_LEN];
        icmp.fill(0);
        icmp[0] = 136; // Neighbour Advertisement
        icmp[4] = flags;
        icmp[8..24].copy_from_slice(&target.octets());
        icmp[24..26].copy_from_slice(&[2, 1]); // target link-layer address, 8 octets
        icmp[26..32].copy_from_slice(&self.mac);
        let len = ADVERTISEMENT_LEN as u32;
        let pseudo = checksum::pseudo(target.into(), to.into(), 58, len)?;
        let sum = checksum::finish(checksum::combine(pseudo, checksum::sum(icmp)));
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        Some(ipv6::HEADER_LEN + ADVERTISEMENT_LEN)
    }

    fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|rule| rule.contains(address))
    }
}

/// With two VLAN tags.
const ETHERNET_MAX: usize = 22;
const ARP_LEN: usize = 28;
/// Ethernet, IPv4, lengths of their addresses, a request.
const ARP_REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Neighbour Advertisement with the target's link-layer address.
const ADVERTISEMENT_LEN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sonde_wire::icmp;
    use sonde_wire::icmp::Version;

    const OURS: Mac = [2, 0, 0, 0, 0, 1];

    fn neighbours() -> NeighbourAnswers {
        let rule = |a: &str| AddressRule { count: 4, ..AddressRule::fixed(a.parse().unwrap()) };
        NeighbourAnswers::new(OURS, vec![rule("198.18.0.2"), rule("2001:2::2")])
    }

    fn request(target: [u8; 4], tag: &[u8]) -> Vec<u8> {
        let head = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], tag, &[8, 6]].concat();
        let arp = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 198, 18, 0, 1];
        [&head[..], &arp, &[0; 6], &target, &[0; 18]].concat()
    }

    #[test]
    fn arp_is_answered_for_what_is_behind_the_port() {
        let mut out = [0; NeighbourAnswers::ANSWER_MAX];
        for tag in [&[][..], &[0x81, 0, 0, 7]] {
            let len = neighbours().answer(&request([198, 18, 0, 5], tag), &mut out).unwrap();
            let head = [&[2, 0, 0, 0, 0, 9][..], &OURS, tag, &[8, 6]].concat();
            assert_eq!((out[..head.len()].to_vec(), len), (head.clone(), head.len() + 28));
            let arp = &out[head.len()..len];
            assert_eq!(arp[..8], [0, 1, 8, 0, 6, 4, 0, 2]);
            assert_eq!(arp[8..18], [2, 0, 0, 0, 0, 1, 198, 18, 0, 5]);
            assert_eq!(arp[18..], [2, 0, 0, 0, 0, 9, 198, 18, 0, 1]);
        }
        assert_eq!(neighbours().answer(&request([198, 18, 0, 6], &[]), &mut out), None);
    }

    #[test]
    fn solicitations_are_answered_with_a_right_checksum() {
        let mut frame = vec![0x33, 0x33, 0xff, 0, 0, 3, 2, 0, 0, 0, 0, 9, 0x86, 0xdd];
        let (source, target): (Ipv6Addr, Ipv6Addr) =
            ("fe80::9".parse().unwrap(), "2001:2::3".parse().unwrap());
        frame.extend([0x60, 0, 0, 0, 0, 24, 58, 255]);
        frame.extend(source.octets());
        frame.extend("ff02::1:ff00:3".parse::<Ipv6Addr>().unwrap().octets());
        frame.extend([135, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(target.octets());
        let mut out = [0; NeighbourAnswers::ANSWER_MAX];
        let len = neighbours().answer(&frame, &mut out).unwrap();
        assert_eq!(out[..14], [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x86, 0xdd]);
        let packet = icmp::Packet::new_checked(&out[54..len]).unwrap();
        let version = Version::V6 { source: target, destination: source };
        assert!(packet.verify_checksum(version) && packet.kind() == 136);
        // A search for duplicates, one from afar, another address.
        for (at, octet) in [(21usize, 254u8), (14 + 40 + 8 + 15, 9)] {
            let mut other = frame.clone();
            other[at] = octet;
            assert_eq!(neighbours().answer(&other, &mut out), None);
        }
        frame[22..38].fill(0);
        assert_eq!(neighbours().answer(&frame, &mut out), None);
    }

    #[test]
    fn a_port_is_announced_to_the_bridges_before_it() {
        let mut out = [0; NeighbourAnswers::ANSWER_MAX];
        let tag = [0x81, 0, 0, 7];
        let len = neighbours().announce(&tag, &mut out).unwrap();
        let head = [&[0xff; 6][..], &OURS, &tag, &[8, 6]].concat();
        assert_eq!((out[..head.len()].to_vec(), len), (head.clone(), head.len() + 28));
        let arp = &out[head.len()..len];
        assert_eq!(arp[..18], [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 198, 18, 0, 2]);
        assert_eq!(arp[18..], [0, 0, 0, 0, 0, 0, 198, 18, 0, 2]);
        let mut sixes = neighbours();
        sixes.addresses.remove(0);
        let len = sixes.announce(&[], &mut out).unwrap();
        assert_eq!(out[..14], [0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x86, 0xdd]);
        let packet = icmp::Packet::new_checked(&out[54..len]).unwrap();
        let source = "2001:2::2".parse().unwrap();
        let version = Version::V6 { source, destination: ALL_NODES };
        assert!(packet.verify_checksum(version) && packet.kind() == 136);
        assert_eq!(NeighbourAnswers::new(OURS, Vec::new()).announce(&[], &mut out), None);
    }

    proptest! {
        #[test]
        fn no_frame_makes_it_fail(frame in prop::collection::vec(any::<u8>(), 0..100)) {
            neighbours().answer(&frame, &mut [0; NeighbourAnswers::ANSWER_MAX]);
        }
    }
}
