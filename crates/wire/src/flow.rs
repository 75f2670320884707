//! One packet as a flow meter sees it: who talks to whom, and what its headers say.
//!
//! The value that parsing ends in, and that the instruments for passive traffic start
//! from. The eBPF program builds the same value in the kernel (`bpf/c/rtt_parse.h`).

use core::ops::Range;

use crate::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, is_tpid};
use crate::field::{array_at, u16_at, u32_at};
use crate::ipv4::{PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::ipv6::PROTOCOL_ICMPV6;
use crate::sctp::{Heartbeat, PROTOCOL_SCTP};
use crate::{Error, capture, dns, ethernet, icmp, ipv4, ipv6, mpls, quic, sctp, tcp, tunnel, udp};

/// What one packet says, from its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowPacket {
    /// Source address; IPv4 as `::ffff:a.b.c.d`.
    pub source: [u8; 16],
    /// Destination address, likewise.
    pub destination: [u8; 16],
    /// Source port; for ICMP echo its identifier; 0 where the protocol has none.
    pub source_port: u16,
    /// Destination port, likewise.
    pub destination_port: u16,
    /// VLAN identifier of the outermost tag that names a VLAN; 0: untagged. A tag with
    /// identifier 0 has a priority only (IEEE 802.1Q, 9.6): it is looked through.
    pub vlan: u16,
    /// Protocol above IP and its extension headers.
    pub protocol: u8,
    /// Type of service or traffic class octet.
    pub tos: u8,
    /// Length of the IP packet with its header, bytes (never Ethernet padding).
    pub ip_len: u32,
    /// A first fragment: the rest of the datagram is elsewhere.
    pub fragment: bool,
    /// What tells this packet from one that is otherwise alike: the identification of IPv4
    /// (upper half; 0 in IPv6) and the checksum of TCP, UDP or ICMP.
    pub identity: u32,
    /// What the transport carries, within the frame as captured (may be cut short).
    pub payload: Range<usize>,
    /// The transport's own fields.
    pub detail: Detail,
}

/// The part that depends on the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// TCP.
    Tcp(Tcp),
    /// ICMP or ICMPv6 echo.
    Echo {
        /// A reply, not a request.
        reply: bool,
        /// Its sequence number.
        sequence: u16,
    },
    /// DNS over UDP (port 53).
    Dns {
        /// A response, not a query.
        response: bool,
        /// Identifier and hashed name: see `dns::key`.
        id: u32,
    },
    /// QUIC (RFC 9000, RFC 9369).
    Quic(Quic),
    /// SCTP whose first chunk is a heartbeat.
    Heartbeat {
        /// HEARTBEAT ACK.
        ack: bool,
        /// Hash of the heartbeat information.
        id: u32,
    },
    /// Nothing that can be timed.
    Other,
}

/// TCP (RFC 9293).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// The flags of header octet 13: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub flags: u8,
    /// Window as it stands in the header, not scaled.
    pub window: u16,
    /// Payload length by the IP header, bytes.
    pub payload_len: u32,
    /// TSval and TSecr (RFC 7323).
    pub timestamps: Option<(u32, u32)>,
    /// Carries SACK blocks (RFC 2018).
    pub sack: bool,
    /// DNS over TCP: whether it is a response, and its identifier; of a segment that begins a message.
    pub dns: Option<(bool, u16)>,
    /// The options were malformed and are not used.
    pub bad_options: bool,
}

/// The readable part of a QUIC packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quic {
    /// Long header: Initial.
    Initial,
    /// Long header: 0-RTT.
    ZeroRtt,
    /// Long header: Handshake.
    Handshake,
    /// Long header: Retry, or version negotiation.
    Restart,
    /// Short header, with the spin bit.
    Short {
        /// RFC 9000, section 17.4.
        spin: bool,
    },
}

/// What a frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// The IP header: tun devices, PPP interfaces.
    RawIp,
    /// The header of Linux cooked capture.
    LinuxCooked,
    /// The header of Linux cooked capture, version 2.
    LinuxCooked2,
    /// An address family of four octets, in either byte order: loopback of BSD and macOS.
    Family,
    /// The header of PPP or of Cisco's HDLC, which their first octets tell apart.
    Ppp,
}

