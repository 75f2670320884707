//! What stands between a MAC header and its payload: tags, and LLC with SNAP.

use crate::Error;
use crate::ethernet::{ETHERTYPE_IPV4, LEAST_ETHERTYPE, is_tpid};
use crate::field::u16_at;

/// Skips tags alone, at most [`TAGS`]: those of VLANs, of HSR (IEC 62439-3), of virtual interfaces
/// (VN-Tag, proposed for IEEE 802.1Qbh). Also the service instance tag of provider backbone bridges
/// (IEEE 802.1ah) and that of FabricPath with the customer's addresses.
#[inline]
pub(crate) fn step_over_tags(
    frame: &[u8],
    mut ethertype: u16,
    mut at: usize,
) -> Result<(u16, usize, u16), Error> {
    let mut vlan = 0;
    let mut tags = 0;
    loop {
        let len = match ethertype {
            kind if is_tpid(kind) => 4,
            // Path and size, sequence number, EtherType.
            ETHERTYPE_HSR => 6,
            // Direction, virtual interfaces, EtherType.
            ETHERTYPE_VNTAG => 6,
            // Forwarding tag and time to live, two addresses, EtherType.
            ETHERTYPE_FABRIC_PATH => 16,
            // Flags and instance, two addresses, EtherType.
            ETHERTYPE_BACKBONE => 18,
            _ => break,
        };
        if tags == TAGS {
            return Err(Error::VlanDepth);
        }
        let tag = frame.get(at..at + len).ok_or(Error::Truncated)?;
        if vlan == 0 && len == 4 {
            vlan = u16_at(tag, 0) & 0x0FFF;
        }
        ethertype = u16_at(tag, len - 2);
        tags += 1;
        at += len;
    }
    Ok((ethertype, at, vlan))
}

/// Steps over an IEEE 802.2 header, where the length of IEEE 802.3 stands in the EtherType's
/// position. It is that of SNAP (RFC 1042; IEEE 802.1H for its second identifier), or IP's own.
#[inline]
pub(crate) fn step_over_llc(
    frame: &[u8],
    ethertype: u16,
    at: usize,
) -> Result<(u16, usize), Error> {
    if ethertype == 0 || ethertype >= LEAST_ETHERTYPE {
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

/// Most VLAN tags that are looked through.
pub(crate) const TAGS: usize = 4;
/// High-availability Seamless Redundancy (IEC 62439-3).
const ETHERTYPE_HSR: u16 = 0x892F;
/// Cisco's FabricPath: the frame of the switches begins with it, the customer's follows.
const ETHERTYPE_FABRIC_PATH: u16 = 0x8903;
/// VN-Tag, between fabric extenders and their switch.
const ETHERTYPE_VNTAG: u16 = 0x8926;
/// Service instance tag (IEEE 802.1ah).
const ETHERTYPE_BACKBONE: u16 = 0x88E7;
