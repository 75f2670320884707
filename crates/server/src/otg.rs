//! The Open Traffic Generator model over REST, version [`API_VERSION`]: the paths, their
//! bodies, and errors in the model's own format. docs/otg.md says what of it is there.

pub mod config;
pub mod control;
pub mod devices;
pub mod metrics;
pub mod pattern;
pub mod ports;

use std::sync::{Arc, Mutex};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::config::Config;
use self::control::{Change, ControlState, FlowTransmit, PortCapture};
use self::devices::{Neighbor, StatesChoice, StatesRequest};
use self::metrics::{
    FlowMetric, FlowMetricsRequest, MetricsChoice, MetricsRequest, PortMetric, PortMetricsRequest,
    columns,
};
use self::ports::CaptureRequest;
use crate::http::{Body, Ends, Method, Request, Response, Service, StatusCode};

/// The version of the model, as `/capabilities/version` tells it: any that is compatible with
/// it by the rules of semantic versioning will do for a client.
pub const API_VERSION: &str = "^1.0.0";

/// What generates the traffic.
pub trait TrafficGenerator: Send + Sync + 'static {
    /// Takes the place of whatever was configured, and stops that. Returns warnings. `client` is
    /// how the request came: that way must stay open.
    ///
    /// # Errors
    /// Every reason why it cannot be done. Then nothing is configured.
    fn configure(&self, config: Config, client: Ends) -> Result<Vec<String>, Problem>;

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

    /// What the model has no place for, by flow: percentiles, jitter, reordering.
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
    /// With one reason.
    pub fn invalid(why: impl Into<String>) -> Problem {
        Problem::Invalid(vec![why.into()])
    }
}

/// The model's REST interface to a traffic generator.
pub struct Otg<G> {
    generator: Arc<G>,
    /// As the client sent it.
    config: Mutex<Value>,
}

impl<G: TrafficGenerator> Otg<G> {
    /// With nothing configured.
    pub fn new(generator: Arc<G>) -> Otg<G> {
        Otg { generator, config: Mutex::new(json!({})) }
    }

    fn config(&self) -> std::sync::MutexGuard<'_, Value> {
        // A panic elsewhere leaves the last configuration whole.
        self.config.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn dispatch(&self, request: &Request) -> Result<Value, Problem> {
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/config") => self.set_config(&request.body, request.ends),
            ("GET", "/config") => Ok(self.config().clone()),
            ("POST", "/control/state") => self.control(&request.body),
            ("POST", "/monitor/metrics") => self.metrics(&request.body),
            ("POST", "/monitor/states") => self.states(&request.body),
            ("GET", "/capabilities/version") => Ok(json!({
                "api_spec_version": API_VERSION,
                "sdk_version": "",
                "app_version": env!("CARGO_PKG_VERSION"),
            })),
            ("GET", "/sonde/v1/flows") => self.generator.details(),
            (method, path) => Err(Problem::NotImplemented(format!(
                "{method} {path} is not supported: see docs/otg.md for what is"
            ))),
        }
    }

    fn set_config(&self, body: &[u8], client: Ends) -> Result<Value, Problem> {
        let config: Config = read(body)?;
        // Held until the end: two configurations at a time would mix.
        let mut kept = self.config();
        *kept = json!({});
        let warnings = self.generator.configure(config, client)?;
        *kept = serde_json::from_slice(body).unwrap_or_default();
        Ok(json!({ "warnings": warnings }))
    }

    fn control(&self, body: &[u8]) -> Result<Value, Problem> {
        let state: ControlState = read(body)?;
        let warnings = match state.change().map_err(Problem::invalid)? {
            Change::Flows(change) => self.generator.transmit(&change)?,
            Change::Protocols(start) => self.generator.protocols(start)?,
            Change::Captures(change) => self.generator.capture(&change)?,
        };
        Ok(json!({ "warnings": warnings }))
    }

    fn metrics(&self, body: &[u8]) -> Result<Value, Problem> {
        let request: MetricsRequest = read(body)?;
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
}

impl<G: TrafficGenerator> Otg<G> {
    fn states(&self, body: &[u8]) -> Result<Value, Problem> {
        let request: StatesRequest = read(body)?;
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

impl<G: TrafficGenerator> Service for Otg<G> {
    fn answer(&self, request: &Request) -> Response {
        let capture = request.method == Method::POST && request.path == "/monitor/capture";
        let answer = match capture {
            true => read(&request.body).and_then(|r| self.generator.captured(&r)).map(Body::Octets),
            false => self.dispatch(request).map(Body::Json),
        };
        match answer {
            Ok(body) => Response { status: StatusCode::OK, body },
            Err(Problem::Invalid(errors)) => error(StatusCode::BAD_REQUEST, "validation", &errors),
            Err(Problem::Busy(why)) => error(StatusCode::CONFLICT, "validation", &[why]),
            Err(Problem::Internal(why)) => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "internal", &[why])
            }
            Err(Problem::NotImplemented(why)) => {
                error(StatusCode::NOT_IMPLEMENTED, "validation", &[why])
            }
        }
    }

    fn refusal(&self, status: StatusCode, why: &str) -> Response {
        let kind = if status.is_server_error() { "internal" } else { "validation" };
        error(status, kind, &[why.to_owned()])
    }

    fn methods(&self, path: &str) -> &'static [&'static str] {
        match path {
            "/config" => &["GET", "POST", "PATCH"],
            "/config/append" | "/config/delete" => &["PATCH"],
            "/control/state" | "/control/action" => &["POST"],
            "/monitor/metrics" | "/monitor/states" | "/monitor/capture" => &["POST"],
            "/capabilities/version" | "/sonde/v1/flows" => &["GET"],
            _ => &[],
        }
    }
}

/// The model's Error object.
pub(crate) fn error(status: StatusCode, kind: &str, errors: &[String]) -> Response {
    let body = json!({ "code": status.as_u16(), "kind": kind, "errors": errors });
    Response { status, body: Body::Json(body) }
}

/// Reads a body; a complaint says where in it.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let deserializer = &mut serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(deserializer).map_err(|e| {
        let place = match e.path().to_string() {
            place if place == "." => String::new(),
            place => format!("{place}: "),
        };
        Problem::invalid(format!("{place}{}", supported(&e.inner().to_string())))
    })
}

/// What serde says of a field or a choice that is none of ours, in words: most of them the model
/// has, and Sonde does not.
fn supported(message: &str) -> String {
    for kind in ["unknown field ", "unknown variant "] {
        let Some(rest) = message.strip_prefix(kind) else { continue };
        // The place in the text says less than the place in the configuration.
        let rest = rest.split(" at line ").next().unwrap_or(rest);
        let (name, others) = rest.split_once(", ").unwrap_or((rest, ""));
        let others = others.strip_prefix("expected ").unwrap_or("nothing");
        let others = others.strip_prefix("one of ").unwrap_or(others);
        return format!("{name} is not supported; what is: {others} (docs/otg.md)");
    }
    message.to_owned()
}

#[cfg(test)]
mod tests;
