//! What units measure, as rows and events of the store.
//!
//! [`RowMaker`] decides, purely; [`thread`] has the threads and the clock.

pub mod settings;
pub mod thread;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::json;
use sonde_results::rtt_run::RttPoint;
use sonde_results::units::format_dscp;
use sonde_results::{Interval, StreamInfo, ToUtc as _};
use sonde_run::probe::Event;
use sonde_run::rtt;
use sonde_store::series::{MODULE_FLOW, MODULE_INTERFACE, MODULE_RTT, MODULE_STAMP};
use sonde_store::{
    EventSeverity, FlowRow, InterfaceRow, IntervalRow, RttRow, SeriesId, SeriesLabels, StoreError,
    StoredEvent,
};

use crate::hub::{Report, Said};
use crate::interfaces::InterfaceInterval;
use crate::plan::UnitId;
use crate::supervise::{Gap, Notice};

/// What the rows of a store are made into.
pub trait Registry {
    /// The series with these labels, in their order. What is new is registered at once.
    ///
    /// # Errors
    /// The store cannot register them.
    fn series(&mut self, labels: &[SeriesLabels]) -> Result<Vec<SeriesId>, StoreError>;

    /// Keeps an event.
    ///
    /// # Errors
    /// The store cannot keep it.
    fn event(&mut self, event: StoredEvent) -> Result<(), StoreError>;
}

/// Makes rows of reports.
pub struct RowMaker {
    station: String,
    /// The series of a probe's streams, by their identifiers.
    streams: BTreeMap<UnitId, Vec<SeriesId>>,
    /// Rows that were made and not taken.
    intervals: Vec<IntervalRow>,
    flows: Vec<FlowRow>,
    rtt: Vec<RttRow>,
    interfaces: Vec<InterfaceRow>,
    /// The interfaces of units that watch round trips, by their indices.
    points: BTreeMap<UnitId, Vec<RttPoint>>,
    /// Records of streams of which nothing is known: none, while the station works.
    unknown: u64,
}

impl RowMaker {
    /// For the station of that name.
    pub fn new(station: &str) -> RowMaker {
        RowMaker {
            station: station.to_owned(),
            streams: BTreeMap::new(),
            intervals: Vec::new(),
            flows: Vec::new(),
            rtt: Vec::new(),
            interfaces: Vec::new(),
            points: BTreeMap::new(),
            unknown: 0,
        }
    }

