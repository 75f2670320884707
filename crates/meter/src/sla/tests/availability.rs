//! The judge's availability: months, events, time without data, what is left out.

use sonde_results::sla::{
    AvailabilityLabel, Exclusion, ObjectiveVerdict, SlaEventKind, UndecidedReason,
};

use super::super::{InputRefused, Judge, JudgeInput, JudgeOutput, month_at};
use super::{SECOND, available, feed, range, record};

#[test]
fn an_outage_over_the_months_border_changes_the_month_before() {
    // n = 4: month 1 ends with ggggggbb, month 2 begins with bbbgggg.
    let border = month_at(1_700_000_000 * SECOND, 0).end_ns / SECOND;
    let mut judge = Judge::new(available(4, None), "Lyon");
    let mut out = JudgeOutput::default();
    feed(&mut judge, border - 8, "ggggggbb", &mut out);
    let now = judge.month_so_far().unwrap();
    assert!(now.provisional && out.months.is_empty());
    assert_eq!((now.availability.available, now.availability.unavailable), (8, 0));
    feed(&mut judge, border, "b", &mut out);
    assert_eq!(out.months.len(), 0, "one more bad interval decides");
    feed(&mut judge, border + 1, "bbgggg", &mut out);
    let [month] = &out.months[..] else { panic!("{:?}", out.months) };
    assert_eq!((month.availability.available, month.availability.unavailable), (6, 2));
    assert!(!month.provisional && month.end_ns == border * SECOND);
    let next = judge.month_so_far().unwrap().availability;
    assert_eq!((next.available, next.unavailable, next.longest_outage), (4, 3, 5));
    assert_eq!(next.outages, 0, "it counts where it began");
}

#[test]
fn an_outage_at_every_offset_of_the_border_is_shared_exactly() {
    let border = month_at(1_700_000_000 * SECOND, 0).end_ns / SECOND;
    for before in 0..=8i64 {
        let mut judge = Judge::new(available(4, None), "Lyon");
        let mut out = JudgeOutput::default();
        feed(&mut judge, border - 20, &"g".repeat(20 - before as usize), &mut out);
        feed(&mut judge, border - before, "bbbbbbbb", &mut out);
        feed(&mut judge, border + 8 - before, &"g".repeat(12), &mut out);
        let month = out.months.pop().expect("a month is over");
        assert_eq!(month.availability.unavailable, before as u64);
        assert_eq!(judge.month_so_far().unwrap().availability.unavailable, 8 - before as u64);
    }
}

#[test]
fn an_event_carries_the_time_of_the_first_bad_interval() {
    let mut judge = Judge::new(available(4, None), "Lyon");
    let mut out = JudgeOutput::default();
    feed(&mut judge, 0, "ggbbgbbbbbgbggbggggbbggg", &mut out);
    let told: Vec<_> = out
        .events
        .iter()
        .map(|e| match e.kind {
            SlaEventKind::Availability { label, duration_ns, .. } => {
                (e.at_ns / SECOND, e.known_ns / SECOND, label, duration_ns / SECOND)
            }
            ref other => panic!("{other:?}"),
        })
        .collect();
    use AvailabilityLabel::{Available, Unavailable};
    assert_eq!(told, [(5, 9, Unavailable, 5), (15, 19, Available, 10)]);
}

#[test]
fn a_station_that_stood_still_is_no_outage_and_no_uptime() {
    let mut judge = Judge::new(available(10, None), "Lyon");
    let mut out = JudgeOutput::default();
    feed(&mut judge, 0, &"g".repeat(60), &mut out);
    // An hour later it goes on.
    feed(&mut judge, 3_660, &"g".repeat(60), &mut out);
    let month = judge.month_so_far().unwrap();
    let totals = &month.availability;
    assert_eq!((totals.available, totals.unavailable, totals.undecided), (120, 0, 3_600));
    let labels: Vec<_> = out.events.iter().map(|e| e.at_ns / SECOND).collect();
    assert_eq!(labels, [60, 3_660]);
    // The same from rows without packets.
    let mut rows = Judge::new(available(10, None), "Lyon");
    let mut same = JudgeOutput::default();
    feed(&mut rows, 0, &"g".repeat(60), &mut same);
    for at in 60..3_660 {
        let nothing = record(at, at + 1, 0, 0);
        rows.push(JudgeInput::record(&nothing), &mut same).unwrap();
    }
    feed(&mut rows, 3_660, &"g".repeat(60), &mut same);
    assert_eq!(rows.month_so_far().unwrap(), month);
}

#[test]
fn every_tenth_second_unknown_leaves_a_minutes_outage_open() {
    let mut judge = Judge::new(available(10, None), "Lyon");
    let mut out = JudgeOutput::default();
    let outage: String = (0..60).map(|i| if i % 10 == 9 { '?' } else { 'b' }).collect();
    feed(&mut judge, 0, &format!("g{outage}{}", "g".repeat(20)), &mut out);
    let totals = judge.month_so_far().unwrap().availability;
    assert_eq!((totals.available, totals.unavailable, totals.undecided), (21, 0, 60));
}

#[test]
fn a_stations_doubt_leaves_time_out_by_name_whatever_was_measured() {
    let doubt = Exclusion::doubt("clock_stepped");
    let seen = ["g", "b"].map(|letter| {
        let mut judge = Judge::new(available(4, None), "Lyon");
        let mut out = JudgeOutput::default();
        feed(&mut judge, 0, "gggg", &mut out);
        for at in 4..24 {
            let lost = if letter == "b" { 10 } else { 0 };
            let record = record(at, at + 1, 10, lost);
            judge.push(JudgeInput::record(&record).excluded(&doubt), &mut out).unwrap();
        }
        feed(&mut judge, 24, "gggggg", &mut out);
        (judge, out)
    });
    assert_eq!(seen[0], seen[1]);
    let totals = seen[0].0.month_so_far().unwrap().availability;
    assert_eq!((totals.base(), totals.available), (10, 10));
    assert_eq!(
        (totals.excluded[0].name.as_str(), totals.excluded[0].intervals),
        ("clock_stepped", 20)
    );
}

