//! A whole plan, measured bed by bed into its folder: what `sonde bench` and the runs of
//! `sonde otg` have in common.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ring::digest::{SHA256, digest};
use sonde_lab::Lab;
use sonde_results::bench::{BENCH_SCHEMA_VERSION, BenchConfig, BenchRun, Measurement};
use sonde_run::error::RunError;
use sonde_run::header::run_header;
use sonde_sys::clock::{clock_state, tai_now};
use sonde_sys::schedule::prefer_this_process;

use super::cases::{Expanded, PlannedCase};
use super::plan::Source;
use super::rig::{Bench, Ceilings};
use super::runner::{Book, Progress, Rules, measure};
use super::store::Store;
use super::{checks, layers, outcome};

/// Told what becomes of a plan.
pub trait Reporter: Progress {
    /// A measurement is finished, or was before this start (`resumed`).
    ///
    /// # Errors
    /// It cannot be told; that ends the run.
    fn measurement(&mut self, measurement: &Measurement, resumed: bool) -> anyhow::Result<()>;

    /// A measurement or a device could not be had; the others are measured all the same.
    fn error(&mut self, text: &str);
}

/// A plan and its folder, which is this process's until it is dropped.
pub struct Execution<'a> {
    expanded: &'a Expanded,
    book: Book,
    ceilings: Ceilings,
    sonde: Option<PathBuf>,
}

/// How the program was started that measures.
#[derive(Clone, Debug, Default)]
pub struct Invocation {
    /// Its command line, for the run's head.
    pub command: Vec<String>,
    /// The binary `sonde`, which is a device of some laboratories.
    pub sonde: Option<PathBuf>,
}

impl<'a> Execution<'a> {
    /// Makes the folder, or takes up the run of the same plan that it holds.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(
        source: &Source,
        expanded: &'a Expanded,
        folder: &Path,
        invocation: &Invocation,
    ) -> Result<Execution<'a>, RunError> {
        let (store, run) =
            Store::open(folder, head(source, expanded, invocation)).map_err(RunError::Settings)?;
        let (book, ceilings) = (Book::new(store, run), Ceilings::default());
        Ok(Execution { expanded, book, ceilings, sonde: invocation.sonde.clone() })
    }

    /// Measures what is not measured yet, until `stop` is set. A bed that cannot be had does
    /// not keep the others from being measured; how often that was is returned. The scheduler
    /// prefers the calling thread from now on.
    ///
    /// # Errors
    /// [`RunError::Unsaved`]; `reporter` cannot tell.
    pub fn run(&mut self, stop: &AtomicBool, reporter: &mut dyn Reporter) -> Result<u32, RunError> {
        // Other work on this host would make trials invalid.
        let priority = match prefer_this_process() {
            Ok(()) => "nice -20".to_owned(),
            Err(e) => format!("as any other process ({e})"),
        };
        self.book.run.bed.facts.insert("the tester's priority".into(), priority);
        // Beds of runs that were killed.
        Lab::sweep();
        let failed = self.measure_all(stop, reporter);
        self.book.run.header.end_ns = tai_now().as_nanos();
        let failed = failed?;
        self.book.save_head()?;
        Ok(failed)
    }

    /// The plan's thresholds that no finished measurement was held against.
    pub fn checks_never_applied(&self) -> Vec<&str> {
        checks::never_applied(&self.expanded.plan.checks, &self.book.run.measurements)
    }

    /// What has been measured.
    pub fn measured(&self) -> &BenchRun {
        &self.book.run
    }

    fn measure_all(
        &mut self,
        stop: &AtomicBool,
        reporter: &mut dyn Reporter,
    ) -> Result<u32, RunError> {
        let expanded = self.expanded;
        let mut failed = 0;
        let same_bed = |a: &PlannedCase, b: &PlannedCase| {
            (a.device, a.condition, a.case.repetition) == (b.device, b.condition, b.case.repetition)
        };
        for group in expanded.cases.chunk_by(same_bed) {
            let book = &self.book;
            for done in group.iter().filter(|c| book.has(&c.id)) {
                let before = book.run.measurements.iter().find(|m| m.id == done.id);
                before.map_or(Ok(()), |m| reporter.measurement(m, true))?;
            }
            let left: Vec<&PlannedCase> = group.iter().filter(|c| !book.has(&c.id)).collect();
            if left.is_empty() || stop.load(Ordering::Relaxed) {
                continue;
            }
            let device = &expanded.devices[left[0].device];
            let mut bench = match Bench::build(expanded, left[0], self.sonde.clone()) {
                Ok(bench) => bench,
                Err(e) => {
                    let e = e.context(format!("device {}", device.name));
                    reporter.error(&format!("{e:#}"));
                    failed += 1;
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
                    Err(e) => {
                        reporter.error(&format!("{}: {e}", planned.id));
                        failed += 1;
                    }
                }
            }
            if let Err(e) = bench.end() {
                reporter.error(&format!("{e:#}"));
                failed += 1;
            }
        }
        Ok(failed)
    }

    fn measure_one(
        &mut self,
        planned: &PlannedCase,
        bench: &mut Bench,
        stop: &AtomicBool,
        reporter: &mut dyn Reporter,
    ) -> Result<(), RunError> {
        let (expanded, book) = (self.expanded, &mut self.book);
        let rules = Rules::from(&expanded.plan.run);
        let mut rig = bench.rig(expanded, planned)?;
        let max = self.ceilings.of(expanded, planned, &mut rig, book, stop, reporter)?;
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
        reporter.measurement(&measurement, false)?;
        Ok(book.finish(measurement)?)
    }
}

/// SHA-256 of a plan's text, in hexadecimal: by it a folder knows its plan.
pub fn fingerprint(source: &Source) -> String {
    let sha = digest(&SHA256, source.text.as_bytes());
    sha.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

fn head(source: &Source, expanded: &Expanded, invocation: &Invocation) -> BenchRun {
    BenchRun {
        header: run_header("bench", BENCH_SCHEMA_VERSION, tai_now().as_nanos(), &clock_state()),
        config: BenchConfig {
            title: expanded.plan.title.clone(),
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
