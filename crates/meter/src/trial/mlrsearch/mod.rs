//! Multiple Loss Ratio search (RFC 9971): conditional throughputs of several goals at once.
//!
//! The RFC defines goals, bounds and results, and leaves to the implementation which load is
//! tried next. That is done as in the reference implementation of FD.io CSIT (`MLRsearch` on
//! PyPI, 1.2.1), trial by trial: results of the two can be compared. A test replays traces of
//! it.
//!
//! With an exceed ratio of 50 % a goal of zero loss is satisfied where every second trial is
//! lossless. That finds the capacity of a device that stalls now and then; it does not say
//! that a minute passes there without loss. Publish both, under their names.

mod grid;
mod selector;
mod target;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::trial::{Offer, Pattern};

use super::values::{SECOND, labelled, off_pace, reasons};
use super::{NextTrial, Procedure};
use grid::{Grid, Load, Width};
use selector::{LoadSelector, Nomination};
use target::{Bounds, Database, Target};

const SECONDS: f64 = SECOND as f64;

/// A search goal (RFC 9971, "Search Goal").
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// What its values are labelled with: "ndr". Empty where it is the only one.
    pub name: String,
    /// Duration of the longest trials, ns.
    pub final_trial_ns: i64,
    /// Trials of so many ns decide on a load.
    pub duration_sum_ns: i64,
    /// Greatest share of lost frames of a good trial, 0 to below 1.
    pub loss_ratio: f64,
    /// Greatest share of the time that bad trials may make up, 0 to below 1.
    pub exceed_ratio: f64,
    /// Width at which it is reached, in units of the upper bound, between 0 and 1.
    pub width: f64,
    /// Duration of the first trials, ns.
    pub initial_trial_ns: i64,
    /// Coarser targets on the way; 0 only where one initial trial decides.
    pub preceding_targets: u32,
}

impl Goal {
    /// As RFC 2544 has it (RFC 9971, "Example Goals"): one trial of 60 s without loss.
    pub fn rfc2544() -> Goal {
        Goal {
            name: "rfc2544".into(),
            final_trial_ns: 60 * SECOND,
            duration_sum_ns: 60 * SECOND,
            loss_ratio: 0.0,
            exceed_ratio: 0.0,
            width: 0.005,
            initial_trial_ns: SECOND,
            preceding_targets: 2,
        }
    }

    /// As TST 009 has it (likewise): one of two trials of 60 s without loss.
    pub fn tst009() -> Goal {
        Goal {
            name: "tst009".into(),
            duration_sum_ns: 120 * SECOND,
            exceed_ratio: 0.5,
            ..Goal::rfc2544()
        }
    }

    /// FD.io CSIT's no drop rate: half of 21 trials of 1 s without loss.
    pub fn ndr() -> Goal {
        Goal {
            name: "ndr".into(),
            final_trial_ns: SECOND,
            duration_sum_ns: 21 * SECOND,
            exceed_ratio: 0.5,
            ..Goal::rfc2544()
        }
    }

    /// FD.io CSIT's partial drop rate: the same with a loss of at most 0.5 %.
    pub fn pdr() -> Goal {
        Goal { name: "pdr".into(), loss_ratio: 0.005, ..Goal::ndr() }
    }

    /// What makes it impossible.
    fn problem(&self) -> Option<String> {
        let name = &self.name;
        let share = |x: f64| (0.0..1.0).contains(&x);
        if !share(self.loss_ratio) || !share(self.exceed_ratio) {
            return Some(format!("goal \"{name}\": ratios are from 0 to below 1"));
        }
        if !share(self.width) || self.width < 1e-6 {
            return Some(format!("goal \"{name}\": the width is from 0.000001 to below 1"));
        }
        if self.initial_trial_ns <= 0 || self.final_trial_ns < self.initial_trial_ns {
            return Some(format!("goal \"{name}\": final trials are no shorter than initial ones"));
        }
        if self.duration_sum_ns < self.final_trial_ns {
            return Some(format!(
                "goal \"{name}\": the duration sum is no less than a final trial"
            ));
        }
        if self.preceding_targets > 20 {
            return Some(format!("goal \"{name}\": at most 20 preceding targets"));
        }
        let direct = self.initial_trial_ns >= self.duration_sum_ns;
        (self.preceding_targets == 0 && !direct)
            .then(|| format!("goal \"{name}\": without preceding targets one trial has to decide"))
    }
}

