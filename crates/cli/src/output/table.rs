//! A table of groups that fits its width.

use sonde_results::record::pdv;
use sonde_results::units::{format_count, format_dscp, format_ns, format_ns_or_dash, format_share};

use super::groups::StreamGroup;
use super::style::{Style, Tone};
use super::text_table::{TextColumn, TextTable};

/// Renders `groups` in at most `width` columns: what matters least is left out first.
pub fn render(groups: &[StreamGroup<'_>], width: usize, style: Style) -> Vec<String> {
    let ports = groups.iter().any(|g| g.source_port.is_some());
    let columns = COLUMNS.iter().filter(|(head, ..)| ports || *head != SOURCE_PORT);
    let mut table = TextTable::new(columns.map(|&(head, rank, left, cell)| TextColumn {
        head,
        rank,
        left,
        cells: groups.iter().map(cell).collect(),
    }));
    table.leave_out(width, 1);
    table.cut_first(width, 6);
    table.lines(width, style, |row, head| {
        let bad = head == "LOSS" && groups[row].interval.counters.lost > 0;
        if bad { Tone::Bad } else { Tone::Plain }
    })
}

/// Heading, rank, whether it stands left, what a group has in it: see [`TextColumn`].
type Spec = (&'static str, u8, bool, fn(&StreamGroup<'_>) -> String);

/// Shown where streams differ only by this.
const SOURCE_PORT: &str = "SRC PORT";
const COLUMNS: &[Spec] = &[
    ("TARGET", 0, true, |g| g.label.to_string()),
    (SOURCE_PORT, 0, false, |g| g.source_port.map_or_else(String::new, |port| port.to_string())),
    ("DSCP", 0, true, |g| g.dscp.map_or_else(|| "all".into(), format_dscp)),
    ("SENT", 3, false, |g| format_count(g.interval.counters.sent)),
    ("LOSS", 0, false, |g| format_share(g.interval.counters.lost, g.interval.counters.sent)),
    ("FWD/BWD", 5, false, loss_sides),
    ("RTT MIN", 2, false, |g| format_ns_or_dash(g.interval.rtt.min())),
    ("MEAN", 6, false, |g| g.interval.rtt.mean().map_or_else(|| "-".into(), format_ns)),
    ("RTT P50", 0, false, |g| format_ns_or_dash(g.interval.rtt.quantile(0.5))),
    ("P99", 0, false, |g| format_ns_or_dash(g.interval.rtt.quantile(0.99))),
    ("MAX", 1, false, |g| format_ns_or_dash(g.interval.rtt.max())),
    ("IPDV P99 F/B", 7, false, |g| {
        pair(g.interval.ipdv_forward.quantile(0.99), g.interval.ipdv_backward.quantile(0.99))
    }),
    ("PDV P99.9 F/B", 8, false, |g| match g.members {
        1 => pair(pdv(&g.interval.forward, 0.999), pdv(&g.interval.backward, 0.999)),
        _ => "-".to_string(),
    }),
];

/// Forward and backward losses, and those of streams of which the side is unknown.
fn loss_sides(group: &StreamGroup<'_>) -> String {
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

fn pair(forward: Option<i64>, backward: Option<i64>) -> String {
    match (forward, backward) {
        (Some(f), Some(b)) => format!("{} / {}", format_ns(f as f64), format_ns(b as f64)),
        _ => "-".to_string(),
    }
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
    fn source_ports_have_a_column_where_nothing_else_tells_streams_apart() {
        let mut run = sample::run(2, 1);
        let first = run.streams[0].clone();
        run.streams[1] = sonde_results::StreamInfo {
            source: (first.source.ip(), 50_001).into(),
            ..first.clone()
        };
        let c = &mut run.totals[1].counters;
        (c.received, c.lost) = (0, c.sent);
        let groups = groups::worst(&run.streams, &run.totals, 9);
        let lines = render(&groups, 80, Style::default());
        assert!(lines[0].starts_with("TARGET    SRC PORT  DSCP   SENT"), "{lines:?}");
        assert!(lines[1].starts_with("10.2.0.1     50001  BE    1,000  100%"), "{lines:?}");
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
    }
}
