//! The live view and the summary: rates, cache, protocols, the greatest flows, what went
//! where, and what casts doubt on it.

use std::net::IpAddr;

use sonde_results::FlowRun;
use sonde_results::advice::AdviceContext;
use sonde_results::caveat::CaveatSet;
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::{ExportTotal, ProtocolTotal};
use sonde_results::units::{SECOND, format_count, format_elapsed, format_ns, format_share};
use sonde_run::flow::{Talker, bytes};
use sonde_wire::protocol;

use crate::output::live::wrapped;
use crate::output::style::{Style, Tone, clip};
use crate::output::text_table::{TextColumn, TextTable};
use crate::signals;

/// What is known at one moment of a run.
pub struct FlowSnapshot<'a> {
    /// Since the start, ns.
    pub elapsed_ns: i64,
    /// Length of the latest interval, ns.
    pub interval_ns: i64,
    /// Names of the interfaces.
    pub points: &'a [String],
    /// How they are read.
    pub engine: &'a str,
    /// By protocol, of the latest interval.
    pub protocols: &'a [ProtocolTotal],
    /// Flows held now, and how many may be.
    pub flows: (u64, u64),
    /// Flows that began in the latest interval.
    pub created: u64,
    /// Records that went out in the latest interval, and since the start.
    pub records: (u64, u64),
    /// Packets dropped before metering, and records dropped after it, since the start.
    pub lost: (u64, u64),
    /// The fastest flows now, the fastest first.
    pub top: &'a [Talker],
    /// What casts doubt so far.
    pub caveats: CaveatSet,
}

impl FlowSnapshot<'_> {
    /// What came in the latest interval, a second.
    fn rate(&self, n: u64) -> String {
        format_count((n as f64 * SECOND as f64 / self.interval_ns.max(1) as f64).round() as u64)
    }
}

/// The view for a terminal of `width` by `height`: never wider, never higher.
pub fn live(s: &FlowSnapshot<'_>, width: usize, height: usize, style: Style) -> Vec<String> {
    let rate = |n: u64| s.rate(n);
    let sum = |of: fn(&ProtocolTotal) -> u64| s.protocols.iter().map(of).sum::<u64>();
    let (packets, octets) = (sum(|p| p.packets), sum(|p| p.bytes));
    let first = format!(
        "sonde flow  {}  {}  {}",
        format_elapsed(s.elapsed_ns),
        s.points.join(", "),
        s.engine
    );
    let second = format!(
        "packets {}/s  {} bit/s  new flows {}/s  records {}/s",
        rate(packets),
        rate(octets * 8),
        rate(s.created),
        rate(s.records.0)
    );
    let mut third = format!(
        "cache {} of {} flows ({})  exported {}",
        format_count(s.flows.0),
        format_count(s.flows.1),
        format_share(s.flows.0, s.flows.1),
        format_count(s.records.1)
    );
    if s.lost != (0, 0) {
        third.push_str(&format!(
            "  LOST {} packets, {} records",
            format_count(s.lost.0),
            format_count(s.lost.1)
        ));
    }
    let tone = if s.lost == (0, 0) { Tone::Plain } else { Tone::Bad };
    let mut lines = vec![
        style.paint(Tone::Head, &clip(&first, width)),
        clip(&second, width),
        style.paint(tone, &clip(&third, width)),
        clip(&protocol_line(s.protocols), width),
    ];
    let doubts = doubts(s.caveats, s.engine, width, style);
    let room = height.saturating_sub(lines.len() + doubts.len() + 4);
    if !s.top.is_empty() && room > 0 {
        lines.push(String::new());
        lines.extend(fast(&s.top[..s.top.len().min(room)], width, style));
    }
    if !doubts.is_empty() {
        lines.push(String::new());
        lines.extend(doubts);
    }
    lines.truncate(height.saturating_sub(1));
    lines
}

/// One line for the latest interval, for a file or a pipe.
pub fn line(s: &FlowSnapshot<'_>) -> String {
    let rate = |n: u64| s.rate(n);
    let sum = |of: fn(&ProtocolTotal) -> u64| s.protocols.iter().map(of).sum::<u64>();
    let mut line = format!(
        "{}: packets {}/s, {} bit/s, flows {}, new {}/s, records {}/s",
        format_elapsed(s.elapsed_ns),
        rate(sum(|p| p.packets)),
        rate(sum(|p| p.bytes) * 8),
        format_count(s.flows.0),
        rate(s.created),
        rate(s.records.0),
    );
    if s.lost != (0, 0) {
        line.push_str(&format!(
            ", LOST {} packets, {} records",
            format_count(s.lost.0),
            format_count(s.lost.1)
        ));
    }
    line
}

