//! When this host's clock was set, and which results are marked for it.

use std::collections::{BTreeMap, VecDeque};

use crate::plan::UnitId;

/// The clock was set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClockStep {
    /// When, by the clock as it was set, ns since 1970 UTC.
    pub at_ns: i64,
    /// By how much forward, ns.
    pub by_ns: i64,
    /// Interval records that are marked, by unit.
    pub marked: BTreeMap<UnitId, u64>,
}

/// The last of them.
#[derive(Debug, Default)]
pub(crate) struct ClockSteps(VecDeque<ClockStep>);

impl ClockSteps {
    /// Takes one that was noticed now.
    pub fn add(&mut self, step: ClockStep) {
        self.0.push_front(step);
        self.0.truncate(KEPT);
    }

    /// A record of this unit is marked: for the last step.
    pub fn mark(&mut self, unit: &UnitId) {
        if let Some(step) = self.0.front_mut() {
            *step.marked.entry(unit.clone()).or_default() += 1;
        }
    }

    /// The newest first.
    pub fn iter(&self) -> impl Iterator<Item = &ClockStep> {
        self.0.iter()
    }
}

/// Steps that are remembered.
const KEPT: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_marked_for_the_last_step_and_old_ones_are_forgotten() {
        let mut steps = ClockSteps::default();
        let unit = UnitId::new("probe.core");
        // Nobody noticed a step: it was before the start.
        steps.mark(&unit);
        for n in 0..=KEPT as i64 {
            steps.add(ClockStep { at_ns: n, by_ns: -n, marked: BTreeMap::new() });
            steps.mark(&unit);
            steps.mark(&unit);
        }
        let all: Vec<&ClockStep> = steps.iter().collect();
        assert_eq!((all.len(), all[0].at_ns), (KEPT, KEPT as i64));
        assert!(all.iter().all(|step| step.marked == BTreeMap::from([(unit.clone(), 2)])));
    }
}
