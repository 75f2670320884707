//! What a goal asks of a load, and what the trials so far say of it.

use std::collections::BTreeMap;

use super::grid::{Grid, Load, Width};
use super::{Goal, SECONDS};

/// A goal, or a coarser and quicker one on the way to it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub loss_ratio: f64,
    pub exceed_ratio: f64,
    pub width: Width,
    /// Shortest trial that counts in full, s.
    pub trial_s: f64,
    /// Trials of so many seconds decide on a load.
    pub duration_sum_s: f64,
    /// What a width is multiplied by while the search goes outwards.
    pub expansion: i64,
}

impl Target {
    /// The targets of `goal`, the coarsest first, the goal itself last. Their duration sums
    /// grow geometrically from the initial trial's duration, their widths halve.
    pub fn chain(goal: &Goal, grid: &Grid) -> Vec<Target> {
        let final_s = goal.final_trial_ns as f64 / SECONDS;
        let initial_s = goal.initial_trial_ns as f64 / SECONDS;
        let sum_s = goal.duration_sum_ns as f64 / SECONDS;
        let mut width = grid.width(goal.width);
        let target = |width, trial_s, duration_sum_s| Target {
            loss_ratio: goal.loss_ratio,
            exceed_ratio: goal.exceed_ratio,
            width,
            trial_s,
            duration_sum_s,
            expansion: 2,
        };
        let mut chain = vec![target(width, final_s, sum_s)];
        let factor = (initial_s / sum_s).powf(1.0 / f64::from(goal.preceding_targets.max(1)));
        for count in 1..=goal.preceding_targets {
            let sum = match count {
                n if n == goal.preceding_targets => initial_s,
                n => sum_s * factor.powf(f64::from(n)),
            };
            width *= 2;
            chain.push(target(width, final_s.min(sum), sum));
        }
        chain.reverse();
        chain
    }
}

/// What the trials of one load say of one target, s.
#[derive(Clone, Debug, Default)]
pub(super) struct Stat {
    good_long: f64,
    bad_long: f64,
    good_short: f64,
    bad_short: f64,
    /// Loss ratios of long trials, ascending, with the time for which each was seen.
    long_losses: Vec<(f64, f64)>,
}

impl Stat {
    fn add(&mut self, target: &Target, duration_s: f64, loss_ratio: f64) {
        let bad = loss_ratio > target.loss_ratio;
        if duration_s >= target.trial_s {
            match self.long_losses.binary_search_by(|(r, _)| r.total_cmp(&loss_ratio)) {
                Ok(i) => self.long_losses[i].1 += duration_s,
                Err(i) => self.long_losses.insert(i, (loss_ratio, duration_s)),
            }
            *(if bad { &mut self.bad_long } else { &mut self.good_long }) += duration_s;
        } else {
            *(if bad { &mut self.bad_short } else { &mut self.good_short }) += duration_s;
        }
    }

    /// Whether the load would become a lower bound if all trials to come were good, and if
    /// all were bad. Where both agree the load is classified (RFC 9971, "Load
    /// Classification Logic").
    fn estimates(&self, target: &Target) -> (bool, bool) {
        // Short good trials only excuse short bad ones, in the proportion allowed.
        let excused = self.good_short * target.exceed_ratio / (1.0 - target.exceed_ratio);
        let excess = self.bad_long + (self.bad_short - excused).max(0.0);
        let sum = (self.good_long + excess).max(target.duration_sum_s);
        let allowed = sum * target.exceed_ratio;
        (excess <= allowed, sum - self.good_long <= allowed)
    }

    /// The loss ratio that conditional throughput is made with. It is the quantile of the long
    /// trials that the exceed ratio leaves, those missing taken as total loss (RFC 9971,
    /// "Conditional Throughput").
    pub fn pessimistic_loss_ratio(&self, target: &Target) -> f64 {
        let sum = target.duration_sum_s.max(self.good_long + self.bad_long);
        let mut remaining = sum * (1.0 - target.exceed_ratio);
        let mut found = None;
        for &(ratio, duration) in &self.long_losses {
            if found.is_some() && remaining <= 0.0 {
                return found.unwrap_or(1.0);
            }
            found = Some(ratio);
            remaining -= duration;
        }
        if remaining > 0.0 { 1.0 } else { found.unwrap_or(1.0) }
    }
}

/// The loads that bound a target's result, where there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Relevant lower bound: the greatest below the upper one.
    pub lower: Option<Load>,
    /// Relevant upper bound: the least.
    pub upper: Option<Load>,
}

/// All trials, by load and target.
#[derive(Clone, Debug)]
pub(super) struct Database {
    targets: Vec<Target>,
    loads: BTreeMap<Load, Vec<Stat>>,
}

impl Database {
    pub fn new(targets: Vec<Target>) -> Database {
        Database { targets, loads: BTreeMap::new() }
    }

    pub fn target(&self, id: usize) -> &Target {
        &self.targets[id]
    }

    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    pub fn add(&mut self, load: Load, duration_s: f64, loss_ratio: f64) {
        let stats =
            self.loads.entry(load).or_insert_with(|| vec![Stat::default(); self.targets.len()]);
        for (stat, target) in stats.iter_mut().zip(&self.targets) {
            stat.add(target, duration_s, loss_ratio);
        }
    }

    pub fn stat(&self, load: Load, target: usize) -> Option<&Stat> {
        self.loads.get(&load).map(|stats| &stats[target])
    }

    /// A load that is no bound itself does not matter, and neither does a lower bound above
    /// an upper one (RFC 9971, "Relevant Lower Bound").
    pub fn bounds(&self, target: usize) -> Bounds {
        let mut bounds = Bounds::default();
        for (&load, stats) in &self.loads {
            match stats[target].estimates(&self.targets[target]) {
                (true, true) => bounds.lower = Some(load),
                (false, false) => {
                    bounds.upper = Some(load);
                    break;
                }
                _ => {}
            }
        }
        bounds
    }
}
