//! OTLP over HTTP: counters as sums, delays as histograms, in Protocol Buffers.
//!
//! `opentelemetry-proto` 1.x, `ExportMetricsServiceRequest`. OpenTelemetry has no convention for
//! probes of a network; names here are ours, without units, which stand beside them in UCUM.
//!
//! Its exponential buckets are powers of a base in seconds; ours are linear parts of powers of two
//! in nanoseconds. The two never line up: the values of a bucket are counted where its middle lies,
//! which is off by at most one bucket. Count and sum are exact.

use sonde_api::openmetrics::{
    FlowMetrics, GroupMetrics, INTERFACE_DIRECTIONS, InterfaceSideMetrics, MetricLabels,
    MetricsSnapshot, StreamMetrics, TrafficMetrics, count_to, shown_bounds,
};
use sonde_results::Hist;
use sonde_results::choice;

use super::backlog::Payload;
use super::protobuf::{self, FieldValue, Message};

/// Media type of a request.
pub const CONTENT_TYPE: &str = "application/x-protobuf";

choice! {
    /// Which buckets delays have in OTLP.
    pub enum OtlpHistograms default Exponential {
        /// Exponential buckets, 16 to a power of two (scale 4)
        Exponential = "exponential",
        /// Sonde's own powers of two in ns, at which counts are exact
        Explicit = "explicit",
    }
}

/// What is said of every data point of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct OtlpTimes {
    /// Since when it is counted, ns since 1970 UTC.
    pub start_ns: i64,
    /// Until when.
    pub now_ns: i64,
}

/// Requests with all that a snapshot counts.
pub fn payloads(
    snapshot: &MetricsSnapshot,
    histograms: OtlpHistograms,
    times: OtlpTimes,
) -> Vec<Payload> {
    let mut requests = MetricRequests { snapshot, done: Vec::new() };
    // A part has as many points in all its metrics.
    for streams in snapshot.streams.chunks(STREAMS_A_REQUEST) {
        requests.request(|metrics| requests_of_streams(metrics, streams, times));
    }
    if !snapshot.groups.is_empty() {
        requests.request(|metrics| {
            requests_of_groups(metrics, &snapshot.groups, histograms, times);
        });
    }
    let traffic = &snapshot.traffic;
    if !(traffic.samples.is_empty() && traffic.flows.is_empty() && traffic.interfaces.is_empty()) {
        requests.request(|metrics| {
            requests_of_traffic(metrics, traffic, histograms, times);
        });
    }
    requests.done
}

/// How many points a receiver that took a request rejected of it, and why: `partial_success` of an
/// `ExportMetricsServiceResponse`. `None`: none, and it says nothing.
pub fn rejected(response: &[u8]) -> Option<(u64, String)> {
    let (mut points, mut why) = (0, String::new());
    for (field, value) in protobuf::fields(response) {
        let FieldValue::Octets(partial) = value else { continue };
        if field != 1 {
            continue;
        }
        for (field, value) in protobuf::fields(partial) {
            match (field, value) {
                (1, FieldValue::Number(n)) => points = n,
                (2, FieldValue::Octets(text)) => why = String::from_utf8_lossy(text).into_owned(),
                _ => {}
            }
        }
    }
    (points > 0 || !why.is_empty()).then_some((points, why))
}

struct MetricRequests<'a> {
    snapshot: &'a MetricsSnapshot,
    done: Vec<Payload>,
}

impl MetricRequests<'_> {
    fn request(&mut self, write: impl FnOnce(&mut ScopeMetrics<'_>)) {
        let mut request = Message::default();
        let mut points = 0;
        let MetricsSnapshot { station, version, .. } = self.snapshot;
        request.message(1, |resource_metrics| {
            resource_metrics.message(1, |resource| {
                attribute(resource, 1, "service.name", "sonde");
                attribute(resource, 1, "service.instance.id", station);
                attribute(resource, 1, "service.version", version);
            });
            resource_metrics.message(2, |scope_metrics| {
                scope_metrics.message(1, |scope| {
                    scope.text(1, "sonde");
                    scope.text(2, version);
                });
                let mut scope = ScopeMetrics { message: scope_metrics, points: 0 };
                write(&mut scope);
                points = scope.points;
            });
        });
        self.done.push(Payload { body: request.into_bytes(), points });
    }
}

/// Metrics of one scope.
struct ScopeMetrics<'a> {
    message: &'a mut Message,
    points: u64,
}

