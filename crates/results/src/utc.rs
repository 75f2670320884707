//! From the time base inside, TAI, to that of everything that people and their programs read:
//! UTC, as of IPFIX, Parquet and captures.

use crate::flow::FlowRecord;
use crate::record::Interval;
use crate::rtt::{RttFlow, RttGroup, RttSample};
use crate::run::{Run, RunHeader};
use crate::{FlowRun, RttRun};

/// What has instants in it.
pub trait ToUtc {
    /// Turns all instants from TAI, or steady time, to UTC, which is `tai_offset_ns` behind it. The
    /// offset is the kernel's; 0: the kernel has none, and its TAI equals UTC.
    fn turn_to_utc(&mut self, tai_offset_ns: i64);
}

impl RunHeader {
    /// TAI - UTC on the measuring host, ns.
    pub fn tai_offset_ns(&self) -> i64 {
        i64::from(self.host.tai_offset_s) * 1_000_000_000
    }
}

fn earlier(instants: &mut [&mut i64], ns: i64) {
    // 0: there is none.
    for instant in instants.iter_mut().filter(|instant| ***instant != 0) {
        **instant = instant.saturating_sub(ns);
    }
}

impl ToUtc for FlowRecord {
    fn turn_to_utc(&mut self, tai_offset_ns: i64) {
        let FlowRecord { forward, reverse, .. } = self;
        for side in [forward, reverse] {
            earlier(&mut [&mut side.first_ns, &mut side.last_ns], tai_offset_ns);
        }
    }
}

impl ToUtc for RttSample {
    fn turn_to_utc(&mut self, tai_offset_ns: i64) {
        earlier(&mut [&mut self.at_ns], tai_offset_ns);
    }
}

impl ToUtc for RttFlow {
    fn turn_to_utc(&mut self, tai_offset_ns: i64) {
        earlier(&mut [&mut self.start_ns, &mut self.end_ns], tai_offset_ns);
    }
}

impl ToUtc for RttGroup {
    fn turn_to_utc(&mut self, tai_offset_ns: i64) {
        earlier(&mut [&mut self.start_ns, &mut self.end_ns], tai_offset_ns);
    }
}

impl ToUtc for Interval {
    fn turn_to_utc(&mut self, tai_offset_ns: i64) {
        earlier(&mut [&mut self.start_ns, &mut self.end_ns], tai_offset_ns);
    }
}

impl ToUtc for RunHeader {
    fn turn_to_utc(&mut self, tai_offset_ns: i64) {
        earlier(&mut [&mut self.start_ns, &mut self.end_ns], tai_offset_ns);
    }
}

impl ToUtc for Run {
    fn turn_to_utc(&mut self, tai_offset_ns: i64) {
        self.header.turn_to_utc(tai_offset_ns);
        self.totals.iter_mut().for_each(|total| total.turn_to_utc(tai_offset_ns));
        self.overall.turn_to_utc(tai_offset_ns);
    }
}

impl ToUtc for RttRun {
    fn turn_to_utc(&mut self, tai_offset_ns: i64) {
        self.header.turn_to_utc(tai_offset_ns);
        self.groups.iter_mut().for_each(|group| group.turn_to_utc(tai_offset_ns));
    }
}

impl ToUtc for FlowRun {
    fn turn_to_utc(&mut self, tai_offset_ns: i64) {
        self.header.turn_to_utc(tai_offset_ns);
        self.top.iter_mut().for_each(|record| record.turn_to_utc(tai_offset_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: i64 = 1_700_000_037_000_000_000;

    #[test]
    fn every_instant_of_a_run_is_turned_and_what_was_never_is_not() {
        let mut header = RunHeader { start_ns: T, end_ns: T + 5, ..RunHeader::default() };
        header.host.tai_offset_s = 37;
        let offset = header.tai_offset_ns();
        assert_eq!(offset, 37_000_000_000);
        header.turn_to_utc(offset);
        assert_eq!((header.start_ns, header.end_ns), (T - offset, T + 5 - offset));
        for (start_ns, end_ns, wanted) in [(T, T + 2, (T - offset, T + 2 - offset)), (0, 0, (0, 0))]
        {
            let mut interval = Interval { start_ns, end_ns, ..Interval::empty(0) };
            interval.turn_to_utc(offset);
            assert_eq!((interval.start_ns, interval.end_ns), wanted);
        }
    }
}
