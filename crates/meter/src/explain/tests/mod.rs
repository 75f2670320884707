//! Worked cases, and the simulation of the reference.

mod simulation;

use super::*;

fn label(kind: LabelKind, value: &str) -> Label {
    Label { kind, value: value.to_owned() }
}

fn counts(n: u64, bad: u64) -> SampleCounts {
    SampleCounts { n, bad }
}

/// Members of a group, each with so many bad ones of 1,000 now; about 5 before.
fn members(now: &[u64]) -> Question {
    let labels = (0..now.len()).map(|i| label(LabelKind::Member, &i.to_string())).collect();
    let series = |(i, &bad): (usize, &u64)| ExplainSeries {
        now: counts(1_000, bad),
        before: (0..12).map(|k| counts(1_000, 4 + (k + i as u64) % 3)).collect(),
        labels: vec![i],
    };
    let series = now.iter().enumerate().map(series).collect();
    Question { labels, series, interval_ns: 1_000_000_000, ..Question::default() }
}

#[test]
fn a_bad_member_is_named_and_the_others_acquitted() {
    let question = members(&[5, 60, 4, 6]);
    let answer = explain(&question);
    assert_eq!(answer.grade, ExplainGrade::Strong, "{answer:?}");
    assert_eq!(answer.causes.len(), 1);
    let cause = &answer.causes[0];
    assert_eq!((&cause.names, cause.kind), (&vec![vec![1]], Some(CauseKind::BadMember)));
    assert_eq!((cause.inside, cause.outside), (counts(1_000, 60), counts(3_000, 15)));
    assert_eq!((cause.purity, cause.series), (Some(1.0), 1));
    assert!((cause.coverage - 1.0).abs() < 0.05, "{cause:?}");
    let others: Vec<usize> = answer.acquitted.iter().map(|&(label, _)| label).collect();
    assert_eq!(others, [0, 2, 3]);
    assert_eq!(
        sentences(&question, &answer),
        [
            "Path member 1 explains 100% of the excess: 6% of 1,000 samples are bad there, 0.5% \
             elsewhere, 0.5% before.",
            "The other members of its group are not affected.",
            "As before: path member 0 (5 of 1,000), path member 2 (4 of 1,000), path member 3 (6 of \
             1,000).",
        ]
    );
}

#[test]
fn two_bad_members_are_rather_two_than_everything() {
    let mut question = members(&[5, 300, 4, 6, 5, 310, 4, 6]);
    question.series.iter_mut().flat_map(|s| &mut s.before).for_each(|counts| counts.bad = 0);
    let answer = explain(&question);
    let names: Vec<_> = answer.causes.iter().map(|c| c.names.clone()).collect();
    assert_eq!(names, [[vec![5]], [vec![1]]], "{answer:?}");
    assert_eq!(answer.grade, ExplainGrade::Strong);
}

#[test]
fn what_is_as_before_is_not_explained() {
    let question = members(&[5, 8, 4, 6]);
    let answer = explain(&question);
    assert_eq!((answer.grade, answer.causes.len()), (ExplainGrade::Silent, 0), "{answer:?}");
    let said = sentences(&question, &answer);
    assert!(said[0].starts_with("No single label explains the excess"), "{said:?}");
}

#[test]
fn all_that_got_worse_has_a_common_cause() {
    let answer = explain(&members(&[50, 60, 55, 48]));
    assert_eq!(answer.causes[0].names, [Vec::<usize>::new()]);
    assert_eq!(answer.causes[0].kind, Some(CauseKind::Common));
}

#[test]
fn names_that_cannot_be_told_apart_are_all_named() {
    let mut question = members(&[5, 60, 4, 6]);
    question.labels.push(label(LabelKind::Link, "b"));
    question.series[1].labels.push(4);
    let answer = explain(&question);
    assert_eq!(answer.causes[0].names, [vec![1], vec![4]]);
    let said = sentences(&question, &answer).join("\n");
    assert!(said.contains("Path member 1 or link b cannot be told apart"), "{said}");
}

