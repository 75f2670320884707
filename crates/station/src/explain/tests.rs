//! Explanations of faults in a store that was made up, record by record.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use sonde_meter::explain::{CauseKind, ExplainGrade};
use sonde_results::sla::LossDirection;
use sonde_results::units::SECOND;
use sonde_results::{Caveat, Hist, Interval};
use sonde_store::series::{MODULE_FLOW, MODULE_INTERFACE, MODULE_RTT, MODULE_STAMP};
use sonde_store::{
    Batch, EventSeverity, FlowRow, HistBlob, InterfaceRow, InterfaceSide, IntervalRow, Rows,
    RttRow, SeriesLabels, Store, StoreOptions, Writer as _,
};

use super::kept::KeptExplanation;
use super::paths::PathWay;
use super::*;
use crate::alert::testing::Folder;
use crate::plan::UnitId;

/// 2026-11-26 00:00 UTC, ns since 1970.
const BASE: i64 = 1_795_651_200 * SECOND;
/// The fault begins here, and lasts to the end.
const FAULT: i64 = BASE + 600 * SECOND;
const END: i64 = FAULT + 30 * SECOND;

struct Bed {
    _folder: Folder,
    store: Store,
    /// Who measures what is added.
    station: &'static str,
    book: PathBook,
    rng: fastrand::Rng,
    rows: Vec<IntervalRow>,
    rtt: Vec<RttRow>,
    flows: Vec<FlowRow>,
    interfaces: Vec<InterfaceRow>,
}

/// What a second of a stream is like.
#[derive(Clone, Copy, Default)]
struct Second {
    loss: f64,
    back: bool,
    delay_ns: i64,
    late: bool,
}

impl Bed {
    fn new(name: &str, seed: u64) -> Bed {
        let folder = Folder::new(name);
        let store = Store::open(&folder.0, StoreOptions::default()).unwrap();
        Bed {
            _folder: folder,
            store,
            station: "ber",
            book: PathBook::default(),
            rng: fastrand::Rng::with_seed(seed),
            rows: Vec::new(),
            rtt: Vec::new(),
            flows: Vec::new(),
            interfaces: Vec::new(),
        }
    }

    fn series(&self, unit: &str, target: &str, class: &str, module: &str, port: u16) -> SeriesId {
        let labels = SeriesLabels {
            station: self.station.into(),
            target: target.into(),
            class: class.into(),
            module: module.into(),
            source_port: port,
            destination_port: if port == 0 { 0 } else { 862 },
            free: BTreeMap::from([("unit".to_owned(), unit.to_owned())]),
            ..SeriesLabels::default()
        };
        self.store.register(&labels).unwrap()
    }

    fn probe(&mut self, target: &str, class: &str, port: u16, of: impl Fn(bool) -> Second) {
        let series = self.series("probe.core", target, class, MODULE_STAMP, port);
        for at in (BASE..END).step_by(SECOND as usize) {
            let second = of(at >= FAULT);
            let lost = (0..100).filter(|_| self.rng.f64() < 0.002 + second.loss).count() as u64;
            let mut record = Interval { start_ns: at, end_ns: at + SECOND, ..Interval::empty(0) };
            record.counters.sent = 100;
            record.counters.lost = lost;
            record.counters.received = 100 - lost;
            record.counters.lost_forward = Some(if second.back { 0 } else { lost });
            record.counters.lost_backward = Some(if second.back { lost } else { 0 });
            record.counters.sent_late = if second.late { 30 } else { 0 };
            for _ in 0..100 - lost {
                record.rtt_net.add(1_000_000 + second.delay_ns + self.rng.i64(0..200_000));
            }
            if second.late {
                record.caveats.insert(Caveat::SenderLate);
            }
            self.rows.push(IntervalRow::new(series, &record));
        }
    }

