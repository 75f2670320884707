//! Resources that a station does not have.

use sonde_api::page::{ListPage, PageRequest};
use sonde_api::problem::ProblemDetails;
use sonde_api::runs::{BenchRuns, RunDetail, RunEntry, RunsParams};

use super::StationBackend;

impl BenchRuns for StationBackend {
    fn runs(&self, _: &RunsParams, _: &PageRequest) -> Result<ListPage<RunEntry>, ProblemDetails> {
        Err(ProblemDetails::not_offered("runs of benchmarks"))
    }

    fn run(&self, _: &str) -> Result<RunDetail, ProblemDetails> {
        Err(ProblemDetails::not_offered("runs of benchmarks"))
    }

    fn run_report(&self, _: &str) -> Result<Vec<u8>, ProblemDetails> {
        Err(ProblemDetails::not_offered("runs of benchmarks"))
    }
}
