//! Whole plans of `sonde bench`, ordered over the network: one at a time, on a thread of its
//! own, each in a folder named after its plan. What is told of a run is read from its folder,
//! so that it is the same during the run, after it, and after a restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context as _;
use sonde_report::ReportFormat;
use sonde_results::bench::{BenchRun, Measurement};
use sonde_results::trial::Trial;
use sonde_run::error::RunError;
use sonde_run::running::{Context, Invocation, Stop};
use sonde_server::runs::{
    MeasurementFound, Phase, Present, RunRefusal, RunState, RunSummary, Runs,
};

use super::allowed::Allowed;
use super::generator::{OtgGenerator, Reserved};
use super::plans;
use crate::execution::{self, Benchmarking, Event, Settings, Under, fingerprint};
use crate::plan::TomlText;
use crate::store;

/// The runs in a folder.
pub struct PlanRuns {
    folder: PathBuf,
    allowed: Allowed,
    generator: Arc<OtgGenerator>,
    invocation: Invocation,
    /// Those that were begun since the start of this server, by id.
    begun: Mutex<BTreeMap<String, Begun>>,
}

struct Begun {
    stop: Stop,
    told: Arc<RunProgress>,
    thread: Option<JoinHandle<()>>,
}

/// What a run under way says that is not in its folder.
#[derive(Default)]
struct RunProgress(Mutex<ProgressState>);

#[derive(Clone, Default)]
struct ProgressState {
    running: bool,
    present: Option<Present>,
    errors: Vec<String>,
}

impl PlanRuns {
    /// Makes the folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(
        folder: &Path,
        allowed: Allowed,
        generator: Arc<OtgGenerator>,
        invocation: Invocation,
    ) -> Result<PlanRuns, RunError> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("`runs`: cannot make the folder {}", folder.display()))?;
        let begun = Mutex::new(BTreeMap::new());
        Ok(PlanRuns { folder: folder.to_owned(), allowed, generator, invocation, begun })
    }

    /// Ends what is under way, in order: what is measured is kept.
    pub fn end(&self) {
        for (_, mut run) in std::mem::take(&mut *self.begun()) {
            run.stop.ask();
            if let Some(thread) = run.thread.take() {
                let _ = thread.join(); // a panic there has been told
            }
        }
    }

    fn begun(&self) -> MutexGuard<'_, BTreeMap<String, Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of a run that is there.
    fn find(&self, id: &str) -> Result<PathBuf, RunRefusal> {
        // Nothing else is looked for: no path leads out of the folder.
        let named = id.len() == ID_LEN && id.bytes().all(|b| b.is_ascii_hexdigit());
        let folder = self.folder.join(id);
        match named && folder.is_dir() {
            true => Ok(folder),
            false => Err(RunRefusal::Unknown(format!("there is no run '{id}'"))),
        }
    }

    fn read(&self, id: &str) -> Result<BenchRun, RunRefusal> {
        store::read(&self.find(id)?).map_err(failed)
    }

    fn said(&self, id: &str) -> ProgressState {
        self.begun().get(id).map(|run| run.told.said().clone()).unwrap_or_default()
    }

    fn summary(&self, id: &str) -> Result<(RunSummary, BenchRun, ProgressState), RunRefusal> {
        // Before the folder: a run that has ended meanwhile is then told as running once more.
        let said = self.said(id);
        let run = store::read_findings(&self.find(id)?).map_err(failed)?;
        let (measured, planned) =
            (run.measurements.len(), run.config.measurements_planned as usize);
        let state = match () {
            () if said.running => Phase::Running,
            () if measured >= planned => Phase::Finished,
            () if !said.errors.is_empty() => Phase::Failed,
            () => Phase::Interrupted,
        };
        let summary = RunSummary {
            id: id.to_owned(),
            title: run.config.title.clone(),
            start_ns: run.header.start_ns,
            state,
            measured,
            planned,
        };
        Ok((summary, run, said))
    }
}

