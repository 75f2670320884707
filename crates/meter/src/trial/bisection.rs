//! Binary search for the greatest load, burst or count that passes.

/// Where the greatest value that passes lies, so far.
#[derive(Clone, Debug)]
pub(super) struct Bisection {
    lowest: f64,
    highest: f64,
    /// Width at which the search ends, in units of its upper end.
    resolution: f64,
    /// Width at which it ends in any case; from 1 on the values are integers.
    step: f64,
    /// The greatest value that passed, and the least that failed.
    pub lower: Option<f64>,
    pub upper: Option<f64>,
}

impl Bisection {
    /// Among the values from `lowest` (above 0) to `highest`.
    pub fn new(lowest: f64, highest: f64, resolution: f64) -> Bisection {
        // Whatever a plan says, the search comes to an end.
        let lowest = if lowest > 0.0 { lowest } else { 1.0 };
        let (highest, resolution) = (highest.max(lowest), resolution.max(1e-6));
        Bisection { lowest, highest, resolution, step: 0.0, lower: None, upper: None }
    }

    /// Among integers, until the bounds are `step` apart (at least 1).
    pub fn whole(lowest: u64, highest: u64, step: u64) -> Bisection {
        let all = Bisection::new(lowest as f64, highest as f64, 0.0);
        Bisection { step: step.max(1) as f64, resolution: 0.0, ..all }
    }

    /// The value to try; `None` when the bounds are near enough.
    pub fn next(&self) -> Option<f64> {
        // The highest first: a device that carries it needs no search.
        let Some(upper) = self.upper else {
            return (self.lower != Some(self.highest)).then_some(self.highest);
        };
        if upper <= self.lowest {
            return None;
        }
        let lower = self.lower.unwrap_or(self.lowest);
        if upper - lower <= self.width_at(upper) {
            // The lower end of the range was an assumption until now.
            return self.lower.is_none().then_some(self.lowest);
        }
        let middle = lower + (upper - lower) / 2.0;
        Some(if self.step >= 1.0 { middle.floor() } else { middle })
    }

    /// The outcome at `value`.
    pub fn observe(&mut self, value: f64, passed: bool) {
        if passed {
            self.lower = Some(self.lower.map_or(value, |l| l.max(value)));
        } else {
            self.upper = Some(self.upper.map_or(value, |u| u.min(value)));
        }
    }

    /// The most values that may still be tried.
    pub fn remaining(&self) -> u32 {
        if self.next().is_none() {
            return 0;
        }
        let (upper, first) = self.upper.map_or((self.highest, 1), |u| (u, 0));
        let lower = self.lower.unwrap_or(self.lowest);
        // The width that ends it is least where all fail, and then the lower end is tried, too.
        let halvings = ((upper - lower) / self.width_at(lower)).log2().ceil().max(0.0) as u32;
        first + halvings + u32::from(self.lower.is_none())
    }

    fn width_at(&self, upper: f64) -> f64 {
        (self.resolution * upper).max(self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn search(mut bisection: Bisection, truth: f64) -> (Bisection, u32) {
        let (mut tries, most) = (0, bisection.remaining());
        while let Some(value) = bisection.next() {
            assert!(value >= bisection.lowest && value <= bisection.highest, "{value}");
            assert!(bisection.remaining() > 0 && bisection.remaining() <= most - tries);
            bisection.observe(value, value <= truth);
            tries += 1;
            assert!(tries <= most, "{tries} of {most}");
        }
        (bisection, tries)
    }

    proptest! {
        #[test]
        fn the_truth_is_bracketed_within_the_resolution(
            lowest in 1.0f64..1e4, span in 1.0f64..1e4, at in -0.1f64..1.2, resolution in 1e-4f64..0.2
        ) {
            let highest = lowest * span;
            let truth = highest * at;
            let (found, _) = search(Bisection::new(lowest, highest, resolution), truth);
            match (found.lower, found.upper) {
                (Some(lower), Some(upper)) => {
                    prop_assert!(lower <= truth && truth < upper);
                    prop_assert!(upper - lower <= resolution * upper);
                }
                (Some(lower), None) => prop_assert!(lower == highest && truth >= highest),
                (None, upper) => prop_assert!(upper == Some(lowest) && truth < lowest),
            }
        }

        #[test]
        fn whole_numbers_are_found_to_the_step(
            highest in 1u64..100_000, truth in 0u64..120_000, step in 1u64..40
        ) {
            let (found, _) = search(Bisection::whole(1, highest, step), truth as f64);
            let (lower, truth) = (found.lower.unwrap_or(0.0) as u64, truth.min(highest));
            prop_assert!(lower <= truth && truth < lower + step, "{} {}", lower, truth);
        }
    }
}
