//! The unified header: what a flow meter needs of one packet, in 64 bytes.
//!
//! The value that parsing ends in and that the flow cache takes. The XDP program makes
//! the same 64 bytes in the kernel (`bpf/c/flow_feature.h`), so the layout is fixed: the
//! fields lie in the order below without gaps, in the machine's byte order.

use crate::Error;
use crate::field::{array_at, u16_at, u32_at};
use crate::flow::{Link, mapped};
use crate::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use crate::tunnel::{GENEVE_PORT, GTPU_PORT, VXLAN_PORT};
use crate::{ethernet, ipv4, tcp, udp};

mod slow;

/// One packet, as a flow meter counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Feature {
    /// When it was seen, ns since 1970 TAI.
    pub at_ns: i64,
    /// Source address; IPv4 as `::ffff:a.b.c.d`.
    pub source: [u8; 16],
    /// Destination address, likewise.
    pub destination: [u8; 16],
    /// Source port of TCP, UDP, UDP-Lite, SCTP and DCCP; 0 for others, and for later
    /// fragments.
    pub source_port: u16,
    /// Destination port, likewise; for ICMP type * 256 + code.
    pub destination_port: u16,
    /// Length of the IP packet with its header, bytes: from the IP header, never padding.
    pub ip_len: u32,
    /// TCP sequence number, 0 for others; of a fragment ([`SHAPE_FRAGMENT`]) its
    /// identification, whatever the protocol.
    pub sequence: u32,
    /// TCP header octets 12 and 13 without the data offset: 12 flags (RFC 9293; RFC 9565).
    pub tcp_flags: u16,
    /// VLAN identifier of the outermost tag; 0: untagged.
    pub vlan: u16,
    /// Protocol above IP and its extension headers, AH and mobility header among them; of
    /// a later fragment what its own header names, which can be another one than that of
    /// the first where extension headers or AH were cut up.
    pub protocol: u8,
    /// Type of service or traffic class octet.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Bits `SHAPE_*`.
    pub shape: u8,
    /// TCP window, not scaled; 0 for others.
    pub window: u16,
    /// From the start of the IP header to the transport's payload, in units of 4 bytes,
    /// rounded up; 255: more.
    pub headers: u8,
    /// Which of the meter's interfaces it came by.
    pub point: u8,
}

impl Feature {
    /// Length of the transport's payload, bytes, by the IP header.
    pub fn payload_len(&self) -> u32 {
        self.ip_len.saturating_sub(u32::from(self.headers) * 4)
    }
}

/// IPv6; else IPv4.
pub const SHAPE_IPV6: u8 = 1;
/// A fragment, the first or a later one; not an atomic one (RFC 6946).
pub const SHAPE_FRAGMENT: u8 = 2;
/// A fragment that is not the first: it has no ports.
pub const SHAPE_LATER_FRAGMENT: u8 = 4;
/// The addresses are those inside a tunnel.
pub const SHAPE_INNER: u8 = 8;
/// The transport's fixed header, or an extension header before it, is cut short or
/// malformed: flags, sequence and window are 0. So are the ports, if not even the first 4
/// octets of the transport are there.
pub const SHAPE_NO_TRANSPORT: u8 = 16;

/// Which IP header gives addresses, ports and lengths where there is a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Keys {
    /// The first: tunnels are not looked into.
    #[default]
    Outer,
    /// The one inside the first tunnel: IP in IP, GRE, VXLAN, GENEVE or GTP-U. What that
    /// carries is not looked into again.
    Inner,
}

/// Reads a packet down to its transport.
///
/// VLAN tags (two), PPPoE and MPLS, Ethernet pseudowires included, are looked through.
/// With [`Keys::Inner`] the packet inside a tunnel is the one that counts, and its
/// length; a tunnel that is fragmented, cut short or malformed counts as the outer
/// packet. `vlan` is always that of the outermost tag.
///
/// Whatever has an IP header is counted with the length that this header states, even if
/// `frame` is cut short after it: `shape` says what could not be read. `at_ns` and `point`
/// are put into the feature as they are. No checksum and no UDP length is looked at.
///
/// Errors: [`Error::Truncated`] where the IP header is not all there, [`Error::Length`] or
/// [`Error::Version`] where it contradicts itself, [`Error::EtherType`] for what is not
/// IP, and those of the headers before it.
#[inline]
pub fn parse(
    frame: &[u8],
    link: Link,
    keys: Keys,
    at_ns: i64,
    point: u8,
) -> Result<(Feature, Layers), Error> {
    parse_cut(frame, frame.len(), link, keys, at_ns, point)
}

