//! Forwarding rates of a switch (RFC 2285, section 3.6; RFC 2889, sections 5.1 and 5.6). They are
//! the rate at the maximum offered load, and the greatest that any load brings forth.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::trial::Offer;

use super::script::{Script, scripted};
use super::values::SECOND;
use super::{NextTrial, Procedure};

/// Loads of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardingConfig {
    /// Maximum offered load, frames/s in each direction.
    pub max_fps: f64,
    /// Percent of it by which the load falls from trial to trial, 1 to 50.
    pub step_percent: u32,
    /// Duration of a trial, ns (30 s, from 1 to 300: RFC 2889, section 5.1).
    pub duration_ns: i64,
}

impl Default for ForwardingConfig {
    fn default() -> Self {
        ForwardingConfig { max_fps: 14_880_952.0, step_percent: 5, duration_ns: 30 * SECOND }
    }
}

/// Forwarding rates under way.
#[derive(Clone, Debug)]
pub struct ForwardingRate {
    loads: Vec<f64>,
    /// Frames/s sent and forwarded.
    script: Script<(f64, f64)>,
}

impl ForwardingRate {
    /// From the maximum downwards, until the load itself is below what was forwarded.
    pub fn new(config: ForwardingConfig) -> ForwardingRate {
        let step = config.step_percent.clamp(1, 50) as usize;
        let load = |percent: u32| config.max_fps * f64::from(percent) / 100.0;
        let loads: Vec<f64> = (1..=100).rev().step_by(step).map(load).collect();
        let next = |&rate: &f64| NextTrial {
            offer: Offer::steady(rate, config.duration_ns),
            purpose: "forwarding rate".into(),
        };
        ForwardingRate { script: Script::new(loads.iter().map(next).collect()), loads }
    }

    /// The greatest forwarding rate, with the load's index.
    fn best(&self) -> Option<(usize, f64)> {
        let forwarded = self.script.seen().map(|(i, &(_, forwarded))| (i, forwarded));
        forwarded.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Procedure for ForwardingRate {
    scripted!();

    fn observe(&mut self, trial: &Trial) {
        self.script.observe(trial, |trial| (trial.sent_rate_fps(), trial.forwarding_rate_fps()));
        let next = self.loads.get(self.script.outcomes().len());
        if let (Some((_, best)), Some(&next)) = (self.best(), next)
            && next <= best
        {
            self.script.end();
        }
    }

    fn finding(&self) -> Finding {
        let mut finding = self.script.finding();
        let mut add = |name: &str, value: f64| {
            finding.values.push(Quantity::new(name, "frames/s", value, 1));
        };
        if let Some((i, best)) = self.best() {
            add("maximum_forwarding_rate", best);
            add("maximum_forwarding_rate_load", self.loads[i]);
            // RFC 2889, section 5.1.4.2, cites what was offered, not what was intended.
            if let Some((sent, _)) = self.script.outcomes()[i] {
                add("maximum_forwarding_rate_offered_load", sent);
            }
        }
        if let Some(Some((sent, forwarded))) = self.script.outcomes().first() {
            add("forwarding_rate_at_maximum_offered_load", *forwarded);
            add("maximum_offered_load", *sent);
        }
        finding
    }
}
