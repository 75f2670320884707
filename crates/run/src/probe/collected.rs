//! A probe's run file: all that came of it so far.

use std::net::SocketAddr;

use sonde_port::icmp::IcmpKind;
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::record::LossSide;
use sonde_results::run::{Health, RunConfig, SCHEMA_VERSION};
use sonde_results::{Interval, Run, ToUtc as _};
use sonde_sys::clock::{ClockState, tai_now};

use super::event::{About, Event};
use super::unreachable::Unreachable;
use crate::header::run_header;
use crate::running::Ended;

/// Adds up what a probe hands out.
pub struct Collected {
    about: About,
    /// Totals of each stream, in the order of the streams.
    totals: Vec<Interval>,
    unreachable: Unreachable,
}

impl Collected {
    /// Of a probe that starts.
    pub fn new(about: About) -> Collected {
        let totals = (0..about.streams.len() as u32).map(Interval::empty).collect();
        let unreachable = Unreachable::new(about.streams.iter().map(|i| i.source.ip()));
        Collected { about, totals, unreachable }
    }

    /// Takes what came. A text: the first time that a host or router says that probes to a
    /// destination are not delivered, as long as few were reported.
    pub fn add(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Record(record) => self.totals[record.stream as usize].merge(record),
            Event::Sample(_) | Event::Ended(_) => {}
            Event::Added(streams) => {
                let first = self.totals.len() as u32;
                self.totals.extend((first..).take(streams.len()).map(Interval::empty));
                self.about.streams.extend(streams.iter().cloned());
            }
            Event::LeftOut(left_out) => self.about.left_out.clone_from(left_out),
            Event::Undelivered(error) => return self.unreachable.add(*error),
        }
        None
    }

    /// What was known at the start.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// All records of each stream together.
    pub fn totals(&self) -> &[Interval] {
        &self.totals
    }

    /// Why probes to a destination were last not delivered, if that was reported.
    pub fn undelivered(&self, destination: SocketAddr) -> Option<IcmpKind> {
        self.unreachable.latest(destination)
    }

    /// The same for people, the first destinations one by one.
    pub fn undelivered_lines(&self) -> Vec<String> {
        self.unreachable.lines()
    }

    /// The run as far as it has come.
    pub fn so_far(&self, health: Health, clock: ClockState) -> Run {
        let (overall, caveats) = self.overall();
        let mut run = Run { overall, health, caveats, ..self.begun(clock) };
        run.streams.clone_from(&self.about.streams);
        run.totals.clone_from(&self.totals);
        run.header.end_ns = tai_now().as_nanos();
        run.turn_to_utc(run.header.tai_offset_ns());
        run
    }

    /// The run file's content, once the instrument has ended.
    pub fn finish(self, ended: &Ended, clock: ClockState) -> Run {
        let mut health = Health { counters: ended.counters.clone(), ..ended.health.clone() };
        health.counters.extend(self.unreachable.counters());
        if !self.about.left_out.is_empty() {
            health.counters.insert("targets_left_out".into(), self.about.left_out.len() as u64);
        }
        let (overall, mut caveats) = self.overall();
        caveats.merge(ended.caveats);
        let mut run = Run { overall, health, caveats, ..self.begun(clock) };
        (run.streams, run.totals) = (self.about.streams, self.totals);
        run.header.end_ns = tai_now().as_nanos();
        run.turn_to_utc(run.header.tai_offset_ns());
        run
    }

    /// A run that has measured nothing yet. Its times are TAI.
    pub fn begun(&self, clock: ClockState) -> Run {
        let About { run, engine, start, settings, .. } = &self.about;
        Run {
            header: run_header("probe", SCHEMA_VERSION, start.as_nanos(), &clock),
            config: RunConfig {
                command: Vec::new(),
                // Of types whose keys are strings: this cannot fail.
                settings: serde_json::to_value(settings).unwrap_or_default(),
                engine: engine.clone(),
                timeout_ns: run.timeout,
                interval_ns: run.record_interval,
                late_limit_ns: run.late_limit,
                seed: run.seed,
            },
            streams: Vec::new(),
            totals: Vec::new(),
            overall: Interval::empty(0),
            health: Health::default(),
            caveats: CaveatSet::default(),
        }
    }

    fn overall(&self) -> (Interval, CaveatSet) {
        let mut overall = Interval::empty(0);
        for total in &self.totals {
            overall.merge(total);
        }
        let sideless = |t: &Interval| t.counters.lost > 0 && t.loss_side == LossSide::Unknown;
        if self.totals.iter().any(sideless) {
            overall.caveats.insert(Caveat::LossSideUnknown);
        }
        let caveats = overall.caveats;
        (overall, caveats)
    }
}
