//! Which load a goal wants tried next. It goes from the coarsest of its targets to the goal itself,
//! each beginning with the bounds of the one before.

use super::grid::{Grid, Load, Width, middle};
use super::target::{Bounds, Database, Target};

/// What a selector wants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Nomination {
    pub load: Load,
    pub trial_s: f64,
    /// Width that all selectors are to go on with, if this trial is run.
    pub width: Width,
}

impl Nomination {
    /// Lower loads first, they decide more and lose less; then longer trials, wider steps.
    pub fn before(&self, other: &Nomination, grid: &Grid) -> bool {
        let key = |n: &Nomination| (n.load, n.width.min(grid.top));
        let ((load, width), (other_load, other_width)) = (key(self), key(other));
        load < other_load
            || load == other_load
                && (self.trial_s > other.trial_s
                    || self.trial_s == other.trial_s && width >= other_width)
    }
}

/// What the last nomination was made for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Strategy {
    /// The initial bounds are too wide by less than a factor of two: cut between them.
    Halve,
    /// Try an initial bound again, as long as the new target asks for.
    Refine,
    /// There is no lower bound: go down.
    ExtendDown,
    /// There is no upper bound: go up.
    ExtendUp,
    /// Between the bounds; or near one of them where the initial bound beyond it no longer
    /// holds, going outwards.
    Bisect { grows_on_lower: bool, grows_on_upper: bool },
}

/// One goal's view of the search.
#[derive(Clone, Debug)]
pub(super) struct LoadSelector {
    /// Targets still to come, the next one last.
    to_come: Vec<usize>,
    current: usize,
    /// Where the current target began: bounds of the one before.
    initial: Bounds,
    next_width: Width,
    strategy: Option<Strategy>,
}

impl LoadSelector {
    /// For the targets of these indexes, the coarsest first.
    pub fn new(
        targets: std::ops::Range<usize>,
        initial: Bounds,
        database: &Database,
    ) -> LoadSelector {
        let mut to_come: Vec<usize> = targets.rev().collect();
        let current = to_come.pop().expect("a goal is a target itself");
        let mut selector =
            LoadSelector { to_come, current, initial, next_width: 0, strategy: None };
        selector.restart(database.target(current));
        selector
    }

    fn restart(&mut self, target: &Target) {
        let between = match self.initial {
            Bounds { lower: Some(l), upper: Some(u) } => u - l,
            _ => 0,
        };
        self.next_width = target.width.max(between);
        self.expand(target);
        self.strategy = None;
    }

    fn expand(&mut self, target: &Target) {
        self.next_width = self.next_width.saturating_mul(target.expansion);
    }

    /// Steps outwards begin anew from `width`.
    fn limit(&mut self, width: Width, target: &Target) {
        self.next_width = width.max(target.width);
        self.expand(target);
    }

    /// The trial that this goal wants; `None` when it is reached.
    pub fn nominate(
        &mut self,
        database: &Database,
        grid: &Grid,
        common_width: Width,
    ) -> Option<Nomination> {
        loop {
            let target = database.target(self.current);
            let bounds = database.bounds(self.current);
            self.strategy = None;
            if let Some((strategy, load, width)) = self.choose(target, bounds, grid, common_width) {
                self.strategy = Some(strategy);
                return Some(Nomination { load, trial_s: target.trial_s, width });
            }
            self.current = self.to_come.pop()?;
            self.initial = bounds;
            self.restart(database.target(self.current));
        }
    }

    fn choose(
        &mut self,
        target: &Target,
        bounds: Bounds,
        grid: &Grid,
        common_width: Width,
    ) -> Option<(Strategy, Load, Width)> {
        let open = |load: Load| worth(target, bounds, load);
        if let Bounds { lower: Some(low), upper: Some(high) } = self.initial
            && high - low > target.width
            && high - low <= 2 * target.width
        {
            let load = middle(low, high, target.width);
            if open(load) {
                self.limit(target.width, target);
                return Some((Strategy::Halve, load, target.width));
            }
        }
        for load in [self.initial.lower, self.initial.upper].into_iter().flatten() {
            if open(load) {
                self.limit(target.width, target);
                return Some((Strategy::Refine, load, target.width));
            }
        }
        let outwards = self.outwards(common_width, grid);
        match bounds {
            Bounds { lower: None, upper: Some(upper) } if upper > 0 => {
                let load = grid.fit(upper - outwards, target.width, None, Some(upper))?;
                open(load).then_some((Strategy::ExtendDown, load, outwards))
            }
            Bounds { lower: Some(lower), upper: None } if lower < grid.top => {
                let load = grid.fit(lower + outwards, target.width, Some(lower), None)?;
                open(load).then_some((Strategy::ExtendUp, load, outwards))
            }
            Bounds { lower: Some(lower), upper: Some(upper) } => {
                self.bisect(target, lower, upper, outwards, grid)
            }
            _ => None,
        }
    }

    /// How far to go where a bound is missing: as far as another goal last went, or farther.
    fn outwards(&self, common_width: Width, grid: &Grid) -> Width {
        if self.next_width.min(grid.top) > common_width.min(grid.top) {
            self.next_width
        } else {
            common_width
        }
    }

    fn bisect(
        &mut self,
        target: &Target,
        lower: Load,
        upper: Load,
        outwards: Width,
        grid: &Grid,
    ) -> Option<(Strategy, Load, Width)> {
        if upper - lower <= target.width || lower >= grid.top || upper <= 0 {
            return None;
        }
        let cut = middle(lower, upper, target.width);
        // The truth is where it was before, rather than in the middle of a wide interval.
        let near = |load: Load| grid.fit(load, target.width, Some(lower), Some(upper));
        if let Some(initial) = self.initial.upper
            && cut < initial
            && let Some(load) = near(upper - outwards)
            && load > cut
            && load < initial
        {
            let strategy = Strategy::Bisect { grows_on_lower: false, grows_on_upper: true };
            return Some((strategy, load, outwards));
        }
        if let Some(initial) = self.initial.lower
            && cut > initial
            && let Some(load) = near(lower + outwards)
            && load < cut
            && load > initial
        {
            let strategy = Strategy::Bisect { grows_on_lower: true, grows_on_upper: false };
            return Some((strategy, load, outwards));
        }
        let width = (cut - lower).min(upper - cut);
        self.limit(width, target);
        let strategy = Strategy::Bisect { grows_on_lower: false, grows_on_upper: false };
        Some((strategy, cut, width))
    }

    /// The nominated trial was run. Returns the width for all selectors to go on with, where
    /// the step outwards did not reach the bound that it looked for.
    pub fn won(&mut self, load: Load, database: &Database) -> Option<Width> {
        let bounds = database.bounds(self.current);
        let (on_lower, on_upper) = match self.strategy? {
            Strategy::Halve | Strategy::Refine => (false, false),
            Strategy::ExtendDown => (false, true),
            Strategy::ExtendUp => (true, false),
            Strategy::Bisect { grows_on_lower, grows_on_upper } => (grows_on_lower, grows_on_upper),
        };
        let grows =
            on_lower && bounds.lower == Some(load) || on_upper && bounds.upper == Some(load);
        grows.then(|| {
            self.expand(database.target(self.current));
            self.next_width
        })
    }
}

/// Whether a trial at `load` can add anything new for the target.
fn worth(target: &Target, bounds: Bounds, load: Load) -> bool {
    let near = match bounds {
        Bounds { lower: Some(l), upper: Some(u) } => u - l <= target.width,
        _ => false,
    };
    !near && bounds.lower.is_none_or(|l| l < load) && bounds.upper.is_none_or(|u| u > load)
}
