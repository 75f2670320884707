//! The clock of a run: tests have one of their own.

use std::time::Duration;

use sonde_sys::clock::SteadyClock;
use sonde_wire::Time;

use crate::running::Stop;

/// Steady time, and how a run waits in it.
pub trait RunClock {
    /// Steady time, as TAI.
    fn now(&self) -> Time;

    /// How often the host's clock was set so far.
    fn steps(&mut self) -> u32;

    /// Waits for so long, ns, or until the end is asked for. Whether it was.
    fn wait(&mut self, ns: i64, stop: &Stop) -> bool {
        stop.wait(Duration::from_nanos(ns.max(0) as u64))
    }
}

impl RunClock for SteadyClock {
    fn now(&self) -> Time {
        SteadyClock::now(self)
    }

    fn steps(&mut self) -> u32 {
        SteadyClock::steps(self)
    }
}
