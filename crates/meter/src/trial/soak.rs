//! A load held for as long as wanted: one trial after the other, so that the run file grows and can
//! be read meanwhile. The time series is in the trials.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::procedure::purpose::SOAK;
use sonde_results::trial::{Offer, Pattern};

use super::delays::TrialDelays;
use super::values::{SECOND, reasons};
use super::{NextTrial, Procedure};

#[derive(Clone, Debug, PartialEq)]
pub struct SoakConfig {
    /// Frames/s in each direction.
    pub rate_fps: f64,
    /// Duration of a trial, ns.
    pub window_ns: i64,
    /// Duration in all, ns: rounded up to whole trials.
    pub total_ns: i64,
    /// To whom the frames go.
    pub pattern: Pattern,
}

impl Default for SoakConfig {
    fn default() -> Self {
        SoakConfig {
            rate_fps: 1000.0,
            window_ns: 60 * SECOND,
            total_ns: 3600 * SECOND,
            pattern: Pattern::Plan,
        }
    }
}

/// A soak under way. It keeps sums, not windows: its memory does not grow.
#[derive(Clone, Debug)]
pub struct Soak {
    config: SoakConfig,
    windows: u64,
    done: u64,
    all: TrialDelays,
    lossy: u64,
    worst_loss: f64,
    least_fps: f64,
    unfit: u64,
    why: String,
}

impl Soak {
    /// As many trials as it takes.
    pub fn new(config: SoakConfig) -> Soak {
        let window = config.window_ns.max(1);
        let windows = config.total_ns.max(1).unsigned_abs().div_ceil(window.unsigned_abs());
        Soak {
            config,
            windows,
            done: 0,
            all: TrialDelays::default(),
            lossy: 0,
            worst_loss: 0.0,
            least_fps: f64::INFINITY,
            unfit: 0,
            why: String::new(),
        }
    }
}

impl Procedure for Soak {
    fn next(&mut self) -> Option<NextTrial> {
        let steady = Offer::steady(self.config.rate_fps, self.config.window_ns.max(1));
        let offer = Offer { pattern: self.config.pattern, ..steady };
        let purpose = format!("{SOAK}, {} of {}", self.done + 1, self.windows);
        (self.done < self.windows).then_some(NextTrial { offer, purpose })
    }

    fn observe(&mut self, trial: &Trial) {
        if self.done >= self.windows {
            return;
        }
        self.done += 1;
        if !trial.valid() {
            self.unfit += 1;
            self.why = reasons(trial);
            return;
        }
        let loss = trial.loss_ratio();
        self.lossy += u64::from(loss > 0.0);
        self.worst_loss = self.worst_loss.max(loss);
        self.least_fps = self.least_fps.min(trial.forwarding_rate_fps());
        self.all.merge(&TrialDelays { offered: Vec::new(), ..TrialDelays::of(trial) });
    }

    fn finding(&self) -> Finding {
        let valid = self.done - self.unfit;
        let complete = self.done == self.windows && valid > 0;
        let mut finding = Finding { complete, ..Finding::default() };
        if self.unfit > 0 {
            finding.notes.push(format!(
                "{} of {} trials could not be used, the tester was not fit: {}.",
                self.unfit, self.done, self.why
            ));
        }
        if valid == 0 {
            return finding;
        }
        // The loss ratio of the whole time first: it is what a soak is for.
        self.all.add_to(&mut finding, "");
        if let Some(at) = finding.values.iter().position(|q| q.name == "loss_ratio") {
            let loss = finding.values.remove(at);
            finding.values.insert(0, loss);
        }
        let mut add = |name: &str, unit: &str, value: f64, samples: u64| {
            finding.values.push(Quantity::new(name, unit, value, samples));
        };
        add("lost_frames", "frames", self.all.lost as f64, self.all.sent);
        add("lossy_trials", "trials", self.lossy as f64, valid);
        add("loss_ratio_worst", "ratio", self.worst_loss, valid);
        add("forwarding_rate_least", "frames/s", self.least_fps, valid);
        finding
    }

    fn remaining_ns(&self) -> i64 {
        ((self.windows - self.done) as i64).saturating_mul(self.config.window_ns.max(1))
    }

    fn remaining_trials(&self) -> u32 {
        u32::try_from(self.windows - self.done).unwrap_or(u32::MAX)
    }
}
