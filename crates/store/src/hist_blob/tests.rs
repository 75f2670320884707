use proptest::prelude::*;
use sonde_results::hist::{bounds_of, bucket_of};

use super::*;

fn hist(values: &[i64]) -> Hist {
    let mut h = Hist::default();
    values.iter().for_each(|&v| h.add(v));
    h
}

#[test]
fn the_octets_are_those_of_the_format() {
    assert_eq!(HistBlob::new(&Hist::default()).octets(), b"");
    // 70 and 40 and -5 ns: buckets 2, 1 and -1; minimum -5, range 75, sum 105.
    let blob = HistBlob::new(&hist(&[70, 40, -5]));
    assert_eq!(blob.octets(), [1, 3, 9, 75, 0xD2, 0x01, 1, 1, 2, 1, 1, 1]);
    assert_eq!(HistBlob::from_octets(blob.octets()), Some(blob));
    // A version that is not known yet, a cut, a bucket that no value has.
    for bad in [&[2, 3, 9][..], &[1, 3], &[1, 0, 0, 0, 0], &[1, 1, 0, 0, 0, 0x80, 0x80, 4, 1]] {
        assert_eq!(HistBlob::from_octets(bad), None, "{bad:?}");
    }
}

#[test]
fn a_summary_has_no_quantiles() {
    let mut sum = HistSum::default();
    sum.add(&HistBlob::summary(&hist(&[10, 20, 90])));
    assert_eq!((sum.held(), sum.quantile(0.5), sum.mean()), (0, None, Some(40.0)));
    assert_eq!((sum.head().min, sum.head().max), (10, 90));
    // Beside one with buckets, quantiles are of that one.
    sum.add(&HistBlob::new(&hist(&[5_000])));
    assert_eq!((sum.head().count, sum.held()), (4, 1));
    assert_eq!(bucket_of(sum.quantile(0.5).unwrap()), bucket_of(5_000));
    // Extremes of values without a bucket are no quantiles.
    sum.add(&HistBlob::summary(&hist(&[9_000_000])));
    assert_eq!([0.0, 0.5, 1.0].map(|q| bucket_of(sum.quantile(q).unwrap())), [bucket_of(5_000); 3]);
}

#[test]
fn more_than_32_bits_in_a_bucket_are_kept() {
    let mut h = hist(&[70_000]);
    (h.count, h.sum, h.buckets[0].1) = (1 << 32, 70_000 << 32, u32::MAX);
    h.buckets.push((h.buckets[0].0, 1));
    let mut sum = HistSum::default();
    sum.add(&HistBlob::new(&h));
    sum.add(&HistBlob::new(&h));
    let total: u64 = sum.to_hist().buckets.iter().map(|&(_, n)| u64::from(n)).sum();
    assert_eq!((sum.held(), total), (1 << 33, 1 << 33));
    assert_eq!(HistBlob::new(&h).to_hist(), h);
}

/// Round trips, small values, negative ones, and any.
fn values() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => (10u32..31).prop_flat_map(|e| (1i64 << e)..(2i64 << e)),
        1 => -2_000i64..2_000,
        1 => any::<i64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn octets_and_histogram_are_the_same(v in prop::collection::vec(values(), 0..300)) {
        let h = hist(&v);
        let blob = HistBlob::new(&h);
        prop_assert_eq!(&blob.to_hist(), &h);
        prop_assert_eq!(HistBlob::from_octets(blob.octets()), Some(blob.clone()));
        prop_assert_eq!(blob.held(), v.len() as u64);
    }

    /// From none to 3,000 values, cut into any parts, added in any order and in any grouping.
    #[test]
    fn merging_octets_is_merging_histograms(
        v in prop_oneof![
            3 => prop::collection::vec(values(), 0..60),
            1 => prop::collection::vec(values(), 0..3000),
        ],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        order in prop::collection::vec(any::<u64>(), 13),
        group in 1usize..5,
    ) {
        let mut at: Vec<usize> = cuts.iter().map(|i| i.index(v.len() + 1)).collect();
        at.extend([0, v.len()]);
        at.sort_unstable();
        let mut parts: Vec<&[i64]> = at.windows(2).map(|w| &v[w[0]..w[1]]).collect();
        let mut one_by_one = Hist::default();
        parts.iter().for_each(|p| one_by_one.merge(&hist(p)));
        let mut keyed: Vec<(u64, &[i64])> = parts.drain(..).enumerate().map(|(i, p)| (order[i % 13] ^ i as u64, p)).collect();
        keyed.sort();
        let mut sum = HistSum::default();
        for together in keyed.chunks(group) {
            let mut partial = HistSum::default();
            together.iter().for_each(|(_, p)| partial.add(&HistBlob::new(&hist(p))));
            sum.add(&partial.to_blob());
        }
        prop_assert_eq!(&sum.to_hist(), &one_by_one);
        prop_assert_eq!(&one_by_one, &hist(&v));
        // A percentile of the sum is that of all values, to the bucket.
        let mut sorted = v.clone();
        sorted.sort_unstable();
        for q in [0.0, 0.5, 0.9, 0.99, 1.0] {
            let truth = match sorted.len() {
                0 => None,
                n => Some(sorted[((q * n as f64).ceil() as usize).clamp(1, n) - 1]),
            };
            prop_assert_eq!(sum.quantile(q).map(bucket_of), truth.map(bucket_of));
            prop_assert_eq!(sum.quantile(q), one_by_one.quantile(q));
        }
    }

    #[test]
    fn arbitrary_octets_do_no_harm(octets in prop::collection::vec(any::<u8>(), 0..60)) {
        let blob = HistBlob(octets.clone().into());
        let _ = (blob.head(), blob.held(), blob.buckets().count());
        if let Some(good) = HistBlob::from_octets(&octets) {
            prop_assert!(good.buckets().all(|(b, _)| bounds_of(b).0 <= bounds_of(b).1));
        }
    }
}
