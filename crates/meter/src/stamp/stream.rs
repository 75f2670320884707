//! One stream's state: probes in flight, and the numbers of the current interval.
//!
//! A probe's fate is settled in sequence order, exactly the timeout after it was
//! sent. So every probe belongs to the interval it was sent in, adjacent probes
//! are compared in sending order whatever the order of replies (RFC 3393 with the
//! selection function "consecutive sequence numbers"), and a duplicate or late
//! reply is known as such.

use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::record::LossSide;
use sonde_results::{Counters, Interval};
use sonde_wire::{ErrorEstimate, Stamp, StampSource, Time};

use super::pages::{PagedHist, Pages};
use crate::flow::prefetch::prefetch;

/// A probe in flight, or answered and not yet settled.
#[derive(Clone, Copy, Default)]
pub(crate) struct Slot {
    /// When it left, by the best stamp known, ns TAI.
    pub(crate) t1: i64,
    /// T4-T1 once answered, ns.
    pub(crate) rtt: i64,
    /// T2-T1 once answered, ns; until then the time stamp that the probe carries.
    pub(crate) forward: i64,
    /// T3-T2, ns. Longer than 4.29 s is recorded as a fault of the peer.
    pub(crate) dwell: u32,
    pub(crate) seq: u32,
    pub(crate) reflector_seq: u32,
    pub(crate) flags: u32,
}

pub(crate) const ANSWERED: u32 = 1;
pub(crate) const REORDERED: u32 = 2;
pub(crate) const SENT_LATE: u32 = 4;
/// The transmit stamp has come.
pub(crate) const STAMPED: u32 = 8;
/// T2 and T3 contradict the round trip: only T4-T1 is believed.
pub(crate) const PEER_TIMES_WRONG: u32 = 16;
/// T4-T1 is negative: a clock was stepped; no delay is believed.
pub(crate) const CLOCK_STEPPED: u32 = 32;
/// Bits 8-11: source of T1; bits 12-15: source of T4.
pub(crate) const T1_SHIFT: u32 = 8;
pub(crate) const T4_SHIFT: u32 = 12;

/// What settling needs to know.
pub(crate) struct Settling<'a> {
    pub(crate) slots: &'a mut [Slot],
    pub(crate) pages: &'a mut Pages,
    pub(crate) tx_stamps: bool,
    /// Probes whose transmit stamp never came.
    pub(crate) unstamped: &'a mut u64,
}

/// One stream.
pub(crate) struct Stream {
    pub(crate) next_seq: u32,
    /// The first sequence number whose fate is open.
    pub(crate) settled: u32,
    /// NextExp of RFC 4737, section 3.3.
    pub(crate) expected: u32,
    /// Probes sent, or left out for want of a next hop.
    pub(crate) attempts: u64,
    /// First slot and size (a power of two) of this stream's part of the slots.
    pub(crate) base: u32,
    pub(crate) size: u32,
    /// The interval is complete and waits to be fetched; nothing is settled meanwhile.
    pub(crate) closed: bool,
    stateful: bool,
    previous: Option<Previous>,
    side: Side,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) counters: Counters,
    pub(crate) caveats: CaveatSet,
    t1_source: Option<StampSource>,
    t4_source: Option<StampSource>,
    /// The peer's latest error estimate; invalid (0): none yet.
    pub(crate) peer_estimate: ErrorEstimate,
    jitter_forward: f64,
    jitter_backward: f64,
    rtt: PagedHist,
    rtt_net: PagedHist,
    forward: PagedHist,
    backward: PagedHist,
    ipdv_forward: PagedHist,
    ipdv_backward: PagedHist,
}

/// The last settled probe that had one-way delays.
#[derive(Clone, Copy)]
struct Previous {
    seq: u32,
    forward: i64,
    backward: i64,
}

/// Which side the losses were on, from the reflector's own sequence.
#[derive(Clone, Copy, Default)]
struct Side {
    anchored: bool,
    /// Our sequence less the reflector's, at the last answered probe.
    offset: u32,
    /// Lost probes since then.
    pending: u32,
    /// Forward losses (less forward duplicates) that `offset` shows and no lost probe has borne yet.
    debt: i64,
}

