//! The run file of passive round trips: all that came so far.

use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::rtt::RttGroup;
use sonde_results::{RttRun, ToUtc as _};

use super::about::{About, GroupOf};
use super::event::{Event, RttInterval};
use super::loss::Losses;
use super::totals::Totals;
use crate::running::Ended;

/// Adds up the events of a run, for the run file.
pub struct Collected {
    /// The run; its groups and coverage are filled in where it is asked for.
    run: RttRun,
    totals: Totals,
    losses: Losses,
    group_of: GroupOf,
    /// Loss of flows is added up, too.
    with_losses: bool,
    /// What times are ahead of UTC as the clock stands now, ns.
    utc_offset: i64,
}

impl Collected {
    /// Of a run that begins.
    pub fn new(about: About, with_losses: bool) -> Collected {
        let utc_offset = about.run.header.tai_offset_ns();
        Collected {
            run: about.run,
            totals: Totals::default(),
            losses: Losses::default(),
            group_of: about.group_of,
            with_losses,
            utc_offset,
        }
    }

    /// Adds an event to the totals.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Sample(_) => {}
            // Under a flood of short flows this would cost more than the rest.
            Event::Flow(flow) if self.with_losses => {
                let group_of = &self.group_of;
                self.losses.add(flow, |key| group_of(key));
            }
            Event::Flow(_) => {}
            Event::Interval(interval) => self.interval(interval),
            Event::Point(point) => self.run.points.push(point.clone()),
            Event::PointChanged(index, point) => self.run.points[*index].clone_from(point),
            Event::UtcOffset(ns) => self.utc_offset = *ns,
        }
    }

    fn interval(&mut self, interval: &RttInterval) {
        interval.groups.iter().for_each(|group| self.totals.add(group));
        self.run.header.end_ns = interval.end_ns.max(self.run.header.start_ns);
        self.run.coverage.clone_from(&interval.coverage);
        self.run.caveats = self.with_own(interval.caveats);
    }

    fn with_own(&self, mut caveats: CaveatSet) -> CaveatSet {
        if self.totals.is_full() {
            caveats.insert(Caveat::GroupsFull);
        }
        caveats
    }

    /// The run as it is in memory: its times are not UTC, and it has no groups.
    pub fn run(&self) -> &RttRun {
        &self.run
    }

    /// What times are ahead of UTC, ns.
    pub fn utc_offset(&self) -> i64 {
        self.utc_offset
    }

    /// Loss of the flows that have ended.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// All groups of the run so far, the slowest first.
    pub fn groups(&self) -> Vec<RttGroup> {
        self.totals.sorted()
    }

    /// The run as far as it has come, as it is written.
    pub fn so_far(&self) -> RttRun {
        let mut so_far = RttRun { groups: self.totals.sorted(), ..self.run.clone() };
        so_far.turn_to_utc(self.utc_offset);
        so_far
    }

    /// The run file's content, once the instrument has ended.
    pub fn finish(&mut self, ended: &Ended) -> RttRun {
        self.run.coverage.counters.clone_from(&ended.counters);
        self.run.caveats = self.with_own(ended.caveats);
        self.so_far()
    }
}
