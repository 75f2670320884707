//! Every packet that is not the common one.

use super::{
    Feature, Keys, Layers, PacketMeta, SHAPE_FRAGMENT, SHAPE_INNER, SHAPE_IPV6,
    SHAPE_LATER_FRAGMENT, SHAPE_NO_TRANSPORT, TCP_FLAGS, To,
};
use crate::field::{u16_at, u32_at};
use crate::ip::Ip;
use crate::ipv4::{PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::ipv6::PROTOCOL_ICMPV6;
use crate::link::Below;
use crate::sctp::PROTOCOL_SCTP;
use crate::{Error, icmp, sctp, tcp, udp};

/// See [`super::parse_into`].
///
/// The layers are read into memory that is given. Returned by value, they would be copied from
/// where they were written a moment ago, which costs more than reading them.
#[inline(never)]
pub(super) fn parse(
    frame: &[u8],
    seen: &PacketMeta,
    keys: Keys,
    to: &mut To<'_>,
) -> Result<(), Error> {
    let wire_len = seen.wire_len.max(frame.len());
    let mut below = Below::default();
    below.read(seen.link, frame, wire_len)?;
    let (mut outer, mut inner) = (Ip::default(), Ip::default());
    outer.read(frame, wire_len, &below)?;
    let mut inside = Below::default();
    // What does not fit into the outer packet was not its tunnel's.
    let is_inner = keys == Keys::Inner
        && outer.inner(frame, wire_len, &mut inside, &mut inner) == Ok(true)
        && inner.end <= outer.end;
    let ip = if is_inner { &inner } else { &outer };
    let mpls = if is_inner && below.mpls == 0 { inside.mpls } else { below.mpls };
    let captured = ip.end.min(frame.len());
    let start = ip.transport.min(captured);
    let fixed = fixed_len(ip.protocol);
    let mut transport = Transport::default();
    let header_len = if ip.later || ip.broken.is_some() {
        None
    } else if fixed == 0 {
        Some(0)
    } else {
        let length = ip.end - ip.transport;
        transport.read(ip.protocol, fixed, &frame[start..captured], length)
    };
    let payload = ip.transport + header_len.unwrap_or(0);
    let (source, destination) = ip.addresses(frame)?;
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
        ip: offset(ip.start),
        mpls: offset(mpls),
        outer_ip: if is_inner { offset(outer.start) } else { 0 },
        transport: header_len.map_or(0, |_| offset(start)),
        payload: offset(payload.min(captured)),
        end: offset(captured),
    };
    Ok(())
}

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
    /// Reads a header and returns its length; `None` where it is cut short or malformed. Its first
    /// `fixed` octets must be in `segment`, the whole within `length`, that of the segment by the
    /// IP header.
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

/// An offset in a frame; the greatest that fits where it is beyond.
fn offset(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// Protocol number of DCCP (RFC 4340).
const PROTOCOL_DCCP: u8 = 33;
/// Its generic header with short sequence numbers (RFC 4340, section 5.1).
const DCCP_LEN: usize = 12;
/// Protocol number of UDP-Lite (RFC 3828).
const PROTOCOL_UDP_LITE: u8 = 136;