/// What a metric is called, what it is in one line, and its unit in UCUM.
type Head = (&'static str, &'static str, &'static str);
type Attributes<'a> = Vec<(&'static str, &'a str)>;

impl ScopeMetrics<'_> {
    /// Counters that only grow since the start.
    fn sums<'a>(
        &mut self,
        head: Head,
        points: impl Iterator<Item = (Attributes<'a>, u64)>,
        times: OtlpTimes,
    ) {
        self.metric(head, SUM, |sum, count| {
            for (attributes, value) in points {
                *count += 1;
                sum.message(1, |point| number(point, &attributes, value, times));
            }
            sum.varint(2, CUMULATIVE);
            sum.varint(3, 1);
        });
    }

    /// Values of now.
    fn gauges<'a>(
        &mut self,
        head: Head,
        points: impl Iterator<Item = (Attributes<'a>, u64)>,
        times: OtlpTimes,
    ) {
        self.metric(head, GAUGE, |gauge, count| {
            for (attributes, value) in points {
                *count += 1;
                gauge.message(1, |point| number(point, &attributes, value, times));
            }
        });
    }

    fn delays<'a>(
        &mut self,
        head: Head,
        points: impl Iterator<Item = (Attributes<'a>, &'a Hist)>,
        histograms: OtlpHistograms,
        times: OtlpTimes,
    ) {
        let field = match histograms {
            OtlpHistograms::Exponential => EXPONENTIAL_HISTOGRAM,
            OtlpHistograms::Explicit => HISTOGRAM,
        };
        self.metric(head, field, |histogram, count| {
            for (attributes, hist) in points {
                *count += 1;
                histogram.message(1, |point| match histograms {
                    OtlpHistograms::Exponential => exponential(point, &attributes, hist, times),
                    OtlpHistograms::Explicit => explicit(point, &attributes, hist, times),
                });
            }
            histogram.varint(2, CUMULATIVE);
        });
    }

    fn metric(&mut self, head: Head, field: u32, write: impl FnOnce(&mut Message, &mut u64)) {
        let (name, description, unit) = head;
        let points = &mut self.points;
        self.message.message(2, |metric| {
            metric.text(1, name);
            metric.text(2, description);
            metric.text(3, unit);
            metric.message(field, |data| write(data, points));
        });
    }
}

fn requests_of_streams(metrics: &mut ScopeMetrics<'_>, all: &[StreamMetrics], times: OtlpTimes) {
    type Of = fn(&StreamMetrics) -> u64;
    let counts: [(Head, Of); 7] = [
        (("sonde.sent", "Probes sent", "{packet}"), |s| s.counters.sent),
        (("sonde.received", "Probes answered in time", "{packet}"), |s| s.counters.received),
        (("sonde.reordered", "Replies that were overtaken", "{packet}"), |s| s.counters.reordered),
        (("sonde.duplicated", "Further replies", "{packet}"), |s| s.counters.duplicated),
        (("sonde.late", "Replies after the timeout", "{packet}"), |s| s.counters.late),
        (("sonde.skipped", "Probes that were due and not sent", "{packet}"), |s| {
            s.counters.skipped
        }),
        (("sonde.errored", "Seconds with an error", "s"), |s| s.errored_seconds),
    ];
    for (head, of) in counts {
        metrics.sums(head, all.iter().map(|s| (of_stream(&s.labels), of(s))), times);
    }
    let lost = all.iter().flat_map(|stream| {
        DIRECTIONS.into_iter().zip(stream.lost_by_side).map(|(side, count)| {
            let mut attributes = of_stream(&stream.labels);
            attributes.push(("direction", side));
            (attributes, count)
        })
    });
    metrics.sums(("sonde.lost", "Probes lost, by side", "{packet}"), lost, times);
    let available = all
        .iter()
        .filter_map(|stream| Some((of_stream(&stream.labels), u64::from(stream.available?))));
    metrics.gauges(("sonde.available", "1: available", "1"), available, times);
}

