//! `sonde report sla`: a month of a station's objectives, as a page and as tables.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sonde_report::Page;

use crate::exit::{Exit, Failure};
use crate::status::{StationSocket, failed};

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct SlaReportArgs {
    #[command(flatten)]
    pub station: StationSocket,
    /// The month, as 2026-11 [default: the present one]
    #[arg(long, value_name = "YYYY-MM", value_parser = month)]
    pub month: Option<String>,
    /// What its chapters are
    #[arg(long, value_enum, value_name = "LABEL", default_value = "customer")]
    pub by: ReportBy,
    /// Where to write
    #[arg(short, long, value_name = "DIR", default_value = "sla")]
    pub out: PathBuf,
    /// What to write
    #[arg(
        short,
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "html,csv"
    )]
    pub format: Vec<SlaFormat>,
}

/// What the chapters of a report are.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ReportBy {
    /// The customers that objectives name
    Customer,
    /// Classes of service
    Class,
    /// Targets
    Target,
}

/// In what form a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SlaFormat {
    /// One page
    Html,
    /// A file for each table
    Csv,
}

fn month(text: &str) -> Result<String, String> {
    let digits =
        |part: &str, length| part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
    let parts = text.split_once('-').filter(|(year, month)| digits(year, 4) && digits(month, 2));
    match parts.is_some_and(|(_, month)| ("01"..="12").contains(&month)) {
        true => Ok(text.to_owned()),
        false => Err(format!("'{text}' is no month; write 2026-11")),
    }
}

/// Asks the station for the report, and saves it.
pub fn run(args: &SlaReportArgs) -> Result<Exit, Failure> {
    let client = args.station.client();
    let by = args.by.to_possible_value();
    let by = by.as_ref().map_or("customer", |by| by.get_name());
    let month = args.month.as_ref().map(|month| format!("&month={month}")).unwrap_or_default();
    let get = |path: &str| client.body(path).map_err(failed);
    let mut pages = Vec::new();
    if args.format.contains(&SlaFormat::Html) {
        let bytes = get(&format!("/sonde/v1/sla/report?by={by}{month}"))?;
        pages.push(Page { name: "sla.html".into(), bytes });
    }
    if args.format.contains(&SlaFormat::Csv) {
        for table in ["groups", "objectives", "exclusions"] {
            let path = format!("/sonde/v1/sla/report.csv?table={table}&by={by}{month}");
            pages.push(Page { name: format!("{table}.csv"), bytes: get(&path)? });
        }
    }
    super::finish(&args.out, &pages)
}

const HELP: &str = "\
Example:
  sudo sonde report sla --month 2026-11 --by class --out november
A month that has not closed can be reported, too: its figures are marked as provisional. The station
has to run; chapters by customer need `customer` in [objective.NAME] of its configuration.
Exit codes: 0 written, 2 usage, 3 no station answers, 4 something could not be saved.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_one_of_the_calendar() {
        assert_eq!(month("2026-11").as_deref(), Ok("2026-11"));
        for wrong in ["", "2026", "2026-00", "2026-13", "26-11", "2026-1", "2026-11-01"] {
            assert!(month(wrong).is_err(), "{wrong}");
        }
    }
}
