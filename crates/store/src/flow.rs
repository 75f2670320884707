//! Flow records as rows, at the full rate and rolled up.
//!
//! A record belongs to the time of its last packet: that is when it was made, so that few come late.
//! Times are kept to the microsecond. Roll-ups keep networks (/24, /48) in place of hosts; those of
//! an hour keep the [`TOP_FLOWS`] largest rows of an exporter, and one row "other" for each
//! interface and protocol, so that sums stay those of all records.

use std::net::{IpAddr, Ipv6Addr};

use sonde_results::flow::{App, FlowRecord, FlowSide};

use crate::column::{Column, Kind, On, StoredRow};
use crate::hist_blob::{HistBlob, HistSum};
use crate::series::SeriesId;

/// One flow record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRow {
    /// What exported it.
    pub exporter: SeriesId,
    /// Source address; IPv4 mapped.
    pub source: [u8; 16],
    /// Destination address; IPv4 mapped.
    pub destination: [u8; 16],
    /// Source port.
    pub source_port: u16,
    /// Destination port; of ICMP type * 256 + code.
    pub destination_port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// VLAN identifier; 0: none.
    pub vlan: u16,
    /// Index of the interface.
    pub point: u8,
    /// Last packet of either direction, ns since 1970 UTC.
    pub last_ns: i64,
    /// From the first packet of either direction to the last, ns.
    pub duration_ns: i64,
    /// From source to destination; its times are as above.
    pub forward: FlowSide,
    /// From destination to source, likewise.
    pub reverse: FlowSide,
    /// Why the record was made: flowEndReason (IPFIX element 136).
    pub end: u8,
    /// Server's side of the handshake, ns; 0: not seen.
    pub handshake_server_ns: u64,
    /// Client's side of the handshake, ns; 0: not seen.
    pub handshake_client_ns: u64,
    /// Forward segments sent again.
    pub retransmitted: u32,
    /// Reverse segments sent again.
    pub reverse_retransmitted: u32,
    /// What the application layer is: "tls"; empty: not known.
    pub app: Box<str>,
    /// What was asked for beyond the basic record, as JSON; empty: nothing.
    pub extra: Box<str>,
}

impl FlowRow {
    /// A record whose times are UTC.
    pub fn new(exporter: SeriesId, record: &FlowRecord) -> Self {
        let extra = record.extra.as_deref();
        let tcp = extra.and_then(|e| e.tcp).unwrap_or_default();
        let (first_ns, last_ns) = (to_micros(record.first_ns()), to_micros(record.last_ns()));
        FlowRow {
            exporter,
            source: mapped(record.key.source),
            destination: mapped(record.key.destination),
            source_port: record.key.source_port,
            destination_port: record.key.destination_port,
            protocol: record.key.protocol,
            vlan: record.key.vlan,
            point: record.key.point,
            last_ns,
            duration_ns: last_ns - first_ns,
            forward: side(&record.forward),
            reverse: side(&record.reverse),
            end: record.end as u8,
            handshake_server_ns: tcp.handshake_server_ns,
            handshake_client_ns: tcp.handshake_client_ns,
            retransmitted: tcp.retransmitted,
            reverse_retransmitted: tcp.reverse_retransmitted,
            app: extra.and_then(|e| e.app.as_ref()).map_or("", app_name).into(),
            extra: extra.and_then(|e| serde_json::to_string(e).ok()).unwrap_or_default().into(),
        }
    }

    /// First packet of either direction, ns since 1970 UTC.
    pub fn first_ns(&self) -> i64 {
        self.last_ns.saturating_sub(self.duration_ns)
    }

    /// The port of the service: the lower one; of ICMP type * 256 + code.
    pub fn service_port(&self) -> u16 {
        match self.protocol {
            ICMP | ICMP_V6 => self.destination_port,
            _ => self.source_port.min(self.destination_port),
        }
    }

