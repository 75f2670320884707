//! `sonde query`: what a station's store has, also while the station writes.

pub mod flows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use serde_json::json;
use sonde_report::quantity::show;
use sonde_results::units::{
    SECOND, format_count, format_duration, format_ns_or_dash, format_share, parse_positive_duration,
};
use sonde_results::{Caveat, civil_time};
use sonde_run::running::Stop;
use sonde_station::runs::{KeptRun, KeptRuns};
use sonde_store::query::{
    EventList, EventRow, Overview, OverviewRow, RttFigures, RttOrder, RttTop, RttTopTable,
    TimeRange,
};
use sonde_store::{
    Answer, Limit, Query, Reader, Response, SeriesFilter, SeriesId, SeriesLabels, SqlTable,
    StoreError,
};
use sonde_sys::clock::{steady_now, unix_now_ns};

use crate::exit::{Exit, Failure};
use crate::output::style::{Style, Tone, terminal_size};
use crate::output::text_table::{TextColumn, TextTable};
use crate::store_place::StoreArgs;
use sonde_results::plain_text::plain;

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct QueryArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Give up after this time
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        default_value = "60s",
        value_parser = parse_positive_duration
    )]
    pub timeout: i64,
    #[command(subcommand)]
    pub question: Question,
}

/// What is asked.
#[derive(Subcommand, Debug)]
pub enum Question {
    /// Loss and round-trip times of each series, or of groups of them
    Overview {
        /// Of so much time until now
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_positive_duration)]
        last: i64,
        /// Group by these labels, as target,class; without it each series is a row
        #[arg(long, value_name = "LABELS", value_delimiter = ',')]
        by: Vec<String>,
        /// Only series with this label, as class=EF; may be given more than once
        #[arg(long, value_name = "LABEL=VALUE", value_parser = label)]
        only: Vec<(String, String)>,
    },
    /// Passive round trips: the groups that stand out
    Rtt {
        /// Of so much time until now
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_positive_duration)]
        last: i64,
        /// The most samples first, not the slowest
        #[arg(long)]
        most_samples: bool,
        /// Groups with fewer samples count to the rest
        #[arg(long, value_name = "N", default_value_t = 1)]
        least: u64,
        /// So many groups
        #[arg(long, value_name = "N", default_value_t = 20)]
        most: usize,
        /// Only this group, as 192.0.2.0/24; may be given more than once
        #[arg(long, value_name = "GROUP")]
        group: Vec<String>,
        /// Only series with this label, as target=rtt.uplink; may be given more than once
        #[arg(long, value_name = "LABEL=VALUE", value_parser = label)]
        only: Vec<(String, String)>,
    },
    /// The largest groups of flows over time, and all others as one
    Flows(Box<flows::FlowsArgs>),
    /// One SELECT over series, segments, events and roll-ups, as docs/store.md names them
    Sql {
        /// As "SELECT target, sum(lost) FROM iv1h JOIN series ON id = series GROUP BY 1"
        #[arg(value_name = "SELECT")]
        text: String,
        /// Of roll-ups the rows of so much time until now
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_positive_duration)]
        last: i64,
    },
    /// What happened: breaches, outages, losses located, gaps, units that failed and recovered
    Events {
        /// Of so much time until now
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_positive_duration)]
        last: i64,
    },
    /// Runs of benchmarks that are kept in the folder `runs` of the store, the newest first
    Runs,
    /// Any of the store's queries, as JSON; the answer is JSON
    Json {
        /// As {"query": "overview", "range": {"from_ns": 0, "to_ns": 1}}
        #[arg(value_name = "QUERY")]
        query: String,
    },
}

