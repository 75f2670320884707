//! Sends lots: for each table and partition one statement that inserts its rows, or nothing where
//! they are there already.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::claim::{confirm, last_lot};
use super::layout::{self, ServerRow, encode, fields, partition_ns, quote, quoted, structure};
use super::spool::{IDENTITY, SERIES_SENT, ServerUpkeep, SpoolShared};
use super::{EVENT_BITS, schema, series_of};
use crate::batch::Rows;
use crate::column::StoredRow;
use crate::embedded::journal::{journal_path, read_journal};
use crate::embedded::open::{JOURNAL, unflushed};
use crate::embedded::{Maintenance, lock};
use crate::error::StoreError;
use crate::event::{EventSeverity, StoredEvent};
use crate::flow::roll_up_flows;
use crate::interface::InterfaceRow;
use crate::rollup::IntervalRollUp;
use crate::rtt::RttRow;
use crate::series::Series;
use crate::table::Table;
use crate::varint;

impl SpoolShared {
    /// Sends what waits, oldest first.
    pub(super) fn ship(
        &self,
        upkeep: &mut ServerUpkeep,
        done: &mut Maintenance,
    ) -> Result<(), StoreError> {
        // One lock at a time: others take the catalogue first.
        let nothing = lock(&self.state).sealed.is_empty();
        let idle = nothing && lock(&self.catalogue).changed_events(1)?.is_empty();
        if !idle && !upkeep.prepared {
            schema::prepare(&self.client)?;
            let identity = lock(&self.catalogue).number(IDENTITY)?.unwrap_or(0);
            let name = &self.options.station;
            if confirm(&self.client, self.station, name, identity)? {
                // Another database: it has no labels.
                self.ship_series(0)?;
            } else if last_lot(&self.client, self.station)? > self.made_before {
                let claim = format!("{}.station_{}", self.client.database(), self.station);
                return Err(StoreError::SpoolRestored { path: self.folder.clone(), claim });
            }
            upkeep.prepared = true;
        }
        if upkeep.prepared {
            // Labels first: rows refer to them.
            let sent = lock(&self.catalogue).number(SERIES_SENT)?.unwrap_or(0);
            self.ship_series(sent)?;
            self.ship_events()?;
        }
        loop {
            let Some(&(lot, _)) = lock(&self.state).sealed.front() else { return Ok(()) };
            done.flushed_rows += self.ship_lot(lot)?;
        }
    }

    /// Sends labels but for the first `sent`.
    fn ship_series(&self, sent: u64) -> Result<(), StoreError> {
        let series = lock(&self.state).series.clone();
        let fresh: Vec<&Series> = series.iter().skip(sent as usize).collect();
        for some in fresh.chunks(10_000) {
            let mut rows = Vec::new();
            for Series { id, labels } in some {
                rows.extend(id.0.to_le_bytes());
                varint::put_bytes(
                    &mut rows,
                    serde_json::to_string(labels).unwrap_or_default().as_bytes(),
                );
            }
            // Sent twice, they are the same.
            let statement = format!(
                "INSERT INTO {}.series (id, labels) SELECT id, labels FROM lot_rows",
                self.client.database()
            );
            let id = format!("{}-series-{}", self.statement_name(), some[0].id.0);
            self.client.insert(&statement, "id UInt32, labels String", &rows, &id)?;
            let first = *series_of(self.station).start();
            let upto = some.last().map_or(0, |s| s.id.0 - first + 1);
            lock(&self.catalogue).set_numbers(&[(SERIES_SENT, upto.into())])?;
        }
        Ok(())
    }

    fn ship_events(&self) -> Result<(), StoreError> {
        loop {
            let changed = lock(&self.catalogue).changed_events(1_000)?;
            let Some((first, ..)) = changed.first() else { return Ok(()) };
            let mut rows = Vec::new();
            for (change, id, event) in &changed {
                rows.extend(self.everywhere(*id).0.to_le_bytes());
                let mut text = |text: &str| varint::put_bytes(&mut rows, text.as_bytes());
                text(&event.kind);
                text(event.severity.name());
                rows.extend(event.series.map_or(-1, |s| i64::from(s.0)).to_le_bytes());
                rows.extend(event.begin_ns.to_le_bytes());
                rows.extend(event.end_ns.unwrap_or(LASTS).to_le_bytes());
                let mut text = |text: &str| varint::put_bytes(&mut rows, text.as_bytes());
                text(&event.title);
                text(&event.evidence.to_string());
                rows.extend(change.to_le_bytes());
            }
            // Sent twice, they are the same; the last change of each counts.
            let names = "id, kind, severity, series, begin_ns, end_ns, title, evidence, change";
            let statement = format!(
                "INSERT INTO {}.event ({names}) SELECT {names} FROM lot_rows",
                self.client.database()
            );
            let id = format!("{}-event-{first}", self.statement_name());
            self.client.insert(&statement, EVENT, &rows, &id)?;
            let changes: Vec<u64> = changed.iter().map(|(change, ..)| *change).collect();
            lock(&self.catalogue).sent_events(&changes)?;
        }
    }

