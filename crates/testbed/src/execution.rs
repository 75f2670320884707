//! A plan, measured bed by bed into its folder.

mod event;
mod settings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ring::digest::{SHA256, digest};
use sonde_lab::Lab;
use sonde_results::bench::{BENCH_SCHEMA_VERSION, BenchConfig, BenchRun};
use sonde_results::units::format_hex;
use sonde_run::error::RunError;
use sonde_run::header::run_header;
use sonde_run::running::{Context, Ended, Invocation, Latest, Running, Stop, records};
use sonde_sys::clock::{clock_state, tai_now};
use sonde_sys::schedule::prefer_with_children;

use self::event::Reporter;
pub use self::event::{About, Benchmarking, Event, Status, Under};
pub use self::settings::Settings;
use super::cases::{ExpandedPlan, PlannedCase};
use super::expand::expand;
use super::plan::TomlText;
use super::rig::{Bench, Ceilings};
use super::runner::{Book, Rules, measure};
use super::store::Store;
use super::{checks, layers, outcome};

/// Makes the folder, or takes up the run of the same plan that it holds, and begins to measure
/// what is not measured yet. A bed that cannot be had does not keep the others from being
/// measured.
///
/// # Errors
/// A plan that is wrong; a folder that holds something else, or that another process is adding to.
pub fn start(settings: Settings, context: &Context) -> Result<(About, Benchmarking), RunError> {
    let expanded = expand(&settings.plan)?;
    let head = head(&settings.plan, &expanded, &context.invocation);
    let (store, run) = Store::open(&settings.out, head)?;
    let planned = expanded.cases.len();
    let mut execution = Execution {
        expanded: Arc::new(expanded),
        book: Book::new(store, run),
        ceilings: Ceilings::default(),
        sonde: context.invocation.sonde.clone(),
    };
    let (sender, receiver) = records(planned + ROOM);
    let status = Latest::new(Status { planned, ..Status::default() });
    let (stop, asked) = (context.stop.clone(), context.stop.clone());
    let mut reporter = Reporter { records: sender, status: status.clone(), stop: stop.clone() };
    let work = move || {
        let failure = execution.run(&asked, &mut reporter).err();
        execution.end(&reporter, failure)
    };
    let running = Running::start("sonde-bench", (receiver, status, ()), stop, work)?;
    Ok((About { planned }, running))
}

/// A plan and its folder, which is this run's until it is dropped.
struct Execution {
    expanded: Arc<ExpandedPlan>,
    book: Book,
    ceilings: Ceilings,
    sonde: Option<PathBuf>,
}

impl Execution {
    /// Measures what is not measured yet, until `stop`. The scheduler prefers the calling thread
    /// from now on.
    fn run(&mut self, stop: &Stop, reporter: &mut Reporter) -> Result<(), RunError> {
        // Other work on this host would make trials invalid.
        let priority = match prefer_with_children() {
            Ok(()) => "nice -20".to_owned(),
            Err(e) => format!("as any other process ({e})"),
        };
        self.book.run.bed.facts.insert("the tester's priority".into(), priority);
        // Beds of runs that were killed.
        Lab::sweep();
        let measured = self.measure_all(stop.flag(), reporter);
        self.book.run.header.end_ns = tai_now().as_nanos();
        measured?;
        Ok(self.book.save_head()?)
    }

    /// What is left behind.
    fn end(self, reporter: &Reporter, failure: Option<RunError>) -> Ended {
        let run = self.book.run;
        let never = checks::never_applied(&self.expanded.plan.checks, &run.measurements);
        let never = never.into_iter().map(str::to_owned).collect();
        reporter.status.update(|s| (s.present, s.never_applied) = (None, never));
        let caveats = run.caveats;
        let mut counters: BTreeMap<String, u64> = [
            ("measurements", run.measurements.len()),
            ("trials", run.trials.len()),
            ("invalid_trials", run.trials.iter().filter(|t| !t.valid()).count()),
            ("failed", reporter.status.get().errors.len()),
        ]
        .map(|(name, n)| (name.to_owned(), n as u64))
        .into();
        reporter.run(run);
        counters.insert("events_lost".into(), reporter.records.lost());
        Ended { counters, caveats, failure, ..Ended::default() }
    }

