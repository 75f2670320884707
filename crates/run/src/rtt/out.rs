//! What sources hand their findings to.

use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::rtt::{Coverage, RttFlow, RttGroup, RttSample};
use sonde_results::rtt_run::RttPoint;

use super::coverage;
use super::event::{Event, RttInterval, Status};
use super::loss::Losses;
use super::settings::Settings;
use crate::running::{Ended, Latest, RecordReceiver, RecordSender, Stop, records};

/// Hands events on, in batches.
pub struct RttOutput {
    sender: RecordSender<Vec<Event>>,
    status: Latest<Status>,
    batch: Vec<Event>,
    samples: bool,
    flows: bool,
    /// Packets can wait for the reader, as they are in a file, until this is urgent.
    waits: Option<Stop>,
    points: Vec<RttPoint>,
    caveats: CaveatSet,
}

impl RttOutput {
    /// Of a run that sees packets at `points`, and what its reader gets.
    pub fn new(
        settings: &Settings,
        points: Vec<RttPoint>,
        waits: Option<Stop>,
    ) -> (RttOutput, RecordReceiver<Vec<Event>>, Latest<Status>) {
        let (sender, receiver) = records(BATCHES);
        let status = Latest::new(Status { points: points.clone(), ..Status::default() });
        let out = RttOutput {
            sender,
            status: status.clone(),
            batch: Vec::with_capacity(BATCH),
            samples: settings.samples.is_some(),
            flows: settings.flow_records,
            waits,
            points,
            caveats: CaveatSet::default(),
        };
        (out, receiver, status)
    }

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
        self.push(Event::Interval(RttInterval {
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
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    /// Hands over what there is. Of what finds no room only samples and flows are lost.
    pub fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        match &self.waits {
            Some(stop) => self.push_waiting(batch, stop),
            None => {
                if let Err(batch) = self.sender.offer(batch) {
                    batch.into_iter().for_each(|event| self.hold(event));
                }
            }
        }
    }

    fn push_waiting(&self, batch: Vec<Event>, stop: &Stop) {
        if let Err(batch) = self.sender.push_unless_urgent(batch, stop) {
            self.sender.lose(batch.len() as u64);
        }
    }

    /// Puts an event that found no room at the head of the next batch: an interval that follows
    /// another makes that one longer.
    fn hold(&mut self, event: Event) {
        match (event, self.batch.last_mut()) {
            (Event::Sample(_) | Event::Flow(_), _) => self.sender.lose(1),
            (Event::Interval(next), Some(Event::Interval(held))) => held.extend(next),
            (event, _) => self.batch.push(event),
        }
    }

    /// Nobody reads what is found.
    pub fn is_unread(&self) -> bool {
        self.sender.is_unread()
    }

    /// Adds an observation point.
    pub fn add_point(&mut self, point: RttPoint) {
        self.points.push(point.clone());
        self.push(Event::Point(point));
    }

    /// An observation point is watched otherwise than before.
    pub fn change_point(&mut self, index: usize, change: impl FnOnce(&mut RttPoint)) {
        if let Some(point) = self.points.get_mut(index) {
            change(point);
            let point = point.clone();
            self.push(Event::PointChanged(index, point));
        }
    }

    /// Somebody has set the clock: times are so far ahead of UTC now, ns.
    pub fn clock_was_set(&mut self, utc_offset: i64) {
        self.push(Event::UtcOffset(utc_offset));
        self.doubt(Caveat::ClockStepped);
    }

    /// Adds a caveat to the run.
    pub fn doubt(&mut self, caveat: Caveat) {
        self.caveats.insert(caveat);
    }

    /// The end, after the last interval. It waits for the reader. Where an urgent end is asked
    /// for, a reader who takes nothing for a second is given up, and the rest counted as lost.
    pub fn finish(mut self, mut coverage: Coverage, stop: &Stop) -> Ended {
        let last = std::mem::take(&mut self.batch);
        if !last.is_empty() {
            self.push_waiting(last, stop);
        }
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

#[cfg(test)]
mod tests {
    use sonde_results::rtt::GroupKey;
    use sonde_results::testing::rtt as results;

    use super::*;
    use crate::rtt::settings::SampleLimit;
    use crate::running::Next;

    fn interval(out: &mut RttOutput, second: i64, key: u32) {
        let group = RttGroup { key: GroupKey::As(key), ..results::run().groups[0].clone() };
        let counters = [("packets".to_string(), second as u64)].into();
        let so_far = Coverage { counters };
        let span = (second * 1_000_000_000, (second + 1) * 1_000_000_000);
        out.interval(vec![group], span, &so_far, None);
    }

    #[test]
    fn a_late_reader_misses_samples_but_neither_groups_nor_what_changed() {
        let each = results::run().groups[0].clean.count;
        let settings = Settings { samples: Some(SampleLimit::None), ..Settings::default() };
        let (mut out, records, _) = RttOutput::new(&settings, Vec::new(), None);
        let mut sample = || out.sample(&results::samples()[0]);
        (0..BATCHES * BATCH + 300).for_each(|_| sample());
        for second in 0..3 {
            interval(&mut out, second, 1 + second as u32 % 2);
        }
        out.clock_was_set(37);
        interval(&mut out, 3, 1);
        let reading = std::thread::spawn(move || {
            let all = std::iter::from_fn(|| match records.next(PATIENCE) {
                Next::Record(batch) => Some(batch),
                _ => None,
            });
            all.flatten().collect::<Vec<_>>()
        });
        let ended = out.finish(Coverage::default(), &Stop::default());
        let events = reading.join().unwrap();
        assert_eq!(ended.counters["events_lost"], 300);
        assert!(ended.caveats.contains(Caveat::EventsLost));
        let (samples, rest) = events.split_at(BATCHES * BATCH);
        assert!(samples.iter().all(|event| matches!(event, Event::Sample(_))));
        let [Event::Interval(first), Event::UtcOffset(37), Event::Interval(last)] = rest else {
            panic!("{rest:?}");
        };
        let spans = [(first.start_ns, first.end_ns), (last.start_ns, last.end_ns)];
        assert_eq!(spans, [(0, 3_000_000_000), (3_000_000_000, 4_000_000_000)]);
        assert_eq!((first.coverage.counters["packets"], first.groups.len()), (2, 2));
        let of = |key| first.groups.iter().find(|g| g.key == GroupKey::As(key)).unwrap();
        assert_eq!((of(1).clean.count, of(2).clean.count), (2 * each, each));
    }

    #[test]
    fn the_reader_of_a_capture_is_waited_for_until_the_end_is_urgent() {
        let settings = Settings { samples: Some(SampleLimit::None), ..Settings::default() };
        let stop = Stop::default();
        let (mut out, _records, _) = RttOutput::new(&settings, Vec::new(), Some(stop.clone()));
        // Nobody takes anything: this asks for more room than there is, twice.
        stop.hurry();
        (0..(BATCHES + 2) * BATCH).for_each(|_| out.sample(&results::samples()[0]));
        interval(&mut out, 0, 1);
        let ended = out.finish(Coverage::default(), &stop);
        assert_eq!(ended.counters["events_lost"], 2 * BATCH as u64 + 1);
        assert!(ended.caveats.contains(Caveat::EventsLost));
    }

    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
}