/// Asks, and prints the answer.
pub fn run(args: &QueryArgs) -> Result<Exit, Failure> {
    if matches!(args.question, Question::Runs) {
        // They need no store beside them.
        return runs(args);
    }
    let reader = args.store.open()?;
    let reader = &*reader;
    if let Question::Overview { by, only, .. } = &args.question
        && !args.json
        && let Some(why) = absent(reader, by, only)?
    {
        errln!(INFO, "{why}");
        return Ok(Exit::Negative);
    }
    if let Question::Rtt { only, .. } = &args.question
        && !args.json
        && let Some(why) = absent(reader, &[], only)?
    {
        errln!(INFO, "{why}");
        return Ok(Exit::Negative);
    }
    let limit = limit(Some(args.timeout), crate::signals::stop()?);
    let now_ns = unix_now_ns();
    let range = |last: i64| TimeRange { from_ns: now_ns.saturating_sub(last), to_ns: now_ns };
    let (query, by) = match &args.question {
        Question::Overview { last, by, only } => {
            let labels: BTreeMap<String, String> = only.iter().cloned().collect();
            let filter = SeriesFilter { labels, ..SeriesFilter::default() };
            let overview = Overview {
                range: range(*last),
                filter,
                by: by.clone(),
                quantiles: QUANTILES.to_vec(),
                ..Overview::default()
            };
            (Query::Overview(overview), by.as_slice())
        }
        Question::Rtt { last, most_samples, least, most, group, only } => {
            let labels = only.iter().cloned().collect();
            let top = RttTop {
                range: range(*last),
                filter: SeriesFilter { labels, groups: group.clone(), ..SeriesFilter::default() },
                order: if *most_samples { RttOrder::Samples } else { RttOrder::Slowest },
                least_samples: *least,
                quantiles: QUANTILES.to_vec(),
                most: *most,
                ..RttTop::default()
            };
            (Query::RttTop(top), &[][..])
        }
        Question::Flows(flows) => (Query::FlowPoints(flows.query(now_ns)), &[][..]),
        Question::Events { last } => {
            (Query::Events(EventList { range: range(*last), ..EventList::default() }), &[][..])
        }
        Question::Sql { text, last } => {
            let table = reader.sql(text, range(*last), &limit).map_err(failed)?;
            return sql(reader, &table, args.json);
        }
        Question::Runs => return runs(args),
        Question::Json { query } => {
            let why = "the query is none; 'sonde query --help' has an example";
            (serde_json::from_str(query).context(why).map_err(Failure::Usage)?, &[][..])
        }
    };
    let response = reader.query(&query, &limit).map_err(failed)?;
    if args.json || matches!(args.question, Question::Json { .. }) {
        outln!("{}", serde_json::to_string(&response).context("the answer as JSON")?);
    } else if let (Question::Flows(flows), Answer::FlowPoints(table)) =
        (&args.question, &response.answer)
    {
        flows.print(table, &response);
    } else {
        print(&response, by, reader);
        if response.damaged_segments > 0 {
            let n = format_count(response.damaged_segments);
            outln!("of a part of the data: {n} damaged segments are not in it");
        }
    }
    missing(reader, response.damaged_segments);
    Ok(exit_of(response.damaged_segments, is_empty(&response.answer)))
}

fn runs(args: &QueryArgs) -> Result<Exit, Failure> {
    let folder = &args.store.store;
    if folder.contains("://") {
        let why =
            "runs are kept in a folder: give the station's store, not the address of its server";
        return Err(Failure::Usage(anyhow!(why)));
    }
    let all = KeptRuns::of_store(Path::new(folder)).list();
    let state = |kept: &KeptRun| match (kept.under_way, kept.is_finished()) {
        (true, _) => "running",
        (false, true) => "finished",
        (false, false) => "interrupted",
    };
    if args.json {
        let entries: Vec<serde_json::Value> = all
            .iter()
            .map(|kept| {
                let (begin_ns, end_ns) = kept.times_ns();
                let key = kept.key_result().map(|(id, of)| json!({"measurement": id, "value": of}));
                json!({
                    "id": kept.id,
                    "title": kept.run.config.title,
                    "begin_ns": begin_ns,
                    "end_ns": end_ns,
                    "state": state(kept),
                    "devices": kept.devices(),
                    "measured": kept.run.measurements.len(),
                    "planned": kept.run.config.measurements_planned,
                    "result": key,
                })
            })
            .collect();
        outln!("{}", json!({ "runs": entries }));
    } else {
        for kept in &all {
            let (begin_ns, _) = kept.times_ns();
            let done = kept.run.measurements.len();
            let planned = kept.run.config.measurements_planned;
            let (id, title, state) = (&kept.id, plain(&kept.run.config.title), state(kept));
            let devices = kept.devices().join(", ");
            outln!(
                "{id}: {title}; {}, {state}, {done} of {planned}; {}",
                civil_time::plain(begin_ns),
                plain(&devices)
            );
            if let Some((measurement, of)) = kept.key_result() {
                let value = show(of.value, &of.unit);
                outln!("  {}: {} {value}", plain(measurement), plain(&of.name));
            }
        }
    }
    Ok(if all.is_empty() { Exit::Negative } else { Exit::Ok })
}

