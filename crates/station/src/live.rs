//! What a station knows of the present: its units, the newest interval of each stream, counts
//! since its start. From here come the live events, the metrics and the states of series.
//!
//! [`LiveState`] decides, purely; `thread` has the thread and the clock.

pub(crate) mod clock_steps;
pub(crate) mod thread;
mod traffic;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use sonde_api::datum::{Datum, DatumColumn};
use sonde_api::instant::UtcInstant;
use sonde_api::openmetrics::{
    GroupMetrics, MetricLabels, MetricsSnapshot, OwnMetrics, StreamMetrics,
};
use sonde_api::readings::{LiveReading, ReadingMetric, ReadingState, StateCounts};
use sonde_api::station::{UnitEntry, UnitPhase};
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::civil_time;
use sonde_results::run::Health;
use sonde_results::units::SECOND;
use sonde_results::{Interval, StreamInfo};
use sonde_run::probe::Event;
use sonde_store::query::EventRow;
use sonde_store::{EventSeverity, Series, SeriesLabels};
use sonde_wire::NotSent;

use self::clock_steps::{ClockStep, ClockSteps};
use crate::hub::{Report, Said};
use crate::keep::labels_of;
use crate::plan::UnitId;
use crate::supervise::{Notice, UnitState};
use traffic::TrafficCounts;

/// What is known of the present. Times are ns since 1970 UTC.
pub struct LiveState {
    station: String,
    units: BTreeMap<UnitId, UnitLive>,
    /// Counts since the start. They outlive the units that they are of.
    counts: BTreeMap<MetricLabels, LabelCounts>,
    groups: BTreeMap<MetricLabels, GroupMetrics>,
    /// Counts of other people's traffic.
    pub(crate) traffic: TrafficCounts,
    /// Numbers of series in the store.
    numbers: HashMap<SeriesLabels, u32>,
    /// The worst that an open event says of a series.
    open: BTreeMap<u32, ReadingState>,
    clock_steps: ClockSteps,
}

/// A unit.
#[derive(Default)]
pub(crate) struct UnitLive {
    phase: Option<(UnitPhase, i64)>,
    reason: Option<String>,
    starts: u64,
    records: u64,
    lost: u64,
    last_record: Option<i64>,
    /// What it and its engine counted when it last ended.
    pub counters: BTreeMap<String, u64>,
    /// Its own behaviour until then.
    pub health: Health,
    /// What casts doubt on all that it measured until then.
    pub caveats: CaveatSet,
    streams: Vec<StreamLive>,
    /// Targets that are not measured, with the reason and since when, ns since 1970 UTC.
    left_out: BTreeMap<String, (String, i64)>,
}

/// A stream of a probe.
struct StreamLive {
    labels: SeriesLabels,
    series: Option<u32>,
    /// The report of its newest interval.
    last: Option<Arc<Report>>,
    /// When that came.
    arrived: i64,
    /// Begin of the first of the intervals without any answer that came last.
    silent_since: Option<i64>,
    /// The same of those in which nothing could be sent.
    unsent_since: Option<i64>,
    ended: bool,
    address: IpAddr,
}

/// What is known of a target of a probe.
#[derive(Default)]
pub(crate) struct TargetNow {
    /// Its series, ascending.
    pub series: Vec<u32>,
    /// Where its probes go.
    pub addresses: BTreeSet<IpAddr>,
    /// Why it is not measured, and since when.
    pub left_out: Option<String>,
}

#[derive(Default)]
struct LabelCounts {
    sums: StreamMetrics,
    /// Seconds since 1970 up to here are counted as errored or not.
    looked_to_s: i64,
}

/// The state of a series, and whether it is doubtful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeriesNow {
    pub state: ReadingState,
    pub doubtful: bool,
}

impl LiveState {
    /// Of a station of that name which has just begun.
    pub fn new(station: &str) -> LiveState {
        LiveState {
            station: station.to_owned(),
            units: BTreeMap::new(),
            counts: BTreeMap::new(),
            groups: BTreeMap::new(),
            traffic: TrafficCounts::default(),
            numbers: HashMap::new(),
            open: BTreeMap::new(),
            clock_steps: ClockSteps::default(),
        }
    }

    /// What the station is called.
    pub(crate) fn station(&self) -> &str {
        &self.station
    }

