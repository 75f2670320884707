//! The heaviest queries over rows of one minute: in Sonde's store over as much as time and disk allow,
//! and on a smaller set of the same rows beside PostgreSQL and ClickHouse.

mod clickhouse;
mod postgres;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use sonde_results::hist::bucket_of;
use sonde_results::units::format_count;
use sonde_store::query::{Availability, Bands, Heat, Overview, SeriesPoints};
use sonde_store::{
    Answer, Batch, EmbeddedReader, HOUR_NS, IntervalRow, KeepTable, Limit, MINUTE_NS, Query,
    Reader as _, Retention, Rows, SeriesFilter, SeriesId, SeriesLabels, Store, StoreOptions, Table,
    TimeRange,
};

use crate::args::Args;
use crate::figures::median;
use crate::folder::WorkFolder;
use crate::load::STREAMS;
use crate::store_rows::{BASE_NS, Random, interval};

/// A question of the API. Each is answered from every row of its range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HeavyQuery {
    /// A row for each stream: sums, median, p99.
    Overview,
    /// All streams together, each five minutes: six quantiles.
    Bands,
    /// All streams together, each five minutes: how many in which bucket.
    Heat,
    /// Time with and without loss of each stream.
    Availability,
    /// 200 streams, each minute: median, p99.
    Points,
}

impl HeavyQuery {
    pub const ALL: [HeavyQuery; 5] = [
        HeavyQuery::Overview,
        HeavyQuery::Bands,
        HeavyQuery::Heat,
        HeavyQuery::Availability,
        HeavyQuery::Points,
    ];

    fn text(self) -> &'static str {
        match self {
            HeavyQuery::Overview => "overview: each stream's sums, median, p99",
            HeavyQuery::Bands => "bands: all together, six quantiles each 5 min",
            HeavyQuery::Heat => "heat map: all together, buckets each 5 min",
            HeavyQuery::Availability => "availability: each stream's time with loss",
            HeavyQuery::Points => "points: 200 streams each minute, median, p99",
        }
    }

    fn query(self, range: TimeRange) -> Query {
        let step_ns = 5 * MINUTE_NS;
        let quantiles = vec![0.5, 0.99];
        match self {
            HeavyQuery::Overview => {
                Query::Overview(Overview { range, quantiles, ..Overview::default() })
            }
            HeavyQuery::Bands => Query::Bands(Bands { range, step_ns, ..Bands::default() }),
            HeavyQuery::Heat => {
                Query::Heat(Heat { range, step_ns, rows_per_octave: 32, ..Heat::default() })
            }
            HeavyQuery::Availability => {
                Query::Availability(Availability { range, ..Availability::default() })
            }
            HeavyQuery::Points => Query::Series(SeriesPoints {
                range,
                step_ns: MINUTE_NS,
                filter: SeriesFilter {
                    ids: (0..POINT_SERIES).map(SeriesId).collect(),
                    ..SeriesFilter::default()
                },
                quantiles,
                ..SeriesPoints::default()
            }),
        }
    }
}

/// What an answer comes to: the same of each store, or something is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Checksum {
    pub rows: u64,
    /// Of the sums in it: probes sent, values in buckets, or time with loss, s.
    pub total: u64,
    /// Of the buckets of its last quantile.
    pub buckets: i64,
}

/// The range of a set of so many minutes: it is on no grid of hours, so that minutes answer.
pub fn range_of(minutes: i64) -> TimeRange {
    TimeRange { from_ns: BASE_NS + MINUTE_NS, to_ns: BASE_NS + (minutes - 4) * MINUTE_NS }
}

/// Another store that is asked the same.
pub trait OtherStore {
    /// Takes the rows of a minute.
    fn add(&mut self, rows: &[IntervalRow]) -> Result<()>;
    /// Puts in order what was taken; its size, octets.
    fn finish(&mut self) -> Result<u64>;
    /// Starts it again, with nothing of it in memory.
    fn cool(&mut self) -> Result<()>;
    /// Answers; the time that it took, ms.
    fn ask(&mut self, query: HeavyQuery, range: TimeRange) -> Result<(f64, Checksum)>;
}

