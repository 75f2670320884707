//! The STAMP session-sender (RFC 8762, section 4.2) for many streams on one schedule.
//!
//! Delays are computed from the best stamp of each packet's true departure, not from the time stamp
//! it carries. That one is written before the packet leaves.

mod change;
mod receive;

use std::collections::VecDeque;
use std::net::IpAddr;

use fastrand::Rng;

use sonde_results::Hist;
use sonde_results::Interval;
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_wire::{NotSent, Scale, Stamp, StampSource, Time, TxDone, TxRefused, Verdict};

use super::check::{SpecError, check, window};
use super::delays::Delays;
use super::demux::Demux;
use super::doubts::Doubts;
use super::pages::{PagedHist, Pages};
use super::probe::{Clock, ProbeTemplate, Refusal};
use super::sample::{Fate, Sample};
use super::schedule::{SendQueue, gap, mean_gap};
use super::sender_counters::SenderCounters;
use super::spec::{LinkHeader, NextHopLink, SenderConfig, StreamSpec};
use super::stream::{self, Settling, Slot, Stream};
use crate::flow::prefetch::prefetch_all;
use crate::{Instrument, Transmit};

pub struct Sender {
    config: SenderConfig,
    clock: Clock,
    streams: Vec<Stream>,
    probes: Vec<ProbeTemplate>,
    ways: Vec<NextHopLink>,
    demux: Demux,
    queue: SendQueue,
    random: Rng,
    slots: Vec<Slot>,
    pages: Pages,
    lateness: PagedHist,
    /// Its own pages: it must not suffer when those of the streams run out.
    lateness_pages: Pages,
    closed: VecDeque<u32>,
    samples: VecDeque<Sample>,
    counters: SenderCounters,
    delays: Delays,
    /// What casts doubt on all streams, by time.
    doubts: Doubts,
    /// [`Scale::utc_offset`] after the last four steps, by their index modulo 4: what is under
    /// way echoes the clock as it was.
    utc_offsets: [i64; 4],
    /// Half the mean gap between sends: after a stall the backlog leaves at no more
    /// than twice the planned rate, never in a burst.
    catch_up_gap: i64,
    /// While a backlog is being spread: nothing leaves before this, ns.
    held_until: i64,
    sweep_at: Time,
    sweep_next: usize,
    finished: bool,
    /// Nothing is due from then on, ns.
    end: i64,
    /// When sending ended.
    stopped: Time,
    /// The turn that last gave a reply, and when the first of its replies came. Those that came
    /// later may still wait to be handed over.
    heard: (Time, Time),
}

impl Sender {
    /// Checks the streams and sets up all memory. `ways[i]` belongs to the streams whose
    /// `next_hop` is `i`.
    pub fn new(
        config: SenderConfig,
        specs: &[StreamSpec],
        ways: Vec<NextHopLink>,
    ) -> Result<Self, SpecError> {
        check(&config, specs, ways.len())?;
        let probes = templates(specs)?;
        let demux = Demux::new(
            specs.iter().map(|s| (s.destination, s.source.port())),
            Rng::with_seed(config.seed ^ 0x5eed).u64(..),
        )
        .map_err(twin)?;
        let start = config.start.as_nanos();
        let (streams, end) = lay_out(&config, specs, 0, start)?;
        Ok(Sender {
            clock: Clock::new(&config),
            slots: vec![UNUSED; end as usize],
            pages: Pages::new(config.histogram_pages),
            lateness: PagedHist::EMPTY,
            lateness_pages: Pages::new(256),
            closed: VecDeque::with_capacity(streams.len()),
            samples: VecDeque::with_capacity(if config.samples { SAMPLES } else { 0 }),
            queue: SendQueue::new(specs, |s| start.saturating_add(s.phase)),
            random: Rng::with_seed(config.seed),
            probes,
            catch_up_gap: mean_gap(specs.iter().map(|s| s.period)) / 2,
            held_until: i64::MIN,
            sweep_at: config.start,
            sweep_next: 0,
            finished: false,
            end: i64::MAX,
            stopped: Time::MAX,
            heard: (Time::MAX, Time::MAX),
            counters: SenderCounters::default(),
            delays: Delays::default(),
            doubts: Doubts::new(config.start, config.interval),
            utc_offsets: [config.tai_offset; 4],
            streams,
            ways,
            demux,
            config,
        })
    }

