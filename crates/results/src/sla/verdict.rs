//! A verdict, and what it stands on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::caveat::CaveatSet;

/// What an objective is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredDirection {
    /// There and back. Its loss has no direction: it is the two-way loss.
    RoundTrip,
    /// There and back without the reflector's dwell. Its loss is that of the round trip.
    RoundTripNet,
    /// From the sender to the reflector.
    Forward,
    /// From the reflector to the sender.
    Backward,
}

/// Whether an objective was met in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectiveVerdict {
    /// It was, whatever is unknown.
    Met,
    /// It was not, whatever is unknown.
    Missed,
    /// The data do not decide it. Neither good nor bad.
    Undecided,
}

/// Why a verdict is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UndecidedReason {
    /// There was no data.
    NoData,
    /// More of the window is unknown than the objective allows.
    MostlyUnknown,
    /// Fewer samples than the objective needs.
    TooFewSamples,
    /// The usual of this hour is not known.
    NoUsual,
    /// It hangs on intervals of which it is open whether they were available.
    AvailabilityOpen,
    /// The data give a range, and the limit lies in it: inside a bucket of the histogram, between
    /// losses that have a side and those that have none, or among unknown intervals.
    LimitInRange,
}

/// Unit of the value that a verdict compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectiveUnit {
    /// ns.
    Nanoseconds,
    /// A share, 0 to 1.
    Ratio,
    /// Whole seconds.
    Seconds,
}

/// On which side of its bound a value is good. Equality always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoundSense {
    /// At or below.
    AtMost,
    /// At or above.
    AtLeast,
}

/// Why time is left out.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ExclusionKind {
    /// A maintenance window (Maintenance Interval of MEF).
    Maintenance,
    /// The station doubts itself.
    StationDoubt,
}

/// Time that is left out, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Exclusion {
    /// Why.
    pub kind: ExclusionKind,
    /// The maintenance window's name, or what the station doubts.
    pub name: String,
}

impl Exclusion {
    /// By the maintenance window `name`.
    pub fn maintenance(name: impl Into<String>) -> Exclusion {
        Exclusion { kind: ExclusionKind::Maintenance, name: name.into() }
    }

    /// Because the station doubts itself; `name` says in what.
    pub fn doubt(name: impl Into<String>) -> Exclusion {
        Exclusion { kind: ExclusionKind::StationDoubt, name: name.into() }
    }
}

/// What a verdict stands on: one window of an objective.
///
/// Of a percentile objective the value is the share of samples beyond its limit. It is counted at
/// the edges of the histogram's buckets, hence a range where the limit is no edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// First instant of the window (inclusive), ns since 1970 UTC.
    pub start_ns: i64,
    /// Its last instant (exclusive).
    pub end_ns: i64,
    /// Whether the objective was met.
    pub verdict: ObjectiveVerdict,
    /// Why it is open; `None`: it is not.
    pub undecided: Option<UndecidedReason>,
    /// The least that the value can be, in `unit`; `None`: there was no data.
    pub low: Option<f64>,
    /// The greatest that the value can be.
    pub high: Option<f64>,
    /// What the value is held against, in `unit`. Where it hangs on what is usual, the greatest
    /// that this can be; `None`: that is not known.
    pub bound: Option<f64>,
    /// Which side of the bound is good.
    pub sense: BoundSense,
    /// Unit of the value and the bound.
    pub unit: ObjectiveUnit,
    /// Of a percentile objective: the delay beyond which samples count, ns; likewise.
    pub limit_ns: Option<f64>,
    /// Samples, or packets sent, on which the value stands.
    pub samples: u64,
    /// Samples that the objective needs.
    pub least_samples: u64,
    /// Intervals that count.
    pub counted: u64,
    /// Intervals without data.
    pub unknown: u64,
    /// Intervals left out because they were unavailable.
    pub unavailable: u64,
    /// Intervals of which it is open whether they were available.
    pub open: u64,
    /// Intervals left out by name: maintenance, or the station's doubt.
    pub excluded: u64,
    /// Whatever casts doubt on an interval that counts.
    pub caveats: CaveatSet,
}
