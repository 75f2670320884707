//! What a benchmark hands out.

use serde::Serialize;
use sonde_results::bench::{BenchRun, Measurement};
use sonde_results::trial::{Offer, Trial};
use sonde_run::running::{Latest, RecordSender, Running, Stop};

use crate::runner::{NextTrial, ProgressListener};

/// A benchmark at work.
pub type Benchmarking = Running<Event, Status, ()>;

/// What a benchmark starts from.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Measurements of the plan.
    pub planned: usize,
}

/// What a benchmark hands out, in order. All but trials that begin is also in its folder.
#[derive(Debug)]
pub enum Event {
    Trial(Box<Under>),
    /// It has ended, and is saved.
    Tried(Box<Trial>),
    /// A measurement is finished.
    Measured {
        measurement: Box<Measurement>,
        /// It was finished before this start.
        resumed: bool,
    },
    /// A measurement or a device could not be had, for this reason; the others are measured all
    /// the same.
    Failed(String),
    /// The last: all that is in the folder.
    Run(Box<BenchRun>),
}

/// A trial under way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Under {
    /// The measurement that it is for.
    pub measurement: String,
    /// What it is to show.
    pub purpose: String,
    pub offer: Offer,
    /// Which try of this offer, from 1.
    pub attempt: u32,
}

/// How a benchmark goes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// Measurements of the plan.
    pub planned: usize,
    /// Those that are finished.
    pub finished: usize,
    /// The trial under way.
    pub present: Option<Under>,
    /// Measurements and devices that could not be had, and why.
    pub errors: Vec<String>,
    /// At the end: checks of the plan that no measurement was held against.
    pub never_applied: Vec<String>,
}

/// Puts what goes on into records and status. What was found waits for its reader between trials;
/// how a trial goes does not.
pub(super) struct Reporter {
    pub records: RecordSender<Event>,
    pub status: Latest<Status>,
    pub stop: Stop,
}

impl Reporter {
    pub fn measured(&self, measurement: &Measurement, resumed: bool) {
        self.status.update(|s| s.finished += 1);
        let measurement = Box::new(measurement.clone());
        self.push(Event::Measured { measurement, resumed });
    }

    pub fn failed(&self, why: String) {
        self.status.update(|s| s.errors.push(why.clone()));
        self.push(Event::Failed(why));
    }

    /// The whole run, at its end.
    pub fn run(&self, run: BenchRun) {
        self.push(Event::Run(Box::new(run)));
    }

    fn push(&self, event: Event) {
        if self.records.push_unless_urgent(event, &self.stop).is_err() {
            self.records.lose(1);
        }
    }
}

impl ProgressListener for Reporter {
    fn trial(&mut self, measurement: &str, next: &NextTrial, attempt: u32) {
        let under = Under {
            measurement: measurement.to_owned(),
            purpose: next.purpose.clone(),
            offer: next.offer.clone(),
            attempt,
        };
        self.status.update(|s| s.present = Some(under.clone()));
        self.records.push(Event::Trial(Box::new(under)));
    }

    fn ended(&mut self, trial: &Trial) {
        self.status.update(|s| s.present = None);
        self.records.push(Event::Tried(Box::new(trial.clone())));
    }
}

#[cfg(test)]
mod tests {
    use sonde_run::running::records;

    use super::*;

    #[test]
    fn a_late_reader_misses_how_trials_go_and_nothing_that_was_found() {
        let (sender, reader) = records(2);
        let (status, stop) = (Latest::new(Status::default()), Stop::default());
        let mut reporter = Reporter { records: sender, status, stop };
        let next = NextTrial { offer: Offer::steady(1e3, 1_000_000), purpose: String::new() };
        (0..5).for_each(|n| reporter.trial("m", &next, n));
        let reporting = std::thread::spawn(move || {
            reporter.measured(&Measurement::default(), false);
            reporter.failed("no bed".into());
            reporter.run(BenchRun::default());
            reporter.records.lost()
        });
        let events: Vec<Event> = reader.iter().collect();
        let [
            Event::Trial(_),
            Event::Trial(_),
            Event::Measured { resumed: false, .. },
            Event::Failed(_),
            Event::Run(_),
        ] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!((reporting.join().unwrap(), reader.lost()), (3, 3));
    }
}
