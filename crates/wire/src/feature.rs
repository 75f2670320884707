//! The unified header: what a flow meter needs of one packet, in 64 bytes.
//!
//! The value that parsing ends in and that the flow cache takes. The XDP program makes
//! the same 64 bytes in the kernel (`bpf/c/flow_feature.h`), so the layout is fixed: the
//! fields lie in the order below without gaps, in the machine's byte order.

/// One packet, as a flow meter counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Feature {
    /// When it was seen, ns since 1970 TAI.
    pub at_ns: i64,
    /// Source address; IPv4 as `::ffff:a.b.c.d`.
    pub source: [u8; 16],
    /// Destination address, likewise.
    pub destination: [u8; 16],
    /// Source port; 0 where the protocol has none, and for later fragments.
    pub source_port: u16,
    /// Destination port, likewise; for ICMP type * 256 + code.
    pub destination_port: u16,
    /// Length of the IP packet with its header, bytes: from the IP header, never padding.
    pub ip_len: u32,
    /// TCP sequence number; of a fragment ([`SHAPE_FRAGMENT`]) its identification.
    pub sequence: u32,
    /// TCP header octets 12 and 13 without the data offset: 12 flags (RFC 9293; RFC 9565).
    pub tcp_flags: u16,
    /// VLAN identifier of the outermost tag; 0: untagged.
    pub vlan: u16,
    /// Protocol above IP and its extension headers.
    pub protocol: u8,
    /// Type of service or traffic class octet.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Bits `SHAPE_*`.
    pub shape: u8,
    /// TCP window, not scaled; 0 for others.
    pub window: u16,
    /// From the start of the IP header to the transport's payload, in units of 4 bytes,
    /// rounded up; 255: more.
    pub headers: u8,
    /// Which of the meter's interfaces it came by.
    pub point: u8,
}

impl Feature {
    /// Length of the transport's payload, bytes, by the IP header.
    pub fn payload_len(&self) -> u32 {
        self.ip_len.saturating_sub(u32::from(self.headers) * 4)
    }
}

/// IPv6; else IPv4.
pub const SHAPE_IPV6: u8 = 1;
/// A fragment, the first or a later one.
pub const SHAPE_FRAGMENT: u8 = 2;
/// A fragment that is not the first: it has no ports.
pub const SHAPE_LATER_FRAGMENT: u8 = 4;
/// The addresses are those inside a tunnel.
pub const SHAPE_INNER: u8 = 8;
/// The transport header is cut short or malformed; ports and flags are 0.
pub const SHAPE_NO_TRANSPORT: u8 = 16;

/// Where the parts of a frame lie that the basic record does not need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Start of the IP header that the addresses come from.
    pub ip: u16,
    /// Start of the first MPLS label stack entry; 0: none.
    pub mpls: u16,
    /// Start of the outer IP header; 0: no tunnel.
    pub outer_ip: u16,
    /// Start of the transport header; 0: none.
    pub transport: u16,
    /// Start of the transport's payload as captured.
    pub payload: u16,
    /// Its end: by the IP header, and not beyond what was captured.
    pub end: u16,
}

const _: () = assert!(size_of::<Feature>() == 64);
