//! The thread that sends from one port: every flow's frames at their due times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use sonde_port::clock::tai_now;
use sonde_port::{Port, PortStats};
use sonde_results::Hist;
use sonde_server::otg::control::Transmit;
use sonde_server::otg::metrics::TransmitState;
use sonde_wire::Time;
use sonde_wire::signature::{Repr, Secret};

use super::flow::{End, FlowPlan};
use super::tally::{Dense, RateMeter};

/// What the thread is told.
pub enum Order {
    /// What is to become of flows: their numbers, and the tags of their next frames where
    /// they begin anew.
    Change(Vec<(u16, u8)>, Transmit, Sender<()>),
    /// Tell how far it is.
    Report(Sender<SenderReport>),
}

/// How far the flows of a port are.
#[derive(Clone, Debug, Default)]
pub struct SenderReport {
    /// By number.
    pub flows: Vec<(u16, Sent)>,
    /// Of the port.
    pub stats: PortStats,
    /// Why it has ended.
    pub failed: Option<String>,
}

/// What was sent of a flow.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// Whether it sends.
    pub state: TransmitState,
    /// Frames.
    pub frames: u64,
    /// Octets with the FCS.
    pub bytes: u64,
    /// Frames and octets a second.
    pub rates: [f64; 2],
    /// How late frames left, ns.
    pub lateness: Hist,
}

