//! `sonde query flows`: the largest groups of flows over time.

use clap::{Args, ValueEnum};
use sonde_results::units::{
    format_count, format_duration, format_number, format_share, parse_positive_duration,
};
use sonde_store::query::{
    FlowDimension, FlowMeasure, FlowPointRank, FlowPointRow, FlowPointTable, FlowPoints, TimeRange,
};
use sonde_store::{Response, SeriesFilter};

use super::{NAME_LEAST, label, nothing};
use crate::output::sparkline::line;
use crate::output::style::{Style, Tone, terminal_size};
use crate::output::text_table::{TextColumn, TextTable};

#[derive(Args, Debug)]
pub struct FlowsArgs {
    /// Of so much time until now
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_positive_duration)]
    pub last: i64,
    /// Length of a window; of 5m and more roll-ups answer [default: at most 60 windows]
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub step: Option<i64>,
    /// What flows of a row have in common, 1 to 4
    #[arg(long, value_enum, value_name = "FIELDS", value_delimiter = ',', default_value = "app")]
    pub by: Vec<FlowBy>,
    /// What is counted
    #[arg(long, value_enum, value_name = "UNIT", default_value = "bps")]
    pub unit: FlowRateUnit,
    /// Of which time the rows are the largest
    #[arg(long, value_enum, value_name = "RANK", default_value = "mean")]
    pub rank: FlowsRank,
    /// So many rows; the rest is one
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub most: usize,
    /// Only flows with this value, as port=443; may be given more than once
    #[arg(long = "flow", value_name = "FIELD=VALUE", value_parser = flow_value)]
    pub flows: Vec<(FlowBy, String)>,
    /// Only series with this label, as target=flow.edge; may be given more than once
    #[arg(long, value_name = "LABEL=VALUE", value_parser = label)]
    pub only: Vec<(String, String)>,
}

/// What flows may have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlowBy {
    /// The unit that exported them
    Exporter,
    /// The index of the interface
    Interface,
    /// The number of the IP protocol
    Protocol,
    /// The service's port; of ICMP type and code
    Port,
    /// The application
    App,
    /// The source's network, /24 or /48
    SrcNet,
    /// The destination's network, /24 or /48
    DstNet,
    /// The source's address, as long as single records are kept
    Src,
    /// The destination's address, likewise
    Dst,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlowRateUnit {
    /// Bits a second of IP, both directions
    Bps,
    /// Packets a second, both directions
    Pps,
    /// Flow records a second
    Fps,
}

/// Of which time the rows are the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlowsRank {
    /// All of it
    Mean,
    /// Their greatest window
    Max,
    /// The last window
    Last,
}

fn flow_value(text: &str) -> Result<(FlowBy, String), String> {
    let (field, value) = text.split_once('=').ok_or("write FIELD=VALUE, as port=443")?;
    Ok((FlowBy::from_str(field, false)?, value.to_owned()))
}

fn dimension(by: FlowBy) -> FlowDimension {
    match by {
        FlowBy::Exporter => FlowDimension::Exporter,
        FlowBy::Interface => FlowDimension::Point,
        FlowBy::Protocol => FlowDimension::Protocol,
        FlowBy::Port => FlowDimension::ServicePort,
        FlowBy::App => FlowDimension::App,
        FlowBy::SrcNet => FlowDimension::SourceNet,
        FlowBy::DstNet => FlowDimension::DestinationNet,
        FlowBy::Src => FlowDimension::Source,
        FlowBy::Dst => FlowDimension::Destination,
    }
}

impl FlowsArgs {
    /// The question, at `now_ns`.
    pub fn query(&self, now_ns: i64) -> FlowPoints {
        let step_ns = self.step.unwrap_or_else(|| {
            let fits = |step: &i64| self.last <= step.saturating_mul(WINDOWS);
            let steps = STEPS.iter().map(|seconds| seconds * 1_000_000_000);
            steps.clone().find(fits).unwrap_or(STEPS[STEPS.len() - 1] * 1_000_000_000)
        });
        // Whole windows, so that roll-ups answer.
        let to_ns = now_ns.saturating_add((-now_ns).rem_euclid(step_ns));
        let length = self.last.saturating_add((-self.last).rem_euclid(step_ns));
        FlowPoints {
            range: TimeRange { from_ns: to_ns.saturating_sub(length), to_ns },
            step_ns,
            filter: SeriesFilter {
                labels: self.only.iter().cloned().collect(),
                ..SeriesFilter::default()
            },
            by: self.by.iter().map(|&by| dimension(by)).collect(),
            only: self.flows.iter().map(|(by, value)| (dimension(*by), value.clone())).collect(),
            measure: match self.unit {
                FlowRateUnit::Bps => FlowMeasure::Bytes,
                FlowRateUnit::Pps => FlowMeasure::Packets,
                FlowRateUnit::Fps => FlowMeasure::Flows,
            },
            rank: match self.rank {
                FlowsRank::Mean => FlowPointRank::Mean,
                FlowsRank::Max => FlowPointRank::Max,
                FlowsRank::Last => FlowPointRank::Last,
            },
            most: self.most,
            ..FlowPoints::default()
        }
    }

    /// Prints the answer.
    pub fn print(&self, found: &FlowPointTable, response: &Response) {
        if is_empty(found) {
            nothing(response);
            return;
        }
        let (width, style) = (terminal_size().0, Style::for_stdout());
        let mut table = self.table(found, response.range);
        table.leave_out(width, 1);
        table.cut_first(width, NAME_LEAST);
        table.lines(width, style, |_, _| Tone::Plain).iter().for_each(|line| outln!("{line}"));
        let step = match found.starts_ns[..] {
            [first, second, ..] => second - first,
            _ => response.range.to_ns - response.range.from_ns,
        };
        outln!("windows of {}; the last ones miss flows that last", format_duration(step));
    }

