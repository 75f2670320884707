//! Data that come late, and months without a base.

use sonde_results::sla::Exclusion;

use super::super::{Judge, JudgeInput, JudgeOutput, month_at};
use super::{SECOND, available, feed, range, record};

#[test]
fn late_data_are_a_revision_with_the_figures_as_if_in_order() {
    let month = month_at(1_700_000_000 * SECOND, 0);
    let end = month.end_ns / SECOND;
    let judged = |letters: &str| {
        let mut judge = Judge::new(available(4, None), "Lyon");
        let mut out = JudgeOutput::default();
        feed(&mut judge, end - letters.len() as i64, letters, &mut out);
        feed(&mut judge, end, "gggg", &mut out);
        out.months.remove(0)
    };
    // A batch from the middle of the outage was missing.
    let (published, complete) = ("ggggbb????bbgggggg", "ggggbbbbbbbbgggggg");
    let first = judged(published);
    assert_eq!((first.availability.undecided, first.availability.unavailable), (8, 0));
    let second = first.revised(judged(complete));
    assert_eq!((second.availability.unavailable, second.revision), (8, 1));
    assert_eq!((first.revision, first.availability.undecided), (0, 8), "both values are kept");
    assert_eq!(second.revised(judged(complete)).revision, 1, "the same again is no revision");
}

#[test]
fn a_month_of_maintenance_has_no_availability_and_no_verdict() {
    let month = month_at(1_700_000_000 * SECOND, 0);
    let move_ = Exclusion::maintenance("move");
    let mut judge = Judge::new(available(4, None), "Lyon");
    let mut out = JudgeOutput::default();
    let whole = range(month.start_ns / SECOND, month.end_ns / SECOND);
    judge.push(JudgeInput::gap(whole).excluded(&move_), &mut out).unwrap();
    // The station has no data either, so that only the next second settles it.
    let next = record(month.end_ns / SECOND, month.end_ns / SECOND + 1, 10, 0);
    judge.push(JudgeInput::record(&next), &mut out).unwrap();
    let [over] = &out.months[..] else { panic!("{:?}", out.months) };
    assert_eq!((over.availability.base(), over.availability.low()), (0, None));
    assert_eq!(over.availability.excluded[0].length_ns, month.length_ns());
    assert_eq!((over.windows.excluded, over.windows.compliance()), (1, None));
    assert_eq!(out.windows, []);
}