/// The same for a frame of which a capture kept only a part: `wire_len` is the length it
/// had, link-layer header included.
///
/// It matters only for packets whose IP header does not state a length, because they are
/// longer than it can say: IPv4 with total length 0, and IPv6 with payload length 0 that
/// is not a jumbogram (RFC 2675), both as segmentation offload leaves them. Such a packet
/// is as long as what there was on the wire. A jumbogram is at most that long, too.
#[inline]
pub fn parse_cut(
    frame: &[u8],
    wire_len: usize,
    link: Link,
    keys: Keys,
    at_ns: i64,
    point: u8,
) -> Result<(Feature, Layers), Error> {
    match fast(frame, link, keys, at_ns, point) {
        Some(found) => Ok(found),
        None => slow::parse(frame, wire_len, link, keys, at_ns, point),
    }
}

/// What nearly all packets are: Ethernet, IPv4 without options, not a fragment, TCP or
/// UDP. `None` for all else, malformed packets included.
#[inline(always)]
fn fast(frame: &[u8], link: Link, keys: Keys, at_ns: i64, point: u8) -> Option<(Feature, Layers)> {
    let header = frame.first_chunk::<FAST_LEN>()?;
    let ip_len = usize::from(u16_at(header, IP + 2));
    if link != Link::Ethernet
        || u32_at(header, IP - 2) & 0xFFFF_FF00 != FAST_START
        || u16_at(header, IP + 6) & MORE_OR_OFFSET != 0
    {
        return None;
    }
    let mut feature = Feature {
        at_ns,
        source: mapped(array_at(header, IP + 12)),
        destination: mapped(array_at(header, IP + 16)),
        source_port: u16_at(header, TRANSPORT),
        destination_port: u16_at(header, TRANSPORT + 2),
        ip_len: ip_len as u32,
        sequence: 0,
        tcp_flags: 0,
        vlan: 0,
        protocol: header[IP + 9],
        tos: header[IP + 1],
        ttl: header[IP + 8],
        shape: 0,
        window: 0,
        headers: ((ipv4::HEADER_LEN + udp::HEADER_LEN) / 4) as u8,
        point,
    };
    let mut header_len = udp::HEADER_LEN;
    match feature.protocol {
        PROTOCOL_TCP => {
            let words = header[TRANSPORT + 12] >> 4;
            header_len = usize::from(words) * 4;
            if header_len < tcp::HEADER_LEN {
                return None;
            }
            feature.sequence = u32_at(header, TRANSPORT + 4);
            feature.tcp_flags = u16_at(header, TRANSPORT + 12) & TCP_FLAGS;
            feature.window = u16_at(header, TRANSPORT + 14);
            feature.headers = (ipv4::HEADER_LEN / 4) as u8 + words;
        }
        PROTOCOL_UDP if keys == Keys::Outer || !is_tunnel(feature.destination_port) => {}
        _ => return None,
    }
    let payload = TRANSPORT + header_len;
    if IP + ip_len < payload {
        return None;
    }
    let end = (IP + ip_len).min(frame.len()).min(usize::from(u16::MAX));
    let layers = Layers {
        ip: IP as u16,
        mpls: 0,
        outer_ip: 0,
        transport: TRANSPORT as u16,
        payload: payload.min(end) as u16,
        end: end as u16,
    };
    Some((feature, layers))
}

/// A UDP port behind which there may be a tunnel.
#[inline(always)]
const fn is_tunnel(port: u16) -> bool {
    matches!(port, VXLAN_PORT | GENEVE_PORT | GTPU_PORT)
}

/// Where IPv4 begins in an Ethernet frame without tags, and where its payload does.
const IP: usize = ethernet::HEADER_LEN;
const TRANSPORT: usize = IP + ipv4::HEADER_LEN;
/// Up to the end of a TCP header without options. What is shorter (small datagrams that
/// were not padded) goes the other way.
const FAST_LEN: usize = TRANSPORT + tcp::HEADER_LEN;
/// EtherType of IPv4, version 4, header length 5.
const FAST_START: u32 = 0x0800_4500;
/// Of the IPv4 flags and fragment offset, what makes a fragment.
const MORE_OR_OFFSET: u16 = 0x3FFF;
/// RFC 9293, section 3.1: the data offset above them.
const TCP_FLAGS: u16 = 0x0FFF;

/// Where the parts of a frame lie that the basic record does not need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Start of the IP header that the addresses come from.
    pub ip: u16,
    /// Start of the first MPLS label stack entry; 0: none.
    pub mpls: u16,
    /// Start of the outer IP header, where the addresses are those inside a tunnel
    /// ([`SHAPE_INNER`]); else 0.
    pub outer_ip: u16,
    /// Start of the transport header, of which the fixed part is all there, or of the data
    /// of a protocol that is not read; 0 for later fragments and [`SHAPE_NO_TRANSPORT`].
    pub transport: u16,
    /// Start of the transport's payload as captured.
    pub payload: u16,
    /// Its end: by the IP header, and not beyond what was captured.
    pub end: u16,
}

const _: () = assert!(size_of::<Feature>() == 64);

#[cfg(test)]
mod tests;
