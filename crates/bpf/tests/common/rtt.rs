//! Frames for the tests of passive RTT, built by hand.
#![allow(dead_code)] // each test binary uses its part

pub mod both;
pub mod layers;

pub const T0: i64 = 1_800_000_000_000_000_000;
pub const MS: i64 = 1_000_000;

/// A TCP segment over IPv4; the fields are what the tests vary.
#[derive(Clone, Copy)]
pub struct Segment {
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub source_port: u16,
    pub destination_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub ts: Option<(u32, u32)>,
    pub sack: bool,
    pub window: u16,
    pub tos: u8,
    pub len: usize,
}

/// From the client, 10.0.0.1 port 4000, to the server, 10.0.0.2 port 80.
pub const A: Segment = Segment {
    source: [10, 0, 0, 1],
    destination: [10, 0, 0, 2],
    source_port: 4000,
    destination_port: 80,
    seq: 1,
    ack: 1,
    flags: 16,
    ts: None,
    sack: false,
    window: 256,
    tos: 0,
    len: 0,
};

/// The direction opposite to `A`.
pub const B: Segment = Segment {
    source: [10, 0, 0, 2],
    destination: [10, 0, 0, 1],
    source_port: 80,
    destination_port: 4000,
    ..A
};

impl Segment {
    /// With another port of the client.
    pub const fn port(self, port: u16) -> Segment {
        if self.source_port == 80 {
            Segment { destination_port: port, ..self }
        } else {
            Segment { source_port: port, ..self }
        }
    }

    pub fn frame(&self) -> Vec<u8> {
        let mut options = vec![];
        if let Some((value, echo)) = self.ts {
            options.extend([1, 1, 8, 10]);
            options.extend(value.to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        if self.sack {
            options.extend([1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        }
        let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, self.tos];
        f.extend((40 + options.len() as u16 + self.len as u16).to_be_bytes());
        f.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        f.extend(self.source);
        f.extend(self.destination);
        f.extend(self.source_port.to_be_bytes());
        f.extend(self.destination_port.to_be_bytes());
        f.extend(self.seq.to_be_bytes());
        f.extend(self.ack.to_be_bytes());
        f.extend([(5 + options.len() as u8 / 4) << 4, self.flags]);
        f.extend(self.window.to_be_bytes());
        f.extend([0; 4]);
        f.extend(options);
        f.resize(f.len() + self.len, 0);
        f
    }
}

/// An ICMP echo request from 10.0.0.1 to 10.0.0.2, or its reply.
pub fn echo(reply: bool, sequence: u16) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28];
    f.extend([0, 0, 0x40, 0, 64, 1, 0, 0]);
    let (source, destination) = if reply { (B.source, A.source) } else { (A.source, B.source) };
    f.extend(source);
    f.extend(destination);
    f.extend([if reply { 0 } else { 8 }, 0, 0, 0, 0x12, 0x34]);
    f.extend(sequence.to_be_bytes());
    f
}

/// A datagram from the client's port to the server's, or back.
pub fn udp(back: bool, client: u16, server: u16, payload: &[u8]) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    f.extend((28 + payload.len() as u16).to_be_bytes());
    f.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    let ends = [(A.source, client), (B.source, server)];
    let (from, to) = if back { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
    f.extend(from.0);
    f.extend(to.0);
    f.extend(from.1.to_be_bytes());
    f.extend(to.1.to_be_bytes());
    f.extend((8 + payload.len() as u16).to_be_bytes());
    f.extend([0, 0]);
    f.extend(payload);
    f
}