impl Runs for PlanRuns {
    fn start(&self, plan: &str) -> Result<RunState, RunRefusal> {
        let source = TomlText { file: "plan".into(), text: plan.to_owned() };
        plans::may_be_run(&source, &self.allowed)?;
        let reserved = OtgGenerator::reserve(&self.generator)?;
        let id = fingerprint(&source)[..ID_LEN].to_owned();
        let folder = self.folder.join(&id);
        let kept = std::fs::read_dir(&self.folder).map_err(failed)?.count();
        if kept >= RUNS_MAX && !folder.exists() {
            let why = format!("{} has {kept} runs; remove some", self.folder.display());
            return Err(RunRefusal::Failed(why));
        }
        let context = Context { invocation: self.invocation.clone(), ..Context::default() };
        let (stop, told) = (context.stop.clone(), Arc::new(RunProgress::default()));
        // Its folder is there from now on.
        let settings = Settings { plan: source, out: folder };
        let (_, benchmarking) = execution::start(settings, &context).map_err(failed)?;
        told.said().running = true;
        let own_told = Arc::clone(&told);
        let follow = move || follow(benchmarking, &own_told, reserved);
        let thread = std::thread::Builder::new().name("sonde-plan".into()).spawn(follow);
        let thread =
            thread.context("cannot start a thread; 'ulimit -u' bounds them").map_err(failed)?;
        self.begun().insert(id.clone(), Begun { stop, told, thread: Some(thread) });
        self.state(&id)
    }

    fn list(&self) -> Result<Vec<RunSummary>, RunRefusal> {
        let entries = std::fs::read_dir(&self.folder).map_err(failed)?;
        let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
        // What else is in the folder is not ours to tell.
        let mut runs: Vec<RunSummary> =
            names.filter_map(|id| Some(self.summary(&id).ok()?.0)).collect();
        runs.sort_by(|a, b| (a.start_ns, &a.id).cmp(&(b.start_ns, &b.id)));
        Ok(runs)
    }

    fn state(&self, id: &str) -> Result<RunState, RunRefusal> {
        let (summary, run, ProgressState { present, errors, .. }) = self.summary(id)?;
        let found = |m: Measurement| MeasurementFound {
            id: m.id,
            finding: m.finding,
            caveats: m.caveats,
            checks: m.checks,
        };
        let findings = run.measurements.into_iter().map(found).collect();
        Ok(RunState { summary, present, findings, errors })
    }

    fn measurements(&self, id: &str) -> Result<Vec<Measurement>, RunRefusal> {
        Ok(self.summary(id)?.1.measurements)
    }

    fn trials(&self, id: &str) -> Result<Vec<Trial>, RunRefusal> {
        Ok(self.read(id)?.trials)
    }

    fn stop(&self, id: &str) -> Result<RunState, RunRefusal> {
        if let Some(run) = self.begun().get(id) {
            run.stop.ask();
        }
        self.state(id)
    }

    fn report(&self, id: &str) -> Result<Vec<u8>, RunRefusal> {
        let run = self.read(id)?;
        let pages = sonde_report::render(&run, &[ReportFormat::Html]).map_err(failed)?;
        let page = pages.into_iter().next().context("the report has no page").map_err(failed)?;
        Ok(page.bytes)
    }
}

/// Follows a run until its end. Nobody may begin another before all of this one is given back.
fn follow(benchmarking: Benchmarking, told: &RunProgress, reserved: Reserved) {
    benchmarking.records.iter().for_each(|event| told.hear(event));
    let failure = benchmarking.join().failure;
    let mut said = told.said();
    (said.running, said.present) = (false, None);
    said.errors.extend(failure.map(|e| format!("{e:#}")));
    drop(reserved);
}

impl RunProgress {
    fn said(&self) -> MutexGuard<'_, ProgressState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, event: Event) {
        match event {
            Event::Trial(trial) => {
                let Under { measurement, purpose, offer, attempt } = *trial;
                let (rate_fps, duration_ns) = (offer.rate_fps, offer.duration_ns());
                self.said().present =
                    Some(Present { measurement, purpose, rate_fps, duration_ns, attempt });
            }
            Event::Tried(_) => self.said().present = None,
            Event::Failed(why) => self.said().errors.push(why),
            // Whoever asks finds them in the folder.
            Event::Measured { .. } | Event::Run(_) => {}
        }
    }
}

fn failed(error: impl Into<anyhow::Error>) -> RunRefusal {
    RunRefusal::Failed(format!("{:#}", error.into()))
}

/// Hexadecimal digits of the plan's fingerprint.
const ID_LEN: usize = 16;
/// Runs in the folder: whoever may post plans shall not fill the disk with empty ones.
const RUNS_MAX: usize = 1000;
