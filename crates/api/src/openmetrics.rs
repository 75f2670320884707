//! What a station has counted, as OpenMetrics 1.0 text, for `/metrics`.
//!
//! The number of series is bounded: streams that agree in target, class and module are one set of
//! counters, for ports and addresses are no labels; delays have histograms by group (class and
//! module), not by stream.
//!
//! Bounds of buckets are those of [`sonde_results::hist`]: powers of two in nanoseconds, where
//! counts are exact. Prometheus' and OTLP's exponential buckets are powers of two in *seconds*.
//! These never line up with ours (2^30 ns is 1.0737 s), and no other bound does, either: a value
//! counted at such a bound is in doubt by what one of our buckets holds, whose width is at most
//! 3.1 % of it. [`count_to`] says both ends of that.
//!
//! What else exports the same series takes them by [`walk`].

mod own;
mod traffic;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sonde_results::caveat::Caveat;
use sonde_results::hist::{bounds_of, bucket_of};
use sonde_results::{Counters, Hist, Interval};

pub use self::own::{ExportMetrics, OwnMetrics, QueueMetrics, StoreMetrics, UnitMetrics};
pub use self::traffic::{
    FlowMetrics, INTERFACE_DIRECTIONS, InterfaceMetrics, InterfaceSideMetrics, PassiveGroupMetrics,
    PassiveSampleMetrics, TrafficMetrics,
};

/// What a station has counted since its start. Counters never go down while it runs.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot {
    /// The station's name.
    pub station: String,
    /// Version of Sonde.
    pub version: String,
    /// Counters of each stream.
    pub streams: Vec<StreamMetrics>,
    /// Delays of each group of streams.
    pub groups: Vec<GroupMetrics>,
    /// Other people's traffic.
    pub traffic: TrafficMetrics,
    /// Checks of application-level modules.
    pub checks: Vec<CheckMetrics>,
    /// How the station itself does.
    pub own: OwnMetrics,
}

/// By what series are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetricLabels {
    /// The target's name; of a group empty.
    pub target: String,
    /// Class of service.
    pub class: String,
    /// What measures: `stamp`.
    pub module: String,
}

/// Counters of a stream since the station's start.
#[derive(Clone, Debug, Default)]
pub struct StreamMetrics {
    /// Its labels. Those of several streams may be equal: they are added up.
    pub labels: MetricLabels,
    /// Its counts; of the lost ones see `lost_by_side`.
    pub counters: Counters,
    /// Lost there, lost back, and lost with no known side, each as its record said. A side that a
    /// later record proves counts there, too: so none of the three goes down, and their sum may
    /// be more than was lost. Sent less received is exact.
    pub lost_by_side: [u64; 3],
    /// Seconds with an error.
    pub errored_seconds: u64,
    /// Whether it is available; `None`: not known.
    pub available: Option<bool>,
    /// Intervals with each caveat.
    pub caveats: BTreeMap<Caveat, u64>,
}

/// Delays of a group since the station's start, ns.
#[derive(Clone, Debug, Default)]
pub struct GroupMetrics {
    /// Its labels; `target` is empty.
    pub labels: MetricLabels,
    /// Round trips without the reflector's dwell.
    pub rtt: Hist,
    /// One way, to the reflector; negative where clocks differ.
    pub forward: Hist,
    /// One way, back from it.
    pub backward: Hist,
    /// Delay variation on the way there.
    pub ipdv_forward: Hist,
    /// Delay variation on the way back.
    pub ipdv_backward: Hist,
}

/// The last result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckMetrics {
    /// Its labels.
    pub labels: MetricLabels,
    /// Whether it succeeded.
    pub success: bool,
    /// Length of each phase, ns.
    pub phases_ns: BTreeMap<String, i64>,
}

