//! What the machine has done to this process, as running totals: the difference of two
//! readings shows how fit it was to measure in between.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::HostFacts;
use crate::kernel_clock;

/// Totals since the process, the control group or the host began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of all threads of this process, the kernel's work for them included.
    pub cpu: Duration,
    /// How often the kernel took the processor from one of them.
    pub involuntary_switches: u64,
    /// Processor time that a hypervisor gave to others, over all processors.
    pub stolen: Duration,
    /// Time for which this process's control group (v1 or v2), or one above it, was
    /// throttled; zero where it has none.
    pub throttled: Duration,
    /// CLOCK_TAI less CLOCK_MONOTONIC_RAW, ns: moves when the clock is set or slewed.
    pub clock_offset_ns: i64,
}

impl Usage {
    /// As it stands now.
    pub fn read() -> Usage {
        // SAFETY: rusage is plain data, for which all zeros is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is valid memory for the answer.
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

/// The least of a few readings of one clock between two of the other. A process that is interrupted
/// between them would see a false jump.
fn clock_offset() -> i64 {
    let read = |clock| kernel_clock::read(clock).as_nanos();
    let one = || {
        let before = read(libc::CLOCK_MONOTONIC_RAW);
        let tai = read(libc::CLOCK_TAI);
        let after = read(libc::CLOCK_MONOTONIC_RAW);
        (after - before, tai - (before + after) / 2)
    };
    (0..9).map(|_| one()).min().map_or(0, |(_, offset)| offset)
}

/// The most that one of the groups from this process's own up to the root was throttled.
fn throttled() -> Duration {
    let read = |name| fs::read_to_string(name).unwrap_or_default();
    let group_path = cpu_group(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
    let Some((top, group)) = group_path else { return Duration::ZERO };
    group
        .ancestors()
        .map(|group| top.join(group).join("cpu.stat"))
        .map(|file| throttled_of(&fs::read_to_string(file).unwrap_or_default()))
        .max()
        .unwrap_or_default()
}

/// The mount point of the control groups that limit processors, and this process's own group below
/// it. Those of cgroup v1 if that has the controller (cgroups(7): only one version can have it),
/// else of v2.
fn cpu_group(mounts: &str, groups: &str) -> Option<(PathBuf, PathBuf)> {
    group_of(mounts, groups, true).or_else(|| group_of(mounts, groups, false))
}

fn group_of(mounts: &str, groups: &str, v1: bool) -> Option<(PathBuf, PathBuf)> {
    let has_cpu = |list: &str| list.split(',').any(|word| word == "cpu");
    // "4:cpu,cpuacct:/group" or "0::/group".
    let own = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        (if v1 { has_cpu(controllers) } else { controllers.is_empty() }).then_some(path)
    })?;
    // proc_pid_mountinfo(5): "30 25 0:26 /root /point options - cgroup name rw,cpu,cpuacct".
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let (mut left, mut right) = (left.split(' ').skip(3), right.split(' '));
        let (root, point) = (left.next()?, left.next()?);
        let (kind, options) = (right.next()?, right.nth(1)?);
        let wanted = if v1 { kind == "cgroup" && has_cpu(options) } else { kind == "cgroup2" };
        // Of a container often only its own group is mounted.
        let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new("")).to_owned();
        wanted.then(|| (PathBuf::from(point), below))
    })
}

/// Of the text of a `cpu.stat`: `throttled_usec` of v2, `throttled_time` (ns) of v1.
fn throttled_of(stat: &str) -> Duration {
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    let value = lines.find_map(|(name, value)| match name {
        "throttled_usec" => value.trim().parse().ok().map(Duration::from_micros),
        "throttled_time" => value.trim().parse().ok().map(Duration::from_nanos),
        _ => None,
    });
    value.unwrap_or_default()
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
        // The time of the start of the clock that nobody sets: after 1970, and before now.
        let now = crate::clock::tai_now().as_nanos();
        assert!((0..now).contains(&first.clock_offset_ns), "{}", first.clock_offset_ns);
    }

    #[test]
    fn throttling_is_read_in_the_unit_of_either_version() {
        let v2 = "usage_usec 5\nnr_periods 9\nnr_throttled 2\nthrottled_usec 1500\nnr_bursts 0\n";
        assert_eq!(throttled_of(v2), Duration::from_micros(1500));
        let v1 = "nr_periods 9\nnr_throttled 2\nthrottled_time 1500000\n";
        assert_eq!(throttled_of(v1), Duration::from_micros(1500));
        for none in ["", "usage_usec 5\n", "throttled_usec\n", "throttled_time much\n"] {
            assert_eq!(throttled_of(none), Duration::ZERO);
        }
    }

    #[test]
    fn the_group_is_found_under_either_version() {
        const V1: &str = "\
28 25 0:24 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate
30 25 0:26 / /sys/fs/cgroup/cpuset rw,nosuid shared:11 - cgroup cgroup rw,cpuset
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:12 - cgroup cgroup rw,cpu,cpuacct
";
        const V2: &str = "\
25 1 0:22 / / rw - ext4 /dev/vda1 rw
28 25 0:24 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw
";
        let groups = "9:cpuset:/set\n3:cpu,cpuacct:/jobs/one\n0::/user.slice\n";
        let found = |mounts, groups| {
            let (top, group) = cpu_group(mounts, groups)?;
            Some(format!("{} {}", top.display(), group.display()))
        };
        assert_eq!(found(V1, groups).unwrap(), "/sys/fs/cgroup/cpu,cpuacct jobs/one");
        assert_eq!(found(V2, "0::/user.slice/a\n").unwrap(), "/sys/fs/cgroup user.slice/a");
        // Controllers of v1 that are not ours.
        let other = V1.lines().take(2).collect::<Vec<_>>().join("\n");
        let groups = "9:cpuset:/set\n0::/user.slice\n";
        assert_eq!(found(&other, groups).unwrap(), "/sys/fs/cgroup/unified user.slice");
        // A container that sees its own group at the mount point.
        let own = V1.replace("0:27 /", "0:27 /docker/4711");
        let groups = "3:cpu,cpuacct:/docker/4711/below\n";
        assert_eq!(found(&own, groups).unwrap(), "/sys/fs/cgroup/cpu,cpuacct below");
        assert_eq!(found("", "0::/\n"), None);
        assert_eq!(found(V2, "nonsense"), None);
    }
}
