//! Text cases: what is loaded, what is asked, what is expected.
//!
//! ```text
//! series target=a site=ber ring=x        the next series, from 0 up
//! interval 0 +0s 1s sent=10 lost=1 forward=1 backward=0 rtt=1ms*5,2ms*4 caveats=sender_late
//! flow 0 +10s 3s 10.0.0.1:5000>10.0.1.1:443/6 bytes=1000 packets=3 reverse=200/2
//! rtt 0 192.0.2.0/24 +0s 1s clean=1ms*5 recovery=9ms delayed=40ms caveats=flows_untracked
//! iface 3 +0s 10s rx=1000/10/1/0 tx=2000/20/0/0 queue=3 speed=9    octets/packets/dropped/errors
//! event 0 breach critical +5s +10s a title     "-" in place of a series or of an end
//! query overview from=+0s to=+1h by=site quantiles=0.5,0.99
//!   one line of the answer
//! ```
//!
//! Times are from 2026-11-26 00:00 UTC on. The lines below a query, indented, are its answer.

use std::collections::BTreeMap;

use sonde_results::units::parse_duration;
use sonde_results::{Caveat, Interval};
use sonde_store::query::{
    Availability, BadSampleKind, BadSamples, Bands, Delay, DelayLimit, EventList, Evidence,
    FlowDimension, FlowMeasure, FlowPoints, FlowRates, Heat, InterfaceSums, Merged, Overview,
    RttOrder, RttTop, SeriesPoints, TimeRange, Top,
};
use sonde_store::series::SeriesDirection;
use sonde_store::{
    EventFilter, EventId, EventSeverity, FlowRow, InterfaceRow, InterfaceSide, Query, RttRow,
    SeriesFilter, SeriesId, SeriesLabels, StoredEvent,
};

/// 2026-11-26 00:00 UTC, ns since 1970.
pub const BASE_NS: i64 = 1_795_651_200 * 1_000_000_000;

/// A file.
#[derive(Debug, Default)]
pub struct Script {
    pub series: Vec<SeriesLabels>,
    /// Round trips, one-way delays and so on are as they were given: the model adds up values.
    pub intervals: Vec<(SeriesId, Measured)>,
    pub flows: Vec<FlowRow>,
    pub rtt: Vec<(SeriesId, MeasuredGroup)>,
    pub interfaces: Vec<InterfaceRow>,
    pub events: Vec<StoredEvent>,
    pub questions: Vec<Question>,
}

/// An interval, with all its values.
#[derive(Clone, Debug)]
pub struct Measured {
    pub record: Interval,
    pub values: BTreeMap<Delay, Vec<i64>>,
}

/// A group of round trips, with all its values.
#[derive(Clone, Debug)]
pub struct MeasuredGroup {
    pub row: RttRow,
    pub clean: Vec<i64>,
    pub recovery: Vec<i64>,
    pub delayed: Vec<i64>,
    pub caveats: Vec<Caveat>,
}

/// A query and its answer.
#[derive(Debug)]
pub struct Question {
    pub line: usize,
    pub text: String,
    pub query: Query,
    pub expected: String,
}

/// Reads a file.
///
/// # Panics
/// It is not in the form above.
pub fn parse(text: &str) -> Script {
    let mut script = Script::default();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if let Some(expected) = line.strip_prefix("  ") {
            let question = script.questions.last_mut().unwrap_or_else(|| panic!("line {}", i + 1));
            question.expected.push_str(expected);
            question.expected.push('\n');
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] | ["#", ..] => {}
            ["series", ref labels @ ..] => script.series.push(series(labels)),
            ["interval", series, start, length, ref fields @ ..] => {
                let id = SeriesId(series.parse().unwrap());
                script.intervals.push((id, interval(start, length, fields)));
            }
            ["flow", exporter, last, length, key, ref fields @ ..] => {
                script.flows.push(flow(exporter, last, length, key, fields));
            }
            ["rtt", series, group, start, length, ref fields @ ..] => {
                let id = SeriesId(series.parse().unwrap());
                script.rtt.push((id, rtt(id, group, start, length, fields)));
            }
            ["iface", series, start, length, ref fields @ ..] => {
                script.interfaces.push(interface(series, start, length, fields));
            }
            ["event", series, kind, severity, begin, end, ref title @ ..] => {
                script.events.push(StoredEvent {
                    kind: kind.into(),
                    severity: EventSeverity::from_name(severity).unwrap(),
                    series: (series != "-").then(|| SeriesId(series.parse().unwrap())),
                    begin_ns: time(begin),
                    end_ns: (end != "-").then(|| time(end)),
                    title: title.join(" "),
                    evidence: serde_json::json!({}),
                });
            }
            ["query", kind, ref fields @ ..] => script.questions.push(Question {
                line: i + 1,
                text: line.into(),
                query: query(kind, &pairs(fields)),
                expected: String::new(),
            }),
            _ => panic!("line {}: {line}", i + 1),
        }
    }
    script
}

