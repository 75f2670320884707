//! One packet as a flow meter sees it: who talks to whom, and what its headers say.
//!
//! The value that parsing ends in, and that the instruments for passive traffic start
//! from. The eBPF program builds the same value in the kernel (`bpf/c/rtt_parse.h`).

use core::ops::Range;

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
    /// VLAN identifier of the outermost tag; 0: untagged.
    pub vlan: u16,
    /// Protocol above IP and its extension headers.
    pub protocol: u8,
    /// Type of service or traffic class octet.
    pub tos: u8,
    /// Length of the IP packet with its header, bytes (never Ethernet padding).
    pub ip_len: u32,
    /// A first fragment: the rest of the datagram is elsewhere.
    pub fragment: bool,
    /// What the transport carries, within the frame as captured (may be cut short).
    pub payload: Range<usize>,
    /// The transport's own fields.
    pub detail: Detail,
}

/// The part that depends on the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// TCP.
    Tcp(Tcp),
    /// ICMP or ICMPv6 echo.
    Echo {
        /// A reply, not a request.
        reply: bool,
        /// Its sequence number.
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
        /// HEARTBEAT ACK.
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
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
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
    /// DNS over TCP: whether it is a response, and its identifier; of a segment that begins a message.
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
