//! What a flow record looks like in IPFIX: its fields, and which of them it has.

use std::net::IpAddr;

use sonde_results::flow::{FlowRecord, FlowSide, TunnelKind};
use sonde_wire::ipfix::element::{self as ie, Element};
use sonde_wire::ipfix::time;
use sonde_wire::ipv6::PROTOCOL_ICMPV6;

use super::app;
use super::fields::Fields;
use super::{Extra, Profile, TimeUnit};

/// One flow as it is exported: one direction of a record, or both.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub record: &'a FlowRecord,
    /// What was sent by the record's source; by its destination where `reversed`.
    pub near: &'a FlowSide,
    /// What came back; a uniflow has none.
    pub far: Option<&'a FlowSide>,
    /// The record's destination is the source here.
    pub reversed: bool,
    /// ifIndex of the interface it was seen on.
    pub interface: u32,
    /// TAI - UTC, ns.
    pub tai_offset_ns: i64,
    pub profile: Profile,
}

/// Which fields a record has: two records with the same shape have the same template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordShape(pub u32);

impl RecordShape {
    const IPV6: u32 = 1;
    const BIFLOW: u32 = 1 << 1;
    const ICMP: u32 = 1 << 2;
    /// TCP flags beyond the 8 classic ones: 2 bytes of them. Else one byte is sent, the
    /// reduced size of RFC 9565, for nfacctd reads only the first.
    const WIDE_FLAGS: u32 = 1 << 3;
    const LINK: u32 = 1 << 4;
    /// 2 bits: MPLS label stack entries.
    const MPLS: u32 = 5;
    const TUNNEL: u32 = 1 << 7;
    const TUNNEL_IPV6: u32 = 1 << 8;
    /// 2 bits: the element of the tunnel's identifier.
    const TUNNEL_ID: u32 = 9;
    const TCP: u32 = 1 << 11;
    const PACKETS: u32 = 1 << 12;
    const SPREAD: u32 = 1 << 13;
    const REVERSE_SPREAD: u32 = 1 << 14;
    /// 4 bits: the application, from 1.
    const APP: u32 = 16;
    /// Options templates: what is theirs begins here.
    pub const OPTIONS: u32 = 1 << 31;
    /// How many shapes have no extra fields: the bits below [`Self::LINK`].
    pub const BASIC: usize = 16;

    /// Only what concerns the basic record.
    #[inline(always)]
    pub fn basic(view: &View) -> Self {
        let key = &view.record.key;
        let ipv6 = key.source.is_ipv6() || key.destination.is_ipv6();
        let icmp = matches!(key.protocol, ICMP | PROTOCOL_ICMPV6);
        let flags = view.near.tcp_flags | view.far.map_or(0, |far| far.tcp_flags);
        RecordShape(
            (u32::from(ipv6) * Self::IPV6)
                | (u32::from(view.far.is_some()) * Self::BIFLOW)
                | (u32::from(icmp) * Self::ICMP)
                | (u32::from(flags > 0xff) * Self::WIDE_FLAGS),
        )
    }

    /// What NetFlow version 9 distinguishes: one way, one byte of flags.
    pub fn netflow9(view: &View) -> Self {
        RecordShape(Self::basic(view).0 & (Self::IPV6 | Self::ICMP))
    }

    /// All that the profile asks for and the record has.
    pub fn full(view: &View) -> Self {
        let mut shape = Self::basic(view).0;
        let Some(extra) = view.record.extra.as_deref() else { return RecordShape(shape) };
        let Extra { link, tcp, apps } = view.profile.extra;
        if let Some(found) = extra.link.as_ref().filter(|_| link) {
            shape |= Self::LINK | (found.mpls.len().min(3) as u32) << Self::MPLS;
            if let Some(tunnel) = &found.tunnel {
                let ipv6 = tunnel.outer_source.is_ipv6() || tunnel.outer_destination.is_ipv6();
                shape |= Self::TUNNEL | (u32::from(ipv6) * Self::TUNNEL_IPV6);
                let id = match tunnel.kind {
                    TunnelKind::Ip => 0,
                    TunnelKind::Gre => 1,
                    TunnelKind::GtpU => 2,
                    TunnelKind::Vxlan | TunnelKind::Geneve => 3,
                };
                shape |= id << Self::TUNNEL_ID;
            }
        }
        shape |= u32::from(tcp && extra.tcp.is_some()) * Self::TCP;
        if view.profile.lists {
            shape |= u32::from(!extra.packets.is_empty()) * Self::PACKETS;
            let [near, far] = view.sided(&extra.forward_spread, &extra.reverse_spread);
            shape |= u32::from(near.is_some()) * Self::SPREAD;
            shape |= u32::from(far.is_some() && view.far.is_some()) * Self::REVERSE_SPREAD;
        }
        if let Some(found) = extra.app.as_ref().filter(|_| apps) {
            shape |= app::index(found) << Self::APP;
        }
        RecordShape(shape)
    }