/// Both sets.
pub fn bench(args: &Args) -> Result<()> {
    println!("\n## The heaviest queries over rows of one minute\n");
    let repeats = if args.short { 2 } else { 3 };
    let (shared, seconds) = if args.short { (15, 20.0) } else { (60, 150.0) };
    println!(
        "{} streams with {PROBES} round trips a minute each, exponential jitter, loss 0.1 %. Sonde is asked \
         by its reader, in one process; the API adds its JSON. PostgreSQL by `psql`, whose own times are \
         taken; ClickHouse by HTTP. Cold: the files of the store are in no cache, and the server was \
         just started; warm: the median of {repeats} more.\n",
        format_count(STREAMS)
    );
    alone(seconds, repeats)?;
    beside(shared, repeats)
}

/// Sonde over as many minutes as `seconds` of making them give.
fn alone(seconds: f64, repeats: usize) -> Result<()> {
    let folder = WorkFolder::new()?;
    let mut own = SondeStore::new(&folder.0)?;
    let (begin, mut minutes) = (Instant::now(), 0);
    while minutes < LEAST_MINUTES
        || (begin.elapsed().as_secs_f64() < seconds && own.octets() < MOST_OCTETS)
    {
        own.add_minute(&rows_of(minutes), minutes)?;
        minutes += 1;
        if minutes % 10 == 0 {
            eprintln!("{minutes} minutes, {} MB ...", own.octets() / 1_000_000);
        }
    }
    let took = begin.elapsed().as_secs_f64();
    let (rows, octets) = own.finish()?;
    println!(
        "### Sonde alone: {minutes} minutes, {} rows, {:.2} GB ({:.0} octets a row)\n",
        format_count(rows),
        octets as f64 / 1e9,
        octets as f64 / rows as f64
    );
    println!(
        "Making them took {took:.0} s. 30 days are {:.0} times as many rows: 864 million, {:.0} GB.\n",
        864e6 / rows as f64,
        864e6 * octets as f64 / rows as f64 / 1e9
    );
    println!("| query | cold, ms | warm, ms | warm, ms a million rows | rows read |");
    println!("|---|---|---|---|---|");
    for query in HeavyQuery::ALL {
        own.cool()?;
        let (cold, _, read) = own.ask(query, range_of(minutes))?;
        let mut times = Vec::new();
        for _ in 0..repeats {
            times.push(own.ask(query, range_of(minutes))?.0);
        }
        let warm = median(times);
        println!(
            "| {} | {cold:.0} | {warm:.0} | {:.0} | {} |",
            query.text(),
            warm * 1e6 / read as f64,
            format_count(read)
        );
    }
    Ok(())
}

