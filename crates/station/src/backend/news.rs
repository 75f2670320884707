//! What is new among events and alerts, for those who follow.

use std::collections::BTreeMap;

use sonde_api::alerts::AlertGroup;
use sonde_api::instant::UtcInstant;
use sonde_api::live::{LiveData, LiveTopic};
use sonde_store::query::{EventList, EventRow, TimeRange};
use sonde_store::{Answer, EventId, Query};

use super::StationBackend;
use super::alerts::groups_of;
use super::events::{ACKNOWLEDGED, entry_of};

/// What followers know.
#[derive(Default)]
pub(crate) struct News {
    /// Ends and acknowledgements of events of the last [`LOOK_BACK_NS`]; `None`: nobody looked yet.
    events: Option<BTreeMap<EventId, (Option<i64>, bool)>>,
    /// What the store said of its events at that look.
    changes: Option<u64>,
    groups: BTreeMap<String, AlertGroup>,
}

impl News {
    /// Publishes what has changed since the last look. To be called each second.
    pub fn look(&mut self, backend: &StationBackend, now: UtcInstant) {
        self.look_at_events(backend, now);
        self.look_at_alerts(backend, now);
    }

    /// Events may be told long after they began: losses are located once their side is known.
    fn look_at_events(&mut self, backend: &StationBackend, now: UtcInstant) {
        // The store may have years of events: it is asked where there is something new.
        let changes = backend.core.reader.event_changes();
        if self.events.is_some() && changes.is_some() && changes == self.changes {
            return;
        }
        let range = TimeRange { from_ns: now.ns() - LOOK_BACK_NS, to_ns: i64::MAX };
        let ask = Query::Events(EventList { range, ..EventList::default() });
        // A store that cannot be read now is asked again in a second.
        let Ok(Answer::Events(rows)) = backend.query(&ask).map(|response| response.answer) else {
            return;
        };
        let form =
            |row: &EventRow| (row.event.end_ns, row.event.evidence.get(ACKNOWLEDGED).is_some());
        let known = rows.iter().map(|row| (row.id, form(row))).collect();
        self.changes = changes;
        if let Some(before) = self.events.replace(known) {
            let is_new = |row: &&EventRow| before.get(&row.id) != Some(&form(row));
            let new: Vec<&EventRow> = rows.iter().filter(is_new).collect();
            if new.is_empty() {
                return;
            }
            let labels = backend.labels().unwrap_or_default();
            for row in new {
                let event = Box::new(entry_of(row, &labels));
                backend.core.ring.publish(now, LiveTopic::Events, &LiveData::Event { event });
            }
        }
    }

    fn look_at_alerts(&mut self, backend: &StationBackend, now: UtcInstant) {
        let known = backend.core.station(|s| (s.alerts(), s.judge()));
        let Some((Some(alerts), judge)) = known else { return };
        let groups = groups_of(&alerts, &judge.open);
        let mut before = std::mem::take(&mut self.groups);
        for group in groups {
            if before.remove(&group.id).as_ref() != Some(&group) {
                let data = LiveData::Alert { group: Box::new(group.clone()) };
                backend.core.ring.publish(now, LiveTopic::Alerts, &data);
            }
            self.groups.insert(group.id.clone(), group);
        }
        // Nothing lasts of these any more.
        for gone in before.into_values() {
            let group = AlertGroup { alerts: Vec::new(), truncated: 0, held_back: 0, ..gone };
            let data = LiveData::Alert { group: Box::new(group) };
            backend.core.ring.publish(now, LiveTopic::Alerts, &data);
        }
    }
}

/// How long after its end an event may be told, ns.
const LOOK_BACK_NS: i64 = 900 * 1_000_000_000;
