//! `sonde bench`: from a plan to checked measurements of a device (RFC 2544 and its
//! successors), by [`sonde_testbed`].

pub mod args;
mod dry_run;
mod progress;

use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use sonde_results::bench::{BenchRun, Measurement};
use sonde_results::caveat::Caveat;
use sonde_run::error::RunError;
use sonde_testbed::execution::{self, Event, Settings};
use sonde_testbed::expand::{self, expand};
use sonde_testbed::plan::{PlanError, TomlText};

use self::args::BenchArgs;
use self::progress::{How, ProgressPrinter};
use crate::exit::{Exit, Failure};
use crate::signals;

/// Runs a plan, or what is left of it.
pub fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    let source =
        TomlText::read(&args.plan, "the plans in examples/bench are a beginning").map_err(usage)?;
    let expanded = expand(&source).map_err(usage)?;
    expand::host(&source, &expanded).map_err(usage)?;
    if args.dry_run {
        return dry_run::print(&expanded, args.json);
    }
    let context = signals::context()?;
    let folder = args.out.clone().unwrap_or_else(|| default_folder(&args.plan));
    let settings = Settings { plan: source, out: folder.clone() };
    let (about, benchmarking) = execution::start(settings, &context)?;
    let how = match (args.json, args.quiet) {
        (true, _) => How::Json,
        (_, true) => How::Quiet,
        _ => How::Text,
    };
    let mut printer = ProgressPrinter::new(how, about.planned);
    let mut run = BenchRun::default();
    let printed = benchmarking.records.iter().try_for_each(|event| match event {
        Event::Run(all) => {
            run = *all;
            Ok(())
        }
        event => printer.print(&event),
    });
    if printed.is_err() {
        benchmarking.stop();
    }
    let status = benchmarking.status.get();
    match benchmarking.join().failure {
        None => {}
        Some(RunError::Unsaved(e)) => {
            printer.error(&e.to_string());
            return Ok(Exit::NotSaved);
        }
        Some(e) => return Err(e.into()),
    }
    printed?;
    doubts(&run.measurements).iter().for_each(|line| printer.note(line));
    let pages = folder.display();
    printer.note(&format!("run folder: {pages}; 'sonde report {pages}' makes the report"));
    if let Some(count) = NonZero::new(status.errors.len()) {
        return Err(Failure::CannotRun(anyhow!(
            "{count} of the plan's measurements or devices could not be had, see above; mend \
             that and start the same command again: what was measured is kept"
        )));
    }
    if context.stop.is_asked() {
        return Ok(Exit::Interrupted);
    }
    for check in &status.never_applied {
        printer.error(&format!(
            "the check '{check}' was held against nothing: no measurement found that quantity"
        ));
    }
    Ok(verdict(&run.measurements, status.never_applied.is_empty()))
}

/// Each caveat once, with what to do: the lines of the measurements have no room for that.
fn doubts(measured: &[Measurement]) -> Vec<String> {
    let has = |caveat: &Caveat| measured.iter().filter(|m| m.caveats.contains(*caveat)).count();
    let line = |caveat: Caveat| {
        let (text, advice) = (caveat.text(), caveat.advice());
        format!("! {text} ({} of {} measurements): {advice}", has(&caveat), measured.len())
    };
    Caveat::ALL.into_iter().filter(|caveat| has(caveat) > 0).map(line).collect()
}

/// What a run comes to: a failure of the device goes before what could not be decided.
fn verdict(measured: &[Measurement], all_applied: bool) -> Exit {
    if measured.iter().any(Measurement::failed) {
        return Exit::Negative;
    }
    let decided = all_applied && !measured.iter().any(Measurement::undecided);
    if decided { Exit::Ok } else { Exit::Undecided }
}

fn default_folder(plan: &Path) -> PathBuf {
    PathBuf::from(plan.file_stem().unwrap_or(plan.as_os_str())).with_extension("run")
}

fn usage(error: PlanError) -> Failure {
    Failure::Usage(anyhow!(error))
}

#[cfg(test)]
mod tests {
    use sonde_results::bench::{Check, Finding, Quantity};

    use super::*;

    #[test]
    fn a_busy_host_is_said_once_with_the_next_step() {
        let mut all = vec![Measurement::default(); 4];
        assert!(doubts(&all).is_empty());
        for m in &mut all[..3] {
            m.caveats.insert(Caveat::TrialsInvalid);
        }
        let lines = doubts(&all);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let begin = "! some loads were never measured by a valid trial (3 of 4 measurements): this \
                     host is busy, or too slow";
        assert!(line.starts_with(begin), "{line}");
        assert!(line.contains("another --out"), "what was measured is not measured again: {line}");
    }

    #[test]
    fn a_run_is_sound_failed_or_undecided() {
        let quantity = || vec![Quantity::new("throughput", "frames/s", 1e6, 1)];
        let sound = || Measurement {
            finding: Finding { values: quantity(), complete: true, ..Finding::default() },
            ..Measurement::default()
        };
        let check = |value, pass| vec![Check { text: "throughput >= 1".into(), value, pass }];
        let with = |finding| Measurement { finding, ..sound() };
        let failed = with(Finding { failures: vec!["Step 75.".into()], ..sound().finding });
        let empty = with(Finding { values: Vec::new(), ..sound().finding });
        let cut = with(Finding { complete: false, ..sound().finding });
        let broken = Measurement { checks: check(Some(0.5), false), ..sound() };
        let without = Measurement { checks: check(None, false), ..sound() };
        let kept = Measurement { checks: check(Some(2.0), true), ..sound() };
        for (all, applied, exit) in [
            (vec![sound(), kept], true, Exit::Ok),
            (vec![sound(), failed.clone()], true, Exit::Negative),
            (vec![broken, empty.clone()], false, Exit::Negative),
            (vec![sound(), empty], true, Exit::Undecided),
            (vec![sound(), cut], true, Exit::Undecided),
            (vec![sound(), without], true, Exit::Undecided),
            (vec![sound()], false, Exit::Undecided),
        ] {
            assert_eq!(verdict(&all, applied), exit, "{all:?}");
        }
    }
}
