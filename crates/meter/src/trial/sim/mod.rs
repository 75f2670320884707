//! A device under test that exists in virtual time only: for the tests of the procedures, and
//! to compare their searches.
//!
//! It forwards at a constant rate behind a buffer, and now and then stands still. Frames are a
//! fluid: between two changes (a stall begins, the buffer is full) arrivals, losses and waiting
//! time are linear. So a trial costs by its events and not by its frames. Counts are exact to a
//! frame or two an event. A stall that begins while a frame waits is not added to that frame's
//! latency.

mod tally;

use sonde_results::Trial;
use sonde_results::trial::{Invalid, Offer, Pattern, TrialHealth};

use super::NextTrial;
use super::values::SECOND;
use tally::{Piece, Tally};

/// What the device is like.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceConfig {
    /// Frames a second that it forwards in each direction.
    pub capacity_fps: f64,
    /// Frames that can wait in each direction.
    pub buffer_frames: f64,
    /// Latency of a frame that need not wait, ns.
    pub base_ns: i64,
    /// Mean of an exponential latency added to each frame, ns.
    pub jitter_ns: f64,
    /// Stalls a second (a Poisson process).
    pub stalls_per_s: f64,
    /// Mean of their exponential duration, ns.
    pub stall_ns: f64,
    /// Directions: "a>b", "b>a".
    pub directions: Vec<String>,
    /// Stations that its address table can hold.
    pub addresses: u32,
    /// Stations a second that it can learn.
    pub learning_fps: f64,
    /// What is wrong with it.
    pub faults: Faults,
    /// What is wrong with the tester in front of it.
    pub tester: SimulatedTester,
}

impl Default for DeviceConfig {
    /// A software device of 1 M frames/s with a buffer of 1000 frames, without stalls.
    fn default() -> Self {
        DeviceConfig {
            capacity_fps: 1e6,
            buffer_frames: 1000.0,
            base_ns: 10_000,
            jitter_ns: 0.0,
            stalls_per_s: 0.0,
            stall_ns: 1e6,
            directions: vec!["a>b".into()],
            addresses: 1024,
            learning_fps: 1e6,
            faults: Faults::default(),
            tester: SimulatedTester::default(),
        }
    }
}

/// Faults of a device; 0 or `None`: it has not that one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    pub drops_all: bool,
    /// One of so many frames is lost.
    pub drops_one_in: u64,
    /// One of so many frames arrives twice.
    pub duplicates_one_in: u64,
    /// One of so many frames is overtaken.
    pub reorders_one_in: u64,
    /// In every trial nothing is forwarded from the one to the other, ns from the first frame.
    pub resets_between_ns: Option<[i64; 2]>,
    /// How long a reset takes that the trial itself asks for, ns.
    pub reset_ns: i64,
}

/// Faults of the tester.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulatedTester {
    /// Every so many-th trial is invalid: starved; 0: none.
    pub starved_every: u64,
    /// More frames a second it cannot send; 0: any.
    pub max_fps: f64,
}

/// A simulated device, between two trials.
#[derive(Clone, Debug)]
pub struct SimulatedDevice {
    config: DeviceConfig,
    random: fastrand::Rng,
    trials: u64,
    /// Virtual time, ns.
    now_ns: i64,
    /// Stations in its address table.
    learned: u32,
}

/// One of the device's service states that last for a while.
#[derive(Clone, Copy, PartialEq)]
enum Service {
    Forwards,
    Stalls,
    /// Frames that arrive, and those that wait, are lost.
    Dead,
}

/// When which load begins, ns and frames/s.
fn changes(offer: &Offer) -> Vec<(f64, f64)> {
    let (mut changes, mut from) = (vec![(0.0, offer.rate_fps)], 0);
    for step in &offer.steps {
        let (at, rate) = changes[changes.len() - 1];
        let until = step.after_frames.max(from);
        changes.push((at + (until - from) as f64 / rate * SECOND as f64, step.rate_fps));
        from = until;
    }
    changes
}

impl SimulatedDevice {
    /// Everything random follows from `seed`.
    pub fn new(config: DeviceConfig, seed: u64) -> SimulatedDevice {
        let random = fastrand::Rng::with_seed(seed);
        SimulatedDevice { config, random, trials: 0, now_ns: 0, learned: 0 }
    }

    /// Runs the trial that a procedure wants.
    pub fn run(&mut self, next: &NextTrial) -> Trial {
        self.trials += 1;
        let offer = &next.offer;
        if let Some(event) = &offer.event
            && event.action == super::FORGET
        {
            self.learned = 0;
        }
        let mut directions = Vec::new();
        let services = self.services(offer);
        for name in self.config.directions.clone() {
            let mut tally = Tally::new(name, offer, self.now_ns, &self.config);
            self.forward(offer, &services, &mut tally);
            directions.push(tally.finish());
        }
        self.learn(offer, &mut directions[0]);
        let mut invalid = Vec::new();
        let tester = &self.config.tester;
        if tester.starved_every > 0 && self.trials.is_multiple_of(tester.starved_every) {
            invalid.push(Invalid::Starved { ns: 30_000_000 });
        }
        if tester.max_fps > 0.0 && offer.rate_fps > tester.max_fps {
            let ratio = tester.max_fps / offer.rate_fps;
            for d in &mut directions {
                d.sent = (d.sent as f64 * ratio) as u64;
                d.received = d.received.min(d.sent);
                d.lost = d.sent - d.received;
                invalid.push(Invalid::NotSent { direction: d.name.clone(), ratio });
            }
        }
        let start_ns = self.now_ns;
        self.now_ns += offer.duration_ns() + 2 * SECOND;
        Trial {
            number: self.trials,
            measurement: String::new(),
            attempt: 1,
            purpose: next.purpose.clone(),
            start_ns,
            offer: offer.clone(),
            directions,
            ledger: Vec::new(),
            health: TrialHealth::default(),
            invalid,
        }
    }

