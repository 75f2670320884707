//! The live table: redrawn on a terminal, a line for each interval elsewhere.

use sonde_results::advice::AdviceContext;
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::units::{
    SECOND, format_count, format_elapsed, format_ns, format_ns_or_dash, format_share,
};
use sonde_results::{Counters, Hist, Interval, StreamInfo};
use sonde_run::probe::Delays;
use std::io::{self, Write};

use super::groups::{self, StreamGroup};
use super::interval_lines::IntervalSum;
use super::sparkline::sparkline;
use super::style::{Style, Tone, clip};
use super::table;
use super::unanswered::Unanswered;

/// What is known at one moment of a run.
#[derive(Clone, Copy, Debug)]
pub struct ProbeSnapshot<'a> {
    /// Since the first send, ns.
    pub elapsed_ns: i64,
    /// When the run began, by the clock of the records, ns.
    pub begun_ns: i64,
    /// The engine and how it runs.
    pub engine: &'a str,
    pub command: &'a [String],
    pub streams: &'a [StreamInfo],
    /// The latest record of each stream that has one.
    pub latest: &'a [Interval],
    /// Counts since the start.
    pub total: Counters,
    /// Round trips since the start.
    pub delays: Delays,
    /// How late packets were sent, ns.
    pub lateness: &'a Hist,
    /// Pauses of the sending thread, ns.
    pub pauses: &'a Hist,
    /// What casts doubt on the run so far.
    pub caveats: CaveatSet,
}

/// The table for a terminal of `width` by `height`: never wider, never higher.
pub fn table(
    snapshot: &ProbeSnapshot<'_>,
    width: usize,
    height: usize,
    style: Style,
) -> Vec<String> {
    let by_dscp = groups::by_dscp(snapshot.streams, snapshot.latest);
    let all = groups::all(&by_dscp);
    let mut lines = header(snapshot, &all, width, style);
    let mut caveats = snapshot.caveats;
    if !all.dwell_dominates() {
        // It does for some streams only.
        caveats.remove(Caveat::DwellDominates);
    }
    let context = AdviceContext { engine: snapshot.engine, command: snapshot.command, caveats };
    let doubts: Vec<String> = caveats
        .iter()
        .flat_map(|c| match (c, snapshot.latest.is_empty()) {
            (Caveat::NoReply, false) => {
                let latest = Unanswered::in_latest(snapshot.streams, snapshot.latest);
                wrapped(&latest.line(&context), width)
            }
            _ => wrapped(&c.line(&context), width),
        })
        .map(|line| style.paint(Tone::Warn, &line))
        .collect();
    let room = height.saturating_sub(lines.len() + doubts.len() + 4);
    let mut rows: Vec<StreamGroup<'_>> = Vec::new();
    if by_dscp.len() > 1 {
        rows.push(StreamGroup {
            label: "all".into(),
            dscp: None,
            source_port: None,
            members: snapshot.streams.len(),
            interval: std::borrow::Cow::Borrowed(&all),
        });
    }
    if by_dscp.iter().any(|g| g.members > 1) {
        rows.extend(by_dscp.iter().cloned());
    }
    rows.truncate(room);
    let worst = groups::worst(snapshot.streams, snapshot.latest, (room - rows.len()).min(WORST));
    rows.extend(worst);
    if !rows.is_empty() {
        lines.push(String::new());
        lines.extend(table::render(&rows, width, style));
    }
    if !doubts.is_empty() {
        lines.push(String::new());
        lines.extend(doubts);
    }
    lines.truncate(height.saturating_sub(1));
    lines
}

/// One line for an interval that is settled, for a file or a pipe.
pub fn line(snapshot: &ProbeSnapshot<'_>, sum: &IntervalSum) -> String {
    let all = &sum.all;
    let c = &all.counters;
    let from = all.start_ns - snapshot.begun_ns;
    let (least, most) = sum.spans;
    let of_some = if sum.whole {
        String::new()
    } else {
        let [records, streams] = [sum.records, sum.streams].map(|n| format_count(n as u64));
        format!(" ({records} of {streams} streams)")
    };
    format!(
        "{} to {}{of_some}: sent {} ({}), lost {} ({}), rtt min/mean/p99/max {} / {} / {} / {}; \
         sends late since the start p99/max {} / {}",
        clock(from),
        clock(from + most),
        format_count(c.sent),
        unequal(least, most).unwrap_or_else(|| rate_in(c.sent, most)),
        format_count(c.lost),
        format_share(c.lost, c.sent),
        format_ns_or_dash(all.rtt.min()),
        all.rtt.mean().map_or_else(|| "-".into(), format_ns),
        format_ns_or_dash(all.rtt.quantile(0.99)),
        format_ns_or_dash(all.rtt.max()),
        format_ns_or_dash(snapshot.lateness.quantile(0.99)),
        format_ns_or_dash(snapshot.lateness.max()),
    )
}