    /// Whether a sender of this configuration can take these streams, before it is asked to. That
    /// is what [`Sender::new`] and [`Sender::add`] refuse, but for two streams of one peer and
    /// source port.
    ///
    /// # Errors
    /// As these.
    pub fn check(
        config: &SenderConfig,
        specs: &[StreamSpec],
        next_hops: usize,
    ) -> Result<(), SpecError> {
        check(config, specs, next_hops)?;
        templates(specs)?;
        lay_out(config, specs, 0, 0).map(drop)
    }

    /// A next hop was resolved, changed its address, or went away.
    pub fn set_way(&mut self, index: u16, way: NextHopLink) {
        if let Some(slot) = self.ways.get_mut(usize::from(index)) {
            *slot = way;
            self.suspect_unsent();
        }
    }

    /// The routes have changed: the ways anew, and that of each stream.
    pub fn set_routes(&mut self, ways: Vec<NextHopLink>, of_stream: &[u16]) {
        for (probe, &way) in self.probes.iter_mut().zip(of_stream) {
            if usize::from(way) < ways.len() {
                probe.set_next_hop(way);
            }
        }
        self.ways = ways;
        self.suspect_unsent();
    }

    /// The streams send from these addresses from now on (as many as there are streams): those
    /// from before are not this host's any more.
    pub fn set_sources(&mut self, sources: &[IpAddr]) {
        for (probe, &source) in self.probes.iter_mut().zip(sources) {
            probe.set_source(source);
        }
    }

    /// A probe that was handed over a moment ago to a way that is gone may never have left, if it
    /// has no transmit stamp.
    fn suspect_unsent(&mut self) {
        if !self.config.tx_stamps {
            return;
        }
        for (s, probe) in self.streams.iter().zip(&self.probes) {
            let Err(why) = self.ways[probe.next_hop()] else { continue };
            for i in 0..s.open() {
                let slot = &mut self.slots[s.index(s.settled.wrapping_add(i))];
                if slot.flags & (stream::WITHDRAWN | stream::WAY_GONE) == 0 {
                    slot.flags |= stream::WAY_GONE | (why as u32) << stream::WHY_SHIFT;
                }
            }
        }
    }

    /// The state of our clock changed (see [`SenderConfig`]).
    pub fn set_clock(&mut self, synchronised: bool, error: i64) {
        self.config.clock_synchronised = synchronised;
        self.config.clock_error = error;
        self.clock = Clock { scale: self.clock.scale, ..Clock::new(&self.config) };
    }

    /// Something that casts doubt on all streams happened at `at`: it is in the records of that
    /// time.
    pub fn doubt(&mut self, at: Time, caveat: Caveat) {
        self.doubts.add(at, caveat);
    }

    /// Stream `stream` gives its first probe sequence number `seq` instead of 0: for continuing a
    /// session, before anything was sent.
    pub fn begin_at(&mut self, stream: usize, seq: u32) {
        if let Some(s) = self.streams.get_mut(stream).filter(|s| s.attempts == 0) {
            s.begin_at(seq);
        }
    }

    pub fn counters(&self) -> SenderCounters {
        SenderCounters { histogram_refused: self.pages.refused, ..self.counters }
    }

    /// Round trips of the replies so far, for whoever cannot wait until they are settled.
    pub fn delays(&self) -> Delays {
        self.delays
    }

