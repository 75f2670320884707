use super::*;
use proptest::prelude::*;

fn labels(target: &str) -> MetricLabels {
    MetricLabels { target: target.into(), class: "EF".into(), module: "stamp".into() }
}

fn interval(sent: u64, lost: u64, sides: Option<(u64, u64)>) -> Interval {
    let mut interval = Interval::empty(0);
    interval.counters = Counters {
        sent,
        received: sent - lost,
        lost,
        lost_forward: sides.map(|s| s.0),
        lost_backward: sides.map(|s| s.1),
        ..Counters::default()
    };
    interval.counters.settle_sides();
    interval
}

fn stream(target: &str, sent: u64, lost: u64) -> StreamMetrics {
    let mut stream =
        StreamMetrics { labels: labels(target), available: Some(true), ..Default::default() };
    stream.add(&interval(sent, lost, Some((lost, 0))));
    stream
}

fn value(text: &str, sample: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(&format!("{sample} ")));
    line.unwrap_or_else(|| panic!("no {sample} in\n{text}")).rsplit(' ').next().unwrap().into()
}

#[test]
fn streams_with_equal_labels_are_one_series() {
    let mut second = stream("core-1", 49, 1);
    let mut doubtful = interval(1, 0, None);
    doubtful.caveats.insert(Caveat::SenderLate);
    second.add(&doubtful);
    second.available = Some(false);
    let snapshot = MetricsSnapshot {
        station: "ber\"1".into(),
        version: "0.1.0".into(),
        streams: vec![stream("core-1", 100, 2), second, stream("core-2", 7, 0)],
        ..Default::default()
    };
    let text = render(&snapshot);
    let of = |name: &str, target: &str, more: &str| {
        let labels =
            format!("station=\"ber\\\"1\",target=\"{target}\",class=\"EF\",module=\"stamp\"");
        value(&text, &format!("{name}{{{labels}{more}}}"))
    };
    assert_eq!(of("sonde_sent_total", "core-1", ""), "150");
    assert_eq!(of("sonde_lost_total", "core-1", ",direction=\"forward\""), "3");
    assert_eq!(of("sonde_lost_total", "core-2", ",direction=\"unknown\""), "0");
    assert_eq!(of("sonde_available", "core-1", ""), "0");
    assert_eq!(of("sonde_available", "core-2", ""), "1");
    assert_eq!(of("sonde_caveats_total", "core-1", ",caveat=\"sender_late\""), "1");
    // OpenMetrics allows each series once.
    let series: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    let distinct: std::collections::BTreeSet<&&str> = series.iter().collect();
    assert_eq!(distinct.len(), series.len());
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(
        value(&text, "sonde_metrics_series{station=\"ber\\\"1\"}"),
        (series.len() - 1).to_string()
    );
}

#[test]
fn other_peoples_traffic_has_its_groups_applications_and_interfaces() {
    let mut clean = Hist::default();
    [1_000_000, 3_000_000].iter().for_each(|&ns| clean.add(ns));
    let flows = |name: &str, octets| FlowMetrics {
        unit: "flow.up".into(),
        name: name.into(),
        records: 2,
        packets: 30,
        octets,
    };
    let side = |octets| InterfaceSideMetrics { octets, packets: 7, dropped: 1, errors: 2 };
    let traffic = TrafficMetrics {
        groups: vec![PassiveGroupMetrics {
            unit: "rtt.up".into(),
            group: "192.0.2.0/24".into(),
            clean,
        }],
        samples: vec![PassiveSampleMetrics {
            unit: "rtt.up".into(),
            clean: 2,
            recovery: 1,
            delayed_ack: 4,
        }],
        flows: vec![flows("eth0", 9_000)],
        applications: vec![flows("tls", 8_000)],
        interfaces: vec![InterfaceMetrics {
            netns: String::new(),
            interface: "eth0".into(),
            sides: [side(100), side(200)],
            queue_dropped: 5,
        }],
    };
    let text = render(&MetricsSnapshot { traffic, ..Default::default() });
    let of = |name: &str, labels: &str| value(&text, &format!("{name}{{station=\"\",{labels}}}"));
    let group = "unit=\"rtt.up\",group=\"192.0.2.0/24\"";
    assert_eq!(of("sonde_passive_rtt_seconds_count", group), "2");
    assert_eq!(of("sonde_passive_rtt_seconds_sum", group), "0.004");
    let late = "unit=\"rtt.up\",kind=\"delayed_ack\"";
    assert_eq!(of("sonde_passive_samples_total", late), "4");
    let interface = "unit=\"flow.up\",interface=\"eth0\"";
    assert_eq!(of("sonde_flow_bytes_total", interface), "9000");
    assert_eq!(of("sonde_flow_records_total", interface), "2");
    let application = "unit=\"flow.up\",application=\"tls\"";
    assert_eq!(of("sonde_flow_application_bytes_total", application), "8000");
    let transmit = "interface=\"eth0\",netns=\"\",direction=\"transmit\"";
    assert_eq!(of("sonde_interface_bytes_total", transmit), "200");
    assert_eq!(of("sonde_interface_errors_total", transmit), "2");
    let queue = "interface=\"eth0\",netns=\"\"";
    assert_eq!(of("sonde_interface_queue_dropped_total", queue), "5");
    assert!(!render(&MetricsSnapshot::default()).contains("sonde_flow"), "none without a meter");
}

