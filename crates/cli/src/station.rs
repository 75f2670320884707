//! `sonde run` and `sonde check-config`: the station, by its configuration.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueHint};
use serde_json::json;
use sonde_results::units::format_count;
use sonde_run::confined::give_up_with_files;
use sonde_run::error::SettingsError;
use sonde_run::running::{Next, RecordReceiver, Stop};
use sonde_station::config::Config;
use sonde_station::hub::{Hub, Report, Said};
use sonde_station::reload::{Step, StopReason};
use sonde_station::runner::StationEnded;
use sonde_station::serve::BoundApi;
use sonde_station::service::{LoadedConfig, ReloadFailure, Service};
use sonde_sys::clock::{steady_now, unix_now_ns};
use sonde_testbed::agent::Event;

use crate::exit::{Exit, Failure};
use crate::service_manager::ServiceManager;
use crate::signals;

#[derive(Args, Debug)]
#[command(after_help = RUN_HELP)]
pub struct RunArgs {
    /// The station's configuration, TOML
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = CHECK_HELP)]
pub struct CheckConfigArgs {
    /// The station's configuration, TOML
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    /// Print what is wrong, or what would run, as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A hang-up asked for the configuration to be read again.
static RELOAD: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Runs the units of a configuration until it is asked to end.
pub fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let loaded = load(&args.config)?;
    let stop = signals::daemon_stop(|| RELOAD.store(true, Ordering::Relaxed))?;
    run_loaded(&args.config, loaded, &stop, Manner { confined: true, talks: true })
}

/// Reads a configuration.
///
/// # Errors
/// It cannot be run; all errors have been said.
pub(crate) fn load(path: &Path) -> Result<LoadedConfig, Failure> {
    LoadedConfig::read(path).map_err(|errors| wrong(path, &errors))
}

/// How a station is run.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// All rights that its units do not need are given up, for the rest of this process's life.
    pub confined: bool,
    /// Units say what they do.
    pub talks: bool,
}

/// Runs a configuration that was read from `path`, until `stop` is asked for.
pub(crate) fn run_loaded(
    path: &Path,
    loaded: LoadedConfig,
    stop: &Stop,
    manner: Manner,
) -> Result<Exit, Failure> {
    let config = &loaded.config;
    config.warnings.iter().for_each(|warning| sonde_errln!(WARN, "{warning}"));
    let units = config.plan.iter().count();
    let mut manager = ServiceManager::of_environment();
    let hub = Hub::new(Report::records);
    let reports = hub.subscribe("log", REPORTS);
    let bound = BoundApi::bind(&config.api, &config.store.path)?;
    let address = bound.address();
    let uses = config.uses();
    if manner.confined {
        give_up_with_files(&uses, &config.owned(), &config.written())?;
    }
    let started = (manner.confined.then_some(uses), signals::invocation());
    let service = Service::start(path, loaded, bound, hub, stop.clone(), started)?;
    if manner.talks {
        sonde_errln!(INFO, "{} runs until Ctrl-C, units: {units}", path.display());
    }
    if let Some(address) = address {
        sonde_errln!(INFO, "the API listens on {address}");
    }
    manager.ready(&format!("units: {units}"));
    let talk: fn(&Report) = if manner.talks { say } else { |_| {} };
    follow(&service, &reports, &mut manager, (stop, path), talk);
    manager.stopping(END);
    let StationEnded { stuck, store, judge } = service.join();
    while let Some(report) = reports.next_now() {
        talk(&report);
    }
    let kept = format_count(store.durable_rows);
    sonde_errln!(INFO, "records kept: {kept}");
    judge.open.iter().for_each(|trouble| sonde_errln!(WARN, "lasts: {}", trouble.title));
    let lost = store.lost_records + store.lost_rows + store.waiting_rows;
    match stuck.is_empty() {
        true if lost > 0 => {
            let why = store.error.unwrap_or_else(|| "they came faster than they were kept".into());
            Err(Failure::NotSaved(anyhow!("{} records are not kept: {why}", format_count(lost))))
        }
        true => match judge.error {
            Some(why) => Err(Failure::NotSaved(anyhow!("what was judged is not kept: {why}"))),
            None => Ok(Exit::Ok),
        },
        false => {
            let names: Vec<&str> = stuck.iter().map(|unit| unit.as_str()).collect();
            let why = anyhow!("{} did not end; what they measured last is lost", names.join(", "));
            Err(Failure::CannotRun(why))
        }
    }
}

/// Says what happens, and reloads, until it is asked to end.
fn follow(
    service: &Service,
    reports: &RecordReceiver<Arc<Report>>,
    manager: &mut ServiceManager,
    (stop, path): (&Stop, &Path),
    talk: fn(&Report),
) {
    while !stop.is_asked() {
        if RELOAD.swap(false, Ordering::Relaxed) {
            reload(service, path);
        }
        manager.turned(steady_now(), service.turns());
        match reports.next(PATIENCE) {
            Next::Record(report) => talk(&report),
            Next::Nothing => {}
            Next::End => return,
        }
    }
}

fn reload(service: &Service, path: &Path) {
    match service.reload() {
        Err(error) => {
            if let ReloadFailure::Files(errors) = &error {
                errors.iter().for_each(|error| sonde_errln!(ERROR, "{error}"));
            }
            sonde_errln!(ERROR, "{} changes nothing: {error}", path.display());
        }
        Ok(steps) => {
            let kept = steps.iter().filter(|step| matches!(step, Step::Keep(_))).count();
            sonde_errln!(INFO, "{} was read again; unchanged units: {kept}", path.display());
            steps.iter().filter_map(step_text).for_each(|text| sonde_errln!(INFO, "{text}"));
        }
    }
}

