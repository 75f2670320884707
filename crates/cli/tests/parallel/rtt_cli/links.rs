//! The same packets below other links give the same samples.

use super::support::{Temporary, capture, lines, rtt};

/// An Ethernet capture of IPv4 with other headers in front of its packets, and `others` behind.
fn below(link_type: u16, header: &[u8], others: &[&[u8]]) -> Vec<u8> {
    let octets = std::fs::read(capture("tcp_sequence.pcap")).unwrap();
    let mut out = octets[..24].to_vec();
    out[20..22].copy_from_slice(&link_type.to_le_bytes());
    let (mut at, mut times) = (24, Vec::new());
    while at < octets.len() {
        let field = |i: usize| u32::from_le_bytes(octets[at + i..at + i + 4].try_into().unwrap());
        let (captured, whole) = (field(8) as usize, field(12) as usize);
        times = octets[at..at + 8].to_vec();
        let packet = &octets[at + 16 + 14..at + 16 + captured];
        out.extend(&times);
        out.extend(((header.len() + packet.len()) as u32).to_le_bytes());
        out.extend(((header.len() + whole - 14) as u32).to_le_bytes());
        out.extend([header, packet].concat());
        at += 16 + captured;
    }
    for other in others {
        out.extend(&times);
        out.extend([(other.len() as u32).to_le_bytes(); 2].concat());
        out.extend(*other);
    }
    out
}

#[test]
fn a_packet_is_the_same_below_every_link() {
    let form = "--format jsonl --sample-limit none";
    let wanted = lines(&rtt(&format!("{} {form}", capture("tcp_sequence.pcap"))).out, "sample");
    assert!(!wanted.is_empty());
    let llc = [0xAA, 0xAA, 3, 0, 0, 0, 8, 0];
    let mac = |control: [u8; 2]| [&control[..], &[0; 22]].concat();
    let radiotap = [0, 0, 9, 0, 2, 0, 0, 0, 0x10];
    let wlan = [&mac([0x08, 1])[..], &llc].concat();
    let encrypted = [&mac([0x08, 0x41])[..], &[7; 40]].concat();
    let beacon = [&mac([0x80, 0])[..], &[7; 40]].concat();
    let ethernet = [&[2; 6][..], &[4; 6]].concat();
    for (name, link_type, header, others) in [
        ("nflog", 239, vec![2, 0, 0, 5, 8, 0, 1, 0, 8, 0, 3, 0, 200, 0, 9, 0], vec![]),
        ("802.11", 105, wlan.clone(), vec![&encrypted[..], &beacon]),
        ("radiotap", 127, [&radiotap[..], &wlan].concat(), vec![]),
        ("prism", 119, [&[0, 0, 0, 0x44, 16, 0, 0, 0][..], &[0; 8], &wlan].concat(), vec![]),
        ("avs", 163, [&[0x80, 0x21, 0x10, 1, 0, 0, 0, 16][..], &[0; 8], &wlan].concat(), vec![]),
        ("hsr", 1, [&ethernet[..], &[0x89, 0x2F, 0, 60, 0, 1, 8, 0]].concat(), vec![]),
        (
            "backbone",
            1,
            [&ethernet[..], &[0x88, 0xA8, 0, 0, 0x88, 0xE7, 0, 0, 0, 9], &[6; 12], &[8, 0]]
                .concat(),
            vec![],
        ),
    ] {
        let file = Temporary::new(name);
        std::fs::write(&file.0, below(link_type, &header, &others)).unwrap();
        let ended = rtt(&format!("{} {form}", file.path()));
        assert_eq!(lines(&ended.out, "sample"), wanted, "{name}: {}", ended.err);
        let coverage = lines(&ended.out, "coverage").pop().unwrap();
        let counted = ["wlan_encrypted", "wlan_no_data"].map(|n| coverage["counters"][n].as_u64());
        let n = u64::from(!others.is_empty());
        assert_eq!(counted, [Some(n); 2], "{name}");
        assert_eq!(ended.err.contains("1 802.11 frames are encrypted"), n > 0, "{}", ended.err);
    }
}
