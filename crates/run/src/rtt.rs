//! Round-trip times of other people's traffic, from interfaces (matched in the kernel, or here
//! where eBPF cannot be had) or from captures (matched here, by the same rules).
//!
//! `kernel`, `watcher` and `file` are the sources, `live` is the loop of the first two, and all
//! hand what they find to an `Out`.

mod collected;
pub mod coverage;
pub mod epping;
mod file;
pub mod jsonl;
mod kernel;
mod live;
mod loss;
mod out;
mod points;
pub mod settings;
mod totals;
mod watcher;

use std::sync::Arc;

use anyhow::anyhow;
use sonde_results::caveat::CaveatSet;
use sonde_results::rtt::{Coverage, FlowKey, GroupKey, RttFlow, RttGroup, RttSample};
use sonde_results::rtt_run::{RTT_SCHEMA_VERSION, RttPoint};
use sonde_results::{RttRun, units};
use sonde_sys::clock::{clock_state, tai_now};

pub use self::collected::Collected;
pub use self::loss::{Loss, Losses};
pub use self::settings::{By, Hook, Proto, SampleLimit, Settings};
pub use self::totals::{merge, slowest_first};
use crate::error::RunError;
use crate::header::run_header;
use crate::running::{Context, Running};
use crate::sources::{Source, source};

/// Round-trip times being measured. Events come in batches, in their order.
pub type Watching = Running<Vec<Event>, Status, ()>;

/// What comes of it. Times are steady, or of a capture its packets', as TAI.
#[derive(Clone, Debug)]
pub enum Event {
    /// One round trip, where samples are wanted.
    Sample(RttSample),
    /// A flow that has ended, or is open at the end, where flows are wanted.
    Flow(Box<RttFlow>),
    /// The end of an interval.
    Interval(Interval),
    /// A further place where packets are seen.
    Point(RttPoint),
    /// A place, by its number, is seen otherwise than before.
    PointChanged(usize, RttPoint),
    /// This host's clock was set: what times are ahead of UTC from now on, ns.
    UtcOffset(i64),
}

/// One interval.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// Begin, ns.
    pub start_ns: i64,
    /// End, ns.
    pub end_ns: i64,
    /// The groups that have samples in it.
    pub groups: Vec<RttGroup>,
    /// All counters since the start.
    pub coverage: Coverage,
    /// What casts doubt so far.
    pub caveats: CaveatSet,
    /// Loss in the flows that are open, where that is wanted and was looked at.
    pub losses: Option<Losses>,
}

/// How it goes.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Where packets are seen.
    pub points: Vec<RttPoint>,
    /// All counters since the start.
    pub coverage: Coverage,
    /// What casts doubt so far.
    pub caveats: CaveatSet,
}

/// Gives the group of the host that is the source of the key, if it can be told.
pub type GroupOf = Arc<dyn Fn(&FlowKey) -> Option<GroupKey> + Send + Sync>;

/// What is known when it starts.
#[derive(Clone)]
pub struct About {
    /// The run, with nothing measured.
    pub run: RttRun,
    /// By what samples are grouped.
    pub group_of: GroupOf,
}

/// Opens interfaces or captures, by their names, and begins to measure.
///
/// # Errors
/// Settings that cannot be; no such interface or file; what the kernel refuses.
pub fn start(settings: Settings, context: &Context) -> Result<(About, Watching), RunError> {
    settings.check().map_err(|why| RunError::Settings(anyhow!(why)))?;
    match source(&settings.sources)? {
        Source::Files(paths) => file::start(&paths, settings, context),
        Source::Interfaces(links) => match settings.engine {
            None => kernel::start(links, settings, context),
            Some(engine) => watcher::start(links, engine, settings, context),
        },
    }
}

/// A run that begins now and has measured nothing.
fn empty_run(settings: &Settings, points: Vec<RttPoint>) -> RttRun {
    RttRun {
        header: run_header("rtt", RTT_SCHEMA_VERSION, tai_now().as_nanos(), &clock_state()),
        config: settings::run_config(settings),
        points,
        groups: Vec::new(),
        coverage: Coverage::default(),
        caveats: CaveatSet::default(),
    }
}

/// The least and greatest length of an interval, ns.
const INTERVAL: std::ops::RangeInclusive<i64> = units::SECOND / 10..=86_400 * units::SECOND;
