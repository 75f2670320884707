//! Runs of benchmarks that are kept beside the store.

use sonde_api::instant::UtcInstant;
use sonde_api::page::{ListPage, PageRequest};
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_api::runs::{
    BenchRuns, RunDetail, RunEntry, RunMeasurement, RunPhase, RunQuantity, RunsParams,
};
use sonde_report::ReportFormat;
use sonde_results::bench::{Measurement, Quantity};
use sonde_results::trial::Trial;
use sonde_run::error::RunError;

use super::StationBackend;
use crate::runs::{KeptRun, KeptRuns, utc};

impl StationBackend {
    fn kept_runs(&self) -> KeptRuns {
        KeptRuns::of_store(&self.core.config().store)
    }
}

impl BenchRuns for StationBackend {
    fn runs(
        &self,
        ask: &RunsParams,
        page: &PageRequest,
    ) -> Result<ListPage<RunEntry>, ProblemDetails> {
        let all = self.kept_runs().list().into_iter().map(|kept| entry(&kept));
        let wanted = all.filter(|run| ask.phase.is_empty() || ask.phase.contains(&run.phase));
        // The newest first.
        page.cut(wanted, |run| (-run.begin.ns(), run.id.clone()))
    }

    fn run(&self, id: &str) -> Result<RunDetail, ProblemDetails> {
        let runs = self.kept_runs();
        let found = runs.findings(id).ok_or_else(|| ProblemDetails::not_found("run", id))?;
        let kept = found.map_err(damaged)?;
        // Of each measurement only how many of its trials were valid.
        let whole = runs.whole(id).ok_or_else(|| ProblemDetails::not_found("run", id))?;
        let trials = whole.map_err(damaged)?.trials;
        let measurements = kept.run.measurements.iter();
        Ok(RunDetail {
            run: entry(&kept),
            measurements: measurements.map(|m| measurement(m, &trials)).collect(),
            errors: Vec::new(),
        })
    }

    fn run_report(&self, id: &str) -> Result<Vec<u8>, ProblemDetails> {
        let found = self.kept_runs().whole(id);
        let run = found.ok_or_else(|| ProblemDetails::not_found("run", id))?.map_err(damaged)?;
        let internal = |why: String| ProblemDetails::new(ProblemKind::Internal, why);
        let pages = sonde_report::render(&run, &[ReportFormat::Html]);
        let pages = pages.map_err(|error| internal(error.to_string()))?;
        let page = pages.into_iter().next();
        Ok(page.ok_or_else(|| internal("the report has no page".into()))?.bytes)
    }
}

fn damaged(error: RunError) -> ProblemDetails {
    ProblemDetails::new(ProblemKind::Internal, error.to_string())
}

fn entry(kept: &KeptRun) -> RunEntry {
    let (begin, end) = kept.times_ns();
    RunEntry {
        id: kept.id.clone(),
        title: kept.run.config.title.clone(),
        begin: UtcInstant::from_ns(begin),
        end: end.map(UtcInstant::from_ns),
        phase: match () {
            () if kept.under_way => RunPhase::Running,
            () if kept.is_finished() => RunPhase::Finished,
            () => RunPhase::Interrupted,
        },
        measured: kept.run.measurements.len() as u64,
        planned: kept.run.config.measurements_planned.into(),
    }
}

fn measurement(m: &Measurement, trials: &[Trial]) -> RunMeasurement {
    let invalid = |number: &&u64| {
        let at = usize::try_from(**number).ok().and_then(|number| number.checked_sub(1));
        at.and_then(|at| trials.get(at)).is_some_and(|trial| !trial.valid())
    };
    RunMeasurement {
        id: m.id.clone(),
        begin: UtcInstant::from_ns(utc(m.time_ns[0])),
        end: UtcInstant::from_ns(utc(m.time_ns[1])),
        values: m.finding.values.iter().map(quantity).collect(),
        complete: m.finding.complete,
        notes: m.finding.notes.clone(),
        failures: m.finding.failures.clone(),
        trials: m.trials.len() as u64,
        invalid_trials: m.trials.iter().filter(invalid).count() as u64,
        caveats: m.caveats,
        checks: m.checks.iter().map(Into::into).collect(),
    }
}

fn quantity(of: &Quantity) -> RunQuantity {
    RunQuantity {
        name: of.name.clone(),
        unit: of.unit.clone(),
        value: of.value,
        low: of.bounds.map(|bounds| bounds[0]),
        high: of.bounds.map(|bounds| bounds[1]),
        n: of.samples,
        tester_limited: of.tester_limited,
    }
}
