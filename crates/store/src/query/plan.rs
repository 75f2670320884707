//! Which table answers: the coarsest whose windows fit the range and the step.

use serde::{Deserialize, Serialize};

use super::{Delay, Run, Source};
use crate::error::StoreError;
use crate::series::{MODULE_FLOW, MODULE_INTERFACE, MODULE_RTT, Series, SeriesFilter};
use crate::table::Table;

/// A range of time, ns since 1970 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeRange {
    /// First instant (inclusive).
    pub from_ns: i64,
    /// Last instant (exclusive).
    pub to_ns: i64,
}

impl TimeRange {
    /// Whether it begins and ends at multiples of `step_ns` (0: any).
    fn fits(&self, step_ns: i64) -> bool {
        step_ns == 0 || (self.from_ns % step_ns == 0 && self.to_ns % step_ns == 0)
    }

    /// To whole windows of `step_ns`.
    fn widened(&self, step_ns: i64) -> TimeRange {
        if step_ns == 0 {
            return *self;
        }
        TimeRange {
            from_ns: self.from_ns - self.from_ns.rem_euclid(step_ns),
            to_ns: self.to_ns.saturating_add((-self.to_ns).rem_euclid(step_ns)),
        }
    }
}

/// Picks the table among those that are rolled up from `raw` (which may be a roll-up itself), and
/// the range that it answers. Of the tables that fit, the coarsest. Where the one picked does not
/// reach back as far as a coarser one does, the coarser one, for whole windows.
pub(super) fn pick(
    source: &dyn Source,
    raw: Table,
    range: TimeRange,
    step_ns: i64,
) -> Result<(Table, TimeRange), StoreError> {
    if range.from_ns >= range.to_ns {
        let what = format!("the range from {} to {} is empty", range.from_ns, range.to_ns);
        return Err(StoreError::Query { what, help: "give an end after the begin, ns since 1970" });
    }
    let mut tables = vec![raw];
    while let Some(coarser) = tables.last().and_then(|t| t.coarser()) {
        tables.push(coarser);
    }
    let fits = |table: &&Table| {
        let window = table.step_ns();
        range.fits(window) && (step_ns == 0 || window == 0 || step_ns % window == 0)
    };
    // The finest at least: of windows that are cut, those count that begin in the range.
    let picked = tables.iter().rev().find(fits).copied().unwrap_or(raw);
    let reaches = |table: Table| source.oldest_ns(table).unwrap_or(i64::MAX);
    let begin = reaches(picked);
    if begin > range.from_ns {
        let coarser = tables.iter().copied().filter(|t| t.step_ns() > picked.step_ns());
        let farther = coarser.filter(|&t| {
            let usable = step_ns == 0 || step_ns % t.step_ns() == 0;
            usable && reaches(t) < begin - begin.rem_euclid(t.step_ns())
        });
        if let Some(table) = farther.min_by_key(|t| t.step_ns()) {
            return Ok((table, range.widened(table.step_ns())));
        }
    }
    Ok((picked, range))
}

