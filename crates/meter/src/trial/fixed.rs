//! One trial at a load that the plan gives: what the device forwards, loses and delays.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::procedure::purpose::FIXED_LOAD;
use sonde_results::trial::{Offer, Pattern};

use super::delays::TrialDelays;
use super::script::{Script, scripted};
use super::values::{SECOND, discard_within};
use super::{NextTrial, Procedure};

#[derive(Clone, Debug, PartialEq)]
pub struct FixedLoadConfig {
    /// Frames/s in each direction.
    pub rate_fps: f64,
    /// Duration, ns, the discarded time included.
    pub duration_ns: i64,
    /// Frames of the first so many ns are not counted (20 s in the vCPE study).
    pub discard_ns: i64,
    /// To whom the frames go.
    pub pattern: Pattern,
}

impl Default for FixedLoadConfig {
    fn default() -> Self {
        FixedLoadConfig {
            rate_fps: 1000.0,
            duration_ns: 60 * SECOND,
            discard_ns: 0,
            pattern: Pattern::Plan,
        }
    }
}

/// A fixed load under way.
#[derive(Clone, Debug)]
pub struct FixedLoad {
    script: Script<Observed>,
}

#[derive(Clone, Debug)]
struct Observed {
    seen: TrialDelays,
    sent_fps: f64,
    forwarded_fps: f64,
}

impl FixedLoad {
    pub fn new(config: FixedLoadConfig) -> FixedLoad {
        let offer = Offer {
            discard_ns: discard_within(config.discard_ns, config.duration_ns),
            pattern: config.pattern,
            ..Offer::steady(config.rate_fps, config.duration_ns)
        };
        FixedLoad { script: Script::new(vec![NextTrial { offer, purpose: FIXED_LOAD.into() }]) }
    }
}

impl Procedure for FixedLoad {
    scripted!();

    fn observe(&mut self, trial: &Trial) {
        self.script.observe(trial, |trial| Observed {
            seen: TrialDelays::of(trial),
            sent_fps: trial.sent_rate_fps(),
            forwarded_fps: trial.forwarding_rate_fps(),
        });
    }

    fn finding(&self) -> Finding {
        let mut finding = self.script.finding();
        for (_, observed) in self.script.seen() {
            let mut add = |name: &str, value: f64| {
                finding.values.push(Quantity::new(name, "frames/s", value, 1));
            };
            add("forwarding_rate", observed.forwarded_fps);
            add("offered_load", observed.sent_fps);
            observed.seen.add_to(&mut finding, "");
        }
        finding
    }
}
