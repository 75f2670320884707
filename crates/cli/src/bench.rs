//! `sonde bench`: from a plan to checked measurements of a device (RFC 2544 and its
//! successors). The order of reading: `plan` what was typed, `expand` what it comes to,
//! `runner` how one measurement is made, `rig` on which bed.

pub mod args;
mod dry_run;
mod expand;
pub mod health;
mod judge;
mod layers;
mod outcome;
pub mod plan;
mod procedures;
mod progress;
mod rig;
pub mod runner;
pub mod store;
pub mod tester;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use ring::digest::{SHA256, digest};
use sonde_lab::Lab;
use sonde_port::clock::{clock_state, tai_now};
use sonde_port::usage::prefer_this_process;
use sonde_results::bench::{BENCH_SCHEMA_VERSION, BenchConfig, BenchRun};

use self::args::BenchArgs;
use self::expand::{Expanded, PlannedCase, expand};
use self::plan::Source;
use self::progress::{How, Printer};
use self::rig::{Bench, Ceilings};
use self::runner::{Book, Rules, measure};
use self::store::{NotSaved, Store};
use crate::doctor::run_header;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;

/// Runs a plan, or what is left of it.
pub fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    let source = Source::read(&args.plan).map_err(usage)?;
    let expanded = expand(&source).map_err(usage)?;
    if args.dry_run {
        return dry_run::print(&expanded, args.json);
    }
    let stop = stop_on_signal()?;
    // Other work on this host would make trials invalid.
    let preferred = prefer_this_process();
    let folder = args.out.clone().unwrap_or_else(|| default_folder(&args.plan));
    let (store, run) = Store::open(&folder, head(&source, &expanded)).map_err(Failure::Usage)?;
    // Beds of runs that were killed.
    Lab::sweep();
    let mut book = Book::new(store, run);
    let priority = match &preferred {
        Ok(preferred) => preferred.text().to_owned(),
        Err(e) => format!("as any other process ({e})"),
    };
    book.run.bed.facts.insert("the tester's priority".into(), priority);
    let how = match (args.json, args.quiet) {
        (true, _) => How::Json,
        (_, true) => How::Quiet,
        _ => How::Text,
    };
    let mut printer = Printer::new(how, expanded.cases.len());
    let measured = measure_all(&expanded, &mut book, &stop, &mut printer);
    book.run.header.end_ns = tai_now().as_nanos();
    let failed = match measured.and_then(|failed| book.save_head().map(|()| failed)) {
        Ok(failed) => failed,
        Err(e) if e.is::<NotSaved>() => {
            printer.error(&format!("sonde: {e:#}"));
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
    let sound = book.run.measurements.iter().all(|m| {
        m.finding.complete && !m.finding.values.is_empty() && m.checks.iter().all(|c| c.pass)
    });
    Ok(if sound { Exit::Ok } else { Exit::NoReply })
}

/// Measures what is not measured yet, bed by bed. A bed that cannot be had does not keep the
/// others from being measured; how often that was is returned.
fn measure_all(
    expanded: &Expanded,
    book: &mut Book,
    stop: &AtomicBool,
    printer: &mut Printer,
) -> anyhow::Result<u32> {
    let rules = Rules::from(&expanded.plan.run);
    let mut failed = 0;
    let mut ceilings = Ceilings::default();
    let same_bed = |a: &PlannedCase, b: &PlannedCase| {
        (a.device, a.condition, a.case.repetition) == (b.device, b.condition, b.case.repetition)
    };
    for group in expanded.cases.chunk_by(same_bed) {
        for done in group.iter().filter(|c| book.has(&c.id)) {
            let before = book.run.measurements.iter().find(|m| m.id == done.id);
            before.map_or(Ok(()), |m| printer.measurement(m, true))?;
        }
        let left: Vec<&PlannedCase> = group.iter().filter(|c| !book.has(&c.id)).collect();
        if left.is_empty() || stop.load(Ordering::Relaxed) {
            continue;
        }
        let device = &expanded.devices[left[0].device];
        let mut bench = match Bench::build(expanded, left[0]) {
            Ok(bench) => bench,
            Err(e) => {
                let e = e.context(format!("device {}", device.name));
                printer.error(&format!("sonde: {e:#}"));
                failed += 1;
                continue;
            }
        };
        bench.describe(&mut book.run);
        book.save_head()?;
        for planned in left {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let one = measure_one(
                expanded,
                planned,
                &mut bench,
                book,
                rules,
                &mut ceilings,
                stop,
                printer,
            );
            if let Err(e) = one {
                // Further trials would be lost as well.
                if e.is::<NotSaved>() {
                    return Err(e);
                }
                let e = e.context(planned.id.clone());
                printer.error(&format!("sonde: {e:#}"));
                failed += 1;
            }
        }
        if let Err(e) = bench.end() {
            printer.error(&format!("sonde: {e:#}"));
            failed += 1;
        }
    }
    Ok(failed)
}

#[allow(clippy::too_many_arguments)]
fn measure_one(
    expanded: &Expanded,
    planned: &PlannedCase,
    bench: &mut Bench,
    book: &mut Book,
    rules: Rules,
    ceilings: &mut Ceilings,
    stop: &AtomicBool,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let mut rig = bench.rig(expanded, planned)?;
    let max = ceilings.of(expanded, planned, &mut rig, book, stop, printer)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    let procedure = planned.procedure.make(max, planned.case.frame_bytes);
    let mut procedure = layers::batched(procedure, &planned.case.layers);
    let mut measurement = measure(
        &planned.id,
        planned.case.clone(),
        procedure.as_mut(),
        &mut rig,
        book,
        rules,
        stop,
        printer,
    )?;
    // What was interrupted is not finished: it is taken up again.
    if stop.load(Ordering::Relaxed) && procedure.next().is_some() {
        return Ok(());
    }
    drop(rig);
    bench.describe_mode(&mut book.run);
    measurement.finding.notes.extend(bench.notes.iter().cloned());
    outcome::doubt(&mut measurement, &planned.procedure, max, &book.run);
    outcome::check(&mut measurement, &expanded.plan.checks);
    printer.measurement(&measurement, false)?;
    book.finish(measurement)
}

fn head(source: &Source, expanded: &Expanded) -> BenchRun {
    let sha = digest(&SHA256, source.text.as_bytes());
    BenchRun {
        header: run_header("bench", BENCH_SCHEMA_VERSION, tai_now().as_nanos(), &clock_state()),
        config: BenchConfig {
            title: expanded.plan.title.clone(),
            command: std::env::args().collect(),
            plan: source.text.clone(),
            plan_sha256: sha.as_ref().iter().map(|b| format!("{b:02x}")).collect(),
            seed: expanded.plan.seed,
            engine: expanded.plan.bed.engine.name().into(),
            measurements_planned: expanded.cases.len() as u32,
        },
        ..BenchRun::default()
    }
}

/// From now on Ctrl-C and SIGTERM set this, and no longer end the process.
fn stop_on_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let signals = Signals::catch()?;
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    std::thread::Builder::new()
        .name("sonde-stop".into())
        .spawn(move || {
            while !signals.wait(Duration::from_secs(3600)) {}
            told.store(true, Ordering::Relaxed);
        })
        .context("cannot start a thread")?;
    Ok(stop)
}

fn default_folder(plan: &Path) -> PathBuf {
    PathBuf::from(plan.file_stem().unwrap_or(plan.as_os_str())).with_extension("run")
}

fn usage(error: plan::PlanError) -> Failure {
    Failure::Usage(anyhow!(error))
}
