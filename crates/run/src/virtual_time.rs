//! For tests: a clock that stands still unless it is moved, and a port whose far end is a
//! reflector behind a modelled path. The port's time passes only while it is used.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use sonde_meter::stamp::{Reflector, ReflectorConfig};
use sonde_port::mem::{MemClock, MemLink, MemPort, MemStats, PathModel};
use sonde_port::{Caps, Port, PortError, PortStats, RxBurst, TxBurst};
use sonde_wire::Time;

use crate::pump;
use crate::run_clock::RunClock;
use crate::running::Stop;

/// A clock that stands still unless somebody waits. Its copies show the same.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    /// Since the epoch.
    pub ns: Arc<AtomicI64>,
    /// How often it was set.
    pub set: Arc<AtomicU32>,
}

impl RunClock for VirtualClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.ns.load(Ordering::Relaxed))
    }

    fn steps(&mut self) -> u32 {
        self.set.load(Ordering::Relaxed)
    }

    fn wait(&mut self, ns: i64, stop: &Stop) -> bool {
        if !stop.is_asked() {
            self.ns.fetch_add(ns.max(0), Ordering::Relaxed);
        }
        stop.is_asked()
    }
}

/// One end of a path to a reflector on UDP port 862.
pub struct ReflectedPort {
    port: MemPort,
    far: MemPort,
    reflector: Reflector,
    clock: MemClock,
    /// Held by a test until the port may be used: then what it does waits for the test.
    pub gate: Option<Arc<Mutex<()>>>,
    /// From then on it receives nothing but errors.
    pub fails_at: Option<Time>,
    /// Frames that it says it has lost by itself, from a time on.
    pub dropped: Option<(Time, u64)>,
    seen: Arc<Mutex<Seen>>,
}

/// What a port has done, for whoever has given it away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The truth about the path.
    pub path: MemStats,
    /// When it was last used.
    pub last: Time,
}

impl ReflectedPort {
    /// Its time begins at `begin`, with the same path both ways.
    pub fn new(begin: Time, path: &PathModel) -> (ReflectedPort, Arc<Mutex<Seen>>) {
        let (port, far, clock) = MemLink::new(1, path.clone(), path.clone());
        clock.advance_to(begin);
        let settings = ReflectorConfig::new(vec![862], 0, 1);
        let reflector = Reflector::new(&settings, begin).expect("the settings are plain");
        let seen = Arc::<Mutex<Seen>>::default();
        let (fails_at, dropped) = (None, None);
        let theirs = seen.clone();
        let gate = None;
        (ReflectedPort { port, far, reflector, clock, gate, fails_at, dropped, seen }, theirs)
    }

    /// The far end does what is due.
    fn reflect(&mut self) {
        pump::turn(&mut self.far, &mut self.reflector).expect("a modelled port does not fail");
        let mut seen = self.seen.lock().expect("no test panics with it");
        *seen = Seen { path: self.clock.stats(), last: self.clock.now() };
    }
}

impl Port for ReflectedPort {
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError> {
        if let Some(gate) = self.gate.take() {
            drop(gate.lock());
        }
        self.reflect();
        if self.fails_at.is_some_and(|at| self.clock.now() >= at) {
            return Err(PortError::Config("the cable was cut".into()));
        }
        self.port.rx()
    }

    fn tx(&mut self) -> TxBurst<'_> {
        self.port.tx()
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.port.flush()
    }

    /// Time passes until the next frame arrives somewhere.
    fn wait(&mut self, until: Time) -> Result<(), PortError> {
        self.clock.advance_to(self.clock.next_event().map_or(until, |next| next.min(until)));
        self.reflect();
        Ok(())
    }

    /// A microsecond later each time.
    fn now(&self) -> Time {
        self.clock.advance_to(self.clock.now() + 1_000);
        self.clock.now()
    }

    fn caps(&self) -> &Caps {
        self.port.caps()
    }

    fn stats(&mut self) -> PortStats {
        let dropped = self.dropped.filter(|(from, _)| self.clock.now() >= *from);
        let own = PortStats { rx_dropped: dropped.map_or(0, |(_, n)| n), ..PortStats::default() };
        self.port.stats().plus(&own)
    }
}