/// Sends until the other end of `orders` is gone.
pub fn run(
    mut port: Box<dyn Port>,
    flows: Vec<(u16, Arc<FlowPlan>)>,
    secret: Secret,
    orders: &Receiver<Order>,
) {
    let mut sender = PortSender {
        flows: flows.into_iter().map(|(number, plan)| Outgoing::new(number, plan)).collect(),
        due: BinaryHeap::new(),
        secret,
        failed: None,
    };
    sender.due.reserve(sender.flows.len());
    loop {
        match orders.try_recv() {
            Ok(order) => {
                sender.obey(order, port.as_mut());
                continue;
            }
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {}
        }
        if sender.due.is_empty() {
            match orders.recv_timeout(IDLE) {
                Ok(order) => sender.obey(order, port.as_mut()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            continue;
        }
        if let Err(e) = sender.turn(port.as_mut()) {
            sender.failed = Some(e.to_string());
            sender.due.clear();
            sender.flows.iter_mut().for_each(|f| f.sent.state = TransmitState::Stopped);
        }
    }
}

struct PortSender {
    flows: Vec<Outgoing>,
    /// When which flow's next frame is due, ns TAI.
    due: BinaryHeap<Reverse<(i64, usize)>>,
    secret: Secret,
    failed: Option<String>,
}

/// A flow under way.
struct Outgoing {
    number: u16,
    plan: Arc<FlowPlan>,
    tag: u8,
    /// Frames since it began.
    n: u64,
    /// When it began, ns TAI; moved by pauses.
    origin: i64,
    /// When frame `n` is due, ns from there.
    at: f64,
    paused_at: i64,
    late: Dense,
    sent: Sent,
    rate: RateMeter,
}

impl Outgoing {
    fn new(number: u16, plan: Arc<FlowPlan>) -> Outgoing {
        Outgoing {
            number,
            plan,
            tag: 0,
            n: 0,
            origin: 0,
            at: 0.0,
            paused_at: 0,
            late: Dense::new(),
            sent: Sent::default(),
            rate: RateMeter::default(),
        }
    }

    fn begin(&mut self, now: i64, tag: u8) {
        self.tag = tag;
        self.n = 0;
        self.origin = now;
        self.at = self.plan.delay_ns;
        self.sent.state = TransmitState::Started;
    }

    fn due(&self) -> i64 {
        self.origin + self.at as i64
    }

    /// Whether its next frame is one too many.
    fn ended(&self) -> bool {
        match self.plan.end {
            End::Never => false,
            End::Frames(frames) => self.n >= frames,
            End::After(ns) => self.at - self.plan.delay_ns >= ns,
        }
    }

    /// Notes that frame `n` of `octets` has been handed over.
    #[inline]
    fn departed(&mut self, octets: u16, now: i64) {
        self.late.add(now - self.due());
        self.n += 1;
        self.sent.frames += 1;
        self.sent.bytes += u64::from(octets) + super::frames::FCS_LEN as u64;
        self.at += self.plan.pace.after(octets);
        if let Some((frames, pause)) = self.plan.burst
            && self.n.is_multiple_of(frames)
        {
            self.at += pause;
        }
    }
}

impl PortSender {
    fn obey(&mut self, order: Order, port: &mut dyn Port) {
        let now = tai_now().as_nanos();
        match order {
            Order::Report(to) => {
                let report = |f: &mut Outgoing| {
                    f.sent.rates = f.rate.read(now, [f.sent.frames, f.sent.bytes]);
                    f.sent.lateness = f.late.hist();
                    (f.number, f.sent.clone())
                };
                let flows = self.flows.iter_mut().map(report).collect();
                let failed = self.failed.clone();
                let _ = to.send(SenderReport { flows, stats: port.stats(), failed });
            }
            Order::Change(which, change, done) => {
                for (number, tag) in which {
                    if let Some(flow) = self.flows.iter_mut().find(|f| f.number == number) {
                        change_flow(flow, change, tag, now);
                    }
                }
                self.due.clear();
                let sending = |f: &Outgoing| f.sent.state == TransmitState::Started;
                let due = self.flows.iter().enumerate().filter(|(_, f)| sending(f));
                self.due.extend(due.map(|(i, f)| Reverse((f.due(), i))));
                let _ = done.send(());
            }
        }
    }

    /// Sends what is due, or waits for it.
    fn turn(&mut self, port: &mut dyn Port) -> Result<(), sonde_port::PortError> {
        let now = tai_now().as_nanos();
        let mut sent = 0;
        {
            let mut tx = port.tx();
            while sent < BURST
                && let Some(&Reverse((due, i))) = self.due.peek()
                && due <= now
            {
                let flow = &mut self.flows[i];
                if flow.ended() {
                    flow.sent.state = TransmitState::Stopped;
                    self.due.pop();
                    continue;
                }
                let Some(slot) = tx.slot() else { break };
                let octets = flow.plan.sizes[(flow.n % flow.plan.sizes.len() as u64) as usize];
                let repr = Repr {
                    trial: flow.tag,
                    stream: flow.number,
                    sequence: flow.n as u32,
                    sent: now as u64 & ((1 << 48) - 1),
                };
                let signed = flow.plan.measured.then_some((&repr, &self.secret));
                flow.plan.frames.write(flow.n, &mut slot[..octets.into()], signed);
                tx.commit(octets.into(), 0);
                flow.departed(octets, now);
                let next = flow.due();
                // In place of pop and push: the heap is put in order once.
                if let Some(mut top) = self.due.peek_mut() {
                    *top = Reverse((next, i));
                }
                sent += 1;
            }
        }
        if sent > 0 {
            return port.flush();
        }
        if let Some(&Reverse((due, _))) = self.due.peek() {
            // The kernel wakes threads some 50 us late: the rest of the time is spent looking
            // at the clock.
            let until = (due - WAKE_NS).min(now + ORDERS_NS);
            if until > now {
                port.wait(Time::from_nanos(until))?;
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}

fn change_flow(flow: &mut Outgoing, change: Transmit, tag: u8, now: i64) {
    use TransmitState::{Paused, Started, Stopped};
    match (change, flow.sent.state) {
        (Transmit::Start, _) => {
            flow.late.clear();
            flow.sent = Sent::default();
            flow.rate = RateMeter::default();
            flow.begin(now, tag);
        }
        (Transmit::Stop, _) => flow.sent.state = Stopped,
        (Transmit::Pause, Started) => {
            flow.sent.state = Paused;
            flow.paused_at = now;
        }
        (Transmit::Resume, Paused) => {
            flow.origin += now - flow.paused_at;
            flow.sent.state = Started;
        }
        (Transmit::Resume, Stopped) => flow.begin(now, tag),
        (Transmit::Pause, Paused | Stopped) | (Transmit::Resume, Started) => {}
    }
}

/// Frames that are handed to the kernel together, at most: they share a reading of the clock.
const BURST: usize = 32;
/// How late the kernel wakes a thread.
const WAKE_NS: i64 = 60_000;
/// Orders are looked for this often.
const ORDERS_NS: i64 = 1_000_000;
/// Where nothing is to be sent, the thread sleeps until it gets an order.
const IDLE: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