/// All stores with the same rows.
fn beside(minutes: i64, repeats: usize) -> Result<()> {
    let folder = WorkFolder::new()?;
    let mut own = SondeStore::new(&folder.0)?;
    let mut others: Vec<(&'static str, Box<dyn OtherStore>)> = Vec::new();
    println!("\n### The same questions elsewhere: {minutes} minutes\n");
    match postgres::Postgres::start(&folder.0)? {
        Some(server) => others.push(("PostgreSQL", Box::new(server))),
        None => println!(
            "PostgreSQL is not installed (`apt-get install postgresql`), and is left out.\n"
        ),
    }
    match clickhouse::ClickHouse::start(&folder.0)? {
        Some(server) => others.push(("ClickHouse", Box::new(server))),
        None => println!(
            "ClickHouse is neither installed (`apt-get install clickhouse-server`) nor in the folder that \
             SONDE_CLICKHOUSE names, and is left out.\n"
        ),
    }
    let mut taken = vec![0.0; others.len() + 1];
    for minute in 0..minutes {
        if minute % 10 == 0 {
            eprintln!("minute {minute} of {minutes} ...");
        }
        let rows = rows_of(minute);
        let begin = Instant::now();
        own.add_minute(&rows, minute)?;
        taken[0] += begin.elapsed().as_secs_f64();
        for ((_, other), taken) in others.iter_mut().zip(&mut taken[1..]) {
            let begin = Instant::now();
            other.add(&rows)?;
            *taken += begin.elapsed().as_secs_f64();
        }
    }
    let (rows, octets) = own.finish()?;
    let mut sizes = vec![octets];
    for (_, other) in &mut others {
        sizes.push(other.finish()?);
    }
    let names: Vec<&str> = std::iter::once("Sonde").chain(others.iter().map(|(n, _)| *n)).collect();
    println!("| | octets a row | rows a second taken |\n|---|---|---|");
    for ((name, octets), taken) in names.iter().zip(&sizes).zip(&taken) {
        let rate = format_count((rows as f64 / taken) as u64);
        println!("| {name} | {:.0} | {rate} |", *octets as f64 / rows as f64);
    }
    println!(
        "\nOf six histograms a row Sonde keeps all, the others one; Sonde makes roll-ups besides.\n"
    );
    println!(
        "| query, {} rows | {} |",
        format_count(rows),
        names.iter().map(|n| format!("{n}, ms: cold, warm")).collect::<Vec<_>>().join(" | ")
            + &names[1..].iter().map(|n| format!(" | {n} / Sonde, warm")).collect::<String>()
    );
    println!("|---|{}", "---|".repeat(2 * names.len() - 1));
    let range = range_of(minutes);
    for query in HeavyQuery::ALL {
        eprintln!("{} ...", query.text());
        own.cool()?;
        let (cold, own_sum, _) = own.ask(query, range)?;
        let mut times: Vec<(f64, Vec<f64>)> = vec![(cold, Vec::new())];
        for (name, other) in &mut others {
            other.cool().with_context(|| format!("{name} is started again"))?;
            let (cold, sum) = other.ask(query, range).with_context(|| (*name).to_owned())?;
            agree(query, name, own_sum, sum)?;
            times.push((cold, Vec::new()));
        }
        for _ in 0..repeats {
            times[0].1.push(own.ask(query, range)?.0);
            for ((_, other), (_, warm)) in others.iter_mut().zip(&mut times[1..]) {
                warm.push(other.ask(query, range)?.0);
            }
        }
        let warm: Vec<f64> = times.iter().map(|(_, all)| median(all.iter().copied())).collect();
        print!("| {} ", query.text());
        times.iter().zip(&warm).for_each(|((cold, _), warm)| print!("| {cold:.0}, {warm:.0} "));
        warm[1..].iter().for_each(|other| print!("| {:.2} ", other / warm[0]));
        println!("|");
    }
    println!("\nThe answers agree in rows and sums; quantiles within a bucket (3.2 %) on average.");
    Ok(())
}

/// That two stores gave the same answer.
fn agree(query: HeavyQuery, name: &str, own: Checksum, other: Checksum) -> Result<()> {
    let apart = (own.buckets - other.buckets).unsigned_abs();
    ensure!(
        (own.rows, own.total) == (other.rows, other.total) && apart <= own.rows,
        "{query:?}: {name} answers {other:?}, Sonde {own:?}"
    );
    Ok(())
}

/// The rows of a minute: each stream's.
fn rows_of(minute: i64) -> Vec<IntervalRow> {
    let mut random = Random(minute.unsigned_abs() + 1);
    let mut rows = Vec::with_capacity(STREAMS as usize);
    for stream in 0..STREAMS as u32 {
        let base = 1e5 * 1_000f64.powf(f64::from(stream) / STREAMS as f64);
        let mut record = interval(&mut random, base, minute * 60, PROBES, false);
        record.end_ns = record.start_ns + MINUTE_NS;
        rows.push(IntervalRow::new(SeriesId(stream), &record));
    }
    rows
}

/// Sonde's own store.
struct SondeStore {
    store: Store,
    writer: Box<dyn sonde_store::Writer>,
    folder: std::path::PathBuf,
    reader: EmbeddedReader,
}

impl SondeStore {
    fn new(folder: &Path) -> Result<SondeStore> {
        let folder = folder.join("sonde");
        // Rows at the full rate are in those of minutes, one to one.
        let tables = [(Table::Interval, KeepTable { age_ns: Some(HOUR_NS / 6), octets: None })];
        let retention = Retention { tables: tables.into(), floor_octets: 0 };
        let store = Store::open(&folder, StoreOptions { retention, ..StoreOptions::default() })?;
        let labels = |stream: u64| SeriesLabels {
            target: (stream / 5).to_string(),
            class: (stream % 5).to_string(),
            module: sonde_store::series::MODULE_STAMP.to_owned(),
            ..SeriesLabels::default()
        };
        store.register_all(&(0..STREAMS).map(labels).collect::<Vec<_>>())?;
        let writer: Box<dyn sonde_store::Writer> = Box::new(store.writer()?);
        let reader = EmbeddedReader::open(&folder, None)?;
        Ok(SondeStore { store, writer, folder, reader })
    }

    fn add_minute(&mut self, rows: &[IntervalRow], minute: i64) -> Result<()> {
        let rows = Rows::Intervals(rows.to_vec()).into();
        let number = minute.unsigned_abs() + 1;
        self.writer.append(&Batch { writer: "perf".into(), number, rows })?;
        self.writer.sync()?;
        self.store.maintain(BASE_NS + (minute + 1) * MINUTE_NS, None)?;
        Ok(())
    }

    fn octets(&self) -> u64 {
        let minutes = self.store.state().into_iter().filter(|t| t.table == Table::Interval1m);
        minutes.map(|t| t.octets).sum()
    }

    /// Rows of minutes, and their octets.
    fn finish(&mut self) -> Result<(u64, u64)> {
        self.store.flush()?;
        // As it is once the hours are over.
        let state = self.store.state();
        let last = state.iter().map(|t| t.times_ns.1).max().unwrap_or(BASE_NS);
        self.store.maintain(last + 2 * HOUR_NS, None)?;
        let state = self.store.state();
        let minutes = state.iter().find(|t| t.table == Table::Interval1m);
        minutes.map(|t| (t.rows, t.octets)).context("there are no rows of minutes")
    }

    fn cool(&mut self) -> Result<()> {
        self.reader = EmbeddedReader::open(&self.folder, None)?;
        forget(&self.folder)
    }

    /// The time, ms; what the answer comes to; rows that were read.
    fn ask(&mut self, query: HeavyQuery, range: TimeRange) -> Result<(f64, Checksum, u64)> {
        let limit = Limit { scanned_rows: u64::MAX, answer_rows: u64::MAX, ..Limit::default() };
        let asked = query.query(range);
        let begin = Instant::now();
        let response = self.reader.query(&asked, &limit)?;
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        let level = response.level;
        ensure!(level == Some(Table::Interval1m), "{query:?} was answered by {level:?}");
        Ok((ms, checksum(&response.answer)?, response.scanned_rows))
    }
}

fn checksum(answer: &Answer) -> Result<Checksum> {
    let bucket = |quantiles: &[Option<i64>]| {
        quantiles.last().copied().flatten().map_or(0, |ns| i64::from(bucket_of(ns)))
    };
    let mut sum = Checksum::default();
    match answer {
        Answer::Overview(rows) => {
            for row in rows {
                sum.rows += 1;
                sum.total += row.summary.sent;
                sum.buckets += bucket(&row.summary.quantiles_ns);
            }
        }
        Answer::Bands(points) => {
            for point in &points.points {
                sum.rows += 1;
                sum.total += point.sent;
                sum.buckets += bucket(&point.quantiles_ns);
            }
        }
        Answer::Series(tables) => {
            for point in tables.iter().flat_map(|table| &table.points.points) {
                sum.rows += 1;
                sum.total += point.sent;
                sum.buckets += bucket(&point.quantiles_ns);
            }
        }
        Answer::Heat(map) => {
            sum.rows = map.cells.len() as u64;
            sum.total = map.cells.iter().map(|cell| cell.2).sum();
        }
        Answer::Availability(rows) => {
            sum.rows = rows.len() as u64;
            sum.total = rows.iter().map(|row| row.lossy_ns.unsigned_abs() / 1_000_000_000).sum();
        }
        _ => anyhow::bail!("an answer to no question of these"),
    }
    Ok(sum)
}

/// Lets the kernel drop what it holds of the files in a folder and its folders.
pub fn forget(folder: &Path) -> Result<()> {
    let synced = Command::new("sync").arg("-f").arg(folder).status()?;
    ensure!(synced.success(), "{} cannot be synced", folder.display());
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)?.flatten() {
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                // No octet is read, and the whole file is dropped (dd(1), nocache).
                let mut dd = Command::new("dd");
                dd.arg(format!("if={}", path.display())).args(["iflag=nocache", "count=0"]);
                let done = dd.stdin(Stdio::null()).stderr(Stdio::null()).status()?;
                ensure!(done.success() || !path.exists(), "dd cannot open {}", path.display());
            }
        }
    }
    Ok(())
}

