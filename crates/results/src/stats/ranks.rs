//! Two samples compared by ranks: Mann-Whitney, Hodges-Lehmann and Cliff's delta.

use super::{ConfidenceInterval, LEVEL, median};

/// The rank-sum test of two samples (Mann and Whitney 1947), two-sided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MannWhitney {
    /// U of the first sample: pairs in which its value is the greater, ties half.
    pub u: f64,
    /// Probability of a U at least as extreme, were both samples of one distribution.
    pub p: f64,
    /// Counted out over all divisions of the values, ties included, rather than approximated.
    pub exact: bool,
}

/// How far the second sample lies from the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// Median of the differences of all pairs, second minus first (Hodges and Lehmann 1963).
    pub shift: f64,
    /// Those shifts which the rank-sum test does not refute; `None`: too few values for
    /// [`LEVEL`].
    pub interval: Option<ConfidenceInterval>,
}

/// Tests whether `a` and `b` may be of one distribution. `None` where one is empty.
///
/// Exact up to [`EXACT`] values together, also with ties; beyond by the normal approximation
/// with the correction for ties and for continuity.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<MannWhitney> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (ranks, ties) = doubled_ranks(a, b);
    let (n, m) = (a.len(), b.len());
    let sum: u64 = ranks[..n].iter().sum();
    let u = sum as f64 / 2.0 - (n * (n + 1)) as f64 / 2.0;
    let exact = n + m <= EXACT;
    let p = if exact { exact_p(&ranks, n, sum) } else { normal_p(u, n, m, ties) };
    Some(MannWhitney { u, p, exact })
}

/// The least two-sided p that samples of these sizes can reach: where all values of one lie
/// beyond all of the other.
pub fn least_p(n: usize, m: usize) -> f64 {
    // 2 / C(n + m, n), term by term so that nothing overflows.
    let ways = (1..=n.min(m)).fold(1.0, |w, i| w * (n.max(m) + i) as f64 / i as f64);
    (2.0 / ways).min(1.0)
}

/// The shift from `a` to `b` with its interval at [`LEVEL`]. `None` where one is empty.
pub fn hodges_lehmann(a: &[f64], b: &[f64]) -> Option<Shift> {
    let mut differences: Vec<f64> =
        b.iter().flat_map(|y| a.iter().map(move |x| y - x)).filter(|d| !d.is_nan()).collect();
    differences.sort_unstable_by(f64::total_cmp);
    let shift = median(&differences)?;
    let interval = cut_off(a.len(), b.len()).filter(|&k| 2 * k < differences.len()).map(|k| {
        ConfidenceInterval { low: differences[k], high: differences[differences.len() - 1 - k] }
    });
    Some(Shift { shift, interval })
}

/// Cliff's delta: how much more often a value of `b` is greater than one of `a` than the other way
/// round (Cliff 1993). It is -1 to 1. `None` where one is empty.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> Option<f64> {
    let pairs = a.len() * b.len();
    let signs = b.iter().flat_map(|y| a.iter().map(move |x| i64::from(y > x) - i64::from(y < x)));
    (pairs > 0).then(|| signs.sum::<i64>() as f64 / pairs as f64)
}

/// Twice the midrank of each value of `a`, then of each of `b`, and the sum of t^3 - t over
/// groups of t ties.
fn doubled_ranks(a: &[f64], b: &[f64]) -> (Vec<u64>, f64) {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|&i, &j| all[i].total_cmp(&all[j]));
    let mut ranks = vec![0; all.len()];
    let (mut ties, mut at) = (0.0, 0);
    while at < order.len() {
        let group = order[at..].iter().take_while(|&&i| all[i] == all[order[at]]).count().max(1);
        // The ranks at+1 to at+group; their mean, doubled, is the sum of the outermost.
        order[at..at + group].iter().for_each(|&i| ranks[i] = (2 * at + group + 1) as u64);
        ties += (group * group * group - group) as f64;
        at += group;
    }
    (ranks, ties)
}

/// Two-sided probability of the rank sum `sum` (doubled), from the number of ways in which `n` of
/// `ranks` have each sum. It is a knapsack's recurrence, which ties do not disturb.
fn exact_p(ranks: &[u64], n: usize, sum: u64) -> f64 {
    let total = ranks.iter().sum::<u64>() as usize;
    let mut ways = vec![vec![0.0; total + 1]; n + 1];
    ways[0][0] = 1.0;
    for (seen, &rank) in ranks.iter().enumerate() {
        for chosen in (1..=n.min(seen + 1)).rev() {
            let (fewer, more) = ways.split_at_mut(chosen);
            let (from, to) = (&fewer[chosen - 1], &mut more[0]);
            for s in rank as usize..=total {
                to[s] += from[s - rank as usize];
            }
        }
    }
    let ways = &ways[n];
    let all: f64 = ways.iter().sum();
    let (below, above): (f64, f64) =
        (ways[..=sum as usize].iter().sum(), ways[sum as usize..].iter().sum());
    (2.0 * below.min(above) / all).min(1.0)
}

