//! Address caching capacity and address learning rate of a bridge (RFC 2889, sections 5.7 and
//! 5.8).
//!
//! Each number of stations, or rate, takes two trials. The device forgets all stations; then each
//! sends one frame, from behind the receiving port, to the sending one. After that one frame goes
//! to each station. What the device has not learned it floods, and the copies are seen at the ports
//! where no station is ([`Direction::flooded`]). No copy and no loss: all stations were known.
//!
//! [`Direction::flooded`]: sonde_results::trial::Direction::flooded

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::trial::{DeviceEvent, Offer, Pattern};

use super::bisection::Bisection;
use super::values::{SECOND, reasons};
use super::{NextTrial, Procedure};

/// The action by which a device forgets its stations, before the first frame of a trial. A
/// device that has none is left alone until their ageing time is over.
pub const FORGET: &str = "forget";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AddressGoal {
    /// The greatest number of stations that are all known, up to so many.
    Capacity {
        /// The greatest count tried.
        max_stations: u32,
        /// Learning frames/s: slow enough for any device (section 5.7.2).
        learning_fps: f64,
    },
    /// The greatest rate of learning frames from which all of so many stations are known.
    LearningRate {
        /// Stations: no more than the caching capacity (section 5.8.2).
        stations: u32,
        /// Least rate, frames/s.
        min_fps: f64,
        /// Greatest rate, frames/s.
        max_fps: f64,
        /// Width at which the search ends, in units of the upper bound.
        resolution: f64,
    },
}

/// How it is searched.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressConfig {
    pub goal: AddressGoal,
    /// Test frames/s: well below the throughput, flooding included.
    pub test_fps: f64,
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct AddressSearch {
    config: AddressConfig,
    bisection: Bisection,
    /// The stations have sent their frames; now they are tested.
    learned: bool,
    /// At which rate they did, frames/s.
    learning_fps: f64,
    /// The greatest count that passed, or the rate at which it was offered.
    lower: Option<f64>,
    trials: u64,
    /// Copies and losses at the least value that failed.
    upper: Option<(u64, u64)>,
    unfit: Option<(f64, String)>,
}

impl AddressSearch {
    pub fn new(config: AddressConfig) -> AddressSearch {
        let bisection = match config.goal {
            AddressGoal::Capacity { max_stations, .. } => {
                Bisection::whole(1, u64::from(max_stations.max(1)), 1)
            }
            AddressGoal::LearningRate { min_fps, max_fps, resolution, .. } => {
                Bisection::new(min_fps, max_fps, resolution)
            }
        };
        AddressSearch {
            config,
            bisection,
            learned: false,
            learning_fps: 0.0,
            lower: None,
            trials: 0,
            upper: None,
            unfit: None,
        }
    }

    /// Stations, and learning frames/s, where the search stands at `value`.
    fn point(&self, value: f64) -> (u32, f64) {
        match self.config.goal {
            AddressGoal::Capacity { learning_fps, .. } => (value as u32, learning_fps),
            AddressGoal::LearningRate { stations, .. } => (stations.max(1), value),
        }
    }

    /// Both trials of the slowest case, ns.
    fn longest_ns(&self) -> i64 {
        let (stations, learning) = match self.config.goal {
            AddressGoal::Capacity { max_stations, learning_fps } => (max_stations, learning_fps),
            AddressGoal::LearningRate { stations, min_fps, .. } => (stations, min_fps),
        };
        let seconds = f64::from(stations) * (1.0 / learning + 1.0 / self.config.test_fps);
        (seconds * SECOND as f64) as i64
    }
}

impl Procedure for AddressSearch {
    fn next(&mut self) -> Option<NextTrial> {
        let (stations, learning_fps) = self.point(self.bisection.next()?);
        let offer =
            Offer { frames: u64::from(stations), flows: Some(stations), ..Offer::default() };
        Some(if self.learned {
            let rate_fps = self.config.test_fps;
            NextTrial {
                offer: Offer { rate_fps, pattern: Pattern::Stations, ..offer },
                purpose: "test frames".into(),
            }
        } else {
            let event = DeviceEvent { action: FORGET.into(), at_ns: -SECOND };
            NextTrial {
                offer: Offer {
                    rate_fps: learning_fps,
                    pattern: Pattern::Learning,
                    event: Some(event),
                    ..offer
                },
                purpose: "learning frames".into(),
            }
        })
    }

    fn observe(&mut self, trial: &Trial) {
        let Some(value) = self.bisection.next() else { return };
        self.trials += 1;
        if !trial.valid() {
            self.unfit = Some((value, reasons(trial)));
            self.upper = None;
            self.learned = false;
            return self.bisection.observe(value, false);
        }
        if !self.learned {
            self.learned = true;
            self.learning_fps = trial.offered_fps();
            return;
        }
        self.learned = false;
        let flooded = trial.directions.iter().map(|d| d.flooded).sum();
        let lost = trial.sent_and_lost().1;
        if flooded + lost > 0 {
            self.upper = Some((flooded, lost));
        }
        let passed = flooded + lost == 0;
        if passed {
            // A number of stations is what it is; a rate is reported as it was offered.
            self.lower = Some(match self.config.goal {
                AddressGoal::Capacity { .. } => value,
                AddressGoal::LearningRate { .. } => self.learning_fps,
            });
        }
        self.bisection.observe(value, passed);
    }

    fn finding(&self) -> Finding {
        let complete = self.bisection.next().is_none();
        let mut finding = Finding { complete, ..Finding::default() };
        if self.trials == 0 {
            return finding;
        }
        let (name, unit) = match self.config.goal {
            AddressGoal::Capacity { .. } => ("address_caching_capacity", "addresses"),
            AddressGoal::LearningRate { .. } => ("address_learning_rate", "frames/s"),
        };
        let bound = self.bisection.upper;
        let unfit_above = self.unfit.as_ref().is_some_and(|(value, _)| bound == Some(*value));
        match self.lower {
            None if !complete => {}
            None if unfit_above => {
                finding.complete = false;
                finding.notes.push(
                    "Nothing was found: of no value, down to the least, is there a valid trial."
                        .into(),
                );
            }
            lower => {
                let found = lower.unwrap_or(0.0);
                let upper = bound.unwrap_or(found);
                let mut quantity = Quantity::new(name, unit, found, self.trials)
                    .between(found.min(upper), found.max(upper));
                quantity.tester_limited = unfit_above;
                finding.values.push(quantity);
            }
        }
        if let Some((flooded, lost)) = self.upper {
            finding.notes.push(format!(
                "At the upper bound {flooded} copies were flooded, {lost} frames lost."
            ));
        }
        if complete && self.bisection.upper.is_none() {
            finding.notes.push("The greatest value tried passed: the device may do more.".into());
        }
        if complete && self.bisection.lower.is_none() && !unfit_above {
            finding.notes.push("Not even the least value tried passed.".into());
        }
        if let Some((value, why)) = &self.unfit {
            finding.notes.push(format!("At {value:.0} the tester was not fit: {why}."));
            if unfit_above && self.lower.is_some() {
                finding.notes.push("The upper bound is the tester's, not the device's.".into());
            }
        }
        finding
    }

    fn remaining_ns(&self) -> i64 {
        i64::from(self.bisection.remaining()).saturating_mul(self.longest_ns())
    }

    fn remaining_trials(&self) -> u32 {
        (2 * self.bisection.remaining()).saturating_sub(u32::from(self.learned))
    }
}
