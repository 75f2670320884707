//! Ctrl-C and SIGTERM, as something to wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Caught;

/// Signals that ask for the end.
pub struct Signals {
    caught: Receiver<()>,
    /// The end was asked for more than once.
    again: Arc<AtomicBool>,
}

impl Signals {
    /// From now on they no longer kill the process, so that it can finish in order. A hang-up
    /// that the starter has the process ignore (nohup) stays ignored.
    pub fn catch() -> Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hang_up = (!is_ignored(&status, SIGHUP)).then_some(SIGHUP);
        let wanted = [SIGINT, SIGTERM].into_iter().chain(hang_up);
        let mut signals = Caught::new(wanted).context("cannot catch signals")?;
        let (tell, caught) = channel();
        let again = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&again);
        std::thread::Builder::new().name("sonde-signals".into()).spawn(move || {
            for (before, _) in signals.forever().enumerate() {
                set.store(before > 0, Ordering::Relaxed);
                // Nobody may wait for it any more.
                let _ = tell.send(());
            }
        })?;
        Ok(Signals { caught, again })
    }

    /// A flag that is set once the end is asked for a second time: whoever asks waits no longer
    /// for what could still come in order.
    pub fn again(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.again)
    }

    /// Waits at most `patience`; true if the end was asked for.
    pub fn wait(&self, patience: Duration) -> bool {
        match self.caught.recv_timeout(patience) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        }
    }

    /// Acts once the end is asked for, on a thread that waits for that.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn then(self, act: impl FnOnce() + Send + 'static) -> Result<()> {
        let wait = move || {
            // An error says that nobody is left who could ask: the process ends.
            let _ = self.caught.recv();
            act();
        };
        let thread = std::thread::Builder::new().name("sonde-stop".into()).spawn(wait);
        thread.map(drop).context("cannot start a thread")
    }

    /// A flag that is set once the end is asked for.
    ///
    /// # Errors
    /// As [`Signals::then`].
    pub fn into_flag(self) -> Result<Arc<AtomicBool>> {
        let flag = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&flag);
        self.then(move || set.store(true, Ordering::Relaxed))?;
        Ok(flag)
    }
}

/// Whether `/proc/PID/status` says that the process ignores `signal`: its line `SigIgn` is a
/// mask of signals, hexadecimal, whose lowest bit is signal 1.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hang_up_is_found_in_the_mask() {
        let of = |mask: &str| format!("Name:\tsonde\nSigIgn:\t{mask}\nSigCgt:\t0000000000000001\n");
        assert!(is_ignored(&of("0000000000001001"), SIGHUP));
        assert!(!is_ignored(&of("0000000000001000"), SIGHUP));
        assert!(is_ignored(&of("0000000000000002"), SIGINT));
        assert!(!is_ignored("", SIGHUP));
    }
}
