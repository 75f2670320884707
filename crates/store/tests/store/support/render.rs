//! Answers as lines.

use std::fmt::Write as _;

use sonde_store::query::{EventRow, FlowPointRow, RttFigures, Summary, TopRow};
use sonde_store::{Answer, InterfaceSide};

use super::script::BASE_NS;

/// An answer as lines.
pub fn render(answer: &Answer) -> String {
    let mut out = String::new();
    match answer {
        Answer::Overview(rows) => {
            for row in rows {
                match row.series {
                    Some(id) => write!(out, "{}", id.0).unwrap(),
                    None => write!(out, "[{}]", row.group.join(" ")).unwrap(),
                }
                writeln!(
                    out,
                    " members={} silent={} {}",
                    row.members,
                    row.silent,
                    summary(&row.summary)
                )
                .unwrap();
            }
        }
        Answer::Series(tables) => {
            for table in tables {
                for (start, point) in table.points.start_ns.iter().zip(&table.points.points) {
                    writeln!(out, "{} {} {}", table.series.0, time(*start), summary(point))
                        .unwrap();
                }
            }
        }
        Answer::Bands(points) => {
            for (start, point) in points.start_ns.iter().zip(&points.points) {
                writeln!(out, "{} {}", time(*start), summary(point)).unwrap();
            }
        }
        Answer::Heat(map) => {
            for (i, (low, high)) in map.rows_ns.iter().enumerate() {
                writeln!(out, "row {i}: {low}..{high}").unwrap();
            }
            for (column, row, n) in &map.cells {
                writeln!(out, "cell {column} {row}: {n}").unwrap();
            }
            for (column, n) in &map.lost {
                writeln!(out, "lost {column}: {n}").unwrap();
            }
            if map.without_bucket > 0 {
                writeln!(out, "without bucket: {}", map.without_bucket).unwrap();
            }
        }
        Answer::Top(table) => {
            for row in &table.rows {
                writeln!(out, "[{}] {}", row.values.join(" "), flow(row)).unwrap();
            }
            writeln!(out, "other {}", flow(&table.other)).unwrap();
        }
        Answer::RttTop(table) => {
            for row in &table.rows {
                writeln!(out, "{} {} {}", row.series.0, row.group, rtt(&row.figures)).unwrap();
            }
            writeln!(out, "other groups={} {}", table.other_groups, rtt(&table.other)).unwrap();
        }
        Answer::Availability(rows) => {
            for r in rows {
                let seconds =
                    [r.clear_ns, r.lossy_ns, r.down_ns, r.unsent_ns, r.unknown_ns].map(seconds);
                let [clear, lossy, down, unsent, unknown] = seconds;
                write!(
                    out,
                    "{} clear={clear} lossy={lossy} down={down} unsent={unsent} unknown={unknown} \
                     within={:.6}..{:.6} intervals={}",
                    r.series.0, r.least, r.most, r.intervals
                )
                .unwrap();
                writeln!(out, "{}", caveats(&r.caveats)).unwrap();
            }
        }
        Answer::Events(rows) => rows.iter().for_each(|row| out.push_str(&event(row))),
        Answer::Evidence(table) => {
            for row in &table.series {
                writeln!(out, "{} during {}", row.series.0, summary(&row.during)).unwrap();
                writeln!(out, "{} before {}", row.series.0, summary(&row.before)).unwrap();
            }
            for row in &table.flows {
                let values = row.during.values.join(" ");
                writeln!(out, "[{values}] during {}", flow(&row.during)).unwrap();
                writeln!(out, "[{values}] before {}", flow(&row.before)).unwrap();
            }
            table.events.iter().for_each(|row| out.push_str(&event(row)));
        }
        Answer::BadSamples(table) => {
            for row in &table.rows {
                for w in &row.windows {
                    let doubt = w.doubt.map_or("-".into(), |c| format!("{c:?}"));
                    writeln!(
                        out,
                        "{} {} {}: n={} bad={} doubtful={}/{} {doubt} lost={}/{}/{}",
                        row.series.0,
                        if row.group.is_empty() { "-" } else { &row.group },
                        w.window,
                        w.n,
                        w.bad,
                        w.doubtful_bad,
                        w.doubtful_n,
                        w.lost_forward,
                        w.lost_backward,
                        w.lost
                    )
                    .unwrap();
                }
            }
            writeln!(out, "intervals of {}", table.interval_ns).unwrap();
        }
        Answer::Merged(record) => match record {
            None => writeln!(out, "none").unwrap(),
            Some(r) => {
                let c = &r.counters;
                let p90 = |hist: &sonde_results::Hist| hist.quantile(0.9).unwrap_or(-1);
                writeln!(
                    out,
                    "sent={} lost={} there={:?} back={:?} n={} p90={} forward={} p90={} {:?}",
                    c.sent,
                    c.lost,
                    c.lost_forward,
                    c.lost_backward,
                    r.rtt_net.count,
                    p90(&r.rtt_net),
                    r.forward.count,
                    p90(&r.forward),
                    r.caveats
                )
                .unwrap();
            }
        },
        Answer::Interfaces(tables) => {
            for row in tables.iter().flat_map(|table| &table.sums) {
                let side = |s: &InterfaceSide| {
                    format!("{}/{}/{}/{}", s.octets, s.packets, s.dropped, s.errors)
                };
                writeln!(
                    out,
                    "{} {} {} intervals={} rx={} tx={} queue={} speed={}",
                    row.series.0,
                    time(row.start_ns),
                    seconds(row.length_ns),
                    row.intervals,
                    side(&row.receive),
                    side(&row.transmit),
                    row.queue_dropped,
                    row.speed_bps
                )
                .unwrap();
            }
        }
        Answer::FlowPoints(table) => {
            let starts = table.starts_ns.iter().map(|ns| (ns - BASE_NS) / 1_000_000_000);
            let starts: Vec<String> = starts.map(|s| format!("+{s}s")).collect();
            writeln!(out, "at {}", starts.join(" ")).unwrap();
            for row in &table.rows {
                writeln!(out, "[{}] {}", row.values.join(" "), windows(row)).unwrap();
            }
            writeln!(out, "other {}", windows(&table.other)).unwrap();
        }
        Answer::FlowRates(points) => {
            for p in points {
                let (at, point) = (p.exporter.0, p.point);
                writeln!(out, "{at}/{point} {:.0} before {:.0}", p.during_bps, p.before_bps)
                    .unwrap();
                for f in &p.flows {
                    writeln!(
                        out,
                        "{} > {} {}/{} {:.0} before {:.0}",
                        f.source,
                        f.destination,
                        f.service_port,
                        f.protocol,
                        f.during_bps,
                        f.before_bps
                    )
                    .unwrap();
                }
            }
        }
    }
    out
}

