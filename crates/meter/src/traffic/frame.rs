//! Writes frames: link layer, encapsulation, IP, transport, payload.

use sonde_wire::checksum;
use sonde_wire::ethernet::{FCS_LEN, HEADER_LEN as ETHERNET};
use sonde_wire::tcp::SYN;

use super::address::{v4, v6};
use super::app;
use super::config::{Encapsulation, Net};
use super::flow::{Content, Flow, PacketPlan, Transport};

/// What all payloads without an application are made of: random octets, and the sums that
/// save adding them up.
pub(super) struct Filler {
    octets: Box<[u8]>,
    /// Sum of the first 2 * i octets.
    sums: Box<[u16]>,
}

impl Filler {
    pub fn new(rng: &mut fastrand::Rng, len: usize) -> Self {
        let octets: Box<[u8]> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
        let mut sum = 0;
        let mut sums = vec![0];
        for word in octets.chunks_exact(2) {
            sum = checksum::combine(sum, checksum::sum(word));
            sums.push(sum as u16);
        }
        Filler { octets, sums: sums.into() }
    }

    #[inline]
    fn sum(&self, len: usize) -> u32 {
        let even = u32::from(self.sums[len / 2]);
        if len % 2 == 1 { even + (u32::from(self.octets[len - 1]) << 8) } else { even }
    }
}

/// A frame that was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// Length of the frame.
    pub len: usize,
    /// Where the innermost IP header begins.
    pub ip: usize,
    /// Length of the innermost IP header.
    pub ip_header: usize,
    /// Length of the innermost IP packet.
    pub ip_len: usize,
    /// Length of the outermost one.
    pub outer_len: usize,
    /// Length of the payload.
    pub payload: usize,
}

/// The payload that a data frame of `size` bytes on the wire leaves room for, [`DATA_MIN`] at least.
#[inline]
pub(super) fn payload_of(flow: &Flow, size: u16) -> usize {
    let transport = match flow.transport {
        Transport::Tcp => 20,
        _ => 8,
    };
    let headers = ETHERNET + around(flow.encapsulation) + ip_header(flow) + transport;
    usize::from(size).saturating_sub(headers + FCS_LEN).max(DATA_MIN)
}

/// Writes the frame of `plan` to the start of `buffer`, which is long enough.
#[inline]
pub(super) fn write(
    net: Net,
    filler: &Filler,
    flow: &Flow,
    plan: &PacketPlan,
    buffer: &mut [u8],
) -> Written {
    let (from, to) = (usize::from(plan.side), 1 - usize::from(plan.side));
    let ip = ETHERNET + around(flow.encapsulation);
    let ip_header = ip_header(flow);
    let l4 = ip + ip_header;
    let is_syn = plan.tcp_flags & SYN != 0;
    let header = match flow.transport {
        Transport::Tcp if is_syn => 20 + SYN_OPTIONS.len(),
        Transport::Tcp => 20,
        _ => 8,
    };
    let at = l4 + header;
    let (payload, payload_sum) = match plan.content {
        Content::Empty => (0, 0),
        Content::Fill(size) => {
            let len = payload_of(flow, size);
            let data = &mut buffer[at..at + len];
            data.copy_from_slice(&filler.octets[..len]);
            let sum = filler.sum(len);
            // Over IPv6 nothing else would tell two datagrams apart. Segments have sequence numbers,
            // and an echo's reply repeats its payload.
            if flow.transport == Transport::Udp {
                put32(data, 0, plan.index);
                // RFC 1624, section 3: less the old words, plus the new ones.
                let old = filler.sum(DATA_MIN);
                let new = (plan.index >> 16) + (plan.index & 0xFFFF);
                (len, checksum::combine(sum, u32::from(checksum::finish(old)) + new))
            } else {
                (len, sum)
            }
        }
        Content::App(exchange) => {
            let room = &mut buffer[at..at + app::LONGEST];
            let len = app::write(flow.app, from, flow.index, exchange, room);
            (len, checksum::sum(&buffer[at..at + len]))
        }
    };
    let segment = header + payload;
    let ip_len = ip_header + segment;
    let end = at + payload;

    let h = &mut buffer[l4..at];
    match flow.transport {
        Transport::Tcp => {
            let ports = if from == 0 {
                [flow.tuple.client_port, flow.server_port]
            } else {
                [flow.server_port, flow.tuple.client_port]
            };
            put16(h, 0, ports[0]);
            put16(h, 2, ports[1]);
            put32(h, 4, plan.seq);
            put32(h, 8, plan.ack);
            h[12] = (header as u8 / 4) << 4;
            h[13] = plan.tcp_flags;
            // What is free varies as the application reads: so acknowledgements differ.
            put16(h, 14, 0xFAF0 - (plan.index & 0xFFF) as u16);
            put32(h, 16, 0);
            if is_syn {
                h[20..].copy_from_slice(&SYN_OPTIONS);
            }
        }
        Transport::Udp => {
            let ports = if from == 0 {
                [flow.tuple.client_port, flow.server_port]
            } else {
                [flow.server_port, flow.tuple.client_port]
            };
            put16(h, 0, ports[0]);
            put16(h, 2, ports[1]);
            put16(h, 4, segment as u16);
            put16(h, 6, 0);
        }
        Transport::Icmp => {
            h[0] = icmp_type(flow.is_v6, plan.side);
            h[1] = 0;
            put16(h, 2, 0);
            put16(h, 4, flow.index as u16);
            put16(h, 6, plan.seq as u16);
        }
    }
    let header_sum = checksum::sum(h) + payload_sum;

    let hosts = flow.tuple.hosts;
    let protocol = protocol(flow);
    let h = &mut buffer[ip..l4];
    if flow.is_v6 {
        put32(h, 0, 6 << 28 | u32::from(flow.tos) << 20 | flow.index as u32 & 0xF_FFFF);
        put16(h, 4, segment as u16);
        h[6] = protocol;
        h[7] = flow.ttl[from];
        h[8..24].copy_from_slice(&v6(from, hosts[from]));
        h[24..40].copy_from_slice(&v6(to, hosts[to]));
    } else {
        let (source, destination) = (v4(net, from, hosts[from]), v4(net, to, hosts[to]));
        let fragment = identification(flow, plan);
        put_v4(h, ip_len, protocol, flow.tos, flow.ttl[from], fragment, source, destination);
    }
    let addresses = checksum::sum(&h[if flow.is_v6 { 8 } else { 12 }..]);
    let pseudo = addresses + u32::from(protocol) + segment as u32;
    let field = match flow.transport {
        Transport::Tcp => Some((16, checksum::finish(pseudo + header_sum))),
        Transport::Udp => Some((6, checksum::finish_udp(pseudo + header_sum))),
        // ICMP has no pseudo-header, ICMPv6 has (RFC 4443, section 2.3).
        Transport::Icmp if flow.is_v6 => Some((2, checksum::finish(pseudo + header_sum))),
        Transport::Icmp => Some((2, checksum::finish(header_sum))),
    };
    if let Some((at, value)) = field {
        put16(buffer, l4 + at, value);
    }

    let outer_len = wrap(net, flow, plan, ip_len, buffer);
    buffer[end..].iter_mut().take(SHORTEST.saturating_sub(end)).for_each(|b| *b = 0);
    Written { len: end.max(SHORTEST), ip, ip_header, ip_len, outer_len, payload }
}

