//! An objective over a month.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AvailabilityTotals, Evidence, MeasuredDirection, ObjectiveVerdict, Standard};
use crate::caveat::Caveat;

/// The figures of one objective and subject over one calendar month.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectiveMonth {
    /// The objective's name.
    pub objective: String,
    /// Whom it is about: a target, class, group, or ordered pair.
    pub subject: String,
    /// Which way.
    pub direction: MeasuredDirection,
    /// The objective in words, with its figures and units.
    pub text: String,
    /// By which standard; `None`: the user's own.
    pub standard: Option<Standard>,
    /// First instant of the month (inclusive), ns since 1970 UTC.
    pub start_ns: i64,
    /// Its last instant (exclusive).
    pub end_ns: i64,
    /// Later intervals can still change it.
    pub provisional: bool,
    /// How often it was changed after it had been final.
    pub revision: u32,
    /// Windows, by verdict. A window belongs to the month in which it begins.
    pub windows: WindowTotals,
    /// The window that was furthest from the objective, of those that missed it.
    pub worst: Option<Evidence>,
    /// Availability, where the objective has a rule for it.
    pub availability: AvailabilityTotals,
    /// Errored seconds, where that is the objective.
    pub seconds: SecondTotals,
    /// Of how many intervals each caveat is true.
    pub caveats: Vec<CaveatIntervals>,
}

/// Windows, by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowTotals {
    /// Those that met the objective.
    pub met: u64,
    /// Those that missed it.
    pub missed: u64,
    /// Those that the data do not decide.
    pub undecided: u64,
    /// Those that were left out as a whole.
    pub excluded: u64,
}

/// Errored seconds (ES) and severely errored ones (SES), in available time only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecondTotals {
    /// Seconds with an error, severely errored ones included.
    pub errored: u64,
    /// Seconds that were unknown or of open availability, and may have had one.
    pub errored_possible: u64,
    /// Severely errored seconds.
    pub severe: u64,
    /// Seconds that may have been.
    pub severe_possible: u64,
}

/// Of how many intervals a caveat is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaveatIntervals {
    /// The caveat.
    pub caveat: Caveat,
    /// Intervals that count and have it.
    pub intervals: u64,
}

impl WindowTotals {
    /// Counts a window.
    pub fn add(&mut self, verdict: ObjectiveVerdict) {
        match verdict {
            ObjectiveVerdict::Met => self.met += 1,
            ObjectiveVerdict::Missed => self.missed += 1,
            ObjectiveVerdict::Undecided => self.undecided += 1,
        }
    }

    /// Compliance: the least and the greatest share (0..=1) of windows that met the objective.
    /// `None` without a window.
    pub fn compliance(&self) -> Option<(f64, f64)> {
        let all = (self.met + self.missed + self.undecided) as f64;
        (all > 0.0).then(|| (self.met as f64 / all, (self.met + self.undecided) as f64 / all))
    }

    /// Adds those of another time.
    pub fn merge(&mut self, other: &WindowTotals) {
        self.met += other.met;
        self.missed += other.missed;
        self.undecided += other.undecided;
        self.excluded += other.excluded;
    }
}

impl SecondTotals {
    /// Adds those of another time.
    pub fn merge(&mut self, other: &SecondTotals) {
        self.errored += other.errored;
        self.errored_possible += other.errored_possible;
        self.severe += other.severe;
        self.severe_possible += other.severe_possible;
    }
}

impl ObjectiveMonth {
    /// The same month computed again, from data that came late. Both stay: this one as it was, and
    /// what is returned, as its next revision if it differs.
    pub fn revised(&self, mut again: ObjectiveMonth) -> ObjectiveMonth {
        again.revision = self.revision;
        if again != *self {
            again.revision += 1;
        }
        again
    }

    /// The worst of the members of a group, by compliance, then by availability. A group is as
    /// good as its worst ordered pair; pairs are never averaged. `None` without members. A member
    /// without any window is the worst: nothing is known of it.
    pub fn worst_of(members: &[ObjectiveMonth]) -> Option<&ObjectiveMonth> {
        let rank = |m: &ObjectiveMonth| {
            let (low, high) = m.windows.compliance().unwrap_or((0.0, 0.0));
            [low, high, m.availability.low().unwrap_or(1.0)]
        };
        let order = |a: &&ObjectiveMonth, b: &&ObjectiveMonth| {
            rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal)
        };
        members.iter().min_by(order)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn month(subject: &str, met: u64, missed: u64, undecided: u64) -> ObjectiveMonth {
        ObjectiveMonth {
            objective: "loss".into(),
            subject: subject.into(),
            direction: MeasuredDirection::RoundTrip,
            text: "loss at most 0.1 %".into(),
            standard: None,
            start_ns: 0,
            end_ns: 1,
            provisional: false,
            revision: 0,
            windows: WindowTotals { met, missed, undecided, excluded: 0 },
            worst: None,
            availability: AvailabilityTotals::default(),
            seconds: SecondTotals::default(),
            caveats: Vec::new(),
        }
    }

    #[test]
    fn compliance_is_a_range_where_windows_are_undecided() {
        assert_eq!(month("a", 8, 1, 1).windows.compliance(), Some((0.8, 0.9)));
        assert_eq!(month("a", 0, 0, 0).windows.compliance(), None);
    }

    #[test]
    fn a_group_is_its_worst_member() {
        let members = [month("a", 9, 1, 0), month("b", 7, 0, 3), month("c", 10, 0, 0)];
        assert_eq!(ObjectiveMonth::worst_of(&members).unwrap().subject, "b");
        assert_eq!(ObjectiveMonth::worst_of(&[]), None);
        let unseen = [month("a", 1, 9, 0), month("d", 0, 0, 0)];
        assert_eq!(ObjectiveMonth::worst_of(&unseen).unwrap().subject, "d");
    }

    #[test]
    fn a_change_after_closing_is_a_revision() {
        let first = month("a", 9, 1, 0);
        assert_eq!(first.revised(first.clone()).revision, 0);
        let second = first.revised(month("a", 8, 2, 0));
        assert_eq!((second.revision, second.windows.missed), (1, 2));
        assert_eq!(second.revised(month("a", 9, 1, 0)).revision, 2);
    }
}
