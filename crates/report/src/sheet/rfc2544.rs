//! The reporting formats of RFC 2544, section 26, and a table for each other procedure.

use std::collections::BTreeMap;

use sonde_results::bench::{BenchRun, Case};

use super::{CASE_COLUMNS, Cell, Column, Sheet, case_cells};
use crate::group::{Group, groups};
use crate::trials::loss_curve;
use crate::{FRAME_OVERHEAD, line_rate_fps};

/// One for each procedure of the run.
pub fn sheets(run: &BenchRun) -> Vec<Sheet> {
    let groups = groups(run);
    let mut procedures: Vec<&str> = Vec::new();
    for group in &groups {
        if !procedures.contains(&group.case.procedure.as_str()) {
            procedures.push(&group.case.procedure);
        }
    }
    let of = |procedure: &str| -> Vec<&Group<'_>> {
        groups.iter().filter(|g| g.case.procedure == procedure).collect()
    };
    let mut sheets = Vec::new();
    for procedure in procedures {
        let groups = of(procedure);
        if groups.iter().any(|g| g.names().first() == Some(&"throughput")) {
            sheets.push(throughput(run, procedure, &groups));
        }
        if groups.iter().flat_map(|g| g.names()).any(|n| n.starts_with("latency_")) {
            sheets.push(latency(run, procedure, &groups));
        }
        if procedure.contains("loss") {
            sheets.push(frame_loss(run, procedure));
        }
        sheets.push(pivot(run, procedure, &groups));
    }
    sheets
}

/// Which clause asks for the results of a procedure.
fn clause(procedure: &str) -> &'static str {
    match procedure {
        p if p.contains("mlr") => "RFC 9971",
        p if p.contains("tst") => "ETSI GS NFV-TST 009",
        p if p.contains("throughput") => "RFC 2544, section 26.1",
        p if p.contains("pdv") || p.contains("ipdv") || p.contains("8219") => "RFC 8219",
        p if p.contains("latency") => "RFC 2544, section 26.2",
        p if p.contains("loss") => "RFC 2544, section 26.3",
        p if p.contains("back") => "RFC 2544, section 26.4, and RFC 9004, section 6",
        p if p.contains("recovery") => "RFC 2544, section 26.5",
        p if p.contains("reset") => "RFC 2544, section 26.6, and RFC 6201",
        p if p.contains("1564") => "ITU-T Y.1564",
        _ => "",
    }
}

fn heading(procedure: &str, what: &str) -> String {
    let name = procedure.replace('_', " ");
    let mut rest = name.chars();
    let first = rest.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let name = first + rest.as_str();
    match clause(procedure) {
        "" => format!("{name}{what}"),
        clause => format!("{name}{what} ({clause})"),
    }
}