    /// Takes a report. Its times are `utc_offset_ns` ahead of UTC; it is `now_ns` since 1970 UTC.
    pub fn take(&mut self, report: &Arc<Report>, (utc_offset_ns, now_ns): (i64, i64)) {
        self.traffic.take(report);
        // They are the station's own, and no unit's.
        if matches!(report.said, Said::Interfaces(_)) {
            return;
        }
        let unit = self.units.entry(report.unit.clone()).or_default();
        let begins = |unit: &mut UnitLive| {
            unit.starts += 1;
            unit.reason = None;
        };
        match &report.said {
            Said::Probe(about) => {
                begins(unit);
                unit.streams.clear();
                unit.leave_out(&about.left_out, now_ns);
                self.add_streams(&report.unit, &about.streams);
            }
            Said::Reflector(_) | Said::Rtt(_) | Said::Flow | Said::Serves(_) => begins(unit),
            Said::ProbeEvent(Event::Record(interval)) => {
                unit.count(report, now_ns);
                self.interval(report, interval, (utc_offset_ns, now_ns));
            }
            Said::ProbeEvent(Event::LeftOut(left_out)) => unit.leave_out(left_out, now_ns),
            Said::ProbeEvent(Event::Added(streams)) => self.add_streams(&report.unit, streams),
            Said::ProbeEvent(Event::Ended(streams)) => {
                for &stream in streams {
                    let stream = unit.streams.get_mut(stream as usize);
                    stream.into_iter().for_each(|stream| stream.ended = true);
                }
            }
            Said::Reflected(_) | Said::RttEvents(_) | Said::Flows(_) | Said::Controller(_) => {
                unit.count(report, now_ns);
            }
            Said::Lost(n) => unit.lost += n,
            Said::Ended { counters, health, caveats } => {
                (unit.counters, unit.health) = (counters.clone(), health.clone());
                unit.caveats = *caveats;
            }
            Said::Notice(Notice::Recovered(_)) => unit.reason = None,
            Said::Notice(notice) => unit.reason = Some(notice.to_string()),
            Said::ProbeEvent(Event::Sample(_) | Event::Undelivered(_))
            | Said::Interfaces(_)
            | Said::FlowSources(_)
            | Said::Gap(_) => {}
        }
    }

    fn add_streams(&mut self, unit: &UnitId, streams: &[StreamInfo]) {
        let labels = labels_of(&self.station, unit, streams);
        let unit = self.units.entry(unit.clone()).or_default();
        unit.streams.extend(labels.into_iter().zip(streams).map(|(labels, info)| StreamLive {
            series: self.numbers.get(&labels).copied(),
            labels,
            last: None,
            arrived: 0,
            silent_since: None,
            unsent_since: None,
            ended: false,
            address: info.destination.ip(),
        }));
    }

    fn interval(&mut self, report: &Arc<Report>, interval: &Interval, (offset, now): (i64, i64)) {
        let unit = self.units.get_mut(&report.unit);
        let stream = unit.and_then(|unit| unit.streams.get_mut(interval.stream as usize));
        let Some(stream) = stream else { return };
        if interval.caveats.contains(Caveat::ClockStepped) {
            self.clock_steps.mark(&report.unit);
        }
        let (start, end) = (interval.start_ns - offset, interval.end_ns - offset);
        let answered = interval.counters.received > 0;
        if interval.counters.sent > 0 {
            stream.silent_since = match (answered, stream.silent_since) {
                (true, _) => None,
                (false, since) => since.or(Some(start)),
            };
        }
        stream.unsent_since = match interval.counters.sent == 0 && interval.counters.skipped > 0 {
            true => stream.unsent_since.or(Some(start)),
            false => None,
        };
        (stream.last, stream.arrived) = (Some(report.clone()), now);
        let of_stream = metric_labels(&stream.labels);
        let of_group = MetricLabels { target: String::new(), ..of_stream.clone() };
        let counts = self.counts.entry(of_stream.clone()).or_default();
        counts.sums.labels = of_stream;
        counts.sums.add(interval);
        counts.count_seconds(start, end, interval.counters.lost > 0);
        let group = self.groups.entry(of_group.clone()).or_default();
        group.labels = of_group;
        let pairs = [
            (&mut group.rtt, &interval.rtt_net),
            (&mut group.forward, &interval.forward),
            (&mut group.backward, &interval.backward),
            (&mut group.ipdv_forward, &interval.ipdv_forward),
            (&mut group.ipdv_backward, &interval.ipdv_backward),
        ];
        pairs.into_iter().for_each(|(sum, more)| sum.merge(more));
    }

