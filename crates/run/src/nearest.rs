//! What a misspelt name may have been meant as.

/// The known name at the least edit distance, if that is at most a third of the letters.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.chars().count() / 3).max(1);
    let apart = |other: &&'a str| distance(&name.to_lowercase(), &other.to_lowercase());
    known.into_iter().min_by_key(apart).filter(|other| apart(other) <= most)
}

/// For the end of a sentence.
pub fn did_you_mean(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

/// Letters to insert, take out, change, or swap with the next (optimal string alignment).
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut least =
                (rows[i - 1][j - 1] + change).min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["throughput", "latency_p99", "loss_ratio"];
        assert_eq!(nearest("troughput", known), Some("throughput"));
        assert_eq!(nearest("throughptu", known), Some("throughput"));
        assert_eq!(nearest("Latency_p95", known), Some("latency_p99"));
        assert_eq!(nearest("jitter", known), None);
        assert_eq!(nearest("x", []), None);
        assert_eq!(distance("", "abc"), 3);
    }

    proptest! {
        #[test]
        fn only_the_same_is_at_no_distance(a in "[a-c]{0,6}", b in "[a-c]{0,6}") {
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert_eq!(distance(&a, &b) == 0, a == b);
        }
    }
}
