//! The live table and the summary: groups, what was seen and left out, how it was
//! measured, and what casts doubt on it.

use sonde_results::advice::AdviceContext;
use sonde_results::caveat::CaveatSet;
use sonde_results::rtt::{Coverage, GroupKey, RttGroup};
use sonde_results::rtt_run::{RttPoint, RttRun};
use sonde_results::units::{SECOND, format_count, format_elapsed, format_ns};
use sonde_run::rtt::{Losses, coverage, merge};
use std::borrow::Cow;

use super::table::{self, Row, label};
use crate::output::live::wrapped;
use crate::output::style::{Style, Tone, clip};
use crate::signals;

/// What is known at one moment of a run.
#[derive(Clone, Copy, Debug)]
pub struct RttSnapshot<'a> {
    /// Since the start, ns.
    pub elapsed_ns: i64,
    /// Length of the latest interval, ns.
    pub interval_ns: i64,
    /// Where packets are seen.
    pub points: &'a [RttPoint],
    /// What groups the samples.
    pub group_by: &'a str,
    /// The groups of the latest interval, the slowest first.
    pub groups: &'a [RttGroup],
    /// Loss in the flows that are open.
    pub losses: &'a Losses,
    /// Counters since the start.
    pub coverage: &'a Coverage,
    /// Packets and samples of the latest interval.
    pub latest: (u64, u64),
    /// What casts doubt so far.
    pub caveats: CaveatSet,
}

/// The table for a terminal of `width` by `height`: never wider, never higher.
pub fn live(snapshot: &RttSnapshot<'_>, width: usize, height: usize, style: Style) -> Vec<String> {
    let RttSnapshot { points, groups, coverage, losses, .. } = *snapshot;
    let names: Vec<&str> = points.iter().map(|p| p.name.as_str()).collect();
    let first = format!(
        "sonde rtt  {}  {}  {} by {}",
        format_elapsed(snapshot.elapsed_ns),
        names.join(", "),
        count_groups(groups.len()),
        snapshot.group_by
    );
    let rate = |n: u64| n as f64 * SECOND as f64 / snapshot.interval_ns.max(1) as f64;
    let second = format!(
        "packets {}/s  samples {}/s",
        format_count(rate(snapshot.latest.0).round() as u64),
        format_count(rate(snapshot.latest.1).round() as u64)
    );
    let mut lines =
        vec![style.paint(Tone::Head, &clip(&first, width)), clip(&second, width), String::new()];
    let mut foot = vec![String::new()];
    foot.extend(footer(points, coverage, snapshot.caveats, width, style));
    // Three lines of the table are its head, the axis and the other classes; the last line of
    // the screen stays empty.
    let room = height.saturating_sub(lines.len() + foot.len() + 4);
    lines.extend(rows(groups, losses, points, room, width, style));
    lines.extend(foot);
    lines.truncate(height.saturating_sub(1));
    lines
}

/// What is printed at the end.
pub fn summary(run: &RttRun, losses: &Losses, width: usize, style: Style) -> Vec<String> {
    let names: Vec<&str> = run.points.iter().map(|p| p.name.as_str()).collect();
    let title = format!(
        "--- {}: {} by {} in {} ---",
        names.join(", "),
        count_groups(run.groups.len()),
        run.config.group_by,
        format_ns(run.header.end_ns.saturating_sub(run.header.start_ns) as f64)
    );
    let mut lines = vec![style.paint(Tone::Head, &clip(&title, width))];
    if run.groups.is_empty() {
        lines.extend(wrapped(&no_round_trip(&run.coverage), width));
    } else {
        lines.extend(rows(&run.groups, losses, &run.points, SUMMARY_ROWS, width, style));
        let more = run.groups.len().saturating_sub(SUMMARY_ROWS - 1);
        if more > 1 {
            lines.push(format!("and {} groups that are faster", format_count(more as u64)));
        }
    }
    lines.push(String::new());
    lines.extend(footer(&run.points, &run.coverage, run.caveats, width, style));
    lines
}

/// Coverage, how it was measured, doubts.
pub fn footer(
    points: &[RttPoint],
    coverage: &Coverage,
    caveats: CaveatSet,
    width: usize,
    style: Style,
) -> Vec<String> {
    let command = signals::command_line();
    let engine = points.first().map_or("", |point| point.how.as_str());
    let context = AdviceContext { engine, command: &command, caveats };
    let mut lines: Vec<String> =
        coverage::lines(coverage).iter().flat_map(|line| wrapped(line, width)).collect();
    let mut by_hook: Vec<(&str, Vec<String>)> = Vec::new();
    for point in points {
        let name = match point.vanished {
            0 => point.name.clone(),
            n => format!("{} (gone {n} times)", point.name),
        };
        match by_hook.iter_mut().find(|(how, _)| *how == point.how) {
            Some((_, names)) => names.push(name),
            None => by_hook.push((&point.how, vec![name])),
        }
    }
    let points: Vec<String> =
        by_hook.iter().map(|(how, names)| format!("{}: {how}", names.join(", "))).collect();
    lines.extend(
        wrapped(&format!("measured at {}", points.join("; ")), width)
            .iter()
            .map(|line| style.paint(Tone::Dim, line)),
    );
    let doubts = caveats.iter().flat_map(|c| wrapped(&c.line(&context), width));
    lines.extend(doubts.map(|line| style.paint(Tone::Warn, &line)));
    lines
}

