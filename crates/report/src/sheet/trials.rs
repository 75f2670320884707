//! What the results rest on: caveats, invalid trials, the loss ledger, and every trial.

use std::collections::BTreeMap;

use sonde_results::bench::BenchRun;
use sonde_results::hist::bounds_of;
use sonde_results::trial::Side;
use sonde_results::{Caveat, Trial};

use super::results::listed;
use super::{Cell, Sheet};
use crate::trials::percentile;

/// Every caveat with its advice, and to what it applies.
pub fn caveats(run: &BenchRun) -> Sheet {
    let columns = [("caveat", ""), ("advice", ""), ("applies to", "")];
    let mut sheet = Sheet::new("caveats", "Caveats", "", &columns);
    for caveat in Caveat::ALL {
        let whole = run.caveats.contains(caveat);
        let ids: Vec<&str> = run
            .measurements
            .iter()
            .filter(|m| m.caveats.contains(caveat))
            .map(|m| m.id.as_str())
            .collect();
        let applies = match (whole, ids.len()) {
            (false, 0) => continue,
            (true, _) => "the whole run".to_string(),
            (false, n) if n == run.measurements.len() => "every measurement".to_string(),
            _ => listed(&ids),
        };
        sheet.rows.push(vec![caveat.text().into(), caveat.advice().into(), applies.into()]);
    }
    sheet
}

/// Trials that could not be used, with the reasons.
pub fn invalid(run: &BenchRun) -> Sheet {
    let columns = [("trial", ""), ("measurement", ""), ("purpose", ""), ("try", ""), ("why", "")];
    let bad: Vec<&Trial> = run.trials.iter().filter(|t| !t.valid()).collect();
    let note = format!(
        "{} of {} trials. They were repeated where the plan allowed it and are part of no result.",
        bad.len(),
        run.trials.len()
    );
    let mut sheet = Sheet::new("invalid_trials", "Invalid trials", &note, &columns);
    sheet.rows = bad
        .into_iter()
        .map(|t| {
            let why: Vec<String> = t.invalid.iter().map(|i| i.text()).collect();
            vec![
                Cell::Count(t.number),
                t.measurement.as_str().into(),
                t.purpose.as_str().into(),
                Cell::Count(t.attempt.into()),
                why.join("; ").into(),
            ]
        })
        .collect();
    sheet
}

/// The loss ledger: where frames were dropped in valid trials, all trials together.
pub fn ledger(run: &BenchRun) -> Sheet {
    let columns = [("side", ""), ("place", ""), ("counter", ""), ("frames", ""), ("trials", "")];
    let mut sheet = Sheet::new(
        "loss_ledger",
        "Loss ledger",
        "Counters on the way that moved during valid trials. What the tester's side counts says \
         nothing of the device.",
        &columns,
    );
    let mut sums: BTreeMap<(u8, &str, &str), (u64, u64)> = BTreeMap::new();
    for entry in run.trials.iter().filter(|t| t.valid()).flat_map(|t| &t.ledger) {
        let side = match entry.side {
            Side::Device => 0,
            Side::Shared => 1,
            Side::Tester => 2,
        };
        let sum = sums.entry((side, &entry.place, &entry.counter)).or_default();
        *sum = (sum.0 + entry.frames, sum.1 + 1);
    }
    sheet.rows = sums
        .into_iter()
        .map(|((side, location, counter), (frames, trials))| {
            let side = ["device", "shared", "tester"][usize::from(side)];
            vec![
                side.into(),
                location.into(),
                counter.into(),
                Cell::Count(frames),
                Cell::Count(trials),
            ]
        })
        .collect();
    sheet
}

/// Every trial and direction, invalid ones included.
pub fn all(run: &BenchRun) -> Sheet {
    let columns = [
        ("trial", ""),
        ("measurement", ""),
        ("try", ""),
        ("purpose", ""),
        ("direction", ""),
        ("start", "ns"),
        ("offered", "frames/s"),
        ("intended", "frames"),
        ("sent", "frames"),
        ("received", "frames"),
        ("lost", "frames"),
        ("duplicates", "frames"),
        ("reordered", "frames"),
        ("corrupted", "frames"),
        ("stray", "frames"),
        ("latency min", "ns"),
        ("latency mean", "ns"),
        ("latency p50", "ns"),
        ("latency p99", "ns"),
        ("latency p99.9", "ns"),
        ("latency max", "ns"),
        ("ipdv p99 (RFC 3393)", "ns"),
        ("jitter p99 (RFC 4689)", "ns"),
        ("jitter (RFC 3550)", "ns"),
        ("lateness p99", "ns"),
        ("valid", ""),
        ("why", ""),
    ];
    let mut sheet = Sheet::new("trials", "All trials", "", &columns);
    for trial in &run.trials {
        let why: Vec<String> = trial.invalid.iter().map(|i| i.text()).collect();
        for d in &trial.directions {
            let ns = |v: Option<i64>| Cell::maybe(v.map(|v| v as f64));
            sheet.rows.push(vec![
                Cell::Count(trial.number),
                trial.measurement.as_str().into(),
                Cell::Count(trial.attempt.into()),
                trial.purpose.as_str().into(),
                d.name.as_str().into(),
                // Not a Number: a double has no room for all digits of an instant.
                Cell::Count(trial.start_ns.max(0) as u64),
                Cell::Number(trial.offer.rate_fps),
                Cell::Count(d.intended),
                Cell::Count(d.sent),
                Cell::Count(d.received),
                Cell::Count(d.lost),
                Cell::Count(d.duplicates),
                Cell::Count(d.reordered),
                Cell::Count(d.corrupted),
                Cell::Count(d.stray),
                ns(d.latency.min()),
                Cell::maybe(d.latency.mean()),
                ns(percentile(&d.latency, 0.5)),
                ns(percentile(&d.latency, 0.99)),
                ns(percentile(&d.latency, 0.999)),
                ns(d.latency.max()),
                ns(percentile(&d.ipdv, 0.99)),
                ns(percentile(&d.jitter, 0.99)),
                if d.received > 1 { Cell::Number(d.rfc3550_jitter_ns) } else { Cell::None },
                ns(percentile(&d.lateness, 0.99)),
                if trial.valid() { "yes" } else { "no" }.into(),
                why.join("; ").into(),
            ]);
        }
    }
    sheet
}

/// The latency histograms, a bucket a row.
pub fn latency_buckets(run: &BenchRun) -> Sheet {
    let columns = [
        ("trial", ""),
        ("direction", ""),
        ("at least", "ns"),
        ("at most", "ns"),
        ("count", "frames"),
    ];
    let mut sheet = Sheet::new("latency_histograms", "Latency histograms", "", &columns);
    for trial in &run.trials {
        for d in &trial.directions {
            sheet.rows.extend(d.latency.buckets.iter().map(|&(bucket, count)| {
                let (low, high) = bounds_of(bucket);
                vec![
                    Cell::Count(trial.number),
                    d.name.as_str().into(),
                    Cell::Number(low as f64),
                    Cell::Number(high as f64),
                    Cell::Count(count.into()),
                ]
            }));
        }
    }
    sheet
}
