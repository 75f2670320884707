//! From records and gaps to the intervals of the objective's rule.
//!
//! A record about as long as an interval is one; a longer one is several alike. Shorter ones are
//! collected in slots of the rule's grid. Blocks always lie on their grid.

use sonde_results::Interval;
use sonde_results::sla::{AvailabilityLabel, Exclusion};

use super::super::objective::ObjectiveMetric;
use super::super::open_window::Item;
use super::super::rule::AvailabilityRule;
use super::super::sliding::IntervalClass;
use super::super::slot::{OpenSlot, slot_start};
use super::super::tally::{Requirement, classify, loss_bounds, tally, tally_seconds};
use super::super::window::TimeRange;
use super::{Judge, JudgeOutput};

impl Judge {
    pub(super) fn take_record(
        &mut self,
        range: TimeRange,
        record: &Interval,
        exclusion: Option<&Exclusion>,
        out: &mut JudgeOutput,
    ) {
        self.record_ns = range.length_ns();
        let requirement = self.requirement(range.start_ns);
        let of_record = |r: &Requirement| tally(&self.objective, r, record);
        let counts = requirement.as_ref().and_then(of_record).filter(|_| exclusion.is_none());
        let Some(rule) = self.objective.rule() else {
            let item = Item {
                range,
                slots: 1,
                class: IntervalClass::Unknown,
                exclusion: exclusion.cloned(),
                tally: counts,
                caveats: record.caveats,
            };
            return self.count(item, AvailabilityLabel::Available, out);
        };
        if let Some(grid_ns) = self.slotted(&rule, range.length_ns()) {
            let key_ns = slot_start(&rule, range.start_ns + range.length_ns() / 2);
            if self.slot.as_ref().is_some_and(|s| s.range.start_ns != key_ns) {
                self.close_slot(&rule, out);
            }
            let slot = self.slot.get_or_insert_with(|| OpenSlot::new(key_ns, grid_ns));
            slot.add(record, counts, exclusion);
            if range.end_ns >= slot.range.end_ns {
                self.close_slot(&rule, out);
            }
            return;
        }
        let interval_ns = rule.interval_ns();
        let slots = ((range.length_ns() + interval_ns / 2) / interval_ns).max(1) as u64;
        let mut slot = OpenSlot::new(range.start_ns, range.length_ns());
        slot.add(record, counts, exclusion);
        let item = self.item_of(slot, &rule, slots);
        if let AvailabilityRule::Blocks { .. } = rule {
            return self.take_slotted(range, &item, out);
        }
        self.cut_slot(range.start_ns, &rule, out);
        if slots == 1 || !self.divisible() {
            return self.label_item(item, out);
        }
        for (range, slots) in self.pieces(range, interval_ns) {
            self.label_item(Item { range, slots, ..item.clone() }, out);
        }
    }

    /// Whether the intervals of a record, which are all alike, can be shared out to windows.
    fn divisible(&self) -> bool {
        matches!(self.objective.metric, ObjectiveMetric::Availability { .. })
    }

    /// What is left of the pieces of `range` by windows, each with its intervals of `grid_ns`. They
    /// are as many as the whole has.
    fn pieces(&self, range: TimeRange, grid_ns: i64) -> Vec<(TimeRange, u64)> {
        let (window, offset) = (self.objective.window, self.objective.utc_offset_s);
        let before = |at_ns: i64| (at_ns - range.start_ns + grid_ns / 2) / grid_ns;
        let (mut pieces, mut start_ns) = (Vec::new(), range.start_ns);
        while start_ns < range.end_ns {
            let end_ns = window.at(start_ns, offset).end_ns.min(range.end_ns);
            let slots = (before(end_ns) - before(start_ns)) as u64;
            pieces.push((TimeRange { start_ns, end_ns }, slots));
            start_ns = end_ns;
        }
        pieces.retain(|piece| piece.1 > 0);
        pieces
    }

    /// Whether what is `length_ns` long is collected in slots of the rule's grid; how long these
    /// are, ns. Else each record is one interval or several.
    fn slotted(&self, rule: &AvailabilityRule, length_ns: i64) -> Option<i64> {
        let grid_ns = rule.interval_ns();
        let slotted = match rule {
            AvailabilityRule::Sliding { .. } => length_ns * 4 < grid_ns * 3,
            AvailabilityRule::Blocks { .. } => length_ns * 2 < grid_ns * 3,
        };
        slotted.then_some(grid_ns)
    }

