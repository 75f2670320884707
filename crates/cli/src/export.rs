//! `sonde export`: rows of a station's store for other programs.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use clap::{Args, ValueEnum, ValueHint};
use sonde_results::units::{format_count, parse_positive_duration};
use sonde_run::whole_file;
use sonde_store::embedded::{Export, ExportText};
use sonde_store::query::TimeRange;
use sonde_store::{SeriesFilter, Table};
use sonde_sys::clock::unix_now_ns;

use crate::exit::{Exit, Failure};
use crate::query::{absent, exit_of, failed, label, limit, missing};
use crate::signals;
use crate::store_place::StoreArgs;

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct ExportArgs {
    /// iv (intervals), iv1m, iv1h, iv1d; flow, flow5m, flow1h; rtt, rtt1m, rtt1h, rtt1d
    #[arg(value_name = "TABLE", value_parser = table)]
    pub table: Table,
    #[command(flatten)]
    pub store: StoreArgs,
    /// How it is written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Csv)]
    pub format: Format,
    /// Where to; - is standard output, not for Parquet
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "-")]
    pub out: PathBuf,
    /// Of so much time until now
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_positive_duration)]
    pub last: i64,
    /// Only series with this label, as class=EF; may be given more than once
    #[arg(long, value_name = "LABEL=VALUE", value_parser = label)]
    pub only: Vec<(String, String)>,
    /// Of round trips only this group, as 192.0.2.0/24; may be given more than once
    #[arg(long, value_name = "GROUP")]
    pub group: Vec<String>,
}

/// How rows are written.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A line for each row, RFC 4180
    Csv,
    /// A JSON object for each row
    Jsonl,
    /// The columns of the store's segments
    Parquet,
}

/// Writes the rows.
pub fn run(args: &ExportArgs) -> Result<Exit, Failure> {
    let stdout = args.out == Path::new("-");
    if stdout && args.format == Format::Parquet {
        return Err(Failure::Usage(anyhow!("Parquet goes to a file: name one with --out")));
    }
    let reader = args.store.open()?;
    if let Some(why) = absent(&*reader, &[], &args.only)? {
        errln!(INFO, "{why}");
        return Ok(Exit::Negative);
    }
    let now_ns = unix_now_ns();
    let labels: BTreeMap<String, String> = args.only.iter().cloned().collect();
    let export = Export {
        table: args.table,
        range: TimeRange { from_ns: now_ns.saturating_sub(args.last), to_ns: now_ns },
        filter: SeriesFilter { labels, groups: args.group.clone(), ..SeriesFilter::default() },
    };
    let stop = signals::stop()?;
    let limit = sonde_store::Limit { scanned_rows: u64::MAX, ..limit(None, stop.clone()) };
    let mut begun = false;
    let left = Arc::new(AtomicBool::new(false));
    let mut open = || -> io::Result<Box<dyn Write>> {
        let again = std::mem::replace(&mut begun, true);
        match stdout {
            true if again => Err(io::Error::other(
                "the station joined or gave up segments while they were read; run it again, or write \
                 into a file with --out, which is begun anew then",
            )),
            true => {
                let to = ReaderMayLeave { to: io::stdout(), left: left.clone() };
                Ok(Box::new(io::BufWriter::new(to)))
            }
            false => Ok(Box::new(io::BufWriter::new(whole_file::create(&args.out, &stop)?))),
        }
    };
    let done = match args.format {
        Format::Csv => reader.export_text(&export, ExportText::Csv, &limit, &mut open),
        Format::Jsonl => reader.export_text(&export, ExportText::JsonLines, &limit, &mut open),
        Format::Parquet => reader.export_parquet(&export, &limit, &args.out),
    };
    // What nobody reads is not lost.
    if done.is_err() && left.load(Ordering::Relaxed) {
        return Ok(Exit::Ok);
    }
    let done = done.map_err(failed)?;
    missing(&*reader, done.damaged_segments);
    sonde_errln!(INFO, "rows written: {}", format_count(done.rows));
    Ok(exit_of(done.damaged_segments, done.rows == 0))
}

/// Remembers that whoever reads has gone: that is no failure.
struct ReaderMayLeave<W> {
    to: W,
    left: Arc<AtomicBool>,
}

impl<W: Write> ReaderMayLeave<W> {
    fn noted<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                self.left.store(true, Ordering::Relaxed);
            }
        })
    }
}

impl<W: Write> Write for ReaderMayLeave<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let done = self.to.write(octets);
        self.noted(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.to.flush();
        self.noted(done)
    }
}

fn table(text: &str) -> Result<Table, String> {
    let all: Vec<&str> = Table::ALL.into_iter().map(Table::name).collect();
    Table::from_name(text).ok_or_else(|| format!("there is no such table; {}", all.join(", ")))
}

const HELP: &str = "\
Example:
  sonde export iv --last 10m > intervals.csv
  sonde export flow --last 1h --format jsonl --out flows.jsonl
  sonde export iv1h --last 30d --only class=EF --format parquet --out hours.parquet
Times are ns since 1970 UTC. Rows come in no order. docs/store.md has tables and columns.
Exit codes: 0 written, 1 no rows in that time, 2 usage, 3 the store cannot be read or the file not
written, 4 written, but damaged segments are missing.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_leaves_is_remembered_and_a_full_disk_is_not() {
        for (failure, has_left) in [(libc::EPIPE, true), (libc::ENOSPC, false)] {
            struct Fails(i32);
            impl Write for Fails {
                fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                    Err(io::Error::from_raw_os_error(self.0))
                }
                fn flush(&mut self) -> io::Result<()> {
                    Ok(())
                }
            }
            let left = Arc::new(AtomicBool::new(false));
            let mut to = ReaderMayLeave { to: Fails(failure), left: left.clone() };
            to.write(b"a").unwrap_err();
            assert_eq!(left.load(Ordering::Relaxed), has_left);
        }
    }
}