/// Ethernet and what lies between it and the innermost IP header, already written behind.
/// Returns the length of the outermost IP packet.
#[inline]
fn wrap(net: Net, flow: &Flow, plan: &PacketPlan, ip_len: usize, buffer: &mut [u8]) -> usize {
    ethernet(buffer, plan.side);
    let ethertype = if flow.is_v6 { IPV6 } else { IPV4 };
    match flow.encapsulation {
        Encapsulation::None => put16(buffer, 12, ethertype),
        Encapsulation::Vlan => {
            put16(buffer, 12, 0x8100);
            put16(buffer, 14, vlan(flow));
            put16(buffer, 16, ethertype);
        }
        Encapsulation::Qinq => {
            put16(buffer, 12, 0x88A8);
            put16(buffer, 14, vlan(flow));
            put16(buffer, 16, 0x8100);
            put16(buffer, 18, 200 + (flow.index % 7) as u16);
            put16(buffer, 20, ethertype);
        }
        Encapsulation::Mpls => {
            put16(buffer, 12, 0x8847);
            // Label, bottom of stack, time to live (RFC 3032, section 2.1).
            put32(buffer, 14, (16_000 + flow.index as u32 % 100) << 12 | 64);
            put32(buffer, 18, (17_000 + flow.index as u32 % 100) << 12 | 1 << 8 | 64);
        }
        tunnel => return outer(net, flow, tunnel, plan, ip_len, buffer),
    }
    ip_len
}

/// The tunnels' headers. The outer checksum of UDP is 0, as VXLAN, GENEVE and GTP-U over
/// IPv4 allow.
fn outer(
    net: Net,
    flow: &Flow,
    tunnel: Encapsulation,
    plan: &PacketPlan,
    ip_len: usize,
    buffer: &mut [u8],
) -> usize {
    let side = plan.side;
    put16(buffer, 12, IPV4);
    let (from, to) = (usize::from(side), 1 - usize::from(side));
    let inner = if flow.is_v6 { IPV6 } else { IPV4 };
    let between = around(tunnel);
    let outer_len = between + ip_len;
    let ports = tunnel_ports(flow, side);
    let protocol = if ports.is_some() { 17 } else { 47 };
    let (source, destination) = (v4(net, from, flow.outer[from]), v4(net, to, flow.outer[to]));
    let h = &mut buffer[ETHERNET..ETHERNET + between];
    let fragment = identification(flow, plan);
    put_v4(&mut h[..20], outer_len, protocol, 0, OUTER_TTL, fragment, source, destination);
    if let Some([source, destination]) = ports {
        put16(h, 20, source);
        put16(h, 22, destination);
        put16(h, 24, (outer_len - 20) as u16);
        put16(h, 26, 0);
    }
    let id = flow.index as u32 & 0xFF_FFFF;
    match tunnel {
        Encapsulation::Gre => {
            put16(h, 20, 0);
            put16(h, 22, inner);
        }
        Encapsulation::GtpU => {
            put16(h, 28, 0x30FF);
            put16(h, 30, ip_len as u16);
            put32(h, 32, id);
        }
        Encapsulation::Vxlan => {
            put32(h, 28, 0x0800_0000);
            put32(h, 32, id << 8);
            ethernet(&mut h[36..], side);
            put16(h, 48, inner);
        }
        _ => {
            put32(h, 28, 0x6558);
            put32(h, 32, id << 8);
            ethernet(&mut h[36..], side);
            put16(h, 48, inner);
        }
    }
    outer_len
}

