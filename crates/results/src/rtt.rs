//! Passive round-trip times: samples, flows, groups, and what was left out.
//!
//! A sample is the time from a packet that passes the monitor towards a host to the
//! first packet that proves it was answered. It is the round trip between the monitor
//! and that host, not between the two ends of the flow.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hist::Hist;
pub use crate::rtt_buckets::{RTT_BUCKETS, rtt_bucket, rtt_bucket_middle};
pub use crate::rtt_choices::{RttEvents, RttGroupBy, RttProtocol, RttProtocols};

/// How a round-trip time was found.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum RttKind {
    /// TCP timestamp and its echo (RFC 7323).
    TcpTimestamp,
    /// TCP sequence and acknowledgement numbers (RFC 9293), by Karn's rule.
    TcpSequence,
    /// SYN to SYN-ACK: the server's side.
    TcpHandshakeServer,
    /// SYN-ACK to the first ACK: the client's side.
    TcpHandshakeClient,
    /// ICMP or ICMPv6 echo (RFC 792, RFC 4443).
    IcmpEcho,
    /// First flights of a QUIC handshake (RFC 9000).
    QuicHandshake,
    /// QUIC's spin bit (RFC 9000, section 17.4).
    QuicSpin,
    /// DNS query and response (RFC 1035); the server's work is in it.
    Dns,
    /// SCTP heartbeat (RFC 9260, section 8.3).
    SctpHeartbeat,
}

/// What else is in a sample besides the path.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum RttClass {
    /// Nothing but the path and the host, as far as is known.
    Clean,
    /// Taken while the sender repaired a loss: may include the repair.
    Recovery,
    /// The acknowledgement was probably held back (RFC 1122, section 4.2.3.2).
    DelayedAck,
}

/// One flow, as its first packet seen came: `source` sent it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct FlowKey {
    /// Index of the interface in the run's list (0 for a file).
    pub point: u8,
    /// VLAN identifier (0: none, or a tag that has a priority only).
    pub vlan: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Source address; only its prefix when addresses are hidden.
    pub source: IpAddr,
    /// Destination address; only its prefix when addresses are hidden.
    pub destination: IpAddr,
    /// Source port, or the identifier of ICMP echo.
    pub source_port: u16,
    /// Destination port, or the identifier of ICMP echo.
    pub destination_port: u16,
}

impl FlowKey {
    /// The same flow, seen from the other end.
    pub fn reversed(&self) -> Self {
        FlowKey {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..*self
        }
    }
}

/// A round-trip time and the packet that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RttSample {
    /// When the answer passed, ns since 1970 UTC where it is written.
    pub at_ns: i64,
    /// The answering packet's flow: `source` is the host whose round trip this is.
    pub flow: FlowKey,
    /// How it was found.
    pub kind: RttKind,
    /// What else is in it.
    pub class: RttClass,
    /// The round-trip time, ns, in steps of 64.
    pub rtt_ns: u64,
    /// The least clean one so far in this direction of the flow, ns; 0: none.
    pub min_rtt_ns: u64,
    /// Bytes (IP) the answering host had sent in this flow, this packet included.
    pub bytes: u64,
    /// Packets that the answering host had sent in this flow, this packet included.
    pub packets: u64,
    /// Bytes (IP) the other host, whose packet was answered, had sent in this flow.
    pub peer_bytes: u64,
    /// Packets that the other host had sent in this flow.
    pub peer_packets: u64,
}

/// Why a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum EndReason {
    /// It has not ended.
    Open,
    /// Both sides closed it.
    Fin,
    /// One side reset it.
    Reset,
    /// A new connection took its ports.
    Reuse,
    /// No packet for the time-out of its state.
    Idle,
    /// The table needed its entry.
    Evicted,
    /// The measurement ended before the flow.
    Stopped,
}

/// What QUIC's spin bit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum SpinVerdict {
    /// Not enough packets, or not QUIC.
    #[default]
    Unknown,
    /// Always 0, or always 1.
    Off,
    /// Changes at random.
    Random,
    /// Spins once a round trip.
    Spinning,
}

