//! What explains an event: as it was kept with it, else from what the store has.

use sonde_api::events::EventExplanation;
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_store::query::TimeRange;

use super::{StationBackend, of_store};
use crate::explain::ExplainError;
use crate::explain::kept::KeptExplanation;
use crate::explain::thread::{FIELD, explain_now};
use crate::service::query_end;

impl StationBackend {
    pub(super) fn explanation(&self, id: &str) -> Result<EventExplanation, ProblemDetails> {
        let missing = || ProblemDetails::not_found("event", id);
        let number: u64 = id.parse().map_err(|_| missing())?;
        let rows = self.event_rows(TimeRange { from_ns: i64::MIN, to_ns: i64::MAX })?;
        let event = rows.into_iter().find(|row| row.id.0 == number).ok_or_else(missing)?.event;
        let kept = event.evidence.get(FIELD).cloned();
        // One that an older version kept is made anew.
        let kept: Option<KeptExplanation> = kept.and_then(|kept| serde_json::from_value(kept).ok());
        if let Some(kept) = kept {
            return Ok(kept.to_api(id));
        }
        let stop = self.core.deadlines.begin(query_end());
        let found = explain_now(
            &*self.core.reader,
            (&self.core.name, &self.core.paths.get()),
            &event,
            stop,
        );
        found.map(|found| found.to_api(id)).map_err(|error| match error {
            ExplainError::Store(error) => of_store(&error),
            error => ProblemDetails::new(ProblemKind::Unprocessable, error.to_string()),
        })
    }
}
