//! Engine `mem`: two ports joined by a modelled path, in virtual time.
//!
//! The path of each direction delays, loses, doubles, reorders, corrupts and queues
//! frames as its [`Model`] says, and counts exactly what it did: the truth that an
//! instrument's own numbers are tested against. The same seed gives the same run.
//!
//! Nothing moves until [`MemClock::advance_to`]. A test's loop is: let both ends run
//! until they are idle, then advance to the earlier of [`MemClock::next_event`] and
//! their own timers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sonde_wire::{Stamp, StampSource, Time, TxDone, Verdict};

use crate::{Caps, FrameDesc, Port, PortError, PortStats, RxBurst, TxBurst, TxDesc};

/// How one direction of a path treats frames. The default is a perfect wire.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Fixed delay, ns.
    pub delay_ns: i64,
    /// Varying delay on top. Like that of a queue it never reorders.
    pub jitter: Jitter,
    /// Probability (0..=1) that a frame is lost.
    pub loss: f64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that a frame is held back for `reorder_extra_ns`, so that those
    /// sent meanwhile may overtake it.
    pub reorder: f64,
    /// How long frames are held back, ns.
    pub reorder_extra_ns: i64,
    /// Probability that one bit of a frame, any one, is flipped.
    pub corrupt: f64,
    /// A bottleneck at the head of the path.
    pub bottleneck: Option<Bottleneck>,
    /// Times (from, until) in which all frames are lost. The end is not included.
    pub down: Vec<(Time, Time)>,
}

/// The varying part of a delay.
#[derive(Clone, Copy, Debug, Default)]
pub enum Jitter {
    /// None.
    #[default]
    None,
    /// Anything from 0 to this many ns, equally likely.
    Uniform(i64),
    /// Exponentially distributed with this mean, ns.
    Exponential(i64),
}

/// A link of limited rate with a queue before it that drops at its tail.
#[derive(Clone, Copy, Debug)]
pub struct Bottleneck {
    /// Bits per second, counting the bytes from the Ethernet header on, without FCS.
    pub rate_bps: u64,
    /// A frame is dropped if it does not fit into this many bytes together with
    /// what is queued and what is left of the frame being sent.
    pub queue_bytes: u64,
}

/// What one direction did. At any time
/// `sent + duplicated = delivered + in_flight + lost + queue_drops + down_drops`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathStats {
    /// Frames put in.
    pub sent: u64,
    /// Frames taken out by the receiving port.
    pub delivered: u64,
    /// Copies on their way, or waiting to be taken out.
    pub in_flight: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Delivered after a frame that was sent later (RFC 4737, section 3); second
    /// copies not counted.
    pub reordered: u64,
    /// Dropped at the tail of the bottleneck's queue.
    pub queue_drops: u64,
    /// Lost because the path was down.
    pub down_drops: u64,
    /// Delivered, or to be, with a flipped bit.
    pub corrupted: u64,
}

/// The truth about both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemStats {
    /// From the first port to the second.
    pub forward: PathStats,
    /// From the second port to the first.
    pub backward: PathStats,
}

/// Makes joined ports.
pub struct MemLink;

impl MemLink {
    /// Two ports joined by a path, and the clock that moves it, at [`Time::ZERO`].
    /// `forward` is the direction from the first port to the second.
    #[expect(clippy::new_ret_no_self, reason = "the link lives in what is returned")]
    pub fn new(seed: u64, forward: Model, backward: Model) -> (MemPort, MemPort, MemClock) {
        let paths = [Path::new(forward, Rng(seed)), Path::new(backward, Rng(!seed))];
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
    /// The virtual time.
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
        let frames = world.paths.iter().filter_map(|p| p.flights.peek()).map(|f| f.0.at).min();
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
            self.frames.push(FrameDesc { offset, len, stamp, verdict: Verdict::Release });
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

struct Path {
    model: Model,
    rng: Rng,
    /// Earliest last, by [`Reverse`].
    flights: BinaryHeap<Reverse<Flight>>,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
    /// The bottleneck is busy until then, in picoseconds: at 100 Gbit/s rounding
    /// every frame to nanoseconds would change the rate by tens of percent.
    busy_until_ps: i128,
    /// Arrival of the latest frame that was not held back.
    last_in_order: Time,
    /// Greatest number among the delivered ones.
    newest: u64,
    copies: u64,
    stats: PathStats,
}

/// Ordered by arrival, then by when it was put in.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Time,
    copy: u64,
    /// Number of the frame, from 1; 0 for a second copy.
    number: u64,
    bytes: Vec<u8>,
}

impl Path {
    fn new(model: Model, rng: Rng) -> Self {
        Path {
            model,
            rng,
            flights: BinaryHeap::new(),
            spare: Vec::new(),
            busy_until_ps: 0,
            last_in_order: Time::ZERO,
            newest: 0,
            copies: 0,
            stats: PathStats::default(),
        }
    }

