use proptest::prelude::*;
use sonde_results::caveat::CaveatSet;

use super::*;
use crate::testing::{self, Random, START};

#[test]
fn a_row_says_what_its_record_said() {
    let mut random = Random(5);
    for _ in 0..50 {
        let record = testing::record(&mut random, START, 1_000_000_000, 12);
        let row = IntervalRow::new(SeriesId(3), &record);
        assert_eq!(row.counters(), record.counters);
        assert_eq!(row.loss_side(), record.loss_side);
        assert_eq!(row.rtt_net.to_hist(), record.rtt_net);
        let rtt = row.rtt.to_hist();
        assert_eq!((rtt.count, rtt.min, rtt.max, rtt.sum), {
            let r = &record.rtt;
            (r.count, r.min, r.max, r.sum)
        });
        assert!(rtt.buckets.is_empty());
        let clocks_differ = record.caveats.contains(Caveat::PeerClockUnsynchronised);
        assert_eq!(row.forward.held() == 0, clocks_differ || record.counters.received == 0);
        let mut caveats = CaveatSet::default();
        row.caveat_counts().for_each(|(bit, n)| {
            assert_eq!(n, 1);
            caveats.insert(Caveat::ALL[usize::from(bit)]);
        });
        assert_eq!(caveats, record.caveats);
        let (jitter, exact) = (f64::from(row.jitter_forward_ns), record.jitter_forward_ns);
        assert!((jitter - exact).abs() <= exact / 8_000.0, "{jitter} of {exact}");
        let times = [row.clear_ns, row.lossy_ns, row.down_ns];
        let c = &record.counters;
        let expected = match (c.lost, c.received) {
            (0, _) => [1, 0, 0],
            (_, 0) => [0, 0, 1],
            _ => [0, 1, 0],
        };
        assert_eq!(times, expected.map(|n: i64| n * 1_000_000_000));
    }
}

#[test]
fn an_interval_in_which_nothing_was_sent_is_neither_clear_nor_down() {
    let record = testing::record(&mut Random(1), START, 1_000_000_000, 0);
    let row = IntervalRow::new(SeriesId(0), &record);
    assert_eq!((row.clear_ns, row.lossy_ns, row.down_ns, row.length_ns), (0, 0, 0, 1_000_000_000));
}

#[test]
fn a_roll_up_says_of_how_many_intervals_a_caveat_is_true() {
    let rows = testing::intervals(9, 1, 60, 5);
    let late = rows.iter().filter(|r| r.caveats & 1 << Caveat::SenderLate as u8 != 0).count();
    let minute = IntervalRow::merged(&rows);
    let hour = IntervalRow::merged(&[minute.clone(), minute]);
    let mut sum = IntervalSum::default();
    sum.add(&hour);
    assert!(late > 3 && sum.intervals() == 120);
    assert!(sum.caveats().contains(&(Caveat::SenderLate, 2 * late as u64)), "{:?}", sum.caveats());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Cut into any parts, in any order, rolled up in two levels: the sum is that of all rows, and
    /// it agrees with what results makes of the records.
    #[test]
    fn sums_do_not_depend_on_order_or_grouping(
        seed in any::<u64>(), n in 1usize..40, group in 1usize..7, turn in 0usize..40,
    ) {
        let mut random = Random(seed);
        let records: Vec<_> = (0..n as i64)
            .map(|i| testing::record(&mut random, START + i * 1_000_000_000, 1_000_000_000, 6))
            .collect();
        let rows: Vec<_> = records.iter().map(|r| IntervalRow::new(SeriesId(2), r)).collect();
        let mut turned = rows.clone();
        turned.rotate_left(turn % n);
        let level1: Vec<_> = turned.chunks(group).map(IntervalRow::merged).collect();
        let level2: Vec<_> = level1.chunks(3).map(IntervalRow::merged).collect();
        let mut direct = IntervalSum::default();
        rows.iter().for_each(|r| direct.add(r));
        let mut stepwise = IntervalSum::default();
        level2.iter().for_each(|r| stepwise.add(r));
        prop_assert_eq!(direct.to_row(SeriesId(2), START), stepwise.to_row(SeriesId(2), START));

        let mut merged = records[0].clone();
        records[1..].iter().for_each(|r| merged.merge(r));
        prop_assert_eq!(stepwise.counters(), &merged.counters);
        prop_assert_eq!(stepwise.rtt_net.to_hist(), merged.rtt_net);
        prop_assert_eq!(stepwise.ipdv_forward.to_hist(), merged.ipdv_forward);
        prop_assert_eq!(stepwise.forward.head().sum, merged.forward.sum);
        prop_assert_eq!(stepwise.sources(), (merged.t1_source, merged.t4_source));
    }
}
