//! The reporting formats of RFC 2544, section 26, and a table for each other procedure.

use sonde_results::bench::BenchRun;
use sonde_results::units::WIRE_OCTETS;

use super::{CASE_COLUMNS, Cell, Sheet, SheetColumn, case_cells};
use crate::group::{CaseGroup, groups, is_rate};
use crate::line_rate_fps;
use crate::quantity::{procedure_title, quantity_title, sort_distributions};
use crate::trials::loss_curve;

/// One for each procedure of the run.
pub fn sheets(run: &BenchRun) -> Vec<Sheet> {
    let groups = groups(run);
    let mut procedures: Vec<&str> = Vec::new();
    for group in &groups {
        if !procedures.contains(&group.case.procedure.as_str()) {
            procedures.push(&group.case.procedure);
        }
    }
    let of = |procedure: &str| -> Vec<&CaseGroup<'_>> {
        groups.iter().filter(|g| g.case.procedure == procedure).collect()
    };
    let mut sheets = Vec::new();
    for procedure in procedures {
        let groups = of(procedure);
        sheets.push(throughput(run, procedure, &groups));
        if procedure.contains("loss") {
            sheets.push(frame_loss(run, procedure));
        }
        let title = (format!("{procedure}_latency"), heading(procedure, ": latency"));
        // Section 26.2: the rate at which each latency was measured.
        let of_latency = |b: &str| b.starts_with("latency");
        let delayed = groups.iter().any(|g| g.names().into_iter().any(of_latency));
        let with_rate = |b: &str| of_latency(b) || (delayed && b == "offered_load");
        sheets.push(by_label(run, procedure, &groups, title, with_rate));
        let title = (procedure.to_string(), heading(procedure, ": other quantities"));
        sheets.push(by_label(run, procedure, &groups, title, |b| {
            // Section 26.5 has the throughput in the recovery's own table.
            !b.starts_with("latency") && (!is_rate(b) || procedure == "system_recovery")
        }));
    }
    sheets
}

fn heading(procedure: &str, what: &str) -> String {
    let name = procedure_title(procedure);
    let mut rest = name.chars();
    let first = rest.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let name = first + rest.as_str();
    match sonde_results::procedure::procedure_info(procedure).map_or("", |known| known.clause) {
        "" => format!("{name}{what}"),
        clause => format!("{name}{what} ({clause})"),
    }
}

