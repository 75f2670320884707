//! Back-to-back frames (RFC 2544, section 26.4, as updated by RFC 9004). It finds the longest burst
//! at the greatest rate that the device forwards whole, and the buffer time that follows.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::trial::Offer;

use super::bisection::Bisection;
use super::values::{SECOND, deviation, extremes, mean, reasons};
use super::{NextTrial, Procedure};

/// How bursts are searched.
#[derive(Clone, Debug, PartialEq)]
pub struct BackToBackConfig {
    /// Rate within a burst, frames/s: the medium's maximum, or the greatest that there is.
    pub rate_fps: f64,
    /// Throughput at this frame size, frames/s, as measured before (RFC 9004, section 5).
    pub throughput_fps: f64,
    /// The longest burst, ns (2 s: RFC 2544; up to 30 s: RFC 9004, section 6.2).
    pub longest_ns: i64,
    /// The search ends when its bounds are so many frames apart.
    pub step_frames: u64,
    /// A burst fails that is lossy in so many trials; 1: without loss verification.
    pub attempts: u32,
    /// Searches, each on its own (50: RFC 2544).
    pub tests: u32,
}

impl Default for BackToBackConfig {
    fn default() -> Self {
        BackToBackConfig {
            rate_fps: 14_880_952.0,
            throughput_fps: 0.0,
            longest_ns: 2 * SECOND,
            step_frames: 16,
            attempts: 2,
            tests: 50,
        }
    }
}

/// Back-to-back frames under way.
#[derive(Clone, Debug)]
pub struct BackToBack {
    config: BackToBackConfig,
    bisection: Bisection,
    failed: u32,
    begun: u32,
    /// Longest bursts of the tests that came to their end.
    lengths: Vec<f64>,
    /// At which rate the longest burst of this test so far that passed was sent, frames/s.
    pace_fps: f64,
    /// The same of the tests in `lengths` in which one passed.
    paces: Vec<f64>,
    /// The shortest burst of this test for which the tester was not fit, and why.
    unfit: Option<(f64, String)>,
    /// Tests that were given up, and why the last was.
    given_up: (u32, String),
    trials: u64,
}

impl BackToBack {
    /// Only for frame sizes whose throughput is below the rate: otherwise it ends at once,
    /// for no buffer fills.
    pub fn new(config: BackToBackConfig) -> BackToBack {
        let bisection = BackToBack::search(&config);
        let begun = if config.throughput_fps >= config.rate_fps { config.tests } else { 0 };
        BackToBack {
            config,
            bisection,
            failed: 0,
            begun,
            lengths: Vec::new(),
            pace_fps: 0.0,
            paces: Vec::new(),
            unfit: None,
            given_up: (0, String::new()),
            trials: 0,
        }
    }

    /// Frames of the longest burst.
    fn longest(config: &BackToBackConfig) -> u64 {
        let seconds = config.longest_ns.clamp(1, 30 * SECOND) as f64 / SECOND as f64;
        (config.rate_fps * seconds).floor().max(1.0) as u64
    }

    fn search(config: &BackToBackConfig) -> Bisection {
        Bisection::whole(1, BackToBack::longest(config), config.step_frames)
    }

    fn end_test(&mut self) {
        self.begun += 1;
        (self.failed, self.unfit) = (0, None);
        self.bisection = BackToBack::search(&self.config);
    }
}

impl Procedure for BackToBack {
    fn next(&mut self) -> Option<NextTrial> {
        if self.begun >= self.config.tests {
            return None;
        }
        let frames = self.bisection.next()? as u64;
        let offer = Offer { rate_fps: self.config.rate_fps, frames, ..Offer::default() };
        let purpose = if self.failed > 0 { "loss verification" } else { "burst" };
        Some(NextTrial { offer, purpose: format!("{purpose}, test {}", self.begun + 1) })
    }

