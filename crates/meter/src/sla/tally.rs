//! What one interval adds to a window: counts, never percentiles.
//!
//! A percentile is at most D where enough samples are at most D. Samples are counted by the buckets
//! of the histogram: those wholly at or below D, and those wholly above. What lies in the bucket of
//! D may be either. So each count has a least and a greatest value; both add up over intervals, in
//! any order.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::hist::bounds_of;
use sonde_results::sla::MeasuredDirection;
use sonde_results::{Caveat, Counters, Hist, Interval};

use super::objective::{Objective, ObjectiveLimit, ObjectiveMetric};
use super::share::{WHOLE, exceeds, parts, percent_parts};
use super::sliding::IntervalClass;
use super::usual::Usual;

/// What counts against an objective, and of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Sums {
    /// Samples beyond the limit, packets lost, errored seconds; of a mean the sum of delays, ns.
    #[serde(with = "super::digits")]
    #[schemars(with = "String")]
    pub bad: i128,
    /// Samples, or packets sent.
    pub base: u64,
}

/// The counts of an interval, and of intervals together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Tally {
    /// The least that counts against the objective.
    pub low: Sums,
    /// The greatest.
    pub high: Sums,
    /// Errored seconds, the least and the greatest.
    pub errored: (u64, u64),
    /// Severely errored seconds, likewise.
    pub severe: (u64, u64),
    /// The delays themselves, where the limit hangs on their minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delays: Option<Box<Hist>>,
}

/// What an objective asks of [`Sums`]: bad * den <= num * base + constant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Requirement {
    /// Of a percentile the delay beyond which samples count, ns, as far as it is known: least and
    /// greatest.
    pub limit_ns: (i64, i64),
    /// The allowed share or value, by the least and the greatest limit.
    #[serde(with = "super::digits")]
    #[schemars(with = "String")]
    num_low: i128,
    #[serde(with = "super::digits")]
    #[schemars(with = "String")]
    num_high: i128,
    /// Whether shares are compared (of [`WHOLE`]), or values.
    share: bool,
    constant: u32,
}

impl Sums {
    pub fn add(&mut self, other: Sums) {
        self.bad += other.bad;
        self.base += other.base;
    }
}

impl Tally {
    pub fn merge(&mut self, other: &Tally) {
        self.low.add(other.low);
        self.high.add(other.high);
        self.errored.0 += other.errored.0;
        self.errored.1 += other.errored.1;
        self.severe.0 += other.severe.0;
        self.severe.1 += other.severe.1;
        match (&mut self.delays, &other.delays) {
            (Some(all), Some(more)) => all.merge(more),
            (none @ None, Some(more)) => *none = Some(more.clone()),
            (_, None) => {}
        }
    }
}

impl Requirement {
    /// What `objective` asks; `None`: what is usual is not known.
    pub fn of(objective: &Objective, usual: Option<Usual>) -> Option<Requirement> {
        let limit = match objective.metric.limit() {
            None => (0.0, 0.0),
            Some(ObjectiveLimit::Fixed(limit)) => (limit, limit),
            Some(ObjectiveLimit::Usual { times, floor }) => {
                let usual = usual?;
                ((usual.low * times).max(floor), (usual.high * times).max(floor))
            }
        };
        // Delays are whole nanoseconds: they are at most D where they are at most its whole part.
        let limit_ns = (limit.0 as i64, limit.1 as i64);
        let of = |num_low, num_high, share, constant| {
            Some(Requirement { limit_ns, num_low, num_high, share, constant })
        };
        if let Some(percent) = objective.metric.percent() {
            let beyond = WHOLE - percent_parts(percent);
            return of(beyond, beyond, true, 0);
        }
        match objective.metric {
            ObjectiveMetric::LossRatio { .. } => of(parts(limit.0), parts(limit.1), true, 0),
            ObjectiveMetric::ErroredSeconds { limit, .. } => of(0, 0, false, limit),
            _ => of(limit_ns.0.into(), limit_ns.1.into(), false, 0),
        }
    }

    /// By how much the least sums are beyond what is allowed: above 0 they miss it for certain.
    pub fn least_excess(&self, low: Sums) -> i128 {
        low.bad * self.den() - self.num_high * i128::from(low.base)
    }

    /// By how much the greatest sums are beyond it: at or below 0 they meet it for certain.
    pub fn most_excess(&self, high: Sums) -> i128 {
        high.bad * self.den() - self.num_low * i128::from(high.base)
    }

