//! System recovery (RFC 2544, section 26.5): after an overload of 60 s the load is halved;
//! how long does the device go on losing frames?

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::procedure::purpose::OVERLOAD;
use sonde_results::trial::{Direction, LoadStep, LossRun, Offer};

use super::script::{Script, scripted};
use super::values::{SECOND, extremes, mean};
use super::{NextTrial, Procedure};

/// Loads and durations of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveryConfig {
    /// Throughput, frames/s in each direction: 110 % of it are offered first.
    pub throughput_fps: f64,
    /// What the medium carries, frames/s: offered where it is less than these 110 %.
    pub max_fps: f64,
    /// Duration of the overload, ns (at least 60 s).
    pub overload_ns: i64,
    /// Duration of the halved load, ns: within it the device has to recover.
    pub after_ns: i64,
    pub trials: u32,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        RecoveryConfig {
            throughput_fps: 1000.0,
            max_fps: 14_880_952.0,
            overload_ns: 60 * SECOND,
            after_ns: 10 * SECOND,
            trials: 3,
        }
    }
}

/// What a trial showed.
#[derive(Clone, Copy, Debug)]
enum RecoveryResult {
    /// ns from the change of the load to the last lost frame.
    Recovered(f64),
    /// Frames were lost to the end.
    Never,
    /// The tester did not keep the last loss.
    Unknown,
    /// The overload lost nothing: there was nothing to recover from.
    NoOverload,
}

/// System recovery under way.
#[derive(Clone, Debug)]
pub struct Recovery {
    config: RecoveryConfig,
    script: Script<RecoveryResult>,
}

impl Recovery {
    /// The overload, and half of it, in one trial.
    pub fn new(config: RecoveryConfig) -> Recovery {
        let rate_fps = (1.1 * config.throughput_fps).min(config.max_fps);
        let frames = |rate: f64, ns: i64| (rate * ns as f64 / SECOND as f64).round().max(1.0);
        let after_frames = frames(rate_fps, config.overload_ns) as u64;
        let step = LoadStep { after_frames, rate_fps: rate_fps / 2.0 };
        let offer = Offer {
            rate_fps,
            frames: after_frames + frames(step.rate_fps, config.after_ns) as u64,
            steps: vec![step],
            ..Offer::default()
        };
        let next = NextTrial { offer, purpose: format!("{OVERLOAD} and recovery") };
        Recovery { script: Script::new(vec![next; config.trials as usize]), config }
    }
}

/// The run of lost frames that the direction ends its losses with, where that is known.
fn last_loss(direction: &Direction) -> Option<LossRun> {
    let complete = direction.losses_omitted == 0;
    direction.last_loss.or_else(|| direction.losses.last().copied().filter(|_| complete))
}

fn outcome(offer: &Offer, trial: &Trial) -> RecoveryResult {
    let step = offer.steps[0];
    let mut slowest: Option<f64> = None;
    for direction in &trial.directions {
        if direction.lost == 0 {
            continue;
        }
        let Some(run) = last_loss(direction) else { return RecoveryResult::Unknown };
        let last = run.first + run.frames - 1;
        // Nothing in the last hundredth of the time says that it is over.
        let tail = (direction.sent - step.after_frames.min(direction.sent)) / 100;
        if last + tail.max(1) >= direction.sent {
            return RecoveryResult::Never;
        }
        let after = (last as f64 - step.after_frames as f64) / step.rate_fps * SECOND as f64;
        slowest = Some(slowest.unwrap_or(0.0).max(after));
    }
    slowest.map_or(RecoveryResult::NoOverload, RecoveryResult::Recovered)
}

impl Procedure for Recovery {
    scripted!();

    fn observe(&mut self, trial: &Trial) {
        let Some(next) = self.script.next() else { return };
        self.script.observe(trial, |trial| outcome(&next.offer, trial));
    }

    fn finding(&self) -> Finding {
        let mut finding = self.script.finding();
        let outcomes = || self.script.seen().map(|(_, o)| o);
        let times: Vec<f64> = outcomes()
            .filter_map(|o| if let RecoveryResult::Recovered(ns) = o { Some(*ns) } else { None })
            .collect();
        if let Some(time) = mean(&times) {
            let (least, most) = extremes(&times);
            finding.values.push(
                Quantity::new("recovery_time", "ns", time, times.len() as u64).between(least, most),
            );
            finding.notes.push("Mean of the trials, between least and greatest.".into());
        }
        let count = |f: fn(&RecoveryResult) -> bool| outcomes().filter(|o| f(o)).count();
        let mut note = |trials: usize, what: String| {
            if trials > 0 {
                finding.notes.push(format!("{trials} trials: {what}"));
            }
        };
        let after = self.config.after_ns as f64 / SECOND as f64;
        note(
            count(|o| matches!(o, RecoveryResult::Never)),
            format!("the device still lost frames {after} s after the load was halved."),
        );
        note(
            count(|o| matches!(o, RecoveryResult::NoOverload)),
            "nothing was lost in the overload, so there is nothing to recover from.".into(),
        );
        note(
            count(|o| matches!(o, RecoveryResult::Unknown)),
            "more losses than the tester keeps, and it did not report the last one.".into(),
        );
        finding
    }
}
