//! Flow records (RFC 7011, RFC 5103): what one flow carried, each way, and why it ended.
//!
//! A record is a biflow: `forward` is the direction of the flow's first packet, `reverse` the other
//! one. After an active time-out the flow goes on as another record. That direction is `forward`
//! there, too, though it may be empty (RFC 5103, section 6.3). A meter of unidirectional flows
//! leaves `reverse` empty.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::rtt::FlowKey;

/// Why a flow record was made: flowEndReason (IPFIX element 136).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum FlowEnd {
    /// No packet for the idle time-out.
    Idle = 1,
    /// The flow lasted longer than the active time-out; what follows is a record of its own.
    Active = 2,
    /// TCP closed or reset it.
    EndDetected = 3,
    /// The meter was stopped.
    Forced = 4,
    /// The cache had no room.
    LackOfResources = 5,
}

impl FlowEnd {
    /// All, in the order of their codes.
    pub const ALL: [FlowEnd; 5] = [
        FlowEnd::Idle,
        FlowEnd::Active,
        FlowEnd::EndDetected,
        FlowEnd::Forced,
        FlowEnd::LackOfResources,
    ];

    /// Its name, as records have it.
    pub fn name(self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.as_str().unwrap_or_default().to_string()
    }
}

/// One direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowSide {
    /// Packets (packetDeltaCount, 2). 0: nothing was seen, the other fields mean nothing.
    pub packets: u64,
    /// Bytes of IP packets with their headers, never padding (octetDeltaCount, 1).
    pub bytes: u64,
    /// Time of the first packet, ns since 1970 UTC where it is written or exported; TAI
    /// within the meter.
    pub first_ns: i64,
    /// Time of the last packet, likewise.
    pub last_ns: i64,
    /// Flags of all packets together, 12 bits with the reserved ones (tcpControlBits, 6; RFC 9565).
    pub tcp_flags: u16,
    /// Type of service or traffic class of the first packet (ipClassOfService, 5).
    pub tos: u8,
    /// Smallest time to live or hop limit (minimumTTL, 52).
    pub ttl_min: u8,
    /// Largest (maximumTTL, 53).
    pub ttl_max: u8,
}

/// A flow in one or both directions: who, when, how much, and how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowRecord {
    /// Who talks to whom: `source` sent the flow's first packet. The destination port of
    /// ICMP is its type * 256 + code (icmpTypeCodeIPv4, 32), its source port 0.
    pub key: FlowKey,
    /// From source to destination.
    pub forward: FlowSide,
    /// From destination to source.
    pub reverse: FlowSide,
    /// Why the record was made.
    pub end: FlowEnd,
    /// What was asked for beyond the basic record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra: Option<Box<FlowExtra>>,
}

impl FlowRecord {
    /// First packet of either direction, ns since 1970 TAI.
    pub fn first_ns(&self) -> i64 {
        match (self.forward.packets, self.reverse.packets) {
            (_, 0) => self.forward.first_ns,
            (0, _) => self.reverse.first_ns,
            _ => self.forward.first_ns.min(self.reverse.first_ns),
        }
    }

    /// Last packet of either direction, ns since 1970 TAI.
    pub fn last_ns(&self) -> i64 {
        match (self.forward.packets, self.reverse.packets) {
            (_, 0) => self.forward.last_ns,
            (0, _) => self.reverse.last_ns,
            _ => self.forward.last_ns.max(self.reverse.last_ns),
        }
    }
}

/// What is kept apart from the basic record, each where it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FlowExtra {
    /// Link layer and encapsulation of the first packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<FlowLink>,
    /// The first packets with payload, both directions in the order seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packets: Vec<FlowPacketInfo>,
    /// Histograms of forward packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_spread: Option<FlowSpread>,
    /// Histograms of reverse packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverse_spread: Option<FlowSpread>,
    /// Handshake times, retransmissions and windows; absent for other protocols.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<FlowTcp>,
    /// What the application said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<App>,
}

/// Link layer and encapsulation of a flow's first packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowLink {
    /// sourceMacAddress, 56.
    pub source_mac: [u8; 6],
    /// destinationMacAddress, 80.
    pub destination_mac: [u8; 6],
    /// Inner VLAN identifier of two (dot1qCustomerVlanId, 245); 0: none.
    pub inner_vlan: u16,
    /// MPLS label stack entries from the top, each label << 4 | traffic class << 1 | bottom
    /// (mplsTopLabelStackSection, 70); at most 3.
    pub mpls: Vec<u32>,
    /// The tunnel between the outer and the inner IP header whose fields these are, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<FlowTunnel>,
}

/// The tunnel header between two IP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tunnel")]
pub struct FlowTunnel {
    /// The tunnel's protocol.
    pub kind: TunnelKind,
    /// Source of the outer IP header.
    pub outer_source: IpAddr,
    /// Destination of the outer IP header.
    pub outer_destination: IpAddr,
    /// GRE key, VXLAN or GENEVE network identifier, GTP-U tunnel identifier (layer2SegmentId, 351).
    pub id: u32,
}

