//! The links that are read, and their values in capture files (LINKTYPE_*, tcpdump.org).

use crate::capture_record::{
    LINKTYPE_C_HDLC, LINKTYPE_ETHERNET, LINKTYPE_LINUX_SLL, LINKTYPE_LOOP, LINKTYPE_NULL,
    LINKTYPE_PPP, LINKTYPE_PPP_HDLC, LINKTYPE_RAW,
};

/// What a frame begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// An Ethernet header (IEEE 802.3), with tags or without.
    #[default]
    Ethernet,
    /// The IP header: tun devices, PPP interfaces.
    RawIp,
    /// The header of Linux cooked capture.
    LinuxCooked,
    /// The header of Linux cooked capture, version 2.
    LinuxCooked2,
    /// An address family of four octets, in either byte order: loopback of BSD and macOS.
    Family,
    /// The header of PPP or of Cisco's HDLC, which their first octets distinguish.
    Ppp,
    /// What Linux' netfilter logs: attributes, one of which is the packet.
    Nflog,
    /// An IEEE 802.11 header.
    Wlan,
    /// The same behind a radiotap header.
    Radiotap,
    /// A frame of 802.11, Ethernet or IP behind a header of Per-Packet Information, which says
    /// which.
    Ppi,
    /// The same behind a header of Prism or AVS.
    Prism,
    /// A header of PPPoE (RFC 2516).
    Pppoe,
    /// An FDDI header, in either order of the addresses' bits.
    Fddi,
}

impl LinkType {
    /// The link of a capture file's link type, if it is one of these.
    pub const fn from_capture(link_type: u16) -> Option<Self> {
        match link_type {
            LINKTYPE_ETHERNET => Some(LinkType::Ethernet),
            LINKTYPE_RAW | LINKTYPE_RAW_BSD | LINKTYPE_RAW_OPENBSD | LINKTYPE_IPV4
            | LINKTYPE_IPV6 => Some(LinkType::RawIp),
            LINKTYPE_NULL | LINKTYPE_LOOP => Some(LinkType::Family),
            LINKTYPE_PPP | LINKTYPE_PPP_HDLC | LINKTYPE_C_HDLC => Some(LinkType::Ppp),
            LINKTYPE_LINUX_SLL => Some(LinkType::LinuxCooked),
            LINKTYPE_LINUX_SLL2 => Some(LinkType::LinuxCooked2),
            LINKTYPE_NFLOG => Some(LinkType::Nflog),
            LINKTYPE_IEEE802_11 => Some(LinkType::Wlan),
            LINKTYPE_IEEE802_11_RADIOTAP => Some(LinkType::Radiotap),
            LINKTYPE_PPI => Some(LinkType::Ppi),
            LINKTYPE_PRISM | LINKTYPE_AVS => Some(LinkType::Prism),
            LINKTYPE_PPP_ETHER => Some(LinkType::Pppoe),
            LINKTYPE_FDDI => Some(LinkType::Fddi),
            _ => None,
        }
    }
}

/// IP without a link-layer header as files of the BSDs encode it.
pub(super) const LINKTYPE_RAW_BSD: u16 = 12;
/// The same in files of OpenBSD.
pub(super) const LINKTYPE_RAW_OPENBSD: u16 = 14;
/// IPv4 without a link-layer header.
const LINKTYPE_IPV4: u16 = 228;
/// IPv6 without a link-layer header.
const LINKTYPE_IPV6: u16 = 229;
/// Linux cooked capture, version 2.
const LINKTYPE_LINUX_SLL2: u16 = 276;
/// What Linux' netfilter logs.
const LINKTYPE_NFLOG: u16 = 239;
pub(super) const LINKTYPE_IEEE802_11: u16 = 105;
const LINKTYPE_IEEE802_11_RADIOTAP: u16 = 127;
/// Per-Packet Information, little-endian.
const LINKTYPE_PPI: u16 = 192;
const LINKTYPE_PRISM: u16 = 119;
const LINKTYPE_AVS: u16 = 163;
/// PPP over Ethernet, from its own header on.
const LINKTYPE_PPP_ETHER: u16 = 51;
const LINKTYPE_FDDI: u16 = 10;
