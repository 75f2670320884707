//! `sonde rtt`: round-trip times of other people's traffic, from interfaces (matched in
//! the kernel, or here where eBPF cannot be had) or from a capture file (matched here, by the
//! same rules).

pub mod args;
mod collect;
mod coverage;
mod epping;
mod file;
mod jsonl;
mod kernel;
mod live;
mod loss;
mod places;
#[cfg(test)]
mod sample;
mod settings;
mod table;
mod totals;
mod view;
mod watcher;

use std::io::{IsTerminal as _, stdout};

use sonde_results::RttRun;
use sonde_results::caveat::CaveatSet;
use sonde_results::rtt::Coverage;
use sonde_results::rtt_run::{RTT_SCHEMA_VERSION, RttPoint};
use sonde_sys::clock::{clock_state, tai_now};

use self::args::RttArgs;
use self::collect::Prints;
pub use self::places::has_ethernet;
use crate::exit::{Exit, Failure};
use crate::output::run_file;
use crate::sources::{Source, source};
use sonde_run::header::run_header;

/// Runs until the file ends, the time is over, or Ctrl-C.
pub fn run(args: &RttArgs) -> Result<Exit, Failure> {
    let prints = Prints::new(&args.output, stdout().is_terminal()).map_err(Failure::Usage)?;
    if let Some(path) = &args.output.out {
        run_file::check(path).map_err(Failure::Usage)?;
    }
    match source(&args.sources)? {
        Source::Files(paths) => file::run(&paths, args, prints),
        Source::Interfaces(links) => match args.engine {
            None => kernel::run(links, args, prints),
            Some(engine) => watcher::run(links, engine, args, prints),
        },
    }
}

/// A run that begins now and has measured nothing.
fn empty_run(args: &RttArgs, points: Vec<RttPoint>) -> RttRun {
    RttRun {
        header: run_header("rtt", RTT_SCHEMA_VERSION, tai_now().as_nanos(), &clock_state()),
        config: settings::run_config(args),
        points,
        groups: Vec::new(),
        coverage: Coverage::default(),
        caveats: CaveatSet::default(),
    }
}