/// What a question may cost: until Ctrl-C, or for so many ns.
pub fn limit(timeout: Option<i64>, stop: Stop) -> Limit {
    let ended = Arc::new(AtomicBool::new(false));
    let limit = Limit { stop: Some(ended.clone()), ..Limit::default() };
    let patience = timeout.map_or(Duration::MAX, |ns| Duration::from_nanos(ns.unsigned_abs()));
    // A query looks at a flag of its own.
    std::thread::spawn(move || {
        let begin = steady_now();
        let left = || {
            let gone = (steady_now() - begin).max(0).unsigned_abs();
            patience.saturating_sub(Duration::from_nanos(gone))
        };
        while !left().is_zero() && !stop.wait(left().min(Duration::from_secs(1))) {}
        ended.store(true, Ordering::Relaxed);
    });
    limit
}

fn sql(reader: &dyn Reader, table: &SqlTable, json: bool) -> Result<Exit, Failure> {
    if json {
        outln!("{}", serde_json::to_string(table).context("the answer as JSON")?);
    } else {
        // As CSV: a terminal shows it, and programs read it.
        let line = |cells: &mut dyn Iterator<Item = String>| {
            let quoted = |cell: String| match cell.contains([',', '"', '\n', '\r']) {
                true => format!("\"{}\"", cell.replace('"', "\"\"")),
                false => cell,
            };
            outln!("{}", cells.map(quoted).collect::<Vec<_>>().join(","));
        };
        line(&mut table.columns.iter().cloned());
        for row in &table.rows {
            line(&mut row.iter().map(ToString::to_string));
        }
    }
    missing(reader, table.damaged_segments);
    Ok(exit_of(table.damaged_segments, table.rows.is_empty()))
}

/// Says what is missing in an answer, and the next step.
pub fn missing(reader: &dyn Reader, damaged_segments: u64) {
    if damaged_segments > 0 {
        let n = format_count(damaged_segments);
        let names = reader.damaged();
        let names =
            if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        sonde_errln!(
            WARN,
            "damaged segments, whose rows are missing: {n}{names}; a running station sets them \
             aside, with an event; a back-up may have them"
        );
    }
}

/// The exit code of an answer: one of a part of the data is that, even where it is empty.
pub fn exit_of(damaged_segments: u64, is_empty: bool) -> Exit {
    match (damaged_segments, is_empty) {
        (0, false) => Exit::Ok,
        (0, true) => Exit::Negative,
        _ => Exit::NotSaved,
    }
}

fn is_empty(answer: &Answer) -> bool {
    match answer {
        Answer::Overview(rows) => rows.iter().all(|row| row.summary.intervals == 0),
        Answer::RttTop(table) => table.rows.is_empty() && table.other_groups == 0,
        Answer::FlowPoints(table) => flows::is_empty(table),
        _ => false,
    }
}

pub fn failed(error: StoreError) -> Failure {
    match error {
        StoreError::Query { .. } => Failure::Usage(anyhow!(error)),
        error => Failure::CannotRun(anyhow!(error)),
    }
}

/// What no series of a store has of these labels: a value; `None`: all is there.
///
/// # Errors
/// A label that no series has is wrong usage.
pub fn absent(
    reader: &dyn Reader,
    by: &[String],
    only: &[(String, String)],
) -> Result<Option<String>, Failure> {
    let all: Vec<SeriesLabels> =
        reader.series().map_err(failed)?.into_iter().map(|series| series.labels).collect();
    absent_of(&all, by, only).map_err(|why| Failure::Usage(anyhow!(why)))
}

fn absent_of(
    all: &[SeriesLabels],
    by: &[String],
    only: &[(String, String)],
) -> Result<Option<String>, String> {
    let own = all.iter().flat_map(|labels| labels.free.keys().map(String::as_str));
    let names: BTreeSet<&str> = LABELS.into_iter().chain(own).collect();
    let asked = by.iter().chain(only.iter().map(|(name, _)| name));
    // A store that has nothing yet knows no labels of its user.
    if let Some(name) = asked.into_iter().find(|n| !all.is_empty() && !names.contains(n.as_str())) {
        let names: Vec<&str> = names.into_iter().collect();
        return Err(format!("no series has a label '{name}'; there are {}", names.join(", ")));
    }
    for (name, value) in only.iter().filter(|_| !all.is_empty()) {
        let values: BTreeSet<String> = all.iter().filter_map(|labels| labels.get(name)).collect();
        if values.contains(value) {
            continue;
        }
        let more = values.len().saturating_sub(VALUES_SHOWN);
        let shown: Vec<String> =
            values.iter().take(VALUES_SHOWN).map(|v| plain(v).into_owned()).collect();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let shown = shown.join(", ");
        return Ok(Some(format!("no series has {name}={value}; there are {shown}{more}")));
    }
    Ok(None)
}

