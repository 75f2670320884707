//! Flow records for tests, from a seed.

use std::net::{Ipv4Addr, Ipv6Addr};

use sonde_results::flow::{
    App, FlowEnd, FlowExtra, FlowKey, FlowLink, FlowPacketInfo, FlowRecord, FlowSide, FlowSpread,
    FlowTcp, FlowTunnel, TlsInfo, TunnelKind,
};

use crate::export::{Config, Decoded, Decoder, Exporter};
use crate::keyed_hash::{GOLDEN, split_mix};

/// A time in 2023, ns since 1970 TAI.
pub const NOW: i64 = 1_700_000_000_123_456_789;

/// SplitMix64: the same records on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        let next = split_mix(self.0);
        self.0 = self.0.wrapping_add(GOLDEN);
        next
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn side(&mut self, tcp: bool) -> FlowSide {
        let first_ns = NOW - self.below(60_000_000_000) as i64;
        FlowSide {
            packets: 1 + self.below(1000),
            bytes: 40 + self.below(1_000_000),
            first_ns,
            last_ns: first_ns + self.below(NOW.abs_diff(first_ns) + 1) as i64,
            tcp_flags: if tcp { self.below(256) as u16 } else { 0 },
            tos: self.next() as u8,
            ttl_min: 1 + self.below(64) as u8,
            ttl_max: 64 + self.below(191) as u8,
        }
    }

    /// A record with packets in both directions.
    pub fn biflow(&mut self) -> FlowRecord {
        loop {
            let record = self.record();
            if record.forward.packets > 0 && record.reverse.packets > 0 {
                return record;
            }
        }
    }

    /// Any record without extra fields: both families, four protocols, one side or two.
    pub fn record(&mut self) -> FlowRecord {
        let ipv6 = self.below(3) == 0;
        let protocol = [6, 17, if ipv6 { 58 } else { 1 }, 47][self.below(4) as usize];
        let ports = match protocol {
            6 | 17 => (self.next() as u16, self.next() as u16),
            // An echo request, whose reply is counted in the reverse direction.
            58 => (0, 128 << 8),
            1 => (0, 8 << 8),
            _ => (0, 0),
        };
        let address = |random: &mut Random| {
            if ipv6 {
                Ipv6Addr::from((0x2001_0db8 << 96) | u128::from(random.next())).into()
            } else {
                Ipv4Addr::from(0x0a00_0000 | random.below(1 << 24) as u32).into()
            }
        };
        let mut record = FlowRecord {
            key: FlowKey {
                point: self.below(2) as u8,
                vlan: self.below(4095) as u16,
                protocol,
                source: address(self),
                destination: address(self),
                source_port: ports.0,
                destination_port: ports.1,
            },
            forward: self.side(protocol == 6),
            reverse: self.side(protocol == 6),
            end: [
                FlowEnd::Idle,
                FlowEnd::Active,
                FlowEnd::EndDetected,
                FlowEnd::Forced,
                FlowEnd::LackOfResources,
            ][self.below(5) as usize],
            extra: None,
        };
        match self.below(4) {
            0 => record.forward = FlowSide::default(),
            1 => record.reverse = FlowSide::default(),
            _ => {}
        }
        record
    }
}

pub fn extra() -> FlowExtra {
    let packet =
        |reverse, length, after_ns| FlowPacketInfo { reverse, length, after_ns, tcp_flags: 24 };
    FlowExtra {
        link: Some(FlowLink {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            inner_vlan: 77,
            mpls: vec![0x00_01_02, 0x00_03_05],
            tunnel: Some(FlowTunnel {
                kind: TunnelKind::Vxlan,
                outer_source: Ipv4Addr::new(192, 0, 2, 1).into(),
                outer_destination: Ipv4Addr::new(192, 0, 2, 2).into(),
                id: 0x00ab_cdef,
            }),
        }),
        packets: vec![packet(false, 517, 0), packet(true, 1400, 12_000_000)],
        forward_spread: Some(FlowSpread { lengths: [1, 2, 3, 4, 5, 6, 7, 8], gaps: [9; 8] }),
        reverse_spread: Some(FlowSpread { lengths: [11; 8], gaps: [12; 8] }),
        tcp: Some(FlowTcp {
            handshake_server_ns: 12_345_678,
            handshake_client_ns: 987_654,
            retransmitted: 3,
            reverse_retransmitted: 4,
            reordered: 5,
            reverse_reordered: 6,
            window_min: 1000,
            reverse_window_min: 2000,
        }),
        app: Some(App::Tls(tls())),
    }
}

pub fn tls() -> TlsInfo {
    TlsInfo {
        sni: "www.example.org".into(),
        alpn: "h2".into(),
        version: 0x0304,
        ja3: "e7d705a3286e19ea42f587b344ee6865".into(),
        ja4: "t13d1516h2_8daaf6152771_b186095e22b6".into(),
    }
}

/// Exports records, flushes, and checks of every message that it is not too long.
pub fn export(config: &Config, records: &[FlowRecord]) -> (Exporter, Vec<Vec<u8>>) {
    let mut exporter = Exporter::new(config.clone());
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for record in records {
        exporter.push(record, NOW, &mut |message| messages.push(message.to_vec()));
    }
    exporter.flush(NOW, &mut |message| messages.push(message.to_vec()));
    for message in &messages {
        assert!(message.len() <= config.message_bytes, "{} bytes", message.len());
    }
    let octets: usize = messages.iter().map(Vec::len).sum();
    assert_eq!(exporter.counters().messages, messages.len() as u64);
    assert_eq!(exporter.counters().octets, octets as u64);
    (exporter, messages)
}

/// Reads messages; nothing may be missing or malformed.
pub fn read(messages: &[Vec<u8>]) -> Vec<FlowRecord> {
    let mut decoder = Decoder::new(Config::default().tai_offset_s);
    let mut flows = Vec::new();
    for message in messages {
        decoder.message(message, &mut |decoded| {
            if let Decoded::Flow(flow) = decoded {
                flows.push(flow.record);
            }
        });
    }
    let counters = decoder.counters();
    assert_eq!(counters.messages, messages.len() as u64);
    for (name, count) in counters.iter() {
        let fault = !["messages", "records", "option_records", "templates"].contains(&name);
        assert!(!fault || count == 0, "{name}: {count}");
    }
    flows
}

/// Both are the same; else says where they begin to differ.
pub fn assert_same(read: &[FlowRecord], wanted: &[FlowRecord]) {
    for (at, (read, wanted)) in read.iter().zip(wanted).enumerate() {
        assert_eq!(read, wanted, "record {at}");
    }
    assert_eq!(read.len(), wanted.len());
}