/// What an MLRsearch is to find.
#[derive(Clone, Debug, PartialEq)]
pub struct MlrConfig {
    /// The goals; the first one's result is the most important.
    pub goals: Vec<Goal>,
    /// Least and greatest load, frames/s in each direction.
    pub min_fps: f64,
    /// Greatest load, above the least.
    pub max_fps: f64,
    /// A trial at the greatest load beforehand, whose result is not used, ns; 0: none.
    pub warmup_ns: i64,
    /// When so many ns were offered the search ends, with what it has.
    pub longest_ns: i64,
    /// To whom the frames go.
    pub pattern: Pattern,
}

impl Default for MlrConfig {
    fn default() -> Self {
        MlrConfig {
            goals: vec![Goal::ndr(), Goal::pdr()],
            min_fps: 9001.0,
            max_fps: 14_880_952.0,
            warmup_ns: 0,
            longest_ns: 3600 * SECOND,
            pattern: Pattern::Plan,
        }
    }
}

impl MlrConfig {
    /// What makes it impossible, in a sentence; `None`: nothing.
    pub fn problem(&self) -> Option<String> {
        if self.goals.is_empty() {
            return Some("no goal".into());
        }
        if !(self.min_fps > 0.0 && self.max_fps > self.min_fps && self.max_fps.is_finite()) {
            return Some("the greatest load has to be above the least, and that above 0".into());
        }
        self.goals.iter().find_map(Goal::problem)
    }
}

/// The stages of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Warmup,
    /// At the greatest load.
    First,
    /// At the forwarding rate seen there.
    Second,
    /// At the forwarding rate seen there, or a width above; with the second one's load.
    Third(Load),
    Main,
    End,
}

/// An MLRsearch under way.
#[derive(Clone, Debug)]
pub struct MlrSearch {
    config: MlrConfig,
    grid: Grid,
    database: Database,
    selectors: Vec<LoadSelector>,
    common_width: Width,
    stage: Stage,
    /// The next trial, and the selector that nominated it.
    next: Option<(Nomination, Option<usize>)>,
    /// The strictest of the goals, for the first trials.
    initial: Initial,
    trials: u64,
    offered_ns: i64,
    /// Trials for which the tester was not fit: how many, the least load, and why.
    unfit: Option<(u64, Load, String)>,
    /// Of each load with valid trials: frames/s offered in truth, weighted by the trials' seconds,
    /// and these seconds.
    offered: BTreeMap<Load, [f64; 2]>,
    problem: Option<String>,
}

/// What the first trials have to satisfy.
#[derive(Clone, Copy, Debug, Default)]
struct Initial {
    loss_ratio: f64,
    trial_s: f64,
    width: Width,
}

impl MlrSearch {
    /// Where `config` has a [`MlrConfig::problem`] the search ends at once and says so.
    pub fn new(config: MlrConfig) -> MlrSearch {
        let problem = config.problem();
        let goals = if problem.is_some() { &[] } else { config.goals.as_slice() };
        let widths: Vec<f64> = goals.iter().map(|g| g.width).collect();
        let (min, max) =
            if problem.is_some() { (1.0, 2.0) } else { (config.min_fps, config.max_fps) };
        let grid = Grid::new(min, max, &widths);
        let chains: Vec<Vec<Target>> = goals.iter().map(|g| Target::chain(g, &grid)).collect();
        let coarsest = || chains.iter().map(|c| &c[0]);
        let initial = Initial {
            loss_ratio: coarsest().map(|t| t.loss_ratio).fold(1.0, f64::min),
            trial_s: coarsest().map(|t| t.trial_s).fold(0.0, f64::max),
            width: coarsest().map(|t| t.width).max().unwrap_or(1),
        };
        let mut search = MlrSearch {
            database: Database::new(chains.concat()),
            selectors: Vec::new(),
            common_width: 0,
            stage: if config.warmup_ns > 0 { Stage::Warmup } else { Stage::First },
            next: None,
            initial,
            trials: 0,
            offered_ns: 0,
            unfit: None,
            offered: BTreeMap::new(),
            problem,
            grid,
            config,
        };
        match search.problem {
            Some(_) => search.stage = Stage::End,
            None if search.stage == Stage::Warmup => {
                let warmup_s = search.config.warmup_ns as f64 / SECONDS;
                search.ask(search.grid.top, warmup_s);
            }
            None => search.ask(search.grid.top, initial.trial_s),
        }
        search
    }

