//! Benchmark runs that a station keeps: their list, state and report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::bench::Check;
use sonde_results::caveat::CaveatSet;

use crate::Asked;
use crate::instant::UtcInstant;
use crate::page::{ListPage, PageRequest};
use crate::problem::ProblemDetails;
use crate::route::{ApiRoute, RouteHead, list_params};

/// Runs of benchmarks.
pub trait BenchRuns {
    /// Those that are kept, the newest first.
    fn runs(
        &self,
        ask: &RunsParams,
        page: &PageRequest,
    ) -> Result<ListPage<RunEntry>, ProblemDetails>;

    /// One of them, and what was measured so far.
    fn run(&self, id: &str) -> Result<RunDetail, ProblemDetails>;

    /// Its report so far: one page of HTML.
    fn run_report(&self, id: &str) -> Result<Vec<u8>, ProblemDetails>;
}

/// A run in the list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunEntry {
    /// Made of the plan's text.
    pub id: String,
    /// Its title.
    pub title: String,
    /// When it began.
    pub begin: UtcInstant,
    /// When it ended; absent: it is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<UtcInstant>,
    /// Whether it is under way, or how it ended.
    pub phase: RunPhase,
    /// Measurements that are finished.
    pub measured: u64,
    /// Measurements of the plan.
    pub planned: u64,
}

/// Whether a run is under way, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// It is under way.
    Running,
    /// Every measurement of the plan is done.
    Finished,
    /// Something is not measured yet; the same plan, begun again, goes on.
    Interrupted,
    /// Something could not be measured: see the errors.
    Failed,
}

/// A run, and what was measured so far.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunDetail {
    /// As in the list.
    pub run: RunEntry,
    /// Measurements, in the plan's order. Invalid and repeated trials are counted, never left out.
    pub measurements: Vec<RunMeasurement>,
    /// Measurements and devices that could not be had, in sentences.
    pub errors: Vec<String>,
}

/// A measurement of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunMeasurement {
    /// Unique within the run: "throughput/router/kernel/64/1".
    pub id: String,
    /// Begin.
    pub begin: UtcInstant,
    /// End.
    pub end: UtcInstant,
    /// The quantities, the most important one first.
    pub values: Vec<RunQuantity>,
    /// Whether the procedure came to its end.
    pub complete: bool,
    /// What a reader must know, in sentences.
    pub notes: Vec<String>,
    /// In what the device failed, in sentences.
    pub failures: Vec<String>,
    /// Trials behind it.
    pub trials: u64,
    /// Of those, invalid ones.
    pub invalid_trials: u64,
    /// What casts doubt on it.
    pub caveats: CaveatSet,
    /// The plan's thresholds for it.
    pub checks: Vec<RunCheck>,
}

/// A quantity with its unit.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunQuantity {
    /// Its name, by the standard that defines it.
    pub name: String,
    /// Its unit: "frames/s", "ns", "ratio".
    pub unit: String,
    /// In `unit`.
    pub value: f64,
    /// The least that it can be; null: not known.
    pub low: Option<f64>,
    /// The greatest that it can be; null: not known.
    pub high: Option<f64>,
    /// Samples or trials behind it.
    pub n: u64,
    /// The tester set the bound, not the device.
    pub tester_limited: bool,
}

/// A threshold of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunCheck {
    /// As the plan has it: "throughput >= 1.0e6".
    pub text: String,
    /// The value that it was held against; null: there is none.
    pub value: Option<f64>,
    /// Whether it holds; null: there is no value.
    pub pass: Option<bool>,
}

/// Parameters of the list of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunsParams {
    /// Only runs in one of these phases.
    #[serde(default)]
    pub phase: Vec<RunPhase>,
    /// Items of a page, 1 to 1,000; absent: 100.
    pub limit: Option<u32>,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

/// Parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunParams {
    /// Its id.
    pub id: String,
}

list_params!(RunsParams);

impl From<&Check> for RunCheck {
    fn from(of: &Check) -> RunCheck {
        RunCheck { text: of.text.clone(), value: of.value, pass: of.value.map(|_| of.pass) }
    }
}

pub(crate) fn routes() -> Vec<ApiRoute> {
    let head = |path, operation, summary| RouteHead { path, operation, summary };
    vec![
        ApiRoute::list(
            head("/sonde/v1/runs", "list_runs", "Benchmark runs, the newest first"),
            |backend, asked, page| Ok(backend.runs(&asked.params, page)?.into()),
        ),
        ApiRoute::get(
            head("/sonde/v1/runs/{id}", "get_run", "A run, and what was measured so far"),
            |backend, asked: &Asked<'_, RunParams>| Ok(backend.run(&asked.params.id)?.into()),
        ),
        ApiRoute::get_other(
            head("/sonde/v1/runs/{id}/report", "run_report", "A run's report: one page of HTML"),
            "text/html; charset=utf-8",
            |backend, asked: &Asked<'_, RunParams>| {
                Ok(backend.run_report(&asked.params.id)?.into())
            },
        ),
    ]
}
