//! A thread that never sleeps, preferred to all other work without starving it.
//!
//! A thread of SCHED_FIFO that never sleeps is stopped by the kernel for 50 ms in every second,
//! at a time of the kernel's choice: by its limit on real-time work (`sched_rt_runtime_us`), or
//! by its server for ordinary threads that have waited for long. A load generator sends nothing
//! meanwhile. So this one steps back before it comes to that: for most of the time it is
//! real-time, and in between an ordinary thread, which the scheduler weighs against the others
//! in slices of a few milliseconds at most, or not at all where nobody else wants the processor.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
        let first = Instant::now() + first_turn(counts_after);
        let (end, ended) = channel::<()>();
        let turns = std::thread::Builder::new().name("sonde-turns".into()).spawn(move || {
            // It must be run in time itself, and sleeps but for two calls a second.
            let _ = schedule(0, libc::SCHED_FIFO, 2);
            // A thread that is gone needs no further turns.
            let mut preferred = first.saturating_duration_since(Instant::now());
            loop {
                if ended.recv_timeout(preferred) != Err(RecvTimeoutError::Timeout)
                    || schedule(thread, libc::SCHED_OTHER, 0).is_err()
                    || ended.recv_timeout(ORDINARY) != Err(RecvTimeoutError::Timeout)
                    || schedule(thread, libc::SCHED_FIFO, 1).is_err()
                {
                    return;
                }
                preferred = PREFERRED;
            }
        })?;
        // From here on an error ends the turns.
        let precedence = Precedence { end: Some(end), turns: Some(turns) };
        schedule(thread, libc::SCHED_FIFO, 1)?;
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

/// How long it is preferred at first, so that a further turn begins after that time.
fn first_turn(counts_after: Duration) -> Duration {
    match counts_after.checked_sub(ORDINARY + MARGIN) {
        None => PREFERRED,
        Some(before) => {
            let turn = (PREFERRED + ORDINARY).as_nanos();
            Duration::from_nanos((before.as_nanos() % turn) as u64).min(PREFERRED)
        }
    }
}

fn schedule(thread: libc::pid_t, policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads one sched_param; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

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
    fn what_counts_begins_with_a_whole_turn() {
        let ms = Duration::from_millis;
        for (after, first) in [
            (0, 850),
            (149, 850),
            (150, 0),
            (550, 400), // half a second of warm-up
            (999, 849),
            (1050, 850),
            (1100, 0),
            (1550, 450),
        ] {
            assert_eq!(first_turn(ms(after)), ms(first), "{after}");
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
            Some((first, stepped_back, returned))
        });
        match given.join().unwrap() {
            Some(seen) => assert_eq!(seen, (libc::SCHED_FIFO, true, true)),
            None => eprintln!("not permitted here: nothing was tested"),
        }
    }
}