/// Source and destination port of the outer header; `None` for GRE. The ends of VXLAN and GENEVE
/// both send to the well-known port. They send from one that stands for the flow (RFC 7348, section
/// 5; RFC 8926, section 3.3). So the two directions are not each other's keys reversed.
pub(super) fn tunnel_ports(flow: &Flow, side: u8) -> Option<[u16; 2]> {
    let port = match flow.encapsulation {
        Encapsulation::GtpU => return Some([2152, 2152]),
        Encapsulation::Vxlan => 4789,
        Encapsulation::Geneve => 6081,
        _ => return None,
    };
    Some([0xC000 | (flow.index as u16 ^ u16::from(side)) & 0x3FFF, port])
}

/// The VLAN identifier of the outermost tag.
pub(super) fn vlan(flow: &Flow) -> u16 {
    match flow.encapsulation {
        Encapsulation::Vlan | Encapsulation::Qinq => 100 + (flow.index % 16) as u16,
        _ => 0,
    }
}

/// The protocol number above the innermost IP header.
pub(super) fn protocol(flow: &Flow) -> u8 {
    match flow.transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
        Transport::Icmp if flow.is_v6 => 58,
        Transport::Icmp => 1,
    }
}

/// The type of an echo request (side 0) or reply.
pub(super) fn icmp_type(is_v6: bool, side: u8) -> u8 {
    match (is_v6, side) {
        (true, _) => 128 + side,
        (false, 0) => 8,
        (false, _) => 0,
    }
}

/// Bytes between the Ethernet header and the innermost IP header.
#[inline]
fn around(encapsulation: Encapsulation) -> usize {
    match encapsulation {
        Encapsulation::None => 0,
        Encapsulation::Vlan => 4,
        Encapsulation::Qinq | Encapsulation::Mpls => 8,
        Encapsulation::Gre => 24,
        Encapsulation::GtpU => 36,
        Encapsulation::Vxlan | Encapsulation::Geneve => 50,
    }
}

#[inline]
fn ip_header(flow: &Flow) -> usize {
    if flow.is_v6 { 40 } else { 20 }
}

/// Addresses of the locally administered kind, one a side.
#[inline]
fn ethernet(buffer: &mut [u8], side: u8) {
    buffer[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2 - side]);
    buffer[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1 + side]);
}

/// The identification of an IPv4 packet, which counts within its flow, and Don't Fragment.
#[inline]
fn identification(flow: &Flow, plan: &PacketPlan) -> u32 {
    // Flows of the same two hosts begin apart.
    let first = (flow.index as u16).wrapping_mul(0x9E37).wrapping_add(1);
    u32::from(first.wrapping_add(plan.index as u16)) << 16 | 0x4000
}

/// An IPv4 header without options. `fragment`: identification, flags (0x4000: Don't
/// Fragment) and offset.
#[inline]
#[expect(clippy::too_many_arguments, reason = "they are the header's fields")]
pub(super) fn put_v4(
    h: &mut [u8],
    len: usize,
    protocol: u8,
    tos: u8,
    ttl: u8,
    fragment: u32,
    source: [u8; 4],
    destination: [u8; 4],
) {
    h[0] = 0x45;
    h[1] = tos;
    put16(h, 2, len as u16);
    put32(h, 4, fragment);
    h[8] = ttl;
    h[9] = protocol;
    put16(h, 10, 0);
    h[12..16].copy_from_slice(&source);
    h[16..20].copy_from_slice(&destination);
    let sum = checksum::finish(checksum::sum(&h[..20]));
    put16(h, 10, sum);
}

#[inline(always)]
pub(super) fn put16(data: &mut [u8], at: usize, value: u16) {
    data[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[inline(always)]
pub(super) fn put32(data: &mut [u8], at: usize, value: u32) {
    data[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Maximum segment size 1460, SACK permitted, window scale 7, padded.
const SYN_OPTIONS: [u8; 12] = [2, 4, 0x05, 0xB4, 4, 2, 3, 3, 7, 1, 1, 0];
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86DD;
pub(super) const OUTER_TTL: u8 = 255;
/// Bytes of payload of a packet with data, at least: without any, TCP's sequence numbers would stand
/// still and datagrams over IPv6 would be alike.
const DATA_MIN: usize = 4;
/// Shortest Ethernet frame without it; shorter ones are padded.
const SHORTEST: usize = 60;