    fn ask(&mut self, load: Load, trial_s: f64) {
        self.next = Some((Nomination { load, trial_s, width: 0 }, None));
    }

    /// The loss ratio that decides on a load, and whether the tester was fit.
    ///
    /// An unfit tester says nothing of the device. But what it cannot offer it cannot find either.
    /// The load is bad for all goals, so that the search goes below it. Where it ends as a bound,
    /// the finding names the tester.
    fn loss_ratio(&mut self, trial: &Trial, load: Load) -> f64 {
        if trial.valid() {
            let seconds = trial.offer.duration_ns() as f64 / SECONDS;
            let sum = self.offered.entry(load).or_default();
            *sum = [sum[0] + trial.offered_fps() * seconds, sum[1] + seconds];
            return trial.loss_ratio();
        }
        let (count, least, why) = self.unfit.take().unwrap_or((0, load, String::new()));
        let why = if load <= least { reasons(trial) } else { why };
        self.unfit = Some((count + 1, least.min(load), why));
        let forwarded = trial.forwarding_rate_fps();
        let missing =
            if forwarded.is_finite() { 1.0 - forwarded / trial.offer.rate_fps } else { 1.0 };
        let worst_goal = self.config.goals.iter().map(|g| g.loss_ratio).fold(0.0, f64::max);
        // Halfway to a total loss is bad for any goal, and hints at a lower load.
        missing.max(trial.loss_ratio()).max((1.0 + worst_goal) / 2.0).clamp(0.0, 1.0)
    }

    /// What the forwarding rate at `load` suggests as the next load.
    fn forwarded(&self, load: Load, loss_ratio: f64) -> Load {
        let rate = self.grid.rate(load) * (1.0 - loss_ratio);
        // For a goal that allows loss: as if whatever is offered beyond was lost.
        self.grid.load(rate * (1.0 / (1.0 - self.initial.loss_ratio)))
    }

    fn first_trials(&mut self, load: Load, loss_ratio: f64) {
        let (top, width) = (self.grid.top, self.initial.width);
        match self.stage {
            Stage::Warmup => {
                self.stage = Stage::First;
                self.ask(top, self.initial.trial_s);
            }
            Stage::First => {
                let forwarded = self.forwarded(load, loss_ratio);
                match self.grid.fit(forwarded, width, None, Some(top)) {
                    Some(second) if forwarded < top => {
                        self.stage = Stage::Second;
                        self.ask(second, self.initial.trial_s);
                    }
                    _ => self.begin(load, load),
                }
            }
            Stage::Second => {
                let third = if loss_ratio > self.initial.loss_ratio {
                    let forwarded = self.forwarded(load, loss_ratio);
                    self.grid.fit(forwarded, width, None, Some(load))
                } else {
                    self.grid.fit(load + width, width, Some(load), Some(top))
                };
                match third {
                    Some(third) => {
                        self.stage = Stage::Third(load);
                        self.ask(third, self.initial.trial_s);
                    }
                    None => self.begin(load, load),
                }
            }
            Stage::Third(second) => self.begin(second, load),
            Stage::Main | Stage::End => {}
        }
    }