impl Link {
    /// The link of a capture file's link type, if it is one of these.
    pub const fn from_capture(link_type: u16) -> Option<Self> {
        match link_type {
            capture::LINKTYPE_ETHERNET => Some(Link::Ethernet),
            capture::LINKTYPE_RAW
            | LINKTYPE_RAW_BSD
            | LINKTYPE_RAW_OPENBSD
            | LINKTYPE_IPV4
            | LINKTYPE_IPV6 => Some(Link::RawIp),
            capture::LINKTYPE_NULL | capture::LINKTYPE_LOOP => Some(Link::Family),
            capture::LINKTYPE_PPP | capture::LINKTYPE_PPP_HDLC | capture::LINKTYPE_C_HDLC => {
                Some(Link::Ppp)
            }
            capture::LINKTYPE_LINUX_SLL => Some(Link::LinuxCooked),
            LINKTYPE_LINUX_SLL2 => Some(Link::LinuxCooked2),
            _ => None,
        }
    }

    /// The EtherType that the header names, and its length.
    #[inline]
    pub(crate) fn header(self, frame: &[u8]) -> Result<(u16, usize), Error> {
        Ok(match self {
            Link::Ethernet => (ethertype_at(frame, 12)?, ethernet::HEADER_LEN),
            Link::RawIp => (tunnel::ip_ethertype(frame)?, 0),
            Link::LinuxCooked => (ethertype_at(frame, 14)?, 16),
            Link::LinuxCooked2 => (ethertype_at(frame, 0)?, 20),
            Link::Family => (family_ethertype(frame)?, 4),
            Link::Ppp => ppp_header(frame)?,
        })
    }
}

/// The EtherType of an address family as the BSDs, macOS, Linux and Npcap number them. None
/// has more than 8 bits, so their byte order shows.
#[inline]
fn family_ethertype(frame: &[u8]) -> Result<u16, Error> {
    match *frame.first_chunk::<4>().ok_or(Error::Truncated)? {
        [0, 0, 0, family] | [family, 0, 0, 0] => match family {
            2 => Ok(ETHERTYPE_IPV4),
            10 | 23 | 24 | 28 | 30 => Ok(ETHERTYPE_IPV6),
            _ => Err(Error::EtherType),
        },
        _ => Err(Error::EtherType),
    }
}

/// EtherType and length of a header of PPP: address and control (RFC 1662, section 3.1) may
/// be left out, and the first octet of the protocol, if it is 0 (RFC 1661, section 6.5). An
/// address of 0x0F or 0x8F is that of Cisco's HDLC.
#[inline]
fn ppp_header(frame: &[u8]) -> Result<(u16, usize), Error> {
    let at = match frame {
        [0x0F | 0x8F, _, ..] => return Ok((ethertype_at(frame, 2)?, 4)),
        [0xFF, 0x03, ..] => 2,
        [0x0F | 0x8F | 0xFF] => return Err(Error::Truncated),
        _ => 0,
    };
    let (protocol, len) = match frame.get(at..).ok_or(Error::Truncated)? {
        [short, ..] if short & 1 == 1 => (u16::from(*short), at + 1),
        _ => (ethertype_at(frame, at)?, at + 2),
    };
    let ethertype = match protocol {
        tunnel::PPP_IPV4 => ETHERTYPE_IPV4,
        tunnel::PPP_IPV6 => ETHERTYPE_IPV6,
        PPP_MPLS => ETHERTYPE_MPLS,
        _ => return Err(Error::EtherType),
    };
    Ok((ethertype, len))
}

/// Reads a packet down to its transport, and what in that can be timed.
///
/// VLAN tags (four), 802.2 LLC and SNAP, PPPoE and MPLS are looked through; with `tunnels` also one level of
/// IP in IP, GRE, VXLAN or GTP-U, and then all but the VLAN is the inner packet's. A
/// transport that is not known is [`Detail::Other`] with ports 0.
///
/// A QUIC packet may have a greased fixed bit (RFC 9287), so every datagram whose first bit
/// is 0 may be a short header: only on a flow with long headers is it one.
///
/// `frame` may be cut short by a capture: lengths come from the IP header, and only the
/// headers need be there. [`Error::Truncated`] where they are not; [`Error::Length`]
/// where a length contradicts its header; [`Error::EtherType`] for what is not IP;
/// [`Error::Fragment`] for every fragment but the first. No checksum is looked at.
#[inline]
pub fn parse(frame: &[u8], link: Link, tunnels: bool) -> Result<FlowPacket, Error> {
    parse_cut(frame, frame.len(), link, tunnels)
}