    /// Takes time without data, window by window.
    pub(super) fn take_gap(
        &mut self,
        range: TimeRange,
        exclusion: Option<&Exclusion>,
        out: &mut JudgeOutput,
    ) {
        let rule = self.objective.rule();
        let grid_ns = match &rule {
            // Nothing says yet how long an interval is: the gap is one.
            None if self.record_ns == 0 => range.length_ns(),
            None => self.record_ns,
            Some(rule @ AvailabilityRule::Sliding { .. })
                if self.record_ns == 0 || self.slotted(rule, self.record_ns).is_none() =>
            {
                rule.interval_ns()
            }
            Some(_) => return self.take_slotted(range, &Item::empty(range, 1, exclusion), out),
        };
        if let Some(rule) = &rule {
            self.cut_slot(range.start_ns, rule, out);
        }
        for (range, slots) in self.pieces(range, grid_ns) {
            let item = Item::empty(range, slots, exclusion);
            match &rule {
                None => self.count(item, AvailabilityLabel::Available, out),
                Some(_) => self.label_item(item, out),
            }
        }
    }

    /// Takes time on the grid: whole slots are as `alike` says, one item for each window. Parts of
    /// slots at its ends have no data of their own: a record is not cut.
    fn take_slotted(&mut self, range: TimeRange, alike: &Item, out: &mut JudgeOutput) {
        let Some(rule) = self.objective.rule() else { return };
        let grid_ns = rule.interval_ns();
        let divided = alike.tally.is_none() || self.divisible();
        let mut start_ns = range.start_ns;
        while start_ns < range.end_ns {
            let key_ns = slot_start(&rule, start_ns);
            if self.slot.as_ref().is_some_and(|s| s.range.start_ns != key_ns) {
                self.close_slot(&rule, out);
            }
            let window = self.objective.window.at(start_ns, self.objective.utc_offset_s);
            let end_ns = match divided {
                true => range.end_ns.min(window.end_ns.max(key_ns + grid_ns)),
                false => range.end_ns,
            };
            let whole = (end_ns - key_ns) / grid_ns;
            if whole == 0 || self.slot.is_some() || start_ns != key_ns {
                let slot = self.slot.get_or_insert_with(|| OpenSlot::new(key_ns, grid_ns));
                slot.exclude(alike.exclusion.as_ref());
                start_ns = slot.range.end_ns.min(range.end_ns);
                if start_ns == slot.range.end_ns {
                    self.close_slot(&rule, out);
                }
                continue;
            }
            let end_ns = key_ns + whole * grid_ns;
            let range = TimeRange { start_ns, end_ns };
            self.label_item(Item { range, slots: whole as u64, ..alike.clone() }, out);
            start_ns = end_ns;
        }
    }

    /// Closes the slot that is filling, which ends at `at_ns` at the latest.
    fn cut_slot(&mut self, at_ns: i64, rule: &AvailabilityRule, out: &mut JudgeOutput) {
        if let Some(slot) = &mut self.slot {
            slot.range.end_ns = slot.range.end_ns.min(at_ns);
        }
        self.close_slot(rule, out);
    }

    fn close_slot(&mut self, rule: &AvailabilityRule, out: &mut JudgeOutput) {
        if let Some(slot) = self.slot.take() {
            let item = self.item_of(slot, rule, 1);
            self.label_item(item, out);
        }
    }

    fn item_of(&self, slot: OpenSlot, rule: &AvailabilityRule, slots: u64) -> Item {
        let direction = self.objective.direction;
        let enough = match *rule {
            AvailabilityRule::Sliding { .. } => true,
            AvailabilityRule::Blocks { least_packets, .. } => {
                loss_bounds(&slot.counters, direction)
                    .is_some_and(|loss| loss.base_high >= least_packets.saturating_mul(slots))
            }
        };
        let class = match enough {
            true => classify(&slot.counters, direction, rule.loss_ratio(), slots),
            false => IntervalClass::Unknown,
        };
        let seconds = matches!(self.objective.metric, ObjectiveMetric::ErroredSeconds { .. });
        let tally = match slot.exclusion.is_none() {
            true if seconds => tally_seconds(&self.objective, &slot.counters, class, slots),
            true => slot.tally,
            false => None,
        };
        let OpenSlot { range, exclusion, caveats, .. } = slot;
        Item { range, slots, class, exclusion, tally, caveats }
    }
}