    /// The greatest share that is allowed, 0 to 1; `None`: values are compared.
    pub fn share(&self) -> Option<f64> {
        self.share.then(|| self.bound())
    }

    /// The greatest share or value that is allowed of a base.
    pub fn bound(&self) -> f64 {
        self.num_high as f64 / self.den() as f64
    }

    /// What is allowed whatever the base.
    pub fn constant(&self) -> i128 {
        i128::from(self.constant) * self.den()
    }

    fn den(&self) -> i128 {
        if self.share { WHOLE } else { 1 }
    }
}

/// Packets lost in a direction, of how many: at least, and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LossBounds {
    pub lost_low: u64,
    pub base_low: u64,
    pub lost_high: u64,
    pub base_high: u64,
}

/// Losses without a side may be on either. What was lost on the way there was never sent back.
/// `None`: nothing was sent that way, as far as anybody knows.
pub(super) fn loss_bounds(c: &Counters, direction: MeasuredDirection) -> Option<LossBounds> {
    let forward = c.lost_forward.unwrap_or(0).min(c.lost);
    let backward = c.lost_backward.unwrap_or(0).min(c.lost - forward);
    let open = c.lost - forward - backward;
    let bounds = match direction {
        MeasuredDirection::RoundTrip | MeasuredDirection::RoundTripNet => {
            LossBounds { lost_low: c.lost, base_low: c.sent, lost_high: c.lost, base_high: c.sent }
        }
        MeasuredDirection::Forward => LossBounds {
            lost_low: forward,
            base_low: c.sent,
            lost_high: forward + open,
            base_high: c.sent,
        },
        MeasuredDirection::Backward => LossBounds {
            lost_low: backward,
            base_low: c.sent.saturating_sub(forward + open),
            lost_high: backward + open,
            base_high: c.sent.saturating_sub(forward),
        },
    };
    (bounds.base_high > 0).then_some(bounds)
}

/// How `slots` intervals look together in which `counters` were counted.
pub(super) fn classify(
    counters: &Counters,
    direction: MeasuredDirection,
    loss_ratio: f64,
    slots: u64,
) -> IntervalClass {
    let Some(loss) = loss_bounds(counters, direction) else { return IntervalClass::Unknown };
    if slots > 1 {
        // How the losses are spread over the intervals is not known, unless all or none were lost.
        return match () {
            () if loss.lost_high == 0 => IntervalClass::Good,
            () if loss.base_low > 0 && loss.lost_low == loss.base_low => IntervalClass::Bad,
            () => IntervalClass::Unknown,
        };
    }
    let limit = parts(loss_ratio);
    match () {
        () if exceeds(loss.lost_low, loss.base_low, limit) => IntervalClass::Bad,
        () if !exceeds(loss.lost_high, loss.base_high, limit) => IntervalClass::Good,
        () => IntervalClass::Unknown,
    }
}

/// What a record adds to `objective`; `None`: it has no data for it. Errored seconds are tallied by
/// [`tally_seconds`].
pub(super) fn tally(
    objective: &Objective,
    requirement: &Requirement,
    record: &Interval,
) -> Option<Tally> {
    let direction = objective.direction;
    let hist = delays(record, direction);
    let one_way_wrong = offset_unknown(record, direction);
    match objective.metric {
        ObjectiveMetric::DelayPercentile { .. } if !one_way_wrong => {
            beyond(hist, requirement.limit_ns, false)
        }
        ObjectiveMetric::IpdvPercentile { .. } => {
            beyond(variations(record, direction)?, requirement.limit_ns, true)
        }
        ObjectiveMetric::DelayMean { .. } if !one_way_wrong && hist.count > 0 => {
            let sums = Sums { bad: hist.sum, base: hist.count };
            Some(Tally { low: sums, high: sums, ..Tally::default() })
        }
        ObjectiveMetric::PdvPercentile { .. } if hist.count > 0 => {
            Some(Tally { delays: Some(Box::new(hist.clone())), ..Tally::default() })
        }
        ObjectiveMetric::LossRatio { .. } => {
            let loss = loss_bounds(&record.counters, direction)?;
            Some(Tally {
                low: Sums { bad: loss.lost_low.into(), base: loss.base_low },
                high: Sums { bad: loss.lost_high.into(), base: loss.base_high },
                ..Tally::default()
            })
        }
        ObjectiveMetric::Availability { .. } => (record.counters.sent > 0).then(Tally::default),
        _ => None,
    }
}

