//! What the flow cache counts: everything offered, and where it went.

use sonde_results::flow::FlowEnd;
use sonde_wire::Error;

use crate::counters::counters;

counters! {
    /// Offered packets are `packets` and the `refused_*` together. Of `packets`, what is no
    /// longer held was exported.
    Counters {
        packets,
        /// Bytes of IP packets metered.
        bytes,
        flows,
        /// Records ended by the idle time-out.
        ended_idle,
        /// Records ended by the active time-out, or as a counter was full.
        ended_active,
        /// Records ended as TCP closed or reset the connection.
        ended_detected,
        /// Records ended as the meter stopped, or as the clock was set back by 12 h.
        ended_forced,
        /// Records ended early as all slots were taken.
        evicted_full,
        /// Records ended early as their hash's slots were taken.
        evicted_crowded,
        /// Packets in the records that ended.
        exported_packets,
        /// Bytes in the records that ended.
        exported_bytes,
        /// Later fragments whose first fragment was not seen: they count to a flow without ports.
        fragments_unmatched,
        /// Packets that came after a later one of their flow's direction.
        out_of_order,
        /// TCP segments that passed twice within a millisecond, as a mirror port copies them. They
        /// are metered twice, and not taken for sent again. Counted where the TCP fields are asked
        /// for.
        copies,
        /// Times that the clock was set back, or jumped by more than 12 h.
        clock_steps,
        /// Packets refused that end before their headers do.
        refused_truncated,
        /// Packets refused that are not IP.
        refused_not_ip,
        /// Packets refused that contradict themselves or nest too deeply.
        refused_malformed,
        /// Bytes of all refused packets, as they were captured.
        refused_bytes,
    }
}

impl Counters {
    /// Packets that could not be metered.
    pub fn refused(&self) -> u64 {
        self.refused_truncated + self.refused_not_ip + self.refused_malformed
    }

    pub(super) fn refuse(&mut self, error: Error, len: usize) {
        *match error {
            Error::Truncated => &mut self.refused_truncated,
            Error::EtherType => &mut self.refused_not_ip,
            _ => &mut self.refused_malformed,
        } += 1;
        self.refused_bytes += len as u64;
    }

    /// The counter of an end; evictions are counted where they are decided.
    pub(super) fn ended(&mut self, end: FlowEnd) {
        match end {
            FlowEnd::Idle => self.ended_idle += 1,
            FlowEnd::Active => self.ended_active += 1,
            FlowEnd::EndDetected => self.ended_detected += 1,
            FlowEnd::Forced => self.ended_forced += 1,
            FlowEnd::LackOfResources => {}
        }
    }
}

/// How full a cache is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Flows that have begun and not ended.
    pub flows: u64,
    /// Most flows that it can hold.
    pub capacity: u64,
    /// Packets of these flows.
    pub packets: u64,
    /// Bytes of these flows.
    pub bytes: u64,
}

impl Occupancy {
    /// Share of the room for flows that is taken, 0 to 1.
    pub fn load(&self) -> f64 {
        self.flows as f64 / self.capacity as f64
    }
}
