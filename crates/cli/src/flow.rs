//! `sonde flow`: metering and exporting (RFC 7011), from interfaces or a capture file.
//!
//! Metering threads own a [`meter::Meter`] each; what ends leaves by a queue for the export
//! thread (`exporting.rs`), which hands it to every output (`export/`).

pub mod args;
mod export;
mod exporting;
mod file;
mod follow;
mod input;
mod live;
mod meter;
mod now;
mod outcome;
mod selection;
mod settings;
mod share;
mod top;
pub mod verify;
mod view;
mod walk;

use sonde_results::FlowRun;
use sonde_results::caveat::CaveatSet;
use sonde_results::flow_run::FLOW_SCHEMA_VERSION;
use sonde_sys::clock::{clock_state, tai_now};

use self::args::{FlowArgs, FlowCommand, Instead};
use crate::exit::{Exit, Failure};
use crate::output::run_file;
use crate::sources::{Source, source};
use sonde_run::header::run_header;

/// Meters, or does what stands under `sonde flow`.
pub fn command(command: &FlowCommand) -> Result<Exit, Failure> {
    match &command.instead {
        Some(Instead::Verify(args)) => verify::run(args),
        None => run(&command.args),
    }
}

/// Runs until the file ends, the time is over, or Ctrl-C.
fn run(args: &FlowArgs) -> Result<Exit, Failure> {
    if let Some(path) = &args.output.out {
        run_file::check(path).map_err(Failure::Usage)?;
    }
    match source(&args.sources)? {
        Source::Files(paths) => file::run(&paths, args),
        Source::Interfaces(links) => live::run(links, args),
    }
}

/// A run that begins now and has seen nothing.
fn empty_run(args: &FlowArgs, engine: String) -> FlowRun {
    FlowRun {
        header: run_header("flow", FLOW_SCHEMA_VERSION, tai_now().as_nanos(), &clock_state()),
        config: settings::run_config(args, engine),
        points: Vec::new(),
        protocols: Vec::new(),
        ends: Default::default(),
        top: Vec::new(),
        exports: Vec::new(),
        counters: Default::default(),
        caveats: CaveatSet::default(),
    }
}
