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
}

impl Signals {
    /// From now on they no longer kill the process, so that it can finish in order.
    pub fn catch() -> Result<Self> {
        let mut signals = Caught::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
        let (tell, caught) = channel();
        std::thread::Builder::new().name("sonde-signals".into()).spawn(move || {
            for _ in signals.forever() {
                if tell.send(()).is_err() {
                    break;
                }
            }
        })?;
        Ok(Signals { caught })
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
