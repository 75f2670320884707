//! Whole plans of `sonde bench`, ordered over the network: one at a time, on a thread of its
//! own, each in a folder named after its plan. What is told of a run is read from its folder,
//! so that it is the same during the run, after it, and after a restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context as _;
use sonde_meter::trial::Next;
use sonde_report::Format;
use sonde_results::bench::{BenchRun, Measurement};
use sonde_results::trial::Trial;
use sonde_run::error::RunError;
use sonde_server::runs::{Found, Phase, Present, Refusal, RunState, RunSummary, Runs};

use super::allowed::Allowed;
use super::generator::{Generator, Reserved};
use super::plans;
use crate::execution::{Execution, Invocation, Reporter, fingerprint};
use crate::plan::Source;
use crate::runner::Progress;
use crate::store;

/// The runs in a folder.
pub struct PlanRuns {
    folder: PathBuf,
    allowed: Allowed,
    generator: Arc<Generator>,
    invocation: Invocation,
    /// Those that were begun since the start of this server, by id.
    begun: Mutex<BTreeMap<String, Begun>>,
}

struct Begun {
    stop: Arc<AtomicBool>,
    told: Arc<Told>,
    thread: Option<JoinHandle<()>>,
}

/// What a run under way says that is not in its folder.
#[derive(Default)]
struct Told(Mutex<Said>);

#[derive(Clone, Default)]
struct Said {
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
        generator: Arc<Generator>,
        invocation: Invocation,
    ) -> Result<PlanRuns, RunError> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}; see --runs", folder.display()))?;
        let begun = Mutex::new(BTreeMap::new());
        Ok(PlanRuns { folder: folder.to_owned(), allowed, generator, invocation, begun })
    }

    /// Ends what is under way, in order: what is measured is kept.
    pub fn end(&self) {
        for (_, mut run) in std::mem::take(&mut *self.begun()) {
            run.stop.store(true, Ordering::Relaxed);
            if let Some(thread) = run.thread.take() {
                let _ = thread.join(); // a panic there has been told
            }
        }
    }

    fn begun(&self) -> MutexGuard<'_, BTreeMap<String, Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of a run that is there.
    fn find(&self, id: &str) -> Result<PathBuf, Refusal> {
        // Nothing else is looked for: no path leads out of the folder.
        let named = id.len() == ID_LEN && id.bytes().all(|b| b.is_ascii_hexdigit());
        let folder = self.folder.join(id);
        match named && folder.is_dir() {
            true => Ok(folder),
            false => Err(Refusal::Unknown(format!("there is no run '{id}'"))),
        }
    }

    fn read(&self, id: &str) -> Result<BenchRun, Refusal> {
        store::read(&self.find(id)?).map_err(failed)
    }

    fn said(&self, id: &str) -> Said {
        self.begun().get(id).map(|run| run.told.said().clone()).unwrap_or_default()
    }

    fn summary(&self, id: &str) -> Result<(RunSummary, BenchRun, Said), Refusal> {
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
    fn start(&self, plan: &str) -> Result<RunState, Refusal> {
        let source = Source { file: "plan".into(), text: plan.to_owned() };
        let expanded = plans::read(&source, &self.allowed)?;
        let reserved = Generator::reserve(&self.generator)?;
        let id = fingerprint(&source)[..ID_LEN].to_owned();
        let folder = self.folder.join(&id);
        let kept = std::fs::read_dir(&self.folder).map_err(failed)?.count();
        if kept >= RUNS_MAX && !folder.exists() {
            let why = format!("{} has {kept} runs; remove some", self.folder.display());
            return Err(Refusal::Failed(why));
        }
        // So that the run is there when it is told of.
        drop(Execution::open(&source, &expanded, &folder, &self.invocation).map_err(failed)?);
        let (stop, told) = (Arc::new(AtomicBool::new(false)), Arc::new(Told::default()));
        told.said().running = true;
        let (own_stop, own_told) = (Arc::clone(&stop), Arc::clone(&told));
        let invocation = self.invocation.clone();
        let thread = std::thread::Builder::new().name("sonde-run".into()).spawn(move || {
            let open = || Execution::open(&source, &expanded, &folder, &invocation);
            carry_out(open, &own_stop, &own_told, reserved);
        });
        let thread = thread.context("cannot start a thread").map_err(failed)?;
        self.begun().insert(id.clone(), Begun { stop, told, thread: Some(thread) });
        self.state(&id)
    }

    fn list(&self) -> Result<Vec<RunSummary>, Refusal> {
        let entries = std::fs::read_dir(&self.folder).map_err(failed)?;
        let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
        // What else is in the folder is not ours to tell.
        let mut runs: Vec<RunSummary> =
            names.filter_map(|id| Some(self.summary(&id).ok()?.0)).collect();
        runs.sort_by(|a, b| (a.start_ns, &a.id).cmp(&(b.start_ns, &b.id)));
        Ok(runs)
    }

    fn state(&self, id: &str) -> Result<RunState, Refusal> {
        let (summary, run, Said { present, errors, .. }) = self.summary(id)?;
        let found = |m: Measurement| Found {
            id: m.id,
            finding: m.finding,
            caveats: m.caveats,
            checks: m.checks,
        };
        let findings = run.measurements.into_iter().map(found).collect();
        Ok(RunState { summary, present, findings, errors })
    }

    fn measurements(&self, id: &str) -> Result<Vec<Measurement>, Refusal> {
        Ok(self.summary(id)?.1.measurements)
    }

    fn trials(&self, id: &str) -> Result<Vec<Trial>, Refusal> {
        Ok(self.read(id)?.trials)
    }

    fn stop(&self, id: &str) -> Result<RunState, Refusal> {
        if let Some(run) = self.begun().get(id) {
            run.stop.store(true, Ordering::Relaxed);
        }
        self.state(id)
    }

    fn report(&self, id: &str) -> Result<Vec<u8>, Refusal> {
        let run = self.read(id)?;
        let pages = sonde_report::render(&run, &[Format::Html]).map_err(failed)?;
        let page = pages.into_iter().next().context("the report has no page").map_err(failed)?;
        Ok(page.bytes)
    }
}