    /// As a row of a roll-up whose windows last `step_ns`.
    pub fn to_sum(&self, step_ns: i64) -> FlowSum {
        let mut handshake = HistSum::default();
        if self.handshake_server_ns > 0 && self.handshake_client_ns > 0 {
            handshake.add_value((self.handshake_server_ns + self.handshake_client_ns) as i64);
        }
        FlowSum {
            exporter: self.exporter,
            start_ns: self.last_ns - self.last_ns.rem_euclid(step_ns),
            point: self.point,
            protocol: self.protocol,
            service_port: self.service_port(),
            app: self.app.clone(),
            source_net: net_of(self.source),
            destination_net: net_of(self.destination),
            flows: 1,
            packets: self.forward.packets,
            bytes: self.forward.bytes,
            reverse_packets: self.reverse.packets,
            reverse_bytes: self.reverse.bytes,
            retransmitted: u64::from(self.retransmitted) + u64::from(self.reverse_retransmitted),
            handshake: handshake.to_blob(),
        }
    }
}

/// Flow records of one window that have exporter, interface, protocol, service, application and
/// networks in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowSum {
    /// What exported them.
    pub exporter: SeriesId,
    /// First instant of the window, ns since 1970 UTC.
    pub start_ns: i64,
    /// Index of the interface.
    pub point: u8,
    /// IP protocol number.
    pub protocol: u8,
    /// The port of the service; 0 in a row "other".
    pub service_port: u16,
    /// What the application layer is.
    pub app: Box<str>,
    /// Source network: /24 or /48; all zero in a row "other".
    pub source_net: [u8; 16],
    /// Destination network, likewise.
    pub destination_net: [u8; 16],
    /// Records.
    pub flows: u64,
    /// Packets from source to destination.
    pub packets: u64,
    /// Bytes of IP from source to destination.
    pub bytes: u64,
    /// Packets from destination to source.
    pub reverse_packets: u64,
    /// Bytes of IP from destination to source.
    pub reverse_bytes: u64,
    /// Segments sent again, both directions.
    pub retransmitted: u64,
    /// Handshakes that were seen whole: SYN to ACK, ns.
    pub handshake: HistBlob,
}

/// What rows of a roll-up of flows are sorted by: window, exporter, networks, then the rest.
pub type FlowSumKey = (i64, u32, [u8; 16], [u8; 16], u8, u8, u16, Box<str>);

impl FlowSum {
    /// The row of all that are not among the largest.
    fn other(&self) -> FlowSum {
        FlowSum {
            service_port: 0,
            app: Box::default(),
            source_net: [0; 16],
            destination_net: [0; 16],
            ..self.clone()
        }
    }
}

/// Adds up rows with equal keys, once they are moved to windows of `step_ns`. Sorted by key.
pub fn roll_up_flows(rows: impl IntoIterator<Item = FlowSum>, step_ns: i64) -> Vec<FlowSum> {
    let mut rows: Vec<FlowSum> = rows
        .into_iter()
        .map(|mut row| {
            row.start_ns -= row.start_ns.rem_euclid(step_ns);
            row
        })
        .collect();
    rows.sort_by_cached_key(StoredRow::key);
    rows.chunk_by(|a, b| a.key() == b.key()).map(StoredRow::merged).collect()
}

/// Keeps the `most` rows with the most bytes of each exporter and window, and adds the others to
/// rows "other". Sorted by key; no sum changes.
pub fn keep_top(mut rows: Vec<FlowSum>, most: usize) -> Vec<FlowSum> {
    rows.sort_by_cached_key(|r| (r.start_ns, r.exporter));
    let mut kept = Vec::new();
    for window in rows.chunk_by_mut(|a, b| (a.start_ns, a.exporter) == (b.start_ns, b.exporter)) {
        // Largest first; ties by key, so that the result does not depend on the order.
        window.sort_by_cached_key(|r| (std::cmp::Reverse(r.bytes + r.reverse_bytes), r.key()));
        let is_other = |r: &FlowSum| r.key() == r.other().key();
        let mut left = most;
        for row in window {
            match left {
                _ if is_other(row) => kept.push(row.clone()),
                0 => kept.push(row.other()),
                _ => {
                    left -= 1;
                    kept.push(row.clone());
                }
            }
        }
    }
    kept.sort_by_cached_key(StoredRow::key);
    kept.chunk_by(|a, b| a.key() == b.key()).map(StoredRow::merged).collect()
}

