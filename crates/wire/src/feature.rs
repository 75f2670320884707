//! The unified header: what a flow meter needs of one packet, in 64 bytes.
//!
//! The value that parsing ends in and that the flow cache takes. The XDP program makes the same 64
//! bytes in the kernel (`bpf/c/flow_feature.h`), so the layout is fixed. The fields lie in the
//! order below without gaps, in the machine's byte order.

use crate::Error;
use crate::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN};
use crate::field::{array_at, u16_at, u32_at};
use crate::flow::LinkType;
use crate::ip::{MORE_OR_OFFSET, mapped};
use crate::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use crate::tunnel::Tunnel;
use crate::{ethernet, ipv4, ipv6, tcp, udp};

mod segments;
mod slow;

pub use segments::SegmentIter;

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
    /// Protocol above IP and its extension headers, AH and mobility header among them. Of a later
    /// fragment what its own header names. That can be another one than that of the first where
    /// extension headers or AH were cut up.
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

/// The addresses are of IPv6; else they are of IPv4.
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
    /// Start of the transport header, of which the fixed part is all there, or of the data of a
    /// protocol that is not read. 0 for later fragments and [`SHAPE_NO_TRANSPORT`].
    pub transport: u16,
    /// Start of the transport's payload as captured.
    pub payload: u16,
    /// Its end: by the IP header, and not beyond what was captured.
    pub end: u16,
}

/// Which IP header gives addresses, ports and lengths where there is a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Keys {
    /// The first: tunnels are not looked into.
    #[default]
    Outer,
    /// The one inside the first tunnel ([`Tunnel`]). What that carries is not looked into again.
    Inner,
}

/// What is known of a frame beside its octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketMeta {
    /// Length it had, link-layer header included, where a capture kept only a part of it;
    /// bytes.
    pub wire_len: usize,
    /// What it begins with.
    pub link: LinkType,
    /// When it was seen, ns since 1970 TAI.
    pub at_ns: i64,
    /// Which of the meter's interfaces it came by.
    pub point: u8,
}

/// Reads a packet down to its transport, into `feature` and `layers`: all of both is written, or,
/// after an error, any part. They are written where the caller keeps them. A value that is copied
/// while its parts are on their way to the processor's cache waits for them. That costs as much as
/// reading the packet.
///
/// VLAN tags (four), 802.2 LLC and SNAP, PPPoE and MPLS, Ethernet pseudowires included, are looked
/// through. With [`Keys::Inner`] the packet inside a tunnel is the one that counts, and its length.
/// A tunnel that is fragmented, cut short or malformed counts as the outer packet. `vlan` is always
/// that of the outermost tag.
///
/// Whatever has an IP header is counted with the length that this header states, even if `frame` is
/// cut short after it. `shape` says what could not be read. `at_ns` and `point` are put into the
/// feature as they are. No checksum and no UDP length is looked at.
///
/// `wire_len` matters only for packets whose IP header does not state a length. They are longer
/// than it can say, as segmentation offload leaves them. IPv4 has total length 0 then; IPv6 has
/// payload length 0 and a hop-by-hop options header or more than 65,535 octets behind it. Such a
/// packet is as long as what there was on the wire. A jumbogram (RFC 2675) is at most that long,
/// too.
///
/// Errors: [`Error::Truncated`] where the IP header is not all there, [`Error::Length`] or
/// [`Error::Version`] where it contradicts itself. [`Error::EtherType`] for what is not IP, and
/// those of the headers before it.
#[inline(always)]
pub fn parse_into(
    frame: &[u8],
    seen: &PacketMeta,
    keys: Keys,
    feature: &mut Feature,
    layers: &mut Layers,
) -> Result<(), Error> {
    let mut to = To { feature, layers };
    if seen.link == LinkType::Ethernet
        && ethertype(frame, ethernet::HEADER_LEN) == Some(ETHERTYPE_IPV4)
        && plain::<IPV4>(frame, ethernet::HEADER_LEN, 0, seen, keys, &mut to).is_some()
    {
        return Ok(());
    }
    other(frame, seen, keys, &mut to)
}

/// The same for a whole frame, by value.
#[inline]
pub fn parse(
    frame: &[u8],
    link: LinkType,
    keys: Keys,
    at_ns: i64,
    point: u8,
) -> Result<(Feature, Layers), Error> {
    parse_cut(frame, frame.len(), link, keys, at_ns, point)
}

/// The same for a frame of which a capture kept only a part, by value.
#[inline]
pub fn parse_cut(
    frame: &[u8],
    wire_len: usize,
    link: LinkType,
    keys: Keys,
    at_ns: i64,
    point: u8,
) -> Result<(Feature, Layers), Error> {
    let (mut feature, mut layers) = Default::default();
    let seen = PacketMeta { wire_len, link, at_ns, point };
    parse_into(frame, &seen, keys, &mut feature, &mut layers)?;
    Ok((feature, layers))
}