/// A time since the start, ns: with its fraction where intervals are shorter than seconds.
fn clock(ns: i64) -> String {
    let whole = ns % SECOND == 0 || ns > 60 * SECOND;
    if whole { format_elapsed(ns) } else { format_ns(ns as f64) }
}

/// So many in the latest interval of all streams, as a rate. Where the records of the next one
/// are coming in, some are of that.
fn rate(count: u64, latest: &[Interval]) -> String {
    rate_in(count, latest.iter().map(|i| i.end_ns - i.start_ns).max().unwrap_or(0))
}

fn rate_in(count: u64, span_ns: i64) -> String {
    let rate = count as f64 * SECOND as f64 / span_ns.max(1) as f64;
    format!("{}/s", format_count(rate.round() as u64))
}

/// Where some streams' records span more time than others', since nobody could fetch them for
/// want of processor time: between what and what.
fn unequal(least: i64, most: i64) -> Option<String> {
    (most >= least.saturating_mul(3) / 2)
        .then(|| format!("in {} to {}", format_ns(least as f64), format_ns(most as f64)))
}

/// Before every stream has a record, which comes one timeout after its interval.
pub fn so_far(snapshot: &ProbeSnapshot<'_>) -> String {
    let t = &snapshot.total;
    let (sent, received) = (format_count(t.sent), format_count(t.received));
    let elapsed = format_elapsed(snapshot.elapsed_ns);
    let delays = match snapshot.delays.summary() {
        Some((min, mean, max)) => format!(
            ", rtt min/mean/max {} / {} / {}",
            format_ns(min as f64),
            format_ns(mean),
            format_ns(max as f64)
        ),
        None => String::new(),
    };
    format!("{elapsed}: so far sent {sent}, answered {received}{delays}")
}

/// Redraws lines over the former ones. It takes no full screen: what was above stays, and what is
/// drawn last remains when the run ends.
#[derive(Debug, Default)]
pub struct InPlace {
    drawn: usize,
}

impl InPlace {
    /// Draws `lines` over the last ones. One write, so that nothing flickers.
    pub fn draw(&mut self, out: &mut impl Write, lines: &[String]) -> io::Result<()> {
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A\r", self.drawn));
        }
        for line in lines {
            text.push_str("\x1b[2K");
            text.push_str(line);
            text.push('\n');
        }
        text.push_str("\x1b[J");
        self.drawn = lines.len();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

/// Targets at most in the table.
const WORST: usize = 15;
const SPARK_CELLS: usize = 24;

fn header(snapshot: &ProbeSnapshot<'_>, all: &Interval, width: usize, style: Style) -> Vec<String> {
    let (c, t) = (&all.counters, &snapshot.total);
    let first = format!(
        "sonde probe  {}  {}  {} streams",
        format_elapsed(snapshot.elapsed_ns),
        snapshot.engine,
        format_count(snapshot.streams.len() as u64),
    );
    let mut second = if all.end_ns == 0 {
        so_far(snapshot)
    } else {
        format!(
            "sent {}  received {}  lost {} of {} ({})",
            rate(c.sent, snapshot.latest),
            rate(c.received, snapshot.latest),
            format_count(t.lost),
            format_count(t.sent),
            format_share(t.lost, t.sent),
        )
    };
    for (count, what) in [
        (t.duplicated, "duplicated"),
        (t.reordered, "reordered"),
        (t.late, "after the timeout"),
        (t.skipped, "not sent"),
    ] {
        if count > 0 {
            second.push_str(&format!("  {} {what}", format_count(count)));
        }
    }
    let mut third = format!(
        "sends late p50 {}  p99 {}  max {}",
        format_ns_or_dash(snapshot.lateness.quantile(0.5)),
        format_ns_or_dash(snapshot.lateness.quantile(0.99)),
        format_ns_or_dash(snapshot.lateness.max()),
    );
    if let Some(longest) = snapshot.pauses.max() {
        third.push_str(&format!(
            "  pauses {}, longest {}",
            format_count(snapshot.pauses.count),
            format_ns(longest as f64)
        ));
    }
    let tone = if t.lost > 0 { Tone::Bad } else { Tone::Good };
    let mut lines = vec![
        style.paint(Tone::Head, &clip(&first, width)),
        style.paint(tone, &clip(&second, width)),
        clip(&third, width),
    ];
    if all.rtt.count > 0 {
        let shape = sparkline(&all.rtt, SPARK_CELLS.min(width.saturating_sub(30)));
        lines.push(clip(
            &format!(
                "rtt {} {shape} {}",
                format_ns_or_dash(all.rtt.min()),
                format_ns_or_dash(all.rtt.max())
            ),
            width,
        ));
    }
    lines
}

/// `text` broken at spaces into lines of at most `width`, the further ones indented.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines.iter().map(|line| clip(line, width)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::interval_lines::IntervalLines;
    use super::*;
    use proptest::prelude::*;
    use sonde_results::Run;
    use sonde_results::testing::{golden, probe as sample};

