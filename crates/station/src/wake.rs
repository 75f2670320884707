//! From when on a probe counts as late, where the configuration does not say.
//!
//! What leaves late is no fault of the network, and delays count from the true time of sending. But
//! a thread that is woken late also reads late, and a host that does not run its threads cannot
//! judge others. How late a thread is woken on a host that is well depends on that host: some
//! microseconds on iron, a millisecond on a virtual machine of two processors. So the runner measures it.

/// Four times what all but one in fifty wake-ups keep, within 1 ms and 10 ms: 1 ms harms no
/// schedule of probes that judge others, and a pause of 10 ms is seen wherever a station starts.
pub(crate) fn late_limit(mut late_ns: Vec<i64>) -> i64 {
    late_ns.sort_unstable();
    let usual = late_ns.get((late_ns.len() * 49 / 50).saturating_sub(1)).copied().unwrap_or(0);
    usual.saturating_mul(4).clamp(LEAST_NS, MOST_NS)
}

const LEAST_NS: i64 = 1_000_000;
const MOST_NS: i64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_host_within_bounds_and_no_single_pause_moves_it() {
        let of = |usual: i64, pauses: usize| {
            let mut late = vec![usual; 100];
            late[..pauses].fill(900_000_000);
            late_limit(late)
        };
        assert_eq!(of(5_000, 0), 1_000_000, "a quiet host");
        assert_eq!(of(700_000, 2), 2_800_000, "a virtual machine, with two pauses");
        assert_eq!(of(700_000, 3), 10_000_000, "one that pauses for more than 2 % of the time");
        assert_eq!(of(50_000_000, 0), 10_000_000, "one that starves while the station starts");
        assert_eq!(late_limit(Vec::new()), 1_000_000);
    }
}
