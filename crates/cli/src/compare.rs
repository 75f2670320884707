//! `sonde compare`: two runs of `sonde bench`, case by case.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use serde_json::json;
use sonde_report::chart::svg;
use sonde_report::compare::ComparisonRow;
use sonde_report::quantity::show;
use sonde_report::{Comparison, ComparisonVerdict, Metrics, Page, compare, figure};
use sonde_results::bench::BenchRun;
use sonde_results::plain_text::plain;
use sonde_results::units::parse_share;
use sonde_run::error::RunError;
use sonde_run::files::RunFiles;
use sonde_station::runs::KeptRuns;
use sonde_testbed::store;

use crate::exit::{Exit, Failure};
use crate::output::style::{Style, Tone};
use crate::output::text_table::{TextColumn, TextTable};
use crate::report::{print, save};

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct CompareArgs {
    /// The run to compare with: its folder, or the name of one that the store keeps
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The run that is judged: its folder, or the name of one that the store keeps
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// What to compare: a quantity (throughput, latency_p99, ...) or all [default: the most
    /// important one of each procedure]
    #[arg(short, long, value_name = "NAME")]
    pub metric: Option<String>,
    /// Exit with 1 where B is worse by more than this share of A's median
    #[arg(long, value_name = "SHARE", default_value = "5%",
          value_parser = |t: &str| parse_share(t, 10.0))]
    pub threshold: f64,
    /// The store that keeps runs by their names
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sonde/store")]
    pub store: PathBuf,
    /// Print the comparison as JSON
    #[arg(long)]
    pub json: bool,
    /// Draw the differences to this SVG file
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
}

/// Compares two runs.
///
/// # Errors
/// Folders without readable runs, runs without a common case, a quantity that neither has.
pub fn run(args: &CompareArgs) -> Result<Exit, Failure> {
    let kept = KeptRuns::of_store(&args.store);
    let folder = |name: &Path| match name.to_str().filter(|_| !name.exists()) {
        Some(id) => kept.folder_of(id).unwrap_or_else(|| name.to_owned()),
        None => name.to_owned(),
    };
    let (folder_a, folder_b) = (folder(&args.a), folder(&args.b));
    let (of_a, of_b) = (store::files(&folder_a), store::files(&folder_b));
    let files = RunFiles::default().writes("figure", &args.figure);
    files.reads("a run", &of_a).reads("a run", &of_b).check().map_err(RunError::from)?;
    let (a, b) = (store::read(&folder_a)?, store::read(&folder_b)?);
    let metrics = match args.metric.as_deref() {
        None => Metrics::First,
        Some("all") => Metrics::All,
        Some(name) => Metrics::Named(name.into()),
    };
    let comparison = compare(&a, &b, &metrics);
    if comparison.rows.is_empty() {
        return Err(nothing(args, &a, &comparison));
    }
    let mut exit = if args.json {
        print(&format!("{:#}\n", as_json(&comparison, args.threshold)))?
    } else {
        print(&as_text(&comparison, args.threshold, Style::for_stdout()))?
    };
    if let Some(path) = &args.figure {
        let name = |path: &PathBuf| path.display().to_string();
        let chart = figure::difference(&comparison, &name(&args.a), &name(&args.b));
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let page = Page { name: file, bytes: svg::render(&chart, true).into_bytes() };
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        if let Err(error) = save(&folder, &[page]) {
            sonde_errln!(ERROR, "{error:#}; choose another --figure");
            exit = Exit::NotSaved;
        }
    }
    let worse = comparison.rows.iter().any(|r| r.worse_beyond(args.threshold));
    // A worse result is the more important news, and what is not known is no good news.
    Ok(match exit {
        _ if worse => Exit::Negative,
        Exit::Ok if !comparison.undecided().is_empty() => Exit::Undecided,
        exit => exit,
    })
}

/// Why there is nothing to compare.
fn nothing(args: &CompareArgs, a: &BenchRun, comparison: &Comparison) -> Failure {
    let (a_name, b_name) = (args.a.display(), args.b.display());
    match &args.metric {
        Some(name) if comparison.only_a.len() < a.measurements.len() && name != "all" => {
            let mut known: Vec<&str> = a
                .measurements
                .iter()
                .flat_map(|m| &m.finding.values)
                .map(|q| q.name.split('@').next().unwrap_or(&q.name))
                .collect();
            known.sort_unstable();
            known.dedup();
            Failure::Usage(anyhow!(
                "no case of both runs has a finished '{name}'; {a_name} has: {}",
                plain(&known.join(", "))
            ))
        }
        _ => Failure::CannotRun(anyhow!(
            "{a_name} and {b_name} have no finished measurement of the same case; compare runs of \
             one plan"
        )),
    }
}

fn as_json(comparison: &Comparison, threshold: f64) -> serde_json::Value {
    let beyond: Vec<&str> = comparison
        .rows
        .iter()
        .filter(|r| r.worse_beyond(threshold))
        .map(|r| r.name.as_str())
        .collect();
    json!({
        "threshold": threshold,
        "worse_beyond_threshold": beyond,
        "undecided": comparison.undecided(),
        "expected_by_chance": comparison.expected_by_chance(),
        "rows": comparison.rows,
        "only_a": comparison.only_a,
        "only_b": comparison.only_b,
        "bed": comparison.bed,
    })
}

