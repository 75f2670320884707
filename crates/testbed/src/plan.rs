//! The plan of a benchmark, as a TOML file says it: test bed, workload, procedures,
//! conditions, and what must hold.
//!
//! What is typed here is checked when it is read; a complaint names the line. docs/bench.md
//! describes every key.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_bpf::load_gen::XdpGenerator;
use sonde_meter::load::FCS_LEN;
use sonde_port::{af_packet, af_xdp};
use sonde_run::change::{Change, restart};
use toml::Spanned;

use crate::procedures::ProcedureKeys;

pub use crate::plan_values::{FrameSizes, IntendedLoad, Ns, Prefixes, Rate, Threshold};
pub use sonde_run::error::SettingsError as PlanError;
pub use sonde_run::toml_file::TomlText;

/// What the TOML file of a plan holds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BenchPlan {
    /// For the report's head.
    pub title: String,
    /// Of everything random: order, ports, genomes, resampling.
    #[serde(default = "one")]
    pub seed: u64,
    /// How tester and device are joined.
    #[serde(default)]
    pub bed: BedPlan,
    /// The devices under test.
    #[serde(default, rename = "device")]
    #[schemars(with = "Vec<DevicePlan>")]
    pub devices: Vec<Spanned<DevicePlan>>,
    /// Hosts that have ports (docs/agent.md).
    #[serde(default, rename = "agent")]
    pub agents: Vec<AgentPlan>,
    /// How we show agents who we are.
    pub controller: Option<ControllerPlan>,
    #[serde(default)]
    pub workload: WorkloadPlan,
    /// What is measured; the keys of each depend on its kind.
    #[serde(default, rename = "procedure")]
    #[schemars(with = "Vec<BTreeMap<String, serde_json::Value>>")]
    pub procedures: Vec<Spanned<ProcedureKeys>>,
    /// States of the device to compare.
    #[serde(default, rename = "condition")]
    #[schemars(with = "Vec<ConditionPlan>")]
    pub conditions: Vec<Spanned<ConditionPlan>>,
    /// Which part each of several optimisations has.
    #[schemars(with = "Option<AblationPlan>")]
    pub ablation: Option<Spanned<AblationPlan>>,
    /// How the run goes.
    #[serde(default)]
    pub run: RunPlan,
    #[serde(default, rename = "check")]
    pub checks: Vec<CheckPlan>,
}

impl BenchPlan {
    /// What going over to `new` takes.
    pub fn change(&self, new: &BenchPlan) -> Change {
        restart(self, new)
    }
}

/// `[bed]`: the tester's engine, and what its frames may do.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BedPlan {
    /// How frames are sent and received.
    pub engine: EngineName,
    /// The processors of the generators, one a direction; else the kernel chooses.
    pub cpus: Vec<usize>,
    /// The greatest load that is tried, a direction; else what the ports or the tester can do.
    pub max_rate: Option<Rate>,
    /// How long to wait for late frames after a trial (RFC 2544, section 23).
    pub drain: Ns,
    /// Test frames may have the addresses of these networks, too, besides those reserved for
    /// benchmarking (RFC 6815).
    pub outside_benchmark_range: Prefixes,
    /// Layers may change settings of the whole host; they are taken back.
    pub host_layers: bool,
}

impl Default for BedPlan {
    fn default() -> Self {
        BedPlan {
            engine: EngineName::Xdp,
            cpus: Vec::new(),
            max_rate: None,
            drain: Ns(2_000_000_000),
            outside_benchmark_range: Prefixes::default(),
            host_layers: false,
        }
    }
}

/// The engines of load and analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EngineName {
    /// XDP live frames and an analyser in the kernel: the fastest.
    Xdp,
    /// AF_XDP sockets.
    AfXdp,
    /// Packet sockets.
    AfPacket,
}