fn requests_of_groups(
    metrics: &mut ScopeMetrics<'_>,
    groups: &[GroupMetrics],
    histograms: OtlpHistograms,
    times: OtlpTimes,
) {
    let rtt = groups.iter().map(|group| (of_group(&group.labels, None), &group.rtt));
    metrics.delays(("sonde.rtt", "Round trip without dwell", "s"), rtt, histograms, times);
    type Of = fn(&GroupMetrics) -> [&Hist; 2];
    let sides: [(Head, Of); 2] = [
        (("sonde.delay", "One-way delay", "s"), |g| [&g.forward, &g.backward]),
        (("sonde.ipdv", "Delay variation of adjacent probes", "s"), |g| {
            [&g.ipdv_forward, &g.ipdv_backward]
        }),
    ];
    for (head, of) in sides {
        let points = groups.iter().flat_map(|group| {
            let sides = DIRECTIONS.into_iter().zip(of(group));
            sides.map(|(side, hist)| (of_group(&group.labels, Some(side)), hist))
        });
        let measured = points.filter(|(_, hist)| hist.count > 0);
        metrics.delays(head, measured, histograms, times);
    }
}

fn requests_of_traffic(
    metrics: &mut ScopeMetrics<'_>,
    all: &TrafficMetrics,
    histograms: OtlpHistograms,
    times: OtlpTimes,
) {
    if !all.samples.is_empty() {
        let groups = all.groups.iter().map(|group| {
            (vec![("unit", group.unit.as_str()), ("group", group.group.as_str())], &group.clean)
        });
        let head = ("sonde.passive.rtt", "Round trip of other people's traffic", "s");
        metrics.delays(head, groups, histograms, times);
        let samples = all.samples.iter().flat_map(|samples| {
            let unit = ("unit", samples.unit.as_str());
            samples.by_kind().map(|(kind, n)| (vec![unit, ("kind", kind)], n))
        });
        let head = ("sonde.passive.samples", "Samples of passive round trips", "{sample}");
        metrics.sums(head, samples, times);
    }
    if !all.flows.is_empty() {
        type Of = fn(&FlowMetrics) -> u64;
        let of_flows: [(&str, [Head; 3], &[FlowMetrics]); 2] = [
            (
                "interface",
                [
                    ("sonde.flow.records", "Records of flows", "{flow}"),
                    ("sonde.flow.packets", "Packets of flows", "{packet}"),
                    ("sonde.flow.io", "IP octets of flows", "By"),
                ],
                &all.flows,
            ),
            (
                "application",
                [
                    ("sonde.flow.application.records", "Records of flows", "{flow}"),
                    ("sonde.flow.application.packets", "Packets of flows", "{packet}"),
                    ("sonde.flow.application.io", "IP octets of flows", "By"),
                ],
                &all.applications,
            ),
        ];
        let counts: [Of; 3] = [|f| f.records, |f| f.packets, |f| f.octets];
        for (label, heads, list) in of_flows {
            for (head, of) in heads.into_iter().zip(counts) {
                let points = list.iter().map(|flows| {
                    (vec![("unit", flows.unit.as_str()), (label, flows.name.as_str())], of(flows))
                });
                metrics.sums(head, points, times);
            }
        }
    }
    if !all.interfaces.is_empty() {
        type Of = fn(&InterfaceSideMetrics) -> u64;
        let counts: [(Head, Of); 4] = [
            (("sonde.interface.io", "Octets of frames", "By"), |s| s.octets),
            (("sonde.interface.packets", "Packets", "{packet}"), |s| s.packets),
            (("sonde.interface.dropped", "Packets dropped", "{packet}"), |s| s.dropped),
            (("sonde.interface.errors", "Packets damaged or not sent", "{packet}"), |s| s.errors),
        ];
        let of = |name: &'static str, value| {
            Some((name, value)).filter(|(_, v): &(_, &str)| !v.is_empty())
        };
        for (head, count) in counts {
            let points = all.interfaces.iter().flat_map(|interface| {
                INTERFACE_DIRECTIONS.into_iter().zip(&interface.sides).map(move |(to, side)| {
                    let interface_of = ("interface", interface.interface.as_str());
                    let netns = of("netns", interface.netns.as_str());
                    let all = [interface_of, ("direction", to)].into_iter().chain(netns);
                    (all.collect(), count(side))
                })
            });
            metrics.sums(head, points, times);
        }
        let queues = all.interfaces.iter().map(|interface| {
            let name = [("interface", interface.interface.as_str())].into_iter();
            let netns = of("netns", interface.netns.as_str());
            (name.chain(netns).collect(), interface.queue_dropped)
        });
        let head = ("sonde.interface.queue_dropped", "Packets dropped by queues", "{packet}");
        metrics.sums(head, queues, times);
    }
}

/// A `NumberDataPoint`.
fn number(point: &mut Message, attributes: &Attributes<'_>, value: u64, times: OtlpTimes) {
    for (name, value) in attributes {
        attribute(point, 7, name, value);
    }
    point.fixed64(2, times.start_ns.cast_unsigned());
    point.fixed64(3, times.now_ns.cast_unsigned());
    // Of `as_int`, which has a sign.
    point.fixed64(6, value.min(i64::MAX.cast_unsigned()));
}

