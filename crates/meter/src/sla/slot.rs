//! An interval of a rule's grid that is filling from shorter records.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::caveat::CaveatSet;
use sonde_results::sla::{AvailabilityLabel, Exclusion};
use sonde_results::{Counters, Interval};

use super::open_window::Item;
use super::rule::AvailabilityRule;
use super::runs::LabelledIntervals;
use super::sliding::IntervalClass;
use super::tally::Tally;
use super::window::TimeRange;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct OpenSlot {
    pub range: TimeRange,
    pub counters: Counters,
    pub tally: Option<Tally>,
    pub exclusion: Option<Exclusion>,
    pub caveats: CaveatSet,
}

impl OpenSlot {
    pub fn new(start_ns: i64, length_ns: i64) -> Self {
        OpenSlot {
            range: TimeRange { start_ns, end_ns: start_ns + length_ns },
            counters: Counters::default(),
            tally: None,
            exclusion: None,
            caveats: CaveatSet::default(),
        }
    }

    /// Adds a record that lies in it.
    pub fn add(&mut self, record: &Interval, counts: Option<Tally>, exclusion: Option<&Exclusion>) {
        self.exclude(exclusion);
        self.counters.merge(&record.counters);
        self.caveats.merge(record.caveats);
        match (&mut self.tally, counts) {
            (Some(all), Some(more)) => all.merge(&more),
            (none @ None, more) => *none = more,
            (_, None) => {}
        }
    }

    /// An interval of which a part is left out is left out (MEF: it touches a Maintenance
    /// Interval). Of several names the first in order stays.
    pub fn exclude(&mut self, exclusion: Option<&Exclusion>) {
        let Some(exclusion) = exclusion else { return };
        if self.exclusion.as_ref().is_none_or(|known| exclusion < known) {
            self.exclusion = Some(exclusion.clone());
        }
    }
}

impl Item {
    /// Time without data.
    pub fn empty(range: TimeRange, slots: u64, exclusion: Option<&Exclusion>) -> Item {
        Item {
            range,
            slots,
            class: IntervalClass::Unknown,
            exclusion: exclusion.cloned(),
            tally: None,
            caveats: CaveatSet::default(),
        }
    }

    /// With its label, to be counted.
    pub fn labelled(&self, label: AvailabilityLabel) -> LabelledIntervals<'_> {
        LabelledIntervals {
            class: self.class,
            label,
            count: self.slots,
            length_ns: self.range.length_ns(),
            exclusion: self.exclusion.as_ref(),
        }
    }
}

/// Begin of the rule's grid interval in which `at_ns` lies.
pub(super) fn slot_start(rule: &AvailabilityRule, at_ns: i64) -> i64 {
    let offset_ns = match *rule {
        AvailabilityRule::Sliding { .. } => 0,
        AvailabilityRule::Blocks { offset_ns, .. } => offset_ns,
    };
    let length_ns = rule.interval_ns();
    (at_ns - offset_ns).div_euclid(length_ns) * length_ns + offset_ns
}