    /// Passive round trips to a prefix.
    fn traffic(&mut self, prefix: &str, of: impl Fn(bool) -> i64) {
        let series = self.series("rtt.up", "rtt.up", "", MODULE_RTT, 0);
        for at in (BASE..END).step_by(SECOND as usize) {
            let mut hist = Hist::default();
            (0..50).for_each(|_| {
                hist.add(3_000_000 + of(at >= FAULT) + self.rng.i64(0..500_000));
            });
            self.rtt.push(RttRow {
                series,
                group: prefix.into(),
                start_ns: at,
                length_ns: SECOND,
                intervals: 1,
                clean: HistBlob::new(&hist),
                ..RttRow::default()
            });
        }
    }

    fn flow(&mut self, source: &str, (from, to): (i64, i64), bytes: u64) {
        let exporter = self.series("flow.up", "flow.up", "", MODULE_FLOW, 0);
        let octets = |text: &str| sonde_store::flow::mapped(text.parse().unwrap());
        let mut row = FlowRow {
            exporter,
            source: octets(source),
            destination: octets("192.0.2.9"),
            source_port: 50_000,
            destination_port: 5_201,
            protocol: 17,
            last_ns: to,
            duration_ns: to - from,
            ..FlowRow::default()
        };
        row.forward.bytes = bytes;
        row.forward.packets = bytes / 1_000;
        self.flows.push(row);
    }

    /// An interface of 10 Mbit/s, by samples of 10 s: octets and drops of each.
    fn interface(&mut self, name: &str, of: impl Fn(bool) -> (u64, u64)) {
        let labels = SeriesLabels {
            station: "ber".into(),
            target: name.into(),
            module: MODULE_INTERFACE.into(),
            ..SeriesLabels::default()
        };
        let series = self.store.register(&labels).unwrap();
        for start_ns in (BASE..END).step_by(10 * SECOND as usize) {
            let (octets, queue_dropped) = of(start_ns >= FAULT);
            let transmit = InterfaceSide { octets, ..InterfaceSide::default() };
            self.interfaces.push(InterfaceRow {
                series,
                start_ns,
                length_ns: 10 * SECOND,
                intervals: 1,
                transmit,
                queue_dropped,
                speed_bps: 10_000_000,
                ..InterfaceRow::default()
            });
        }
    }

    fn explain(&mut self, event: &StoredEvent) -> KeptExplanation {
        let mut writer = self.store.writer().unwrap();
        let rows = [
            Rows::Intervals(std::mem::take(&mut self.rows)),
            Rows::Rtt(std::mem::take(&mut self.rtt)),
            Rows::Flows(std::mem::take(&mut self.flows)),
            Rows::Interfaces(std::mem::take(&mut self.interfaces)),
        ];
        for (number, rows) in (1..).zip(rows) {
            let batch = Batch { writer: "test".into(), number, rows: Arc::new(rows) };
            writer.append(&batch).unwrap();
        }
        writer.sync().unwrap();
        let reader = self.store.reader();
        let series = reader.series().unwrap();
        let limit = Limit::default();
        let input = ExplainInput {
            reader: &reader,
            series: &series,
            station: "ber",
            paths: &self.book,
            limit: &limit,
            now_ns: END,
        };
        explain_event(&input, event).unwrap()
    }
}

/// A breach of a loss of 1 %, or of what `window` says.
fn breach(target: &str, class: &str, window: Value, metric: &str) -> StoredEvent {
    StoredEvent {
        kind: "breach".into(),
        severity: EventSeverity::Critical,
        series: None,
        begin_ns: FAULT,
        end_ns: None,
        title: "a breach".into(),
        evidence: json!({
            "labels": {
                "station": "ber", "unit": "probe.core", "target": target, "class": class,
                "direction": "round_trip",
            },
            "metric": {"kind": metric},
            "window": window,
        }),
    }
}

fn loss(target: &str, class: &str) -> StoredEvent {
    let window = json!({
        "start_ns": FAULT, "end_ns": FAULT + 5 * SECOND, "unit": "ratio", "bound": 0.01,
    });
    breach(target, class, window, "loss_ratio")
}

