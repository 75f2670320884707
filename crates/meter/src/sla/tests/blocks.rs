//! Blocks of a fixed grid (ITU-T Y.1540).

use sonde_results::sla::{Exclusion, MeasuredDirection};

use super::super::{
    AvailabilityRule, Judge, JudgeInput, JudgeOutput, Objective, ObjectiveMetric, ObjectiveWindow,
};
use super::{SECOND, range, record};

fn blocks(block_s: i64, loss_ratio: f64, least_packets: u64) -> Objective {
    let rule = AvailabilityRule::Blocks {
        block_ns: block_s * SECOND,
        offset_ns: 0,
        loss_ratio,
        least_packets,
    };
    let metric = ObjectiveMetric::Availability { target_percent: 99.0, rule };
    Objective::new("PIA", metric, MeasuredDirection::RoundTrip, ObjectiveWindow::Month)
}

#[test]
fn each_block_is_judged_by_itself() {
    let counts =
        [(300, 0), (300, 60), (300, 61), (300, 226), (300, 225), (0, 0), (20, 20), (300, 300)];
    for (c1, wanted) in [(0.20, "AAUUUXXU"), (0.75, "AAAUAXXU")] {
        let mut judge = Judge::new(blocks(300, c1, 30), "Lyon");
        let mut out = JudgeOutput::default();
        let mut got = String::new();
        let mut before = (0, 0, 0);
        for (k, &(sent, lost)) in (0..).zip(&counts) {
            judge
                .push(JudgeInput::record(&record(k * 300, k * 300 + 300, sent, lost)), &mut out)
                .unwrap();
            let t = judge.month_so_far().unwrap().availability;
            let now = (t.available, t.unavailable, t.undecided);
            got.push(match (now.0 - before.0, now.1 - before.1, now.2 - before.2) {
                (1, 0, 0) => 'A',
                (0, 1, 0) => 'U',
                (0, 0, 1) => 'X',
                other => panic!("{other:?}"),
            });
            before = now;
        }
        assert_eq!(got, wanted, "c1 = {c1}");
        let totals = judge.month_so_far().unwrap().availability;
        assert_eq!(totals.of_known(), Some(before.0 as f64 / (before.0 + before.1) as f64));
        assert_eq!(
            (totals.low(), totals.unknown_share()),
            (Some(before.0 as f64 / 8.0), Some(0.25))
        );
    }
}

/// Seconds counted of one total outage, at every offset of the grid.
fn counted(block_s: i64, c1: f64, outage_s: i64) -> Vec<u64> {
    let mut found: Vec<u64> = (0..block_s)
        .map(|offset| {
            let mut judge = Judge::new(blocks(block_s, c1, 1), "Lyon");
            let mut out = JudgeOutput::default();
            let begin = block_s + offset;
            for at in 0..begin + outage_s + 2 * block_s {
                let lost = if (begin..begin + outage_s).contains(&at) { 10 } else { 0 };
                judge.push(JudgeInput::record(&record(at, at + 1, 10, lost)), &mut out).unwrap();
            }
            judge.month_so_far().unwrap().availability.unavailable * block_s as u64
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn the_grid_decides_how_long_an_outage_counts() {
    for (outage_s, wanted) in
        [(60, &[0][..]), (240, &[0, 300]), (400, &[0, 300]), (590, &[300, 600])]
    {
        assert_eq!(counted(300, 0.75, outage_s), wanted, "{outage_s} s in 5 min of 0.75");
    }
    for (outage_s, wanted) in
        [(30, [60, 120]), (60, [60, 120]), (240, [240, 300]), (590, [600, 660])]
    {
        assert_eq!(counted(60, 0.20, outage_s), wanted, "{outage_s} s in 1 min of 0.20");
    }
}

#[test]
fn a_block_that_touches_maintenance_is_left_out_and_one_that_is_partly_missing_is_not() {
    let night = Exclusion::maintenance("night");
    let mut judge = Judge::new(blocks(60, 0.2, 30), "Lyon");
    let mut out = JudgeOutput::default();
    for at in 0..60 {
        judge.push(JudgeInput::record(&record(at, at + 1, 10, 0)), &mut out).unwrap();
    }
    // Maintenance in the middle of the second block; in the third, ten seconds have no data.
    for at in 60..120 {
        let record = record(at, at + 1, 10, 10);
        let input = JudgeInput::record(&record);
        let input = if (80..90).contains(&at) { input.excluded(&night) } else { input };
        judge.push(input, &mut out).unwrap();
    }
    for at in (120..150).chain(160..180) {
        judge.push(JudgeInput::record(&record(at, at + 1, 10, 0)), &mut out).unwrap();
    }
    // Half of the fourth and all of the fifth block are missing; so is the sixth.
    for at in 180..210 {
        judge.push(JudgeInput::record(&record(at, at + 1, 10, 0)), &mut out).unwrap();
    }
    judge.push(JudgeInput::gap(range(210, 360)), &mut out).unwrap();
    let totals = judge.month_so_far().unwrap().availability;
    assert_eq!((totals.available, totals.unavailable, totals.undecided), (3, 0, 2));
    assert_eq!((totals.excluded[0].name.as_str(), totals.excluded[0].intervals), ("night", 1));
    assert_eq!(totals.excluded[0].length_ns, 60 * SECOND);
}

#[test]
fn a_record_longer_than_a_block_stands_for_those_that_it_covers() {
    // Ten seconds of the first block by themselves, then 50 s in one record: two whole blocks.
    for (lost, wanted) in [(0, (3, 0, 0)), (500, (1, 2, 0)), (100, (1, 0, 2))] {
        let mut judge = Judge::new(blocks(20, 0.2, 30), "Lyon");
        let mut out = JudgeOutput::default();
        for at in 0..10 {
            judge.push(JudgeInput::record(&record(at, at + 1, 10, 0)), &mut out).unwrap();
        }
        judge.push(JudgeInput::record(&record(10, 60, 500, lost)), &mut out).unwrap();
        let t = judge.month_so_far().unwrap().availability;
        assert_eq!((t.available, t.unavailable, t.undecided), wanted, "{lost} lost");
    }
}
