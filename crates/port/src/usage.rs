//! What the machine has done to this process, as running totals: the difference of two
//! readings tells how fit it was to measure in between.

use std::time::Duration;
use std::{fs, io};

use crate::host::HostFacts;

/// A process that the scheduler prefers to others. Dropping it gives the session's preference
/// back; the threads' own goes with the process.
#[derive(Debug)]
pub struct Preferred {
    /// What the session gets back.
    session_nice: Option<i32>,
}

/// Has the scheduler prefer the calling thread, and all threads and processes that it starts
/// from now on, to the others of this host: nice -20. Where the kernel weighs sessions against
/// each other before it looks at that (`kernel.sched_autogroup_enabled`), the session gets the
/// same.
///
/// # Errors
/// Not permitted (CAP_SYS_NICE); then nothing is changed.
pub fn prefer_this_process() -> io::Result<Preferred> {
    // SAFETY: no pointers are passed; 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, HIGHEST) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let session_nice = fs::read_to_string(AUTOGROUP).ok().and_then(|text| autogroup_nice(&text));
    // A kernel without such groups has no such file, and needs none.
    let raised = session_nice.is_some() && fs::write(AUTOGROUP, HIGHEST.to_string()).is_ok();
    Ok(Preferred { session_nice: session_nice.filter(|_| raised).map(given_back) })
}

impl Preferred {
    /// For people.
    pub fn text(&self) -> &'static str {
        match self.session_nice {
            Some(_) => "nice -20, the session as well",
            None => "nice -20",
        }
    }
}

impl Drop for Preferred {
    fn drop(&mut self) {
        if let Some(nice) = self.session_nice {
            let _ = fs::write(AUTOGROUP, nice.to_string());
        }
    }
}

/// Of what a session had: the highest is what a process left that was killed, or that still runs
/// beside this one, and the default was before it.
fn given_back(nice: i32) -> i32 {
    if nice == HIGHEST { 0 } else { nice }
}

/// Of "/autogroup-100 nice 0".
fn autogroup_nice(text: &str) -> Option<i32> {
    text.trim().rsplit_once(" nice ")?.1.parse().ok()
}

const AUTOGROUP: &str = "/proc/self/autogroup";
/// The greatest preference that an ordinary process can have.
const HIGHEST: i32 = -20;

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
    fn a_preference_is_the_threads_and_the_session_gets_its_own_back() {
        assert_eq!(autogroup_nice("/autogroup-100 nice 0\n"), Some(0));
        assert_eq!(autogroup_nice("/autogroup-3 nice -11\n"), Some(-11));
        assert_eq!(autogroup_nice(""), None);
        let group = || fs::read_to_string(AUTOGROUP).unwrap_or_default();
        let nice = || {
            // The 19th field; those after the command's name have no spaces.
            let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
            let rest = stat.rsplit_once(')').unwrap().1.to_owned();
            rest.split_whitespace().nth(16).unwrap().to_owned()
        };
        assert_eq!([0, -11, 5, -20].map(given_back), [0, -11, 5, 0]);
        let before = autogroup_nice(&group());
        std::thread::spawn(move || match prefer_this_process() {
            Ok(preferred) => {
                assert_eq!(nice(), "-20");
                if preferred.session_nice.is_some() {
                    assert_eq!(autogroup_nice(&group()), Some(-20));
                }
            }
            // Without the privilege nothing is changed.
            Err(_) => assert_ne!(nice(), "-20"),
        })
        .join()
        .unwrap();
        let after = autogroup_nice(&group());
        assert!(after == before || after == before.map(given_back), "{before:?} {after:?}");
    }

    #[test]
    fn throttling_is_read_in_microseconds() {
        let stat = "usage_usec 5\nnr_throttled 2\nthrottled_usec 1500\n";
        assert_eq!(throttled_of(stat), Duration::from_micros(1500));
        assert_eq!(throttled_of("usage_usec 5\n"), Duration::ZERO);
    }
}
