//! The Open Traffic Generator model over REST, version [`API_VERSION`]: the paths, their
//! bodies, and errors in the model's own format. docs/otg.md says what of it is there.

pub mod config;
pub mod control;
pub mod devices;
pub mod metrics;
mod objects;
pub mod pattern;
pub mod ports;

use std::sync::{Arc, Mutex};

use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use hyper::{Method, StatusCode, Uri};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::config::Config;
use self::control::{ControlState, FlowTransmit, PortCapture, StateChange};
use self::devices::{Neighbor, StatesChoice, StatesRequest};
use self::metrics::{
    FlowMetric, FlowMetricsRequest, MetricsChoice, MetricsRequest, PortMetric, PortMetricsRequest,
    columns,
};
use self::objects::ObjectsOnly;
use self::ports::CaptureRequest;
use crate::http::{self, ConnectionAddresses, Request, error};

/// The version of the model, as `/capabilities/version` returns it. Clients accept any that is
/// compatible with it by the rules of semantic versioning.
pub const API_VERSION: &str = "^1.0.0";

/// What generates the traffic.
pub trait OtgBackend: Send + Sync + 'static {
    /// Replaces and stops whatever was configured. Returns warnings. `client` is how the request
    /// came: that way must stay open.
    ///
    /// # Errors
    /// Every reason why it cannot be done. Then nothing is configured.
    fn configure(
        &self,
        config: Config,
        client: ConnectionAddresses,
    ) -> Result<Vec<String>, Problem>;

    /// Starts, stops, pauses or resumes flows. Returns warnings.
    ///
    /// # Errors
    /// No such flow; a port that fails.
    fn transmit(&self, change: &FlowTransmit) -> Result<Vec<String>, Problem>;

    /// Has the devices ask for their gateways and answer for their addresses, or no longer.
    /// Returns warnings.
    ///
    /// # Errors
    /// Nothing is configured; a port that fails.
    fn protocols(&self, start: bool) -> Result<Vec<String>, Problem>;

    /// Starts or stops captures. Returns warnings.
    ///
    /// # Errors
    /// No such port, or no capture of it is configured; a port that fails.
    fn capture(&self, change: &PortCapture) -> Result<Vec<String>, Problem>;

    /// Stops the capture of a port, and returns it as a file.
    ///
    /// # Errors
    /// As of `capture`.
    fn captured(&self, request: &CaptureRequest) -> Result<Vec<u8>, Problem>;

    /// The gateways of all devices.
    ///
    /// # Errors
    /// Nothing is configured.
    fn neighbors(&self) -> Result<Vec<Neighbor>, Problem>;

    /// Metrics of these flows, or of all; flows whose metrics were not enabled have none.
    ///
    /// # Errors
    /// No such flow; a port that has failed.
    fn flow_metrics(&self, names: &[String]) -> Result<Vec<FlowMetric>, Problem>;

    /// Metrics of these ports, or of all.
    ///
    /// # Errors
    /// No such port; a port that has failed.
    fn port_metrics(&self, names: &[String]) -> Result<Vec<PortMetric>, Problem>;

    /// What the model has no field for, by flow: percentiles, jitter, reordering.
    ///
    /// # Errors
    /// A port that has failed.
    fn details(&self) -> Result<Value, Problem>;
}

/// Why a request is not granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The request asks for what cannot be; all that is wrong with it.
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
    /// It could be, but not here and now.
    #[error("{0}")]
    Internal(String),
    /// It cannot be while something else is under way.
    #[error("{0}")]
    Busy(String),
    /// The model has it, Sonde does not.
    #[error("{0}")]
    NotImplemented(String),
}

impl Problem {
    pub fn invalid(why: impl Into<String>) -> Problem {
        Problem::Invalid(vec![why.into()])
    }
}

/// The model's paths, for a traffic generator with which nothing is configured.
pub fn routes<G: OtgBackend>(generator: Arc<G>) -> Router {
    let otg = Arc::new(Otg { generator, config: Mutex::new(json!({})) });
    let on = |answer: fn(&Otg<G>, &Request) -> Result<Value, Problem>| {
        let otg = otg.clone();
        move |request: Request| http::work(move || answer(&otg, &request).map(Json))
    };
    let captured = {
        let otg = otg.clone();
        move |request: Request| http::work(move || otg.generator.captured(&read(&request.body)?))
    };
    Router::new()
        .route(
            "/config",
            get(on(|otg, _| Ok(otg.config().clone())))
                .post(on(Otg::set_config))
                .patch(not_implemented),
        )
        .route("/config/append", patch(not_implemented))
        .route("/config/delete", patch(not_implemented))
        .route("/control/state", post(on(Otg::control)))
        .route("/control/action", post(not_implemented))
        .route("/monitor/metrics", post(on(Otg::metrics)))
        .route("/monitor/states", post(on(Otg::states)))
        .route("/monitor/capture", post(captured))
        .route("/capabilities/version", get(on(|_, _| Ok(version()))))
        .route("/sonde/v1/flows", get(on(|otg, _| otg.generator.details())))
}

async fn not_implemented(method: Method, uri: Uri, _: Request) -> Problem {
    Problem::NotImplemented(format!(
        "{method} {} is not supported: see docs/otg.md for what is",
        uri.path()
    ))
}

