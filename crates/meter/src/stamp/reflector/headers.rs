//! The headers of a request, turned into those of its reply where they lie.

use sonde_wire::{UdpFrame, checksum, ipv4, ipv6, udp};

/// Sends the packet back whence it came, with a hop count of 255 (RFC 5357, section 4.2.1)
/// and checksums over what is now there.
#[inline]
pub(super) fn turn_headers(frame: &mut [u8], found: &UdpFrame, dscp: u8) {
    swap_macs(frame);
    // What lies behind the datagram in its packet is not sent back.
    let length = (found.payload.end - found.l3_offset) as u16;
    // ECN is not copied (RFC 3168 gives it to the transport, which has none to say).
    let tos = dscp << 2;
    let (ip, datagram) =
        frame[found.l3_offset..found.payload.end].split_at_mut(found.l4_offset - found.l3_offset);
    if found.is_ipv6 {
        // Traffic class and hop limit; the flow label goes back as it came, so that it stays
        // one flow.
        ip[0] = ip[0] & 0xf0 | tos >> 4;
        ip[1] = ip[1] & 0x0f | tos << 4;
        ip[4..6].copy_from_slice(&(length - ipv6::HEADER_LEN as u16).to_be_bytes());
        ip[7] = REPLY_TTL;
        let (source, destination) = ip[8..40].split_at_mut(16);
        source.swap_with_slice(destination);
    } else {
        ip[1] = tos;
        ip[2..4].copy_from_slice(&length.to_be_bytes());
        ip[8] = REPLY_TTL;
        let (source, destination) = ip[12..20].split_at_mut(4);
        source.swap_with_slice(destination);
        // The request's options concern its own way here; a source route must not be turned.
        ip[ipv4::HEADER_LEN..].fill(ipv4::OPTION_NOP);
        ip[10..12].fill(0);
        let checksum = checksum::finish(checksum::sum(ip));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    let (source, destination) = datagram[..4].split_at_mut(2);
    source.swap_with_slice(destination);
    if let Ok(mut datagram) = udp::Packet::new_checked(datagram) {
        // It cannot fail either: the addresses are of one family.
        let _ = datagram.fill_checksum(found.destination, found.source);
    }
}

pub(super) fn swap_macs(frame: &mut [u8]) {
    let (destination, source) = frame[..12].split_at_mut(6);
    destination.swap_with_slice(source);
}

/// Whether the header's checksum is right. The socket engine, whose kernel has checked the
/// true header, may leave it 0.
#[inline]
pub(super) fn ipv4_checksum_holds(header: &[u8]) -> bool {
    header[10..12] == [0, 0] || checksum::sum(header) == 0xffff
}

/// RFC 5357, section 4.2.1, so that the sender can compute the length of the way back from the
/// reply's TTL.
pub(super) const REPLY_TTL: u8 = 255;