    /// How late packets were handed to the port, ns, since the last call.
    pub fn take_lateness(&mut self, hist: &mut Hist) {
        self.lateness.drain(&mut self.lateness_pages, hist);
    }

    /// The next packet's fate, if samples are kept.
    pub fn poll_sample(&mut self) -> Option<Sample> {
        self.samples.pop_front()
    }

    /// Nothing is due at `end` or later: a probe of that time would be alone in an interval.
    pub fn end_at(&mut self, end: Time) {
        self.end = end.as_nanos();
    }

    /// Sends nothing more from `now` on; what is in flight may still be answered. What was due before
    /// `end` and has not been sent is counted as skipped.
    pub fn stop(&mut self, end: Time, now: Time) {
        self.leave_out(end, |_| true);
        self.queue.clear();
        self.stopped = self.stopped.min(now);
    }

    /// Counts what was due before `end` on some of the streams that wait to send.
    fn leave_out(&mut self, end: Time, of_stream: impl Fn(u32) -> bool) {
        for (due, stream) in self.queue.iter().filter(|&(_, stream)| of_stream(stream)) {
            let late_by = end.as_nanos() - due;
            if late_by <= 0 {
                continue;
            }
            let (probe, s) = (&self.probes[stream as usize], &mut self.streams[stream as usize]);
            let (period, _) = probe.timing();
            let missed = ((late_by - 1) / period) as u64 + 1;
            s.tally.not_sent(NotSent::Late, missed.min(probe.remaining(s.attempts)));
        }
    }

    /// Whether every probe is sent and answered or settled: waiting longer changes nothing.
    pub fn is_done(&self) -> bool {
        self.queue.peek().is_none()
            && self.streams.iter().all(|s| {
                (0..s.open()).all(|i| {
                    let slot = &self.slots[s.index(s.settled.wrapping_add(i))];
                    slot.flags & (stream::ANSWERED | stream::WITHDRAWN) != 0
                })
            })
    }

    /// Ends the measurement at `now`: answered probes are settled, those whose timeout has
    /// not passed are left out and counted as unresolved. What was due and not sent is counted by
    /// [`Sender::stop`] only. The remaining records follow from [`Instrument::poll_record`].
    pub fn finish(&mut self, now: Time) {
        self.queue.clear();
        self.stopped = self.stopped.min(now);
        for i in 0..self.streams.len() {
            let s = &mut self.streams[i];
            // An open probe within its timeout has no fate: it and the answered ones
            // around it keep their order, so close the gap towards the front.
            let deadline = now.as_nanos() - self.config.timeout;
            let mut kept = s.settled;
            for k in 0..s.open() {
                let from = s.index(s.settled.wrapping_add(k));
                let slot = self.slots[from];
                if slot.flags & (stream::ANSWERED | stream::WITHDRAWN) == 0 && slot.t1 > deadline {
                    self.counters.unresolved += 1;
                    continue;
                }
                let to = s.index(kept);
                self.slots[to] = slot;
                kept = kept.wrapping_add(1);
            }
            s.next_seq = kept;
        }
        // From here on every timeout has passed.
        self.config.timeout = i64::MIN / 2;
        self.finished = true;
        for i in 0..self.streams.len() as u32 {
            self.settle(i, now);
            self.close_if_due(i, i64::MAX);
        }
    }

