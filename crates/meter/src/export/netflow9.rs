//! What a flow looks like in NetFlow version 9: the fields of RFC 3954, section 8, with
//! times relative to the exporter's start.

use sonde_wire::ipfix::element as ie;

use super::fields::Fields;
use super::flow::{RecordShape, View, octets, ports};
use super::uptime::Uptime;

/// First and last packet, ms since 1970 UTC.
pub(super) fn times(view: &View) -> (i64, i64) {
    let ms = |ns: i64| (ns - view.tai_offset_ns).div_euclid(1_000_000);
    (ms(view.near.first_ns), ms(view.near.last_ns))
}

pub(super) fn fields<W: Fields>(w: &mut W, shape: RecordShape, view: &View, uptime: &Uptime) {
    let ipv6 = shape.is_ipv6();
    let key = &view.record.key;
    let (source, destination) =
        if view.reversed { (key.destination, key.source) } else { (key.source, key.destination) };
    if ipv6 {
        w.put(ie::SOURCE_IPV6_ADDRESS, octets(source));
        w.put(ie::DESTINATION_IPV6_ADDRESS, octets(destination));
    } else {
        w.put(ie::SOURCE_IPV4_ADDRESS, super::flow::ipv4(source));
        w.put(ie::DESTINATION_IPV4_ADDRESS, super::flow::ipv4(destination));
    }
    let [from, to] = ports(view);
    w.u16(ie::SOURCE_TRANSPORT_PORT, from);
    w.u16(ie::DESTINATION_TRANSPORT_PORT, to);
    w.u64(ie::OCTET_DELTA_COUNT, view.near.bytes);
    w.u64(ie::PACKET_DELTA_COUNT, view.near.packets);
    let (first, last) = times(view);
    w.u32(ie::FLOW_START_SYS_UP_TIME, uptime.relative(first));
    w.u32(ie::FLOW_END_SYS_UP_TIME, uptime.relative(last));
    w.u32(ie::INGRESS_INTERFACE, view.interface);
    w.u16(ie::VLAN_ID, key.vlan);
    w.u8(ie::PROTOCOL_IDENTIFIER, key.protocol);
    // The format has one byte for the flags.
    w.u8(ie::TCP_CONTROL_BITS, view.near.tcp_flags as u8);
    w.u8(ie::IP_CLASS_OF_SERVICE, view.near.tos);
    w.u8(ie::MINIMUM_TTL, view.near.ttl_min);
    w.u8(ie::MAXIMUM_TTL, view.near.ttl_max);
    if shape.is_icmp() {
        // ICMP_TYPE, of both versions; nfcapd looks here and not at the port.
        w.u16(ie::ICMP_TYPE_CODE_IPV4, to);
    }
}
