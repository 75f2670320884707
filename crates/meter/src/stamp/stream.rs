//! One stream's state: probes in flight, and the numbers of the current interval.
//!
//! A probe's fate is settled in sequence order, exactly the timeout after it was sent. So every
//! probe belongs to the interval it was sent in, and a duplicate or late reply is known as such.
//! Adjacent probes are compared in sending order, whatever the order of replies (RFC 3393 with the
//! selection function "consecutive sequence numbers").

use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::{Counters, Interval};
use sonde_wire::{ErrorEstimate, NotSent, Stamp, StampSource, Time};

use super::pages::{PagedHist, Pages};
use super::side::LossAccount;
use super::spec::ReflectorKind;
use crate::flow::prefetch::prefetch;

/// A probe in flight, or answered and not yet settled.
#[derive(Clone, Copy, Default)]
pub(crate) struct Slot {
    /// When it left, by the best stamp known, ns.
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
/// This host's clock was set while the probe was under way, or T4-T1 is negative: no delay is
/// believed.
pub(crate) const CLOCK_STEPPED: u32 = 32;
/// The kernel refused it: it never left.
pub(crate) const WITHDRAWN: u32 = 64;
/// A one-way delay is none that a path has.
pub(crate) const ONE_WAY_WRONG: u32 = 128;
/// Bits 8-11: source of T1; bits 12-15: source of T4.
pub(crate) const T1_SHIFT: u32 = 8;
pub(crate) const T4_SHIFT: u32 = 12;
/// Bits 16-19: why it was withdrawn, or may not have left.
pub(crate) const WHY_SHIFT: u32 = 16;
/// There was no way when it was handed over, or soon after: without transmit stamp and answer it
/// did not leave.
pub(crate) const WAY_GONE: u32 = 1 << 20;
/// T2 and T3 were in the other format than their packet says.
pub(crate) const FORMAT_WRONG: u32 = 1 << 21;
/// On the way there a later request overtook it or one before it.
pub(crate) const OVERTAKEN: u32 = 1 << 22;
/// Bits 24-31: how often the clock had been set when it was sent, modulo 256.
pub(crate) const STEPS_SHIFT: u32 = 24;

/// What settling needs to know.
pub(crate) struct Settling<'a> {
    pub(crate) slots: &'a mut [Slot],
    pub(crate) pages: &'a mut Pages,
    pub(crate) tx_stamps: bool,
    /// Probes whose transmit stamp never came.
    pub(crate) unstamped: &'a mut u64,
    /// Differences of one-way delays that no path makes.
    pub(crate) peer_stepped: &'a mut u64,
}

/// What is counted in the current interval, which is refused if it has room for more probes than
/// can be counted here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u32,
    pub(crate) received: u32,
    pub(crate) lost: u32,
    pub(crate) duplicated: u32,
    pub(crate) reordered: u32,
    pub(crate) late: u32,
    pub(crate) sent_late: u32,
    /// By [`NotSent`].
    not_sent: [u32; NotSent::ALL.len()],
}

impl Tally {
    pub(crate) fn not_sent(&mut self, why: NotSent, n: u64) {
        let count = &mut self.not_sent[why as usize];
        *count = count.saturating_add(u32::try_from(n).unwrap_or(u32::MAX));
    }

    fn counters(&self) -> Counters {
        let mut c = Counters {
            sent: self.sent.into(),
            received: self.received.into(),
            lost: self.lost.into(),
            duplicated: self.duplicated.into(),
            reordered: self.reordered.into(),
            late: self.late.into(),
            sent_late: self.sent_late.into(),
            ..Counters::default()
        };
        for (why, n) in NotSent::ALL.into_iter().zip(self.not_sent) {
            c.not_sent.add(why, n.into());
        }
        c.skipped = c.not_sent.total();
        c
    }
}

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
    /// It stands in the queue of those that wait to be fetched, perhaps lengthened since.
    pub(crate) queued: bool,
    previous: Option<Previous>,
    pub(crate) side: LossAccount,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) tally: Tally,
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
    /// In units of 2^20 ns, modulo 52 days.
    t1: u32,
    forward: i64,
    backward: i64,
}

