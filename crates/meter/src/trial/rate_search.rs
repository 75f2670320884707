//! Binary search for the greatest load that the device forwards: what throughput (RFC 2544),
//! its variant with loss verification (ETSI GS NFV-TST 009) and those for unknown or
//! multicast addresses (RFC 2889, RFC 3918) have in common.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::trial::{Offer, Pattern};

use super::bisection::Bisection;
use super::values::{SECOND, labelled, note_defects, reasons};
use super::{Next, Procedure};

/// Bounds and criterion of a search for a load.
#[derive(Clone, Debug, PartialEq)]
pub struct RateSearchConfig {
    /// Least load of interest, frames/s in each direction, above 0.
    pub min_fps: f64,
    /// Greatest load: what the medium or the tester can carry, frames/s in each direction.
    pub max_fps: f64,
    /// The search ends when the bounds are this near, in units of the upper one.
    pub resolution: f64,
    /// Duration of a trial, ns (60 s: RFC 2544, section 24).
    pub duration_ns: i64,
    /// Greatest share of lost frames with which a load passes, 0 to 1 (0: RFC 1242,
    /// section 3.17).
    pub loss_ratio: f64,
    /// Trials of a load that has to fail in all of them; 1: no loss verification.
    pub attempts: u32,
    /// To whom the frames go.
    pub pattern: Pattern,
    /// Flows, stations or groups, other than the plan's.
    pub flows: Option<u32>,
}

impl Default for RateSearchConfig {
    fn default() -> Self {
        RateSearchConfig {
            min_fps: 1000.0,
            max_fps: 14_880_952.0,
            resolution: 0.005,
            duration_ns: 60 * SECOND,
            loss_ratio: 0.0,
            attempts: 1,
            pattern: Pattern::Plan,
            flows: None,
        }
    }
}

/// A search for the greatest load that passes.
#[derive(Clone, Debug)]
pub struct RateSearch {
    config: RateSearchConfig,
    /// What the load found is called.
    name: &'static str,
    bisection: Bisection,
    /// Trials of the present load that failed.
    failed: u32,
    trials: u64,
    /// What was seen at the greatest load that passed.
    best: Option<Passed>,
    /// The least loss ratio at the least load that failed.
    upper_loss: Option<f64>,
    /// Loads that passed only when tried again.
    verified: u32,
    /// The least load at which the tester was not fit, and why.
    unfit: Option<(f64, String)>,
}

#[derive(Clone, Debug)]
struct Passed {
    forwarding_rate_fps: f64,
    loss_ratio: f64,
    defects: Vec<String>,
}

impl RateSearch {
    pub(super) fn named(name: &'static str, config: RateSearchConfig) -> RateSearch {
        let bisection = Bisection::new(config.min_fps, config.max_fps, config.resolution);
        RateSearch {
            config,
            name,
            bisection,
            failed: 0,
            trials: 0,
            best: None,
            upper_loss: None,
            verified: 0,
            unfit: None,
        }
    }
}

impl Procedure for RateSearch {
    fn next(&mut self) -> Option<Next> {
        let rate = self.bisection.next()?;
        let config = &self.config;
        let offer = Offer {
            pattern: config.pattern,
            flows: config.flows,
            ..Offer::steady(rate, config.duration_ns)
        };
        let purpose = if self.failed > 0 { "loss verification" } else { "search" };
        Some(Next { offer, purpose: purpose.into() })
    }

    fn observe(&mut self, trial: &Trial) {
        let Some(rate) = self.bisection.next() else { return };
        self.trials += 1;
        if !trial.valid() {
            // Nothing is known of the device at this load: the search goes on below it, and
            // the finding says whose bound it was.
            self.unfit = Some((rate, reasons(trial)));
            self.failed = 0;
            self.bisection.observe(rate, false);
            self.upper_loss = None;
            return;
        }
        let loss = trial.loss_ratio();
        if loss <= self.config.loss_ratio {
            self.verified += u32::from(self.failed > 0);
            self.failed = 0;
            let mut seen = Finding::default();
            note_defects(&mut seen, trial);
            self.best = Some(Passed {
                forwarding_rate_fps: trial.forwarding_rate_fps(),
                loss_ratio: loss,
                defects: seen.notes,
            });
            self.bisection.observe(rate, true);
            return;
        }
        let before = if self.failed > 0 { self.upper_loss } else { None };
        self.upper_loss = Some(before.map_or(loss, |b| b.min(loss)));
        self.failed += 1;
        if self.failed >= self.config.attempts.max(1) {
            self.failed = 0;
            self.bisection.observe(rate, false);
        }
    }

    fn finding(&self) -> Finding {
        let complete = self.bisection.next().is_none();
        let mut finding = Finding { complete, ..Finding::default() };
        if self.trials == 0 {
            return finding;
        }
        let (lower, upper) = (self.bisection.lower, self.bisection.upper);
        let found = lower.unwrap_or(0.0);
        finding.values.push(
            Quantity::new(self.name, "frames/s", found, self.trials)
                .between(found, upper.unwrap_or(found)),
        );
        let mixed = match self.config.pattern {
            Pattern::Multicast { share } if share < 1.0 => Some(share),
            _ => None,
        };
        if let Some(share) = mixed {
            // RFC 3918, section 4.1: of each class by itself.
            for (class, rate) in [("multicast", found * share), ("unicast", found * (1.0 - share))]
            {
                let name = labelled(self.name, class);
                finding.values.push(Quantity::new(name, "frames/s", rate, self.trials));
            }
        }
        if let Some(best) = &self.best {
            // Of mixed classes the ports do not all get the same.
            if mixed.is_none() {
                let rate = best.forwarding_rate_fps;
                finding.values.push(Quantity::new("forwarding_rate", "frames/s", rate, 1));
            }
            finding.values.push(Quantity::new("loss_ratio", "ratio", best.loss_ratio, 1));
            finding.notes.extend(best.defects.iter().cloned());
        }
        if let Some(loss) = self.upper_loss {
            finding.values.push(Quantity::new("loss_ratio@upper_bound", "ratio", loss, 1));
        }
        if complete && lower.is_none() {
            let least = self.config.min_fps;
            finding.notes.push(format!("Not even {least:.0} frames/s pass, the least load tried."));
        }
        if complete && upper.is_none() {
            finding
                .notes
                .push("The greatest load offered passed: the device may carry more.".into());
        }
        if self.verified > 0 {
            finding.notes.push(format!(
                "{} loads passed only when tried again (loss verification).",
                self.verified
            ));
        }
        if self.config.loss_ratio > 0.0 {
            let allowed = self.config.loss_ratio * 100.0;
            finding.notes.push(format!("Losses of up to {allowed} % pass."));
        }
        if let Some((rate, why)) = &self.unfit {
            finding.notes.push(format!("At {rate:.0} frames/s the tester was not fit: {why}."));
            if upper == Some(*rate) {
                finding.notes.push("The upper bound is the tester's, not the device's.".into());
            }
        }
        finding
    }

    fn remaining_ns(&self) -> i64 {
        i64::from(self.remaining_trials()) * self.config.duration_ns
    }

    fn remaining_trials(&self) -> u32 {
        // A load may need all of its trials, whatever it ends as.
        (self.bisection.remaining() * self.config.attempts.max(1)).saturating_sub(self.failed)
    }
}
