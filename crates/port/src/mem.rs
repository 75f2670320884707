//! Engine `mem`: two ports joined by a modelled path, in virtual time.
//!
//! The path of each direction delays, loses, doubles, reorders, corrupts and queues frames as its
//! [`PathModel`] says. It counts exactly what it did: the truth that an instrument's own results are
//! tested against. The same seed gives the same run.
//!
//! Nothing moves until [`MemClock::advance_to`]. A test's loop is: let both ends run
//! until they are idle, then advance to the earlier of [`MemClock::next_event`] and
//! their own timers.

mod path;
#[cfg(test)]
mod tests;

pub use path::{Bottleneck, Jitter, PathModel, PathStats};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sonde_wire::{Stamp, StampSource, Time, TxDone, Verdict};

use self::path::Path;
use crate::{Caps, FrameDesc, Port, PortError, PortStats, RxBurst, TxBurst, TxDesc};

/// The truth about both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemStats {
    /// From the first port to the second.
    pub forward: PathStats,
    /// From the second port to the first.
    pub backward: PathStats,
}

/// Makes two ports and a modelled path between them.
pub struct MemLink;

impl MemLink {
    /// Two ports joined by a path, and the clock that moves it, at [`Time::ZERO`].
    /// `forward` is the direction from the first port to the second.
    #[expect(clippy::new_ret_no_self, reason = "the link lives in what is returned")]
    pub fn new(seed: u64, forward: PathModel, backward: PathModel) -> (MemPort, MemPort, MemClock) {
        let paths = [Path::new(forward, seed), Path::new(backward, !seed)];
        let world = World { now: Time::ZERO, paths, done: [Vec::new(), Vec::new()] };
        let world = Arc::new(Mutex::new(world));
        (
            MemPort::new(Arc::clone(&world), 0),
            MemPort::new(Arc::clone(&world), 1),
            MemClock { world },
        )
    }
}

/// The clock of two joined ports.
#[derive(Clone)]
pub struct MemClock {
    world: Arc<Mutex<World>>,
}

impl MemClock {
    /// Virtual time, which only [`MemClock::advance_to`] moves.
    pub fn now(&self) -> Time {
        lock(&self.world).now
    }

    /// Moves time on to `now`; a time gone by changes nothing.
    pub fn advance_to(&self, now: Time) {
        let mut world = lock(&self.world);
        world.now = world.now.max(now);
    }

    /// When the next frame arrives at either end; not later than now while a port
    /// still has something to be taken out. `None`: nothing is under way.
    pub fn next_event(&self) -> Option<Time> {
        let world = lock(&self.world);
        let done = world.done.iter().flatten().map(|d| d.stamp.at).min();
        let frames = world.paths.iter().filter_map(Path::next_arrival).min();
        done.into_iter().chain(frames).min()
    }

    /// What the path has done so far.
    pub fn stats(&self) -> MemStats {
        let world = lock(&self.world);
        MemStats { forward: world.paths[0].stats, backward: world.paths[1].stats }
    }
}

/// One end of a modelled path.
///
/// Transmit stamps are the instant of the flush, receive stamps that of the arrival
/// (however late `rx` is called); both say `Driver`.
pub struct MemPort {
    world: Arc<Mutex<World>>,
    side: usize,
    rx_memory: Box<[u8]>,
    frames: Vec<FrameDesc>,
    done: Vec<TxDone>,
    tx_memory: Box<[u8]>,
    slots: Box<[TxDesc]>,
    used: usize,
    caps: Caps,
    stats: PortStats,
}

impl MemPort {
    fn new(world: Arc<Mutex<World>>, side: usize) -> Self {
        let slot = |i| TxDesc { offset: i * MAX_FRAME, capacity: MAX_FRAME, len: 0, cookie: 0 };
        MemPort {
            world,
            side,
            rx_memory: vec![0; BURST * MAX_FRAME].into(),
            frames: Vec::with_capacity(BURST),
            done: Vec::with_capacity(2 * BURST),
            tx_memory: vec![0; BURST * MAX_FRAME].into(),
            slots: (0..BURST).map(slot).collect(),
            used: 0,
            caps: Caps {
                engine: "mem",
                mode: "modelled path, virtual time".into(),
                rx_stamp: StampSource::Driver,
                tx_stamp: StampSource::Driver,
                max_frame: MAX_FRAME,
                link_layer: true,
            },
            stats: PortStats::default(),
        }
    }

    /// Sends the frames of the last burst whose verdict was to transmit.
    fn act_on_verdicts(&mut self) {
        if self.frames.is_empty() {
            return;
        }
        let mut world = lock(&self.world);
        for d in self.frames.drain(..) {
            if let Verdict::Transmit { cookie } = d.verdict {
                world.send(self.side, &self.rx_memory[d.offset..d.offset + d.len], cookie);
                self.stats.tx_frames += 1;
            }
        }
    }
}

impl Port for MemPort {
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError> {
        self.act_on_verdicts();
        self.done.clear();
        let mut guard = lock(&self.world);
        let world = &mut *guard;
        self.done.append(&mut world.done[self.side]);
        self.stats.tx_stamps += self.done.len() as u64;
        let path = &mut world.paths[1 - self.side];
        while self.frames.len() < BURST
            && let Some(flight) = path.take(world.now)
        {
            let (offset, len) = (self.frames.len() * MAX_FRAME, flight.bytes.len());
            self.rx_memory[offset..offset + len].copy_from_slice(&flight.bytes);
            let stamp = Stamp { at: flight.at, source: StampSource::Driver };
            let verdict = Verdict::Release;
            self.frames.push(FrameDesc { offset, len, wire_len: len, segment: 0, stamp, verdict });
            path.spare.push(flight.bytes);
        }
        drop(guard);
        self.stats.rx_frames += self.frames.len() as u64;
        Ok(RxBurst::new(&mut self.rx_memory, &mut self.frames, &self.done))
    }

    fn tx(&mut self) -> TxBurst<'_> {
        self.stats.tx_full += u64::from(self.used == self.slots.len());
        TxBurst::new(&mut self.tx_memory, &mut self.slots, &mut self.used)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.act_on_verdicts();
        let mut world = lock(&self.world);
        for d in &self.slots[..self.used] {
            world.send(self.side, &self.tx_memory[d.offset..d.offset + d.len], d.cookie);
        }
        self.stats.tx_frames += self.used as u64;
        self.used = 0;
        Ok(())
    }

    /// Returns at once: virtual time moves only by [`MemClock::advance_to`].
    fn wait(&mut self, _until: Time) -> Result<(), PortError> {
        Ok(())
    }

    fn now(&self) -> Time {
        lock(&self.world).now
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn stats(&mut self) -> PortStats {
        self.stats
    }
}

/// What both ports and the clock share.
struct World {
    now: Time,
    /// `paths[i]` begins at port `i`.
    paths: [Path; 2],
    /// Completions that port `i` has not taken yet.
    done: [Vec<TxDone>; 2],
}

impl World {
    fn send(&mut self, side: usize, frame: &[u8], cookie: u64) {
        if cookie != 0 {
            let stamp = Stamp { at: self.now, source: StampSource::Driver };
            self.done[side].push(TxDone { cookie, stamp });
        }
        self.paths[side].put(self.now, frame);
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    // Nothing in here panics half way through a change.
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

const BURST: usize = 64;
const MAX_FRAME: usize = 9216;