    /// Without the lists, which are the longest.
    pub fn without_lists(self) -> Self {
        RecordShape(self.0 & !(Self::PACKETS | Self::SPREAD | Self::REVERSE_SPREAD))
    }

    pub fn is_ipv6(self) -> bool {
        self.has(Self::IPV6)
    }

    pub fn is_icmp(self) -> bool {
        self.has(Self::ICMP)
    }

    pub fn is_basic(self) -> bool {
        self.0 < Self::BASIC as u32
    }

    fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }
}

impl View<'_> {
    /// The value of the exported source, then of the destination.
    fn sided<T>(&self, forward: T, reverse: T) -> [T; 2] {
        if self.reversed { [reverse, forward] } else { [forward, reverse] }
    }
}

/// Fields of the basic record, at most [`BASIC_MAX`] bytes.
#[inline(always)]
pub(super) fn basic<W: Fields>(w: &mut W, shape: RecordShape, view: &View) {
    // Constants for the compiler: it knows every offset up to the last.
    match (shape.has(RecordShape::IPV6), shape.has(RecordShape::BIFLOW)) {
        (false, false) => fixed::<W, false, false>(w, view),
        (false, true) => fixed::<W, false, true>(w, view),
        (true, false) => fixed::<W, true, false>(w, view),
        (true, true) => fixed::<W, true, true>(w, view),
    }
    tcp_flags(w, shape, view.near, ie::TCP_CONTROL_BITS);
    if let Some(far) = view.far {
        tcp_flags(w, shape, far, ie::TCP_CONTROL_BITS.reverse());
    }
    if shape.has(RecordShape::ICMP) {
        let element = if shape.has(RecordShape::IPV6) {
            ie::ICMP_TYPE_CODE_IPV6
        } else {
            ie::ICMP_TYPE_CODE_IPV4
        };
        w.u16(element, ports(view)[1]);
    }
    if view.profile.biflow {
        // RFC 5103, section 6.3: 1, the source opened the flow; 2, the destination did.
        w.u8(ie::BIFLOW_DIRECTION, if view.reversed { 2 } else { 1 });
    }
}

/// The part of which all is known but for addresses and direction.
#[inline(always)]
fn fixed<W: Fields, const IPV6: bool, const BIFLOW: bool>(w: &mut W, view: &View) {
    let key = &view.record.key;
    let [source, destination] = view.sided(key.source, key.destination);
    if IPV6 {
        w.put(ie::SOURCE_IPV6_ADDRESS, octets(source));
        w.put(ie::DESTINATION_IPV6_ADDRESS, octets(destination));
    } else {
        w.put(ie::SOURCE_IPV4_ADDRESS, ipv4(source));
        w.put(ie::DESTINATION_IPV4_ADDRESS, ipv4(destination));
    }
    let [from, to] = ports(view);
    w.u16(ie::SOURCE_TRANSPORT_PORT, from);
    w.u16(ie::DESTINATION_TRANSPORT_PORT, to);
    side(w, view, view.near, |element| element);
    if BIFLOW {
        side(w, view, view.far.unwrap_or(view.near), Element::reverse);
    }
    w.u32(ie::INGRESS_INTERFACE, view.interface);
    w.u16(ie::VLAN_ID, key.vlan);
    w.u8(ie::PROTOCOL_IDENTIFIER, key.protocol);
    w.u8(ie::FLOW_END_REASON, view.record.end as u8);
}

/// Source and destination port. ICMP has its type and code where others have the
/// destination port, in either direction: that is where collectors look for them.
#[inline(always)]
pub(super) fn ports(view: &View) -> [u16; 2] {
    let key = &view.record.key;
    if !view.reversed {
        return [key.source_port, key.destination_port];
    }
    match key.protocol {
        ICMP | PROTOCOL_ICMPV6 => [0, reply(key.protocol, key.destination_port)],
        _ => [key.destination_port, key.source_port],
    }
}