fn pairs<'a>(fields: &[&'a str]) -> BTreeMap<&'a str, &'a str> {
    fields.iter().map(|f| f.split_once('=').unwrap_or_else(|| panic!("{f}"))).collect()
}

fn time(text: &str) -> i64 {
    BASE_NS + duration(text.strip_prefix('+').unwrap_or_else(|| panic!("{text}")))
}

fn duration(text: &str) -> i64 {
    parse_duration(text).unwrap_or_else(|error| panic!("{error}"))
}

fn series(fields: &[&str]) -> SeriesLabels {
    let mut labels = SeriesLabels::default();
    for (name, value) in pairs(fields) {
        match name {
            "target" => labels.target = value.into(),
            "site" => labels.site = value.into(),
            "class" => labels.class = value.into(),
            "module" => labels.module = value.into(),
            _ => drop(labels.free.insert(name.into(), value.into())),
        }
    }
    labels
}

fn interval(start: &str, length: &str, fields: &[&str]) -> Measured {
    let mut values: BTreeMap<Delay, Vec<i64>> = BTreeMap::new();
    let mut record = Interval::empty(0);
    record.start_ns = time(start);
    record.end_ns = record.start_ns + duration(length);
    for (name, value) in pairs(fields) {
        let number = || value.parse().unwrap();
        match name {
            "sent" => record.counters.sent = number(),
            "lost" => record.counters.lost = number(),
            "forward" => record.counters.lost_forward = Some(number()),
            "backward" => record.counters.lost_backward = Some(number()),
            "rtt" => drop(values.insert(Delay::RttNet, delays(value))),
            "there" => drop(values.insert(Delay::Forward, delays(value))),
            "ipdv" => drop(values.insert(Delay::IpdvForward, delays(value))),
            "caveats" => value.split(',').for_each(|name| record.caveats.insert(caveat(name))),
            _ => panic!("{name}"),
        }
    }
    measured(record, values)
}

/// An interval of these values.
pub fn measured(mut record: Interval, values: BTreeMap<Delay, Vec<i64>>) -> Measured {
    record.counters.received = record.counters.sent - record.counters.lost;
    record.counters.settle_sides();
    record.loss_side = record.counters.loss_side();
    for (delay, values) in &values {
        let hist = match delay {
            Delay::RttNet => &mut record.rtt_net,
            Delay::Rtt => &mut record.rtt,
            Delay::Forward => &mut record.forward,
            Delay::Backward => &mut record.backward,
            Delay::IpdvForward => &mut record.ipdv_forward,
            Delay::IpdvBackward => &mut record.ipdv_backward,
            Delay::Passive => panic!("a probe measures no passive round trips"),
        };
        values.iter().for_each(|&v| hist.add(v));
    }
    Measured { record, values }
}

fn rtt(series: SeriesId, group: &str, start: &str, length: &str, fields: &[&str]) -> MeasuredGroup {
    let (mut clean, mut recovery, mut delayed, mut caveats) = (vec![], vec![], vec![], vec![]);
    for (name, value) in pairs(fields) {
        match name {
            "clean" => clean = delays(value),
            "recovery" => recovery = delays(value),
            "delayed" => delayed = delays(value),
            "caveats" => caveats = value.split(',').map(caveat).collect(),
            _ => panic!("{name}"),
        }
    }
    measured_group(
        series,
        group,
        (time(start), duration(length)),
        [clean, recovery, delayed],
        caveats,
    )
}

/// A group of these values.
pub fn measured_group(
    series: SeriesId,
    group: &str,
    (start_ns, length_ns): (i64, i64),
    [clean, recovery, delayed]: [Vec<i64>; 3],
    caveats: Vec<Caveat>,
) -> MeasuredGroup {
    let hist = |values: &[i64]| {
        let mut hist = sonde_results::Hist::default();
        values.iter().for_each(|&v| hist.add(v));
        sonde_store::HistBlob::new(&hist)
    };
    let row = RttRow {
        series,
        group: group.into(),
        start_ns,
        length_ns,
        intervals: 1,
        clean: hist(&clean),
        recovery: hist(&recovery),
        delayed_ack: hist(&delayed),
        caveats: caveats.iter().fold(0, |mask, &c| mask | 1 << c as u8),
        caveat_counts: Box::default(),
    };
    MeasuredGroup { row, clean, recovery, delayed, caveats }
}