fn print(response: &Response, by: &[String], reader: &dyn Reader) {
    match &response.answer {
        Answer::Overview(rows) => overview(rows, by, reader, response),
        Answer::RttTop(table) => rtt_top(table, reader, response),
        Answer::Events(rows) => rows.iter().for_each(event),
        _ => {}
    }
}

fn overview(rows: &[OverviewRow], by: &[String], reader: &dyn Reader, response: &Response) {
    let rows: Vec<&OverviewRow> = rows.iter().filter(|row| row.summary.intervals > 0).collect();
    if rows.is_empty() {
        nothing(response);
        return;
    }
    let series: BTreeMap<u32, String> = reader
        .series()
        .unwrap_or_default()
        .into_iter()
        .map(|s| (s.id.0, format!("{} {}", s.labels.target, s.labels.class)))
        .collect();
    let name = |row: &OverviewRow| match row.series {
        Some(id) => series.get(&id.0).cloned().unwrap_or_default(),
        None => row.group.join(" "),
    };
    let head = if by.is_empty() { "series" } else { "group" };
    let column = |head, rank, cell: &dyn Fn(&OverviewRow) -> String| TextColumn {
        head,
        rank,
        left: false,
        cells: rows.iter().map(|row| cell(row)).collect(),
    };
    let quantile = |row: &OverviewRow, n: usize| {
        format_ns_or_dash(row.summary.quantiles_ns.get(n).copied().flatten())
    };
    let mut table = TextTable::new([
        TextColumn { left: true, ..column(head, 0, &name) },
        column("sent", 2, &|row| format_count(row.summary.sent)),
        column("lost", 0, &|row| format_count(row.summary.lost)),
        column("loss", 0, &|row| format_share(row.summary.lost, row.summary.sent)),
        column("min", 3, &|row| format_ns_or_dash(row.summary.min_ns)),
        column("p50", 0, &|row| quantile(row, 0)),
        column("p99", 0, &|row| quantile(row, 1)),
        column("max", 3, &|row| format_ns_or_dash(row.summary.max_ns)),
        column("n", 2, &|row| format_count(row.summary.n)),
        column("doubtful", 1, &|row| doubts(&row.summary.caveats, row.summary.intervals)),
    ]);
    let (width, style) = (terminal_size().0, Style::for_stdout());
    table.leave_out(width, 1);
    table.cut_first(width, NAME_LEAST);
    table.lines(width, style, |_, _| Tone::Plain).iter().for_each(|line| outln!("{line}"));
}

fn nothing(response: &Response) {
    let span = response.range.to_ns.saturating_sub(response.range.from_ns);
    let span = format_duration(span / SECOND * SECOND);
    errln!(INFO, "nothing was measured in the last {span}; --last asks for more");
}

fn rtt_top(table: &RttTopTable, reader: &dyn Reader, response: &Response) {
    if table.rows.is_empty() && table.other_groups == 0 {
        nothing(response);
        return;
    }
    let series = reader.series().unwrap_or_default();
    let unit = |id: SeriesId| {
        series.iter().find(|s| s.id == id).map_or("", |s| &s.labels.target).to_owned()
    };
    let others = format!("others: {}", format_count(table.other_groups));
    let rows = table.rows.iter().map(|row| (row.group.clone(), unit(row.series), &row.figures));
    let other = (table.other_groups > 0).then(|| (others, String::new(), &table.other));
    let rows: Vec<(String, String, &RttFigures)> = rows.chain(other).collect();
    let column = |head, rank, cell: &dyn Fn(&RttFigures) -> String| TextColumn {
        head,
        rank,
        left: false,
        cells: rows.iter().map(|(_, _, figures)| cell(figures)).collect(),
    };
    let text = |head, rank, cell: &dyn Fn(&(String, String, &RttFigures)) -> String| TextColumn {
        head,
        rank,
        left: true,
        cells: rows.iter().map(cell).collect(),
    };
    let quantile = |figures: &RttFigures, n: usize| {
        format_ns_or_dash(figures.quantiles_ns.get(n).copied().flatten())
    };
    let mut table = TextTable::new([
        text("group", 0, &|row| row.0.clone()),
        text("unit", 2, &|row| row.1.clone()),
        column("min", 0, &|f| format_ns_or_dash(f.min_ns)),
        column("p50", 0, &|f| quantile(f, 0)),
        column("p99", 0, &|f| quantile(f, 1)),
        column("max", 3, &|f| format_ns_or_dash(f.max_ns)),
        column("n", 0, &|f| format_count(f.n)),
        column("recovery", 3, &|f| format_count(f.recovery)),
        column("delayed", 3, &|f| format_count(f.delayed_ack)),
        column("doubtful", 1, &|f| doubts(&f.caveats, f.intervals)),
    ]);
    let (width, style) = (terminal_size().0, Style::for_stdout());
    table.leave_out(width, 1);
    table.cut_first(width, NAME_LEAST);
    table.lines(width, style, |_, _| Tone::Plain).iter().for_each(|line| outln!("{line}"));
}