    /// Looks every ten seconds whether other stations have other events than before: readers do not
    /// ask for all of them each second.
    pub(super) fn look_at_events(
        &self,
        upkeep: &mut ServerUpkeep,
        now_ns: i64,
    ) -> Result<(), StoreError> {
        let known = upkeep.other_events;
        let recent = known.is_some_and(|(at, _)| (0..LOOK_NS).contains(&now_ns.saturating_sub(at)));
        if !upkeep.prepared || recent {
            return Ok(());
        }
        let question = format!(
            "SELECT count(), sum(change) FROM {}.event WHERE intDiv(id, {}) != {} FORMAT RowBinary",
            self.client.database(),
            1u64 << EVENT_BITS,
            self.station
        );
        let found = schema::rows(&self.client, &question, |from| Ok((from.u64()?, from.u64()?)))?;
        let found = found.first().copied().unwrap_or_default();
        if known.is_none_or(|(_, before)| before != found) {
            self.other_events.fetch_add(1, Ordering::Relaxed);
        }
        upkeep.other_events = Some((now_ns, found));
        Ok(())
    }

    /// What names of statements begin with: one of a name runs at a time.
    fn statement_name(&self) -> String {
        format!("sonde-{}-{}", self.client.database(), self.station)
    }

    /// Sends a lot; how many rows it has.
    fn ship_lot(&self, lot: u64) -> Result<u64, StoreError> {
        let file = read_journal(&journal_path(&self.folder.join(JOURNAL), lot))?;
        let damaged = file.damaged;
        // What was sent with an earlier lot is not sent with this one.
        let (flushed, sent) = lock(&self.catalogue).sent()?;
        let mut last: HashMap<Arc<str>, u64> =
            sent.into_iter().map(|(name, last)| (name.into(), last)).collect();
        let batches = unflushed(vec![file], flushed, &mut last);
        let (mut intervals, mut flows) = (Vec::new(), Vec::new());
        let (mut rtt, mut interfaces) = (Vec::<RttRow>::new(), Vec::<InterfaceRow>::new());
        for (_, batch) in &batches {
            match &*batch.rows {
                Rows::Intervals(rows) => intervals.extend(rows.iter().cloned()),
                Rows::Flows(rows) => flows.extend(rows.iter().cloned()),
                Rows::Rtt(rows) => rtt.extend(rows.iter().cloned()),
                Rows::Interfaces(rows) => interfaces.extend(rows.iter().cloned()),
            }
        }
        let rows = intervals.len() + flows.len() + rtt.len() + interfaces.len();
        self.insert(lot, Table::Interval, &intervals)?;
        let mut finer = intervals;
        for table in [Table::Interval1m, Table::Interval1h, Table::Interval1d] {
            finer.sort_by_key(StoredRow::key);
            let rows = finer.into_iter().map(Ok::<_, Infallible>);
            finer = IntervalRollUp::new(rows, table.step_ns()).filter_map(Result::ok).collect();
            self.insert(lot, table, &finer)?;
        }
        self.insert(lot, Table::Flow, &flows)?;
        let minutes = Table::Flow5m.step_ns();
        let mut finer = roll_up_flows(flows.iter().map(|f| f.to_sum(minutes)), minutes);
        self.insert(lot, Table::Flow5m, &finer)?;
        finer = roll_up_flows(finer, Table::Flow1h.step_ns());
        self.insert(lot, Table::Flow1h, &finer)?;
        self.insert(lot, Table::Rtt, &rtt)?;
        let mut finer = rtt;
        for table in [Table::Rtt1m, Table::Rtt1h, Table::Rtt1d] {
            finer = in_windows(finer, |row| row.in_window(table.step_ns()));
            self.insert(lot, table, &finer)?;
        }
        self.insert(lot, Table::Interface, &interfaces)?;
        let mut finer = interfaces;
        for table in [Table::Interface5m, Table::Interface1h] {
            finer = in_windows(finer, |row| row.in_window(table.step_ns()));
            self.insert(lot, table, &finer)?;
        }
        let flushed = batches.iter().map(|(number, _)| *number).max();
        let writers = last.into_iter().map(|(name, last)| (name.to_string(), last)).collect();
        self.sent(lot, flushed, writers, (damaged > 0).then(|| damage(lot, damaged)))?;
        Ok(rows as u64)
    }

