//! Flow records added up: the largest, and how they went over time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Asked;
use crate::datum::{DatumColumn, ReadingUnit};
use crate::instant::{GivenInstant, QueryRange};
use crate::problem::{ProblemDetails, ProblemKind};
use crate::readings::{AnswerLevel, POINTS_MAX};
use crate::route::{ApiRoute, RouteHead};

/// What answers questions about flows.
pub trait FlowQueries {
    /// The largest, and the rest in one row.
    fn flow_top(&self, ask: &FlowQuery) -> Result<FlowTopTable, ProblemDetails>;

    /// The same over time.
    fn flow_points(&self, ask: &FlowQuery, points: u32) -> Result<FlowPointTable, ProblemDetails>;
}

/// What flows may have in common.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FlowField {
    /// The unit that exported them.
    Exporter,
    /// The interface.
    Interface,
    /// Protocol of IP.
    Protocol,
    /// The service's port; of ICMP type and code.
    Port,
    /// What the application layer is.
    App,
    /// Autonomous system of the source.
    SrcAs,
    /// Autonomous system of the destination.
    DstAs,
    /// Source network: /24 or /48.
    SrcNet,
    /// Destination network: /24 or /48.
    DstNet,
    /// Source address: only as long as single records are kept.
    Src,
    /// Destination address: likewise.
    Dst,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowUnit {
    /// Bits a second of IP, both directions.
    #[default]
    Bps,
    /// Packets a second, both directions.
    Pps,
    /// Flow records a second.
    Fps,
}

/// By what the largest are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowRank {
    /// Their mean.
    #[default]
    Avg,
    /// Their greatest point.
    Max,
    /// Their last point.
    Last,
}

/// A question about flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowQuery {
    /// Of this time.
    pub range: QueryRange,
    /// What rows have in common: 1 to 4.
    pub fields: Vec<FlowField>,
    /// What is counted.
    pub unit: FlowUnit,
    /// So many rows, the rest is one: 1 to 100.
    pub limit: u32,
    /// By what the largest are chosen.
    pub rank: FlowRank,
    /// Only flows with these values.
    pub only: Vec<(FlowField, String)>,
}

/// The largest, and the rest.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FlowTopTable {
    /// How finely it was computed.
    pub computed: AnswerLevel,
    /// What rows have in common.
    pub fields: Vec<FlowField>,
    /// For each row the values of those; the last row is the rest, and has none.
    pub rows: Vec<Vec<String>>,
    /// `avg`, `min`, `max`, `last`, `p95`, `total`, each as long as `rows`.
    pub columns: Vec<DatumColumn>,
    /// What stands in doubt: sampling, trimmed hosts.
    pub notes: FlowNotes,
}

/// The largest over time, and the rest.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FlowPointTable {
    /// How finely it was computed.
    pub computed: AnswerLevel,
    /// What rows have in common.
    pub fields: Vec<FlowField>,
    /// Begin of each point's window, ms since 1970 UTC.
    pub at_ms: Vec<i64>,
    /// For each row the values of `fields`; the last row is the rest, and has none.
    pub rows: Vec<Vec<String>>,
    /// For each row its points, each as long as `at_ms`.
    pub points: Vec<DatumColumn>,
    /// What stands in doubt: sampling, trimmed hosts.
    pub notes: FlowNotes,
}

/// What a sum of flows leaves open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FlowNotes {
    /// Share (0..=1) of the octets that sampling stands for.
    pub sampled_share: f64,
    /// Share (0..=1) of the octets in rows whose hosts a roll-up did not keep by name.
    pub trimmed_share: f64,
}

/// Parameters of the largest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowTopParams {
    /// Begin; absent: an hour before the end.
    pub from: Option<GivenInstant>,
    /// End; absent: now.
    pub to: Option<GivenInstant>,
    /// What rows have in common, 1 to 4: `src_as,dst_as`.
    pub dim: Vec<FlowField>,
    /// What is counted; absent: `bps`.
    #[serde(default)]
    pub unit: FlowUnit,
    /// Rows, 1 to 100; absent: 10. The rest is one.
    pub limit: Option<u32>,
    /// By what the largest are chosen; absent: `avg`.
    #[serde(default)]
    pub limit_by: FlowRank,
    /// Only flows with these values: `protocol=17,port=53`.
    #[serde(default)]
    pub only: Vec<String>,
}

