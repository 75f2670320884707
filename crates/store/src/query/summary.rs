//! What is said of a sum of intervals.

use serde::{Deserialize, Serialize};
use sonde_results::Caveat;
use sonde_wire::StampSource;

use crate::hist_blob::HistSum;
use crate::interval::IntervalSum;
use crate::table::Table;

/// Which delay.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Delay {
    /// Round trip without the reflector's dwell.
    #[default]
    RttNet,
    /// Round trip with it: no quantiles.
    Rtt,
    /// One-way delay there.
    Forward,
    /// One-way delay back.
    Backward,
    /// Delay variation there: in roll-ups only.
    IpdvForward,
    /// Delay variation back: in roll-ups only.
    IpdvBackward,
    /// Passive round trips, clean samples: of units that watch traffic.
    Passive,
}

impl Delay {
    /// The column of its histogram.
    pub fn column(self) -> &'static str {
        match self {
            Delay::RttNet => "rtt_net",
            Delay::Rtt => "rtt",
            Delay::Forward => "forward",
            Delay::Backward => "backward",
            Delay::IpdvForward => "ipdv_forward",
            Delay::IpdvBackward => "ipdv_backward",
            Delay::Passive => "clean",
        }
    }

    /// The table whose rows, at the full rate, hold it.
    pub fn raw(self) -> Table {
        match self {
            Delay::Passive => Table::Rtt,
            _ => Table::Interval,
        }
    }

    /// Its histogram in a sum.
    pub fn of(self, sum: &IntervalSum) -> &HistSum {
        match self {
            Delay::RttNet | Delay::Passive => &sum.rtt_net,
            Delay::Rtt => &sum.rtt,
            Delay::Forward => &sum.forward,
            Delay::Backward => &sum.backward,
            Delay::IpdvForward => &sum.ipdv_forward,
            Delay::IpdvBackward => &sum.ipdv_backward,
        }
    }
}

/// The columns that a [`Summary`] of a delay needs.
pub(super) fn summary_columns(delay: Delay) -> Vec<&'static str> {
    if delay == Delay::Passive {
        let all =
            ["series", "group", "start", "length_ns", "intervals", "caveats", "caveat_counts"];
        return all.into_iter().chain([delay.column()]).collect();
    }
    let mut columns = vec![
        "series",
        "start",
        "length_ns",
        "intervals",
        "sent",
        "received",
        "lost",
        "duplicated",
        "reordered",
        "late",
        "lost_forward",
        "lost_backward",
        "sent_late",
        "skipped",
        "jitter_forward_ns",
        "jitter_backward_ns",
        "t1_source",
        "t4_source",
        "caveats",
        "caveat_counts",
        "clear_ns",
        "lossy_ns",
        "down_ns",
    ];
    columns.push(delay.column());
    columns
}

/// A sum of intervals in numbers. Where nothing was measured there is no number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Intervals; of passive round trips those of each group.
    pub intervals: u64,
    /// Probes that left.
    pub sent: u64,
    /// Probes that were answered in time.
    pub received: u64,
    /// Probes that were not.
    pub lost: u64,
    /// Of those, lost on the way there; `None`: not known of any.
    pub lost_forward: Option<u64>,
    /// Of those, lost on the way back; `None`: not known of any.
    pub lost_backward: Option<u64>,
    /// Of those, with no known side.
    pub lost_unknown: u64,
    /// Further replies.
    pub duplicated: u64,
    /// Replies that were overtaken.
    pub reordered: u64,
    /// Values of the delay.
    pub n: u64,
    /// Values that the quantiles are of: fewer than `n` where buckets were not kept.
    pub held: u64,
    /// Mean, ns.
    pub mean_ns: Option<f64>,
    /// Least value, ns.
    pub min_ns: Option<i64>,
    /// Greatest value, ns.
    pub max_ns: Option<i64>,
    /// The quantiles that were asked for, ns.
    pub quantiles_ns: Vec<Option<i64>>,
    /// Greatest smoothed jitter there, ns.
    pub jitter_forward_ns: f32,
    /// Greatest smoothed jitter back, ns.
    pub jitter_backward_ns: f32,
    /// The worst source of T1.
    pub t1_source: Option<StampSource>,
    /// The worst source of T4.
    pub t4_source: Option<StampSource>,
    /// Caveats, and of how many intervals each is true.
    pub caveats: Vec<(Caveat, u64)>,
}

impl Summary {
    /// Of a sum, for one delay.
    pub fn new(sum: &IntervalSum, delay: Delay, quantiles: &[f64]) -> Self {
        let c = sum.counters();
        let hist = delay.of(sum);
        let head = hist.head();
        let some = head.count > 0;
        let (t1_source, t4_source) = sum.sources();
        let (jitter_forward_ns, jitter_backward_ns) = sum.jitter_ns();
        Summary {
            intervals: sum.intervals(),
            sent: c.sent,
            received: c.received,
            lost: c.lost,
            lost_forward: c.lost_forward,
            lost_backward: c.lost_backward,
            lost_unknown: c.lost_unknown,
            duplicated: c.duplicated,
            reordered: c.reordered,
            n: head.count,
            held: hist.held(),
            mean_ns: hist.mean(),
            min_ns: some.then_some(head.min),
            max_ns: some.then_some(head.max),
            quantiles_ns: quantiles_of(hist, quantiles),
            jitter_forward_ns,
            jitter_backward_ns,
            t1_source,
            t4_source,
            caveats: sum.caveats(),
        }
    }
}

/// Quantiles, each as [`HistSum::quantile`] gives it.
pub(super) fn quantiles_of(hist: &HistSum, quantiles: &[f64]) -> Vec<Option<i64>> {
    quantiles.iter().map(|&q| hist.quantile(q)).collect()
}
