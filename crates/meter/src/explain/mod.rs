//! What explains an excess of bad samples: a ranking of what changed, never a proof of a cause.
//!
//! Pure logic. Series with their labels go in, each with its counts in the time of the fault and in
//! windows of the same length before. Sets of series that share a label, or one of a few pairs of
//! labels, are held against each other by likelihood. The answer names the smallest set that fits
//! the counts of each series. It says how much of the excess that covers, and how far it can be
//! relied on. It is silent where the past shows changes as large without a fault.
//!
//! - [`explain`] ranks; [`Question`] is what it looks at, [`Answer`] what it finds.
//! - [`onset`] says when the excess began, and until when it was seen.
//! - [`sentences`] says the answer to people.
//!
//! A sample is bad where the objective counts it: lost, or later than its limit. So losses and
//! delays are one thing here, and the excesses of series add up.

mod candidate;
mod kind;
mod onset;
mod rank;
#[cfg(test)]
mod tests;
mod text;

use serde::{Deserialize, Serialize};

pub use kind::{CauseKind, EvidenceKind};
pub use onset::onset;
pub use rank::explain;
pub use text::{label_name, name_of_set, sentences};

/// Samples and those of them that count against the objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleCounts {
    /// Samples.
    pub n: u64,
    /// Bad ones, at most `n`.
    pub bad: u64,
}

impl SampleCounts {
    /// Share of bad ones, 0 to 1; 0 without samples.
    pub fn ratio(self) -> f64 {
        if self.n == 0 { 0.0 } else { self.bad as f64 / self.n as f64 }
    }
}

impl std::iter::Sum for SampleCounts {
    fn sum<I: Iterator<Item = SampleCounts>>(all: I) -> SampleCounts {
        all.fold(SampleCounts::default(), |sum, c| SampleCounts {
            n: sum.n + c.n,
            bad: sum.bad + c.bad,
        })
    }
}

/// What a label is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelKind {
    /// Who measures.
    Station,
    /// Whom it measures.
    Target,
    /// Class of service.
    Class,
    /// How: probes, HTTP, DNS.
    Protocol,
    /// A resolver of names.
    Resolver,
    /// A prefix of passive traffic.
    Prefix,
    /// An autonomous system.
    Asn,
    /// An interface of this host.
    Interface,
    /// The first router on the way.
    FirstHop,
    /// A member of a group of equal-cost paths, or a router that only one of them crosses.
    Member,
    /// A link or router on the way.
    Link,
    /// A region of targets.
    Region,
    /// A label of the user.
    Free,
}

/// A value of a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Label {
    /// What it is about.
    pub kind: LabelKind,
    /// Its value, as people know it.
    pub value: String,
}

/// A series: one 5-tuple of a probe, or one key of passive traffic.
#[derive(Clone, Debug, Default)]
pub struct ExplainSeries {
    /// In the time of the fault.
    pub now: SampleCounts,
    /// In windows of the same length before it, the same windows in each series: 12 or more make a
    /// sound answer.
    pub before: Vec<SampleCounts>,
    /// Its labels: indices into [`Question::labels`]. Those of paths as traced last before the fault.
    pub labels: Vec<usize>,
}

/// What the station knows of itself in the time of the fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnTime {
    /// Its label: an index into [`Question::labels`].
    pub label: usize,
    /// Its samples in intervals in which it was late, of those that its series count.
    pub late: SampleCounts,
    /// Its clock was stepped, or it dropped samples itself: it cannot judge the network alone.
    pub suspect: bool,
}

/// Something that another instrument saw.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainEvidence {
    /// What it is about: one label, or a pair that names a set. Indices into [`Question::labels`].
    pub name: Vec<usize>,
    /// When, ns since 1970 UTC.
    pub at_ns: i64,
    /// What it saw.
    pub kind: EvidenceKind,
}

/// What is to be explained.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// All labels of the series.
    pub labels: Vec<Label>,
    /// The series in whose sum the objective was missed.
    pub series: Vec<ExplainSeries>,
    /// The stations that measured.
    pub own: Vec<OwnTime>,
    /// What else was seen. What lies at another time than the onset counts for nothing.
    pub evidence: Vec<ExplainEvidence>,
    /// When the excess began, ns since 1970 UTC.
    pub onset_ns: i64,
    /// Length of the intervals whose counts gave the onset, ns: how exact it is.
    pub interval_ns: i64,
}

/// A set of series that explains the excess, or a part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// All names of the set, which the data cannot tell apart: each one label or two, as indices
    /// into [`Question::labels`]. A name without labels: all series; the others that then follow are
    /// labels that all of them have.
    pub names: Vec<Vec<usize>>,
    /// How much better it fits than no change, less what the choice among so many names is worth,
    /// in natural logarithms of likelihood.
    pub score: f64,
    /// Share of the excess that it explains, about 0 to 1.
    pub coverage: f64,
    /// Share of its series that are affected, of those that have samples enough to show it. `None`:
    /// none of them has.
    pub purity: Option<f64>,
    /// Inside, in the time of the fault.
    pub inside: SampleCounts,
    /// Elsewhere, in the time of the fault.
    pub outside: SampleCounts,
    /// Inside, before.
    pub before: SampleCounts,
    /// How many series it has.
    pub series: usize,
    /// What kind of fault it is, where evidence or its names say so.
    pub kind: Option<CauseKind>,
    /// What else was seen of it at its onset.
    pub evidence: Vec<ExplainEvidence>,
}

/// How far an answer can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExplainGrade {
    /// The causes explain over 60 % of the excess, and 60 % or more of each one's series are affected.
    Strong,
    /// It fits best, and is no more than that.
    Leaning,
    /// Nothing explains it better than chance does in the windows before.
    Silent,
    /// A station was at fault itself, and no other saw the same: the network is not judged.
    CannotJudge,
}

/// What explains an excess.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// How far it can be relied on.
    pub grade: ExplainGrade,
    /// What explains it, the first being the most: at most 3. Empty where it is silent.
    pub causes: Vec<Cause>,
    /// What fits next best instead of the first cause: at most 3.
    pub next: Vec<Cause>,
    /// Labels of the first cause's kind that are as before, with their counts in the time of the
    /// fault.
    pub acquitted: Vec<(usize, SampleCounts)>,
    /// Bad samples in excess of what was usual.
    pub excess: f64,
    /// Variance of bad samples over that of independent ones, from the windows before; 1 or more.
    pub dispersion: f64,
    /// The score that chance has once in a hundred times, by the windows before, without a fault.
    pub threshold: f64,
}
