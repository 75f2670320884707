//! The export thread: takes flow records from the metering threads' queues, hands each to
//! every output, and keeps what the summary needs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rtrb::{Consumer, Producer, RingBuffer};
use sonde_meter::export::{ExportInterface, ExportSelector, ExportStats};
use sonde_results::flow::{FlowEnd, FlowRecord};
use sonde_results::flow_run::ExportTotal;
use sonde_sys::clock::{steady_now, steady_scale};

use super::control::{Control, Rotation};
use super::export::Output;
use super::largest::Largest;
use super::meter::Meter;
use super::selection;
use crate::thread::{join, join_logged};

/// What metering threads, export thread and view exchange.
#[derive(Debug, Default)]
pub struct MeteringState {
    /// The packets' time, ns since 1970 TAI; 0: the clock's.
    pub packet_time_ns: AtomicI64,
    /// The metering threads have ended: what is in the queues is all.
    metered: AtomicBool,
    /// Records that found a queue full.
    pub queue_lost: AtomicU64,
    /// What each metering thread reported last, by its index.
    reports: Mutex<BTreeMap<usize, WorkerReport>>,
    /// The interfaces, after they have changed, until the outputs know.
    interfaces: Mutex<Option<Vec<ExportInterface>>>,
    /// Records given to the outputs so far.
    pub records: AtomicU64,
    /// The readers of all outputs have gone: the run is to end.
    pub unread: AtomicBool,
}

/// What a metering thread reports of itself.
#[derive(Debug, Default)]
struct WorkerReport {
    /// How packets are selected.
    selectors: Vec<ExportSelector>,
    /// Packets that came in and could not be metered, or were dropped on the way.
    ignored: u64,
}

impl MeteringState {
    /// Notes how many packets a metering thread has selected, and how many it could not meter;
    /// `lost` came in and did not reach its meter.
    pub fn report(&self, worker: usize, meter: &Meter, lost: u64) {
        let selectors = meter.sequence().map(selection::report).unwrap_or_default();
        let ignored = meter.cache().counters().refused() + lost;
        let mut reports = self.reports.lock().unwrap_or_else(|e| e.into_inner());
        reports.insert(worker, WorkerReport { selectors, ignored });
    }

    /// The interfaces after a change; by the flow key's `point`.
    pub fn set_interfaces(&self, interfaces: Vec<ExportInterface>) {
        *self.interfaces.lock().unwrap_or_else(|e| e.into_inner()) = Some(interfaces);
    }

    /// Of all threads together: the selectors are the same, their counts add up.
    fn sum_of_reports(&self) -> WorkerReport {
        let all = self.reports.lock().unwrap_or_else(|e| e.into_inner());
        let mut sum = WorkerReport::default();
        for report in all.values() {
            sum.ignored += report.ignored;
            for (i, selector) in report.selectors.iter().enumerate() {
                match sum.selectors.get_mut(i) {
                    Some(s) => {
                        s.observed += selector.observed;
                        s.selected += selector.selected;
                    }
                    None => sum.selectors.push(*selector),
                }
            }
        }
        sum
    }
}

/// A metering thread's end of its queue, which carries records in batches. A batch stays
/// where it is in memory, and its memory comes back to be filled again.
pub struct RecordQueue {
    batch: Vec<FlowRecord>,
    full: Producer<Vec<FlowRecord>>,
    empty: Consumer<Vec<FlowRecord>>,
    shared: Arc<MeteringState>,
}

/// The export thread's end.
struct QueueEnd {
    full: Consumer<Vec<FlowRecord>>,
    empty: Producer<Vec<FlowRecord>>,
}

/// Both ends of a queue in which so many records find room.
fn queue(room: usize, shared: &Arc<MeteringState>) -> (RecordQueue, QueueEnd) {
    let (to, full) = RingBuffer::new(room.div_ceil(BATCH).max(2));
    let (empty, back) = RingBuffer::new(KEPT);
    let batch = Vec::with_capacity(BATCH);
    let records = RecordQueue { batch, full: to, empty: back, shared: shared.clone() };
    (records, QueueEnd { full, empty })
}

impl RecordQueue {
    /// For captures: waits for room, since the packets can wait, too.
    #[inline]
    pub fn push_waiting(&mut self, record: FlowRecord) {
        if self.batch.len() == BATCH {
            self.flush_waiting();
        }
        self.batch.push(record);
    }

