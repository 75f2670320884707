//! The report, for people and as JSON.

use std::fmt;

use serde::Serialize;

use sonde_results::units::{format_count, format_ns, format_percent, format_share};

use super::examples::{Difference, Kind};
use super::messages::MessageCounters;
use super::segments::Segment;
use super::settings::{EvaluationModel, Settings};
use super::table::Findings;

/// What a comparison of the exports with the truth found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Something was compared, and nothing differs that the model asks for.
    pub exact: bool,
    model: &'static str,
    /// Directions of flows in the truth.
    directions: u64,
    /// Those that were exported exactly.
    exact_directions: u64,
    records: u64,
    /// Further records of a direction that a time-out asked for.
    rightly_split: u64,
    differences: Vec<Difference>,
    segments: Vec<SegmentReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lateness: Option<Lateness>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<MessageCounters>,
    #[serde(skip_serializing_if = "is_zero")]
    intervals_refused: u64,
    /// What was judged by.
    limits: Limits,
}

/// What is no difference, ns. Absent: not given.
#[derive(Clone, Debug, Default, Serialize)]
struct Limits {
    /// Times may be so far off.
    time_tolerance_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_limit_ns: Option<i64>,
    /// The exporter's time-outs, which split flows rightly.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_ns: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_ns: Option<i64>,
}

impl Limits {
    /// By what a difference of this kind was judged, and the setting; empty: by nothing that is set.
    fn of(&self, kind: Kind) -> String {
        let time = |ns: i64| format_ns(ns as f64);
        match kind {
            Kind::Time => format!(
                " (by more than {}, or the exporter's unit where that is coarser: `time_tolerance`)",
                time(self.time_tolerance_ns)
            ),
            Kind::Late => self.late_limit_ns.map_or_else(String::new, |ns| {
                format!(" (by more than {}: `late_limit`)", time(ns))
            }),
            Kind::Split => match (self.idle_ns, self.active_ns) {
                (None, None) => " (no time-out is known: `idle`, `active`)".into(),
                (idle, active) => {
                    let known = |name, ns: Option<i64>| {
                        ns.map_or(format!("no `{name}`"), |ns| format!("`{name}` {}", time(ns)))
                    };
                    format!(" ({}, {})", known("idle", idle), known("active", active))
                }
            },
            _ => String::new(),
        }
    }
}

/// Sums, and their relative differences.
#[derive(Clone, Debug, Serialize)]
struct SegmentReport {
    #[serde(flatten)]
    segment: Segment,
    /// Of flows, packets and bytes.
    relative: [f64; 3],
    passes: bool,
}

/// Export time less the time of the last packet, s.
#[derive(Clone, Debug, Serialize)]
struct Lateness {
    p50_s: f64,
    p99_s: f64,
    max_s: f64,
}

impl Report {
    pub(super) fn new(findings: Findings, messages: MessageCounters, settings: &Settings) -> Self {
        let mut differences = findings.differences;
        for (kind, count, text) in [
            (
                Kind::SequenceGap,
                messages.sequence_missing + messages.sequence_back,
                format!(
                    "{} missing (records; of NetFlow v9 messages), {} messages too low",
                    messages.sequence_missing, messages.sequence_back
                ),
            ),
            (
                Kind::Unreadable,
                messages.unreadable + messages.without_template,
                format!(
                    "{} malformed, {} without their template",
                    messages.unreadable, messages.without_template
                ),
            ),
        ] {
            if count > 0 {
                differences.push(Difference { kind, count, examples: vec![text] });
            }
        }
        let segments: Vec<SegmentReport> = findings
            .segments
            .into_iter()
            .map(|segment| {
                let relative = segment.differences();
                let allowed = if settings.model == EvaluationModel::Statistical {
                    settings.tolerance
                } else {
                    0.0
                };
                SegmentReport { passes: relative.iter().all(|r| *r <= allowed), relative, segment }
            })
            .collect();
        let sums = segments.iter().all(|s| s.passes) && findings.refused_times == 0;
        let exact = match settings.model {
            EvaluationModel::Statistical => {
                sums && differences.iter().all(|d| d.kind != Kind::Late)
            }
            EvaluationModel::Precise | EvaluationModel::Validation => {
                sums && differences.is_empty()
            }
        };
        let quantile = |q| findings.lateness.quantile(q).unwrap_or(0) as f64 / 1e9;
        Report {
            // A truth without a flow compares nothing.
            exact: exact && findings.directions > 0,
            model: match settings.model {
                EvaluationModel::Statistical => "statistical",
                EvaluationModel::Precise => "precise",
                EvaluationModel::Validation => "validation",
            },
            directions: findings.directions,
            exact_directions: findings.exact,
            records: findings.records,
            rightly_split: findings.rightly_split,
            differences,
            segments,
            lateness: (findings.lateness.count > 0).then(|| Lateness {
                p50_s: quantile(0.5),
                p99_s: quantile(0.99),
                max_s: quantile(1.0),
            }),
            messages: (messages.messages > 0).then_some(messages),
            intervals_refused: findings.refused_times,
            limits: Limits {
                time_tolerance_ns: settings.time_tolerance,
                late_limit_ns: settings.late_limit,
                idle_ns: settings.idle,
                active_ns: settings.active,
            },
        }
    }
}

