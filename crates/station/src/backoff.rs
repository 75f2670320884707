//! How long to wait before what failed is tried again.

use std::time::Duration;

/// Delays that double from [`Backoff::LEAST`] to a bound, each lengthened by up to a quarter at
/// random, so that what failed together does not come back together.
#[derive(Clone, Debug)]
pub struct Backoff {
    /// The longest, without what chance adds.
    most: Duration,
    /// Delays since the last reset.
    given: u32,
}

impl Backoff {
    /// The first delay.
    pub const LEAST: Duration = Duration::from_secs(1);
    /// The longest of units, without what chance adds.
    pub const MOST: Duration = Duration::from_secs(60);

    /// With this longest delay.
    pub fn up_to(most: Duration) -> Backoff {
        Backoff { most, given: 0 }
    }

    /// The next delay.
    pub fn next(&mut self, random: &mut fastrand::Rng) -> Duration {
        let doubled =
            Backoff::LEAST.saturating_mul(1_u32.checked_shl(self.given).unwrap_or(u32::MAX));
        self.given = self.given.saturating_add(1);
        doubled.min(self.most).mul_f64(1.0 + random.f64() / 4.0)
    }

    /// The next delay is the first again.
    pub fn reset(&mut self) {
        self.given = 0;
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff::up_to(Backoff::MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_bound_and_begin_again_after_a_reset() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut backoff = Backoff::default();
        let whole = [1, 2, 4, 8, 16, 32, 60, 60];
        for seconds in whole.into_iter().chain([60; 100]) {
            let least = Duration::from_secs(seconds);
            let delay = backoff.next(&mut random);
            assert!(delay >= least && delay <= least.mul_f64(1.25), "{seconds} s: {delay:?}");
        }
        backoff.reset();
        assert!(backoff.next(&mut random) < Duration::from_secs(2));
    }
}
