//! A ramp: the load rises (or falls) within one trial, in small steps. Of no standard: a quick
//! look at where a device begins to lose frames, and at what it does with its delay on the way.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::trial::{LoadStep, Offer, SeriesPoint};

use super::script::{Script, scripted};
use super::values::{SECOND, extremes, median};
use super::{NextTrial, Procedure};

/// From where to where.
#[derive(Clone, Debug, PartialEq)]
pub struct RampConfig {
    /// Load at the begin, frames/s in each direction.
    pub from_fps: f64,
    /// Load at the end.
    pub to_fps: f64,
    /// Duration of a trial, ns.
    pub duration_ns: i64,
    pub trials: u32,
}

impl Default for RampConfig {
    fn default() -> Self {
        RampConfig { from_fps: 1000.0, to_fps: 100_000.0, duration_ns: 30 * SECOND, trials: 3 }
    }
}

/// What a trial showed.
#[derive(Clone, Debug)]
struct RampResult {
    /// The load at which the first lost frame was offered, frames/s.
    onset_fps: Option<f64>,
    /// The greatest rate of arrivals of a piece of the series, frames/s.
    forwarded_fps: f64,
    sent: u64,
    lost: u64,
}

/// A ramp under way.
#[derive(Clone, Debug)]
pub struct Ramp {
    script: Script<RampResult>,
    config: RampConfig,
}

impl Ramp {
    /// So many trials, all alike.
    pub fn new(config: RampConfig) -> Ramp {
        let rate = |step: u32| {
            let share = f64::from(step) / f64::from(STEPS - 1);
            config.from_fps + (config.to_fps - config.from_fps) * share
        };
        let seconds = config.duration_ns as f64 / SECOND as f64 / f64::from(STEPS);
        // Frames up to the end of each step, of which none may have none.
        let mut ends = vec![0u64];
        for step in 0..STEPS {
            let frames = (rate(step) * seconds).round().max(1.0) as u64;
            ends.push(ends[step as usize] + frames);
        }
        let steps = (1..STEPS)
            .map(|i| LoadStep { after_frames: ends[i as usize], rate_fps: rate(i) })
            .collect();
        let frames = ends[STEPS as usize];
        let offer = Offer { rate_fps: rate(0), frames, steps, ..Offer::default() };
        let next = NextTrial { offer, purpose: "ramp".into() };
        Ramp { script: Script::new(vec![next; config.trials as usize]), config }
    }
}

fn outcome(offer: &Offer, trial: &Trial) -> RampResult {
    // Of all directions the first that loses a frame, whatever way the load goes.
    let first = trial.directions.iter().filter_map(|d| Some(d.losses.first()?.first)).min();
    // The last piece of a series ends with the trial; of a short rest nothing can be said.
    let end_ns = offer.duration_ns();
    let rate = |p: &SeriesPoint| {
        let length_ns = p.length_ns.min(end_ns - p.at_ns);
        let rate = p.received as f64 * SECOND as f64 / length_ns as f64;
        (length_ns * 10 >= p.length_ns && length_ns > 0).then_some(rate)
    };
    let forwarded = trial.directions.iter().flat_map(|d| &d.series).filter_map(rate);
    let (sent, lost) = trial.sent_and_lost();
    RampResult {
        onset_fps: first.map(|n| offer.rate_at(n)),
        forwarded_fps: forwarded.fold(0.0, f64::max),
        sent,
        lost,
    }
}

impl Procedure for Ramp {
    scripted!();

    fn observe(&mut self, trial: &Trial) {
        let Some(next) = self.script.next() else { return };
        self.script.observe(trial, |trial| outcome(&next.offer, trial));
    }

    fn finding(&self) -> Finding {
        let mut finding = self.script.finding();
        let seen: Vec<&RampResult> = self.script.seen().map(|(_, o)| o).collect();
        if seen.is_empty() {
            return finding;
        }
        let onsets: Vec<f64> = seen.iter().filter_map(|o| o.onset_fps).collect();
        if let Some(onset) = median(&onsets) {
            let (least, most) = extremes(&onsets);
            finding.values.push(
                Quantity::new("loss_onset_load", "frames/s", onset, onsets.len() as u64)
                    .between(least, most),
            );
            finding.notes.push(
                "The load of the first lost frame: a buffer puts it off, so the throughput is less."
                    .into(),
            );
        }
        let lossless = seen.len() - onsets.len();
        if lossless > 0 {
            let RampConfig { from_fps, to_fps, .. } = self.config;
            finding.notes.push(format!(
                "{lossless} of {} trials lost nothing, up to {:.0} frames/s.",
                seen.len(),
                from_fps.max(to_fps)
            ));
        }
        let forwarded: Vec<f64> = seen.iter().map(|o| o.forwarded_fps).collect();
        if let Some(rate) = median(&forwarded) {
            let name = "maximum_forwarding_rate";
            finding.values.push(Quantity::new(name, "frames/s", rate, forwarded.len() as u64));
        }
        let sent: u64 = seen.iter().map(|o| o.sent).sum();
        let lost: u64 = seen.iter().map(|o| o.lost).sum();
        let ratio = if sent > 0 { lost as f64 / sent as f64 } else { 0.0 };
        finding.values.push(Quantity::new("loss_ratio", "ratio", ratio, sent));
        finding
    }
}

/// Loads of a ramp: each 1 % of the way.
const STEPS: u32 = 100;