/// A `HistogramDataPoint`.
fn explicit(point: &mut Message, attributes: &Attributes<'_>, hist: &Hist, times: OtlpTimes) {
    for (name, value) in attributes {
        attribute(point, 9, name, value);
    }
    point.fixed64(2, times.start_ns.cast_unsigned());
    point.fixed64(3, times.now_ns.cast_unsigned());
    point.fixed64(4, hist.count);
    sum_and_ends(point, hist, [5, 11, 12]);
    let mut before = 0;
    let mut counts: Vec<u64> = Vec::new();
    for bound in shown_bounds() {
        let upto = count_to(hist, bound).1;
        counts.push(upto - before);
        before = upto;
    }
    // What has no bucket is counted as the greatest, as on `/metrics`.
    counts.push(hist.count.saturating_sub(before));
    point.packed_fixed64(6, counts);
    point.packed_fixed64(7, shown_bounds().map(|bound| (bound as f64 / 1e9).to_bits()));
}

/// An `ExponentialHistogramDataPoint`.
fn exponential(point: &mut Message, attributes: &Attributes<'_>, hist: &Hist, times: OtlpTimes) {
    for (name, value) in attributes {
        attribute(point, 1, name, value);
    }
    point.fixed64(2, times.start_ns.cast_unsigned());
    point.fixed64(3, times.now_ns.cast_unsigned());
    let (mut zero, mut sides) = (0, [Vec::new(), Vec::new()]);
    let mut held = 0;
    for (value, n) in hist.values() {
        held += n;
        if value.unsigned_abs() <= ZERO_NS {
            zero += n;
        } else {
            let index = index_of(value.unsigned_abs() as f64 / 1e9);
            sides[usize::from(value < 0)].push((index, n));
        }
    }
    // What has no bucket (Caveat::HistogramFull) is counted where the greatest value lies.
    let beyond = hist.count.saturating_sub(held);
    if beyond > 0 {
        let index = index_of((hist.max.unsigned_abs().max(ZERO_NS + 1)) as f64 / 1e9);
        sides[usize::from(hist.max < 0)].push((index, beyond));
    }
    point.fixed64(4, hist.count);
    sum_and_ends(point, hist, [5, 12, 13]);
    point.zigzag(6, i64::from(SCALE));
    point.fixed64(7, zero);
    for (field, side) in [8, 9].into_iter().zip(&sides) {
        buckets(point, field, side);
    }
    point.double(14, ZERO_NS as f64 / 1e9);
}

/// `Buckets`: the index of the first, and the counts from there on.
fn buckets(point: &mut Message, field: u32, side: &[(i32, u64)]) {
    let (Some(first), Some(last)) =
        (side.iter().map(|(i, _)| *i).min(), side.iter().map(|(i, _)| *i).max())
    else {
        return;
    };
    let mut counts = vec![0; (last - first + 1).unsigned_abs() as usize];
    for (index, n) in side {
        counts[(index - first).unsigned_abs() as usize] += n;
    }
    point.message(field, |buckets| {
        buckets.zigzag(1, i64::from(first));
        buckets.packed_varints(2, counts);
    });
}

/// The index of a value's bucket at [`SCALE`]: bucket i has the values above base^i up to
/// base^(i+1), and the base is 2^(2^-SCALE).
fn index_of(seconds: f64) -> i32 {
    (seconds.log2() * f64::from(1_u32 << SCALE)).ceil() as i32 - 1
}

/// Sum, least and greatest value. A sum of values that can be negative may not be given.
fn sum_and_ends(point: &mut Message, hist: &Hist, [sum, least, greatest]: [u32; 3]) {
    let (Some(min), Some(max)) = (hist.min(), hist.max()) else { return };
    if min >= 0 {
        point.double(sum, hist.sum as f64 / 1e9);
    }
    point.double(least, min as f64 / 1e9);
    point.double(greatest, max as f64 / 1e9);
}

/// A `KeyValue` with a text; one without a value is left out.
fn attribute(message: &mut Message, field: u32, name: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    message.message(field, |pair| {
        pair.text(1, name);
        pair.message(2, |any| any.text(1, value));
    });
}

fn of_stream(labels: &MetricLabels) -> Attributes<'_> {
    vec![("target", &labels.target), ("class", &labels.class), ("module", &labels.module)]
}

