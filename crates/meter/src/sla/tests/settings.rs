//! What is wrong with an objective is said by key.

use sonde_results::sla::MeasuredDirection;

use super::super::{
    AvailabilityRule, Objective, ObjectiveLimit, ObjectiveMetric, ObjectiveWindow, OutOf,
    SecondRule,
};
use super::{SECOND, available};

const MINUTE: ObjectiveWindow = ObjectiveWindow::Fixed { length_s: 60, offset_s: 0 };

fn of(metric: ObjectiveMetric) -> Objective {
    Objective::new("it", metric, MeasuredDirection::Forward, MINUTE)
}

fn delay(percent: f64, limit: ObjectiveLimit) -> Objective {
    of(ObjectiveMetric::DelayPercentile { percent, limit })
}

fn keys(objective: Objective) -> Vec<String> {
    objective.diagnose().into_iter().map(|e| e.key).collect()
}

#[test]
fn each_error_names_its_key() {
    let fixed = ObjectiveLimit::Fixed;
    let good = delay(99.0, fixed(2e7));
    assert_eq!(keys(good.clone()), Vec::<String>::new());
    assert_eq!(keys(Objective { name: String::new(), ..good.clone() }), ["name"]);
    for percent in [0.0, 100.0, -1.0, f64::NAN] {
        assert_eq!(keys(delay(percent, fixed(2e7))), ["metric.percent"]);
    }
    for limit in [-1.0, 1e15, f64::NAN] {
        assert_eq!(keys(delay(99.0, fixed(limit))), ["metric.limit.fixed"]);
    }
    for limit in [-0.1, 1.0, 5.0] {
        assert_eq!(
            keys(of(ObjectiveMetric::LossRatio { limit: fixed(limit) })),
            ["metric.limit.fixed"]
        );
    }
    let usual = |times, floor| ObjectiveLimit::Usual { times, floor };
    assert_eq!(keys(delay(99.0, usual(2.0, 1e6))), Vec::<String>::new());
    assert_eq!(
        keys(delay(99.0, usual(0.0, -1.0))),
        ["metric.limit.usual.times", "metric.limit.usual.floor"]
    );
    let month = Objective { window: ObjectiveWindow::Month, ..delay(99.0, usual(2.0, 1e6)) };
    assert_eq!(keys(month), ["window.kind"]);
    let seven = ObjectiveWindow::Fixed { length_s: 420, offset_s: 0 };
    assert_eq!(
        keys(Objective { window: seven, ..delay(99.0, usual(2.0, 1e6)) }),
        ["window.length_s"]
    );

    let window = |length_s, offset_s| {
        keys(Objective { window: ObjectiveWindow::Fixed { length_s, offset_s }, ..good.clone() })
    };
    assert_eq!(window(0, 0), ["window.length_s"]);
    assert_eq!(window(60, 60), ["window.offset_s"]);
    assert_eq!(keys(Objective { utc_offset_s: 60_000, ..good.clone() }), ["utc_offset_s"]);
    assert_eq!(keys(Objective { least_samples: Some(0), ..good.clone() }), ["least_samples"]);
    assert_eq!(
        keys(Objective { least_known_percent: 101.0, ..good.clone() }),
        ["least_known_percent"]
    );
    assert_eq!(keys(Objective { breach: OutOf { n: 0, m: 3 }, ..good.clone() }), ["breach.n"]);
    assert_eq!(keys(Objective { recovery: OutOf { n: 3, m: 2 }, ..good.clone() }), ["recovery.m"]);

    let round_trip = Objective {
        direction: MeasuredDirection::RoundTrip,
        ..of(ObjectiveMetric::IpdvPercentile { percent: 99.0, limit: fixed(1e6) })
    };
    assert_eq!(keys(round_trip), ["direction"]);
}

#[test]
fn errors_of_a_rule_name_where_it_stands() {
    let rule = AvailabilityRule::Sliding {
        interval_ns: SECOND,
        loss_ratio: 2.0,
        window: 10,
        consecutive: None,
    };
    let metric = ObjectiveMetric::Availability { target_percent: 101.0, rule };
    let objective = Objective { window: ObjectiveWindow::Month, ..of(metric) };
    assert_eq!(keys(objective), ["metric.target_percent", "metric.rule.loss_ratio"]);
    let limit = ObjectiveLimit::Fixed(0.1);
    let with = Objective { available_time: Some(rule), ..of(ObjectiveMetric::LossRatio { limit }) };
    assert_eq!(keys(with), ["available_time.loss_ratio"]);
    let twice = Objective { available_time: available(10, None).rule(), ..available(10, None) };
    assert_eq!(keys(twice), ["available_time"]);
    let rule = SecondRule { severe_ratio: 0.3, window: 0, reordered: false };
    let metric = ObjectiveMetric::ErroredSeconds { limit: 5, severe: false, rule };
    assert_eq!(keys(of(metric)), ["metric.rule.window"]);
    let blocks = AvailabilityRule::Blocks {
        block_ns: 300 * SECOND,
        offset_ns: 0,
        loss_ratio: 0.2,
        least_packets: 1,
    };
    let with =
        Objective { available_time: Some(blocks), ..of(ObjectiveMetric::LossRatio { limit }) };
    assert_eq!(keys(with), ["window.length_s"], "a minute is shorter than a block");
}

#[test]
fn an_error_reads_as_a_sentence() {
    let error = delay(100.0, ObjectiveLimit::Fixed(1e6)).diagnose().remove(0);
    assert_eq!(
        error.to_string(),
        "metric.percent: 100 must be above 0 and below 100; the greatest value is no promise"
    );
}

#[test]
fn keys_that_nobody_knows_are_refused() {
    let objective = available(10, None);
    let json = serde_json::to_string(&objective).unwrap();
    assert_eq!(serde_json::from_str::<Objective>(&json).unwrap(), objective);
    let wrong = json.replacen("\"name\"", "\"nam\"", 1);
    assert!(serde_json::from_str::<Objective>(&wrong).is_err());
}
