//! A run on interfaces, whatever finds the round-trip times: read once an interval, shown
//! while it lasts. An interface that vanishes is waited for; one that comes back under the
//! same name is watched again.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use sonde_meter::rtt::Config;
use sonde_results::rtt::{Coverage, EndReason, RttFlow, RttGroup};
use sonde_results::rtt_run::RttPoint;
use sonde_sys::clock::{SteadyClock, steady_now, steady_scale};
use sonde_sys::netlink::Link;
use sonde_wire::Time;

use super::args::RttArgs;
use super::collect::{Collected, Prints};
use super::kernel::PIN_FOLDER;
use super::loss::Losses;
use super::places::Places;
use super::totals::slowest_first;
use super::view::{self, Snapshot};
use super::{coverage, empty_run, settings};
use crate::confined::{Uses, give_up};
use crate::console;
use crate::exit::{Exit, Failure};
use crate::output::live::InPlace;
use crate::output::style::{Style, terminal_size};
use crate::signals::Signals;

/// What watches interfaces and finds round-trip times.
pub trait Source {
    /// Begins to watch an interface as point `i`, and says how it does.
    fn attach(&mut self, link: &Link, i: u8) -> anyhow::Result<String>;

    /// Ends that; what has passed until now is still counted.
    fn detach(&mut self, i: u8);

    /// Hands on samples and flows that have ended; may wait `patience_ns` for the first.
    /// Whether it is worth while to let more gather before the next call.
    fn fetch(&mut self, patience_ns: i64, collected: &mut Collected) -> anyhow::Result<bool>;

    /// The groups with samples since the last call, which was at `start_ns`; now is `end_ns`.
    fn take_groups(&mut self, start_ns: i64, end_ns: i64) -> anyhow::Result<Vec<RttGroup>>;

    /// All counters since the start.
    fn coverage(&mut self) -> anyhow::Result<Coverage>;

    /// The flows that have not been handed on as ended.
    fn open_flows(&self, each: &mut dyn FnMut(RttFlow));
}

/// A run before it watches.
pub struct Stage {
    signals: Signals,
    screen: Option<Screen>,
}

impl Stage {
    /// From now on Ctrl-C ends the run in order.
    pub fn begin(links: &[Link], prints: &Prints) -> Result<Stage, Failure> {
        if links.len() > MOST_POINTS {
            return Err(Failure::Usage(anyhow!(
                "{} interfaces are too many for one run, which watches {MOST_POINTS}",
                links.len()
            )));
        }
        Ok(Stage { signals: Signals::catch()?, screen: prints.live.then(Screen::begin) })
    }

    /// Runs `source`, which watches `points` at `places` already, until the time is over, or
    /// Ctrl-C.
    pub fn watch<S: Source>(
        self,
        source: S,
        places: Places,
        points: Vec<RttPoint>,
        args: &RttArgs,
        prints: Prints,
        config: &Config,
    ) -> Result<Exit, Failure> {
        let Stage { signals, mut screen } = self;
        // All is open, and the interfaces are watched; one that is made again is opened again.
        let uses = args.engine.map_or(Uses::Program, Uses::Engine);
        let mut writes: Vec<_> = args.output.out.clone().into_iter().collect();
        if args.persist {
            writes.push(PIN_FOLDER.into());
        }
        give_up(&[uses], writes)?;
        let run = empty_run(args, points);
        let out = args.output.out.clone();
        let collected = Collected::new(run, prints, out, settings::group_of(config));
        if let Some(screen) = &mut screen {
            screen.say("watching");
        }
        // Whoever sets the clock disturbs no interval; records tell UTC as it is then.
        let mut clock = SteadyClock::new();
        let mut steps = clock.steps();
        let start = clock.now();
        let mut watching =
            Watching { source, places, collected, screen, start, begun: start, seen: (0, 0) };
        let end = args.duration.map(|ns| start + ns);
        let (mut interrupted, mut look_around) = (false, start);
        loop {
            let due = watching.begun + args.interval;
            let until = end.map_or(due, |end| end.min(due));
            let gather = watching.fetch((until - clock.now()).clamp(0, LOOK_AROUND_NS))?;
            // What comes without end costs less some at a time than each at once.
            let patience = if gather { Duration::from_millis(GATHER_MS) } else { Duration::ZERO };
            interrupted |= signals.wait(patience);
            let now = clock.now();
            if now >= look_around {
                look_around = now + LOOK_AROUND_NS;
                let set = clock.steps();
                if set != steps {
                    steps = set;
                    watching.collected.clock_was_set(steady_scale().utc_offset);
                }
                watching.collected.flush();
                watching.places.follow(&mut watching.source, &mut watching.collected)?;
            }
            let vain = watching.collected.is_in_vain();
            if interrupted || vain || end.is_some_and(|end| now >= end) {
                return Ok(watching.finish(interrupted, args.persist)?);
            }
            if now >= due {
                watching.end_interval(now)?;
            }
        }
    }
}

