//! STAMP requests built, and replies derived from them, from the RFCs alone: nothing
//! here is shared with the program under test.
#![allow(dead_code)] // each test binary uses its part

use std::net::IpAddr;

pub const OUR_PORT: u16 = 862;

/// One request; the fields are what the tests vary.
#[derive(Clone)]
pub struct Request {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub port: u16,
    /// TPID and TCI, outermost first.
    pub tags: Vec<(u16, u16)>,
    pub traffic_class: u8,
    pub ttl: u8,
    pub payload: Vec<u8>,
    /// What a local sender over veth leaves in the UDP checksum.
    pub partial_checksum: bool,
}

impl Request {
    pub fn v4() -> Self {
        Request {
            source: "192.0.2.1".parse().unwrap(),
            destination: "198.51.100.2".parse().unwrap(),
            source_port: 40_000,
            port: OUR_PORT,
            tags: vec![],
            traffic_class: 46 << 2 | 1,
            ttl: 61,
            payload: base(7, 0x1234),
            partial_checksum: false,
        }
    }

    pub fn v6() -> Self {
        Request {
            source: "2001:db8:1::1".parse().unwrap(),
            destination: "2001:db8:2::2".parse().unwrap(),
            ..Self::v4()
        }
    }

    pub fn frame(&self) -> Vec<u8> {
        let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for (tpid, tci) in &self.tags {
            f.extend(tpid.to_be_bytes());
            f.extend(tci.to_be_bytes());
        }
        let udp_len = 8 + self.payload.len() as u16;
        let mut udp = Vec::new();
        for field in [self.source_port, self.port, udp_len, 0] {
            udp.extend(field.to_be_bytes());
        }
        udp.extend(&self.payload);
        match (self.source, self.destination) {
            (IpAddr::V4(s), IpAddr::V4(d)) => {
                f.extend([8, 0]);
                let mut ip = vec![0x45, self.traffic_class];
                ip.extend((20 + udp_len).to_be_bytes());
                ip.extend([0xab, 0xcd, 0x40, 0, self.ttl, 17, 0, 0]);
                ip.extend(s.octets());
                ip.extend(d.octets());
                let c = internet_checksum(&[&ip]);
                ip[10..12].copy_from_slice(&c.to_be_bytes());
                f.extend(ip);
            }
            (IpAddr::V6(s), IpAddr::V6(d)) => {
                f.extend([0x86, 0xdd]);
                let first = 6 << 28 | u32::from(self.traffic_class) << 20 | 0xabcde;
                f.extend(first.to_be_bytes());
                f.extend(udp_len.to_be_bytes());
                f.extend([17, self.ttl]);
                f.extend(s.octets());
                f.extend(d.octets());
            }
            _ => unreachable!("one family"),
        }
        let check = if self.partial_checksum {
            // The pseudo-header's sum, not complemented.
            !internet_checksum(&[&pseudo(self.source, self.destination, udp_len)])
        } else {
            udp_checksum(self.source, self.destination, &udp)
        };
        udp[6..8].copy_from_slice(&check.to_be_bytes());
        f.extend(udp);
        f
    }

    /// Where the STAMP packet begins in the frame.
    pub fn payload_offset(&self) -> usize {
        14 + 4 * self.tags.len() + if self.source.is_ipv4() { 20 } else { 40 } + 8
    }

    /// The reply that RFC 8762 and RFC 8972 ask for, given what only the reflector knows.
    /// `t2` and `t3` are copied from the reply under test and judged apart.
    pub fn reply(&self, seq: u32, error: u16, t2: [u8; 8], t3: [u8; 8]) -> Vec<u8> {
        let p = &self.payload;
        let mut out = Vec::new();
        out.extend(seq.to_be_bytes());
        out.extend(t3);
        out.extend(error.to_be_bytes());
        out.extend(&p[14..16]);
        out.extend(t2);
        out.extend(&p[..14]);
        out.extend([0, 0, self.ttl, 0, 0, 0]);
        out.extend(&p[44..]);
        if p.len() >= 48 && p[45] == 1 {
            out[44] = 0;
        }
        let mut frame = Request {
            source: self.destination,
            destination: self.source,
            source_port: self.port,
            port: self.source_port,
            traffic_class: self.traffic_class & 0xfc,
            ttl: 255,
            payload: out,
            partial_checksum: false,
            tags: self.tags.clone(),
        }
        .frame();
        for i in 0..6 {
            frame.swap(i, 6 + i);
        }
        frame
    }
}

/// The 44 octets of a sender's packet.
pub fn base(seq: u32, ssid: u16) -> Vec<u8> {
    let mut p = vec![0; 44];
    p[..4].copy_from_slice(&seq.to_be_bytes());
    p[4..12].copy_from_slice(&[0xe9, 1, 2, 3, 4, 5, 6, 7]);
    p[12..14].copy_from_slice(&[0x80, 1]);
    p[14..16].copy_from_slice(&ssid.to_be_bytes());
    p
}

/// Extra Padding TLV of `len` octets in all (RFC 8972, section 4.1), pseudo-random inside.
pub fn padding_tlv(len: usize) -> Vec<u8> {
    let mut tlv = vec![0x80, 1];
    tlv.extend((len as u16 - 4).to_be_bytes());
    tlv.extend((4..len).map(|i| (i * 167 + 13) as u8));
    tlv
}

/// RFC 1071, octet by octet.
pub fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let all = parts.concat();
    let mut sum = 0u32;
    for pair in all.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

pub fn udp_checksum(source: IpAddr, destination: IpAddr, udp: &[u8]) -> u16 {
    match internet_checksum(&[&pseudo(source, destination, udp.len() as u16), udp]) {
        0 => 0xffff,
        c => c,
    }
}

fn pseudo(source: IpAddr, destination: IpAddr, len: u16) -> Vec<u8> {
    let mut p = Vec::new();
    for address in [source, destination] {
        match address {
            IpAddr::V4(a) => p.extend(a.octets()),
            IpAddr::V6(a) => p.extend(a.octets()),
        }
    }
    p.extend([0, 17]);
    p.extend(len.to_be_bytes());
    p
}
