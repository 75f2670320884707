//! Burn rates of objectives: whether an error budget is spent too fast.

use serde::{Deserialize, Serialize};
use sonde_meter::sla::{BurnAlert, BurnRule, BurnSeverity, BurnState, Objective, TimeRange};
use sonde_results::Interval;
use sonde_results::sla::Exclusion;

use super::settings::JudgedObjective;
use crate::alert::model::AlertSeverity;

/// One pair of windows of an objective of a subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BurnWatch {
    /// The objective's name.
    pub objective: String,
    /// Percent that must be good.
    pub target_percent: f64,
    alert: BurnAlert,
    /// It is told: until the rate is clearly below the factor again.
    fires: bool,
}

/// A pair of windows has begun to fire, or is quiet again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BurnChange {
    pub objective: String,
    pub rule: BurnRule,
    /// It fires now.
    pub fires: bool,
    /// Burn rates over the long and the short window.
    pub rates: (Option<f64>, Option<f64>),
    pub at_ns: i64,
}

impl BurnWatch {
    /// The pairs of `objective`: those of `old` that are the same go on.
    pub fn of(judged: &JudgedObjective, old: &mut Vec<BurnWatch>) -> Vec<BurnWatch> {
        let (name, target) = (&judged.objective.name, judged.burn_target);
        let pair = |rule: &BurnRule| {
            let same = |watch: &BurnWatch| {
                watch.objective == *name
                    && watch.target_percent == target
                    && watch.alert.rule() == *rule
            };
            let found = old.iter().position(same).map(|at| old.swap_remove(at));
            found.unwrap_or_else(|| BurnWatch {
                objective: name.clone(),
                target_percent: target,
                alert: BurnAlert::new(*rule, target),
                fires: false,
            })
        };
        judged.burn_rates.iter().map(pair).collect()
    }

    /// Whether it fires.
    pub fn fires(&self) -> bool {
        self.fires
    }

    /// The length of its long window, s.
    pub fn long_s(&self) -> u32 {
        self.alert.rule().long_s
    }

    /// Takes a record of its objective; `None`: there is none of that time.
    pub fn push(
        &mut self,
        objective: &Objective,
        range: TimeRange,
        record: Option<&Interval>,
        exclusion: Option<&Exclusion>,
        out: &mut Vec<BurnChange>,
    ) {
        let sample = record.and_then(|record| objective.burn_sample(record));
        self.alert.push(range, sample, exclusion);
        let rates = self.alert.rates();
        let factor = self.alert.rule().factor;
        let low = |rate: Option<f64>| rate.is_some_and(|rate| rate < QUIET * factor);
        let fires = match self.alert.state() {
            BurnState::Firing => true,
            BurnState::Quiet => self.fires && !low(rates.0) && !low(rates.1),
            BurnState::NoData => self.fires,
        };
        if fires == std::mem::replace(&mut self.fires, fires) {
            return;
        }
        out.push(BurnChange {
            objective: self.objective.clone(),
            rule: self.alert.rule(),
            fires,
            rates,
            at_ns: range.end_ns,
        });
    }
}

/// How bad a pair that fires is.
pub(super) fn severity(rule: &BurnRule) -> AlertSeverity {
    match rule.severity {
        BurnSeverity::Page => AlertSeverity::Critical,
        BurnSeverity::Ticket => AlertSeverity::Warning,
    }
}

/// A rate that hovers about the factor is one alert: it ends below this share of it.
const QUIET: f64 = 0.9;
