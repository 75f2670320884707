//! Members of a group that lose more than the others: a bad link among equal-cost paths.
//!
//! Each member is held against all others of its group by Fisher's exact test, one-sided, from
//! counts alone. The tests are many, so their probabilities are adjusted by the procedure of Holm.
//! Where no member is worse, any is named with at most the stated error rate.
//!
//! The test takes losses to be independent. They come in bursts, so all counts are divided by the
//! dispersion: the variance of losses in an interval over their mean.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::stats::{fisher_greater, holm};

/// What one member of a group lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberCounts {
    /// The member: an index that the caller gave, as that of a stream.
    pub member: u32,
    /// Packets sent.
    pub sent: u64,
    /// Packets lost of those.
    pub lost: u64,
}

/// A member that is worse than its group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorseMember {
    /// Which, with its counts.
    pub counts: MemberCounts,
    /// Packets sent by all others.
    pub others_sent: u64,
    /// Packets that all others lost.
    pub others_lost: u64,
    /// Probability of so many losses or more were it like the others, adjusted for the number of
    /// members.
    pub p: f64,
}

/// Members that lose more than the others of their group, the surest first. Where none is worse,
/// any is named with a probability of at most `error_rate` (0 to 1). `dispersion` is that of
/// [`dispersion`], 1 or more.
///
/// Every second member being bad is no group with bad members: they raise the others' share, and
/// the test becomes weak.
pub fn worse_members(
    members: &[MemberCounts],
    error_rate: f64,
    dispersion: f64,
) -> Vec<WorseMember> {
    let factor = if dispersion.is_finite() { dispersion.max(1.0) } else { f64::MAX };
    let less = |count: u64| (count as f64 / factor) as u64;
    let sent: u64 = members.iter().map(|m| m.sent).sum();
    let lost: u64 = members.iter().map(|m| m.lost.min(m.sent)).sum();
    let p: Vec<f64> = members
        .iter()
        .map(|m| {
            // Rounded against the finding: fewer losses here, more there.
            let (n, own) = (less(m.sent), less(m.lost.min(m.sent)));
            let others = less(sent - m.sent);
            let others_lost = (lost - m.lost.min(m.sent)) as f64 / factor;
            let others_lost = (others_lost.ceil() as u64).min(others);
            if others == 0 { 1.0 } else { fisher_greater(own, n, own + others_lost, n + others) }
        })
        .collect();
    let adjusted = holm(&p);
    let mut worse: Vec<WorseMember> = members
        .iter()
        .zip(adjusted)
        .filter(|&(_, p)| p <= error_rate)
        .map(|(&counts, p)| WorseMember {
            counts,
            others_sent: sent - counts.sent,
            others_lost: lost - counts.lost.min(counts.sent),
            p,
        })
        .collect();
    worse.sort_by(|a, b| a.p.total_cmp(&b.p).then(a.counts.member.cmp(&b.counts.member)));
    worse
}

/// Variance over mean of the losses in intervals alike, at least 1: how far losses come in bursts.
/// Take them from before a fault, never from the fault itself.
pub fn dispersion(losses: &[u64]) -> f64 {
    let n = losses.len() as f64;
    let mean = losses.iter().sum::<u64>() as f64 / n.max(1.0);
    if losses.len() < 2 || mean == 0.0 {
        return 1.0;
    }
    let squares: f64 = losses.iter().map(|&l| (l as f64 - mean).powi(2)).sum();
    (squares / (n - 1.0) / mean).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(member: u32, sent: u64, lost: u64) -> MemberCounts {
        MemberCounts { member, sent, lost }
    }

    fn names(worse: &[WorseMember]) -> Vec<u32> {
        worse.iter().map(|w| w.counts.member).collect()
    }

    #[test]
    fn a_bad_member_is_named_and_the_others_are_not() {
        let group =
            [member(0, 1_000, 6), member(1, 1_000, 4), member(2, 1_000, 50), member(3, 1_000, 5)];
        let worse = worse_members(&group, 0.01, 1.0);
        assert_eq!(names(&worse), [2]);
        assert_eq!((worse[0].others_sent, worse[0].others_lost), (3_000, 15));
        // 30 of 1,000 beside 30 of 3,000: Python's exact fraction, times the four tests.
        let group = [
            member(7, 1_000, 30),
            member(1, 1_000, 10),
            member(2, 1_000, 10),
            member(3, 1_000, 10),
        ];
        let worse = worse_members(&group, 0.01, 1.0);
        assert!((worse[0].p / (4.0 * 2.299_111_615_232_534_8e-5) - 1.0).abs() < 1e-9, "{worse:?}");
        assert_eq!(names(&worse_members(&group, 1e-5, 1.0)), Vec::<u32>::new());
    }

    #[test]
    fn losses_in_bursts_count_less() {
        let group = [
            member(0, 1_000, 30),
            member(1, 1_000, 10),
            member(2, 1_000, 10),
            member(3, 1_000, 10),
        ];
        assert_eq!(names(&worse_members(&group, 0.01, 10.0)), Vec::<u32>::new());
        assert_eq!(dispersion(&[0, 0, 0, 40, 0, 0, 0, 40]), 2_400.0 / 7.0 / 10.0);
        assert_eq!((dispersion(&[3, 3, 3]), dispersion(&[]), dispersion(&[0, 0])), (1.0, 1.0, 1.0));
    }

    #[test]
    fn groups_without_a_group_name_nobody() {
        assert_eq!(worse_members(&[], 0.05, 1.0), []);
        assert_eq!(worse_members(&[member(0, 100, 100)], 0.05, 1.0), []);
        assert_eq!(worse_members(&[member(0, 0, 0), member(1, 0, 0)], 0.05, 1.0), []);
        assert_eq!(worse_members(&[member(0, 9, 9), member(1, 9, 9)], 0.05, f64::NAN), []);
    }

    #[test]
    fn without_a_bad_member_one_is_named_as_seldom_as_stated() {
        let mut rng = fastrand::Rng::with_seed(1934);
        let mut named = 0;
        for _ in 0..2_000 {
            let group: Vec<MemberCounts> = (0..8)
                .map(|i| member(i, 400, (0..400).filter(|_| rng.f64() < 0.02).count() as u64))
                .collect();
            named += usize::from(!worse_members(&group, 0.05, 1.0).is_empty());
        }
        // 5 % are 100; three standard deviations above are 129. An exact test stays below.
        assert!((20..=129).contains(&named), "seed 1934: {named} of 2,000");
    }

    #[test]
    fn the_order_of_members_does_not_matter() {
        let mut group = vec![
            member(0, 900, 40),
            member(1, 1_000, 4),
            member(2, 800, 30),
            member(3, 1_000, 5),
            member(4, 500, 1),
        ];
        let first = worse_members(&group, 0.05, 1.0);
        assert_eq!(names(&first), [0, 2]);
        group.reverse();
        assert_eq!(worse_members(&group, 0.05, 1.0), first);
    }
}
