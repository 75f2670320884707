//! All results in one long table, the plan's thresholds, and what the procedures noted.

use sonde_results::bench::{BenchRun, Check};

use super::{CASE_COLUMNS, Cell, Sheet, case_cells};
use crate::group::groups;

/// Every quantity of every case over its repetitions.
pub fn sheet(run: &BenchRun) -> Sheet {
    let columns = [
        ("quantity", ""),
        ("unit", ""),
        ("repetitions", ""),
        ("median", ""),
        ("low", ""),
        ("high", ""),
        ("kind of interval", ""),
        ("samples", ""),
        ("limit", ""),
    ];
    let note = "Limit: the tester, not the device, sets the value, and the device may do better.";
    let mut sheet =
        Sheet::new("results", "All results", note, &[&CASE_COLUMNS[..], &columns].concat());
    for group in groups(run) {
        for name in group.names() {
            let Some(s) = group.summary(name, run.config.seed) else { continue };
            let spread = s.spread();
            let kind = match (s.interval, s.bounds, s.values.len()) {
                (Some(_), _, _) => "95 %, median",
                (None, Some(_), _) => "bounds of the procedure",
                (None, None, 1) => "single value",
                _ => "least and greatest",
            };
            let cell = |v: f64| Cell::Of(v, s.unit.clone());
            let mut row = case_cells(&group.case);
            row.extend([
                name.into(),
                s.unit.as_str().into(),
                Cell::Count(s.values.len() as u64),
                cell(s.median),
                cell(spread.low),
                cell(spread.high),
                kind.into(),
                Cell::Count(s.samples),
                if s.tester_limited { "tester" } else { "" }.into(),
            ]);
            sheet.rows.push(row);
        }
    }
    sheet.keeping(&["frame", "quantity", "unit", "kind of interval"])
}

/// The plan's thresholds, the repetitions of a case together.
pub fn checks(run: &BenchRun) -> Sheet {
    let columns = [
        ("threshold", ""),
        ("repetitions", ""),
        ("met", ""),
        ("least value", ""),
        ("greatest value", ""),
        ("unit", ""),
        ("verdict", ""),
    ];
    let mut sheet = Sheet::new(
        "thresholds",
        "Thresholds of the plan",
        "",
        &[&CASE_COLUMNS[..], &columns].concat(),
    );
    for group in groups(run) {
        let mut checks: Vec<(&str, Vec<&Check>)> = Vec::new();
        for check in group.measurements.iter().flat_map(|m| &m.checks) {
            match checks.iter_mut().find(|c| c.0 == check.text) {
                Some((_, all)) => all.push(check),
                None => checks.push((&check.text, vec![check])),
            }
        }
        for (text, all) in checks {
            let values = || all.iter().filter_map(|c| c.value);
            // The threshold begins with the name of its quantity.
            let name = text.split_whitespace().next().unwrap_or("");
            let found = group.measurements.iter().find_map(|m| m.finding.value(name));
            let unit = found.map_or("", |q| q.unit.as_str());
            let shown = |v: Option<f64>| v.map_or(Cell::None, |v| Cell::Of(v, unit.to_string()));
            let met = all.iter().filter(|c| c.pass).count();
            let mut row = case_cells(&group.case);
            row.extend([
                text.into(),
                Cell::Count(all.len() as u64),
                Cell::Count(met as u64),
                shown(values().min_by(f64::total_cmp)),
                shown(values().max_by(f64::total_cmp)),
                unit.into(),
                match () {
                    () if met == all.len() => "met",
                    () if all.iter().any(|c| !c.pass && !c.undecided()) => "NOT met",
                    () => "cannot tell",
                }
                .into(),
            ]);
            sheet.rows.push(row);
        }
    }
    sheet.keeping(&["device", "frame", "threshold", "unit", "verdict"])
}

/// What the procedures noted, and measurements that did not come to their end.
pub fn notes(run: &BenchRun) -> Sheet {
    let mut sheet =
        Sheet::new("notes", "Notes of the procedures", "", &[("note", ""), ("measurements", "")]);
    let mut notes: Vec<(String, Vec<&str>)> = Vec::new();
    for m in &run.measurements {
        let unfinished = (!m.finding.complete).then(|| {
            "The procedure did not come to its end: its values are left out of medians.".to_string()
        });
        let failures = m.finding.failures.iter().map(|text| format!("FAILED: {text}"));
        for note in failures.chain(m.finding.notes.iter().cloned()).chain(unfinished) {
            match notes.iter_mut().find(|(n, _)| *n == note) {
                Some((_, ids)) => ids.push(&m.id),
                None => notes.push((note, vec![&m.id])),
            }
        }
    }
    sheet.rows =
        notes.into_iter().map(|(note, ids)| vec![note.into(), listed(&ids).into()]).collect();
    sheet
}

/// The first few, and how many more.
pub(super) fn listed(ids: &[&str]) -> String {
    const SHOWN: usize = 4;
    let first = ids.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match ids.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
