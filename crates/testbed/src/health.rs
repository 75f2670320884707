//! What the host did to the tester during a trial.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sonde_results::Hist;
use sonde_results::trial::TrialHealth;
use sonde_run::thread::join_logged;
use sonde_sys::usage::Usage;

/// Watches from [`HealthWatch::start`] to [`HealthWatch::end`].
pub struct HealthWatch {
    before: Usage,
    stop: Arc<AtomicBool>,
    sleeper: Option<JoinHandle<Hist>>,
}

impl HealthWatch {
    /// Begins. A thread that does nothing but sleep notes how late the host wakes it: what
    /// it sees, a device or a tester on this host sees as well.
    pub fn start() -> HealthWatch {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let sleeper = std::thread::Builder::new().name("sonde-jitter".into());
        // Without the thread the rest is still true.
        let sleeper = sleeper.spawn(move || oversleeping(&ended)).ok();
        HealthWatch { before: Usage::read(), stop, sleeper }
    }

    /// Ends, and returns what happened meanwhile. Offsets between clocks are not known here.
    pub fn end(mut self) -> TrialHealth {
        let after = Usage::read();
        self.stop.store(true, Ordering::Relaxed);
        let pauses = self.sleeper.take().and_then(join_logged).unwrap_or_default();
        let before = self.before;
        let ns = |a: Duration, b: Duration| a.saturating_sub(b).as_nanos() as i64;
        TrialHealth {
            cpu_ns: ns(after.cpu, before.cpu),
            stolen_ns: ns(after.stolen, before.stolen),
            throttled_ns: ns(after.throttled, before.throttled),
            involuntary_switches: after.involuntary_switches - before.involuntary_switches,
            pauses,
            clock_drift_ns: after.clock_offset_ns - before.clock_offset_ns,
            clock_offset_ns: [0, 0],
            clock_error_ns: 0,
            device: None,
        }
    }
}

impl Drop for HealthWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// How much longer than asked for each sleep was, where that is above [`THRESHOLD`].
pub(super) fn oversleeping(stop: &AtomicBool) -> Hist {
    let mut pauses = Hist::default();
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        std::thread::sleep(NAP);
        let late = begin.elapsed().saturating_sub(NAP);
        if late > THRESHOLD {
            pauses.add(late.as_nanos() as i64);
        }
    }
    pauses
}

/// Long enough to leave the processor alone, short enough to see what a packet would.
const NAP: Duration = Duration::from_millis(1);
/// Timers of ordinary threads have a slack of 50 us.
const THRESHOLD: Duration = Duration::from_micros(100);
