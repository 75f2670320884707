//! How fast an error budget is spent.
//!
//! The budget is what the target leaves: 1 - target, over a period. It burns at a rate of 1 where
//! it would be spent at the end of the period. An alert has two windows and fires while it burns
//! faster than a factor in both. The long one shows that it matters, the short one that it goes on.
//!
//! Rates come from intervals as they look by themselves (good or bad), not from availability, whose
//! transitions are dated back. Unknown time and what is left out are in neither part of a rate.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::Interval;
use sonde_results::sla::Exclusion;

use super::objective::{MOST_S, Objective, ObjectiveError, ObjectiveMetric};
use super::rule::AvailabilityRule;
use super::sliding::IntervalClass;
use super::tally::{Requirement, classify, tally, tally_seconds};
use super::window::{SECOND, TimeRange};

/// A pair of windows with a factor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BurnRule {
    /// The long window, s.
    pub long_s: u32,
    /// The short window, s: mostly a twelfth of the long one, which it divides.
    pub short_s: u32,
    /// Fires while the budget burns more than so many times too fast.
    pub factor: f64,
    /// How much it matters.
    pub severity: BurnSeverity,
}

/// How much an alert matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BurnSeverity {
    /// Somebody is woken.
    Page,
    /// Somebody looks at it in working hours.
    Ticket,
}

/// What counts in an interval, and how much of it is bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BurnSample {
    /// Bad ones.
    pub bad: u64,
    /// All.
    pub total: u64,
}

/// Whether an alert fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BurnState {
    /// It does not.
    Quiet,
    /// It does.
    Firing,
    /// More than half of a window is unknown. Neither good nor bad.
    NoData,
}

/// Watches one pair of windows. All of it can be saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurnAlert {
    rule: BurnRule,
    /// Share that may be bad: 1 - target.
    budget: f64,
    /// Steps of a fifth of the short window, the last one is filling.
    steps: VecDeque<BurnStep>,
    /// Index of the last step on the grid of UTC.
    last: i64,
    state: BurnState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct BurnStep {
    bad: u64,
    total: u64,
    known_ns: i64,
    /// Left out: the window is shorter by so much.
    excluded_ns: i64,
}

impl BurnRule {
    /// The pairs for a period of 30 days. They fire when 2 % of the budget went in 1 h, 5 % in 6 h,
    /// or 10 % in 3 d. So it is in chapter 5 of The Site Reliability Workbook, as quoted in the
    /// documentation of Datadog and Elastic. The third pair, 10 % in 1 d, is from memory.
    pub const USUAL: [BurnRule; 4] = {
        use BurnSeverity::{Page, Ticket};
        [
            BurnRule { long_s: 3_600, short_s: 300, factor: 14.4, severity: Page },
            BurnRule { long_s: 21_600, short_s: 1_800, factor: 6.0, severity: Page },
            BurnRule { long_s: 86_400, short_s: 7_200, factor: 3.0, severity: Ticket },
            BurnRule { long_s: 259_200, short_s: 21_600, factor: 1.0, severity: Ticket },
        ]
    };

    /// The share (0..=1) of the budget of `period_s` that is spent in the long window at the factor.
    pub fn spent(&self, period_s: u32) -> f64 {
        self.factor * f64::from(self.long_s) / f64::from(period_s)
    }

    /// The share of bad ones above which it fires, where the target leaves `budget` (0 to 1).
    pub fn error_ratio(&self, budget: f64) -> f64 {
        self.factor * budget
    }

    /// Fewest that a window must have so that a single bad one cannot fire it.
    pub fn least_total(&self, budget: f64) -> u64 {
        (1.0 / self.error_ratio(budget) - 1e-9).ceil().max(1.0) as u64
    }

    /// How long an outage of everything lasts before it fires, by the long window, s.
    pub fn seen_after_s(&self, budget: f64) -> f64 {
        self.error_ratio(budget) * f64::from(self.long_s)
    }

    /// All that is wrong with it for a target (percent), by key. Empty: it can fire, and can be
    /// quiet.
    pub fn diagnose(&self, target_percent: f64) -> Vec<ObjectiveError> {
        let mut errors = Vec::new();
        let mut refuse = |key: &str, why: String| errors.push(ObjectiveError::new(key, why));
        if !(5 * 12..=MOST_S).contains(&self.long_s) {
            refuse("long_s", format!("{} is not within 60 and {MOST_S}", self.long_s));
        }
        let short_s = self.short_s;
        if short_s == 0
            || short_s >= self.long_s
            || !self.long_s.is_multiple_of(short_s)
            || !short_s.is_multiple_of(5)
        {
            refuse(
                "short_s",
                format!(
                    "{short_s} must be a multiple of 5, divide long_s, which is {}, and be less; a \
                     twelfth of it is usual",
                    self.long_s
                ),
            );
        }
        let budget = 1.0 - target_percent / 100.0;
        if !(budget > 0.0 && budget < 1.0) {
            refuse(
                "target_percent",
                format!(
                    "{target_percent} leaves no budget to burn; it must be above 0 and below 100"
                ),
            );
        } else if !(self.factor > 0.0 && self.error_ratio(budget) < 1.0) {
            refuse(
                "factor",
                format!(
                    "{} times a budget of {:.4} % is {:.1} % of errors, and must be above 0 and \
                     below 100 %: it could never fire; take a lesser factor",
                    self.factor,
                    budget * 100.0,
                    self.error_ratio(budget) * 100.0
                ),
            );
        }
        errors
    }
}