    /// Inserts the rows of a lot into a table.
    fn insert<R: ServerRow>(&self, lot: u64, table: Table, rows: &[R]) -> Result<(), StoreError> {
        let period = |row: &&R| row.time_ns().div_euclid(partition_ns(table));
        let mut rows: Vec<&R> = rows.iter().collect();
        rows.sort_by_cached_key(|row| (period(row), row.key()));
        let fields = fields::<R>(table);
        for rows in rows.chunk_by(|a, b| period(a) == period(b)) {
            let mut octets = Vec::new();
            rows.iter().for_each(|row| encode(&fields, *row, &mut octets));
            let times = rows.iter().map(|row| row.time_ns());
            let times = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
            let statement = self.statement(lot, table, &fields, times);
            let id =
                format!("{}-{}-{}-{lot}", self.statement_name(), table.name(), period(&rows[0]));
            self.client.insert(&statement, &structure::<R>(table), &octets, &id)?;
        }
        Ok(())
    }

    fn statement<R: ServerRow>(
        &self,
        lot: u64,
        table: Table,
        fields: &[layout::ServerField<R>],
        (first_ns, last_ns): (i64, i64),
    ) -> String {
        let name = format!("{}.{}", self.client.database(), table.name());
        let stored = || fields.iter().flat_map(|f| &f.stored);
        let into: Vec<String> = stored().map(|c| quote(&c.name)).collect();
        let from: Vec<&str> = stored().map(|c| c.from.as_str()).collect();
        let (time, own) = (quote(R::TIME), series_of(self.station));
        // Lots go in order: a greater one says that this one is there, too. The bounds leave most
        // parts out.
        let where_ = format!(
            "{time} BETWEEN {first_ns} AND {last_ns} AND {} BETWEEN {} AND {}",
            quote(R::SERIES),
            own.start(),
            own.end()
        );
        let (lot_of, there, group) = match table.is_raw() {
            true => (
                format!("toUInt64({lot})"),
                format!("SELECT count() FROM {name} WHERE {where_} AND lot >= {lot}"),
                String::new(),
            ),
            false => (
                format!("maxState(toUInt64({lot}))"),
                format!(
                    "SELECT count() FROM (SELECT maxMerge(lot) AS last FROM {name} WHERE {where_} \
                     GROUP BY {time}) WHERE last >= {lot}"
                ),
                format!(" GROUP BY {}", quoted(R::KEYS)),
            ),
        };
        format!(
            "INSERT INTO {name} ({}, lot) SELECT {}, {lot_of} FROM lot_rows WHERE ({there}) = 0{group}",
            into.join(", "),
            from.join(", ")
        )
    }
}

/// Rows in windows of a table, one for each.
fn in_windows<R: StoredRow>(rows: Vec<R>, in_window: impl FnMut(R) -> R) -> Vec<R> {
    let mut rows: Vec<R> = rows.into_iter().map(in_window).collect();
    rows.sort_by_cached_key(StoredRow::key);
    // One row, too: at the full rate it does not say of how many intervals a caveat is true.
    rows.chunk_by(|a, b| a.key() == b.key()).map(StoredRow::merged).collect()
}

fn damage(lot: u64, octets: u64) -> StoredEvent {
    StoredEvent {
        kind: "journal_damaged".into(),
        severity: EventSeverity::Critical,
        series: None,
        begin_ns: 0,
        end_ns: Some(0),
        title: format!("{octets} octets of the spool were damaged"),
        evidence: serde_json::json!({ "lot": lot, "octets": octets }),
    }
}

/// Between two looks at the events of other stations, ns.
const LOOK_NS: i64 = 10_000_000_000;
/// The end of an event that lasts.
pub(super) const LASTS: i64 = i64::MAX;
const EVENT: &str = "id UInt64, kind String, severity String, series Int64, begin_ns Int64, \
    end_ns Int64, title String, evidence String, change UInt64";