impl Run<'_> {
    /// Picks the table for a delay, a range and a step, which the answer then names.
    pub(super) fn plan(
        &mut self,
        delay: Delay,
        range: TimeRange,
        step_ns: i64,
    ) -> Result<TimeRange, StoreError> {
        let (level, range) = pick(self.source, delay.raw(), range, step_ns)?;
        (self.level, self.range) = (Some(level), range);
        Ok(range)
    }

    /// The windows of a range: how many, and that they are not too many.
    pub(super) fn windows(&self, range: TimeRange, step_ns: i64) -> Result<usize, StoreError> {
        if step_ns <= 0 {
            let what = format!("a step of {step_ns} ns is none");
            return Err(StoreError::Query { what, help: "give a step of a second or more" });
        }
        let length = i128::from(range.to_ns) - i128::from(range.from_ns);
        let n = u64::try_from((length + i128::from(step_ns) - 1) / i128::from(step_ns));
        let n = n.unwrap_or(u64::MAX);
        self.check_answer(usize::try_from(n).unwrap_or(usize::MAX))?;
        Ok(n as usize)
    }

    /// The series that a filter names; rows of other groups are left out from then on.
    pub(super) fn select(&mut self, filter: &SeriesFilter) -> Vec<Series> {
        let mut all = self.source.series();
        all.retain(|series| filter.matches(series));
        self.groups = filter.groups.iter().cloned().collect();
        all
    }

    /// Those of them that could have this delay: a meter of flows is not silent, nor is an interface.
    pub(super) fn select_of(&mut self, filter: &SeriesFilter, delay: Delay) -> Vec<Series> {
        let mut all = self.select(filter);
        all.retain(|series| match &*series.labels.module {
            MODULE_FLOW | MODULE_INTERFACE => false,
            module => (module == MODULE_RTT) == (delay == Delay::Passive),
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventId, StoredEvent};
    use crate::flow::{FlowRow, FlowSum};
    use crate::interface::InterfaceRow;
    use crate::interval::IntervalRow;
    use crate::query::{RowSink, Scan};
    use crate::rtt::RttRow;
    use crate::{DAY_NS, HOUR_NS, MINUTE_NS};

    /// A source that knows only how far its tables reach back.
    struct Reach(Vec<(Table, i64)>);

    impl Source for Reach {
        fn series(&self) -> Vec<Series> {
            vec![]
        }
        fn intervals(
            &self,
            _: Table,
            _: &Scan,
            _: &mut RowSink<IntervalRow>,
        ) -> Result<(), StoreError> {
            Ok(())
        }
        fn flows(&self, _: &Scan, _: &mut RowSink<FlowRow>) -> Result<(), StoreError> {
            Ok(())
        }
        fn flow_sums(
            &self,
            _: Table,
            _: &Scan,
            _: &mut RowSink<FlowSum>,
        ) -> Result<(), StoreError> {
            Ok(())
        }
        fn rtt(&self, _: Table, _: &Scan, _: &mut RowSink<RttRow>) -> Result<(), StoreError> {
            Ok(())
        }
        fn interfaces(
            &self,
            _: Table,
            _: &Scan,
            _: &mut RowSink<InterfaceRow>,
        ) -> Result<(), StoreError> {
            Ok(())
        }
        fn oldest_ns(&self, table: Table) -> Option<i64> {
            self.0.iter().find(|(t, _)| *t == table).map(|(_, oldest)| *oldest)
        }
        fn events(&self, _: i64, _: i64) -> Result<Vec<(EventId, StoredEvent)>, StoreError> {
            Ok(vec![])
        }
        fn event(&self, _: EventId) -> Result<Option<StoredEvent>, StoreError> {
            Ok(None)
        }
    }

    #[test]
    fn the_coarsest_table_that_fits_answers() {
        let source = Reach(Table::ALL.into_iter().map(|t| (t, 0)).collect());
        let pick = |from_ns, to_ns, step| {
            pick(&source, Table::Interval, TimeRange { from_ns, to_ns }, step).unwrap()
        };
        assert_eq!(pick(0, 30 * DAY_NS, 0).0, Table::Interval1d);
        assert_eq!(pick(0, 30 * DAY_NS, DAY_NS).0, Table::Interval1d);
        assert_eq!(pick(0, 30 * DAY_NS, 6 * HOUR_NS).0, Table::Interval1h);
        assert_eq!(pick(0, HOUR_NS, 5 * MINUTE_NS).0, Table::Interval1m);
        assert_eq!(pick(0, HOUR_NS, 90_000_000_000).0, Table::Interval);
        assert_eq!(
            pick(1, HOUR_NS, 0),
            (Table::Interval, TimeRange { from_ns: 1, to_ns: HOUR_NS })
        );
        assert_eq!(pick(MINUTE_NS, HOUR_NS, 0).0, Table::Interval1m);
    }

    #[test]
    fn where_the_fine_rows_are_gone_whole_windows_of_a_coarser_table_answer() {
        let now = 100 * DAY_NS;
        let source = Reach(vec![
            (Table::Interval, now - DAY_NS),
            (Table::Interval1m, now - 50 * DAY_NS),
            (Table::Interval1h, 0),
        ]);
        let pick = |from_ns, to_ns, step| {
            pick(&source, Table::Interval, TimeRange { from_ns, to_ns }, step).unwrap()
        };
        let (from, to) = (now - 2 * DAY_NS + 5, now - DAY_NS - 5);
        let (table, range) = pick(from, to, 0);
        assert_eq!(table, Table::Interval1m);
        assert_eq!(range, TimeRange { from_ns: from - 5, to_ns: to + 5 });
        assert_eq!(pick(now - 60 * DAY_NS + 5, to, 0).0, Table::Interval1m, "the nearest one");
        assert_eq!(pick(now - HOUR_NS + 5, now, 0).0, Table::Interval, "it is all there");
        // A step that only the full rate has stays at the full rate: other points would lie.
        assert_eq!(pick(from, to, 1_000_000_000).0, Table::Interval);
    }

    #[test]
    fn an_empty_range_is_refused() {
        let range = TimeRange { from_ns: 5, to_ns: 5 };
        let error = pick(&Reach(vec![]), Table::Interval, range, 0).unwrap_err();
        assert!(error.to_string().contains("is empty"), "{error}");
    }
}