#[test]
fn evidence_counts_at_its_time_only() {
    let mut question = members(&[5, 60, 4, 6]);
    question.onset_ns = 100_000_000_000;
    let flow = || EvidenceKind::GrownFlow { flow: "a to b".into(), before_bps: 1e6, now_bps: 9e6 };
    let filled = || EvidenceKind::Filled { before: 0.4, now: 0.98 };
    let at = |at_ns, kind| ExplainEvidence { name: vec![1], at_ns, kind };
    question.evidence = vec![at(99_000_000_000, filled()), at(100_000_000_000, flow())];
    let answer = explain(&question);
    assert_eq!(answer.causes[0].kind, Some(CauseKind::FilledLink));
    let said = sentences(&question, &answer);
    assert_eq!(
        said[1],
        "It went from 40% to 98% of its rate; flow a to b grew from 1.0 to 9.0 Mbit/s."
    );
    question.evidence = vec![at(90_000_000_000, filled()), at(102_000_000_000, flow())];
    assert_eq!(explain(&question).causes[0].kind, Some(CauseKind::BadMember));
}

#[test]
fn what_changed_at_the_onset_comes_first_among_equals() {
    // Two members are alike; the address of the second one's target changed.
    let mut question = members(&[5, 300, 4, 6, 5, 300, 4, 6]);
    question.series.iter_mut().flat_map(|s| &mut s.before).for_each(|counts| counts.bad = 0);
    question.onset_ns = 100_000_000_000;
    let at = |label, kind| ExplainEvidence { name: vec![label], at_ns: 100_000_000_000, kind };
    question.evidence = vec![at(5, EvidenceKind::Address)];
    let answer = explain(&question);
    assert_eq!(answer.causes[0].names, [vec![5]], "{answer:?}");
    assert_eq!(answer.causes[0].kind, Some(CauseKind::RouteChange));
    assert_eq!(sentences(&question, &answer)[1], "Its address changed at that time.");
    // A queue that drops is a link without room.
    question.evidence = vec![at(1, EvidenceKind::Drops { before: 0.0, now: 120.0 })];
    let answer = explain(&question);
    assert_eq!(answer.causes[0].names, [vec![1]], "{answer:?}");
    assert_eq!(answer.causes[0].kind, Some(CauseKind::FilledLink));
    assert_eq!(
        sentences(&question, &answer)[1],
        "It dropped 120 packets a second for want of room, and 0 before."
    );
}

#[test]
fn a_station_that_is_suspect_judges_only_with_another() {
    let mut question = members(&[5, 60, 4, 6]);
    question.labels.extend([label(LabelKind::Station, "a"), label(LabelKind::Station, "b")]);
    question.series.iter_mut().for_each(|s| s.labels.push(4));
    question.own = vec![OwnTime { label: 4, suspect: true, ..OwnTime::default() }];
    let answer = explain(&question);
    assert_eq!(answer.grade, ExplainGrade::CannotJudge);
    assert!(sentences(&question, &answer)[0].ends_with("the network is not judged."));
    // Another one sees it, too.
    let mut other = question.series[1].clone();
    other.labels = vec![1, 5];
    question.series.push(other);
    assert_eq!(explain(&question).grade, ExplainGrade::Strong);
}

#[test]
fn nothing_and_little_are_no_answer() {
    assert_eq!(explain(&Question::default()).grade, ExplainGrade::Silent);
    let mut question = members(&[5, 60, 4, 6]);
    question.series.iter_mut().for_each(|s| s.before.truncate(2));
    assert_eq!(explain(&question).grade, ExplainGrade::Leaning, "too few windows before");
    let mut question = members(&[0, 0, 0, 0]);
    question.series.iter_mut().for_each(|s| s.now = counts(0, 0));
    assert_eq!(explain(&question).grade, ExplainGrade::Silent);
}

#[test]
fn the_order_of_series_and_labels_does_not_matter() {
    let question = members(&[5, 60, 4, 40, 5, 5, 6, 4]);
    let answer = explain(&question);
    let mut turned = question.clone();
    turned.series.reverse();
    let again = explain(&turned);
    let names = |a: &Answer| a.causes.iter().map(|c| c.names.clone()).collect::<Vec<_>>();
    assert_eq!(names(&answer), names(&again));
    assert_eq!(names(&answer), [[vec![1]], [vec![3]]]);
}
