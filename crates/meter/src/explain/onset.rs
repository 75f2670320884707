//! When an excess began, and when it was last seen.

/// The intervals in which an excess began and was last seen, by the cumulative sum of bad samples
/// beyond the usual. The last is that of the sum's greatest value. The first is the last one before
/// it in which the sum was zero. `bad` and `usual` are the counts of each interval; `usual` may be
/// fractions. `least` is half of the smallest excess of an interval that matters, above 0. An
/// excess at or after `after` is meant, where there is one.
///
/// `None`: there is no excess.
pub fn onset(bad: &[u64], usual: &[f64], least: f64, after: usize) -> Option<(usize, usize)> {
    let (mut sum, mut begin) = (0.0f64, 0);
    let mut best: Option<(f64, usize, usize)> = None;
    for (i, (&bad, usual)) in bad.iter().zip(usual).enumerate() {
        if sum == 0.0 {
            begin = i;
        }
        sum = (sum + bad as f64 - usual - least).max(0.0);
        let greater = best.is_none_or(|(greatest, ..)| sum > greatest);
        if i >= after && sum > 0.0 && greater {
            best = Some((sum, begin, i));
        }
    }
    best.map(|(_, begin, end)| (begin, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_onset_is_where_the_sum_last_left_zero() {
        let usual = [2.0; 8];
        let of = |bad: &[u64], after| onset(bad, &usual, 1.0, after);
        assert_eq!(of(&[2, 9, 0, 0, 0, 9, 9, 9], 0), Some((5, 7)));
        assert_eq!(of(&[2, 1, 3, 2, 2, 1, 2, 3], 0), None);
        assert_eq!(of(&[9, 9, 9, 9, 9, 9, 9, 9], 0), Some((0, 7)));
        assert_eq!(of(&[], 0), None);
        // One quiet interval within a fault does not begin it anew.
        assert_eq!(of(&[2, 2, 9, 9, 2, 9, 9, 9], 0), Some((2, 7)));
    }

    #[test]
    fn an_excess_that_is_over_has_an_end() {
        let usual = [2.0; 8];
        assert_eq!(onset(&[2, 2, 9, 9, 2, 2, 2, 2], &usual, 1.0, 0), Some((2, 3)));
        // An older one, which was greater and is over, is not meant.
        assert_eq!(onset(&[90, 0, 2, 2, 2, 2, 9, 9], &usual, 60.0, 5), None);
        assert_eq!(onset(&[30, 2, 2, 2, 2, 2, 9, 9], &usual, 6.0, 5), Some((6, 7)));
    }
}