/// The same for a frame of `wire_len` octets of which a capture kept only a part. That length
/// counts where the IP header states none, for the packet is longer than it can say, as
/// segmentation offload makes it: IPv4 with total length 0; IPv6 with payload length 0 and a
/// hop-by-hop options header (a jumbogram, RFC 2675) or more than 65,535 octets behind it.
#[inline]
pub fn parse_cut(
    frame: &[u8],
    wire_len: usize,
    link: Link,
    tunnels: bool,
) -> Result<FlowPacket, Error> {
    let wire_len = wire_len.max(frame.len());
    let (ethertype, at) = link.header(frame)?;
    let (ethertype, at, vlan) = look_through(frame, ethertype, at)?;
    let ip = Ip::parse(frame, wire_len, ethertype, at)?;
    if tunnels && let Some((ethertype, at)) = ip.tunnel(frame)? {
        let frame = &frame[..ip.end.min(frame.len())];
        let (ethertype, at, _) = look_through(frame, ethertype, at)?;
        // What states no length has at most what was on the wire, whatever the outer header says.
        return Ip::parse(frame, ip.end.min(wire_len), ethertype, at)?.transport(frame, vlan);
    }
    ip.transport(frame, vlan)
}

/// The IP layer of a packet. Offsets count from the start of the frame.
struct Ip {
    source: [u8; 16],
    destination: [u8; 16],
    protocol: u8,
    tos: u8,
    /// First fragment.
    fragment: bool,
    /// Identification (RFC 791); 0 in IPv6.
    id: u16,
    /// Where the packet begins.
    start: usize,
    /// Where its transport begins: not beyond `end`, nor beyond what was captured.
    transport: usize,
    /// Where it ends by its own length, which may be beyond what was captured.
    end: usize,
}

impl Ip {
    #[inline]
    fn parse(frame: &[u8], wire_len: usize, ethertype: u16, start: usize) -> Result<Self, Error> {
        let packet = frame.get(start..).ok_or(Error::Truncated)?;
        let room = wire_len.saturating_sub(start);
        match ethertype {
            ETHERTYPE_IPV4 => Self::v4(packet, room, start),
            ETHERTYPE_IPV6 => Self::v6(packet, room, start),
            _ => Err(Error::EtherType),
        }
    }

    #[inline]
    fn v4(packet: &[u8], room: usize, start: usize) -> Result<Self, Error> {
        let header = packet.first_chunk::<{ ipv4::HEADER_LEN }>().ok_or(Error::Truncated)?;
        if header[0] >> 4 != 4 {
            return Err(Error::Version);
        }
        let header_len = usize::from(header[0] & 0x0F) * 4;
        let total_len = match usize::from(u16_at(header, 2)) {
            0 => room,
            stated => stated,
        };
        if header_len < ipv4::HEADER_LEN || total_len < header_len {
            return Err(Error::Length);
        }
        if header_len > packet.len() {
            return Err(Error::Truncated);
        }
        let fragment = u16_at(header, 6);
        if fragment & 0x1FFF != 0 {
            return Err(Error::Fragment);
        }
        Ok(Ip {
            source: mapped(array_at(header, 12)),
            destination: mapped(array_at(header, 16)),
            protocol: header[9],
            tos: header[1],
            fragment: fragment & 0x2000 != 0,
            id: u16_at(header, 4),
            start,
            transport: start + header_len,
            end: start + total_len,
        })
    }

