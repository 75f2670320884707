//! NetFlow version 5: a header of 24 bytes and up to 30 records of 48 bytes, IPv4 only. Cisco's
//! documents of the format have it so. There is no standard.

use core::net::Ipv4Addr;

use crate::Error;
use crate::field::{array_at, put_u16, put_u32, u16_at, u32_at};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Records in the packet, at most [`MAX_RECORDS`].
    pub count: u16,
    /// Since the exporter started, ms, modulo 2^32; the flows' times are relative to it.
    pub uptime_ms: u32,
    /// When the packet left, s since 1970 UTC.
    pub unix_secs: u32,
    /// Nanoseconds beside `unix_secs`.
    pub unix_nanos: u32,
    /// Flows sent before this packet, modulo 2^32.
    pub sequence: u32,
    /// Which engine of the exporter: the low 16 bits of the observation domain.
    pub engine: u16,
    /// Sampling mode in the highest 2 bits, interval in the others; 0: not sampled.
    pub sampling: u16,
}

impl Header {
    /// Writes it at the start of `out`.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Error> {
        let out = out.get_mut(..HEADER_LEN).ok_or(Error::NoRoom)?;
        put_u16(out, 0, VERSION);
        put_u16(out, 2, self.count);
        put_u32(out, 4, self.uptime_ms);
        put_u32(out, 8, self.unix_secs);
        put_u32(out, 12, self.unix_nanos);
        put_u32(out, 16, self.sequence);
        put_u16(out, 20, self.engine);
        put_u16(out, 22, self.sampling);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    /// SNMP index of the interface it came by.
    pub input: u16,
    pub packets: u32,
    /// Bytes of IP packets.
    pub bytes: u32,
    /// Uptime at the first packet, ms.
    pub first_ms: u32,
    /// Uptime at the last packet, ms.
    pub last_ms: u32,
    pub source_port: u16,
    /// Destination port; for ICMP type * 256 + code.
    pub destination_port: u16,
    /// The 8 classic TCP flags.
    pub tcp_flags: u8,
    /// Protocol above IP, by its number: 6 is TCP.
    pub protocol: u8,
    /// The octet of type of service: DSCP and ECN.
    pub tos: u8,
}

impl Record {
    /// Writes it at the start of `out`. Next hop, output interface and the autonomous
    /// systems and masks, which no probe sees, are 0.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Error> {
        let out = out.get_mut(..RECORD_LEN).ok_or(Error::NoRoom)?;
        out.fill(0);
        out[..4].copy_from_slice(&self.source.octets());
        out[4..8].copy_from_slice(&self.destination.octets());
        put_u16(out, 12, self.input);
        put_u32(out, 16, self.packets);
        put_u32(out, 20, self.bytes);
        put_u32(out, 24, self.first_ms);
        put_u32(out, 28, self.last_ms);
        put_u16(out, 32, self.source_port);
        put_u16(out, 34, self.destination_port);
        out[37] = self.tcp_flags;
        out[38] = self.protocol;
        out[39] = self.tos;
        Ok(())
    }

    fn parse(data: &[u8]) -> Self {
        Record {
            source: Ipv4Addr::from(array_at::<4>(data, 0)),
            destination: Ipv4Addr::from(array_at::<4>(data, 4)),
            input: u16_at(data, 12),
            packets: u32_at(data, 16),
            bytes: u32_at(data, 20),
            first_ms: u32_at(data, 24),
            last_ms: u32_at(data, 28),
            source_port: u16_at(data, 32),
            destination_port: u16_at(data, 34),
            tcp_flags: data[37],
            protocol: data[38],
            tos: data[39],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub header: Header,
    records: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads the header and checks that all records are there.
    pub fn new_checked(data: &'a [u8]) -> Result<Self, Error> {
        let (head, rest) = data.split_at_checked(HEADER_LEN).ok_or(Error::Truncated)?;
        if u16_at(head, 0) != VERSION {
            return Err(Error::Version);
        }
        let header = Header {
            count: u16_at(head, 2),
            uptime_ms: u32_at(head, 4),
            unix_secs: u32_at(head, 8),
            unix_nanos: u32_at(head, 12),
            sequence: u32_at(head, 16),
            engine: u16_at(head, 20),
            sampling: u16_at(head, 22),
        };
        let len = usize::from(header.count) * RECORD_LEN;
        let records = rest.get(..len).ok_or(Error::Truncated)?;
        Ok(Packet { header, records })
    }

    /// The flows, in order.
    pub fn records(&self) -> impl Iterator<Item = Record> + use<'a> {
        self.records.chunks_exact(RECORD_LEN).map(Record::parse)
    }
}

/// The version number that begins a packet.
pub const VERSION: u16 = 5;
/// Length of the header.
pub const HEADER_LEN: usize = 24;
/// Length of a record.
pub const RECORD_LEN: usize = 48;
/// Most records of a packet.
pub const MAX_RECORDS: usize = 30;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packets_are_written_as_they_are_read(bytes: [u8; HEADER_LEN + RECORD_LEN]) {
            let record = Record::parse(&bytes[HEADER_LEN..]);
            let header = Header { count: 1, sequence: 7, engine: 8, ..Header::default() };
            let mut packet = [0; HEADER_LEN + RECORD_LEN];
            header.emit(&mut packet).unwrap();
            record.emit(&mut packet[HEADER_LEN..]).unwrap();
            let read = Packet::new_checked(&packet).unwrap();
            prop_assert_eq!(read.header, header);
            prop_assert!(read.records().eq([record]));
            prop_assert_eq!(Packet::new_checked(&packet[..71]), Err(Error::Truncated));
        }

        #[test]
        fn no_bytes_panic(data in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(packet) = Packet::new_checked(&data) {
                prop_assert_eq!(packet.records().count(), usize::from(packet.header.count));
            }
        }
    }
}