impl Objective {
    /// What a record adds to the rates of an objective: packets, samples, or the interval itself.
    /// Only what is certainly bad is. `None`: it has no data.
    pub fn burn_sample(&self, record: &Interval) -> Option<BurnSample> {
        let interval = |class| match class {
            IntervalClass::Unknown => None,
            class => Some(BurnSample { bad: u64::from(class == IntervalClass::Bad), total: 1 }),
        };
        match self.metric {
            ObjectiveMetric::Availability { rule, .. } => {
                let enough = match rule {
                    AvailabilityRule::Sliding { .. } => 1,
                    AvailabilityRule::Blocks { least_packets, .. } => least_packets,
                };
                if record.counters.sent < enough {
                    return None;
                }
                interval(classify(&record.counters, self.direction, rule.loss_ratio(), 1))
            }
            ObjectiveMetric::ErroredSeconds { severe, rule, .. } => {
                let class = classify(&record.counters, self.direction, rule.severe_ratio, 1);
                let tally = tally_seconds(self, &record.counters, class, 1)?;
                let (low, high) = if severe { tally.severe } else { tally.errored };
                (low == high).then_some(BurnSample { bad: low, total: 1 })
            }
            ObjectiveMetric::DelayMean { .. } | ObjectiveMetric::PdvPercentile { .. } => None,
            _ => {
                let tally = tally(self, &Requirement::of(self, None)?, record)?;
                let sums = tally.low;
                let bad = u64::try_from(sums.bad).ok()?;
                (sums.base > 0).then_some(BurnSample { bad, total: sums.base })
            }
        }
    }
}

impl BurnAlert {
    /// Of a target in percent, with which [`BurnRule::diagnose`] finds nothing wrong.
    pub fn new(rule: BurnRule, target_percent: f64) -> BurnAlert {
        let budget = 1.0 - target_percent / 100.0;
        BurnAlert { rule, budget, steps: VecDeque::new(), last: i64::MIN, state: BurnState::NoData }
    }

    /// Its windows and factor.
    pub fn rule(&self) -> BurnRule {
        self.rule
    }

    /// Whether it fires.
    pub fn state(&self) -> BurnState {
        self.state
    }

    /// The burn rates over the long and the short window; `None`: nothing is known there.
    pub fn rates(&self) -> (Option<f64>, Option<f64>) {
        let rate = |window_s| {
            let sum = self.sum(window_s);
            (sum.total > 0).then(|| sum.bad as f64 / sum.total as f64 / self.budget)
        };
        (rate(self.rule.long_s), rate(self.rule.short_s))
    }

    /// Takes an interval: what counts in it (`None`: no data), and whether it is left out. Begins
    /// before the present step are counted in that. The new state, if it is another one.
    pub fn push(
        &mut self,
        range: TimeRange,
        sample: Option<BurnSample>,
        exclusion: Option<&Exclusion>,
    ) -> Option<BurnState> {
        self.turn(range.start_ns);
        let length_ns = range.length_ns().max(0);
        if let Some(step) = self.steps.back_mut() {
            match (sample, exclusion) {
                (_, Some(_)) => step.excluded_ns += length_ns,
                (Some(BurnSample { bad, total }), None) => {
                    step.bad += bad;
                    step.total += total;
                    step.known_ns += length_ns;
                }
                (None, None) => {}
            }
        }
        self.judge()
    }

    /// Nothing more comes from before `now_ns`.
    pub fn advance(&mut self, now_ns: i64) -> Option<BurnState> {
        self.turn(now_ns);
        self.judge()
    }

    /// Makes the step of `at_ns` the last one.
    fn turn(&mut self, at_ns: i64) {
        let index = at_ns.div_euclid(self.step_ns());
        let kept = self.count(self.rule.long_s);
        let missing = match self.steps.is_empty() {
            true => 1,
            false => index.saturating_sub(self.last).clamp(0, kept as i64) as usize,
        };
        self.last = self.last.max(index);
        self.steps.extend(std::iter::repeat_n(BurnStep::default(), missing));
        while self.steps.len() > kept {
            self.steps.pop_front();
        }
    }

    fn judge(&mut self) -> Option<BurnState> {
        let least = self.rule.least_total(self.budget);
        let windows = [self.rule.long_s, self.rule.short_s].map(|s| (s, self.sum(s)));
        // The last step is filling, so that a window lacks up to one.
        let unknown = |&(window_s, sum): &(u32, BurnStep)| {
            let whole = i64::from(window_s) * SECOND - self.step_ns() - sum.excluded_ns;
            sum.known_ns * 2 < whole || sum.total == 0
        };
        let burns = |&(_, sum): &(u32, BurnStep)| {
            let ratio = sum.bad as f64 / sum.total as f64;
            sum.total >= least && ratio > self.rule.error_ratio(self.budget)
        };
        let state = match () {
            () if windows.iter().any(unknown) => BurnState::NoData,
            () if windows.iter().all(burns) => BurnState::Firing,
            () => BurnState::Quiet,
        };
        let changed = state != self.state;
        self.state = state;
        changed.then_some(state)
    }

    fn sum(&self, window_s: u32) -> BurnStep {
        let steps = self.steps.iter().rev().take(self.count(window_s));
        steps.fold(BurnStep::default(), |sum, step| BurnStep {
            bad: sum.bad + step.bad,
            total: sum.total + step.total,
            known_ns: sum.known_ns + step.known_ns,
            excluded_ns: sum.excluded_ns + step.excluded_ns,
        })
    }

    /// Steps of a window.
    fn count(&self, window_s: u32) -> usize {
        (window_s / (self.rule.short_s / STEPS).max(1)).max(1) as usize
    }

    fn step_ns(&self) -> i64 {
        i64::from((self.rule.short_s / STEPS).max(1)) * SECOND
    }
}

/// Steps in the short window: a window is exact to a fifth of that.
const STEPS: u32 = 5;