fn of_group<'a>(labels: &'a MetricLabels, direction: Option<&'static str>) -> Attributes<'a> {
    let mut attributes: Attributes<'a> = vec![("class", &labels.class), ("module", &labels.module)];
    attributes.extend(direction.map(|direction| ("direction", direction)));
    attributes
}

const DIRECTIONS: [&str; 3] = ["forward", "backward", "unknown"];
/// Streams of a request: each is 11 data points of some 150 octets.
const STREAMS_A_REQUEST: usize = 500;
/// Buckets are 2^4 to a power of two: 4.4 % wide.
const SCALE: u32 = 4;
/// Values up to here are zero, ns: our first bucket.
const ZERO_NS: u64 = 31;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;
/// Fields of `Metric`.
const GAUGE: u32 = 5;
const SUM: u32 = 7;
const HISTOGRAM: u32 = 9;
const EXPONENTIAL_HISTOGRAM: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_of_exponential_buckets_belong_to_the_bucket_below() {
        // As the data model of OpenTelemetry has it: at any scale 1 is the end of bucket -1.
        assert_eq!(index_of(1.0), -1);
        assert_eq!(index_of(1.000_001), 0);
        assert_eq!(index_of(2.0), 15);
        assert_eq!(index_of(0.5), -17);
    }

    #[test]
    fn what_a_receiver_rejects_of_a_request_is_read() {
        assert_eq!(rejected(&[]), None);
        assert_eq!(rejected(&[0x0a, 0x00]), None);
        // {partial_success: {rejected_data_points: 300, error_message: "old"}}
        let answer = [0x0a, 0x08, 0x08, 0xac, 0x02, 0x12, 0x03, b'o', b'l', b'd'];
        assert_eq!(rejected(&answer), Some((300, "old".to_owned())));
        let warning = [0x0a, 0x05, 0x12, 0x03, b'o', b'l', b'd'];
        assert_eq!(rejected(&warning), Some((0, "old".to_owned())));
    }

    #[test]
    fn other_peoples_traffic_is_there_by_group_application_and_interface() {
        use sonde_api::openmetrics::{InterfaceMetrics, PassiveGroupMetrics, PassiveSampleMetrics};
        let mut clean = Hist::default();
        clean.add(1_000_000);
        let (unit, group) = ("rtt.up".to_owned(), "192.0.2.0/24".to_owned());
        let flows =
            FlowMetrics { unit: "flow.up".into(), name: "tls".into(), ..Default::default() };
        let traffic = TrafficMetrics {
            groups: vec![PassiveGroupMetrics { unit: unit.clone(), group, clean }],
            samples: vec![PassiveSampleMetrics { unit, clean: 1, ..Default::default() }],
            flows: vec![flows.clone()],
            applications: vec![flows],
            interfaces: vec![InterfaceMetrics { interface: "eth0".into(), ..Default::default() }],
        };
        let snapshot = MetricsSnapshot { traffic, ..MetricsSnapshot::default() };
        let times = OtlpTimes { start_ns: 0, now_ns: 1 };
        let all = payloads(&snapshot, OtlpHistograms::Exponential, times);
        assert_eq!(all.len(), 1);
        // A group, three kinds of samples, three counts of flows twice, four of each direction, and
        // one of the queue.
        assert_eq!(all[0].points, 1 + 3 + 6 + 8 + 1);
        let has = |text: &str| all[0].body.windows(text.len()).any(|at| at == text.as_bytes());
        for text in ["sonde.passive.rtt", "192.0.2.0/24", "sonde.flow.application.io", "transmit"] {
            assert!(has(text), "{text}");
        }
        assert!(!has("netns"), "an attribute without a value is none");
    }

    proptest! {
        /// A value is counted in its own bucket or a neighbour of it.
        #[test]
        fn a_value_is_off_by_a_bucket_at_most(ns in 1_000_i64..100_000_000_000) {
            let mut hist = Hist::default();
            // Beside others, so that its middle is not moved to the least or greatest value.
            [1, ns, 200_000_000_000].iter().for_each(|&value| hist.add(value));
            let counted: Vec<i32> = hist
                .values()
                .filter(|(value, _)| value.unsigned_abs() > ZERO_NS)
                .map(|(value, _)| index_of(value as f64 / 1e9))
                .collect();
            let own = index_of(ns as f64 / 1e9);
            prop_assert!(counted.iter().any(|index| (index - own).abs() <= 1), "{own} {counted:?}");
        }
    }
}