impl Report {
    /// What to look at where all flows are missing, since nothing was exported at all.
    fn without_records(&self) -> String {
        match &self.messages {
            None => {
                "no flow record was found, for there is no NetFlow v5, v9 or IPFIX message: give \
                     the file that the exporter wrote, or a capture of the datagrams (UDP) that it \
                     sent to its collector"
                    .into()
            }
            Some(m) if m.without_template > 0 => format!(
                "no flow record could be read: {} came without their template; begin to collect \
                 before the exporter sends its templates",
                format_count(m.without_template)
            ),
            Some(m) => format!(
                "no flow record was found in {} messages: see whether the exporter saw the traffic",
                format_count(m.messages)
            ),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} of {} flows (each direction one) exact ({}), by {} records",
            format_count(self.exact_directions),
            format_count(self.directions),
            format_share(self.exact_directions, self.directions),
            format_count(self.records),
        )?;
        if self.rightly_split > 0 {
            writeln!(
                f,
                "{} further records that time-outs asked for",
                format_count(self.rightly_split)
            )?;
        }
        if self.records == 0 && self.directions > 0 {
            writeln!(f, "{}", self.without_records())?;
        }
        f.write_str("\n")?;
        for line in table(&self.segments) {
            writeln!(f, "{line}")?;
        }
        for difference in &self.differences {
            let (count, limits) = (format_count(difference.count), self.limits.of(difference.kind));
            writeln!(f, "\n{}: {count}{limits}", difference.kind.title())?;
            for example in &difference.examples {
                writeln!(f, "  {example}")?;
            }
        }
        if let Some(late) = &self.lateness {
            writeln!(
                f,
                "\nexported after the last packet: p50 {}, p99 {}, max {}",
                format_ns(late.p50_s * 1e9),
                format_ns(late.p99_s * 1e9),
                format_ns(late.max_s * 1e9),
            )?;
        }
        if let Some(m) = &self.messages {
            writeln!(
                f,
                "{} messages: {} flows, {} options, {} other records",
                format_count(m.messages),
                format_count(m.flows),
                format_count(m.options),
                format_count(m.not_flows)
            )?;
            if m.dropped > 0 {
                writeln!(
                    f,
                    "{} datagrams DROPPED here, for the receive buffer was full: what is missing may \
                     be those; raise net.core.rmem_max, or have the exporter send slower",
                    format_count(m.dropped)
                )?;
            }
        }
        if self.intervals_refused > 0 {
            writeln!(
                f,
                "`every` is too short: flows in {} further intervals",
                self.intervals_refused
            )?;
        }
        let verdict = match (self.directions, self.exact) {
            (0, _) => "NOTHING COMPARED, for the truth has no flow",
            (_, true) => "nothing differs",
            (_, false) => "DIFFERS",
        };
        writeln!(f, "\n{} model: {verdict}", self.model)
    }
}