    /// Settles what no reply can answer in time any more. After a pause of the process replies
    /// wait that came in time: no probe is settled before those of its time are there.
    #[inline]
    fn settle(&mut self, index: u32, now: Time) {
        let heard = if self.heard.0 == now { now.min(self.heard.1) } else { now };
        let until = heard.as_nanos().saturating_sub(self.config.timeout);
        let s = &mut self.streams[index as usize];
        if self.config.samples {
            // The ping-like display wants to hear of losses too.
            let mut seq = s.settled;
            while seq != s.next_seq && !s.closed {
                let slot = &self.slots[s.index(seq)];
                if slot.t1 > until || slot.t1 >= s.end {
                    break;
                }
                if slot.flags & stream::ANSWERED == 0 {
                    let t1 = stream::t1_of(slot);
                    let fate = stream::never_left(slot, self.config.tx_stamps)
                        .map_or(Fate::Lost, Fate::NotSent);
                    let sample = Sample { stream: index, seq: slot.seq, t1, fate };
                    push_sample(&mut self.samples, &mut self.counters, sample);
                }
                seq = seq.wrapping_add(1);
            }
        }
        let mut cx = Settling {
            slots: &mut self.slots,
            pages: &mut self.pages,
            tx_stamps: self.config.tx_stamps,
            unstamped: &mut self.counters.unstamped,
            peer_stepped: &mut self.counters.peer_clock_stepped,
        };
        if s.settle(until, self.config.interval, &mut cx) {
            enqueue(&mut self.closed, s, index);
        }
    }

    /// Closes the interval of a stream that sends rarely or no more, once nothing of it
    /// can change.
    fn close_if_due(&mut self, index: u32, until: i64) {
        let s = &mut self.streams[index as usize];
        if s.open() == 0 && (self.finished || self.probes[index as usize].is_complete(s.attempts)) {
            // No further answer will decide a side.
            s.side.finish();
        }
        if !s.closed && s.open() == 0 && until >= s.end && !s.is_empty() {
            s.closed = true;
            enqueue(&mut self.closed, s, index);
        }
    }

    #[inline]
    fn keep(&mut self, sample: Sample) {
        if self.config.samples {
            push_sample(&mut self.samples, &mut self.counters, sample);
        }
    }

    /// Thousands of streams do not fit into the caches: has those that send next there in
    /// time, first themselves, then what they point to.
    #[inline]
    fn fetch_ahead(&self) {
        if let Some(next) = self.queue.ahead(STREAMS_AHEAD) {
            prefetch_all(&self.streams, next as usize);
            prefetch_all(&self.probes, next as usize);
        }
        if let Some(next) = self.queue.ahead(SLOTS_AHEAD) {
            self.streams[next as usize].prefetch(&self.slots, &self.pages);
        }
    }

    /// The slot of the stream's next probe, or why it must not be sent now.
    fn next_slot(&mut self, index: u32, now: Time) -> Option<u32> {
        self.settle(index, now);
        let s = &mut self.streams[index as usize];
        if s.open() < s.size {
            return Some(s.next_seq);
        }
        if s.closed {
            // Nobody has fetched the record: rather a longer interval than a gap.
            s.closed = false;
            s.end = s.end.saturating_add(self.config.interval);
            self.settle(index, now);
        }
        let s = &self.streams[index as usize];
        (s.open() < s.size).then_some(s.next_seq)
    }
}

impl Instrument for Sender {
    type Record = Interval;

    fn input(&mut self, frame: &mut [u8], stamp: Stamp, now: Time) -> Verdict {
        if let Err(refusal) = self.receive(frame, stamp, now) {
            let c = &mut self.counters;
            *match refusal {
                Refusal::Malformed => &mut c.malformed,
                Refusal::Checksum => &mut c.checksum,
                Refusal::Short => &mut c.short,
                Refusal::Stranger => &mut c.strangers,
                Refusal::Other => &mut c.other_replies,
                Refusal::WrongSession => &mut c.wrong_session,
                Refusal::Late => &mut c.late,
                Refusal::Forged => &mut c.forged,
            } += 1;
        }
        Verdict::Release
    }