/// As where stations share a ClickHouse.
#[test]
fn series_are_found_by_number_and_are_of_the_station_of_the_event() {
    let subject = ExplainSubject::of(&loss("muc", "BE")).unwrap();
    let of = |station: &str, unit: &str| SeriesLabels {
        station: station.into(),
        target: "muc".into(),
        class: "BE".into(),
        module: MODULE_STAMP.into(),
        free: BTreeMap::from([("unit".to_owned(), unit.to_owned())]),
        ..SeriesLabels::default()
    };
    let all = [("muc", "probe.core"), ("ber", "probe.core"), ("ber", "probe.edge")];
    let numbers = [1, (3 << 20) + 7, 5 << 20].map(SeriesId);
    let all: Vec<Series> = numbers
        .into_iter()
        .zip(all)
        .map(|(id, (station, unit))| Series { id, labels: of(station, unit) })
        .collect();
    let fits = |id| find_labels(&all, id).map(|labels| subject.fits(labels));
    assert_eq!(numbers.map(fits), [Some(false), Some(true), Some(false)]);
    assert_eq!([0, 2, 3 << 20, u32::MAX].map(|id| fits(SeriesId(id))), [None; 4]);
}

#[test]
fn what_another_station_saw_changes_no_explanation() {
    let found = |others: bool| {
        let name = format!("explain-stations-{others}");
        let mut bed = Bed::new(&name, 7);
        for target in ["muc", "ham"] {
            for class in ["BE", "EF"] {
                bed.probe(target, class, 0, |fault| Second {
                    loss: if fault && target == "muc" && class == "EF" { 0.15 } else { 0.0 },
                    ..Second::default()
                });
            }
        }
        bed.traffic("192.0.2.0/24", |_| 0);
        bed.flow("10.0.0.1", (BASE, END), 8_000_000);
        if others {
            // Another one loses on all of the same name, and its flow grows at the same time.
            bed.station = "fra";
            for (target, class) in [("muc", "BE"), ("muc", "EF"), ("ham", "BE"), ("ham", "EF")] {
                bed.probe(target, class, 0, |fault| Second {
                    loss: if fault { 0.6 } else { 0.0 },
                    late: fault,
                    ..Second::default()
                });
            }
            bed.traffic("192.0.2.0/24", |fault| if fault { 90_000_000 } else { 0 });
            bed.flow("10.0.0.2", (FAULT, END), 400_000_000);
            for (kind, labels) in
                [("route_change", json!({"station": "fra"})), ("gap", Value::Null)]
            {
                let event = StoredEvent {
                    kind: kind.into(),
                    end_ns: Some(FAULT),
                    evidence: json!({"station": "fra", "labels": labels, "targets": ["muc"]}),
                    ..loss("muc", "EF")
                };
                bed.store.add_event(&event).unwrap();
            }
        }
        bed.explain(&loss("muc", "EF"))
    };
    let alone = found(false);
    assert_eq!(alone.causes[0].names, ["class EF on target muc"], "{alone:?}");
    assert_eq!(found(true), alone);
}

/// What this host knows of its interfaces says nothing of another station's.
#[test]
fn an_event_of_another_station_is_explained_without_the_ways_of_this_one() {
    let mut bed = Bed::new("explain-elsewhere", 8);
    bed.station = "fra";
    let unit = UnitId::new("probe.core");
    let mut ways = BTreeMap::new();
    for (target, address) in [("muc", "192.0.2.9"), ("ham", "192.0.2.10")] {
        let address: IpAddr = address.parse().unwrap();
        let info = sonde_results::StreamInfo {
            target: target.into(),
            source: "192.0.2.1:1".parse().unwrap(),
            destination: (address, 862).into(),
            dscp: 0,
            ssid: 0,
            ip_length: 72,
            period_ns: 1,
        };
        bed.book.streams(("ber", &unit), &[info], false, 0);
        let interface = if target == "muc" { "eth0" } else { "eth1" }.to_owned();
        ways.insert(address, PathWay { interface, next_hop: address });
        bed.probe(target, "BE", 0, |fault| Second {
            loss: if fault && target == "muc" { 0.1 } else { 0.0 },
            ..Second::default()
        });
    }
    bed.book.look("ber", &ways, 0);
    let mut event = loss("muc", "BE");
    event.evidence["labels"]["station"] = json!("fra");
    let found = bed.explain(&event);
    assert_eq!(found.causes[0].names, ["target muc"], "{found:?}");
}

