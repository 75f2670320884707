//! Groups over the whole run: those of all intervals, merged. Memory is bounded: beyond
//! [`GROUPS_MAX`] groups, samples of further ones go to [`GroupKey::Other`].

use std::cmp::Reverse;
use std::collections::HashMap;

use sonde_results::rtt::{GroupKey, RttGroup};

/// Groups merged over the whole run, up to a limit.
#[derive(Debug, Default)]
pub struct Totals {
    groups: HashMap<GroupKey, RttGroup>,
    full: bool,
}

impl Totals {
    /// Adds one group of one interval.
    pub fn add(&mut self, group: &RttGroup) {
        let mut key = group.key;
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            self.full = true;
            key = GroupKey::Other;
        }
        match self.groups.get_mut(&key) {
            Some(total) => merge(total, group),
            None => {
                self.groups.insert(key, RttGroup { key, ..group.clone() });
            }
        }
    }

    /// Whether some samples lost their group.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// All of them, the slowest first.
    pub fn sorted(&self) -> Vec<RttGroup> {
        let mut all: Vec<RttGroup> = self.groups.values().cloned().collect();
        slowest_first(&mut all);
        all
    }
}

/// Sorts by p99 of the clean samples, then by their count, then by name: so that the
/// order is the same every time.
pub fn slowest_first(groups: &mut [RttGroup]) {
    groups.sort_by_cached_key(|g| (Reverse((g.clean.quantile(0.99), g.clean.count)), g.key));
}

/// Adds `group` to `total`.
pub fn merge(total: &mut RttGroup, group: &RttGroup) {
    total.start_ns = total.start_ns.min(group.start_ns);
    total.end_ns = total.end_ns.max(group.end_ns);
    total.clean.merge(&group.clean);
    total.recovery.merge(&group.recovery);
    total.delayed_ack.merge(&group.delayed_ack);
}

/// About 100 MB at the usual spread of a group's samples.
pub(super) const GROUPS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::testing::rtt as sample;

    #[test]
    fn intervals_add_up_and_the_slowest_comes_first() {
        let mut totals = Totals::default();
        let groups = sample::run().groups;
        for group in groups.iter().rev().chain(&groups) {
            totals.add(group);
        }
        let sorted = totals.sorted();
        assert_eq!(sorted.len(), groups.len());
        assert!(!totals.is_full());
        for (total, group) in sorted.iter().zip(&groups) {
            assert_eq!(total.key, group.key);
            assert_eq!(total.clean.count, 2 * group.clean.count);
            assert_eq!(total.recovery.count, 2 * group.recovery.count);
        }
    }

    #[test]
    fn groups_are_bounded_and_no_sample_is_lost() {
        let mut totals = Totals::default();
        let mut group = sample::run().groups[0].clone();
        let each = group.clean.count;
        for i in 0..GROUPS_MAX as u32 + 3 {
            group.key = GroupKey::As(i + 1);
            group.clean.buckets.truncate(1);
            totals.add(&group);
        }
        let sorted = totals.sorted();
        assert_eq!((sorted.len(), totals.is_full()), (GROUPS_MAX + 1, true));
        let other = sorted.iter().find(|g| g.key == GroupKey::Other).unwrap();
        assert_eq!(other.clean.count, 3 * each);
    }
}