    fn transmitted(&mut self, done: TxDone) {
        let (index, seq) = ((done.cookie >> 32) as u32, done.cookie as u32);
        let Some(s) = index.checked_sub(1).and_then(|i| self.streams.get(i as usize)) else {
            return;
        };
        let slot = &mut self.slots[s.index(seq)];
        if seq.wrapping_sub(s.settled) >= s.open() || slot.flags & stream::STAMPED != 0 {
            self.counters.stamps_late += 1;
            return;
        }
        let better = done.stamp.at.as_nanos();
        if better < slot.t1 - BEFORE_HANDED_OVER {
            // Nothing leaves before it was handed over: a clock was set between.
            slot.flags |= stream::CLOCK_STEPPED;
            self.counters.stamps_early += 1;
            return;
        }
        if slot.flags & stream::ANSWERED != 0 {
            // Ports give completions first; one that does not still gets it right.
            slot.rtt += slot.t1 - better;
            slot.forward += slot.t1 - better;
        }
        slot.t1 = better;
        slot.flags &= !(15 << stream::T1_SHIFT);
        slot.flags |= stream::STAMPED | stream::source_bits(done.stamp.source) << stream::T1_SHIFT;
    }

    fn refused(&mut self, refused: TxRefused) {
        let (index, seq) = ((refused.cookie >> 32) as u32, refused.cookie as u32);
        let Some(i) = index.checked_sub(1).map(|i| i as usize).filter(|&i| i < self.streams.len())
        else {
            return;
        };
        let s = &self.streams[i];
        let slot = &mut self.slots[s.index(seq)];
        let gone = stream::ANSWERED | stream::STAMPED | stream::WITHDRAWN;
        if seq.wrapping_sub(s.settled) >= s.open() || slot.flags & gone != 0 {
            return;
        }
        // What the kernel says of a full queue may be a link without carrier: the watch knows.
        let why = match (refused.why, self.ways[self.probes[i].next_hop()]) {
            (NotSent::NoBuffer | NotSent::Other, Err(why)) => why,
            (why, _) => why,
        };
        slot.flags &= !(15 << stream::WHY_SHIFT);
        slot.flags |= stream::WITHDRAWN | (why as u32) << stream::WHY_SHIFT;
        self.counters.sent -= 1;
        self.counters.withdrawn += 1;
    }

