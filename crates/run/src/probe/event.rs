//! What a probe hands out.

use sonde_meter::stamp::{Delays, Sample};
use sonde_port::icmp::IcmpError;
use sonde_results::run::Health;
use sonde_results::{Interval, StreamInfo};
use sonde_sys::clock::ClockState;
use sonde_wire::Time;

use super::settings::{RunSettings, Settings};

/// What a probe hands out.
#[derive(Clone, Debug)]
pub enum Event {
    /// A finished interval record; its stream is an index of [`About::streams`].
    Record(Box<Interval>),
    /// A packet's fate, where samples are wanted.
    Sample(Sample),
    /// A host or router says that a probe was not delivered.
    Undelivered(IcmpError),
    /// Further streams, numbered behind those that are there.
    Added(Vec<StreamInfo>),
    /// These streams send no more; their last records still come.
    Ended(Vec<u32>),
    /// All targets that are not measured now, with the reason: it has changed which or why. They are
    /// tried again as long as the probe runs.
    LeftOut(Vec<(String, String)>),
}

/// What is known of a probe when it starts.
#[derive(Clone, Debug)]
pub struct About {
    /// The streams, by the identifiers that records carry.
    pub streams: Vec<StreamInfo>,
    /// The engine, and how it runs.
    pub engine: String,
    /// When the first probe may leave: steady time (TAI as it was when the program began).
    pub start: Time,
    /// How this host's clock stood at the start.
    pub clock: ClockState,
    /// Targets that are not measured so far, with the reason: see [`Event::LeftOut`].
    pub left_out: Vec<(String, String)>,
    /// How the run goes, with all defaults.
    pub run: RunSettings,
    /// What was asked for.
    pub settings: Settings,
}

/// The latest state of a probe.
#[derive(Clone, Debug)]
pub struct Status {
    /// Probes that left this host.
    pub sent: u64,
    /// Valid replies, before any probe is settled.
    pub received: u64,
    /// Their round trips, before any is settled.
    pub delays: Delays,
    /// Lateness and pauses so far.
    pub health: Health,
    /// This host's clock as last looked at.
    pub clock: ClockState,
}

/// What a change of targets came to.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    /// The streams that were added, numbered behind those that were there.
    pub added: Vec<StreamInfo>,
    /// Those that send no more; their last records still come.
    pub ended: Vec<u32>,
    /// Targets that are not measured, with the reason.
    pub left_out: Vec<(String, String)>,
}
