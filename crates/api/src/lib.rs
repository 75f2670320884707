//! The station's HTTP API: what may be asked, by whom, and what is answered.
//!
//! Types, routes and the document that is made of them. No I/O, no clock, nothing asynchronous: a
//! server asks [`Backend`], a station is one. To add a route, write it into the file of its
//! resource with its types and a method of that resource's trait. The document and the server
//! walk [`routes`]; then run `cargo run -p sonde-api --example openapi > openapi/sonde-v1.json`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod alerts;
pub mod datum;
mod document;
pub mod etag;
pub mod events;
pub mod flows;
pub mod instant;
pub mod live;
pub mod on_demand;
pub mod openmetrics;
pub mod page;
pub mod params;
pub mod problem;
pub mod readings;
pub mod request;
pub mod ring;
pub mod role;
pub mod route;
pub mod runs;
pub mod sla;
pub mod sql;
pub mod station;
pub mod targets;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use document::document;
pub use problem::{ProblemDetails, ProblemKind};
pub use request::{ApiReply, ApiRequest, Asked, RouteAnswer};
pub use role::{AccessRole, Caller};
pub use route::{ApiRoute, RouteHandler};

use alerts::Alerts;
use events::Events;
use flows::FlowQueries;
use live::Live;
use on_demand::OnDemandProbes;
use readings::Readings;
use runs::BenchRuns;
use sla::Sla;
use sql::SqlQueries;
use station::StationInfo;
use targets::Targets;

/// What answers every route: a station, or something that looks like one in a test. A part that it
/// does not have answers [`ProblemDetails::not_offered`].
pub trait Backend:
    StationInfo
    + Targets
    + Readings
    + Events
    + Alerts
    + Sla
    + FlowQueries
    + BenchRuns
    + SqlQueries
    + Live
    + OnDemandProbes
    + Send
    + Sync
{
}

impl<T> Backend for T where
    T: StationInfo
        + Targets
        + Readings
        + Events
        + Alerts
        + Sla
        + FlowQueries
        + BenchRuns
        + SqlQueries
        + Live
        + OnDemandProbes
        + Send
        + Sync
{
}

/// The table: every route, the same for the document and the server.
pub fn routes() -> Vec<ApiRoute> {
    let parts = [
        station::routes(),
        targets::routes(),
        readings::routes(),
        events::routes(),
        alerts::routes(),
        sla::routes(),
        flows::routes(),
        runs::routes(),
        sql::routes(),
        live::routes(),
        on_demand::routes(),
    ];
    parts.into_iter().flatten().collect()
}

/// Version of the API: of the document, not of Sonde. It grows with every change of the document
/// once a version is blessed (`openapi/blessed`).
pub const API_VERSION: &str = "1.0.0-draft";
/// What every path begins with, but those that other programs know by name (`/probe`).
pub const PREFIX: &str = "/sonde/v1/";