/// Why there may be none: one direction is not seen, or it is all inside of something else.
fn no_round_trip(coverage: &Coverage) -> String {
    let packets = coverage::count(coverage, "packets");
    let other = coverage::count(coverage, "other_protocol") + coverage::count(coverage, "not_ip");
    if packets == 0 && other == 0 {
        "no round trip found: no packet that can be read passed here".into()
    } else if other * 2 > packets + other {
        format!(
            "no round trip found: {} of {} packets are of other protocols, or inside a tunnel, \
             which --tunnels opens",
            format_count(other),
            format_count(packets.max(other))
        )
    } else {
        "no round trip found; both directions have to pass here (if each has an interface of its own, \
         use --join; if each has a VLAN of its own, --no-vlan-in-key)"
            .into()
    }
}

fn count_groups(count: usize) -> String {
    format!("{} group{}", format_count(count as u64), if count == 1 { "" } else { "s" })
}

/// The slowest of `groups` (sorted) in at most `room` rows, all together first.
fn rows(
    groups: &[RttGroup],
    losses: &Losses,
    points: &[RttPoint],
    room: usize,
    width: usize,
    style: Style,
) -> Vec<String> {
    let mut shown: Vec<(String, Cow<'_, RttGroup>, _)> = Vec::new();
    if groups.len() > 1 {
        let mut all = RttGroup { key: GroupKey::Other, ..groups[0].clone() };
        groups[1..].iter().for_each(|g| merge(&mut all, g));
        let loss = Some(losses.all()).filter(|l| l.packets + l.requests > 0);
        shown.push(("all".into(), Cow::Owned(all), loss));
    }
    let free_rows = room.saturating_sub(shown.len());
    shown.extend(
        groups
            .iter()
            .take(free_rows)
            .map(|group| (label(&group.key, points), Cow::Borrowed(group), losses.of(&group.key))),
    );
    let rows: Vec<Row<'_>> = shown
        .iter()
        .map(|(label, group, loss)| Row { label: label.clone(), group, loss: *loss })
        .collect();
    let mut lines = table::render(&rows, width, style);
    // The first is of all.
    let others = rows.first().and_then(|row| table::other_classes(row.group));
    lines.extend(others.iter().flat_map(|line| wrapped(line, width)));
    lines
}

/// Rows of the summary, that of all together included.
const SUMMARY_ROWS: usize = 21;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sonde_results::testing::{golden, rtt as sample};

    fn snapshot<'a>(run: &'a RttRun, losses: &'a Losses) -> RttSnapshot<'a> {
        RttSnapshot {
            elapsed_ns: 10 * SECOND,
            interval_ns: SECOND,
            points: &run.points,
            group_by: &run.config.group_by,
            groups: &run.groups,
            losses,
            coverage: &run.coverage,
            latest: (45_678, 1_234),
            caveats: run.caveats,
        }
    }

    #[test]
    fn the_live_table() {
        let (run, losses) = (sample::run(), Losses::default());
        let lines = live(&snapshot(&run, &losses), 110, 24, Style::default());
        golden(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/rtt/golden/live.txt"),
            &(lines.join("\n") + "\n"),
        );
    }

    #[test]
    fn the_summary() {
        let mut losses = Losses::default();
        losses.add(&sample::flows()[0], |_| Some(sample::run().groups[0].key));
        let lines = summary(&sample::run(), &losses, 110, Style::default());
        golden(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/rtt/golden/summary.txt"),
            &(lines.join("\n") + "\n"),
        );
    }

    #[test]
    fn interfaces_that_are_watched_alike_share_a_line() {
        let mut run = sample::run();
        run.points.push(RttPoint { name: "eth1".into(), ..run.points[0].clone() });
        run.points.push(RttPoint { how: "xdp".into(), vanished: 2, ..run.points[0].clone() });
        let text = footer(&run.points, &run.coverage, run.caveats, 100, Style::default());
        let line = "measured at eth0, eth1: tcx, ingress and egress; eth0 (gone 2 times): xdp";
        assert!(text.iter().any(|l| l == line), "{text:?}");
    }

    #[test]
    fn a_long_summary_says_how_much_is_not_shown() {
        let mut run = sample::run();
        run.groups =
            (0..50).map(|i| RttGroup { key: GroupKey::As(i), ..run.groups[0].clone() }).collect();
        let text = summary(&run, &Losses::default(), 100, Style::default()).join("\n");
        assert!(text.contains("and 30 groups that are faster"), "{text}");
        run.groups.clear();
        let text = summary(&run, &Losses::default(), 100, Style::default()).join("\n");
        assert!(text.contains("no round trip found"), "{text}");
    }

    #[test]
    fn a_table_that_just_fits_is_not_made_wider() {
        let (run, losses) = (sample::run(), Losses::default());
        let lines = live(&snapshot(&run, &losses), 76, 6, Style::default());
        assert!(lines.iter().all(|l| l.chars().count() <= 76), "{lines:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn it_fits_any_terminal(width in 40usize..160, height in 1usize..60) {
            let (run, losses) = (sample::run(), Losses::default());
            let lines = live(&snapshot(&run, &losses), width, height, Style::default());
            prop_assert!(lines.len() < height.max(2));
            prop_assert!(lines.iter().all(|l| l.chars().count() <= width));
        }
    }
}
