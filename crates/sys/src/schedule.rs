//! Which work of a host goes before other: a process, a thread that sleeps between its work, a
//! thread that never sleeps; and on which processor.
//!
//! The kernel stops a thread of SCHED_FIFO that never sleeps for 50 ms in every second, at a time
//! of the kernel's choice. The limit on real-time work (`sched_rt_runtime_us`) does so, or the
//! server for ordinary threads that have waited for long. A load generator sends nothing meanwhile.
//! So this one steps back before it comes to that. For most of the time it is real-time, in between
//! an ordinary thread. Then the scheduler weighs it against the others in slices of a few
//! milliseconds at most. Where nobody else wants the processor it does not.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Keeps the calling thread on one processor (numbered from 0).
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: cpu_set_t is plain data, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` was checked against the capacity of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is valid and its true size is given; 0 is the calling thread.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the scheduler prefer the calling thread, and all threads and processes that it starts
/// from now on, to the others of this host: nice -20. Where the kernel weighs sessions against
/// each other before it looks at that (`kernel.sched_autogroup_enabled`), it is preferred to the
/// others of its session. The session itself gets nothing: other work in it, and all of it after
/// a `kill -9`, would keep the kernel's own threads from running for minutes.
///
/// # Errors
/// Not permitted (CAP_SYS_NICE); then nothing is changed.
pub fn prefer_with_children() -> io::Result<()> {
    // SAFETY: no pointers are passed; 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, HIGHEST) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the calling thread run before all ordinary threads of its processor when it wakes
/// (SCHED_FIFO, the least priority). It is to sleep between its work.
///
/// # Errors
/// Not permitted (CAP_SYS_NICE).
pub fn prefer_this_thread() -> io::Result<()> {
    set_policy(0, libc::SCHED_FIFO, 1)
}

/// A thread's precedence. It ends when this is dropped.
#[derive(Debug)]
pub struct Precedence {
    /// Closed to end it.
    end: Option<Sender<()>>,
    turns: Option<JoinHandle<()>>,
}

impl Precedence {
    /// Gives it to the calling thread: it runs before all ordinary ones (SCHED_FIFO) but for a
    /// tenth of the time. What it does from `counts_after` on, from now, is what matters: it steps
    /// back shortly before that, and then not for 850 ms. Threads of the same kind on the same
    /// processor wait for each other to sleep.
    ///
    /// # Errors
    /// Not permitted (CAP_SYS_NICE); no thread could be started.
    pub fn of_this_thread(counts_after: Duration) -> io::Result<Precedence> {
        // SAFETY: no preconditions.
        let thread = unsafe { libc::gettid() };
        let (mut left, short) = turns_before(counts_after);
        let first = Instant::now() + short;
        let (end, ended) = channel::<()>();
        let turns = std::thread::Builder::new().name("sonde-turns".into()).spawn(move || {
            // It must be run in time itself, and sleeps but for two calls a second.
            let _ = set_policy(0, libc::SCHED_FIFO, 2);
            // A thread that is gone needs no further turns.
            let mut preferred = first.saturating_duration_since(Instant::now());
            loop {
                if ended.recv_timeout(preferred) != Err(RecvTimeoutError::Timeout)
                    || set_policy(thread, libc::SCHED_OTHER, 0).is_err()
                    || ended.recv_timeout(ORDINARY) != Err(RecvTimeoutError::Timeout)
                    || set_policy(thread, libc::SCHED_FIFO, 1).is_err()
                {
                    break;
                }
                left = left.saturating_sub(1);
                preferred = if left > 0 { short } else { PREFERRED };
            }
            let _ = set_policy(thread, libc::SCHED_OTHER, 0);
        })?;
        // From here on an error ends the turns.
        let precedence = Precedence { end: Some(end), turns: Some(turns) };
        set_policy(thread, libc::SCHED_FIFO, 1)?;
        Ok(precedence)
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(turns) = self.turns.take() {
            let _ = turns.join();
        }
    }
}

/// How many turns there are before what counts, and for how long it is preferred in each: the
/// next begins `MARGIN` earlier.
fn turns_before(counts_after: Duration) -> (u32, Duration) {
    let Some(all) = counts_after.checked_sub(MARGIN).filter(|all| *all >= ORDINARY) else {
        return (0, PREFERRED);
    };
    let turns = all.as_nanos().div_ceil((PREFERRED + ORDINARY).as_nanos()) as u32;
    (turns, all / turns - ORDINARY)
}

fn set_policy(thread: libc::pid_t, policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads one sched_param; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// By how much before something is due a thread asks to be woken, ns: the kernel hardly takes
/// longer. The rest of the time it looks at the clock.
pub const WAKE_UP_NS: i64 = 75_000;
/// The greatest preference that an ordinary process can have.
const HIGHEST: i32 = -20;
/// Together shorter than the second after which the kernel steps in, and the first shorter than
/// the 950 ms that it allows.
const PREFERRED: Duration = Duration::from_millis(850);
const ORDINARY: Duration = Duration::from_millis(100);
/// From its return to what counts: other work may have kept it from running in between.
const MARGIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: no preconditions; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn pinning_beyond_the_set_fails() {
        assert!(pin_to_cpu(usize::MAX).is_err());
    }

    #[test]
    fn a_preference_is_the_threads_and_not_the_sessions() {
        let session = || std::fs::read_to_string("/proc/self/autogroup").unwrap_or_default();
        let nice = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            crate::cpu_time::stat_field::<i32>(&stat, 19).unwrap()
        };
        let (own, before) = (nice(), session());
        let preferred = std::thread::spawn(move || {
            let permitted = prefer_with_children().is_ok();
            // Without the privilege nothing is changed.
            assert_eq!(nice() == HIGHEST, permitted);
        });
        preferred.join().unwrap();
        assert_eq!((nice(), session()), (own, before));
    }

    #[test]
    fn what_counts_begins_with_a_whole_turn() {
        let ms = Duration::from_millis;
        for (after, turns, preferred) in [
            (0, 0, 850),
            (149, 0, 850),
            (150, 1, 0),
            (550, 1, 400), // half a second of warm-up
            (1000, 1, 850),
            (1001, 2, 375),
            (1950, 2, 850),
        ] {
            let (found, each) = turns_before(ms(after));
            assert_eq!((found, each.as_millis()), (turns, preferred), "{after}");
            let whole = (each + ORDINARY) * found + MARGIN;
            assert!(found == 0 || ms(after) - whole < ms(1), "{after}: {whole:?}");
        }
    }

    #[test]
    fn the_thread_is_real_time_and_steps_back_in_turn() {
        let given = std::thread::spawn(|| {
            let Ok(precedence) = Precedence::of_this_thread(Duration::ZERO) else { return None };
            let first = policy();
            // Bounded by the number of looks, not by a time.
            let stepped_back = (0..5000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                policy() == libc::SCHED_OTHER
            });
            let returned = (0..5000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                policy() == libc::SCHED_FIFO
            });
            drop(precedence);
            Some((first, stepped_back, returned, policy()))
        });
        match given.join().unwrap() {
            Some(seen) => assert_eq!(seen, (libc::SCHED_FIFO, true, true, libc::SCHED_OTHER)),
            None => sonde_lab::skipped(
                "the_thread_is_real_time_and_steps_back_in_turn",
                "real-time scheduling is not permitted here",
            ),
        }
    }
}