/// Where a packet is read to.
struct To<'a> {
    feature: &'a mut Feature,
    layers: &'a mut Layers,
}

/// What is not the most common. Next to it: one VLAN tag, IPv6, or both.
#[inline(never)]
fn other(frame: &[u8], seen: &PacketMeta, keys: Keys, to: &mut To<'_>) -> Result<(), Error> {
    if seen.link == LinkType::Ethernet {
        let mut at = ethernet::HEADER_LEN;
        let mut kind = ethertype(frame, at);
        let mut vlan = 0;
        if kind == Some(ETHERTYPE_VLAN)
            && let Some(tag) = frame.get(at..at + 4)
        {
            vlan = u16_at(tag, 0) & 0x0FFF;
            kind = Some(u16_at(tag, 2));
            at += 4;
        }
        let found = match kind {
            Some(ETHERTYPE_IPV4) => plain::<IPV4>(frame, at, vlan, seen, keys, to),
            Some(ETHERTYPE_IPV6) => plain::<IPV6>(frame, at, vlan, seen, keys, to),
            _ => None,
        };
        if found.is_some() {
            return Ok(());
        }
    }
    slow::parse(frame, seen, keys, to)
}

/// The EtherType in an Ethernet header of this length.
#[inline(always)]
fn ethertype(frame: &[u8], header_len: usize) -> Option<u16> {
    frame.get(..header_len).map(|header| u16_at(header, header_len - 2))
}

/// What nearly all packets are: IP without options or extension headers, not a fragment, with TCP
/// or UDP. `None` for all else, malformed packets included. `at` is where IP begins. One look at
/// the length is enough for all fields: that of IP's header and TCP's without options. What is
/// shorter (small datagrams that were not padded) goes the other way.
#[inline(always)]
fn plain<const V: u8>(
    frame: &[u8],
    at: usize,
    vlan: u16,
    seen: &PacketMeta,
    keys: Keys,
    to: &mut To<'_>,
) -> Option<()> {
    let ip_header = if V == IPV6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
    let transport = at + ip_header;
    let header = frame.get(at..transport + tcp::HEADER_LEN)?;
    let ip_len = if V == IPV6 {
        if header[0] >> 4 != 6 {
            return None;
        }
        ipv6::HEADER_LEN + usize::from(u16_at(header, 4))
    } else {
        if header[0] != 0x45 || u16_at(header, 6) & MORE_OR_OFFSET != 0 {
            return None;
        }
        usize::from(u16_at(header, 2))
    };
    let protocol = if V == IPV6 { header[6] } else { header[9] };
    let destination_port = u16_at(header, ip_header + 2);
    let is_tcp = protocol == PROTOCOL_TCP;
    let header_len = match protocol {
        PROTOCOL_TCP => usize::from(header[ip_header + 12] >> 4) * 4,
        PROTOCOL_UDP if keys == Keys::Outer || !Tunnel::may_be_at(destination_port) => {
            udp::HEADER_LEN
        }
        _ => return None,
    };
    if ip_len < ip_header + header_len || is_tcp && header_len < tcp::HEADER_LEN {
        return None;
    }
    *to.feature = Feature {
        at_ns: seen.at_ns,
        source: if V == IPV6 { array_at(header, 8) } else { mapped(array_at(header, 12)) },
        destination: if V == IPV6 { array_at(header, 24) } else { mapped(array_at(header, 16)) },
        source_port: u16_at(header, ip_header),
        destination_port,
        ip_len: ip_len as u32,
        sequence: if is_tcp { u32_at(header, ip_header + 4) } else { 0 },
        tcp_flags: if is_tcp { u16_at(header, ip_header + 12) & TCP_FLAGS } else { 0 },
        vlan,
        protocol,
        tos: if V == IPV6 { (u16_at(header, 0) >> 4) as u8 } else { header[1] },
        ttl: if V == IPV6 { header[7] } else { header[8] },
        shape: if V == IPV6 { SHAPE_IPV6 } else { 0 },
        window: if is_tcp { u16_at(header, ip_header + 14) } else { 0 },
        headers: ((ip_header + header_len) / 4) as u8,
        point: seen.point,
    };
    let end = (at + ip_len).min(frame.len()).min(usize::from(u16::MAX));
    *to.layers = Layers {
        ip: at as u16,
        mpls: 0,
        outer_ip: 0,
        transport: transport as u16,
        payload: (transport + header_len).min(end) as u16,
        end: end as u16,
    };
    Some(())
}

/// The parameters of [`plain`].
const IPV4: u8 = 4;
const IPV6: u8 = 6;
/// RFC 9293, section 3.1: the data offset above them.
const TCP_FLAGS: u16 = 0x0FFF;

const _: () = assert!(size_of::<Feature>() == 64);

#[cfg(test)]
mod tests;
