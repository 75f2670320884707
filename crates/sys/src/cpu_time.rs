//! Who has had a processor, as running totals: the difference of two readings shows whether
//! other work held it.

use std::fs;
use std::str::FromStr;
use std::time::Duration;

/// A processor's time since the host began, to a tick of the kernel's (10 ms as it is reported).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Threads ran, interrupts not counted.
    pub busy: Duration,
    /// A hypervisor gave it to others.
    pub stolen: Duration,
}

impl CpuTime {
    /// Of processor `cpu`, as it stands now; `None`: there is none of that index.
    pub fn read(cpu: usize) -> Option<CpuTime> {
        CpuTime::find(&fs::read_to_string("/proc/stat").ok()?, &format!("cpu{cpu}"))
    }

    /// proc_stat(5): "cpu1 user nice system idle iowait irq softirq steal ..."; "cpu": all.
    pub(crate) fn find(stat: &str, name: &str) -> Option<CpuTime> {
        let line = stat.lines().find(|line| line.split(' ').next() == Some(name))?;
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).map_while(|t| t.parse().ok()).collect();
        let time = |ticks: u64| Duration::from_millis(ticks * 10);
        let busy = ticks.iter().take(3).sum();
        Some(CpuTime { busy: time(busy), stolen: time(ticks.get(7).copied().unwrap_or(0)) })
    }
}

/// What the scheduler gave to threads since they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskTime {
    /// For how long they ran.
    pub run: Duration,
    /// They could have run, and waited for a processor.
    pub waited: Duration,
}

impl TaskTime {
    /// Of all threads of a process; nothing where it is gone or the kernel does not report it.
    pub fn of_process(pid: u32) -> TaskTime {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut all = TaskTime::default();
        for task in tasks {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let one = TaskTime::find(&text);
            (all.run, all.waited) = (all.run + one.run, all.waited + one.waited);
        }
        all
    }

    /// "run waited slices", the first two in ns.
    fn find(schedstat: &str) -> TaskTime {
        let mut fields = schedstat.split_whitespace().map_while(|n| n.parse().ok());
        let mut next = || Duration::from_nanos(fields.next().unwrap_or(0));
        TaskTime { run: next(), waited: next() }
    }
}

/// Whether a thread of the process is real-time: then no ordinary thread says when it is stopped.
pub fn is_real_time(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.into_iter().any(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat_field::<u32>(&stat, REAL_TIME_PRIORITY).is_some_and(|priority| priority != 0)
    })
}

/// The nice value, -20 to 19, of the process's thread of that name (15 octets at most).
pub fn thread_nice(pid: u32, name: &str) -> Option<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats.filter(|stat| stat.contains(&format!("({name})"))).find_map(|s| stat_field(&s, NICE))
}

/// A field of `/proc/PID/stat`, numbered from 1 as in proc_pid_stat(5), from the third on.
pub fn stat_field<T: FromStr>(stat: &str, field: usize) -> Option<T> {
    // The second, the name in brackets, may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(field.checked_sub(3)?)?.parse().ok()
}

const NICE: usize = 19;
const REAL_TIME_PRIORITY: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 1 1 50 0 7 8 2 0 0\ncpu1 10 0 5 5 0 0 0 0 0 0\n\
                    cpu10 1 0 0 0 0 0 0 0 0 0\nintr 5\n";
        let time = |busy, stolen| {
            let of = Duration::from_millis;
            Some(CpuTime { busy: of(busy), stolen: of(stolen) })
        };
        assert_eq!(CpuTime::find(stat, "cpu0"), time(30, 20));
        assert_eq!(CpuTime::find(stat, "cpu1"), time(150, 0));
        assert_eq!(CpuTime::find(stat, "cpu10"), time(10, 0));
        assert_eq!(CpuTime::find(stat, "cpu2"), None);
        let stat = "7 (a ) b) R 1 2 -3 4";
        assert_eq!(stat_field(stat, 3), Some('R'));
        assert_eq!((stat_field(stat, 6), stat_field(stat, 7)), (Some(-3), Some(4)));
        assert_eq!((stat_field::<u32>(stat, 8), stat_field::<u32>(stat, 2)), (None, None));
        let task = TaskTime::find("1500 77 3\n");
        assert_eq!(task.run + task.waited, Duration::from_nanos(1577));
        assert_eq!(TaskTime::find(""), TaskTime::default());
    }

    #[test]
    fn this_process_runs_and_is_not_real_time() {
        assert!(CpuTime::read(0).is_some());
        let own = std::process::id();
        let worked = (0..100_000).any(|_| {
            std::hint::black_box((0..10_000u64).sum::<u64>());
            TaskTime::of_process(own).run > Duration::ZERO
        });
        assert!(worked);
        assert_eq!(TaskTime::of_process(u32::MAX), TaskTime::default());
    }
}
