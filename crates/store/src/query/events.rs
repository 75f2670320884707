//! What happened.

use serde::{Deserialize, Serialize};

use super::{Run, TimeRange};
use crate::error::StoreError;
use crate::event::{EventFilter, EventId, StoredEvent};

/// Asks for the events that lasted at some time of a range.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventList {
    /// Of this time.
    pub range: TimeRange,
    /// Only those.
    pub filter: EventFilter,
    /// Only those after this one, by begin and number: how a page follows the one before.
    pub after: Option<EventId>,
    /// At most so many; 0: as many as the limit allows.
    pub most: usize,
}

/// An event and its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    /// Its number.
    pub id: EventId,
    /// What happened.
    pub event: StoredEvent,
}

impl EventList {
    /// By begin, then by number.
    pub(super) fn answer(&self, run: &mut Run) -> Result<Vec<EventRow>, StoreError> {
        let TimeRange { from_ns, to_ns } = self.range;
        run.range = self.range;
        let all = run.source.events(from_ns, to_ns)?;
        run.scanned += all.len() as u64;
        let place = self.after.and_then(|id| all.iter().position(|(other, _)| *other == id));
        let rows = all.into_iter().skip(place.map_or(0, |place| place + 1));
        let rows = rows.filter(|(_, event)| self.filter.matches(event, from_ns, to_ns));
        let most = if self.most == 0 { usize::MAX } else { self.most };
        let rows: Vec<EventRow> =
            rows.take(most).map(|(id, event)| EventRow { id, event }).collect();
        run.check_answer(rows.len())?;
        Ok(rows)
    }
}
