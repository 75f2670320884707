//! Histories against definitions that look ahead, and against every filling of what is unknown.

mod availability;
mod blocks;
mod burn;
mod carried;
mod docs;
mod hysteresis;
mod late;
mod samples;
mod sequences;
mod settings;

use sonde_results::sla::{AvailabilityLabel, MeasuredDirection};
use sonde_results::{Counters, Interval};

use super::window::SECOND;
use super::{
    AvailabilityRule, IntervalClass, Judge, JudgeInput, JudgeOutput, Objective, ObjectiveMetric,
    ObjectiveWindow, TimeRange,
};

/// g, b and ? as classes.
fn class(letter: char) -> IntervalClass {
    match letter {
        'g' => IntervalClass::Good,
        'b' => IntervalClass::Bad,
        '?' => IntervalClass::Unknown,
        _ => panic!("'{letter}' is no class"),
    }
}

fn letter(label: AvailabilityLabel) -> char {
    match label {
        AvailabilityLabel::Available => 'A',
        AvailabilityLabel::Unavailable => 'U',
        AvailabilityLabel::Undecided => 'X',
    }
}

/// An availability of 99.9 % in each month, by intervals of a second.
fn available(window: u32, consecutive: Option<u32>) -> Objective {
    let rule =
        AvailabilityRule::Sliding { interval_ns: SECOND, loss_ratio: 0.5, window, consecutive };
    let metric = ObjectiveMetric::Availability { target_percent: 99.9, rule };
    Objective::new("availability", metric, MeasuredDirection::RoundTrip, ObjectiveWindow::Month)
}

/// A record of the time from `start` to `end`, s, in which so many were sent and lost.
fn record(start: i64, end: i64, sent: u64, lost: u64) -> Interval {
    let mut record = Interval::empty(0);
    (record.start_ns, record.end_ns) = (start * SECOND, end * SECOND);
    record.counters = Counters { sent, lost, received: sent - lost, ..Counters::default() };
    record.counters.settle_sides();
    record.loss_side = record.counters.loss_side();
    record
}

fn range(start: i64, end: i64) -> TimeRange {
    TimeRange { start_ns: start * SECOND, end_ns: end * SECOND }
}

/// Seconds from `start` on, one a letter: g is without loss, b all lost, ? no data.
fn feed(judge: &mut Judge, start: i64, letters: &str, out: &mut JudgeOutput) {
    for (at, letter) in (start..).zip(letters.chars()) {
        let fed = match letter {
            'g' => judge.push(JudgeInput::record(&record(at, at + 1, 10, 0)), out),
            'b' => judge.push(JudgeInput::record(&record(at, at + 1, 10, 10)), out),
            _ => judge.push(JudgeInput::gap(range(at, at + 1)), out),
        };
        fed.unwrap();
    }
}
#[test]
fn a_judge_is_small() {
    // There is one for each objective of each of 20,000 streams.
    assert!(size_of::<Judge>() <= 1_408, "{}", size_of::<Judge>());
}
