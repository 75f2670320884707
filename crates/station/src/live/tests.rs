use super::*;
use sonde_results::caveat::Caveat;
use sonde_run::probe;
use sonde_run::probe::settings::RunOptions;
use sonde_store::{EventId, SeriesId, StoredEvent};
use sonde_sys::clock::ClockState;
use sonde_wire::time::Time;

const OFFSET: i64 = 37 * SECOND;
const UNIT: &str = "probe.core";

fn info(target: &str) -> StreamInfo {
    StreamInfo {
        target: target.into(),
        source: "192.0.2.1:1".parse().unwrap(),
        destination: "192.0.2.2:862".parse().unwrap(),
        dscp: 0,
        ssid: 1,
        ip_length: 64,
        period_ns: SECOND,
    }
}

fn report(said: Said) -> Arc<Report> {
    Arc::new(Report { unit: UnitId::new(UNIT), said })
}

/// A state with two streams of different targets, of which the store has numbers 4 and 5.
fn begun() -> LiveState {
    let mut live = LiveState::new("ber");
    let clock =
        ClockState { tai_offset_s: 37, synchronised: true, max_error_ns: 0, est_error_ns: 0 };
    let about = probe::About {
        streams: vec![info("a"), info("b")],
        engine: "socket".into(),
        start: Time::from_nanos(0),
        clock,
        left_out: vec![("c".into(), "it does not resolve".into())],
        run: RunOptions::default().resolve(),
        settings: probe::Settings::default(),
    };
    live.take(&report(Said::Probe(Box::new(about))), (OFFSET, 0));
    assert!(live.lacks_numbers());
    let labels = labels_of("ber", &UnitId::new(UNIT), &[info("a"), info("b")]);
    let numbers = labels.into_iter().zip([4, 5]);
    live.number(numbers.map(|(labels, id)| Series { id: SeriesId(id), labels }).collect());
    assert!(!live.lacks_numbers());
    live
}

/// An interval of a second that begins at `second` UTC.
fn interval(stream: u32, second: i64, sent: u64, lost: u64) -> Interval {
    let mut interval = Interval::empty(stream);
    interval.start_ns = second * SECOND + OFFSET;
    interval.end_ns = interval.start_ns + SECOND;
    (interval.counters.sent, interval.counters.lost) = (sent, lost);
    interval.counters.received = sent - lost;
    (interval.counters.lost_unknown, interval.counters.lost_forward) = (lost, None);
    (0..sent - lost).for_each(|i| interval.rtt_net.add(1_000_000 + i as i64));
    interval
}

fn take(live: &mut LiveState, interval: Interval, at_second: i64) {
    let said = Said::ProbeEvent(Event::Record(Box::new(interval)));
    live.take(&report(said), (OFFSET, at_second * SECOND));
}

fn states(live: &LiveState, second: i64) -> Vec<(u32, ReadingState)> {
    let now = UtcInstant::from_ms(second * 1_000);
    live.series_states(now).into_iter().map(|(id, now)| (id, now.state)).collect()
}

#[test]
fn a_series_has_no_data_before_its_first_record_and_when_the_next_is_overdue() {
    use ReadingState::{NoData, Ok};
    let mut live = begun();
    assert_eq!(states(&live, 1), [(4, NoData), (5, NoData)]);
    take(&mut live, interval(0, 1, 10, 0), 3);
    assert_eq!(states(&live, 4), [(4, Ok), (5, NoData)]);
    assert_eq!(states(&live, 11), [(4, Ok), (5, NoData)]);
    assert_eq!(states(&live, 12), [(4, NoData), (5, NoData)]);
}

#[test]
fn ten_seconds_without_an_answer_are_down_and_one_answer_ends_it() {
    use ReadingState::{Down, NoData, Ok};
    let mut live = begun();
    for second in 1..=10 {
        take(&mut live, interval(0, second, 10, 10), second + 2);
        let state = if second + 2 < 11 { Ok } else { Down };
        assert_eq!(states(&live, second + 2)[0], (4, state), "{second}");
    }
    // Nothing was sent: it says nothing.
    take(&mut live, interval(0, 11, 0, 0), 13);
    assert_eq!(states(&live, 13), [(4, Down), (5, NoData)]);
    let metrics = |live: &LiveState, second: i64| {
        live.metrics(UtcInstant::from_ms(second * 1_000)).streams[0].clone()
    };
    assert_eq!(metrics(&live, 13).available, Some(false));
    take(&mut live, interval(0, 12, 10, 9), 14);
    assert_eq!(states(&live, 14)[0], (4, Ok));
    let counted = metrics(&live, 14);
    assert_eq!((counted.available, counted.errored_seconds), (Some(true), 11));
    assert_eq!((counted.counters.sent, counted.counters.received), (110, 1));
}

