//! How long a trial waits for late frames.

use std::time::Duration;

use super::{SECOND, TrialProgress};

/// The wait after the last frame has left (RFC 2544, section 23).
pub(super) struct Drain {
    /// When it is over, ns TAI.
    end_ns: i64,
    complete: bool,
}

impl Drain {
    /// From `now_ns` on (TAI), for `drain` at most.
    pub(super) fn new(now_ns: i64, drain: Duration) -> Drain {
        Drain { end_ns: now_ns + drain.as_nanos() as i64, complete: false }
    }

    /// How long to sleep until the next look, at most `tick`; `None`: it is over. Once all frames
    /// have arrived only copies of them are waited for.
    pub(super) fn pause(
        &mut self,
        now_ns: i64,
        so_far: TrialProgress,
        tick: Duration,
    ) -> Option<Duration> {
        if so_far.received >= so_far.sent && !self.complete {
            self.complete = true;
            self.end_ns = self.end_ns.min(now_ns + COPIES_NS);
        }
        let left = u64::try_from(self.end_ns - now_ns).ok().filter(|&ns| ns > 0)?;
        Some(tick.min(Duration::from_nanos(left)))
    }
}

/// How long after the last frame copies of frames are waited for.
const COPIES_NS: i64 = SECOND / 10;

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN_NS: i64 = 1_000;
    const TICK: Duration = Duration::from_millis(5);

    /// How long it takes, ns, where the last of ten frames arrives after `last_ns`.
    fn takes(drain: Duration, last_ns: i64) -> i64 {
        let mut now_ns = BEGIN_NS;
        let mut waited = Drain::new(now_ns, drain);
        loop {
            let received = if now_ns - BEGIN_NS >= last_ns { 10 } else { 9 };
            let so_far = TrialProgress { start_ns: 0, sent: 10, received };
            let Some(pause) = waited.pause(now_ns, so_far, TICK) else { return now_ns - BEGIN_NS };
            assert!(pause <= TICK && !pause.is_zero());
            now_ns += pause.as_nanos() as i64;
        }
    }

    #[test]
    fn a_missing_frame_is_waited_for_and_after_the_last_only_copies_are() {
        let drain = Duration::from_secs(2);
        assert_eq!(takes(drain, i64::MAX), 2 * SECOND);
        assert_eq!(takes(drain, 0), COPIES_NS);
        assert_eq!(takes(drain, SECOND / 2), SECOND / 2 + COPIES_NS);
        // What is left of the wait is less than that for copies.
        assert_eq!(takes(drain, 2 * SECOND - 10_000_000), 2 * SECOND);
        assert_eq!(takes(Duration::from_millis(7), 0), 7_000_000);
        assert_eq!(takes(Duration::ZERO, 0), 0);
    }
}
