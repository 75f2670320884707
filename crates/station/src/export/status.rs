//! How exporters do, for people and programs.

use super::settings::ExportKind;

/// How an exporter does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExporterStatus {
    /// Its name in the configuration.
    pub name: String,
    /// What it exports.
    pub kind: ExportKind,
    /// Requests that wait.
    pub waiting: usize,
    /// Octets of them.
    pub waiting_octets: usize,
    /// Samples, data points or lines that the receiver has taken.
    pub delivered: u64,
    /// When it last took some, ns since 1970 UTC.
    pub delivered_ns: Option<i64>,
    /// Points that it refused for good.
    pub refused: u64,
    /// Points that found no room while it was away.
    pub dropped: u64,
    /// Tries that failed.
    pub failures: u64,
    /// Since when it takes nothing, ns since 1970 UTC; `None`: the last try went well.
    pub failing_since_ns: Option<i64>,
    /// What was wrong last, without secrets.
    pub last_error: Option<String>,
}

impl ExporterStatus {
    /// Of one that has done nothing yet.
    pub fn new(name: &str, kind: ExportKind) -> ExporterStatus {
        ExporterStatus {
            name: name.to_owned(),
            kind,
            waiting: 0,
            waiting_octets: 0,
            delivered: 0,
            delivered_ns: None,
            refused: 0,
            dropped: 0,
            failures: 0,
            failing_since_ns: None,
            last_error: None,
        }
    }
}