/// Section 26.1: the rate for each frame size beside the medium's theoretical one.
fn throughput(run: &BenchRun, procedure: &str, groups: &[&CaseGroup<'_>]) -> Sheet {
    let columns = [
        ("rate", ""),
        ("repetitions", ""),
        ("median", "frames/s"),
        ("low", "frames/s"),
        ("high", "frames/s"),
        ("theoretical", "frames/s"),
        ("of theoretical", "ratio"),
        ("frames only", "bit/s"),
        ("on the medium", "bit/s"),
        ("limit", ""),
    ];
    let mut sheet = Sheet::new(
        &format!("{procedure}_rates"),
        &heading(procedure, ": rates"),
        "In each direction. Low to high: an interval as under Methods. Frames only: with the FCS; \
         on the medium: with preamble and least gap, 20 octets more a frame. Limit: \
         where it says tester, the device may do better. Theoretical: by \
         the nominal speed of the ports, where they have one.",
        &[&CASE_COLUMNS[..], &columns].concat(),
    );
    for group in groups {
        for name in group.names().into_iter().filter(|n| is_rate(n)) {
            let Some(s) = group.summary(name, run.config.seed) else { continue };
            let spread = s.spread();
            let line = line_rate_fps(run, group.case.frame_bytes);
            let bits = |overhead: f64| s.median * (group.case.frame_bytes + overhead) * 8.0;
            let mut row = case_cells(&group.case);
            row.extend([
                quantity_title(name).into(),
                Cell::Count(s.values.len() as u64),
                Cell::Number(s.median),
                Cell::Number(spread.low),
                Cell::Number(spread.high),
                Cell::maybe(line),
                Cell::maybe(line.map(|l| s.median / l)),
                Cell::Number(bits(0.0)),
                Cell::Number(bits(WIRE_OCTETS as f64)),
                if s.tester_limited { "tester" } else { "" }.into(),
            ]);
            sheet.rows.push(row);
        }
    }
    sheet.keeping(&["frame"])
}

/// Section 26.3: loss at each rate, a trial a row.
fn frame_loss(run: &BenchRun, procedure: &str) -> Sheet {
    let columns = [
        ("offered", "frames/s"),
        ("of theoretical", "ratio"),
        ("sent", "frames"),
        ("lost", "frames"),
        ("loss", "ratio"),
    ];
    let mut sheet = Sheet::new(
        &format!("{procedure}_by_rate"),
        &heading(procedure, ": loss by rate"),
        "A valid trial a row, all directions together.",
        &[&CASE_COLUMNS[..], &columns].concat(),
    );
    for (case, points) in loss_curve(run, |c| c.procedure == procedure) {
        let line = line_rate_fps(run, case.frame_bytes);
        for point in points {
            let mut row = case_cells(&case);
            row.extend([
                Cell::Number(point.offered_fps),
                Cell::maybe(line.map(|l| point.offered_fps / l)),
                Cell::Count(point.sent),
                Cell::Count(point.lost),
                Cell::Number(point.lost as f64 / point.sent.max(1) as f64),
            ]);
            sheet.rows.push(row);
        }
    }
    sheet.keeping(&["frame"])
}

/// What a procedure found besides rates. A row is for each case and what follows the `@` (a load, a
/// goal, a direction). A column is for each quantity that `wanted` picks by its name before it.
fn by_label(
    run: &BenchRun,
    procedure: &str,
    groups: &[&CaseGroup<'_>],
    (id, title): (String, String),
    wanted: impl Fn(&str) -> bool,
) -> Sheet {
    let mut bases: Vec<(String, String)> = Vec::new();
    for q in groups.iter().flat_map(|g| &g.measurements).flat_map(|m| &m.finding.values) {
        let base = split(&q.name).0;
        if wanted(base) && !bases.iter().any(|b| b.0 == base) {
            bases.push((base.into(), q.unit.clone()));
        }
    }
    sort_distributions(&mut bases, |b| &b.0);
    let mut sheet = Sheet::new(
        &id,
        &title,
        "Medians over the repetitions.",
        &[&CASE_COLUMNS[..], &[("at", ""), ("repetitions", "")]].concat(),
    );
    sheet.columns.extend(
        bases
            .iter()
            .map(|(base, unit)| SheetColumn { name: quantity_title(base), unit: unit.clone() }),
    );
    for group in groups {
        let mut labels: Vec<&str> = Vec::new();
        for (base, label) in group.names().into_iter().map(split) {
            if wanted(base) && !labels.contains(&label) {
                labels.push(label);
            }
        }
        for label in labels {
            let name = |base: &String| match label {
                "" => base.clone(),
                label => format!("{base}@{label}"),
            };
            let found: Vec<_> =
                bases.iter().map(|b| group.summary(&name(&b.0), run.config.seed)).collect();
            let repetitions = found.iter().flatten().map(|s| s.values.len()).max().unwrap_or(0);
            let share = label.parse::<f64>().is_ok()
                && ["latency", "loss"].iter().any(|p| procedure.contains(p));
            let mut row = case_cells(&group.case);
            row.push(if share { format!("{label} %").into() } else { label.into() });
            row.push(Cell::Count(repetitions as u64));
            row.extend(found.iter().map(|s| Cell::maybe(s.as_ref().map(|s| s.median))));
            sheet.rows.push(row);
        }
    }
    sheet.keeping(&["frame", "at"])
}

/// The name of a quantity and what it was found at.
fn split(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}