#[test]
fn a_bad_path_is_named_with_its_way() {
    let mut acquitted = 0;
    for seed in 0..20 {
        let mut bed = Bed::new(&format!("explain-member-{seed}"), seed);
        let bad = 50_000 + (seed % 4) as u16;
        for target in ["muc", "ham"] {
            for port in 50_000..50_004 {
                bed.probe(target, "BE", port, |fault| Second {
                    loss: if fault && target == "muc" && port == bad { 0.2 } else { 0.0 },
                    back: seed % 2 == 1,
                    ..Second::default()
                });
            }
        }
        let found = bed.explain(&loss("muc", "BE"));
        let first = &found.causes[0];
        assert_eq!(found.grade, ExplainGrade::Strong, "seed {seed}: {found:?}");
        assert_eq!(first.names, [format!("path member muc {bad}>862")], "seed {seed}: {found:?}");
        assert_eq!(first.kind, Some(CauseKind::BadMember), "seed {seed}");
        let way = if seed % 2 == 1 { LossDirection::Backward } else { LossDirection::Forward };
        assert_eq!(first.direction, Some(way), "seed {seed}");
        let side = if seed % 2 == 1 { "on the way back" } else { "on the way there" };
        assert!(found.text[1].contains(side), "seed {seed}: {:?}", found.text);
        let of_target = found.acquitted.iter().filter(|text| text.contains("member muc")).count();
        assert_eq!(of_target, found.acquitted.len(), "{:?}", found.acquitted);
        acquitted += of_target;
        let late = (found.onset_ns - FAULT).abs();
        assert!(late <= SECOND, "seed {seed}: {late} ns from the onset");
        assert!(found.windows >= 12, "{found:?}");
        let kept = serde_json::to_value(&found).unwrap();
        assert_eq!(serde_json::from_value::<KeptExplanation>(kept).unwrap(), found);
    }
    assert!(acquitted >= 45, "{acquitted} of 60");
}

#[test]
fn one_class_to_one_target_is_a_policer() {
    let mut bed = Bed::new("explain-policer", 1);
    for target in ["muc", "ham"] {
        for class in ["BE", "EF"] {
            bed.probe(target, class, 0, |fault| Second {
                loss: if fault && target == "muc" && class == "EF" { 0.15 } else { 0.0 },
                ..Second::default()
            });
        }
    }
    let found = bed.explain(&loss("muc", "EF"));
    assert_eq!(found.causes[0].kind, Some(CauseKind::Policer), "{found:?}");
    assert_eq!(found.causes[0].names, ["class EF on target muc"]);
}

#[test]
fn a_filled_uplink_is_named_with_its_flow() {
    let mut bed = Bed::new("explain-filled", 2);
    let unit = UnitId::new("probe.core");
    let targets = [("muc", "192.0.2.9"), ("ham", "192.0.2.10"), ("ber", "198.51.100.1")];
    let mut ways = BTreeMap::new();
    for (target, address) in targets {
        let address: IpAddr = address.parse().unwrap();
        bed.book.streams(("ber", &unit), &[stream(target, address)], false, 0);
        let interface = if target == "ber" { "eth1" } else { "eth0" }.to_owned();
        ways.insert(address, PathWay { interface, next_hop: address });
        bed.probe(target, "BE", 0, |fault| Second {
            loss: if fault && target != "ber" { 0.1 } else { 0.0 },
            ..Second::default()
        });
    }
    assert_eq!(bed.book.look("ber", &ways, 0).events, []);
    bed.book.set_points([("flow.up".to_owned(), vec!["eth0".to_owned()])].into());
    bed.book.set_rates([("eth0".to_owned(), 10e6)].into());
    bed.flow("10.0.0.1", (BASE, END), 8_000_000);
    bed.flow("10.0.0.2", (FAULT, END), 40_000_000);
    let found = bed.explain(&loss("muc", "BE"));
    let first = &found.causes[0];
    assert_eq!(first.names, ["interface eth0"], "{found:?}");
    assert_eq!(first.kind, Some(CauseKind::FilledLink));
    assert!(first.evidence.iter().any(|e| e.contains("10.0.0.2 > 192.0.2.9 UDP port 5201")));
    assert!(found.text.iter().any(|t| t.contains("of its rate")), "{:?}", found.text);
}