    /// Registers together what reports have that is new: their rows find it. A first start would do a
    /// transaction for each unit else.
    ///
    /// # Errors
    /// The store cannot register them.
    pub fn register<'a>(
        &self,
        reports: impl IntoIterator<Item = &'a Report>,
        registry: &mut dyn Registry,
    ) -> Result<(), StoreError> {
        let all: Vec<SeriesLabels> = reports.into_iter().flat_map(|r| self.labels_in(r)).collect();
        if !all.is_empty() {
            registry.series(&all)?;
        }
        Ok(())
    }

    /// The labels of the series that a report may begin.
    fn labels_in(&self, report: &Report) -> Vec<SeriesLabels> {
        let unit = &report.unit;
        match &report.said {
            Said::Probe(about) => labels_of(&self.station, unit, &about.streams),
            Said::ProbeEvent(Event::Added(streams)) => labels_of(&self.station, unit, streams),
            Said::Flows(_) => vec![self.labels_of_unit(unit, MODULE_FLOW)],
            Said::RttEvents(_) => vec![self.labels_of_unit(unit, MODULE_RTT)],
            Said::Interfaces(all) => all.iter().map(|i| self.labels_of_interface(i)).collect(),
            _ => Vec::new(),
        }
    }

    /// Takes a report. Its times are `utc_offset_ns` ahead of UTC; it is `now_ns` since 1970 UTC.
    ///
    /// # Errors
    /// The store cannot register a series or keep an event: the report is lost.
    pub fn take(
        &mut self,
        report: &Report,
        (utc_offset_ns, now_ns): (i64, i64),
        registry: &mut dyn Registry,
    ) -> Result<(), StoreError> {
        let unit = &report.unit;
        match &report.said {
            Said::Probe(about) => {
                self.streams.insert(unit.clone(), Vec::new());
                self.add_streams(unit, &about.streams, registry)?;
            }
            Said::ProbeEvent(Event::Added(streams)) => self.add_streams(unit, streams, registry)?,
            Said::ProbeEvent(Event::Record(record)) => self.interval(unit, record, utc_offset_ns),
            Said::Flows(flows) => {
                let exporter = one(registry, self.labels_of_unit(unit, MODULE_FLOW))?;
                self.flows.extend(flows.iter().map(|flow| {
                    let mut flow = flow.clone();
                    flow.turn_to_utc(utc_offset_ns);
                    FlowRow::new(exporter, &flow)
                }));
            }
            Said::Rtt(about) => {
                self.points.insert(unit.clone(), about.run.points.clone());
            }
            Said::RttEvents(events) => {
                let series = one(registry, self.labels_of_unit(unit, MODULE_RTT))?;
                events
                    .iter()
                    .for_each(|event| self.round_trips(unit, series, event, utc_offset_ns));
            }
            Said::Interfaces(all) => {
                let labels: Vec<SeriesLabels> =
                    all.iter().map(|i| self.labels_of_interface(i)).collect();
                let series = registry.series(&labels)?;
                self.interfaces.extend(all.iter().zip(series).map(|(interval, series)| {
                    InterfaceRow {
                        series,
                        start_ns: interval.start_ns,
                        length_ns: interval.length_ns,
                        intervals: 1,
                        receive: interval.receive,
                        transmit: interval.transmit,
                        queue_dropped: interval.queue_dropped,
                        speed_bps: interval.speed_bps,
                    }
                }));
            }
            Said::Lost(n) => {
                let title = format!("{unit}: {n} records found no room and are lost");
                registry.event(self.event("records_lost", now_ns, title))?;
            }
            Said::Gap(gap) => registry.event(self.of_gap(gap, utc_offset_ns))?,
            Said::Notice(notice) => registry.event(self.of_notice(notice, now_ns))?,
            // Of targets that are left out, the judge keeps the events: they last.
            Said::ProbeEvent(
                Event::Sample(_) | Event::Undelivered(_) | Event::Ended(_) | Event::LeftOut(_),
            )
            | Said::Reflector(_)
            | Said::Reflected(_)
            | Said::Flow
            | Said::FlowSources(_)
            | Said::Serves(_)
            | Said::Controller(_)
            | Said::Ended { .. } => {}
        }
        Ok(())
    }

    /// The interval rows that were made since the last call.
    pub fn take_intervals(&mut self) -> Vec<IntervalRow> {
        std::mem::take(&mut self.intervals)
    }

    /// The flow rows that were made since the last call.
    pub fn take_flows(&mut self) -> Vec<FlowRow> {
        std::mem::take(&mut self.flows)
    }

    /// The rows of round trips that were made since the last call.
    pub fn take_rtt(&mut self) -> Vec<RttRow> {
        std::mem::take(&mut self.rtt)
    }

    /// The rows of interfaces that were made since the last call.
    pub fn take_interfaces(&mut self) -> Vec<InterfaceRow> {
        std::mem::take(&mut self.interfaces)
    }

    /// Records of streams of which nothing is known.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// The labels of all that a unit measures that has one series.
    fn labels_of_unit(&self, unit: &UnitId, module: &str) -> SeriesLabels {
        SeriesLabels {
            station: self.station.clone(),
            target: unit.to_string(),
            module: module.into(),
            free: BTreeMap::from([("unit".to_owned(), unit.to_string())]),
            ..SeriesLabels::default()
        }
    }

    fn labels_of_interface(&self, interval: &InterfaceInterval) -> SeriesLabels {
        let netns = interval.netns.iter().map(|netns| ("netns".to_owned(), netns.clone()));
        SeriesLabels {
            station: self.station.clone(),
            target: interval.interface.clone(),
            module: MODULE_INTERFACE.into(),
            free: netns.collect(),
            ..SeriesLabels::default()
        }
    }

    /// Groups of intervals are kept; samples and flows are for those who read records.
    fn round_trips(
        &mut self,
        unit: &UnitId,
        series: SeriesId,
        event: &rtt::Event,
        utc_offset_ns: i64,
    ) {
        let points = self.points.entry(unit.clone()).or_default();
        match event {
            rtt::Event::Interval(interval) => {
                let name = |index: u8| match points.get(usize::from(index)) {
                    Some(point) => point.name.clone(),
                    None => index.to_string(),
                };
                self.rtt.extend(interval.groups.iter().map(|group| {
                    let mut row = RttRow::new(series, group, interval.caveats, &name);
                    row.start_ns -= utc_offset_ns;
                    row
                }));
            }
            rtt::Event::Point(point) => points.push(point.clone()),
            rtt::Event::PointChanged(index, point) => {
                if let Some(known) = points.get_mut(*index) {
                    known.clone_from(point);
                }
            }
            rtt::Event::Sample(_) | rtt::Event::Flow(_) | rtt::Event::UtcOffset(_) => {}
        }
    }

    /// An event of this station, which says so: others may keep theirs in the same ClickHouse.
    fn event(&self, kind: &str, now_ns: i64, title: String) -> StoredEvent {
        StoredEvent {
            kind: kind.into(),
            severity: EventSeverity::Warning,
            series: None,
            begin_ns: now_ns,
            end_ns: Some(now_ns),
            title,
            evidence: json!({"station": self.station}),
        }
    }

    fn of_gap(&self, gap: &Gap, utc_offset_ns: i64) -> StoredEvent {
        let (from, to) = (gap.from.as_nanos() - utc_offset_ns, gap.to.as_nanos() - utc_offset_ns);
        let title = format!("{} measured nothing: {}", gap.unit, gap.why);
        let evidence = json!({"station": self.station, "unit": gap.unit.as_str(), "why": gap.why});
        StoredEvent { end_ns: Some(to), evidence, ..self.event("gap", from, title) }
    }

    fn of_notice(&self, notice: &Notice, now_ns: i64) -> StoredEvent {
        let (kind, severity) = match notice {
            Notice::Failed(..) => ("unit_failed", EventSeverity::Warning),
            Notice::Refused(..) => ("unit_refused", EventSeverity::Critical),
            Notice::Stuck(_) => ("unit_stuck", EventSeverity::Critical),
            Notice::Recovered(_) => ("unit_recovered", EventSeverity::Info),
        };
        let evidence = json!({"station": self.station, "unit": notice.unit().as_str()});
        StoredEvent { severity, evidence, ..self.event(kind, now_ns, notice.to_string()) }
    }

    fn add_streams(
        &mut self,
        unit: &UnitId,
        streams: &[StreamInfo],
        registry: &mut dyn Registry,
    ) -> Result<(), StoreError> {
        let ids = registry.series(&labels_of(&self.station, unit, streams))?;
        self.streams.entry(unit.clone()).or_default().extend(ids);
        Ok(())
    }

    fn interval(&mut self, unit: &UnitId, record: &Interval, utc_offset_ns: i64) {
        let streams = self.streams.get(unit);
        let Some(&series) = streams.and_then(|all| all.get(record.stream as usize)) else {
            self.unknown += 1;
            return;
        };
        let mut row = IntervalRow::new(series, record);
        row.start_ns -= utc_offset_ns;
        self.intervals.push(row);
    }
}

