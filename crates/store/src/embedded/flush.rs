//! Makes segments: of the batches of a generation, of segments that are rolled up or compacted.

use std::sync::Arc;

use super::catalogue::{Change, SegmentRecord};
use super::journal::journal_path;
use super::merge::Merge;
use super::names::segment_path;
use super::segment::{RowRange, SegmentReader, write_segment};
use super::state::{Generation, SegmentFile};
use super::{Shared, lock};
use crate::batch::Rows;
use crate::column::StoredRow;
use crate::error::StoreError;
use crate::flow::{FlowRow, FlowSum, TOP_FLOWS, keep_top, roll_up_flows};
use crate::interface::InterfaceRow;
use crate::interval::IntervalRow;
use crate::rollup::{IntervalRollUp, merge_equal};
use crate::rtt::RttRow;
use crate::table::Table;

/// Segments that were written and are not committed. Dropped, they are removed again.
struct Uncommitted<'a> {
    shared: &'a Shared,
    records: Vec<SegmentRecord>,
}

impl Uncommitted<'_> {
    /// Writes a segment of rows that ascend, if there is any.
    fn write<R: StoredRow>(
        &mut self,
        table: Table,
        (rolled, tier): (bool, u8),
        named_after_ns: i64,
        rows: impl IntoIterator<Item = Result<R, StoreError>>,
    ) -> Result<(), StoreError> {
        let id = lock(&self.shared.state).take_segment_id();
        let path = segment_path(table, named_after_ns, id.0);
        let whole = self.shared.folder.join(&path);
        let folder = whole.parent().unwrap_or(&self.shared.folder);
        self.shared.make_folder(folder)?;
        if let Some(written) = write_segment(&*self.shared.disk, &whole, table, rows)? {
            self.records.push(SegmentRecord {
                id,
                table,
                path,
                times_ns: written.times_ns,
                series: written.series,
                rows: written.rows,
                octets: written.octets,
                crcs: written.crcs,
                rolled,
                tier,
            });
        }
        Ok(())
    }

    fn commit(
        mut self,
        mut change: Change,
        also: impl FnOnce(&mut super::State),
    ) -> Result<(), StoreError> {
        change.add = self.records.clone();
        let applied = self.shared.apply(change, also);
        if applied.is_ok() || self.shared.certain().is_err() {
            // They are segments, or may be.
            self.records.clear();
        }
        applied
    }
}

impl Drop for Uncommitted<'_> {
    fn drop(&mut self) {
        for record in &self.records {
            let _ = self.shared.disk.remove(&self.shared.folder.join(&record.path));
        }
    }
}

