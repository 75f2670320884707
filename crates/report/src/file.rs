//! Output files, in memory.

mod columnar;
pub(crate) mod delimited;
pub(crate) mod html;
pub(crate) mod latex;
mod markdown;
mod matrix;

use std::fmt;
use std::str::FromStr;

use sonde_results::bench::{BenchRun, Check};

use crate::chart::{Chart, svg};
use crate::figure::charts;
use crate::sheet::{Sheet, sheets};

/// What can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// One page, with its figures inside.
    Html,
    /// Markdown, with its figures as SVG files.
    Markdown,
    /// LaTeX, with booktabs and pgfplots.
    Latex,
    /// A CSV file a table.
    Csv,
    /// A TSV file a table.
    Tsv,
    /// All tables in one JSON document.
    Json,
    /// A Parquet file a table.
    Parquet,
    /// The values of each table and the lines of each figure as NumPy matrices.
    Npy,
}

impl ReportFormat {
    /// Every format with its name on the command line.
    pub const ALL: [(ReportFormat, &str); 8] = [
        (ReportFormat::Html, "html"),
        (ReportFormat::Markdown, "md"),
        (ReportFormat::Latex, "latex"),
        (ReportFormat::Csv, "csv"),
        (ReportFormat::Tsv, "tsv"),
        (ReportFormat::Json, "json"),
        (ReportFormat::Parquet, "parquet"),
        (ReportFormat::Npy, "npy"),
    ];
}

impl FromStr for ReportFormat {
    type Err = String;
    fn from_str(text: &str) -> Result<ReportFormat, String> {
        let found = ReportFormat::ALL.iter().find(|f| f.1 == text);
        found.map(|f| f.0).ok_or_else(|| {
            let names: Vec<&str> = ReportFormat::ALL.iter().map(|f| f.1).collect();
            format!("'{text}' is not a format; choose from {}", names.join(", "))
        })
    }
}

impl fmt::Display for ReportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ReportFormat::ALL.iter().find(|a| a.0 == *self).map_or("", |a| a.1))
    }
}

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its name, with folders below the report's: "csv/trials.csv".
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Why a file could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("cannot make {0}: {1}")]
    Parquet(String, parquet::errors::ParquetError),
    #[error("cannot make {0}: {1}")]
    Matrix(String, std::io::Error),
    #[error("cannot make {0}: {1}")]
    Delimited(String, csv::Error),
}

/// Everything that a run is shown by, made once for all formats.
struct Report<'a> {
    run: &'a BenchRun,
    sheets: Vec<Sheet>,
    charts: Vec<Chart>,
}

/// The files of a run in those formats. Their names never clash.
///
/// # Errors
/// What an encoder refuses.
pub fn render(run: &BenchRun, formats: &[ReportFormat]) -> Result<Vec<Page>, RenderError> {
    let mut report = Report { run, sheets: sheets(run), charts: charts(run) };
    name_apart(report.charts.iter_mut().map(|c| &mut c.id));
    name_apart(report.sheets.iter_mut().map(|s| &mut s.id));
    let mut pages = Vec::new();
    for format in formats {
        match format {
            ReportFormat::Html => pages.push(page("report.html", html::render(&report))),
            ReportFormat::Markdown => {
                pages.push(page("report.md", markdown::render(&report)));
                pages.extend(
                    report.charts.iter().map(|c| page(&figure_name(c), svg::render(c, true))),
                );
            }
            ReportFormat::Latex => pages.push(page("report.tex", latex::render(&report))),
            ReportFormat::Csv => pages.extend(delimited::render(&report, b',', "csv")?),
            ReportFormat::Tsv => pages.extend(delimited::render(&report, b'\t', "tsv")?),
            ReportFormat::Json => pages.push(page("report.json", delimited::json(&report))),
            ReportFormat::Parquet => pages.extend(columnar::render(&report)?),
            ReportFormat::Npy => pages.extend(matrix::render(&report)?),
        }
    }
    Ok(pages)
}

/// The figures' files as Markdown has them.
fn figure_name(chart: &Chart) -> String {
    format!("figures/{}.svg", chart.id)
}

fn page(name: &str, text: String) -> Page {
    Page { name: name.into(), bytes: text.into_bytes() }
}

/// Two that would have one name get suffixes; names of tables may come from a plan.
fn name_apart<'a>(ids: impl Iterator<Item = &'a mut String>) {
    let mut taken = std::collections::HashSet::new();
    for id in ids {
        let plain: String = id
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' })
            .collect();
        // A name a file system takes, whatever follows it.
        let plain: String = plain.chars().take(100).collect();
        let mut name = plain.clone();
        let mut copy = 1;
        while !taken.insert(name.clone()) {
            copy += 1;
            name = format!("{plain}_{copy}");
        }
        *id = name;
    }
}

impl Report<'_> {
    fn title(&self) -> &str {
        match self.run.config.title.as_str() {
            "" => "Benchmark",
            title => title,
        }
    }

    /// The run in a few sentences.
    fn lead(&self) -> Vec<String> {
        let run = self.run;
        let groups = crate::group::groups(run).len();
        let invalid = run.trials.iter().filter(|t| !t.valid()).count();
        let planned = run.config.measurements_planned as usize;
        let checks: Vec<&Check> = run.measurements.iter().flat_map(|m| &m.checks).collect();
        let mut lines = vec![format!(
            "{} of {} measurements planned are done: {groups} cases with their repetitions, {} \
             trials, of which {invalid} were invalid and are part of no result.",
            run.measurements.len(),
            planned.max(run.measurements.len()),
            run.trials.len(),
        )];
        if run.measurements.len() < planned {
            lines.push("The run is not complete: this report shows what has been measured.".into());
        }
        let undecided = checks.iter().filter(|c| !c.pass && c.undecided()).count();
        let failed = checks.iter().filter(|c| !c.pass).count() - undecided;
        let open = "for want of the quantity";
        match (checks.len(), failed, undecided) {
            (0, ..) => {}
            (n, 0, 0) => lines.push(format!("All {n} thresholds of the plan are met.")),
            (n, 0, open_n) => {
                let others = if open_n < n { "; the others are met" } else { "" };
                lines.push(format!(
                    "{open_n} of {n} thresholds of the plan cannot be told, {open}{others}."
                ));
            }
            (n, failed, 0) => {
                lines.push(format!("{failed} of {n} thresholds of the plan are NOT met."))
            }
            (n, failed, open_n) => lines.push(format!(
                "{failed} of {n} thresholds of the plan are NOT met, and {open_n} cannot be told, \
                 {open}."
            )),
        }
        lines
    }

    /// How intervals and percentiles are to be read.
    fn methods(&self) -> String {
        format!(
            "Medians over repetitions. Intervals: percentile bootstrap of the median at 95 % \
             (seed {}), from six repetitions on; with fewer the least and the greatest value, of a \
             single measurement the bounds of its procedure. Percentiles only with at least ten \
             samples beyond. Latency: one way, from the stamp before the first bit is sent to that after the last one \
             has arrived, which is neither of RFC 1242's definitions: on a medium with a rate it \
             holds the frame's serialisation twice beside a store-and-forward latency, once beside \
             a bit-forwarding one. Histogram values are within 1.6 % or 16 ns. Invalid trials are never merged with valid ones.",
            self.run.config.seed
        )
    }
}
