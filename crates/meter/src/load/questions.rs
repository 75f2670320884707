//! Questions for the MAC address of a neighbour, and what the answers say: ARP (RFC 826) and
//! neighbour discovery (RFC 4861). An emulated device asks for its gateway.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sonde_wire::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV6, Mac};
use sonde_wire::icmp::Version;
use sonde_wire::{checksum, icmp, ipv6};

/// A frame from `own` at `mac` that asks who has `target`. `None`: the families differ.
pub fn question(mac: Mac, own: IpAddr, target: IpAddr) -> Option<Vec<u8>> {
    let mut frame = match (own, target) {
        (IpAddr::V4(own), IpAddr::V4(target)) => arp(mac, own, target),
        (IpAddr::V6(own), IpAddr::V6(target)) => solicitation(mac, own, target)?,
        _ => return None,
    };
    frame.resize(frame.len().max(SHORTEST), 0);
    Some(frame)
}

/// Which address an answer is for, and the MAC address that has it. `None`: no answer.
pub fn answered(frame: &[u8]) -> Option<(IpAddr, Mac)> {
    let (header, body) = frame.split_first_chunk::<14>()?;
    match u16::from_be_bytes([header[12], header[13]]) {
        ETHERTYPE_ARP => {
            let reply: &[u8; 28] = body.first_chunk()?;
            if reply[..8] != [0, 1, 8, 0, 6, 4, 0, 2] {
                return None;
            }
            let address = Ipv4Addr::from(*reply[14..].first_chunk::<4>()?);
            Some((address.into(), *reply[8..].first_chunk()?))
        }
        ETHERTYPE_IPV6 => {
            let (ip, rest) = body.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
            let len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
            let message = rest.get(..len).filter(|m| m.len() >= 24)?;
            // RFC 4861, section 7.1.2: ICMPv6 by one hop, of this kind, and whole.
            if ip[0] >> 4 != 6 || ip[6..8] != [58, 255] || message[..2] != [136, 0] {
                return None;
            }
            let source = Ipv6Addr::from(*ip[8..].first_chunk::<16>()?);
            let destination = Ipv6Addr::from(*ip[24..].first_chunk::<16>()?);
            let packet = icmp::Packet::new_checked(message).ok()?;
            if !packet.verify_checksum(Version::V6 { source, destination }) {
                return None;
            }
            let target = Ipv6Addr::from(*message[8..].first_chunk::<16>()?);
            // To a question from one address the option may be left out (section 4.4).
            let mac = match message.get(24..32) {
                Some([2, 1, mac @ ..]) => *mac.first_chunk()?,
                _ => *header[6..].first_chunk()?,
            };
            Some((target.into(), mac))
        }
        _ => None,
    }
}

fn arp(mac: Mac, own: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &mac, &ETHERTYPE_ARP.to_be_bytes()].concat();
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend(own.octets());
    frame.extend([0; 6]);
    frame.extend(target.octets());
    frame
}

fn solicitation(mac: Mac, own: Ipv6Addr, target: Ipv6Addr) -> Option<Vec<u8>> {
    // RFC 4291, section 2.7.1: the group of all that end in the same 24 bits; RFC 2464.
    let end = *target.octets().last_chunk::<3>()?;
    let group = Ipv6Addr::from(0xff02_0000_0000_0000_0000_0001_ff00_0000 | last(end));
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    message.extend([1, 1]); // source link-layer address, 8 octets
    message.extend(mac);
    let len = message.len();
    let pseudo = checksum::pseudo(own.into(), group.into(), 58, len as u32)?;
    let sum = checksum::finish(checksum::combine(pseudo, checksum::sum(&message)));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = ipv6::Repr {
        source: own,
        destination: group,
        next_header: 58,
        hop_limit: 255,
        traffic_class: 0,
        flow_label: 0,
        payload_len: len,
    };
    let mut ip = [0; ipv6::HEADER_LEN];
    header.emit(&mut ip).ok()?;
    let kind = ETHERTYPE_IPV6.to_be_bytes();
    Some([&[0x33, 0x33, 0xff][..], &end, &mac, &kind, &ip, &message].concat())
}

fn last(end: [u8; 3]) -> u128 {
    u128::from(u32::from_be_bytes([0, end[0], end[1], end[2]]))
}

/// Octets of a frame without the FCS, at least.
const SHORTEST: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{AddressRule, NeighbourAnswers};
    use proptest::prelude::*;

    const ASKER: Mac = [2, 0, 0, 0, 0, 1];
    const OTHER: Mac = [2, 0, 0, 0, 0, 2];

    #[test]
    fn what_is_asked_is_answered_and_understood() {
        for (own, target) in [("198.18.0.2", "198.18.0.1"), ("2001:2::2", "2001:2::ab:cdef")] {
            let (own, target): (IpAddr, IpAddr) = (own.parse().unwrap(), target.parse().unwrap());
            let frame = question(ASKER, own, target).unwrap();
            assert!(frame.len() >= 60 && answered(&frame).is_none());
            let mut out = [0; NeighbourAnswers::ANSWER_MAX];
            let there = NeighbourAnswers::new(OTHER, vec![AddressRule::fixed(target)]);
            let len = there.answer(&frame, &mut out).unwrap();
            assert_eq!(out[..6], ASKER);
            assert_eq!(answered(&out[..len]), Some((target, OTHER)));
            let elsewhere = NeighbourAnswers::new(OTHER, vec![AddressRule::fixed(own)]);
            assert_eq!(elsewhere.answer(&frame, &mut out), None);
        }
        assert!(question(ASKER, [198, 18, 0, 1].into(), Ipv6Addr::LOCALHOST.into()).is_none());
    }

    #[test]
    fn solicitations_go_to_the_groups_mac_with_a_right_checksum() {
        let (own, target): (Ipv6Addr, Ipv6Addr) =
            ("2001:2::2".parse().unwrap(), "2001:2::ab:cdef".parse().unwrap());
        let frame = question(ASKER, own.into(), target.into()).unwrap();
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0xab, 0xcd, 0xef]);
        let group: Ipv6Addr = "ff02::1:ffab:cdef".parse().unwrap();
        assert_eq!(frame[38..54], group.octets());
        let packet = icmp::Packet::new_checked(&frame[54..86]).unwrap();
        assert!(packet.verify_checksum(Version::V6 { source: own, destination: group }));
    }

    proptest! {
        #[test]
        fn no_frame_makes_it_fail(
            kind in prop::sample::select(vec![[8u8, 6], [0x86, 0xdd]]),
            mut frame in prop::collection::vec(any::<u8>(), 14..120),
        ) {
            frame[12..14].copy_from_slice(&kind);
            answered(&frame);
        }
    }
}
