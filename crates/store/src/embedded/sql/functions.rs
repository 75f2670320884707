//! Functions of histograms for SQL.

use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Result};

use crate::hist_blob::{HistBlob, HistSum};

/// `hmerge(hist)`, an aggregate: all values of several histograms as one. `hq(hist, q)`: the quantile
/// q, 0..=1, ns. `hcount(hist)`: how many values it has. `hrange(hist, low, high)`: how many values lie
/// in buckets whose middle is in [low, high], ns.
pub(super) fn add(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_aggregate_function("hmerge", 1, flags, Merge)?;
    connection.create_scalar_function("hq", 2, flags, |context| {
        let q: f64 = context.get(1)?;
        let sum = hist(context, 0)?;
        Ok(sum.and_then(|sum| sum.quantile(q)))
    })?;
    connection.create_scalar_function("hcount", 1, flags, |context| {
        Ok(hist(context, 0)?.map(|sum| sum.head().count as i64))
    })?;
    connection.create_scalar_function("hrange", 3, flags, |context| {
        let (low, high): (i64, i64) = (context.get(1)?, context.get(2)?);
        let middle = |bucket| {
            let (from, to) = sonde_results::hist::bounds_of(bucket);
            from + (to - from) / 2
        };
        let within = |(bucket, _): &(i16, u64)| (low..=high).contains(&middle(*bucket));
        let count = |sum: HistSum| sum.buckets().filter(within).map(|(_, n)| n as i64).sum::<i64>();
        Ok(hist(context, 0)?.map(count))
    })
}

/// The histogram of an argument. `None`: NULL.
fn hist(context: &Context<'_>, argument: usize) -> Result<Option<HistSum>> {
    let octets = match context.get_raw(argument) {
        ValueRef::Null => return Ok(None),
        ValueRef::Blob(octets) => octets,
        _ => return Err(Error::UserFunctionError("a histogram is a blob".into())),
    };
    let Some(blob) = HistBlob::from_octets(octets) else {
        return Err(Error::UserFunctionError("these octets are no histogram".into()));
    };
    let mut sum = HistSum::default();
    sum.add(&blob);
    Ok(Some(sum))
}

struct Merge;

impl Aggregate<HistSum, Option<Vec<u8>>> for Merge {
    fn init(&self, _: &mut Context<'_>) -> Result<HistSum> {
        Ok(HistSum::default())
    }

    fn step(&self, context: &mut Context<'_>, sum: &mut HistSum) -> Result<()> {
        if let Some(own) = hist(context, 0)? {
            sum.merge(&own);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<HistSum>) -> Result<Option<Vec<u8>>> {
        Ok(sum.map(|sum| sum.to_blob().octets().to_vec()))
    }
}