/// Section 26.1: the rate for each frame size beside the medium's theoretical one.
fn throughput(run: &BenchRun, procedure: &str, groups: &[&Group<'_>]) -> Sheet {
    let columns = [
        ("repetitions", ""),
        ("median", "frames/s"),
        ("low", "frames/s"),
        ("high", "frames/s"),
        ("theoretical", "frames/s"),
        ("of theoretical", "ratio"),
        ("frames only", "bit/s"),
        ("on the medium", "bit/s"),
    ];
    let mut sheet = Sheet::new(
        &format!("{procedure}_rates"),
        &heading(procedure, ": rates"),
        "In each direction. Low to high: see the note on intervals. Frames only: with the FCS; \
         on the medium: with preamble and least gap, 20 octets more a frame. Theoretical: by \
         the nominal speed of the ports, where they have one.",
        &[&CASE_COLUMNS[..], &columns].concat(),
    );
    for group in groups {
        let Some(s) = group.summary("throughput", run.config.seed) else { continue };
        let spread = s.spread();
        let line = line_rate_fps(run, group.case.frame_bytes);
        let bits = |overhead: f64| s.median * (group.case.frame_bytes + overhead) * 8.0;
        let mut row = case_cells(&group.case);
        row.extend([
            Cell::Count(s.values.len() as u64),
            Cell::Number(s.median),
            Cell::Number(spread.low),
            Cell::Number(spread.high),
            Cell::maybe(line),
            Cell::maybe(line.map(|l| s.median / l)),
            Cell::Number(bits(0.0)),
            Cell::Number(bits(FRAME_OVERHEAD)),
        ]);
        sheet.rows.push(row);
    }
    sheet.without_constants(&["frame"])
}

/// Section 26.2: rows of frame size and load, columns of latency.
fn latency(run: &BenchRun, procedure: &str, groups: &[&Group<'_>]) -> Sheet {
    let split = |name: &str| {
        let rest = name.strip_prefix("latency_")?;
        let (what, load) = rest.split_once('@').unwrap_or((rest, ""));
        Some((what.to_string(), load.to_string()))
    };
    let mut kinds: Vec<String> = Vec::new();
    for (kind, _) in groups.iter().flat_map(|g| g.names()).filter_map(split) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut sheet = Sheet::new(
        &format!("{procedure}_latency"),
        &heading(procedure, ": latency by load"),
        "Medians over the repetitions. A percentile stands here only with at least ten samples \
         beyond it.",
        &[&CASE_COLUMNS[..], &[("at", ""), ("repetitions", "")]].concat(),
    );
    sheet
        .columns
        .extend(kinds.iter().map(|k| Column { name: k.replace('_', "."), unit: "ns".into() }));
    for group in groups {
        let mut loads: Vec<String> = Vec::new();
        for (_, load) in group.names().into_iter().filter_map(split) {
            if !loads.contains(&load) {
                loads.push(load);
            }
        }
        for load in loads {
            let name = |kind: &String| match load.as_str() {
                "" => format!("latency_{kind}"),
                load => format!("latency_{kind}@{load}"),
            };
            let found: Vec<_> =
                kinds.iter().map(|k| group.summary(&name(k), run.config.seed)).collect();
            let repetitions = found.iter().flatten().map(|s| s.values.len()).max().unwrap_or(0);
            let mut row = case_cells(&group.case);
            row.push(load.into());
            row.push(Cell::Count(repetitions as u64));
            row.extend(found.iter().map(|s| Cell::maybe(s.as_ref().map(|s| s.median))));
            sheet.rows.push(row);
        }
    }
    sheet.without_constants(&["frame", "at"])
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
                Cell::Number(point.rate_fps),
                Cell::maybe(line.map(|l| point.rate_fps / l)),
                Cell::Count(point.sent),
                Cell::Count(point.lost),
                Cell::Number(point.lost as f64 / point.sent.max(1) as f64),
            ]);
            sheet.rows.push(row);
        }
    }
    sheet.without_constants(&["frame"])
}

/// Whatever else a procedure found: a case a row, a quantity a column.
fn pivot(run: &BenchRun, procedure: &str, groups: &[&Group<'_>]) -> Sheet {
    let mut units: BTreeMap<&str, &str> = BTreeMap::new();
    let mut names: Vec<&str> = Vec::new();
    for q in groups.iter().flat_map(|g| &g.measurements).flat_map(|m| &m.finding.values) {
        let told = q.name == "throughput" || q.name.starts_with("latency_");
        if !told && units.insert(&q.name, &q.unit).is_none() {
            names.push(&q.name);
        }
    }
    let mut sheet = Sheet::new(
        procedure,
        &heading(procedure, ""),
        "Medians over the repetitions.",
        &[&CASE_COLUMNS[..], &[("repetitions", "")]].concat(),
    );
    sheet
        .columns
        .extend(names.iter().map(|n| Column { name: n.to_string(), unit: units[n].to_string() }));
    if names.is_empty() {
        return sheet;
    }
    for group in groups {
        let found: Vec<_> = names.iter().map(|n| group.summary(n, run.config.seed)).collect();
        let mut row = row_head(&group.case, found.iter().flatten().map(|s| s.values.len()).max());
        row.extend(found.iter().map(|s| Cell::maybe(s.as_ref().map(|s| s.median))));
        sheet.rows.push(row);
    }
    sheet.without_constants(&["frame"])
}

fn row_head(case: &Case, repetitions: Option<usize>) -> Vec<Cell> {
    let mut row = case_cells(case);
    row.push(Cell::Count(repetitions.unwrap_or(0) as u64));
    row
}