/// The type and code of what answers an ICMP request (RFC 792, RFC 4443, section 4.2); the
/// record has only those of its first packet.
fn reply(protocol: u8, type_code: u16) -> u16 {
    match (protocol, type_code >> 8) {
        (ICMP, 8) => 0,
        (ICMP, 13) => 14 << 8,
        (PROTOCOL_ICMPV6, 128) => 129 << 8,
        _ => type_code,
    }
}

#[inline(always)]
fn side<W: Fields>(w: &mut W, view: &View, side: &FlowSide, of: impl Fn(Element) -> Element) {
    w.u64(of(ie::OCTET_DELTA_COUNT), side.bytes);
    w.u64(of(ie::PACKET_DELTA_COUNT), side.packets);
    let (first, last) = (side.first_ns - view.tai_offset_ns, side.last_ns - view.tai_offset_ns);
    let (start, end, first, last) = match view.profile.time {
        TimeUnit::Milli => (
            ie::FLOW_START_MILLISECONDS,
            ie::FLOW_END_MILLISECONDS,
            time::millis(first),
            time::millis(last),
        ),
        TimeUnit::Micro => (
            ie::FLOW_START_MICROSECONDS,
            ie::FLOW_END_MICROSECONDS,
            time::micros(first),
            time::micros(last),
        ),
        TimeUnit::Nano => (
            ie::FLOW_START_NANOSECONDS,
            ie::FLOW_END_NANOSECONDS,
            time::nanos(first),
            time::nanos(last),
        ),
    };
    w.u64(of(start), first);
    w.u64(of(end), last);
    w.u8(of(ie::IP_CLASS_OF_SERVICE), side.tos);
    w.u8(of(ie::MINIMUM_TTL), side.ttl_min);
    w.u8(of(ie::MAXIMUM_TTL), side.ttl_max);
}

#[inline(always)]
fn tcp_flags<W: Fields>(w: &mut W, shape: RecordShape, side: &FlowSide, element: Element) {
    if shape.has(RecordShape::WIDE_FLAGS) {
        w.u16(element, side.tcp_flags);
    } else {
        w.u8(element, side.tcp_flags as u8);
    }
}

/// Fields beyond the basic record; strings cut to `text` bytes.
pub(super) fn extra<W: Fields>(w: &mut W, shape: RecordShape, view: &View, text: usize) {
    let Some(extra) = view.record.extra.as_deref() else { return };
    if let Some(link) = extra.link.as_ref().filter(|_| shape.has(RecordShape::LINK)) {
        let [source, destination] = view.sided(link.source_mac, link.destination_mac);
        w.put(ie::SOURCE_MAC_ADDRESS, source);
        w.put(ie::DESTINATION_MAC_ADDRESS, destination);
        w.u16(ie::DOT1Q_CUSTOMER_VLAN_ID, link.inner_vlan);
        for (entry, element) in link.mpls.iter().zip(MPLS_ENTRIES) {
            let [_, label @ ..] = entry.to_be_bytes();
            w.put(element, label);
        }
        if let Some(tunnel) = &link.tunnel {
            match shape.0 >> RecordShape::TUNNEL_ID & 3 {
                1 => w.u32(ie::GRE_KEY, tunnel.id),
                2 => w.u32(ie::GTPU_TEID, tunnel.id),
                3 => {
                    // The kind is in the first octet: 1 VXLAN; GENEVE has none of its own.
                    let kind = u64::from(tunnel.kind == TunnelKind::Vxlan);
                    w.u64(ie::LAYER2_SEGMENT_ID, kind << 56 | u64::from(tunnel.id));
                }
                _ => {}
            }
        }
    }
    if let Some(tcp) = extra.tcp.as_ref().filter(|_| shape.has(RecordShape::TCP)) {
        // The round trip beyond the meter, to where this direction's packets go.
        let delays = view.sided(tcp.handshake_server_ns, tcp.handshake_client_ns);
        let window = view.sided(tcp.window_min, tcp.reverse_window_min);
        let lost = view.sided(tcp.retransmitted, tcp.reverse_retransmitted);
        let late = view.sided(tcp.reordered, tcp.reverse_reordered);
        w.u32(ie::PATH_DELAY_MEAN_DELTA_MICROSECONDS, micros(delays[0]));
        w.u16(ie::TCP_WINDOW_SIZE, window[0]);
        w.u32(ie::RETRANSMITTED_IN_PKTS, lost[0]);
        w.u32(ie::OUT_OF_ORDER_IN_PKTS, late[0]);
        if shape.has(RecordShape::BIFLOW) {
            w.u32(ie::PATH_DELAY_MEAN_DELTA_MICROSECONDS.reverse(), micros(delays[1]));
            w.u16(ie::TCP_WINDOW_SIZE.reverse(), window[1]);
            w.u32(ie::RETRANSMITTED_OUT_PKTS, lost[1]);
            w.u32(ie::OUT_OF_ORDER_OUT_PKTS, late[1]);
        }
    }
    if shape.has(RecordShape::PACKETS) {
        packets(w, view);
    }
    let [near, far] = view.sided(&extra.forward_spread, &extra.reverse_spread);
    if let Some(spread) = near.as_ref().filter(|_| shape.has(RecordShape::SPREAD)) {
        w.list(ie::SOURCE_LENGTH_HISTOGRAM, ORDERED, spread.lengths.iter().map(bytes));
        w.list(ie::SOURCE_GAP_HISTOGRAM, ORDERED, spread.gaps.iter().map(bytes));
    }
    if let Some(spread) = far.as_ref().filter(|_| shape.has(RecordShape::REVERSE_SPREAD)) {
        w.list(ie::DESTINATION_LENGTH_HISTOGRAM, ORDERED, spread.lengths.iter().map(bytes));
        w.list(ie::DESTINATION_GAP_HISTOGRAM, ORDERED, spread.gaps.iter().map(bytes));
    }
    if let Some(found) = extra.app.as_ref().filter(|_| shape.0 >> RecordShape::APP & 15 != 0) {
        app::fields(w, found, text);
    }
}

