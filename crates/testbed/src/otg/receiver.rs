//! The thread that receives at one port, and counts the frames of every flow.

use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError};

use sonde_meter::load::{FCS_LEN, SequenceArrivals, SequenceVerdict};
use sonde_port::{Port, PortStats};
use sonde_results::Hist;
use sonde_sys::clock::tai_now;
use sonde_wire::Time;
use sonde_wire::signature::{self, Repr, Secret};

use super::capture::CaptureRing;
use super::devices::concerns_neighbours;
use super::rates::RateMeter;

/// What the thread is asked to do.
pub enum ReceiverCommand {
    /// Flows that begin anew, with their tags; whether their counters go back to 0.
    Expect(Vec<(u16, u8)>, bool, Sender<()>),
    /// Pass on what neighbours ask and answer, or no longer.
    Neighbours(Option<SyncSender<Vec<u8>>>, Sender<()>),
    /// Keep frames in this from now on.
    Capture(Box<CaptureRing>, Sender<()>),
    /// Keep no further frame, and give back what was kept, if any was.
    Captured(Sender<Option<Box<CaptureRing>>>),
    /// Report what has come.
    Report(Sender<ReceiverReport>),
}

/// What has come to a port.
#[derive(Clone, Debug, Default)]
pub struct ReceiverReport {
    /// By index of the flow.
    pub flows: Vec<(u16, FlowReceived)>,
    /// Frames, whosever they are.
    pub frames: u64,
    /// Their octets with the FCS.
    pub bytes: u64,
    /// Frames and octets a second.
    pub rates: [f64; 2],
    /// Frames with our mark and the right digest, also those of no flow.
    pub whole: u64,
    /// Of these, frames that are at the wrong port, or of before.
    pub stray: u64,
    /// Frames with our mark and a wrong digest.
    pub damaged: u64,
    /// Frames that are kept, and that found no room, while a capture is under way.
    pub capture: Option<[u64; 2]>,
    pub stats: PortStats,
    /// Why it has ended.
    pub failed: Option<String>,
}

/// What has come of a flow.
#[derive(Clone, Debug, Default)]
pub struct FlowReceived {
    /// Frames, each once.
    pub frames: u64,
    /// Octets with the FCS.
    pub bytes: u64,
    /// Frames and octets a second.
    pub rates: [f64; 2],
    /// Further copies.
    pub duplicates: u64,
    /// Frames after one that was sent later (RFC 4737, section 3.3).
    pub reordered: u64,
    /// Frames that came after so many later ones that nobody knows whether they are copies.
    pub too_late: u64,
    /// First and last arrival, ns TAI.
    pub times: [i64; 2],
    /// From transmit to receive stamp, ns.
    pub latency: Hist,
    /// Difference to the frame before, in the order of arrival, ns (RFC 4689, section 3.2.5).
    pub jitter: Hist,
    /// RFC 3550, section 6.4.1, ns.
    pub rfc3550_jitter_ns: f64,
}

/// Receives until the other end of `orders` is gone. `flows` are those expected here.
pub fn run(
    mut port: Box<dyn Port>,
    flows: &[u16],
    secret: Secret,
    orders: &Receiver<ReceiverCommand>,
) {
    let highest = flows.iter().max().map_or(0, |&n| usize::from(n) + 1);
    let mut analyser = PortAnalyser::new(highest, secret, tai_now().as_nanos());
    flows.iter().for_each(|&n| analyser.flows[usize::from(n)] = Some(Incoming::new()));
    loop {
        match orders.try_recv() {
            Ok(order) => analyser.obey(order, port.as_mut()),
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {}
        }
        match analyser.turn(port.as_mut()) {
            Ok(()) => {}
            Err(e) => {
                // Orders are still answered: somebody is to hear of it.
                analyser.report.failed = Some(e.to_string());
                match orders.recv() {
                    Ok(order) => analyser.obey(order, port.as_mut()),
                    Err(_) => return,
                }
            }
        }
    }
}

struct PortAnalyser {
    /// By index of the flow; `None`: not expected here.
    flows: Vec<Option<Incoming>>,
    secret: Secret,
    report: ReceiverReport,
    rate: RateMeter,
    /// Takes frames for the devices at this port.
    neighbours: Option<SyncSender<Vec<u8>>>,
    capture: Option<Box<CaptureRing>>,
}

struct Incoming {
    tag: u8,
    /// Twice as many as [`WINDOW`]: it moves by 64 frames.
    arrivals: SequenceArrivals<{ (WINDOW / 32) as usize }>,
    reordered: u64,
    too_late: u64,
    rate: RateMeter,
}

impl Incoming {
    fn new() -> Incoming {
        Incoming {
            tag: 0,
            arrivals: SequenceArrivals::new(0),
            reordered: 0,
            too_late: 0,
            rate: RateMeter::new(0, [0; 2]),
        }
    }

    fn expect(&mut self, tag: u8, clear: bool, now: i64) {
        self.tag = tag;
        self.arrivals.restart();
        if clear {
            self.arrivals.clear();
            (self.reordered, self.too_late) = (0, 0);
        }
        self.rate = RateMeter::new(now, self.totals());
    }

