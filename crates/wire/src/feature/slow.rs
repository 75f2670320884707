//! Every packet that is not the common one.

use super::{
    Feature, Keys, Layers, MORE_OR_OFFSET, SHAPE_FRAGMENT, SHAPE_INNER, SHAPE_IPV6,
    SHAPE_LATER_FRAGMENT, SHAPE_NO_TRANSPORT, Seen, TCP_FLAGS, To,
};
use crate::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS};
use crate::field::{array_at, u16_at, u32_at};
use crate::flow::mapped;
use crate::ipv4::{PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::ipv6::PROTOCOL_ICMPV6;
use crate::link::tags::{step_over_llc, step_over_tags};
use crate::sctp::PROTOCOL_SCTP;
use crate::{Error, ethernet, icmp, ipv4, ipv6, mpls, sctp, tcp, tunnel, udp};

/// See [`super::parse_into`].
///
/// The layers are read into places that are given: handed back by value, they would be
/// copied from where they were written a moment ago, which costs more than reading them.
#[inline(never)]
pub(super) fn parse(frame: &[u8], seen: &Seen, keys: Keys, to: &mut To<'_>) -> Result<(), Error> {
    let wire_len = seen.wire_len.max(frame.len());
    let (ethertype, at) = seen.link.header(frame)?;
    let mut below = Below { ethertype, at, ..Below::default() };
    below.look_through(frame, wire_len)?;
    let (mut outer, mut inner) = (Ip::default(), Ip::default());
    outer.read(frame, wire_len, &below)?;
    let mut inside = Below::default();
    let is_inner = keys == Keys::Inner && outer.inner(frame, &mut inside, &mut inner).is_some();
    let ip = if is_inner { &inner } else { &outer };
    let mpls = if is_inner && below.mpls == 0 { inside.mpls } else { below.mpls };
    let captured = ip.end.min(frame.len());
    let start = ip.transport.min(captured);
    let fixed = fixed_len(ip.protocol);
    let mut transport = Transport::default();
    let header_len = if ip.later || ip.broken {
        None
    } else if fixed == 0 {
        Some(0)
    } else {
        let length = ip.end - ip.transport;
        transport.read(ip.protocol, fixed, &frame[start..captured], length)
    };
    let payload = ip.transport + header_len.unwrap_or(0);
    let header = frame.get(ip.start..).unwrap_or(&[]);
    let (source, destination) = if ip.v6 {
        let header = header.first_chunk::<{ ipv6::HEADER_LEN }>().ok_or(Error::Truncated)?;
        (array_at(header, 8), array_at(header, 24))
    } else {
        let header = header.first_chunk::<{ ipv4::HEADER_LEN }>().ok_or(Error::Truncated)?;
        (mapped(array_at(header, 12)), mapped(array_at(header, 16)))
    };
    let shape = [
        (ip.v6, SHAPE_IPV6),
        (ip.fragment.is_some(), SHAPE_FRAGMENT),
        (ip.later, SHAPE_LATER_FRAGMENT),
        (is_inner, SHAPE_INNER),
        (header_len.is_none() && !ip.later, SHAPE_NO_TRANSPORT),
    ];
    *to.feature = Feature {
        at_ns: seen.at_ns,
        source,
        destination,
        source_port: transport.source_port,
        destination_port: transport.destination_port,
        ip_len: u32::try_from(ip.end - ip.start).unwrap_or(u32::MAX),
        sequence: ip.fragment.unwrap_or(transport.sequence),
        tcp_flags: transport.tcp_flags,
        vlan: below.vlan,
        protocol: ip.protocol,
        tos: ip.tos,
        ttl: ip.ttl,
        shape: shape.iter().fold(0, |all, &(is, bit)| if is { all | bit } else { all }),
        window: transport.window,
        headers: u8::try_from((payload - ip.start).div_ceil(4)).unwrap_or(u8::MAX),
        point: seen.point,
    };
    *to.layers = Layers {
        ip: place(ip.start),
        mpls: place(mpls),
        outer_ip: if is_inner { place(outer.start) } else { 0 },
        transport: header_len.map_or(0, |_| place(start)),
        payload: place(payload.min(captured)),
        end: place(captured),
    };
    Ok(())
}

/// What there is below an IP header.
#[derive(Default)]
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

impl Below {
    /// Steps over VLAN tags, then LLC and SNAP, then a PPPoE header, or an MPLS stack and, in a pseudowire, an
    /// Ethernet header with its own tags.
    fn look_through(&mut self, frame: &[u8], wire_len: usize) -> Result<(), Error> {
        (self.ethertype, self.at, self.vlan) = step_over_tags(frame, self.ethertype, self.at)?;
        (self.ethertype, self.at) = step_over_llc(frame, self.ethertype, self.at)?;
        let rest = frame.get(self.at..).unwrap_or(&[]);
        match self.ethertype {
            tunnel::ETHERTYPE_PPPOE => {
                let header = tunnel::Pppoe::parse(rest)?;
                self.at += header.buffer_len();
                self.ethertype = match header.protocol {
                    tunnel::PPP_IPV4 => ETHERTYPE_IPV4,
                    tunnel::PPP_IPV6 => ETHERTYPE_IPV6,
                    _ => return Err(Error::EtherType),
                };
            }
            ETHERTYPE_MPLS | ETHERTYPE_MPLS_MULTICAST => {
                let stack = mpls::Stack::new_checked(rest)?;
                self.mpls = self.at;
                self.at += stack.depth() * mpls::ENTRY_LEN;
                let (ethertype, at, vlan) = labelled(frame, wire_len, self.at)?;
                (self.ethertype, self.at) = (ethertype, at);
                if self.vlan == 0 {
                    self.vlan = vlan;
                }
            }
            _ => {}
        }
        Ok(())
    }
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

/// The IP layer of a packet, but for its addresses. Offsets count from the start of the
/// frame.
#[derive(Default)]
struct Ip {
    v6: bool,
    protocol: u8,
    tos: u8,
    ttl: u8,
    /// Not all of what stands before the transport could be read.
    broken: bool,
    /// A fragment other than the first.
    later: bool,
    /// Identification of a fragment.
    fragment: Option<u32>,
    /// Where the packet begins.
    start: usize,
    /// Where its transport begins; not beyond `end`, but perhaps beyond what was captured.
    transport: usize,
    /// Where it ends by its own length, which may be beyond what was captured.
    end: usize,
}

impl Ip {
    /// `wire_end` is where the layer below ends.
    fn read(&mut self, frame: &[u8], wire_end: usize, below: &Below) -> Result<(), Error> {
        let packet = frame.get(below.at..).ok_or(Error::Truncated)?;
        let room = wire_end.saturating_sub(below.at);
        self.start = below.at;
        match below.ethertype {
            ETHERTYPE_IPV4 => self.v4(packet, room),
            ETHERTYPE_IPV6 => self.v6(packet, room),
            _ => Err(Error::EtherType),
        }
    }

    fn v4(&mut self, packet: &[u8], room: usize) -> Result<(), Error> {
        let header = packet.first_chunk::<{ ipv4::HEADER_LEN }>().ok_or(Error::Truncated)?;
        if header[0] >> 4 != 4 {
            return Err(Error::Version);
        }
        let header_len = usize::from(header[0] & 0x0F) * 4;
        let total_len = match usize::from(u16_at(header, 2)) {
            // More than the kernel ever joins: a capture's own header is wrong.
            0 if room > LONGEST_UNSTATED => return Err(Error::Length),
            0 => room,
            stated => stated,
        };
        if header_len < ipv4::HEADER_LEN || total_len < header_len {
            return Err(Error::Length);
        }
        let flags = u16_at(header, 6);
        self.protocol = header[9];
        self.tos = header[1];
        self.ttl = header[8];
        self.later = flags & 0x1FFF != 0;
        self.fragment = (flags & MORE_OR_OFFSET != 0).then(|| u32::from(u16_at(header, 4)));
        self.transport = self.start + header_len;
        self.end = self.start + total_len;
        if self.protocol == ipv6::AH && !self.later {
            let data = packet.get(header_len..total_len.min(packet.len())).unwrap_or(&[]);
            let (protocol, offset) = ipv4::upper_layer(self.protocol, data);
            self.broken = protocol == ipv6::AH;
            self.protocol = protocol;
            self.transport += offset;
        }
        Ok(())
    }

    fn v6(&mut self, packet: &[u8], room: usize) -> Result<(), Error> {
        let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>().ok_or(Error::Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(Error::Version);
        }
        let data = &packet[ipv6::HEADER_LEN..];
        let room = room.saturating_sub(ipv6::HEADER_LEN);
        let payload_len = match usize::from(u16_at(header, 4)) {
            0 => ipv6::unstated_len(header[6], data, room),
            stated => stated,
        };
        if payload_len > LONGEST_UNSTATED {
            return Err(Error::Length);
        }
        self.v6 = true;
        self.protocol = header[6];
        self.tos = (u16_at(header, 0) >> 4) as u8;
        self.ttl = header[7];
        self.transport = self.start + ipv6::HEADER_LEN;
        self.end = self.transport + payload_len;
        if ipv6::is_extension(self.protocol) {
            let (upper, error) = ipv6::reach(self.protocol, &data[..payload_len.min(data.len())]);
            self.protocol = upper.protocol;
            self.transport += upper.offset;
            self.broken = error.is_some();
            if let Some(part) = upper.fragment.filter(|part| !part.is_atomic()) {
                self.later = part.offset != 0;
                self.fragment = Some(part.identification);
            }
        }
        Ok(())
    }

    /// Reads the packet that this one carries in a tunnel, and what stands between; `None`
    /// where there is none. A fragment is not looked into: the rest of the inner packet is
    /// elsewhere. What does not fit into this packet was not its tunnel's.
    fn inner(&self, frame: &[u8], below: &mut Below, ip: &mut Ip) -> Option<()> {
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
        (below.ethertype, below.at) = (ethertype, at + offset);
        below.look_through(frame, self.end).ok()?;
        ip.read(frame, self.end, below).ok()?;
        (ip.end <= self.end).then_some(())
    }
}

/// The longest packet whose IP header does not state its length: the greatest that Linux
/// joins or has cut up is 524,280 octets (`GSO_MAX_SIZE`).
const LONGEST_UNSTATED: usize = 1 << 19;

/// What a transport header has.
#[derive(Default)]
struct Transport {
    source_port: u16,
    destination_port: u16,
    sequence: u32,
    tcp_flags: u16,
    window: u16,
}

impl Transport {
    /// Reads a header, of which the first `fixed` octets must be in `segment`, and the
    /// whole within `length`, that of the segment by the IP header. Its length; `None` where
    /// it is cut short or malformed.
    #[inline(always)]
    fn read(&mut self, protocol: u8, fixed: usize, segment: &[u8], length: usize) -> Option<usize> {
        let ports = segment.first_chunk::<4>()?;
        match protocol {
            PROTOCOL_ICMP | PROTOCOL_ICMPV6 => self.destination_port = u16_at(ports, 0),
            _ => {
                self.source_port = u16_at(ports, 0);
                self.destination_port = u16_at(ports, 2);
            }
        }
        let header = segment.get(..fixed)?;
        let header_len = match protocol {
            PROTOCOL_TCP => usize::from(header[12] >> 4) * 4,
            PROTOCOL_DCCP => usize::from(header[4]) * 4,
            _ => fixed,
        };
        if header_len < fixed || header_len > length {
            return None;
        }
        if protocol == PROTOCOL_TCP {
            self.sequence = u32_at(header, 4);
            self.tcp_flags = u16_at(header, 12) & TCP_FLAGS;
            self.window = u16_at(header, 14);
        }
        Some(header_len)
    }
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
