//! What was measured on one stream in one interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_wire::StampSource;
use std::net::SocketAddr;

use crate::caveat::{Caveat, CaveatSet};
use crate::hist::Hist;

/// What does not change about a stream. `stream` in an [`Interval`] indexes these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamInfo {
    /// The target as the user named it.
    pub target: String,
    /// Where its probes come from.
    pub source: SocketAddr,
    /// Where they go.
    pub destination: SocketAddr,
    /// DSCP (0..=63) of its probes (RFC 2474).
    pub dscp: u8,
    /// STAMP session identifier (RFC 8972, section 3); 0: none.
    pub ssid: u16,
    /// Length of the IP packet, bytes.
    pub ip_length: u16,
    /// Mean time between probes, ns.
    pub period_ns: i64,
}

/// Counts of one interval. A probe belongs to the interval in which it was sent;
/// `sent = received + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Probes sent.
    pub sent: u64,
    /// Probes answered within the timeout (RFC 7680, RFC 6673).
    pub received: u64,
    /// Probes not answered within the timeout.
    pub lost: u64,
    /// Further replies to an answered probe (RFC 5560).
    pub duplicated: u64,
    /// Replies overtaken by the reply to a later probe (RFC 4737, section 3).
    pub reordered: u64,
    /// Replies that came after the timeout, or again after it; their probes count as lost.
    pub late: u64,
    /// Of the lost ones, those the reflector never saw, from its own sequence
    /// (RFC 8762, section 4.3: stateful). Meaningful where `loss_side` is `Known`.
    pub lost_forward: u64,
    /// Of the lost ones, those the reflector answered.
    pub lost_backward: u64,
    /// Probes that left more than the stated limit after their time.
    pub sent_late: u64,
    /// Probes left out for being a whole period late, or with no next hop. Not in `sent`.
    pub skipped: u64,
}

impl Counters {
    /// Adds `other`, field by field.
    pub fn merge(&mut self, other: &Counters) {
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.late += other.late;
        self.lost_forward += other.lost_forward;
        self.lost_backward += other.lost_backward;
        self.sent_late += other.sent_late;
        self.skipped += other.skipped;
    }

    /// Share of the sent probes that were lost (0..=1), or `None` when none was sent.
    pub fn loss_ratio(&self) -> Option<f64> {
        (self.sent > 0).then(|| self.lost as f64 / self.sent as f64)
    }
}

/// Whether losses can be told by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossSide {
    /// The reflector has not shown that it counts by itself: they cannot.
    #[default]
    Unknown,
    /// The reflector is stateful.
    Known,
}

/// One stream, one interval. All histograms are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Index of the stream.
    pub stream: u32,
    /// First instant (inclusive), ns since 1970 UTC where it is written.
    pub start_ns: i64,
    /// Last instant (exclusive), likewise.
    pub end_ns: i64,
    /// The counts.
    pub counters: Counters,
    /// Whether `lost_forward` and `lost_backward` mean anything.
    pub loss_side: LossSide,
    /// Round-trip delay T4-T1 (RFC 2681).
    pub rtt: Hist,
    /// Round-trip delay without the reflector's dwell: (T4-T1)-(T3-T2).
    pub rtt_net: Hist,
    /// Forward one-way delay T2-T1 (RFC 7679); offset by the clocks' difference.
    pub forward: Hist,
    /// Backward one-way delay T4-T3 (RFC 7679); offset by the clocks' difference.
    pub backward: Hist,
    /// Forward IPDV of adjacent probes (RFC 3393; selection: consecutive sequence numbers).
    pub ipdv_forward: Hist,
    /// Backward IPDV, likewise.
    pub ipdv_backward: Hist,
    /// Smoothed forward jitter at the interval's end, ns (RFC 3550, section 6.4.1).
    pub jitter_forward_ns: f64,
    /// Smoothed backward jitter at the interval's end, ns.
    pub jitter_backward_ns: f64,
    /// The worst source of T1 among the answered probes; `None` when none was answered.
    pub t1_source: Option<StampSource>,
    /// The worst source of T4, likewise.
    pub t4_source: Option<StampSource>,
    /// The peer's own statement of its clock error, ns (RFC 4656, section 4.1.2); `None`: not known.
    pub peer_error_ns: Option<f64>,
    /// What casts doubt on this interval.
    pub caveats: CaveatSet,
}

impl Interval {
    /// An empty one.
    pub fn empty(stream: u32) -> Self {
        Interval {
            stream,
            start_ns: 0,
            end_ns: 0,
            counters: Counters::default(),
            loss_side: LossSide::Unknown,
            rtt: Hist::default(),
            rtt_net: Hist::default(),
            forward: Hist::default(),
            backward: Hist::default(),
            ipdv_forward: Hist::default(),
            ipdv_backward: Hist::default(),
            jitter_forward_ns: 0.0,
            jitter_backward_ns: 0.0,
            t1_source: None,
            t4_source: None,
            peer_error_ns: None,
            caveats: CaveatSet::default(),
        }
    }

    /// Adds a later interval of the same stream (or of another, for a group).
    pub fn merge(&mut self, other: &Interval) {
        if self.counters == Counters::default() && self.end_ns == 0 {
            (self.start_ns, self.end_ns) = (other.start_ns, other.end_ns);
        }
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.counters.merge(&other.counters);
        if other.loss_side == LossSide::Known {
            self.loss_side = LossSide::Known;
        }
        self.rtt.merge(&other.rtt);
        self.rtt_net.merge(&other.rtt_net);
        self.forward.merge(&other.forward);
        self.backward.merge(&other.backward);
        self.ipdv_forward.merge(&other.ipdv_forward);
        self.ipdv_backward.merge(&other.ipdv_backward);
        if other.counters.received > 0 {
            self.jitter_forward_ns = other.jitter_forward_ns;
            self.jitter_backward_ns = other.jitter_backward_ns;
            self.peer_error_ns = other.peer_error_ns;
        }
        self.t1_source = self.t1_source.max(other.t1_source);
        self.t4_source = self.t4_source.max(other.t4_source);
        self.caveats.merge(other.caveats);
        if self.loss_side == LossSide::Known {
            // Until it showed that it counts, a stateful reflector that lost nothing on the
            // way there looked like one that does not; the sides were kept all the same.
            self.caveats.remove(Caveat::LossSideUnknown);
        }
    }
}

/// RFC 5481 packet delay variation: a quantile of the delay less its minimum, ns.
pub fn pdv(delay: &Hist, q: f64) -> Option<i64> {
    Some(delay.quantile(q)? - delay.min()?)
}