impl StoredRow for FlowRow {
    /// Slot of five minutes, exporter, destination, source, time.
    type Key = (i64, u32, [u8; 16], [u8; 16], i64);

    const COLUMNS: &'static [Column<Self>] = &[
        column(
            "exporter",
            Kind::Few(|r| r.exporter.0.into(), |r, v| r.exporter = SeriesId(v as u32)),
        ),
        column("source", Kind::Address(|r| r.source, |r, v| r.source = v)),
        column("destination", Kind::Address(|r| r.destination, |r, v| r.destination = v)),
        column("source_port", Kind::Few(|r| r.source_port.into(), |r, v| r.source_port = v as u16)),
        column(
            "destination_port",
            Kind::Few(|r| r.destination_port.into(), |r, v| r.destination_port = v as u16),
        ),
        column("protocol", Kind::Few(|r| r.protocol.into(), |r, v| r.protocol = v as u8)),
        column("vlan", Kind::Few(|r| r.vlan.into(), |r, v| r.vlan = v as u16)),
        column("point", Kind::Few(|r| r.point.into(), |r, v| r.point = v as u8)),
        column("last", Kind::InstantMicros(|r| r.last_ns, |r, v| r.last_ns = v)),
        column(
            "duration_us",
            Kind::Close(|r| r.duration_ns / US, |r, v| r.duration_ns = v.saturating_mul(US)),
        ),
        // Of each direction: from the flow's first packet to its own, and from its last to the flow's.
        column(
            "forward_first_us",
            Kind::Close(
                |r| after_first(r, &r.forward),
                |r, v| r.forward.first_ns = r.first_ns().saturating_add(v.saturating_mul(US)),
            ),
        ),
        column(
            "forward_last_us",
            Kind::Close(
                |r| before_last(r, &r.forward),
                |r, v| r.forward.last_ns = r.last_ns.saturating_sub(v.saturating_mul(US)),
            ),
        ),
        column(
            "reverse_first_us",
            Kind::Close(
                |r| after_first(r, &r.reverse),
                |r, v| r.reverse.first_ns = r.first_ns().saturating_add(v.saturating_mul(US)),
            ),
        ),
        column(
            "reverse_last_us",
            Kind::Close(
                |r| before_last(r, &r.reverse),
                |r, v| r.reverse.last_ns = r.last_ns.saturating_sub(v.saturating_mul(US)),
            ),
        ),
        column(
            "packets",
            Kind::Few(|r| r.forward.packets as i64, |r, v| set_packets(&mut r.forward, v)),
        ),
        column("bytes", Kind::Few(|r| r.forward.bytes as i64, |r, v| r.forward.bytes = v as u64)),
        column(
            "tcp_flags",
            Kind::Few(|r| r.forward.tcp_flags.into(), |r, v| r.forward.tcp_flags = v as u16),
        ),
        column("tos", Kind::Few(|r| r.forward.tos.into(), |r, v| r.forward.tos = v as u8)),
        column(
            "ttl_min",
            Kind::Few(|r| r.forward.ttl_min.into(), |r, v| r.forward.ttl_min = v as u8),
        ),
        column(
            "ttl_max",
            Kind::Few(|r| r.forward.ttl_max.into(), |r, v| r.forward.ttl_max = v as u8),
        ),
        column(
            "reverse_packets",
            Kind::Few(|r| r.reverse.packets as i64, |r, v| set_packets(&mut r.reverse, v)),
        ),
        column(
            "reverse_bytes",
            Kind::Few(|r| r.reverse.bytes as i64, |r, v| r.reverse.bytes = v as u64),
        ),
        column(
            "reverse_tcp_flags",
            Kind::Few(|r| r.reverse.tcp_flags.into(), |r, v| r.reverse.tcp_flags = v as u16),
        ),
        column("reverse_tos", Kind::Few(|r| r.reverse.tos.into(), |r, v| r.reverse.tos = v as u8)),
        column(
            "reverse_ttl_min",
            Kind::Few(|r| r.reverse.ttl_min.into(), |r, v| r.reverse.ttl_min = v as u8),
        ),
        column(
            "reverse_ttl_max",
            Kind::Few(|r| r.reverse.ttl_max.into(), |r, v| r.reverse.ttl_max = v as u8),
        ),
        column("end_reason", Kind::Few(|r| r.end.into(), |r, v| r.end = v as u8)),
        column(
            "handshake_server_ns",
            Kind::Few(|r| r.handshake_server_ns as i64, |r, v| r.handshake_server_ns = v as u64),
        ),
        column(
            "handshake_client_ns",
            Kind::Few(|r| r.handshake_client_ns as i64, |r, v| r.handshake_client_ns = v as u64),
        ),
        column(
            "retransmitted",
            Kind::Few(|r| r.retransmitted.into(), |r, v| r.retransmitted = v as u32),
        ),
        column(
            "reverse_retransmitted",
            Kind::Few(
                |r| r.reverse_retransmitted.into(),
                |r, v| r.reverse_retransmitted = v as u32,
            ),
        ),
        column("app", Kind::Text(|r| &r.app, |r, v| r.app = v.into())),
        column("extra", Kind::Text(|r| &r.extra, |r, v| r.extra = v.into())),
    ];

    fn key(&self) -> Self::Key {
        let slot = self.last_ns.div_euclid(FLOW_SLOT_NS);
        (slot, self.exporter.0, self.destination, self.source, self.last_ns)
    }

    fn time_ns(&self) -> i64 {
        self.last_ns
    }

    fn series(&self) -> u32 {
        self.exporter.0
    }

    fn merged(rows: &[Self]) -> Self {
        // Records are never merged: two with equal keys are two records.
        rows.first().cloned().unwrap_or_default()
    }
}

