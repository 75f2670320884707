//! The answer first: of every case what it was measured for.

use sonde_results::bench::BenchRun;

use super::{CASE_COLUMNS, Cell, Sheet, case_cells};
use crate::group::{CaseGroup, groups};
use crate::quantity::quantity_title;

/// A row for each case and load: the most important quantity, the loss, and the delays.
pub fn sheet(run: &BenchRun) -> Sheet {
    let columns = [
        ("at", ""),
        ("result", ""),
        ("value", ""),
        ("low", ""),
        ("high", ""),
        ("loss", "ratio"),
        ("latency p50", "ns"),
        ("latency p99", "ns"),
        ("limit", ""),
    ];
    let note =
        "Medians over the repetitions. Limit: where it says tester, the device may do better.";
    let mut sheet =
        Sheet::new("key_results", "Key results", note, &[&CASE_COLUMNS[..], &columns].concat());
    for group in groups(run) {
        if group.names().is_empty() {
            let mut row = case_cells(&group.case);
            row.extend(["".into(), "nothing was found".into()]);
            row.resize(sheet.columns.len() - 1, Cell::None);
            row.push("".into());
            sheet.rows.push(row);
        }
        for label in labels(&group) {
            let Some(row) = row(&group, label, run.config.seed) else { continue };
            sheet.rows.push(row);
        }
    }
    sheet.keeping(&["procedure", "device", "frame", "result", "value"])
}

/// What stands behind the `@` of the quantities that are of a load, a step or a goal; empty for
/// those that stand alone. Directions and classes are in the tables below.
fn labels<'g>(group: &'g CaseGroup<'_>) -> Vec<&'g str> {
    let mut labels: Vec<&str> = Vec::new();
    for name in group.names() {
        let label = name.split_once('@').map_or("", |(_, at)| at);
        let apart = label.contains('>') || ["upper_bound", "multicast", "unicast"].contains(&label);
        if !apart && !labels.contains(&label) {
            labels.push(label);
        }
    }
    // Where the loads have rows of their own, what was searched before them is no result.
    let first = group.names().first().map(|name| name.contains('@'));
    if first == Some(true) {
        labels.retain(|label| !label.is_empty());
    }
    labels
}

fn row(group: &CaseGroup<'_>, label: &str, seed: u64) -> Option<Vec<Cell>> {
    let of = |base: &str| match label {
        "" => base.to_owned(),
        label => format!("{base}@{label}"),
    };
    let own = |name: &&str| name.split_once('@').map_or("", |(_, at)| at) == label;
    let name = group.names().into_iter().find(own)?.to_owned();
    let result = group.summary(&name, seed)?;
    let spread = result.spread();
    let other = |base: &str| {
        let summary = group.summary(&of(base), seed);
        summary.map_or(Cell::None, |s| Cell::Of(s.median, s.unit))
    };
    let cell = |v: f64| Cell::Of(v, result.unit.clone());
    let base = name.split('@').next().unwrap_or(&name);
    let loss = match other("loss_ratio") {
        Cell::None => other("frame_loss_ratio"),
        loss => loss,
    };
    let mut row = case_cells(&group.case);
    row.extend([
        label.into(),
        quantity_title(base).into(),
        with_unit(cell(result.median), &result.unit),
        with_unit(cell(spread.low), &result.unit),
        with_unit(cell(spread.high), &result.unit),
        loss,
        other("latency_p50"),
        other("latency_p99"),
        if result.tester_limited { "tester" } else { "" }.into(),
    ]);
    Some(row)
}

/// The rows have different units, so that each value carries its own.
fn with_unit(cell: Cell, unit: &str) -> Cell {
    match cell {
        Cell::Of(value, _) if !["ns", "ratio"].contains(&unit) => Cell::Unit(value, unit.into()),
        cell => cell,
    }
}