    /// When the device does not forward, in order, without overlap, ns from the first frame.
    fn services(&mut self, offer: &Offer) -> Vec<(f64, f64, Service)> {
        let end = offer.duration_ns() as f64;
        let mut out: Vec<(f64, f64, Service)> = Vec::new();
        let config = &self.config;
        let asked = offer.event.as_ref().filter(|e| e.at_ns >= 0 && config.faults.reset_ns > 0);
        let asked = asked.map(|e| [e.at_ns, e.at_ns + config.faults.reset_ns]);
        let dead: Vec<[i64; 2]> =
            [asked, config.faults.resets_between_ns].into_iter().flatten().collect();
        out.extend(dead.iter().map(|d| (d[0] as f64, d[1] as f64, Service::Dead)));
        let mut exponential = |mean: f64| -mean * (1.0 - self.random.f64()).ln();
        let mut at = exponential(SECOND as f64 / config.stalls_per_s);
        while at < end {
            let until = at + exponential(config.stall_ns);
            if out.iter().all(|&(from, to, _)| until <= from || at >= to) {
                out.push((at, until, Service::Stalls));
            }
            at = until + exponential(SECOND as f64 / config.stalls_per_s);
        }
        out.sort_by(|a, b| a.0.total_cmp(&b.0));
        out
    }

    /// Follows the fluid through one direction.
    fn forward(&mut self, offer: &Offer, services: &[(f64, f64, Service)], tally: &mut Tally) {
        let end = offer.duration_ns() as f64;
        let loads = changes(offer);
        let mut change = 0;
        // Frames of a burst come at once: so many entries of the buffer they need beyond those
        // of an even load.
        let buffer = (self.config.buffer_frames - f64::from(offer.burst.max(1) - 1)).max(0.0);
        let (mut t, mut waiting, mut service) = (0.0, 0.0, services.iter().peekable());
        while t < end {
            while service.peek().is_some_and(|s| s.1 <= t) {
                service.next();
            }
            let (state, changes) = match service.peek() {
                _ if self.config.faults.drops_all => (Service::Dead, end),
                Some(&&(from, to, state)) if from <= t => (state, to),
                Some(&&(from, ..)) => (Service::Forwards, from),
                None => (Service::Forwards, end),
            };
            let mut until = changes.min(end).min(tally.next_boundary(t));
            while loads.get(change + 1).is_some_and(|next| t >= next.0) {
                change += 1;
            }
            let rate = loads[change].1;
            if let Some((at, _)) = loads.get(change + 1) {
                until = until.min(*at);
            }
            // Everything in frames a nanosecond from here.
            let arrives = rate / SECOND as f64;
            let serves = match state {
                Service::Forwards => self.config.capacity_fps / SECOND as f64,
                Service::Stalls | Service::Dead => 0.0,
            };
            if state == Service::Dead {
                tally.lose_waiting(waiting);
                waiting = 0.0;
                tally.add(Piece::lost(t, until, arrives), &mut self.random);
                t = until;
                continue;
            }
            let grows = arrives - serves;
            let full = waiting >= buffer && grows > 0.0;
            let empty = waiting <= 0.0 && grows <= 0.0;
            let after = if full {
                buffer
            } else if empty {
                0.0
            } else {
                let target = if grows > 0.0 { buffer } else { 0.0 };
                if grows != 0.0 {
                    until = until.min(t + ((target - waiting) / grows).max(1e-3));
                }
                (waiting + grows * (until - t)).clamp(0.0, buffer)
            };
            let per_frame = SECOND as f64 / self.config.capacity_fps;
            // Until a stall is over nothing leaves.
            let stalled = |at: f64| if state == Service::Stalls { changes - at } else { 0.0 };
            tally.add(
                Piece {
                    from: t,
                    until,
                    arrives,
                    loss: if full { grows / arrives } else { 0.0 },
                    wait: [waiting * per_frame + stalled(t), after * per_frame + stalled(until)],
                },
                &mut self.random,
            );
            waiting = after;
            t = until;
        }
    }

    /// The address table: what is learned, and what is flooded for want of it.
    fn learn(&mut self, offer: &Offer, direction: &mut sonde_results::trial::Direction) {
        let stations = offer.flows.unwrap_or(0);
        match offer.pattern {
            Pattern::Learning => {
                let share = (self.config.learning_fps / offer.rate_fps).min(1.0);
                let heard = (f64::from(stations) * share) as u32;
                self.learned = self.learned.max(heard.min(self.config.addresses));
            }
            Pattern::Stations if stations > 0 => {
                let unknown = u64::from(stations.saturating_sub(self.learned));
                direction.flooded = direction.sent * unknown / u64::from(stations);
            }
            _ => {}
        }
    }
}