impl StoredRow for FlowSum {
    type Key = FlowSumKey;

    const COLUMNS: &'static [Column<Self>] = &[
        sum("start", Kind::Instant(|r| r.start_ns, |r, v| r.start_ns = v)),
        sum("exporter", Kind::Few(|r| r.exporter.0.into(), |r, v| r.exporter = SeriesId(v as u32))),
        sum("destination_net", Kind::Address(|r| r.destination_net, |r, v| r.destination_net = v)),
        sum("source_net", Kind::Address(|r| r.source_net, |r, v| r.source_net = v)),
        sum("point", Kind::Few(|r| r.point.into(), |r, v| r.point = v as u8)),
        sum("protocol", Kind::Few(|r| r.protocol.into(), |r, v| r.protocol = v as u8)),
        sum("service_port", Kind::Few(|r| r.service_port.into(), |r, v| r.service_port = v as u16)),
        sum("app", Kind::Text(|r| &r.app, |r, v| r.app = v.into())),
        sum("flows", Kind::Few(|r| r.flows as i64, |r, v| r.flows = v as u64)),
        sum("packets", Kind::Few(|r| r.packets as i64, |r, v| r.packets = v as u64)),
        sum("bytes", Kind::Few(|r| r.bytes as i64, |r, v| r.bytes = v as u64)),
        sum(
            "reverse_packets",
            Kind::Few(|r| r.reverse_packets as i64, |r, v| r.reverse_packets = v as u64),
        ),
        sum(
            "reverse_bytes",
            Kind::Few(|r| r.reverse_bytes as i64, |r, v| r.reverse_bytes = v as u64),
        ),
        sum(
            "retransmitted",
            Kind::Few(|r| r.retransmitted as i64, |r, v| r.retransmitted = v as u64),
        ),
        sum("handshake", Kind::Hist(|r| &r.handshake, |r, v| r.handshake = v)),
    ];

    fn key(&self) -> FlowSumKey {
        (
            self.start_ns,
            self.exporter.0,
            self.destination_net,
            self.source_net,
            self.point,
            self.protocol,
            self.service_port,
            self.app.clone(),
        )
    }

    fn time_ns(&self) -> i64 {
        self.start_ns
    }

    fn series(&self) -> u32 {
        self.exporter.0
    }

    fn merged(rows: &[Self]) -> Self {
        let [first, rest @ ..] = rows else { return FlowSum::default() };
        let mut all = first.clone();
        let mut handshake = HistSum::default();
        handshake.add(&first.handshake);
        for row in rest {
            all.flows += row.flows;
            all.packets += row.packets;
            all.bytes += row.bytes;
            all.reverse_packets += row.reverse_packets;
            all.reverse_bytes += row.reverse_bytes;
            all.retransmitted += row.retransmitted;
            handshake.add(&row.handshake);
        }
        all.handshake = handshake.to_blob();
        all
    }
}

