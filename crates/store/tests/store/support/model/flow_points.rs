//! Flows over time, octet by octet.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sonde_store::FlowRow;
use sonde_store::query::*;

use super::{flow_value, ids, selected};
use crate::support::script::Script;

const FIVE_MINUTES: i64 = 300_000_000_000;

pub fn flow_points(script: &Script, q: &FlowPoints) -> FlowPointTable {
    let hosts = [FlowDimension::Source, FlowDimension::Destination];
    let named = q.by.iter().chain(q.only.iter().map(|(dimension, _)| dimension));
    let fits = |ns: i64| ns % FIVE_MINUTES == 0;
    let rolled = fits(q.step_ns) && fits(q.range.from_ns) && fits(q.range.to_ns);
    let is_spread = !rolled || named.clone().any(|d| hosts.contains(d));

    let starts_ns: Vec<i64> = (0..)
        .map(|n| q.range.from_ns + n * q.step_ns)
        .take_while(|start| *start < q.range.to_ns)
        .collect();
    let window_of = |at: i64| {
        let inside = (q.range.from_ns..q.range.to_ns).contains(&at);
        inside.then(|| ((at - q.range.from_ns) / q.step_ns) as usize)
    };
    let empty = |values| {
        let zeros = vec![0; starts_ns.len()];
        FlowPointRow {
            values,
            records: zeros.clone(),
            flows: zeros.clone(),
            packets: zeros.clone(),
            bytes: zeros,
        }
    };
    let of = ids(&selected(script, &q.filter));
    let asked = |row: &&FlowRow| {
        of.contains(&row.exporter) && q.only.iter().all(|(d, v)| flow_value(row, *d) == *v)
    };
    let mut groups: BTreeMap<Vec<String>, FlowPointRow> = BTreeMap::new();
    for flow in script.flows.iter().filter(asked) {
        let values: Vec<String> = q.by.iter().map(|&d| flow_value(flow, d)).collect();
        let row = groups.entry(values.clone()).or_insert_with(|| empty(values));
        let (first, last) = (if is_spread { flow.first_ns() } else { flow.last_ns }, flow.last_ns);
        for (window, start) in starts_ns.iter().enumerate() {
            let end = (start + q.step_ns).min(q.range.to_ns);
            row.records[window] += u64::from(first < end && last >= *start);
        }
        if let Some(window) = window_of(last) {
            row.flows[window] += 1;
        }
        // Each goes when its share of the time is over.
        let each = |all: u64, sums: &mut Vec<u64>| {
            for k in 1..=i128::from(all) {
                let share = k * i128::from(last - first);
                let after = (share + i128::from(all) - 1) / i128::from(all);
                let at = if first == last { last } else { first + after as i64 - 1 };
                if let Some(window) = window_of(at) {
                    sums[window] += 1;
                }
            }
        };
        each(flow.forward.packets + flow.reverse.packets, &mut row.packets);
        each(flow.forward.bytes + flow.reverse.bytes, &mut row.bytes);
    }
    let size = |row: &FlowPointRow| {
        let windows = match q.measure {
            FlowMeasure::Bytes => &row.bytes,
            FlowMeasure::Packets => &row.packets,
            FlowMeasure::Flows => &row.flows,
        };
        let total: u64 = windows.iter().sum();
        let first = match q.rank {
            FlowPointRank::Mean => total,
            FlowPointRank::Max => windows.iter().copied().max().unwrap_or(0),
            FlowPointRank::Last => windows.last().copied().unwrap_or(0),
        };
        (first, total)
    };
    // Of a group none of whose flows is in the time there is no row.
    let has_some = |row: &FlowPointRow| row.records.iter().any(|n| *n > 0);
    let mut rows: Vec<FlowPointRow> = groups.into_values().filter(has_some).collect();
    rows.sort_by_key(|row| (Reverse(size(row)), row.values.clone()));
    let mut other = empty(vec![]);
    for row in rows.split_off(q.most.min(rows.len())) {
        for (sums, more) in [
            (&mut other.records, row.records),
            (&mut other.flows, row.flows),
            (&mut other.packets, row.packets),
            (&mut other.bytes, row.bytes),
        ] {
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }
    FlowPointTable { starts_ns, rows, other }
}
