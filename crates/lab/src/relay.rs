//! A path of known delay, loss and reordering: a thread that carries frames between two
//! interfaces of a host, for kernels without netem.
//!
//! A frame leaves the delay after the kernel received it, whenever the thread saw it: its
//! own work is not added. It sleeps until shortly before a frame is due and polls from
//! then on; [`RelayReport`] says how late it was all the same. What is lost or late by
//! intent is drawn from a seed, one value a frame and direction.
//!
//! Frames are carried as they are. The interfaces at the other ends must compute their checksums
//! and cut their segments themselves ([`Host::offloads_off`]). VLAN tags, which the kernel takes
//! off before, do not pass.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_sys::clock::realtime_now;
use sonde_sys::packet_socket::PacketSocket;
use sonde_sys::schedule::{WAKE_UP_NS, prefer_this_thread};

use crate::{Host, LabError};

/// What a relay does to the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairment {
    /// From a frame's arrival to its departure.
    pub delay: Duration,
    /// Share of the frames that are lost, 0 to 1.
    pub loss: f64,
    /// Share of the frames that are held back by `reorder_by`, 0 to 1.
    pub reorder: f64,
    /// How much longer these take: others overtake them.
    pub reorder_by: Duration,
    /// Bits a second, Ethernet header included; 0: no limit. Frames wait for their turn.
    pub rate: u64,
    /// Frames that are held at most, for their turn and for the delay: those that find so many
    /// there are lost. 0: [`QUEUE`] where the rate is limited, else no limit.
    pub queue: usize,
}

impl Impairment {
    /// Frames that are held at most.
    fn queue_limit(&self) -> Option<usize> {
        match (self.queue, self.rate) {
            (0, 0) => None,
            (0, _) => Some(QUEUE),
            (limit, _) => Some(limit),
        }
    }
}

/// A running relay. Dropping it ends it; frames on their way are lost.
#[derive(Debug)]
pub struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<RelayReport>>>,
}

/// What a relay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayReport {
    /// From the first interface to the second, and back.
    pub directions: [RelayCounts; 2],
    /// The greatest lateness of a frame, ns.
    pub late_max_ns: i64,
    /// Frames that left more than 50 us late.
    pub late: u64,
}

/// The frames of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayCounts {
    pub relayed: u64,
    /// Of these, held back on purpose.
    pub reordered: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Lost because the queue was full.
    pub queue_full: u64,
    /// Not sent on against our will: too long for a link, no room in the kernel. A test
    /// that relies on its results asserts that there is none.
    pub failed: u64,
}

impl Relay {
    /// Starts a relay on `host`, whose interfaces carry no addresses, between two of its
    /// interfaces; `there` is the direction from the first to the second.
    pub fn start(
        host: &Host,
        interfaces: [&str; 2],
        there: Impairment,
        back: Impairment,
        seed: u64,
    ) -> Result<Relay, LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, host, names) = (stop.clone(), host.clone(), interfaces.map(str::to_owned));
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let opened = host.enter().and_then(|()| {
                Ok([PacketSocket::open(&names[0])?, PacketSocket::open(&names[1])?])
            });
            // Where it is refused, the report says by how late the frames were.
            let _ = prefer_this_thread();
            match opened {
                Ok(sockets) => {
                    drop(sender);
                    Worker::new(sockets, [there, back], seed).run(&stopped)
                }
                Err(error) => {
                    let _ = sender.send(error); // the starter waits for it
                    Ok(RelayReport::default())
                }
            }
        });
        // Without an error the channel closes empty.
        match receiver.recv() {
            Ok(error) => Err(error),
            Err(_) => Ok(Relay { stop, thread: Some(thread) }),
        }
    }

    /// Ends it, and says what it did.
    pub fn stop(mut self) -> Result<RelayReport, LabError> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("stopped only once");
        let result = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.map_err(LabError::Relay)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its error concerns nobody any more
        }
    }
}

/// A frame on its way. The order of departure is that of the fields.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    due: i64,
    sequence: u64,
    direction: usize,
    frame: Vec<u8>,
}

struct Worker {
    sockets: [PacketSocket; 2],
    impairments: [Impairment; 2],
    random: [fastrand::Rng; 2],
    /// When the last bit of the frame before has left a limited link.
    link_free: [i64; 2],
    flights: BinaryHeap<Reverse<Flight>>,
    /// When the frames that a limited queue holds are due.
    held: [BinaryHeap<Reverse<i64>>; 2],
    sequence: u64,
    spare: Vec<Vec<u8>>,
    report: RelayReport,
}

