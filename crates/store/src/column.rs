//! The columns of a row: declared once for the journal, for segments and for other dialects.
//!
//! New columns go to the end of a list, and none is ever taken out or changed: a reader gives those
//! that a file lacks their default.

/// A column of rows `R`.
pub struct Column<R: 'static> {
    /// Its name, in every dialect.
    pub name: &'static str,
    /// Which tables have it. The journal has all.
    pub on: On,
    /// Its values.
    pub kind: Kind<R>,
}

/// Which tables have a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// All.
    Every,
    /// Only those of roll-ups.
    RollUp,
}

/// How a column's values are read, written and packed.
pub enum Kind<R: 'static> {
    /// Keys and times: neighbours lie close to each other.
    Close(fn(&R) -> i64, fn(&mut R, i64)),
    /// An instant, ns since 1970 UTC.
    Instant(fn(&R) -> i64, fn(&mut R, i64)),
    /// An instant of whole microseconds, given in ns since 1970 UTC.
    InstantMicros(fn(&R) -> i64, fn(&mut R, i64)),
    /// Few different values.
    Few(fn(&R) -> i64, fn(&mut R, i64)),
    /// The same, or none.
    Maybe(fn(&R) -> Option<i64>, fn(&mut R, Option<i64>)),
    /// A floating-point number of 32 bits.
    Real(fn(&R) -> f32, fn(&mut R, f32)),
    /// Octets, few different ones.
    Octets(fn(&R) -> &[u8], fn(&mut R, &[u8])),
    /// Text in UTF-8, few different ones.
    Text(fn(&R) -> &str, fn(&mut R, &str)),
    /// An IPv6 address; IPv4 mapped (RFC 4291, section 2.5.5.2).
    Address(fn(&R) -> [u8; 16], fn(&mut R, [u8; 16])),
    /// A histogram. In a segment it is five columns: `_count`, `_min_ns`, `_max_ns`, `_sum_ns` and
    /// `_hist`.
    Hist(fn(&R) -> &crate::HistBlob, fn(&mut R, crate::HistBlob)),
    /// A histogram of which only count, minimum, maximum and sum are kept.
    Summary(fn(&R) -> &crate::HistBlob, fn(&mut R, crate::HistBlob)),
}

/// A row of a table.
pub trait StoredRow: Clone + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// What a table is sorted by. Roll-up rows with equal keys can be merged.
    type Key: Ord + Clone + Send + Sync;

    /// Its columns, in the order of the journal.
    const COLUMNS: &'static [Column<Self>];

    /// What the table is sorted by.
    fn key(&self) -> Self::Key;

    /// The instant that decides which range of time it belongs to, ns since 1970 UTC.
    fn time_ns(&self) -> i64;

    /// The series that it belongs to.
    fn series(&self) -> u32;

    /// One row instead of several with equal keys, whatever their order.
    fn merged(rows: &[Self]) -> Self;
}
