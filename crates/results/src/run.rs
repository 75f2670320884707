//! A whole run: what was asked, by whom it was measured, what came out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::caveat::CaveatSet;
use crate::hist::Hist;
use crate::record::{Interval, StreamInfo};

/// The layout of run files; raised when a reader of the old one would go wrong.
pub const SCHEMA_VERSION: u32 = 1;

/// The measuring host, as found when the run began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Host")]
pub struct HostInfo {
    /// The host's name, as the kernel gives it (`uname -n`).
    pub name: String,
    /// Release of the kernel (`uname -r`).
    pub kernel: String,
    /// Model of the processor, as /proc/cpuinfo names it.
    pub cpu: String,
    /// Processors that the process may use.
    pub cpus: u32,
    /// The kernel's clock source.
    pub clock_source: String,
    /// TAI - UTC by the kernel, seconds (0: the kernel does not know it).
    pub tai_offset_s: i32,
    /// Whether the kernel believes its clock synchronised (adjtimex).
    pub clock_synchronised: bool,
    /// The kernel's estimate of its clock's greatest error, ns (adjtimex maxerror).
    pub clock_max_error_ns: i64,
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunConfig {
    /// The command line; empty: there was none.
    #[serde(default)]
    pub command: Vec<String>,
    /// All that was asked for, as the instrument understood it.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub settings: serde_json::Value,
    /// The engine, and how it runs.
    pub engine: String,
    /// A probe is lost after this, ns (Tmax of RFC 7680).
    pub timeout_ns: i64,
    /// Length of an interval record, ns.
    pub interval_ns: i64,
    /// Sends later than this count as late, ns.
    pub late_limit_ns: i64,
    /// Seed of everything random in the run.
    pub seed: u64,
}

/// The instrument's own behaviour during the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// How late packets were sent, ns.
    pub send_lateness: Hist,
    /// Pauses of the sending thread longer than the watchdog's threshold, ns.
    pub pauses: Hist,
    /// Counters of the packet engine and the instrument, by name. Drops included.
    pub counters: BTreeMap<String, u64>,
}

/// What every run file begins with, whatever the instrument.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunHeader {
    /// The layout of the file; each instrument counts its own.
    pub schema: u32,
    /// Version of Sonde that wrote the file: "0.1.0".
    pub version: String,
    /// The instrument, by its command: "probe", "rtt".
    pub instrument: String,
    /// Start, ns since 1970 UTC where it is written, but of benchmarks TAI: of a capture file,
    /// its first packet.
    pub start_ns: i64,
    /// End, on the scale of `start_ns`.
    pub end_ns: i64,
    /// The measuring host; of a capture file, the host that read it.
    pub host: HostInfo,
}

/// A run file of `sonde probe`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// What every run file begins with; `schema` is [`SCHEMA_VERSION`].
    #[serde(flatten)]
    pub header: RunHeader,
    /// What was asked for.
    pub config: RunConfig,
    /// The streams that were measured; other records give an index of this.
    pub streams: Vec<StreamInfo>,
    /// Each stream over the whole run, in the order of `streams`.
    pub totals: Vec<Interval>,
    /// All streams together over the whole run.
    pub overall: Interval,
    /// The instrument's own behaviour.
    pub health: Health,
    /// What casts doubt on the run.
    pub caveats: CaveatSet,
}