impl Stream {
    pub(crate) fn new(base: u32, size: u32, start: i64, interval: i64, stateful: bool) -> Self {
        Stream {
            next_seq: 0,
            settled: 0,
            expected: 0,
            attempts: 0,
            base,
            size,
            closed: false,
            stateful,
            previous: None,
            side: Side::default(),
            start,
            end: start.saturating_add(interval),
            counters: Counters::default(),
            caveats: CaveatSet::default(),
            t1_source: None,
            t4_source: None,
            peer_estimate: ErrorEstimate(0),
            jitter_forward: 0.0,
            jitter_backward: 0.0,
            rtt: PagedHist::EMPTY,
            rtt_net: PagedHist::EMPTY,
            forward: PagedHist::EMPTY,
            backward: PagedHist::EMPTY,
            ipdv_forward: PagedHist::EMPTY,
            ipdv_backward: PagedHist::EMPTY,
        }
    }

    pub(crate) fn begin_at(&mut self, seq: u32) {
        (self.next_seq, self.settled, self.expected) = (seq, seq, seq);
    }

    /// Where the slot of `seq` lies.
    #[inline]
    pub(crate) fn index(&self, seq: u32) -> usize {
        (self.base + (seq & (self.size - 1))) as usize
    }

    /// Has at hand what the next send writes, and what settling before it reads.
    #[inline]
    pub(crate) fn prefetch(&self, slots: &[Slot], pages: &Pages) {
        prefetch(slots, self.index(self.next_seq));
        prefetch(slots, self.index(self.settled));
        for hist in [&self.rtt, &self.rtt_net, &self.forward, &self.backward]
            .into_iter()
            .chain([&self.ipdv_forward, &self.ipdv_backward])
        {
            hist.prefetch(pages);
        }
    }

    /// Probes whose fate is open.
    #[inline]
    pub(crate) fn open(&self) -> u32 {
        self.next_seq.wrapping_sub(self.settled)
    }

    /// Settles every probe sent at or before `until`. True: the interval is complete,
    /// and has just been closed.
    pub(crate) fn settle(&mut self, until: i64, interval: i64, cx: &mut Settling<'_>) -> bool {
        while !self.closed && self.settled != self.next_seq {
            let slot = cx.slots[self.index(self.settled)];
            if slot.t1 > until {
                break;
            }
            if slot.t1 >= self.end {
                if !self.is_empty() {
                    self.closed = true;
                    return true;
                }
                let behind = (slot.t1 - self.end) / interval + 1;
                self.start = self.end + (behind - 1) * interval;
                self.end += behind * interval;
            }
            self.account(&slot, cx);
            self.settled = self.settled.wrapping_add(1);
        }
        false
    }

    /// Whether the interval holds nothing worth a record.
    pub(crate) fn is_empty(&self) -> bool {
        self.counters == Counters::default()
    }

    /// A further reply to a probe that has been answered.
    pub(crate) fn duplicate(&mut self, same_reflector_seq: bool) {
        self.counters.duplicated += 1;
        if !same_reflector_seq {
            // The request was duplicated on its way: the reflector counted it twice.
            self.side.debt += 1;
        }
    }

    /// Moves the interval into `record` and begins the next one.
    pub(crate) fn take(&mut self, stream: u32, interval: i64, pages: &mut Pages, r: &mut Interval) {
        r.stream = stream;
        (r.start_ns, r.end_ns) = (self.start, self.end);
        r.counters = std::mem::take(&mut self.counters);
        r.loss_side = if self.stateful { LossSide::Known } else { LossSide::Unknown };
        self.rtt.drain(pages, &mut r.rtt);
        self.rtt_net.drain(pages, &mut r.rtt_net);
        self.forward.drain(pages, &mut r.forward);
        self.backward.drain(pages, &mut r.backward);
        self.ipdv_forward.drain(pages, &mut r.ipdv_forward);
        self.ipdv_backward.drain(pages, &mut r.ipdv_backward);
        r.jitter_forward_ns = self.jitter_forward;
        r.jitter_backward_ns = self.jitter_backward;
        r.t1_source = self.t1_source.take();
        r.t4_source = self.t4_source.take();
        r.caveats = std::mem::take(&mut self.caveats);
        if r.counters.lost > 0 && !self.stateful {
            r.caveats.insert(Caveat::LossSideUnknown);
        }
        if r.counters.received == 0 && r.counters.sent > 0 {
            r.caveats.insert(Caveat::NoReply);
        }
        if r.counters.sent_late > 0 {
            r.caveats.insert(Caveat::SenderLate);
        }
        if r.forward.min().is_some_and(|d| d < 0) || r.backward.min().is_some_and(|d| d < 0) {
            r.caveats.insert(Caveat::NegativeOneWayDelay);
        }
        if r.t1_source.max(r.t4_source) == Some(StampSource::User) {
            r.caveats.insert(Caveat::SoftwareStamps);
        }
        self.closed = false;
        self.start = self.end;
        self.end = self.end.saturating_add(interval);
    }

