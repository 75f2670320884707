//! All intervals of a range as one record, with whole histograms: what is usual is computed from it.

use serde::{Deserialize, Serialize};
use sonde_results::Interval;

use super::{Delay, Run, Scan, TimeRange};
use crate::error::StoreError;
use crate::interval::IntervalSum;
use crate::series::SeriesFilter;

/// Asks for the sum of all intervals of all series together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Merged {
    /// Of this time.
    pub range: TimeRange,
    /// Of these series.
    pub filter: SeriesFilter,
    /// Which delay: that of passive round trips, or those of probes.
    pub delay: Delay,
}

impl Merged {
    /// `None`: there is no interval.
    pub(super) fn answer(&self, run: &mut Run) -> Result<Option<Box<Interval>>, StoreError> {
        let range = run.plan(self.delay, self.range, 0)?;
        let selected = run.select_of(&self.filter, self.delay);
        let scan = Scan {
            from_ns: range.from_ns,
            to_ns: range.to_ns,
            series: Some(selected.iter().map(|s| s.id.0).collect()),
            columns: &[],
        };
        let mut sum = IntervalSum::default();
        run.intervals(&scan, |row| {
            sum.add(row);
            Ok(())
        })?;
        if sum.intervals() == 0 {
            return Ok(None);
        }
        let (t1_source, t4_source) = sum.sources();
        let mut record = Interval {
            start_ns: range.from_ns,
            end_ns: range.to_ns,
            counters: *sum.counters(),
            loss_side: sum.counters().loss_side(),
            rtt: sum.rtt.to_hist(),
            rtt_net: sum.rtt_net.to_hist(),
            forward: sum.forward.to_hist(),
            backward: sum.backward.to_hist(),
            ipdv_forward: sum.ipdv_forward.to_hist(),
            ipdv_backward: sum.ipdv_backward.to_hist(),
            t1_source,
            t4_source,
            ..Interval::empty(0)
        };
        sum.caveats().iter().for_each(|&(caveat, _)| record.caveats.insert(caveat));
        Ok(Some(Box::new(record)))
    }
}