impl StreamMetrics {
    /// Counts an interval of the stream.
    pub fn add(&mut self, interval: &Interval) {
        let Interval { counters, caveats, .. } = interval;
        self.counters.merge(counters);
        let sides = [counters.lost_forward, counters.lost_backward, Some(counters.lost_unknown)];
        for (sum, side) in self.lost_by_side.iter_mut().zip(sides) {
            *sum += side.unwrap_or(0);
        }
        caveats.iter().for_each(|caveat| *self.caveats.entry(caveat).or_default() += 1);
    }

    fn merge(&mut self, other: &StreamMetrics) {
        self.counters.merge(&other.counters);
        self.lost_by_side.iter_mut().zip(other.lost_by_side).for_each(|(sum, n)| *sum += n);
        self.errored_seconds += other.errored_seconds;
        // A target is available where all of its streams are.
        self.available = match (self.available, other.available) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        };
        for (caveat, n) in &other.caveats {
            *self.caveats.entry(*caveat).or_default() += n;
        }
    }
}

/// A name and a value.
pub type MetricLabel<'a> = (&'static str, &'a str);

/// A family of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricFamily<'a> {
    /// Its name, without `_total`.
    pub name: &'a str,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: &'static str,
    /// `seconds`, `bytes`, or none.
    pub unit: Option<&'static str>,
    /// What it is, in one line.
    pub help: &'a str,
}

