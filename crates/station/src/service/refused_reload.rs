//! A reload that changed nothing: what runs is not what the files say, until one succeeds.

use serde_json::json;
use sonde_results::civil_time;
use sonde_store::{EventSeverity, StoredEvent};

use super::ReloadFailure;

/// The last reload, which failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedReload {
    /// ns since 1970 UTC.
    at_ns: i64,
    why: String,
}

impl RefusedReload {
    pub fn new(at_ns: i64, failure: &ReloadFailure) -> RefusedReload {
        let why = match failure {
            ReloadFailure::Files(errors) => match errors.as_slice() {
                [] => failure.to_string(),
                [one] => one.to_string(),
                [first, more @ ..] => format!("{first} (and {} more errors)", more.len()),
            },
            other => other.to_string(),
        };
        RefusedReload { at_ns, why }
    }

    /// Whether it failed for another reason than `before`.
    pub fn is_news(&self, before: Option<&RefusedReload>) -> bool {
        before.is_none_or(|before| before.why != self.why)
    }

    /// In a sentence, with what to do.
    pub fn problem(&self) -> String {
        let at = civil_time::plain(self.at_ns);
        format!(
            "the reload at {at} changed nothing, so that what runs is not what the files say: {}; \
             mend that ('sonde check-config'), and reload",
            self.why
        )
    }

    pub fn event(&self, station: &str) -> StoredEvent {
        StoredEvent {
            kind: KIND.to_owned(),
            severity: EventSeverity::Warning,
            series: None,
            begin_ns: self.at_ns,
            end_ns: Some(self.at_ns),
            title: format!("{station}: a reload changed nothing: {}", self.why),
            evidence: json!({ "labels": { "station": station }, "text": self.problem() }),
        }
    }
}

/// Of its events.
const KIND: &str = "reload_failed";

#[cfg(test)]
mod tests {
    use sonde_run::error::SettingsError;

    use super::*;

    #[test]
    fn a_reload_that_failed_is_told_with_its_first_error_and_once() {
        let wrong = |key: &str| SettingsError::new(key, "no length");
        let one = RefusedReload::new(0, &ReloadFailure::Files(vec![wrong("limit")]));
        let text = one.problem();
        assert!(
            text.starts_with("the reload at 1970-01-01 00:00:00 UTC changed nothing"),
            "{text}"
        );
        assert!(text.contains("limit: no length; mend that"), "{text}");
        let two = RefusedReload::new(9, &ReloadFailure::Files(vec![wrong("a"), wrong("b")]));
        assert!(two.event("ber").title.ends_with("a: no length (and 1 more errors)"));
        let api = RefusedReload::new(9, &ReloadFailure::Api);
        assert!(api.event("ber").title.contains("restart it"));
        let again = RefusedReload { at_ns: 10, ..one.clone() };
        assert!(one.is_news(None) && two.is_news(Some(&one)) && !again.is_news(Some(&one)));
    }
}
