//! Which segments are to be rolled up, and when: pure. What rolling up is: sums of rows.
//!
//! Rows of minutes (of flows: of five minutes) are made with the segment at the full rate, in the same
//! transaction. The coarser tables follow when a window is over: every segment that is not rolled up
//! and has rows of it is added to the next coarser table, whole, and is marked in the same transaction.
//! So each row is in a coarser table at most once, and those that are not yet are found by the mark.
//! Late rows come in later segments and make a second row for their window; rows add up.

use crate::column::StoredRow;
use crate::embedded::SegmentId;
use crate::interval::{IntervalRow, IntervalSum};
use crate::table::Table;

/// A segment, as far as what is due depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub id: SegmentId,
    /// Its table.
    pub table: Table,
    /// Least and greatest time of a row, ns since 1970 UTC.
    pub times_ns: (i64, i64),
    /// Its size.
    pub octets: u64,
    /// Its rows are in the next coarser table, too.
    pub rolled: bool,
    /// How often its rows were compacted.
    pub tier: u8,
}

/// Segments that are to be added to a coarser table together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueRollUp {
    /// The table that they are added to.
    pub to: Table,
    /// Which they are, ascending.
    pub segments: Vec<SegmentId>,
}

/// What is to be rolled up at `now_ns`: for each table, all segments that have a row of a window
/// which ended at least `grace_ns` ago. At most [`MOST_SOURCES`] segments at once; those with the
/// oldest rows come first.
pub fn due_rollups(segments: &[SegmentInfo], now_ns: i64, grace_ns: i64) -> Vec<DueRollUp> {
    let mut all = Vec::new();
    for from in Table::ALL {
        let Some(to) = from.coarser() else { continue };
        // The window of a row at `t` ends at the next multiple of the step.
        let over = |t: i64| {
            let end = t.div_euclid(to.step_ns()).saturating_add(1).saturating_mul(to.step_ns());
            end.saturating_add(grace_ns) <= now_ns
        };
        let due = segments.iter().filter(|s| s.table == from && !s.rolled && over(s.times_ns.0));
        let mut due: Vec<&SegmentInfo> = due.collect();
        due.sort_by_key(|s| (s.times_ns.0, s.id));
        due.truncate(MOST_SOURCES);
        if !due.is_empty() {
            let mut segments: Vec<SegmentId> = due.iter().map(|s| s.id).collect();
            segments.sort_unstable();
            all.push(DueRollUp { to, segments });
        }
    }
    all
}

/// Segments that are to become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueCompaction {
    /// Their table.
    pub table: Table,
    /// Which they are, ascending; two at least.
    pub segments: Vec<SegmentId>,
}

/// What is to be compacted at `now_ns`. Segments of one table and period (an hour, a day, a month)
/// that agree in `rolled` become one in the end: [`MOST_SOURCES`] of a tier as soon as there are so
/// many, and the rest, smallest first, once the period ended `grace_ns` ago.
pub fn due_compactions(segments: &[SegmentInfo], now_ns: i64, grace_ns: i64) -> Vec<DueCompaction> {
    let group = |s: &SegmentInfo| (s.table, s.times_ns.1.div_euclid(s.table.period_ns()), s.rolled);
    let mut sorted: Vec<&SegmentInfo> = segments.iter().collect();
    sorted.sort_by_key(|s| (group(s), s.tier, s.id));
    let mut all = Vec::new();
    for together in sorted.chunk_by(|a, b| group(a) == group(b)) {
        let (table, period, _) = group(together[0]);
        let end = period.saturating_add(1).saturating_mul(table.period_ns());
        let tier = together.chunk_by(|a, b| a.tier == b.tier).find(|t| t.len() >= MOST_SOURCES);
        let mut chosen: Vec<&SegmentInfo> = match tier {
            Some(tier) => tier[..MOST_SOURCES].to_vec(),
            None if end.saturating_add(grace_ns) <= now_ns && together.len() > 1 => {
                let mut smallest = together.to_vec();
                smallest.sort_by_key(|s| (s.octets, s.id));
                smallest.truncate(MOST_SOURCES);
                smallest
            }
            None => continue,
        };
        chosen.sort_by_key(|s| s.id);
        all.push(DueCompaction { table, segments: chosen.iter().map(|s| s.id).collect() });
    }
    all
}

/// Adds up rows that ascend by series and time into windows of `step_ns`, one at a time.
pub struct IntervalRollUp<I> {
    rows: I,
    step_ns: i64,
    next: Option<IntervalRow>,
    sum: IntervalSum,
}

impl<I: Iterator<Item = Result<IntervalRow, E>>, E> IntervalRollUp<I> {
    /// Of rows that ascend by [`StoredRow::key`].
    pub fn new(rows: I, step_ns: i64) -> Self {
        IntervalRollUp { rows, step_ns, next: None, sum: IntervalSum::default() }
    }
}

impl<I: Iterator<Item = Result<IntervalRow, E>>, E> Iterator for IntervalRollUp<I> {
    type Item = Result<IntervalRow, E>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = match self.next.take() {
            Some(row) => row,
            None => match self.rows.next()? {
                Ok(row) => row,
                Err(error) => return Some(Err(error)),
            },
        };
        let window = |row: &IntervalRow| (row.series, row.start_ns.div_euclid(self.step_ns));
        let (series, number) = window(&first);
        self.sum.clear();
        self.sum.add(&first);
        loop {
            match self.rows.next() {
                Some(Ok(row)) if window(&row) == (series, number) => self.sum.add(&row),
                Some(Ok(row)) => {
                    self.next = Some(row);
                    break;
                }
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        Some(Ok(self.sum.to_row(series, number * self.step_ns)))
    }
}

/// Makes one row of those with equal keys that follow each other; of tables whose rows add up.
pub(crate) fn merge_equal<R: StoredRow, E>(
    rows: impl Iterator<Item = Result<R, E>>,
) -> impl Iterator<Item = Result<R, E>> {
    let mut rows = rows.peekable();
    std::iter::from_fn(move || {
        let first = match rows.next()? {
            Ok(row) => row,
            Err(error) => return Some(Err(error)),
        };
        let key = first.key();
        let mut equal = vec![first];
        while let Some(Ok(row)) = rows.next_if(|r| r.as_ref().is_ok_and(|r| r.key() == key)) {
            equal.push(row);
        }
        Some(Ok(if equal.len() == 1 { equal.remove(0) } else { R::merged(&equal) }))
    })
}

/// Segments that are read at once: each takes some memory.
pub const MOST_SOURCES: usize = 16;

#[cfg(test)]
mod tests;
