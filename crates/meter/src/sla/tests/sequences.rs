//! The sliding window on sequences: worked ones, and all short ones.

use proptest::prelude::*;
use sonde_results::sla::{AvailabilityTotals, Exclusion};

use super::super::{AvailabilityRuns, IntervalClass, LabelledIntervals, SlidingAvailability};
use super::{class, letter};

/// The label of each interval; those that wait have the old state.
fn labels(window: u32, classes: &[IntervalClass]) -> String {
    let mut sliding = SlidingAvailability::new(window);
    let mut decided = Vec::new();
    classes.iter().for_each(|&c| sliding.push(c, 1, (), &mut decided));
    let waiting = sliding.waiting().map(|(_, label)| label);
    decided.iter().map(|d| d.1).chain(waiting).map(letter).collect()
}

fn of(letters: &str) -> Vec<IntervalClass> {
    letters.chars().map(class).collect()
}

/// The totals of a sequence in which M marks maintenance.
fn totals(window: u32, p: u32, letters: &str, maintenance: &str) -> AvailabilityTotals {
    let mut sliding = SlidingAvailability::new(window);
    let mut runs = AvailabilityRuns::new(Some(p));
    let (mut totals, mut decided) = (AvailabilityTotals::default(), Vec::new());
    let marks = maintenance.chars().map(|m| m == 'M').chain(std::iter::repeat(false));
    for (class, left_out) in of(letters).into_iter().zip(marks) {
        sliding.push(class, 1, (class, left_out), &mut decided);
    }
    decided.extend(sliding.waiting().map(|(payload, label)| (*payload, label)));
    let night = Exclusion::maintenance("night");
    for ((class, left_out), label) in decided {
        let exclusion = left_out.then_some(&night);
        runs.count(
            &mut totals,
            LabelledIntervals { class, label, count: 1, length_ns: 1, exclusion },
        );
    }
    totals
}

#[test]
fn a_transition_dates_back_to_the_first_of_its_run() {
    let letters = "ggbbgbbbbbgbggbggggbbggg";
    assert_eq!(labels(4, &of(letters)), "AAAAAUUUUUUUUUUAAAAAAAAA");
    let t = totals(4, 2, letters, "");
    assert_eq!((t.available, t.base()), (14, 24));
    assert_eq!((t.high_loss, t.chli_runs, t.chli_intervals), (4, 2, 4));
    assert_eq!((t.outages, t.longest_outage, t.high_loss_possible), (1, 10, 0));
}

#[test]
fn maintenance_leaves_the_base_and_not_the_state() {
    let letters = "ggbbbbbbbbgggggggg";
    assert_eq!(labels(4, &of(letters)), "AAUUUUUUUUAAAAAAAA");
    let t = totals(4, 2, letters, "...MMMM...........");
    assert_eq!((t.available, t.base()), (10, 14), "71.4 %");
    assert_eq!(t.excluded[0].intervals, 4);
    assert_eq!((t.outages, t.longest_outage), (1, 4), "one, and four intervals of it count");
    let within = totals(4, 2, letters, "..MMMMMMMM........");
    assert_eq!((within.outages, within.longest_outage, within.unavailable), (0, 0, 0));
    assert_eq!((within.available, within.base()), (10, 10));
    let without = totals(4, 2, letters, "");
    assert_eq!((without.available, without.base()), (10, 18), "55.6 %");
}

#[test]
fn maintenance_breaks_a_run_of_high_loss_intervals() {
    let t = totals(9, 3, "gbbbbbg", "");
    assert_eq!((t.high_loss, t.chli_runs, t.chli_intervals), (5, 1, 5));
    let t = totals(9, 3, "gbbbbbg", "...M...");
    assert_eq!((t.high_loss, t.chli_runs, t.chli_intervals), (4, 0, 0));
}

#[test]
fn unknown_intervals_give_a_range() {
    let letters = "gbb?bbgg?gbbb?gggg?g";
    let filled = |with: &str| labels(4, &of(&letters.replace('?', with)));
    assert_eq!(filled("b"), "AUUUUUUUUUUUUUAAAAAA");
    assert_eq!(filled("g"), "AAAAAAAAAAAAAAAAAAAA");
    assert_eq!(labels(4, &of(letters)), "AXXXXXXXXXXXXXAAAAAA");
    let t = totals(4, 2, letters, "");
    assert_eq!((t.low(), t.high()), (Some(0.35), Some(1.0)));
    assert_eq!((t.undecided, t.unknown_share()), (13, Some(0.65)));
}

#[test]
fn nine_bad_seconds_are_no_outage_and_ten_are() {
    let letters = "ggbbbbbbbbbgggbbbbbbbbbbbbggggbggggggggggg";
    assert_eq!(labels(10, &of(letters)), "AAAAAAAAAAAAAAUUUUUUUUUUUUUUUUUAAAAAAAAAAA");
    let t = totals(10, 5, letters, "");
    assert_eq!((t.unavailable, t.high_loss), (17, 9));
    assert_eq!((t.chli_runs, t.chli_intervals), (1, 9));

    let letters = "bbbbbb?bbbbbbgggggggggggg";
    assert_eq!(labels(10, &of(&letters.replace('?', "g"))), "A".repeat(25));
    assert_eq!(labels(10, &of(letters)), "XXXXXXXXXXXXXAAAAAAAAAAAA");
    let t = totals(10, 5, letters, "");
    assert_eq!((t.low(), t.high()), (Some(12.0 / 25.0), Some(1.0)));
}