impl Shared {
    fn uncommitted(&self) -> Uncommitted<'_> {
        Uncommitted { shared: self, records: Vec::new() }
    }

    /// Makes a folder of segments and its name durable.
    fn make_folder(&self, folder: &std::path::Path) -> Result<(), StoreError> {
        if folder.is_dir() {
            return Ok(());
        }
        self.disk.create_folder(folder).map_err(StoreError::io("create", folder))?;
        // Its own name, and those above it up to the store.
        for above in folder.ancestors().skip(1).take_while(|p| p.starts_with(&self.folder)) {
            self.disk.sync_folder(above).map_err(StoreError::io("sync", above))?;
        }
        Ok(())
    }

    /// Makes segments of a generation, and of its roll-ups. Then its journals are not needed.
    pub(super) fn flush(&self, generation: &Generation) -> Result<(), StoreError> {
        let mut out = self.uncommitted();
        let (mut intervals, mut flows) = (Vec::new(), Vec::new());
        let (mut rtt, mut interfaces) = (Vec::new(), Vec::new());
        for (_, batch) in &generation.batches {
            match &*batch.rows {
                Rows::Intervals(rows) => intervals.extend(rows),
                Rows::Flows(rows) => flows.extend(rows),
                Rows::Rtt(rows) => rtt.extend(rows),
                Rows::Interfaces(rows) => interfaces.extend(rows),
            }
        }
        write_intervals(&mut out, intervals)?;
        write_flows(&mut out, flows)?;
        write_rtt(&mut out, rtt)?;
        write_interfaces(&mut out, interfaces)?;
        let mut change = Change { flushed: generation.last(), ..Change::default() };
        for (_, batch) in &generation.batches {
            change.writers.push((batch.writer.to_string(), batch.number));
        }
        // The last of each is enough.
        change.writers.sort();
        change.writers.reverse();
        change.writers.dedup_by(|later, earlier| later.0 == earlier.0);
        let journals = generation.journals;
        out.commit(change, |state| {
            state.sealed.retain(|sealed| sealed.journals != journals);
        })?;
        let folder = lock(&self.journal).folder().to_owned();
        for number in journals.0..=journals.1 {
            // What stays is read at the next start, and found to be in segments.
            let _ = self.disk.remove(&journal_path(&folder, number));
        }
        Ok(())
    }

    /// Adds segments to the next coarser table.
    pub(super) fn roll_up(
        &self,
        to: Table,
        sources: &[Arc<SegmentFile>],
    ) -> Result<(), StoreError> {
        let mut out = self.uncommitted();
        let at = sources.iter().map(|s| s.record.times_ns.1).max().unwrap_or(0);
        let marks = (to.coarser().is_none(), 0);
        if to.raw() == Table::Interval {
            let rows = Merge::<IntervalRow>::new(readers(sources)?);
            out.write(to, marks, at, IntervalRollUp::new(rows, to.step_ns()))?;
        } else if to.raw() == Table::Rtt {
            let rows = Merge::<RttRow>::new(readers(sources)?);
            out.write(to, marks, at, roll_up_rtt(rows, to))?;
        } else if to.raw() == Table::Interface {
            let rows = Merge::<InterfaceRow>::new(readers(sources)?);
            out.write(to, marks, at, roll_up_interfaces(rows, to))?;
        } else {
            // Windows are not together in the order of networks: sums are held in memory, as many
            // as there may be, and the smallest become "other" before there are more.
            let mut sums: Vec<FlowSum> = Vec::new();
            for row in Merge::<FlowSum>::new(readers(sources)?) {
                sums.push(row?);
                if sums.len() >= MOST_SUMS {
                    sums = roll_up_flows(sums, to.step_ns());
                    if sums.len() >= MOST_SUMS / 2 {
                        sums = keep_top(sums, 10 * TOP_FLOWS);
                    }
                }
            }
            let rows = keep_top(roll_up_flows(sums, to.step_ns()), TOP_FLOWS);
            out.write(to, marks, at, rows.into_iter().map(Ok))?;
        }
        let rolled = sources.iter().map(|s| s.record.id).collect();
        out.commit(Change { rolled, ..Change::default() }, |_| {})
    }

    /// Makes one segment of several of a table.
    pub(super) fn compact(
        &self,
        table: Table,
        sources: &[Arc<SegmentFile>],
    ) -> Result<(), StoreError> {
        let mut out = self.uncommitted();
        let at = sources.iter().map(|s| s.record.times_ns.1).max().unwrap_or(0);
        let tier = sources.iter().map(|s| s.record.tier).max().unwrap_or(0).saturating_add(1);
        let marks = (sources.iter().all(|s| s.record.rolled), tier);
        match table {
            Table::Interval => {
                out.write(table, marks, at, Merge::<IntervalRow>::new(readers(sources)?))?;
            }
            Table::Flow => out.write(table, marks, at, Merge::<FlowRow>::new(readers(sources)?))?,
            Table::Interval1m | Table::Interval1h | Table::Interval1d => {
                let rows = merge_equal(Merge::<IntervalRow>::new(readers(sources)?));
                out.write(table, marks, at, rows)?;
            }
            Table::Rtt => out.write(table, marks, at, Merge::<RttRow>::new(readers(sources)?))?,
            Table::Rtt1m | Table::Rtt1h | Table::Rtt1d => {
                let rows = merge_equal(Merge::<RttRow>::new(readers(sources)?));
                out.write(table, marks, at, rows)?;
            }
            Table::Interface => {
                out.write(table, marks, at, Merge::<InterfaceRow>::new(readers(sources)?))?;
            }
            Table::Interface5m | Table::Interface1h => {
                let rows = merge_equal(Merge::<InterfaceRow>::new(readers(sources)?));
                out.write(table, marks, at, rows)?;
            }
            Table::Flow5m | Table::Flow1h => {
                let rows = merge_equal(Merge::<FlowSum>::new(readers(sources)?));
                out.write(table, marks, at, rows)?;
            }
        }
        let remove = sources.iter().map(|s| s.record.id).collect();
        out.commit(Change { remove, ..Change::default() }, |_| {})
    }
}

fn readers<R: StoredRow>(
    sources: &[Arc<SegmentFile>],
) -> Result<Vec<SegmentReader<R>>, StoreError> {
    let open = |s: &Arc<SegmentFile>| {
        let r = &s.record;
        SegmentReader::open(s.path(), (r.octets, &r.crcs), r.table, RowRange::ALL, &[])
    };
    sources.iter().map(open).collect()
}