    #[inline]
    fn v6(packet: &[u8], room: usize, start: usize) -> Result<Self, Error> {
        let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>().ok_or(Error::Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(Error::Version);
        }
        let mut protocol = header[6];
        let room = room.saturating_sub(ipv6::HEADER_LEN);
        let payload_len = match usize::from(u16_at(header, 4)) {
            0 => ipv6::unstated_len(protocol, &packet[ipv6::HEADER_LEN..], room),
            stated => stated,
        };
        let total_len = ipv6::HEADER_LEN + payload_len;
        let mut transport = ipv6::HEADER_LEN;
        let mut fragment = false;
        if ipv6::is_extension(protocol) {
            let end = total_len.min(packet.len());
            let upper = ipv6::upper_layer(protocol, &packet[ipv6::HEADER_LEN..end])?;
            if let Some(part) = upper.fragment {
                if part.offset != 0 {
                    return Err(Error::Fragment);
                }
                fragment = part.more;
            }
            protocol = upper.protocol;
            transport += upper.offset;
        }
        Ok(Ip {
            source: array_at(header, 8),
            destination: array_at(header, 24),
            protocol,
            tos: (u16_at(header, 0) >> 4) as u8,
            fragment,
            id: 0,
            start,
            transport: start + transport,
            end: start + total_len,
        })
    }

    /// EtherType and offset of the packet that this one carries in a tunnel. A fragment
    /// is not looked into: the rest of the inner packet is elsewhere.
    fn tunnel(&self, frame: &[u8]) -> Result<Option<(u16, usize)>, Error> {
        if self.fragment {
            return Ok(None);
        }
        let payload = &frame[self.transport..self.end.min(frame.len())];
        let (inside, at) = match self.protocol {
            PROTOCOL_UDP => match payload.split_first_chunk::<{ udp::HEADER_LEN }>() {
                Some((header, payload)) => {
                    let inside = tunnel::inside_udp(u16_at(header, 2), payload)?;
                    (inside, self.transport + udp::HEADER_LEN)
                }
                None => return Ok(None),
            },
            protocol => (tunnel::inside_ip(protocol, payload)?, self.transport),
        };
        Ok(inside.map(|(ethertype, offset)| (ethertype, at + offset)))
    }

    #[inline]
    fn transport(self, frame: &[u8], vlan: u16) -> Result<FlowPacket, Error> {
        let captured = self.end.min(frame.len());
        let segment = &frame[self.transport..captured];
        let length = self.end - self.transport;
        let mut packet = FlowPacket {
            source: self.source,
            destination: self.destination,
            source_port: 0,
            destination_port: 0,
            vlan,
            protocol: self.protocol,
            tos: self.tos,
            ip_len: (self.end - self.start) as u32,
            fragment: self.fragment,
            identity: u32::from(self.id) << 16,
            payload: self.transport..captured,
            detail: Detail::Other,
        };
        match self.protocol {
            PROTOCOL_TCP => {
                let header: &[u8; tcp::HEADER_LEN] = head(segment, length)?;
                let header_len = usize::from(header[12] >> 4) * 4;
                if header_len < tcp::HEADER_LEN || header_len > length {
                    return Err(Error::Length);
                }
                let options = segment.get(tcp::HEADER_LEN..header_len).ok_or(Error::Truncated)?;
                packet.ports(header);
                packet.identity |= u32::from(u16_at(header, 16));
                packet.payload.start += header_len;
                let scanned = tcp::scan(options);
                let (timestamps, sack) = scanned.unwrap_or_default();
                packet.detail = Detail::Tcp(Tcp {
                    seq: u32_at(header, 4),
                    ack: u32_at(header, 8),
                    flags: header[13],
                    window: u16_at(header, 14),
                    payload_len: (length - header_len) as u32,
                    timestamps,
                    sack,
                    dns: packet.tcp_dns(&segment[header_len..]),
                    bad_options: scanned.is_err(),
                });
            }
            PROTOCOL_UDP => {
                let header: &[u8; udp::HEADER_LEN] = head(segment, length)?;
                let stated = usize::from(u16_at(header, 4));
                packet.ports(header);
                packet.identity |= u32::from(u16_at(header, 6));
                packet.payload.start += udp::HEADER_LEN;
                // The length of a first fragment is that of the whole datagram.
                if !self.fragment {
                    if stated < udp::HEADER_LEN || stated > length {
                        return Err(Error::Length);
                    }
                    packet.payload.end = captured.min(self.transport + stated);
                }
                packet.detail = packet.udp_detail(&frame[packet.payload.clone()]);
            }
            PROTOCOL_ICMP | PROTOCOL_ICMPV6 => {
                let header: &[u8; icmp::HEADER_LEN] = head(segment, length)?;
                packet.identity |= u32::from(u16_at(header, 2));
                packet.payload.start += icmp::HEADER_LEN;
                let reply = match (self.protocol, header[0]) {
                    (PROTOCOL_ICMP, icmp::V4_ECHO_REQUEST)
                    | (PROTOCOL_ICMPV6, icmp::V6_ECHO_REQUEST) => false,
                    (PROTOCOL_ICMP, icmp::V4_ECHO_REPLY)
                    | (PROTOCOL_ICMPV6, icmp::V6_ECHO_REPLY) => true,
                    _ => return Ok(packet),
                };
                packet.source_port = u16_at(header, 4);
                packet.destination_port = packet.source_port;
                packet.detail = Detail::Echo { reply, sequence: u16_at(header, 6) };
            }
            PROTOCOL_SCTP => {
                let header: &[u8; sctp::HEADER_LEN] = head(segment, length)?;
                packet.ports(header);
                packet.payload.start += sctp::HEADER_LEN;
                if let Ok(heartbeat) = Heartbeat::parse(&segment[sctp::HEADER_LEN..]) {
                    packet.detail = Detail::Heartbeat { ack: heartbeat.ack, id: heartbeat.id() };
                }
            }
            _ => {}
        }
        Ok(packet)
    }
}

