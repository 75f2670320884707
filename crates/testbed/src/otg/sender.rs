//! The thread that sends from one port: every flow's frames at their due times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use sonde_meter::Paced;
use sonde_meter::load::{CATCH_UP_MOST_NS, FCS_LEN, FastHist, PutOff, catch_up_ns};
use sonde_port::{Port, PortError, PortStats};
use sonde_results::Hist;
use sonde_run::pump;
use sonde_server::otg::control::TransmitChange;
use sonde_server::otg::metrics::TransmitState;
use sonde_sys::clock::tai_now;
use sonde_sys::schedule::Precedence;
use sonde_wire::Time;
use sonde_wire::signature::{self, Repr, Secret};

use super::flow::{FlowDuration, FlowPlan};
use super::rates::{PERIOD_NS, RateMeter};
use crate::tester::precedence;

/// What the thread is asked to do.
pub enum SenderCommand {
    /// What is to become of flows: their indices, and the tags of their next frames where they
    /// begin anew.
    Change(Vec<(u16, u8)>, TransmitChange, Sender<()>),
    /// Report how far it is.
    Report(Sender<SenderReport>),
}

/// How far the flows of a port are.
#[derive(Clone, Debug, Default)]
pub struct SenderReport {
    /// By the flow's index; each since it was started last.
    pub flows: Vec<(u16, Sent)>,
    /// Frames that were handed over of all flows, and their octets with the FCS, since the port was
    /// opened.
    pub totals: [u64; 2],
    pub stats: PortStats,
    /// Why it has ended.
    pub failed: Option<String>,
}

/// What was sent of a flow.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    pub state: TransmitState,
    pub frames: u64,
    /// Octets with the FCS.
    pub bytes: u64,
    /// Frames and octets a second.
    pub rates: [f64; 2],
    /// How late frames left, ns.
    pub lateness: Hist,
}