/// The station that keeps an event, where the event says so.
pub(crate) fn station_of(event: &StoredEvent) -> Option<&str> {
    let evidence = &event.evidence;
    evidence["labels"]["station"].as_str().or_else(|| evidence["station"].as_str())
}

fn one(registry: &mut dyn Registry, labels: SeriesLabels) -> Result<SeriesId, StoreError> {
    let ids = registry.series(std::slice::from_ref(&labels))?;
    ids.first().copied().ok_or(StoreError::UnknownSeries(0))
}

/// The labels of a probe's streams. A port or address is one only where it tells streams apart: it
/// may be another one after a restart, and the series goes on.
pub(crate) fn labels_of(station: &str, unit: &UnitId, streams: &[StreamInfo]) -> Vec<SeriesLabels> {
    let mut alike: BTreeMap<(&str, u8), Vec<&StreamInfo>> = BTreeMap::new();
    for info in streams {
        alike.entry((&info.target, info.dscp)).or_default().push(info);
    }
    let labels = |info: &StreamInfo| {
        let alike = &alike[&(info.target.as_str(), info.dscp)];
        let differ = |of: &dyn Fn(&StreamInfo) -> IpAddr| alike.iter().any(|a| of(a) != of(info));
        let with_address = differ(&|a| a.destination.ip());
        let same_address = |a: &&&StreamInfo| a.destination.ip() == info.destination.ip();
        let with_ports = alike.iter().filter(same_address).count() > 1;
        let port = |port: u16| if with_ports { port } else { 0 };
        let mut free = BTreeMap::from([("unit".to_owned(), unit.to_string())]);
        if with_address {
            free.insert("address".into(), info.destination.ip().to_string());
        }
        SeriesLabels {
            station: station.to_owned(),
            target: info.target.clone(),
            class: format_dscp(info.dscp),
            module: MODULE_STAMP.into(),
            source_port: port(info.source.port()),
            destination_port: port(info.destination.port()),
            free,
            ..SeriesLabels::default()
        }
    };
    streams.iter().map(labels).collect()
}

#[cfg(test)]
mod tests;
