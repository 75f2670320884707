//! When each frame of a trial is due.

use sonde_results::trial::Offer;

/// The due times of one direction: bursts at equal distances, which may change.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadSchedule {
    pub frames: u64,
    /// Frames that are due together.
    pub burst: u64,
    /// Frames before this one are sent, but not counted (`Offer::discard_ns`).
    pub counted_from: u64,
    /// At least one; the first begins with frame 0.
    segments: Vec<Segment>,
}

/// Bursts that follow each other at one distance.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Segment {
    /// The burst boundary behind which they do.
    from: u64,
    /// When that is due, ns from the first frame.
    at_ns: f64,
    /// Between bursts, ns.
    step_ns: f64,
}

impl Segment {
    fn due_ns(&self, n: u64, burst: u64) -> f64 {
        self.at_ns + ((n - self.from) / burst) as f64 * self.step_ns
    }
}

impl LoadSchedule {
    /// That of an offer. With steps, the load changes at the first burst at or after each.
    pub fn new(offer: &Offer) -> LoadSchedule {
        let burst = u64::from(offer.burst.max(1));
        let step_ns = |rate: f64| burst as f64 * 1e9 / rate;
        let first = Segment { from: 0, at_ns: 0.0, step_ns: step_ns(offer.rate_fps) };
        let mut segments = vec![first];
        for step in &offer.steps {
            let last = segments[segments.len() - 1];
            let from = step.after_frames.next_multiple_of(burst).max(last.from);
            let at_ns = last.due_ns(from, burst);
            // Of changes at one boundary the last holds.
            if from == last.from {
                segments.pop();
            }
            segments.push(Segment { from, at_ns, step_ns: step_ns(step.rate_fps) });
        }
        let mut schedule = LoadSchedule { frames: offer.frames, burst, counted_from: 0, segments };
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

    /// The loads, frames a second, each with the burst boundary behind which it holds; the first
    /// from frame 0 on. No two have the same boundary.
    pub fn loads(&self) -> impl Iterator<Item = (u64, f64)> {
        self.segments.iter().map(|s| (s.from, self.burst as f64 * 1e9 / s.step_ns))
    }

    /// When the first counted frame is due, ns from the first of all.
    pub fn counted_ns(&self) -> i64 {
        self.due_ns(self.counted_from)
    }

    /// When frame `n` is due, ns from the first.
    #[inline]
    pub fn due_ns(&self, n: u64) -> i64 {
        // The frame at a boundary is still due at the distance of before.
        let later = self.segments[1..].partition_point(|s| s.from < n);
        self.segments[later].due_ns(n, self.burst) as i64
    }

    /// That of [`catch_up_ns`] at the greatest of the loads.
    pub fn catch_up_ns(&self, most: i64) -> i64 {
        let step_ns = self.segments.iter().map(|s| s.step_ns).fold(f64::INFINITY, f64::min);
        catch_up_ns(step_ns / self.burst as f64, most)
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

/// How late a frame may leave, ns and `most` at most, before what follows is put off; `frame_ns`:
/// from one frame to the next.
///
/// What is due and was held up less than that leaves back to back. That is 128 frames or so, which
/// a device with a buffer of an ordinary size can hold. After a longer stop of the tester all that
/// follows is due later by as long ([`PutOff`]). So never does the device meet in a lump what the
/// tester could not send in time.
pub fn catch_up_ns(frame_ns: f64, most: i64) -> i64 {
    ((CATCH_UP_FRAMES * frame_ns) as i64).clamp(CATCH_UP_LEAST_NS, most)
}

/// By how much due times are put off, since the tester was stopped; it is made up for by leaving
/// a little sooner each time.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOff {
    ns: i64,
    catch_up_ns: i64,
}

impl PutOff {
    /// Nothing is; what was held up for less than `catch_up_ns` is caught up ([`catch_up_ns`]).
    pub fn new(catch_up_ns: i64) -> PutOff {
        PutOff { ns: 0, catch_up_ns }
    }

    /// The same from now on with another load.
    pub fn with_catch_up(self, catch_up_ns: i64) -> PutOff {
        PutOff { catch_up_ns, ..self }
    }

    /// How much later than planned frames are due, ns; 0 or more.
    #[inline]
    pub fn ns(self) -> i64 {
        self.ns
    }

    /// A frame, or the first of a burst, left `late` ns after it was due.
    #[inline]
    pub fn left(&mut self, late: i64) {
        if late > self.catch_up_ns {
            self.ns += late;
        }
    }

    /// The next one is due `step_ns` after the one before, were nothing put off. While times are
    /// put off the load is greater by a 64th. As `load_tx.bpf.c` has it.
    #[inline]
    pub fn step(&mut self, step_ns: impl FnOnce() -> i64) {
        if self.ns > 0 {
            self.ns -= (step_ns() >> 6).min(self.ns);
        }
    }
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
        let steady = LoadSchedule::new(&Offer::steady(3.0, 4_000_000_000));
        assert_eq!(steady.frames, 12);
        assert_eq!(steady.due_ns(7), 2_333_333_333);
        let steps = vec![LoadStep { after_frames: 10, rate_fps: 10.0 }];
        let offer = Offer { rate_fps: 100.0, frames: 20, steps, ..Offer::steady(1.0, 1) };
        let schedule = LoadSchedule::new(&offer);
        assert_eq!((schedule.due_ns(10), schedule.due_ns(11)), (100_000_000, 200_000_000));
        assert_eq!(schedule.duration_ns(), offer.duration_ns());
    }

    #[test]
    fn a_ramp_has_many_steps() {
        let step = |after_frames, rate_fps| LoadStep { after_frames, rate_fps };
        // 10 ms, then 5 ms, 2 ms, 1 ms apart.
        let steps = vec![step(2, 200.0), step(4, 500.0), step(4, 1000.0)];
        let offer = Offer { rate_fps: 100.0, frames: 8, steps, ..Offer::default() };
        let schedule = LoadSchedule::new(&offer);
        let due: Vec<i64> = (0..9).map(|n| schedule.due_ns(n) / 1_000_000).collect();
        assert_eq!(due, [0, 10, 20, 25, 30, 31, 32, 33, 34]);
        assert_eq!(schedule.duration_ns(), offer.duration_ns());
    }

    #[test]
    fn of_changes_within_a_burst_the_last_holds() {
        let step = |after_frames, rate_fps| LoadStep { after_frames, rate_fps };
        let steps = vec![step(9, 200.0), step(10, 400.0), step(16, 800.0), step(20, 1600.0)];
        let offer = Offer { rate_fps: 100.0, burst: 8, frames: 40, steps, ..Offer::default() };
        let schedule = LoadSchedule::new(&offer);
        let loads: Vec<(u64, f64)> = schedule.loads().collect();
        assert_eq!(loads, [(0, 100.0), (16, 800.0), (24, 1600.0)]);
        let due = [0, 8, 16, 24, 32].map(|n| schedule.due_ns(n) / 1_000_000);
        assert_eq!(due, [0, 80, 160, 170, 175]);
    }

    #[test]
    fn what_is_due_early_is_not_counted() {
        let offer = Offer { discard_ns: 20_000_000, ..Offer::steady(1000.0, 1_000_000_000) };
        let schedule = LoadSchedule::new(&offer);
        assert_eq!((schedule.counted_from, schedule.counted_ns()), (20, 20_000_000));
        let all = LoadSchedule::new(&Offer { discard_ns: i64::MAX, ..offer });
        assert_eq!(all.counted_from, all.frames);
    }

    #[test]
    fn what_may_be_made_up_for_is_bounded_in_frames_and_in_time() {
        let of = |rate| LoadSchedule::new(&Offer::steady(rate, 1_000_000_000)).catch_up_ns(100_000);
        assert_eq!([1e3, 1e6, 2e6, 1e9].map(of), [100_000, 100_000, 64_000, 20_000]);
        let steps = vec![LoadStep { after_frames: 10, rate_fps: 4e6 }];
        let rising = LoadSchedule::new(&Offer { steps, ..Offer::steady(1e6, 1_000_000_000) });
        assert_eq!(rising.catch_up_ns(100_000), 32_000);
        let burst = LoadSchedule::new(&Offer { burst: 16, ..Offer::steady(2e6, 1_000_000_000) });
        assert_eq!(burst.catch_up_ns(100_000), 64_000);
    }

    #[test]
    fn bursts_keep_the_mean_rate() {
        let offer = Offer { burst: 16, frames: 64, ..Offer::steady(1000.0, 1) };
        let schedule = LoadSchedule::new(&offer);
        assert_eq!((schedule.due_ns(15), schedule.due_ns(16)), (0, 16_000_000));
        assert!(schedule.leads(16) && !schedule.leads(17));
        assert_eq!(schedule.duration_ns(), 64_000_000);
    }
}
