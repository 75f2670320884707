//! Shares compared by exact probabilities, and many tests at once.

/// Fisher's exact test, one-sided (Fisher, Statistical Methods for Research Workers, 5th edition,
/// 1934, section 21.02). It is the probability that, of `n` drawn from `total` of which `marked`
/// are marked, at least `found` are marked. Small: these have more than their share.
///
/// # Panics
/// Where the counts contradict each other: more found than drawn, or than are marked.
pub fn fisher_greater(found: u64, n: u64, marked: u64, total: u64) -> f64 {
    assert!(found <= n && n <= total && found <= marked && marked <= total);
    let fewest = n.saturating_sub(total - marked);
    if found <= fewest {
        return 1.0;
    }
    // Terms fall away from the mean on either side. The sum of the shorter tail is taken.
    let mean = n as f64 * marked as f64 / total as f64;
    if (found as f64) > mean {
        return tail(found, n, marked, total, true).min(1.0);
    }
    (1.0 - tail(found - 1, n, marked, total, false)).clamp(0.0, 1.0)
}

/// P values adjusted for their number by the step-down procedure of Holm (1979, Scandinavian
/// Journal of Statistics 6, 65-70). Rejecting those at or below a level errs in any of them with at
/// most that probability. That holds however the tests hang together.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 0.0f64;
    for (rank, &i) in order.iter().enumerate() {
        least = least.max(((p.len() - rank) as f64 * p[i]).min(1.0));
        adjusted[i] = least;
    }
    adjusted
}

/// Sum of the hypergeometric probabilities from `x` on, upwards or downwards, away from the mean.
fn tail(x: u64, n: u64, marked: u64, total: u64, up: bool) -> f64 {
    let others = total - marked;
    let log = ln_choose(marked, x) + ln_choose(others, n - x) - ln_choose(total, n);
    let first = log.exp();
    let (mut sum, mut term, mut at) = (1.0, 1.0, x);
    let last = if up { n.min(marked) } else { n.saturating_sub(others) };
    while at != last && term > sum * 1e-17 {
        // The ratio of neighbouring terms.
        if up {
            term *= (marked - at) as f64 * (n - at) as f64
                / ((at + 1) as f64 * (others + at + 1 - n) as f64);
            at += 1;
        } else {
            term *= at as f64 * (others + at - n) as f64
                / ((marked - at + 1) as f64 * (n - at + 1) as f64);
            at -= 1;
        }
        sum += term;
    }
    first * sum
}

fn ln_choose(n: u64, k: u64) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// ln n!: summed up to 256, beyond by Stirling's series (DLMF 5.11.1), whose next term is below
/// 1e-20 there.
fn ln_factorial(n: u64) -> f64 {
    if n < 256 {
        return (2..=n).map(|i| (i as f64).ln()).sum();
    }
    let x = n as f64;
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1_260.0 * x.powi(5));
    x * x.ln() - x + 0.5 * (std::f64::consts::TAU * x).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn probabilities_are_those_of_exact_fractions() {
        // Python: Fraction(sum(comb(K, i) * comb(N - K, n - i) for i in range(x, min(n, K) + 1)),
        //   comb(N, n)), as a double.
        let known = [
            ((3, 4, 4, 8), 0.242_857_142_857_142_85),
            ((30, 1_000, 60, 4_000), 2.299_111_615_232_534_8e-5),
            ((16, 1_000, 60, 4_000), 0.430_977_419_004_221_26),
            ((15, 1_000, 60, 4_000), 0.550_102_071_719_545_5),
            ((120, 1_000, 130, 4_000), 4.179_564_876_864_91e-62),
            ((12, 300, 12, 1_200), 5.040_265_680_703_079e-8),
            ((0, 5, 0, 20), 1.0),
            ((3, 10, 20, 25), 1.0),
        ];
        for ((found, n, marked, total), want) in known {
            let got = fisher_greater(found, n, marked, total);
            assert!((got / want - 1.0).abs() < 1e-9, "{found} of {n}: {got} {want}");
        }
    }

    #[test]
    fn logarithms_of_factorials_meet_at_the_seam() {
        // Python: math.fsum(math.log(i) for i in range(1, n + 1))
        let known = [
            (5, 4.787_491_742_782_046),
            (20, 42.335_616_460_753_485),
            (255, 1_161.712_101_118_400_6),
            (256, 1_167.257_278_562_880_2),
            (1_000, 5_912.128_178_488_163),
            (1_000_000, 12_815_518.384_658_169),
        ];
        for (n, want) in known {
            assert!((ln_factorial(n) - want).abs() <= 1e-12 * want.max(1.0), "{n}");
        }
    }

    #[test]
    fn holms_adjustment_is_his() {
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, want) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - want).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[]), Vec::<f64>::new());
        assert_eq!(holm(&[0.7, 0.9]), [1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn more_found_is_less_probable(n in 1..60u64, marked in 0..60u64, more in 0..60u64) {
            let total = n.max(marked) + more;
            let most = n.min(marked);
            let p: Vec<f64> = (0..=most).map(|x| fisher_greater(x, n, marked, total)).collect();
            prop_assert!((p[0] - 1.0).abs() < 1e-12);
            prop_assert!(p.windows(2).all(|w| w[1] <= w[0] + 1e-12), "{:?}", p);
        }
    }
}