/// What `slots` seconds add in which `counters` were counted. `None`: nothing was sent.
pub(super) fn tally_seconds(
    objective: &Objective,
    counters: &Counters,
    class: IntervalClass,
    slots: u64,
) -> Option<Tally> {
    let ObjectiveMetric::ErroredSeconds { severe, rule, .. } = objective.metric else {
        return None;
    };
    let loss = loss_bounds(counters, objective.direction)?;
    let reordered = if rule.reordered { counters.reordered } else { 0 };
    let two_way = matches!(
        objective.direction,
        MeasuredDirection::RoundTrip | MeasuredDirection::RoundTripNet
    );
    // Replies out of order may have been so on either way.
    let sure = loss.lost_low + if two_way { reordered } else { 0 };
    let errored = (u64::from(sure > 0), (loss.lost_high + reordered).min(slots));
    let severe_seconds = match class {
        IntervalClass::Good => (0, 0),
        IntervalClass::Bad => (slots, slots),
        IntervalClass::Unknown => (0, slots),
    };
    // A severely errored second is an errored one. Bad intervals had a loss each.
    let errored = (errored.0.max(severe_seconds.0), errored.1.max(severe_seconds.0));
    let (low, high) = if severe { severe_seconds } else { errored };
    Some(Tally {
        low: Sums { bad: low.into(), base: slots },
        high: Sums { bad: high.into(), base: slots },
        errored,
        severe: severe_seconds,
        delays: None,
    })
}

/// Samples beyond a limit that lies between `limit.0` and `limit.1`, ns.
pub(super) fn beyond(hist: &Hist, limit: (i64, i64), absolute: bool) -> Option<Tally> {
    if hist.count == 0 {
        return None;
    }
    let (mut within, mut above) = (0, 0);
    for (low, high, n) in ranges(hist, absolute) {
        if high <= limit.0 {
            within += n;
        } else if low > limit.1 {
            above += n;
        }
    }
    // Values that found no bucket (Caveat::HistogramFull) may lie anywhere.
    let sums = |bad: u64| Sums { bad: bad.into(), base: hist.count };
    Some(Tally { low: sums(above), high: sums(hist.count - within), ..Tally::default() })
}

/// The buckets: least and greatest value in each, within minimum and maximum, and the count.
pub(super) fn ranges(hist: &Hist, absolute: bool) -> impl Iterator<Item = (i64, i64, u64)> {
    hist.buckets.iter().map(move |&(bucket, n)| {
        let (low, high) = bounds_of(bucket);
        let (low, high) = (low.max(hist.min), high.min(hist.max));
        match absolute && high < 0 {
            true => (high.saturating_neg(), low.saturating_neg(), n.into()),
            false => (low, high, n.into()),
        }
    })
}

/// The delays that way.
pub(super) fn delays(record: &Interval, direction: MeasuredDirection) -> &Hist {
    match direction {
        MeasuredDirection::RoundTrip => &record.rtt,
        MeasuredDirection::RoundTripNet => &record.rtt_net,
        MeasuredDirection::Forward => &record.forward,
        MeasuredDirection::Backward => &record.backward,
    }
}

/// The delay variations that way.
pub(super) fn variations(record: &Interval, direction: MeasuredDirection) -> Option<&Hist> {
    match direction {
        MeasuredDirection::Forward => Some(&record.ipdv_forward),
        MeasuredDirection::Backward => Some(&record.ipdv_backward),
        MeasuredDirection::RoundTrip | MeasuredDirection::RoundTripNet => None,
    }
}

/// Whether the delays of the record have an unknown offset: one way, between clocks that are not
/// known to agree. Variations and round trips have none.
pub(super) fn offset_unknown(record: &Interval, direction: MeasuredDirection) -> bool {
    let one_way = matches!(direction, MeasuredDirection::Forward | MeasuredDirection::Backward);
    one_way && OFFSET_UNKNOWN.iter().any(|&c| record.caveats.contains(c))
}

/// Caveats by which a one-way delay has an unknown offset.
const OFFSET_UNKNOWN: [Caveat; 5] = [
    Caveat::LocalClockUnsynchronised,
    Caveat::PeerClockUnsynchronised,
    Caveat::NegativeOneWayDelay,
    Caveat::ClockStepped,
    Caveat::PeerClockStepped,
];