fn interface(series: &str, start: &str, length: &str, fields: &[&str]) -> InterfaceRow {
    let mut row = InterfaceRow {
        series: SeriesId(series.parse().unwrap()),
        start_ns: time(start),
        length_ns: duration(length),
        intervals: 1,
        ..InterfaceRow::default()
    };
    let side = |text: &str| {
        let counts: Vec<u64> = text.split('/').map(|n| n.parse().unwrap()).collect();
        let [octets, packets, dropped, errors] = counts[..] else { panic!("{text}") };
        InterfaceSide { octets, packets, dropped, errors }
    };
    for (name, value) in pairs(fields) {
        match name {
            "rx" => row.receive = side(value),
            "tx" => row.transmit = side(value),
            "queue" => row.queue_dropped = value.parse().unwrap(),
            "speed" => row.speed_bps = value.parse().unwrap(),
            _ => panic!("{name}"),
        }
    }
    row
}

/// `1ms*5,-20us`.
fn delays(text: &str) -> Vec<i64> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (value, n) = part.split_once('*').unwrap_or((part, "1"));
        let (sign, value) = value.strip_prefix('-').map_or((1, value), |v| (-1, v));
        all.extend(std::iter::repeat_n(sign * duration(value), n.parse().unwrap()));
    }
    all
}

fn caveat(name: &str) -> Caveat {
    serde_json::from_value(name.into()).unwrap_or_else(|_| panic!("{name}"))
}

fn flow(exporter: &str, last: &str, length: &str, key: &str, fields: &[&str]) -> FlowRow {
    let (ends, protocol) = key.rsplit_once('/').unwrap();
    let (source, destination) = ends.split_once('>').unwrap();
    let (source, source_port) = source.rsplit_once(':').unwrap();
    let (destination, destination_port) = destination.rsplit_once(':').unwrap();
    let octets = |a: &str| sonde_store::flow::mapped(a.trim_matches(['[', ']']).parse().unwrap());
    let mut row = FlowRow {
        exporter: SeriesId(exporter.parse().unwrap()),
        source: octets(source),
        destination: octets(destination),
        source_port: source_port.parse().unwrap(),
        destination_port: destination_port.parse().unwrap(),
        protocol: protocol.parse().unwrap(),
        last_ns: time(last),
        duration_ns: duration(length),
        end: 1,
        ..FlowRow::default()
    };
    for (name, value) in pairs(fields) {
        match name {
            "bytes" => row.forward.bytes = value.parse().unwrap(),
            "packets" => row.forward.packets = value.parse().unwrap(),
            "reverse" => {
                let (bytes, packets) = value.split_once('/').unwrap();
                (row.reverse.bytes, row.reverse.packets) =
                    (bytes.parse().unwrap(), packets.parse().unwrap());
            }
            "handshake" => {
                row.handshake_server_ns = duration(value) as u64 / 2;
                row.handshake_client_ns = row.handshake_server_ns;
            }
            "app" => row.app = value.into(),
            _ => panic!("{name}"),
        }
    }
    let first = row.first_ns();
    for side in [&mut row.forward, &mut row.reverse] {
        if side.packets > 0 {
            (side.first_ns, side.last_ns) = (first, row.last_ns);
        }
    }
    row
}

/// `0:5ms,1:192.0.2.0/24:20ms`.
fn limits(parts: &[&str]) -> Vec<DelayLimit> {
    let limit = |part: &&str| {
        let (series, rest) = part.split_once(':').unwrap();
        let (group, limit) = rest.rsplit_once(':').unwrap_or(("", rest));
        DelayLimit {
            series: SeriesId(series.parse().unwrap()),
            group: group.into(),
            limit_ns: duration(limit),
        }
    };
    parts.iter().map(limit).collect()
}

