//! Statistics of repeated measurements: what a reader may conclude from a few values that
//! are skewed and few.
//!
//! Nothing here assumes a distribution. Repetitions may be too few for an interval or a test to
//! reach the level asked for. Then there is none, rather than one that promises too much.

mod exact;
mod order;
mod ranks;
mod shapley;

pub use exact::{fisher_greater, holm};
pub use order::{median, quantile};
pub use ranks::{MannWhitney, Shift, cliffs_delta, hodges_lehmann, least_p, mann_whitney};
pub use shapley::{ShapleyValue, interactions, shapley, shares};

use fastrand::Rng;
use serde::Serialize;

/// Level of every interval, and the complement of every test's.
pub const LEVEL: f64 = 0.95;

/// Resamples of a bootstrap. The ends of an interval are then known to about a thousandth of
/// the probability, which is finer than a handful of repetitions.
const RESAMPLES: usize = 5000;

/// Fewest values for an interval of their median. The widest that order statistics can give is from
/// the least to the greatest of n. It misses the true median with probability 2^(1-n): with five
/// values in 6 % of the cases.
pub const MEDIAN_VALUES: usize = 6;

/// An interval at [`LEVEL`], both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ConfidenceInterval {
    /// Lower end, in the unit of the values.
    pub low: f64,
    /// Upper end, in the unit of the values.
    pub high: f64,
}

/// Bootstrap interval of the median at [`LEVEL`] by percentiles of the resampled medians
/// (Efron 1979). `None` below [`MEDIAN_VALUES`].
///
/// BCa is not used: its acceleration comes from the jackknife, which is inconsistent for
/// quantiles.
pub fn median_interval(values: &[f64], seed: u64) -> Option<ConfidenceInterval> {
    if values.len() < MEDIAN_VALUES {
        return None;
    }
    bootstrap(values.len(), seed, |picked| {
        median(&picked.iter().map(|&i| values[i]).collect::<Vec<_>>())
    })
}

/// Percentile bootstrap: `statistic` of the indices of each resample of `n` cases.
fn bootstrap(
    n: usize,
    seed: u64,
    mut statistic: impl FnMut(&[usize]) -> Option<f64>,
) -> Option<ConfidenceInterval> {
    let mut rng = Rng::with_seed(seed);
    let mut picked = vec![0; n];
    let mut found = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        picked.fill_with(|| rng.usize(..n));
        found.push(statistic(&picked)?);
    }
    let tail = (1.0 - LEVEL) / 2.0;
    Some(ConfidenceInterval { low: quantile(&found, tail)?, high: quantile(&found, 1.0 - tail)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten skewed values.
    const VALUES: [f64; 10] = [3.1, 2.7, 4.4, 9.8, 3.3, 2.9, 3.0, 5.1, 3.6, 2.8];

    #[test]
    fn a_medians_interval_is_that_of_the_ideal_bootstrap() {
        // scipy 1.17.1: stats.bootstrap((v,), np.median, method='percentile',
        // n_resamples=400000, rng=1).confidence_interval -> (2.9, 4.4)
        let i = median_interval(&VALUES, 7).unwrap();
        assert!((i.low - 2.9).abs() < 0.051 && (i.high - 4.4).abs() < 0.351, "{i:?}");
        assert_eq!(median_interval(&VALUES, 7), Some(i), "the seed decides");
    }

    #[test]
    fn too_few_values_have_no_interval() {
        assert_eq!(median_interval(&VALUES[..5], 1), None);
        assert!(median_interval(&VALUES[..6], 1).is_some());
        assert_eq!(median_interval(&[4.0; 8], 1), Some(ConfidenceInterval { low: 4.0, high: 4.0 }));
    }

    #[test]
    fn the_interval_covers_the_median_about_as_often_as_it_says() {
        // Exponential, median ln 2: as skewed as latencies. The bootstrap of a median is known
        // to fall a little short at ten values.
        let mut rng = fastrand::Rng::with_seed(1962);
        let covered = (0..400)
            .filter(|&round| {
                let values: Vec<f64> = (0..10).map(|_| -(1.0 - rng.f64()).ln()).collect();
                let i = median_interval(&values, round).unwrap();
                (i.low..=i.high).contains(&std::f64::consts::LN_2)
            })
            .count();
        assert!((360..=396).contains(&covered), "seed 1962: {covered} of 400");
    }
}
