//! Runs of labelled intervals: high loss intervals, consecutive ones, outages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::sla::{AvailabilityLabel, AvailabilityTotals, Exclusion};

use super::sliding::IntervalClass;

/// Counts labelled intervals. Runs go on over the borders of windows and months.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AvailabilityRuns {
    /// Fewest high loss intervals in a row that count as consecutive (p).
    consecutive: Option<u32>,
    /// High loss intervals in a row until now.
    high_loss: u64,
    /// Unavailable intervals in a row until now.
    outage: u64,
}

/// Intervals of one label and class, one after another.
#[derive(Clone, Copy, Debug)]
pub struct LabelledIntervals<'a> {
    /// What they looked like.
    pub class: IntervalClass,
    /// What they are.
    pub label: AvailabilityLabel,
    /// How many.
    pub count: u64,
    /// Their length together, ns.
    pub length_ns: i64,
    /// Why they are left out, if they are.
    pub exclusion: Option<&'a Exclusion>,
}

impl AvailabilityRuns {
    /// With the p of consecutive high loss intervals.
    pub fn new(consecutive: Option<u32>) -> Self {
        AvailabilityRuns { consecutive, ..AvailabilityRuns::default() }
    }

    /// Adds the next intervals to the totals of the time in which they lie.
    pub fn count(&mut self, totals: &mut AvailabilityTotals, next: LabelledIntervals<'_>) {
        let LabelledIntervals { class, label, count, .. } = next;
        match label {
            // What is left out lengthens no outage, and does not end the one that goes on after it.
            AvailabilityLabel::Unavailable if next.exclusion.is_some() => {}
            AvailabilityLabel::Unavailable => {
                totals.outages += u64::from(self.outage == 0);
                self.outage += count;
                totals.longest_outage = totals.longest_outage.max(self.outage);
            }
            _ => self.outage = 0,
        }
        let high_loss = class == IntervalClass::Bad && label == AvailabilityLabel::Available;
        if let Some(Exclusion { kind, name }) = next.exclusion {
            // No high loss interval is in maintenance.
            self.high_loss = 0;
            totals.exclude(*kind, name, count, next.length_ns);
            return;
        }
        match label {
            AvailabilityLabel::Available => totals.available += count,
            AvailabilityLabel::Unavailable => totals.unavailable += count,
            AvailabilityLabel::Undecided => totals.undecided += count,
        }
        if !high_loss {
            self.high_loss = 0;
            let possible = match class {
                IntervalClass::Good => false,
                IntervalClass::Bad => label == AvailabilityLabel::Undecided,
                IntervalClass::Unknown => label != AvailabilityLabel::Unavailable,
            };
            totals.high_loss_possible += u64::from(possible) * count;
            return;
        }
        totals.high_loss += count;
        let before = self.high_loss;
        self.high_loss += count;
        if let Some(least) = self.consecutive.map(u64::from).filter(|&p| self.high_loss >= p) {
            let begins = before < least;
            totals.chli_runs += u64::from(begins);
            totals.chli_intervals += if begins { self.high_loss } else { count };
        }
    }
}
