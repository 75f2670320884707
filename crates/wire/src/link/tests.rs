//! Headers of links, made by hand from their standards.

use super::*;

extern crate std;
use std::vec;
use std::vec::Vec;

/// What may stand before a packet of this EtherType, and the VLAN that it names. Those of
/// Ethernet, PPP and cooked captures are in the tests of `flow`.
pub(crate) fn headers(ethertype: u16) -> Vec<(Vec<u8>, LinkType, u16)> {
    let kind = ethertype.to_be_bytes();
    let addresses = [[2u8; 6], [4; 6]].concat();
    let llc = [&[0xAA, 0xAA, 3, 0, 0, 0][..], &kind].concat();
    let hsr = [&[0x89, 0x2F, 0x00, 0x34, 0x12, 0x34][..], &kind].concat();
    let backbone = [&[0x88, 0xE7, 0, 0, 0, 9][..], &[6; 12], &kind].concat();
    let backbone_tagged = [&[0x88, 0xA8, 0, 77][..], &backbone].concat();
    let fabric = [&[0x89, 0x03, 0x00, 0x60][..], &[6; 12], &[0x81, 0, 0, 7], &kind].concat();
    let vn_tag = [&[0x89, 0x26, 0x80, 0, 0x40, 7][..], &kind].concat();
    let vlan_inside = [&[0x89, 0x26, 0, 9, 0, 0][..], &[0x81, 0, 0, 8], &kind].concat();
    let inner_tag = [&[0x88, 0xE7, 0, 0, 0, 9][..], &[6; 12], &[0x81, 0, 0, 5], &kind].concat();
    let mut all = Vec::new();
    let tags = [
        (hsr, 0),
        (backbone, 0),
        (backbone_tagged, 77),
        (inner_tag, 5),
        (vn_tag, 0),
        (fabric, 7),
        (vlan_inside, 8),
    ];
    for (tag, vlan) in tags {
        let frame = [&addresses[..], &tag].concat();
        all.push(([&[0, 0, 16, 0, 1, 0, 0, 0][..], &[9; 8], &frame].concat(), LinkType::Ppi, vlan));
        all.push((frame, LinkType::Ethernet, vlan));
    }
    all.push((vec![0, 0, 8, 0, 101, 0, 0, 0], LinkType::Ppi, 0));
    all.push(([&[0x54][..], &addresses, &llc].concat(), LinkType::Fddi, 0));
    for big in [false, true] {
        let u16 = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let attribute = |kind: u16, value: &[u8]| {
            let mut octets = [&u16(4 + value.len() as u16), &u16(kind), value].concat();
            octets.resize(octets.len().next_multiple_of(4), 0);
            octets
        };
        // Packet header, prefix, and the packet, whose length does not matter.
        let log = [
            vec![2, 0, 0, 5],
            attribute(1, &[8, 0, 3, 0]),
            attribute(10, b"forwarded\0"),
            [u16(200), u16(9)].concat(),
        ];
        all.push((log.concat(), LinkType::Nflog, 0));
    }
    let mac = |control: [u8; 2]| [&control[..], &[0; 2], &[1; 18], &[0x30, 0x12]].concat();
    let part = [&[7; 12][..], &[0, 99], &llc].concat();
    let frames = [
        ([mac([0x08, 0x01]), llc.clone()].concat(), false),
        ([mac([0x08, 0x0A]), llc.clone()].concat(), false),
        ([mac([0x88, 0x02]), vec![0, 0], llc.clone()].concat(), true),
        ([mac([0x08, 0x03]), vec![9; 6], llc.clone()].concat(), true),
        ([mac([0x88, 0x03]), vec![9; 6], vec![5, 0], llc.clone()].concat(), false),
        ([mac([0x88, 0x81]), vec![0, 0, 1, 2, 3, 4], llc.clone()].concat(), true),
        ([mac([0x88, 0x01]), vec![0x80, 0], part].concat(), true),
    ];
    for (frame, has_odd_length) in frames {
        let plain = vec![0, 0, 8, 0, 0, 0, 0, 0];
        let clock = [&[0, 0, 18, 0, 0x23, 0, 0, 0][..], &[9; 8], &[0x10, 4]].concat();
        let masks =
            [&[0, 0, 25, 0, 3, 0, 0, 0x80][..], &[0; 4], &[0; 4], &[9; 8], &[0x10]].concat();
        let ppi = vec![0, 0, 8, 0, 105, 0, 0, 0];
        let prism = |len: [u8; 4]| [&[0, 0, 0, 0x44][..], &len, &[0; 136]].concat();
        let avs = [&[0x80, 0x21, 0x10, 1, 0, 0, 0, 64][..], &[0; 56]].concat();
        let headers = [
            (vec![], LinkType::Wlan),
            (ppi, LinkType::Ppi),
            (prism([144, 0, 0, 0]), LinkType::Prism),
            (prism([0, 0, 0, 144]), LinkType::Prism),
            (avs, LinkType::Prism),
        ];
        let radiotap = [plain, clock, masks].map(|header| (header, LinkType::Radiotap));
        for (header, link) in headers.into_iter().chain(radiotap) {
            all.push(([header, frame.clone()].concat(), link, 0));
        }
        // Two octets fill the 802.11 header up to a multiple of four.
        if has_odd_length && frame[24..26] == [0, 0] && frame[1] & 0x80 == 0 {
            let padded = [&frame[..26], &[0; 2], &frame[26..]].concat();
            let header = vec![0, 0, 9, 0, 2, 0, 0, 0, 0x20];
            all.push(([header, padded].concat(), LinkType::Radiotap, 0));
        }
    }
    all
}

