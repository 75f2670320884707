//! What was measured on one stream in one interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_wire::StampSource;
use std::net::SocketAddr;

use crate::caveat::{Caveat, CaveatSet};
use crate::hist::Hist;
use crate::not_sent::NotSentCounts;

/// What does not change about a stream. `stream` in an [`Interval`] indexes these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamInfo {
    /// The target as the user named it.
    pub target: String,
    /// Where its probes come from.
    pub source: SocketAddr,
    /// Address and port of the reflector.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Probes that left this host.
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
    /// (RFC 8762, section 4.3: stateful). `None` where there is loss and none of it has a side.
    pub lost_forward: Option<u64>,
    /// Of the lost ones, those the reflector answered. `None` likewise.
    pub lost_backward: Option<u64>,
    /// The other lost ones: nothing proves on which side.
    #[serde(default)]
    pub lost_unknown: u64,
    /// Probes that left more than the stated limit after their time.
    pub sent_late: u64,
    /// Probes that were due and not sent, whatever the reason. Neither in `sent` nor in `lost`.
    pub skipped: u64,
    /// Those of `skipped`, by reason.
    #[serde(default)]
    pub not_sent: NotSentCounts,
}

/// Nothing was sent, so that nothing was lost on either side.
impl Default for Counters {
    fn default() -> Self {
        Counters {
            sent: 0,
            received: 0,
            lost: 0,
            duplicated: 0,
            reordered: 0,
            late: 0,
            lost_forward: Some(0),
            lost_backward: Some(0),
            lost_unknown: 0,
            sent_late: 0,
            skipped: 0,
            not_sent: NotSentCounts::default(),
        }
    }
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
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
        };
        self.lost_forward = sum(self.lost_forward, other.lost_forward);
        self.lost_backward = sum(self.lost_backward, other.lost_backward);
        self.sent_late += other.sent_late;
        self.skipped += other.skipped;
        self.not_sent.merge(&other.not_sent);
        self.settle_sides();
    }

    /// Whether the losses can be split by direction. Where nothing was lost, nothing is unknown.
    pub fn loss_side(&self) -> LossSide {
        match (self.lost_forward, self.lost_backward) {
            _ if self.lost == 0 => LossSide::Known,
            (None, _) | (_, None) => LossSide::Unknown,
            (Some(forward), Some(backward)) if forward + backward < self.lost => LossSide::Partly,
            _ => LossSide::Known,
        }
    }

    /// Makes the three counts of sides agree with `lost`: what has no side is counted as such.
    /// Where there is loss and none of it has a side, no count is claimed to be 0. Where there is
    /// none, both are 0, whatever the reflector shows.
    pub fn settle_sides(&mut self) {
        let split = self.lost_forward.unwrap_or(0) + self.lost_backward.unwrap_or(0);
        if self.lost > 0 && split == 0 {
            (self.lost_forward, self.lost_backward) = (None, None);
        }
        if self.lost == 0 {
            self.lost_forward.get_or_insert(0);
            self.lost_backward.get_or_insert(0);
        }
        self.lost_unknown = self.lost.saturating_sub(split);
    }

    /// Share of the sent probes that were lost (0..=1), or `None` when none was sent.
    pub fn loss_ratio(&self) -> Option<f64> {
        (self.sent > 0).then(|| self.lost as f64 / self.sent as f64)
    }
}

/// Whether losses can be split by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossSide {
    /// They cannot: the reflector has not shown that it counts by itself, or its sequence numbers
    /// prove nothing.
    #[default]
    Unknown,
    /// Some of them can; `lost_unknown` counts the others.
    Partly,
    /// All of them can, or there is none.
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
    /// Probes sent, answered, lost, and how replies came.
    pub counters: Counters,
    /// Whether the losses can be split by direction.
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
    /// Backward IPDV, by the same selection.
    pub ipdv_backward: Hist,
    /// Smoothed forward jitter at the interval's end, ns (RFC 3550, section 6.4.1).
    pub jitter_forward_ns: f64,
    /// Smoothed backward jitter at the interval's end, ns.
    pub jitter_backward_ns: f64,
    /// The worst source of T1 among the answered probes; `None` when none was answered.
    pub t1_source: Option<StampSource>,
    /// The worst source of T4, likewise.
    pub t4_source: Option<StampSource>,
    /// The peer's own statement of its clock error, ns (RFC 4656, section 4.1.2); `None`: not
    /// known.
    pub peer_error_ns: Option<f64>,
    /// What casts doubt on this interval.
    pub caveats: CaveatSet,
}

impl Interval {
    /// An interval in which nothing was sent yet.
    pub fn empty(stream: u32) -> Self {
        Interval {
            stream,
            start_ns: 0,
            end_ns: 0,
            counters: Counters::default(),
            loss_side: LossSide::Known,
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
        self.loss_side = self.counters.loss_side();
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
            // A side may be proved only by what comes after the record of the loss. Until a
            // stateful reflector has shown that it counts, it looks like one that does not.
            self.caveats.remove(Caveat::LossSideUnknown);
            self.caveats.remove(Caveat::LossSideOpen);
        }
        if self.caveats.contains(Caveat::DwellDominates) && !self.dwell_dominates() {
            // It did for a while, or for one of many streams.
            self.caveats.remove(Caveat::DwellDominates);
        }
    }

