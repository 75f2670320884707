//! What the API asks, answered by the station: one file for each resource. It decides nothing; it
//! knows whom to ask.

mod alerts;
pub(crate) mod deadline;
mod events;
mod explanation;
mod flows;
pub(crate) mod health;
pub(crate) mod host;
mod info;
pub(crate) mod news;
mod overview;
mod readings;
mod runs;
mod sla;
mod sql;
mod targets;
mod windows;

use std::sync::Arc;

use sonde_api::instant::UtcInstant;
use sonde_api::live::Live;
use sonde_api::on_demand::{OnDemandParams, OnDemandProbes, OnDemandResult};
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_api::readings::SeriesChoice;
use sonde_api::ring::LiveRing;
use sonde_store::{Limit, Query, Response, SeriesFilter, SeriesId, StoreError};

use crate::runner::Station;
use crate::service::{ServiceCore, query_end};
use crate::unit::Instrument;

/// A station behind its API.
pub(crate) struct StationBackend {
    core: Arc<ServiceCore>,
}

impl StationBackend {
    pub fn new(core: Arc<ServiceCore>) -> StationBackend {
        StationBackend { core }
    }

    fn query(&self, query: &Query) -> Result<Response, ProblemDetails> {
        let stop = Some(self.core.deadlines.begin(query_end()));
        let limit = Limit { stop, ..Limit::default() };
        self.core.reader.query(query, &limit).map_err(|error| of_store(&error))
    }

    /// Up to here no interval record comes any more: the longest record and its timeout before
    /// `now`.
    fn final_to(&self, now: UtcInstant) -> UtcInstant {
        let config = self.core.config();
        let probes = config.plan.iter().filter_map(|(_, unit)| match &unit.instrument {
            Instrument::Probe(settings) => Some(&settings.run),
            _ => None,
        });
        let late = probes.map(|run| {
            let length = run.record_interval.unwrap_or(RECORD_INTERVAL_NS);
            length.saturating_add(run.timeout.unwrap_or(TIMEOUT_NS))
        });
        let slack = self.core.station(Station::seen_after).unwrap_or(0).saturating_add(SLACK_NS);
        now.later(-(late.max().unwrap_or(0).saturating_add(slack)))
    }
}

impl Live for StationBackend {
    fn live(&self) -> &Arc<LiveRing> {
        &self.core.ring
    }
}

impl OnDemandProbes for StationBackend {
    fn probe_now(&self, ask: &OnDemandParams) -> Result<OnDemandResult, ProblemDetails> {
        // Not held while it is measured: a reload does not wait.
        let modules = self.core.config().modules.clone();
        self.core.on_demand.measure(&modules, ask)
    }
}

fn filter_of(choice: &SeriesChoice) -> SeriesFilter {
    let ids = choice.ids.iter().map(|&id| SeriesId(id)).collect();
    SeriesFilter { ids, labels: choice.labels.clone(), ..SeriesFilter::default() }
}

/// What a client is told of an error of the store.
fn of_store(error: &StoreError) -> ProblemDetails {
    let kind = match error {
        StoreError::Query { .. } | StoreError::Limit { .. } => ProblemKind::Unprocessable,
        StoreError::Stopped | StoreError::Unreachable { .. } => ProblemKind::Unavailable,
        _ => ProblemKind::Internal,
    };
    ProblemDetails::new(kind, error.to_string())
}

/// What a client is told that comes too late.
fn ending() -> ProblemDetails {
    ProblemDetails::new(ProblemKind::Unavailable, "the station ends")
}

/// What a client is told of a change that counts, and that a restart would forget.
fn unsaved(why: String) -> ProblemDetails {
    let text = format!("it counts until a restart, and cannot be kept for longer: {why}");
    ProblemDetails::new(ProblemKind::Internal, text)
}

/// An answer of another query: none can be, and if there were one it is said.
fn other_answer() -> ProblemDetails {
    ProblemDetails::new(ProblemKind::Internal, "the store answered another question")
}

/// As the settings of a probe have them by default, ns.
const RECORD_INTERVAL_NS: i64 = 10_000_000_000;
const TIMEOUT_NS: i64 = 2_000_000_000;
/// For a record's way to the store, ns.
const SLACK_NS: i64 = 2_000_000_000;
