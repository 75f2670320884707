//! NetFlow version 5: no templates, IPv4 only, 32-bit counters.

use std::net::IpAddr;

use sonde_wire::netflow5::{HEADER_LEN, Header, MAX_RECORDS, RECORD_LEN, Record};

use super::flow::{View, ports};
use super::netflow9::times;
use super::uptime::Uptime;
use super::{Config, ExportCounters};

/// The packet being filled.
pub(super) struct Packets {
    engine: u16,
    most: usize,
    tai_offset_ns: i64,
    buffer: [u8; HEADER_LEN + MAX_RECORDS * RECORD_LEN],
    count: usize,
    sequence: u32,
    now_ns: i64,
    uptime: Uptime,
    pub counters: ExportCounters,
}

impl Packets {
    pub fn new(config: &Config) -> Self {
        let most = config.message_bytes.saturating_sub(HEADER_LEN) / RECORD_LEN;
        Packets {
            engine: config.domain as u16,
            most: most.clamp(1, MAX_RECORDS),
            tai_offset_ns: config.tai_offset_ns(),
            buffer: [0; HEADER_LEN + MAX_RECORDS * RECORD_LEN],
            count: 0,
            sequence: 0,
            now_ns: 0,
            uptime: Uptime::default(),
            counters: ExportCounters::default(),
        }
    }

    /// No packet is longer from now on, but the one that is being filled.
    pub fn narrow(&mut self, bytes: usize) {
        self.most = self.most.min((bytes.saturating_sub(HEADER_LEN) / RECORD_LEN).max(1));
    }

    /// What times are ahead of UTC, ns, from now on.
    pub fn set_utc_offset(&mut self, ns: i64) {
        self.tai_offset_ns = ns;
    }

    pub fn set_now(&mut self, now_ns: i64) {
        self.now_ns = now_ns - self.tai_offset_ns;
    }

    /// Writes one flow. False: the format cannot express it.
    pub fn record(&mut self, view: &View, out: &mut impl FnMut(&[u8])) -> bool {
        let key = &view.record.key;
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (key.source, key.destination) else {
            return false;
        };
        let (Ok(packets), Ok(bytes)) =
            (u32::try_from(view.near.packets), u32::try_from(view.near.bytes))
        else {
            return false;
        };
        let (first, last) = times(view);
        if !self.uptime.admit(first, last) {
            self.emit(out);
            self.uptime.restart(first, last);
        }
        let [from, to] = ports(view);
        let (source, destination) =
            if view.reversed { (destination, source) } else { (source, destination) };
        let record = Record {
            source,
            destination,
            // Indexes beyond 16 bits are common in containers; 0 says not known.
            input: u16::try_from(view.interface).unwrap_or(0),
            packets,
            bytes,
            first_ms: self.uptime.relative(first),
            last_ms: self.uptime.relative(last),
            source_port: from,
            destination_port: to,
            tcp_flags: view.near.tcp_flags as u8,
            protocol: key.protocol,
            tos: view.near.tos,
        };
        let at = HEADER_LEN + self.count * RECORD_LEN;
        record.emit(&mut self.buffer[at..]).expect("a full packet was sent off");
        self.count += 1;
        if self.count >= self.most {
            self.emit(out);
        }
        true
    }

    /// Lets the packet go, if there is anything in it.
    pub fn emit(&mut self, out: &mut impl FnMut(&[u8])) {
        if self.count == 0 {
            return;
        }
        let (unix_secs, uptime_ms) = self.uptime.header(self.now_ns);
        let header = Header {
            count: self.count as u16,
            uptime_ms,
            unix_secs,
            unix_nanos: 0,
            sequence: self.sequence,
            engine: self.engine,
            sampling: 0,
        };
        header.emit(&mut self.buffer).expect("the buffer is longer than a header");
        let len = HEADER_LEN + self.count * RECORD_LEN;
        out(&self.buffer[..len]);
        self.counters.messages += 1;
        self.counters.octets += len as u64;
        self.sequence = self.sequence.wrapping_add(self.count as u32);
        self.count = 0;
    }
}
