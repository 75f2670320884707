//! Shares held against counts without rounding.
//!
//! "99.9 %" is no double. At exactly P of N samples a product of doubles may fall on either side,
//! and equality decides here whether an objective was met.

/// The denominator of every [`parts`].
pub(super) const WHOLE: i128 = 1_000_000_000_000;

/// The share (0..=1) as a count of [`WHOLE`]: exact for up to twelve decimals.
pub(super) fn parts(share: f64) -> i128 {
    (share * WHOLE as f64).round() as i128
}

/// The percentage (0..=100) likewise: exact for up to ten decimals.
pub(super) fn percent_parts(percent: f64) -> i128 {
    (percent * (WHOLE / 100) as f64).round() as i128
}

/// Whether `part` of `whole` is more than the share that `limit` parts are.
pub(super) fn exceeds(part: u64, whole: u64, limit: i128) -> bool {
    i128::from(part) * WHOLE > limit * i128::from(whole)
}

/// Samples that a statement at 95 % about the share `beyond` (0 to 1) needs where none was beyond:
/// the least N with (1 - beyond)^N <= 0.05. Of a P-quantile `beyond` is 1 - P.
pub(super) fn least_samples(beyond: f64) -> u64 {
    if beyond <= 0.0 {
        return u64::MAX;
    }
    if beyond >= 0.95 {
        return 1;
    }
    (0.05f64.ln() / (-beyond).ln_1p()).ceil() as u64
}

/// Whether `bad` of `n` samples refute at 95 % that at most the share `limit` (0 to 1) of all is bad:
/// so many or more were seen with a probability of at most 5 % then, by the exact binomial
/// distribution (one-sided; RFC 6703, section 8.2 asks for the sample size beside it).
pub(super) fn refutes(bad: u64, n: u64, limit: f64) -> bool {
    if bad == 0 || n == 0 || limit >= 1.0 {
        return false;
    }
    if limit <= 0.0 || bad > n {
        return true;
    }
    // Below the mean it never does. Above it the sum is soon found.
    if (bad as f64) <= n as f64 * limit {
        return false;
    }
    let odds = limit.ln() - (-limit).ln_1p();
    let (mut ln_p, mut fewer) = (n as f64 * (-limit).ln_1p(), 0.0);
    for i in 0..bad {
        fewer += ln_p.exp();
        if fewer >= 0.95 {
            return true;
        }
        ln_p += ((n - i) as f64).ln() - ((i + 1) as f64).ln() + odds;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_is_exact() {
        for (percent, n) in [(99.9, 1_000u64), (99.9, 3_000), (95.0, 60), (99.99, 70_000)] {
            let within = (n as f64 * percent / 100.0).round() as u64;
            let limit = WHOLE - percent_parts(percent);
            assert!(!exceeds(n - within, n, limit), "{percent} of {n}: just met");
            assert!(exceeds(n - within + 1, n, limit), "{percent} of {n}: one too many");
        }
        assert!(!exceeds(3, 3_000, parts(1e-3)) && exceeds(4, 3_000, parts(1e-3)));
        assert!(!exceeds(1, 100_000, parts(1e-5)) && exceeds(1, 99_999, parts(1e-5)));
    }

    #[test]
    fn fewest_samples_are_those_of_the_order_statistics() {
        // reference: N >= ln 0.05 / ln P.
        for (percent, n) in [(90.0, 29), (95.0, 59), (99.0, 299), (99.9, 2_995)] {
            assert_eq!(least_samples(1.0 - percent / 100.0), n, "{percent}");
        }
        assert_eq!(least_samples(1e-3), 2_995);
        assert_eq!(least_samples(1e-5), 299_572);
        assert_eq!((least_samples(0.0), least_samples(1.0)), (u64::MAX, 1));
    }

    #[test]
    fn few_samples_refute_what_they_could_hardly_show_by_chance() {
        // P(X >= 3 | 600, 0.001) = 0.0231, P(X >= 2) = 0.1219 (computed by summing the terms).
        assert!(refutes(3, 600, 1e-3) && !refutes(2, 600, 1e-3));
        // P(X >= 1 | 51, 0.001) = 0.0498, of 52 it is 0.0507.
        assert!(refutes(1, 51, 1e-3) && !refutes(1, 52, 1e-3));
        // P(X >= 15 | 200, 0.05) = 0.0781, P(X >= 16) = 0.0444.
        assert!(refutes(16, 200, 0.05) && !refutes(15, 200, 0.05));
        assert!(refutes(200, 200, 1e-3));
        assert!(refutes(1, 1, 0.0) && !refutes(0, 9, 0.0) && !refutes(9, 9, 1.0));
        // Far beyond what a double can hold of (1 - p)^n.
        assert!(!refutes(100_000, 1_000_000, 0.1) && !refutes(99_000, 1_000_000, 0.1));
    }
}