/// A segment for each hour, and one of minutes for each day.
fn write_intervals(out: &mut Uncommitted, mut rows: Vec<&IntervalRow>) -> Result<(), StoreError> {
    let period = |row: &IntervalRow, table: Table| row.start_ns.div_euclid(table.period_ns());
    rows.sort_by_key(|row| (period(row, Table::Interval), row.key()));
    for rows in rows.chunk_by(|a, b| period(a, Table::Interval) == period(b, Table::Interval)) {
        let at = rows[0].start_ns;
        out.write(Table::Interval, (true, 0), at, rows.iter().map(|&row| Ok(row.clone())))?;
    }
    rows.sort_by_key(|row| (period(row, Table::Interval1m), row.key()));
    for rows in rows.chunk_by(|a, b| period(a, Table::Interval1m) == period(b, Table::Interval1m)) {
        let at = rows[0].start_ns;
        let minutes = IntervalRollUp::new(
            rows.iter().map(|&row| Ok(row.clone())),
            Table::Interval1m.step_ns(),
        );
        out.write(Table::Interval1m, (false, 0), at, minutes)?;
    }
    Ok(())
}

/// A segment for each hour, and one of five minutes for each day.
fn write_flows(out: &mut Uncommitted, mut rows: Vec<&FlowRow>) -> Result<(), StoreError> {
    // Keys begin with the time, so hours are together.
    rows.sort_by_key(|row| row.key());
    let period = |ns: i64, table: Table| ns.div_euclid(table.period_ns());
    let hour = |row: &FlowRow| period(row.last_ns, Table::Flow);
    for rows in rows.chunk_by(|a, b| hour(a) == hour(b)) {
        let at = rows[0].last_ns;
        out.write(Table::Flow, (true, 0), at, rows.iter().map(|&row| Ok(row.clone())))?;
    }
    let step = Table::Flow5m.step_ns();
    let sums = roll_up_flows(rows.into_iter().map(|row| row.to_sum(step)), step);
    let day = |sum: &FlowSum| period(sum.start_ns, Table::Flow5m);
    for sums in sums.chunk_by(|a, b| day(a) == day(b)) {
        let at = sums[0].start_ns;
        out.write(Table::Flow5m, (false, 0), at, sums.iter().cloned().map(Ok))?;
    }
    Ok(())
}

/// A segment for each hour, and one of minutes for each day.
fn write_rtt(out: &mut Uncommitted, mut rows: Vec<&RttRow>) -> Result<(), StoreError> {
    let period = |row: &RttRow, table: Table| row.start_ns.div_euclid(table.period_ns());
    for (table, marks) in [(Table::Rtt, (true, 0)), (Table::Rtt1m, (false, 0))] {
        rows.sort_by_cached_key(|row| (period(row, table), row.key()));
        for rows in rows.chunk_by(|a, b| period(a, table) == period(b, table)) {
            let at = rows[0].start_ns;
            let own = rows.iter().map(|&row| Ok(row.clone()));
            match table {
                Table::Rtt => out.write(table, marks, at, own)?,
                _ => out.write(table, marks, at, roll_up_rtt(own, table))?,
            }
        }
    }
    Ok(())
}

/// Rows that ascend, in the windows of a table.
fn roll_up_rtt(
    rows: impl Iterator<Item = Result<RttRow, StoreError>>,
    to: Table,
) -> impl Iterator<Item = Result<RttRow, StoreError>> {
    merge_equal(rows.map(move |row| row.map(|row| row.in_window(to.step_ns()))))
}

/// A segment for each hour, and one of five minutes for each day.
fn write_interfaces(out: &mut Uncommitted, mut rows: Vec<&InterfaceRow>) -> Result<(), StoreError> {
    let period = |row: &InterfaceRow, table: Table| row.start_ns.div_euclid(table.period_ns());
    for (table, marks) in [(Table::Interface, (true, 0)), (Table::Interface5m, (false, 0))] {
        rows.sort_by_key(|row| (period(row, table), row.key()));
        for rows in rows.chunk_by(|a, b| period(a, table) == period(b, table)) {
            let at = rows[0].start_ns;
            let own = rows.iter().map(|&row| Ok(row.clone()));
            match table {
                Table::Interface => out.write(table, marks, at, own)?,
                _ => out.write(table, marks, at, roll_up_interfaces(own, table))?,
            }
        }
    }
    Ok(())
}

/// Rows that ascend, in the windows of a table.
fn roll_up_interfaces(
    rows: impl Iterator<Item = Result<InterfaceRow, StoreError>>,
    to: Table,
) -> impl Iterator<Item = Result<InterfaceRow, StoreError>> {
    merge_equal(rows.map(move |row| row.map(|row| row.in_window(to.step_ns()))))
}

/// Sums of flows that are held in memory: about 200 MB.
const MOST_SUMS: usize = 1_000_000;