#[test]
fn an_uplink_that_its_counters_show_full_is_named() {
    let mut bed = Bed::new("explain-counters", 10);
    let unit = UnitId::new("probe.core");
    let mut ways = BTreeMap::new();
    for (target, address, interface) in
        [("a", "192.0.2.1", "eth0"), ("b", "192.0.2.2", "eth0"), ("c", "198.51.100.1", "eth1")]
    {
        let address: IpAddr = address.parse().unwrap();
        bed.book.streams(("ber", &unit), &[stream(target, address)], false, 0);
        ways.insert(address, PathWay { interface: interface.into(), next_hop: address });
        bed.probe(target, "BE", 0, |fault| Second {
            loss: if fault && interface == "eth0" { 0.1 } else { 0.0 },
            ..Second::default()
        });
    }
    assert_eq!(bed.book.look("ber", &ways, 0).events, []);
    bed.interface("eth0", |fault| if fault { (12_000_000, 4_000) } else { (5_000_000, 0) });
    bed.interface("eth1", |_| (5_000_000, 0));
    let found = bed.explain(&loss("a", "BE"));
    let first = &found.causes[0];
    assert_eq!(
        (&*first.names, first.kind),
        (&["interface eth0".to_owned()][..], Some(CauseKind::FilledLink)),
        "{found:?}"
    );
    let text = found.text.join(" ");
    assert!(text.contains("It went from 40% to 96% of its rate; it dropped 400 packets"), "{text}");
}

/// The address of a target is another one since the fault.
#[test]
fn an_address_that_changed_then_is_a_change_of_route() {
    let mut bed = Bed::new("explain-address", 11);
    for target in ["a", "b", "c"] {
        bed.probe(target, "BE", 0, |fault| Second {
            loss: if fault && target == "a" { 0.2 } else { 0.0 },
            ..Second::default()
        });
    }
    let mut event = StoredEvent {
        kind: "address_change".into(),
        severity: EventSeverity::Info,
        series: None,
        begin_ns: FAULT,
        end_ns: Some(FAULT),
        title: "probe.core: a is 192.0.2.2 now, and was 192.0.2.1".into(),
        evidence: json!({"targets": ["a"]}),
    };
    bed.store.add_event(&event).unwrap();
    let found = bed.explain(&loss("a", "BE"));
    assert_eq!(found.causes[0].kind, Some(CauseKind::RouteChange), "{found:?}");
    assert!(found.text.contains(&"Its address changed at that time.".to_owned()), "{found:?}");
    // One of another time says nothing.
    let mut bed = Bed::new("explain-address-early", 11);
    for target in ["a", "b", "c"] {
        bed.probe(target, "BE", 0, |fault| Second {
            loss: if fault && target == "a" { 0.2 } else { 0.0 },
            ..Second::default()
        });
    }
    (event.begin_ns, event.end_ns) = (FAULT - 8 * SECOND, Some(FAULT - 8 * SECOND));
    bed.store.add_event(&event).unwrap();
    let found = bed.explain(&loss("a", "BE"));
    assert_eq!(found.causes[0].kind, None, "{found:?}");
}

fn stream(target: &str, address: IpAddr) -> sonde_results::StreamInfo {
    sonde_results::StreamInfo {
        target: target.into(),
        source: "192.0.2.1:1".parse().unwrap(),
        destination: (address, 862).into(),
        dscp: 0,
        ssid: 0,
        ip_length: 72,
        period_ns: 1,
    }
}