#[test]
fn an_outage_that_begins_in_maintenance_lasts_beyond_it() {
    let night = Exclusion::maintenance("night");
    let mut judge = Judge::new(available(4, None), "Lyon");
    let mut out = JudgeOutput::default();
    feed(&mut judge, 0, "gg", &mut out);
    for at in 2..8 {
        let record = record(at, at + 1, 10, 10);
        judge.push(JudgeInput::record(&record).excluded(&night), &mut out).unwrap();
    }
    feed(&mut judge, 8, "bgggg", &mut out);
    let totals = judge.month_so_far().unwrap().availability;
    assert_eq!((totals.available, totals.unavailable), (6, 1));
    assert_eq!((totals.excluded[0].intervals, totals.outages, totals.longest_outage), (6, 1, 1));
}

#[test]
fn a_month_is_met_missed_or_undecided_by_its_range() {
    let month = month_at(1_700_000_000 * SECOND, 0);
    let start = month.start_ns / SECOND;
    let judged = |letters: &str, rest: char| {
        let mut judge = Judge::new(available(4, None), "Lyon");
        let mut out = JudgeOutput::default();
        feed(&mut judge, start, letters, &mut out);
        let end = month.end_ns / SECOND;
        match rest {
            // One record for the rest of the month: without any loss each second was good.
            'g' => {
                let rest = record(start + letters.len() as i64, end, 1_000_000, 0);
                judge.push(JudgeInput::record(&rest), &mut out).unwrap();
            }
            _ => judge.advance(month.end_ns, &mut out),
        }
        let [window] = &out.windows[..] else { panic!("{:?}", out.windows) };
        assert_eq!((window.start_ns, window.end_ns), (month.start_ns, month.end_ns));
        (window.verdict, window.undecided)
    };
    // 0.1 % of November are 2,592 s.
    assert_eq!(judged(&"b".repeat(2_592), 'g'), (ObjectiveVerdict::Met, None));
    assert_eq!(judged(&"b".repeat(2_593), 'g'), (ObjectiveVerdict::Missed, None));
    assert_eq!(judged(&"b".repeat(2_593), '?'), (ObjectiveVerdict::Missed, None));
    let open = (ObjectiveVerdict::Undecided, Some(UndecidedReason::LimitInRange));
    assert_eq!(judged(&"b".repeat(2_592), '?'), open);
    assert_eq!(judged(&"g".repeat(2_592), '?'), open);
    let nothing = (ObjectiveVerdict::Undecided, Some(UndecidedReason::NoData));
    assert_eq!(judged("?", '?'), nothing);
}

#[test]
fn what_was_judged_is_not_judged_again() {
    let mut judge = Judge::new(available(4, None), "Lyon");
    let mut out = JudgeOutput::default();
    feed(&mut judge, 0, "gggg", &mut out);
    let before = judge.clone();
    let refused = judge.push(JudgeInput::gap(range(2, 3)), &mut out);
    assert_eq!(
        refused,
        Err(InputRefused::OutOfOrder { start_ns: 2 * SECOND, next_ns: 4 * SECOND })
    );
    let mut early = record(3, 4, 10, 0);
    (early.start_ns, early.end_ns) = (3_400_000_000, 4_400_000_000);
    let refused = judge.push(JudgeInput::record(&early), &mut out);
    assert!(matches!(refused, Err(InputRefused::OutOfOrder { .. })), "more than half is over");
    let refused = judge.push(JudgeInput::gap(range(5, 5)), &mut out);
    assert!(matches!(refused, Err(InputRefused::Empty { .. })));
    assert_eq!(judge, before);
    // A clock that is slewed: a little overlap is cut.
    let mut late = record(4, 5, 10, 0);
    late.start_ns -= 1_000;
    judge.push(JudgeInput::record(&late), &mut out).unwrap();
    assert_eq!(judge.month_so_far().unwrap().availability.available, 5);
}

#[test]
fn short_records_are_collected_and_long_ones_cover_several_intervals() {
    // Tenths of a second: the last one of the third second is lost, of the fourth nine are.
    let mut judge = Judge::new(available(4, Some(1)), "Lyon");
    let mut out = JudgeOutput::default();
    for tenth in 0..50i64 {
        let lost = u64::from(tenth == 29 || (31..40).contains(&tenth));
        let mut record = record(0, 1, 1, lost);
        (record.start_ns, record.end_ns) = (tenth * SECOND / 10, (tenth + 1) * SECOND / 10);
        judge.push(JudgeInput::record(&record), &mut out).unwrap();
    }
    let totals = judge.month_so_far().unwrap().availability;
    assert_eq!((totals.available, totals.high_loss), (5, 1));
    // Ten seconds in one record: without loss, or all lost, each second is known; else none.
    for (lost, available, unavailable, undecided) in
        [(0, 16, 0, 0), (100, 6, 10, 0), (60, 6, 0, 10)]
    {
        let mut judge = Judge::new(super::available(4, None), "Lyon");
        feed(&mut judge, 0, "gg", &mut out);
        judge.push(JudgeInput::record(&record(2, 12, 100, lost)), &mut out).unwrap();
        feed(&mut judge, 12, "gggg", &mut out);
        let totals = judge.month_so_far().unwrap().availability;
        let got = (totals.available, totals.unavailable, totals.undecided);
        assert_eq!(got, (available, unavailable, undecided), "{lost} lost");
    }
}
