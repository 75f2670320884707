//! Medians and quantiles of few values.

/// The median; NaN where there is none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

/// The least value that a share `q` of all does not exceed (nearest rank); NaN where there is none.
pub fn quantile(values: impl IntoIterator<Item = f64>, q: f64) -> f64 {
    let mut all: Vec<f64> = values.into_iter().collect();
    all.sort_by(f64::total_cmp);
    let rank = (all.len() as f64 * q).ceil() as usize;
    all.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest_ones() {
        let ten = || (1..=10).map(f64::from);
        assert_eq!(
            [quantile(ten(), 0.5), quantile(ten(), 0.9), quantile(ten(), 1.0)],
            [5.0, 9.0, 10.0]
        );
        assert_eq!([quantile(ten(), 0.0), quantile([3.0, 1.0, 2.0], 0.5)], [1.0, 2.0]);
        assert!(median([]).is_nan());
    }
}
