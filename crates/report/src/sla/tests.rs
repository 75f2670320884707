use sonde_results::sla::{AvailabilityTotals, SecondTotals, WindowTotals};

use super::*;

fn month(subject: &str, windows: [u64; 3]) -> ObjectiveMonth {
    let mut availability = AvailabilityTotals {
        interval_ns: 1_000_000_000,
        available: 999_990,
        unavailable: 10,
        outages: 1,
        longest_outage: 10,
        ..AvailabilityTotals::default()
    };
    availability.exclude(ExclusionKind::Maintenance, "=night & day", 3_600, 3_600_000_000_000);
    ObjectiveMonth {
        objective: "up".into(),
        subject: subject.into(),
        direction: MeasuredDirection::RoundTrip,
        text: "available at least 99.9 %".into(),
        standard: None,
        start_ns: 1_793_491_200_000_000_000,
        end_ns: 1_796_083_200_000_000_000,
        provisional: false,
        revision: 0,
        windows: WindowTotals {
            met: windows[0],
            missed: windows[1],
            undecided: windows[2],
            excluded: 0,
        },
        worst: None,
        availability,
        seconds: SecondTotals { errored: 3, errored_possible: 2, ..SecondTotals::default() },
        caveats: Vec::new(),
    }
}

fn report(groups: &[SlaReport]) -> SlaMonthReport<'_> {
    SlaMonthReport { station: "<ber>", month: "2026-11", by: "customer", at_ns: 0, groups }
}

#[test]
fn a_page_has_compliance_errored_seconds_unavailable_time_and_what_was_left_out() {
    let months = [month("muc EF", [1, 0, 0]), month("fra EF", [0, 1, 0])];
    let groups = [SlaReport::of("acme", &months).unwrap()];
    let page = report(&groups).html();
    for part in [
        "Service levels of &lt;ber&gt; in 2026-11",
        "2026-11-01 00:00:00 UTC to 2026-12-01 00:00:00 UTC.",
        "Objectives kept: 1. Missed: 1. Undecided: 0.",
        "<td>fra EF</td><td>0%</td>",
        "99.999%",
        "3 to 5",
        "10 s",
        "=night &amp; day",
        "available at least 99.9 %",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(!page.contains("not closed") && !page.contains("<ber>"), "{page}");
    let open = ObjectiveMonth { provisional: true, ..months[0].clone() };
    let groups = [SlaReport::of("acme", &[open]).unwrap()];
    assert!(report(&groups).html().contains("The month is not closed"));
    assert!(report(&[]).html().contains("Nothing was judged in 2026-11"));
}

#[test]
fn tables_have_all_digits_and_no_formula() {
    let months = [month("muc EF", [8, 1, 1])];
    let groups = [SlaReport::of("acme", &months).unwrap()];
    let text = |which| String::from_utf8(report(&groups).csv(which).unwrap()).unwrap();
    let objectives = text(SlaSheet::Objectives);
    let (head, row) = objectives.trim_end().split_once('\n').unwrap();
    let cells: Vec<&str> = row.split(',').collect();
    let of = |name: &str| cells[head.split(',').position(|n| n == name).unwrap()];
    assert_eq!((of("compliance_low"), of("compliance_high")), ("0.8", "0.9"));
    assert_eq!((of("availability_low"), of("unavailable_s")), ("0.99999", "10"));
    assert_eq!((of("errored_seconds"), of("excluded_s")), ("3", "3600"));
    assert_eq!(of("from"), "2026-11-01T00:00:00.000Z");
    let exclusions = text(SlaSheet::Exclusions);
    assert!(exclusions.contains("acme,up,muc EF,maintenance,'=night & day,3600,3600"));
    let worst = text(SlaSheet::Groups);
    assert!(worst.ends_with("acme,up,1,0,1,0,muc EF,0.8,0.9,0.99999,0.99999\n"), "{worst}");
}
