//! InfluxDB's line protocol: a line for each interval record, for each group of passive round trips
//! of an interval, and for each interface and application of flows at each sending.
//!
//! Format: docs.influxdata.com/influxdb/v1/write_protocols/line_protocol_reference. A tag without
//! a value may not be there, and neither may a line break.

use std::fmt::Write as _;

use sonde_api::openmetrics::MetricsSnapshot;
use sonde_results::Interval;
use sonde_results::hist::{Hist, supports};
use sonde_run::rtt;
use sonde_store::SeriesLabels;

use super::backlog::Payload;
use crate::live::LiveState;
use crate::plan::UnitId;

/// Lines that are collected for the next payload.
#[derive(Default)]
pub struct InfluxLines {
    text: String,
    lines: u64,
    full: Vec<Payload>,
}

impl InfluxLines {
    /// Adds the line of a record.
    pub fn add(&mut self, labels: &SeriesLabels, interval: &Interval, utc_offset_ns: i64) {
        line(&mut self.text, labels, interval, utc_offset_ns);
        self.lines += 1;
        if self.text.len() >= PAYLOAD {
            self.cut();
        }
    }

    /// Adds a line for each group of the intervals among `events`; groups whose names would be
    /// addresses and ports are left out.
    pub fn add_round_trips(
        &mut self,
        (state, unit): (&LiveState, &UnitId),
        events: &[rtt::Event],
        utc_offset_ns: i64,
    ) {
        for event in events {
            let rtt::Event::Interval(interval) = event else { continue };
            for group in &interval.groups {
                let Some(name) = state.traffic.group_name(unit, &group.key) else { continue };
                let tags =
                    [("station", state.station()), ("unit", unit.as_str()), ("group", &name)];
                head(&mut self.text, "sonde_passive_rtt", &tags);
                let _ = write!(
                    self.text,
                    " samples={}i,recovery={}i,delayed_ack={}i",
                    group.clean.count, group.recovery.count, group.delayed_ack.count
                );
                seconds(&mut self.text, "length", group.end_ns - group.start_ns);
                delays(&mut self.text, "rtt", &group.clean);
                self.end(group.start_ns - utc_offset_ns);
            }
        }
    }

    /// Adds what flows counted since the station's start, by interface and application.
    pub fn add_flows(&mut self, snapshot: &MetricsSnapshot, now_ns: i64) {
        let traffic = &snapshot.traffic;
        for (name, label, all) in [
            ("sonde_flow", "interface", &traffic.flows),
            ("sonde_flow_application", "application", &traffic.applications),
        ] {
            for flows in all {
                let tags = [
                    ("station", snapshot.station.as_str()),
                    ("unit", &flows.unit),
                    (label, &flows.name),
                ];
                head(&mut self.text, name, &tags);
                let _ = write!(
                    self.text,
                    " records={}i,packets={}i,bytes={}i",
                    flows.records, flows.packets, flows.octets
                );
                self.end(now_ns);
            }
        }
    }

    fn end(&mut self, time_ns: i64) {
        let _ = writeln!(self.text, " {time_ns}");
        self.lines += 1;
        if self.text.len() >= PAYLOAD {
            self.cut();
        }
    }

    /// What is to be sent now: payloads that are full, and with `all` also the one that is not.
    pub fn take(&mut self, all: bool) -> Vec<Payload> {
        if all && self.lines > 0 {
            self.cut();
        }
        std::mem::take(&mut self.full)
    }

    fn cut(&mut self) {
        let body = std::mem::take(&mut self.text).into_bytes();
        self.full.push(Payload { body, points: std::mem::take(&mut self.lines) });
    }
}

/// Datagrams of whole lines, each as long as a path takes without fragments. A line that is longer
/// is one of its own.
pub fn datagrams(body: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    let (mut begin, mut end) = (0, 0);
    for line in body.split_inclusive(|octet| *octet == b'\n') {
        if end > begin && end + line.len() - begin > DATAGRAM {
            all.push(&body[begin..end]);
            begin = end;
        }
        end += line.len();
    }
    if end > begin {
        all.push(&body[begin..end]);
    }
    all
}

/// A measurement and its tags; those without a value are left out.
fn head(text: &mut String, name: &str, tags: &[(&str, &str)]) {
    text.push_str(name);
    for (name, value) in tags.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(text, ",{}={}", escaped(name), escaped(value));
    }
}