    fn snapshot(run: &Run) -> ProbeSnapshot<'_> {
        ProbeSnapshot {
            elapsed_ns: 100 * SECOND,
            begun_ns: run.totals[0].start_ns,
            engine: &run.config.engine,
            command: &run.config.command,
            streams: &run.streams,
            latest: &run.totals,
            total: run.overall.counters,
            delays: Delays::default(),
            lateness: &run.health.send_lateness,
            pauses: &run.health.pauses,
            caveats: run.caveats,
        }
    }

    #[test]
    fn the_table() {
        let run = sample::run(40, 2);
        let lines = table(&snapshot(&run), 80, 18, Style::default());
        golden(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/output/golden/live.txt"),
            &(lines.join("\n") + "\n"),
        );
    }

    fn sum(records: &[Interval]) -> IntervalSum {
        let mut lines = IntervalLines::new(records.len());
        records.iter().for_each(|record| lines.push(record));
        lines.next(false).expect("each stream has a record")
    }

    #[test]
    fn the_line() {
        let run = sample::run(40, 2);
        golden(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/output/golden/line.txt"),
            &(line(&snapshot(&run), &sum(&run.totals)) + "\n"),
        );
        // One record of twice the time has twice the probes.
        let mut lengthened = run.totals.clone();
        for (i, total) in lengthened.iter_mut().enumerate() {
            (total.start_ns, total.end_ns) =
                (0, if i == 7 { 10_000_000_000 } else { 5_000_000_000 });
        }
        let text = line(&snapshot(&run), &sum(&lengthened));
        assert!(text.contains(": sent 80,000 (in 5.00 s to 10.0 s), lost"), "{text}");
    }

    #[test]
    fn before_the_first_records_there_are_counts_already() {
        let run = sample::run(40, 2);
        let mut delays = Delays::default();
        [20_000, 40_000].into_iter().for_each(|ns| delays.add(ns));
        let early = ProbeSnapshot { latest: &run.totals[..3], delays, ..snapshot(&run) };
        let wanted =
            "so far sent 80,000, answered 79,840, rtt min/mean/max 20.0 us / 30.0 us / 40.0 us";
        assert!(so_far(&early).ends_with(wanted), "{}", so_far(&early));
        let none = ProbeSnapshot { latest: &[], ..early };
        let shown = table(&none, 120, 24, Style::default()).join("\n");
        assert!(shown.contains(wanted), "{shown}");
    }

    #[test]
    fn one_stream_has_one_row() {
        let run = sample::run(1, 1);
        let lines = table(&snapshot(&run), 80, 24, Style::default());
        assert_eq!(lines.iter().filter(|l| l.contains("10.2.0.1")).count(), 1);
        assert!(!lines.iter().any(|l| l.starts_with("1 stream")));
    }

    #[test]
    fn drawing_again_goes_up_over_what_was_drawn() {
        let (mut out, mut redraw) = (Vec::new(), InPlace::default());
        redraw.draw(&mut out, &["a".into(), "b".into()]).unwrap();
        assert_eq!(out, b"\x1b[2Ka\n\x1b[2Kb\n\x1b[J");
        out.clear();
        redraw.draw(&mut out, &["c".into()]).unwrap();
        assert_eq!(out, b"\x1b[2A\r\x1b[2Kc\n\x1b[J");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn it_fits_any_terminal(width in 40usize..160, height in 1usize..60) {
            let run = sample::run(10, 3);
            let lines = table(&snapshot(&run), width, height, Style::default());
            prop_assert!(lines.len() < height.max(1) || height <= 1);
            prop_assert!(lines.iter().all(|l| l.chars().count() <= width));
        }
    }
}
