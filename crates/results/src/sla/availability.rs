//! Availability, counted in intervals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ExclusionKind;

/// What an interval turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AvailabilityLabel {
    /// Available, whatever the unknown intervals were.
    Available,
    /// Unavailable, whatever they were.
    Unavailable,
    /// It depends on intervals without data.
    Undecided,
}

/// Intervals of one length, by what they turned out to be. Those that were excluded are in none
/// of the first three counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AvailabilityTotals {
    /// Length of one interval, ns; 0: nothing was counted.
    pub interval_ns: i64,
    /// Intervals that were available.
    pub available: u64,
    /// Intervals that were unavailable.
    pub unavailable: u64,
    /// Intervals of which unknown ones leave it open.
    pub undecided: u64,
    /// High loss intervals (HLI): available, and lossier than the limit.
    pub high_loss: u64,
    /// Further intervals that may have been high loss intervals, were the unknown known.
    pub high_loss_possible: u64,
    /// Runs of at least p high loss intervals (CHLI, counted in runs). A run counts where it
    /// reaches p.
    pub chli_runs: u64,
    /// Intervals inside such runs (CHLI, counted in intervals).
    pub chli_intervals: u64,
    /// Outages: runs of unavailable intervals. Each counts with its first interval that is not excluded.
    pub outages: u64,
    /// The longest of them so far: intervals from its begin on, even where that lies before, without
    /// excluded ones.
    pub longest_outage: u64,
    /// What was left out, by name, in order.
    pub excluded: Vec<ExcludedTime>,
}

/// Time that was left out under one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ExcludedTime {
    /// Why.
    pub kind: ExclusionKind,
    /// The maintenance window's name, or what the station doubted.
    pub name: String,
    /// Intervals.
    pub intervals: u64,
    /// Their length together, ns.
    pub length_ns: i64,
}

impl AvailabilityTotals {
    /// Intervals on which availability stands: all but those excluded.
    pub fn base(&self) -> u64 {
        self.available + self.unavailable + self.undecided
    }

    /// The least share (0..=1) of the base that was available. `None` without a base: an empty
    /// month is not 100 % available.
    pub fn low(&self) -> Option<f64> {
        (self.base() > 0).then(|| self.available as f64 / self.base() as f64)
    }

    /// The greatest share (0..=1) of the base that can have been available.
    pub fn high(&self) -> Option<f64> {
        (self.base() > 0).then(|| (self.available + self.undecided) as f64 / self.base() as f64)
    }

    /// Share (0..=1) available of what is known: PIA of ITU-T Y.1540 as 1 - PIU.
    pub fn of_known(&self) -> Option<f64> {
        let known = self.available + self.unavailable;
        (known > 0).then(|| self.available as f64 / known as f64)
    }

    /// Share (0..=1) of the base that is unknown.
    pub fn unknown_share(&self) -> Option<f64> {
        (self.base() > 0).then(|| self.undecided as f64 / self.base() as f64)
    }

    /// Time surely unavailable, ns (UAS where the interval is a second).
    pub fn unavailable_ns(&self) -> i64 {
        self.unavailable as i64 * self.interval_ns
    }

    /// Leaves out `intervals` of `length_ns` together.
    pub fn exclude(&mut self, kind: ExclusionKind, name: &str, intervals: u64, length_ns: i64) {
        let key = |e: &ExcludedTime| (e.kind, e.name.as_str()).cmp(&(kind, name));
        match self.excluded.binary_search_by(key) {
            Ok(i) => {
                self.excluded[i].intervals += intervals;
                self.excluded[i].length_ns += length_ns;
            }
            Err(i) => {
                let name = name.to_string();
                self.excluded.insert(i, ExcludedTime { kind, name, intervals, length_ns });
            }
        }
    }

    /// Adds those of another time, with the same interval. The order does not matter.
    pub fn merge(&mut self, other: &AvailabilityTotals) {
        self.interval_ns = self.interval_ns.max(other.interval_ns);
        self.available += other.available;
        self.unavailable += other.unavailable;
        self.undecided += other.undecided;
        self.high_loss += other.high_loss;
        self.high_loss_possible += other.high_loss_possible;
        self.chli_runs += other.chli_runs;
        self.chli_intervals += other.chli_intervals;
        self.outages += other.outages;
        self.longest_outage = self.longest_outage.max(other.longest_outage);
        for e in &other.excluded {
            self.exclude(e.kind, &e.name, e.intervals, e.length_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_base_has_no_availability() {
        let mut t = AvailabilityTotals { interval_ns: 1, ..AvailabilityTotals::default() };
        t.exclude(ExclusionKind::Maintenance, "night", 4, 4);
        assert_eq!((t.low(), t.high(), t.of_known(), t.unknown_share()), (None, None, None, None));
        t.undecided = 1;
        assert_eq!((t.low(), t.high(), t.of_known()), (Some(0.0), Some(1.0), None));
    }

    fn totals() -> impl Strategy<Value = AvailabilityTotals> {
        let excluded = prop::collection::vec((0..2u8, 0..3u8, 1..9u64), 0..4);
        (prop::array::uniform9(0..50u64), excluded).prop_map(|(n, excluded)| {
            let mut t = AvailabilityTotals {
                interval_ns: 1_000,
                available: n[0],
                unavailable: n[1],
                undecided: n[2],
                high_loss: n[3],
                high_loss_possible: n[4],
                chli_runs: n[5],
                chli_intervals: n[6],
                outages: n[7],
                longest_outage: n[8],
                excluded: Vec::new(),
            };
            for (kind, name, n) in excluded {
                let kinds = [ExclusionKind::Maintenance, ExclusionKind::StationDoubt];
                t.exclude(kinds[usize::from(kind)], &name.to_string(), n, n as i64 * 1_000);
            }
            t
        })
    }

    proptest! {
        #[test]
        fn the_order_of_merging_does_not_matter(a in totals(), b in totals(), c in totals()) {
            let sum = |parts: [&AvailabilityTotals; 3]| {
                let mut all = AvailabilityTotals::default();
                parts.iter().for_each(|t| all.merge(t));
                all
            };
            prop_assert_eq!(sum([&a, &b, &c]), sum([&c, &a, &b]));
            let mut late = b.clone();
            late.merge(&c);
            let mut all = a.clone();
            all.merge(&late);
            prop_assert_eq!(all, sum([&a, &b, &c]));
        }
    }
}
