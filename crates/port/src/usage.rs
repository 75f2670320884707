//! What the machine has done to this process, as running totals: the difference of two
//! readings tells how fit it was to measure in between.

use std::fs;
use std::time::Duration;

use crate::host::HostFacts;

/// Totals since the process, the control group or the host began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of all threads of this process, the kernel's work for them included.
    pub cpu: Duration,
    /// How often the kernel took the processor from one of them.
    pub involuntary_switches: u64,
    /// Processor time that a hypervisor gave to others, over all processors.
    pub stolen: Duration,
    /// Time for which this process's control group, or one above it, was throttled; zero
    /// where it has none.
    pub throttled: Duration,
    /// CLOCK_TAI less CLOCK_MONOTONIC_RAW, ns: moves when the clock is set or slewed.
    pub clock_offset_ns: i64,
}

impl Usage {
    /// As it stands now.
    pub fn read() -> Usage {
        // SAFETY: rusage is plain data, for which all zeros is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is a valid place for the answer.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
        let spent = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
        };
        Usage {
            cpu: spent(usage.ru_utime) + spent(usage.ru_stime),
            involuntary_switches: usage.ru_nivcsw as u64,
            stolen: HostFacts::stolen_now(),
            throttled: throttled(),
            clock_offset_ns: clock_offset(),
        }
    }
}

/// The least of a few readings of one clock between two of the other: a process that is
/// interrupted between them would see a jump that is none.
fn clock_offset() -> i64 {
    let read = |clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for the answer; both clocks exist since Linux 3.10.
        unsafe { libc::clock_gettime(clock, &mut time) };
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let one = || {
        let before = read(libc::CLOCK_MONOTONIC_RAW);
        let tai = read(libc::CLOCK_TAI);
        let after = read(libc::CLOCK_MONOTONIC_RAW);
        (after - before, tai - (before + after) / 2)
    };
    (0..9).map(|_| one()).min().map_or(0, |(_, offset)| offset)
}

/// `throttled_usec` of the groups from this process's own up to the root (cgroup v2).
fn throttled() -> Duration {
    let Ok(groups) = fs::read_to_string("/proc/self/cgroup") else { return Duration::ZERO };
    let Some(path) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Duration::ZERO;
    };
    let mut folder = std::path::PathBuf::from("/sys/fs/cgroup");
    let mut most = Duration::ZERO;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        folder.push(part);
        let stat = fs::read_to_string(folder.join("cpu.stat")).unwrap_or_default();
        most = most.max(throttled_of(&stat));
    }
    most
}

fn throttled_of(stat: &str) -> Duration {
    let value = stat.lines().find_map(|line| line.strip_prefix("throttled_usec "));
    Duration::from_micros(value.and_then(|v| v.trim().parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_only_grow_and_count_this_process() {
        let first = Usage::read();
        let mut x = 0u64;
        // Work until the kernel's own accounting has seen it.
        let worked = (0..100_000).any(|_| {
            x = (0..10_000u64).fold(x, |a, b| std::hint::black_box(a ^ b));
            Usage::read().cpu > first.cpu
        });
        let second = Usage::read();
        assert!(worked && second.stolen >= first.stolen && second.throttled >= first.throttled);
        assert!(second.involuntary_switches >= first.involuntary_switches);
        // A slewed clock is off by 0.05 % at most; nobody sets it during a test.
        assert!((second.clock_offset_ns - first.clock_offset_ns).abs() < 100_000_000);
    }

    #[test]
    fn throttling_is_read_in_microseconds() {
        let stat = "usage_usec 5\nnr_throttled 2\nthrottled_usec 1500\n";
        assert_eq!(throttled_of(stat), Duration::from_micros(1500));
        assert_eq!(throttled_of("usage_usec 5\n"), Duration::ZERO);
    }
}
