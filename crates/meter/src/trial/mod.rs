//! Procedures of benchmarking: which trial comes next, and what the trials so far have found.
//!
//! A procedure is pure logic. Whoever runs the trials asks [`Procedure::next`], offers what
//! it says to the device, repeats what was invalid, and gives the outcome to
//! [`Procedure::observe`]. A run that is taken up again gives the trials of before in their
//! order, and the procedure goes on from there. Each is described in docs/procedures.md.

mod addresses;
mod back_to_back;
mod bisection;
mod ceiling;
mod chain;
mod delays;
mod evidence;
mod fixed;
mod flooding;
mod forwarding;
mod latency;
mod loss_rate;
mod mlrsearch;
mod multicast;
mod ramp;
mod rate_search;
mod recovery;
mod reset;
mod rfc8219;
mod script;
pub mod sim;
mod soak;
#[cfg(test)]
mod tests;
mod throughput;
mod tst009;
mod values;
mod y1564;

pub use addresses::{AddressConfig, AddressGoal, AddressSearch, FORGET};
pub use back_to_back::{BackToBack, BackToBackConfig};
pub use ceiling::TesterCeiling;
pub use chain::Chain;
pub use evidence::add_evidence;
pub use fixed::{FixedLoad, FixedLoadConfig};
pub use forwarding::{ForwardingConfig, ForwardingRate};
pub use latency::{LabelledLoad, Latency, LatencyConfig};
pub use loss_rate::{LossRate, LossRateConfig};
pub use mlrsearch::{Goal, MlrConfig, MlrSearch};
pub use multicast::{GroupMatrix, GroupMatrixConfig};
pub use ramp::{Ramp, RampConfig};
pub use rate_search::{RateSearch, RateSearchConfig};
pub use recovery::{Recovery, RecoveryConfig};
pub use reset::{POWER, POWER_OFF_NS, Reset, ResetConfig};
pub use rfc8219::{DelayConfig, DelayKind, DelaySummary};
pub use soak::{Soak, SoakConfig};
pub use y1564::{
    ConfigurationTest, ConfigurationTestConfig, PerformanceTest, PerformanceTestConfig, Sla,
};

use sonde_results::Trial;
use sonde_results::bench::Finding;
use sonde_results::trial::Offer;

/// A trial that a procedure wants.
#[derive(Clone, Debug, PartialEq)]
pub struct NextTrial {
    pub offer: Offer,
    /// A short reason: "search", "loss verification", "latency at 50 %".
    pub purpose: String,
}

/// A procedure under way.
pub trait Procedure {
    /// The next trial; `None` when it has come to its end. The same until `observe` is called.
    fn next(&mut self) -> Option<NextTrial>;

    /// The outcome of what `next` asked for. Where no try was valid, the last one: the
    /// procedure sees that by [`Trial::valid`] and ends, or goes on without it.
    fn observe(&mut self, trial: &Trial);

    /// What was found so far.
    fn finding(&self) -> Finding;

    /// The longest that sending may still take, ns, as far as it can be known: for
    /// `--dry-run`. What goes before and after each trial (learning frames, drain, rest) is
    /// added by whoever runs them, [`Procedure::remaining_trials`] times.
    fn remaining_ns(&self) -> i64;

    /// The most trials that may still be asked for, as far as it can be known.
    fn remaining_trials(&self) -> u32;
}