    fn table(&self, found: &FlowPointTable, range: TimeRange) -> TextTable {
        let rows: Vec<&FlowPointRow> =
            found.rows.iter().chain(Some(&found.other).filter(|row| has_some(row))).collect();
        let counts = |row: &FlowPointRow| match self.unit {
            FlowRateUnit::Bps => row.bytes.clone(),
            FlowRateUnit::Pps => row.packets.clone(),
            FlowRateUnit::Fps => row.flows.clone(),
        };
        let (head, weight) = match self.unit {
            FlowRateUnit::Bps => ("bit/s", 8.0),
            FlowRateUnit::Pps => ("packets/s", 1.0),
            FlowRateUnit::Fps => ("flows/s", 1.0),
        };
        let total = |row: &FlowPointRow| counts(row).iter().sum::<u64>();
        let all: u64 = rows.iter().map(|row| total(row)).sum();
        let windows = found.starts_ns.len();
        let seconds = (range.to_ns - range.from_ns) as f64 / 1e9;
        let of_window = seconds / windows.max(1) as f64;
        let rate = |count: u64, seconds: f64| format_number(count as f64 * weight / seconds);
        let column = |head, rank, cell: &dyn Fn(&FlowPointRow) -> String| TextColumn {
            head,
            rank,
            left: false,
            cells: rows.iter().map(|row| cell(row)).collect(),
        };
        let name = |row: &FlowPointRow| match row.values.is_empty() {
            true => "others".to_owned(),
            false => {
                let plain = |value: &String| if value.is_empty() { "-" } else { value }.to_owned();
                row.values.iter().map(plain).collect::<Vec<_>>().join(" ")
            }
        };
        TextTable::new([
            TextColumn { left: true, ..column("flows of", 0, &name) },
            column(head, 0, &|row| rate(total(row), seconds)),
            column("greatest", 1, &|row| {
                rate(counts(row).into_iter().max().unwrap_or(0), of_window)
            }),
            column("last", 2, &|row| rate(counts(row).last().copied().unwrap_or(0), of_window)),
            column("share", 0, &|row| format_share(total(row), all)),
            column("records", 2, &|row| format_count(row.flows.iter().sum())),
            TextColumn { left: true, ..column("over time", 1, &|row| line(&counts(row), CELLS)) },
        ])
    }
}

/// Whether there is no flow in it.
pub fn is_empty(found: &FlowPointTable) -> bool {
    found.rows.is_empty() && !has_some(&found.other)
}

fn has_some(row: &FlowPointRow) -> bool {
    row.records.iter().any(|n| *n > 0)
}

/// Windows of an answer, where the step is not given.
const WINDOWS: i64 = 60;
/// Cells of the picture, at most.
const CELLS: usize = 30;
/// Lengths of windows, seconds.
const STEPS: [i64; 13] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 900, 3_600, 21_600, 86_400];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn args(arguments: &[&str]) -> FlowsArgs {
        let all = ["sonde", "query", "flows"].iter().chain(arguments);
        match crate::args::Cli::try_parse_from(all).unwrap().command {
            crate::args::Command::Query(query) => match query.question {
                crate::query::Question::Flows(args) => *args,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_question_has_whole_windows() {
        let query = args(&[]).query(1_000_000_000_123);
        assert_eq!(query.step_ns, 60_000_000_000);
        let TimeRange { from_ns, to_ns } = query.range;
        assert_eq!((from_ns % query.step_ns, to_ns % query.step_ns), (0, 0));
        assert!(to_ns >= 1_000_000_000_123 && to_ns - from_ns == 3_600_000_000_000);
        let day = args(&["--last", "1d", "--by", "src-net,port", "--flow", "protocol=6"]);
        let query = day.query(0);
        assert_eq!(query.step_ns, 3_600_000_000_000);
        assert_eq!(query.by, [FlowDimension::SourceNet, FlowDimension::ServicePort]);
        assert_eq!(query.only, [(FlowDimension::Protocol, "6".to_owned())]);
        assert_eq!(args(&["--step", "5m"]).query(0).step_ns, 300_000_000_000);
    }

    #[test]
    fn a_table_has_rates_shares_and_a_picture() {
        let row = |values: &[&str], bytes: [u64; 2]| FlowPointRow {
            values: values.iter().map(ToString::to_string).collect(),
            records: vec![1, 1],
            flows: vec![1, 1],
            packets: vec![1, 1],
            bytes: bytes.to_vec(),
        };
        let found = FlowPointTable {
            starts_ns: vec![0, 10_000_000_000],
            rows: vec![row(&["tls"], [1_000, 2_000])],
            other: row(&[], [1_000, 0]),
        };
        let range = TimeRange { from_ns: 0, to_ns: 20_000_000_000 };
        let table = args(&[]).table(&found, range);
        let lines = table.lines(120, Style::default(), |_, _| Tone::Plain);
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(cells(&lines[1])[..4], ["tls", "1200", "1600", "1600"]);
        assert_eq!(cells(&lines[2])[..4], ["others", "400", "800", "0"]);
        assert!(lines[1].contains("▄█"), "{lines:?}");
        assert!(!is_empty(&found) && is_empty(&FlowPointTable::default()));
    }
}
