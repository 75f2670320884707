//! `sonde report`: a run of `sonde bench` as a page, tables and files.

mod sla;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use clap::{Args, Subcommand};
use sonde_report::{Page, ReportFormat, render};
use sonde_testbed::store;

use crate::choice::named;
use crate::exit::{Exit, Failure};

#[derive(Args, Debug)]
#[command(
    after_help = HELP,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct ReportArgs {
    #[command(subcommand)]
    pub kind: Option<ReportKind>,
    /// The run's folder; it may still be growing
    #[arg(value_name = "RUN", required = true)]
    pub run: Option<PathBuf>,
    /// Where to write [default: RUN/report]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What to write: html, md, latex, csv, tsv, json, parquet, npy
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "html",
          value_parser = named::<ReportFormat>(ReportFormat::ALL.map(|(_, name)| name)))]
    pub format: Vec<ReportFormat>,
}

/// Reports of something else than a benchmark.
#[derive(Subcommand, Debug)]
pub enum ReportKind {
    /// A month of a station's objectives: compliance, errored seconds, unavailable time
    Sla(sla::SlaReportArgs),
}

/// Writes the report of a run.
///
/// # Errors
/// A folder without a readable run.
pub fn run(args: &ReportArgs) -> Result<Exit, Failure> {
    if let Some(ReportKind::Sla(args)) = &args.kind {
        return sla::run(args);
    }
    let folder = args.run.as_deref().unwrap_or(Path::new("."));
    let mut formats: Vec<ReportFormat> = Vec::new();
    for &format in &args.format {
        if formats.contains(&format) {
            return Err(Failure::Usage(anyhow!("--format: {format} is given twice; give it once")));
        }
        formats.push(format);
    }
    let run = store::read(folder)?;
    let pages = render(&run, &formats).map_err(anyhow::Error::from)?;
    let out = args.out.clone().unwrap_or_else(|| folder.join("report"));
    finish(&out, &pages)
}

/// Saves pages, and says which.
fn finish(out: &Path, pages: &[Page]) -> Result<Exit, Failure> {
    match save(out, pages) {
        Ok(()) => {
            let mut lines = String::new();
            for page in main_pages(pages) {
                lines.push_str(&format!("{}\n", out.join(page).display()));
            }
            print(&lines)
        }
        Err(error) => {
            sonde_errln!(ERROR, "{error:#}; free space or choose another folder with --out");
            Ok(Exit::NotSaved)
        }
    }
}

/// Whoever reads standard output may stop: that is no failure.
pub(crate) fn print(text: &str) -> Result<Exit, Failure> {
    crate::console::print(text);
    Ok(Exit::Ok)
}

/// Saves each page under a temporary name and renames it: a reader, such as a browser that reloads
/// while the run grows, never sees half a page.
pub(crate) fn save(folder: &Path, pages: &[Page]) -> Result<()> {
    for page in pages {
        let path = folder.join(&page.name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot make the folder {}", parent.display()))?;
        let mut temporary = path.clone().into_os_string();
        temporary.push(format!(".{}.tmp", std::process::id()));
        let saved = fs::write(&temporary, &page.bytes).and_then(|()| fs::rename(&temporary, &path));
        if saved.is_err() {
            // The first error is the one to report; there may be nothing to remove.
            let _ = fs::remove_file(&temporary);
        }
        saved.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// What a person opens: files at the top, and each folder once.
fn main_pages(pages: &[Page]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for page in pages {
        let name = match page.name.split_once('/') {
            Some((folder, _)) => format!("{folder}/"),
            None => page.name.clone(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

const HELP: &str = "\
Example:
  sonde report runs/router
  sonde report runs/router --format html,md,csv --out paper/data
  sudo sonde report sla --month 2026-11 --out november
  sonde report runs/router --format latex && pdflatex runs/router/report/report.tex
html is one page with its figures inside; md comes with figures as SVG; latex needs booktabs
and pgfplots; csv, tsv and parquet are a file a table, npy a matrix a table and a figure's line.
Exit codes: 0 written, 2 usage, 3 there is no readable run, 4 something could not be saved.";