#[test]
fn open_events_of_a_series_make_it_worse_and_caveats_doubtful() {
    let mut live = begun();
    let mut doubtful = interval(0, 1, 10, 0);
    doubtful.caveats.insert(Caveat::SenderLate);
    take(&mut live, doubtful, 3);
    take(&mut live, interval(1, 1, 10, 0), 3);
    let event = |kind: &str, severity, series| EventRow {
        id: EventId(1),
        event: StoredEvent {
            kind: kind.into(),
            severity,
            series,
            begin_ns: 0,
            end_ns: None,
            title: String::new(),
            evidence: serde_json::json!({}),
        },
    };
    let of_four = Some(SeriesId(4));
    live.judge(&[
        event("target_left_out", EventSeverity::Warning, of_four),
        event("breach", EventSeverity::Warning, of_four),
        event("route_change", EventSeverity::Info, Some(SeriesId(5))),
        event("unit_failed", EventSeverity::Critical, None),
    ]);
    assert_eq!(states(&live, 3), [(4, ReadingState::Breach), (5, ReadingState::Ok)]);
    let counts = count_states(live.series_states(UtcInstant::from_ms(3_000)).into_values());
    assert_eq!((counts.breach, counts.ok, counts.doubtful), (1, 1, 1));
    live.judge(&[]);
    assert_eq!(states(&live, 3)[0], (4, ReadingState::Ok));
}

#[test]
fn a_unit_is_listed_once_the_supervisor_knows_it_and_counts_outlive_its_restart() {
    let (mut live, id) = (begun(), UnitId::new(UNIT));
    assert_eq!(live.unit_entry(&id), None);
    let of = |state| BTreeMap::from([(UnitId::new(UNIT), state)]);
    assert_eq!(live.phases(&of(UnitState::Running), 5), vec![id.clone()]);
    assert_eq!(live.phases(&of(UnitState::Running), 6), []);
    take(&mut live, interval(0, 1, 10, 1), 3);
    live.take(&report(Said::Lost(3)), (OFFSET, 0));
    let failed = Notice::Failed(id.clone(), "eth0 is gone".into());
    live.take(&report(Said::Notice(failed)), (OFFSET, 0));
    assert_eq!(live.phases(&of(UnitState::Waiting), 7), vec![id.clone()]);
    let entry = live.unit_entry(&id).unwrap();
    assert!(entry.reason.unwrap().contains("eth0 is gone"));
    assert_eq!((entry.records, entry.records_lost, entry.starts), (1, 3, 1));
    assert_eq!((entry.phase, entry.since.ns()), (UnitPhase::Waiting, 7));
    assert_eq!(
        live.targets(&id)["c"].left_out.as_deref(),
        Some("it does not resolve (since 1970-01-01 00:00:00 UTC)")
    );
    assert_eq!(live.targets(&id)["b"].series, [5]);
    // It goes: what it counted stays.
    live.phases(&BTreeMap::new(), 8);
    assert_eq!(live.unit_entry(&id), None);
    assert_eq!(live.metrics(UtcInstant::from_ms(9_000)).streams[0].counters.sent, 10);
}

#[test]
fn a_reading_is_the_newest_interval_of_its_series() {
    let mut live = begun();
    take(&mut live, interval(1, 1, 10, 0), 3);
    take(&mut live, interval(1, 2, 20, 5), 4);
    let reading = live.readings(&[4, 5, 6].into(), OFFSET).remove(0);
    assert_eq!((reading.id, reading.from), (5, UtcInstant::from_ms(2_000)));
    let of = |name: &str| {
        let column = reading.columns.iter().find(|column| column.name == name).unwrap();
        column.values[0]
    };
    assert_eq!((of("sent"), of("loss_ratio"), of("min")), (Some(20.0), Some(0.25), Some(1e6)));
    assert_eq!(of("p99"), None, "15 samples carry none");
    assert_eq!(live.readings(&[4].into(), OFFSET), []);
}
