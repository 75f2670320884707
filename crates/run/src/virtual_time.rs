//! For tests. A clock that stands still unless it is moved, and a port whose far end is a
//! reflector, or a sender, behind a modelled path. The port's time passes only while it is used.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use sonde_meter::Instrument;
use sonde_meter::stamp::{Reflector, ReflectorConfig, Sender};
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
pub type ReflectedPort = ModelledPort<Reflector>;

/// One end of a path from a sender.
pub type ProbedPort = ModelledPort<Sender>;

/// One end of a path, with an instrument at the other.
pub struct ModelledPort<I> {
    port: MemPort,
    far: MemPort,
    instrument: Arc<Mutex<I>>,
    clock: MemClock,
    /// Held by a test until the port may be used: then what it does waits for the test.
    pub gate: Option<Arc<Mutex<()>>>,
    /// What happens when it is used for the first time from then on.
    pub at: Option<(Time, Box<dyn FnOnce() + Send>)>,
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
        let settings = ReflectorConfig::new(vec![862], 0, 1);
        let reflector = Reflector::new(&settings, begin).expect("the settings are plain");
        let (port, _, seen) = ModelledPort::to(reflector, begin, path);
        (port, seen)
    }
}

impl<I: Instrument> ModelledPort<I> {
    /// The port, what is at its far end, and what it has done.
    pub fn to(
        instrument: I,
        begin: Time,
        path: &PathModel,
    ) -> (Self, Arc<Mutex<I>>, Arc<Mutex<Seen>>) {
        let (port, far, clock) = MemLink::new(1, path.clone(), path.clone());
        clock.advance_to(begin);
        let (seen, instrument) = (Arc::<Mutex<Seen>>::default(), Arc::new(Mutex::new(instrument)));
        let theirs = (instrument.clone(), seen.clone());
        let (gate, at, fails_at, dropped) = (None, None, None, None);
        let port = ModelledPort { port, far, instrument, clock, gate, at, fails_at, dropped, seen };
        (port, theirs.0, theirs.1)
    }

    /// The far end does what is due. Returns when it has to do something next.
    fn turn_far_end(&mut self) -> Option<Time> {
        let mut instrument = self.instrument.lock().expect("no test panics with it");
        pump::turn(&mut self.far, &mut *instrument).expect("a modelled port does not fail");
        let mut seen = self.seen.lock().expect("no test panics with it");
        *seen = Seen { path: self.clock.stats(), last: self.clock.now() };
        // What is due already was done in this turn, or waits for its reader.
        instrument.poll_timeout().filter(|due| *due > self.clock.now())
    }
}

impl<I: Instrument + Send> Port for ModelledPort<I> {
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError> {
        if let Some(gate) = self.gate.take() {
            drop(gate.lock());
        }
        self.turn_far_end();
        if let Some((_, happens)) = self.at.take_if(|(at, _)| self.clock.now() >= *at) {
            happens();
        }
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

    /// Time passes until the next frame arrives somewhere, or the far end has something to do.
    fn wait(&mut self, until: Time) -> Result<(), PortError> {
        let next = self.turn_far_end().into_iter().chain(self.clock.next_event()).min();
        self.clock.advance_to(next.map_or(until, |next| next.min(until)));
        self.turn_far_end();
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