fn query(kind: &str, fields: &BTreeMap<&str, &str>) -> Query {
    let get = |name: &str| fields.get(name).copied();
    let at = |name: &str| get(name).map_or(0, time);
    let range = TimeRange { from_ns: at("from"), to_ns: at("to") };
    let step_ns = get("step").map_or(0, duration);
    let list = |name: &str| get(name).map_or(vec![], |v| v.split(',').collect());
    let quantiles: Vec<f64> = list("quantiles").iter().map(|q| q.parse().unwrap()).collect();
    let delay: Delay =
        get("delay").map_or(Delay::RttNet, |name| serde_json::from_value(name.into()).unwrap());
    let dimension = |name: &str| -> FlowDimension { serde_json::from_value(name.into()).unwrap() };
    // `where=site:ber,ids:0` and so on.
    let mut filter = SeriesFilter::default();
    for part in list("where") {
        match part.split_once(':').unwrap() {
            ("group", group) => filter.groups.push(group.into()),
            ("id", id) => filter.ids.push(SeriesId(id.parse().unwrap())),
            (name, value) => drop(filter.labels.insert(name.into(), value.into())),
        }
    }
    match kind {
        "overview" => {
            let by = list("by").into_iter().map(String::from).collect();
            Query::Overview(Overview { range, filter, by, delay, quantiles })
        }
        "series" => Query::Series(SeriesPoints { range, step_ns, filter, delay, quantiles }),
        "bands" => Query::Bands(Bands { range, step_ns, filter, delay, quantiles }),
        "heat" => {
            let rows_per_octave = get("rows").map_or(8, |rows| rows.parse().unwrap());
            Query::Heat(Heat { range, step_ns, filter, delay, rows_per_octave })
        }
        "availability" => Query::Availability(Availability { range, filter }),
        "top" => {
            let only = list("only").into_iter().map(|part| {
                let (name, value) = part.split_once(':').unwrap();
                (dimension(name), value.to_owned())
            });
            Query::Top(Top {
                range,
                filter,
                by: list("by").into_iter().map(dimension).collect(),
                measure: get("measure").map_or(FlowMeasure::Bytes, |name| {
                    serde_json::from_value(name.into()).unwrap()
                }),
                only: only.collect(),
                most: get("most").map_or(20, |n| n.parse().unwrap()),
            })
        }
        "rtt_top" => Query::RttTop(RttTop {
            range,
            filter,
            order: get("order")
                .map_or(RttOrder::Slowest, |name| serde_json::from_value(name.into()).unwrap()),
            slow_at: get("slow").map_or(0.99, |q| q.parse().unwrap()),
            least_samples: get("least").map_or(1, |n| n.parse().unwrap()),
            quantiles,
            most: get("most").map_or(20, |n| n.parse().unwrap()),
        }),
        "events" => Query::Events(EventList {
            range,
            filter: EventFilter {
                kind: get("kind").map(String::from),
                series: list("of").iter().map(|id| SeriesId(id.parse().unwrap())).collect(),
                open: get("open") == Some("yes"),
            },
            after: get("after").map(|id| EventId(id.parse().unwrap())),
            most: get("most").map_or(0, |n| n.parse().unwrap()),
        }),
        "evidence" => Query::Evidence(Evidence {
            event: EventId(get("event").unwrap().parse().unwrap()),
            now_ns: at("now"),
            before_ns: duration(get("before").unwrap()),
            filter,
            delay,
            quantiles,
            flows_by: list("flows").into_iter().map(dimension).collect(),
            most_flows: 20,
        }),
        "bad_samples" => Query::BadSamples(BadSamples {
            range,
            step_ns,
            filter,
            bad: match get("bad").unwrap() {
                "lost" => BadSampleKind::Lost(SeriesDirection::RoundTrip),
                "lost_forward" => BadSampleKind::Lost(SeriesDirection::Forward),
                "lost_backward" => BadSampleKind::Lost(SeriesDirection::Backward),
                "recovery" => BadSampleKind::Recovery,
                _ => BadSampleKind::Beyond { delay, limits: limits(&list("limits")) },
            },
        }),
        "interfaces" => Query::Interfaces(InterfaceSums { range, step_ns, filter }),
        "flow_points" => {
            let only = list("only").into_iter().map(|part| {
                let (name, value) = part.split_once(':').unwrap();
                (dimension(name), value.to_owned())
            });
            let word = |name: &str| serde_json::Value::from(get(name));
            let named = |name: &str| get(name).is_some();
            Query::FlowPoints(FlowPoints {
                range,
                step_ns,
                filter,
                by: list("by").into_iter().map(dimension).collect(),
                only: only.collect(),
                measure: if named("measure") {
                    serde_json::from_value(word("measure")).unwrap()
                } else {
                    Default::default()
                },
                rank: if named("rank") {
                    serde_json::from_value(word("rank")).unwrap()
                } else {
                    Default::default()
                },
                most: get("most").map_or(20, |n| n.parse().unwrap()),
                ..FlowPoints::default()
            })
        }
        "merged" => Query::Merged(Merged { range, filter, delay }),
        "flow_rates" => {
            let time_of = |name: &str| {
                let (from, to) = get(name).unwrap().split_once("..").unwrap();
                TimeRange { from_ns: time(from), to_ns: time(to) }
            };
            let (during, before) = (time_of("during"), time_of("before"));
            Query::FlowRates(FlowRates { during, before, filter, ..FlowRates::default() })
        }
        _ => panic!("{kind}"),
    }
}
