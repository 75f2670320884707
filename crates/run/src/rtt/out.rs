//! What sources hand their findings to.

use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::rtt::{Coverage, RttFlow, RttGroup, RttSample};
use sonde_results::rtt_run::RttPoint;

use super::coverage;
use super::event::{Event, Interval, Status};
use super::loss::Losses;
use super::settings::Settings;
use crate::running::{Ended, Latest, RecordSender, Records, records};

/// Hands events on, in batches.
pub struct Out {
    sender: RecordSender<Vec<Event>>,
    status: Latest<Status>,
    batch: Vec<Event>,
    samples: bool,
    flows: bool,
    /// Packets can wait for the reader: they are in a file.
    waits: bool,
    /// The reader has gone.
    unread: bool,
    points: Vec<RttPoint>,
    caveats: CaveatSet,
}

impl Out {
    /// Of a run that sees packets at `points`, and what its reader gets.
    pub fn new(
        settings: &Settings,
        points: Vec<RttPoint>,
        waits: bool,
    ) -> (Out, Records<Vec<Event>>, Latest<Status>) {
        let (sender, receiver) = records(BATCHES);
        let status = Latest::new(Status { points: points.clone(), ..Status::default() });
        let out = Out {
            sender,
            status: status.clone(),
            batch: Vec::with_capacity(BATCH),
            samples: settings.samples.is_some(),
            flows: settings.flow_records,
            waits,
            unread: false,
            points,
            caveats: CaveatSet::default(),
        };
        (out, receiver, status)
    }

    /// Takes one sample.
    #[inline]
    pub fn sample(&mut self, sample: &RttSample) {
        if self.samples {
            self.push(Event::Sample(*sample));
        }
    }

    /// Takes one flow that has ended, or is open at the end.
    #[inline]
    pub fn flow(&mut self, flow: &RttFlow) {
        if self.flows {
            self.push(Event::Flow(Box::new(flow.clone())));
        }
    }

    /// Takes the groups of one interval, with the counters since the start.
    pub fn interval(
        &mut self,
        groups: Vec<RttGroup>,
        (start_ns, end_ns): (i64, i64),
        so_far: &Coverage,
        losses: Option<Losses>,
    ) {
        let mut caveats = self.caveats;
        caveats.merge(coverage::caveats(so_far));
        if self.sender.lost() > 0 {
            caveats.insert(Caveat::EventsLost);
        }
        self.status.update(|s| {
            s.points.clone_from(&self.points);
            s.coverage.clone_from(so_far);
            s.caveats = caveats;
        });
        let coverage = so_far.clone();
        self.push(Event::Interval(Interval {
            start_ns,
            end_ns,
            groups,
            coverage,
            caveats,
            losses,
        }));
        self.flush();
    }

    fn push(&mut self, event: Event) {
        self.batch.push(event);
        if self.batch.len() == BATCH {
            self.flush();
        }
    }

    /// Hands over what there is.
    pub fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        if self.waits {
            self.unread |= !self.sender.push_waiting(batch);
        } else {
            let events = batch.len() as u64;
            self.sender.push_many(batch, events);
        }
    }

    /// Nobody reads what is found.
    pub fn is_unread(&self) -> bool {
        self.unread
    }

    /// Adds a place where packets are seen.
    pub fn add_point(&mut self, point: RttPoint) {
        self.points.push(point.clone());
        self.push(Event::Point(point));
    }

    /// A place is seen otherwise than before.
    pub fn change_point(&mut self, number: usize, change: impl FnOnce(&mut RttPoint)) {
        if let Some(point) = self.points.get_mut(number) {
            change(point);
            let point = point.clone();
            self.push(Event::PointChanged(number, point));
        }
    }

    /// Somebody has set the clock: times are so far ahead of UTC now, ns.
    pub fn clock_was_set(&mut self, utc_offset: i64) {
        self.push(Event::UtcOffset(utc_offset));
        self.doubt(Caveat::ClockStepped);
    }

    /// Adds a doubt.
    pub fn doubt(&mut self, caveat: Caveat) {
        self.caveats.insert(caveat);
    }

    /// The end, after the last interval.
    pub fn finish(mut self, mut coverage: Coverage) -> Ended {
        self.flush();
        let mut caveats = self.caveats;
        caveats.merge(coverage::caveats(&coverage));
        let lost = self.sender.lost();
        if lost > 0 {
            caveats.insert(Caveat::EventsLost);
            *coverage.counters.entry("events_lost".into()).or_default() += lost;
        }
        self.status.update(|s| {
            s.coverage.clone_from(&coverage);
            s.caveats = caveats;
        });
        Ended { counters: coverage.counters, caveats, ..Ended::default() }
    }
}

/// Events handed over together.
const BATCH: usize = 256;
/// Batches that wait for the reader.
const BATCHES: usize = 1_024;