#[test]
fn no_counter_goes_down_when_a_side_is_proved_later() {
    let mut stream = stream("core-1", 100, 0);
    stream.add(&interval(100, 20, None));
    assert_eq!(stream.lost_by_side, [0, 0, 20]);
    // The next record has the proof.
    stream.add(&interval(100, 0, Some((5, 15))));
    assert_eq!(stream.lost_by_side, [5, 15, 20]);
    assert_eq!((stream.counters.lost, stream.counters.lost_unknown), (20, 0));
}

#[test]
fn the_number_of_series_does_not_grow_with_ports() {
    let series = |streams: usize| {
        let streams = (0..streams).map(|_| stream("core-1", 1, 0)).collect();
        let group = GroupMetrics { labels: labels(""), ..Default::default() };
        let groups = vec![group];
        let text = render(&MetricsSnapshot { streams, groups, ..Default::default() });
        text.lines().filter(|line| !line.starts_with('#')).count()
    };
    assert_eq!(series(1), series(1_000));
}

#[test]
fn counts_at_our_own_bounds_are_exact_and_cumulative() {
    let mut hist = Hist::default();
    // At, just below and just above a bound.
    for value in [8_191, 8_192, 8_193, 16_383, 1_000_000, 30_000_000_000] {
        hist.add(value);
    }
    let group = GroupMetrics { labels: labels(""), rtt: hist.clone(), ..Default::default() };
    let snapshot = MetricsSnapshot { groups: vec![group], ..Default::default() };
    let text = render(&snapshot);
    let count = |le: &str| {
        let labels = format!("station=\"\",class=\"EF\",module=\"stamp\",le=\"{le}\"");
        value(&text, &format!("sonde_rtt_seconds_bucket{{{labels}}}"))
    };
    assert_eq!(count("0.000008191"), "1");
    assert_eq!(count("0.000016383"), "4");
    assert_eq!(count("0.001048575"), "5");
    assert_eq!(count("17.179869183"), "5");
    assert_eq!(count("+Inf"), "6");
    let plain = "{station=\"\",class=\"EF\",module=\"stamp\"}";
    assert_eq!(value(&text, &format!("sonde_rtt_seconds_count{plain}")), "6");
    assert_eq!(value(&text, &format!("sonde_rtt_seconds_sum{plain}")), "30.001040959");
}

/// A histogram whose values can be negative has no sum, and then no count, either.
#[test]
fn one_way_delays_have_no_sum() {
    let mut forward = Hist::default();
    forward.add(-5_000);
    let group = GroupMetrics { labels: labels(""), forward, ..Default::default() };
    let text = render(&MetricsSnapshot { groups: vec![group], ..Default::default() });
    assert!(
        !text.contains("sonde_delay_seconds_sum") && !text.contains("sonde_delay_seconds_count")
    );
    let labels =
        "station=\"\",class=\"EF\",module=\"stamp\",direction=\"forward\",le=\"0.000008191\"";
    assert_eq!(value(&text, &format!("sonde_delay_seconds_bucket{{{labels}}}")), "1");
}

/// The bucket trap: a round number, or a power of two in seconds, is no bound of ours.
#[test]
fn foreign_bounds_lie_inside_a_bucket() {
    let mut hist = Hist::default();
    hist.add(999_900);
    hist.add(1_000_100);
    // Both are in the bucket that holds 1 ms.
    assert_eq!(count_to(&hist, 1_000_000), (0, 2));
    // 2^-10 s, the nearest native bound to 1 ms, is 976,562.5 ns.
    assert!(bounds_of(bucket_of(976_562)).1 != 976_562);
    assert_eq!(count_to(&hist, (1 << 20) - 1), (2, 2));
}

#[test]
fn seconds_are_exact_and_short() {
    for (ns, text) in
        [(0, "0.0"), (1, "0.000000001"), (-1_500_000_000, "-1.5"), (8_191, "0.000008191")]
    {
        assert_eq!(seconds(ns), text);
    }
}

proptest! {
    #[test]
    fn the_true_count_lies_between_both_ends_and_they_are_a_bucket_apart(
        values in prop::collection::vec(-1_000_000..5_000_000_000_i64, 0..200),
        bound in 0..5_000_000_000_i64,
    ) {
        let mut hist = Hist::default();
        values.iter().for_each(|&v| hist.add(v));
        let truth = values.iter().filter(|&&v| v <= bound).count() as u64;
        let (least, most) = count_to(&hist, bound);
        prop_assert!(least <= truth && truth <= most);
        let (low, high) = bounds_of(bucket_of(bound));
        let inside = values.iter().filter(|&&v| (low..=high).contains(&v)).count() as u64;
        prop_assert!(most - least <= inside);
        prop_assert!((high - low) as f64 <= (low as f64 / 32.0).max(32.0));
        for bound in shown_bounds() {
            let (least, most) = count_to(&hist, bound);
            let truth = values.iter().filter(|&&v| v <= bound).count() as u64;
            prop_assert_eq!((least, most), (truth, truth));
        }
    }
}
