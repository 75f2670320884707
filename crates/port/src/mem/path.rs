//! One direction of a modelled path: delay, loss, queue, and their account.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use sonde_wire::Time;

/// How one direction of a path treats frames. The default is a perfect wire.
#[derive(Clone, Debug, Default)]
pub struct PathModel {
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
    /// Room of the queue, bytes. What is queued and what is left of the frame being sent count; a
    /// frame that does not fit is dropped.
    pub queue_bytes: u64,
}

/// What one direction did. At any time
/// `sent + duplicated = delivered + in_flight + lost + queue_drops + down_drops`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathStats {
    /// Frames that were handed to the path.
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

/// One direction of a path.
pub(super) struct Path {
    model: PathModel,
    rng: Rng,
    /// Earliest last, by [`Reverse`].
    flights: BinaryHeap<Reverse<Flight>>,
    /// Buffers to use again.
    pub(super) spare: Vec<Vec<u8>>,
    /// The bottleneck is busy until then, in picoseconds: at 100 Gbit/s rounding
    /// every frame to nanoseconds would change the rate by tens of percent.
    busy_until_ps: i128,
    /// Arrival of the latest frame that was not held back.
    last_in_order: Time,
    /// Greatest sequence number among the delivered ones.
    newest: u64,
    copies: u64,
    pub(super) stats: PathStats,
}

/// Ordered by arrival, then by when it was put in.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flight {
    pub(super) at: Time,
    copy: u64,
    /// Sequence number of the frame, from 1; 0 for a second copy.
    sequence: u64,
    pub(super) bytes: Vec<u8>,
}

impl Path {
    /// A path of its own luck.
    pub(super) fn new(model: PathModel, seed: u64) -> Self {
        Path {
            model,
            rng: Rng::with_seed(seed),
            flights: BinaryHeap::new(),
            spare: Vec::new(),
            busy_until_ps: 0,
            last_in_order: Time::ZERO,
            newest: 0,
            copies: 0,
            stats: PathStats::default(),
        }
    }

    /// A frame enters at `now`.
    pub(super) fn put(&mut self, now: Time, frame: &[u8]) {
        // As many draws for every frame, whatever becomes of it: then changing one
        // probability leaves the others' outcomes as they were.
        let [lost, twice, held, corrupt, jitter, bit] = [(); 6].map(|()| self.rng.f64());
        self.stats.sent += 1;
        let sequence = self.stats.sent;
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
        self.fly(at, sequence, bytes);
        if let Some(bytes) = second {
            self.stats.duplicated += 1;
            self.fly(at, 0, bytes);
        }
    }

    fn fly(&mut self, at: Time, sequence: u64, bytes: Vec<u8>) {
        self.copies += 1;
        self.stats.in_flight += 1;
        self.flights.push(Reverse(Flight { at, copy: self.copies, sequence, bytes }));
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

    /// When the next frame arrives.
    pub(super) fn next_arrival(&self) -> Option<Time> {
        self.flights.peek().map(|f| f.0.at)
    }

    /// What has arrived by `now`, one by one.
    pub(super) fn take(&mut self, now: Time) -> Option<Flight> {
        if self.flights.peek()?.0.at > now {
            return None;
        }
        let Reverse(flight) = self.flights.pop()?;
        self.stats.in_flight -= 1;
        self.stats.delivered += 1;
        if flight.sequence != 0 {
            self.stats.reordered += u64::from(flight.sequence < self.newest);
            self.newest = self.newest.max(flight.sequence);
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

const PS_PER_NS: i128 = 1000;
const PS_PER_S: i128 = 1_000_000_000_000;
