//! When each frame of a trial is due.

use sonde_results::trial::Offer;

/// The due times of one direction: bursts at equal distances, which may change once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Frames in all.
    pub frames: u64,
    /// Frames that are due together.
    pub burst: u64,
    /// Frames before this one are sent, but not counted (`Offer::discard_ns`).
    pub counted_from: u64,
    /// Between bursts, ns.
    step_ns: f64,
    /// The burst boundary from which on bursts follow each other at the second distance, ns.
    then: Option<(u64, f64)>,
}

impl Schedule {
    /// That of an offer. With a step, the load changes at the first burst at or after it.
    pub fn new(offer: &Offer) -> Schedule {
        let burst = u64::from(offer.burst.max(1));
        let step_ns = |rate: f64| burst as f64 * 1e9 / rate;
        let mut schedule = Schedule {
            frames: offer.frames,
            burst,
            counted_from: 0,
            step_ns: step_ns(offer.rate_fps),
            then: offer.step.map(|s| (s.after_frames.next_multiple_of(burst), step_ns(s.rate_fps))),
        };
        if offer.discard_ns > 0 {
            let (mut low, mut high) = (0, schedule.frames);
            while low < high {
                let middle = low + (high - low) / 2;
                match schedule.due_ns(middle) < offer.discard_ns {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            schedule.counted_from = low;
        }
        schedule
    }

    /// When the first counted frame is due, ns from the first of all.
    pub fn counted_ns(&self) -> i64 {
        self.due_ns(self.counted_from)
    }

    /// When frame `n` is due, ns from the first.
    #[inline]
    pub fn due_ns(&self, n: u64) -> i64 {
        let at = |n: u64, step: f64| (n / self.burst) as f64 * step;
        let ns = match self.then {
            Some((change, step)) if n > change => at(change, self.step_ns) + at(n - change, step),
            _ => at(n, self.step_ns),
        };
        ns as i64
    }

    /// How late a frame may leave, ns and `most` at most, before the schedule is put off.
    ///
    /// What is due and was held up less than that leaves back to back: 128 frames or so, which
    /// a device with a buffer of an ordinary size can hold. After a longer stop of the tester
    /// all that follows is due later by as long, and that is made up for by leaving
    /// [`made_up_ns`] sooner each time. So never does the device meet in a lump what the tester
    /// could not send in time.
    pub fn catch_up_ns(&self, most: i64) -> i64 {
        let step_ns = self.then.map_or(self.step_ns, |(_, then)| then.min(self.step_ns));
        ((CATCH_UP_FRAMES * step_ns / self.burst as f64) as i64).clamp(CATCH_UP_LEAST_NS, most)
    }

    /// Whether frame `n` is the first of its burst.
    #[inline]
    pub fn leads(&self, n: u64) -> bool {
        self.burst == 1 || n.is_multiple_of(self.burst)
    }

    /// How long sending takes, to the end of the last frame's own slot, ns.
    pub fn duration_ns(&self) -> i64 {
        self.due_ns(self.frames.next_multiple_of(self.burst))
    }
}

/// How much sooner a burst follows the one before than its distance, `step_ns`, while the
/// schedule is put off: the load is greater by a 64th. As `load_tx.bpf.c` has it.
#[inline]
pub fn made_up_ns(step_ns: i64) -> i64 {
    step_ns >> 6
}

/// Half of the smallest ring in use, that of virtual Ethernet.
const CATCH_UP_FRAMES: f64 = 128.0;
/// A batch of the kernel's, and a reading of the clock.
const CATCH_UP_LEAST_NS: i64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::trial::LoadStep;

    #[test]
    fn frames_are_due_at_the_offered_rate_and_change_with_it() {
        let steady = Schedule::new(&Offer::steady(3.0, 4_000_000_000));
        assert_eq!(steady.frames, 12);
        assert_eq!(steady.due_ns(7), 2_333_333_333);
        let step = Some(LoadStep { after_frames: 10, rate_fps: 10.0 });
        let offer = Offer { rate_fps: 100.0, frames: 20, step, ..Offer::steady(1.0, 1) };
        let schedule = Schedule::new(&offer);
        assert_eq!((schedule.due_ns(10), schedule.due_ns(11)), (100_000_000, 200_000_000));
        assert_eq!(schedule.duration_ns(), offer.duration_ns());
    }

    #[test]
    fn what_is_due_early_is_not_counted() {
        let offer = Offer { discard_ns: 20_000_000, ..Offer::steady(1000.0, 1_000_000_000) };
        let schedule = Schedule::new(&offer);
        assert_eq!((schedule.counted_from, schedule.counted_ns()), (20, 20_000_000));
        let all = Schedule::new(&Offer { discard_ns: i64::MAX, ..offer });
        assert_eq!(all.counted_from, all.frames);
    }

    #[test]
    fn what_may_be_made_up_for_is_bounded_in_frames_and_in_time() {
        let of = |rate| Schedule::new(&Offer::steady(rate, 1_000_000_000)).catch_up_ns(100_000);
        assert_eq!([1e3, 1e6, 2e6, 1e9].map(of), [100_000, 100_000, 64_000, 20_000]);
        let step = Some(LoadStep { after_frames: 10, rate_fps: 4e6 });
        let rising = Schedule::new(&Offer { step, ..Offer::steady(1e6, 1_000_000_000) });
        assert_eq!(rising.catch_up_ns(100_000), 32_000);
        let burst = Schedule::new(&Offer { burst: 16, ..Offer::steady(2e6, 1_000_000_000) });
        assert_eq!(burst.catch_up_ns(100_000), 64_000);
    }

    #[test]
    fn bursts_keep_the_mean_rate() {
        let offer = Offer { burst: 16, frames: 64, ..Offer::steady(1000.0, 1) };
        let schedule = Schedule::new(&offer);
        assert_eq!((schedule.due_ns(15), schedule.due_ns(16)), (0, 16_000_000));
        assert!(schedule.leads(16) && !schedule.leads(17));
        assert_eq!(schedule.duration_ns(), 64_000_000);
    }
}