    fn set_scale(&mut self, scale: Scale, now: Time) {
        if scale == self.clock.scale {
            return;
        }
        self.utc_offsets[scale.steps as usize & 3] = scale.utc_offset;
        self.clock.scale = scale;
        // The first scale is no step, unless something was sent before.
        if self.counters.sent > 0 {
            self.counters.clock_steps += 1;
            self.counters.clock_stepped_by_ms += scale.last_step.unsigned_abs() / 1_000_000;
            self.doubts.add(now, Caveat::ClockStepped);
        }
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        loop {
            let (due, index) = self.queue.peek()?;
            let now_ns = now.as_nanos();
            if due > now_ns || due >= self.end {
                return None;
            }
            let mut lateness = now_ns - due;
            if now_ns < self.held_until {
                return None;
            }
            let (period, schedule) = self.probes[index as usize].timing();
            let mut due = due;
            if lateness >= period {
                // A whole period late: these probes are left out, not sent in a burst.
                let missed = (now_ns.min(self.end - 1) - due) / period;
                due += missed * period;
                lateness -= missed * period;
                let s = &mut self.streams[index as usize];
                s.tally.not_sent(NotSent::Late, missed as u64);
            }
            let next = due + gap(period, schedule, &mut self.random);
            let way = self.ways[self.probes[index as usize].next_hop()];
            let (hop, gone) = match way {
                Err(why) if self.config.kernel_resolves => {
                    let header = LinkHeader::new([0; 6], [0; 6], &[]);
                    (Ok(header), stream::WAY_GONE | (why as u32) << stream::WHY_SHIFT)
                }
                way => (way, 0),
            };
            let seq = self.next_slot(index, now);
            let (Ok(hop), Some(seq)) = (hop, seq) else {
                let s = &mut self.streams[index as usize];
                if let Err(why) = hop {
                    // An attempt as any other: a count comes to its end without a way too.
                    s.attempts += 1;
                    s.tally.not_sent(why, 1);
                } else {
                    self.counters.window_full += 1;
                    s.tally.not_sent(NotSent::InFlight, 1);
                }
                let more = !self.probes[index as usize].is_complete(s.attempts);
                self.queue.reschedule(more.then_some(next), period);
                continue;
            };
            self.fetch_ahead();
            let probe = &self.probes[index as usize];
            let Some(len) = probe.emit(buffer, &hop, seq, &self.clock, now) else {
                // Longer than any frame of this port: never due again, or the pump would spin.
                let s = &mut self.streams[index as usize];
                s.tally.not_sent(NotSent::TooLong, 1);
                s.attempts += 1;
                let more = !self.probes[index as usize].is_complete(s.attempts);
                self.queue.reschedule(more.then_some(next), period);
                continue;
            };
            let s = &mut self.streams[index as usize];
            let late = lateness > self.config.late_limit;
            self.slots[s.index(seq)] = Slot {
                t1: now_ns,
                forward: now_ns,
                seq,
                flags: stream::source_bits(StampSource::User) << stream::T1_SHIFT
                    | if late { stream::SENT_LATE } else { 0 }
                    | self.clock.scale.steps << stream::STEPS_SHIFT
                    | gone,
                ..Slot::default()
            };
            s.next_seq = seq.wrapping_add(1);
            s.attempts += 1;
            let more = !probe.is_complete(s.attempts);
            self.queue.reschedule(more.then_some(next), period);
            self.counters.sent += 1;
            self.held_until = if lateness <= CATCH_UP {
                i64::MIN
            } else {
                // A turn of the pump may take longer than the gap: a few sends may then
                // leave in one turn.
                let least = now_ns - CATCH_UP_SENDS * self.catch_up_gap;
                let since = if self.held_until == i64::MIN { now_ns } else { self.held_until };
                since.max(least) + self.catch_up_gap
            };
            self.lateness.add(&mut self.lateness_pages, lateness);
            let cookie = u64::from(index + 1) << 32 | u64::from(seq);
            return Some(Transmit { len, cookie });
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let send = self.queue.peek().map(|(due, _)| Time::from_nanos(due.max(self.held_until)));
        Some(send.map_or(self.sweep_at, |t| t.min(self.sweep_at)))
    }

    /// Settles streams that send rarely, a few at a time.
    fn handle_timeout(&mut self, now: Time) {
        if now < self.sweep_at {
            return;
        }
        for _ in 0..SWEEP_STREAMS.min(self.streams.len()) {
            let index = self.sweep_next as u32;
            self.settle(index, now);
            self.close_if_due(index, now.as_nanos().saturating_sub(self.config.timeout));
            self.sweep_next += 1;
            if self.sweep_next == self.streams.len() {
                self.sweep_next = 0;
                self.sweep_at = now + SWEEP_ROUND;
                return;
            }
        }
        self.sweep_at = now + SWEEP_STEP;
    }

    fn poll_record(&mut self, record: &mut Interval) -> bool {
        while let Some(index) = self.closed.pop_front() {
            let s = &mut self.streams[index as usize];
            s.queued = false;
            if !s.closed {
                continue; // lengthened meanwhile
            }
            s.take(index, self.config.interval, &mut self.pages, record);
            // The last interval is cut short where sending ended.
            record.end_ns = record.end_ns.min(self.stopped.as_nanos()).max(record.start_ns);
            let peer = s.peer_estimate;
            record.peer_error_ns = peer.is_valid().then(|| peer.error_ns() as f64);
            let mut clocks = CaveatSet::default();
            if !self.config.clock_synchronised {
                clocks.insert(Caveat::LocalClockUnsynchronised);
            }
            if record.counters.received > 0 && !peer.synchronised() {
                clocks.insert(Caveat::PeerClockUnsynchronised);
            }
            record.caveats.merge(clocks);
            record.caveats.merge(self.doubts.during(record.start_ns, record.end_ns));
            for (why, _) in record.counters.not_sent.iter() {
                record.caveats.insert(unsent_caveat(why));
            }
            if self.pages.refused > 0 {
                record.caveats.insert(Caveat::HistogramFull);
            }
            if self.finished {
                // What remains may fill a further interval, and nobody else looks.
                self.settle(index, self.config.start);
                self.close_if_due(index, i64::MAX);
            }
            return true;
        }
        false
    }
}

/// Packets of streams to be sent.
fn templates(specs: &[StreamSpec]) -> Result<Vec<ProbeTemplate>, SpecError> {
    let probe = |(stream, spec)| {
        ProbeTemplate::new(spec).map_err(|_| SpecError::Stream {
            stream,
            what: "no packet can be made of its addresses and length".into(),
        })
    };
    specs.iter().enumerate().map(probe).collect()
}

/// Streams that begin at `start` (ns), with their slots from `base` on, and where those end.
fn lay_out(
    config: &SenderConfig,
    specs: &[StreamSpec],
    mut base: u32,
    start: i64,
) -> Result<(Vec<Stream>, u32), SpecError> {
    let mut streams = Vec::with_capacity(specs.len());
    for (stream, spec) in specs.iter().enumerate() {
        let size = window(config, spec);
        streams.push(Stream::new(base, size, start, config.interval, spec.reflector));
        base = base.checked_add(size).ok_or_else(|| SpecError::Stream {
            stream,
            what: "too many probes in flight; shorten the timeout or lower the rate".into(),
        })?;
    }
    Ok((streams, base))
}

fn twin(stream: usize) -> SpecError {
    let what = "has the same peer and source port as another one; give each its own source port";
    SpecError::Stream { stream, what: what.into() }
}

/// Not zeros, so that the memory is touched before the first sends.
const UNUSED: Slot =
    Slot { seq: u32::MAX, t1: 0, rtt: 0, forward: 0, dwell: 0, reflector_seq: 0, flags: 0 };

/// What is said of probes that were not sent.
fn unsent_caveat(why: NotSent) -> Caveat {
    match why {
        NotSent::Late | NotSent::InFlight => Caveat::SendsSkipped,
        NotSent::NoNeighbour => Caveat::NextHopUnresolved,
        _ => Caveat::SendsFailed,
    }
}

/// Each stream stands in the queue once at most: it has room for all.
fn enqueue(closed: &mut VecDeque<u32>, s: &mut Stream, index: u32) {
    if !std::mem::replace(&mut s.queued, true) {
        closed.push_back(index);
    }
}

fn push_sample(samples: &mut VecDeque<Sample>, counters: &mut SenderCounters, sample: Sample) {
    if samples.len() == SAMPLES {
        samples.pop_front();
        counters.samples_dropped += 1;
    }
    samples.push_back(sample);
}

/// Values kept for [`Sender::poll_sample`]; the pump fetches them every turn.
const SAMPLES: usize = 1 << 16;
/// From this lateness on (ns) a backlog is spread instead of sent at once.
const CATCH_UP: i64 = 200_000;
/// While a backlog is spread, at most this many sends leave together.
const CATCH_UP_SENDS: i64 = 16;
/// A stream's own memory is fetched so many sends before its turn, its slots and pages so many.
const STREAMS_AHEAD: usize = 8;
const SLOTS_AHEAD: usize = 4;
/// A stamp may be this much before the time at which the probe was written, ns: two clocks are
/// read.
const BEFORE_HANDED_OVER: i64 = 1_000_000;
/// Streams looked at in one sweep step, steps this far apart (ns), and rounds this far (ns).
const SWEEP_STREAMS: usize = 16;
const SWEEP_STEP: i64 = 1_000_000;
const SWEEP_ROUND: i64 = 50_000_000;
