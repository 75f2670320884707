//! A table of groups that fits its width, and the sparkline of a histogram.

use sonde_results::Hist;
use sonde_results::hist::bounds_of;
use sonde_results::record::pdv;
use sonde_results::units::{format_count, format_dscp, format_ns, format_ns_or_dash, format_share};

use super::groups::Group;
use super::style::{Style, Tone, clip};

/// Renders `groups` in at most `width` columns: what matters least is left out first.
pub fn render(groups: &[Group<'_>], width: usize, style: Style) -> Vec<String> {
    let mut columns: Vec<(&Column, Vec<String>, usize)> = COLUMNS
        .iter()
        .map(|column| {
            let cells: Vec<String> = groups.iter().map(|g| (column.cell)(g)).collect();
            let widest = cells.iter().map(|c| c.chars().count()).max().unwrap_or(0);
            (column, cells, widest.max(column.head.len()))
        })
        .collect();
    let total = |columns: &[(&Column, Vec<String>, usize)]| {
        columns.iter().map(|c| c.2 + GAP).sum::<usize>() - GAP
    };
    while total(&columns) > width {
        let Some(least) = (0..columns.len()).max_by_key(|&i| columns[i].0.rank) else { break };
        if columns[least].0.rank == 0 {
            let excess = total(&columns) - width;
            columns[0].2 = columns[0].2.saturating_sub(excess).max(6);
            break;
        }
        columns.remove(least);
    }
    let mut lines = Vec::with_capacity(groups.len() + 1);
    let head: Vec<String> = columns.iter().map(|(c, _, w)| pad(c.head, *w, c.left)).collect();
    lines.push(style.paint(Tone::Head, clip(&head.join(SPACE), width).trim_end()));
    for (row, group) in groups.iter().enumerate() {
        let mut line = String::new();
        for (i, (column, cells, w)) in columns.iter().enumerate() {
            if i > 0 {
                line.push_str(SPACE);
            }
            let cell = pad(&clip(&cells[row], *w), *w, column.left);
            let bad = column.head == "LOSS" && group.interval.counters.lost > 0;
            line.push_str(&style.paint(if bad { Tone::Bad } else { Tone::Plain }, &cell));
        }
        lines.push(line.trim_end().to_string());
    }
    lines
}

/// The shape of `hist` in `cells` blocks, least value left, greatest right; the axis is
/// logarithmic where all values are positive. Empty without values.
pub fn sparkline(hist: &Hist, cells: usize) -> String {
    let (Some(min), Some(max)) = (hist.min(), hist.max()) else { return String::new() };
    if cells == 0 {
        return String::new();
    }
    let scale = |v: i64| if min > 0 { (v as f64).ln() } else { v as f64 };
    let (low, span) = (scale(min), scale(max) - scale(min));
    let mut bins = vec![0_u64; if span > 0.0 { cells } else { 1 }];
    for &(bucket, n) in &hist.buckets {
        let (a, b) = bounds_of(bucket);
        let middle = (a + (b - a) / 2).clamp(min, max);
        let place = if span > 0.0 { (scale(middle) - low) / span * cells as f64 } else { 0.0 };
        let last = bins.len() - 1;
        bins[(place as usize).min(last)] += u64::from(n);
    }
    let top = bins.iter().copied().max().unwrap_or(1).max(1);
    bins.iter()
        .map(|&n| match n {
            0 => ' ',
            n => BLOCKS[((n as f64 / top as f64 * 8.0).ceil() as usize).clamp(1, 8) - 1],
        })
        .collect()
}

struct Column {
    head: &'static str,
    /// Columns of the highest rank are left out first; those of rank 0 never.
    rank: u8,
    left: bool,
    cell: fn(&Group<'_>) -> String,
}

const COLUMNS: &[Column] = &[
    Column { head: "TARGET", rank: 0, left: true, cell: |g| g.label.to_string() },
    Column {
        head: "DSCP",
        rank: 0,
        left: true,
        cell: |g| g.dscp.map_or_else(|| "all".into(), format_dscp),
    },
    Column { head: "SENT", rank: 3, left: false, cell: |g| format_count(g.interval.counters.sent) },
    Column {
        head: "LOSS",
        rank: 0,
        left: false,
        cell: |g| format_share(g.interval.counters.lost, g.interval.counters.sent),
    },
    Column { head: "FWD/BWD", rank: 5, left: false, cell: loss_sides },
    Column { head: "RTT MIN", rank: 2, left: false, cell: |g| ns(g.interval.rtt.min()) },
    Column {
        head: "MEAN",
        rank: 6,
        left: false,
        cell: |g| format_ns_or_dash(g.interval.rtt.mean()),
    },
    Column { head: "RTT P50", rank: 0, left: false, cell: |g| ns(g.interval.rtt.quantile(0.5)) },
    Column { head: "P99", rank: 0, left: false, cell: |g| ns(g.interval.rtt.quantile(0.99)) },
    Column { head: "MAX", rank: 1, left: false, cell: |g| ns(g.interval.rtt.max()) },
    Column {
        head: "IPDV P99 F/B",
        rank: 7,
        left: false,
        cell: |g| {
            pair(g.interval.ipdv_forward.quantile(0.99), g.interval.ipdv_backward.quantile(0.99))
        },
    },
    Column {
        head: "PDV P99.9 F/B",
        rank: 8,
        left: false,
        cell: |g| match g.members {
            1 => pair(pdv(&g.interval.forward, 0.999), pdv(&g.interval.backward, 0.999)),
            _ => "-".to_string(),
        },
    },
];

const GAP: usize = 2;
const SPACE: &str = "  ";
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Forward and backward losses, and those of streams that cannot tell.
fn loss_sides(group: &Group<'_>) -> String {
    let c = &group.interval.counters;
    let (Some(forward), Some(backward)) = (c.lost_forward, c.lost_backward) else {
        return if c.lost == 0 { "-" } else { "?" }.to_string();
    };
    let sides = format!("{}/{}", format_count(forward), format_count(backward));
    match c.lost_unknown {
        _ if c.lost == 0 => "-".to_string(),
        0 => sides,
        unknown => format!("{sides}+{}?", format_count(unknown)),
    }
}

fn ns(value: Option<i64>) -> String {
    format_ns_or_dash(value.map(|v| v as f64))
}

fn pair(forward: Option<i64>, backward: Option<i64>) -> String {
    match (forward, backward) {
        (Some(f), Some(b)) => format!("{} / {}", format_ns(f as f64), format_ns(b as f64)),
        _ => "-".to_string(),
    }
}

fn pad(text: &str, width: usize, left: bool) -> String {
    if left { format!("{text:<width$}") } else { format!("{text:>width$}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::groups;
    use proptest::prelude::*;
    use sonde_results::testing::{golden, probe as sample};

    #[test]
    fn a_wide_table_has_all_columns_and_a_narrow_one_what_matters() {
        let run = sample::run(2, 2);
        let mut groups = groups::by_dscp(&run.streams, &run.totals);
        groups.extend(groups::worst(&run.streams, &run.totals, 1));
        golden(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/output/golden/table.txt"),
            &(render(&groups, 200, Style::default()).join("\n") + "\n"),
        );
        let narrow = render(&groups, 44, Style::default());
        assert_eq!(narrow[0], "TARGET     DSCP  LOSS  RTT P50      P99");
    }

    #[test]
    fn losses_without_a_side_are_not_given_one() {
        let mut run = sample::run(1, 1);
        let sides =
            |run: &sonde_results::Run| loss_sides(&groups::worst(&run.streams, &run.totals, 1)[0]);
        assert_eq!(sides(&run), "1/1");
        run.totals[0].counters.lost = 5;
        run.totals[0].counters.settle_sides();
        assert_eq!(sides(&run), "1/1+3?");
        let c = &mut run.totals[0].counters;
        (c.lost_forward, c.lost_backward, c.lost_unknown) = (None, None, c.lost);
        assert_eq!(sides(&run), "?");
        run.totals[0].counters.lost = 0;
        assert_eq!(sides(&run), "-");
    }

    #[test]
    fn loss_is_red() {
        let run = sample::run(1, 1);
        let groups = groups::by_dscp(&run.streams, &run.totals);
        let lines = render(&groups, 80, Style::new(true));
        assert!(lines[1].contains("\x1b[31m0.2%\x1b[0m"), "{}", lines[1]);
    }

    #[test]
    fn sparklines_show_the_shape() {
        let mut hist = Hist::default();
        assert_eq!(sparkline(&hist, 8), "");
        hist.add(500);
        assert_eq!(sparkline(&hist, 8), "█");
        (0..8).for_each(|_| hist.add(1_000));
        assert_eq!(sparkline(&hist, 8), "▁      █");
        hist.add(-500);
        assert_eq!(sparkline(&hist, 2), "▁█");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_asked(width in 30usize..200, name in "[a-zäß.]{1,60}") {
            let mut run = sample::run(1, 1);
            run.streams[0].target = name;
            let groups = groups::worst(&run.streams, &run.totals, 9);
            for line in render(&groups, width.max(40), Style::default()) {
                prop_assert!(line.chars().count() <= width.max(40), "{}", line);
            }
        }

        #[test]
        fn any_values_have_a_sparkline(values in prop::collection::vec(any::<i64>(), 1..20)) {
            let mut hist = Hist::default();
            values.iter().for_each(|&v| hist.add(v));
            let cells = sparkline(&hist, 12).chars().count();
            prop_assert!(cells == 12 || cells == 1);
        }
    }
}
