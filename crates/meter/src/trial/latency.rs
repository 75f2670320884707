//! Latency at given loads (RFC 1242, section 3.8; RFC 2544, section 26.2).
//!
//! RFC 2544 tags one frame a trial, after 60 s, and reports the mean of 20 trials. Here every frame
//! after these 60 s is timed: `latency` is the mean over the trials of each trial's mean. The
//! distribution of all frames is reported beside it.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::procedure::purpose::LATENCY;
use sonde_results::trial::{Offer, Pattern};

use super::delays::TrialDelays;
use super::script::{Script, scripted};
use super::values::{SECOND, discard_within, extremes, labelled, mean};
use super::{NextTrial, Procedure};

/// A load at which latency is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledLoad {
    /// What its values are labelled with: "50" for half of the rate found; empty: nothing.
    pub label: String,
    /// Frames/s in each direction.
    pub rate_fps: f64,
}

/// Where and how latency is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyConfig {
    pub loads: Vec<LabelledLoad>,
    /// Duration of a trial, ns (at least 120 s).
    pub duration_ns: i64,
    /// Frames of the first so many ns are not timed (60 s; the first half of shorter trials).
    pub discard_ns: i64,
    /// Trials of each load (20).
    pub trials: u32,
    /// To whom the frames go.
    pub pattern: Pattern,
    /// Flows or groups, other than the plan's.
    pub flows: Option<u32>,
}

impl Default for LatencyConfig {
    fn default() -> Self {
        LatencyConfig {
            loads: Vec::new(),
            duration_ns: 120 * SECOND,
            discard_ns: 60 * SECOND,
            trials: 20,
            pattern: Pattern::Plan,
            flows: None,
        }
    }
}

impl LatencyConfig {
    /// At the throughput, as RFC 2544 has it.
    pub fn at(rate_fps: f64) -> LatencyConfig {
        let loads = vec![LabelledLoad { label: String::new(), rate_fps }];
        LatencyConfig { loads, ..LatencyConfig::default() }
    }

    /// At next to no load (`idle_fps`), and at 10, 50, 90 and 100 % of the rate found, one trial
    /// each. They are "@0", "@10", "@50", "@90", "@100"; RFC 2544 has only the last one.
    pub fn profile(found_fps: f64, idle_fps: f64) -> LatencyConfig {
        let load = |label: &str, rate_fps| LabelledLoad { label: label.into(), rate_fps };
        let mut loads = vec![load("0", idle_fps.min(0.1 * found_fps))];
        loads.extend(
            [10, 50, 90, 100].map(|p| load(&p.to_string(), found_fps * f64::from(p) / 100.0)),
        );
        LatencyConfig { loads, trials: 1, ..LatencyConfig::default() }
    }
}

/// The latency procedure, as far as it has come.
#[derive(Clone, Debug)]
pub struct Latency {
    config: LatencyConfig,
    script: Script<TrialDelays>,
}

impl Latency {
    /// The loads are gone through again and again, so that drift meets all alike.
    pub fn new(config: LatencyConfig) -> Latency {
        let step = |load: &LabelledLoad| {
            let purpose = match load.label.as_str() {
                "" => LATENCY.into(),
                share if share.parse::<f64>().is_ok() => format!("{LATENCY} at {share} %"),
                load => format!("{LATENCY} at {load}"),
            };
            let offer = Offer {
                discard_ns: discard_within(config.discard_ns, config.duration_ns),
                pattern: config.pattern,
                flows: config.flows,
                ..Offer::steady(load.rate_fps, config.duration_ns)
            };
            NextTrial { offer, purpose }
        };
        let steps = (0..config.trials).flat_map(|_| config.loads.iter().map(step)).collect();
        Latency { script: Script::new(steps), config }
    }
}

impl Procedure for Latency {
    scripted!();

    fn observe(&mut self, trial: &Trial) {
        self.script.observe(trial, TrialDelays::of);
    }

    fn finding(&self) -> Finding {
        let mut finding = self.script.finding();
        let loads = self.config.loads.len().max(1);
        for (i, load) in self.config.loads.iter().enumerate() {
            let trials: Vec<&TrialDelays> =
                self.script.seen().filter(|(k, _)| k % loads == i).map(|(_, s)| s).collect();
            let means: Vec<f64> = trials.iter().filter_map(|s| s.all().latency.mean()).collect();
            let Some(latency) = mean(&means) else { continue };
            let (least, most) = extremes(&means);
            let name = labelled("latency", &load.label);
            let quantity = Quantity::new(name, "ns", latency, means.len() as u64);
            finding.values.push(quantity.between(least, most));
            let mut all = TrialDelays::default();
            trials.iter().for_each(|s| all.merge(s));
            all.add_to(&mut finding, &load.label);
            let name = labelled("offered_load", &load.label);
            let count = trials.len() as u64;
            let offered = mean(&all.offered).unwrap_or(load.rate_fps);
            finding.values.push(Quantity::new(name, "frames/s", offered, count));
            if all.lost > 0 {
                finding.notes.push(format!(
                    "{} of {} frames were lost at {:.0} frames/s; only those that arrived have a latency.",
                    all.lost, all.sent, offered
                ));
            }
        }
        finding
    }
}
