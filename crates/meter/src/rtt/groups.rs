//! Histograms of what samples have in common, one set a group, at most so many groups.
//!
//! A group is made with its first sample, so that flows without any (a flood of SYNs from made-up
//! addresses) take no entry. It goes when no flow refers to it and its counts have been fetched.

use std::collections::HashMap;
use std::num::NonZeroU32;

use sonde_results::hist::Hist;
use sonde_results::rtt::{GroupKey, RTT_BUCKETS, RttClass, RttGroup, rtt_bucket};

/// A group's index plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupId(NonZeroU32);

pub(super) struct Groups {
    limit: usize,
    ids: HashMap<GroupKey, GroupId>,
    /// The first is [`GroupKey::Other`].
    groups: Vec<Group>,
    free: Vec<GroupId>,
}

struct Group {
    key: GroupKey,
    /// Directions of flows whose samples come here.
    references: u32,
    /// By [`RttClass`].
    histograms: [Option<Box<Histogram>>; 3],
}

/// Not `load::FastHist`: groups are many, and one with the few buckets of round trips takes 1 KB.
struct Histogram {
    counts: [u32; RTT_BUCKETS],
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Groups {
    pub(super) fn new(limit: usize) -> Self {
        Groups {
            limit: limit.max(1),
            ids: HashMap::new(),
            groups: vec![Group::new(GroupKey::Other)],
            free: Vec::new(),
        }
    }

    /// The group of that key; the common one when there is no room for it.
    pub(super) fn attach(&mut self, key: GroupKey) -> GroupId {
        let id = match self.ids.get(&key) {
            Some(&id) => id,
            None => match self.allocate(key) {
                Some(id) => id,
                None => GroupId::OTHER,
            },
        };
        self.groups[id.index()].references += 1;
        id
    }

    /// A direction of a flow that referred to it has ended.
    pub(super) fn detach(&mut self, id: GroupId) {
        let group = &mut self.groups[id.index()];
        group.references = group.references.saturating_sub(1);
        if group.is_over() {
            self.remove(id);
        }
    }

    /// Adds a sample. Allocates only with a group's first sample of its class.
    pub(super) fn add(&mut self, id: GroupId, class: RttClass, rtt_ns: u64) {
        let histogram = &mut self.groups[id.index()].histograms[class as usize];
        histogram.get_or_insert_with(|| Box::new(Histogram::EMPTY)).add(rtt_ns);
    }

    /// The groups with samples since the last call, in the order of their keys.
    pub(super) fn take(&mut self, start_ns: i64, end_ns: i64) -> Vec<RttGroup> {
        let mut taken: Vec<RttGroup> = self
            .groups
            .iter_mut()
            .filter(|group| !group.is_empty())
            .map(|group| group.take(start_ns, end_ns))
            .collect();
        for i in 0..self.groups.len() {
            if self.groups[i].is_over() {
                self.remove(GroupId::new(i));
            }
        }
        taken.sort_unstable_by_key(|group| group.key);
        taken
    }

    fn allocate(&mut self, key: GroupKey) -> Option<GroupId> {
        // The common group is not one of the limit's.
        let id = match self.free.pop() {
            Some(id) => {
                self.groups[id.index()].key = key;
                id
            }
            None if self.groups.len() <= self.limit => {
                self.groups.push(Group::new(key));
                GroupId::new(self.groups.len() - 1)
            }
            None => return None,
        };
        self.ids.insert(key, id);
        Some(id)
    }

    /// Frees its entry; its memory waits for the next group.
    fn remove(&mut self, id: GroupId) {
        if id != GroupId::OTHER && self.ids.remove(&self.groups[id.index()].key).is_some() {
            self.free.push(id);
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.groups.len()
    }
}

impl GroupId {
    /// [`GroupKey::Other`].
    pub(super) const OTHER: GroupId = GroupId(NonZeroU32::MIN);

    fn new(index: usize) -> Self {
        GroupId(NonZeroU32::MIN.saturating_add(index as u32))
    }

    #[inline]
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl Group {
    fn new(key: GroupKey) -> Self {
        Group { key, references: 0, histograms: [const { None }; 3] }
    }

    fn is_empty(&self) -> bool {
        self.histograms.iter().flatten().all(|histogram| histogram.count == 0)
    }

    fn is_over(&self) -> bool {
        self.references == 0 && self.is_empty()
    }

    fn take(&mut self, start_ns: i64, end_ns: i64) -> RttGroup {
        let mut class = |class: RttClass| {
            self.histograms[class as usize].as_mut().map_or_else(Hist::default, |h| h.take())
        };
        RttGroup {
            clean: class(RttClass::Clean),
            recovery: class(RttClass::Recovery),
            delayed_ack: class(RttClass::DelayedAck),
            key: self.key,
            start_ns,
            end_ns,
        }
    }
}

impl Histogram {
    const EMPTY: Histogram =
        Histogram { counts: [0; RTT_BUCKETS], count: 0, sum: 0, min: u64::MAX, max: 0 };

    #[inline]
    fn add(&mut self, rtt_ns: u64) {
        let bucket = &mut self.counts[rtt_bucket(rtt_ns)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.sum += u128::from(rtt_ns);
        self.min = self.min.min(rtt_ns);
        self.max = self.max.max(rtt_ns);
    }

    fn take(&mut self) -> Hist {
        if self.count == 0 {
            return Hist::default();
        }
        let hist = Hist::from_rtt_buckets(
            &self.counts,
            self.min as i64,
            self.max as i64,
            self.sum as i128,
        );
        *self = Histogram::EMPTY;
        hist
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_beyond_the_limit_share_one_and_entries_come_back() {
        let mut groups = Groups::new(2);
        let ids: Vec<_> = (0..4).map(|n| groups.attach(GroupKey::As(n))).collect();
        assert_eq!(ids[2..], [GroupId::OTHER; 2]);
        for (id, rtt) in ids.iter().zip([1_000_000, 2_000_000, 3_000_000, 4_000_000]) {
            groups.add(*id, RttClass::Clean, rtt);
        }
        groups.add(ids[0], RttClass::Recovery, 9_000_000);
        let taken = groups.take(5, 6);
        let keys: Vec<_> = taken.iter().map(|group| group.key).collect();
        assert_eq!(keys, [GroupKey::As(0), GroupKey::As(1), GroupKey::Other]);
        assert_eq!((taken[0].clean.count, taken[0].recovery.count), (1, 1));
        assert_eq!((taken[2].clean.count, taken[2].clean.sum), (2, 7_000_000));
        assert_eq!((taken[2].start_ns, taken[2].end_ns), (5, 6));
        assert!(groups.take(6, 7).is_empty(), "an interval's counts are its own");

        groups.detach(ids[0]);
        assert_ne!(groups.attach(GroupKey::As(9)), GroupId::OTHER);
        assert_eq!(groups.attach(GroupKey::As(1)), ids[1], "still there");
        assert_eq!(groups.held(), 3);
    }

    #[test]
    fn a_group_whose_flows_have_ended_stays_until_its_numbers_are_fetched() {
        let mut groups = Groups::new(1);
        let id = groups.attach(GroupKey::Vlan(1));
        groups.add(id, RttClass::DelayedAck, 50_000_000);
        groups.detach(id);
        assert_eq!(groups.attach(GroupKey::Vlan(2)), GroupId::OTHER);
        assert_eq!(groups.take(0, 1).len(), 1);
        assert_ne!(groups.attach(GroupKey::Vlan(3)), GroupId::OTHER);
    }
}
