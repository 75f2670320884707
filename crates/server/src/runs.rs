//! Sonde's own interface: whole plans of `sonde bench`, their runs, findings and reports. The
//! paths, their bodies, and errors in the form of the model's `Error`. docs/otg.md describes it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sonde_results::bench::{Check, Finding, Measurement};
use sonde_results::caveat::CaveatSet;
use sonde_results::trial::Trial;

use crate::http::{Body, Request, Response, Service, StatusCode};
use crate::otg::{error, read};

/// What carries plans out, one at a time, and keeps their runs.
pub trait Runs: Send + Sync + 'static {
    /// Begins the run of a plan (TOML), or takes it up where it was left: the same text is
    /// the same run.
    ///
    /// # Errors
    /// A plan that is wrong, or may not come by network; something is under way; the run's
    /// folder cannot be had.
    fn start(&self, plan: &str) -> Result<RunState, Refusal>;

    /// All runs that are kept, in the order of their beginnings.
    ///
    /// # Errors
    /// They cannot be read.
    fn list(&self) -> Result<Vec<RunSummary>, Refusal>;

    /// How far a run has come.
    ///
    /// # Errors
    /// No such run; it cannot be read.
    fn state(&self, id: &str) -> Result<RunState, Refusal>;

    /// What has been measured.
    ///
    /// # Errors
    /// As of `state`.
    fn measurements(&self, id: &str) -> Result<Vec<Measurement>, Refusal>;

    /// Every trial so far, invalid ones included.
    ///
    /// # Errors
    /// As of `state`.
    fn trials(&self, id: &str) -> Result<Vec<Trial>, Refusal>;

    /// Has a run end early; one that has ended stays as it is. Does not wait for it.
    ///
    /// # Errors
    /// As of `state`.
    fn stop(&self, id: &str) -> Result<RunState, Refusal>;

    /// The report so far, one page of HTML.
    ///
    /// # Errors
    /// As of `state`.
    fn report(&self, id: &str) -> Result<Vec<u8>, Refusal>;
}

/// A run in the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// Made of the plan's text; the name of the run's folder.
    pub id: String,
    /// The plan's.
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
    /// Under way.
    Running,
    /// All is measured.
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
    pub findings: Vec<Found>,
    /// Measurements and devices that could not be had since the run was last begun here.
    pub errors: Vec<String>,
}

/// A trial under way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Present {
    /// The measurement that it is for.
    pub measurement: String,
    /// Why, in a few words.
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
pub struct Found {
    /// The measurement.
    pub id: String,
    /// Its numbers.
    pub finding: Finding,
    /// What casts doubt on them.
    pub caveats: CaveatSet,
    /// The plan's thresholds for it.
    pub checks: Vec<Check>,
}

/// Why a request for a run is not granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The plan is wrong.
    #[error("{0}")]
    Wrong(String),
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

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Refusal::Wrong(_) => StatusCode::BAD_REQUEST,
            Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
            Refusal::Unknown(_) => StatusCode::NOT_FOUND,
            Refusal::Busy(_) => StatusCode::CONFLICT,
            Refusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A service, with the paths of runs beside its own.
pub struct WithRuns<R, S> {
    /// `None`: no runs are kept.
    runs: Option<Arc<R>>,
    rest: S,
}

impl<R: Runs, S: Service> WithRuns<R, S> {
    /// `runs` beside `rest`; without `runs` their paths say how to have them.
    pub fn new(runs: Option<Arc<R>>, rest: S) -> WithRuns<R, S> {
        WithRuns { runs, rest }
    }

    fn dispatch(&self, method: &str, what: &Path<'_>, body: &[u8]) -> Result<Response, Refusal> {
        let runs = self.runs.as_ref().ok_or_else(|| {
            let why = "this server keeps no runs: start it as sonde otg --runs DIR";
            Refusal::Unknown(why.into())
        })?;
        let mut status = StatusCode::OK;
        let body = match (method, what) {
            ("POST", Path::All) => {
                if body.len() > PLAN_MAX {
                    let why = format!("a request with a plan has at most {PLAN_MAX} octets");
                    return Err(Refusal::Wrong(why));
                }
                let StartRequest { plan } =
                    read(body).map_err(|e| Refusal::Wrong(e.to_string()))?;
                status = StatusCode::CREATED;
                written(runs.start(&plan)?)
            }
            (_, Path::All) => json!({ "runs": written(runs.list()?) }),
            (_, Path::One(id)) => written(runs.state(id)?),
            (_, Path::Measurements(id)) => {
                json!({ "measurements": written(runs.measurements(id)?) })
            }
            (_, Path::Trials(id)) => json!({ "trials": written(runs.trials(id)?) }),
            (_, Path::Stop(id)) => written(runs.stop(id)?),
            (_, Path::Report(id)) => {
                return Ok(Response { status, body: Body::Html(runs.report(id)?) });
            }
        };
        Ok(Response { status, body: Body::Json(body) })
    }
}

impl<R: Runs, S: Service> Service for WithRuns<R, S> {
    fn answer(&self, request: &Request) -> Response {
        let Some(path) = Path::of(&request.path) else { return self.rest.answer(request) };
        let answer = self.dispatch(request.method.as_str(), &path, &request.body);
        answer.unwrap_or_else(|refusal| self.refusal(refusal.status(), &refusal.to_string()))
    }

    fn refusal(&self, status: StatusCode, why: &str) -> Response {
        let kind = if status.is_server_error() { "internal" } else { "validation" };
        error(status, kind, &[why.to_owned()])
    }

    fn methods(&self, path: &str) -> &'static [&'static str] {
        match Path::of(path) {
            None => self.rest.methods(path),
            Some(Path::All) => &["GET", "POST"],
            Some(Path::Stop(_)) => &["POST"],
            Some(_) => &["GET"],
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartRequest {
    /// TOML, as in a file for `sonde bench`.
    plan: String,
}

/// What a path names.
enum Path<'a> {
    All,
    One(&'a str),
    Measurements(&'a str),
    Trials(&'a str),
    Stop(&'a str),
    Report(&'a str),
}

impl Path<'_> {
    /// `None`: none of ours.
    fn of(path: &str) -> Option<Path<'_>> {
        let below: Vec<&str> = path.strip_prefix("/sonde/v1/runs")?.split('/').collect();
        Some(match below[..] {
            [""] => Path::All,
            ["", id] => Path::One(id),
            ["", id, "measurements"] => Path::Measurements(id),
            ["", id, "trials"] => Path::Trials(id),
            ["", id, "stop"] => Path::Stop(id),
            ["", id, "report"] => Path::Report(id),
            _ => return None,
        })
    }
}

/// None of what is told here can fail to be written.
fn written(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Octets of a request with a plan, at most: a hundred times what plans have.
pub const PLAN_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests;
