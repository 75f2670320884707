//! What units measure, on its way to whoever subscribes: store, judge, live views, exports.

use std::collections::BTreeMap;

use sonde_results::caveat::CaveatSet;
use sonde_results::flow::FlowRecord;
use sonde_results::run::Health;
use sonde_run::reflect::ReflectorReport;
use sonde_run::running::Fanout;
use sonde_run::{probe, reflect, rtt};
use sonde_testbed::agent;

use crate::interfaces::InterfaceInterval;
use crate::plan::UnitId;
use crate::supervise::{Gap, Notice};

/// Where records of all units are subscribed to. A slow subscriber loses records, which are
/// counted, and slows no unit.
pub type Hub = Fanout<Report>;

/// What comes of a unit.
pub struct Report {
    /// Which.
    pub unit: UnitId,
    /// What it says.
    pub said: Said,
}

/// What a unit says, or the station of it.
pub enum Said {
    /// A probe has begun.
    Probe(Box<probe::About>),
    /// A record of a probe.
    ProbeEvent(probe::Event),
    /// A reflector has begun.
    Reflector(reflect::About),
    /// What a reflector did so far.
    Reflected(ReflectorReport),
    /// Round trips are measured.
    Rtt(Box<rtt::About>),
    /// Round trips, in their order.
    RttEvents(Vec<rtt::Event>),
    /// Flow metering has begun.
    Flow,
    /// The interfaces and captures that a flow meter reads, by their indices in records.
    FlowSources(Vec<String>),
    /// Flows that have ended.
    Flows(Vec<FlowRecord>),
    /// It listens for clients, or a controller, there.
    Serves(String),
    /// A controller came or went.
    Controller(agent::Event),
    /// What interfaces counted, as the station itself saw it.
    Interfaces(Vec<InterfaceInterval>),
    /// So many records found no room on their way out of the unit.
    Lost(u64),
    /// It has ended.
    Ended {
        /// What it and its engine counted.
        counters: BTreeMap<String, u64>,
        /// Its own behaviour.
        health: Health,
        /// What casts doubt on all that it measured.
        caveats: CaveatSet,
    },
    /// It measured nothing for a time.
    Gap(Gap),
    /// What people are told.
    Notice(Notice),
}

impl Report {
    /// How many records it stands for: of batches their length.
    pub fn records(&self) -> u64 {
        match &self.said {
            Said::RttEvents(events) => events.len() as u64,
            Said::Flows(flows) => flows.len() as u64,
            Said::Interfaces(all) => all.len() as u64,
            _ => 1,
        }
    }
}