impl FlowPacket {
    /// Takes the ports from a header that begins with them.
    #[inline]
    fn ports(&mut self, header: &[u8]) {
        self.source_port = u16_at(header, 0);
        self.destination_port = u16_at(header, 2);
    }

    /// Something goes to the port of DNS if it is no response, or comes from it if it is.
    #[inline]
    fn is_dns(&self, response: bool) -> bool {
        dns::PORT == if response { self.source_port } else { self.destination_port }
    }

    /// The start of a DNS message over TCP (RFC 1035, section 4.2.2): a length that can
    /// be a message's, identifier, flags.
    #[inline]
    fn tcp_dns(&self, payload: &[u8]) -> Option<(bool, u16)> {
        if self.source_port != dns::PORT && self.destination_port != dns::PORT {
            return None;
        }
        let start = payload.first_chunk::<6>()?;
        let response = u16_at(start, 4) & dns::RESPONSE != 0;
        (usize::from(u16_at(start, 0)) >= dns::HEADER_LEN && self.is_dns(response))
            .then(|| (response, u16_at(start, 2)))
    }

    /// DNS by its port; QUIC by its form, for it may have any other.
    #[inline]
    fn udp_detail(&self, payload: &[u8]) -> Detail {
        let Some(first) = payload.first() else { return Detail::Other };
        if self.source_port == dns::PORT || self.destination_port == dns::PORT {
            return match dns::Header::parse(payload) {
                Ok(header) if self.is_dns(header.is_response()) => {
                    Detail::Dns { response: header.is_response(), id: dns::key(header.id, payload) }
                }
                _ => Detail::Other,
            };
        }
        match first & quic::LONG {
            0 => Detail::Quic(Quic::Short { spin: first & quic::SPIN != 0 }),
            _ => match quic::Long::parse(payload).map(|header| header.kind()) {
                Ok(quic::Kind::Initial) => Detail::Quic(Quic::Initial),
                Ok(quic::Kind::ZeroRtt) => Detail::Quic(Quic::ZeroRtt),
                Ok(quic::Kind::Handshake) => Detail::Quic(Quic::Handshake),
                Ok(quic::Kind::Retry | quic::Kind::VersionNegotiation) => {
                    Detail::Quic(Quic::Restart)
                }
                Ok(quic::Kind::Unknown) | Err(_) => Detail::Other,
            },
        }
    }
}