/// What an exporter sent, and what went wrong with it.
fn export_line(export: &ExportTotal) -> String {
    let mut line =
        format!("{}: {} flow records, {}", export.to, format_count(export.records), export.form);
    let counted = |name: &str| export.counters.get(name).copied().unwrap_or(0);
    // Where a biflow is two records, there are more of them.
    for (name, what) in
        [("records", "data records"), ("messages_sent", "messages sent"), ("bytes_sent", "bytes")]
    {
        if counted(name) > 0 && (name, counted(name)) != ("records", export.records) {
            line.push_str(&format!(", {} {what}", format_count(counted(name))));
        }
    }
    for (name, n) in
        export.counters.iter().filter(|(name, n)| **n > 0 && !SENT.contains(&name.as_str()))
    {
        line.push_str(&format!(", {} {}", format_count(*n), name.replace('_', " ")));
    }
    line
}

/// Counters of an exporter that are no fault: the line shows those that are of use.
const SENT: [&str; 7] =
    ["records", "messages", "messages_sent", "octets", "bytes_sent", "option_records", "templates"];

/// What is printed at the end.
pub fn summary(run: &FlowRun, width: usize, style: Style) -> Vec<String> {
    let names: Vec<&str> = run.points.iter().map(|p| p.name.as_str()).collect();
    let sum = |of: fn(&ProtocolTotal) -> u64| run.protocols.iter().map(of).sum::<u64>();
    let (packets, octets) = (sum(|p| p.packets), sum(|p| p.bytes));
    let records: u64 = run.ends.values().sum();
    let span = run.header.end_ns.saturating_sub(run.header.start_ns);
    let title = format!("--- {}: flows in {} ---", names.join(", "), format_ns(span as f64));
    let mut lines = vec![style.paint(Tone::Head, &clip(&title, width))];
    lines.push(clip(
        &format!(
            "{} packets, {} bytes, {} flow records",
            format_count(packets),
            format_count(octets),
            format_count(records)
        ),
        width,
    ));
    lines.push(clip(&protocol_line(&run.protocols), width));
    if records > 0 {
        let ends: Vec<String> = run
            .ends
            .iter()
            .map(|(name, n)| format!("{} {}", format_count(*n), name.replace('_', " ")))
            .collect();
        lines.push(clip(&format!("ended: {}", ends.join(", ")), width));
        lines.push(String::new());
        lines.extend(flows(&run.top[..run.top.len().min(SUMMARY_FLOWS)], width, style));
    }
    let flows = |name: &str| run.counters.get(name).map(|n| format_count(*n));
    if let [Some(identified), Some(unknown), Some(no_memory)] =
        ["apps_identified", "apps_unknown", "apps_no_memory"].map(flows)
    {
        let line = format!(
            "applications: {identified} flows identified, {unknown} unknown, {no_memory} not read \
             for lack of memory"
        );
        lines.push(String::new());
        lines.extend(wrapped(&line, width));
    }
    lines.push(String::new());
    for export in &run.exports {
        lines.extend(wrapped(&export_line(export), width));
    }
    let mut left_out: Vec<(u64, String)> = run
        .counters
        .iter()
        .filter_map(|(name, n)| {
            let (_, text) = LEFT_OUT.iter().find(|(key, _)| key == name)?;
            (*n > 0).then(|| (*n, format!("{} {text}", format_count(*n))))
        })
        .collect();
    left_out.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
    if !left_out.is_empty() {
        let texts: Vec<String> = left_out.into_iter().map(|(_, text)| text).collect();
        lines.extend(wrapped(&format!("left out: {}", texts.join(", ")), width));
    }
    if let Some(copies) = run.counters.get("copies").filter(|n| **n > 0) {
        let line = format!(
            "{} TCP segments passed twice within a millisecond (perhaps a mirror port copies them): \
             each counts twice as a packet, and not as sent again",
            format_count(*copies)
        );
        lines.extend(wrapped(&line, width));
    }
    let points: Vec<String> = run.points.iter().map(|p| format!("{}: {}", p.name, p.how)).collect();
    lines.extend(
        wrapped(&format!("metered at {}", points.join("; ")), width)
            .iter()
            .map(|line| style.paint(Tone::Dim, line)),
    );
    lines.extend(doubts(run.caveats, &run.config.engine, width, style));
    lines
}

/// Shares of the protocols, by bytes.
fn protocol_line(protocols: &[ProtocolTotal]) -> String {
    let total: u64 = protocols.iter().map(|p| p.bytes).sum();
    let mut sorted: Vec<&ProtocolTotal> = protocols.iter().filter(|p| p.packets > 0).collect();
    sorted.sort_by_key(|p| std::cmp::Reverse(p.bytes));
    let shares: Vec<String> = sorted
        .iter()
        .take(PROTOCOLS)
        .map(|p| format!("{} {}", protocol_name(p.protocol), format_share(p.bytes, total)))
        .collect();
    if shares.is_empty() { "no packet was metered".into() } else { shares.join("  ") }
}

