//! Reset (RFC 6201, which updates RFC 2544, section 26.6): for how long does a device not
//! forward when it is restarted? By both methods of section 1.3: the frames lost over the
//! rate, and the time between the arrivals before and after.

use sonde_results::Trial;
use sonde_results::bench::{Finding, Quantity};
use sonde_results::procedure::purpose::RESET;
use sonde_results::trial::{DeviceEvent, Offer};

use super::script::{Script, scripted};
use super::values::{SECOND, extremes, mean};
use super::{NextTrial, Procedure};

/// The reset and the load during it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResetConfig {
    /// Load, frames/s in each direction. The RFCs have it at the throughput, where a device may
    /// lose by itself. Below it only the reset loses, and the time is as exact as the load is
    /// great.
    pub rate_fps: f64,
    /// The name under which the plan or the lab knows the reset.
    pub action: String,
    /// When it is done, ns from the first frame.
    pub at_ns: i64,
    /// Duration of a trial, ns: longer than the reset takes.
    pub duration_ns: i64,
    /// Trials; each resets the device once.
    pub trials: u32,
}

impl Default for ResetConfig {
    fn default() -> Self {
        ResetConfig {
            rate_fps: 1000.0,
            action: "reset".into(),
            at_ns: 15 * SECOND,
            duration_ns: 120 * SECOND,
            trials: 3,
        }
    }
}

/// What a trial showed.
#[derive(Clone, Copy, Debug)]
struct ResetResult {
    /// Frames that the reset cost, all directions together.
    lost: u64,
    /// The longest of the directions, ns.
    by_loss_ns: f64,
    by_gap_ns: f64,
    /// Frames arrived again at the end.
    returned: bool,
}

/// The reset procedure, as far as it has come.
#[derive(Clone, Debug)]
pub struct Reset {
    script: Script<ResetResult>,
    /// For how long the device was without power at the least, ns.
    off_ns: i64,
}

impl Reset {
    /// One reset a trial.
    pub fn new(config: ResetConfig) -> Reset {
        let event = DeviceEvent { action: config.action.clone(), at_ns: config.at_ns };
        let offer = Offer::steady(config.rate_fps, config.duration_ns);
        let next = NextTrial {
            offer: Offer { event: Some(event), ..offer },
            purpose: format!("{RESET}: {}", config.action),
        };
        let off_ns = if config.action == POWER { POWER_OFF_NS } else { 0 };
        Reset { script: Script::new(vec![next; config.trials as usize]), off_ns }
    }
}

fn outcome(trial: &Trial) -> ResetResult {
    let lost = trial.sent_and_lost().1;
    let mut outcome = ResetResult { lost, by_loss_ns: 0.0, by_gap_ns: 0.0, returned: true };
    for direction in &trial.directions {
        let by_loss = direction.lost as f64 / trial.offered_fps() * SECOND as f64;
        outcome.by_loss_ns = outcome.by_loss_ns.max(by_loss);
        outcome.by_gap_ns = outcome.by_gap_ns.max(direction.arrival_gap_ns as f64);
        let last = direction.last_loss.or(direction.losses.last().copied());
        let to_the_end = last.is_some_and(|run| run.first + run.frames >= direction.sent);
        outcome.returned &= !to_the_end && direction.received > 0;
    }
    outcome
}

impl Procedure for Reset {
    scripted!();

    fn observe(&mut self, trial: &Trial) {
        self.script.observe(trial, outcome);
    }

    fn finding(&self) -> Finding {
        let mut finding = self.script.finding();
        let returned: Vec<ResetResult> =
            self.script.seen().map(|(_, o)| *o).filter(|o| o.returned).collect();
        // Without loss nothing was interrupted, and a gap is one as any other.
        let interrupted = || returned.iter().filter(|o| o.lost > 0);
        let mut add = |name: &str, unit: &str, of: &dyn Fn(&ResetResult) -> f64| {
            let all: Vec<f64> = interrupted().map(of).collect();
            let Some(mean) = mean(&all) else { return };
            let (least, most) = extremes(&all);
            let quantity = Quantity::new(name, unit, mean, all.len() as u64);
            finding.values.push(quantity.between(least, most));
        };
        let off_ns = self.off_ns as f64;
        add("reset_time_frame_loss", "ns", &|o| (o.by_loss_ns - off_ns).max(0.0));
        add("reset_time_time_stamp", "ns", &|o| (o.by_gap_ns - off_ns).max(0.0));
        add("lost_frames", "frames", &|o| o.lost as f64);
        let unhurt = returned.len() - interrupted().count();
        if unhurt > 0 {
            finding.notes.push(format!("In {unhurt} trials nothing was lost: no interruption."));
        }
        if self.off_ns > 0 {
            finding.notes.push(format!(
                "{} s without power are taken off the times (RFC 6201, section 4.3.1).",
                self.off_ns / SECOND
            ));
        }
        let gone = self.script.seen().count() - returned.len();
        if gone > 0 {
            finding
                .notes
                .push(format!("In {gone} trials the device did not forward again before the end."));
            finding.complete &= !returned.is_empty();
        }
        if !returned.is_empty() {
            finding.notes.push("Means of the trials, between least and greatest.".into());
        }
        finding
    }
}

/// The name of a power cut.
pub const POWER: &str = "power";
/// For how long it lasts (RFC 6201, section 4.3.1), ns.
pub const POWER_OFF_NS: i64 = 15 * SECOND;
