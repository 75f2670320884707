//! How metering goes, and what it comes to.

use anyhow::Result;
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::{FLOW_SCHEMA_VERSION, ProtocolTotal};
use sonde_results::{FlowRun, ToUtc as _};
use sonde_sys::clock::{clock_state, steady_now, steady_scale, tai_now};

use super::control::Control;
use super::settings::Settings;
use super::setup;
use super::top_talkers::Talker;
use crate::error::RunError;
use crate::header::run_header;
use crate::running::{Ended, Latest, Running};

/// Flows being metered. Records come in batches, where they are wanted.
pub type FlowMetering = Running<Vec<FlowRecord>, Status, Control>;

/// The latest state of a flow run.
#[derive(Clone, Debug)]
pub struct Status {
    /// The run: its points and caveats as they are now, and at the end all of it.
    pub run: FlowRun,
    /// When this was, ns, steady.
    pub at_ns: i64,
    /// What was metered of each protocol, by protocol number.
    pub protocols: Vec<ProtocolTotal>,
    /// Flows in the caches of all threads.
    pub held: u64,
    /// Flows that began since the start.
    pub created: u64,
    /// Records given to the outputs so far.
    pub records: u64,
    /// Packets that came in and did not reach a meter.
    pub packets_lost: u64,
    /// Records that found the export thread's queue full.
    pub records_lost: u64,
    /// The fastest flows of now, where they are wanted.
    pub fastest: Vec<Talker>,
}

impl Status {
    /// At the start of `run`.
    pub(super) fn new(run: FlowRun) -> Status {
        let total = |protocol| ProtocolTotal { protocol, ..ProtocolTotal::default() };
        Status {
            run,
            at_ns: steady_now().as_nanos(),
            protocols: (0..=u8::MAX).map(total).collect(),
            held: 0,
            created: 0,
            records: 0,
            packets_lost: 0,
            records_lost: 0,
            fastest: Vec::new(),
        }
    }

    /// The run file of a run on interfaces, as far as it has come. It has what was metered, the
    /// records made, and the flows that are fastest now.
    pub fn so_far(&self) -> FlowRun {
        let mut so_far = self.run.clone();
        so_far.header.end_ns = steady_now().as_nanos();
        so_far.protocols = self.protocols.iter().filter(|p| p.packets > 0).copied().collect();
        so_far.protocols.sort_by_key(|p| std::cmp::Reverse(p.bytes));
        so_far.top = self.fastest.iter().map(|fast| fast.record.clone()).collect();
        for (name, n) in [
            ("packets_lost", self.packets_lost),
            ("records_lost", self.records_lost),
            ("flows", self.created),
            ("records", self.records),
        ] {
            so_far.counters.insert(name.into(), n);
        }
        if self.packets_lost > 0 {
            so_far.caveats.insert(Caveat::OwnDrops);
        }
        so_far.turn_to_utc(steady_scale().utc_offset);
        so_far
    }
}

/// What is left behind by a run that came to this.
pub fn ended(
    status: &Latest<Status>,
    finished: Result<FlowRun>,
    failure: Option<anyhow::Error>,
) -> Ended {
    let mut ended = Ended { failure: failure.map(RunError::Host), ..Ended::default() };
    match finished {
        Ok(run) => {
            (ended.counters, ended.caveats) = (run.counters.clone(), run.caveats);
            status.update(|s| s.run = run);
        }
        Err(error) => ended.failure = ended.failure.or(Some(RunError::Host(error))),
    }
    ended
}

/// A run that begins now and has seen nothing.
pub fn empty_run(settings: &Settings, engine: String) -> FlowRun {
    FlowRun {
        header: run_header("flow", FLOW_SCHEMA_VERSION, tai_now().as_nanos(), &clock_state()),
        config: setup::run_config(settings, engine),
        points: Vec::new(),
        protocols: Vec::new(),
        ends: Default::default(),
        top: Vec::new(),
        exports: Vec::new(),
        counters: Default::default(),
        caveats: CaveatSet::default(),
    }
}
