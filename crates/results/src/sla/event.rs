//! What is told of an objective, and of losses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AvailabilityLabel, Evidence};

/// Something that happened to an objective of a subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlaEvent {
    /// The objective's name.
    pub objective: String,
    /// Whom it is about: a target, class, group, or ordered pair.
    pub subject: String,
    /// When it began, ns since 1970 UTC: the first instant that is part of it.
    pub at_ns: i64,
    /// When it was certain. Never before `at_ns`: transitions of availability are back-dated.
    pub known_ns: i64,
    /// What happened.
    pub kind: SlaEventKind,
}

/// What happened to an objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SlaEventKind {
    /// So many windows missed it that it is breached.
    Breach {
        /// Windows that missed it, of the last `of`.
        missed: u32,
        /// How many windows are looked at.
        of: u32,
        /// The window that decided.
        evidence: Box<Evidence>,
    },
    /// A breach has ended.
    Recovery {
        /// When the breach began, ns.
        breach_ns: i64,
        /// How long it lasted, ns.
        duration_ns: i64,
        /// The window that decided.
        evidence: Box<Evidence>,
    },
    /// No window of those looked at decides anything. An open breach stays open.
    Unknown {
        /// The last of them.
        evidence: Box<Evidence>,
    },
    /// There is a verdict again.
    Known {
        /// The window that has it.
        evidence: Box<Evidence>,
    },
    /// Intervals are another from here on than those before.
    Availability {
        /// What they are from here on.
        label: AvailabilityLabel,
        /// What they were.
        before: AvailabilityLabel,
        /// How long they were so, ns. Excluded intervals count, too.
        duration_ns: i64,
    },
}

/// On which side packets were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossDirection {
    /// From the sender to the reflector.
    Forward,
    /// From the reflector to the sender.
    Backward,
    /// Some on either side.
    Both,
    /// Nothing proves the side of most of them.
    Unknown,
}

/// Losses that belong together in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossEpisode {
    /// Begin of the first interval with a loss, ns since 1970 UTC.
    pub start_ns: i64,
    /// End of the last one.
    pub end_ns: i64,
    /// On which side.
    pub direction: LossDirection,
    /// Packets sent by the streams concerned, in their intervals with losses.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
    /// Of those, on the way there.
    pub lost_forward: u64,
    /// Of those, on the way back.
    pub lost_backward: u64,
    /// The others: no side is proved.
    pub lost_unknown: u64,
    /// The streams concerned, in order.
    pub streams: Vec<StreamLoss>,
}

/// What one stream lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamLoss {
    /// The stream: an index that the caller gave; its 5-tuple stands in `StreamInfo`.
    pub stream: u32,
    /// Packets sent in intervals with losses.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
}

impl LossEpisode {
    /// How long it lasted, ns: to the length of an interval.
    pub fn length_ns(&self) -> i64 {
        self.end_ns - self.start_ns
    }
}