/// The same by the normal approximation.
fn normal_p(u: f64, n: usize, m: usize, ties: f64) -> f64 {
    let (n, m) = (n as f64, m as f64);
    let all = n + m;
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
    erfc(distance / variance.sqrt() / std::f64::consts::SQRT_2).min(1.0)
}

/// How many of the sorted differences to leave out at either end; `None`: even the whole range
/// falls short of [`LEVEL`].
fn cut_off(n: usize, m: usize) -> Option<usize> {
    let tail = (1.0 - LEVEL) / 2.0;
    if n + m > EXACT {
        let (n, m) = (n as f64, m as f64);
        let sigma = (n * m * (n + m + 1.0) / 12.0).sqrt();
        return Some((n * m / 2.0 - Z * sigma - 0.5).floor().max(0.0) as usize);
    }
    if n == 0 || m == 0 {
        return None;
    }
    // The distribution of U without ties: the sums of n of the ranks 1..=n+m.
    let ranks: Vec<usize> = (1..=n + m).collect();
    let least = n * (n + 1) / 2;
    let mut ways = vec![vec![0.0; n * m + least + 1]; n + 1];
    ways[0][0] = 1.0;
    for &rank in &ranks {
        for chosen in (1..=n).rev() {
            let (fewer, more) = ways.split_at_mut(chosen);
            let (from, to) = (&fewer[chosen - 1], &mut more[0]);
            for s in rank..to.len() {
                to[s] += from[s - rank];
            }
        }
    }
    let ways = &ways[n][least..];
    let all: f64 = ways.iter().sum();
    let mut seen = 0.0;
    let within = ways.iter().take_while(|&&w| {
        seen += w;
        seen / all <= tail
    });
    within.count().checked_sub(1)
}

/// Complementary error function of x >= 0. It is the Taylor series of erf (DLMF 7.6.1), and beyond
/// 2.5, where its terms would cancel, the continued fraction (DLMF 7.9.1).
fn erfc(x: f64) -> f64 {
    let root_of_pi = std::f64::consts::PI.sqrt();
    if x < 2.5 {
        let terms = (0..80).scan(x, |power, n| {
            let term = *power / f64::from(2 * n + 1);
            *power *= -x * x / f64::from(n + 1);
            Some(term)
        });
        1.0 - 2.0 / root_of_pi * terms.sum::<f64>()
    } else {
        let fraction = (1..=60).rev().fold(x, |below, n| x + f64::from(n) / 2.0 / below);
        (-x * x).exp() / (root_of_pi * fraction)
    }
}

/// Values of both samples together up to which probabilities are counted out: some ten million
/// additions at most.
pub const EXACT: usize = 60;

