//! STAMP packets against the octets that scapy writes (tests/interop/scapy_stamp.py).

use std::collections::HashMap;

use sonde_wire::ErrorEstimate;
use sonde_wire::stamp::{BASE_LEN, ReflectorPacket, ReflectorRepr, SenderPacket, SenderRepr};
use sonde_wire::tlv::{Flags, Tlvs, TlvsMut, Writer};

const FIXTURES: &str = include_str!("../fixtures/scapy_stamp.txt");

/// One line: the values by name, and the octets.
struct Fixture {
    values: HashMap<&'static str, &'static str>,
    tlvs: Vec<(u8, u8, Vec<u8>)>,
    bytes: Vec<u8>,
}

impl Fixture {
    fn parse(line: &'static str) -> (&'static str, Self) {
        let mut fields = line.split(' ');
        let role = fields.next().unwrap();
        let values: HashMap<_, _> = fields.filter_map(|w| w.split_once('=')).collect();
        let tlvs = values["tlvs"].split(',').filter(|t| *t != "-").map(|tlv| {
            let mut parts = tlv.split(':');
            let flags = u8::from_str_radix(parts.next().unwrap(), 16).unwrap();
            (flags, parts.next().unwrap().parse().unwrap(), octets(parts.next().unwrap()))
        });
        let tlvs = tlvs.collect();
        let bytes = octets(values["hex"]);
        (role, Fixture { values, tlvs, bytes })
    }

    fn decimal<T: std::str::FromStr<Err: std::fmt::Debug>>(&self, name: &str) -> T {
        self.values[name].parse().unwrap()
    }

    fn hex(&self, name: &str) -> u64 {
        u64::from_str_radix(self.values[name], 16).unwrap()
    }

    fn estimate(&self, name: &str) -> ErrorEstimate {
        ErrorEstimate(self.hex(name) as u16)
    }

    /// Our own octets for the TLVs, after `base` octets that are already there.
    fn append_tlvs(&self, buffer: &mut [u8], base: usize) -> usize {
        let mut writer = Writer::new(&mut buffer[base..]);
        for (_, kind, value) in &self.tlvs {
            writer.push(*kind, value).unwrap();
        }
        let len = base + writer.len();
        for (tlv, (flags, ..)) in TlvsMut::new(&mut buffer[base..len]).zip(&self.tlvs) {
            tlv.unwrap().set_flags(Flags(*flags));
        }
        len
    }

    fn assert_tlvs(&self, data: &[u8]) {
        let read: Vec<_> = Tlvs::new(data)
            .map(|tlv| tlv.unwrap())
            .map(|tlv| (tlv.flags.0, tlv.kind, tlv.value.to_vec()))
            .collect();
        assert_eq!(read, self.tlvs);
    }
}

fn octets(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn fixtures(role: &str) -> Vec<Fixture> {
    let of_role = FIXTURES.lines().map(Fixture::parse).filter(|(r, _)| *r == role);
    let fixtures: Vec<_> = of_role.map(|(_, fixture)| fixture).collect();
    assert!(!fixtures.is_empty());
    fixtures
}

#[test]
fn sender_packets() {
    for fixture in fixtures("sender") {
        let repr = SenderRepr {
            sequence: fixture.decimal("seq"),
            timestamp: fixture.hex("ts"),
            error_estimate: fixture.estimate("ee"),
            ssid: fixture.decimal("ssid"),
        };
        let mut buffer = [0xEE; 256];
        let base = repr.emit(&mut buffer).unwrap();
        let len = fixture.append_tlvs(&mut buffer, base);
        assert_eq!(&buffer[..len], fixture.bytes);
        let packet = SenderPacket::new_checked(&fixture.bytes).unwrap();
        assert_eq!(SenderRepr::parse(&packet), repr);
        fixture.assert_tlvs(packet.tlvs());
    }
}

#[test]
fn reflector_packets() {
    for fixture in fixtures("reflector") {
        let repr = ReflectorRepr {
            sequence: fixture.decimal("seq"),
            timestamp: fixture.hex("ts"),
            error_estimate: fixture.estimate("ee"),
            ssid: fixture.decimal("ssid"),
            receive_timestamp: fixture.hex("rx"),
            sender_sequence: fixture.decimal("sender_seq"),
            sender_timestamp: fixture.hex("sender_ts"),
            sender_error_estimate: fixture.estimate("sender_ee"),
            sender_ttl: fixture.decimal("ttl"),
        };
        let mut buffer = [0xEE; 256];
        let base = repr.emit(&mut buffer).unwrap();
        let len = fixture.append_tlvs(&mut buffer, base);
        assert_eq!(&buffer[..len], fixture.bytes);
        let packet = ReflectorPacket::new_checked(&fixture.bytes).unwrap();
        assert_eq!(ReflectorRepr::parse(&packet), repr);
        fixture.assert_tlvs(packet.tlvs());

        // The same reply, made from the request in its buffer it answers.
        let request = SenderRepr {
            sequence: repr.sender_sequence,
            timestamp: repr.sender_timestamp,
            error_estimate: repr.sender_error_estimate,
            ssid: repr.ssid,
        };
        let mut buffer = [0xEE; BASE_LEN];
        request.emit(&mut buffer).unwrap();
        let mut reply = ReflectorPacket::reflect(&mut buffer[..], repr.sender_ttl).unwrap();
        reply.set_sequence(repr.sequence);
        reply.set_timestamp(repr.timestamp);
        reply.set_error_estimate(repr.error_estimate);
        reply.set_receive_timestamp(repr.receive_timestamp);
        assert_eq!(buffer, fixture.bytes[..BASE_LEN]);
    }
}