/// A table of ended flows.
fn flows(records: &[FlowRecord], width: usize, style: Style) -> Vec<String> {
    table(["BYTES", "PACKETS", "LASTED"], records, width, style, |r| {
        let span = r.last_ns().saturating_sub(r.first_ns());
        (
            r,
            [
                format_count(bytes(r)),
                format_count(r.forward.packets + r.reverse.packets),
                format_ns(span as f64),
            ],
        )
    })
}

/// A table of flows as they are now.
fn fast(flows: &[Talker], width: usize, style: Style) -> Vec<String> {
    table(["BIT/S", "BYTES", "PACKETS"], flows, width, style, |f| {
        let r = &f.record;
        (
            r,
            [
                format_count(f.rate.saturating_mul(8)),
                format_count(bytes(r)),
                format_count(r.forward.packets + r.reverse.packets),
            ],
        )
    })
}

/// Who talks to whom, and three values of each.
fn table<T>(
    heads: [&'static str; 3],
    rows: &[T],
    width: usize,
    style: Style,
    of: impl Fn(&T) -> (&FlowRecord, [String; 3]),
) -> Vec<String> {
    let row = |row| {
        let (record, [a, b, c]) = of(row);
        let k = &record.key;
        let from = end(k.source, k.source_port);
        let to = match k.protocol {
            // Type and code.
            1 | 58 => {
                let [kind, code] = k.destination_port.to_be_bytes();
                format!("{} ({kind}/{code})", k.destination)
            }
            _ => end(k.destination, k.destination_port),
        };
        [protocol_name(k.protocol), from, to, a, b, c]
    };
    let rows: Vec<[String; 6]> = rows.iter().map(row).collect();
    let heads = ["PROTO", "SOURCE", "DESTINATION", heads[0], heads[1], heads[2]];
    let mut table = TextTable::new(heads.into_iter().enumerate().map(|(i, head)| TextColumn {
        head,
        rank: 0,
        left: i < 3,
        cells: rows.iter().map(|row| row[i].clone()).collect(),
    }));
    // A value without its unit is none; an address is known by its begin, or in the run file.
    table.cut(width, &["SOURCE", "DESTINATION"], ADDRESS_LEAST);
    table.lines(width, style, |_, _| Tone::Plain)
}

fn end(address: IpAddr, port: u16) -> String {
    match (address, port) {
        (address, 0) => address.to_string(),
        (IpAddr::V6(address), port) => format!("[{address}]:{port}"),
        (address, port) => format!("{address}:{port}"),
    }
}

fn protocol_name(number: u8) -> String {
    protocol::name(number).map_or_else(|| format!("IP-{number}"), str::to_owned)
}

fn doubts(caveats: CaveatSet, engine: &str, width: usize, style: Style) -> Vec<String> {
    let command = signals::command_line();
    let context = AdviceContext { engine, command: &command, caveats };
    let doubts = caveats.iter().flat_map(|c| wrapped(&c.line(&context), width));
    doubts.map(|line| style.paint(Tone::Warn, &line)).collect()
}

/// Addresses are cut to this length at least, columns.
const ADDRESS_LEAST: usize = 8;
/// Protocols on their line.
const PROTOCOLS: usize = 6;
/// Flows in the summary.
const SUMMARY_FLOWS: usize = 10;
/// Counters of what was offered and is in no record.
const LEFT_OUT: &[(&str, &str)] = &[
    ("packets_lost", "packets that passed while the ring was full"),
    ("not_selected", "packets that were not selected"),
    ("other_link_type", "packets of link types that are not known"),
    ("bad_time", "packets with an impossible time"),
    ("no_interface", "packets of interfaces that the file does not describe"),
    ("other_block_type", "blocks of types that are not known"),
    ("refused_truncated", "packets cut short in their headers"),
    ("refused_not_ip", "packets that are not IP"),
    ("refused_malformed", "malformed packets"),
    ("records_lost", "flow records that reached no output"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sonde_results::Caveat;
    use sonde_results::flow::{FlowEnd, FlowKey, FlowSide};
    use sonde_results::flow_run::FlowRunConfig;
    use sonde_results::rtt_run::RttPoint;
    use sonde_run::header::run_header;

    const START: i64 = 1_795_262_437 * SECOND;

    fn record(protocol: u8, ends: [(&str, u16); 2], bytes: [u64; 2]) -> FlowRecord {
        let side = |bytes| FlowSide {
            packets: bytes / 1_000,
            bytes,
            first_ns: START,
            last_ns: START + 2 * SECOND + 345_000_000,
            ..FlowSide::default()
        };
        let [(source, source_port), (destination, destination_port)] = ends;
        FlowRecord {
            key: FlowKey {
                point: 0,
                vlan: 0,
                protocol,
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
                source_port,
                destination_port,
            },
            forward: side(bytes[0]),
            reverse: side(bytes[1]),
            end: FlowEnd::Idle,
            extra: None,
        }
    }

    fn top() -> Vec<Talker> {
        let flows = [
            record(6, [("192.0.2.1", 50_123), ("198.51.100.7", 443)], [12_000, 34_567_000]),
            record(17, [("2001:db8::1", 5_353), ("2001:db8::53", 53)], [4_000, 9_000]),
            record(1, [("192.0.2.1", 0), ("192.0.2.9", 0x0800)], [3_000, 0]),
        ];
        flows
            .into_iter()
            .zip([1_250_000, 9_000, 0])
            .map(|(record, rate)| Talker { record, rate })
            .collect()
    }

    fn protocols() -> Vec<ProtocolTotal> {
        [(6, 34_567, 34_579_000), (17, 130, 13_000), (1, 3, 3_000), (99, 0, 0)]
            .map(|(protocol, packets, bytes)| ProtocolTotal { protocol, packets, bytes })
            .to_vec()
    }

    fn caveats(all: &[Caveat]) -> CaveatSet {
        let mut set = CaveatSet::default();
        all.iter().for_each(|caveat| set.insert(*caveat));
        set
    }

    fn snapshot<'a>(
        points: &'a [String],
        protocols: &'a [ProtocolTotal],
        top: &'a [Talker],
        lost: (u64, u64),
    ) -> FlowSnapshot<'a> {
        FlowSnapshot {
            elapsed_ns: 83 * SECOND,
            interval_ns: 2 * SECOND,
            points,
            engine: "af_packet: ring, fan-out of 2",
            protocols,
            flows: (262_144, 1_048_576),
            created: 5_000,
            records: (4_200, 98_765),
            lost,
            top,
            caveats: match lost {
                (0, 0) => CaveatSet::default(),
                _ => caveats(&[Caveat::OwnDrops]),
            },
        }
    }

    /// Compares `text` with the golden file `name` (SONDE_BLESS=1 writes it anew: read it).
    fn golden(name: &str, lines: &[String]) {
        let path = format!("{}/src/flow/golden/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = lines.join("\n") + "\n";
        if std::env::var_os("SONDE_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default(), "{name}");
    }

    #[test]
    fn the_live_view() {
        let (points, protocols, top) = (["eth0", "eth1"].map(String::from), protocols(), top());
        let calm = snapshot(&points, &protocols, &top, (0, 0));
        golden("live.txt", &live(&calm, 100, 24, Style::default()));
        let losing = snapshot(&points, &protocols, &top, (12_345, 6));
        golden("live_losing.txt", &live(&losing, 100, 24, Style::default()));
        let first = snapshot(&points, &[], &[], (0, 0));
        let mut lines = live(&first, 100, 24, Style::default());
        lines.extend([line(&calm), line(&losing)]);
        golden("lines.txt", &lines);
    }

    #[test]
    fn the_summary() {
        let count = |all: &[(&str, u64)]| all.iter().map(|(k, n)| (k.to_string(), *n)).collect();
        let mut header = run_header("flow", 1, START, &sonde_sys::clock::clock_state());
        header.end_ns = START + 83 * SECOND;
        let run = FlowRun {
            header,
            config: FlowRunConfig::default(),
            points: vec![RttPoint {
                name: "eth0".into(),
                how: "af_packet: ring".into(),
                vanished: 1,
            }],
            protocols: protocols(),
            ends: count(&[("idle", 1_200), ("end_detected", 3_456)]),
            top: top().into_iter().map(|fast| fast.record).collect(),
            exports: vec![ExportTotal {
                to: "udp://192.0.2.9:4739".into(),
                form: "IPFIX, one record a direction, ms".into(),
                records: 4_656,
                counters: count(&[("messages_sent", 400), ("records_lost", 0)]),
            }],
            counters: count(&[
                ("apps_identified", 2_345),
                ("apps_unknown", 678),
                ("apps_no_memory", 9),
                ("packets_lost", 77),
                ("refused_not_ip", 1_234),
                ("flows", 4_656),
            ]),
            caveats: caveats(&[Caveat::OwnDrops, Caveat::InterfaceVanished]),
        };
        golden("summary.txt", &summary(&run, 100, Style::default()));
    }

    proptest! {
        #[test]
        fn the_live_view_fits_any_terminal(width in 1usize..200, height in 0usize..60, lost: bool) {
            let (points, protocols, top) = (["eth0".to_string()], protocols(), top());
            let lost = if lost { (1, 1) } else { (0, 0) };
            let lines =
                live(&snapshot(&points, &protocols, &top, lost), width, height, Style::default());
            prop_assert!(lines.len() <= height);
            prop_assert!(lines.iter().all(|l| l.chars().count() <= width), "{lines:?}");
        }
    }
}