    /// Takes what the supervisor says; units whose phase is another now.
    pub fn phases(&mut self, states: &BTreeMap<UnitId, UnitState>, now_ns: i64) -> Vec<UnitId> {
        let mut changed = Vec::new();
        for (id, state) in states {
            let (unit, phase) = (self.units.entry(id.clone()).or_default(), phase_of(*state));
            if unit.phase.is_none_or(|(before, _)| before != phase) {
                unit.phase = Some((phase, now_ns));
                changed.push(id.clone());
            }
        }
        // What was measured by a unit that is gone is in the store and in the counts.
        self.units.retain(|id, unit| unit.phase.is_none() || states.contains_key(id));
        changed
    }

    /// Whether a stream has no number yet.
    fn lacks_numbers(&self) -> bool {
        self.units.values().flat_map(|unit| &unit.streams).any(|stream| stream.series.is_none())
    }

    fn number(&mut self, all: Vec<Series>) {
        self.numbers = all.into_iter().map(|series| (series.labels, series.id.0)).collect();
        for stream in self.units.values_mut().flat_map(|unit| &mut unit.streams) {
            stream.series = self.numbers.get(&stream.labels).copied();
        }
    }

    /// Takes the events that last.
    fn judge(&mut self, open: &[EventRow]) {
        self.open.clear();
        for EventRow { event, .. } in open {
            let Some(series) = event.series else { continue };
            let state = match (event.kind.as_str(), event.severity) {
                ("unavailable" | "availability", _) => ReadingState::Down,
                ("breach", _) | (_, EventSeverity::Critical) => ReadingState::Breach,
                (_, EventSeverity::Warning) => ReadingState::Degraded,
                (_, EventSeverity::Info) => continue,
            };
            let worst = self.open.entry(series.0).or_insert(state);
            *worst = state.min(*worst);
        }
    }

    /// A unit as the API lists it; `None`: there is no such unit.
    pub(crate) fn unit_entry(&self, id: &UnitId) -> Option<UnitEntry> {
        let unit = self.units.get(id)?;
        let (phase, since) = unit.phase?;
        Some(UnitEntry {
            name: id.to_string(),
            instrument: id.as_str().split('.').next().unwrap_or_default().to_owned(),
            phase,
            since: UtcInstant::from_ns(since),
            reason: unit.reason.clone().filter(|_| phase != UnitPhase::Running),
            next_try: None,
            starts: unit.starts,
            records: unit.records,
            records_lost: unit.lost,
            last_record: unit.last_record.map(UtcInstant::from_ns),
        })
    }

    /// The targets of a probe, by their names in results; of one that is left out it may be its host.
    pub(crate) fn targets(&self, unit: &UnitId) -> HashMap<&str, TargetNow> {
        let mut all: HashMap<&str, TargetNow> = HashMap::new();
        let Some(unit) = self.units.get(unit) else { return all };
        for stream in unit.streams.iter().filter(|stream| !stream.ended) {
            let target = all.entry(&stream.labels.target).or_default();
            target.series.extend(stream.series);
            target.addresses.insert(stream.address);
        }
        all.values_mut().for_each(|target| target.series.sort_unstable());
        let since = |at_ns: i64| format!("since {}", civil_time::plain(at_ns));
        for stream in unit.streams.iter().filter(|stream| !stream.ended) {
            let (Some(at), Some(why)) = (stream.unsent_since, stream.unsent()) else { continue };
            let target = all.entry(&stream.labels.target).or_default();
            let text = format!("nothing could be sent: {} ({})", why.text(), since(at));
            target.left_out.get_or_insert(text);
        }
        for (target, (why, at)) in &unit.left_out {
            all.entry(target).or_default().left_out = Some(format!("{why} ({})", since(*at)));
        }
        all
    }

    /// The labels of a stream of a unit; `None`: there is no such stream.
    pub(crate) fn stream_labels(&self, unit: &UnitId, stream: u32) -> Option<&SeriesLabels> {
        Some(&self.units.get(unit)?.streams.get(stream as usize)?.labels)
    }

