//! What stands before IP: the header of the link, tags, LLC, PPPoE and MPLS.

mod below;
mod link_type;
pub(crate) mod tags;
mod wlan;

use self::link_type::{LINKTYPE_IEEE802_11, LINKTYPE_RAW_BSD, LINKTYPE_RAW_OPENBSD};
use self::tags::step_over_llc;
use crate::capture_record::{LINKTYPE_ETHERNET, LINKTYPE_RAW};
use crate::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS};
use crate::field::u16_at;
use crate::{Error, ethernet, tunnel};

pub(crate) use self::below::Below;
pub use self::link_type::LinkType;
pub use self::wlan::WlanKind;

impl LinkType {
    /// The EtherType that the header names, and its length.
    #[inline]
    pub(crate) fn header(self, frame: &[u8]) -> Result<(u16, usize), Error> {
        Ok(match self {
            LinkType::Ethernet => (ethertype_at(frame, 12)?, ethernet::HEADER_LEN),
            LinkType::RawIp => (tunnel::ip_ethertype(frame)?, 0),
            LinkType::LinuxCooked => (ethertype_at(frame, 14)?, 16),
            LinkType::LinuxCooked2 => (ethertype_at(frame, 0)?, 20),
            LinkType::Family => (family_ethertype(frame)?, 4),
            LinkType::Ppp => ppp_header(frame)?,
            LinkType::Nflog => nflog_header(frame)?,
            LinkType::Ppi => ppi_header(frame)?,
            LinkType::Wlan | LinkType::Radiotap | LinkType::Prism => wlan::header(self, frame)?,
            LinkType::Fddi => fddi_header(frame)?,
            LinkType::Pppoe => (tunnel::ETHERTYPE_PPPOE, 0),
        })
    }

    /// Why a frame of a wireless network has no packet that can be read, as most of them have
    /// not; `None`: it may have one.
    #[inline]
    pub fn unreadable(self, frame: &[u8]) -> Option<WlanKind> {
        match self {
            LinkType::Wlan | LinkType::Radiotap | LinkType::Ppi | LinkType::Prism => {
                wlan::unreadable(self, frame)
            }
            _ => None,
        }
    }

    /// Packets of a frame that are not read, since it has several (A-MSDU) and the first is.
    #[inline]
    pub fn further_parts(self, frame: &[u8]) -> u64 {
        match self {
            LinkType::Wlan | LinkType::Radiotap | LinkType::Ppi | LinkType::Prism => {
                wlan::further_parts(self, frame)
            }
            _ => 0,
        }
    }
}

/// EtherType and offset of the packet in what Linux' netfilter logs
/// (linux/netfilter/nfnetlink_log.h). That is family, version and group, then attributes of length,
/// type and value. Their integers are in the byte order of the machine that captured.
fn nflog_header(frame: &[u8]) -> Result<(u16, usize), Error> {
    let [_, version, ..] = *frame.first_chunk::<4>().ok_or(Error::Truncated)?;
    if version != 0 {
        return Err(Error::EtherType);
    }
    let mut at = 4;
    for _ in 0..NFLOG_ATTRIBUTES {
        let head = frame.get(at..).and_then(|f| f.first_chunk::<4>()).ok_or(Error::Truncated)?;
        let [a, b, c, d] = *head;
        // No type is beyond 255, so the octet that is 0 shows the byte order.
        let (len, kind) = match (c, d) {
            (_, 0) => (u16::from_le_bytes([a, b]), c),
            (0, _) => (u16::from_be_bytes([a, b]), d),
            _ => return Err(Error::EtherType),
        };
        if len < 4 {
            return Err(Error::Length);
        }
        if kind == NFULA_PAYLOAD {
            let packet = frame.get(at + 4..).ok_or(Error::Truncated)?;
            return Ok((tunnel::ip_ethertype(packet)?, at + 4));
        }
        at += usize::from(len).next_multiple_of(4);
    }
    Err(Error::EtherType)
}

/// EtherType and offset of the packet behind a header of Per-Packet Information: version, flags,
/// length and link type, little-endian.
fn ppi_header(frame: &[u8]) -> Result<(u16, usize), Error> {
    let [_, _, low, high, kind @ ..] = *frame.first_chunk::<8>().ok_or(Error::Truncated)?;
    let len = usize::from(u16::from_le_bytes([low, high]));
    let inner = match u16::try_from(u32::from_le_bytes(kind)) {
        Ok(LINKTYPE_IEEE802_11) => return wlan::header(LinkType::Ppi, frame),
        Ok(LINKTYPE_ETHERNET) => LinkType::Ethernet,
        Ok(LINKTYPE_RAW | LINKTYPE_RAW_BSD | LINKTYPE_RAW_OPENBSD) => LinkType::RawIp,
        _ => return Err(Error::EtherType),
    };
    let (ethertype, at) = inner.header(frame.get(len..).ok_or(Error::Truncated)?)?;
    Ok((ethertype, len + at))
}

/// EtherType and offset of the packet in an FDDI frame with LLC (ISO 9314-2): frame control, two
/// addresses.
fn fddi_header(frame: &[u8]) -> Result<(u16, usize), Error> {
    match frame.first().ok_or(Error::Truncated)? & 0xF0 {
        // Any length below the least EtherType says that LLC follows.
        FDDI_LLC => step_over_llc(frame, 1, 13),
        _ => Err(Error::EtherType),
    }
}

/// The EtherType of an address family as the BSDs, macOS, Linux and Npcap encode them. None
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

/// EtherType and length of a header of PPP. Address and control may be left out (RFC 1662,
/// section 3.1). So may the first octet of the protocol if it is 0 (RFC 1661, section 6.5). An address of 0x0F
/// or 0x8F is that of Cisco's HDLC.
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

/// The EtherType in a link-layer header.
#[inline]
fn ethertype_at(frame: &[u8], at: usize) -> Result<u16, Error> {
    frame.get(at..at + 2).map(|bytes| u16_at(bytes, 0)).ok_or(Error::Truncated)
}

/// PPP protocol: MPLS (RFC 3032, section 4.3).
const PPP_MPLS: u16 = 0x0281;
/// Of a frame control: an asynchronous frame with LLC.
const FDDI_LLC: u8 = 0x50;
/// The attribute that is the packet.
const NFULA_PAYLOAD: u8 = 9;
/// Attributes that are looked through: there are fewer kinds.
const NFLOG_ATTRIBUTES: usize = 64;

#[cfg(test)]
pub(crate) mod tests;