    fn account(&mut self, slot: &Slot, cx: &mut Settling<'_>) {
        self.counters.sent += 1;
        self.counters.sent_late += u64::from(slot.flags & SENT_LATE != 0);
        if cx.tx_stamps && slot.flags & STAMPED == 0 {
            *cx.unstamped += 1;
            self.caveats.insert(Caveat::TransmitStampsMissing);
        }
        if slot.flags & ANSWERED == 0 {
            self.counters.lost += 1;
            self.side.pending += 1;
            return;
        }
        self.counters.received += 1;
        self.counters.reordered += u64::from(slot.flags & REORDERED != 0);
        self.t1_source = self.t1_source.max(Some(source_of(slot.flags >> T1_SHIFT)));
        self.t4_source = self.t4_source.max(Some(source_of(slot.flags >> T4_SHIFT)));
        self.account_side(slot);
        if slot.flags & CLOCK_STEPPED != 0 {
            self.previous = None;
            return;
        }
        self.rtt.add(cx.pages, slot.rtt);
        if slot.flags & PEER_TIMES_WRONG != 0 {
            self.caveats.insert(Caveat::ReflectorTimesWrong);
            self.previous = None;
            return;
        }
        let net = slot.rtt - i64::from(slot.dwell);
        let backward = net - slot.forward;
        self.rtt_net.add(cx.pages, net);
        self.forward.add(cx.pages, slot.forward);
        self.backward.add(cx.pages, backward);
        if let Some(previous) = self.previous {
            let (df, db) = (slot.forward - previous.forward, backward - previous.backward);
            // RFC 3550, section 6.4.1, over the answered probes in sending order.
            self.jitter_forward += (df.unsigned_abs() as f64 - self.jitter_forward) / 16.0;
            self.jitter_backward += (db.unsigned_abs() as f64 - self.jitter_backward) / 16.0;
            if previous.seq.wrapping_add(1) == slot.seq {
                self.ipdv_forward.add(cx.pages, df);
                self.ipdv_backward.add(cx.pages, db);
            }
        }
        self.previous = Some(Previous { seq: slot.seq, forward: slot.forward, backward });
    }

    /// Between two answered probes the reflector's counter went on by as many as it
    /// saw: the rest of our numbers never reached it (RFC 8762, section 4.3, stateful).
    fn account_side(&mut self, slot: &Slot) {
        let offset = slot.seq.wrapping_sub(slot.reflector_seq);
        if slot.reflector_seq != slot.seq {
            self.stateful = true;
        }
        let pending = std::mem::take(&mut self.side.pending);
        if !self.side.anchored {
            self.side.anchored = true;
            // A new session starts at 0; a counter beyond ours has counted before
            // us, and what was lost until now has no side.
            if slot.reflector_seq > slot.seq {
                self.side.offset = offset;
                return;
            }
        }
        let step = offset.wrapping_sub(self.side.offset) as i32;
        self.side.offset = offset;
        if i64::from(step).abs() > i64::from(pending) + JUMP {
            self.caveats.insert(Caveat::ReflectorSequenceJump);
            self.side.debt = 0;
            return;
        }
        self.side.debt += i64::from(step);
        let forward = self.side.debt.clamp(0, i64::from(pending));
        self.side.debt -= forward;
        self.counters.lost_forward += forward as u64;
        self.counters.lost_backward += u64::from(pending) - forward as u64;
    }
}

/// When the probe of `slot` left, and by which stamp.
pub(crate) fn t1_of(slot: &Slot) -> Stamp {
    Stamp { at: Time::from_nanos(slot.t1), source: source_of(slot.flags >> T1_SHIFT) }
}

/// A stamp source in four bits.
pub(crate) fn source_bits(source: StampSource) -> u32 {
    SOURCES.iter().position(|&s| s == source).unwrap_or(SOURCES.len() - 1) as u32
}