impl Stream {
    pub(crate) fn new(
        base: u32,
        size: u32,
        start: i64,
        interval: i64,
        kind: ReflectorKind,
    ) -> Self {
        Stream {
            next_seq: 0,
            settled: 0,
            expected: 0,
            attempts: 0,
            base,
            size,
            closed: false,
            queued: false,
            previous: None,
            side: LossAccount::new(kind),
            start,
            end: start.saturating_add(interval),
            tally: Tally::default(),
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
        self.side.begin_at(seq);
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
        self.tally == Tally::default() && !self.side.has_news()
    }

    /// A further reply to a probe that has been answered.
    pub(crate) fn duplicate(&mut self, same_reflector_seq: bool) {
        self.tally.duplicated = self.tally.duplicated.saturating_add(1);
        // Another sequence number: the request was duplicated on its way, and counted twice.
        self.side.duplicate(!same_reflector_seq);
    }

    /// Moves the interval into `record` and begins the next one.
    pub(crate) fn take(&mut self, stream: u32, interval: i64, pages: &mut Pages, r: &mut Interval) {
        r.stream = stream;
        (r.start_ns, r.end_ns) = (self.start, self.end);
        r.counters = std::mem::take(&mut self.tally).counters();
        let (decided, doubts) = self.side.take();
        r.counters.lost_forward = decided.map(|t| t.0);
        r.counters.lost_backward = decided.map(|t| t.1);
        r.counters.settle_sides();
        r.loss_side = r.counters.loss_side();
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
        r.caveats.merge(doubts);
        if r.counters.lost > 0 && decided.is_none() {
            r.caveats.insert(Caveat::LossSideUnknown);
        } else if r.counters.lost_unknown > 0 && doubts.is_empty() {
            r.caveats.insert(Caveat::LossSideOpen);
        }
        if r.dwell_dominates() {
            r.caveats.insert(Caveat::DwellDominates);
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
        if let Some(why) = never_left(slot, cx.tx_stamps) {
            self.tally.not_sent(why, 1);
            self.side.not_sent();
            return;
        }
        self.tally.sent += 1;
        self.tally.sent_late += u32::from(slot.flags & SENT_LATE != 0);
        if cx.tx_stamps && slot.flags & STAMPED == 0 {
            *cx.unstamped += 1;
            self.caveats.insert(Caveat::TransmitStampsMissing);
        }
        if slot.flags & ANSWERED == 0 {
            self.tally.lost += 1;
            self.side.lost();
            return;
        }
        self.tally.received += 1;
        self.tally.reordered += u32::from(slot.flags & REORDERED != 0);
        self.t1_source = self.t1_source.max(Some(source_of(slot.flags >> T1_SHIFT)));
        self.t4_source = self.t4_source.max(Some(source_of(slot.flags >> T4_SHIFT)));
        self.side.answered(slot.seq, slot.reflector_seq, slot.flags & OVERTAKEN != 0);
        if slot.flags & CLOCK_STEPPED != 0 {
            self.caveats.insert(Caveat::ClockStepped);
            self.previous = None;
            return;
        }
        self.rtt.add(cx.pages, slot.rtt);
        if slot.flags & FORMAT_WRONG != 0 {
            self.caveats.insert(Caveat::TimestampFormatWrong);
        }
        if slot.flags & PEER_TIMES_WRONG != 0 {
            self.caveats.insert(Caveat::ReflectorTimesWrong);
            self.previous = None;
            return;
        }
        let net = slot.rtt - i64::from(slot.dwell);
        let backward = net - slot.forward;
        self.rtt_net.add(cx.pages, net);
        if slot.flags & ONE_WAY_WRONG == 0 {
            self.forward.add(cx.pages, slot.forward);
            self.backward.add(cx.pages, backward);
        } else {
            self.caveats.insert(Caveat::OneWayImplausible);
        }
        let t1 = (slot.t1 >> 20) as u32;
        let this = Previous { seq: slot.seq, t1, forward: slot.forward, backward };
        if let Some(previous) = self.previous.replace(this) {
            let (df, db) = (this.forward - previous.forward, this.backward - previous.backward);
            // Either delay lies between 0 and the round trip, so none varies by more than that,
            // but for the rates of two clocks.
            let apart = i64::from(this.t1.wrapping_sub(previous.t1)) << 20;
            let drift = apart / CLOCK_RATE + CLOCK_JITTER;
            let before = previous.forward + previous.backward;
            let most = net.max(before).saturating_add(drift);
            if df.abs() > most || db.abs() > most {
                *cx.peer_stepped += 1;
                self.caveats.insert(Caveat::PeerClockStepped);
                return;
            }
            // RFC 3550, section 6.4.1, over the answered probes in sending order.
            self.jitter_forward += (df.unsigned_abs() as f64 - self.jitter_forward) / 16.0;
            self.jitter_backward += (db.unsigned_abs() as f64 - self.jitter_backward) / 16.0;
            if previous.seq.wrapping_add(1) == slot.seq {
                self.ipdv_forward.add(cx.pages, df);
                self.ipdv_backward.add(cx.pages, db);
            }
        }
    }
}

/// Why the probe of `slot` did not leave this host, if it did not. `tx_stamps`: what leaves is
/// stamped.
#[inline]
pub(crate) fn never_left(slot: &Slot, tx_stamps: bool) -> Option<NotSent> {
    let unseen = tx_stamps && slot.flags & (STAMPED | ANSWERED) == 0;
    if slot.flags & WITHDRAWN == 0 && !(unseen && slot.flags & WAY_GONE != 0) {
        return None;
    }
    let why = (slot.flags >> WHY_SHIFT & 15) as usize;
    Some(NotSent::ALL.get(why).copied().unwrap_or(NotSent::Other))
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

/// Two clocks' rates differ by less than one part in this many.
const CLOCK_RATE: i64 = 1000;
/// What the stamps of two neighbours may be off by against each other, ns.
const CLOCK_JITTER: i64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::probe::ProbeTemplate;

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
