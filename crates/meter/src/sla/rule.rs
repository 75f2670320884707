//! When time counts as unavailable.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::objective::ObjectiveError;
use super::window::SECOND;

/// How intervals become available or unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum AvailabilityRule {
    /// A sliding window (MEF 10.x and 35; with intervals of a second also ITU-T G.826 and Y.1563).
    /// Time becomes unavailable where `window` intervals in a row are lossier than `loss_ratio`,
    /// from the first of them on. It is available again where as many are not.
    Sliding {
        /// The small interval (Δt), ns (100 ms to 1 h).
        interval_ns: i64,
        /// An interval is bad when more than this share is lost (C; 0 to below 1). At equality it
        /// is good.
        loss_ratio: f64,
        /// Intervals in a row that decide (n; 1 to 1,000).
        window: u32,
        /// High loss intervals in a row that make a consecutive one (p; 1 to below n). `None`:
        /// these are not counted.
        #[serde(default)]
        consecutive: Option<u32>,
    },
    /// Blocks of a fixed grid, each by itself (ITU-T Y.1540): no back-dating, no memory.
    Blocks {
        /// Length of a block (T_av), ns (1 s to 1 d).
        block_ns: i64,
        /// How far the grid lies after that of UTC, ns; less than `block_ns`.
        #[serde(default)]
        offset_ns: i64,
        /// A block is unavailable when more than this share is lost (c1). At equality it is
        /// available.
        loss_ratio: f64,
        /// A block in which fewer packets were sent is unknown.
        least_packets: u64,
    },
}

/// When a second is severely errored, and when such seconds are unavailable time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecondRule {
    /// A second is severely errored when more than this share is lost (0 to below 1).
    pub severe_ratio: f64,
    /// Severely errored seconds in a row that make unavailable time, from the first on; as many
    /// others end it (10 in ITU-T G.826).
    pub window: u32,
    /// Whether a second with a reordered packet is errored, too.
    #[serde(default)]
    pub reordered: bool,
}

impl SecondRule {
    /// As a rule of availability.
    pub fn availability(&self) -> AvailabilityRule {
        AvailabilityRule::Sliding {
            interval_ns: SECOND,
            loss_ratio: self.severe_ratio,
            window: self.window,
            consecutive: None,
        }
    }

    pub(super) fn diagnose(&self, key: &str, errors: &mut Vec<ObjectiveError>) {
        check_ratio(&format!("{key}.severe_ratio"), self.severe_ratio, errors);
        check_window(&format!("{key}.window"), self.window, errors);
    }
}

impl AvailabilityRule {
    /// Length of an interval or a block, ns.
    pub fn interval_ns(&self) -> i64 {
        match *self {
            AvailabilityRule::Sliding { interval_ns, .. } => interval_ns,
            AvailabilityRule::Blocks { block_ns, .. } => block_ns,
        }
    }

    /// The share of loss beyond which an interval is bad.
    pub fn loss_ratio(&self) -> f64 {
        match *self {
            AvailabilityRule::Sliding { loss_ratio, .. }
            | AvailabilityRule::Blocks { loss_ratio, .. } => loss_ratio,
        }
    }

    /// How long after an interval's end its availability can change at most, ns. A month is closed
    /// no earlier than that after its end, plus the timeout of the probes.
    pub fn lag_ns(&self) -> i64 {
        match *self {
            AvailabilityRule::Sliding { interval_ns, window, .. } => {
                (i64::from(window) - 1) * interval_ns
            }
            AvailabilityRule::Blocks { .. } => 0,
        }
    }

    /// What `packets` in each interval cannot tell, if they are fewer than [`LEAST_PACKETS`]. The
    /// smallest step of a loss ratio is then coarse: with one packet, every limit is the same.
    pub fn too_few_packets(&self, packets: f64) -> Option<String> {
        let needed = match *self {
            AvailabilityRule::Sliding { .. } => LEAST_PACKETS,
            AvailabilityRule::Blocks { least_packets, .. } => least_packets.max(LEAST_PACKETS),
        };
        (packets < needed as f64).then(|| {
            format!(
                "{packets:.1} packets in an interval of {}: loss is known in steps of {:.0} % \
                 there, and its limit is {} %; send at least {needed} in each, or take a longer \
                 interval",
                sonde_results::units::format_duration(self.interval_ns()),
                100.0 / packets.max(1.0),
                self.loss_ratio() * 100.0,
            )
        })
    }