/// Sends until the other end of `orders` is gone, as one of `senders` of the generator.
pub fn run(
    mut port: Box<dyn Port>,
    flows: Vec<(u16, Arc<FlowPlan>)>,
    secret: Secret,
    senders: usize,
    orders: &Receiver<SenderCommand>,
) {
    let mut sender = PortSender {
        flows: flows.into_iter().map(|(index, plan)| Outgoing::new(index, plan)).collect(),
        due: BinaryHeap::new(),
        totals: [0; 2],
        marked: 0,
        secret,
        failed: None,
        put_off: PutOff::default(),
        senders,
        preferred: None,
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
            drop(sender.preferred.take());
            sender.mark(tai_now().as_nanos());
            // What the device had no room for.
            if let Err(e) = port.flush() {
                sender.fail(&e);
            }
            match orders.recv_timeout(IDLE) {
                Ok(order) => sender.obey(order, port.as_mut()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            continue;
        }
        match pump::send(port.as_mut(), &mut sender, ORDERS_NS) {
            Ok(0) => sender.mark(tai_now().as_nanos()),
            Ok(_) => {}
            Err(e) => sender.fail(&e),
        }
    }
}

struct PortSender {
    flows: Vec<Outgoing>,
    /// When which flow's next frame is due, ns TAI, were nothing put off.
    due: BinaryHeap<Reverse<(i64, usize)>>,
    /// As in [`SenderReport`].
    totals: [u64; 2],
    /// When totals were last marked for rates, ns TAI.
    marked: i64,
    secret: Secret,
    failed: Option<String>,
    /// Of all flows together, so that they keep their distances.
    put_off: PutOff,
    /// Senders of the whole generator.
    senders: usize,
    /// While there is something to send.
    preferred: Option<Precedence>,
}

/// A flow under way.
struct Outgoing {
    index: u16,
    plan: Arc<FlowPlan>,
    tag: u8,
    /// Frames since it began.
    n: u64,
    /// When it began, ns TAI; moved by pauses.
    origin: i64,
    /// How much later than its configuration says it began, ns, so that the flows of a port do
    /// not all send at once.
    phase: f64,
    /// When frame `n` is due, ns from there.
    at: f64,
    paused_at: i64,
    late: FastHist,
    sent: Sent,
    rate: RateMeter,
}

impl Outgoing {
    fn new(index: u16, plan: Arc<FlowPlan>) -> Outgoing {
        Outgoing {
            index,
            plan,
            tag: 0,
            n: 0,
            origin: 0,
            phase: 0.0,
            at: 0.0,
            paused_at: 0,
            late: FastHist::default(),
            sent: Sent::default(),
            rate: RateMeter::new(0, [0; 2]),
        }
    }

    fn begin(&mut self, now: i64, tag: u8) {
        self.tag = tag;
        self.n = 0;
        self.origin = now;
        self.at = self.plan.delay_ns + self.phase;
        self.sent.state = TransmitState::Started;
    }

    fn due(&self) -> i64 {
        self.origin + self.at as i64
    }

    /// Whether its next frame is one too many.
    fn ended(&self) -> bool {
        match self.plan.end {
            FlowDuration::Never => false,
            FlowDuration::Frames(frames) => self.n >= frames,
            FlowDuration::After(ns) => self.at - self.plan.delay_ns - self.phase >= ns,
        }
    }

    /// Writes frame `n` and returns its length.
    #[inline]
    fn write(&self, now: i64, buffer: &mut [u8], secret: &Secret) -> usize {
        let len = usize::from(self.plan.sizes[(self.n % self.plan.sizes.len() as u64) as usize]);
        let repr = Repr {
            trial: self.tag,
            stream: self.index,
            sequence: self.n as u32,
            sent: signature::sent(now),
        };
        let signed = self.plan.measured.then_some((&repr, secret));
        self.plan.frames.write(self.n, &mut buffer[..len], signed);
        len
    }

    /// Notes that frame `n` of `octets` has been handed over, so late (ns).
    #[inline]
    fn departed(&mut self, octets: u16, late: i64) {
        self.late.add(late);
        self.n += 1;
        self.sent.frames += 1;
        self.sent.bytes += u64::from(octets) + FCS_LEN as u64;
        self.at += self.plan.pace.after(octets);
        if let Some((frames, pause)) = self.plan.burst
            && self.n.is_multiple_of(frames)
        {
            self.at += pause;
        }
    }
}

impl PortSender {
    fn fail(&mut self, why: &PortError) {
        self.failed = Some(why.to_string());
        self.due.clear();
        self.flows.iter_mut().for_each(|f| f.sent.state = TransmitState::Stopped);
    }

    fn obey(&mut self, order: SenderCommand, port: &mut dyn Port) {
        match order {
            SenderCommand::Report(to) => {
                let now = tai_now().as_nanos();
                let report = |f: &mut Outgoing| {
                    let sends = f.sent.state == TransmitState::Started;
                    let rates = f.rate.read(now, [f.sent.frames, f.sent.bytes]);
                    f.sent.rates = if sends { rates } else { [0.0; 2] };
                    f.sent.lateness = f.late.read();
                    (f.index, f.sent.clone())
                };
                let flows = self.flows.iter_mut().map(report).collect();
                let failed = self.failed.clone();
                let (totals, stats) = (self.totals, port.stats());
                let _ = to.send(SenderReport { flows, totals, stats, failed });
            }
            SenderCommand::Change(which, change, done) => {
                // It takes its time, and the first frame is due at once.
                if matches!(change, TransmitChange::Start | TransmitChange::Resume)
                    && self.preferred.is_none()
                {
                    self.preferred = precedence(self.senders, Duration::ZERO);
                }
                self.stagger(&which, change);
                let now = tai_now().as_nanos();
                if self.due.is_empty() {
                    self.put_off = PutOff::default();
                }
                for (index, tag) in which {
                    if let Some(flow) = self.flows.iter_mut().find(|f| f.index == index)
                        && change_flow(flow, change, tag, now - self.put_off.ns())
                    {
                        flow.rate = RateMeter::new(now, [flow.sent.frames, flow.sent.bytes]);
                    }
                }
                self.due.clear();
                let sending = |f: &Outgoing| f.sent.state == TransmitState::Started;
                // All of them together, as a device meets them.
                let per_ns =
                    self.flows.iter().filter(|f| sending(f)).map(|f| 1.0 / f.plan.gap_ns());
                let catch_up_ns = catch_up_ns(1.0 / per_ns.sum::<f64>(), CATCH_UP_MOST_NS);
                self.put_off = self.put_off.with_catch_up(catch_up_ns);
                let due = self.flows.iter().enumerate().filter(|(_, f)| sending(f));
                self.due.extend(due.map(|(i, f)| Reverse((f.due(), i))));
                let _ = done.send(());
            }
        }
    }

    /// Spreads flows that begin together over the time from one frame, or burst, to the next. Those
    /// with the same time are spread evenly; others are moved so that they do not begin with them.
    fn stagger(&mut self, which: &[(u16, u8)], change: TransmitChange) {
        let begins = |f: &&mut Outgoing| {
            let begins = match change {
                TransmitChange::Start => true,
                TransmitChange::Resume => f.sent.state == TransmitState::Stopped,
                TransmitChange::Stop | TransmitChange::Pause => false,
            };
            begins && which.iter().any(|&(index, _)| index == f.index)
        };
        let mut together: Vec<(u64, &mut Outgoing)> =
            self.flows.iter_mut().filter(begins).map(|f| (f.plan.cycle_ns() as u64, f)).collect();
        // Stable: in the order of the configuration.
        together.sort_by_key(|(cycle, _)| *cycle);
        let groups: Vec<_> = together.chunk_by_mut(|a, b| a.0 == b.0).collect();
        let all = groups.len() as f64;
        for (g, group) in groups.into_iter().enumerate() {
            let members = group.len() as f64;
            for (k, (_, flow)) in group.iter_mut().enumerate() {
                flow.phase = flow.plan.cycle_ns() * (k as f64 + g as f64 / all) / members;
            }
        }
    }

    /// Marks totals for the rates, now and then.
    fn mark(&mut self, now: i64) {
        if now - self.marked >= PERIOD_NS {
            self.marked = now;
            self.flows.iter_mut().for_each(|f| f.rate.mark(now, [f.sent.frames, f.sent.bytes]));
        }
    }
}

impl Paced for PortSender {
    #[inline]
    fn due(&self) -> Option<Time> {
        self.due.peek().map(|&Reverse((due, _))| Time::from_nanos(due + self.put_off.ns()))
    }

    #[inline]
    fn write(&mut self, now: Time, buffer: &mut [u8]) -> Option<usize> {
        let now = now.as_nanos();
        self.mark(now);
        loop {
            let &Reverse((due, i)) = self.due.peek()?;
            let late = now - due - self.put_off.ns();
            if late < 0 {
                return None;
            }
            let flow = &mut self.flows[i];
            if flow.ended() {
                flow.sent.state = TransmitState::Stopped;
                self.due.pop();
                continue;
            }
            let len = flow.write(now, &mut *buffer, &self.secret);
            flow.departed(len as u16, late);
            self.totals[0] += 1;
            self.totals[1] += (len + FCS_LEN) as u64;
            let next = flow.due();
            // Instead of pop and push: the heap is put in order once.
            if let Some(mut top) = self.due.peek_mut() {
                *top = Reverse((next, i));
            }
            self.put_off.left(late);
            if let Some(&Reverse((next, _))) = self.due.peek() {
                self.put_off.step(|| next - due);
            }
            return Some(len);
        }
    }
}

/// `now`: on the scale of due times that are not put off. Whether it begins anew is returned.
fn change_flow(flow: &mut Outgoing, change: TransmitChange, tag: u8, now: i64) -> bool {
    use TransmitState::{Paused, Started, Stopped};
    match (change, flow.sent.state) {
        (TransmitChange::Start, _) => {
            flow.late.clear();
            flow.sent = Sent::default();
            flow.begin(now, tag);
            return true;
        }
        (TransmitChange::Stop, _) => flow.sent.state = Stopped,
        (TransmitChange::Pause, Started) => {
            flow.sent.state = Paused;
            flow.paused_at = now;
        }
        (TransmitChange::Resume, Paused) => {
            flow.origin += now - flow.paused_at;
            flow.sent.state = Started;
        }
        (TransmitChange::Resume, Stopped) => {
            flow.begin(now, tag);
            return true;
        }
        (TransmitChange::Pause, Paused | Stopped) | (TransmitChange::Resume, Started) => {}
    }
    false
}

/// Orders are looked for this often.
const ORDERS_NS: i64 = 1_000_000;
/// Where nothing is to be sent, the thread sleeps until it gets an order, or marks totals.
const IDLE: Duration = Duration::from_nanos(PERIOD_NS as u64);

#[cfg(test)]
mod tests;
