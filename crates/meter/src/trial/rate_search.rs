//! Binary search for the greatest load that the device forwards. Throughput (RFC 2544) uses it, its
//! variant with loss verification (ETSI GS NFV-TST 009), and those for unknown or multicast
//! addresses (RFC 2889, RFC 3918).

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::trial::{Offer, Pattern};

use super::bisection::Bisection;
use super::values::{SECOND, labelled, off_pace, reasons};
use super::{NextTrial, Procedure};

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
    /// At the least load that failed in valid trials: the least loss ratio, and the greatest
    /// load that was offered in truth.
    upper: Option<Failed>,
    /// Loads that passed only when tried again.
    verified: u32,
    /// The least load at which the tester was not fit, and why.
    unfit: Option<(f64, String)>,
}

#[derive(Clone, Copy, Debug)]
struct Passed {
    /// What was offered in truth, frames/s.
    offered_fps: f64,
    /// That as a share of what was to be offered.
    pace: f64,
    forwarding_rate_fps: f64,
    loss_ratio: f64,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    offered_fps: f64,
    loss_ratio: f64,
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
            upper: None,
            verified: 0,
            unfit: None,
        }
    }
}

impl RateSearch {
    /// The load found, as it was offered (RFC 2285, section 3.5.2), and what was seen there.
    fn add_found(&self, best: Passed, unfit_above: bool, finding: &mut Finding) {
        let found = best.offered_fps;
        let upper = match (self.upper, self.bisection.upper) {
            (Some(failed), _) => failed.offered_fps,
            (None, upper) => upper.unwrap_or(found),
        };
        // Where trials keep their pace worse than the search cuts, the bounds may cross.
        let mut quantity = Quantity::new(self.name, "frames/s", found, self.trials)
            .between(found.min(upper), found.max(upper));
        quantity.tester_limited = unfit_above;
        finding.values.push(quantity);
        let mixed = match self.config.pattern {
            Pattern::Multicast { share } if share < 1.0 => Some(share),
            _ => None,
        };
        if let Some(share) = mixed {
            // RFC 3918, section 4.1: of each class by itself.
            for (class, rate) in [("multicast", found * share), ("unicast", found * (1.0 - share))]
            {
                let name = labelled(self.name, class);
                let mut quantity = Quantity::new(name, "frames/s", rate, self.trials);
                quantity.tester_limited = unfit_above;
                finding.values.push(quantity);
            }
        } else {
            // Of mixed classes the ports do not all get the same.
            let rate = best.forwarding_rate_fps;
            finding.values.push(Quantity::new("forwarding_rate", "frames/s", rate, 1));
        }
        finding.values.push(Quantity::new("loss_ratio", "ratio", best.loss_ratio, 1));
        finding.notes.extend(off_pace(best.pace, self.config.resolution));
    }
}

impl Procedure for RateSearch {
    fn next(&mut self) -> Option<NextTrial> {
        let rate = self.bisection.next()?;
        let config = &self.config;
        let offer = Offer {
            pattern: config.pattern,
            flows: config.flows,
            ..Offer::steady(rate, config.duration_ns)
        };
        let purpose = if self.failed > 0 { "loss verification" } else { "search" };
        Some(NextTrial { offer, purpose: purpose.into() })
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
            self.upper = None;
            return;
        }
        let (loss_ratio, offered_fps) = (trial.loss_ratio(), trial.offered_fps());
        if loss_ratio <= self.config.loss_ratio {
            self.verified += u32::from(self.failed > 0);
            self.failed = 0;
            self.best = Some(Passed {
                offered_fps,
                pace: offered_fps / rate,
                forwarding_rate_fps: trial.forwarding_rate_fps(),
                loss_ratio,
            });
            self.bisection.observe(rate, true);
            return;
        }
        let failed = Failed { offered_fps, loss_ratio };
        self.upper = Some(match self.upper.filter(|_| self.failed > 0) {
            None => failed,
            Some(before) => Failed {
                offered_fps: offered_fps.max(before.offered_fps),
                loss_ratio: loss_ratio.min(before.loss_ratio),
            },
        });
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
        let upper = self.bisection.upper;
        let testers = |(rate, _): &&(f64, String)| upper == Some(*rate);
        let unfit_above = self.unfit.as_ref().filter(testers).is_some();
        match self.best {
            Some(best) => self.add_found(best, unfit_above, &mut finding),
            // The least load failed in a valid trial.
            None if complete && !unfit_above => {
                let least = self.config.min_fps;
                let quantity = Quantity::new(self.name, "frames/s", 0.0, self.trials);
                finding.values.push(quantity.between(0.0, least));
                finding
                    .notes
                    .push(format!("Not even {least:.0} frames/s pass, the least load tried."));
            }
            None if complete => {
                finding.complete = false;
                finding.notes.push(format!(
                    "Nothing was found: of no load, down to {:.0} frames/s, is there a valid trial \
                 that passed or failed for the device's sake.",
                    self.config.min_fps
                ));
            }
            None => finding.notes.push("No load has passed yet.".into()),
        }
        if let Some(failed) = self.upper {
            let name = "loss_ratio@upper_bound";
            finding.values.push(Quantity::new(name, "ratio", failed.loss_ratio, 1));
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
            if unfit_above && self.best.is_some() {
                finding.notes.push("The upper bound is the tester's, not the device's.".into());
            }
        }
        finding
    }

    fn remaining_ns(&self) -> i64 {
        i64::from(self.remaining_trials()).saturating_mul(self.config.duration_ns)
    }

    fn remaining_trials(&self) -> u32 {
        // A load may need all of its trials, whatever it ends as.
        self.bisection
            .remaining()
            .saturating_mul(self.config.attempts.max(1))
            .saturating_sub(self.failed)
    }
}