    /// For interfaces: packets do not wait. What finds no room is counted.
    #[inline]
    pub fn push(&mut self, record: FlowRecord) {
        if self.batch.len() == BATCH && !self.flush() {
            self.shared.queue_lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.batch.push(record);
    }

    /// Hands over what there is, to be called now and then. False: there is no room.
    pub fn flush(&mut self) -> bool {
        if self.batch.is_empty() {
            return true;
        }
        if self.full.is_full() {
            return false;
        }
        let next = self.empty.pop().unwrap_or_else(|_| Vec::with_capacity(BATCH));
        let batch = std::mem::replace(&mut self.batch, next);
        self.full.push(batch).is_ok()
    }

    /// Hands over what there is, and waits for room.
    pub fn flush_waiting(&mut self) {
        while !self.flush() {
            if self.full.is_abandoned() {
                self.batch.clear();
                return;
            }
            thread::sleep(FULL);
        }
    }
}

/// What the export thread leaves behind.
pub struct Exported {
    /// Records by why they were made.
    pub ends: BTreeMap<String, u64>,
    /// The records with most bytes.
    pub top: Vec<FlowRecord>,
    /// What times were ahead of UTC at the end, ns, where this host's clock gave them.
    pub utc_offset: Option<i64>,
    /// What went to each destination.
    pub exports: Vec<ExportTotal>,
    /// Records that reached some output never.
    pub lost: u64,
}

/// The export thread, and what the metering threads hand it. Where a run fails and this is dropped,
/// what has come is exported nevertheless, and files are ended.
pub struct Exporting {
    /// `None`: it was waited for.
    thread: Option<JoinHandle<Exported>>,
    shared: Arc<MeteringState>,
    control: Control,
}

impl Exporting {
    /// Starts it, with a queue for each of `workers` in which so many records find room.
    pub fn start(
        outputs: Vec<Box<dyn Output>>,
        workers: usize,
        room: usize,
    ) -> Result<(Exporting, Vec<RecordQueue>)> {
        let shared = Arc::new(MeteringState::default());
        let (records, consumers) = (0..workers).map(|_| queue(room, &shared)).unzip();
        let theirs = shared.clone();
        let (rotations, asked) = channel();
        let thread = thread::Builder::new()
            .name("sonde-export".into())
            .spawn(move || Inner::new(outputs, consumers, theirs, asked).run())
            .context("cannot start the export thread; 'ulimit -u' bounds them")?;
        Ok((Exporting { thread: Some(thread), shared, control: Control::new(rotations) }, records))
    }

    /// What is shared with it.
    pub fn shared(&self) -> Arc<MeteringState> {
        self.shared.clone()
    }

    /// What can be asked of it.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// After the metering threads have ended: waits until all is exported.
    pub fn finish(mut self) -> Result<Exported> {
        self.shared.metered.store(true, Ordering::Release);
        let thread = self.thread.take().context("the export thread was waited for before")?;
        Ok(join(thread)?)
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        self.shared.metered.store(true, Ordering::Release);
        // The run has failed already: a panic here is logged.
        self.thread.take().and_then(join_logged);
    }
}

struct Inner {
    outputs: Vec<Box<dyn Output>>,
    queues: Vec<QueueEnd>,
    shared: Arc<MeteringState>,
    rotations: Receiver<Rotation>,
    ends: [u64; 6],
    top: Largest,
    records: u64,
}

impl Inner {
    fn new(
        outputs: Vec<Box<dyn Output>>,
        queues: Vec<QueueEnd>,
        shared: Arc<MeteringState>,
        rotations: Receiver<Rotation>,
    ) -> Self {
        let top = Largest::new(TOP);
        Inner { outputs, queues, shared, rotations, ends: [0; 6], top, records: 0 }
    }

