//! The store: what stations measured, kept for years, asked by typed queries.
//!
//! One interface, [`StoreBackend`] with [`Writer`] and [`Reader`], and behind it two stores: ClickHouse
//! ([`ClickHouseStore`]), and the embedded one ([`Store`]): immutable Parquet segments, a journal in
//! front of them, a catalogue in SQLite. Rows go to the journal and
//! are acknowledged once they are on the disk; every while they are sorted into segments, and the
//! catalogue's transaction is the only commit. Roll-ups are sums with mergeable histograms, so a
//! percentile over any range is that of all samples.
//!
//! Time is an argument, ns since 1970 UTC; so is the room on the disk. What is due, what is rolled
//! up and what expires are pure functions ([`rollup`], [`retention`]).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batch;
pub mod clickhouse;
pub mod column;
pub mod embedded;
mod error;
pub mod event;
pub mod flow;
mod hist_blob;
pub mod interface;
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

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use batch::{Batch, Rows, Ticket};
pub use clickhouse::{
    ClickHouseOptions, ClickHouseReader, ClickHouseServer, ClickHouseStore, ClickHouseWriter,
};
pub use embedded::{
    EmbeddedReader, EmbeddedWriter, SqlColumnInfo, SqlTable, SqlTableInfo, SqlValue, Store,
    StoreOptions,
};
pub use error::StoreError;
pub use event::{EventFilter, EventId, EventSeverity, StoredEvent};
pub use flow::{FlowRow, FlowSum};
pub use hist_blob::{HIST_BLOB_VERSION, HistBlob, HistHead, HistSum};
pub use interface::{InterfaceRow, InterfaceSide};
pub use interval::{IntervalRow, IntervalSum};
pub use query::{Answer, Limit, Query, Response, TimeRange};
pub use retention::{KeepTable, Retention};
pub use rtt::{RttRow, RttSum};
pub use series::{Series, SeriesFilter, SeriesId, SeriesLabels};
pub use table::Table;

use embedded::export::{export_parquet, export_text};
use embedded::{Export, ExportText, Exported, Maintenance};
use query::Source;

/// A store that this process writes.
pub trait StoreBackend: Send + Sync {
    /// The numbers of the series with these labels, in their order. Those that are not registered yet
    /// are, all of them or none.
    ///
    /// # Errors
    /// They cannot be kept.
    fn register_all(&self, labels: &[SeriesLabels]) -> Result<Vec<SeriesId>, StoreError>;

    /// The number of the last durable batch of `writer`; 0: there is none. What it writes next has a
    /// greater one.
    fn last_batch(&self, writer: &str) -> u64;

    /// The one writer. Once it is dropped, another one can be had.
    ///
    /// # Errors
    /// There is one.
    fn writer(&self) -> Result<Box<dyn Writer>, StoreError>;

    /// A reader; any number of them.
    fn reader(&self) -> Arc<dyn Reader>;

    /// Keeps an event, for certain once this returns.
    ///
    /// # Errors
    /// It cannot be kept.
    fn add_event(&self, event: &StoredEvent) -> Result<EventId, StoreError>;

    /// Says when an event of this station ended, ns since 1970 UTC. `false`: there is none of that
    /// number.
    ///
    /// # Errors
    /// It cannot be kept.
    fn end_event(&self, id: EventId, end_ns: i64) -> Result<bool, StoreError>;

    /// The event of that number; `None`: this station kept none of that number.
    ///
    /// # Errors
    /// It cannot be read.
    fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError>;

    /// Sets a field of the evidence of an event of this station, for certain once this returns; `None`
    /// takes it out. The event as it is then; `None`: this station kept none of that number.
    ///
    /// # Errors
    /// It cannot be kept.
    fn note_event(
        &self,
        id: EventId,
        field: &str,
        value: Option<serde_json::Value>,
    ) -> Result<Option<StoredEvent>, StoreError>;

    /// What keeps the rows: "embedded", "clickhouse".
    fn kind(&self) -> &'static str;

    /// So long after a batch is durable readers see it, at most, ns. While a server is away, they see it
    /// later, and rows cannot be asked.
    fn seen_after_ns(&self) -> i64;

    /// Octets that are on this host until a server takes them.
    fn spool_octets(&self) -> u64;

    /// Keeps what `retention` says, from the next maintenance on.
    fn set_retention(&self, retention: Retention);

    /// Does what is due at `now_ns` (ns since 1970 UTC). `free_octets` is the room on the disk;
    /// `None`: not known. To be called every second or so.
    ///
    /// # Errors
    /// What was done stays done, and nothing is lost.
    fn maintain(&self, now_ns: i64, free_octets: Option<u64>) -> Result<Maintenance, StoreError>;

    /// Brings all that is durable to where it stays: segments, or tables of ClickHouse.
    ///
    /// # Errors
    /// As those of [`StoreBackend::maintain`].
    fn flush(&self) -> Result<Maintenance, StoreError>;
}

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

    /// Answers one SELECT in the backend's own dialect: of the embedded store, over series, segments,
    /// events and roll-ups, of those the rows of `range`; of ClickHouse, over all, whatever the range.
    /// It can change nothing.
    fn sql(&self, text: &str, range: TimeRange, limit: &Limit) -> Result<SqlTable, StoreError>;

    /// What [`Reader::sql`] can ask.
    fn sql_tables(&self) -> Vec<SqlTableInfo>;

    /// All series, by number.
    ///
    /// # Errors
    /// They cannot be read.
    fn series(&self) -> Result<Vec<Series>, StoreError>;

    /// A number that is another one when events were added or changed since, in the process that
    /// writes; elsewhere `None`: it is not known. Of what other stations keep in the same ClickHouse
    /// it says so within seconds.
    fn event_changes(&self) -> Option<u64>;

    /// Segments that this reader met and that are damaged, by their paths in the store. Of a reader
    /// in the process that writes none: it sets them aside, with an event.
    fn damaged(&self) -> Vec<String> {
        Vec::new()
    }

    /// Lets `ask` read rows of one instant, again where segments went away while they were read. What
    /// it gave, and how many segments could not be read to their end: the next one follows.
    ///
    /// # Errors
    /// Those of `ask`; the store cannot be read.
    fn ask_source(
        &self,
        limit: &Limit,
        ask: &dyn Fn(&dyn Source) -> Result<u64, StoreError>,
    ) -> Result<(u64, u64), StoreError>;

    /// Writes rows as text. `open` gives where to; it is called again, to begin anew, where segments
    /// went away while they were read.
    ///
    /// # Errors
    /// The store cannot be read; `open` or writing failed; a limit of rows or time.
    fn export_text(
        &self,
        export: &Export,
        format: ExportText,
        limit: &Limit,
        open: &mut dyn FnMut() -> io::Result<Box<dyn io::Write>>,
    ) -> Result<Exported, StoreError> {
        export_text(&|ask| self.ask_source(limit, ask), export, format, limit, open)
    }

    /// Writes rows as a Parquet file with the columns of segments, in no order. No file: no rows.
    ///
    /// # Errors
    /// As [`Reader::export_text`].
    fn export_parquet(
        &self,
        export: &Export,
        limit: &Limit,
        path: &Path,
    ) -> Result<Exported, StoreError> {
        export_parquet(&|ask| self.ask_source(limit, ask), export, limit, path)
    }
}

/// A minute, ns.
pub const MINUTE_NS: i64 = 60_000_000_000;
/// An hour, ns.
pub const HOUR_NS: i64 = 60 * MINUTE_NS;
/// A day, ns.
pub const DAY_NS: i64 = 24 * HOUR_NS;