    /// This host's clock was set: records that are marked for it are counted from now on.
    pub(crate) fn clock_stepped(&mut self, step: ClockStep) {
        self.clock_steps.add(step);
    }

    /// When it was set, the newest first.
    pub(crate) fn clock_steps(&self) -> impl Iterator<Item = &ClockStep> {
        self.clock_steps.iter()
    }

    /// All units.
    pub(crate) fn units(&self) -> impl Iterator<Item = (&UnitId, &UnitLive)> {
        self.units.iter()
    }

    /// The state of each series that is measured.
    pub(crate) fn series_states(&self, now: UtcInstant) -> BTreeMap<u32, SeriesNow> {
        let streams = self.units.values().flat_map(|unit| &unit.streams);
        let streams = streams.filter(|stream| !stream.ended);
        streams.filter_map(|s| Some((s.series?, self.now(s, now.ns())))).collect()
    }

    fn now(&self, stream: &StreamLive, now_ns: i64) -> SeriesNow {
        let Some(interval) = stream.interval() else {
            return SeriesNow { state: ReadingState::NoData, doubtful: false };
        };
        let length = interval.end_ns - interval.start_ns;
        let overdue = now_ns - stream.arrived > 3 * length + GRACE_NS;
        let quiet = stream.silent_since.into_iter().chain(stream.unsent_since).min();
        let silent = quiet.is_some_and(|since| now_ns - since >= DOWN_NS);
        let judged = stream.series.and_then(|series| self.open.get(&series).copied());
        let state = match () {
            () if overdue => ReadingState::NoData,
            () if silent => ReadingState::Down,
            () => judged.unwrap_or(ReadingState::Ok),
        };
        SeriesNow { state, doubtful: !overdue && !interval.caveats.is_empty() }
    }

    /// The newest interval of each of these series that has one, for the stream.
    fn readings(&self, wanted: &BTreeSet<u32>, utc_offset_ns: i64) -> Vec<LiveReading> {
        let streams = self.units.values().flat_map(|unit| &unit.streams);
        let wanted = streams.filter(|s| s.series.is_some_and(|id| wanted.contains(&id)));
        wanted.filter_map(|stream| reading(stream, utc_offset_ns)).collect()
    }

    /// What was counted since the start.
    pub fn metrics(&self, now: UtcInstant) -> MetricsSnapshot {
        let mut available: BTreeMap<MetricLabels, Option<bool>> = BTreeMap::new();
        for stream in self.units.values().flat_map(|unit| &unit.streams) {
            if stream.ended {
                continue;
            }
            let is = match self.now(stream, now.ns()).state {
                ReadingState::NoData => None,
                // Nothing was sent: that is neither.
                ReadingState::Ok | ReadingState::Degraded | ReadingState::Breach
                    if stream.unsent_since.is_some() =>
                {
                    None
                }
                state => Some(state != ReadingState::Down),
            };
            let all = available.entry(metric_labels(&stream.labels)).or_insert(is);
            *all = match (*all, is) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            };
        }
        let streams = self.counts.values().map(|counts| StreamMetrics {
            available: available.get(&counts.sums.labels).copied().flatten(),
            ..counts.sums.clone()
        });
        MetricsSnapshot {
            station: self.station.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            streams: streams.collect(),
            groups: self.groups.values().cloned().collect(),
            traffic: self.traffic.metrics(),
            checks: Vec::new(),
            own: OwnMetrics::default(),
        }
    }
}

impl UnitLive {
    fn count(&mut self, report: &Report, now_ns: i64) {
        self.records += report.records();
        self.last_record = Some(now_ns);
    }
}

impl UnitLive {
    /// These targets are not measured, and no others.
    fn leave_out(&mut self, left_out: &[(String, String)], now_ns: i64) {
        let before = std::mem::take(&mut self.left_out);
        let since = |name: &str| before.get(name).map_or(now_ns, |(_, since)| *since);
        let now = left_out.iter().map(|(name, why)| (name.clone(), (why.clone(), since(name))));
        self.left_out = now.collect();
    }
}

