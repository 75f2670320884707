//! What a full disk cost, as events: `disk_full` while it lasts, `rows_given_up` for each table, and
//! `disk_recovered`.

use std::collections::BTreeMap;

use sonde_results::civil_time::plain;

use super::catalogue::{Catalogue, SegmentRecord};
use super::{Shared, lock};
use crate::MINUTE_NS;
use crate::error::StoreError;
use crate::event::{EventId, EventSeverity, StoredEvent};
use crate::table::Table;

/// What is not said yet, and the lack of room that lasts.
#[derive(Debug, Default)]
pub(super) struct RoomLog {
    /// A write failed for want of room since the last maintenance.
    was_full: bool,
    given_up: BTreeMap<Table, GivenUp>,
    lasting: Option<Lasting>,
}

#[derive(Clone, Copy, Debug)]
struct GivenUp {
    rows: u64,
    octets: u64,
    times_ns: (i64, i64),
}

#[derive(Clone, Copy, Debug)]
struct Lasting {
    event: EventId,
    since_ns: i64,
    /// When room was last lacking.
    last_ns: i64,
    /// When it was last said what was given up.
    said_ns: Option<i64>,
}

impl RoomLog {
    /// With the lack of room that lasted when the last process ended.
    pub(super) fn resumed(catalogue: &Catalogue) -> Result<Self, StoreError> {
        let lasting = catalogue.lasting(FULL)?.pop().map(|(event, stored)| Lasting {
            event,
            since_ns: stored.begin_ns,
            last_ns: stored.begin_ns,
            said_ns: None,
        });
        Ok(RoomLog { lasting, ..RoomLog::default() })
    }

    /// A write failed for want of room.
    pub(super) fn meet_full(&mut self) {
        self.was_full = true;
    }

    /// These segments were given up for want of room.
    pub(super) fn give_up(&mut self, records: &[SegmentRecord]) {
        for record in records {
            let all = self.given_up.entry(record.table).or_insert(GivenUp {
                rows: 0,
                octets: 0,
                times_ns: record.times_ns,
            });
            all.rows += record.rows;
            all.octets += record.octets;
            all.times_ns.0 = all.times_ns.0.min(record.times_ns.0);
            all.times_ns.1 = all.times_ns.1.max(record.times_ns.1);
        }
    }
}

impl Shared {
    /// Says what the want of room cost, as far as the catalogue takes it; the rest is said later.
    /// `low`: the disk has less room than is to be kept free.
    pub(super) fn tell_of_room(&self, now_ns: i64, low: bool) {
        let refusing = lock(&self.state).refusing;
        let mut log = std::mem::take(&mut *lock(&self.room));
        // What is not said stays, with what came meanwhile.
        let _ = self.tell(&mut log, now_ns, low, refusing);
        let mut kept = lock(&self.room);
        kept.was_full |= log.was_full;
        kept.lasting = log.lasting;
        for (table, own) in log.given_up {
            let all = kept.given_up.entry(table).or_insert(GivenUp { rows: 0, octets: 0, ..own });
            all.rows += own.rows;
            all.octets += own.octets;
            all.times_ns.0 = all.times_ns.0.min(own.times_ns.0);
            all.times_ns.1 = all.times_ns.1.max(own.times_ns.1);
        }
    }

    fn tell(
        &self,
        log: &mut RoomLog,
        now_ns: i64,
        low: bool,
        refusing: bool,
    ) -> Result<(), StoreError> {
        if log.was_full || refusing || !log.given_up.is_empty() {
            match &mut log.lasting {
                Some(lasting) => lasting.last_ns = now_ns,
                None => {
                    let event = self.event_of(FULL, EventSeverity::Critical, (now_ns, None), &format!(
                        "the disk of the store is full since {}: the oldest rows are given up; free \
                         space there, or lower the retention",
                        plain(now_ns)
                    ), serde_json::json!({ "below_keep_free": low, "refuses_batches": refusing }))?;
                    log.lasting =
                        Some(Lasting { event, since_ns: now_ns, last_ns: now_ns, said_ns: None });
                }
            }
            log.was_full = false;
        }
        let Some(mut lasting) = log.lasting else { return Ok(()) };
        let passed = |since: i64, least: i64| !(0..least).contains(&now_ns.saturating_sub(since));
        let over = !low && !refusing && passed(lasting.last_ns, CALM_NS);
        if over || lasting.said_ns.is_none_or(|said| passed(said, MINUTE_NS)) {
            while let Some((&table, &given_up)) = log.given_up.first_key_value() {
                self.say_given_up(table, given_up)?;
                log.given_up.remove(&table);
                lasting.said_ns = Some(now_ns);
                log.lasting = Some(lasting);
            }
        }
        if over {
            let lasted_s = now_ns.saturating_sub(lasting.since_ns) / 1_000_000_000;
            self.event_of(
                RECOVERED,
                EventSeverity::Info,
                (now_ns, Some(now_ns)),
                &format!(
                    "the disk of the store has room again; it had none since {}",
                    plain(lasting.since_ns)
                ),
                serde_json::json!({ "event": lasting.event.0, "lasted_s": lasted_s }),
            )?;
            lock(&self.catalogue).end_event(lasting.event, now_ns)?;
            log.lasting = None;
        }
        Ok(())
    }

    fn say_given_up(&self, table: Table, given_up: GivenUp) -> Result<(), StoreError> {
        let GivenUp { rows, octets, times_ns: (from, to) } = given_up;
        let title = format!(
            "rows of {} to {} of {} were given up for room on the disk: {rows}",
            plain(from),
            plain(to),
            table.name()
        );
        let evidence = serde_json::json!({
            "table": table.name(), "rows": rows, "octets": octets, "from_ns": from, "to_ns": to,
        });
        let times = (from, Some(to));
        self.event_of(GIVEN_UP, EventSeverity::Warning, times, &title, evidence).map(drop)
    }

    fn event_of(
        &self,
        kind: &str,
        severity: EventSeverity,
        (begin_ns, end_ns): (i64, Option<i64>),
        title: &str,
        evidence: serde_json::Value,
    ) -> Result<EventId, StoreError> {
        lock(&self.catalogue).add_event(&StoredEvent {
            kind: kind.into(),
            severity,
            series: None,
            begin_ns,
            end_ns,
            title: title.into(),
            evidence,
        })
    }
}

const FULL: &str = "disk_full";
const GIVEN_UP: &str = "rows_given_up";
const RECOVERED: &str = "disk_recovered";
/// So long without a failed write, and room is there again.
const CALM_NS: i64 = 10_000_000_000;
