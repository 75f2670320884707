//! The summary at the end of a run: each stream when they are few, else all together,
//! by DSCP, and the worst. It says how the results were made and what casts doubt on them.

use sonde_results::advice::AdviceContext;
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::run::Health;
use sonde_results::units::{format_count, format_dscp, format_ns, format_ns_or_dash, format_share};
use sonde_results::{Hist, Interval, Run};
use std::borrow::Cow;
use std::io::{self, Write};

use super::groups::{self, Distinctions, StreamGroup, clocks_compare};
use super::live::wrapped;
use super::sparkline::sparkline;
use super::style::{Style, Tone, clip};
use super::table;
use super::unanswered::Unanswered;

/// Writes the summary of `run`, its tables at most `width` wide.
pub fn write(out: &mut impl Write, run: &Run, width: usize, style: Style) -> io::Result<()> {
    let doubts = all_caveats(run);
    if run.streams.len() <= FEW {
        let distinctions = Distinctions::of(&run.streams);
        for (info, total) in run.streams.iter().zip(&run.totals) {
            let mut title = if info.destination.ip().to_string() == info.target {
                format!("--- {} {}", info.destination, format_dscp(info.dscp))
            } else {
                format!("--- {} ({}) {}", info.target, info.destination, format_dscp(info.dscp))
            };
            if let Some(port) = distinctions.source_port(info) {
                title += &format!(" from port {port}");
            }
            title += " ---";
            writeln!(out, "{}", style.paint(Tone::Head, &clip(&title, width)))?;
            statistics(out, total, true, doubts, width, style)?;
        }
    } else {
        let title = format!("--- {} streams ---", format_count(run.streams.len() as u64));
        writeln!(out, "{}", style.paint(Tone::Head, &title))?;
        statistics(out, &run.overall, false, doubts, width, style)?;
        let mut classes = groups::by_dscp(&run.streams, &run.totals);
        if classes.len() > 1 {
            classes.insert(
                0,
                StreamGroup {
                    label: "all".into(),
                    dscp: None,
                    source_port: None,
                    members: run.streams.len(),
                    interval: Cow::Borrowed(&run.overall),
                },
            );
            section(out, "by DSCP", &classes, width, style)?;
        }
        let worst = groups::worst(&run.streams, &run.totals, WORST);
        section(out, "worst, by loss, then by p99 of the round trip", &worst, width, style)?;
    }
    how(out, run, width, style)?;
    let context =
        AdviceContext { engine: &run.config.engine, command: &run.config.command, caveats: doubts };
    let mut of_all = run.caveats;
    of_all.merge(run.overall.caveats);
    for caveat in doubts.iter() {
        let (some, all) = (with(&run.totals, caveat), run.streams.len());
        let line = if caveat == Caveat::NoReply {
            Unanswered::of(&run.streams, &run.totals).line(&context)
        } else if of_all.contains(caveat) || some == all {
            caveat.line(&context)
        } else {
            let (some, all) = (format_count(some as u64), format_count(all as u64));
            let (text, advice) = (caveat.text(), caveat.advice_in(&context));
            format!("! on {some} of {all} streams: {text}: {advice}")
        };
        for line in wrapped(&line, width) {
            writeln!(out, "{}", style.paint(Tone::Warn, &line))?;
        }
    }
    Ok(())
}

/// Streams that have a caveat.
fn with(totals: &[Interval], caveat: Caveat) -> usize {
    totals.iter().filter(|t| t.caveats.contains(caveat)).count()
}

/// Every caveat of the run and of its streams.
pub fn all_caveats(run: &Run) -> CaveatSet {
    let mut caveats = run.caveats;
    caveats.merge(run.overall.caveats);
    run.totals.iter().for_each(|t| caveats.merge(t.caveats));
    caveats
}

/// Up to so many streams have a block each.
const FEW: usize = 8;
const WORST: usize = 10;
/// Ends of the names of counters that count what went well.
const ORDINARY: [&str; 4] = ["_frames", "_stamps", "replies", "_sent"];
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

