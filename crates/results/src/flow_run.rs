//! A whole run of flow metering: what was asked, what was seen, what was exported where,
//! and what was left out.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::caveat::CaveatSet;
use crate::flow::FlowRecord;
use crate::rtt_run::RttPoint;
use crate::run::RunHeader;

/// The layout of these run files; raised when a reader of the old one would go wrong.
pub const FLOW_SCHEMA_VERSION: u32 = 1;

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowRunConfig {
    /// The command line; empty: there was none.
    #[serde(default)]
    pub command: Vec<String>,
    /// All that was asked for, as the instrument understood it.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub settings: serde_json::Value,
    /// The engine, and how it runs.
    pub engine: String,
    /// Metering threads, each with a cache of its own.
    pub workers: u32,
    /// Flows that all caches hold, at most.
    pub flows_max: u64,
    /// Idle time-out, ns.
    pub idle_ns: i64,
    /// Active time-out, ns.
    pub active_ns: i64,
    /// Both directions in one record.
    pub biflow: bool,
    /// Which packets were metered: "all", "1 of 100, systematic".
    pub selection: String,
}

/// Packets and bytes of one IP protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProtocolTotal {
    /// IP protocol number.
    pub protocol: u8,
    /// Packets of this protocol that were metered.
    pub packets: u64,
    /// Bytes of their IP packets.
    pub bytes: u64,
}

/// What went to one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportTotal {
    /// Where: "udp://192.0.2.9:4739", "flows.ipfix".
    pub to: String,
    /// What: "IPFIX, one record a direction, ms".
    pub form: String,
    /// Records handed to the exporter.
    pub records: u64,
    /// Counters by name, losses included.
    pub counters: BTreeMap<String, u64>,
}

/// A run file of `sonde flow`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowRun {
    /// What every run file begins with; `schema` is [`FLOW_SCHEMA_VERSION`].
    #[serde(flatten)]
    pub header: RunHeader,
    /// What was asked for.
    pub config: FlowRunConfig,
    /// Where packets were seen; `point` elsewhere is an index of this.
    pub points: Vec<RttPoint>,
    /// What was metered, by protocol, most bytes first.
    pub protocols: Vec<ProtocolTotal>,
    /// Records by why they were made.
    pub ends: BTreeMap<String, u64>,
    /// The records with most bytes, most first, without what was kept beyond the basic record.
    pub top: Vec<FlowRecord>,
    /// What went to each destination.
    pub exports: Vec<ExportTotal>,
    /// Counters of input, caches and output. Packets and bytes offered are those exported,
    /// plus those dropped under their reasons.
    pub counters: BTreeMap<String, u64>,
    /// What casts doubt on the run.
    pub caveats: CaveatSet,
}
