//! The monthly report of a group: a customer, a class, a site.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ObjectiveMonth;

/// What a report of a month says. Each objective has its own worst member; nothing is averaged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlaReport {
    /// Whom it is about.
    pub group: String,
    /// First instant of the month (inclusive), ns since 1970 UTC.
    pub start_ns: i64,
    /// Its last instant (exclusive).
    pub end_ns: i64,
    /// Some figure can still change.
    pub provisional: bool,
    /// The objectives, by name.
    pub objectives: Vec<GroupObjective>,
}

/// One objective of a group's members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupObjective {
    /// Its name.
    pub objective: String,
    /// The member that stands for the group, by its place in `members`: the worst.
    pub worst: usize,
    /// Members of which every window met it.
    pub kept: u64,
    /// Members of which some window missed it.
    pub missed: u64,
    /// The others: nothing missed it, and not every window is decided.
    pub undecided: u64,
    /// The figures of each, by subject.
    pub members: Vec<ObjectiveMonth>,
}

impl SlaReport {
    /// Of the months of a group's members. Those of another month than the first are left out.
    /// `None` without any.
    pub fn of(group: impl Into<String>, months: &[ObjectiveMonth]) -> Option<SlaReport> {
        let first = months.first()?;
        let mut by_name: BTreeMap<&str, Vec<ObjectiveMonth>> = BTreeMap::new();
        for month in months.iter().filter(|m| m.start_ns == first.start_ns) {
            by_name.entry(&month.objective).or_default().push(month.clone());
        }
        let objectives: Vec<_> = by_name.into_values().filter_map(GroupObjective::of).collect();
        let members = objectives.iter().flat_map(|o| &o.members);
        Some(SlaReport {
            group: group.into(),
            start_ns: first.start_ns,
            end_ns: first.end_ns,
            provisional: members.into_iter().any(|m| m.provisional),
            objectives,
        })
    }
}

impl GroupObjective {
    fn of(mut members: Vec<ObjectiveMonth>) -> Option<GroupObjective> {
        members.sort_by(|a, b| a.subject.cmp(&b.subject));
        let worst = ObjectiveMonth::worst_of(&members)?;
        let worst = members.iter().position(|m| std::ptr::eq(m, worst))?;
        let count = |wanted: fn(&ObjectiveMonth) -> bool| {
            members.iter().filter(|m| wanted(m)).count() as u64
        };
        let missed = count(|m| m.windows.missed > 0);
        let kept = count(|m| m.windows.missed + m.windows.undecided == 0 && m.windows.met > 0);
        Some(GroupObjective {
            objective: members[worst].objective.clone(),
            worst,
            kept,
            missed,
            undecided: members.len() as u64 - missed - kept,
            members,
        })
    }

    /// The figures that stand for the group.
    pub fn worst(&self) -> Option<&ObjectiveMonth> {
        self.members.get(self.worst)
    }
}

#[cfg(test)]
mod tests {
    use super::super::month::tests::month;
    use super::*;

    #[test]
    fn a_group_has_its_worst_member_for_each_objective() {
        let mut availability = month("b", 0, 1, 0);
        availability.objective = "availability".into();
        let mut later = month("a", 5, 0, 0);
        later.start_ns += 7;
        let mut open = month("d", 9, 0, 1);
        open.provisional = true;
        let months = [month("c", 9, 1, 0), month("a", 10, 0, 0), availability, later, open];
        let report = SlaReport::of("gold", &months).unwrap();
        assert!(report.provisional);
        let names: Vec<_> = report.objectives.iter().map(|o| o.objective.as_str()).collect();
        assert_eq!(names, ["availability", "loss"]);
        let loss = &report.objectives[1];
        let subjects: Vec<_> = loss.members.iter().map(|m| m.subject.as_str()).collect();
        assert_eq!((subjects, loss.worst().unwrap().subject.as_str()), (vec!["a", "c", "d"], "c"));
        assert_eq!((loss.kept, loss.missed, loss.undecided), (1, 1, 1));
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<SlaReport>(&json).unwrap(), report);
        assert_eq!(SlaReport::of("gold", &[]), None);
    }
}
