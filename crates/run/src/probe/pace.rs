//! When something that failed is tried again.

use std::time::{Duration, Instant};

/// After a second, then after twice as long each time, up to a minute; for ever.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    due: Instant,
    pause: Duration,
}

impl Pace {
    /// The first try failed at `now`.
    pub fn new(now: Instant) -> Pace {
        Pace { due: now + FIRST, pause: FIRST }
    }

    /// How long it is until the next try; 0: it is due.
    pub fn left(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// Whether it is to be tried.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// It was tried at `now`, and failed.
    pub fn failed(&mut self, now: Instant) {
        self.pause = (2 * self.pause).min(LONGEST);
        self.due = now + self.pause;
    }

    /// Something has changed on which it hangs: it is tried within a second, then as at first.
    pub fn hurry(&mut self, now: Instant) {
        self.pause = FIRST;
        self.due = self.due.min(now + FIRST);
    }
}

const FIRST: Duration = Duration::from_secs(1);
/// A usual time to live of a name whose address is to be found soon after a change.
pub const LONGEST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_grow_rarer_up_to_a_minute_and_never_end() {
        let begin = Instant::now();
        let s = Duration::from_secs;
        let (mut pace, mut now, mut tries) = (Pace::new(begin), begin, Vec::new());
        for _ in 0..9 {
            assert!(!pace.is_due(now));
            now += pace.left(now);
            assert!(pace.is_due(now));
            tries.push((now - begin).as_secs());
            pace.failed(now);
        }
        assert_eq!(tries, [1, 3, 7, 15, 31, 63, 123, 183, 243]);
        // A route has come: not at once, since many come together.
        now += s(1);
        pace.hurry(now);
        assert_eq!(pace.left(now), s(1));
        pace.hurry(now + s(1));
        assert!(pace.is_due(now + s(1)), "changes without end put nothing off");
        pace.failed(now + s(1));
        assert_eq!(pace.left(now + s(1)), s(2));
    }
}