/// One direction of a flow: what its sender sent, and the round trips of what it sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowSide")]
pub struct RttFlowSide {
    /// Packets (segments of a GSO frame count each).
    pub packets: u64,
    /// IP bytes.
    pub bytes: u64,
    /// Clean samples of what this side sent: round trips between the monitor and the other host.
    pub samples: u64,
    /// Samples taken in loss recovery.
    pub samples_recovery: u64,
    /// Samples with an acknowledgement that was held back.
    pub samples_delayed_ack: u64,
    /// Least clean sample, ns (0: none).
    pub rtt_min_ns: u64,
    /// Sum of the clean samples, ns.
    pub rtt_sum_ns: u64,
    /// Smoothed clean sample (RFC 6298, gain 1/8), ns.
    pub rtt_smoothed_ns: u64,
    /// TCP segments sent again.
    pub retransmitted: u64,
    /// TCP segments that came out of order (RFC 4737's sense, by the sender's sequence).
    pub reordered: u64,
    /// Gaps in the sequence: segments lost before the monitor, or overtaken.
    pub gaps: u64,
    /// Duplicate acknowledgements sent (RFC 5681, section 2).
    pub duplicate_acks: u64,
    /// Segments that advertised a window of zero.
    pub zero_windows: u64,
    /// Packets marked Congestion Experienced (RFC 3168).
    pub ce_marks: u64,
    /// Greatest one-way delay variation from the TSval clock, ns (0: not measured).
    pub delay_variation_max_ns: u64,
    /// Echo, DNS and heartbeat requests sent: `answered`, `unanswered`, or still waiting.
    #[serde(default)]
    pub requests: u64,
    /// Those with an answer.
    #[serde(default)]
    pub answered: u64,
    /// Those without one for 4.3 to 8.6 s, or until the flow was idle.
    #[serde(default)]
    pub unanswered: u64,
}

/// A flow from its first to its last packet, both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RttFlow {
    /// Its key; `source` is the client where that is known.
    pub flow: FlowKey,
    /// First packet, ns since 1970 UTC where it is written; of the kernel's program up to 67 ms too
    /// early.
    pub start_ns: i64,
    /// Last packet, ns since 1970 UTC where it is written; up to 67 ms too early, and not before
    /// the first.
    pub end_ns: i64,
    /// What ended the flow.
    pub reason: EndReason,
    /// What the client (`source`) sent.
    pub forward: RttFlowSide,
    /// What the server sent.
    pub backward: RttFlowSide,
    /// Handshake, monitor to server and back, ns (0: not seen).
    pub handshake_server_ns: u64,
    /// Handshake, monitor to client and back, ns (0: not seen).
    pub handshake_client_ns: u64,
    /// Responses of the server whose time was measured.
    pub responses: u64,
    /// Sum of the response times, ns: first segment of a request to first of its answer.
    pub response_sum_ns: u64,
    /// Greatest response time, ns.
    pub response_max_ns: u64,
    /// Packets timed from ingress to egress of this host.
    pub residences: u64,
    /// Sum of those times, ns.
    pub residence_sum_ns: u64,
    /// Greatest of them, ns.
    pub residence_max_ns: u64,
    /// What QUIC's spin bit did.
    pub spin: SpinVerdict,
}

/// What a group of samples has in common: the host that answered, by one of these.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum GroupKey {
    /// An address prefix, as given or by default /24 and /48.
    Prefix {
        /// Its address, host bits zero.
        address: IpAddr,
        /// Its length, bits.
        length: u8,
    },
    /// An autonomous system, by its number (RFC 6793).
    As(u32),
    /// An interface, by its index in the run's list.
    Interface(u8),
    /// A VLAN identifier; 0: untagged.
    Vlan(u16),
    /// A DSCP (RFC 2474) of the flow's first packet.
    Dscp(u8),
    /// One direction of one flow: `source` is the host that answers.
    Flow(FlowKey),
    /// Groups beyond the limit.
    Other,
}

/// One group, one interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttGroup {
    /// What its samples have in common.
    pub key: GroupKey,
    /// First instant (inclusive), ns since 1970 UTC where it is written.
    pub start_ns: i64,
    /// Last instant (exclusive), ns since 1970 UTC where it is written.
    pub end_ns: i64,
    /// Samples of class `Clean`, ns.
    pub clean: Hist,
    /// Samples in loss recovery, ns.
    pub recovery: Hist,
    /// Samples with a delayed acknowledgement, ns.
    pub delayed_ack: Hist,
}

/// What was seen and what was left out: the bias of the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    /// Counters by name: packets, flows, samples, and each reason for leaving one out.
    pub counters: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_ascend_without_a_gap_and_hold_their_own_middle() {
        for bucket in 1..RTT_BUCKETS - 1 {
            let middle = rtt_bucket_middle(bucket);
            assert_eq!(rtt_bucket(middle as u64), bucket);
            assert!(middle > rtt_bucket_middle(bucket - 1));
        }
        assert_eq!(rtt_bucket(1023), 0);
        assert_eq!(rtt_bucket(1024), 1);
        assert_eq!(rtt_bucket((1 << 36) - 1), RTT_BUCKETS - 2);
        assert_eq!(rtt_bucket(1 << 36), RTT_BUCKETS - 1);
    }

    #[test]
    fn the_middle_is_within_a_sixteenth_of_every_value() {
        let mut value = 1024u64;
        while value < 1 << 35 {
            for v in [value, value + value / 16 - 1, value + value / 8 - 1] {
                let middle = rtt_bucket_middle(rtt_bucket(v)) as f64;
                assert!((middle - v as f64).abs() / v as f64 <= 0.0625, "{v}: {middle}");
            }
            value += value / 8;
        }
    }
}