    /// The first trials are done: the goals choose from here.
    fn begin(&mut self, one: Load, other: Load) {
        let (low, high) = (one.min(other), one.max(other));
        self.common_width = high - low;
        let initial = Bounds { lower: Some(low), upper: Some(high) };
        let mut first = 0;
        for goal in &self.config.goals {
            let end = first + goal.preceding_targets as usize + 1;
            self.selectors.push(LoadSelector::new(first..end, initial, &self.database));
            first = end;
        }
        self.stage = Stage::Main;
        self.elect();
    }

    /// Asks every goal for its nomination and takes the first in their order.
    fn elect(&mut self) {
        let mut winner: Option<(Nomination, usize)> = None;
        for (i, selector) in self.selectors.iter_mut().enumerate() {
            let nominated = selector.nominate(&self.database, &self.grid, self.common_width);
            if let Some(new) = nominated
                && winner.is_none_or(|(old, _)| !old.before(&new, &self.grid))
            {
                winner = Some((new, i));
            }
        }
        self.next = winner.map(|(nomination, i)| (nomination, Some(i)));
        if self.next.is_none() {
            self.stage = Stage::End;
        }
    }

    /// Index of each goal's own target.
    fn goal_targets(&self) -> Vec<usize> {
        let ends = self.config.goals.iter().scan(0, |end, goal| {
            *end += goal.preceding_targets as usize + 1;
            Some(*end - 1)
        });
        ends.collect()
    }

    /// A load as it was offered (RFC 2285, section 3.5.2); where no trial of it was valid, as it
    /// was to be.
    fn offered_at(&self, load: Load) -> f64 {
        self.offered.get(&load).map_or_else(|| self.grid.rate(load), |[sum, s]| sum / s)
    }

    fn too_long(&self) -> bool {
        self.offered_ns >= self.config.longest_ns
    }

    fn add_goal(&self, goal: &Goal, target: usize, finding: &mut Finding) {
        let label = if self.config.goals.len() > 1 { goal.name.as_str() } else { "" };
        let bounds = self.database.bounds(target);
        let stat = bounds.lower.and_then(|l| self.database.stat(l, target));
        let loss = stat.map_or(1.0, |s| s.pessimistic_loss_ratio(self.database.target(target)));
        let of = labelled("Goal", &goal.name);
        let ended = self.stage == Stage::End;
        // An unfit trial is bad for all goals: where there is one at the bound or below, the bound
        // may be the tester's.
        let testers =
            self.unfit.as_ref().zip(bounds.upper).is_some_and(|((_, load, _), u)| *load <= u);
        let upper = bounds.upper.map(|l| self.offered_at(l));
        let found = |lower: f64| {
            let name = labelled("conditional_throughput", label);
            let end = upper.unwrap_or(lower);
            let quantity = Quantity::new(name, "frames/s", lower * (1.0 - loss), self.trials)
                .between(lower.min(end), lower.max(end));
            Quantity { tester_limited: testers, ..quantity }
        };
        match bounds.lower {
            Some(load) => finding.values.push(found(self.offered_at(load))),
            None if ended && !testers => finding.values.push(found(0.0)),
            None if ended => {
                finding.complete = false;
                finding.notes.push(format!(
                    "{of}: nothing was found: no load is a lower bound, and of the least one there \
                     is no valid trial that says why."
                ));
            }
            // Ended before any load was a bound: that is not known to be 0.
            None => finding.notes.push(format!("{of}: no load was a lower bound yet.")),
        }
        for (name, bound) in
            [("relevant_lower_bound", bounds.lower), ("relevant_upper_bound", bounds.upper)]
        {
            if let Some(load) = bound {
                let name = labelled(name, label);
                let rate = self.offered_at(load);
                let quantity = Quantity::new(name, "frames/s", rate, self.trials);
                finding.values.push(Quantity { tester_limited: testers, ..quantity });
            }
        }
        if let Some(pace) = bounds.lower.map(|l| self.offered_at(l) / self.grid.rate(l)) {
            let note = off_pace(pace, goal.width);
            finding.notes.extend(note.map(|note| format!("{of}: {note}")));
        }
        if ended && bounds.lower.is_none() && !testers {
            finding.notes.push(format!("{of}: no load is a lower bound, down to the least one."));
        }
        if ended && bounds.upper.is_none() {
            finding.notes.push(format!("{of}: the greatest load is a lower bound."));
        }
        if testers && bounds.lower.is_some() {
            finding.notes.push(format!("{of}: the upper bound may be the tester's."));
        }
        if goal.exceed_ratio > 0.0 {
            finding.notes.push(format!(
                "{of}: trials of up to {} % of the time may lose more than {} %.",
                goal.exceed_ratio * 100.0,
                goal.loss_ratio * 100.0
            ));
        }
    }
}