fn source_of(bits: u32) -> StampSource {
    SOURCES[(bits & 15) as usize % SOURCES.len()]
}

const SOURCES: [StampSource; 5] = [
    StampSource::Hardware,
    StampSource::Driver,
    StampSource::Kernel,
    StampSource::File,
    StampSource::User,
];

/// A step of the reflector's counter that no reordering or duplication explains.
const JUMP: i64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::probe::ProbeTemplate;

    /// Settles probes given as (our sequence, the reflector's; `None`: lost).
    fn sides(fates: &[Option<u32>]) -> (Counters, bool, CaveatSet) {
        let mut slots = vec![Slot::default(); 64];
        let mut pages = Pages::new(100);
        let mut stream = Stream::new(0, 64, 0, i64::MAX / 2, false);
        let mut unstamped = 0;
        for (seq, fate) in fates.iter().enumerate() {
            slots[seq & 63] = Slot {
                t1: seq as i64,
                rtt: 1000,
                forward: 400,
                seq: seq as u32,
                reflector_seq: fate.unwrap_or(0),
                flags: if fate.is_some() { ANSWERED } else { 0 },
                ..Slot::default()
            };
            stream.next_seq = seq as u32 + 1;
            let mut cx = Settling {
                slots: &mut slots,
                pages: &mut pages,
                tx_stamps: false,
                unstamped: &mut unstamped,
            };
            stream.settle(i64::MAX, i64::MAX / 2, &mut cx);
        }
        (stream.counters, stream.stateful, stream.caveats)
    }

    #[test]
    fn losses_are_told_by_side() {
        // Forward losses of 2 and 3: the reflector never counted them.
        let (c, stateful, _) = sides(&[Some(0), Some(1), None, None, Some(2), Some(3)]);
        assert_eq!((c.lost, c.lost_forward, c.lost_backward, stateful), (2, 2, 0, true));
        // Backward losses: it did.
        let (c, stateful, _) = sides(&[Some(0), Some(1), None, None, Some(4), Some(5)]);
        assert_eq!((c.lost, c.lost_forward, c.lost_backward, stateful), (2, 0, 2, false));
        // One of each in one gap.
        let (c, ..) = sides(&[Some(0), None, None, Some(2)]);
        assert_eq!((c.lost, c.lost_forward, c.lost_backward), (2, 1, 1));
        // Before the first reply.
        let (c, ..) = sides(&[None, None, Some(1), Some(2)]);
        assert_eq!((c.lost, c.lost_forward, c.lost_backward), (2, 1, 1));
    }

    #[test]
    fn reordering_on_the_way_there_is_no_loss() {
        let (c, ..) = sides(&[Some(0), Some(2), Some(1), Some(3)]);
        assert_eq!((c.lost, c.lost_forward, c.lost_backward), (0, 0, 0));
        let (c, ..) = sides(&[Some(0), Some(2), Some(1), None, Some(3), Some(4)]);
        assert_eq!((c.lost, c.lost_forward, c.lost_backward), (1, 1, 0));
    }

    #[test]
    fn a_session_older_than_we_are_and_a_restart() {
        let (c, stateful, caveats) = sides(&[Some(900), Some(901), None, Some(902), Some(903)]);
        assert_eq!((c.lost_forward, c.lost_backward, stateful), (1, 0, true));
        assert!(caveats.is_empty());
        let mut fates: Vec<_> = (0..40).map(|i| Some(900 + i)).collect();
        fates.push(None);
        fates.extend([Some(0), Some(1), None, Some(3)]);
        let (c, _, caveats) = sides(&fates);
        assert!(caveats.contains(Caveat::ReflectorSequenceJump));
        assert_eq!((c.lost, c.lost_forward, c.lost_backward), (2, 0, 1), "one has no side");
    }

    #[test]
    fn stream_state_is_small() {
        // 1 KiB a stream besides its histograms, at ten probes a second and a 1 s timeout.
        // The template, and a stream's part of the demultiplexer and the queues.
        let overhead = size_of::<ProbeTemplate>() + 32 + 4 * 4 + 16 + 4;
        let state = size_of::<Stream>() - 6 * size_of::<PagedHist>();
        let total = state + 16 * size_of::<Slot>() + overhead;
        assert!(total < 1024, "{total}");
    }
}
