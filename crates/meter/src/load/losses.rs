//! Which frames were lost, from a bit for each that arrived.

use sonde_results::trial::{Direction, LossRun, SeriesPoint};

use super::LoadSchedule;

/// Reads who arrived, in the order of sending, and notes who did not.
#[derive(Clone, Debug)]
pub struct LossLog {
    schedule: LoadSchedule,
    slot_ns: i64,
    /// Frames of which the fate is known.
    read: u64,
    lost: u64,
    /// First frame of the run of lost ones that has not ended.
    run: Option<u64>,
    last: Option<LossRun>,
    runs: Vec<LossRun>,
    omitted: u64,
    by_slot: Vec<u64>,
}

impl LossLog {
    /// For frames due by `schedule`, in a time series with points of `slot_ns`.
    pub fn new(schedule: LoadSchedule, slot_ns: i64) -> LossLog {
        LossLog {
            slot_ns: slot_ns.max(1),
            read: schedule.counted_from & !63,
            schedule,
            lost: 0,
            run: None,
            last: None,
            runs: Vec::new(),
            omitted: 0,
            by_slot: Vec::new(),
        }
    }

    /// The next 64 frames from `first` on: a bit, the lowest for `first`, for each that
    /// arrived. `sent` frames have left; the bits of later ones mean nothing.
    pub fn read(&mut self, first: u64, arrived: u64, sent: u64) {
        debug_assert_eq!(first, self.read);
        let count = sent.saturating_sub(first).min(64);
        let mut missing = !arrived & if count == 64 { u64::MAX } else { (1 << count) - 1 };
        if first < self.schedule.counted_from {
            missing &= u64::MAX << (self.schedule.counted_from - first);
        }
        self.read = first + count;
        if missing == 0 {
            // Most often: nobody was lost.
            if count > 0 {
                self.end_run(first);
            }
            return;
        }
        for i in 0..count {
            let n = first + i;
            if missing >> i & 1 == 0 {
                self.end_run(n);
                continue;
            }
            self.lost += 1;
            self.run.get_or_insert(n);
            let slot = (self.due_ns(n) / self.slot_ns) as usize;
            let slot = slot.min(Direction::SERIES_POINTS - 1);
            if self.by_slot.len() <= slot {
                self.by_slot.resize(slot + 1, 0);
            }
            self.by_slot[slot] += 1;
        }
    }

    /// Frames lost of those read so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Everything has been read: fills in what was lost, also of the time series, which may
    /// have fewer points than frames were sent in.
    pub fn finish(mut self, direction: &mut Direction) {
        self.end_run(self.read);
        direction.lost = self.lost;
        direction.losses = self.runs;
        direction.losses_omitted = self.omitted;
        direction.last_loss = self.last;
        for (i, &lost) in self.by_slot.iter().enumerate() {
            while direction.series.len() <= i {
                direction.series.push(SeriesPoint {
                    at_ns: direction.series.len() as i64 * self.slot_ns,
                    length_ns: self.slot_ns,
                    ..SeriesPoint::default()
                });
            }
            direction.series[i].lost = lost;
        }
    }

    fn end_run(&mut self, n: u64) {
        let Some(first) = self.run.take() else { return };
        let run = LossRun { first, frames: n - first, at_ns: self.due_ns(first) };
        self.last = Some(run);
        match self.runs.len() < Direction::LOSS_RUNS {
            true => self.runs.push(run),
            false => self.omitted += 1,
        }
    }

    /// From the first counted frame.
    fn due_ns(&self, n: u64) -> i64 {
        self.schedule.due_ns(n) - self.schedule.counted_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sonde_results::trial::Offer;

    fn read(arrived: &[bool]) -> Direction {
        let schedule = LoadSchedule::new(&Offer::steady(100.0, 1_000_000_000));
        let mut losses = LossLog::new(schedule, 1_000_000_000);
        for (i, chunk) in arrived.chunks(64).enumerate() {
            let bits = chunk.iter().enumerate().map(|(i, &a)| u64::from(a) << i).sum();
            losses.read(i as u64 * 64, bits, arrived.len() as u64);
        }
        let mut direction = Direction::default();
        losses.finish(&mut direction);
        direction
    }

    #[test]
    fn runs_go_on_across_words_and_end_with_the_frames() {
        let mut arrived = vec![true; 250];
        arrived[60..70].fill(false);
        arrived[249] = false;
        let d = read(&arrived);
        let runs: Vec<_> = d.losses.iter().map(|r| (r.first, r.frames, r.at_ns)).collect();
        assert_eq!(runs, [(60, 10, 600_000_000), (249, 1, 2_490_000_000)]);
        let by_second: Vec<u64> = d.series.iter().map(|p| p.lost).collect();
        assert_eq!((d.lost, by_second), (11, vec![10, 0, 1]));
    }

    proptest! {
        #[test]
        fn runs_and_points_add_up_to_the_losses(arrived in prop::collection::vec(any::<bool>(), 0..4000)) {
            let d = read(&arrived);
            prop_assert_eq!(d.lost, arrived.iter().filter(|&&a| !a).count() as u64);
            prop_assert_eq!(d.series.iter().map(|p| p.lost).sum::<u64>(), d.lost);
            let edges = arrived.chunk_by(|a, b| a == b).filter(|c| !c[0]).count();
            prop_assert_eq!(d.losses.len() as u64 + d.losses_omitted, edges as u64);
            for run in &d.losses {
                let frames = &arrived[run.first as usize..(run.first + run.frames) as usize];
                prop_assert!(frames.iter().all(|&a| !a));
            }
        }
    }
}