    pub(super) fn diagnose(&self, key: &str, errors: &mut Vec<ObjectiveError>) {
        check_ratio(&format!("{key}.loss_ratio"), self.loss_ratio(), errors);
        let mut refuse = |name: &str, why: String| {
            errors.push(ObjectiveError::new(&format!("{key}.{name}"), why));
        };
        match *self {
            AvailabilityRule::Sliding { interval_ns, window, consecutive, .. } => {
                if !(SECOND / 10..=3_600 * SECOND).contains(&interval_ns) {
                    refuse(
                        "interval_ns",
                        format!("{interval_ns} is not within 100 ms and 1 h, in ns"),
                    );
                }
                if let Some(p) = consecutive.filter(|p| !(1..window.max(1)).contains(p)) {
                    refuse(
                        "consecutive",
                        format!(
                            "{p} must be 1 or more and less than the window, which is {window}; \
                             leave it out where such intervals are not counted"
                        ),
                    );
                }
                check_window(&format!("{key}.window"), window, errors);
            }
            AvailabilityRule::Blocks { block_ns, offset_ns, least_packets, .. } => {
                if !(SECOND..=86_400 * SECOND).contains(&block_ns) {
                    refuse("block_ns", format!("{block_ns} is not within 1 s and 1 d, in ns"));
                }
                if !(0..block_ns.max(1)).contains(&offset_ns) {
                    refuse(
                        "offset_ns",
                        format!("{offset_ns} must be 0 or more and less than block_ns"),
                    );
                }
                if least_packets == 0 {
                    refuse("least_packets", "0 packets decide nothing; write 1 or more".into());
                }
            }
        }
    }
}

fn check_ratio(key: &str, ratio: f64, errors: &mut Vec<ObjectiveError>) {
    if !(0.0..1.0).contains(&ratio) {
        errors.push(ObjectiveError::new(
            key,
            format!("{ratio} is no share of 0 or more and below 1; 50 % is 0.5"),
        ));
    }
}

fn check_window(key: &str, window: u32, errors: &mut Vec<ObjectiveError>) {
    if !(1..=1_000).contains(&window) {
        errors.push(ObjectiveError::new(
            key,
            format!("{window} intervals in a row are not within 1 and 1,000"),
        ));
    }
}

/// Fewest packets in an interval: the least that MEF 35 wants supported (MEF-SOAM-PM-MIB).
pub const LEAST_PACKETS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MEF: AvailabilityRule = AvailabilityRule::Sliding {
        interval_ns: SECOND,
        loss_ratio: 0.5,
        window: 10,
        consecutive: Some(5),
    };

    fn keys(rule: AvailabilityRule) -> Vec<String> {
        let mut errors = Vec::new();
        rule.diagnose("rule", &mut errors);
        errors.into_iter().map(|e| e.key).collect()
    }

    #[test]
    fn each_error_names_its_key() {
        assert_eq!(keys(MEF), Vec::<String>::new());
        let sliding = |interval_ns, loss_ratio, window, consecutive| {
            keys(AvailabilityRule::Sliding { interval_ns, loss_ratio, window, consecutive })
        };
        assert_eq!(sliding(1, 0.5, 10, None), ["rule.interval_ns"]);
        assert_eq!(sliding(SECOND, 1.0, 10, None), ["rule.loss_ratio"]);
        assert_eq!(sliding(SECOND, f64::NAN, 10, None), ["rule.loss_ratio"]);
        assert_eq!(sliding(SECOND, 0.5, 10, Some(10)), ["rule.consecutive"]);
        assert_eq!(sliding(SECOND, 0.5, 0, None), ["rule.window"]);
        let blocks = |block_ns, offset_ns, least_packets| {
            let loss_ratio = 0.2;
            keys(AvailabilityRule::Blocks { block_ns, offset_ns, loss_ratio, least_packets })
        };
        assert_eq!(blocks(SECOND, 0, 1), Vec::<String>::new());
        assert_eq!(blocks(0, 0, 1), ["rule.block_ns"]);
        assert_eq!(blocks(SECOND, SECOND, 0), ["rule.offset_ns", "rule.least_packets"]);
    }

    #[test]
    fn one_packet_an_interval_is_warned_of() {
        let warning = MEF.too_few_packets(1.0).unwrap();
        assert!(warning.contains("steps of 100 %") && warning.contains("at least 10"), "{warning}");
        assert_eq!(MEF.too_few_packets(10.0), None);
        assert_eq!(MEF.lag_ns(), 9 * SECOND);
    }

    #[test]
    fn a_rule_reads_back() {
        let json = serde_json::to_string(&MEF).unwrap();
        assert!(json.starts_with("{\"method\":\"sliding\""), "{json}");
        assert_eq!(serde_json::from_str::<AvailabilityRule>(&json).unwrap(), MEF);
        assert!(serde_json::from_str::<AvailabilityRule>(&json.replace("window", "n")).is_err());
    }
}