    fn observe(&mut self, trial: &Trial) {
        if self.begun >= self.config.tests {
            return;
        }
        let Some(frames) = self.bisection.next() else { return };
        self.trials += 1;
        let lossless = trial.valid() && trial.sent_and_lost().1 == 0;
        if trial.valid() {
            self.failed = if lossless { 0 } else { self.failed + 1 };
            if lossless {
                self.pace_fps = trial.offered_fps();
            }
        } else {
            // Nothing is known of the device at this length: the search goes on below it.
            self.unfit = Some((frames, reasons(trial)));
        }
        if lossless || !trial.valid() || self.failed >= self.config.attempts.max(1) {
            self.failed = 0;
            self.bisection.observe(frames, lossless);
        }
        if self.bisection.next().is_none() {
            match self.unfit.take() {
                // What ended the search was the tester.
                Some((length, why)) if self.bisection.upper == Some(length) => {
                    self.given_up = (self.given_up.0 + 1, why);
                }
                _ => {
                    self.lengths.push(self.bisection.lower.unwrap_or(0.0));
                    self.paces.extend(self.bisection.lower.map(|_| self.pace_fps));
                }
            }
            self.end_test();
        }
    }

    fn finding(&self) -> Finding {
        let config = &self.config;
        let ended = self.begun >= config.tests;
        let mut finding = Finding { complete: ended, ..Finding::default() };
        let (rate, throughput) = (config.rate_fps, config.throughput_fps);
        if throughput >= rate {
            finding.notes.push(
                "The throughput is the greatest load: no buffer fills, and RFC 9004 leaves this size out.".into(),
            );
            return finding;
        }
        if self.given_up.0 > 0 {
            finding.notes.push(format!(
                "{} tests were given up, the tester was not fit: {}.",
                self.given_up.0, self.given_up.1
            ));
        }
        let Some(frames) = mean(&self.lengths) else {
            finding.complete = false;
            return finding;
        };
        let tests = self.lengths.len() as u64;
        let (least, most) = extremes(&self.lengths);
        finding.values.push(
            Quantity::new("back_to_back_frames", "frames", frames, tests).between(least, most),
        );
        // RFC 9004, section 7, has them in columns of their own.
        for (name, value) in [("min", least), ("max", most)] {
            let name = format!("back_to_back_frames_{name}");
            finding.values.push(Quantity::new(name, "frames", value, tests));
        }
        if let Some(deviation) = deviation(&self.lengths) {
            let name = "back_to_back_frames_deviation";
            finding.values.push(Quantity::new(name, "frames", deviation, tests));
        }
        // RFC 9004, section 6.4: during the burst the device forwards as well, so that only
        // the rest of it was in the buffer.
        let sent_at = mean(&self.paces).unwrap_or(rate);
        let implied = frames / sent_at;
        let corrected = implied * (sent_at - throughput).max(0.0) / sent_at;
        finding.values.push(Quantity::new("implied_buffer_time", "s", implied, tests));
        finding.values.push(Quantity::new("corrected_buffer_time", "s", corrected, tests));
        finding.values.push(Quantity::new("offered_load", "frames/s", sent_at, tests));
        if sent_at < rate * (1.0 - PACE) {
            finding.notes.push(format!(
                "The frames of the bursts left at {sent_at:.0} frames/s, not at {rate:.0}: the \
                 buffer times are of what left."
            ));
        }
        let longest = BackToBack::longest(config);
        finding.notes.push(format!(
            "Mean of {tests} searches between their least and greatest; bursts at {rate:.0} frames/s, of up to {longest} frames, in steps of {}; {} trials before a burst fails, throughput {throughput:.0} frames/s.",
            config.step_frames.max(1),
            config.attempts.max(1)
        ));
        // "At or near", says the RFC.
        if most >= 0.9 * longest as f64 {
            finding.notes.push(
                "Bursts came near the longest allowed: likely invalid; repeat with a greater 'longest' (RFC 9004, section 6.2).".into(),
            );
        }
        finding
    }

    fn remaining_ns(&self) -> i64 {
        // No burst is longer than the first, and each search about halves them from there. Twice
        // the first is what a search takes, as often as loss is verified.
        let left = self.config.tests.saturating_sub(self.begun);
        let longest = self.config.longest_ns.clamp(1, 30 * SECOND);
        i64::from(left) * i64::from(self.config.attempts.max(1)) * 2 * longest
    }

    fn remaining_trials(&self) -> u32 {
        let left = self.config.tests.saturating_sub(self.begun);
        if left == 0 {
            return 0;
        }
        let attempts = self.config.attempts.max(1);
        let whole = BackToBack::search(&self.config).remaining() * attempts;
        let present = (self.bisection.remaining() * attempts).saturating_sub(self.failed);
        (left - 1) * whole + present
    }
}

/// Bursts whose frames leave slower by this share are not as the standard has them.
const PACE: f64 = 0.01;
