//! What can be asked of a measurement of round trips while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Orders to a measurement of round trips.
#[derive(Clone, Default)]
pub struct Control {
    snapshot: Arc<AtomicBool>,
}

impl Control {
    /// Ends the interval now, on interfaces: its [`super::Event::Interval`] comes within a few
    /// tenths of a second, and the next interval begins. The intervals of a capture are those of
    /// its packets: they stay.
    pub fn snapshot(&self) {
        self.snapshot.store(true, Ordering::Relaxed);
    }

    /// Whether the interval is to end.
    pub(super) fn take_snapshot(&self) -> bool {
        self.snapshot.swap(false, Ordering::Relaxed)
    }
}