/// What kind of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum TunnelKind {
    /// IP in IP (RFC 2003, RFC 2473).
    Ip = 1,
    /// RFC 2784.
    Gre = 2,
    /// RFC 7348.
    Vxlan = 3,
    /// 3GPP TS 29.281.
    GtpU = 4,
    /// RFC 8926.
    Geneve = 5,
}

/// One of a flow's first packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowPacketInfo {
    /// Of the reverse direction.
    pub reverse: bool,
    /// Length of the transport's payload, bytes.
    pub length: u16,
    /// Since the packet before in this list, ns; of the first 0.
    pub after_ns: u64,
    /// TCP flags of header octet 13.
    pub tcp_flags: u8,
}

/// Histograms of one direction's packets with payload: 8 buckets each. The upper bounds are those
/// of ipfixprobe's phists: 15, 31, 63, 127, 255, 511, 1023 and above (bytes; ms).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowSpread {
    /// Payload lengths, bytes.
    pub lengths: [u32; 8],
    /// Times between them, ms.
    pub gaps: [u32; 8],
}

/// How TCP went in a flow. A time of 0 ns was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowTcp {
    /// SYN to SYN-ACK: the server's side of the handshake's round trip, ns.
    pub handshake_server_ns: u64,
    /// SYN-ACK to ACK: the client's side, ns.
    pub handshake_client_ns: u64,
    /// Forward segments, SYNs too, whose data had been seen before. Also those that came so late
    /// that they must replace one lost before it was seen.
    pub retransmitted: u32,
    /// Reverse segments, by the same rule.
    pub reverse_retransmitted: u32,
    /// Forward segments never seen before that came after one with a later sequence number,
    /// sooner than they can have been sent again.
    pub reordered: u32,
    /// Reverse segments, by the same rule.
    pub reverse_reordered: u32,
    /// Smallest window announced forward, unscaled, those with SYN and RST left out; 0 also
    /// where there was none.
    pub window_min: u16,
    /// Smallest window announced in reverse.
    pub reverse_window_min: u16,
}

/// What the application layer said, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "protocol", rename_all = "snake_case")]
pub enum App {
    /// TLS over TCP (RFC 8446).
    Tls(TlsInfo),
    /// QUIC: what its Initial packets carry (RFC 9001).
    Quic {
        /// The version field of the first Initial packet (RFC 9000, section 17.2).
        version: u32,
        /// The handshake in it.
        tls: TlsInfo,
    },
    /// DNS (RFC 1035): the first query and its answer.
    Dns {
        /// Name asked for, with dots, without the last.
        name: String,
        /// Type asked for, by IANA's number: 1 is A, 28 is AAAA.
        qtype: u16,
        /// Response code; absent: no answer was seen.
        rcode: Option<u8>,
        /// Records in the answer section.
        answers: u16,
        /// Query to answer, ns; 0: no answer was seen.
        latency_ns: u64,
    },
    /// HTTP/1 (RFC 9112): the first request and its answer.
    Http {
        /// The request's method: "GET".
        method: String,
        /// The Host field; empty: none.
        host: String,
        /// The request target, as sent (RFC 9112, section 3.2).
        target: String,
        /// The User-Agent field; empty: none.
        user_agent: String,
        /// Status code; 0: no answer was seen.
        status: u16,
    },
    /// SSH (RFC 4253): identification strings.
    Ssh {
        /// What the client sent; empty: not seen.
        client: String,
        /// What the server sent; empty: not seen.
        server: String,
    },
    /// NTP (RFC 5905): first packet and answer.
    Ntp {
        /// Version of the first packet.
        version: u8,
        /// Mode of the first packet.
        mode: u8,
        /// Stratum of the server; 0: no answer was seen.
        stratum: u8,
    },
    /// SIP (RFC 3261): the first request and its last answer.
    Sip {
        /// The request's method: "INVITE".
        method: String,
        /// The Call-ID field.
        call_id: String,
        /// The URI of the From field.
        from: String,
        /// The URI of the To field.
        to: String,
        /// Status code; 0: no answer was seen.
        status: u16,
    },
    /// SMTP (RFC 5321): the client's first commands.
    Smtp {
        /// What the client called itself in HELO or EHLO.
        helo: String,
        /// Sender of the first message.
        from: String,
        /// First recipient of the first message.
        to: String,
        /// STARTTLS was asked for.
        starttls: bool,
    },
    /// DHCP (RFC 2131): the last message, and what the client says of itself.
    Dhcp {
        /// Type of the last message (option 53).
        message: u8,
        /// Client's hardware address (chaddr).
        client_mac: [u8; 6],
        /// Host name option (12).
        host_name: String,
        /// Vendor class option (60).
        vendor: String,
    },
}

/// What a TLS handshake shows before it is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TlsInfo {
    /// Server name (RFC 6066).
    pub sni: String,
    /// First protocol of the client's list (RFC 7301).
    pub alpn: String,
    /// Version that the server chose; the client's highest while no answer was seen.
    pub version: u16,
    /// JA3 of the client, 32 hexadecimal digits; empty: not computed.
    pub ja3: String,
    /// JA4 of the client; empty: not computed.
    pub ja4: String,
}
