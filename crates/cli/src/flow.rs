//! `sonde flow`: asks for flows to be metered, shows how it goes, saves the run; and
//! `sonde flow verify`.

pub mod args;
mod verify_args;
mod view;

use std::io::{IsTerminal as _, stdout};
use std::path::PathBuf;
use std::time::Duration;

use sonde_results::FlowRun;
use sonde_results::flow_run::ProtocolTotal;
use sonde_run::error::RunError;
use sonde_run::flow::{self, FlowMetering, Status, verify};
use sonde_run::sources::{Source, source};
use sonde_sys::clock::steady_now;

use self::args::{FlowArgs, FlowCommand, Instead};
use self::verify_args::VerifyArgs;
use self::view::FlowSnapshot;
use crate::exit::{Exit, Failure};
use crate::log::{self, Level};
use crate::output::live::InPlace;
use crate::output::run_file::{self, SaveSoFar};
use crate::output::style::{Style, terminal_size};
use crate::signals;
use crate::{console, options};

/// Meters, or does what stands under `sonde flow`.
pub fn command(command: &FlowCommand) -> Result<Exit, Failure> {
    match &command.instead {
        Some(Instead::Verify(args)) => compare(args),
        None => run(&command.args),
    }
}

/// `sonde flow verify`
fn compare(args: &VerifyArgs) -> Result<Exit, Failure> {
    let (report, ended) = verify::start(args.settings(), &signals::context()?)?.last();
    if let Some(error) = ended.failure {
        return Err(error.into());
    }
    // It was given up.
    let Some(report) = report else { return Ok(Exit::Interrupted) };
    if args.json {
        let text = serde_json::to_string_pretty(&report).map_err(anyhow::Error::from)?;
        outln!("{text}");
    } else {
        console::print(&options::named(&report.to_string()));
    }
    // Code 1: it ran, and the answer is no.
    Ok(if report.exact { Exit::Ok } else { Exit::Negative })
}

/// Runs until the file ends, the time is over, or Ctrl-C.
fn run(args: &FlowArgs) -> Result<Exit, Failure> {
    let asked = args.settings(false);
    let files = asked.files().writes("out", &args.output.out);
    files.writes("json", args.output.json.then_some("-")).check().map_err(RunError::from)?;
    console::check_input(&args.sources)?;
    let _claim = run_file::claim(args.output.out.as_deref())?;
    let of_interfaces = matches!(source(&args.sources)?, Source::Interfaces(_));
    let context = match of_interfaces {
        true => signals::confined_context(args.output.out.clone().into_iter().collect())?,
        false => signals::context()?,
    };
    let live = of_interfaces && is_live(args);
    let metering = flow::start(args.settings(live), &context)?;
    if of_interfaces {
        watch(&metering, args, live);
    }
    let status = metering.status.clone();
    let mut ended = metering.join();
    let failure = ended.failure.take();
    if ended.counters.is_empty()
        && let Some(error) = failure
    {
        // There is no run to report.
        return Err(error.into());
    }
    let exit = finish(status.get().run, args, context.stop.is_asked())?;
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(exit),
    }
}

/// Shows how it goes on interfaces until the end.
fn watch(metering: &FlowMetering, args: &FlowArgs, live: bool) {
    let mut screen = live.then(InPlace::default);
    let mut lines = !live && !args.output.quiet;
    let mut saving = SaveSoFar::default();
    let start = steady_now();
    let mut before = metering.status.get();
    let mut due = start + args.interval;
    loop {
        let until = (due - steady_now()).max(0);
        if metering.wait(Duration::from_nanos(until as u64)) {
            return;
        }
        let now = steady_now();
        if now < due {
            continue;
        }
        due = now + args.interval;
        let status = metering.status.get();
        saving.save(args.output.out.as_deref(), || with_command(status.so_far()));
        let spans = (now - start, status.at_ns - before.at_ns);
        // If nobody looks any more, the export goes on.
        if let Some(redraw) = &mut screen {
            let (width, height) = terminal_size();
            let lines = picture(&status, &before, spans, |s| {
                view::live(s, width, height, Style::for_stdout())
            });
            let _ = redraw.draw(&mut console::out(), &lines);
            if console::reader_has_gone() {
                screen = None;
            }
        } else if lines {
            let line = picture(&status, &before, spans, view::line);
            lines = log::write("", Level::INFO, module_path!(), &line).is_ok();
        }
        before = status;
    }
}

/// The live view has the terminal, unless something else is to be printed there.
fn is_live(args: &FlowArgs) -> bool {
    let printed = args.export.jsonl.as_ref().is_some_and(|p| p.as_os_str() == "-");
    stdout().is_terminal() && !args.output.quiet && !args.output.json && !printed
}

/// Shows one moment of the run.
fn picture<T>(
    status: &Status,
    before: &Status,
    (elapsed_ns, interval_ns): (i64, i64),
    show: impl FnOnce(&FlowSnapshot<'_>) -> T,
) -> T {
    let protocols: Vec<ProtocolTotal> = status
        .protocols
        .iter()
        .zip(&before.protocols)
        .map(|(now, then)| ProtocolTotal {
            protocol: now.protocol,
            packets: now.packets - then.packets,
            bytes: now.bytes - then.bytes,
        })
        .collect();
    let run = &status.run;
    let points: Vec<String> = run.points.iter().map(|p| p.name.clone()).collect();
    let snapshot = FlowSnapshot {
        elapsed_ns,
        interval_ns,
        points: &points,
        engine: &run.config.engine,
        protocols: &protocols,
        flows: (status.held, run.config.flows_max),
        created: status.created - before.created,
        records: (status.records - before.records, status.records),
        lost: (status.packets_lost, status.records_lost),
        top: &status.fastest,
        caveats: run.caveats,
    };
    show(&snapshot)
}

fn with_command(mut run: FlowRun) -> FlowRun {
    run.config.command = signals::command_line();
    run
}

/// Saves and prints a run that has ended.
fn finish(run: FlowRun, args: &FlowArgs, interrupted: bool) -> Result<Exit, Failure> {
    let run = with_command(run);
    let out = args.output.out.as_deref();
    let unsaved = run_file::save_and_show(out, &run, || print(&run, args));
    if let Some(what) = &unsaved {
        errln!(ERROR, "not saved: {what}");
    }
    let packets: u64 = run.protocols.iter().map(|p| p.packets).sum();
    let lost = run.counters.get("records_lost").copied().unwrap_or(0);
    Ok(match (unsaved.is_none() && lost == 0, packets) {
        (false, _) => Exit::NotSaved,
        (true, 0) if interrupted => Exit::Interrupted,
        (true, 0) => Exit::Negative,
        _ => Exit::Ok,
    })
}

/// The summary or the run; where records have standard output, the summary goes to
/// standard error.
fn print(run: &FlowRun, args: &FlowArgs) {
    if args.output.json {
        run_file::print(run);
        return;
    }
    let (width, _) = terminal_size();
    let taken = |p: &PathBuf| p.as_os_str() == "-";
    let to_stderr = args.export.jsonl.as_ref().is_some_and(taken)
        || args.output.out.as_ref().is_some_and(taken);
    let style = if to_stderr { Style::default() } else { Style::for_stdout() };
    let text = view::summary(run, width, style).join("\n");
    match to_stderr {
        true => errln!(INFO, "{text}"),
        false => outln!("{text}"),
    }
}
