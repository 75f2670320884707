//! What a station has kept, read from its store once it has ended.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use sonde_results::Counters;
use sonde_store::query::Scan;
use sonde_store::{EmbeddedReader, Limit, Reader as _, Store, StoreOptions, Table};

/// Interval records at the full rate.
#[derive(Default)]
pub struct StoredIntervals {
    pub records: u64,
    /// Of all of them together.
    pub counters: Counters,
    /// By the second in which they begin, since 1970 UTC.
    pub by_second: BTreeMap<i64, Counters>,
    /// The begin of the first of each series, ns since 1970 UTC, by target.
    pub first_ns: BTreeMap<String, i64>,
}

/// Reads them from `from_ns` to `to_ns`.
pub fn intervals(folder: &Path, (from_ns, to_ns): (i64, i64)) -> Result<StoredIntervals> {
    let reader = EmbeddedReader::open(folder, None)?;
    let targets: BTreeMap<u32, String> =
        reader.series()?.into_iter().map(|series| (series.id.0, series.labels.target)).collect();
    let found = std::cell::RefCell::new(StoredIntervals::default());
    let columns =
        &["series", "start", "length_ns", "sent", "received", "lost", "sent_late", "skipped"];
    let scan = Scan { from_ns, to_ns, series: None, columns };
    let limit = Limit { scanned_rows: u64::MAX, ..Limit::default() };
    reader.ask_source(&limit, &|source| {
        let mut all = found.borrow_mut();
        *all = StoredIntervals::default();
        source.intervals(Table::Interval, &scan, &mut |row| {
            if !scan.holds(row) {
                return Ok(());
            }
            let counters = Counters {
                sent: row.sent,
                received: row.received,
                lost: row.lost,
                sent_late: row.sent_late,
                skipped: row.skipped,
                ..Counters::default()
            };
            all.records += 1;
            all.counters.merge(&counters);
            all.by_second.entry(row.start_ns / 1_000_000_000).or_default().merge(&counters);
            if let Some(target) = targets.get(&row.series.0) {
                let first = all.first_ns.entry(target.clone()).or_insert(row.start_ns);
                *first = row.start_ns.min(*first);
            }
            Ok(())
        })?;
        Ok(all.records)
    })?;
    Ok(found.into_inner())
}

/// Rows and octets of each table, by name.
pub fn sizes(folder: &Path) -> Result<BTreeMap<&'static str, (u64, u64)>> {
    let store = Store::open(folder, StoreOptions::default())?;
    store.flush()?;
    Ok(store.state().iter().map(|t| (t.table.name(), (t.rows, t.octets))).collect())
}