/// The definition, looking ahead. What lies beyond the end decides nothing yet.
fn looking_ahead(window: usize, bad: &[bool]) -> String {
    let mut available = true;
    let label = |k: usize| {
        let run = bad.get(k..k + window);
        if run.is_some_and(|run| run.iter().all(|&b| b == available)) {
            available = !available;
        }
        if available { 'A' } else { 'U' }
    };
    (0..bad.len()).map(label).collect()
}

#[test]
fn every_short_sequence_is_as_defined() {
    let classes = |bad: &[bool]| -> Vec<IntervalClass> {
        bad.iter().map(|&b| if b { IntervalClass::Bad } else { IntervalClass::Good }).collect()
    };
    for window in 1..=4 {
        for length in 1..=12 {
            for pattern in 0..1u32 << length {
                let bad: Vec<bool> = (0..length).map(|i| pattern >> i & 1 == 1).collect();
                let wanted = looking_ahead(window, &bad);
                assert_eq!(labels(window as u32, &classes(&bad)), wanted, "n {window}: {bad:?}");
            }
        }
    }
}

/// All ways to fill the unknown ones.
fn fillings(classes: &[IntervalClass]) -> Vec<Vec<bool>> {
    let mut all = vec![Vec::new()];
    for &class in classes {
        all = all
            .into_iter()
            .flat_map(|filling: Vec<bool>| {
                let with = |bad: bool| [filling.clone(), vec![bad]].concat();
                match class {
                    IntervalClass::Good => vec![with(false)],
                    IntervalClass::Bad => vec![with(true)],
                    IntervalClass::Unknown => vec![with(false), with(true)],
                }
            })
            .collect();
    }
    all
}

#[test]
fn what_is_said_of_unknown_intervals_holds_for_every_filling() {
    let all = [IntervalClass::Good, IntervalClass::Bad, IntervalClass::Unknown];
    for window in 1..=3usize {
        for pattern in 0..3usize.pow(8) {
            let classes: Vec<_> = (0..8).map(|i| all[pattern / 3usize.pow(i as u32) % 3]).collect();
            let got = labels(window as u32, &classes);
            for filling in fillings(&classes) {
                let truth = looking_ahead(window, &filling);
                for (got, truth) in got.chars().zip(truth.chars()) {
                    assert!(got == 'X' || got == truth, "n {window}: {classes:?}, {filling:?}");
                }
            }
        }
    }
}

/// Classes of random histories; runs are frequent.
pub(super) fn history() -> impl Strategy<Value = Vec<(IntervalClass, u64)>> {
    let class = prop_oneof![
        3 => Just(IntervalClass::Good),
        3 => Just(IntervalClass::Bad),
        1 => Just(IntervalClass::Unknown),
    ];
    prop::collection::vec((class, 1..8u64), 0..60)
}

fn single(history: &[(IntervalClass, u64)]) -> Vec<IntervalClass> {
    history.iter().flat_map(|&(c, n)| std::iter::repeat_n(c, n as usize)).collect()
}

proptest! {
    #[test]
    fn many_alike_are_as_one_after_another(history in history(), window in 1..9u32) {
        let mut sliding = SlidingAvailability::new(window);
        let mut decided = Vec::new();
        history.iter().for_each(|&(c, n)| sliding.push(c, n, n as usize, &mut decided));
        decided.extend(sliding.waiting().map(|(n, label)| (*n, label)));
        let spread: String =
            decided.iter().flat_map(|&(n, l)| std::iter::repeat_n(letter(l), n)).collect();
        prop_assert_eq!(spread, labels(window, &single(&history)));
    }

    #[test]
    fn forgetting_an_interval_only_widens(history in history(), window in 1..9u32, at in any::<prop::sample::Index>()) {
        let known = single(&history);
        prop_assume!(!known.is_empty());
        let mut forgotten = known.clone();
        forgotten[at.index(known.len())] = IntervalClass::Unknown;
        let count = |labels: &str, letter: char| labels.matches(letter).count();
        let (before, after) = (labels(window, &known), labels(window, &forgotten));
        prop_assert!(count(&after, 'A') <= count(&before, 'A'), "low: {} {}", before, after);
        prop_assert!(count(&after, 'U') <= count(&before, 'U'), "high: {} {}", before, after);
        for (b, a) in before.chars().zip(after.chars()) {
            prop_assert!(a == b || a == 'X', "{} {}", before, after);
        }
    }

    #[test]
    fn no_more_than_a_window_less_one_waits(history in history(), window in 1..9u32) {
        let mut sliding = SlidingAvailability::new(window);
        for class in single(&history) {
            sliding.push(class, 1, (), &mut Vec::new());
            prop_assert!(sliding.waiting().count() < window as usize);
        }
    }
}