#[test]
fn a_slow_server_is_told_from_its_path() {
    let mut bed = Bed::new("explain-server", 3);
    let unit = UnitId::new("probe.core");
    for (target, address) in [("web", "192.0.2.9"), ("ham", "198.51.100.1")] {
        bed.book.streams(("ber", &unit), &[stream(target, address.parse().unwrap())], false, 0);
        bed.probe(target, "BE", 0, |_| Second::default());
    }
    bed.traffic("192.0.2.0/24", |fault| if fault { 40_000_000 } else { 0 });
    bed.traffic("198.51.100.0/24", |_| 0);
    let window = json!({
        "start_ns": FAULT, "end_ns": FAULT + 5 * SECOND, "unit": "ratio", "bound": 0.05,
        "limit_ns": 20e6,
    });
    let mut event = breach("192.0.2.0/24", "", window, "delay_percentile");
    event.evidence["labels"]["unit"] = json!("rtt.up");
    let found = bed.explain(&event);
    let first = &found.causes[0];
    assert_eq!(first.names, ["traffic on target web"], "{found:?}");
    assert_eq!((first.kind, found.grade), (Some(CauseKind::Server), ExplainGrade::Strong));
}

#[test]
fn a_longer_path_is_seen_by_all_who_take_it() {
    let mut bed = Bed::new("explain-delay", 4);
    for target in ["a", "b", "c"] {
        for port in [50_000, 50_001] {
            bed.probe(target, "BE", port, |fault| Second {
                delay_ns: if fault && target == "b" { 5_000_000 } else { 0 },
                ..Second::default()
            });
        }
    }
    let window = json!({
        "start_ns": FAULT, "end_ns": FAULT + 5 * SECOND, "unit": "ratio", "bound": 0.01,
        "limit_ns": 3e6,
    });
    let found = bed.explain(&breach("b", "BE", window, "delay_percentile"));
    assert_eq!(found.causes[0].names, ["target b"], "{found:?}");
    assert_eq!((found.causes[0].direction, found.grade), (None, ExplainGrade::Strong));
}

#[test]
fn a_station_that_was_late_itself_judges_no_network() {
    let mut bed = Bed::new("explain-late", 5);
    for target in ["a", "b"] {
        bed.probe(target, "BE", 0, |fault| Second {
            loss: if fault { 0.1 } else { 0.0 },
            late: fault,
            ..Second::default()
        });
    }
    let mut event = loss("a", "BE");
    event.kind = "unjudged".into();
    let found = bed.explain(&event);
    assert_eq!(found.grade, ExplainGrade::CannotJudge, "{found:?}");
    assert_eq!(found.causes[0].names, ["station ber"]);
    assert_eq!(found.causes[0].kind, Some(CauseKind::StarvedStation));
    assert!(found.text[0].contains("packets were sent late"), "{:?}", found.text);
}

/// As where all reflectors were away for some seconds.
#[test]
fn an_earlier_fault_is_not_taken_for_usual() {
    let mut bed = Bed::new("explain-earlier", 9);
    for target in ["a", "b", "c"] {
        for class in ["BE", "EF"] {
            bed.probe(target, class, 0, |fault| Second {
                loss: if fault && target == "a" && class == "EF" { 0.2 } else { 0.0 },
                ..Second::default()
            });
        }
    }
    let away = BASE + 100 * SECOND..BASE + 107 * SECOND;
    for row in bed.rows.iter_mut().filter(|row| away.contains(&row.start_ns)) {
        let end_ns = row.start_ns + SECOND;
        let mut record = Interval { start_ns: row.start_ns, end_ns, ..Interval::empty(0) };
        (record.counters.sent, record.counters.lost) = (100, 100);
        *row = IntervalRow::new(row.series, &record);
    }
    let found = bed.explain(&loss("a", "EF"));
    assert_eq!(found.causes[0].names, ["class EF on target a"], "{found:?}");
    assert_eq!(found.grade, ExplainGrade::Strong);
    let whole = (found.before_to_ns - found.before_from_ns) / (found.to_ns - found.onset_ns);
    // They may lie in two windows.
    assert!((1..=2).contains(&(whole - found.windows as i64)), "{found:?}");
}