    fn put(&mut self, now: Time, frame: &[u8]) {
        // As many draws for every frame, whatever becomes of it: then changing one
        // probability leaves the others' outcomes as they were.
        let [lost, twice, held, corrupt, jitter, bit] = [(); 6].map(|()| self.rng.unit());
        self.stats.sent += 1;
        let number = self.stats.sent;
        if self.model.down.iter().any(|&(from, until)| from <= now && now < until) {
            self.stats.down_drops += 1;
            return;
        }
        if lost < self.model.loss {
            self.stats.lost += 1;
            return;
        }
        let Some(leaves) = self.pass_bottleneck(now, frame.len()) else {
            self.stats.queue_drops += 1;
            return;
        };
        let mut at = leaves + self.model.delay_ns.max(0) + self.model.jitter.draw(jitter);
        at = at.max(self.last_in_order);
        if held < self.model.reorder {
            at = at + self.model.reorder_extra_ns.max(0);
        } else {
            self.last_in_order = at;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        if corrupt < self.model.corrupt && !bytes.is_empty() {
            let bit = (bit * (bytes.len() * 8) as f64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            self.stats.corrupted += 1;
        }
        let second = (twice < self.model.duplicate).then(|| bytes.clone());
        self.fly(at, number, bytes);
        if let Some(bytes) = second {
            self.stats.duplicated += 1;
            self.fly(at, 0, bytes);
        }
    }

    fn fly(&mut self, at: Time, number: u64, bytes: Vec<u8>) {
        self.copies += 1;
        self.stats.in_flight += 1;
        self.flights.push(Reverse(Flight { at, copy: self.copies, number, bytes }));
    }

    /// When the frame has left the bottleneck, or `None` if its queue has no room.
    fn pass_bottleneck(&mut self, now: Time, len: usize) -> Option<Time> {
        let Some(Bottleneck { rate_bps, queue_bytes }) = self.model.bottleneck else {
            return Some(now);
        };
        let rate = i128::from(rate_bps.max(1));
        let now_ps = i128::from(now.as_nanos()) * PS_PER_NS;
        let begins = self.busy_until_ps.max(now_ps);
        let backlog_bytes = (begins - now_ps) * rate / (8 * PS_PER_S);
        if backlog_bytes + len as i128 > i128::from(queue_bytes) {
            return None;
        }
        self.busy_until_ps = begins + len as i128 * 8 * PS_PER_S / rate;
        Some(Time::from_nanos((self.busy_until_ps / PS_PER_NS) as i64))
    }

    fn take(&mut self, now: Time) -> Option<Flight> {
        if self.flights.peek()?.0.at > now {
            return None;
        }
        let Reverse(flight) = self.flights.pop()?;
        self.stats.in_flight -= 1;
        self.stats.delivered += 1;
        if flight.number != 0 {
            self.stats.reordered += u64::from(flight.number < self.newest);
            self.newest = self.newest.max(flight.number);
        }
        Some(flight)
    }
}

impl Jitter {
    /// From `unit`, equally distributed over 0..1.
    fn draw(self, unit: f64) -> i64 {
        match self {
            Jitter::None => 0,
            Jitter::Uniform(most) => (unit * (most.max(0) as f64 + 1.0)) as i64,
            Jitter::Exponential(mean) => (-(1.0 - unit).ln() * mean.max(0) as f64) as i64,
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
struct Rng(u64);

impl Rng {
    /// Equally distributed over 0..1, 1 not included.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    // Nothing in here panics half way through a change.
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

const BURST: usize = 64;
const MAX_FRAME: usize = 9216;
const PS_PER_NS: i128 = 1000;
const PS_PER_S: i128 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;

    fn send(port: &mut MemPort, frame: &[u8], cookie: u64) {
        let mut burst = port.tx();
        burst.slot().expect("a free slot")[..frame.len()].copy_from_slice(frame);
        burst.commit(frame.len(), cookie);
        port.flush().unwrap();
    }

    fn receive(port: &mut MemPort) -> Vec<(Vec<u8>, i64)> {
        let mut burst = port.rx().unwrap();
        (0..burst.len())
            .map(|i| {
                let (frame, stamp) = burst.frame(i);
                (frame.to_vec(), stamp.at.as_nanos())
            })
            .collect()
    }

    /// Sends `count` frames, one every `gap` ns, and returns what arrived and when.
    fn run(seed: u64, model: Model, count: u32, gap: i64) -> (Vec<(Vec<u8>, i64)>, PathStats) {
        let (mut a, mut b, clock) = MemLink::new(seed, model, Model::default());
        let mut got = Vec::new();
        for i in 0..count {
            clock.advance_to(Time::from_nanos(i64::from(i) * gap));
            send(&mut a, &[&i.to_be_bytes()[..], &[0; 96]].concat(), 0);
            got.extend(receive(&mut b));
        }
        while let Some(next) = clock.next_event() {
            clock.advance_to(next);
            got.extend(receive(&mut b));
        }
        (got, clock.stats().forward)
    }

    #[test]
    fn a_frame_arrives_after_the_delay_and_its_completion_comes_first() {
        let model = Model { delay_ns: 5 * MS, ..Model::default() };
        let (mut a, mut b, clock) = MemLink::new(1, model.clone(), model);
        clock.advance_to(Time::from_nanos(MS));
        send(&mut a, b"ping", 7);
        assert_eq!(clock.next_event(), Some(clock.now()), "the completion");
        assert_eq!(a.rx().unwrap().done()[0].cookie, 7);
        assert_eq!(clock.next_event(), Some(Time::from_nanos(6 * MS)));
        assert_eq!(receive(&mut b), []);
        clock.advance_to(Time::from_nanos(6 * MS));
        let mut burst = b.rx().unwrap();
        let (frame, stamp) = burst.frame(0);
        frame.copy_from_slice(b"pong");
        assert_eq!((stamp.at.as_nanos(), stamp.source), (6 * MS, StampSource::Driver));
        burst.set_verdict(0, Verdict::Transmit { cookie: 9 });
        b.flush().unwrap();
        let done = b.rx().unwrap().done()[0];
        assert_eq!((done.cookie, done.stamp.at.as_nanos()), (9, 6 * MS));
        clock.advance_to(Time::from_nanos(11 * MS));
        assert_eq!(receive(&mut a), [(b"pong".to_vec(), 11 * MS)]);
        assert_eq!((a.stats().tx_frames, b.stats().tx_frames), (1, 1));
        assert_eq!(clock.next_event(), None);
    }

    #[test]
    fn a_verdict_is_acted_upon_by_the_next_rx_too() {
        let (mut a, mut b, _clock) = MemLink::new(1, Model::default(), Model::default());
        send(&mut a, b"x", 0);
        b.rx().unwrap().set_verdict(0, Verdict::Transmit { cookie: 0 });
        assert!(b.rx().unwrap().is_empty());
        assert_eq!(receive(&mut a).len(), 1);
    }

    #[test]
    fn a_full_transmit_ring_is_counted() {
        let (mut a, _b, _clock) = MemLink::new(1, Model::default(), Model::default());
        let mut burst = a.tx();
        while burst.slot().is_some() {
            burst.commit(60, 0);
        }
        assert!(a.tx().slot().is_none());
        assert_eq!(a.stats().tx_full, 1);
        a.flush().unwrap();
        assert!(a.tx().slot().is_some());
        assert_eq!(a.stats().tx_frames, BURST as u64);
    }

    #[test]
    fn the_bottleneck_spaces_frames_and_drops_at_its_tail() {
        // 100 bytes at 8 Mbit/s take 100 us; ten fit.
        let bottleneck = Some(Bottleneck { rate_bps: 8_000_000, queue_bytes: 1000 });
        let (got, stats) = run(1, Model { bottleneck, ..Model::default() }, 12, 0);
        let times: Vec<_> = got.iter().map(|g| g.1).collect();
        assert_eq!(times, (1..=10).map(|i| i * 100_000).collect::<Vec<_>>());
        assert_eq!((stats.queue_drops, stats.delivered), (2, 10));
    }

    #[test]
    fn a_fast_bottleneck_keeps_its_rate() {
        let bottleneck = Some(Bottleneck { rate_bps: 100_000_000_000, queue_bytes: 1 << 30 });
        let (got, _) = run(1, Model { bottleneck, ..Model::default() }, 10_000, 0);
        assert_eq!(got.last().unwrap().1, 10_000 * 8, "100 bytes in 8 ns each");
    }

    #[test]
    fn while_down_everything_is_lost() {
        let down = vec![(Time::from_nanos(30), Time::from_nanos(60))];
        let (got, stats) = run(1, Model { down, ..Model::default() }, 10, 10);
        assert_eq!(got.iter().map(|g| g.1).collect::<Vec<_>>(), [0, 10, 20, 60, 70, 80, 90]);
        assert_eq!(stats.down_drops, 3);
    }

    #[test]
    fn chances_come_out_as_asked() {
        let n = 20_000;
        let near = |count: u64, p: f64| (count as f64 / f64::from(n) - p).abs() < 0.01;
        let model = Model { loss: 0.1, duplicate: 0.05, corrupt: 0.2, ..Model::default() };
        let (got, stats) = run(42, model, n, 10);
        assert!(near(stats.lost, 0.1) && near(stats.duplicated, 0.9 * 0.05));
        assert!(near(stats.corrupted, 0.9 * 0.2));
        // A flipped bit is found again, in the right number of frames.
        let bad = got.iter().filter(|g| g.0[4..].iter().any(|&b| b != 0)).count() as u64;
        let of_96 = (stats.corrupted + stats.duplicated / 5) as f64 * 0.96;
        assert!((bad as f64 / of_96 - 1.0).abs() < 0.05, "{bad} {of_96}");
    }

    #[test]
    fn jitter_has_its_distribution_and_keeps_order() {
        let wide = 10 * MS; // Frames so far apart that order needs no keeping.
        for (jitter, mean, most) in
            [(Jitter::Uniform(MS), 500_000.0, MS), (Jitter::Exponential(MS), 1e6, wide * 2)]
        {
            let (got, _) = run(3, Model { jitter, ..Model::default() }, 5000, 2 * wide);
            let delays = got.iter().enumerate().map(|(i, g)| g.1 - 2 * wide * i as i64);
            assert!(delays.clone().all(|d| (0..=most).contains(&d)));
            let m = delays.sum::<i64>() as f64 / 5000.0;
            assert!((m / mean - 1.0).abs() < 0.05, "{m}");
            let (_, dense) = run(3, Model { jitter, ..Model::default() }, 5000, 100);
            assert_eq!(dense.reordered, 0);
        }
    }

    #[test]
    fn held_back_frames_are_overtaken_and_counted_once() {
        let model = Model { reorder: 0.1, reorder_extra_ns: 25, ..Model::default() };
        let (got, stats) = run(5, model, 2000, 10);
        let mut newest = 0;
        let mut behind = 0;
        for (frame, _) in &got {
            let number = u32::from_be_bytes(frame[..4].try_into().unwrap());
            behind += u64::from(number < newest);
            newest = newest.max(number);
        }
        assert_eq!(stats.reordered, behind);
        assert!((150..250).contains(&behind), "{behind}");
    }

    proptest! {
        #[test]
        fn nothing_is_unaccounted_for_and_the_seed_decides(
            seed in any::<u64>(), loss in 0.0..0.5f64, duplicate in 0.0..0.5f64,
            reorder in 0.0..0.5f64, queue_bytes in 100u64..2000, count in 1u32..200,
        ) {
            let model = Model {
                delay_ns: 1000, jitter: Jitter::Exponential(500), loss, duplicate, reorder,
                reorder_extra_ns: 700, corrupt: 0.1,
                bottleneck: Some(Bottleneck { rate_bps: 1_000_000_000, queue_bytes }),
                down: vec![(Time::from_nanos(2000), Time::from_nanos(3000))],
            };
            let (got, s) = run(seed, model.clone(), count, 100);
            prop_assert_eq!(s.in_flight, 0);
            prop_assert_eq!(s.delivered, got.len() as u64);
            prop_assert_eq!(s.sent, u64::from(count));
            prop_assert_eq!(s.sent + s.duplicated,
                            s.delivered + s.lost + s.queue_drops + s.down_drops);
            prop_assert!(got.is_sorted_by_key(|g| g.1));
            let again = run(seed, model, count, 100);
            prop_assert_eq!(&again.0, &got);
            prop_assert_eq!(again.1, s);
        }
    }
}
