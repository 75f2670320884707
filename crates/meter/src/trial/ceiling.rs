//! The greatest load that the tester itself can offer, evenly, through this device: where the
//! searches begin. Of no standard; the line's rate replaces it where there is a line.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::trial::{Invalid, Offer};

use super::values::{SECOND, reasons};
use super::{NextTrial, Procedure};

/// A search for it: once as fast as can be, then evenly, at a little less each time until the
/// frames leave in time, twice.
///
/// A load that the tester cannot pace costs a search several tries, and its bound would be the
/// tester's. So the search is not to begin there.
#[derive(Clone, Debug)]
pub struct TesterCeiling {
    /// What the medium carries, frames/s; infinite: it sets no bound.
    line_fps: f64,
    /// The load to try, frames/s; `None`: as fast as can be.
    present: Option<f64>,
    /// Trials at it that were valid.
    passed: u32,
    /// And those that were not.
    failed: u32,
    /// Loads that are still to be tried.
    left: u32,
    trials: u64,
    ended: bool,
    /// Why the last one was not valid.
    unfit: Option<String>,
}

impl TesterCeiling {
    /// With a medium of so many frames/s in each direction, or `f64::INFINITY`.
    pub fn new(line_fps: f64) -> TesterCeiling {
        TesterCeiling {
            line_fps,
            present: None,
            passed: 0,
            failed: 0,
            left: LOADS,
            trials: 0,
            ended: false,
            unfit: None,
        }
    }

    /// Where searches are to begin, frames/s in each direction. It is a little below what was
    /// found, so that a tester's worse moments do not cost them tries. The medium's rate where that
    /// was kept. Where no load was valid, the last one that was tried. 0: not a frame could be
    /// sent.
    pub fn load(&self) -> f64 {
        match self.present {
            None => 0.0,
            Some(rate) if self.found() && rate < self.line_fps => rate * MARGIN,
            Some(rate) => rate,
        }
    }

    /// Whether the present load was kept.
    fn found(&self) -> bool {
        self.ended && self.unfit.is_none()
    }
}

impl Procedure for TesterCeiling {
    fn next(&mut self) -> Option<NextTrial> {
        if self.ended {
            return None;
        }
        Some(match self.present {
            None => NextTrial {
                offer: Offer { rate_fps: UNPACED_FPS, frames: FRAMES, ..Offer::default() },
                purpose: "as fast as the tester can".into(),
            },
            Some(rate) => NextTrial {
                offer: Offer::steady(rate, TRIAL_NS),
                purpose: "the greatest load that the tester can pace".into(),
            },
        })
    }

    fn observe(&mut self, trial: &Trial) {
        self.trials += 1;
        let Some(rate) = self.present else {
            let sent = trial.directions.iter().all(|d| d.sent > 1);
            let reached = if sent { trial.sent_rate_fps() } else { 0.0 };
            let reached = if reached.is_finite() { reached } else { 0.0 };
            self.present = Some((reached * SHARE).min(self.line_fps));
            self.ended = reached <= 0.0;
            return;
        };
        // What else is the matter does not change with the load.
        let of_load =
            |reason: &Invalid| !matches!(reason, Invalid::Starved { .. } | Invalid::Clock { .. });
        if !trial.invalid.iter().any(of_load) {
            self.passed += 1;
            // A device that loses so much is far slower: a search soon leaves these loads.
            let beyond_device = trial.loss_ratio() > OVERLOADED;
            if self.passed == TRIES || beyond_device {
                (self.ended, self.unfit) = (true, None);
            }
            return;
        }
        self.unfit = Some(reasons(trial));
        self.failed += 1;
        if self.failed < TRIES {
            return;
        }
        (self.passed, self.failed) = (0, 0);
        self.left -= 1;
        self.ended = self.left == 0;
        if !self.ended {
            // What was reached on the whole shows where to look; if it is not there, further down.
            let near = self.left > LOADS - NEAR;
            let reached = Some(trial.sent_rate_fps()).filter(|r| r.is_finite() && *r > 0.0);
            let reached = reached.map_or(rate, |reached| reached.min(rate));
            self.present = Some(if near { reached * A_LITTLE_LESS } else { rate * LESS });
        }
    }

    /// `greatest_load`, frames/s in each direction.
    fn finding(&self) -> Finding {
        let mut finding = Finding { complete: self.ended, ..Finding::default() };
        if let Some(rate) = self.present.filter(|rate| self.found() && *rate > 0.0) {
            finding.values.push(Quantity::new("greatest_load", "frames/s", rate, self.trials));
        }
        if let Some(why) = &self.unfit {
            finding.notes.push(format!("No load was valid, the tester was not fit: {why}."));
        }
        finding
    }

    fn remaining_ns(&self) -> i64 {
        match self.ended {
            true => 0,
            false => i64::from(self.remaining_trials()) * TRIAL_NS,
        }
    }

    fn remaining_trials(&self) -> u32 {
        match (self.ended, self.present) {
            (true, _) => 0,
            (false, None) => 1 + LOADS * TRIALS,
            (false, Some(_)) => self.left * TRIALS - self.passed - self.failed,
        }
    }
}

/// More than any tester can offer.
const UNPACED_FPS: f64 = 40e6;
/// Long enough to leave the start behind, short enough for a slow device.
const FRAMES: u64 = 1 << 20;
/// Of what was kept.
const MARGIN: f64 = 0.95;
/// Of what was reached.
const SHARE: f64 = 0.95;
/// Of what was reached, and of the load before: all of them lead down to a tenth.
const A_LITTLE_LESS: f64 = 0.97;
const LESS: f64 = 0.82;
const LOADS: u32 = 15;
/// Loads that are sought near what was reached, the first included.
const NEAR: u32 = 4;
/// Valid trials that a load needs, and others that rule it out: one may have been disturbed,
/// or have met a rare quiet second.
const TRIES: u32 = 2;
/// Trials of a load at most.
const TRIALS: u32 = 2 * TRIES - 1;
const TRIAL_NS: i64 = SECOND / 2;
/// Share of the frames that a device loses far beyond what it can carry.
const OVERLOADED: f64 = 0.1;