fn step_text(step: &Step) -> Option<String> {
    Some(match step {
        Step::Keep(_) => return None,
        Step::Adjust { unit, added, ended } => {
            let list = |names: &[String]| match names {
                [] => "nothing".to_owned(),
                names if names.len() > 5 => format!("{} and so on", names[..5].join(", ")),
                names => names.join(", "),
            };
            format!("{unit} goes on; added: {}; ended: {}", list(added), list(ended))
        }
        Step::Stop { unit, why: StopReason::Removed } => format!("{unit} ends"),
        Step::Stop { unit, why: StopReason::Changed(why) } => format!("{unit} ends: {why}"),
        Step::Start(unit) => format!("{unit} starts"),
    })
}

/// What a unit says of itself; gaps and failures are in the log already.
fn say(report: &Report) {
    let unit = &report.unit;
    match &report.said {
        Said::Probe(about) => {
            let (streams, engine) = (about.streams.len(), &about.engine);
            sonde_errln!(INFO, "{unit} sends by {engine}, streams: {streams}");
            for (target, why) in &about.left_out {
                sonde_errln!(WARN, "{unit} does not measure {target}: {why}");
            }
        }
        Said::Reflector(about) => sonde_errln!(INFO, "{unit} answers on {about}"),
        Said::Rtt(_) | Said::Flow => sonde_errln!(INFO, "{unit} measures"),
        Said::Serves(at) => sonde_errln!(INFO, "{unit} serves at {at}"),
        Said::Controller(Event::Taken(peer)) => {
            sonde_errln!(INFO, "{unit}: controller {peer} has the ports");
        }
        Said::Controller(Event::Freed(peer)) => {
            sonde_errln!(INFO, "{unit}: controller {peer} has gone");
        }
        Said::Lost(n) => sonde_errln!(WARN, "{unit}: {n} records found no room and are lost"),
        _ => {}
    }
}

/// Looks whether a configuration can be run.
pub fn check_config(args: &CheckConfigArgs) -> Result<Exit, Failure> {
    let checked =
        LoadedConfig::read(&args.config).and_then(|LoadedConfig { mut config, files }| {
            config.warnings.extend(Config::ended_maintenance(&files, unix_now_ns()));
            let errors = config.check_secrets(&files);
            if errors.is_empty() { Ok(config) } else { Err(errors) }
        });
    match checked {
        Ok(config) => {
            config.warnings.iter().for_each(|warning| sonde_errln!(WARN, "{warning}"));
            let units: Vec<&str> = config.plan.iter().map(|(id, _)| id.as_str()).collect();
            let objectives = config.judge.objectives.iter().map(|judged| &judged.objective);
            let objectives: Vec<_> =
                objectives.map(|o| json!({"name": o.name, "text": o.to_string()})).collect();
            let warnings = &config.warnings;
            if args.json {
                let found = json!({
                    "units": units, "objectives": objectives, "errors": [], "warnings": warnings
                });
                outln!("{found:#}");
                return Ok(Exit::Ok);
            }
            warnings.iter().for_each(|warning| sonde_errln!(WARN, "{warning}"));
            outln!("{} can be run, units: {}", args.config.display(), units.join(", "));
            for judged in &config.judge.objectives {
                outln!("objective {}: {}", judged.objective.name, judged.objective);
            }
            Ok(Exit::Ok)
        }
        Err(errors) => {
            if args.json {
                outln!("{:#}", json!({"units": [], "warnings": [], "errors": errors}));
            }
            Err(wrong(&args.config, &errors))
        }
    }
}

/// Every error is said here; the command fails with how many there are.
fn wrong(path: &Path, errors: &[SettingsError]) -> Failure {
    errors.iter().for_each(|error| sonde_errln!(ERROR, "{error}"));
    let (n, s) = (errors.len(), if errors.len() == 1 { "" } else { "s" });
    Failure::Usage(anyhow!("{} cannot be run: {n} error{s}", path.display()))
}

/// All units end within it, and what they measured last is kept.
const END: Duration = Duration::from_secs(30);
/// Reports that wait for the log.
const REPORTS: usize = 4_096;
/// Between two looks whether to reload or to end.
const PATIENCE: Duration = Duration::from_millis(100);

const RUN_HELP: &str = "\
Example:
  sudo sonde run sonde.toml
A table [KIND.NAME] of the file is a unit; KIND is probe, reflect, rtt, flow, otg or agent, and its keys are
those of 'sonde schema --settings KIND'. [objective.NAME] says what is promised (docs/sla.md), and
[alert] who is told when it is broken (docs/alerts.md). A hang-up (SIGHUP) reads the file again: what did not
change goes on without losing a probe or a flow, and a file with errors changes nothing. A unit that
fails is started again. docs/station.md has more.
Exit codes: 0 ended in order, 2 usage or configuration, 3 cannot run, or a unit did not end.";

const CHECK_HELP: &str = "\
Example:
  sonde check-config sonde.toml
It reads the files of secrets, tokens and certificates too, so call it where the station runs, as its user or
root. What can be run and is hardly meant, such as an objective that fits no target, is a warning.
Exit codes: 0 it can be run, 2 it cannot: every error is printed with file, line and key.";
