//! What kind of fault a set of series and the evidence at its time make.

use serde::{Deserialize, Serialize};

use super::{ExplainEvidence, LabelKind, Question};

/// What another instrument saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceKind {
    /// The station's own intervals were late, and most of its bad samples are in them.
    Late,
    /// The path of its series changed.
    Route,
    /// The address of its target changed.
    Address,
    /// An interface or link counted damaged frames or drops.
    Errors,
    /// An interface dropped packets for want of room.
    Drops {
        /// Packets in a second before.
        before: f64,
        /// Packets in a second since.
        now: f64,
    },
    /// A link was filled to over 90 %.
    Filled {
        /// Its use before, 0 to 1.
        before: f64,
        /// Its use since, 0 to 1.
        now: f64,
    },
    /// A flow grew by half of the rise of its link or more.
    GrownFlow {
        /// Which flow, as people know it.
        flow: String,
        /// Its rate before, bit/s.
        before_bps: f64,
        /// Its rate since, bit/s.
        now_bps: f64,
    },
}

impl EvidenceKind {
    fn is_of_filled_link(&self) -> bool {
        use EvidenceKind::{Drops, Filled, GrownFlow};
        matches!(self, Filled { .. } | GrownFlow { .. } | Drops { .. })
    }

    /// What it is worth for a set that its label names, in natural logarithms of likelihood.
    pub(super) fn bonus(&self) -> f64 {
        match self {
            EvidenceKind::Late => 8.0,
            EvidenceKind::Route | EvidenceKind::Address => 6.0,
            EvidenceKind::Errors | EvidenceKind::Drops { .. } => 5.0,
            EvidenceKind::Filled { .. } => 4.0,
            EvidenceKind::GrownFlow { .. } => 2.0,
        }
    }
}

/// What kind of fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// The station itself had too little of its processors.
    StarvedStation,
    /// The path changed.
    RouteChange,
    /// Damaged frames or drops: a cable, an optic, a duplex mismatch.
    Physical,
    /// A link without room.
    FilledLink,
    /// One class on one link: a policer or a queue.
    Policer,
    /// The server behind a target.
    Server,
    /// A resolver of names.
    Resolver,
    /// One member of a group of equal-cost paths.
    BadMember,
    /// Everything at once: the time of day, a common clock, the own uplink.
    Common,
}

/// The kind of a set with these names and this evidence; `None`: only its place is known.
pub(super) fn kind(
    question: &Question,
    names: &[Vec<usize>],
    evidence: &[ExplainEvidence],
) -> Option<CauseKind> {
    let seen = |wanted: fn(&EvidenceKind) -> bool| evidence.iter().any(|e| wanted(&e.kind));
    let named = |kinds: &[LabelKind]| {
        names.iter().any(|name| {
            name.len() == kinds.len()
                && kinds.iter().all(|kind| name.iter().any(|&l| question.labels[l].kind == *kind))
        })
    };
    let of_class = [LabelKind::Link, LabelKind::Region, LabelKind::Interface, LabelKind::Target]
        .iter()
        .any(|&other| named(&[LabelKind::Class, other]));
    Some(match () {
        () if seen(|e| *e == EvidenceKind::Late) => CauseKind::StarvedStation,
        () if seen(|e| matches!(e, EvidenceKind::Route | EvidenceKind::Address)) => {
            CauseKind::RouteChange
        }
        () if seen(|e| *e == EvidenceKind::Errors) => CauseKind::Physical,
        () if seen(EvidenceKind::is_of_filled_link) => CauseKind::FilledLink,
        // What is about everything, is about all of its labels.
        () if names.iter().any(Vec::is_empty) => CauseKind::Common,
        () if of_class => CauseKind::Policer,
        () if named(&[LabelKind::Resolver]) => CauseKind::Resolver,
        () if named(&[LabelKind::Protocol, LabelKind::Target]) => CauseKind::Server,
        () if named(&[LabelKind::Member]) => CauseKind::BadMember,
        () => return None,
    })
}
