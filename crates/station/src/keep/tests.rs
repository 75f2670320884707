//! Reports as rows.

use sonde_results::caveat::CaveatSet;
use sonde_results::rtt::{Coverage, GroupKey, RttGroup};
use sonde_results::rtt_run::RttRunConfig;
use sonde_results::{Caveat, Hist, RttRun, RunHeader};
use sonde_store::InterfaceSide;
use sonde_wire::Time;

use super::*;

/// What was registered and kept.
#[derive(Default)]
struct Kept {
    series: Vec<SeriesLabels>,
    events: Vec<StoredEvent>,
    /// Calls that registered something.
    transactions: usize,
}

impl Registry for Kept {
    fn series(&mut self, labels: &[SeriesLabels]) -> Result<Vec<SeriesId>, StoreError> {
        let before = self.series.len();
        let mut number = |labels: &SeriesLabels| {
            let at = self.series.iter().position(|known| known == labels).unwrap_or_else(|| {
                self.series.push(labels.clone());
                self.series.len() - 1
            });
            SeriesId(at as u32)
        };
        let ids = labels.iter().map(&mut number).collect();
        self.transactions += usize::from(self.series.len() > before);
        Ok(ids)
    }

    fn event(&mut self, event: StoredEvent) -> Result<(), StoreError> {
        self.events.push(event);
        Ok(())
    }
}

#[test]
fn counters_of_an_interface_have_its_name_and_namespace() {
    use crate::interfaces::InterfaceInterval;
    let side = |octets| InterfaceSide { octets, packets: 2, dropped: 1, errors: 0 };
    let of = |netns: Option<&str>| InterfaceInterval {
        netns: netns.map(String::from),
        interface: "eth0".into(),
        start_ns: 70,
        length_ns: 10,
        receive: side(100),
        transmit: side(200),
        queue_dropped: 3,
        speed_bps: 0,
    };
    let said = Said::Interfaces(vec![of(None), of(Some("router"))]);
    let report = Report { unit: UnitId::new("interfaces"), said };
    let (mut rows, mut kept) = (RowMaker::new("ber"), Kept::default());
    rows.register([&report], &mut kept).unwrap();
    rows.take(&report, (37, 500), &mut kept).unwrap();
    assert_eq!(kept.transactions, 1, "they are registered together");
    let labels = |l: &SeriesLabels| (l.target.clone(), l.module.clone(), l.get("netns"));
    let name = |netns: Option<&str>| ("eth0".into(), "interface".into(), netns.map(String::from));
    let found: Vec<_> = kept.series.iter().map(labels).collect();
    assert_eq!(found, [name(None), name(Some("router"))]);
    let row = |series| InterfaceRow {
        series: SeriesId(series),
        // The station stamps them in UTC.
        start_ns: 70,
        length_ns: 10,
        intervals: 1,
        receive: side(100),
        transmit: side(200),
        queue_dropped: 3,
        speed_bps: 0,
    };
    assert_eq!(rows.take_interfaces(), [row(0), row(1)]);
    assert_eq!(rows.take_interfaces(), []);
}

fn stream(target: &str, dscp: u8, source_port: u16, address: &str) -> StreamInfo {
    StreamInfo {
        target: target.into(),
        source: format!("192.0.2.1:{source_port}").parse().unwrap(),
        destination: format!("{address}:862").parse().unwrap(),
        dscp,
        ssid: 0,
        ip_length: 72,
        period_ns: 1_000_000,
    }
}

fn labels(streams: &[StreamInfo]) -> Vec<(String, String, u16, Option<String>)> {
    let of = |l: SeriesLabels| (l.target, l.class, l.source_port, l.free.get("address").cloned());
    labels_of("ber", &UnitId::new("probe.a"), streams).into_iter().map(of).collect()
}

#[test]
fn ports_and_addresses_are_labels_only_where_they_tell_streams_apart() {
    let one = |target: &str, class: &str| (target.to_owned(), class.to_owned(), 0, None);
    let alone = [stream("muc", 0, 62_000, "192.0.2.9"), stream("muc", 46, 62_001, "192.0.2.9")];
    assert_eq!(labels(&alone), [one("muc", "BE"), one("muc", "EF")]);
    let paths = [stream("muc", 0, 50_001, "192.0.2.9"), stream("muc", 0, 50_002, "192.0.2.9")];
    let port = |port| ("muc".to_owned(), "BE".to_owned(), port, None);
    assert_eq!(labels(&paths), [port(50_001), port(50_002)]);
    let hosts = [stream("muc", 0, 62_000, "192.0.2.9"), stream("muc", 0, 62_000, "192.0.2.10")];
    let host = |address: &str| ("muc".to_owned(), "BE".to_owned(), 0, Some(address.to_owned()));
    assert_eq!(labels(&hosts), [host("192.0.2.9"), host("192.0.2.10")]);
}

fn report(said: Said) -> Report {
    Report { unit: UnitId::new("probe.a"), said }
}

#[test]
fn what_is_new_in_one_turn_is_registered_in_one_transaction() {
    let (mut rows, mut kept) = (RowMaker::new("ber"), Kept::default());
    let added = |unit: &str, streams: Vec<StreamInfo>| Report {
        unit: UnitId::new(unit),
        said: Said::ProbeEvent(Event::Added(streams)),
    };
    let reports = [
        added("probe.a", (0..300).map(|i| stream("muc", 0, i, "192.0.2.9")).collect()),
        added("probe.b", vec![stream("fra", 0, 1, "192.0.2.8")]),
        Report { unit: UnitId::new("flow.a"), said: Said::Flows(Vec::new()) },
        Report { unit: UnitId::new("rtt.a"), said: Said::RttEvents(Vec::new()) },
    ];
    for turn in 0..2 {
        rows.register(&reports, &mut kept).unwrap();
        reports.iter().for_each(|report| rows.take(report, (0, 0), &mut kept).unwrap());
        assert_eq!((kept.series.len(), kept.transactions), (303, 1), "turn {turn}");
    }
    rows.register(&[report(Said::Lost(3))], &mut kept).unwrap();
    assert_eq!(kept.transactions, 1);
}