/// Sums of the truth and of what was exported, beside each other.
fn table(segments: &[SegmentReport]) -> Vec<String> {
    let head = ["", "FLOWS", "PACKETS", "BYTES", "FLOWS", "PACKETS", "BYTES", "OFF BY", ""];
    let row = |SegmentReport { segment, relative, passes }: &SegmentReport| {
        let [flows, packets, bytes] = [segment.flows, segment.packets, segment.bytes];
        let worst = relative.iter().copied().fold(0.0, f64::max);
        let sums = [0, 1].map(|side| [flows[side], packets[side], bytes[side]].map(format_count));
        let verdict = if *passes { "" } else { "DIFFERS" };
        let mut cells = vec![segment.name.clone()];
        cells.extend(sums.into_iter().flatten());
        cells.extend([format_percent(worst), verdict.to_owned()]);
        cells
    };
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(segments.iter().map(row));
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (i, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            // The name and the verdict are words, the others numbers.
            line += &match i {
                0 | 8 => format!("{cell:<width$}  "),
                _ => format!("{cell:>width$}  "),
            };
        }
        line.trim_end().to_owned()
    };
    // Each side's name stands at the right of its three columns.
    let side = |columns: &[usize]| columns.iter().sum::<usize>() + 4;
    let (truth, exported) = (side(&widths[1..4]), side(&widths[4..7]));
    let first = format!("{:w$}  {:>truth$}  {:>exported$}", "", "TRUTH", "EXPORTED", w = widths[0]);
    std::iter::once(first).chain(rows.iter().map(line)).collect()
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: Findings, messages: MessageCounters) -> String {
        let settings = Settings {
            time_tolerance: 1_000_000,
            idle: Some(15_000_000_000),
            late_limit: Some(2_000_000_000),
            ..Settings::default()
        };
        Report::new(findings, messages, &settings).to_string()
    }

    fn findings(records: u64, kinds: &[Kind]) -> Findings {
        let difference = |&kind| Difference { kind, count: 161, examples: Vec::new() };
        Findings {
            directions: 146_668,
            records,
            differences: kinds.iter().map(difference).collect(),
            ..Findings::default()
        }
    }

    #[test]
    fn a_difference_says_by_what_it_was_judged() {
        let all = findings(9, &[Kind::Missing, Kind::Split, Kind::Time, Kind::Late]);
        let text = report(all, MessageCounters::default());
        for line in [
            "\nmissing flows: 161\n",
            "\nflows split without a time-out: 161 (`idle` 15.0 s, no `active`)\n",
            "\nflows with wrong times: 161 (by more than 1.00 ms, or the exporter's unit where that is \
             coarser: `time_tolerance`)\n",
            "\nrecords exported late: 161 (by more than 2.00 s: `late_limit`)\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("no flow record"), "{text}");
    }

    #[test]
    fn where_nothing_was_exported_that_is_said_first() {
        let missing = || findings(0, &[Kind::Missing]);
        let line = |messages| report(missing(), messages).lines().nth(1).unwrap().to_owned();
        let none = line(MessageCounters::default());
        assert!(none.contains("there is no NetFlow v5, v9 or IPFIX message"), "{none}");
        let read = MessageCounters { messages: 3, ..MessageCounters::default() };
        assert!(line(read).starts_with("no flow record was found in 3 messages"), "{}", line(read));
        let unknown = MessageCounters { without_template: 2, ..read };
        let text = line(unknown);
        assert!(text.starts_with("no flow record could be read: 2 came without their template"));
    }

    #[test]
    fn the_sums_stand_below_their_names() {
        let segment = |name: &str, n: u64, passes, off| SegmentReport {
            segment: Segment {
                name: name.into(),
                flows: [n, n / 2],
                packets: [2 * n, 2 * n],
                bytes: [90 * n, 91 * n],
            },
            relative: [0.0, 0.0, off],
            passes,
        };
        let lines = table(&[
            segment("all", 1_981_000, false, 0.5),
            segment("from 1700000000.000 s", 12, true, 0.0),
        ]);
        assert_eq!(
            lines,
            [
                "                                                   TRUTH                         EXPORTED",
                "                           FLOWS    PACKETS        BYTES    FLOWS    PACKETS        BYTES  OFF BY",
                "all                    1,981,000  3,962,000  178,290,000  990,500  3,962,000  180,271,000     50%  DIFFERS",
                "from 1700000000.000 s         12         24        1,080        6         24        1,092      0%",
            ]
        );
    }
}