/// A run in progress.
struct Watching<S> {
    source: S,
    places: Places,
    collected: Collected,
    screen: Option<Screen>,
    start: Time,
    /// Begin of the interval.
    begun: Time,
    /// Packets and samples up to then.
    seen: (u64, u64),
}

impl<S: Source> Watching<S> {
    fn fetch(&mut self, patience_ns: i64) -> anyhow::Result<bool> {
        self.source.fetch(patience_ns, &mut self.collected)
    }

    fn end_interval(&mut self, now: Time) -> anyhow::Result<()> {
        let so_far = self.source.coverage()?;
        let mut groups = self.source.take_groups(self.begun.as_nanos(), now.as_nanos())?;
        self.collected.interval(&groups, now.as_nanos(), &so_far);
        if let Some(screen) = &mut self.screen {
            slowest_first(&mut groups);
            let total = (coverage::count(&so_far, "packets"), coverage::samples(&so_far));
            let latest = (total.0 - self.seen.0, total.1 - self.seen.1);
            self.seen = total;
            let interval = Interval { groups: &groups, latest, length_ns: now - self.begun };
            let elapsed_ns = now - self.start;
            let shown =
                screen.refresh(&self.source, &self.collected, &so_far, interval, elapsed_ns);
            if shown.is_err() || console::reader_has_gone() {
                // Nobody looks any more; the measurement and its file go on.
                self.screen = None;
            }
        }
        self.begun = now;
        Ok(())
    }

    fn finish(mut self, interrupted: bool, persist: bool) -> anyhow::Result<Exit> {
        if !persist {
            // So that what is read now stands still.
            self.places.detach(&mut self.source);
        }
        self.fetch(0)?;
        let collected = &mut self.collected;
        self.source.open_flows(&mut |mut flow| {
            if flow.reason == EndReason::Open {
                flow.reason = EndReason::Stopped;
            }
            collected.flow(&flow);
        });
        let now = steady_now();
        let groups = self.source.take_groups(self.begun.as_nanos(), now.as_nanos())?;
        let coverage = self.source.coverage()?;
        self.collected.interval(&groups, now.as_nanos(), &coverage);
        self.collected.finish(now.as_nanos(), coverage, interrupted)
    }
}

/// One interval for the screen.
struct Interval<'a> {
    groups: &'a [RttGroup],
    /// Packets and samples.
    latest: (u64, u64),
    length_ns: i64,
}

/// The live table.
struct Screen {
    place: InPlace,
    /// Of the flows that were open at the last look.
    losses: Losses,
    /// No look at the flows before this.
    rest: Instant,
}

impl Screen {
    /// The kernel takes seconds to check the programs: say so.
    fn begin() -> Screen {
        let (place, losses) = (InPlace::default(), Losses::default());
        let mut screen = Screen { place, losses, rest: Instant::now() };
        screen.say("loading");
        screen
    }

    /// What goes on before there is a table.
    fn say(&mut self, what: &str) {
        // If nobody looks, the first table finds out.
        let _ = self.place.draw(&mut console::out(), &[format!("sonde rtt  {what}")]);
    }

    fn refresh(
        &mut self,
        source: &impl Source,
        collected: &Collected,
        so_far: &Coverage,
        interval: Interval<'_>,
        elapsed_ns: i64,
    ) -> std::io::Result<()> {
        self.look_at_flows(source, collected);
        let caveats = collected.caveats(so_far);
        let snapshot = Snapshot {
            elapsed_ns,
            interval_ns: interval.length_ns,
            points: &collected.run.points,
            group_by: &collected.run.config.group_by,
            groups: interval.groups,
            losses: &self.losses,
            coverage: so_far,
            latest: interval.latest,
            caveats,
        };
        let (width, height) = terminal_size();
        let lines = view::live(&snapshot, width, height, Style::for_stdout());
        self.place.draw(&mut console::out(), &lines)
    }

    /// Loss in the flows that are open. A full table takes long to read: so at most a
    /// fiftieth of the time goes into this.
    fn look_at_flows(&mut self, source: &impl Source, collected: &Collected) {
        let begin = Instant::now();
        if begin < self.rest {
            return;
        }
        self.losses.clear();
        source.open_flows(&mut |flow| self.losses.add(&flow, collected.group_of()));
        let end = Instant::now();
        self.rest = end + (end - begin) * 50;
    }
}

/// `point` is an octet; a run of more interfaces than this is a mistake.
const MOST_POINTS: usize = 64;
/// How long a signal, or a change of interfaces, may wait.
const LOOK_AROUND_NS: i64 = 100_000_000;
/// How long things gather.
const GATHER_MS: u64 = 5;
