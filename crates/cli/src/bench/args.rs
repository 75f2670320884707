//! `sonde bench` on the command line.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct BenchArgs {
    /// The plan: test bed, workload, procedures (docs/bench.md)
    #[arg(value_name = "PLAN.toml")]
    pub plan: PathBuf,
    /// The run's folder; one that holds a run of the same plan is taken up where it was left
    /// [default: the plan's name with .run]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// List the measurements and the time that they need, and measure nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the finished measurements as JSON, one object a line, instead of a table
    #[arg(long)]
    pub json: bool,
    /// Print nothing but errors
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
}

const HELP: &str = "\
Example:
  sonde bench --dry-run examples/bench/router.toml
  sudo sonde bench examples/bench/router.toml --out runs/router
  sonde report runs/router

Ctrl-C ends the trial under way; the same command with the same --out goes on from there.
Exit codes:
  0    every measurement came to its end, and every check holds
  1    a check of the plan does not hold, or the device failed: a step of a service
       activation, a direction in which nothing ever arrived
  2    the plan is wrong (the message names the line)
  3    could not run: privilege, interface, device
  4    measured, but something could not be saved
  5    undecided: a measurement found nothing or did not come to its end, or a check
       has no value to compare with
  130  interrupted; what was measured is in the folder";