impl Worker {
    fn new(sockets: [PacketSocket; 2], impairments: [Impairment; 2], seed: u64) -> Worker {
        Worker {
            sockets,
            impairments,
            random: [seed, !seed].map(fastrand::Rng::with_seed),
            link_free: [i64::MIN; 2],
            flights: BinaryHeap::new(),
            held: Default::default(),
            sequence: 0,
            spare: Vec::new(),
            report: RelayReport::default(),
        }
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<RelayReport> {
        while !stop.load(Ordering::Relaxed) {
            for direction in 0..2 {
                self.receive(direction)?;
            }
            self.send_due()?;
            let ahead = match self.flights.peek() {
                Some(Reverse(next)) => next.due - realtime_now().as_nanos() - WAKE_UP_NS,
                None => IDLE,
            };
            if ahead > 0 {
                PacketSocket::wait([&self.sockets[0], &self.sockets[1]], ahead.min(IDLE))?;
            }
        }
        for (socket, counts) in self.sockets.iter().zip(&mut self.report.directions) {
            counts.failed += socket.missed()?;
        }
        Ok(self.report)
    }

    fn receive(&mut self, direction: usize) -> io::Result<()> {
        for _ in 0..BURST {
            let mut frame = self.spare.pop().unwrap_or_default();
            frame.resize(MAX_FRAME, 0);
            let Some((len, at)) = self.sockets[direction].receive(&mut frame)? else {
                self.spare.push(frame);
                return Ok(());
            };
            let (fits, due) = (len <= MAX_FRAME, self.fate(direction, len, at.as_nanos()));
            let counts = &mut self.report.directions[direction];
            counts.failed += u64::from(!fits);
            match due {
                Some(due) if fits => {
                    frame.truncate(len);
                    self.sequence += 1;
                    let sequence = self.sequence;
                    self.flights.push(Reverse(Flight { due, sequence, direction, frame }));
                }
                _ => self.spare.push(frame),
            }
        }
        Ok(())
    }

    /// When a frame leaves; `None`: it is lost.
    fn fate(&mut self, direction: usize, len: usize, at: i64) -> Option<i64> {
        let counts = &mut self.report.directions[direction];
        let impairment = self.impairments[direction];
        let random = &mut self.random[direction];
        // Both are drawn for each frame: so neither share moves the other's choices.
        let (lost, held) = (random.f64() < impairment.loss, random.f64() < impairment.reorder);
        if lost {
            counts.lost += 1;
            return None;
        }
        // Full or not as the frame arrived, whenever this thread sees it.
        let limit = impairment.queue_limit();
        let queue = &mut self.held[direction];
        while queue.peek().is_some_and(|Reverse(due)| *due <= at) {
            queue.pop();
        }
        if limit.is_some_and(|limit| queue.len() >= limit) {
            counts.queue_full += 1;
            return None;
        }
        let mut due = at;
        if let Some(time) = (len as u64 * 8_000_000_000).checked_div(impairment.rate) {
            let link = &mut self.link_free[direction];
            *link = at.max(*link) + time as i64;
            due = *link;
        }
        due += impairment.delay.as_nanos() as i64;
        if held {
            counts.reordered += 1;
            due += impairment.reorder_by.as_nanos() as i64;
        }
        if limit.is_some() {
            queue.push(Reverse(due));
        }
        Some(due)
    }

    fn send_due(&mut self) -> io::Result<()> {
        for _ in 0..BURST {
            let now = realtime_now().as_nanos();
            if self.flights.peek().is_none_or(|Reverse(next)| next.due > now) {
                return Ok(());
            }
            let Some(Reverse(flight)) = self.flights.pop() else { return Ok(()) };
            let late = now - flight.due;
            self.report.late_max_ns = self.report.late_max_ns.max(late);
            self.report.late += u64::from(late > LATE);
            let sent = self.sockets[1 - flight.direction].send(&flight.frame)?;
            let counts = &mut self.report.directions[flight.direction];
            counts.relayed += u64::from(sent);
            counts.failed += u64::from(!sent);
            self.spare.push(flight.frame);
        }
        Ok(())
    }
}

/// Frames that a relay of limited rate holds, by default.
pub const QUEUE: usize = 1000;
/// Of one direction before the other is looked at.
const BURST: usize = 32;
/// The longest frame that is carried: Ethernet at its usual MTU, with room for tags.
const MAX_FRAME: usize = 1600;
/// Between looks at the order to stop.
const IDLE: i64 = 20_000_000;
/// From here on a frame is counted as late.
const LATE: i64 = 50_000;