    fn run(mut self) -> Exported {
        let mut ticked = 0;
        loop {
            // Before the queues are emptied: what was pushed before it, is found there.
            let last = self.shared.metered.load(Ordering::Acquire);
            let now_ns = self.now_ns();
            let changed = self.shared.interfaces.lock().unwrap_or_else(|e| e.into_inner()).take();
            if let Some(interfaces) = changed {
                self.outputs.iter_mut().for_each(|o| o.interfaces(&interfaces));
            }
            let taken = self.take(now_ns);
            self.rotate(now_ns);
            if now_ns - ticked >= TICK_NS || now_ns < ticked {
                ticked = now_ns;
                self.follow_clock();
                let stats = self.stats();
                self.outputs.iter_mut().for_each(|o| o.tick(now_ns, &stats));
                self.shared.records.store(self.records, Ordering::Relaxed);
                // Whoever else gets records wants them still.
                let unread = !self.outputs.is_empty() && self.outputs.iter().all(|o| o.is_unread());
                self.shared.unread.store(unread, Ordering::Relaxed);
            }
            if last {
                let (now_ns, stats) = (self.now_ns(), self.stats());
                self.outputs.iter_mut().for_each(|o| o.finish(now_ns, &stats));
                while self.send_due() {
                    thread::sleep(EMPTY);
                }
                self.outputs.iter_mut().for_each(|o| o.close());
                return self.exported();
            }
            self.send_due();
            if taken == 0 {
                thread::sleep(EMPTY);
            }
        }
    }

    /// Where that was asked for: files end with what has come.
    fn rotate(&mut self, now_ns: i64) {
        while let Ok(done) = self.rotations.try_recv() {
            let stats = self.stats();
            self.outputs.iter_mut().for_each(|o| o.rotate(now_ns, &stats));
            // Whoever asked may have gone.
            let _ = done.send(());
        }
    }

    /// Sends what waits for its turn. Whether more waits.
    fn send_due(&mut self) -> bool {
        self.outputs.iter_mut().fold(false, |more, output| output.send_due() | more)
    }

    /// Takes what is in the queues. How many records.
    fn take(&mut self, now_ns: i64) -> usize {
        let mut taken = 0;
        for queue in &mut self.queues {
            for _ in 0..queue.full.slots() {
                let Ok(mut batch) = queue.full.pop() else { break };
                for output in &mut self.outputs {
                    output.records(&batch, now_ns);
                }
                for record in &batch {
                    self.ends[record.end as usize] += 1;
                    self.top.add(record);
                }
                taken += batch.len();
                batch.clear();
                // What is more than is kept is given back to the system.
                let _ = queue.empty.push(batch);
            }
        }
        self.records += taken as u64;
        taken
    }

    /// Records of interfaces are of steady time: UTC is what it is now. Times of captures were
    /// turned to TAI by what that was at first.
    fn follow_clock(&mut self) {
        if let Some(offset) = self.utc_offset() {
            self.outputs.iter_mut().for_each(|o| o.set_utc_offset(offset));
        }
    }

    fn utc_offset(&self) -> Option<i64> {
        let by_clock = self.shared.packet_time_ns.load(Ordering::Relaxed) == 0;
        by_clock.then(|| steady_scale().utc_offset)
    }

    fn now_ns(&self) -> i64 {
        match self.shared.packet_time_ns.load(Ordering::Relaxed) {
            0 => steady_now().as_nanos(),
            packets => packets,
        }
    }

    fn stats(&self) -> ExportStats {
        let WorkerReport { selectors, ignored } = self.shared.sum_of_reports();
        ExportStats {
            process: std::process::id(),
            ignored_packets: ignored,
            not_sent_flows: self.shared.queue_lost.load(Ordering::Relaxed),
            selectors,
            ..ExportStats::default()
        }
    }

    fn exported(self) -> Exported {
        let utc_offset = self.utc_offset();
        let ends = FlowEnd::ALL.map(|end| (end.name(), self.ends[end as usize]));
        Exported {
            ends: ends.into_iter().filter(|(_, n)| *n > 0).collect(),
            top: self.top.sorted(),
            utc_offset,
            exports: self.outputs.iter().map(|o| o.total()).collect(),
            lost: self.outputs.iter().map(|o| o.lost()).sum::<u64>()
                + self.shared.queue_lost.load(Ordering::Relaxed),
        }
    }
}

/// Records handed over together.
const BATCH: usize = 256;
/// Empty batches that wait to be filled.
const KEPT: usize = 16;
/// How long a capture's reader waits for room in the queue.
const FULL: Duration = Duration::from_micros(50);
/// How long the export thread rests when there is nothing to export.
const EMPTY: Duration = Duration::from_millis(1);
/// Between looks at what is due.
const TICK_NS: i64 = 100_000_000;
/// Records kept for the summary.
const TOP: usize = 20;

#[cfg(test)]
pub(super) mod tests;
