//! Resources that a station does not have.

use sonde_api::alerts::{
    AlertGroup, Alerts, AlertsParams, CheckedSilence, ReceiverList, SilenceEntry, SilencesParams,
};
use sonde_api::instant::UtcInstant;
use sonde_api::page::{ListPage, PageRequest};
use sonde_api::problem::ProblemDetails;
use sonde_api::request::ChangeContext;
use sonde_api::runs::{BenchRuns, RunDetail, RunEntry, RunsParams};
use sonde_api::sla::{MonthsQuery, ObjectiveEntry, ObjectivesParams, Sla, SlaMonth};
use sonde_api::sql::{SqlCatalogue, SqlQueries, SqlQuery, SqlTable};

use super::StationBackend;

impl Alerts for StationBackend {
    fn alert_groups(
        &self,
        _: &AlertsParams,
        _: &PageRequest,
    ) -> Result<ListPage<AlertGroup>, ProblemDetails> {
        Err(ProblemDetails::not_offered("alerts"))
    }

    fn receivers(&self) -> Result<ReceiverList, ProblemDetails> {
        Err(ProblemDetails::not_offered("alerts"))
    }

    fn silences(
        &self,
        _: &SilencesParams,
        _: &PageRequest,
        _: UtcInstant,
    ) -> Result<ListPage<SilenceEntry>, ProblemDetails> {
        Err(ProblemDetails::not_offered("alerts"))
    }

    fn add_silence(
        &self,
        _: &CheckedSilence,
        _: &ChangeContext<'_>,
    ) -> Result<SilenceEntry, ProblemDetails> {
        Err(ProblemDetails::not_offered("alerts"))
    }

    fn end_silence(&self, _: &str, _: &ChangeContext<'_>) -> Result<(), ProblemDetails> {
        Err(ProblemDetails::not_offered("alerts"))
    }
}

impl Sla for StationBackend {
    fn objectives(
        &self,
        _: &ObjectivesParams,
        _: &PageRequest,
    ) -> Result<ListPage<ObjectiveEntry>, ProblemDetails> {
        Err(ProblemDetails::not_offered("objectives"))
    }

    fn months(
        &self,
        _: &MonthsQuery,
        _: &PageRequest,
    ) -> Result<ListPage<SlaMonth>, ProblemDetails> {
        Err(ProblemDetails::not_offered("objectives"))
    }
}

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

impl SqlQueries for StationBackend {
    fn sql(&self, _: &SqlQuery) -> Result<SqlTable, ProblemDetails> {
        Err(ProblemDetails::not_offered("SQL"))
    }

    fn sql_tables(&self) -> Result<SqlCatalogue, ProblemDetails> {
        Err(ProblemDetails::not_offered("SQL"))
    }
}
