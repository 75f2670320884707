//! `sonde bench`: from a plan to checked measurements of a device (RFC 2544 and its
//! successors). The order of reading: `plan` what was typed, `expand` what it comes to,
//! `execution` how all are measured, `runner` how one is made, `rig` on which bed.

pub mod args;
mod dry_run;
pub mod execution;
pub mod expand;
pub mod health;
mod judge;
mod layers;
mod outcome;
pub mod plan;
mod procedures;
mod progress;
pub(crate) mod rig;
pub mod runner;
pub mod store;
pub mod tester;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::anyhow;

use self::args::BenchArgs;
use self::execution::{Execution, Reporter as _};
use self::expand::expand;
use self::plan::Source;
use self::progress::{How, Printer};
use self::store::NotSaved;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;

/// Runs a plan, or what is left of it.
pub fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    let source = Source::read(&args.plan).map_err(usage)?;
    let expanded = expand(&source).map_err(usage)?;
    if args.dry_run {
        return dry_run::print(&expanded, args.json);
    }
    let stop = Signals::catch()?.into_flag()?;
    let folder = args.out.clone().unwrap_or_else(|| default_folder(&args.plan));
    let mut execution = Execution::open(&source, &expanded, &folder).map_err(Failure::Usage)?;
    let how = match (args.json, args.quiet) {
        (true, _) => How::Json,
        (_, true) => How::Quiet,
        _ => How::Text,
    };
    let mut printer = Printer::new(how, expanded.cases.len());
    let failed = match execution.run(&stop, &mut printer) {
        Ok(failed) => failed,
        Err(e) if e.is::<NotSaved>() => {
            printer.error(&format!("{e:#}"));
            return Ok(Exit::NotSaved);
        }
        Err(e) => return Err(e.into()),
    };
    let pages = folder.display();
    printer.note(&format!("run folder: {pages}; 'sonde report {pages}' makes the report"));
    if let Some(count) = NonZero::new(failed) {
        return Err(Failure::CannotRun(anyhow!(
            "{count} of the plan's measurements or devices could not be had, see above; mend \
             that and start the same command again: what was measured is kept"
        )));
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(Exit::Interrupted);
    }
    let sound = execution.measured().measurements.iter().all(|m| {
        m.finding.complete && !m.finding.values.is_empty() && m.checks.iter().all(|c| c.pass)
    });
    Ok(if sound { Exit::Ok } else { Exit::NoReply })
}

fn default_folder(plan: &Path) -> PathBuf {
    PathBuf::from(plan.file_stem().unwrap_or(plan.as_os_str())).with_extension("run")
}

fn usage(error: plan::PlanError) -> Failure {
    Failure::Usage(anyhow!(error))
}