impl StreamLive {
    /// Why nothing was sent in the newest interval.
    fn unsent(&self) -> Option<NotSent> {
        let counts = &self.interval()?.counters.not_sent;
        counts.iter().max_by_key(|(_, n)| *n).map(|(why, _)| why)
    }

    fn interval(&self) -> Option<&Interval> {
        match &self.last.as_ref()?.said {
            Said::ProbeEvent(Event::Record(interval)) => Some(interval),
            _ => None,
        }
    }
}

impl LabelCounts {
    /// Counts the seconds that [start, end) touches, each once. Records of streams with equal
    /// labels come in any order within a second or two; what comes later counts no more.
    fn count_seconds(&mut self, start_ns: i64, end_ns: i64, errored: bool) {
        if !errored {
            return;
        }
        let first = start_ns.div_euclid(SECOND).max(self.looked_to_s);
        let end = (end_ns - 1).div_euclid(SECOND) + 1;
        if end > first {
            self.sums.errored_seconds += (end - first).unsigned_abs();
            self.looked_to_s = end;
        }
    }
}

/// How many series are in which state.
pub(crate) fn count_states(states: impl IntoIterator<Item = SeriesNow>) -> StateCounts {
    let mut counts = StateCounts::default();
    for SeriesNow { state, doubtful } in states {
        *match state {
            ReadingState::Down => &mut counts.down,
            ReadingState::Breach => &mut counts.breach,
            ReadingState::Degraded => &mut counts.degraded,
            ReadingState::NoData => &mut counts.no_data,
            ReadingState::Ok => &mut counts.ok,
            ReadingState::Excluded => &mut counts.excluded,
        } += 1;
        counts.doubtful += u64::from(doubtful);
    }
    counts
}

fn metric_labels(labels: &SeriesLabels) -> MetricLabels {
    MetricLabels {
        target: labels.target.clone(),
        class: labels.class.clone(),
        module: labels.module.clone(),
    }
}

fn reading(stream: &StreamLive, utc_offset_ns: i64) -> Option<LiveReading> {
    let interval = stream.interval()?;
    let at = |ns: i64| UtcInstant::from_ns(ns - utc_offset_ns);
    let columns = READING.iter().map(|&metric| {
        let mut column = DatumColumn::new(metric.name(), metric.unit());
        column.push(datum_of(interval, metric));
        column
    });
    Some(LiveReading {
        id: stream.series?,
        from: at(interval.start_ns),
        to: at(interval.end_ns),
        columns: columns.collect(),
    })
}

fn datum_of(interval: &Interval, metric: ReadingMetric) -> Datum<f64> {
    let Interval { counters, caveats, .. } = interval;
    let value = |value: f64, n: u64| Datum::Value { value, n, caveats: *caveats };
    match metric {
        ReadingMetric::LossRatio => match counters.loss_ratio() {
            Some(ratio) => value(ratio, counters.sent),
            None => Datum::NoData("nothing was sent".to_owned()),
        },
        ReadingMetric::Sent => value(counters.sent as f64, counters.sent),
        ReadingMetric::Lost => value(counters.lost as f64, counters.sent),
        quantile => {
            let q = quantile.quantile().unwrap_or(0.5);
            Datum::quantile(&interval.rtt_net, q, *caveats)
        }
    }
}

fn phase_of(state: UnitState) -> UnitPhase {
    match state {
        UnitState::Blocked => UnitPhase::Blocked,
        UnitState::Starting => UnitPhase::Starting,
        UnitState::Running => UnitPhase::Running,
        UnitState::Stopping => UnitPhase::Stopping,
        UnitState::Waiting => UnitPhase::Waiting,
        UnitState::Stuck => UnitPhase::Stuck,
        UnitState::Done => UnitPhase::Done,
        UnitState::Refused => UnitPhase::Refused,
    }
}

/// Statistics of a reading in the stream.
const READING: [ReadingMetric; 7] = [
    ReadingMetric::Min,
    ReadingMetric::P50,
    ReadingMetric::P99,
    ReadingMetric::Max,
    ReadingMetric::LossRatio,
    ReadingMetric::Sent,
    ReadingMetric::Lost,
];
/// For a record beyond three of its intervals, ns.
const GRACE_NS: i64 = 5 * SECOND;
/// Without any answer for so long, a stream is down, ns.
const DOWN_NS: i64 = 10 * SECOND;

#[cfg(test)]
mod tests;