    fn measure_all(&mut self, stop: &AtomicBool, reporter: &mut Reporter) -> Result<(), RunError> {
        let expanded = self.expanded.clone();
        let same_bed = |a: &PlannedCase, b: &PlannedCase| {
            (a.device, a.condition, a.case.repetition) == (b.device, b.condition, b.case.repetition)
        };
        for group in expanded.cases.chunk_by(same_bed) {
            let book = &self.book;
            for done in group.iter().filter(|c| book.has(&c.id)) {
                let before = book.run.measurements.iter().find(|m| m.id == done.id);
                before.into_iter().for_each(|m| reporter.measured(m, true));
            }
            let left: Vec<&PlannedCase> = group.iter().filter(|c| !book.has(&c.id)).collect();
            if left.is_empty() || stop.load(Ordering::Relaxed) {
                continue;
            }
            let device = &expanded.devices[left[0].device];
            let mut bench = match Bench::build(&expanded, left[0], self.sonde.clone()) {
                Ok(bench) => bench,
                Err(e) => {
                    reporter.failed(format!("device {}: {e:#}", device.name));
                    continue;
                }
            };
            bench.describe(&mut self.book.run);
            self.book.save_head()?;
            for planned in left {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                match self.measure_one(planned, &mut bench, stop, reporter) {
                    Ok(()) => {}
                    // Further trials would be lost as well.
                    Err(e @ RunError::Unsaved(_)) => return Err(e),
                    Err(e) => reporter.failed(format!("{}: {e}", planned.id)),
                }
            }
            if let Err(e) = bench.end() {
                reporter.failed(format!("{e:#}"));
            }
        }
        Ok(())
    }

    fn measure_one(
        &mut self,
        planned: &PlannedCase,
        bench: &mut Bench,
        stop: &AtomicBool,
        reporter: &mut Reporter,
    ) -> Result<(), RunError> {
        let (expanded, book) = (&self.expanded, &mut self.book);
        let rules = Rules::from(&expanded.plan.run);
        let mut rig = bench.rig(expanded, planned)?;
        let line = rig.line_rate(planned.case.frame_bytes);
        let max = self.ceilings.of(expanded, planned, line, &mut rig, book, stop, reporter)?;
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let procedure = planned.procedure.make(max, planned.case.frame_bytes);
        let mut procedure = layers::batched(procedure, planned.burst, &planned.case.layers);
        let mut measurement = measure(
            &planned.id,
            planned.case.clone(),
            procedure.as_mut(),
            &mut rig,
            book,
            rules,
            stop,
            reporter,
        )?;
        // What was interrupted is not finished: it is taken up again.
        if stop.load(Ordering::Relaxed) && procedure.next().is_some() {
            return Ok(());
        }
        drop(rig);
        bench.describe_mode(&mut book.run);
        measurement.finding.notes.extend(bench.notes.iter().cloned());
        let drain_ns = expanded.plan.bed.drain.0;
        outcome::doubt(&mut measurement, &planned.procedure, max, drain_ns, &book.run);
        checks::hold(&mut measurement, &planned.procedure, &expanded.plan.checks);
        reporter.measured(&measurement, false);
        Ok(book.finish(measurement)?)
    }
}

/// SHA-256 of a plan's text, in hexadecimal: by it a folder knows its plan.
pub fn fingerprint(source: &TomlText) -> String {
    let sha = digest(&SHA256, source.text.as_bytes());
    format_hex(sha.as_ref())
}

fn head(source: &TomlText, expanded: &ExpandedPlan, invocation: &Invocation) -> BenchRun {
    BenchRun {
        header: run_header("bench", BENCH_SCHEMA_VERSION, tai_now().as_nanos(), &clock_state()),
        config: BenchConfig {
            title: expanded.plan.title.clone(),
            // Of types whose keys are strings: this cannot fail.
            settings: serde_json::to_value(&expanded.plan).unwrap_or_default(),
            command: invocation.command.clone(),
            plan: source.text.clone(),
            plan_sha256: fingerprint(source),
            seed: expanded.plan.seed,
            engine: expanded.plan.bed.engine.name().into(),
            measurements_planned: expanded.cases.len() as u32,
        },
        ..BenchRun::default()
    }
}

/// Trials and failures that a reader may be late by.
const ROOM: usize = 4_096;