fn event(row: &EventRow) -> String {
    let e = &row.event;
    let series = e.series.map_or("-".into(), |s| s.0.to_string());
    let end = e.end_ns.map_or("-".into(), time);
    format!(
        "event {} {series} {} {} {} {end} {}\n",
        row.id.0,
        e.kind,
        e.severity.name(),
        time(e.begin_ns),
        e.title
    )
}

/// Of each window records, flows, packets and bytes.
fn windows(row: &FlowPointRow) -> String {
    let window = |at: usize| {
        let (records, flows) = (row.records[at], row.flows[at]);
        format!("{records}/{flows}/{}/{}", row.packets[at], row.bytes[at])
    };
    (0..row.bytes.len()).map(window).collect::<Vec<_>>().join(" ")
}

fn flow(row: &TopRow) -> String {
    let mut out = format!(
        "flows={} packets={}+{} bytes={}+{}",
        row.flows, row.packets, row.reverse_packets, row.bytes, row.reverse_bytes
    );
    if row.handshakes > 0 {
        let median = row.handshake_median_ns.unwrap();
        write!(out, " handshakes={} median={median}", row.handshakes).unwrap();
    }
    out
}

fn rtt(f: &RttFigures) -> String {
    let mut out = format!(
        "intervals={} n={} recovery={} delayed={}",
        f.intervals, f.n, f.recovery, f.delayed_ack
    );
    if let (Some(mean), Some(min), Some(max)) = (f.mean_ns, f.min_ns, f.max_ns) {
        write!(out, " mean={mean:.1} min={min} max={max}").unwrap();
    }
    if f.quantiles_ns.iter().any(Option::is_some) {
        let quantiles: Vec<String> =
            f.quantiles_ns.iter().map(|q| q.map_or("-".into(), |q| q.to_string())).collect();
        write!(out, " q={}", quantiles.join("|")).unwrap();
    }
    out + &caveats(&f.caveats)
}

fn summary(s: &Summary) -> String {
    let side = |n: Option<u64>| n.map_or("?".into(), |n| n.to_string());
    let mut out = format!(
        "intervals={} sent={} received={} lost={} sides={}/{}/{}",
        s.intervals,
        s.sent,
        s.received,
        s.lost,
        side(s.lost_forward),
        side(s.lost_backward),
        s.lost_unknown
    );
    if s.n > 0 {
        write!(out, " n={}", s.n).unwrap();
        if s.held != s.n {
            write!(out, " held={}", s.held).unwrap();
        }
        write!(
            out,
            " mean={:.1} min={} max={}",
            s.mean_ns.unwrap(),
            s.min_ns.unwrap(),
            s.max_ns.unwrap()
        )
        .unwrap();
    }
    if s.quantiles_ns.iter().any(Option::is_some) {
        let quantiles: Vec<String> =
            s.quantiles_ns.iter().map(|q| q.map_or("-".into(), |q| q.to_string())).collect();
        write!(out, " q={}", quantiles.join("|")).unwrap();
    }
    out + &caveats(&s.caveats)
}

fn caveats(of: &[(sonde_results::Caveat, u64)]) -> String {
    let all: Vec<String> = of
        .iter()
        .map(|(c, n)| format!("{}:{n}", serde_json::to_value(c).unwrap().as_str().unwrap()))
        .collect();
    if all.is_empty() { String::new() } else { format!(" caveats={}", all.join(",")) }
}

fn time(ns: i64) -> String {
    format!("+{}", seconds(ns - BASE_NS))
}

fn seconds(ns: i64) -> String {
    match ns % 1_000_000_000 {
        0 => format!("{}s", ns / 1_000_000_000),
        _ => format!("{ns}ns"),
    }
}