/// Steps over VLAN tags, LLC and SNAP, a PPPoE header and an MPLS stack: EtherType and offset of what
/// follows them, and the VLAN identifier of the outermost tag that names a VLAN (0: none).
#[inline]
fn look_through(frame: &[u8], ethertype: u16, at: usize) -> Result<(u16, usize, u16), Error> {
    let (ethertype, at, vlan) = step_over_tags(frame, ethertype, at)?;
    let (mut ethertype, mut at) = step_over_llc(frame, ethertype, at)?;
    match ethertype {
        tunnel::ETHERTYPE_PPPOE => {
            let header = tunnel::Pppoe::parse(frame.get(at..).ok_or(Error::Truncated)?)?;
            at += header.buffer_len();
            ethertype = match header.protocol {
                tunnel::PPP_IPV4 => ETHERTYPE_IPV4,
                tunnel::PPP_IPV6 => ETHERTYPE_IPV6,
                _ => return Err(Error::EtherType),
            };
        }
        ETHERTYPE_MPLS => {
            let stack = mpls::Stack::new_checked(frame.get(at..).ok_or(Error::Truncated)?)?;
            at += stack.depth() * mpls::ENTRY_LEN;
            ethertype = tunnel::ip_ethertype(stack.payload())?;
        }
        _ => {}
    }
    Ok((ethertype, at, vlan))
}

/// Steps over VLAN tags alone; at most [`TAGS`].
#[inline]
pub(crate) fn step_over_tags(
    frame: &[u8],
    mut ethertype: u16,
    mut at: usize,
) -> Result<(u16, usize, u16), Error> {
    let mut vlan = 0;
    let mut tags = 0;
    while is_tpid(ethertype) {
        if tags == TAGS {
            return Err(Error::VlanDepth);
        }
        let tag = frame.get(at..at + 4).ok_or(Error::Truncated)?;
        if vlan == 0 {
            vlan = u16_at(tag, 0) & 0x0FFF;
        }
        ethertype = u16_at(tag, 2);
        tags += 1;
        at += 4;
    }
    Ok((ethertype, at, vlan))
}

/// Steps over an IEEE 802.2 header, where the length of IEEE 802.3 stands in the EtherType's
/// place: that of SNAP (RFC 1042; IEEE 802.1H for its second identifier), or IP's own.
#[inline]
pub(crate) fn step_over_llc(
    frame: &[u8],
    ethertype: u16,
    at: usize,
) -> Result<(u16, usize), Error> {
    if ethertype == 0 || ethertype >= ethernet::LEAST_ETHERTYPE {
        return Ok((ethertype, at));
    }
    let header =
        frame.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or(Error::Truncated)?;
    match *header {
        [0xAA, 0xAA, 3, 0, 0, 0 | 0xF8, high, low] => Ok((u16::from_be_bytes([high, low]), at + 8)),
        [6, 6, 3, ..] => Ok((ETHERTYPE_IPV4, at + 3)),
        _ => Err(Error::EtherType),
    }
}

/// The EtherType in a link-layer header.
#[inline]
fn ethertype_at(frame: &[u8], at: usize) -> Result<u16, Error> {
    frame.get(at..at + 2).map(|bytes| u16_at(bytes, 0)).ok_or(Error::Truncated)
}

/// The first `N` octets of a transport header, of which `length` there must be by the IP
/// header.
#[inline]
fn head<const N: usize>(segment: &[u8], length: usize) -> Result<&[u8; N], Error> {
    let error = if length < N { Error::Length } else { Error::Truncated };
    segment.first_chunk().ok_or(error)
}

/// An IPv4 address as IPv6 (RFC 4291, section 2.5.5.2).
#[inline]
pub(crate) fn mapped(address: [u8; 4]) -> [u8; 16] {
    let [a, b, c, d] = address;
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d]
}

/// Most VLAN tags that are looked through.
const TAGS: usize = 4;
/// PPP protocol: MPLS (RFC 3032, section 4.3).
const PPP_MPLS: u16 = 0x0281;
/// IP without a link-layer header as files of the BSDs number it.
const LINKTYPE_RAW_BSD: u16 = 12;
/// The same in files of OpenBSD.
const LINKTYPE_RAW_OPENBSD: u16 = 14;
/// IPv4 without a link-layer header.
const LINKTYPE_IPV4: u16 = 228;
/// IPv6 without a link-layer header.
const LINKTYPE_IPV6: u16 = 229;
/// Linux cooked capture, version 2.
const LINKTYPE_LINUX_SLL2: u16 = 276;

#[cfg(test)]
mod tests;
