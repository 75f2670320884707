//! Frame loss rate (RFC 1242, section 3.6; RFC 2544, section 26.3). It is the share of lost frames
//! at the greatest load, at 90 % of it and so on. It ends when two loads in a row lose nothing.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::trial::Offer;

use super::script::{Script, scripted};
use super::values::SECOND;
use super::{NextTrial, Procedure};

/// Loads of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct LossRateConfig {
    /// The greatest load, frames/s in each direction: what the medium carries.
    pub max_fps: f64,
    /// Percent of it by which the load falls from trial to trial: 1 to 10 (10 is the
    /// standard's greatest step).
    pub step_percent: u32,
    /// Duration of a trial, ns.
    pub duration_ns: i64,
}

impl Default for LossRateConfig {
    fn default() -> Self {
        LossRateConfig { max_fps: 14_880_952.0, step_percent: 10, duration_ns: 60 * SECOND }
    }
}

/// Frame loss rate under way.
#[derive(Clone, Debug)]
pub struct LossRate {
    percents: Vec<u32>,
    /// Frames sent and lost, and forwarded and offered a second.
    script: Script<(u64, u64, [f64; 2])>,
}

impl LossRate {
    /// From 100 % downwards.
    pub fn new(config: LossRateConfig) -> LossRate {
        let step = config.step_percent.clamp(1, 10) as usize;
        let percents: Vec<u32> = (1..=100).rev().step_by(step).collect();
        let next = |&percent: &u32| NextTrial {
            offer: Offer::steady(config.max_fps * f64::from(percent) / 100.0, config.duration_ns),
            purpose: format!("loss at {percent} %"),
        };
        LossRate { script: Script::new(percents.iter().map(next).collect()), percents }
    }
}

impl Procedure for LossRate {
    scripted!();

    fn observe(&mut self, trial: &Trial) {
        self.script.observe(trial, |trial| {
            let (sent, lost) = trial.sent_and_lost();
            (sent, lost, [trial.forwarding_rate_fps(), trial.offered_fps()])
        });
        let lossless = |s: &Option<(u64, u64, [f64; 2])>| matches!(s, Some((_, 0, _)));
        if let [.., a, b] = self.script.outcomes()
            && lossless(a)
            && lossless(b)
        {
            self.script.end();
        }
    }

    fn finding(&self) -> Finding {
        let mut finding = self.script.finding();
        for (i, &(sent, lost, [forwarded, offered])) in self.script.seen() {
            let percent = self.percents[i];
            let ratio = if sent > 0 { lost as f64 / sent as f64 } else { 0.0 };
            let name = |what: &str| format!("{what}@{percent}");
            finding.values.push(Quantity::new(name("loss_ratio"), "ratio", ratio, sent));
            finding.values.push(Quantity::new(name("forwarding_rate"), "frames/s", forwarded, 1));
            finding.values.push(Quantity::new(name("offered_load"), "frames/s", offered, 1));
        }
        finding
    }
}
