//! When an excess began.

/// The interval in which an excess began, by the cumulative sum of bad samples beyond the usual:
/// the last interval before which the sum was zero. `bad` and `usual` are the counts of each
/// interval, whose last one lies in the fault; `usual` may be fractions. `least` is half of the
/// smallest excess of an interval that matters, above 0.
///
/// `None`: there is no excess at the end.
pub fn onset(bad: &[u64], usual: &[f64], least: f64) -> Option<usize> {
    let (mut sum, mut begin) = (0.0f64, 0);
    for (i, (&bad, usual)) in bad.iter().zip(usual).enumerate() {
        if sum == 0.0 {
            begin = i;
        }
        sum = (sum + bad as f64 - usual - least).max(0.0);
    }
    (sum > 0.0).then_some(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_onset_is_where_the_sum_last_left_zero() {
        let usual = [2.0; 8];
        assert_eq!(onset(&[2, 9, 0, 0, 0, 9, 9, 9], &usual, 1.0), Some(5));
        assert_eq!(onset(&[2, 1, 3, 2, 2, 1, 2, 3], &usual, 1.0), None);
        assert_eq!(onset(&[9, 9, 9, 9, 9, 9, 9, 9], &usual, 1.0), Some(0));
        assert_eq!(onset(&[], &[], 1.0), None);
        // One quiet interval within a fault does not begin it anew.
        assert_eq!(onset(&[2, 2, 9, 9, 2, 9, 9, 9], &usual, 1.0), Some(2));
    }
}
