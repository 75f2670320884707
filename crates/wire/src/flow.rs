//! One packet as a flow meter sees it: who talks to whom, and what its headers say.
//!
//! The value that parsing ends in, and that the instruments for passive traffic start
//! from. Down to the transport it is read as a [`crate::feature::Feature`] is. The eBPF program
//! builds the same value in the kernel (`bpf/c/rtt_parse.h`).

use core::ops::Range;

use crate::field::{u16_at, u32_at};
use crate::ip::Ip;
use crate::ipv4::{PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::ipv6::PROTOCOL_ICMPV6;
use crate::link::Below;
use crate::sctp::{Heartbeat, PROTOCOL_SCTP};
use crate::{Error, dns, icmp, ipv4, ipv6, quic, sctp, tcp, udp};

pub use crate::link::{LinkType, WlanKind};

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
    /// What distinguishes this packet from one that is otherwise alike. It is the identification of
    /// IPv4 (upper half; 0 in IPv6) and the checksum of TCP, UDP or ICMP.
    pub identity: u32,
    /// What the transport carries, within the frame as captured (may be cut short).
    pub payload: Range<usize>,
    /// The transport's own fields.
    pub detail: Detail,
}

/// The part that depends on the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Tcp(Tcp),
    /// ICMP or ICMPv6 echo.
    Echo {
        /// A reply, not a request.
        reply: bool,
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
        /// HEARTBEAT ACK, else HEARTBEAT (RFC 9260, 3.3.5 and 3.3.6).
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
    pub seq: u32,
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
    /// DNS over TCP: whether it is a response, and its identifier; of a segment that begins a
    /// message.
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

/// Reads a packet down to its transport, and what in that can be timed.
///
/// VLAN tags (four), 802.2 LLC and SNAP, PPPoE and MPLS, Ethernet pseudowires included, are
/// skipped. With `tunnels` one level of [`crate::tunnel::Tunnel`] is, too, and then all but the
/// VLAN is the inner packet's. A transport that is not known is [`Detail::Other`] with ports 0.
///
/// A QUIC packet may have a greased fixed bit (RFC 9287), so every datagram whose first bit is 0
/// may be a short header. Only on a flow with long headers is it one.
///
/// `frame` may be cut short by a capture: lengths come from the IP header, and only the
/// headers need be there. [`Error::Truncated`] where they are not; [`Error::Length`]
/// where a length contradicts its header; [`Error::EtherType`] for what is not IP;
/// [`Error::Fragment`] for every fragment but the first. No checksum is looked at.
#[inline]
pub fn parse(frame: &[u8], link: LinkType, tunnels: bool) -> Result<FlowPacket, Error> {
    parse_cut(frame, frame.len(), link, tunnels)
}

/// The same for a frame of `wire_len` octets of which a capture kept only a part. That length
/// counts where the IP header states none, because the packet is longer than it can say, as
/// segmentation offload makes it. IPv4 has total length 0 then. IPv6 has payload length 0 and a
/// hop-by-hop options header (a jumbogram, RFC 2675) or more than 65,535 octets behind it.
#[inline]
pub fn parse_cut(
    frame: &[u8],
    wire_len: usize,
    link: LinkType,
    tunnels: bool,
) -> Result<FlowPacket, Error> {
    let wire_len = wire_len.max(frame.len());
    let mut below = Below::default();
    below.read(link, frame, wire_len)?;
    let mut outer = Ip::default();
    outer.read(frame, wire_len, &below)?;
    may_be_timed(&outer, frame)?;
    if tunnels {
        let (mut inside, mut inner) = (Below::default(), Ip::default());
        if outer.inner(frame, wire_len, &mut inside, &mut inner)? {
            let frame = &frame[..outer.end.min(frame.len())];
            may_be_timed(&inner, frame)?;
            return transport(&inner, frame, below.vlan);
        }
    }
    transport(&outer, frame, below.vlan)
}

/// Refuses a packet of which the start of the transport is not there.
#[inline]
fn may_be_timed(ip: &Ip, frame: &[u8]) -> Result<(), Error> {
    match ip.broken {
        Some(error) => Err(error),
        None if ip.transport > frame.len() => Err(Error::Truncated),
        None if ip.later => Err(Error::Fragment),
        None => Ok(()),
    }
}

#[inline]
fn transport(ip: &Ip, frame: &[u8], vlan: u16) -> Result<FlowPacket, Error> {
    let captured = ip.end.min(frame.len());
    let segment = &frame[ip.transport..captured];
    let length = ip.end - ip.transport;
    let fragment = ip.fragment.is_some();
    let (source, destination) = ip.addresses(frame)?;
    let mut packet = FlowPacket {
        source,
        destination,
        source_port: 0,
        destination_port: 0,
        vlan,
        protocol: ip.protocol,
        tos: ip.tos,
        ip_len: (ip.end - ip.start) as u32,
        fragment,
        identity: u32::from(ip.id) << 16,
        payload: ip.transport..captured,
        detail: Detail::Other,
    };
    match ip.protocol {
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
            if !fragment {
                if stated < udp::HEADER_LEN || stated > length {
                    return Err(Error::Length);
                }
                packet.payload.end = captured.min(ip.transport + stated);
            }
            packet.detail = packet.udp_detail(&frame[packet.payload.clone()]);
        }
        PROTOCOL_ICMP | PROTOCOL_ICMPV6 => {
            let header: &[u8; icmp::HEADER_LEN] = head(segment, length)?;
            packet.identity |= u32::from(u16_at(header, 2));
            packet.payload.start += icmp::HEADER_LEN;
            let reply = match (ip.protocol, header[0]) {
                (PROTOCOL_ICMP, icmp::V4_ECHO_REQUEST)
                | (PROTOCOL_ICMPV6, icmp::V6_ECHO_REQUEST) => false,
                (PROTOCOL_ICMP, icmp::V4_ECHO_REPLY) | (PROTOCOL_ICMPV6, icmp::V6_ECHO_REPLY) => {
                    true
                }
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

impl FlowPacket {
    /// Whether all that matching needs is here. Of a first fragment it is where identifiers stand
    /// in front: in ICMP echo and DNS. How much data a TCP segment has, its other fragments say.
    #[inline]
    pub fn is_matchable(&self) -> bool {
        !self.fragment || matches!(self.detail, Detail::Echo { .. } | Detail::Dns { .. })
    }

    /// Octets of the headers from IP on, which each packet has where segmentation cuts up what is
    /// behind them. Of other protocols than TCP IP's options and extension headers are left out.
    #[inline]
    pub fn header_len(&self) -> u32 {
        if let Detail::Tcp(tcp) = self.detail {
            return self.ip_len.saturating_sub(tcp.payload_len);
        }
        let is_v4 = self.source[..10] == [0; 10] && self.source[10..12] == [0xff; 2];
        let ip = if is_v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let transport = match self.protocol {
            PROTOCOL_UDP => udp::HEADER_LEN,
            PROTOCOL_SCTP => sctp::HEADER_LEN,
            _ => 0,
        };
        (ip + transport) as u32
    }

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
                Ok(quic::PacketType::Initial) => Detail::Quic(Quic::Initial),
                Ok(quic::PacketType::ZeroRtt) => Detail::Quic(Quic::ZeroRtt),
                Ok(quic::PacketType::Handshake) => Detail::Quic(Quic::Handshake),
                Ok(quic::PacketType::Retry | quic::PacketType::VersionNegotiation) => {
                    Detail::Quic(Quic::Restart)
                }
                Ok(quic::PacketType::Unknown) | Err(_) => Detail::Other,
            },
        }
    }
}

/// The first `N` octets of a transport header, of which `length` there must be by the IP
/// header.
#[inline]
fn head<const N: usize>(segment: &[u8], length: usize) -> Result<&[u8; N], Error> {
    let error = if length < N { Error::Length } else { Error::Truncated };
    segment.first_chunk().ok_or(error)
}

#[cfg(test)]
mod tests;
