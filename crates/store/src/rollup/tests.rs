use proptest::prelude::*;

use super::*;
use crate::testing::{self, START};
use crate::{DAY_NS, HOUR_NS, MINUTE_NS};

fn segment(id: u64, table: Table, times_ns: (i64, i64), rolled: bool) -> SegmentInfo {
    SegmentInfo { id: SegmentId(id), table, times_ns, octets: 10 + id, rolled, tier: 0 }
}

#[test]
fn an_hour_is_due_when_it_is_over_and_its_grace_too() {
    let hour = START - START.rem_euclid(HOUR_NS);
    let all = [
        segment(1, Table::Interval1m, (hour + 5, hour + 9), false),
        segment(2, Table::Interval1m, (hour + 5, hour + 9), true),
        segment(3, Table::Interval1m, (hour + HOUR_NS, hour + HOUR_NS + 9), false),
        segment(4, Table::Interval1d, (hour, hour), false),
        // The end of one hour and the begin of the next one.
        segment(5, Table::Interval1m, (hour + HOUR_NS - 1, hour + HOUR_NS + 5), false),
    ];
    let due = |now| due_rollups(&all, now, MINUTE_NS);
    assert_eq!(due(hour + HOUR_NS + MINUTE_NS - 1), []);
    let expected = DueRollUp { to: Table::Interval1h, segments: vec![SegmentId(1), SegmentId(5)] };
    assert_eq!(due(hour + HOUR_NS + MINUTE_NS), [expected]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A store that does what is due: segments come in any order, also late ones, and each row of
    /// minutes reaches the hours once and the days once.
    #[test]
    fn each_row_is_rolled_up_once(
        arrivals in prop::collection::vec((0i64..3 * DAY_NS, 0i64..2 * HOUR_NS, 0i64..HOUR_NS), 1..60),
        grace in 0i64..HOUR_NS,
    ) {
        let mut now = 0;
        let mut all: Vec<SegmentInfo> = vec![];
        // Which segments of minutes are in each segment of a coarser table.
        let mut within: Vec<Vec<u64>> = vec![];
        let step = |all: &mut Vec<SegmentInfo>, within: &mut Vec<Vec<u64>>, now: i64| {
            loop {
                let due = due_rollups(all, now, grace);
                if due.is_empty() {
                    break;
                }
                for job in due {
                    assert!(job.segments.len() <= MOST_SOURCES && job.segments.is_sorted());
                    let (mut sources, mut times) = (vec![], (i64::MAX, i64::MIN));
                    for id in &job.segments {
                        let s = &mut all[id.0 as usize];
                        assert!(!s.rolled && s.table.coarser() == Some(job.to), "{s:?}");
                        s.rolled = true;
                        times = (times.0.min(s.times_ns.0), times.1.max(s.times_ns.1));
                        sources.extend(within[id.0 as usize].clone());
                    }
                    let window = |t: i64| t - t.rem_euclid(job.to.step_ns());
                    let id = all.len() as u64;
                    all.push(segment(id, job.to, (window(times.0), window(times.1)), false));
                    within.push(sources);
                }
            }
        };
        for (at, span, wait) in arrivals {
            let id = all.len() as u64;
            all.push(segment(id, Table::Interval1m, (at, at + span), false));
            within.push(vec![id]);
            now += wait;
            step(&mut all, &mut within, now);
            // What is over is rolled up; what is not, is not.
            for s in all.iter().filter(|s| s.table == Table::Interval1m) {
                let end = s.times_ns.0 - s.times_ns.0.rem_euclid(HOUR_NS) + HOUR_NS;
                prop_assert_eq!(s.rolled, end + grace <= now, "{:?} at {}", s, now);
            }
        }
        step(&mut all, &mut within, 100 * DAY_NS);
        for table in [Table::Interval1h, Table::Interval1d] {
            let mut seen: Vec<u64> = all.iter().filter(|s| s.table == table)
                .flat_map(|s| within[s.id.0 as usize].clone()).collect();
            seen.sort_unstable();
            let minutes: Vec<u64> = all.iter().filter(|s| s.table == Table::Interval1m).map(|s| s.id.0).collect();
            prop_assert_eq!(seen, minutes, "each once in {:?}", table);
        }
    }

    /// Compaction ends, joins only what belongs together, and leaves one segment for each period
    /// that is over.
    #[test]
    fn compaction_leaves_one_segment_of_a_period(
        arrivals in prop::collection::vec((0usize..11, 0i64..3 * HOUR_NS, any::<bool>()), 1..120),
    ) {
        let mut all: Vec<SegmentInfo> = arrivals.iter().enumerate()
            .map(|(i, &(table, at, rolled))| segment(i as u64, Table::ALL[table], (at - 5, at), rolled))
            .collect();
        let total: u64 = all.iter().map(|s| s.octets).sum();
        let mut next = all.len() as u64;
        for now in [2 * HOUR_NS, 1_000 * DAY_NS] {
            for round in 0.. {
                let due = due_compactions(&all, now, 0);
                if due.is_empty() {
                    break;
                }
                prop_assert!(round < 50, "it ends");
                for job in due {
                    prop_assert!((2..=MOST_SOURCES).contains(&job.segments.len()));
                    let (joined, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|s| job.segments.contains(&s.id));
                    prop_assert_eq!(joined.len(), job.segments.len(), "each in one job");
                    all = left;
                    let like = |s: &SegmentInfo| (s.table, s.rolled, s.times_ns.1.div_euclid(s.table.period_ns()));
                    prop_assert!(joined.iter().all(|s| like(s) == like(&joined[0])));
                    all.push(SegmentInfo {
                        id: SegmentId(next),
                        times_ns: (joined.iter().map(|s| s.times_ns.0).min().unwrap(), joined.iter().map(|s| s.times_ns.1).max().unwrap()),
                        octets: joined.iter().map(|s| s.octets).sum(),
                        tier: joined.iter().map(|s| s.tier).max().unwrap() + 1,
                        ..joined[0].clone()
                    });
                    next += 1;
                }
            }
        }
        prop_assert_eq!(all.iter().map(|s| s.octets).sum::<u64>(), total);
        let mut groups: Vec<_> = all.iter().map(|s| (s.table, s.rolled, s.times_ns.1.div_euclid(s.table.period_ns()))).collect();
        groups.sort();
        prop_assert!(groups.windows(2).all(|w| w[0] != w[1]), "one a period");
    }

    /// Rolling up minute by minute and hour by hour, in parts, is rolling up all at once.
    #[test]
    fn a_roll_up_of_roll_ups_is_that_of_all_rows(seed in any::<u64>(), cut in 1usize..200) {
        let rows = testing::intervals(seed, 3, 100, 2);
        let sorted = |mut rows: Vec<IntervalRow>| {
            rows.sort_by_key(StoredRow::key);
            rows
        };
        let roll = |rows: Vec<IntervalRow>, step: i64| -> Vec<IntervalRow> {
            let rows = sorted(rows).into_iter().map(Ok::<_, ()>);
            IntervalRollUp::new(rows, step).map(Result::unwrap).collect()
        };
        let partial: Vec<IntervalRow> = rows.chunks(cut).flat_map(|part| roll(part.to_vec(), MINUTE_NS)).collect();
        let merged: Vec<IntervalRow> = merge_equal(sorted(partial.clone()).into_iter().map(Ok::<_, ()>)).map(Result::unwrap).collect();
        prop_assert_eq!(&merged, &roll(rows.clone(), MINUTE_NS));
        prop_assert_eq!(roll(partial, HOUR_NS), roll(rows, HOUR_NS));
    }

    #[test]
    fn an_error_among_rows_is_an_error_of_the_roll_up(n in 1usize..6) {
        let mut rows: Vec<Result<IntervalRow, &str>> = testing::intervals(1, 1, 5, 2).into_iter().map(Ok).collect();
        rows.insert(n - 1, Err("torn"));
        prop_assert!(IntervalRollUp::new(rows.clone().into_iter(), HOUR_NS).any(|r| r.is_err()));
        prop_assert!(merge_equal(rows.into_iter()).any(|r| r.is_err()));
    }
}