    fn totals(&self) -> [u64; 2] {
        [self.arrivals.received, self.arrivals.octets]
    }

    fn received(&self, now: i64) -> FlowReceived {
        let SequenceArrivals { received, octets, duplicates, times, delays, .. } = &self.arrivals;
        FlowReceived {
            frames: *received,
            bytes: *octets,
            rates: self.rate.read(now, self.totals()),
            duplicates: *duplicates,
            reordered: self.reordered,
            too_late: self.too_late,
            times: *times,
            latency: delays.latency(),
            jitter: delays.jitter(),
            rfc3550_jitter_ns: delays.rfc3550_jitter_ns(),
        }
    }

    #[inline]
    fn take(&mut self, repr: &Repr, octets: usize, at: i64) {
        let sequence = self.arrivals.extend(repr.sequence);
        if sequence + WINDOW < self.arrivals.after() {
            self.too_late += 1;
            return;
        }
        self.arrivals.seen.advance((sequence + 1).saturating_sub(WINDOW));
        let latency = signature::latency(at as u64, repr.sent);
        let verdict = self.arrivals.take(sequence, (octets + FCS_LEN) as u64, latency, at);
        self.reordered += u64::from(verdict == SequenceVerdict::Reordered);
    }
}

impl PortAnalyser {
    fn new(flows: usize, secret: Secret, now: i64) -> PortAnalyser {
        PortAnalyser {
            flows: (0..flows).map(|_| None).collect(),
            secret,
            report: ReceiverReport::default(),
            rate: RateMeter::new(now, [0; 2]),
            neighbours: None,
            capture: None,
        }
    }

    /// Marks totals for the rates, now and then.
    #[inline]
    fn mark(&mut self, now: i64) {
        if self.rate.due(now) {
            self.rate.mark(now, [self.report.frames, self.report.bytes]);
            self.flows.iter_mut().flatten().for_each(|f| f.rate.mark(now, f.totals()));
        }
    }

    fn obey(&mut self, order: ReceiverCommand, port: &mut dyn Port) {
        match order {
            ReceiverCommand::Expect(flows, clear, done) => {
                let now = tai_now().as_nanos();
                for (index, tag) in flows {
                    if let Some(Some(flow)) = self.flows.get_mut(usize::from(index)) {
                        flow.expect(tag, clear, now);
                    }
                }
                let _ = done.send(());
            }
            ReceiverCommand::Neighbours(to, done) => {
                self.neighbours = to;
                let _ = done.send(());
            }
            ReceiverCommand::Capture(ring, done) => {
                self.capture = Some(ring);
                let _ = done.send(());
            }
            ReceiverCommand::Captured(to) => _ = to.send(self.capture.take()),
            ReceiverCommand::Report(to) => {
                let now = tai_now().as_nanos();
                let mut report = self.report.clone();
                report.rates = self.rate.read(now, [report.frames, report.bytes]);
                report.stats = port.stats();
                report.capture = self.capture.as_ref().map(|r| [r.len() as u64, r.left_out]);
                for (index, flow) in self.flows.iter().enumerate() {
                    let Some(flow) = flow else { continue };
                    report.flows.push((index as u16, flow.received(now)));
                }
                let _ = to.send(report);
            }
        }
    }

    fn turn(&mut self, port: &mut dyn Port) -> Result<(), sonde_port::PortError> {
        let burst = port.rx()?;
        let count = burst.len();
        let mut last = 0;
        for i in 0..count {
            let (frame, stamp) = burst.seen(i);
            last = stamp.at.as_nanos();
            self.frame(frame, last);
        }
        if count > 0 {
            // No clock is read while frames come: their stamps are one.
            self.mark(last);
        } else {
            let now = tai_now().as_nanos();
            self.mark(now);
            port.wait(Time::from_nanos(now + ORDERS_NS))?;
        }
        Ok(())
    }

    #[inline]
    fn frame(&mut self, frame: &[u8], at: i64) {
        self.report.frames += 1;
        self.report.bytes += (frame.len() + FCS_LEN) as u64;
        if let Some(ring) = &mut self.capture {
            ring.push(frame, at);
        }
        if !Repr::marked(frame) {
            if let Some(to) = self.neighbours.as_ref().filter(|_| concerns_neighbours(frame)) {
                // What finds no room is lost as on a wire: who asks does so again.
                let _ = to.try_send(frame.to_vec());
            }
            return;
        }
        // A tag may have come in or gone on the way.
        let len = frame.len();
        let lengths = [len, len + 4, len.saturating_sub(4)];
        let repr = lengths.iter().find_map(|&sent| Repr::parse(frame, sent, &self.secret).ok());
        let Some(repr) = repr else {
            self.report.damaged += 1;
            return;
        };
        self.report.whole += 1;
        match self.flows.get_mut(usize::from(repr.stream)) {
            Some(Some(flow)) if flow.tag == repr.trial => flow.take(&repr, len, at),
            _ => self.report.stray += 1,
        }
    }
}

/// Frames of a flow of which it is known whether they have come.
const WINDOW: u64 = 1 << 16;
/// Orders are looked for this often.
const ORDERS_NS: i64 = 1_000_000;

#[cfg(test)]
mod tests;