impl EngineName {
    /// As in a plan.
    pub fn name(self) -> &'static str {
        match self {
            EngineName::Xdp => "xdp",
            EngineName::AfXdp => "af_xdp",
            EngineName::AfPacket => "af_packet",
        }
    }

    /// The longest frame that it sends, octets with the FCS.
    pub fn longest_frame(self) -> u32 {
        let without_fcs = match self {
            EngineName::Xdp => XdpGenerator::FRAME_MAX,
            EngineName::AfXdp => af_xdp::FRAME_MAX,
            EngineName::AfPacket => af_packet::MAX_FRAME,
        };
        (without_fcs + FCS_LEN) as u32
    }
}

/// A device under test: made by the lab, or one that is there.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DevicePlan {
    /// What to call it; "loop" is the tester alone.
    pub name: String,
    /// "router", "nft:filters=25" and so on as 'sonde lab list' has them, or "external".
    pub kind: String,
    /// How many of it, one behind the other.
    #[serde(default = "one_device")]
    pub chain: u8,
    /// The processor that forwards; absent: it runs on the tester's own, and cannot drop.
    pub cpu: Option<usize>,
    /// Largest IP packet of its links, octets; else what the frames need.
    pub mtu: Option<u32>,
    /// External: its port towards each port of the tester: "a" and "b", and
    /// "c" where what is flooded is to be seen.
    #[serde(default)]
    pub ports: BTreeMap<String, PortPlan>,
    /// External: commands of the shell to start it, stop it, and bring it back by name
    /// ("reset"), run on this host.
    #[serde(default)]
    pub commands: BTreeMap<String, String>,
}

/// A host that has ports of the tester, and runs `sonde agent`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentPlan {
    /// What ports call it.
    pub name: String,
    /// "HOST:PORT", as its certificate has it.
    pub address: String,
}

/// The controller's own certificate. Files are relative to the folder in which Sonde runs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControllerPlan {
    /// PEM file of the certificate.
    pub cert: PathBuf,
    /// PEM file of the key.
    pub key: PathBuf,
    /// The authority by which agents are trusted, PEM.
    pub ca: PathBuf,
}

/// A port of the tester at an external device.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortPlan {
    /// The agent that has it; absent: it is on this host.
    pub agent: Option<String>,
    pub interface: String,
    /// The network namespace that it is in.
    pub netns: Option<String>,
    /// The tester's addresses there, with prefix length; port "c", which only monitors, has
    /// none.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// MAC address that frames are sent to; else that of `gateway` by ARP or ND.
    pub mac: Option<String>,
    /// The device's address there.
    pub gateway: Option<String>,
}

/// `[workload]`: the frames that are sent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkloadPlan {
    /// Frame sizes, octets with the FCS, and mixes; each is a case of its own.
    pub frames: Vec<FrameSizes>,
    /// 4, 6, or both, each a case of its own.
    pub ip: Vec<u8>,
    /// Flows a direction; each is a case of its own.
    pub flows: Vec<u32>,
    /// Frames that leave back to back at a time (RFC 2544, section 21); each is a case of its
    /// own.
    pub bursts: Vec<u32>,
    /// Each is a case of its own.
    pub directions: Vec<DirectionName>,
    /// Ports of the flows.
    pub ports: PortsName,
    /// Source addresses, taken in turn by the flows.
    pub sources: u32,
    /// Source MAC addresses of the flows.
    pub macs: MacsName,
    /// Traffic classes (RFC 2474), taken in turn by the flows.
    pub dscp: Vec<u8>,
    /// Tags, outermost first.
    pub vlan: Vec<u16>,
    /// Labels, outermost first.
    pub mpls: Vec<u32>,
}

impl Default for WorkloadPlan {
    fn default() -> Self {
        WorkloadPlan {
            frames: vec![FrameSizes::size(64)],
            ip: vec![4],
            flows: vec![1],
            bursts: vec![1],
            directions: vec![DirectionName::Unidirectional],
            ports: PortsName::Rfc4814,
            sources: 1,
            macs: MacsName::Port,
            dscp: vec![0],
            vlan: Vec::new(),
            mpls: Vec::new(),
        }
    }
}

/// Which way frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DirectionName {
    /// From port a to port b.
    Unidirectional,
    /// Both ways at once, at equal rates.
    Bidirectional,
}

