//! The report, for people and as JSON.

use std::fmt;

use serde::Serialize;

use sonde_results::units::{format_count, format_ns, format_share};

use super::examples::{Difference, Kind};
use super::messages::MessageCounters;
use super::segments::Segment;
use super::settings::{EvaluationModel, Settings};
use super::table::Findings;

/// What a comparison of the exports with the truth found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Nothing differs that the model asks for.
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
            exact,
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
        writeln!(f, "\n{:<24} {:>34} {:>34}", "", "truth: flows packets bytes", "exported")?;
        for SegmentReport { segment, relative, passes } in &self.segments {
            let sums = |i: usize| {
                let [flows, packets, bytes] = [segment.flows, segment.packets, segment.bytes];
                format!("{} {} {}", flows[i], packets[i], bytes[i])
            };
            let worst = relative.iter().copied().fold(0.0, f64::max);
            let verdict = if *passes { "" } else { "  DIFFERS" };
            writeln!(
                f,
                "{:<24} {:>34} {:>34} {:.6}{verdict}",
                segment.name,
                sums(0),
                sums(1),
                worst
            )?;
        }
        for difference in &self.differences {
            writeln!(f, "\n{}: {}", difference.kind.title(), format_count(difference.count))?;
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
        let verdict = if self.exact { "nothing differs" } else { "DIFFERS" };
        writeln!(f, "\n{} model: {verdict}", self.model)
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