/// Parameters of flows over time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowPointsParams {
    /// Begin; absent: an hour before the end.
    pub from: Option<GivenInstant>,
    /// End; absent: now.
    pub to: Option<GivenInstant>,
    /// What rows have in common, 1 to 4: `src_as,dst_as`.
    pub dim: Vec<FlowField>,
    /// What is counted; absent: `bps`.
    #[serde(default)]
    pub unit: FlowUnit,
    /// Rows, 1 to 100; absent: 10. The rest is one.
    pub limit: Option<u32>,
    /// By what the largest are chosen; absent: `avg`.
    #[serde(default)]
    pub limit_by: FlowRank,
    /// Only flows with these values: `protocol=17,port=53`.
    #[serde(default)]
    pub only: Vec<String>,
    /// Points, 1 to 5,000; absent: 300.
    pub points: Option<u32>,
}

impl FlowUnit {
    /// The unit of columns.
    pub fn unit(self) -> ReadingUnit {
        match self {
            FlowUnit::Bps => ReadingUnit::BitsPerS,
            FlowUnit::Pps => ReadingUnit::PacketsPerS,
            FlowUnit::Fps => ReadingUnit::Count,
        }
    }
}

fn query(asked: &Asked<'_, FlowTopParams>) -> Result<FlowQuery, ProblemDetails> {
    let params = &asked.params;
    let wrong = |name: &str, why: String| {
        Err(ProblemDetails::of_parameter(ProblemKind::Unprocessable, name, why))
    };
    if !(1..=4).contains(&params.dim.len()) {
        return wrong("dim", format!("has {}; it has 1 to 4", params.dim.len()));
    }
    let limit = params.limit.unwrap_or(10);
    if !(1..=100).contains(&limit) {
        return wrong("limit", format!("{limit} is out of range; it is 1 to 100"));
    }
    let mut only = Vec::new();
    for text in &params.only {
        let parsed = text.split_once('=').and_then(|(field, value)| {
            let field = serde_json::from_value(field.into()).ok()?;
            Some((field, value.to_owned()))
        });
        let Some(parsed) = parsed else {
            return wrong("only", format!("'{text}' is no field=value, as protocol=17"));
        };
        only.push(parsed);
    }
    Ok(FlowQuery {
        range: asked.range(params.from, params.to)?,
        fields: params.dim.clone(),
        unit: params.unit,
        limit,
        rank: params.limit_by,
        only,
    })
}

pub(crate) fn routes() -> Vec<ApiRoute> {
    let head = |path, operation, summary| RouteHead { path, operation, summary };
    vec![
        ApiRoute::get(
            head("/sonde/v1/flows/top", "flow_top", "The largest flows, and the rest"),
            |backend, asked| Ok(backend.flow_top(&query(asked)?)?.into()),
        ),
        ApiRoute::get(
            head("/sonde/v1/flows/points", "flow_points", "The largest flows over time"),
            |backend, asked: &Asked<'_, FlowPointsParams>| {
                let params = asked.params.clone();
                let points = params.points.unwrap_or(300);
                if !(1..=POINTS_MAX).contains(&points) {
                    let why = format!("{points} is out of range; it is 1 to {POINTS_MAX}");
                    let kind = ProblemKind::Unprocessable;
                    return Err(ProblemDetails::of_parameter(kind, "points", why));
                }
                let top = FlowTopParams {
                    from: params.from,
                    to: params.to,
                    dim: params.dim,
                    unit: params.unit,
                    limit: params.limit,
                    limit_by: params.limit_by,
                    only: params.only,
                };
                let Asked { now, caller, if_match, .. } = *asked;
                let top = Asked { params: top, body: (), now, caller, if_match };
                Ok(backend.flow_points(&query(&top)?, points)?.into())
            },
        ),
    ]
}