/// The sender got no processor: of the time of the event one record is there.
#[test]
fn a_station_whose_records_are_missing_judges_no_network() {
    let mut bed = Bed::new("explain-missing", 7);
    for target in ["a", "b"] {
        bed.probe(target, "BE", 0, |_| Second::default());
    }
    bed.rows.retain(|row| !(FAULT + SECOND..FAULT + 10 * SECOND).contains(&row.start_ns));
    let mut event = loss("a", "BE");
    event.kind = "unjudged".into();
    event.evidence["window"]["end_ns"] = json!(FAULT + 10 * SECOND);
    event.end_ns = Some(FAULT + 10 * SECOND);
    let found = bed.explain(&event);
    assert_eq!(found.grade, ExplainGrade::CannotJudge, "{found:?}");
    assert_eq!(found.causes[0].names, ["station ber"]);
    assert_eq!(found.causes[0].kind, Some(CauseKind::StarvedStation));
    assert_eq!((found.onset_ns, found.to_ns), (FAULT, FAULT + 10 * SECOND));
    let text = "Of 10 records that were due, 1 is there; of 1,000 packets that were due, 100 were \
                sent: the station did not measure.";
    assert!(found.text[0].starts_with(text), "{:?}", found.text);
    // Of a breach nothing of the kind is said.
    event.kind = "breach".into();
    assert_eq!(bed.explain(&event).grade, ExplainGrade::Silent);
}

/// As where the objective asks for more samples than are sent.
#[test]
fn a_station_that_measured_all_is_not_at_fault() {
    let mut bed = Bed::new("explain-whole", 8);
    bed.probe("a", "BE", 0, |_| Second::default());
    let mut event = loss("a", "BE");
    event.kind = "unjudged".into();
    let found = bed.explain(&event);
    assert_eq!(found.grade, ExplainGrade::Silent, "{found:?}");
}

#[test]
fn what_is_as_before_is_not_explained() {
    let mut named = 0;
    for seed in 0..20 {
        let mut bed = Bed::new(&format!("explain-none-{seed}"), 100 + seed);
        for target in ["a", "b", "c"] {
            for port in 50_000..50_004 {
                bed.probe(target, "BE", port, |_| Second::default());
            }
        }
        let found = bed.explain(&loss("a", "BE"));
        named += usize::from(found.grade != ExplainGrade::Silent);
    }
    assert!(named <= 1, "{named} of 20");
}

#[test]
fn other_events_and_times_without_samples_have_none() {
    let bed = Bed::new("explain-other", 6);
    let reader = bed.store.reader();
    let (series, limit) = (reader.series().unwrap(), Limit::default());
    let input = ExplainInput {
        reader: &reader,
        series: &series,
        station: "ber",
        paths: &bed.book,
        limit: &limit,
        now_ns: END,
    };
    let mut event = loss("a", "BE");
    let why = explain_event(&input, &event).unwrap_err();
    assert!(matches!(why, ExplainError::NoSamples), "{why}");
    event.kind = "recovery".into();
    let why = explain_event(&input, &event).unwrap_err();
    assert!(matches!(why, ExplainError::Kind(_)), "{why}");
}

#[test]
fn times_are_windows_of_records_and_long_ones_are_minutes() {
    let of = |begin_s: i64, end_s: i64, first_s: i64| {
        ExplainTimes::of(begin_s * SECOND, end_s * SECOND, first_s * SECOND, SECOND)
    };
    let range = |from: i64, to: i64| TimeRange { from_ns: from * SECOND, to_ns: to * SECOND };
    let short = of(10_000, 10_010, 6_400);
    assert_eq!((short.during, short.windows), (range(10_000, 10_010), 60));
    assert_eq!(short.before, range(9_399, 9_999));
    // Little is known: a part of the fault is held against more windows.
    let little = of(10_000, 10_100, 9_951);
    assert_eq!((little.during, little.windows), (range(10_000, 10_004), 12));
    let long = of(10_000, 11_000, 1_000);
    assert_eq!((long.during, long.windows), (range(9_960, 10_260), 12));
    assert_eq!(long.before, range(6_360, 9_960));
    // Nothing is known before.
    assert_eq!(of(10_000, 10_010, 10_000).windows, 0);
}
