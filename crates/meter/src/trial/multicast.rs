//! Multicast forwarding (RFC 3918): throughput of mixed classes, scaled group forwarding
//! matrix, aggregated multicast throughput, multicast latency.
//!
//! A frame that has to reach several ports counts in the direction to each: a load passes
//! only if every copy arrives.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::trial::{Offer, Pattern};

use super::latency::{LabelledLoad, LatencyConfig};
use super::rate_search::{RateSearch, RateSearchConfig};
use super::script::{Script, scripted};
use super::values::SECOND;
use super::{NextTrial, Procedure};

impl RateSearch {
    /// Mixed class throughput (section 4.1): the share `multicast` of the frames goes to
    /// `groups` groups, the others to unicast addresses.
    pub fn mixed_class(config: RateSearchConfig, multicast: f64, groups: u32) -> RateSearch {
        let pattern = Pattern::Multicast { share: multicast.clamp(0.0, 1.0) };
        let config = RateSearchConfig { pattern, flows: Some(groups), ..config };
        RateSearch::named("mixed_class_throughput", config)
    }

    /// Aggregated multicast throughput (section 4.3): all frames to all egress ports.
    pub fn aggregated_multicast(config: RateSearchConfig, groups: u32) -> RateSearch {
        let pattern = Pattern::Multicast { share: 1.0 };
        let config = RateSearchConfig { pattern, flows: Some(groups), ..config };
        RateSearch::named("aggregated_multicast_throughput", config)
    }
}

impl LatencyConfig {
    /// Multicast latency (section 5.1) at `rate_fps`; each egress port is a direction.
    pub fn multicast(rate_fps: f64, groups: u32) -> LatencyConfig {
        LatencyConfig {
            loads: vec![LabelledLoad { label: String::new(), rate_fps }],
            pattern: Pattern::Multicast { share: 1.0 },
            flows: Some(groups),
            ..LatencyConfig::default()
        }
    }
}

/// Scaled group forwarding matrix (section 4.2).
#[derive(Clone, Debug, PartialEq)]
pub struct GroupMatrixConfig {
    /// Numbers of groups, as they are tried (10, 20, 30 and so on: section 4.2).
    pub groups: Vec<u32>,
    /// The fixed load, frames/s.
    pub rate_fps: f64,
    /// Duration of a trial, ns.
    pub duration_ns: i64,
}

impl Default for GroupMatrixConfig {
    fn default() -> Self {
        GroupMatrixConfig {
            groups: (1..=10).map(|tens| 10 * tens).collect(),
            rate_fps: 1000.0,
            duration_ns: 60 * SECOND,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The least of the egress ports', frames/s.
    least_fps: f64,
    /// All of them together.
    aggregate_fps: f64,
    offered_fps: f64,
    sent: u64,
    lost: u64,
}

/// The matrix under way.
#[derive(Clone, Debug)]
pub struct GroupMatrix {
    groups: Vec<u32>,
    script: Script<Seen>,
}

impl GroupMatrix {
    /// One trial for each number of groups.
    pub fn new(config: GroupMatrixConfig) -> GroupMatrix {
        let next = |&groups: &u32| NextTrial {
            offer: Offer {
                flows: Some(groups),
                pattern: Pattern::Multicast { share: 1.0 },
                ..Offer::steady(config.rate_fps, config.duration_ns)
            },
            purpose: format!("{groups} groups"),
        };
        let steps = config.groups.iter().map(next).collect();
        GroupMatrix { script: Script::new(steps), groups: config.groups }
    }
}

impl Procedure for GroupMatrix {
    scripted!();

    fn observe(&mut self, trial: &Trial) {
        self.script.observe(trial, |trial| {
            let (sent, lost) = trial.sent_and_lost();
            let burst = trial.offer.burst;
            Seen {
                least_fps: trial.forwarding_rate_fps(),
                aggregate_fps: trial.directions.iter().map(|d| d.forwarding_rate_fps(burst)).sum(),
                offered_fps: trial.sent_rate_fps(),
                sent,
                lost,
            }
        });
    }

    fn finding(&self) -> Finding {
        let mut finding = self.script.finding();
        for (i, seen) in self.script.seen() {
            let groups = self.groups[i];
            let ratio = if seen.sent > 0 { seen.lost as f64 / seen.sent as f64 } else { 0.0 };
            let name = |what: &str| format!("{what}@{groups}");
            for (what, rate) in [
                ("forwarding_rate", seen.least_fps),
                ("aggregate_forwarding_rate", seen.aggregate_fps),
                ("offered_load", seen.offered_fps),
            ] {
                finding.values.push(Quantity::new(name(what), "frames/s", rate, 1));
            }
            finding.values.push(Quantity::new(name("loss_ratio"), "ratio", ratio, seen.sent));
        }
        finding
    }
}
