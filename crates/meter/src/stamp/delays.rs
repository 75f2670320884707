//! Round trips so far, for a display that cannot wait for records: these are settled only
//! one timeout after the probes left.

/// Least, mean and greatest of what was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    count: u64,
    sum: i128,
    min: i64,
    max: i64,
}

impl Delays {
    /// Adds a delay, ns.
    #[inline]
    pub fn add(&mut self, ns: i64) {
        self.merge(Delays { count: 1, sum: i128::from(ns), min: ns, max: ns });
    }

    /// Adds all of `other`.
    #[inline]
    pub fn merge(&mut self, other: Delays) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other;
            return;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Least, mean and greatest, ns; `None` without values.
    pub fn summary(&self) -> Option<(i64, f64, i64)> {
        (self.count > 0).then(|| (self.min, self.sum as f64 / self.count as f64, self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        let of = |values: &[i64]| {
            let mut all = Delays::default();
            values.iter().for_each(|&ns| all.add(ns));
            all
        };
        let mut parts = Delays::default();
        assert_eq!(parts.summary(), None);
        for part in [of(&[]), of(&[5, -1]), of(&[]), of(&[i64::MAX])] {
            parts.merge(part);
        }
        assert_eq!(parts, of(&[5, -1, i64::MAX]));
        assert_eq!(of(&[4, 2]).summary(), Some((2, 3.0, 4)));
    }
}