    /// Share of the round trip that the reflector held the packets, 0 to 1, by the medians. One
    /// packet that it held for long says little of the others. `None` where the dwell is not known
    /// of every packet.
    pub fn dwell_share(&self) -> Option<f64> {
        let whole = self.rtt.count == self.rtt_net.count;
        let (rtt, net) = (self.rtt.quantile(0.5)?, self.rtt_net.quantile(0.5)?);
        (whole && rtt > 0).then(|| (rtt - net) as f64 / rtt as f64)
    }

    /// Whether more of the round trip is the reflector's than the network's.
    pub fn dwell_dominates(&self) -> bool {
        self.dwell_share().is_some_and(|share| share > 0.5)
    }
}

/// RFC 5481 packet delay variation: a quantile of the delay less its minimum, ns.
pub fn pdv(delay: &Hist, q: f64) -> Option<i64> {
    Some(delay.quantile(q)? - delay.min()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round trips of which the reflector held so much, ns.
    fn held(trips: &[(i64, i64)]) -> Interval {
        let mut i = Interval::empty(0);
        i.counters.received = trips.len() as u64;
        for (rtt, dwell) in trips {
            i.rtt.add(*rtt);
            i.rtt_net.add(rtt - dwell);
        }
        if i.dwell_dominates() {
            i.caveats.insert(Caveat::DwellDominates);
        }
        i
    }

    #[test]
    fn a_reflector_dominates_where_it_holds_the_usual_packet() {
        let dominates = |i: &Interval| i.caveats.contains(Caveat::DwellDominates);
        let spike = held(&[(2_000, 300), (2_000, 300), (900_000, 890_000)]);
        assert!(!dominates(&spike), "{:?}", spike.dwell_share());
        let mut slow = held(&[(90_000, 60_000), (80_000, 50_000)]);
        assert!(dominates(&slow));
        assert_eq!(held(&[]).dwell_share(), None);
        // For a while, or one of many streams.
        let many = held(&[(2_000, 300); 40]);
        slow.merge(&many);
        assert!(!dominates(&slow));
        let mut both = held(&[(90_000, 60_000); 50]);
        both.merge(&many);
        assert!(dominates(&both));
    }

    fn lost(lost: u64, sides: Option<(u64, u64)>) -> Interval {
        let mut i = Interval::empty(0);
        i.end_ns = 1;
        i.counters = Counters {
            sent: 100,
            received: 100 - lost,
            lost,
            lost_forward: sides.map(|s| s.0),
            lost_backward: sides.map(|s| s.1),
            ..Counters::default()
        };
        i.counters.settle_sides();
        i.loss_side = i.counters.loss_side();
        i
    }

    #[test]
    fn what_is_unknown_is_no_number() {
        let mut all = lost(20, Some((0, 0)));
        assert_eq!((all.counters.lost_forward, all.loss_side), (None, LossSide::Unknown));
        let json = serde_json::to_value(&all).unwrap();
        assert!(json["counters"]["lost_backward"].is_null());
        assert_eq!(json["counters"]["lost_unknown"], 20);
        // The sides of this record's losses were proved in the next one.
        all.merge(&lost(0, Some((5, 15))));
        assert_eq!((all.counters.lost_forward, all.counters.lost_backward), (Some(5), Some(15)));
        assert_eq!((all.counters.lost_unknown, all.loss_side), (0, LossSide::Known));
        all.merge(&lost(2, None));
        assert_eq!((all.counters.lost_unknown, all.loss_side), (2, LossSide::Partly));
        let back: Interval = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!(back, all);
    }

    #[test]
    fn without_loss_both_sides_are_zero() {
        let sides = |i: &Interval| {
            let c = &i.counters;
            (c.lost_forward, c.lost_backward, c.lost_unknown, i.loss_side)
        };
        let none = (Some(0), Some(0), 0, LossSide::Known);
        // A reflector that shows no side has none to show of nothing; nor has what never sent.
        let mut all = lost(0, None);
        assert_eq!((sides(&all), sides(&Interval::empty(0))), (none, none));
        all.merge(&lost(0, Some((0, 0))));
        assert_eq!(sides(&all), none);
        let mut sum = Interval::empty(0);
        sum.merge(&lost(0, None));
        assert_eq!(sides(&sum), none);
        // Zeros do not make a side of losses that have none.
        sum.merge(&lost(3, None));
        assert_eq!(sides(&sum), (None, None, 3, LossSide::Unknown));
        sum.merge(&lost(0, None));
        assert_eq!(sides(&sum), (None, None, 3, LossSide::Unknown));
    }
}