impl DirectionName {
    /// As in a plan.
    pub fn name(self) -> &'static str {
        match self {
            DirectionName::Unidirectional => "unidirectional",
            DirectionName::Bidirectional => "bidirectional",
        }
    }
}

/// Whose source MAC addresses frames have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MacsName {
    /// The sending port's own.
    Port,
    /// One a flow, pseudo-random from the seed.
    Random,
}

/// How flows get their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortsName {
    /// Pseudorandom (RFC 4814, section 4.5).
    Rfc4814,
    /// Ascending.
    Increment,
}

/// A state of the device.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConditionPlan {
    /// What to call it.
    pub name: String,
    /// Layers that are applied, as 'sonde lab tune list' has them.
    #[serde(default)]
    pub layers: Vec<String>,
    /// External devices: a command of the shell that brings it about.
    pub command: Option<String>,
}

/// Every combination of some layers, to find the share of each.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AblationPlan {
    /// The layers, in the order of the cumulative figure.
    pub layers: Vec<String>,
}

/// How the run goes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunPlan {
    /// How often each case is measured; more than one in randomised blocks.
    pub repetitions: u32,
    /// Tries of an invalid trial, the first included.
    pub attempts: u32,
    /// Rest before the second try; doubled before each further one.
    pub back_off: Ns,
    /// Rest before each trial (RFC 2544, section 23: at least 5 s).
    pub rest: Ns,
    /// For so long frames go through the device right before each trial, and are not counted: one
    /// that has been idle is not judged by its awakening.
    pub warm_up: Ns,
    /// Also measure the tester without the device.
    #[serde(rename = "loop")]
    pub with_loop: bool,
}

impl Default for RunPlan {
    fn default() -> Self {
        RunPlan {
            repetitions: 1,
            attempts: 3,
            back_off: Ns(1_000_000_000),
            rest: Ns(0),
            warm_up: Ns(500_000_000),
            with_loop: true,
        }
    }
}

/// Something that must hold.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckPlan {
    /// "throughput >= 1.0e6", "latency_p99@50 <= 20us".
    #[schemars(with = "String")]
    pub expect: Spanned<Threshold>,
    /// Only for cases with these values: [`super::checks::KEYS`].
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub when: BTreeMap<String, Spanned<String>>,
}

fn one() -> u64 {
    1
}

fn one_device() -> u8 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BenchPlan, PlanError> {
        TomlText { file: "p.toml".into(), text: text.into() }.parse()
    }

    #[test]
    fn a_short_plan_has_the_standards_defaults() {
        let plan = parse("title = 'x'\n[[procedure]]\nkind = 'throughput'\n").unwrap();
        assert_eq!(plan.workload.frames, [FrameSizes::size(64)]);
        assert_eq!((plan.seed, plan.run.repetitions, plan.bed.drain.0), (1, 1, 2_000_000_000));
    }

    /// What a run's head holds of its plan is the plan.
    #[test]
    fn a_plan_is_the_same_after_it_was_written() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bench");
        let mut plans = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let plan: BenchPlan = TomlText::read(&path, "").unwrap().parse().unwrap();
            let written = parse(&toml::to_string(&plan).unwrap()).unwrap();
            assert_eq!(plan.change(&written), Change::Same, "{}", path.display());
            plans += 1;
        }
        assert!(plans > 0);
    }

    #[test]
    fn a_complaint_names_the_line() {
        for (text, line, part) in [
            ("title = 'x'\n[[procedure]]\nkind = 'a'\n[bed]\nengin = 'xdp'\n", 5, "engin"),
            ("title = 'x'\n[workload]\nframes = ['63']\n[[procedure]]\nkind='a'\n", 3, "64"),
            ("title = 'x'\n[run]\nrest = 5\n[[procedure]]\nkind='a'\n", 3, "5s"),
            ("title = 'x\n", 1, ""),
            ("title = 'x'\n[[check]]\nexpect = 'a'\n[[procedure]]\nkind='a'\n", 3, ">="),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, Some(line), "{error}");
            assert!(error.message.contains(part), "{error}");
        }
    }
}