fn section(
    out: &mut impl Write,
    title: &str,
    groups: &[StreamGroup<'_>],
    width: usize,
    style: Style,
) -> io::Result<()> {
    writeln!(out, "\n{}", style.paint(Tone::Head, title))?;
    for line in table::render(groups, width, style) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// `single`: of one stream. PDV and RFC 3550 jitter refer to one stream's own minimum and
/// history and are left out for several.
fn statistics(
    out: &mut impl Write,
    interval: &Interval,
    single: bool,
    run_caveats: CaveatSet,
    width: usize,
    style: Style,
) -> io::Result<()> {
    let tone = if interval.counters.lost > 0 { Tone::Bad } else { Tone::Good };
    for line in wrapped(&counts(interval), width) {
        writeln!(out, "{}", style.paint(tone, &line))?;
    }
    if interval.rtt.count == 0 {
        return Ok(());
    }
    if interval.caveats.contains(Caveat::DwellDominates)
        && let Some(share) = interval.dwell_share()
    {
        let percent = 100.0 * share;
        let line = format!("the reflector held the packets for {percent:.0}% of the round trip");
        writeln!(out, "{}", style.paint(Tone::Warn, &line))?;
    }
    let head = format!(
        "{:<17}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "", "min", "mean", "p50", "p90", "p99", "p99.9", "max"
    );
    writeln!(out, "{}", style.paint(Tone::Dim, &head))?;
    row(out, "round trip", &interval.rtt, 0)?;
    row(out, "  less the dwell", &interval.rtt_net, 0)?;
    let mut caveats = interval.caveats;
    caveats.merge(run_caveats);
    let comparable = clocks_compare(caveats);
    for (name, delay) in [("forward", &interval.forward), ("backward", &interval.backward)] {
        if comparable {
            row(out, name, delay, 0)?;
        } else if delay.count > 0 {
            writeln!(out, "{name:<17}not comparable: the clocks are not synchronised")?;
        }
    }
    // Both variations are differences, so that a constant offset of the clocks cancels.
    if single {
        row(out, "forward PDV", &interval.forward, interval.forward.min)?;
        row(out, "backward PDV", &interval.backward, interval.backward.min)?;
    }
    row(out, "forward IPDV", &interval.ipdv_forward, 0)?;
    row(out, "backward IPDV", &interval.ipdv_backward, 0)?;
    if single && interval.forward.count > 1 {
        writeln!(
            out,
            "{:<17}{} forward, {} backward (RFC 3550, at the end)",
            "jitter",
            format_ns(interval.jitter_forward_ns),
            format_ns(interval.jitter_backward_ns)
        )?;
    }
    let shape = sparkline(&interval.rtt, 36);
    let (min, max) = (interval.rtt.min as f64, interval.rtt.max as f64);
    writeln!(out, "{:<17}{} {shape} {}", "shape of RTT", format_ns(min), format_ns(max))
}

/// One row of statistics, each less `base`. Nothing without values.
fn row(out: &mut impl Write, name: &str, hist: &Hist, base: i64) -> io::Result<()> {
    let (Some(min), Some(mean), Some(max)) = (hist.min(), hist.mean(), hist.max()) else {
        return Ok(());
    };
    let mut line = format!("{name:<17}");
    let mut cell = |value: f64| line.push_str(&format!("{:>9}", format_ns(value - base as f64)));
    cell(min as f64);
    cell(mean);
    QUANTILES.iter().filter_map(|&q| hist.quantile(q)).for_each(|v| cell(v as f64));
    cell(max as f64);
    writeln!(out, "{line}")
}

fn counts(interval: &Interval) -> String {
    let c = &interval.counters;
    let mut text = format!(
        "{} sent, {} received, {} lost ({}",
        format_count(c.sent),
        format_count(c.received),
        format_count(c.lost),
        format_share(c.lost, c.sent)
    );
    if c.lost > 0
        && let (Some(forward), Some(backward)) = (c.lost_forward, c.lost_backward)
    {
        let (forward, backward) = (format_count(forward), format_count(backward));
        text.push_str(&format!(": {forward} forward, {backward} backward"));
        if c.lost_unknown > 0 {
            text.push_str(&format!(", {} on an unknown side", format_count(c.lost_unknown)));
        }
    }
    text.push(')');
    for (count, what) in [
        (c.duplicated, "duplicated"),
        (c.reordered, "reordered"),
        (c.late, "after the timeout"),
        (c.sent_late, "sent late"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {} {what}", format_count(count)));
        }
    }
    if c.skipped > 0 {
        let why: Vec<_> = c.not_sent.iter().map(|(why, _)| why.text()).collect();
        text.push_str(&format!(", {} not sent ({})", format_count(c.skipped), why.join(", ")));
    }
    text
}

/// How the results were made.
fn how(out: &mut impl Write, run: &Run, width: usize, style: Style) -> io::Result<()> {
    let stamp = |source: Option<sonde_wire::StampSource>| {
        source.map_or("none".to_string(), |s| format!("{s:?}").to_lowercase())
    };
    let host = &run.header.host;
    let clock = if host.clock_synchronised {
        format!("synchronised to {}", format_ns(host.clock_max_error_ns as f64))
    } else {
        "not synchronised".to_string()
    };
    let lines = [
        format!(
            "measured with {}; T1 by {}, T4 by {}; lost after {}",
            run.config.engine,
            stamp(run.overall.t1_source),
            stamp(run.overall.t4_source),
            format_ns(run.config.timeout_ns as f64)
        ),
        format!("clock {}, {clock}; kernel {}", host.clock_source, host.kernel),
        sending(&run.health, run.config.late_limit_ns),
    ];
    writeln!(out)?;
    for line in lines.iter().flat_map(|line| wrapped(line, width)) {
        writeln!(out, "{}", style.paint(Tone::Dim, &line))?;
    }
    let counters: Vec<String> = run
        .health
        .counters
        .iter()
        .filter(|&(name, &n)| n > 0 && !ORDINARY.iter().any(|end| name.ends_with(end)))
        .map(|(name, &n)| format!("{name} {}", format_count(n)))
        .collect();
    if !counters.is_empty() {
        for line in wrapped(&format!("counted: {}", counters.join(", ")), width) {
            writeln!(out, "{}", style.paint(Tone::Dim, &line))?;
        }
    }
    Ok(())
}

fn sending(health: &Health, limit: i64) -> String {
    let late = |q| format_ns_or_dash(health.send_lateness.quantile(q));
    let worst = format_ns_or_dash(health.send_lateness.max());
    let pauses = match health.pauses.max() {
        Some(longest) => format!(
            "pauses of this machine: {}, longest {}",
            format_count(health.pauses.count),
            format_ns(longest as f64)
        ),
        None => "no pause of this machine seen".to_string(),
    };
    format!(
        "sends late p50 {}, p99 {}, max {worst} (limit {}); {pauses}",
        late(0.5),
        late(0.99),
        format_ns(limit as f64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::StreamInfo;
    use sonde_results::testing::{golden, probe as sample};

    fn text(run: &Run) -> String {
        let mut out = Vec::new();
        write(&mut out, run, 80, Style::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "wider than a terminal");
        text
    }

    #[test]
    fn what_some_streams_have_is_said_of_so_many() {
        let mut run = sample::run(40, 2);
        run.totals[..3].iter_mut().for_each(|t| t.caveats.insert(Caveat::DwellDominates));
        let mut text = Vec::new();
        write(&mut text, &run, 400, Style::default()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("! on 3 of 80 streams: the reflector's own time is most"), "{text}");
        run.overall.caveats.insert(Caveat::DwellDominates);
        let mut text = Vec::new();
        write(&mut text, &run, 400, Style::default()).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("! the reflector's own time is most"));
    }

    #[test]
    fn one_stream() {
        golden(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/output/golden/summary_one.txt"),
            &text(&sample::run(1, 1)),
        );
    }

    #[test]
    fn many_streams() {
        golden(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/output/golden/summary_many.txt"),
            &text(&sample::run(40, 3)),
        );
    }

    #[test]
    fn one_way_delays_are_held_back_without_clocks_and_variation_is_not() {
        let mut run = sample::run(1, 1);
        run.totals[0].caveats.insert(Caveat::PeerClockUnsynchronised);
        run.header.host.clock_synchronised = false;
        run.streams[0].target = "edge.example".into();
        golden(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/output/golden/summary_doubt.txt"),
            &text(&run),
        );
    }

    #[test]
    fn streams_that_differ_by_their_source_port_have_it_in_their_titles() {
        let mut run = sample::run(4, 1);
        let first = run.streams[0].clone();
        for (port, info) in (50_000..).zip(&mut run.streams) {
            *info = StreamInfo { source: (first.source.ip(), port).into(), ..first.clone() };
        }
        run.totals[2].counters.received = 0;
        run.totals[2].counters.lost = run.totals[2].counters.sent;
        run.totals[2].caveats.insert(Caveat::NoReply);
        run.overall.caveats.insert(Caveat::NoReply);
        let text = text(&run);
        for port in 50_000..50_004 {
            assert!(
                text.contains(&format!("--- 10.2.0.1:862 BE from port {port} ---\n")),
                "{text}"
            );
        }
        let said = "! 1 of 4 streams was never answered (10.2.0.1 from port 50002): ";
        assert!(text.replace("\n  ", " ").contains(said), "{text}");
    }

    #[test]
    fn nothing_received_is_said_in_one_line() {
        let mut run = sample::run(1, 1);
        run.totals[0] = Interval::empty(0);
        run.totals[0].counters.sent = 5;
        run.totals[0].counters.lost = 5;
        run.totals[0].counters.settle_sides();
        let text = text(&run);
        assert!(text.contains("5 sent, 0 received, 5 lost (100%)\n\nmeasured with"), "{text}");
    }
}
