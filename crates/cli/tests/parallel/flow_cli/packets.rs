//! Packets and captures, made by hand.

use std::net::Ipv4Addr;

/// A UDP packet over Ethernet, 28 octets and `payload`.
pub fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let length = (28 + payload) as u16;
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(from.0.octets());
    frame.extend(to.0.octets());
    frame.extend(from.1.to_be_bytes());
    frame.extend(to.1.to_be_bytes());
    frame.extend((length - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(frame.len() + payload, 0);
    frame
}

/// Ten packets of three flows, one of them answered, 100 us apart.
pub fn ten() -> Vec<Vec<u8>> {
    let (a, b) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    (0..10)
        .map(|i| match i % 4 {
            0 => udp((a, 1_000), (b, 53), 40),
            1 => udp((b, 53), (a, 1_000), 400),
            2 => udp((a, 2_000), (b, 123), 48),
            _ => udp((b, 9), (a, 9), 0),
        })
        .collect()
}

/// `count` packets, each a flow of its own, whose source address holds its index.
pub fn flows(count: u32) -> Vec<Vec<u8>> {
    (0..count)
        .map(|i| udp((Ipv4Addr::from(0x0a00_0000 + i), 7), (Ipv4Addr::new(192, 0, 2, 2), 9), 10))
        .collect()
}

/// The index of a flow made by [`flows`].
pub fn flow_index(record: &sonde_results::flow::FlowRecord) -> u32 {
    match record.key.source {
        std::net::IpAddr::V4(source) => u32::from(source) - 0x0a00_0000,
        other => panic!("{other}"),
    }
}

/// 2023-11-14T22:13:20 UTC.
const BEGIN_S: u64 = 1_700_000_000;

fn at_us(i: usize) -> u64 {
    BEGIN_S * 1_000_000 + 100 * i as u64
}

/// A pcap file; times in ns or us.
pub fn pcap(frames: &[Vec<u8>], link: u32, nanos: bool) -> Vec<u8> {
    let magic: u32 = if nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut file = Vec::new();
    file.extend(magic.to_le_bytes());
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.extend(65_535u32.to_le_bytes());
    file.extend(link.to_le_bytes());
    for (i, frame) in frames.iter().enumerate() {
        let (seconds, us) = (at_us(i) / 1_000_000, at_us(i) % 1_000_000);
        let fraction = if nanos { us * 1_000 } else { us };
        for n in [seconds as u32, fraction as u32, frame.len() as u32, frame.len() as u32] {
            file.extend(n.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// A pcapng file of one Ethernet interface.
pub fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let length = (12 + padded) as u32;
        let mut block = [kind.to_le_bytes(), length.to_le_bytes()].concat();
        block.extend(body);
        block.resize(8 + padded, 0);
        block.extend(length.to_le_bytes());
        block
    }
    let mut file =
        block(0x0a0d_0d0a, &[&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat());
    file.extend(block(1, &[1, 0, 0, 0, 0, 0, 4, 0]));
    for (i, frame) in frames.iter().enumerate() {
        let mut body = vec![0; 4];
        body.extend(((at_us(i) >> 32) as u32).to_le_bytes());
        body.extend((at_us(i) as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend(frame);
        file.extend(block(6, &body));
    }
    file
}