/// What takes series, one after the other.
pub trait MetricSink {
    /// The next series are of this family.
    fn family(&mut self, family: &MetricFamily<'_>);

    /// One of them: its whole name, its labels with that of the station first, and its value as
    /// decimal digits.
    fn sample(&mut self, name: &str, labels: &[MetricLabel<'_>], value: &str);
}

/// Gives all series of a snapshot to `sink`.
pub fn walk(snapshot: &MetricsSnapshot, sink: &mut dyn MetricSink) {
    let mut page = MetricsPage { station: &snapshot.station, sink, series: 0 };
    let mut streams: BTreeMap<&MetricLabels, StreamMetrics> = BTreeMap::new();
    for stream in &snapshot.streams {
        match streams.get_mut(&stream.labels) {
            Some(sum) => sum.merge(stream),
            None => drop(streams.insert(&stream.labels, stream.clone())),
        }
    }
    page.info(&snapshot.version);
    page.counters(&streams);
    page.availability(&streams);
    page.caveats(&streams);
    page.delays(&snapshot.groups);
    page.traffic(&snapshot.traffic);
    page.checks(&snapshot.checks);
    page.own(&snapshot.own);
    page.family("sonde_metrics_series", "gauge", None, "Series on this page, but this one");
    let series = page.series;
    page.sample("sonde_metrics_series", &[], &series.to_string());
}

/// The text, and its media type is [`OPENMETRICS`].
pub fn render(snapshot: &MetricsSnapshot) -> String {
    let mut text = MetricsText(String::new());
    walk(snapshot, &mut text);
    text.0.push_str("# EOF\n");
    text.0
}

/// How many values of `hist` are at or below `bound` ns: at least and at most. Both are equal
/// where the bound is that of a bucket. Values that found no bucket are in neither.
pub fn count_to(hist: &Hist, bound: i64) -> (u64, u64) {
    let own = bucket_of(bound);
    let whole = bounds_of(own).1 == bound;
    let count = |upto: &dyn Fn(i16) -> bool| {
        hist.buckets.iter().filter(|(b, _)| upto(*b)).map(|&(_, n)| u64::from(n)).sum()
    };
    let most = count(&|bucket| bucket <= own);
    let least = if whole { most } else { count(&|bucket| bucket < own) };
    (least, most)
}

/// Upper bounds of the buckets that are shown, ns: the last value before 2^13, 2^14 and so on.
/// From 8 us to 17 s, each twice the one before.
pub fn shown_bounds() -> impl Iterator<Item = i64> {
    (13..=34).map(|power| (1_i64 << power) - 1)
}

struct MetricsPage<'a> {
    station: &'a str,
    sink: &'a mut dyn MetricSink,
    series: usize,
}

impl MetricsPage<'_> {
    fn info(&mut self, version: &str) {
        self.family("sonde_build", "info", None, "Version of Sonde");
        self.sample("sonde_build_info", &[("version", version)], "1");
    }

    fn counters(&mut self, streams: &BTreeMap<&MetricLabels, StreamMetrics>) {
        type Of = fn(&StreamMetrics) -> u64;
        let all: [(&str, &str, Of); 6] = [
            ("sonde_sent", "Probes sent", |s| s.counters.sent),
            ("sonde_received", "Probes answered in time", |s| s.counters.received),
            ("sonde_reordered", "Replies that were overtaken", |s| s.counters.reordered),
            ("sonde_duplicated", "Further replies", |s| s.counters.duplicated),
            ("sonde_late", "Replies after the timeout", |s| s.counters.late),
            ("sonde_skipped", "Probes that were due and not sent", |s| s.counters.skipped),
        ];
        for (name, help, of) in all {
            self.family(name, "counter", None, help);
            for (labels, stream) in streams {
                let value = of(stream).to_string();
                self.sample(&format!("{name}_total"), &of_stream(labels), &value);
            }
        }
        self.family("sonde_lost", "counter", None, LOST_HELP);
        for (labels, stream) in streams {
            for (side, count) in ["forward", "backward", "unknown"].iter().zip(stream.lost_by_side)
            {
                let labels = with(&of_stream(labels), ("direction", side));
                self.sample("sonde_lost_total", &labels, &count.to_string());
            }
        }
        self.family("sonde_errored_seconds", "counter", Some("seconds"), "Seconds with an error");
        for (labels, stream) in streams {
            let value = stream.errored_seconds.to_string();
            self.sample("sonde_errored_seconds_total", &of_stream(labels), &value);
        }
    }

    fn availability(&mut self, streams: &BTreeMap<&MetricLabels, StreamMetrics>) {
        self.family("sonde_available", "gauge", None, "1: available; not there: not known");
        for (labels, stream) in streams {
            let Some(available) = stream.available else { continue };
            let value = if available { "1" } else { "0" };
            self.sample("sonde_available", &of_stream(labels), value);
        }
    }

    fn caveats(&mut self, streams: &BTreeMap<&MetricLabels, StreamMetrics>) {
        self.family("sonde_caveats", "counter", None, "Intervals with a caveat");
        for (labels, stream) in streams {
            for (caveat, n) in &stream.caveats {
                let name = serde_json::to_value(caveat).unwrap_or_default();
                let caveat = ("caveat", name.as_str().unwrap_or_default());
                let labels = with(&of_stream(labels), caveat);
                self.sample("sonde_caveats_total", &labels, &n.to_string());
            }
        }
    }

    fn delays(&mut self, groups: &[GroupMetrics]) {
        self.family("sonde_rtt_seconds", "histogram", Some("seconds"), RTT_HELP);
        for group in groups {
            self.histogram("sonde_rtt_seconds", &of_group(&group.labels), &group.rtt, true);
        }
        type Of = fn(&GroupMetrics) -> [(&'static str, &Hist); 2];
        let sides: [(&str, &str, Of); 2] = [
            ("sonde_delay_seconds", DELAY_HELP, |g| {
                [("forward", &g.forward), ("backward", &g.backward)]
            }),
            ("sonde_ipdv_seconds", IPDV_HELP, |g| {
                [("forward", &g.ipdv_forward), ("backward", &g.ipdv_backward)]
            }),
        ];
        for (name, help, of) in sides {
            self.family(name, "histogram", Some("seconds"), help);
            for group in groups {
                for (side, hist) in of(group) {
                    let labels = with(&of_group(&group.labels), ("direction", side));
                    self.histogram(name, &labels, hist, false);
                }
            }
        }
    }

    fn checks(&mut self, checks: &[CheckMetrics]) {
        self.family("sonde_check_success", "gauge", None, "1: the last check succeeded");
        for check in checks {
            let value = if check.success { "1" } else { "0" };
            self.sample("sonde_check_success", &of_stream(&check.labels), value);
        }
        let help = "Length of a phase of the last check";
        self.family("sonde_check_duration_seconds", "gauge", Some("seconds"), help);
        for check in checks {
            for (phase, ns) in &check.phases_ns {
                let labels = with(&of_stream(&check.labels), ("phase", phase.as_str()));
                let value = seconds(i128::from(*ns));
                self.sample("sonde_check_duration_seconds", &labels, &value);
            }
        }
    }

    /// With `sum`, count and sum are written, too. They may not be where values can be negative:
    /// the sum would be no counter (OpenMetrics 1.0, "Histogram").
    fn histogram(&mut self, name: &str, labels: &[MetricLabel<'_>], hist: &Hist, sum: bool) {
        let bucket = format!("{name}_bucket");
        for bound in shown_bounds() {
            let le = seconds(i128::from(bound));
            let count = count_to(hist, bound).1.to_string();
            self.sample(&bucket, &with(labels, ("le", &le)), &count);
        }
        // Values without a bucket count here: their number is known, their value is not.
        let count = hist.count.to_string();
        self.sample(&bucket, &with(labels, ("le", "+Inf")), &count);
        if sum {
            self.sample(&format!("{name}_count"), labels, &count);
            self.sample(&format!("{name}_sum"), labels, &seconds(hist.sum));
        }
    }

    fn family(&mut self, name: &str, kind: &'static str, unit: Option<&'static str>, help: &str) {
        self.sink.family(&MetricFamily { name, kind, unit, help });
    }

    fn sample(&mut self, name: &str, labels: &[MetricLabel<'_>], value: &str) {
        self.series += 1;
        let station = ("station", self.station);
        let all: Vec<MetricLabel<'_>> = std::iter::once(&station).chain(labels).copied().collect();
        self.sink.sample(name, &all, value);
    }
}

/// OpenMetrics, but its last line.
struct MetricsText(String);

impl MetricSink for MetricsText {
    fn family(&mut self, family: &MetricFamily<'_>) {
        let MetricFamily { name, kind, unit, help } = family;
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if let Some(unit) = unit {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {help}.");
    }

    fn sample(&mut self, name: &str, labels: &[MetricLabel<'_>], value: &str) {
        self.0.push_str(name);
        self.0.push('{');
        for (i, (name, value)) in labels.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let _ = write!(self.0, "{comma}{name}=\"{}\"", escaped(value));
        }
        let _ = writeln!(self.0, "}} {value}");
    }
}

fn of_stream(labels: &MetricLabels) -> [MetricLabel<'_>; 3] {
    [("target", &labels.target), ("class", &labels.class), ("module", &labels.module)]
}

fn of_group(labels: &MetricLabels) -> [MetricLabel<'_>; 2] {
    [("class", &labels.class), ("module", &labels.module)]
}

fn with<'a>(labels: &[MetricLabel<'a>], one: MetricLabel<'a>) -> Vec<MetricLabel<'a>> {
    labels.iter().copied().chain([one]).collect()
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Exact: floating-point text would move a bound by its last digit.
pub(crate) fn seconds(ns: i128) -> String {
    let (sign, ns) = if ns < 0 { ("-", -ns) } else { ("", ns) };
    let text = format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let short = text.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

/// Media type of the text.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const LOST_HELP: &str = "Probes lost, by the side that was proved when they were recorded; \
    sent less received is exact";
const RTT_HELP: &str = "Round trip without the time that the reflector held the probe";
const DELAY_HELP: &str = "One-way delay, off by the difference of the clocks";
const IPDV_HELP: &str = "Delay variation of adjacent probes (RFC 3393)";

#[cfg(test)]
mod tests;
