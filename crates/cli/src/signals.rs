//! Ctrl-C and SIGTERM, as something to wait for.

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
}
