//! What a station measures: targets, which can be added to a running sender and removed from it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Asked;
use crate::instant::UtcInstant;
use crate::page::{ListPage, PageRequest};
use crate::problem::{ProblemDetails, ProblemKind};
use crate::readings::ReadingState;
use crate::request::{ChangeContext, RouteAnswer};
use crate::route::{ApiRoute, RouteHead, list_params};

/// The targets of all senders.
pub trait Targets {
    /// Those that are asked for, by id. The answer's ETag is the version of all targets: what a
    /// change names.
    fn targets(
        &self,
        ask: &TargetsParams,
        page: &PageRequest,
    ) -> Result<RouteAnswer<ListPage<MeasuredTarget>>, ProblemDetails>;

    /// One of them, with the version of all.
    fn target(&self, id: &str) -> Result<RouteAnswer<MeasuredTarget>, ProblemDetails>;

    /// Adds one to a sender that runs. It is kept over restarts, in no file of the configuration.
    fn add_target(
        &self,
        order: &TargetOrder,
        change: &ChangeContext<'_>,
    ) -> Result<RouteAnswer<MeasuredTarget>, ProblemDetails>;

    /// Changes one that was added so: all but its unit and name. One that stands in a file is a
    /// 409.
    fn change_target(
        &self,
        id: &str,
        order: &TargetOrder,
        change: &ChangeContext<'_>,
    ) -> Result<RouteAnswer<MeasuredTarget>, ProblemDetails>;

    /// Removes one that was added so. One that stands in a file is a 409.
    fn remove_target(&self, id: &str, change: &ChangeContext<'_>) -> Result<(), ProblemDetails>;
}

/// A target.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MeasuredTarget {
    /// Its id.
    pub id: String,
    /// The unit that measures it: `probe.core`.
    pub unit: String,
    /// Its name in tables and results.
    pub name: String,
    /// Name, address, range or prefix, as it was given.
    pub host: String,
    /// Its addresses at present; empty: the name does not resolve.
    pub addresses: Vec<String>,
    /// Why it is not measured, or why nothing is sent to it, and since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<String>,
    /// Labels that it was added with. Its series do not have them.
    pub labels: BTreeMap<String, String>,
    /// Where it stands.
    pub origin: TargetOrigin,
    /// Its series.
    pub series: Vec<u32>,
    /// The worst state of those.
    pub state: ReadingState,
    /// Since when it is measured as it is.
    pub since: UtcInstant,
}

/// Where a target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetOrigin {
    /// In a file of the configuration.
    File,
    /// It was added by this API.
    Api,
}

/// A target that is to be measured.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetOrder {
    /// The unit that is to measure it: `probe.core`.
    pub unit: String,
    /// Name, address, range or prefix; 1 to 255 characters.
    pub host: String,
    /// What to call it; absent: its host. No other target of the unit is called so.
    #[serde(default)]
    pub name: Option<String>,
    /// Labels, up to 16: lists show them, and `q` finds them. Its series do not have them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What it sets otherwise than its unit: the keys of a target in the unit's settings
    /// (`sonde schema --settings probe`), as `{"stream": {"interval": "100ms"}}`.
    #[serde(default)]
    pub settings: Map<String, Value>,
}

/// Parameters of the list of targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetsParams {
    /// Only targets of these units.
    #[serde(default)]
    pub unit: Vec<String>,
    /// Only targets in whose name, host or labels this text stands, in any case.
    pub q: Option<String>,
    /// Items of a page, 1 to 1,000; absent: 100.
    pub limit: Option<u32>,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

/// Parameters of one target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetParams {
    /// Its id.
    pub id: String,
}

list_params!(TargetsParams);

impl TargetsParams {
    /// Whether it asks for this target.
    pub fn wants(&self, target: &MeasuredTarget) -> bool {
        let texts = [&target.name, &target.host].into_iter().chain(target.labels.values());
        let found = self.q.as_ref().is_none_or(|q| {
            let q = q.to_lowercase();
            texts.into_iter().any(|text| text.to_lowercase().contains(&q))
        });
        found && (self.unit.is_empty() || self.unit.contains(&target.unit))
    }
}

impl TargetOrder {
    /// Whether it can be, whatever the units are.
    ///
    /// # Errors
    /// 422 with the part that cannot.
    fn check(&self) -> Result<(), ProblemDetails> {
        let wrong = |pointer: &str, why: &str| {
            Err(ProblemDetails::of_body(ProblemKind::Unprocessable, pointer, why))
        };
        let texts = self.labels.iter().flat_map(|(name, value)| [name, value]);
        let long = texts.into_iter().any(|text| text.len() > TEXT_MAX);
        match () {
            () if !(1..=TEXT_MAX).contains(&self.host.len()) => {
                wrong("/host", "it has 1 to 255 characters")
            }
            () if self.host.chars().any(|c| c.is_control() || c.is_whitespace()) => {
                wrong("/host", "it has no spaces and no control characters")
            }
            () if self.name.as_ref().is_some_and(|n| !(1..=TEXT_MAX).contains(&n.len())) => {
                wrong("/name", "it has 1 to 255 characters")
            }
            () if self.labels.len() > LABELS_MAX => wrong("/labels", "there are at most 16"),
            () if long => wrong("/labels", "names and values have at most 255 characters"),
            () => Ok(()),
        }
    }
}

pub(crate) fn routes() -> Vec<ApiRoute> {
    let head = |path, operation, summary| RouteHead { path, operation, summary };
    vec![
        ApiRoute::list(
            head("/sonde/v1/targets", "list_targets", "What is measured, with the version of all"),
            |backend, asked, page| backend.targets(&asked.params, page),
        ),
        ApiRoute::create(
            head("/sonde/v1/targets", "add_target", "Adds a target to a sender that runs"),
            |backend, asked: &Asked<'_, crate::route::NoParams, TargetOrder>| {
                asked.body.check()?;
                let answer = backend.add_target(&asked.body, &asked.change())?;
                let path =
                    format!("/sonde/v1/targets/{}", crate::params::encode_percent(&answer.body.id));
                Ok(RouteAnswer { location: Some(path), ..answer })
            },
        )
        .needs_version(),
        ApiRoute::get(
            head("/sonde/v1/targets/{id}", "get_target", "A target, with the version of all"),
            |backend, asked: &Asked<'_, TargetParams>| backend.target(&asked.params.id),
        ),
        ApiRoute::put(
            head("/sonde/v1/targets/{id}", "change_target", "Changes a target that was added here"),
            |backend, asked: &Asked<'_, TargetParams, TargetOrder>| {
                asked.body.check()?;
                backend.change_target(&asked.params.id, &asked.body, &asked.change())
            },
        )
        .needs_version(),
        ApiRoute::delete(
            head("/sonde/v1/targets/{id}", "remove_target", "Removes a target that was added here"),
            |backend, asked: &Asked<'_, TargetParams>| {
                backend.remove_target(&asked.params.id, &asked.change())
            },
        )
        .needs_version(),
    ]
}

/// Characters of a host, name, or label, at most.
const TEXT_MAX: usize = 255;
/// Labels of a target, at most.
const LABELS_MAX: usize = 16;
