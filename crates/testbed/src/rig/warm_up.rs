//! Warm-up: frames right before each trial that are not counted (RFC 2544, section 23, has learning
//! frames there). A device that has been idle may need a while until it forwards again; that while
//! is not measured.

use sonde_meter::load::LoadSchedule;
use sonde_results::trial::{Direction, LoadStep, Offer, Pattern};

/// An offer with frames before it.
pub struct Warmed {
    pub offer: Offer,
    /// Frames of each direction that are not the trial's.
    pub frames: u64,
}

impl Warmed {
    /// Puts frames for `ns` before an offer, the first of the trial without a gap behind them. They
    /// come slowly, so that no buffer is filled by them: each flow has one at least. Where it
    /// matters what the device has seen before (its address table), nothing is put there.
    pub fn new(offer: &Offer, ns: i64, flows: u32) -> Warmed {
        let as_it_is = || Warmed { offer: offer.clone(), frames: 0 };
        let of_memory = matches!(offer.pattern, Pattern::Learning | Pattern::Stations);
        if ns <= 0 || of_memory || offer.event.as_ref().is_some_and(|e| e.at_ns < 0) {
            return as_it_is();
        }
        let seconds = ns as f64 / 1e9;
        let gentle = GENTLE_FPS.max(f64::from(flows) / seconds);
        let rate_fps = offer.rate_fps.min(gentle);
        let burst = u64::from(offer.burst.max(1));
        let frames = ((rate_fps * seconds).ceil() as u64).max(1).next_multiple_of(burst);
        let begin = LoadStep { after_frames: frames, rate_fps: offer.rate_fps };
        let later = offer
            .steps
            .iter()
            .map(|step| LoadStep { after_frames: step.after_frames + frames, ..*step });
        let mut warmed = Offer {
            rate_fps,
            frames: offer.frames + frames,
            steps: std::iter::once(begin).chain(later).collect(),
            discard_ns: 0,
            ..offer.clone()
        };
        let begins_ns = LoadSchedule::new(&warmed).due_ns(frames);
        warmed.discard_ns = begins_ns + offer.discard_ns;
        if let Some(event) = &mut warmed.event {
            event.at_ns += begins_ns;
        }
        Warmed { offer: warmed, frames }
    }

    /// Counts the sequence numbers of a direction from the trial's first frame on.
    pub fn renumber(&self, d: &mut Direction) {
        let less = |n: &mut u64| *n = n.saturating_sub(self.frames);
        d.losses.iter_mut().chain(&mut d.last_loss).for_each(|run| less(&mut run.first));
        d.worst.iter_mut().for_each(|frame| less(&mut frame.sequence));
    }
}

/// Frames a second that no device is overrun by.
const GENTLE_FPS: f64 = 1000.0;

#[cfg(test)]
mod tests {
    use sonde_results::trial::{DeviceEvent, LossRun};

    use super::*;

    const WARM_NS: i64 = 500_000_000;

    #[test]
    fn the_trial_itself_is_as_it_was() {
        let steady = Offer::steady(2e6, 1_000_000_000);
        let step = |after_frames, rate_fps| LoadStep { after_frames, rate_fps };
        let steps = vec![step(1_000_000, 4e6), step(1_500_000, 1e5)];
        let event = Some(DeviceEvent { action: "reset".into(), at_ns: 200_000_000 });
        for offer in [
            steady.clone(),
            Offer { burst: 64, ..steady.clone() },
            Offer { steps: steps.clone(), ..steady.clone() },
            Offer { discard_ns: 300_000_000, ..steady.clone() },
            Offer { event: event.clone(), ..steady.clone() },
            Offer::steady(100.0, 3_000_000_000),
        ] {
            let warmed = Warmed::new(&offer, WARM_NS, 256);
            let (before, after) = (LoadSchedule::new(&offer), LoadSchedule::new(&warmed.offer));
            let n = warmed.frames;
            assert!(n >= 50 && after.due_ns(n) >= WARM_NS, "{offer:?}");
            assert_eq!(after.frames - after.counted_from, before.frames - before.counted_from);
            // Each frame of it at its own time.
            for frame in (0..before.frames).step_by(99_991) {
                let apart = after.due_ns(n + frame) - after.due_ns(n);
                assert!((apart - before.due_ns(frame)).abs() <= 1, "{offer:?} {frame}");
            }
            let at = |o: &Offer| o.event.as_ref().map(|e| e.at_ns);
            assert_eq!(at(&warmed.offer), at(&offer).map(|ns| ns + after.due_ns(n)));
            assert!(warmed.offer.rate_fps <= 1000.0 && warmed.offer.peak_fps() == offer.peak_fps());
        }
        // Every flow is seen.
        assert!(Warmed::new(&steady, WARM_NS, 50_000).frames >= 50_000);
    }

    #[test]
    fn what_the_device_must_not_have_seen_is_not_sent() {
        let steady = Offer::steady(1e4, 1_000_000_000);
        let forget = Some(DeviceEvent { action: "forget".into(), at_ns: -1 });
        for offer in [
            Offer { pattern: Pattern::Learning, ..steady.clone() },
            Offer { pattern: Pattern::Stations, ..steady.clone() },
            Offer { event: forget, ..steady.clone() },
        ] {
            assert_eq!(Warmed::new(&offer, WARM_NS, 1).offer, offer);
        }
        assert_eq!(Warmed::new(&steady, 0, 1).offer, steady);
    }

    #[test]
    fn frames_are_numbered_from_the_trials_first() {
        let warmed = Warmed::new(&Offer::steady(1e4, 1_000_000_000), WARM_NS, 1);
        let run = LossRun { first: warmed.frames + 7, frames: 2, at_ns: 5 };
        let mut d = Direction { losses: vec![run], last_loss: Some(run), ..Direction::default() };
        warmed.renumber(&mut d);
        assert_eq!((d.losses[0].first, d.last_loss.unwrap().first), (7, 7));
    }
}
