//! The IP layer of a packet, and what it carries in a tunnel: for the meters of passive traffic,
//! [`crate::flow`] and [`crate::feature`]. The eBPF programs read the same (`bpf/c/tunnel.h`).

use crate::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use crate::field::{array_at, u16_at};
use crate::link::Below;
use crate::tunnel::Tunnel;
use crate::{Error, ipv4, ipv6};

/// An IP header, and what stands between it and the transport. Offsets count from the start of
/// the frame. It has no addresses: most copies of it are made before they are wanted.
#[derive(Default)]
pub(crate) struct Ip {
    pub v6: bool,
    pub protocol: u8,
    pub tos: u8,
    pub ttl: u8,
    /// Why not all of what stands before the transport could be read.
    pub broken: Option<Error>,
    /// A fragment other than the first.
    pub later: bool,
    /// Identification (RFC 791); 0 in IPv6.
    pub id: u16,
    /// Identification of a fragment; not of an atomic one (RFC 6946).
    pub fragment: Option<u32>,
    /// Where the packet begins.
    pub start: usize,
    /// Where its transport begins; not beyond `end`, but perhaps beyond what was captured.
    pub transport: usize,
    /// Where it ends by its own length, which may be beyond what was captured.
    pub end: usize,
}

impl Ip {
    /// Reads the packet that begins behind `below`; `wire_end` is where the layer below ends.
    #[inline]
    pub fn read(&mut self, frame: &[u8], wire_end: usize, below: &Below) -> Result<(), Error> {
        let packet = frame.get(below.at..).ok_or(Error::Truncated)?;
        let room = wire_end.saturating_sub(below.at);
        self.start = below.at;
        match below.ethertype {
            ETHERTYPE_IPV4 => self.v4(packet, room),
            ETHERTYPE_IPV6 => self.v6(packet, room),
            _ => Err(Error::EtherType),
        }
    }

    #[inline]
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
        self.later = flags & OFFSET != 0;
        self.id = u16_at(header, 4);
        self.fragment = (flags & MORE_OR_OFFSET != 0).then_some(self.id.into());
        self.transport = self.start + header_len;
        self.end = self.start + total_len;
        if self.protocol == ipv6::AH && !self.later {
            let data = packet.get(header_len..total_len.min(packet.len())).unwrap_or(&[]);
            let (protocol, offset) = ipv4::upper_layer(self.protocol, data);
            self.broken = (protocol == ipv6::AH).then_some(Error::Truncated);
            self.protocol = protocol;
            self.transport += offset;
        }
        Ok(())
    }

    #[inline]
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
            self.broken = error;
            if let Some(part) = upper.fragment.filter(|part| !part.is_atomic()) {
                self.later = part.offset != 0;
                self.fragment = Some(part.identification);
            }
        }
        Ok(())
    }

    /// Source and destination, IPv4 as `::ffff:a.b.c.d`.
    #[inline]
    pub fn addresses(&self, frame: &[u8]) -> Result<([u8; 16], [u8; 16]), Error> {
        let header = frame.get(self.start..).unwrap_or(&[]);
        if self.v6 {
            let header = header.first_chunk::<{ ipv6::HEADER_LEN }>().ok_or(Error::Truncated)?;
            Ok((array_at(header, 8), array_at(header, 24)))
        } else {
            let header = header.first_chunk::<{ ipv4::HEADER_LEN }>().ok_or(Error::Truncated)?;
            Ok((mapped(array_at(header, 12)), mapped(array_at(header, 16))))
        }
    }

    /// Reads the packet that this one carries in a tunnel, and what stands between. `false` where
    /// there is none, an error where there is one that cannot be read. A fragment is not looked
    /// into: the rest of the inner packet is elsewhere. `wire_len` is the frame's.
    #[inline(never)]
    pub fn inner(
        &self,
        frame: &[u8],
        wire_len: usize,
        below: &mut Below,
        ip: &mut Ip,
    ) -> Result<bool, Error> {
        if self.fragment.is_some() || self.broken.is_some() {
            return Ok(false);
        }
        let frame = &frame[..self.end.min(frame.len())];
        let Some(payload) = frame.get(self.transport..) else { return Ok(false) };
        let Some((tunnel, header_len)) = Tunnel::parse(self.protocol, payload)? else {
            return Ok(false);
        };
        let (ethertype, offset) = tunnel.carried(payload, header_len)?;
        (below.ethertype, below.at) = (ethertype, self.transport + offset);
        // What states no length has at most what was on the wire, whatever this header says.
        let wire_end = self.end.min(wire_len);
        below.look_through(frame, wire_end)?;
        ip.read(frame, wire_end, below)?;
        Ok(true)
    }
}

/// An IPv4 address as IPv6 (RFC 4291, section 2.5.5.2).
#[inline]
pub(crate) fn mapped(address: [u8; 4]) -> [u8; 16] {
    let [a, b, c, d] = address;
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d]
}

/// Of the IPv4 flags and fragment offset, what makes a fragment ...
pub(crate) const MORE_OR_OFFSET: u16 = 0x3FFF;
/// ... and one that is not the first.
const OFFSET: u16 = 0x1FFF;
/// The longest packet whose IP header does not state its length: the greatest that Linux
/// joins or has cut up is 524,280 octets (`GSO_MAX_SIZE`).
const LONGEST_UNSTATED: usize = 1 << 19;
