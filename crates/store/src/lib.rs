//! The store: what stations measured, kept for years, asked by typed queries.
//!
//! One interface, [`Writer`] and [`Reader`], and behind it the embedded store ([`Store`]): immutable
//! Parquet segments, a journal in front of them, a catalogue in SQLite. Rows go to the journal and
//! are acknowledged once they are on the disk; every while they are sorted into segments, and the
//! catalogue's transaction is the only commit. Roll-ups are sums with mergeable histograms, so a
//! percentile over any range is that of all samples.
//!
//! Time is an argument, ns since 1970 UTC; so is the room on the disk. What is due, what is rolled
//! up and what expires are pure functions ([`rollup`], [`retention`]).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batch;
pub mod column;
pub mod embedded;
mod error;
pub mod event;
pub mod flow;
mod hist_blob;
pub mod interval;
pub mod query;
pub mod retention;
pub mod rollup;
pub mod rtt;
pub mod series;
mod table;
#[cfg(test)]
mod testing;
mod varint;

pub use batch::{Batch, Rows, Ticket};
pub use embedded::{
    EmbeddedReader, EmbeddedWriter, SqlColumnInfo, SqlTable, SqlTableInfo, SqlValue, Store,
    StoreOptions, sql_tables,
};
pub use error::StoreError;
pub use event::{EventFilter, EventId, EventSeverity, StoredEvent};
pub use flow::{FlowRow, FlowSum};
pub use hist_blob::{HIST_BLOB_VERSION, HistBlob, HistHead, HistSum};
pub use interval::{IntervalRow, IntervalSum};
pub use query::{Answer, Limit, Query, Response, TimeRange};
pub use retention::{KeepTable, Retention};
pub use rtt::{RttRow, RttSum};
pub use series::{Series, SeriesFilter, SeriesId, SeriesLabels};
pub use table::Table;

/// Takes batches. One for each store.
pub trait Writer: Send {
    /// Takes a batch. It is kept for certain once its ticket is returned by
    /// [`Writer::poll_durable`]; until then, and after an error, the caller keeps it.
    fn append(&mut self, batch: &Batch) -> Result<Ticket, StoreError>;

    /// Makes durable what was taken. To be called every 200 ms or so while there is something.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// The next batch that is durable, in the order in which they were taken.
    fn poll_durable(&mut self) -> Option<Ticket>;
}

/// Answers queries. Any number of them.
pub trait Reader: Send + Sync {
    /// Answers a query from all that is durable.
    fn query(&self, query: &Query, limit: &Limit) -> Result<Response, StoreError>;

    /// Answers one SELECT in the backend's own dialect, over series, segments, events and roll-ups; of
    /// roll-ups the rows of `range`. It can change nothing.
    fn sql(&self, text: &str, range: TimeRange, limit: &Limit) -> Result<SqlTable, StoreError>;
}

/// A minute, ns.
pub const MINUTE_NS: i64 = 60_000_000_000;
/// An hour, ns.
pub const HOUR_NS: i64 = 60 * MINUTE_NS;
/// A day, ns.
pub const DAY_NS: i64 = 24 * HOUR_NS;
