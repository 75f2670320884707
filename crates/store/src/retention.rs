//! Which segments are given up: by age, by size, and for room on the disk. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::DAY_NS;
use crate::embedded::SegmentId;
use crate::rollup::SegmentInfo;
use crate::table::Table;

/// How long and how much of a table is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeepTable {
    /// Rows older than this go, ns; `None`: for ever.
    pub age_ns: Option<i64>,
    /// The oldest go while the table is larger, octets; `None`: no limit.
    pub octets: Option<u64>,
}

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retention {
    /// Of each table; one that is not named is kept.
    pub tables: BTreeMap<Table, KeepTable>,
    /// So much room is left on the disk, octets.
    pub floor_octets: u64,
}

impl Default for Retention {
    /// By age as good as needed, by size for a disk of 20 GB.
    fn default() -> Self {
        let keep = |days: Option<i64>, megabytes: u64| KeepTable {
            age_ns: days.map(|days| days * DAY_NS),
            octets: Some(megabytes * 1_000_000),
        };
        Retention {
            tables: BTreeMap::from([
                (Table::Interval, keep(Some(2), 3_000)),
                (Table::Interval1m, keep(Some(90), 5_000)),
                (Table::Interval1h, keep(Some(2 * 365), 3_000)),
                (Table::Interval1d, keep(None, 1_000)),
                (Table::Flow, keep(Some(1), 2_000)),
                (Table::Flow5m, keep(Some(30), 1_500)),
                (Table::Flow1h, keep(Some(365), 500)),
                (Table::Rtt, keep(Some(2), 400)),
                (Table::Rtt1m, keep(Some(30), 600)),
                (Table::Rtt1h, keep(Some(2 * 365), 300)),
                (Table::Rtt1d, keep(None, 100)),
                (Table::Interface, keep(Some(30), 300)),
                (Table::Interface5m, keep(Some(365), 100)),
                (Table::Interface1h, keep(None, 100)),
            ]),
            floor_octets: 2_000_000_000,
        }
    }
}

/// The segments that go at `now_ns`, where the disk has `free` octets left (`None`: not known).
///
/// A segment is as old as its newest row. One that is not rolled up yet does not go by age or size,
/// and for room only when nothing else is left. For room, tables at the full rate go first, then
/// those of minutes, then coarser ones; in each the oldest.
pub fn expired(
    segments: &[SegmentInfo],
    policy: &Retention,
    free: Option<u64>,
    now_ns: i64,
) -> Vec<SegmentId> {
    let mut gone = BTreeSet::new();
    for table in Table::ALL {
        let keep = policy.tables.get(&table).copied().unwrap_or_default();
        let mut own: Vec<&SegmentInfo> = segments.iter().filter(|s| s.table == table).collect();
        own.sort_by_key(|s| (s.times_ns.1, s.id));
        let mut octets: u64 = own.iter().map(|s| s.octets).sum();
        for s in own.into_iter().filter(|s| s.rolled || s.table.coarser().is_none()) {
            let old = keep.age_ns.is_some_and(|age| s.times_ns.1 < now_ns.saturating_sub(age));
            if old || keep.octets.is_some_and(|most| octets > most) {
                octets -= s.octets;
                gone.insert(s.id);
            }
        }
    }
    if let Some(free) = free {
        let freed: u64 = segments.iter().filter(|s| gone.contains(&s.id)).map(|s| s.octets).sum();
        let missing = policy.floor_octets.saturating_sub(free.saturating_add(freed));
        gone.extend(oldest(segments.iter().filter(|s| !gone.contains(&s.id)), missing));
    }
    gone.into_iter().collect()
}

/// The segments to give up for `octets` more room, in the order of [`expired`]; no more than needed.
pub(crate) fn oldest<'a>(
    segments: impl IntoIterator<Item = &'a SegmentInfo>,
    octets: u64,
) -> Vec<SegmentId> {
    let mut all: Vec<&SegmentInfo> = segments.into_iter().collect();
    let last = |s: &SegmentInfo| !s.rolled && s.table.coarser().is_some();
    all.sort_by_key(|s| (last(s), s.table.step_ns(), s.times_ns.1, s.id));
    let mut missing = octets;
    let needed = all.into_iter().take_while(|s| {
        let needed = missing > 0;
        missing = missing.saturating_sub(s.octets);
        needed
    });
    needed.map(|s| s.id).collect()
}

#[cfg(test)]
mod tests;
