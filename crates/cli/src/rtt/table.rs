//! Groups as rows: the slowest first, each with the shape of its distribution on an axis
//! that all rows share.

use sonde_results::Hist;
use sonde_results::rtt::{GroupKey, RttGroup};
use sonde_results::rtt_run::RttPoint;
use sonde_results::units::{format_count, format_dscp, format_ns, format_ns_or_dash, format_share};
use sonde_run::rtt::Loss;
use sonde_run::rtt::epping::EppingProtocol;

use crate::output::sparkline::bars;
use crate::output::style::{Style, Tone, clip};
use crate::output::text_table::{TextColumn, TextTable};

#[derive(Clone, Debug)]
pub struct Row<'a> {
    pub label: String,
    pub group: &'a RttGroup,
    /// Loss towards the hosts of this group; `None`: not known for this grouping.
    pub loss: Option<Loss>,
}

/// What people call a group.
pub fn label(key: &GroupKey, points: &[RttPoint]) -> String {
    match key {
        GroupKey::Prefix { address, length } => format!("{address}/{length}"),
        GroupKey::As(0) => "no AS known".into(),
        GroupKey::As(asn) => format!("AS{asn}"),
        GroupKey::Interface(i) => point(points, *i).into(),
        GroupKey::Vlan(0) => "untagged".into(),
        GroupKey::Vlan(id) => format!("VLAN {id}"),
        GroupKey::Dscp(dscp) => format_dscp(*dscp),
        GroupKey::Flow(flow) => {
            let at = match points.len() {
                0 | 1 => String::new(),
                _ => format!(" @{}", point(points, flow.point)),
            };
            format!(
                "{} ← {} {}{at}",
                std::net::SocketAddr::new(flow.source, flow.source_port),
                std::net::SocketAddr::new(flow.destination, flow.destination_port),
                EppingProtocol(flow.protocol)
            )
        }
        GroupKey::Other => "other".into(),
    }
}

/// Renders `rows` in at most `width` columns: what matters least is left out first.
pub fn render(rows: &[Row<'_>], width: usize, style: Style) -> Vec<String> {
    let axis = Axis::of(rows.iter().map(|r| &r.group.clean));
    let columns = COLUMNS.iter().map(|&(head, rank, left, cell)| TextColumn {
        head,
        rank,
        left,
        cells: rows.iter().map(|row| cell(row, &axis)).collect(),
    });
    // Without requests there is no share of them to show.
    let is_used = |c: &TextColumn| c.head != "LOST" || c.cells.iter().any(|cell| cell != "-");
    let mut table = TextTable::new(columns.filter(is_used));
    // First the lesser columns go, then a long name is cut, then further columns go.
    table.leave_out(width, NAME_CUT_BEFORE);
    table.cut_first(width, NAME_LEAST);
    table.leave_out(width, 1);
    table.cut_first(width, 6);
    let mut lines = table.lines(width, style, |i, head| {
        let row = &rows[i];
        match head {
            "RETX" if row.loss.is_some_and(|l| l.retransmitted > 0) => Tone::Bad,
            "LOST" if row.loss.is_some_and(|l| l.unanswered > 0) => Tone::Bad,
            "RECOV" if row.group.recovery.count > 0 => Tone::Warn,
            _ => Tone::Plain,
        }
    });
    if let Some(scale) = axis.describe().filter(|_| table.has("SHAPE")) {
        lines.push(style.paint(Tone::Dim, &clip(&scale, width)));
    }
    lines
}

/// What the samples of the other classes are like, in any width: a rise of the path may be
/// among them.
pub fn other_classes(group: &RttGroup) -> Option<String> {
    let classes: Vec<String> =
        [("in recovery", &group.recovery), ("delayed ACK", &group.delayed_ack)]
            .into_iter()
            .filter(|(_, hist)| hist.count > 0)
            .map(|(name, hist)| {
                let (count, p50, p99) = (format_count(hist.count), of(hist, 0.5), of(hist, 0.99));
                format!("{name}: {count} samples, P50 {p50}, P99 {p99}")
            })
            .collect();
    (!classes.is_empty()).then(|| classes.join("; "))
}

/// Heading, rank, whether it stands left, what a row has in it: see [`TextColumn`].
type Spec = (&'static str, u8, bool, fn(&Row<'_>, &Axis) -> String);

const COLUMNS: &[Spec] = &[
    ("GROUP", 0, true, |r, _| r.label.clone()),
    ("SAMPLES", 2, false, |r, _| format_count(r.group.clean.count)),
    ("MIN", 5, false, |r, _| format_ns_or_dash(r.group.clean.min())),
    ("P50", 0, false, |r, _| of(&r.group.clean, 0.5)),
    ("P90", 8, false, |r, _| of(&r.group.clean, 0.9)),
    ("P99", 0, false, |r, _| of(&r.group.clean, 0.99)),
    ("MAX", 6, false, |r, _| format_ns_or_dash(r.group.clean.max())),
    ("RECOV", 4, false, |r, _| some(r.group.recovery.count)),
    ("REC P50", 9, false, |r, _| of(&r.group.recovery, 0.5)),
    ("REC P99", 10, false, |r, _| of(&r.group.recovery, 0.99)),
    ("DELACK", 7, false, |r, _| some(r.group.delayed_ack.count)),
    ("DEL P50", 9, false, |r, _| of(&r.group.delayed_ack, 0.5)),
    ("DEL P99", 10, false, |r, _| of(&r.group.delayed_ack, 0.99)),
    ("RETX", 1, false, |r, _| match r.loss {
        Some(loss) if loss.packets > 0 => format_share(loss.retransmitted, loss.packets),
        _ => "-".into(),
    }),
    ("LOST", 1, false, |r, _| match r.loss {
        Some(loss) if loss.requests > 0 => format_share(loss.unanswered, loss.requests),
        _ => "-".into(),
    }),
    ("SHAPE", 3, true, |r, axis| axis.spark(&r.group.clean)),
];