/// Quantile of the normal distribution at 1 - (1 - [`LEVEL`]) / 2.
const Z: f64 = 1.959_963_984_540_054;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: [f64; 6] = [12.0, 15.0, 11.0, 18.0, 14.0, 13.5];
    const B: [f64; 7] = [16.0, 19.0, 21.0, 17.0, 14.5, 22.0, 20.0];

    #[test]
    fn probabilities_are_scipys() {
        // scipy 1.17.1: stats.mannwhitneyu(A, B, method='exact')
        //   -> statistic=4.0, pvalue=0.013986013986013986
        let r = mann_whitney(&A, &B).unwrap();
        assert_eq!((r.u, r.exact), (4.0, true));
        assert!((r.p - 0.013_986_013_986_013_986).abs() < 1e-12, "{}", r.p);
        // With ties: stats.permutation_test((a, b), lambda x, y: stats.mannwhitneyu(x, y)
        //   .statistic, permutation_type='independent', n_resamples=np.inf) for
        //   a = [1, 2, 2, 3, 5], b = [2, 4, 5, 5, 6, 7] -> pvalue=0.08225108225108226
        let r = mann_whitney(&[1.0, 2.0, 2.0, 3.0, 5.0], &[2.0, 4.0, 5.0, 5.0, 6.0, 7.0]).unwrap();
        assert!((r.p - 0.082_251_082_251_082_26).abs() < 1e-12, "{}", r.p);
    }

    #[test]
    fn many_values_are_approximated_as_scipy_does() {
        // a = [(i * 37) % 101 for i in range(40)]; b = [(i * 53) % 103 + 9 for i in range(45)];
        // stats.mannwhitneyu(a, b, method='asymptotic')
        //   -> statistic=804.5, pvalue=0.4028794882202317
        let a: Vec<f64> = (0..40).map(|i| f64::from(i * 37 % 101)).collect();
        let b: Vec<f64> = (0..45).map(|i| f64::from(i * 53 % 103 + 9)).collect();
        let r = mann_whitney(&a, &b).unwrap();
        assert!(!r.exact && r.u == 804.5, "{r:?}");
        assert!((r.p - 0.402_879_488_220_231_7).abs() < 1e-12, "{r:?}");
    }

    #[test]
    fn the_normal_tail_is_right_on_both_sides_of_the_seam() {
        // scipy 1.17.1: special.erfc([0, 0.5, 2.4, 2.6, 6])
        let known = [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (2.4, 6.885_138_966_450_785e-4),
            (2.6, 2.360_344_165_293_49e-4),
            (6.0, 2.151_973_671_249_891_6e-17),
        ];
        for (x, want) in known {
            assert!((erfc(x) / want - 1.0).abs() < 1e-11, "{x}: {}", erfc(x));
        }
    }

    #[test]
    fn equal_samples_show_no_difference() {
        for n in [3, 50] {
            let same = vec![7.0; n];
            assert_eq!(mann_whitney(&same, &same).unwrap().p, 1.0);
            assert_eq!(cliffs_delta(&same, &same), Some(0.0));
            assert_eq!(hodges_lehmann(&same, &same).unwrap().shift, 0.0);
        }
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(hodges_lehmann(&[1.0], &[]), None);
    }

    #[test]
    fn the_least_p_is_that_of_samples_apart() {
        for (n, m) in [(1, 1), (3, 3), (4, 4), (5, 9)] {
            let a: Vec<f64> = (0..n).map(f64::from).collect();
            let b: Vec<f64> = (0..m).map(|i| f64::from(100 + i)).collect();
            let p = mann_whitney(&a, &b).unwrap().p;
            assert!((p - least_p(a.len(), b.len())).abs() < 1e-12, "{n} {m}");
        }
        assert!(least_p(3, 3) > 0.05 && least_p(4, 4) < 0.05);
    }

    #[test]
    fn a_shifts_interval_is_rs() {
        // The exact interval of R's wilcox.test(B, A, conf.int = TRUE): differences 7 to 36 of
        // the 42, for qwilcox(0.025, 6, 7) = 7.
        let s = hodges_lehmann(&A, &B).unwrap();
        let mut d: Vec<f64> = B.iter().flat_map(|b| A.iter().map(move |a| b - a)).collect();
        d.sort_by(f64::total_cmp);
        assert_eq!(s.shift, (d[20] + d[21]) / 2.0);
        assert_eq!(s.interval, Some(ConfidenceInterval { low: d[6], high: d[35] }));
        assert_eq!(hodges_lehmann(&A[..3], &B[..3]).unwrap().interval, None);
        assert!((cliffs_delta(&A, &B).unwrap() - (38.0 - 4.0) / 42.0).abs() < 1e-12);
    }

    #[test]
    fn the_interval_narrows_where_probabilities_are_approximated() {
        let a: Vec<f64> = (0..31).map(f64::from).collect();
        let b: Vec<f64> = a.iter().map(|v| v + 10.0).collect();
        let few = hodges_lehmann(&a[..30], &b[..30]).unwrap().interval.unwrap();
        let many = hodges_lehmann(&a, &b).unwrap().interval.unwrap();
        assert!((few.low - many.low).abs() <= 1.0 && (few.high - many.high).abs() <= 1.0);
        assert!(many.low > 0.0 && many.low < 10.0 && many.high > 10.0);
    }

    proptest! {
        #[test]
        fn swapping_the_samples_turns_signs_only(
            a in prop::collection::vec(-20i32..20, 1..15),
            b in prop::collection::vec(-20i32..20, 1..15),
        ) {
            let a: Vec<f64> = a.into_iter().map(f64::from).collect();
            let b: Vec<f64> = b.into_iter().map(f64::from).collect();
            let (x, y) = (mann_whitney(&a, &b).unwrap(), mann_whitney(&b, &a).unwrap());
            prop_assert!((x.p - y.p).abs() < 1e-9 && x.p > 0.0 && x.p <= 1.0);
            prop_assert_eq!(x.u + y.u, (a.len() * b.len()) as f64);
            prop_assert_eq!(cliffs_delta(&a, &b), cliffs_delta(&b, &a).map(|d| 0.0 - d));
            let (s, t) = (hodges_lehmann(&a, &b).unwrap(), hodges_lehmann(&b, &a).unwrap());
            prop_assert_eq!(s.shift, -t.shift);
            prop_assert_eq!(s.interval.map(|i| (i.low, i.high)), t.interval.map(|i| (-i.high, -i.low)));
        }
    }
}
