//! Whole plans of `sonde bench`, ordered over the network: one at a time, on a thread of its
//! own, each in a folder named after its plan. Answers about a run are read from its folder. So
//! they are the same during the run, after it, and after a restart.

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
use sonde_run::thread;
use sonde_run::thread::{ThreadPanicked, join_logged};
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
    progress: Arc<RunProgress>,
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
        std::fs::create_dir_all(folder).with_context(|| {
            format!("`runs`: cannot make the folder {}; choose another", folder.display())
        })?;
        let begun = Mutex::new(BTreeMap::new());
        Ok(PlanRuns { folder: folder.to_owned(), allowed, generator, invocation, begun })
    }

    /// Ends what is under way, in order: what is measured is kept.
    pub fn end(&self) {
        for (_, mut run) in std::mem::take(&mut *self.begun()) {
            run.stop.ask();
            if let Some(thread) = run.thread.take() {
                join_logged(thread);
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

    fn progress(&self, id: &str) -> ProgressState {
        self.begun().get(id).map(Begun::state).unwrap_or_default()
    }

    fn summary(&self, id: &str) -> Result<(RunSummary, BenchRun, ProgressState), RunRefusal> {
        // Before the folder: a run that has ended meanwhile is then shown as running once more.
        let progress = self.progress(id);
        let run = store::read_findings(&self.find(id)?).map_err(failed)?;
        let (measured, planned) =
            (run.measurements.len(), run.config.measurements_planned as usize);
        let state = match () {
            () if progress.running => Phase::Running,
            () if measured >= planned => Phase::Finished,
            () if !progress.errors.is_empty() => Phase::Failed,
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
        Ok((summary, run, progress))
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
        let (stop, progress) = (context.stop.clone(), Arc::new(RunProgress::default()));
        // Its folder is there from now on.
        let settings = Settings { plan: source, out: folder };
        let (_, benchmarking) = execution::start(settings, &context).map_err(failed)?;
        progress.state().running = true;
        let own = Arc::clone(&progress);
        let follow = move || follow(benchmarking, &own, reserved);
        let thread = thread::spawn("sonde-plan", follow).map_err(failed)?;
        self.begun().insert(id.clone(), Begun { stop, progress, thread: Some(thread) });
        self.state(&id)
    }

    fn list(&self) -> Result<Vec<RunSummary>, RunRefusal> {
        let entries = std::fs::read_dir(&self.folder).map_err(failed)?;
        let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
        // What else is in the folder is no run, and is left out.
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
fn follow(benchmarking: Benchmarking, progress: &RunProgress, reserved: Reserved) {
    benchmarking.records.iter().for_each(|event| progress.note(event));
    let failure = benchmarking.join().failure;
    let mut state = progress.state();
    (state.running, state.present) = (false, None);
    state.errors.extend(failure.map(|e| format!("{e:#}")));
    drop(reserved);
}

impl Begun {
    /// How the run goes. A thread that ended without saying so has panicked: the run has failed.
    fn state(&self) -> ProgressState {
        let ended = self.thread.as_ref().filter(|thread| thread.is_finished());
        let mut state = self.progress.state().clone();
        if let Some(thread) = ended.filter(|_| state.running) {
            (state.running, state.present) = (false, None);
            state.errors.push(ThreadPanicked::of(thread.thread()).to_string());
        }
        state
    }
}

impl RunProgress {
    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, event: Event) {
        match event {
            Event::Trial(trial) => {
                let Under { measurement, purpose, offer, attempt } = *trial;
                let (rate_fps, duration_ns) = (offer.rate_fps, offer.duration_ns());
                self.state().present =
                    Some(Present { measurement, purpose, rate_fps, duration_ns, attempt });
            }
            Event::Tried(_) => self.state().present = None,
            Event::Failed(why) => self.state().errors.push(why),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_thread_panicked_has_failed_with_the_threads_name() {
        let progress = Arc::new(RunProgress::default());
        progress.state().running = true;
        let (release, held) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("sonde-plan".into()).spawn(move || {
            let _ = held.recv();
            panic!("as this test wants it")
        });
        let begun = Begun { stop: Stop::default(), progress, thread: thread.ok() };
        assert!(begun.state().running && begun.state().errors.is_empty());
        drop(release);
        while !begun.thread.as_ref().unwrap().is_finished() {
            std::thread::yield_now();
        }
        let state = begun.state();
        assert!(!state.running && state.errors[0].contains("sonde-plan"), "{:?}", state.errors);
    }
}
