//! A whole run of passive round-trip times: what was asked, where it was measured, what
//! came out, and what was left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::caveat::CaveatSet;
use crate::rtt::{Coverage, RttGroup};
use crate::run::RunHeader;

/// The layout of these run files; raised when a reader of the old one would go wrong.
pub const RTT_SCHEMA_VERSION: u32 = 1;

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttRunConfig {
    /// The command line; empty: there was none.
    #[serde(default)]
    pub command: Vec<String>,
    /// All that was asked for, as the instrument understood it.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub settings: serde_json::Value,
    /// What groups the samples: "prefix", "flow" and so on.
    pub group_by: String,
    /// Length of an interval, ns.
    pub interval_ns: i64,
    /// Flows that are tracked at once, at most.
    pub flows_max: u64,
    /// Each flow counts once a second in the groups, whatever it sends.
    pub weight_by_flow: bool,
    /// Addresses were never kept whole.
    pub prefix_only: bool,
}

/// A point where packets were seen: an interface, or a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RttPoint {
    /// The interface's or the file's name.
    pub name: String,
    /// How packets were seen there: "tcx, ingress and egress", "capture file".
    pub how: String,
    /// How often it vanished during the run.
    pub vanished: u64,
}

/// A run file of `sonde rtt`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttRun {
    /// What every run file begins with; `schema` is [`RTT_SCHEMA_VERSION`].
    #[serde(flatten)]
    pub header: RunHeader,
    /// What was asked for.
    pub config: RttRunConfig,
    /// Where packets were seen; `point` and `interface` elsewhere are indices of this.
    pub points: Vec<RttPoint>,
    /// Each group over the whole run, the slowest (p99 of clean samples) first. Quantiles
    /// are at most 7 % off; count and minimum are exact.
    pub groups: Vec<RttGroup>,
    /// What was seen and what was left out.
    pub coverage: Coverage,
    /// What casts doubt on the run.
    pub caveats: CaveatSet,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::GroupKey;
    use crate::{Caveat, Hist};

    #[test]
    fn a_run_reads_back_as_it_was_written() {
        let mut clean = Hist::default();
        clean.add(31_400);
        let mut caveats = CaveatSet::default();
        caveats.insert(Caveat::FlowsUntracked);
        let key = GroupKey::Prefix { address: "192.0.2.0".parse().unwrap(), length: 24 };
        let group = |key| RttGroup {
            key,
            start_ns: 1,
            end_ns: 2,
            clean: clean.clone(),
            recovery: Hist::default(),
            delayed_ack: Hist::default(),
        };
        let run = RttRun {
            header: RunHeader {
                schema: RTT_SCHEMA_VERSION,
                version: "0.1.0".into(),
                instrument: "rtt".into(),
                start_ns: 1,
                end_ns: 2,
                ..RunHeader::default()
            },
            config: RttRunConfig::default(),
            points: vec![RttPoint::default()],
            groups: vec![group(key), group(GroupKey::Other)],
            coverage: Coverage { counters: [("packets".to_string(), 7)].into() },
            caveats,
        };
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<RttRun>(&text).unwrap(), run);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let (described, written) = (crate::schema::of::<RttRun>(), value.as_object().unwrap());
        assert!(described["properties"].as_object().unwrap().keys().eq(written.keys()));
        assert!(text.starts_with(r#"{"schema":1,"version":"0.1.0","instrument":"rtt","#), "{text}");
    }
}