fn version() -> Value {
    json!({
        "api_spec_version": API_VERSION,
        "sdk_version": "",
        "app_version": env!("CARGO_PKG_VERSION"),
    })
}

struct Otg<G> {
    generator: Arc<G>,
    /// As the client sent it.
    config: Mutex<Value>,
}

impl<G: OtgBackend> Otg<G> {
    fn config(&self) -> std::sync::MutexGuard<'_, Value> {
        // A panic elsewhere leaves the last configuration whole.
        self.config.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn set_config(&self, request: &Request) -> Result<Value, Problem> {
        let config: Config = read(&request.body)?;
        // Held until the end: two configurations at a time would mix.
        let mut kept = self.config();
        *kept = json!({});
        let warnings = self.generator.configure(config, request.ends)?;
        *kept = serde_json::from_slice(&request.body).unwrap_or_default();
        Ok(json!({ "warnings": warnings }))
    }

    fn control(&self, request: &Request) -> Result<Value, Problem> {
        let state: ControlState = read(&request.body)?;
        let warnings = match state.change().map_err(Problem::invalid)? {
            StateChange::Flows(change) => self.generator.transmit(&change)?,
            StateChange::Protocols(start) => self.generator.protocols(start)?,
            StateChange::Captures(change) => self.generator.capture(&change)?,
        };
        Ok(json!({ "warnings": warnings }))
    }

    fn metrics(&self, request: &Request) -> Result<Value, Problem> {
        let request: MetricsRequest = read(&request.body)?;
        Ok(match request.choice {
            MetricsChoice::Flow => {
                let FlowMetricsRequest { flow_names, metric_names, .. } =
                    request.flow.unwrap_or_default();
                let all = self.generator.flow_metrics(&flow_names)?;
                let keys = ["name", "port_tx", "port_rx"];
                let rows: Vec<Value> =
                    all.iter().map(|m| columns(m, &keys, &metric_names)).collect();
                json!({ "choice": "flow_metrics", "flow_metrics": rows })
            }
            MetricsChoice::Port => {
                let PortMetricsRequest { port_names, column_names } =
                    request.port.unwrap_or_default();
                let all = self.generator.port_metrics(&port_names)?;
                let rows: Vec<Value> =
                    all.iter().map(|m| columns(m, &["name"], &column_names)).collect();
                json!({ "choice": "port_metrics", "port_metrics": rows })
            }
        })
    }

    fn states(&self, request: &Request) -> Result<Value, Problem> {
        let request: StatesRequest = read(&request.body)?;
        let (choice, v4, of) = match request.choice {
            StatesChoice::Ipv4Neighbors => ("ipv4_neighbors", true, request.ipv4_neighbors),
            StatesChoice::Ipv6Neighbors => ("ipv6_neighbors", false, request.ipv6_neighbors),
        };
        let names = of.unwrap_or_default().ethernet_names;
        let all = self.generator.neighbors()?;
        if let Some(name) = names.iter().find(|n| !all.iter().any(|a| &a.ethernet_name == *n)) {
            return Err(Problem::invalid(format!("there is no interface '{name}' with addresses")));
        }
        let wanted = |n: &&Neighbor| {
            n.address.is_ipv4() == v4 && (names.is_empty() || names.contains(&n.ethernet_name))
        };
        let rows: Vec<Value> = all.iter().filter(wanted).map(Neighbor::row).collect();
        Ok(json!({ "choice": choice, choice: rows }))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        match self {
            Problem::Invalid(errors) => error(StatusCode::BAD_REQUEST, "validation", &errors),
            Problem::Busy(why) => error(StatusCode::CONFLICT, "validation", &[why]),
            Problem::Internal(why) => error(StatusCode::INTERNAL_SERVER_ERROR, "internal", &[why]),
            Problem::NotImplemented(why) => {
                error(StatusCode::NOT_IMPLEMENTED, "validation", &[why])
            }
        }
    }
}

/// Reads a body; a complaint says where in it.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let json = &mut serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(ObjectsOnly(&mut *json)).map_err(|e| {
        let path = match e.path().to_string() {
            path if path == "." => String::new(),
            path => format!("{path}: "),
        };
        Problem::invalid(format!("{path}{}", supported(&e.inner().to_string())))
    })?;
    json.end().map_err(|e| Problem::invalid(format!("behind the object: {e}")))?;
    Ok(value)
}

/// A message of serde about an unknown field or choice, as one for people: most of them the model
/// has, and Sonde does not.
fn supported(message: &str) -> String {
    for kind in ["unknown field ", "unknown variant "] {
        let Some(rest) = message.strip_prefix(kind) else { continue };
        // The line and column say less than the path in the configuration.
        let rest = rest.split(" at line ").next().unwrap_or(rest);
        let (name, others) = rest.split_once(", ").unwrap_or((rest, ""));
        let others = others.strip_prefix("expected ").unwrap_or("nothing");
        let others = others.strip_prefix("one of ").unwrap_or(others);
        return format!("{name} is not supported; what is: {others} (docs/otg.md)");
    }
    if message.starts_with("invalid type: sequence, expected struct ") {
        return "a list stands where an object is wanted".into();
    }
    message.to_owned()
}

#[cfg(test)]
mod tests;
