//! What is known of a measurement of round trips when it starts.

use std::sync::Arc;

use sonde_results::RttRun;
use sonde_results::caveat::CaveatSet;
use sonde_results::rtt::{Coverage, FlowKey, GroupKey};
use sonde_results::rtt_run::{RTT_SCHEMA_VERSION, RttPoint, RttRunConfig};
use sonde_sys::clock::{clock_state, tai_now};

use crate::header::run_header;

/// Gives the group of the host that is the source of the key, if it is known.
pub type GroupOf = Arc<dyn Fn(&FlowKey) -> Option<GroupKey> + Send + Sync>;

/// What is known when it starts.
#[derive(Clone)]
pub struct About {
    /// The run, with nothing measured.
    pub run: RttRun,
    /// By what samples are grouped.
    pub group_of: GroupOf,
}

/// A run that begins now and has measured nothing.
pub fn empty_run(config: RttRunConfig, points: Vec<RttPoint>) -> RttRun {
    RttRun {
        header: run_header("rtt", RTT_SCHEMA_VERSION, tai_now().as_nanos(), &clock_state()),
        config,
        points,
        groups: Vec::new(),
        coverage: Coverage::default(),
        caveats: CaveatSet::default(),
    }
}