/// Columns of a row that the other stores keep, between `tab`s: series, second, sent, lost, time with
/// loss, and the buckets of `rtt_net` with their counts, in brackets.
fn line(row: &IntervalRow, [open, close]: [char; 2], out: &mut String) {
    use std::fmt::Write as _;
    let s = 1_000_000_000;
    let seconds = (row.start_ns / s, row.lossy_ns / s);
    let _ =
        write!(out, "{}\t{}\t{}\t{}\t{}", row.series.0, seconds.0, row.sent, row.lost, seconds.1);
    let buckets: BTreeMap<i16, u64> = row.rtt_net.buckets().collect();
    let mut list = |values: &mut dyn Iterator<Item = i64>| {
        let _ = write!(out, "\t{open}");
        for (n, value) in values.enumerate() {
            let _ = write!(out, "{}{value}", if n > 0 { "," } else { "" });
        }
        out.push(close);
    };
    list(&mut buckets.keys().map(|&bucket| bucket.into()));
    list(&mut buckets.values().map(|&n| n as i64));
    out.push('\n');
}

/// Round trips of a stream in a minute.
const PROBES: u64 = 20;
const POINT_SERIES: u32 = 200;
const LEAST_MINUTES: i64 = 10;
const MOST_OCTETS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_written_as_both_servers_read_it() {
        let mut random = Random(1);
        let row = IntervalRow::new(SeriesId(3), &interval(&mut random, 1e6, 60, 4, false));
        let mut text = String::new();
        line(&row, ['{', '}'], &mut text);
        let fields: Vec<&str> = text.trim_end().split('\t').collect();
        assert_eq!(fields[..4], ["3", "1795651260", "4", "0"]);
        let counts: Vec<u64> =
            fields[6].trim_matches(['{', '}']).split(',').map(|n| n.parse().unwrap()).collect();
        assert_eq!(counts.iter().sum::<u64>(), 4);
        assert_eq!(counts.len(), fields[5].split(',').count());
    }

    #[test]
    fn answers_that_differ_are_refused() {
        let own = Checksum { rows: 10, total: 100, buckets: 1_000 };
        agree(HeavyQuery::Heat, "x", own, Checksum { buckets: 1_010, ..own }).unwrap();
        for other in [
            Checksum { rows: 9, ..own },
            Checksum { total: 101, ..own },
            Checksum { buckets: 989, ..own },
        ] {
            assert!(agree(HeavyQuery::Heat, "x", own, other).is_err(), "{other:?}");
        }
    }
}
