//! The loads of a search. They are integer multiples of equal steps in the logarithm of the rate,
//! chosen so that each goal's width is almost a whole number of steps. Bisection then is exact
//! integer arithmetic and means the same at every magnitude.

/// A load: the index of its step, from 0 at the least load.
pub(super) type Load = i64;

/// A distance between loads, in steps.
pub(super) type Width = i64;

/// How much of a goal's width a whole number of steps has to make up. No less, so that the search
/// does not work for a width narrower than asked for. No more, so that rounding errors cannot make
/// it wider.
const QUALITY: [f64; 2] = [0.99, 0.999_999];

/// The steps between the least and the greatest load.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    min_fps: f64,
    max_fps: f64,
    /// The index of the greatest load.
    pub top: Load,
}

impl Grid {
    /// With as few steps as do for all widths, given relative to the upper of two loads.
    pub fn new(min_fps: f64, max_fps: f64, widths: &[f64]) -> Grid {
        let range = max_fps.ln() - min_fps.ln();
        let log_widths: Vec<f64> = widths.iter().map(|w| -(-w).ln_1p()).collect();
        let mut steps = 1.0f64;
        loop {
            let step = range / steps;
            let mut next: f64 = steps + 1.0;
            let mut fits = true;
            for width in &log_widths {
                let units = width / step;
                let whole = units.floor();
                let quality = whole / units;
                if !(QUALITY[0]..=QUALITY[1]).contains(&quality) {
                    fits = false;
                    next = next.max((whole + 1.0) / QUALITY[1] / units * steps);
                }
            }
            if fits {
                return Grid { min_fps, max_fps, top: steps as Load };
            }
            steps = next.ceil();
        }
    }

    /// Frames/s of `load`. Halving the range again and again, instead of one
    /// exponential, gives each load one value whatever the other end of its interval.
    pub fn rate(&self, load: Load) -> f64 {
        match load {
            ..=0 => self.min_fps,
            n if n >= self.top => self.max_fps,
            n => self.descend(|middle, _| n.cmp(&middle)).1,
        }
    }

    /// The greatest load of at most `rate` frames/s.
    pub fn load(&self, rate: f64) -> Load {
        if rate <= self.min_fps {
            0
        } else if rate >= self.max_fps {
            self.top
        } else {
            self.descend(|_, middle| rate.total_cmp(&middle)).0
        }
    }

    /// Steps in a relative width, rounded down.
    pub fn width(&self, relative: f64) -> Width {
        self.load(self.min_fps / (1.0 - relative))
    }

    /// Halves the grid towards where `compare` (with a middle's index and rate) points.
    /// Returns the middle that is equal, or the lower end of the last step.
    fn descend(&self, compare: impl Fn(Load, f64) -> std::cmp::Ordering) -> (Load, f64) {
        let (mut low, mut high) = ((0, self.min_fps), (self.top, self.max_fps));
        while high.0 - low.0 >= 2 {
            let middle = (low.0 + high.0) / 2;
            let share = (middle - low.0) as f64 / (high.0 - low.0) as f64;
            let rate = low.1 * ((high.1.ln() - low.1.ln()) * share).exp();
            match compare(middle, rate) {
                std::cmp::Ordering::Equal => return (middle, rate),
                std::cmp::Ordering::Greater => low = (middle, rate),
                std::cmp::Ordering::Less => high = (middle, rate),
            }
        }
        low
    }

    /// `load` moved so that it is worth a trial. It is within the grid, and `width` or more from
    /// both bounds known so far, or on a limit of the grid. `None`: no such load.
    pub fn fit(
        &self,
        load: Load,
        width: Width,
        lower: Option<Load>,
        upper: Option<Load>,
    ) -> Option<Load> {
        let load = load.clamp(0, self.top);
        if lower.is_some_and(|l| load <= l) || upper.is_some_and(|u| load >= u) {
            return None;
        }
        let (low, high) = (lower.unwrap_or(0), upper.unwrap_or(self.top));
        // A limit of the grid may be measured, a bound has been.
        if width >= high - low {
            return match (lower, upper) {
                (None, _) => Some(low),
                (_, None) => Some(high),
                _ => None,
            };
        }
        let (mut nearest, mut farthest) = (low + width, high - width);
        if nearest > farthest {
            nearest = middle(low, high, width);
            farthest = nearest;
        }
        Some(if load < nearest {
            if lower.is_some() { nearest } else { low }
        } else if load > farthest {
            if upper.is_some() { farthest } else { high }
        } else {
            load
        })
    }
}

/// Where to cut the interval from `low` to `high`, wider than `goal`. Its parts are then `goal`
/// times powers of two, and need no uneven cuts later.
pub(super) fn middle(low: Load, high: Load, goal: Width) -> Load {
    let whole = high - low;
    debug_assert!(whole > goal);
    if whole == 2 * goal {
        return low + goal;
    }
    if whole < 2 * goal {
        return if goal % 2 == 0 { middle(low, high, goal / 2) } else { low + whole / 2 };
    }
    // The upper part is the goal, doubled while it remains the smaller one.
    let mut upper = goal;
    while whole - 2 * upper > 2 * upper {
        upper *= 2;
    }
    let (lower, doubled) = (whole - upper, 2 * upper);
    if upper * lower > doubled * (whole - doubled) { low + upper } else { low + whole - doubled }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rates_ascend_and_loads_are_their_inverse(
            min in 1.0f64..1e5, span in 1.01f64..1e5, width in 1e-3f64..0.3, at in 0.0f64..1.0
        ) {
            let grid = Grid::new(min, min * span, &[width]);
            let load = (at * grid.top as f64) as Load;
            prop_assert_eq!(grid.load(grid.rate(load)), load);
            prop_assert!(grid.rate(load) < grid.rate(load + 1) || load == grid.top);
            prop_assert_eq!((grid.rate(-5), grid.rate(grid.top + 5)), (min, min * span));
            let step = grid.width(width);
            prop_assert!(step >= 1 || width > 1.0 - 1.0 / span);
        }

        #[test]
        fn a_cut_lies_inside(low in 0i64..1000, whole in 2i64..5000, goal in 1i64..300) {
            prop_assume!(whole > goal);
            let cut = middle(low, low + whole, goal);
            prop_assert!(low < cut && cut < low + whole);
        }

        #[test]
        fn a_fitted_load_is_a_limit_or_away_from_the_bounds(
            load in -50i64..2000, width in 1i64..200,
            lower in proptest::option::of(0i64..1000), gap in 1i64..1000, bounded in any::<bool>()
        ) {
            let grid = Grid::new(1000.0, 1e6, &[0.005]);
            let upper = bounded.then(|| (lower.unwrap_or(0) + gap).min(grid.top));
            if let Some(fit) = grid.fit(load, width, lower, upper) {
                prop_assert!((0..=grid.top).contains(&fit));
                prop_assert!(lower.is_none_or(|l| fit > l) && upper.is_none_or(|u| fit < u || u == 0));
            }
        }
    }
}