/// The outer header's addresses, which come before the inner one's. Of elements that are in a
/// template twice, the first is the outer one (RFC 7011, section 8).
pub(super) fn outer<W: Fields>(w: &mut W, shape: RecordShape, view: &View) {
    if !shape.has(RecordShape::TUNNEL) {
        return;
    }
    let link = view.record.extra.as_deref().and_then(|extra| extra.link.as_ref());
    let Some(tunnel) = link.and_then(|link| link.tunnel) else { return };
    let [source, destination] = view.sided(tunnel.outer_source, tunnel.outer_destination);
    if shape.has(RecordShape::TUNNEL_IPV6) {
        w.put(ie::SOURCE_IPV6_ADDRESS, octets(source));
        w.put(ie::DESTINATION_IPV6_ADDRESS, octets(destination));
    } else {
        w.put(ie::SOURCE_IPV4_ADDRESS, ipv4(source));
        w.put(ie::DESTINATION_IPV4_ADDRESS, ipv4(destination));
    }
}

/// Four lists of equal length, as ipfixprobe's pstats has them; a uniflow has the packets of
/// both directions, too. Times count from the flow's start in ms, for the element says so.
fn packets<W: Fields>(w: &mut W, view: &View) {
    let Some(extra) = view.record.extra.as_deref() else { return };
    let list = &extra.packets;
    w.list(ie::PACKET_LENGTHS, ORDERED, list.iter().map(|p| p.length.to_be_bytes()));
    let mut at = view.record.first_ns() - view.tai_offset_ns;
    let times = list.iter().map(|p| {
        at = at.saturating_add(i64::try_from(p.after_ns).unwrap_or(i64::MAX));
        time::millis(at).to_be_bytes()
    });
    w.list(ie::PACKET_TIMES, ORDERED, times);
    w.list(ie::PACKET_FLAGS, ORDERED, list.iter().map(|p| [p.tcp_flags]));
    let direction = |reverse| if reverse == view.reversed { 1i8 } else { -1 };
    w.list(ie::PACKET_DIRECTIONS, ORDERED, list.iter().map(|p| direction(p.reverse).to_be_bytes()));
}

fn bytes(value: &u32) -> [u8; 4] {
    value.to_be_bytes()
}

fn micros(ns: u64) -> u32 {
    u32::try_from(ns / 1000).unwrap_or(u32::MAX)
}

#[inline(always)]
pub(super) fn ipv4(address: IpAddr) -> [u8; 4] {
    match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => [0; 4],
    }
}

#[inline(always)]
pub(super) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Longest basic record: a biflow of IPv6 and ICMP with all flags, and the direction.
pub(super) const BASIC_MAX: usize = 32 + 4 + 2 * 37 + 8 + 2 + 1;
/// The values of a list are in their order (RFC 6313, section 4.4).
const ORDERED: u8 = 4;
const ICMP: u8 = 1;
const MPLS_ENTRIES: [Element; 3] = [
    ie::MPLS_TOP_LABEL_STACK_SECTION,
    ie::MPLS_LABEL_STACK_SECTION2,
    ie::MPLS_LABEL_STACK_SECTION3,
];
