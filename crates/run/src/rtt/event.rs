//! What a measurement of round trips hands out.

use sonde_results::caveat::CaveatSet;
use sonde_results::rtt::{Coverage, RttFlow, RttGroup, RttSample};
use sonde_results::rtt_run::RttPoint;

use super::control::Control;
use super::loss::Losses;
use super::totals::Totals;
use crate::running::Running;

/// Round-trip times being measured. Events come in batches, in their order.
pub type RttWatching = Running<Vec<Event>, Status, Control>;

/// What comes of it. Times are steady, or of a capture its packets', as TAI.
#[derive(Clone, Debug)]
pub enum Event {
    /// One round trip, where samples are wanted.
    Sample(RttSample),
    /// A flow that has ended, or is open at the end, where flows are wanted.
    Flow(Box<RttFlow>),
    /// The end of an interval.
    Interval(RttInterval),
    /// A further observation point.
    Point(RttPoint),
    /// An observation point, by its index, is watched otherwise than before.
    PointChanged(usize, RttPoint),
    /// This host's clock was set: what times are ahead of UTC from now on, ns.
    UtcOffset(i64),
}

/// The groups of one interval, with their losses.
#[derive(Clone, Debug, Default)]
pub struct RttInterval {
    /// Begin, ns.
    pub start_ns: i64,
    /// End, ns.
    pub end_ns: i64,
    /// The groups that have samples in it.
    pub groups: Vec<RttGroup>,
    /// All counters since the start.
    pub coverage: Coverage,
    /// What casts doubt so far.
    pub caveats: CaveatSet,
    /// Loss in the flows that are open, where that is wanted and was looked at.
    pub losses: Option<Losses>,
}

impl RttInterval {
    /// Makes it longer by the one that follows it.
    pub(super) fn extend(&mut self, next: RttInterval) {
        let mut groups = Totals::default();
        self.groups.iter().chain(&next.groups).for_each(|group| groups.add(group));
        let losses = next.losses.or(self.losses.take());
        *self = RttInterval { start_ns: self.start_ns, groups: groups.sorted(), losses, ..next };
    }
}

/// The latest state of an rtt run.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The observation points.
    pub points: Vec<RttPoint>,
    /// All counters since the start.
    pub coverage: Coverage,
    /// What casts doubt so far.
    pub caveats: CaveatSet,
}
