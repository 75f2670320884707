//! Every packet that is not the common one.

use super::{
    Feature, Given, Keys, Layers, SHAPE_FRAGMENT, SHAPE_INNER, SHAPE_IPV6, SHAPE_LATER_FRAGMENT,
    SHAPE_NO_TRANSPORT, TCP_FLAGS,
};
use crate::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS};
use crate::field::{array_at, u16_at, u32_at};
use crate::flow::{Link, mapped, step_over_tags};
use crate::ipv4::{PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::ipv6::PROTOCOL_ICMPV6;
use crate::sctp::PROTOCOL_SCTP;
use crate::{Error, ethernet, icmp, ipv4, ipv6, mpls, sctp, tcp, tunnel, udp};

/// See [`super::parse_cut`].
#[inline(never)]
pub(super) fn parse(
    frame: &[u8],
    wire_len: usize,
    link: Link,
    given: Given,
) -> Result<(Feature, Layers), Error> {
    let wire_len = wire_len.max(frame.len());
    let (ethertype, at) = link.header(frame)?;
    let below = look_through(frame, wire_len, ethertype, at)?;
    let outer = Ip::parse(frame, wire_len, below.ethertype, below.at)?;
    let inner = match given.keys {
        Keys::Outer => None,
        Keys::Inner => outer.inner(frame),
    };
    let (mut feature, mut layers) = match &inner {
        None => outer.transport(frame),
        Some((_, ip)) => ip.transport(frame),
    };
    layers.mpls = place(below.mpls);
    if let Some((inside, _)) = inner {
        feature.shape |= SHAPE_INNER;
        layers.outer_ip = place(outer.start);
        if layers.mpls == 0 {
            layers.mpls = place(inside.mpls);
        }
    }
    feature.at_ns = given.at_ns;
    feature.vlan = below.vlan;
    feature.point = given.point;
    Ok((feature, layers))
}

/// What there is below an IP header.
struct Below {
    /// EtherType of what follows.
    ethertype: u16,
    /// Where it begins.
    at: usize,
    /// VLAN identifier of the outermost tag; 0: none.
    vlan: u16,
    /// Start of the first MPLS label stack entry; 0: none.
    mpls: usize,
}

/// Steps over VLAN tags, then a PPPoE header, or an MPLS stack and, in a pseudowire, an
/// Ethernet header with its own tags.
fn look_through(frame: &[u8], wire_len: usize, ethertype: u16, at: usize) -> Result<Below, Error> {
    let (ethertype, at, vlan) = step_over_tags(frame, ethertype, at)?;
    let mut below = Below { ethertype, at, vlan, mpls: 0 };
    match ethertype {
        tunnel::ETHERTYPE_PPPOE => {
            let header = tunnel::Pppoe::parse(frame.get(at..).unwrap_or(&[]))?;
            below.at += header.buffer_len();
            below.ethertype = match header.protocol {
                tunnel::PPP_IPV4 => ETHERTYPE_IPV4,
                tunnel::PPP_IPV6 => ETHERTYPE_IPV6,
                _ => return Err(Error::EtherType),
            };
        }
        ETHERTYPE_MPLS | ETHERTYPE_MPLS_MULTICAST => {
            let stack = mpls::Stack::new_checked(frame.get(at..).unwrap_or(&[]))?;
            below.mpls = at;
            below.at += stack.depth() * mpls::ENTRY_LEN;
            let (ethertype, at, vlan) = labelled(frame, wire_len, below.at)?;
            below.ethertype = ethertype;
            below.at = at;
            if below.vlan == 0 {
                below.vlan = vlan;
            }
        }
        _ => {}
    }
    Ok(below)
}

/// What an MPLS stack carries, which only its first octets tell (RFC 4928): IP if they
/// are its header and the packet fits, an Ethernet pseudowire behind a control word
/// (RFC 4448, section 4.6) or without one if IP stands where a frame would have it; if
/// neither, IP if they say so: a capture may have cut it short. EtherType, place and VLAN
/// identifier.
fn labelled(frame: &[u8], wire_len: usize, at: usize) -> Result<(u16, usize, u16), Error> {
    let data = frame.get(at..).unwrap_or(&[]);
    let room = wire_len.saturating_sub(at);
    let ip = tunnel::ip_ethertype(data);
    let fits = match ip {
        // A total length of 0 is that of segmentation offload.
        Ok(ETHERTYPE_IPV4) => data
            .first_chunk::<4>()
            .is_some_and(|start| start[0] & 0x0F >= 5 && usize::from(u16_at(start, 2)) <= room),
        Ok(_) => data
            .first_chunk::<6>()
            .is_some_and(|start| ipv6::HEADER_LEN + usize::from(u16_at(start, 4)) <= room),
        Err(_) => false,
    };
    if fits {
        return Ok((ip?, at, 0));
    }
    // A control word begins with four bits of 0, and so do many MAC addresses. A frame with
    // a tag looks like one without that stands behind a control word, but not the reverse.
    let control_word = data.first().is_some_and(|first| first >> 4 == 0);
    for skip in [Some(0), control_word.then_some(CONTROL_WORD_LEN)].into_iter().flatten() {
        let (ethertype, at) =
            (at + skip + ethernet::HEADER_LEN - 2, at + skip + ethernet::HEADER_LEN);
        let Some(ethertype) = frame.get(ethertype..at) else { break };
        if let Ok((ethertype, at, vlan)) = step_over_tags(frame, u16_at(ethertype, 0), at)
            && matches!(ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6)
            && tunnel::ip_ethertype(frame.get(at..).unwrap_or(&[])) == Ok(ethertype)
        {
            return Ok((ethertype, at, vlan));
        }
    }
    Ok((ip?, at, 0))
}

/// The IP layer of a packet. Offsets count from the start of the frame.
struct Ip {
    source: [u8; 16],
    destination: [u8; 16],
    v6: bool,
    protocol: u8,
    tos: u8,
    ttl: u8,
    /// Not all of what stands before the transport could be read.
    broken: bool,
    fragment: Option<Fragment>,
    /// Where the packet begins.
    start: usize,
    /// Where its transport begins; not beyond `end`, but perhaps beyond what was captured.
    transport: usize,
    /// Where it ends by its own length, which may be beyond what was captured.
    end: usize,
}

struct Fragment {
    later: bool,
    identification: u32,
}

impl Ip {
    /// `wire_end` is where the layer below ends.
    fn parse(frame: &[u8], wire_end: usize, ethertype: u16, start: usize) -> Result<Self, Error> {
        let packet = frame.get(start..).ok_or(Error::Truncated)?;
        let room = wire_end.saturating_sub(start);
        match ethertype {
            ETHERTYPE_IPV4 => Self::v4(packet, room, start),
            ETHERTYPE_IPV6 => Self::v6(packet, room, start),
            _ => Err(Error::EtherType),
        }
    }

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
        let flags = u16_at(header, 6);
        let later = flags & 0x1FFF != 0;
        let fragment = (flags & super::MORE_OR_OFFSET != 0)
            .then(|| Fragment { later, identification: u32::from(u16_at(header, 4)) });
        let mut ip = Ip {
            source: mapped(array_at(header, 12)),
            destination: mapped(array_at(header, 16)),
            v6: false,
            protocol: header[9],
            tos: header[1],
            ttl: header[8],
            broken: false,
            fragment,
            start,
            transport: start + header_len,
            end: start + total_len,
        };
        if ip.protocol == ipv6::AH && !later {
            let data = packet.get(header_len..total_len.min(packet.len())).unwrap_or(&[]);
            let (protocol, offset) = ipv4::upper_layer(ip.protocol, data);
            ip.broken = protocol == ipv6::AH;
            ip.protocol = protocol;
            ip.transport += offset;
        }
        Ok(ip)
    }

    fn v6(packet: &[u8], room: usize, start: usize) -> Result<Self, Error> {
        let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>().ok_or(Error::Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(Error::Version);
        }
        let data = &packet[ipv6::HEADER_LEN..];
        let room = room.saturating_sub(ipv6::HEADER_LEN);
        let payload_len = match usize::from(u16_at(header, 4)) {
            0 => unstated_len(header[6], data, room),
            stated => stated,
        };
        let mut ip = Ip {
            source: array_at(header, 8),
            destination: array_at(header, 24),
            v6: true,
            protocol: header[6],
            tos: (u16_at(header, 0) >> 4) as u8,
            ttl: header[7],
            broken: false,
            fragment: None,
            start,
            transport: start + ipv6::HEADER_LEN,
            end: start + ipv6::HEADER_LEN + payload_len,
        };
        if ipv6::is_extension(ip.protocol) {
            let (upper, error) = ipv6::reach(ip.protocol, &data[..payload_len.min(data.len())]);
            ip.protocol = upper.protocol;
            ip.transport += upper.offset;
            ip.broken = error.is_some();
            ip.fragment = upper.fragment.filter(|part| !part.is_atomic()).map(|part| Fragment {
                later: part.offset != 0,
                identification: part.identification,
            });
        }
        Ok(ip)
    }

    /// The packet that this one carries in a tunnel, and what stands between. A fragment
    /// is not looked into: the rest of the inner packet is elsewhere. What does not fit
    /// into this packet was not its tunnel's.
    fn inner(&self, frame: &[u8]) -> Option<(Below, Ip)> {
        if self.fragment.is_some() || self.broken {
            return None;
        }
        let frame = &frame[..self.end.min(frame.len())];
        let payload = frame.get(self.transport..)?;
        let (inside, at) = match self.protocol {
            PROTOCOL_UDP => {
                let (header, payload) = payload.split_first_chunk::<{ udp::HEADER_LEN }>()?;
                let inside = match u16_at(header, 2) {
                    tunnel::GENEVE_PORT => tunnel::inside_geneve(payload),
                    port => tunnel::inside_udp(port, payload),
                };
                (inside, self.transport + udp::HEADER_LEN)
            }
            protocol => (tunnel::inside_ip(protocol, payload), self.transport),
        };
        let (ethertype, offset) = inside.ok()??;
        let below = look_through(frame, self.end, ethertype, at + offset).ok()?;
        let ip = Ip::parse(frame, self.end, below.ethertype, below.at).ok()?;
        (ip.end <= self.end).then_some((below, ip))
    }

    /// The feature without time, VLAN and point, and the layers of this packet.
    fn transport(&self, frame: &[u8]) -> (Feature, Layers) {
        let captured = self.end.min(frame.len());
        let start = self.transport.min(captured);
        let mut feature = Feature {
            source: self.source,
            destination: self.destination,
            ip_len: u32::try_from(self.end - self.start).unwrap_or(u32::MAX),
            protocol: self.protocol,
            tos: self.tos,
            ttl: self.ttl,
            shape: if self.v6 { SHAPE_IPV6 } else { 0 },
            ..Feature::default()
        };
        let later = self.fragment.as_ref().is_some_and(|fragment| fragment.later);
        let fixed = fixed_len(self.protocol);
        let header_len = if later {
            feature.shape |= SHAPE_LATER_FRAGMENT;
            None
        } else if self.broken {
            feature.shape |= SHAPE_NO_TRANSPORT;
            None
        } else if fixed == 0 {
            Some(0)
        } else {
            let length = self.end - self.transport;
            let read = feature.read(fixed, &frame[start..captured], length);
            if read.is_none() {
                feature.shape |= SHAPE_NO_TRANSPORT;
            }
            read
        };
        if let Some(fragment) = &self.fragment {
            feature.shape |= SHAPE_FRAGMENT;
            feature.sequence = fragment.identification;
        }
        let payload = self.transport + header_len.unwrap_or(0);
        feature.headers = u8::try_from((payload - self.start).div_ceil(4)).unwrap_or(u8::MAX);
        let layers = Layers {
            ip: place(self.start),
            mpls: 0,
            outer_ip: 0,
            transport: header_len.map_or(0, |_| place(start)),
            payload: place(payload.min(captured)),
            end: place(captured),
        };
        (feature, layers)
    }
}