#[test]
fn what_of_a_wireless_network_cannot_be_read_is_counted_by_kind() {
    let of = |control: [u8; 2]| [&control[..], &[0; 40]].concat();
    let radiotap =
        |flags: u8, frame: Vec<u8>| [&[0, 0, 9, 0, 2, 0, 0, 0, flags][..], &frame].concat();
    for (frame, link, kind) in [
        (of([0x80, 0]), LinkType::Wlan, Some(WlanKind::NoData)), // Beacon.
        (of([0xD4, 0]), LinkType::Wlan, Some(WlanKind::NoData)), // Acknowledgement.
        (of([0x48, 1]), LinkType::Wlan, Some(WlanKind::NoData)), // Null function.
        (of([0xC8, 1]), LinkType::Wlan, Some(WlanKind::NoData)), // The same with QoS.
        (of([0x08, 0x41]), LinkType::Wlan, Some(WlanKind::Encrypted)),
        (of([0x88, 0x42]), LinkType::Wlan, Some(WlanKind::Encrypted)),
        (of([0x08, 0x01]), LinkType::Wlan, None),
        (radiotap(0x50, of([0x08, 0x41])), LinkType::Radiotap, Some(WlanKind::Damaged)),
        (radiotap(0x10, of([0x08, 0x41])), LinkType::Radiotap, Some(WlanKind::Encrypted)),
        (radiotap(0x10, of([0x08, 0x01])), LinkType::Radiotap, None),
        (vec![0; 5], LinkType::Radiotap, None),
        (of([0x80, 0]), LinkType::Ethernet, None),
    ] {
        assert_eq!(link.unreadable(&frame), kind, "{frame:02x?}");
        if kind.is_some() {
            assert_eq!(link.header(&frame), Err(Error::EtherType), "{frame:02x?}");
        }
    }
    let mut fragment = of([0x08, 0x01]);
    fragment[22] = 1;
    assert_eq!(LinkType::Wlan.header(&fragment), Err(Error::Fragment));
    for short in 0..32 {
        assert_eq!(LinkType::Wlan.header(&of([0x08, 0x01])[..short]), Err(Error::Truncated));
    }
}

/// One packet of a frame is read; the others are counted.
#[test]
fn the_further_parts_of_an_aggregate_are_counted() {
    let part = |len: u8| {
        let mut part = [&[2; 12][..], &[0, len], &vec![0; len.into()]].concat();
        part.resize(part.len().next_multiple_of(4), 0);
        part
    };
    let head = [&[0x88, 1][..], &[0; 22], &[0x80, 0]].concat();
    for (parts, further) in [(vec![36], 0), (vec![36, 41], 1), (vec![37, 9, 1], 2)] {
        let body: Vec<u8> = parts.iter().flat_map(|&len| part(len)).collect();
        let frame = [&head[..], &body].concat();
        assert_eq!(LinkType::Wlan.further_parts(&frame), further, "{parts:?}");
    }
    let mut plain = [&head[..], &part(36), &part(36)].concat();
    plain[24] = 0;
    assert_eq!(LinkType::Wlan.further_parts(&plain), 0);
    assert_eq!(LinkType::Ethernet.further_parts(&plain), 0);
    assert_eq!(LinkType::Wlan.further_parts(&[head, vec![0; 40]].concat()), 0, "no length");
    assert_eq!(LinkType::Prism.header(&[0xFF; 60]), Err(Error::EtherType));
}

#[test]
fn what_is_neither_llc_nor_a_known_link_is_not_ip() {
    let token = [&[0x80][..], &[0; 40]].concat();
    assert_eq!(LinkType::Fddi.header(&token), Err(Error::EtherType));
    assert_eq!(LinkType::Fddi.header(&[0x50; 20]), Err(Error::Truncated));
    let usb = [&[0, 0, 8, 0, 189, 0, 0, 0][..], &[0; 40]].concat();
    assert_eq!(LinkType::Ppi.header(&usb), Err(Error::EtherType));
    assert_eq!(LinkType::Ppi.header(&[0, 0, 99, 0, 1, 0, 0, 0]), Err(Error::Truncated));
}

#[test]
fn what_is_logged_without_a_packet_is_not_ip() {
    for log in [&[2, 0, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0][..], &[2, 0, 0, 5]] {
        assert_eq!(LinkType::Nflog.header(log), Err(Error::Truncated));
    }
    assert_eq!(LinkType::Nflog.header(&[2, 0, 0, 5, 3, 0, 1, 0]), Err(Error::Length));
    assert_eq!(LinkType::Nflog.header(&[2, 1, 0, 5, 8, 0, 9, 0]), Err(Error::EtherType));
}