#[test]
fn records_are_of_the_series_of_their_stream_and_have_utc() {
    let (mut rows, mut kept) = (RowMaker::new("ber"), Kept::default());
    let streams = vec![stream("muc", 0, 1, "192.0.2.9"), stream("fra", 0, 2, "192.0.2.8")];
    let added = report(Said::ProbeEvent(Event::Added(streams)));
    rows.take(&added, (37, 0), &mut kept).unwrap();
    let record = |stream, start_ns| {
        let record = Interval { start_ns, end_ns: start_ns + 10, ..Interval::empty(stream) };
        report(Said::ProbeEvent(Event::Record(Box::new(record))))
    };
    for said in [record(1, 1_000), record(0, 2_000), record(2, 3_000)] {
        rows.take(&said, (37, 0), &mut kept).unwrap();
    }
    let made = rows.take_intervals();
    let of: Vec<(&str, i64)> = made
        .iter()
        .map(|row| (kept.series[row.series.0 as usize].target.as_str(), row.start_ns))
        .collect();
    assert_eq!(of, [("fra", 963), ("muc", 1_963)]);
    assert_eq!(rows.unknown(), 1);
    assert!(rows.take_intervals().is_empty());
}

#[test]
fn groups_of_round_trips_are_rows_of_their_unit_by_the_names_of_its_interfaces() {
    let (mut rows, mut kept) = (RowMaker::new("ber"), Kept::default());
    let hist = |values: &[i64]| {
        let mut hist = Hist::default();
        values.iter().for_each(|&value| hist.add(value));
        hist
    };
    let point = |name: &str| RttPoint { name: name.into(), ..RttPoint::default() };
    let run = RttRun {
        header: RunHeader::default(),
        config: RttRunConfig::default(),
        points: vec![point("eth0")],
        groups: Vec::new(),
        coverage: Coverage::default(),
        caveats: CaveatSet::default(),
    };
    let about = rtt::About { run, group_of: std::sync::Arc::new(|_| None) };
    let unit = UnitId::new("rtt.uplink");
    let said = |said| Report { unit: unit.clone(), said };
    rows.take(&said(Said::Rtt(Box::new(about))), (37, 0), &mut kept).unwrap();
    let of = |key| RttGroup {
        key,
        start_ns: 1_037,
        end_ns: 2_037,
        clean: hist(&[5_000, 6_000, 9_000]),
        recovery: hist(&[70_000]),
        delayed_ack: hist(&[40_000_000, 41_000_000]),
    };
    let mut caveats = CaveatSet::default();
    caveats.insert(Caveat::FlowsUntracked);
    let interval = rtt::RttInterval {
        groups: (0..3).map(GroupKey::Interface).map(of).collect(),
        caveats,
        ..rtt::RttInterval::default()
    };
    let events = vec![
        rtt::Event::Point(point("eth1")),
        rtt::Event::PointChanged(0, point("wan0")),
        rtt::Event::Interval(interval),
    ];
    rows.take(&said(Said::RttEvents(events)), (37, 0), &mut kept).unwrap();
    let made = rows.take_rtt();
    let names: Vec<&str> = made.iter().map(|row| &*row.group).collect();
    assert_eq!(names, ["interface wan0", "interface eth1", "interface 2"]);
    let row = &made[0];
    assert_eq!((row.start_ns, row.length_ns, row.intervals), (1_000, 1_000, 1));
    let counts = [&row.clean, &row.recovery, &row.delayed_ack].map(|hist| hist.head().count);
    assert_eq!(counts, [3, 1, 2]);
    assert_eq!(row.caveats, 1 << Caveat::FlowsUntracked as u8);
    let labels = &kept.series[row.series.0 as usize];
    assert_eq!((&*labels.target, &*labels.module), ("rtt.uplink", "rtt"));
    assert!(rows.take_rtt().is_empty());
}

#[test]
fn a_gap_is_an_event_with_its_times_in_utc() {
    let (mut rows, mut kept) = (RowMaker::new("ber"), Kept::default());
    let unit = UnitId::new("probe.a");
    let gap = Gap {
        unit: unit.clone(),
        from: Time::from_nanos(137),
        to: Time::from_nanos(237),
        why: "no such interface".into(),
    };
    rows.take(&report(Said::Gap(gap)), (37, 500), &mut kept).unwrap();
    let failed = Notice::Failed(unit, "no such interface".into());
    rows.take(&report(Said::Notice(failed)), (37, 500), &mut kept).unwrap();
    let of: Vec<_> = kept.events.iter().map(|e| (e.kind.as_str(), e.begin_ns, e.end_ns)).collect();
    assert_eq!(of, [("gap", 100, Some(200)), ("unit_failed", 500, Some(500))]);
    // Others may keep theirs in the same ClickHouse.
    let stations: Vec<_> = kept.events.iter().map(station_of).collect();
    assert_eq!(stations, [Some("ber"), Some("ber")]);
    assert_eq!(kept.events[0].title, "probe.a measured nothing: no such interface");
}
