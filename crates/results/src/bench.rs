//! A benchmark of a device: what was planned, on which bed, and what each measurement found.
//!
//! A run is a folder that grows while it is measured and can be read at any time. `run.json` is
//! [`BenchRun`] without the two lists. `trials.jsonl` has a [`Trial`] a line, `measurements.jsonl`
//! a finished [`Measurement`] a line.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::caveat::CaveatSet;
use crate::run::RunHeader;
use crate::trial::Trial;

/// The layout of these run folders; raised when a reader of the old one would go wrong.
pub const BENCH_SCHEMA_VERSION: u32 = 1;

/// A run of `sonde bench`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchRun {
    /// What every run file begins with; `schema` is [`BENCH_SCHEMA_VERSION`].
    #[serde(flatten)]
    pub header: RunHeader,
    /// What was asked for.
    pub config: BenchConfig,
    /// What it was measured on.
    pub bed: Bed,
    /// Finished measurements, in the order in which they were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measurements: Vec<Measurement>,
    /// All trials, invalid ones included, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<Trial>,
    /// What casts doubt on the whole run.
    pub caveats: CaveatSet,
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchConfig {
    /// The title that the plan gives itself.
    pub title: String,
    /// The command line; empty: there was none.
    #[serde(default)]
    pub command: Vec<String>,
    /// The plan as the instrument understood it, with all defaults filled in.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub settings: serde_json::Value,
    /// The plan, as it was read.
    pub plan: String,
    /// SHA-256 of the plan, hexadecimal.
    pub plan_sha256: String,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// The load generator and analyser, and how they run.
    pub engine: String,
    /// Measurements that the plan expands to.
    pub measurements_planned: u32,
}

/// The test bed, as found when the run began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bed {
    /// How tester and device are joined, one line each: "tester a -- router eth0".
    pub diagram: Vec<String>,
    /// The tester's ports, in the plan's order.
    pub ports: Vec<BedPort>,
    /// Facts of host and device by name: kernel command line, microcode, mitigations,
    /// sysctls, versions, offloads, rings, configuration of the device.
    pub facts: BTreeMap<String, String>,
}

/// A port of the tester.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BedPort {
    /// Its name in the plan: "a".
    pub name: String,
    /// Its interface: "eth1".
    pub interface: String,
    /// The driver of the interface: "veth", "mlx5_core"; empty: it names none.
    pub driver: String,
    /// Nominal speed, bit/s; `None`: it has none (virtual Ethernet).
    pub speed_bps: Option<u64>,
    /// How frames are sent and received there.
    pub mode: String,
}

/// What distinguishes one measurement from the others of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// The procedure, as in a plan: "throughput", "mlrsearch".
    pub procedure: String,
    /// The device, as in the plan; "loop": the tester's ports joined without it.
    pub device: String,
    /// The condition, as in the plan ("kernel", "tuned"); empty: there is but one.
    pub condition: String,
    /// Frame sizes: "64", "imix:aaaaaaabbbbc" (octets with the FCS, RFC 6985).
    pub frame: String,
    /// Mean octets of a frame, with the FCS.
    pub frame_bytes: f64,
    /// "unidirectional" or "bidirectional".
    pub direction: String,
    /// Flows in each direction.
    pub flows: u32,
    /// Load that the plan fixes, as it is written there ("25 Mbit/s", "50 %"); empty: the
    /// procedure finds it.
    pub load: String,
    /// Values of the plan's other sweeps, by name.
    pub sweep: BTreeMap<String, String>,
    /// Layers of optimisation that were applied: an ablation measures every combination.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// Repetition, from 1.
    pub repetition: u32,
}

/// What a procedure found in one case, with the trials it is made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// Unique within the run, made of the case: "throughput/router/kernel/64/1".
    pub id: String,
    /// The combination of parameters that was measured.
    pub case: Case,
    /// Begin and end, ns since 1970 TAI.
    pub time_ns: [i64; 2],
    /// The values that the procedure found, and whether it came to its end.
    pub finding: Finding,
    /// The `number` of each trial behind it, invalid ones included.
    pub trials: Vec<u64>,
    /// What casts doubt on it.
    pub caveats: CaveatSet,
    /// The plan's thresholds for it, and whether they are met.
    pub checks: Vec<Check>,
}

/// What a procedure found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The quantities, the most important one first.
    pub values: Vec<Quantity>,
    /// Whether the procedure came to its end; `false`: what is here was found until then.
    pub complete: bool,
    /// What a reader must know, in sentences.
    pub notes: Vec<String>,
    /// In what the device failed, in sentences: a step of a service activation, a direction in
    /// which nothing ever arrived. Empty: in nothing that was looked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

impl Finding {
    /// The quantity of that name.
    pub fn value(&self, name: &str) -> Option<&Quantity> {
        self.values.iter().find(|q| q.name == name)
    }
}

/// A quantity with its unit and bounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantity {
    /// Its name, by the standard that defines it: "throughput", "latency_p99_9@50".
    pub name: String,
    /// Its unit: "frames/s", "ns", "ratio", "frames", "s".
    pub unit: String,
    /// In `unit`.
    pub value: f64,
    /// Bounds within which the procedure knows it (a search's relevant lower and upper
    /// bound, or a confidence interval, as `notes` say).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<[f64; 2]>,
    /// Samples or trials behind it.
    pub samples: u64,
    /// The tester set the bound, not the device, which may do better than this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tester_limited: bool,
}

impl Quantity {
    /// A value without bounds, from `samples` samples or trials.
    pub fn new(name: impl Into<String>, unit: &str, value: f64, samples: u64) -> Quantity {
        Quantity {
            name: name.into(),
            unit: unit.into(),
            value,
            bounds: None,
            samples,
            tester_limited: false,
        }
    }

    /// The same value with bounds.
    pub fn between(self, low: f64, high: f64) -> Quantity {
        Quantity { bounds: Some([low, high]), ..self }
    }
}

/// A threshold of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// As the plan has it: "throughput >= 1.0e6".
    pub text: String,
    /// The value that it was held against; `None`: the measurement has none of that name.
    pub value: Option<f64>,
    /// Whether it holds. Without a value it does not, and nor is it broken.
    pub pass: bool,
}

impl Check {
    /// Whether there was no value to hold it against.
    pub fn undecided(&self) -> bool {
        self.value.is_none()
    }
}

impl Measurement {
    /// Whether the evidence does not suffice. The procedure did not come to its end, found no
    /// value, or has none for a threshold of the plan.
    pub fn undecided(&self) -> bool {
        !self.finding.complete
            || self.finding.values.is_empty()
            || self.checks.iter().any(Check::undecided)
    }

    /// Whether the device failed: a threshold is broken, or the procedure says so.
    pub fn failed(&self) -> bool {
        !self.finding.failures.is_empty() || self.checks.iter().any(|c| !c.pass && !c.undecided())
    }
}