impl Feature {
    /// Takes over what a transport header has, of which the first `fixed` octets must be
    /// in `segment`, and the whole within `length`, that of the segment by the IP header.
    /// Length of the header; `None` where it is cut short or malformed.
    fn read(&mut self, fixed: usize, segment: &[u8], length: usize) -> Option<usize> {
        let ports = segment.first_chunk::<4>()?;
        match self.protocol {
            PROTOCOL_ICMP | PROTOCOL_ICMPV6 => self.destination_port = u16_at(ports, 0),
            _ => {
                self.source_port = u16_at(ports, 0);
                self.destination_port = u16_at(ports, 2);
            }
        }
        let header = segment.get(..fixed)?;
        let header_len = match self.protocol {
            PROTOCOL_TCP => usize::from(header[12] >> 4) * 4,
            PROTOCOL_DCCP => usize::from(header[4]) * 4,
            _ => fixed,
        };
        if header_len < fixed || header_len > length {
            return None;
        }
        if self.protocol == PROTOCOL_TCP {
            self.sequence = u32_at(header, 4);
            self.tcp_flags = u16_at(header, 12) & TCP_FLAGS;
            self.window = u16_at(header, 14);
        }
        Some(header_len)
    }
}

/// Length of the payload where an IPv6 header says 0: that of a jumbogram, or of what
/// segmentation offload made too long for the field; else really nothing.
fn unstated_len(next_header: u8, data: &[u8], room: usize) -> usize {
    if next_header == ipv6::HOP_BY_HOP
        && let Some(Ok(extension)) = ipv6::ExtensionIter::new(next_header, data).next()
        && let Some(length) = ipv6::jumbo_len(&extension)
    {
        return room.min(usize::try_from(length).unwrap_or(usize::MAX));
    }
    if room > usize::from(u16::MAX) { room } else { 0 }
}

/// Length of the part of a transport header that is always there; 0 for protocols that
/// are not read.
const fn fixed_len(protocol: u8) -> usize {
    match protocol {
        PROTOCOL_TCP => tcp::HEADER_LEN,
        PROTOCOL_UDP | PROTOCOL_UDP_LITE => udp::HEADER_LEN,
        PROTOCOL_ICMP | PROTOCOL_ICMPV6 => icmp::HEADER_LEN,
        PROTOCOL_SCTP => sctp::HEADER_LEN,
        PROTOCOL_DCCP => DCCP_LEN,
        _ => 0,
    }
}

/// A place in a frame; the last that can be told where it is beyond.
fn place(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// MPLS, multicast.
const ETHERTYPE_MPLS_MULTICAST: u16 = 0x8848;
/// Length of a pseudowire's control word.
const CONTROL_WORD_LEN: usize = 4;
/// Protocol number of DCCP (RFC 4340).
const PROTOCOL_DCCP: u8 = 33;
/// Its generic header with short sequence numbers (RFC 4340, section 5.1).
const DCCP_LEN: usize = 12;
/// Protocol number of UDP-Lite (RFC 3828).
const PROTOCOL_UDP_LITE: u8 = 136;