fn line(text: &mut String, labels: &SeriesLabels, interval: &Interval, utc_offset_ns: i64) {
    let number = |port: u16| if port == 0 { String::new() } else { port.to_string() };
    let (source, destination) = (number(labels.source_port), number(labels.destination_port));
    let own = [
        ("station", labels.station.as_str()),
        ("site", &labels.site),
        ("target", &labels.target),
        ("class", &labels.class),
        ("module", &labels.module),
        ("source_port", &source),
        ("destination_port", &destination),
    ];
    let free = labels.free.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let tags: Vec<(&str, &str)> = own.into_iter().chain(free).collect();
    head(text, "sonde_interval", &tags);
    let counters = &interval.counters;
    let counts = [
        ("sent", counters.sent),
        ("received", counters.received),
        ("lost", counters.lost),
        ("lost_unknown", counters.lost_unknown),
        ("late", counters.late),
        ("duplicated", counters.duplicated),
        ("reordered", counters.reordered),
        ("skipped", counters.skipped),
    ];
    let sides =
        [("lost_forward", counters.lost_forward), ("lost_backward", counters.lost_backward)];
    let known = sides.into_iter().filter_map(|(name, count)| Some((name, count?)));
    for (at, (name, count)) in counts.into_iter().chain(known).enumerate() {
        let before = if at == 0 { ' ' } else { ',' };
        let _ = write!(text, "{before}{name}={count}i");
    }
    seconds(text, "length", interval.end_ns - interval.start_ns);
    for (name, hist) in [
        ("rtt", &interval.rtt_net),
        ("forward", &interval.forward),
        ("backward", &interval.backward),
        ("ipdv_forward", &interval.ipdv_forward),
        ("ipdv_backward", &interval.ipdv_backward),
    ] {
        delays(text, name, hist);
    }
    let caveats: Vec<String> = interval.caveats.iter().map(name_of).collect();
    if !caveats.is_empty() {
        let _ = write!(text, ",caveats=\"{}\"", caveats.join(" "));
    }
    let _ = writeln!(text, " {}", interval.start_ns - utc_offset_ns);
}

/// Least, mean, greatest, and the quantiles that so many values support.
fn delays(text: &mut String, name: &str, hist: &Hist) {
    let (Some(min), Some(max), Some(mean)) = (hist.min(), hist.max(), hist.mean()) else { return };
    seconds(text, &format!("{name}_min"), min);
    seconds(text, &format!("{name}_max"), max);
    let _ = write!(text, ",{name}_mean={:.9}", mean / 1e9);
    for (suffix, q) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        if let Some(value) = hist.quantile(q).filter(|_| supports(hist.count, q)) {
            seconds(text, &format!("{name}_{suffix}"), value);
        }
    }
}

/// A field in seconds, with all its nanoseconds.
fn seconds(text: &mut String, name: &str, ns: i64) {
    let sign = if ns < 0 { "-" } else { "" };
    let (whole, rest) = (ns.unsigned_abs() / 1_000_000_000, ns.unsigned_abs() % 1_000_000_000);
    let _ = write!(text, ",{name}={sign}{whole}.{rest:09}");
}