/// Of how many intervals the commonest caveat is true.
fn doubts(caveats: &[(Caveat, u64)], intervals: u64) -> String {
    let worst = caveats.iter().max_by_key(|(_, n)| *n);
    worst.map_or("-".into(), |(caveat, n)| {
        let name = serde_json::to_value(caveat).unwrap_or_default();
        let name = name.as_str().unwrap_or_default();
        format!("{} {name}", format_share(*n, intervals))
    })
}

fn event(row: &EventRow) {
    let event = &row.event;
    let begin = civil_time::plain(event.begin_ns);
    let lasted = match event.end_ns {
        None => ", goes on".to_owned(),
        Some(end) if end > event.begin_ns => {
            format!(", {} long", crate::status::lasted(end - event.begin_ns))
        }
        Some(_) => String::new(),
    };
    outln!("{begin}{lasted}: {} ({})", event.title, event.severity.name());
    let text = event.evidence.get("text").and_then(serde_json::Value::as_str).unwrap_or_default();
    if !text.is_empty() {
        outln!("    {text}");
    }
}

pub fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write LABEL=VALUE, as class=EF")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The names of all labels but the user's own.
const LABELS: [&str; 8] = [
    "station",
    "site",
    "target",
    "class",
    "module",
    "direction",
    "source_port",
    "destination_port",
];
/// Values of a label that are named where another is not there.
const VALUES_SHOWN: usize = 10;
/// What a row is of is cut to this length at least, columns.
const NAME_LEAST: usize = 6;
/// Those of the table.
const QUANTILES: [f64; 2] = [0.5, 0.99];

const HELP: &str = "\
Example:
  sonde query overview --last 15m --by target,class
  sonde query overview --only class=EF --json
  sonde query rtt --last 1d --least 100
  sonde query flows --last 1d --by app,dst-net --rank max
  sonde query events --last 7d
  sonde query runs
  sonde query sql 'SELECT target, sum(lost) FROM iv1h JOIN series ON id = series GROUP BY 1'
Labels are station, site, target, class, module, direction, source_port, destination_port, unit and
address. A percentile of a group is that of all its samples. The store may be written meanwhile.
Of a ClickHouse SQL is its own dialect, over all rows.
Exit codes: 0 answered, 1 nothing was measured in that time, 2 usage, 3 the store cannot be read,
4 answered from a part of the data: segments are damaged.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_values_that_no_series_has_are_told_with_those_that_are_there() {
        let labels = |n: usize| SeriesLabels {
            target: format!("t{n:02}"),
            class: "EF".into(),
            free: BTreeMap::from([("customer".into(), "acme".into())]),
            ..SeriesLabels::default()
        };
        let all: Vec<SeriesLabels> = (0..12).map(labels).collect();
        let of = |by: &[&str], only: &[(&str, &str)]| {
            let by: Vec<String> = by.iter().map(|name| (*name).to_owned()).collect();
            let only: Vec<(String, String)> =
                only.iter().map(|(name, v)| ((*name).to_owned(), (*v).to_owned())).collect();
            absent_of(&all, &by, &only)
        };
        assert_eq!(of(&["target", "customer"], &[("class", "EF"), ("site", "")]), Ok(None));
        assert!(LABELS.iter().all(|name| labels(0).get(name).is_some()));
        let wrong = "no series has a label 'tarket'; there are class, customer, destination_port, \
                     direction, module, site, source_port, station, target";
        assert_eq!(of(&["tarket"], &[]), Err(wrong.to_owned()));
        assert_eq!(of(&[], &[("tarket", "x")]), Err(wrong.to_owned()));
        let why = "no series has class=ef; there are EF";
        assert_eq!(of(&[], &[("class", "ef")]), Ok(Some(why.to_owned())));
        let many = of(&[], &[("target", "x")]).unwrap().unwrap();
        assert!(many.ends_with("t08, t09 and 2 more"), "{many}");
        assert_eq!(absent_of(&[], &["tarket".into()], &[]), Ok(None));
    }
}