impl Procedure for MlrSearch {
    fn next(&mut self) -> Option<NextTrial> {
        let (nomination, _) = self.next.as_ref().filter(|_| !self.too_long())?;
        let duration_ns = (nomination.trial_s * SECONDS).round() as i64;
        let offer = Offer::steady(self.grid.rate(nomination.load), duration_ns);
        let purpose = if self.stage == Stage::Warmup { "warm-up" } else { "search" };
        Some(NextTrial {
            offer: Offer { pattern: self.config.pattern, ..offer },
            purpose: purpose.into(),
        })
    }

    fn observe(&mut self, trial: &Trial) {
        if self.too_long() {
            return;
        }
        let Some((nomination, selector)) = self.next.take() else { return };
        self.trials += 1;
        self.offered_ns += (nomination.trial_s * SECONDS).round() as i64;
        let load = nomination.load;
        if self.stage == Stage::Warmup {
            return self.first_trials(load, 0.0);
        }
        let loss_ratio = self.loss_ratio(trial, load);
        self.database.add(load, nomination.trial_s, loss_ratio);
        let Some(selector) = selector else {
            return self.first_trials(load, loss_ratio);
        };
        self.common_width = nomination.width;
        if let Some(width) = self.selectors[selector].won(load, &self.database) {
            self.common_width = width;
        }
        self.elect();
    }

    fn finding(&self) -> Finding {
        let mut finding = Finding {
            complete: self.stage == Stage::End && self.problem.is_none(),
            ..Finding::default()
        };
        if let Some(problem) = &self.problem {
            finding.notes.push(format!("Impossible: {problem}."));
            return finding;
        }
        if self.trials == 0 {
            return finding;
        }
        for (goal, target) in self.config.goals.iter().zip(self.goal_targets()) {
            self.add_goal(goal, target, &mut finding);
        }
        if self.too_long() && self.stage != Stage::End {
            finding.notes.push(format!(
                "Ended after {:.0} s of offered load, before all goals were reached.",
                self.offered_ns as f64 / SECONDS
            ));
        }
        if let Some((count, load, why)) = &self.unfit {
            let rate = self.grid.rate(*load);
            finding.notes.push(format!(
                "For {count} trials, the least at {rate:.0} frames/s, the tester was not fit: {why}."
            ));
        }
        finding
    }

    /// Each target tries about three loads; a load that is worth it may take as long as the
    /// limit.
    fn remaining_ns(&self) -> i64 {
        if self.stage == Stage::End || self.too_long() {
            return 0;
        }
        let first = self.config.warmup_ns as f64 / SECONDS + 3.0 * self.initial.trial_s;
        let targets: f64 =
            self.database.targets().iter().map(|t| 3.0 * t.duration_sum_s.max(t.trial_s)).sum();
        let left = self.config.longest_ns - self.offered_ns;
        let planned = ((first + targets) * SECONDS) as i64 - self.offered_ns;
        let least = self.next.map_or(0, |(n, _)| (n.trial_s * SECONDS) as i64);
        planned.max(least).min(left)
    }

    fn remaining_trials(&self) -> u32 {
        if self.stage == Stage::End || self.too_long() {
            return 0;
        }
        let of = |t: &Target| 3 * (t.duration_sum_s / t.trial_s).ceil() as u32;
        let planned = 4 + self.database.targets().iter().map(of).sum::<u32>();
        planned.saturating_sub(self.trials as u32).max(1)
    }
}