fn as_text(comparison: &Comparison, threshold: f64, style: Style) -> String {
    let head = ["CASE", "QUANTITY", "A", "B", "DIFFERENCE (95 %)", "EFFECT", "P", "VERDICT"];
    let rows: Vec<[String; 8]> = comparison.rows.iter().map(|r| cells(r, threshold)).collect();
    let table = TextTable::new(head.into_iter().enumerate().map(|(i, head)| TextColumn {
        head,
        rank: 0,
        left: i < 2 || i == 7,
        cells: rows.iter().map(|row| row[i].clone()).collect(),
    }));
    let lines = table.lines(usize::MAX, Style::default(), |_, _| Tone::Plain);
    let verdicts = comparison.rows.iter().map(|row| match row.verdict {
        ComparisonVerdict::Better => Tone::Good,
        ComparisonVerdict::Worse if row.worse_beyond(threshold) => Tone::Bad,
        ComparisonVerdict::Worse | ComparisonVerdict::Differs => Tone::Warn,
        _ => Tone::Plain,
    });
    let mut out = String::new();
    for (line, tone) in lines.iter().zip([Tone::Head].into_iter().chain(verdicts)) {
        out += &(style.paint(tone, line) + "\n");
    }
    out.push('\n');
    for (what, list) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !list.is_empty() {
            out += &format!("Only in {what}: {}\n", plain(&list.join("; ")));
        }
    }
    for (name, a, b) in &comparison.bed {
        let short = |text: &str| match plain(text).into_owned() {
            text if text.is_empty() => "-".to_string(),
            text if text.chars().count() > 60 => text.chars().take(59).chain(['…']).collect(),
            text => text,
        };
        out += &format!("The beds differ in {}: {} | {}\n", plain(name), short(a), short(b));
    }
    let count =
        |wanted: fn(&ComparisonRow) -> bool| comparison.rows.iter().filter(|r| wanted(r)).count();
    let undecided = comparison.undecided();
    if !undecided.is_empty() {
        out += &format!("Cannot tell: {}\n", plain(&undecided.join("; ")));
    }
    if count(|r| r.a.tester_limited || r.b.tester_limited) > 0 {
        out += "\u{2265}: the tester, not the device, sets this value; the device may do better.\n";
    }
    let few = count(|r| r.verdict == ComparisonVerdict::TooFewRepetitions);
    if few > 0 {
        out += &format!(
            "{few} comparisons have too few repetitions to show anything at the 5 % level (4 and 4 \
             are the fewest): raise 'repetitions' in the plan.\n"
        );
    }
    let chance = comparison.expected_by_chance();
    if chance >= 0.5 {
        out += &format!(
            "Of {} tests at the 5 % level about {chance:.0} would show a difference by chance alone.\n",
            comparison.rows.len() - few
        );
    }
    let beyond = comparison.rows.iter().filter(|r| r.worse_beyond(threshold)).count();
    out += &format!(
        "{} better, {} worse, of these {beyond} by more than {}.\n",
        count(|r| r.verdict == ComparisonVerdict::Better),
        count(|r| r.verdict == ComparisonVerdict::Worse),
        show(threshold, "ratio")
    );
    out
}

fn cells(row: &ComparisonRow, threshold: f64) -> [String; 8] {
    let side = |s: &sonde_report::compare::SideSummary| {
        let unit = if row.unit == "frames/s" { "" } else { row.unit.as_str() };
        let unit =
            if ["ns", "ratio", ""].contains(&unit) { String::new() } else { format!(" {unit}") };
        let mark = if s.tester_limited { "\u{2265}" } else { "" };
        match s.interval {
            Some(i) => format!(
                "{mark}{}{unit} [{}, {}]",
                show(s.median, &row.unit),
                show(i.low, &row.unit),
                show(i.high, &row.unit)
            ),
            None => format!("{mark}{}{unit} (n={})", show(s.median, &row.unit), s.repetitions),
        }
    };
    let signed = |v: f64, unit: &str| {
        let sign = if v > 0.0 { "+" } else { "" };
        format!("{sign}{}", show(v, unit))
    };
    let difference = match (row.relative, row.relative_interval, row.difference_interval) {
        (Some(d), Some(i), _) => {
            let percent = |v: f64| signed((v * 1e4).round() / 1e4, "ratio");
            format!("{} [{}, {}]", percent(d), percent(i.low), percent(i.high))
        }
        (Some(d), None, _) => signed((d * 1e4).round() / 1e4, "ratio"),
        (None, _, Some(i)) => format!(
            "{} [{}, {}]",
            signed(row.difference, &row.unit),
            signed(i.low, &row.unit),
            signed(i.high, &row.unit)
        ),
        (None, _, None) => signed(row.difference, &row.unit),
    };
    let p = match row.p {
        p if p < 0.001 => "<0.001".to_string(),
        p => format!("{p:.3}"),
    };
    let mut verdict = row.verdict.text().to_string();
    if row.worse_beyond(threshold) {
        verdict = verdict.to_uppercase();
    }
    [
        plain(&row.name).into_owned(),
        plain(&row.metric).into_owned(),
        side(&row.a),
        side(&row.b),
        difference,
        format!("{:+.2}", row.effect),
        p,
        verdict,
    ]
}

const HELP: &str = "\
Example:
  sonde compare runs/before runs/after
  sonde compare 2026-11-20 2026-11-27
  sonde compare runs/before runs/after --metric latency_p99 --threshold 10%
  sonde compare runs/before runs/after --metric all --json > difference.json
Cases are paired by everything but their repetition. A and B: medians with bootstrap 95 %
intervals (from six repetitions on). DIFFERENCE: Hodges-Lehmann shift as a share of A's median,
with the interval of the rank-sum test. EFFECT: Cliff's delta, -1 to 1. P: Mann-Whitney, exact
up to 60 values.
Exit codes: 0 nothing is worse by more than the threshold, 1 something is, 2 usage, 3 there is no
readable run or no common case, 4 something could not be saved, 5 undecided: too few repetitions,
a value that the tester set, or one that only one of the runs has.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_run_does_not_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\nc"), "a\u{fffd}[31mb\u{fffd}c");
    }
}