/// Names are cut to this before columns of less than [`NAME_CUT_BEFORE`] go.
const NAME_LEAST: usize = 28;
/// MIN, MAX, DELACK and P90 are worth less than a whole name.
const NAME_CUT_BEFORE: u8 = 5;
const CELLS: usize = 14;

/// A logarithmic axis from the least to the greatest value of all rows.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of<'a>(hists: impl Iterator<Item = &'a Hist>) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for hist in hists {
            if let (Some(min), Some(max)) = (hist.min(), hist.max()) {
                low = low.min(min.max(1) as f64);
                high = high.max(max.max(1) as f64);
            }
        }
        Axis { low, high }
    }

    /// The shape of `hist` on this axis, its highest bar full.
    fn spark(&self, hist: &Hist) -> String {
        let span = self.high.ln() - self.low.ln();
        let distance = |v: i64| (v.max(1) as f64).ln() - self.low.ln();
        bars(hist, CELLS, |v| if span > 0.0 { distance(v) / span } else { 0.0 })
    }

    fn describe(&self) -> Option<String> {
        (self.high >= self.low).then(|| {
            format!("shape: {} to {}, logarithmic", format_ns(self.low), format_ns(self.high))
        })
    }
}

fn point(points: &[RttPoint], index: u8) -> &str {
    points.get(usize::from(index)).map_or("?", |p| p.name.as_str())
}

fn of(hist: &Hist, q: f64) -> String {
    format_ns_or_dash(hist.quantile(q))
}

/// A count of what there should be none of.
fn some(count: u64) -> String {
    if count == 0 { "-".into() } else { format_count(count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sonde_results::testing::{golden, rtt as sample};

    fn rows(groups: &[RttGroup]) -> Vec<Row<'_>> {
        let some = Loss { packets: 1_000, retransmitted: 12, ..Loss::default() };
        let loss = [Some(some), Some(Loss::default()), None];
        groups
            .iter()
            .zip(loss)
            .map(|(group, loss)| Row { label: label(&group.key, &[]), group, loss })
            .collect()
    }

    #[test]
    fn a_wide_table_and_a_narrow_one() {
        let run = sample::run();
        let wide = render(&rows(&run.groups), 140, Style::default());
        let narrow = render(&rows(&run.groups), 60, Style::default());
        golden(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/rtt/golden/table.txt"),
            &format!("{}\n\n{}\n", wide.join("\n"), narrow.join("\n")),
        );
    }

    #[test]
    fn a_flow_has_its_whole_name_where_there_is_room() {
        let mut run = sample::run();
        run.groups[0].key = GroupKey::Flow(sample::from_server());
        let has =
            |width, text| render(&rows(&run.groups), width, Style::default())[1].contains(text);
        assert!(has(100, "192.0.2.7:443 ← 10.0.0.1:50000 TCP"));
        assert!(has(80, "192.0.2.7:443 ← 10.0.0.1"));
    }

    #[test]
    fn loss_and_recovery_are_coloured() {
        let run = sample::run();
        let lines = render(&rows(&run.groups), 140, Style::new(true));
        assert!(lines[1].contains("\x1b[31m") && lines[1].contains("\x1b[33m"), "{}", lines[1]);
        assert!(!lines[3].contains("\x1b[3"), "{}", lines[3]);
    }

    #[test]
    fn requests_without_an_answer_have_a_column_where_there_are_any() {
        let run = sample::run();
        let mut rows = rows(&run.groups);
        assert!(!render(&rows, 140, Style::default())[0].contains("LOST"));
        rows[1].loss = Some(Loss { requests: 600, unanswered: 60, ..Loss::default() });
        let lines = render(&rows, 140, Style::default());
        assert!(lines[0].contains("LOST") && lines[2].contains("10"), "{lines:?}");
    }

    #[test]
    fn groups_have_the_names_people_use() {
        let points =
            ["eth0", "eth1"].map(|name| RttPoint { name: name.into(), ..RttPoint::default() });
        let flow =
            GroupKey::Flow(sonde_results::rtt::FlowKey { point: 1, ..sample::from_server() });
        for (key, name) in [
            (GroupKey::As(64_500), "AS64500"),
            (GroupKey::As(0), "no AS known"),
            (GroupKey::Interface(1), "eth1"),
            (GroupKey::Interface(9), "?"),
            (GroupKey::Vlan(0), "untagged"),
            (GroupKey::Vlan(100), "VLAN 100"),
            (GroupKey::Dscp(46), "EF"),
            (flow, "192.0.2.7:443 ← 10.0.0.1:50000 TCP @eth1"),
            (GroupKey::Other, "other"),
        ] {
            assert_eq!(label(&key, &points), name);
        }
    }

    #[test]
    fn nothing_measured_is_a_head_alone() {
        assert_eq!(render(&[], 80, Style::default()).len(), 1);
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_asked(width in 40usize..200, name in "[a-z0-9.:]{1,90}") {
            let run = sample::run();
            let mut rows = rows(&run.groups);
            rows[1].label = name;
            for line in render(&rows, width, Style::default()) {
                prop_assert!(line.chars().count() <= width, "{}", line);
            }
        }
    }
}