/// The run's thread. Nobody may begin another before all of this one is given back.
fn carry_out<'a>(
    open: impl FnOnce() -> Result<Execution<'a>, RunError>,
    stop: &AtomicBool,
    told: &Told,
    reserved: Reserved,
) {
    let _ended = Ended(told);
    let _reserved = reserved;
    let measured = open().and_then(|mut execution| execution.run(stop, &mut { told }));
    if let Err(e) = measured {
        told.said().errors.push(format!("{e:#}"));
    }
}

/// Says that the run has ended, however it did.
struct Ended<'a>(&'a Told);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut said = self.0.said();
        (said.running, said.present) = (false, None);
        if std::thread::panicking() {
            said.errors.push("internal error; the server's output has more".into());
        }
    }
}

impl Told {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for &Told {
    fn trial(&mut self, measurement: &str, next: &Next, attempt: u32) {
        self.said().present = Some(Present {
            measurement: measurement.to_owned(),
            purpose: next.purpose.clone(),
            rate_fps: next.offer.rate_fps,
            duration_ns: next.offer.duration_ns(),
            attempt,
        });
    }

    fn ended(&mut self, _: &Trial) {
        self.said().present = None;
    }
}

impl Reporter for &Told {
    // Whoever asks finds it in the folder.
    fn measurement(&mut self, _: &Measurement, _: bool) -> anyhow::Result<()> {
        Ok(())
    }

    fn error(&mut self, text: &str) {
        self.said().errors.push(text.to_owned());
    }
}

fn failed(error: impl Into<anyhow::Error>) -> Refusal {
    Refusal::Failed(format!("{:#}", error.into()))
}

/// Hexadecimal digits of the plan's fingerprint.
const ID_LEN: usize = 16;
/// Runs in the folder: whoever may post plans shall not fill the disk with empty ones.
const RUNS_MAX: usize = 1000;