fn name_of(caveat: sonde_results::caveat::Caveat) -> String {
    let name = serde_json::to_value(caveat).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

/// A name or value of a tag. A backslash at its end would join it to what follows.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ',' | '=' | ' ' => escaped.extend(['\\', c]),
            '\\' => escaped.push('/'),
            c if c.is_control() => escaped.push('_'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Octets of a payload, from which on it is cut.
const PAYLOAD: usize = 256 << 10;
/// Octets of a datagram: less than 1,500 with the headers of IPv6, UDP and a tunnel.
const DATAGRAM: usize = 1_400;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::caveat::Caveat;
    use std::collections::BTreeMap;

    fn labels(target: &str) -> SeriesLabels {
        SeriesLabels {
            station: "ber".into(),
            target: target.into(),
            class: "EF".into(),
            module: "stamp".into(),
            free: BTreeMap::from([("unit".to_owned(), "probe.core".to_owned())]),
            ..SeriesLabels::default()
        }
    }

    fn interval() -> Interval {
        let mut interval = Interval::empty(0);
        (interval.start_ns, interval.end_ns) = (37_000_000_000, 38_000_000_000);
        interval.counters.sent = 21;
        interval.counters.received = 20;
        interval.counters.lost = 1;
        interval.counters.settle_sides();
        (1..=20).for_each(|n| interval.rtt_net.add(n * 1_000_000));
        interval.forward.add(-5_000);
        interval.caveats.insert(Caveat::SenderLate);
        interval
    }

    #[test]
    fn round_trips_and_flows_have_lines_without_addresses_of_hosts() {
        use sonde_api::openmetrics::{FlowMetrics, TrafficMetrics};
        use sonde_results::rtt::{FlowKey, GroupKey, RttGroup};
        let (address, unit) = ("192.0.2.0".parse().unwrap(), UnitId::new("rtt.up"));
        let flow = FlowKey {
            point: 0,
            vlan: 0,
            protocol: 6,
            source: address,
            destination: address,
            source_port: 1,
            destination_port: 2,
        };
        let group = |key| {
            let mut group = RttGroup {
                key,
                start_ns: 37_000_000_000,
                end_ns: 38_000_000_000,
                clean: Hist::default(),
                recovery: Hist::default(),
                delayed_ack: Hist::default(),
            };
            group.clean.add(2_000_000);
            group.recovery.add(1);
            group
        };
        let groups =
            vec![group(GroupKey::Prefix { address, length: 24 }), group(GroupKey::Flow(flow))];
        let interval = rtt::RttInterval {
            start_ns: 37_000_000_000,
            end_ns: 38_000_000_000,
            groups,
            ..rtt::RttInterval::default()
        };
        let mut lines = InfluxLines::default();
        let state = LiveState::new("ber");
        lines.add_round_trips((&state, &unit), &[rtt::Event::Interval(interval)], 37_000_000_000);
        let flows = FlowMetrics {
            unit: "flow.up".into(),
            name: "udp/53".into(),
            records: 2,
            packets: 6,
            octets: 300,
        };
        let traffic = TrafficMetrics { applications: vec![flows], ..TrafficMetrics::default() };
        let snapshot =
            MetricsSnapshot { station: "ber".into(), traffic, ..MetricsSnapshot::default() };
        lines.add_flows(&snapshot, 5);
        let payloads = lines.take(true);
        assert_eq!((payloads.len(), payloads[0].points), (1, 2), "none for a flow");
        let text = String::from_utf8(payloads[0].body.clone()).unwrap();
        let wanted = "sonde_passive_rtt,station=ber,unit=rtt.up,group=192.0.2.0/24 \
                      samples=1i,recovery=1i,delayed_ack=0i,length=1.000000000,\
                      rtt_min=0.002000000,rtt_max=0.002000000,rtt_mean=0.002000000 0\n\
                      sonde_flow_application,station=ber,unit=flow.up,application=udp/53 \
                      records=2i,packets=6i,bytes=300i 5\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_record_is_a_line_of_tags_fields_and_the_time_in_utc() {
        let mut lines = InfluxLines::default();
        lines.add(&labels("core 1,a=b\\"), &interval(), 37_000_000_000);
        let payloads = lines.take(true);
        assert_eq!((payloads.len(), payloads[0].points), (1, 1));
        let text = String::from_utf8(payloads[0].body.clone()).unwrap();
        let (key, rest) = text.split_once(" sent=").unwrap();
        let wanted = "sonde_interval,station=ber,target=core\\ 1\\,a\\=b/,class=EF,module=stamp,\
                      unit=probe.core";
        assert_eq!(key, wanted);
        let (fields, time) = rest.rsplit_once(' ').unwrap();
        assert_eq!(time, "0\n");
        let fields: Vec<&str> = fields.split(',').collect();
        for field in [
            "received=20i",
            "lost=1i",
            "lost_unknown=1i",
            "length=1.000000000",
            "rtt_min=0.001000000",
            "rtt_max=0.020000000",
            "rtt_mean=0.010500000",
            "forward_min=-0.000005000",
            "caveats=\"sender_late\"",
        ] {
            assert!(fields.contains(&field), "{field} in {fields:?}");
        }
        // Twenty values carry a median, one carries none; no side is claimed to have lost none.
        let has = |name: &str| fields.iter().any(|field| field.starts_with(name));
        assert!(has("rtt_p50=") && !has("rtt_p90=") && !has("forward_p50="), "{fields:?}");
        assert!(!has("lost_forward=") && !has("backward_min="), "{fields:?}");
        assert!(lines.take(true).is_empty());
    }

    #[test]
    fn payloads_are_cut_between_lines_and_come_when_they_are_full() {
        let mut lines = InfluxLines::default();
        let mut all = Vec::new();
        let mut added = 0;
        while all.len() < 2 {
            lines.add(&labels("core-1"), &interval(), 0);
            added += 1;
            all.extend(lines.take(false));
        }
        assert_eq!(all.iter().map(|payload| payload.points).sum::<u64>(), added);
        assert!(all.iter().all(|payload| payload.body.ends_with(b"\n")));
        assert!(all.iter().all(|payload| payload.body.len() < PAYLOAD + 2_000));
    }

    #[test]
    fn datagrams_have_whole_lines_and_all_of_them() {
        let body = format!("{}\n{}\n{}\n", "a".repeat(900), "b".repeat(600), "c".repeat(3_000));
        let cut = datagrams(body.as_bytes());
        let lengths: Vec<usize> = cut.iter().map(|datagram| datagram.len()).collect();
        assert_eq!(lengths, [901, 601, 3_001]);
        assert_eq!(cut.concat(), body.as_bytes());
        let small = "x=1\n".repeat(10);
        assert_eq!(datagrams(small.as_bytes()), [small.as_bytes()]);
        assert!(datagrams(b"").is_empty());
    }
}
