//! Conversations as the flow cache would hand them over.

mod arbitrary;
mod bounds;
mod datagrams;
mod quic;
mod streams;
mod tls;

use super::*;

const MS: i64 = 1_000_000;

/// A conversation over one transport, a packet a millisecond.
#[derive(Clone)]
struct Talk {
    protocol: u8,
    ports: [u16; 2],
    packets: Vec<Said>,
    /// Of the next octet, by direction.
    next: [u32; 2],
}

#[derive(Clone)]
struct Said {
    reverse: bool,
    sequence: u32,
    flags: u16,
    data: Vec<u8>,
    /// Length by the IP header.
    length: usize,
}

impl Talk {
    fn udp(port: u16) -> Self {
        Talk { protocol: PROTOCOL_UDP, ports: [40_000, port], packets: Vec::new(), next: [0; 2] }
    }

    /// A connection, from its handshake on. The sequence numbers wrap within it.
    fn tcp(port: u16) -> Self {
        let mut talk = Talk::udp(port);
        talk.protocol = PROTOCOL_TCP;
        talk.next = [u32::MAX - 20, 7];
        for (reverse, flags) in [(false, SYN), (true, SYN | 16)] {
            let sequence = talk.next[usize::from(reverse)];
            let flags = flags.into();
            talk.packets.push(Said { reverse, sequence, flags, data: Vec::new(), length: 0 });
            talk.next[usize::from(reverse)] = sequence.wrapping_add(1);
        }
        talk
    }

    fn say(mut self, reverse: bool, data: impl AsRef<[u8]>) -> Self {
        let data = data.as_ref().to_vec();
        let sequence = self.next[usize::from(reverse)];
        self.next[usize::from(reverse)] = sequence.wrapping_add(data.len() as u32);
        let length = data.len();
        self.packets.push(Said { reverse, sequence, flags: 16, data, length });
        self
    }

    fn ask(self, data: impl AsRef<[u8]>) -> Self {
        self.say(false, data)
    }

    fn answer(self, data: impl AsRef<[u8]>) -> Self {
        self.say(true, data)
    }

    /// Every payload in pieces of `len` octets.
    fn cut(mut self, len: usize) -> Self {
        let mut pieces = Vec::new();
        for said in self.packets {
            if said.data.is_empty() {
                pieces.push(said.clone());
            }
            for (i, piece) in said.data.chunks(len).enumerate() {
                let sequence = said.sequence.wrapping_add((i * len) as u32);
                pieces.push(Said { sequence, data: piece.to_vec(), length: piece.len(), ..said });
            }
        }
        self.packets = pieces;
        self
    }

    /// Captured up to `len` octets of the payload.
    fn trim(mut self, len: usize) -> Self {
        for said in &mut self.packets {
            said.data.truncate(len);
        }
        self
    }

    /// Hands packet `i` to slot `slot`.
    fn packet(&self, i: usize, slot: usize, apps: &mut Apps) -> bool {
        let said = &self.packets[i];
        let [mut source_port, mut destination_port] = self.ports;
        if said.reverse {
            std::mem::swap(&mut source_port, &mut destination_port);
        }
        let packet = Feature {
            at_ns: i as i64 * MS,
            source_port,
            destination_port,
            protocol: self.protocol,
            sequence: said.sequence,
            tcp_flags: said.flags,
            headers: 10,
            ip_len: 40 + said.length as u32,
            ..Feature::default()
        };
        // Something before and behind the payload.
        let frame = [&[0xAA; 54][..], &said.data, &[0xBB; 6]].concat();
        let layers = Layers { payload: 54, end: 54 + said.data.len() as u16, ..Layers::default() };
        apps.packet(slot, said.reverse, &packet, &frame, &layers)
    }

    /// What is known of it in the end, and how many packets were wanted.
    fn run(&self) -> (Option<App>, usize) {
        let mut apps = Apps::new(4);
        apps.created(2);
        let mut read = 0;
        for i in 0..self.packets.len() {
            read += 1;
            if !self.packet(i, 2, &mut apps) {
                break;
            }
        }
        let app = apps.ended(2);
        assert_eq!(apps.held, [0; 2], "whatever was held is given back");
        (app, read)
    }

    fn app(&self) -> App {
        self.run().0.expect("something is recognised")
    }
}

/// The octets of hexadecimal digits; white space between them means nothing.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hexadecimal digit") as u8)
        .collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