const fn column(name: &'static str, kind: Kind<FlowRow>) -> Column<FlowRow> {
    Column { name, on: On::Every, kind }
}

const fn sum(name: &'static str, kind: Kind<FlowSum>) -> Column<FlowSum> {
    Column { name, on: On::Every, kind }
}

/// An address as 16 octets; IPv4 mapped (RFC 4291, section 2.5.5.2).
pub fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address of 16 octets.
pub fn unmapped(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(octets).to_canonical()
}

/// Its network: /24 of IPv4, /48 of IPv6.
pub fn net_of(mut address: [u8; 16]) -> [u8; 16] {
    let host = if Ipv6Addr::from(address).to_ipv4_mapped().is_some() { 15 } else { 6 };
    address[host..].fill(0);
    address
}

/// A direction without packets means nothing: its fields are 0.
fn side(side: &FlowSide) -> FlowSide {
    match side.packets {
        0 => FlowSide::default(),
        _ => FlowSide {
            first_ns: to_micros(side.first_ns),
            last_ns: to_micros(side.last_ns),
            ..*side
        },
    }
}

/// µs from the flow's first packet to that of this direction; 0 where it has none.
fn after_first(row: &FlowRow, side: &FlowSide) -> i64 {
    if side.packets == 0 { 0 } else { (side.first_ns - row.first_ns()) / US }
}

/// µs from this direction's last packet to that of the flow.
fn before_last(row: &FlowRow, side: &FlowSide) -> i64 {
    if side.packets == 0 { 0 } else { (row.last_ns - side.last_ns) / US }
}

/// Columns are read in their order, so the times are there: those of no packets mean nothing.
fn set_packets(side: &mut FlowSide, packets: i64) {
    side.packets = packets as u64;
    if packets == 0 {
        (side.first_ns, side.last_ns) = (0, 0);
    }
}

fn to_micros(ns: i64) -> i64 {
    ns - ns.rem_euclid(US)
}

/// What an application is called in a row: "tls".
pub fn app_name(app: &App) -> &'static str {
    match app {
        App::Tls(_) => "tls",
        App::Quic { .. } => "quic",
        App::Dns { .. } => "dns",
        App::Http { .. } => "http",
        App::Ssh { .. } => "ssh",
        App::Ntp { .. } => "ntp",
        App::Sip { .. } => "sip",
        App::Smtp { .. } => "smtp",
        App::Dhcp { .. } => "dhcp",
    }
}

/// Rows of an exporter and hour that a roll-up of hours keeps by name.
pub const TOP_FLOWS: usize = 1_000;

/// Flow records are sorted by slots of this length, so that a page of history reads a part.
pub(crate) const FLOW_SLOT_NS: i64 = 300_000_000_000;

const US: i64 = 1_000;
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;

#[cfg(test)]
mod tests;
