//! Sonde's own interface: whole plans of `sonde bench`, their runs, findings and reports. The
//! paths, their bodies, and errors in the form of the model's `Error`. docs/otg.md describes it.

use std::sync::Arc;

use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper::{StatusCode, Uri};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sonde_results::bench::{Check, Finding, Measurement};
use sonde_results::caveat::CaveatSet;
use sonde_results::trial::Trial;

use crate::http::{self, Request};
use crate::otg::read;

/// What carries plans out, one at a time, and keeps their runs.
pub trait Runs: Send + Sync + 'static {
    /// Begins the run of a plan (TOML), or takes it up where it was left: the same text is
    /// the same run.
    ///
    /// # Errors
    /// A plan that is wrong, or may not come by network; something is under way; the run's
    /// folder cannot be had.
    fn start(&self, plan: &str) -> Result<RunState, RunRefusal>;

    /// All runs that are kept, in the order of their beginnings.
    ///
    /// # Errors
    /// They cannot be read.
    fn list(&self) -> Result<Vec<RunSummary>, RunRefusal>;

    /// How far a run has come.
    ///
    /// # Errors
    /// No such run; it cannot be read.
    fn state(&self, id: &str) -> Result<RunState, RunRefusal>;

    /// What has been measured.
    ///
    /// # Errors
    /// As of `state`.
    fn measurements(&self, id: &str) -> Result<Vec<Measurement>, RunRefusal>;

    /// Every trial so far, invalid ones included.
    ///
    /// # Errors
    /// As of `state`.
    fn trials(&self, id: &str) -> Result<Vec<Trial>, RunRefusal>;

    /// Has a run end early; one that has ended stays as it is. Does not wait for it.
    ///
    /// # Errors
    /// As of `state`.
    fn stop(&self, id: &str) -> Result<RunState, RunRefusal>;

    /// The report so far, one page of HTML.
    ///
    /// # Errors
    /// As of `state`.
    fn report(&self, id: &str) -> Result<Vec<u8>, RunRefusal>;
}

/// A run in the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// Made of the plan's text; the name of the run's folder.
    pub id: String,
    pub title: String,
    /// Begin of the run, ns since 1970 TAI.
    pub start_ns: i64,
    /// Whether it is under way, or how it ended.
    pub state: Phase,
    /// Measurements that are finished.
    pub measured: usize,
    /// Measurements of the plan.
    pub planned: usize,
}

/// Whether a run is under way, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Running,
    /// Every measurement of the plan is done.
    Finished,
    /// Something is not measured yet; the same plan, posted again, goes on.
    Interrupted,
    /// Something could not be measured: see the errors.
    Failed,
}

/// How far a run has come.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunState {
    /// As in the list.
    #[serde(flatten)]
    pub summary: RunSummary,
    /// The trial under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<Present>,
    /// What has been found, by measurement.
    pub findings: Vec<MeasurementFound>,
    /// Measurements and devices that could not be had since the run was last begun here.
    pub errors: Vec<String>,
}

/// A trial under way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Present {
    /// The measurement that it is for.
    pub measurement: String,
    /// Why: a short text.
    pub purpose: String,
    /// Frames a second in each direction.
    pub rate_fps: f64,
    /// How long frames are sent, ns.
    pub duration_ns: i64,
    /// Its try, from 1.
    pub attempt: u32,
}

/// What a measurement found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasurementFound {
    pub id: String,
    pub finding: Finding,
    /// What casts doubt on them.
    pub caveats: CaveatSet,
    /// The plan's thresholds for it.
    pub checks: Vec<Check>,
}

/// Why a request for a run is not granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunRefusal {
    /// The plan is wrong.
    #[error("{0}")]
    Wrong(String),
    /// The plan is longer than any is taken.
    #[error("{0}")]
    TooLong(String),
    /// The plan asks for what it may not from here.
    #[error("{0}")]
    Forbidden(String),
    /// There is no such run.
    #[error("{0}")]
    Unknown(String),
    /// Something else is under way.
    #[error("{0}")]
    Busy(String),
    /// This host is to blame.
    #[error("{0}")]
    Failed(String),
}

impl RunRefusal {
    fn status(&self) -> StatusCode {
        match self {
            RunRefusal::Wrong(_) => StatusCode::BAD_REQUEST,
            RunRefusal::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            RunRefusal::Forbidden(_) => StatusCode::FORBIDDEN,
            RunRefusal::Unknown(_) => StatusCode::NOT_FOUND,
            RunRefusal::Busy(_) => StatusCode::CONFLICT,
            RunRefusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for RunRefusal {
    fn into_response(self) -> Response {
        http::refusal(self.status(), &self.to_string())
    }
}

/// The paths of runs; `None`: no runs are kept, and the paths say how to have them.
pub fn routes<R: Runs>(runs: Option<Arc<R>>) -> Router {
    let on = |answer: fn(&R, &str, &[u8]) -> Result<Response, RunRefusal>| {
        let runs = runs.clone();
        move |uri: Uri, request: Request| {
            // As it stands there: what `Path` decodes may have slashes in it.
            let id = uri.path().split('/').nth(4).unwrap_or_default().to_owned();
            http::work(move || answer(kept(runs.as_deref())?, &id, &request.body))
        }
    };
    let list = |runs: &R, _: &str, _: &[u8]| json(json!({ "runs": written(runs.list()?) }));
    Router::new()
        .route("/sonde/v1/runs", get(on(list)).post(on(start)))
        .route("/sonde/v1/runs/{id}", get(on(|runs, id, _| json(runs.state(id)?))))
        .route(
            "/sonde/v1/runs/{id}/measurements",
            get(on(|runs, id, _| json(json!({ "measurements": written(runs.measurements(id)?) })))),
        )
        .route(
            "/sonde/v1/runs/{id}/trials",
            get(on(|runs, id, _| json(json!({ "trials": written(runs.trials(id)?) })))),
        )
        .route("/sonde/v1/runs/{id}/stop", post(on(|runs, id, _| json(runs.stop(id)?))))
        .route(
            "/sonde/v1/runs/{id}/report",
            get(on(|runs, id, _| Ok(Html(runs.report(id)?).into_response()))),
        )
}

fn start<R: Runs>(runs: &R, _: &str, body: &[u8]) -> Result<Response, RunRefusal> {
    if body.len() > PLAN_MAX {
        let why = format!("a request with a plan has at most {PLAN_MAX} octets");
        return Err(RunRefusal::TooLong(why));
    }
    let StartRequest { plan } = read(body).map_err(|e| RunRefusal::Wrong(e.to_string()))?;
    Ok((StatusCode::CREATED, Json(written(runs.start(&plan)?))).into_response())
}

fn kept<R>(runs: Option<&R>) -> Result<&R, RunRefusal> {
    runs.ok_or_else(|| {
        RunRefusal::Unknown("this server keeps no runs: start it as sonde otg --runs DIR".into())
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartRequest {
    /// TOML, as in a file for `sonde bench`.
    plan: String,
}

fn json(value: impl Serialize) -> Result<Response, RunRefusal> {
    Ok(Json(written(value)).into_response())
}

/// Nothing that is answered here can fail to be written.
fn written(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Octets of a request with a plan, at most: a hundred times what plans have.
pub const PLAN_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests;
