//! Medians and quantiles of plain lists.

/// The middle value, or the mean of the two middle ones. `None` without values; values that
/// are not finite are left out.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile `q` (0..=1), interpolated between order statistics: definition 7 of Hyndman
/// and Fan (1996), which numpy and R use by default. `None` without values; values that are
/// no numbers are left out.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    let last = sorted.len().checked_sub(1)?;
    sorted.sort_unstable_by(f64::total_cmp);
    let position = q.clamp(0.0, 1.0) * last as f64;
    let (below, share) = (position as usize, position.fract());
    let (a, b) = (sorted[below], sorted[(below + 1).min(last)]);
    // Where both are equal or infinite the difference is of no use.
    Some(if share == 0.0 || a == b { a } else { a + (b - a) * share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_numpys() {
        // numpy 2: np.quantile([15, 20, 35, 40, 50], [0, .05, .3, .5, .95, 1])
        //   -> [15. 16. 23. 35. 48. 50.]
        let v = [40.0, 15.0, 50.0, 20.0, 35.0];
        for (q, want) in [(0.0, 15.0), (0.05, 16.0), (0.3, 23.0), (0.5, 35.0), (0.95, 48.0)] {
            assert!((quantile(&v, q).unwrap() - want).abs() < 1e-12, "{q}");
        }
        assert_eq!(quantile(&v, 1.0), Some(50.0));
        assert_eq!(median(&[1.0, 4.0, 2.0, 3.0]), Some(2.5));
        assert_eq!((median(&[]), median(&[f64::NAN])), (None, None));
        assert_eq!(median(&[f64::INFINITY, f64::INFINITY]), Some(f64::INFINITY));
    }

    proptest! {
        #[test]
        fn quantiles_rise_and_stay_within(v in prop::collection::vec(-1e9f64..1e9, 1..40),
                                          a in 0.0f64..=1.0, b in 0.0f64..=1.0) {
            let (low, high) = (quantile(&v, a.min(b)).unwrap(), quantile(&v, a.max(b)).unwrap());
            prop_assert!(low <= high);
            prop_assert!(quantile(&v, 0.0).unwrap() <= low && high <= quantile(&v, 1.0).unwrap());
        }
    }
}
