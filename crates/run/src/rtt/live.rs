//! A run on interfaces, whatever finds the round-trip times: read once an interval. An interface
//! that vanishes is waited for; one that comes back under the same name is watched again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sonde_meter::rtt::Config;
use sonde_results::rtt::{Coverage, EndReason};
use sonde_results::rtt_run::RttPoint;
use sonde_sys::clock::{SteadyClock, steady_scale};
use sonde_sys::netlink::Link;
use sonde_wire::Time;

use super::about::{About, GroupOf, empty_run};
use super::control::Control;
use super::event::RttWatching;
use super::loss::Losses;
use super::out::RttOutput;
use super::points::WatchedInterfaces;
use super::settings::{self, Settings};
use super::source::InterfaceWatcher;
use crate::confined::Uses;
use crate::error::{RunError, SettingsError};
use crate::run_clock::RunClock;
use crate::running::{Context, Ended, Running, Stop};

/// Refuses more interfaces than a run can distinguish.
pub fn check_count(links: &[Link]) -> Result<(), SettingsError> {
    match links.len() {
        n if n > MOST_POINTS => {
            let why =
                format!("{n} interfaces are too many for one run, which watches {MOST_POINTS}");
            Err(SettingsError::of("sources", why + "; split them"))
        }
        _ => Ok(()),
    }
}

/// Measures by `source`, which watches `points` already, until the time is over or the end is
/// asked for. It uses `uses` and writes to `writes` from now on; `last` is said at the end.
pub fn start<S: InterfaceWatcher + 'static>(
    source: S,
    points: (WatchedInterfaces, Vec<RttPoint>),
    settings: Settings,
    config: &Config,
    (uses, writes, last): (Uses, Vec<PathBuf>, Option<String>),
    context: &Context,
) -> Result<(About, RttWatching), RunError> {
    // All is open, and the interfaces are watched; one that is made again is opened again.
    context.opened(&[uses], &writes)?;
    let (points, described) = points;
    let run = empty_run(settings::run_config(&settings), described.clone());
    let group_of = settings::group_of(config);
    let about = About { run, group_of: group_of.clone() };
    // Whoever sets the clock disturbs no interval; records have UTC as it is then.
    let clock = SteadyClock::new();
    let start = clock.now();
    let (out, records, status) = RttOutput::new(&settings, described, None);
    let losses = settings.losses.then(|| OpenFlows { group_of, rest: Instant::now() });
    let stop = context.stop.clone();
    let asked = stop.clone();
    let end = settings.duration.map(|ns| start + ns);
    let (interval, persist) = (settings.interval, settings.persist);
    let control = Control::default();
    let theirs = control.clone();
    let mut watch = Watch { source, points, out, losses, control: theirs, clock, begun: start };
    let work = move || {
        let failure = watch.run(end, interval, &asked).err();
        let ended = watch.finish(persist, &asked);
        last.iter().for_each(|text| tracing::warn!("{text}"));
        match failure {
            Some(error) => Ended { failure: Some(RunError::Host(error)), ..ended },
            None => ended,
        }
    };
    Ok((about, Running::start("sonde-rtt", (records, status, control), stop, work)?))
}

/// State of a run on interfaces.
struct Watch<S, C> {
    source: S,
    points: WatchedInterfaces,
    out: RttOutput,
    losses: Option<OpenFlows>,
    control: Control,
    clock: C,
    /// Begin of the interval.
    begun: Time,
}

impl<S: InterfaceWatcher, C: RunClock> Watch<S, C> {
    fn run(&mut self, end: Option<Time>, interval: i64, stop: &Stop) -> anyhow::Result<()> {
        let (mut steps, mut look_around) = (self.clock.steps(), self.begun);
        loop {
            let due = self.begun + interval;
            let until = end.map_or(due, |end| end.min(due));
            let patience = (until - self.clock.now()).clamp(0, LOOK_AROUND_NS);
            let gather = self.source.fetch(patience, &mut self.out)?;
            // What comes without end costs less some at a time than each at once.
            let patience = if gather { Duration::from_millis(GATHER_MS) } else { Duration::ZERO };
            let asked = stop.wait(patience);
            let now = self.clock.now();
            if now >= look_around {
                look_around = now + LOOK_AROUND_NS;
                let set = self.clock.steps();
                if set != steps {
                    steps = set;
                    self.out.clock_was_set(steady_scale().utc_offset);
                }
                self.out.flush();
                self.points.follow(&mut self.source, &mut self.out)?;
            }
            if asked || end.is_some_and(|end| now >= end) {
                return Ok(());
            }
            if self.control.take_snapshot() || now >= due {
                let so_far = self.source.coverage()?;
                let span = (self.begun.as_nanos(), now.as_nanos());
                let groups = self.source.take_groups(span.0, span.1)?;
                let losses = self.losses.as_mut().and_then(|losses| losses.look(&self.source));
                self.out.interval(groups, span, &so_far, losses);
                self.begun = now;
            }
        }
    }

    fn finish(mut self, persist: bool, stop: &Stop) -> Ended {
        if !persist {
            // So that what is read now stands still.
            self.points.detach(&mut self.source);
        }
        // What fails takes nothing along that can still be had.
        let mut failures = Vec::new();
        failures.extend(self.source.fetch(0, &mut self.out).err());
        let out = &mut self.out;
        self.source.open_flows(&mut |mut flow| {
            if flow.reason == EndReason::Open {
                flow.reason = EndReason::Stopped;
            }
            out.flow(&flow);
        });
        let span = (self.begun.as_nanos(), self.clock.now().as_nanos());
        let mut or_failure = |failed: anyhow::Error| failures.push(failed);
        let groups = self.source.take_groups(span.0, span.1).unwrap_or_else(|e| {
            or_failure(e);
            Vec::new()
        });
        let coverage = self.source.coverage().unwrap_or_else(|e| {
            or_failure(e);
            Coverage::default()
        });
        self.out.interval(groups, span, &coverage, None);
        let failure = failures.into_iter().next().map(RunError::Host);
        Ended { failure, ..self.out.finish(coverage, stop) }
    }
}

/// Loss in the flows that are open.
struct OpenFlows {
    group_of: GroupOf,
    /// No look at the flows before this.
    rest: Instant,
}

impl OpenFlows {
    /// A full table takes long to read: so at most a fiftieth of the time goes into this.
    fn look(&mut self, source: &impl InterfaceWatcher) -> Option<Losses> {
        let begin = Instant::now();
        if begin < self.rest {
            return None;
        }
        let mut losses = Losses::default();
        source.open_flows(&mut |flow| losses.add(&flow, |key| (self.group_of)(key)));
        let end = Instant::now();
        self.rest = end + (end - begin) * 50;
        Some(losses)
    }
}

/// `point` is an octet; a run of more interfaces than this is a mistake.
const MOST_POINTS: usize = 64;
/// How long a stop, or a change of interfaces, may wait.
const LOOK_AROUND_NS: i64 = 100_000_000;
/// Time between two looks at the source, ms.
const GATHER_MS: u64 = 5;

#[cfg(test)]
mod tests;
